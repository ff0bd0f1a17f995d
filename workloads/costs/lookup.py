# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Costs of a model's splits: from the paper, or counted once and cached."""

import hashlib
import json
import logging
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version

from testbed.system.files import write_json
from testbed.system.folders import cache_folder
from workloads.costs.profile import (
    PAPER,
    PAPER_CLASSES,
    PAPER_MODEL,
    PAPER_RANK,
    SMALL,
    SMALL_CLASSES,
    SMALL_MODEL,
    SplitProfile,
)
from workloads.models.config import ModelConfig, file_label, plugin_model

log = logging.getLogger(__name__)


def profile_for(config: ModelConfig) -> SplitProfile:
    """The paper's table for the paper's model, classes and adapters; otherwise counted costs.

    Raises:
        InputError: The model is unknown.
    """
    of_whom = (config.model, config.classes)
    if of_whom == (PAPER_MODEL, PAPER_CLASSES) and _is_plain(config, 224):
        return PAPER
    if of_whom == (SMALL_MODEL, SMALL_CLASSES) and _is_plain(config, 64):
        return SMALL
    return counted(config)


def _is_plain(config: ModelConfig, pixels: int) -> bool:
    """Whether costs depend only on model and classes: images have that size, and LoRA of the
    paper's rank is applied to all layers."""
    return (
        config.image_size in (None, pixels)
        and config.rank == PAPER_RANK
        and config.targets is None
        and config.adapters == "lora"
        and config.train_head
    )


def counted(config: ModelConfig) -> SplitProfile:
    """Costs counted on the model, cached in the user's cache folder.

    The first count imports torch and takes some seconds; later ones read a small JSON file.

    Raises:
        InputError: The model is unknown.
    """
    path = cache_folder() / "profiles" / _file_name(config)
    try:
        columns = json.loads(path.read_text(encoding="utf-8"))
        labels, size = int(columns.pop("labels")), int(columns.pop("trainable_bytes"))
        columns = {name: tuple(column) for name, column in columns.items()}
        return SplitProfile(**columns, labels=labels, trainable_bytes=size)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        pass  # Not counted yet, or an invalid file.
    log.debug("counting the costs of the splits of %s, once", config.model)
    from workloads.costs.counting import count

    profile = count(config)
    # If the folder is not writable, the next run counts again.
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, asdict(profile))
    return profile


def _file_name(config: ModelConfig) -> str:
    """A file name that contains everything that the counts depend on."""
    versions = "-".join(f"{name}{version(name)}" for name in ("torch", "timm"))
    size = "" if config.image_size is None else f"-{config.image_size}px"
    rest = plugin_model(config.model, config.parameters)
    if config.targets is not None:
        rest["targets"] = config.targets
    if config.adapters != "lora":
        rest["adapters"] = config.adapters
    if not config.train_head:
        rest["train_head"] = False
    if config.batch_norm != "averaged":
        rest["batch_norm"] = config.batch_norm
    text = json.dumps(rest, sort_keys=True)
    more = f"-{hashlib.sha256(text.encode()).hexdigest()[:16]}" if rest else ""
    name = f"{file_label(config.model)}{size}-{config.classes}c-r{config.rank}"
    return f"counted2-{name}{more}-{versions}.json"
