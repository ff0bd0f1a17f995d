# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What is learned is appraised by class and client, and timed by the predicted rounds."""

import json
import shutil
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from page_parts import Page
from small_trajectories import small_scenario, write_learned
from typer.testing import CliRunner

import orchestrator as tb
from orchestrator.analysis.learned import curve_of
from orchestrator.campaigning import seeds as seeds_module
from orchestrator.campaigning.seeds import learn_seeds
from orchestrator.cli.main import app
from orchestrator.emulated import appraisal
from orchestrator.emulated.appraisal import time_by_prediction
from orchestrator.emulated.learning import learning_settings, place
from orchestrator.emulated.trajectory import learn_into
from orchestrator.records.appraised import FILE as APPRAISED
from orchestrator.records.appraised import read_appraised
from orchestrator.records.directory import part_of
from orchestrator.records.learned import (
    BEST,
    CURVES,
    KIND,
    STATE,
    read_trajectories,
    read_trajectory,
)
from testbed.core.errors import InputError
from testbed.host.dask_cluster import Cluster

pytest.importorskip("torch")

KEYS = {
    "rounds": 2,
    "workload.evaluate_every": 1,
    "workload.data.samples": 60,
    "workload.evaluate_samples": 15,
    "workload.classes": 5,
    "workload.batch_size": 4,
    "workload.local_iterations": 2,
}


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seeds") / "out"
    sets = [word for key, value in KEYS.items() for word in ("--set", f"{key}={value}")]
    done = CliRunner().invoke(
        app, ["learn", "quickstart", *sets, "--seeds", "2", "--out", str(folder)]
    )
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert [line.partition(": held-out after 2 rounds")[0] for line in lines[:2]] == [
        "seed 1",
        "seed 2",
    ]
    assert lines[2].startswith("Over 2 seeds, the held-out accuracy is ")
    assert lines[-2:] == [f"learned: {folder}", f"report: {folder / 'report.html'}"]
    return folder


def test_each_seed_has_its_folder_and_the_page_has_all(learned: Path) -> None:
    assert sorted(path.name for path in learned.iterdir()) == ["report.html", "seed-1", "seed-2"]
    one, two = read_trajectories(learned)
    assert (one.scenario.seed, two.scenario.seed) == (1, 2)
    assert one.scenario.model_copy(update={"seed": 2}) == two.scenario
    assert "Over 2 seeds" in Page((learned / "report.html").read_text()).words("overview")


def test_seeds_that_are_trained_side_by_side_have_the_bytes_of_one_process(
    learned: Path, tmp_path: Path
) -> None:
    learn_seeds(tmp_path / "two", [tb.load("quickstart", KEYS | {"seed": 2})])
    for name in (STATE, BEST, f"{KIND}.parquet", APPRAISED, CURVES, "scenario.json"):
        assert (learned / "seed-2" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    words = [
        json.loads((folder / "manifest.json").read_text())["argv"]
        for folder in (learned / "seed-2", tmp_path / "two")
    ]
    assert words[0] == words[1]  # Both are of this process.


def test_an_error_of_a_worker_is_one_line(tmp_path: Path) -> None:
    missing = KEYS | {"workload.data.source": str(tmp_path / "missing")}
    given = [tb.load("quickstart", missing | {"seed": seed}) for seed in (1, 2)]
    with pytest.raises(InputError, match=r"^workload\.data\.source: .*missing"):
        learn_seeds(tmp_path / "out", given, cluster=Cluster(workers=2, pool=True))
    assert not any(process.is_alive() for process in active_children())


def test_the_confusion_is_that_of_the_last_evaluation(learned: Path) -> None:
    for each in read_trajectories(learned):
        found = read_appraised(Path(each.folder))
        assert found is not None
        held_out = each.table[each.table["data"] == "held-out"]
        assert found.matrix.sum() == 15
        share = np.trace(found.matrix) / found.matrix.sum()
        assert share == pytest.approx(held_out["accuracy"].iloc[-1])
        assert found.names == ["0", "1", "2", "3", "4"]
        # The clients hold 20 samples each, of which 15 were used.
        assert [(c.client, c.samples, c.appraised) for c in found.clients] == [
            (client, 20, 15) for client in (1, 2, 3)
        ]


def test_a_client_is_judged_on_its_own_samples(learned: Path) -> None:
    """Losses and accuracies are those of the server's evaluation of the same samples."""
    import safetensors.torch

    from workloads.learning.learner import ServerLearner
    from workloads.learning.real import Opened, Settings

    each = read_trajectories(learned)[0]
    given = learning_settings(each.scenario)
    assert given is not None
    settings = Settings.from_json(given | place(each.scenario.base_station))
    opened = Opened.of(settings)
    server = ServerLearner(opened.model, range(1, 4), settings.training)
    server.load_state(safetensors.torch.load((Path(each.folder) / STATE).read_bytes()))
    found = read_appraised(Path(each.folder))
    assert found is not None
    for share, client in zip(opened.shares, found.clients, strict=True):
        order = np.random.default_rng([settings.data.seed, share.client]).permutation(share.indices)
        assert set(order) == set(share.indices)
        loss, accuracy = server.evaluate(*share.dataset.batch(order[:15]))
        assert client.loss == pytest.approx(loss, rel=1e-5)
        assert client.accuracy == pytest.approx(accuracy)


def test_times_are_those_of_predict(learned: Path) -> None:
    each = read_trajectories(learned)[1]
    stored = pd.read_parquet(Path(each.folder) / "curves.parquet")
    timeline = tb.predict(each.scenario)
    expected = curve_of(each.timed(each.scenario, timeline), timeline)
    pd.testing.assert_frame_equal(stored, expected)
    assert stored["time_s"].iloc[-1] == pytest.approx(timeline.end_s)


def test_without_a_prediction_there_are_no_times(
    learned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise tb.InputError("radio: no such radio")

    monkeypatch.setattr("orchestrator.api.predict", refused)
    each = read_trajectories(learned)[0]
    stored = Path(each.folder) / "curves.parquet"
    kept = stored.read_bytes()
    try:
        curve = time_by_prediction(each)
    finally:
        stored.write_bytes(kept)
    assert "no times: radio: no such radio" in caplog.text
    assert curve["time_s"].isna().all()
    assert curve["accuracy"].notna().all()


def test_predict_takes_the_folder_of_all_seeds(learned: Path, tmp_path: Path) -> None:
    sets = [word for key, value in KEYS.items() for word in ("--set", f"{key}={value}")]
    given = ["predict", "quickstart", *sets, "--set", "seed=2", "--learned", str(learned)]
    done = CliRunner().invoke(app, [*given, "--json", str(tmp_path / "p.json")])
    assert done.exit_code == 0, done.output
    assert "accuracy" in done.stdout


class Stopped(Exception):
    """What interrupts a training."""


def test_seeds_that_are_complete_are_kept_and_others_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, bool, bool]] = []
    stops = {"seed-3"}

    def pretend(folder: Path, scenario: Any, *, overwrite: bool, resume: bool, **_: Any) -> Any:
        calls.append((folder.name, overwrite, resume))
        if folder.name in stops:
            part_of(folder).mkdir(parents=True)
            raise Stopped
        shutil.rmtree(folder, ignore_errors=True)
        return read_trajectory(write_learned(folder, seed=scenario.seed))

    monkeypatch.setattr(seeds_module, "learn_into", pretend)
    monkeypatch.setattr(seeds_module, "_appraise", lambda made: None)
    out = tmp_path / "out"
    given = [small_scenario(seed) for seed in (1, 2, 3, 4)]
    with pytest.raises(Stopped):
        learn_seeds(out, given)
    assert calls == [("seed-1", False, False), ("seed-2", False, False), ("seed-3", False, False)]
    calls.clear()
    stops.clear()
    folders = learn_seeds(out, given, resume=True)
    assert calls == [("seed-3", False, True), ("seed-4", False, False)]
    assert [folder.name for folder in folders] == [f"seed-{seed}" for seed in (1, 2, 3, 4)]
    assert [each.scenario.seed for each in read_trajectories(out)] == [1, 2, 3, 4]
    other = [small_scenario(seed, rounds=2) for seed in (1, 2)]
    with pytest.raises(InputError, match=r"^`resume`: .*seed-1 has learned another scenario$"):
        learn_seeds(out, other, resume=True)
    calls.clear()
    learn_seeds(out, given[:2], overwrite=True)
    assert calls == [("seed-1", True, False), ("seed-2", True, False)]
    calls.clear()
    with pytest.raises(InputError, match=r"^`resume`: does not go together with `overwrite`$"):
        learn_seeds(out, given[:2], overwrite=True, resume=True)
    # Nothing was begun there: what resumes says so.
    learn_seeds(tmp_path / "new", given[:2], resume=True)
    assert calls[0] == ("seed-1", False, True)


def test_where_statistics_stay_each_client_is_judged_with_its_own(tmp_path: Path) -> None:
    keys = {"rounds": 1, "workload.model": "resnet_nano_32", "workload.batch_norm": "local"}
    scenario = tb.load("quickstart", KEYS | keys | {"workload.split": 2})
    made = learn_into(tmp_path / "out", scenario)
    found = appraisal.appraise(made)
    assert found is not None
    assert found.matrix.sum() == 3 * 15  # The held-out samples, once with the model of each UAV.
    accuracy = made.table.loc[made.table["data"] == "held-out", "accuracy"].iloc[-1]
    assert np.trace(found.matrix) / found.matrix.sum() == pytest.approx(accuracy)


def test_with_personal_tensors_each_client_is_judged_with_its_own(tmp_path: Path) -> None:
    """Evaluation and appraisal equal those of each client's whole model, which is attached here."""
    import safetensors.torch

    from workloads.learning.learner import BS_STATE, ServerLearner, own_tensors
    from workloads.learning.real import Opened, Settings

    keys = {"rounds": 1, "workload.local_step": "personal", "workload.learning_rate": 0.05}
    made = learn_into(tmp_path / "out", tb.load("quickstart", KEYS | keys))
    found = appraisal.appraise(made)
    assert found is not None
    assert found.matrix.sum() == 3 * 15
    row = made.table[made.table["data"] == "held-out"].iloc[-1]
    assert np.trace(found.matrix) / found.matrix.sum() == pytest.approx(row["accuracy"])
    given = learning_settings(made.scenario)
    assert given is not None
    settings = Settings.from_json(given | place(made.scenario.base_station))
    state = safetensors.torch.load((Path(made.folder) / STATE).read_bytes())
    plain = {name: tensor for name, tensor in state.items() if not name.startswith("clients.")}
    losses = []
    for share in Opened.of(settings).shares:
        kept = own_tensors(state, share.client)
        own = {n: kept[f"{BS_STATE}{n}"] for n in plain if f"{BS_STATE}{n}" in kept}
        assert {"head.fc.weight", "head.fc.bias"} <= own.keys() <= plain.keys()
        assert any(not own[name].equal(plain[name]) for name in own)
        server = ServerLearner(
            Opened.of(settings).model, [1], replace(settings.training, local_step=None)
        )
        server.load_state(plain | own)
        order = np.random.default_rng([settings.data.seed, share.client]).permutation(share.indices)
        losses.append(server.evaluate(*share.dataset.batch(order[:15]))[0])
    assert [each.loss for each in found.clients] == pytest.approx(losses, rel=1e-5)
