# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Transfers that are shorter than the credit of their link are sent as much later as they last."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from orchestrator.emulated.departures import credits_of
from orchestrator.engine.access import LinkRates
from testbed.control.messages import Credits
from testbed.network.shaping import Shape

WAY_S = 0.15e-3


def plan(shared: Any = None) -> Any:
    return SimpleNamespace(
        clients=2,
        sm_bytes=np.array([1000, 10_000_000]),
        ca_bytes=np.array([[12_500, 1], [125_000, 1]]),
        sg_bytes=np.array([[2500, 1], [2500, 1]]),
        cm_bytes=np.array([10, 10]),
        shared_bytes=shared,
    )


def rates(uplink: Any = ((100e6, 100e6), (100e6, 100e6))) -> LinkRates:
    whole = np.full((2, 2), 10e6)
    return LinkRates(np.array(uplink), whole, whole)


def test_a_transfer_begins_its_duration_late_but_never_more_than_the_credit() -> None:
    first, second = credits_of(plan(), rates(), Shape(), 1.0)
    assert first == Credits(
        broadcast=pytest.approx(0.8e-3 - WAY_S),
        smashed=pytest.approx(1e-3 - WAY_S),
        gradient=pytest.approx(2e-3 - WAY_S),
        shared=0.0,
        adapters=0.0,
    )
    assert second.broadcast == second.smashed == Shape().credit_s


def test_durations_are_real_and_at_the_mean_of_slots_that_are_not_out() -> None:
    slow = rates(((50e6, 150e6), (0.0, 500e6)))
    first, second = credits_of(plan(), slow, Shape(), 2.0)
    assert first.smashed == pytest.approx(2e-3 - WAY_S)
    assert second.smashed == pytest.approx(4e-3 - WAY_S)
    _, out = credits_of(plan(), rates(((1e6, 1e6), (0.0, 0.0))), Shape(), 1.0)
    assert out.adapters == Shape().credit_s, "no duration is known"


def test_a_shared_gradient_is_a_transfer_of_its_own() -> None:
    first, _ = credits_of(plan(np.array([1250, 1250])), rates(), Shape(), 1.0)
    assert first.shared == pytest.approx(1e-3 - WAY_S)
    assert first.gradient == pytest.approx(1e-3 - WAY_S)


def test_links_without_credit_have_none() -> None:
    for credits_ in credits_of(plan(), rates(), Shape(burst_s=0.0), 1.0):
        assert credits_ == Credits.of_all(0.0)


def test_the_adapters_of_asynchronous_rounds_have_a_size_for_each_update() -> None:
    plain = plan()
    each = SimpleNamespace(
        **{
            **vars(plain),
            "sm_bytes": np.repeat(plain.sm_bytes[:, None], 5, axis=1),
            "cm_bytes": np.repeat(plain.cm_bytes[:, None], 5, axis=1),
        }
    )
    assert credits_of(each, rates(), Shape(), 1.0) == credits_of(plain, rates(), Shape(), 1.0)
