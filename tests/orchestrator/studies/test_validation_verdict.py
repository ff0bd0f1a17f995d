# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The sentences with which the page of a validation begins, and its histogram."""

import math
from typing import Any

import numpy as np
import pytest
from packet_cases import small
from page_parts import Page, embedded

from orchestrator.analytical.models import ModelResult
from orchestrator.studies.validation.outcome import Request, Validation
from orchestrator.studies.validation.page import page
from orchestrator.studies.validation.region import Region
from orchestrator.studies.validation.space import Space
from orchestrator.studies.validation.verdict import kind_of_bounds, verdict

SPACE = {"keys": {"uavs.compute_flops": [{"log_uniform": [1e11, 1e13]}, 1e12]}}
WORST = {"uavs.compute_flops": {"log_uniform": [1e11, 1e13]}}


def validation(
    bounds: list[tuple[float, float] | None],
    engine: list[float],
    *,
    tolerance: float = 0.0,
    has_counterexample: bool = False,
    index: float = 0.0,
) -> Validation:
    results = [None if b is None else ModelResult(*b, {}) for b in bounds]
    error = -0.1 if has_counterexample else 0.0
    about: dict[str, Any] = {"engine": 2.0, "frames": 2.1, "is_interval": True, "error": error,
                             "margin": error, "model": [0.0, 1.8]}  # fmt: skip
    scenario = small()
    return Validation(
        Request(scenario, "tau2", Space.model_validate(SPACE), samples=len(engine)),
        "latency_s",
        [{} for _ in engine],
        {"engine": np.array(engine), "frames": np.array(engine)},
        results,
        Region(tolerance, [], [], 0.0, None, 0),
        [{"key": "a.b", "index": index, "first_order": -0.003, "low": 0.0, "high": 0.0}],
        scenario if has_counterexample else None,
        {"keys": WORST, **about} | ({"simplest": about} if has_counterexample else {}),
        [],
    )


def test_a_bound_that_holds() -> None:
    found = validation([(0, 3.0)] * 4, [2.0, 2.5, 2.9, 3.0])
    assert verdict(found) == [
        "τ2 is an upper bound for the latency of a round in all 4 scenarios.",
        "A search for a worst case found no counterexample.",
    ]


def test_a_bound_that_is_violated_and_its_counterexample() -> None:
    found = validation([(0, 2.0)] * 4, [1.0, 2.5, 4.0, 2.0], has_counterexample=True, index=0.7)
    assert verdict(found) == [
        "τ2 is not an upper bound. The latency of a round exceeds it in 2 of 4 scenarios; there "
        "the bound is too low by up to 50 %.",
        "The simplest counterexample has 3 UAVs and 2 local iterations; its error is −10 %.",
        "No region was found in which it holds.",
    ]


def test_a_counterexample_that_only_the_search_found() -> None:
    first, *_ = verdict(validation([(0, 3.0)] * 2, [1.0, 2.0], has_counterexample=True))
    assert first.endswith(
        "in all 2 scenarios of the design, but a search found a counterexample. The largest error "
        "that was found at all is −10 %, in the simplest counterexample."
    )


def test_lower_bounds_and_intervals() -> None:
    lower = validation([(2.0, math.inf)] * 2, [3.0, 1.0])
    assert verdict(lower)[0] == (
        "τ2 is not a lower bound. The latency of a round is below it in 1 of 2 scenarios; there "
        "the bound is too high by up to 100 %."
    )
    both = validation([(2.0, 4.0)] * 3, [3.0, 1.0, 5.0])
    assert kind_of_bounds(both) == "an interval"
    assert verdict(both)[0] == (
        "The interval of τ2 does not always hold. The latency of a round exceeds the upper bound "
        "in 1 of 3 scenarios; there the bound is too low by up to 20 %. It is below the lower "
        "bound in 1 of 3 scenarios; there the bound is too high by up to 100 %."
    )


def test_an_interval_that_holds() -> None:
    found = validation([(2.0, 4.0)] * 3, [3.0, 2.0, 4.0])
    assert verdict(found)[0] == (
        "The interval of τ2 contains the latency of a round in all 3 scenarios."
    )


def test_a_value_is_judged_by_the_tolerance() -> None:
    found = validation([(1.0, 1.0)] * 3 + [None], [1.0, 1.02, 2.0, 9.0], tolerance=0.05)
    assert verdict(found)[:2] == [
        "τ2 gives the latency of a round within 5 % in 2 of 3 scenarios; the median error is "
        "2.0 %, the largest is −50 %.",
        "1 scenario is not counted because the model does not apply.",
    ]
    exact = validation([(1.0, 1.0)] * 2, [1.0, 1.0], tolerance=0.05)
    assert verdict(exact)[0] == (
        "τ2 is equal to the latency of a round of the engine in all 2 scenarios."
    )


def test_the_page_begins_with_the_verdict_and_has_values_in_words() -> None:
    found = validation([(0, 2.0)] * 4, [1.0, 2.5, 4.0, 2.0], has_counterexample=True)
    html = page(found)
    words = Page(html)
    assert verdict(found)[0] in words.words("errors")
    assert "at most 1.800000 s" in words.words("worst")
    assert "0.000000 s to" not in html
    fleet = words.words("worst")
    assert "e+12 (drawn per UAV, log-uniform from 1e+11 to 1e+13)" in fleet
    assert "−0.003" in words.words("sensitivity")
    assert "-0.003" not in html
    assert "Revision" in words.words("provenance")
    assert "one of per UAV, log-uniform from 1e+11 to 1e+13; 1e+12" in words.words("space")


def test_bars_of_the_histogram_do_not_mix_violations_and_others() -> None:
    found = validation([(0, 2.0)] * 5, [1.0, 1.9, 2.5, 4.0, 2.0])
    holds, violated = embedded(page(found))["charts"]["errors"]["series"]
    assert (holds["label"], violated["label"]) == ("bound holds", "bound is violated")
    assert sum(holds["y"]) == 3
    assert sum(violated["y"]) == 2
    assert max(to for to, count in zip(violated["to"], violated["y"], strict=True) if count) <= 1e-6
    assert min(x for x, count in zip(holds["x"], holds["y"], strict=True) if count) >= -1e-6


@pytest.mark.parametrize("bounds", [(0, 2.0), (2.0, 2.0)])
def test_without_any_spread_no_histogram_is_drawn(bounds: tuple[float, float]) -> None:
    html = page(validation([bounds] * 3, [2.0, 2.0, 2.0]))
    assert "No histogram is shown because" in html
    assert embedded(html) == {}
