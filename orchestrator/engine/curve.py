# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rate models of packages: the rate of a link as a function of its SNR and its bandwidth.

The function of a package is compiled to a C function, which the engine calls by its address. The
shares of band and power are those of `Fdma`.
"""

import ctypes
import math
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import numba
import numpy as np
from numba.core.errors import NumbaError
from numba.types import float64

from orchestrator.engine.compiling import cause_of, compiled_plugin
from orchestrator.engine.fdma import Fdma
from orchestrator.scenario.schema import Scenario
from testbed.core.registry import RADIOS

SIGNATURE = float64(float64, float64)
TRIED_SNR_DB = np.arange(-60.0, 101.0, 0.25)
"""SNRs at which the function of a package is checked before anything is computed with it."""


@dataclass(frozen=True)
class Curve(Fdma):
    """Shares of band and power as with Shannon's rate, and the rate of a package's function."""

    access: str
    """The name under which a package registers the function."""

    @classmethod
    def of(cls, scenario: Scenario, **more: Any) -> Self:
        """The radio of a scenario; see `Fdma.of`.

        Raises:
            InputError: The function cannot be compiled, or does not return rates.
        """
        name, parameters = scenario.radio.access, scenario.radio.access_parameters
        address = _c_function(name, tuple(sorted(parameters.items()))).address
        radio = super().of(scenario, access=name, curve=address, **more)
        for hz in (radio.uplink_hz, radio.downlink_hz):
            radio._check(hz)
        return radio

    def _check(self, hz: float) -> None:
        """Refuse a function that fails, or returns no rates that can be right."""
        snr = np.concatenate([[0.0], 10 ** (TRIED_SNR_DB / 10)])
        assert self.curve is not None
        rate_bps = ctypes.CFUNCTYPE(*[ctypes.c_double] * 3)(self.curve)
        bps = np.array([rate_bps(each, hz) for each in snr.tolist()])
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
