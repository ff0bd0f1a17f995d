# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The folders of runs and sessions: how they are claimed, filled, and found again after a crash.

A run's folder is filled aside, seen when it is whole, and found again when the run was killed.

A run with `--out DIR` fills `.DIR.part` beside it and renames it in the end. While it lives it
holds a lock on the file `lock` in there; the kernel lets go of it whatever ends the process. So a
part that is not locked is what a killed run left: `--resume` resumes it. A part that holds a whole
run, which could not be renamed, has its checkpoint still: `--resume` puts it into place.

A symbolic link is never followed: what it points to is not ours to fill, to empty or to remove.
"""

import contextlib
import fcntl
import json
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from orchestrator.records.checkpoint import FOLDER, Checkpoint
from orchestrator.scenario.loading import validate
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.trees import differing
from testbed.system.files import check_no_link, write_json
from testbed.system.leftovers import temporary_folder

MANIFEST = "manifest.json"
SCENARIO = "scenario.json"
LOCK = "lock"


def part_of(out: Path) -> Path:
    """The folder that a run with that `--out` fills."""
    return out.parent / f".{out.name}.part"


def abandoned(parent: Path) -> list[Path]:
    """Folders in `parent` that were left by killed runs: no process is filling them."""
    parts = (path for path in parent.glob(".*.part") if (path / LOCK).is_file())
    return [part for part in parts if not is_locked(part)]


def is_locked(part: Path) -> bool:
    """Whether a live run is filling the folder."""
    try:
        with (part / LOCK).open("rb+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


@contextlib.contextmanager
def run_folder(
    out: Path | None,
    scenario: Scenario,
    *,
    overwrite: bool = False,
    resume: bool = False,
    finish: Callable[[Path], object] = lambda folder: None,
) -> Iterator[Path]:
    """A folder to fill: becomes `out` when the context ends and it holds a run.

    Args:
        out: The run directory; None: nothing is kept.
        scenario: What is run.
        overwrite: Whether `out` may hold an earlier run, which the new one replaces in the end.
        resume: Whether to resume what a killed or failed run of the scenario has left.
        finish: Called with `out` when it is there, for a report, say; of a run that failed, too.

    Raises:
        InputError: `out` is taken, or the run to resume is complete or of another scenario.
    """
    if out is None:
        if resume:
            raise InputError("`resume`: needs `out`, the directory to resume")
        with temporary_folder("run") as temporary:
            yield temporary
        return
    with claimed(out, scenario, overwrite=overwrite, resume=resume) as part:
        if not resume:
            _clear(out, part, overwrite)
        write_json(part / SCENARIO, scenario.model_dump(mode="json"))
        try:
            yield part
        finally:
            if _settle(out, part):
                finish(out)


@contextlib.contextmanager
def claimed(
    out: Path, scenario: Scenario, *, overwrite: bool = False, resume: bool = False
) -> Iterator[Path]:
    """The part of `out`, locked against other runs; an empty one is gone in the end.

    For `run_folder`, and for whoever has it called in virtual time: locks of a guest hold there
    alone, and its host's hold here.

    Raises:
        InputError: As `run_folder` has it.
    """
    if resume and overwrite:
        raise InputError("`resume`: does not go together with `overwrite`")
    part = part_of(out)
    _check_own(out, part)
    made = [path for path in part.parents if not path.exists()]
    if resume:
        _find(out, part, scenario)
    else:
        _check_free(out, overwrite)
    with _locked(out, part):
        try:
            yield part
        finally:
            # Nobody may have got so far as to fill or to resume it.
            if part.exists() and (resume or "status" not in object_in(part / MANIFEST)):
                _settle(out, part)
            with contextlib.suppress(OSError):  # They hold a run.
                for path in made:
                    path.rmdir()


def _check_own(out: Path, part: Path) -> None:
    """Refuse links, and a part that no run of ours has made.

    Raises:
        InputError: Says what is in the way.
    """
    check_no_link(out)
    try:
        about = part.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"`out`: {out} cannot be used ({error.strerror})") from None
    ours = stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid()
    if not ours or not ((part / LOCK).is_file() or not any(part.iterdir())):
        raise InputError(
            f"`out`: {part}, which the run would fill, is there already and no run of yours has "
            "made it; remove it, or choose another name"
        )


def _find(out: Path, part: Path, scenario: Scenario) -> None:
    """See that there is something to resume, or nothing yet; put a failed run aside again."""
    if out.exists():
        if object_in(out / MANIFEST).get("status") != "failed":
            raise InputError(f"`resume`: {out} holds no run that failed or was killed")
        if part.exists():
            raise InputError(f"`resume`: both {out} and {part} are there; remove one of them")
        _check_same(out, scenario)
        out.rename(part)
    elif part.exists():
        if is_locked(part):
            raise InputError(f"`out`: {out} is being written by another run")
        _check_same(part, scenario)


def _check_same(folder: Path, scenario: Scenario) -> None:
    """Refuse to resume another scenario.

    Raises:
        InputError: Names a key that differs.
    """
    path = folder / SCENARIO
    if not path.is_file():
        return  # killed before it had begun
    # Through the model: a run stays the same when scenarios gain keys.
    began = validate(object_in(path), str(path)).model_dump(mode="json")
    now = scenario.model_dump(mode="json")
    if now["emulation"]["dilation"] == "auto":
        began["emulation"]["dilation"] = "auto"  # where it has been chosen, it stands there
    for key, (before, after) in differing([began, now]).items():
        raise InputError(f"`resume`: {key} was {before!r} when the run began, and is {after!r} now")


def _check_free(out: Path, overwrite: bool) -> None:
    if out.exists() and not (overwrite and (out / MANIFEST).is_file()):
        remedy = "or pass `overwrite`" if (out / MANIFEST).is_file() else "it holds no run"
        raise InputError(f"`out`: {out} exists already; choose another name, {remedy}")


@contextlib.contextmanager
def _locked(out: Path, part: Path) -> Iterator[None]:
    """Hold the part's lock.

    Raises:
        InputError: Another run holds it, or the folder cannot be written.
    """
    try:
        part.mkdir(parents=True, exist_ok=True)
        follow_none = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        lock = os.fdopen(os.open(part / LOCK, follow_none, 0o666), "rb+")
    except OSError as error:
        raise InputError(f"`out`: {out.parent} cannot be written ({error.strerror})") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another run may have ended, and taken this file away, since it was opened.
            same = os.path.samestat(os.fstat(lock.fileno()), (part / LOCK).stat())
        except (BlockingIOError, FileNotFoundError):
            same = False
        if not same:
            raise InputError(f"`out`: {out} is being written by another run")
        yield


def _clear(out: Path, part: Path, overwrite: bool) -> None:
    """Empty a part that was left, unless it holds a run, or rounds that nobody said may go."""
    if (status := object_in(part / MANIFEST).get("status")) is not None:
        raise InputError(
            f"`out`: {part} holds a run of {out} whose manifest says {status!r}, and which has not "
            "been renamed; `resume` resumes it and puts it into place; or remove it"
        )
    if (rounds := Checkpoint(part).rounds) and not overwrite:
        raise InputError(
            f"`out`: a run of {out} was killed after {rounds} rounds; "
            "`resume` resumes it, `overwrite` drops it"
        )
    for path in part.iterdir():
        if path.name != LOCK:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _settle(out: Path, part: Path) -> bool:
    """Rename the part if it holds a run; else remove it, unless there are rounds to resume.

    Returns:
        Whether it holds a run.
    """
    status = object_in(part / MANIFEST).get("status")
    if status is None:
        if not Checkpoint(part).rounds:
            shutil.rmtree(part)
        return False
    replaced = part / "replaced"
    if out.exists():
        out.rename(replaced)
    try:
        part.rename(out)
    except OSError:
        if replaced.exists():
            replaced.rename(out)
        raise
    # Not before the run is where it belongs: until then they are what it is resumed from.
    if status == "complete":
        shutil.rmtree(out / FOLDER, ignore_errors=True)
    shutil.rmtree(out / replaced.name, ignore_errors=True)
    (out / LOCK).unlink()
    return True


@contextlib.contextmanager
def session_folder(
    out: Path, may_be_there: str, *, overwrite: bool = False
) -> Iterator[Callable[[], None]]:
    """The folder of a session: filled in place, so that others can look into it while it lasts.

    What was there stays aside until the session has begun; if it never begins, it is put back. Like
    a run's, the folder is locked meanwhile, and a killed session leaves one that is not.

    Args:
        out: The folder to make.
        may_be_there: A file that may be in it already: the socket of virtual time's host.
        overwrite: Whether `out` may hold an earlier session.

    Yields:
        What to call once the session has begun.

    Raises:
        InputError: `out` is taken, or cannot be made.
    """
    check_no_link(out)
    left = {may_be_there, LOCK}
    if out.exists() and not (out.is_dir() and {path.name for path in out.iterdir()} <= left):
        is_session = object_in(out / MANIFEST).get("kind") == "session"
        if not (is_session and overwrite):
            remedy = "or pass `overwrite`" if is_session else "it holds no session"
            raise InputError(f"`out`: {out} exists already; choose another name, {remedy}")
    earlier, has_begun = out.with_name(f".{out.name}.earlier"), False

    def begun() -> None:
        nonlocal has_begun
        has_begun = True
        shutil.rmtree(earlier, ignore_errors=True)

    with _locked(out, out):
        _put_aside(out, earlier, left)
        try:
            yield begun
        finally:
            if not has_begun:
                for path in out.iterdir():
                    if path.is_dir() and not path.is_symlink():
                        shutil.rmtree(path)
                    elif path.name not in left:
                        path.unlink()
                _move(earlier, out, left)
                earlier.rmdir()
            (out / LOCK).unlink()
            with contextlib.suppress(OSError):  # It holds a session, or a host's socket.
                out.rmdir()


def _put_aside(out: Path, earlier: Path, left: Collection[str]) -> None:
    try:
        earlier.mkdir()
    except FileExistsError:
        raise InputError(
            f"`out`: {earlier} is in the way, of an earlier session whose replacement was killed; "
            "move or remove it"
        ) from None
    except OSError as error:
        raise InputError(f"`out`: {earlier} cannot be made ({error.strerror})") from None
    _move(out, earlier, left)


def _move(source: Path, target: Path, left: Collection[str]) -> None:
    """Move everything in a folder, but for what is left there."""
    for path in [path for path in source.iterdir() if path.name not in left]:
        path.rename(target / path.name)


def object_in(path: Path) -> dict[str, Any]:
    """The JSON object in a file; an empty one where there is none."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return tree if isinstance(tree, dict) else {}
