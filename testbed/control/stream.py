# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Control messages between processes of one machine: a JSON object and raw bytes over a socket.

They are never sent over an emulated link.
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
"""Largest number of file descriptors per message; the kernel's limit is 253."""

MOST_HEADER_BYTES, MOST_BLOB_BYTES = 1 << 28, 1 << 30
"""Longest message in bytes; longer ones are refused before memory is allocated."""
PATIENCE_S = 60.0
"""Seconds without progress after which sending a message, or receiving an expected one, fails."""

Message = tuple[dict[str, Any], bytes]


class HasFileno(Protocol):
    """A socket, or an open file."""

    def fileno(self) -> int:
        """The file descriptor."""


class NoAnswer(RunError):
    """The peer is connected but neither reads nor sends."""


class ControlSocket:
    """A stream socket that carries messages; for use by one thread."""

    def __init__(self, stream: socket.socket) -> None:
        self._socket = stream
        self._buffer = bytearray()
        self._closed = False
        stream.setblocking(True)
        # Limits sending only; `settimeout` would limit receiving, too.
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, linux.timeval(PATIENCE_S))

    def fileno(self) -> int:
        """The file descriptor, for `select`."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def send(self, header: Mapping[str, Any], blob: bytes | memoryview = b"") -> None:
        """Send one message; waits up to `PATIENCE_S` for the peer to read.

        Raises:
            RunError: The peer has disconnected.
            NoAnswer: The peer does not read.
        """
        text = json.dumps(header).encode()
        _check_sizes(len(text), len(blob))
        try:
            self._socket.sendall(_LENGTHS.pack(len(text), len(blob)) + text)
            if blob:
                self._socket.sendall(blob)
        except BlockingIOError:
            raise NoAnswer(
                f"control socket: waited {PATIENCE_S:g} s for the peer to read"
            ) from None
        except OSError as error:
            raise RunError(f"control socket: {error.strerror}") from None

    def read_available(self) -> bool:
        """Read the bytes that have arrived, without waiting; returns False if the peer has closed
        the socket."""
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
        """Whether there are received bytes that `next` has not returned yet."""
        return bool(self._buffer)

    def next(self) -> Message | None:
        """The next complete message, if any.

        Raises:
            RunError: The received bytes are not a valid message, or the message is too large.
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
            raise RunError("control socket: received bytes are not a JSON object")
        message = header, bytes(self._buffer[start:end])
        del self._buffer[:end]
        return message

    def receive(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None if none arrives in time.

        Raises:
            RunError: The peer has disconnected.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while (message := self.next()) is None:
            if self._closed:
                raise RunError("control socket: the peer has disconnected")
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not readable(self._socket, left):
                return None
            self.read_available()
        return message

    def send_descriptors(self, descriptors: Sequence[int]) -> None:
        """Send open files. The peer must expect them, and must have read all earlier messages."""
        for start in range(0, len(descriptors), _DESCRIPTORS_AT_ONCE):
            part = array.array("i", descriptors[start : start + _DESCRIPTORS_AT_ONCE])
            self._socket.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, part)])

    def receive_descriptors(self, count: int) -> list[int]:
        """Receive open files.

        Raises:
            RunError: The peer has disconnected.
            NoAnswer: The peer sends no files in time.
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
                    raise RunError("control socket: the peer has disconnected")
                raise NoAnswer(
                    f"control socket: waited {PATIENCE_S:g} s for the peer to send open files"
                )
        return found

    def remaining_descriptors(self) -> Iterator[int]:
        """Receive open files until the peer closes the socket."""
        while part := self._next_descriptors():
            yield from part

    def _next_descriptors(self) -> list[int]:
        """The open files of the next message; empty if the peer has disconnected."""
        return socket.recv_fds(self._socket, 1, _DESCRIPTORS_AT_ONCE)[1]


def _check_sizes(header_bytes: int, blob_bytes: int) -> None:
    if header_bytes > MOST_HEADER_BYTES or blob_bytes > MOST_BLOB_BYTES:
        raise RunError(
            f"control socket: a message of {header_bytes} and {blob_bytes} bytes is too large"
        )


def readable(stream: int | HasFileno, timeout_s: float | None) -> bool:
    """Whether a stream becomes readable, or is closed by the peer, within `timeout_s`."""
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    return bool(poll.poll(None if timeout_s is None else timeout_s * 1000))
