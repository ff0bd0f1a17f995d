# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The log of a radio process: the grants of its scheduler, and the times at which data waited for
them.

With `emulation.air: ns3`, packets of the programs pass through ns-3's LTE. `read_log` reads the
file that its process writes, `RadioLog` answers questions about a round, and `grants` makes a
table of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from orchestrator.engine.arrays import Array
from orchestrator.engine.lte import DELIVERY_TTIS, PACKET_BYTES, RLC_BYTES, TAKEN_TTIS, TTI_S
from testbed.core.errors import InputError
from testbed.core.timeline import Round

RECORD = np.dtype(
    [
        ("time_ns", "<i8"),
        ("bytes", "<u2"),
        ("blocks", "u1"),
        ("mcs", "u1"),
        ("uav", "<u2"),
        ("kind", "u1"),
        ("direction", "u1"),
    ]
)
"""A record of the log, 16 bytes. `time_ns` is a time of the nodes' monotonic clock. `bytes`,
`blocks` and `mcs` are the size of a transport block, its number of resource blocks, and its
modulation and coding scheme. `uav` counts from 0; `direction` is 0 for the uplink and 1 for the
downlink."""
NEW, AGAIN, LOST, FILLED, EMPTIED, LEAVES_CELL, JOINS_CELL, INTERRUPTED, SERVED = range(9)
"""Kinds of records: a transport block is granted for new data, or for a retransmission; a block was
lost; the sending end's queue is no longer empty, or it became empty; a handover begins (`blocks`:
from this cell, `mcs`: to this one), or is complete; the first packet after it has arrived (`bytes`:
the time since the last packet before it, in units of 0.1 ms); a slot ends (`blocks`: the serving
cell, `bytes`: the mean SINR of the downlink, see `SINR_OFFSET_DB`). A grant's time is that of the
scheduler's decision."""
SINR_OFFSET_DB, SINR_STEPS, NO_SINR = 300, 100, 65535
"""A signal-to-interference-plus-noise ratio is noted as (ratio in dB + 300) * 100; 65535: there was
no data to measure it."""
INTERRUPTION_S = 1e-4
"""Unit of an interruption."""
_MOMENT_S = 1e-6
"""Differences of times that are rounding, or a queue's reaction to a block that leaves it."""
HARQ_TTIS = 16
"""Longest time between a transport block and its retransmission: two periods of the 8 uplink HARQ
processes (TS 36.213, section 8)."""

Records = npt.NDArray[np.void]
"""Records of a log, dtype `RECORD`, shape [N]."""


def read_log(path: Path, uavs: int, first: int = 0) -> Records:
    """The records of a log, in order of time.

    Args:
        path: File that the radio process has written.
        uavs: Number of UAVs, K.
        first: Number of records to skip.

    Raises:
        InputError: The file has no whole number of records, or a record that cannot be right. The
            line names the file, the record from 0, and the field.
    """
    with path.open("rb") as file:
        file.seek(first * RECORD.itemsize)
        content = file.read()
    if len(content) % RECORD.itemsize:
        raise InputError(
            f"{path}: its {len(content)} bytes are no whole number of records of "
            f"{RECORD.itemsize} bytes"
        )
    records: Records = np.frombuffer(content, RECORD)
    for name, most in (("kind", SERVED), ("direction", 1), ("uav", uavs - 1)):
        if (wrong := np.flatnonzero(records[name] > most)).size:
            at = int(wrong[0])
            raise InputError(
                f"{path}: record {at}: {name} must be 0 to {most}, not {records[name][at]}"
            )
    if (back := np.flatnonzero(np.diff(records["time_ns"]) < 0)).size:
        raise InputError(f"{path}: record {int(back[0]) + 1}: time_ns is before that of the last")
    return records


class Activity(NamedTuple):
    """Seconds of a transfer by activity of its link; they add up to the transfer's duration."""

    waiting_s: float
    """The queue had data, and the first transport block for them had not been sent."""
    harq_s: float
    """Time in which a retransmission was sent, or was still to come with nothing else left in the
    queue."""
    served_s: float
    """Time in which the queue had data that were being sent, in turns with the other UAVs, or the
    last transport block of the queue was sent."""
    idle_s: float
    """The queue was empty: TCP or the program offered nothing, or the last packets were on their
    way to the receiver."""


class LinkLog:
    """One direction of one UAV's link."""

    def __init__(self, records: Records, time_s: Array, direction: int, packet_bytes: float):
        """Make the link's log.

        Args:
            records: The link's records, in order of time.
            time_s: Times of the records in emulated seconds.
            direction: 0 for the uplink, 1 for the downlink.
            packet_bytes: Size of most IP packets.
        """
        self._delivery_s = (1 + DELIVERY_TTIS[direction] - TAKEN_TTIS[direction]) * TTI_S
        in_queue = np.isin(records["kind"], (FILLED, EMPTIED))
        self._queue_s, is_filled = time_s[in_queue], records["kind"][in_queue] == FILLED
        # Before its first record, the state is the opposite of the one that it changes to.
        initially = not is_filled[0] if len(is_filled) else True
        self._is_filled = np.append(initially, is_filled)
        taken_s = time_s + TAKEN_TTIS[direction] * TTI_S
        self._again_s = taken_s[records["kind"] == AGAIN]
        # Blocks that were granted in vain leave when the queue is empty.
        before = np.searchsorted(self._queue_s, taken_s - _MOMENT_S)
        is_used = (records["kind"] == NEW) & self._is_filled[before]
        self._new_s = taken_s[is_used]
        block_bytes = records["bytes"][is_used].astype(float)
        data_bytes = np.maximum(block_bytes - RLC_BYTES, 0.0)
        data_bytes *= packet_bytes / (packet_bytes + PACKET_BYTES)
        self._granted_bytes = np.concatenate([[0.0], data_bytes.cumsum()])

    def granted_bytes(self, start_s: float, end_s: float) -> float:
        """Bytes of IP packets that fit into the new transport blocks of a period, without those
        that left when the queue was empty."""
        since, until = np.searchsorted(self._new_s, (start_s, end_s))
        return float(self._granted_bytes[until] - self._granted_bytes[since])

    def due_s(self, start_s: float, size_bytes: float) -> float:
        """When a transfer's last packet is due, given the grants since its start.

        It is delivered with the transport block with which the bytes granted since the start reach
        the transfer's size; infinity if they never do.
        """
        since = int(np.searchsorted(self._new_s, start_s))
        wanted = self._granted_bytes[since] + size_bytes * (1 - 1e-12)
        block = max(since, int(np.searchsorted(self._granted_bytes, wanted)) - 1)
        return float(self._new_s[block] + self._delivery_s) if block < len(self._new_s) else np.inf

    def activity(self, start_s: float, end_s: float) -> Activity:
        """Activity of the link in a period."""
        edges_s, total_s = self._totals
        if not len(edges_s):
            return Activity(0.0, 0.0, 0.0, end_s - start_s)
        until, since = (
            [float(np.interp(time_s, edges_s, each)) for each in total_s]
            for time_s in (end_s, start_s)
        )
        waiting_s, harq_s, served_s = (
            after - before for after, before in zip(until, since, strict=True)
        )
        idle_s = end_s - start_s - waiting_s - harq_s - served_s
        return Activity(waiting_s, harq_s, served_s, idle_s)

    @cached_property
    def _totals(self) -> tuple[Array, Array]:
        """Edges between activities, and the seconds of each activity before each edge, [3, E]."""
        blocks_s = np.concatenate([self._new_s, self._again_s])
        edges_s = np.unique(np.concatenate([blocks_s, blocks_s + TTI_S, self._queue_s]))
        middle_s = (edges_s[1:] + edges_s[:-1]) / 2

        def last(times_s: Array) -> Array:
            at: Array = np.append(times_s, -np.inf)[np.searchsorted(times_s, middle_s) - 1]
            return at

        def following(times_s: Array) -> Array:
            at: Array = np.append(times_s, np.inf)[np.searchsorted(times_s, middle_s)]
            return at

        sent_s, repeated_s, filled_s = last(self._new_s), last(self._again_s), last(self._queue_s)
        sends, repeats = middle_s < sent_s + TTI_S, middle_s < repeated_s + TTI_S
        has_data = self._is_filled[np.searchsorted(self._queue_s, middle_s)]
        again_s = following(self._again_s)
        is_pending = ~has_data & (again_s < following(self._new_s))
        is_pending &= again_s - np.maximum(sent_s, repeated_s) <= HARQ_TTIS * TTI_S
        is_harq = (repeats | is_pending) & ~sends
        is_waiting = has_data & ((sent_s < filled_s) | np.isneginf(sent_s)) & ~sends & ~is_harq
        is_served = (sends | has_data) & ~is_harq & ~is_waiting
        each_s = np.diff(edges_s) * np.stack([is_waiting, is_harq, is_served])
        return edges_s, np.concatenate([np.zeros((3, 1)), np.cumsum(each_s, axis=1)], axis=1)


@dataclass(frozen=True)
class RadioLog:
    """The log of a radio during a round."""

    records: Records
    """Records of dtype `RECORD`, in order of time."""
    at: Callable[[int], float]
    """The emulated time in s at a time of the nodes' monotonic clock in ns."""
    packet_bytes: float
    """Size of most IP packets, `emulation.mtu`."""

    @cached_property
    def time_s(self) -> Array:
        """Times of the records in emulated seconds, shape [N]."""
        return np.array([self.at(ns) for ns in self.records["time_ns"].tolist()], float)

    @cached_property
    def _links(self) -> dict[tuple[int, int], LinkLog]:
        return {}

    def of_link(self, direction: int, client: int) -> npt.NDArray[np.bool_]:
        """Mask [N] of the records of one direction (0 up, 1 down) of a client, from 1."""
        records = self.records
        own: npt.NDArray[np.bool_] = (records["direction"] == direction) & (
            records["uav"] == client - 1
        )
        return own

    def link(self, direction: int, client: int) -> LinkLog:
        """The log of one direction (0 up, 1 down) of a client, from 1."""
        if (direction, client) not in self._links:
            own = self.of_link(direction, client)
            made = LinkLog(self.records[own], self.time_s[own], direction, self.packet_bytes)
            self._links[direction, client] = made
        return self._links[direction, client]


def slots_in(round_: Round, slot_s: float) -> range:
    """The slots that overlap with a round, at least one."""
    first = int(np.floor(round_.start_s / slot_s + 1e-9))
    return range(first, max(first + 1, int(np.ceil(round_.end_s / slot_s - 1e-9))))


def grants(round_: Round, log: RadioLog, slot_s: float, clients: int) -> pd.DataFrame:
    """Grants of the radio in each slot of a round.

    Args:
        round_: The round.
        log: The log of the round's radio.
        slot_s: Length of a slot, s.
        clients: Number of clients, K.

    Returns:
        One row per slot, client and direction with a grant, a lost block, or data that waited for a
        grant. Columns: round, slot, time_s (start of the slot), client, direction (`up` or `down`),
        blocks (transport blocks, with retransmissions), resource_blocks (mean over all TTIs of the
        slot, with retransmissions), granted_bytes (transport blocks of new data), lost_blocks, mcs
        (modulation and coding scheme of most new blocks; -1: there was none), and waiting_s (time
        in which the queue had data, and the first transport block for them had not been sent).
    """
    slots_of_round = slots_in(round_, slot_s)
    first, every = slots_of_round.start, np.array(slots_of_round)
    slot_of = np.floor(log.time_s / slot_s + 1e-9).astype(np.int64) - first
    tables = []
    for direction, name in enumerate(("up", "down")):
        for client in range(1, clients + 1):
            own = log.of_link(direction, client) & (slot_of >= 0) & (slot_of < len(every))
            records, slots = log.records[own], slot_of[own]
            kind = records["kind"]
            is_new = kind == NEW

            def total(chosen: Any, weights: Any = None, slots: Any = slots) -> Array:
                weights = None if weights is None else weights[chosen].astype(float)
                return np.bincount(slots[chosen], weights, minlength=len(every)).astype(float)

            schemes = np.zeros((len(every), 32), np.int64)
            np.add.at(schemes, (slots[is_new], records["mcs"][is_new].clip(max=31)), 1)
            is_granted = is_new | (kind == AGAIN)
            link = log.link(direction, client)
            table = pd.DataFrame(
                {
                    "round": round_.index,
                    "slot": every,
                    "time_s": every * slot_s,
                    "client": client,
                    "direction": name,
                    "blocks": total(is_granted).astype(np.int64),
                    "resource_blocks": total(is_granted, records["blocks"]) * TTI_S / slot_s,
                    "granted_bytes": total(is_new, records["bytes"]).astype(np.int64),
                    "lost_blocks": total(kind == LOST).astype(np.int64),
                    "mcs": np.where(schemes.any(axis=1), schemes.argmax(axis=1), -1),
                    "waiting_s": [
                        link.activity(slot * slot_s, (slot + 1) * slot_s).waiting_s
                        for slot in every.tolist()
                    ],
                }
            )
            is_active = (table["blocks"] > 0) | (table["lost_blocks"] > 0)
            tables.append(table[is_active | (table["waiting_s"] > 0)])
    return pd.concat(tables, ignore_index=True)


def cells(log: RadioLog, slot_s: float, slots: range) -> pd.DataFrame:
    """The cell that served each UAV in each slot.

    Args:
        log: The log of a radio.
        slot_s: Length of a slot, s.
        slots: The slots.

    Returns:
        One row per slot and client. Columns: slot, time_s (start of the slot), client, cell (0 is
        the base station), sinr_db (mean signal-to-interference-plus-noise ratio of the downlink's
        data; NaN: there were none).
    """
    chosen = log.records["kind"] == SERVED
    records = log.records[chosen]
    slot = np.rint(log.time_s[chosen] / slot_s).astype(np.int64) - 1
    noted = records["bytes"].astype(float)
    table = pd.DataFrame(
        {
            "slot": slot,
            "time_s": slot * slot_s,
            "client": records["uav"].astype(np.int64) + 1,
            "cell": records["blocks"].astype(np.int64),
            "sinr_db": np.where(noted == NO_SINR, np.nan, noted / SINR_STEPS - SINR_OFFSET_DB),
        }
    )
    table = table[table["slot"].between(slots.start, slots.stop - 1)]
    return table.drop_duplicates(["slot", "client"], keep="last")


def handovers(log: RadioLog) -> pd.DataFrame:
    """The handovers in the log of a radio.

    Returns:
        One row per handover. Columns: client, start_s, end_s (NaN: it is not complete), from_cell,
        to_cell, and interruption_ms: the longer time without a packet of both directions (NaN:
        none arrived afterwards).
    """
    rows: list[dict[str, float]] = []
    last: dict[int, dict[str, float]] = {}
    of_handover = np.isin(log.records["kind"], (LEAVES_CELL, JOINS_CELL, INTERRUPTED))
    for record, time_s in zip(log.records[of_handover], log.time_s[of_handover], strict=True):
        client, kind = int(record["uav"]) + 1, record["kind"]
        if kind == LEAVES_CELL:
            last[client] = {
                "client": client,
                "start_s": float(time_s),
                "end_s": np.nan,
                "from_cell": int(record["blocks"]),
                "to_cell": int(record["mcs"]),
                "interruption_ms": np.nan,
            }
            rows.append(last[client])
        elif client in last and kind == JOINS_CELL:
            last[client]["end_s"] = float(time_s)
        elif client in last:
            now_ms = 1e3 * INTERRUPTION_S * int(record["bytes"])
            last[client]["interruption_ms"] = np.fmax(last[client]["interruption_ms"], now_ms)
    columns = ["client", "start_s", "end_s", "from_cell", "to_cell", "interruption_ms"]
    whole = dict.fromkeys(("client", "from_cell", "to_cell"), np.int64)
    return pd.DataFrame(rows, columns=columns).astype(whole)
