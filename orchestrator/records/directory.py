# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The folders of runs and sessions: how they are reserved, filled, and found again after a crash.

A run with `--out DIR` fills `.DIR.part` next to it and renames it at the end. During the run it
holds a lock on the file `lock` in that folder, which the kernel releases however the process ends.
A part that is not locked was therefore left by a killed run, and `--resume` resumes it. A part with
a complete run, which could not be renamed, still has its checkpoint, and `--resume` puts it into
place.

Symbolic links are never followed: their targets must not be filled, emptied or removed.
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
from testbed.core.errors import InputError, RunError
from testbed.core.trees import differing
from testbed.system.files import check_no_link, write_json
from testbed.system.leftovers import temporary_folder

MANIFEST = "manifest.json"
SCENARIO = "scenario.json"
LOCK = "lock"


def part_of(out: Path) -> Path:
    """The folder that a run with this `--out` fills."""
    return out.parent / f".{out.name}.part"


def abandoned(parent: Path) -> list[Path]:
    """Folders in `parent` that killed runs have left, i.e. that no process is filling."""
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
    keeps_uavs: bool = False,
    finish: Callable[[Path], object] = lambda folder: None,
) -> Iterator[Path]:
    """A folder to fill, which becomes `out` when the context ends and it contains a run.

    Args:
        out: Run directory; None: a temporary folder.
        scenario: Scenario of the run.
        overwrite: Whether an earlier run in `out` is replaced at the end.
        resume: Whether to resume a run of the scenario that was killed or failed.
        keeps_uavs: Whether its checkpoint has what UAVs keep from round to round.
        finish: Called with `out` once it exists, e.g. to write a report; also after a failed run.

    Raises:
        InputError: `out` is not free, or the run to resume is complete or has another scenario.
    """
    if out is None:
        if resume:
            raise InputError("`resume`: needs `out`, the directory to resume")
        with temporary_folder("run") as temporary:
            yield temporary
        return
    options = {"overwrite": overwrite, "resume": resume, "keeps_uavs": keeps_uavs}
    with claimed(out, scenario, **options) as part:
        if not resume:
            _clear(out, part, overwrite)
        write_json(part / SCENARIO, scenario.model_dump(mode="json"))
        try:
            with _stays(part):
                yield part
        finally:
            if _is_there(part) and _settle(out, part):
                finish(out)


@contextlib.contextmanager
def claimed(
    out: Path,
    scenario: Scenario,
    *,
    overwrite: bool = False,
    resume: bool = False,
    keeps_uavs: bool = False,
) -> Iterator[Path]:
    """The part of `out`, locked against other runs; it is removed at the end if it is empty.

    Used by `run_folder`, and by hosts of virtual time: locks of a guest are only visible in that
    guest.

    Raises:
        InputError: See `run_folder`.
    """
    if resume and overwrite:
        raise InputError("`resume`: does not go together with `overwrite`")
    part = part_of(out)
    _check_own(out, part)
    made = [path for path in part.parents if not path.exists()]
    if resume:
        if scenario.workload.keeps_feedback and not keeps_uavs:
            raise InputError(
                "workload.codecs.error_feedback: a run cannot be resumed with it, because what the "
                "encoding of adapters omitted is known only to the UAVs"
            )
        _find(out, part, scenario)
    else:
        _check_free(out, overwrite)
    with _locked(out, part):
        try:
            yield part
        except RunError as error:
            rounds = Checkpoint(part).rounds
            if rounds and "status" not in object_in(part / MANIFEST):
                kept = f"{rounds} round{'s' * (rounds > 1)}"
                raise RunError(f"{error}; {kept} kept: `resume` goes on after them") from None
            raise
        finally:
            # The run may have failed before it filled or resumed the folder.
            if _is_there(part) and (resume or "status" not in object_in(part / MANIFEST)):
                _settle(out, part)
            with contextlib.suppress(OSError):  # They contain a run.
                for path in made:
                    path.rmdir()


@contextlib.contextmanager
def _stays(folder: Path) -> Iterator[None]:
    """Name the cause if the folder that is being filled is removed.

    Raises:
        RunError: Something failed, and the folder is no longer there.
    """
    try:
        yield
    except OSError:
        if _is_there(folder):
            raise
        raise RunError(
            f"{folder}: this folder, which was being filled, was removed or renamed; start again"
        ) from None


def _is_there(folder: Path) -> bool:
    """Whether a folder exists; a guest remembers one that was removed on the host, but reads it
    again."""
    try:
        next(folder.iterdir(), None)
    except OSError:
        return False
    return True


def _check_own(out: Path, part: Path) -> None:
    """Refuse links, and a part that no run has made.

    Raises:
        InputError: A path cannot be used; the message names it.
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
            f"`out`: {part}, which the run would fill, exists already and was not made by a run "
            "of this user; remove it, or choose another name"
        )


def _find(out: Path, part: Path, scenario: Scenario) -> None:
    """Check that there is a run to resume; move a failed run back to its part."""
    if out.exists():
        if object_in(out / MANIFEST).get("status") != "failed":
            raise InputError(f"`resume`: {out} holds no run that failed or was killed")
        if part.exists():
            raise InputError(f"`resume`: both {out} and {part} exist; remove one of them")
        _check_same(out, scenario)
        out.rename(part)
    elif part.exists():
        if is_locked(part):
            raise InputError(f"`out`: {out} is being written by another run")
        _check_same(part, scenario)
    else:
        raise InputError(f"`resume`: {out} does not exist: there is no run to resume")


def _check_same(folder: Path, scenario: Scenario) -> None:
    """Check that the run to resume has the same scenario.

    Raises:
        InputError: A key differs; the message names it.
    """
    path = folder / SCENARIO
    if not path.is_file():
        return  # killed before its manifest was written
    # Validated first, so that new keys with defaults make no difference.
    began = validate(object_in(path), str(path)).model_dump(mode="json")
    now = scenario.model_dump(mode="json")
    if now["emulation"]["dilation"] == "auto":
        began["emulation"]["dilation"] = "auto"  # the manifest has the chosen number
    for key, (before, after) in differing([began, now]).items():
        raise InputError(f"`resume`: {key} was {before!r} when the run began, and is {after!r} now")


def _check_free(out: Path, overwrite: bool) -> None:
    is_empty = out.is_dir() and not any(out.iterdir())
    if out.exists() and not is_empty and not (overwrite and (out / MANIFEST).is_file()):
        remedy = "or pass `overwrite`" if (out / MANIFEST).is_file() else "it holds no run"
        raise InputError(f"`out`: {out} exists already; choose another name, {remedy}")


@contextlib.contextmanager
def _locked(out: Path, part: Path) -> Iterator[None]:
    """Hold the lock of the part.

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
            # Another run may have ended and removed this file since it was opened.
            same = os.path.samestat(os.fstat(lock.fileno()), (part / LOCK).stat())
        except (BlockingIOError, FileNotFoundError):
            same = False
        if not same:
            raise InputError(f"`out`: {out} is being written by another run")
        yield


def _clear(out: Path, part: Path, overwrite: bool) -> None:
    """Empty a part of an earlier run, unless it contains a run, or rounds without `overwrite`."""
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
    _remove(part, {LOCK})


def _settle(out: Path, part: Path) -> bool:
    """Rename the part if it contains a run; otherwise remove it, unless there are rounds to resume.

    Returns:
        Whether it contains a run.
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
    # Only once the run is in place: until then it is resumed from them.
    if status == "complete":
        shutil.rmtree(out / FOLDER, ignore_errors=True)
    shutil.rmtree(out / replaced.name, ignore_errors=True)
    (out / LOCK).unlink()
    return True


@contextlib.contextmanager
def session_folder(
    out: Path, may_be_there: str, *, overwrite: bool = False
) -> Iterator[Callable[[], None]]:
    """The folder of a session, which is filled in place so that it can be read during the session.

    Earlier contents are moved aside until the session has started, and restored if it never starts.
    Like a run's folder, it is locked during the session; a killed session leaves one that is not
    locked.

    Args:
        out: Folder to create.
        may_be_there: File that may already be in it: the socket of virtual time's host.
        overwrite: Whether an earlier session in `out` is replaced.

    Yields:
        A function to call once the session has begun.

    Raises:
        InputError: `out` is not free, or cannot be created.
    """
    check_no_link(out)
    left = {may_be_there, LOCK}
    free = not out.exists() or (out.is_dir() and {path.name for path in out.iterdir()} <= left)
    is_session = object_in(out / MANIFEST).get("kind") == "session"
    if not free and not (is_session and overwrite):
        remedy = "or pass `overwrite`" if is_session else "it holds no session"
        raise InputError(f"`out`: {out} exists already; choose another name, {remedy}")
    earlier, has_begun = out.with_name(f".{out.name}.earlier"), False

    def begun() -> None:
        nonlocal has_begun
        has_begun = True
        if not free:
            shutil.rmtree(earlier, ignore_errors=True)

    with _locked(out, out), _stays(out):
        try:
            if not free:
                _put_aside(out, earlier, left)
            try:
                yield begun
            finally:
                if not has_begun:
                    _remove(out, left)
                    if not free:
                        _move(earlier, out, left)
                        earlier.rmdir()
        finally:
            (out / LOCK).unlink()
            with contextlib.suppress(OSError):  # It contains a session, or a host's socket.
                out.rmdir()


def _remove(folder: Path, left: Collection[str]) -> None:
    """Remove everything in a folder except for the files in `left`."""
    for path in folder.iterdir():
        if path.name not in left:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _put_aside(out: Path, earlier: Path, left: Collection[str]) -> None:
    try:
        earlier.mkdir()
    except FileExistsError:
        raise InputError(
            f"`out`: {earlier} exists; it is an earlier session whose replacement was killed; "
            "move or remove it"
        ) from None
    except OSError as error:
        raise InputError(f"`out`: {earlier} cannot be created ({error.strerror})") from None
    _move(out, earlier, left)


def _move(source: Path, target: Path, left: Collection[str]) -> None:
    """Move everything in a folder except for the files in `left`."""
    for path in [path for path in source.iterdir() if path.name not in left]:
        path.rename(target / path.name)


def object_in(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if there is no file."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return tree if isinstance(tree, dict) else {}
