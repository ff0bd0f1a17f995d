# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a session's links carried, slot by slot: `session.parquet`, written as the session goes."""

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
"""Shape [n, K, 2]."""
Watcher = Callable[[int, npt.NDArray[np.float64], Counts, Counts], object]
"""Told of slots as they are counted: the first, and what was offered, carried, and queued at their
ends, in bytes, each [n, K, 2]."""
ROWS_AT_ONCE = 20_000
"""Rows of a row group of the file; as many are kept in memory."""
LEAST_FRAMES = 50
"""A slot that carries fewer is off by a frame more or less: by 2 % and more."""


@dataclass
class Totals:
    """What is known of a whole session; arrays by client and direction, [K, 2]."""

    offered_bytes: npt.NDArray[np.float64]
    carried_bytes: npt.NDArray[np.int64]
    dropped_frames: npt.NDArray[np.int64]
    slots: int = 0


class Recorder:
    """Turns samples into the table; whole slots alone count, from slot 0 on."""

    def __init__(
        self, feed: SessionRates, clients: int, frame_bytes: int, path: Path, *, keep: bool = False
    ):
        self._feed = feed
        self._frame_bytes = frame_bytes
        self._writer = pq.ParquetWriter(path, SCHEMA)
        self._read: tuple[Counts, Counts] | None = None
        """The last reading: when, and what had been sent by then; each [1, K, 2]."""
        self._last: tuple[int, tuple[Counts, Counts, Counts]] | None = None
        self._waiting: list[pd.DataFrame] = []
        zeros = np.zeros((clients, 2), np.int64)
        self.totals = Totals(zeros.astype(float), zeros.copy(), zeros.copy())
        self.lateness_s = array.array("d")
        """Of each slot: how long after its boundary its rates were set."""
        self.busy_errors = array.array("d")
        """Of each slot and direction that had bytes waiting at its start and at its end, and was to
        carry `LEAST_FRAMES` or more: what it carried of that, less 1."""
        self.exhausted = 0
        self.watcher: Watcher | None = None
        self.kept: list[pd.DataFrame] | None = [] if keep else None
        """All rows until now, where these are kept."""

    def take(self, samples: Samples, end: int | None) -> None:
        """Note what was counted since the last time, in slots before `end`."""
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
        """What had been sent when slots began: counters are read some tenths of a millisecond
        later, in which a busy link goes on. Of one that has nothing left to send, all of it counts:
        after the last slot, nobody would count the rest."""
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
        """The slots from `first` on: carried bytes [n, K, 2], queued ones at n + 1 moments."""
        slots, clients, _ = carried.shape
        rates = np.stack(self._feed.rates(first, first + slots), axis=-1).transpose(1, 0, 2)
        offered = rates * self._feed.slot_s / 8
        self.totals.offered_bytes += offered.sum(axis=0)
        self.totals.carried_bytes += carried.sum(axis=0)
        self.totals.slots += slots
        if self.watcher is not None:
            self.watcher(first, offered, carried, queued[1:])
        many = offered >= LEAST_FRAMES * self._frame_bytes
        busy = (queued[:-1] > 0) & (queued[1:] > 0) & many
        if self._feed.shared:
            # One cell for all downlinks: together they are to fill its time.
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
        """Finish the file."""
        if self._waiting:
            self._write()
        self._writer.close()
