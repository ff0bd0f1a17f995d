# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""TCP transfers one after the other, for `air_transfers.py`: nothing but the standard library.

transfers_in_turn.py receive CLIENT BYTES COUNT   seconds that each took, as a JSON file
transfers_in_turn.py send CLIENT BYTES COUNT      to the base station
"""

import json
import socket
import struct
import sys
import time
from pathlib import Path

PORT = 9000
START = struct.Struct("=Q")
PAUSE_S = 0.4


def send(client: int, size: int, count: int) -> None:
    """In a UAV: so many transfers, each behind the moment at which it began."""
    while True:
        try:
            sock = socket.create_connection(("bs", PORT + client), 60)
            break
        except OSError:  # The base station is not there yet.
            time.sleep(0.1)
    with sock:
        rest = bytes(size - START.size)
        for _ in range(count):
            time.sleep(PAUSE_S)
            sock.sendall(START.pack(time.monotonic_ns()) + rest)
            if not sock.recv(1):
                sys.exit("the base station is gone")


def receive(client: int, size: int, count: int) -> None:
    """In the base station: seconds that each transfer of a UAV took, as a JSON file."""
    took_s = []
    with socket.create_server(("0.0.0.0", PORT + client)) as server:
        sock, _ = server.accept()
        with sock:
            for _ in range(count):
                data = bytearray()
                while len(data) < size:
                    piece = sock.recv(1 << 20)
                    if not piece:
                        sys.exit("the UAV is gone")
                    data += piece
                took_s.append(1e-9 * (time.monotonic_ns() - START.unpack_from(data)[0]))
                sock.send(b"x")
    (Path.home() / f"uav{client}.json").write_text(json.dumps(took_s))


if __name__ == "__main__":
    {"receive": receive, "send": send}[sys.argv[1]](*map(int, sys.argv[2:]))
