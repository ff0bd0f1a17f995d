# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A world of a base station and K UAVs for tests, with orders to its nodes and expected times.

As a program (``python tests/small_world.py RUNTIME FOLDER``) it makes one transfer, prints what
it saw as JSON, and then waits: for tests that run it as another user or kill it. It does so while
frames wait in an outage.
"""

import json
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from shaper_accounting import transfer_end_s

from testbed import runtimes
from testbed.control.stream import ControlSocket
from testbed.core.clock import EmulatedClock
from testbed.core.node import BS
from testbed.core.node import uavs as node_ids
from testbed.network.fabric import link_addresses
from testbed.network.shaping import Shape
from testbed.runtimes import NodeSpec
from testbed.transport.framing import Framing

PROGRAM = Path(__file__).with_name("link_program.py")
SETUP_BPS = 100e6


@dataclass
class Transfer:
    """One transfer over a link: when it started and when the last byte was there."""

    start_s: float
    end_s: float

    def integral_error_s(self, rates_bps: np.ndarray, slot_s: float, on_link_bytes: int) -> float:
        """How much later it ended than the integral of the slots' rates says."""
        carried = np.concatenate([[0], np.cumsum(rates_bps * slot_s)])
        edges = np.arange(len(carried)) * slot_s
        due = np.interp(self.start_s, edges, carried) + on_link_bytes * 8
        slot = np.searchsorted(carried, due) - 1
        return float(self.end_s - edges[slot] - (due - carried[slot]) / rates_bps[slot])


class SmallWorld:
    """Nodes that run `link_program`, connected to each other."""

    def __init__(
        self,
        folder: Path,
        uavs: int = 1,
        shape: Shape | None = None,
        runtime: Any = "namespace",
        **options: Any,
    ) -> None:
        self.shape = shape or Shape()
        nodes = [
            NodeSpec(node, [sys.executable, str(PROGRAM)], folder / f"{node}.log")
            for node in (BS, *node_ids(uavs))
        ]
        self.world = runtimes.start(runtime, nodes, self.shape, **options)
        try:
            streams = self.world.connect(30)
        except BaseException:
            self.world.close()
            raise
        self.injector = self.world.injector
        self.nodes = {str(node): ControlSocket(stream) for node, stream in streams.items()}
        self.answers: dict[tuple[str, int], Any] = {}
        self.uavs = uavs
        self.clock = EmulatedClock(0, 0.0, 1.0)

    def __enter__(self) -> "SmallWorld":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.world.close()
        # They were made in the nodes' namespaces, and keep those.
        for stream in self.nodes.values():
            stream.close()

    def order(self, node: str, do: str, about: int = 0, **arguments: Any) -> None:
        self.nodes[node].send({"do": do, "about": about, **arguments})

    def answer(self, node: str, about: int = 0, timeout_s: float = 60) -> Any:
        """The answer to an order; orders about different links are obeyed at the same time."""
        while (node, about) not in self.answers:
            message = self.nodes[node].receive(timeout_s)
            assert message is not None, f"{node} does not answer"
            self.answers[node, message[0]["about"]] = message[0]["answer"]
        return self.answers.pop((node, about))

    def ask(self, node: str, do: str, **arguments: Any) -> Any:
        self.order(node, do, **arguments)
        return self.answer(node)

    def connect(self) -> None:
        """A TCP connection over each link, at a rate of its own."""
        rate = np.full((self.uavs, 1000), SETUP_BPS)
        self.run(rate, rate, slot_s=0.1)
        self.order("bs", "accept", count=self.uavs)
        for link in range(1, self.uavs + 1):
            self.ask(f"uav{link}", "connect", to=link_addresses(link)[0])
        self.answer("bs")
        self.injector.pause()
        self.injector.report()

    def let_frames_wait(self) -> None:
        """Behind the valves of both ends of the first link, which are closed."""
        for node, to in zip(("uav1", "bs"), link_addresses(1), strict=True):
            self.order(node, "connect", to=to)
        time.sleep(0.3)

    def run(
        self, uplink: np.ndarray, *downlink: np.ndarray, slot_s: float, ahead_s: float = 0.05
    ) -> None:
        """Start the slots of these rates."""
        self.injector.rates(0, uplink, *downlink)
        self.clock = EmulatedClock(time.monotonic_ns() + round(ahead_s * 1e9), 0.0, 1.0)
        self.injector.epoch(self.clock, slot_s)

    def sleep_until(self, at_s: float) -> None:
        time.sleep(max(0.0, (self.clock.monotonic_ns(at_s) - time.monotonic_ns()) * 1e-9))

    def transfer(self, links: list[int], size: int, at_s: float, down: bool) -> list[Transfer]:
        """Let the links carry `size` bytes each, all at once."""
        return self.start_transfer(links, size, at_s, down)()

    def start_transfer(
        self, links: list[int], size: int, at_s: float, down: bool
    ) -> Callable[[], list[Transfer]]:
        """The same, but without waiting: what is returned waits."""
        at_ns = self.clock.monotonic_ns(at_s)
        for link in links:
            bs, uav = link_addresses(link)
            source, sink = ("bs", f"uav{link}") if down else (f"uav{link}", "bs")
            to, of = (uav, bs) if down else (bs, uav)
            self.order(sink, "receive", link, of=of, size=size)
            self.order(source, "send", link, to=to, size=size, at_ns=at_ns)

        def finish() -> list[Transfer]:
            found = []
            for link in links:
                source, sink = ("bs", f"uav{link}") if down else (f"uav{link}", "bs")
                end_ns, start_ns = self.answer(sink, link), self.answer(source, link)
                found.append(Transfer(self.clock.at(start_ns), self.clock.at(end_ns)))
            return found

        return finish

    def frames(self, size: int) -> list[int]:
        """What the shaper charges for each frame of that many bytes."""
        full, rest = divmod(size, Framing(self.shape.mtu).segment_bytes)
        headers = self.on_link_bytes(size) - size
        whole = self.shape.frame_bytes
        return [whole] * full + ([rest + headers - full * (whole - 1448)] if rest else [])

    def late_s(self, transfer: Transfer, rates_bps: np.ndarray, slot_s: float, size: int) -> float:
        """How much later a transfer ended than the shaper's accounting says."""
        rates = rates_bps.tolist()
        frames = self.frames(size)
        return transfer.end_s - transfer_end_s(self.shape, rates, slot_s, transfer.start_s, frames)

    def on_link_bytes(self, size: int) -> int:
        """What the shaper charges for that many bytes."""
        return Framing(self.shape.mtu).on_link(size) if self.shape.charges_headers else size


def main(runtime: str, folder: str) -> None:
    with SmallWorld(Path(folder), runtime=runtime) as small:
        small.connect()
        rate = np.full((1, 100), 20e6)
        small.run(rate, rate, slot_s=0.1)
        (transfer,) = small.transfer([1], 500_000, 0.0, down=False)
        late_s = small.late_s(transfer, rate[0], 0.1, 500_000)
        facts = small.ask("uav1", "facts")
        outage = np.zeros((1, 1))
        small.run(outage, outage, slot_s=0.1)
        small.sleep_until(0.1)
        small.let_frames_wait()
        print(json.dumps({"late_s": late_s, "facts": facts}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    # A shell's background jobs, and what they start, inherit that Ctrl-C is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main(*sys.argv[1:])
