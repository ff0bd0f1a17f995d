# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How many bytes smashed data take on the wire; the codec encodes them. No torch here."""

from typing import Literal

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
