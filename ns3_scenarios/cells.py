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


Handover = tuple[float, int, int]
"""The time of a handover in s, the UAV and its new cell."""


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

    def handovers(self, received_db: Array, slot_s: float) -> list[Handover]:
        """The time in s, the UAV and the new cell of each handover, in order.

        Args:
            received_db: Power that each UAV receives from each cell, shape [C + 1, K, S], in dB
                relative to any power.
            slot_s: Length of a slot.
        """
        return Service(self, slot_s).follow(received_db)[1]

    def serving(self, received_db: Array, slot_s: float) -> npt.NDArray[np.int64]:
        """The number of the cell that serves each UAV, shape [K, S]; see `handovers`."""
        return Service(self, slot_s).follow(received_db)[0]

    def served(self, trace: ChannelTrace) -> ChannelTrace:
        """The trace with the serving cells and their gains.

        Args:
            trace: A trace with gains to all base stations.
        """
        return Service(self, trace.slot_s).served(trace)


class Service:
    """The cells that serve UAVs, from one piece of a trace to the next.

    Args:
        cells: The base stations.
        slot_s: Length of a slot.
    """

    def __init__(self, cells: Cells, slot_s: float):
        self._cells, self._slot_s = cells, slot_s
        self._slots = self._measured = 0
        """Number of slots, and of measurements, until now."""
        self._interrupted: list[Handover] = []
        """Handovers that go on in the next slot."""

    def _start(self, received_db: Array) -> None:
        """Begin with the power that is received in slot 0, shape [C + 1, K]."""
        self._serving = received_db.argmax(axis=0)
        self._filtered = received_db.clip(LEAST_DB)
        self._since_s = np.full(received_db.shape, np.inf)
        self._sums: Array = np.zeros((*received_db.shape, 1))
        """Sums of the power in dB, from slot 0 to the start of a slot, from slot `_sums_from` on,
        shape [C + 1, K, n]."""
        self._sums_from = 0

    def follow(self, received_db: Array) -> tuple[npt.NDArray[np.int64], list[Handover]]:
        """The cell that serves each UAV in the next slots, shape [K, n], and their handovers.

        Args:
            received_db: See `Cells.handovers`, for the next n slots.
        """
        first, slots = self._slots, received_db.shape[2]
        self._slots = end = first + slots
        if not first:
            self._start(received_db[:, :, 0])
        made = np.tile(self._serving[:, None], slots)
        found: list[Handover] = []
        if self._cells.hysteresis_db is not None:
            # -inf is an outage, of which there is no mean.
            known = np.concatenate([self._sums[..., -1:], received_db.clip(LEAST_DB)], axis=2)
            sums = np.cumsum(known, axis=2)
            self._sums = np.concatenate([self._sums[..., :-1], sums], axis=2)
            for now in range(self._measured + 1, int(end * self._slot_s / MEASURED_S + 1e-9) + 1):
                self._change(now * MEASURED_S - 1e-9, found)
                self._measure(now)
            self._change(end * self._slot_s - 1e-9, found)
        found.sort()
        for at_s, k, cell in found:
            made[k, round(at_s / self._slot_s) - first :] = cell
        return made, found

    def _change(self, until_s: float, found: list[Handover]) -> None:
        """Change the cells of UAVs whose time to trigger ends before a time."""
        due_s = self._since_s + self._cells.time_to_trigger_s
        for k in np.flatnonzero((due_s < until_s).any(axis=0)).tolist():
            best = int(np.where(due_s[:, k] < until_s, self._filtered[:, k], -np.inf).argmax())
            found.append((float(due_s[best, k]), k, best))
            self._serving[k], self._since_s[:, k] = best, np.inf

    def _measure(self, now: int) -> None:
        """Take the measurement that ends at `now * MEASURED_S`."""
        hysteresis_db = self._cells.hysteresis_db
        assert hysteresis_db is not None
        ends = np.array([now - 1, now]) * MEASURED_S / self._slot_s
        whole = np.round(ends)
        ends = np.where(abs(ends - whole) < 1e-9, whole, ends)
        low = np.floor(ends).astype(int)
        at = low - self._sums_from
        after = np.minimum(at + 1, self._sums.shape[2] - 1)
        start, end = self._sums[..., at] * self._slot_s, self._sums[..., after] * self._slot_s
        carried = start + (ends - low) * (end - start)
        measured = np.diff(carried, axis=2)[..., 0] / MEASURED_S
        self._filtered = (1 - FILTERED) * self._filtered + FILTERED * measured
        above = self._filtered - self._filtered[self._serving, np.arange(len(self._serving))]
        self._since_s[above < -hysteresis_db] = np.inf
        self._since_s[(above > hysteresis_db) & np.isinf(self._since_s)] = now * MEASURED_S
        self._measured = now
        self._sums, self._sums_from = self._sums[..., at[1] :], int(low[1])

    def served(self, trace: ChannelTrace) -> ChannelTrace:
        """The next slots with the serving cells and their gains.

        Args:
            trace: These slots with gains to all base stations.
        """
        first, base = self._slots, self._cells
        up, down = trace.of_all_cells
        received_w = np.array(base.power_w)[:, None, None] * down
        with np.errstate(divide="ignore"):
            received_db = 10 * np.log10(received_w)
        cells, found = self.follow(received_db)
        kept = np.ones(cells.shape)
        edges_s = np.arange(first, self._slots + 1) * self._slot_s
        for at_s, k, _ in (found := [*self._interrupted, *found]):
            lost_s = np.diff(edges_s.clip(at_s, at_s + HANDOVER_S))
            kept[k] = (kept[k] - lost_s / self._slot_s).clip(0)
        self._interrupted = [change for change in found if change[0] + HANDOVER_S > edges_s[-1]]
        serves = np.arange(len(down))[:, None, None] == cells
        is_silent = ~serves.any(axis=1, keepdims=True)
        others_w = _sum(np.where(serves | is_silent, 0.0, received_w), axis=0)
        # At each base station, from all UAVs that it does not serve.
        sent_w = np.array(base.uav_power_w)[:, None] * up
        strange_w = _sum(np.where(serves, 0.0, sent_w), axis=1)[cells, np.arange(trace.slots)]
        power = np.array(base.power_w)[cells] / base.power_w[0]
        gain = np.stack(
            [
                _of(up, cells) * _left(base.noise_w[0], strange_w),
                _of(down, cells) * power * _left(base.noise_w[1], others_w),
            ]
        )
        strength = np.stack([sent_w / base.noise_w[0], received_w / base.noise_w[1]])
        sites = Sites(strength, np.array(base.load), kept)
        return replace(trace, served=Served(gain, cells, sites))


def _sum(values: Array, axis: int) -> Array:
    """The sum along an axis in the order of its values, for any number of slots."""
    return np.asarray(np.add.accumulate(values, axis=axis).take(-1, axis=axis))


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
    """The flight that another source has made, for channels of the same UAVs: for `Ns3Channel`, and
    as a source of positions.

    Args:
        uavs: Number of UAVs, K.
        slot_s: Length of a slot.
    """

    horizon = None
    """It is asked for slots that are flown."""

    def __init__(self, uavs: int, slot_s: float):
        self.uavs, self.slot_s = uavs, slot_s
        self._first, self._flown = 0, 0

    def fly(self, piece: ChannelTrace) -> None:
        """The next slots of the flight; they are all asked for before the slots after them."""
        self._first, self._flown = self._flown, self._flown + piece.slots
        self._piece = piece

    def following(self, slots: int) -> ChannelTrace:
        """The slots of the last call of `fly`, with the gains of the other source."""
        assert slots == self._piece.slots
        return self._piece

    def positions(self, first: int, slots: int, slot_s: float) -> Array:
        """The positions of some of these slots, from slot `first` on."""
        position_m, at = self._piece.position_m, first - self._first
        assert position_m is not None
        return np.ascontiguousarray(position_m[:, at : at + slots])

    def close(self) -> None:
        """Nothing: the flight is another source's."""


class CellsChannel(Derived):
    """A `ChannelSource` with gains to several base stations.

    Args:
        source: The channel of the first base station.
        further: Channels of the other cells, for UAVs on `flight`.
        flight: The flight of the source's UAVs.
        cells: The base stations.
        check: Refuses positions, from a slot on, at which the channel of a further base station, by
            its index, does not hold.
    """

    def __init__(
        self,
        source: Located,
        further: Sequence[Located],
        flight: Followed,
        cells: Cells,
        check: Callable[[int, Array, int], None],
    ):
        super().__init__(source)
        self._further, self._flight = further, flight
        self._check = check
        self._service = Service(cells, source.slot_s)
        self._slots = 0

    def following(self, slots: int) -> ChannelTrace:
        """The next slots, which the caller keeps; see `Located.following`.

        Raises:
            ChannelError: ns-3 ended, a model failed, or the channel of a base station does not
                hold.
        """
        piece = self._source.following(slots)
        assert piece.position_m is not None
        self._flight.fly(piece)
        made_there = []
        for c, further in enumerate(self._further):
            self._check(c, piece.position_m, self._slots)
            made_there.append(further.following(piece.slots))
        self._slots += piece.slots
        return self._service.served(with_cells(piece, made_there))

    def close(self) -> None:
        """End the processes of ns-3. Returned traces stay valid."""
        for each in self._further:
            each.close()
        super().close()
