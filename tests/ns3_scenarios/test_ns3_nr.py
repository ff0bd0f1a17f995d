# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What 5G-LENA delivers to UAVs that all have a backlog, against the rate model of NR.

These tests run where `testbed radio build nr` has built the module.
"""

from typing import Any

import numpy as np
import pytest

from ns3_scenarios import nr_module
from ns3_scenarios.radio import Air, Delivery, NrSettings, simulate_nr
from ns3_scenarios.trace import TwoWay
from orchestrator.engine.nr import Nr
from orchestrator.engine.plan import Allocation
from orchestrator.rounds.ns3_radio import settings_of
from orchestrator.scenario.loading import validate

pytestmark = pytest.mark.skipif(
    nr_module.find() is None, reason="5G-LENA is not built: NR over packets is not tested"
)
SKIPPED = 3
"""Slots at the start, in which schemes are not known yet."""
SLOTS = 8
TDD = {"duplex": "tdd"}


def delivered(
    snr_db: list[float], mhz: float = 20, beta: list[float] | None = None, **keys: Any
) -> tuple[Delivery, Any]:
    """A delivery of 5G-LENA, and the model's rates in bit/s, [2, K]; SNR in the whole bandwidth."""
    uavs = len(snr_db)
    tree: dict[str, Any] = {
        "paradigm": "sfl-sp",
        "uavs": {"count": uavs, "tx_power_w": [1.0] * uavs},
        "base_station": {"tx_power_w": 1.0},
        "emulation": {"mtu": 1400},
        "radio": {"access": "nr", "nr": keys}
        | dict.fromkeys(("uplink_bandwidth_hz", "downlink_bandwidth_hz"), 1e6 * mhz),
    }
    if beta is not None:
        tree["allocation"] = {"policy": "fixed", "beta": beta}
    scenario = validate(tree, "test")
    radio, cell = Nr.of(scenario), settings_of(scenario, "ns3-nr")
    assert isinstance(cell, NrSettings)
    blocks = np.array([radio.blocks[0], radio.band_blocks])[:, None]
    gains = blocks * radio.block_hz * radio.noise_w_per_hz * 10 ** (np.array(snr_db) / 10)
    up, down = (np.repeat(gain[:, None], SLOTS, axis=1) for gain in gains)
    noise_dbm = scenario.radio.noise_dbm_per_mhz - 60
    air = Air(up, down, SLOTS, 0.1, np.ones(uavs), 1.0, noise_dbm_per_hz=noise_dbm)
    equal = np.full(uavs, 1 / uavs)
    shares = Allocation(1, equal, equal if beta is None else np.array(beta), equal)
    rates = radio.link_rates(shares, TwoWay(gains[..., None]), in_turns=False)
    return simulate_nr(air, cell), np.stack([rates.uplink[:, 0], rates.gradient[:, 0]])


CELLS: dict[str, tuple[list[float], dict[str, Any]]] = {
    "a block remains, given to each in turn": ([30, 20, 10, 5], {}),
    "served in turns": ([30, 28, 26, 24, 22, 20, 18], {"mhz": 10}),
    "served in turns, and a block remains": ([20, 10, 8, 6], {"mhz": 5}),
    "own blocks": ([30, 20, 10, 25], {"scheduler": "shares", "beta": [0.5, 0.3, 0.1, 0.1]}),
    "fewer blocks than the band": ([30, 20], {"resource_blocks": 25}),
    "15 kHz": ([30, 20], {"subcarrier_spacing_khz": 15}),
    "60 kHz": ([30, 20, 12], {"subcarrier_spacing_khz": 60}),
    "256QAM": ([34, 25], {"highest_modulation": "256QAM"}),
    "fewer blocks than their own": ([30, 3, 1], {}),
    "TDD": ([30, 20, 10], TDD),
    "TDD with a gap": ([30, 20], TDD | {"tdd_pattern": "DDDSU"}),
    "100 MHz": ([34], {"mhz": 100}),
}


@pytest.mark.parametrize("name", CELLS)
def test_rates_are_those_of_the_model(name: str) -> None:
    snr_db, keys = CELLS[name]
    made, model_bps = delivered(snr_db, **keys)
    bps = made.bps[:, :, SKIPPED:].mean(axis=2)
    np.testing.assert_allclose(bps.sum(axis=1), model_bps.sum(axis=1), rtol=0.01)
    # Whole packets are counted.
    two_bps = 2 * 8 * 1400 / ((SLOTS - SKIPPED) * 0.1)
    np.testing.assert_allclose(bps, model_bps, rtol=0.01, atol=two_bps)


def test_a_uav_out_of_range_leaves_its_part_to_the_others() -> None:
    made, model_bps = delivered([30, 20, -8])
    bps = made.bps[:, :, SKIPPED:].mean(axis=2)
    # In the uplink, it has its power in few resource blocks.
    assert (model_bps[:, 2] > 0).tolist() == [True, False]
    np.testing.assert_allclose(bps[:, :2], model_bps[:, :2], rtol=0.02)
    assert bps[0, 2] > 1e5 > bps[1, 2]


def test_a_uav_with_a_single_block_is_heard() -> None:
    shares = {"scheduler": "shares", "beta": [0.94, 0.03, 0.03]}
    made, _ = delivered([20, 25, 10], **shares)
    assert (made.bps[:, :, SKIPPED:].min(axis=2) > 1e5).all()


def test_the_same_seed_gives_the_same_bytes() -> None:
    first, second = (delivered([30, 5])[0] for _ in range(2))
    assert first.bytes.tobytes() == second.bytes.tobytes()
    assert first.block_bits.tobytes() == second.block_bits.tobytes()
