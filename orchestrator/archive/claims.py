# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How each number of a run directory is checked, and the check of those that follow from others.

Every column of every table and every entry of the manifest is in one class. Numbers that only a
measurement can know are copied: a verdict names them. All others are computed again, from what is
copied, by the code that computed them during the run (`orchestrator.archive.rebuilt`).
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from html import unescape
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from ns3_scenarios.errors import ChannelError
from ns3_scenarios.trace import TraceExhausted
from orchestrator.analysis.error_budget import calibration_summary
from orchestrator.archive.bundle import CITATION, ENVIRONMENT
from orchestrator.archive.bundle import described as about_of
from orchestrator.archive.crate import METADATA, README, metadata, readme
from orchestrator.archive.rebuilt import emulation_of, has_log, keeps_calibration, why_not
from orchestrator.archive.unpack import Unpacked, object_in
from orchestrator.campaigning.verify import PREDICTED
from orchestrator.emulated.run import tables_of
from orchestrator.emulated.validity import CHECKS, validity
from orchestrator.engine.faults import planned
from orchestrator.engine.plan import LOADED
from orchestrator.records.emulation import Emulation
from orchestrator.records.manifest import source_sha256
from orchestrator.records.reader import KINDS, Run, read_object, read_run
from orchestrator.records.tables import ANY, CLIENT, ROUND, STEP, WAY, Absent, read_table
from orchestrator.records.timelines import TARGET
from orchestrator.reporting.formatting import without_links
from orchestrator.reporting.report import render
from orchestrator.scenario.loading import OWN
from orchestrator.scenario.schema import LIMITS_OF_REAL_CLOCK, Scenario
from testbed.core.errors import InputError, RunEnds, RunError

How = Literal["again", "follows", "copied"]
AGAIN: How = "again"
"""Predicted again from the channel and the decisions, and compared bit for bit."""
FOLLOWS: How = "follows"
"""Computed again from other data of the directory, and compared."""
COPIED: How = "copied"
"""Not checked: only a measurement can know it, or it is an input."""


def _table(follows: str = "", copied: str = "", again: str = "") -> dict[str, How]:
    """The classes of a table's columns."""
    classes: tuple[tuple[str, How], ...] = ((follows, FOLLOWS), (copied, COPIED), (again, AGAIN))
    return {name: how for names, how in classes for name in names.split()}


_SPANS = "round paradigm client iteration step start_s end_s bytes edge_round edge"
_BYTES = (
    "framing_bytes tls_bytes grpc_bytes quic_bytes header_bytes ack_bytes resent_lost_bytes "
    "resent_dropped_bytes resent_spurious_bytes handshake_bytes other_bytes"
)
_DECIDED = " ".join(("split alpha beta rho", *LOADED, *TARGET))
COLUMNS: dict[str, dict[str, How]] = {
    "predicted": _table(again=_SPANS),
    "predicted_wire": _table(again=_SPANS),
    "measured": _table(
        "round paradigm client iteration step bytes edge_round edge", "start_s end_s"
    ),
    "rounds": _table(
        "kind round paradigm split start_s latency_s max_energy_j objective max_flight_energy_j",
        "decision_s",
    ),
    "energy": _table("kind round client energy_j split flight_energy_j"),
    "lost": _table("kind round client", "lost_s stopped_s cause"),
    "backhaul": _table("kind round edge direction bytes", "start_s end_s"),
    "edge_rounds": _table(
        "kind round edge_round edge split start_s latency_s objective", "decision_s"
    ),
    "decisions": _table(f"round client {_DECIDED} edge_round edge"),
    "rates": _table("slot time_s client uplink_bps downlink_bps edge_round edge"),
    "transfers": _table(
        "round client iteration step start_s duration_s due_s rate_bps error edge_round edge"
    ),
    "injector": _table("slot boundary_s edge_round edge", "lateness_s"),
    "calibration": _table(
        "due_s error", "client direction level rate_bps bytes start_s duration_s"
    ),
    "air": _table("round client direction lost_frames arrived_frames edge_round edge"),
    "air_slots": _table(
        copied="round slot time_s client direction lost_frames arrived_frames asked_loss "
        "edge_round edge"
    ),
    "resource_blocks": _table(
        "round slot time_s client direction active_s resource_blocks mcs layers edge_round edge"
    ),
    "grants": _table(
        copied="round slot time_s client direction blocks resource_blocks granted_bytes "
        "lost_blocks mcs waiting_s edge_round edge"
    ),
    "cells": _table(copied="slot time_s client cell sinr_db edge_round edge"),
    "handovers": _table(
        copied="client start_s end_s from_cell to_cell interruption_ms edge_round edge"
    ),
    "learning": _table(
        "round time_s",
        "data client iteration loss accuracy smashed_error gradient_error edge_round edge",
    ),
    "accounts": _table(
        "payload_bytes", f"round client direction kind iteration {_BYTES} edge_round edge"
    ),
    "waterfall": _table("round part seconds"),
    "budget": _table("round part seconds"),
    "budget_steps": _table("round client iteration step part seconds edge_round edge"),
}
"""By table and column: how it is checked, if the run can be made again (see `EXCEPT`)."""

EXCEPT: tuple[tuple[str, str, Callable[[Run], bool]], ...] = (
    ("decisions", _DECIDED, lambda run: run.scenario.allocation.kind.decides),
    ("transfers", "due_s rate_bps", lambda run: has_log(run.scenario)),
    *(
        (name, "round part seconds", lambda run: has_log(run.scenario))
        for name in ("budget", "waterfall")
    ),
    (
        "budget_steps",
        "round client iteration step part seconds edge_round edge",
        lambda run: has_log(run.scenario) or bool(run.manifest.get("hosts")),
    ),
    (
        "injector",
        "slot boundary_s edge_round edge",
        lambda run: run.scenario.emulation.air == "ns3",
    ),
    ("calibration", "due_s", lambda run: not keeps_calibration(run.scenario)),
)
"""Table, columns, and when these columns are only copied."""
KEYS = (
    *("kind", "round", "edge", "edge_round", "slot", "client", "iteration", "step", "direction"),
    *("part", "data", "level"),
)
"""Columns that name a row, in the order in which rows are sorted before they are compared."""
EYEBROW = re.compile(r'<p class="eyebrow">Run report · ([^<]*)</p>')
"""The line of a report that names the run's folder."""
ABOUT_S = 1e-6
"""Differences of times that count as none, s: times of rate changes are stored to a nanosecond."""
RELATIVE = 1e-9
"""Relative differences that count as none."""

ENCODED = "measured.parquet: bytes of encoded data (compared with their bounds only)"
"""What is not checked where the sizes of codecs depend on the data."""

MANIFEST: dict[str, How] = {
    **dict.fromkeys(
        ("seed", "runtime", "congestion_control", "mtu", "clock", "dilation", "status", "failure"),
        FOLLOWS,
    ),
    **dict.fromkeys(("valid", "validity", "calibration", "faults", "data"), FOLLOWS),
    **dict.fromkeys(
        (
            *("testbed_version", "revision", "dirty", "source_sha256", "python", "packages"),
            *("kernel", "cpu", "host_cpu", "cores", "memory_bytes", "sysctls", "argv", "command"),
            *("started", "finished", "plugins", "air", "virtual_kernel", "dilation_foreseen"),
            *("remarks", "diverged", "sessions", "server_passes", "partition", "hosts"),
            *("host", "process", "wall_s", "containers", "flight"),
        ),
        COPIED,
    ),
}
"""By entry of the manifest: how it is checked."""
OF_POINTS = ("point.json",)
"""Files in the folder of a campaign's point that say what was to be computed."""
PAPERS: dict[str, How] = {
    r"ro-crate-metadata\.json|README\.md|CITATION\.cff|run/.*|campaign/points/.*": FOLLOWS,
    r"campaign/campaign\.yaml": FOLLOWS,
    r"campaign/(results|figures|failed)/.*|campaign/report\.html": COPIED,
    r"environment\.json|inputs\.json|inputs/.*": COPIED,
}
"""By pattern of a path in a bundle: how it is checked; for directories see `FILES`."""
COLLECTED = ("campaign/results/", "campaign/figures/", "campaign/failed/", "campaign/report.html")
"""Files of a campaign that its report has made from the points."""
MADE_AGAIN = (
    *("calibration_error", "injector_lateness_s", "compute_share", "injection_share"),
    *("rest_share", "transfer_error", "broadcast_error"),
)
"""Checks of validity whose values follow from tables; others come from counters that are not kept.
"""
SOMETIMES = (
    "radio_lateness_s",
    "unaccounted_packets",
    "loss_deviation",
    "late_frames",
    "clock_error_s",
)
"""Checks that only some runs have, and that are not made again."""

FILES: dict[str, How] = {
    r"manifest\.json|scenario\.json|report\.html": FOLLOWS,
    r"(" + "|".join(COLUMNS) + r")\.parquet": FOLLOWS,
    r"(metrics|curves)\.parquet|trace\.npz|radio\.bin|adapters\.safetensors": COPIED,
    r"(logs|pcap|qlog|figures)/.*": COPIED,
}
"""By pattern of a path in a run directory: how it is checked."""
OTHER_TABLES = {
    "transfers": {"round": ROUND, "client": CLIENT, "step": STEP, "error": ANY},
    "air": {"round": ROUND, "client": CLIENT, "direction": WAY, "lost_frames": ANY},
}
"""Tables that reports do not read: their required columns."""
UNEQUAL = (ArithmeticError, LookupError, ValueError, TypeError, AssertionError, AttributeError)
"""Errors with which a computation from contradictory data may end."""


@dataclass
class Extent:
    """What was checked of a directory, apart from predictions."""

    differences: list[str] = field(default_factory=list)
    """What differs from what the rest says, one line each."""
    not_checked: list[str] = field(default_factory=list)
    """What was only copied: `FILE: COLUMN`, or a file or folder."""

    def compare(self, name: str, stored: str, made: str, about: Mapping[str, Any]) -> None:
        """Compare a text with the one that this program makes.

        If another version of the program made it, a difference may have this cause: it is not
        checked.

        Args:
            name: Its name in messages.
            stored: The text.
            made: The text that this program makes.
            about: Manifest or environment of the program that made the text.
        """
        if stored == made:
            return
        if about.get("source_sha256") == source_sha256():
            self.differences.append(f"{name}: DIFFERS from the one that follows from the data")
        else:
            self.not_checked.append(f"{name} (of another version of the testbed)")

    def lines(self) -> Iterator[str]:
        """The differences, and one line with everything that was not checked."""
        yield from self.differences
        if self.not_checked:
            files: dict[str, list[str]] = {}
            for name in self.not_checked:
                file, _, column = name.partition(": ")
                files.setdefault(file, []).append(column)
            named = [
                " ".join(filter(None, (f, ", ".join(filter(None, c))))) for f, c in files.items()
            ]
            yield f"not checked: {'; '.join(named)}"

    def to_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {"differences": self.differences, "not_checked": self.not_checked}

    def add(self, other: "Extent", place: str = "", places: str = "") -> None:
        """Add what was checked of another directory, or of one of many like it.

        Args:
            other: What was checked.
            place: Begins its differences.
            places: Begins the names of what was not checked, each of which is listed once.
        """
        self.differences += [f"{place}{line}" for line in other.differences]
        names = dict.fromkeys([*self.not_checked, *(places + name for name in other.not_checked)])
        self.not_checked = list(names)


def classes_of(run: Run, *, is_made_again: bool = True) -> dict[str, dict[str, How]]:
    """By table and column: how it is checked in this run."""
    if not is_made_again:
        return {
            name: {column: AGAIN if how == AGAIN else COPIED for column, how in columns.items()}
            for name, columns in COLUMNS.items()
        }
    classes = {name: dict(columns) for name, columns in COLUMNS.items()}
    for name, columns, holds in EXCEPT:
        if holds(run):
            classes[name] |= dict.fromkeys(columns.split(), COPIED)
    return classes


def examine(
    run: Run, folder: Path, *, scenario: Scenario | None = None, not_here: str = ""
) -> Extent:
    """Compare all numbers of a run directory that follow from others.

    Args:
        run: The directory's contents.
        folder: The directory.
        scenario: The scenario with paths of unpacked files (default: the run's own).
        not_here: Why nothing is computed on this machine; empty: it is.
    """
    extent = Extent()
    tables = dict(run.tables)
    for stem, columns in OTHER_TABLES.items():
        try:
            tables[stem] = read_table(folder / f"{stem}.parquet", run.scenario, columns)
        except Absent:
            continue
    done, why = None, not_here or why_not(run, tables)
    classes = classes_of(run, is_made_again=not why)
    if why:
        extent.not_checked.append(f"tables ({why})")
    else:
        try:
            done = emulation_of(replace(run, scenario=scenario or run.scenario), tables)
            made = tables_of(done)
            extent.differences += _different_tables(tables, made, classes)
            if done.scenario.workload.compute == "real" and done.scenario.workload.varying_sizes:
                extent.not_checked.append(ENCODED)
            extent.not_checked += [
                f"{stem}.parquet (is missing)"
                for stem, table in made.items()
                if stem not in tables and len(table)
            ]
        except InputError as error:
            extent.differences.append(str(error))
        except (RunError, RunEnds, ChannelError, TraceExhausted, *UNEQUAL) as error:
            what = f"{type(error).__name__}: {str(error)[:100]}"
            extent.differences.append(f"the tables contradict each other ({what})")
    extent.not_checked += _copied(run, tables, classes, done)
    extent.not_checked += _files(folder, run)
    if not_here:
        extent.not_checked.append("report.html")
        return extent
    extent.differences += _order_of_time(tables.get("measured"))
    if why:
        extent.differences += _sums(run, tables)
    if run.scenario.workload.compute == "none" and "learning" in tables:
        extent.differences.append("learning.parquet: has rows, although workload.compute is 'none'")
    extent.differences += _different_manifest(run, done)
    _compare_page(run, folder, extent)
    return extent


def examine_point(
    folder: Path,
    mode: str,
    scenario: Scenario,
    not_here: str = "",
    change: Callable[[dict[str, Any]], dict[str, Any]] = lambda tree: tree,
) -> Extent:
    """Compare what follows from others in the folder of a campaign's point.

    Args:
        folder: The folder.
        mode: Mode of the point: `predict`, `run` or `up`.
        scenario: Its scenario, with paths of unpacked files.
        not_here: Why nothing is computed on this machine; empty: it is.
        change: See `read_run`.
    """
    if mode == "run":
        return examine(read_run(folder, change), folder, scenario=scenario, not_here=not_here)
    extent, manifest = Extent(), read_object(folder / "manifest.json")
    wanted = {"seed": scenario.seed, "status": "complete"}
    wanted |= {"valid": True, "validity": []} if mode == "predict" else {}
    extent.differences += _different_entries(manifest, wanted)
    extent.not_checked += [
        f"manifest.json: {ascii(entry)[1:-1][:80]}" for entry in manifest if entry not in wanted
    ]
    # The predictions themselves are compared with new ones, see `campaign.verify.compare`.
    again = PREDICTED if mode == "predict" and not not_here else ()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in {"manifest.json", *OF_POINTS, *again}:
            extent.not_checked.append(ascii(name)[1:-1])
    return extent


def _copied(
    run: Run,
    tables: Mapping[str, pd.DataFrame],
    classes: Mapping[str, Mapping[str, How]],
    done: Emulation | None,
) -> Iterator[str]:
    for stem, table in sorted(tables.items()):
        for column in table:
            if (how := classes.get(stem, {}).get(str(column))) in (None, COPIED):
                yield f"{stem}.parquet: {column}" + " (unknown)" * (how is None)
    for entry in run.manifest:
        if (how := MANIFEST.get(entry)) in (None, COPIED):
            yield f"manifest.json: {ascii(entry)[1:-1][:80]}" + " (unknown)" * (how is None)
    for check in _checks(run):
        if done is None or check.get("check") not in MADE_AGAIN:
            yield f"manifest.json: validity: {ascii(check.get('check'))[1:-1][:80]}"
    if _checks(run):
        yield "manifest.json: validity: detail"


def examine_bundle(unpacked: Unpacked, not_here: str = "") -> Extent:
    """Compare what a bundle says about itself with its files.

    Args:
        unpacked: The bundle.
        not_here: Why its results are not computed on this machine; empty: they are.
    """
    extent, folder = Extent(), unpacked.folder
    extent.not_checked += _around(unpacked)
    if not_here:
        extent.not_checked += [METADATA, README]
        return extent
    about = object_in(folder / ENVIRONMENT, ENVIRONMENT) if (folder / ENVIRONMENT).exists() else {}
    stored = object_in(folder / METADATA, METADATA)
    sizes = {name: (folder / name).stat().st_size for name in unpacked.sums}
    given = {name: (sizes[name], digest) for name, digest in unpacked.sums.items()}
    del given[METADATA]
    try:
        described = about_of(unpacked.kind, unpacked.content, given)
    except (InputError, *UNEQUAL) as error:
        extent.not_checked += [f"{METADATA}, {README} ({str(error)[:100]})"]
    else:
        made = metadata(described, given)
        digests = {str(entry.get("@id")): entry.get("sha256") for entry in _graph(stored)}
        wrong = [name for name, (_, digest) in given.items() if digests.get(name) != digest]
        if wrong:
            named = ascii(", ".join(sorted(wrong)))[1:-1]
            extent.differences.append(f"{METADATA}: DIFFERS: has other digests of {named}")
        else:
            text = json.dumps(stored, sort_keys=True)
            extent.compare(METADATA, text, json.dumps(made, sort_keys=True), about)
        if (folder / README).exists():
            extent.compare(README, _text(folder / README), readme(described), about)
    own = OWN.parent / CITATION
    if (folder / CITATION).exists() and own.is_file():
        extent.compare(CITATION, _text(folder / CITATION), _text(own), about)
    return extent


def _around(unpacked: Unpacked) -> Iterator[str]:
    """The files around the directory, and those of a campaign, that are only copied."""
    seen = set()
    for name in sorted(unpacked.sums):
        hows = [how for pattern, how in PAPERS.items() if re.fullmatch(pattern, name)]
        folder = next(
            (of for of in COLLECTED if name.startswith(of)), "".join(name.partition("/")[:2])
        )
        if not hows:
            yield f"{ascii(name)[1:-1]} (does not belong to a bundle)"
        elif hows[0] == COPIED and folder not in seen:
            seen.add(folder)
            yield folder


def _graph(stored: Mapping[str, Any]) -> list[dict[str, Any]]:
    graph = stored.get("@graph")
    return [entry for entry in graph if isinstance(entry, dict)] if isinstance(graph, list) else []


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _files(folder: Path, run: Run) -> Iterator[str]:
    """The files that are only copied; folders of them once."""
    seen = set()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or name in OF_POINTS:
            continue
        hows = [how for pattern, how in FILES.items() if re.fullmatch(pattern, name)]
        if not hows or (name == "adapters.safetensors" and run.scenario.workload.compute == "none"):
            yield f"{ascii(name)[1:-1]} (does not belong to a run)"
        elif hows[0] == COPIED and (place := name.partition("/")) and place[0] not in seen:
            seen.add(place[0])
            yield place[0] + place[1]


def _different_tables(
    stored: Mapping[str, pd.DataFrame],
    made: Mapping[str, pd.DataFrame],
    classes: Mapping[str, Mapping[str, How]],
) -> Iterator[str]:
    for stem, then in stored.items():
        compared = [column for column, how in classes.get(stem, {}).items() if how == FOLLOWS]
        if stem in ("predicted", "predicted_wire") or not compared:
            continue
        if stem not in made:
            yield f"{stem}.parquet: does not belong to a run of this scenario"
            continue
        now = made[stem]
        if stem == "rates":
            now = now.drop_duplicates(["slot", "client"], keep="last")
        if why := _difference(then, now, [name for name in compared if name in now]):
            yield f"{stem}.parquet: {why}"


def _difference(then: pd.DataFrame, now: pd.DataFrame, columns: list[str]) -> str:
    """The first difference of two tables; empty if there is none."""
    if lacking := [name for name in columns if name not in then]:
        return f"DIFFERS: lacks {lacking[0]}"
    if len(then) != len(now):
        return f"DIFFERS: has {len(then)} rows; {len(now)} follow from the others"
    keys = [name for name in KEYS if name in then and name in now]
    then, now = (_sorted(table, keys) for table in (then, now))
    for name in columns:
        wrong = _unequal(then[name], now[name])
        if wrong.any():
            row = int(wrong.argmax())
            place = ", ".join(f"{key} {now[key].iloc[row]}" for key in keys if key != name)
            values = f"{then[name].iloc[row]} there, {now[name].iloc[row]} here"
            return f"DIFFERS, {place}: {name} {values}"
    return ""


def _sorted(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    texts = {key: table[key].astype(str) for key in keys if table[key].dtype.kind not in "iuf"}
    table = table.assign(**texts)
    return table.sort_values(keys, kind="stable", ignore_index=True) if keys else table


def _unequal(then: "pd.Series[Any]", now: "pd.Series[Any]") -> "np.ndarray[Any, Any]":
    a, b = then.to_numpy(), now.to_numpy()
    if a.dtype.kind in "iuf" and b.dtype.kind in "iuf":
        a, b = a.astype(float), b.astype(float)
        least = ABOUT_S if str(then.name).endswith(("_s", "seconds")) else 0.0
        close: Any = np.abs(a - b) <= least + RELATIVE * np.maximum(np.abs(a), np.abs(b))
        same: np.ndarray[Any, Any] = close | (a == b) | (np.isnan(a) & np.isnan(b))
        return ~same
    return np.array([str(one) != str(other) for one, other in zip(a, b, strict=True)], bool)


def _sums(run: Run, tables: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """Sums that hold in every run, also if it cannot be made again: each kind of round."""
    rounds = run.rounds.set_index("round")
    measured_s = rounds["measured_latency_s"]
    for name, total_s in (
        ("budget", measured_s - rounds["predicted_latency_s"]),
        ("waterfall", measured_s),
    ):
        if name in tables:
            sums_s = tables[name].groupby("round")["seconds"].sum()
            yield from _unlike(name, "seconds", sums_s, total_s.reindex(sums_s.index))
    for kind in KINDS:
        if "energy" in tables:
            own = tables["energy"][tables["energy"]["kind"] == kind].groupby("round")["energy_j"]
            yield from _unlike(
                "rounds", f"{kind} max_energy_j", rounds[f"{kind}_max_energy_j"], own.max()
            )
        ends_s = rounds[f"{kind}_start_s"] + rounds[f"{kind}_latency_s"]
        later = rounds[f"{kind}_start_s"].iloc[1:]
        before = ends_s.iloc[:-1].set_axis(later.index)
        yield from _unlike("rounds", f"{kind} start_s", later, before)
    if "transfers" in tables and {"duration_s", "due_s"} <= {*tables["transfers"]}:
        table = tables["transfers"]
        follows = table["duration_s"] / table["due_s"] - 1
        yield from _unlike("transfers", "error", table["error"], follows)


def _unlike(name: str, column: str, then: "pd.Series[Any]", now: "pd.Series[Any]") -> Iterator[str]:
    """The first place where numbers are not those that follow from others."""
    then, now = then.align(now, join="inner")
    wrong = _unequal(then.rename("about_s"), now)
    if wrong.any():
        at = int(wrong.argmax())
        place = f"{then.index.name or 'row'} {then.index[at]}"
        values = f"{then.iloc[at]} there, {now.iloc[at]} here"
        yield f"{name}.parquet: DIFFERS, {place}: {column} {values}"


def _order_of_time(measured: pd.DataFrame | None) -> Iterator[str]:
    """Steps that end before they begin."""
    if measured is None:
        return
    wrong = measured[~(measured["end_s"] >= measured["start_s"])]
    if len(wrong):
        row = wrong.iloc[0]
        where = f"round {row['round']}, client {row['client']}, {row['step']}"
        yield (
            f"measured.parquet: DIFFERS, {where}: begins at {row['start_s']} s and ends at "
            f"{row['end_s']} s"
        )


def _checks(run: Run) -> list[dict[str, Any]]:
    return run.manifest.get("validity") or []


def _different_manifest(run: Run, done: Emulation | None) -> Iterator[str]:
    emulation, manifest = run.scenario.emulation, run.manifest
    wanted: dict[str, Any] = {
        "seed": run.scenario.seed,
        "runtime": emulation.runtime,
        "congestion_control": emulation.congestion_control,
        "mtu": emulation.mtu,
        "clock": emulation.clock,
        "dilation": emulation.dilation,
        "status": "complete",
        "failure": None,
        "valid": all(check.get("ok") is True for check in _checks(run)) if _checks(run) else None,
    }
    if run.scenario.workload.compute == "none":
        wanted["data"] = "none: zeros of the same size"
    elif run.scenario.workload.data.source == "synthetic":
        wanted["data"] = f"synthetic images, seed {run.scenario.seed}"
    yield from _different_entries(manifest, wanted)
    if "faults" in manifest:
        known = [fault.to_json() for fault in planned(run.scenario)]
        if (manifest["faults"] or [])[: len(known)] != known:
            yield "manifest.json: DIFFERS: faults are not those of the scenario"
    calibration = run.tables.get("calibration")
    if calibration is not None and manifest.get("calibration") is not None:
        yield from _different_summary(manifest["calibration"], calibration)
    yield from _different_validity(run, done)


def _different_entries(manifest: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    for entry, value in wanted.items():
        if entry in manifest and manifest[entry] != value:
            yield f"manifest.json: DIFFERS: {entry} {manifest[entry]!r} there, {value!r} here"


def _different_summary(stored: Any, calibration: pd.DataFrame) -> Iterator[str]:
    summary = calibration_summary(calibration)
    try:
        why = _difference(pd.DataFrame(stored), summary, summary.columns.tolist())
    except UNEQUAL:
        why = "DIFFERS: is no summary"
    if why:
        yield f"manifest.json: calibration: {why}"


def _different_validity(run: Run, done: Emulation | None) -> Iterator[str]:
    checks, place = _checks(run), "manifest.json: validity:"
    known = [check for check in checks if check.get("check") in CHECKS]
    if checks and not known:  # of another kind of testbed
        return
    emulation = run.scenario.emulation
    for check in known:
        name, limit, value = (check[key] for key in ("check", "limit", "value"))
        allowed = {CHECKS[name].limit(name, emulation), getattr(emulation.limits, name)}
        if limit not in allowed:
            yield f"{place} DIFFERS: {name}: limit {limit!r} there, {min(allowed)} here"
        elif not isinstance(value, int | float) or check.get("ok") != (value <= limit):
            yield f"{place} DIFFERS: {name}: ok {check.get('ok')} there, {value} of {limit}"
    names = [str(check["check"]) for check in known]
    if again := {name for name in names if names.count(name) > 1}:
        yield f"{place} DIFFERS: {min(again)} twice"
    if done is None or not known:
        return
    made = {check.check: check for check in validity(done, MADE_AGAIN)}
    always = {
        name
        for name, check in CHECKS.items()
        if check.of_run is not None and name not in {*MADE_AGAIN, *SOMETIMES}
        if not (name in LIMITS_OF_REAL_CLOCK and emulation.clock == "virtual")
    }
    if lacking := [name for name in CHECKS if name in {*made, *always} and name not in names]:
        yield f"{place} DIFFERS: lacks {', '.join(lacking)}"
    for check in known:
        name, value = check["check"], check["value"]
        if name in MADE_AGAIN and name not in made:
            yield f"{place} DIFFERS: {name} does not apply to this run"
        elif name in made and not np.isclose(value, made[name].value, rtol=1e-6, atol=1e-6):
            yield f"{place} DIFFERS: {name}: {value} there, {made[name].value} here"


def _compare_page(run: Run, folder: Path, extent: Extent) -> None:
    if not (path := folder / "report.html").is_file():
        return
    page = _text(path)
    # A bundle does not have the name of the run's folder, which is a title only.
    name = unescape(found[1]) if (found := EYEBROW.search(page)) else run.folder
    extent.not_checked.append("report.html: name of the folder")
    made = render(replace(run, folder=name))
    extent.compare(path.name, without_links(page), made, run.manifest)
