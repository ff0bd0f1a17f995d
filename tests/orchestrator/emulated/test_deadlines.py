# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Nothing waits for ever: whoever does not answer is named, and what is told to wait gives up."""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from orchestrator.emulated import dilation
from orchestrator.emulated.learning import startup_limit_s
from orchestrator.emulated.nodes import Nodes
from orchestrator.scenario.loading import validate
from testbed import runtimes
from testbed.control import stream as control
from testbed.control.codec import encode
from testbed.control.messages import Begin, CountFrames, FramesSent, Low, NodeOrder, Restore
from testbed.control.node import ControlLost, at_node, at_orchestrator
from testbed.control.stream import ControlSocket, NoAnswer
from testbed.core.clock import EmulatedClock
from testbed.core.errors import RunError
from testbed.core.node import BS, NodeId, uav
from testbed.host import doctor, trial
from testbed.network import injector
from testbed.network import pcap as capture
from testbed.network.injector import Injector
from testbed.network.shaping import Shape
from testbed.runtimes import Exit, NodeSpec, namespace
from testbed.system import netlink
from testbed.system.netlink import Batch, Netlink

FULL = bytes(1 << 24)
"""More than a socket holds."""


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_who_reads_no_message_is_given_up(pair, monkeypatch) -> None:
    monkeypatch.setattr(control, "PATIENCE_S", 0.1)
    with pytest.raises(NoAnswer, match=r"waited 0\.1 s for the peer to read"):
        ControlSocket(pair[0]).send({}, FULL)
    with pytest.raises(ControlLost, match=r"^sending Restore: .*waited 0\.1 s"):
        at_orchestrator(pair[0]).send(Restore(FULL))


def test_who_passes_no_files_on_is_given_up(pair, monkeypatch) -> None:
    monkeypatch.setattr(control, "PATIENCE_S", 0.1)
    waiting = ControlSocket(pair[0])
    with pytest.raises(NoAnswer, match=r"waited 0\.1 s for the peer to send open files"):
        waiting.receive_descriptors(1)
    pair[1].close()
    with pytest.raises(RunError, match="the peer has disconnected"):
        waiting.receive_descriptors(1)


def test_a_node_says_what_it_waited_for(pair) -> None:
    with pytest.raises(ControlLost, match=r"^waited 0\.1 s for Begin$"):
        at_node(pair[0]).expect(Begin, 0.1)


def orders(steered: Injector):
    rates = np.ones((1, 1))
    steered.rates(0, rates, rates)
    return {
        "Wired": lambda: steered.await_wired(0.1),
        "EpochBegun": lambda: steered.epoch(EmulatedClock(0, 0.0, 1.0), 0.1),
        "PhaseSet": lambda: steered.phase(0),
        "Capturing": lambda: steered.capture([], headers_only=True),
        "Captured": lambda: steered.end_capture(0),
        "Counters": steered.report,
    }


@pytest.mark.parametrize(
    "event", ["Wired", "EpochBegun", "PhaseSet", "Capturing", "Captured", "Counters"]
)
def test_an_injector_that_does_not_answer_is_given_up(pair, monkeypatch, event: str) -> None:
    monkeypatch.setattr(injector, "ANSWER_S", 0.1)
    monkeypatch.setattr(injector, "END_S", 0.0)
    ask = orders(Injector(pair[0]))[event]
    with pytest.raises(RunError, match=rf"^injector: waited 0\.1 s for {event} from its process"):
        ask()


def test_an_injector_that_says_everything_but_what_is_due_is_given_up(pair, monkeypatch) -> None:
    monkeypatch.setattr(injector, "ANSWER_S", 0.2)
    ask = orders(Injector(pair[0]))["Counters"]
    over = threading.Event()

    def chatter() -> None:
        told = ControlSocket(pair[1])
        while not over.wait(0.001):
            told.send(*encode(Low(1)))

    thread = threading.Thread(target=chatter)
    thread.start()
    try:
        with pytest.raises(RunError, match=r"waited .* for Counters"):
            ask()
    finally:
        over.set()
        thread.join()


def test_an_injector_that_takes_no_orders_is_given_up(pair, monkeypatch) -> None:
    monkeypatch.setattr(control, "PATIENCE_S", 0.1)
    steered, rates = Injector(pair[0]), np.ones((1, len(FULL) // 8))
    with pytest.raises(RunError, match=r"^injector: its process takes no order .*waited 0\.1 s"):
        steered.rates(0, rates, rates)


def test_a_kernel_that_owes_no_answer_is_not_waited_for(monkeypatch) -> None:
    monkeypatch.setattr(netlink, "ANSWER_S", 0.1)
    with Netlink() as asked:
        index = (1).to_bytes(4, "little")
        asked.send(Batch([netlink.message(netlink.GETLINK, 0, bytes(4) + index + bytes(8))]))
        asked.check()  # The link,
        asked.check()  # and that this was all.
        with pytest.raises(TimeoutError, match=r"waited 0\.1 s for the kernel"):
            asked.check()


def test_a_capture_that_does_not_end_is_ended(monkeypatch) -> None:
    monkeypatch.setattr(capture, "END_S", 0.1)
    running = object.__new__(capture.Capture)
    until, running._open = os.pipe()
    running._result, result = os.pipe()
    running._process = os.fork()
    if not running._process:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # In place of the test runner's.
        signal.alarm(60)
        signal.pause()
    os.close(until)
    os.close(result)
    with pytest.raises(OSError, match=r"waited 0\.1 s for the capture's process"):
        running.end(0)
    with pytest.raises(ProcessLookupError):
        os.kill(running._process, 0)


class Silent:
    """A world of one node that says nothing, and does not end."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._news, self._told = socket.socketpair()

    def connect(self, timeout_s: float) -> dict[NodeId, socket.socket]:
        return {uav(1): self._sock}

    def fileno(self) -> int:
        return self._news.fileno()

    def ordered(self, node: NodeId, order: NodeOrder) -> NodeOrder:
        return order

    def news(self) -> list[Exit]:
        return []


def test_a_node_that_does_not_answer_is_named_with_what_was_due(pair) -> None:
    with contextlib.ExitStack() as stack:
        nodes = Nodes(Silent(pair[0]), stack, 1)
        nodes.send(uav(1), CountFrames())
        with pytest.raises(RunError, match=r"^waited 0\.1 s for FramesSent from uav1$"):
            nodes.collect(FramesSent, [uav(1)], 0.1)


def test_a_node_that_takes_no_order_is_named_with_the_order(pair, monkeypatch) -> None:
    monkeypatch.setattr(control, "PATIENCE_S", 0.1)
    with contextlib.ExitStack() as stack:
        nodes = Nodes(Silent(pair[0]), stack, 1)
        with pytest.raises(RunError, match=r"^uav1: sending Restore: .*waited 0\.1 s"):
            nodes.send(uav(1), Restore(FULL))


def test_nodes_that_load_nothing_are_given_up_earlier() -> None:
    powers = {"uavs": {"tx_power_w": [1.0] * 10}}
    without = validate({**powers, "workload": {"compute": "none"}}, "test").resolved(1.0)
    assert startup_limit_s(without) == 80
    assert startup_limit_s(validate(powers, "test").resolved(1.0)) == 600
    slow = validate({**powers, "links": {"one_way_delay_s": {"down": 0.5}}}, "test").resolved(20.0)
    assert startup_limit_s(slow) == 600 + 10 * 0.5 * 20


@pytest.fixture
def sleeper(tmp_path: Path, monkeypatch) -> Path:
    """A program in Python's place that says nothing and does not end by itself."""
    program = tmp_path / "sleeper"
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    return program


def test_a_world_that_does_not_come_up_is_given_up(sleeper: Path, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(namespace, "START_TIMEOUT_S", 0.1)
    monkeypatch.setattr(namespace, "END_TIMEOUT_S", 0.1)
    nodes = [NodeSpec(BS, ["true"], tmp_path / "log")]
    with pytest.raises(RunError, match=r"^namespace runtime: waited 0\.1 s for its first process"):
        runtimes.start("namespace", nodes, Shape())


def test_a_program_that_times_nothing_is_given_up(sleeper: Path, monkeypatch) -> None:
    monkeypatch.setattr(dilation, "MEASURE_S", 0.1)
    with dilation._program() as program:
        with pytest.raises(
            RunError, match=r"^emulation\.dilation: waited 0\.1 s for the measurement"
        ):
            dilation._receive(program)
        program.kill()


def test_doctor_does_not_wait_for_a_tool(sleeper: Path, monkeypatch) -> None:
    monkeypatch.setattr(doctor, "_TOOL_TIMEOUT_S", 0.1)
    monkeypatch.setattr(doctor, "_PROBE_TIMEOUT_S", 0.1)
    monkeypatch.setattr(trial, "slowness", lambda: 1.0)
    assert doctor._first_line([str(sleeper)]) == f"waited 0.1 s for {sleeper}"
    with pytest.raises(RunError, match=r"^doctor: waited 0\.1 s for the process that tries"):
        doctor.has_netem()
