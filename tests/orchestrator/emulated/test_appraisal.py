# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What is learned is appraised by class and client, and timed by the predicted rounds."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from page_parts import Page
from typer.testing import CliRunner

import orchestrator as tb
from orchestrator.analysis.learned import curve_of
from orchestrator.cli.main import app
from orchestrator.emulated.appraisal import time_by_prediction
from orchestrator.emulated.learning import learning_settings, place
from orchestrator.records.appraised import read_appraised
from orchestrator.records.learned import STATE, read_trajectories

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
