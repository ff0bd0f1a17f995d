# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rounds whose clients do different numbers of iterations: the engine against the reference."""

from dataclasses import replace

import numpy as np
import pytest
from engine_cases import (
    EVERY,
    assert_equal_to_reference,
    by_hand,
    quick,
    random_case,
    random_faults,
)

from orchestrator.rounds.simulation import simulate
from testbed.core.timeline import STEPS


def uneven_case(rng, scheme):
    """A random case whose clients do from one to all of its iterations."""
    plan, *rest = random_case(rng, scheme)
    own = rng.integers(1, plan.iterations + 1, plan.clients)
    own[rng.integers(plan.clients)] = plan.iterations
    return replace(plan, own_iterations=own), *rest


@pytest.mark.parametrize("scheme", quick(5))
def test_agrees_with_the_reference(scheme) -> None:
    rng = np.random.default_rng(4000 + EVERY.index(scheme))
    for _ in range(25):
        case = uneven_case(rng, scheme)
        times = assert_equal_to_reference(case)
        assert times is None or len(times.spans) == sum(5 * case[0].own_iterations + 2)


@pytest.mark.parametrize("scheme", quick(5))
def test_agrees_with_the_reference_whatever_goes_wrong(scheme) -> None:
    rng = np.random.default_rng(5000 + EVERY.index(scheme))
    for _ in range(25):
        case = uneven_case(rng, scheme)
        assert_equal_to_reference(case, random_faults(rng, case[0].clients, *case[3:]))


def test_equal_numbers_given_one_by_one_are_one_number() -> None:
    plan, *rest = random_case(np.random.default_rng(3), EVERY[0])
    same = replace(plan, own_iterations=np.full(plan.clients, plan.iterations))
    assert simulate(same, *rest).spans.tolist() == simulate(plan, *rest).spans.tolist()


def test_hand_solved_gates_wait_only_for_those_who_do_the_iteration() -> None:
    seconds = {"cf": [0.1, 0.1], "ca": [0.1, 0.9], "s": [0.1, 0.1], "sg": [0.2, 0.2]}
    plan, radio = by_hand("sfl-sp", **seconds, iterations=3)
    plan = replace(plan, own_iterations=np.array([3, 1]))
    times = simulate(plan, radio, np.ones((2, 100)), 1.0)
    served = {
        (client, iteration): (start_s, end_s)
        for client, iteration, step, start_s, end_s, _ in times.spans.tolist()
        if STEPS[step] == "S"
    }
    # Both gates hold client 1 back in the first iteration, in which client 2 is late; then nothing
    # does: the gradient takes 0.1 s, CB 0.2 s, CF and CA 0.1 s each.
    assert served == {
        (1, 1): (pytest.approx(1.0), pytest.approx(1.1)),
        (2, 1): (pytest.approx(1.1), pytest.approx(1.2)),
        (1, 2): (pytest.approx(1.7), pytest.approx(1.8)),
        (1, 3): (pytest.approx(2.3), pytest.approx(2.4)),
    }
