# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The interface of observers, which are notified when rounds begin, progress and end."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from orchestrator.engine.plan import Array
from orchestrator.records.emulation import Check
from testbed.control.messages import Progress
from testbed.core.clock import EmulatedClock
from testbed.core.timeline import Round


class Observer(Protocol):
    """Is notified of events within rounds and of the end; must return quickly."""

    def begin(
        self,
        expected: Round,
        clock: EmulatedClock,
        first: int,
        uplink_bps: Array,
        downlink_bps: Array,
        position_m: Array | None,
    ) -> None:
        """A round begins.

        Args:
            expected: Prediction of the round from this start, with the bytes of frames.
            clock: Clock of the round.
            first: Slot of the first column of rates.
            uplink_bps: Uplink rates, shape [K, slots].
            downlink_bps: Downlink rates of gradients, shape [K, slots].
            position_m: Positions, shape [K, S, 3] from slot 0; None if the trace has none.
        """

    def heard(self, message: Progress) -> None:
        """The base station has reported the progress of its round."""

    def finished(self, measured: Round) -> None:
        """The round has ended, and all its steps are known."""

    def concluded(self, checks: Sequence[Check], out: Path | None) -> None:
        """The run has ended and was judged.

        Args:
            checks: Its validity checks.
            out: The run directory, which gets a report; None: it is not kept.
        """
