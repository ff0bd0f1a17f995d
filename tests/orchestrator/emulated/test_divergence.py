# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Where losses or models stopped being finite, in words."""

import json
import math
from pathlib import Path

import pandas as pd
import pytest
import torch
import warm
from torchvision.io import write_png

from orchestrator.emulated.learning import COLUMNS, divergence, few_samples
from workloads.learning.cached import backbone_file
from workloads.models.config import ModelConfig

QUICKSTART = Path(__file__).resolve().parents[3] / "scenarios" / "quickstart.yaml"


def table(*rows: tuple[int, str, int, int, float, float]) -> pd.DataFrame:
    """Rows of round, data, client, iteration, time and loss."""
    return pd.DataFrame([(*row, 0.5) for row in rows], columns=COLUMNS)


FINE = [
    (-1, "held-out", 0, 0, 0.0, 2.0),
    (0, "train", 1, 1, 1.0, 1.5),
    (0, "train", 2, 1, 2.0, 1.4),
]


@pytest.mark.parametrize(
    ("rows", "diverged", "where"),
    [
        ([(-1, "held-out", 0, 0, 0.0, math.inf)], {}, "before the first round (held-out data)"),
        ([(0, "held-out", 0, 0, 3.0, math.nan)], {0: []}, "in round 0 (held-out data)"),
        (
            [(0, "held-out", 0, 0, 3.0, math.nan)],
            {0: [2, 3]},
            "in round 0 (at its end: uav2, uav3)",
        ),
        ([(1, "train", 1, 1, 4.0, math.nan)], {0: [2], 1: [1]}, "in round 0 (at its end: uav2)"),
        (
            [(1, "train", 3, 2, 5.0, math.nan), (1, "train", 2, 1, 4.0, -math.inf)],
            {0: [], 1: [2, 3]},
            "in round 1 (uav2, iteration 1)",
        ),
    ],
)
def test_the_first_place_is_named(
    rows: list[tuple[int, str, int, int, float, float]], diverged: dict[int, list[int]], where: str
) -> None:
    found = divergence(table(*FINE, *rows), diverged)
    assert found == f"losses stopped being finite {where}: the training has diverged"


def test_nothing_is_said_of_finite_losses() -> None:
    assert divergence(table(*FINE), {0: []}) == ""


def test_uavs_with_few_samples_are_named() -> None:
    assert few_samples([[[0, 4], [1, 4]], [[2, 8]]], 8) == ""
    assert few_samples([[[0, 4], [1, 3]], [[2, 8]]], 8) == (
        "workload.data: uav1 has fewer samples than workload.batch_size (7, and batches of 8), so "
        "their batches repeat samples"
    )
    assert "uav2 and 1 more UAVs have fewer" in few_samples([[[0, 9]], [[1, 1]], [[2, 2]]], 8)


def test_a_run_says_what_it_read_and_that_it_diverged_and_ends_well(tmp_path: Path) -> None:
    for name in ("Train/a", "Train/b", "Test/a", "Test/b"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for shade in range(10, 30):
            pixels = torch.full((3, 64, 64), shade, dtype=torch.uint8)
            write_png(pixels, str(tmp_path / "data" / name / f"{shade}.png"))
    weights = backbone_file(ModelConfig("swin_nano_patch4_window4_64", 2), tmp_path)
    keys = ["rounds=1", "workload.optimiser=sgd", "workload.learning_rate=100"]
    keys += ["workload.local_iterations=8", "workload.aggregation=svd", "workload.classes=2"]
    keys += [f"workload.data.source={tmp_path / 'data'}", f"workload.weights={weights}"]
    keys += ["emulation.calibrate=false", "workload.batch_size=2", "emulation.dilation=1"]
    words = [word for key in keys for word in ("--set", key)]
    done = warm.run("run", QUICKSTART, *words, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    data = "2 classes (a, b), 40 training samples in Train/, 40 held out in Test/"
    assert f"workload.data.source: {data}" in done.stderr
    assert manifest["data"] == f"{tmp_path / 'data'}: {data}"
    [remark] = manifest["remarks"]
    assert remark == f"workload.weights: {weights} has no head head.fc; a new head is drawn by seed"
    assert remark in done.stderr
    line = manifest["diverged"]
    assert line.startswith("losses stopped being finite in round 0 (uav")
    assert line in done.stderr
    assert line[1:] in (tmp_path / "run" / "report.html").read_text()
