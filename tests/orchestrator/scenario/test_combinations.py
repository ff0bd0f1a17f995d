# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The table of values that do not go together: each row refuses its example, at the right time."""

import ast
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from combination_examples import EXAMPLES, IGNORED, tree_of
from console import run_testbed

import orchestrator as tb
from ns3_scenarios.trace import ChannelTrace
from orchestrator.scenario import combinations, facts
from orchestrator.scenario.combinations import COMBINATIONS, Combination, check, refusals
from orchestrator.scenario.loading import validate
from testbed.core.errors import InputError

AT_LOAD = [
    row for row in COMBINATIONS if not row.channels and row.command in ("", "ns3-lte", "ns3-nr")
]
LATER = [row for row in COMBINATIONS if row not in AT_LOAD]


def without(row: Combination) -> tuple[Combination, ...]:
    """The table without a row."""
    return tuple(each for each in COMBINATIONS if each is not row)


def test_each_row_has_a_name_and_an_example() -> None:
    assert len({row.name for row in COMBINATIONS}) == len(COMBINATIONS)
    assert EXAMPLES.keys() == {row.name for row in COMBINATIONS}


def test_no_fact_takes_the_name_of_another() -> None:
    """Otherwise the rows of the first would refuse by the second, and let their values pass."""
    body = ast.parse(Path(facts.__file__).read_text()).body
    targets = [each for line in body if isinstance(line, ast.Assign) for each in line.targets]
    names = [each.id for each in targets if isinstance(each, ast.Name)]
    assert len(names) > 50
    assert [name for name, count in Counter(names).items() if count > 1] == []


@pytest.mark.parametrize("row", AT_LOAD, ids=lambda row: row.name)
def test_a_scenario_is_refused_when_it_is_loaded(
    row: Combination, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tree_of(EXAMPLES[row.name])
    monkeypatch.setattr(combinations, "COMBINATIONS", (row,))
    with pytest.raises(InputError) as refused:
        validate(tree, "test")
    line = str(refused.value).removeprefix("test: ")
    key, _, _ = line.partition(":")
    assert any(key.startswith(known) for known in row.keys)
    assert row.because in line
    assert "\n" not in line
    monkeypatch.setattr(combinations, "COMBINATIONS", without(row))
    others = row.name in IMPLIED_BY_OTHERS
    try:
        validate(tree, "test")
    except InputError:
        assert others
    else:
        assert not others


IMPLIED_BY_OTHERS: set[str] = set()


def predicted_s(example: dict[str, Any]) -> float:
    """The end of the example's first round, with frames, on a channel that changes."""
    gain = 10 ** np.random.default_rng(1).normal(-9.5, 0.3, (3, 4000))
    position_m = np.full((3, 4000, 3), [100.0, 0.0, 20.0])
    trace = ChannelTrace(gain, 0.1, position_m=position_m, gain_cells=gain[None])
    scenario = validate(tree_of({"workload.compute": "none"} | example), "test")
    return tb.predict(scenario, trace, rounds=1, wire=True).end_s


@pytest.mark.parametrize("name", IGNORED)
def test_without_its_row_a_key_is_ignored(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    example = EXAMPLES[name]
    assert example.keys() >= set(IGNORED[name])
    (row,) = (row for row in COMBINATIONS if row.name == name)
    monkeypatch.setattr(combinations, "COMBINATIONS", without(row))
    others = {key: value for key, value in example.items() if key not in IGNORED[name]}
    assert predicted_s(example) == predicted_s(others)


@pytest.mark.parametrize("row", LATER, ids=lambda row: row.name)
def test_a_command_or_a_trace_refuses_what_others_accept(row: Combination) -> None:
    scenario = validate(tree_of(EXAMPLES[row.name]), "test")
    channel = row.channels[0] if row.channels else ""
    assert row.broken(scenario) in refusals(scenario, row.command, channel=channel)
    with pytest.raises(InputError):
        check(scenario, row.command, channel=channel)


@pytest.mark.parametrize("row", COMBINATIONS, ids=lambda row: row.name)
def test_a_row_is_one_sentence_about_keys_that_exist(row: Combination) -> None:
    scenario = validate(tree_of({}), "test")
    if row.name != "bound-of-rates":
        assert row.broken(scenario) is None
    assert row.keys
    assert row.needs.startswith("must ")
    assert not row.because.endswith(".")
    assert len(f"{row.needs}, because {row.because}".split()) <= 35


def test_the_command_prints_the_table(tmp_path: Path) -> None:
    done = run_testbed("combinations", "--json", "-")
    rows = json.loads(done.stdout)
    assert rows == [row.to_json() for row in COMBINATIONS]
    assert rows[0].keys() == {"name", "keys", "needs", "because", "class"}
    assert {row["class"] for row in rows} == {"contradiction", "not modelled"}
    run_testbed("combinations", "--json", str(tmp_path / "rows.json"))
    assert json.loads((tmp_path / "rows.json").read_text()) == rows


def test_a_campaign_is_refused_before_its_first_point(tmp_path: Path) -> None:
    study = {
        "mode": "predict",
        "set": {"rounds": 1},
        "axes": {
            "policy": {"key": "allocation.policy", "values": ["equal", "planner"]},
            "way": {"key": "paradigm", "values": ["cpsfl", "asfl-ps"]},
        },
    }
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(tree_of({})))
    file = tmp_path / "late.yaml"
    file.write_text(yaml.safe_dump({"name": "l", "scenario": "s.yaml", "studies": {"one": study}}))
    done = run_testbed("campaign", "run", file, "--out", tmp_path / "out", check=False)
    assert done.returncode == 2
    says = "l: studies.one (policy = planner, way = asfl-ps): allocation.policy: must be "
    assert done.stderr.splitlines()[-1].startswith(f"testbed: {says}")
    assert not (tmp_path / "out").exists()


def test_a_trace_of_rates_is_refused_before_its_first_point(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(tree_of({"radio.fading": "rayleigh"})))
    rates = np.full((3, 9), 1e7)
    np.savez(tmp_path / "t.npz", uplink_bps=rates, downlink_bps=rates, slot_s=0.1)
    axes = {"count": {"key": "rounds", "values": [1, 2]}}
    study = {"mode": "predict", "trace": str(tmp_path / "t.npz"), "axes": axes}
    file = tmp_path / "late.yaml"
    file.write_text(yaml.safe_dump({"name": "l", "scenario": "s.yaml", "studies": {"one": study}}))
    done = run_testbed("campaign", "run", file, "--out", tmp_path / "out", check=False)
    assert done.returncode == 2
    assert "radio.fading: must be 'none' where the trace has rates" in done.stderr
    assert not (tmp_path / "out").exists()


def test_exit_status_2_and_one_line(tmp_path: Path) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(yaml.safe_dump(tree_of(EXAMPLES["asynchronous-with-decisions"])))
    done = run_testbed("predict", str(file), check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line == (
        f"testbed: {file}: allocation.policy: must be 'fixed' or 'equal' where the paradigm is "
        "asynchronous, because rounds of an asynchronous paradigm have no common start; "
        "not 'planner'"
    )


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (
            {"paradigm": "asfl-ps", "participation.deadline_s": 3},
            "participation.deadline_s: must be absent where the paradigm is asynchronous",
        ),
        (
            {
                "paradigm": "asfl-ps",
                "participation.deadline_s": 3,
                "faults.on_loss": "abort",
            },
            "participation.deadline_s: must be absent where the paradigm is asynchronous",
        ),
        (
            {
                "workload.lora_rank": [4, 8, 8],
                "workload.adapters": "dora",
                "workload.clients_per_pass": 2,
            },
            "workload.lora_rank: must be one number where workload.clients_per_pass is above 1",
        ),
    ],
)
def test_what_no_further_key_allows_is_refused_first(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as refused:
        validate(tree_of(keys), "test")
    assert str(refused.value).startswith(f"test: {says}")
