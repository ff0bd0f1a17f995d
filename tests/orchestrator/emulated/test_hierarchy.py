# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Cloud rounds of edge servers on real links, and what the cloud learns."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
import torch
from exact import WITHIN_S, Played, Run, assert_exact, played, result
from safetensors.torch import load, load_file, save
from small_hierarchy import BACKHAUL, HIERARCHY, LEARNING, TOPOLOGY
from torch import Tensor
from torch.nn import functional

import orchestrator as tb
from ns3_scenarios.trace import ChannelTrace, Replay
from orchestrator.archive.verify import difference, predicted_again
from orchestrator.emulated import dilation
from orchestrator.emulated.dilation import Speeds, settle
from orchestrator.emulated.hierarchy import average, by_rule
from orchestrator.reporting.live import Live
from orchestrator.reporting.report import write_report
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import model_of, profile_of
from testbed.core.clock import EmulatedClock
from testbed.system.folders import cache_folder
from workloads.aggregation.rules import fedavgm
from workloads.data.samples import ClientData, client_data, open_data
from workloads.learning.backbone import load_model
from workloads.learning.cached import backbone_file
from workloads.learning.model import initial_trainables
from workloads.learning.settings import DataConfig

VIRTUAL = {"emulation": {"clock": "virtual", "calibrate": False}}
HOP_S = 2e-3
"""Some frames of the slowest backhaul link, whose windows the prediction only models."""
AT_ONCE = TOPOLOGY | {"backhaul": BACKHAUL | {"one_way_delay_s": 0.0}}


BASE = HIERARCHY | VIRTUAL
FAULTS = {
    "on_loss": "drop",
    "loss_timeout_s": 0.5,
    "events": [
        {"kind": "uav-crash", "nodes": ["uav3"], "round": 1, "at_s": 0.3},
        {"kind": "slow-node", "nodes": ["uav2"], "at_s": 1.0, "duration_s": 20.0},
        {"kind": "link-outage", "nodes": ["uav1"], "at_s": 0.2, "duration_s": 0.2},
    ],
}
DEADLINE = {"participation": {"clients": 1, "deadline_s": 4.0}, "faults": {"on_loss": "drop"}}
AIR = BASE | {
    "radio": {"access": "lte"},
    "topology": TOPOLOGY | {"edges": [{"uavs": [1, 3]}, {"uavs": [2], "compute_flops": 5e12}]},
    "emulation": VIRTUAL["emulation"] | {"air": "ns3"},
}
MOMENTUM = LEARNING | {
    "workload": LEARNING["workload"]
    | {"aggregation": "fedavgm", "aggregation_parameters": {"momentum": 0.5, "learning_rate": 2.0}}
}


def runs() -> list[Run]:
    return [
        ("plain", HIERARCHY | VIRTUAL | {"topology": AT_ONCE}, []),
        ("learning", LEARNING | VIRTUAL, ["--out", "learning"]),
        ("momentum", MOMENTUM | VIRTUAL, ["--out", "momentum"]),
        ("resumed", LEARNING | VIRTUAL, ["--out", "learning", "--resume"]),
        ("faults", BASE | {"rounds": 2, "faults": FAULTS}, ["--out", "faults"]),
        ("deadline", BASE | {"rounds": 2} | DEADLINE, ["--out", "deadline"]),
        (
            "planned",
            BASE | {"rounds": 2, "allocation": {"policy": "planner"}},
            ["--out", "planned"],
        ),
        ("captured", HIERARCHY | VIRTUAL, ["--out", "captured", "--capture"]),
    ]


@pytest.fixture(scope="module")
def all_played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return played(tmp_path_factory.mktemp("hierarchy"), runs())


@pytest.mark.guest
@pytest.mark.timeout(1200)
def test_edge_rounds_and_backhaul_are_as_predicted(all_played: Played) -> None:
    run = result(all_played, "plain")
    assert run["valid"]
    assert_exact(run)
    (predicted,), (measured,) = run["predicted_wire"], run["measured"]
    assert len(measured["backhaul"]) == 4
    for due, seen in zip(predicted["backhaul"], measured["backhaul"], strict=True):
        assert seen["bytes"] == due["bytes"]
        assert seen["end_s"] == pytest.approx(due["end_s"], abs=2 * WITHIN_S)
    assert measured["energy_j"] == pytest.approx(predicted["energy_j"], rel=1e-3)
    (budget,) = run["error_budget"]
    parts_s = sum(budget["parts"].values())
    assert parts_s == pytest.approx(budget["measured_s"] - budget["predicted_s"], abs=1e-9)
    hops_s = [  # from the end of the last edge round
        round_["start_s"] + round_["latency_s"] - round_["backhaul"][1]["start_s"]
        for round_ in (*run["predicted"], *run["measured"])
    ]
    assert budget["parts"]["backhaul"] == pytest.approx(hops_s[1] - hops_s[0], abs=1e-9)


@pytest.mark.guest
@pytest.mark.timeout(1200)
def test_the_cloud_learns_what_a_plain_hierarchical_loop_does(all_played: Played) -> None:
    folder, _ = all_played
    run = result(all_played, "learning")
    assert run["valid"]
    state = load_file(folder / "learning" / "adapters.safetensors")
    reference = trained_without_split()
    assert state.keys() == reference.keys()
    for name, tensor in reference.items():
        torch.testing.assert_close(state[name], tensor, rtol=0, atol=1e-6)
    state = load_file(folder / "momentum" / "adapters.safetensors")
    for name, tensor in trained_without_split(momentum=0.5, step=2.0).items():
        torch.testing.assert_close(state[name], tensor, rtol=0, atol=2e-6)
    for predicted, measured in zip(run["predicted_wire"], run["measured"], strict=True):
        assert measured["latency_s"] == pytest.approx(predicted["latency_s"], abs=3 * HOP_S)
    read = tb.read_run(folder / "learning")
    learning = read.tables["learning"]
    held_out = learning[learning["data"] == "held-out"]
    assert held_out["round"].tolist() == [-1, 0, 1]
    assert held_out["time_s"].tolist() == [0.0, *(r.end_s for r in read.measured)]
    batches = learning[learning["data"] == "train"].groupby(["round", "client"]).size()
    assert (batches == 4).all()
    assert len(batches) == 6
    assert [len(round_.backhaul) for round_ in read.measured] == [4, 4]
    accounts = pd.read_parquet(folder / "learning" / "accounts.parquet")
    assert sorted(accounts["round"].unique()) == [-1, 0, 1]
    again = predicted_again(read)
    for kind in ("predicted", "predicted_wire"):
        pd.testing.assert_frame_equal(again[kind].frame(), getattr(read, kind).frame())
    assert "backhaul" in write_report(folder / "learning").read_text()


def test_the_cloud_applies_the_rule_and_keeps_its_memory() -> None:
    rule, names = fedavgm(momentum=0.5, learning_rate=2.0), [f"{n}.weight" for n in range(20)]
    rng = np.random.default_rng(1)

    def model(statistic: float) -> bytes:
        tensors = {name: torch.tensor(rng.normal(size=2), dtype=torch.float32) for name in names}
        return save(tensors | {"n.running_var": torch.tensor([statistic])})

    state = model(4.0)
    velocity = {name: np.zeros(2) for name in names}
    for _ in range(3):
        models = [model(2.0), model(2.0)]
        before, (one, two) = load(state), map(load, models)
        state = by_rule(rule, state, average(models, [1, 3], [[1], [2]]), models, [1, 3])
        made = load(state)
        for name in names:
            change = before[name] - (0.25 * one[name] + 0.75 * two[name])
            velocity[name] = 0.5 * velocity[name] + change.numpy()
            due = before[name].numpy() - 2 * velocity[name]
            np.testing.assert_allclose(made[name], due, rtol=1e-5, atol=1e-6)
        assert made["n.running_var"].tolist() == [2.0], "statistics are averaged"


@pytest.mark.guest
@pytest.mark.timeout(1200)
def test_the_capture_ends_with_the_last_round_of_the_last_edge_server(all_played: Played) -> None:
    folder, _ = all_played
    result(all_played, "captured")
    sizes = [(folder / "captured" / "pcap" / f"uav{k}.pcap").stat().st_size for k in (1, 2, 3)]
    assert min(sizes) > 4 * 200_000, "smashed data of four iterations"


@pytest.mark.guest
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ["faults", "deadline", "planned"])
def test_edge_servers_play_what_base_stations_play(all_played: Played, name: str) -> None:
    folder, _ = all_played
    run = result(all_played, name)
    assert run["valid"]
    for predicted, measured in zip(run["predicted_wire"], run["measured"], strict=True):
        assert measured["latency_s"] == pytest.approx(predicted["latency_s"], rel=1e-3)
        lost = [
            [(loss["client"], loss["cause"]) for loss in r.get("lost", [])]
            for r in (predicted, measured)
        ]
        assert lost[0] == lost[1]
    read = tb.read_run(folder / name)
    again = predicted_again(read)
    for kind in ("predicted", "predicted_wire"):
        assert not difference(getattr(read, kind), again[kind]), kind
    decided = read.tables["decisions"]
    assert len(decided) == 2 * 2 * 3
    assert set(decided["edge"][decided["client"] == 2]) == {2}


@pytest.mark.guest
@pytest.mark.full
@pytest.mark.timeout(1200)
def test_packets_of_edge_rounds_pass_through_ns3s_radio(tmp_path: Path) -> None:
    run = result(played(tmp_path, [("air", AIR, [])]), "air")
    assert run["valid"]
    (predicted,), (measured,) = run["predicted_wire"], run["measured"]
    assert measured["latency_s"] == pytest.approx(predicted["latency_s"], rel=0.02)


@pytest.mark.guest
@pytest.mark.timeout(1200)
def test_complete_runs_are_refused(all_played: Played) -> None:
    _, done = all_played
    assert done["resumed"].returncode == 2


def trained_without_split(momentum: float = 0.0, step: float = 1.0) -> dict[str, Tensor]:
    """Hierarchical federated averaging with whole models: HierFAVG's algorithm 1, whose cloud may
    have a momentum and a learning rate."""
    scenario = validate(LEARNING, "test")
    workload, config = scenario.workload, model_of(scenario)
    model = load_model(config, backbone_file(config, cache_folder()), "cpu")
    data_config = DataConfig(**workload.data.model_dump(), seed=scenario.seed)
    dataset = open_data(data_config, workload.classes, model.input)
    data = client_data(dataset, data_config, 3, workload.batch_size)
    sizes = [len(share.indices) for share in data]
    assert len(set(sizes)) > 1, "weights must matter"

    def trained(start: Tensor, share: ClientData, round_: int) -> Tensor:
        own = {name: t.clone().requires_grad_() for name, t in model.layout.views(start).items()}
        optimiser = torch.optim.SGD(own.values(), workload.learning_rate, momentum=0.9)
        for iteration in range(1, workload.local_iterations + 1):
            samples, labels = share.batch(round_, iteration)
            optimiser.zero_grad()
            model.attach(own, [""])
            logits = model.server(model.client(samples, 1), 1)
            functional.cross_entropy(logits, labels).backward()
            optimiser.step()
        return model.layout.vector(own)

    def mean(models: list[Tensor], weights: list[int]) -> Tensor:
        parts = (m.double() * w / sum(weights) for m, w in zip(models, weights, strict=True))
        return torch.stack(list(parts)).sum(0).float()

    cloud = initial_trainables(model.layout, config.seed, model.loras, model.given)
    edges = [[0, 2], [1]]
    velocity = torch.zeros_like(cloud, dtype=torch.float64)
    for cloud_round in range(2):
        models = []
        for members in edges:
            edge = cloud
            for round_ in range(2 * cloud_round, 2 * cloud_round + 2):
                ends = [trained(edge, data[k], round_) for k in members]
                edge = mean(ends, [sizes[k] for k in members])
            models.append(edge)
        after = mean(models, [sum(sizes[k] for k in members) for members in edges])
        velocity = momentum * velocity + cloud.double() - after.double()
        cloud = (cloud.double() - step * velocity).float() if momentum else after
    return model.layout.views(cloud)


OWN = ("clients.1.n.running_mean", "clients.2.n.running_mean", "clients.10.n.running_mean")


def test_the_cloud_weights_models_by_samples() -> None:
    one, two = (
        save({"a": torch.tensor(a), "n": torch.tensor([n])} | {k: torch.tensor([own]) for k in OWN})
        for a, n, own in (([1.0, 2.0], 3, 0.5), ([5.0, -2.0], 7, 0.25))
    )
    made = safetensors.numpy.load(average([one, two], [3, 1], [[1, 10], [2]]))
    assert [made[name].tolist() for name in OWN] == [[0.5], [0.25], [0.5]], "from its edge server"
    np.testing.assert_array_equal(made["a"], np.array([2.0, 1.0], np.float32))
    assert made["a"].dtype == np.float32
    assert made["n"].tolist() == [3]


def test_a_live_page_counts_the_rounds_of_all_edge_servers() -> None:
    live = Live(validate(HIERARCHY, "test"))
    assert live.rounds == 4
    (whole,) = tb.predict(validate(HIERARCHY, "test"), ChannelTrace(np.full((3, 4000), 1e-10), 0.1))
    clock = EmulatedClock(0, 0.0, 1.0)
    for number in range(4):
        live.begin(
            replace(whole, index=number % 2), clock, 0, np.ones((3, 1)), np.ones((3, 1)), None
        )
        assert live.state(-1, 0)["round"] == number
        live.finished(whole)


def test_the_automatic_dilation_suffices_for_every_edge_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    speeds = Speeds(forward_s=0.5, server_s=3.0, backward_s=0.5, contention=1.2, cores=2)
    monkeypatch.setattr(dilation, "measure", lambda *_: speeds)
    gain = np.array([3e-10, 2e-10, 1e-10])[:, None] * np.ones(4000)

    def settled(rows: list[int], **keys: Any) -> float:
        auto = {"emulation": {"dilation": "auto"}, "workload": LEARNING["workload"]}
        power_w = [LEARNING["uavs"]["tx_power_w"][row] for row in rows]
        tree = LEARNING | auto | {"uavs": {"count": len(rows), "tx_power_w": power_w}} | keys
        scenario = validate({k: v for k, v in tree.items() if v is not None}, "test")
        source = Replay(ChannelTrace(gain[rows], 0.1))
        return settle(scenario, source, profile_of(scenario))[0].dilation

    whole = settled([0, 1, 2])
    station = LEARNING["base_station"]
    edges = [
        settled([0, 2], topology=None),
        settled([1], topology=None, base_station=station | {"compute_flops": 5e12}),
    ]
    assert whole == max(edges) > min(edges)


def test_scenarios_keep_their_topology(tmp_path: Path) -> None:
    text = json.dumps(validate(HIERARCHY, "test").model_dump(mode="json"))
    assert validate(json.loads(text), "test") == validate(HIERARCHY, "test")
