# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""LTE as a rate model: from the signal-to-noise ratio to transport blocks, one each TTI of 1 ms.

A direction of the cell has N resource blocks. The signal-to-noise ratio in a UAV's resource blocks
gives a channel quality indicator (CQI), that gives a modulation and coding scheme (MCS), and that
with the number of resource blocks the size of the transport block that each TTI carries. The tables
are those of 3GPP TS 36.213 (`orchestrator.engine.lte_tables`); headers of RLC and PDCP are
subtracted. In the downlink, the CQI and the part of the blocks that is sent again follow ns-3's
link curves. In the uplink nothing is lost: the margin to Shannon's limit pays for it.

Uplink: a UAV sends with all of its power in its resource blocks, so fewer blocks have a higher
signal-to-noise ratio each. Downlink: the base station sends with the same power in every block.
"""

import ctypes
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import numpy as np

from ns3_scenarios.trace import SlotValues, both_ways
from orchestrator.engine import core_library
from orchestrator.engine.access import Radio
from orchestrator.engine.arrays import Array, Ints
from orchestrator.engine.core_library import Bands
from orchestrator.engine.lte_tables import (
    CQI_EFFICIENCY,
    DOWNLINK_TBS_INDEX,
    LEAST_DB,
    MCS_OF_CQI,
    UPLINK_TBS_INDEX,
    Modulation,
    group_blocks,
    lost_blocks,
    transport_block_bits,
)
from orchestrator.engine.plan import Allocation
from orchestrator.scenario.cells import BLOCK_HZ, left_blocks, noise_w_per_hz
from orchestrator.scenario.schema import LTE_BLOCKS, Scenario
from testbed.core.errors import InputError

TTI_S = 1e-3
RLC_BYTES = 2
"""Header of an RLC PDU in unacknowledged mode, TS 36.322, section 6.2.1.3."""
PACKET_BYTES = 3.5
"""Headers of a packet: 2 B of PDCP (TS 36.323, section 6.2.3) and 1.5 B of RLC's length indicator.
"""
REQUEST_TTIS = 5.5, 1.5
"""TTIs from a packet's arrival in an empty queue to the first grant for it, in uplink and downlink,
where packets enter at whole TTIs: half a TTI on average. In the uplink, a UAV's buffer status
report (ns-3 sends no scheduling requests) takes 4 TTIs to the base station, the delay
`UL_PUSCH_TTIS_DELAY` of ns-3's PHY, and 1 to the scheduler."""
ASKED_TTIS = 4
"""TTIs from a scheduling request to the grant in which the buffer status report is sent, as from
uplink data to their acknowledgement (TS 36.213, section 8)."""
LEARNING_TTIS = 7, 0
"""TTIs from the first grant to the first one whose scheme fits the channel. An uplink that was idle
for 20 TTIs has the lowest scheme (MCS 0) until the base station has measured the data of its first
grant."""
TAKEN_TTIS = 2 + 3 / 14, 0
"""TTIs from a grant until its data leave the sending end's queue. An uplink grant is sent 2 TTIs
after the scheduler's decision, in the 3 symbols of the control region."""
DELIVERY_TTIS = 6, 2
"""TTIs from the end of the TTI of a grant until the packets in its transport block have arrived. In
the uplink, data are sent 4 TTIs after their grant was received (TS 36.213, section 8)."""


class GrantTimes(NamedTuple):
    """Times of a scheduler's grants in TTIs, of uplink and downlink."""

    tti_s: float
    """Length of a TTI; with NR, of an NR slot."""
    request: tuple[float, float]
    """See `REQUEST_TTIS`; the others likewise."""
    learning: tuple[float, float]
    taken: tuple[float, float]
    delivery: tuple[float, float]
    noted: tuple[float, float] = (0.0, 0.0)
    """From the beginning of the TTI of a grant until the log has it."""


LTE_TIMES = GrantTimes(TTI_S, REQUEST_TTIS, LEARNING_TTIS, TAKEN_TTIS, DELIVERY_TTIS)

SINR_STEP_DB = 1 / 8
"""The uplink's signal-to-noise ratio reaches the scheduler rounded towards 0 to such a step: the
format S11.3 of the Small Cell Forum's LTE MAC scheduler interface, as ns-3 converts to it."""
UPLINK_MARGIN_DB = 7.427
"""10 log10(-ln(5 · 5e-5) / 1.5), the gap of M-QAM to Shannon's limit at a bit error rate of 5e-5;
Goldsmith and Chua, "Variable-rate variable-power MQAM for fading channels", IEEE Trans. Commun.
45(10), 1997. ns-3's base station selects the uplink's scheme by it."""
DIVERSITY_DB, MULTIPLEXING_DB = 4.2, -2.8
"""Signal-to-noise ratio of a 2x2 antenna system relative to one antenna each: of one layer with
transmit diversity, and of each of two layers in open-loop spatial multiplexing; Catreux,
Greenstein and Erceg, "Some results and insights on the performance gains of MIMO systems", IEEE
JSAC 21(5), 2003, as in ns-3."""


class Steps(NamedTuple):
    """The rate of a link as steps of its signal-to-noise ratio."""

    least_snr: Array
    """Least linear signal-to-noise ratio of each step but the first, ascending, shape [L]."""
    mcs: Ints
    """Modulation and coding scheme of each step; -1: out of range. Shape [L + 1]."""
    layers: Ints
    """Number of layers of each step, shape [L + 1]."""
    bps: Array
    """Bit/s of IP packets with each number of resource blocks from 0, shape [N + 1, L + 1]."""

    @property
    def scheme(self) -> Ints:
        """The first step with the MCS and the layers of each step, shape [L + 1]."""
        pairs = list(zip(self.mcs.tolist(), self.layers.tolist(), strict=True))
        return np.array([pairs.index(pair) for pair in pairs])


@dataclass(frozen=True)
class Cellular(Radio):
    """A cell whose scheduler assigns resource blocks: what LTE and 5G NR have in common.

    Bandwidths in Hz, powers in W.
    """

    access: ClassVar[str]
    """The cell's name as a value of `radio.access`, and as a section of `radio`."""
    kind: ClassVar[int]
    """How the compiled part of the engine divides the resource blocks."""

    uplink_power_w: Array
    """p_k, shape [K]."""
    downlink_power_w: float
    """P_S, spread over all resource blocks of the bandwidth."""
    noise_w_per_hz: float
    """Noise and interference at the receivers, divided by the antenna gains."""
    blocks: tuple[int, int]
    """Number of resource blocks that the scheduler assigns in uplink and downlink."""
    band_blocks: int
    """Number of resource blocks of the downlink's bandwidth, in which the base station sends."""
    steps: tuple[Steps, Steps]
    """Steps of uplink and downlink."""
    is_shared: bool
    """Whether those that are active divide the resource blocks equally."""
    block_hz: float = BLOCK_HZ
    """Bandwidth of a resource block."""
    grants: int = 0
    """Largest number of uplinks in a TTI, with NR of links in each direction; 0: any number."""

    @property
    def decides(self) -> frozenset[str]:
        """See `RadioAccess.decides`."""
        return frozenset() if self.is_shared else frozenset({"beta"})

    @property
    def without_shares(self) -> str:
        """See `RadioAccess.without_shares`."""
        if self.is_shared:
            key = f"radio.{self.access}.scheduler"
            return f"where {key} is 'equal', which divides the resource blocks itself"
        where = f"where radio.access is {self.access!r}"
        return f"{where}, whose base station sends all blocks with equal power"

    @property
    def least_beta(self) -> float:
        """See `RadioAccess.least_beta`."""
        return 0.0 if self.is_shared else 1 / min(self.blocks)

    def of_clients(self, chosen: Ints) -> Self:
        """See `RadioAccess.of_clients`."""
        return replace(self, uplink_power_w=self.uplink_power_w[chosen])

    def bands(self) -> Bands:
        """See `RadioAccess.bands`."""
        up, down = (
            core_library.Steps(np.ascontiguousarray(steps.least_snr), steps.bps, most)
            for steps, most in zip(self.steps, self.blocks, strict=True)
        )
        return Bands(
            self.kind,
            self._uplink_snr,
            shared=bool(self.is_shared),
            steps=(up, down),
            downlink_snr=self._downlink_snr,
            grants=self.grants,
        )

    def divided(self, direction: int, active: int) -> list[tuple[int, float]]:
        """The resource blocks of a link of a shared band while `active` links send: numbers, and
        the fraction of the time in which the link has each.

        Args:
            direction: 0 for uplinks, 1 for downlinks.
            active: Number of links of this direction that send.
        """
        raise NotImplementedError

    def snr(self, shares: Allocation, values: SlotValues, *, in_turns: bool) -> Array:
        """Signal-to-noise ratios in the resource blocks of each link, with the shares of the
        scheduler `shares`; linear, [3, K, S]: uplink, downlink of gradients, broadcast."""
        up, down = both_ways(values)
        blocks = np.maximum(assigned(shares.beta, self.blocks[0]), 1)
        downlink = self._downlink_snr * down
        return np.stack([(self._uplink_snr / blocks)[:, None] * up, downlink, downlink])

    @property
    def unit_snr(self) -> Array:
        """Signal-to-noise ratio of each UAV's link at gain 1, if the UAV alone uses the whole band:
        uplink and downlink, linear, shape [2, K]."""
        up = self._uplink_snr / self.blocks[0]
        return np.stack([up, np.full_like(up, self._downlink_snr)])

    @property
    def _uplink_snr(self) -> Array:
        """Signal-to-noise ratio of each UAV in a single resource block at gain 1, shape [K]."""
        return np.asarray(self.uplink_power_w / (self.block_hz * self.noise_w_per_hz))

    @property
    def _downlink_snr(self) -> float:
        """Signal-to-noise ratio of every resource block, at gain 1."""
        return self.downlink_power_w / (self.band_blocks * self.block_hz * self.noise_w_per_hz)

    def use(self, direction: int, clients: Ints, blocks: Ints, gain: Array) -> tuple[Ints, Ints]:
        """Resource blocks in which links send, and the steps of their rates, [E, B] each.

        Args:
            direction: 0 for uplinks, 1 for downlinks: the index of `steps`.
            clients: Index of the UAV of each link from 0, shape [E].
            blocks: Number of resource blocks that each link has, shape [E].
            gain: Gains of each link, shape [E, B].
        """
        if direction == 0:
            return self._uplink_use(blocks[:, None], self._uplink_snr[clients, None] * gain)
        step = _step(self.steps[1], self._downlink_snr * gain)
        return np.where(step > 0, blocks[:, None], 0), step

    def _uplink_use(self, blocks: Ints, snr: Array) -> tuple[Ints, Ints]:
        """The resource blocks in which a UAV sends: all of the given ones, or the number that its
        power reaches, if that is enough; and the step of its rate.

        Args:
            blocks: Number of resource blocks; its shape must be compatible with `snr`.
            snr: Signal-to-noise ratios in one resource block.
        """
        steps = self.steps[0]
        has, reached = np.broadcast_arrays(blocks, snr / steps.least_snr[0])
        used = core_library.lte_used(has, reached)
        step = np.where(used < has, 1, _step(steps, snr / np.maximum(used, 1)))
        return used, np.where(used > 0, np.maximum(step, 1), 0)


@dataclass(frozen=True)
class Lte(Cellular):
    """An LTE cell: FDD, one antenna, or two in the downlink."""

    access = "lte"
    kind = core_library.LTE

    @classmethod
    def of(cls, scenario: Scenario) -> "Lte":
        """The scenario's cell.

        Raises:
            InputError: No modulation and coding scheme can be reached.
        """
        radio, lte = scenario.radio, scenario.radio.lte
        band = LTE_BLOCKS[radio.uplink_bandwidth_hz], LTE_BLOCKS[radio.downlink_bandwidth_hz]
        uplink_blocks = lte.resource_blocks or band[0]
        # Other users have resource blocks of the uplink, and TTIs of the downlink.
        blocks = left_blocks(uplink_blocks, lte.background.load), lte.resource_blocks or band[1]
        margin_db, packet_bytes = lte.implementation_margin_db, scenario.emulation.mtu
        up = uplink_steps(
            blocks[0], UPLINK_MARGIN_DB if margin_db is None else margin_db, packet_bytes
        )
        down = downlink_steps(
            blocks[1], margin_db, packet_bytes, lte.layers, lte.highest_modulation, band[1]
        )
        down = down._replace(bps=down.bps * (1 - lte.background.load))
        if lte.highest_snr_db is not None:
            up, down = (limited(steps, lte.highest_snr_db) for steps in (up, down))
        return cls(
            uplink_power_w=scenario.fleet.tx_power_w,
            downlink_power_w=scenario.base_station.tx_power_w,
            noise_w_per_hz=noise_w_per_hz(scenario),
            blocks=blocks,
            band_blocks=band[1],
            steps=(up, down),
            is_shared=lte.scheduler == "equal",
            grants=lte.grants_per_tti or 0,
        )

    def divided(self, direction: int, active: int) -> list[tuple[int, float]]:
        """See `Cellular.divided`: a downlink has the whole cell for its part of the time."""
        if direction:
            return [(self.blocks[1], 1 / active)]
        return [turn(self.blocks[0], active, self.grants)]


def uplink_steps(blocks: int, margin_db: float, packet_bytes: float) -> Steps:
    """The rate of an uplink: one antenna, up to 64QAM.

    Args:
        blocks: Number of resource blocks, N.
        margin_db: Gap to Shannon's limit.
        packet_bytes: Size of IP packets.
    """
    rounded = 2 ** CQI_EFFICIENCY["64QAM"][1:].round(2) - 1  # as ns-3 states the efficiencies
    least_db = margin_db + 10 * np.log10(rounded)
    least_db = np.ceil(least_db / SINR_STEP_DB - 1e-9) * SINR_STEP_DB
    least_db[least_db <= 0] -= SINR_STEP_DB
    way = _Way(1, least_db, MCS_OF_CQI["64QAM"][1:], np.zeros((len(least_db), blocks + 1)))
    return _steps([way], UPLINK_TBS_INDEX["64QAM"], blocks, packet_bytes)


def downlink_steps(
    blocks: int,
    margin_db: float | None,
    packet_bytes: float,
    layers: int,
    modulation: Modulation,
    band_blocks: int | None = None,
) -> Steps:
    """The rate of a downlink.

    Args:
        blocks: Number of resource blocks, N.
        margin_db: Gap to Shannon's limit, without lost blocks; None: ns-3's link curves.
        packet_bytes: Size of IP packets.
        layers: Largest number of layers: 1 of one antenna, or 2 of a 2x2 system that has one layer
            where two would carry less.
        modulation: Highest modulation.
        band_blocks: Number of resource blocks of the bandwidth; None: N.
    """
    mcs = MCS_OF_CQI[modulation][1:]
    if margin_db is None:
        one = _by_curves(modulation, blocks, band_blocks or blocks)
    else:
        least_db = _least_db(modulation, margin_db)
        one = _Way(1, least_db, mcs, np.zeros((len(least_db), blocks + 1)))
    ways = [one]
    if layers == 2:
        ways = [
            one._replace(least_db=one.least_db - DIVERSITY_DB),
            one._replace(layers=2, least_db=one.least_db - MULTIPLEXING_DB),
        ]
    return _steps(ways, DOWNLINK_TBS_INDEX[modulation], blocks, packet_bytes)


class _Way(NamedTuple):
    """A number of layers, and the steps of a rate with it."""

    layers: int
    least_db: Array
    """Least signal-to-noise ratio of each step in dB, shape [L]."""
    mcs: Ints
    """MCS of each step, shape [L]."""
    lost: Array
    """Part of the transport blocks that is lost and sent again, shape [L, N + 1]."""


def _least_db(modulation: Modulation, margin_db: float) -> Array:
    """The least signal-to-noise ratio in dB of each CQI from 1, shape [15]."""
    return np.asarray(margin_db + 10 * np.log10(2 ** CQI_EFFICIENCY[modulation][1:] - 1))


@functools.cache
def _by_curves(modulation: Modulation, blocks: int, band_blocks: int) -> _Way:
    """The steps of one layer by ns-3's link curves.

    A CQI of 256QAM has the signal-to-noise ratio of the CQI of 64QAM with the same modulation and
    code rate. The four CQIs that use 256QAM itself have the gap of the highest CQI of 64QAM.
    """
    group = group_blocks(band_blocks)
    curve_db = LEAST_DB[group - 1]
    efficiency, known = CQI_EFFICIENCY[modulation][1:], CQI_EFFICIENCY["64QAM"][1:]
    gap_db = curve_db[-1] - _least_db("64QAM", 0.0)[-1]
    found = _Way(1, np.empty(0), np.empty(0, np.int64), np.empty((0, blocks + 1)))
    for each, db, mcs in zip(
        efficiency, _least_db(modulation, gap_db), MCS_OF_CQI[modulation][1:], strict=True
    ):
        (same,) = np.nonzero((known == each) & ((modulation == "64QAM") | (known < known[-1])))
        above_db, lost = np.zeros(1), np.zeros((1, blocks + 1))
        if same.size:
            db = curve_db[same[0]]
            above_db, lost = lost_blocks(int(same[0]) + 1, group)
            lost = lost[:, : blocks + 1]
        found = _Way(
            1,
            np.concatenate([found.least_db, db + above_db]),
            np.concatenate([found.mcs, np.full(len(above_db), mcs)]),
            np.concatenate([found.lost, lost]),
        )
    return found


def _steps(ways: list[_Way], tbs_index: Ints, blocks: int, packet_bytes: float) -> Steps:
    """Steps from numbers of layers: at each signal-to-noise ratio, the scheme that carries most in
    the whole cell as long as nothing is lost."""
    by_mcs = transport_block_bits(tbs_index[:, None], np.arange(blocks + 1))
    # The one larger size, of TBS index 6 with one resource block, does not fit one with QPSK.
    by_mcs = np.minimum.accumulate(by_mcs[::-1])[::-1]
    found = [
        # Each of two layers has a transport block of its own.
        (float(least_db), (layers, int(mcs)), layers * packet_bps(by_mcs[mcs], packet_bytes), lost)
        for layers, all_db, schemes, parts in ways
        for least_db, mcs, lost in zip(all_db, schemes, parts, strict=True)
    ]
    return climbing(found, blocks)


def climbing(found: Sequence[tuple[float, tuple[int, int], Array, Array]], blocks: int) -> Steps:
    """Steps that carry more in the whole cell than all of less signal, as long as nothing is lost.

    Args:
        found: Least signal-to-noise ratio in dB; numbers of layers and scheme; bit/s with each
            number of resource blocks, and lost transport blocks per new one, shape [N + 1] each, of
            each candidate.
        blocks: Number of resource blocks, N.
    """
    kept = [(-math.inf, (1, -1), *np.zeros((2, blocks + 1)))]
    for step in sorted(found, key=lambda step: (step[0], step[2][-1])):
        _, scheme, bps, lost = kept[-1]
        if step[2][-1] > bps[-1] or (step[1] == scheme and (step[3] != lost).any()):
            kept.append(step)
    return Steps(
        least_snr=np.array([10 ** (step[0] / 10) for step in kept[1:]]),
        mcs=np.array([step[1][1] for step in kept]),
        layers=np.array([step[1][0] for step in kept]),
        bps=np.ascontiguousarray(np.stack([step[2] / (1 + step[3]) for step in kept], axis=1)),
    )


def limited(steps: Steps, highest_db: float) -> Steps:
    """The steps of a link whose sender and receiver distort the signal.

    The ratio of signal to noise and distortion is 1 / (1 / SNR + 1 / highest).

    Args:
        steps: The steps without distortion.
        highest_db: Signal-to-distortion ratio in dB; steps that need this ratio or more cannot be
            reached.

    Raises:
        InputError: No step can be reached.
    """
    highest = 10 ** (highest_db / 10)
    reached = int(np.searchsorted(steps.least_snr, highest))
    if not reached:
        least_db = 10 * math.log10(steps.least_snr[0])
        raise InputError(
            f"radio.lte.highest_snr_db: must be above {least_db:.2f}, which the lowest modulation "
            f"and coding scheme needs with this implementation margin, not {highest_db:g}"
        )
    return Steps(
        least_snr=1 / (1 / steps.least_snr[:reached] - 1 / highest),
        mcs=steps.mcs[: reached + 1],
        layers=steps.layers[: reached + 1],
        bps=np.ascontiguousarray(steps.bps[:, : reached + 1]),
    )


def packet_bps(block_bits: Ints, packet_bytes: float) -> Array:
    """Bit/s of IP packets of that size, where each TTI carries a transport block of that size."""
    data_bits = np.maximum(block_bits - 8 * RLC_BYTES, 0)
    return np.asarray(data_bits / TTI_S * packet_bytes / (packet_bytes + PACKET_BYTES))


def request_s(period_s: float | None) -> float:
    """Mean time in s that scheduling requests of a period add to `REQUEST_TTIS`: packets enter at
    whole TTIs, and wait for the UAV's own one. None: UAVs send none."""
    return 0.0 if period_s is None else (period_s - TTI_S) / 2 + ASKED_TTIS * TTI_S


def turn(blocks: int, active: int, grants: int = 0) -> tuple[int, float]:
    """The uplink of a UAV while `active` UAVs are active: its resource blocks in a TTI in which it
    sends, and the fraction of all TTIs in which it does, with at most `grants` in a TTI (0: any
    number); `turn` in ``core/links.h``."""
    part = ctypes.c_double()
    at_a_time = core_library.library().engine_turn(blocks, active, grants, ctypes.addressof(part))
    return int(at_a_time), part.value


def assigned(beta: Array, blocks: int) -> Ints:
    """Numbers of resource blocks of UAVs with these shares, shape [K]."""
    return np.floor(beta * blocks + 1e-9).astype(np.int64)


def _step(steps: Steps, snr: Array) -> Ints:
    return np.searchsorted(steps.least_snr, snr, side="right")
