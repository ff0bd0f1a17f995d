# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Messages about wrong values of a scenario: field, value and what is allowed, in our words."""

import copy
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from small_scenario import TEXT, TREE

from orchestrator.scenario.loading import _models, load, put, read_tree, validate
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.unused import unusual
from testbed.core.errors import InputError

WRONG = ("x", "20MHz", 1.5, -1, [], [1], ["a", "b"], {}, {"a": 1}, None, True, math.nan, 10**30)
NOT_OURS = ("input ", "valid tuple", "Undefined", "None", "True", "arg is", "discriminator", "['")


def keys(model: type[BaseModel], above: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield above + name
        for part in _models(field.annotation):
            yield from keys(part, f"{above}{name}.")


def test_messages_about_any_key_are_in_our_words() -> None:
    rng = random.Random(1)
    lines = []
    for key in rng.sample(sorted(set(keys(Scenario))), 120):
        for value in rng.sample(WRONG, 3):
            tree = copy.deepcopy(TREE)
            try:
                put(tree, key, value, "key")
                validate(tree, "s.yaml")
            except InputError as error:
                lines.append(str(error))
    assert len(lines) > 200
    assert [line for line in lines if any(word in line for word in NOT_OURS)] == []
    assert not any("\n" in line for line in lines)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("paradigm=", "paradigm: must be a text, not empty"),
        ("rounds.x=3", "rounds: must be a whole number, not keys and values"),
        ("rounds=[1]", "rounds: must be a whole number, not a list"),
        ("uavs.tx_power_w=[]", "uavs.tx_power_w: must not be empty"),
        ("workload.split=[]", "workload.split: must not be empty"),
        ("workload.batch_size=[]", "workload.batch_size: must not be empty"),
        ("mobility.speed_m_s=50 km/h", "mobility.speed_m_s: must be a list, not '50 km/h'"),
        ("mobility.speed_m_s=[20, 10]", "mobility.speed_m_s: 20 to 10 is not a range"),
        ("base_station.position_m=[0, 0]", "base_station.position_m: must have 3 values, not 2"),
        ("base_station.device=gpu", "must be 'auto', 'cpu', 'cuda' or 'cuda:N', not 'gpu'"),
        ("emulation.virtual_date=2026-02-31", "like 2026-01-01, not '2026-02-31'"),
        ("links.one_way_delay_s={base_s: 1}", "links.one_way_delay_s.model: is missing"),
        (
            "links.one_way_delay_s={model: sine}",
            "links.one_way_delay_s.model: must be one of 'distance', 'trace', not 'sine'",
        ),
        (
            "workload.profile.client_forward_flops=x",
            "workload.profile.client_forward_flops: must be a list, not 'x'",
        ),
        ("uavs.batch_size=2", "uavs.batch_size: no such key; did you mean workload.batch_size?"),
        ("channel.model=x", "channel: no such key; did you mean radio.channel?"),
        ("uploads.a=1", "uploads.a: no such key; the keys are adapters_wait_for_all, "),
        ("paradigm=CPSFL", "did you mean 'cpsfl'?"),
    ],
)
def test_field_value_and_what_is_allowed(tmp_path: Path, override: str, says: str) -> None:
    (tmp_path / "s.yaml").write_text(TEXT)
    with pytest.raises(InputError) as error:
        load(tmp_path / "s.yaml", [override])
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (TEXT.encode("utf-16"), "is not a scenario file (it is not UTF-8 text)"),
        (b'{"scenario": {}, "rounds": []}', "this is a result written with --json, not a scenario"),
    ],
)
def test_files_that_are_no_scenarios(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "s.yaml").write_bytes(content)
    with pytest.raises(InputError, match=says.replace("(", r"\(").replace(")", r"\)")):
        read_tree(tmp_path / "s.yaml", "scenario")


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("uavs.tx_power_w", [1, 26, 1], "26 is unusual; the unit is W; 30 dBm are 1 W"),
        ("radio.uplink_bandwidth_hz", 4000, "4000 is unusual; the unit is Hz"),
        ("links.one_way_delay_s", 5, "5 is unusual; the unit is s"),
    ],
)
def test_values_that_are_probably_in_another_unit(key: str, value: Any, line: str) -> None:
    tree = copy.deepcopy(TREE)
    assert unusual(validate(tree, "s")) == []
    put(tree, key, value, key)
    assert unusual(validate(tree, "s")) == [f"{key}: {line}"]
