# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rounds for the engine: by hand, and at random."""

import itertools

import numpy as np

from orchestrator.engine.plan import Allocation, RoundPlan
from orchestrator.engine.radio import ShannonFdma
from testbed.core import orders
from testbed.core.paradigm import Paradigm, paradigm

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
