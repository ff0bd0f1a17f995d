# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A UAV that flies towards the base station until its goodput suffices, and then hovers.

Usage: until_fast.py MBPS SPEED_M_S X_M Y_M Z_M

It runs in the node of a UAV that starts at X, Y, Z, and sends to the base station by TCP. Ten times
per second it measures how much was acknowledged within the last second. Each line of its output has
the time in s, its distance from the base station in m, the goodput, and the rate and the
signal-to-noise ratio that its modem reports, in Mb/s and dB.
"""

import math
import os
import socket
import struct
import sys
import time

from testbed.pilot import Pilot

START_S, STEP_S = 0.3, 0.1
"""The time of the first step, and between steps. Fixed times give equal flights in all sessions."""
WINDOW_STEPS = 10
BYTES_ACKED = struct.Struct("Q")
AT = 120
"""Offset of `tcpi_bytes_acked` in the kernel's `tcp_info`."""


def main(wanted_mbps: float, speed_m_s: float, *at_m: float) -> None:
    """Fly."""
    pilot, (x, y, z) = Pilot(), at_m
    pilot.publish((x, y, z))
    time.sleep(max(0.0, START_S - STEP_S - pilot.now()))
    link = socket.create_connection((os.environ["TESTBED_BS"], 5001))
    link.setblocking(False)
    data, moving, acked = bytes(1 << 16), False, []
    for step in range(1, 1_000_000):
        while (left_s := START_S + STEP_S * step - pilot.now()) > 0:
            try:
                link.send(data)
            except BlockingIOError:
                time.sleep(min(left_s, 0.002))
        far_m = math.hypot(x, y)
        if moving:
            x, y = (each * (1 - speed_m_s * STEP_S / far_m) for each in (x, y))
        info = link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, AT + BYTES_ACKED.size)
        acked = [*acked[-WINDOW_STEPS:], BYTES_ACKED.unpack_from(info, AT)[0]]
        mbps = 8e-6 * (acked[-1] - acked[0]) / (STEP_S * max(1, len(acked) - 1))
        moving = mbps < wanted_mbps and len(acked) > WINDOW_STEPS // 2 and far_m > 50
        away = speed_m_s / far_m if moving else 0.0
        pilot.publish((x, y, z), (-away * x, -away * y, 0.0), START_S + STEP_S * step)
        modem = pilot.link()
        rate_mbps = modem.uplink_bps / 1e6
        numbers = START_S + STEP_S * step, math.hypot(x, y), mbps, rate_mbps, modem.uplink_snr_db
        print(*(f"{number:.3f}" for number in numbers), flush=True)


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
