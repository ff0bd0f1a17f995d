# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Radio access for compiled code: named tuples of numbers, and functions chosen by their types.

A radio has up to three named tuples: of a scenario (`…Bands`), of a round's links under an
allocation (`…Links`), and of one link (`…Link`). `links_of`, `link_of`, `link_bps` and, where
active links share the uplink, `shared_bps` are dispatched by the class of their first argument.
This happens at compile time, so that it costs nothing when the engine runs.
`orchestrator.engine.radio` has the counterparts in Python, and
`tests/orchestrator/engine/test_radio.py` compares the two. Compiled code on disk refers to the
classes by name: they must be importable wherever the engine is.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from orchestrator.engine.compiling import Array, inlined
from orchestrator.engine.slot_impairments import BROADCAST, DOWN, UP

INLINED = {"forceinline": True}


class FdmaBands(NamedTuple):
    """A `ShannonFdma` radio, for compiled code."""

    uplink_hz: float
    downlink_hz: float
    noise_w_per_hz: float
    downlink_power_w: float
    uplink_power_w: Array


class FdmaLinks(NamedTuple):
    """Bandwidth and signal-to-noise ratio at gain 1 of each client's links, shape [K]."""

    uplink_hz: Array
    uplink_snr: Array
    broadcast_hz: float
    broadcast_snr: float
    gradient_hz: Array
    gradient_snr: Array


class FdmaLink(NamedTuple):
    """Bandwidth and signal-to-noise ratio at gain 1 of one link."""

    bandwidth_hz: float
    snr_at_1: float


class GivenBands(NamedTuple):
    """A `Rates` radio, for compiled code."""

    is_cell: bool


class GivenLinks(NamedTuple):
    """Share of each client's gradients in the slots' values, shape [K]."""

    gradient_share: Array


class GivenRates(NamedTuple):
    """Share of one link in the rates that are the slots' values."""

    share: float


@inlined
def shannon_bps(bandwidth_hz: float, snr: float) -> float:
    """Shannon's rate in bit/s, eqs. (1), (2), (19)."""
    if snr > 1e-3:
        return bandwidth_hz * math.log2(1.0 + snr)
    return bandwidth_hz * (math.log1p(snr) / math.log(2.0))  # 1 + snr would lose the digits of snr


def fdma_links(bands: FdmaBands, in_turns: bool, beta: Array, rho: Array) -> FdmaLinks:
    """Bandwidths and signal-to-noise ratios of a round's links."""
    uplink_hz = beta * bands.uplink_hz
    uplink_snr = bands.uplink_power_w / (uplink_hz * bands.noise_w_per_hz)
    broadcast_snr = bands.downlink_power_w / (bands.downlink_hz * bands.noise_w_per_hz)
    if in_turns:
        gradient_hz = np.full(beta.size, bands.downlink_hz)
        gradient_snr = np.full(beta.size, broadcast_snr)
    else:
        gradient_hz = beta * bands.downlink_hz
        gradient_snr = rho * bands.downlink_power_w / (gradient_hz * bands.noise_w_per_hz)
    return FdmaLinks(
        uplink_hz, uplink_snr, bands.downlink_hz, broadcast_snr, gradient_hz, gradient_snr
    )


def fdma_link(links: FdmaLinks, way: int, k: int) -> FdmaLink:
    """Bandwidth and signal-to-noise ratio of a link."""
    if way == UP:
        return FdmaLink(links.uplink_hz[k], links.uplink_snr[k])
    if way == BROADCAST:
        return FdmaLink(links.broadcast_hz, links.broadcast_snr)
    return FdmaLink(links.gradient_hz[k], links.gradient_snr[k])


def _fdma_bps(link: FdmaLink, value: float) -> float:
    return shannon_bps(link.bandwidth_hz, link.snr_at_1 * value)


def _given_links(bands: GivenBands, in_turns: bool, beta: Array, rho: Array) -> GivenLinks:
    if bands.is_cell and not in_turns:
        return GivenLinks(1.0 * rho)
    return GivenLinks(np.ones(rho.size))


def _given_link(links: GivenLinks, way: int, k: int) -> GivenRates:
    return GivenRates(links.gradient_share[k] if way == DOWN else 1.0)


def _given_bps(link: GivenRates, value: float) -> float:
    return link.share * value


LINKS_OF: dict[type, Callable[..., Any]] = {FdmaBands: fdma_links, GivenBands: _given_links}
LINK_OF: dict[type, Callable[..., Any]] = {FdmaLinks: fdma_link, GivenLinks: _given_link}
LINK_BPS: dict[type, Callable[..., float]] = {FdmaLink: _fdma_bps, GivenRates: _given_bps}
SHARED_BPS: dict[type, Callable[..., tuple[float, float, float]]] = {}
"""Functions for radios whose band is shared by the links that have something to send."""


def links_of(bands: Any, in_turns: bool, beta: Array, rho: Array) -> Any:
    """The links of a round under its shares [K]; `in_turns`: each gradient has the whole cell."""
    return LINKS_OF[type(bands)](bands, in_turns, beta, rho)


def link_of(links: Any, way: int, k: int) -> Any:
    """One link of a round: `UP`, `DOWN` (of gradients) or `BROADCAST`, of client k from 0."""
    return LINK_OF[type(links)](links, way, k)


def link_bps(link: Any, value: float) -> float:
    """The rate of a link in bit/s in a slot in which the channel has that value."""
    return LINK_BPS[type(link)](link, value)


def shared_bps(link: Any, value: float, active: int, others: int) -> tuple[float, float, float]:
    """The rate of a link in bit/s while `active` clients send in its direction and `others` in the
    other. Also the range of slot values in which it is the same: its lower end, and the first value
    above it; infinity and minus infinity if that is not known.

    The rate is 0 for each number of clients or for none."""
    return SHARED_BPS[type(link)](link, value, active, others)


@overload(links_of, jit_options=INLINED, strict=False)  # type: ignore[untyped-decorator]
def _compiled_links_of(bands: Any, in_turns: Any, beta: Any, rho: Any) -> Callable[..., Any]:
    return LINKS_OF[bands.instance_class]


@overload(link_of, jit_options=INLINED, strict=False)  # type: ignore[untyped-decorator]
def _compiled_link_of(links: Any, way: Any, k: Any) -> Callable[..., Any]:
    return LINK_OF[links.instance_class]


@overload(link_bps, jit_options=INLINED, strict=False)  # type: ignore[untyped-decorator]
def _compiled_link_bps(link: Any, value: Any) -> Callable[..., Any]:
    return LINK_BPS[link.instance_class]


@overload(shared_bps, jit_options=INLINED, strict=False)  # type: ignore[untyped-decorator]
def _compiled_shared_bps(link: Any, value: Any, active: Any, others: Any) -> Callable[..., Any]:
    return SHARED_BPS[link.instance_class]
