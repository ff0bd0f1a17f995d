# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The radio of ns-3 that carries the frames of an emulated network: its program and channel."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ns3_scenarios.radio import cell_settings, program_of
from ns3_scenarios.trace import ChannelTrace, SlotTrace, SlotValues, both_ways
from orchestrator.engine.plan import Array, fixed_allocation
from orchestrator.engine.radio import of_gains
from orchestrator.rounds.ns3_radio import air_of, settings_of
from orchestrator.scenario.schema import ResolvedScenario
from testbed.core.errors import InputError
from testbed.network.taps import RadioProgram

LOG = "radio.bin"
"""Name of the file of the radio's events in the folder of a run or session."""
STEP_S = {"lte": 1e-3, "nr": 1e-3, "wifi": 1e-4}
"""Simulated time between two moments at which packets enter and leave ns-3: a TTI of LTE, and for
Wi-Fi less than an exchange of frames takes."""
CLEAR_GAIN, LEAST_GAIN = 1e-9, 1e-30
"""The least gain of a UAV to its strongest cell while UAVs connect, and the gain that an outage has
before gains are raised to this."""


@dataclass(frozen=True)
class RadioAir:
    """The radio of a scenario in ns-3, which carries the frames of its network."""

    program: RadioProgram
    clear: tuple[Array, ...]
    """A slot on which UAVs connect, as `channel` returns it."""
    origin_m: Sequence[Sequence[float]] | None
    """Position of each UAV's base station; None: the radio needs no positions."""
    typical: ChannelTrace
    """A slot of the channel, with which the radio is calibrated: see `typical_of`."""
    missing: Sequence[str] = ()
    """A message for each UAV that cannot be calibrated."""

    @classmethod
    def of(cls, scenario: ResolvedScenario, trace: SlotTrace, folder: Path) -> "RadioAir":
        """The radio of a scenario.

        Args:
            scenario: The scenario.
            trace: Channel of the scenario.
            folder: Folder of the run or session, for the log.

        Raises:
            InputError: ns-3 lacks a feature of the scenario's cell, or cannot have this channel.
            ChannelError: ns-3's models cannot be built.
        """
        radio = settings_of(scenario, f"ns3-{scenario.radio.access}")
        assert radio is not None
        first = trace.at(np.zeros(1, int))
        air = air_of(scenario, trace, radio)
        try:
            settings = cell_settings(air, radio)
        except ValueError as error:
            raise InputError(str(error)) from None
        origin_m = None
        if settings["placed"]:
            stations = zip(scenario.at_edges, scenario.members, strict=True)
            at_m = {k: there.base_station.position_m for there, own in stations for k in own}
            origin_m = [at_m[client] for client in sorted(at_m)]
        up, down, *position_m = channel_of(first, first.values, origin_m)
        clear = (_cleared(up), _cleared(down), *position_m)
        settings |= {
            "mode": "live",
            "log": str((folder / LOG).resolve()),
            "step_s": STEP_S[scenario.radio.access],
            "dilation": scenario.dilation,
            "mtu": scenario.emulation.mtu,
            "one_entry": scenario.emulation.clock == "virtual",
        }
        program = RadioProgram(
            argv=(str(program_of(settings)),),
            settings=json.dumps(settings),
            first=tuple(np.concatenate([each.ravel() for each in clear]).tolist()),
        )
        assert isinstance(trace, ChannelTrace)  # or `air_of` would have refused it
        return cls(program, clear, origin_m, *typical_of(scenario, trace))

    def channel(
        self, trace: SlotTrace, values: SlotValues, first: int, end: int
    ) -> tuple[Array, ...]:
        """Input of the radio process for slots: see `Injector.channel`.

        Args:
            trace: The channel.
            values: Its values, which are 0 where faults silence links.
            first: The first slot.
            end: The slot after the last.
        """
        return channel_of(trace.at(np.arange(first, end)), values[:, first:end], self.origin_m)


def typical_of(
    scenario: ResolvedScenario, trace: ChannelTrace
) -> tuple[ChannelTrace, Sequence[str]]:
    """A slot in which all links have a channel if they ever do, and messages for the others.

    Each UAV has its gains of the slot that is nearest to the middle of the trace and in which both
    of its links carry something by the rate model. A UAV that has no such slot has no channel.
    """
    middle = trace.slots // 2
    typical = trace.at(np.full(1, middle))
    if scenario.radio.kind.cell is None or scenario.radio.cells:
        return typical, ()
    steady = trace.replaced(fading=None)
    rates = of_gains(scenario).link_rates(
        fixed_allocation(scenario), steady.values, in_turns=False, active=1
    )
    carries = rates.uplink > 0, rates.gradient > 0
    ways = [gain.copy() for gain in both_ways(typical.replaced(fading=None).values)]
    missing = []
    for k, there in enumerate(carries[0] & carries[1]):
        slots = np.flatnonzero(there)
        if slots.size:
            slot = slots[np.abs(slots - middle).argmin()]
            for way, gain in zip(ways, both_ways(steady.values), strict=True):
                way[k] = gain[k, slot]
            continue
        lacking = " and ".join(
            name
            for name, row in zip(
                ("uplink", "downlink"), (carries[0][k], carries[1][k]), strict=True
            )
            if not row.any()
        )
        missing.append(
            f"UAV {k + 1} has no {lacking or 'slot with an uplink and a downlink'}: it is not "
            "calibrated"
        )
        for way in ways:
            way[k] = 0
    return typical.replaced(gain=ways[0], gain_down=ways[1]), missing


def _cleared(gain: Array) -> Array:
    """The gains of a direction, [1, 1 + C, K, B], with those of weak UAVs raised.

    A UAV's gains are raised by the same factor for all cells, so that it connects to the strongest
    one.
    """
    strongest = gain.mean(axis=3).max(axis=1)[:, None, :, None]
    factor = CLEAR_GAIN / strongest.clip(LEAST_GAIN, CLEAR_GAIN)
    raised: Array = gain.clip(LEAST_GAIN) * factor
    return raised


def channel_of(
    trace: SlotTrace, values: SlotValues, origin_m: Sequence[Sequence[float]] | None
) -> tuple[Array, ...]:
    """Input of the radio process for n slots.

    Args:
        trace: The channel of these slots.
        values: Its values, which are 0 where faults silence links.
        origin_m: See `RadioAir`.

    Returns:
        Gains of uplinks and downlinks with small-scale fading, [n, 1 + C, K, B] each with C further
        base stations, and, if needed, positions relative to the base station, [n, K, 3].
    """
    assert isinstance(trace, ChannelTrace)
    ways = []
    for way, (gain, value) in enumerate(zip(trace.of_all_cells, both_ways(values), strict=True)):
        of_cells = np.where(value > 0, gain, 0.0)[..., None]
        if trace.fading is not None:
            of_cells = of_cells * trace.fading[way]
        ways.append(of_cells.transpose(2, 0, 1, 3))
    if origin_m is not None:
        assert trace.position_m is not None
        ways.append((trace.position_m - np.array(origin_m)[:, None]).transpose(1, 0, 2))
    return tuple(ways)
