# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The result of a validation in a few sentences: whether the model holds, and where it fails."""

import math
from typing import Any

import numpy as np

from orchestrator.analytical.models import model
from orchestrator.reporting.formatting import listed, percent
from orchestrator.studies.validation.outcome import Validation
from orchestrator.studies.validation.region import Region

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
    lead = _bounds(found) if found.is_interval else _values(found)
    sentences = [" ".join(filter(None, [lead, _largest(found)]))]
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
    if (np.abs(_errors(found)) > found.region.tolerance).any():
        sentences.append(_region(found.region))
    if influence := _influence(found):
        sentences.append(influence)
    return sentences


def checked(region: Region) -> str:
    """How the model does at the points in a region that were not used to find it, in words."""
    count = region.held_out
    if not count:
        return "none of the scenarios that were not used to find it is in this region"
    right, share = round((region.held_out_share or 0.0) * count), region.checked
    ends = (
        f", 95 % interval {100 * share.low:.0f} to {100 * share.high:.0f} %" if share.exists else ""
    )
    return (
        f"the model holds in {right} of {_scenarios(count)} in the region that "
        f"{'was' if count == 1 else 'were'} not used to find it ({100 * share.value:.0f} %{ends})"
    )


def _region(region: Region) -> str:
    rules = region.texts()
    if not rules:
        return "No region was found in which it holds."
    text = f"{listed(rules)} ({100 * region.share:.0f} % of the space)"
    if region.is_confirmed:
        return f"It holds in the region {text}, as far as the scenarios show: {checked(region)}."
    return f"No region was confirmed in which it holds. The candidate is {text}: {checked(region)}."


def worst_error(found: Validation) -> float:
    """The largest error of all scenarios on the page, against the engine with the payload alone."""
    errors = [*_errors(found), *(case["error"] for case in cases(found) if case["error"])]
    return max(errors, key=abs, default=0.0)


def cases(found: Validation) -> list[dict[str, Any]]:
    """The single cases that the page describes."""
    return [found.worst, *(found.worst[k] for k in ("in_space", "simplest") if k in found.worst)]


def _largest(found: Validation) -> str:
    """The largest error, if no scenario of the design has it."""
    largest, of_design = worst_error(found), max(np.abs(_errors(found)), default=0.0)
    if not abs(largest) > max(of_design, found.region.tolerance):
        return ""
    simplest = found.worst.get("simplest", {}).get("error")
    where = "in the simplest counterexample" if simplest == largest else "by the search"
    return f"The largest error that was found at all is {percent(largest)}, {where}."


def _influence(found: Validation) -> str:
    """The most influential keys, if their intervals are apart from those of the others."""
    rows = found.sensitivity
    what = "distance to the bound" if found.is_interval else "error"
    if len(rows) < 2 or rows[0]["index"] < INFLUENTIAL:
        return ""
    for count in (1, 2):
        first, others = rows[:count], rows[count:]
        if others and min(row["low"] for row in first) > max(row["high"] for row in others):
            return f"The {what} depends most on {listed(row['key'] for row in first)}."
    n = found.request.base_samples
    return (
        f"Which keys the {what} depends on most is not clear with {n} base samples: the intervals "
        f"of the total indices overlap. Draw more (--samples {16 * n} has {2 * n})."
    )


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
