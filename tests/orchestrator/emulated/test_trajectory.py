# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What is learned once without a network is what runs learn, and is timed by any rounds."""

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
import safetensors.torch
import torch
import yaml
from console import TESTBED
from in_guest import play
from packages import importable, write_package
from small_hierarchy import TOPOLOGY
from sparse_codec import Sparse
from torch.nn import functional
from typer.testing import CliRunner

import orchestrator as tb
from ns3_scenarios.trace import ChannelTrace
from orchestrator.archive.claims import ENCODED, examine
from orchestrator.archive.rebuilt import emulation_of
from orchestrator.cli.main import app
from orchestrator.emulated import trajectory
from orchestrator.emulated.inputs import inputs_of
from orchestrator.emulated.trajectory import check, learn, learn_into, learned_once
from orchestrator.records.learned import (
    STATE,
    Trajectory,
    depends_on,
    read_trajectory,
    trajectory_for,
    why_inexact,
)
from orchestrator.records.reader import read_run
from orchestrator.records.results import Result, read_results
from orchestrator.scenario.loading import varied
from orchestrator.scenario.profiles import data_of, model_of, profile_of
from testbed.core.errors import InputError
from testbed.core.timeline import S
from testbed.system.folders import cache_folder
from workloads.codecs.codec import DIRECTIONS
from workloads.data.samples import client_data, open_data
from workloads.learning.backbone import load_model
from workloads.learning.cached import backbone_file
from workloads.learning.model import initial_trainables

TRACE = {"gain": np.full((3, 20_000), 1e-10), "slot_s": 0.1}
KEYS = {
    "rounds": 2,
    "workload.evaluate_every": 1,
    "workload.data.samples": 60,
    "workload.evaluate_samples": 20,
    "workload.classes": 5,
    "workload.batch_size": 4,
    "workload.local_iterations": 2,
}


def scenario(**more: Any) -> tb.Scenario:
    return tb.load("quickstart", KEYS | {k.replace("__", "."): v for k, v in more.items()})


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("learned") / "one"
    learn_into(folder, scenario())
    return folder


def state(folder: Path) -> bytes:
    return (folder / STATE).read_bytes()


def test_a_folder_holds_what_was_learned_and_what_it_depends_on(learned: Path) -> None:
    found = read_trajectory(learned)
    assert found.scenario == scenario()
    table = found.table
    assert table["data"].tolist() == ["held-out", *(["train"] * 6 + ["held-out"]) * 2]
    places = table.loc[table["data"] == "train", ["round", "client", "iteration"]]
    assert places.to_numpy().tolist() == [
        [round_, client, iteration]
        for round_ in (0, 1)
        for client in (1, 2, 3)
        for iteration in (1, 2)
    ]
    assert table["loss"].notna().all()
    manifest = json.loads((learned / "manifest.json").read_text())
    assert manifest["kind"] == "learned"
    assert [sum(n for _, n in own) for own in manifest["partition"]] == [20, 20, 20]


def test_base_station_and_uavs_share_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def counted(*given: Any) -> Any:
        opened.append(given)
        return load_model(*given)

    monkeypatch.setattr("workloads.learning.real.load_model", counted)
    learn(scenario(rounds=1, workload__evaluate_every=0), tmp_path)
    assert len(opened) == 1


@pytest.mark.parametrize(
    "different",
    [
        {"paradigm": "sfl-ps", "workload__split": 3},
        {"workload__split": [1, 2, 3], "workload__recompute": True},
    ],
)
def test_neither_schedule_nor_split_changes_it(
    learned: Path, tmp_path: Path, different: dict[str, Any]
) -> None:
    other = learn(scenario(**different), tmp_path)
    assert state(tmp_path) == state(learned)
    pd.testing.assert_frame_equal(other.table, read_trajectory(learned).table, check_exact=True)


def test_a_codec_makes_the_split_matter_and_its_errors_are_noted(
    learned: Path, tmp_path: Path
) -> None:
    coded = {"workload__wire_dtype": "int8", "workload__wire_error": True, "rounds": 1}
    table = learn(scenario(**coded), tmp_path).table
    train = table[table["data"] == "train"]
    assert train["smashed_error"].between(1e-4, 0.1).all()
    assert train["gradient_error"].between(1e-4, 0.1).all()
    assert "workload.split" in depends_on(scenario(**coded))
    assert "workload.split" not in depends_on(scenario())
    why = why_inexact(scenario(**coded, allocation__policy="planner"))
    need = "must be 'fixed' or 'equal' where the split point affects what is learned"
    assert why.startswith(f"allocation.policy: {need}")
    assert not why_inexact(scenario(allocation__policy="planner"))


@pytest.mark.parametrize(
    "keys",
    [
        {"aggregation": "scaffold", "optimiser": "sgd", "momentum": 0.0},
        {"local_step": "private", "local_step_parameters": {"clip": 1.0, "noise": 1.0}},
    ],
)
def test_vectors_and_states_go_to_uavs_and_back(
    learned: Path, tmp_path: Path, keys: dict[str, Any]
) -> None:
    own = {f"workload__{name}": value for name, value in keys.items()}
    found = learn(scenario(**own), tmp_path)
    assert found.table["loss"].notna().all()
    assert state(tmp_path) != state(learned)
    remarks = json.loads((tmp_path / "manifest.json").read_text())["remarks"]
    assert any("a UAV has sent in 2 rounds" in line for line in remarks) == ("local_step" in keys)
    names = safetensors.numpy.load(state(tmp_path)).keys()
    due = {f"clients.{k}.@{side}.control" for k in (1, 2, 3) for side in ("uav", "bs")}
    assert {n for n in names if "@" in n} == (due if "aggregation" in keys else set())


def test_some_clients_a_round_are_those_that_the_rule_chooses(tmp_path: Path) -> None:
    some = scenario(participation__clients=2, participation__rule="round-robin")
    table = learn(some, tmp_path).table
    train = table[table["data"] == "train"]
    assert [sorted(set(own["client"])) for _, own in train.groupby("round")] == [[1, 2], [1, 3]]
    timeline = tb.predict(some, trace=TRACE)
    assert len(read_trajectory(tmp_path).timed(some, timeline)) == len(table)


def test_rounds_time_a_trajectory(learned: Path) -> None:
    for paradigm in ("cpsfl", "sfl-pp"):
        other = scenario(paradigm=paradigm, workload__compute="none", workload__evaluate_every=0)
        timeline = tb.predict(other, trace=TRACE)
        timed = read_trajectory(learned).timed(other, timeline)
        ends = {
            (round_.index, span["client"], span["iteration"]): span["end_s"]
            for round_ in timeline
            for span in round_.spans[round_.spans["step"] == S]
        }
        for row in timed.to_dict("records"):
            if row["data"] == "train":
                expected = ends[row["round"], row["client"], row["iteration"]]
            else:
                expected = 0.0 if row["round"] < 0 else timeline[row["round"]].end_s
            assert row["time_s"] == expected
    first = scenario(rounds=1)
    assert set(read_trajectory(learned).timed(first, tb.predict(first, trace=TRACE))["round"]) == {
        *(-1, 0)
    }


@pytest.mark.parametrize(
    ("different", "why"),
    [
        ({"paradigm": "asfl-pp"}, "paradigm: must not be asynchronous"),
        ({"workload__server_adapters": "shared"}, "workload.server_adapters: must be 'per-"),
        ({"topology": TOPOLOGY}, "topology: must be absent"),
        ({"workload__clients_per_pass": 2}, "workload.clients_per_pass: must be 1"),
        (
            {"participation__deadline_s": 9, "faults__on_loss": "drop"},
            "participation.deadline_s: must be absent",
        ),
        (
            {"participation__clients": 2, "participation__rule": "by-channel"},
            "participation.rule: must be 'random' or 'round-robin'",
        ),
        (
            {
                "uploads__sharing": "sequential",
                "participation__rule": "fedcs",
                "participation__parameters": {"round_s": 9},
            },
            "participation.rule: must be 'random' or 'round-robin'",
        ),
        (
            {"workload__clip_norm": 1, "allocation__policy": "planner"},
            "allocation.policy: must be 'fixed' or 'equal' where the split point affects what is "
            "learned",
        ),
        (
            {"faults__events": [{"kind": "uav-crash", "nodes": ["uav1"], "at_s": 1}]},
            "faults: must slow nodes only",
        ),
        (
            {"faults__random": {"count": 1, "kinds": ["link-outage"]}},
            "faults: must slow nodes only",
        ),
    ],
)
def test_what_depends_on_times_is_refused(
    learned: Path, different: dict[str, Any], why: str
) -> None:
    inexact = scenario(**different)
    with pytest.raises(InputError) as refused:
        check(inexact)
    assert str(refused.value).startswith(why)
    with pytest.raises(InputError) as refused:
        read_trajectory(learned).check(inexact)
    assert str(refused.value).startswith(why)


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_schedules_over_all_rounds_need_the_same_number(learned: Path, schedule: str) -> None:
    one = read_trajectory(learned)
    long = Trajectory("one", scenario(workload__learning_rate_schedule=schedule), one.table)
    long.check(scenario(workload__learning_rate_schedule=schedule))
    with pytest.raises(InputError, match=r"^rounds: must be 2 as in one, because .*; not 1$"):
        long.check(scenario(workload__learning_rate_schedule=schedule, rounds=1))


@pytest.mark.parametrize(
    "different",
    [
        {"workload__clip_norm": 0.5},
        {"paradigm": "sfl-ps", "workload__server_adapters": "averaged"},
    ],
)
def test_what_concerns_one_side_makes_the_split_matter(different: dict[str, Any]) -> None:
    assert "workload.split" in depends_on(scenario(**different))


@pytest.mark.parametrize(
    "different",
    [
        {"workload__aggregation": "fedadam"},
        {"workload__codecs": {"adapters_up": "int8", "adapters_down": "int8"}},
    ],
)
def test_the_head_alone_is_learned(tmp_path: Path, different: dict[str, Any]) -> None:
    """Without payload in the messages of adapters."""
    head = scenario(workload__adapters="none", rounds=1, **different)
    assert learn(head, tmp_path).table["loss"].notna().all()


def test_a_slow_node_changes_times_only() -> None:
    slow = {"kind": "slow-node", "nodes": ["uav1"], "at_s": 1}
    assert not why_inexact(scenario(faults__events=[slow]))


@pytest.mark.parametrize(
    ("different", "why"),
    [
        ({"seed": 2}, r"^seed: .* was learned with 1, not with 2$"),
        ({"workload__learning_rate": 0.1}, r"^workload\.learning_rate: .* 0\.001, not with 0\.1$"),
        ({"workload__data__partition": "dirichlet"}, r"^workload\.data\.partition: "),
        ({"workload__lora_targets": "qkv"}, r"^workload\.lora_targets: .* its default, not with "),
        ({"participation__clients": 2}, r"^participation\.clients: "),
        ({"uavs__threads": 2}, r"^uavs\.threads: "),
        ({"rounds": 3}, r"^rounds: .* has learned 2, not 3$"),
    ],
)
def test_what_learns_something_else_is_refused(
    learned: Path, different: dict[str, Any], why: str
) -> None:
    with pytest.raises(InputError, match=why):
        read_trajectory(learned).check(scenario(**different))


def test_unknown_keys_of_the_workload_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that this module does not know may make what is learned depend on times."""
    from orchestrator.records import learned

    monkeypatch.setattr(learned, "KNOWN", tuple(k for k in learned.KNOWN if k != "lora_rank"))
    assert not why_inexact(scenario())
    assert why_inexact(scenario(workload__lora_rank=4)).startswith("workload.lora_rank: it is not")


def test_nothing_is_learned_without_computing() -> None:
    with pytest.raises(InputError, match=r"^workload\.compute: is 'none'"):
        check(scenario(workload__compute="none"))


def test_of_several_the_one_of_the_seed_is_taken(learned: Path) -> None:
    one = read_trajectory(learned)
    two = Trajectory("two", scenario(seed=2), one.table)
    assert trajectory_for(scenario(seed=2), [one, two]) is two
    assert trajectory_for(scenario(), []) is None
    with pytest.raises(InputError, match=r"^seed: "):
        trajectory_for(scenario(seed=3), [one, two])


def test_rounds_with_other_batches_are_refused(learned: Path) -> None:
    one = read_trajectory(learned)
    lacking = Trajectory("one", one.scenario, one.table[one.table["client"] != 2])
    with pytest.raises(InputError, match=r"^round 0: .* differ in UAV 2, iteration 1$"):
        lacking.timed(scenario(), tb.predict(scenario(), trace=TRACE))


def test_a_trajectory_is_learned_once(
    learned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trajectory, "cache_folder", lambda: tmp_path)
    asked = []

    def pretend(wanted: tb.Scenario, folder: Path, *_: Any) -> Trajectory:
        asked.append(wanted)
        for file in learned.iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        return read_trajectory(folder)

    monkeypatch.setattr(trajectory, "learn", pretend)
    for different in (
        {},
        {"paradigm": "pipesfl", "workload__split": 3},
        {"workload__compute": "none"},
        {"radio__uplink_bandwidth_hz": 1e6},
    ):
        learned_once(scenario(**different))
    assert [wanted.workload.compute for wanted in asked] == ["real"]
    learned_once(scenario(seed=2))
    learned_once(scenario(workload__evaluate_every=2))
    assert len(asked) == 3


def invoke(*words: object) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def written(tmp_path: Path) -> list[object]:
    """The scenario as a file, with a trace, as arguments of commands."""
    ChannelTrace(TRACE["gain"], 0.1).save(tmp_path / "t.npz")  # type: ignore[arg-type]
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump(scenario().model_dump(mode="json")))
    return [file, "--trace", tmp_path / "t.npz"]


def test_the_command_learns_into_a_new_folder(learned: Path, tmp_path: Path) -> None:
    words = [f"--set={key}={json.dumps(value)}" for key, value in KEYS.items()]
    done = invoke("learn", "quickstart", *words, "--rounds", 2, "--out", tmp_path / "new" / "one")
    assert done.exit_code == 0, done.output
    assert state(tmp_path / "new" / "one") == state(learned)
    accuracy = read_trajectory(learned).table["accuracy"].iloc[-1]
    assert f"accuracy {100 * accuracy:.2f} %" in done.stdout
    again = invoke("learn", "quickstart", *words, "--out", tmp_path / "new" / "one")
    assert "exists already and is not an empty folder" in str(again.exception)


def test_predictions_are_timed_and_compared(
    learned: Path, tmp_path: Path, written: list[object]
) -> None:
    for paradigm in ("cpsfl", "sfl-pp"):
        words = ["predict", *written, "--set", f"paradigm={paradigm}"]
        done = invoke(*words, "--learned", learned, "--json", tmp_path / f"{paradigm}.json")
        assert done.exit_code == 0, done.output
        assert "perplexity" in done.stdout
        assert invoke(*words, "--json", tmp_path / f"plain-{paradigm}.json").exit_code == 0
    (result,) = read_results(tmp_path / "cpsfl.json")
    assert isinstance(result, Result)
    expected = read_trajectory(learned).timed(scenario(), result.timeline)
    pd.testing.assert_frame_equal(result.learning, expected, check_exact=True)
    answers = []
    for prefix, more in (("", []), ("plain-", ["--learned", learned])):
        given = [tmp_path / f"{prefix}{paradigm}.json" for paradigm in ("cpsfl", "sfl-pp")]
        words = ["compare", *given, *more, "--target", "loss=100", "--out", tmp_path / "c.html"]
        done = invoke(*words)
        assert done.exit_code == 0, done.output
        answers.append(done.stdout.splitlines()[0])
    assert answers[0] == answers[1]
    assert answers[0].startswith("Nothing is compared: before the first round, a loss of 100")


def test_refusals_of_commands_name_the_key(
    learned: Path, tmp_path: Path, written: list[object]
) -> None:
    refused = invoke("predict", *written, "--set", "seed=9", "--learned", learned)
    assert str(refused.exception).startswith("seed: ")
    refused = invoke("predict", *written, "--learned", tmp_path)
    assert str(refused.exception) == f"{tmp_path}: is not a folder of `testbed learn`"
    refused = invoke("learn", written[0], "--set", "paradigm=asfl-pp", "--out", tmp_path / "x")
    assert str(refused.exception).startswith("paradigm: must not be asynchronous")
    assert not (tmp_path / "x").exists()
    plain = tmp_path / "plain.json"
    assert invoke("predict", *written, "--set", "seed=9", "--json", plain).exit_code == 0
    refused = invoke("compare", plain, "--learned", learned, "--out", tmp_path / "c.html")
    assert str(refused.exception).startswith("plain.json: seed: ")


def test_a_trajectory_of_another_shape_is_refused(learned: Path, tmp_path: Path) -> None:
    for file in learned.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    table = pd.read_parquet(learned / "learned.parquet")
    table.drop(columns="data").to_parquet(tmp_path / "learned.parquet")
    with pytest.raises(InputError, match=r"learned\.parquet: lacks the column data$"):
        read_trajectory(tmp_path)


@pytest.mark.guest
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("paradigm", "split"), [pytest.param("cpsfl", 2, marks=pytest.mark.full), ("sfl-ps", 3)]
)
def test_runs_learn_the_same_under_two_paradigms(
    paradigm: str, split: int, learned: Path, tmp_path: Path
) -> None:
    keys = KEYS | {"emulation.clock": "virtual", "emulation.calibrate": False}
    out = tmp_path / paradigm
    given = {**keys, "paradigm": paradigm, "workload.split": split}
    words = [f"--set={key}={json.dumps(value)}" for key, value in given.items()]
    words = [*TESTBED, "run", "quickstart", "--out", str(out), *words]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1000)
    assert done.returncode == 0, done.stderr
    assert state(out) == state(learned)
    run = read_run(out)
    timed = read_trajectory(learned).timed(run.scenario, run.measured)
    pd.testing.assert_frame_equal(timed, run.tables["learning"], check_exact=True)


CNN = """
from torch import nn
from workloads.models.chain import Chain, Images

def digits(classes):
    net = nn.Module()
    net.one, net.two = nn.Conv2d(3, 4, 3, stride=2), nn.Linear(4 * 7 * 7, 16)
    net.head = nn.Linear(16, classes)
    first = lambda x: net.one(x).relu().flatten(1)
    return Chain(net, Images(16), lambda x: x, [first, lambda x: net.two(x).relu()],
                 lambda x: x, "head")
"""


@pytest.fixture
def cnn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    write_package(
        tmp_path / "packages", "digits", CNN, "[testbed.models]\ndigits = digits:digits\n"
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with importable(tmp_path / "packages", "digits", monkeypatch):
        yield {
            "workload.model": "digits",
            "workload.adapters": "full",
            "workload.split": 1,
            "workload.optimiser": "sgd",
            "workload.momentum": 0.5,
            "workload.learning_rate": 0.05,
            "workload.data.samples": 90,
            "workload.data.partition": "quantity",
            "workload.data.concentration": 3,
            "workload.sampling": "epochs",
        }


@pytest.mark.parametrize(
    "keys",
    [
        {"workload.local_epochs": 2, "workload.last_batch": "keep"},
        {"workload.local_epochs": [1, 2, 3]},
        {"workload.local_iterations": 3, "workload.last_batch": "keep"},
    ],
    ids=["keep", "drop", "iterations"],
)
def test_epochs_equal_a_plain_loop(tmp_path: Path, cnn: Any, keys: dict[str, Any]) -> None:
    """Ten rounds of FedAvg as its paper writes it, in float64, without the testbed's learning."""
    made = tb.load("quickstart", KEYS | cnn | {"rounds": 10} | keys)
    learn(made, tmp_path)
    about, config = model_of(made), data_of(made)
    model = load_model(about, backbone_file(about, cache_folder()))
    data = open_data(config, made.workload.classes, model.input)
    parts = [share.indices for share in client_data(data, config, 3, 4)]
    images, labels = data.batch(np.arange(len(data.labels)))
    images = images.double()
    first = initial_trainables(model.layout, made.seed, model.loras, model.given)
    start = {name: tensor.double() for name, tensor in model.layout.views(first).items()}
    world = start

    def loss_of(own: dict[str, torch.Tensor], chosen: np.ndarray) -> torch.Tensor:
        x = functional.conv2d(images[chosen], own["one.weight"], own["one.bias"], stride=2)
        x = functional.linear(x.relu().flatten(1), own["two.weight"], own["two.bias"])
        logits = functional.linear(x.relu(), own["head.weight"], own["head.bias"])
        return functional.cross_entropy(logits, labels[chosen])

    def batches(client: int) -> Any:
        """Batches of passes, one after the other without an end."""
        own, number = parts[client - 1], 0
        while True:
            order = np.random.default_rng([made.seed, client, number, 0xE90C]).permutation(own)
            cuts = [order[first : first + 4] for first in range(0, len(order), 4)]
            keeps = made.workload.last_batch == "keep"
            yield from (cut for cut in cuts if keeps or len(cut) == 4)
            number += 1

    sources = [batches(client) for client in (1, 2, 3)]
    for _ in range(10):
        ends = []
        for client, source in enumerate(sources, start=1):
            count = keys.get("workload.local_iterations")
            if count is None:
                samples, keeps = len(parts[client - 1]), "workload.last_batch" in keys
                epochs = made.workload.of_client("local_epochs", client)
                count = epochs * (-(-samples // 4) if keeps else samples // 4)
            own = {name: t.clone().requires_grad_() for name, t in world.items()}
            optimiser = torch.optim.SGD(own.values(), 0.05, momentum=0.5)
            for _ in range(count):
                optimiser.zero_grad()
                loss_of(own, next(source)).backward()
                optimiser.step()
            ends.append({name: t.detach() for name, t in own.items()})
        world = {
            name: sum(len(part) / 90 * end[name] for part, end in zip(parts, ends, strict=True))
            for name in world
        }
    learned = safetensors.torch.load(state(tmp_path))
    assert learned.keys() == world.keys()
    for name, tensor in world.items():
        torch.testing.assert_close(learned[name].double(), tensor, atol=1e-5, rtol=0)
        assert not torch.allclose(tensor, start[name], atol=1e-3), name


def test_rounds_follow_the_iterations_of_epochs(tmp_path: Path, cnn: Any) -> None:
    made = tb.load("quickstart", KEYS | cnn | {"workload.local_epochs": 1})
    table = learn(made, tmp_path).table
    per_round = table[table["data"] == "train"].groupby(["round", "client"]).size()
    counts = made.workload.local_iterations
    assert per_round.tolist() == counts * 2
    assert len(set(counts)) == 3
    timeline = tb.predict(made, trace=TRACE)
    assert len(read_trajectory(tmp_path).timed(made, timeline)) == len(table)
    with pytest.raises(InputError, match=r"^workload\.last_batch: must be 'drop' where steps have"):
        tb.predict(tb.load("quickstart", KEYS | cnn | {"workload.last_batch": "keep"}), trace=TRACE)


def test_changed_data_change_the_iterations_of_epochs(cnn: Any) -> None:
    made = tb.load("quickstart", KEYS | cnn | {"workload.local_epochs": 2})
    other = tb.load(
        "quickstart", KEYS | cnn | {"workload.local_epochs": 2, "workload.batch_size": 2}
    )
    assert sum(other.workload.local_iterations) > 1.7 * sum(made.workload.local_iterations)
    assert varied(made, {"workload.batch_size": 2}) == other
    assert varied(made, {"rounds": 5}).workload == made.workload


def writers_of_leaf(root: Path, count: int, samples: int) -> None:
    """LEAF's folder of FEMNIST in small: writers with pictures of 8 by 8 pixels in 5 classes."""
    random = np.random.default_rng(5)
    for part, number in (("train", samples), ("test", 1)):
        (root / part).mkdir(parents=True)
        data = {
            f"f{writer:04}_{writer % 7}": {
                "x": random.random((number, 64)).round(3).tolist(),
                "y": random.integers(0, 5, number).tolist(),
            }
            for writer in range(count)
        }
        tree = {"users": list(data), "num_samples": [number] * count, "user_data": data}
        (root / part / "all_data_niid_0_keep_0_9.json").write_text(json.dumps(tree))


def test_a_folder_of_writers_trains_with_one_client_per_writer(tmp_path: Path, cnn: Any) -> None:
    writers_of_leaf(tmp_path / "femnist", 50, 6)
    keys = {
        "uavs.count": 50,
        "uavs.tx_power_w": 0.1,
        "participation.clients": 10,
        "participation.rule": "random",
        "workload.data.source": str(tmp_path / "femnist"),
        "workload.data.partition": "column",
        "workload.data.concentration": 0.5,
        "workload.data.samples": 2000,
        "workload.local_epochs": 1,
        "workload.last_batch": "keep",
    }
    made = tb.load("quickstart", KEYS | cnn | keys)
    assert made.workload.local_iterations == 2, "6 samples in batches of 4"
    (tmp_path / "out").mkdir()
    learn(made, tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["clients"] == [f"f{writer:04}_{writer % 7}" for writer in range(50)]
    assert [sum(n for _, n in own) for own in manifest["partition"]] == [6] * 50
    table = read_trajectory(tmp_path / "out").table
    train = table[table["data"] == "train"]
    assert [own["client"].nunique() for _, own in train.groupby("round")] == [10, 10]
    few = tb.load("quickstart", KEYS | cnn | keys | {"uavs.count": 10, "participation": {}})
    assert [line[:62] for line in inputs_of(few).remarks if "partition_column" in line] == [
        "workload.data.partition_column: 10 of 50 clients are UAVs, cho"
    ]
    with pytest.raises(InputError, match="'client' names 50 clients, fewer than the 51 UAVs"):
        tb.load("quickstart", KEYS | cnn | keys | {"uavs.count": 51})


DECIDES = """

from orchestrator.engine.plan import Allocation


def policy(scenario: object) -> object:
    equal = np.full(3, 1 / 3)
    loads = {"batch_size": np.array([2, 4, 3]), "local_iterations": np.array([1, 2, 1])}
    return lambda now: Allocation((1, 2, 3), equal, equal, equal, **loads)
"""


@pytest.fixture
def sparse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    code = (Path(__file__).parents[2] / "support" / "sparse_codec.py").read_text()
    entries = "[testbed.codecs]\nsparse = coded:sparse\n[testbed.policies]\nloads = coded:policy\n"
    write_package(tmp_path / "packages", "coded", code + DECIDES, entries)
    # Nodes of a run find it there, too.
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"), prepend=os.pathsep)
    with importable(tmp_path / "packages", "coded", monkeypatch):
        yield {"workload.codecs": dict.fromkeys(DIRECTIONS, "sparse"), "rounds": 1}


def test_sizes_that_depend_on_the_data_are_learned_with_and_bounded(
    tmp_path: Path, sparse: dict[str, Any]
) -> None:
    made = tb.load("quickstart", KEYS | sparse | {"workload.wire_error": True})
    assert made.workload.varying_sizes == DIRECTIONS
    (folder := tmp_path / "out").mkdir()
    table = learn(made, folder).table
    train = table[table["data"] == "train"]
    assert train["smashed_error"].between(0.1, 1).all()
    assert np.isfinite(table["loss"]).all()
    sizes = {s["step"]: s["bytes"] for s in tb.predict(made, trace=TRACE)[0].to_json()["steps"]}
    sample = profile_of(made).smashed_bytes[1] // 4
    assert sizes["CA"] == Sparse(0.1).size(sample * made.workload.batch_size)
    with pytest.raises(InputError, match="gradient_aggregation: must be 0, because the sizes"):
        tb.load(
            "quickstart",
            KEYS | sparse | {"paradigm": "sfl-sp", "workload.gradient_aggregation": 0.5},
        )


@pytest.mark.guest
@pytest.mark.timeout(1200)
def test_links_carry_the_real_bytes_of_encoded_data(tmp_path: Path, sparse: dict[str, Any]) -> None:
    keys = KEYS | sparse | {"workload.evaluate_every": 0, "emulation.clock": "virtual"}
    accompanied = {
        "workload.codecs": dict.fromkeys(("smashed", "gradient"), "sparse"),
        "workload.aggregation": "scaffold",
        "workload.momentum": 0.0,
        "workload.optimiser": "sgd",
    }
    runs = {"run": {}, "decided": {"allocation.policy": "loads"}, "scaffold": accompanied}
    np.savez(tmp_path / "trace.npz", gain=TRACE["gain"], slot_s=0.1)
    commands = {
        name: [
            *("run", "quickstart", "--trace", "trace.npz", "--out", name, "--json", f"{name}.json"),
            *(w for k, v in (keys | more).items() for w in ("--set", f"{k}={json.dumps(v)}")),
        ]
        for name, more in runs.items()
    }
    for name, done in play(tmp_path, commands).items():
        assert done.returncode == 0, done.stderr
        coded = ("CA", "SG") if name == "scaffold" else ("SM", "CA", "SG", "CM")
        assert_real_bytes(
            tmp_path / name, json.loads((tmp_path / f"{name}.json").read_text()), coded
        )


def assert_real_bytes(folder: Path, tree: dict[str, Any], coded: Sequence[str]) -> None:
    """Check that the transfers of these steps are smaller than their bounds, and that a run with
    other bytes is found out."""
    bounds, real = (
        {(s["client"], s["iteration"], s["step"]): s["bytes"] for s in tree[kind][0]["steps"]}
        for kind in ("predicted", "measured")
    )
    assert bounds.keys() == real.keys()
    for place, size in real.items():
        assert 0 < size < bounds[place] if place[2] in coded else size == bounds[place]
    budget = tree["error_budget"][0]["parts"]
    assert budget["codec"] < -1e-3
    assert abs(budget["rest"]) < 1e-3
    accounts = pd.read_parquet(folder / "accounts.parquet")
    sent = accounts[(accounts["round"] == 0) & (accounts["kind"] == "SMASHED")]
    assert sorted(sent["payload_bytes"]) == sorted(n for p, n in real.items() if p[2] == "CA")
    tables = {file.stem: pd.read_parquet(file) for file in folder.glob("*.parquet")}
    remade = emulation_of(read_run(folder), tables)
    assert remade.rounds[0].budget.seconds == pytest.approx(budget, abs=1e-6)
    extent = examine(read_run(folder), folder)
    assert not extent.differences
    assert ENCODED in extent.not_checked
    measured = tables["measured"]
    measured.loc[measured["step"] == "CA", "bytes"] = max(bounds.values()) + 1
    measured.to_parquet(folder / "measured.parquet", index=False)
    (first, *_) = examine(read_run(folder), folder).differences
    assert "measured.parquet: DIFFERS" in first
