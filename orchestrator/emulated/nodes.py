# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The node programs of a run: sends them orders, collects their messages, and detects failures."""

import contextlib
import heapq
import itertools
import select
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from testbed.control.messages import NodeOrder, NodeReport
from testbed.control.node import ControlLost, NodeControl, NodeFailed, at_orchestrator
from testbed.core.errors import InputError, RunError
from testbed.core.node import NodeId
from testbed.runtimes import Exit, HostLost, World
from testbed.system.leftovers import stopped

Kind = TypeVar("Kind")
POLL_S = 0.2
KILL_TIMEOUT_S = 30.0
"""Real seconds in which a killed process must have ended."""


class Nodes:
    """All nodes of a world, connected over the control plane."""

    def __init__(self, world: World, stack: contextlib.ExitStack, timeout_s: float):
        self.world = world
        self.hears: dict[type, Callable[[NodeId, Any], object]] = {}
        """Handlers of messages that nodes may send at any time, by type."""
        self._alarms: list[tuple[int, int, Callable[[], object]]] = []
        self._serial = itertools.count()
        self.killed: set[NodeId] = set()
        """Nodes that `kill` has ended, or that were lost with their hosts."""
        self.on_lost: Callable[[HostLost], object] | None = None
        """Called when a host is lost; its nodes are no longer waited for. None: the run fails."""
        self._nodes: dict[NodeId, NodeControl[NodeReport]] = {}
        for node, sock in world.connect(timeout_s).items():
            self._nodes[node] = at_orchestrator(sock)
            stack.callback(self._nodes[node].close)

    @property
    def may_lose_hosts(self) -> bool:
        """Whether nodes live on several hosts."""
        return len(set(self.world.places.values())) > 1

    @property
    def alive(self) -> list[NodeId]:
        """All nodes that have been neither killed nor lost."""
        return list(self._nodes)

    def at(self, monotonic_ns: int, action: Callable[[], object]) -> None:
        """Call `action` at that moment, while `collect` waits."""
        heapq.heappush(self._alarms, (monotonic_ns, next(self._serial), action))

    def forget_alarms(self) -> None:
        """Cancel all actions of `at`."""
        self._alarms.clear()

    def kill(self, node: NodeId) -> None:
        """End a node's process by SIGKILL, and wait until it has ended.

        Its earlier messages are still processed, and later calls do not wait for it. A node that
        was lost is ignored.
        """
        if node in self.killed:
            return
        control = self._nodes.pop(node)
        self.killed.add(node)
        self.world.kill(node)
        with contextlib.suppress(ControlLost):
            while True:
                message = control.receive(KILL_TIMEOUT_S)
                if hear := self.hears.get(type(message)):
                    hear(node, message)

    def send(self, node: NodeId, order: NodeOrder) -> None:
        """Send an order to one node; does nothing if the node was lost with its host.

        Raises:
            RunError: The node has ended; the message gives the reason.
        """
        if node in self.killed:
            return
        try:
            self._nodes[node].send(self.world.ordered(node, order))
        except ControlLost as lost:
            self._on_disconnect(node, lost)

    def send_all(self, order: NodeOrder) -> None:
        """Send the same order to every node; see `send`."""
        for node in self.alive:
            self.send(node, order)

    def collect(
        self,
        kind: type[Kind],
        nodes: Sequence[NodeId],
        limit_s: float,
        watch: Callable[[], None] = lambda: None,
    ) -> dict[NodeId, Kind]:
        """Wait for one message of that kind from each of these nodes that is not lost meanwhile.

        The whole world is monitored in the meantime.

        Raises:
            RunError: A node failed or ended, or the timeout expired; the message names the nodes.
        """
        deadline = time.monotonic() + limit_s
        received: dict[NodeId, Kind] = {}
        waiting = {self._nodes[node].fileno(): node for node in nodes if node not in self.killed}
        poll = select.poll()
        for descriptor in (*waiting, self.world.fileno()):
            poll.register(descriptor, select.POLLIN)
        # A message may have arrived together with an earlier one, and is then here already.
        ready = list(waiting)
        while True:
            for descriptor in ready:
                if (node := waiting.get(descriptor)) is not None:
                    message = self._take_from(node)
                    while message is not None and (hear := self.hears.get(type(message))):
                        hear(node, message)
                        message = self._take_from(node)
                    if message is None:
                        continue
                    if not isinstance(message, kind):
                        came = type(message).__name__
                        raise RunError(f"{node}: {came} arrived where {kind.__name__} was expected")
                    received[node] = message
                    poll.unregister(descriptor)
                    del waiting[descriptor]
                elif ended := self._exits():
                    raise self._end_reason(ended[0])
            while self._alarms and self._alarms[0][0] <= time.monotonic_ns():
                heapq.heappop(self._alarms)[2]()
            for descriptor in [d for d, node in waiting.items() if node in self.killed]:
                poll.unregister(descriptor)
                del waiting[descriptor]
            if not waiting:
                return received
            watch()
            is_late = time.monotonic() > deadline
            ready = [descriptor for descriptor, _ in poll.poll(1000 * self._rest_s())]
            # Messages that have arrived are not late: this process may have been slow.
            if is_late and not ready:
                late = ", ".join(map(str, sorted(waiting.values())))
                due = f"waited {limit_s:g} s for {kind.__name__} from {late}"
                if halted := ", ".join(stopped()):
                    due = f"{halted} was stopped (SIGSTOP), and nothing has continued it: {due}"
                raise RunError(due)

    def _rest_s(self) -> float:
        """Real seconds until the next action is due."""
        if not self._alarms:
            return POLL_S
        return max(0.0, min(POLL_S, (self._alarms[0][0] - time.monotonic_ns()) / 1e9))

    def _take_from(self, node: NodeId) -> NodeReport | None:
        """The next message of a node, if there is one.

        Raises:
            InputError: The node found an error in the scenario, e.g. data that do not fit the
                model.
            RunError: The node failed or ended; the message gives the reason.
        """
        if node in self.killed:
            return None
        try:
            return self._nodes[node].take()
        except ControlLost as lost:
            if isinstance(lost, NodeFailed) and lost.wrong_input:
                raise InputError(str(lost)) from None
            self._on_disconnect(node, lost)
            return None

    def _on_disconnect(self, node: NodeId, lost: ControlLost) -> None:
        """Handle a node whose control connection has ended.

        Raises:
            RunError: The node ended while its host is alive; the message gives the reason.
        """
        why = self._reason(node, lost)
        if node not in self.killed:
            raise RunError(why) from None

    def _reason(self, node: NodeId, lost: ControlLost) -> str:
        """The reason why a node, or another one before it, ended; otherwise its own message."""
        # The world reports the reason, possibly a moment later.
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline and node not in self.killed:
            for ended in self._exits():
                if ended.status < 0 or (ended.node == node and not isinstance(lost, NodeFailed)):
                    return str(ended) if ended.node == node else f"{ended} ({node}: {lost})"
            time.sleep(0.02)
        return f"{node}: {lost}"

    def _exits(self) -> list[Exit]:
        """The nodes that ended unexpectedly since the last call."""
        found = []
        for news in self.world.news():
            if isinstance(news, HostLost):
                self._handle_host_loss(news)
            elif isinstance(news, Exit) and news.node not in self.killed:
                found.append(news)
        return found

    def _handle_host_loss(self, lost: HostLost) -> None:
        """Continue without a host, after processing the earlier messages of its nodes.

        Raises:
            RunError: Rounds cannot continue without this node.
        """
        if self.on_lost is None:
            raise RunError(str(lost))
        for node in self._nodes.keys() & set(lost.nodes):
            control = self._nodes.pop(node)
            self.killed.add(node)
            with contextlib.suppress(ControlLost):
                while (message := control.take()) is not None:
                    if hear := self.hears.get(type(message)):
                        hear(node, message)
        self.on_lost(lost)

    def _end_reason(self, ended: Exit) -> InputError | RunError:
        """Description of a node's end, with the reason that it reported, if any."""
        if ended.node in self._nodes:
            try:
                self._nodes[ended.node].take()
            except NodeFailed as failure:
                if failure.wrong_input:
                    return InputError(str(failure))
                return RunError(f"{ended}: {failure}")
            except ControlLost:
                pass
        return RunError(str(ended))
