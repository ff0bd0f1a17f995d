# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Output folders: earlier results are kept unless `--overwrite`, and resumed only if there."""

from pathlib import Path

import numpy as np
import pytest
import warm
from small_campaign import write_campaign
from small_scenario import TEXT

from orchestrator.campaigning.folder import CampaignFolder
from orchestrator.campaigning.spec import load_campaign
from orchestrator.interface.folders import check_new, check_resumable, empty, remove_results
from testbed.core.errors import InputError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "s.yaml").write_text(TEXT)
    gain = 10 ** np.random.default_rng(1).uniform(-10.5, -9, (3, 3000))
    np.savez(tmp_path / "t.npz", gain=gain, slot_s=0.1)
    bps = np.full((3, 9), 1e7)
    np.savez(tmp_path / "r.npz", uplink_bps=bps, downlink_bps=bps, slot_s=1)
    return tmp_path


def refusal(folder: Path, line: str) -> str:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    done = warm.run(*line.split(), cwd=folder)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    (said,) = done.stderr.splitlines()
    return said


@pytest.mark.parametrize(
    ("line", "old", "other"),
    [
        ("export-trace r.npz --out o", "uav1.up", "uav9.up"),
        ("cross-check s.yaml --trace t.npz --no-emulated --out o", "trace.json", "delay.png"),
        ("reproduce table2 --out o", "table2.csv", None),
    ],
    ids=lambda value: str(value).split()[0],
)
def test_earlier_results_are_replaced_only_if_asked(
    folder: Path, line: str, old: str, other: str | None
) -> None:
    (folder / "o").mkdir()
    for name in (old, "mine.txt", *([other] if other else [])):
        (folder / "o" / name).write_text("old")
    says = f"testbed: --out: o has earlier results ({min(n for n in (old, other) if n)}); "
    assert refusal(folder, line) == f"{says}choose another folder, or pass --overwrite"
    done = warm.run(*line.split(), "--overwrite", cwd=folder, learns="table2" in line)
    assert done.returncode == 0, done.stderr
    assert (folder / "o" / old).read_text() != "old"
    assert (folder / "o" / "mine.txt").read_text() == "old"
    if other is not None and "cross-check" in line:
        assert not (folder / "o" / other).exists(), "a result of another call is still there"


def test_a_folder_with_other_files_is_filled(folder: Path) -> None:
    (folder / "o").mkdir()
    (folder / "o" / "mine.txt").touch()
    done = warm.run("export-trace", "r.npz", "--out", "o", cwd=folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("run s.yaml", "run"),
        ("campaign run small.yaml", "campaign"),
        ("validate s.yaml --model tau2-hat", "validation"),
        ("train s.yaml", "trained agent"),
        ("reproduce fig8", "campaign"),
    ],
)
def test_nothing_is_resumed_in_a_folder_that_does_not_exist(
    folder: Path, line: str, what: str
) -> None:
    write_campaign(folder)
    says = f"testbed: --resume: TYPO does not exist: there is no {what} to resume"
    assert refusal(folder, f"{line} --out TYPO --resume") == says
    both = refusal(folder, f"{line} --out TYPO --resume --overwrite")
    assert both == "testbed: --resume: does not go together with --overwrite"


def test_an_emulated_training_is_not_resumed(folder: Path) -> None:
    (folder / "o").mkdir()
    (folder / "o" / "agent.pt").touch()
    says = "testbed: --resume: must be absent with --emulated, which cannot be resumed"
    assert refusal(folder, "train s.yaml --out o --emulated --resume") == says


def test_a_campaign_begins_again_or_is_resumed(folder: Path) -> None:
    write_campaign(folder)
    line = ["campaign", "run", "small.yaml", "--workers", "1", "--out", "o"]
    made = {}
    for option in ([], ["--resume"], ["--overwrite"], ["--resume"]):
        done = warm.run(*line, *option, cwd=folder)
        assert done.returncode == 0, done.stderr
        made[len(made)] = done.stdout.splitlines()[0]
    assert [text.split(",")[1] for text in made.values()] == [
        f" {count} of them computed now" for count in (8, 0, 8, 0)
    ]
    says = "testbed: --overwrite: . contains no campaign, so it is not replaced"
    assert refusal(folder, "campaign run small.yaml --out . --overwrite") == says
    with (
        CampaignFolder(folder / "o").held(load_campaign(folder / "small.yaml")),
        pytest.raises(InputError, match="already uses"),
    ):
        CampaignFolder(folder / "o").clear()


def test_a_validation_begins_again(folder: Path) -> None:
    line = "validate s.yaml --model tau2-hat --samples 16 --packets 0 --workers 1 --out o"
    for option in ([], ["--resume"], ["--overwrite"]):
        stale = folder / "o" / "stale"
        if (folder / "o").exists():
            stale.touch()
        done = warm.run(*line.split(), *option, cwd=folder)
        assert done.returncode == 0, done.stderr
        assert stale.exists() == (option == ["--resume"])
    says = "--overwrite: . contains no validation, so it is not replaced"
    assert says in refusal(folder, line.replace("--out o", "--out . --overwrite"))


def test_only_results_of_the_command_are_removed(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv", "mine.txt"):
        (tmp_path / name).touch()
    (tmp_path / "deep.csv").mkdir()
    remove_results(tmp_path, ("*.csv",))
    assert {path.name for path in tmp_path.iterdir()} == {"deep.csv", "mine.txt"}
    check_new(tmp_path, ("*.csv",), overwrite=False)
    with pytest.raises(InputError, match="`overwrite`: needs `out`"):
        check_new(None, (), overwrite=True)


def test_a_link_in_a_folder_is_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    out = tmp_path / "out"
    (out / "deep").mkdir(parents=True)
    (out / "link").symlink_to(tmp_path / "precious")
    (out / "kept").touch()
    empty(out, ("kept",))
    assert [path.name for path in out.iterdir()] == ["kept"]
    assert (tmp_path / "precious" / "file").exists()
    empty(tmp_path / "nothing")
    (tmp_path / "out2").symlink_to(out)
    with pytest.raises(InputError, match="symbolic link"):
        check_resumable(tmp_path / "out2", "kept", "run", overwrite=True, resume=False)
