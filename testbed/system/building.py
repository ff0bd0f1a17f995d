# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Builds C++ sources of the testbed, once per machine and user.

A result is kept in the user's cache, under a name with a hash of its inputs: the sources, the flags
and the compiler. It ends with a digest of the rest of the file, which loaders ignore; a file with
another digest, for example after a power failure, is built again. If the cache cannot be written, a
folder for temporary files takes its place.
"""

import atexit
import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import IO

from testbed.system import linux
from testbed.system.files import is_intact, sealed, write_whole
from testbed.system.folders import cache_folder

log = logging.getLogger(__name__)

SECONDS = {"engine": 3, "ns3-channel": 5, "ns3-packets": 8, "ns3-radio": 30, "ns3-radio-nr": 40}
"""About how long the builds take, in s, by the first part of the file's name."""
UNUSED_S = 30 * 86400.0
"""Time in s after which a build that was not used is removed when another one is made."""
BUILD_S = 600.0
"""Time limit of a build in s; a build usually takes some seconds."""

PREBUILT = Path(sys.prefix) / "share" / "uav-sfl-testbed"
"""Folder of what was built for all users of a Python environment, as in the image that `Dockerfile`
describes."""

FLAGS = ("-std=c++20", "-O2", "-ffp-contract=off")
"""No FMA and no -march: results must not depend on compiler or machine, not in the last bit."""
LIBRARY = ("-fPIC", "-shared")
NO_SPACE = os.strerror(errno.ENOSPC)
_RUNNING: set["subprocess.Popen[str]"] = set()
"""Compilers that run."""


class BuildError(Exception):
    """A build failed; the message is one line with the cause, which continues a sentence about what
    was built."""


def compiler() -> str:
    """Path of g++.

    Raises:
        BuildError: There is none.
    """
    if (found := shutil.which("g++")) is None:
        raise BuildError("g++ is missing: apt-get install g++")
    return found


def built(
    name: str,
    sources: Sequence[Path],
    inputs: Sequence[Path],
    options: Sequence[str],
    *,
    key: str = "",
    suffix: str = ".so",
) -> Path:
    """Path of what g++ makes of these sources, as one unit; builds it if there is none.

    Safe to call from several processes at once: one builds, the others wait.

    Args:
        name: First part of the file's name.
        sources: Files to compile.
        inputs: All files on which the result depends.
        options: Options of g++, in addition to the standard input as the source.
        key: Further inputs on which the result depends.
        suffix: Last part of the file's name.

    Raises:
        BuildError: g++ is missing, neither the cache nor a folder for temporary files is writable,
            or the build failed.
    """
    command = [compiler(), *FLAGS, *options]
    digest = hashlib.sha256()
    for part in (*command, key, _identity(command[0])):
        digest.update(part.encode() + b"\0")
    for path in sorted(inputs):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    file = f"{name}-{digest.hexdigest()[:24]}{suffix}"
    if is_intact(PREBUILT / file):
        return PREBUILT / file
    try:
        return _cached(cache_folder() / file, command, sources)
    except OSError as error:
        cause = error
    try:
        return _cached(_temporary_cache() / file, command, sources)
    except OSError:
        raise BuildError(f"the result cannot be kept in a cache: {cause}") from None


def _cached(built: Path, command: Sequence[str], sources: Sequence[Path]) -> Path:
    """The path `built`, once the whole file is there.

    Raises:
        OSError: The folder is not writable, or full.
    """
    built.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_intact(built):
        with (built.parent / "build.lock").open("w") as lock:
            _hold(lock)
            if not is_intact(built):
                name = built.name.rpartition("-")[0]
                log.info("compiling %s, once: about %d s", name, SECONDS.get(name, 10))
                _build(command, sources, built)
                _remove_unused(built.parent, f"{name}-*")
    if time.time() - built.stat().st_mtime > UNUSED_S / 30:
        os.utime(built)
    return built


def _remove_unused(folder: Path, pattern: str) -> None:
    """Remove builds that were not used for `UNUSED_S`, and machine code of earlier versions."""
    for path in (*folder.glob(pattern), *folder.glob("machine-code-*")):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > UNUSED_S:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


@cache
def _temporary_cache() -> Path:
    """A folder for temporary files that only this user can write.

    If another user has made one of that name, e.g. to place a library there, it is one of this
    process, which is removed at its end.

    Raises:
        OSError: Temporary files cannot be written.
    """
    folder = Path(tempfile.gettempdir()) / f"uav-sfl-testbed-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.lstat()
    if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o022:
        return folder
    private = tempfile.mkdtemp(prefix=f"{folder.name}-")
    atexit.register(_remove_in, os.getpid(), private)
    return Path(private)


def _remove_in(process: int, folder: str) -> None:
    """Remove a folder, but not in a child process."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


@cache
def _identity(compiler: str) -> str:
    command = [compiler, "-dumpfullversion", "-dumpmachine"]
    return _run(command).stdout


def identity() -> str:
    """Version and target of g++.

    Raises:
        BuildError: There is none.
    """
    return " ".join(_identity(compiler()).split())


def _run(
    command: Sequence[str], text: str = "", limit_s: float | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a compiler, which ends with this process, and its own processes with it."""
    limit_s = BUILD_S if limit_s is None else limit_s
    with subprocess.Popen(
        linux.ending_together(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"LC_ALL": "C"},
        start_new_session=True,
        preexec_fn=lambda: linux.signal_at_parents_death(signal.SIGTERM),
    ) as process:
        _RUNNING.add(process)
        try:
            out, err = process.communicate(text, limit_s)
        except subprocess.TimeoutExpired:
            raise BuildError(f"waited {limit_s:g} s for g++ to end") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            _RUNNING.discard(process)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def stop() -> None:
    """End all compilers that other threads of this process run."""
    for process in tuple(_RUNNING):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _hold(lock: IO[str]) -> None:
    """Lock a file; wait while another process holds it."""
    deadline = time.monotonic() + BUILD_S
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise BuildError(
                    f"waited {BUILD_S:g} s for another process that builds: it holds {lock.name}"
                ) from None
            time.sleep(0.1)


def _build(command: Sequence[str], sources: Sequence[Path], target: Path) -> None:
    """Compile the sources as one unit, which parses common headers once; write the target
    atomically."""
    unit = "".join(f'#include "{path}"\n' for path in sources)
    compile_whole(command, unit, target)


def compile_whole(
    command: Sequence[str], unit: str, target: Path, limit_s: float | None = None
) -> None:
    """Compile a unit, given as text, or link; write the target atomically, with its digest.

    Raises:
        BuildError: g++ failed or took longer than `limit_s`; None: than `BUILD_S`.
        OSError: The target cannot be written.
    """

    def compile_into(path: Path) -> None:
        made = _run([*command, "-o", str(path)], unit, limit_s)
        if made.returncode:
            said = made.stderr.splitlines()
            if any(NO_SPACE in line and tempfile.gettempdir() not in line for line in said):
                raise OSError(errno.ENOSPC, NO_SPACE)  # The linker does not say where.
            errors = [line for line in said if "error" in line]
            reason = (errors or said or ["no message"])[0]
            raise BuildError(f"g++ fails: {reason}")
        path.write_bytes(sealed(path.read_bytes()))  # The mode stays.

    write_whole(target, compile_into)
