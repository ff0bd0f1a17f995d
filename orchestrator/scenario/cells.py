# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The base stations of a scenario's LTE or NR network, and the noise at its receivers."""

import math

from ns3_scenarios.cells import Cells
from orchestrator.scenario.schema import Scenario

BLOCK_HZ = 180e3
"""Bandwidth of a resource block, TS 36.211, section 6.2.3: 12 subcarriers of 15 kHz."""


def block_hz(scenario: Scenario) -> float:
    """Bandwidth of a resource block: 12 subcarriers."""
    radio = scenario.radio
    is_nr = radio.kind.cell == "nr"
    return 12e3 * radio.nr.subcarrier_spacing_khz if is_nr else BLOCK_HZ


def band_blocks(scenario: Scenario) -> tuple[int, int]:
    """Numbers of resource blocks of the uplink's and the downlink's bandwidth."""
    radio = scenario.radio
    known = radio.carrier_blocks
    return known[radio.uplink_bandwidth_hz], known[radio.downlink_bandwidth_hz]


def noise_w_per_hz(scenario: Scenario) -> float:
    """Noise at the cell's receivers with the interference margin, divided by the antenna gains."""
    cell = scenario.radio.cell
    losses_db = cell.noise_figure_db + cell.interference_margin_db - cell.antenna_gain_db
    noise_dbm_per_hz = scenario.radio.noise_dbm_per_mhz - 60 + losses_db
    return float(10 ** (noise_dbm_per_hz / 10 - 3))


def left_blocks(blocks: int, load: float) -> int:
    """The resource blocks that background users leave on average, a whole number."""
    return math.floor(blocks * (1 - load) + 1e-9)


def cells_of(scenario: Scenario) -> Cells | None:
    """The base stations of a scenario; None: there is one."""
    radio = scenario.radio
    if not radio.cells:
        return None
    band = band_blocks(scenario)
    block_w = block_hz(scenario) * noise_w_per_hz(scenario)
    uplink_blocks = left_blocks(radio.cell.resource_blocks or band[0], radio.cell.background.load)
    return Cells(
        power_w=(scenario.base_station.tx_power_w, *(cell.tx_power_w for cell in radio.cells)),
        uav_power_w=tuple(scenario.fleet.tx_power_w.tolist()),
        # The uplink is sent in the blocks that the scheduler assigns, the downlink in all.
        noise_w=(uplink_blocks * block_w, band[1] * block_w),
        hysteresis_db=radio.a3_hysteresis_db if radio.handover == "a3" else None,
        time_to_trigger_s=radio.a3_time_to_trigger_s,
        load=(0.0, *(cell.load for cell in radio.cells)),
    )
