# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The costs of a model's splits: the paper's, or counted once and remembered."""

import json
import logging
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version

from testbed.system.files import write_json
from testbed.system.folders import cache_folder
from workloads.costs.profile import PAPER, PAPER_CLASSES, PAPER_MODEL, PAPER_RANK, SplitProfile

log = logging.getLogger(__name__)


def profile_for(model: str, classes: int, rank: int, image_size: int | None = None) -> SplitProfile:
    """The paper's table for the paper's model, classes and rank; else counted.

    Raises:
        InputError: No such model.
    """
    if (model, classes, rank) == (PAPER_MODEL, PAPER_CLASSES, PAPER_RANK) and image_size in (
        None,
        224,
    ):
        return PAPER
    return counted(model, classes, rank, image_size)


def counted(model: str, classes: int, rank: int, image_size: int | None = None) -> SplitProfile:
    """Costs counted on the model itself, remembered in the user's cache folder.

    The first count imports torch and takes some seconds; later ones read a small JSON file.

    Raises:
        InputError: No such model.
    """
    versions = "-".join(f"{name}{version(name)}" for name in ("torch", "timm"))
    size = "" if image_size is None else f"-{image_size}px"
    name = f"counted1-{model}{size}-{classes}c-r{rank}-{versions}.json"
    path = cache_folder() / "profiles" / name
    try:
        columns = json.loads(path.read_text(encoding="utf-8"))
        return SplitProfile(**{key: tuple(values) for key, values in columns.items()})
    except (OSError, ValueError, TypeError):
        pass  # Not counted yet, or by something else: count.
    log.debug("counting what the splits of %s cost, once", model)
    from workloads.costs.counting import count
    from workloads.learning.settings import ModelConfig

    profile = count(ModelConfig(model, classes, rank=rank, image_size=image_size))
    # A folder that cannot be written only costs the time again.
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, asdict(profile))
    return profile
