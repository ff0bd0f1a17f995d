# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Leftovers of dead runs on this machine: found by their mark, and removed.

The mark of a run identifies the process that runs it by boot, PID namespace, PID and start time, so
that it is unique. It is in the environment of the run's helper processes, in a label of its
containers, and in the name of a note in the user's cache that lists its temporary files. Objects
with the mark of a living process, of a process that cannot be seen from here, or without a mark are
not touched.
"""

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import signal
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from testbed.system import inside
from testbed.system.folders import cache_folder
from testbed.system.machine import boot_id

VARIABLE = "UAV_SFL_TESTBED_RUN"
"""Environment variable with the mark, of a run's helper processes."""
_RUNNING = "uav-sfl-testbed/"
"""Prefix of an abstract unix address that every emulation holds until its process ends."""
_SIGN = re.compile(rf"@({_RUNNING}([1-9][0-9]{{0,9}})/[0-9a-f]{{8}})", re.ASCII)
"""Such an address in /proc/net/unix, with the PID of its process. Any user can bind any address."""
_MARK = re.compile(r"([0-9a-f]{32})-([0-9]+)-([1-9][0-9]{0,9})-([0-9]+)(?:\..*)?", re.ASCII)
_CREDENTIALS = struct.Struct("3i")
"""PID, user and group of the other end of a unix socket."""
_PROC = Path("/proc")

_lock = threading.Lock()
_noted: list[tuple[str, str]] = []
# A forked process does not own its parent's files.
os.register_at_fork(after_in_child=_noted.clear)


@dataclass(frozen=True)
class Leftover:
    """An object that a dead run has left."""

    what: str
    """Description in words."""
    remove: Callable[[], object]
    """Function that removes the object; raises `OSError` if this fails."""


def mark() -> str:
    """The mark of this process."""
    return _mark(os.getpid())


@cache
def _mark(pid: int) -> str:
    if (told := inside.guest_settings()) is not None:
        return f"{told['mark']}.guest-{pid}"
    return f"{_boot()}-{_pid_namespace()}-{pid}-{_started(pid)}"


def marked() -> dict[str, str]:
    """The environment of a helper process: that of this process, and the mark."""
    return {**os.environ, VARIABLE: mark()}


def alive(mark: str) -> bool:
    """Whether the process of a mark lives; also true if this cannot be determined."""
    if (parts := _MARK.fullmatch(mark)) is None:
        return True
    boot, namespace, pid, started = parts.groups()
    if inside.guest_settings() is not None:
        return True
    if boot != _boot():
        return False
    if namespace != _pid_namespace() or (now := _started(int(pid))) == started:
        return True
    # With `hidepid`, other users' processes are not seen, and neither is the first process.
    return now is None and _started(1) is None


def stopped() -> list[str]:
    """The names of this run's processes that a signal has stopped; see `linux.name_process`."""
    found = []
    for stat in _PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            halted = stat.read_text().rpartition(")")[2].split()[0] == "T"
            if halted and _mark_of(int(stat.parent.name)) == mark():
                words = (stat.parent / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
                found.append(words[-1].decode(errors="replace"))
    return sorted(found)


def _boot() -> str:
    return boot_id().replace("-", "")


def _pid_namespace() -> str:
    return str((_PROC / "self/ns/pid").readlink()).strip("pid:[]")


def _started(pid: int) -> str | None:
    """Start time of a process in clock ticks; None if it has ended."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else fields[19]


# Concurrent emulations.


@contextlib.contextmanager
def announced() -> Iterator[None]:
    """Make this process visible to `running` within the context."""
    with socket.socket(socket.AF_UNIX) as sign:
        sign.bind(f"\0{_RUNNING}{os.getpid()}/{secrets.token_hex(4)}")
        sign.listen()  # The kernel tells those who connect whose it is.
        yield


def running() -> list[int]:
    """PIDs of the processes of this user and of root that currently emulate on this machine.

    Those in containers with a separate network are not found. Other users could bind such addresses
    without emulating anything, so theirs do not count.
    """
    found = set()
    for line in (_PROC / "net/unix").read_text(errors="replace").splitlines():
        sign = _SIGN.fullmatch(line.rpartition(" ")[2])
        if sign is not None and _owner(sign[1]) in {0, os.geteuid()}:
            found.add(int(sign[2]))
    return sorted(found)


def _owner(address: str) -> int | None:
    """The user who listens on an abstract unix address; None if it accepts no connections."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.setblocking(False)
        try:
            asking.connect(f"\0{address}")
            told = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return None
    _, user, _ = _CREDENTIALS.unpack(told)
    return int(user)


# Temporary files.


@contextlib.contextmanager
def noted(path: Path, unless: str = "") -> Iterator[Path]:
    """Note a file or folder that will be created and must not outlive this process.

    It must be removed or renamed by the end of the context.

    Args:
        path: The file or folder.
        unless: Pattern for `Path.glob`: if it matches in the folder, the folder is kept.
    """
    entry = str(path.absolute()), unless
    _disown(entry[0])
    _note(lambda: _noted.append(entry))
    try:
        yield path
    finally:
        _note(lambda: _noted.remove(entry))


@contextlib.contextmanager
def temporary_folder(purpose: str, within: str | None = None) -> Iterator[Path]:
    """A private folder, removed at the end of the context, or by `find` if the process is killed.

    Args:
        purpose: Part of the folder's name.
        within: Parent folder; None: the one for temporary files.
    """
    name = f"testbed-{purpose}-{secrets.token_hex(6)}"
    with noted(Path(within or tempfile.gettempdir()) / name) as folder:
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _note(change: Callable[[], object]) -> None:
    with _lock:
        change()
        # If the note cannot be written, the file itself is still useful.
        with contextlib.suppress(OSError):
            _write(notes() / mark(), _noted)


def _write(note: Path, entries: Sequence[tuple[str, str]]) -> None:
    if not entries:
        note.unlink(missing_ok=True)
        return
    note.parent.mkdir(parents=True, exist_ok=True)
    # `write_whole` would note its own temporary file, here.
    fresh = note.with_name(f"{note.name}.fresh")
    fresh.write_text(json.dumps(entries))
    fresh.replace(note)


def _read(note: Path) -> list[tuple[str, str]]:
    try:
        return [(path, unless) for path, unless in json.loads(note.read_text())]
    except (OSError, ValueError):
        return []


def _disown(path: str) -> None:
    """Remove a path that will be reused from the notes of dead processes."""
    if inside.guest_settings() is not None:
        # In virtual time, dead processes are unknown, and the host's notes must not be read.
        return
    for note in _within(notes()):
        entries = _read(note)
        others = [entry for entry in entries if entry[0] != path]
        if len(others) < len(entries) and not alive(note.name):
            with contextlib.suppress(OSError):
                _write(note, others)


def notes() -> Path:
    """The folder of the notes."""
    return cache_folder() / "temporary"


# Search for leftovers.


def find() -> list[Leftover]:
    """Processes, then files, of dead runs. For containers see `testbed.runtimes.docker`."""
    if inside.guest_settings() is not None:
        return []
    return [*_processes(), *_files()]


def _processes() -> Iterator[Leftover]:
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        pid = int(folder.name)
        mark = _mark_of(pid)
        if mark is not None and not alive(mark):
            yield Leftover(f"process {pid} of run {mark}", partial(_end, pid, mark))


def _mark_of(pid: int) -> str | None:
    """The mark in a process's environment, if it lives and may be read."""
    try:
        variables = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    for variable in variables:
        name, _, mark = variable.decode(errors="replace").partition("=")
        if name == VARIABLE and _started(pid) is not None:
            return mark
    return None


def _end(pid: int, mark: str) -> None:
    # It may have ended before: the first process of a PID namespace ends all others.
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            # The PID may have been reused.
            if _mark_of(pid) == mark:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def _files() -> Iterator[Leftover]:
    for note in _within(notes()):
        if alive(note.name):
            continue
        paths = [
            path
            for path, unless in _read(note)
            if os.path.lexists(path) and not (unless and any(Path(path).glob(unless)))
        ]
        for path in paths:
            yield Leftover(path, partial(_remove, Path(path)))
        yield Leftover(f"note {note.name}", partial(_forget, note, paths))
    yield from _half_built()


def _half_built() -> Iterator[Leftover]:
    """Folders of interrupted ns-3 builds; a running build holds a lock."""
    found = [path for path in _within(cache_folder()) if path.name.startswith("tmp")]
    with contextlib.suppress(OSError), (cache_folder() / "build.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for path in found:
            yield Leftover(str(path), partial(_remove, path))


def _within(folder: Path) -> list[Path]:
    """The entries of a folder; empty if it does not exist or is not readable."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _forget(note: Path, paths: Sequence[str]) -> None:
    """Remove a note, unless a file that it names still exists: the next clean-up retries."""
    if not any(map(os.path.lexists, paths)):
        note.unlink(missing_ok=True)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        # Ending processes may still write into it.
        for _ in range(10):
            with contextlib.suppress(OSError):
                return shutil.rmtree(path)
            time.sleep(0.1)
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def remove(found: list[Leftover]) -> Mapping[str, str]:
    """Remove leftovers; returns the error message for each description, or an empty text."""
    done = {}
    for leftover in found:
        try:
            leftover.remove()
            done[leftover.what] = ""
        except OSError as error:
            done[leftover.what] = str(error)
    return done
