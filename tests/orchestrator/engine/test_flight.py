# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The energy of flight, compared with the equation of Zeng, Xu and Zhang (2019) in numpy."""

import json

import numpy as np
import pandas as pd
import pytest

import orchestrator as tb
from ns3_scenarios.trace import ChannelTrace, RateTrace
from orchestrator.engine.flight import flight_cost, power_w
from orchestrator.policies.planner import Outlook
from orchestrator.records.timelines import energy_table, timeline_of
from orchestrator.scenario.schema import Propulsion
from testbed.core.errors import InputError

K, SLOT_S, SLOTS = 3, 0.1, 3000
SPEED = np.array([0.0, 10.0, 25.0])
TIME = np.arange(SLOTS) * SLOT_S
PLACE = np.stack([SPEED[:, None] * TIME, np.zeros((K, SLOTS)), np.full((K, SLOTS), 50.0)], axis=-1)
TRACE = ChannelTrace(np.full((K, SLOTS), 1e-9), SLOT_S, PLACE)


def scenario(**more):
    keys = {"rounds": 2, "workload.compute": "none", "propulsion.model": "rotary-wing"}
    return tb.load("quickstart", keys | {k.replace("__", "."): v for k, v in more.items()})


def zeng(v):
    """Eq. (12) with the parameters of the paper's table 1."""
    density, solidity, area, drag, tip = 1.225, 0.05, 0.503, 0.6, 120.0
    profile, weight = 0.012, 20.0
    hover = profile / 8 * density * solidity * area * tip**3
    induced = 1.1 * weight**1.5 / np.sqrt(2 * density * area)
    v0 = np.sqrt(weight / (2 * density * area))
    return (
        hover * (1 + 3 * v**2 / tip**2)
        + induced * np.sqrt(np.sqrt(1 + v**4 / (4 * v0**4)) - v**2 / (2 * v0**2))
        + 0.5 * drag * density * solidity * area * v**3
    )


def test_the_power_is_that_of_the_paper():
    speeds = np.linspace(0, 40, 81)
    own = power_w(Propulsion(model="rotary-wing"), speeds, np.zeros_like(speeds))
    # The paper rounds its constants to four digits.
    np.testing.assert_allclose(own, zeng(speeds), rtol=1e-3)
    assert own[0] == pytest.approx(168.4842, rel=1e-9)
    assert speeds[own.argmin()] == pytest.approx(10.2, abs=0.5)
    climbing = power_w(Propulsion(model="rotary-wing"), speeds, np.full_like(speeds, 3.0))
    np.testing.assert_allclose(climbing - own, 60.0)
    sinking = power_w(Propulsion(model="rotary-wing"), speeds, np.full_like(speeds, -3.0))
    np.testing.assert_array_equal(sinking, own)


def test_a_table_is_interpolated():
    given = Propulsion(model="table", table=[(0, 100), (10, 60), (20, 200)], weight_n=0)
    found = power_w(given, np.array([0, 5, 10, 15, 20, 90.0]), np.zeros(6))
    np.testing.assert_allclose(found, [100, 80, 60, 130, 200, 200])


def test_a_round_counts_the_flight_over_its_time_and_nothing_else_changes():
    plain, flown = (
        tb.predict(scenario(propulsion__model=model), TRACE) for model in ("none", "rotary-wing")
    )
    watts = power_w(Propulsion(model="rotary-wing"), SPEED, np.zeros(K))
    for before, after in zip(plain, flown, strict=True):
        assert before.flight_energy_j is None
        np.testing.assert_allclose(after.flight_energy_j, watts * after.latency_s, rtol=1e-9)
        np.testing.assert_array_equal(before.energy_j, after.energy_j)
        assert before.objective == after.objective
    assert "max_flight_energy_j" not in plain.summary()
    assert flown.summary()["max_flight_energy_j"].tolist() == [
        each.flight_energy_j.max() for each in flown
    ]
    assert "flight_energy_j" not in json.dumps(plain.to_json())
    assert flown.to_json()[1]["flight_energy_j"] == flown[1].flight_energy_j.tolist()


def test_a_speed_that_changes_counts_slot_by_slot():
    rng = np.random.default_rng(1)
    place = np.cumsum(rng.normal(0, 1, (K, SLOTS, 3)), axis=1) + np.array([0, 0, 500])
    made = tb.predict(scenario(), ChannelTrace(np.full((K, SLOTS), 1e-9), SLOT_S, place))
    for round_ in made:
        energy_j = np.zeros(K)
        last = int(np.ceil(round_.end_s / SLOT_S)) - 1
        for s in range(int(round_.start_s / SLOT_S), last + 1):
            seconds = min((s + 1) * SLOT_S, round_.end_s) - max(s * SLOT_S, round_.start_s)
            here = min(s, last - 1)
            step = (place[:, here + 1] - place[:, here]) / SLOT_S
            v = np.hypot(step[:, 0], step[:, 1])
            energy_j += seconds * (
                power_w(Propulsion(model="rotary-wing"), v, np.zeros(K))
                + 20 * np.maximum(step[:, 2], 0)
            )
        np.testing.assert_allclose(round_.flight_energy_j, energy_j, rtol=1e-9)


def test_the_objective_and_planners_count_it_with_its_weight():
    weighted = scenario(objective__flight_energy_weight=0.02)
    plain, made = (tb.predict(each, TRACE) for each in (scenario(), weighted))
    for before, after in zip(plain, made, strict=True):
        cost = 0.02 * after.flight_energy_j.max()
        assert after.objective == pytest.approx(before.objective + cost, rel=1e-12)
    cost = flight_cost(weighted, TRACE, 0.0)
    assert cost == pytest.approx(0.02 * power_w(weighted.propulsion, SPEED, np.zeros(K)).max())
    assert flight_cost(scenario(), TRACE, 0.0) == 0
    assert Outlook.__dataclass_fields__["flight_cost"].default == 0
    # It is worth a shorter round even where the energy of the UAVs is large.
    keys = {"allocation__policy": "planner", "objective__energy_weight": 20.0}
    slow, fast = (
        tb.predict(scenario(**keys, objective__flight_energy_weight=weight), TRACE)
        for weight in (0, 2.0)
    )
    assert fast[1].latency_s <= slow[1].latency_s


def test_tables_keep_it():
    made = tb.predict(scenario(), TRACE)
    tables = {
        "measured": made.frame(),
        "rounds": made.summary().assign(kind="measured"),
        "energy": energy_table({"measured": made}),
        "lost": pd.DataFrame(columns=["kind", "round", "client"]),
    }
    again = timeline_of(tables, "measured", K)
    for before, after in zip(made, again, strict=True):
        np.testing.assert_array_equal(before.flight_energy_j, after.flight_energy_j)
    assert again.summary().equals(made.summary())


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"propulsion__model": "table"}, "propulsion.table: must have one or more pairs with"),
        ({"propulsion__table": [[0, 1]]}, "propulsion.table: must be empty with model 'rotary"),
        (
            {"propulsion__model": "table", "propulsion__table": [[5, 1], [5, 2]]},
            "propulsion.table: speeds must ascend",
        ),
        (
            {"propulsion__blade_w": -1},
            "propulsion.blade_w: must be at least 0",
        ),
        (
            {"propulsion__rotor_velocity_m_s": 0},
            "propulsion.rotor_velocity_m_s: must be a",
        ),
        (
            {"propulsion__model": "fixed-wing"},
            "propulsion.model: must be 'none', 'rotary-wing' or",
        ),
        (
            {"propulsion__model": "none", "objective__flight_energy_weight": 1},
            "objective.flight_energy_weight: must be 0 where propulsion.model is 'none'",
        ),
    ],
)
def test_what_cannot_be_right_is_one_line(keys, says):
    with pytest.raises(InputError) as error:
        scenario(**keys)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_trace_without_positions_has_no_flight():
    bps = np.full((K, SLOTS), 1e7)
    with pytest.raises(InputError, match=r"propulsion\.model: needs a trace with positions"):
        tb.predict(scenario(), RateTrace(bps, bps, SLOT_S))
