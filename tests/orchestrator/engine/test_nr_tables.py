# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Tables of NR, and sizes of transport blocks by hand."""

import numpy as np
import pytest

from orchestrator.engine.lte_tables import DOWNLINK_MODULATION_ORDER
from orchestrator.engine.nr_tables import (
    CODE_RATE,
    MODULATION_ORDER,
    SMALL_SIZES,
    block_bytes,
    cqi_efficiency,
    mcs_efficiency,
    transport_block_bits,
)


@pytest.mark.parametrize(("modulation", "schemes"), [("64QAM", 29), ("256QAM", 28)])
def test_tables_have_the_rows_of_the_standard(modulation, schemes):
    assert MODULATION_ORDER[modulation].shape == CODE_RATE[modulation].shape == (schemes,)
    efficiency = mcs_efficiency(modulation, "3gpp")
    # MCS 17 of table 1 begins 64QAM with less than MCS 16 has: the one place where it falls.
    falls = [17] if modulation == "64QAM" else []
    assert (np.flatnonzero(np.diff(efficiency) <= 0) + 1).tolist() == falls
    assert efficiency[0] == 240 / 1024
    assert efficiency[-1] == MODULATION_ORDER[modulation][-1] * 948 / 1024
    assert cqi_efficiency(modulation, "lena").tolist()[:2] == [
        0.15,
        {"64QAM": 0.23, "256QAM": 0.38}[modulation],
    ]
    assert cqi_efficiency(modulation, "3gpp")[0] == 156 / 1024


def test_256qam_has_the_orders_of_lte():
    orders = MODULATION_ORDER["256QAM"], DOWNLINK_MODULATION_ORDER["256QAM"]
    assert orders[0].tolist() == orders[1].tolist()


@pytest.mark.parametrize(
    ("information", "rate", "bits"),
    [
        # Up to 3824 bits: rounded down to a multiple of 2^n, and up to a size of the table.
        (10, 0.12, 24),
        (100, 0.12, 96),
        (135, 0.12, 128),
        (190, 0.12, 184),
        (1000, 0.37, 1032),
        (3700, 0.93, 3752),
        # Above: code blocks of at most 3816 bits at low rates, of 8424 bits at others.
        (3825, 0.25, 3848),
        (10_000, 0.25, 9984),
        (10_000, 0.26, 9992),
        (20_000, 0.12, 19992),
        (40_793.6, 948 / 1024, 40976),
        (220_000, 948 / 1024, 221376),
    ],
)
def test_a_size_is_that_of_the_standard(information, rate, bits):
    """By an independent implementation (`nrTBS` of py3gpp 0.6.0)."""
    assert int(transport_block_bits(np.array(information), np.array(rate))) == bits


def test_small_sizes_are_whole_bytes_in_order():
    assert len(SMALL_SIZES) == 93
    assert (SMALL_SIZES % 8 == 0).all()
    assert (np.diff(SMALL_SIZES) > 0).all()


@pytest.mark.parametrize(
    ("modulation", "mcs", "blocks", "size"),
    [
        ("64QAM", 28, 106, 10542),
        ("64QAM", 28, 51, 5074),
        ("64QAM", 18, 106, 5217),
        ("64QAM", 0, 35, 147),
        ("256QAM", 23, 5, 547),  # a code rate of 0.77
        ("64QAM", 15, 35, 1498),
    ],
)
def test_blocks_of_5g_lena_are_those_that_it_sent(modulation, mcs, blocks, size):
    assert int(block_bytes(modulation, "lena", np.array([blocks]))[mcs, 0]) == size


@pytest.mark.parametrize("modulation", ["64QAM", "256QAM"])
def test_both_rules_differ_by_few_percent_and_more_blocks_carry_more(modulation):
    lena, ours = (block_bytes(modulation, rule, np.arange(274)) for rule in ("lena", "3gpp"))
    for sizes in (lena, ours):
        assert (sizes[:, 0] == 0).all()
        assert (np.diff(sizes, axis=1) >= 0).all()
    differs = np.abs(ours[:, 50:] / lena[:, 50:] - 1)
    assert 0.001 < np.median(differs) < 0.02
    assert differs.max() < 0.08
