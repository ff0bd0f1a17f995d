# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A Gymnasium environment in which each step is a round and each action its allocation.

Usage::

    import gymnasium, orchestrator.policies.environment
    environment = gymnasium.make("UavSfl-v0", scenario="paper")

The observation is the paper's, eq. (State_Space_server): the allocation and the costs of the last
round, and the UAVs' positions in each of its slots. Rounds differ in length, so the trajectory is a
`Sequence` of slots; `trajectories=False` gives the distances in the last slot instead, in a space
of fixed size. There is no terminal state: an episode is only truncated, after a given number of
rounds or at the end of a replayed trace.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from ns3_scenarios import child
from ns3_scenarios.trace import ChannelSource, SlotTrace, TraceExhausted
from orchestrator.engine.access import RadioAccess
from orchestrator.engine.plan import LOADED, Allocation, Array, split_of
from orchestrator.engine.radio import check_shares, of_gains, radio_access
from orchestrator.policies.decisions import DecisionCheck, ranges
from orchestrator.policies.shares import decided_shares, scaled
from orchestrator.rounds.loop import Backend, Decision, EngineBackend
from orchestrator.scenario.channel import Channel, ns3_source, observed
from orchestrator.scenario.combinations import check
from orchestrator.scenario.loading import PAPER, load
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import GUIDED, Scenario
from testbed.core.errors import InputError, RunEnds
from testbed.core.timeline import Round

Observation = dict[str, Any]
Action = dict[str, Any]
Floats = npt.NDArray[np.float32]

MakeBackend = Callable[[Scenario, Channel], AbstractContextManager[Backend]]
"""Makes the backend that executes the rounds of an episode: the engine or an emulated network. An
episode ends when the backend raises `TraceExhausted` or `RunEnds`."""

LARGEST = 1e6
"""Limit of observed times, energies, coordinates and distances, because spaces are bounded."""


@contextmanager
def engine_backend(scenario: Scenario, channel: Channel) -> Iterator[Backend]:
    """A backend that predicts rounds with the slot-level engine."""
    yield EngineBackend(scenario, channel, profile_of(scenario))


def equal_allocation(scenario: Scenario) -> Allocation:
    """Equal shares 1/K, with the scenario's split."""
    equal = np.full(scenario.uavs.count, 1 / scenario.uavs.count)
    return Allocation(split_of(scenario), equal, equal, equal)


# --- observations and actions --------------------------------------------------------------------


def trajectory_of(
    scenario: Scenario, channel: SlotTrace, round_: Round, whole: bool = True
) -> Floats:
    """χ_k(s) of all slots of a round, shape [M, K, 4]: coordinates and distance to the BS, in m.
    If it is not `whole`, of its last slot alone.

    If the channel is known late, these are the round's number of slots up to the last known one.

    Raises:
        InputError: The trace has no positions.
    """
    if channel.position_m is None:
        raise InputError("trace: position is missing; observations need it")
    first, last = (
        int(time_s / channel.slot_s + 1e-6)
        for time_s in (round_.start_s, round_.start_s + round_.latency_s)
    )
    late = max(0, last - (channel.slots - 1))
    first, last = max(0, first - late), last - late
    if not whole:
        first = last
    position = channel.position_m[:, first : last + 1]
    offset = position - np.array(scenario.base_station.position_m)
    x, y, z = (offset[..., axis] for axis in range(3))
    made = np.empty((*position.shape[:2], 4), np.float32)
    made[..., :3], made[..., 3] = position, np.sqrt(x * x + y * y + z * z)
    return made.swapaxes(0, 1)


def observe(
    scenario: Scenario,
    shares: Sequence[str],
    round_: Round,
    allocation: Allocation,
    channel: SlotTrace,
    whole: bool,
) -> Observation:
    """The observation of a round: eq. (State_Space_server).

    Args:
        scenario: The scenario.
        shares: Names of the shares that are decided.
        round_: The round.
        allocation: The round's allocation.
        channel: A trace that contains the round's last slot.
        whole: Whether to include all slots (`trajectory`), or the last slot's distances
            (`distance_m`).
    """
    seen: Observation = {"split": np.int64(allocation.splits[0])}
    for name in shares:
        seen[name] = getattr(allocation, name).astype(np.float32)
    seen["energy_j"] = round_.energy_j.astype(np.float32)
    seen["latency_s"] = np.array([round_.latency_s], np.float32)
    trajectory = trajectory_of(scenario, channel, round_, whole)
    if whole:
        seen["trajectory"] = trajectory
    else:
        seen["distance_m"] = trajectory[-1, :, 3]
    return seen


def observation_space(scenario: Scenario, shares: Sequence[str], whole: bool) -> spaces.Dict:
    """The space of the observations that `observe` returns."""
    clients = scenario.uavs.count

    def box(shape: tuple[int, ...], low: float = 0.0, high: float = LARGEST) -> spaces.Box:
        return spaces.Box(low, high, shape, np.float32)

    seen: dict[str, spaces.Space[Any]] = {"split": _split_space(scenario)}
    for name in shares:
        seen[name] = box((clients,), high=1.0)
    seen["energy_j"], seen["latency_s"] = box((clients,)), box((1,))
    if whole:
        seen["trajectory"] = spaces.Sequence(box((clients, 4), low=-LARGEST), stack=True)
    else:
        seen["distance_m"] = box((clients,))
    return spaces.Dict(seen)


def _split_space(scenario: Scenario) -> spaces.Discrete:
    return spaces.Discrete(profile_of(scenario).splits, start=1)


def action_space(
    scenario: Scenario, shares: Sequence[str], decides: Sequence[str] = ()
) -> spaces.Dict:
    """The split point u, weights for each of the shares that are decided, and a value per UAV for
    each further decision."""
    clients, allowed = scenario.uavs.count, ranges(scenario)
    weights = {name: spaces.Box(0.0, 1.0, (clients,), np.float32) for name in shares}
    further: dict[str, spaces.Space[Any]] = {}
    for name in decides:
        if name == "position_m":
            further[name] = _region(scenario)
            continue
        if name not in LOADED:
            known = ", ".join((*LOADED, "position_m"))
            raise InputError(f"`decides`: {name!r} is not one of {known}")
        low, high, _, _, is_whole = allowed(name)
        further[name] = spaces.Box(np.full(clients, low), high, dtype=np.float64)
        if is_whole:
            counts = (high - low + 1).astype(np.int64)
            further[name] = spaces.MultiDiscrete(counts, start=np.full(clients, int(low)))
    return spaces.Dict({"split": _split_space(scenario), **weights, **further})


def _region(scenario: Scenario) -> spaces.Box:
    """The positions around the base station that an action may have; those beyond the largest
    distance are brought in.

    Raises:
        InputError: No decision flies the UAVs.
    """
    if scenario.mobility.model != GUIDED:
        raise InputError(
            f"`decides`: position_m needs mobility.model 'guided', not {scenario.mobility.model!r}"
        )
    limits, (x, y, _) = scenario.mobility.limits, scenario.base_station.position_m
    far, heights = limits.distance_m[1], limits.height_m
    low, high = [x - far, y - far, heights[0]], [x + far, y + far, heights[1]]
    each = (scenario.uavs.count, 1)
    return spaces.Box(np.tile(low, each), np.tile(high, each), dtype=np.float64)


def _brought_in(scenario: Scenario, position_m: Array) -> Array:
    """Positions within the largest horizontal distance from the base station."""
    at_m = np.array(scenario.base_station.position_m[:2])
    away = position_m[..., :2] - at_m
    far = np.linalg.norm(away, axis=-1, keepdims=True)
    most = scenario.mobility.limits.distance_m[1] * (1 - 1e-12)
    position_m[..., :2] = at_m + away * np.minimum(1.0, most / np.maximum(far, 1e-9))
    return position_m


def allocation_of(scenario: Scenario, action: Action, radio: RadioAccess) -> Allocation:
    """The allocation for an action.

    Weights are divided by their sum, and scaled by eq. (Action_trans) to respect the least share,
    which for the bandwidth is at least that of the radio.
    """
    equal = np.full(scenario.uavs.count, 1 / scenario.uavs.count)

    def shares(name: str, at_least: float = 0.0) -> Array:
        if name not in action:
            return equal
        weights = np.maximum(np.asarray(action[name], float), 1e-9)
        return scaled(weights / weights.sum(), at_least)

    least_beta = min(radio.least_beta, 1 / scenario.uavs.count)
    beta = shares("beta", least_beta)
    further = {name: action[name] for name in LOADED if name in action}
    if "position_m" in action:
        further["position_m"] = _brought_in(scenario, np.array(action["position_m"], float))
    return Allocation(int(action["split"]), shares("alpha"), beta, shares("rho"), **further)


# --- the environment -----------------------------------------------------------------------------


class UavSflEnv(gymnasium.Env[Observation, Action]):  # type: ignore[misc]  # unseen by mypy
    """A Gymnasium environment in which each step is a round of split federated learning over a UAV
    network.

    The reward is the negative of the round's objective, in s; `info` contains its parts. A reset
    executes round 0 with equal shares, so that there is a first observation. `reset(seed=n)` uses
    the trace of seed n.

    Args:
        scenario: A scenario or its file (default: the paper's).
        rounds: Number of steps after which an episode is truncated (default: never).
        trajectories: Whether to observe the trajectories in all slots of the last round; otherwise,
            only the last distances.
        decides: What an action decides in addition to split points and shares: names of `LOADED`
            in `orchestrator.engine.plan`, such as `tx_power_w`, and `position_m`.
        source: Function that generates the channel of a scenario (default: ns-3).
        backend: Function that creates the backend that executes the rounds (default: the engine).
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (gymnasium declares it so)

    def __init__(
        self,
        scenario: Scenario | Path | str | None = None,
        *,
        rounds: int | None = None,
        trajectories: bool = True,
        decides: Sequence[str] = (),
        source: Callable[[Scenario], ChannelSource] = ns3_source,
        backend: MakeBackend = engine_backend,
    ):
        if not isinstance(scenario, Scenario):
            scenario = load(PAPER if scenario is None else Path(scenario))
        check(scenario, "train")
        self.radio = _radio(scenario, source)
        self.shares = decided_shares(scenario.scheme, self.radio)
        """Names of the shares in actions."""
        self.scenario = scenario
        self.rounds = rounds
        self.trajectories = trajectories
        self.observation_space = observation_space(scenario, self.shares, trajectories)
        self.action_space = action_space(scenario, self.shares, decides)
        self._check = DecisionCheck(scenario)
        self._make_source, self._make_backend = source, backend
        self._episode = ExitStack()
        self._seed = scenario.seed
        self._started = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start at t = 0. The first reset uses the seed of the scenario unless `seed` is given."""
        super().reset(seed=seed)
        if seed is not None:
            self._seed = seed
        elif self._started:
            self._seed = int(self.np_random.integers(2**31))
        self._begin(self._seed)
        self._play(Decision(0, 0.0, equal_allocation(self.scenario)))
        return self._observe(), self._info()

    def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Execute a round."""
        allocation = allocation_of(self.scenario, action, self.radio)
        last = self.round
        allocation = self._check(allocation, "action")
        check_shares(self.radio, allocation)
        try:
            self._play(Decision(last.index + 1, last.end_s, allocation))
        except (TraceExhausted, RunEnds):
            return self._observe(), 0.0, False, True, self._info()
        truncated = self.rounds is not None and self.round.index >= self.rounds
        return self._observe(), -self.round.objective, False, truncated, self._info()

    def resume(self, seed: int, round_: Round, allocation: Allocation) -> Observation:
        """Restore the state after a round of an episode with this seed; returns the observation."""
        self._seed = seed
        self._begin(seed)
        self.round, self.allocation = round_, allocation
        return self._observe()

    def close(self) -> None:
        """Stop the process of ns-3 and the emulated network."""
        self._episode.close()
        child.end_kept()

    @property
    def seed(self) -> int:
        """The seed of the current trace."""
        return self._seed

    def _begin(self, seed: int) -> None:
        child.keep()  # ns-3's process, for the next episode
        self._episode.close()
        self._started = True
        scenario = self._flown = self.scenario.reseeded(seed)
        source = self._make_source(scenario)
        if hasattr(source, "close"):
            self._episode.callback(source.close)
        self._channel = Channel.of(source)
        self._backend = self._episode.enter_context(self._make_backend(scenario, self._channel))

    def _play(self, decision: Decision) -> None:
        self.round, self.allocation = self._backend.play(decision), decision.allocation

    def _observe(self) -> Observation:
        known = observed(self._flown, self._channel.until(self.round.end_s))
        return observe(
            self.scenario, self.shares, self.round, self.allocation, known, self.trajectories
        )

    def _info(self) -> dict[str, Any]:
        return {
            "round": self.round.index,
            "latency_s": self.round.latency_s,
            "max_energy_j": float(self.round.energy_j.max()),
            "objective": self.round.objective,
        }


def _radio(scenario: Scenario, source: Callable[[Scenario], ChannelSource]) -> RadioAccess:
    """The radio of the scenario on the channel that the function makes, which may have rates."""
    if source is ns3_source:
        return of_gains(scenario)
    made = source(scenario)
    try:
        return radio_access(scenario, Channel.of(made).now)
    finally:
        if hasattr(made, "close"):
            made.close()


def register() -> None:
    """Register `UavSfl-v0` with Gymnasium."""
    if "UavSfl-v0" not in gymnasium.registry:
        gymnasium.register("UavSfl-v0", entry_point="orchestrator.policies.environment:UavSflEnv")


register()
