# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""5G NR as a rate model: from the signal-to-noise ratio to transport blocks, one each NR slot.

`orchestrator.engine.lte.Cellular` is the part that NR and LTE have in common. The tables are those
of 3GPP TS 38.214 (`orchestrator.engine.nr_tables`); headers of MAC, RLC and PDCP are subtracted.
By default, transport blocks are those of 5G-LENA, an NR module for ns-3: their sizes, and the few
that are lost. With the sizes of TS 38.214, none is: the margin to Shannon's limit pays for it.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from orchestrator.engine import core_library
from orchestrator.engine.arrays import Array, Ints
from orchestrator.engine.lte import (
    LTE_TIMES,
    PACKET_BYTES,
    Cellular,
    GrantTimes,
    Steps,
    climbing,
    turn,
)
from orchestrator.engine.lte_tables import Modulation
from orchestrator.engine.nr_tables import (
    BlockSize,
    block_bytes,
    cqi_efficiency,
    lena_losses,
    mcs_efficiency,
)
from orchestrator.scenario.cells import band_blocks, block_hz, left_blocks, noise_w_per_hz
from orchestrator.scenario.duplex import ahead_slots, grant_delays_s, slot_shares
from orchestrator.scenario.schema import Scenario

MARGIN_DB = 8.197
"""10 log10(-ln(5 · 1e-5) / 1.5), the gap of M-QAM to Shannon's limit at a bit error rate of 1e-5,
as in 5G-LENA; see `orchestrator.engine.lte.UPLINK_MARGIN_DB`."""
HEADER_BYTES = 10, 5
"""Bytes of a transport block of uplink and downlink that carry no packets: 3 B of the MAC subheader
(TS 38.321, section 6.1.2) and 2 B of RLC (TS 38.322, section 6.2.2.3); in the uplink, 5 B more of a
buffer status report with its subheader, as measured in 5G-LENA."""

HEARD_SLOTS = 1 / 14
"""NR slots until a UAV has heard of a grant: one symbol of control information."""
NOTED_SLOTS = 13 / 14, 1.0
"""NR slots from the beginning of a transport block's NR slot until it has been received, where the
log has it; as in 5G-LENA's logs."""


def grant_times(scenario: Scenario) -> GrantTimes:
    """Times of the grants of a scenario's cell, LTE or NR."""
    if scenario.radio.kind.cell == "lte":
        return LTE_TIMES
    nr = scenario.radio.nr
    request, delivery = (
        (up_s / nr.slot_s, down_s / nr.slot_s) for up_s, down_s in grant_delays_s(nr)
    )
    up, down = ahead_slots(nr)
    taken = HEARD_SLOTS - up, -down
    return GrantTimes(nr.slot_s, request, (0.0, 0.0), taken, delivery, NOTED_SLOTS)


class Rule(NamedTuple):
    """How a signal-to-noise ratio becomes a transport block."""

    modulation: Modulation
    block_size: BlockSize
    packet_bytes: float
    """Size of IP packets."""
    slots_per_s: float
    """NR slots in a second, of both directions."""


@dataclass(frozen=True)
class Nr(Cellular):
    """An NR cell: FDD or TDD, one antenna."""

    access = "nr"
    kind = core_library.NR

    @classmethod
    def of(cls, scenario: Scenario) -> "Nr":
        """The scenario's cell."""
        nr, band = scenario.radio.nr, band_blocks(scenario)
        up, down = (left_blocks(nr.resource_blocks or each, nr.background.load) for each in band)
        rule = Rule(nr.highest_modulation, nr.block_size, scenario.emulation.mtu, 1 / nr.slot_s)
        of_slots = slot_shares(nr)
        return cls(
            uplink_power_w=scenario.fleet.tx_power_w,
            downlink_power_w=scenario.base_station.tx_power_w,
            noise_w_per_hz=noise_w_per_hz(scenario),
            blocks=(up, down),
            band_blocks=band[1],
            steps=(uplink_steps(rule, up, of_slots[0]), downlink_steps(rule, down, of_slots[1])),
            is_shared=nr.scheduler == "equal",
            block_hz=block_hz(scenario),
            grants=nr.grants_per_tti or 0,
        )

    def divided(self, direction: int, active: int) -> list[tuple[int, float]]:
        """See `Cellular.divided`: the blocks that remain are given to each link in turn."""
        at_a_time, part = turn(self.blocks[direction], active, self.grants)
        at_once = round(part * active)
        more = (self.blocks[direction] - at_a_time * at_once) / at_once
        return [(at_a_time, (1 - more) * part), (at_a_time + 1, more * part)][: 2 if more else 1]


def uplink_steps(rule: Rule, blocks: int, slot_share: float) -> Steps:
    """The rate of an uplink, whose signal-to-noise ratio the base station measures itself.

    Args:
        rule: The cell's transport blocks.
        blocks: Number of resource blocks, N.
        slot_share: Share of the NR slots that are the uplink's.
    """
    needed = mcs_efficiency(rule.modulation, rule.block_size).copy()
    needed[0] = cqi_efficiency(rule.modulation, rule.block_size)[0]
    return _steps(rule, 0, needed, np.arange(len(needed)), blocks, slot_share)


def downlink_steps(rule: Rule, blocks: int, slot_share: float) -> Steps:
    """The rate of a downlink, of which UAVs report a CQI: the scheme is the highest whose
    efficiency is not above that of the CQI, and the lowest scheme where all are above.

    Args:
        rule: The cell's transport blocks.
        blocks: Number of resource blocks, N.
        slot_share: Share of the NR slots that are the downlink's; those with a gap count less.
    """
    needed = cqi_efficiency(rule.modulation, rule.block_size)
    efficiency = mcs_efficiency(rule.modulation, rule.block_size)
    fits = efficiency <= needed[:, None]
    mcs = np.where(fits.any(axis=1), len(efficiency) - 1 - fits[:, ::-1].argmax(axis=1), 0)
    return _steps(rule, 1, needed, mcs, blocks, slot_share)


def _steps(
    rule: Rule, direction: int, needed: Array, mcs: Ints, blocks: int, slot_share: float
) -> Steps:
    """Steps of schemes, each with the spectral efficiency from which on it is chosen."""
    sizes = block_bytes(rule.modulation, rule.block_size, np.arange(blocks + 1))
    data_bits = 8 * np.maximum(sizes - HEADER_BYTES[direction], 0)
    packets = rule.packet_bytes / (rule.packet_bytes + PACKET_BYTES)
    bps = data_bits * (rule.slots_per_s * slot_share * packets)
    least_db = MARGIN_DB + 10 * np.log10(2**needed - 1)
    found = []
    for least, scheme in zip(least_db.tolist(), mcs.tolist(), strict=True):
        parts = [(least, np.zeros(blocks + 1))]
        if rule.block_size == "lena":
            parts = lena_losses(rule.modulation, scheme, least, sizes[scheme])
        found += [(db, (1, scheme), bps[scheme], lost / (1 - lost)) for db, lost in parts]
    return climbing(found, blocks)
