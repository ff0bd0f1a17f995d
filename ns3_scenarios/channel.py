# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The channel of a scenario from ns-3, slot by slot: a `ChannelSource` that grows on demand."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, Protocol, Self

import numpy as np

from ns3_scenarios import build
from ns3_scenarios.child import LAUNCH, Child, Launch
from ns3_scenarios.trace import Array, ChannelTrace

_CHUNK_BYTES = 1 << 20
_GROWTH = 1.5


@dataclass(frozen=True)
class ChannelSettings:
    """What decides a channel: equal settings give equal traces. Defaults: SPEC's open mobility.

    RMa-AV holds for UAVs above 10 m and up to 300 m, and for NLOS up to 40 m.
    """

    ring_m: Sequence[tuple[float, float]]
    """Inner and outer radius around the base station, one pair a UAV: their number is K."""
    seed: int
    """ns-3's run number: traces of different seeds are independent."""
    bs_position_m: tuple[float, float, float] = (0.0, 0.0, 30.0)
    height_m: float | Sequence[float] = 20.0
    """This and the speeds: for all UAVs, or one each."""
    speed_m_s: tuple[float, float] | Sequence[tuple[float, float]] = (0.1, 4.0)
    """Lowest and highest speed; the speed is clipped to it."""
    mean_speed_m_s: float | Sequence[float] = 2.0
    speed_deviation_m_s: float | Sequence[float] = 1.0
    heading_deviation_rad: float = 0.5
    """Standard deviation of the heading from the UAV's mean heading."""
    memory: float = 0.85
    """Gauss–Markov memory level, 0 to 1."""
    update_s: float = 1.0
    """Time between two Gauss–Markov steps."""
    carrier_hz: float = 2.0e9
    line_of_sight: Literal["always", "probability", "never"] = "always"
    """LOS only; the LOS state of TR 36.777's probability, held over tens of metres; NLOS only."""
    shadow_fading: bool = False
    """Log-normal shadow fading of TR 36.777, correlated along the UAV's path."""
    slot_s: float = 0.1
    mobility: tuple[str, str] | None = None
    """Name of a model in Python, and its parameters as JSON; None is ns-3's Gauss–Markov."""
    channel: tuple[str, str] = ("rma-av", "{}")
    """Name of the channel's model, and its parameters as JSON; see `ns3_scenarios.modelled`."""


class Flight(Protocol):
    """Where UAVs are that ns-3 does not move."""

    def positions(self, first: int, slots: int, slot_s: float) -> Array:
        """Shape [K, slots, 3], at the start of each slot; slots are asked for in their order."""


class Ns3Channel:
    """A `ChannelSource` whose slots an ns-3 simulation makes, in a process of its own.

    Position and gain are those at the start of a slot, t = s · slot_s. Neither the number of UAVs
    nor the sizes of the calls change a UAV's trace. On one machine, equal settings give equal
    bytes; on another kind of processor the last bits of logarithms and powers may differ.
    Use as a context manager, or `close` it.

    Args:
        settings: What decides the channel.
        track: Where the model that the settings name puts the UAVs.
        launch: How ns-3's process is started.

    Raises:
        ChannelError: The ns-3 models cannot be built.
    """

    def __init__(
        self,
        settings: ChannelSettings,
        track: Flight | None = None,
        launch: Launch = LAUNCH,
    ) -> None:
        self.settings = settings
        self._track = track
        self._trace = ChannelTrace(
            gain=np.empty((self.uavs, 0)),
            slot_s=settings.slot_s,
            position_m=np.empty((self.uavs, 0, 3)),
            seed=settings.seed,
        )
        self._child = Child("ns3_scenarios.process", build.library(), asdict(settings), launch)

    @property
    def slot_s(self) -> float:
        """Length of a slot, in seconds."""
        return self.settings.slot_s

    @property
    def uavs(self) -> int:
        """K."""
        return len(self.settings.ring_m)

    def trace(self, slots: int) -> ChannelTrace:
        """The trace from slot 0 with at least that many slots; earlier slots never change.

        The arrays are C-contiguous and read-only. The first call makes as many slots as it is
        asked for; later ones add at least half of what there is, so that many small steps cost
        no more than a few large ones. Until more is needed, the same object comes back.

        Raises:
            ChannelError: ns-3 ended; the message says how and what it said.
        """
        have = self._trace.slots
        if slots > have:
            self._trace = self._grown(max(slots, int(have * _GROWTH)))
        return self._trace

    def close(self) -> None:
        """End ns-3's process. Traces that were handed out stay valid."""
        self._child.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _grown(self, slots: int) -> ChannelTrace:
        old = self._trace
        assert old.position_m is not None
        gain, position = np.empty((self.uavs, slots)), np.empty((self.uavs, slots, 3))
        gain[:, : old.slots], position[:, : old.slots] = old.gain, old.position_m
        try:
            self._fill(gain[:, old.slots :], position[:, old.slots :])
        except BaseException:
            # The stream stands in the middle of a chunk: nothing after it could be trusted.
            self.close()
            raise
        gain.flags.writeable = position.flags.writeable = False
        return ChannelTrace(gain, old.slot_s, position, old.seed)

    def _fill(self, gain: Array, position: Array) -> None:
        """Fill [K, n] and [K, n, 3] with the next n slots.

        One chunk is always asked for ahead: ns-3 makes it while the one before is read. Not where
        positions go in: while we wrote a chunk's, ns-3 would wait for us to read the one before.
        """
        uavs, slots = gain.shape
        longest = max(1, _CHUNK_BYTES // (32 * uavs))
        chunks = [range(at, min(at + longest, slots)) for at in range(0, slots, longest)]
        ahead = self._track is None
        if ahead:
            self._ask(chunks[0])
        for chunk, following in zip(chunks, [*chunks[1:], None], strict=True):
            if not ahead:
                self._ask(chunk)
            elif following is not None:
                self._ask(following)
            values = np.empty(4 * uavs * len(chunk))
            self._child.receive_into(values.data.cast("B"))
            here, cut = slice(chunk.start, chunk.stop), uavs * len(chunk)
            gain[:, here] = values[:cut].reshape(uavs, -1)
            position[:, here] = values[cut:].reshape(uavs, -1, 3)

    def _ask(self, chunk: range) -> None:
        placed = b""
        if self._track is not None:
            first = self._trace.slots + chunk.start
            placed = self._track.positions(first, len(chunk), self.slot_s).tobytes()
        self._child.send(str(len(chunk)), placed)
