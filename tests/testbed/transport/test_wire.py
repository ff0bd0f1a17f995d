# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Frames on a socket: none loses a byte, and none passes for another."""

import socket
import threading
from dataclasses import replace
from typing import Any

import pytest

from testbed.transport.wire import Header, Kind, WireError, send_parts

PARTS = (b"head", b"", b"labels..", bytes(range(256)))
ALL = b"".join(PARTS)


class Stingy:
    """A socket that takes so many bytes at first, as one with a full buffer does."""

    def __init__(self, at_first: int):
        self.at_first = at_first
        self.taken = b""

    def sendmsg(self, parts: list[memoryview]) -> int:
        self.taken += b"".join(parts)[: self.at_first]
        return self.at_first

    def sendall(self, part: memoryview) -> None:
        self.taken += bytes(part)


@pytest.mark.parametrize("at_first", range(len(ALL) + 1))
def test_whatever_the_kernel_takes_at_first_all_of_it_is_sent(at_first: int) -> None:
    taking: Any = Stingy(at_first)
    send_parts(taking, *PARTS)
    assert taking.taken == ALL


def test_a_slow_reader_gets_every_byte() -> None:
    left, right = socket.socketpair()
    left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    left.settimeout(10)
    parts = [bytes([n]) * 100_000 for n in range(5)]
    got = bytearray()

    def read() -> None:
        while piece := right.recv(997):
            got.extend(piece)

    reader = threading.Thread(target=read)
    reader.start()
    send_parts(left, *parts)
    left.close()
    reader.join(20)
    right.close()
    assert bytes(got) == b"".join(parts)


HEADER = Header(Kind.SMASHED, 3, 2, 7, 16, 4096, 1.5, 0.25)


def test_the_frame_that_is_due_is_taken() -> None:
    assert Header.unpack(HEADER.pack()) == HEADER
    HEADER.expect(Kind.SMASHED, 7, 16, 4096)


@pytest.mark.parametrize(
    ("field", "value"),
    [("kind", Kind.ADAPTERS), ("round", 6), ("extra_bytes", 0), ("payload_bytes", 4095)],
)
def test_another_frame_is_refused_by_the_field_that_is_wrong(field: str, value: Any) -> None:
    with pytest.raises(WireError, match=rf"^{field}: .* is due \(client 3\)"):
        replace(HEADER, **{field: value}).expect(Kind.SMASHED, 7, 16, 4096)
