# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Channels for a scenario: from ns-3, or replayed from a file."""

import json
import logging
import math
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from ns3_scenarios.aerial import (
    AERIAL,
    LOG_DISTANCE,
    free_space_db,
    log_distance_db,
    two_ray_db,
)
from ns3_scenarios.cells import CellsChannel, Followed, with_cells
from ns3_scenarios.channel import ChannelSettings, Ns3Channel
from ns3_scenarios.child import Launch
from ns3_scenarios.edges import EdgesChannel
from ns3_scenarios.errors import ChannelError
from ns3_scenarios.fading import Fading, FadingChannel
from ns3_scenarios.fitted import Direction, FittedChannel
from ns3_scenarios.guided import GuidedFlight
from ns3_scenarios.mobility import (
    FARTHEST_M,
    HIGHEST_M,
    HIGHEST_NLOS_M,
    Airspace,
    Known,
    Model,
    Track,
)
from ns3_scenarios.modelled import Gain, ModelledChannel, Surroundings, aerial
from ns3_scenarios.rma_av import (
    FARTHEST_GROUND_NLOS_M,
    GROUND_HEIGHT_M,
    ground_los_path_loss_db,
    los_path_loss_db,
)
from ns3_scenarios.steered import Limits, SteeredFlight
from ns3_scenarios.trace import (
    Array,
    ChannelSource,
    ChannelTrace,
    DownlinkIs,
    GivenTrace,
    Held,
    Kept,
    RateTrace,
    Replay,
    SlotTrace,
    TraceError,
    TraceExhausted,
    describe,
    load_trace,
)
from orchestrator.scenario.cells import cells_of
from orchestrator.scenario.combinations import Channel as ChannelKind
from orchestrator.scenario.combinations import check
from orchestrator.scenario.schema import (
    GAUSS_MARKOV,
    GUIDED,
    PLAIN,
    RMA,
    STEERED,
    ByDistance,
    OfTrace,
    Scenario,
)
from orchestrator.scenario.unused import replaced_by
from testbed.core.errors import InputError
from testbed.core.paradigm import Paradigm
from testbed.core.registry import CHANNELS, MOBILITY, reason
from testbed.system import inside, leftovers

log = logging.getLogger(__name__)

CELL = 0xCE11
"""The number of the random stream for seeds of further base stations."""
NOISE = 0x0B5
"""The number of the random stream for the noise of observations, among those drawn by the
scenario's seed."""
START = 0x57A7
"""The number of the random stream for places where UAVs start that programs or a policy fly."""
PLACES = 24
"""Number of places for which rates of the region of steered UAVs are computed."""
LOWEST_PLAIN_M = 1e-3
"""Smallest height of a UAV where the channel itself has no limit."""
SAME_CARRIER = 0.05
"""Largest relative difference of a carrier from that of a fit that is not logged."""
TTI_S = 1e-3
"""Time in which small-scale fading is constant: a transmission time interval of LTE. That of NR is
an NR slot."""
FIRST_SLOTS = 1024
"""Number of slots that are requested from a channel at first; it doubles when more are needed."""
FIRST_BLOCKS = 102_400
"""Largest number of fading blocks in them, per UAV."""
MOST_BYTES = 2 << 30
"""Memory of the slots of a channel, not counting copies."""
PIECE_BYTES = 32 << 20
"""Memory of gains and positions in one piece of a channel that is written to a file."""

FlownChannel = Ns3Channel | ModelledChannel | FittedChannel
"""A channel at the positions of ns-3."""


class Channel:
    """A channel that grows on demand and keeps the slots that it has made.

    Earlier slots never change. Prediction, policies and emulation share one object.

    Args:
        source: The source of the slots; another `Channel` is shared, not copied.
    """

    def __init__(self, source: ChannelSource):
        self._source = source
        self._trace: SlotTrace | None = None
        self._widest = 0
        self.forgets = False
        """Whether slots of rounds that were played are forgotten; see `may_forget`."""

    @classmethod
    def of(cls, source: "ChannelSource | Channel") -> "Channel":
        """The channel itself, or a new one for that source."""
        return source if isinstance(source, Channel) else cls(source)

    @property
    def slot_s(self) -> float:
        """Length of a slot, in seconds."""
        return self._source.slot_s

    @property
    def uavs(self) -> int:
        """Number of UAVs, K."""
        return self._source.uavs

    @property
    def horizon(self) -> int | None:
        """Number of slots for which the channel can be asked beyond those that it has made; None:
        any number, which is also that of a source that does not say it."""
        return getattr(self._source, "horizon", None)

    @property
    def now(self) -> SlotTrace:
        """All slots that have been made so far, or `FIRST_SLOTS` if there were none; fewer, if
        these would take long or fill the memory, or are beyond the horizon."""
        if self._trace is None:
            if self.horizon is not None:
                return self.trace(self.horizon)
            slots = min(FIRST_SLOTS, MOST_BYTES // (32 * self.uavs))
            if isinstance(self._source, FadingChannel):
                slots = min(slots, FIRST_BLOCKS // self._source.blocks)
            return self.trace(max(2, slots))
        return self._trace

    def trace(self, slots: int) -> SlotTrace:
        """A trace of at least this number of slots, or of all that the source has.

        Raises:
            InputError: They would fill the memory.
            BeyondHorizon: They are not known yet.
        """
        if self._trace is None or self._trace.end < slots:
            self.check_room(slots - (0 if self._trace is None else self._trace.begin))
            try:
                self._trace = self._source.trace(slots)
            except TraceExhausted as end:
                self._trace = self._source.trace(end.available)
        return self._trace

    def grow(self) -> SlotTrace:
        """A trace with twice as many slots as now, or as many as memory or horizon allow.

        Raises:
            TraceExhausted: The source has no more slots.
            InputError: More slots would fill the memory.
        """
        before, begin, kept = self.now.end, self.now.begin, self.now.slots
        self._widest = max(self._widest, kept)
        most = begin + self._most_slots if self.horizon is None else before + self.horizon
        # After slots were forgotten, at first as many as were kept before.
        wished = begin + max(2 * kept, self._widest)
        if self.trace(max(before + 1, min(wished, most))).end <= before:
            raise TraceExhausted(before)
        return self.now

    def may_forget(self) -> None:
        """Allow the channel to forget slots after `played`; without effect on a given trace.

        These slots must not be asked for any more: `until` and `held` would be wrong.
        """
        self.forgets = isinstance(self._source, Kept) and self.horizon is None

    def played(self, until_s: float) -> None:
        """Forget the slots before a moment, if the channel may, and if they are most of it."""
        # A slot more than needed, since rounds are searched for their first slot from there on.
        first = int(until_s / self.slot_s) - 2
        if self.forgets and 2 * (first - self.now.begin) > self.now.slots:
            assert isinstance(self._source, Kept)
            self._trace = self._source.forget(min(first, self.now.end - 1))

    def check_room(self, slots: int) -> None:
        """Refuse a number of slots, kept together, that would fill the memory.

        Raises:
            InputError: They would.
        """
        if slots > self._most_slots:
            raise InputError(
                f"slot_s: {slots:,} slots of {self.slot_s:g} s for {self.uavs:,} UAVs need more "
                f"than {MOST_BYTES >> 30} GiB of memory; use longer slots, fewer rounds or fewer "
                "UAVs"
            )

    @property
    def _most_slots(self) -> int:
        """Number of slots of which the trace fits into `MOST_BYTES`; a given one is in memory."""
        made = self._trace
        if made is None or isinstance(self._source, Replay):
            return sys.maxsize
        return MOST_BYTES // math.ceil(made.bytes / made.slots)

    @property
    def flight(self) -> object:
        """The flight of the UAVs, if it is neither that of ns-3 nor that of a given trace."""
        return getattr(self._source, "flight", None)

    @property
    def is_guided(self) -> bool:
        """Whether decisions fly the UAVs."""
        return isinstance(self.flight, GuidedFlight)

    def fly(self, since_s: float, position_m: Array | None) -> None:
        """Let UAVs fly to way points from a moment on; without effect on a channel that is given.

        Args:
            since_s: The moment. The slot that contains it is the last one that stays.
            position_m: See `GuidedFlight.fly`. None: UAVs go on.
        """
        flight = self.flight
        if position_m is None or not isinstance(flight, GuidedFlight):
            return
        slots = self.until(since_s).slots
        flight.fly(since_s, position_m)
        if self.now.slots > slots:
            assert isinstance(self._source, Kept)
            self._source.rewind(slots)
            self._trace = self._source.trace(slots)

    def held(self, end_s: float) -> "Channel":
        """The channel as it was flown until a moment, which then stays as in the slot of this
        moment."""
        return Channel(Held(self.until(end_s)))

    def until(self, time_s: float) -> SlotTrace:
        """The slots up to the one that contains this moment, i.e. those that can be known then.

        Raises:
            TraceExhausted: The source ends earlier.
        """
        slots = int(time_s / self.slot_s + 1e-6) + 1
        while self.now.slots < slots:
            self.grow()
        return self.now.first(slots)


def observed(scenario: Scenario, known: SlotTrace) -> SlotTrace:
    """What a policy observes of past slots: late and noisy, as `allocation.observation` says.

    The first slot is always known. The noise of a slot is the same at each observation.
    """
    observation = scenario.allocation.observation
    if observation.delay_slots:
        known = known.first(max(1, known.slots - observation.delay_slots))

    def drawn(stream: int, shape: tuple[int, ...]) -> Array:
        """Standard normal values from a generator per UAV, so that earlier slots never change."""
        seeds = ((scenario.seed, NOISE, stream, k) for k in range(known.uavs))
        return np.stack([np.random.default_rng(seed).standard_normal(shape) for seed in seeds])

    def noisy(values: Array, way: int) -> Array:
        return np.asarray(values * 10 ** (observation.noise_db * drawn(way, (known.slots,)) / 10))

    if observation.noise_db:
        known = known.changed(noisy)
    if observation.position_noise_m and known.position_m is not None:
        position_m = known.position_m.copy()
        position_m[..., :2] += observation.position_noise_m * drawn(2, (known.slots, 2))
        known = known.replaced(position_m=position_m)
    return known


def channel_settings(scenario: Scenario) -> ChannelSettings:
    """The settings that determine the scenario's channel; equal settings give the same channel."""
    model, parameters = scenario.mobility.model, scenario.mobility.parameters
    fleet = scenario.fleet
    return ChannelSettings(
        bs_position_m=scenario.base_station.position_m,
        height_m=tuple(fleet.height_m.tolist()),
        ring_m=tuple(scenario.uavs.ring_m),
        speed_m_s=tuple((low, high) for low, high in fleet.speed_m_s.tolist()),
        mean_speed_m_s=tuple(fleet.mean_speed_m_s.tolist()),
        speed_deviation_m_s=tuple(fleet.speed_deviation_m_s.tolist()),
        heading_deviation_rad=scenario.mobility.heading_deviation_rad,
        memory=scenario.mobility.memory,
        update_s=scenario.mobility.update_s,
        carrier_hz=scenario.radio.carrier_hz,
        line_of_sight=scenario.radio.line_of_sight,
        shadow_fading=scenario.radio.shadow_fading,
        slot_s=scenario.slot_s,
        seed=scenario.seed,
        mobility=None if model == GAUSS_MARKOV else (model, json.dumps(parameters, sort_keys=True)),
        channel=(
            scenario.radio.model,
            json.dumps(scenario.radio.model_parameters, sort_keys=True),
        ),
    )


def fading_of(scenario: Scenario) -> Fading | None:
    """The scenario's small-scale fading; None: there is none."""
    radio = scenario.radio
    if radio.fading == "none":
        return None
    interval_s = radio.nr.slot_s if radio.kind.cell == "nr" else TTI_S
    return Fading(
        kind=radio.fading,
        direct=10 ** (radio.rician_k_db / 10) if radio.fading == "rician" else 0.0,
        block_s=interval_s if radio.fading_block == "tti" else scenario.slot_s,
        carrier_hz=radio.carrier_hz,
        doppler_hz=radio.doppler_hz,
        seed=scenario.seed,
        reciprocal=radio.kind.cell == "nr" and radio.nr.duplex == "tdd",
    )


def channel_key(scenario: Scenario) -> Hashable:
    """What determines the scenario's channel with its fading; equal keys have equal channels."""
    further = tuple(channel_settings(there) for there in _there(scenario))
    fitted = scenario.radio.fitted
    fit = None if fitted is None else fitted.model_dump_json()
    own = channel_settings(scenario), fit, fading_of(scenario), further, cells_of(scenario)
    if scenario.topology is None:
        return own
    stations, station = _stations(scenario)
    return own, tuple(channel_settings(there) for there in stations), tuple(station)


def _stations(scenario: Scenario) -> tuple[list[Scenario], list[int]]:
    """The scenario at each position of an edge server, and the index of that of each UAV."""
    there = scenario.at_edges
    positions = list(dict.fromkeys(each.base_station.position_m for each in there))
    first = [next(t for t in there if t.base_station.position_m == at) for at in positions]
    station = [0] * scenario.uavs.count
    for each, members in zip(there, scenario.members, strict=True):
        for client in members:
            station[client - 1] = positions.index(each.base_station.position_m)
    return first, station


def ns3_source(
    scenario: Scenario, *, by_slot: bool = False
) -> FlownChannel | FadingChannel | CellsChannel | EdgesChannel:
    """A channel that ns-3 makes on demand, or a model on the positions of ns-3; close it after use.

    Args:
        scenario: The scenario.
        by_slot: Whether its slots are asked for one by one, as late as possible, as in a session.

    Raises:
        InputError: A mobility or channel model refuses its parameters, or reacts to a session where
            there is none.
        ChannelError: ns-3 cannot be started, or the mobility model left the region where the
            channel holds.
    """
    check_trace(scenario, None)
    if scenario.topology is not None:
        stations, station = _stations(scenario)
        made = [ns3_source(there) for there in stations]
        return made[0] if len(made) == 1 else EdgesChannel(made, station)
    gain = _gain(scenario, scenario.uavs.count, scenario.slot_s)
    track = _track(scenario)
    guided = isinstance(track, GuidedFlight)  # predictions ask for its slots one by one
    if track is not None and track.horizon is not None and not (by_slot or guided):
        raise InputError(
            f"mobility.model: {scenario.mobility.model!r} reacts to the programs of a session "
            "(`testbed up`), and there is none here; give the trace.npz of a session as `trace`"
        )
    flight = Ns3Channel(channel_settings(scenario), track, ns3_launch())
    source = _on(scenario, gain, flight)
    fading, cells = fading_of(scenario), cells_of(scenario)
    if cells is not None:
        followed = Followed(flight.uavs, flight.slot_s)
        further = [_further(each, followed) for each in _there(scenario)]
        return CellsChannel(source, further, followed, cells, partial(_check_cell, scenario))
    return source if fading is None else FadingChannel(source, fading)


def pieces(
    scenario: Scenario,
    source: FlownChannel | FadingChannel | CellsChannel | EdgesChannel,
    slots: int,
    progress: Callable[[int], None],
) -> Iterator[ChannelTrace]:
    """The first slots of the scenario's own channel as consecutive traces, for a file.

    Args:
        scenario: The scenario.
        source: Its channel, as `ns3_source` answers it.
        slots: Number of slots of all pieces together.
        progress: Called for each piece with the number of slots until its end.

    Raises:
        ChannelError: ns-3 ended, a model failed, or the channel does not hold at some position.
    """
    text, have = scenario.model_dump_json(), 0
    steady = source.steady if isinstance(source, FadingChannel) else source
    at_once = max(1, PIECE_BYTES // (32 * source.uavs))
    while have < slots:
        piece = steady.following(min(at_once, slots - have)).first(slots - have)
        have += piece.slots
        progress(have)
        yield piece.replaced(seed=scenario.seed, scenario=text)


def _there(scenario: Scenario) -> list[Scenario]:
    """The scenario with each further base station in place of its own; random numbers of the
    channel are independent."""
    station = scenario.base_station
    return [
        scenario.model_copy(
            update={
                "base_station": station.model_copy(update={"position_m": cell.position_m}),
                "seed": int(np.random.SeedSequence((scenario.seed, CELL, c)).generate_state(1)[0]),
            }
        )
        for c, cell in enumerate(scenario.radio.cells)
    ]


def _further(there: Scenario, flight: Followed) -> FlownChannel:
    """The channel of a further base station."""
    gain = _gain(there, flight.uavs, flight.slot_s)
    if gain is not None:
        return _on(there, gain, flight)
    settings = _on_flight(there, flight.uavs, flight.slot_s)
    return _on(there, None, Ns3Channel(settings, flight, ns3_launch()))


def _on(scenario: Scenario, gain: Gain | None, flight: Ns3Channel | Followed) -> FlownChannel:
    """The scenario's channel for UAVs on a flight.

    Args:
        scenario: The scenario.
        gain: The model that computes gains from positions; None: the flight has the gains.
        flight: The UAVs as ns-3 moves them.
    """
    radio = scenario.radio
    if gain is None:
        assert isinstance(flight, Ns3Channel)
        source: FlownChannel = flight
    else:
        source = ModelledChannel(radio.model, gain, flight)
    fitted = radio.fitted
    if fitted is None:
        return source
    if abs(radio.carrier_hz / fitted.carrier_hz - 1) > SAME_CARRIER:
        _log_once(
            f"radio.carrier_hz: is {radio.carrier_hz / 1e6:g} MHz, but radio.fitted is from "
            f"{fitted.carrier_hz / 1e6:g} MHz; the difference in loss is that of {radio.model!r}"
        )
    return FittedChannel(
        source,
        Direction(**fitted.up.model_dump()),
        Direction(**fitted.down.model_dump()),
        correlation=fitted.correlation,
        bs_position_m=scenario.base_station.position_m,
        seed=scenario.seed,
    )


def _check_cell(scenario: Scenario, cell: int, position_m: Array, first: int = 0) -> None:
    """Refuse positions, from a slot on, at which the channel of a further base station does not
    hold."""
    at_m, name = scenario.radio.cells[cell].position_m, f"radio.cells[{cell}]"
    _check_known(_known(scenario), at_m, position_m, scenario.slot_s, name, first)


def flown(scenario: Scenario, position_m: Array, slot_s: float) -> SlotTrace:
    """The scenario's channel for UAVs on a given flight, shape [K, S, 3].

    Raises:
        ChannelError: The channel does not hold at some position.
    """
    uavs, slots, _ = position_m.shape
    settings = _on_flight(scenario, uavs, slot_s)
    _check_known(_known(scenario), scenario.base_station.position_m, position_m, slot_s)
    gain = _gain(scenario, uavs, slot_s)
    if slots == 1:  # a fitted channel needs two, for a velocity
        position_m = np.repeat(position_m, 2, axis=1)
    flight = Ns3Channel(settings, _Given(position_m), ns3_launch())
    with _on(scenario, gain, flight) as source:
        return replace(source.trace(slots).first(slots), seed=None)


def _on_flight(scenario: Scenario, uavs: int, slot_s: float) -> ChannelSettings:
    """The settings of the scenario's channel for UAVs whose flight is given."""
    return replace(
        channel_settings(scenario),
        ring_m=((0.0, 1.0),) * uavs,  # unused, as are height and speeds
        height_m=20.0,
        speed_m_s=(0.0, 1.0),
        mean_speed_m_s=0.0,
        speed_deviation_m_s=0.0,
        slot_s=slot_s,
        mobility=("flight", "{}"),
    )


@dataclass(frozen=True)
class _Given:
    """Positions that are given in advance."""

    position_m: Array
    horizon = None
    """All of them are there."""

    def positions(self, first: int, slots: int, slot_s: float) -> Array:
        """The positions of some slots, from `first` on."""
        return np.ascontiguousarray(self.position_m[:, first : first + slots])


def _check_known(
    known: Known,
    bs_position_m: tuple[float, float, float],
    position_m: Array,
    slot_s: float,
    station: str = "the base station",
    first: int = 0,
) -> None:
    far_m = np.hypot(*np.moveaxis(position_m[..., :2] - np.array(bs_position_m[:2]), -1, 0))
    height_m = position_m[..., 2]
    outside = known.excludes(height_m, far_m)
    if outside.any():
        k, s = np.argwhere(outside)[0]
        raise ChannelError(
            f"UAV {k + 1} is {height_m[k, s]:g} m high and {far_m[k, s]:.0f} m from {station} "
            f"at {(first + s) * slot_s:g} s; the channel is valid {known}"
        )


def _gain(scenario: Scenario, uavs: int, slot_s: float) -> Gain | None:
    """The model that computes gains from positions; None where ns-3 does."""
    radio = scenario.radio
    if radio.model == RMA or radio.model in PLAIN:
        return None
    space = Surroundings(
        uavs=uavs,
        bs_position_m=scenario.base_station.position_m,
        carrier_hz=radio.carrier_hz,
        line_of_sight=radio.line_of_sight,
        shadow_fading=radio.shadow_fading,
        slot_s=slot_s,
        seed=scenario.seed,
    )
    if radio.model in AERIAL:
        return aerial(AERIAL[radio.model], space)
    try:
        gain: Gain = CHANNELS.make(radio.model, radio.model_parameters, space)
    except InputError as error:
        if radio.fitted is None:
            raise
        raise InputError(f"radio.fitted: {error}") from error
    return gain


def mean_loss(scenario: Scenario) -> Callable[[Array, Array], Array] | None:
    """A function from height and 3D distance in m to the path loss in dB with line of sight.

    That of a fitted channel has the mean offset of both directions. None where the plug-in channel
    does not define one.
    """
    fitted = scenario.radio.fitted
    loss = _model_loss(scenario)
    if fitted is None or loss is None:
        return loss
    offset_db = (fitted.up.offset_db + fitted.down.offset_db) / 2
    return lambda height_m, far_m: loss(height_m, far_m) - offset_db


def _model_loss(scenario: Scenario) -> Callable[[Array, Array], Array] | None:
    """The path loss of the channel's model; see `mean_loss`."""
    name, carrier_hz = scenario.radio.model, scenario.radio.carrier_hz
    parameters: dict[str, Any] = scenario.radio.model_parameters
    bs_height_m = scenario.base_station.position_m[2]
    losses: dict[str, Callable[[Array, Array], Array]] = {
        RMA: lambda height_m, far_m: np.where(
            height_m <= GROUND_HEIGHT_M,
            ground_los_path_loss_db(height_m, bs_height_m, far_m, carrier_hz),
            los_path_loss_db(height_m, far_m, carrier_hz),
        ),
        "free-space": lambda _, far_m: free_space_db(far_m, carrier_hz),
        "two-ray": lambda height_m, far_m: two_ray_db(height_m, bs_height_m, far_m, carrier_hz),
        LOG_DISTANCE: lambda _, far_m: log_distance_db(far_m, carrier_hz, **parameters),
    }
    if name in AERIAL:
        return lambda height_m, far_m: AERIAL[name].los_db(height_m, far_m, carrier_hz)
    return losses.get(name)


def ns3_launch() -> Launch:
    """How ns-3 starts: confined to computing, and labelled with the ID of this orchestrator."""
    return Launch(("testbed.system.confined",), leftovers.marked())


def flight_limits(scenario: Scenario) -> Limits:
    """The limits of UAVs that programs or a policy fly."""
    return Limits(
        **dict(scenario.mobility.limits),
        known=_known(scenario),
        station_m=list(scenario.station_m.values()),
    )


def _start_m(scenario: Scenario, limits: Limits) -> Array:
    """Positions in slot 0 of UAVs that programs or a policy fly, shape [K, 3].

    Raises:
        InputError: A UAV must not be where it starts.
    """
    key, given = "mobility.start_m", scenario.mobility.start_m
    if given is not None:
        start_m = np.array(given, float)
    else:
        rng = np.random.default_rng((scenario.seed, START))
        inner, outer = np.array(scenario.uavs.ring_m).T
        share, turn = rng.random((scenario.uavs.count, 2)).T
        far_m = np.sqrt(inner**2 + share * (outer**2 - inner**2))
        across_m = far_m * np.array([np.cos(2 * np.pi * turn), np.sin(2 * np.pi * turn)])
        at_m = np.array(scenario.base_station.position_m[:2])[:, None]
        start_m = np.column_stack([*(at_m + across_m), scenario.fleet.height_m])
        key = "uavs.rings_m"
    if (outside := limits.excludes(start_m)).any():
        k = int(outside.argmax())
        raise InputError(
            f"{key}: UAV {k + 1} would start at {np.round(start_m[k], 1).tolist()}, which is "
            "outside of mobility.limits.distance_m or height_m, or where radio.channel does not "
            "hold"
        )
    return start_m


def guided_flight(scenario: Scenario) -> GuidedFlight:
    """The flight of UAVs that a policy guides.

    Raises:
        InputError: A UAV must not be where it starts.
    """
    limits = flight_limits(scenario)
    horizon = 1 if scenario.radio.remembers else None
    start_m = _start_m(scenario, limits)
    return GuidedFlight(start_m, limits.speed_m_s, limits.climb_m_s, horizon)


def steered_flight(scenario: Scenario) -> SteeredFlight:
    """The flight of UAVs that programs steer.

    Raises:
        InputError: A UAV must not be where it starts.
    """
    limits = flight_limits(scenario)
    return SteeredFlight(_start_m(scenario, limits), limits)


def region(scenario: Scenario, slot_s: float) -> SlotTrace:
    """The channel on a line through the region of UAVs that programs steer: a slot per place, from
    the nearest to the farthest one, at the heights at which they start."""
    flight = steered_flight(scenario)
    at_m = np.array(scenario.base_station.position_m)
    (nearest_m, farthest_m), known = flight.limits.distance_m, flight.limits.known
    farthest_m = min(farthest_m, known.farthest_m, known.farthest_low_m)
    away_m = np.geomspace(max(nearest_m, 1.0), farthest_m, PLACES)
    position_m = np.repeat(flight.start_m[:, None], PLACES, axis=1)
    position_m[..., 0], position_m[..., 1] = at_m[0] + away_m, at_m[1]
    return flown(scenario, position_m, slot_s)


def _track(scenario: Scenario) -> Track | SteeredFlight | GuidedFlight | None:
    """The flight by programs, of a policy, or by a plug-in mobility model; None for ns-3's own."""
    name = scenario.mobility.model
    if name == GAUSS_MARKOV:
        return None
    if name == STEERED:
        return steered_flight(scenario)
    if name == GUIDED:
        return guided_flight(scenario)
    model: Model = MOBILITY.function(name)
    horizon = getattr(model, "horizon", None)
    if horizon not in (None, 1):
        raise MOBILITY.unfit(name, f"has a `horizon` of {horizon!r}; it must be 1 or None")
    height_m = scenario.fleet.height_m
    space = Airspace(
        ring_m=tuple(scenario.uavs.ring_m),
        bs_position_m=scenario.base_station.position_m,
        height_m=float(height_m[0]) if (height_m == height_m[0]).all() else height_m,
        update_s=scenario.mobility.update_s,
        seed=scenario.seed,
    )
    try:
        updates = model(space, **scenario.mobility.parameters)
        return Track(name, updates, space, _known(scenario), horizon)
    except ValueError as error:
        raise MOBILITY.refused(name, error) from error
    except (InputError, ChannelError):
        raise
    except (Exception, SystemExit) as error:
        raise MOBILITY.unfit(name, f"fails: {reason(error)}") from error


def _known(scenario: Scenario) -> Known:
    """The region where the scenario's channel holds."""
    name, blind = scenario.radio.model, scenario.radio.line_of_sight == "never"
    if name == RMA:
        near = scenario.radio.line_of_sight != "always"
        return Known(
            highest_m=HIGHEST_NLOS_M if blind else HIGHEST_M,
            farthest_low_m=FARTHEST_GROUND_NLOS_M if near else FARTHEST_M,
        )
    if name not in AERIAL:
        return Known(LOWEST_PLAIN_M, math.inf, math.inf, math.inf)
    model = AERIAL[name]
    highest_m = model.highest_nlos_m if blind else model.highest_m
    return Known(model.lowest_m, highest_m, model.farthest_m, model.farthest_m)


@contextmanager
def open_source(
    scenario: Scenario, trace_file: Path | None, *, by_slot: bool = False
) -> Iterator[ChannelSource]:
    """The scenario's channel: the given trace, or ns-3 until the context ends.

    Args:
        scenario: The scenario.
        trace_file: The trace; None: ns-3 makes the channel.
        by_slot: See `ns3_source`.

    Raises:
        InputError: The trace does not fit the scenario.
    """
    if trace_file is None:
        with ns3_source(scenario, by_slot=by_slot) as source:
            yield source
        return
    trace = read_trace(trace_file)
    given = replay(scenario, trace, f"`trace`: {trace_file}")
    if inside.guest_settings() is None:  # the host of a guest has logged it
        log_description(trace_file, trace)
        if keys := replaced_by(scenario, trace):
            _log_once(f"{', '.join(keys)}: no effect; {trace_file} replaces the channel")
    yield given


def read_trace(trace_file: Path) -> SlotTrace:
    """The trace of the option `trace`.

    Raises:
        InputError: The file is not a valid trace.
    """
    try:
        return load_trace(trace_file)
    except TraceError as error:
        raise InputError(f"`trace`: {error}") from None


def log_description(trace_file: Path, trace: SlotTrace) -> None:
    """Log a line that describes a trace, once per file."""
    if log.isEnabledFor(logging.INFO):  # It reads the whole trace.
        _log_once(f"trace {trace_file}: {describe(trace)}")


@cache
def _log_once(line: str, level: int = logging.INFO) -> None:
    log.log(level, line)


def replay(scenario: Scenario, trace: SlotTrace, name: str = "trace") -> GivenTrace:
    """A given trace as the scenario's channel.

    Args:
        scenario: The scenario.
        trace: The trace.
        name: The name of the trace in error messages.

    Raises:
        InputError: The trace has another number of UAVs, or lacks data that the links need.
    """
    if trace.uavs != scenario.uavs.count:
        raise InputError(
            f"{name}: {next(iter(trace.named()))} has {trace.uavs} rows, one per UAV; "
            f"uavs.count is {scenario.uavs.count}"
        )
    check_trace(scenario, trace)
    check_channel(scenario, trace)
    if is_open(scenario, trace) and scenario.scheme.gradient_transmission == "parallel":
        _log_once(
            f"radio.downlink_is: {name} does not say whether downlink_bps is the rate of each link "
            "or of the cell; each link has all of it ('link')",
            logging.WARNING,
        )
    if (fading := fading_of(scenario)) is not None:
        blocks = fading.blocks(trace.slot_s)
        if 8 * trace.uavs * trace.slots * blocks > MOST_BYTES:
            raise InputError(
                f"radio.fading_block: {name} has {trace.slots:,} slots for {trace.uavs:,} UAVs, "
                f"whose fading in {blocks:,} blocks each needs more than {MOST_BYTES >> 30} GiB of "
                "memory; use 'slot', or a shorter trace"
            )
        trace = trace.replaced(fading=fading.powers(fading.turns(trace)))
    return GivenTrace(_with_cells(scenario, trace, name))


def _with_cells(scenario: Scenario, trace: SlotTrace, name: str) -> SlotTrace:
    """A trace with gains to the scenario's further base stations, if there are any.

    Where the trace has none, they follow from its positions.

    Raises:
        InputError: The trace has neither, or has another number of base stations.
    """
    cells = cells_of(scenario)
    if not isinstance(trace, ChannelTrace):
        return trace
    if cells is None:
        if trace.gain_cells is not None:
            _log_once(f"{name}: gain_cells has no effect; radio.cells is empty", logging.WARNING)
        return trace
    count = len(scenario.radio.cells)
    if trace.gain_cells is None:
        if trace.position_m is None:
            raise InputError(
                f"radio.cells: {name} has neither gain_cells nor position, from which the gains "
                "follow"
            )
        _log_once(
            f"{name} has no gain_cells: gains to radio.cells follow from its positions by "
            f"radio.channel {scenario.radio.channel!r}"
        )
        made = []
        for cell, there in enumerate(_there(scenario)):
            _check_cell(scenario, cell, trace.position_m)
            made.append(flown(there, trace.position_m, trace.slot_s))
        trace = with_cells(trace, made)
    elif len(trace.gain_cells) != count:
        raise InputError(
            f"radio.cells: has {count} further base stations, but gain_cells of {name} "
            f"{len(trace.gain_cells)}"
        )
    return cells.served(trace)


def downlink_of(scenario: Scenario, trace: SlotTrace) -> DownlinkIs | None:
    """Whether the downlink rates of a trace are those of links or of the cell; None: not known, or
    the trace has no rates.

    Raises:
        InputError: Scenario and trace contradict each other.
    """
    asked = scenario.radio.downlink_is
    if not isinstance(trace, RateTrace):
        return None
    if None not in (asked, trace.downlink_is) and asked != trace.downlink_is:
        raise InputError(
            f"radio.downlink_is: is {asked!r}, but the trace says {trace.downlink_is!r}"
        )
    return asked or trace.downlink_is


def is_open(scenario: Scenario, trace: SlotTrace) -> bool:
    """Whether a trace has rates of which it is not known if they are those of links or the cell."""
    return isinstance(trace, RateTrace) and downlink_of(scenario, trace) is None


def check_channel(scenario: Scenario, trace: SlotTrace, *commands: str) -> None:
    """Refuse a scenario that does not go together with a trace of gains, or of rates.

    Args:
        scenario: The scenario.
        trace: Its channel, or some slots of it.
        commands: Commands whose rules are also applied; see `combinations.check`.

    Raises:
        InputError: A rule of `orchestrator.scenario.combinations` is broken.
    """
    kind: ChannelKind = "gains"
    if isinstance(trace, RateTrace):
        kind = "cell rates" if downlink_of(scenario, trace) == "cell" else "rates"
    check(scenario, "", *commands, channel=kind)


def check_comparable(schemes: Iterable[Paradigm]) -> None:
    """Refuse to compare paradigms whose rounds have downlink rates with an open meaning.

    Args:
        schemes: Paradigms of the rounds with such rates.

    Raises:
        InputError: Some transmit gradients sequentially and others in parallel.
    """
    if len({scheme.gradient_transmission for scheme in schemes}) > 1:
        raise InputError(
            "radio.downlink_is: must be 'link' or 'cell' to compare paradigms with sequential and "
            "with parallel downlinks on a trace of rates"
        )


def check_trace(scenario: Scenario, trace: SlotTrace | None) -> None:
    """Check that a trace has the data that the scenario's links need.

    Args:
        scenario: The scenario with the links.
        trace: The trace to replay; None: the channel is simulated, and has positions and gains.

    Raises:
        InputError: Data is missing; the message names the key.
    """
    links = scenario.links
    for key, value, known in (
        ("loss", links.loss_of("up"), trace is not None and trace.loss is not None),
        ("loss", links.loss_of("down"), trace is not None and trace.loss is not None),
        ("one_way_delay_s", links.one_way_delay_s, trace is not None and trace.delay_s is not None),
        ("jitter_s", links.jitter_s, trace is not None and trace.jitter_s is not None),
    ):
        if isinstance(value, OfTrace) and not known:
            what = {"loss": "loss", "one_way_delay_s": "delay_s", "jitter_s": "jitter_s"}[key]
            raise InputError(f"links.{key}: 'trace' needs a trace with {what}")
        if isinstance(value, ByDistance) and trace is not None and trace.position_m is None:
            raise InputError(f"links.{key}: 'distance' needs a trace with positions")
