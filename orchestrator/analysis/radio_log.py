# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The log of a radio process: the grants of its scheduler, and the times at which data waited for
them.

With `emulation.air: ns3`, packets of the programs pass through ns-3's LTE or NR. `read_log` reads
the file that its process writes, `RadioLog` answers questions about a round, and `grants` makes a
table of it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from orchestrator.engine.access import LinkRates
from orchestrator.engine.arrays import Array
from orchestrator.engine.lte import LTE_TIMES, PACKET_BYTES, RLC_BYTES, GrantTimes
from orchestrator.scenario.schema import MOST_BLOCKS
from testbed.core.errors import InputError
from testbed.core.timeline import Round

FILE_RECORD = np.dtype(
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
"""A record in the file, 16 bytes: as `RECORD`, but `blocks` has the low 8 bits of its number. Bit 0
of `direction` is the direction, and the bits above are the high ones of `blocks`."""
_FIELDS: dict[str, Any] = {name: FILE_RECORD[name] for name in FILE_RECORD.names or ()}
RECORD = np.dtype(list((_FIELDS | {"blocks": "<u2"}).items()))
"""A record of the log. `time_ns` is a time of the nodes' monotonic clock. `bytes`, `blocks` and
`mcs` are the size of a transport block, its number of resource blocks, and its modulation and
coding scheme. `uav` counts from 0; `direction` is 0 for the uplink and 1 for the downlink."""
NEW, AGAIN, LOST, FILLED, EMPTIED = range(5)
LEAVES_CELL, JOINS_CELL, INTERRUPTED, SERVED, SENT, ASKED = range(5, 11)
"""Kinds of records: a transport block is granted for new data, or for a retransmission; a block was
lost; the sending end's queue is no longer empty, or it became empty; a handover begins (`blocks`:
from this cell, `mcs`: to this one), or is complete; the first packet after it has arrived (`bytes`:
the time since the last packet before it, in units of 0.1 ms); a slot ends (`blocks`: the serving
cell, `bytes`: the mean SINR of the downlink, see `SINR_OFFSET_DB`); new data leave the sending end
(`bytes`: what they fill of their transport block); a scheduling request and the grant for it let
data wait that came into an empty queue (`bytes`: the number of TTIs until now). A grant's time is
that of the scheduler's decision, and with NR that at which its block has been received."""
SINR_OFFSET_DB, SINR_STEPS, NO_SINR = 300, 100, 65535
"""A signal-to-interference-plus-noise ratio is noted as (ratio in dB + 300) * 100; 65535: there was
no data to measure it."""
INTERRUPTION_S = 1e-4
"""Unit of an interruption."""
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
        file.seek(first * FILE_RECORD.itemsize)
        content = file.read()
    if len(content) % FILE_RECORD.itemsize:
        raise InputError(
            f"{path}: its {len(content)} bytes are no whole number of records of "
            f"{FILE_RECORD.itemsize} bytes"
        )
    written = np.frombuffer(content, FILE_RECORD)
    records: Records = written.astype(RECORD)
    records["blocks"] += (written["direction"].astype(np.uint16) >> 1) << 8
    records["direction"] &= 1
    for name, most in (("kind", ASKED), ("blocks", MOST_BLOCKS), ("uav", uavs - 1)):
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
    handover_s: float = 0.0
    """Time without a packet around a change of the cell, with or without data in the queue."""
    request_s: float = 0.0
    """Part of the waiting that scheduling requests took, which `waiting_s` does not contain."""
    outage_s: float = 0.0
    """Time from the beginning of an outage of either direction until data are sent after it."""


class Break(NamedTuple):
    """A time in which a link is interrupted; s."""

    start_s: float
    over_s: float
    """When its cause is over: transfers that begin later do not wait for it."""
    end_s: float
    cause: Literal["request", "handover", "outage"]


class LinkLog:
    """One direction of one UAV's link."""

    def __init__(
        self,
        records: Records,
        time_s: Array,
        direction: int,
        packet_bytes: float,
        handovers: Sequence[Break] = (),
        out_s: Sequence[tuple[float, float]] = (),
        times: GrantTimes = LTE_TIMES,
    ):
        """Make the link's log.

        Args:
            records: The link's records, in order of time.
            time_s: Times of the records in emulated seconds.
            direction: 0 for the uplink, 1 for the downlink.
            packet_bytes: Size of most IP packets.
            handovers: The UAV's handovers.
            out_s: Start and end of each of its outages, of either direction.
            times: Times of the scheduler's grants.
        """
        tti_s = self._tti_s = times.tti_s
        self._delivery_s = (1 + times.delivery[direction] - times.taken[direction]) * tti_s
        in_queue = np.isin(records["kind"], (FILLED, EMPTIED))
        self._queue_s, is_filled = time_s[in_queue], records["kind"][in_queue] == FILLED
        # Before its first record, the state is the opposite of the one that it changes to.
        initially = not is_filled[0] if len(is_filled) else True
        self._is_filled = np.append(initially, is_filled)
        taken_s = time_s + (times.taken[direction] - times.noted[direction]) * tti_s
        self._again_s = taken_s[records["kind"] == AGAIN]
        asked = records["kind"] == ASKED
        requests = [
            Break(now_s - tti_s * ttis, now_s, now_s, "request")
            for now_s, ttis in zip(time_s[asked], records["bytes"][asked].tolist(), strict=True)
        ]
        # Not all that is granted is sent: a UAV may not hear of it, or have nothing left.
        is_sent = records["kind"] == SENT
        self._new_s = time_s[is_sent]
        data_bytes = np.maximum(records["bytes"][is_sent].astype(float) - RLC_BYTES, 0.0)
        data_bytes *= packet_bytes / (packet_bytes + PACKET_BYTES)
        self._sent_bytes = np.concatenate([[0.0], data_bytes.cumsum()])
        self._breaks = sorted([*handovers, *map(self._outage, out_s), *requests])

    def _outage(self, out_s: tuple[float, float]) -> Break:
        """An outage, until data are sent after it."""
        start_s, over_s = out_s
        after = int(np.searchsorted(self._new_s, over_s))
        end_s = float(self._new_s[after]) if after < len(self._new_s) else math.inf
        if after:  # Data may still be sent while only acknowledgements are stopped.
            start_s = max(start_s, float(self._new_s[after - 1]) + self._tti_s)
        return Break(start_s, over_s, end_s, "outage")

    def sent_bytes(self, start_s: float, end_s: float) -> float:
        """Bytes of IP packets that were sent for the first time from `start_s` on and may have
        arrived until `end_s`, in whole TTIs."""
        times_s = start_s, end_s - self._delivery_s + self._tti_s / 2
        since, until = np.searchsorted(self._new_s, times_s)
        return float(self._sent_bytes[max(since, until)] - self._sent_bytes[since])

    def due_s(self, start_s: float, size_bytes: float) -> float:
        """When a transfer's last packet is due, given what was sent since its start.

        It is delivered with the transport block with which the bytes sent since the start reach the
        transfer's size; infinity if they never do.
        """
        since = int(np.searchsorted(self._new_s, start_s))
        wanted = self._sent_bytes[since] + size_bytes * (1 - 1e-12)
        block = max(since, int(np.searchsorted(self._sent_bytes, wanted)) - 1)
        return float(self._new_s[block] + self._delivery_s) if block < len(self._new_s) else np.inf

    def activity(self, start_s: float, end_s: float) -> Activity:
        """Activity of the link in a period."""
        waiting_s, harq_s, served_s = self._between(start_s, end_s)
        idle_s = end_s - start_s - waiting_s - harq_s - served_s
        broken_s = dict.fromkeys(("handover", "request", "outage"), 0.0)
        reached_s = start_s
        for each in self._breaks:
            since_s, until_s = max(each.start_s, reached_s), min(each.end_s, end_s)
            if each.over_s <= start_s or until_s <= since_s:
                continue
            w_s, h_s, s_s = self._between(since_s, until_s)
            waiting_s -= w_s
            if each.cause == "request":  # Other data may be served meanwhile.
                broken_s["request"] += w_s
                continue
            broken_s[each.cause] += until_s - since_s
            harq_s, served_s = harq_s - h_s, served_s - s_s
            idle_s -= until_s - since_s - w_s - h_s - s_s
            reached_s = until_s
        return Activity(waiting_s, harq_s, served_s, idle_s, *broken_s.values())

    def _between(self, start_s: float, end_s: float) -> list[float]:
        """Seconds of waiting, HARQ and serving in a period."""
        edges_s, total_s = self._totals
        if not len(edges_s):
            return [0.0, 0.0, 0.0]
        return [float(np.diff(np.interp((start_s, end_s), edges_s, each))[0]) for each in total_s]

    @cached_property
    def _totals(self) -> tuple[Array, Array]:
        """Edges between activities, and the seconds of each activity before each edge, [3, E]."""
        blocks_s = np.concatenate([self._new_s, self._again_s])
        edges_s = np.unique(np.concatenate([blocks_s, blocks_s + self._tti_s, self._queue_s]))
        middle_s = (edges_s[1:] + edges_s[:-1]) / 2

        def last(times_s: Array) -> Array:
            at: Array = np.append(times_s, -np.inf)[np.searchsorted(times_s, middle_s) - 1]
            return at

        def following(times_s: Array) -> Array:
            at: Array = np.append(times_s, np.inf)[np.searchsorted(times_s, middle_s)]
            return at

        sent_s, repeated_s, filled_s = last(self._new_s), last(self._again_s), last(self._queue_s)
        sends, repeats = (middle_s < last_s + self._tti_s for last_s in (sent_s, repeated_s))
        has_data = self._is_filled[np.searchsorted(self._queue_s, middle_s)]
        again_s = following(self._again_s)
        is_pending = ~has_data & (again_s < following(self._new_s))
        is_pending &= again_s - np.maximum(sent_s, repeated_s) <= HARQ_TTIS * self._tti_s
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
    out_s: Mapping[tuple[int, int], Sequence[tuple[float, float]]] = field(default_factory=dict)
    """By direction and client, start and end of each outage, in s."""
    times: GrantTimes = LTE_TIMES
    """Times of the scheduler's grants."""

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
            out_s = [each for way in (0, 1) for each in self.out_s.get((way, client), ())]
            made = LinkLog(
                *(self.records[own], self.time_s[own], direction, self.packet_bytes),
                *(self._handovers(direction, client), out_s, self.times),
            )
            self._links[direction, client] = made
        return self._links[direction, client]

    def out_between_s(self, direction: int, client: int, start_s: float, end_s: float) -> float:
        """Seconds of a period in which a direction of a client is out."""
        of_link = self.out_s.get((direction, client), ())
        return sum(max(0.0, min(until, end_s) - max(since, start_s)) for since, until in of_link)

    def _handovers(self, direction: int, client: int) -> list[Break]:
        """The handovers of a client, from the last packet of a direction before to the first one
        after."""
        made: list[Break] = []
        kinds = (LEAVES_CELL, JOINS_CELL, INTERRUPTED)
        own = (self.records["uav"] == client - 1) & np.isin(self.records["kind"], kinds)
        for record, now_s in zip(self.records[own], self.time_s[own].tolist(), strict=True):
            kind = record["kind"]
            if kind == LEAVES_CELL:
                made.append(Break(now_s, math.inf, math.inf, "handover"))
            elif kind == JOINS_CELL and made:
                made[-1] = made[-1]._replace(over_s=now_s, end_s=now_s)
            elif made and record["direction"] == direction:
                since_s = now_s - INTERRUPTION_S * int(record["bytes"])
                start_s = min(made[-1].start_s, since_s)
                made[-1] = made[-1]._replace(start_s=start_s, end_s=now_s)
        return made


def outages(
    rates: LinkRates, first: int, slot_s: float
) -> dict[tuple[int, int], list[tuple[float, float]]]:
    """When links have no rate; see `RadioLog.out_s`.

    Args:
        rates: Rates of the links, the first column being those of slot `first`.
        first: The number of that slot.
        slot_s: Length of a slot, s.
    """
    found = {}
    for direction, bps in enumerate((rates.uplink, rates.gradient)):
        for client, row in enumerate(bps, 1):
            edges = np.flatnonzero(np.diff(row <= 0, prepend=False, append=False))
            if len(edges):
                pairs = ((edges + first) * slot_s).reshape(-1, 2)
                found[direction, client] = [(since, until) for since, until in pairs.tolist()]
    return found


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
        in which the queue had data, and the first transport block for them had not been sent). With
        NR, a TTI is an NR slot of either direction.
    """
    slots_of_round = slots_in(round_, slot_s)
    first, every = slots_of_round.start, np.array(slots_of_round)
    slot_of = np.floor(log.time_s / slot_s + 1e-9).astype(np.int64) - first
    of_slot = log.times.tti_s / slot_s
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
                    "resource_blocks": total(is_granted, records["blocks"]) * of_slot,
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
