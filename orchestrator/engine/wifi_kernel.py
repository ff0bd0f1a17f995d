# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The Wi-Fi cell of `orchestrator.engine.wifi` for compiled code; see `radio_kernel`."""

import math
from typing import NamedTuple

from orchestrator.engine.compiling import Array, inlined
from orchestrator.engine.radio_kernel import LINK_BPS, LINK_OF, LINKS_OF, SHARED_BPS
from orchestrator.engine.slot_impairments import DOWN, UP


class WifiBands(NamedTuple):
    """A `Wifi` radio, for compiled code; both arrays are those of `Wifi`."""

    least_gain: Array
    bps: Array


class WifiLinks(NamedTuple):
    """The cell, and how many uplinks and gradients there are while all send."""

    least_gain: Array
    bps: Array
    uplinks: int
    gradients: int


class WifiLink(NamedTuple):
    """One link, and how many of its direction there are while all send."""

    least_gain: Array
    bps: Array
    is_uplink: bool
    all: int


def _wifi_links(bands: WifiBands, in_turns: bool, beta: Array, rho: Array) -> WifiLinks:
    return WifiLinks(bands.least_gain, bands.bps, beta.size, 1 if in_turns else beta.size)


def _wifi_link(links: WifiLinks, way: int, k: int) -> WifiLink:
    if way == UP:
        return WifiLink(links.least_gain[0, k], links.bps, True, links.uplinks)
    gradients = links.gradients if way == DOWN else 1
    return WifiLink(links.least_gain[1, k], links.bps, False, gradients)


@inlined
def _contended_bps(
    link: WifiLink, value: float, active: int, others: int
) -> tuple[float, float, float]:
    least_gain, step = link.least_gain, link.least_gain.size
    while step > 0 and value < least_gain[step - 1]:
        step -= 1
    least = least_gain[step - 1] if step > 0 else 0.0
    below = least_gain[step] if step < least_gain.size else math.inf
    if link.is_uplink:
        return link.bps[active + (others > 0), step], least, below
    return link.bps[1 + others, step] / active, least, below


def _wifi_bps(link: WifiLink, value: float) -> float:
    return _contended_bps(link, value, link.all, 0)[0]


def _wifi_shared_bps(
    link: WifiLink, value: float, active: int, others: int
) -> tuple[float, float, float]:
    return _contended_bps(link, value, active, others)


LINKS_OF[WifiBands] = _wifi_links
LINK_OF[WifiLinks] = _wifi_link
LINK_BPS[WifiLink] = _wifi_bps
SHARED_BPS[WifiLink] = _wifi_shared_bps
