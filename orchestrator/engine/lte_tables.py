# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Tables of LTE's link adaptation: from a channel quality indicator (CQI) to bits per subframe.

Table numbers are those of 3GPP TS 36.213, Release 12. A CQI states the spectral efficiency that a
link supports with 10 % block errors. `MCS_OF_CQI` selects a modulation and coding scheme (MCS) for
it, which has a modulation order and a transport block size (TBS) index, and `transport_block_bits`
gives the bits that fit into some resource blocks within one subframe, 1 ms.

The names of a modulation, `64QAM` and `256QAM`, are the highest one of a table. The uplink has no
256QAM here: Release 14 added it, with TBS indices that these tables do not have.
"""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from orchestrator.engine.arrays import Array, Ints, read_only

Modulation = Literal["64QAM", "256QAM"]


def _orders(*counts: int) -> Ints:
    """Modulation orders of a table, given how many of its rows are QPSK, 16QAM, 64QAM, 256QAM."""
    return read_only(np.repeat([2, 4, 6, 8][: len(counts)], counts), int)


def _efficiency(orders: Ints, code_rate_1024: list[float]) -> Array:
    efficiency: Array = orders * np.array(code_rate_1024) / 1024
    return efficiency


CQI_EFFICIENCY: Mapping[Modulation, Array] = {
    "64QAM": read_only(
        _efficiency(
            _orders(7, 3, 6),
            [0, 78, 120, 193, 308, 449, 602, 378, 490, 616, 466, 567, 666, 772, 873, 948],
        )
    ),
    "256QAM": read_only(
        _efficiency(
            _orders(4, 3, 5, 4),
            [0, 78, 193, 449, 378, 490, 616, 466, 567, 666, 772, 873, 711, 797, 885, 948],
        )
    ),
}
"""Spectral efficiency of each CQI in bits per symbol, shape [16] (Tables 7.2.3-1 and 7.2.3-2).

The efficiency is the modulation order times the code rate. CQI 0 means out of range and has 0.
"""

DOWNLINK_MODULATION_ORDER: Mapping[Modulation, Ints] = {
    "64QAM": _orders(10, 7, 12),
    "256QAM": _orders(5, 6, 9, 8),
}
"""Bits per symbol of each downlink MCS, shapes [29] and [28] (Tables 7.1.7.1-1 and 7.1.7.1-1A)."""

DOWNLINK_TBS_INDEX: Mapping[Modulation, Ints] = {
    "64QAM": read_only(np.r_[0:10, 9:16, 15:27], int),
    "256QAM": read_only(np.r_[0:10:2, 10:26, 27:34], int),
}
"""TBS index of each downlink MCS, shapes [29] and [28] (Tables 7.1.7.1-1 and 7.1.7.1-1A)."""

UPLINK_MODULATION_ORDER: Mapping[Modulation, Ints] = {"64QAM": _orders(11, 10, 8)}
"""Bits per symbol of each uplink MCS, shape [29] (Table 8.6.1-1)."""

UPLINK_TBS_INDEX: Mapping[Modulation, Ints] = {
    "64QAM": read_only(np.r_[0:11, 10:20, 19:27], int),
}
"""TBS index of each uplink MCS, shape [29] (Table 8.6.1-1)."""

MCS_EFFICIENCY: Mapping[Modulation, Array] = {
    # The CQIs' efficiencies, and between two of them their mean.
    "64QAM": read_only(np.interp(np.arange(29), np.arange(0, 29, 2), CQI_EFFICIENCY["64QAM"][1:])),
    "256QAM": read_only(
        _efficiency(
            DOWNLINK_MODULATION_ORDER["256QAM"],
            [
                *(120, 193, 308, 449, 602, 378, 434, 490, 553, 616, 658),
                *(466, 517, 567, 616, 666, 719, 772, 822.5, 873),
                *(682.5, 711, 754, 797, 841, 885, 916.5, 948),
            ],
        )
    ),
}
"""Nominal spectral efficiency of each MCS in bits per symbol, shapes [29] and [28].

TS 36.213 does not state it. For 256QAM it is that of TS 38.214, Table 5.1.3.1-2, which has the same
modulation orders; transport blocks have this efficiency with the 120 symbols per resource block for
which their sizes were chosen. For 64QAM it is that of 3GPP R1-081483, "Conveying MCS and TB size
via PDCCH", which simulators of LTE use. That document precedes the final tables: with 120 symbols,
transport blocks have up to 1.6 times its efficiency below MCS 17, and 1.13 times at MCS 28.
"""


def _mcs_of_cqi(modulation: Modulation) -> Ints:
    """The highest MCS whose efficiency is at most that of the CQI; the lowest if all are higher."""
    highest = np.searchsorted(MCS_EFFICIENCY[modulation], CQI_EFFICIENCY[modulation], "right") - 1
    mcs = highest.clip(min=0)
    mcs[0] = -1
    return read_only(mcs, int)


MCS_OF_CQI: Mapping[Modulation, Ints] = {
    "64QAM": _mcs_of_cqi("64QAM"),
    "256QAM": _mcs_of_cqi("256QAM"),
}
"""MCS that is selected for each CQI, shape [16]; -1, which is no MCS, for CQI 0.

It is the highest MCS whose `MCS_EFFICIENCY` is not above the `CQI_EFFICIENCY`, and MCS 0 where all
are above. TS 36.213 leaves the choice to the base station.
"""


BLOCK_BITS = read_only(
    np.pad(
        np.loadtxt(Path(__file__).with_name("transport_block_bits.csv"), int, delimiter=","),
        ((0, 0), (1, 0)),
    ),
    int,
)
"""Bits of transport blocks on one layer, shape [34, 111]: by TBS index and resource blocks.

Column 0, no resource blocks, has 0 bits. See `transport_block_bits`.
"""


def transport_block_bits(tbs_index: Ints, resource_blocks: Ints) -> Ints:
    """Bits of a transport block by its TBS index and resource blocks (TS 36.213, 7.1.7.2.1).

    The sizes are those of Table 7.1.7.2.1-1, for a block on one layer. Spatial multiplexing with
    two antennas at both ends sends two blocks of one layer each.

    TBS index 6 with one resource block has 328 bits, more than its neighbours, as the standard
    states it. With QPSK these are more bits than one resource block carries.

    Args:
        tbs_index: TBS indices, 0 to 33, in any shape.
        resource_blocks: Numbers of resource blocks, 0 to 110; 0 gives 0 bits. The shape must be
            that of `tbs_index`, or one that NumPy broadcasts with it.

    Returns:
        Bits, in the common shape.

    Raises:
        ValueError: An argument is outside its range.
    """
    indices, columns = BLOCK_BITS.shape
    _check("tbs_index", tbs_index, 0, indices - 1)
    _check("resource_blocks", resource_blocks, 0, columns - 1)
    bits: Ints = BLOCK_BITS[tbs_index, resource_blocks]
    return bits


_CURVES = json.loads(Path(__file__).with_name("link_curves.json").read_text())

LEAST_DB = read_only(np.array(_CURVES["least_db"]), float)
"""Least signal-to-noise ratio in dB at which ns-3's UAVs report each CQI from 1, shape [4, 15]: by
the number of resource blocks in a group, from 1.

They report the best scheme that loses at most 10 % of the transport blocks of a group (TS 36.213,
section 7.2.3). See `ns3_scenarios.link_curves`, which makes the file.
"""


LOSS_STEP = 0.01
"""See `lost_blocks`."""
_FINE_DB = 0.005


def group_blocks(band_blocks: int) -> int:
    """Resource blocks of a group of a bandwidth with that many (TS 36.213, Table 7.1.6.1-1)."""
    return 1 + int(np.searchsorted([10, 26, 63], band_blocks))


@functools.cache
def lost_blocks(cqi: int, group: int) -> tuple[Array, Array]:
    """Parts of the transport blocks that ns-3 loses, by steps of the signal-to-noise ratio.

    A block is lost by itself, or with its grant.

    Args:
        cqi: Channel quality indicator, 1 to 15, of the modulations up to 64QAM.
        group: Resource blocks of a group.

    Returns:
        The steps' beginnings in dB above `LEAST_DB`, shape [L], and the part in the middle of each,
        for 0 to 100 resource blocks, shape [L, 101]; within a step, the part changes by at most
        `LOSS_STEP`. In the last step, nothing is lost.
    """
    fine_db = np.arange(0, 5, _FINE_DB)
    first_db, step_db = _CURVES["grants_db"]
    (grants,) = _CURVES["grants"]
    known_db = first_db + step_db * np.arange(len(grants))
    unheard = np.interp(fine_db + LEAST_DB[group - 1, cqi - 1], known_db, grants, right=0.0)
    lost = np.repeat(unheard[:, None], 101, axis=1)
    for at, blocks, *parts in _CURVES["errors"]:
        if at == cqi:
            known_db = _CURVES["step_db"] * np.arange(len(parts))
            lost[:, blocks] += np.interp(fine_db, known_db, parts, right=0.0)
    lost[lost < _CURVES["least_error"]] = 0.0
    begins, last = [0], int(lost.any(axis=1).sum())
    for place, part in enumerate(lost[:last]):
        if (lost[begins[-1]] - part).max() > LOSS_STEP:
            begins.append(place)
    middles = [(begin + end) // 2 for begin, end in zip(begins, [*begins[1:], last], strict=True)]
    first = 0 if last else 1
    above_db = read_only(_FINE_DB * np.array([*begins, last])[first:], float)
    return above_db, read_only(np.concatenate([lost[middles], lost[-1:]])[first:], float)


def _check(name: str, values: Ints, low: int, high: int) -> None:
    wrong = np.extract((values < low) | (values > high), values)
    if wrong.size:
        raise ValueError(f"{name} is {wrong[0]}; it must be {low} to {high}")
