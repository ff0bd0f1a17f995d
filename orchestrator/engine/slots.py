# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Slots of a channel and the integral of a link's rate over them, for compiled code."""

import functools
import hashlib
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
import numpy.typing as npt

from testbed.system.folders import cache_folder

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Function = TypeVar("Function", bound=Callable[..., Any])

HALF_NS = 0.5e-9
EXHAUSTED = math.inf


ROOT = Path(__file__).parents[2]
SOURCES = (
    "orchestrator/engine",
    "orchestrator/theory",
    "testbed/core",
)
"""Folders of all that is compiled, or is constant in what is."""


def compiled(function: Function) -> Function:
    """Compile to machine code, cached on disk where any cache folder can be written."""
    # numba looks at the file of a function alone; what it calls may stand in another.
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, _machine_code_folder()
    try:
        machine_code = numba.njit(cache=True)(function)
    except RuntimeError:
        machine_code = numba.njit(function)
    finally:
        numba.config.CACHE_DIR = before
    return machine_code  # type: ignore[no-any-return]


@functools.cache
def _machine_code_folder() -> str:
    """A folder for what was compiled from these very sources, beside them if that can be."""
    key = hashlib.sha256()
    for source in sorted(file for folder in SOURCES for file in (ROOT / folder).rglob("*.py")):
        key.update(source.read_bytes())
    beside = ROOT / "orchestrator" / "__pycache__"
    place = beside if os.access(beside.parent, os.W_OK) else cache_folder()
    return str(place / f"machine-code-{key.hexdigest()[:24]}")


def inlined(function: Function) -> Function:
    """Compile into its callers; a call would count references to every array it passes."""
    return numba.njit(forceinline=True)(function)  # type: ignore[no-any-return]


class Air(NamedTuple):
    """A channel trace; `edges_s` is empty where slots are multiples of `slot_s`."""

    gain: Array
    """Shape [2, K, S], up and down; [1, K, S] where they are alike."""
    slot_s: float
    edges_s: Array


@inlined
def rate_of(bandwidth_hz: float, snr: float) -> float:
    """Shannon's rate in bit/s, eqs. (1), (2), (19).

    A bandwidth of 0 stands for a trace that has the rate itself, which then is `snr`.
    """
    if bandwidth_hz == 0.0:
        return snr
    if snr > 1e-3:
        return bandwidth_hz * math.log2(1.0 + snr)
    return bandwidth_hz * (math.log1p(snr) / math.log(2.0))  # 1 + snr would lose the digits of snr


@inlined
def edge_of(air: Air, slot: int) -> float:
    """When a slot begins."""
    return air.edges_s[slot] if air.edges_s.size else slot * air.slot_s


@inlined
def slot_at(air: Air, time_s: float, slot: int) -> int:
    """The slot of a moment, searched from an earlier slot on; an edge belongs to the new slot."""
    slots = air.gain.shape[2]
    while slot < slots and edge_of(air, slot + 1) <= time_s + HALF_NS:
        slot += 1
    return slot


@inlined
def carried(
    air: Air,
    airtime: Array | None,
    way: int,
    k: int,
    bits: float,
    time_s: float,
    slot: int,
    bandwidth_hz: float,
    snr_at_1: float,
) -> tuple[float, int]:
    """When a link has carried so many bits, and in which slot.

    It ends when the integral of its slots' rates reaches its bits, eq. (3). In an outage
    the rate is 0 and it waits. A frame takes so much `airtime`, shape [3, K, S] or [3, K, 1]; None
    stands for 1 everywhere.
    """
    slot = slot_at(air, time_s, slot)
    row = min(way, air.gain.shape[0] - 1)
    if bits == 0.0:
        return time_s, slot
    while slot < air.gain.shape[2]:
        edge_s = edge_of(air, slot + 1)
        rate = rate_of(bandwidth_hz, snr_at_1 * air.gain[row, k, slot])
        if airtime is not None:
            rate /= airtime[way, k, min(slot, airtime.shape[2] - 1)]
        if rate > 0.0:
            if bits <= rate * (edge_s - time_s + HALF_NS):
                return time_s + bits / rate, slot
            bits -= rate * (edge_s - time_s)
        time_s = edge_s
        slot += 1
    return EXHAUSTED, slot
