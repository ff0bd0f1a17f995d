# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Builds 5G-LENA, an NR module for ns-3, against the installed ``ns3`` wheel.

The module is on no package index, so the user gives its source. The library and the headers are
kept in the user's cache, under a name with a hash of the source and one of everything else on which
they depend. Sources are compiled in a few units, which parse ns-3's headers once each.
"""

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ns3_scenarios import build
from ns3_scenarios.errors import ChannelError
from testbed.core.errors import InputError, RunError
from testbed.core.progress import Progress, silent
from testbed.system import building
from testbed.system.files import is_intact, read_regular, write_json
from testbed.system.folders import cache_folder

RELEASE = "NR-v4.0"
"""The release of 5G-LENA whose interfaces ``cpp/nr`` uses."""
NS3_RELEASE = "3.44"
"""The release of ns-3 that it belongs to."""
GET = f"get 5G-LENA's release {RELEASE}, then `testbed radio build nr --source FOLDER`"
"""How to get the module, in words."""
UNITS = 12
UNIT_S = 3600.0
"""Time limit of a unit in s; on a fast machine it takes a minute."""
UNIT_BYTES = 3 << 29
"""Memory that the compiler needs for a unit."""
_UNUSED = re.compile(
    r"traffic-generators/|ftp-m1|scenario|node-distribution|radio-environment-map"
    r"|print-introspected|mimo-matrices-eigen|pm-search-maleki|-ai\b|gym|fast-exp"
)
"""Parts of the module that need other modules or Eigen, or that no cell of the testbed has."""
_FLAGS = ("-DNS3_ASSERT_ENABLE",)
"""With ns-3's log, of which nothing is shown, packets would take longer."""
_PLAIN_MATRICES = "model/nr-mimo-matrices-no-eigen.cc"
_MOST_BYTES = 64 << 20
_NOTES = "RELEASE_NOTES.md"
_LIBRARY = "libnr.so"
_ABOUT = "module.json"


@dataclass(frozen=True)
class Module:
    """A built module."""

    release: str
    """Its release, such as NR-v4.0."""
    source_sha256: str
    """Digest of its sources and headers."""
    recipe_sha256: str
    """Digest of everything else on which the library depends: compiler, options and wheel."""
    ns3: str
    """Version of the wheel."""
    compiler: str
    built: str
    """Time of the build in UTC, ISO 8601."""

    @property
    def folder(self) -> Path:
        """Folder of the module."""
        return _folder(self.recipe_sha256, self.source_sha256)

    @property
    def library(self) -> Path:
        """Path of the library."""
        return self.folder / _LIBRARY

    @property
    def include(self) -> Path:
        """Folder that has the headers in its folder ``ns3``."""
        return self.folder / "include"

    def to_json(self) -> dict[str, Any]:
        """The fields as a JSON object."""
        return asdict(self)


def find() -> Module | None:
    """The module of the installed wheel and compiler, the latest one if there are several; None:
    not built.

    Raises:
        RunError: The library was changed after the build.
    """
    try:
        recipe = _recipe()
    except (ChannelError, building.BuildError):
        return None
    modules = [_read(path) for path in _modules().glob(f"{recipe[:16]}-*/{_ABOUT}")]
    ours = [each for each in modules if each is not None and each.recipe_sha256 == recipe]
    if not ours:
        return None
    module = max(ours, key=lambda each: each.built)
    if not is_intact(module.library):
        raise RunError(
            f"{module.library}: was changed after the build; remove {module.folder} and "
            "build it again"
        )
    return module


def required() -> Module:
    """The module, for NR over packets.

    Raises:
        InputError: It is not built; the line has the commands to get it.
        RunError: The library was changed after the build.
    """
    if (found := find()) is None:
        raise InputError(
            f"radio.access: 'nr' over packets of ns-3 needs 5G-LENA, which is not built: {GET}"
        )
    return found


def missing() -> list[str]:
    """Missing requirements of a build, one line each, with how to install them."""
    lines = []
    try:
        building.compiler()
    except building.BuildError as error:
        lines.append(str(error))
    try:
        version, _ = build.wheel()
    except ChannelError as error:
        lines.append(str(error))
    else:
        if not f"{version}.".startswith(f"{NS3_RELEASE}."):
            lines.append(f"ns3 {NS3_RELEASE}, not {version}: pip install 'ns3=={NS3_RELEASE}.*'")
    return lines


def build_module(
    source: Path, *, jobs: int | None = None, progress: Progress = silent
) -> tuple[Module, bool]:
    """The module of this source, and whether it was built now; takes several minutes of two cores.

    Units of an earlier build that was interrupted are used again. Only one build runs at a time; a
    concurrent one waits.

    Args:
        source: The folder ``contrib/nr`` of the release.
        jobs: Number of parallel compilers; None: one per core, as far as the memory suffices.
        progress: Called with the progress.

    Raises:
        InputError: A requirement is missing, or the folder is not that release.
        RunError: The build failed.
    """
    if lines := missing():
        raise InputError("; ".join(lines))
    sources, headers = _files(source)
    contents = {path: read_regular(path, _MOST_BYTES) for path in (*sources, *headers)}
    try:
        digest, recipe = _digest(source, contents), _recipe()
        about = Module(
            release=RELEASE,
            source_sha256=digest,
            recipe_sha256=recipe,
            ns3=build.wheel()[0],
            compiler=building.identity(),
            built=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        _modules().mkdir(mode=0o700, parents=True, exist_ok=True)
        with (_modules() / "build.lock").open("w") as lock:
            progress("waiting for another build", 0, 1)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if is_there := (about.folder / _ABOUT).is_file() and is_intact(about.library):
                progress("found", 1, 1)
            else:
                _build(about.folder, sources, headers, contents, jobs or _jobs(), progress)
            # The latest one is used, also where it had been built before.
            write_json(about.folder / _ABOUT, about.to_json())
    except building.BuildError as error:
        raise RunError(f"5G-LENA cannot be built: {error}") from None
    except OSError as error:
        raise RunError(f"5G-LENA cannot be kept in the cache: {error}") from None
    return about, not is_there


def _modules() -> Path:
    return cache_folder() / "nr"


def _folder(recipe: str, source: str) -> Path:
    return _modules() / f"{recipe[:16]}-{source[:16]}"


def _read(path: Path) -> Module | None:
    try:
        return Module(**json.loads(read_regular(path, _MOST_BYTES)))
    except (OSError, ValueError, TypeError):
        return None


def _files(source: Path) -> tuple[list[Path], list[Path]]:
    """The sources to compile and all headers of the module.

    Raises:
        InputError: The folder is not that of the release.
    """
    wanted = f"must be the folder contrib/nr of 5G-LENA's release {RELEASE}"
    if not source.is_dir():
        raise InputError(f"source: {wanted}; there is no folder {source}")
    lists = source / "CMakeLists.txt"
    try:
        notes = read_regular(source / _NOTES, _MOST_BYTES).decode(errors="replace")
        text = read_regular(lists, _MOST_BYTES).decode(errors="replace")
        block = text[text.index("set(source_files") : text.index("set(header_files")]
    except (OSError, ValueError):
        inner = source / "contrib" / "nr"
        hint = f"; it may be {inner}" if (inner / _NOTES).is_file() else ""
        raise InputError(f"source: {wanted}; {source} has other files{hint}") from None
    releases = re.findall(r"^Release (NR-v[\w.-]+)", notes, re.MULTILINE)
    if releases[:1] != [RELEASE]:
        found = f"is {releases[0]}" if releases else "names no release in its notes"
        raise InputError(f"source: {wanted}; {source} {found}")
    names = [name for name in re.findall(r"[\w/.-]+\.cc\b", block) if not _UNUSED.search(name)]
    sources = [source / name for name in dict.fromkeys((*names, _PLAIN_MATRICES))]
    headers = [
        path
        for pattern in ("model/**/*.h", "helper/**/*.h", "utils/**/*.h", "utils/*.hpp")
        for path in sorted(source.glob(pattern))
    ]
    if absent := [path for path in sources if not path.is_file()]:
        raise InputError(f"source: {wanted}; {absent[0]} is missing")
    return sources, headers


def _digest(source: Path, contents: dict[Path, bytes]) -> str:
    digest = hashlib.sha256()
    for path in sorted(contents):
        digest.update(f"{path.relative_to(source)}\0{len(contents[path])}\0".encode())
        digest.update(contents[path])
    return digest.hexdigest()


def _recipe() -> str:
    """Digest of all that the library depends on, in addition to its source.

    Raises:
        BuildError: There is no compiler.
        ChannelError: There is no wheel.
    """
    version, _ = build.wheel()
    parts = [building.identity(), version, *building.FLAGS, *_FLAGS, str(UNITS), _UNUSED.pattern]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _jobs() -> int:
    pages, size = (os.sysconf(name) for name in ("SC_AVPHYS_PAGES", "SC_PAGE_SIZE"))
    return max(1, min(len(os.sched_getaffinity(0)), pages * size // UNIT_BYTES))


def _units(sources: Iterable[Path], contents: dict[Path, bytes]) -> list[list[Path]]:
    """The sources of each unit: large ones first, each to the unit that is the smallest so far."""
    units: list[list[Path]] = [[] for _ in range(UNITS)]
    sizes = [0] * UNITS
    for path in sorted(sources, key=lambda path: (-len(contents[path]), path)):
        least = sizes.index(min(sizes))
        units[least].append(path)
        sizes[least] += len(contents[path]) + 20_000  # for the headers that it is the first to use
    return units


def _build(
    folder: Path,
    sources: Sequence[Path],
    headers: Sequence[Path],
    contents: dict[Path, bytes],
    jobs: int,
    progress: Progress,
) -> None:
    """Fill the folder with the headers and the library; whole units of an earlier build stay."""
    include = folder / "include" / "ns3"
    include.mkdir(parents=True, exist_ok=True)
    # Sources lie beside the headers while they are compiled: what is compiled is what was hashed,
    # and no header is found twice.
    for path, content in contents.items():
        (include / path.name).write_bytes(content)
    # ns-3's build makes this one, which some of the module's headers include.
    names = sorted({path.name for path in headers if not _UNUSED.search(path.as_posix())})
    (include / "nr-module.h").write_text(
        "#pragma once\n"
        '#include "ns3/three-gpp-propagation-loss-model.h"\n'
        + "".join(f'#include "ns3/{name}"\n' for name in names if name.endswith(".h"))
    )
    _, wheel = build.wheel()
    command = [
        *(building.compiler(), *building.FLAGS, *_FLAGS, "-fPIC", "-w"),
        *("-I", str(include.parent), "-isystem", str(wheel / "include"), "-c", "-x", "c++", "-"),
    ]
    units = _units(sources, contents)
    objects = [folder / f"unit{i}.o" for i in range(UNITS)]
    todo = [i for i in range(UNITS) if not is_intact(objects[i])]
    progress("compiling 5G-LENA", UNITS - len(todo), UNITS)
    with ThreadPoolExecutor(jobs) as pool:
        tasks = [pool.submit(_compile, command, i, units[i], include, objects[i]) for i in todo]
        try:
            for left, task in enumerate(as_completed(tasks), 1 - len(todo)):
                task.result()
                progress("compiling 5G-LENA", UNITS + left, UNITS)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            building.stop()
            raise
    link = [building.compiler(), "-shared", *map(str, objects)]
    building.compile_whole(link, "", folder / _LIBRARY, UNIT_S)
    for path in (*objects, *include.glob("*.cc")):
        path.unlink()


def _compile(
    command: Sequence[str], number: int, unit: Sequence[Path], folder: Path, target: Path
) -> None:
    """Compile the sources as one unit, each with a name of its own for ns-3's static logger."""
    text = "".join(
        f'#undef g_log\n#define g_log g_log_{number}_{i}\n#include "{folder / path.name}"\n'
        # ns-3's own default, which sources replace.
        "#undef NS_LOG_APPEND_CONTEXT\n#define NS_LOG_APPEND_CONTEXT\n"
        for i, path in enumerate(unit)
    )
    building.compile_whole(command, text, target, UNIT_S)
