# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Every byte has one purpose: books of frames, by numbers that were worked out by hand."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.analysis.byte_accounts import (
    BYTES,
    RESENT,
    account,
    carried_bytes,
    completed,
    to_json,
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
        spurious_segments=1,
    ),
)
FRAMES = ["resent_frames", "spurious_frames", "refused_frames"]


def row(counts: Counts, transport: str) -> dict[str, Any]:
    table = account(4, [("up", 3, counts)], transport)
    assert list(table) == ["round", "client", "direction", "kind", "iteration", *BYTES, *FRAMES]
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
        "resent_frames": 3,
        "spurious_frames": 1,
        "refused_frames": 20 - 8,
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
        "resent_lost_bytes": 0,
        "resent_dropped_bytes": 0,
        "resent_spurious_bytes": 3000 + 3 * 66,
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
        "resent_lost_bytes": 0,
        "resent_dropped_bytes": 0,
        "resent_spurious_bytes": 1500 + 2 * 42,
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
        whole = completed(table, 4, earlier, after, Shape())
        rest = whole.tail(4)
        assert len(whole) == 7
        assert rest["direction"].tolist() == ["up", "up", "down", "down"]
        assert rest["client"].tolist() == [1, 2, 1, 2]
        assert rest["other_bytes"].tolist() == due
        assert (rest["kind"].tolist(), rest["iteration"].tolist()) == ([""] * 4, [0] * 4)
        assert rest["round"].tolist() == [4] * 4
        assert totals(rest).sum() == sum(due)


@pytest.mark.parametrize(
    ("lost", "dropped", "due"),
    [
        # Of ten frames, the peer had two already; the queue refused four first tries.
        ((0, 90), (0, 4), [8, 0, 2]),
        ((0, 5), (0, 4), [5, 0, 5]),
        ((0, 5), (0, 6), [5, 2, 3]),
        ((2, 5), (7, 20), [0, 8, 2]),
        ((5, 9), (4, 9), [4, 1, 5]),
        ((0, 0), (0, 0), [0, 0, 10]),
    ],
)
def test_what_was_resent_is_told_apart_by_what_the_link_lost_and_dropped(
    lost: tuple[int, int], dropped: tuple[int, int], due: list[int]
) -> None:
    def sent(segments: int, spurious: int, refused: int) -> Counts:
        tcp = TcpCount(
            tried_segments=20 + refused,
            taken_segments=23,
            resent_segments=segments,
            resent_bytes=934 * segments,
            spurious_segments=spurious,
        )
        return replace(FRAME, tcp=tcp)

    books = [("up", 1, sent(8, 0, 3)), ("up", 1, sent(2, 2, 1)), ("down", 1, sent(1, 0, 0))]
    before: Any
    after: Any
    before, after = (
        SimpleNamespace(
            uplink=[link(0, lost_frames=lost[at], dropped_frames=dropped[at])],
            downlink=[link(0, lost_frames=at)],
        )
        for at in (0, 1)
    )
    table = completed(account(4, books, "tcp"), 4, before, after, Shape())
    assert table.index.tolist() == list(range(len(table)))
    assert not set(FRAMES) & set(table)
    up = table[(table["direction"] == "up") & (table["kind"] != "")]
    assert up[list(RESENT)].sum().tolist() == [1000 * frames for frames in due]
    assert up[list(RESENT)].sum(axis=1).tolist() == [8000, 2000]
    down = table[table["direction"] == "down"]
    assert down[list(RESENT)].sum().tolist() == [1000, 0, 0]


def test_a_quic_link_that_loses_nothing_resends_in_vain() -> None:
    quic = QuicCount(resent_bytes=158)
    books = [("up", 1, replace(FRAME, quic=quic))]
    ways: Any = SimpleNamespace(uplink=[link(0, lost_frames=1)], downlink=[link(0)])
    calm: Any = SimpleNamespace(uplink=[link(0)], downlink=[link(0)])
    for after, due in ((ways, [158, 0, 0]), (calm, [0, 0, 158])):
        table = completed(account(4, books, "quic"), 4, None, after, Shape())
        assert table[list(RESENT)].sum().tolist() == due


def test_json_has_what_all_links_carried_in_each_round() -> None:
    books = [("up", 1, FRAME), ("up", 2, FRAME), ("down", 1, FRAME)]
    nothing: Any = SimpleNamespace(uplink=[link(0)] * 2, downlink=[link(0)] * 2)
    (only,) = to_json([completed(account(4, books, "tls"), 4, None, nothing, Shape())])
    assert only["round"] == 4
    assert list(only["up"]) == list(only["down"]) == list(BYTES)
    assert (only["up"]["payload_bytes"], only["down"]["payload_bytes"]) == (20_000, 10_000)


def test_a_link_that_charges_payload_alone_still_carried_headers() -> None:
    packets = link(1000, device_sent_bytes=1264, sent_frames=6, device_sent_frames=4)
    assert carried_bytes(packets, Shape()) == 1000
    # Of two packets the device counted the headers of only one of their frames.
    assert carried_bytes(packets, Shape(charges_headers=False)) == 1264 + 2 * 66
