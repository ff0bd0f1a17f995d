# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The tables of a run directory, read from files that nobody has checked.

A file's claims are held against its length, and against the memory that there is, before memory is
taken for it; its values against what a run of the scenario can have.
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

from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.timeline import STEPS
from testbed.system.files import read_regular

MOST_FILE_BYTES = 1 << 30
MOST_FOOTER_BYTES = 4 << 20
MOST_ROW_GROUPS = 10_000
MOST_WORDS, MOST_LETTERS = 10_000, 1000
"""Different texts in a column, and UTF-8 bytes of one."""
EASY_BYTES, MOST_GROWTH = 256 << 20, 200
"""A table of more bytes than this in memory, and of more than so many times its file's, holds
nothing that was measured."""
CODECS = ("SNAPPY", "UNCOMPRESSED")
"""No page grows beyond 22 times its length in these; what others unfold to is not known before."""
WIDTHS = {"BOOLEAN": 1, "INT32": 8, "INT64": 8, "FLOAT": 8, "DOUBLE": 8, "BYTE_ARRAY": 24}
"""Bytes of a value in memory at least, by its type in the file."""
MOST_S = 1e9
"""Of a moment or a duration: 31 years."""


@dataclass(frozen=True)
class Column:
    """What a column may hold."""

    kind: Literal["integer", "number", "text"]
    low: float = -np.inf
    high: float | Literal["rounds", "clients", "iterations"] = np.inf
    """At most; or the quantity of the scenario that it must stay within."""
    may_lack: bool = False
    """Whether NaN may stand where there is nothing, and infinity where something diverged."""
    words: tuple[str, ...] = ()
    """All texts that there are; none: any."""


TEXT = Column("text")
ROUND = Column("integer", 0, "rounds")
CLIENT = Column("integer", 1, "clients")
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
    "budget": {"round": ROUND, "part": TEXT, "seconds": SECONDS},
    # A step that not every stage of the budget has, after a loss, has no parts.
    "budget_steps": _STEPS | {"part": TEXT, "seconds": ANY},
    # Before the first round, and over no client, the global model was evaluated.
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
    "energy": {"kind": TEXT, "round": ROUND, "client": CLIENT, "energy_j": AMOUNT},
}
"""By file stem: the columns that are read, and what they may hold. A file may have others."""

OPTIONAL = {
    "data": TEXT,
    "paradigm": TEXT,
    "smashed_error": ANY,
    "gradient_error": ANY,
    "split": Column("integer", 0, 1000),
}
"""Columns that tables of some runs have besides."""
ONCE = {
    **dict.fromkeys(
        ("predicted", "predicted_wire", "measured"), ("round", "client", "iteration", "step")
    ),
    "rounds": ("kind", "round"),
    "energy": ("kind", "round", "client"),
    "decisions": ("round", "client"),
    "air_slots": ("round", "slot", "client", "direction"),
    "session": ("slot", "client", "direction"),
}
"""What no two rows of a table share."""


class Absent(Exception):
    """A table tells nothing; the message goes on from the file's name."""


def read_table(
    path: Path,
    scenario: Scenario,
    columns: Mapping[str, Column] | None = None,
    *,
    may_be_empty: bool = False,
) -> pd.DataFrame:
    """A table of a run directory, or of a session's.

    Args:
        path: The file.
        scenario: What the run was of.
        columns: Those that are read; left out: those of `TABLES` for the file's stem.
        may_be_empty: Whether a table without rows is one.

    Raises:
        Absent: It is not there, has no rows, or was written without a column that is read.
        InputError: It is no such table, is larger than it may be, or holds what no run has.
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
            "iterations": scenario.iterations,
        }
        for name in table.column_names:
            _check(table, name, columns.get(name) or _other(path.stem, name), limits)
        frame = _frame(table, len(data))
        _check_rows(frame, path.stem)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or _short(error)})") from None
    except (ValueError, pa.ArrowException) as error:  # Arrow's own are both
        raise InputError(f"{path}: {_short(error)}") from None
    return frame


def _short(error: Exception) -> str:
    line = " ".join(str(error).split())[:200] or type(error).__name__
    return "".join(letter if letter.isprintable() else "?" for letter in line)


def _arrow(data: bytes) -> pa.Table:
    """The table that a Parquet file holds, its texts as dictionaries.

    Raises:
        ValueError: The file says to hold more than it does, or than is ever measured.
    """
    footer_bytes = int.from_bytes(data[-8:-4], "little")
    if len(data) < 12 or data[-4:] != b"PAR1" or footer_bytes > len(data) - 12:
        raise ValueError("is not a Parquet file, or not all of one")
    if footer_bytes > MOST_FOOTER_BYTES:
        raise ValueError(f"describes itself in {footer_bytes} bytes")
    about = pq.read_metadata(pa.BufferReader(data))
    if about.num_row_groups > MOST_ROW_GROUPS:
        raise ValueError(f"has {about.num_row_groups} row groups")
    texts, each_bytes = [], 0
    for index in range(about.num_columns):
        column = about.schema.column(index)
        if column.path != column.name or column.physical_type not in WIDTHS:
            raise ValueError(f"{column.path[:80]}: holds neither numbers nor texts")
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
        raise ValueError("has two columns of one name")
    return table.select(own)


def _check_size(needed: int, held: int) -> None:
    """Refuse what takes more memory than a file can mean, or than there is.

    Raises:
        ValueError: Says how much.
    """
    if needed > max(EASY_BYTES, MOST_GROWTH * held):
        raise ValueError(f"claims {needed:,} bytes of values in a file of {held:,}")
    # Arrow's copy, pandas' and one of what is made of it.
    if 3 * needed > (free := psutil.virtual_memory().available):
        raise ValueError(f"needs {3 * needed:,} bytes of memory, and {free:,} are free")


def _other(stem: str, name: str) -> Column | None:
    """What a column may hold that is not among those that every such table has."""
    if stem == "accounts" and name.endswith("_bytes"):
        return Column("number", -(2**53), 2**53)
    return OPTIONAL.get(name)


def _check(table: pa.Table, name: str, column: Column | None, limits: dict[str, int]) -> None:
    """Hold a column's values against what they may be.

    Raises:
        ValueError: Names the column and the first value that is wrong.
    """
    values = table.column(name)
    if pa.types.is_dictionary(values.type):
        _check_words(values, name, column)
        return
    if column is None:
        return
    real, whole = pa.types.is_floating(values.type), pa.types.is_integer(values.type)
    if not {"number": real or whole, "integer": whole, "text": False}[column.kind]:
        raise ValueError(f"{name}: holds {values.type}, not {column.kind}s")
    array = values.to_numpy()
    if column.may_lack:
        return
    high = limits[column.high] if isinstance(column.high, str) else column.high
    wrong = ~((array >= column.low) & (array <= high))  # NaN is neither
    if values.null_count or wrong.any():
        found = array[wrong][0] if wrong.any() else "nothing"
        raise ValueError(f"{name}: must be {column.low:.15g} to {high:.15g}, not {found}")


def _check_words(values: pa.ChunkedArray, name: str, column: Column | None) -> None:
    words = values.chunk(0).dictionary
    if column is not None and (column.kind != "text" or not _is_text(words.type)):
        raise ValueError(f"{name}: holds {words.type}, not {column.kind}s")
    if len(words) > MOST_WORDS or (pc.max(pc.binary_length(words)).as_py() or 0) > MOST_LETTERS:
        raise ValueError(f"{name}: holds more text than a name has")
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
    """The table with its texts written out, as pandas has it."""
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
    """Hold a table's rows against each other.

    Raises:
        ValueError: Says which are wrong.
    """
    if stem in ONCE and (again := frame.duplicated(list(ONCE[stem]))).any():
        found = frame.loc[again, list(ONCE[stem])].iloc[0]
        where = ", ".join(f"{name} {value}" for name, value in found.items())
        raise ValueError(f"has two rows of {where}")
