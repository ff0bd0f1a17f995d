# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The bound that no allocation beats: what it needs to know of the channel."""

from pathlib import Path

import numpy as np
import pytest

from orchestrator.analytical.lower_bound import lower_bound
from orchestrator.engine.fdma import ShannonFdma
from orchestrator.engine.plan import Array
from orchestrator.policies.shares import lifted
from orchestrator.rounds.simulation import simulate_batch, split_costs
from orchestrator.scenario.loading import load, varied
from workloads.costs.profile import PAPER

SCENARIO = load(Path(__file__).parents[3] / "scenarios" / "paper.yaml", ["uavs.tx_power_w=[1, 1]"])
COSTS, RADIO = split_costs(SCENARIO, PAPER), ShannonFdma.of(SCENARIO)


def objectives(gain: Array) -> Array:
    """Of a round from t = 0 with equal shares, for each split point."""
    half = np.full((4, 2), 0.5)
    return simulate_batch(COSTS, RADIO, gain, 0.1, 0.0, np.arange(1, 5), half, half, half).objective


def bound(gain: Array, reached: float) -> float:
    return float(lower_bound(COSTS, RADIO, gain, 0.1, np.zeros(1), np.array([reached]))[0])


def test_nothing_is_said_of_a_round_that_may_outlast_the_trace() -> None:
    """The channel is bad at first and a hundred times as good later, maybe beyond the trace."""
    gain = np.full((2, 4000), 1e-11)
    reached = 3 * objectives(gain).min()
    better_from = int(reached / 2 / 0.1)
    gain[:, better_from:] = 1e-9
    whole = bound(gain, reached)
    seen = gain[:, :better_from]
    # Were the window cut where the trace ends, the bound would be that of the bad channel alone ...
    constant = np.full((2, 4000), 1e-11)
    assert bound(constant, reached) > whole
    # ... so it is not given.
    assert np.isnan(bound(seen, reached))
    enough = gain[:, : int(np.ceil(reached / 0.1))]
    assert bound(enough, reached) == whole
    assert np.isnan(bound(enough[:, :-1], reached))


def test_rounds_that_are_known_keep_their_bound_beside_one_that_is_not() -> None:
    gain = np.full((2, 4000), 1e-10)
    reached = objectives(gain).min()
    starts_s = np.array([0.0, 399.0])
    first, last = lower_bound(COSTS, RADIO, gain, 0.1, starts_s, np.full(2, reached))
    assert 0 < first <= reached
    assert np.isnan(last)


@pytest.mark.parametrize("paradigm", ["cpsfl", "sfl-sp", "pipesfl"])
@pytest.mark.parametrize("mixed", [False, True])
def test_no_allocation_is_below_the_bound_with_loads_of_their_own(
    paradigm: str, mixed: bool
) -> None:
    keys = {"workload.batch_size": [4, 16], "workload.local_iterations": [3, 2]}
    scenario = varied(SCENARIO, keys | {"paradigm": paradigm})
    costs = split_costs(scenario, PAPER)
    gain = np.full((2, 4000), [[3e-11], [1e-11]])
    rng = np.random.default_rng(1)
    split = rng.integers(1, 5, (500, 2 if mixed else 1)) * np.ones((1, 2), np.int64)
    shares = lifted(rng.dirichlet([2, 2], (3, 500)))
    tried = simulate_batch(costs, RADIO, gain, 0.1, 0.0, split, *shares).objective
    reached = np.array([1.1 * tried.min()])
    found = lower_bound(costs, RADIO, gain, 0.1, np.zeros(1), reached, per_client=mixed)[0]
    assert 0.5 * tried.min() < found <= tried.min()
