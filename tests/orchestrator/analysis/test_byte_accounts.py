# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Every byte has one purpose: books of frames, by numbers that were worked out by hand."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from orchestrator.analysis.byte_accounts import (
    BYTES,
    account,
    air_table,
    carried_bytes,
    closed,
    totals,
)
from testbed.control.messages import Direction
from testbed.network.shaping import Shape
from testbed.transport.accounts import Counts, QuicCount, TcpCount

# Ethernet, IPv4 and TCP with timestamps take 14 + 20 + 32 = 66 bytes, with UDP 42.
FRAME = Counts(
    kind="SMASHED",
    iteration=2,
    payload_bytes=10_000,
    framing_bytes=56,
    record_bytes=110,
    opened=1,
    accepted=2,
    handshake_bytes=700,
    tcp=TcpCount(
        empty_segments=9,
        tried_segments=20,
        taken_segments=11,
        # A SYN counts as a byte: of the frame's 10,866, five are beyond what we know of.
        data_bytes=10_000 + 56 + 110 + 700 + 1 + 5,
        resent_segments=3,
        resent_bytes=3000,
    ),
)


def row(counts: Counts, transport: str) -> dict[str, Any]:
    table = account(4, [("up", 3, counts)], transport)
    assert list(table) == ["round", "client", "direction", "kind", "iteration", *BYTES]
    found: dict[str, Any] = table.iloc[0].to_dict()
    return found


def test_of_tcp() -> None:
    found = row(FRAME, "tls")
    assert {name: value for name, value in found.items() if name not in BYTES} == {
        "round": 4,
        "client": 3,
        "direction": "up",
        "kind": "SMASHED",
        "iteration": 2,
    }
    assert {name: found[name] for name in BYTES} == {
        "payload_bytes": 10_000,
        "framing_bytes": 56,
        "tls_bytes": 110,
        "grpc_bytes": 0,
        "quic_bytes": 0,
        # 11 segments were taken, with one that opened a connection and two that accepted one.
        "header_bytes": 8 * 66,
        # Opening takes a SYN and an ACK.
        "ack_bytes": 7 * 66,
        "resent_bytes": 3000 + 3 * 66,
        # SYN frames carry 8 more bytes of options.
        "handshake_bytes": 700 + (74 + 66) + 2 * 74,
        "other_bytes": 5,
    }
    fewer = replace(FRAME, tcp=replace(FRAME.tcp, tried_segments=6))
    assert row(fewer, "tls")["header_bytes"] == 6 * 66


def test_of_grpc_what_is_beyond_is_its_own() -> None:
    found = row(FRAME, "grpc")
    assert (found["grpc_bytes"], found["other_bytes"]) == (5, 0)


def test_of_quic() -> None:
    quic = QuicCount(
        stream_bytes=10_060,
        data_datagrams=8,
        data_bytes=10_400,
        resent_datagrams=2,
        resent_bytes=1500,
        control_datagrams=5,
        control_bytes=200,
        handshake_datagrams=3,
        handshake_bytes=3600,
    )
    found = row(replace(FRAME, quic=quic), "quic")
    assert {name: found[name] for name in BYTES} == {
        "payload_bytes": 10_000,
        "framing_bytes": 56,
        "tls_bytes": 0,
        "grpc_bytes": 0,
        "quic_bytes": 340,
        "header_bytes": 8 * 42,
        "ack_bytes": 200 + 5 * 42,
        "resent_bytes": 1500 + 2 * 42,
        "handshake_bytes": 3600 + 3 * 42,
        "other_bytes": 4,
    }
    carried = quic.data_bytes + quic.resent_bytes + quic.control_bytes + quic.handshake_bytes
    assert sum(found[name] for name in BYTES) == carried + (8 + 2 + 5 + 3) * 42


def link(sent_bytes: int, **more: int) -> Direction:
    names = dict.fromkeys(Direction.__dataclass_fields__, 0)
    return Direction(**names | {"sent_bytes": sent_bytes} | more)


def test_what_the_links_counted_beyond_the_books_is_a_row_of_each() -> None:
    books = [("up", 1, FRAME), ("up", 1, FRAME), ("down", 2, FRAME)]
    table = account(4, books, "tls")
    of_frame = int(totals(table.head(1)).sum())
    after: Any = SimpleNamespace(
        uplink=[link(2 * of_frame + 17), link(5)], downlink=[link(0), link(of_frame)]
    )
    before: Any = SimpleNamespace(uplink=[link(10), link(1)], downlink=[link(0), link(40)])
    for earlier, due in ((None, [17, 5, 0, 0]), (before, [7, 4, 0, -40])):
        whole = closed(table, 4, earlier, after, Shape())
        rest = whole.tail(4)
        assert len(whole) == 7
        assert rest["direction"].tolist() == ["up", "up", "down", "down"]
        assert rest["client"].tolist() == [1, 2, 1, 2]
        assert rest["other_bytes"].tolist() == due
        assert (rest["kind"].tolist(), rest["iteration"].tolist()) == ([""] * 4, [0] * 4)
        assert rest["round"].tolist() == [4] * 4
        assert totals(rest).sum() == sum(due)


def test_a_link_that_charges_payload_alone_still_carried_headers() -> None:
    packets = link(1000, device_sent_bytes=1264, sent_frames=6, device_sent_frames=4)
    assert carried_bytes(packets, Shape()) == 1000
    # Of two packets the device counted the headers of only one of their frames.
    assert carried_bytes(packets, Shape(charges_headers=False)) == 1264 + 2 * 66


def test_frames_of_the_air_are_those_of_each_round() -> None:
    def report(*counts: tuple[int, int]) -> Any:
        ends = [link(0, lost_frames=lost, arrived_frames=arrived) for lost, arrived in counts]
        return SimpleNamespace(uplink=ends[:1], downlink=ends[1:])

    # After the second round the run was resumed: counters began anew.
    reports = [report((1, 10), (2, 20)), report((4, 10), (7, 50)), report((0, 6), (1, 9))]
    table = air_table(reports)
    assert list(table) == ["round", "client", "direction", "lost_frames", "arrived_frames"]
    assert table.to_numpy().tolist() == [
        [0, 1, "up", 1, 10],
        [0, 1, "down", 2, 20],
        [1, 1, "up", 3, 0],
        [1, 1, "down", 5, 30],
        [2, 1, "up", 0, 6],
        [2, 1, "down", 1, 9],
    ]
