# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Trainings with PPO on the same environment: the testbed's agents and stable-baselines3.

`benchmarks/performance.py` measures them. All train on the paper's scenario and the same trace,
with the same rewards and hyperparameters (batches of 12 rounds, 10 epochs, hidden layers of 128, 64
and 32 for policy and value each), on one thread. The agent `drl-` and stable-baselines3 see the
distances at the end of a round; `drl` is the paper's agent, with attention over all slots.
stable-baselines3 has no Dirichlet distributions: it decides by a Gaussian over the weights of
shares and splits.
"""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import gymnasium
import numpy as np
import torch

from ns3_scenarios.trace import ChannelSource, Replay
from orchestrator.engine.plan import Array
from orchestrator.policies import agent
from orchestrator.policies.environment import Action, Observation, UavSflEnv
from orchestrator.scenario.channel import ns3_source
from orchestrator.scenario.loading import load
from orchestrator.scenario.schema import Scenario

PAPER = Path(__file__).parents[1] / "scenarios" / "paper.yaml"
FEW = 12
"""Rounds of the shorter training."""
ROUND_S = 60.0
"""Time of the trace per round."""

Source = Callable[[Scenario], ChannelSource]


class Flat(gymnasium.Wrapper[Any, Any, Any, Any]):  # type: ignore[misc]  # unseen by mypy
    """The environment with one box of observations, scaled as the agent scales them, and one of
    actions: logits of splits and weights of shares."""

    def __init__(self, environment: UavSflEnv):
        super().__init__(environment)
        self.splits = int(environment.action_space["split"].n)
        self.clients, self.shares = environment.scenario.uavs.count, environment.shares
        size = self.splits + len(self.shares) * self.clients
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (size,), np.float32)
        seen = self._flat(environment.reset()[0])
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, seen.shape, np.float32)

    def _flat(self, seen: Observation) -> Array:
        parts = [np.eye(self.splits)[int(seen["split"]) - 1], *(seen[name] for name in self.shares)]
        parts += [0.01 * seen[name] for name in ("energy_j", "latency_s")]
        return np.concatenate([*parts, 1e-3 * seen["distance_m"]]).astype(np.float32)

    def reset(self, **options: Any) -> tuple[Array, dict[str, Any]]:
        """Begin an episode."""
        seen, about = self.env.reset(**options)
        return self._flat(seen), about

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Play a round."""
        logits, weights = action[: self.splits], action[self.splits :].reshape(-1, self.clients)
        made: Action = {"split": int(logits.argmax()) + 1}
        made |= dict(zip(self.shares, 1 + 0.3 * weights, strict=True))
        seen, reward, *ends, about = self.env.step(made)
        return (self._flat(seen), 0.01 * reward, *ends, about)


def ours(scenario: Scenario, source: Source, variant: str) -> Callable[[int], float]:
    def train(rounds: int) -> float:
        def environment(*given: Any, **options: Any) -> UavSflEnv:
            return UavSflEnv(*given, source=source, **options)

        with tempfile.TemporaryDirectory() as out, patch.object(agent, "UavSflEnv", environment):
            table = agent.train(scenario, Path(out), variant=variant, rounds=rounds)
        return float(table["objective"].mean())

    return train


def theirs(scenario: Scenario, source: Source) -> Callable[[int], float]:
    import stable_baselines3

    def train(rounds: int) -> float:
        objectives: list[float] = []

        def noted(objective: float) -> bool:
            objectives.append(objective)
            return True

        environment = Flat(UavSflEnv(scenario, trajectories=False, source=source))
        model = stable_baselines3.PPO(
            "MlpPolicy",
            environment,
            learning_rate=3e-4,
            n_steps=12,
            batch_size=12,
            n_epochs=10,
            gamma=0.5,
            gae_lambda=0.95,
            ent_coef=0.01,
            policy_kwargs={"net_arch": [128, 64, 32]},
            seed=1,
            device="cpu",
        )
        model.learn(rounds, callback=lambda held, _: noted(held["infos"][0]["objective"]))
        return float(np.mean(objectives))

    return train


def alone(scenario: Scenario, source: Source) -> Callable[[int], float]:
    def play(rounds: int) -> float:
        environment = UavSflEnv(scenario, trajectories=False, source=source)
        environment.reset()
        rng = np.random.default_rng(1)
        objectives = []
        for _ in range(rounds):
            shares = {name: 1 + 0.3 * rng.random(10) for name in environment.shares}
            objectives.append(-environment.step({"split": 2, **shares})[1])
        return float(np.mean(objectives))

    return play


WAYS: dict[str, Callable[[Scenario, Source], Callable[[int], float]]] = {
    "drl": partial(ours, variant="drl"),
    "drl-": partial(ours, variant="drl-"),
    "stable-baselines3": theirs,
    "environment": alone,
}
"""By name: a function that makes a training; it trains some rounds, and returns the mean of the
objectives."""


def round_s(way: str, rounds: int, repeats: int = 2) -> float:
    """CPU seconds of a round of training without start-up: the difference between trainings of two
    lengths, the least of the repeats.

    Raises:
        ImportError: A package is not installed.
    """
    torch.set_num_threads(1)
    scenario = load(PAPER)
    with ns3_source(scenario) as made:
        trace = made.trace(int(ROUND_S * rounds / scenario.slot_s))
    train = WAYS[way](scenario, lambda _: Replay(trace))
    train(FEW)  # imports and caches
    least_s = np.inf
    for _ in range(repeats):
        took = []
        for count in (FEW, rounds):
            began = time.process_time()
            train(count)
            took.append(time.process_time() - began)
        least_s = min(least_s, (took[1] - took[0]) / (rounds - FEW))
    return least_s
