# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The process in which ns-3 simulates packets, started by `ns3_scenarios.packets.PacketNetwork`.

Stdin: one line of JSON (see `ns3_scenarios.child`), then one line per step: ``{"rates":
[[uplink bit/s], [downlink bit/s]] or null, "impairments": delay, jitter, loss of each link's
uplink and downlink in one list, or null, "send": [[link, down, bytes]], "until": ns}``. Stdout: one
answer per step: ``{"now": ns, "delivered": [[link, down]]}``. The request ``{"counts": true}`` is
answered by ``{"events", "ends": [[[bytes, frames, dropped, lost] of the uplink, of the
downlink]]}``.
"""

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

from ns3_scenarios.native import doubles
from ns3_scenarios.process import begin

_Doubles = ctypes.POINTER(ctypes.c_double)


class Settings(ctypes.Structure):
    """Mirror of `struct PacketSettings`."""

    _fields_ = (
        ("links", ctypes.c_uint64),
        ("mtu", ctypes.c_uint32),
        ("frame_header_bytes", ctypes.c_uint32),
        ("queue_frames", ctypes.c_uint32),
        ("initial_window", ctypes.c_uint32),
        ("congestion_control", ctypes.c_int32),
        ("nagle", ctypes.c_int32),
        ("packet_s", ctypes.c_double),
    )


class Impairment(ctypes.Structure):
    """Mirror of `struct Impairment`."""

    _fields_ = (
        ("delay_s", ctypes.c_double),
        ("jitter_s", ctypes.c_double),
        ("good_to_bad", ctypes.c_double),
        ("bad_to_good", ctypes.c_double),
        ("loss_good", ctypes.c_double),
        ("loss_bad", ctypes.c_double),
        ("seed", ctypes.c_uint64),
        ("reorders", ctypes.c_int32),
    )


class Delivery(ctypes.Structure):
    """Mirror of `struct Delivery`."""

    _fields_ = (("link", ctypes.c_uint32), ("down", ctypes.c_uint32))


class EndCount(ctypes.Structure):
    """Mirror of `struct EndCount`."""

    _fields_ = (
        ("sent_bytes", ctypes.c_uint64),
        ("sent_frames", ctypes.c_uint64),
        ("dropped_frames", ctypes.c_uint64),
        ("lost_frames", ctypes.c_uint64),
    )


def load(library: Path) -> ctypes.CDLL:
    """Load the library and declare the types of its functions."""
    native = ctypes.CDLL(str(library))
    native.packets_open.argtypes = [ctypes.POINTER(Settings), ctypes.POINTER(Impairment)]
    native.packets_rates.argtypes = [_Doubles, _Doubles]
    native.packets_impair.argtypes = [_Doubles]
    native.packets_send.argtypes = [ctypes.c_uint64, ctypes.c_int32, ctypes.c_uint64]
    for name in ("open", "rates", "impair", "send"):
        getattr(native, f"packets_{name}").restype = None
    native.packets_advance.argtypes = [
        ctypes.c_int64,
        ctypes.POINTER(ctypes.c_int64),
        ctypes.POINTER(ctypes.POINTER(Delivery)),
    ]
    native.packets_advance.restype = ctypes.c_uint64
    native.packets_count.argtypes = [ctypes.c_uint64, ctypes.c_int32]
    native.packets_count.restype = EndCount
    native.packets_events.restype = ctypes.c_uint64
    return native


def main() -> None:
    """Simulate steps until stdin ends."""
    start = begin()
    native = load(Path(start["library"]))
    settings = start["settings"]
    impairments = [Impairment(**way) for way in settings.pop("impairments")]
    native.packets_open(Settings(**settings), (Impairment * len(impairments))(*impairments))
    for line in sys.stdin.buffer:
        order = json.loads(line)
        answer = (
            _counts(native, settings["links"]) if "counts" in order else _advance(native, order)
        )
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


def _advance(native: ctypes.CDLL, order: dict[str, Any]) -> dict[str, Any]:
    if order["rates"] is not None:
        uplink, downlink = order["rates"]
        native.packets_rates(doubles(uplink), doubles(downlink))
    if order["impairments"] is not None:
        native.packets_impair(doubles(order["impairments"]))
    for link, down, size in order["send"]:
        native.packets_send(link, down, size)
    now, delivered = ctypes.c_int64(), ctypes.POINTER(Delivery)()
    count = native.packets_advance(order["until"], ctypes.byref(now), ctypes.byref(delivered))
    arrived = [(delivered[i].link, delivered[i].down) for i in range(count)]
    return {"now": now.value, "delivered": arrived}


def _counts(native: ctypes.CDLL, links: int) -> dict[str, Any]:
    ends = [[native.packets_count(link, down) for down in (0, 1)] for link in range(links)]
    return {
        "events": native.packets_events(),
        "ends": [
            [(end.sent_bytes, end.sent_frames, end.dropped_frames, end.lost_frames) for end in pair]
            for pair in ends
        ],
    }


if __name__ == "__main__":
    main()
