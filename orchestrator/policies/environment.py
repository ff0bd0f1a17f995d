# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A Gymnasium environment: each step is a round, each action its allocation.

    import gymnasium, orchestrator.policies.environment
    environment = gymnasium.make("UavSfl-v0", scenario="paper")

The observation is the paper's, eq. (State_Space_server): what was decided in the last round, what
it cost, and where the UAVs were in each of its slots. Rounds differ in length, so the trajectory
is a `Sequence` of slots; `trajectories=False` gives the distances at the last slot instead, and
with them a space of fixed size. The task goes on for ever: there is no terminal state, and an
episode is truncated only after the number of rounds one asks for, or where a replayed trace ends.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from ns3_scenarios.trace import ChannelSource, SlotTrace, TraceExhausted
from orchestrator.engine.plan import Allocation, Array, split_of
from orchestrator.engine.rounds import Backend, Decision, EngineBackend
from orchestrator.policies.shares import scaled
from orchestrator.scenario.channel import Channel, ns3_source, observed
from orchestrator.scenario.loading import PAPER, load
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import EVERYBODY, Scenario
from testbed.core.errors import InputError, RunEnds
from testbed.core.paradigm import Paradigm
from testbed.core.timeline import Round

Observation = dict[str, Any]
Action = dict[str, Any]
Floats = npt.NDArray[np.float32]

MakeBackend = Callable[[Scenario, Channel], AbstractContextManager[Backend]]
"""Makes what plays the rounds of an episode: the engine, or an emulated network. An episode ends
where that raises `TraceExhausted` or `RunEnds`."""

LARGEST = 1e6
"""Of any observed time, energy, coordinate or distance: spaces have to be bounded."""


@contextmanager
def engine_backend(scenario: Scenario, channel: Channel) -> Iterator[Backend]:
    """Rounds played by the slot-level engine."""
    yield EngineBackend(scenario, channel, profile_of(scenario))


def shared_out(paradigm: Paradigm) -> tuple[str, ...]:
    """The shares that a paradigm leaves to be decided."""
    alpha = ("alpha",) if paradigm.server_compute == "parallel" else ()
    rho = ("rho",) if paradigm.gradient_transmission == "parallel" else ()
    return (*alpha, "beta", *rho)


def equal_allocation(scenario: Scenario) -> Allocation:
    """1/K each, and the scenario's split."""
    equal = np.full(scenario.uavs.count, 1 / scenario.uavs.count)
    return Allocation(split_of(scenario), equal, equal, equal)


# --- what is observed and decided ----------------------------------------------------------------


def trajectory_of(scenario: Scenario, channel: SlotTrace, round_: Round) -> Floats:
    """χ_k(s) of all slots of a round, shape [M, K, 4]: coordinates and distance to the BS, in m.

    Of a channel that is known late, as many slots as the round had, up to the last that is known.

    Raises:
        InputError: The trace brings no positions.
    """
    if channel.position_m is None:
        raise InputError("trace: position is missing; what is observed needs it")
    first, last = (
        int(time_s / channel.slot_s + 1e-6)
        for time_s in (round_.start_s, round_.start_s + round_.latency_s)
    )
    late = max(0, last - (channel.slots - 1))
    first, last = max(0, first - late), last - late
    position = channel.position_m[:, first : last + 1].swapaxes(0, 1)
    offset = position - np.array(scenario.base_station.position_m)
    distance = np.linalg.norm(offset, axis=2, keepdims=True)
    return np.concatenate([position, distance], axis=2).astype(np.float32)


def observe(
    scenario: Scenario, round_: Round, allocation: Allocation, channel: SlotTrace, whole: bool
) -> Observation:
    """What is seen of a round: eq. (State_Space_server).

    Args:
        scenario: Where and what.
        round_: The round that was played.
        allocation: What it was played with.
        channel: A trace that reaches the round's last slot.
        whole: All slots under `trajectory`, or the last slot's distances under `distance_m`.
    """
    seen: Observation = {"split": np.int64(allocation.splits[0])}
    for name in shared_out(scenario.scheme):
        seen[name] = getattr(allocation, name).astype(np.float32)
    seen["energy_j"] = round_.energy_j.astype(np.float32)
    seen["latency_s"] = np.array([round_.latency_s], np.float32)
    trajectory = trajectory_of(scenario, channel, round_)
    if whole:
        seen["trajectory"] = trajectory
    else:
        seen["distance_m"] = trajectory[-1, :, 3]
    return seen


def observation_space(scenario: Scenario, whole: bool) -> spaces.Dict:
    """The space of `observe`."""
    clients = scenario.uavs.count

    def box(shape: tuple[int, ...], low: float = 0.0, high: float = LARGEST) -> spaces.Box:
        return spaces.Box(low, high, shape, np.float32)

    seen: dict[str, spaces.Space[Any]] = {"split": _split_space(scenario)}
    for name in shared_out(scenario.scheme):
        seen[name] = box((clients,), high=1.0)
    seen["energy_j"], seen["latency_s"] = box((clients,)), box((1,))
    if whole:
        seen["trajectory"] = spaces.Sequence(box((clients, 4), low=-LARGEST), stack=True)
    else:
        seen["distance_m"] = box((clients,))
    return spaces.Dict(seen)


def _split_space(scenario: Scenario) -> spaces.Discrete:
    return spaces.Discrete(profile_of(scenario).splits, start=1)


def action_space(scenario: Scenario) -> spaces.Dict:
    """u, and weights for each resource that the paradigm shares out."""
    clients = scenario.uavs.count
    weights = {
        name: spaces.Box(0.0, 1.0, (clients,), np.float32) for name in shared_out(scenario.scheme)
    }
    return spaces.Dict({"split": _split_space(scenario), **weights})


def allocation_of(scenario: Scenario, action: Action) -> Allocation:
    """The allocation that an action stands for.

    Weights are divided by their sum, which leaves shares as they are, and scaled by
    eq. (Action_trans) to respect the least share.
    """
    equal = np.full(scenario.uavs.count, 1 / scenario.uavs.count)

    def shares(name: str) -> Array:
        if name not in action:
            return equal
        weights = np.maximum(np.asarray(action[name], float), 1e-9)
        return scaled(weights / weights.sum())

    return Allocation(int(action["split"]), shares("alpha"), shares("beta"), shares("rho"))


# --- the environment -----------------------------------------------------------------------------


class UavSflEnv(gymnasium.Env[Observation, Action]):  # type: ignore[misc]  # unseen by mypy
    """Rounds of split federated learning over a UAV network, one a step.

    The reward is minus the round's objective, in s. `info` tells its parts. A reset plays round 0
    with equal shares, so that there is something to observe. `reset(seed=n)` flies the trace of
    seed n.

    Args:
        scenario: A scenario, or the file of one; left out: the paper's.
        rounds: Steps after which an episode is truncated; left out: never.
        trajectories: Observe all slots of the last round, or the last distances alone.
        source: Makes the channel of a scenario; left out: ns-3.
        backend: Makes what plays the rounds; left out: the engine.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (gymnasium declares it so)

    def __init__(
        self,
        scenario: Scenario | Path | str | None = None,
        *,
        rounds: int | None = None,
        trajectories: bool = True,
        source: Callable[[Scenario], ChannelSource] = ns3_source,
        backend: MakeBackend = engine_backend,
    ):
        if not isinstance(scenario, Scenario):
            scenario = load(PAPER if scenario is None else Path(scenario))
        if scenario.workload.differing_splits:
            raise InputError("workload.split: must be one number for an agent")
        if scenario.scheme.asynchronous:
            raise InputError("paradigm: an agent decides for synchronous rounds alone")
        if scenario.participation != EVERYBODY:
            raise InputError("participation: an agent decides for rounds of all UAVs alone")
        self.scenario = scenario
        self.rounds = rounds
        self.trajectories = trajectories
        self.observation_space = observation_space(scenario, trajectories)
        self.action_space = action_space(scenario)
        self._make_source, self._make_backend = source, backend
        self._episode = ExitStack()
        self._seed = scenario.seed
        self._started = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin anew at t = 0; the first time with the scenario's own seed unless one is given."""
        super().reset(seed=seed)
        if seed is not None:
            self._seed = seed
        elif self._started:
            self._seed = int(self.np_random.integers(2**31))
        self._begin(self._seed)
        self._play(Decision(0, 0.0, equal_allocation(self.scenario)))
        return self._observe(), self._info()

    def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Play one round."""
        allocation = allocation_of(self.scenario, action)
        last = self.round
        try:
            self._play(Decision(last.index + 1, last.end_s, allocation))
        except (TraceExhausted, RunEnds):
            return self._observe(), 0.0, False, True, self._info()
        truncated = self.rounds is not None and self.round.index >= self.rounds
        return self._observe(), -self.round.objective, False, truncated, self._info()

    def resume(self, seed: int, round_: Round, allocation: Allocation) -> Observation:
        """Stand where an episode of this seed stood after a round; answer what was observed."""
        self._seed = seed
        self._begin(seed)
        self.round, self.allocation = round_, allocation
        return self._observe()

    def close(self) -> None:
        """End ns-3's process, and the emulated network."""
        self._episode.close()

    @property
    def seed(self) -> int:
        """The seed of the trace that is flown."""
        return self._seed

    def _begin(self, seed: int) -> None:
        self.close()
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
        return observe(self.scenario, self.round, self.allocation, known, self.trajectories)

    def _info(self) -> dict[str, Any]:
        return {
            "round": self.round.index,
            "latency_s": self.round.latency_s,
            "max_energy_j": float(self.round.energy_j.max()),
            "objective": self.round.objective,
        }


def register() -> None:
    """Make `UavSfl-v0` known to Gymnasium."""
    if "UavSfl-v0" not in gymnasium.registry:
        gymnasium.register("UavSfl-v0", entry_point="orchestrator.policies.environment:UavSflEnv")


register()
