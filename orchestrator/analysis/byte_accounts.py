# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Accounts of protocol overheads: every byte that a link carried, by what it was for.

Nodes keep books of the frames they send (payload, our framing, TLS records), and read from the
kernel's TCP what it sent for them (`tcp_info`). The links' own counters say how many bytes there
were in all. What the books say and what the links counted must be the same: `other_bytes` is the
difference. It is 0 unless TCP used options beyond the usual ones, as for selective acknowledgements
after a loss, or a link's queue dropped a retransmission or an acknowledgement, which TCP counts.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from testbed.control.messages import Direction
from testbed.network.injector import Report
from testbed.network.shaping import Shape
from testbed.transport import kind_of
from testbed.transport.accounts import Counts
from testbed.transport.framing import ETHERNET_BYTES, IPV4_BYTES, TCP_BYTES, UDP_BYTES

BYTES = (
    "payload_bytes",
    "framing_bytes",
    "tls_bytes",
    "grpc_bytes",
    "quic_bytes",
    "header_bytes",
    "ack_bytes",
    "resent_lost_bytes",
    "resent_dropped_bytes",
    "resent_spurious_bytes",
    "handshake_bytes",
    "other_bytes",
)
"""What a link's bytes are for; they add up to what it carried.

payload: tensors. framing: our headers, labels, names of adapters, greetings, receipts. tls: records
around them. grpc: its framing and control messages, HTTP/2's, and its own handshake. quic: headers
and tags of its packets with data, and what else is in them. header: Ethernet, IPv4 and TCP or UDP
headers of frames that carry data for the first time. ack: frames without data, those that end a
connection among them. resent: retransmitted frames, whole: since the air had lost a frame (lost),
since the link's queue had dropped one (dropped), or although none was missing (spurious): a timeout
or a probe came too early, or the acknowledgement got lost. handshake: frames that begin a
connection, and TLS's handshake messages. other: what the links counted beyond that.
"""
RESENT = ("resent_lost_bytes", "resent_dropped_bytes", "resent_spurious_bytes")
"""Of `BYTES`, those of retransmitted frames, by why they were; see `closed`."""
_FRAMES = ("resent_frames", "spurious_frames", "refused_frames")
"""What nodes know of retransmissions, until it is held against what the links know: how many, how
many the peer had already, and first tries that the link's queue refused, which TCP knows of."""

HEADERS_BYTES = ETHERNET_BYTES + IPV4_BYTES + TCP_BYTES
UDP_HEADERS_BYTES = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES
SYN_BYTES = HEADERS_BYTES + 8
"""The frames that begin a connection carry 20 bytes of TCP options instead of 12."""

STEP_OF = {"BROADCAST": "SM", "SMASHED": "CA", "GRADIENT": "SG", "ADAPTERS": "CM"}
"""The step of a round that a kind of frame is the transfer of."""
SET_UP = -1
"""Stands for the round of what was sent before the first one: greetings and probes."""


def account(
    round_: int,
    sent: Sequence[tuple[str, int, Counts]],
    transport: str,
) -> pd.DataFrame:
    """One row a frame that nodes sent.

    Args:
        round_: What they were sent for; `SET_UP` before the first round.
        sent: `up` or `down`, client, and the node's books, for each frame.
        transport: `emulation.transport`.

    Returns:
        Columns round, client, direction, kind, iteration, then `BYTES`, where all that was resent
        counts as spurious, and what `closed` needs to know better.
    """
    kind = kind_of(transport)
    split = partial(_of_tcp, own_bytes=kind.own_bytes) if kind.is_tcp else _of_quic
    rows = []
    for direction, client, counts in sent:
        rows.append(
            {
                "round": round_,
                "client": client,
                "direction": direction,
                "kind": counts.kind,
                "iteration": counts.iteration,
                **split(counts),
            }
        )
    return pd.DataFrame(rows)


def _of_quic(counts: Counts) -> dict[str, int]:
    quic = counts.quic
    return {
        "payload_bytes": counts.payload_bytes,
        "framing_bytes": counts.framing_bytes,
        "tls_bytes": 0,
        "grpc_bytes": 0,
        "quic_bytes": quic.data_bytes - quic.stream_bytes,
        "header_bytes": UDP_HEADERS_BYTES * quic.data_datagrams,
        "ack_bytes": quic.control_bytes + UDP_HEADERS_BYTES * quic.control_datagrams,
        "resent_lost_bytes": 0,
        "resent_dropped_bytes": 0,
        "resent_spurious_bytes": quic.resent_bytes + UDP_HEADERS_BYTES * quic.resent_datagrams,
        "handshake_bytes": quic.handshake_bytes + UDP_HEADERS_BYTES * quic.handshake_datagrams,
        "other_bytes": quic.stream_bytes - counts.payload_bytes - counts.framing_bytes,
        # What else was in a datagram with new data was resent, too.
        "resent_frames": max(quic.resent_datagrams, min(quic.resent_bytes, 1)),
        "spurious_frames": 0,
        "refused_frames": 0,
    }


def _of_tcp(counts: Counts, own_bytes: str) -> dict[str, int]:
    tcp = counts.tcp
    known = counts.payload_bytes + counts.framing_bytes + counts.record_bytes
    beyond = tcp.data_bytes - counts.opened - known - counts.handshake_bytes
    # A connection begins with SYN and ACK of who opens it, and the SYN of who accepts it, which is
    # none of its socket's yet.
    empty = tcp.empty_segments - 2 * counts.opened
    # Where nothing was refused, fewer were tried: all but one that did nothing but end it.
    taken = min(tcp.taken_segments - counts.opened - counts.accepted, tcp.tried_segments)
    row = {
        "payload_bytes": counts.payload_bytes,
        "framing_bytes": counts.framing_bytes,
        "tls_bytes": counts.record_bytes,
        "grpc_bytes": 0,
        "quic_bytes": 0,
        "header_bytes": HEADERS_BYTES * taken,
        "ack_bytes": HEADERS_BYTES * empty,
        "resent_lost_bytes": 0,
        "resent_dropped_bytes": 0,
        "resent_spurious_bytes": tcp.resent_bytes + HEADERS_BYTES * tcp.resent_segments,
        "handshake_bytes": counts.handshake_bytes
        + counts.opened * (SYN_BYTES + HEADERS_BYTES)
        + counts.accepted * SYN_BYTES,
        "other_bytes": 0,
        "resent_frames": tcp.resent_segments,
        "spurious_frames": tcp.spurious_segments,
        "refused_frames": tcp.tried_segments - taken,
    }
    row[own_bytes] += beyond
    return row


def closed(
    table: pd.DataFrame, round_: int, before: Report | None, after: Report, shape: Shape
) -> pd.DataFrame:
    """The accounts of a round, with a row a link and direction for what the links counted beyond.

    A frame is sent again for each one that is lost, and for each that arrives twice. Of a link's
    retransmissions in a round, those are spurious of which the peer says so; of the others, as many
    follow a drop as the queue has dropped behind TCP's back, and as many a loss as the air has lost
    frames; what is left is spurious, too. Each row has the same shares of what it has resent.

    Args:
        table: From `account`, of this round alone.
        round_: Its number.
        before: The links' counters when it began; None: they began at zero.
        after: The same when it was over.
        shape: How links treat frames.
    """
    booked = table.groupby(["direction", "client"])[list(BYTES)].sum().sum(axis=1)
    rows = []
    table = table.copy()
    for direction, links, earlier in (
        ("up", after.uplink, before and before.uplink),
        ("down", after.downlink, before and before.downlink),
    ):
        for client, link in enumerate(links, 1):
            carried = carried_bytes(link, shape)
            lost, dropped = link.lost_frames, link.dropped_frames
            if earlier:
                then = earlier[client - 1]
                carried -= carried_bytes(then, shape)
                lost, dropped = lost - then.lost_frames, dropped - then.dropped_frames
            of_link = (table["direction"] == direction) & (table["client"] == client)
            table.loc[of_link, list(RESENT)] = _by_cause(table[of_link], lost, dropped)
            rows.append(
                {
                    "round": round_,
                    "client": client,
                    "direction": direction,
                    "kind": "",
                    "iteration": 0,
                    **dict.fromkeys(BYTES, 0),
                    "other_bytes": carried - int(booked.get((direction, client), 0)),
                }
            )
    return pd.concat([table.drop(columns=list(_FRAMES)), pd.DataFrame(rows)], ignore_index=True)


def _by_cause(rows: pd.DataFrame, lost: int, dropped: int) -> npt.NDArray[np.int64]:
    """`RESENT` of a link's rows [rows, 3], from the frames that air and queue took meanwhile."""
    frames, spurious, refused = rows[list(_FRAMES)].sum()
    left = max(0, frames - spurious)
    dropped = min(left, max(0, dropped - refused))
    lost = min(left - dropped, lost)
    size = rows["resent_spurious_bytes"].to_numpy(np.int64)
    of_air = size * lost // max(frames, 1)
    of_both = size * (lost + dropped) // max(frames, 1)
    return np.column_stack([of_air, of_both - of_air, size - of_both])


def carried_bytes(link: Direction, shape: Shape) -> int:
    """Bytes of all frames that a link has carried one way, Ethernet headers and all."""
    if shape.charges_headers:
        return link.sent_bytes
    # The queue then counts payload; the device counts the headers of a packet of several frames
    # only once.
    return link.device_sent_bytes + HEADERS_BYTES * (link.sent_frames - link.device_sent_frames)


def to_json(tables: Sequence[pd.DataFrame]) -> list[dict[str, Any]]:
    """What links carried in each round, all of them together: round, up and down by `BYTES`."""
    rounds = []
    for table in tables:
        sums = table.groupby("direction")[list(BYTES)].sum()
        sizes = sums.loc[["up", "down"]].to_numpy().tolist()
        up, down = (dict(zip(BYTES, way, strict=True)) for way in sizes)
        rounds.append({"round": int(table["round"].iloc[0]), "up": up, "down": down})
    return rounds


def totals(table: pd.DataFrame) -> pd.Series:
    """Bytes by what they were for, of all rows."""
    return table[list(BYTES)].sum()
