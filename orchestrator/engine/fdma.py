# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Radios whose UAVs have shares of the band, and the paper's, with Shannon's rate."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from ns3_scenarios.trace import SlotValues, both_ways
from orchestrator.engine.access import LinkRates, mean_rates
from orchestrator.engine.compiling import Ints, read_only
from orchestrator.engine.plan import Allocation, Array
from orchestrator.engine.radio_kernel import FdmaBands
from orchestrator.scenario.schema import Scenario


@dataclass(frozen=True)
class Fdma:
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

    def rate_bps(self, hz: Array, snr: Array) -> Array:
        """The rate of a band at a signal-to-noise ratio. The shapes of the arrays must be
        compatible."""
        raise NotImplementedError

    def link_rates(
        self, shares: Allocation, values: SlotValues, *, in_turns: bool, active: int | None = None
    ) -> LinkRates:
        """See `RadioAccess.link_rates`."""

        def rates(up: Array, down: Array) -> LinkRates:
            broadcast = self.broadcast_bps(down)
            gradient = broadcast if in_turns else self.dedicated_bps(shares.beta, shares.rho, down)
            return LinkRates(self.uplink_bps(shares.beta, up), broadcast, gradient)

        return mean_rates(values, rates)

    def of_clients(self, chosen: Ints) -> Self:
        """See `RadioAccess.of_clients`."""
        return replace(self, uplink_power_w=self.uplink_power_w[chosen])

    def uplink_bps(self, beta: Array, gain: Array) -> Array:
        """Uplink rates R_U, eq. (rate_uplink), if each client uses its share of the band. Gain and
        result have shape [K, S]."""
        return self._bps(beta * self.uplink_hz, self.uplink_power_w, gain)

    def broadcast_bps(self, gain: Array) -> Array:
        """Downlink rates R_D, eq. (rate_downlink_broadcast), with the full bandwidth and power.
        Gain and result have shape [K, S]."""
        return self._bps(self.downlink_hz, self.downlink_power_w, gain)

    def dedicated_bps(self, beta: Array, rho: Array, gain: Array) -> Array:
        """Downlink rates R'_D, eq. (rate_downlink), with shares β of the bandwidth and ρ of the
        power. Gain and result have shape [K, S]."""
        return self._bps(beta * self.downlink_hz, rho * self.downlink_power_w, gain)

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

    @property
    def fdma_bands(self) -> FdmaBands:
        """Bandwidths, powers and noise for compiled code."""
        return FdmaBands(
            float(self.uplink_hz),
            float(self.downlink_hz),
            float(self.noise_w_per_hz),
            float(self.downlink_power_w),
            read_only(self.uplink_power_w),
        )

    def _snr(self, hz: Array | float, power_w: Array | float, gain: Array) -> Array:
        band, power = np.atleast_1d(hz)[:, None], np.atleast_1d(power_w)[:, None]
        return np.asarray(power * gain / (band * self.noise_w_per_hz))

    def _bps(self, hz: Array | float, power_w: Array | float, gain: Array) -> Array:
        return self.rate_bps(np.atleast_1d(hz)[:, None], self._snr(hz, power_w, gain))


@dataclass(frozen=True)
class ShannonFdma(Fdma):
    """The paper's radio, with the Shannon rate for a share of the band, eqs. (1), (2) and (19)."""

    def rate_bps(self, hz: Array, snr: Array) -> Array:
        """See `Fdma.rate_bps`."""
        return shannon_bps(hz, snr)

    def bands(self) -> FdmaBands:
        """See `RadioAccess.bands`."""
        return self.fdma_bands


def shannon_bps(bandwidth_hz: Array | float, snr: Array) -> Array:
    """Shannon's rate in bit/s, eqs. (1), (2), (19); arrays of shapes that go together."""
    # Below, 1 + snr would lose the digits of snr.
    bits = np.where(snr > 1e-3, np.log2(1 + snr), np.log1p(snr) / np.log(2))
    return np.asarray(bandwidth_hz * bits)
