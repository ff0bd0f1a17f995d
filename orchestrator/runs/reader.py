"""A run directory read: its manifest, scenario, trace and tables.

A file that is missing costs what it would have told, never the rest.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from ns3_scenarios.trace import ChannelTrace, TraceError
from orchestrator.analysis.error_budget import KEYS, PARTS
from orchestrator.runs.timelines import timeline_of
from orchestrator.scenario.loading import validate
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.timeline import Timeline

KINDS = ("predicted", "predicted_wire", "measured")

SPAN_COLUMNS = ("round", "paradigm", "client", "iteration", "step", "start_s", "end_s", "bytes")
TABLES = {
    "predicted": SPAN_COLUMNS,
    "predicted_wire": SPAN_COLUMNS,
    "measured": SPAN_COLUMNS,
    "rounds": (
        "kind",
        "round",
        "paradigm",
        "split",
        "start_s",
        "latency_s",
        "max_energy_j",
        "objective",
    ),
    "rates": ("slot", "time_s", "client", "uplink_bps", "downlink_bps"),
    "injector": ("slot", "boundary_s", "lateness_s"),
    "budget": ("round", "part", "seconds"),
    "budget_steps": (*KEYS, "part", "seconds"),
    "learning": ("round", "client", "iteration", "time_s", "loss", "accuracy"),
    "calibration": ("client", "direction", "level", "rate_bps", "error"),
    "accounts": ("round", "direction"),
    "waterfall": ("round", "part", "seconds"),
    "lost": ("kind", "round", "client", "lost_s", "stopped_s", "cause"),
    "energy": ("kind", "round", "client", "energy_j"),
}
"""The Parquet files of a run directory and the columns that are read."""


@dataclass(frozen=True, repr=False)
class Run:
    """What a run directory holds."""

    folder: str
    manifest: dict[str, Any]
    scenario: Scenario
    scenario_name: str
    scenario_tree: dict[str, Any]
    trace: ChannelTrace | None
    tables: dict[str, pd.DataFrame]
    """By file stem; those that are missing are not in it."""
    absent: dict[str, str]
    """By file stem: why a section cannot be shown, as one sentence."""

    @cached_property
    def predicted(self) -> Timeline:
        """The engine's rounds, payload bits only."""
        return self._timeline("predicted")

    @cached_property
    def predicted_wire(self) -> Timeline:
        """The engine's rounds, with the bytes that the frames on the link really take."""
        return self._timeline("predicted_wire")

    @cached_property
    def measured(self) -> Timeline:
        """The rounds as they went on the emulated network."""
        return self._timeline("measured")

    def _timeline(self, kind: str) -> Timeline:
        return timeline_of(self.tables, kind, self.scenario.uavs.count)

    @property
    def valid(self) -> bool | None:
        """Whether every check is within its limit; None where the run was not checked."""
        verdict = self.manifest.get("valid")
        return verdict if isinstance(verdict, bool) else None

    @property
    def checks(self) -> pd.DataFrame:
        """What the run was held against, one row a check: check, limit, value, ok, detail."""
        columns = ["check", "limit", "value", "ok", "detail"]
        return pd.DataFrame(self.manifest.get("validity") or [], columns=columns)

    @property
    def budget(self) -> pd.DataFrame:
        """What parts measured and predicted latency, in s: index round, a column for each cause."""
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
        """The prediction that the measurement is held against: with frames, if it is there."""
        return next((kind for kind in ("predicted_wire", "predicted") if kind in self.tables), None)

    @property
    def parts(self) -> list[str]:
        """The parts of the error budget that the run has: the known ones in their order."""
        if "budget" not in self.tables:
            return []
        have = self.tables["budget"]["part"].unique().tolist()
        return [*(part for part in PARTS if part in have), *(p for p in have if p not in PARTS)]

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """One row a round: latency, objective and energy of each kind; NaN where there is none."""
        columns = ["round", "paradigm", "split"]
        values = ["start_s", "latency_s", "max_energy_j", "objective"]
        table = self.tables.get("rounds")
        if table is None:
            table = pd.DataFrame(columns=TABLES["rounds"]).astype({"round": int})
        wide = table.drop_duplicates("round")[columns].sort_values("round")
        for kind in KINDS:
            part = table[table["kind"] == kind][["round", *values]]
            wide = wide.merge(part.rename(columns={v: f"{kind}_{v}" for v in values}), how="left")
        return wide


def read_run(run_dir: Path) -> Run:
    """Read a run directory.

    Raises:
        InputError: It is none: manifest.json or scenario.json is missing or broken.
    """
    manifest, tree = (_json(run_dir, name) for name in ("manifest.json", "scenario.json"))
    # Any name may stand in a report; a scenario's own is held to what a file name may be.
    scenario = validate(tree | {"name": "scenario"}, str(run_dir / "scenario.json"))
    tables: dict[str, pd.DataFrame] = {}
    absent: dict[str, str] = {}
    for name, columns in TABLES.items():
        try:
            tables[name] = _table(run_dir / f"{name}.parquet", columns)
        except _Absent as why:
            absent[name] = f"{name}.parquet {why}"
    trace = None
    try:
        trace = ChannelTrace.load(run_dir / "trace.npz")
    except TraceError as error:
        missing = not (run_dir / "trace.npz").exists()
        reason = "is not in the run directory" if missing else f"cannot be read ({error})"
        absent["trace"] = f"trace.npz {reason}"
    else:
        if trace.position_m is None:
            absent["trace"] = "the trace was given without positions"
    if "calibration" in absent and not scenario.emulation.calibrate:
        absent["calibration"] = (
            "emulation.calibrate is off: the links were not tried before the run"
        )
    if "learning" in absent and scenario.workload.compute == "none":
        absent["learning"] = "workload.compute is none: the run carried bytes and learnt nothing"
    return Run(
        folder=run_dir.name,
        manifest=manifest,
        scenario=scenario,
        scenario_name=str(tree.get("name", "scenario")),
        scenario_tree=tree,
        trace=trace,
        tables=tables,
        absent=absent,
    )


class _Absent(Exception):
    """A table cannot be shown; the message goes on from the file's name."""


def _json(run_dir: Path, name: str) -> dict[str, Any]:
    path = run_dir / name
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{run_dir}: not the directory of a run: {name} is missing") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    if not isinstance(tree, dict):
        raise InputError(f"{path}: must be a JSON object")
    return tree


def _table(path: Path, columns: tuple[str, ...]) -> pd.DataFrame:
    if not path.exists():
        raise _Absent("is not in the run directory")
    try:
        table = pd.read_parquet(path)
    except Exception as error:  # whatever the reader of a broken file comes up with
        reason = str(error).partition("\n")[0]
        raise _Absent(f"cannot be read ({reason})") from None
    if missing := [name for name in columns if name not in table]:
        raise _Absent(f"lacks the column {missing[0]}")
    if table.empty:
        raise _Absent("is empty")
    if "step" in table:
        table["step"] = table["step"].astype(str)
    if path.stem == "rates":  # two rounds share the slot in which one ends and the next begins
        table = table.drop_duplicates(["slot", "client"], keep="last")
    return table
