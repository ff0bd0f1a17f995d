# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Published schemes: the engine, the published formula and plain numpy give the same latency."""

import math
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import orchestrator as tb
from ns3_scenarios.trace import ChannelTrace, Replay
from orchestrator.engine.plan import fixed_allocation, plan_round
from orchestrator.engine.radio import radio_access
from orchestrator.rounds.loop import predict
from orchestrator.scenario.loading import load
from orchestrator.scenario.profiles import profile_of
from testbed.core.timeline import CM, Round

PAPERS = Path(__file__).parents[2] / "examples" / "papers"
CHANNEL = runpy.run_path(str(PAPERS / "static_channel.py"))
GAIN = 10 ** (-(61.4 + 20 * np.log10(CHANNEL["DISTANCE_M"])) / 10)
CLOSE = 1e-6


class Numbers:
    """A scenario's YAML, without the testbed: rates by Shannon, equal shares of the bands."""

    def __init__(self, name: str) -> None:
        tree: dict[str, Any] = yaml.safe_load((PAPERS / f"{name}.yaml").read_text())
        self.tree, self.workload = tree, tree["workload"]
        split, profile = self.workload["split"] - 1, self.workload["profile"]
        self.clients = len(GAIN)
        self.batch, self.iterations = self.workload["batch_size"], self.workload["local_iterations"]
        self.power_w = np.array(tree["uavs"]["tx_power_w"])
        samples = self.batch / np.array(tree["uavs"]["compute_flops"])
        self.forward = samples * profile["client_forward_flops"][split]
        self.backward = 2.0 * self.forward
        self.server_flops = profile["server_forward_flops"][split]
        self.server = tree["base_station"]["compute_flops"]
        self.smashed = profile["smashed_bytes"][split]
        self.adapters = 8 * profile["adapter_bytes"][split]
        whole_up, self.down = (tree["radio"][f"{way}link_bandwidth_hz"] for way in ("up", "down"))
        self.whole_up = self.rate(whole_up, self.power_w)
        self.up = self.rate(whole_up / self.clients, self.power_w)
        power_w = tree["base_station"]["tx_power_w"]
        self.broadcast = self.rate(self.down, power_w)
        self.gradient = self.rate(self.down / self.clients, power_w / self.clients)

    def rate(self, hz: float, power_w: Any) -> Any:
        noise_w = 1e-3 * 10 ** (self.tree["radio"]["noise_dbm_per_mhz"] / 10) / 1e6 * hz
        return hz * np.log2(1 + power_w * GAIN / noise_w)


def scenario_of(name: str, **keys: Any) -> tb.Scenario:
    scenario = load(PAPERS / f"{name}.yaml")
    return scenario if not keys else tb.Scenario.model_validate(scenario.model_dump() | keys)


def predicted(scenario: tb.Scenario) -> Round:
    source = Replay(ChannelTrace(np.repeat(GAIN[:, None], 4000, 1), 0.1))
    (round_,) = predict(scenario, source, profile_of(scenario))
    return round_


def published(name: str, scenario: tb.Scenario, clients: list[int] | None = None) -> float:
    """The latency according to the example's model."""
    gain = np.repeat(GAIN[:, None], 2, 1)
    plan = plan_round(scenario, profile_of(scenario), fixed_allocation(scenario).among(clients))
    radio = radio_access(scenario, ChannelTrace(gain, 0.1))
    model = runpy.run_path(str(PAPERS / f"{name}.py"))["latency_s"]
    return float(model(plan, radio, gain, 0.1))


@pytest.mark.parametrize("share", [0.01, 0.5, 1.0])
def test_epsl(share: float) -> None:
    scenario = load(PAPERS / "epsl.yaml")
    workload = scenario.workload.model_copy(update={"gradient_aggregation": share})
    scenario = scenario.model_copy(update={"workload": workload})
    of = Numbers("epsl")
    shared = math.ceil(share * of.batch)
    rest, bits = of.batch - shared, 8 * of.smashed
    backward = shared + of.clients * (rest)
    server = (of.clients * of.batch + 2.0 * backward) * of.server_flops / of.server
    latency_s = (
        (of.adapters / of.broadcast).max()
        + (of.forward + of.batch * bits / of.up).max()
        + server
        + (shared * bits / of.broadcast).max()
        + (rest * bits / of.gradient + of.backward + of.adapters / of.up).max()
    )
    assert predicted(scenario).latency_s == pytest.approx(latency_s, rel=CLOSE)
    assert published("epsl", scenario) == pytest.approx(latency_s, rel=CLOSE)


def test_splitfed_with_a_barrier_before_the_models_are_uploaded() -> None:
    scenario, of = load(PAPERS / "splitfed.yaml"), Numbers("splitfed")
    bits = 8 * of.smashed * of.batch
    served = 3.0 * of.batch * of.server_flops / (of.server / of.clients)
    iteration = of.forward + bits / of.up + served + bits / of.gradient + of.backward
    training = (of.adapters / of.broadcast).max() + of.iterations * iteration.max()
    latency_s = training + (of.adapters / of.up).max()
    round_ = predicted(scenario)
    assert round_.latency_s == pytest.approx(latency_s, rel=CLOSE)
    assert published("splitfed", scenario) == pytest.approx(latency_s, rel=CLOSE)
    starts_s = round_.spans["start_s"][round_.spans["step"] == CM]
    assert starts_s == pytest.approx(np.full(of.clients, training), rel=CLOSE)


def test_fedcs_chooses_in_time_and_uploads_in_turn() -> None:
    scenario, of = load(PAPERS / "fedcs.yaml"), Numbers("fedcs")
    limit_s = of.tree["participation"]["parameters"]["round_s"]
    update, upload = of.iterations * (of.forward + of.backward), of.adapters / of.whole_up
    distribution = of.adapters / of.broadcast

    def round_s(order: list[int]) -> float:
        theta = 0.0
        for k in order:
            theta += upload[k] + max(0.0, update[k] - theta)
        return float(distribution[order].max()) + theta

    left, chosen = list(range(of.clients)), list[int]()
    while left:
        _, best = min((round_s([*chosen, k]), k) for k in left)
        left.remove(best)
        if round_s([*chosen, best]) < limit_s:
            chosen.append(best)
    latency_s = round_s(chosen)
    assert 1 < len(chosen) < of.clients
    assert chosen != sorted(chosen)
    round_ = predicted(scenario)
    assert round_.latency_s == pytest.approx(latency_s, rel=CLOSE)
    clients = [k + 1 for k in chosen]
    assert published("fedcs", scenario, clients) == pytest.approx(latency_s, rel=CLOSE)
    uploads = np.sort(round_.spans[round_.spans["step"] == CM], order="start_s")
    assert uploads["client"].tolist() == clients
    assert (uploads["start_s"][1:] >= uploads["end_s"][:-1] - 1e-9).all()
