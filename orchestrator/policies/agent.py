# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The paper's agent: PPO with attention over the last round's trajectories.

Section IV of the paper gives its architecture and sizes; other parameters are in `Settings`. An
action is a split point (categorical) and, for each resource that the paradigm does not fix, the
shares (Dirichlet, with log-probabilities before the linear scaling).
"""

import io
import json
import math
import zipfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Dirichlet

from orchestrator.engine.plan import Allocation
from orchestrator.engine.radio import of_gains
from orchestrator.policies.environment import (
    Action,
    MakeBackend,
    Observation,
    UavSflEnv,
    allocation_of,
    engine_backend,
    equal_allocation,
    observe,
)
from orchestrator.policies.shares import decided_shares
from orchestrator.rounds.loop import Decide, Situation
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.timeline import SPAN, Round
from testbed.core.words import not_one_of
from testbed.system.files import check_no_link, opened_regular, write_whole
from testbed.system.zips import check_entries

CHECKPOINT = "agent.pt"
HISTORY = "rounds.parquet"
MOMENTS = ("exp_avg", "exp_avg_sq")
"""What Adam keeps of a parameter."""
_ALIGNED = 16
"""Numbers of float32 after which a new tensor could begin: 64 bytes."""
MOST_BYTES, MOST_ENTRIES, MOST_SIZE = 256 << 20, 10_000, 4096
"""Limits of an agent's file: bytes, arrays, and neurons of a layer."""


@dataclass(frozen=True)
class Settings:
    """The agent's parameters: those of the paper, and those that the paper does not give."""

    gamma: float = 0.5
    """Discount factor."""
    learning_rate: float = 3e-4
    """Learning rate of policy and value."""
    batch: int = 12
    """B_m: number of rounds between two updates."""
    key_size: int = 8
    """D_S: size of keys and queries."""
    feature_size: int = 16
    """H: number of features per UAV."""
    hidden: tuple[int, int, int] = (128, 64, 32)
    gae_lambda: float = 0.95
    """Not given in the paper, like all following parameters."""
    clip: float = 0.2
    epochs: int = 10
    entropy: float = 0.01
    max_grad_norm: float = 0.5
    reward_scale: float = 0.01
    """Scale of rewards, and of observed times and energies."""
    metres: float = 1e-3
    """Scale of coordinates in m."""
    concentration: float = 400.0
    """Initial concentration per Dirichlet component: larger means closer to equal shares."""
    logit_scale: float = 0.3
    """Scale of the shares' logits: with 1, an update moves shares by more than their spread, PPO's
    clipping then stops all branches, and learning stalls (objective 115; below 107 with 0.3)."""


@dataclass(frozen=True)
class Variant:
    """The observations and the decisions of an agent."""

    trajectories: bool = True
    """Whether the agent observes all slots of the last round by attention; otherwise distances at
    its end."""
    shares: bool = True
    """Whether the agent decides shares; otherwise they are equal."""
    split: bool = True
    """Whether the agent decides the split point; otherwise the scenario does."""


VARIANTS = {
    "drl": Variant(),
    "drl-": Variant(trajectories=False),
    "fixed-ra": Variant(shares=False),
    "fixed-u": Variant(split=False),
}
"""The paper's variants DRL, DRL(-), fixed RA and u = ũ. PipeSFL's agent is `drl` on `pipesfl`."""


# --- networks ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ObservationBatch:
    """Observations of B rounds as tensors."""

    state: Tensor
    """Shape [B, D]: last decision, energies, latency, and distances if there is no trajectory."""
    trajectory: Tensor
    """Shape [B, K, M, 4], padded at the end of shorter rounds; M = 0 without trajectories."""
    slots: Tensor
    """Shape [B]: number of slots of each round."""

    def take(self, index: slice) -> "ObservationBatch":
        """Some of the rounds."""
        return ObservationBatch(self.state[index], self.trajectory[index], self.slots[index])


_NO_PATH = torch.zeros(0, 1, 4)


def to_tensors(
    settings: Settings, splits: int, observations: list[Observation]
) -> ObservationBatch:
    """Scaled tensors of observations; `splits` is the number of possible split points."""
    states, paths = [], []
    for one in observations:
        parts = [np.eye(splits)[int(one["split"]) - 1]]
        parts += [one[name] for name in ("alpha", "beta", "rho") if name in one]
        parts += [settings.reward_scale * one[name] for name in ("energy_j", "latency_s")]
        if "distance_m" in one:
            parts.append(settings.metres * one["distance_m"])
        states.append(np.concatenate(parts))
        paths.append(torch.from_numpy(one["trajectory"]) if "trajectory" in one else _NO_PATH)
    longest = max(map(len, paths))
    padded = torch.zeros(len(paths), longest, 1, 4)
    if longest:
        padded = settings.metres * nn.utils.rnn.pad_sequence(paths, batch_first=True)
    return ObservationBatch(
        torch.tensor(np.array(states), dtype=torch.float32),
        padded.transpose(1, 2).contiguous(),
        torch.tensor([len(path) for path in paths]),
    )


class Attention(nn.Module):
    """Eq. (Attention): features of a UAV's trajectory, with a query from its last slot.

    There is one query and many slots, so keys and values are not calculated: the query is
    multiplied by W_K, and the weighted mean of the slots by W_V.
    """

    def __init__(self, key_size: int, feature_size: int):
        super().__init__()
        self.query = _linear(4, key_size, bias=False)
        self.key = _linear(4, key_size, bias=False)
        self.value = _linear(4, feature_size, bias=False)

    def forward(self, trajectory: Tensor, slots: Tensor) -> Tensor:
        """Features, shape [B, K, H], of trajectories, shape [B, K, M, 4]."""
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


@lru_cache(maxsize=4)  # An update needs those of one length some forty times.
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
    """Feature extractor and first two hidden layers; policy and value have separate ones."""

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

    def forward(self, seen: ObservationBatch) -> Tensor:
        """Hidden features, shape [B, 64]."""
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
    """Policy π: distributions over split points and over each resource's shares.

    It has only the branches that the variant decides.
    """

    def __init__(
        self, settings: Settings, clients: int, state_size: int, variant: Variant,
        names: Sequence[str], splits: int,
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

    def forward(self, seen: ObservationBatch) -> dict[str, Categorical | Dirichlet]:
        """A distribution for each branch."""
        hidden = self.trunk(seen)
        made: dict[str, Categorical | Dirichlet] = {}
        for name, branch in self.branches.items():
            if name == "split":
                made[name] = Categorical(logits=branch(hidden), validate_args=False)
            else:
                logits = self.settings.logit_scale * branch(hidden)
                concentration = self.settings.concentration * logits.exp()
                made[name] = Dirichlet(concentration, validate_args=False)
        return made


class Value(nn.Module):
    """Value function V, with its own feature extractor."""

    def __init__(self, settings: Settings, clients: int, state_size: int, trajectories: bool):
        super().__init__()
        self.trunk = Trunk(settings, clients, state_size, trajectories)
        self.branch = _branch(settings, 1, 1.0)

    def forward(self, seen: ObservationBatch) -> Tensor:
        """Values, shape [B]."""
        value: Tensor = self.branch(self.trunk(seen))
        return value.squeeze(-1)


class Agent(nn.Module):
    """Policy and value function, and their training."""

    def __init__(
        self, scenario: Scenario, names: Sequence[str], variant: Variant, settings: Settings
    ):
        super().__init__()
        clients = scenario.uavs.count
        self.splits = splits = profile_of(scenario).splits
        state_size = splits + (len(names) + 1) * clients + 1
        state_size += 0 if variant.trajectories else clients
        self.variant, self.settings = variant, settings
        self.policy = Policy(settings, clients, state_size, variant, names, splits)
        self.value = Value(settings, clients, state_size, variant.trajectories)
        self._flat, self._begins = _flat(self)
        self.optimizer = torch.optim.Adam([self._flat], lr=settings.learning_rate, eps=1e-5)

    @torch.no_grad()
    def act(self, observation: Observation, explore: bool) -> dict[str, Tensor]:
        """A choice [1, ...] per branch: a sample, or the likeliest split and the mean shares."""
        made: dict[str, Tensor] = {}
        batch = to_tensors(self.settings, self.splits, [observation])
        for name, choice in self.policy(batch).items():
            if explore:
                made[name] = choice.sample()
            else:
                made[name] = choice.probs.argmax(-1) if name == "split" else choice.mean
        return made

    def update(
        self, observations: list[Observation], actions: list[dict[str, Tensor]], rewards: Tensor
    ) -> dict[str, float]:
        """Update with PPO on B consecutive rounds; there are B + 1 observations."""
        s = self.settings
        everything = to_tensors(s, self.splits, observations)
        batch = everything.take(slice(len(actions)))
        taken = {name: torch.cat([action[name] for action in actions]) for name in actions[0]}
        with torch.no_grad():
            values = self.value(everything)
            advantages = torch.empty_like(rewards)
            carried = torch.zeros(())
            for t in reversed(range(len(rewards))):  # episodes do not end
                surprise = rewards[t] + s.gamma * values[t + 1] - values[t]
                carried = surprise + s.gamma * s.gae_lambda * carried
                advantages[t] = carried
            returns = advantages + values[:-1]
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        gradient = self._flat.grad
        assert gradient is not None
        grads = [
            [each.grad for each in network.parameters() if each.grad is not None]
            for network in (self.policy, self.value)
        ]
        end = self._begins[len(grads[0])]
        parts = list(zip((gradient[:end], gradient[end:]), grads, strict=True))
        for epoch in range(s.epochs):
            log_prob, entropy = self._log_prob(batch, taken)
            if not epoch:
                old_log_prob = log_prob.detach()
            ratio = (log_prob - old_log_prob).exp()
            clipped = ratio.clamp(1 - s.clip, 1 + s.clip)
            policy_loss = -torch.min(ratio * advantages, clipped * advantages).mean()
            value_loss = 0.5 * (self.value(batch) - returns).square().mean()
            loss = policy_loss - s.entropy * entropy.mean() + value_loss
            gradient.zero_()
            loss.backward()
            # Policy and value have separate parameters; their gradients are clipped separately.
            for part, own in parts:
                norm = nn.utils.get_total_norm(own)
                part.mul_((s.max_grad_norm / (norm + 1e-6)).clamp(max=1.0))
            self.optimizer.step()
        return {
            "policy_loss": policy_loss.item(),
            "value_loss": value_loss.item(),
            "entropy": entropy.mean().item(),
            "change": (ratio - 1).abs().mean().item(),
        }

    def optimizer_state(self) -> dict[str, Any]:
        """The state of the optimizer as if it had a tensor per parameter."""
        whole, states = self.optimizer.state_dict(), {}
        of_flat, (group,) = whole["state"][0], whole["param_groups"]
        for number, (begin, each) in enumerate(zip(self._begins, self.parameters(), strict=False)):
            own = slice(begin, begin + each.numel())
            states[number] = {"step": of_flat["step"].clone()} | {
                name: of_flat[name][own].view_as(each).clone() for name in MOMENTS
            }
        return {"state": states, "param_groups": [group | {"params": list(states)}]}

    def load_optimizer_state(self, saved: dict[str, Any]) -> None:
        """Restore what `optimizer_state` returned."""
        states, (group,) = saved["state"], saved["param_groups"]
        moments = {name: torch.zeros_like(self._flat) for name in MOMENTS}
        for begin, state in zip(self._begins, states.values(), strict=False):
            for name, whole in moments.items():
                whole[begin : begin + state[name].numel()] = state[name].flatten()
        state = {0: {"step": states[0]["step"], **moments}}
        self.optimizer.load_state_dict({"state": state, "param_groups": [group | {"params": [0]}]})

    def _log_prob(self, batch: ObservationBatch, taken: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Log-probabilities of actions and entropies, each of shape [B]."""
        choices = self.policy(batch)
        log_prob = sum(choice.log_prob(taken[name]) for name, choice in choices.items())
        return log_prob, sum(choice.entropy() for choice in choices.values())


def _flat(module: nn.Module) -> tuple[Tensor, list[Tensor]]:
    """All parameters as one tensor, and where each of them begins in it, so that an optimizer needs
    a few operations per step instead of a few for each parameter.

    Each parameter begins where a new tensor could, because the last bits of a product depend on it.
    """
    parameters = list(module.parameters())
    begins = np.cumsum([0, *(each.numel() + -each.numel() % _ALIGNED for each in parameters)])
    whole, gradient = torch.zeros(2, int(begins[-1]))
    for begin, each in zip(begins.tolist(), parameters, strict=False):
        own = slice(begin, begin + each.numel())
        whole[own] = each.detach().flatten()
        each.data, each.grad = whole[own].view_as(each), gradient[own].view_as(each)
    whole.grad = gradient
    return whole, begins.tolist()


def action_of(scenario: Scenario, made: dict[str, Tensor]) -> Action:
    """The environment's action; undecided parts are the scenario's split and equal shares."""
    action: Action = {"split": scenario.workload.deepest_split}
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
    """Train an agent, round after round, on the trace of the scenario's seed.

    It writes `agent.pt`, from which an interrupted training resumes with the same results, and
    `rounds.parquet` to `out`.

    Args:
        scenario: The scenario to train on.
        out: Output folder; a training of the same agent in it is resumed.
        variant: One of `VARIANTS`.
        rounds: Total number of rounds, rounded up to whole batches.
        seed: Seed of weights and actions (default: the scenario's).
        settings: Parameters of the agent (default: the paper's).
        checkpoint_every: Number of updates between two checkpoints.
        tensorboard: Whether to write TensorBoard logs to `out`.
        backend: Makes the backend that executes the rounds.
        progress: Called after each batch with the number of finished rounds.

    Returns:
        One row per round: round, split, latency_s, max_energy_j, objective.

    Raises:
        InputError: There is no such variant, or `out` contains another agent.
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
    environment = UavSflEnv(scenario, trajectories=kind.trajectories, backend=backend)
    check_no_link(out)
    out.mkdir(parents=True, exist_ok=True)
    checkpoint = out / CHECKPOINT
    saved = _saved(checkpoint, identity)
    with ExitStack() as stack:
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)  # The networks are too small for several threads.
        stack.enter_context(torch.random.fork_rng(devices=[]))
        torch.manual_seed(seed)
        agent = Agent(scenario, environment.shares, kind, settings)
        stack.callback(environment.close)
        history: list[list[float]] = [] if saved is None else saved["history"].tolist()
        observation = _start(agent, environment, saved)
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
    """The checkpoint of an earlier training of the same agent; None if there is none.

    Raises:
        InputError: The checkpoint is of another agent.
    """
    if not checkpoint.exists():
        return None
    saved = _read(checkpoint)
    # Validation adds keys that scenarios have gained since.
    old = saved["identity"]
    old["scenario"] = Scenario.model_validate_json(old["scenario"]).model_dump_json()
    for key, value in identity.items():
        if old[key] != value:
            raise InputError(f"`out`: {checkpoint.parent} contains an agent of another {key}")
    return saved


def _start(agent: Agent, environment: UavSflEnv, saved: dict[str, Any] | None) -> Observation:
    """Start or resume a training; returns the first observation."""
    if saved is None:
        return environment.reset()[0]
    agent.load_state_dict(saved["networks"])
    agent.load_optimizer_state(saved["optimizer"])
    torch.set_rng_state(saved["rng"])
    return environment.resume(environment.scenario.seed, *_last_round(saved))


def _batch(
    agent: Agent, environment: UavSflEnv, observation: Observation, history: list[list[float]]
) -> tuple[Observation, dict[str, float]]:
    """Execute a batch of rounds and update the agent; returns the last observation and losses.

    Args:
        agent: Acts and is updated.
        environment: Executes the actions.
        observation: The current observation.
        history: Gets a row of `COLUMNS` per round.
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
    """The rounds of a training as a table."""
    table = pd.DataFrame(np.array(history).reshape(-1, len(COLUMNS)), columns=list(COLUMNS))
    return table.astype({"round": int, "split": int})


def _variant(name: str) -> Variant:
    if name not in VARIANTS:
        raise InputError(f"`variant`: {not_one_of(name, VARIANTS)}")
    return VARIANTS[name]


def _logger(out: Path, stack: ExitStack) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    log = SummaryWriter(out)
    stack.callback(log.close)
    return log


# --- checkpoints: tensors and JSON values only ---------------------------------------------------


def _save(
    path: Path,
    identity: dict[str, Any],
    agent: Agent,
    environment: UavSflEnv,
    history: list[list[float]],
) -> None:
    played, allocation = environment.round, environment.allocation
    networks = agent.state_dict()
    networks.update({name: values.clone() for name, values in networks.items()})
    state = {
        "identity": identity,
        "networks": networks,
        "optimizer": agent.optimizer_state(),
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
    buffer = io.BytesIO()  # torch would write the name of a file into it.
    torch.save(state, buffer)
    write_whole(path, lambda part: part.write_bytes(buffer.getvalue()))


def _read(path: Path) -> dict[str, Any]:
    try:
        with opened_regular(path, MOST_BYTES) as (file, _):
            check_entries(file, MOST_ENTRIES)
            if sum(entry.file_size for entry in zipfile.ZipFile(file).infolist()) > MOST_BYTES:
                raise ValueError(f"expands to more than {MOST_BYTES:,} bytes")
            file.seek(0)
            state = torch.load(file, weights_only=True)
        identity = state["identity"]
        assert {"scenario", "variant", "seed", "settings"} <= identity.keys()
    except FileNotFoundError:
        raise InputError(f"{path}: no such agent; train one first") from None
    except ValueError as error:
        raise InputError(f"{path}: not a trained agent ({str(error)[:200]})") from None
    except Exception as error:  # torch raises many kinds for broken files
        raise InputError(f"{path}: not a trained agent ({type(error).__name__})") from None
    return dict(state)


def _check_sizes(settings: Settings) -> None:
    """Refuse sizes of networks that no agent has.

    Raises:
        ValueError: A size is not a whole number from 1 to `MOST_SIZE`.
    """
    sizes = (settings.key_size, settings.feature_size, *settings.hidden)
    if len(sizes) != 5 or not all(type(n) is int and 0 < n <= MOST_SIZE for n in sizes):
        raise ValueError("sizes of networks")


def _last_round(saved: dict[str, Any]) -> tuple[Round, Allocation]:
    """The last round before the checkpoint, without its steps, and its allocation."""
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
    """The policy of a trained agent: its likeliest split and mean shares.

    Args:
        scenario: The scenario to decide for; it must have the same number of UAVs as in training,
            and a paradigm and a radio that divide the same resources.
        path: Path of `agent.pt`, or of its folder.

    Raises:
        InputError: There is no such agent, or it does not fit the scenario.
    """
    saved = _read(path / CHECKPOINT if path.is_dir() else path)
    identity = saved["identity"]
    where = f"allocation.agent: {path}"
    try:
        tree = json.loads(identity["scenario"])
        tree["workload"].setdefault("classes", 2)  # Else, validation would read a language model.
        settings = Settings(**identity["settings"])
        _check_sizes(settings)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(f"{where} is not a trained agent ({type(error).__name__})") from None
    trained = validate(tree, where)
    radio = of_gains(scenario)
    shares = decided_shares(scenario.scheme, radio)
    wanted = scenario.uavs.count, shares
    if wanted != (trained.uavs.count, decided_shares(trained.scheme, of_gains(trained))):
        raise InputError(
            f"{where} decides for {trained.uavs.count} UAVs under "
            f"{trained.paradigm} with {trained.radio.access!r}, not {scenario.uavs.count} under "
            f"{scenario.paradigm} with {scenario.radio.access!r}"
        )
    variant = _variant(identity["variant"])
    agent = Agent(scenario, shares, variant, settings)
    try:
        agent.load_state_dict(saved["networks"])
    except (KeyError, TypeError, AttributeError, RuntimeError):  # torch's, for other sizes
        raise InputError(
            f"{where} decides on splits of {trained.workload.model}, not on the {agent.splits} of "
            f"{scenario.workload.model}"
        ) from None

    def decide(now: Situation) -> Allocation:
        if not now.rounds:
            return equal_allocation(scenario)
        last = now.rounds[-1], now.allocations[-1]
        observation = observe(scenario, shares, *last, now.channel, variant.trajectories)
        made = agent.act(observation, explore=False)
        return allocation_of(scenario, action_of(scenario, made), radio)

    return decide
