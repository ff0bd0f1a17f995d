# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Scenarios are validated at the door, and refused with one line that names the field."""

import re
from pathlib import Path

import pytest

from orchestrator.campaigning.spec import load_campaign
from orchestrator.scenario import schema
from orchestrator.scenario.loading import load
from orchestrator.scenario.reference import reference
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError

SCENARIOS = Path(__file__).resolve().parents[3] / "scenarios"
PAPER = SCENARIOS / "paper.yaml"


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda p: p.stem)
def test_shipped_scenarios_are_valid(path: Path) -> None:
    assert isinstance(load(path), Scenario)


def test_the_papers_rings_hold_three_three_and_four() -> None:
    rings = load(PAPER).uavs.ring_m
    assert rings == [(100, 550)] * 3 + [(550, 820)] * 3 + [(820, 1000)] * 4


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("workload.split=5", "workload.split: must be at most 4, not 5"),
        ("rounds=1.5", "rounds: must be a whole number, not 1.5"),
        ("radio.carrier_hz=2GHz", "radio.carrier_hz: must be a number, not '2GHz'"),
        ("name=my run", "name: must consist of letters, digits, '_', '.' and '-', not 'my run'"),
        ("workload.splits=2", "workload.splits: no such key; did you mean 'split'?"),
        ("emulation[=1", "emulation[: no such key; did you mean 'emulation'?"),
        ("uavs.float=1", "uavs.float: no such key"),
        ("emulation.limits.cpu_steel=1", "emulation.limits.cpu_steel: no such key; did you mean"),
        ("radio.line_of_sight=alway", "not 'alway'; did you mean 'always'?"),
        ("radio.uplink_bandwidth_hz=1e-300", "radio.uplink_bandwidth_hz: must be a"),
        ("uavs.compute_flops=1e300", "uavs.compute_flops: must be "),
        ("allocation.policy=planer", "did you mean 'planner'?"),
        ("paradigm=cspfl", "paradigm: 'cspfl' is not one of sfl-pp"),
        (
            "uavs.tx_power_w=[1, -1]",
            "uavs.tx_power_w.1: must be at least",
        ),
        ("uavs.tx_power_w=[]", "uavs.tx_power_w"),
        ("uavs.height_m=1.4", "uavs.height_m"),
        ("uavs.rings_m=[[5, 4]]", "uavs.rings_m: inner radius 5 must be below the outer one 4"),
        ("uavs.ring=[1]", "uavs.ring: must have one entry per UAV: 10, not 1"),
        ("allocation.alpha=[0.5, 0.5]", "allocation.alpha: must have one share per UAV: 10, not 2"),
        ("allocation.beta=[0.5, 0.4]", "allocation.beta: must sum to 1, not 0.9"),
        ("allocation.beta=eqal", "allocation.beta: must be 'equal' or a list, not 'eqal'"),
        ("allocation.rho=[0.5, 0.25, x]", "allocation.rho.2: must be a number"),
        ("uavs.rings_m=[[100, 100.5]]", "uavs.rings_m: a ring must be 1 m wide or more"),
        ("workload.profile=paper", "workload.profile: must be 'auto' or 'counted'"),
        ("workload.profile={adapter_bytes: [1]}", "workload.profile."),
        ("emulation.dilation=0", "emulation.dilation"),
        ("emulation.dilation=.nan", "emulation.dilation: must be "),
        ("emulation.dilation=fast", "emulation.dilation: must be 'auto' or a number"),
        ("emulation.dilation=[1]", "emulation.dilation: must be 'auto' or a number"),
        ("emulation.overrun_bound=2", "emulation.overrun_bound: must be "),
        ("emulation.runtime=podman", "emulation.runtime: must be 'namespace' or 'docker'"),
        ("radio.line_of_sight=maybe", "radio.line_of_sight"),
        ("mobility.mean_speed_m_s=9", "mobility.mean_speed_m_s: must lie in speed_m_s"),
        ("rounds=zero", "rounds"),
        ("seed=-1", "seed"),
        ("rounds.many=1", "`overrides` rounds.many: rounds is a value, not a section"),
        ("rounds", "`overrides` rounds: must be dotted.key=value"),
        ("rounds=[", "`overrides` rounds: not YAML"),
    ],
)
def test_wrong_input_is_one_line_that_names_the_field(override: str, says: str) -> None:
    with pytest.raises(InputError) as raised:
        load(PAPER, [override])
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_types_of_fields_are_written_once() -> None:
    """A validation reads a thousand scenarios, and writing a type takes longer than reading it."""
    load(PAPER)
    before = schema._allowed.cache_info()
    load(PAPER)
    after = schema._allowed.cache_info()
    assert after.hits > before.hits
    assert after.misses == before.misses


@pytest.mark.parametrize(
    "key", ["rounds", "seed", "workload.clip_norm", "radio.carrier_hz", "workload.lora_rank"]
)
@pytest.mark.parametrize("value", ["yes", "[8, false]"])
def test_truth_values_are_not_numbers(key: str, value: str) -> None:
    with pytest.raises(InputError, match=f"{key}: ") as raised:
        load(PAPER, [f"{key}={value}"])
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ("adapters=all", "workload.adapters: must be 'lora', 'dora', 'full' or 'none'"),
        ("batch_norm=fedbn", "workload.batch_norm: must be 'averaged', 'frozen',"),
        ("momentum=1", "workload.momentum: must be below 1"),
        ("clip_norm=0", "workload.clip_norm: must be above 0"),
        ("accumulate=4", "workload.accumulate: must be at most the 3 iterations of a round, not 4"),
        (
            "accumulate=4 local_iterations=[3,1,1,1,1,1,1,1,1,1]",
            "workload.accumulate: must be at most the 3",
        ),
        (
            'codecs={"adapters_up":{"name":"top-k","feedback":"both"}}',
            "workload.codecs.adapters_up.feedback: must be absent",
        ),
        ("accumulate=0", "workload.accumulate: must be at least 1"),
        ("learning_rate_decay=0", "workload.learning_rate_decay: must be above 0"),
        ("learning_rate_last=2", "workload.learning_rate_last: must be "),
        ("learning_rate_step=0", "workload.learning_rate_step: must be a"),
        ("learning_rate_warmup=-1", "workload.learning_rate_warmup: must be a"),
        ("adapters=full clients_per_pass=2", "workload.clients_per_pass: must be 1 where work"),
        ("adapters=none aggregation=svd", "workload.aggregation: must not be 'svd'"),
        ("adapters=full aggregation=svd", "workload.aggregation: must not be 'svd'"),
        ("batch_norm=local server_adapters=shared", "workload.batch_norm: must be 'averaged' or"),
        ("batch_norm=local ..allocation.policy=planner", "allocation.policy may move split points"),
        ("batch_norm=per-client ..paradigm=asfl-pp", "where the paradigm is asynchronous"),
        ("batch_norm=per-client ..faults.on_loss=drop", "where faults.on_loss is 'drop'"),
    ],
)
def test_training_that_cannot_be_is_refused_in_one_line(overrides: str, says: str) -> None:
    with pytest.raises(InputError) as raised:
        load(PAPER, [f"workload.{each}".replace("workload...", "") for each in overrides.split()])
    assert says in str(raised.value)
    assert "workload." in str(raised.value)
    assert "\n" not in str(raised.value)


def test_new_keys_of_training_are_absent_by_default() -> None:
    """Digests of scenarios that were written before do not change."""
    written = load(PAPER, []).model_dump()["workload"]
    new = {"batch_norm", "momentum", "clip_norm", "accumulate", "learning_rate_schedule"}
    assert not {*new, "learning_rate_warmup", "learning_rate_last"} & set(written)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "must be a mapping"),
        ("- 1", "must be a mapping"),
        ("a: [", "not YAML"),
        ("{}", "uavs: is missing"),
        ("[" * 5000, "not YAML"),
        ("\x00", "not YAML"),
    ],
)
def test_a_file_that_is_no_scenario(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        load(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such scenario file"):
        load(tmp_path / "none.yaml")


def test_exponents_without_a_dot_are_numbers() -> None:
    assert load(PAPER, ["radio.carrier_hz=2e9"]).radio.carrier_hz == 2e9


def test_fewer_uavs_need_no_other_key() -> None:
    scenario = load(PAPER, ["uavs.tx_power_w=[1, 0.1]"])
    assert scenario.uavs.count == 2
    assert len(scenario.uavs.ring_m) == 2


@pytest.mark.parametrize("kind", ["scenario", "campaign"])
def test_a_key_that_stands_twice_is_refused_by_name_and_line(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text("name: x\nuavs:\n  height_m: 20\n  # a comment\n  height_m: 30\n")
    read = load if kind == "scenario" else load_campaign
    with pytest.raises(InputError, match=rf"^{path}, line 5: the key 'height_m' occurs twice.* 3$"):
        read(path)


def test_what_a_mapping_takes_over_may_be_said_anew(tmp_path: Path) -> None:
    path = tmp_path / "merged.yaml"
    base = "&b {tx_power_w: [1], height_m: 20}"
    path.write_text(f"mobility: {{}}\nuavs: {{<<: {base}, height_m: 30}}\n")
    assert load(path).uavs.height_m == 30


def test_what_is_no_yaml_is_refused_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("name: x\nuavs: [\n")
    with pytest.raises(InputError, match=rf"^{path}, line 3: "):
        load(path)


def test_only_a_scheduler_of_ns3_orders_gradients() -> None:
    keys = {"radio.access": "lte", "emulation.air": "ns3", "radio.lte.downlink_order": "mac"}

    def loaded(**other: str) -> str:
        given = keys | {key.replace("__", "."): value for key, value in other.items()}
        return load(
            PAPER, [f"{key}={value}" for key, value in given.items()]
        ).radio.lte.downlink_order

    assert loaded() == loaded(emulation__transport="tls") == "mac"
    for key, value, where in (
        ("radio__access", "wifi", "radio.access is not 'lte'"),
        ("emulation__air", "links", "emulation.air is 'links'"),
        ("emulation__transport", "grpc", "packets of emulation.transport cannot be marked"),
        ("emulation__transport", "quic", "packets of emulation.transport cannot be marked"),
    ):
        says = f"radio.lte.downlink_order: must be 'application' where {where}"
        with pytest.raises(InputError, match=says) as refused:
            loaded(**{key: value})
        assert "\n" not in str(refused.value)


def test_every_number_of_a_scenario_has_bounds() -> None:
    """The reference gives the bounds of each key whose default is a number."""
    unbounded = [
        line
        for line in reference().splitlines()
        if re.match(r"\| (<a [^>]*></a>)?`[\w.\[\]]+` \| `\[*-?\d", line)
        and not re.search(r" (From|At least|Above) -?\d| One of `-?\d", line)
    ]
    assert not unbounded


def test_links_are_calibrated_with_the_real_clock_or_on_request() -> None:
    why = "emulation.clock is virtual, so no link can be late"
    for given, expected in (
        ([], ""),
        (["emulation.clock=virtual"], why),
        (["emulation.clock=virtual", "emulation.calibrate=true"], ""),
        (["emulation.calibrate=false"], "emulation.calibrate is off"),
    ):
        emulation = load(PAPER, given).emulation
        assert (emulation.uncalibrated, emulation.calibrates) == (expected, not expected)
