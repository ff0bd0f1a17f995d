# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The measured rate of an uplink as a function of its signal-to-noise ratio, and the rate of the
LTE model.

The base station serves the UAV in every TTI of 1 ms while data wait. The capacity of a second is
the rate that it would have had with a transport block in all 1000 TTIs: the measured rate divided
by the share of the TTIs that had a transport block. An application with a low rate is therefore
not mistaken for a bad radio.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from ns3_scenarios.aerial import free_space_db
from orchestrator.engine.arrays import Array, Ints
from orchestrator.engine.lte import UPLINK_MARGIN_DB, Steps, limited, uplink_steps
from orchestrator.engine.lte_tables import UPLINK_TBS_INDEX, transport_block_bits
from orchestrator.flights.fitting import LEAST_VALUES, Flown
from orchestrator.flights.likelihood import Series, most_likely
from orchestrator.scenario.cells import BLOCK_HZ

UAV_W, BASE_STATION_W = 0.2, 40.0
"""Nominal powers, for which the gains of a fitted channel are valid: 23 dBm of a UE of power class
3 (TS 36.101, table 6.2.2-1) and 46 dBm of a base station of 20 MHz (TR 36.942, table 4.2)."""
NOISE_DBM_PER_MHZ = -114.0
"""Thermal noise at 290 K, the default of `radio.noise_dbm_per_mhz`."""
BLOCKS = 100
"""Resource blocks of a carrier of 20 MHz, used if the logs do not contain their number."""
FEWEST_BLOCKS_UP = 100
"""Smallest number of transport blocks in a second from which its capacity is computed."""
TTIS = 1000
"""TTIs per second."""
NEAR_S = 3
MARGINS_DB = np.arange(0.0, 15.01, 0.1)
HIGHEST_DB = np.concatenate([np.arange(8.0, 40.01, 0.5), [np.inf]])
NOISE_STEP_DB = 0.25
QUANTILES = np.round(np.arange(0.05, 0.96, 0.05), 2)
"""Quantiles of the measured values in each step of the signal-to-noise ratio."""
FEWEST_SECONDS = 10
"""Smallest number of seconds in a step of the curve; smaller steps are joined with the next."""
PACKET_BYTES = 1500.0


@dataclass(frozen=True)
class Seconds:
    """Seconds of flights in which the uplink was measured; shapes are [n]."""

    step_s: Array
    """Time in s since the previous second; infinite at the first second of a flight."""
    snr_db: Array
    far_m: Array
    mcs: Array
    bler: Array
    rate_bps: Array
    """Goodput: the rate of decoded data."""
    capacity_bps: Array
    """Goodput with a transport block in every TTI. If hardly any block was sent: the goodput itself
    if data waited, and NaN (unknown) if no data waited."""
    blocks: int
    """Resource blocks of the carrier."""
    carrier_hz: float

    @property
    def known(self) -> "np.typing.NDArray[np.bool_]":
        """Whether the capacity of each second is known, shape [n]."""
        return np.isfinite(self.capacity_bps)


def seconds_of(
    flights: Sequence[Flown], carrier_hz: float, field: str = "snr_up_db"
) -> Seconds | None:
    """The seconds in flight in which the rate of the uplink was measured.

    A second without an estimate of the signal-to-noise ratio gets that of the nearest second, at
    most `NEAR_S` away. If the numbers of transport blocks were never measured, all rates are used
    as capacities.

    Args:
        flights: The flights, whose carriers have the same number of resource blocks.
        carrier_hz: Carrier frequency.
        field: Name of the level that is used as the signal-to-noise ratio.

    Returns:
        None if data were sent in fewer than `LEAST_VALUES` of these seconds.
    """
    parts = []
    for flight in flights:
        snr_db, rate_bps = _nearest(flight.level_db(field)), flight.values("uplink_bps")
        used = flight.is_aloft & np.isfinite(snr_db) & np.isfinite(rate_bps)
        sent = flight.values("blocks_up")
        if not np.isfinite(sent).any():
            sent = np.full(len(sent), float(TTIS))
        part = np.clip(sent / TTIS, FEWEST_BLOCKS_UP / TTIS, 1.0)
        waits = flight.values("buffer_up_bytes") >= PACKET_BYTES
        capacity_bps = np.where(
            sent >= FEWEST_BLOCKS_UP, rate_bps / part, np.where(waits, rate_bps, np.nan)
        )
        at_s = flight.path.slot_s * np.flatnonzero(used)
        columns = (
            snr_db,
            flight.path.far_m,
            flight.values("mcs_up"),
            flight.values("bler_up"),
            rate_bps,
            capacity_bps,
        )
        step_s = np.diff(at_s, prepend=-np.inf)
        parts.append(np.stack([step_s, *(column[used] for column in columns)]))
    table = np.concatenate(parts, axis=1)
    if (table[6] > 0).sum() < LEAST_VALUES:
        return None
    step_s, snr_db, far_m, mcs, bler, rate_bps, capacity_bps = table
    blocks = flights[0].measured.resource_blocks or BLOCKS
    return Seconds(step_s, snr_db, far_m, mcs, bler, rate_bps, capacity_bps, blocks, carrier_hz)


@dataclass(frozen=True)
class Scheme:
    """Parameters of the rate of an LTE uplink: gap to Shannon's limit, and highest ratio."""

    margin_db: float
    highest_db: float
    """Signal-to-distortion ratio of the radios in dB, which limits the signal-to-noise ratio."""

    def steps(self, blocks: int) -> tuple[Array, Array, Ints]:
        """The rate of the transport blocks as a step function of the signal-to-noise ratio.

        Args:
            blocks: Resource blocks of the carrier.

        Returns:
            The smallest linear ratio of each step except the first, shape [L]; the rate of all
            transport blocks in bit/s and the MCS of each step, shape [L + 1] each. The first step
            has rate 0 and MCS -1.
        """
        made = _without_distortion(blocks, self.margin_db)
        if np.isfinite(self.highest_db):
            made = limited(made, self.highest_db)
        bits = transport_block_bits(UPLINK_TBS_INDEX["64QAM"][made.mcs[1:]], np.array(blocks))
        return made.least_snr, np.concatenate([[0.0], TTIS * bits]), made.mcs

    def of(self, snr_db: Array, blocks: int) -> tuple[Array, Ints]:
        """Rate of the whole carrier in bit/s and MCS at these ratios, shape [n] each."""
        least, bps, mcs = self.steps(blocks)
        step = np.searchsorted(least, 10 ** (snr_db / 10), side="right")
        return bps[step], mcs[step]


@cache
def _without_distortion(blocks: int, margin_db: float) -> Steps:
    return uplink_steps(blocks, margin_db, PACKET_BYTES)


PLAIN = Scheme(UPLINK_MARGIN_DB, np.inf)
"""The default LTE model of the testbed."""


def scheme_of(seconds: Seconds) -> tuple[Scheme, float]:
    """The scheme that describes the measured capacities best, and its mean absolute error in dB.

    The mean absolute error over all seconds with decoded data is minimised. At a ratio below the
    first step, the model would use fewer resource blocks, which the measured radio did not. The
    rate of the first step is used there.
    """
    snr_db, capacity_db = _decoded(seconds)
    best, least = PLAIN, np.inf
    for margin_db in MARGINS_DB:
        for highest_db in HIGHEST_DB:
            scheme = Scheme(float(margin_db), float(highest_db))
            error = _error_db(scheme.steps(seconds.blocks), snr_db, capacity_db)
            if error < least - 1e-12:
                best, least = scheme, error
    return best, least


def noise_db_of(seconds: Seconds) -> tuple[float, float]:
    """The level at which the signal-to-noise ratio is 0 dB, if only a level was measured.

    It is found in the same way as the margin in `scheme_of`. A margin cannot be separated from it.

    Returns:
        The level, and the mean absolute error of the LTE model's rate with it, both in dB.
    """
    level_db, capacity_db = _decoded(seconds)
    steps = PLAIN.steps(seconds.blocks)
    noises_db = np.arange(level_db.min() - 40, level_db.max() + 10, NOISE_STEP_DB)
    errors = [_error_db(steps, level_db - noise_db, capacity_db) for noise_db in noises_db]
    best = int(np.argmin(errors))
    return float(noises_db[best]), errors[best]


def _decoded(seconds: Seconds) -> tuple[Array, Array]:
    """Signal-to-noise ratio and capacity in dB of the seconds with decoded data, shape [m] each."""
    use = seconds.known & (seconds.capacity_bps > 0)
    return seconds.snr_db[use], 10 * np.log10(seconds.capacity_bps[use])


def _error_db(steps: tuple[Array, Array, Ints], snr_db: Array, capacity_db: Array) -> float:
    """Mean absolute error in dB of the rate of these steps, at least that of the first one."""
    least, bps, _ = steps
    step = np.searchsorted(least, 10 ** (snr_db / 10), side="right")
    return float(np.abs(capacity_db - 10 * np.log10(bps[np.maximum(step, 1)])).mean())


@dataclass(frozen=True)
class Curve:
    """Measured values in B steps of the signal-to-noise ratio; shapes are [B] or [B, Q]."""

    snr_db: Array
    """Median ratio of each step, ascending."""
    seconds: Array
    """Number of seconds in each step."""
    capacity_bps: Array
    """`QUANTILES` of the capacity in bit/s, shape [B, Q]."""
    mcs: Array
    """`QUANTILES` of the MCS, shape [B, Q]; NaN: it was never measured."""
    bler: Array
    """Median block error rate; NaN: it was never measured."""
    memory_s: float
    """Time in s after which the correlation of a second's rank within its step is 1/e."""
    memory_share: float
    """Share of the variance of this rank that is correlated; the rest is independent."""


def curve_of(seconds: Seconds) -> Curve:
    """The measured curve, in steps of 1 dB; wider if a step has fewer than `FEWEST_SECONDS`."""
    use = seconds.known
    snr_db = seconds.snr_db[use]
    order = np.argsort(snr_db, kind="stable")
    steps = np.floor(snr_db[order])
    groups: list[Array] = []
    for step in np.unique(steps):
        group = order[steps == step]
        if groups and len(groups[-1]) < FEWEST_SECONDS:
            groups[-1] = np.concatenate([groups[-1], group])
        else:
            groups.append(group)
    if len(groups) > 1 and len(groups[-1]) < FEWEST_SECONDS:
        last = groups.pop()
        groups[-1] = np.concatenate([groups[-1], last])
    capacity, mcs, bler = (
        column[use] for column in (seconds.capacity_bps, seconds.mcs, seconds.bler)
    )
    memory_s, share = _memory(seconds, capacity, groups)
    return Curve(
        np.array([np.median(snr_db[group]) for group in groups]),
        np.array([len(group) for group in groups], np.float64),
        np.stack([np.nanquantile(capacity[group], QUANTILES) for group in groups]),
        _quantiles(mcs, groups, QUANTILES),
        _quantiles(bler, groups, np.array([0.5]))[:, 0],
        memory_s,
        share,
    )


def _memory(seconds: Seconds, capacity_bps: Array, groups: Sequence[Array]) -> tuple[float, float]:
    """`memory_s` and `memory_share` of a curve, from the normal scores of capacities per step.

    Args:
        seconds: All seconds.
        capacity_bps: The known capacities, shape [m].
        groups: Indices of the capacities in each step.
    """
    from scipy.stats import norm, rankdata  # imported here, because it takes half a second

    scores = np.empty(len(capacity_bps))
    for group in groups:
        scores[group] = norm.ppf((rankdata(capacity_bps[group]) - 0.5) / len(group))
    flight = np.cumsum(np.isinf(seconds.step_s)) - 1
    known = Series(np.zeros(len(flight)), seconds.step_s, flight).chosen(seconds.known)
    found = most_likely(Series(scores, known.step_m, known.flight), np.ones((len(scores), 1)))
    share = found.shadowing_db**2 / (found.shadowing_db**2 + found.scatter_db**2)
    return found.decorrelation_m, share


def _quantiles(values: Array, groups: Sequence[Array], levels: Array) -> Array:
    """Quantiles of the measured values in each group, shape [B, Q].

    A group without transport blocks has no measured values; it gets the quantiles of the nearest
    group. NaN: no group has measured values.
    """
    made = np.full((len(groups), len(levels)), np.nan)
    for row, group in zip(made, groups, strict=True):
        known = values[group][np.isfinite(values[group])]
        if len(known):
            row[:] = np.quantile(known, levels)
    seen = np.flatnonzero(np.isfinite(made[:, 0]))
    if not len(seen):
        return made
    nearest = np.abs(np.arange(len(made))[:, None] - seen).argmin(axis=1)
    return np.asarray(made[seen[nearest]])


def _nearest(values: Array) -> Array:
    """Values with gaps filled by the nearest value, at most `NEAR_S` slots away, shape [S]."""
    known = np.flatnonzero(np.isfinite(values))
    if not len(known):
        return values
    at = np.arange(len(values))
    right = known[np.minimum(np.searchsorted(known, at), len(known) - 1)]
    left = known[np.maximum(np.searchsorted(known, at, side="right") - 1, 0)]
    near = np.where(np.abs(at - left) <= np.abs(at - right), left, right)
    return np.where(np.abs(at - near) <= NEAR_S, values[near], np.nan)


@dataclass(frozen=True)
class Stage:
    """One stage between Shannon's rate and the measured goodput."""

    name: str
    rate_bps: Array
    """Rate of each second, shape [n]."""


def stages(seconds: Seconds, scheme: Scheme) -> list[Stage]:
    """Rates of the uplink in each second, from the ideal rate to the measured goodput."""
    band_hz = seconds.blocks * BLOCK_HZ
    noise_db = NOISE_DBM_PER_MHZ + 10 * np.log10(band_hz / 1e6)
    nominal_db = (
        10 * np.log10(UAV_W * 1e3) - noise_db - free_space_db(seconds.far_m, seconds.carrier_hz)
    )
    return [
        Stage(
            "Shannon, 23 dBm in free space, thermal noise",
            band_hz * np.log2(1 + 10 ** (nominal_db / 10)),
        ),
        Stage("Shannon at the measured SNR", band_hz * np.log2(1 + 10 ** (seconds.snr_db / 10))),
        Stage("LTE model at the measured SNR", PLAIN.of(seconds.snr_db, seconds.blocks)[0]),
        Stage("LTE model with the fitted margin", scheme.of(seconds.snr_db, seconds.blocks)[0]),
        Stage("measured, if all TTIs were used", seconds.capacity_bps),
        Stage("measured goodput", seconds.rate_bps),
    ]
