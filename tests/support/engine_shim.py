# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Parts of the engine's compiled code, called by themselves (`engine_shim.cc`)."""

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ns3_scenarios.trace import TwoWay
from orchestrator.engine.core_library import (
    Function,
    Links,
    LinkState,
    Paths,
    Slots,
    library,
    native,
    pointer,
)
from orchestrator.engine.tcp_model import given_links

SOURCE = Path(__file__).with_suffix(".cc")
SENDER = np.dtype(
    [
        (name, float)
        for name in (
            *("window", "threshold", "ceiling", "origin", "turn_s", "since_s", "friendly"),
            *("idle_from_s", "offered", "look_s", "looked_s", "bad", "begun", "shortest_s"),
            "smoothed_s",
        )
    ]
)
"""The numbers of a `Sender` of ``core/tcp.h``."""
_Double, _Int, _Long, _Pointer = ctypes.c_double, ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p


@cache
def shim() -> ctypes.CDLL:
    """The library of `engine_shim.cc`."""
    pointers, numbers = [_Pointer], [_Double]
    functions: list[Function] = [
        ("carried", _Double, [*2 * pointers, _Long, _Int, _Long, *2 * numbers, *2 * pointers]),
        ("shared", None, [_Pointer, _Double, _Long, _Long, _Pointer]),
        ("grow", None, [*2 * pointers, *4 * numbers]),
        ("recovery", _Long, [*2 * pointers, _Long, _Long, _Double, _Pointer]),
        ("served_from", _Double, [_Pointer, _Int, _Long, _Long, *2 * numbers]),
        ("packet_frames", _Long, [_Pointer, *2 * numbers]),
    ]
    return native("engine-shim", SOURCE, [(f"shim_{name}", *types) for name, *types in functions])


class Rate(NamedTuple):
    """A rate in bit/s, and the slot values from and below which it is the same."""

    bps: float
    least: float
    below: float


def shared_bps(
    links: Links, clients: int, way: int, k: int, value: float, active: int, others: int = 0
) -> Rate:
    """The rate of a link of a shared band, while so many send in its direction and the other."""
    found = np.empty(3)
    assert links.address is not None
    link = links.address + (way * clients + k) * library().link_bytes()
    shim().shim_shared(link, value, active, others, pointer(found))
    return Rate(*found.tolist())


def given_air(
    bps: npt.ArrayLike | Sequence[npt.ArrayLike], slot_s: float, paths: Paths | None
) -> LinkState:
    """Links with given rates in bit/s, [K, S] or [2, K, S], from time 0 on."""
    rates = np.asarray(bps, float)
    slots = Slots(rates if rates.ndim == 2 else TwoWay(rates), slot_s)
    return LinkState(slots, given_links(slots.clients), paths, None, 0.0)


def delivered(air: LinkState, way: int, k: int, size: int, time_s: float) -> float:
    """When `size` bytes have arrived that are sent from a time on."""
    return float(library().engine_transfer(air.address, way, k, size, time_s))


def noted(air: LinkState, way: int, k: int, time_s: float, *, opens: bool = False) -> float:
    """When a message of a single frame arrives."""
    return float(library().engine_note(air.address, way, k, time_s, opens))


def senders(paths: Paths) -> npt.NDArray[np.void]:
    """The state of all senders, dtype `SENDER`, shape [2, K]; it can be written."""
    table: npt.NDArray[Any] = paths.arrays["senders"]
    return table.view(SENDER)[..., 0]


def _sender(paths: Paths, way: int, k: int) -> int:
    table = paths.arrays["senders"]
    address = pointer(table[way, k])
    assert address is not None
    return address


def grow(
    paths: Paths, way: int, k: int, frames: int, pipe: float, trip_s: float, frame_s: float
) -> None:
    """Grow a sender's window after the acknowledgement of a flight of so many frames."""
    shim().shim_grow(paths.address, _sender(paths, way, k), frames, pipe, trip_s, frame_s)


def recovery(
    paths: Paths, way: int, k: int, frames: int, first: int, grown: float
) -> tuple[int, float]:
    """Shrink a sender's window after a loss; see `recovery` in ``core/tcp.h``."""
    early = ctypes.c_double()
    left = shim().shim_recovery(
        paths.address, _sender(paths, way, k), frames, first, grown, ctypes.byref(early)
    )
    return int(left), early.value


def served_from(paths: Paths, way: int, k: int, size: int, time_s: float, bps: float) -> float:
    """When a transfer is served that begins at a time, where a radio grants it."""
    return float(shim().shim_served_from(paths.address, way, k, size, time_s, bps))


def packet_frames(paths: Paths, bps: float, back_bps: float) -> int:
    """The frames of a packet over a serial line with these rates."""
    return int(shim().shim_packet_frames(paths.address, bps, back_bps))


def carried(
    slots: Slots,
    links: Links,
    airtime: npt.NDArray[np.float64] | None,
    way: int,
    k: int,
    bits: float,
    time_s: float,
) -> tuple[float, int]:
    """When a link has carried so many bits, and in which slot; airtime has shape [3, K, n]."""
    slot = ctypes.c_int64()
    repeats = 1 if airtime is None else airtime.shape[-1]
    end_s = shim().shim_carried(
        *(slots.address, pointer(airtime), repeats, way, k, bits, time_s),
        *(ctypes.byref(slot), links.address),
    )
    return float(end_s), slot.value
