# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Ends of links that are serial lines: a frame arrives when its last bit has been sent.

The kernel of virtual time has a qdisc for it (`testbed/virtual/recipe/serial-line.patch`); the
queues below it are the same as below HTB. It accumulates no credit, so senders begin when their
transfers do. A frame in service continues at the new rate when the rate changes. A change is
announced with its time, so that it is in force exactly then. An outage is the rate 0, in which the
frame in service waits.
"""

import struct

from testbed.network.shaping import (
    KIND,
    OPTIONS,
    ROOT,
    SHAPER,
    End,
    qdisc_message,
    queue_message,
    size_table,
)
from testbed.system import netlink
from testbed.system.netlink import attribute, text


class SerialEnd(End):
    """One end of a link as a serial line. It starts with an outage."""

    def install(self) -> list[bytes]:
        """The messages that put line and queue in place."""
        create = netlink.CREATE | netlink.REPLACE
        return [
            self._line(0.0, create),
            queue_message(self.index, create, self._shape),
        ]

    def change(self, rate_bps: float, at_ns: int = 0) -> list[bytes]:
        """The message that changes the rate; none if it stays the same.

        Args:
            rate_bps: The new rate.
            at_ns: When it holds, on the monotonic clock, if this is in the future.
        """
        return [] if rate_bps == self.rate_bps else [self._line(rate_bps, 0, at_ns)]

    def release(self, rate_bps: float, credit_s: float) -> list[bytes]:
        """The message that releases held frames at that rate; there is no credit."""
        return [self._line(rate_bps, 0)]

    def _line(self, rate_bps: float, flags: int, at_ns: int = 0) -> bytes:
        return qdisc_message(
            netlink.NEWQDISC,
            flags,
            self.index,
            SHAPER,
            ROOT,
            attribute(KIND, text("serial")),
            attribute(OPTIONS, struct.pack("=QQ", round(rate_bps), at_ns)),
            # A change without the size table would remove it.
            *size_table(self._shape),
        )
