# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Plots for publication and pages: labels, chosen UAVs, markers, and colours of the theme."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from synthetic_run import make_run

from orchestrator.records.reader import Run, read_run
from orchestrator.reporting import plots, run_plots


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return read_run(make_run(tmp_path_factory.mktemp("plots") / "run", uavs=15, rounds=1))


def texts(figure: Figure) -> list[str]:
    """All texts of a figure that are drawn."""
    figure.draw_without_rendering()
    found = [text.get_text() for axes in figure.axes for text in axes.get_yticklabels()]
    found += [text.get_text() for axes in figure.axes for text in axes.texts]
    found += [axes.get_xlabel() for axes in figure.axes]
    found += [axes.get_ylabel() for axes in figure.axes]
    return found + [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_gantt_of_many_uavs_shows_the_slowest_first_and_the_end(run: Run) -> None:
    figure = run_plots.PLOTS["gantt"](run, 0)
    assert figure is not None
    last_s = run.tables["measured"].groupby("client")["end_s"].max()
    slowest = last_s.sort_values(ascending=False).index[:12]
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [str(k) for k in slowest]
    words = texts(figure)
    assert "UAV (the 12 slowest of 15)" in words
    assert {"measured", "predicted", "end of the round", "predicted end"} <= set(words)
    start_s = run.tables["measured"]["start_s"].min()
    ends = [line.get_xdata()[0] for line in axes.lines]
    assert last_s.max() - start_s in ends
    assert len(ends) == 2


def test_few_uavs_are_in_order_of_their_numbers() -> None:
    table = pd.DataFrame({"client": [2, 1, 2, 3], "end_s": [9.0, 5.0, 8.0, 7.0]})
    assert plots.drawn_uavs(table) == [1, 2, 3]
    assert plots.uav_label(3, 3) == "UAV"


def test_budget_has_no_parts_of_zero_and_ends_at_the_measured_latency(run: Run) -> None:
    figure = run_plots.PLOTS["budget"](run, 0)
    assert figure is not None
    (axes,) = figure.axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    sums = run.tables["budget"].groupby("part")["seconds"].sum()
    used = sums.index[sums.abs() > run_plots.LEAST_PART_S]
    assert len(labels) == len(used) + 1
    assert not {"delay", "loss"} & set(labels)
    latencies = run.rounds[["predicted_latency_s", "measured_latency_s"]].to_numpy(float)[0]
    *parts, total = axes.patches
    assert total.get_width() == pytest.approx(1e3 * np.diff(latencies)[0])
    assert parts[-1].get_x() + parts[-1].get_width() == pytest.approx(total.get_width())


def test_errors_of_points_have_names_and_whole_markers() -> None:
    names = [f"CPSFL, {k}" for k in range(50)]
    table = pd.DataFrame({"name": names, "predicted_error": 0.04, "predicted_wire_error": 0.001})
    figure = plots.errors(table)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == names[:40]
    low, high = sorted(axes.get_ylim())
    assert low < 0
    assert high > 39
    assert not axes.lines[0].get_clip_on()


def test_markers_at_the_top_are_whole() -> None:
    table = pd.DataFrame({"u": [1, 2], "y": [3.9, 4.0], "y_ci95": [0.0, 0.0]})
    figure = plots.lines(table, x="u", lines=None, x_label="u", y_label="s")
    low, high = figure.axes[0].get_ylim()
    assert low == 0
    assert high == pytest.approx(1.06 * 4)
