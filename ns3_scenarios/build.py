# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Builds the ns-3 models in ``cpp/`` against the installed ``ns3`` wheel, once.

Each folder of ``cpp/`` becomes a library or a program in the user's cache. Its name is a hash of
its inputs: the sources, the flags, the compiler, and the wheel's version and location. If the cache
cannot be written, a folder for temporary files takes its place.
"""

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import logging
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, Literal

from ns3_scenarios.errors import ChannelError
from testbed.system.files import write_whole
from testbed.system.folders import cache_folder

log = logging.getLogger(__name__)

Models = Literal["channel", "packets", "radio"]
"""Name of a folder of ``cpp/``."""

BUILD_S = 600.0
"""Time limit of a build in s; a build usually takes some seconds."""

_PREBUILT = Path(sys.prefix) / "share" / "uav-sfl-testbed"
"""Folder of models that were built for all users of a Python environment, as in the image that
`Dockerfile` describes."""

_SOURCES = Path(__file__).parent / "cpp"
_SHARED = "tcp"
"""Folder of headers that the others include."""
_PROGRAMS = {"radio"}
"""Folders that become programs; the others become libraries."""
_MODULES = {
    "channel": ("propagation", "mobility", "network", "core"),
    "packets": ("point-to-point", "internet", "network", "core"),
    "radio": (
        *("lte", "wifi", "spectrum", "propagation", "buildings", "antenna", "mobility"),
        *("point-to-point", "virtual-net-device", "applications", "internet", "traffic-control"),
        *("bridge", "csma", "fd-net-device", "stats", "network", "core"),
    ),
}
"""The ns-3 modules that each folder of models uses."""
_LIBRARY = ("-fPIC", "-shared")
_PROGRAM = (
    # ns-3's LTE needs its config-store, which needs symbols of GTK that no model uses. A program
    # binds symbols when they are used; ctypes binds all of them at once.
    *("-Wl,--unresolved-symbols=ignore-in-shared-libs", "-Wl,-z,lazy"),
)
_FLAGS = (
    # No FMA and no -march: results must not depend on compiler or machine, not even in the last
    # bit.
    "-ffp-contract=off",
    # As the wheel was built.
    *("-DNS3_LOG_ENABLE", "-DNS3_ASSERT_ENABLE"),
)


def library(models: Models = "channel") -> Path:
    """Path of the library or program of these models; builds it if there is none (some seconds).

    Safe to call from several processes at once: one builds, the others wait.

    Raises:
        ChannelError: g++ or the ns3 wheel is missing, neither the cache nor a folder for temporary
            files is writable, or the build failed.
    """
    compiler = shutil.which("g++")
    if compiler is None:
        raise ChannelError("g++ is missing (it builds the ns-3 models): apt-get install g++")
    version, wheel = _wheel()
    kind = _PROGRAM if models in _PROGRAMS else _LIBRARY
    command = _command(compiler, version, wheel, kind, _MODULES[models])
    folder = _SOURCES / models
    sources = sorted(folder.glob("*.cc"))
    key = hashlib.sha256()
    for part in (*command, version, _identity(compiler)):
        key.update(part.encode() + b"\0")
    for path in sorted([*folder.iterdir(), *(_SOURCES / _SHARED).iterdir()]):
        key.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    suffix = "" if models in _PROGRAMS else ".so"
    name = f"ns3-{models}-{key.hexdigest()[:24]}{suffix}"
    if (_PREBUILT / name).exists():
        return _PREBUILT / name
    try:
        return _cached(cache_folder() / name, command, sources)
    except OSError as error:
        cause = error
    try:
        return _cached(_temporary_cache() / name, command, sources)
    except OSError:
        raise ChannelError(f"the built ns-3 models cannot be kept in a cache: {cause}") from None


def _cached(built: Path, command: list[str], sources: list[Path]) -> Path:
    """The path `built`, once the file exists there.

    Raises:
        OSError: The folder is not writable.
    """
    built.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not built.exists():
        with (built.parent / "build.lock").open("w") as lock:
            _hold(lock)
            if not built.exists():
                _build(command, sources, built)
    return built


def _temporary_cache() -> Path:
    """A folder for temporary files that only this user can write.

    Raises:
        OSError: There is no such folder.
    """
    folder = Path(tempfile.gettempdir()) / f"uav-sfl-testbed-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.lstat()
    # Another user could have made it, to place a library there.
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o022:
        raise PermissionError(f"{folder} is not a folder of this user alone")
    return folder


def _wheel() -> tuple[str, Path]:
    """Version and folder of the installed wheel, found without importing it."""
    spec = importlib.util.find_spec("ns3")
    for folder in (spec and spec.submodule_search_locations) or ():
        if (Path(folder) / "include" / "ns3").is_dir():
            return importlib.metadata.version("ns3"), Path(folder)
    raise ChannelError("the ns3 package is missing: pip install ns3")


def _command(
    compiler: str, version: str, wheel: Path, kind: Sequence[str], modules: Sequence[str]
) -> list[str]:
    release = ".".join(version.split(".")[:2])
    return [
        *(compiler, "-std=c++20", "-O2", *kind, *_FLAGS),
        *("-isystem", str(wheel / "include"), "-x", "c++", "-"),
        *("-L", str(wheel / "lib64"), f"-Wl,-rpath,{wheel / 'lib64'}"),
        *(f"-l:libns3.{release.removeprefix('3.')}-{name}.so" for name in modules),
    ]


@cache
def _identity(compiler: str) -> str:
    command = [compiler, "-dumpfullversion", "-dumpmachine"]
    return _run(command).stdout


def _run(command: Sequence[str], **options: Any) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=BUILD_S, **options
        )
    except subprocess.TimeoutExpired:
        raise ChannelError(
            f"waited {BUILD_S:g} s for g++, which builds the ns-3 models, to end"
        ) from None


def _hold(lock: IO[str]) -> None:
    """Lock a file; wait while another process holds it."""
    deadline = time.monotonic() + BUILD_S
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise ChannelError(
                    f"waited {BUILD_S:g} s for another process that builds the ns-3 models: "
                    f"it holds {lock.name}"
                ) from None
            time.sleep(0.1)


def _build(command: list[str], sources: list[Path], target: Path) -> None:
    """Compile the sources as one unit, which parses ns-3's headers once; write the target
    atomically."""
    unit = "".join(f'#include "{path}"\n' for path in sources)

    log.debug("building %s, once", target)

    def compile_into(path: Path) -> None:
        made = _run([*command, "-o", str(path)], input=unit, env=os.environ | {"LC_ALL": "C"})
        if made.returncode:
            errors = [line for line in made.stderr.splitlines() if "error" in line]
            reason = (errors or made.stderr.splitlines() or ["no message"])[0]
            raise ChannelError(f"g++ cannot build the ns-3 models: {reason}")

    write_whole(target, compile_into)
