# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The functions of `import orchestrator as tb` behind commands: options, results, messages."""

import inspect
import json
import re
from collections.abc import Callable
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import small_flights
from matplotlib.figure import Figure
from small_campaign import campaign_tree, write_campaign
from small_scenario import TREE, trace_of_rates

import orchestrator as tb
from orchestrator.cli import campaign, emulate, flights, learning, predict, study
from orchestrator.cli.validate import validate
from orchestrator.interface import progress
from orchestrator.interface.progress import followed
from orchestrator.reporting import xy, xy_plots

OPTIONS: dict[str, tuple[Callable[..., Any], dict[str, str]]] = {
    "theory": (study.theory, {}),
    "cross_check": (study.cross_check, {"delay_ms": "delays_s"}),
    "overhead": (study.overhead, {}),
    "validate": (validate, {}),
    "campaign": (campaign.run, {"given": "file"}),
    "report": (emulate.report, {"run_dir": "folder"}),
    "learn": (learning.learn, {}),
    "train": (learning.train, {}),
    "evaluate": (learning.evaluate, {}),
    "export": (learning.export, {"run_dir": "source", "folder": "out"}),
    "fit": (flights.fit, {"files": "flights"}),
    "forecast": (flights.forecast, {"fit_file": "fit", "flight_file": "flight"}),
    "trace": (predict.trace, {"trace_file": "given"}),
}
"""By function: its command, and the names of options that differ."""
EVERYWHERE = {"output": "out", "trace_file": "trace"}
NOT_IN_PYTHON = {"overrides", "json_file"}
"""`load` has the overrides, and results are objects."""
ROOT = Path(__file__).parents[3]
NOT_OPTIONS = {"progress", "policy"}
"""Of functions only: what a command prints, and a policy that is a function."""


def small(**changes: Any) -> tb.Scenario:
    return tb.Scenario.model_validate(TREE | changes)


@pytest.mark.parametrize("name", OPTIONS)
def test_functions_have_the_options_of_their_commands(name: str) -> None:
    command, renamed = OPTIONS[name]
    names = EVERYWHERE | renamed
    options = {
        names.get(n, n) for n in inspect.signature(command).parameters if n not in NOT_IN_PYTHON
    }
    own = inspect.signature(getattr(tb, name)).parameters
    if name == "trace":
        options.remove("out")  # `save` writes it
    assert set(own) - NOT_OPTIONS == options
    for option in own:
        assert f"{option}: " in (inspect.getdoc(getattr(tb, name)) or "")


def test_names_are_completed_and_are_functions() -> None:
    assert set(OPTIONS) < set(dir(tb))
    assert all(inspect.isfunction(getattr(tb, name)) for name in OPTIONS)


def test_a_theory_is_a_table() -> None:
    table = tb.theory("quickstart", {"gain": np.full((3, 2000), 1e-9), "slot_s": 0.1})
    assert table.frame()["holds"].all()
    assert "<table" in table._repr_html_()


def test_a_cross_check_has_tables_and_figures(tmp_path: Path) -> None:
    found = tb.cross_check(
        small(), trace_of_rates(), 1, emulated=False, delays_s=[0, 0.005], out=tmp_path / "out"
    )
    assert list(found.tables) == ["latencies", "steps", "transfers", "over_delay"]
    assert found.frame().equals(found.tables["latencies"])
    assert found.frame("over_delay")["delay_ms"].tolist() == [0, 5]
    written = json.loads((tmp_path / "out" / "cross-check.json").read_text())
    assert written["delay_sweep"] == found.frame("over_delay").to_dict("records")
    assert isinstance(found.plot(), Figure)
    assert isinstance(found.plot("delay"), Figure)
    html = found._repr_html_()
    assert escape(found.sentences[0]) in html
    assert html.count("<table") == 4
    with pytest.raises(tb.InputError, match=r"^`out`: .* has earlier results"):
        tb.cross_check(small(), trace_of_rates(), 1, emulated=False, out=tmp_path / "out")


def test_a_validation_has_its_points(tmp_path: Path) -> None:
    space = {"keys": {"workload.local_iterations": [1, 2, 3]}}
    found = tb.validate("quickstart", "tau2-hat", space, samples=16, packets=0, workers=1)
    methods, points = found.frame("methods"), found.frame("points")
    assert methods["points"].tolist() == [16, 16]
    assert set(points["workload.local_iterations"]) <= {1, 2, 3}
    errors = points["engine_error"].abs()
    assert methods["median_size_value"][0] == pytest.approx(errors.median())
    assert found.sentences[0] in repr(found)
    (only,) = found.frame("sensitivity").to_dict("records")
    assert only["index"] == 1  # the only key explains whatever varies
    with pytest.raises(tb.InputError, match=r"^`space`: .*workload.iterations"):
        tb.validate("quickstart", "tau2-hat", {"keys": {"workload.iterations": [1, 2]}})


def tau2(plan, radio, gain, slot_s):
    return 1.0


def never_waits(plan, radio, gain, slot_s):
    return 1.0


def test_a_function_is_a_model(tmp_path: Path) -> None:
    space = {"keys": {"workload.local_iterations": [1, 2, 3]}}
    ask = partial(tb.validate, "quickstart", never_waits, space, samples=16, packets=0)
    found = ask(out=tmp_path / "out")
    points = found.frame("points")
    assert points["engine_error"].tolist() == pytest.approx(
        (1 / points["engine_latency_s"] - 1).tolist()
    )
    assert found.sentences[0].startswith("never_waits")
    assert isinstance(found.plot(), Figure)
    with pytest.raises(tb.InputError, match=r"^`out`: .* has earlier results"):
        ask(out=tmp_path / "out")
    with pytest.raises(tb.InputError, match=r"^`model`: 'never_waits' is not one of"):
        tb.validate("quickstart", "never_waits", space, samples=16)


def test_a_campaign_has_the_tables_of_its_folder(tmp_path: Path) -> None:
    tree = campaign_tree(tmp_path)
    tree["studies"]["split"]["trace"] = str(tmp_path / "trace.npz")
    found = tb.campaign(tree, tmp_path / "out", workers=1)
    points = pd.read_parquet(tmp_path / "out" / "results" / "points.parquet")
    assert found.frame().equals(points)
    assert list(found.figures) == ["split-latency"]
    assert isinstance(found.plot(), Figure)
    assert (tmp_path / "out" / "report.html").is_file()
    assert "cpsfl" in found.sentences[0].lower()
    assert found.markdown().count("\n") == 1 + len(points[["u", "paradigm"]].drop_duplicates())
    again = tb.campaign(write_campaign(tmp_path), tmp_path / "out", workers=0)
    assert again.frame().equals(points)  # of the same points, none of which was computed again


def test_trainings_have_curves_and_can_be_exported(tmp_path: Path) -> None:
    keys = {"workload.data.samples": 24, "workload.evaluate_every": 1, "workload.batch_size": 2}
    scenario = tb.load("quickstart", keys | {"workload.local_iterations": 1})
    shown: list[str] = []
    found = tb.learn(
        scenario, tmp_path / "out", 1, seeds=2, progress=lambda what, now, of: shown.append(what)
    )
    assert found.frame()["seed"].unique().tolist() == [scenario.seed, scenario.seed + 1]
    assert found.frame("clients")["client"].tolist() == [1, 2, 3]
    assert isinstance(found.plot("accuracy"), Figure)
    assert shown
    one = tmp_path / "out" / f"seed-{scenario.seed}"
    (line,) = tb.export(one, tmp_path / "weights", "weights")
    assert line.endswith(str(tmp_path / "weights"))
    assert (tmp_path / "weights" / "model.safetensors").is_file()
    assert tb.report(tmp_path / "out") == [tmp_path / "out" / "report.html"]
    held = tb.comparison(
        {"a": _predicted(scenario, tmp_path)}, target="accuracy=0.01", learned=[one]
    )
    assert held.table["time_to_accuracy"].notna().all()


def _predicted(scenario: tb.Scenario, folder: Path) -> Path:
    timeline = tb.predict(scenario, rounds=1)
    path = folder / "predicted.json"
    tree = scenario.model_dump(mode="json") | {"rounds": 1}
    path.write_text(json.dumps({"scenario": tree, "rounds": timeline.to_json()}))
    return path


def test_policies_are_evaluated_by_name_and_as_functions() -> None:
    scenario = small(rounds=5)
    table = tb.evaluate(scenario, trace_of_rates(), "equal", 3)
    third = np.full(3, 1 / 3)

    def decide(now: tb.Situation) -> tb.Allocation:
        return tb.Allocation(3, third, third, third)

    same = tb.evaluate(scenario, trace_of_rates(), decide, 3)
    columns = ["split", "latency_s", "objective"]
    assert table[columns].equals(same[columns])
    assert len(table) == 3


def test_fits_and_forecasts_have_tables_and_figures(tmp_path: Path) -> None:
    files = []
    for seed, name in enumerate(("a", "b")):
        small_flights.made_up(seed, 0.0).save(tmp_path / f"{name}.npz")
        files.append(tmp_path / f"{name}.npz")
    found = tb.fit(files[:1], ["log-distance"], out=tmp_path / "fit")
    models = found.frame()
    assert models.loc[models["of"] == "level", "name"].tolist() == ["log-distance"]
    assert found.frame("flights")["name"].tolist() == ["a"]
    assert all(isinstance(found.plot(name), Figure) for name in found.figures)
    made = tb.forecast("paper", tmp_path / "fit" / "fit.json", files[1], reveal=True)
    bands = made.frame("bands")
    assert (bands["rsrp_dbm_p5"] < bands["rsrp_dbm_p95"]).all()
    assert len(made.frame("scores")) > 1
    assert isinstance(made.plot("level"), Figure)


def test_traces_are_arrays_that_can_be_saved(tmp_path: Path) -> None:
    made = tb.trace("quickstart", 5)
    made.save(tmp_path / "t.npz")
    assert np.load(tmp_path / "t.npz")["gain"].shape == (3, 5)


def test_rounds_are_drawn() -> None:
    timeline = tb.predict(small(rounds=2), trace_of_rates())
    drawn = tb.plot(timeline, round=1)
    assert isinstance(drawn, Figure)
    assert drawn._repr_png_().startswith(b"\x89PNG")  # a notebook shows it


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (partial(tb.learn, "quickstart", "x", seeds=0), "`seeds`: must be from 1 to 1000, not 0"),
        (partial(tb.train, "quickstart", "x", "dlr"), "`variant`: 'dlr' is not one of drl, drl-, "),
        (partial(tb.train, "quickstart", "x", rounds=0), "`rounds`: must be at least 1, not 0"),
        (partial(tb.export, "x", "y", "onnx"), "`to`: 'onnx' is not one of peft, weights"),
        (partial(tb.fit, []), "`flights`: is empty; give at least one file"),
        (partial(tb.fit, [3]), "`flights`: must be paths, not 3"),
        (
            partial(tb.campaign, 3),
            "`file`: must be a mapping, or the path or name of a campaign",
        ),
        (partial(tb.campaign, {"name": "a"}), "`file`: scenario: is missing"),
        (
            partial(tb.validate, "quickstart", lambda: 1),
            "`model`: a function must have a name, not",
        ),
        (partial(tb.validate, "quickstart", small, workers=2), "`workers`: must be absent if `mod"),
        (partial(tb.validate, "quickstart", tau2), "`model`: 'tau2' is the name of another model"),
        (
            partial(tb.cross_check, "quickstart", delays_s=[99]),
            "`delays_s`: must be from 0 to 10",
        ),
        (partial(tb.overhead, "quickstart", sweep={}), "`sweep`: must be a mapping from one key"),
        (partial(tb.overhead, "quickstart", sweep={"seed": "1,2"}), "`sweep`: seed must have a li"),
        (partial(tb.validate, "quickstart", "tau2", samples=3), "`samples`: must be from 16 to"),
        (partial(tb.trace, "quickstart", 0), "`slots`: must be from 1 to 10000000, not 0"),
        (partial(tb.trace, "quickstart", 1, given="x"), "`given`: needs `radio`"),
        (partial(tb.forecast, "paper", "f", "g", sealed="s"), "`sealed`: needs `reveal`"),
        (partial(tb.plot, 3), "`result`: must be a prediction, a run or the result of a study"),
    ],
)
def test_messages_name_the_argument(call: Callable[[], object], message: str) -> None:
    with pytest.raises(tb.InputError) as caught:
        call()
    assert str(caught.value).startswith(message)


def test_results_name_their_tables_and_figures() -> None:
    found = tb.StudyResult("study", ["It holds."], {"a": pd.DataFrame({"x": [1], "y": [0.5]})})
    assert found.markdown() == "| x | y |\n|---|---|\n| 1 | 0.5 |"
    with pytest.raises(tb.InputError, match=r"^`name`: 'b' is not one of a"):
        found.frame("b")
    with pytest.raises(tb.InputError, match=r"^`name`: this result has no figure"):
        found.plot()


def test_charts_of_pages_are_drawn_with_all_their_parts() -> None:
    x, y = np.arange(3.0), np.array([1.0, np.nan, 4.0])
    series = [
        xy.band("all", {"round": x, "time_s": 2 * x}, y, y + 1, "accent", holds=True),
        xy.line("all", {"round": x, "time_s": 2 * x}, y, "#aa0044", dash="7 4", marker="o"),
        xy.points("seen", x, y, "ring-2"),
        xy.bars("counted", np.arange(4.0), np.ones(3), "bad"),
    ]
    chart = xy.chart("", {"round": "Round", "time_s": "Time (s)"}, "y", series, from_zero=True)
    for over, at in ((None, [0, 1, 2]), ("time_s", [0, 2, 4])):
        (axes,) = xy_plots.figure(chart, over).axes
        line, seen = axes.lines
        assert line.get_xdata().tolist() == at
        assert line.get_color() == "#aa0044"
        assert seen.get_xdata().tolist() == [0, 2]  # points with NaN are not drawn
        assert [bar.get_height() for bar in axes.patches] == [1, 1, 1]
        assert axes.get_xlabel() == chart["over"][over or "round"]
        assert axes.get_ylim()[0] == 0
    logarithmic = xy.chart("", "x", "y", [xy.points("a", x + 1, y, "ink")], log_x=True)
    assert xy_plots.figure(logarithmic).axes[0].get_xscale() == "log"


def test_a_notebook_shows_a_bar_for_long_work(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []

    class Handle:
        def update(self, new: Any, **_: Any) -> None:
            shown.append(new)

    import IPython
    import IPython.display

    class Shell:
        kernel = object()

    def display(first: Any, **_: Any) -> Handle:
        shown.append(first)
        return Handle()

    monkeypatch.setattr(IPython, "get_ipython", Shell)
    monkeypatch.setattr(IPython.display, "display", display)
    with followed(None) as show:
        show("predicted", 1, 2)
    assert not shown
    monkeypatch.setattr(progress, "QUICK_S", 0.0)
    with followed(None) as show:
        show("predicted <b>", 1, 2)
        show("predicted <b>", 2, 2)
    assert 'value="1" max="2"' in shown[0].data
    assert "predicted &lt;b&gt;: 2 of 2" in shown[1].data
    assert shown[2] == {"text/plain": ""}


def test_every_colour_of_a_chart_is_known() -> None:
    style = (ROOT / "orchestrator/reporting/templates/report.css").read_text()
    light = dict(re.findall(r"--([\w-]+): light-dark\((#\w{6}),", style))
    assert {name: light[name] for name in xy_plots.COLOURS} == xy_plots.COLOURS
