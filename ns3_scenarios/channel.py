# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The channel of a scenario from ns-3, slot by slot: a `ChannelSource` that computes on demand."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, Protocol

import numpy as np

from ns3_scenarios import build
from ns3_scenarios.child import LAUNCH, Child, Launch
from ns3_scenarios.trace import Array, ChannelTrace, Kept

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class ChannelSettings:
    """Settings that determine a channel: equal settings give equal traces.

    The defaults are the open mobility of the specification. RMa-AV is valid for UAVs from 1 m up to
    300 m, and for NLOS up to 40 m.
    """

    ring_m: Sequence[tuple[float, float]]
    """Inner and outer radius around the base station, one pair per UAV: K pairs."""
    seed: int
    """ns-3's run number: traces of different seeds are independent."""
    bs_position_m: tuple[float, float, float] = (0.0, 0.0, 30.0)
    height_m: float | Sequence[float] = 20.0
    """Height and speeds are given for all UAVs, or one per UAV."""
    speed_m_s: tuple[float, float] | Sequence[tuple[float, float]] = (0.1, 4.0)
    """Lowest and highest speed; the speed is clipped to this range."""
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
    """`always`: LOS only; `probability`: LOS state drawn by TR 36.777's probability and correlated
    over tens of metres; `never`: NLOS only."""
    shadow_fading: bool = False
    """Whether there is log-normal shadow fading (TR 36.777), correlated along the UAV's path."""
    slot_s: float = 0.1
    mobility: tuple[str, str] | None = None
    """Name of a mobility model in Python and its parameters as JSON; None: ns-3's Gauss–Markov."""
    channel: tuple[str, str] = ("rma-av", "{}")
    """Name of the channel model and its parameters as JSON; see `ns3_scenarios.modelled`."""


class Flight(Protocol):
    """Positions of UAVs that ns-3 does not move."""

    @property
    def horizon(self) -> int | None:
        """Number of slots for which the flight can be asked at a time; None: any number."""

    def positions(self, first: int, slots: int, slot_s: float) -> Array:
        """Positions at the start of each slot, shape [K, slots, 3]; call it for slots in order."""


class Ns3Channel(Kept):
    """A `ChannelSource` whose slots are computed by an ns-3 simulation in a separate process.

    Position and gain are those at the start of a slot, t = s · slot_s. A UAV's trace depends
    neither on the number of UAVs nor on the sizes of the calls. On one machine, equal settings give
    equal bytes; on another kind of processor the last bits of logarithms and powers may differ. Use
    as a context manager, or `close` it.

    Args:
        settings: Settings that determine the channel.
        track: Positions by the mobility model that the settings name.
        launch: Launch options of ns-3's process.

    Raises:
        ChannelError: The ns-3 models cannot be built.
    """

    def __init__(
        self,
        settings: ChannelSettings,
        track: Flight | None = None,
        launch: Launch = LAUNCH,
    ) -> None:
        super().__init__()
        self.settings = settings
        self._track = track
        self._asked = 0
        """Number of slots that were requested from ns-3."""
        self._child = Child("ns3_scenarios.process", build.library(), asdict(settings), launch)

    @property
    def slot_s(self) -> float:
        """Length of a slot, in seconds."""
        return self.settings.slot_s

    @property
    def uavs(self) -> int:
        """Number of UAVs, K."""
        return len(self.settings.ring_m)

    @property
    def horizon(self) -> int | None:
        """See `ChannelSource.horizon`: that of the flight; ns-3's own model knows all of it."""
        return None if self._track is None else self._track.horizon

    @property
    def flight(self) -> Flight | None:
        """See `Kept.flight`."""
        return self._track

    def _rewound(self, slots: int) -> None:
        self._asked = slots

    def following(self, slots: int) -> ChannelTrace:
        """The next slots, which the caller keeps; see `Located.following`.

        Raises:
            ChannelError: ns-3 ended; the message contains its exit status and its error message.
        """
        gain, position = np.empty((self.uavs, slots)), np.empty((self.uavs, slots, 3))
        self._fill(gain, position)
        return ChannelTrace(gain, self.slot_s, position, self.settings.seed)

    def close(self) -> None:
        """End ns-3's process, unless it is kept; see `child.keep`. Returned traces stay valid."""
        self._child.release()

    def _fill(self, gain: Array, position: Array) -> None:
        """Fill `gain` [K, n] and `position` [K, n, 3] with the next n slots."""
        try:
            self._receive(gain, position)
        except BaseException:
            # The stream was interrupted within a chunk: later data would be misinterpreted.
            self._child.close()
            raise

    def _receive(self, gain: Array, position: Array) -> None:
        """The work of `_fill`.

        One chunk is requested in advance: ns-3 computes it while the previous one is read. This is
        not possible if positions are sent: both processes would wait for each other.
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
            placed = self._track.positions(self._asked, len(chunk), self.slot_s).tobytes()
        self._asked += len(chunk)
        self._child.send(str(len(chunk)), placed)
