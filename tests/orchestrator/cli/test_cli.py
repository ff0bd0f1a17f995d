# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The console script: what it prints where, what it writes, and how it refuses."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import warm
from console import run_testbed
from small_scenario import TEXT

from orchestrator.scenario.loading import load
from orchestrator.scenario.schema import Scenario
from testbed.system.leftovers import announced

ROOT = Path(__file__).resolve().parents[3]
PAPER = ROOT / "scenarios" / "paper.yaml"
CAMPAIGN = ROOT / "campaigns" / "paper.yaml"


call = partial(run_testbed, check=False, timeout=120)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["predict", PAPER, "--set", "workload.split=9"], "workload.split"),
        (
            ["predict", PAPER, "--set", "radio.channel=fitted", "--set", "radio.fitted=no.json"],
            "radio.fitted: no.json: no such file",
        ),
        (["predict", "none.yaml"], "none.yaml: no such scenario file"),
        (["predict", PAPER, "--rounds", "0"], "--rounds"),
        (["predict", PAPER, "--what"], "--what"),
        (["predict"], "SCENARIO"),
        (["prophesy"], "prophesy"),
        (["predict", PAPER, "--trace", "none.npz"], "--trace: none.npz: no such file"),
        (["predict", PAPER, "--set", "workload.model=swin_giant"], "swin_giant"),
        (["trace", PAPER, "--slots", "0", "--out", "t.npz"], "--slots"),
        (["trace", PAPER, "--slots", "9", "--out", "no/t.npz"], "--out"),
        (["predict", PAPER, "--json", "no/p.json"], "--json"),
        (["run", PAPER, "--json", "."], "--json: . is a directory"),
        (["run", PAPER, "--set", "emulation.congestion_control=warp"], "congestion_control"),
        (["reproduce", "fig9"], "FIGURE: 'fig9' is not one of table2, fig3, fig4, fig5, fig6,"),
        (["reproduce", "fig9"], "fig7, fig8, all"),
        (["import", "foo", "--out", "t.npz"], "testbed: FORMAT: 'foo' is not one of mahimahi,"),
        (["campaign", "run", PAPER], "paper.yaml: this is a scenario, not a campaign: see"),
        (["campaign", "status", PAPER], "paper.yaml: this is a scenario, not a campaign: see"),
        (["predict", CAMPAIGN], "paper.yaml: this is a campaign, not a scenario: see"),
        (["predict", PAPER, "--set", "studies=3"], "studies"),
        (["reproduce", "fig4", "--radio", "lora"], "--radio"),
        (["reproduce", "fig8", "--radio", "lte"], "--radio: must be absent for fig8"),
        (["reproduce", "fig4", "--radio", "fitted"], "--fit: is missing; --radio fitted needs"),
        (["reproduce", "fig4", "--fit", "F.json"], "--fit: must be absent without --radio fitted"),
        (
            ["reproduce", "fig4", "--radio", "lte", "--fit", "F.json"],
            "--fit: must be absent without --radio fitted",
        ),
        (
            ["reproduce", "fig4", "--radio", "fitted", "--fit", "F.json"],
            "--fit: F.json: no such file",
        ),
        (["reproduce", "fig99", "--radio", "lte"], "'fig99' is not one of fig3"),
        (["report", "."], "manifest.json"),
        (["predict", PAPER, "--set", "x"], "--set x: must be"),
        (["run", PAPER, "--resume"], "--resume: needs --out"),
        (["runn"], "runn: no such command; did you mean 'run'?"),
        (["predict"], "SCENARIO: is missing"),
        (["predict", PAPER, "--rounds"], "--rounds: needs a value"),
        (["predict", PAPER, "--rounds", "-1"], "--rounds: must be at least 1, not -1"),
        (["predict", PAPER, "--rounds", "1.5"], "--rounds: must be a whole number, not 1.5"),
        (["predict", PAPER, "--round", "1"], "--round: no such option; did you mean '--rounds'?"),
        (["predict", PAPER, "more"], "more: unexpected argument"),
        (["export", "x", "--out", "y", "--to", "onnx"], "--to: 'onnx' is not one of 'peft', "),
        (["predict", "."], ".: is a folder, not a scenario file"),
        (["predict", PAPER, "--steps", "s.csv"], "--steps: must be a file *.parquet, or none"),
        (["predict", PAPER, "--json", "p.CSV"], "--json: must be a file *.json, not p.CSV"),
        (["trace", PAPER, "--slots", "9", "--out", "t.csv"], "--out: must be a file *.npz, not t."),
        (["import", "csv", "a.csv", "--out", "t.zip"], "--out: must be a file *.npz, not t.zip"),
        (["bundle", "r", "--out", "b.tar.gz"], "--out: must be a file *.zip, not b.tar.gz"),
        (["perfetto", "r", "--out", "p.html"], "--out: must be a file *.json, not p.html"),
        (["radio", "build", "lte", "--source", "x"], "radio build: 'lte' is not one of nr"),
        (["kernel", "build", "--source", "no.xz"], "--source: there is no file no.xz"),
        (
            ["campaign", "worker", "tls://h:1", "--key", "k"],
            "--key: k cannot be read (No such file or directory)",
        ),
        (
            ["campaign", "run", "quickstart", "--scheduler", "tls://h:1", "--key", "k"],
            "--key: there is no file k",
        ),
    ],
    ids=lambda value: "-".join(map(str, value))[-40:] if isinstance(value, list) else None,
)
def test_wrong_input_exits_2_with_one_line_and_writes_nothing(
    tmp_path: Path, words: list[object], says: str
) -> None:
    with announced():  # another emulation: no reason for a second line
        done = call(*words, cwd=tmp_path, learns="swin_giant" in says)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_predict_writes_the_documented_json(tmp_path: Path) -> None:
    result = tmp_path / "p.json"
    done = call("predict", PAPER, "--rounds", 2, "--json", result)
    assert done.returncode == 0, done.stderr
    assert "latency" in done.stdout
    predicted = json.loads(result.read_text())
    assert predicted["scenario"]["name"] == "paper"
    first, second = predicted["rounds"]
    assert first.keys() == {
        "round", "paradigm", "split", "start_s", "latency_s", "energy_j", "objective", "steps"
    }  # fmt: skip
    assert (first["round"], first["start_s"], first["split"]) == (0, 0.0, 2)
    assert second["start_s"] == pytest.approx(first["latency_s"], abs=1e-12)
    assert len(first["energy_j"]) == 10
    assert len(first["steps"]) == 10 * (2 + 5 * 3)
    assert first["steps"][0].keys() == {
        "client", "iteration", "step", "start_s", "end_s", "bytes"
    }  # fmt: skip
    assert {s["bytes"] for s in first["steps"] if s["step"] == "CA"} == {9_633_792}


def test_a_trace_replayed_predicts_the_same(tmp_path: Path) -> None:
    trace = tmp_path / "t.npz"
    assert call("trace", PAPER, "--slots", 400, "--out", trace).returncode == 0
    with np.load(trace) as file:
        assert file["gain"].shape == (10, 400)
        assert file["gain"].dtype == np.float64
        assert file["position"].shape == (10, 400, 3)
        assert float(file["slot_s"]) == 0.1
        assert int(file["seed"]) == 1
        assert json.loads(str(file["scenario"]))["name"] == "paper"
        np.savez(tmp_path / "bare.npz", gain=file["gain"], slot_s=0.1)
    results = []
    for words in ([], ["--trace", trace], ["--trace", tmp_path / "bare.npz"]):
        path = tmp_path / "p.json"
        assert call("predict", PAPER, "--rounds", 2, "--json", path, *words).returncode == 0
        results.append(json.loads(path.read_text()))
    assert results[0] == results[1] == results[2]


def test_an_outside_trace_of_two_uavs_needs_only_their_powers(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", gain=np.full((2, 300), 1e-9), slot_s=0.1)
    words = ["predict", PAPER, "--trace", tmp_path / "t.npz"]
    refused = call(*words)
    assert refused.returncode == 2
    assert "gain has 2 rows" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    done = call(*words, "--set", "uavs.tx_power_w=[1, 1]")
    assert done.returncode == 0, done.stderr
    line = f"testbed: trace {words[-1]}: 2 UAVs, 300 slots of 0.1 s (30 s), gains -90 dB"
    assert done.stderr.splitlines().count(line) == 1
    short = call(*words, "--set", "uavs.tx_power_w=[1, 1]", "--rounds", 50)
    assert short.returncode == 2
    assert "300 slots" in short.stderr


def test_hostile_names_do_not_reach_the_terminal_as_markup(tmp_path: Path) -> None:
    done = call("predict", PAPER, "--set", "name=[red]x[/red]")
    assert done.returncode == 2
    assert "name" in done.stderr


def test_doctor_finds_what_this_machine_has(tmp_path: Path) -> None:
    result = tmp_path / "d.json"
    done = call("doctor", "--json", result)
    assert done.returncode == 0, done.stderr
    found = {finding["name"]: finding for finding in json.loads(result.read_text())}
    assert found["g++"]["ok"]
    assert f"{len(os.sched_getaffinity(0))} cores" in found["machine"]["detail"]
    for finding in found.values():
        assert finding["ok"] or finding["needed_for"]


def test_commands_stand_under_headings_with_whole_descriptions() -> None:
    said = " ".join(call("--help", env=os.environ | {"COLUMNS": "80"}).stdout.split())
    for heading, first in {
        "Predict:": "init",
        "Emulate:": "run",
        "Study:": "theory",
        "Learn:": "learn",
        "Machine:": "doctor",
    }.items():
        assert f"{heading} {first} " in said
    assert "compare them with the prediction." in said
    assert "..." not in said.replace("[ARGS]...", "")


def test_the_version_is_told_and_completion_offered() -> None:
    assert call("--version").stdout.startswith(f"testbed {version('uav-sfl-testbed')}")
    shell = os.environ | {"_TESTBED_COMPLETE": "complete_bash", "COMP_WORDS": "testbed pred"}
    assert call(env=shell | {"COMP_CWORD": "1"}).stdout.split() == ["predict"]


def test_a_user_without_an_entry_has_a_name() -> None:
    """As the number that a container or a batch system gives: torch asks for the name."""
    program = """
import getpass, os, pwd, sys
for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
    os.environ.pop(name, None)
def missing(number):
    raise KeyError(number)
pwd.getpwuid = missing
from orchestrator.cli import main
sys.argv[1:] = ["--version"]
try:
    main.main()
finally:
    print(getpass.getuser())
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert said.stdout.splitlines()[1:] == [f"user{os.getuid()}"], said.stderr


def test_help_imports_neither_numpy_nor_rich() -> None:
    program = (
        "import sys; sys.argv = ['testbed', '--help']; from orchestrator.cli.main import main\n"
        "try: main()\n"
        "finally: assert not {'numpy', 'rich.console', 'pydantic'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["predict", "trace"])
def test_predictions_and_traces_import_no_pandas_and_nothing_of_runs(
    command: str, tmp_path: Path
) -> None:
    """Their imports would take longer than 100 predicted rounds."""
    np.savez(tmp_path / "t.npz", gain=np.full((10, 600), 1e-9), slot_s=0.1)
    words = {
        "predict": ["predict", PAPER, "--trace", str(tmp_path / "t.npz")],
        "trace": ["trace", PAPER, "--slots", "3", "--out", str(tmp_path / "out.npz")],
    }[command]
    program = (
        f"import sys; sys.argv[1:] = {[str(word) for word in words]!r}\n"
        "from orchestrator.cli.main import main\n"
        "try: main()\n"
        "finally:\n"
        "    parts = {name.partition('.')[0] for name in sys.modules}\n"
        "    parts |= {'.'.join(name.split('.')[:2]) for name in sys.modules}\n"
        "    wrong = parts & {'pandas', 'pyarrow', 'torch', 'orchestrator.emulated'}\n"
        "    assert not wrong, wrong"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_log_says_more_when_asked(tmp_path: Path) -> None:
    """Counting a model's splits is diagnosis: told with -v or TESTBED_LOG, one line each."""
    # With a channel of its own: an empty cache has no models of ns-3 either.
    np.savez(tmp_path / "t.npz", gain=np.full((10, 2000), 1e-9), slot_s=0.1)
    words = ["predict", PAPER, "--set", "workload.model=swin_nano_patch4_window4_64"]
    words += ["--trace", str(tmp_path / "t.npz")]
    said = []
    for number, (flags, level) in enumerate([([], ""), (["-v"], ""), ([], "debug")]):
        own = os.environ | {"XDG_CACHE_HOME": str(tmp_path / str(number))}
        own |= {"TESTBED_LOG": level} if level else {}
        done = call(*flags, *words, env=own, learns=True)
        assert done.returncode == 0, done.stderr
        said.append([line for line in done.stderr.splitlines() if "counting" in line])
    assert [len(lines) for lines in said] == [0, 1, 1]
    assert said[1][0].startswith("testbed: workloads.costs.lookup: counting")
    wrong = call("doctor", env=os.environ | {"TESTBED_LOG": "loud"})
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)


def test_init_writes_a_scenario_of_defaults_that_predict_takes(tmp_path: Path) -> None:
    assert call("init", "mine.yaml", cwd=tmp_path).returncode == 0
    text = (tmp_path / "mine.yaml").read_text()
    scenario = load(tmp_path / "mine.yaml")
    own = {"name": "mine", "uavs": {"tx_power_w": [1, 0.4, 0.1]}}
    assert scenario == Scenario.model_validate(own)
    assert "# Length of a slot, τ0; the channel is constant within a slot. From 0.001" in text
    assert max(map(len, text.splitlines())) <= 110
    again = call("init", "mine.yaml", cwd=tmp_path)
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)
    assert (tmp_path / "mine.yaml").read_text() == text
    assert call("predict", "mine.yaml", cwd=tmp_path).returncode == 0


def test_show_says_what_a_scenario_comes_to(tmp_path: Path) -> None:
    result, predicted = tmp_path / "s.json", tmp_path / "p.json"
    done = call("show", PAPER, "--json", result)
    assert done.returncode == 0, done.stderr
    assert call("predict", PAPER, "--rounds", 1, "--json", predicted).returncode == 0
    shown, [first] = json.loads(result.read_text()), json.loads(predicted.read_text())["rounds"]
    assert (shown["latency_s"], shown["split"]) == (first["latency_s"], first["split"])
    assert [row["smashed_bytes"] // 1024 for row in shown["splits"]] == [2352, 1176, 588, 294]
    assert len(shown["links"]) == 10
    assert shown["links"][0]["broadcast_mbps"] == shown["links"][0]["gradient_mbps"]  # cpsfl
    steps = {row["step"]: row for row in shown["steps"]}
    cf = [s["end_s"] - s["start_s"] for s in first["steps"] if s["step"] == "CF"]
    assert steps["CF"]["times"] == 30
    assert steps["CF"]["mean_s"] == pytest.approx(np.mean(cf))
    assert max(row["ends_s"] for row in shown["steps"]) == pytest.approx(first["latency_s"])
    radio = "\nradio: Shannon's rates, FDMA\n"
    for word in (radio, "u  adapter_bytes", "gradient_mbps", "13.719 s predicted"):
        assert word in done.stdout
    assert "Rates hold while" not in done.stdout
    done = call("show", PAPER, "--set", "radio.access=lte")
    assert "\nradio: LTE, 100 resource blocks, shared equally, 64QAM, 1 layer\n" in done.stdout
    assert "\nRates hold while all UAVs send; where fewer send, each has more.\n" in done.stdout


def test_what_a_prediction_leaves_out_is_said() -> None:
    done = call("predict", PAPER, "--set", "links.one_way_delay_s=0.1")
    assert done.returncode == 0, done.stderr
    assert "links.one_way_delay_s and links.loss are ignored" in done.stderr
    # A busy machine may show progress meanwhile.
    wire = call("predict", PAPER, "--set", "links.loss=0.1", "--wire")
    assert "ignored" not in wire.stderr
    assert "one_way_delay_s" not in call("predict", PAPER).stderr


def test_evaluate_says_what_a_split_point_for_each_client_gains(tmp_path: Path) -> None:
    """The slow UAV keeps less of the model than the fast ones."""
    gain = np.random.default_rng(1).uniform(1e-10, 4e-10, (3, 4000))
    np.savez(tmp_path / "t.npz", gain=gain, slot_s=0.1)
    (tmp_path / "small.yaml").write_text(TEXT)
    words = ["evaluate", "small.yaml", "--trace", "t.npz", "--rounds", 2, "--json", "e.json"]
    slow_and_fast = "uavs.compute_flops=[0.1e12,20e12,20e12]"
    means, said = {}, {}
    for policy in ("planner", "per-client-planner"):
        keys = ["--set", f"allocation.policy={policy}", "--set", slow_and_fast]
        done = call(*words, *keys, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        rows = json.loads((tmp_path / "e.json").read_text())
        assert len(rows) == 2
        means[policy] = sum(row["objective"] for row in rows) / 2
        said[policy] = done.stdout.splitlines()
    common, each = means["planner"], means["per-client-planner"]
    assert each < common
    assert len(said["planner"]) == 5
    assert (
        said["per-client-planner"][5].split()
        == (
            f"objective of the best common split point {common:.4f}: gain {1 - each / common:.1%}"
        ).split()
    )


# --- a console script that need not import first, as the documentation's tests use it ------------


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    warm.program(path := tmp_path / "bin" / "testbed")
    return path


def test_a_warm_program_has_its_callers_words_files_and_status(
    program: Path, tmp_path: Path
) -> None:
    words = [program, "predict", PAPER, "--set", "rounds=x"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "rounds" in done.stderr
    trace = [program, "trace", PAPER, "--slots", "3", "--out", "t.npz"]
    assert subprocess.run(trace, cwd=tmp_path, check=True, capture_output=True).stdout
    assert (tmp_path / "t.npz").is_file()


def test_a_warm_program_ends_by_its_callers_signal(program: Path, tmp_path: Path) -> None:
    words = [program, "predict", PAPER, "--rounds", "1000000"]  # They take minutes.
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        # It passes signals on from when it has handlers for them.
        status = Path(f"/proc/{process.pid}/status")
        while int(re.findall(r"SigCgt:\s*(\w+)", status.read_text())[0], 16) >> 14 & 1 == 0:
            time.sleep(0.01)
        process.terminate()
    assert process.returncode in (128 + signal.SIGTERM, -signal.SIGTERM)
