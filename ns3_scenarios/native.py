# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The C interface of the ns-3 models (``cpp/channel/channel.cc``), for ctypes.

ns-3 aborts its process on errors, and a process can have only one simulator: only
`ns3_scenarios.process` opens channels. `path_loss_db` uses no simulator and has no state.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path

LINE_OF_SIGHT = {"always": 0, "probability": 1, "never": 2}
"""Values of the C++ enumeration RmaAvPropagationLossModel::LineOfSight."""

PATH_LOSS = {"rma-av": 0, "free-space": 1, "two-ray": 2}
"""Channel models of ns-3; for a channel in Python ns-3 computes free space, which is ignored."""

_Doubles = ctypes.POINTER(ctypes.c_double)


class Settings(ctypes.Structure):
    """Mirror of `struct Settings`."""

    _fields_ = (
        ("bs_position", ctypes.c_double * 3),
        ("heading_deviation", ctypes.c_double),
        ("memory", ctypes.c_double),
        ("update_interval", ctypes.c_double),
        ("frequency", ctypes.c_double),
        ("slot", ctypes.c_double),
        ("run", ctypes.c_uint64),
        ("uavs", ctypes.c_uint64),
        ("inner_radius", _Doubles),
        ("outer_radius", _Doubles),
        ("height", _Doubles),
        ("min_speed", _Doubles),
        ("max_speed", _Doubles),
        ("mean_speed", _Doubles),
        ("speed_deviation", _Doubles),
        ("line_of_sight", ctypes.c_int32),
        ("shadow_fading", ctypes.c_int32),
        ("placed", ctypes.c_int32),
        ("path_loss", ctypes.c_int32),
    )


def load(library: Path) -> ctypes.CDLL:
    """Load the library and declare the types of its functions."""
    native = ctypes.CDLL(str(library))
    native.channel_open.argtypes = [ctypes.POINTER(Settings)]
    native.channel_advance.argtypes = [ctypes.c_uint64, _Doubles, _Doubles]
    native.path_loss_db.argtypes = [
        *(ctypes.c_double, ctypes.c_int32, _Doubles, _Doubles, ctypes.c_uint64, _Doubles)
    ]
    for function in (native.channel_open, native.channel_advance, native.path_loss_db):
        function.restype = None
    return native


def doubles(values: Sequence[float]) -> "ctypes.Array[ctypes.c_double]":
    """A C array of doubles."""
    return (ctypes.c_double * len(values))(*values)


def path_loss_db(
    native: ctypes.CDLL,
    carrier_hz: float,
    line_of_sight: str,
    bs_position_m: Sequence[float],
    uav_positions_m: Sequence[Sequence[float]],
) -> list[float]:
    """Path loss of the ns-3 model in dB between the BS and each UAV, without shadow fading."""
    count = len(uav_positions_m)
    loss = (ctypes.c_double * count)()
    flat = doubles([value for position in uav_positions_m for value in position])
    bs = doubles(bs_position_m)
    native.path_loss_db(carrier_hz, LINE_OF_SIGHT[line_of_sight], bs, flat, count, loss)
    return list(loss)
