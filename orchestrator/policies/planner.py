# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The planner: a policy that searches an allocation on a forecast of the channel before each round.

It needs no training. The forecast extrapolates the UAVs' current flight. The engine evaluates
generations of candidates on it; the best ones are the parents of the next generation. A child is
its *balanced* parent plus noise. Balancing uses a property of the optimum: the clients that
determine the round's end all end together, those that determine the largest energy all consume the
same energy, and the others have just enough bandwidth for these two bounds. The engine gives each
candidate's waiting and transfer times, so the balanced shares follow in closed form except for one
root search. The response of rates to shares is Shannon's formula, or is measured with the radio's
own rates. Where shares do not divide the uplinks, clients are only made to end together.

Only those shares are searched that affect a round with this radio and paradigm. The compiled engine
plays many candidates at a time; it knows the paper's protocol. Rounds of another protocol are
played one by one, which takes milliseconds each, so fewer are tried.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ns3_scenarios.trace import (
    RateTrace,
    SlotTrace,
    SlotValues,
    TraceExhausted,
    TwoWay,
    both_ways,
    each_way,
)
from orchestrator.engine.access import RadioAccess
from orchestrator.engine.arrays import Ints
from orchestrator.engine.fdma import ShannonFdma, shannon_bps
from orchestrator.engine.flight import flight_cost
from orchestrator.engine.plan import Allocation, Array, split_of
from orchestrator.engine.radio import radio_access
from orchestrator.policies.shares import decided_shares, least_share, lifted, whole_steps
from orchestrator.rounds.loop import Decide, Situation
from orchestrator.rounds.simulation import (
    BatchTimes,
    SplitCosts,
    simulate,
    simulate_batch,
    split_costs,
)
from orchestrator.scenario.channel import mean_loss
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from testbed.core.timeline import CM

FORECAST_SLOT_S = 1.0
"""Forecasts have no finer detail, and coarse slots make the engine three times faster."""
FORECAST_SLOTS = 128
VELOCITY_S = 3.0
"""Time over which velocities are averaged, s: gusts of a Gauss–Markov flight partly cancel."""
LONGEST_FORECAST_SLOTS = 1 << 17


class Effort(NamedTuple):
    """Numbers of candidates that a search tries."""

    balancing_steps: int
    """Number of balancing steps, from equal shares, before the search."""
    children: int
    """Candidates per generation."""
    moves: int
    """With a split point per client: most changes of a single split point per generation."""
    move_steps: int
    """Number of balancing steps after such a change."""


COMPILED = Effort(balancing_steps=6, children=32, moves=48, move_steps=2)
SIMULATED = Effort(balancing_steps=2, children=6, moves=5, move_steps=1)
"""Where candidates are played one by one: at most 150 for four split points in a decision, and 470
with a split point per client, for 0.6 s and 1.9 s at 4 ms each."""
PARENTS = 3
GENERATIONS = 20
AIMS = (0.92, 1.0, 1.08)
"""Targets of the largest energy in each of these steps, relative to the current one."""
NEWTON_STEPS = 5
WORTH_A_LOOK = 1.05
"""Splits are searched if their balanced objective is within this factor of the best one."""
NOISE = (5e-4, 0.02)
"""Range of the standard deviation of shares' logarithms, drawn log-uniformly."""
BLOCK_NOISE = 100.0
"""Where bandwidth comes in steps: factor of its noise if a step is as large as an equal share."""
RATE_STEP = 0.1
"""Least change of the logarithm of a share with which the response of a rate is measured."""
LEAST_ELASTICITY = 0.05
BISECTIONS = 40
AIM_NOISE = 0.02
"""Standard deviation of the logarithm of the largest energy that balancing aims at."""


# --- the forecast --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outlook:
    """The predicted conditions of the next round, which starts at t = 0."""

    costs: SplitCosts
    """Costs of the participating clients, like the radio and the gain."""
    radio: RadioAccess
    gain: SlotValues
    """Shape [K, S], or for each direction: gains, or rates if the radio is that of a rate trace."""
    slot_s: float
    flight_cost: float = 0.0
    """See `orchestrator.engine.flight.flight_cost`."""

    @cached_property
    def shares(self) -> tuple[str, ...]:
        """Names of the shares that affect the round."""
        return decided_shares(self.costs.paradigm, self.radio)

    @property
    def is_compiled(self) -> bool:
        """Whether compiled code plays many candidates at a time."""
        return self.costs.paradigm.is_plain

    @property
    def effort(self) -> Effort:
        """Numbers of candidates of a search."""
        effort = COMPILED if self.is_compiled else SIMULATED
        return effort if self.shares else Effort(0, 0, effort.moves, 0)

    @property
    def bounds_uplinks(self) -> bool:
        """Whether each uplink has a share of the bandwidth, which bounds its time and energy."""
        return "beta" in self.shares and self.costs.paradigm.uplink == "parallel"

    def possible(self, tried: "Candidates") -> "Candidates":
        """The candidates with bandwidth in steps in which the radio divides it, if there are."""
        if not self.radio.least_beta:
            return tried
        step = min(self.radio.least_beta, 1 / tried.beta.shape[1])
        return replace(tried, beta=whole_steps(lifted(tried.beta, step), step))

    def play(self, tried: "Candidates") -> BatchTimes:
        """Simulate the round with each candidate.

        Raises:
            TraceExhausted: One of the rounds takes longer than the forecast.
        """
        if self.is_compiled:
            played = simulate_batch(
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
        else:
            played = self._one_by_one(tried)
        if not self.flight_cost:
            return played
        return replace(played, objective=played.objective + self.flight_cost * played.latency_s)

    def _one_by_one(self, tried: "Candidates") -> BatchTimes:
        """See `play`."""
        latency_s, objective = np.empty((2, len(tried.split)))
        energy_j, finish_s = np.empty((2, *tried.split.shape))
        for n in range(len(tried.split)):
            plan = self.costs.plan(tried.allocation(n, self.shares))
            times = simulate(plan, self.radio, self.gain, self.slot_s)
            last = times.spans[times.spans["step"] == CM]
            finish_s[n, last["client"] - 1] = last["end_s"]
            latency_s[n], energy_j[n], objective[n] = (
                times.latency_s,
                times.energy_j,
                times.objective,
            )
        return BatchTimes(np.zeros_like(latency_s), latency_s, energy_j, objective, finish_s)


def forecast(scenario: Scenario, known: SlotTrace, start_s: float, slots: int) -> SlotValues:
    """Gains of the coming slots of `FORECAST_SLOT_S`, at their middles, shape [K, slots].

    UAVs keep their mean velocity over the last `VELOCITY_S` and turn back at the edges of their
    ring. The last gain changes with distance according to the channel's LOS path loss; its other
    components (shadow fading, no line of sight) remain. Without positions or path loss the gain
    remains, and so do the rates of a rate trace, and the cells of UAVs. Outages are assumed to end.
    """
    made = each_way(lambda way: _forecast(scenario, known, way, start_s, slots), known.values)
    return with_cells_of(made, known.values, np.full(slots, known.slots - 1))


def with_cells_of(made: SlotValues, values: SlotValues, slots: Ints) -> SlotValues:
    """Values with the cells that other values have in the given slots, if these have cells."""
    if not isinstance(made, TwoWay) or not isinstance(values, TwoWay) or values.cells is None:
        return made
    sites = values.sites and values.sites.of_slots(slots)
    return replace(made, cells=values.cells[:, slots], sites=sites)


def _forecast(
    scenario: Scenario, known: SlotTrace, gain: Array, start_s: float, slots: int
) -> Array:
    """The forecast for one direction."""
    last = _last_nonzero(gain)
    path_loss_db = mean_loss(scenario)
    if known.position_m is None or path_loss_db is None or isinstance(known, RateTrace):
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


def _among(allocation: Allocation, clients: Collection[int] | None) -> Allocation:
    """The part of an allocation for some clients, as an allocation of these only."""
    if clients is None or len(clients) == len(allocation.beta):
        return allocation
    at, kept = np.array(sorted(clients)) - 1, allocation.among(clients)
    shares = (share[at] for share in (kept.alpha, kept.beta, kept.rho))
    return Allocation(tuple(kept.splits[at].tolist()), *shares)


def for_all(
    found: Allocation, radio: RadioAccess, clients: Collection[int] | None, count: int
) -> Allocation:
    """Extend an allocation of some clients to all; the others' shares are not used, but must be
    equal where shares have no effect with the radio."""
    if clients is None or len(clients) == count:
        return found
    at, split = np.array(sorted(clients)) - 1, np.full(count, found.splits[0])
    split[at] = found.splits
    every = np.full((3, count), 1 / count)
    for n, name in enumerate(_FIELDS[1:]):
        if name == "alpha" or name in radio.decides:
            every[n, at] = getattr(found, name)
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

    def allocation(self, at: int, shares: Collection[str]) -> Allocation:
        """One candidate as an allocation; only the shares with these names may be unequal."""
        equal = np.full_like(self.beta[at], 1 / self.beta.shape[1])
        chosen = (getattr(self, n)[at] if n in shares else equal for n in _FIELDS[1:])
        return Allocation(tuple(self.split[at].tolist()), *chosen)


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


class _Response(NamedTuple):
    """Rates of links and their response to shares, each [N, K]."""

    of_beta: Array
    """Elasticity of the uplink's rate in the share of the bandwidth."""
    gradient_bps: Array
    of_rho: Array
    """Elasticity of the downlink's rate in the share of the power."""


def _response(outlook: Outlook, tried: Candidates, times: BatchTimes) -> _Response:
    """The response of links at the mean of the channel during the rounds."""
    reached = outlook.gain[:, : max(1, int(times.latency_s.max() / outlook.slot_s))]
    gain, gain_down = (way.mean(axis=1) for way in both_ways(reached))
    radio = outlook.radio
    if isinstance(radio, ShannonFdma):
        snr = radio.uplink_power_w * gain / (tried.beta * radio.uplink_hz * radio.noise_w_per_hz)
        hz = tried.beta * radio.downlink_hz
        down_snr = tried.rho * radio.downlink_power_w * gain_down / (hz * radio.noise_w_per_hz)
        of_beta, of_rho = 1 - _power_elasticity(snr), _power_elasticity(down_snr)
        return _Response(of_beta, shannon_bps(hz, down_snr), of_rho)
    count, clients = tried.beta.shape
    # All candidates at once: a link's rate depends on no other link's share.
    every = np.tile(np.arange(clients), count)
    links, values = radio.of_clients(every), TwoWay(np.stack([gain, gain_down])[:, every, None])

    def log_rates(beta: Array, rho: Array) -> tuple[Array, Array]:
        shares = Allocation(1, beta.ravel(), beta.ravel(), rho.ravel())
        rates = links.link_rates(shares, values, in_turns=False)
        up, down = (way.reshape(count, clients) for way in (rates.uplink, rates.gradient))
        return np.log(np.maximum(up, 1e-3)), np.log(np.maximum(down, 1e-3))

    step = np.exp(np.maximum(RATE_STEP, 1.5 * radio.least_beta / tried.beta))
    low = np.maximum(tried.beta / step, radio.least_beta)
    high = np.minimum(tried.beta * step, 1.0)
    of_beta = log_rates(high, tried.rho)[0] - log_rates(low, tried.rho)[0]
    of_rho = log_rates(tried.beta, tried.rho * step)[1] - log_rates(tried.beta, tried.rho / step)[1]
    return _Response(
        np.clip(of_beta / np.log(high / low), LEAST_ELASTICITY, 1.0),
        np.exp(log_rates(tried.beta, tried.rho)[1]),
        np.clip(of_rho / (2 * np.log(step)), 0.0, 1.0),
    )


def balanced(
    outlook: Outlook, tried: Candidates, times: BatchTimes, largest_energy_j: Array
) -> Candidates:
    """Shares with which clients would end together if all waiting times remained the same.

    Args:
        outlook: Conditions of the round.
        tried: N candidates.
        times: Results of the candidates' simulation.
        largest_energy_j: Limit of each client's energy, shape [N], J, where shares of the bandwidth
            affect it.
    """
    if not outlook.bounds_uplinks:
        return _levelled(outlook, tried, times)
    return outlook.possible(_within_bounds(outlook, tried, times, largest_energy_j))


def _levelled(outlook: Outlook, tried: Candidates, times: BatchTimes) -> Candidates:
    """Shares of computing and power with which clients would end together; see `balanced`."""
    costs, u, clients = outlook.costs, tried.split - 1, np.arange(tried.split.shape[1])
    made = tried
    if "alpha" in outlook.shares:
        work_s = costs.iterations_of * costs.server_s[u, clients]
        made = replace(made, alpha=_ending_together(work_s, times.finish_s - work_s / tried.alpha))
    if "rho" in outlook.shares:
        bits = 8 * costs.iterations_of * costs.gradient_bytes[u, clients]
        downlink_s = bits / _response(outlook, tried, times).gradient_bps
        rest_s = times.finish_s - downlink_s
        made = replace(made, rho=_ending_together(downlink_s * tried.rho, rest_s))
    return made


def _ending_together(work_s: Array, rest_s: Array) -> Array:
    """Shares with which all rest_s + work_s / share are equal, [N, K], unless they are too small.

    Args:
        work_s: Seconds of the work with the whole resource, [N, K].
        rest_s: The other seconds of a client, [N, K].
    """
    work_s = np.maximum(work_s, 1e-12)
    low = (rest_s + work_s).max(axis=1, keepdims=True)
    high = rest_s.max(axis=1, keepdims=True) + work_s.sum(axis=1, keepdims=True)
    for _ in range(BISECTIONS):
        end_s = (low + high) / 2
        is_late = (work_s / (end_s - rest_s)).sum(axis=1, keepdims=True) < 1
        low, high = np.where(is_late, low, end_s), np.where(is_late, end_s, high)
    return lifted(work_s / (high - rest_s))


def _within_bounds(
    outlook: Outlook, tried: Candidates, times: BatchTimes, largest_energy_j: Array
) -> Candidates:
    """Shares with which clients end together, or consume the largest energy; see `balanced`.

    Transfer times near the candidate are approximated as proportional to β^-γ with the elasticity γ
    of the uplink's rate, which is below 1 because less bandwidth has less noise.
    """
    costs, radio, u = outlook.costs, outlook.radio, tried.split - 1
    iterations, clients = costs.iterations_of, tried.beta.shape[1]
    everyone = np.arange(clients)
    parallel_down = costs.paradigm.gradient_transmission == "parallel"
    parallel_server = costs.paradigm.server_compute == "parallel"
    response = _response(outlook, tried, times)
    elasticity = response.of_beta

    step_s = (costs.cf_s + costs.cb_s)[u, everyone]
    compute_j = costs.compute_power_w * iterations * step_s
    uplink_s = (times.energy_j - compute_j) / radio.uplink_power_w
    downlink_s: Array = np.zeros_like(uplink_s)
    if parallel_down:
        gradient_bytes = costs.gradient_bytes[u, everyone]
        downlink_s = 8 * iterations * gradient_bytes / response.gradient_bps
    air_s = uplink_s + downlink_s
    work_s = iterations * costs.server_s[u, everyone]
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
    if "rho" in outlook.shares:
        rho = _divided(np.full_like(rho, least), worth * downlink_s * response.of_rho)
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
    clients, effort = outlook.gain.shape[0], outlook.effort
    splits = range(1, outlook.costs.splits + 1) if splits is None else splits
    equal = np.full(clients, 1 / clients)
    every = candidates([Allocation(u, equal, equal, equal) for u in splits])
    pool, times = [every], [outlook.play(every)]
    factors = AIMS if outlook.bounds_uplinks else (1.0,)
    for _ in range(effort.balancing_steps):
        energy_j = times[-1].energy_j.max(axis=1)
        aims = [balanced(outlook, pool[-1], times[-1], f * energy_j) for f in factors]
        made = joined(aims)
        outcome = outlook.play(made)
        better = np.argmin(outcome.objective.reshape(len(aims), -1), axis=0) * len(every.split)
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
        if effort.children:
            parent = rng.integers(len(keep), size=effort.children)
            children = _children(outlook, tried.take(parent), taken(done, parent), rng)
            tried = joined([tried, children])
            done = joined_times([done, outlook.play(children)])
        if generation >= generations:
            moved = _moved(outlook, tried, done, splits, rng)
            tried, done = joined([tried, moved[0]]), joined_times([done, moved[1]])
        keep = np.arange(len(tried.split))
    best = int(np.argmin(done.objective))
    return tried.allocation(best, outlook.shares), float(done.objective[best])


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
    chosen = rng.permutation(len(moves))[: outlook.effort.moves]
    made = tried.take(np.full(len(chosen), at))
    split = made.split.copy()
    for row, move in enumerate(chosen):
        split[row, moves[move][0]] = moves[move][1]
    made = replace(made, split=split)
    outcome = outlook.play(made)
    for _ in range(outlook.effort.move_steps):
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
    return varied_shares(outlook, between, rng)


def varied_shares(outlook: Outlook, tried: Candidates, rng: np.random.Generator) -> Candidates:
    """Add noise to the logarithms of the candidates' shares."""
    low, high = np.log(NOISE)
    size = np.exp(rng.uniform(low, high, (len(tried.split), 1)))

    def noisy(shares: Array, scale: float) -> Array:
        return lifted(shares * np.exp(scale * size * rng.normal(size=shares.shape)))

    # Shares of computing and power have less effect than bandwidth and need larger changes.
    by_step = max(1.0, BLOCK_NOISE * outlook.radio.least_beta * tried.beta.shape[1])
    shares = noisy(tried.alpha, 3), noisy(tried.beta, by_step), noisy(tried.rho, 3)
    return outlook.possible(Candidates(tried.split, *shares))


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
    profile = profile_of(scenario)
    costs_of_all = split_costs(scenario, profile)

    def decide(now: Situation) -> Allocation:
        costs, radio = costs_of_all, radio_access(scenario, now.channel)
        at = np.arange(scenario.uavs.count)
        if now.clients is not None:
            costs = split_costs(scenario, profile, clients=now.clients)
            at = np.array(sorted(now.clients)) - 1
            radio = radio.of_clients(at)
        rng = np.random.default_rng([scenario.seed, now.index])
        warm, slots = [_among(a, now.clients) for a in now.allocations[-1:]], FORECAST_SLOTS
        while True:
            gain = forecast(scenario, now.channel, now.start_s, slots)[at]
            cost = flight_cost(scenario, now.channel, now.start_s - VELOCITY_S)
            outlook = Outlook(costs, radio, gain, FORECAST_SLOT_S, cost)
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
                return for_all(found, radio, now.clients, scenario.uavs.count)

    return decide
