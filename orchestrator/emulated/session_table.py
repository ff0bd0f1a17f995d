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
        self, feed: SessionRates, clients: int, frame_bytes: int, path: Path, *, keep: bool = False
    ):
        self._feed = feed
        self._frame_bytes = frame_bytes
        self._writer = pq.ParquetWriter(path, SCHEMA)
        self._read: tuple[Counts, Counts] | None = None
        """The last reading: its time, and the bytes that had been sent by then; each [1, K, 2]."""
        self._last: tuple[int, tuple[Counts, Counts, Counts]] | None = None
        self._waiting: list[pd.DataFrame] = []
        zeros = np.zeros((clients, 2), np.int64)
        self.totals = Totals(zeros.astype(float), zeros.copy(), zeros.copy(), zeros.copy())
        self.lateness_s = array.array("d")
        """Delay after the boundary of each slot until its rates were set, in seconds."""
        self.busy_errors = array.array("d")
        """Relative errors of the carried bytes, of slots and directions with bytes waiting at both
        ends, and an offered load of `LEAST_FRAMES` or more."""
        self.exhausted = 0
        self.watcher: Watcher | None = None
        self.kept: list[pd.DataFrame] | None = [] if keep else None
        """All rows so far, if they are kept."""

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
        sent, queued = sent[kept], samples.queued_bytes[kept]
        dropped = samples.dropped_frames[kept]
        if self._last is not None:
            before, last = self._last
            assert before + 1 == slot[0]
            slot = np.concatenate([[before], slot])
            sent, queued, dropped = (
                np.concatenate([old, new])
                for old, new in zip(last, (sent, queued, dropped), strict=True)
            )
        self._last = int(slot[-1]), (sent[-1:], queued[-1:], dropped[-1:])
        if len(slot) > 1:
            self._add(int(slot[0]), np.diff(sent, axis=0), queued)
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

    def _add(self, first: int, carried: Counts, queued: Counts) -> None:
        """Add the slots from `first` on: carried bytes [n, K, 2], and queued bytes at n + 1
        moments."""
        slots, clients, _ = carried.shape
        rates = np.stack(self._feed.rates(first, first + slots), axis=-1).transpose(1, 0, 2)
        offered = rates * self._feed.slot_s / 8
        self.totals.offered_bytes += offered.sum(axis=0)
        self.totals.carried_bytes += carried.sum(axis=0)
        self.totals.open_slots += (offered > 0).sum(axis=0)
        self.totals.slots += slots
        if self.watcher is not None:
            self.watcher(first, offered, carried, queued[1:])
        many = offered >= LEAST_FRAMES * self._frame_bytes
        busy = (queued[:-1] > 0) & (queued[1:] > 0) & many
        if self._feed.shared:
            # All downlinks share a cell: together they should use all of its airtime.
            used = np.divide(carried, offered, out=np.zeros(offered.shape), where=offered > 0)
            together = busy[:, :, 1].any(axis=1)
            self.busy_errors.extend((used[:, :, 1].sum(axis=1)[together] - 1).tolist())
            busy[:, :, 1] = False
        self.busy_errors.extend((carried[busy] / offered[busy] - 1).tolist())
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

    def _write(self) -> None:
        table = pd.concat(self._waiting)
        self._writer.write_table(pa.Table.from_pandas(table, SCHEMA, preserve_index=False))
        self._waiting.clear()

    def close(self) -> None:
        """Complete the file."""
        if self._waiting:
            self._write()
        self._writer.close()
