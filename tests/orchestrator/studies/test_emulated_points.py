# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Points on the kernel: side by side in virtual time, one after the other on the real clock."""

import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from packet_cases import small
from synthetic_run import make_run

from orchestrator.records.reader import read_run
from orchestrator.scenario.schema import Scenario
from orchestrator.studies.validation import emulated_points

POINTS = [{"seed": seed} for seed in (5, 6, 7, 8)]


def played(
    monkeypatch: pytest.MonkeyPatch, folder: Path, virtual: bool, emulated: Any
) -> tuple[list[dict[str, Any]], list[tuple[str, float, float]]]:
    """What comes of the points, and what progress was told."""
    told: list[tuple[str, float, float]] = []
    monkeypatch.setattr(emulated_points.guest_kernel, "find", lambda: object() if virtual else None)
    monkeypatch.setattr(emulated_points.os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(emulated_points, "_emulated", emulated)
    runs = emulated_points.play(
        small(), POINTS, "latency_s", folder, lambda *words: told.append(words)
    )
    return runs, told


def test_in_virtual_time_two_cores_play_two_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2, timeout=60)

    def emulated(scenario: Scenario, metric: str, place: Path, _: Any) -> dict[str, Any]:
        both.wait()  # breaks unless another one is there
        return {"clock": scenario.emulation.clock, "seed": scenario.seed, "place": place.name}

    runs, told = played(monkeypatch, tmp_path, True, emulated)
    assert [run["seed"] for run in runs] == [5, 6, 7, 8]
    assert [run["place"] for run in runs] == ["0", "1", "2", "3"]
    assert {run["clock"] for run in runs} == {"virtual"}
    assert [done for _, done, _ in told] == [0, 1, 2, 3, 4]


def test_on_the_real_clock_nobody_else_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = threading.Lock()

    def emulated(scenario: Scenario, metric: str, place: Path, _: Any) -> dict[str, Any]:
        assert alone.acquire(blocking=False)
        threading.Event().wait(0.02)  # time for another one to come
        alone.release()
        return {"clock": scenario.emulation.clock}

    runs, _ = played(monkeypatch, tmp_path, False, emulated)
    assert [run["clock"] for run in runs] == ["real"] * 4


def test_what_fails_there_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def emulated(scenario: Scenario, metric: str, place: Path, _: Any) -> dict[str, Any]:
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        played(monkeypatch, tmp_path, True, emulated)


def test_what_was_played_is_kept_until_the_program_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[str] = []

    def run(_: Any, words: list[str]) -> tuple[int, str]:
        out = Path(words[words.index("--out") + 1])
        played.append(out.name)
        if out.name == "1":
            return 2, "one\nuavs.count: too many\n"
        make_run(out, rounds=1)
        manifest = json.loads((out / "manifest.json").read_text())
        late = {"check": "rest_share", "limit": 0.01, "value": 0.02, "ok": False, "detail": ""}
        manifest |= {"valid": False, "validity": [late | {"check": "late", "ok": True}, late]}
        (out / "manifest.json").write_text(json.dumps(manifest))
        return 0, ""

    def points() -> list[dict[str, Any]]:
        return emulated_points.play(small(), POINTS[:2], "latency_s", tmp_path, lambda *_: None)

    monkeypatch.setattr(emulated_points.guest_kernel, "find", lambda: None)
    monkeypatch.setattr(emulated_points._Commands, "run", run)
    good, failed = points()
    seen = read_run(tmp_path / "kernel" / "0")
    assert good["value"] == seen.measured.rounds[0].latency_s
    assert (good["valid"], good["missed"]) == (seen.valid, ["rest_share"])
    assert sum(good["budget"].values()) != 0
    assert (failed["value"], failed["valid"]) == (None, False)
    assert failed["failure"] == "uavs.count: too many"
    assert played == ["0", "1"]
    assert points() == [good, failed]
    assert played == ["0", "1", "1"]  # what failed is tried again, what was played is not
    monkeypatch.setattr(emulated_points, "source_sha256", lambda: "another")
    points()
    assert played == ["0", "1", "1", "0", "1"]


def test_an_interrupt_ends_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first command fails at once; the others would end after 30 s."""
    testbed, over = tmp_path / "testbed", tmp_path / "over"
    wait = f"sleep 30 >/dev/null 2>&1; touch {over}"
    testbed.write_text(f'#!/bin/sh\ncase "$*" in */0.yaml*) exit 3;; esac\n{wait}\n')
    testbed.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(testbed))
    monkeypatch.setattr(emulated_points.guest_kernel, "find", lambda: None)

    def interrupt(_: str, done: float, __: float) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        emulated_points.play(small(), POINTS, "latency_s", tmp_path, interrupt)
    assert not over.exists()
