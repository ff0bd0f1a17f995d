# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The two programs of `messages.py`, which send and receive the messages of one plan.

    python message_ends.py send|receive PLAN [HOST]

They need only the standard library, so that they start quickly in any node. They print times in ns
after slot 0, by the clock that both nodes share.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path

PORT = 9100
DATAGRAM_BYTES = 1472
"""Payload of a full datagram of UDP over IPv4."""
CHUNK_BYTES = 1 << 20
BUFFER_BYTES = 4 << 20
LOST_S = 10.0
"""A datagram that does not arrive for so long is lost."""
BEGIN_NS = int(os.environ.get("TESTBED_EPOCH_NS", "0"))
"""When slot 0 begins."""


def _send(plan: list[dict[str, float]], host: str) -> list[int]:
    """Send every message when it is due; returns when each was sent."""
    time.sleep(0.5)
    stream = socket.create_connection((host, PORT))
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.connect((host, PORT))
    sent = []
    for number, message in enumerate(plan):
        size = int(message["bytes"])
        data = bytes([number % 256]) * size
        due_ns = BEGIN_NS + round(message["at_s"] * 1e9)
        while (left_ns := due_ns - time.monotonic_ns()) > 0:
            time.sleep(left_ns / 1e9)
        sent.append(time.monotonic_ns() - BEGIN_NS)
        if message["tcp"]:
            stream.sendall(data)
            continue
        for start in range(0, size, DATAGRAM_BYTES):
            datagrams.send(data[start : start + DATAGRAM_BYTES])
    return sent


def _receive(plan: list[dict[str, float]]) -> list[int | None]:
    """Receive every message; returns when its last byte arrived, or None if datagrams were lost."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("", PORT))
    listener.listen()
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    datagrams.bind(("", PORT))
    datagrams.settimeout(LOST_S)
    stream, _ = listener.accept()
    arrived: list[int | None] = []
    ahead = b""
    for number, message in enumerate(plan):
        left = int(message["bytes"])
        while left > 0:
            if message["tcp"]:
                data = stream.recv(min(left, CHUNK_BYTES))
            else:
                data, ahead = ahead or _datagram(datagrams), b""
                if data[:1] != bytes([number % 256]):  # The rest of this message has been lost.
                    ahead = data
                    break
            if not data:
                break
            left -= len(data)
        arrived.append(None if left else time.monotonic_ns() - BEGIN_NS)
    return arrived


def _datagram(datagrams: socket.socket) -> bytes:
    try:
        return datagrams.recv(DATAGRAM_BYTES)
    except TimeoutError:
        return b""


if __name__ == "__main__":
    what, path = sys.argv[1:3]
    of_plan = json.loads(Path(path).read_text())
    print(json.dumps(_send(of_plan, sys.argv[3]) if what == "send" else _receive(of_plan)))
