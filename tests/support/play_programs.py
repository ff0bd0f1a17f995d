"""Node programs of a round, over plain sockets."""

import socket
import threading
import time
from dataclasses import asdict, replace

from testbed.control.node import NodeControl
from testbed.core.paradigm import Paradigm
from testbed.transport import TransportSettings
from testbed.transport.certificates import identities
from workloads.learning.work import RoundSizes, ServerWork, ZeroClient, ZeroServer
from workloads.nodes.base_station import BaseStation
from workloads.nodes.uav import Uav

CLIENTS, ITERATIONS = 3, 2
SIZES = RoundSizes(
    adapters=10_000, adapters_header=64, smashed=50_000, labels=8, batches=ITERATIONS
)


TOKEN = "00" * 16


PLAIN = TransportSettings(TOKEN, 10.0)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def play(
    paradigm: Paradigm,
    compute_s: float = 0.02,
    rounds: int = 1,
    settings: TransportSettings = PLAIN,
    server: ServerWork | None = None,
) -> list[list]:
    """Rounds of K clients; answers with all spans of each."""
    server = server or ZeroServer()
    port = free_port()
    known = identities(CLIENTS) if settings.transport == "tls" else [None] * (CLIENTS + 1)
    common = {"credit_s": 1e-3}

    def of_node(node: int) -> dict:
        return {"settings": asdict(replace(settings, identity=known[node])), **common}

    ours: list[NodeControl] = []
    threads = []

    def start(program) -> None:
        near, far = socket.socketpair()
        ours.append(NodeControl(near))

        def live() -> None:
            with far:  # Whatever ends it, is seen.
                program(NodeControl(far))

        thread = threading.Thread(target=live)
        thread.start()
        threads.append(thread)

    setup = {"paradigm": asdict(paradigm), **of_node(0)}
    start(lambda control: BaseStation(control, setup, server).serve())
    clients = list(range(1, CLIENTS + 1))
    ours[0].send("accept", clients=clients, address="127.0.0.1", port=port)
    ours[0].expect("listening", 5)
    for client in clients:
        of_client = {"client": client, **of_node(client)}
        start(lambda control, s=of_client: Uav(control, s, ZeroClient()).serve())
        ours[-1].send("connect", server=["127.0.0.1", port])
    for control in ours:
        control.expect("connected", 5)
    played = []
    for index in range(rounds):
        order = {
            "round": index,
            "clients": clients,
            "split": 2,
            "iterations": ITERATIONS,
            "sizes": asdict(SIZES),
            "compute_time": "modelled",
            "backward_ratio": 2.0,
            "cf_s": compute_s,
            "cb_s": 2 * compute_s,
            "s_s": [compute_s] * CLIENTS,
            "gradient_s": {"first_slot": 0, "slot_s": 0.1, "seconds": [[0.0]] * CLIENTS},
        }
        for control in ours:
            control.send("round", **order)
        for control in ours:
            control.expect("ready", 5)
        begin = time.monotonic_ns() + 20_000_000
        for control in ours:
            control.send("begin", start_ns=begin, start_s=100.0 * index, dilation=1.0)
        ours[0].expect("started", 10)
        played.append([span for c in ours for span in c.expect("report", 10)["spans"]])
    for control in ours:
        control.send("stop")
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()
    return played
