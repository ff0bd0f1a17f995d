# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How a cell's airtime is divided among its downlinks."""

from math import inf

import pytest

from testbed.network.airtime import Airtime, SlotRates, divide
from testbed.network.shaping import QueueCount


@pytest.mark.parametrize(
    ("wanted", "shares"),
    [
        ([0, 0], [1, 1]),
        ([inf, 0, 0], [1, 0.5, 0.5]),
        ([inf, inf, 0], [0.5, 0.5, 1 / 3]),
        ([inf, 0.1, inf], [0.45, 0.1, 0.45]),
        ([0.2, 0.3, 0], [0.7, 0.8, 0.5]),
        ([0.9, 0.9], [0.5, 0.5]),
    ],
)
def test_shares_are_max_min_fair(wanted, shares) -> None:
    assert divide(wanted) == pytest.approx(shares)


def test_bytes_count_by_the_time_that_they_take() -> None:
    airtime = Airtime(3)
    by_time = [(0, 1 / active) for active in (1, 2, 3)]
    # A tenth of 10 ms at 10 and at 40 Mb/s; the third has a queue.
    counts = [QueueCount(1250, 0, 0, 0), QueueCount(5000, 0, 0, 0), QueueCount(0, 0, 0, 100)]
    airtime.look(counts, [10_000_000] * 3, SlotRates([[10e6, 40e6, 20e6]], by_time), 0)
    assert airtime.shares == pytest.approx([0.125, 0.125, 0.75])
    airtime.look(counts, [20_000_000] * 3, SlotRates([[10e6, 40e6, 0.0]], by_time), 0)
    assert airtime.shares == pytest.approx([1, 1, 1])
