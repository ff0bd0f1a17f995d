"""The costs of a model's splits: the paper's, or counted once and remembered."""

import json
import os
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from testbed.system.leftovers import noted
from workloads.costs.profile import PAPER, PAPER_CLASSES, PAPER_MODEL, PAPER_RANK, SplitProfile


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
    from workloads.costs.counting import count
    from workloads.learning.settings import ModelConfig

    profile = count(ModelConfig(model, classes, rank=rank, image_size=image_size))
    _keep(path, json.dumps(asdict(profile)))
    return profile


def cache_folder() -> Path:
    """Our own folder in `$XDG_CACHE_HOME` or `~/.cache`: what is costly to make again."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "uav-sfl-testbed"


def _keep(path: Path, text: str) -> None:
    """Write through a temporary file; a folder that cannot be written only costs the time again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        with noted(part):
            part.write_text(text)
            part.replace(path)
    except OSError:
        pass
