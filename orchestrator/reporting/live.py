# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The live view: a page on loopback that shows a run while it goes.

It listens only where it was asked for, on a free port of 127.0.0.1; a random token in the address
keeps other users of the machine out. The page asks for what is new some times a second. What it
shows of a round in progress comes from the base station, which tells its steps and queues now and
then (`workloads.nodes.progress`); the steps on board of the UAVs are known when the round has
ended.
"""

import hmac
import json
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from orchestrator.emulation.observer import Observer
from orchestrator.prediction.plan import Array
from orchestrator.reporting.legend import STEP_COLOURS, STEP_TITLES
from orchestrator.reporting.pages import render_page
from orchestrator.scenario.schema import Scenario
from testbed.control.messages import Progress
from testbed.core.clock import EmulatedClock
from testbed.core.timeline import STEPS, Round

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


class Live:
    """What the page shows; written by the run, read by the server's threads."""

    def __init__(self, scenario: Scenario):
        self.scenario = scenario
        self.lock = threading.Lock()
        self.phase = "starting nodes"
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
        self.told = threading.Event()
        """Set when a page has heard that the run has ended."""
        self.asked_s = 0.0

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

    def heard(self, message: Progress) -> None:
        """The base station told how far its round is."""
        with self.lock:
            self.measured += [
                (client, iteration, STEPS.index(step), start_s, end_s)
                for client, iteration, step, start_s, end_s, _ in message.steps
            ]
            self.waiting = {name: list(queue) for name, queue in message.waiting.items()}

    def finished(self, measured: Round) -> None:
        """The round has ended: now all its steps are known."""
        with self.lock:
            self.phase = "between rounds"
            self.measured = _rows(measured)
            self.latencies_s.append(measured.latency_s)
            self.waiting = {"compute": [], "transmit": []}

    def end(self) -> None:
        """The run has ended; waits a moment for a page that watches to hear of it."""
        with self.lock:
            self.phase = "ended"
        if time.monotonic() - self.asked_s < LINGER_S:
            self.told.wait(LINGER_S)

    # What the page asks.

    def state(self, round_: int, steps: int) -> dict[str, Any]:
        """What is new for a page that has so many measured steps of that round."""
        with self.lock:
            self.asked_s = time.monotonic()
            if self.phase == "ended":
                self.told.set()
            state: dict[str, Any] = {
                "phase": self.phase,
                "round": self.index,
                "rounds": self.scenario.rounds,
                "latencies_s": self.latencies_s,
                "waiting": self.waiting,
            }
            if self.clock is None:
                return state
            now_s = self.clock.now()
            if self.phase != "running":
                now_s = max((row[4] for row in self.measured), default=now_s)
            slot = max(0, int(now_s / self.scenario.slot_s))
            same = round_ == self.index and self.phase == "running"
            same = same and 0 <= steps <= len(self.measured)
            rates = {
                name: np.round(
                    bps[:, np.clip(slot - self.first, 0, bps.shape[1] - 1)] / 1e3
                ).tolist()
                for name, bps in self.rates_bps.items()
            }
            place = self.position_m
            return state | {
                "start_s": self.clock.start_s,
                "now_s": now_s,
                "expected_s": self.expected_s,
                "from": steps if same else 0,
                "steps": self.measured[steps:] if same else self.measured,
                "predicted": None if same else self.predicted,
                "up_kbps": rates["up"],
                "down_kbps": rates["down"],
                "position_m": None
                if place is None
                else np.round(place[:, min(slot, place.shape[1] - 1), :2], 1).tolist(),
            }


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
    token = secrets.token_urlsafe(24)
    page = _page(scenario).encode()
    # A class a view: the handler's class is all that the server lets one choose.
    handler = type("Handler", (_Handler,), {"live": live, "token": token, "page": page})
    with _Server(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=_behind(server.serve_forever), args=(0.1,), daemon=True).start()
        log.info("live view: http://127.0.0.1:%d/%s/", server.server_port, token)
        try:
            yield live
        finally:
            live.end()
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

    live: Live
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
            state = json.dumps(self.live.state(round_, steps), allow_nan=False)
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
