# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Who may watch a run from within: told of rounds as they begin, go on and end."""

from typing import Protocol

from orchestrator.engine.plan import Array
from testbed.control.messages import Progress
from testbed.core.clock import EmulatedClock
from testbed.core.timeline import Round


class Observer(Protocol):
    """Told what happens within rounds; must not keep the run waiting."""

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
            expected: As the engine predicts it from this start, with the bytes on the link.
            clock: The round's.
            first: Slot of the rates' first column.
            uplink_bps: Shape [K, slots], as `downlink_bps`.
            downlink_bps: Of gradients.
            position_m: Shape [K, S, 3] from slot 0; None where the trace brings none.
        """

    def heard(self, message: Progress) -> None:
        """The base station told how far its round is."""

    def finished(self, measured: Round) -> None:
        """The round has ended: now all its steps are known."""
