# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Probes: transfers over the links before a run, which calibrate the emulated network.

The orders come over the control plane; the frames go the way of a round's: the same programs,
connections, starts and ends.
"""

from collections.abc import Sequence

from testbed.control.messages import Probe, Received
from testbed.core.clock import EmulatedClock
from testbed.transport.interface import Link
from testbed.transport.wire import Header, Kind


def exchange(
    link: Link,
    probes: Sequence[Probe],
    clock: EmulatedClock,
    credit_s: float,
    *,
    at_uav: bool,
) -> list[Received]:
    """Send and receive the probes of one link in their order, at one end; what was received.

    Raises:
        ConnectionLost: The peer is gone, or too slow.
        WireError: The peer sent something else.
    """
    place = memoryview(bytearray(max((probe.payload_bytes for probe in probes), default=0)))
    received = []
    for index, probe in enumerate(probes):
        payload = place[: probe.payload_bytes]
        if probe.upward == at_uav:
            start_s = clock.depart(probe.start_s, credit_s)
            header = Header(Kind.PROBE, probe.client, index, 0, 0, len(payload), start_s, 0.0)
            link.send(header, b"", payload)
        else:
            header = link.receive_header(Kind.PROBE)
            header.expect(Kind.PROBE, 0, 0, len(payload))
            end_s = clock.at(link.receive_into(payload))
            received.append((probe.client, index, header.time_s, end_s))
    return received
