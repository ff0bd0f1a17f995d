# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The base stations of a scenario's LTE network, and the noise at its receivers."""

from ns3_scenarios.cells import Cells
from orchestrator.scenario.schema import LTE_BLOCKS, Scenario

BLOCK_HZ = 180e3
"""Bandwidth of a resource block, TS 36.211, section 6.2.3."""


def noise_w_per_hz(scenario: Scenario) -> float:
    """Noise at LTE's receivers with the interference margin, divided by the antenna gains."""
    lte = scenario.radio.lte
    losses_db = lte.noise_figure_db + lte.interference_margin_db - lte.antenna_gain_db
    noise_dbm_per_hz = scenario.radio.noise_dbm_per_mhz - 60 + losses_db
    return float(10 ** (noise_dbm_per_hz / 10 - 3))


def cells_of(scenario: Scenario) -> Cells | None:
    """The base stations of a scenario; None: there is one."""
    radio = scenario.radio
    if not radio.cells:
        return None
    band = LTE_BLOCKS[radio.uplink_bandwidth_hz], LTE_BLOCKS[radio.downlink_bandwidth_hz]
    block_w = BLOCK_HZ * noise_w_per_hz(scenario)
    return Cells(
        power_w=(scenario.base_station.tx_power_w, *(cell.tx_power_w for cell in radio.cells)),
        uav_power_w=tuple(scenario.fleet.tx_power_w.tolist()),
        # The uplink is sent in the blocks that the scheduler assigns, the downlink in all.
        noise_w=((radio.lte.resource_blocks or band[0]) * block_w, band[1] * block_w),
        hysteresis_db=radio.a3_hysteresis_db if radio.handover == "a3" else None,
        time_to_trigger_s=radio.a3_time_to_trigger_s,
    )
