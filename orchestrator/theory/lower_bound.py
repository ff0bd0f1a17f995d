"""A bound below which no allocation can bring a round's objective, by Lagrangian relaxation.

Relaxed away: all waiting (for the server, for the downlink, for other clients), and the channel's
changes: every transfer has the client's best gain of the time in which the round can lie. Under
parallel transmission every client also has all of the base station's power. Each of these can only
shorten steps. What is left of a round with split point u is

    minimise  T + λ E   subject to   c_k + X_k(β_k) + s / α_k <= T,   e + p_k x_k(β_k) <= E,
                                     Σ α_k = Σ β_k = 1,   α_k, β_k >= the least share,

with c_k the steps that no share changes, x_k the time of all uploads, X_k that of all transfers
that use β_k, s the server's work for one client in a round, and e the energy of computing. For any
weights μ_k, ν_k >= 0 with Σ μ_k = 1 and Σ ν_k = λ, and any prices π, σ >= 0,

    Σ μ_k c_k + λ e + Σ_k min_β [μ_k X_k(β) + ν_k p_k x_k(β) + π β] - π + Σ_k min_α [μ_k s / α
    + σ α] - σ

is no larger than the minimum (weak duality: the minimiser is one of the points over which each term
is minimised, and there the constraints' terms are at most 0). So weights and prices need no proof
of their own; a poor choice only makes the bound low. x and X are convex in β (Shannon's rate is
concave in the bandwidth, and its reciprocal convex), so the inner minima are found by bisection of
the derivative, to far below the digits shown.
"""

import numpy as np

from orchestrator.policies.shares import least_share, lifted
from orchestrator.prediction.engine import SplitCosts
from orchestrator.prediction.plan import Array, Radio
from orchestrator.prediction.rates import shannon_bps
from orchestrator.scenario.schema import STAGES

TURNS = 800
BISECTIONS = 40


def lower_bound(
    costs: SplitCosts, radio: Radio, gain: Array, slot_s: float, start_s: Array, reached: Array
) -> Array:
    """What no allocation can undercut in each of N rounds, shape [N].

    Args:
        costs: See `split_costs`.
        radio: What turns a gain into a rate.
        gain: Shape [K, S].
        slot_s: Length of a slot.
        start_s: When the rounds start, shape [N].
        reached: An objective that some allocation is known to reach in each round, shape [N]: it
            limits how long a round worth looking at can last.
    """
    longest_s = reached
    best = _best_gain(gain, slot_s, start_s, longest_s)
    energy_j = _over_splits(costs, radio, best, 0.0, 1.0)
    longest_s = reached - costs.energy_weight * energy_j
    best = _best_gain(gain, slot_s, start_s, longest_s)
    bound = _over_splits(costs, radio, best, 1.0, costs.energy_weight)
    return np.asarray(np.minimum(bound, reached))


def _best_gain(gain: Array, slot_s: float, start_s: Array, longest_s: Array) -> Array:
    """Each client's best gain while a round can last, shape [N, K]."""
    first = np.floor(start_s / slot_s + 1e-6).astype(int)
    last = np.minimum(np.ceil((start_s + longest_s) / slot_s).astype(int), gain.shape[1])
    return np.array([gain[:, a:b].max(axis=1) for a, b in zip(first, last, strict=True)])


def _over_splits(
    costs: SplitCosts, radio: Radio, gain: Array, time_weight: float, energy_weight: float
) -> Array:
    bounds = [_dual(costs, radio, gain, u, time_weight, energy_weight) for u in range(STAGES)]
    return np.asarray(np.min(bounds, axis=0))


def _dual(
    costs: SplitCosts,
    radio: Radio,
    gain: Array,
    u: int,
    time_weight: float,
    energy_weight: float,
) -> Array:
    """The bound of time_weight · T + energy_weight · E for split point u + 1, shape [N]."""
    clients, iterations = gain.shape[1], costs.iterations
    least = least_share(clients)
    parallel_down = costs.paradigm.gradient_transmission == "parallel"
    parallel_server = costs.paradigm.server_compute == "parallel"
    power = radio.uplink_power_w

    def rate(bandwidth_hz: Array | float, power_w: Array | float) -> Array:
        snr = power_w * gain / (bandwidth_hz * radio.noise_w_per_hz)
        return shannon_bps(bandwidth_hz, snr)

    up_bits = 8.0 * (iterations * costs.smashed_bytes[u] + costs.adapter_bytes[u])
    down_bits = 8.0 * iterations * costs.gradient_bytes[u]
    whole = rate(radio.downlink_hz, radio.downlink_power_w)
    fixed_s = iterations * (costs.cf_s[u] + costs.cb_s[u]) + np.zeros_like(gain)
    fixed_s += (8.0 * costs.adapter_bytes[u] / whole).max(axis=1, keepdims=True)
    fixed_s += 0.0 if parallel_down else down_bits / whole
    server_s = iterations * costs.server_s[u]
    compute_j = costs.compute_power_w * iterations * (costs.cf_s[u] + costs.cb_s[u])

    def times(beta: Array) -> tuple[Array, Array, Array, Array]:
        """x, X, and minus their derivatives by ln β."""
        up_hz = beta * radio.uplink_hz
        up_s = up_bits / rate(up_hz, power)
        up_slope = up_s * _bandwidth_elasticity(power * gain / (up_hz * radio.noise_w_per_hz))
        if not parallel_down:
            return up_s, up_s, up_slope, up_slope
        hz, full_w = beta * radio.downlink_hz, radio.downlink_power_w
        down_s = down_bits / rate(hz, full_w)
        slope = down_s * _bandwidth_elasticity(full_w * gain / (hz * radio.noise_w_per_hz))
        return up_s, up_s + down_s, up_slope, up_slope + slope

    mu = np.full_like(gain, time_weight / clients)
    nu = np.full_like(gain, energy_weight / clients)
    alpha = beta = np.full_like(gain, 1 / clients)
    sums: list[Array] = [np.zeros_like(mu), np.zeros_like(nu)]
    for turn in range(TURNS):
        # Whoever is over the others gains weight; shares follow weights (a fixed point of the
        # inner minimum); the mean of the later turns is free of most of the swinging.
        up_s, air_s, up_slope, air_slope = times(beta)
        beta = np.sqrt(beta * lifted(_normalised(mu * air_slope + nu * power * up_slope)))
        alpha = lifted(_normalised(np.sqrt(mu + 1e-9)))
        end_s = fixed_s + air_s + (server_s / alpha if parallel_server else server_s)
        energy_j = power * up_s
        step = 1.0 / (1 + 0.05 * turn)
        mu = mu.sum(axis=1, keepdims=True) * _normalised(
            mu * np.exp(step * (end_s - end_s.max(axis=1, keepdims=True)))
        )
        nu = nu.sum(axis=1, keepdims=True) * _normalised(
            nu * np.exp(step * (energy_j - energy_j.max(axis=1, keepdims=True)))
        )
        if turn >= TURNS // 2:
            sums = [sums[0] + mu, sums[1] + nu]
    mu = sums[0] / (TURNS - TURNS // 2)
    nu = sums[1] / (TURNS - TURNS // 2)

    # The bound of these weights: exact inner minima, at prices near the best ones.
    for _ in range(20):
        _, _, up_slope, air_slope = times(beta)
        beta = np.sqrt(beta * lifted(_normalised(mu * air_slope + nu * power * up_slope)))
    price = (mu * air_slope + nu * power * up_slope).sum(axis=1, keepdims=True)
    low, high = np.full_like(beta, least), np.ones_like(beta)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        _, _, up_slope, air_slope = times(middle)
        falling = mu * air_slope + nu * power * up_slope > price * middle
        low, high = np.where(falling, middle, low), np.where(falling, high, middle)
    up_s, air_s, _, _ = times(high)
    bound = (mu * (fixed_s + air_s) + nu * (compute_j + power * up_s) + price * high).sum(axis=1)
    bound -= price[:, 0]
    if not parallel_server:
        return np.asarray(bound + mu.sum(axis=1) * server_s)
    price = server_s * (np.sqrt(mu).sum(axis=1, keepdims=True)) ** 2
    alpha = np.clip(np.sqrt(mu * server_s / np.maximum(price, 1e-12)), least, 1.0)
    served = (mu * server_s / alpha + price * alpha).sum(axis=1) - price[:, 0]
    return np.asarray(bound + served)


def _bandwidth_elasticity(snr: Array) -> Array:
    """d ln(rate) / d ln(bandwidth) of Shannon's rate."""
    return np.asarray(1 - snr / ((1 + snr) * np.log1p(snr)))


def _normalised(weights: Array) -> Array:
    return np.asarray(weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300))
