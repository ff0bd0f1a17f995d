"""Channels for a scenario: from ns-3, or replayed from a file."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ns3_scenarios.channel import ChannelSettings, Ns3Channel
from ns3_scenarios.child import Launch
from ns3_scenarios.mobility import HIGHEST_M, HIGHEST_NLOS_M, Airspace, Model, Track
from ns3_scenarios.trace import ChannelSource, ChannelTrace, Replay, TraceError
from orchestrator.scenario.schema import GAUSS_MARKOV, Scenario
from testbed.core import plugins
from testbed.core.errors import InputError
from testbed.system import leftovers


def channel_settings(scenario: Scenario) -> ChannelSettings:
    """What decides the scenario's channel: scenarios of equal settings meet the same one."""
    model, parameters = scenario.mobility.model, scenario.mobility.parameters
    return ChannelSettings(
        bs_position_m=scenario.base_station.position_m,
        height_m=scenario.uavs.height_m,
        ring_m=tuple(scenario.uavs.ring_m),
        speed_m_s=scenario.mobility.speed_m_s,
        mean_speed_m_s=scenario.mobility.mean_speed_m_s,
        speed_deviation_m_s=scenario.mobility.speed_deviation_m_s,
        heading_deviation_rad=scenario.mobility.heading_deviation_rad,
        memory=scenario.mobility.memory,
        update_s=scenario.mobility.update_s,
        carrier_hz=scenario.radio.carrier_hz,
        line_of_sight=scenario.radio.line_of_sight,
        shadow_fading=scenario.radio.shadow_fading,
        slot_s=scenario.slot_s,
        seed=scenario.seed,
        mobility=None if model == GAUSS_MARKOV else (model, json.dumps(parameters, sort_keys=True)),
    )


def ns3_source(scenario: Scenario) -> Ns3Channel:
    """A channel that ns-3 makes as it is asked for; close it after use.

    Raises:
        InputError: A mobility model refuses its parameters.
        ChannelError: ns-3 cannot be started, or the model put a UAV where there is no channel.
    """
    return Ns3Channel(channel_settings(scenario), _track(scenario), ns3_launch())


def ns3_launch() -> Launch:
    """ns-3's process can do no more than compute, and bears the mark of this one."""
    return Launch(("testbed.system.confined",), leftovers.marked())


def _track(scenario: Scenario) -> Track | None:
    """The flight of a plugin's mobility model; None for ns-3's own."""
    name = scenario.mobility.model
    if name == GAUSS_MARKOV:
        return None
    model: Model = plugins.load(plugins.MOBILITY, name)
    space = Airspace(
        ring_m=tuple(scenario.uavs.ring_m),
        bs_position_m=scenario.base_station.position_m,
        height_m=scenario.uavs.height_m,
        update_s=scenario.mobility.update_s,
        seed=scenario.seed,
    )
    highest_m = HIGHEST_NLOS_M if scenario.radio.line_of_sight == "never" else HIGHEST_M
    try:
        return Track(name, model(space, **scenario.mobility.parameters), space, highest_m)
    except ValueError as error:
        raise InputError(f"mobility.parameters: {' '.join(str(error).split())}") from error


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
        trace = ChannelTrace.load(trace_file)
    except TraceError as error:
        raise InputError(f"--trace: {error}") from None
    if trace.uavs != scenario.uavs.count:
        raise InputError(
            f"--trace: {trace_file}: gain has {trace.uavs} rows, one a UAV; "
            f"uavs.tx_power_w has {scenario.uavs.count}"
        )
    yield Replay(trace)
