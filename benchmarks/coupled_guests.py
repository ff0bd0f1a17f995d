# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What it costs to couple guests, each a kernel of its own, under one controller of their time.

    python benchmarks/coupled_guests.py [--sleeps 2000]

By `time-travel=ext`, a guest asks a controller for the next moment at which it has something to
do, and runs when it is told to. Guests sleep so often for a millisecond: one by the clock that runs
use, which asks nobody; one and two where a frame could reach another at once, so that one runs at a
time; and two where it takes a millisecond on its way, so that both run up to the end of the window.
Printed: what each sleep took of CPU and messages, less what a guest takes that does not sleep.
"""

import argparse
import io
import resource
import selectors
import socket
import struct
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from common import cpu_s, show

from testbed.virtual import guest
from testbed.virtual.kernel import Kernel, find

MESSAGE = struct.Struct("=IIQ")
ACK, START, REQUEST, WAIT, GET, UPDATE, RUN, FREE_UNTIL, GET_TOD = range(9)
"""What a message says, of the moment in its last field: Linux' um_timetravel.h."""
NEVER = 2**63 - 1
FRAME_NS = 1_000_000
SLEEP = "import sys, time\nfor _ in range(int(sys.argv[1])):\n    time.sleep(1e-3)"
CASES = {
    "1, which asks nobody": (1, None),
    "1": (1, 0),
    "2, a frame takes 0": (2, 0),
    "2, a frame takes 1 ms": (2, FRAME_NS),
}
"""How many guests, and how long a frame takes from one to another."""


@dataclass
class Client:
    """A guest, as its controller knows it."""

    link: socket.socket
    waits: bool = False
    asked_ns: int = NEVER
    now_ns: int = 0


class Controller(threading.Thread):
    """Lets guests run in the order of their time."""

    def __init__(self, place: Path, count: int, frame_ns: int) -> None:
        super().__init__(daemon=True)
        self.count, self.frame_ns = count, frame_ns
        self.clients: list[Client] = []
        self.messages = 0
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(str(place))
        self.server.listen()

    def run(self) -> None:
        """Until the last guest has gone."""
        with selectors.DefaultSelector() as selector, self.server:
            selector.register(self.server, selectors.EVENT_READ)
            while self.count:
                for key, _ in selector.select():
                    if key.data is None:
                        client = Client(self.server.accept()[0])
                        self.clients.append(client)
                        selector.register(client.link, selectors.EVENT_READ, client)
                    elif not self.hear(key.data):
                        selector.unregister(key.data.link)
                        self.clients.remove(key.data)
                        self.count -= 1
                if len(self.clients) == self.count and all(c.waits for c in self.clients):
                    self.let_run()

    def hear(self, client: Client) -> bool:
        """Take a guest's message; False where it has gone."""
        try:
            message = client.link.recv(MESSAGE.size, socket.MSG_WAITALL)
        except ConnectionResetError:
            return False
        if len(message) < MESSAGE.size:
            return False
        said, number, moment_ns = MESSAGE.unpack(message)
        if said == REQUEST:
            client.asked_ns = moment_ns
        elif said == UPDATE:
            client.now_ns = moment_ns
        client.waits |= said == WAIT
        if said != ACK:
            answer = {GET: client.now_ns, GET_TOD: guest.STARTED_NS}.get(said, 0)
            self.tell(client, ACK, answer, number)
        return True

    def tell(self, client: Client, what: int, moment_ns: int, number: int = 0) -> None:
        """Send a guest a message."""
        self.messages += 1 + (what != ACK)  # It acknowledges.
        client.link.sendall(MESSAGE.pack(what, number, moment_ns))

    def let_run(self) -> None:
        """The first in time, as far as no other could reach it; or all that none could reach."""
        first = min(self.clients, key=lambda client: client.asked_ns, default=None)
        if first is None or first.asked_ns == NEVER:
            return
        others = [client.asked_ns for client in self.clients if client is not first]
        end_ns = first.asked_ns + self.frame_ns if self.frame_ns else min(others, default=NEVER)
        due = [c for c in self.clients if c is first or (c.asked_ns < end_ns and self.frame_ns)]
        for client in due:
            if client.asked_ns < end_ns < NEVER:
                self.tell(client, FREE_UNTIL, end_ns)
            self.tell(client, RUN, client.asked_ns)
            client.waits, client.now_ns, client.asked_ns = False, client.asked_ns, NEVER


@dataclass(frozen=True)
class Coupled:
    """A kernel whose clock is a controller's."""

    program: Path


def play(kernel: Kernel, count: int, frame_ns: int | None, sleeps: int) -> tuple[float, float, int]:
    """CPU seconds of the guests, of this process with the controller, and messages."""
    with tempfile.TemporaryDirectory(dir="/tmp") as temporary:
        place = Path(temporary, "time")
        controller = None
        program = kernel.program
        if frame_ns is not None:
            controller = Controller(place, count, frame_ns)
            controller.start()
            program = Path(temporary, "linux")
            clock = f"${{@/time-travel=inf-cpu/time-travel=ext:{place}}}"
            program.write_text(f'#!/bin/bash\nexec {kernel.program} "{clock}"\n')
            program.chmod(0o700)
        argv = [sys.executable, "-I", "-S", "-c", SLEEP, str(sleeps)]

        def one() -> None:
            guest.run(cast(Kernel, Coupled(program)), argv, memory=1 << 30, out=io.BytesIO())

        kinds = resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF
        before_s = [cpu_s(kind) for kind in kinds]
        guests = [threading.Thread(target=one) for _ in range(count)]
        for thread in guests:
            thread.start()
        for thread in guests:
            thread.join()
        theirs_s, ours_s = (
            cpu_s(kind) - then_s for kind, then_s in zip(kinds, before_s, strict=True)
        )
        return theirs_s, ours_s, controller.messages if controller else 0


def main() -> None:
    """Play each case with and without sleeps, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sleeps", type=int, default=2000)
    asked = parser.parse_args()
    kernel = find()
    assert kernel is not None, "no kernel is built: `testbed kernel build` does it"
    rows = []
    for name, (count, frame_ns) in CASES.items():
        idle = play(kernel, count, frame_ns, 0)
        busy = play(kernel, count, frame_ns, asked.sleeps)
        each = [(b - i) / (count * asked.sleeps) for b, i in zip(busy, idle, strict=True)]
        rows.append([name, f"{1e6 * each[0]:.0f}", f"{1e6 * each[1]:.0f}", f"{each[2]:.1f}"])
    show(["guests", "CPU of guests (µs)", "CPU of the controller (µs)", "messages"], rows)


if __name__ == "__main__":
    main()
