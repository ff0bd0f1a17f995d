# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Receives and discards what UAVs send to the base station by TCP."""

import os
import socket
import threading


def discard(link: socket.socket) -> None:
    """Read until the sender closes."""
    while link.recv(1 << 20):
        pass


server = socket.create_server((os.environ["TESTBED_BS"], 5001), backlog=1024)
while True:
    threading.Thread(target=discard, args=(server.accept()[0],), daemon=True).start()
