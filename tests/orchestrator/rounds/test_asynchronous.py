# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Asynchronous rounds: the engine against the base station's protocol, and against what follows
from nobody's waiting."""

import heapq
import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from console import run_testbed
from small_scenario import TREE

import orchestrator as tb
from ns3_scenarios.trace import ChannelTrace, Replay, TraceExhausted
from orchestrator.emulated.rounds import _check_iterations
from orchestrator.engine.faults import RoundFaults
from orchestrator.engine.fdma import ShannonFdma
from orchestrator.engine.plan import RoundPlan, fixed_allocation, plan_round, prospects_of
from orchestrator.engine.rates import link_rates
from orchestrator.rounds.loop import predict
from orchestrator.rounds.simulation import simulate
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import profile_of
from testbed.core import orders
from testbed.core.asynchronous_round import (
    Aggregate,
    AsynchronousRound,
    Finish,
    Mix,
    SendAdapters,
    UpdateArrived,
)
from testbed.core.errors import InputError
from testbed.core.faults import slowed_end
from testbed.core.orders import Ahead
from testbed.core.paradigm import ASYNCHRONOUS
from testbed.core.ranks import Outlook
from testbed.core.server_round import (
    Abandon,
    AllowUpload,
    BroadcastReceived,
    Compute,
    Computed,
    GiveUp,
    GradientDelivered,
    Refused,
    SendGradient,
    SmashedArrived,
    TimePassed,
    UploadReady,
)
from testbed.core.timeline import CA, CB, CF, CM, SG, SM, Round, S

NAMES = [paradigm.name for paradigm in ASYNCHRONOUS]
GAIN = 10 ** -np.linspace(9.0, 10.3, 3)[:, None] * np.random.default_rng(3).lognormal(
    0, 0.5, (3, 4000)
)
SLOW = {"tx_power_w": [1.0, 0.4, 0.1], "compute_flops": [2.5e12, 0.3e12, 0.1e12]}


def small(name: str, updates: int | None = None, **keys: Any) -> tb.Scenario:
    workload = TREE["workload"] | {"asynchronous": {"updates": updates}}
    return validate(TREE | {"paradigm": name, "workload": workload} | keys, "test")


def played(scenario: tb.Scenario, gain: np.ndarray = GAIN, rounds: int = 1) -> list[Round]:
    source = Replay(ChannelTrace(gain[: scenario.uavs.count], 0.1))
    return list(predict(scenario, source, profile_of(scenario), rounds=rounds))


def updates_of(round_: Round, clients: int = 3) -> list[int]:
    done = round_.spans["client"][round_.spans["step"] == CM]
    return [int((done == client).sum()) for client in range(1, clients + 1)]


def losing(
    lost_at: dict[int, float], slow: dict[int, list[list[float]]] | None = None
) -> RoundFaults:
    rows = [[node, *row] for node, rows in (slow or {}).items() for row in rows]
    return RoundFaults(
        absent=np.zeros(3, bool),
        stop_s=np.full(3, math.inf),
        lost_s=np.array([lost_at.get(k, math.inf) for k in (1, 2, 3)]),
        wrong_s=np.full(3, math.inf),
        wrong=[None] * 3,
        slow=np.array(rows, float).reshape(-1, 4),
        silent=[],
        bs_crash_s=math.inf,
        drops=True,
        causes=dict.fromkeys((1, 2, 3), "link-outage"),
        resting=np.zeros(3, bool),
    )


def transfers_of(plan: RoundPlan, radio: ShannonFdma, gain: np.ndarray) -> dict[int, np.ndarray]:
    """Seconds of each transfer on a channel that stays as it is, by step and client."""
    rates = link_rates(plan, radio, gain[:, :1])
    sizes = {SM: plan.sm_bytes, CA: plan.ca_bytes, SG: plan.sg_bytes, CM: plan.cm_bytes}
    ways = {step: rates.gradient if step in (SM, SG) else rates.uplink for step in sizes}
    return {step: 8 * size[:, 0] / ways[step][:, 0] for step, size in sizes.items()}


class Stepped:
    """The protocol of the base station, driven on a channel that stays as it is."""

    def __init__(
        self,
        plan: RoundPlan,
        transfers_s: dict[int, np.ndarray],
        lost_at: dict[int, float] | None = None,
        slow: dict[int, list[list[float]]] | None = None,
        *,
        buffer: int = 1,
        waits: bool = False,
    ):
        self.plan, self.transfers_s, self.slow = plan, transfers_s, slow or {}
        self.prospects = prospects_of(plan)
        self.backward_s: dict[int, float] = {}
        clients = range(1, plan.clients + 1)
        self.protocol = AsynchronousRound(
            plan.paradigm,
            clients,
            plan.updates,
            0.0,
            lost_at,
            drops=True,
            first_gradient=lambda k, at: float(transfers_s[SG][k - 1]),
            outlook=Outlook(self.ahead, 0.0),
            buffer=buffer,
            after_aggregation=waits,
            tick=1e-9,
        )
        self.asked: dict[int, tuple[int, float, bool]] = {}
        """Iteration, backward duration and kind of the upload that each client asks for."""
        self.spans: list[tuple[int, int, int, float, float]] = []
        self.stale: list[int] = []
        self.events: list[tuple[float, int, int, Any]] = []
        for at_s in (lost_at or {}).values():
            self.later(at_s, 99, TimePassed(at_s))  # after what happens at that moment

    def play(self) -> list[tuple[int, int, int, float, float]]:
        self.begin()
        while self.events:
            now_s = self.events[0][0]
            while self.events and self.events[0][0] == now_s:
                self.protocol.tell(heapq.heappop(self.events)[-1])
            self.begin()
        assert self.protocol.is_over
        lost = self.protocol.lost
        self.spans = [
            (k, i, step, start_s, min(end_s, lost[k].at) if k in lost else end_s)
            for k, i, step, start_s, end_s in self.spans
            if k not in lost or start_s <= lost[k].at
        ]
        return sorted(self.spans, key=lambda span: (span[0], span[3], span[4]))

    def begin(self) -> None:
        for told in self.protocol.instructions():
            match told:
                case SendAdapters(k, i, at_s):
                    end_s = self.step(k, i, SM, at_s, self.transfers_s[SM][k - 1])
                    self.later(end_s, k, BroadcastReceived(k, end_s))
                    self.upload(k, i, end_s)
                case Compute(k, i, at_s):
                    end_s = self.computed(k, i, S, at_s, self.plan.s_s[k - 1, 0], node=0)
                    self.later(end_s, k, Computed(k, end_s))
                case SendGradient(k, i, at_s):
                    end_s = self.step(k, i, SG, at_s, self.transfers_s[SG][k - 1])
                    self.later(end_s, k, GradientDelivered(k, at_s, end_s, end_s))
                    end_s = self.computed(k, i, CB, end_s, self.plan.cb_s[k - 1, 0], node=k)
                    self.backward_s[k] = end_s - self.spans[-1][3]
                    if i % self.plan.iterations_of_update:
                        self.upload(k, i + 1, end_s)
                    else:
                        self.ask(k, i, end_s, adapters=True)
                case AllowUpload(k, at_s):
                    self.send(k, at_s)
                case Mix(_, staleness):
                    self.stale.append(staleness)
                case Finish() | GiveUp() | Aggregate():
                    pass

    def upload(self, k: int, i: int, now_s: float) -> None:
        end_s = self.computed(k, i, CF, now_s, self.plan.cf_s[k - 1, 0], node=k)
        if not (i - 1) % self.plan.iterations_of_update:
            self.backward_s[k] = self.plan.backward_ratio * (end_s - now_s)
        self.backward_s[k] += end_s - now_s
        self.ask(k, i, end_s, adapters=False)

    def ask(self, k: int, i: int, ready_s: float, *, adapters: bool) -> None:
        self.asked[k] = i, self.backward_s[k], adapters
        if self.plan.paradigm.asks:
            self.later(ready_s, k, UploadReady(k, ready_s, adapters))
        else:
            self.send(k, ready_s)

    def send(self, k: int, at_s: float) -> None:
        i, compute_s, adapters = self.asked[k]
        step = CM if adapters else CA
        end_s = self.step(k, i, step, at_s, self.transfers_s[step][k - 1])
        if adapters:
            self.later(end_s, k, UpdateArrived(k, end_s, compute_s, end_s - at_s))
        else:
            self.later(end_s, k, SmashedArrived(k, i, at_s, end_s, compute_s))

    def ahead(self, k: int, i: int, _: float) -> Ahead:
        up_bps, down_bps = (
            8 * size[k - 1, 0] / self.transfers_s[step][k - 1]
            for step, size in ((CA, self.plan.ca_bytes), (SG, self.plan.sg_bytes))
        )
        return self.prospects.ahead(k, i, up_bps, down_bps)

    def step(self, k: int, i: int, step: int, start_s: float, duration_s: float) -> float:
        self.spans.append((k, i, step, start_s, start_s + float(duration_s)))
        return start_s + float(duration_s)

    def computed(
        self, k: int, i: int, step: int, start_s: float, work_s: float, node: int
    ) -> float:
        end_s = slowed_end(start_s, work_s, self.slow.get(node, []))
        return self.step(k, i, step, start_s, end_s - start_s)

    def later(self, at_s: float, client: int, event: Any) -> None:
        heapq.heappush(self.events, (at_s, client, len(self.spans), event))


TURNS = {"free": {}, "first-come": {"sharing": "sequential"}} | {
    "scheduled": {"sharing": "sequential", "order": "scheduled"}
}


def assert_as_stepped(
    scenario: tb.Scenario, gain_at: int = 0, lost_at: dict[int, float] | None = None, **semi: Any
) -> Stepped:
    """The engine plays what the protocol says on a channel that stays as it is in a slot."""
    plan = plan_round(scenario, profile_of(scenario), fixed_allocation(scenario))
    radio, gain = ShannonFdma.of(scenario), np.repeat(GAIN[:, gain_at : gain_at + 1], 4000, axis=1)
    stepped = Stepped(plan, transfers_of(plan, radio, gain), lost_at, **semi)
    due = stepped.play()
    times = simulate(plan, radio, gain, 0.1, faults=losing(lost_at) if lost_at else None)
    assert [tuple(s)[:3] for s in times.spans.tolist()] == [span[:3] for span in due]
    for column in (3, 4):
        got = [span[column] for span in times.spans.tolist()]
        assert got == pytest.approx([span[column] for span in due], rel=1e-9)
    return stepped


@pytest.mark.parametrize("order", [*orders.PAPERS, *orders.BUILT_IN])
@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize("name", NAMES)
def test_orders_and_upload_turns_are_played_as_the_protocol_says(
    name: str, turns: str, order: str
) -> None:
    keys = {"uploads": TURNS[turns], "order": order, "uavs": SLOW}
    slow_server = {"base_station": {"compute_flops": 1e13}}
    for gain_at, semi in ((0, {}), (5, {"buffer": 2, "waits": True})):
        section = {"updates": 14}
        if semi:
            section |= {"buffer": 2, "start": "after-aggregation"}
        tree = TREE | {"paradigm": name, "workload": TREE["workload"] | {"asynchronous": section}}
        stepped = assert_as_stepped(validate(tree | keys | slow_server, "test"), gain_at, **semi)
        assert len(stepped.stale) == 14
        if turns != "free":
            up = sorted((s[3], s[4]) for s in stepped.spans if s[2] in (CA, CM))
            assert all(start >= end - 1e-9 for (_, end), (start, _) in pairwise(up))


@pytest.mark.parametrize("turns", TURNS)
def test_the_base_station_is_told_the_durations_that_lags_consist_of(
    turns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    tell = AsynchronousRound.tell

    def listened(self: AsynchronousRound, event: Any) -> None:
        told.append(event)
        tell(self, event)

    monkeypatch.setattr(AsynchronousRound, "tell", listened)
    (round_,) = played(small("asfl-ps", 6, uavs=SLOW, uploads=TURNS[turns]))
    took_s = {
        (s["client"], s["step"], round(s["end_s"], 9)): s["end_s"] - s["start_s"]
        for s in round_.spans[~round_.cut]
    }
    seen = 0
    for event in told:
        if isinstance(event, UpdateArrived) and event.at <= round_.end_s:
            upload_s = took_s[event.client, CM, round(event.at, 9)]
            start_s = round_.spans["start_s"][
                (round_.spans["client"] == event.client) & (round_.spans["step"] == CB)
            ]
            own = start_s[start_s < event.at - upload_s].max()
            (backward_s,) = {
                s["end_s"] - s["start_s"]
                for s in round_.spans
                if (s["client"], s["step"], s["start_s"]) == (event.client, CB, own)
            }
            assert (event.upload, event.compute) == pytest.approx((upload_s, backward_s))
            seen += 1
    assert seen == 6


@pytest.mark.parametrize("turns", ["first-come", "scheduled"])
@pytest.mark.parametrize("seed", range(6))
def test_a_client_that_is_lost_in_its_turn_does_not_block_the_others(turns: str, seed: int) -> None:
    scenario = small("asfl-ps", 14, uavs=SLOW, uploads=TURNS[turns], order="larger-lag")
    lost_at = {seed % 3 + 1: 0.2 + 0.37 * seed}
    stepped = assert_as_stepped(scenario, lost_at=lost_at)
    assert len(stepped.stale) == 14
    assert set(stepped.protocol.lost) == set(lost_at)


def test_a_late_client_does_not_block_the_uplink() -> None:
    """UAV 3 computes for longer than the others take for all updates."""
    uavs = {"tx_power_w": [1.0, 0.4, 0.1], "compute_flops": [2.5e12, 2.5e12, 1e9]}
    for turns in ("first-come", "scheduled"):
        (round_,) = played(small("asfl-ps", 12, uavs=uavs, uploads=TURNS[turns]))
        counts = updates_of(round_)
        assert counts[2] == 0
        assert min(counts[:2]) >= 5


def test_a_run_starts_with_its_first_step_whoever_is_served_first() -> None:
    """The longest remaining work is that of UAV 3, which is sent its adapters first."""
    (round_,) = played(small("asfl-ps", 6, uavs=SLOW, order="longest-remaining-work-first"))
    first = round_.spans[np.argmin(round_.spans["start_s"])]
    assert (first["client"], first["step"]) == (3, SM)
    assert round_.start_s == 0.0
    assert round_.end_s == pytest.approx(round_.latency_s)


def test_fedcs_chooses_the_clients_of_an_asynchronous_run() -> None:
    """By the duration of one update."""
    keys = {
        "uploads": TURNS["scheduled"],
        "participation": {"rule": "fedcs", "parameters": {"round_s": 2.5}},
    }
    (round_,) = played(small("asfl-ps", 8, uavs=SLOW, **keys))
    assert set(round_.spans["client"].tolist()) == {1, 2}
    assert sum(updates_of(round_)) >= 8


@pytest.mark.parametrize("name", NAMES)
def test_the_engine_does_what_the_protocol_of_the_station_says(name: str) -> None:
    scenario = small(name, 14, uavs=SLOW)
    plan, radio = plan_round(scenario, profile_of(scenario), fixed_allocation(scenario)), None
    radio = ShannonFdma.of(scenario)
    gain = np.repeat(GAIN[:, :1], 4000, axis=1)
    rates = link_rates(plan, radio, gain[:, :1])
    up, down = rates.uplink[:, 0], rates.gradient[:, 0]
    sizes = {SM: plan.sm_bytes, CA: plan.ca_bytes, SG: plan.sg_bytes, CM: plan.cm_bytes}
    stepped = Stepped(
        plan,
        {step: 8 * size[:, 0] / (down if step in (SM, SG) else up) for step, size in sizes.items()},
    )
    due = stepped.play()
    times = simulate(plan, radio, gain, 0.1)
    assert [tuple(s)[:3] for s in times.spans.tolist()] == [span[:3] for span in due]
    for column in (3, 4):
        got = [span[column] for span in times.spans.tolist()]
        assert got == pytest.approx([span[column] for span in due], rel=1e-9)
    assert len(stepped.stale) == 14
    assert max(stepped.stale) > 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(6))
def test_the_engine_loses_clients_as_the_protocol_does(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scenario = small(name, 14, uavs=SLOW)
    plan = plan_round(scenario, profile_of(scenario), fixed_allocation(scenario))
    radio, gain = ShannonFdma.of(scenario), np.repeat(GAIN[:, :1], 4000, axis=1)
    rates = link_rates(plan, radio, gain[:, :1])
    sizes = {SM: plan.sm_bytes, CA: plan.ca_bytes, SG: plan.sg_bytes, CM: plan.cm_bytes}
    ways = {step: rates.gradient if step in (SM, SG) else rates.uplink for step in sizes}
    whole_s = simulate(plan, radio, gain, 0.1).latency_s
    lost_at = {int(k): float(rng.uniform(0, whole_s)) for k in rng.permutation([1, 2, 3])[:2]}
    slow = {node: [[0.2 * whole_s, 0.5 * whole_s, float(rng.uniform(1, 4))]] for node in (0, 3)}
    stepped = Stepped(
        plan,
        {step: 8 * size[:, 0] / ways[step][:, 0] for step, size in sizes.items()},
        lost_at,
        slow,
    )
    due = stepped.play()
    times = simulate(plan, radio, gain, 0.1, faults=losing(lost_at, slow))
    assert [tuple(s)[:3] for s in times.spans.tolist()] == [span[:3] for span in due]
    for column in (3, 4):
        got = [span[column] for span in times.spans.tolist()]
        assert got == pytest.approx([span[column] for span in due], rel=1e-9)
    assert {loss.client: loss.lost_s for loss in times.lost} == {
        k: lost.at for k, lost in stepped.protocol.lost.items()
    }
    assert len(stepped.stale) >= 12, "what the lost were at goes to others, as long as there are"
    assert times.end_s == pytest.approx(
        max([s[4] for s in due] + [loss.lost_s for loss in times.lost])
    )


def test_a_protocol_that_may_not_drop_abandons() -> None:
    scenario = small("asfl-ps", 4)
    plan = plan_round(scenario, profile_of(scenario), fixed_allocation(scenario))
    protocol = AsynchronousRound(plan.paradigm, [1, 2], 4, 0.0, {2: 3.0})
    assert [type(told) for told in protocol.instructions()] == [SendAdapters]
    assert protocol.next_loss == 3.0
    assert protocol.may_be_lost(2)
    assert not protocol.may_be_lost(1)
    protocol.tell(TimePassed(2.9))
    assert not protocol.instructions()
    protocol.tell(TimePassed(3.0))
    assert protocol.instructions() == [Abandon(2, 3.0, "")]
    protocol.tell(Refused(1, 3.1, "nonsense"))
    assert protocol.instructions() == [Abandon(1, 3.1, "nonsense")]


def test_who_is_lost_is_made_up_for_and_does_not_come_back() -> None:
    events = [{"kind": "link-outage", "nodes": ["uav1"], "round": 0, "at_s": 0.3, "duration_s": 1}]
    faults = {"on_loss": "drop", "loss_timeout_s": 0.3, "events": events}
    first, second = played(small("asfl-ps", 20, uavs=SLOW, faults=faults), rounds=2)
    (loss,) = first.lost
    assert (loss.client, loss.cause) == (1, "link-outage")
    assert sum(updates_of(first)) == 20
    own = first.spans[first.spans["client"] == 1]
    assert own["end_s"].max() <= loss.lost_s == pytest.approx(0.6)
    assert updates_of(second)[0] == 0
    assert sum(updates_of(second)) == 20
    assert [each.lost_s for each in second.lost] == [loss.lost_s]
    waits = small("asfl-ps", 20, uavs=SLOW, faults=faults | {"on_loss": "wait"})
    assert not played(waits)[0].lost
    (clean,) = played(small("asfl-ps", 20, uavs=SLOW))
    late = faults | {"events": [events[0] | {"at_s": clean.end_s + 0.2}], "on_loss": "abort"}
    ended = tb.predict(
        small("asfl-ps", 20, uavs=SLOW, faults=late, rounds=2),
        trace={"gain": GAIN, "slot_s": 0.1},
    )
    assert ended.ended
    assert len(ended) == 1, "what was complete before stays"


def test_wrong_frames_and_crashes_lose_their_senders() -> None:
    events = [
        {"kind": "corrupt-frame", "nodes": ["uav2"], "round": 0, "at_s": 0.2},
        {"kind": "uav-crash", "nodes": ["uav3"], "round": 0, "at_s": 0.4},
    ]
    faults = {"on_loss": "drop", "loss_timeout_s": 0.3, "events": events}
    first, second = played(small("asfl-sp", 12, faults=faults), rounds=2)
    lost = {loss.client: loss for loss in first.lost}
    assert lost.keys() == {2, 3}
    assert lost[2].cause == "corrupt-frame"
    assert lost[3].lost_s == pytest.approx(0.7)
    assert lost[3].stopped_s == pytest.approx(0.4)
    own = first.spans[first.spans["client"] == 3]
    at_server = np.isin(own["step"], (SM, S, SG))
    assert own["end_s"][~at_server].max() <= 0.4 + 1e-12
    assert sum(updates_of(first)) == 12
    assert updates_of(second) == [12, 0, 0], "a lost client is lost for the run"
    assert [loss.client for loss in second.lost] == [2, 3]


def test_a_round_may_have_some_of_the_clients() -> None:
    """They are chosen once, because rounds have no common start."""
    rounds = played(small("asfl-pp", participation={"clients": 2, "rule": "round-robin"}), rounds=3)
    for round_ in rounds:
        assert round_.clients == [1, 2]
        assert sum(updates_of(round_)) == 8, "four for each that takes part"
        assert round_.energy_j[2] == 0


@pytest.mark.parametrize("name", NAMES)
def test_rounds_are_windows_of_one_session_without_a_barrier(name: str) -> None:
    """However many rounds the same updates are, the steps are the same; a step is in the round in
    which its update arrives, or in the last one, where it may be cut."""
    (whole,) = played(small(name, 24, uavs=SLOW))
    for each in (1, 3, 4):
        rounds = played(small(name, each, uavs=SLOW), rounds=24 // each)
        assert [sum(updates_of(round_)) for round_ in rounds] == [each] * (24 // each)
        assert rounds[-1].end_s == pytest.approx(whole.end_s, rel=1e-12)
        assert sum(r.energy_j for r in rounds) == pytest.approx(whole.energy_j, rel=1e-12)
        spans = np.sort(np.concatenate([r.spans for r in rounds]), order=["client", "start_s"])
        assert np.array_equal(spans, np.sort(whole.spans, order=["client", "start_s"]))
        for round_ in rounds:
            assert (
                round_.spans["end_s"].max()
                == round_.spans["end_s"][round_.spans["step"] == CM].max()
            ), "it ends when its last update arrives"
            assert round_.end_s == pytest.approx(round_.spans["end_s"].max(), rel=1e-15)
            assert not round_.cut[round_.spans["step"] == CM].any()
        assert not any(round_.cut.any() for round_ in rounds[:-1])
        assert rounds[-1].cut.sum() == whole.cut.sum() > 0
    idle = whole.spans[whole.spans["client"] == 1]
    assert idle["end_s"].max() > whole.end_s - 0.2, "who is fast goes on to the end"


def test_the_end_of_the_run_needs_no_more_of_the_trace() -> None:
    scenario = small("asfl-ps", 6, uavs=SLOW)
    (whole,) = played(scenario)
    slots = math.ceil(whole.end_s / 0.1)
    (short,) = played(scenario, GAIN[:, :slots])
    assert np.array_equal(short.spans, whole.spans)
    with pytest.raises(InputError, match="trace: its"):
        played(scenario, GAIN[:, : slots - 1])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("buffer", [2, 3])
def test_clients_may_wait_for_the_aggregation(name: str, buffer: int) -> None:
    """Semi-asynchronous aggregation: the engine and the protocol, and K-of-N by hand."""
    section = {"updates": 12, "buffer": buffer, "start": "after-aggregation"}
    tree = TREE | {"uavs": SLOW, "paradigm": name}
    scenario = validate(tree | {"workload": TREE["workload"] | {"asynchronous": section}}, "test")
    gain = np.repeat(GAIN[:, :1], 4000, axis=1)
    plan = plan_round(scenario, profile_of(scenario), fixed_allocation(scenario))
    radio = ShannonFdma.of(scenario)
    stepped = Stepped(plan, transfers_of(plan, radio, gain), buffer=buffer, waits=True)
    due = stepped.play()
    times = simulate(plan, radio, gain, 0.1)
    assert [tuple(s)[:3] for s in times.spans.tolist()] == [span[:3] for span in due]
    for column in (3, 4):
        got = [span[column] for span in times.spans.tolist()]
        assert got == pytest.approx([span[column] for span in due], rel=1e-9)
    arrived = np.sort(times.spans[times.spans["step"] == CM], order="end_s")[:12]
    begun = times.spans[times.spans["step"] == SM]
    for group in range(0, 12 - buffer, buffer):
        applied_s = arrived["end_s"][group + buffer - 1]
        for upload in arrived[group : group + buffer]:
            later = begun[
                (begun["client"] == upload["client"])
                & (begun["iteration"] == upload["iteration"] + 1)
            ]
            assert later["start_s"][0] >= applied_s - 1e-12
    assert len(stepped.stale) == 12
    if buffer == 3:
        assert set(stepped.stale) == {0}, "all wait for all"


@pytest.mark.parametrize("seed", range(4))
def test_a_loss_does_not_leave_the_others_waiting(seed: int) -> None:
    rng = np.random.default_rng(seed)
    section = {"updates": 12, "buffer": 3, "start": "after-aggregation"}
    tree = TREE | {"uavs": SLOW, "paradigm": "asfl-ps"}
    scenario = validate(tree | {"workload": TREE["workload"] | {"asynchronous": section}}, "test")
    gain = np.repeat(GAIN[:, :1], 4000, axis=1)
    plan = plan_round(scenario, profile_of(scenario), fixed_allocation(scenario))
    radio = ShannonFdma.of(scenario)
    whole_s = simulate(plan, radio, gain, 0.1).latency_s
    lost_at = {int(rng.integers(1, 4)): float(rng.uniform(0.1, 0.6) * whole_s)}
    stepped = Stepped(plan, transfers_of(plan, radio, gain), lost_at, buffer=3, waits=True)
    due = stepped.play()
    times = simulate(plan, radio, gain, 0.1, faults=losing(lost_at))
    assert [tuple(s)[:3] for s in times.spans.tolist()] == [span[:3] for span in due]
    for column in (3, 4):
        got = [span[column] for span in times.spans.tolist()]
        assert got == pytest.approx([span[column] for span in due], rel=1e-9)
    assert len(stepped.stale) == 12


def test_the_buffer_is_applied_when_it_is_full() -> None:
    scenario = small("asfl-pp", 5)
    protocol = AsynchronousRound(scenario.scheme, [1, 2], 5, 0.0, buffer=2)
    told = protocol.instructions()
    now = 0.0

    def update(client: int) -> list[Any]:
        nonlocal now
        now += 1
        protocol.tell(BroadcastReceived(client, now))
        protocol.tell(SmashedArrived(client, 1, now, now, 0.0))
        protocol.instructions()
        protocol.tell(UpdateArrived(client, now))
        return protocol.instructions()

    assert [type(each) for each in told] == [SendAdapters, SendAdapters]
    assert update(1)[0] == Mix(1, 0, 1.0)
    assert update(1)[:2] == [Mix(1, 0, 2.0), Aggregate()]
    assert update(2)[0] == Mix(2, 1, 3.0), "one change of the model since it was sent"
    assert update(1)[:2] == [Mix(1, 0, 4.0), Aggregate()]
    last = update(1)
    assert last == [Mix(1, 0, 5.0), Finish(1)], "half a buffer is not applied"
    assert update(2) == [Finish(2)], "what arrives after the end is not mixed"
    assert protocol.is_over


@pytest.mark.parametrize(
    ("name", "other"), [("asfl-pp", "sfl-pp"), ("asfl-sp", "sfl-sp"), ("asfl-ps", "sfl-ps")]
)
def test_alone_nobody_waits_and_updates_are_rounds(name: str, other: str) -> None:
    alone = {"tx_power_w": [1.0]}
    (whole,) = played(small(name, 3, uavs=alone))
    each = played(validate(TREE | {"paradigm": other, "uavs": alone}, "test"), rounds=3)
    assert whole.latency_s == pytest.approx(each[-1].end_s, rel=1e-12)
    starts = np.concatenate([round_.spans["start_s"] for round_ in each])
    np.testing.assert_allclose(np.sort(whole.spans["start_s"]), np.sort(starts), rtol=1e-12)
    assert whole.energy_j == pytest.approx(sum(round_.energy_j for round_ in each), rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_who_is_faster_makes_more_updates(name: str) -> None:
    (round_,) = played(small(name, 20, uavs=SLOW))
    counts = updates_of(round_)
    assert sum(counts) == 20
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[2]
    assert updates_of(played(small(name))[0]) != [0, 0, 0]
    assert sum(updates_of(played(small(name))[0])) == 12, "four for each UAV"


def test_a_sequential_station_serves_one_at_a_time_in_the_order_of_arrival() -> None:
    for name, steps in (("asfl-sp", (S,)), ("asfl-ps", (SM, SG))):
        (round_,) = played(small(name, 20, uavs=SLOW))
        served = np.sort(round_.spans[np.isin(round_.spans["step"], steps)], order="start_s")
        assert (served["start_s"][1:] >= served["end_s"][:-1] - 1e-12).all()


def test_rounds_follow_each_other_and_a_trace_may_be_too_short() -> None:
    first, second = played(small("asfl-ps"), rounds=2)
    assert second.start_s == pytest.approx(first.end_s, rel=1e-15)
    scenario = small("asfl-ps")
    plan = plan_round(scenario, profile_of(scenario), fixed_allocation(scenario))
    with pytest.raises(TraceExhausted):
        simulate(plan, ShannonFdma.of(scenario), GAIN[:, :5], 0.1)


def test_what_does_not_go_together_is_refused_by_its_field() -> None:
    for keys, says in (
        ({"allocation": {"policy": "planner"}}, r"allocation\.policy: must be 'fixed' or 'equal'"),
        ({"uploads": {"adapters_wait_for_all": True}}, r"adapters_wait_for_all: must be false"),
    ):
        with pytest.raises(InputError, match=says):
            small("asfl-pp", **keys)
    assert small("asfl-pp", 2, rounds=3).updates == 6
    later = {"kind": "uav-crash", "nodes": ["uav1"], "round": 1}
    with pytest.raises(InputError, match=r"faults\.events\.0\.round: must be absent or 0 where"):
        small("asfl-pp", faults={"on_loss": "drop", "events": [later]}, rounds=2)
    for section, says in (
        ({"buffer": 13}, r"asynchronous\.buffer: must be at most the 12 updates of the run"),
        ({"buffer": 4, "start": "after-aggregation"}, r"buffer: must be at most the 3 UAVs that"),
    ):
        with pytest.raises(InputError, match=says):
            validate(
                TREE
                | {"paradigm": "asfl-pp", "workload": TREE["workload"] | {"asynchronous": section}},
                "test",
            )
    with pytest.raises(
        InputError, match="paradigm: must not be asynchronous for the training of an agent"
    ):
        tb.UavSflEnv(small("asfl-pp"))


def test_more_iterations_than_frames_can_name_are_refused() -> None:
    scenario = small("asfl-pp", 4).resolved(1.0)
    (round_,) = played(scenario)
    _check_iterations(scenario, tb.Timeline([round_]))
    round_.spans["iteration"][-1] = 2**16 - 1
    with pytest.raises(InputError, match="rounds: a UAV would do 65535 iterations"):
        _check_iterations(scenario, tb.Timeline([round_]))


def test_emulated_rounds_are_as_predicted(tmp_path: Path) -> None:
    """By the real clock; `test_exact.py` has the steps, in virtual time."""
    path, result = tmp_path / "small.yaml", tmp_path / "r.json"
    workload = TREE["workload"] | {"asynchronous": {"updates": 8}}
    tree = TREE | {"paradigm": "asfl-ps", "workload": workload, "uavs": SLOW}
    slowly = {"emulation": {"calibrate": False, "dilation": 5}}
    path.write_text(yaml.safe_dump(tree | slowly))
    run_testbed("run", path, "--json", result)
    run = json.loads(result.read_text())
    ((predicted,), (measured,)) = run["predicted_wire"], run["measured"]
    assert measured["latency_s"] == pytest.approx(predicted["latency_s"], rel=0.2)
    assert len([s for s in measured["steps"] if s["step"] == "CM"]) == 8
    (budget,) = run["error_budget"]
    total = budget["predicted_s"] + sum(budget["parts"].values())
    assert total == pytest.approx(budget["measured_s"], abs=1e-9)
