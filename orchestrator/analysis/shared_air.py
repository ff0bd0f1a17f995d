# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The rates of links that divide a direction of the cell, given when transfers were measured.

`orchestrator.engine.medium` computes the same for a predicted round.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from ns3_scenarios.trace import SlotValues
from orchestrator.engine.access import LinkRates, RadioAccess
from orchestrator.engine.plan import Array, RoundPlan
from orchestrator.engine.slot_impairments import DOWN, UP
from testbed.core.timeline import CA, CM, SG, SM, Round

_BLOCK_SLOTS = 64
"""Number of slots whose rates are computed together."""


@dataclass(frozen=True)
class Transfer:
    """A transfer of a client, from 0, on a divided direction; times in s."""

    client: int
    start_s: float
    end_s: float
    """Measured end."""
    bits: float
    is_cut: bool = False
    """Whether the transfer was cut off at its measured end."""


Key = tuple[int, int, int]
"""Client from 1, iteration and step of a transfer."""


class SharedAir:
    """One direction of a cell in a round."""

    def __init__(
        self, plan: RoundPlan, radio: RadioAccess, values: SlotValues, slot_s: float, way: int
    ) -> None:
        """Make the direction.

        Args:
            plan: The plan of the round.
            radio: A radio whose band is shared.
            values: Slot values from time 0, shape [K, S] or for each direction.
            slot_s: Length of a slot in s.
            way: `UP` or `DOWN`.
        """
        self._plan, self._radio, self._values = plan, radio, values
        self._slot_s, self._way = slot_s, way
        self._block = cache(self._rates_of_block)

    def _rates_of_block(self, active: int, block: int) -> Array:
        first = block * _BLOCK_SLOTS
        rates: LinkRates = self._radio.link_rates(
            self._plan.allocation,
            self._values[:, first : first + _BLOCK_SLOTS],
            in_turns=self._plan.in_turns,
            active=active,
        )
        return rates.uplink if self._way == UP else rates.gradient

    def _bps(self, slot: int, active: int) -> Array:
        """The rate of each link while a given number of links are active, shape [K]."""
        block, at = divmod(slot, _BLOCK_SLOTS)
        return np.asarray(self._block(active, block)[:, at])

    def _active(self, slot: int, clients: Iterable[int]) -> set[int]:
        """The given clients that are not in an outage."""
        alone = self._bps(slot, 1)
        return {client for client in clients if alone[client] > 0}

    def due_s(self, transfers: Sequence[Transfer]) -> list[float]:
        """When each transfer should have ended, if all began when they did.

        Transfers that were cut off are active up to their measured end. Infinity: the slots are not
        enough.
        """
        order = sorted(range(len(transfers)), key=lambda index: transfers[index].start_s)
        due_s, left = [math.inf] * len(transfers), dict[int, float]()
        now_s, begun = 0.0, 0
        while begun < len(order) or left:
            next_s = transfers[order[begun]].start_s if begun < len(order) else math.inf
            if not left:
                now_s = max(now_s, next_s)
            slot = int(now_s / self._slot_s + 1e-9)
            if slot >= self._values.shape[-1]:
                break
            until_s = min(next_s, (slot + 1) * self._slot_s)
            active = self._active(slot, (transfers[index].client for index in left))
            bps = self._bps(slot, max(1, len(active)))
            ends_s = {}
            for index, bits in left.items():
                transfer = transfers[index]
                rate = bps[transfer.client] if transfer.client in active else 0.0
                if transfer.is_cut:
                    ends_s[index] = max(now_s, transfer.end_s)
                elif bits == 0 or rate > 0:
                    ends_s[index] = now_s + (bits / rate if bits else 0.0)
            until_s = min(until_s, *ends_s.values()) if ends_s else until_s
            for index in left:
                client = transfers[index].client
                sent = bps[client] * (until_s - now_s) if client in active else 0.0
                left[index] = max(0.0, left[index] - sent)
            for index in [index for index, end_s in ends_s.items() if end_s <= until_s]:
                due_s[index] = until_s
                del left[index]
            now_s = until_s
            while begun < len(order) and transfers[order[begun]].start_s <= now_s:
                left[order[begun]] = transfers[order[begun]].bits
                begun += 1
        return due_s

    def mean_bps(self, transfers: Sequence[Transfer], slots: range) -> Array:
        """The mean rate of each link in some slots, shape [K, n].

        A link that is not active has the rate that it would have if it were.
        """
        moments_s = [moment for each in transfers for moment in (each.start_s, each.end_s)]
        mean = np.zeros((self._plan.clients, len(slots)))
        for place, slot in enumerate(slots):
            start_s, end_s = slot * self._slot_s, (slot + 1) * self._slot_s
            within = sorted({start_s, end_s, *(t for t in moments_s if start_s < t < end_s)})
            for since_s, until_s in itertools.pairwise(within):
                going = (each.client for each in transfers if each.start_s <= since_s < each.end_s)
                active = self._active(slot, going)
                bps = self._bps(slot, min(len(active) + 1, self._plan.clients)).copy()
                for client in active:
                    bps[client] = self._bps(slot, len(active))[client]
                mean[:, place] += bps * ((until_s - since_s) / self._slot_s)
        return mean


def transfers_of(measured: Round, plan: RoundPlan) -> dict[int, dict[Key, Transfer]]:
    """The measured transfers on directions that links divide, `UP` and `DOWN`."""
    sizes = {CA: plan.ca_bytes, SG: plan.sg_bytes, CM: plan.cm_bytes.reshape(plan.clients, -1)}
    if plan.updates:  # Nothing is broadcast: adapters divide the downlink with gradients.
        sizes[SM] = plan.sm_bytes
    for step in plan.alone_on_downlink:
        sizes.pop(step, None)
    found: dict[int, dict[Key, Transfer]] = {UP: {}, DOWN: {}}
    for (client, iteration, step, start_s, end_s, _), is_cut in zip(
        measured.spans.tolist(), measured.cut.tolist(), strict=True
    ):
        if step in sizes:
            size = sizes[step]
            bits = 8 * float(size[client - 1, min(iteration, size.shape[1]) - 1])
            transfer = Transfer(client - 1, start_s, end_s, bits, is_cut)
            found[DOWN if step in (SM, SG) else UP][client, iteration, step] = transfer
    return found


def due_ends_s(
    measured: Round, plan: RoundPlan, radio: RadioAccess, values: SlotValues, slot_s: float
) -> dict[Key, float]:
    """When each transfer on a divided direction should have ended, in s; see `SharedAir.due_s`.

    Args:
        measured: The measured round.
        plan: Plan of the round, with the bytes on the links.
        radio: The radio; no direction is divided unless its band is shared.
        values: Slot values from time 0, shape [K, S] or for each direction.
        slot_s: Length of a slot in s.
    """
    found: dict[Key, float] = {}
    if radio.is_shared:
        for way, transfers in transfers_of(measured, plan).items():
            air = SharedAir(plan, radio, values, slot_s, way)
            found |= zip(transfers, air.due_s(list(transfers.values())), strict=True)
    return found


def mean_rates(
    measured: Round,
    plan: RoundPlan,
    radio: RadioAccess,
    values: SlotValues,
    slot_s: float,
    slots: range,
) -> tuple[Array | None, Array | None]:
    """The mean rates of uplinks and gradients in some slots, shape [K, n]; None where a direction
    is not divided. See `due_ends_s` and `SharedAir.mean_bps`."""
    if not radio.is_shared:
        return None, None
    transfers = transfers_of(measured, plan)
    up, down = (
        SharedAir(plan, radio, values, slot_s, way).mean_bps(list(transfers[way].values()), slots)
        for way in (UP, DOWN)
    )
    return up, None if plan.in_turns else down
