# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Channels that whoever decides knows late, or with noise."""

from typing import Any

import numpy as np
import pytest

from ns3_scenarios.trace import ChannelTrace, Replay
from orchestrator.engine.plan import fixed_allocation
from orchestrator.policies.environment import UavSflEnv
from orchestrator.policies.planner import forecast
from orchestrator.policies.registry import decider
from orchestrator.rounds.loop import Situation, predict
from orchestrator.scenario.channel import observed
from orchestrator.scenario.loading import validate
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from workloads.costs.profile import PAPER

SLOTS = 4000


def scenario(**observation: Any) -> Scenario:
    allocation = {"policy": "planner", "observation": observation}
    return validate({"uavs": {"tx_power_w": [1, 0.4]}, "allocation": allocation}, "test")


def outward() -> ChannelTrace:
    """Two UAVs that fly outward at 1 m a slot; gains tell the slot."""
    x = 200.0 + np.arange(SLOTS)
    position = np.stack([np.stack([x, 0 * x, 0 * x + 20], axis=1)] * 2)
    return ChannelTrace(1e-9 / (1 + np.arange(SLOTS) / SLOTS) * np.ones((2, 1)), 0.1, position)


def seen(chosen: Scenario) -> list[Situation]:
    """What a policy is told over three rounds."""
    told: list[Situation] = []

    def decide(now: Situation) -> Any:
        told.append(now)
        return fixed_allocation(chosen)

    given = chosen.model_copy(update={"rounds": 3})
    predict(given, Replay(outward()), PAPER, decide=decide)
    return told


def test_what_is_known_is_as_late_as_it_says() -> None:
    prompt, late = seen(scenario()), seen(scenario(delay_slots=20))
    for now, then in zip(prompt, late, strict=True):
        assert then.channel.slots == max(1, now.channel.slots - 20)
        assert then.channel.gain[0, -1] == outward().gain[0, then.channel.slots - 1]
        assert then.channel.position_m is not None
        assert then.channel.position_m.shape[1] == then.channel.slots
    assert late[0].channel.slots == 1  # the first slot is known always


def test_noise_is_of_its_size_and_stays() -> None:
    chosen = scenario(noise_db=3.0)
    known = observed(chosen, outward())
    error_db = 10 * np.log10(known.gain / outward().gain)
    assert error_db.std() == pytest.approx(3.0, rel=0.05)
    assert abs(error_db.mean()) < 0.15
    assert abs(np.corrcoef(error_db)[0, 1]) < 0.05
    before = observed(chosen, outward().first(50))
    np.testing.assert_array_equal(before.gain, known.gain[:, :50])
    other = chosen.model_copy(update={"seed": 9})
    assert (observed(other, outward()).gain != known.gain).all()


def test_noise_leaves_outages_and_directions_apart() -> None:
    whole = outward()
    gain = whole.gain.copy()
    gain[1, 5] = 0.0
    both = ChannelTrace(gain, 0.1, gain_down=gain.copy())
    known = observed(scenario(noise_db=3.0), both)
    assert known.gain[1, 5] == 0.0
    assert known.gain_down is not None
    assert (known.gain_down[0] != known.gain[0]).all()


def test_the_planner_reckons_with_the_delay() -> None:
    """It knows how old what it knows is, and flies the UAVs on from there."""
    trace = outward().first(101)
    now = forecast(scenario(), trace, 10.0, 1)
    then = forecast(scenario(), trace.first(51), 10.0, 1)
    assert isinstance(now, np.ndarray)
    assert isinstance(then, np.ndarray)
    # 50 slots later it is 50 m further; by its own path loss the planner makes up for most of it.
    path_loss_db = -10 * np.log10(then / trace.gain[:, 50:51])
    assert (path_loss_db > 0).all()


@pytest.mark.parametrize(
    "observation", [{"delay_slots": 30}, {"noise_db": 6.0}, {"position_noise_m": 50.0}]
)
def test_a_planner_that_knows_less_decides_otherwise(observation: Any) -> None:
    def first(chosen: Scenario) -> Any:
        decide = decider(chosen, Replay(outward()))
        assert decide is not None
        told = []

        def noted(now: Situation) -> Any:
            told.append(decide(now))
            return told[-1]

        predict(chosen.model_copy(update={"rounds": 2}), Replay(outward()), PAPER, decide=noted)
        return told[-1]

    assert (first(scenario()).beta != first(scenario(**observation)).beta).any()


def test_an_agent_sees_positions_as_late() -> None:
    def last_seen(**observation: Any) -> tuple[Any, Any]:
        environment = UavSflEnv(scenario(**observation), source=lambda _: Replay(outward()))
        seen, _ = environment.reset()
        environment.close()
        return seen["trajectory"], environment.round.end_s

    prompt, end_s = last_seen()
    late, _ = last_seen(delay_slots=20)
    assert prompt.shape == late.shape or len(late) == len(prompt) - 20
    np.testing.assert_allclose(prompt[-1, :, 0], 200 + int(end_s / 0.1 + 1e-6))
    np.testing.assert_allclose(late[-1, :, 0], prompt[-1, :, 0] - 20)


def test_noise_of_positions_is_of_its_size_stays_and_reaches_the_agent() -> None:
    chosen, whole = scenario(position_noise_m=5.0), outward()
    assert whole.position_m is not None
    known = observed(chosen, whole)
    assert known.position_m is not None
    error_m = known.position_m - whole.position_m
    assert (error_m[..., 2] == 0).all()
    assert error_m[..., :2].std() == pytest.approx(5.0, rel=0.05)
    before = observed(chosen, whole.first(50)).position_m
    np.testing.assert_array_equal(before, known.position_m[:, :50])
    np.testing.assert_array_equal(known.gain, whole.gain)

    def seen(seed: int) -> Any:
        environment = UavSflEnv(chosen, source=lambda _: Replay(whole))
        observation, _ = environment.reset(seed=seed)
        environment.close()
        return observation["trajectory"]

    first, other = seen(1), seen(2)
    np.testing.assert_allclose(
        first[:, :, :3], known.position_m[:, : len(first)].swapaxes(0, 1), rtol=1e-6
    )
    assert (first[:, :, :2] != other[:, :, :2]).all()


@pytest.mark.parametrize(
    ("observation", "says"),
    [
        ({"delay_slots": -1}, "allocation.observation.delay_slots: must be a"),
        ({"noise_db": "loud"}, "allocation.observation.noise_db: must be a number"),
        ({"delay": 1}, "allocation.observation.delay: no such key; did you mean 'delay_slots'?"),
    ],
)
def test_a_wrong_observation_is_one_line(observation: Any, says: str) -> None:
    with pytest.raises(InputError) as raised:
        scenario(**observation)
    assert says in str(raised.value)


def test_a_scenario_that_knows_all_is_written_down_as_before() -> None:
    assert "observation" not in scenario().model_dump()["allocation"]
    given = scenario(delay_slots=3).model_dump()["allocation"]["observation"]
    assert given == {"delay_slots": 3, "noise_db": 0.0}
