# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The bytes that a session's links carried in each slot: `session.parquet`, written during the
session."""

import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.emulated.rate_feed import SessionRates
from testbed.network.injector import Samples
from testbed.network.shaping import Shape

DIRECTIONS = ("up", "down")
SCHEMA = pa.schema(
    [
        ("slot", pa.int64()),
        ("client", pa.int64()),
        ("direction", pa.string()),
        ("rate_bps", pa.float64()),
        ("offered_bytes", pa.float64()),
        ("carried_bytes", pa.int64()),
        ("queued_bytes", pa.int64()),
    ]
)
Counts = npt.NDArray[np.int64]
"""Bytes by slot, client and direction, shape [n, K, 2]."""
Watcher = Callable[[int, npt.NDArray[np.float64], Counts, Counts], object]
"""Called with slots as they are counted: the first slot, and the bytes that were offered, carried,
and queued at the end of each, [n, K, 2] each."""
ROWS_AT_ONCE = 20_000
"""Rows of a row group of the file, which are kept in memory until it is full."""
LEAST_FRAMES = 50
"""Smallest number of frames of a slot for which errors are computed: one frame is at most 2 % of
it."""
IDLE_NS = 10_000
"""Time in a slot for which a serial line may seem to have nothing to send because the clock and its
counters are not read at one moment."""


@dataclass
class Totals:
    """Totals of a whole session; arrays by client and direction, [K, 2]."""

    offered_bytes: npt.NDArray[np.float64]
    carried_bytes: npt.NDArray[np.int64]
    dropped_frames: npt.NDArray[np.int64]
    open_slots: npt.NDArray[np.int64]
    """Slots in which the link was not out."""
    slots: int = 0


class Recorder:
    """Turns counter readings into the table; only whole slots count, from slot 0 on."""

    def __init__(
        self, feed: SessionRates, clients: int, shape: Shape, path: Path, *, keep: bool = False
    ):
        self._feed = feed
        self._shape = shape
        self._shared = (0,) * feed.radio.is_shared + (1,) * feed.shared
        """The directions, uplink 0 and downlink 1, that links share."""
        self._writer = pq.ParquetWriter(path, SCHEMA)
        self._read: tuple[Counts, Counts] | None = None
        """The last reading: its time, and the bytes that had been sent by then; each [1, K, 2]."""
        self._last: tuple[int, tuple[Counts, ...]] | None = None
        self._waiting: list[pd.DataFrame] = []
        zeros = np.zeros((clients, 2), np.int64)
        self.totals = Totals(zeros.astype(float), zeros.copy(), zeros.copy(), zeros.copy())
        self.lateness_s = array.array("d")
        """Delay after the boundary of each slot until its rates were set, in seconds."""
        self.busy_errors = array.array("d")
        """Relative errors of the carried bytes, of slots and directions that surely had a backlog
        all the time (`_busy`)."""
        self.exhausted = 0
        self.watcher: Watcher | None = None
        self.kept: list[pd.DataFrame] | None = [] if keep else None
        """All rows of the table so far, if they are kept."""

    def take(self, samples: Samples, end: int | None) -> None:
        """Add the counters since the last call, for slots before `end`."""
        sent = self._sent_at_boundaries(samples)
        kept = samples.slot >= 0
        if end is None:
            self.exhausted = samples.exhausted
        else:
            kept &= samples.slot <= end
        if not kept.any():
            return
        late_ns = (samples.done_ns - samples.boundary_ns)[kept].clip(min=0)
        self.lateness_s.extend((late_ns * 1e-9).tolist())
        slot = samples.slot[kept]
        counts: tuple[Counts, ...] = (
            sent[kept],
            samples.queued_bytes[kept],
            samples.dropped_frames[kept],
            samples.slack[kept],
        )
        if self._last is not None:
            before, last = self._last
            assert before + 1 == slot[0]
            slot = np.concatenate([[before], slot])
            counts = tuple(np.concatenate(both) for both in zip(last, counts, strict=True))
        self._last = int(slot[-1]), tuple(count[-1:] for count in counts)
        if len(slot) > 1:
            sent, queued, dropped, slack = counts
            self._add(int(slot[0]), np.diff(sent, axis=0), queued, np.diff(slack, axis=0))
            self.totals.dropped_frames += dropped[-1] - dropped[0]

    def _sent_at_boundaries(self, samples: Samples) -> Counts:
        """Bytes that had been sent when slots began.

        Counters are read some tenths of a millisecond after the boundary, in which a busy link
        continues. If a link has nothing left to send, all its bytes count: after the last slot, the
        rest would not be counted otherwise.
        """
        counted_ns, sent = samples.counted_ns, samples.sent_bytes
        if len(sent) == 0:
            return sent
        before = (counted_ns[:1], sent[:1]) if self._read is None else self._read
        self._read = counted_ns[-1:], sent[-1:]
        counted_ns, sent = (
            np.concatenate([old, new]) for old, new in zip(before, (counted_ns, sent), strict=True)
        )
        since_ns = samples.boundary_ns[:, None, None] - counted_ns[:-1]
        part = (since_ns / np.diff(counted_ns, axis=0).clip(1)).clip(0, 1)
        whole: Counts = sent[:-1] + np.rint(part * np.diff(sent, axis=0)).astype(np.int64)
        return np.where(samples.queued_bytes > 0, whole, samples.sent_bytes)

    def _add(self, first: int, carried: Counts, queued: Counts, slack: Counts) -> None:
        """Add the slots from `first` on: carried bytes [n, K, 2], queued bytes at n + 1 moments,
        and each slot's part of `Samples.slack`."""
        slots, clients, _ = carried.shape
        rates = np.stack(self._feed.rates(first, first + slots), axis=-1).transpose(1, 0, 2)
        offered = rates * self._feed.slot_s / 8
        self.totals.offered_bytes += offered.sum(axis=0)
        self.totals.carried_bytes += carried.sum(axis=0)
        self.totals.open_slots += (offered > 0).sum(axis=0)
        self.totals.slots += slots
        if self.watcher is not None:
            self.watcher(first, offered, carried, queued[1:])
        used = self._feed.used(first, carried.astype(float))
        waiting, busy = self._busy(rates, offered, queued, slack)
        judged = busy | (waiting & (used > 1))  # A sender never causes more than the rate.
        for way in self._shared:
            # All links of the direction share the cell: together they should use all of it.
            of_cell = used[:, :, way].sum(axis=1)
            together = busy[:, :, way].any(axis=1)
            together |= waiting[:, :, way].any(axis=1) & (of_cell > 1)
            self.busy_errors.extend((of_cell[together] - 1).tolist())
            judged[:, :, way] = False
        self.busy_errors.extend((used[judged] - 1).tolist())
        rows = pd.DataFrame(
            {
                "slot": np.repeat(np.arange(first, first + slots), 2 * clients),
                "client": np.tile(np.repeat(np.arange(1, clients + 1), 2), slots),
                "direction": np.tile(DIRECTIONS, slots * clients),
                "rate_bps": rates.ravel(),
                "offered_bytes": offered.ravel(),
                "carried_bytes": carried.ravel(),
                "queued_bytes": queued[1:].ravel(),
            }
        )
        self._waiting.append(rows)
        if self.kept is not None:
            self.kept.append(rows)
        if sum(map(len, self._waiting)) >= ROWS_AT_ONCE:
            self._write()

    def _busy(
        self,
        rates: npt.NDArray[np.float64],
        offered: npt.NDArray[np.float64],
        queued: Counts,
        slack: Counts,
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Whether each slot and direction [n, K, 2] had bytes waiting at both boundaries, and
        whether it surely had a backlog all the time; neither, below `LEAST_FRAMES`.

        A sender that is limited by its window or by its own pace may leave a link idle between two
        boundaries with a backlog. A link loses nothing by short pauses, because its credit
        compensates for them. After a longer one it sends its whole credit at once, without waiting
        for the shaper, before a backlog can form: fewer such packets prove that there was no such
        pause. A serial line counts the time in which it had nothing to send.
        """
        many = offered >= LEAST_FRAMES * self._shape.frame_bytes
        waiting = (queued[:-1] > 0) & (queued[1:] > 0) & many
        busy = np.zeros_like(waiting)
        if self._feed.air is not None:  # ns-3 is not held to the rates of the model.
            return busy, busy
        if self._shape.queue != "fq_codel":  # It alone drops frames that are in the queue.
            busy = many & (queued[:-1] >= offered)
        if self._shape.serial:
            return waiting, busy | (many & (slack <= IDLE_NS))
        highest = np.maximum(self._feed.highest_given_bps, rates.max(axis=0))
        for place in zip(*waiting.nonzero(), strict=True):
            _, client, way = place
            # A link that shares the cell has at least its share of the rate.
            sharing = len(highest) if way in self._shared else 1
            rate_bps = rates[place] / self._feed.dilation / sharing
            packet_frames = self._shape.packet_frames(highest[client, way])
            shape = self._shape.of(int(client) + 1)
            busy[place] |= slack[place] < shape.credit_packets(rate_bps, packet_frames)
        return waiting, busy

    def _write(self) -> None:
        table = pd.concat(self._waiting)
        self._writer.write_table(pa.Table.from_pandas(table, SCHEMA, preserve_index=False))
        self._waiting.clear()

    def close(self) -> None:
        """Complete the file."""
        if self._waiting:
            self._write()
        self._writer.close()
