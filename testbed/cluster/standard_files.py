# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Standard files of programs that run on another machine than who gave them, carried there."""

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable

CHUNK = 1 << 16


class Carried:
    """Bytes of one of a program's files, on their way over one side of a stream, in a thread.

    Takes over file and stream, and closes both once either has ended.
    """

    def __init__(self, stream: socket.socket, file: int, *, outward: bool) -> None:
        """Begin.

        Args:
            stream: To the other side, where the same is done the other way round.
            file: Open for reading, if `outward`; else for writing.
            outward: Whether what the file holds is sent; else what comes is written to it.
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
            # Nobody sends this way: it can only be its end.
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
        """Wait until all has arrived that there is, or for so long."""
        self._thread.join(timeout_s)
