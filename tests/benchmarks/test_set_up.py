# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The benchmark of setting up: what it runs, in which order, with which caches."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

FAKE = """#!/bin/sh
echo "$(basename "$0") $*" >> {log}
echo "cache $UV_CACHE_DIR $PIP_CACHE_DIR"
case "$(basename "$0") $2" in
    "testbed scenarios/quickstart.yaml") mkdir -p runs/demo && touch runs/demo/report.html ;;
    *" setup-light" | *" venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python
        cp "$0" .venv/bin/testbed ;;
esac
"""


@pytest.fixture(scope="module")
def benchmark(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("set_up")


def test_each_program_sets_up_a_clone_without_and_with_a_cache(
    benchmark: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    for name in ("make", "python"):
        (tmp_path / name).write_text(FAKE.format(log=log))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(benchmark.sys, "executable", str(tmp_path / "python"))
    (base := tmp_path / "base").mkdir()
    # A clone takes what git has; the programs are ours.
    rows = benchmark.measure("light", ["uv", "pip"], base)
    assert [(row["by"], row["caches"]) for row in rows] == [
        (by, cache) for by in ("uv", "pip") for cache in ("empty", "filled")
    ]
    assert all(0 < row["first_line_s"] <= row["set_up_s"] < row["report_s"] for row in rows)
    said = log.read_text().splitlines()
    run = "testbed run scenarios/quickstart.yaml --out runs/demo --set workload.compute=none"
    by_uv, by_pip = ["make", "testbed"] * 2, [*["python"] * 4, "testbed"] * 2
    assert [line.split()[0] for line in said] == by_uv + by_pip
    assert {line for line in said if line.startswith("testbed")} == {run}
    assert said[0].startswith("make -s setup-light ")
    by_pip = [line.partition(" ")[2] for line in said[4:8]]
    assert by_pip[0] == "-m venv .venv"
    assert by_pip[2].endswith("--no-build-isolation -r constraints/light.txt")
    assert all("--require-hashes" in line for line in by_pip[1:3])
    assert by_pip[3].endswith("-e .")
    assert not (base / "clone").exists()


def test_the_first_line_comes_before_the_end_and_a_failure_is_told(
    benchmark: ModuleType, tmp_path: Path
) -> None:
    words = ["sh", "-c", "echo one; while [ ! -e go ]; do echo >> go; done; echo two"]
    first_s, end_s = benchmark.timed(words, tmp_path, {"PATH": "/usr/bin:/bin"})
    assert 0 < first_s <= end_s
    with pytest.raises(SystemExit, match="failed:\nwhy"):
        benchmark.timed(["sh", "-c", "echo why; exit 3"], tmp_path, {"PATH": "/usr/bin:/bin"})
    assert sys.executable != str(tmp_path / "python")
