# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rounds for the engine: by hand, and at random."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from reference_engine import TooShort, reference_round

from ns3_scenarios.trace import TraceExhausted, TwoWay
from orchestrator.engine.faults import RoundFaults
from orchestrator.engine.fdma import ShannonFdma
from orchestrator.engine.lte import Lte
from orchestrator.engine.nr import Nr
from orchestrator.engine.plan import Allocation, RoundPlan
from orchestrator.engine.radio import of_gains
from orchestrator.rounds.simulation import simulate
from orchestrator.scenario.loading import validate
from orchestrator.scenario.schema import Scenario
from testbed.core import orders
from testbed.core.paradigm import Paradigm, paradigm
from testbed.core.timeline import STEPS

EVERY_COMBINATION = [
    Paradigm(f"any-{n}", "any", *fields)
    for n, fields in enumerate(
        itertools.product(
            ("parallel", "sequential"),
            ("parallel", "sequential"),
            ("larger-lag", "first-come"),
            (False, True),
            (False, True),
        )
    )
]


EVERY_ORDER = [
    Paradigm(f"{order}-{n}", "any", *sharing, order, gate, gate)
    for order in orders.BUILT_IN
    for n, (sharing, gate) in enumerate(
        [
            (("parallel", "sequential"), False),
            (("sequential", "parallel"), False),
            (("sequential", "sequential"), False),
            (("sequential", "sequential"), True),
        ]
    )
]
"""The service orders that are not the paper's."""
EVERY = EVERY_COMBINATION + EVERY_ORDER


def quick(step, among=EVERY):
    """All schemes as parameters: quick tests take each `step`-th if it is `among` these.

    The engine compiles other machine code for orders that are not the paper's, for seconds.
    """
    return [
        pytest.param(
            scheme,
            marks=[pytest.mark.full] * (index % step > 0 or scheme not in among),
            id=scheme.name,
        )
        for index, scheme in enumerate(EVERY)
    ]


def random_case(rng, scheme):
    """Any plan: shares, durations and bytes differ by client and iteration, some of them 0."""
    clients, iterations = int(rng.integers(1, 7)), int(rng.integers(1, 5))
    slots, slot_s = 1000, float(rng.choice([0.1, 0.05, 0.25]))
    shape = (clients, iterations)
    even = rng.random() < 0.3  # equal clients: ties everywhere

    def durations(scale):
        if even:
            return np.full(shape, float(rng.choice([0.0, 0.1, 0.2, 0.3])))
        return rng.exponential(scale, shape)

    def sizes(shape, scale):
        if even:
            return np.full(shape, int(rng.integers(1, scale)), dtype=np.int64)
        return rng.integers(0, scale, shape)

    def shares():
        return np.full(clients, 1 / clients) if even else rng.dirichlet(np.ones(clients) * 3)

    plan = RoundPlan(
        paradigm=scheme,
        allocation=Allocation(2, shares(), shares(), shares()),
        cf_s=durations(0.1),
        cb_s=durations(0.2),
        s_s=durations(0.1),
        sm_bytes=sizes(clients, 200_000),
        ca_bytes=sizes(shape, 2_000_000),
        sg_bytes=sizes(shape, 2_000_000),
        cm_bytes=sizes(clients, 200_000),
        backward_ratio=float(rng.uniform(0, 3)),
        compute_power_w=rng.uniform(0, 20, clients),
        energy_weight=float(rng.uniform(0, 5)),
    )
    radio = ShannonFdma(
        uplink_hz=20e6,
        downlink_hz=float(rng.choice([5e6, 20e6])),
        noise_w_per_hz=4e-21,
        downlink_power_w=40.0,
        uplink_power_w=np.full(clients, 0.4) if even else rng.uniform(0.05, 1, clients),
    )
    loss_db = np.full((clients, 1), 100.0) if even else rng.uniform(80, 115, (clients, 1))
    fading_db = 0.0 if even else rng.normal(0, 4, (clients, slots))
    gain = 10 ** (-(loss_db + np.zeros((clients, slots)) + fading_db) / 10)
    if rng.random() < 0.5:  # outages, single slots and long ones
        for _ in range(int(rng.integers(1, 40))):
            first = int(rng.integers(0, 200))
            gain[rng.integers(clients), first : first + int(rng.integers(1, 12))] = 0.0
    start_s = float(rng.choice([0.0, slot_s, 7 * slot_s, 3.0, rng.uniform(0, 9)]))
    return plan, radio, gain, slot_s, start_s


def random_lte_case(rng, scheme):
    """A case with a scenario's LTE cell in place of a radio, and gains over 90 dB."""
    plan, radio, gain, slot_s, start_s = random_case(rng, scheme)
    bandwidths_hz = rng.choice([1.4e6, 3e6, 5e6, 10e6, 15e6, 20e6], 2).tolist()
    scheduler = str(rng.choice(["equal", "shares"]))
    lte = {
        "resource_blocks": 6 if rng.random() < 0.3 else None,
        "scheduler": scheduler,
        "noise_figure_db": float(rng.choice([0.0, 7.0])),
        "layers": int(rng.integers(1, 3)),
        "highest_modulation": str(rng.choice(["64QAM", "256QAM"])),
    }
    scenario = validate(
        {
            "uavs": {"tx_power_w": radio.uplink_power_w.tolist()},
            "radio": {
                "access": "lte",
                "uplink_bandwidth_hz": bandwidths_hz[0],
                "downlink_bandwidth_hz": bandwidths_hz[1],
                "lte": lte,
            },
        },
        "random",
    )
    equal = np.full(plan.clients, 1 / plan.clients)
    beta = equal
    if scheduler == "shares":
        block = 1 / min(Lte.of(scenario).blocks)  # each has one at least
        beta = block + (1 - plan.clients * block) * plan.allocation.beta
    plan = replace(plan, allocation=replace(plan.allocation, beta=beta, rho=equal))
    return _with_fades(rng, plan, scenario, gain, slot_s, start_s)


def random_nr_case(rng, scheme):
    """The same with a scenario's NR cell."""
    plan, radio, gain, slot_s, start_s = random_case(rng, scheme)
    spacing_khz = int(rng.choice([15, 30, 60]))
    bandwidths_hz = rng.choice([10e6 if spacing_khz == 60 else 5e6, 20e6], 2).tolist()
    duplex = str(rng.choice(["fdd", "tdd"]))
    scheduler = str(rng.choice(["equal", "shares"]))
    nr = {
        "subcarrier_spacing_khz": spacing_khz,
        "duplex": duplex,
        "tdd_pattern": str(rng.choice(["DDDU", "DDDSU", "DU"])),
        "resource_blocks": 11 if rng.random() < 0.3 else None,
        "scheduler": scheduler,
        "noise_figure_db": float(rng.choice([0.0, 7.0])),
        "highest_modulation": str(rng.choice(["64QAM", "256QAM"])),
        "background": {"load": float(rng.choice([0.0, 0.3]))},
    }
    if scheduler == "equal" and rng.random() < 0.3:
        nr["grants_per_tti"] = int(rng.choice([1, 3]))
    scenario = validate(
        {
            "uavs": {"tx_power_w": radio.uplink_power_w.tolist()},
            "radio": {
                "access": "nr",
                "uplink_bandwidth_hz": bandwidths_hz[0],
                "downlink_bandwidth_hz": bandwidths_hz[duplex == "fdd"],
                "nr": nr,
            },
        },
        "random",
    )
    equal = np.full(plan.clients, 1 / plan.clients)
    beta = equal
    if scheduler == "shares":
        block = 1 / min(Nr.of(scenario).blocks)  # each has one at least
        beta = block + (1 - plan.clients * block) * plan.allocation.beta
    plan = replace(plan, allocation=replace(plan.allocation, beta=beta, rho=equal))
    return _with_fades(rng, plan, scenario, gain, slot_s, start_s)


def random_wifi_case(rng, scheme):
    """The same with a scenario's Wi-Fi cell."""
    plan, radio, gain, slot_s, start_s = random_case(rng, scheme)
    standard, width_mhz = rng.choice(["n-20", "n-40", "ac-20", "ac-160", "ax-20", "ax-80"]).split(
        "-"
    )
    wifi = {
        "standard": str(standard),
        "width_mhz": int(width_mhz),
        "rts": bool(rng.random() < 0.5),
        "noise_figure_db": float(rng.choice([0.0, 7.0, 25.0])),
        "antenna_gain_db": float(rng.choice([0.0, 20.0])),
        "access_point_power_w": float(rng.choice([0.1, 1.0])) if rng.random() < 0.5 else None,
    }
    powers_w = radio.uplink_power_w.tolist()
    scenario = validate(
        {"uavs": {"tx_power_w": powers_w}, "radio": {"access": "wifi", "wifi": wifi}}, "random"
    )
    equal = np.full(plan.clients, 1 / plan.clients)
    plan = replace(plan, allocation=replace(plan.allocation, beta=equal, rho=equal))
    return _with_fades(rng, plan, scenario, 1e2 * gain, slot_s, start_s)


def _with_fades(rng, plan, scenario, gain, slot_s, start_s):
    """The case with less to send and, where UAVs are not equal, gains that fade."""
    names = ("sm_bytes", "ca_bytes", "sg_bytes", "cm_bytes")
    sizes = {name: np.maximum(getattr(plan, name) // 10, 1) for name in names}
    if np.ptp(gain, axis=1).any():  # UAVs are not equal
        fades = rng.random((plan.clients, 100)) < 0.3
        loss_db = rng.uniform(-15, 20, (plan.clients, 1)) + rng.uniform(0, 40, fades.shape) * fades
        gain = gain * 10 ** (-np.repeat(loss_db, 10, axis=1) / 10)
    values = TwoWay(np.stack([gain, gain[:, ::-1]])) if rng.random() < 0.5 else gain
    return replace(plan, **sizes), scenario, values, slot_s, start_s


def random_faults(rng, clients: int, slot_s: float, start_s: float) -> RoundFaults:
    """Any faults of a round: crashes, silences, wrong frames, slow nodes, all at slot edges."""
    first = math.floor(start_s / slot_s)

    def moments(chance: float) -> np.ndarray:
        slots = first + rng.integers(1, 80, clients)
        return np.where(rng.random(clients) < chance, slots * slot_s, math.inf)

    timeout_s = float(rng.uniform(0.05, 3))
    absent = rng.random(clients) < 0.1
    absent[rng.integers(clients)] = False
    stop_s, out_s = moments(0.25), moments(0.25)
    lost_s = np.minimum(stop_s, out_s) + timeout_s
    lost_s[absent] = start_s - 1
    silent = [
        (k + 1, round(min(stop_s[k], out_s[k]) / slot_s), None)
        for k in range(clients)
        if math.isfinite(lost_s[k]) and not absent[k]
    ]
    slow = []
    for node in range(clients + 1):
        edges = np.sort(rng.choice(np.arange(first, first + 60), 4, replace=False)) * slot_s
        for begin, end in edges.reshape(2, 2)[: rng.integers(3)]:
            slow.append((node, begin, end, float(rng.uniform(1, 5))))
    wrong_s = moments(0.2)
    kinds = ["corrupt-frame", "duplicate-frame"]
    return RoundFaults(
        absent=absent,
        stop_s=stop_s,
        lost_s=lost_s,
        wrong_s=wrong_s,
        wrong=[kinds[rng.integers(2)] if math.isfinite(at_s) else None for at_s in wrong_s],
        slow=np.array(slow, float).reshape(-1, 4),
        silent=silent,
        bs_crash_s=math.inf,
        drops=True,
        causes=dict.fromkeys(range(1, clients + 1), "link-outage"),
        resting=np.zeros(clients, bool),
    )


def plainly(faults: RoundFaults):
    """Faults as the reference engine takes them."""
    return {
        "absent": faults.absent,
        "stop_s": faults.stop_s,
        "lost_s": faults.lost_s,
        "wrong_s": faults.wrong_s,
        "duplicate": [wrong == "duplicate-frame" for wrong in faults.wrong],
        "slow": {
            node: [tuple(row[1:]) for row in faults.slow if row[0] == node]
            for node in range(len(faults.absent) + 1)
        },
    }


def assert_equal_to_reference(case, faults=None, tcp=None, **edges):
    """A case in the engine and in the reference engine; returns its times, or None if its trace is
    too short for both."""
    plan, given, gain, slot_s, start_s = case
    radio = of_gains(given) if isinstance(given, Scenario) else given
    more = {"slot_s": slot_s, "start_s": start_s, "tcp": tcp, **edges}
    silenced, plain = (gain, None) if faults is None else (faults.silenced(gain), plainly(faults))
    try:
        reference = reference_round(plan, given, silenced, faults=plain, **more)
    except TooShort:
        with pytest.raises(TraceExhausted):
            simulate(plan, radio, gain, faults=faults, **more)
        return None
    times = simulate(plan, radio, gain, faults=faults, **more)
    assert_equal_rounds(times, reference)
    assert times.end_s == pytest.approx(start_s + reference[0], abs=1e-9)
    return times


def assert_equal_rounds(times, reference):
    """A round of the engine is that of the reference engine."""
    latency, energy, objective, spans, lost = reference
    assert times.latency_s == pytest.approx(latency, rel=1e-9, abs=1e-9)
    assert times.energy_j == pytest.approx(energy, rel=1e-9, abs=1e-9)
    assert times.objective == pytest.approx(objective, rel=1e-9)
    mine = {
        (client, iteration, STEPS[step]): (start, end, size)
        for client, iteration, step, start, end, size in times.spans.tolist()
    }
    # Of clients that are lost together, one may count as begun when the other one is lost.
    moments = {client + 1: at_s for client, at_s in lost.items()}

    def counts(client, start_s, end_s):
        return end_s - start_s > 1e-9 or abs(start_s - moments.get(client, np.inf)) > 1e-9

    spans = [span for span in spans if counts(span[0], *span[3:5])]
    mine = {key: span for key, span in mine.items() if counts(key[0], *span[:2])}
    assert mine.keys() == {span[:3] for span in spans}
    for client, iteration, step, *rest in spans:
        assert mine[client, iteration, step] == pytest.approx(tuple(rest), rel=1e-9, abs=1e-9)
    assert {loss.client - 1: loss.lost_s for loss in times.lost} == pytest.approx(lost, abs=1e-9)


def ends_of_sharing(transfers, rate, slots, slot_s):
    """When transfers end that share a band, from event to event, by client and start.

    Args:
        transfers: Client from 0, start in s, and bits of each.
        rate: The rate in bit/s of a client in a slot while a number of clients have a rate.
        slots: Number of slots.
        slot_s: Length of a slot.
    """
    waiting, under_way, ends, now = sorted(transfers, key=lambda u: u[1]), {}, {}, 0.0
    while waiting or under_way:
        slot = int(now / slot_s + 1e-9)
        if slot >= slots:
            break
        until = (slot + 1) * slot_s
        if waiting:
            until = min(until, waiting[0][1])
        count = max(1, sum(rate(k, slot, 1) > 0 for k, _ in under_way))
        rates = {key: rate(key[0], slot, count) for key in under_way}
        due = {k: now + left / rates[k] for k, left in under_way.items() if rates[k] > 0}
        first = min(due, key=due.get, default=None)
        if first is not None and due[first] <= until:
            until = due[first]
        for key in under_way:
            under_way[key] -= rates[key] * (until - now)
        now = until
        if first is not None and due[first] <= now:
            ends[first] = now
            del under_way[first]
        while waiting and waiting[0][1] <= now:
            k, start, bits = waiting.pop(0)
            under_way[k, start] = bits
    return ends


MB = 125_000  # bytes in a megabit


def by_hand(name, cf, ca, s, sg, *, cb=0.2, sm=0, cm=0, ratio=2.0, iterations=1, powers=None):
    """A plan from seconds of computing and megabits of transfer, one number a client."""
    clients = len(cf)

    def matrix(values, kind=float):
        return np.repeat(np.array(values, kind)[:, None], iterations, axis=1)

    plan = RoundPlan(
        paradigm=paradigm(name),
        allocation=Allocation(1, *[np.full(clients, 1 / clients)] * 3),
        cf_s=matrix(cf),
        cb_s=matrix([cb] * clients),
        s_s=matrix(s),
        sm_bytes=np.full(clients, round(sm * MB)),
        ca_bytes=matrix([round(x * MB) for x in ca], np.int64),
        sg_bytes=matrix([round(x * MB) for x in sg], np.int64),
        cm_bytes=np.full(clients, round(cm * MB)),
        backward_ratio=ratio,
        compute_power_w=10.0,
        energy_weight=4.0,
    )
    radio = ShannonFdma(
        uplink_hz=clients * 1e6,
        downlink_hz=clients * 1e6,
        noise_w_per_hz=1e-6,
        downlink_power_w=3.0 * clients,
        uplink_power_w=np.ones(clients) if powers is None else np.array(powers, float),
    )
    return plan, radio


CONTENTION = {"cf": [0.1, 0.1, 0.1], "ca": [0.5, 0.7, 0.8], "s": [0.1, 0.1, 0.2], "sg": [6, 6, 6]}
"""Smashed data in at 0.6, 0.8, 0.9; computed in parallel at 0.7, 0.9, 1.1; a gradient of 6 Mb takes
the whole downlink 1 s and a share of it 3 s. Lags 0.2 + 0.1 + CA + S: 0.9, 1.1, 1.3."""
