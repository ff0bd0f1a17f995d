# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The error budget: what is put in comes out under its name, and nothing is left over."""

from dataclasses import replace

import numpy as np
import pytest
from engine_cases import CONTENTION, by_hand

from orchestrator.analysis.error_budget import PARTS, error_budget
from orchestrator.prediction.engine import round_of, service_order_of, simulate

SLOT_S = 0.1
GAIN = np.ones((3, 200))


def budget_of(measured_plan, edges_s=None, service_order=None):
    plan, radio = by_hand("cpsfl", **CONTENTION)
    wire = replace(plan, sg_bytes=plan.sg_bytes * 11 // 10)
    predicted = round_of(0, plan, simulate(plan, radio, GAIN, SLOT_S))
    how = {} if service_order is None else {"service_order": service_order}
    times = simulate(measured_plan(wire), radio, GAIN, SLOT_S, slot_edges_s=edges_s, **how)
    measured = round_of(0, plan, times)
    found = error_budget(predicted, measured, plan, wire, radio, GAIN, SLOT_S, edges_s)
    assert sum(found.seconds.values()) == pytest.approx(measured.latency_s - predicted.latency_s)
    return found


def swapped():
    """The order of the gradients if client 2 went first, though client 1 is ready before it."""
    plan, radio = by_hand("cpsfl", **CONTENTION)
    service_order = service_order_of(simulate(plan, radio, GAIN, SLOT_S).spans, 3, 1).copy()
    service_order[1] = [[1], [0], [2]]
    service_order.flags.writeable = False
    return service_order


def test_another_order_of_service_is_a_part_of_its_own():
    found = budget_of(lambda plan: plan, service_order=swapped())
    # The downlink stands still until client 2 is ready, 0.2 s after client 1.
    assert found.seconds["order"] == pytest.approx(0.2)
    assert [part for part in PARTS if abs(found.seconds[part]) > 1e-9] == ["framing", "order"]
    assert abs(found.steps["rest"]).max() < 1e-9


def test_computing_that_took_longer_is_not_booked_under_order():
    slower = budget_of(lambda plan: replace(plan, cb_s=plan.cb_s + 0.05))
    assert slower.seconds["compute"] == pytest.approx(0.05)
    assert slower.seconds["order"] == slower.seconds["rest"] == 0


def varying_budget(*, late_s=0.0, slower_s=0.0):
    """The budget of a round on a channel that changes every slot, and how long it took."""
    gain = 10 ** np.random.default_rng(4).uniform(-0.5, 0.5, (3, 400))
    plan, radio = by_hand("cpsfl", **CONTENTION)
    edges_s = np.arange(401) * SLOT_S
    edges_s[1:] += late_s
    predicted = round_of(0, plan, simulate(plan, radio, gain, SLOT_S))
    real = replace(plan, s_s=plan.s_s + slower_s)
    times = simulate(real, radio, gain, SLOT_S, slot_edges_s=edges_s)
    measured = round_of(0, real, times)
    found = error_budget(predicted, measured, plan, plan, radio, gain, SLOT_S, edges_s)
    return found.seconds, measured.latency_s - predicted.latency_s


def test_rates_that_changed_late_are_a_part_of_their_own():
    seconds, apart_s = varying_budget(late_s=0.04)
    assert abs(apart_s) > 1e-3
    assert seconds["injection"] == pytest.approx(apart_s)
    assert seconds["rest"] == pytest.approx(0, abs=1e-12)
    assert seconds["compute"] == 0


def test_a_server_that_took_longer_is_booked_under_computing():
    seconds, apart_s = varying_budget(slower_s=0.3)
    assert apart_s > 0.1
    assert seconds["compute"] == pytest.approx(apart_s)
    assert seconds["rest"] == pytest.approx(0, abs=1e-12)
    assert seconds["injection"] == 0
