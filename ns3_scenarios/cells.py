# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Several base stations on the same carriers: the serving cell of each UAV, and the interference.

A UAV begins in the cell that it receives with most power in slot 0. It changes its cell by event A3
of TS 36.331: another cell is received with more power, by at least a hysteresis and for at least
the time to trigger. The event is evaluated for filtered measurements, as in ns-3. While data are
exchanged with the new cell, the UAV sends and receives nothing.

`Served.gain` has what is left while all UAVs send in both directions: every cell that serves a UAV
sends in all resource blocks, and so do the UAVs of each cell together. `Served.sites` has the
signals of all cells, from which the interference of fewer links follows. Interference is the mean
over the resource blocks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ns3_scenarios.trace import Array, ChannelTrace, Derived, Located, Served, Sites, SlotTrace

MEASURED_S = 0.2
"""Time over which a UAV averages a measurement, as in ns-3 (TS 36.133, section 8.1.2.2)."""
FILTERED = 0.5
"""Weight of a new measurement in the filter of layer 3, 2^(-k/4) with the default k = 4 (TS 36.331,
section 5.5.3.2)."""
LEAST_DB = -400.0
"""Power in an outage in dB, for means."""
HANDOVER_S = 0.03
"""Time without packets in a handover itself; see docs/radio-reference.md."""


@dataclass(frozen=True)
class Cells:
    """The base stations of a network, and its handovers."""

    power_w: Sequence[float]
    """Transmit power of each base station over its whole band, shape [C + 1], the first one that of
    the cell with number 0."""
    uav_power_w: Sequence[float]
    """Transmit power of each UAV, shape [K]."""
    noise_w: tuple[float, float]
    """Noise of the band at the receivers of uplink and downlink, divided by antenna gains."""
    hysteresis_db: float | None
    """Hysteresis of event A3; None: UAVs stay in their first cell."""
    time_to_trigger_s: float
    load: Sequence[float]
    """Share of its downlink in which each cell sends for others than the UAVs, shape [C + 1]."""

    def handovers(self, received_db: Array, slot_s: float) -> list[tuple[float, int, int]]:
        """The time in s, the UAV and the new cell of each handover, in order.

        Args:
            received_db: Power that each UAV receives from each cell, shape [C + 1, K, S], in dB
                relative to any power.
            slot_s: Length of a slot.
        """
        found: list[tuple[float, int, int]] = []
        if self.hysteresis_db is None:
            return found
        cells, uavs, slots = received_db.shape
        serving, each = received_db[:, :, 0].argmax(axis=0), np.arange(uavs)
        # -inf is an outage, of which there is no mean.
        total = np.cumsum(np.clip(received_db, LEAST_DB, None), axis=2) * slot_s
        total = np.concatenate([np.zeros((cells, uavs, 1)), total], axis=2)
        filtered = received_db[:, :, 0].clip(LEAST_DB)
        since_s = np.full((cells, uavs), np.inf)

        def change(until_s: float) -> None:
            due_s = since_s + self.time_to_trigger_s
            for k in np.flatnonzero((due_s < until_s).any(axis=0)).tolist():
                best = int(np.where(due_s[:, k] < until_s, filtered[:, k], -np.inf).argmax())
                found.append((float(due_s[best, k]), k, best))
                serving[k], since_s[:, k] = best, np.inf

        for now in range(1, int(slots * slot_s / MEASURED_S + 1e-9) + 1):
            change(now * MEASURED_S - 1e-9)
            ends = np.array([now - 1, now]) * MEASURED_S / slot_s
            low = np.minimum(np.floor(ends + 1e-9).astype(int), slots - 1)
            carried = total[..., low] + (ends - low) * (total[..., low + 1] - total[..., low])
            measured = np.diff(carried, axis=2)[..., 0] / MEASURED_S
            filtered = (1 - FILTERED) * filtered + FILTERED * measured
            above = filtered - filtered[serving, each]
            since_s[above < -self.hysteresis_db] = np.inf
            since_s[(above > self.hysteresis_db) & np.isinf(since_s)] = now * MEASURED_S
        change(slots * slot_s - 1e-9)
        return sorted(found)

    def serving(self, received_db: Array, slot_s: float) -> npt.NDArray[np.int64]:
        """The number of the cell that serves each UAV, shape [K, S]; see `handovers`."""
        made = np.tile(received_db[:, :, 0].argmax(axis=0)[:, None], received_db.shape[2])
        for at_s, k, cell in self.handovers(received_db, slot_s):
            made[k, round(at_s / slot_s) :] = cell
        return made

    def served(self, trace: ChannelTrace) -> ChannelTrace:
        """The trace with the serving cells and their gains.

        Args:
            trace: A trace with gains to all base stations.
        """
        up, down = trace.of_all_cells
        received_w = np.array(self.power_w)[:, None, None] * down
        with np.errstate(divide="ignore"):
            received_db = 10 * np.log10(received_w)
        cells = self.serving(received_db, trace.slot_s)
        kept = np.ones(cells.shape)
        edges_s = np.arange(trace.slots + 1) * trace.slot_s
        for at_s, k, _ in self.handovers(received_db, trace.slot_s):
            lost_s = np.diff(edges_s.clip(at_s, at_s + HANDOVER_S))
            kept[k] = (kept[k] - lost_s / trace.slot_s).clip(0)
        serves = np.arange(len(down))[:, None, None] == cells
        is_silent = ~serves.any(axis=1, keepdims=True)
        others_w = np.where(serves | is_silent, 0.0, received_w).sum(axis=0)
        # At each base station, from all UAVs that it does not serve.
        sent_w = np.array(self.uav_power_w)[:, None] * up
        strange_w = np.where(serves, 0.0, sent_w).sum(axis=1)[cells, np.arange(trace.slots)]
        power = np.array(self.power_w)[cells] / self.power_w[0]
        gain = np.stack(
            [
                _of(up, cells) * _left(self.noise_w[0], strange_w),
                _of(down, cells) * power * _left(self.noise_w[1], others_w),
            ]
        )
        strength = np.stack([sent_w / self.noise_w[0], received_w / self.noise_w[1]])
        sites = Sites(strength, np.array(self.load), kept)
        return replace(trace, served=Served(gain, cells, sites))


def with_cells(trace: ChannelTrace, further: Sequence[SlotTrace]) -> ChannelTrace:
    """The trace with the gains of those to further base stations."""
    gains = [each for each in further if isinstance(each, ChannelTrace)]
    up = np.stack([each.gain for each in gains])
    differ = any(each.gain_down is not None for each in gains)
    down = [each.gain if each.gain_down is None else each.gain_down for each in gains]
    return replace(trace, gain_cells=up, gain_cells_down=np.stack(down) if differ else None)


def _of(gains: Array, cells: npt.NDArray[np.int64]) -> Array:
    """The gains of these cells, shape [K, S]."""
    chosen: Array = np.take_along_axis(gains, cells[None], axis=0)[0]
    return chosen


def _left(noise_w: float, interference_w: Array) -> Array:
    """Factor by which interference reduces a signal-to-noise ratio."""
    return np.asarray(noise_w / (noise_w + interference_w))


class Followed:
    """The flight of another source's UAVs, for `Ns3Channel`."""

    def __init__(self, source: Located):
        self._source = source

    def positions(self, first: int, slots: int, slot_s: float) -> Array:
        """The positions of some slots, from `first` on."""
        position_m = self._source.trace(first + slots).position_m
        assert position_m is not None
        return np.ascontiguousarray(position_m[:, first : first + slots])


class CellsChannel(Derived):
    """A `ChannelSource` with gains to several base stations.

    Args:
        source: The channel of the first base station.
        further: Channels of the other cells, for the same flight.
        cells: The base stations.
        check: Refuses positions at which the channel of a further base station, by its index, does
            not hold.
    """

    def __init__(
        self,
        source: Located,
        further: Sequence[Located],
        cells: Cells,
        check: Callable[[int, Array], None],
    ):
        super().__init__(source)
        self._further = further
        self._cells, self._check = cells, check
        self._given = 0
        """Number of slots that `following` has returned."""
        self._made: ChannelTrace | None = None

    def trace(self, slots: int) -> ChannelTrace:
        """The trace from slot 0 with at least `slots` slots; earlier slots never change.

        Raises:
            ChannelError: ns-3 ended, a model failed, or the channel of a base station does not
                hold.
        """
        made = self._made
        if made is None or made.slots < slots:
            whole = self._source.trace(slots)
            assert whole.position_m is not None
            made_there = []
            for c, further in enumerate(self._further):
                self._check(c, whole.position_m)
                made_there.append(further.trace(whole.slots).first(whole.slots))
            self._made = made = self._cells.served(with_cells(whole, made_there))
        return made

    def following(self, slots: int) -> ChannelTrace:
        """The next slots; all slots are kept, because several channels follow one flight."""
        have, self._given = self._given, self._given + slots
        return self.trace(self._given).at(slice(have, self._given))

    def close(self) -> None:
        """End the processes of ns-3. Returned traces stay valid."""
        for each in self._further:
            each.close()
        super().close()
