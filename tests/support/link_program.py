# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A node program for tests of the links: does over TCP what the control plane tells it."""

import os
import socket
import struct
import threading
import time
from pathlib import Path

from testbed.control.stream import ControlSocket
from testbed.runtimes import connect_control

PORT = 5000
SO_TIMESTAMPING = 37
TIMESTAMPS = (1 << 3) | (1 << 4)
"""Software time of reception, reported in software time (linux/net_tstamp.h)."""


def main() -> None:
    # Listens before it answers the orchestrator, so that nobody comes too early.
    listener = socket.create_server(("0.0.0.0", PORT), backlog=1000)
    control = ControlSocket(connect_control())
    peers: dict[str, socket.socket] = {}
    lock = threading.Lock()

    def obey(do, about, **arguments):
        answer = ORDERS[do](listener, peers, **arguments)
        with lock:
            control.send({"answer": answer, "about": about})

    while message := control.receive():
        threading.Thread(target=obey, kwargs=message[0]).start()


def connect(listener, peers, to):
    peers[to] = socket.create_connection((to, PORT), timeout=20)
    peers[to].settimeout(None)


def accept_peers(listener, peers, count):
    for _ in range(count):
        stream, (address, _) = listener.accept()
        peers[address] = stream


def send_to(listener, peers, to, size, at_ns):
    """Start at a moment of the monotonic clock; when it did."""
    data = bytes(size)
    time.sleep(max(0, (at_ns - time.monotonic_ns()) * 1e-9 - 2e-4))
    while time.monotonic_ns() < at_ns:
        pass
    peers[to].sendall(data)
    return at_ns


def receive(listener, peers, of, size):
    """When the kernel had the last byte: this program may wake much later on a busy machine."""
    stream = peers[of]
    stream.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, TIMESTAMPS)
    buffer = memoryview(bytearray(1 << 18))
    at = None
    while size:
        count, extra, _, _ = stream.recvmsg_into([buffer[: min(size, len(buffer))]], 256)
        size -= count
        for _, _, data in extra:
            seconds, nanoseconds = struct.unpack_from("qq", data)
            at = seconds * 10**9 + nanoseconds
    return at - time.clock_gettime_ns(time.CLOCK_REALTIME) + time.monotonic_ns()


def facts_of(listener, peers):
    """What the runtime has left this program."""
    status = dict(
        line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines()
    )
    algorithms = [
        peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()
        for peer in peers.values()
    ]
    return {
        "capabilities": int(status["CapPrm"], 16) | int(status["CapBnd"], 16),
        "no_new_privileges": status["NoNewPrivs"].strip(),
        "uid": os.getuid(),
        "seccomp": status["Seccomp"].strip(),
        "root_is_writable": os.access("/", os.W_OK),
        "interfaces": sorted(name for _, name in socket.if_nameindex()),
        "congestion_control": algorithms,
        "scheduling": [os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)],
    }


def may_write(listener, peers, folders):
    return [os.access(folder, os.W_OK) for folder in folders]


def try_to(listener, peers, files):
    """Whether each file can be written, and what is in /run."""

    def write(file):
        try:
            Path(file).write_text("x")
        except OSError:
            return False
        return True

    return {"written": list(map(write, files)), "run": [p.name for p in Path("/run").iterdir()]}


def leave(listener, peers, status):
    os._exit(status)


ORDERS = {
    "connect": connect,
    "accept": accept_peers,
    "send": send_to,
    "receive": receive,
    "facts": facts_of,
    "may_write": may_write,
    "try_to": try_to,
    "exit": leave,
}


if __name__ == "__main__":
    main()
