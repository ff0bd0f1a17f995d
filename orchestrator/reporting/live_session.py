# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The live view of a session: what each link could carry, what it carries, what waits for it."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from orchestrator.emulated.session import Session
from orchestrator.emulated.session_table import Counts
from orchestrator.engine.plan import Array
from orchestrator.reporting.live import ASK_S, View, served
from orchestrator.reporting.pages import render_page
from orchestrator.scenario.schema import Scenario

SCRIPTS = ("charts", "live_session")
LOOKS = 120
"""Times that counts were taken, one a second, of which the page shows what came then."""


class LiveSession(View):
    """A session that is watched; what was counted at a time is merged to a look."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(0)
        self._slot_s = scenario.slot_s
        self._looks: deque[dict[str, Any]] = deque(maxlen=LOOKS)
        self._taken = 0
        self.phase = "before slot 0"

    def take(self, first: int, offered: Array, carried: Counts, queued: Counts) -> None:
        """What links did in slots from `first` on; see `sessions.record.Watcher`."""
        slots = len(carried)
        to_kbps = 8e-3 / (slots * self._slot_s)
        look = {
            "end_s": round((first + slots) * self._slot_s, 6),
            "offered_kbps": np.round(offered.sum(axis=0) * to_kbps, 1).tolist(),
            "carried_kbps": np.round(carried.sum(axis=0) * to_kbps, 1).tolist(),
            "queued_bytes": queued[-1].tolist(),
        }
        with self.lock:
            self.phase = "running"
            self._taken += 1
            self._looks.append(look)

    def whole(self) -> dict[str, Any]:
        """All that there is to show; the lock is held."""
        first = self._taken - len(self._looks)
        return {"phase": self.phase, "from": first, "looks": list(self._looks)}

    def state(self, round_: int, steps: int) -> dict[str, Any]:
        """What is new for a page that has had so many looks."""
        state = super().state(round_, steps)
        known = min(max(0, steps - state["from"]), len(state["looks"]))
        return state | {"from": state["from"] + known, "looks": state["looks"][known:]}


@contextmanager
def watched(session: Session) -> Iterator[LiveSession]:
    """A live view of a session while the context lasts; its address is logged."""
    scenario = session.scenario
    view = LiveSession(scenario)
    known = {
        "uavs": scenario.uavs.count,
        "ask_s": 2 * ASK_S,
        "looks": LOOKS,
        "shared": session.settings.downlink == "shared",
    }
    page = render_page("live_session.html", SCRIPTS, known, name=scenario.name)
    with served(view, page):
        session.recorder.watcher = view.take
        try:
            yield view
        finally:
            session.recorder.watcher = None
