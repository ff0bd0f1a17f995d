# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The live view: a page on loopback that shows a run while it goes.

It listens only where it was asked for, on a free port of 127.0.0.1; a random token in the address
keeps other users of the machine out. The page asks for what is new some times a second. What it
shows of a round in progress comes from the base station, which tells its steps and queues now and
then (`workloads.nodes.progress`); the steps on board of the UAVs are known when the round has
ended. A run in virtual time tells its host what there is to show (`Live` inside, `Mirror` there).
"""

import hmac
import json
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from orchestrator.emulated.observer import Observer
from orchestrator.engine.plan import Array
from orchestrator.reporting.legend import STEP_COLOURS, STEP_TITLES
from orchestrator.reporting.pages import render_page
from orchestrator.scenario.schema import Scenario
from testbed.control.messages import Progress
from testbed.core.clock import EmulatedClock
from testbed.core.timeline import STEPS, Round
from testbed.system import inside

log = logging.getLogger(__name__)

SCRIPTS = ("charts", "live")
ASK_S = 0.25
"""Between two questions of the page."""
LINGER_S = 2.0
"""How long the end of a run waits for a page that watched to hear of it."""
NICE = 10
"""The view's threads go behind everything else: nothing waits for them."""

Row = tuple[int, int, int, float, float]
"""Client, iteration, index of the step, start_s, end_s."""


class View:
    """What the page asks; the server's threads do so."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.lock = threading.Lock()
        self.phase = "starting nodes"
        self.told = threading.Event()
        """Set when a page has heard that the run has ended."""
        self.asked_s = 0.0

    def whole(self) -> dict[str, Any]:
        """All that there is to show; the lock is held."""
        return {
            "phase": self.phase,
            "round": -1,
            "rounds": self.rounds,
            "latencies_s": [],
            "waiting": {"compute": [], "transmit": []},
        }

    def state(self, round_: int, steps: int) -> dict[str, Any]:
        """What is new for a page that has so many measured steps of that round."""
        with self.lock:
            self.asked_s = time.monotonic()
            state = self.whole()
            if self.phase == "ended":
                self.told.set()
        if "steps" not in state:
            return state
        same = round_ == state["round"] and state["phase"] == "running"
        if not (same and 0 <= steps <= len(state["steps"])):
            return state
        return state | {"from": steps, "steps": state["steps"][steps:], "predicted": None}

    def end(self) -> None:
        """The run has ended; waits a moment for a page that watches to hear of it."""
        with self.lock:
            self.phase = "ended"
        if time.monotonic() - self.asked_s < LINGER_S:
            self.told.wait(LINGER_S)


class Live(View):
    """A run that is watched.

    Args:
        scenario: Which it is of.
        tell: Given all that there is to show, whenever that has changed.
    """

    def __init__(
        self, scenario: Scenario, tell: Callable[[dict[str, Any]], object] | None = None
    ) -> None:
        super().__init__(scenario.rounds)
        self.slot_s = scenario.slot_s
        self.tell = tell
        self.index = -1
        self.clock: EmulatedClock | None = None
        self.expected_s = 0.0
        self.predicted: list[Row] = []
        self.measured: list[Row] = []
        self.waiting: dict[str, list[int]] = {"compute": [], "transmit": []}
        self.latencies_s: list[float] = []
        self.first = 0
        self.rates_bps: dict[str, Array] = {}
        self.position_m: Array | None = None

    # What the run tells.

    def begin(
        self,
        expected: Round,
        clock: EmulatedClock,
        first: int,
        uplink_bps: Array,
        downlink_bps: Array,
        position_m: Array | None,
    ) -> None:
        """A round begins.

        Args:
            expected: As the engine predicts it from this start, with the bytes on the link.
            clock: The round's.
            first: Slot of the rates' first column.
            uplink_bps: Shape [K, slots], as `downlink_bps`.
            downlink_bps: Of gradients.
            position_m: Shape [K, S, 3] from slot 0; None where the trace brings none.
        """
        with self.lock:
            self.phase = "running"
            self.index = expected.index
            self.clock = clock
            self.expected_s = expected.latency_s
            self.predicted = _rows(expected)
            self.measured = []
            self.waiting = {"compute": [], "transmit": []}
            self.first = first
            self.rates_bps = {"up": uplink_bps, "down": downlink_bps}
            self.position_m = position_m
        self._changed()

    def heard(self, message: Progress) -> None:
        """The base station told how far its round is."""
        with self.lock:
            self.measured += [
                (client, iteration, STEPS.index(step), start_s, end_s)
                for client, iteration, step, start_s, end_s, _ in message.steps
            ]
            self.waiting = {name: list(queue) for name, queue in message.waiting.items()}
        self._changed()

    def finished(self, measured: Round) -> None:
        """The round has ended: now all its steps are known."""
        with self.lock:
            self.phase = "between rounds"
            self.measured = _rows(measured)
            self.latencies_s.append(measured.latency_s)
            self.waiting = {"compute": [], "transmit": []}
        self._changed()

    def _changed(self) -> None:
        if self.tell is not None:
            with self.lock:
                state = self.whole()
            self.tell(state)

    # What there is to show.

    def whole(self) -> dict[str, Any]:
        """All that there is to show; the lock is held."""
        state = super().whole() | {
            "round": self.index,
            "latencies_s": list(self.latencies_s),
            "waiting": self.waiting,
        }
        if self.clock is None:
            return state
        now_s = self.clock.now()
        if self.phase != "running":
            now_s = max((row[4] for row in self.measured), default=now_s)
        slot = max(0, int(now_s / self.slot_s))
        rates = {
            name: np.round(bps[:, np.clip(slot - self.first, 0, bps.shape[1] - 1)] / 1e3).tolist()
            for name, bps in self.rates_bps.items()
        }
        place = self.position_m
        return state | {
            "start_s": self.clock.start_s,
            "now_s": now_s,
            "expected_s": self.expected_s,
            "from": 0,
            "steps": list(self.measured),
            "predicted": self.predicted,
            "up_kbps": rates["up"],
            "down_kbps": rates["down"],
            "position_m": None
            if place is None
            else np.round(place[:, min(slot, place.shape[1] - 1), :2], 1).tolist(),
        }


class Mirror(View):
    """A run in virtual time that is watched from its host."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario.rounds)
        self._shown: dict[str, Any] | None = None

    def show(self, state: dict[str, Any]) -> None:
        """Take what the run has told."""
        with self.lock:
            self.phase = state["phase"]
            self._shown = state

    def whole(self) -> dict[str, Any]:
        """All that there is to show; the lock is held."""
        return super().whole() | (self._shown or {}) | {"phase": self.phase}


def _rows(round_: Round) -> list[Row]:
    return [
        (client, iteration, step, round(start_s, 6), round(end_s, 6))
        for client, iteration, step, start_s, end_s, _ in round_.spans.tolist()
    ]


_watches: type[Observer] = Live  # what mypy holds it against


@contextmanager
def serve(scenario: Scenario) -> Iterator[Live]:
    """A live view that is served while the context lasts; its address is logged."""
    live = Live(scenario)
    with served(live, _page(scenario)):
        yield live


@contextmanager
def mirror(scenario: Scenario) -> Iterator[Mirror]:
    """The same, of a run in virtual time."""
    view = Mirror(scenario)
    with served(view, _page(scenario)):
        yield view


@contextmanager
def told(scenario: Scenario) -> Iterator[Live]:
    """A run in virtual time tells its host what there is to show, while the context lasts."""
    yield Live(scenario, inside.report_state)


@contextmanager
def served(view: View, page: str) -> Iterator[None]:
    """A page on loopback for as long as the context lasts; its address is logged."""
    token = secrets.token_urlsafe(24)
    # A class a view: the handler's class is all that the server lets one choose.
    handler = type("Handler", (_Handler,), {"view": view, "token": token, "page": page.encode()})
    with _Server(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=_behind(server.serve_forever), args=(0.1,), daemon=True).start()
        log.info("live view: http://127.0.0.1:%d/%s/", server.server_port, token)
        try:
            yield
        finally:
            view.end()
            server.shutdown()


def _behind(function: Any) -> Any:
    """The function, run by a thread that goes behind everything else."""

    def run(*arguments: Any) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        function(*arguments)

    return run


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Bind, without asking a name server who we are."""
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "localhost", self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A page that goes away in the middle of an answer is no error."""


class _Handler(BaseHTTPRequestHandler):
    """Answers who knows the token; to everybody else only that it does not."""

    view: View
    token: str
    page: bytes
    protocol_version = "HTTP/1.1"
    timeout = 10

    def do_GET(self) -> None:
        """The page, or what is new for it."""
        asked = urlsplit(self.path)
        _, token, *rest = f"{asked.path}//".split("/")
        known = hmac.compare_digest(token.encode(), self.token.encode())
        if known and rest[0] == "" and asked.path.endswith("/"):
            self._answer(200, "text/html; charset=utf-8", self.page)
        elif known and rest[0] == "state":
            query = parse_qs(asked.query)
            round_, steps = (_count(query.get(name)) for name in ("round", "steps"))
            state = json.dumps(self.view.state(round_, steps), allow_nan=False)
            self._answer(200, "application/json", state.encode())
        else:
            self.send_error(403)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse, whatever was wrong, without a word on what there is."""
        self.close_connection = True
        self._answer(403, "text/plain", b"")

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response_only(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Stderr is for the run."""


def _count(given: list[str] | None) -> int:
    return int(given[0]) if given and re.fullmatch(r"\d{1,9}", given[0], re.ASCII) else -1


def _page(scenario: Scenario) -> str:
    known = {
        "uavs": scenario.uavs.count,
        "rings_m": scenario.uavs.rings_m,
        "ring": [scenario.uavs.rings_m.index(ring) for ring in scenario.uavs.ring_m],
        "base_station_m": scenario.base_station.position_m,
        "ask_s": ASK_S,
        "steps": [
            {"name": step, "title": STEP_TITLES[step], "colour": STEP_COLOURS[step]}
            for step in STEPS
        ],
    }
    return render_page(
        "live.html", SCRIPTS, known, name=scenario.name, paradigm=scenario.scheme.title
    )
