# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A small world in two parts of this machine, as if they were hosts: relays lie between them."""

import shutil
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from small_world import PROGRAM, SmallWorld, sys

from testbed import runtimes
from testbed.cluster.clock import Reading
from testbed.cluster.injectors import Captures, HostInjectors
from testbed.cluster.world import far_links, parts_of
from testbed.control.stream import ControlSocket
from testbed.core.clock import EmulatedClock
from testbed.core.errors import RunError
from testbed.core.node import BS, uav
from testbed.network.relay import datagrams
from testbed.network.shaping import Shape
from testbed.runtimes import NodeSpec

PLACES = {BS: "a", uav(1): "a", uav(2): "b"}
HOME = "127.0.0.1"


class SameClock:
    """A host's clock that is ours."""

    jumped_s = 0.0

    def now(self) -> Reading:
        return Reading(0, 1000, time.monotonic_ns())


def _fails(host: str, why: str) -> None:
    raise RunError(f"host {host}: {why}")


class SplitWorld(SmallWorld):
    """The base station and the first UAV on one host, the second UAV on another."""

    def __init__(self, folder: Path, shape: Shape | None = None) -> None:
        self.shape = shape or Shape()
        hosts = dict.fromkeys(PLACES.values(), HOME)
        relays = {host: [datagrams(HOME) for _ in far_links(PLACES, host)] for host in hosts}
        ports = {host: [s.getsockname()[1] for s in socks] for host, socks in relays.items()}
        self.parts = parts_of(hosts, PLACES, ports)
        self.closing = ExitStack()
        self.worlds: dict[str, Any] = {}
        streams = {}
        with ExitStack() as cleanup:
            for host, part in self.parts.items():
                for sock, tunnel in zip(relays[host], part.tunnels.values(), strict=True):
                    sock.connect((tunnel.remote, tunnel.port))
                nodes = [
                    NodeSpec(node, [sys.executable, str(PROGRAM)], folder / f"{node}.log")
                    for node, at in PLACES.items()
                    if at == host
                ]
                options = {"part": part, "relays": relays[host]}
                world = runtimes.start("namespace", nodes, self.shape, **options)
                self.worlds[host] = cleanup.enter_context(world)
                streams |= world.connect(30)
            self.closing = cleanup.pop_all()
        clocks: Any = SimpleNamespace(of={host: SameClock() for host in self.parts})
        injectors = {host: world.injector for host, world in self.worlds.items()}
        self.injector = HostInjectors(injectors, clocks, PLACES[BS], _fails)
        (folder / "a").mkdir()
        self.injector.captures = Captures(
            "a", str(folder / "a"), lambda name, to: shutil.move(folder / "a" / name, to)
        )
        self.nodes = {str(node): ControlSocket(stream) for node, stream in streams.items()}
        self.answers: dict[tuple[str, int], Any] = {}
        self.uavs = len(PLACES) - 1
        self.clock = EmulatedClock(0, 0.0, 1.0)

    def __exit__(self, *_: object) -> None:
        self.closing.close()
