# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Flight of a UAV by a program in its node, with `mobility.model: steered` (see docs/steered.md).

It needs nothing but Python, so that the file can be copied into an image. The program publishes the
state of its UAV in the file `$TESTBED_STATE`. It reads what a modem would report of the last slot
from the file `$TESTBED_LINK`. Both files have one record of seven float64 in little-endian order:

    $TESTBED_STATE: t, x, y, z, vx, vy, vz
    $TESTBED_LINK: t, uplink bit/s, downlink bit/s, uplink SNR dB, downlink SNR dB, cell, status

Times are in s since `$TESTBED_EPOCH_NS` of the monotonic clock, positions in m and velocities in
m/s. A record is written by one `pwrite` at offset 0, so that it is never read in parts.
"""

import os
import struct
import time
from collections.abc import Sequence
from typing import NamedTuple

RECORD = struct.Struct("<7d")
STATE, LINK = "TESTBED_STATE", "TESTBED_LINK"
FLOWN, NO_RECORD, NOT_NUMBERS, WRONG_TIME, TOO_FAST, TOO_FAR, OUTSIDE, SILENT = range(8)
"""The values of `Link.status`: what became of the record of `$TESTBED_STATE`. Only with `FLOWN` the
UAV is where the program says. In all other cases the UAV keeps its last allowed state."""


class Link(NamedTuple):
    """What a modem reports of a slot: the record of `$TESTBED_LINK`."""

    time_s: float
    """Start of the slot."""
    uplink_bps: float
    downlink_bps: float
    """Rates by the rate model, which are those of the links unless ns-3 carries the frames. NaN
    before the first report, as are all numbers but the status."""
    uplink_snr_db: float
    downlink_snr_db: float
    """Signal-to-noise ratio in the whole band, with the interference of other cells if there are
    several; NaN: not known."""
    cell: float
    """Number of the serving cell: 0 is the base station."""
    status: float
    """What became of the published state; see `FLOWN`."""


class Pilot:
    """The files of this node. A program that flies its UAV has one of them."""

    def __init__(self) -> None:
        self._epoch_ns = int(os.environ["TESTBED_EPOCH_NS"])
        self._state = os.open(os.environ[STATE], os.O_WRONLY | os.O_CREAT, 0o600)
        self._link = os.open(os.environ[LINK], os.O_RDONLY)

    def now(self) -> float:
        """The emulated time in s; slot 0 begins at 0."""
        return (time.monotonic_ns() - self._epoch_ns) / 1e9

    def publish(
        self,
        position_m: Sequence[float],
        velocity_m_s: Sequence[float] = (0.0, 0.0, 0.0),
        time_s: float | None = None,
    ) -> None:
        """Say where the UAV is.

        Args:
            position_m: x, y and z in m, as in the scenario.
            velocity_m_s: Velocity in m/s, by which the UAV goes on until the next call, for at most
                a second.
            time_s: Time at which this holds. Default: now.
        """
        at_s = self.now() if time_s is None else time_s
        os.pwrite(self._state, RECORD.pack(at_s, *position_m, *velocity_m_s), 0)

    def link(self) -> Link:
        """The report of the last slot."""
        return Link(*RECORD.unpack(os.pread(self._link, RECORD.size, 0)))
