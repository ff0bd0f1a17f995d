# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The radio of ns-3 as what carries the frames of an emulated network: its program and channel."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ns3_scenarios import build
from ns3_scenarios.radio import LteSettings, cell_settings
from ns3_scenarios.trace import ChannelTrace, SlotTrace, SlotValues, TwoWay, both_ways
from orchestrator.engine.plan import Array
from orchestrator.packet_simulation.radio import air_of, settings_of
from orchestrator.scenario.schema import ResolvedScenario
from testbed.core.errors import InputError
from testbed.network.taps import RadioProgram

LOG = "radio.bin"
"""Name of the file of the radio's events in the folder of a run or session."""
STEP_S = {"lte": 1e-3, "wifi": 1e-4}
"""Simulated time between two moments at which packets enter and leave ns-3: a TTI of LTE, and for
Wi-Fi less than an exchange of frames takes."""
CLEAR_GAIN = 1e-9
"""Gain of all links while UAVs attach to an LTE cell."""


@dataclass(frozen=True)
class RadioAir:
    """The radio of a scenario in ns-3, which carries the frames of its network."""

    program: RadioProgram
    clear: tuple[Array, ...]
    """A slot on which UAVs connect, as `channel` returns it."""
    origin_m: tuple[float, float, float] | None
    """Position of the base station; None: the radio needs no positions."""
    typical: ChannelTrace
    """A slot of the channel, with which the radio is calibrated."""

    @classmethod
    def of(cls, scenario: ResolvedScenario, trace: SlotTrace, folder: Path) -> "RadioAir":
        """The radio of a scenario.

        Args:
            scenario: The scenario.
            trace: Its channel.
            folder: Folder of the run or session, for the log.

        Raises:
            InputError: ns-3 lacks what the scenario's cell has, or cannot have this channel.
            ChannelError: ns-3's models cannot be built.
        """
        radio = settings_of(scenario, f"ns3-{scenario.radio.access}")
        assert radio is not None
        first = trace.at(np.zeros(1, int))
        air = air_of(scenario, first, radio)
        try:
            settings = cell_settings(air, radio)
        except ValueError as error:
            raise InputError(str(error)) from None
        origin_m = scenario.base_station.position_m if settings["placed"] else None
        clear = channel_of(first.values, first.position_m, origin_m)
        if isinstance(radio, LteSettings):
            clear = tuple(np.full_like(gain, CLEAR_GAIN) for gain in clear)
        settings |= {
            "mode": "live",
            "log": str((folder / LOG).resolve()),
            "step_s": STEP_S[scenario.radio.access],
            "dilation": scenario.dilation,
        }
        program = RadioProgram(
            argv=(str(build.library("radio")),),
            settings=json.dumps(settings),
            first=tuple(np.concatenate([each.ravel() for each in clear]).tolist()),
        )
        typical = trace.at(np.full(1, trace.slots // 2))
        assert isinstance(typical, ChannelTrace)  # or `air_of` would have refused it
        return cls(program, clear, origin_m, typical)

    def channel(
        self, trace: SlotTrace, values: SlotValues, first: int, end: int
    ) -> tuple[Array, ...]:
        """What the radio process reads of slots: see `Injector.channel`.

        Args:
            trace: The channel.
            values: Its gains, as faults change them.
            first: The first slot.
            end: The slot after the last.
        """
        position_m = None if trace.position_m is None else trace.position_m[:, first:end]
        return channel_of(values[:, first:end], position_m, self.origin_m)


def channel_of(
    values: SlotValues, position_m: Array | None, origin_m: Sequence[float] | None
) -> tuple[Array, ...]:
    """What the radio process reads of n slots.

    Args:
        values: Gains.
        position_m: Positions of the UAVs, shape [K, n, 3].
        origin_m: Position of the base station; None: positions are not needed.

    Returns:
        Gains of uplinks and downlinks with small-scale fading, [n, K, B] each, and, if needed,
        positions relative to the base station, [n, K, 3].
    """
    up, down = both_ways(values)
    fading = values.fading if isinstance(values, TwoWay) else None
    if fading is None:
        ways = [up.T[..., None], down.T[..., None]]
    else:
        faded = (gain[..., None] * power for gain, power in zip((up, down), fading, strict=True))
        ways = [each.transpose(1, 0, 2) for each in faded]
    if origin_m is not None:
        assert position_m is not None
        ways.append((position_m - origin_m).transpose(1, 0, 2))
    return tuple(ways)
