# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Runs in virtual time: exact to a microsecond, and as the command line has them otherwise."""

import json
import signal
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from console import TESTBED
from small_scenario import TEXT

from orchestrator.scenario.loading import load
from testbed.core.errors import InputError
from testbed.virtual import kernel

VIRTUAL = ["--set", "emulation.clock=virtual"]
needs_kernel = pytest.mark.skipif(
    kernel.find() is None, reason="no kernel is built: `testbed kernel build` does it"
)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(TEXT)
    return path


def call(*words: object, timeout_s: float = 250) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*TESTBED, *map(str, words)], capture_output=True, text=True, timeout=timeout_s
    )


@needs_kernel
def test_two_runs_are_equal_to_a_microsecond_and_close_to_their_prediction(
    small: Path, tmp_path: Path
) -> None:
    measured = []
    for name in ("one", "two"):
        out, result = tmp_path / name, tmp_path / f"{name}.json"
        done = call("run", small, *VIRTUAL, "--rounds", 2, "--out", out, "--json", result)
        assert done.returncode == 0, done.stderr
        assert "valid: every check is within its limit" in done.stdout
        rounds = json.loads(result.read_text())
        measured.append([step for each in rounds["measured"] for step in each["steps"]])
        for predicted, seen in zip(rounds["predicted_wire"], rounds["measured"], strict=True):
            assert seen["latency_s"] == pytest.approx(predicted["latency_s"], rel=1e-3)
        manifest = json.loads((out / "manifest.json").read_text())
        assert manifest["clock"] == "virtual"
        assert manifest["dilation"] == 1
        found = kernel.find()
        assert found is not None
        assert manifest["virtual_kernel"] == found.to_json()
        assert "cpu_steal" not in {check["check"] for check in manifest["validity"]}
    for one, two in zip(*measured, strict=True):
        # Reads of the clock take 256 ns, and shift a step by one or a few.
        times = {"start_s": pytest.approx(two["start_s"], abs=3e-6)}
        times["end_s"] = pytest.approx(two["end_s"], abs=3e-6)
        assert one == two | times


@needs_kernel
def test_the_air_delays_and_loses_as_it_is_told(small: Path, tmp_path: Path) -> None:
    out, result = tmp_path / "out", tmp_path / "result.json"
    air = ["links.one_way_delay_s={up: 0.01, down: 0.02}", "links.loss={up: 0.02}"]
    words = [word for each in air for word in ("--set", each)]
    done = call("run", small, *VIRTUAL, *words, "--out", out, "--json", result)
    assert done.returncode == 0, done.stderr
    assert "valid: every check is within its limit" in done.stdout
    found = json.loads(result.read_text())
    (wire,), (measured,) = found["predicted_wire"], found["measured"]
    (predicted,) = found["predicted"]
    assert wire["latency_s"] > predicted["latency_s"] + 6 * 0.03
    # Each draws losses by itself; over 40 seeds, predictions deviate by 0.33 s from their mean.
    assert measured["latency_s"] == pytest.approx(wire["latency_s"], abs=1.4)
    (budget,) = found["error_budget"]
    assert budget["parts"]["delay"] > 6 * 0.03
    assert budget["parts"]["loss"] > 0
    air = pd.read_parquet(out / "air.parquet")
    lost = air.groupby("direction")["lost_frames"].sum()
    assert lost["up"] > 0 == lost["down"]
    assert (air["arrived_frames"] > 100).all()
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["air"] == {"delayed_and_lost_by": "netem", "repeatable": True}
    for step in measured["steps"]:
        if step["step"] in ("SM", "SG"):
            assert step["end_s"] - step["start_s"] > 0.02


@needs_kernel
@pytest.mark.parametrize(
    "queue",
    ["red", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("fq_codel", "pie"))],
)
def test_other_queues_carry_the_same(small: Path, tmp_path: Path, queue: str) -> None:
    result = tmp_path / "result.json"
    words = ["--set", f"links.queue={queue}", "--set", "links.ecn=true", "--json", result]
    done = call("run", small, *VIRTUAL, *words, "--set", "emulation.calibrate=false")
    assert done.returncode == 0, done.stderr
    found = json.loads(result.read_text())
    for predicted, seen in zip(found["predicted_wire"], found["measured"], strict=True):
        assert seen["latency_s"] == pytest.approx(predicted["latency_s"], rel=1e-2)


@needs_kernel
def test_ctrl_c_ends_a_run_in_order(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = subprocess.Popen(
        [*TESTBED, "run", str(small), *VIRTUAL, "--rounds", "500", "--out", str(out)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    # Some progress has been told: it runs.
    first = process.stderr.readline()
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait(100) == 130, first + rest
    assert (first + rest).splitlines()[-1] == "testbed: ended by SIGINT"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("emulation.runtime=docker", "emulation.runtime: must be 'namespace' where clock is"),
        ("workload.compute_time=measured", "workload.compute_time: must be 'modelled' where emu"),
        ("uavs.device=cuda", "uavs.device: must be 'cpu' where emulation.clock is 'virtual'"),
        ("base_station.device=cuda:1", "base_station.device: must be 'cpu' where emulation.clo"),
    ],
)
def test_what_has_no_meaning_in_virtual_time_is_refused(
    small: Path, override: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        load(small, ["emulation.clock=virtual", "workload.compute=real", override])


def test_without_a_kernel_one_line_says_how_to_get_one(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    done = call("run", small, *VIRTUAL)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("testbed: emulation.clock: 'virtual' needs a kernel")
    assert "`testbed kernel build`" in line


def test_what_cannot_work_there_is_refused(small: Path) -> None:
    done = call("run", small, *VIRTUAL, "--live")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "testbed: --live: is unavailable where emulation.clock is 'virtual'"
    ]


def test_a_real_scenario_is_written_as_before(small: Path) -> None:
    assert "clock" not in load(small).model_dump()["emulation"]
    virtual = load(small, ["emulation.clock=virtual"])
    assert virtual.model_dump()["emulation"]["clock"] == "virtual"
