# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The sentences with which the page of a comparison begins, and its colours."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_parts import embedded
from small_scenario import TREE
from synthetic_run import make_session

from orchestrator.records.comparison import Comparison, compare
from orchestrator.records.results import Result, read_results
from orchestrator.reporting.comparison import render
from orchestrator.reporting.comparison_verdict import WAITING, invalid, last_client, verdict
from orchestrator.reporting.legend import COLOURS, STEP_COLOURS, STYLES
from orchestrator.scenario.loading import validate
from testbed.core.timeline import SPAN, STEPS, Round, Timeline

CF, CA, CM = (STEPS.index(step) for step in ("CF", "CA", "CM"))


def round_(index: int, paradigm: str, ca_s: float, wait_s: float) -> Round:
    """Client 2 finishes last: CF of 1 s, then CA, a wait, and CM of 1 s; client 1 is done early."""
    start = 100.0 * index
    ready = start + 1 + ca_s
    spans = [
        (1, 1, CF, start, start + 0.5, 0),
        (1, 1, CM, start + 0.5, start + 1, 9),
        (2, 1, CF, start, start + 1, 0),
        (2, 1, CA, start + 1, ready, 9),
        (2, 1, CM, ready + wait_s, ready + wait_s + 1, 9),
    ]
    latency_s = 2 + ca_s + wait_s
    return Round(
        index, paradigm, 2, start, latency_s, np.ones(2), latency_s, np.array(spans, dtype=SPAN)
    )


def result(
    paradigm: str, ca_s: float, wait_s: float = 0.5, rounds: Sequence[int] = (0, 1), **more: Any
) -> Result:
    tree = TREE | {"paradigm": paradigm} | more.pop("tree", {})
    made = Timeline([round_(index, paradigm, ca_s, wait_s) for index in rounds])
    return Result(paradigm, validate(tree, paradigm), "measured", made, Timeline([]), **more)


def of(*results: Result) -> Comparison:
    return compare(results, names=[each.name for each in results])


def test_the_fastest_result_and_the_steps_that_make_the_difference() -> None:
    found = of(result("cpsfl", ca_s=4.0, wait_s=0.5), result("pipesfl", ca_s=1.0, wait_s=1.5))
    assert verdict(found) == [
        "pipesfl is faster: a round takes 4.500 s on average, 31 % less than with cpsfl (6.500 s).",
        "Compared with cpsfl, the UAV that finishes last in a round of pipesfl spends 3.000 s less "
        "on CA (smashed data uplink) and 1.000 s more on waiting.",
        "The scenarios differ in paradigm.",
    ]


def test_times_of_the_last_client_add_up_to_the_latency() -> None:
    table = last_client(of(result("cpsfl", 4.0), result("pipesfl", 1.0, 0.0)))
    assert table.loc["cpsfl"].to_dict() == {"CF": 1, "CA": 4, "CM": 1, WAITING: 0.5}
    assert table.sum(axis=1).tolist() == [6.5, 3.0]


def test_of_several_results_the_slowest_is_named() -> None:
    found = of(result("cpsfl", 4.0), result("pipesfl", 1.0), result("sfl-pp", 7.0))
    assert verdict(found)[0].endswith(
        " than with cpsfl (6.500 s). sfl-pp is the slowest (9.500 s)."
    )


def test_equal_latencies_are_equal() -> None:
    (first, *_) = verdict(of(result("cpsfl", 4.0), result("pipesfl", 4.0)))
    assert first == "All results have the same latency per round: 6.500 s."
    (first, second, *_) = verdict(
        of(result("cpsfl", 4.0), result("pipesfl", 4.0), result("sfl-pp", 7.0))
    )
    assert first == (
        "cpsfl and pipesfl are equally fast: 6.500 s per round. sfl-pp is the slowest (9.500 s)."
    )
    assert second.startswith("Compared with sfl-pp, ")
    assert second.endswith("spends 3.000 s less on CA (smashed data uplink).")


def test_only_common_rounds_are_compared() -> None:
    long, short = result("cpsfl", 4.0, rounds=(0, 1, 2)), result("pipesfl", 1.0, rounds=(1,))
    assert "Means are over the one round that all results have." in verdict(of(long, short))
    apart = of(result("cpsfl", 4.0, rounds=(0,)), result("pipesfl", 1.0, rounds=(1,)))
    assert verdict(apart)[2].startswith("The results have no round in common.")


def test_one_result_has_its_latency() -> None:
    assert verdict(of(result("cpsfl", 4.0))) == ["A round of cpsfl takes 6.500 s on average."]


def test_inputs_that_differ_are_named_or_counted() -> None:
    same = of(result("cpsfl", 4.0), result("cpsfl", 1.0))
    assert verdict(same)[-1] == "The scenarios are equal."
    tree = {"rounds": 7, "seed": 3, "slot_s": 0.2}
    many = of(result("cpsfl", 4.0), result("pipesfl", 1.0, tree=tree))
    assert verdict(many)[-1] == "The scenarios differ in 4 keys, see the section Differences."
    bare = result("cpsfl", 4.0)
    unknown = of(bare, Result("x", None, "measured", bare.timeline, Timeline([])))
    assert verdict(unknown)[-1].startswith("At least one result has no scenario")


def test_results_that_are_not_valid_are_said_at_once() -> None:
    found = of(result("cpsfl", 4.0, valid=False), result("pipesfl", 1.0, valid=True))
    assert invalid(found) == ["cpsfl"]
    assert "<b>Not valid: cpsfl.</b> Draw no conclusions from this result." in render(found, Path())
    assert "Not valid" not in render(of(result("cpsfl", 4.0, valid=True)), Path())


def test_sessions_are_compared_by_their_throughput(tmp_path: Path) -> None:
    both = [make_session(tmp_path / name, carried) for name, carried in (("a", 50_000), ("b", 9))]
    found = compare([each for path in both for each in read_results(path)])
    first = verdict(found)[0]
    assert re.fullmatch(
        r"a has the highest throughput on the uplinks: [\d.]+ Mb/s, compared with [\d.]+ Mb/s of "
        r"b\.",
        first,
    )
    assert first in render(found, Path())
    alone = verdict(compare(read_results(both[0])))[0]
    assert re.fullmatch(r"The uplinks of a carry [\d.]+ Mb/s, \d+ % of the capacity\.", alone)


def test_a_paradigm_has_one_colour_on_all_pages() -> None:
    found = of(result("pipesfl", 1.0), result("cpsfl", 4.0))
    timelines = embedded(render(found, Path()))["timelines"]
    assert [each["colour"] for each in timelines] == [STYLES["pipesfl"][0], STYLES["cpsfl"][0]]
    same = [result("cpsfl", 1.0), result("cpsfl", 4.0)]
    twice = embedded(render(compare(same, names=["a", "b"]), Path()))["timelines"]
    assert [each["colour"] for each in twice] == list(COLOURS[:2])


@pytest.mark.parametrize("colour", [*COLOURS, *(style[0] for style in STYLES.values())])
def test_no_series_has_the_colour_of_a_step(colour: str) -> None:
    assert colour not in STEP_COLOURS.values()
    assert (colour in COLOURS) == (colour not in {style[0] for style in STYLES.values()})
