# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Forwarding of a program's standard files to another machine."""

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable

CHUNK = 1 << 16


class Carried:
    """A thread that copies one of a program's standard files to or from a stream.

    It takes ownership of file and stream, and closes both when either one ends.
    """

    def __init__(self, stream: socket.socket, file: int, *, outward: bool) -> None:
        """Begin.

        Args:
            stream: Connection to the other side, which copies in the opposite direction.
            file: Open for reading if `outward`, otherwise for writing.
            outward: Whether the file is read and sent; otherwise received data are written to it.
        """
        stream.setblocking(True)
        self._stream, self._file = stream, file
        carry = self._send if outward else self._write
        self._thread = threading.Thread(target=self._guarded, args=(carry,), daemon=True)
        self._thread.start()

    def _guarded(self, carry: Callable[[], None]) -> None:
        with contextlib.suppress(OSError), self._stream:
            carry()
        os.close(self._file)

    def _send(self) -> None:
        poll = select.poll()
        poll.register(self._file, select.POLLIN)
        poll.register(self._stream, select.POLLIN)
        while True:
            # The other side sends nothing in this direction, so the stream has ended.
            if self._stream.fileno() in dict(poll.poll()):
                return
            if not (data := os.read(self._file, CHUNK)):
                return
            self._stream.sendall(data)

    def _write(self) -> None:
        while data := self._stream.recv(CHUNK):
            while data:
                data = data[os.write(self._file, data) :]

    def await_end(self, timeout_s: float) -> None:
        """Wait until all data have arrived, at most `timeout_s` real seconds."""
        self._thread.join(timeout_s)
