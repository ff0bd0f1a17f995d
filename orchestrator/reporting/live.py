# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The live view: a page on loopback that shows the progress of a run.

It listens on a free port of 127.0.0.1; a random token in the address excludes other users of the
machine. The page polls for changes every `POLL_S`. The base station reports its steps and queues
during a round (`workloads.nodes.progress`); the UAVs' own steps are known after the round. A run in
virtual time sends the contents of the page to its host (`Live` in the guest, `Mirror` on the host).
"""

import hmac
import json
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from ns3_scenarios.trace import SlotTrace
from orchestrator.emulated.observer import Observer
from orchestrator.engine.plan import Array
from orchestrator.engine.radio import WHILE_ALL_SEND, describe_radio
from orchestrator.records.emulation import Check
from orchestrator.reporting.legend import STEP_COLOURS, STEP_TITLES
from orchestrator.reporting.outcome import clock_sentence, latency_sentence, validity_sentence
from orchestrator.reporting.pages import render_page
from orchestrator.scenario.schema import Scenario
from testbed.control.messages import Progress
from testbed.core.clock import EmulatedClock
from testbed.core.timeline import STEPS, Round
from testbed.system import inside

log = logging.getLogger(__name__)

SCRIPTS = ("charts", "frame", "live")
POLL_S = 0.25
"""Time between two requests of the page, s."""
LINGER_S = 2.0
"""Longest time that a run waits at its end for an open page to receive the final state, s."""
NICE = 10
"""Niceness of the view's threads, which must not delay the run."""

Row = tuple[int, int, int, float, float]
"""Client, iteration, index of the step, start_s, end_s."""


class View:
    """State of a page, which the server's threads read."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.lock = threading.Lock()
        self.phase = "starting nodes"
        self.informed = threading.Event()
        """Set when a page has received the final state."""
        self.requested_s = 0.0
        self.outcome = ""
        """Sentences that say what came out; empty until the end."""
        self.report: str | None = None
        """Path of the report, which is written at the end."""

    def whole(self) -> dict[str, Any]:
        """The complete state; call it with the lock held."""
        return {
            "phase": self.phase,
            "outcome": self.outcome,
            "report": self.report,
            "round": -1,
            "rounds": self.rounds,
            "latencies_s": [],
            "waiting": {"compute": [], "transmit": []},
        }

    def state(self, round_: int, steps: int) -> dict[str, Any]:
        """The changes for a page that has the first `steps` measured steps of a round."""
        with self.lock:
            self.requested_s = time.monotonic()
            state = self.whole()
            if self.phase == "ended":
                self.informed.set()
        if "steps" not in state:
            return state
        same = round_ == state["round"] and state["phase"] == "running"
        if not (same and 0 <= steps <= len(state["steps"])):
            return state
        return state | {"from": steps, "steps": state["steps"][steps:], "predicted": None}

    def end(self) -> None:
        """Mark the run as ended, and wait shortly for an open page to receive that."""
        with self.lock:
            self.phase = "ended"
        if time.monotonic() - self.requested_s < LINGER_S:
            self.informed.wait(LINGER_S)


def _rounds(scenario: Scenario) -> int:
    """Number of rounds that base stations or edge servers play."""
    return scenario.rounds * scenario.edge_rounds * len(scenario.members)


class Live(View):
    """The state of a run that is shown live.

    Args:
        scenario: The run's scenario.
        send: Called with the complete state after every change.
    """

    def __init__(
        self, scenario: Scenario, send: Callable[[dict[str, Any]], object] | None = None
    ) -> None:
        super().__init__(_rounds(scenario))
        self.has_edges = scenario.topology is not None
        self.slot_s = scenario.slot_s
        self.send = send
        self.index = -1
        self.clock: EmulatedClock | None = None
        self.expected_s = 0.0
        self.predicted: list[Row] = []
        self.measured: list[Row] = []
        self.waiting: dict[str, list[int]] = {"compute": [], "transmit": []}
        self.latencies_s: list[float] = []
        self.predicted_s: list[float] = []
        """Predicted latencies of the rounds in `latencies_s`."""
        self.paradigm = scenario.scheme.title
        self.first = 0
        self.rates_bps: dict[str, Array] = {}
        self.position_m: Array | None = None

    # Called by the run.

    def begin(
        self,
        expected: Round,
        clock: EmulatedClock,
        first: int,
        uplink_bps: Array,
        downlink_bps: Array,
        position_m: Array | None,
    ) -> None:
        """Show the start of a round.

        Args:
            expected: The engine's prediction from this start, with the bytes on the link.
            clock: The round's clock.
            first: Slot of the rates' first column.
            uplink_bps: Uplink rates, shape [K, slots].
            downlink_bps: Downlink rates for gradients, shape [K, slots].
            position_m: Positions from slot 0, shape [K, S, 3]; None if the trace has none.
        """
        with self.lock:
            self.phase = "running"
            # Edge servers play their rounds one after the other.
            self.index = len(self.latencies_s) if self.has_edges else expected.index
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
        """Show a progress report of the base station."""
        with self.lock:
            self.measured += [
                (client, iteration, STEPS.index(step), start_s, end_s)
                for client, iteration, step, start_s, end_s, _ in message.steps
            ]
            self.waiting = {name: list(queue) for name, queue in message.waiting.items()}
        self._changed()

    def finished(self, measured: Round) -> None:
        """Show all steps of a round that has ended."""
        with self.lock:
            self.phase = "between rounds"
            self.measured = _rows(measured)
            self.latencies_s.append(measured.latency_s)
            self.predicted_s.append(self.expected_s)
            self.waiting = {"compute": [], "transmit": []}
        self._changed()

    def concluded(self, checks: Sequence[Check], out: Path | None) -> None:
        """Show the verdict and the path of the report."""
        valid = all(check.ok for check in checks)
        sentences = [validity_sentence("run", valid, [asdict(check) for check in checks])]
        if rounds := len(self.latencies_s):
            measured_s, predicted_s = sum(self.latencies_s), sum(self.predicted_s)
            sentences.append(
                latency_sentence(
                    self.paradigm,
                    measured_s / rounds,
                    rounds,
                    measured_s / predicted_s - 1,
                    predicted_s / rounds,
                )
            )
        with self.lock:
            self.outcome = " ".join(sentences)
            self.report = None if out is None else str(out.absolute() / "report.html")
        self._changed()

    def _changed(self) -> None:
        if self.send is not None:
            with self.lock:
                state = self.whole()
            self.send(state)

    # Called for the page.

    def whole(self) -> dict[str, Any]:
        """The complete state; call it with the lock held."""
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
    """The state of a run in virtual time, on its host."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(_rounds(scenario))
        self._shown: dict[str, Any] | None = None

    def show(self, state: dict[str, Any]) -> None:
        """Replace the state by one that the run has sent."""
        with self.lock:
            self.phase = state["phase"]
            self._shown = state

    def whole(self) -> dict[str, Any]:
        """The complete state; call it with the lock held."""
        own = super().whole()
        shown = own | (self._shown or {}) | {"phase": self.phase}
        return shown | {"outcome": own["outcome"] or shown["outcome"]}


def _rows(round_: Round) -> list[Row]:
    return [
        (client, iteration, step, round(start_s, 6), round(end_s, 6))
        for client, iteration, step, start_s, end_s, _ in round_.spans.tolist()
    ]


_implements: type[Observer] = Live  # checked by mypy


@contextmanager
def serve(scenario: Scenario, trace: SlotTrace | None = None) -> Iterator[Live]:
    """Serve a live view while the context lasts; logs its address.

    Args:
        scenario: The run's scenario.
        trace: The trace that replaces its channel; None: there is none.
    """
    live = Live(scenario)
    with served(live, _page(scenario, trace)):
        yield live


@contextmanager
def mirror(scenario: Scenario, trace: SlotTrace | None = None) -> Iterator[Mirror]:
    """Serve a live view of a run in virtual time, otherwise as `serve`."""
    view = Mirror(scenario)
    with served(view, _page(scenario, trace)):
        yield view


@contextmanager
def forwarded(scenario: Scenario) -> Iterator[Live]:
    """Forward the view of a run in virtual time to its host while the context lasts."""
    yield Live(scenario, inside.report_state)


@contextmanager
def served(view: View, page: str) -> Iterator[None]:
    """Serve a page on loopback while the context lasts; logs its address."""
    token = secrets.token_urlsafe(24)
    # The server creates handlers itself: their parameters are attributes of a class.
    handler = type("Handler", (_Handler,), {"view": view, "token": token, "page": page.encode()})
    with _Server(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=_niced(server.serve_forever), args=(0.1,), daemon=True).start()
        log.info("live view: http://127.0.0.1:%d/%s/", server.server_port, token)
        try:
            yield
        except Exception as why:
            view.outcome = f"It failed: {why}"
            raise
        finally:
            view.end()
            server.shutdown()


def _niced(function: Any) -> Any:
    """Wrap a thread's function so that it runs with niceness `NICE`."""

    def run(*arguments: Any) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        function(*arguments)

    return run


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Bind without looking up the host's name."""
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "localhost", self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of a connection, e.g. that the page was closed."""


class _Handler(BaseHTTPRequestHandler):
    """Answers requests with the right token; all others get status 403."""

    view: View
    token: str
    page: bytes
    protocol_version = "HTTP/1.1"
    timeout = 10

    def do_GET(self) -> None:
        """Send the page, or its changes."""
        target = urlsplit(self.path)
        _, token, *rest = f"{target.path}//".split("/")
        known = hmac.compare_digest(token.encode(), self.token.encode())
        if known and rest[0] == "" and target.path.endswith("/"):
            self._answer(200, "text/html; charset=utf-8", self.page)
        elif known and rest[0] == "state":
            query = parse_qs(target.query)
            round_, steps = (_count(query.get(name)) for name in ("round", "steps"))
            state = json.dumps(self.view.state(round_, steps), allow_nan=False)
            self._answer(200, "application/json", state.encode())
        else:
            self.send_error(403)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Reject every invalid request in the same way, without information."""
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
        """Log nothing: stderr is for the run."""


def _count(given: list[str] | None) -> int:
    return int(given[0]) if given and re.fullmatch(r"\d{1,9}", given[0], re.ASCII) else -1


def _page(scenario: Scenario, trace: SlotTrace | None = None) -> str:
    known = {
        "uavs": scenario.uavs.count,
        "rings_m": scenario.uavs.rings_m,
        "ring": [scenario.uavs.rings_m.index(ring) for ring in scenario.uavs.ring_m],
        "base_station_m": scenario.base_station.position_m,
        "ask_s": POLL_S,
        "steps": [
            {"name": step, "title": STEP_TITLES[step], "colour": STEP_COLOURS[step]}
            for step in STEPS
        ],
    }
    return render_page(
        "live.html",
        SCRIPTS,
        known,
        name=scenario.name,
        paradigm=scenario.scheme.title,
        clock=clock_sentence(scenario.emulation.clock, scenario.emulation.dilation),
        radio=describe_radio(scenario, trace),
        rates_note=WHILE_ALL_SEND if scenario.radio.dividing_key else "",
    )
