# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Node programs of a round, over plain sockets."""

import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from testbed.control.messages import (
    Accept,
    Begin,
    Connect,
    Connected,
    CountFrames,
    FirstGradients,
    FramesSent,
    JoinRound,
    Listening,
    NodeOrder,
    NodeReport,
    Ready,
    RoundReport,
    RoundTerms,
    ServeRound,
    SetUpBaseStation,
    SetUpUav,
    Started,
    Stop,
)
from testbed.control.node import NodeControl, at_node, at_orchestrator
from testbed.core.clock import EmulatedClock
from testbed.core.faults import BsFaults, UavFaults
from testbed.core.paradigm import Paradigm
from testbed.transport import kind_of
from testbed.transport.certificates import identities
from testbed.transport.interface import TransportSettings
from testbed.transport.wire import RoundSizes
from workloads.learning.work import ServerWork, ZeroClient, ZeroServer
from workloads.nodes.base_station import BaseStation
from workloads.nodes.uav import Uav

CLIENTS, ITERATIONS = 3, 2
SIZES = RoundSizes(
    adapters=10_000, adapters_header=64, smashed=50_000, labels=8, batches=ITERATIONS
)


PATIENCE_S = 60.0
"""For what takes milliseconds, where others compute beside it."""
TOKEN = "00" * 16
CREDIT_S = 1e-3


PLAIN = TransportSettings(TOKEN, PATIENCE_S)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def play(
    paradigm: Paradigm,
    compute_s: float = 0.02,
    rounds: int = 1,
    settings: TransportSettings = PLAIN,
    server: ServerWork | None = None,
    sizes: Sequence[RoundSizes] = (),
    updates: int = 0,
    lost_s: Mapping[int, float] | None = None,
    *,
    mac_orders: bool = False,
) -> list[list]:
    """Rounds of K clients; answers with all spans of each.

    `sizes`: of each, where they differ; `lost_s`: when clients are dropped.
    """
    lost_s = lost_s or {}
    dropped = BsFaults([lost_s.get(k) for k in range(1, CLIENTS + 1)], drops=True)
    server = server or ZeroServer()
    port = free_port()
    certified = kind_of(settings.transport).has_certificates
    known = identities(CLIENTS) if certified else [None] * (CLIENTS + 1)
    of_node = [replace(settings, identity=identity) for identity in known]
    ours: list[NodeControl[NodeReport]] = []
    threads = []

    def start(program: Callable[[NodeControl[NodeOrder]], object]) -> None:
        near, far = socket.socketpair()
        ours.append(at_orchestrator(near))

        def live() -> None:
            with far:  # Whatever ends it, is seen.
                program(at_node(far))

        thread = threading.Thread(target=live)
        thread.start()
        threads.append(thread)

    of_bs = SetUpBaseStation(of_node[0], CREDIT_S, None, paradigm, mac_orders)
    start(lambda control: BaseStation(control, of_bs, server).serve())
    clients = tuple(range(1, CLIENTS + 1))
    ours[0].send(Accept(clients, ("127.0.0.1", port)))
    ours[0].expect(Listening, PATIENCE_S)
    for client in clients:
        of_uav = SetUpUav(client, of_node[client], CREDIT_S, None)
        start(lambda control, s=of_uav: Uav(control, s, ZeroClient()).serve())
        ours[-1].send(Connect(("127.0.0.1", port)))
    for control in ours:
        control.expect(Connected, PATIENCE_S)
    played = []
    for index in range(rounds):
        each = tuple(
            RoundTerms(
                *(index, 2, ITERATIONS, own), modelled=True, updates=updates, asks=paradigm.asks
            )
            for own in sizes or (SIZES,) * CLIENTS
        )
        first = FirstGradients(0, 0.1, ((0.0,),) * CLIENTS)
        ours[0].send(
            ServeRound(
                each[0],
                clients,
                (compute_s,) * CLIENTS,
                first,
                live=False,
                faults=dropped if lost_s else None,
                each=each if sizes else (),
            )
        )
        for client, control, terms in zip(clients, ours[1:], each, strict=True):
            faults = UavFaults(lost_s=lost_s[client]) if client in lost_s else None
            control.send(JoinRound(terms, compute_s, 2 * compute_s, 2.0, faults))
        for control in ours:
            control.expect(Ready, PATIENCE_S)
        clock = EmulatedClock(time.monotonic_ns() + 20_000_000, 100.0 * index, 1.0)
        for control in ours:
            control.send(Begin(clock))
        ours[0].expect(Started, PATIENCE_S)
        played.append([span for c in ours for span in c.expect(RoundReport, PATIENCE_S).spans])
        for control in ours:
            control.send(CountFrames())
            control.expect(FramesSent, PATIENCE_S)
    for control in ours:
        control.send(Stop())
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()
    return played
