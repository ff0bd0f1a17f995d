# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed overhead`: overheads of an emulated scenario, optionally for several values of a key."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich.table import Table

from orchestrator.analysis.byte_accounts import BYTES, SET_UP
from orchestrator.analysis.error_budget import RADIO_PARTS
from orchestrator.analysis.waterfall import PART_OF, PARTS
from orchestrator.records.reader import Run
from orchestrator.reporting import xy
from orchestrator.reporting.formatting import milliseconds
from orchestrator.reporting.legend import CAUSE_TITLES, part_title
from orchestrator.reporting.plots import WIDE_IN, from_zero
from orchestrator.reporting.xy import Values
from orchestrator.studies.failed_checks import failed_checks
from testbed.core.errors import InputError

COLOURS = {
    "payload_bytes": "#999999",
    "framing_bytes": "#56b4e9",
    "tls_bytes": "#cc79a7",
    "grpc_bytes": "#aa4499",
    "quic_bytes": "#882255",
    "header_bytes": "#0072b2",
    "ack_bytes": "#009e73",
    "resent_lost_bytes": "#d55e00",
    "resent_dropped_bytes": "#f0e442",
    "resent_spurious_bytes": "#8c510a",
    "handshake_bytes": "#e69f00",
    "other_bytes": "#000000",
}
EMULATION = ("overruns", "slots", "order", *RADIO_PARTS, "rest")
"""Parts of the latency that come from the emulation instead of protocols."""
LEAST_PART_S = 5e-6
"""Parts of the latency that are smaller are not shown, s."""
_GREY, _ORANGE, _BLUE, _RED = "#999999", "#e69f00", "#0072b2", "#d55e00"


@dataclass(frozen=True)
class Outcome:
    """Overheads of a scenario, as means over its rounds."""

    value: str
    """Value of the swept key; empty without a sweep."""
    up_bytes: dict[str, float]
    """Bytes by purpose (`BYTES`), on all UAVs' links."""
    down_bytes: dict[str, float]
    parts_s: dict[str, float]
    """Latency in s by part (`PARTS`)."""
    predicted_s: float
    predicted_wire_s: float
    measured_s: float
    valid: bool
    complaints: list[str]
    """Failed validity checks."""

    @property
    def both_ways(self) -> tuple[dict[str, float], dict[str, float]]:
        """Uplink and downlink bytes by purpose."""
        return self.up_bytes, self.down_bytes

    def bytes_of(self, name: str) -> float:
        """Bytes of a purpose in both directions."""
        return self.up_bytes[name] + self.down_bytes[name]

    @property
    def link_bytes(self) -> float:
        """Bytes of all purposes in a round."""
        return sum(self.bytes_of(name) for name in BYTES)

    @property
    def overhead(self) -> float:
        """Bytes that are not payload, as a fraction of the payload."""
        return self.link_bytes / self.bytes_of("payload_bytes") - 1

    @property
    def seen_bytes(self) -> list[str]:
        """The purposes that have bytes, from `BYTES`."""
        return [name for name in BYTES if self.bytes_of(name)]

    @property
    def seen_parts(self) -> list[str]:
        """The parts of the latency that are not zero, and always payload and computing."""
        return [
            part
            for part, seconds in self.parts_s.items()
            if part in PARTS[:2] or abs(seconds) >= LEAST_PART_S
        ]

    def sum_s(self, *, of_emulation: bool) -> float:
        """Latency in s that the emulation adds, or else that protocols add."""
        parts = [part for part in self.parts_s if part not in PARTS[:2]]
        return sum(self.parts_s[p] for p in parts if (p in EMULATION) == of_emulation)

    def to_json(self) -> dict[str, Any]:
        """The outcome as a JSON object."""
        return asdict(self)


def sweep_of(text: str | None) -> list[tuple[str, list[str]]]:
    """Parse ``--sweep KEY=VALUE,VALUE...`` into the values and the overrides that set them.

    Raises:
        InputError: The text has another form.
    """
    if text is None:
        return [("", [])]
    key, equals, values = text.partition("=")
    if not (key and equals and all(values.split(","))):
        raise InputError(f"`sweep` {text}: must be dotted.key=value,value...")
    return [(value, [f"{key}={value}"]) for value in values.split(",")]


def bytes_of_a_round(accounts: pd.DataFrame, direction: str) -> dict[str, float]:
    """Mean bytes per round in a direction, by `BYTES`.

    Bytes that a link carried before its UAV participated, e.g. when it reconnected, are excluded.

    Args:
        accounts: Accounts of all rounds; see `orchestrator.analysis.byte_accounts.account`.
        direction: `up` or `down`.
    """
    rounds = accounts[accounts["round"] != SET_UP]
    way = rounds[rounds["direction"] == direction]
    # Old runs have no column for QUIC.
    sums = way.reindex(columns=list(BYTES), fill_value=0).sum()
    return {str(name): float(size) for name, size in (sums / rounds["round"].nunique()).items()}


def outcome_of(value: str, run: Run) -> Outcome:
    """The overheads of a run.

    Args:
        value: Value of the swept key; empty without a sweep.
        run: A finished run.
    """
    failed = failed_checks(run)
    parts_s = run.tables["waterfall"].groupby("part", sort=False)["seconds"].mean()
    return Outcome(
        value=value,
        up_bytes=bytes_of_a_round(run.tables["accounts"], "up"),
        down_bytes=bytes_of_a_round(run.tables["accounts"], "down"),
        parts_s={str(part): float(seconds) for part, seconds in parts_s.items()},
        predicted_s=float(np.mean([r.latency_s for r in run.predicted])),
        predicted_wire_s=float(np.mean([r.latency_s for r in run.predicted_wire])),
        measured_s=float(np.mean([r.latency_s for r in run.measured])),
        valid=not failed,
        complaints=failed,
    )


def frames(outcomes: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """The outcomes as tidy tables: `latencies`, `bytes` by purpose, and `waterfall` by part."""
    latencies = [
        (o.value, o.predicted_s, o.predicted_wire_s, o.measured_s, o.overhead, o.valid)
        for o in outcomes
    ]
    rows = [
        (outcome.value, name.removesuffix("_bytes"), *(b[name] for b in outcome.both_ways))
        for outcome in outcomes
        for name in BYTES
    ]
    parts = [(o.value, part, seconds) for o in outcomes for part, seconds in o.parts_s.items()]
    columns = ["value", "predicted_s", "predicted_wire_s", "measured_s", "overhead", "valid"]
    return {
        "latencies": pd.DataFrame(latencies, columns=columns),
        "bytes": pd.DataFrame(rows, columns=["value", "of", "up_bytes", "down_bytes"]),
        "waterfall": pd.DataFrame(parts, columns=["value", "part", "seconds"]),
    }


def title(name: str) -> str:
    """Title of a purpose of bytes (with or without `_bytes`), or of a part of the latency."""
    name = name.removesuffix("_bytes")
    return CAUSE_TITLES.get(name, part_title(name))


# --- tables --------------------------------------------------------------------------------------


def bytes_table(outcome: Outcome) -> Table:
    """One row per kind of overhead: bytes up and down, share of all bytes, time in a round.

    Purposes without bytes are omitted. Purposes without their own part of the latency (see
    `orchestrator.analysis.waterfall`) have no time.
    """
    table = Table(box=None, pad_edge=False)
    table.add_column("bytes")
    for column in ("up", "down", "both", "% of all", "ms", "% of round"):
        table.add_column(column, justify="right", no_wrap=True)
    for name in outcome.seen_bytes:
        seconds = outcome.parts_s[PART_OF[name]] if name in PART_OF else None
        table.add_row(
            title(name),
            f"{outcome.up_bytes[name]:.0f}",
            f"{outcome.down_bytes[name]:.0f}",
            f"{outcome.bytes_of(name):.0f}",
            f"{100 * outcome.bytes_of(name) / outcome.link_bytes:.3f}",
            *_time(seconds, outcome.measured_s),
        )
    table.add_section()
    ways = (*(sum(way.values()) for way in outcome.both_ways), outcome.link_bytes)
    table.add_row("all", *(f"{way:.0f}" for way in ways))
    return table


def waterfall_table(outcome: Outcome) -> Table:
    """The parts of the latency, from payload at the channel's rates to the measured value.

    Parts of zero are omitted.
    """
    table = Table(box=None, pad_edge=False)
    table.add_column("latency")
    for column in ("ms", "% of round", "sum ms"):
        table.add_column(column, justify="right")
    total_s = 0.0
    for part in outcome.seen_parts:
        seconds = outcome.parts_s[part]
        total_s += seconds
        table.add_row(title(part), *_time(seconds, outcome.measured_s), f"{1e3 * total_s:.2f}")
    return table


def _time(seconds: float | None, round_s: float) -> tuple[str, str]:
    if seconds is None:
        return "-", "-"
    return f"{1e3 * seconds:+.2f}", f"{100 * seconds / round_s:.3f}"


def sweep_table(key: str, outcomes: Sequence[Outcome]) -> Table:
    """One column per value: overheads relative to the payload in per cent, and latencies."""
    table = Table(box=None, pad_edge=False, title=key, title_justify="left", title_style="bold")
    table.add_column("")
    for outcome in outcomes:
        table.add_column(outcome.value, justify="right", overflow="fold")

    def add(text: str, cell: Callable[[Outcome], str]) -> None:
        table.add_row(text, *map(cell, outcomes))

    def share(outcome: Outcome, size: float) -> str:
        return f"{100 * size / outcome.bytes_of('payload_bytes'):.3f}"

    for name in BYTES[1:]:
        if any(outcome.bytes_of(name) for outcome in outcomes):
            add(f"{title(name)} %", lambda o, n=name: share(o, o.bytes_of(n)))  # type: ignore[misc]
    add("all overhead %", lambda o: f"{100 * o.overhead:.3f}")
    add("predicted wire s", lambda o: f"{o.predicted_wire_s:.4f}")
    add("measured s", lambda o: f"{o.measured_s:.4f}")
    add("error %", lambda o: f"{100 * (o.measured_s / o.predicted_wire_s - 1):+.3f}")
    add("valid", lambda o: "yes" if o.valid else "no")
    return table


# --- plots ---------------------------------------------------------------------------------------


def waterfall(outcome: Outcome) -> dict[str, Any]:
    """The data of a waterfall chart on a page, see `templates/waterfall.js`."""
    return {
        "measured_s": round(outcome.measured_s, 9),
        "kinds": [
            {"name": name, "colour": colour, "seconds": round(seconds, 9)}
            for name, colour, seconds in (
                ("payload", "muted", outcome.parts_s["payload"]),
                ("computing", "ring-2", outcome.parts_s["computing"]),
                ("protocols", "less", outcome.sum_s(of_emulation=False)),
                ("emulation", "bad", outcome.sum_s(of_emulation=True)),
            )
        ],
        "parts": [
            {
                "name": title(part),
                "kind": number if number < 2 else 3 if part in EMULATION else 2,
                "seconds": round(outcome.parts_s[part], 9),
            }
            for number, part in enumerate(outcome.seen_parts)
        ],
    }


def waterfall_figure(outcome: Outcome) -> Figure:
    """The waterfall chart: the whole round, and the parts after payload and computing."""
    parts = outcome.seen_parts
    seconds = np.array([outcome.parts_s[part] for part in parts])
    ends = np.cumsum(seconds)
    figure = Figure(figsize=(WIDE_IN, 2.4 + 0.24 * len(parts)), layout="constrained")
    whole, above = figure.subplots(2, 1, height_ratios=(1, 0.4 * len(parts)))
    colours = [_GREY, _ORANGE, *(_RED if part in EMULATION else _BLUE for part in parts[2:])]
    whole.barh([0] * len(parts), seconds, left=ends - seconds, color=colours)
    rows, ms = range(len(parts) - 2), 1e3 * seconds[2:]
    begins_ms = 1e3 * (ends[2:] - ends[1]) - ms
    above.barh(rows, ms, left=begins_ms, color=colours[2:])
    for row, begin, length in zip(rows, begins_ms, ms, strict=True):
        above.annotate(
            milliseconds(length / 1e3),
            (max(begin, begin + length), row),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=7,
        )
    above.set_yticks(rows, [textwrap.fill(title(part), 20) for part in parts[2:]])
    for text, colour, sum_s in (
        ("payload", _GREY, seconds[0]),
        ("computing", _ORANGE, seconds[1]),
        ("protocols", _BLUE, outcome.sum_s(of_emulation=False)),
        ("emulation", _RED, outcome.sum_s(of_emulation=True)),
    ):
        whole.barh(0, 0, color=colour, label=f"{text} {sum_s:.3f} s")
    figure.legend(ncols=4, loc="outside upper center", frameon=False)
    whole.set_yticks([])
    whole.set_xlabel("Latency of a round (s)")
    whole.set_xlim(0, max(ends) * 1.02)
    above.invert_yaxis()
    above.margins(x=0.22)
    above.axvline(0, color="black", linewidth=0.6)
    above.set_xlabel("Added latency (ms)")
    above.grid(axis="x", alpha=0.3)
    for axes in (whole, above):
        axes.tick_params(labelsize=8)
    return figure


def _stack(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, Values, Values]]:
    """By purpose that has bytes: its name, its bytes in % of the payload, and where they begin when
    they are stacked, shape [outcomes] each."""
    payload = np.array([outcome.bytes_of("payload_bytes") for outcome in outcomes])
    below = np.zeros(len(outcomes))
    for name in BYTES[1:]:
        # Bytes that TCP counted but the links did not carry are negative and not stacked.
        sizes = np.array([max(0.0, outcome.bytes_of(name)) for outcome in outcomes])
        share = 100 * sizes / payload
        if share.any():
            yield name, share, below
            below = below + share


def _added_ms(outcomes: Sequence[Outcome], name: str) -> Values:
    """A latency less the one predicted for payload and computing only, shape [outcomes], ms."""
    return np.array([1e3 * (getattr(each, name) - each.predicted_s) for each in outcomes])


SHARE_LABEL, ADDED_LABEL = "Overhead bytes (% of payload)", "Added latency (ms)"


def sweep_charts(key: str, outcomes: Sequence[Outcome]) -> dict[str, dict[str, Any]]:
    """The panels of `sweep_figure` as charts of a page, see `orchestrator.reporting.xy`."""
    places: Values = np.arange(len(outcomes), dtype=np.float64)
    names = [outcome.value for outcome in outcomes]
    stacks = [
        xy.stacked(title(name), share, below, "ink" if name == "other_bytes" else COLOURS[name])
        for name, share, below in _stack(outcomes)
    ]
    added = [
        xy.points(label, places + shift, _added_ms(outcomes, name), colour)
        for name, label, colour, shift in (
            ("predicted_wire_s", "predicted with frames", "less", -0.06),
            ("measured_s", "measured", "bad", 0.06),
        )
    ]
    return {
        name: xy.chart(
            f"{label} by {key}", key, label, series, names=names, from_zero=True, digits=(0, 3)
        )
        for name, label, series in (
            ("sweep-bytes", SHARE_LABEL, stacks),
            ("sweep-latency", ADDED_LABEL, added),
        )
    }


def sweep_figure(key: str, outcomes: Sequence[Outcome]) -> Figure:
    """Overhead bytes by purpose, and the latency that they add, over the values of a key."""
    figure = Figure(figsize=(WIDE_IN, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    places = np.arange(len(outcomes))
    for name, share, below in _stack(outcomes):
        left.bar(places, share, 0.6, below, label=title(name), color=COLOURS[name])
    left.set_ylabel(SHARE_LABEL)
    for name, label, marker, colour in (
        ("predicted_wire_s", "predicted with frames", "o", _BLUE),
        ("measured_s", "measured", "x", _RED),
    ):
        added_ms = _added_ms(outcomes, name)
        right.plot(places, added_ms, marker, label=label, color=colour, markersize=5)
    right.set_ylabel(ADDED_LABEL)
    right.margins(x=0.15)
    from_zero(right)
    for axes in (left, right):
        axes.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False)
        axes.set_xticks(places, [outcome.value for outcome in outcomes])
        axes.set_xlabel(key)
        axes.tick_params(labelsize=8)
        axes.grid(axis="y", alpha=0.3)
        axes.set_axisbelow(True)
    return figure
