# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The campaigns of published results: each loads, and one point of each study learns a round."""

import runpy
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from packages import importable, write_package

from orchestrator.campaigning.cluster import plain_point
from orchestrator.campaigning.spec import cells, load_campaign, point_of
from orchestrator.campaigning.worker import play
from orchestrator.records.manifest import source_sha256

ROOT = Path(__file__).parents[2]
MODULE = ROOT / "examples" / "digits" / "digits.py"
ENTRIES = "[testbed.models]\ndigits_cnn = digits:digits_cnn\ndigits_mlp = digits:digits_mlp\n"
CAMPAIGNS = sorted((ROOT / "campaigns" / "published").glob("*.yaml"))


def write_data(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the example writes, of pictures that stand in for those of scikit-learn."""
    datasets = ModuleType("sklearn.datasets")
    random = np.random.default_rng(1)
    found = SimpleNamespace(
        images=random.uniform(0, 16, (900, 8, 8)), target=np.arange(900) // 10 % 10
    )
    datasets.load_digits = lambda: found  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sklearn.datasets", datasets)
    sklearn = ModuleType("sklearn")
    sklearn.__spec__ = ModuleSpec("sklearn", None)  # torch asks for it
    monkeypatch.setitem(sys.modules, "sklearn", sklearn)
    monkeypatch.setattr(sys, "argv", ["digits.py", str(folder)])
    runpy.run_path(str(MODULE), run_name="__main__")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with data in runs/digits; the package of networks is installed."""
    folder = tmp_path_factory.mktemp("published")
    write_package(folder / "packages", "digits", MODULE.read_text(encoding="utf-8"), ENTRIES)
    with pytest.MonkeyPatch.context() as patch:
        write_data(folder / "runs" / "digits", patch)
        with importable(folder / "packages", "digits", patch):
            yield folder


def test_five_campaigns_are_published() -> None:
    assert len(CAMPAIGNS) == 5


@pytest.mark.parametrize("file", CAMPAIGNS, ids=lambda file: file.stem)
def test_one_point_of_each_study_learns_a_round(
    file: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    campaign = load_campaign(file)
    assert campaign.repeats == 5
    assert all(study.claims and study.plot for study in campaign.studies.values())
    first = {cell.study: cell.point for cell in reversed(cells(campaign))}
    assert set(first) == set(campaign.studies)
    task = {"source_sha256": source_sha256(), "argv": [], "command": ""}
    for point in first.values():
        scenario = point.scenario.model_copy(update={"rounds": 1})
        short = point_of("predict", scenario, None, 1, point.options)
        (answer,) = play(task, [plain_point(short)])
        assert "failure" not in answer, answer["failure"]
        assert "curves.parquet" in answer["files"]


def test_without_scikit_learn_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    monkeypatch.setattr(sys, "argv", ["digits.py", str(tmp_path / "digits")])
    with pytest.raises(SystemExit, match=r"^scikit-learn is missing: pip install"):
        runpy.run_path(str(MODULE), run_name="__main__")
    assert not (tmp_path / "digits").exists()
