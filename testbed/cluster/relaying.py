# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How many packets a second a host's relay carries, measured before a run.

A relay of its own carries frames from one device through a datagram to itself and on to another
device, as many as it can: it handles each of them twice, once a way.
"""

import contextlib
import socket
import subprocess
import sys
import time

from testbed.core.errors import RunError
from testbed.network.relay import AT_ONCE, Inner, Relay, datagrams, frames
from testbed.system import linux, netlink
from testbed.system.netlink import Netlink

SETTLE_S, COUNT_S = 0.2, 0.8
LOST_S = 0.2
"""Frames that are not there by then never will be."""
LIMIT_S = 30.0
_WINDOW = 2 * AT_ONCE
_EXPERIMENTAL = b"\x88\xb5"
"""A protocol that nobody speaks (IEEE 802)."""
_EVERY_PROTOCOL, _SOL_PACKET, _IGNORE_OUTGOING = 3, 263, 23


def packets_s(address: str, mtu: int) -> float:
    """Packets of one frame that a relay here handles in a second, either way.

    Args:
        address: Of this machine, towards the others.
        mtu: Of the frames.

    Raises:
        RunError: This machine does not allow what a relay takes.
    """
    command = [sys.executable, "-m", __name__, address, str(mtu)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise RunError(f"links: a relay's speed is not known after {LIMIT_S:g} s") from None
    if done.returncode:
        raise RunError(f"links: no relay ({done.stderr.strip().rpartition(chr(10))[2]})")
    return float(done.stdout)


def _measured(address: str, mtu: int) -> float:
    ends = [datagrams(address), datagrams(address)]
    for end, other in (ends, ends[::-1]):
        end.connect(other.getsockname())
    linux.prefer_scheduling()
    try:
        linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNET)
    except OSError:
        linux.unshare(linux.CLONE_NEWNET)
    here = linux.open_network_namespace()
    with Netlink() as inside:
        inner = [
            Inner(place, f"end{place}", here, bytes((2, 0, 0, 0, 0, place))) for place in (11, 12)
        ]
        taken = [frames(inside, each.index + 10, each, mtu) for each in inner]
        for each in inner:
            inside.transact(
                [*netlink.without_ipv6_addresses(each.index, mtu), netlink.up(each.index)]
            )
    relay = Relay(list(zip(taken, ends, strict=True)))
    linux.ordinary_scheduling()
    try:
        given, got = (_on(each.name) for each in inner)
        frame = inner[1].address + inner[0].address + _EXPERIMENTAL + bytes(mtu)
        _arrived(given, got, frame, SETTLE_S)
        begun_ns = time.monotonic_ns()
        count = _arrived(given, got, frame, COUNT_S)
        return 2 * count / ((time.monotonic_ns() - begun_ns) * 1e-9)
    finally:
        relay.end()


def _on(device: str) -> socket.socket:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
    sock.bind((device, _EVERY_PROTOCOL))
    sock.settimeout(LOST_S)
    return sock


def _arrived(given: socket.socket, got: socket.socket, frame: bytes, for_s: float) -> int:
    """How many frames have come through within a time, with some under way all the while."""
    place = bytearray(len(frame))
    until, count, under_way = time.monotonic() + for_s, 0, 0
    while time.monotonic() < until:
        for _ in range(_WINDOW - under_way):
            given.send(frame)
        under_way = _WINDOW
        with contextlib.suppress(TimeoutError):
            while under_way > _WINDOW - AT_ONCE:
                got.recv_into(place)
                under_way -= 1
                count += 1
            continue
        under_way = 0
    with contextlib.suppress(TimeoutError):
        while under_way:
            got.recv_into(place)
            under_way -= 1
            count += 1
    return count


if __name__ == "__main__":
    try:
        print(_measured(sys.argv[1], int(sys.argv[2])))
    except OSError as error:
        sys.exit(str(error))
