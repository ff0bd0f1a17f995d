# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Frames on a socket: none loses a byte, and none passes for another."""

import re
import select
import socket
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from testbed.transport.wire import (
    HEADER_BYTES,
    PIECE_BYTES,
    ConnectionLost,
    Header,
    Kind,
    WireError,
    arrived,
    configure,
    message_bytes,
    receive_into,
    send_parts,
)

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


@pytest.fixture
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection, each as the wire has it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname(), timeout=20)
        far, _ = server.accept()
    with near, far:
        for end in (near, far):
            configure(end, 20.0)
        yield near, far


def test_a_payload_is_received_into_its_place(
    connected: tuple[socket.socket, socket.socket],
) -> None:
    near, far = connected
    data = np.random.default_rng(1).bytes(3 * PIECE_BYTES + 5)
    place = bytearray(len(data) + 2)
    sender = threading.Thread(target=send_parts, args=(far, data, b"next"))
    sender.start()
    receive_into(near, memoryview(place)[1:-1])
    sender.join(20)
    assert bytes(place) == b"\0" + data + b"\0", "in its place and no further"
    after = bytearray(4)
    receive_into(near, memoryview(after))
    assert bytes(after) == b"next"


def test_it_came_in_when_the_kernel_had_it_not_when_it_was_read(
    connected: tuple[socket.socket, socket.socket],
) -> None:
    near, far = connected
    before_ns = time.monotonic_ns()
    send_parts(far, b"12345678")
    sent_ns = time.monotonic_ns()
    assert select.select([near], [], [], 20)[0]
    there_ns = time.monotonic_ns()
    time.sleep(0.2)
    arrived_ns = receive_into(near, memoryview(bytearray(8)))
    # The time of day may be corrected meanwhile, but not by much.
    assert before_ns - 2e7 <= arrived_ns <= max(sent_ns, there_ns) + 2e7


def test_without_a_note_it_came_in_now_and_never_later() -> None:
    before_ns = time.monotonic_ns()
    assert before_ns <= arrived([]) <= time.monotonic_ns()
    later = struct.pack("=qq", int(time.time()) + 100, 0)
    assert arrived([(socket.SOL_SOCKET, 64, later)]) <= time.monotonic_ns()
    assert arrived([(socket.SOL_SOCKET, 63, struct.pack("=qq", 0, 0))]) >= before_ns
    past = struct.pack("=qq", *divmod(time.time_ns() - 5 * 10**9, 10**9))
    assert arrived([(socket.SOL_SOCKET, 64, past)]) == pytest.approx(
        time.monotonic_ns() - 5e9, abs=1e9
    )


def test_a_peer_that_is_silent_or_gone_is_lost(
    connected: tuple[socket.socket, socket.socket],
) -> None:
    near, far = connected
    near.settimeout(0.05)
    with pytest.raises(ConnectionLost, match=r"^nothing arrived for 0\.05 s$"):
        receive_into(near, memoryview(bytearray(8)))
    near.settimeout(20)
    far.sendall(b"1234")
    far.close()
    with pytest.raises(ConnectionLost, match=r"^the peer closed the connection$"):
        receive_into(near, memoryview(bytearray(8)))

    def send_on() -> None:
        for _ in range(1000):
            send_parts(near, bytes(100_000))

    with pytest.raises(ConnectionLost, match=r"^sending: "):
        send_on()


@pytest.mark.parametrize("nagle", [False, True])
def test_small_segments_wait_for_nobody_unless_asked_to(nagle: bool) -> None:
    with socket.socket() as sock:
        configure(sock, 7.5, nagle=nagle)
        assert bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)) is not nagle
        assert sock.gettimeout() == 7.5


def packed(*fields: Any) -> bytes:
    body = struct.pack("<HBBHHIIQdd", *fields)
    return body + struct.pack("<I", zlib.crc32(body))


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (
            bytes(HEADER_BYTES - 1),
            f"header: must have {HEADER_BYTES} bytes, not {HEADER_BYTES - 1}",
        ),
        (HEADER.pack()[:-1] + b"\0", "checksum: the header is corrupted"),
        (packed(0x5AF2, 1, 5, *[1] * 7), "magic: 0x5af2 is not 0x5af1"),
        (packed(0x5AF1, 2, 5, *[1] * 7), "version: 2 is not 1"),
        (packed(0x5AF1, 1, 77, *[1] * 7), "kind: 77 is unknown"),
    ],
)
def test_a_header_of_others_is_refused_by_its_first_wrong_field(
    data: bytes, complaint: str
) -> None:
    with pytest.raises(WireError, match=f"^{re.escape(complaint)}$"):
        Header.unpack(data)


def test_moments_are_of_the_monotonic_clock_to_the_nanosecond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "monotonic_ns", lambda: 5_000)
    monkeypatch.setattr(time, "time_ns", lambda: 3_000_000_700)
    for at_ns, came_ns in ((700, 5_000), (699, 4_999), (200, 4_500), (701, 5_000)):
        note = (socket.SOL_SOCKET, 64, struct.pack("=qq", 3, at_ns))
        assert arrived([note]) == came_ns


def test_frames_have_the_protocols_kinds() -> None:
    names = "HELLO BROADCAST RECEIPT START SMASHED GRADIENT ADAPTERS PROBE END SHARED REQUEST GRANT"
    assert [(kind.name, int(kind)) for kind in Kind] == [
        (name, number) for number, name in enumerate(names.split(), 1)
    ]


def test_a_headers_bytes_are_what_the_protocol_says() -> None:
    assert HEADER.pack() == packed(0x5AF1, 1, 5, 3, 2, 7, 16, 4096, 1.5, 0.25)
    assert HEADER.frame_bytes == HEADER_BYTES + 16 + 4096
    assert HEADER_BYTES == 44
    assert message_bytes(1000, 3) == HEADER_BYTES + 12 + 1000
    assert message_bytes(1000) == HEADER_BYTES + 1000
