# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Kernel timestamps of received packets, which do not depend on when a process reads them."""

import socket
import struct
from collections.abc import Iterable

_SO_TIMESTAMPNS = 64
"""SO_TIMESTAMPNS with 64-bit seconds on every machine; Python does not define it."""
_TIMESPEC = struct.Struct("=qq")
NOTE_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)
"""Size of the ancillary data with the timestamp, in bytes."""


def note_arrivals(sock: socket.socket) -> None:
    """Enable kernel timestamps for received packets."""
    sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


def noted_ns(notes: Iterable[tuple[int, int, bytes]]) -> int | None:
    """Unix time in ns from the ancillary data of `recvmsg`; None if there is no timestamp.

    For a stream, it is the time of the last received packet.
    """
    for level, kind, note in notes:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
            seconds, nanoseconds = _TIMESPEC.unpack(note)
            return int(seconds * 1_000_000_000 + nanoseconds)
    return None
