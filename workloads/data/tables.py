# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Images and labels from tables: parquet files, and the output of `datasets`' `save_to_disk`.

Only pyarrow is used. Arrow files are memory-mapped; the recently used row groups of parquet files
are cached.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from testbed.core.errors import InputError
from testbed.core.words import by_number
from testbed.system.files import MOST_DATA_BYTES, check_regular, json_value, opened_regular
from workloads.data.config import DataConfig
from workloads.data.folders import picture_bytes
from workloads.data.parts import FIELD, Division, divided, part_of, part_of_file, shown_names
from workloads.data.pictures import EncodedPictures, is_held_out
from workloads.models.chain import Images

GROUPS_KEPT = 8
ROW_BYTES = 32
"""Memory for a row's label or for an empty text."""
SAFE_BYTES, MOST_EXPANSION = 256 << 20, 200
"""A row group of more bytes, and of more than this multiple of the file's, is refused; so are
rows."""
MOST = 2**31
"""Class numbers are below this, so that they can be counted in any integer type."""


def table_files(root: Path) -> Division[Path] | None:
    """Table files of a folder by their use; None if there are no tables.

    Raises:
        InputError: It is not clear which files are for training.
    """
    if (root / "state.json").is_file():
        return Division(_arrow_files(root), None)
    if (root / "dataset_dict.json").is_file():
        folders = [folder.parent for folder in sorted(root.glob("*/state.json"), key=_place)]
        return divided(
            [(file, part_of(folder.name)) for folder in folders for file in _arrow_files(folder)],
            root,
        )
    places = ("*.parquet", "data/**/*.parquet", "**/*.parquet")
    files = next((found for place in places if (found := _visible(root, place))), [])
    if not files:
        return None
    parts = {file: part_of_file(file, root) for file in files}
    sets = {
        "/".join(name for name in file.relative_to(root).parts[:-1] if not part_of(name))
        for file, part in parts.items()
        if part
    }
    if len(sets) > 1:
        raise InputError(
            f"{FIELD}: {root} has several sets of tables, in {', '.join(sorted(sets))}; give the "
            "folder of one of them"
        )
    return divided(parts.items(), root)


def _visible(root: Path, place: str) -> list[Path]:
    """Files that match a pattern, except for those in hidden folders."""
    found = [file.relative_to(root) for file in root.glob(place)]
    found.sort(key=_place)
    return [root / f for f in found if not any(n.startswith(".") for n in f.parts)]


def _place(path: Path) -> list[list[tuple[int, float, str]]]:
    """A key that sorts paths by the numbers in the names of their folders and files."""
    return [by_number(name) for name in path.parts]


def _arrow_files(folder: Path) -> list[Path]:
    """Arrow files of a folder in the order of `state.json`."""
    try:
        state = json_value(folder / "state.json")
        return [folder / Path(entry["filename"]).name for entry in state["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{FIELD}: {folder / 'state.json'} does not list the files") from None


class PictureTable(EncodedPictures):
    """Labelled images in the rows of tables."""

    def __init__(self, root: Path, images: Images, config: DataConfig, train: bool):
        """Open the tables.

        Args:
            root: A folder for which `table_files` finds tables.
            images: Input format of the model.
            config: Optional names of the columns, and the seed for the held-out tenth of each class
                if the folder has no part for it.
            train: Whether to open the training set instead of the held-out one.

        Raises:
            InputError: The tables are invalid; the message is one line.
        """
        files = table_files(root)
        assert files is not None, root
        fit = chosen = files.train
        if not train and files.held_out is not None:
            chosen = files.held_out
        self._root, self._to = root, images
        self.files = chosen
        self.part = "" if files.held_out is None else shown_names(chosen, root)
        self.unused = [str(file.relative_to(root)) for file in files.unused]
        schema = _opened(fit[0]).schema_arrow
        self._column = _column("image_column", config.image_column, schema, _holds_pictures)
        others = [field for field in schema if field.name != config.partition_column]
        label = _column("label_column", config.label_column, pa.schema(others), _holds_labels)
        known, found = _labels(fit, label), _labels(chosen, label)
        if (known.dtype.kind in "iu") != (found.dtype.kind in "iu"):
            raise InputError(
                f"{FIELD}: {chosen[0]} has labels of another type than the training part"
            )
        values: npt.NDArray[Any] = np.unique(known)
        if len(strange := found[~np.isin(found, values)]):
            raise InputError(f"{FIELD}: {chosen[0]} has the class {strange[0]}, which train lacks")
        if values.dtype.kind in "iu":  # Integers are class indices; classes may have no images.
            self.names: Sequence[object] = range(int(values[-1]) + 1)
            labels = found.astype(np.int64)
        else:
            texts: list[str] = values.tolist()
            self.names = ordered = sorted(texts, key=by_number)
            number = {name: n for n, name in enumerate(ordered)}
            numbers = np.array([number[text] for text in texts], np.int64)
            labels = numbers[np.searchsorted(values, found)]
        self.classes = len(self.names)
        self._rows = np.arange(len(labels))
        if files.held_out is None:
            self._rows = np.flatnonzero(is_held_out(labels, config.seed) != train)
        self.labels = labels[self._rows]
        self.metadata = _Columns(fit[0], chosen, self._rows)
        if not len(self.labels):
            raise InputError(f"{FIELD}: {root} has no images to {'train' if train else 'test'} on")
        self._groups = [
            (file, number)
            for file, opened in ((file, _opened(file)) for file in chosen)
            for number in range(opened.num_row_groups)
        ]
        sizes = [_opened(file).metadata.row_group(n).num_rows for file, n in self._groups]
        self._starts = np.cumsum([0, *sizes])[:-1]
        self._group = lru_cache(GROUPS_KEPT)(self._read)

    def _encoded(self, index: int) -> tuple[str, bytes]:
        row = int(self._rows[index])
        group = int(np.searchsorted(self._starts, row, side="right")) - 1
        own = row - int(self._starts[group])
        file, number = self._groups[group]
        name = f"row {own} of {f'row group {number} of ' * (number > 0)}{file}"
        cell = self._group(group)[own].as_py()
        if isinstance(cell, dict):
            path = cell.get("path")
            cell = cell["bytes"]
            if cell is None and path is not None:
                return name, self._in_folder(name, path)
        return name, cell or b""

    def _in_folder(self, name: str, path: str) -> bytes:
        file = (self._root / path).resolve()
        if not file.is_relative_to(self._root.resolve()):
            raise InputError(f"{FIELD}: {name}: names {path[:200]!r}, which is not in its folder")
        return picture_bytes(file)

    def _read(self, group: int) -> pa.ChunkedArray:
        file, number = self._groups[group]
        return _cells(file, number, self._column)


class _Columns(Mapping[str, npt.NDArray[Any]]):
    """The columns of numbers and texts of table files, for some of the rows; read on demand."""

    def __init__(self, first: Path, files: Sequence[Path], rows: npt.NDArray[np.int64]) -> None:
        schema = _opened(first).schema_arrow
        self._names = [field.name for field in schema if _holds_labels(field.type)]
        self._files, self._rows = files, rows

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if name not in self._names:
            raise KeyError(name)
        values = _column_values(self._files, name)
        return values[self._rows]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def texts_of(file: Path, column: str | None) -> Iterator[str]:
    """The texts in a column of a table file; missing ones are empty.

    Args:
        file: The file.
        column: Name of the column; None: `text`, or the only column of texts.

    Raises:
        InputError: There is no such column, or several would be possible.
    """
    opened = _opened(file)
    names = [field.name for field in opened.schema_arrow if _holds_texts(field.type)]
    if column is None and "text" in names:
        column = "text"
    column = _column("text_column", column, opened.schema_arrow, _holds_texts)
    for number in range(opened.num_row_groups):
        for text in _cells(file, number, column):
            yield text.as_py() or ""


class _ArrowFile:
    """A memory-mapped file with an arrow stream, with the interface of a parquet file."""

    num_row_groups = 1

    def __init__(self, file: Path):
        check_regular(file)
        self._table = pa.ipc.open_stream(pa.memory_map(str(file))).read_all()
        self._table.validate(full=True)
        self.schema_arrow = self._table.schema
        self.metadata = self

    def row_group(self, number: int) -> "_ArrowFile":
        """The metadata of the only row group."""
        return self

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return int(self._table.num_rows)

    def read_row_group(self, number: int, columns: list[str]) -> pa.Table:
        """All rows of the file."""
        return self._table.select(columns)


def _parquet(file: Path) -> pq.ParquetFile:
    """A Parquet file whose row groups expand to a bounded size.

    Raises:
        OSError: The file cannot be opened.
        ValueError: The file is not regular, or claims more data than it can contain.
    """
    with opened_regular(file, MOST_DATA_BYTES) as (_, size):
        opened = pq.ParquetFile(file)
    about = opened.metadata
    groups = [about.row_group(number).total_byte_size for number in range(about.num_row_groups)]
    for needed in (*groups, ROW_BYTES * about.num_rows):
        if needed > max(SAFE_BYTES, MOST_EXPANSION * size):
            raise ValueError(f"claims {needed:,} bytes of values in a file of {size:,}")
    return opened


@lru_cache(64)
def _opened(file: Path) -> Any:
    try:
        return _parquet(file) if file.suffix == ".parquet" else _ArrowFile(file)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _unreadable(file, error) from None


def _cells(file: Path, group: int, column: str) -> pa.ChunkedArray:
    """A column of a row group."""
    try:
        return _opened(file).read_row_group(group, [column])[column]
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _unreadable(file, error) from None


def _unreadable(file: Path, error: Exception) -> InputError:
    why = " ".join(str(error).split())[:200]
    return InputError(f"{FIELD}: {file} cannot be read as a table ({why})")


def _labels(files: Sequence[Path], column: str) -> npt.NDArray[Any]:
    """All labels as numbers or texts, shape [N].

    Raises:
        InputError: A label is missing, below 0 or above the largest int64, or files differ.
    """
    labels, where = _column_values(files, column), f"{FIELD}: {files[0].parent}"
    if labels.dtype.kind != "U" and len(labels) and not 0 <= labels.min() <= labels.max() < MOST:
        value = labels.min() if labels.min() < 0 else labels.max()
        raise InputError(
            f"{where}: column {column!r} has the label {value}; labels are class numbers from 0"
        )
    return labels


def _column_values(files: Sequence[Path], column: str) -> npt.NDArray[Any]:
    """All values of a column as numbers or texts, shape [N].

    Raises:
        InputError: A value is missing, or files differ.
    """
    where = f"{FIELD}: {files[0].parent}"
    parts = []
    for file in files:
        opened = _opened(file)
        if column not in opened.schema_arrow.names:
            raise InputError(f"{FIELD}: {file} has no column {column!r}")
        for number in range(opened.num_row_groups):
            parts.append(_cells(file, number, column))
    chunks = [chunk for part in parts for chunk in part.chunks]
    if len({pa.types.is_integer(chunk.type) for chunk in chunks}) > 1:
        raise InputError(f"{where}: column {column!r} has numbers in one file, and text in another")
    values: npt.NDArray[Any] = np.concatenate([_values(chunk, column, where) for chunk in chunks])
    return values.astype(str) if values.dtype.kind == "O" else values


def _values(chunk: pa.Array, column: str, where: str) -> npt.NDArray[Any]:
    if chunk.null_count:
        raise InputError(f"{where}: a value is missing in column {column!r}")
    return chunk.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _column(
    key: str, given: str | None, schema: pa.Schema, fits: Callable[[pa.DataType], bool]
) -> str:
    """The column of the given name, or the only suitable one.

    Raises:
        InputError: There is no suitable column, or there are several.
    """
    names: list[str] = [field.name for field in schema if fits(field.type)]
    if given is not None and given in names:
        return given
    if given is None and len(names) == 1:
        return names[0]
    choices = ", ".join(names) or "none"
    what = "must name a column of the table" if given is None else f"{given!r} is not suitable"
    raise InputError(f"workload.data.{key}: {what}; suitable columns: {choices}")


def _holds_pictures(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return bool(kind.get_field_index("bytes") >= 0)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _holds_labels(kind: pa.DataType) -> bool:
    whole = pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(whole)


def _holds_texts(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
