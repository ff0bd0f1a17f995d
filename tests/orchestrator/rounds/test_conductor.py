# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rounds that the conductor plays: those of the fast path, and those that only it can play."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from engine_cases import (
    EVERY,
    EVERY_COMBINATION,
    by_hand,
    ends_of_sharing,
    random_case,
    random_lte_case,
    random_wifi_case,
)
from small_scenario import TREE

from ns3_scenarios.trace import TraceExhausted, TwoWay
from orchestrator.engine.access import RadioAccess
from orchestrator.engine.core_library import Slots
from orchestrator.engine.faults import RoundFaults
from orchestrator.engine.lte import Lte
from orchestrator.engine.plan import RoundPlan, fixed_allocation, plan_round
from orchestrator.engine.radio import Rates, of_gains
from orchestrator.rounds import simulation
from orchestrator.rounds.simulation import BY_RULES, RoundTimes, service_order_of, simulate
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import profile_of
from testbed.core import orders
from testbed.core.paradigm import Paradigm
from testbed.core.timeline import CA, CB, CF, CM, SG, SM, S

COLUMNS = ["client", "iteration", "step", "bytes"]


# --- the fast path -------------------------------------------------------------------------------


def conducted(
    plan: RoundPlan,
    radio: RadioAccess,
    gain: Any,
    slot_s: float,
    start_s: float = 0.0,
    *,
    service_order: Any = BY_RULES,
    faults: RoundFaults | None = None,
) -> RoundTimes:
    """A round as the conductor plays it, whatever the paradigm."""
    slots = Slots(gain, slot_s)
    return simulation._conducted(plan, radio, slots, start_s, service_order, faults, None)


def outcome(
    play: Callable[..., RoundTimes], case: tuple[Any, ...], **more: Any
) -> RoundTimes | int:
    """A round's times, or the number of slots that were too few."""
    try:
        return play(*case, **more)
    except TraceExhausted as error:
        return error.available


def assert_played_alike(case: tuple[Any, ...], **more: Any) -> RoundTimes | None:
    """The fast path and the conductor play a case alike; returns its times."""
    fast, slow = outcome(simulate, case, **more), outcome(conducted, case, **more)
    if isinstance(fast, int) or isinstance(slow, int):
        assert fast == slow
        return None
    ordered = [np.sort(each.spans, order=COLUMNS) for each in (fast, slow)]
    assert (ordered[0][COLUMNS] == ordered[1][COLUMNS]).all()
    for edge in ("start_s", "end_s"):
        np.testing.assert_allclose(ordered[0][edge], ordered[1][edge], rtol=0, atol=1e-11)
    assert slow.latency_s == pytest.approx(fast.latency_s, rel=0, abs=1e-11)
    assert slow.end_s == pytest.approx(fast.end_s, rel=0, abs=1e-11)
    assert slow.energy_j == pytest.approx(fast.energy_j, rel=1e-11, abs=1e-11)
    assert slow.objective == pytest.approx(fast.objective, rel=1e-11)
    return fast


def of_scenario(case: tuple[Any, ...]) -> tuple[Any, ...]:
    """A case with the radio of its scenario."""
    plan, scenario, *rest = case
    return plan, of_gains(scenario), *rest


CASES = {
    "shannon": random_case,
    "lte": lambda rng, scheme: of_scenario(random_lte_case(rng, scheme)),
    "wifi": lambda rng, scheme: of_scenario(random_wifi_case(rng, scheme)),
}


@pytest.mark.parametrize("access", CASES)
@pytest.mark.parametrize("scheme", EVERY, ids=lambda scheme: scheme.name)
def test_the_fast_path_plays_what_the_conductor_plays(scheme: Paradigm, access: str) -> None:
    rng = np.random.default_rng(39 + EVERY.index(scheme))
    for _ in range(12 if access == "shannon" else 5):
        assert_played_alike(CASES[access](rng, scheme))


@pytest.mark.parametrize("access", CASES)
@pytest.mark.parametrize("scheme", EVERY_COMBINATION, ids=lambda scheme: scheme.name)
def test_a_given_order_is_kept_by_both(scheme: Paradigm, access: str) -> None:
    """The order in which a round by the other rule of the paper serves."""
    rng = np.random.default_rng(7 + EVERY.index(scheme))
    other = orders.FIRST_COME if scheme.order == orders.LARGER_LAG else orders.LARGER_LAG
    for _ in range(3):
        plan, *rest = CASES[access](rng, scheme)
        by_other = outcome(simulate, (replace(plan, paradigm=replace(scheme, order=other)), *rest))
        if isinstance(by_other, int):
            continue
        given = service_order_of(by_other.spans, plan.clients, plan.iterations)
        times = assert_played_alike((plan, *rest), service_order=given)
        assert times is not None
        served = service_order_of(times.spans, plan.clients, plan.iterations)
        ways = (scheme.server_compute, scheme.gradient_transmission)
        for station, sharing in enumerate(ways):
            if sharing == "sequential":
                assert (served[station] == given[station]).all()


# --- what only the conductor plays ---------------------------------------------------------------

SLOT_S = 0.1
GAIN = np.array([3e-13, 2e-12, 1e-11])
"""Gains at which UAVs have different rates, alone and together."""


def lte(scheduler: str = "equal", clients: int = 3) -> Lte:
    radio = {"access": "lte", "lte": {"scheduler": scheduler}}
    tree = {"uavs": {"tx_power_w": [1.0, 0.4, 0.1][:clients]}, "radio": radio}
    return Lte.of(validate(tree, "test"))


def small_plan(name: str, clients: int = 3, **workload: Any) -> RoundPlan:
    """The plan of the small scenario; its protocol can be replaced."""
    uavs = {"tx_power_w": [1.0, 0.4, 0.1][:clients]}
    tree = TREE | {"uavs": uavs, "paradigm": name, "workload": TREE["workload"] | workload}
    scenario = validate(tree, "test")
    return plan_round(scenario, profile_of(scenario), fixed_allocation(scenario))


def with_protocol(plan: RoundPlan, *, asks_ca: bool = False, **fields: Any) -> RoundPlan:
    return replace(
        plan,
        paradigm=replace(plan.paradigm, **fields),
        asks_ca=np.full(plan.clients, asks_ca),
    )


def flat(slots: int = 3000, clients: int = 3) -> np.ndarray:
    return np.repeat(GAIN[:clients, None], slots, axis=1)


def uplinks_bps(plan: RoundPlan, radio: Lte, active: int) -> np.ndarray:
    """Rates of the uplinks while so many are active, [K]."""
    gain = GAIN[: plan.clients, None]
    rates = radio.link_rates(plan.allocation, gain, in_turns=False, active=active)
    return np.asarray(rates.uplink[:, 0])


def steps(times: RoundTimes, *which: int) -> np.ndarray:
    return np.sort(times.spans[np.isin(times.spans["step"], which)], order="start_s")


def assert_uploads_share(times: RoundTimes, plan: RoundPlan, radio: Lte) -> None:
    """Uploads end as by hand, where those that are active divide the resource blocks."""
    bps = [uplinks_bps(plan, radio, active) for active in (1, 1, 2, 3)]
    uploads = steps(times, CA, CM)
    given = [(s["client"] - 1, s["start_s"], 8.0 * s["bytes"]) for s in uploads]
    ends = ends_of_sharing(given, lambda k, _, count: bps[count][k], 3000, SLOT_S)
    together = 0
    for span in uploads:
        due_s = ends[span["client"] - 1, span["start_s"]]
        assert span["end_s"] == pytest.approx(due_s, abs=2e-8)
        alone_s = 8 * span["bytes"] / bps[1][span["client"] - 1]
        together += due_s > span["start_s"] + 1.01 * alone_s
    assert together, "some upload shares the band"


@pytest.mark.parametrize("order", ["first-come", "scheduled"])
@pytest.mark.parametrize("name", ["sfl-pp", "cpsfl", "sfl-sp"])
def test_uploads_in_turn_have_the_whole_shared_band(name: str, order: str) -> None:
    plan = with_protocol(small_plan(name), asks_ca=True, uplink="sequential", uplink_order=order)
    radio = lte()
    times = simulate(plan, radio, flat(), SLOT_S)
    uploads = steps(times, CA, CM)
    assert len(uploads) == plan.clients * (plan.iterations + 1)
    assert (uploads["start_s"][1:] >= uploads["end_s"][:-1]).all()
    due_s = 8 * uploads["bytes"] / uplinks_bps(plan, radio, 1)[uploads["client"] - 1]
    assert uploads["end_s"] - uploads["start_s"] == pytest.approx(due_s, rel=1e-9)
    if order == "scheduled":
        assert uploads["client"].tolist() == [1, 2, 3] * 3
    # The same with links that have such rates of their own: the downlink is not parallel.
    if plan.in_turns:
        rates = radio.link_rates(plan.allocation, flat(), in_turns=True, active=1)
        given = TwoWay(np.stack([rates.uplink, rates.broadcast]))
        own = simulate(plan, Rates(radio.uplink_power_w), given, SLOT_S)
        assert (own.spans[COLUMNS] == times.spans[COLUMNS]).all()
        assert own.spans["end_s"] == pytest.approx(times.spans["end_s"], rel=1e-12)


@pytest.mark.parametrize("name", ["sfl-pp", "pipesfl", "cpsfl", "sfl-ps"])
def test_adapters_wait_for_all_on_a_shared_band(name: str) -> None:
    plan, radio = with_protocol(small_plan(name), adapters_wait_for_all=True), lte()
    times = simulate(plan, radio, flat(), SLOT_S)
    at_s = steps(times, CB)["end_s"].max()
    uploads = steps(times, CM)
    assert uploads["start_s"].tolist() == [at_s] * 3
    assert_uploads_share(times, plan, radio)
    assert times.end_s == uploads["end_s"].max()


@pytest.mark.parametrize("name", ["sfl-pp", "cpsfl"])
def test_copies_of_a_broadcast_follow_each_other_on_links_with_shares(name: str) -> None:
    """Each UAV has received its adapters when its link has carried a copy for everybody."""
    plan, radio = small_plan(name), lte("shares")
    one, copies = (
        assert_played_alike((replace(plan, unicast=unicast), radio, flat(), SLOT_S))
        for unicast in (False, True)
    )
    assert one is not None
    assert copies is not None
    took_s = [steps(times, SM)["end_s"] for times in (one, copies)]
    assert took_s[1] == pytest.approx(3 * took_s[0], rel=1e-9)


@pytest.mark.parametrize("name", ["sfl-pp", "cpsfl"])
def test_copies_of_a_broadcast_divide_a_shared_downlink(name: str) -> None:
    plan, radio = replace(small_plan(name), unicast=True), lte()
    gain = 0.01 * flat()  # at which the downlinks have different rates
    times = assert_played_alike((plan, radio, gain, SLOT_S))
    assert times is not None
    bps = [
        radio.link_rates(plan.allocation, gain[:, :1], in_turns=False, active=max(1, n)).gradient[
            :, 0
        ]
        for n in range(4)
    ]
    given = [(k, 0.0, 8.0 * plan.sm_bytes[k]) for k in range(3)]
    ends = ends_of_sharing(given, lambda k, _, count: bps[count][k], 3000, SLOT_S)
    assert len(set(ends.values())) == 3
    received = np.sort(steps(times, SM), order="client")["end_s"]
    assert received == pytest.approx([ends[k, 0.0] for k in range(3)], abs=2e-8)
    begun = times.spans[(times.spans["step"] == CF) & (times.spans["iteration"] == 1)]
    assert begun["start_s"] == pytest.approx(np.full(3, received.max()), abs=1e-12)


@pytest.mark.parametrize("name", ["asfl-pp", "asfl-sp", "asfl-ps"])
def test_updates_of_an_asynchronous_run_share_the_band(name: str) -> None:
    plan, radio = small_plan(name, asynchronous={"updates": 9}), lte()
    times = simulate(plan, radio, flat(), SLOT_S)
    assert_uploads_share(times, plan, radio)
    assert times.end_s == np.sort(steps(times, CM)["end_s"])[8]
    sent = steps(times, SM, SG)
    if plan.in_turns:
        rates = radio.link_rates(plan.allocation, flat(1), in_turns=True)
        due_s = 8 * sent["bytes"] / rates.broadcast[sent["client"] - 1, 0]
        assert sent["end_s"] - sent["start_s"] == pytest.approx(due_s, rel=1e-9)
        assert (sent["start_s"][1:] >= sent["end_s"][:-1] - 1e-12).all()


@pytest.mark.parametrize("name", ["asfl-pp", "asfl-sp", "asfl-ps"])
def test_one_uav_alone_has_a_shared_band_as_a_link_of_its_own(name: str) -> None:
    plan = small_plan(name, clients=1, asynchronous={"updates": 5})
    radio = lte(clients=1)
    times = simulate(plan, radio, flat(clients=1), SLOT_S)
    rates = radio.link_rates(plan.allocation, GAIN[:1, None], in_turns=plan.in_turns)
    up, down = float(rates.uplink[0, 0]), float(rates.broadcast[0, 0])
    k, now_s, due = 0, 0.0, []
    for update in range(5):
        now_s += 8 * plan.sm_bytes[k, update] / down
        for i in range(2 * update, 2 * update + 2):
            work_s = float(plan.cf_s[k, i] + plan.s_s[k, i] + plan.cb_s[k, i])
            now_s += work_s + 8 * (plan.ca_bytes[k, i] / up + plan.sg_bytes[k, i] / down)
        now_s += 8 * plan.cm_bytes[k, update] / up
        due.append(now_s)
    assert steps(times, CM)["end_s"] == pytest.approx(np.array(due), rel=1e-9)
    assert times.end_s == pytest.approx(due[-1], rel=1e-9)


PROTOCOLS: dict[str, RoundPlan] = {
    "faultless": small_plan("sfl-pp"),
    "gate": with_protocol(small_plan("sfl-pp"), adapters_wait_for_all=True),
    "in turn": with_protocol(small_plan("cpsfl"), asks_ca=True, uplink="sequential"),
    "asynchronous": small_plan("asfl-ps", asynchronous={"updates": 6}),
}


@pytest.mark.parametrize("scheduler", ["equal", "shares"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_trace_is_enough_that_ends_after_the_round(protocol: str, scheduler: str) -> None:
    plan, radio = PROTOCOLS[protocol], lte(scheduler)
    whole = conducted(plan, radio, flat(), SLOT_S)
    slots = math.ceil(whole.end_s / SLOT_S)
    just = conducted(plan, radio, flat(slots), SLOT_S)
    assert just.end_s == whole.end_s
    counted = whole.spans[whole.spans["end_s"] <= whole.end_s]
    assert np.isin(counted, just.spans).all()
    for fewer in (1, slots // 2, slots - 1):
        with pytest.raises(TraceExhausted) as short:
            conducted(plan, radio, flat(fewer), SLOT_S)
        assert short.value.available == fewer


def losing(lost_at: dict[int, float]) -> RoundFaults:
    """The base station gives clients up at these times, while they still send."""
    return RoundFaults(
        absent=np.zeros(3, bool),
        stop_s=np.full(3, math.inf),
        lost_s=np.array([lost_at.get(k, math.inf) for k in (1, 2, 3)]),
        wrong_s=np.full(3, math.inf),
        wrong=[None] * 3,
        slow=np.empty((0, 4)),
        silent=[],
        bs_crash_s=math.inf,
        drops=True,
        causes=dict.fromkeys((1, 2, 3), "link-outage"),
        resting=np.zeros(3, bool),
    )


def test_a_lost_client_leaves_its_part_of_the_band_to_the_others() -> None:
    """All send from 0 on, and the third client is lost while they do."""
    plan, _ = by_hand("sfl-pp", [0.0] * 3, [4.0, 6.0, 40.0], [0.0] * 3, [0.0] * 3)
    radio = lte()
    two, three = (uplinks_bps(plan, radio, active) for active in (2, 3))
    assert (two > three).all()
    bits = 8.0 * plan.ca_bytes[:, 0]
    lost_s = 0.5 * float((bits / three)[:2].min())
    times = simulate(plan, radio, flat(), SLOT_S, faults=losing({3: lost_s}))
    (loss,) = times.lost
    assert (loss.client, loss.lost_s) == (3, lost_s)
    ends = {int(s["client"]): float(s["end_s"]) for s in steps(times, CA)}
    left = bits - three * lost_s
    first = int(np.argmin((left / two)[:2]))
    assert ends[first + 1] == pytest.approx(lost_s + left[first] / two[first], rel=1e-9)
    whole = simulate(plan, radio, flat(), SLOT_S)
    before = {int(s["client"]): float(s["end_s"]) for s in steps(whole, CA)}
    assert all(ends[k] < before[k] for k in (1, 2))
    assert ends[3] == lost_s


def test_a_lost_client_leaves_its_part_of_the_downlink_to_the_others() -> None:
    plan, _ = by_hand("sfl-pp", [0.0] * 3, [0.0] * 3, [0.0] * 3, [8.0, 12.0, 80.0])
    radio = lte()
    down = [
        radio.link_rates(plan.allocation, GAIN[:, None], in_turns=False, active=n).gradient[:, 0]
        for n in (2, 3)
    ]
    bits = 8.0 * plan.sg_bytes[:, 0]
    lost_s = 0.5 * float((bits / down[1])[:2].min())
    times = simulate(plan, radio, flat(), SLOT_S, faults=losing({3: lost_s}))
    left = bits - down[1] * lost_s
    first = int(np.argmin((left / down[0])[:2]))
    ends = {int(s["client"]): float(s["end_s"]) for s in steps(times, SG)}
    assert ends[first + 1] == pytest.approx(lost_s + left[first] / down[0][first], rel=1e-9)
    assert steps(times, S)["client"].tolist() == [1, 2, 3]
