# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Registry of codecs: built-in ones and those of other packages."""

from collections.abc import Callable, Mapping
from typing import Any

from testbed.core import plugins
from testbed.core.parameters import made
from workloads.codecs.codec import Codec
from workloads.codecs.formats import Floats, ScaledHalf, int4, int8, top_k

BUILT_IN: dict[str, Callable[..., Codec]] = {
    "float32": lambda: Floats("float32"),
    "float16": ScaledHalf,
    "bfloat16": lambda: Floats("bfloat16"),
    "int8": int8,
    "int4": int4,
    "top-k": top_k,
}
"""Factory functions of the built-in codecs, by name."""


def codec_of(name: str, parameters: Mapping[str, Any]) -> Codec:
    """The codec of that name: built-in or of another package (`testbed.codecs`).

    Raises:
        ValueError: Parameters are unknown or have invalid values.
        InputError: The codec of a package cannot be loaded or is invalid.
    """
    codec: Codec = made(plugins.CODECS, BUILT_IN, name, parameters)
    for method in ("size", "encode", "decode"):
        if not callable(getattr(codec, method, None)):
            raise plugins.unfit(plugins.CODECS, name, f"is not a codec: it has no {method}")
    return codec
