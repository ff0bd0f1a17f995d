# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The engine again, written plainly: no numba, no heaps, nothing shared with the real one.

Everything is looked up where it is needed and searched for in plain lists. It follows the text of
the paper and of the documentation, in particular: what lies in the same whole nanosecond is
simultaneous; all that happens at a moment happens before a sequential server chooses; computing is
served before the downlink; who ranks first goes first, then earlier arrival, then lower client
number.
"""

import functools
import json
import math
from bisect import bisect_right
from pathlib import Path

import numpy as np

from orchestrator.engine.lte_tables import lost_blocks

INFINITE = 10**30
SIZES = [
    [int(bits) for bits in line.split(",")]
    for line in (Path(__file__).parents[2] / "orchestrator/engine/transport_block_bits.csv")
    .read_text()
    .splitlines()
    if not line.startswith("#")
]
"""Bits of a transport block by TBS index and number of resource blocks less 1."""
CODE_RATES = {
    "64QAM": [
        *((2, 78), (2, 120), (2, 193), (2, 308), (2, 449), (2, 602), (4, 378), (4, 490)),
        *((4, 616), (6, 466), (6, 567), (6, 666), (6, 772), (6, 873), (6, 948)),
    ],
    "256QAM": [
        *((2, 78), (2, 193), (2, 449), (4, 378), (4, 490), (4, 616), (6, 466), (6, 567)),
        *((6, 666), (6, 772), (6, 873), (8, 711), (8, 797), (8, 885), (8, 948)),
    ],
}
"""Bits per symbol and 1024 times the code rate of each CQI from 1: TS 36.213, tables 7.2.3-1 and
7.2.3-2."""
TBS_INDICES = {
    "uplink": [*range(11), *range(10, 20), *range(19, 27)],
    "64QAM": [*range(10), *range(9, 16), *range(15, 27)],
    "256QAM": [0, 2, 4, 6, 8, *range(10, 26), *range(27, 34)],
}
"""TBS index of each MCS: TS 36.213, tables 8.6.1-1, 7.1.7.1-1 and 7.1.7.1-1A."""
CURVES = json.loads(
    (Path(__file__).parents[2] / "orchestrator/engine/link_curves.json").read_text()
)
"""See `ns3_scenarios.link_curves`."""
RESOURCE_BLOCKS = {1.4: 6, 3: 15, 5: 25, 10: 50, 15: 75, 20: 100}

NR_ORDERS = {"64QAM": (10, 7, 12), "256QAM": (5, 6, 9, 8)}
"""Numbers of schemes of each modulation order: TS 38.214, tables 5.1.3.1-1 and 5.1.3.1-2."""
NR_PERCENT = {
    "64QAM": (
        *(12, 15, 19, 25, 30, 37, 44, 51, 59, 66, 33, 37, 42, 48, 54, 60, 64),
        *(43, 46, 50, 55, 60, 65, 70, 75, 80, 85, 89, 93),
    ),
    "256QAM": (
        *(12, 19, 30, 44, 59, 37, 42, 48, 54, 60, 64, 46, 50, 55, 60, 65, 70, 75, 80, 85),
        *(67, 69, 74, 77, 82, 86, 90, 93),
    ),
}
"""Code rates of these schemes in 5G-LENA, in percent."""
NR_RATES = {
    "64QAM": (
        *(120, 157, 193, 251, 308, 379, 449, 526, 602, 679, 340, 378, 434, 490, 553, 616),
        *(658, 438, 466, 517, 567, 616, 666, 719, 772, 822, 873, 910, 948),
    ),
    "256QAM": (
        *(120, 193, 308, 449, 602, 378, 434, 490, 553, 616, 658, 466, 517, 567, 616, 666),
        *(719, 772, 822, 873, 682.5, 711, 754, 797, 841, 885, 916.5, 948),
    ),
}
"""1024 times the code rates of the tables."""


@functools.cache
def efficiencies(modulation, digits):
    return [round(order * rate / 1024, digits) for order, rate in CODE_RATES[modulation]]


@functools.cache
def lost_in_steps(cqi, group):
    """The engine's table: `test_lte_tables` compares it with the curves."""
    above_db, lost = lost_blocks(cqi, group)
    return above_db.tolist(), lost.tolist()


class TooShort(Exception):
    """The trace ends before the round."""


def nanosecond(time_s):
    return math.floor(time_s * 1e9 + 0.5)


class Link:
    """A link's rate in every slot; transfers end when the integral reaches their bits."""

    def __init__(self, rate_in, edges_s):
        self.edges_s = edges_s
        self.slots = len(edges_s) - 1
        self.rate_in = functools.cache(rate_in)
        self.bits_at_edge = [0.0]

    def slot(self, time_s):
        slot = bisect_right(self.edges_s, time_s + 0.5e-9) - 1
        if slot >= self.slots:
            raise TooShort
        return slot

    def rate(self, time_s):
        return self.rate_in(self.slot(time_s))

    def bits_before(self, slot):
        """What the link could have sent when a slot begins."""
        for s in range(len(self.bits_at_edge) - 1, slot):
            lasts_s = self.edges_s[s + 1] - self.edges_s[s]
            self.bits_at_edge.append(self.bits_at_edge[s] + self.rate_in(s) * lasts_s)
        return self.bits_at_edge[slot]

    def end(self, start_s, size_bytes):
        if size_bytes == 0:
            return start_s
        slot = self.slot(start_s)
        before = self.bits_before(slot) + self.rate_in(slot) * (start_s - self.edges_s[slot])
        wanted = before + 8 * size_bytes
        for s in range(slot, self.slots):
            rate = self.rate_in(s)
            if wanted <= self.bits_before(s + 1) + rate * 0.5e-9 and rate > 0:
                since_s = max(start_s, self.edges_s[s])
                have = before if s == slot else self.bits_before(s)
                return since_s + (wanted - have) / rate
        raise TooShort


class Fdma:
    """Shannon's rate of shares of a band, from a `ShannonFdma`."""

    is_shared = False

    def __init__(self, radio, share):
        self.radio, self.share = radio, share

    def rate(self, way, k, gain):
        radio, share = self.radio, self.share
        bandwidth_hz, power_w = radio.downlink_hz, radio.downlink_power_w
        if way == "up":
            bandwidth_hz, power_w = share.beta[k] * radio.uplink_hz, radio.uplink_power_w[k]
        elif way == "down":
            bandwidth_hz, power_w = share.beta[k] * bandwidth_hz, share.rho[k] * power_w
        snr = power_w * gain / (bandwidth_hz * radio.noise_w_per_hz)
        return bandwidth_hz * np.log1p(snr) / math.log(2)


class Lte:
    """An LTE cell, from the keys of a scenario."""

    def __init__(self, scenario, share):
        radio, lte = scenario.radio, scenario.radio.lte
        self.share, self.margin_db = share, lte.implementation_margin_db
        self.packet_bytes = scenario.emulation.mtu
        self.power_w, self.bs_power_w = scenario.fleet.tx_power_w, scenario.base_station.tx_power_w
        floor_dbm = radio.noise_dbm_per_mhz + 10 * math.log10(0.18)
        floor_dbm += lte.noise_figure_db + lte.interference_margin_db - lte.antenna_gain_db
        self.noise_w = 10 ** ((floor_dbm - 30) / 10)
        self.band = RESOURCE_BLOCKS[radio.downlink_bandwidth_hz / 1e6]
        self.up_blocks = lte.resource_blocks or RESOURCE_BLOCKS[radio.uplink_bandwidth_hz / 1e6]
        self.down_blocks = lte.resource_blocks or self.band
        self.layers, self.modulation = lte.layers, lte.highest_modulation
        self.is_shared = lte.scheduler == "equal"

    def cqi(self, snr_db, modulation, digits=9):
        """The highest CQI that a signal-to-noise ratio less the margin supports; 0: none."""
        supported = math.log2(1 + 10 ** (snr_db / 10))
        return bisect_right(efficiencies(modulation, digits), supported + 1e-9)

    def cqi_by_curves(self, snr_db):
        """The highest CQI by ns-3's link curves, and its place in their table; 0: none."""
        group = 0 if self.band < 27 else 2 if self.band < 64 else 3
        curve_db = CURVES["least_db"][group]
        place = bisect_right(curve_db, snr_db)
        if self.modulation == "64QAM":
            return place, place
        known = CODE_RATES["64QAM"]
        gap_db = curve_db[14] - 10 * math.log10(2 ** (6 * 948 / 1024) - 1)
        best = (0, 0)
        for cqi, (order, rate) in enumerate(CODE_RATES["256QAM"], 1):
            if order < 8:
                same = known.index((order, rate))
                least_db, there = curve_db[same], same + 1
            else:
                least_db = gap_db + 10 * math.log10(2 ** (order * rate / 1024) - 1)
                there = 0
            if snr_db >= least_db:
                best = (cqi, there)
        return best

    def sent(self, place, snr_db, blocks):
        """How often a transport block is sent, by a CQI of the curves: again if it is lost."""
        if not place:
            return 1.0
        group = 0 if self.band < 27 else 2 if self.band < 64 else 3
        above_db, lost = lost_in_steps(place, group + 1)
        step = bisect_right(above_db, snr_db - CURVES["least_db"][group][place - 1])
        return 1 + lost[max(0, step - 1)][blocks]

    def packets_bps(self, indices, mcs, blocks):
        """Bit/s of packets. No MCS carries more than a higher one with as many blocks."""
        if blocks == 0:
            return 0.0
        bits = min(SIZES[index][blocks - 1] for index in indices[mcs:])
        return max(bits - 16, 0) * 1000 * self.packet_bytes / (self.packet_bytes + 3.5)

    def uplink_bps(self, k, gain, blocks):
        """With all power in that many blocks, or in as many as it reaches by MCS 0."""
        if gain == 0:
            return 0.0
        alone_db = 10 * math.log10(self.power_w[k] * gain / self.noise_w)

        def cqi(used):
            rounded_db = math.trunc(8 * (alone_db - 10 * math.log10(used))) / 8
            margin_db = 7.427 if self.margin_db is None else self.margin_db
            return self.cqi(rounded_db - margin_db, "64QAM", 2)

        if blocks and cqi(blocks) > 0:
            return self.packets_bps(TBS_INDICES["uplink"], 2 * (cqi(blocks) - 1), blocks)
        reached = [used for used in range(min(blocks, 4), blocks) if cqi(used) > 0]
        return self.packets_bps(TBS_INDICES["uplink"], 0, max(reached, default=0))

    def downlink_bps(self, gain, blocks):
        """With that many blocks, on one layer or two: whichever carries more in the whole cell."""
        if gain == 0:
            return 0.0
        snr_db = 10 * math.log10(self.bs_power_w * gain / (self.band * self.noise_w))
        ways = [(1, snr_db)] if self.layers == 1 else [(1, snr_db + 4.2), (2, snr_db - 2.8)]
        carries = [(0.0, 0.0)]
        for layers, at_db in ways:
            if self.margin_db is None:
                cqi, place = self.cqi_by_curves(at_db)
            else:
                cqi, place = self.cqi(at_db - self.margin_db, self.modulation), 0
            if cqi:
                mcs = 2 * (cqi - 1) if self.modulation == "64QAM" else max(0, 2 * cqi - 3)
                whole, part = (
                    layers * self.packets_bps(TBS_INDICES[self.modulation], mcs, number)
                    for number in (self.down_blocks, blocks)
                )
                carries.append((whole, part / self.sent(place, at_db, blocks)))
        return max(carries, key=lambda each: each[0])[1]

    def shared_rate(self, way, k, gain, active, others=0):
        """While that many divide the blocks equally, those of the uplink by number, in turns where
        each would have fewer than 4; those of the downlink by time."""
        if way == "down":
            return self.downlink_bps(gain, self.down_blocks) / active
        at_a_time = max(1, min(active, self.up_blocks // 4))
        blocks = self.up_blocks // at_a_time
        return self.uplink_bps(k, gain, blocks) * at_a_time / active

    def rate(self, way, k, gain, together):
        """Of a link by itself; where the cell is shared, while those UAVs are active that are in
        one cell together and in range."""
        if way == "broadcast":
            return self.downlink_bps(gain, self.down_blocks)
        if self.is_shared:
            return self.shared_rate(way, k, gain, max(1, together))
        if way == "up":
            return self.uplink_bps(k, gain, int(self.share.beta[k] * self.up_blocks + 1e-9))
        return self.downlink_bps(gain, int(self.share.beta[k] * self.down_blocks + 1e-9))


def in_range(cell, way, gains, among, slot):
    """How many of some UAVs an LTE cell serves in a slot."""
    side = "up" if way == "up" else "down"
    return sum(cell.shared_rate(side, j, gains[j][slot], 1) > 0 for j in among)


class Nr(Lte):
    """An NR cell, from the keys of a scenario, with transport blocks of 5G-LENA."""

    def __init__(self, scenario, share):
        radio, nr = scenario.radio, scenario.radio.nr
        self.share, self.packet_bytes = share, scenario.emulation.mtu
        self.power_w, self.bs_power_w = scenario.fleet.tx_power_w, scenario.base_station.tx_power_w
        floor_dbm = radio.noise_dbm_per_mhz + 10 * math.log10(12e-3 * nr.subcarrier_spacing_khz)
        floor_dbm += nr.noise_figure_db + nr.interference_margin_db - nr.antenna_gain_db
        self.noise_w = 10 ** ((floor_dbm - 30) / 10)
        blocks = {15: {5: 25, 20: 106}, 30: {5: 11, 20: 51}, 60: {10: 11, 20: 24}}
        known = blocks[nr.subcarrier_spacing_khz]
        self.band = known[radio.downlink_bandwidth_hz / 1e6]
        left = 1 - nr.background.load + 1e-12
        self.up_blocks = int(left * (nr.resource_blocks or known[radio.uplink_bandwidth_hz / 1e6]))
        self.down_blocks = int(left * (nr.resource_blocks or self.band))
        self.grants = nr.grants_per_tti or 1000
        self.slots_per_s = 1000 * nr.subcarrier_spacing_khz / 15
        self.parts = (1, 1)
        if nr.duplex == "tdd":
            own = [nr.tdd_pattern.count(slot) for slot in "UDS"]
            self.parts = (own[0] / sum(own), (own[1] + own[2] * 12 / 13) / sum(own))
        self.modulation, self.is_shared = nr.highest_modulation, nr.scheduler == "equal"
        self.order = [
            order
            for order, n in zip((2, 4, 6, 8), NR_ORDERS[self.modulation], strict=False)
            for _ in range(n)
        ]
        self.rates_1024 = NR_RATES[self.modulation]

    def efficiency(self, snr):
        return math.log2(1 + snr * 1.5 / -math.log(5e-5))

    def scheme(self, supported):
        """The highest scheme of at most that efficiency, from 0; -1: not even the first CQI."""
        if supported < 0.15:
            return -1
        exact = [
            round(order * rate / 1024, 2)
            for order, rate in zip(self.order, self.rates_1024, strict=True)
        ]
        return max((mcs for mcs, each in enumerate(exact) if each <= supported), default=0)

    def block_bytes(self, mcs, blocks):
        rate = NR_PERCENT[self.modulation][mcs] / 100
        whole = int(11 * 13 * blocks * self.order[mcs] * NR_PERCENT[self.modulation][mcs] // 800)
        small = 8 * whole <= 292 or rate <= 0.25 or (8 * whole <= 3824 and rate <= 0.67)
        return whole - 3 * max(1, (whole - 3) // (480 if small else 1056))

    def bps(self, way, mcs, blocks):
        left = self.block_bytes(mcs, blocks) - (10 if way == 0 else 5)
        data = 8 * max(left, 0) * self.slots_per_s * self.parts[way]
        return data * self.packet_bytes / (self.packet_bytes + 3.5)

    def uplink_bps(self, k, gain, blocks):
        alone = self.power_w[k] * gain / self.noise_w
        fewest = min(blocks, 4)
        some = range(blocks, fewest - 1, -1) if blocks else ()
        reached = next((n for n in some if alone / n >= 10**-0.036), 0)
        if reached == 0:
            return 0.0
        mcs = self.scheme(self.efficiency(alone / reached)) if reached == blocks else 0
        return self.bps(0, mcs, reached) * self.arriving(mcs, alone / reached, reached)

    def arriving(self, mcs, snr, blocks):
        """The part of the blocks that are not sent again: none is sent below -0.36 dB, and 5G-LENA
        loses some with the highest scheme up to 64QAM below 26.15 dB, by their size."""
        if mcs == 0:
            return 1.0 if snr >= 10**-0.036 else 0.0
        if mcs < 28 or snr >= 10**2.615:
            return 1.0
        return 0.9993 ** (self.block_bytes(mcs, blocks) / 1056)

    def downlink_bps(self, gain, blocks):
        cqi = [round(order * rate / 1024, 2) for order, rate in CODE_RATES[self.modulation]]
        snr = self.bs_power_w * gain / (self.band * self.noise_w)
        known = [each for each in cqi if each <= self.efficiency(snr)]
        if not known or not blocks:
            return 0.0
        mcs = self.scheme(known[-1])
        return self.bps(1, mcs, blocks) * self.arriving(mcs, snr, blocks)

    def shared_rate(self, way, k, gain, active, others=0):
        """While that many divide the blocks equally: each has one more in a part of the time."""
        number = self.down_blocks if way == "down" else self.up_blocks
        at_a_time = max(1, min(active, number // 4, self.grants))
        blocks, more = divmod(number, at_a_time)

        def bps(n):
            return self.downlink_bps(gain, n) if way == "down" else self.uplink_bps(k, gain, n)

        mean = (at_a_time - more) * bps(blocks) + (more and more * bps(blocks + 1))
        return mean / active


class Wifi:
    """A Wi-Fi cell, from the keys of a scenario: everything in µs, dBm and dB."""

    is_shared = True
    modulations = (1, 2, 2, 4, 4, 6, 6, 6, 8, 8, 10, 10)
    code_rates = (1 / 2, 1 / 2, 3 / 4, 1 / 2, 3 / 4, 2 / 3, 3 / 4, 5 / 6, *(3 / 4, 5 / 6) * 2)
    least_db = (
        *(1.465, 4.475, 6.985, 10.375, 13.465, 17.865, 19.125, 20.775, 24.525, 25.905),
        *(32.571, 34.480),
    )

    def __init__(self, scenario, share):
        radio, self.wifi = scenario.radio, scenario.radio.wifi
        self.mtu, self.power_w = scenario.emulation.mtu, scenario.fleet.tx_power_w
        self.station_w = scenario.access_point_power_w
        self.density_dbm = radio.noise_dbm_per_mhz + self.wifi.noise_figure_db

    def scheme(self, way, k, gain):
        """The number of the modulation and coding scheme, from 0; -1: none."""
        if gain == 0:
            return -1
        gain_db = 10 * math.log10(gain) + self.wifi.antenna_gain_db
        powers_dbm = [10 * math.log10(watts) + 30 for watts in (self.power_w[k], self.station_w)]
        weakest_dbm = max(-82, self.density_dbm + 10 * math.log10(20) + 4)
        if min(powers_dbm) + gain_db < weakest_dbm:
            return -1
        snr_db = powers_dbm[0 if way == "up" else 1] + gain_db
        snr_db -= self.density_dbm + 10 * math.log10(self.wifi.width_mhz)
        schemes = {"n": 8, "ac": 10, "ax": 12}[self.wifi.standard]
        schemes -= self.wifi.standard == "ac" and self.wifi.width_mhz == 20
        return sum(snr_db >= least for least in self.least_db[:schemes]) - 1

    def exchange(self, scheme):
        """Packets of an aggregate; how long it takes to exchange it, and how long a collision."""
        standard, width = self.wifi.standard, self.wifi.width_mhz
        data, preamble_us, symbol_us = {
            "n": ({20: 52, 40: 108}, 36, 4),
            "ac": ({20: 52, 40: 108, 80: 234, 160: 468}, 40, 4),
            "ax": ({20: 234, 40: 468, 80: 980, 160: 1960}, 44, 16),
        }[standard]
        per_symbol = int(data[width] * self.modulations[scheme] * self.code_rates[scheme] + 1e-9)
        frame = self.mtu + 42
        frame += -frame % 4

        def takes_us(packets):
            return preamble_us + symbol_us * -(-(22 + 8 * packets * frame) // per_symbol)

        packets = 1
        while packets < 64 and (packets + 1) * frame <= 65535 and takes_us(packets + 1) <= 5484:
            packets += 1
        mbps = 6 if scheme == 0 else 12 if scheme < 3 else 24

        def control_us(size):
            return 20 + 4 * -(-(22 + 8 * size) // (4 * mbps))

        whole_us = takes_us(packets) + 16 + control_us(32) + 43
        if not self.wifi.rts:
            return packets, whole_us, whole_us
        rts_us, cts_us = control_us(20), control_us(14)
        return packets, rts_us + 16 + cts_us + 16 + whole_us, rts_us + 16 + cts_us + 43

    @staticmethod
    @functools.cache
    def between(senders):
        """Idle slots and collisions per success, from the chain of backoffs, by iteration."""
        begins = 0.1
        for _ in range(2000):
            collides = 1 - (1 - begins) ** (senders - 1)
            # Mean attempts and backoff of stage i, which is reached with probability p^i.
            stages = [collides**i for i in range(400)]
            slots = [(16 * 2 ** min(i, 6) + 1) / 2 for i in range(400)]
            due = sum(stages) / sum(p * w for p, w in zip(stages, slots, strict=True))
            begins += 0.2 * (due - begins)
        idle, alone = (1 - begins) ** senders, senders * begins * (1 - begins) ** (senders - 1)
        return idle / alone, (1 - idle - alone) / alone

    def shared_rate(self, way, k, gain, active, others=0):
        """Each uplink is a sender; the access point is one for all downlinks."""
        scheme = self.scheme(way, k, gain)
        if scheme < 0:
            return 0.0
        packets, whole_us, collision_us = self.exchange(scheme)
        senders = active + (others > 0) if way == "up" else 1 + others
        idle, collisions = self.between(senders)
        turn_us = whole_us + 9 * idle + collisions * collision_us
        turns = senders if way == "up" else senders * active
        return 8e6 * self.mtu * packets / (turn_us * turns)

    def rate(self, way, k, gain):
        """Of a link by itself, or of an uplink or gradient while all send in its direction."""
        active = 1 if way == "broadcast" else len(self.power_w)
        return self.shared_rate(way, k, gain, active)


class Visit:
    """One client at one station of the server in one iteration."""

    def __init__(self, client, arrived_s, rank, iteration):
        self.client = client
        self.iteration = iteration
        self.arrived_s = arrived_s
        self.ready_s = arrived_s
        self.rank = math.copysign(INFINITE, rank) if abs(rank) > 9e9 else nanosecond(rank)


class Station:
    def __init__(self, parallel, gated, iterations):
        self.parallel, self.gated, self.iterations = parallel, gated, dict(iterations)
        self.gate, self.queue = [], []
        self.busy = False
        self.serves = None
        self.free_s = -math.inf

    def is_awaited(self):
        """Whether a client that does the iteration of those at the gate is not there."""
        doing = [k for k, own in self.iterations.items() if own > self.gate[0].iteration]
        return len(self.gate) < len(doing)

    def arrive(self, visit):
        self.gate.append(visit)
        if self.gated and self.is_awaited():
            return
        for held in self.gate:
            held.ready_s = max(v.arrived_s for v in self.gate)
        self.queue += self.gate
        self.gate = []

    def give_up(self, client, now_s):
        """Forget a client that is lost; those at the gate may have waited for it alone."""
        del self.iterations[client]
        self.gate = [v for v in self.gate if v.client != client]
        self.queue = [v for v in self.queue if v.client != client]
        if self.serves == client and self.busy:
            self.busy, self.free_s = False, now_s
        if self.gated and self.gate and not self.is_awaited():
            for held in self.gate:
                held.ready_s = now_s
            self.queue += self.gate
            self.gate = []

    def next(self):
        """Whom to serve now, and from when; None if nobody."""
        if not self.queue or (self.busy and not self.parallel):
            return None
        chosen = min(
            self.queue,
            key=lambda v: (v.rank, nanosecond(v.arrived_s), v.client),
        )
        self.queue.remove(chosen)
        start_s = chosen.ready_s if self.parallel else max(chosen.ready_s, self.free_s)
        return chosen, start_s

    def serve_until(self, end_s, client):
        self.busy, self.free_s, self.serves = True, end_s, client


def slowly(start_s, work_s, rows):
    """When computing ends, found by walking from one change of speed to the next."""
    now_s, left_s = start_s, work_s
    while left_s > 0:
        factor = math.prod(f for begin, end, f in rows if begin <= now_s < end)
        changes = [t for begin, end, _ in rows for t in (begin, end) if t > now_s]
        until_s = min(changes, default=math.inf)
        if now_s + left_s * factor <= until_s:
            return now_s + left_s * factor
        left_s -= (until_s - now_s) / factor
        now_s = until_s
    return now_s


class Sender:
    """TCP's sending end of one direction of a link, over a radio that grants what is sent."""

    def __init__(self, tcp, side):
        self.tcp, self.side = tcp, side
        self.window, self.idle_from_s = tcp.initial, None
        self.waited_s = []

    def begins(self, now, size_bytes, bps):
        """When a transfer begins to be served."""
        tcp, round_trip_s = self.tcp, float(self.tcp.delay_s[:, 0].sum())
        if self.idle_from_s is not None:
            timeouts = max(0, math.ceil((now - self.idle_from_s) / (round_trip_s + 0.2)) - 1)
            if timeouts and self.window > tcp.initial:
                self.window = max(tcp.initial, self.window / 2**timeouts)
        packets = 8 * size_bytes / tcp.frame_bits
        waits_s, window, sent = 0.0, self.window, 0.0
        if bps > 0:
            packet_s = tcp.frame_bits / bps
            while sent + window < packets and window * packet_s < round_trip_s + packet_s:
                waits_s += round_trip_s + packet_s - window * packet_s
                sent, window = sent + window, 2 * window
            pipe = (round_trip_s + packet_s) / packet_s
            self.window = max(self.window, min(window + packets - sent, 2 * pipe))
        self.waited_s.append(waits_s)
        return now + tcp.grants.grant_s[self.side] + waits_s

    def ends(self, now):
        """When a transfer has arrived that was served until now."""
        self.idle_from_s = now
        return now + self.tcp.grants.delivery_s[self.side, 0]


def reference_round(
    plan, radio, gain, slot_s, start_s=0.0, slot_edges_s=None, faults=None, tcp=None
):
    """Latency, energies, objective, spans (client, iteration, step, start, end, bytes), lost.

    `radio` is a `ShannonFdma`, or a scenario with a cell of LTE, NR or Wi-Fi. `gain` is [K, S] or a
    `TwoWay`.
    `faults` has lists by client: absent, stop_s, lost_s, wrong_s, duplicate; and slow, by node.
    `tcp` is None, or a `TcpModel` with grants.
    """
    clients, iterations = plan.cf_s.shape
    own = [iterations] * clients if plan.own_iterations is None else plan.own_iterations.tolist()
    if faults is None:
        never = [math.inf] * clients
        faults = {
            "absent": [False] * clients,
            "stop_s": never,
            "lost_s": never,
            "wrong_s": never,
            "duplicate": [False] * clients,
            "slow": {},
        }
    slow = faults["slow"]
    deadline = list(faults["lost_s"])
    lost = {k: deadline[k] for k in range(clients) if faults["absent"][k]}
    there = [k for k in range(clients) if k not in lost]
    paradigm, share = plan.paradigm, plan.allocation
    if slot_edges_s is None:
        slot_edges_s = [s * slot_s for s in range(gain.shape[1] + 1)]
    edges = list(slot_edges_s)
    gain_up, gain_down = getattr(gain, "values", (gain, gain))
    parallel_down = paradigm.gradient_transmission == "parallel"
    if hasattr(radio, "noise_w_per_hz"):
        cell = Fdma(radio, share)
    else:
        cell = {"lte": Lte, "nr": Nr, "wifi": Wifi}[radio.radio.access](radio, share)
    power_w = radio.uplink_power_w if isinstance(cell, Fdma) else cell.power_w

    cells = getattr(gain, "cells", None)

    def neighbours(k, slot, among):
        """Those of some clients that are in the cell of one of them in a slot."""
        return [j for j in among if cells is None or cells[j][slot] == cells[k][slot]]

    def rate_of(way, gains, k, slot):
        if not isinstance(cell, Lte):
            return float(cell.rate(way, k, gains[k][slot]))
        there = neighbours(k, slot, range(clients))
        return float(cell.rate(way, k, gains[k][slot], in_range(cell, way, gains, there, slot)))

    def links(way, gains):
        return [Link(functools.partial(rate_of, way, gains, k), edges) for k in range(clients)]

    up, broadcast = links("up", gain_up), links("broadcast", gain_down)
    down = links("down", gain_down) if parallel_down else broadcast

    steps = {}  # (client, iteration, step) -> (start, end, bytes)

    def took(k, i, step):
        start, end, _ = steps[k, i, step]
        return end - start

    def carried(link, k, start, size):
        """When a transfer ends; never, where its client is lost before the trace ends."""
        try:
            return link.end(start, size)
        except TooShort:
            if deadline[k] < edges[-1]:
                return math.inf
            raise

    senders = tcp and [[Sender(tcp, side) for side in range(2)] for k in range(clients)]

    def transferred(link, way, k, start, size):
        """When a transfer on a link with a share of its own ends."""
        if tcp is None:
            return carried(link, k, start, size)
        sender = senders[k][way]
        bps = link.rate(start) if start < edges[-1] - 0.5e-9 else 0.0
        return sender.ends(carried(link, k, sender.begins(start, size, bps), size))

    # What shared links have still to send, up to when they have sent, and their end.
    sending, sent_s = {"up": {}, "down": {}}, start_s
    gains_of = {"up": gain_up, "down": gain_down}
    ended = {}
    on_air = {"up": set(), "down": set()}  # who sends, or waits for a grant

    def served_from(way, k, now, size_bytes, others):
        """When a transfer on shared links is served; others begin in the same moment."""
        slot = bisect_right(edges, now + 0.5e-9) - 1
        active = 1 + others + len(on_air[way])
        on_air[way].add(k)
        bps = shared_rate(way, k, slot, active, 0) if slot < gain_up.shape[1] else 0.0
        return senders[k][way == "down"].begins(now, size_bytes, bps)

    def begin_sending(way, k, now, size_bytes):
        nonlocal sent_s
        sent_s = max(sent_s, now)
        sending[way][k] = 8.0 * size_bytes

    @functools.cache
    def shared_rate(way, k, slot, active, others):
        return cell.shared_rate(way, k, gains_of[way][k][slot], active, others)

    def one_ends(until_s):
        """Whether a transfer on shared links ends by a moment; all send until then."""
        nonlocal sent_s
        while sending["up"] or sending["down"]:
            slot = bisect_right(edges, sent_s + 0.5e-9) - 1
            if slot >= gain_up.shape[1]:
                raise TooShort
            rates, ends = {}, []
            active = {
                way: sum(shared_rate(way, k, slot, 1, 0) > 0 for k in left)
                for way, left in sending.items()
            }
            for way, left in sending.items():
                others = active["down" if way == "up" else "up"]
                for k in left:
                    own = sum(
                        shared_rate(way, j, slot, 1, 0) > 0 for j in neighbours(k, slot, left)
                    )
                    rate = rates[way, k] = shared_rate(way, k, slot, max(1, own), others)
                    takes_s = left[k] / rate if rate > 0 else math.inf
                    ends.append((sent_s + (takes_s if left[k] > 0 else 0.0), way, k))
            end_s, way, k = min(ends)
            stop_s = min(until_s, edges[slot + 1])
            ends_now = end_s <= stop_s + 0.5e-9
            stop_s = end_s if ends_now else stop_s
            for other, left in sending.items():
                for j in left:
                    left[j] = max(0.0, left[j] - rates[other, j] * (stop_s - sent_s))
            sent_s = stop_s
            if ends_now:
                del sending[way][k]
                on_air[way].discard(k)
                if tcp is not None:
                    end_s = senders[k][way == "down"].ends(end_s)
                ended[way](k, end_s)
                return True
            if stop_s == until_s:
                return False
        return False

    begun_s = [start_s]
    copies = len(there) if plan.unicast else 1
    has = None  # who has the broadcast from shared links
    if plan.unicast and cell.is_shared:
        has = set()
        agenda = []
        for k in there:
            steps[k, 0, "SM"] = (start_s, math.inf, plan.sm_bytes[k])
            agenda.append((start_s, "send down", k))
            if tcp is not None:
                others = len(there) - 1 - len(on_air["down"])
                served = served_from("down", k, start_s, plan.sm_bytes[k], others)
                agenda[-1] = (served, "send down", k)
    for k in list(there) if has is None else ():
        end = transferred(broadcast[k], 1, k, start_s, copies * plan.sm_bytes[k])
        steps[k, 0, "SM"] = (start_s, end, plan.sm_bytes[k])
        if end > deadline[k]:
            lost[k] = deadline[k]
            there.remove(k)
        begun_s.append(min(end, deadline[k]))
    together_s = max(begun_s)
    told = {}

    def tell():
        """When each client knows that all have the broadcast."""
        up_s, down_s = (0.0, 0.0) if tcp is None else tcp.delay_s[:, 0]
        known = max([together_s, *(steps[k, 0, "SM"][1] + up_s for k in there)])
        told.update(dict.fromkeys(there, known + down_s if tcp else start_s))

    due = {k: own[k] for k in there}
    computing = Station(paradigm.server_compute == "parallel", paradigm.compute_waits_for_all, due)
    downlink = Station(parallel_down, paradigm.transmission_waits_for_all, due)
    finished = {}

    iteration = [0] * clients
    if has is None:
        tell()
        agenda = [(together_s, "begin", k) for k in there]

    def begin(k, now):
        i = iteration[k]
        end = slowly(now, plan.cf_s[k, i], slow.get(k + 1, []))
        end = max(end, told[k])
        steps[k, i, "CF"] = (now, end, 0)
        now = steps[k, i, "CF"][1]
        if now >= faults["stop_s"][k]:
            return
        if now >= faults["wrong_s"][k] and not faults["duplicate"][k]:
            deadline[k] = min(deadline[k], now)
        if cell.is_shared:
            steps[k, i, "CA"] = (now, math.inf, plan.ca_bytes[k, i])
            agenda.append((now, "send smashed data", k))
            return
        end = transferred(up[k], 0, k, now, plan.ca_bytes[k, i])
        if now >= faults["wrong_s"][k]:
            deadline[k] = min(deadline[k], end)
        steps[k, i, "CA"] = (now, end, plan.ca_bytes[k, i])
        if end <= deadline[k]:
            agenda.append((end, "smashed data in", k))

    def end_of_upload(k, end):
        step = "CM" if (k, iteration[k], "CM") in steps else "CA"
        start, _, size = steps[k, iteration[k], step]
        steps[k, iteration[k], step] = (start, end, size)
        if step == "CM":
            if end > deadline[k]:
                return
            finished[k] = end
            there.remove(k)
            return
        if start >= faults["wrong_s"][k]:
            deadline[k] = min(deadline[k], end)
        agenda.append((end, "smashed data in", k))

    def end_of_gradient(k, end):
        if has is not None:
            steps[k, 0, "SM"] = (start_s, end, plan.sm_bytes[k])
            agenda.append((end, "broadcast there", k))
            return
        start, _, size = steps[k, iteration[k], "SG"]
        steps[k, iteration[k], "SG"] = (start, end, size)
        agenda.append((end, "gradient there", k))

    ended.update(up=end_of_upload, down=end_of_gradient)

    def lag(k, at_computing):
        i = iteration[k]
        forward = took(k, i, "CF")
        backward = took(k, i - 1, "CB") if i > 0 else plan.backward_ratio * forward
        value = backward + forward + took(k, i, "CA")
        if not at_computing:
            return value + took(k, i, "S")
        if i > 0:
            return value + took(k, i - 1, "SG")
        rate = down[k].rate(steps[k, 0, "CA"][1])
        return value + (8 * plan.sg_bytes[k, 0] / rate if rate > 0 else math.inf)

    def at_once(link, now, size_bytes):
        """What a transfer would take if the slot's rate stayed."""
        if size_bytes == 0:
            return 0.0
        rate = link.rate(now)
        return min(8 * size_bytes / rate, 1e9) if rate > 0 else 1e9

    def rank(k, now, at_computing):
        """Who has the lowest goes first."""
        i = iteration[k]
        if (computing if at_computing else downlink).parallel:
            return 0.0
        service = plan.s_s[k, i] if at_computing else at_once(down[k], now, plan.sg_bytes[k, i])
        match paradigm.order:
            case "larger-lag":
                return -lag(k, at_computing)
            case "first-come":
                return 0.0
            case "shortest-job-first":
                return service
            case "round-robin":
                return i * clients + k
            case "longest-remaining-work-first":
                left = plan.cb_s[k, i] + (plan.s_s[k, i] if at_computing else 0.0)
                for j in range(i + 1, own[k]):
                    left += plan.cf_s[k, j] + plan.s_s[k, j] + plan.cb_s[k, j]
                up_bytes = plan.cm_bytes[k] + plan.ca_bytes[k, i + 1 : own[k]].sum()
                left += at_once(up[k], now, up_bytes)
                return -left - at_once(down[k], now, plan.sg_bytes[k, i : own[k]].sum())

    while there:
        if has is not None and has >= set(there):
            has = None
            together_s = max([together_s, *(steps[k, 0, "SM"][1] for k in there)])
            tell()
            agenda += [(together_s, "begin", k) for k in there]
        times_s = [t for t, _, _ in agenda]
        times_s += [deadline[k] for k in there if deadline[k] < math.inf]
        if one_ends(min(times_s, default=math.inf)):
            continue
        moment = min(nanosecond(t) for t in times_s)
        for event in sorted(e for e in agenda if nanosecond(e[0]) == moment):
            agenda.remove(event)
            now, what, k = event
            i = iteration[k]
            if what == "begin":
                begin(k, now)
            elif what == "smashed data in":
                computing.arrive(Visit(k, now, rank(k, now, True), i))
            elif what in ("send smashed data", "send adapter"):
                size = plan.cm_bytes[k] if what == "send adapter" else plan.ca_bytes[k, i]
                if tcp is None or k in on_air["up"]:
                    begin_sending("up", k, now, size)
                    continue
                others = sum(
                    was.startswith("send ") and was != "send down" and other not in on_air["up"]
                    for at, was, other in agenda
                    if nanosecond(at) == moment
                )
                agenda.append((served_from("up", k, now, size, others), what, k))
            elif what == "send down":
                size = plan.sg_bytes[k, i] if has is None else plan.sm_bytes[k]
                begin_sending("down", k, now, size)
            elif what == "broadcast there":
                has.add(k)
            elif what == "computed":
                computing.busy = False
                downlink.arrive(Visit(k, now, rank(k, now, False), i))
            elif what == "receipt":
                downlink.busy = False
            elif what == "gradient there":
                if tcp is None:
                    downlink.busy = False
                steps[k, i, "CB"] = (now, slowly(now, plan.cb_s[k, i], slow.get(k + 1, [])), 0)
                now = steps[k, i, "CB"][1]
                if i + 1 < own[k]:
                    iteration[k] += 1
                    begin(k, now)
                elif now < faults["stop_s"][k] and cell.is_shared:
                    steps[k, i, "CM"] = (now, math.inf, plan.cm_bytes[k])
                    agenda.append((now, "send adapter", k))
                elif now < faults["stop_s"][k]:
                    end = transferred(up[k], 0, k, now, plan.cm_bytes[k])
                    steps[k, i, "CM"] = (now, end, plan.cm_bytes[k])
                    if end <= deadline[k]:
                        finished[k] = end
                        there.remove(k)
        for k in list(there):
            if deadline[k] < math.inf and nanosecond(deadline[k]) <= moment:
                lost[k] = deadline[k]
                there.remove(k)
                agenda = [event for event in agenda if event[2] != k]
                computing.give_up(k, deadline[k])
                downlink.give_up(k, deadline[k])
                for left in sending.values():
                    left.pop(k, None)
                for waiting in on_air.values():
                    waiting.discard(k)
                if has is not None:
                    together_s = max(together_s, deadline[k])
        while (chosen := computing.next()) is not None:
            visit, start = chosen
            k = visit.client
            end = slowly(start, plan.s_s[k, iteration[k]], slow.get(0, []))
            computing.serve_until(end, k)
            steps[k, iteration[k], "S"] = (start, end, 0)
            agenda.append((end, "computed", k))
        if any(nanosecond(time_s) == moment for time_s, _, _ in agenda):
            continue
        while (chosen := downlink.next()) is not None:
            visit, start = chosen
            k = visit.client
            size = plan.sg_bytes[k, iteration[k]]
            if cell.is_shared and parallel_down:
                steps[k, iteration[k], "SG"] = (start, math.inf, size)
                if tcp is None:
                    begin_sending("down", k, start, size)
                    continue
                served = served_from("down", k, start, size, len(downlink.queue))
                agenda.append((served, "send down", k))
                continue
            end = transferred(down[k], 1, k, start, size)
            downlink.serve_until(end, k)
            if tcp is not None:  # The base station serves the next one once it has the receipt.
                downlink.free_s = max(end, end + tcp.delay_s[0, 0] - tcp.credit_s)
            steps[k, iteration[k], "SG"] = (start, end, size)
            if end <= deadline[k]:
                agenda.append((end, "gradient there", k))
                if tcp is not None:
                    agenda.append((end + tcp.delay_s[0, 0], "receipt", k))

    for (k, i, step), (start, end, size) in list(steps.items()):
        if k in lost:
            own = step in ("CF", "CA", "CB", "CM")
            until = min(lost[k], faults["stop_s"][k]) if own else lost[k]
            del steps[k, i, step]
            if start <= until:
                steps[k, i, step] = (start, min(end, until), size)

    def total(k, *kinds):
        return sum(
            end - start for (c, _, s), (start, end, _) in steps.items() if c == k and s in kinds
        )

    computing_w = np.full(clients, plan.compute_power_w)
    energy = [
        computing_w[k] * total(k, "CF", "CB") + power_w[k] * total(k, "CA", "CM")
        for k in range(clients)
    ]
    given_up = [at_s for k, at_s in lost.items() if not faults["absent"][k]]
    latency = max([*finished.values(), *given_up, start_s]) - start_s
    spans = sorted(
        (
            (k + 1, i + 1, step, start, end, size)
            for (k, i, step), (start, end, size) in steps.items()
        ),
        key=lambda span: (span[0], span[3], span[4]),
    )
    return latency, energy, latency + plan.energy_weight * max(energy), spans, lost
