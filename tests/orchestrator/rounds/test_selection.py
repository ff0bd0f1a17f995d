# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rounds of some of the clients: who is chosen, and that the rest might as well not be there."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from console import run_testbed
from packages import importable, write_package
from packet_cases import fading
from small_scenario import TREE

import orchestrator as tb
from ns3_scenarios.trace import ChannelTrace, Replay
from orchestrator.engine.plan import Allocation, fixed_allocation, plan_round
from orchestrator.engine.radio import radio_access
from orchestrator.policies.planner import planner
from orchestrator.records.timelines import allocation_of, decision_table
from orchestrator.rounds.loop import Decision, predict
from orchestrator.rounds.packet_rounds import play
from orchestrator.rounds.selection import RoundStart, selection
from orchestrator.rounds.simulation import energy_of
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import profile_of
from testbed.core.errors import InputError, RunError
from testbed.core.paradigm import BUILT_IN
from testbed.core.timeline import CM

POWERS = [1.0, 0.4, 0.1, 0.6, 0.2]
GAIN = 10 ** -np.linspace(9.0, 10.3, 5)[:, None] * np.random.default_rng(3).lognormal(
    0, 0.5, (5, 4000)
)


def five(**keys: Any) -> tb.Scenario:
    return validate(TREE | {"uavs": {"tx_power_w": POWERS}} | keys, "test")


def chosen(scenario: tb.Scenario, rounds: int = 4) -> list[list[int]]:
    choose = selection(scenario)
    assert choose is not None
    trace = ChannelTrace(GAIN, 0.1)
    return [
        list(choose(RoundStart(n, float(n), [], trace.first(10 * n + 1)))) for n in range(rounds)
    ]


def test_rules_choose_as_many_as_they_are_told() -> None:
    assert selection(five()) is None
    drawn = chosen(five(participation={"clients": 2}), 40)
    assert drawn == chosen(five(participation={"clients": 2}), 40)
    assert drawn != chosen(five(participation={"clients": 2}, seed=2), 40)
    assert all(len(set(clients)) == 2 and clients == sorted(clients) for clients in drawn)
    assert {client for clients in drawn for client in clients} == {1, 2, 3, 4, 5}
    turns = chosen(five(participation={"clients": 2, "rule": "round-robin"}))
    assert turns == [[1, 2], [3, 4], [1, 5], [2, 3]]
    for n, clients in enumerate(chosen(five(participation={"clients": 3, "rule": "by-channel"}))):
        last = GAIN[:, 10 * n]
        assert min(last[np.array(clients) - 1]) > max(np.delete(last, np.array(clients) - 1))


@pytest.mark.parametrize("scheme", [scheme.name for scheme in BUILT_IN])
def test_a_round_of_some_is_a_round_without_the_others(scheme: str) -> None:
    """As a scenario in which they alone are, with the same gains, to the last digit but sums'."""
    shares = [0.3, 0.1, 0.2, 0.3, 0.1]
    keys = {"paradigm": scheme, "allocation": dict.fromkeys(("alpha", "beta", "rho"), shares)}
    whole = five(participation={"clients": 3}, **keys)
    (round_,) = predict(whole, Replay(ChannelTrace(GAIN, 0.1)), profile_of(whole), rounds=1)
    here = round_.clients
    assert here == chosen(whole)[0]
    at = np.array(here) - 1
    own = (np.array(shares)[at] / np.array(shares)[at].sum()).tolist()
    few = validate(
        TREE
        | {
            "paradigm": scheme,
            "uavs": {"tx_power_w": np.array(POWERS)[at].tolist()},
            "allocation": dict.fromkeys(("alpha", "beta", "rho"), own),
        },
        "few",
    )
    (alone,) = predict(few, Replay(ChannelTrace(GAIN[at], 0.1)), profile_of(few), rounds=1)
    assert round_.latency_s == pytest.approx(alone.latency_s, rel=1e-12)
    assert round_.energy_j[at] == pytest.approx(alone.energy_j, rel=1e-12)
    assert not np.delete(round_.energy_j, at).any()
    assert round_.to_json()["clients"] == here
    assert "clients" not in alone.to_json()
    for name in ("start_s", "end_s"):
        assert round_.spans[name] == pytest.approx(alone.spans[name], rel=1e-12)


def test_packets_play_the_same_clients() -> None:
    tree = TREE | {"participation": {"clients": 2, "rule": "round-robin"}, "rounds": 2}
    scenario = validate(tree, "test")
    played = play(scenario, fading(), profile_of(scenario)).timeline
    predicted = predict(scenario, fading(), profile_of(scenario))
    assert [r.clients for r in played] == [r.clients for r in predicted] == [[1, 2], [1, 3]]
    for one, other in zip(played, predicted, strict=True):
        assert one.latency_s == pytest.approx(other.latency_s, rel=0.03)


def test_what_befalls_those_who_rest_is_nobodys_concern() -> None:
    crash = {"kind": "uav-crash", "nodes": ["uav1"], "at_s": 0.0}
    keys = {"rounds": 3, "faults": {"events": [crash], "on_loss": "abort", "loss_timeout_s": 0.3}}
    some = {"participation": {"clients": 2, "rule": "round-robin"}}
    scenario = five(**keys, **some)
    timeline = predict(scenario, Replay(ChannelTrace(GAIN, 0.1)), profile_of(scenario))
    assert timeline.ended is not None, "the first round has it"
    some["participation"]["rule"] = "by-channel"
    weak = GAIN.copy()
    weak[0] = 1e-13
    timeline = predict(five(**keys, **some), Replay(ChannelTrace(weak, 0.1)), profile_of(scenario))
    assert timeline.ended is None
    assert all(1 not in round_.clients and not round_.lost for round_ in timeline)


LATE: dict[str, Any] = {
    "uavs": {"tx_power_w": POWERS, "compute_flops": [2.5e12, 2.5e12, 2.5e12, 2.5e12, 0.1e12]},
    "participation": {"deadline_s": 2.5},
    "faults": {"on_loss": "drop"},
}


def test_a_round_goes_on_at_its_deadline_without_who_is_late() -> None:
    source = Replay(ChannelTrace(np.full((5, 4000), 1e-9), 0.1))
    for paradigm in ("sfl-pp", "pipesfl", "cpsfl"):
        scenario = five(**LATE, paradigm=paradigm)
        profile = profile_of(scenario)
        waits = five(uavs=LATE["uavs"], paradigm=paradigm)
        (whole,) = predict(waits, source, profile, rounds=1)
        assert whole.latency_s > 2.5
        first, second = predict(scenario, source, profile, rounds=2)
        for round_ in (first, second):
            (loss,) = round_.lost
            assert (loss.client, loss.cause) == (5, "deadline")
            assert loss.lost_s == round_.start_s + 2.5
            assert round_.latency_s >= 2.5
            assert set(round_.spans["client"][round_.spans["step"] == CM]) == {1, 2, 3, 4}
    in_time = five(**LATE | {"participation": {"deadline_s": 1000}}, paradigm="cpsfl")
    (round_,) = predict(in_time, source, profile, rounds=1)
    assert round_.latency_s == whole.latency_s
    assert not round_.lost


def test_a_round_that_nobody_finishes_in_time_is_empty() -> None:
    scenario = five(**LATE | {"participation": {"deadline_s": 0.3}})
    source, profile = Replay(ChannelTrace(GAIN, 0.1)), profile_of(scenario)
    timeline = predict(scenario, source, profile, rounds=3)
    assert timeline.ended is None
    for index, round_ in enumerate(timeline):
        assert round_.start_s == pytest.approx(0.3 * index)
        assert round_.latency_s == pytest.approx(0.3)
        assert [(loss.client, loss.cause) for loss in round_.lost] == [
            (client, "deadline") for client in range(1, 6)
        ]
        assert not (round_.spans["step"] == CM).any()
        assert round_.spans["end_s"].max() <= round_.end_s
        assert round_.energy_j.max() > 0, "what was done is paid for"
        plan = plan_round(scenario, profile, fixed_allocation(scenario))
        assert round_.energy_j == pytest.approx(
            energy_of(round_.spans, plan, radio_access(scenario, source.trace(1)))
        )
        assert round_.objective == pytest.approx(0.3 + plan.energy_weight * max(round_.energy_j))


def test_a_round_of_clients_that_are_all_away_lasts_until_its_deadline() -> None:
    out = {"kind": "partition", "nodes": [f"uav{k}" for k in range(1, 6)]}
    faults = {"on_loss": "drop", "loss_timeout_s": 0.2}
    keys = {"participation": {"deadline_s": 3.0}, "paradigm": "sfl-sp"}
    source = Replay(ChannelTrace(np.full((5, 4000), 1e-9), 0.1))
    away = five(**keys, faults=faults | {"events": [out | {"at_s": 0.1, "duration_s": 8}]})
    rounds = predict(away, source, profile_of(away), rounds=4)
    assert [len(round_.lost) for round_ in rounds] == [5, 5, 5, 0]
    assert [round_.start_s for round_ in rounds] == [0, 3, 6, 9]
    assert not len(rounds[1].spans)
    assert not rounds[1].energy_j.any()
    gone = [{"kind": "uav-crash", "nodes": [node], "at_s": 0.1} for node in out["nodes"]]
    for events, ended in ((gone, "no client is left"), (gone[:4], "None")):
        crash = five(**keys, faults=faults | {"events": events})
        assert ended in str(predict(crash, source, profile_of(crash), rounds=2).ended)


def test_the_planner_plans_for_those_who_take_part() -> None:
    scenario = five(participation={"clients": 2, "rule": "round-robin"}, paradigm="pipesfl")
    played: list[Allocation] = []

    def decide(now: Any) -> Allocation:
        played.append(planner(scenario, generations=2, per_client=True)(now))
        return played[-1]

    source = Replay(ChannelTrace(GAIN, 0.1))
    planned = predict(scenario, source, profile_of(scenario), rounds=3, decide=decide)
    plain = predict(scenario, source, profile_of(scenario), rounds=3)
    assert [r.clients for r in planned] == [[1, 2], [3, 4], [1, 5]]
    assert sum(r.objective for r in planned) < sum(r.objective for r in plain)
    for allocation, round_ in zip(played, planned, strict=True):
        at = np.array(round_.clients) - 1
        for shares in (allocation.alpha, allocation.beta, allocation.rho):
            assert shares[at].sum() == pytest.approx(1)


def test_decisions_come_back_from_their_table() -> None:
    equal = np.full(5, 0.2)
    given = Allocation(2, equal, equal, equal).among([2, 5])
    table = decision_table(Decision(0, 0.0, given))
    assert table["beta"].tolist() == [0, 0.5, 0, 0, 0.5]
    found = allocation_of(table, 5)
    assert found.clients == (2, 5)
    assert found.beta[[1, 4]].tolist() == [0.5, 0.5]


def test_what_is_wrong_is_refused_by_its_field() -> None:
    for keys, says in (
        ({"clients": 6}, r"participation\.clients: there are only 5 UAVs, not 6"),
        ({"clients": 0}, r"participation\.clients: "),
        ({"rule": "by-chanel"}, r"participation\.rule: .* did you mean 'by-channel'"),
        ({"rule": "random", "parameters": {"x": 1}}, r"participation\.parameters: 'random' has no"),
    ):
        with pytest.raises(InputError, match=says):
            five(participation=keys)
    with pytest.raises(
        InputError, match=r"deadline_s: must be absent where faults\.on_loss is not"
    ):
        five(participation={"deadline_s": 1})
    with pytest.raises(
        InputError, match="participation: must be absent for the training of an agent"
    ):
        tb.UavSflEnv(five(participation={"clients": 2}))


CODE = """
def strong(scenario, least_db=-95.0):
    if least_db > 0:
        raise ValueError("least_db must not be positive")
    def choose(start):
        gain_db = 10 * __import__("numpy").log10(start.channel.gain[:, -1])
        return [k for k, one in enumerate(gain_db, 1) if one >= least_db]
    return choose
"""


def test_a_packages_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = "[testbed.participation]\nstrong = choosing:strong\n"
    write_package(tmp_path, "choosing", CODE, entries)
    with importable(tmp_path, "choosing", monkeypatch):
        rule = {"rule": "strong", "parameters": {"least_db": -96.0}}
        for n, clients in enumerate(chosen(five(participation=rule))):
            assert clients == (1 + np.flatnonzero(GAIN[:, 10 * n] >= 10**-9.6)).tolist()
        with pytest.raises(InputError, match=r"participation\.parameters\.most: 'strong' has no"):
            five(participation=rule | {"parameters": {"most": 1}})
        with pytest.raises(InputError, match=r"participation\.parameters: least_db must not"):
            selection(five(participation=rule | {"parameters": {"least_db": 1}}))
        nobody = five(participation=rule | {"parameters": {"least_db": -1.0}})
        with pytest.raises(RunError, match=r"'strong', round 0: must choose one or more of 1"):
            chosen(nobody)


def test_emulated_rounds_have_the_same_clients(tmp_path: Path) -> None:
    path, result = tmp_path / "some.yaml", tmp_path / "r.json"
    some = {"participation": {"clients": 2, "rule": "round-robin"}}
    tree = TREE | some | {"rounds": 3, "emulation": {"calibrate": False, "dilation": 5}}
    path.write_text(yaml.safe_dump(tree))
    run_testbed("run", path, "--json", result, "--out", tmp_path / "out")
    run = json.loads(result.read_text())
    assert [round_["clients"] for round_ in run["measured"]] == [[1, 2], [1, 3], [2, 3]]
    for predicted, measured in zip(run["predicted_wire"], run["measured"], strict=True):
        assert predicted["clients"] == measured["clients"]
        assert measured["latency_s"] == pytest.approx(predicted["latency_s"], rel=0.2)
        steps = [(s["client"], s["iteration"], s["step"]) for s in measured["steps"]]
        assert sorted(steps) == sorted(
            (s["client"], s["iteration"], s["step"]) for s in predicted["steps"]
        )
    again = tb.read_run(tmp_path / "out")
    assert [r.clients for r in again.measured] == [[1, 2], [1, 3], [2, 3]]
