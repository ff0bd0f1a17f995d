"""The control plane: orders to the nodes and their reports, over a unix socket.

Messages are JSON objects behind a four-byte length. They never cross the shaped links.
"""

import json
import socket
import struct
from typing import Any

_LENGTH = struct.Struct("<I")
LARGEST_BYTES = 256 << 20

Message = dict[str, Any]


class ControlLost(Exception):
    """The other side of the control plane is gone, silent for too long, or talks nonsense."""


class Control:
    """One end of a control connection."""

    def __init__(self, sock: socket.socket):
        self.sock = sock

    def send(self, kind: str, **fields: Any) -> None:
        """Send one message.

        Raises:
            ControlLost: Nobody listens any more.
        """
        body = json.dumps({"kind": kind, **fields}).encode()
        try:
            self.sock.sendall(_LENGTH.pack(len(body)) + body)
        except OSError as error:
            raise ControlLost(f"sending {kind!r}: {error}") from None

    def receive(self, timeout_s: float | None = None) -> Message:
        """Wait for the next message.

        Raises:
            ControlLost: Nothing came within `timeout_s`, or the other side is gone.
        """
        self.sock.settimeout(timeout_s)
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if length > LARGEST_BYTES:
            raise ControlLost(f"a message of {length} bytes is larger than any of ours")
        message: Message = json.loads(self._exactly(length))
        return message

    def expect(self, kind: str, timeout_s: float | None = None) -> Message:
        """Wait for a message of that kind.

        Raises:
            ControlLost: As `receive`, or another kind came; a report of failure is quoted.
        """
        message = self.receive(timeout_s)
        if message["kind"] == "failed":
            raise ControlLost(message["reason"])
        if message["kind"] != kind:
            raise ControlLost(f"{message['kind']!r} came where {kind!r} was due")
        return message

    def close(self) -> None:
        """Close this end."""
        self.sock.close()

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            try:
                part = self.sock.recv(min(count - len(parts), 1 << 20))
            except TimeoutError:
                raise ControlLost("no answer in time") from None
            except OSError as error:
                raise ControlLost(str(error)) from None
            if not part:
                raise ControlLost("the other side closed the connection")
            parts += part
        return bytes(parts)
