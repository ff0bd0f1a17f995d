# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Training without a network that is interrupted anywhere ends with the same bytes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from killed_run import killed
from typer.testing import CliRunner

import orchestrator as tb
from orchestrator.cli.main import app
from orchestrator.emulated import trajectory
from orchestrator.emulated.trajectory import learned_once
from orchestrator.records.checkpoint import FOLDER, Checkpoint
from orchestrator.records.directory import part_of
from orchestrator.records.learned import BEST, STATE, read_trajectory
from testbed.core.errors import InputError
from testbed.core.registry import AGGREGATORS
from workloads.aggregation.rules import Update

KEYS = {
    "rounds": 3,
    "workload.model": "resnet_nano_32",
    "workload.adapters": "full",
    "workload.data.samples": 40,
    "workload.evaluate_samples": 20,
    "workload.evaluate_every": 1,
    "workload.classes": 4,
    "workload.batch_size": 4,
    "workload.local_iterations": 2,
}
WORDS = [f"--set={key}={json.dumps(value)}" for key, value in KEYS.items()]
SCAFFOLD = {
    "workload__aggregation": "scaffold",
    "workload__optimiser": "sgd",
    "workload__momentum": 0,
}
FILES = "learned.parquet", STATE, BEST, "scenario.json"


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def scenario(**more: Any) -> tb.Scenario:
    return tb.load("quickstart", KEYS | {k.replace("__", "."): v for k, v in more.items()})


class Interrupted(Exception):
    pass


def learn_into(
    out: Path, wanted: tb.Scenario, passes: int | None = None, **options: Any
) -> list[bytes]:
    """Learn; interrupted in the pass after so many, if a number is given. Returns the files."""
    left, forward = [passes], trajectory._Learning._forward

    def counted(self: Any, client: int, iteration: int) -> None:
        if left[0] == 0:
            raise Interrupted
        if left[0] is not None:
            left[0] -= 1
        forward(self, client, iteration)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trajectory._Learning, "_forward", counted)
        trajectory.learn_into(out, wanted, **options)
    return [(out / name).read_bytes() for name in FILES if (out / name).exists()]


@pytest.mark.parametrize(
    "different",
    [
        {"workload__batch_norm": "local"},
        {"workload__batch_norm": "per-client", "participation__clients": 2},
        {"workload__aggregation": "fedadam", "workload__learning_rate_schedule": "cosine"},
        SCAFFOLD,
        {"workload__aggregation": "feddyn", "workload__sampling": "epochs"},
        {"workload__codecs": {"adapters_up": "int8"}, "workload__optimiser": "sgd"},
        {"workload__codecs": {"adapters_up": {"name": "top-k", "share": 0.1}}},
        {
            "workload__evaluate_every": 0,
            "workload__adapters": "lora",
            "workload__lora_dropout": 0.5,
        },
        {"workload__evaluate_every": 2, "workload__adapters": "none"},
    ],
)
def test_training_that_is_interrupted_ends_with_the_same_bytes(
    tmp_path: Path, different: dict[str, Any]
) -> None:
    wanted = scenario(**different)
    whole = learn_into(tmp_path / "whole", wanted)
    out, per_round = tmp_path / "out", 2 * (wanted.participation.clients or 3)
    for passes in (per_round + 1, per_round // 2):
        with pytest.raises(Interrupted):
            learn_into(out, wanted, passes, resume=part_of(out).exists())
        assert not out.exists()
    assert learn_into(out, wanted, resume=True) == whole
    assert not (out / FOLDER).exists()
    assert not part_of(out).exists()
    sessions = json.loads((out / "manifest.json").read_text())["sessions"]
    assert [each["after_rounds"] for each in sessions] == [0, 1, 1]


def noise() -> Any:
    """A rule that draws from torch's own generator."""

    def rule(update: Update) -> torch.Tensor:
        mean = update.mean()
        return mean + 1e-3 * torch.randn(mean.shape, dtype=mean.dtype)

    return rule


def test_random_numbers_of_packages_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(AGGREGATORS.built_in, "noise", noise)
    wanted = scenario(workload__aggregation="noise")
    torch.manual_seed(1)
    whole = learn_into(tmp_path / "whole", wanted)
    torch.manual_seed(1)
    with pytest.raises(Interrupted):
        learn_into(tmp_path / "out", wanted, 9)
    torch.manual_seed(2)
    assert learn_into(tmp_path / "out", wanted, resume=True) == whole


def test_a_killed_process_is_continued_by_the_command(tmp_path: Path) -> None:
    out, words = tmp_path / "out", ["learn", "quickstart", *WORDS, "--rounds", "9"]
    killed(*words, out=out, rounds=2, after_s=0.02, learns=True)
    whole = learn_into(tmp_path / "whole", scenario(rounds=9))
    runner = CliRunner()
    refused = runner.invoke(app, [*words, "--out", str(out)])
    assert "`resume` resumes it, `overwrite` drops it" in str(refused.exception)
    done = runner.invoke(app, [*words, "--out", str(out), "--resume"])
    assert done.exit_code == 0, done.output
    assert [(out / name).read_bytes() for name in FILES] == whole
    again = runner.invoke(app, [*words, "--out", str(out), "--resume"])
    assert str(again.exception) == f"`resume`: {out} holds no run that failed or was killed"


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a training that was interrupted in its third round."""
    out = tmp_path_factory.mktemp("left") / "out"
    with pytest.raises(Interrupted):
        learn_into(out, scenario(), 14)
    return part_of(out)


def flipped(data: bytes) -> bytes:
    return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]


DAMAGE = {
    "cut": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "flipped": flipped,
    "text": lambda data: b"none",
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize(
    "name",
    [
        f"{FOLDER}/round-000000.npz",
        f"{FOLDER}/round-000001.npz",
        f"{FOLDER}/state-000001.safetensors",
        BEST,
    ],
)
def test_a_damaged_checkpoint_is_one_line(
    left: Path, tmp_path: Path, name: str, damage: str
) -> None:
    part = part_of(tmp_path / "out")
    for file in [path for path in left.rglob("*") if path.is_file()]:
        (part / file.relative_to(left)).parent.mkdir(parents=True, exist_ok=True)
        data = file.read_bytes()
        if str(file.relative_to(left)) == name:
            data = DAMAGE[damage](data)
        (part / file.relative_to(left)).write_bytes(data)
    before = {path: path.read_bytes() for path in part.rglob("*") if path.is_file()}
    with pytest.raises(InputError) as error:
        learn_into(tmp_path / "out", scenario(), resume=True)
    assert str(error.value).startswith(f"`resume`: {part / name}: ")
    assert "\n" not in str(error.value)
    after = {path: path.read_bytes() for path in part.rglob("*") if path.is_file()}
    told = part / FOLDER / "sessions.json"
    assert {p: d for p, d in after.items() if p != told} == {
        p: d for p, d in before.items() if p != told
    }


@pytest.mark.parametrize(
    ("different", "why"),
    [
        ({"rounds": 4}, "`resume`: rounds was 3 when the run began, and is 4 now"),
        ({"seed": 2}, "`resume`: seed was 1 when the run began, and is 2 now"),
        ({"workload__learning_rate": 0.5}, "`resume`: workload.learning_rate was "),
    ],
)
def test_another_scenario_does_not_continue_it(
    left: Path, different: dict[str, Any], why: str
) -> None:
    with pytest.raises(InputError) as error:
        learn_into(left.parent / "out", scenario(**different), resume=True)
    assert str(error.value).startswith(why)
    assert Checkpoint(left).rounds == 2


def test_a_run_does_not_continue_what_was_learned_without_a_network(left: Path) -> None:
    with pytest.raises(InputError, match=r"round-000000\.npz: is of `testbed learn`, not of"):
        Checkpoint(left)._kept(0, "round")


def test_the_best_state_is_kept(tmp_path: Path) -> None:
    wanted = scenario(rounds=4, workload__learning_rate=0.05, workload__optimiser="sgd")
    learn_into(tmp_path / "out", wanted)
    found = read_trajectory(tmp_path / "out").table
    found = found[found["data"] == "held-out"].reset_index(drop=True)
    best = json.loads((tmp_path / "out" / "manifest.json").read_text())["best"]
    row = found.iloc[found["accuracy"].argmax()]
    assert (best["round"], best["accuracy"], best["loss"]) == tuple(
        row[["round", "accuracy", "loss"]]
    )
    # Learning ends after the best round: its last state is this best one.
    shorter = scenario(
        rounds=max(1, best["round"] + 1), workload__learning_rate=0.05, workload__optimiser="sgd"
    )
    learn_into(tmp_path / "shorter", shorter)
    if best["round"] >= 0:
        assert (tmp_path / "shorter" / STATE).read_bytes() == (tmp_path / "out" / BEST).read_bytes()


def test_the_cache_continues_what_was_interrupted_and_drops_what_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trajectory, "cache_folder", lambda: tmp_path)
    whole = learn_into(tmp_path / "whole", scenario())
    forward, passes = trajectory._Learning._forward, []

    def counted(self: Any, client: int, iteration: int) -> None:
        passes.append(client)
        if len(passes) == 8:
            raise Interrupted
        forward(self, client, iteration)

    monkeypatch.setattr(trajectory._Learning, "_forward", counted)
    with pytest.raises(Interrupted):
        learned_once(scenario())
    found = learned_once(scenario())
    assert len(passes) == 8 + 12
    assert [(Path(found.folder) / name).read_bytes() for name in FILES] == whole
    passes.clear()
    with pytest.raises(Interrupted):
        learned_once(scenario(seed=2))
    (state,) = tmp_path.glob(f"learned/.*/{FOLDER}/state-*")
    state.write_bytes(b"")
    found = learned_once(scenario(seed=2))
    assert len(passes) == 8 + 18
    assert np.isfinite(found.table["loss"]).all()
