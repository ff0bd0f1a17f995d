# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The resource blocks and the modulation and coding schemes of a cell's links during a round."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from ns3_scenarios.trace import SlotValues, TwoWay, both_ways
from orchestrator.engine.arrays import Array, Ints
from orchestrator.engine.lte import Cellular, assigned
from orchestrator.engine.plan import Allocation
from testbed.core.timeline import CA, CM, SG, SM, Round

COLUMNS = (
    *("round", "slot", "time_s", "client", "direction"),
    *("active_s", "resource_blocks", "mcs", "layers"),
)
LEAST_ACTIVE_S = 1e-9
"""Shorter activity within a slot is caused by rounding of times."""

Grant = Callable[[Ints, Ints], list[tuple[Ints, Array]]]
"""From the index of each link's UAV, and the number of links that are active with it, to numbers of
resource blocks, each with the part of the time in which the link has them."""


class _Activity(NamedTuple):
    """Parts of slots in which links are active, one entry per link and part."""

    client: Ints
    """Index of the UAV, from 0."""
    slot: Ints
    """Slot, from the round's first."""
    seconds: Array
    sharing: Ints
    """Number of active links of the same kind, without those in an outage."""


def resource_blocks(
    round_: Round,
    radio: Cellular,
    values: SlotValues,
    slot_s: float,
    shares: Allocation,
    *,
    in_turns: bool,
) -> pd.DataFrame:
    """Resource blocks and scheme of each link in each slot in which it was active.

    Links are active during steps of a predicted or measured round: the uplink during CA and CM, the
    downlink during SM (which is broadcast in all resource blocks) and SG.

    Args:
        round_: The round.
        radio: The cell.
        values: Gains from slot 0 on, shape [K, S] or for each direction.
        slot_s: Length of a slot, s.
        shares: Allocation of the round.
        in_turns: Whether gradients have the whole downlink one after the other.

    Returns:
        One row per slot, UAV and direction with an active link. Columns: round, slot, time_s (start
        of the slot), client, direction (`up` or `down`), active_s (activity within the slot),
        resource_blocks (in which the link sends, mean over the time of the slot), mcs (modulation
        and coding scheme of most of the time; -1: out of range), layers (likewise).
    """
    first = math.floor(round_.start_s / slot_s + 1e-9)
    own = values[:, first : max(first, math.ceil(round_.end_s / slot_s - 1e-9))]
    rates = radio.link_rates(shares, own, in_turns=in_turns)
    fading = own.fading if isinstance(own, TwoWay) else None
    every = np.ones(len(rates.uplink), np.int64)

    def whole(clients: Ints, sharing: Ints) -> list[tuple[Ints, Array]]:
        return [(np.full(clients.shape, radio.blocks[1]), np.ones(clients.shape))]

    def fixed(direction: int) -> Grant:
        each = assigned(shares.beta * every, radio.blocks[direction])
        return lambda clients, sharing: [(each[clients], np.ones(clients.shape))]

    def divided(direction: int) -> Grant:
        each = [radio.divided(direction, n) for n in range(1, len(every) + 1)]
        most = max(map(len, each))
        table = np.array([grants + [(0, 0.0)] * (most - len(grants)) for grants in each])
        blocks, part = table[..., 0].astype(np.int64), table[..., 1]
        return lambda clients, sharing: list(
            zip(blocks[sharing - 1].T, part[sharing - 1].T, strict=True)
        )

    up, down = map(divided if radio.is_shared else fixed, (0, 1))
    kinds: list[list[tuple[tuple[int, ...], Array, Grant]]] = [
        [((CA, CM), rates.uplink, up)],
        [((SM,), rates.broadcast, whole), ((SG,), rates.gradient, whole if in_turns else down)],
    ]
    tables = []
    for direction, (name, gain) in enumerate(zip(("up", "down"), both_ways(own), strict=True)):
        powers = None if fading is None else fading[direction]
        activities = [
            (_activity(round_, steps, bps > 0, first, slot_s), bps > 0, grant)
            for steps, bps, grant in kinds[direction]
        ]
        for client in range(len(every)):
            found = _Slots(own.shape[1], radio.steps[direction].mcs.size)
            for activity, carries, grant in activities:
                part = _Activity(*(each[activity.client == client] for each in activity))
                faded = gain[client, part.slot][:, None]
                if powers is not None:
                    faded = faded * powers[client, part.slot]
                here = carries[client, part.slot][:, None]
                for blocks, of_time in grant(part.client, part.sharing):
                    used, step = radio.use(direction, part.client, blocks, faded)
                    scheme = radio.steps[direction].scheme[np.where(here, step, 0)]
                    found.add(part, of_time, np.where(here, used, 0), scheme)
            slot = np.flatnonzero(found.active_s > LEAST_ACTIVE_S)
            step = found.step_s[slot].argmax(axis=1)
            tables.append(
                pd.DataFrame(
                    {
                        "round": round_.index,
                        "slot": first + slot,
                        "time_s": (first + slot) * slot_s,
                        "client": client + 1,
                        "direction": name,
                        "active_s": found.active_s[slot],
                        # Sums of durations may exceed the slot by their rounding.
                        "resource_blocks": (found.block_s[slot] / slot_s).round(9),
                        "mcs": radio.steps[direction].mcs[step],
                        "layers": radio.steps[direction].layers[step],
                    }
                )
            )
    return pd.concat(tables, ignore_index=True)


class _Slots:
    """Sums over the slots of a round for one link."""

    def __init__(self, slots: int, steps: int):
        self.active_s = np.zeros(slots)
        self.block_s = np.zeros(slots)
        """Number of resource blocks times seconds."""
        self.step_s = np.zeros((slots, steps))
        """Seconds with each scheme: the first step of `Cellular.steps` that has it."""

    def add(self, activity: _Activity, of_time: Array, used: Ints, step: Ints) -> None:
        """Add activity with these resource blocks and schemes in each fading block, [E, B]."""
        np.add.at(self.active_s, activity.slot, activity.seconds)
        np.add.at(self.block_s, activity.slot, activity.seconds * of_time * used.mean(axis=1))
        each_s = (activity.seconds / step.shape[1])[:, None]
        np.add.at(self.step_s, (activity.slot[:, None], step), each_s)


def _activity(
    round_: Round,
    steps: tuple[int, ...],
    carries: npt.NDArray[np.bool_],
    first: int,
    slot_s: float,
) -> _Activity:
    """The activity of the links that these steps use; `carries`: not in an outage, [K, S]."""
    spans = round_.spans[np.isin(round_.spans["step"], steps)]
    clients, slots = carries.shape
    ends_s = (first + slots) * slot_s
    inside = [slot_s * np.arange(first, first + slots + 1), spans["start_s"], spans["end_s"]]
    edges_s = np.unique(np.concatenate(inside).clip(first * slot_s, ends_s))
    active = np.zeros((clients, edges_s.size - 1), bool)
    begin, end = (np.searchsorted(edges_s, spans[name]) for name in ("start_s", "end_s"))
    for client, from_, until in zip(spans["client"], begin, end, strict=True):
        active[client - 1, from_:until] = True
    middle_s = (edges_s[1:] + edges_s[:-1]) / 2
    slot = np.floor(middle_s / slot_s).astype(np.int64).clip(first, first + slots - 1) - first
    sharing = np.maximum(1, (active & carries[:, slot]).sum(axis=0))
    client, part = np.nonzero(active)
    return _Activity(client, slot[part], np.diff(edges_s)[part], sharing[part])
