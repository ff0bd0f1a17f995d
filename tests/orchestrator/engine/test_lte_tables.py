# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""LTE's tables: values of 3GPP TS 36.213, and how the tables must relate to each other."""

import numpy as np
import pytest

from orchestrator.engine.lte_tables import (
    _CURVES,
    BLOCK_BITS,
    CQI_EFFICIENCY,
    DOWNLINK_MODULATION_ORDER,
    DOWNLINK_TBS_INDEX,
    LEAST_DB,
    LOSS_STEP,
    MCS_EFFICIENCY,
    MCS_OF_CQI,
    UPLINK_MODULATION_ORDER,
    UPLINK_TBS_INDEX,
    group_blocks,
    lost_blocks,
    transport_block_bits,
)

MODULATIONS = ("64QAM", "256QAM")
BITS = BLOCK_BITS[:, 1:]
"""Without the column of no resource blocks."""

SIZES = np.unique(BLOCK_BITS)[1:]
"""Every size that a transport block can have."""

# Interleaver sizes of the turbo code (TS 36.212, Table 5.1.3-3).
TURBO = {*range(40, 513, 8), *range(528, 1025, 16), *range(1056, 2049, 32), *range(2112, 6145, 64)}


@pytest.mark.parametrize(
    ("index", "blocks", "bits"),
    [
        *((0, 1, 16), (0, 25, 680), (0, 100, 2792), (0, 110, 3112)),
        *((6, 1, 328), (6, 2, 176), (9, 100, 15840), (13, 50, 12960)),
        *((15, 1, 280), (15, 100, 30576), (20, 75, 35160)),
        *((26, 1, 712), (26, 6, 4392), (26, 50, 36696), (26, 75, 55056), (26, 100, 75376)),
        *((27, 1, 648), (27, 100, 66592), (28, 1, 680), (28, 7, 4968), (29, 15, 11064)),
        *((30, 25, 19848), (31, 50, 40576), (32, 75, 63776), (32, 110, 93800)),
        *((33, 1, 968), (33, 6, 5992), (33, 50, 48936), (33, 75, 75376), (33, 100, 97896)),
    ],
)
def test_sizes_are_those_of_the_standard(index, blocks, bits):
    assert transport_block_bits(np.array(index), np.array(blocks)) == bits


def test_sums_of_sizes_are_those_of_other_copies_of_the_standard():
    assert BITS.shape == (34, 110)
    sums = {1: 13008, 6: 80432, 12: 160976, 15: 201136, 18: 241640, 24: 322592, 25: 335344}
    sums |= {30: 403016, 45: 601976, 50: 669920, 60: 805688, 75: 1008208, 100: 1347560}
    assert {blocks: BITS[:, blocks - 1].sum() for blocks in sums} == sums
    assert BITS[:27].sum() == 48163328
    assert BITS.sum() == 82058216


def test_sizes_grow_with_resource_blocks_and_with_the_index():
    regular = BITS.copy()
    assert regular[6, 0] == 328
    regular[6, 0] = 88  # the only size out of order
    assert (np.diff(regular, axis=1) >= 0).all()
    # 256QAM, from index 27, continues below index 26: the latter is for the peak rate of 64QAM.
    assert (np.diff(regular[:27], axis=0) > 0).all()
    assert (np.diff(regular[[*range(26), *range(27, 34)]], axis=0) >= 0).all()


def test_sizes_fill_equal_code_blocks():
    """With its checksum, a transport block consists of equal code blocks without filler bits."""

    def code_block(size):
        blocks = 1 if size + 24 <= 6144 else -(-(size + 24) // (6144 - 24))
        return (size + 24) / blocks + (24 if blocks > 1 else 0)

    assert [size for size in SIZES.tolist() if code_block(size) not in TURBO] == []


def test_arguments_broadcast_and_no_resource_blocks_have_no_bits():
    bits = transport_block_bits(np.array([[0], [26]]), np.array([0, 1, 100]))
    assert bits.tolist() == [[0, 16, 2792], [0, 712, 75376]]


@pytest.mark.parametrize(
    ("index", "blocks", "named"),
    [
        (-1, 1, "tbs_index is -1; it must be 0 to 33"),
        (34, 1, "tbs_index is 34; it must be 0 to 33"),
        (0, -1, "resource_blocks is -1; it must be 0 to 110"),
        (0, 111, "resource_blocks is 111; it must be 0 to 110"),
    ],
)
def test_what_no_table_has_is_refused(index, blocks, named):
    with pytest.raises(ValueError, match=f"^{named}$"):
        transport_block_bits(np.array([0, index]), np.array([1, blocks]))


@pytest.mark.parametrize(
    ("modulation", "efficiency"),
    [
        (
            "64QAM",
            [
                *(0, 0.1523, 0.2344, 0.3770, 0.6016, 0.8770, 1.1758, 1.4766, 1.9141, 2.4063),
                *(2.7305, 3.3223, 3.9023, 4.5234, 5.1152, 5.5547),
            ],
        ),
        (
            "256QAM",
            [
                *(0, 0.1523, 0.3770, 0.8770, 1.4766, 1.9141, 2.4063, 2.7305, 3.3223, 3.9023),
                *(4.5234, 5.1152, 5.5547, 6.2266, 6.9141, 7.4063),
            ],
        ),
    ],
)
def test_efficiencies_of_cqis_are_those_of_the_standard(modulation, efficiency):
    """The standard rounds them to four digits."""
    assert CQI_EFFICIENCY[modulation] == pytest.approx(np.array(efficiency), abs=5.1e-5)


@pytest.mark.parametrize(
    ("tables", "modulation", "orders", "indices"),
    [
        (
            (DOWNLINK_MODULATION_ORDER, DOWNLINK_TBS_INDEX),
            "64QAM",
            {2: range(10), 4: range(10, 17), 6: range(17, 29)},
            {0: 0, 9: 9, 10: 9, 16: 15, 17: 15, 28: 26},
        ),
        (
            (DOWNLINK_MODULATION_ORDER, DOWNLINK_TBS_INDEX),
            "256QAM",
            {2: range(5), 4: range(5, 11), 6: range(11, 20), 8: range(20, 28)},
            {0: 0, 1: 2, 4: 8, 5: 10, 6: 11, 10: 15, 11: 16, 19: 24, 20: 25, 21: 27, 27: 33},
        ),
        (
            (UPLINK_MODULATION_ORDER, UPLINK_TBS_INDEX),
            "64QAM",
            {2: range(11), 4: range(11, 21), 6: range(21, 29)},
            {0: 0, 10: 10, 11: 10, 20: 19, 21: 19, 28: 26},
        ),
    ],
)
def test_mcs_have_the_orders_and_indices_of_the_standard(tables, modulation, orders, indices):
    order, index = (table[modulation] for table in tables)
    assert len(order) == len(index) == 1 + max(indices)
    assert order.tolist() == [bits for bits, mcs in orders.items() for _ in mcs]
    assert {mcs: index[mcs] for mcs in indices} == indices
    # Tables up to 64QAM have the same index before and after a change of the modulation.
    repeats = np.flatnonzero(np.diff(index) == 0)
    changes = np.flatnonzero(np.diff(order))
    assert repeats.tolist() == (changes.tolist() if modulation == "64QAM" else [])


def test_uplink_indices_are_those_of_the_downlink_but_near_changes_of_modulation():
    up, down = UPLINK_TBS_INDEX["64QAM"], DOWNLINK_TBS_INDEX["64QAM"]
    # The uplink changes to 16QAM one MCS later, and to 64QAM four MCS later.
    assert np.flatnonzero(up - down == 1).tolist() == [10, 17, 18, 19, 20]
    assert np.flatnonzero(up != down).tolist() == [10, 17, 18, 19, 20]
    assert set(up.tolist()) == set(down.tolist()) == set(range(27))


def test_mcs_of_256qam_are_those_of_64qam_and_more():
    narrow, wide = (set(DOWNLINK_TBS_INDEX[name].tolist()) for name in MODULATIONS)
    assert narrow - wide == {1, 3, 5, 7, 9, 26}
    assert wide - narrow == set(range(27, 34))


@pytest.mark.parametrize("modulation", MODULATIONS)
def test_an_mcs_is_the_highest_whose_efficiency_is_not_above_the_cqis(modulation):
    efficiency = MCS_EFFICIENCY[modulation]
    assert (np.diff(efficiency) > 0).all()
    assert MCS_OF_CQI[modulation][0] == -1
    for cqi, mcs in enumerate(MCS_OF_CQI[modulation].tolist()[1:], start=1):
        wanted = CQI_EFFICIENCY[modulation][cqi]
        assert mcs == max([k for k, value in enumerate(efficiency) if value <= wanted], default=0)


def test_mcs_of_cqis():
    assert MCS_OF_CQI["64QAM"].tolist() == [-1, *range(0, 29, 2)]
    assert MCS_OF_CQI["256QAM"].tolist() == [-1, 0, *range(1, 28, 2)]


def test_efficiencies_of_mcs_are_those_of_the_documents():
    """R1-081483 and TS 38.214; both round."""
    assert MCS_EFFICIENCY["64QAM"] == pytest.approx(
        np.array(
            [
                *(0.15, 0.19, 0.23, 0.31, 0.38, 0.49, 0.6, 0.74, 0.88, 1.03, 1.18, 1.33, 1.48),
                *(1.7, 1.91, 2.16, 2.41, 2.57, 2.73, 3.03, 3.32, 3.61, 3.9, 4.21, 4.52, 4.82),
                *(5.12, 5.33, 5.55),
            ]
        ),
        abs=0.0051,
    )
    assert MCS_EFFICIENCY["256QAM"] == pytest.approx(
        np.array(
            [
                *(0.2344, 0.3770, 0.6016, 0.8770, 1.1758, 1.4766, 1.6953, 1.9141, 2.1602, 2.4063),
                *(2.5703, 2.7305, 3.0293, 3.3223, 3.6094, 3.9023, 4.2129, 4.5234, 4.8193, 5.1152),
                *(5.3320, 5.5547, 5.8906, 6.2266, 6.5703, 6.9141, 7.1602, 7.4063),
            ]
        ),
        abs=5.1e-5,
    )


def with_checksums(bits):
    """Bits with the checksum of the transport block, and those of its code blocks if several."""
    block = bits + 24
    return block + np.where(block > 6144, 24 * np.ceil(block / (6144 - 24)), 0)


@pytest.mark.parametrize("mcs", range(12, 27))
def test_a_block_has_the_size_nearest_to_the_efficiency_of_its_mcs(mcs):
    """The tables were made for 120 symbols per resource block."""
    wanted = MCS_EFFICIENCY["256QAM"][mcs] * 120 * np.arange(1, 111)
    nearest = np.abs(with_checksums(SIZES)[:, None] - wanted).argmin(0)
    different = np.flatnonzero(BITS[DOWNLINK_TBS_INDEX["256QAM"][mcs]] != SIZES[nearest]) + 1
    # MCS 18 with 109 resource blocks lies between two sizes, about as near to each.
    assert different.tolist() == ([109] if mcs == 18 else [])


def test_the_largest_blocks_have_a_code_rate_of_at_most_093():
    """The highest MCS was made for 136 symbols per resource block, and for 100 of them at most."""
    most = 0.93 * 8 * 136 * np.arange(1, 111).clip(max=100)
    largest = np.searchsorted(with_checksums(SIZES), most, "right") - 1
    assert BITS[33].tolist() == SIZES[largest].tolist()


def test_blocks_have_the_efficiency_of_r1_081483_from_mcs_17_on_alone():
    bits = BITS[DOWNLINK_TBS_INDEX["64QAM"], 99] / 100 / 120
    ratio = bits / MCS_EFFICIENCY["64QAM"]
    assert ratio[17:28] == pytest.approx(1, rel=0.02)
    assert ratio[:17].min() > 1.05
    assert ratio[:17].max() == pytest.approx(1.63, abs=0.005)
    assert ratio[28] == pytest.approx(1.13, abs=0.005)


def test_tables_cannot_be_changed():
    tables = (CQI_EFFICIENCY, MCS_EFFICIENCY, MCS_OF_CQI, DOWNLINK_TBS_INDEX, UPLINK_TBS_INDEX)
    orders = (DOWNLINK_MODULATION_ORDER, UPLINK_MODULATION_ORDER)
    arrays = [array for table in (*tables, *orders) for array in table.values()]
    assert not any(array.flags.writeable for array in (*arrays, BLOCK_BITS))


def test_groups_of_resource_blocks_are_those_of_the_bandwidth():
    assert [group_blocks(blocks) for blocks in (6, 15, 25, 50, 75, 100)] == [1, 2, 2, 3, 4, 4]


def test_a_better_cqi_needs_more_signal():
    assert (np.diff(LEAST_DB, axis=1) > 0).all()
    # At least Shannon's limit, and less than 4 dB above it.
    limit_db = 10 * np.log10(2 ** CQI_EFFICIENCY["64QAM"][1:] - 1)
    assert ((limit_db < LEAST_DB) & (limit_db + 5.2 > LEAST_DB)).all()


@pytest.mark.parametrize("cqi", range(1, 16))
@pytest.mark.parametrize("group", [1, 4])
def test_lost_blocks_are_those_of_the_curves_within_a_step(cqi, group):
    above_db, lost = lost_blocks(cqi, group)
    assert above_db[0] == 0
    assert (np.diff(above_db) > 0).all()
    assert not lost[-1].any()
    rows = {blocks: parts for at, blocks, *parts in _CURVES["errors"] if at == cqi}
    first_db, step_db = _CURVES["grants_db"]
    for blocks in (1, 4, 25, 100):
        for db in np.arange(0.0, 1.0, 0.033):
            part = rows.get(blocks, [0.0])
            due = np.interp(db, _CURVES["step_db"] * np.arange(len(part)), part, right=0)
            at = (db + LEAST_DB[group - 1, cqi - 1] - first_db) / step_db
            due += np.interp(
                at, np.arange(len(_CURVES["grants"][0])), _CURVES["grants"][0], right=0
            )
            found = lost[np.searchsorted(above_db, db, side="right") - 1, blocks]
            assert found == pytest.approx(due, abs=LOSS_STEP + _CURVES["least_error"])
