# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Which frames of a jittering link overtake others."""

import json
import mmap
import socket
import struct

import numpy as np
import pytest
from in_guest import printed

from testbed.core.impairment import Impairment
from testbed.network import line
from testbed.network.impairments import install
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


COUNT = 300
OVER_A_LINK = f"""
import json, socket, struct, sys, time
from testbed.core.impairment import Impairment
from testbed.network.fabric import impair, link_addresses, wire
from testbed.network.shaping import Shape
from testbed.system import linux
from testbed.system.arrivals import NOTE_BYTES, note_arrivals, noted_ns

def arrivals(seed, reorders):
    base_station, uav = linux.new_network_namespace(), linux.new_network_namespace()
    fabric = wire(base_station, [uav], Shape(congestion_control="reno", impaired=True))
    way = Impairment({MEAN_S}, {DEVIATION_S}, None, seed, reorders=reorders)
    assert impair(fabric, [way], [Impairment()]) is None, "netem does it"
    linux.enter(base_station)
    with socket.socket(type=socket.SOCK_DGRAM) as there, fabric.uavs[0].netlink as netlink:
        there.bind((link_addresses(1)[0], 9))
        note_arrivals(there)
        there.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        linux.enter(uav)
        netlink.transact(fabric.uavs[0].ends[0].change(1e10))
        with socket.socket(type=socket.SOCK_DGRAM) as here:
            here.connect(there.getsockname())
            time.sleep(1)  # Until the link is open.
            began_ns = time.time_ns()
            for number in range({COUNT}):
                time.sleep(max(0, began_ns + number * {SPACING_NS} - time.time_ns()) * 1e-9)
                here.send(struct.pack("=I", number))
        time.sleep(1)
        there.setblocking(False)
        for _ in range({COUNT}):
            number, notes, _, _ = there.recvmsg(4, NOTE_BYTES)
            yield *struct.unpack("=I", number), noted_ns(notes) - began_ns

print(json.dumps([list(arrivals(*case)) for case in json.loads(sys.argv[1])]))
"""


@pytest.mark.guest
def test_netem_lets_frames_overtake_on_a_link_or_keeps_them_in_order() -> None:
    cases = [(7, True), (7, True), (8, True), (7, False)]
    first, again, other, kept = map(np.array, json.loads(printed(OVER_A_LINK, json.dumps(cases))))
    for numbers in (found[:, 0] for found in (first, again, other, kept)):
        assert sorted(numbers) == list(range(COUNT))
    assert (np.diff(first[:, 0]) < 0).sum() > COUNT / 10
    assert (first == again).all()
    assert (first[:, 0] != other[:, 0]).any()
    assert (np.diff(kept[:, 0]) == 1).all()
    # The same delays were drawn: who was quicker than one before has waited for that one.
    of_each_ns = first[first[:, 0].argsort(), 1]
    late_s = (of_each_ns - np.arange(COUNT) * SPACING_NS) * 1e-9
    assert late_s.std() == pytest.approx(DEVIATION_S, rel=0.15)
    np.testing.assert_allclose(np.maximum.accumulate(of_each_ns), kept[:, 1], atol=10_000)
