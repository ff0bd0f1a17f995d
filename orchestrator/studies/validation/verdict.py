# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The result of a validation in a few sentences: whether the model holds, and where it fails."""

import math

import numpy as np

from orchestrator.reporting.formatting import listed, percent
from orchestrator.studies.validation.outcome import Validation
from orchestrator.theory.models import model

QUANTITIES = {
    "latency_s": "the latency of a round",
    "iteration_s": "the duration of an iteration",
    "max_energy_j": "the largest energy of a UAV",
    "objective": "the objective",
}
"""Words for metrics."""
INFLUENTIAL = 0.1
"""Least total Sobol index of a key that is named as an influence."""


def verdict(found: Validation) -> list[str]:
    """Sentences: whether the model holds, the counterexample, the region and the main influence."""
    sentences = [_bounds(found) if found.is_interval else _values(found)]
    silent = sum(result is None for result in found.results)
    if silent:
        verb = "is" if silent == 1 else "are"
        sentences.append(
            f"{_scenarios(silent)} {verb} not counted because the model does not apply."
        )
    if found.counterexample is not None:
        sentences.append(_counterexample(found))
    elif found.is_interval:
        sentences.append("A search for a worst case found no counterexample.")
    rules = found.region.texts()
    errors = _errors(found)
    if rules and (np.abs(errors) > found.region.tolerance).any():
        sentences.append(
            f"As far as the scenarios show, it holds in the region {listed(rules)} "
            f"({100 * found.region.share:.0f} % of the space)."
        )
    names = [row["key"] for row in found.sensitivity[:2] if row["index"] >= INFLUENTIAL]
    if names:
        what = "distance to the bound" if found.is_interval else "error"
        sentences.append(f"The {what} depends most on {listed(names)}.")
    return sentences


def name_of(found: Validation) -> str:
    """The model's name in sentences, e.g. τ2."""
    return model(found.request.model, found.request.scenario).title.partition(",")[0]


def kind_of_bounds(found: Validation) -> str:
    """Which bounds the model gives: `an upper bound`, `a lower bound` or `an interval`."""
    results = [result for result in found.results if result is not None]
    has_low = any(result.low_s > 0 for result in results)
    has_high = any(math.isfinite(result.high_s) for result in results)
    if has_low and has_high:
        return "an interval"
    return "an upper bound" if has_high else "a lower bound"


def _errors(found: Validation) -> np.ndarray:
    errors = found.errors("engine")
    return errors[np.isfinite(errors)]


def _bounds(found: Validation) -> str:
    errors, name, kind = _errors(found), name_of(found), kind_of_bounds(found)
    quantity = QUANTITIES.get(found.metric, found.metric)
    tolerance = found.region.tolerance
    count = int((np.abs(errors) > tolerance).sum())
    within = f", within a tolerance of {_tolerance(tolerance)}" if tolerance else ""
    holds = (
        f"The interval of {name} contains {quantity}"
        if kind == "an interval"
        else f"{name} is {kind} for {quantity}"
    )
    if not count:
        if found.counterexample is not None and not tolerance:
            return (
                f"{holds} in all {_scenarios(len(errors))} of the design, "
                "but a search found a counterexample."
            )
        return f"{holds} in all {_scenarios(len(errors))}{within}."
    upper, lower = ("the upper bound", "the lower bound") if kind == "an interval" else ("it", "it")
    parts = [
        f"{'exceeds ' + upper if sign < 0 else 'is below ' + lower} in "
        f"{int((sign * errors > tolerance).sum())} of {_scenarios(len(errors))}; there the bound "
        f"is too {'low' if sign < 0 else 'high'} by up to "
        f"{percent((sign * errors).max(), sign=False)}"
        for sign in (-1, 1)
        if (sign * errors > tolerance).any()
    ]
    subject = quantity[:1].upper() + quantity[1:]
    fails = (
        f"The interval of {name} does not always hold"
        if kind == "an interval"
        else f"{name} is not {kind}"
    )
    return f"{fails}{within}. {subject} {'. It '.join(parts)}."


def _values(found: Validation) -> str:
    errors, name = _errors(found), name_of(found)
    quantity = QUANTITIES.get(found.metric, found.metric)
    tolerance = found.region.tolerance
    if not errors.any():
        return f"{name} is equal to {quantity} of the engine in all {_scenarios(len(errors))}."
    right = int((np.abs(errors) <= tolerance).sum())
    share = "all" if right == len(errors) else f"{right} of"
    largest = errors[np.abs(errors).argmax()]
    median = percent(np.median(np.abs(errors)), sign=False)
    return (
        f"{name} gives {quantity} within {_tolerance(tolerance)} in {share} "
        f"{_scenarios(len(errors))}; the median error is {median}, "
        f"the largest is {percent(largest)}."
    )


def _counterexample(found: Validation) -> str:
    assert found.counterexample is not None
    uavs = found.counterexample.uavs.count
    iterations = found.counterexample.workload.largest("local_iterations")
    error = found.worst["simplest"]["error"]
    return (
        f"The simplest counterexample has {uavs} UAV{'s' * (uavs > 1)} and {iterations} local "
        f"iteration{'s' * (iterations > 1)}; its error is {percent(error)}."
    )


def _scenarios(count: int) -> str:
    return f"{count:,} scenario{'s' * (count != 1)}"


def _tolerance(fraction: float) -> str:
    return f"{100 * fraction:.3g} %"
