# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Reports the progress of the base station's round to the orchestrator, for the live view."""

import threading
from collections.abc import Callable, Mapping, Sequence

from testbed.control.messages import NodeOrder, Progress, Span
from testbed.control.node import NodeControl
from testbed.core.schedule import Resource

EVERY_S = 0.25
"""Real seconds between two messages."""


class ProgressReporter:
    """A thread that periodically sends new steps and the queues until `stop` is called.

    No other code may use `control` meanwhile. The thread has the base station's priority: with a
    lower one it could be preempted while it holds the interpreter lock, and block the base station.

    Args:
        control: Connection to the orchestrator.
        noted: Lists of steps that the round appends to.
        waiting: Returns the queue of each resource; called by the thread.
    """

    def __init__(
        self,
        control: NodeControl[NodeOrder],
        noted: Sequence[list[Span]],
        waiting: Callable[[], Mapping[Resource, list[int]]],
    ):
        self.control = control
        self.noted = noted
        self.waiting = waiting
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; `control` may then be used again."""
        self._over.set()
        self._thread.join()

    def _tell(self) -> None:
        told = [0] * len(self.noted)
        while not self._over.wait(EVERY_S):
            now = [list(one) for one in self.noted]
            steps = tuple(s for seen, one in zip(told, now, strict=True) for s in one[seen:])
            told = [len(one) for one in now]
            waiting = {str(name): tuple(queue) for name, queue in self.waiting().items()}
            self.control.send(Progress(steps, waiting))
