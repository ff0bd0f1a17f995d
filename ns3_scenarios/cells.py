# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Several base stations on the same carriers: the serving cell of each UAV, and the interference.

A UAV begins in the cell that it receives with most power in slot 0. It changes its cell by event A3
of TS 36.331: another cell is received with more power, by at least a hysteresis and for at least
the time to trigger. Every cell that serves a UAV sends all the time in all resource blocks (full
load), and so do the UAVs of each cell together; interference is the mean over the resource blocks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ns3_scenarios.trace import Array, ChannelTrace, Derived, Located, Served, SlotTrace


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

    def serving(self, received_db: Array, slot_s: float) -> npt.NDArray[np.int64]:
        """The number of the cell that serves each UAV, shape [K, S].

        Args:
            received_db: Power that each UAV receives from each cell, shape [C + 1, K, S], in dB
                relative to any power.
            slot_s: Length of a slot.
        """
        cells, uavs, slots = received_db.shape
        serving: npt.NDArray[np.int64] = received_db[:, :, 0].argmax(axis=0)
        made = np.tile(serving[:, None], slots)
        if self.hysteresis_db is None:
            return made
        each = np.arange(uavs)
        slots_to_trigger = np.ceil(self.time_to_trigger_s / slot_s - 1e-9)
        stronger = np.zeros((cells, uavs), np.int64)  # for how many slots in a row
        for s in range(slots):
            now_db = received_db[:, :, s]
            stronger = (stronger + 1) * (now_db > now_db[serving, each] + self.hysteresis_db)
            found = stronger > slots_to_trigger
            changes = found.any(axis=0)
            best = np.where(found, now_db, -np.inf).argmax(axis=0)
            serving = np.where(changes, best, serving)
            stronger[:, changes] = 0
            made[:, s] = serving
        return made

    def served(self, trace: ChannelTrace) -> ChannelTrace:
        """The trace with the serving cells and their gains.

        Args:
            trace: A trace with gains to all base stations.
        """
        up, down = trace.of_all_cells
        received_w = np.array(self.power_w)[:, None, None] * down
        with np.errstate(divide="ignore"):
            cells = self.serving(10 * np.log10(received_w), trace.slot_s)
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
        return replace(trace, served=Served(gain, cells))


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
