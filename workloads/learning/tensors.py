# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Files of tensors in safetensors format: safe reading of foreign ones, and additions."""

from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from testbed.core.errors import InputError
from testbed.system.files import check_regular

TYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
)
"""Types that can be converted to float32 on every device."""


def read_tensors(path: Path, field: str) -> dict[str, Tensor]:
    """All tensors of a safetensors file, by name.

    The library checks the header against the file's length before it allocates memory.

    Args:
        path: The file.
        field: Field that names the file, for error messages.

    Raises:
        InputError: The file is not a valid safetensors file.
    """
    try:
        check_regular(path)
    except ValueError as error:
        raise InputError(f"{field}: {path} {error}") from None
    except OSError as error:
        raise InputError(f"{field}: {path} cannot be read ({error.strerror})") from None
    try:
        with safetensors.safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, safetensors.SafetensorError) as error:
        raise InputError(
            f"{field}: {path} is not a safetensors file ({str(error)[:200]}); "
            "pickled weights are not supported, because they can run code"
        ) from None
    for name, tensor in tensors.items():
        if tensor.dtype not in TYPES:
            raise InputError(
                f"{field}: {path}: {name[:80]} has the unsupported type {tensor.dtype}"
            )
    return tensors


def with_tensors(state: bytes, more: Mapping[str, Tensor]) -> bytes:
    """The safetensors file of a state with more tensors."""
    return bytes(safetensors.torch.save(safetensors.torch.load(state) | dict(more)))


def without_tensors(state: bytes, prefix: str) -> tuple[bytes, dict[str, Tensor]]:
    """A safetensors file without the tensors whose names begin with a prefix; and these, by the
    rest of their names."""
    tensors = safetensors.torch.load(state)
    found = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
    rest = {n: t for n, t in tensors.items() if not n.startswith(prefix)}
    return bytes(safetensors.torch.save(rest)), found
