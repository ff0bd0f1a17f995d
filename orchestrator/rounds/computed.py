# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Carriers of predicted rounds: links with rates of their own, and a band that links share."""

import ctypes
from collections.abc import Collection
from typing import TYPE_CHECKING

from orchestrator.engine.core_library import EXHAUSTED, LinkState, Medium, Paths, Slots, library
from orchestrator.engine.slot_impairments import BROADCAST, DOWN, UP

if TYPE_CHECKING:
    from orchestrator.engine.core_library import Links
    from orchestrator.rounds.conductor import Conductor, Then


ANSWERS = 2 / 3
"""Share of the TTIs in which a downlink has the scheme for full interference by another cell that
only acknowledges an uplink, as in ns-3: the scheme is that of a UAV's worst group of resource
blocks."""


class OwnRates:
    """Each link has a rate of its own, so that the end of a transfer is known as it begins.

    Args:
        conductor: The conductor of the round.
        slots: The channel.
        links: Links of the round.
        paths: Model of TCP; None: links neither delay nor lose, and words take no time.
        medium: See `SharedBand`.
    """

    unicasts = False

    def __init__(
        self,
        conductor: "Conductor",
        slots: Slots,
        links: "Links",
        paths: Paths | None,
        medium: Medium | None = None,
    ):
        self.conductor, self.paths = conductor, paths
        self.credit_s = 0.0 if paths is None else paths.credit_s
        self.end_s, self.slots = slots.end_s, slots.slots
        self._air = LinkState(slots, links, paths, medium, conductor.start_s)
        self._at = self._air.address
        self._transfer, self._note = library().engine_transfer, library().engine_note

    def begin(self, step: int, client: int, way: int, size: int, at_s: float, then: "Then") -> None:
        """See `Carrier.begin`."""
        end_s = self._transfer(self._at, way, client - 1, size, at_s)
        if end_s == EXHAUSTED:
            self.conductor.never(client)
        self.conductor.at(client, end_s, then)

    def word(
        self, way: int, client: int, at_s: float, then: "Then", *, answers: bool = False
    ) -> None:
        """See `Carrier.word`."""
        if self.paths is not None:
            at_s = self._note(self._at, way, client - 1, at_s, not answers)
        self.conductor.soon(client, at_s, then)

    def advance(self, until_s: float) -> bool:
        """See `Carrier.advance`."""
        return False

    def rate(self, way: int, client: int, at_s: float) -> float:
        """See `Carrier.rate`."""
        return float(library().engine_rate(self._at, way, client - 1, at_s))

    def lose(self, client: int) -> None:
        """See `Carrier.lose`."""

    def broadcasts(self, *, now: bool) -> None:
        """See `Carrier.broadcasts`."""


class SharedBand(OwnRates):
    """Active links divide a band; gradients in turns and broadcasts have the whole downlink.

    With a model of TCP, a transfer begins to be served after the delay of its first grant and of
    its first windows, and arrives some time after it has been served.

    Args:
        conductor: The conductor of the round.
        slots: The channel.
        links: Links of the round.
        paths: Model of TCP, or None.
        alone: Steps whose transfers have the whole downlink, one after the other.
    """

    unicasts = True

    def __init__(
        self,
        conductor: "Conductor",
        slots: Slots,
        links: "Links",
        paths: Paths | None,
        alone: Collection[int],
    ):
        medium = Medium(slots.clients, 0.0 if paths is None else ANSWERS)
        super().__init__(conductor, slots, links, paths, medium)
        # With several cells, other links interfere with a transfer that has a whole downlink.
        self._alone = () if slots.sites and paths is not None else alone
        self._begun: dict[tuple[int, int], Then] = {}
        """The action after each transfer that is served or waits, by direction and client."""
        self._starting: dict[tuple[int, float], int] = {}
        """Number of transfers that begin at a moment in a direction, and have not begun yet."""
        self._advance, self._ended_s = library().engine_advance, ctypes.c_double()
        self._ended_at = ctypes.addressof(self._ended_s)

    def begin(self, step: int, client: int, way: int, size: int, at_s: float, then: "Then") -> None:
        """See `Carrier.begin`."""
        if way == BROADCAST or (way == DOWN and step in self._alone):
            super().begin(step, client, way, size, at_s, then)
            return
        # Once all who begin now are known.
        if self.paths is None:
            self.conductor.at(
                client, at_s, lambda now_s: self._serve(way, client, size, then, now_s), 1
            )
            return
        self._starting[way, at_s] = self._starting.get((way, at_s), 0) + 1
        self.conductor.at(client, at_s, lambda now_s: self._ask(way, client, size, then, now_s), 1)

    def _ask(self, way: int, client: int, size: int, then: "Then", now_s: float) -> None:
        active = self._starting[way, now_s] + sum(side == way for side, _ in self._begun)
        self._starting[way, now_s] -= 1
        self._begun[way, client] = then
        served_s = library().engine_served(self._at, way, client - 1, size, now_s, active)
        self.conductor.at(client, served_s, lambda at_s: self._serve(way, client, size, then, at_s))

    def _serve(self, way: int, client: int, size: int, then: "Then", now_s: float) -> None:
        if client in self.conductor.protocol.here:
            self._begun[way, client] = then
            library().engine_begin(self._at, way, client - 1, 8.0 * size, now_s)

    def advance(self, until_s: float) -> bool:
        """See `Carrier.advance`."""
        if not self._begun:
            return False
        ended = self._advance(self._at, until_s, self._ended_at)
        end_s = self._ended_s.value
        if ended < 0:
            if end_s == EXHAUSTED and until_s < EXHAUSTED:
                self.conductor.exhausted()
            return False
        client, way = ended // 2 + 1, ended % 2
        if self.paths is not None:
            end_s = library().engine_arrival(self._at, way, client - 1, end_s)
        self.conductor.at(client, end_s, self._begun.pop((way, client)))
        return True

    def lose(self, client: int) -> None:
        """See `Carrier.lose`."""
        for way in (UP, DOWN):
            library().engine_end(self._at, way, client - 1)
            self._begun.pop((way, client), None)
