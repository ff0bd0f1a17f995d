# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Computes the requests of nodes in virtual time on the host: see `workloads.offload.client`.

    python -m workloads.offload.worker PLACE

For each folder that a node creates in PLACE, a process answers its requests one after the other
until the request to end. All processes end with the parent of this one. A request contains a method
name of `_Client` or `_Server` and its arguments; the first request is the set-up of the node.
"""

import contextlib
import itertools
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from testbed.control.codec import Json
from testbed.core.signals import signal_name
from testbed.system import linux
from testbed.transport.wire import RoundSizes
from workloads.learning.real import RealClient, RealServer, Settings
from workloads.offload.messages import (
    ENDED,
    GUEST,
    PRINTED,
    Message,
    answer,
    asked,
    give_up,
    lacks_answer,
    nodes,
    put,
    take,
    waits,
)

LOOK_S = 0.0001, 0.005
"""Seconds between two polls for a request, at first and at most."""
WATCH_S, TURNS_PER_CHECK = 0.02, 100
"""Seconds between two polls for a new node, and number of polls between two checks for hung
processes."""
HANG_S = 120.0
"""Seconds without CPU usage after which a process with an open request counts as hung."""


Data = Sequence[memoryview]
NOTHING = Message()


class _Client:
    """Answers the requests of a UAV."""

    def __init__(self, settings: Settings, client: int):
        self._work = RealClient(settings, client)

    def begin_round(self, data: Data, round_: int, split: int, sizes: Json) -> Message:
        self._work.begin_round(round_, split, RoundSizes(**sizes))
        return Message(data=[self._work.adapters_header()])

    def load_adapters(self, data: Data) -> Message:
        self._work.adapters_buffer(len(data[0]))[:] = data[0]
        self._work.load_adapters()
        return NOTHING

    def forward(self, data: Data, iteration: int) -> Message:
        self._work.forward(iteration)
        return Message(data=self._work.smashed())

    def backward(self, data: Data) -> Message:
        gradient, shared = data
        self._work.gradient_buffer(len(gradient))[:] = gradient
        self._work.shared_gradient_buffer(len(shared))[:] = shared
        self._work.backward()
        return NOTHING

    def adapters(self, data: Data) -> Message:
        return Message(data=[self._work.adapters()])

    def notes(self, data: Data) -> Message:
        return Message(self._work.notes())

    def state(self, data: Data) -> Message:
        return Message(data=[self._work.state()])

    def restore(self, data: Data) -> Message:
        self._work.restore(bytes(data[0]))
        return NOTHING


class _Server:
    """Answers the requests of the base station."""

    def __init__(self, settings: Settings):
        self._work = RealServer(settings)

    def begin_round(
        self, data: Data, round_: int, splits: Sequence[int], sizes: Sequence[Json]
    ) -> Message:
        """The place of each client's broadcast in the data, of which it is a prefix, and its size;
        the data are the different broadcasts, and then each client's header."""
        self._work.begin_round(round_, splits, [RoundSizes(**each) for each in sizes])
        clients = range(1, len(splits) + 1)
        broadcasts = list(map(self._work.broadcast, clients))
        different: list[memoryview] = []
        for sent in sorted(broadcasts, key=len, reverse=True):
            if not any(longer[: len(sent)] == sent for longer in different):
                different.append(sent)
        places = [
            [
                next(n for n, longer in enumerate(different) if longer[: len(sent)] == sent),
                len(sent),
            ]
            for sent in broadcasts
        ]
        return Message(places, [*different, *map(self._work.adapters_header, clients)])

    def forward_backward(self, data: Data, *clients: int) -> Message:
        for client, smashed, labels in zip(clients, data[::2], data[1::2], strict=True):
            self._work.smashed_buffer(client, len(smashed))[:] = smashed
            self._work.labels_buffer(client)[:] = labels
        self._work.forward_backward(clients)
        served = [self._work.served(client) for client in clients]
        results = [result and list(vars(result).values()) for _, result in served]
        return Message(results, [gradient for gradient, _ in served])

    def shared_gradient(self, data: Data, *clients: int) -> Message:
        return Message(data=[self._work.shared_gradient(clients)])

    def aggregate(self, data: Data, clients: Sequence[int], seen: Sequence[Any]) -> Message:
        self._take_adapters(clients, data)
        found = {client: (duration_s, link) for client, duration_s, link in seen}
        self._work.aggregate(clients, found)
        return NOTHING

    def begin_update(self, data: Data, client: int) -> Message:
        self._work.begin_update(client)
        return Message(data=[self._work.broadcast(client)])

    def mix(self, data: Data, client: int, staleness: int) -> Message:
        self._take_adapters([client], data)
        self._work.mix(client, staleness)
        return NOTHING

    def apply_buffer(self, data: Data) -> Message:
        self._work.apply_buffer()
        return NOTHING

    def keep(self, data: Data) -> Message:
        self._work.keep()
        return NOTHING

    def notes(self, data: Data) -> Message:
        return Message(self._work.notes())

    def take_own(self, data: Data, client: int) -> Message:
        self._work.take_own(client, bytes(data[0]))
        return NOTHING

    def evaluate(self, data: Data, kept: int) -> Message:
        return Message(list(vars(self._work.evaluate(kept)).values()))

    def state(self, data: Data) -> Message:
        return Message(data=[self._work.state()])

    def restore(self, data: Data) -> Message:
        self._work.restore(bytes(data[0]))
        return NOTHING

    def _take_adapters(self, clients: Sequence[int], data: Data) -> None:
        for client, adapters in zip(clients, data, strict=True):
            self._work.adapters_buffer(client, len(adapters))[:] = adapters


def _set_up(learning: Json, client: int | None) -> _Client | _Server:
    settings = Settings.from_json(learning)
    return _Server(settings) if client is None else _Client(settings, client)


def _answer_all(folder: Path, guest: "_Guest") -> None:
    """Answer a node until its request to end."""
    work: _Client | _Server | None = None
    for number in itertools.count():
        question = _question(folder / asked(number))
        what, *plain = question.plain
        try:
            said = NOTHING
            if what == "set_up":
                work = _set_up(*plain)
            elif what != "end":
                said = getattr(work, what)(question.data, *plain)
            said = Message([False, said.plain], said.data)
        except Exception as error:
            text = " ".join(str(error).split())
            said = Message([True, [type(error).__name__, text, traceback.format_exc()]])
        sys.stdout.flush()
        sys.stderr.flush()
        put(folder / answer(number), said)
        guest.go_on()
        if what == "end":
            return


def _question(path: Path) -> Message:
    wait_s, most_s = LOOK_S
    while not path.exists():
        time.sleep(wait_s)
        wait_s = min(1.5 * wait_s, most_s)
    return take(path)


@dataclass
class _Child:
    """A process that answers the requests of a node."""

    folder: Path
    process: psutil.Process
    cpu_s: float = -1.0
    since_s: float = 0.0
    """Time at which it was last seen using the CPU."""

    def hangs(self) -> bool:
        """Whether it has an open request but has not used the CPU for `HANG_S`."""
        now_s, cpu_s = time.monotonic(), sum(self.process.cpu_times()[:2])
        if cpu_s != self.cpu_s or not lacks_answer(self.folder, asked):
            self.cpu_s, self.since_s = cpu_s, now_s
        return now_s > self.since_s + HANG_S

    def give_up(self, why: str) -> None:
        """Inform the node that its worker has ended."""
        give_up(self.folder, f"the worker of {self.folder.name.partition('-')[0]} {why}")

    def is_waited_for(self) -> bool:
        """Whether the guest is blocked until this process answers."""
        return lacks_answer(self.folder, waits) and not (self.folder / ENDED).exists()


class _Guest:
    """The guest. Its PID is valid, because its nodes have created their folders."""

    def __init__(self, place: Path):
        file = place / GUEST
        self._process = os.pidfd_open(int(file.read_text())) if file.exists() else None

    def stop(self) -> None:
        """Stop the guest, which would otherwise poll for an answer."""
        self._send(signal.SIGSTOP)

    def go_on(self) -> None:
        """Continue the guest, because there is an answer or an error."""
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, number)


def main(place: Path) -> None:
    """Answer all nodes until the parent process ends."""
    linux.signal_at_parents_death(signal.SIGKILL)
    children: dict[int, _Child] = {}
    seen: set[Path] = set()
    guest = None
    for turn in itertools.count():
        for folder in nodes(place):
            if folder in seen:
                continue
            if guest is None:
                guest = _Guest(place)
            seen.add(folder)
            pid = _start(folder, guest)
            children[pid] = _Child(folder, psutil.Process(pid))
        for pid, child in list(children.items()):
            if guest is not None and child.is_waited_for():
                guest.stop()
                if not child.is_waited_for():
                    guest.go_on()
            if turn % TURNS_PER_CHECK == 0 and child.hangs():
                child.give_up(f"has not used the CPU for {HANG_S:g} s")
                os.kill(pid, signal.SIGKILL)
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del children[pid]
                code = os.waitstatus_to_exitcode(status)
                if code:
                    how = f"status {code}" if code > 0 else signal_name(-code)
                    child.give_up(f"ended with {how}")
                if guest is not None:
                    guest.go_on()
        time.sleep(WATCH_S)


def _start(folder: Path, guest: _Guest) -> int:
    """Start the process of a node, with its output in a file; returns its PID."""
    parent = os.getpid()
    if pid := os.fork():
        return pid
    status = 1
    try:
        linux.signal_at_parents_death(signal.SIGKILL)
        with (folder / PRINTED).open("wb") as printed:
            os.dup2(printed.fileno(), 1)
            os.dup2(printed.fileno(), 2)
        if os.getppid() == parent:
            _answer_all(folder, guest)
            status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
