# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The results of a campaign: Parquet tables whose rows are marked with their cell.

Every table begins with the columns of `PLACE` and one column per axis of any study (empty if a
study lacks that axis); then follow its own columns, see `TABLES`. A point that belongs to cells of
several studies has rows for each of them.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.analysis.learned import CURVE, curve_of, values_of
from orchestrator.campaigning.folder import CampaignFolder, manifest_of
from orchestrator.campaigning.spec import COLUMNS, Campaign, Cell, cells
from orchestrator.records.reader import read_run
from orchestrator.records.tables import read_own
from testbed.system.files import write_whole

PLACE = {
    "study": pa.string(),
    "point": pa.string(),
    "mode": pa.string(),
    "seed": pa.int64(),
    "paradigm": pa.string(),
}
"""The first columns of every table."""

TABLES: dict[str, dict[str, pa.DataType]] = {
    "points": {
        "status": pa.string(),
        "same_as": pa.string(),
        "valid": pa.bool_(),
        "rounds": pa.int64(),
        "latency_s": pa.float64(),
        "max_energy_j": pa.float64(),
        "objective": pa.float64(),
        "predicted_latency_s": pa.float64(),
        "predicted_wire_latency_s": pa.float64(),
        "wall_s": pa.float64(),
        "started": pa.string(),
        "host": pa.string(),
        "revision": pa.string(),
        "dirty": pa.bool_(),
    },
    "rounds": {
        "kind": pa.string(),
        "round": pa.int64(),
        "split": pa.int64(),
        "start_s": pa.float64(),
        "latency_s": pa.float64(),
        "max_energy_j": pa.float64(),
        "objective": pa.float64(),
    },
    "steps": {
        "kind": pa.string(),
        "round": pa.int64(),
        "client": pa.int32(),
        "iteration": pa.int32(),
        "step": pa.string(),
        "start_s": pa.float64(),
        "end_s": pa.float64(),
        "bytes": pa.int64(),
    },
    "budget": {"round": pa.int64(), "part": pa.string(), "seconds": pa.float64()},
    "validity": {
        "check": pa.string(),
        "limit": pa.float64(),
        "value": pa.float64(),
        "ok": pa.bool_(),
        "detail": pa.string(),
    },
    "learning": {
        "round": pa.int64(),
        "data": pa.string(),
        "client": pa.int64(),
        "iteration": pa.int64(),
        "time_s": pa.float64(),
        "loss": pa.float64(),
        "accuracy": pa.float64(),
        "smashed_error": pa.float64(),
        "gradient_error": pa.float64(),
    },
    "curves": {
        "round": pa.int64(),
        **{name: pa.float64() for name in CURVE if name != "round"},
    },
}
"""By table: its own columns and their types. Times are emulated seconds, except `wall_s`."""

ABOUT = ("status", "valid", "wall_s", "started", "host", "revision", "dirty")
"""Columns of `points` that are about the computation."""
KINDS = ("predicted", "predicted_wire", "measured")
MEANS = COLUMNS


def write_results(folder: CampaignFolder, campaign: Campaign) -> Path:
    """Collect the results of the finished points in tables in the directory's `results/`.

    Returns:
        The folder of the tables: one Parquet file per name in `TABLES`.
    """
    results = folder.path / "results"
    results.mkdir(exist_ok=True)
    placed = cells(campaign)
    axes = _axis_types(placed)
    finished = folder.finished([cell.point for cell in placed])
    failed = folder.failures([cell.point for cell in placed])
    requested = {
        m: pa.float64() for study in campaign.studies.values() for m in study.requested_metrics
    }
    for name, own in TABLES.items():
        columns = own | (requested if name == "points" else {})
        schema = pa.schema([*PLACE.items(), *axes.items(), *columns.items()])
        tables: Iterator[pd.DataFrame] = (
            read.assign(**_place(cell, axes))
            for cell in placed
            if (read := _read(name, campaign, cell, finished.get(cell.point.id), failed))
            is not None
        )
        if name == "points":
            tables = iter([_marked(pd.concat(tables, ignore_index=True), [*PLACE, *axes])])
        write_whole(results / f"{name}.parquet", partial(_write, schema=schema, tables=tables))
    return results


def _read(
    name: str, campaign: Campaign, cell: Cell, point: Path | None, failed: Container[str]
) -> pd.DataFrame | None:
    """A point's rows of a table, with the table's own columns; None if it has none."""
    if name == "points":
        status = "failed" if cell.point.id in failed else "missing"
        return (
            pd.DataFrame([{"status": status}]) if point is None else _summary(campaign, cell, point)
        )
    if point is None:
        return None
    if name == "steps":
        return _steps(point)
    if name == "curves":
        return _curve(point)
    if name == "validity":
        return pd.DataFrame(manifest_of(point)["validity"])
    file = point / f"{name}.parquet"
    return read_own(file) if file.is_file() else None


def _marked(points: pd.DataFrame, place: Sequence[str]) -> pd.DataFrame:
    """Mark points on whose results the seed has no effect.

    `same_as` is the ID of the first finished point of a cell, for its other points, if all have
    equal results; else it is missing.
    """
    cell = [name for name in place if name not in ("point", "seed")]
    numbers = [
        name
        for name in points
        if name not in {*place, *ABOUT} and pd.api.types.is_numeric_dtype(points[name])
    ]
    finished = points[points["status"] == "finished"]
    groups = finished.groupby(cell, sort=False, dropna=False)
    equal = groups[numbers].transform("nunique", dropna=False).le(1).all(axis=1)
    first = groups["point"].transform("first")
    same = first.where(equal & (first != finished["point"]))
    return points.assign(same_as=same.reindex(points.index))


def _place(cell: Cell, axes: Mapping[str, pa.DataType]) -> dict[str, Any]:
    labels = {
        name: str(label) if axes.get(name) == pa.string() else label
        for name, label in cell.axes.items()
    }
    return {
        "study": cell.study,
        "point": cell.point.id,
        "mode": cell.point.mode,
        "seed": cell.seed,
        **labels,
        "paradigm": cell.point.scenario.paradigm,
    }


def study_counts(
    folder: CampaignFolder, campaign: Campaign
) -> tuple[pd.DataFrame, dict[str, dict[str, Any]]]:
    """Counts of points per study and mode, and the failures by point ID."""
    placed = cells(campaign)
    points = [cell.point for cell in placed]
    finished, failures = folder.finished(points), folder.failures(points)
    valid = {id_ for id_, path in finished.items() if manifest_of(path)["valid"]}
    rows = [
        {
            "study": cell.study,
            "mode": cell.point.mode,
            "cells": 1,
            "finished": cell.point.id in finished,
            "not valid": cell.point.id in finished and cell.point.id not in valid,
            "failed": cell.point.id in failures,
            "missing": cell.point.id not in finished,
        }
        for cell in placed
    ]
    table = pd.DataFrame(rows).groupby(["study", "mode"], sort=False).sum().reset_index()
    return table, failures


def _write(path: Path, schema: pa.Schema, tables: Iterator[pd.DataFrame]) -> None:
    """Write tables in batches, so that their size is not limited by memory."""
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        waiting: list[pa.Table] = []
        for table in tables:
            table = table.reindex(columns=schema.names)
            waiting.append(pa.Table.from_pandas(table, schema, preserve_index=False))
            if sum(part.num_rows for part in waiting) > 100_000:
                writer.write_table(pa.concat_tables(waiting))
                waiting.clear()
        writer.write_table(pa.concat_tables([schema.empty_table(), *waiting]))


def _axis_types(placed: Sequence[Cell]) -> dict[str, pa.DataType]:
    """Type of each axis column; text if its values have several types."""
    labels: dict[str, list[Any]] = {}
    for cell in placed:
        for name, label in cell.axes.items():
            if name not in PLACE:
                labels.setdefault(name, []).append(label)
    found = {}
    for name, values in labels.items():
        kinds = {type(value) for value in values}
        if kinds == {bool}:
            found[name] = pa.bool_()
        elif kinds == {int}:
            found[name] = pa.int64()
        elif kinds <= {int, float}:
            found[name] = pa.float64()
        else:
            found[name] = pa.string()
    return found


def _curve(point: Path) -> pd.DataFrame | None:
    """The evaluations of a point on held-out data; None if there are none."""
    file = point / "curves.parquet"
    if file.is_file():
        return read_own(file)
    if not (point / "learning.parquet").is_file():
        return None
    run = read_run(point)
    return curve_of(run.tables["learning"], run.measured) if "learning" in run.tables else None


def _summary(campaign: Campaign, cell: Cell, point: Path) -> pd.DataFrame:
    """One row: means over the point's rounds, and facts about the computation."""
    manifest = manifest_of(point)
    made = {name: manifest.get(name) for name in TABLES["points"] if name in manifest}
    row: dict[str, Any] = {**made, "status": "finished"} | (
        {"rounds": 0} if cell.point.mode == "up" else _mean_round(cell, point)
    )
    if (point / "metrics.parquet").is_file():
        metrics = read_own(point / "metrics.parquet")
        row |= dict(zip(metrics["metric"], metrics["value"], strict=True))
    study = campaign.studies[cell.study]
    if study.of_learning and (curve := _curve(point)) is not None:
        row |= values_of(curve, study.target)
    return pd.DataFrame([row])


def _mean_round(cell: Cell, point: Path) -> dict[str, Any]:
    rounds = read_own(point / "rounds.parquet")
    means = rounds.groupby("kind")[list(MEANS)].mean()
    main = "measured" if cell.point.mode == "run" else "predicted"
    latencies = means["latency_s"].drop("measured", errors="ignore").add_suffix("_latency_s")
    count = int((rounds["kind"] == main).sum())
    return {"rounds": count, **means.loc[main], **latencies}


def _steps(point: Path) -> pd.DataFrame | None:
    tables = [
        read_own(file).assign(kind=kind)
        for kind in KINDS
        if (file := point / f"{kind}.parquet").is_file()
    ]
    if not tables:
        return None
    table = pd.concat(tables)
    return table.assign(step=table["step"].astype(str))
