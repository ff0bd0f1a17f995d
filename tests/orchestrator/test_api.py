# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The front door: what `import orchestrator as tb` offers, from wherever it is called."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import warm

import orchestrator as tb
from ns3_scenarios.trace import ChannelTrace
from testbed.core.timeline import Loss, RunEnds, Timeline

ROOT = Path(__file__).resolve().parents[2]
QUICK = ROOT / "scenarios" / "quickstart.yaml"
FAST = {"workload.compute": "none", "emulation.dilation": 1, "rounds": 1}
FLAT = {"gain": np.full((3, 4000), 1e-9), "slot_s": 0.1}


def python(program: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], cwd=cwd, capture_output=True, text=True, timeout=120
    )


# --- names ---------------------------------------------------------------------------------------


def test_every_name_is_there_and_listed() -> None:
    assert sorted(tb.__all__) == list(tb.__all__)
    assert set(tb.__all__) <= set(dir(tb))
    for name in tb.__all__:
        assert getattr(tb, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'foresee'"):
        tb.foresee  # noqa: B018


def test_importing_imports_nothing_else(tmp_path: Path) -> None:
    done = python("import sys, orchestrator; print(*sys.modules)", tmp_path)
    assert done.returncode == 0, done.stderr
    heavy = {"numpy", "numba", "pandas", "pydantic", "typer", "rich", "yaml", "orchestrator.api"}
    assert not heavy & set(done.stdout.split())


# --- scenarios -----------------------------------------------------------------------------------


def test_a_scenario_is_a_file_or_the_name_of_one_that_comes_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert tb.load("quickstart") == tb.load(QUICK)
    assert tb.load("paper").uavs.count == 10
    with pytest.raises(tb.InputError, match=r"^somewhere/quickstart: no such scenario file$"):
        tb.load("somewhere/quickstart")
    with pytest.raises(tb.InputError, match=r"^mine: no such scenario file$"):
        tb.load("mine")
    (tmp_path / "quickstart").write_text(QUICK.read_text().replace("seed: 1\n", "seed: 7\n"))
    assert tb.load("quickstart").seed == 7


def test_overrides_are_lines_or_a_mapping() -> None:
    by_lines = tb.load(QUICK, ["workload.split=3", "uavs.tx_power_w=[1, 2, 3]"])
    by_mapping = tb.load(QUICK, {"workload.split": 3, "uavs.tx_power_w": [1, 2, 3]})
    assert by_lines == by_mapping
    assert by_lines.workload.split == 3
    with pytest.raises(tb.InputError, match=r"`overrides`: workload\.split: .*not 9"):
        tb.load(QUICK, {"workload.split": 9})


# --- predict -------------------------------------------------------------------------------------


def test_a_prediction_is_what_the_command_writes(tmp_path: Path) -> None:
    warm.run("predict", QUICK, "--rounds", 2, "--json", "p.json", cwd=tmp_path)
    written = json.loads((tmp_path / "p.json").read_text())["rounds"]
    timeline = tb.predict(QUICK, rounds=2)
    assert timeline.to_json() == written
    assert len(timeline.frame()) == len(written[0]["steps"]) * 2
    assert timeline.summary()["latency_s"].tolist() == [r["latency_s"] for r in written]


def test_a_trace_is_a_file_or_what_one_holds(tmp_path: Path) -> None:
    trace = ChannelTrace(FLAT["gain"], 0.1)
    trace.save(tmp_path / "t.npz")
    with np.load(tmp_path / "t.npz") as opened:
        given = [FLAT, trace, tmp_path / "t.npz", str(tmp_path / "t.npz"), opened]
        told = [tb.predict(QUICK, each, rounds=1).to_json() for each in given]
    assert all(each == told[0] for each in told)
    assert told[0] != tb.predict(QUICK, rounds=1).to_json()


@pytest.mark.parametrize(
    ("trace", "says"),
    [
        ({"gain": np.ones((3, 9))}, "`trace`: slot_s is missing"),
        (
            {"gain": -np.ones((3, 9)), "slot_s": 0.1},
            r"`trace`: gain\[0, 0\] is -1: a linear power gain is at most 1",
        ),
        ({"gain": np.ones((2, 9)), "slot_s": 0.1}, "trace: gain has 2 "),
        ({"gain": np.full((3, 9), 1e-9), "slot_s": 0.1}, "trace: its 9 slots of 0.1 s end in"),
    ],
)
def test_a_trace_that_does_not_fit_is_refused(trace: dict[str, object], says: str) -> None:
    with pytest.raises(tb.InputError, match=f"^{says}"):
        tb.predict(QUICK, trace)


def test_a_policy_is_a_name_or_a_function() -> None:
    seen = []

    def thrice(now: tb.Situation) -> tb.Allocation:
        seen.append((now.index, now.channel.slots))
        equal = np.full(3, 1 / 3)
        return tb.Allocation(3, equal, equal, equal)

    timeline = tb.predict(QUICK, FLAT, thrice, rounds=2)
    assert [round_.split for round_ in timeline] == [3, 3]
    assert [index for index, _ in seen] == [0, 1]
    assert seen[1][1] == int(timeline[0].latency_s / 0.1) + 1
    named = tb.predict(QUICK, FLAT, "planner", rounds=1)
    assert named[0].objective < timeline[0].objective
    with pytest.raises(tb.InputError, match=r"`policy`: 'best' is not one of"):
        tb.predict(QUICK, FLAT, "best")
    with pytest.raises(tb.RunError, match=r"'<lambda>', round 0: must return an Allocation"):
        tb.predict(QUICK, FLAT, lambda now: None)


def test_progress_is_told() -> None:
    told: list[tuple[str, float, float]] = []
    tb.predict(QUICK, FLAT, rounds=3, progress=lambda *done: told.append(done))
    assert told == [("predicted", done, 3) for done in (1, 2, 3)]


# --- compare -------------------------------------------------------------------------------------


def test_timelines_are_joined_step_by_step() -> None:
    left = tb.predict(tb.load(QUICK, {"paradigm": "sfl-ps"}), FLAT, rounds=2)
    right = tb.predict(tb.load(QUICK, {"paradigm": "cpsfl"}), FLAT, rounds=2)
    both = tb.compare(left, right)
    assert len(both) == len(left.frame())
    assert both["step"].head(7).tolist() == ["SM", "CF", "CA", "S", "SG", "CB", "CF"]
    one = both.query("round == 1 and client == 2 and iteration == 3 and step == 'SG'").iloc[0]
    span = right[1].spans
    (at,) = np.flatnonzero((span["client"] == 2) & (span["iteration"] == 3) & (span["step"] == 4))
    assert one["right_start_s"] == span["start_s"][at]
    assert one["right_s"] == span["end_s"][at] - span["start_s"][at]
    assert one["difference_s"] == one["right_s"] - one["left_s"]


def test_a_step_that_only_one_has_stands_alone() -> None:
    left = tb.predict(QUICK, FLAT, rounds=1)
    less = replace(left[0], spans=left[0].spans[left[0].spans["client"] != 3])
    both = tb.compare(left, Timeline([less]))
    assert len(both) == len(left.frame())
    assert both["right_s"].isna().sum() == (both["client"] == 3).sum() > 0


def test_a_timeline_shows_itself_briefly() -> None:
    timeline = tb.predict(QUICK, FLAT, rounds=2)
    assert repr(timeline) == f"<Timeline of 2 rounds of cpsfl, {timeline.end_s:.3f} s>"
    assert "latency_s" in timeline._repr_html_()
    ended = Timeline([], RunEnds("the base station is lost", 1.0))
    assert repr(ended) == "<Timeline of no round, ended early: the base station is lost>"
    assert ended.frame().empty
    assert ended.summary().empty


# --- run -----------------------------------------------------------------------------------------


def test_a_run_and_its_directory_are_the_same(tmp_path: Path) -> None:
    scenario = tb.load(QUICK, FAST)
    run = tb.run(scenario, out=tmp_path / "first", rounds=2)
    again = tb.read_run(tmp_path / "first")
    for kind in ("predicted", "predicted_wire", "measured"):
        timeline: Timeline = getattr(run, kind)
        assert len(timeline) == 2
        assert timeline.to_json() == getattr(again, kind).to_json()
    assert run.predicted.to_json() == tb.predict(scenario, rounds=2).to_json()
    assert (tmp_path / "first" / "report.html").is_file()
    joined = tb.compare(run.predicted_wire, run)
    assert joined["right_s"].tolist() == tb.compare(again, again)["left_s"].tolist()
    with pytest.raises(tb.InputError, match="first exists already"):
        tb.run(scenario, out=tmp_path / "first")


def test_a_run_may_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert len(tb.run(tb.load(QUICK, FAST), FLAT).measured) == 1
    assert list(tmp_path.glob("testbed*")) == []


def test_a_coroutine_may_call_it() -> None:
    async def here() -> tuple[Timeline, Timeline]:
        return tb.predict(QUICK, rounds=1), tb.run(tb.load(QUICK, FAST)).measured

    predicted, measured = asyncio.run(here())
    assert len(predicted) == len(measured) == 1


def test_another_thread_may_call_it() -> None:
    found: list[Timeline] = []

    def work() -> None:
        found.append(tb.predict(QUICK, rounds=1))
        found.append(tb.run(tb.load(QUICK, FAST)).measured)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(120)
    assert [len(timeline) for timeline in found] == [1, 1]


def test_losses_come_back_from_the_tables() -> None:
    from orchestrator.records.timelines import energy_table, timeline_of

    timeline = tb.predict(QUICK, FLAT, rounds=2)
    loss = Loss(2, 5.5, 5.25, "crash")
    timeline = Timeline([timeline[0], replace(timeline[1], lost=[loss])])
    import pandas as pd

    tables = {
        "measured": timeline.frame(),
        "rounds": timeline.summary().assign(kind="measured"),
        "energy": energy_table({"measured": timeline}),
        "lost": pd.DataFrame([{"kind": "measured", "round": 1, **vars(loss)}]),
    }
    assert timeline_of(tables, "measured", 3).to_json() == timeline.to_json()
    assert len(timeline_of(tables, "predicted", 3)) == 0
    without = timeline_of({k: v for k, v in tables.items() if k != "energy"}, "measured", 3)
    assert np.isnan(without[0].energy_j).all()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: tb.predict("quickstart", policy="equl"), "`policy`: 'equl' is not one of fixed"),
        (lambda: tb.predict("quickstart", policy=3), "`policy`: must be a name or a function"),
        (lambda: tb.predict("quickstart", rounds=0), "`rounds`: must be a"),
        (lambda: tb.predict("quickstart", rounds="x"), "`rounds`: must be a"),
        (lambda: tb.run("quickstart", rounds=-1), "`rounds`: must be a"),
        (lambda: tb.predict("quickstart", trace=3), "`trace`: must be a path, a trace or a map"),
        (lambda: tb.predict(3), "`scenario`: must be a scenario, or the path or the name of one"),
        (lambda: tb.predict(None), "`scenario`: must be a scenario, or"),
        (lambda: tb.Network({}), "`scenario`: must be a scenario, or"),
        (lambda: tb.load([1]), "`path`: must be the path or the name of a scenario, not [1]"),
        (lambda: tb.load(b"quickstart"), "`path`: must be the path"),
        (lambda: tb.load("quickstart", "rounds=3"), "`overrides`: must be a list of texts such"),
        (lambda: tb.load("quickstart", [("rounds", 3)]), "`overrides`: must be a list of texts"),
        (lambda: tb.load("quickstart", {"rounds": 0}), "`overrides`: rounds: must be"),
        (lambda: tb.load("quickstrat"), "quickstrat: no such scenario file; did you mean 'quick"),
        (lambda: tb.load("papr"), "papr: no such scenario file; did you mean 'paper'?"),
        (lambda: tb.load("./papr"), "papr: no such scenario file"),
        (lambda: tb.compare("a", "b"), "`left`: must be a timeline or a run, not 'a'"),
        (lambda: tb.read_run(None), "`path`: must be the path of a run directory, not None"),
        (lambda: tb.comparison([]), "`results`: nothing was given to compare"),
        (lambda: tb.trace("quickstart", 10.0), "`slots`: must be a whole number, not 10.0"),
        (lambda: tb.trace("quickstart", True), "`slots`: must be a whole number, not True"),
        (lambda: tb.trace("quickstart", 0), "`slots`: must be from 1 to 10000000, not 0"),
        (lambda: tb.predict("quickstart", wire="no"), "`wire`: must be True or False, not 'no'"),
        (lambda: tb.run("quickstart", capture="all"), "`capture`: 'all' is not one of frames"),
        (lambda: tb.export("x", "y", "onnx"), "`to`: 'onnx' is not one of peft, weights"),
        (
            lambda: tb.validate("paper", "tau3"),
            "`model`: 'tau3' does not apply to paradigm 'cpsfl', only to pipesfl",
        ),
        (
            lambda: tb.validate("paper", "tau2", key="no.key", scheduler="tls://h:1"),
            "`key`: there is no file no.key",
        ),
    ],
    ids=range(28),
)
def test_a_message_names_the_argument_of_the_function(
    call: Callable[[], object], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(tb.InputError) as error:
        call()
    assert str(error.value).startswith(says)
    assert "\n" not in str(error.value)
