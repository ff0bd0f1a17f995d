# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rate models of packages: the rate of a link as a function of its SNR and its bandwidth.

The function of a package is compiled to a C function, which the engine's kernel calls by its
address; the kernel is compiled once for all such functions. The shares of band and power are those
of `Fdma`.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Self

import numba
import numpy as np
from numba.core.errors import NumbaError
from numba.types import float64

from orchestrator.engine.compiling import (
    Array,
    caller_of,
    cause_of,
    compiled,
    compiled_plugin,
    inlined,
)
from orchestrator.engine.fdma import Fdma
from orchestrator.engine.radio_kernel import (
    LINK_BPS,
    LINK_OF,
    LINKS_OF,
    FdmaBands,
    FdmaLinks,
    fdma_link,
    fdma_links,
)
from orchestrator.scenario.schema import Scenario
from testbed.core.registry import RADIOS

SIGNATURE = float64(float64, float64)
TRIED_SNR_DB = np.arange(-60.0, 101.0, 0.25)
"""SNRs at which the function of a package is checked before anything is computed with it."""

_rate_of = caller_of(SIGNATURE)
_fdma_links, _fdma_link = inlined(fdma_links), inlined(fdma_link)


class CurveBands(NamedTuple):
    """A `Curve` radio, for compiled code."""

    fdma: FdmaBands
    address: int


class CurveLinks(NamedTuple):
    """The links of a round with a `Curve` radio."""

    fdma: FdmaLinks
    address: int


class CurveLink(NamedTuple):
    """One link with a `Curve` radio."""

    bandwidth_hz: float
    snr_at_1: float
    address: int


def _links(bands: CurveBands, in_turns: bool, beta: Array, rho: Array) -> CurveLinks:
    return CurveLinks(_fdma_links(bands.fdma, in_turns, beta, rho), bands.address)


def _link(links: CurveLinks, way: int, k: int) -> CurveLink:
    link = _fdma_link(links.fdma, way, k)
    return CurveLink(link.bandwidth_hz, link.snr_at_1, links.address)


def _bps(link: CurveLink, value: float) -> float:
    bps: float = _rate_of(link.address, (link.snr_at_1 * value, link.bandwidth_hz))
    return bps


LINKS_OF[CurveBands], LINK_OF[CurveLinks], LINK_BPS[CurveLink] = _links, _link, _bps


@compiled
def _rates(address: int, hz: Array, snr: Array, bps: Array) -> None:
    """Fill rates in bit/s; all arrays have one dimension."""
    for n in range(bps.size):
        bps[n] = _rate_of(address, (snr[n], hz[n]))


@dataclass(frozen=True)
class Curve(Fdma):
    """Shares of band and power as with Shannon's rate, and the rate of a package's function."""

    access: str
    """The name under which a package registers the function."""
    address: int
    """Address of the C function."""

    @classmethod
    def of(cls, scenario: Scenario, **more: Any) -> Self:
        """The radio of a scenario; see `Fdma.of`.

        Raises:
            InputError: The function cannot be compiled, or does not return rates.
        """
        name, parameters = scenario.radio.access, scenario.radio.access_parameters
        address = _c_function(name, tuple(sorted(parameters.items()))).address
        radio = super().of(scenario, access=name, address=address, **more)
        for hz in (radio.uplink_hz, radio.downlink_hz):
            radio._check(hz)
        return radio

    def bands(self) -> CurveBands:
        """See `RadioAccess.bands`."""
        return CurveBands(self.fdma_bands, self.address)

    def rate_bps(self, hz: Array, snr: Array) -> Array:
        """See `Fdma.rate_bps`."""
        hz, snr = np.broadcast_arrays(hz, snr)
        bps = np.empty(snr.shape)
        _rates(self.address, hz.ravel(), snr.ravel(), bps.reshape(-1))
        return bps

    def _check(self, hz: float) -> None:
        """Refuse a function that fails, or returns no rates that can be right."""
        snr = np.concatenate([[0.0], 10 ** (TRIED_SNR_DB / 10)])
        bps = self.rate_bps(np.full(1, hz), snr)
        with np.errstate(invalid="ignore"):
            falls = np.diff(bps) < -1e-9 * np.abs(bps[1:])
        for wrong, why in (
            (~np.isfinite(bps), "fails, or does not return a number,"),
            (bps < 0, "returns a rate below 0"),
            (np.append(False, falls), "returns less at more SNR"),
        ):
            if wrong.any():
                at = snr[wrong.argmax()]
                level = f"{10 * math.log10(at):g} dB" if at else "0"
                raise RADIOS.unfit(self.access, f"{why} at SNR {level} and {hz:g} Hz")


@cache
def _c_function(name: str, parameters: tuple[tuple[str, Any], ...]) -> Any:
    """The C function of a package's rate model: from SNR and bandwidth in Hz to bit/s."""
    rate = compiled_plugin(RADIOS.function(name), dict(parameters), given=2)

    def bps(snr: float, bandwidth_hz: float) -> float:
        try:
            return float(rate(snr, bandwidth_hz))
        except Exception:
            return math.nan

    try:
        return numba.cfunc(SIGNATURE)(bps)
    except NumbaError as error:
        why = f"cannot be compiled by numba: {cause_of(error)}"
        raise RADIOS.unfit(name, why) from error
