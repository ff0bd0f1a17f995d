# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The planner: a policy that searches an allocation on a forecast of the channel before each round.

It needs no training. The forecast extrapolates the UAVs' current flight. The batched engine
evaluates generations of candidates on it; the best ones are the parents of the next generation. A
child is its *balanced* parent plus noise. Balancing uses a property of the optimum: the clients
that determine the round's end all end together, those that determine the largest energy all consume
the same energy, and the others have just enough bandwidth for these two bounds. The engine gives
each candidate's waiting and transfer times, so the balanced shares follow in closed form except for
one root search.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ns3_scenarios.trace import SlotTrace, SlotValues, TraceExhausted, TwoWay, both_ways, each_way
from orchestrator.engine.engine import BatchTimes, SplitCosts, simulate_batch, split_costs
from orchestrator.engine.fdma import ShannonFdma, shannon_bps
from orchestrator.engine.plan import Allocation, Array, split_of
from orchestrator.engine.rounds import Decide, Situation
from orchestrator.policies.shares import least_share, lifted
from orchestrator.scenario.channel import mean_loss
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from testbed.core.paradigm import Paradigm

FORECAST_SLOT_S = 1.0
"""Forecasts have no finer detail, and coarse slots make the engine three times faster."""
FORECAST_SLOTS = 128
VELOCITY_S = 3.0
"""Time over which velocities are averaged, s: gusts of a Gauss–Markov flight partly cancel."""
LONGEST_FORECAST_SLOTS = 1 << 17

CHILDREN = 32
PARENTS = 3
GENERATIONS = 20
BALANCING_STEPS = 6
"""Number of balancing steps, from equal shares, before the search."""
AIMS = (0.92, 1.0, 1.08)
"""Targets of the largest energy in each of these steps, relative to the current one."""
NEWTON_STEPS = 5
WORTH_A_LOOK = 1.05
"""Splits are searched if their balanced objective is within this factor of the best one."""
NOISE = (5e-4, 0.02)
"""Range of the standard deviation of shares' logarithms, drawn log-uniformly."""
MOVES = 48
"""With a split point per client: most changes of a single split point per generation."""
MOVE_BALANCING_STEPS = 2
AIM_NOISE = 0.02
"""Standard deviation of the logarithm of the largest energy that balancing aims at."""


# --- the forecast --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outlook:
    """The predicted conditions of the next round, which starts at t = 0."""

    costs: SplitCosts
    radio: ShannonFdma
    gain: SlotValues
    """Shape [K, S], or for each direction."""
    slot_s: float

    def of(self, clients: Collection[int] | None) -> "Outlook":
        """The conditions for a round of some of the clients, numbered from 1."""
        if clients is None or len(clients) == len(self.radio.uplink_power_w):
            return self
        at, costs = np.array(sorted(clients)) - 1, self.costs
        own = replace(
            costs,
            cf_s=np.ascontiguousarray(costs.cf_s[:, at]),
            cb_s=np.ascontiguousarray(costs.cb_s[:, at]),
            compute_power_w=costs.compute_power_w[at],
        )
        radio = self.radio.of_clients(at)
        return Outlook(own, radio, _rows(self.gain, at), self.slot_s)

    def play(self, tried: "Candidates") -> BatchTimes:
        """Simulate the round with each candidate.

        Raises:
            TraceExhausted: One of the rounds takes longer than the forecast.
        """
        return simulate_batch(
            self.costs,
            self.radio,
            self.gain,
            self.slot_s,
            0.0,
            tried.split,
            tried.alpha,
            tried.beta,
            tried.rho,
        )


def forecast(scenario: Scenario, known: SlotTrace, start_s: float, slots: int) -> SlotValues:
    """Gains of the coming slots of `FORECAST_SLOT_S`, at their middles, shape [K, slots].

    UAVs keep their mean velocity over the last `VELOCITY_S` and turn back at the edges of their
    ring. The last gain changes with distance according to the channel's LOS path loss; its other
    components (shadow fading, no line of sight) remain. Without positions or path loss the gain
    remains. Outages are assumed to end.
    """
    return each_way(lambda way: _forecast(scenario, known, way, start_s, slots), known.values)


def _forecast(
    scenario: Scenario, known: SlotTrace, gain: Array, start_s: float, slots: int
) -> Array:
    """The forecast for one direction."""
    last = _last_nonzero(gain)
    path_loss_db = mean_loss(scenario)
    if known.position_m is None or path_loss_db is None:
        return np.repeat(last[:, None], slots, axis=1)
    position = known.position_m[:, -1]
    back = min(known.slots - 1, max(1, round(VELOCITY_S / known.slot_s)))
    flown = position - known.position_m[:, -1 - back]
    velocity = flown / max(back * known.slot_s, known.slot_s)
    ahead_s = start_s - (known.slots - 1) * known.slot_s
    times_s = ahead_s + FORECAST_SLOT_S * (np.arange(slots) + 0.5)
    offset = position - np.array(scenario.base_station.position_m)
    path = offset[:, None] + velocity[:, None] * times_s[:, None]
    inner, outer = np.array(scenario.uavs.ring_m).T[:, :, None]
    # Radii are reflected at the edges of the ring.
    beyond = (np.hypot(path[..., 0], path[..., 1]) - inner) % (2 * (outer - inner))
    radius = inner + np.minimum(beyond, 2 * (outer - inner) - beyond)

    def loss_db(distance_m: Array) -> Array:
        return path_loss_db(height_m, distance_m)

    height_m = scenario.fleet.height_m[:, None]
    now_db = loss_db(np.linalg.norm(offset, axis=1)[:, None])
    return last[:, None] * 10 ** ((now_db - loss_db(np.hypot(radius, path[..., 2]))) / 10)


def _last_nonzero(gain: Array) -> Array:
    """Each UAV's last gain above 0; if it has none, the smallest one of the others."""
    last = gain[:, -1].copy()
    for k in np.flatnonzero(last == 0):
        nonzero = gain[k][gain[k] > 0]
        last[k] = nonzero[-1] if nonzero.size else 0.0
    worst = last[last > 0].min(initial=1.0)
    return np.where(last > 0, last, worst)


def _rows(gain: SlotValues, at: npt.NDArray[np.int64]) -> SlotValues:
    """The gains of some clients."""
    if isinstance(gain, TwoWay):
        return replace(gain, values=gain.values[:, at])
    return np.ascontiguousarray(gain[at])


def _among(allocation: Allocation, clients: Collection[int] | None) -> Allocation:
    """The part of an allocation for some clients, as an allocation of these only."""
    if clients is None or len(clients) == len(allocation.beta):
        return allocation
    at, kept = np.array(sorted(clients)) - 1, allocation.among(clients)
    shares = (share[at] for share in (kept.alpha, kept.beta, kept.rho))
    return Allocation(tuple(kept.splits[at].tolist()), *shares)


def _for_all(found: Allocation, clients: Collection[int] | None, count: int) -> Allocation:
    """Extend an allocation of some clients to all; the others' shares are not used."""
    if clients is None or len(clients) == count:
        return found
    at, split = np.array(sorted(clients)) - 1, np.full(count, found.splits[0])
    split[at] = found.splits
    every = np.full((3, count), 1 / count)
    every[:, at] = found.alpha, found.beta, found.rho
    return Allocation(tuple(split.tolist()), *every)


# --- candidates ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidates:
    """N candidate allocations; shares have shape [N, K]."""

    split: npt.NDArray[np.int64]
    """Split points u_k, shape [N, K]."""
    alpha: Array
    beta: Array
    rho: Array

    def take(self, index: npt.NDArray[np.int64]) -> "Candidates":
        """The candidates with these indices."""
        return Candidates(self.split[index], self.alpha[index], self.beta[index], self.rho[index])

    def allocation(self, at: int, paradigm: Paradigm) -> Allocation:
        """One candidate as an allocation; shares that the paradigm fixes are equal."""
        equal = np.full_like(self.beta[at], 1 / self.beta.shape[1])
        return Allocation(
            tuple(self.split[at].tolist()),
            self.alpha[at] if paradigm.server_compute == "parallel" else equal,
            self.beta[at],
            self.rho[at] if paradigm.gradient_transmission == "parallel" else equal,
        )


def joined(parts: Sequence[Candidates]) -> Candidates:
    """Concatenate candidates."""
    return Candidates(*(np.concatenate([getattr(p, name) for p in parts]) for name in _FIELDS))


_FIELDS = ("split", "alpha", "beta", "rho")


def candidates(allocations: Sequence[Allocation]) -> Candidates:
    """Make candidates from allocations."""
    split = np.array([a.splits for a in allocations])
    return Candidates(
        split, *(np.array([getattr(a, name) for a in allocations]) for name in _FIELDS[1:])
    )


def joined_times(parts: Sequence[BatchTimes]) -> BatchTimes:
    """Concatenate the results of simulations."""
    return BatchTimes(
        *(np.concatenate([getattr(p, n) for p in parts]) for n in BatchTimes.__annotations__)
    )


def taken(times: BatchTimes, index: npt.NDArray[np.int64]) -> BatchTimes:
    """The results with these indices."""
    return BatchTimes(*(getattr(times, n)[index] for n in BatchTimes.__annotations__))


# --- balancing -----------------------------------------------------------------------------------


def balanced(
    outlook: Outlook, tried: Candidates, times: BatchTimes, largest_energy_j: Array
) -> Candidates:
    """Shares with which clients would end together if all waiting times remained the same.

    Transfer times near the candidate are approximated as proportional to β^-γ with the elasticity γ
    of Shannon's rate, which is below 1 because less bandwidth has less noise.

    Args:
        outlook: Conditions of the round.
        tried: N candidates.
        times: Results of the candidates' simulation.
        largest_energy_j: Limit of each client's energy, shape [N], J.
    """
    costs, radio, u = outlook.costs, outlook.radio, tried.split - 1
    iterations, clients = costs.iterations, tried.beta.shape[1]
    parallel_down = costs.paradigm.gradient_transmission == "parallel"
    parallel_server = costs.paradigm.server_compute == "parallel"
    reached = outlook.gain[:, : max(1, int(times.latency_s.max() / outlook.slot_s))]
    gain, gain_down = (way.mean(axis=1) for way in both_ways(reached))

    step_s = (costs.cf_s + costs.cb_s)[u, np.arange(clients)]
    compute_j = costs.compute_power_w * iterations * step_s
    uplink_s = (times.energy_j - compute_j) / radio.uplink_power_w
    snr = radio.uplink_power_w * gain / (tried.beta * radio.uplink_hz * radio.noise_w_per_hz)
    elasticity = 1 - _power_elasticity(snr)
    downlink_s: Array = np.zeros_like(uplink_s)
    if parallel_down:
        hz = tried.beta * radio.downlink_hz
        down_snr = tried.rho * radio.downlink_power_w * gain_down / (hz * radio.noise_w_per_hz)
        downlink_s = 8 * iterations * costs.gradient_bytes[u] / shannon_bps(hz, down_snr)
    air_s = uplink_s + downlink_s
    work_s = iterations * costs.server_s[u]
    server_s = work_s / tried.alpha if parallel_server else np.zeros_like(air_s)
    rest_s = times.finish_s - air_s - server_s

    least, alpha, rho = least_share(clients), tried.alpha, tried.rho
    limit_s = np.maximum((largest_energy_j[:, None] - compute_j) / radio.uplink_power_w, 1e-9)
    for_energy = np.maximum(least, tried.beta * (uplink_s / limit_s) ** (1 / elasticity))

    def by(end_s: Array, server_s: Array) -> tuple[Array, Array]:
        """Bandwidth needed to end at a time, and the transfer time left until then."""
        left_s = np.maximum(end_s[:, None] - rest_s - server_s, 1e-3)
        return tried.beta * (air_s / left_s) ** (1 / elasticity), left_s

    def earliest(end_s: Array, server_s: Array) -> Array:
        """Earliest common end, by Newton's method on a convex decreasing function."""
        for _ in range(NEWTON_STEPS):
            for_time, left_s = by(end_s, server_s)
            slope = ((for_time > for_energy) * for_time / (elasticity * left_s)).sum(axis=1)
            excess = np.maximum(for_energy, for_time).sum(axis=1) - 1
            end_s = np.clip(
                end_s + excess / np.maximum(slope, 1e-9), 0.5 * times.latency_s, 2 * times.latency_s
            )
        return end_s

    end_s = earliest(times.latency_s, server_s)
    for_time, _ = by(end_s, server_s)
    urgent = for_time > for_energy
    # Gain in bandwidth per second saved, for the clients that determine the end; else 0.
    worth = urgent * np.minimum(for_time, 1.0) / (elasticity * air_s)
    if parallel_server:
        spare_s = end_s[:, None] - rest_s - air_s
        enough = np.where(urgent, 0.0, work_s / np.maximum(spare_s, 1e-9))
        alpha = _divided(np.maximum(enough, least), np.sqrt(worth * work_s))
    if parallel_down:
        rho = _divided(np.full_like(rho, least), worth * downlink_s * _power_elasticity(down_snr))
    if parallel_server:
        server_s = work_s / alpha
        end_s = earliest(end_s, server_s)
    beta = lifted(np.maximum(for_energy, by(end_s, server_s)[0]))
    return Candidates(tried.split, alpha, beta, rho)


def _power_elasticity(snr: Array) -> Array:
    """The elasticity d ln(rate) / d ln(power) of Shannon's rate."""
    return np.asarray(snr / ((1 + snr) * np.log1p(snr)))


def _divided(floor: Array, weight: Array) -> Array:
    """Shares proportional to weights, but not below the floor; rows sum to 1."""
    level = 1 / np.maximum(weight.sum(axis=1, keepdims=True), 1e-12)
    for _ in range(NEWTON_STEPS):
        above = level * weight >= floor
        left = 1 - np.where(above, 0.0, floor).sum(axis=1, keepdims=True)
        level = left / np.maximum(np.where(above, weight, 0.0).sum(axis=1, keepdims=True), 1e-12)
    return lifted(np.maximum(floor, level * weight))


# --- the search ----------------------------------------------------------------------------------


def search(
    outlook: Outlook,
    warm: Sequence[Allocation],
    rng: np.random.Generator,
    *,
    splits: Sequence[int] | None = None,
    generations: int = GENERATIONS,
    per_client: bool = False,
) -> tuple[Allocation, float]:
    """The best allocation found for the round, and its objective.

    Args:
        outlook: Conditions of the round.
        warm: Initial allocations, in addition to balanced ones for each split.
        rng: Generator of the noise.
        splits: Allowed split points (default: all).
        generations: Number of generations.
        per_client: Whether each client may have its own split point.

    Raises:
        TraceExhausted: The forecast is too short.
    """
    clients = outlook.gain.shape[0]
    splits = range(1, outlook.costs.splits + 1) if splits is None else splits
    equal = np.full(clients, 1 / clients)
    every = candidates([Allocation(u, equal, equal, equal) for u in splits])
    pool, times = [every], [outlook.play(every)]
    for _ in range(BALANCING_STEPS):
        energy_j = times[-1].energy_j.max(axis=1)
        aims = [balanced(outlook, pool[-1], times[-1], f * energy_j) for f in AIMS]
        made = joined(aims)
        outcome = outlook.play(made)
        better = np.argmin(outcome.objective.reshape(len(AIMS), -1), axis=0) * len(every.split)
        index = better + np.arange(len(every.split))
        pool.append(made.take(index))
        times.append(taken(outcome, index))
    if warm:
        pool.append(candidates(warm))
        times.append(outlook.play(pool[-1]))
    tried, done = joined(pool), joined_times(times)
    promising = [
        u
        for u in splits
        if done.objective[tried.split[:, 0] == u].min(initial=np.inf)
        <= WORTH_A_LOOK * done.objective.min()
    ]
    keep = np.flatnonzero(per_client | np.isin(tried.split[:, 0], promising))
    for generation in range(2 * generations if per_client else generations):
        keep = keep[np.argsort(done.objective[keep], kind="stable")[:PARENTS]]
        tried, done = tried.take(keep), taken(done, keep)
        parent = rng.integers(len(keep), size=CHILDREN)
        children = _children(outlook, tried.take(parent), taken(done, parent), rng)
        tried = joined([tried, children])
        done = joined_times([done, outlook.play(children)])
        if generation >= generations:
            moved = _moved(outlook, tried, done, splits, rng)
            tried, done = joined([tried, moved[0]]), joined_times([done, moved[1]])
        keep = np.arange(len(tried.split))
    best = int(np.argmin(done.objective))
    return tried.allocation(best, outlook.costs.paradigm), float(done.objective[best])


def _moved(
    outlook: Outlook,
    tried: Candidates,
    times: BatchTimes,
    splits: Sequence[int],
    rng: np.random.Generator,
) -> tuple[Candidates, BatchTimes]:
    """Variants of the best candidate with one client's split point changed, balanced."""
    at = int(np.argmin(times.objective))
    start, clients = tried.split[at], tried.split.shape[1]
    moves = [(k, u) for k in range(clients) for u in splits if u != start[k]]
    chosen = rng.permutation(len(moves))[:MOVES]
    made = tried.take(np.full(len(chosen), at))
    split = made.split.copy()
    for row, move in enumerate(chosen):
        split[row, moves[move][0]] = moves[move][1]
    made = replace(made, split=split)
    outcome = outlook.play(made)
    for _ in range(MOVE_BALANCING_STEPS):
        better = balanced(outlook, made, outcome, outcome.energy_j.max(axis=1))
        after = outlook.play(better)
        index = np.arange(len(chosen)) + len(chosen) * (after.objective < outcome.objective)
        made = joined([made, better]).take(index)
        outcome = taken(joined_times([outcome, after]), index)
    return made, outcome


def _children(
    outlook: Outlook, parents: Candidates, times: BatchTimes, rng: np.random.Generator
) -> Candidates:
    count = len(parents.split)
    energy_j = times.energy_j.max(axis=1) * np.exp(rng.normal(0, AIM_NOISE, count))
    aims = balanced(outlook, parents, times, energy_j)
    way = rng.choice([0.0, 0.5, 1.0], (count, 1))
    between = Candidates(
        parents.split,
        *(getattr(parents, n) ** (1 - way) * getattr(aims, n) ** way for n in _FIELDS[1:]),
    )
    return varied_shares(between, rng)


def varied_shares(tried: Candidates, rng: np.random.Generator) -> Candidates:
    """Add noise to the logarithms of the candidates' shares."""
    low, high = np.log(NOISE)
    size = np.exp(rng.uniform(low, high, (len(tried.split), 1)))

    def noisy(shares: Array, scale: float) -> Array:
        return lifted(shares * np.exp(scale * size * rng.normal(size=shares.shape)))

    # Shares of computing and power have less effect than bandwidth and need larger changes.
    return Candidates(tried.split, noisy(tried.alpha, 3), noisy(tried.beta, 1), noisy(tried.rho, 3))


# --- the policy ----------------------------------------------------------------------------------


def planner(
    scenario: Scenario,
    *,
    splits: Sequence[int] | None = None,
    generations: int = GENERATIONS,
    per_client: bool = False,
) -> Decide:
    """A policy that makes a new plan for every round, starting from the previous plan.

    Its decisions depend only on the scenario, its seed and the past. With `per_client`, clients may
    have different split points.
    """
    costs, radio = split_costs(scenario, profile_of(scenario)), ShannonFdma.of(scenario)

    def decide(now: Situation) -> Allocation:
        rng = np.random.default_rng([scenario.seed, now.index])
        warm, slots = [_among(a, now.clients) for a in now.allocations[-1:]], FORECAST_SLOTS
        while True:
            gain = forecast(scenario, now.channel, now.start_s, slots)
            outlook = Outlook(costs, radio, gain, FORECAST_SLOT_S).of(now.clients)
            try:
                found, _ = search(
                    outlook,
                    warm,
                    rng,
                    splits=splits,
                    generations=generations,
                    per_client=per_client,
                )
            except TraceExhausted:
                slots *= 2
                if slots > LONGEST_FORECAST_SLOTS:
                    # With such a bad channel no plan ends within a day.
                    equal = np.full(scenario.uavs.count, 1 / scenario.uavs.count)
                    return Allocation(split_of(scenario), equal, equal, equal)
            else:
                return _for_all(found, now.clients, scenario.uavs.count)

    return decide
