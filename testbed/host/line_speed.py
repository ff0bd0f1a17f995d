# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Frame rate of the process of `testbed.network.line` on this machine.

It is measured on a link in temporary namespaces. Run as a program, this module prints the number.
"""

import socket
import time

from testbed.core.impairment import Impairment
from testbed.host.trial import output_of
from testbed.network.fabric import Fabric, link_addresses, wire
from testbed.network.line import Line, Tap
from testbed.network.shaping import Shape
from testbed.system import linux

_DELAY_S = 0.2e-3
_FRAMES, _TRIES = 1000, 4
"""Frames per trial, and number of trials; the best one counts, because other programs may disturb
it."""
_UNDER_WAY = 64
"""Largest number of frames in flight, which fits into every socket buffer."""
_PAYLOAD = bytes(1400)
_OPEN_BPS = 1e10
_LIMIT_S = 30.0


def measure() -> float | None:
    """Frames per second; None if the kernel has netem and needs no process.

    Raises:
        RunError: The measurement failed.
    """
    return float(output_of(__name__, _LIMIT_S, "links", "the frame rate of links")) or None


def _main() -> None:
    """Print frames per second, or 0 if the kernel has netem; started by `measure`."""
    try:
        linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNET)
    except OSError:
        linux.unshare(linux.CLONE_NEWNET)
    base_station, uav = linux.new_network_namespace(), linux.new_network_namespace()
    fabric = wire(base_station, [uav], Shape(congestion_control="reno", impaired=True))
    print(max(_try(fabric, uav)) if fabric.up_taps else 0.0)


def _try(fabric: Fabric, uav: int) -> list[float]:
    (way,) = fabric.up_taps
    line = Line([(way, Impairment(_DELAY_S))])
    linux.enter(uav)
    (end,) = fabric.uavs[0].ends
    fabric.uavs[0].netlink.transact(end.change(_OPEN_BPS))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        return [_one(line, way, sender) for _ in range(_TRIES)]


def _one(line: Line, way: Tap, sender: socket.socket) -> float:
    before = line.count(way).sent_frames
    sent, began_s = 0, time.monotonic()
    while (arrived := line.count(way).sent_frames - before) < _FRAMES:
        for _ in range(min(_FRAMES - sent, _UNDER_WAY - (sent - arrived))):
            sender.sendto(_PAYLOAD, (link_addresses(1)[0], 9))
            sent += 1
        time.sleep(0.05e-3)
    return _FRAMES / (time.monotonic() - began_s)


if __name__ == "__main__":
    _main()
