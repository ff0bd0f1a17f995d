"""The node programs of a run, as the orchestrator talks to them and watches over them."""

import contextlib
import heapq
import itertools
import select
import time
from collections.abc import Callable, Sequence
from typing import Any

from testbed.control.node import ControlLost, Message, NodeControl, NodeFailed
from testbed.core.errors import RunError
from testbed.runtimes import Exit, World

BS = "bs"
POLL_S = 0.2
KILL_TIMEOUT_S = 30.0
"""Real seconds after which a killed process has ended."""


def uav(client: int) -> str:
    """The name of a client's node; clients count from 1."""
    return f"uav{client}"


class Nodes:
    """All nodes of a world, connected over the control plane."""

    def __init__(self, world: World, stack: contextlib.ExitStack, timeout_s: float):
        self.world = world
        self.hears: dict[str, Callable[[str, Message], object]] = {}
        """By kind, who takes what nodes tell on the way, whatever is waited for; is given the
        node's name, and the message."""
        self._alarms: list[tuple[int, int, Callable[[], object]]] = []
        self._serial = itertools.count()
        self.killed: set[str] = set()
        """Nodes that `kill` has ended."""
        self._nodes: dict[str, NodeControl] = {}
        for name, sock in world.connect(timeout_s).items():
            self._nodes[name] = NodeControl(sock)
            stack.callback(self._nodes[name].close)

    @property
    def names(self) -> list[str]:
        """Of all nodes that have not been killed."""
        return list(self._nodes)

    def at(self, monotonic_ns: int, action: Callable[[], object]) -> None:
        """Have something done at that moment, while `collect` waits."""
        heapq.heappush(self._alarms, (monotonic_ns, next(self._serial), action))

    def forget_alarms(self) -> None:
        """Do nothing any more of what `at` was told."""
        self._alarms.clear()

    def kill(self, name: str) -> None:
        """End a node's process by SIGKILL, and wait until it has ended; nobody waits for it any
        more, and what it has told is heard."""
        node = self._nodes.pop(name)
        self.killed.add(name)
        self.world.kill(name)
        with contextlib.suppress(ControlLost):
            while True:
                message = node.receive(KILL_TIMEOUT_S)
                if hear := self.hears.get(message["kind"]):
                    hear(name, message)

    def send(self, name: str, kind: str, **fields: Any) -> None:
        """Send an order to one node.

        Raises:
            RunError: It ended; the message says how.
        """
        try:
            self._nodes[name].send(kind, **fields)
        except ControlLost as lost:
            raise RunError(self._why(name, lost)) from None

    def send_all(self, kind: str, **fields: Any) -> None:
        """Send the same order to every node; see `send`."""
        for name in self._nodes:
            self.send(name, kind, **fields)

    def collect(
        self,
        kind: str,
        names: Sequence[str],
        limit_s: float,
        watch: Callable[[], None] = lambda: None,
    ) -> dict[str, Message]:
        """Wait for one message of that kind from each named node, watching over everything.

        Raises:
            RunError: A node failed or ended, or the time is up: the message says who.
        """
        deadline = time.monotonic() + limit_s
        received: dict[str, Message] = {}
        waiting = {self._nodes[name].fileno(): name for name in names}
        poll = select.poll()
        for descriptor in (*waiting, self.world.fileno()):
            poll.register(descriptor, select.POLLIN)
        # A message may have come together with an earlier one, and then lies here already.
        ready = list(waiting)
        while True:
            for descriptor in ready:
                if name := waiting.get(descriptor):
                    message = self._take_from(name)
                    while message is not None and message["kind"] in self.hears:
                        self.hears[message["kind"]](name, message)
                        message = self._take_from(name)
                    if message is None:
                        continue
                    if message["kind"] != kind:
                        raise RunError(f"{name}: {message['kind']!r} came where {kind!r} was due")
                    received[name] = message
                    poll.unregister(descriptor)
                    del waiting[descriptor]
                elif ended := self._exits():
                    raise RunError(self._last_words(ended[0]))
            while self._alarms and self._alarms[0][0] <= time.monotonic_ns():
                heapq.heappop(self._alarms)[2]()
            for descriptor in [d for d, name in waiting.items() if name in self.killed]:
                poll.unregister(descriptor)
                del waiting[descriptor]
            if not waiting:
                return received
            if time.monotonic() > deadline:
                late = ", ".join(sorted(waiting.values()))
                raise RunError(f"waited {limit_s:g} s for {kind!r} from {late}")
            watch()
            ready = [descriptor for descriptor, _ in poll.poll(1000 * self._rest_s())]

    def _rest_s(self) -> float:
        """Real seconds until there is something to be done."""
        if not self._alarms:
            return POLL_S
        return max(0.0, min(POLL_S, (self._alarms[0][0] - time.monotonic_ns()) / 1e9))

    def _take_from(self, name: str) -> Message | None:
        """The next message of a node, if it is there.

        Raises:
            RunError: The node failed or ended; the message says how.
        """
        try:
            return self._nodes[name].take()
        except ControlLost as lost:
            raise RunError(self._why(name, lost)) from None

    def _why(self, name: str, lost: ControlLost) -> str:
        """How a node ended, or who was ended before it failed; else what it said itself."""
        # The world tells; let it come to that.
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            for ended in self._exits():
                if ended.status < 0 or (ended.name == name and not isinstance(lost, NodeFailed)):
                    return str(ended) if ended.name == name else f"{ended} ({name}: {lost})"
            time.sleep(0.02)
        return f"{name}: {lost}"

    def _exits(self) -> list[Exit]:
        """The nodes that ended since the last call, and should not have."""
        return [ended for ended in self.world.exits() if ended.name not in self.killed]

    def _last_words(self, ended: Exit) -> str:
        """How a node ended, with the reason it gave if it could still give one."""
        if node := self._nodes.get(ended.name):
            try:
                node.take()
            except NodeFailed as failure:
                return f"{ended}: {failure}"
            except ControlLost:
                pass
        return str(ended)
