# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A run's folder: what others own is left untouched, and what was measured is never lost."""

from pathlib import Path
from typing import Any

import pytest
from small_scenario import TREE

from orchestrator.records.checkpoint import FOLDER
from orchestrator.records.directory import LOCK, MANIFEST, part_of, run_folder, session_folder
from orchestrator.scenario.loading import validate
from testbed.core.errors import InputError, RunError
from testbed.system.files import write_json

SCENARIO = validate(TREE, "small")


def fill(out: Path, status: str | None = "complete", **options: Any) -> None:
    """What a run does to its folder."""
    with run_folder(out, SCENARIO, **options) as folder:
        (folder / FOLDER).mkdir(exist_ok=True)
        (folder / FOLDER / "round-000000.npz").write_bytes(b"a round")
        if status is not None:
            write_json(folder / MANIFEST, {"status": status})


def refused(out: Path, **options: Any) -> str:
    with pytest.raises(InputError) as error:
        fill(out, **options)
    return str(error.value)


@pytest.mark.parametrize("options", [{}, {"overwrite": True}, {"resume": True}])
@pytest.mark.parametrize("dangling", [True, False])
def test_a_symbolic_link_is_no_place_for_a_run(
    tmp_path: Path, dangling: bool, options: dict[str, bool]
) -> None:
    target = tmp_path / "elsewhere"
    if not dangling:
        fill(target)
    (tmp_path / "out").symlink_to(target)
    line = refused(tmp_path / "out", **options)
    assert line == f"`out`: {tmp_path / 'out'} is a symbolic link; name the folder itself"
    assert not part_of(tmp_path / "out").exists()
    assert dangling or (target / MANIFEST).is_file()


@pytest.mark.parametrize("options", [{}, {"overwrite": True}, {"resume": True}])
def test_what_a_part_that_is_a_link_points_to_is_left_untouched(
    tmp_path: Path, options: dict[str, bool]
) -> None:
    out, precious = tmp_path / "out", tmp_path / "precious"
    precious.mkdir()
    (precious / LOCK).touch()
    (precious / "thesis.tex").write_text("all of it")
    part_of(out).symlink_to(precious)
    assert "was not made by a run of this user" in refused(out, **options)
    assert (precious / "thesis.tex").read_text() == "all of it"


def test_a_folder_that_only_looks_like_a_part_is_left_untouched(tmp_path: Path) -> None:
    out = tmp_path / "out"
    part_of(out).mkdir()
    (part_of(out) / "thesis.tex").write_text("all of it")
    assert "was not made by a run of this user" in refused(out, overwrite=True)
    assert (part_of(out) / "thesis.tex").exists()
    (part_of(out) / "thesis.tex").unlink()
    fill(out)  # of a run that was killed before it held its lock


def test_a_part_of_somebody_else_is_left_untouched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    part_of(out).mkdir()
    (part_of(out) / LOCK).touch()
    owner = part_of(out).stat().st_uid
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    assert "was not made by a run of this user" in refused(out)


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    out, precious = tmp_path / "out", tmp_path / "precious"
    precious.write_text("all of it")
    part_of(out).mkdir()
    (part_of(out) / LOCK).symlink_to(precious)
    assert "cannot be written" in refused(out)
    assert precious.read_text() == "all of it"


@pytest.mark.parametrize("before", [False, True])
def test_a_run_that_cannot_be_renamed_is_kept_with_its_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    out = tmp_path / "out"
    if before:
        fill(out)
        (out / "mine").write_text("of the first run")
    rename = Path.rename

    def fails(self: Path, target: Path) -> Path:
        if self == part_of(out):
            raise PermissionError(13, "Permission denied", str(target))
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fails)
        with pytest.raises(PermissionError):
            fill(out, overwrite=before)
    assert (part_of(out) / MANIFEST).is_file()
    assert (part_of(out) / FOLDER / "round-000000.npz").is_file()
    assert (out / "mine").exists() is before
    if before:
        return
    for options in ({}, {"overwrite": True}):
        line = refused(out, **options)
        assert "manifest says 'complete'" in line
        assert "`resume`" in line
    assert (part_of(out) / FOLDER / "round-000000.npz").is_file()
    fill(out, resume=True)
    assert {path.name for path in out.iterdir()} == {MANIFEST, "scenario.json"}


def test_what_is_replaced_goes_once_the_new_run_is_in_its_place(tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(out, "failed")
    assert (out / FOLDER / "round-000000.npz").is_file()
    (out / "old").touch()
    fill(out, overwrite=True)
    assert {path.name for path in out.iterdir()} == {MANIFEST, "scenario.json"}
    assert {path.name for path in tmp_path.iterdir()} == {"out"}


def test_a_session_that_cannot_begin_leaves_everything_as_it_was(tmp_path: Path) -> None:
    out, earlier = tmp_path / "out", tmp_path / ".out.earlier"
    earlier.mkdir()
    with session_folder(out, "socket") as begun:  # nothing was there: nothing is put aside
        begun()
        write_json(out / MANIFEST, {"kind": "session"})
    assert [path.name for path in out.iterdir()] == [MANIFEST]
    claim = session_folder(out, "socket", overwrite=True)
    with pytest.raises(InputError, match=r"\.out\.earlier exists"), claim:
        pytest.fail("an earlier session is in the way")
    assert [path.name for path in out.iterdir()] == [MANIFEST]
    earlier.rmdir()

    def fail() -> None:
        with session_folder(out, "socket", overwrite=True):
            (out / "logs").mkdir()
            raise RunError("no network")

    with pytest.raises(RunError, match="no network"):
        fail()
    assert [path.name for path in out.iterdir()] == [MANIFEST]
    assert not earlier.exists()
