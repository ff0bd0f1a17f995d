"""Scenarios are validated at the door, and refused with one line that names the field."""

from pathlib import Path

import pytest

from orchestrator.scenario.loading import load
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
        ("workload.split=5", "workload.split: input should be less than or equal to 4, not '5'"),
        ("workload.splits=2", "workload.splits: no such key"),
        ("paradigm=cspfl", "paradigm: 'cspfl' is not one of sfl-pp"),
        ("uavs.tx_power_w=[1, -1]", "uavs.tx_power_w.1: input should be greater than 0"),
        ("uavs.tx_power_w=[]", "uavs.tx_power_w"),
        ("uavs.height_m=9", "uavs.height_m"),
        ("uavs.rings_m=[[5, 4]]", "uavs.rings_m: inner radius 5 must be below the outer one 4"),
        ("uavs.ring=[1]", "uavs.ring: must have one entry a UAV: 10, not 1"),
        ("allocation.alpha=[0.5, 0.5]", "allocation.alpha: must have one share a UAV: 10, not 2"),
        ("allocation.beta=[0.5, 0.4]", "allocation.beta: must sum to 1, not 0.9"),
        ("allocation.beta=eqal", "allocation.beta: input should be 'equal' or a list, not 'eqal'"),
        ("allocation.rho=[1, 2, x]", "allocation.rho.2: input should be a valid number"),
        ("uavs.rings_m=[[100, 100.5]]", "uavs.rings_m: a ring must be 1 m wide or more"),
        ("workload.profile=paper", "workload.profile: input should be 'auto' or 'counted'"),
        ("workload.profile={adapter_bytes: [1]}", "workload.profile."),
        ("emulation.dilation=0", "emulation.dilation"),
        ("emulation.dilation=.nan", "emulation.dilation: input should be "),
        ("emulation.dilation=fast", "emulation.dilation: input should be 'auto' or a number"),
        ("emulation.dilation=[1]", "emulation.dilation: input should be 'auto' or a number"),
        ("emulation.overrun_bound=2", "emulation.overrun_bound: input should be less than"),
        ("emulation.runtime=podman", "emulation.runtime: input should be 'namespace' or 'docker'"),
        ("radio.line_of_sight=maybe", "radio.line_of_sight"),
        ("mobility.mean_speed_m_s=9", "mobility.mean_speed_m_s: must lie in speed_m_s"),
        ("rounds=zero", "rounds"),
        ("seed=-1", "seed"),
        ("rounds.many=1", "--set rounds.many: rounds is a value, not a section"),
        ("rounds", "--set rounds: must be dotted.key=value"),
        ("rounds=[", "--set rounds: not YAML"),
    ],
)
def test_wrong_input_is_one_line_that_names_the_field(override: str, says: str) -> None:
    with pytest.raises(InputError) as raised:
        load(PAPER, [override])
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


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
