# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Examination of real data before a run: the recognised data set, and whether all pictures can be
read.

The result is kept in the cache folder under the digests of the data, so that the pictures are
decoded once, and a later run of the same data does not import torch.
"""

import hashlib
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import numpy as np

from testbed.core.errors import InputError
from testbed.system.files import write_json
from workloads.data.config import DataConfig
from workloads.data.folders import other_files, own_pictures
from workloads.data.partitions import COLUMN
from workloads.data.parts import FIELD
from workloads.models.config import ModelConfig, plugin_model

log = logging.getLogger(__name__)

FORMAT = 1
"""Version of the examination; raise it when data are read differently."""
KEPT_APART = ("source", "partition", "partition_parameters", "partition_column")
"""Keys of the data that do not affect their examination."""
MANY = 5000
"""Number of pictures from which their decoding is announced."""


def data_line(
    model: ModelConfig,
    data: DataConfig,
    digests: Mapping[str, str],
    evaluates: bool,
    cache: Path,
) -> str:
    """Description of a data set: classes, samples, and the parts they are from.

    Args:
        model: The model that is trained.
        data: Configuration of the data, whose source is a folder.
        digests: Result of `workloads.data.digests.data_digests`.
        evaluates: Whether the run needs held-out samples.
        cache: Cache folder.

    Raises:
        InputError: The data do not fit the model, or pictures cannot be read.
    """
    parts = {
        "format": FORMAT,
        "digests": dict(digests),
        "data": {k: v for k, v in asdict(data).items() if k not in KEPT_APART},
        "model": [model.model, model.classes, model.image_size],
        "by_column": data.partition == COLUMN,  # Folders may be those of clients then.
        "evaluates": evaluates,
        "pillow": version("pillow"),
        **plugin_model(model.model, model.parameters),
    }
    name = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
    path = cache / "data" / f"{name}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads(path.read_text(encoding="utf-8"))["line"])
    line = _examined(model, data, evaluates)
    # If the folder is not writable, the next run examines again.
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"line": line})
    return line


def _examined(model: ModelConfig, data: DataConfig, evaluates: bool) -> str:
    from workloads.data.pictures import EncodedPictures, Pictures
    from workloads.data.samples import Dataset, Folder, classes_in_words, open_data
    from workloads.data.tokens import PackedTokens
    from workloads.models.families import chain_of

    input_ = chain_of(model).input
    train = open_data(data, model.classes, input_)
    held_out: Dataset | None = None
    with suppress(*() if evaluates else (InputError,)):
        held_out = open_data(data, model.classes, input_, train=False)
    sets = [train] if held_out is None else [train, held_out]
    encoded = [each for each in sets if isinstance(each, EncodedPictures)]
    count = sum(len(each.labels) for each in encoded)
    if count >= MANY:
        log.info("%s: decoding %s pictures, once, to see that all can be read", FIELD, f"{count:,}")
    if bad := [fault for each in encoded for fault in each.unreadable()]:
        raise InputError(
            f"{FIELD}: {len(bad)} of {count} pictures cannot be read; the first is {bad[0]}"
        )
    if not isinstance(train, Pictures):
        found = f"tokens 0 to {train.classes - 1}, {len(train.labels)} training sequences"
        found += f" {train.described}" if isinstance(train, PackedTokens) else ""
        found += f", {0 if held_out is None else len(held_out.labels)} held out"
        return found + (f" {held_out.described}" if isinstance(held_out, PackedTokens) else "")
    words = [classes_in_words(train), f"{len(train.labels)} training samples{_of(train.part)}"]
    if held_out is None:
        words.append("none held out")
    else:
        assert isinstance(held_out, Pictures)
        of = _of(held_out.part) or " (a tenth of each class, by seed)"
        words.append(f"{len(held_out.labels)} held out{of}")
    for use, each in (("train on", train), ("evaluate on", held_out)):
        present = 0 if each is None else len(np.unique(each.labels))
        if 0 < present < train.classes:
            words.append(f"no samples to {use} of {train.classes - present} of the classes")
    if isinstance(train, Folder):
        if count := own_pictures(train.folder):
            words.append(f"{count} pictures outside of the folders of classes not read")
        if count := other_files(train.folder):
            words.append(f"{count} files not read, as their names do not end like pictures")
    if train.unused:
        words.append(f"not used: {', '.join(train.unused[:4])}{', …' * (len(train.unused) > 4)}")
    return ", ".join(words)


def _of(part: str) -> str:
    return f" in {part}" if part else ""
