"""The report of a run: one HTML page that needs nothing but itself.

`read_run` reads a run directory, the functions below it reckon what the page says in words and
tables, and `_chart_data` packs what the scripts in `templates/` draw. A file that is missing costs
its section, never the report.
"""

import base64
import hashlib
import json
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import yaml
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from ns3_scenarios.trace import ChannelTrace, TraceError
from orchestrator.analysis.error_budget import KEYS, PARTS, calibration_in_short
from orchestrator.scenario.loading import validate
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.paradigm import paradigm
from testbed.core.timeline import STEPS
from testbed.system.files import write_whole

TEMPLATES = Path(__file__).parent / "templates"

SCRIPTS = ("charts", "frame", "model", "timeline", "map", "panels", "page")
"""In the order in which the page runs them; a later one builds on the earlier ones."""

STEP_TITLES = {
    "SM": "adapters broadcast",
    "CF": "client forward",
    "CA": "smashed data up",
    "S": "server forward and backward",
    "SG": "gradient down",
    "CB": "client backward",
    "CM": "adapters up",
}

STEP_COLOURS = {
    "SM": "#f0e442",
    "CF": "#56b4e9",
    "CA": "#e69f00",
    "S": "#cc79a7",
    "SG": "#009e73",
    "CB": "#0072b2",
    "CM": "#d55e00",
}
"""Okabe and Ito's seven colours, told apart under every kind of colour blindness."""

KINDS = ("predicted", "predicted_wire", "measured")

PART_TITLES = {
    "start": "start of the round",
    "compute": "computing",
    "injection": "rate injection",
}
"""What the page calls the parts of the error budget that need more than their name."""

PURPOSES = {
    "payload": "tensors",
    "framing": "the testbed's headers, labels and receipts",
    "tls": "TLS records",
    "grpc": "gRPC and HTTP/2",
    "header": "Ethernet, IP and TCP headers of frames with data",
    "ack": "frames without data: acknowledgements",
    "resent": "frames sent again",
    "handshake": "opening connections",
    "other": "what the links counted beyond that",
}
"""What the bytes of a link are for, in words."""

CHECK_TITLES = {
    "calibration_error": "Error of the worst link before the run",
    "injector_lateness_s": "Lateness of rate changes, 99th percentile",
    "exhausted_slots": "Slots without rates",
    "dropped_frames": "Frames that a link's queue dropped",
    "backlog_bytes": "Left in a link's queue after a round",
    "compute_share": "Overruns of computing, of a round",
    "injection_share": "Late rate changes, of a round",
    "rest_share": "Unexplained, of a round",
    "transfer_error": "Error of transfers, 95th percentile",
    "cpu_steal": "CPU time taken by other guests",
    "cpu_others": "CPU time taken by other programs",
    "clock_drift_ppm": "Drift of the clock",
}

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
    "lost": ("kind", "round", "client", "lost_s", "cause"),
}
"""The Parquet files of a run directory and the columns that the report reads."""

MANIFEST = (
    *("testbed_version", "revision", "dirty", "command", "started", "finished", "seed", "python"),
    *("packages", "kernel", "cpu", "cores", "memory_bytes", "runtime", "congestion_control"),
    *("mtu", "dilation", "valid", "validity", "status", "failure", "data", "plugins"),
    "faults",
)
"""The manifest's entries that the page shows; one that is missing shows as a dash."""

# What the page carries at most, so that a long run opens as readily as a short one.
MAX_SPANS = 60_000
"""Steps of each kind: 100 UAVs, 20 rounds of 3 iterations, and room."""
MAX_RATE_POINTS = 240_000
"""Of all UAVs, both directions."""
MAX_PATH_POINTS_EACH = 600
MAX_ROUND_ROWS = 500


# --- reading -------------------------------------------------------------------------------------


@dataclass(frozen=True)
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


# --- what the page says --------------------------------------------------------------------------


@dataclass(frozen=True)
class Headline:
    """The run in three numbers and a sentence or two."""

    measured_s: float | None
    """Mean over the rounds, as all of these."""
    wire_s: float | None
    predicted_s: float | None
    wire_error: float | None
    """Measured over predicted with frames, less 1."""
    predicted_error: float | None
    worst_error: float | None
    """The largest of the rounds' errors against predicted with frames, with its sign."""
    reading: str


def headline(run: Run) -> Headline:
    """The run in short, over the rounds that were measured and predicted."""
    table = run.rounds

    def mean(rows: pd.DataFrame, kind: str) -> float | None:
        column = rows[f"{kind}_latency_s"].dropna()
        return float(column.mean()) if len(column) else None

    def against(kind: str) -> tuple[float | None, float | None]:
        both = table.dropna(subset=["measured_latency_s", f"{kind}_latency_s"])
        if both.empty:
            return None, None
        measured, predicted = both["measured_latency_s"], both[f"{kind}_latency_s"]
        errors = (measured / predicted - 1).to_numpy(float)
        return float(measured.sum() / predicted.sum() - 1), float(errors[np.abs(errors).argmax()])

    done = table.dropna(subset=["measured_latency_s"])
    shown = done if len(done) else table
    wire_error, worst = against("predicted_wire")
    short = Headline(
        measured_s=mean(shown, "measured"),
        wire_s=mean(shown, "predicted_wire"),
        predicted_s=mean(shown, "predicted"),
        wire_error=wire_error,
        predicted_error=against("predicted")[0],
        worst_error=worst,
        reading="",
    )
    return Headline(**(vars(short) | {"reading": _reading(run, short, len(done))}))


def _reading(run: Run, short: Headline, measured_rounds: int) -> str:
    sentences = []
    if run.manifest.get("status") == "failed":
        after = f"after {measured_rounds} of {run.scenario.rounds} rounds"
        why = run.manifest.get("failure") or "no reason was recorded"
        sentences.append(f"The run failed {after}: {_ended(str(why))}")
    if short.measured_s is None:
        return " ".join([*sentences, "Nothing was measured."])
    rounds = "The round" if measured_rounds == 1 else f"The {measured_rounds} rounds"
    took = "took" if measured_rounds == 1 else "took on average"
    first = f"{rounds} {took} {seconds(short.measured_s)} on the emulated network"
    if short.wire_error is not None:
        first += f", {_apart(short.wire_error)} the engine predicts for the frames on the link"
    sentences.append(first + ".")
    if short.predicted_error is not None:
        sentence = f"That is {_apart(short.predicted_error)} its prediction for the payload alone"
        if (parts := budget_means(run)) is not None:
            largest = max(parts, key=lambda part: abs(parts[part]))
            share = f"{part_title(largest)} ({milliseconds(parts[largest])})"
            sentence += f"; the largest part of the gap is {share}"
        sentences.append(sentence + ".")
    return " ".join(sentences)


def _apart(error: float) -> str:
    if abs(error) < 5e-6:
        return "just what"
    return f"{percent(abs(error), sign=False)} {'more' if error > 0 else 'less'} than"


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?")) else sentence + "."


def budget_means(run: Run) -> dict[str, float] | None:
    """Each part of the error budget in seconds, on average over the rounds; None without one."""
    if "budget" not in run.tables:
        return None
    means = run.tables["budget"].groupby("part")["seconds"].mean()
    return {part: float(means[part]) for part in run.parts}


def part_title(part: str) -> str:
    """What the page calls a part of the error budget."""
    return PART_TITLES.get(part, part)


def step_comparison(run: Run) -> pd.DataFrame:
    """Predicted against measured durations by kind of step, over all rounds, clients, iterations.

    Columns: step, count, predicted_s and measured_s (means), difference_s (mean), p95_s (95th
    percentile of the absolute difference). Empty where nothing can be compared.
    """
    columns = ["step", "count", "predicted_s", "measured_s", "difference_s", "p95_s"]
    if run.prediction is None or "measured" not in run.tables:
        return pd.DataFrame(columns=columns)
    predicted, measured = (
        table[KEYS].assign(duration_s=table["end_s"] - table["start_s"])
        for table in (run.tables[run.prediction], run.tables["measured"])
    )
    both = predicted.merge(measured, on=KEYS)
    both["difference_s"] = both["duration_s_y"] - both["duration_s_x"]
    both["apart_s"] = both["difference_s"].abs()
    by_step = both.groupby("step").agg(
        count=("step", "size"),
        predicted_s=("duration_s_x", "mean"),
        measured_s=("duration_s_y", "mean"),
        difference_s=("difference_s", "mean"),
        p95_s=("apart_s", lambda apart: apart.quantile(0.95)),
    )
    present = [step for step in STEPS if step in by_step.index]
    return by_step.loc[present].reset_index()[columns]


def budget_by_step(run: Run) -> pd.DataFrame | None:
    """Mean change of a step's duration, in s, that each part brings: index step, columns part."""
    if "budget_steps" not in run.tables:
        return None
    means = run.tables["budget_steps"].pivot_table(
        index="step", columns="part", values="seconds", aggfunc="mean"
    )
    present = [step for step in STEPS if step in means.index]
    return means.reindex(index=present, columns=run.parts)


def lateness(run: Run) -> dict[str, float] | None:
    """Percentiles of the injector's lateness in real seconds; None without a record."""
    if "injector" not in run.tables:
        return None
    late = run.tables["injector"]["lateness_s"].to_numpy(float)
    p50, p95, p99 = np.percentile(late, [50, 95, 99])
    return {"p50": p50, "p95": p95, "p99": p99, "max": late.max()}


# --- what the page draws -------------------------------------------------------------------------


def _chart_data(run: Run) -> dict[str, Any]:
    """Everything that the scripts draw, as plain JSON values.

    Times of steps are rounded to 10 ns, rates to a kbit/s, positions to a decimetre.
    """
    scenario = run.scenario
    return {
        "uavs": scenario.uavs.count,
        "rings_m": scenario.uavs.rings_m,
        "ring": [scenario.uavs.rings_m.index(ring) for ring in scenario.uavs.ring_m],
        "base_station_m": scenario.base_station.position_m,
        "slot_s": scenario.slot_s,
        "steps": [
            {"name": step, "title": STEP_TITLES[step], "colour": STEP_COLOURS[step]}
            for step in STEPS
        ],
        "rounds": [
            {
                "round": int(row["round"]),
                "start_s": {kind: _number(row[f"{kind}_start_s"], 9) for kind in KINDS},
                "latency_s": {kind: _number(row[f"{kind}_latency_s"], 9) for kind in KINDS},
            }
            for row in run.rounds.to_dict("records")
        ],
        "spans": {kind: _spans(run.tables[kind]) for kind in KINDS if kind in run.tables},
        "lost": _records(run.tables["lost"]) if "lost" in run.tables else [],
        "rates": _rates(run),
        "paths": _paths(run),
        "budget": _budget(run),
        "injector": _histogram(run),
        "learning": _learning(run),
    }


def _number(value: Any, digits: int) -> float | None:
    return round(float(value), digits) if np.isfinite(value) else None


def _numbers(values: Any, digits: int) -> list[float | None]:
    """A column as JSON has it: null for what is not a number, no digits that say nothing."""
    array = np.round(np.asarray(values, float), digits)
    if digits == 0:
        return [int(value) if np.isfinite(value) else None for value in array]
    return [value if np.isfinite(value) else None for value in array.tolist()]


def _spans(table: pd.DataFrame) -> dict[str, Any]:
    """Columns of the first steps by round and client, whole clients only, and how many there are.

    Clients are in the order of the file, and within one the steps by start.
    """
    ordered = table.sort_values(["round", "client", "start_s"], kind="stable")
    kept = len(ordered)
    if kept > MAX_SPANS:
        group = ordered[["round", "client"]].to_numpy()
        kept = MAX_SPANS
        while kept and (group[kept] == group[kept - 1]).all():
            kept -= 1
    part = ordered.head(kept)
    code = {step: index for index, step in enumerate(STEPS)}
    return {
        "round": part["round"].tolist(),
        "client": part["client"].tolist(),
        "iteration": part["iteration"].tolist(),
        "step": [code[step] for step in part["step"]],
        "start_s": _numbers(part["start_s"], 8),
        "end_s": _numbers(part["end_s"], 8),
        "bytes": part["bytes"].tolist(),
        "total": len(ordered),
    }


def _rates(run: Run) -> dict[str, Any] | None:
    """Rates by client in kbit/s; slots are merged to their mean where they are too many."""
    if "rates" not in run.tables:
        return None
    table = run.tables["rates"].sort_values(["client", "slot"], kind="stable")
    clients = sorted(table["client"].unique())
    wide = {
        name: table.pivot(index="slot", columns="client", values=f"{name}_bps")[clients]
        for name in ("uplink", "downlink")
    }
    time_s = table.drop_duplicates("slot").set_index("slot").sort_index()["time_s"].to_numpy(float)
    limit = max(2, MAX_RATE_POINTS // (2 * len(clients)))
    merged = -(-len(time_s) // limit)
    edges = np.arange(0, len(time_s), merged)

    def means(array: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        sizes = np.diff([*edges, len(array)])
        result: npt.NDArray[np.float64] = np.add.reduceat(array, edges, axis=0) / sizes[:, None]
        return result

    kbps = {name: means(frame.to_numpy(float) / 1e3) for name, frame in wide.items()}
    return {
        "clients": [int(client) for client in clients],
        "time_s": _numbers(time_s[edges], 6),
        "end_s": round(float(time_s[-1]) + run.scenario.slot_s, 6),
        "slots_a_point": merged,
        "uplink_kbps": [_numbers(column, 0) for column in kbps["uplink"].T],
        "downlink_kbps": [_numbers(column, 0) for column in kbps["downlink"].T],
    }


def _end_s(run: Run) -> float:
    """When the run ends, by whatever kind of timeline goes on longest."""
    return max(
        (float(run.tables[kind]["end_s"].max()) for kind in KINDS if kind in run.tables),
        default=0.0,
    )


def _paths(run: Run) -> dict[str, Any] | None:
    """Horizontal positions in metres over the run, thinned to what a path needs."""
    if run.trace is None or run.trace.position_m is None:
        return None
    slots = min(run.trace.slots, int(np.ceil(_end_s(run) / run.trace.slot_s)) + 1)
    points = min(slots, MAX_PATH_POINTS_EACH)
    chosen = np.unique(np.linspace(0, slots - 1, points).round().astype(int))
    position = run.trace.position_m[:, chosen]
    return {
        "time_s": _numbers(chosen * run.trace.slot_s, 6),
        "x_m": [_numbers(row, 1) for row in position[..., 0]],
        "y_m": [_numbers(row, 1) for row in position[..., 1]],
    }


def _budget(run: Run) -> list[dict[str, Any]] | None:
    """By round: the prediction for the payload, the parts, and the measured latency.

    Rounds that lack either latency are left out; None if none is left.
    """
    if "budget" not in run.tables:
        return None
    wide = run.tables["budget"].pivot_table(
        index="round", columns="part", values="seconds", aggfunc="sum"
    )
    wide = wide.reindex(columns=run.parts).fillna(0.0)
    columns = ["round", "predicted_latency_s", "measured_latency_s"]
    return [
        {
            "round": index,
            "predicted_s": _number(predicted_s, 9),
            "measured_s": _number(measured_s, 9),
            "parts": [
                {"key": part, "name": part_title(part), "seconds": _number(wide.at[index, part], 9)}
                for part in run.parts
            ],
        }
        for index, predicted_s, measured_s in run.rounds[columns].dropna().itertuples(index=False)
        if index in wide.index
    ] or None


def _histogram(run: Run) -> dict[str, Any] | None:
    """Lateness in ten bins a decade, over the decades that occur."""
    if "injector" not in run.tables:
        return None
    late = np.maximum(run.tables["injector"]["lateness_s"].to_numpy(float), 1e-7)
    low, high = np.floor(np.log10(late.min()) * 10), np.ceil(np.log10(late.max()) * 10)
    edges = 10 ** (np.arange(low, max(high, low + 1) + 1) / 10)
    edges[-1] = max(edges[-1], late.max())
    counts, _ = np.histogram(late, edges)
    return {"edges_s": edges.tolist(), "counts": counts.tolist(), "marks": lateness(run)}


def _learning(run: Run) -> list[dict[str, Any]] | None:
    """Curves of training (the mean over clients at each iteration, and each client's own) and of
    the global model on held-out data, where it was evaluated."""
    if "learning" not in run.tables:
        return None
    table = run.tables["learning"]
    if "paradigm" not in table:
        table = table.assign(paradigm=run.scenario.paradigm)
    curves: list[dict[str, Any]] = []
    held_out = table.iloc[:0]
    if "data" in table:
        held_out = table[table["data"] == "held-out"].sort_values("time_s")
        table = table[table["data"] == "train"]
    for name, part in table.groupby("paradigm", sort=False):
        mean = part.groupby(["round", "iteration"])[["time_s", "loss", "accuracy"]].mean()
        mean = mean.sort_values("time_s")
        curves.append(
            {
                "label": paradigm_title(str(name)),
                **{str(column): _numbers(mean[column], 6) for column in mean},
                "clients": [
                    {
                        "client": int(str(client)),
                        **{
                            column: _numbers(own[column], 6)
                            for column in ("time_s", "loss", "accuracy")
                        },
                    }
                    for client, own in part.sort_values("time_s").groupby(
                        part["client"].astype(int)
                    )
                ],
            }
        )
    if len(held_out):
        columns = {name: _numbers(held_out[name], 6) for name in ("time_s", "loss", "accuracy")}
        curves.append({"label": "held-out data", **columns, "clients": []})
    return curves


def paradigm_title(name: str) -> str:
    """The paradigm as the paper's figures print it; its name where nobody registered it."""
    try:
        return paradigm(name).title
    except InputError:
        return name


# --- numbers as the page prints them -------------------------------------------------------------

NOTHING = "–"


def _known(value: float | None) -> bool:
    return value is not None and bool(np.isfinite(value))


def seconds(value: float | None) -> str:
    """`12.345 s`."""
    return f"{value:,.3f} s" if _known(value) else NOTHING


def milliseconds(value: float | None) -> str:
    """Seconds as signed milliseconds: `+1.2 ms`, with a true minus; three decimals below 1 ms."""
    if value is None or not _known(value):
        return NOTHING
    ms = value * 1e3
    return _signed(f"{ms:+,.{3 if abs(ms) < 1 else 2 if abs(ms) < 10 else 1}f} ms")


def percent(value: float | None, sign: bool = True) -> str:
    """A fraction as per cent: `+0.12 %`, with a true minus."""
    if value is None or not _known(value):
        return NOTHING
    digits = 3 if abs(value) < 0.01 else 2
    return _signed(f"{value * 100:{'+' if sign else ''}.{digits}f} %")


def _signed(text: str) -> str:
    if not re.search("[1-9]", text):
        text = text.lstrip("+-")
    return text.replace("-", "−")


def number(value: float | None, digits: int = 2) -> str:
    """`1,234.50`."""
    return f"{value:,.{digits}f}" if _known(value) else NOTHING


def plain(value: Any) -> str:
    """A value of the manifest, in words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return NOTHING if value is None else str(value)


def observed(value: Any, check: str) -> str:
    """What a check of the validity compares, in the unit that its name says."""
    if isinstance(value, (bool, str)) or value is None:
        return plain(value)
    if check.endswith("_s"):
        return f"{value * 1e3:,.3g} ms"
    if check.endswith("_ppm"):
        return f"{value:,.3g} ppm"
    if check.endswith("_bytes"):
        return f"{value:,.0f} B"
    if check.endswith(("_share", "_error", "_frames")) or check.startswith("cpu_"):
        return f"{value * 100:,.3g} %"
    return plain(value)


# --- the page ------------------------------------------------------------------------------------


def write_report(run_dir: Path) -> Path:
    """Write `report.html` into a run directory, whole or not at all, and answer its path.

    The page carries its own data, style and scripts; its content security policy forbids it to ask
    for anything else, and allows no script but the report's.

    Raises:
        InputError: It is not the directory of a run.
    """
    page = render(read_run(run_dir))
    path = run_dir / "report.html"
    write_whole(path, lambda partial: partial.write_text(page, encoding="utf-8"))
    return path


def render_page(template: str, scripts: Iterable[str], chart_data: Any, **context: Any) -> str:
    """A page that needs nothing but itself, of a template, scripts and what these draw."""
    environment = Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "seconds": seconds,
        "milliseconds": milliseconds,
        "percent": percent,
        "number": number,
        "plain": plain,
        "observed": observed,
    }
    script = "".join(_source(f"{name}.js") for name in scripts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template(template).render(
        style=Markup(_source("report.css")),
        script=Markup(script),
        script_hash=digest,
        data=Markup(_embedded(chart_data)),
        **context,
    )


def render(run: Run) -> str:
    """The page of a run."""
    manifest, rounds = dict.fromkeys(MANIFEST) | run.manifest, run.rounds
    by_step = budget_by_step(run)
    return render_page(
        "report.html",
        SCRIPTS,
        _chart_data(run),
        run=run,
        manifest=manifest,
        short=headline(run),
        paradigm=paradigm_title(run.scenario.paradigm),
        split=_range(rounds["split"]) if len(rounds) else str(run.scenario.workload.split),
        rounds=_round_rows(rounds.head(MAX_ROUND_ROWS)),
        steps=step_comparison(run).to_dict("records"),
        step_titles=STEP_TITLES,
        step_colours=STEP_COLOURS,
        prediction={"predicted_wire": "with frames", "predicted": "payload only"}.get(
            run.prediction or "", NOTHING
        ),
        part_titles={part: part_title(part) for part in run.parts},
        calibration=_calibration(run),
        overheads=_overheads(run),
        composition=_composition(run),
        purposes=PURPOSES,
        check_titles=CHECK_TITLES,
        budget=_budget_rows(run),
        budget_by_step=None if by_step is None else by_step.to_dict("index"),
        lost=_lost(run),
        lateness=lateness(run),
        failed_checks=[check for check in manifest.get("validity") or [] if not check.get("ok")],
        command=_command(manifest.get("command")),
        scenario_text=yaml.safe_dump(
            run.scenario_tree, sort_keys=False, allow_unicode=True, default_flow_style=None
        ),
        bytes_by_step=_bytes_by_step(run),
    )


def _source(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _embedded(value: Any) -> str:
    """JSON that cannot leave the script element in which it stands."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")


def _range(values: Iterable[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}–{high}"


def _round_rows(rounds: pd.DataFrame) -> list[dict[str, Any]]:
    """The rounds with the differences that the table prints."""
    table = rounds.copy()
    for kind in ("predicted", "predicted_wire"):
        table[f"{kind}_difference_s"] = table["measured_latency_s"] - table[f"{kind}_latency_s"]
        table[f"{kind}_error"] = table["measured_latency_s"] / table[f"{kind}_latency_s"] - 1
    return _records(table)


def _budget_rows(run: Run) -> list[dict[str, Any]]:
    """The budget by round, with what the parts leave unexplained (nothing, if all is well)."""
    rows = []
    for row in (_budget(run) or [])[:MAX_ROUND_ROWS]:
        gap_s = row["measured_s"] - row["predicted_s"]
        explained_s = sum(part["seconds"] for part in row["parts"])
        rows.append(row | {"gap_s": gap_s, "unexplained_s": gap_s - explained_s})
    return rows


def _lost(run: Run) -> list[dict[str, Any]]:
    """Who was lost in which round, measured and predicted, and when; NaN where it was not."""
    if "lost" not in run.tables:
        return []
    wide = run.tables["lost"].pivot_table(
        "lost_s", ["round", "client", "cause"], "kind", observed=True
    )
    return _records(wide.reindex(columns=["measured", run.prediction]).reset_index())


def _calibration(run: Run) -> list[dict[str, Any]]:
    """One row a direction and level of rates: rate_bps, and the links' errors."""
    if "calibration" not in run.tables:
        return []
    return _records(calibration_in_short(run.tables["calibration"]))


def _overheads(run: Run) -> list[dict[str, Any]]:
    """What the links carried in the rounds: purpose, up and down (bytes), share of all bytes."""
    if "accounts" not in run.tables:
        return []
    table = run.tables["accounts"]
    purposes = [str(name) for name in table if str(name).endswith("_bytes")]
    sums = table[table["round"] >= 0].groupby("direction")[purposes].sum()
    up, down = sums.reindex(["up", "down"], fill_value=0).to_numpy(float)
    total = float((up + down).sum())
    return [
        {
            "purpose": name.removesuffix("_bytes"),
            "up": float(upward),
            "down": float(downward),
            "share": float(upward + downward) / total if total else None,
        }
        for name, upward, downward in zip(purposes, up, down, strict=True)
        if upward or downward
    ]


def _composition(run: Run) -> list[dict[str, Any]]:
    """What a round's latency is made of, on average: part, seconds, share of the latency."""
    if "waterfall" not in run.tables:
        return []
    means = run.tables["waterfall"].groupby("part", sort=False)["seconds"].mean()
    total = float(means.sum())
    return [
        {"part": str(part), "seconds": float(mean), "share": float(mean) / total if total else None}
        for part, mean in means.items()
        if mean
    ]


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _bytes_by_step(run: Run) -> dict[str, tuple[float, float]]:
    """Mean bytes of each kind of transfer: payload, and with the frames around it."""
    kinds = ("predicted", "predicted_wire")
    if any(kind not in run.tables for kind in kinds):
        return {}
    means = [run.tables[kind].query("bytes > 0").groupby("step")["bytes"].mean() for kind in kinds]
    return {
        step: (float(means[0][step]), float(means[1][step]))
        for step in STEPS
        if step in means[0] and step in means[1]
    }


def _command(command: Any) -> str:
    if isinstance(command, list):
        return shlex.join(str(word) for word in command)
    return str(command or "")
