# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Wi-Fi as a rate model: from the signal-to-noise ratio to aggregated frames, and who sends when.

An access point and K UAVs contend for one channel. A sender that obtains it sends as many packets
as an aggregate (A-MPDU) holds, in the modulation and coding scheme of its signal-to-noise ratio,
and receives a block acknowledgement. The time between two such exchanges follows Bianchi's model of
saturated senders ("Performance analysis of the IEEE 802.11 distributed coordination function", IEEE
JSAC 18(3), 2000): idle slots of backoff, and collisions. Each sender obtains the channel equally
often; the access point is one sender, for all of its UAVs in turn.

The model is an approximation: all exchanges have the duration of the link's own, all senders
receive each other, and only colliding exchanges are lost.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple, Self

import numpy as np

from orchestrator.engine import core_library
from orchestrator.engine.access import Radio
from orchestrator.engine.arrays import Array, Ints
from orchestrator.engine.core_library import Bands
from orchestrator.scenario.schema import Scenario, WifiStandard

SCHEMES = (
    *((1, 1 / 2, 1.465), (2, 1 / 2, 4.475), (2, 3 / 4, 6.985), (4, 1 / 2, 10.375)),
    *((4, 3 / 4, 13.465), (6, 2 / 3, 17.865), (6, 3 / 4, 19.125), (6, 5 / 6, 20.775)),
    *((8, 3 / 4, 24.525), (8, 5 / 6, 25.905), (10, 3 / 4, 32.571), (10, 5 / 6, 34.480)),
)
"""Modulation and coding schemes (MCS) with one spatial stream: bits per subcarrier, code rate, and
the least signal-to-noise ratio in dB.

The ratio is that of a bit error rate of 1e-6 in white noise, at which ns-3's `IdealWifiManager`
changes the scheme: computed with `TableBasedErrorRateModel` of ns-3 3.44 at 20 MHz. With 80 MHz and
160 MHz, those of the last two schemes are 0.2 dB higher."""
NUMBER_OF_SCHEMES: Mapping[WifiStandard, int] = {"n": 8, "ac": 10, "ax": 12}
SUBCARRIERS: Mapping[WifiStandard, Mapping[int, int]] = {
    "n": {20: 52, 40: 108},
    "ac": {20: 52, 40: 108, 80: 234, 160: 468},
    "ax": {20: 234, 40: 468, 80: 980, 160: 1960},
}
"""Number of subcarriers with data, by standard and width in MHz; IEEE Std 802.11-2020, tables 19-6
and 21-5, and 802.11ax-2021, table 27-15."""
PREAMBLE_US: Mapping[WifiStandard, float] = {"n": 36.0, "ac": 40.0, "ax": 44.0}
SYMBOL_US: Mapping[WifiStandard, float] = {"n": 4.0, "ac": 4.0, "ax": 16.0}
"""Duration of a symbol with the longest guard interval, 0.8 µs or, in 802.11ax, 3.2 µs, as ns-3 has
it by default."""
SLOT_US, SIFS_US = 9.0, 16.0
AIFS_US = SIFS_US + 3 * SLOT_US
"""Arbitration interframe space of best effort."""
LEAST_WINDOW, DOUBLINGS = 16, 6
"""Contention window of best effort: 16 slots, doubled by each collision up to 1,024."""
LONGEST_US, LARGEST_BYTES, MOST_PACKETS = 5484.0, 65535, 64
"""Limits of an aggregate: its duration, its size as ns-3 has it by default, and the packets that a
block acknowledgement covers."""
FRAME_BYTES = 8 + 26 + 4 + 4
"""Headers of a packet in an aggregate: LLC and SNAP, MAC, checksum, delimiter. Padding to a
multiple of 4 B follows."""
RTS_BYTES, CTS_BYTES, BLOCK_ACK_BYTES = 20, 14, 32
SERVICE_AND_TAIL_BITS = 22
WEAKEST_DBM = -82.0
"""Least received power at which a receiver detects a preamble: the least sensitivity that 802.11
demands at 20 MHz, and ns-3's `ThresholdPreambleDetectionModel`, …"""
WEAKEST_SNR_DB = 4.0
"""… and the least signal-to-noise ratio in 20 MHz of that model."""
HERTZ_PER_MHZ_DB = 60.0


class Contention(NamedTuple):
    """Mean cost of n saturated senders between two successful exchanges."""

    idle_slots: float
    collisions: float


class Exchanges(NamedTuple):
    """Exchanges of one aggregate in each scheme; the first entry has no scheme, and carries
    nothing. Shapes [L + 1]."""

    bits: Array
    """Bits of IP packets."""
    seconds: Array
    """Duration from the end of the backoff until the next backoff begins."""
    collision_s: Array
    """Duration of an exchange that collides, measured in the same way."""


@dataclass(frozen=True)
class Wifi(Radio):
    """A Wi-Fi cell: an access point and UAVs on one channel, with one antenna each."""

    uplink_power_w: Array
    """p_k, shape [K]."""
    access_point_power_w: float
    noise_w: float
    """Noise at the receivers in the whole channel, divided by the antenna gains."""
    weakest_w: float
    """Least received power at which a preamble is detected, divided by the antenna gains."""
    exchanges: Exchanges

    decides = frozenset[str]()
    without_shares = "where radio.access is 'wifi', whose UAVs contend for one channel"
    is_shared = True
    least_beta = 0.0

    @classmethod
    def of(cls, scenario: Scenario) -> "Wifi":
        """The scenario's cell."""
        radio, wifi = scenario.radio, scenario.radio.wifi
        density_dbm = radio.noise_dbm_per_mhz - HERTZ_PER_MHZ_DB + wifi.noise_figure_db
        weakest_dbm = max(WEAKEST_DBM, density_dbm + _db(20e6) + WEAKEST_SNR_DB)
        return cls(
            uplink_power_w=scenario.fleet.tx_power_w,
            access_point_power_w=scenario.access_point_power_w,
            noise_w=_watts(density_dbm + _db(1e6 * wifi.width_mhz) - wifi.antenna_gain_db),
            weakest_w=_watts(weakest_dbm - wifi.antenna_gain_db),
            exchanges=exchanges(
                wifi.standard, wifi.width_mhz, scenario.emulation.mtu, rts=wifi.rts
            ),
        )

    @property
    def unit_snr(self) -> Array:
        """Signal-to-noise ratio of each UAV's link at gain 1, if the UAV alone uses the whole band:
        uplink and downlink, linear, shape [2, K]."""
        up = self.uplink_power_w / self.noise_w
        return np.stack([up, np.full_like(up, self.access_point_power_w / self.noise_w)])

    def of_clients(self, chosen: Ints) -> Self:
        """See `RadioAccess.of_clients`."""
        return replace(self, uplink_power_w=self.uplink_power_w[chosen])

    def bands(self) -> Bands:
        """See `RadioAccess.bands`; in each direction, rates hold while nothing is sent in the
        other."""
        up, down = (core_library.Steps(least, self.bps) for least in self.least_gain)
        return Bands(core_library.WIFI, self.uplink_power_w, steps=(up, down))

    @cached_property
    def least_gain(self) -> Array:
        """The gain from which on each scheme is used in uplink and downlink, shape [2, K, L].

        An exchange needs both directions, as does the association before it: no scheme is used
        where the weaker of both ends would not be received, if it had the gain of the link.
        """
        powers_w = np.stack(np.broadcast_arrays(self.uplink_power_w, self.access_point_power_w))
        schemes = len(self.exchanges.bits) - 1
        least_snr = np.array([10 ** (least_db / 10) for *_, least_db in SCHEMES[:schemes]])
        weakest = (self.weakest_w / powers_w.min(axis=0))[:, None]
        return np.asarray(np.maximum(least_snr * self.noise_w / powers_w[:, :, None], weakest))

    @cached_property
    def bps(self) -> Array:
        """Bit/s of IP packets of each of n senders in each scheme, shape [K + 2, L + 1].

        All have the same scheme. K uplinks and the access point are K + 1 senders; row 0 is that of
        none.
        """
        bits, seconds, collision_s = self.exchanges
        rows = [np.zeros(len(bits))]
        for senders in range(1, len(self.uplink_power_w) + 2):
            idle_slots, collisions = contention(senders)
            waiting_s = 1e-6 * SLOT_US * idle_slots + collisions * collision_s
            rows.append(bits / (senders * (seconds + waiting_s)))
        return np.stack(rows)


@cache
def contention(senders: int) -> Contention:
    """Contention among this number of saturated senders, by Bianchi's model.

    The probability with which a sender begins in a slot, equation (7), and that with which it then
    collides, equation (9), follow from each other.

    Args:
        senders: Number of senders, at least 1.
    """
    low, high = 0.0, 1.0
    for _ in range(60):
        begins = (low + high) / 2
        collides = 1 - (1 - begins) ** (senders - 1)
        doubled = LEAST_WINDOW * sum((2 * collides) ** i for i in range(DOUBLINGS))
        low, high = (
            (begins, high)
            if begins < 2 / (1 + LEAST_WINDOW + collides * doubled)
            else (low, begins)
        )
    idle = (1 - begins) ** senders
    alone = senders * begins * (1 - begins) ** (senders - 1)
    return Contention(idle / alone, max(0.0, 1 - idle - alone) / alone)


def exchanges(standard: WifiStandard, width_mhz: int, packet_bytes: int, *, rts: bool) -> Exchanges:
    """The exchanges of full aggregates in each scheme.

    Args:
        standard: Standard of 802.11.
        width_mhz: Width of the channel.
        packet_bytes: Size of IP packets.
        rts: Whether RTS and CTS precede each aggregate.
    """
    frame_bytes = 4 * math.ceil((packet_bytes + FRAME_BYTES) / 4)
    fit = min(MOST_PACKETS, LARGEST_BYTES // frame_bytes)
    made = [(0.0, 1.0, 1.0)]
    schemes = NUMBER_OF_SCHEMES[standard]
    if (standard, width_mhz) == ("ac", 20):
        schemes -= 1  # its last scheme would have a fraction of a bit per symbol
    for bits, code_rate, _ in SCHEMES[:schemes]:
        symbol_bits = math.floor(SUBCARRIERS[standard][width_mhz] * bits * code_rate + 1e-9)
        symbols = (LONGEST_US - PREAMBLE_US[standard]) // SYMBOL_US[standard]
        in_time = int(symbols * symbol_bits - SERVICE_AND_TAIL_BITS) // (8 * frame_bytes)
        packets = max(1, min(fit, in_time))
        used = math.ceil((SERVICE_AND_TAIL_BITS + 8 * packets * frame_bytes) / symbol_bits)
        data_us = PREAMBLE_US[standard] + SYMBOL_US[standard] * used
        answer_mbps = _answer_mbps(bits, code_rate)
        rts_us, cts_us, answer_us = (
            _legacy_us(size, answer_mbps) for size in (RTS_BYTES, CTS_BYTES, BLOCK_ACK_BYTES)
        )
        whole_us = data_us + SIFS_US + answer_us + AIFS_US
        before_us = rts_us + SIFS_US + cts_us + SIFS_US
        # Those that collide wait as long as for an answer.
        collision_us = rts_us + SIFS_US + cts_us + AIFS_US if rts else whole_us
        whole_us += before_us if rts else 0.0
        made.append((8.0 * packets * packet_bytes, 1e-6 * whole_us, 1e-6 * collision_us))
    return Exchanges(*np.array(made).T)


def _answer_mbps(bits: int, code_rate: float) -> int:
    """The rate of control frames with a scheme: the highest basic rate, of 6, 12 and 24 Mb/s, that
    is not above that of 802.11a with the same modulation and coding."""
    return max(mbps for mbps in (6, 12, 24) if mbps <= max(6, 12 * bits * code_rate))


def _legacy_us(size_bytes: int, mbps: int) -> float:
    """Duration of a frame of 802.11a."""
    return 20.0 + 4.0 * math.ceil((SERVICE_AND_TAIL_BITS + 8 * size_bytes) / (4 * mbps))


def _db(ratio: float) -> float:
    return 10 * math.log10(ratio)


def _watts(dbm: float) -> float:
    return float(10 ** (dbm / 10 - 3))
