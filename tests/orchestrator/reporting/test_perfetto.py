# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Traces are valid in the trace event format and say what the timelines say."""

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import synthetic_run

from orchestrator.cli.main import app
from orchestrator.records.reader import read_run
from orchestrator.reporting.perfetto import of_run, trace


def check(made: dict[str, Any]) -> None:
    """What the format asks of each event, and what viewers ask of slices."""
    made = json.loads(json.dumps(made, allow_nan=False))
    assert set(made) <= {"traceEvents", "displayTimeUnit", "otherData"}
    assert made["displayTimeUnit"] in {"ms", "ns"}
    slices: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    processes, threads = set(), set()
    for event in made["traceEvents"]:
        assert {"ph", "name", "pid", "tid", "ts", "args"} <= set(event)
        assert event["name"]
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event["ts"] >= 0
        match event["ph"]:
            case "X":
                start, dur = round(1000 * event["ts"]), round(1000 * event["dur"])
                assert dur >= 0
                slices[event["pid"], event["tid"]].append((start, start + dur))
            case "C":
                assert event["args"]
                assert all(isinstance(v, int | float) for v in event["args"].values())
            case "M":
                assert event["name"] in {
                    "process_name", "thread_name", "process_sort_index", "thread_sort_index",
                }  # fmt: skip
                if event["name"] == "process_name":
                    assert event["pid"] not in processes
                    processes.add(event["pid"])
                elif event["name"] == "thread_name":
                    assert (event["pid"], event["tid"]) not in threads
                    threads.add((event["pid"], event["tid"]))
            case phase:
                raise AssertionError(phase)
    assert set(slices) == threads
    assert {event["pid"] for event in made["traceEvents"]} == processes
    for spans in slices.values():
        spans.sort()
        assert all(before[1] <= after[0] for before, after in pairwise(spans))


def named(made: dict[str, Any], kind: str) -> dict[tuple[int, int], str]:
    return {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in made["traceEvents"]
        if event["ph"] == "M" and event["name"] == kind
    }


def table(*rows: tuple[int, int, str, float, float]) -> pd.DataFrame:
    columns = ["client", "iteration", "step", "start_s", "end_s"]
    frame = pd.DataFrame(rows, columns=columns).assign(bytes=7, paradigm="sfl-pp")
    frame.insert(0, "round", 0)
    return frame


def test_slices_that_overlap_get_tracks_of_their_own() -> None:
    made = trace(
        {
            "engine": table(
                (1, 1, "S", 0.0, 2.0),
                (2, 1, "S", 1.0, 3.0),  # Overlaps the first.
                (3, 1, "S", 2.0, 4.0),  # Begins as the first ends.
                (1, 1, "SG", 2.0, 2.5),
            )
        }
    )
    check(made)
    names = named(made, "thread_name")
    assert list(names.values()) == [
        "rounds", "base station", "base station (2)", "UAV 1",
    ]  # fmt: skip
    at = {
        event["name"]: (names[event["pid"], event["tid"]], event["ts"], event["dur"])
        for event in made["traceEvents"]
        if event["ph"] == "X"
    }
    assert at["S of UAV 1"] == ("base station", 0, 2e6)
    assert at["S of UAV 2"] == ("base station (2)", 1e6, 2e6)
    assert at["S of UAV 3"] == ("base station", 2e6, 2e6)
    assert at["SG"] == ("UAV 1", 2e6, 0.5e6)
    assert at["round 0"] == ("rounds", 0, 4e6)


def test_sums_that_are_torn_by_floats_do_not_overlap() -> None:
    edges = np.cumsum(np.full(1000, 0.1 + 1e-9))
    rows = [(1, 1, "CF", a, b) for a, b in pairwise(edges.tolist())]
    made = trace({"engine": table(*rows)})
    check(made)
    assert list(named(made, "thread_name").values()) == ["rounds", "UAV 1"]


def test_rates_and_slots_are_counters() -> None:
    rates = pd.DataFrame(
        {
            "slot": [3, 4, 3, 4],
            "time_s": [0.3, 0.4, 0.3, 0.4],
            "client": [1, 1, 2, 2],
            "uplink_bps": [1e6, 2e6, 3e6, 4e6],
            "downlink_bps": [5e6, 6e6, 7e6, 8e6],
        }
    )
    made = trace({"engine": table((1, 1, "CF", 0.3, 0.4))}, rates)
    check(made)
    counters = defaultdict(list)
    for event in made["traceEvents"]:
        if event["ph"] == "C":
            counters[event["name"]].append((event["ts"], *event["args"].values()))
    assert counters["slot"] == [(3e5, 3), (4e5, 4)]
    assert counters["uplink UAV 2"] == [(3e5, 3.0), (4e5, 4.0)]
    assert counters["downlink UAV 1"] == [(3e5, 5.0), (4e5, 6.0)]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return synthetic_run.make_run(tmp_path / "run")


def test_a_run_directory_becomes_a_trace(run_dir: Path, tmp_path: Path) -> None:
    run = read_run(run_dir)
    made = of_run(run.tables)
    check(made)
    processes = list(named(made, "process_name").values())
    assert processes == ["predicted, payload only", "predicted, with frames", "measured", "links"]
    steps = [e for e in made["traceEvents"] if e["ph"] == "X" and e["cat"] != "round"]
    kinds = ("predicted", "predicted_wire", "measured")
    assert len(steps) == sum(len(run.tables[kind]) for kind in kinds)
    measured = [e for e in steps if e["pid"] == 3]
    assert sum(e["dur"] for e in measured) / 1e6 == pytest.approx(
        (run.tables["measured"]["end_s"] - run.tables["measured"]["start_s"]).sum(), abs=1e-5
    )
    output = tmp_path / "trace.json"
    app(["perfetto", str(run_dir), "--out", str(output)], standalone_mode=False)
    assert json.loads(output.read_text()) == json.loads(json.dumps(made))
