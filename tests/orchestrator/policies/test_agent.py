# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The agent: attention as the paper writes it, PPO that learns, training that survives a kill."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributions import Categorical, Dirichlet

from ns3_scenarios.trace import Replay
from orchestrator.policies.agent import (
    CHECKPOINT,
    Agent,
    Attention,
    Settings,
    Variant,
    action_of,
    agent_policy,
    positions,
    to_tensors,
    train,
)
from orchestrator.policies.environment import UavSflEnv
from orchestrator.policies.registry import evaluate
from orchestrator.scenario.channel import ns3_source
from orchestrator.scenario.loading import load
from testbed.core.errors import InputError

PAPER_FILE = Path(__file__).parents[3] / "scenarios" / "paper.yaml"
SCENARIO = load(PAPER_FILE)


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def observations(count, scenario=SCENARIO, trajectories=True):
    environment = UavSflEnv(scenario, trajectories=trajectories)
    made = [environment.reset()[0]]
    rng = np.random.default_rng(1)
    while len(made) < count:
        shares = {name: rng.dirichlet(np.full(10, 5.0)) for name in ("alpha", "beta")}
        made.append(environment.step({"split": int(rng.integers(1, 5)), **shares})[0])
    environment.close()
    return made


# --- attention -----------------------------------------------------------------------------------


def attention_by_the_letter(module, path):
    """Eq. (Attention) for one UAV, chi [M, 4], with keys and values written out."""
    d, h, m = module.key.out_features, module.value.out_features, len(path)
    keys = path @ module.key.weight.T + positions(m, d)
    values = path @ module.value.weight.T + positions(m, h)
    query = path[-1] @ module.query.weight.T + positions(m, d)[-1]
    return torch.softmax(keys @ query / math.sqrt(d), 0) @ values


def test_attention_is_the_papers_for_every_length():
    torch.manual_seed(1)
    module = Attention(8, 16)
    lengths = torch.tensor([5, 17, 1])
    paths = torch.randn(3, 4, 17, 4)
    made = module(paths, lengths)
    assert made.shape == (3, 4, 16)
    for b, length in enumerate(lengths):
        for k in range(4):
            expected = attention_by_the_letter(module, paths[b, k, :length])
            torch.testing.assert_close(made[b, k], expected, rtol=1e-4, atol=1e-5)


def test_padding_is_not_seen():
    module = Attention(8, 16)
    paths = torch.randn(1, 2, 9, 4)
    longer = torch.cat([paths, 1e3 * torch.randn(1, 2, 5, 4)], dim=2)
    slots = torch.tensor([9])
    torch.testing.assert_close(module(paths, slots), module(longer, slots))


def test_positional_encodings_are_sinusoidal():
    made = positions(50, 8)
    assert made.shape == (50, 8)
    for m, i in ((0, 0), (7, 1), (49, 3)):
        angle = m / 10_000 ** (2 * i / 8)
        assert made[m, 2 * i] == pytest.approx(math.sin(angle), abs=1e-5)
        assert made[m, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-5)


def test_all_slots_matter_to_policy_and_value():
    one = observations(2)[1]
    agent = Agent(SCENARIO, SHARES, Variant(), Settings())
    before = to_tensors(Settings(), 4, [one])
    moved = one | {"trajectory": one["trajectory"].copy()}
    moved["trajectory"][0, 3] += 300  # one UAV, first slot
    after = to_tensors(Settings(), 4, [moved])
    assert agent.value(before) != agent.value(after)
    assert not torch.equal(agent.policy(before)["beta"].mean, agent.policy(after)["beta"].mean)


SHARES = ("alpha", "beta")


# --- policy and update ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "variant", "branches"),
    [
        ("", Variant(), {"split", "alpha", "beta"}),
        ("", Variant(shares=False), {"split"}),
        ("", Variant(split=False), {"alpha", "beta"}),
        ("", Variant(trajectories=False), {"split", "alpha", "beta"}),
        ("paradigm=pipesfl", Variant(), {"split", "beta", "rho"}),
        ("paradigm=sfl-pp", Variant(), {"split", "alpha", "beta", "rho"}),
        ("radio.access=lte", Variant(), {"split", "alpha"}),
        ("radio.access=lte paradigm=pipesfl", Variant(), {"split"}),
        ("uploads.sharing=sequential", Variant(), {"split", "alpha"}),
    ],
)
def test_variants_decide_what_they_should(keys, variant, branches):
    scenario = load(PAPER_FILE, keys.split())
    environment = UavSflEnv(scenario, trajectories=variant.trajectories)
    agent = Agent(scenario, environment.shares, variant, Settings())
    observation, _ = environment.reset()
    for explore in (True, False):
        made = agent.act(observation, explore)
        assert made.keys() == branches
        action = action_of(scenario, made)
        if variant.shares:
            assert action.keys() == environment.action_space.keys()
        observation, *_ = environment.step(action)
        assert environment.allocation.beta.sum() == pytest.approx(1)
    if not variant.split:
        assert environment.allocation.split == scenario.workload.split
    if not variant.shares:
        np.testing.assert_array_equal(environment.allocation.beta, np.full(10, 0.1))
    environment.close()


def test_policy_starts_near_equal_shares_with_all_splits():
    agent = Agent(SCENARIO, SHARES, Variant(), Settings())
    choices = agent.policy(to_tensors(Settings(), 4, observations(3)))
    assert isinstance(choices["split"], Categorical)
    assert isinstance(choices["beta"], Dirichlet)
    np.testing.assert_allclose(choices["beta"].mean.detach(), 0.1, atol=0.02)
    np.testing.assert_allclose(choices["split"].probs.detach(), 0.25, atol=0.05)


def test_policy_and_value_share_no_weights():
    agent = Agent(SCENARIO, SHARES, Variant(), Settings())
    policy, value = ({id(p) for p in net.parameters()} for net in (agent.policy, agent.value))
    assert not policy & value
    assert agent.policy.trunk.attention is not None
    assert agent.value.trunk.attention is not None
    hidden = [m.out_features for m in agent.value.modules() if isinstance(m, torch.nn.Linear)]
    assert hidden == [8, 8, 16, 128, 64, 32, 1]


def test_update_makes_rewarded_choices_likelier():
    torch.manual_seed(2)
    settings = replace(Settings(), entropy=0.0)
    agent = Agent(SCENARIO, SHARES, Variant(), settings)
    views = observations(13)
    actions = [agent.act(one, explore=True) for one in views[:12]]
    liked = [float(action["beta"][0, 0]) for action in actions]
    rewards = torch.tensor([0.0 if x > np.median(liked) else -1.0 for x in liked])
    before = agent.policy(to_tensors(settings, 4, views))["beta"].mean[:, 0].mean().item()
    for _ in range(5):
        agent.update(views, actions, rewards)
    assert agent.policy(to_tensors(settings, 4, views))["beta"].mean[:, 0].mean().item() > before


def test_value_learns_the_discounted_sum():
    """Rewards of -1 for ever are worth -1 / (1 - gamma) = -2."""
    torch.manual_seed(3)
    agent = Agent(SCENARIO, SHARES, Variant(trajectories=False), Settings())
    views = observations(13, trajectories=False)
    actions = [agent.act(one, explore=True) for one in views[:12]]
    for _ in range(40):
        agent.update(views, actions, torch.full((12,), -1.0))
    values = agent.value(to_tensors(Settings(), 4, views)).detach()
    np.testing.assert_allclose(values, -2.0, atol=0.2)


# --- training ------------------------------------------------------------------------------------


def test_training_survives_a_kill(tmp_path):
    whole = train(SCENARIO, tmp_path / "whole", rounds=48, checkpoint_every=1)

    class Killed(Exception):
        pass

    def kill(done):
        if done >= 24:
            raise Killed

    with pytest.raises(Killed):
        train(SCENARIO, tmp_path / "part", rounds=48, checkpoint_every=1, progress=kill)
    resumed = train(SCENARIO, tmp_path / "part", rounds=48, checkpoint_every=1)
    pd.testing.assert_frame_equal(whole, resumed)
    weights = [
        torch.load(tmp_path / name / CHECKPOINT, weights_only=True)["networks"]
        for name in ("whole", "part")
    ]
    for name, values in weights[0].items():
        assert torch.equal(values, weights[1][name]), name


def test_seeds_decide_a_training(tmp_path):
    runs = [
        train(SCENARIO, tmp_path / str(n), rounds=12, seed=seed, variant="drl-")
        for n, seed in enumerate((1, 1, 2))
    ]
    assert runs[0]["objective"].tolist() == runs[1]["objective"].tolist()
    assert runs[0]["objective"].tolist() != runs[2]["objective"].tolist()


def test_another_agents_folder_is_refused(tmp_path):
    train(SCENARIO, tmp_path, rounds=12, variant="drl-")
    with pytest.raises(InputError, match="variant"):
        train(SCENARIO, tmp_path, rounds=24, variant="drl")
    with pytest.raises(InputError, match="seed"):
        train(SCENARIO, tmp_path, rounds=24, variant="drl-", seed=9)
    with pytest.raises(InputError, match="`variant`: 'dqn' is not one of drl"):
        train(SCENARIO, tmp_path / "new", variant="dqn")


def test_trained_agent_is_a_policy(tmp_path):
    train(SCENARIO, tmp_path, rounds=24)
    with ns3_source(SCENARIO) as source:
        trace = source.trace(2000)
    runs = [
        evaluate(SCENARIO, Replay(trace), agent_policy(SCENARIO, path), rounds=3)
        for path in (tmp_path, tmp_path / CHECKPOINT)
    ]
    assert runs[0]["objective"].tolist() == runs[1]["objective"].tolist()
    assert len(set(runs[0]["objective"])) == 3


def test_policy_refuses_what_is_no_agent_or_does_not_fit(tmp_path):
    with pytest.raises(InputError, match="no such agent"):
        agent_policy(SCENARIO, tmp_path)
    (tmp_path / CHECKPOINT).write_bytes(b"not one")
    with pytest.raises(InputError, match="not a trained agent"):
        agent_policy(SCENARIO, tmp_path)
    train(SCENARIO, tmp_path / "cpsfl", rounds=12, variant="drl-")
    for keys, says in (
        ("paradigm=pipesfl", r"cpsfl with 'shannon', not 10 under pipesfl with 'shannon'"),
        ("radio.access=lte", r"cpsfl with 'shannon', not 10 under cpsfl with 'lte'"),
    ):
        with pytest.raises(InputError, match=rf"allocation\.agent: .* 10 UAVs under {says}"):
            agent_policy(load(PAPER_FILE, [keys]), tmp_path / "cpsfl")


def test_tensorboard_logs_are_written(tmp_path):
    train(SCENARIO, tmp_path, rounds=12, variant="drl-", tensorboard=True)
    assert list(tmp_path.glob("events.out.tfevents.*"))


@pytest.mark.full
def test_training_lowers_the_objective(tmp_path):
    scenario = load(PAPER_FILE, ["workload.local_iterations=5"])
    rows = train(scenario, tmp_path, rounds=1500)
    assert rows["objective"][-300:].mean() < 116  # equal shares give 122
    assert (rows["split"][-300:] == 2).mean() > 0.9
