"""Orders to a node and its reports, over the control plane and never over the shaped links."""

import socket
from typing import Any

from testbed.control.stream import ControlSocket
from testbed.core.errors import RunError

Message = dict[str, Any]


class ControlLost(RunError):
    """The other side is gone, or silent for too long."""


class NodeFailed(ControlLost):
    """The other side reports a failure; the message is its reason."""


class NodeControl:
    """One end of the connection between the orchestrator and one node."""

    def __init__(self, sock: socket.socket):
        self._control = ControlSocket(sock)

    def fileno(self) -> int:
        """For `select`."""
        return self._control.fileno()

    def send(self, kind: str, blob: bytes = b"", **fields: Any) -> None:
        """Send one message; raw bytes arrive as its field `blob`.

        Raises:
            ControlLost: Nobody listens any more.
        """
        try:
            self._control.send({"kind": kind, **fields}, blob)
        except RunError as error:
            raise ControlLost(f"sending {kind!r}: {error}") from None

    def take(self, timeout_s: float | None = 0) -> Message | None:
        """The next message, or None if none came within `timeout_s` (None waits for ever).

        Raises:
            NodeFailed: The other side reports that it failed.
            ControlLost: The other side is gone.
        """
        try:
            received = self._control.receive(timeout_s)
        except RunError as error:
            raise ControlLost(str(error)) from None
        if received is None:
            return None
        message, blob = received
        if blob:
            message["blob"] = blob
        if message["kind"] == "failed":
            raise NodeFailed(message["reason"])
        return message

    def receive(self, timeout_s: float | None = None, due: str = "an order") -> Message:
        """Wait for the next message; without a limit as long as the other side lives.

        Raises:
            ControlLost: Nothing came within `timeout_s`, or the other side is gone or has failed.
        """
        message = self.take(timeout_s)
        if message is None:
            raise ControlLost(f"waited {timeout_s:g} s for {due}")
        return message

    def expect(self, kind: str, timeout_s: float | None = None) -> Message:
        """Wait for a message of that kind.

        Raises:
            ControlLost: As `receive`, or another kind came.
        """
        message = self.receive(timeout_s, repr(kind))
        if message["kind"] != kind:
            raise ControlLost(f"{message['kind']!r} came where {kind!r} was due")
        return message

    def close(self) -> None:
        """Close this end."""
        self._control.close()
