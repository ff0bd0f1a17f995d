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
    """The peer has disconnected, does not answer in time, or sends an invalid message."""


class NodeFailed(ControlLost):
    """The peer reports a failure; the exception's message is its reason."""

    def __init__(self, reason: str, wrong_input: bool = False):
        super().__init__(reason)
        self.wrong_input = wrong_input
        """Whether the cause is wrong user input."""


class NodeControl(Generic[Received]):
    """One end of the connection between the orchestrator and one node."""

    def __init__(self, sock: socket.socket, receives: Kinds[Received]):
        self._control = ControlSocket(sock)
        self._receives = receives

    def fileno(self) -> int:
        """The file descriptor, for `select`."""
        return self._control.fileno()

    def send(self, message: Any) -> None:
        """Send a message of `testbed.control.messages`.

        Raises:
            ControlLost: The peer has disconnected.
        """
        try:
            self._control.send(*encode(message))
        except RunError as error:
            raise ControlLost(f"sending {type(message).__name__}: {error}") from None

    def take(self, timeout_s: float | None = 0) -> Received | None:
        """The next message, or None if none arrives within `timeout_s` (None: no limit).

        Raises:
            NodeFailed: The peer reports that it failed.
            ControlLost: The peer has disconnected or sent an invalid message.
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
        """Wait for the next message; without a limit if `timeout_s` is None.

        Raises:
            ControlLost: Nothing arrived within `timeout_s`, or the peer has disconnected or failed.
        """
        message = self.take(timeout_s)
        if message is None:
            raise ControlLost(f"waited {timeout_s:g} s for {due}")
        return message

    def expect(self, kind: type[Kind], timeout_s: float | None = None) -> Kind:
        """Wait for a message of type `kind`.

        Raises:
            ControlLost: See `receive`, or a message of another type arrived.
        """
        message = self.receive(timeout_s, kind.__name__)
        if not isinstance(message, kind):
            raise ControlLost(f"received {type(message).__name__} instead of {kind.__name__}")
        return message

    def wait(self, over: socket.socket) -> bool:
        """Wait until a message begins to arrive or the peer disconnects; returns False when the
        other end of `over` is closed."""
        if self._control.has_some:
            return True
        poll = select.poll()
        poll.register(self, select.POLLIN)
        poll.register(over, select.POLLIN)
        return over.fileno() not in dict(poll.poll())

    def close(self) -> None:
        """Close this end of the control connection."""
        self._control.close()


def at_node(sock: socket.socket) -> NodeControl[NodeOrder]:
    """The node's end of a control connection."""
    return NodeControl(sock, TO_NODE)


def at_orchestrator(sock: socket.socket) -> NodeControl[NodeReport]:
    """The orchestrator's end of a control connection."""
    return NodeControl(sock, FROM_NODE)
