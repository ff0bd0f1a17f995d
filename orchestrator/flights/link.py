# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What an uplink carried at its signal-to-noise ratio, as measured, against the LTE model.

The base station serves the UAV in every TTI of 1 ms for as long as data wait. What a second would
carry if it did so in all 1000 of them is the capacity of that second: the measured rate, divided by
the part of the TTIs that had a transport block. So an application that sends little does not count
as a bad radio.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ns3_scenarios.aerial import free_space_db
from orchestrator.engine.compiling import Array
from orchestrator.engine.lte import UPLINK_MARGIN_DB, Steps, uplink_steps
from orchestrator.engine.lte_tables import UPLINK_TBS_INDEX, transport_block_bits
from orchestrator.flights.fitting import Flown
from orchestrator.scenario.cells import BLOCK_HZ

UAV_W, BASE_STATION_W = 0.2, 40.0
"""Powers for which gains of a fitted channel hold: 23 dBm of a UE of power class 3 (TS 36.101,
table 6.2.2-1) and 46 dBm of a base station of 20 MHz (TR 36.942, table 4.2)."""
NOISE_DBM_PER_MHZ = -114.0
"""Thermal noise at 290 K, the default of `radio.noise_dbm_per_mhz`."""
BLOCKS = 100
"""Resource blocks of a carrier of 20 MHz, where the logs do not name their number."""
FEWEST_BLOCKS_UP = 100
"""Fewest transport blocks of a second that says what the radio carries."""
TTIS = 1000
MARGINS_DB = np.arange(0.0, 15.01, 0.1)
HIGHEST_DB = np.concatenate([np.arange(8.0, 40.01, 0.5), [np.inf]])
QUANTILES = np.round(np.arange(0.05, 0.96, 0.05), 2)
"""Quantiles of what was measured in each step of the signal-to-noise ratio."""
FEWEST_SECONDS = 10
"""Fewest seconds in a step of the measured curve; smaller steps are joined with the next one."""
PACKET_BYTES = 1500.0


@dataclass(frozen=True)
class Seconds:
    """Seconds of flights in which the uplink was measured; shapes are [n]."""

    snr_db: Array
    far_m: Array
    mcs: Array
    bler: Array
    rate_bps: Array
    """Goodput: what was decoded."""
    capacity_bps: Array
    """What would have been decoded with a transport block in every TTI; NaN: hardly anything was
    sent, so that nothing is known of it."""
    blocks: int
    """Resource blocks of the carrier."""
    carrier_hz: float

    @property
    def tells(self) -> "np.typing.NDArray[np.bool_]":
        """Whether enough was sent in the second to know its capacity, shape [n]."""
        return np.isfinite(self.capacity_bps)


def seconds_of(flights: Sequence[Flown], carrier_hz: float) -> Seconds | None:
    """The seconds in flight with a signal-to-noise ratio and a rate of the uplink.

    Returns:
        None where there are fewer than `FEWEST_BLOCKS_UP` such seconds.
    """
    parts = []
    for flight in flights:
        snr_db, rate_bps = flight.snr_up_db, flight.values("uplink_bps")
        sent = flight.values("blocks_up")
        used = flight.is_aloft & np.isfinite(snr_db) & np.isfinite(rate_bps)
        enough = sent >= FEWEST_BLOCKS_UP
        part = np.minimum(np.where(enough, sent, np.nan) / TTIS, 1.0)
        capacity_bps = rate_bps / part
        columns = (
            snr_db,
            flight.path.far_m,
            flight.values("mcs_up"),
            flight.values("bler_up"),
            rate_bps,
            capacity_bps,
        )
        parts.append(np.stack([column[used] for column in columns]))
    table = np.concatenate(parts, axis=1)
    if table.shape[1] < FEWEST_BLOCKS_UP or not np.isfinite(table[5]).any():
        return None
    numbers = [flight.measured.resource_blocks for flight in flights]
    if len(set(numbers)) > 1:
        raise_different(numbers)
    return Seconds(*table, blocks=numbers[0] or BLOCKS, carrier_hz=carrier_hz)
