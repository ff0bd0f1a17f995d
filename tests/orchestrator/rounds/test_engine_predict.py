# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rounds after rounds: traces that grow, policies that see the past only, traces too short."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ns3_scenarios.trace import ChannelTrace, Replay, TraceExhausted
from orchestrator.engine.fdma import ShannonFdma
from orchestrator.engine.plan import Allocation, fixed_allocation, link_bytes, plan_round
from orchestrator.rounds.loop import predict
from orchestrator.rounds.simulation import simulate
from orchestrator.scenario.channel import FIRST_SLOTS
from orchestrator.scenario.loading import load
from testbed.core.errors import InputError
from workloads.costs.profile import PAPER

SCENARIO = load(
    Path(__file__).parents[3] / "scenarios" / "paper.yaml",
    ["uavs.tx_power_w=[1, 0.4, 0.1]", "workload.local_iterations=2"],
)


def trace(slots):
    rng = np.random.default_rng(4)
    gain = 10 ** (-rng.uniform(85, 103, (3, slots)) / 10)
    return ChannelTrace(gain, 0.1, position_m=rng.uniform(0, 1, (3, slots, 3)))


class Growing:
    """A source that makes just what it is asked for, up to its end."""

    slot_s = 0.1
    uavs = 3

    def __init__(self, slots):
        self.whole, self.asked = trace(slots), []

    def trace(self, slots):
        self.asked.append(slots)
        if slots > self.whole.slots:
            raise TraceExhausted(self.whole.slots)
        return replace(
            self.whole,
            gain=self.whole.gain[:, :slots],
            position_m=self.whole.position_m[:, :slots],
        )


def test_rounds_follow_without_a_gap_on_a_trace_that_grows():
    source = Growing(4 * FIRST_SLOTS)
    done = []
    timeline = predict(SCENARIO, source, PAPER, rounds=60, progress=done.append)
    assert done == list(range(1, 61))
    assert [r.index for r in timeline] == list(range(60))
    assert len(source.asked) > 1  # it had to grow
    whole = predict(SCENARIO, Replay(source.whole), PAPER, rounds=60)
    plan, radio = plan_round(SCENARIO, PAPER, fixed_allocation(SCENARIO)), ShannonFdma.of(SCENARIO)
    start_s = 0.0
    for mine, other in zip(timeline, whole, strict=True):
        alone = simulate(plan, radio, source.whole.gain, 0.1, start_s)
        assert mine.start_s == start_s
        assert mine.latency_s == other.latency_s == alone.latency_s
        assert (mine.spans == alone.spans).all()
        start_s = alone.end_s
    assert start_s > FIRST_SLOTS * 0.1


def test_scenario_says_how_many_rounds_and_sizing_how_many_bytes():
    source = Replay(trace(2000))
    assert len(predict(SCENARIO, source, PAPER)) == SCENARIO.rounds == 1
    payload = predict(SCENARIO, source, PAPER).rounds[0]
    wire = predict(SCENARIO, source, PAPER, sizing=link_bytes).rounds[0]
    assert wire.spans["bytes"].sum() > payload.spans["bytes"].sum() * 1.03
    assert wire.latency_s > payload.latency_s


def test_policy_decides_each_round_once_and_sees_the_past_only():
    source = Growing(3 * FIRST_SLOTS)
    seen = []

    def decide(situation):
        seen.append((situation.index, situation.start_s, len(situation.rounds)))
        assert len(situation.allocations) == situation.index
        known_s = situation.channel.slots * 0.1
        assert situation.start_s < known_s <= situation.start_s + 0.1 + 1e-9
        assert situation.channel.position_m.shape == (3, situation.channel.slots, 3)
        shares = np.roll([0.2, 0.3, 0.5], situation.index)
        return Allocation(1 + situation.index % 2, shares, shares, shares)

    timeline = predict(SCENARIO, source, PAPER, rounds=40, decide=decide)
    assert [index for index, _, _ in seen] == [before for _, _, before in seen] == list(range(40))
    assert [start_s for _, start_s, _ in seen] == [r.start_s for r in timeline]
    assert [r.split for r in timeline] == [1, 2] * 20
    shares = np.roll([0.2, 0.3, 0.5], 7)
    plan = plan_round(SCENARIO, PAPER, Allocation(2, shares, shares, shares))
    alone = simulate(
        plan, ShannonFdma.of(SCENARIO), source.whole.gain, 0.1, timeline.rounds[7].start_s
    )
    assert timeline.rounds[7].latency_s == alone.latency_s


@pytest.mark.parametrize("source", [Growing(700), Replay(trace(700))], ids=["grows", "replay"])
@pytest.mark.parametrize("decide", [None, lambda situation: fixed_allocation(SCENARIO)])
def test_a_trace_too_short_is_refused_with_what_would_help(source, decide):
    enough = predict(SCENARIO, source, PAPER, rounds=3, decide=decide)
    fitting = int(70 / enough.rounds[-1].latency_s)
    with pytest.raises(InputError) as refused:
        predict(SCENARIO, source, PAPER, rounds=1000, decide=decide)
    message = str(refused.value)
    assert message.startswith("trace: its 700 slots of 0.1 s end in round ")
    assert "\n" not in message
    rounds = int(message.split("`rounds` ")[1].split()[0])
    assert abs(rounds - fitting) <= fitting / 4
    assert len(predict(SCENARIO, source, PAPER, rounds=rounds, decide=decide)) == rounds
    with pytest.raises(InputError):
        predict(SCENARIO, source, PAPER, rounds=rounds + 1, decide=decide)


def test_a_trace_too_short_for_one_round():
    with pytest.raises(
        InputError, match=r"its 5 slots .* in round 0 of 0–1.*; give a longer trace$"
    ):
        predict(SCENARIO, Replay(trace(5)), PAPER, rounds=2)


def test_a_trace_of_dead_links_is_called_that():
    alive = np.ones((3, 40))
    for dead, whose in (([1], "UAV 2"), ([0, 2], "UAV 1, 3"), ([0, 1, 2], "all UAVs")):
        gain = alive.copy()
        gain[dead] = 0
        says = rf"^trace: its 40 slots .* 0\.0 s; links of {whose} carry nothing from then on$"
        with pytest.raises(InputError, match=says):
            predict(SCENARIO, Replay(ChannelTrace(gain, 0.1)), PAPER)


def test_a_trace_of_other_uavs_is_refused():
    gain = np.ones((4, 10))
    with pytest.raises(InputError, match=r"gain has 4 UAVs, but uavs\.count is 3"):
        predict(SCENARIO, Replay(ChannelTrace(gain, 0.1)), PAPER)


PAPER_FILE = Path(__file__).parents[3] / "scenarios" / "paper.yaml"
MIXED = load(PAPER_FILE, ["workload.split=[1,2,3,4,1,2,3,4,2,2]", "rounds=3"])


def test_a_split_for_each_client_costs_each_what_it_costs_alone() -> None:
    plan = plan_round(MIXED, PAPER, fixed_allocation(MIXED), link_bytes)
    for k, u in enumerate(MIXED.workload.split):
        alone = load(PAPER_FILE, [f"workload.split={u}"])
        other = plan_round(alone, PAPER, fixed_allocation(alone), link_bytes)
        for name in ("cf_s", "cb_s", "s_s", "sm_bytes", "ca_bytes", "sg_bytes", "cm_bytes"):
            assert np.array_equal(getattr(plan, name)[k], getattr(other, name)[k]), name


@pytest.mark.parametrize("paradigm", ["cpsfl", "pipesfl", "sfl-pp"])
@pytest.mark.parametrize("access", ["shannon", "lte"])
@pytest.mark.parametrize(
    "override",
    ["workload.split=[1,2,3,4,1,2,3,4,2,2]", "workload.local_iterations=[1,3,1,3,1,3,1,3,1,3]"],
)
def test_rounds_that_are_played_together_are_those_played_one_by_one(
    paradigm: str, access: str, override: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = [override, f"paradigm={paradigm}", f"radio.access={access}", "rounds=6"]
    scenario = load(PAPER_FILE, more)
    gain = 10 ** (-np.random.default_rng(4).uniform(85, 103, (10, 4000)) / 10)
    source = Replay(ChannelTrace(gain, 0.1))
    together = predict(scenario, source, PAPER)
    monkeypatch.setattr("orchestrator.rounds.loop.MOST_STEPS_AHEAD", 0)
    alone = predict(scenario, source, PAPER)
    assert together.to_json() == alone.to_json()
    assert len(alone) == 6


def test_rounds_of_a_split_for_each_client() -> None:
    gain = 10 ** (-np.random.default_rng(4).uniform(85, 103, (10, 4000)) / 10)
    source = Replay(ChannelTrace(gain, 0.1))
    rounds = predict(MIXED, source, PAPER).to_json()
    assert rounds[0]["split"] == [1, 2, 3, 4, 1, 2, 3, 4, 2, 2]
    same = load(PAPER_FILE, ["workload.split=[2,2,2,2,2,2,2,2,2,2]"])
    assert predict(same, source, PAPER).to_json()[0]["split"] == 2


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("workload.split=[1,2]", "workload.split: must have one entry per UAV: 10, not 2"),
        ("workload.split=[5,1,1,1,1,1,1,1,1,1]", "workload.split: must be "),
        ("workload.split=[0,1,1,1,1,1,1,1,1,1]", "workload.split"),
    ],
)
def test_wrong_lists_of_splits_are_refused_in_one_line(override: str, says: str) -> None:
    with pytest.raises(InputError) as refusal:
        load(PAPER_FILE, [override])
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)
