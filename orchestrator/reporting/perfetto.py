# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Exports timelines as traces for https://ui.perfetto.dev and chrome://tracing.

The format is the JSON object form of Google's "Trace Event Format": metadata (phase M) names
processes and threads, complete events (X) are slices, counters (C) are curves; times are in µs.
Each timeline is a process and each node a thread. Slices of a thread must not overlap; a node with
concurrent steps, e.g. a base station that computes in parallel, has several threads.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

COMPUTING = frozenset({"CF", "S", "CB"})
TITLES = {
    "predicted": "predicted, payload only",
    "predicted_wire": "predicted, with frames",
    "measured": "measured",
}
"""By kind of timeline: its title."""
_ROUNDS, _LINKS = "rounds", "links"

Event = dict[str, Any]


def trace(
    timelines: Mapping[str, pd.DataFrame], rates: pd.DataFrame | None = None
) -> dict[str, Any]:
    """A trace as a JSON object.

    Args:
        timelines: By title: table of steps as made by `testbed.core.timeline.Timeline.frame`.
        rates: Rates of the links in each slot: slot, time_s, client, uplink_bps, downlink_bps.
    """
    events: list[Event] = []
    for pid, (title, table) in enumerate(timelines.items(), 1):
        events += _process(pid, title)
        tracks = {_ROUNDS: list(_rounds(table)), **_nodes(table)}
        events += _threads(pid, tracks)
    if rates is not None:
        pid = len(timelines) + 1
        events += [*_process(pid, _LINKS), *_counters(pid, rates)]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def of_run(tables: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """The trace of a run, from its tables by file stem."""
    timelines = {title: tables[kind] for kind, title in TITLES.items() if kind in tables}
    return trace(timelines, tables.get("rates"))


def _process(pid: int, name: str) -> list[Event]:
    return [
        _named("process_name", pid, 0, name=name),
        _named("process_sort_index", pid, 0, sort_index=pid),
    ]


def _threads(pid: int, tracks: Mapping[str, list[Event]]) -> Iterator[Event]:
    tid = 0
    for name, slices in tracks.items():
        for number, lane in enumerate(_lanes(slices), 1):
            tid += 1
            title = name if number == 1 else f"{name} ({number})"
            yield _named("thread_name", pid, tid, name=title)
            yield _named("thread_sort_index", pid, tid, sort_index=tid)
            yield from ({**event, "pid": pid, "tid": tid} for event in lane)


def _named(kind: str, pid: int, tid: int, **args: Any) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": args}


def _lanes(slices: Iterable[Event]) -> list[list[Event]]:
    """Distribute slices over as few lanes as possible without overlaps, in order of time."""
    lanes: list[list[Event]] = []
    for event in sorted(slices, key=lambda event: (event["ts"], event["dur"])):
        for lane in lanes:
            last = lane[-1]
            if _ns(last["ts"]) + _ns(last["dur"]) <= _ns(event["ts"]):
                lane.append(event)
                break
        else:
            lanes.append([event])
    return lanes


def _rounds(table: pd.DataFrame) -> Iterator[Event]:
    for index, spans in table.groupby("round"):
        start_s, end_s = spans["start_s"].min(), spans["end_s"].max()
        paradigm = spans["paradigm"].iloc[0]
        yield _slice(f"round {index}", "round", start_s, end_s, paradigm=paradigm)


def _nodes(table: pd.DataFrame) -> dict[str, list[Event]]:
    """Slices of the base station (S) and of every UAV (its other steps)."""
    clients = sorted(set(table["client"]))
    tracks: dict[str, list[Event]] = {"base station": [], **{f"UAV {k}": [] for k in clients}}
    for row in table.to_dict("records"):
        at_server = row["step"] == "S"
        made = _slice(
            f"S of UAV {row['client']}" if at_server else str(row["step"]),
            "computing" if row["step"] in COMPUTING else "transfer",
            row["start_s"],
            row["end_s"],
            round=int(row["round"]),
            iteration=int(row["iteration"]),
            bytes=int(row["bytes"]),
        )
        tracks["base station" if at_server else f"UAV {row['client']}"].append(made)
    return tracks


def _slice(name: str, kind: str, start_s: float, end_s: float, **args: Any) -> Event:
    start_ns = round(start_s * 1e9)
    dur_us = (round(end_s * 1e9) - start_ns) / 1000
    return {
        "ph": "X",
        "name": name,
        "cat": kind,
        "ts": start_ns / 1000,
        "dur": dur_us,
        "args": args,
    }


def _counters(pid: int, rates: pd.DataFrame) -> Iterator[Event]:
    def counter(name: str, time_s: float, **args: Any) -> Event:
        ts = round(time_s * 1e9) / 1000
        return {"ph": "C", "name": name, "pid": pid, "tid": 0, "ts": ts, "args": args}

    for slot, time_s in rates[["slot", "time_s"]].drop_duplicates("slot").to_numpy(float):
        yield counter("slot", time_s, slot=int(slot))
    for client, own in rates.sort_values("time_s").groupby("client"):
        for way in ("uplink", "downlink"):
            mbps = np.round(own[f"{way}_bps"].to_numpy(float) / 1e6, 6)
            for time_s, value in zip(own["time_s"].to_numpy(float), mbps, strict=True):
                yield counter(f"{way} UAV {client}", time_s, **{"Mb/s": float(value)})


def _ns(microseconds: float) -> int:
    return round(microseconds * 1000)
