# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Channels for a scenario: from ns-3, or replayed from a file."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ns3_scenarios.aerial import AERIAL, free_space_db, two_ray_db
from ns3_scenarios.channel import ChannelSettings, Ns3Channel
from ns3_scenarios.child import Launch
from ns3_scenarios.errors import ChannelError
from ns3_scenarios.mobility import HIGHEST_M, HIGHEST_NLOS_M, Airspace, Known, Model, Track
from ns3_scenarios.modelled import Gain, ModelledChannel, Surroundings, aerial
from ns3_scenarios.rma_av import los_path_loss_db
from ns3_scenarios.trace import (
    Array,
    ChannelSource,
    Replay,
    SlotTrace,
    TraceError,
    TraceExhausted,
    load_trace,
)
from orchestrator.scenario.schema import (
    GAUSS_MARKOV,
    PLAIN,
    RMA,
    ByDistance,
    OfTrace,
    Scenario,
)
from testbed.core.errors import InputError
from testbed.core.registry import CHANNELS, MOBILITY
from testbed.system import leftovers

NOISE = 0x0B5
"""Of all that is drawn by a scenario's seed, the noise of observations."""
FIRST_SLOTS = 1024
"""Slots that a channel is asked for at first; whoever needs more doubles them."""


class Channel:
    """A channel as far as anybody has looked: grows as it is asked for, and keeps what it has.

    Earlier slots never change. Whoever predicts, decides or emulates shares one of these.

    Args:
        source: What makes the slots; another `Channel` is shared, not copied.
    """

    def __init__(self, source: ChannelSource):
        self._source = source
        self._trace: SlotTrace | None = None

    @classmethod
    def of(cls, source: "ChannelSource | Channel") -> "Channel":
        """The channel itself, or a new one of that source."""
        return source if isinstance(source, Channel) else cls(source)

    @property
    def slot_s(self) -> float:
        """Length of a slot, in seconds."""
        return self._source.slot_s

    @property
    def uavs(self) -> int:
        """K."""
        return self._source.uavs

    @property
    def now(self) -> SlotTrace:
        """All slots that have been made so far, `FIRST_SLOTS` where there were none."""
        return self.trace(FIRST_SLOTS) if self._trace is None else self._trace

    def trace(self, slots: int) -> SlotTrace:
        """A trace of at least so many slots, or of all that the source has."""
        if self._trace is None or self._trace.slots < slots:
            try:
                self._trace = self._source.trace(slots)
            except TraceExhausted as end:
                self._trace = self._source.trace(end.available)
        return self._trace

    def grow(self) -> SlotTrace:
        """A trace twice as long as now.

        Raises:
            TraceExhausted: The source has no more slots.
        """
        before = self.now.slots
        if self.trace(2 * before).slots <= before:
            raise TraceExhausted(before)
        return self.now

    def until(self, time_s: float) -> SlotTrace:
        """The slots up to the one in which that moment lies: what can be known then.

        Raises:
            TraceExhausted: The source ends before.
        """
        slots = int(time_s / self.slot_s + 1e-6) + 1
        while self.now.slots < slots:
            self.grow()
        return self.now.first(slots)


def observed(scenario: Scenario, known: SlotTrace) -> SlotTrace:
    """What a policy is told of the slots so far: late and noisy, as `allocation.observation` says.

    The first slot is known always. A slot's noise stays the same whenever it is looked at.
    """
    asked = scenario.allocation.observation
    if asked.delay_slots:
        known = known.first(max(1, known.slots - asked.delay_slots))

    def drawn(stream: int, shape: tuple[int, ...]) -> Array:
        """Standard normal, a generator a UAV; what is drawn for a slot does not change later."""
        seeds = ((scenario.seed, NOISE, stream, k) for k in range(known.uavs))
        return np.stack([np.random.default_rng(seed).standard_normal(shape) for seed in seeds])

    def noisy(values: Array, way: int) -> Array:
        return np.asarray(values * 10 ** (asked.noise_db * drawn(way, (known.slots,)) / 10))

    if asked.noise_db:
        known = known.changed(noisy)
    if asked.position_noise_m and known.position_m is not None:
        position_m = known.position_m.copy()
        position_m[..., :2] += asked.position_noise_m * drawn(2, (known.slots, 2))
        known = known.replaced(position_m=position_m)
    return known


def channel_settings(scenario: Scenario) -> ChannelSettings:
    """What decides the scenario's channel: scenarios of equal settings meet the same one."""
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
        channel=(scenario.radio.channel, json.dumps(scenario.radio.parameters, sort_keys=True)),
    )


def ns3_source(scenario: Scenario) -> Ns3Channel | ModelledChannel:
    """A channel made as it is asked for, by ns-3 or on ns-3's positions; close it after use.

    Raises:
        InputError: A mobility or channel model refuses its parameters.
        ChannelError: ns-3 cannot be started, or the model put a UAV where there is no channel.
    """
    check_trace(scenario, None)
    gain = _gain(scenario, scenario.uavs.count, scenario.slot_s)
    flight = Ns3Channel(channel_settings(scenario), _track(scenario), ns3_launch())
    return flight if gain is None else ModelledChannel(scenario.radio.channel, gain, flight)


def flown(scenario: Scenario, position_m: Array, slot_s: float) -> SlotTrace:
    """What the scenario's channel gives UAVs on a given flight, shape [K, S, 3].

    Raises:
        ChannelError: The channel is not known there.
    """
    uavs, slots, _ = position_m.shape
    settings = replace(
        channel_settings(scenario),
        ring_m=((0.0, 1.0),) * uavs,  # nobody flies by these, nor by height and speeds
        height_m=20.0,
        speed_m_s=(0.0, 1.0),
        mean_speed_m_s=0.0,
        speed_deviation_m_s=0.0,
        slot_s=slot_s,
        mobility=("flight", "{}"),
    )
    _check_known(_known(scenario), scenario.base_station.position_m, position_m, slot_s)
    gain = _gain(scenario, uavs, slot_s)
    flight = Ns3Channel(settings, _Given(position_m), ns3_launch())
    source = flight if gain is None else ModelledChannel(scenario.radio.channel, gain, flight)
    with source:
        return replace(source.trace(slots), seed=None)


@dataclass(frozen=True)
class _Given:
    """Positions that are known beforehand."""

    position_m: Array

    def positions(self, first: int, slots: int, slot_s: float) -> Array:
        """Of the slots from the first on."""
        return np.ascontiguousarray(self.position_m[:, first : first + slots])


def _check_known(
    known: Known, bs_position_m: tuple[float, float, float], position_m: Array, slot_s: float
) -> None:
    far_m = np.hypot(*np.moveaxis(position_m[..., :2] - np.array(bs_position_m[:2]), -1, 0))
    height_m = position_m[..., 2]
    outside = (height_m <= known.lowest_m) | (height_m > known.highest_m)
    outside |= far_m > known.farthest_m
    if outside.any():
        k, s = np.argwhere(outside)[0]
        raise ChannelError(
            f"UAV {k + 1} is {height_m[k, s]:g} m high and {far_m[k, s]:.0f} m from the base "
            f"station at {s * slot_s:g} s; the channel is known above {known.lowest_m:g} m, up to "
            f"{known.highest_m:g} m, and as far as {known.farthest_m:g} m"
        )


def _gain(scenario: Scenario, uavs: int, slot_s: float) -> Gain | None:
    """What computes gains on positions; None where ns-3 does."""
    radio = scenario.radio
    if radio.channel == RMA or radio.channel in PLAIN:
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
    if radio.channel in AERIAL:
        return aerial(AERIAL[radio.channel], space)
    gain: Gain = CHANNELS.make(radio.channel, radio.parameters, space)
    return gain


def mean_loss(scenario: Scenario) -> Callable[[Array, Array], Array] | None:
    """From height and 3D distance in m to path loss in dB, in line of sight.

    None where a package's channel has none that is known.
    """
    name, carrier_hz = scenario.radio.channel, scenario.radio.carrier_hz
    bs_height_m = scenario.base_station.position_m[2]
    losses: dict[str, Callable[[Array, Array], Array]] = {
        RMA: lambda height_m, far_m: los_path_loss_db(height_m, far_m, carrier_hz),
        "free-space": lambda _, far_m: free_space_db(far_m, carrier_hz),
        "two-ray": lambda height_m, far_m: two_ray_db(height_m, bs_height_m, far_m, carrier_hz),
    }
    if name in AERIAL:
        return lambda height_m, far_m: AERIAL[name].los_db(height_m, far_m, carrier_hz)
    return losses.get(name)


def ns3_launch() -> Launch:
    """ns-3's process can do no more than compute, and bears the mark of this one."""
    return Launch(("testbed.system.confined",), leftovers.marked())


def _track(scenario: Scenario) -> Track | None:
    """The flight of a plugin's mobility model; None for ns-3's own."""
    name = scenario.mobility.model
    if name == GAUSS_MARKOV:
        return None
    model: Model = MOBILITY.function(name)
    height_m = scenario.fleet.height_m
    space = Airspace(
        ring_m=tuple(scenario.uavs.ring_m),
        bs_position_m=scenario.base_station.position_m,
        height_m=float(height_m[0]) if (height_m == height_m[0]).all() else height_m,
        update_s=scenario.mobility.update_s,
        seed=scenario.seed,
    )
    try:
        return Track(name, model(space, **scenario.mobility.parameters), space, _known(scenario))
    except ValueError as error:
        raise MOBILITY.refused(name, error) from error


def _known(scenario: Scenario) -> Known:
    """Where the scenario's channel is known."""
    name, blind = scenario.radio.channel, scenario.radio.line_of_sight == "never"
    if name == RMA:
        return Known(highest_m=HIGHEST_NLOS_M if blind else HIGHEST_M)
    if name not in AERIAL:
        return Known(0.0, math.inf, math.inf)
    model = AERIAL[name]
    return Known(
        model.lowest_m, model.highest_nlos_m if blind else model.highest_m, model.farthest_m
    )


@contextmanager
def open_source(scenario: Scenario, trace_file: Path | None) -> Iterator[ChannelSource]:
    """The scenario's channel: the given trace, or ns-3 for as long as the context lasts.

    Raises:
        InputError: The trace does not fit the scenario.
    """
    if trace_file is None:
        with ns3_source(scenario) as source:
            yield source
        return
    try:
        trace = load_trace(trace_file)
    except TraceError as error:
        raise InputError(f"`trace`: {error}") from None
    if trace.uavs != scenario.uavs.count:
        raise InputError(
            f"`trace`: {trace_file}: gain has {trace.uavs} rows, one a UAV; "
            f"uavs.count is {scenario.uavs.count}"
        )
    yield replay(scenario, trace)


def replay(scenario: Scenario, trace: SlotTrace) -> Replay:
    """A given trace as the scenario's channel.

    Raises:
        InputError: The links ask it for what it does not say.
    """
    check_trace(scenario, trace)
    return Replay(trace)


def check_trace(scenario: Scenario, trace: SlotTrace | None) -> None:
    """Refuse links that ask a trace for what it does not say.

    Args:
        scenario: What its links are like.
        trace: What is replayed; None: the channel is simulated, and has positions and gains.

    Raises:
        InputError: Names the key.
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
            raise InputError(f"links.{key}: 'distance' needs positions, which the trace has not")
