# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The example of a language model: two UAVs train it in virtual time, as one process would."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from in_guest import play

from orchestrator.records.reader import read_run
from orchestrator.scenario.loading import load
from orchestrator.scenario.profiles import data_of, model_of
from testbed.system.folders import cache_folder
from workloads.data.samples import client_data, open_data
from workloads.learning.backbone import load_model
from workloads.learning.cached import backbone_file
from workloads.learning.learner import ClientLearner, ServerLearner
from workloads.learning.settings import TrainingConfig

pytest.importorskip("transformers")
ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = Path("examples") / "language"
TEXT = Path("LICENSES") / "GPL-2.0-only.txt"
SHORT = ("--rounds", "2", "--set", "workload.local_iterations=2", "--set", "workload.batch_size=4")


def held_out_losses(scenario_file: Path) -> list[float]:
    """Losses before the first and after each round, computed in this process without a network."""
    sets = ["rounds=2", "workload.local_iterations=2", "workload.batch_size=4"]
    scenario = load(scenario_file, sets)
    torch.set_num_threads(1)
    config, data = model_of(scenario), data_of(scenario)
    model = load_model(config, backbone_file(config, cache_folder()))
    train = open_data(data, config.classes, model.input)
    shares = client_data(train, data, 2, 4)
    held_out = open_data(data, config.classes, model.input, train=False)
    tokens, following = held_out.batch(np.arange(len(held_out.labels)))
    training = TrainingConfig(learning_rate=scenario.workload.learning_rate)
    server = ServerLearner(model, [1, 2], training)
    clients = {share.client: ClientLearner(model, training) for share in shares}
    losses = [server.evaluate(tokens, following)[0]]
    for round_ in range(2):
        sent = server.begin_round(1)
        for share in shares:
            clients[share.client].begin_round(1, sent)
            for iteration in (1, 2):
                samples, labels = share.batch(round_, iteration)
                smashed = clients[share.client].forward(samples)
                step = server.forward_backward(share.client, smashed, labels)
                clients[share.client].backward(step.gradient)
        counts = {share.client: len(share.indices) for share in shares}
        server.aggregate({k: client.adapters() for k, client in clients.items()}, counts)
        losses.append(server.evaluate(tokens, following)[0])
    return losses


@pytest.mark.full
@pytest.mark.guest
@pytest.mark.timeout(1200)
def test_the_example_learns_what_one_process_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / EXAMPLE, tmp_path / EXAMPLE)
    (tmp_path / TEXT).parent.mkdir()
    shutil.copy(ROOT / TEXT, tmp_path / TEXT)
    words = ("run", EXAMPLE / "scenario.yaml", "--out", "run", *SHORT)
    done = play(tmp_path, {"run": words})["run"]
    assert done.returncode == 0, done.stderr
    assert "254 training sequences in GPL-2.0-only.txt (bytes)" in done.stderr
    run = read_run(tmp_path / "run")
    assert run.valid
    table: pd.DataFrame = run.tables["learning"]
    found = table[table["data"] == "held-out"].sort_values("round")["loss"].tolist()
    monkeypatch.chdir(tmp_path)
    assert found == pytest.approx(held_out_losses(EXAMPLE / "scenario.yaml"), rel=1e-5)
    assert found[2] < found[1] < found[0]
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert f"went from {np.exp(found[0]):.4g} to {np.exp(found[-1]):.4g}" in page
