# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Reads the tables of a run directory from files that are not trusted.

Before memory is allocated, the sizes that a file claims are checked against its length and the free
memory; its values are checked against the ranges that the scenario allows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orchestrator.scenario.schema import MOST_BLOCKS, MOST_CELLS, MOST_ITERATIONS, Scenario
from testbed.core.errors import InputError
from testbed.core.timeline import STEPS
from testbed.system.files import opened_regular, read_regular

MOST_FILE_BYTES = 1 << 30
MOST_FOOTER_BYTES = 4 << 20
MOST_ROW_GROUPS = 10_000
MOST_WORDS, MOST_LETTERS = 10_000, 1000
"""Most distinct texts in a column, and longest text in UTF-8 bytes."""
SAFE_BYTES, MOST_EXPANSION = 256 << 20, 200
"""A table is refused if it takes more bytes in memory and more than this multiple of its file."""
CODECS = ("SNAPPY", "UNCOMPRESSED")
"""Codecs with a known bound: no page expands by more than a factor of 22."""
WIDTHS = {"BOOLEAN": 1, "INT32": 8, "INT64": 8, "FLOAT": 8, "DOUBLE": 8, "BYTE_ARRAY": 24}
"""By type in the file: least number of bytes of a value in memory."""
MOST_S = 1e9
"""Limit of a time or duration, s: 31 years."""


@dataclass(frozen=True)
class Column:
    """Allowed values of a column."""

    kind: Literal["integer", "number", "text"]
    low: float = -np.inf
    high: float | Literal["rounds", "clients", "iterations"] = np.inf
    """Largest value, or the quantity of the scenario that limits it."""
    may_lack: bool = False
    """Whether NaN is allowed for missing values, and infinity for diverged ones."""
    words: tuple[str, ...] = ()
    """Allowed texts; empty: any."""


TEXT = Column("text")
ROUND = Column("integer", 0, "rounds")
CLIENT = Column("integer", 1, "clients")
EDGE = Column("integer", 1, 1000)
ITERATION = Column("integer", 1, "iterations")
STEP = Column("text", words=STEPS)
WAY = Column("text", words=("up", "down"))
SECONDS = Column("number", -MOST_S, MOST_S)
AMOUNT = Column("number", 0, 1e18)
SHARE = Column("number", 0, 1)
ANY = Column("number", may_lack=True)
SLOT = Column("integer", 0, 2**53)

_STEPS = {"round": ROUND, "client": CLIENT, "iteration": ITERATION, "step": STEP}
_SPANS = _STEPS | {
    "paradigm": TEXT,
    "start_s": SECONDS,
    "end_s": SECONDS,
    "bytes": Column("integer", 0, 2**53),
}
TABLES: dict[str, dict[str, Column]] = {
    "predicted": _SPANS,
    "predicted_wire": _SPANS,
    "measured": _SPANS,
    "rounds": {
        "kind": TEXT,
        "round": ROUND,
        "paradigm": TEXT,
        "split": Column("integer", 0, 1000),
        "start_s": SECONDS,
        "latency_s": SECONDS,
        "max_energy_j": AMOUNT,
        "objective": AMOUNT,
    },
    "decisions": {
        "round": ROUND,
        "client": CLIENT,
        "split": Column("integer", 0, 1000),
        "alpha": SHARE,
        "beta": SHARE,
        "rho": SHARE,
    },
    "rates": {"slot": SLOT, "time_s": SECONDS, "client": CLIENT}
    | {"uplink_bps": AMOUNT, "downlink_bps": AMOUNT},
    "injector": {"slot": SLOT, "boundary_s": SECONDS, "lateness_s": SECONDS},
    "air_slots": {"round": ROUND, "slot": SLOT, "client": CLIENT, "direction": WAY}
    | {"lost_frames": AMOUNT, "arrived_frames": AMOUNT, "asked_loss": SHARE},
    "resource_blocks": {"round": ROUND, "slot": SLOT, "time_s": SECONDS, "client": CLIENT}
    | {"direction": WAY, "active_s": SECONDS, "resource_blocks": Column("number", 0, MOST_BLOCKS)}
    | {"mcs": Column("integer", -1, 28), "layers": Column("integer", 1, 2)},
    "grants": {"round": ROUND, "slot": SLOT, "time_s": SECONDS, "client": CLIENT}
    | {"direction": WAY, "blocks": AMOUNT, "resource_blocks": Column("number", 0, MOST_BLOCKS)}
    | {"granted_bytes": AMOUNT, "lost_blocks": AMOUNT, "mcs": Column("integer", -1, 28)}
    | {"waiting_s": SECONDS},
    "cells": {"slot": SLOT, "time_s": SECONDS, "client": CLIENT}
    | {"cell": Column("integer", 0, MOST_CELLS), "sinr_db": ANY},
    "handovers": {"client": CLIENT, "start_s": SECONDS, "end_s": ANY}
    | dict.fromkeys(("from_cell", "to_cell"), Column("integer", 0, MOST_CELLS))
    | {"interruption_ms": ANY},
    "budget": {"round": ROUND, "part": TEXT, "seconds": SECONDS},
    # A step that is missing in a stage of the budget, after a loss, has no parts.
    "budget_steps": _STEPS | {"part": TEXT, "seconds": ANY},
    # Round -1, client 0 or iteration 0: evaluations of the global model.
    "learning": {
        "round": Column("integer", -1, "rounds"),
        "client": Column("integer", 0, "clients"),
        "iteration": Column("integer", 0, "iterations"),
        "time_s": SECONDS,
        "loss": ANY,
        "accuracy": ANY,
    },
    "calibration": {
        "client": CLIENT,
        "direction": TEXT,
        "level": TEXT,
        "rate_bps": AMOUNT,
        "error": Column("number", -1e9, 1e9),
    },
    "accounts": {"round": Column("integer", -1, "rounds"), "direction": TEXT},
    "waterfall": {"round": ROUND, "part": TEXT, "seconds": SECONDS},
    "lost": {
        "kind": TEXT,
        "round": ROUND,
        "client": CLIENT,
        "lost_s": SECONDS,
        "stopped_s": SECONDS,
        "cause": TEXT,
    },
    "backhaul": {"kind": TEXT, "round": ROUND, "edge": EDGE}
    | {"direction": WAY, "start_s": SECONDS, "end_s": SECONDS}
    | {"bytes": Column("integer", 0, 2**53)},
    "edge_rounds": {"kind": TEXT, "round": ROUND, "edge": EDGE, "edge_round": EDGE}
    | {"split": Column("integer", 0, 1000), "start_s": SECONDS, "latency_s": SECONDS}
    | {"objective": AMOUNT, "decision_s": AMOUNT},
    "energy": {"kind": TEXT, "round": ROUND, "client": CLIENT, "energy_j": AMOUNT},
}
"""By file stem: the required columns and their allowed values. A file may have others."""

OPTIONAL = {
    "data": TEXT,
    "paradigm": TEXT,
    "smashed_error": ANY,
    "gradient_error": ANY,
    "split": Column("integer", 0, 1000),
    "to_x_m": ANY,
    "to_y_m": ANY,
    "to_z_m": ANY,
    "flight_energy_j": AMOUNT,
    "max_flight_energy_j": AMOUNT,
    "tx_power_w": AMOUNT,
    "compute_flops": Column("number", 0, 1e21),
    "batch_size": Column("integer", 1, 4096),
    "local_iterations": Column("integer", 1, MOST_ITERATIONS),
    # 0: rows that belong to no edge round.
    "edge": Column("integer", 0, 1000),
    "edge_round": Column("integer", 0, 1000),
}
"""Columns that only some runs' tables have."""
UNIQUE = {
    **dict.fromkeys(
        ("predicted", "predicted_wire", "measured"), ("round", "client", "iteration", "step")
    ),
    "rounds": ("kind", "round"),
    "energy": ("kind", "round", "client"),
    "decisions": ("round", "client"),
    **dict.fromkeys(
        ("air_slots", "resource_blocks", "grants"), ("round", "slot", "client", "direction")
    ),
    "session": ("slot", "client", "direction"),
    "cells": ("slot", "client"),
    "edge_rounds": ("kind", "round", "edge", "edge_round"),
}
"""By file stem: columns that together identify a row, and edge_round where the table has it."""


class Absent(Exception):
    """A table is missing or incomplete; the message continues a sentence after the file's name."""


def read_table(
    path: Path,
    scenario: Scenario,
    columns: Mapping[str, Column] | None = None,
    *,
    may_be_empty: bool = False,
) -> pd.DataFrame:
    """Read a table of a run's or a session's directory.

    Args:
        path: The file.
        scenario: The run's scenario, which limits the values.
        columns: Required columns (default: those in `TABLES` for the file's stem).
        may_be_empty: Whether the table may have no rows.

    Raises:
        Absent: The file or a required column is missing, or the table has no rows.
        InputError: The file is not such a table, is too large, or has a value that is not allowed.
    """
    if not path.exists():
        raise Absent("is not in the run directory")
    columns = TABLES[path.stem] if columns is None else columns
    try:
        data = read_regular(path, MOST_FILE_BYTES)
        table = _arrow(data)
        if missing := [name for name in columns if name not in table.column_names]:
            raise Absent(f"lacks the column {missing[0]}")
        if not table.num_rows and may_be_empty:
            return pd.DataFrame(columns=table.column_names)
        if not table.num_rows:
            raise Absent("is empty")
        limits = {
            "rounds": scenario.rounds - 1,
            "clients": scenario.uavs.count,
            # A policy may decide on the iterations.
            "iterations": max(
                scenario.iterations, MOST_ITERATIONS * scenario.allocation.kind.decides
            )
            * scenario.edge_rounds,
        }
        for name in table.column_names:
            _check(table, name, columns.get(name) or _other(path.stem, name), limits)
        frame = _frame(table, len(data))
        _check_rows(frame, path.stem)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or _short(error)})") from None
    except (ValueError, pa.ArrowException) as error:  # Arrow raises both
        raise InputError(f"{path}: {_short(error)}") from None
    return frame


def check_bounds(path: Path) -> None:
    """Check that a table of any columns is whole, and small enough to be read.

    Raises:
        InputError: It is not.
    """
    try:
        _arrow(read_regular(path, MOST_FILE_BYTES))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or _short(error)})") from None
    except (ValueError, pa.ArrowException) as error:
        raise InputError(f"{path}: {_short(error)}") from None


def read_own(path: Path) -> pd.DataFrame:
    """A table that this machine has written itself.

    Raises:
        InputError: The file is missing or damaged; the message names it.
    """
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be read ({_short(error)})") from None


def check_whole(path: Path) -> None:
    """Check the length and the last bytes of a Parquet file, without reading its values.

    Raises:
        InputError: The file is missing or was cut.
    """
    try:
        with opened_regular(path, MOST_FILE_BYTES) as (file, size):
            file.seek(max(0, size - 8))
            _check_end(file.read(8), size)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {_short(error)}") from None


def _check_end(end: bytes, size: int) -> int:
    """The length of the footer by the last 8 bytes of a Parquet file of `size` bytes.

    Raises:
        ValueError: The file is not complete.
    """
    footer_bytes = int.from_bytes(end[:4], "little")
    if size < 12 or end[4:] != b"PAR1" or footer_bytes > size - 12:
        raise ValueError("is not a complete Parquet file")
    return footer_bytes


def _short(error: Exception) -> str:
    line = " ".join(str(error).split())[:200] or type(error).__name__
    return "".join(letter if letter.isprintable() else "?" for letter in line)


def _arrow(data: bytes) -> pa.Table:
    """Read a Parquet file as a table with dictionary-encoded texts.

    Raises:
        ValueError: The file is broken, or claims more data than it can contain.
    """
    footer_bytes = _check_end(data[-8:], len(data))
    if footer_bytes > MOST_FOOTER_BYTES:
        raise ValueError(f"has a footer of {footer_bytes} bytes")
    about = pq.read_metadata(pa.BufferReader(data))
    if about.num_row_groups > MOST_ROW_GROUPS:
        raise ValueError(f"has {about.num_row_groups} row groups")
    texts, each_bytes = [], 0
    for index in range(about.num_columns):
        column = about.schema.column(index)
        if column.path != column.name or column.physical_type not in WIDTHS:
            raise ValueError(f"{column.path[:80]}: contains neither numbers nor texts")
        if column.physical_type == "BYTE_ARRAY":
            texts.append(column.name)
        each_bytes += WIDTHS[column.physical_type]
    rows = 0
    for number in range(about.num_row_groups):
        group = about.row_group(number)
        rows += max(0, group.num_rows)
        for index in range(group.num_columns):
            chunk = group.column(index)
            if chunk.compression not in CODECS:
                raise ValueError(f"is compressed with {chunk.compression}, not with {CODECS[0]}")
            if chunk.total_compressed_size > len(data):
                raise ValueError(f"{chunk.path_in_schema[:80]}: is larger than the file")
    _check_size(max(rows, about.num_rows) * each_bytes, len(data))
    file = pq.ParquetFile(pa.BufferReader(data), metadata=about, read_dictionary=texts)
    table = file.read(use_threads=False).replace_schema_metadata(None).unify_dictionaries()
    own = [name for name in table.column_names if not name.startswith("__index_level_")]
    if len(set(own)) < len(own):
        raise ValueError("has two columns with the same name")
    return table.select(own)


def _check_size(needed: int, held: int) -> None:
    """Check the memory that a table needs against its file's size and the free memory.

    Raises:
        ValueError: The table needs too much memory.
    """
    if needed > max(SAFE_BYTES, MOST_EXPANSION * held):
        raise ValueError(f"claims {needed:,} bytes of values in a file of {held:,}")
    # One copy for Arrow, one for pandas and one for derived tables.
    if 3 * needed > (free := psutil.virtual_memory().available):
        raise ValueError(f"needs {3 * needed:,} bytes of memory, but only {free:,} are free")


def _other(stem: str, name: str) -> Column | None:
    """Allowed values of a column that is not required; None: any."""
    if stem == "accounts" and name.endswith("_bytes"):
        return Column("number", -(2**53), 2**53)
    return OPTIONAL.get(name)


def _check(table: pa.Table, name: str, column: Column | None, limits: dict[str, int]) -> None:
    """Check a column's values.

    Raises:
        ValueError: A value is not allowed; the message names it and the column.
    """
    values = table.column(name)
    if pa.types.is_dictionary(values.type):
        _check_words(values, name, column)
        return
    if column is None:
        return
    real, whole = pa.types.is_floating(values.type), pa.types.is_integer(values.type)
    if not {"number": real or whole, "integer": whole, "text": False}[column.kind]:
        raise ValueError(f"{name}: contains {values.type}, not {column.kind}s")
    array = values.to_numpy()
    if column.may_lack:
        return
    high = limits[column.high] if isinstance(column.high, str) else column.high
    wrong = ~((array >= column.low) & (array <= high))  # true for NaN
    if values.null_count or wrong.any():
        found = array[wrong][0] if wrong.any() else "nothing"
        raise ValueError(f"{name}: must be {column.low:.15g} to {high:.15g}, not {found}")


def _check_words(values: pa.ChunkedArray, name: str, column: Column | None) -> None:
    words = values.chunk(0).dictionary
    if column is not None and (column.kind != "text" or not _is_text(words.type)):
        raise ValueError(f"{name}: contains {words.type}, not {column.kind}s")
    if len(words) > MOST_WORDS or (pc.max(pc.binary_length(words)).as_py() or 0) > MOST_LETTERS:
        raise ValueError(f"{name}: contains too many or too long texts")
    if column is None:
        return
    if values.null_count:
        raise ValueError(f"{name}: must be a text, not nothing")
    for word in words.to_pylist():
        if column.words and word not in column.words:
            raise ValueError(f"{name}: {word[:80]!r} is not one of {', '.join(column.words)}")


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string())


def _frame(table: pa.Table, held: int) -> pd.DataFrame:
    """The table as a data frame, its texts decoded."""
    for index, name in enumerate(table.column_names):
        values = table.column(name)
        if pa.types.is_dictionary(values.type):
            words = values.chunk(0).dictionary
            longest = pc.max(pc.binary_length(words)).as_py() or 0
            _check_size(table.num_rows * (longest + 8), held)
            table = table.set_column(index, name, values.cast(values.type.value_type))
    frame: pd.DataFrame = table.to_pandas()
    return frame


def _check_rows(frame: pd.DataFrame, stem: str) -> None:
    """Check that no row is repeated.

    Raises:
        ValueError: Two rows have the same values in the columns of `UNIQUE`.
    """
    keys = list(UNIQUE.get(stem, ()))
    keys += [name for name in ("edge_round",) if name in frame and name not in keys]
    if stem in UNIQUE and (again := frame.duplicated(keys)).any():
        found = frame.loc[again, keys].iloc[0]
        where = ", ".join(f"{name} {value}" for name, value in found.items())
        raise ValueError(f"has two rows with {where}")
