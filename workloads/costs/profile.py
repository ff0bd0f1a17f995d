"""What each split of a model costs: FLOPs to compute, bytes to exchange. No torch at import."""

import json
import os
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from testbed.system.leftovers import noted

KIB = 1024

PAPER_MODEL = "swin_large_patch4_window7_224"
"""The model of the paper's table II: Swin-L, 224 x 224."""
PAPER_CLASSES = 100
PAPER_RANK = 8
"""Its LoRA rank."""


@dataclass(frozen=True)
class SplitProfile:
    """Costs of one sample (FLOPs, smashed bytes) and one client (adapter bytes), for u = 1..4.

    Bytes are those of float32. Entry u - 1 belongs to split point u.
    """

    client_forward_flops: tuple[float, ...]
    """Ψ_CF."""
    server_forward_flops: tuple[float, ...]
    """Ψ_SF."""
    adapter_bytes: tuple[int, ...]
    """Γ_M: trainable parameters on the client."""
    smashed_bytes: tuple[int, ...]
    """Γ_A: smashed data; its gradient Γ_G has the same size."""
    client_backward_flops: tuple[float, ...] = ()
    """Counted with frozen weights, empty where nobody counted; the paper takes ς = 2 × forward."""
    server_backward_flops: tuple[float, ...] = ()
    adapter_header_bytes: tuple[int, ...] = (0, 0, 0, 0)
    """The safetensors header that travels before the adapters: overhead, not Γ_M."""


PAPER = SplitProfile(
    client_forward_flops=(6.18e9, 12.50e9, 64.19e9, 70.28e9),
    server_forward_flops=(64.10e9, 57.78e9, 6.09e9, 0.001e9),
    adapter_bytes=(192 * KIB, 612 * KIB, 7596 * KIB, 9276 * KIB),
    smashed_bytes=(2352 * KIB, 1176 * KIB, 588 * KIB, 294 * KIB),
    adapter_header_bytes=(1568, 3360, 18176, 20016),
)
"""Table II of the paper, to its printed digits (1 KB = 1024 B); headers: counted here."""

WireDtype = Literal["float32", "float16", "bfloat16", "int8"]
"""What smashed data and their gradients travel as; adapters are always float32."""

BLOCK = 128
"""Values that share one float32 scale in int8."""


def payload_bytes(values: int, wire: WireDtype) -> int:
    """Bytes that so many values of smashed data take on the wire (see
    `workloads.learning.codec`)."""
    if wire == "int8":
        return values + 4 * -(-values // BLOCK)
    if wire == "float16":
        return 2 * values + 4
    return values * {"float32": 4, "bfloat16": 2}[wire]


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
