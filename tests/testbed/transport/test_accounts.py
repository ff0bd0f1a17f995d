# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A node's books: what they read from the kernel, and how they are added up."""

import socket
import struct
from dataclasses import fields, replace
from typing import Any

import pytest

from testbed.transport import accounts
from testbed.transport.accounts import Books, Counts, QuicCount, TcpCount
from testbed.transport.wire import HEADER_BYTES, Header, Kind

ESTABLISHED, FIN_WAIT_1, CLOSE_WAIT = 1, 4, 8


class Kernel:
    """A socket whose `tcp_info` is made up, of a kernel that acknowledges while it is asked."""

    def __init__(self, state: int, size: int = 232) -> None:
        self.size, self.asked = size, 0
        self.info = bytearray(232)
        self.info[0] = state
        for offset, form, value in (
            (24, "I", 5),  # unacked
            (28, "I", 2),  # sacked
            (100, "I", 3),  # total_retrans
            (120, "Q", 70_000),  # bytes_acked
            (136, "I", 90),  # segs_out
            (156, "I", 60),  # data_segs_out
            (192, "I", 55),  # delivered
            (208, "Q", 4000),  # bytes_retrans
            (216, "I", 1),  # dsack_dups
        ):
            struct.pack_into(f"={form}", self.info, offset, value)

    def getsockopt(self, *_: int) -> bytes:
        self.asked += 1
        return bytes(self.info[: self.size])


def counted(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> TcpCount:
    queued = iter([900, 500, 500])
    monkeypatch.setattr(accounts, "_queued_bytes", lambda _: next(queued))
    return TcpCount.of(kernel)


def test_tcp_is_read_until_nothing_was_acknowledged_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = Kernel(ESTABLISHED)
    assert counted(kernel, monkeypatch) == TcpCount(
        empty_segments=30,
        tried_segments=57,
        taken_segments=55 - 1 + 5 - 2,
        data_bytes=70_500,
        resent_segments=3,
        resent_bytes=4000,
        spurious_segments=1,
    )
    assert kernel.asked == 2


@pytest.mark.parametrize("queued", [0, 1])
def test_tcp_is_read_though_nothing_changes(queued: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "_queued_bytes", lambda _: queued)
    kernel: Any = Kernel(ESTABLISHED)
    assert TcpCount.of(kernel).data_bytes == 70_000 + queued


@pytest.mark.parametrize(("state", "end"), [(ESTABLISHED, 0), (CLOSE_WAIT, 0), (FIN_WAIT_1, 1)])
def test_the_end_of_a_stream_is_no_byte_of_it(
    state: int, end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert counted(Kernel(state), monkeypatch).data_bytes == 70_500 - end


def test_a_kernel_that_does_not_tell_all_of_it_tells_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert counted(Kernel(ESTABLISHED, 220), monkeypatch).resent_bytes == 4000
    assert counted(Kernel(ESTABLISHED, 219), monkeypatch) == TcpCount()


def test_the_kernel_itself_counts_the_bytes_of_a_stream() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    with near, far:
        near.settimeout(20)
        far.sendall(bytes(100_000))
        left = 100_000
        while left:
            left -= len(near.recv(left))
        count = TcpCount.of(far)
    # Of the side that accepted: nothing but the stream, whatever had to be sent again.
    assert count.data_bytes == 100_000
    assert count.tried_segments > 0


@pytest.mark.parametrize("kind", [TcpCount, QuicCount])
def test_counts_add_up_field_by_field(kind: Any) -> None:
    many = len(fields(kind))
    few, more = kind(*range(1, many + 1)), kind(*range(10, 10 * many + 1, 10))
    assert more + few == kind(*(11 * n for n in range(1, many + 1)))
    assert more.since(few) == kind(*(9 * n for n in range(1, many + 1)))
    assert kind() + few == few


def test_the_books_of_a_frame_begin_with_what_it_is() -> None:
    counts = Counts.of(Header(Kind.SMASHED, 3, 2, 7, 16, 4096, 1.5, 0.25), 5)
    assert (counts.kind, counts.iteration, counts.payload_bytes) == ("SMASHED", 2, 4096)
    assert counts.framing_bytes == HEADER_BYTES + 16 + 5
    rest = (counts.record_bytes, counts.opened, counts.accepted, counts.handshake_bytes)
    assert rest == (0, 0, 0, 0)
    assert (counts.tcp, counts.quic) == (TcpCount(), QuicCount())


def test_books_hold_what_is_sent_after_they_were_taken() -> None:
    """As gRPC does, which measures its links when it likes."""
    sent = iter([10, 30, 37, 37, 50, 59])
    books = Books(frame("HELLO"), lambda: TcpCount(data_bytes=next(sent)))
    books.begin(frame("SMASHED"))
    assert sizes(books.take()) == [("HELLO", 10), ("SMASHED", 20)]
    (after,) = books.take()
    assert after == replace(frame(""), tcp=TcpCount(data_bytes=7))
    assert sizes(books.take()) == []
    books.begin(frame("ADAPTERS"))
    assert sizes(books.take()) == [("", 13), ("ADAPTERS", 9)]


def test_books_of_quic_are_the_same() -> None:
    sent = iter([10, 30, 37, 37, 50, 59])
    books = Books(frame("HELLO"), lambda: QuicCount(control_bytes=next(sent)))
    books.begin(frame("SMASHED"))
    taken = books.take()
    assert [(c.kind, c.quic, c.tcp) for c in taken] == [
        ("HELLO", QuicCount(control_bytes=10), TcpCount()),
        ("SMASHED", QuicCount(control_bytes=20), TcpCount()),
    ]
    assert books.take() == [replace(frame(""), quic=QuicCount(control_bytes=7))]
    assert books.take() == []
    books.begin(frame("ADAPTERS"))
    (before, _) = books.take()
    assert before.quic == QuicCount(control_bytes=13)


def test_what_is_not_acknowledged_is_still_in_the_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    with near, far:
        assert accounts._queued_bytes(near) == 0
        near.setblocking(False)
        given = near.send(bytes(4_000_000))
        # The peer reads nothing, and its window does not take all of it.
        assert 0 < accounts._queued_bytes(near) <= given
        assert TcpCount.of(near).data_bytes == given + 1


def frame(kind: str) -> Counts:
    return Counts(kind, 0, 0, 0, 0, 0, 0, 0, TcpCount())


def sizes(taken: list[Counts]) -> list[tuple[str, int]]:
    return [(counts.kind, counts.tcp.data_bytes) for counts in taken]
