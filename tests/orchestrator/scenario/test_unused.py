# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Keys that have no effect are named, with the reason; keys that have one are not."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_scenario import TREE

import orchestrator as tb
from ns3_scenarios.trace import ChannelTrace, trace_of
from orchestrator.campaigning.spec import cells, load_campaign
from orchestrator.scenario.loading import put, validate
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.unused import Use, _log_once, replaced_by, unused
from testbed.core.errors import InputError

ROOT = Path(__file__).parents[3]
LEARNS = {"workload.compute": "real"}
CELL = {
    "radio.access": "lte",
    "radio.uplink_bandwidth_hz": 5e6,
    "radio.downlink_bandwidth_hz": 5e6,
}
BY_MAC = {
    "radio.access": "lte",
    "emulation.air": "ns3",
    "radio.lte.downlink_order": "mac",
    "radio.uplink_bandwidth_hz": 5e6,
    "radio.downlink_bandwidth_hz": 5e6,
}
FAULT = {"kind": "uav-crash", "nodes": ["uav1"]}
DRAWN = {"count": 1, "kinds": ["uav-crash"]}


def scenario(keys: dict[str, Any]) -> Scenario:
    tree = deepcopy(TREE)
    for key, value in keys.items():
        put(tree, key, value, "test")
    return validate(tree, "test")


@pytest.mark.parametrize(
    ("keys", "key", "reason", "remedy"),
    [
        (
            {"workload.asynchronous.mixing": 0.5},
            "workload.asynchronous.mixing",
            "the paradigm 'cpsfl' is not asynchronous",
            {"paradigm": "asfl-pp"},
        ),
        (
            {"paradigm": "asfl-pp", "workload.asynchronous.hinge": 3},
            "workload.asynchronous.hinge",
            "workload.asynchronous.staleness is 'polynomial'",
            {"workload.asynchronous.staleness": "hinge"},
        ),
        (
            {
                "paradigm": "asfl-pp",
                "workload.asynchronous.staleness": "constant",
                "workload.asynchronous.exponent": 1,
            },
            "workload.asynchronous.exponent",
            "workload.asynchronous.staleness is 'constant'",
            {"workload.asynchronous.staleness": "hinge"},
        ),
        (
            {**BY_MAC, "paradigm": "sfl-pp"},
            "radio.lte.downlink_order",
            "'sfl-pp' has no sequential gradients; only a session's programs may mark their packets"
            " then",
            {"paradigm": "sfl-ps"},
        ),
        (
            {**BY_MAC, "radio.lte.scheduler": "shares", "paradigm": "asfl-ps"},
            "radio.lte.downlink_order",
            "'asfl-ps' has no sequential gradients; only a session's programs may mark their "
            "packets then",
            {"paradigm": "cpsfl"},
        ),
        (
            {**CELL, "radio.lte.scheduling_request_s": 0.02},
            "radio.lte.scheduling_request_s",
            "emulation.air is 'links'; only `trace --radio ns3-lte` takes it then",
            {"emulation.air": "ns3"},
        ),
        (
            {**CELL, "radio.lte.background": {"load": 0.1, "users": 2}},
            "radio.lte.background.users",
            "emulation.air is 'links'; only `trace --radio ns3-lte` takes it then",
            {"emulation.air": "ns3"},
        ),
        (
            {"radio.wifi.rts": True},
            "radio.wifi",
            "radio.access is 'shannon'; only `trace --radio ns3-wifi` takes them then",
            {"radio.access": "wifi"},
        ),
        (
            {
                "radio.access": "wifi",
                "radio.uplink_bandwidth_hz": 10e6,
                "radio.downlink_bandwidth_hz": 20e6,
            },
            "radio.uplink_bandwidth_hz",
            "radio.access is 'wifi', whose channel has radio.wifi.width_mhz",
            {"radio.access": "shannon"},
        ),
        (
            {
                "radio.access": "wifi",
                "radio.uplink_bandwidth_hz": 20e6,
                "radio.downlink_bandwidth_hz": 10e6,
            },
            "radio.downlink_bandwidth_hz",
            "radio.access is 'wifi', whose channel has radio.wifi.width_mhz",
            {"radio.access": "shannon"},
        ),
        (
            {
                "radio.access": "wifi",
                "radio.uplink_bandwidth_hz": 20e6,
                "radio.downlink_bandwidth_hz": 20e6,
                "radio.wifi.access_point_power_w": 0.5,
                "base_station.tx_power_w": 20,
            },
            "base_station.tx_power_w",
            "radio.wifi.access_point_power_w is given",
            {"radio.wifi.access_point_power_w": None},
        ),
        (
            {"allocation.alpha": [0.5, 0.25, 0.25], "paradigm": "sfl-sp"},
            "allocation.alpha",
            "'sfl-sp' computes sequentially",
            {"paradigm": "sfl-pp"},
        ),
        (
            {"allocation.rho": [0.5, 0.25, 0.25]},
            "allocation.rho",
            "'cpsfl' transmits gradients sequentially",
            {"paradigm": "sfl-pp"},
        ),
        (
            {"order": "round-robin", "paradigm": "sfl-pp"},
            "order",
            "'sfl-pp' has no queue",
            {"paradigm": "sfl-sp"},
        ),
        (
            {"participation.rule": "by-channel"},
            "participation.rule",
            "participation.clients is absent, so all UAVs take part",
            {"participation.clients": 2},
        ),
        (
            {"allocation.policy": "equal", "allocation.observation.noise_db": 3},
            "allocation.observation.noise_db",
            "allocation.policy 'equal' does not observe the channel",
            {"allocation.policy": "planner"},
        ),
        (
            {"allocation.observation.delay_slots": 3},
            "allocation.observation.delay_slots",
            "allocation.policy 'fixed' does not observe the channel",
            {"participation.clients": 2, "participation.rule": "by-channel"},
        ),
        (
            {
                "allocation.policy": "agent",
                "allocation.agent": "a",
                "allocation.observation.noise_db": 3,
            },
            "allocation.observation.noise_db",
            "an agent observes positions, not gains",
            {"allocation.policy": "planner"},
        ),
        (
            {"allocation.agent": "a"},
            "allocation.agent",
            "allocation.policy is 'fixed'",
            {"allocation.policy": "agent"},
        ),
        (
            {"allocation.policy": "static"},
            "workload.split",
            "allocation.policy 'static' decides split points",
            {"allocation.policy": "equal"},
        ),
        (
            {"workload.evaluate_every": 1},
            "workload.evaluate_every",
            "workload.compute is 'none'",
            LEARNS,
        ),
        (
            LEARNS | {"workload.evaluate_samples": 9},
            "workload.evaluate_samples",
            "workload.evaluate_every is 0",
            {"workload.evaluate_every": 1},
        ),
        (
            {"workload.data.partition": "dirichlet"},
            "workload.data.partition",
            "workload.compute is 'none'",
            LEARNS,
        ),
        *(
            (
                LEARNS | {"workload.adapters": "full", f"workload.{name}": value},
                f"workload.{name}",
                "workload.adapters is 'full'",
                {"workload.adapters": "lora"},
            )
            for name, value in (
                ("lora_rank", 4),
                ("lora_alpha", 4),
                ("lora_targets", "a"),
                ("lora_dropout", 0.1),
            )
        ),
        (
            LEARNS | {"workload.momentum": 0.5},
            "workload.momentum",
            "workload.optimiser is 'adamw'",
            {"workload.optimiser": "sgd"},
        ),
        (
            LEARNS | {"workload.learning_rate_step": 3},
            "workload.learning_rate_step",
            "workload.learning_rate_schedule is 'constant'",
            {"workload.learning_rate_schedule": "step"},
        ),
        (
            LEARNS
            | {"workload.learning_rate_schedule": "step", "workload.learning_rate_step": 3}
            | {"rounds": 3},
            "workload.learning_rate_schedule",
            "the first change of workload.learning_rate_step is after the last round",
            {"rounds": 4},
        ),
        (
            LEARNS
            | {"workload.learning_rate_schedule": "linear", "workload.learning_rate_decay": 0.5},
            "workload.learning_rate_decay",
            "workload.learning_rate_schedule is 'linear'",
            {"workload.learning_rate_schedule": "step"},
        ),
        (
            LEARNS
            | {"workload.learning_rate_schedule": "step", "workload.learning_rate_last": 1}
            | {"rounds": 4},
            "workload.learning_rate_last",
            "workload.learning_rate_schedule is 'step'",
            {"workload.learning_rate_schedule": "cosine"},
        ),
        (
            {"workload.accumulate": 2},
            "workload.accumulate",
            "workload.compute is 'none'",
            LEARNS,
        ),
        (
            {"workload.data.image_column": "i"},
            "workload.data.image_column",
            "workload.data.source is 'synthetic'",
            {"workload.data.source": "folder"},
        ),
        (
            LEARNS | {"workload.data.source": "folder", "workload.data.samples": 9},
            "workload.data.samples",
            "workload.data.source is not 'synthetic'",
            {"workload.data.source": "synthetic"},
        ),
        (
            LEARNS | {"workload.data.concentration": 9},
            "workload.data.concentration",
            "workload.data.partition is 'iid'",
            {"workload.data.partition": "quantity"},
        ),
        (
            LEARNS | {"workload.data.noise": 1},
            "workload.data.noise",
            "workload.data.partition is 'iid'",
            {"workload.data.partition": "feature"},
        ),
        (
            {"emulation.overrun_bound": 0.1},
            "emulation.overrun_bound",
            "emulation.dilation is a number",
            {"emulation.dilation": "auto"},
        ),
        (
            {"emulation.docker_image": "debian"},
            "emulation.docker_image",
            "emulation.runtime is 'namespace'",
            {"emulation.runtime": "docker"},
        ),
        (
            {"faults.events": [FAULT | {"factor": 3}]},
            "faults.events[0].factor",
            "faults.events[0].kind is 'uav-crash'",
            {"faults.events": [FAULT | {"factor": 3, "kind": "slow-node"}]},
        ),
        (
            {"faults.events": [FAULT | {"round": 1}]},
            "faults.events[0].round",
            "the last round is 0",
            {"rounds": 2},
        ),
        (
            {"faults.random": DRAWN | {"factor": [3, 4]}},
            "faults.random.factor",
            "faults.random.kinds has no slow-node",
            {"faults.random.kinds": ["slow-node"]},
        ),
        (
            {"faults.random": DRAWN | {"duration_s": [3, 4]}},
            "faults.random.duration_s",
            "no kind in faults.random.kinds has a duration",
            {"faults.random.kinds": ["partition"]},
        ),
        (
            {"faults.random": DRAWN | {"rate_per_s": 1}},
            "faults.random.rate_per_s",
            "faults.random.count is given",
            {"faults.random.count": None},
        ),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_key_without_effect_in_this_combination_is_named(
    keys: dict[str, Any], key: str, reason: str, remedy: dict[str, Any]
) -> None:
    assert unused(scenario(keys)) == {reason: [key]}
    assert key not in [k for keys_ in unused(scenario(keys | remedy)).values() for k in keys_]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dilation", 3),
        ("dilation", 0.5),
        ("dilation", 1e6),
        ("dilation", "auto"),
        ("overrun_bound", 0.1),
        ("limits.cpu_steal", 0.5),
        ("limits.cpu_others", 0),
        ("limits.clock_drift_ppm", 1),
        ("limits.clock_error_s", 1),
    ],
)
def test_virtual_time_fixes_the_keys_of_the_real_clock_and_says_so(key: str, value: object) -> None:
    """What is emulated, predicted, written and compared is the scenario without the key."""
    virtual = {"emulation.clock": "virtual"}
    fixed, plain = scenario({f"emulation.{key}": value} | virtual), scenario(virtual)
    reason = "emulation.clock is 'virtual', so the dilation is 1 and no other program runs"
    assert unused(fixed) == {reason: [f"emulation.{key}"]}
    assert unused(plain) == {}
    assert fixed.model_dump(mode="json") == plain.model_dump(mode="json")
    assert unused(validate(fixed.model_dump(mode="json"), "written")) == {}
    assert fixed.resolved(1.0) == plain.resolved(1.0)
    assert f"emulation.{key}" not in unused(scenario({f"emulation.{key}": value})).get(reason, [])


def test_one_line_names_all_keys_that_virtual_time_fixes() -> None:
    keys = {"dilation": 3, "overrun_bound": 0.1, "limits.cpu_steal": 1, "limits.rest_share": 0.5}
    found = scenario(
        {f"emulation.{k}": v for k, v in keys.items()} | {"emulation.clock": "virtual"}
    )
    (named,) = unused(found).values()
    assert named == [f"emulation.{key}" for key in [*keys][:3]]
    assert found.emulation.limits.rest_share == 0.5


@pytest.mark.parametrize("value", [0, -1, 1e7, "fast", "yes"])
def test_a_wrong_dilation_is_refused_in_virtual_time_too(value: object) -> None:
    with pytest.raises(InputError, match=r"emulation\.dilation"):
        scenario({"emulation.dilation": value, "emulation.clock": "virtual"})


@pytest.mark.parametrize(
    ("use", "named"),
    [
        (
            "a prediction",
            {
                "only a session (`testbed up`) has them": ["links.relay", "links.at_trace_end"],
                "only the emulation has queues": ["links.queue", "links.ecn"],
                "modelled times are predicted": ["workload.compute_time"],
            },
        ),
        (
            "a run",
            {"only a session (`testbed up`) has them": ["links.relay", "links.at_trace_end"]},
        ),
        (
            "a session",
            {"a session has no rounds": ["participation.clients"]},
        ),
    ],
)
def test_a_use_names_the_keys_that_it_does_not_consider(
    use: Use, named: dict[str, list[str]]
) -> None:
    links = {"links.relay": True, "links.at_trace_end": "repeat", "links.queue": "pie"}
    other = {"links.ecn": True, "workload.compute_time": "measured", "participation.clients": 2}
    assert unused(scenario(links | other), use) == named
    assert unused(scenario({}), use) == {}


def test_scenarios_and_campaigns_of_the_testbed_have_no_such_key() -> None:
    for name in ("paper", "quickstart", "hundred"):
        assert unused(tb.load(name)) == unused(tb.load(name), "a run") == {}
    for name in ("paper", "quickstart", "figure8"):
        campaign = load_campaign(ROOT / "campaigns" / f"{name}.yaml")
        points = {cell.point.id: cell.point for cell in cells(campaign)}
        for point in points.values():
            assert unused(point.scenario) == unused(point.scenario, "a prediction") == {}


def test_a_prediction_says_it_once(caplog: pytest.LogCaptureFixture) -> None:
    _log_once.cache_clear()
    asked = scenario({"links.relay": True})
    for _ in range(2):
        tb.predict(asked)
    line = "links.relay: no effect; only a session (`testbed up`) has them"
    assert caplog.messages.count(line) == 1


def test_a_trace_names_the_keys_that_it_replaces() -> None:
    plain = {"mobility.memory": 0.5, "slot_s": 0.2, "radio.shadow_fading": True}
    asked = scenario(plain)
    gain, bps = np.full((3, 4), 1e-9), np.full((3, 4), 1e7)
    position = np.full((3, 4, 3), 20.0)
    rates = trace_of({"uplink_bps": bps, "downlink_bps": bps, "slot_s": 1}, "t")
    named = ["mobility.memory", "radio.shadow_fading", "slot_s"]
    bands = ["radio.uplink_bandwidth_hz", "radio.downlink_bandwidth_hz"]
    assert replaced_by(asked, ChannelTrace(gain, 1.0)) == named
    assert replaced_by(asked, rates) == [*named, *bands]
    # The planner extrapolates flights with the scenario's path loss.
    plans = scenario(plain | {"allocation.policy": "planner", "workload.split": 2})
    assert replaced_by(plans, ChannelTrace(gain, 1.0, position)) == ["slot_s"]
    assert replaced_by(plans, ChannelTrace(gain, 1.0)) == named


def test_a_warm_up_as_long_as_the_run_is_said(caplog: pytest.LogCaptureFixture) -> None:
    _log_once.cache_clear()
    for warmup, said in ((2, 0), (3, 1)):
        tb.load("paper", ["rounds=3", f"workload.learning_rate_warmup={warmup}"])
        lines = [line for line in caplog.messages if line.startswith("workload.learning_rate_w")]
        assert len(lines) == said
    assert "lasts 3 rounds and the run 3" in lines[0]
