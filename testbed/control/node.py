# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Orders to a node and its reports, over the control plane and never over the shaped links."""

import select
import socket
from typing import Any, Generic, TypeVar

from testbed.control.codec import Kinds, Received, encode
from testbed.control.messages import FROM_NODE, TO_NODE, Failed, NodeOrder, NodeReport
from testbed.control.stream import ControlSocket
from testbed.core.errors import RunError

Kind = TypeVar("Kind")


class ControlLost(RunError):
    """The other side is gone, or silent for too long, or says what nobody understands."""


class NodeFailed(ControlLost):
    """The other side reports a failure; the message is its reason."""

    def __init__(self, reason: str, wrong_input: bool = False):
        super().__init__(reason)
        self.wrong_input = wrong_input
        """Whether it is the user's input that is wrong."""


class NodeControl(Generic[Received]):
    """One end of the connection between the orchestrator and one node."""

    def __init__(self, sock: socket.socket, receives: Kinds[Received]):
        self._control = ControlSocket(sock)
        self._receives = receives

    def fileno(self) -> int:
        """For `select`."""
        return self._control.fileno()

    def send(self, message: Any) -> None:
        """Send one of `testbed.control.messages`.

        Raises:
            ControlLost: Nobody listens any more.
        """
        try:
            self._control.send(*encode(message))
        except RunError as error:
            raise ControlLost(f"sending {type(message).__name__}: {error}") from None

    def take(self, timeout_s: float | None = 0) -> Received | None:
        """The next message, or None if none came within `timeout_s` (None waits for ever).

        Raises:
            NodeFailed: The other side reports that it failed.
            ControlLost: The other side is gone, or what it says is no message that is known.
        """
        try:
            received = self._control.receive(timeout_s)
            message = received and self._receives.decode(*received)
        except RunError as error:
            raise ControlLost(str(error)) from None
        if isinstance(message, Failed):
            raise NodeFailed(message.reason, message.wrong_input)
        return message

    def receive(self, timeout_s: float | None = None, due: str = "an order") -> Received:
        """Wait for the next message; without a limit as long as the other side lives.

        Raises:
            ControlLost: Nothing came within `timeout_s`, or the other side is gone or has failed.
        """
        message = self.take(timeout_s)
        if message is None:
            raise ControlLost(f"waited {timeout_s:g} s for {due}")
        return message

    def expect(self, kind: type[Kind], timeout_s: float | None = None) -> Kind:
        """Wait for a message of that kind.

        Raises:
            ControlLost: As `receive`, or another kind came.
        """
        message = self.receive(timeout_s, kind.__name__)
        if not isinstance(message, kind):
            raise ControlLost(f"{type(message).__name__} came where {kind.__name__} was due")
        return message

    def wait(self, over: socket.socket) -> bool:
        """Wait until a message begins to come, or the other side is gone; False once the other end
        of `over` is closed."""
        if self._control.has_some:
            return True
        poll = select.poll()
        poll.register(self, select.POLLIN)
        poll.register(over, select.POLLIN)
        return over.fileno() not in dict(poll.poll())

    def close(self) -> None:
        """Close this end."""
        self._control.close()


def at_node(sock: socket.socket) -> NodeControl[NodeOrder]:
    """A node's end."""
    return NodeControl(sock, TO_NODE)


def at_orchestrator(sock: socket.socket) -> NodeControl[NodeReport]:
    """The orchestrator's end."""
    return NodeControl(sock, FROM_NODE)
