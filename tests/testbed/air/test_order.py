# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Which frames of a jittering link overtake others."""

import mmap
import socket
import struct

import numpy as np
import pytest

from testbed.air import line
from testbed.air.impairments import install
from testbed.core.impairment import Impairment
from testbed.system.netlink import attribute

MEAN_S, DEVIATION_S, SPACING_NS = 0.03, 0.003, 1_000_000


def due_ns(reorders: bool) -> np.ndarray:
    """When each of 2000 frames that arrive at even intervals goes on."""
    impairment = Impairment(MEAN_S, DEVIATION_S, None, 7, reorders=reorders)
    taken, given = socket.socketpair()
    with taken, given, mmap.mmap(-1, line._COUNTS.size + line._VALUES.size) as shared:
        line._VALUES.pack_into(
            shared, line._values_at(shared, 0), MEAN_S * 1e9, DEVIATION_S * 1e9, 0
        )
        way = line._Way(line.Tap(3, "uav1", taken, given), impairment, shared, 0)
        return np.array([way.due_ns(place * SPACING_NS) for place in range(2000)])


def test_the_line_keeps_the_order_where_nothing_else_is_said() -> None:
    assert (np.diff(due_ns(reorders=False)) >= 0).all()


def test_frames_of_the_line_overtake_as_independent_normal_delays_do() -> None:
    due = due_ns(reorders=True)
    late_s = (due - np.arange(2000) * SPACING_NS) * 1e-9
    assert late_s.mean() == pytest.approx(MEAN_S, abs=5 * DEVIATION_S / 2000**0.5)
    assert late_s.std() == pytest.approx(DEVIATION_S, rel=0.1)
    # A delay shorter by more than the interval: the normal's part below -1 / (3 sqrt 2), 0.407.
    assert (np.diff(due) < 0).mean() == pytest.approx(0.407, abs=0.06)


@pytest.mark.parametrize("by_slot", [False, True])
def test_netem_keeps_the_order_by_a_rate_and_overtakes_without(by_slot: bool) -> None:
    for reorders in (False, True):
        impairment = Impairment(MEAN_S, DEVIATION_S, None, 7, by_slot, reorders)
        rate = attribute(6, struct.pack("=IiIi", 4_000_000_000, 0, 0, 0))
        assert any(rate in order for order in install(3, impairment)) != reorders
