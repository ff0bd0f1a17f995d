# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Registry of codecs: built-in ones and those of other packages."""

from collections.abc import Callable, Mapping
from typing import Any

from testbed.core.registry import CODECS
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
"""By name, a function from parameters to a codec."""
CODECS.add(BUILT_IN)


def codec_of(name: str, parameters: Mapping[str, Any]) -> Codec:
    """The codec of that name: built-in or of another package (`testbed.codecs`).

    Raises:
        InputError: The codec does not take these parameters or values, is unknown, cannot be
            loaded, or is not a codec.
    """
    codec: Codec = CODECS.make(name, parameters)
    for method in ("size", "encode", "decode"):
        if not callable(getattr(codec, method, None)):
            raise CODECS.unfit(name, f"is no codec: it has no {method}")
    return codec
