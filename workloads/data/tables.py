# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Images and labels from tables: parquet files, and the output of `datasets`' `save_to_disk`.

Only pyarrow is used. Arrow files are memory-mapped; the recently used row groups of parquet files
are cached.
"""

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from testbed.core.errors import InputError
from workloads.data.config import DataConfig
from workloads.data.pictures import Indices, Pictures, is_held_out, normalised
from workloads.models.chain import Images

FIELD = "workload.data.source"
HELD_OUT = ("test", "validation", "val")
"""Names of parts with held-out samples; the first existing one is used."""
GROUPS_KEPT = 8


def parts_of(root: Path) -> dict[str, list[Path]]:
    """Table files of a folder by part: `train`, `test`, …, or all under an empty name; empty if
    there are no tables."""
    if (root / "state.json").is_file():
        return {"": _arrow_files(root)}
    if (root / "dataset_dict.json").is_file():
        folders = [folder.parent for folder in sorted(root.glob("*/state.json"))]
        return _by_part({file: folder.name for folder in folders for file in _arrow_files(folder)})
    places = ("*.parquet", "data/*.parquet", "*/*.parquet")
    files = next((found for place in places if (found := sorted(root.glob(place)))), [])
    return _by_part({file: _part_of(file) for file in files})


def _part_of(file: Path) -> str:
    """The part of a file, from the beginning of its name or its folder's name."""
    name = file.name.split("-")[0].split(".")[0]
    return name if name in ("train", *HELD_OUT) else file.parent.name


def _by_part(part: dict[Path, str]) -> dict[str, list[Path]]:
    """Group files by part; all are one part `` unless there are both training and held-out
    parts."""
    if "train" not in part.values() or not set(HELD_OUT) & set(part.values()):
        chosen = [file for file, name in part.items() if name == "train"] or list(part)
        return {"": chosen} if part else {}
    return {name: [f for f, own in part.items() if own == name] for name in set(part.values())}


def _arrow_files(folder: Path) -> list[Path]:
    """Arrow files of a folder in the order of `state.json`."""
    try:
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        return [folder / Path(entry["filename"]).name for entry in state["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{FIELD}: {folder / 'state.json'} does not list the files") from None


class PictureTable(Pictures):
    """Labelled images in the rows of tables."""

    def __init__(self, root: Path, images: Images, config: DataConfig, train: bool):
        """Open the tables.

        Args:
            root: A folder for which `parts_of` finds tables.
            images: Input format of the model.
            config: Optional names of the columns, and the seed for the held-out tenth of each class
                if the folder has no part for it.
            train: Whether to open the training set instead of the held-out one.

        Raises:
            InputError: The tables are invalid; the message is one line.
        """
        parts = parts_of(root)
        fit = chosen = parts["train" if "train" in parts else ""]
        if not train and "train" in parts:
            chosen = next(parts[name] for name in HELD_OUT if name in parts)
        self._root, self._to = root, images
        schema = _opened(fit[0]).schema_arrow
        self._column = _column("image_column", config.image_column, schema, _holds_pictures)
        label = _column("label_column", config.label_column, schema, _holds_labels)
        known, found = _labels(fit, label), _labels(chosen, label)
        names: npt.NDArray[Any] = np.unique(known)
        if not np.isin(found, names).all():
            strange = found[~np.isin(found, names)][0]
            raise InputError(f"{FIELD}: {chosen[0]} has the class {strange}, which train lacks")
        if names.dtype.kind in "iu":  # Integers are class indices; classes may have no images.
            names = np.arange(int(names[-1]) + 1)
        self.classes = len(names)
        labels = np.searchsorted(names, found).astype(np.int64)
        self._rows = np.arange(len(labels))
        if "train" not in parts:
            self._rows = np.flatnonzero(is_held_out(labels, config.seed) != train)
        self.labels = labels[self._rows]
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

    def images(self, indices: Sequence[int] | Indices) -> Tensor:
        """Images [n, 3, S, S]: the shorter side is resized to S, then the centre is cropped."""
        return torch.stack([self._image(int(self._rows[index])) for index in indices])

    def _image(self, row: int) -> Tensor:
        from torchvision.io import ImageReadMode, decode_image

        group = int(np.searchsorted(self._starts, row, side="right")) - 1
        cell = self._group(group)[row - int(self._starts[group])].as_py()
        try:
            data = cell if isinstance(cell, bytes) else cell["bytes"]
            if data is None:
                data = (self._root / cell["path"]).read_bytes()
            encoded = torch.frombuffer(bytearray(data), dtype=torch.uint8)
            pixels = decode_image(encoded, ImageReadMode.RGB)
        except (RuntimeError, OSError, TypeError, ValueError) as error:
            why = (str(error) or type(error).__name__).splitlines()[0]
            raise InputError(f"{FIELD}: {self._root}, row {row}: {why}") from None
        return normalised(pixels.float().div_(255)[None], self._to)[0]

    def _read(self, group: int) -> pa.ChunkedArray:
        file, number = self._groups[group]
        return _opened(file).read_row_group(number, [self._column])[self._column]


class _ArrowFile:
    """A memory-mapped file with an arrow stream, with the interface of a parquet file."""

    num_row_groups = 1

    def __init__(self, file: Path):
        self._table = pa.ipc.open_stream(pa.memory_map(str(file))).read_all()
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


@lru_cache(64)
def _opened(file: Path) -> Any:
    try:
        return pq.ParquetFile(file) if file.suffix == ".parquet" else _ArrowFile(file)
    except (OSError, pa.ArrowException) as error:
        why = str(error).splitlines()[0]
        raise InputError(f"{FIELD}: {file} cannot be read as a table ({why})") from None


def _labels(files: Sequence[Path], column: str) -> npt.NDArray[Any]:
    """All labels as numbers or texts, shape [N]."""
    parts = [
        _opened(file).read_row_group(number, [column])[column]
        for file in files
        for number in range(_opened(file).num_row_groups)
    ]
    whole = pa.chunked_array([chunk for part in parts for chunk in part.chunks])
    if whole.null_count:
        raise InputError(f"{FIELD}: {files[0].parent}: a label is missing in column {column!r}")
    labels: npt.NDArray[Any] = whole.to_numpy()
    if labels.dtype.kind in "iu" and len(labels) and labels.min() < 0:
        raise InputError(f"{FIELD}: {files[0].parent}: a label is below 0 in column {column!r}")
    return labels.astype(str) if labels.dtype.kind == "O" else labels


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
