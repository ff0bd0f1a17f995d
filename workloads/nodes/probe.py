# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Probes: transfers over the links before a run, which calibrate the emulated network.

Orders are sent over the control plane; frames are sent as in a round, with the same programs,
connections and timing.
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
    """Send and receive the probes of one link in order, at one end; returns the received ones.

    Raises:
        ConnectionLost: The peer has disconnected or is too slow.
        WireError: The peer sent another message.
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
