# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The rates of links in several cells: which links interfere, and for how long."""

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ns3_scenarios.cells import Cells
from ns3_scenarios.trace import ChannelTrace, TwoWay, both_ways
from orchestrator.engine.core_library import Links, LinkState, Medium, Slots, library
from orchestrator.engine.lte import Lte
from orchestrator.scenario.cells import cells_of
from orchestrator.scenario.loading import validate
from testbed.core.errors import InputError

UP, DOWN = 0, 1
SLOT_S, SLOTS = 0.1, 4000
OWN, OTHER = 3e-11, 4e-12
"""Gains of a UAV to its own cell and to the other one."""


def radio_of(load: float = 0.0, uavs: int = 2, **lte: Any) -> tuple[Lte, Cells]:
    tree = {
        "uavs": {"count": uavs, "tx_power_w": 0.2},
        "radio": {
            "access": "lte",
            "cells": [{"position_m": [900, 0, 30], "load": load}],
            "lte": {"resource_blocks": 50, **lte},
        },
    }
    scenario = validate(tree, "cells")
    cells = cells_of(scenario)
    assert cells is not None
    return Lte.of(scenario), cells


def values_of(cells: Cells, own: list[int]) -> TwoWay:
    """UAVs in these of two cells."""
    gain = np.array([[OWN if cell == own_ else OTHER for own_ in own] for cell in (0, 1)])
    gain = gain[..., None].repeat(SLOTS, axis=2)
    trace = ChannelTrace(gain=gain[0], slot_s=SLOT_S, gain_cells=gain[1:])
    values = cells.served(trace).values
    assert isinstance(values, TwoWay)
    assert values.cells is not None
    assert values.cells[:, 0].tolist() == own
    return values


class Band:
    """A shared band, for transfers that begin at time 0."""

    def __init__(self, radio: Lte, values: Any, answers: float = 0.0):
        clients = values.shape[0]
        ones = np.full(clients, 1 / clients)
        links = Links(radio.bands(), False, ones, ones)
        self._air = LinkState(Slots(values, SLOT_S), links, None, Medium(clients, answers), 0.0)

    def ends_s(self, *transfers: tuple[int, int, float]) -> list[float]:
        """The end of each transfer, a direction, a UAV from 0, and a number of bits."""
        for way, k, bits in transfers:
            library().engine_begin(self._air.address, way, k, bits, 0.0)
        ends, now = {}, ctypes.c_double()
        while len(ends) < len(transfers):
            at = library().engine_advance(self._air.address, 1e9, ctypes.addressof(now))
            assert at >= 0
            ends[at % 2, at // 2] = now.value
        return [ends[way, k] for way, k, _ in transfers]


def bps(radio: Lte, values: Any, way: int, k: int, active: int = 1) -> float:
    """The rate of a UAV while `active` UAVs of its cell send, at these values."""
    ones = np.full(values.shape[0], 1 / values.shape[0])
    plain = TwoWay(np.stack(both_ways(values)))
    shares = type("Shares", (), {"beta": ones, "rho": ones})
    found = radio.link_rates(shares, plain, in_turns=False, active=active)
    return float((found.uplink if way == UP else found.gradient)[k, 0])


def clear_of(values: TwoWay) -> TwoWay:
    """The same UAVs without interference."""
    return TwoWay(np.full_like(values.values, OWN))


@pytest.mark.parametrize("way", [UP, DOWN])
def test_only_links_that_send_interfere(way: int) -> None:
    radio, cells = radio_of()
    values = values_of(cells, [0, 1])
    with_other, alone = (bps(radio, each, way, 0) for each in (values, clear_of(values)))
    assert 0 < with_other < 0.6 * alone
    first, second = Band(radio, values).ends_s((way, 0, with_other), (way, 1, 2.0 * with_other))
    assert first == pytest.approx(1.0)
    assert second == pytest.approx(1.0 + with_other / alone)
    # Links of the other direction do not interfere, if nothing is answered.
    ends = Band(radio, values).ends_s((way, 0, alone), (1 - way, 1, alone))
    assert ends[0] == pytest.approx(1.0)
    # Nor do those of the same cell, which share it.
    same = values_of(cells, [0, 0])
    shared = bps(radio, clear_of(same), way, 0, 2)
    assert Band(radio, same).ends_s((way, 0, shared), (way, 1, shared)) == pytest.approx([1.0, 1.0])


def test_the_uplinks_of_a_cell_interfere_in_their_parts_of_the_band() -> None:
    """Each of two has half of the band and all of its power there: twice the density."""
    radio, cells = radio_of(uavs=3)
    values = values_of(cells, [0, 1, 1])
    assert values.sites is not None
    strength = values.sites.strength[UP, 0, :, 0]
    snr = strength[0] / (1 + 2 * strength[1])
    gain = OWN * snr / strength[0]
    wanted = bps(radio, TwoWay(np.full((2, 3, SLOTS), gain)), UP, 0)
    ends = Band(radio, values).ends_s((UP, 0, wanted), (UP, 1, 1e9), (UP, 2, 1e9))
    assert ends[0] == pytest.approx(1.0)


@pytest.mark.parametrize("load", [0.0, 0.4, 1.0])
def test_a_load_interferes_for_its_part_of_the_time(load: float) -> None:
    radio, cells = radio_of(load)
    values = values_of(cells, [0, 0])
    interfered = TwoWay(np.stack(both_ways(values_of(cells, [0, 1]))))
    clear, full = (bps(radio, each, DOWN, 0) for each in (clear_of(values), interfered))
    wanted = (1 - load) * clear + load * full
    assert Band(radio, values).ends_s((DOWN, 0, wanted)) == pytest.approx([1.0])
    # So do the rates while all send, and the rate of gradients in turns.
    ones = np.full(2, 0.5)
    shares = type("Shares", (), {"beta": ones, "rho": ones})
    together, turns = (
        radio.link_rates(shares, values, in_turns=in_turns).gradient[0, 0]
        for in_turns in (False, True)
    )
    assert together == pytest.approx(wanted / 2)
    assert turns == pytest.approx(wanted)
    # The uplink has no load.
    up = bps(radio, clear_of(values), UP, 0)
    assert Band(radio, values).ends_s((UP, 0, up)) == pytest.approx([1.0])


def test_an_uplink_is_answered_in_the_downlink_of_its_cell() -> None:
    radio, cells = radio_of()
    values = values_of(cells, [0, 1])
    clear, full = (bps(radio, each, DOWN, 0) for each in (clear_of(values), values))
    wanted = 0.75 * clear + 0.25 * full
    ends = Band(radio, values, answers=0.25).ends_s((DOWN, 0, wanted), (UP, 1, 1e9))
    assert ends[0] == pytest.approx(1.0)


def test_a_handover_takes_its_part_of_a_slot() -> None:
    radio, cells = radio_of()
    values = values_of(cells, [0, 1])
    assert values.sites is not None
    kept = np.ones((2, SLOTS))
    kept[0, 3] = 0.7
    values = replace(values, sites=replace(values.sites, kept=kept))
    rate = bps(radio, clear_of(values), UP, 0)
    (end_s,) = Band(radio, values).ends_s((UP, 0, rate))
    assert end_s == pytest.approx(1.03)


def test_an_outage_stays_one() -> None:
    """A fault silences a link, whose signal still is that of the channel."""
    radio, cells = radio_of()
    values = values_of(cells, [0, 1])
    silent = values.values.copy()
    silent[:, 0, :10] = 0.0
    rate = bps(radio, clear_of(values), DOWN, 0)
    ends = Band(radio, replace(values, values=silent)).ends_s((DOWN, 0, rate))
    assert ends == pytest.approx([2.0])


@pytest.mark.parametrize(
    ("lte", "says"),
    [
        (
            {"scheduling_request_s": 0.003},
            "scheduling_request_s: must be one of 0.001, .*not 0.003",
        ),
        ({"scheduling_request_s": 0}, "scheduling_request_s: must be one of 0.001, .*not 0"),
        ({"background": {"users": 3}}, "users: needs a load above 0, not 0"),
        ({"background": {"load": 0.96}}, "load"),
        ({"background": {"load": -0.1}}, "load"),
        (
            {"background": {"load": 0.95}, "resource_blocks": 6},
            "lte.background.load: must leave one of 6 resource blocks, at most 0.833, not 0.95",
        ),
        ({"grants_per_tti": 0}, "grants_per_tti"),
    ],
)
def test_a_cell_that_cannot_be_is_refused(lte: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        radio_of(**lte)


def test_background_users_and_the_control_channel_in_the_model() -> None:
    plain, _ = radio_of()
    loaded, cells = radio_of(background={"load": 0.31, "users": 4}, grants_per_tti=1)
    values = values_of(cells, [0, 0])
    assert (plain.blocks, loaded.blocks) == ((50, 50), (34, 50))
    ratio = loaded.steps[DOWN].bps / np.where(plain.steps[DOWN].bps > 0, plain.steps[DOWN].bps, 1)
    assert set(ratio.ravel().round(9)) == {0.0, 0.69}
    # With one grant per TTI, two uplinks have all blocks in every second TTI.
    both = bps(loaded, clear_of(values), UP, 0, 2)
    assert both == pytest.approx(bps(loaded, clear_of(values), UP, 0) / 2)
