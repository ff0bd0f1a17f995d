# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Sockets carried to another machine: whole, both ways, and for those who are of the run alone."""

import socket
import threading

import pytest

from testbed.cluster.streams import Caller, Listener
from testbed.core.errors import RunError
from testbed.core.node import NodeId
from testbed.transport.certificates import identities

TOKEN = "t" * 64
NAME = NodeId(1).host_name
LARGE = bytes(range(256)) * 40_000


@pytest.fixture
def listener():
    ours, theirs = identities(1)
    made = Listener(theirs, "127.0.0.1", TOKEN, "program/")
    made.ours = ours
    yield made
    made.close()


@pytest.fixture
def caller(listener):
    made = Caller(listener.ours)
    yield made
    made.close()


def received(sock: socket.socket) -> bytes:
    """All until the other side ends."""
    found = bytearray()
    while data := sock.recv(1 << 20):
        found += data
    return bytes(found)


def offered(listener: Listener, name: str) -> socket.socket:
    """The far end of a socket that is offered."""
    far, near = socket.socketpair()
    listener.offer(name, near)
    return far


def test_bytes_arrive_whole_both_ways_and_so_does_the_end(listener, caller) -> None:
    far = offered(listener, "uav1")
    here = caller.open(("127.0.0.1", listener.port), NAME, TOKEN, "uav1")
    with here, far:
        sender = threading.Thread(target=lambda: (far.sendall(LARGE), far.close()))
        here.sendall(b"orders")
        assert far.recv(6, socket.MSG_WAITALL) == b"orders"
        sender.start()
        assert received(here) == LARGE
        sender.join()


def test_what_was_sent_before_the_end_arrives(listener, caller) -> None:
    far = offered(listener, "bs")
    here = caller.open(("127.0.0.1", listener.port), NAME, TOKEN, "bs")
    sender = threading.Thread(target=lambda: (here.sendall(LARGE), here.close()))
    sender.start()
    with far:
        assert received(far) == LARGE
    sender.join()


def test_each_socket_is_given_out_once(listener, caller) -> None:
    at = ("127.0.0.1", listener.port)
    far = offered(listener, "bs")
    here = caller.open(at, NAME, TOKEN, "bs")
    with far, here, pytest.raises(RunError, match="rejected the connection"):
        caller.open(at, NAME, TOKEN, "bs")


@pytest.mark.parametrize(
    ("token", "name"), [("x" * 64, "bs"), (TOKEN, "uav9"), ("x" * 63, "b"), (TOKEN, "x" * 200)]
)
def test_who_lacks_token_or_name_is_hung_up_on(listener, caller, token: str, name: str) -> None:
    with offered(listener, "bs"), pytest.raises(RunError, match=r"no connection to 127\.0\.0\.1"):
        caller.open(("127.0.0.1", listener.port), NAME, token, name)


def test_who_is_of_another_run_is_hung_up_on(listener) -> None:
    stranger = Caller(identities(1)[0])
    with offered(listener, "bs"), pytest.raises(RunError, match=r"no connection to 127\.0\.0\.1"):
        stranger.open(("127.0.0.1", listener.port), NAME, TOKEN, "bs")
    stranger.close()
