# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""One TCP transfer, for the baselines: nothing but the standard library.

one_transfer.py receive PORT BYTES          prints when the last byte came, monotonic ns
one_transfer.py send ADDRESS PORT BYTES AT  connects, and sends at that monotonic ns
"""

import socket
import sys
import time


def receive(port: str, size: str) -> None:
    with socket.create_server(("0.0.0.0", int(port))) as server:
        stream, _ = server.accept()
        place, left = memoryview(bytearray(1 << 20)), int(size)
        while left:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, min(left, 1 << 14))
            count = stream.recv_into(place, min(left, 1 << 20))
            if not count:
                sys.exit("the sender is gone")
            left -= count
        print(time.monotonic_ns())


def send(address: str, port: str, size: str, at_ns: str) -> None:
    data = bytes(int(size))
    with socket.create_connection((address, int(port)), 10) as stream:
        time.sleep(max(0.0, (int(at_ns) - time.monotonic_ns()) / 1e9))
        stream.settimeout(40)
        stream.sendall(data)


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive(*sys.argv[2:])
    else:
        send(*sys.argv[2:])
