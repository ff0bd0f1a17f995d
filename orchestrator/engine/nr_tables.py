# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Tables of NR's link adaptation: from a channel quality indicator (CQI) to bytes per NR slot.

Table numbers are those of 3GPP TS 38.214. Tables 5.2.2.1-2 and 5.2.2.1-3, the spectral efficiency
of each CQI up to 64QAM and 256QAM, are equal to LTE's: `orchestrator.engine.lte_tables`.

A transport block has one of two sizes. `3gpp` is that of TS 38.214, section 5.1.3.2. `lena` is that
of 5G-LENA (NR-v4.0 for ns-3), which has the code rates and efficiencies of the tables with two
digits, and takes checksums off. Both are described in docs/nr.md.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np

from orchestrator.engine.arrays import Array, Ints, read_only
from orchestrator.engine.lte_tables import CQI_EFFICIENCY, Modulation

BlockSize = Literal["lena", "3gpp"]

MODULATION_ORDER: Mapping[Modulation, Ints] = {
    "64QAM": read_only(np.repeat([2, 4, 6], [10, 7, 12]), int),
    "256QAM": read_only(np.repeat([2, 4, 6, 8], [5, 6, 9, 8]), int),
}
"""Bits per symbol of each MCS, shapes [29] and [28] (Tables 5.1.3.1-1 and 5.1.3.1-2)."""

CODE_RATE: Mapping[Modulation, Array] = {
    "64QAM": read_only(
        np.array(
            [
                *(120, 157, 193, 251, 308, 379, 449, 526, 602, 679),
                *(340, 378, 434, 490, 553, 616, 658),
                *(438, 466, 517, 567, 616, 666, 719, 772, 822, 873, 910, 948),
            ]
        )
        / 1024
    ),
    "256QAM": read_only(
        np.array(
            [
                *(120, 193, 308, 449, 602, 378, 434, 490, 553, 616, 658),
                *(466, 517, 567, 616, 666, 719, 772, 822, 873),
                *(682.5, 711, 754, 797, 841, 885, 916.5, 948),
            ]
        )
        / 1024
    ),
}
"""Code rate of each MCS, of the same shapes and tables."""

SMALL_SIZES = read_only(
    np.array(
        [
            *range(24, 193, 8),
            *range(208, 385, 16),
            *(408, 432, 456, 480, 504, 528, 552, 576),
            *(608, 640, 672, 704, 736, 768, 808, 848, 888, 928, 984, 1032, 1064, 1128),
            *(1160, 1192, 1224, 1256, 1288, 1320, 1352, 1416, 1480, 1544, 1608, 1672, 1736),
            *(1800, 1864, 1928, 2024, 2088, 2152, 2216, 2280, 2408, 2472, 2536, 2600, 2664),
            *(2728, 2792, 2856, 2976, 3104, 3240, 3368, 3496, 3624, 3752, 3824),
        ]
    ),
    int,
)
"""Bits of transport blocks up to 3824, shape [93] (Table 5.1.3.2-1)."""

SYMBOLS = 13
"""Symbols of an NR slot with data; one of its 14 has control information."""
LENA_SUBCARRIERS = 11
"""Subcarriers of a resource block with data in each of these symbols, in 5G-LENA."""
BLOCK_ELEMENTS = 12 * (SYMBOLS - 1)
"""Resource elements of a resource block with data: one symbol has reference signals (DM-RS)."""
LENA_CUT = 23
"""MCS of Table 5.1.3.1-2 whose code rate 5G-LENA cuts instead of rounding it."""
LENA_LEAST_DB = -0.36
"""Signal-to-noise ratio from which 5G-LENA loses none of the blocks of the lowest scheme, as
measured in steps of 0.04 dB; below -0.96 dB, it loses most. A retransmission takes the whole cell,
so a scheduler serves no link below."""
LENA_HIGHEST_DB, LENA_LOST_CODES = 26.15, 7e-4
"""Signal-to-noise ratio up to which 5G-LENA loses code blocks of MCS 28 of Table 5.1.3.1-1, and the
part of them, as measured."""
CODE_BYTES = 1056
"""Bytes of a long code block (TS 38.212, section 5.2.2)."""
CHECKSUM_BYTES = 3
"""A checksum (CRC) of 24 bits, of a transport block or of a code block."""


def cqi_efficiency(modulation: Modulation, block_size: BlockSize) -> Array:
    """Spectral efficiency of each CQI from 1 in bits per symbol, shape [15]."""
    return _rounded(CQI_EFFICIENCY[modulation][1:], block_size)


def mcs_efficiency(modulation: Modulation, block_size: BlockSize) -> Array:
    """Spectral efficiency of each MCS in bits per symbol, shape [29] or [28]."""
    return _rounded(MODULATION_ORDER[modulation] * CODE_RATE[modulation], block_size)


def block_bytes(modulation: Modulation, block_size: BlockSize, blocks: Ints) -> Ints:
    """Bytes of a transport block in one NR slot, on one layer, for headers and data.

    Args:
        modulation: Highest modulation of the table.
        block_size: Rule for the size.
        blocks: Numbers of resource blocks, shape [N].

    Returns:
        Shape [M, N], for each MCS; 0 for no resource blocks.
    """
    order = MODULATION_ORDER[modulation][:, None]
    rate = _rounded(CODE_RATE[modulation], block_size)[:, None]
    if block_size == "lena" and modulation == "256QAM":
        rate[LENA_CUT] = 0.77  # 797 / 1024 cut to two digits, as the sizes of its blocks show
    if block_size == "3gpp":
        return transport_block_bits(BLOCK_ELEMENTS * blocks * rate * order, rate) // 8
    bits = LENA_SUBCARRIERS * SYMBOLS * blocks * order * rate
    payload = np.floor(bits / 8 + 1e-9).astype(np.int64)
    # Code blocks of the two base graphs of LDPC, TS 38.212, sections 5.2.2 and 6.2.2.
    is_small = (8 * payload <= 292) | ((8 * payload <= 3824) & (rate <= 0.67)) | (rate <= 0.25)
    code_bytes = np.where(is_small, 480, CODE_BYTES)
    checksums = np.maximum((payload - CHECKSUM_BYTES) // code_bytes, 1)
    return np.asarray(np.maximum(payload - CHECKSUM_BYTES * checksums, 0))


def lena_losses(
    modulation: Modulation, mcs: int, least_db: float, size_bytes: Ints
) -> list[tuple[float, Array]]:
    """The blocks that 5G-LENA loses with a scheme: signal-to-noise ratios in dB, each with the part
    of the blocks that is lost from there on.

    Args:
        modulation: Highest modulation of the table.
        mcs: The scheme.
        least_db: Signal-to-noise ratio from which on it is chosen.
        size_bytes: Bytes of the blocks.
    """
    none = np.zeros(size_bytes.shape)
    if mcs == 0:
        return [(max(least_db, LENA_LEAST_DB), none)]
    if modulation == "64QAM" and mcs == 28 and least_db < LENA_HIGHEST_DB:
        lost = 1 - (1 - LENA_LOST_CODES) ** (size_bytes / CODE_BYTES)
        return [(least_db, lost), (LENA_HIGHEST_DB, none)]
    return [(least_db, none)]


def transport_block_bits(information: Array, rate: Array) -> Ints:
    """Bits of a transport block by TS 38.214, section 5.1.3.2, without its checksum.

    Args:
        information: N_info, the resource elements times code rate, bits per symbol and layers.
        rate: Code rates, of a shape that NumPy broadcasts with it.

    Returns:
        Bits, in the common shape; 0 where `information` is 0.
    """
    information, rate = np.broadcast_arrays(information, rate)
    step = 2 ** np.maximum(3, np.floor(np.log2(np.maximum(information, 1))) - 6)
    small = np.maximum(24, step * np.floor(information / step))
    found = np.searchsorted(SMALL_SIZES, small.clip(max=SMALL_SIZES[-1]))
    over = np.maximum(information - 24, 1)
    step = 2 ** (np.floor(np.log2(over)) - 5)
    large = np.maximum(3840, step * np.floor(over / step + 0.5))  # ties are rounded up
    longest = np.where(rate <= 1 / 4, 3816, np.where(large > 8424, 8424, np.inf))
    codes = np.ceil((large + 24) / longest).clip(min=1)
    long = 8 * codes * np.ceil((large + 24) / (8 * codes)) - 24
    bits = np.where(information <= 3824, SMALL_SIZES[found], long)
    return np.asarray(np.where(information > 0, bits, 0), dtype=np.int64)


def _rounded(values: Array, block_size: BlockSize) -> Array:
    return np.round(values, 2) if block_size == "lena" else values
