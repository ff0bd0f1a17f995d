# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Ends of links whose frames a radio process carries: tap devices in place of veth pairs.

A tap device has a queue of its own, from which the radio process reads frames. It drops a frame if
the queue is full, and notifies the sender, as the shaper's queue does.
"""

import fcntl
import os
import struct
from dataclasses import dataclass

from testbed.core.errors import RunError
from testbed.network.shaping import End
from testbed.system import netlink
from testbed.system.netlink import attribute, message, text, u32

_TUNSETIFF, _TUNSETIFINDEX = 0x400454CA, 0x400454DA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_ADDRESS, _MTU, _QUEUE_LENGTH = 1, 4, 13
_KIND, _ROOT = 1, 0xFFFF_FFFF
_TCMSG = struct.Struct("=BxxxiIII")


@dataclass(frozen=True)
class RadioProgram:
    """The program of the radio process, and its start options."""

    argv: tuple[str, ...]
    """The program and its arguments."""
    settings: str
    """Its settings, a JSON object, to which the open files of the devices are added."""
    first: tuple[float, ...]
    """The channel on which UAVs connect, as the program reads it."""


class TapEnd(End):
    """One end of a link as a tap device, which has no rate."""

    def install(self) -> list[bytes]:
        """The messages that leave frames to the device's own queue, which holds this number of
        frames."""
        about = netlink.IFINFO.pack(0, 0, self.index, 0, 0)
        without = _TCMSG.pack(0, self.index, 0, _ROOT, 0) + attribute(_KIND, text("noqueue"))
        return [
            message(
                netlink.NEWLINK,
                0,
                about + attribute(_QUEUE_LENGTH, u32(self._shape.queue_frames)),
            ),
            message(netlink.NEWQDISC, netlink.CREATE | netlink.REPLACE, without),
        ]

    def change(self, rate_bps: float) -> list[bytes]:
        """No messages, because the radio decides on the rate."""
        return []


def open_tap(index: int, name: str) -> int:
    """Create a tap device in this thread's network namespace.

    Args:
        index: Index of the device.
        name: Name of the device.

    Returns:
        Its open file; the device exists until that is closed.

    Raises:
        RunError: This machine does not permit tap devices.
    """
    try:
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
        fcntl.ioctl(tap, _TUNSETIFINDEX, struct.pack("=I", index))
        fcntl.ioctl(tap, _TUNSETIFF, struct.pack("=16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    except OSError as error:
        raise RunError(f"emulation.air: 'ns3' needs /dev/net/tun ({error.strerror})") from None
    return tap


def set_up(index: int, address: bytes, mtu: int) -> bytes:
    """The message that gives a device its Ethernet address and its MTU."""
    about = netlink.IFINFO.pack(0, 0, index, 0, 0)
    return message(
        netlink.NEWLINK, 0, about + attribute(_ADDRESS, address) + attribute(_MTU, u32(mtu))
    )
