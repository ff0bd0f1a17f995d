# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Learning curves in figures: a marker is an evaluation, and a paradigm has one colour."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from page_parts import embedded
from small_scenario import TREE

from orchestrator.analysis.learned import X_TITLES, Group, Race, Target
from orchestrator.records.comparison import compare
from orchestrator.records.results import Result
from orchestrator.reporting.comparison import group_styles, render, styles_of
from orchestrator.reporting.learning_plots import MOST_MARKERS, curves
from orchestrator.reporting.legend import STYLES, line_style, style_of
from orchestrator.scenario.loading import validate
from testbed.core.registry import PARADIGMS
from testbed.core.timeline import SPAN, Round, Timeline

TARGET = Target("accuracy", 0.15)


def evaluated(*accuracies: float, step_s: float = 0.325) -> pd.DataFrame:
    rounds = np.arange(len(accuracies))
    return pd.DataFrame(
        {
            "round": rounds,
            "time_s": step_s * rounds,
            "energy_j": 2.0 * rounds,
            "bytes": 1e6 * rounds,
            "loss": 1 - np.array(accuracies),
            "accuracy": accuracies,
            "perplexity": np.exp(1 - np.array(accuracies)),
        }
    )


def drawn(figure: Figure | None) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By label: the places of the markers that are visible."""
    assert figure is not None
    figure.draw_without_rendering()
    found = {}
    for line in figure.axes[0].lines:
        if line.get_label() == "target":  # a line across the figure
            continue
        every = line.get_markevery() or 1
        shown = slice(None, None, int(every))
        assert line.get_drawstyle() == "steps-post" or len(line.get_xdata()) == 1
        found[str(line.get_label())] = line.get_xdata()[shown], line.get_ydata()[shown]
    return found


@pytest.mark.parametrize("x", X_TITLES)
@pytest.mark.parametrize(
    "accuracies", [[0.133], [0.1, 0.2], [0.133, 0.133, 0.242, 0.25], [0.9, 0.1, np.nan, 0.3]]
)
def test_a_marker_is_an_evaluation(accuracies: list[float], x: str) -> None:
    curve = evaluated(*accuracies)
    places, values = drawn(curves([Group("A", {1: curve})], x, "accuracy", TARGET))["A"]
    known = curve.dropna(subset="accuracy")
    assert places.tolist() == known[x].tolist()
    assert values.tolist() == (100 * known["accuracy"]).tolist()


def test_the_target_is_marked_at_the_time_that_the_sentence_names() -> None:
    curve = evaluated(0.133, 0.133, 0.242, 0.25)
    figure = curves([Group("A", {1: curve})], "time_s", "accuracy", TARGET)
    assert figure is not None
    (line,) = (line for line in figure.axes[0].lines if line.get_marker() == "o")
    path = line.get_path().vertices  # of steps
    crossed = path[path[:, 1] >= 15][0, 0]
    assert crossed == pytest.approx(0.65)
    seeds = Group("A", {1: curve, 2: evaluated(0.1, 0.2, 0.3)})
    figure = curves([seeds], "time_s", "accuracy", TARGET)
    assert figure is not None
    (cross,) = (line for line in figure.axes[0].lines if line.get_marker() == "x")
    assert cross.get_xdata()[0] == pytest.approx((0.65 + 0.325) / 2)
    assert "after 0.4875 s" in Race([seeds], TARGET).sentences()
    assert cross.get_ydata()[0] == pytest.approx(15)
    assert "after 0.65 s" in Race([Group("A", {1: curve})], TARGET).sentences()


def test_seeds_are_averaged_where_all_were_evaluated() -> None:
    group = Group("A", {1: evaluated(0.1, 0.2, 0.3), 2: evaluated(0.3, 0.4, step_s=0.5)})
    places, values = drawn(curves([group], "time_s", "accuracy"))["A"]
    assert places == pytest.approx([0, 0.4125])
    assert values == pytest.approx([20, 30])


@pytest.mark.parametrize("count", [MOST_MARKERS, MOST_MARKERS + 1, 1000])
def test_many_evaluations_are_marked_in_part(count: int) -> None:
    curve = evaluated(*np.linspace(0.1, 0.9, count))
    places, _ = drawn(curves([Group("A", {1: curve})], "round", "accuracy"))["A"]
    assert count / 2 / MOST_MARKERS < len(places) <= MOST_MARKERS
    assert set(places) <= set(curve["round"])


# --- colours -------------------------------------------------------------------------------------


def learned(paradigm: str, seed: int = 1, split: int = 2) -> Result:
    spans = np.array([(1, 1, 0, 0.0, 1.0, 9)], dtype=SPAN)
    rounds = Timeline([Round(0, paradigm, split, 0.0, 1.0, np.ones(2), 1.0, spans)])
    table = pd.DataFrame(
        {
            "round": [-1, 0],
            "data": "held-out",
            "client": 0,
            "iteration": 0,
            "time_s": [0.0, 1.0],
            "loss": [1.0, 0.5],
            "accuracy": [0.1, 0.5],
        }
    )
    tree = TREE | {"paradigm": paradigm, "seed": seed}
    tree["workload"] = TREE["workload"] | {"split": split}
    scenario = validate(tree, paradigm)
    return Result(f"{paradigm}-{seed}", scenario, "measured", rounds, Timeline([]), learning=table)


@pytest.mark.parametrize("seeds", [(1,), (1, 2), (1, 2, 3, 4)])
@pytest.mark.parametrize(
    "paradigms", [["pipesfl", "cpsfl"], ["cpsfl", "sfl-sp", "asfl-pp"], ["sfl-pp"]]
)
def test_a_paradigm_has_the_colour_of_its_page_in_figures(
    paradigms: list[str], seeds: tuple[int, ...]
) -> None:
    found = compare([learned(paradigm, seed) for paradigm in paradigms for seed in seeds])
    page = embedded(render(found, Path()))
    own = [style_of(paradigm) for paradigm in paradigms]
    expected = [style.colour for style in own for _ in seeds]
    assert [each["colour"] for each in page["timelines"]] == expected
    series = page["charts"]["accuracy"]["series"]
    marked = [each for each in series if each["kind"] == "line" and each["marker"]]
    assert [(each["colour"], each["marker"]) for each in marked] == [
        (style.colour, style.marker) for style in own
    ]
    assert group_styles(found) == own
    figure = curves(found.groups, "time_s", "accuracy", None, group_styles(found))
    assert figure is not None
    assert [line.get_color() for line in figure.axes[0].lines] == [style.colour for style in own]


def test_one_paradigm_that_was_varied_has_several_colours() -> None:
    found = compare([learned("cpsfl", split=1), learned("cpsfl", split=2)])
    assert len({style.colour for style in styles_of(found)}) == 2


def test_no_two_paradigms_look_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [*PARADIGMS.names(), "plug-in-b", "plug-in-a"]
    monkeypatch.setattr(type(PARADIGMS), "names", lambda _: names)
    styles = {name: style_of(name) for name in names}
    assert len({(style.colour, style.line) for style in styles.values()}) == len(names)
    assert all(
        line_style("paradigm", name, number) == styles[name] for number, name in enumerate(names)
    )
    assert styles["cpsfl"] == STYLES["cpsfl"]
    assert style_of("not-installed") == style_of("not-installed")
