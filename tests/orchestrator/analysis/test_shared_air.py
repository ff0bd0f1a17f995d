# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Links that divide a direction of the cell: when transfers are due, and the rates of slots."""

from typing import Any

import numpy as np
import pytest
from packet_cases import small
from small_scenario import TREE

from orchestrator.analysis.error_budget import transfer_errors
from orchestrator.analysis.shared_air import SharedAir, Transfer, due_ends_s, mean_rates
from orchestrator.engine.fdma import ShannonFdma
from orchestrator.engine.lte import Lte
from orchestrator.engine.plan import RoundPlan, fixed_allocation, link_bytes, plan_round
from orchestrator.engine.slot_impairments import UP
from orchestrator.rounds.simulation import round_of, simulate
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario

SLOT_S = 0.1


def lte(**keys: Any) -> Scenario:
    radio = {"access": "lte", "uplink_bandwidth_hz": 5e6, "downlink_bandwidth_hz": 5e6}
    return small(radio=radio, **keys)


def planned(scenario: Scenario) -> RoundPlan:
    return plan_round(scenario, profile_of(scenario), fixed_allocation(scenario), link_bytes)


def gains(slots: int = 3000) -> np.ndarray:
    """Gains of three UAVs with all modulation and coding schemes, and outages."""
    rng = np.random.default_rng(5)
    gain = 10 ** rng.uniform(-15.5, -11, (3, slots))
    gain[rng.random(gain.shape) < 0.1] = 0.0
    return gain


def test_transfers_that_share_the_uplink_end_as_computed_by_hand() -> None:
    """The second joins and leaves; the third is in an outage, and is not counted."""
    scenario = lte()
    gain = np.full((3, 40), 1e-9)
    gain[2] = 0.0
    plan, radio = planned(scenario), Lte.of(scenario)
    alone, both = (
        radio.link_rates(plan.allocation, gain, in_turns=False, active=n).uplink[0, 0]
        for n in (1, 2)
    )
    air = SharedAir(plan, radio, gain, SLOT_S, UP)
    transfers = [
        Transfer(0, 0.25, 9.0, 0.5 * alone + 1.0 * both),
        Transfer(1, 0.75, 9.0, 1.0 * both),
        Transfer(2, 0.30, 0.95, 1e6, is_cut=True),
    ]
    assert air.due_s(transfers) == pytest.approx([1.75, 1.75, 0.95])
    longer = [Transfer(0, 0.25, 9.0, 1.0 * alone + 1.0 * both), *transfers[1:]]
    assert air.due_s(longer) == pytest.approx([2.25, 1.75, 0.95])
    assert air.due_s([Transfer(0, 0.25, 9.0, 0.0), Transfer(1, 3.9, 9.0, 1e9)]) == [0.25, np.inf]
    found = air.mean_bps([Transfer(0, 0.25, 0.4, 1.0), Transfer(1, 0.35, 0.5, 1.0)], range(1, 5))
    assert found[0] == pytest.approx([alone, alone, (alone + both) / 2, both])
    assert found[1] == pytest.approx([alone, (alone + both) / 2, both, alone])
    assert found[2].tolist() == [0.0] * 4


DIVIDED = {"cpsfl": 9, "pipesfl": 15, "asfl-ps": 15, "asfl-sp": 30}
"""Transfers that divide a direction: not those that have the downlink one after the other, nor
broadcasts. The five updates of an asynchronous run have adapters of their own."""


@pytest.mark.parametrize("name", DIVIDED)
def test_a_predicted_round_is_due_when_it_is_predicted(name: str) -> None:
    workload = TREE["workload"] | {"asynchronous": {"updates": 5}}
    scenario = lte(paradigm=name, workload=workload)
    plan, radio, gain = planned(scenario), Lte.of(scenario), gains()
    predicted = round_of(0, plan, simulate(plan, radio, gain, SLOT_S, 0.73))
    due_s = due_ends_s(predicted, plan, radio, gain, SLOT_S)
    ends = {
        (span["client"], span["iteration"], span["step"]): span["end_s"] for span in predicted.spans
    }
    assert len(due_s) >= DIVIDED[name]
    assert bool(plan.updates) or len(due_s) == DIVIDED[name]
    assert due_s == pytest.approx({key: ends[key] for key in due_s}, abs=1e-9)
    errors = transfer_errors(predicted, plan, radio, gain, SLOT_S)
    assert errors["error"].abs().max() < 1e-9
    slots = range(5, 40)
    up, down = mean_rates(predicted, plan, radio, gain, SLOT_S, slots)
    assert up is not None
    by_active = [
        radio.link_rates(plan.allocation, gain[:, 5:40], in_turns=plan.in_turns, active=n).uplink
        for n in (1, 2, 3)
    ]
    assert (up > np.min(by_active, axis=0) - 1e-3).all()
    assert (up < np.max(by_active, axis=0) + 1e-3).all()
    assert (up != by_active[0]).any()
    assert (down is None) == plan.in_turns


def test_links_with_shares_of_their_own_are_not_divided() -> None:
    scenario = small()
    plan, radio, gain = planned(scenario), ShannonFdma.of(scenario), np.full((3, 400), 1e-9)
    predicted = round_of(0, plan, simulate(plan, radio, gain, SLOT_S, 0.0))
    assert due_ends_s(predicted, plan, radio, gain, SLOT_S) == {}
    assert mean_rates(predicted, plan, radio, gain, SLOT_S, range(3)) == (None, None)
