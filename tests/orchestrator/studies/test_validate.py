# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A model that is right has no error; one with a planted error is told what moves it and where."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from distributed import LocalCluster
from packages import importable, write_package
from packet_cases import small
from small_scenario import TREE

import orchestrator as tb
from orchestrator.analytical.models import model
from orchestrator.campaigning.cluster import run_jobs
from orchestrator.cli.main import app
from orchestrator.cli.printed_tables import validation_lines
from orchestrator.scenario.loading import load
from orchestrator.studies.validation import study
from orchestrator.studies.validation.outcome import FEWEST_SOBOL, Request
from orchestrator.studies.validation.page import page, write
from orchestrator.studies.validation.shrink import _simpler, limit_of, margin_of
from orchestrator.studies.validation.space import Space, default_space, load_space
from orchestrator.studies.validation.worker import Player, channels
from testbed.core.errors import InputError, RunError
from testbed.host.dask_cluster import Cluster

MODULE = """
from dataclasses import replace
import numpy as np
from orchestrator.rounds.simulation import simulate


def engine(plan, radio, gain, slot_s):
    return simulate(plan, radio, gain, slot_s).latency_s


def ungated(plan, radio, gain, slot_s):
    open_ = replace(plan.paradigm, transmission_waits_for_all=False, compute_waits_for_all=False)
    return engine(replace(plan, paradigm=open_), radio, gain, slot_s)


def unshared(plan, radio, gain, slot_s):
    whole = replace(plan.allocation, beta=np.ones(plan.clients))
    return engine(replace(plan, allocation=whole), radio, gain, slot_s)


def silent(plan, radio, gain, slot_s):
    return None


def lopsided(space):
    def gains(position_m, time_s):
        up = 1e-4 / ((position_m - np.array(space.bs_position_m)) ** 2).sum(axis=2)
        return up, up / (2 + np.sin(time_s))

    return gains


def gradients(timeline):
    return {"mean": 1.0, "count": 2.0}


def slowest(timeline):
    return max(round_.latency_s for round_ in timeline)
"""
ENTRIES = """
[testbed.analytical_models]
engine = theorist:engine
ungated = theorist:ungated
unshared = theorist:unshared
silent = theorist:silent

[testbed.channels]
lopsided = theorist:lopsided

[testbed.metrics]
gradients = theorist:gradients
slowest = theorist:slowest
"""
HERE = Cluster(workers=0)
KEYS: dict[str, Any] = {
    "paradigm": ["cpsfl", "cpsfl-no-at"],
    "radio.uplink_bandwidth_hz": {"log_uniform": [1e6, 1.6e7]},
    "radio.downlink_bandwidth_hz": {"log_uniform": [3e6, 5e6]},
    "workload.batch_size": {"integers": [2, 3]},
}


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    write_package(tmp_path / "site", "theorist", MODULE, ENTRIES)
    with importable(tmp_path / "site", "theorist", monkeypatch):
        yield


def asked(name: str, keys: dict[str, Any] = KEYS, **more: Any) -> Request:
    space = Space.model_validate({"keys": keys})
    settings = {"samples": 64, "packets": 0} | more
    return Request(small(**settings.pop("scenario", {})), name, space, **settings)


def test_the_engine_itself_has_no_error_anywhere(tmp_path: Path) -> None:
    found = study.validate(asked("engine", packets=2), tmp_path / "v", cluster=HERE)
    said = found.to_json()
    assert said["errors"]["engine"] == [0.0] * 64
    assert all(error < 0 for error in said["errors"]["frames"])
    packets = [error for error in said["errors"]["packets"] if error is not None]
    assert len(packets) == 2
    assert all(-0.1 < error < 0 for error in packets)
    assert said["region"]["rules"] == ["everywhere"]
    assert (said["region"]["share"], said["region"]["held_out_share"]) == (1, 1)
    assert [row["index"] for row in said["sensitivity"]] == [0.0] * 4
    assert said["counterexample"] == {}
    assert found.distribution("engine")["within_tolerance"]["low"] > 0.9
    assert "no counterexample found" in list(validation_lines(found))


@pytest.mark.parametrize(
    ("name", "key"), [("ungated", "paradigm"), ("unshared", "radio.uplink_bandwidth_hz")]
)
def test_a_planted_error_is_traced_to_its_key(name: str, key: str, tmp_path: Path) -> None:
    found = study.validate(asked(name, samples=128), tmp_path / "v", cluster=HERE)
    assert found.sensitivity[0]["key"] == key
    assert found.sensitivity[0]["index"] > 0.5
    # The second key matters a little, too, and its interval is wide with so few samples.
    assert found.sensitivity[0]["low"] > found.sensitivity[2]["high"]
    if name == "ungated":
        assert any(rule.endswith("paradigm = cpsfl") for rule in found.region.texts())
        assert found.counterexample is not None
        assert found.counterexample.paradigm == "cpsfl-no-at"
    assert sum(found.worst["budget"].values()) == pytest.approx(found.worst["error"])


def test_directions_may_differ(tmp_path: Path) -> None:
    radio = TREE["radio"] | {"channel": "lopsided"}
    channel: dict[str, Any] = {"samples": 32, "scenario": {"radio": radio}}
    found = study.validate(asked("engine", **channel), tmp_path / "v", cluster=HERE)
    assert found.to_json()["errors"]["engine"] == [0.0] * 32
    found = study.validate(asked("unshared", **channel), tmp_path / "w", cluster=HERE)
    assert abs(found.worst["error"]) > 0.01
    assert sum(found.worst["budget"].values()) == pytest.approx(found.worst["error"])
    budget = found.worst["budget"]
    assert budget["channel"] != 0


def test_that_cpsfl_may_be_slower_than_tau2_is_found_and_made_simple(tmp_path: Path) -> None:
    keys = {
        "workload.split": {"integers": [1, 4]},
        "radio.downlink_bandwidth_hz": {"log_uniform": [1e6, 1.6e7]},
        "radio.uplink_bandwidth_hz": {"log_uniform": [1e6, 1.6e7]},
        "uavs.compute_flops": [1e12, {"log_uniform": [1e11, 1e13]}],
        "seed": {"integers": [1, 2]},
    }
    found = study.validate(asked("tau2", keys), tmp_path / "v", cluster=HERE)
    simple = found.counterexample
    assert simple is not None
    assert simple.uavs.count == 2
    write(found, tmp_path / "v")
    simplest = found.worst["simplest"]
    assert sum(simplest["budget"].values()) == pytest.approx(simplest["error"])
    assert simplest["error"] < 0
    written = load(tmp_path / "v" / "counterexample.yaml")
    assert written == simple
    assert found.to_json()["counterexample"] == yaml.safe_load(
        (tmp_path / "v" / "counterexample.yaml").read_text()
    )
    with channels() as kept:
        player = Player("tau2", None, kept)
        played = player.play(written)
        margin = margin_of(player)
        assert margin(written) < -1e-4
        limit = limit_of(found.worst.get("in_space", found.worst)["margin"], True)
        assert not any(margin(simpler) <= limit for simpler in _simpler(written))
    # The engine's round really is longer than the bound, by the plain function, too.
    case = played.case
    said = model("tau2", written)(case.plan, case.radio, case.gain, case.slot_s)
    assert said is not None
    assert tb.predict(written).rounds[0].latency_s > said.high_s
    assert load_space(tmp_path / "v" / "space.yaml", small()) == found.request.space
    html = page(found)
    assert "No counterexample" not in html
    assert abs(found.worst["error"]) >= abs(simplest["error"]), "the worst case is the worst"
    rows = found.sensitivity
    assert all(0 <= row["first_order"] <= row["index"] <= row["high"] <= 1 for row in rows)
    assert not any("seed" in rule for rule in found.region.texts()), "no quantity"
    assert "uavs.compute_flops" in html
    assert "NaN" not in json.dumps(found.to_json())


def test_a_seed_repeats_it_and_what_is_finished_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = study.validate(asked("unshared"), tmp_path / "a", cluster=HERE).to_json()
    again = study.validate(asked("unshared"), tmp_path / "b", cluster=HERE).to_json()
    assert first == again
    other = study.validate(asked("unshared", seed=2), tmp_path / "c", cluster=HERE).to_json()
    assert other["errors"] != first["errors"]

    jobs: list[int] = []

    def counted(function: Any, task: Any, given: Any, cluster: Any) -> Any:
        jobs.append(len(given))
        return (answer for answer in ())

    monkeypatch.setattr(study, "run_jobs", counted)
    assert study.validate(asked("unshared"), tmp_path / "a", cluster=HERE).to_json() == first
    assert jobs == [0, 0]
    with pytest.raises(InputError, match="contains another validation"):
        study.validate(asked("unshared", seed=2), tmp_path / "a", cluster=HERE)


def test_intervals_of_few_samples_hold_the_index_of_many() -> None:
    """Ishigami's function, whose total indices are known: 0.5576, 0.4424, 0.2437."""
    exact = {"uavs.height_m": 0.5576, "seed": 0.4424, "slot_s": 0.2437}
    keys = {key: {"uniform": [0.1, 0.2]} for key in exact}
    held = []
    for seed in range(20):
        space = Space.model_validate({"keys": keys})
        few = Request(small(), "tau2", space, samples=16, seed=seed)
        x = np.concatenate(study._saltelli(few)) * 2 * np.pi - np.pi
        y = np.sin(x[:, 0]) + 7 * np.sin(x[:, 1]) ** 2 + 0.1 * x[:, 2] ** 4 * np.sin(x[:, 0])
        rows = study._sensitivity(few, y, FEWEST_SOBOL)
        held += [row["low"] <= exact[row["key"]] <= row["high"] for row in rows]
    assert np.mean(held) > 0.8


def test_dask_s_workers_come_to_the_same(tmp_path: Path) -> None:
    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as local:
        there = Cluster(local.scheduler_address)
        found = study.validate(asked("unshared", packets=2), tmp_path / "dask", cluster=there)
    here = study.validate(asked("unshared", packets=2), tmp_path / "here", cluster=HERE)
    assert found.to_json() == here.to_json()


def test_what_was_interrupted_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "MOST_JOB_POINTS", 64)
    whole = study.validate(asked("unshared"), tmp_path / "whole", cluster=HERE).to_json()

    def cut(what: str, done: float, total: float) -> None:
        if done >= total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study.validate(asked("unshared"), tmp_path / "cut", cluster=HERE, progress=cut)
    kept = len(list((tmp_path / "cut" / "parts").iterdir()))
    total = len(list((tmp_path / "whole" / "parts").iterdir()))
    assert 0 < kept < total
    computed: list[int] = []

    def counted(function: Any, task: Any, given: Any, cluster: Any) -> Any:
        computed.append(len(given))
        return run_jobs(function, task, given, cluster)

    monkeypatch.setattr(study, "run_jobs", counted)
    again = study.validate(asked("unshared"), tmp_path / "cut", cluster=HERE).to_json()
    assert again == whole
    assert computed[0] == total - kept


@pytest.mark.parametrize("size", [0, 20])
def test_files_of_a_validation_that_were_cut_are_written_anew(tmp_path: Path, size: int) -> None:
    out = tmp_path / "out"
    whole = study.validate(asked("unshared"), out, cluster=HERE).to_json()
    parts = sorted((out / "parts").iterdir())
    before = parts[0].read_bytes()
    for file in (out / study.SETTINGS, parts[0]):
        os.truncate(file, size)
    assert study.validate(asked("unshared"), out, cluster=HERE).to_json() == whole
    assert parts[0].read_bytes() == before


def test_an_iteration_s_time_is_what_t_iter_says_where_all_wait() -> None:
    with channels() as kept:
        player = Player("t-iter", None, kept)
        played = player.play(small(paradigm="cpsfl-no-at"))
        assert played.result is not None
        assert played.engine == pytest.approx(played.result.low_s, rel=0.05)
        assert player.play(small(paradigm="sfl-ps")).engine >= 0.95 * played.engine
        once = small(paradigm="cpsfl-no-at", workload={**TREE["workload"], "local_iterations": 1})
        assert player.play(once).result is None


def test_a_model_that_says_nothing_is_no_subject(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="model 'silent' does not apply to any point"):
        study.validate(asked("silent"), tmp_path / "v", cluster=HERE)


def test_a_package_s_metric_is_held_against_it(tmp_path: Path) -> None:
    found = study.validate(asked("engine", metric="slowest"), tmp_path / "v", cluster=HERE)
    assert found.to_json()["errors"]["engine"] == [0.0] * 64
    with pytest.raises(RunError, match="metric 'gradients': must return one number"):
        study.validate(asked("engine", metric="gradients"), tmp_path / "w", cluster=HERE)
    with pytest.raises(InputError, match="metric: 'speed' is not one of latency_s"):
        study.validate(asked("engine", metric="speed"), tmp_path / "x", cluster=HERE)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("keys: {workload.splitt: [1, 2]}", "keys: workload.splitt: no such key"),
        ("keys: {workload.split: [1, 7]}", "workload.split"),
        ("keys: {workload.split: {integers: [3, 1]}}", "integers: 3 to 1 is not a valid range"),
        ("keys: {workload.split: {uniform: [1, 2], integers: [1, 2]}}", "needs exactly one of"),
        ("keys: {}", "keys: "),
        ("keys: {radio: [1], radio.carrier_hz: [1e9]}", "is within 'radio'"),
        ("kees: {}", "keys: is missing"),
    ],
)
def test_a_space_that_is_none_is_refused_in_one_line(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=re.escape(says)) as refused:
        load_space(file, small())
    assert "\n" not in str(refused.value)
    assert "space.yaml" in str(refused.value)


def test_values_of_a_range_are_drawn_as_they_say() -> None:
    space = Space.model_validate(
        {
            "keys": {
                "a": {"uniform": [1, 3]},
                "b": {"log_uniform": [1, 100]},
                "c": {"integers": [1, 3]},
                "d": ["x", "y"],
                "e": {"normal": [5, 2]},
            }
        }
    )
    assert space.keys_at(np.full(5, 0.5)) == {"a": 2, "b": 10, "c": 2, "d": "y", "e": 5}
    edges = space.keys_at(np.full(5, 0.999999))
    assert (edges["c"], edges["d"]) == (3, "y")


@pytest.mark.parametrize("name", ["paper", "quickstart", "hundred"])
def test_every_scenario_of_ours_has_a_space(name: str) -> None:
    scenario = load(Path(name))
    space = default_space(scenario)
    assert len(space.keys) >= 6
    for share in (0.0, 0.5, 1 - 1e-9):
        study.tree_at(
            scenario.model_dump(mode="json"), space.keys_at(np.full(len(space.keys), share)), "x"
        )


def command(*words: str | Path) -> None:
    app(["validate", *map(str, words)], standalone_mode=False)


def test_the_command_writes_json_page_and_space(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario, space, out = tmp_path / "s.yaml", tmp_path / "space.yaml", tmp_path / "out"
    scenario.write_text(small().model_dump_json())
    space.write_text(yaml.safe_dump({"keys": KEYS}))
    words = ("--model", "upper-bound", "--space", space, "--samples", "32", "--packets", "1")
    more = ("--workers", "1", "--seed", "3", "--json", tmp_path / "v.json", "--out", out)
    command(scenario, *words, *more)
    said = json.loads((tmp_path / "v.json").read_text())
    assert said == json.loads((out / "validation.json").read_text())
    assert (said["model"], said["samples"], len(said["errors"]["engine"])) == (
        "upper-bound",
        32,
        32,
    )
    assert {"tolerance", "rules", "share", "held_out_share"} <= said["region"].keys()
    assert {row["key"] for row in said["sensitivity"]} == KEYS.keys()
    assert said["distribution"]["engine"]["coverage"]["value"] == 1
    assert (out / "validation.html").is_file()
    assert "written to" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--model", "tau9"], "`model`: 'tau9' is not one of"),
        (["--model", "tau2", "--space", "nowhere.yaml"], "nowhere.yaml: no such space file"),
        (
            ["--model", "tau2", "--kernel", "99", "--samples", "16"],
            "`kernel`: must be from 0",
        ),
        (["--model", "tau2", "--out", "."], "contains no validation"),
    ],
)
def test_what_cannot_be_validated_is_refused(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "s.yaml").write_text(small().model_dump_json())
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=re.escape(says)):
        command("s.yaml", *words)
    assert sorted(tmp_path.rglob("*")) == before
