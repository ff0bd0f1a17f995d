# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A lower bound of a round's objective over all allocations, by Lagrangian relaxation.

The relaxation ignores all waiting (for the server, the downlink and other clients) and changes of
the channel: every transfer has the client's best gain in the longest possible round. Under parallel
transmission every client also has the full power of the base station. Each relaxation can only
shorten steps. The relaxed problem for split point u is

    minimise  T + λ E   subject to   c_k + X_k(β_k) + s_k / α_k <= T,   e + p_k x_k(β_k) <= E,
                                     Σ α_k = Σ β_k = 1,   α_k, β_k >= the least share,

with c_k the steps that do not depend on shares, x_k the time of all uploads, X_k the time of all
transfers that depend on β_k, s_k the server's work for a client in a round, and e the energy of
computing. For any weights μ_k, ν_k >= 0 with Σ μ_k = 1 and Σ ν_k = λ, and any prices π, σ >= 0,

    Σ μ_k c_k + λ e + Σ_k min_β [μ_k X_k(β) + ν_k p_k x_k(β) + π β] - π + Σ_k min_α [μ_k s_k / α
    + σ α] - σ

is not larger than the minimum (weak duality: the minimiser is one of the points over which each
term is minimised, and there the constraints' terms are at most 0). Weights and prices therefore
need no proof; a poor choice only makes the bound low. x and X are convex in β (Shannon's rate is
concave in the bandwidth, and its reciprocal convex), so the inner minima are found by bisection of
the derivative, with an error far below the digits shown.

If each client may have its own split point, its broadcast does not wait for others, and its terms
are also minimised over u_k: the same weights and prices serve all u_k, so the sum of these minima
is still not larger than the minimum.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ns3_scenarios.trace import SlotValues, both_ways, each_way
from orchestrator.engine.fdma import ShannonFdma, shannon_bps
from orchestrator.engine.plan import Array
from orchestrator.policies.shares import least_share, lifted
from orchestrator.rounds.simulation import SplitCosts

UPDATES = 800
MIXED_UPDATES = 300
BISECTIONS = 40


def lower_bound(
    costs: SplitCosts,
    radio: ShannonFdma,
    gain: SlotValues,
    slot_s: float,
    start_s: Array,
    reached: Array,
    *,
    per_client: bool = False,
) -> Array:
    """A lower bound of the objective in each of N rounds over all allocations, shape [N].

    A better allocation has T + λ E < `reached`, so its round takes less than `reached`, and, with
    the bound of E, less than the remaining time. The gains of this whole interval must be known,
    because a client might transfer everything in its last slot. If the trace ends before, the bound
    is NaN.

    Args:
        costs: Costs of the split points, see `split_costs`.
        radio: Parameters that convert gains to rates.
        gain: Gains, shape [K, S].
        slot_s: Length of a slot, s.
        start_s: Start times of the rounds, shape [N], s.
        reached: Objective of a known allocation in each round, shape [N]; it limits the duration of
            better rounds.
        per_client: Whether each client may have its own split point.
    """
    least = _over_mixed_splits if per_client else _over_splits
    longest_s = reached
    best = _best_gain(gain, slot_s, start_s, longest_s)
    energy_j = least(costs, radio, best, 0.0, 1.0)
    longest_s = reached - costs.energy_weight * energy_j
    best = _best_gain(gain, slot_s, start_s, longest_s)
    bound = least(costs, radio, best, 1.0, costs.energy_weight)
    return np.asarray(np.minimum(bound, reached))


def _best_gain(gain: SlotValues, slot_s: float, start_s: Array, longest_s: Array) -> SlotValues:
    """Each client's best gain while a round can last, shape [N, K]; NaN beyond the trace's end."""
    return each_way(lambda way: _best(way, slot_s, start_s, longest_s), gain)


def _best(gain: Array, slot_s: float, start_s: Array, longest_s: Array) -> Array:
    first = np.floor(start_s / slot_s + 1e-6).astype(int)
    last = np.ceil((start_s + longest_s) / slot_s)
    unknown = np.full(len(gain), np.nan)
    return np.array(
        [
            gain[:, a : int(b)].max(axis=1) if b <= gain.shape[1] else unknown
            for a, b in zip(first, last, strict=True)
        ]
    )


def _over_splits(
    costs: SplitCosts,
    radio: ShannonFdma,
    gain: SlotValues,
    time_weight: float,
    energy_weight: float,
) -> Array:
    """The bound of time_weight · T + energy_weight · E over all split points, shape [N]."""
    bounds = [
        _dual(_relaxed(costs, radio, gain, u), time_weight, energy_weight)
        for u in range(costs.splits)
    ]
    return np.asarray(np.min(bounds, axis=0))


def _over_mixed_splits(
    costs: SplitCosts,
    radio: ShannonFdma,
    gain: SlotValues,
    time_weight: float,
    energy_weight: float,
) -> Array:
    """The bound of time_weight · T + energy_weight · E over all clients' split points, [N]."""
    rounds = [_relaxed(costs, radio, gain, u, alone=True) for u in range(costs.splits)]
    clients = rounds[0].gain.shape[1]
    mu = np.full_like(rounds[0].gain, time_weight / clients)
    nu = np.full_like(mu, energy_weight / clients)
    price = _price(rounds, mu, nu)
    bound = _mixed(rounds, mu, nu, price).bound
    for update in range(MIXED_UPDATES):
        found = _mixed(rounds, mu, nu, price)
        bound = np.fmax(bound, found.bound)
        step = 0.5 / (1 + 0.05 * update)
        mu, nu = _shifted(mu, found.time_s, step), _shifted(nu, found.energy_j, step)
        price = price * np.exp(step * np.clip(found.bandwidth - 1, -0.5, 0.5))
    return np.asarray(bound)


class _Mixed(NamedTuple):
    """The minimum over every client's terms, for given weights and price."""

    bound: Array
    """Lower bound, shape [N]."""
    time_s: Array
    """Time of each client at its minimum, shape [N, K], s."""
    energy_j: Array
    bandwidth: Array
    """Sum of the bandwidth shares at the minimum, shape [N, 1]."""


def _mixed(rounds: Sequence["_Relaxed"], mu: Array, nu: Array, price: Array) -> _Mixed:
    """The bound for these weights and this price of bandwidth, shape [N, 1]."""
    work_s = np.mean(np.stack([round_.server_s for round_ in rounds], axis=-1), axis=-1)
    server_price = _server_price(work_s, mu)
    terms, times, energies, shares = [], [], [], []
    for round_ in rounds:
        beta, transfers = _cheapest(round_, mu, nu, price)
        server_s, of_server = np.zeros_like(mu) + round_.server_s, mu * round_.server_s
        if round_.parallel_server:
            alpha = _cheapest_alpha(round_.server_s, mu, server_price)
            server_s = np.asarray(round_.server_s / alpha)
            of_server = mu * server_s + server_price * alpha
        time_s = round_.fixed_s + transfers.all_s
        energy_j = round_.compute_j + round_.radio.uplink_power_w * transfers.up_s
        terms.append(mu * time_s + nu * energy_j + price * beta + of_server)
        times.append(time_s + server_s)
        energies.append(energy_j)
        shares.append(beta)
    least = np.argmin(terms, axis=0)[None]

    def of_least(values: list[Array]) -> Array:
        return np.asarray(np.take_along_axis(np.array(values), least, axis=0)[0])

    bound = of_least(terms).sum(axis=1) - price[:, 0]
    if rounds[0].parallel_server:
        bound = bound - server_price[:, 0]
    bandwidth = of_least(shares).sum(axis=1, keepdims=True)
    return _Mixed(bound, of_least(times), of_least(energies), bandwidth)


def _price(rounds: Sequence["_Relaxed"], mu: Array, nu: Array) -> Array:
    """Initial price of bandwidth, shape [N, 1]: its value at equal shares."""
    equal = np.full_like(mu, 1 / mu.shape[1])
    pulls = [round_.pull(mu, nu, round_.transfer_times(equal)) for round_ in rounds]
    return np.asarray(np.min(pulls, axis=0).sum(axis=1, keepdims=True))


class _TransferTimes(NamedTuple):
    """Times of transfers for shares β, each [N, K]."""

    up_s: Array
    """x: time of all uploads, s."""
    all_s: Array
    """X: time of all transfers that depend on β, s."""
    up_slope: Array
    """-dx / d ln β."""
    all_slope: Array
    """-dX / d ln β."""


@dataclass(frozen=True)
class _Relaxed:
    """The relaxed problem for one split point, without waiting."""

    radio: ShannonFdma
    gain: Array
    """Uplink gains, shape [N, K]."""
    gain_down: Array
    fixed_s: Array
    """c, shape [N, K], s."""
    server_s: Array
    """s, shape [K], in seconds."""
    compute_j: Array
    """e, shape [K], J."""
    up_bits: Array
    """Shape [K]."""
    down_bits: Array | None
    """Bits per round if their time depends on β, shape [K]; otherwise None."""
    parallel_server: bool

    def transfer_times(self, beta: Array) -> _TransferTimes:
        """Times of transfers for shares β of the bands."""
        radio, gain = self.radio, self.gain
        up_hz = beta * radio.uplink_hz
        up_s, up_slope = _transfer(self.up_bits, up_hz, radio.uplink_power_w, radio, gain)
        if self.down_bits is None:
            return _TransferTimes(up_s, up_s, up_slope, up_slope)
        down_hz = beta * radio.downlink_hz
        down_s, slope = _transfer(
            self.down_bits, down_hz, radio.downlink_power_w, radio, self.gain_down
        )
        return _TransferTimes(up_s, up_s + down_s, up_slope, up_slope + slope)

    def pull(self, mu: Array, nu: Array, transfers: _TransferTimes) -> Array:
        """Decrease of the weighted sum per increase of ln β, shape [N, K]."""
        return mu * transfers.all_slope + nu * self.radio.uplink_power_w * transfers.up_slope

    def towards_minimum(
        self, mu: Array, nu: Array, beta: Array, transfers: _TransferTimes
    ) -> Array:
        """A fixed-point step towards the optimal shares: β_k is proportional to the pull."""
        return np.sqrt(beta * lifted(_normalised(self.pull(mu, nu, transfers))))


def _relaxed(
    costs: SplitCosts, radio: ShannonFdma, gains: SlotValues, u: int, *, alone: bool = False
) -> _Relaxed:
    """The relaxed problem for split point u + 1; `alone`: without waiting for other broadcasts."""
    gain, gain_down = both_ways(gains)
    iterations = costs.iterations_of
    parallel_down = costs.paradigm.gradient_transmission == "parallel"
    down_bits = 8.0 * iterations * costs.gradient_bytes[u]
    whole = _rate(radio.downlink_hz, radio.downlink_power_w, radio, gain_down)
    fixed_s = iterations * (costs.cf_s[u] + costs.cb_s[u]) + np.zeros_like(gain)
    broadcast_s = 8.0 * costs.broadcast_bytes[u] / whole
    fixed_s += broadcast_s if alone else broadcast_s.max(axis=1, keepdims=True)
    fixed_s += 0.0 if parallel_down else down_bits / whole
    return _Relaxed(
        radio=radio,
        gain=gain,
        gain_down=gain_down,
        fixed_s=fixed_s,
        server_s=iterations * costs.server_s[u],
        compute_j=costs.compute_power_w * iterations * (costs.cf_s[u] + costs.cb_s[u]),
        up_bits=8.0 * (iterations * costs.smashed_bytes[u] + costs.adapter_bytes[u]),
        down_bits=down_bits if parallel_down else None,
        parallel_server=costs.paradigm.server_compute == "parallel",
    )


def _dual(round_: _Relaxed, time_weight: float, energy_weight: float) -> Array:
    """The bound of time_weight · T + energy_weight · E, shape [N]."""
    mu, nu, beta = _weights(round_, time_weight, energy_weight)
    bound = _link_terms(round_, mu, nu, beta)
    if not round_.parallel_server:
        work_s = max(round_.server_s.max(), 1e-300)
        return np.asarray(bound + (mu * (round_.server_s / work_s)).sum(axis=1) * work_s)
    return np.asarray(bound + _server_terms(round_, mu))


def _weights(
    round_: _Relaxed, time_weight: float, energy_weight: float
) -> tuple[Array, Array, Array]:
    """Weights μ, ν and corresponding shares β, each [N, K]; any choice gives a valid bound.

    Weights of clients with large values grow, shares follow the weights (a fixed point of the inner
    minimum), and the mean over later updates removes most of the oscillation.
    """
    gain, power = round_.gain, round_.radio.uplink_power_w
    clients = gain.shape[1]
    mu = np.full_like(gain, time_weight / clients)
    nu = np.full_like(gain, energy_weight / clients)
    alpha = beta = np.full_like(gain, 1 / clients)
    sums: list[Array] = [np.zeros_like(mu), np.zeros_like(nu)]
    for update in range(UPDATES):
        transfers = round_.transfer_times(beta)
        beta = round_.towards_minimum(mu, nu, beta, transfers)
        alpha = lifted(_normalised(np.sqrt(mu + 1e-9)))
        server_s = round_.server_s / alpha if round_.parallel_server else round_.server_s
        step = 1.0 / (1 + 0.05 * update)
        mu = _shifted(mu, round_.fixed_s + transfers.all_s + server_s, step)
        nu = _shifted(nu, power * transfers.up_s, step)
        if update >= UPDATES // 2:
            sums = [sums[0] + mu, sums[1] + nu]
    later = UPDATES - UPDATES // 2
    return sums[0] / later, sums[1] / later, beta


def _shifted(weights: Array, values: Array, step: float) -> Array:
    """Weights [N, K] with the same sum, moved towards large values."""
    grown = weights * np.exp(step * (values - values.max(axis=1, keepdims=True)))
    return np.asarray(weights.sum(axis=1, keepdims=True) * _normalised(grown))


def _link_terms(round_: _Relaxed, mu: Array, nu: Array, beta: Array) -> Array:
    """The bound's terms without the server's, shape [N]: minimal over β at a near-optimal price."""
    power = round_.radio.uplink_power_w
    for _ in range(20):
        transfers = round_.transfer_times(beta)
        beta = round_.towards_minimum(mu, nu, beta, transfers)
    price = round_.pull(mu, nu, transfers).sum(axis=1, keepdims=True)
    high, transfers = _cheapest(round_, mu, nu, price)
    time, energy = round_.fixed_s + transfers.all_s, round_.compute_j + power * transfers.up_s
    bound = (mu * time + nu * energy + price * high).sum(axis=1)
    return np.asarray(bound - price[:, 0])


def _cheapest(round_: _Relaxed, mu: Array, nu: Array, price: Array) -> tuple[Array, _TransferTimes]:
    """Shares β that minimise each client's weighted terms plus the price of bandwidth."""
    low, high = np.full_like(mu, least_share(mu.shape[1])), np.ones_like(mu)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        falling = round_.pull(mu, nu, round_.transfer_times(middle)) > price * middle
        low, high = np.where(falling, middle, low), np.where(falling, high, middle)
    return high, round_.transfer_times(high)


def _server_price(server_s: Array, mu: Array) -> Array:
    """The optimal price of the server, shape [N, 1], for work [K]."""
    largest_s = max(server_s.max(), 1e-300)
    roots = np.sqrt(mu * (server_s / largest_s))
    return np.asarray(largest_s * roots.sum(axis=1, keepdims=True) ** 2)


def _cheapest_alpha(server_s: Array, mu: Array, price: Array) -> Array:
    """Shares α that minimise the server's terms, in closed form."""
    best = np.sqrt(mu * server_s / np.maximum(price, 1e-12))
    return np.clip(best, least_share(mu.shape[1]), 1.0)


def _server_terms(round_: _Relaxed, mu: Array) -> Array:
    """The server's terms, shape [N]: minimal over α in closed form at the optimal price."""
    server_s = round_.server_s
    price = _server_price(server_s, mu)
    alpha = _cheapest_alpha(server_s, mu, price)
    return np.asarray((mu * server_s / alpha + price * alpha).sum(axis=1) - price[:, 0])


def _rate(
    bandwidth_hz: Array | float, power_w: Array | float, radio: ShannonFdma, gain: Array
) -> Array:
    """Shannon's, in bit/s."""
    return shannon_bps(bandwidth_hz, power_w * gain / (bandwidth_hz * radio.noise_w_per_hz))


def _transfer(
    bits: Array, bandwidth_hz: Array, power_w: Array | float, radio: ShannonFdma, gain: Array
) -> tuple[Array, Array]:
    """Duration of a transfer, and minus its derivative by the bandwidth's logarithm, s."""
    snr = power_w * gain / (bandwidth_hz * radio.noise_w_per_hz)
    seconds = bits / shannon_bps(bandwidth_hz, snr)
    return seconds, seconds * _bandwidth_elasticity(snr)


def _bandwidth_elasticity(snr: Array) -> Array:
    """The elasticity d ln(rate) / d ln(bandwidth) of Shannon's rate."""
    return np.asarray(1 - snr / ((1 + snr) * np.log1p(snr)))


def _normalised(weights: Array) -> Array:
    return np.asarray(weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300))
