# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The paper's agent: PPO over attention on the last round's trajectories. All of it in this file.

Section IV of the paper gives architecture and sizes; what it leaves open is decided in `Settings`
and named there. One action is a split point (categorical) and shares for each resource that the
paradigm leaves to be decided (Dirichlet, with log-probabilities before the linear scaling).
"""

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Dirichlet

from orchestrator.engine.plan import Allocation
from orchestrator.engine.rounds import Decide, Situation
from orchestrator.policies.environment import (
    Action,
    MakeBackend,
    Observation,
    UavSflEnv,
    allocation_of,
    engine_backend,
    equal_allocation,
    observe,
    shared_out,
)
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.timeline import SPAN, Round
from testbed.system.files import check_no_link, write_whole

CHECKPOINT = "agent.pt"
HISTORY = "rounds.parquet"


@dataclass(frozen=True)
class Settings:
    """The paper's parameters, and what it leaves open."""

    gamma: float = 0.5
    """Discount factor."""
    learning_rate: float = 3e-4
    """Of policy and value alike."""
    batch: int = 12
    """B_m: rounds between two updates."""
    key_size: int = 8
    """D_S."""
    feature_size: int = 16
    """H."""
    hidden: tuple[int, int, int] = (128, 64, 32)
    gae_lambda: float = 0.95
    """Open in the paper; likewise all below."""
    clip: float = 0.2
    epochs: int = 10
    entropy: float = 0.01
    max_grad_norm: float = 0.5
    reward_scale: float = 0.01
    """Times and energies are observed on the same scale."""
    metres: float = 1e-3
    """Scale of coordinates."""
    concentration: float = 400.0
    """Of each Dirichlet's components before learning: how close to equal shares it begins."""
    logit_scale: float = 0.3
    """Of the shares' logits: with 1, one update moves shares by more than their own spread, PPO's
    clipping then stops all branches, and learning stalls (115 where 0.3 comes below 107)."""


@dataclass(frozen=True)
class Variant:
    """What an agent sees and decides."""

    trajectories: bool = True
    """All slots of the last round by attention, or the distances at its last slot."""
    shares: bool = True
    """Decides shares; else they are equal."""
    split: bool = True
    """Decides the split point; else it is the scenario's."""


VARIANTS = {
    "drl": Variant(),
    "drl-": Variant(trajectories=False),
    "fixed-ra": Variant(shares=False),
    "fixed-u": Variant(split=False),
}
"""The paper's: DRL, DRL(-), fixed RA, and u = ũ. PipeSFL's agent is `drl` on `pipesfl`."""


# --- networks ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """Observations as tensors: B rounds."""

    state: Tensor
    """Shape [B, D]: last decision, energies, latency (and distances without trajectories)."""
    trajectory: Tensor
    """Shape [B, K, M, 4], rounds shorter than M padded at their end; without: M = 0."""
    slots: Tensor
    """Shape [B]: how many of the M slots each round has."""

    def take(self, index: slice) -> "Seen":
        """Some of the rounds."""
        return Seen(self.state[index], self.trajectory[index], self.slots[index])


def seen(settings: Settings, splits: int, observations: list[Observation]) -> Seen:
    """Scaled tensors of observations; splits: how many there are to choose from."""
    states, paths = [], []
    for one in observations:
        parts = [np.eye(splits)[int(one["split"]) - 1]]
        parts += [one[name] for name in ("alpha", "beta", "rho") if name in one]
        parts += [settings.reward_scale * one[name] for name in ("energy_j", "latency_s")]
        if "distance_m" in one:
            parts.append(settings.metres * one["distance_m"])
        states.append(np.concatenate(parts))
        paths.append(torch.from_numpy(one.get("trajectory", np.empty((0, 1, 4), np.float32))))
    padded = settings.metres * nn.utils.rnn.pad_sequence(paths, batch_first=True)
    return Seen(
        torch.tensor(np.array(states), dtype=torch.float32),
        padded.transpose(1, 2).contiguous(),
        torch.tensor([len(path) for path in paths]),
    )


class Attention(nn.Module):
    """Eq. (Attention): what a UAV's trajectory comes to, asked from its last slot.

    There is one query and the slots are many, so keys and values are never written out: the query
    is taken back through W_K to the slots, and the slots' weighted mean on through W_V.
    """

    def __init__(self, key_size: int, feature_size: int):
        super().__init__()
        self.query = _linear(4, key_size, bias=False)
        self.key = _linear(4, key_size, bias=False)
        self.value = _linear(4, feature_size, bias=False)

    def forward(self, trajectory: Tensor, slots: Tensor) -> Tensor:
        """Features [B, K, H] of trajectories [B, K, M, 4]."""
        count, _, longest, _ = trajectory.shape
        key_size, feature_size = self.key.out_features, self.value.out_features
        key_positions = positions(longest, key_size)
        last = trajectory[torch.arange(count), :, slots - 1]
        query = self.query(last) + key_positions[slots - 1][:, None]
        scores = (trajectory @ (query @ self.key.weight).unsqueeze(-1)).squeeze(-1)
        scores = (scores + query @ key_positions.T) / math.sqrt(key_size)
        padded = torch.arange(longest) >= slots[:, None]
        weights = scores.masked_fill(padded[:, None], -math.inf).softmax(dim=-1)
        mean = (weights.unsqueeze(-2) @ trajectory).squeeze(-2)
        features: Tensor = self.value(mean) + weights @ positions(longest, feature_size)
        return features


def positions(count: int, size: int) -> Tensor:
    """Sinusoidal positional encodings of the slots 0, 1, ..., shape [count, size]."""
    rates = torch.exp(torch.arange(0, size, 2) * (-math.log(10_000.0) / size))
    angles = torch.arange(count)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


def _linear(inputs: int, outputs: int, gain: float = math.sqrt(2), bias: bool = True) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.orthogonal_(layer.weight, gain)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


class Trunk(nn.Module):
    """Extractor and the first two hidden layers; policy and value have one each."""

    def __init__(self, settings: Settings, clients: int, state_size: int, trajectories: bool):
        super().__init__()
        self.attention = (
            Attention(settings.key_size, settings.feature_size) if trajectories else None
        )
        features = clients * settings.feature_size if trajectories else 0
        first, second, _ = settings.hidden
        self.layers = nn.Sequential(
            _linear(state_size + features, first), nn.Tanh(), _linear(first, second), nn.Tanh()
        )

    def forward(self, seen: Seen) -> Tensor:
        """Shape [B, 64]."""
        state = seen.state
        if self.attention is not None:
            features = self.attention(seen.trajectory, seen.slots)
            state = torch.cat([state, features.flatten(1)], dim=1)
        hidden: Tensor = self.layers(state)
        return hidden


def _branch(settings: Settings, outputs: int, gain: float) -> nn.Sequential:
    """Third hidden layer and output layer."""
    _, second, third = settings.hidden
    return nn.Sequential(_linear(second, third), nn.Tanh(), _linear(third, outputs, gain))


class Policy(nn.Module):
    """π: a distribution over split points and one over each resource's shares.

    Only the branches exist that the variant decides.
    """

    def __init__(
        self, settings: Settings, clients: int, state_size: int, variant: Variant,
        names: tuple[str, ...], splits: int,
    ):  # fmt: skip
        super().__init__()
        self.trunk = Trunk(settings, clients, state_size, variant.trajectories)
        self.settings = settings
        self.branches = nn.ModuleDict()
        if variant.split:
            self.branches["split"] = _branch(settings, splits, 0.01)
        if variant.shares:
            for name in names:
                self.branches[name] = _branch(settings, clients, 0.01)

    def forward(self, seen: Seen) -> dict[str, Categorical | Dirichlet]:
        """A distribution for each branch."""
        hidden = self.trunk(seen)
        made: dict[str, Categorical | Dirichlet] = {}
        for name, branch in self.branches.items():
            if name == "split":
                made[name] = Categorical(logits=branch(hidden))
            else:
                logits = self.settings.logit_scale * branch(hidden)
                made[name] = Dirichlet(self.settings.concentration * logits.exp())
        return made


class Value(nn.Module):
    """V, with a feature extractor of its own."""

    def __init__(self, settings: Settings, clients: int, state_size: int, trajectories: bool):
        super().__init__()
        self.trunk = Trunk(settings, clients, state_size, trajectories)
        self.branch = _branch(settings, 1, 1.0)

    def forward(self, seen: Seen) -> Tensor:
        """Shape [B]."""
        value: Tensor = self.branch(self.trunk(seen))
        return value.squeeze(-1)


class Agent(nn.Module):
    """Policy and value, and how they learn."""

    def __init__(self, scenario: Scenario, variant: Variant, settings: Settings):
        super().__init__()
        names, clients = shared_out(scenario.scheme), scenario.uavs.count
        self.splits = splits = profile_of(scenario).splits
        state_size = splits + (len(names) + 1) * clients + 1
        state_size += 0 if variant.trajectories else clients
        self.variant, self.settings = variant, settings
        self.policy = Policy(settings, clients, state_size, variant, names, splits)
        self.value = Value(settings, clients, state_size, variant.trajectories)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=settings.learning_rate, eps=1e-5)

    @torch.no_grad()
    def act(self, observation: Observation, explore: bool) -> dict[str, Tensor]:
        """A choice [1, ...] for each branch: drawn, or the likeliest split and the mean shares."""
        made: dict[str, Tensor] = {}
        for name, choice in self.policy(seen(self.settings, self.splits, [observation])).items():
            if explore:
                made[name] = choice.sample()
            else:
                made[name] = choice.probs.argmax(-1) if name == "split" else choice.mean
        return made

    def update(
        self, observations: list[Observation], actions: list[dict[str, Tensor]], rewards: Tensor
    ) -> dict[str, float]:
        """PPO on B rounds that followed each other; observations are B + 1."""
        s = self.settings
        everything = seen(s, self.splits, observations)
        batch = everything.take(slice(len(actions)))
        taken = {name: torch.cat([action[name] for action in actions]) for name in actions[0]}
        with torch.no_grad():
            old_log_prob = self._log_prob(batch, taken)[0]
            values = self.value(everything)
            advantages = torch.empty_like(rewards)
            carried = torch.zeros(())
            for t in reversed(range(len(rewards))):  # no end of episode anywhere
                surprise = rewards[t] + s.gamma * values[t + 1] - values[t]
                carried = surprise + s.gamma * s.gae_lambda * carried
                advantages[t] = carried
            returns = advantages + values[:-1]
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        for _ in range(s.epochs):
            log_prob, entropy = self._log_prob(batch, taken)
            ratio = (log_prob - old_log_prob).exp()
            clipped = ratio.clamp(1 - s.clip, 1 + s.clip)
            policy_loss = -torch.min(ratio * advantages, clipped * advantages).mean()
            value_loss = 0.5 * (self.value(batch) - returns).square().mean()
            loss = policy_loss - s.entropy * entropy.mean() + value_loss
            self.optimizer.zero_grad()
            loss.backward()
            # Policy and value share nothing, so one must not shrink the other's gradient.
            for network in (self.policy, self.value):
                nn.utils.clip_grad_norm_(network.parameters(), s.max_grad_norm)
            self.optimizer.step()
        return {
            "policy_loss": policy_loss.item(),
            "value_loss": value_loss.item(),
            "entropy": entropy.mean().item(),
            "change": (ratio - 1).abs().mean().item(),
        }

    def _log_prob(self, batch: Seen, taken: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Log-probabilities of whole actions and entropies, shape [B]."""
        choices = self.policy(batch)
        log_prob = sum(choice.log_prob(taken[name]) for name, choice in choices.items())
        return log_prob, sum(choice.entropy() for choice in choices.values())


def action_of(scenario: Scenario, made: dict[str, Tensor]) -> Action:
    """The environment's action; what the variant does not decide is the scenario's or equal."""
    equal = np.full(scenario.uavs.count, 1 / scenario.uavs.count)
    action: Action = dict.fromkeys(shared_out(scenario.scheme), equal)
    action["split"] = scenario.workload.deepest_split
    for name, choice in made.items():
        action[name] = int(choice) + 1 if name == "split" else choice[0].double().numpy()
    return action


# --- training ------------------------------------------------------------------------------------


def train(
    scenario: Scenario,
    out: Path,
    *,
    variant: str = "drl",
    rounds: int = 5000,
    seed: int | None = None,
    settings: Settings | None = None,
    checkpoint_every: int = 50,
    tensorboard: bool = False,
    backend: MakeBackend = engine_backend,
    progress: Callable[[int], None] | None = None,
) -> pd.DataFrame:
    """Train an agent round after round, on the trace of the scenario's seed.

    `out` gets `agent.pt`, from which a killed training goes on as if nothing had happened, and
    `rounds.parquet`.

    Args:
        scenario: Where and what.
        out: A folder; one that holds a training of the same agent is resumed.
        variant: One of `VARIANTS`.
        rounds: How many rounds, in all; rounded up to whole batches.
        seed: Of weights and actions; left out: the scenario's.
        settings: The agent's parameters; left out: the paper's.
        checkpoint_every: Updates between two checkpoints.
        tensorboard: Write TensorBoard logs into `out`.
        backend: What plays the rounds.
        progress: Called after each batch with the number of rounds done.

    Returns:
        One row a round: round, split, latency_s, max_energy_j, objective.

    Raises:
        InputError: No such variant, or `out` holds another agent.
    """
    settings = settings or Settings()
    seed = scenario.seed if seed is None else seed
    kind = _variant(variant)
    identity = {
        "scenario": scenario.model_copy(update={"rounds": 1}).model_dump_json(),
        "variant": variant,
        "seed": seed,
        "settings": asdict(settings),
    }
    check_no_link(out)
    out.mkdir(parents=True, exist_ok=True)
    checkpoint = out / CHECKPOINT
    saved = _saved(checkpoint, identity)
    with ExitStack() as stack:
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)  # The networks are too small to share out.
        stack.enter_context(torch.random.fork_rng(devices=[]))
        torch.manual_seed(seed)
        agent = Agent(scenario, kind, settings)
        environment = UavSflEnv(scenario, trajectories=kind.trajectories, backend=backend)
        stack.callback(environment.close)
        history: list[list[float]] = [] if saved is None else saved["history"].tolist()
        observation = _begun(agent, environment, saved)
        log = _logger(out, stack) if tensorboard else None
        updates = len(history) // settings.batch
        while len(history) < rounds:
            observation, losses = _batch(agent, environment, observation, history)
            updates += 1
            if log is not None:
                recent = np.mean(history[-settings.batch :], axis=0)
                losses |= dict(zip(COLUMNS[1:], recent[1:].tolist(), strict=True))
                for name, value in losses.items():
                    log.add_scalar(name, value, len(history))
            if updates % checkpoint_every == 0 or len(history) >= rounds:
                _save(checkpoint, identity, agent, environment, history)
            if progress is not None:
                progress(len(history))
    table = history_table(history)
    write_whole(out / HISTORY, lambda part: table.to_parquet(part, index=False))
    return table


def _saved(checkpoint: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """What a training of the same agent has left; None if there was none.

    Raises:
        InputError: It is another agent's.
    """
    if not checkpoint.exists():
        return None
    saved = _read(checkpoint)
    # Through the model: an agent stays the same when scenarios gain keys.
    old = saved["identity"]
    old["scenario"] = Scenario.model_validate_json(old["scenario"]).model_dump_json()
    for key, value in identity.items():
        if old[key] != value:
            raise InputError(f"`out`: {checkpoint.parent} holds an agent of another {key}")
    return saved


def _begun(agent: Agent, environment: UavSflEnv, saved: dict[str, Any] | None) -> Observation:
    """Begin a training, or put everything where it stood; what is observed then."""
    if saved is None:
        return environment.reset()[0]
    agent.load_state_dict(saved["networks"])
    agent.optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["rng"])
    return environment.resume(environment.scenario.seed, *_standing(saved))


def _batch(
    agent: Agent, environment: UavSflEnv, observation: Observation, history: list[list[float]]
) -> tuple[Observation, dict[str, float]]:
    """Play a batch of rounds and learn from it; the last observation, and the losses.

    Args:
        agent: Acts and is updated.
        environment: Where it acts.
        observation: The last one.
        history: Gets a row of `COLUMNS` a round.
    """
    settings = agent.settings
    observations, actions, rewards = [observation], [], []
    for _ in range(settings.batch):
        made = agent.act(observation, explore=True)
        action = action_of(environment.scenario, made)
        observation, reward, _, ended, info = environment.step(action)
        if ended:
            raise InputError(f"trace: ends after {len(history)} rounds of training")
        observations.append(observation)
        actions.append(made)
        rewards.append(settings.reward_scale * reward)
        history.append(
            [
                info["round"],
                int(environment.allocation.splits[0]),
                info["latency_s"],
                info["max_energy_j"],
                info["objective"],
            ]
        )
    return observation, agent.update(observations, actions, torch.tensor(rewards))


COLUMNS = ("round", "split", "latency_s", "max_energy_j", "objective")


def history_table(history: list[list[float]]) -> pd.DataFrame:
    """The rounds of a training."""
    table = pd.DataFrame(np.array(history).reshape(-1, len(COLUMNS)), columns=list(COLUMNS))
    return table.astype({"round": int, "split": int})


def _variant(name: str) -> Variant:
    if name not in VARIANTS:
        raise InputError(f"variant: must be one of {', '.join(VARIANTS)}, not {name!r}")
    return VARIANTS[name]


def _logger(out: Path, stack: ExitStack) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    log = SummaryWriter(out)
    stack.callback(log.close)
    return log


# --- checkpoints: tensors and plain values only --------------------------------------------------


def _save(
    path: Path,
    identity: dict[str, Any],
    agent: Agent,
    environment: UavSflEnv,
    history: list[list[float]],
) -> None:
    played, allocation = environment.round, environment.allocation
    state = {
        "identity": identity,
        "networks": agent.state_dict(),
        "optimizer": agent.optimizer.state_dict(),
        "rng": torch.get_rng_state(),
        "history": torch.tensor(history, dtype=torch.float64),
        "start_s": played.start_s,
        "latency_s": played.latency_s,
        "energy_j": torch.from_numpy(played.energy_j),
        "shares": {n: torch.from_numpy(getattr(allocation, n)) for n in ("alpha", "beta", "rho")},
        "split": allocation.split,
        "round": played.index,
        "objective": played.objective,
        "paradigm": played.paradigm,
    }
    write_whole(path, lambda part: torch.save(state, part))


def _read(path: Path) -> dict[str, Any]:
    try:
        state = torch.load(path, weights_only=True)
        identity = state["identity"]
        assert {"scenario", "variant", "seed", "settings"} <= identity.keys()
    except FileNotFoundError:
        raise InputError(f"{path}: no such agent; train one first") from None
    except Exception as error:  # whatever torch and zipfile make of a broken file
        raise InputError(f"{path}: not a trained agent ({type(error).__name__})") from None
    return dict(state)


def _standing(saved: dict[str, Any]) -> tuple[Round, Allocation]:
    """The round after which the training was saved, without its steps."""
    shares = {name: values.numpy() for name, values in saved["shares"].items()}
    played = Round(
        index=saved["round"],
        paradigm=saved["paradigm"],
        split=saved["split"],
        start_s=saved["start_s"],
        latency_s=saved["latency_s"],
        energy_j=saved["energy_j"].numpy(),
        objective=saved["objective"],
        spans=np.zeros(0, SPAN),
    )
    return played, Allocation(saved["split"], **shares)


# --- the trained agent as a policy ---------------------------------------------------------------


def agent_policy(scenario: Scenario, path: Path) -> Decide:
    """A policy that does what a trained agent finds likeliest (split) or means to give (shares).

    Args:
        scenario: The scenario to decide for; it needs as many UAVs as the agent was trained with
            and a paradigm that shares out the same resources.
        path: `agent.pt`, or the folder that holds it.

    Raises:
        InputError: No such agent, or it does not fit the scenario.
    """
    saved = _read(path / CHECKPOINT if path.is_dir() else path)
    identity = saved["identity"]
    trained = Scenario.model_validate_json(identity["scenario"])
    wanted = (scenario.uavs.count, shared_out(scenario.scheme))
    if wanted != (trained.uavs.count, shared_out(trained.scheme)):
        raise InputError(
            f"allocation.agent: {path} decides for {trained.uavs.count} UAVs under "
            f"{trained.paradigm}, not {scenario.uavs.count} under {scenario.paradigm}"
        )
    splits = profile_of(scenario).splits
    if splits != profile_of(trained).splits:
        raise InputError(
            f"allocation.agent: {path} decides on splits of {trained.workload.model}, "
            f"not on the {splits} of {scenario.workload.model}"
        )
    variant = _variant(identity["variant"])
    agent = Agent(scenario, variant, Settings(**identity["settings"]))
    agent.load_state_dict(saved["networks"])

    def decide(now: Situation) -> Allocation:
        if not now.rounds:
            return equal_allocation(scenario)
        observation = observe(
            scenario, now.rounds[-1], now.allocations[-1], now.channel, variant.trajectories
        )
        made = agent.act(observation, explore=False)
        return allocation_of(scenario, action_of(scenario, made))

    return decide
