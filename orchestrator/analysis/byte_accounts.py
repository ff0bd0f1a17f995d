# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Accounts of protocol overheads: every byte that a link carried, by purpose.

Nodes record what they send (payload, our framing, TLS records) and read from the kernel's TCP how
it was sent (`tcp_info`). The links' own counters give the total number of bytes; `other_bytes` is
the difference from the nodes' records. It is 0 unless TCP used unusual options, e.g. for selective
acknowledgements after a loss, or a link's queue dropped a retransmission or an acknowledgement,
which TCP counts.
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
"""Purposes of a link's bytes, which add up to the bytes that it carried.

payload: tensors. framing: our headers, labels, names of adapters, greetings, receipts. tls: TLS
records. grpc: gRPC's framing and control messages, HTTP/2's, and its handshake. quic: headers, tags
and other frames in packets with data. header: Ethernet, IPv4 and TCP or UDP headers of frames with
new data. ack: frames without data, including those that close a connection. resent: whole
retransmitted frames: because the channel had lost a frame (lost), the link's queue had dropped one
(dropped), or although no frame was missing (spurious): after a premature timeout or probe, or a
lost acknowledgement. handshake: frames that open a connection, and TLS's handshake messages. other:
further bytes that the links counted.
"""
RESENT = ("resent_lost_bytes", "resent_dropped_bytes", "resent_spurious_bytes")
"""The purposes for retransmitted frames, by cause; see `completed`."""
_FRAMES = ("resent_frames", "spurious_frames", "refused_frames")
"""Counters of nodes: retransmissions, those of them that the peer already had, and first
transmissions that the link's queue refused, which TCP notices."""

HEADERS_BYTES = ETHERNET_BYTES + IPV4_BYTES + TCP_BYTES
UDP_HEADERS_BYTES = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES
SYN_BYTES = HEADERS_BYTES + 8
"""Size of a frame that opens a connection: its TCP options have 20 bytes instead of 12."""

STEP_OF = {
    "BROADCAST": "SM",
    "SMASHED": "CA",
    "SHARED": "SG",
    "GRADIENT": "SG",
    "ADAPTERS": "CM",
}
"""By kind of message: the step of a round whose transfer it is."""
SET_UP = -1
"""The round of everything sent before the first round: greetings and probes."""


def account(
    round_: int,
    sent: Sequence[tuple[str, int, Counts]],
    transport: str,
) -> pd.DataFrame:
    """Account for the frames that nodes sent, one row per message.

    Args:
        round_: Index of the round, or `SET_UP`.
        sent: For each message its direction (`up` or `down`), client, and the node's counts.
        transport: The value of `emulation.transport`.

    Returns:
        Columns round, client, direction, kind, iteration, then `BYTES`, with all retransmissions
        counted as spurious, and the counts that `completed` needs.
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
    if not rows:  # All clients were lost before.
        return pd.DataFrame(columns=["round", "client", "direction", "kind", *BYTES, *_FRAMES])
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
        # A datagram with new data also contained other data again.
        "resent_frames": max(quic.resent_datagrams, min(quic.resent_bytes, 1)),
        "spurious_frames": 0,
        "refused_frames": 0,
    }


def _of_tcp(counts: Counts, own_bytes: str) -> dict[str, int]:
    tcp = counts.tcp
    known = counts.payload_bytes + counts.framing_bytes + counts.record_bytes
    beyond = tcp.data_bytes - counts.opened - known - counts.handshake_bytes
    # To open a connection, the opener sends SYN and ACK and the other side a SYN, which its socket
    # does not count.
    empty = tcp.empty_segments - 2 * counts.opened
    # The count of attempts is too low by one if a segment without data closed the connection.
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


def completed(
    table: pd.DataFrame, round_: int, before: Report | None, after: Report, shape: Shape
) -> pd.DataFrame:
    """The accounts of a round, with a row per link and direction for other bytes.

    The peer reports the number of spurious retransmissions on a link. The other retransmissions are
    attributed to drops, as many as the queue dropped unnoticed by TCP, and to losses, as many as
    the channel lost frames; the remaining ones are spurious, too. Each row's retransmitted bytes
    are divided in these proportions.

    Args:
        table: Result of `account` for this round.
        round_: Index of the round.
        before: The links' counters at the round's start; None: they were 0.
        after: The counters at the round's end.
        shape: Shape of the links.
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
    others = pd.DataFrame(rows)
    if table.empty:
        return others
    return pd.concat([table.drop(columns=list(_FRAMES)), others], ignore_index=True)


def _by_cause(rows: pd.DataFrame, lost: int, dropped: int) -> npt.NDArray[np.int64]:
    """`RESENT` of a link's rows, shape [rows, 3], from the numbers of lost and dropped frames."""
    frames, spurious, refused = rows[list(_FRAMES)].sum()
    left = max(0, frames - spurious)
    dropped = min(left, max(0, dropped - refused))
    lost = min(left - dropped, lost)
    size = rows["resent_spurious_bytes"].to_numpy(np.int64)
    of_loss = size * lost // max(frames, 1)
    of_both = size * (lost + dropped) // max(frames, 1)
    return np.column_stack([of_loss, of_both - of_loss, size - of_both])


def carried_bytes(link: Direction, shape: Shape) -> int:
    """Bytes of all frames that a link has carried in a direction, with Ethernet headers."""
    if shape.charges_headers:
        return link.sent_bytes
    # The queue counts payload; the device counts the headers only once for a packet of several
    # frames.
    return link.device_sent_bytes + HEADERS_BYTES * (link.sent_frames - link.device_sent_frames)


def to_json(tables: Sequence[pd.DataFrame]) -> list[dict[str, Any]]:
    """Bytes on all links in each round: round, and for up and down a dict by `BYTES`."""
    rounds = []
    for table in tables:
        sums = table.groupby("direction")[list(BYTES)].sum()
        sizes = sums.loc[["up", "down"]].to_numpy().tolist()
        up, down = (dict(zip(BYTES, way, strict=True)) for way in sizes)
        rounds.append({"round": int(table["round"].iloc[0]), "up": up, "down": down})
    return rounds


def totals(table: pd.DataFrame) -> pd.Series:
    """Bytes by purpose, summed over all rows."""
    return table[list(BYTES)].sum()
