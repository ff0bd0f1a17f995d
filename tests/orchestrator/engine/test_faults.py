# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Faults: what a scenario plans, and the engine with them against a second implementation."""

import math
from dataclasses import replace

import numpy as np
import pytest
from engine_cases import (
    EVERY,
    EVERY_COMBINATION,
    assert_equal_to_reference,
    random_case,
    random_faults,
)
from small_scenario import TREE

from ns3_scenarios.trace import ChannelTrace, Replay, TraceExhausted
from orchestrator.engine.faults import Fault, FaultSchedule, RoundFaults, planned
from orchestrator.engine.plan import fixed_allocation
from orchestrator.rounds.loop import Decision, EngineBackend, ShadowPrediction, predict
from orchestrator.rounds.simulation import simulate
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError, RunEnds
from testbed.core.faults import slowed_end
from testbed.core.node import BS, uav, uavs
from testbed.core.timeline import STEPS, Loss

SMALL = TREE | {"workload": TREE["workload"] | {"batch_size": 16}}


def small(**faults) -> Scenario:
    return validate(SMALL | {"faults": faults}, "small")


def played(scenario: Scenario, rounds: int = 1):
    trace = ChannelTrace(np.full((3, 4000), 1e-10), scenario.slot_s)
    return predict(scenario, Replay(trace), profile_of(scenario), rounds=rounds)


# --- the engine ----------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", EVERY, ids=lambda scheme: scheme.name)
def test_engine_agrees_with_the_reference_whatever_goes_wrong(scheme) -> None:
    rng = np.random.default_rng(2000 + EVERY.index(scheme))
    lost_in_all = 0
    for _ in range(60):
        case = random_case(rng, scheme)
        times = assert_equal_to_reference(case, random_faults(rng, case[0].clients, *case[3:]))
        lost_in_all += 0 if times is None else len(times.lost)
    assert lost_in_all > 30


def test_without_faults_nothing_changes() -> None:
    rng = np.random.default_rng(5)
    for scheme in EVERY_COMBINATION:
        case = random_case(rng, scheme)
        clients = case[0].clients
        never = np.full(clients, math.inf)
        none = RoundFaults(
            np.zeros(clients, bool),
            *(never,) * 3,
            [None] * clients,
            np.empty((0, 4)),
            [],
            math.inf,
            True,
            {},
            np.zeros(clients, bool),
        )
        try:
            plain = simulate(*case)
        except TraceExhausted:
            continue
        same = simulate(*case, faults=none)
        assert same.spans.tolist() == plain.spans.tolist()
        assert same.latency_s == plain.latency_s
        assert same.energy_j == pytest.approx(plain.energy_j, rel=1e-12)


def test_hand_solved_slowness() -> None:
    rows = [(1.0, 2.0, 2.0), (3.0, 5.0, 4.0)]
    assert slowed_end(0.0, 1.0, rows) == 1.0  # done before
    assert slowed_end(0.5, 1.0, rows) == 2.0  # half of it at half speed, which takes 1 s
    assert slowed_end(0.5, 2.0, rows) == 3.0  # 0.5 before, 0.5 in 1 s, 1 between
    assert slowed_end(0.5, 2.25, rows) == 4.0  # and the last quarter at a quarter of the speed
    assert slowed_end(5.0, 1.0, rows) == 6.0  # begun after


# --- what is planned -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("faults", "named"),
    [
        ({"events": [{"kind": "uav-crash"}]}, "faults.events.0.nodes"),
        ({"events": [{"kind": "uav-crash", "nodes": ["uav4"]}]}, "faults.events.0.nodes"),
        ({"events": [{"kind": "link-outage", "nodes": ["bs"]}]}, "faults.events.0.nodes"),
        ({"events": [{"kind": "bs-crash", "nodes": ["uav1"]}]}, "faults.events.0.nodes"),
        ({"events": [{"kind": "bs-crash", "duration_s": 1}]}, "faults.events.0.duration_s"),
        ({"events": [{"kind": "flood", "nodes": ["uav1"]}]}, "faults.events.0.kind"),
        ({"events": [{"kind": "bs-crash", "at_s": -1}]}, "faults.events.0.at_s"),
        ({"events": [{"kind": "bs-crash", "at_s": math.nan}]}, "faults.events.0.at_s"),
        ({"on_loss": "hope"}, "faults.on_loss"),
        ({"loss_timeout_s": 0}, "faults.loss_timeout_s"),
        ({"random": {"kinds": ["link-outage"]}}, "faults.random.count"),
        ({"random": {"count": 1, "duration_s": [3, 2]}}, "faults.random.duration_s"),
    ],
)
def test_wrong_faults_are_refused_by_name(faults: dict, named: str) -> None:
    with pytest.raises(InputError) as refused:
        small(**faults)
    assert named in str(refused.value)
    assert "\n" not in str(refused.value)


def test_measured_computing_cannot_be_slowed() -> None:
    tree = SMALL | {"workload": SMALL["workload"] | {"compute_time": "measured"}}
    slow = {"events": [{"kind": "slow-node", "nodes": ["bs"]}]}
    with pytest.raises(InputError, match=r"workload\.compute_time"):
        validate(tree | {"faults": slow}, "small")


def test_random_faults_come_by_seed() -> None:
    kinds = ["uav-crash", "bs-crash", "link-outage", "slow-node"]
    drawn = {"count": 200, "kinds": kinds, "within_s": 30.0, "duration_s": [1.0, 2.0]}
    faults = planned(small(random=drawn))
    assert faults == planned(small(random=drawn))
    assert faults != planned(small(random=drawn | {"seed": 7}))
    assert len(faults) == 200
    assert {fault.kind for fault in faults} == set(kinds)
    assert all(0 <= fault.start_s <= 30 for fault in faults)
    for fault in faults:
        assert fault.nodes == (BS,) if fault.kind == "bs-crash" else fault.nodes[0] in set(uavs(3))
        lasts = fault.kind in ("link-outage", "slow-node")
        assert (1 <= fault.end_s - fault.start_s <= 2) == lasts
    counts = [
        len(planned(small(random={"rate_per_s": 0.5, "within_s": 20.0, "seed": seed})))
        for seed in range(300)
    ]
    assert np.mean(counts) == pytest.approx(10, abs=0.6)
    assert np.var(counts) == pytest.approx(10, abs=3)


def test_faults_lie_on_slot_boundaries_and_may_count_from_a_round() -> None:
    out = {"kind": "link-outage", "nodes": ["uav2"], "at_s": 0.26, "duration_s": 0.5}
    course = FaultSchedule(small(events=[out, out | {"round": 1, "nodes": ["uav1"]}]))
    first = course.round(0, 0.0)
    assert first.silent == [(2, 3, 8)]
    second = course.round(1, 4.13)
    assert second.silent == [(1, 44, 49)]
    # What began in one round goes on in the next.
    assert course.round(2, 4.6).silent == [(1, 44, 49)]
    assert course.round(3, 5.0) is None


def test_silences_that_meet_count_as_one() -> None:
    events = [
        {"kind": "link-outage", "nodes": ["uav1"], "at_s": 0, "duration_s": 3},
        {"kind": "partition", "nodes": ["uav1", "uav2"], "at_s": 2, "duration_s": 3},
    ]
    faults = FaultSchedule(small(events=events, on_loss="drop", loss_timeout_s=4)).round(0, 0.0)
    assert faults.lost_s.tolist() == [4.0, math.inf, math.inf]
    assert faults.of_bs().lost_s == [4.0, None, None]


# --- what a round does ---------------------------------------------------------------------------

CRASH = {"kind": "uav-crash", "nodes": ["uav2"], "at_s": 1.0}
OUT = {"kind": "link-outage", "nodes": ["uav2"], "at_s": 1.0, "duration_s": 3.0}


def test_a_short_outage_only_delays() -> None:
    plain = played(small()).rounds[0]
    for policy in ("wait", "drop", "abort"):
        (round_,) = played(small(events=[OUT], on_loss=policy, loss_timeout_s=4))
        assert not round_.lost
        assert plain.latency_s < round_.latency_s < plain.latency_s + 3.1


def test_wait_waits_however_long_the_link_is_out() -> None:
    (round_,) = played(small(events=[OUT | {"duration_s": 50}], loss_timeout_s=4))
    assert not round_.lost
    assert round_.latency_s > 51


@pytest.mark.parametrize("fault", [CRASH, OUT | {"duration_s": 50}])
def test_drop_goes_on_without_the_client(fault: dict) -> None:
    timeline = played(small(events=[fault], on_loss="drop", loss_timeout_s=2), rounds=2)
    first, second = timeline
    assert timeline.ended is None
    (loss,) = first.lost
    assert (loss.client, loss.lost_s, loss.cause) == (2, 3.0, fault["kind"])
    assert loss.stopped_s == (1.0 if fault is CRASH else 3.0)
    ends = {client: first.spans[first.spans["client"] == client]["end_s"] for client in (1, 2, 3)}
    assert ends[2].max() <= 3.0
    steps = first.spans[first.spans["client"] == 2]["step"].tolist()
    assert STEPS.index("CM") not in steps
    assert first.latency_s == pytest.approx(max(3.0, ends[1].max(), ends[3].max()))
    cut = [step for step in first.to_json()["steps"] if step.get("cut")]
    assert [step["client"] for step in cut] == [2]
    # In the next round it is still away.
    assert set(second.spans["client"]) == {1, 3}
    assert second.energy_j[1] == 0


def test_a_dropped_client_comes_back_with_its_link() -> None:
    back = OUT | {"duration_s": 4}
    timeline = played(small(events=[back], on_loss="drop", loss_timeout_s=2), rounds=3)
    (first, *others) = timeline
    assert [loss.client for loss in first.lost] == [2]
    for round_ in others:
        there = round_.start_s >= 5
        assert (2 in round_.spans["client"]) == there
        assert bool(round_.lost) != there
    assert 2 in timeline.rounds[-1].spans["client"]


@pytest.mark.parametrize("policy", ["abort", "wait"])
def test_a_crash_ends_a_run_that_drops_nobody(policy: str) -> None:
    timeline = played(small(events=[CRASH], on_loss=policy, loss_timeout_s=2), rounds=2)
    assert len(timeline) == 0
    assert timeline.ended.at_s == 3.0
    assert "uav2" in str(timeline.ended)
    assert "uav-crash" in str(timeline.ended)


def test_nobody_goes_on_without_a_base_station_or_any_client() -> None:
    crash = {"kind": "bs-crash", "round": 1, "at_s": 0.5}
    timeline = played(small(events=[crash], on_loss="drop"), rounds=3)
    assert len(timeline) == 1
    assert "base station crashed" in str(timeline.ended)
    all_out = {"kind": "partition", "nodes": ["uav1", "uav2", "uav3"], "at_s": 1}
    timeline = played(small(events=[all_out], on_loss="drop", loss_timeout_s=1), rounds=3)
    assert len(timeline) == 0
    assert "no client is left" in str(timeline.ended)


@pytest.mark.parametrize("kind", ["corrupt-frame", "duplicate-frame"])
def test_who_sends_wrong_frames_is_out_for_one_round(kind: str) -> None:
    wrong = {"kind": kind, "nodes": ["uav3"], "at_s": 1.0}
    first, second = played(small(events=[wrong], on_loss="drop"), rounds=2)
    (loss,) = first.lost
    assert (loss.client, loss.cause) == (3, kind)
    upload = [
        span for span in first.spans[first.spans["client"] == 3].tolist() if STEPS[span[2]] == "CA"
    ][-1]
    assert upload[3 if kind == "corrupt-frame" else 4] == loss.lost_s
    assert upload[3] >= 1.0
    assert not second.lost


def test_a_slow_node_takes_longer_and_more_energy() -> None:
    plain = played(small()).rounds[0]
    slow = {"kind": "slow-node", "nodes": ["uav1"], "factor": 3}
    (round_,) = played(small(events=[slow]))

    def computing_s(of, client: int) -> float:
        own = of.spans[of.spans["client"] == client]
        own = own[np.isin(own["step"], (STEPS.index("CF"), STEPS.index("CB")))]
        return float((own["end_s"] - own["start_s"]).sum())

    assert computing_s(round_, 1) == pytest.approx(3 * computing_s(plain, 1))
    assert computing_s(round_, 2) == pytest.approx(computing_s(plain, 2))
    assert round_.energy_j[0] > plain.energy_j[0] + 30 * computing_s(plain, 1)


# --- hosts ---------------------------------------------------------------------------------------


def shadow(scenario: Scenario) -> ShadowPrediction:
    trace = ChannelTrace(np.full((3, 4000), 1e-10), scenario.slot_s)
    return ShadowPrediction(EngineBackend(scenario, Replay(trace), profile_of(scenario)))


def test_a_host_that_is_lost_in_a_round_is_a_crash_of_its_uavs() -> None:
    """The round is predicted once more, as if the crash had been planned; and so is the next."""
    scenario = small(on_loss="drop", loss_timeout_s=0.5)
    decision = Decision(0, 0.0, fixed_allocation(scenario))
    along = shadow(scenario)
    whole = along.next_round(decision, None)
    at_s = 0.4 * whole.latency_s
    slot = math.ceil(at_s / scenario.slot_s)
    along.engine.add_fault(Fault.of_host("beta", [uav(2), uav(3)], at_s, slot * 0.1 + 0.5))
    struck = along.repeat_round(decision, None)
    events = [{"kind": "uav-crash", "nodes": ["uav2", "uav3"], "at_s": slot * scenario.slot_s}]
    planned_too = shadow(small(on_loss="drop", loss_timeout_s=0.5, events=events))
    crashed = planned_too.next_round(decision, None)
    assert (struck.spans == crashed.spans).all()
    assert struck.latency_s == crashed.latency_s != whole.latency_s
    assert [(loss.client, loss.cause) for loss in struck.lost] == [
        (2, "loss of host beta"),
        (3, "loss of host beta"),
    ]
    after = along.next_round(replace(decision, index=1, start_s=struck.end_s), None)
    assert set(after.spans["client"]) == {1}
    assert after.start_s == struck.end_s


def test_a_host_that_is_lost_between_rounds_is_absent_from_the_next() -> None:
    scenario = small(on_loss="drop")
    decision = Decision(0, 0.0, fixed_allocation(scenario))
    along, alone = shadow(scenario), shadow(scenario)
    first = along.next_round(decision, None)
    along.add_fault(Fault.of_host("gamma", [uav(3)], first.end_s, first.end_s))
    second = along.next_round(replace(decision, index=1, start_s=first.end_s), None)
    assert second.lost == [Loss(3, first.end_s, first.end_s, "loss of host gamma")]
    assert set(second.spans["client"]) == {1, 2}
    both = alone.next_round(decision, None)
    assert (
        second.latency_s
        < alone.next_round(replace(decision, index=1, start_s=both.end_s), None).latency_s
    )


@pytest.mark.parametrize("on_loss", ["wait", "abort"])
def test_no_round_goes_on_without_a_host_that_may_not_be_dropped(on_loss: str) -> None:
    schedule = FaultSchedule(small(on_loss=on_loss))
    assert schedule.round(0, 0.0) is None
    schedule.add_fault(Fault.of_host("beta", [uav(2)], 1.0, 1.0))
    with pytest.raises(RunEnds, match=r"uav2, lost at 1 s \(loss of host beta\)"):
        schedule.round(1, 1.0)


def test_what_was_planned_for_a_round_happens_once_when_it_is_begun_again() -> None:
    events = [{"kind": "slow-node", "nodes": ["uav1"], "round": 0, "at_s": 0, "duration_s": 1,
               "factor": 3}]  # fmt: skip
    schedule = FaultSchedule(small(on_loss="drop", events=events))
    first = schedule.round(0, 0.0)
    schedule.add_fault(Fault.of_host("beta", [uav(2)], 0.31, 2.5))
    again = schedule.round(0, 0.0)
    assert first is not None
    assert again is not None
    assert again.slow.tolist() == first.slow.tolist() == [[1, 0, 1, 3]]
    assert (again.stop_s[1], again.lost_s[1]) == (pytest.approx(0.4), 2.5)
    assert again.silent == [(2, 4, None)]
    assert not again.absent.any()
