# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Cloud rounds of edge servers, predicted: what they are made of, and what is refused."""

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from console import run_testbed
from small_hierarchy import BACKHAUL, HIERARCHY, TOPOLOGY

import orchestrator as tb
from ns3_scenarios.trace import ChannelTrace, Replay
from orchestrator.engine.plan import Allocation, fixed_allocation, link_bytes
from orchestrator.policies.registry import evaluate, policy
from orchestrator.records.timelines import backhaul_table, energy_table, timeline_of
from orchestrator.rounds.hierarchy import PredictedBackhaul, cloud_round, rates_at_edges
from orchestrator.rounds.loop import Decision, EngineBackend, Situation
from orchestrator.scenario.channel import channel_key, ns3_source
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.timeline import Round

SIZE = 160_000
"""Bytes of the largest adapters of the small scenario, which edge servers and cloud exchange."""
ITERATIONS = 2


def scenario(topology: dict[str, Any] | None = None, **keys: Any) -> Scenario:
    return validate(HIERARCHY | {"topology": TOPOLOGY | (topology or {})} | keys, "test")


def channel(slots: int = 4000) -> ChannelTrace:
    wave = np.exp(0.3 * np.sin(np.arange(slots)))
    return ChannelTrace(np.array([3e-10, 2e-10, 1e-10])[:, None] * wave, 0.1)


def predicted(of: Scenario, *, wire: bool = False) -> list[Round]:
    return list(tb.predict(of, channel(), wire=wire))


def edge_rounds(of: Scenario, edge: int, start_s: float, first: int) -> list[Round]:
    """The edge rounds of one edge server, each played by an engine of its own."""
    there, members = of.at_edges[edge], of.members[edge]
    rounds: list[Round] = []
    shares = np.zeros(3) + 1 / len(members)
    for number in range(first, first + 2):
        engine = EngineBackend(there, Replay(channel()), profile_of(of))
        allocation = Allocation(3, shares, shares, shares, tuple(members))
        rounds.append(engine.play(Decision(number, start_s, allocation)))
        start_s = rounds[-1].end_s
    return rounds


def test_a_cloud_round_is_its_edge_rounds_and_two_hops() -> None:
    of = scenario(rounds=2)
    up_s, down_s = 8 * SIZE / 1e7 + 0.01, 8 * SIZE / 2e7 + 0.01
    start_s = 0.0
    for round_ in predicted(of):
        assert round_.start_s == pytest.approx(start_s, abs=1e-12)
        parts = [edge_rounds(of, edge, start_s, 2 * round_.index) for edge in (0, 1)]
        ready_s = [rounds[-1].end_s for rounds in parts]
        cloud_s = max(ready_s) + up_s
        assert round_.latency_s == pytest.approx(cloud_s + down_s - start_s, rel=1e-12)
        hops = [(each.edge, each.direction, each.bytes) for each in round_.backhaul]
        assert hops == [(e, way, SIZE) for way in ("up", "down") for e in (1, 2)]
        moments = [(each.start_s, each.end_s) for each in round_.backhaul]
        due = [(at_s, at_s + up_s) for at_s in ready_s] + [(cloud_s, cloud_s + down_s)] * 2
        np.testing.assert_allclose(moments, due, rtol=1e-12)
        energy_j = sum(part.energy_j for rounds in parts for part in rounds)
        np.testing.assert_allclose(round_.energy_j, energy_j, rtol=1e-12)
        assert round_.objective == pytest.approx(round_.latency_s + 4 * max(energy_j))
        for rounds in parts:
            for place, part in enumerate(rounds):
                for span in part.spans:
                    iteration = span["iteration"] + place * ITERATIONS
                    mine = round_.spans[
                        (round_.spans["client"] == span["client"])
                        & (round_.spans["iteration"] == iteration)
                        & (round_.spans["step"] == span["step"])
                    ]
                    assert mine["start_s"] == pytest.approx([span["start_s"]], rel=1e-12)
                    assert mine["end_s"] == pytest.approx([span["end_s"]], rel=1e-12)
        assert len(round_.spans) == sum(len(part.spans) for rounds in parts for part in rounds)
        assert (np.diff(round_.spans["client"]) >= 0).all()
        start_s = round_.end_s


def test_one_edge_server_and_one_edge_round_are_an_ordinary_round_and_two_hops() -> None:
    flat = validate({k: v for k, v in HIERARCHY.items() if k != "topology"}, "test")
    (plain,) = predicted(flat)
    (round_,) = predicted(scenario({"edges": [{"uavs": [1, 2, 3]}], "edge_rounds": 1}))
    hops_s = sum(8 * SIZE / bps + 0.01 for bps in (1e7, 2e7))
    assert round_.latency_s == pytest.approx(plain.latency_s + hops_s, rel=1e-12)
    np.testing.assert_array_equal(round_.spans, plain.spans)
    np.testing.assert_array_equal(round_.energy_j, plain.energy_j)


class UnequalLinks:
    """Links whose transfers take a time of their own, as measured ones do."""

    bytes = 7

    def sent(self, way: str, start_s: Sequence[float]) -> list[float]:
        took_s = (0.2, 0.1) if way == "up" else (0.1, 0.4)
        return [at_s + s for at_s, s in zip(start_s, took_s, strict=True)]


def test_a_cloud_round_ends_with_its_last_hop_and_waits_for_the_last_model() -> None:
    of = scenario()
    parts = [edge_rounds(of, edge, 0.0, 0) for edge in (0, 1)]
    round_ = cloud_round(of, 0, 0.0, parts, UnequalLinks())
    arrived_s = [rounds[-1].end_s + s for rounds, s in zip(parts, (0.2, 0.1), strict=True)]
    assert round_.latency_s == pytest.approx(max(arrived_s) + 0.4)
    down = [each for each in round_.backhaul if each.direction == "down"]
    assert [each.start_s for each in down] == [max(arrived_s)] * 2
    assert [each.end_s - each.start_s for each in down] == pytest.approx([0.1, 0.4])


def test_the_order_of_edge_servers_does_not_matter() -> None:
    (one,) = predicted(scenario())
    (other,) = predicted(scenario({"edges": TOPOLOGY["edges"][::-1]}))
    assert one.latency_s == other.latency_s
    np.testing.assert_array_equal(one.spans, other.spans)


def test_frames_count_on_the_backhaul_too_and_windows_wait_for_its_delay() -> None:
    (payload,), (wire,) = predicted(scenario()), predicted(scenario(), wire=True)
    size = wire.backhaul[0].bytes
    assert 1.03 * SIZE < size < 1.06 * SIZE
    (fast,) = predicted(scenario({"backhaul": BACKHAUL | {"one_way_delay_s": 0.0}}), wire=True)
    up, down = fast.backhaul[0], fast.backhaul[2]
    assert up.end_s - up.start_s == pytest.approx(8 * size / 1e7, rel=1e-12)
    assert down.end_s - down.start_s == pytest.approx(8 * size / 2e7, rel=1e-12)
    waits_s = wire.backhaul[0].end_s - wire.backhaul[0].start_s - 8 * size / 1e7 - 0.01
    assert 0 < waits_s < 0.05
    assert wire.latency_s > payload.latency_s


def test_all_edge_servers_have_the_same_backhaul() -> None:
    of = scenario()
    links = PredictedBackhaul(of, profile_of(of), framed=True)
    first, second = links.sent("up", [1.0, 5.0])
    assert first - 1.0 == pytest.approx(second - 5.0, rel=1e-12)


def test_the_size_of_all_trainable_parameters_may_be_given() -> None:
    profile = HIERARCHY["workload"]["profile"] | {"trainable_bytes": 1_000_000}
    of = scenario(workload=HIERARCHY["workload"] | {"profile": profile})
    assert predicted(of)[0].backhaul[0].bytes == 1_000_000


def test_shares_are_divided_within_an_edge_server() -> None:
    of = scenario(allocation={"beta": [0.2, 0.2, 0.6]})
    trace = channel()

    def beta(radio: Any, shares: Allocation) -> Any:
        column = shares.beta[:, None]
        return type("Rates", (tuple,), {})((column,) * 3)

    rates = rates_at_edges(of, trace, beta)
    np.testing.assert_allclose(rates.uplink.ravel(), [0.25, 1.0, 0.75])


def test_json_and_tables_keep_the_backhaul(tmp_path: Path) -> None:
    path, out = tmp_path / "s.yaml", tmp_path / "o.json"
    path.write_text(yaml.safe_dump(HIERARCHY))
    channel().save(tmp_path / "t.npz")
    run_testbed("predict", path, "--trace", tmp_path / "t.npz", "--json", out)
    written = json.loads(out.read_text())
    (round_,) = written["rounds"]
    assert [hop["edge"] for hop in round_["backhaul"]] == [1, 2, 1, 2]
    assert set(round_["backhaul"][0]) == {"edge", "direction", "start_s", "end_s", "bytes"}
    assert validate(written["scenario"], "test") == validate(HIERARCHY, "test")

    timeline = tb.predict(scenario(), channel())
    kinds = {"predicted": timeline}
    tables = {
        "predicted": timeline.frame(),
        "rounds": timeline.summary().assign(kind="predicted"),
        "energy": energy_table(kinds),
        "backhaul": backhaul_table(kinds),
    }
    assert timeline_of(tables, "predicted", 3)[0].backhaul == timeline[0].backhaul


def test_uavs_fly_around_their_own_edge_server() -> None:
    far = {"uavs": [2], "position_m": [5000.0, -3000.0, 30.0]}
    of = scenario({"edges": [TOPOLOGY["edges"][0], far]})
    flat = validate({k: v for k, v in HIERARCHY.items() if k != "topology"}, "test")
    with ns3_source(of) as made, ns3_source(flat) as plain:
        ours, theirs = made.trace(50).first(50), plain.trace(50).first(50)
    np.testing.assert_array_equal(ours.values[[0, 2]], theirs.values[[0, 2]])
    np.testing.assert_allclose(ours.values[1], theirs.values[1], rtol=1e-6)
    assert ours.position_m is not None
    assert theirs.position_m is not None
    np.testing.assert_array_equal(ours.position_m[[0, 2]], theirs.position_m[[0, 2]])
    np.testing.assert_allclose(
        ours.position_m[1], theirs.position_m[1] + [5000.0, -3000.0, 0.0], atol=1e-6
    )
    assert channel_key(of) != channel_key(scenario()) != channel_key(flat)


def alone(of: Scenario, edge: int, chosen: list[list[int]], start_s: float = 0.0) -> list[Round]:
    """The first edge rounds of an edge server as rounds of a base station with some of the UAVs."""
    engine = EngineBackend(of.at_edges[edge], Replay(channel()), profile_of(of))
    rounds: list[Round] = []
    for number, clients in enumerate(chosen):
        allocation = fixed_allocation(of).among(clients)
        rounds.append(engine.play(Decision(number, start_s, allocation)))
        start_s = rounds[-1].end_s
    return rounds


def assert_made_of(whole: Round, edges: list[list[Round]]) -> None:
    """Assert that a cloud round has exactly the steps and energies of these edge rounds."""
    made = [
        (span["client"], span["iteration"] + place * ITERATIONS, *span.tolist()[2:])
        for rounds in edges
        for place, round_ in enumerate(rounds)
        for span in round_.spans
    ]
    assert sorted(made) == sorted(map(tuple, whole.spans.tolist()))
    energy_j = sum(round_.energy_j for rounds in edges for round_ in rounds)
    np.testing.assert_allclose(whole.energy_j, energy_j, rtol=1e-12)


CRASH = {"kind": "uav-crash", "nodes": ["uav3"], "round": 1, "at_s": 0.2}
SLOW = {"kind": "slow-node", "nodes": ["uav2"], "at_s": 0.0, "duration_s": 9.0}
DROP = {"on_loss": "drop", "loss_timeout_s": 0.5}


def test_faults_hit_the_rounds_of_the_edge_server_of_their_uav() -> None:
    of = scenario(faults=DROP | {"events": [CRASH, SLOW]})
    (whole,), (healthy,) = predicted(of), predicted(scenario())
    edges = [alone(of, 0, [[1, 3], [1, 3]]), alone(of, 1, [[2], [2]])]
    assert_made_of(whole, edges)
    assert [loss.client for loss in whole.lost] == [3]
    assert whole.lost == edges[0][1].lost, "the round of an event counts edge rounds"
    (cut,) = whole.spans[whole.cut]
    assert cut["client"] == 3
    assert whole.latency_s > healthy.latency_s + 0.1, "uav2 computes more slowly"


def test_a_client_that_returns_in_a_later_edge_round_was_cut_in_an_earlier_one() -> None:
    out = {"kind": "link-outage", "nodes": ["uav3"], "at_s": 0.1, "duration_s": 0.4}
    faults = DROP | {"events": [out], "loss_timeout_s": 0.3}
    (whole,) = predicted(scenario(faults=faults))
    assert [loss.client for loss in whole.lost] == [3]
    (cut,) = whole.spans[whole.cut]
    assert (cut["client"], cut["iteration"] <= ITERATIONS) == (3, True)
    assert (whole.spans[whole.spans["client"] == 3]["iteration"] > ITERATIONS).any()


def test_the_earliest_loss_that_is_not_dropped_ends_the_run() -> None:
    crashes = [
        {"kind": "uav-crash", "nodes": [node], "at_s": at_s}
        for node, at_s in (("uav1", 0.4), ("uav2", 0.2))
    ]
    of = scenario(faults={"events": crashes, "loss_timeout_s": 0.5})
    timeline = tb.predict(of, channel())
    assert not timeline.rounds
    assert timeline.ended is not None
    assert timeline.ended.at_s == pytest.approx(0.7)
    assert str(timeline.ended).startswith("edge server 2, edge round 0: the base station waited")


def test_each_edge_server_chooses_some_of_its_own_uavs() -> None:
    of = scenario({"edges": [{"uavs": [1, 3]}, {"uavs": [2]}]}, participation={"clients": 1})
    (random,) = predicted(of)
    assert 2 in random.clients
    turns = scenario(participation={"clients": 1, "rule": "round-robin"})
    (whole,) = predicted(turns)
    assert_made_of(whole, [alone(turns, 0, [[1], [3]]), alone(turns, 1, [[2], [2]])])
    best = scenario(participation={"clients": 1, "rule": "by-channel"})
    (whole,) = predicted(best)
    assert whole.clients == [1, 2]


def test_each_edge_round_has_the_deadline() -> None:
    of = scenario(participation={"deadline_s": 0.6}, faults={"on_loss": "drop"})
    (whole,) = predicted(of)
    edges = [alone(of, 0, [[1, 3], [1, 3]]), alone(of, 1, [[2], [2]])]
    assert_made_of(whole, edges)
    losses = [(loss.client, loss.cause) for loss in whole.lost]
    assert losses.count((2, "deadline")) == 2
    assert [each.end_s for each in edges[1]] == pytest.approx([0.6, 1.2])


def test_policies_decide_for_the_uavs_of_one_edge_server_from_its_own_rounds() -> None:
    of, seen = scenario(rounds=2), list[Situation]()

    def decide(now: Situation) -> Allocation:
        seen.append(now)
        assert [round_.index for round_ in now.rounds] == list(range(now.index))
        assert now.clients == of.members[now.edge - 1]
        assert all(set(round_.clients) <= set(now.clients) for round_ in now.rounds)
        return Allocation(1 + now.edge, np.full(3, 1 / 3), np.full(3, 1 / 3), np.full(3, 1 / 3))

    rounds = list(tb.predict(of, channel(), policy=decide))
    assert [(now.edge, now.index) for now in seen] == [
        *((1, 0), (1, 1), (2, 0), (2, 1), (1, 2), (1, 3), (2, 2), (2, 3)),
    ]
    for now in seen:
        assert now.channel.slots == int(now.start_s / 0.1) + 1
    assert [round_.split for round_ in rounds] == [(2, 3, 2)] * 2


def test_planners_and_the_static_policy_lower_the_objective_of_each_edge_server() -> None:
    of = scenario({"edges": [{"uavs": [1]}, {"uavs": [2, 3]}]}, rounds=2)
    fixed = tb.predict(of, channel())
    for name in ("static", "planner", "per-client-planner"):
        keys = {"workload": HIERARCHY["workload"] | {"server_adapters": "per-client"}}
        planned = scenario(
            {"edges": [{"uavs": [1]}, {"uavs": [2, 3]}]},
            rounds=2,
            allocation={"policy": name},
            **(keys if name == "per-client-planner" else {}),
        )
        found = tb.predict(planned, channel())
        assert found[0].objective < fixed[0].objective, name
        table = evaluate(planned, Replay(channel()), policy(planned, name), rounds=2)
        assert (table["decision_s"] >= 0).all()
        assert len(table) == 2


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"topology.edges": [{"uavs": [1, 2]}]}, "topology.edges: UAV 3 is in none of them"),
        (
            {"topology.edges": [{"uavs": [1, 2]}, {"uavs": [2, 3]}]},
            "topology.edges.1.uavs: UAV 2 is already in edges.0",
        ),
        ({"topology.edges": [{"uavs": [1, 2, 2, 3]}]}, "UAV 2 is already in edges.0"),
        ({"topology.edges": [{"uavs": [1, 2, 3, 4]}]}, "topology.edges: there is no UAV 4"),
        ({"topology.edges": []}, "topology.edges"),
        ({"topology.edge_rounds": 0}, "topology.edge_rounds"),
        ({"topology.backhaul.uplink_bps": 0}, "topology.backhaul.uplink_bps"),
        ({"topology.backhaul.one_way_delay_s": -1}, "topology.backhaul.one_way_delay_s"),
        ({"paradigm": "asfl-pp"}, "paradigm: must not be asynchronous where topology is given"),
        (
            {"allocation": {"policy": "agent", "agent": "a"}},
            "allocation.policy: must not be 'agent'",
        ),
        (
            {"emulation.air": "ns3", "radio": {"access": "lte"}},
            "topology.edges.1.tx_power_w: must be",
        ),
        ({"nodes": {"bs": {"command": "true"}}}, "nodes: must be absent"),
        (
            {
                "radio": {"access": "lte", "cells": [{"position_m": [900, 0, 30]}]},
            },
            "radio.cells: must be absent",
        ),
        (
            {
                "uavs.height_m": 5,
                "topology.edges": [{"uavs": [1, 2]}, {"uavs": [3], "position_m": [0, 0, 200]}],
            },
            "topology.edges.1.position_m: must be 10 to 150 m high",
        ),
    ],
)
def test_what_edge_servers_do_not_support_is_refused(changes: dict[str, Any], line: str) -> None:
    tree = copy.deepcopy(HIERARCHY)
    for key, value in changes.items():
        *sections, name = key.split(".")
        at = tree
        for section in sections:
            at = at.setdefault(section, {})
        at[name] = value
    with pytest.raises(InputError, match=line.replace(".", r"\.")):
        validate(tree, "test")


def test_what_needs_one_base_station_refuses_edge_servers(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(HIERARCHY))
    channel().save(tmp_path / "t.npz")
    for words in (
        ["cross-check", path, "--trace", tmp_path / "t.npz", "--out", tmp_path / "c"],
        ["train", path, "--out", tmp_path / "a"],
        ["up", path, "--out", tmp_path / "u"],
    ):
        done = run_testbed(*words, check=False)
        assert done.returncode == 2, words
        assert "topology: must be absent" in done.stderr, words
        assert not words[-1].exists()


def test_link_bytes_are_those_of_an_edge_server_for_itself() -> None:
    of = scenario()
    wire = predicted(of, wire=True)[0]
    first = wire.spans[wire.spans["step"] == 0]
    assert set(first["bytes"]) == {link_bytes(of, profile_of(of), 3).adapters}
