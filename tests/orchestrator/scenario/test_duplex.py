# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""NR slots of each direction: shares of the time by hand, and waiting times."""

import numpy as np
import pytest

from orchestrator.scenario.duplex import (
    GRANT_SLOTS,
    ahead_slots,
    grant_delays_s,
    idle_delays_s,
    slot_shares,
)
from orchestrator.scenario.schema import Nr


def tdd(pattern, spacing_khz=30):
    return Nr(duplex="tdd", tdd_pattern=pattern, subcarrier_spacing_khz=spacing_khz)


@pytest.mark.parametrize(
    ("pattern", "up", "down"),
    [
        ("DDDU", 1 / 4, 3 / 4),
        ("DU", 1 / 2, 1 / 2),
        ("DDDSU", 1 / 5, (3 + 12 / 13) / 5),
        ("DDDDDDDSUU", 2 / 10, (7 + 12 / 13) / 10),
        ("UDDD", 1 / 4, 3 / 4),
        ("DSUUDDSUUD", 4 / 10, (4 + 2 * 12 / 13) / 10),
    ],
)
def test_the_directions_share_the_carrier(pattern, up, down):
    assert slot_shares(tdd(pattern)) == pytest.approx((up, down))
    assert slot_shares(Nr(tdd_pattern=pattern)) == (1, 1)


@pytest.mark.parametrize(
    ("cell", "slots"),
    [
        (Nr(), 2),
        (tdd("DDDU"), 2),
        (tdd("DDDSU"), 2),
        # The second uplink slot before is an uplink slot, too.
        (tdd("DSUUU"), (2 + 2 + 3) / 3),
        (tdd("DU"), 3),
        (tdd("UUUD"), (5 + 2 + 3) / 3),
    ],
)
def test_an_uplink_grant_is_sent_in_a_slot_with_a_downlink(cell, slots):
    assert ahead_slots(cell) == pytest.approx((slots, 2))


@pytest.mark.parametrize("cell", [Nr(), Nr(subcarrier_spacing_khz=60), tdd("DDDU")])
def test_the_parts_of_the_delay_are_the_whole(cell):
    before_s, after_s = grant_delays_s(cell)
    assert np.add(before_s, after_s) + cell.slot_s == pytest.approx(idle_delays_s(cell))
    # Data are decided upon before their slot begins, and after they have come.
    assert (np.array(before_s) > np.multiply(ahead_slots(cell), cell.slot_s)).all()


@pytest.mark.parametrize(
    ("cell", "measured_ms"),
    [
        (Nr(), 9.0),
        (Nr(subcarrier_spacing_khz=60), 6.0),
        (tdd("DDDU"), 11.5),
    ],
)
def test_idle_round_trips_are_near_those_of_5g_lena(cell, measured_ms):
    assert 1e3 * sum(idle_delays_s(cell)) == pytest.approx(measured_ms, abs=0.13)


def walked(cell, step=0.01):
    """Delays by following packets that arrive at all times of a pattern, in NR slots."""
    pattern = cell.tdd_pattern if cell.duplex == "tdd" else "B"
    count = len(pattern)

    def first(own, from_slot):
        slot = int(np.ceil(from_slot - 1e-9))
        while pattern[slot % count] not in own + "B":
            slot += 1
        return slot

    up, down = [], []
    for at in np.arange(step / 2, count, step):
        up.append(first("U", first("U", at) + GRANT_SLOTS) + 3 - at)
        down.append(first("DS", at) + 3 - at)
    return tuple(1.5e-3 + cell.slot_s * float(np.mean(each)) for each in (up, down))


@pytest.mark.parametrize(
    "cell",
    [
        Nr(subcarrier_spacing_khz=15),
        Nr(),
        *map(tdd, ("DDDU", "DU", "DDDSU", "DDDDDDDSUU", "UUUD", "DSUUDDSUUD", "SUDD")),
        tdd("DDDSU", 60),
    ],
    ids=lambda cell: f"{cell.duplex}-{cell.tdd_pattern}-{cell.subcarrier_spacing_khz}",
)
def test_a_packet_waits_for_the_slots_of_its_direction(cell):
    assert idle_delays_s(cell) == pytest.approx(walked(cell), rel=1e-6)
