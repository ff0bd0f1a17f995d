# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The LTE cell of `orchestrator.engine.lte` for compiled code; see `radio_kernel`."""

import math
from typing import NamedTuple

import numpy as np

from orchestrator.engine.compiling import Array, Ints, inlined
from orchestrator.engine.radio_kernel import LINK_BPS, LINK_OF, LINKS_OF, SHARED_BPS
from orchestrator.engine.slot_impairments import BROADCAST, UP

LEAST_BLOCKS = 4
"""Smallest number of resource blocks that a UAV gets in the uplink: three with the lowest MCS carry
7 B, in which ns-3's UAVs start no packet. If there are more UAVs, they are served in turns."""


class LteWay(NamedTuple):
    """A direction of the cell: two arrays of `lte.Steps`, and the number of resource blocks N."""

    least_snr: Array
    bps: Array
    blocks: int


class LteBands(NamedTuple):
    """An `Lte` radio, for compiled code."""

    up: LteWay
    down: LteWay
    uplink_snr: Array
    downlink_snr: float
    is_shared: bool


class LteLinks(NamedTuple):
    """The cell under an allocation, with the resource blocks of each client's links."""

    up: LteWay
    down: LteWay
    uplink_snr: Array
    downlink_snr: float
    uplink_blocks: Ints
    uplink_part: float
    gradient_blocks: Ints
    gradient_part: float
    is_shared: bool
    in_turns: bool


class LteLink(NamedTuple):
    """One link: its direction, its signal-to-noise ratio at gain 1, and its resource blocks.

    `concentrates`: with fewer blocks, each has more power. `part`: of all TTIs, while all send.
    `is_shared`: with other links of the cell that send at the same time.
    """

    way: LteWay
    snr_at_1: float
    blocks: int
    part: float
    concentrates: bool
    is_shared: bool


def turn(blocks: int, active: int) -> tuple[int, float]:
    """The uplink of a UAV while `active` UAVs are active: its resource blocks in a TTI in which it
    sends, and the fraction of all TTIs in which it does."""
    at_once = max(1, min(active, blocks // LEAST_BLOCKS))
    return blocks // at_once, at_once / active


_turn = inlined(turn)


def _lte_links(bands: LteBands, in_turns: bool, beta: Array, rho: Array) -> LteLinks:
    uplink, downlink = bands.up.blocks, bands.down.blocks
    uplink_blocks, gradient_blocks = np.empty(beta.size, np.int64), np.empty(beta.size, np.int64)
    uplink_part, gradient_part = 1.0, 1.0
    if bands.is_shared:
        blocks, uplink_part = _turn(uplink, beta.size)
        uplink_blocks[:] = blocks
    else:
        for k in range(beta.size):
            uplink_blocks[k] = math.floor(beta[k] * uplink + 1e-9)
    if bands.is_shared or in_turns:
        gradient_blocks[:] = downlink
        gradient_part = 1.0 if in_turns else 1.0 / beta.size
    else:
        for k in range(beta.size):
            gradient_blocks[k] = math.floor(beta[k] * downlink + 1e-9)
    return LteLinks(
        bands.up,
        bands.down,
        bands.uplink_snr,
        bands.downlink_snr,
        uplink_blocks,
        uplink_part,
        gradient_blocks,
        gradient_part,
        bands.is_shared,
        in_turns,
    )


def _lte_link(links: LteLinks, way: int, k: int) -> LteLink:
    if way == UP:
        blocks, part = links.uplink_blocks[k], links.uplink_part
        return LteLink(links.up, links.uplink_snr[k], blocks, part, True, links.is_shared)
    if way == BROADCAST:
        return LteLink(links.down, links.downlink_snr, links.down.blocks, 1.0, False, False)
    blocks, part = links.gradient_blocks[k], links.gradient_part
    is_shared = links.is_shared and not links.in_turns
    return LteLink(links.down, links.downlink_snr, blocks, part, False, is_shared)


@inlined
def _blocks_bps(link: LteLink, value: float, blocks: int) -> tuple[float, float, float]:
    """The rate with a number of resource blocks in every TTI, or with the number that the power
    reaches.

    It is the same for slot values from the second number on and below the third.
    """
    least_snr, bps = link.way.least_snr, link.way.bps
    snr_at_1, snr, step, lowest = link.snr_at_1, link.snr_at_1 * value, least_snr.size, 0
    if link.concentrates:
        lowest = 1
        least = least_snr[0]
        if snr < blocks * least:
            reached = math.floor(snr / least)
            same = reached * least / snr_at_1, (reached + 1) * least / snr_at_1
            return bps[reached, min(reached, 1)], same[0], same[1]
        snr /= blocks
        snr_at_1 /= blocks
    while step > lowest and snr < least_snr[step - 1]:
        step -= 1
    same = 0.0, math.inf
    if step > 0:
        same = least_snr[step - 1] / snr_at_1, same[1]
    if step < least_snr.size:
        same = same[0], least_snr[step] / snr_at_1
    return bps[blocks, step], same[0], same[1]


def _lte_bps(link: LteLink, value: float) -> float:
    return link.part * _blocks_bps(link, value, link.blocks)[0]


def _lte_shared_bps(
    link: LteLink, value: float, active: int, others: int
) -> tuple[float, float, float]:
    blocks, part = link.way.blocks, 1.0 / active
    if link.concentrates:
        blocks, part = _turn(blocks, active)
    bps, least, below = _blocks_bps(link, value, blocks)
    return part * bps, least, below


LINKS_OF[LteBands] = _lte_links
LINK_OF[LteLinks] = _lte_link
LINK_BPS[LteLink] = _lte_bps
SHARED_BPS[LteLink] = _lte_shared_bps
