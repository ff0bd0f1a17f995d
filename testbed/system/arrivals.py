# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""When what a socket receives came in, by the kernel's note: not when a process got to read it."""

import socket
import struct
from collections.abc import Iterable

_SO_TIMESTAMPNS = 64
"""With 64-bit seconds on every machine; Python has no name for it."""
_TIMESPEC = struct.Struct("=qq")
NOTE_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)
"""Room for the note beside what is received."""


def note_arrivals(sock: socket.socket) -> None:
    """Have the kernel note when what is received came in."""
    sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


def noted_ns(notes: Iterable[tuple[int, int, bytes]]) -> int | None:
    """Unix time in ns of a note, as `recvmsg` has it beside what it received; None: there is none.

    Of a stream, it is the time of the last packet that was received.
    """
    for level, kind, note in notes:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
            seconds, nanoseconds = _TIMESPEC.unpack(note)
            return int(seconds * 1_000_000_000 + nanoseconds)
    return None
