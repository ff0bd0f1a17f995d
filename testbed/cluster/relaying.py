# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Packet rate of a host's relay, measured before a run.

A separate relay forwards frames from one device, through a datagram to itself, to another device,
as fast as it can: it handles each frame twice, once per direction.
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
"""Seconds after which missing frames count as lost."""
LIMIT_S = 30.0
_WINDOW = 2 * AT_ONCE
_EXPERIMENTAL = b"\x88\xb5"
"""An Ethernet type that no protocol uses (IEEE 802)."""
_EVERY_PROTOCOL, _SOL_PACKET, _IGNORE_OUTGOING = 3, 263, 23


def packets_s(address: str, mtu: int) -> float:
    """Packets of one frame per second that a relay on this machine handles, both directions
    together.

    Args:
        address: Address of this machine that other hosts use.
        mtu: MTU of the frames.

    Raises:
        RunError: This machine does not allow relays.
    """
    command = [sys.executable, "-P", "-m", __name__, address, str(mtu)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise RunError(f"links: waited {LIMIT_S:g} s for the measurement of a relay") from None
    if done.returncode:
        raise RunError(
            f"links: a relay cannot be started ({done.stderr.strip().rpartition(chr(10))[2]})"
        )
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
    """Number of frames that arrive within a time while some are always in flight."""
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
