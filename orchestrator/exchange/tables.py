# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Reads measurements from CSV files, with a mapping of column names."""

import io
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from orchestrator.exchange.files import Array, Flight, local_m, slots_of, text_of
from testbed.core.errors import InputError

PLACES = (("x", "y", "z"), ("latitude", "longitude", "height"))
VALUES = ("gain_db", "gain_up_db", "gain_down_db", "rsrp_dbm", "uplink_bps", "downlink_bps")
COLUMNS = ("time", "uav", *PLACES[0], *PLACES[1], *VALUES)
"""Columns that are read; a column of the file with such a name needs no mapping."""
LEAST, MOST = -1e12, 1e15


@dataclass(frozen=True)
class Measured:
    """A table's values in every slot."""

    values: Mapping[str, Array]
    """By name from `VALUES`: values, shape [K, S]."""
    position_m: Array | None
    """Positions in m, shape [K, S, 3]; None if the table has none."""


def read(
    path: Path, columns: Mapping[str, str], slot_s: float, origin: tuple[float, float] | None
) -> Measured:
    """Read a CSV file and sample its `COLUMNS` at the start of every slot from its first time on.

    Values hold until the next row of the same UAV; positions are interpolated linearly.

    Args:
        path: The file; its first line names its columns.
        columns: By name from `COLUMNS`: the column's name in the file.
        slot_s: Length of a slot, s.
        origin: Latitude and longitude of x = y = 0 (default: those of the first row), degrees.

    Raises:
        InputError: A column is missing, or a row is wrong.
    """
    table = _table(path, columns)
    groups = [(name, rows) for name, rows in table.groupby("uav", sort=True)]
    first_s = float(table["time"].min())
    seconds = float(table["time"].max()) - first_s
    slots = slots_of(seconds + slot_s, slot_s, len(groups), path)
    times_s: Array = first_s + slot_s * np.arange(slots, dtype=np.float64)
    names = [name for name in VALUES if name in table]
    values: dict[str, Array] = {name: np.empty((len(groups), slots)) for name in names}
    places = []
    for k, (_, rows) in enumerate(groups):
        own_s = rows["time"].to_numpy(float)
        if not (np.diff(own_s) > 0).all():
            line = int(rows.index[int(np.argmin(np.diff(own_s) > 0)) + 1]) + 2
            raise InputError(f"{path}, line {line}: its time is not after that of the previous row")
        at = np.searchsorted(own_s, times_s + 1e-9, side="right") - 1
        for name in names:
            values[name][k] = rows[name].to_numpy(float)[np.maximum(at, 0)]
        if (position := _positions(rows, table, origin)) is not None:
            places.append(Flight(own_s, position).at(times_s))
    if not names and not places:
        raise InputError(f"{path}: has neither positions nor any of {', '.join(VALUES)}")
    return Measured(values, np.stack(places) if places else None)


def _table(path: Path, columns: Mapping[str, str]) -> pd.DataFrame:
    for ours in columns:
        if ours not in COLUMNS:
            raise InputError(f"`columns` {ours}: is not one of {', '.join(COLUMNS)}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header
            text = io.StringIO(text_of(path))
            table = pd.read_csv(text, skipinitialspace=True, index_col=False)
    except (ValueError, pd.errors.ParserWarning) as error:
        problem = " ".join(str(error).split())[:120]
        raise InputError(f"{path}: is not a CSV file ({problem})") from None
    for theirs in columns.values():
        if theirs not in table:
            raise InputError(f"{path}: has no column {theirs!r}; it has {_named(table)}")
    table = table.rename(columns={theirs: ours for ours, theirs in columns.items()})
    if table.columns.duplicated().any():
        raise InputError(
            f"{path}: has two columns {table.columns[table.columns.duplicated()][0]!r}"
        )
    if "time" not in table:
        raise InputError(f"{path}: has no column for time; it has {_named(table)}")
    if table.empty:
        raise InputError(f"{path}: has no rows")
    if not pd.api.types.is_numeric_dtype(table["time"]):
        moments = pd.to_datetime(table["time"], errors="coerce", utc=True, format="mixed")
        if moments.isna().any():
            raise InputError(f"{path}, line {_line(moments.isna())}: has no valid time")
        table["time"] = (moments - moments.min()).dt.total_seconds()
    if "uav" not in table:
        table["uav"] = 1
    for name in (name for name in COLUMNS if name in table and name != "uav"):
        numbers = pd.to_numeric(table[name], errors="coerce").astype(float)
        wrong = ~numbers.between(LEAST, MOST)
        if wrong.any():
            given = table[name].iloc[_line(wrong) - 2]
            raise InputError(f"{path}, line {_line(wrong)}: {name} must be a number, not {given!r}")
        table[name] = numbers
    return table


def _line(wrong: "pd.Series[bool]") -> int:
    return int(np.argmax(wrong.to_numpy())) + 2


def _named(table: pd.DataFrame) -> str:
    return ", ".join(repr(str(name)[:40])[1:-1] for name in table.columns[:20])


def _positions(
    rows: pd.DataFrame, table: pd.DataFrame, origin: tuple[float, float] | None
) -> Array | None:
    """Positions of one UAV's rows, shape [n, 3]; None if the table has none."""
    if {"x", "y"} <= set(rows):
        z = rows["z"] if "z" in rows else 0 * rows["x"]
        return np.stack([rows["x"], rows["y"], z], axis=1).astype(float)
    if {"latitude", "longitude"} <= set(rows):
        height = rows["height"] if "height" in rows else 0 * rows["latitude"]
        at = origin or (float(table["latitude"].iloc[0]), float(table["longitude"].iloc[0]))
        return local_m(
            rows["latitude"].to_numpy(), rows["longitude"].to_numpy(), height.to_numpy(), at
        )
    return None
