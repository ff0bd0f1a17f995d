# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The live view of a session: capacity, load and queue of each link."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from orchestrator.emulated.session import Session
from orchestrator.emulated.session_table import Counts
from orchestrator.engine.plan import Array
from orchestrator.reporting.live import POLL_S, View, served
from orchestrator.reporting.outcome import clock_sentence, ends_sentence
from orchestrator.reporting.pages import render_page
from orchestrator.scenario.schema import Scenario

SCRIPTS = ("charts", "frame", "live_session")
MOST_SAMPLES = 120
"""Samples of the counters that the page shows; there is one per second."""


class LiveSession(View):
    """The state of a session that is shown live; each sample sums several slots."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(0)
        self._slot_s = scenario.slot_s
        self._samples: deque[dict[str, Any]] = deque(maxlen=MOST_SAMPLES)
        self._taken = 0
        self.phase = "before slot 0"

    def take(self, first: int, offered: Array, carried: Counts, queued: Counts) -> None:
        """Add a sample of the slots from `first` on; see the session recorder's `watcher`."""
        slots = len(carried)
        to_kbps = 8e-3 / (slots * self._slot_s)
        sample = {
            "end_s": round((first + slots) * self._slot_s, 6),
            "offered_kbps": np.round(offered.sum(axis=0) * to_kbps, 1).tolist(),
            "carried_kbps": np.round(carried.sum(axis=0) * to_kbps, 1).tolist(),
            "queued_bytes": queued[-1].tolist(),
        }
        with self.lock:
            self.phase = "running"
            self._taken += 1
            self._samples.append(sample)

    def whole(self) -> dict[str, Any]:
        """The complete state; call it with the lock held."""
        first = self._taken - len(self._samples)
        return {
            "phase": self.phase,
            "outcome": self.outcome,
            "report": self.report,
            "from": first,
            "looks": list(self._samples),
        }

    def state(self, round_: int, steps: int) -> dict[str, Any]:
        """The changes for a page that has received `steps` samples."""
        state = super().state(round_, steps)
        known = min(max(0, steps - state["from"]), len(state["looks"]))
        return state | {"from": state["from"] + known, "looks": state["looks"][known:]}


@contextmanager
def watched(session: Session) -> Iterator[LiveSession]:
    """Serve a live view of a session while the context lasts; logs its address."""
    scenario = session.scenario
    view = LiveSession(scenario)
    known = {
        "uavs": scenario.uavs.count,
        "ask_s": 2 * POLL_S,
        "looks": MOST_SAMPLES,
        "shared": session.options.downlink == "shared",
    }
    page = render_page(
        "live_session.html",
        SCRIPTS,
        known,
        name=scenario.name,
        clock=clock_sentence(scenario.emulation.clock, scenario.emulation.dilation),
        notes=session.notes,
    )
    with served(view, page):
        session.recorder.watcher = view.take
        try:
            yield view
        finally:
            session.recorder.watcher = None
            view.outcome = _outcome(session)
            view.report = str(session.folder.absolute() / "report.html")


def _outcome(session: Session) -> str:
    """How the commands ended; the session is judged later."""
    programs = [
        {"node": program.node, "status": program.returncode, "stopped": program.returncode is None}
        for program in session.programs
    ]
    ends = ends_sentence(programs)
    return f"The session has ended. {ends} The report contains the validity checks."
