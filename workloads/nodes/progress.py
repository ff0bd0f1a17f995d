# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Tells the orchestrator how far the base station's round is, for who watches it live."""

import threading
from collections.abc import Callable, Mapping, Sequence

from testbed.control.messages import NodeOrder, Progress, Span
from testbed.control.node import NodeControl
from testbed.core.schedule import Resource

EVERY_S = 0.25
"""Real seconds between two messages."""


class ProgressReporter:
    """A thread that sends new steps and the queues now and then, until `stop`.

    Nothing else may use `control` meanwhile. It runs at the station's own priority: one that gave
    way to other programs could be stopped while it holds the interpreter, and the station with it.

    Args:
        control: Where to.
        noted: Lists of steps that the round appends to.
        waiting: Who waits for what; asked from the thread.
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
        """Send nothing more; `control` is free."""
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
