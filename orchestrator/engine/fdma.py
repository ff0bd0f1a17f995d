# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Radios whose UAVs have shares of the band, and the paper's, with Shannon's rate."""

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from ns3_scenarios.trace import SlotValues, both_ways
from orchestrator.engine.access import Radio
from orchestrator.engine.arrays import Ints
from orchestrator.engine.core_library import CURVE, SHANNON, Bands, shannon_bps
from orchestrator.engine.plan import Allocation, Array
from orchestrator.scenario.schema import Scenario

__all__ = ["Fdma", "ShannonFdma", "shannon_bps"]


@dataclass(frozen=True)
class Fdma(Radio):
    """Frequency-division multiple access: every UAV has a fixed share of the bandwidth, whether or
    not other UAVs transmit.

    Bandwidths in Hz, powers in W.
    """

    uplink_hz: float
    """W_U."""
    downlink_hz: float
    """W_D."""
    noise_w_per_hz: float
    """N0."""
    downlink_power_w: float
    """P_S."""
    uplink_power_w: Array
    """p_k, shape [K]."""
    curve: int | None = field(default=None, kw_only=True)
    """Address of a C function from SNR and bandwidth in Hz to bit/s; None: Shannon's rate."""

    decides = frozenset({"beta", "rho"})
    without_shares = ""
    is_shared = False
    least_beta = 0.0

    @classmethod
    def of(cls, scenario: Scenario, **more: Any) -> Self:
        """The scenario's radio in SI units.

        Args:
            scenario: The scenario.
            more: Fields of a subclass.
        """
        return cls(
            uplink_hz=scenario.radio.uplink_bandwidth_hz,
            downlink_hz=scenario.radio.downlink_bandwidth_hz,
            noise_w_per_hz=1e-3 * 10 ** (scenario.radio.noise_dbm_per_mhz / 10) / 1e6,
            downlink_power_w=scenario.base_station.tx_power_w,
            uplink_power_w=scenario.fleet.tx_power_w,
            **more,
        )

    def of_clients(self, chosen: Ints) -> Self:
        """See `RadioAccess.of_clients`."""
        return replace(self, uplink_power_w=self.uplink_power_w[chosen])

    def snr(self, shares: Allocation, values: SlotValues, *, in_turns: bool) -> Array:
        """Signal-to-noise ratios, linear, [3, K, S]: uplink, downlink of gradients, broadcast."""
        up, down = both_ways(values)
        uplink = self._snr(shares.beta * self.uplink_hz, self.uplink_power_w, up)
        broadcast = downlink = self._snr(self.downlink_hz, self.downlink_power_w, down)
        if not in_turns:
            power_w = shares.rho * self.downlink_power_w
            downlink = self._snr(shares.beta * self.downlink_hz, power_w, down)
        return np.stack([uplink, downlink, broadcast])

    @property
    def unit_snr(self) -> Array:
        """Signal-to-noise ratio of each UAV's link at gain 1, if the UAV alone uses the whole band:
        uplink and downlink, linear, shape [2, K]."""
        up = self._snr(self.uplink_hz, self.uplink_power_w, np.ones(1))
        down = self._snr(self.downlink_hz, self.downlink_power_w, np.ones_like(up))
        return np.stack([up, down])[..., 0]

    def bands(self) -> Bands:
        """See `RadioAccess.bands`."""
        return Bands(
            SHANNON if self.curve is None else CURVE,
            self.uplink_power_w,
            curve=self.curve,
            uplink_hz=float(self.uplink_hz),
            downlink_hz=float(self.downlink_hz),
            noise_w_per_hz=float(self.noise_w_per_hz),
            downlink_power_w=float(self.downlink_power_w),
        )

    def _snr(self, hz: Array | float, power_w: Array | float, gain: Array) -> Array:
        band, power = np.atleast_1d(hz)[:, None], np.atleast_1d(power_w)[:, None]
        return np.asarray(power * gain / (band * self.noise_w_per_hz))


@dataclass(frozen=True)
class ShannonFdma(Fdma):
    """The paper's radio, with the Shannon rate for a share of the band, eqs. (1), (2) and (19)."""
