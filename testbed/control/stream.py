# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Control messages between processes of one machine: a JSON object and raw bytes, over a socket.

They never travel over an emulated link.
"""

import array
import json
import os
import select
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from testbed.core.errors import RunError
from testbed.system import linux

_LENGTHS = struct.Struct("!II")
_CHUNK = 1 << 16
_DESCRIPTORS_AT_ONCE = 200
"""The kernel passes at most 253 a message."""

MOST_HEADER_BYTES, MOST_BLOB_BYTES = 1 << 28, 1 << 30
"""More than any message has: refused before memory is taken for it."""
PATIENCE_S = 60.0
"""How long the other side may take nothing of a message, or give nothing that is due at once."""

Message = tuple[dict[str, Any], bytes]


class HasFileno(Protocol):
    """A socket, or an open file."""

    def fileno(self) -> int:
        """Its descriptor."""


class NoAnswer(RunError):
    """The other side is there, but takes or gives nothing."""


class ControlSocket:
    """A stream socket that carries messages; for use by one thread."""

    def __init__(self, stream: socket.socket) -> None:
        self._socket = stream
        self._buffer = bytearray()
        self._closed = False
        stream.setblocking(True)
        # Of sending alone, which a time limit of Python's is not.
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, linux.timeval(PATIENCE_S))

    def fileno(self) -> int:
        """For `select`."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def send(self, header: Mapping[str, Any], blob: bytes | memoryview = b"") -> None:
        """Send one message; waits a while for the other side to read.

        Raises:
            RunError: The other side is gone.
            NoAnswer: It reads nothing.
        """
        text = json.dumps(header).encode()
        _check_sizes(len(text), len(blob))
        try:
            self._socket.sendall(_LENGTHS.pack(len(text), len(blob)) + text)
            if blob:
                self._socket.sendall(blob)
        except BlockingIOError:
            raise NoAnswer(
                f"control socket: waited {PATIENCE_S:g} s for the other side to read"
            ) from None
        except OSError as error:
            raise RunError(f"control socket: {error.strerror}") from None

    def read_available(self) -> bool:
        """Take in what has arrived, without waiting; False when the other side has closed."""
        try:
            data = self._socket.recv(_CHUNK, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except ConnectionError:
            data = b""
        self._buffer += data
        self._closed = not data
        return bool(data)

    @property
    def has_some(self) -> bool:
        """Whether something has been read that is not taken yet."""
        return bool(self._buffer)

    def next(self) -> Message | None:
        """The next message that is complete, if any.

        Raises:
            RunError: What came is no message, or a larger one than any is.
        """
        if len(self._buffer) < _LENGTHS.size:
            return None
        text, blob = _LENGTHS.unpack_from(self._buffer)
        _check_sizes(text, blob)
        start, end = _LENGTHS.size + text, _LENGTHS.size + text + blob
        if len(self._buffer) < end:
            return None
        try:
            header = json.loads(self._buffer[_LENGTHS.size : start])
        except (ValueError, RecursionError):
            header = None
        if not isinstance(header, dict):
            raise RunError("control socket: what came is no JSON object")
        message = header, bytes(self._buffer[start:end])
        del self._buffer[:end]
        return message

    def receive(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None when none came in time.

        Raises:
            RunError: The other side is gone.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while (message := self.next()) is None:
            if self._closed:
                raise RunError("control socket: the other side is gone")
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not readable(self._socket, left):
                return None
            self.read_available()
        return message

    def send_descriptors(self, descriptors: Sequence[int]) -> None:
        """Pass open files on. The other side must expect them, and all messages must be read."""
        for start in range(0, len(descriptors), _DESCRIPTORS_AT_ONCE):
            part = array.array("i", descriptors[start : start + _DESCRIPTORS_AT_ONCE])
            self._socket.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, part)])

    def receive_descriptors(self, count: int) -> list[int]:
        """Take over open files.

        Raises:
            RunError: The other side is gone.
            NoAnswer: It passes none on.
        """
        found: list[int] = []
        while len(found) < count:
            there = readable(self._socket, PATIENCE_S)
            part = self._next_descriptors() if there else []
            found += part
            if not part:
                for descriptor in found:
                    os.close(descriptor)
                if there:
                    raise RunError("control socket: the other side is gone")
                raise NoAnswer(
                    f"control socket: waited {PATIENCE_S:g} s for the other side to pass files on"
                )
        return found

    def remaining_descriptors(self) -> Iterator[int]:
        """Take over the open files that the other side has passed on by its end; waits for that."""
        while part := self._next_descriptors():
            yield from part

    def _next_descriptors(self) -> list[int]:
        """Those of the next message; none where the other side is gone."""
        return socket.recv_fds(self._socket, 1, _DESCRIPTORS_AT_ONCE)[1]


def _check_sizes(header_bytes: int, blob_bytes: int) -> None:
    if header_bytes > MOST_HEADER_BYTES or blob_bytes > MOST_BLOB_BYTES:
        raise RunError(
            f"control socket: a message of {header_bytes} and {blob_bytes} bytes is too large"
        )


def readable(stream: int | HasFileno, timeout_s: float | None) -> bool:
    """Whether a stream has something to read, or its other side closed, within that time."""
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    return bool(poll.poll(None if timeout_s is None else timeout_s * 1000))
