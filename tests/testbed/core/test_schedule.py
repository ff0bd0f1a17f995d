# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The emulated base station's schedule, played in virtual time, against the engine."""

import heapq
import math
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.engine.access import RadioAccess
from orchestrator.engine.fdma import ShannonFdma
from orchestrator.engine.plan import Allocation, RoundPlan
from orchestrator.rounds.simulation import simulate
from testbed.core.orders import LARGER_LAG
from testbed.core.paradigm import BUILT_IN, Paradigm, UploadOrder, paradigm
from testbed.core.schedule import Schedule
from testbed.core.timeline import SG, S

K, ITERATIONS = 4, 3
SLOT_S = 0.1


def random_plan(paradigm: Paradigm, rng: np.random.Generator) -> RoundPlan:
    def shares() -> np.ndarray:
        return rng.dirichlet(np.full(K, 4.0))

    def seconds(low: float, high: float) -> np.ndarray:
        return rng.uniform(low, high, (K, ITERATIONS))

    return RoundPlan(
        paradigm=paradigm,
        allocation=Allocation(2, shares(), shares(), shares()),
        cf_s=seconds(0.01, 0.2),
        cb_s=seconds(0.01, 0.4),
        s_s=seconds(0.01, 0.3),
        sm_bytes=np.full(K, 100_000),
        ca_bytes=np.full((K, ITERATIONS), 1_000_000),
        sg_bytes=np.full((K, ITERATIONS), 3_000_000),
        cm_bytes=np.full(K, 100_000),
        backward_ratio=2.0,
        compute_power_w=16.0,
        energy_weight=4.0,
    )


def play(
    plan: RoundPlan, radio: RadioAccess, gain: np.ndarray
) -> dict[tuple[int, int, int], tuple]:
    """One round of a constant channel by `Schedule`: (client, iteration, step) to (start, end)."""

    def shannon(hz: float, power: float, h: float) -> float:
        return hz * math.log2(1 + power * h / (hz * radio.noise_w_per_hz))

    beta, rho = plan.allocation.beta, plan.allocation.rho
    up = [shannon(beta[k] * radio.uplink_hz, radio.uplink_power_w[k], gain[k]) for k in range(K)]
    whole = [shannon(radio.downlink_hz, radio.downlink_power_w, gain[k]) for k in range(K)]
    shared = [
        shannon(beta[k] * radio.downlink_hz, rho[k] * radio.downlink_power_w, gain[k])
        for k in range(K)
    ]
    down = whole if plan.paradigm.gradient_transmission == "sequential" else shared

    schedule = Schedule(plan.paradigm, K, iterations=dict(enumerate(plan.iterations_of.tolist())))
    by_lag = plan.paradigm.order == LARGER_LAG
    spans: dict[tuple[int, int, int], tuple] = {}
    events: list[tuple[float, str, int, int]] = []
    lag = np.zeros(K)
    begun = max(8 * plan.sm_bytes[k] / whole[k] for k in range(K))

    def fly(k: int, i: int, now: float) -> None:
        upload = 8 * plan.ca_bytes[k, i] / up[k]
        before = plan.cb_s[k, i - 1] if i else plan.backward_ratio * plan.cf_s[k, 0]
        lag[k] = before + plan.cf_s[k, i] + upload
        heapq.heappush(events, (now + plan.cf_s[k, i] + upload, "smashed", k, i))

    for k in range(K):
        fly(k, 0, begun)
    at = [0] * K
    while events:
        now = events[0][0]
        while events and events[0][0] <= now + 1e-12:
            _, what, k, i = heapq.heappop(events)
            at[k] = i
            if what == "smashed":
                gradient = 8 * plan.sg_bytes[k, i] / shared[k]
                if i:
                    start, end = spans[k, i - 1, SG]
                    gradient = end - start
                schedule.smashed_arrived(k, i + 1, now, -(lag[k] + gradient) if by_lag else 0.0)
            elif what == "computed":
                start, _ = spans[k, i, S]
                schedule.computed(k, i + 1, now, -(lag[k] + now - start) if by_lag else 0.0)
            else:
                schedule.delivered(now)
                if i + 1 < plan.iterations_of[k]:
                    fly(k, i + 1, now + plan.cb_s[k, i])
        for start in schedule.start():
            assert start.at == pytest.approx(now)
            k, i = start.client, at[start.client]
            if start.resource == "compute":
                end = now + plan.s_s[k, i]
                spans[k, i, S] = (now, end)
                heapq.heappush(events, (end, "computed", k, i))
            else:
                end = now + 8 * plan.sg_bytes[k, i] / down[k]
                spans[k, i, SG] = (now, end)
                heapq.heappush(events, (end, "delivered", k, i))
    return spans


@pytest.mark.parametrize("paradigm", BUILT_IN, ids=lambda p: p.name)
def test_schedule_and_engine_decide_alike(paradigm: Paradigm) -> None:
    rng = np.random.default_rng(7)
    for turn in range(20):
        plan = random_plan(paradigm, rng)
        if turn % 2:
            own = rng.integers(1, ITERATIONS + 1, K)
            own[rng.integers(K)] = ITERATIONS
            plan = replace(plan, own_iterations=own)
        radio = ShannonFdma(20e6, 20e6, 10 ** (-11.4) * 1e-9, 40.0, rng.uniform(0.1, 1.0, K))
        gain = 10 ** rng.uniform(-10.5, -8.5, K)
        predicted = simulate(plan, radio, np.repeat(gain[:, None], 5000, axis=1), SLOT_S)
        played = play(plan, radio, gain)
        for span in predicted.spans:
            if span["step"] in (S, SG):
                start, end = played[span["client"] - 1, span["iteration"] - 1, int(span["step"])]
                assert start == pytest.approx(span["start_s"], abs=1e-9)
                assert end == pytest.approx(span["end_s"], abs=1e-9)


def test_ties_go_by_enqueue_time_then_by_client() -> None:
    for low, high, order in ((-2.0, -1.0, [2, 3, 1]), (0.0, 0.0, [1, 2, 3])):
        schedule = Schedule(paradigm("cpsfl"), 3)
        schedule.computed(3, 1, 0.5, low)
        schedule.computed(1, 1, 0.3, high)
        schedule.computed(2, 1, 0.5, low)
        served = []
        while started := schedule.start():
            served += [start.client for start in started]
            schedule.delivered(9.0)
        assert served == order


def test_nobody_waits_for_who_is_lost() -> None:
    gated = Schedule(paradigm("sfl-sp"), 3)
    gated.smashed_arrived(2, 1, 1.0, 0.0)
    gated.smashed_arrived(1, 1, 2.0, 0.0)
    assert gated.start() == []
    gated.lost(3, 7.0)
    (start,) = gated.start()
    assert (start.client, start.at) == (2, 7.0)
    gated.lost(2, 8.0)  # within its turn
    (start,) = gated.start()
    assert (start.client, start.at) == (1, 8.0)

    queued = Schedule(paradigm("cpsfl"), 3)
    for client in (1, 2, 3):
        queued.computed(client, 1, 1.0, -float(client))
    assert [start.client for start in queued.start()] == [3]
    queued.lost(2, 2.0)
    assert queued.start() == []  # 3 has not been lost.
    queued.delivered(3.0)
    assert [(start.client, start.at) for start in queued.start()] == [(1, 3.0)]


def test_the_others_keep_their_turns_when_the_next_is_lost() -> None:
    queued = Schedule(paradigm("cpsfl"), 5)
    for client, rank in ((1, -9.0), (2, -8.0), (3, 5.0), (4, -7.0), (5, 6.0)):
        queued.computed(client, 1, 0.2, rank)
    assert [start.client for start in queued.start()] == [1]
    queued.lost(2, 0.5)
    queued.lost(1, 0.5)
    served = []
    while started := queued.start():
        served += [(start.client, start.at) for start in started]
        queued.delivered(0.75)
    assert served == [(4, 0.5), (3, 0.75), (5, 0.75)]


def test_adapters_of_asynchronous_rounds_wait_like_gradients() -> None:
    schedule = Schedule(paradigm("asfl-ps"), 3)
    schedule.computed(3, 1, 0.2, 0.0)
    schedule.adapters_ready(2, 0.1, 0.0)
    schedule.adapters_ready(1, 0.3, 0.0)
    served = []
    while started := schedule.start():
        served += [(start.resource, start.client, start.at) for start in started]
        schedule.delivered(0.25)
    assert served == [("transmit", 2, 0.1), ("transmit", 3, 0.25), ("transmit", 1, 0.3)]


def test_adapters_of_asynchronous_rounds_are_ranked_like_gradients() -> None:
    schedule = Schedule(paradigm("asfl-ps"), 3)
    schedule.adapters_ready(2, 0.1, 5.0)
    schedule.computed(3, 1, 0.2, 4.0)
    schedule.adapters_ready(1, 0.3, 3.0)
    served = []
    while started := schedule.start():
        served += [start.client for start in started]
        schedule.delivered(0.4)
    assert served == [1, 3, 2]


@pytest.mark.parametrize(
    ("order", "served"), [("first-come", [3, 1, 3, 2, 1]), ("scheduled", [3, 1, 2, 3, 1])]
)
def test_an_upload_turn_of_an_asynchronous_round_passes_over_who_has_not_asked(
    order: UploadOrder, served: list[int]
) -> None:
    """The next turn goes to the client after the last that uploaded; absent ones are skipped."""
    scheme = replace(paradigm("asfl-pp"), uplink="sequential", uplink_order=order)
    schedule, granted = Schedule(scheme, (1, 2, 3)), []
    asks: list[list[int]] = [[3], [1], [3, 2], [], [1], []]
    for now, clients in enumerate(asks):
        for later, client in enumerate(clients):
            schedule.upload_ready(client, now + 0.1 * later, adapters=False)
        if started := schedule.start():
            granted += [start.client for start in started]
            schedule.uploaded(started[0].client, now + 0.9)
    while started := schedule.start():
        granted += [start.client for start in started]
        schedule.uploaded(started[0].client, 9.0)
    assert granted == served


def test_a_synchronous_turn_waits_for_who_has_not_asked() -> None:
    scheme = replace(paradigm("sfl-pp"), uplink="sequential", uplink_order="scheduled")
    schedule = Schedule(scheme, (1, 2))
    schedule.upload_ready(2, 0.1, adapters=False)
    assert not schedule.start()


def test_a_lost_client_frees_the_uplink_of_an_asynchronous_round() -> None:
    scheme = replace(paradigm("asfl-pp"), uplink="sequential", uplink_order="scheduled")
    schedule = Schedule(scheme, (1, 2, 3))
    for client in (1, 2, 3):
        schedule.upload_ready(client, 0.1, adapters=False)
    assert [start.client for start in schedule.start()] == [1]
    schedule.lost(2, 0.2)
    assert not schedule.start()
    schedule.lost(1, 0.3)
    assert [(start.client, start.at) for start in schedule.start()] == [(3, 0.3)]


def test_a_gate_opens_with_its_last_client() -> None:
    schedule = Schedule(paradigm("sfl-sp"), 2)
    schedule.smashed_arrived(2, 1, 1.0, 0.0)
    assert schedule.start() == []
    schedule.smashed_arrived(1, 1, 4.0, 0.0)
    (start,) = schedule.start()
    assert (start.client, start.at) == (2, 4.0)


def test_the_first_gradient_counts_where_computing_is_served_by_lag() -> None:
    asks = [scheme.name for scheme in BUILT_IN if scheme.asks_for_first_gradient]
    assert asks == ["pipesfl", "pipesfl-no-at"]
