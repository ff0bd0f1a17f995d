# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The server as a queue: where it is exact, and what it comes to elsewhere."""

import numpy as np
import pytest
from small_scenario import TREE

from orchestrator.analytical.models import ModelResult, model
from orchestrator.analytical.queueing import waiting_s
from orchestrator.engine.fdma import ShannonFdma
from orchestrator.engine.plan import fixed_allocation, plan_round
from orchestrator.rounds.simulation import simulate
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario


def scenario_of(**keys: object) -> Scenario:
    return validate({**TREE, **keys}, "test")


def said_and_played(scenario: Scenario) -> tuple[ModelResult | None, float]:
    gain = np.repeat(10 ** -np.linspace(9.0, 10.0, scenario.uavs.count)[:, None], 2, axis=1)
    plan = plan_round(scenario, profile_of(scenario), fixed_allocation(scenario))
    played = simulate(plan, ShannonFdma.of(scenario), gain, 1e9).latency_s
    return model("mg1", scenario)(plan, ShannonFdma.of(scenario), gain, 1e9), played


def test_a_light_load_waits_as_pollaczek_and_khinchine_say() -> None:
    apart, service = np.full(10, 1000.0), np.linspace(0.5, 1.5, 10)
    rate = 9 / 10 / 1000
    load, second = rate * service.sum(), rate * (service**2).sum()
    expected = second / (2 * (1 - load))
    assert waiting_s(apart, [service]) == pytest.approx(expected, rel=1e-4)


def test_it_is_a_fixed_point_also_where_the_server_is_hardly_ever_free() -> None:
    apart, service = np.linspace(1.0, 2.0, 8), np.linspace(0.9, 1.0, 8)
    waits = waiting_s(apart, [service])
    rate = 7 / 8 / (apart + waits)
    load = rate @ service
    assert 0.5 < load < 1
    assert waits == pytest.approx(rate @ service**2 / (2 * (1 - load)), rel=1e-9)
    both = waiting_s(apart, [service, service])
    assert waits < both < 2 * waits + service.sum()


def test_where_nobody_waits_it_is_exact() -> None:
    for alone in (
        scenario_of(paradigm="sfl-pp"),
        scenario_of(paradigm="cpsfl", uavs={"count": 1, "tx_power_w": 0.4}),
    ):
        said, played = said_and_played(alone)
        assert said is not None
        assert said.low_s == pytest.approx(played, rel=1e-9)


@pytest.mark.parametrize("name", ["cpsfl", "cpsfl-no-ps", "pipesfl", "pipesfl-no-ps"])
def test_it_comes_near_where_they_wait(name: str) -> None:
    said, played = said_and_played(scenario_of(paradigm=name))
    assert said is not None
    assert said.low_s == pytest.approx(played, rel=0.25)
    assert not said.is_interval


def test_it_says_nothing_of_gates_and_outages() -> None:
    assert said_and_played(scenario_of(paradigm="cpsfl-no-at"))[0] is None
    scenario = scenario_of()
    plan = plan_round(scenario, profile_of(scenario), fixed_allocation(scenario))
    assert model("mg1", scenario)(plan, ShannonFdma.of(scenario), np.zeros((3, 2)), 1.0) is None
