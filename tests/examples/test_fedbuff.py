# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""FedBuff: the engine, the base station's protocol and the learner do what the paper publishes."""

import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from small_learning import MODEL

import orchestrator as tb
from ns3_scenarios.trace import ChannelTrace, Replay
from orchestrator.engine.plan import fixed_allocation, plan_round
from orchestrator.engine.radio import radio_access
from orchestrator.rounds.loop import predict
from orchestrator.scenario.loading import load
from orchestrator.scenario.profiles import profile_of
from testbed.core.timeline import CM, SM
from workloads.learning.backbone import load_model
from workloads.learning.cached import backbone_file
from workloads.learning.learner import ServerLearner
from workloads.learning.settings import TrainingConfig

FILE = Path(__file__).parents[2] / "examples" / "papers" / "fedbuff.yaml"
PAPER = runpy.run_path(str(FILE.with_suffix(".py")))
GAIN = 10 ** (-(61.4 + 20 * np.log10([35.0, 62.5, 97.0, 140.0, 188.0])) / 10)
CHANNEL = ChannelTrace(np.repeat(GAIN[:, None], 2000, axis=1), 0.1)
CLOSE = 1e-6


@pytest.fixture(scope="module")
def scenario() -> tb.Scenario:
    return load(FILE)


@pytest.fixture(scope="module")
def events(scenario: tb.Scenario) -> list[tuple[float, int, int]]:
    """Time, step and client (from 0) of all SM that begin and CM that end, arrivals first."""
    spans = np.concatenate([r.spans for r in rounds(scenario)])
    sent, arrived = spans[spans["step"] == SM], spans[spans["step"] == CM]
    found = [(s["end_s"], 0, s["client"] - 1) for s in arrived]
    found += [(s["start_s"], 1, s["client"] - 1) for s in sent]
    return sorted((round(float(at_s), 9), step, int(k)) for at_s, step, k in found)


def rounds(scenario: tb.Scenario) -> list[tb.Round]:
    return list(predict(scenario, Replay(CHANNEL), profile_of(scenario)))


def update_s() -> np.ndarray:
    """T_k from the numbers of the file alone."""
    tree = yaml.safe_load(FILE.read_text())
    work, band, clients = tree["workload"], tree["radio"]["uplink_bandwidth_hz"], len(GAIN)
    split, batch = work["split"] - 1, work["batch_size"]
    hz = band / clients
    # Noise in the band of one client.
    noise_w = 1e-3 * 10 ** (tree["radio"]["noise_dbm_per_mhz"] / 10) / 1e6 * hz
    up = hz * np.log2(1 + np.array(tree["uavs"]["tx_power_w"]) * GAIN / noise_w)
    down = hz * np.log2(1 + tree["base_station"]["tx_power_w"] / clients * GAIN / noise_w)
    of = {name: values[split] for name, values in work["profile"].items()}
    passes = 3 * batch  # forward, and backward of twice as much
    client_s = passes * of["client_forward_flops"] / np.array(tree["uavs"]["compute_flops"])
    share = tree["base_station"]["compute_flops"] / clients
    server_s = passes * of["server_forward_flops"] / share
    smashed_bits = 8 * batch * of["smashed_bytes"]
    iteration_s = client_s + server_s + smashed_bits * (1 / up + 1 / down)
    return work["local_iterations"] * iteration_s + 8 * of["adapter_bytes"] * (1 / up + 1 / down)


def test_updates_arrive_when_the_formula_and_numpy_say(scenario: tb.Scenario) -> None:
    each = update_s()
    due, clients = PAPER["arrivals"](each, scenario.updates)
    played = rounds(scenario)
    uploads = np.concatenate([r.spans[r.spans["step"] == CM] for r in played])
    uploads = np.sort(uploads, order="end_s")
    assert uploads["end_s"] == pytest.approx(due, rel=CLOSE)
    assert np.array_equal(uploads["client"] - 1, clients)
    ends = due[scenario.updates_per_round - 1 :: scenario.updates_per_round]
    assert [r.end_s for r in played] == pytest.approx(ends, rel=CLOSE)
    plan = plan_round(scenario, profile_of(scenario), fixed_allocation(scenario))
    model = PAPER["latency_s"](plan, radio_access(scenario, CHANNEL), CHANNEL.values, 0.1)
    assert model == pytest.approx(played[-1].end_s, rel=CLOSE)
    assert model == pytest.approx(due[-1], rel=CLOSE)
    other = replace(scenario.scheme, server_compute="sequential")
    assert PAPER["latency_s"](replace(plan, paradigm=other), None, None, 0.1) is None


def test_the_server_steps_are_those_of_the_paper(
    scenario: tb.Scenario, events: list[tuple[float, int, int]], tmp_path: Path
) -> None:
    """Each client adds a random difference to the model that it was sent."""
    section = scenario.workload.asynchronous
    training = TrainingConfig(
        buffer=section.buffer, server_learning_rate=section.server_learning_rate
    )
    backbone = load_model(MODEL, backbone_file(MODEL, tmp_path))
    server = ServerLearner(backbone, [1, 2, 3, 4, 5], training)
    rng, cut = np.random.default_rng(1), len(server.begin_round(2))
    start = whole(server)
    sent: dict[int, np.ndarray] = {}
    version, versions = 0, {}
    differences, clients, stale, models = [], [], [], []
    for _, step, k in events:
        if step == 1:
            server.begin_update(k + 1)
            sent[k], versions[k] = whole(server), version
            continue
        difference = rng.normal(0, 0.01, len(start)).astype(np.float32)
        trained = torch.from_numpy((sent[k] + difference).astype(np.float32))
        server._trainees[k + 1].values.data.copy_(trained[cut:])
        stale.append(version - versions[k])
        server.mix(k + 1, trained[:cut], stale[-1])
        differences.append(trained.double().numpy() - sent[k])
        clients.append(k)
        if len(clients) % section.buffer == 0:
            server.apply_buffer()
            version += 1
            models.append(whole(server))
    assert np.array_equal(stale, PAPER["staleness"](clients, section.buffer))
    assert max(stale) > 1
    due = PAPER["server_steps"](
        *(start, differences, stale), section.buffer, section.server_learning_rate
    )
    assert len(due) == len(models) == scenario.updates // section.buffer
    for model, expected in zip(models, due, strict=True):
        assert np.abs(model - expected).max() <= CLOSE


def whole(server: ServerLearner) -> np.ndarray:
    return server._vector.double().numpy()


def test_the_model_is_none_for_synchronous_rounds(scenario: tb.Scenario) -> None:
    for paradigm in ("sfl-pp", "pipesfl"):
        other = load(FILE, [f"paradigm={paradigm}"])
        plan = plan_round(other, profile_of(other), fixed_allocation(other))
        assert PAPER["latency_s"](plan, None, None, 0.1) is None
