# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The Gymnasium environment: its contract, and that its rounds are the engine's."""

from contextlib import contextmanager
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from ns3_scenarios.trace import ChannelTrace, RateTrace, Replay
from orchestrator.emulated.backend import emulated_backend
from orchestrator.engine.fdma import ShannonFdma
from orchestrator.engine.lte import Lte
from orchestrator.engine.plan import Allocation
from orchestrator.policies.environment import (
    UavSflEnv,
    allocation_of,
    engine_backend,
    trajectory_of,
)
from orchestrator.policies.shares import least_share, scaled
from orchestrator.rounds.loop import predict
from orchestrator.scenario.channel import ns3_source
from orchestrator.scenario.loading import load
from testbed.core.errors import InputError
from testbed.core.timeline import Round
from workloads.costs.profile import PAPER

PAPER_FILE = Path(__file__).parents[3] / "scenarios" / "paper.yaml"
PAPER_SCENARIO = load(PAPER_FILE)
EQUAL = np.full(10, 0.1)


def equal_action():
    return {"split": 2, "alpha": EQUAL, "beta": EQUAL}


@pytest.fixture(scope="module")
def trace():
    with ns3_source(PAPER_SCENARIO) as source:
        return source.trace(4000)


@pytest.fixture
def environment():
    made = UavSflEnv(PAPER_SCENARIO)
    yield made
    made.close()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("trajectories", [True, False])
@pytest.mark.parametrize("name", ["cpsfl", "pipesfl", "sfl-pp"])
def test_gymnasiums_checker_is_content(name, trajectories):
    scenario = load(PAPER_FILE, [f"paradigm={name}"])
    made = gymnasium.make("UavSfl-v0", scenario=scenario, trajectories=trajectories)
    check_env(made.unwrapped)
    made.close()


def test_a_step_is_the_engines_round(environment, trace):
    environment.reset(seed=PAPER_SCENARIO.seed)
    rng = np.random.default_rng(1)
    actions = [
        {"split": u, "alpha": rng.dirichlet(np.ones(10)), "beta": rng.dirichlet(np.ones(10))}
        for u in (1, 3, 2)
    ]
    rewards, latencies = [], []
    for action in actions:
        _, reward, terminated, truncated, info = environment.step(action)
        rewards.append(reward)
        latencies.append(info["latency_s"])
        assert not terminated
        assert not truncated

    def decide(now):
        if now.index == 0:
            return Allocation(2, EQUAL, EQUAL, EQUAL)
        action = actions[now.index - 1]
        return Allocation(action["split"], scaled(action["alpha"]), scaled(action["beta"]), EQUAL)

    timeline = predict(PAPER_SCENARIO, Replay(trace), PAPER, rounds=4, decide=decide)
    np.testing.assert_allclose(rewards, [-r.objective for r in timeline.rounds[1:]], rtol=1e-12)
    np.testing.assert_allclose(latencies, [r.latency_s for r in timeline.rounds[1:]], rtol=1e-12)


def test_observation_is_the_round_that_was_played(environment, trace):
    environment.reset()
    action = equal_action() | {"split": 3, "beta": np.linspace(1, 2, 10) / 15}
    seen, *_ = environment.step(action)
    played = environment.round
    assert seen["split"] == 3
    np.testing.assert_allclose(seen["beta"], action["beta"], rtol=1e-6)
    np.testing.assert_allclose(seen["energy_j"], played.energy_j, rtol=1e-6)
    assert seen["latency_s"][0] == pytest.approx(played.latency_s, rel=1e-6)
    first = int(played.start_s / 0.1)
    last = int((played.start_s + played.latency_s) / 0.1)
    assert seen["trajectory"].shape == (last - first + 1, 10, 4)
    position = trace.position_m[:, first : last + 1].swapaxes(0, 1)
    np.testing.assert_allclose(seen["trajectory"][..., :3], position, rtol=1e-6)
    distance = np.linalg.norm(position - [0, 0, 30], axis=2)
    np.testing.assert_allclose(seen["trajectory"][..., 3], distance, rtol=1e-6)


def test_without_trajectories_the_last_distances_are_seen(trace):
    both = [
        UavSflEnv(PAPER_SCENARIO, trajectories=whole, source=lambda s: Replay(trace))
        for whole in (True, False)
    ]
    seen = [one.reset()[0] for one in both]
    np.testing.assert_array_equal(seen[1]["distance_m"], seen[0]["trajectory"][-1, :, 3])
    assert "trajectory" not in seen[1]


def test_actions_need_not_be_shares():
    weights = np.arange(10.0)
    action = {"split": 1, "alpha": EQUAL, "beta": 7 * weights}
    made = allocation_of(PAPER_SCENARIO, action, ShannonFdma.of(PAPER_SCENARIO))
    assert made.beta.sum() == pytest.approx(1)
    assert made.beta.min() == pytest.approx(least_share(10))
    assert (np.diff(made.beta) > 0).all()
    np.testing.assert_allclose(made.alpha, EQUAL, rtol=1e-12)


def test_seeds_repeat_and_differ(environment):
    first, _ = environment.reset(seed=3)
    environment.step(equal_action())
    again, _ = environment.reset(seed=3)
    other, _ = environment.reset(seed=4)
    unseeded, _ = environment.reset()
    np.testing.assert_array_equal(first["trajectory"], again["trajectory"])
    assert first["latency_s"] != other["latency_s"]
    assert unseeded["latency_s"] not in (first["latency_s"], other["latency_s"])


def test_episodes_end_when_told_or_with_the_trace(trace):
    told = UavSflEnv(PAPER_SCENARIO, rounds=3)
    told.reset()
    ends = [told.step(equal_action())[3] for _ in range(3)]
    told.close()
    assert ends == [False, False, True]
    short = ChannelTrace(trace.gain[:, :400], 0.1, trace.position_m[:, :400])
    replayed = UavSflEnv(PAPER_SCENARIO, source=lambda scenario: Replay(short))
    replayed.reset()
    ends = [replayed.step(equal_action())[3] for _ in range(3)]
    assert ends == [False, True, True]


def test_any_backend_may_play_the_rounds(trace):
    """A network twice as slow as the engine's: rewards and next starts are its own."""
    starts = []

    class Slower:
        def __init__(self, engine):
            self.engine = engine

        def play(self, decision):
            starts.append(decision.start_s)
            made = vars(self.engine.play(decision))
            return Round(**(made | {"latency_s": 20.0, "objective": 20.0 + decision.index}))

    @contextmanager
    def slow(scenario, channel):
        with engine_backend(scenario, channel) as engine:
            yield Slower(engine)

    made = UavSflEnv(PAPER_SCENARIO, source=lambda s: Replay(trace), backend=slow)
    made.reset()
    rewards = [made.step(equal_action())[1] for _ in range(3)]
    assert rewards == [-21.0, -22.0, -23.0]
    assert starts == [0.0, 20.0, 40.0, 60.0]


def test_vector_version_steps_many_worlds():
    many = gymnasium.make_vec("UavSfl-v0", num_envs=2, scenario=PAPER_SCENARIO)
    seen, _ = many.reset(seed=1)
    assert seen["beta"].shape == (2, 10)
    assert len(seen["trajectory"]) == 2
    action = {name: np.stack([value] * 2) for name, value in equal_action().items()}
    _, rewards, *_ = many.step(action)
    many.close()
    alone = UavSflEnv(PAPER_SCENARIO)
    for seed, reward in zip((1, 2), rewards, strict=True):
        alone.reset(seed=seed)
        assert alone.step(equal_action())[1] == reward
    alone.close()


def test_a_trace_without_positions_is_refused(trace):
    bare = ChannelTrace(trace.gain, 0.1)
    with pytest.raises(InputError, match="position"):
        UavSflEnv(PAPER_SCENARIO, source=lambda scenario: Replay(bare)).reset()
    with pytest.raises(InputError, match="position"):
        trajectory_of(PAPER_SCENARIO, bare, None)


@pytest.mark.parametrize(
    ("keys", "shares"),
    [
        (["radio.access=lte"], ("alpha",)),
        (["radio.access=lte", "radio.lte.scheduler=shares", "paradigm=pipesfl"], ("beta",)),
        (["uploads.adapters_wait_for_all=true"], ("alpha", "beta")),
        (["uploads.sharing=sequential", "workload.batch_size=[4,8,8,8,8,8,8,8,8,16]"], ("alpha",)),
    ],
)
def test_a_step_is_the_engines_round_on_every_radio_and_protocol(trace, keys, shares):
    """Actions and observations have the shares that radio and paradigm leave open."""
    scenario = load(PAPER_FILE, keys)
    made = UavSflEnv(scenario, source=lambda s: Replay(trace))
    assert made.shares == shares
    assert set(made.action_space) == {"split", *shares}
    made.reset()
    weights = np.linspace(1, 2, 10)
    action = {"split": 3} | dict.fromkeys(shares, weights)
    seen, reward, *_ = made.step(action)
    assert set(seen) == {"split", *shares, "energy_j", "latency_s", "trajectory"}

    def decide(now):
        if not now.index:
            return Allocation(2, EQUAL, EQUAL, EQUAL)
        given = (
            weights / weights.sum() if n in shares else EQUAL for n in ("alpha", "beta", "rho")
        )
        return Allocation(3, *given)

    timeline = predict(scenario, Replay(trace), PAPER, rounds=2, decide=decide)
    assert reward == pytest.approx(-timeline[1].objective, rel=1e-12)


def test_actions_give_each_uav_a_block_of_an_lte_cell():
    keys = ["radio.access=lte", "radio.lte.scheduler=shares", "radio.lte.resource_blocks=25"]
    scenario = load(PAPER_FILE, [*keys, "uavs.tx_power_w=[1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"])
    weights = np.array([1.0] + [0.0] * 9)
    made = allocation_of(scenario, {"split": 1, "beta": weights}, Lte.of(scenario))
    assert made.beta.min() == pytest.approx(1 / 25)
    assert made.beta.sum() == pytest.approx(1)


def test_a_trace_of_rates_leaves_the_bandwidth_to_nobody(trace):
    bps = np.full((10, 4000), 2e7)
    for kind, shares in (("link", ()), ("cell", ("rho",))):
        rates = RateTrace(bps, bps, 0.1, position_m=trace.position_m, downlink_is=kind)
        scenario = load(PAPER_FILE, ["paradigm=pipesfl"])
        made = UavSflEnv(scenario, source=lambda s, rates=rates: Replay(rates))
        assert made.shares == shares
        assert "beta" not in made.reset()[0]
        assert made.step({"split": 2} | dict.fromkeys(shares, EQUAL))[1] < 0


def test_an_episode_goes_on_where_it_stood(environment):
    environment.reset(seed=7)
    for _ in range(2):
        expected, *_ = environment.step(equal_action())
    other = UavSflEnv(PAPER_SCENARIO)
    seen = other.resume(7, environment.round, environment.allocation)
    np.testing.assert_array_equal(seen["trajectory"], expected["trajectory"])
    assert other.step(equal_action())[1] == environment.step(equal_action())[1]
    other.close()


def test_rounds_may_be_emulated(tmp_path):
    """A policy on real links: rounds as an emulation measures them, ended with the episode."""
    scenario = load(
        PAPER_FILE.with_name("quickstart.yaml"),
        ["workload.compute=none", "rounds=2", "emulation.dilation=1"],
    )
    equal = {"split": 2, "alpha": [1 / 3] * 3, "beta": [1 / 3] * 3}
    made = UavSflEnv(scenario, backend=emulated_backend(tmp_path))
    predicted = UavSflEnv(scenario)
    try:
        made.reset()
        predicted.reset()
        measured, expected = (one.step(equal)[4]["latency_s"] for one in (made, predicted))
        assert measured == pytest.approx(expected, rel=0.1)
        assert measured > expected, "frames carry headers, which the engine does not count"
        assert made.step(equal)[3], "its scenario has two rounds"
        made.resume(scenario.seed, made.round, made.allocation)
        with pytest.raises(InputError, match="cannot start at"):
            made.step(equal)
    finally:
        made.close()
        predicted.close()
