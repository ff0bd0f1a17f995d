# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Reads run directories: manifest, scenario, trace and tables.

A missing file only removes its own data from the result; an existing file must be correct.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ns3_scenarios.trace import SlotTrace, TraceError, load_trace
from orchestrator.analysis.error_budget import PARTS
from orchestrator.records.directory import MANIFEST, SCENARIO
from orchestrator.records.tables import TABLES, Absent, read_table
from orchestrator.records.timelines import timeline_of
from orchestrator.scenario.loading import explain, validate
from orchestrator.scenario.schema import GUIDED, Scenario
from testbed.core.errors import InputError
from testbed.core.timeline import Timeline
from testbed.system.files import MOST_JSON_BYTES, read_json

KINDS = ("predicted", "predicted_wire", "measured")

Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Plain = bool | Whole | float | str | None


class Strict(BaseModel):
    """A model that does not convert values to its types."""

    model_config = ConfigDict(strict=True)


class _Check(Strict):
    check: str
    limit: Plain
    value: Plain
    ok: bool | None = None
    detail: str = ""


class _Fault(Strict):
    kind: str
    nodes: list[str]
    round: Whole | None
    start_s: float | None
    end_s: float | None
    factor: Plain = None
    origin: str


class Manifest(Strict):
    """The entries of a run's manifest that are read; all are optional, and others are ignored."""

    model_config = ConfigDict(extra="allow")

    status: str | None = None
    failure: str | None = None
    valid: bool | None = None
    validity: list[_Check] | None = None
    faults: list[_Fault] | None = None
    command: str | list[str] | None = None
    argv: list[str] | None = None
    data: str | None = None
    memory_bytes: Whole | None = None
    packages: dict[str, Plain] | None = None
    plugins: dict[str, str] | None = None
    testbed_version: Plain = None
    revision: Plain = None
    dirty: Plain = None
    started: Plain = None
    finished: Plain = None
    seed: Plain = None
    python: Plain = None
    kernel: Plain = None
    cpu: Plain = None
    host_cpu: Plain = None
    cores: Plain = None
    runtime: Plain = None
    congestion_control: Plain = None
    mtu: Plain = None
    dilation: Plain = None


@dataclass(frozen=True, repr=False)
class Run:
    """The contents of a run directory."""

    folder: str
    manifest: dict[str, Any]
    scenario: Scenario
    scenario_name: str
    scenario_tree: dict[str, Any]
    trace: SlotTrace | None
    tables: dict[str, pd.DataFrame]
    """Tables by file stem; missing files have no entry."""
    absent: dict[str, str]
    """For each missing file, by its stem: a sentence that explains why a section of the report
    cannot be shown."""

    @cached_property
    def predicted(self) -> Timeline:
        """The rounds as predicted by the engine; only the payload is counted."""
        return self._timeline("predicted")

    @cached_property
    def predicted_wire(self) -> Timeline:
        """The rounds as predicted by the engine; all bytes of the frames on the links are
        counted."""
        return self._timeline("predicted_wire")

    @cached_property
    def measured(self) -> Timeline:
        """The rounds as measured on the emulated network."""
        return self._timeline("measured")

    def _timeline(self, kind: str) -> Timeline:
        return timeline_of(self.tables, kind, self.scenario.uavs.count)

    @property
    def valid(self) -> bool | None:
        """Whether every check is within its limit; None if the run was not checked."""
        verdict = self.manifest.get("valid")
        return verdict if isinstance(verdict, bool) else None

    @property
    def is_guided(self) -> bool:
        """Whether the flight followed from the decisions during the run, and not from a trace; its
        rounds were then predicted on the flight, each from its measured start."""
        return self.manifest.get("flight") == GUIDED

    @property
    def checks(self) -> pd.DataFrame:
        """Validity checks of the run. One row per check, with the columns check, limit, value, ok
        and detail."""
        columns = ["check", "limit", "value", "ok", "detail"]
        return pd.DataFrame(self.manifest.get("validity") or [], columns=columns)

    @property
    def budget(self) -> pd.DataFrame:
        """Differences between measured and predicted latency, in s. The index is the round, and
        there is one column per cause."""
        if "budget" not in self.tables:
            return pd.DataFrame()
        table = self.tables["budget"].pivot_table(index="round", columns="part", values="seconds")
        return table.reindex(columns=self.parts).rename_axis(columns=None)

    def __repr__(self) -> str:
        verdict = {True: "valid", False: "not valid", None: "not checked"}[self.valid]
        return f"<Run of {self.scenario_name}: measured {self.measured!r}, {verdict}>"

    def _repr_html_(self) -> str:
        """Latencies by round and the verdict, for a notebook."""
        columns = ["round", "paradigm", "split", *(f"{kind}_latency_s" for kind in KINDS)]
        table: str = self.rounds[columns].to_html(index=False, max_rows=20)
        failed = self.checks[self.checks["ok"] == False]  # noqa: E712 (a column)
        lines = [repr(self), *(f"{row.check}: {row.value:.3g}" for row in failed.itertuples())]
        return table + "".join(f"<p>{escape(line)}</p>" for line in lines)

    @property
    def prediction(self) -> str | None:
        """Name of the prediction with which the measurement is compared: `predicted_wire` if it
        exists, otherwise `predicted`."""
        return next((kind for kind in ("predicted_wire", "predicted") if kind in self.tables), None)

    @property
    def parts(self) -> list[str]:
        """Names of the parts of the run's error budget. Built-in parts come first, in their usual
        order."""
        if "budget" not in self.tables:
            return []
        have = self.tables["budget"]["part"].unique().tolist()
        return [*(part for part in PARTS if part in have), *(p for p in have if p not in PARTS)]

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """One row per round: latency, objective and energy for each kind of timeline. Missing
        values are NaN."""
        columns = ["round", "paradigm", "split"]
        values = ["start_s", "latency_s", "max_energy_j", "objective"]
        table = self.tables.get("rounds")
        if table is None:
            table = pd.DataFrame(columns=list(TABLES["rounds"])).astype({"round": int})
        wide = table.drop_duplicates("round")[columns].sort_values("round")
        for kind in KINDS:
            part = table[table["kind"] == kind][["round", *values]]
            wide = wide.merge(part.rename(columns={v: f"{kind}_{v}" for v in values}), how="left")
        return wide


def read_run(
    path: str | Path, change: Callable[[dict[str, Any]], dict[str, Any]] = lambda tree: tree
) -> Run:
    """Read a run directory that may not be trustworthy.

    Args:
        path: The directory.
        change: Called with the keys and values of the scenario; its result is validated instead.

    Raises:
        InputError: The folder is not a run directory (manifest.json or scenario.json is missing),
            or a file is broken or has values that are impossible in a run; one line names the file.
    """
    run_dir = Path(path)
    manifest = read_manifest(run_dir / MANIFEST, Manifest)
    tree = read_object(run_dir / SCENARIO)
    if not isinstance(name := tree.get("name", "scenario"), str):
        raise InputError(f"{run_dir / SCENARIO}: name: must be a text")
    # Reports may have any name; a scenario's name must be a valid file name.
    scenario = validate(change(tree) | {"name": "scenario"}, str(run_dir / SCENARIO))
    tables: dict[str, pd.DataFrame] = {}
    absent: dict[str, str] = {}
    for stem in TABLES:
        try:
            table = read_table(run_dir / f"{stem}.parquet", scenario)
        except Absent as why:
            absent[stem] = f"{stem}.parquet {why}"
        else:
            if stem == "rates":  # rounds share the slot in which one ends and the next begins
                table = table.drop_duplicates(["slot", "client"], keep="last")
            tables[stem] = table
    trace = _trace(run_dir / "trace.npz", scenario)
    if trace is None:
        absent["trace"] = "trace.npz is not in the run directory"
    elif trace.position_m is None:
        absent["trace"] = "the trace was given without positions"
    if "calibration" in absent and (reason := scenario.emulation.uncalibrated):
        absent["calibration"] = f"{reason}: the links were not calibrated"
    if "learning" in absent and scenario.workload.compute == "none":
        absent["learning"] = "workload.compute is none: no model was trained"
    return Run(
        folder=os.fsencode(run_dir.name).decode("utf-8", "replace"),
        manifest=manifest,
        scenario=scenario,
        scenario_name=name,
        scenario_tree=tree,
        trace=trace,
        tables=tables,
        absent=absent,
    )


def read_manifest(path: Path, kind: type[Manifest]) -> dict[str, Any]:
    """The entries of a manifest, checked against `kind`.

    Raises:
        InputError: The manifest is missing or broken; one line names the entry.
    """
    manifest = read_object(path)
    try:
        kind.model_validate(manifest)
    except ValidationError as error:
        raise InputError(f"{path}: {explain(error.errors(include_url=False))}") from None
    return manifest


def read_object(path: Path, most_bytes: int = MOST_JSON_BYTES) -> dict[str, Any]:
    """A JSON object; see `read_json`.

    Raises:
        InputError: The file is missing, or is not a JSON object.
    """
    if not path.exists():
        where = f"{path.parent}: not the directory of a run"
        raise InputError(f"{where}: {path.name} is missing")
    tree = read_json(path, most_bytes)
    if not isinstance(tree, dict):
        raise InputError(f"{path}: must be a JSON object")
    return tree


def _trace(path: Path, scenario: Scenario) -> SlotTrace | None:
    """The trace; None if there is none.

    Raises:
        InputError: The trace is broken, or has another number of UAVs.
    """
    if not path.exists():
        return None
    try:
        trace = load_trace(path)
    except TraceError as error:
        raise InputError(str(error)) from None
    if trace.uavs != scenario.uavs.count:
        raise InputError(f"{path}: has {trace.uavs} UAVs, the scenario {scenario.uavs.count}")
    return trace
