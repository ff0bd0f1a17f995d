# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""User-Mode Linux: built once from the recipe in `recipe/` and kept in the user's cache.

A kernel's folder is named by its version and a digest of the recipe. It contains the program, its
complete configuration, the log of its build, and `kernel.json` with the digests of all these; that
file is written last, so a folder without it is incomplete.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from testbed.core.errors import InputError, RunError
from testbed.core.progress import Progress, silent
from testbed.system import leftovers, linux
from testbed.system.files import write_json
from testbed.system.folders import cache_folder

RECIPE = Path(__file__).parent / "recipe"
CONFIG = RECIPE / "kernel.config"
"""Settings in addition to `make allnoconfig`."""
DEBIAN_SOURCES = (Path("/usr/src/linux-source-6.12.tar.xz"),)
"""Paths of the source in Debian's packages, the preferred one first."""
TOOLS = {
    "tar": "tar",
    "xz": "xz-utils",
    "patch": "patch",
    "make": "make",
    "gcc": "gcc",
    "ld": "binutils",
    "flex": "flex",
    "bison": "bison",
    "bc": "bc",
}
"""Programs that the build needs, with their Debian packages."""
SOURCE_PACKAGE = "linux-source-6.12"
COMPILED = 760
"""Approximate number of compiled files, for the progress only."""
UNUSED = (
    *("Documentation/*.rst", "Documentation/*.yaml"),
    *("*.dts", "*.dtsi", "sound/*.[ch]", "tools/testing", "tools/perf", "samples/*.[ch]"),
    *(f"arch/{name}/*.[chS]" for name in ("alpha", "arc", "arm", "arm64", "csky", "hexagon")),
    *(f"arch/{name}/*.[chS]" for name in ("loongarch", "m68k", "microblaze", "mips", "nios2")),
    *(f"arch/{name}/*.[chS]" for name in ("openrisc", "parisc", "powerpc", "riscv", "s390")),
    *(f"arch/{name}/*.[chS]" for name in ("sh", "sparc", "xtensa")),
    *(f"drivers/{name}/*.[ch]" for name in ("gpu", "net/ethernet", "net/wireless", "media")),
    *(f"drivers/{name}/*.[ch]" for name in ("staging", "scsi", "infiniband", "iio", "usb")),
)
"""Parts of the source that this kernel does not need: omitting them halves the unpacking."""
_ENVIRONMENT = {
    "LC_ALL": "C",
    # Makes builds reproducible: equal source, recipe and compiler give equal bytes.
    "KBUILD_BUILD_TIMESTAMP": "2026-01-01",
    "KBUILD_BUILD_USER": "testbed",
    "KBUILD_BUILD_HOST": "testbed",
}


@dataclass(frozen=True)
class Kernel:
    """A built kernel."""

    version: str
    """Version of the source, such as 6.12.57."""
    source_sha256: str
    """Digest of the source archive."""
    recipe_sha256: str
    """Digest of the recipe's configuration and patches."""
    config_sha256: str
    """Digest of the complete configuration."""
    patches_sha256: dict[str, str]
    """Digest of each patch, by name."""
    program_sha256: str
    compiler: str
    built: str
    """Time of the build in UTC, ISO 8601."""

    @property
    def folder(self) -> Path:
        """Folder of the kernel."""
        return kernels() / f"{self.version}-{self.recipe_sha256[:16]}"

    @property
    def program(self) -> Path:
        """Path of the kernel program."""
        return self.folder / "linux"

    def to_json(self) -> dict[str, Any]:
        """The fields as a JSON object."""
        return asdict(self)


def kernels() -> Path:
    """The folder of all kernels."""
    return cache_folder() / "kernels"


def patches() -> list[Path]:
    """The patches of the recipe, in the order in which they are applied."""
    return sorted(RECIPE.glob("*.patch"))


def recipe_sha256() -> str:
    """Digest of the configuration and the patches."""
    digest = hashlib.sha256()
    for path in (CONFIG, *patches()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update(repr(sorted(_ENVIRONMENT.items())).encode())
    return digest.hexdigest()


def wanted(text: str) -> dict[str, str]:
    """The settings of a configuration: option names and their values as text."""
    settings = {}
    for line in text.splitlines():
        if line.startswith("CONFIG_"):
            name, _, value = line.partition("=")
            settings[name] = value
    return settings


def find() -> Kernel | None:
    """The kernel of the current recipe, the latest one if there are several; None: not built.

    Raises:
        RunError: The program was changed after the build.
    """
    recipe = recipe_sha256()
    found = [_read(path) for path in kernels().glob(f"*-{recipe[:16]}/kernel.json")]
    ours = [kernel for kernel in found if kernel is not None and kernel.recipe_sha256 == recipe]
    if not ours:
        return None
    kernel = max(ours, key=lambda kernel: kernel.built)
    if not kernel.program.is_file() or _sha256(kernel.program) != kernel.program_sha256:
        raise RunError(
            f"{kernel.program}: was changed after the build; remove {kernel.folder} and "
            "build it again"
        )
    return kernel


def _read(path: Path) -> Kernel | None:
    try:
        return Kernel(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def missing(source: Path | None = None) -> list[str]:
    """Missing requirements of a build, one line each, with how to install them."""
    lacking: dict[str, list[str]] = {}
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            lacking.setdefault(package, []).append(tool)
    lines = [f"{' and '.join(tools)}: apt-get install {p}" for p, tools in lacking.items()]
    if source is None and debian_source() is None:
        lines.append(
            f"the kernel's source: apt-get install --no-install-recommends {SOURCE_PACKAGE}, "
            "or name an archive of Linux 6.12"
        )
    return lines


def debian_source() -> Path | None:
    """The source archive of an installed Debian package."""
    return next((path for path in DEBIAN_SOURCES if path.is_file()), None)


def build(
    source: Path | None = None, *, jobs: int | None = None, progress: Progress = silent
) -> Kernel:
    """Build the kernel, even if it exists already; takes some minutes on two cores.

    Only one build runs at a time; a concurrent one waits and then builds, too.

    Args:
        source: A tar archive of Linux with one top-level folder; None: Debian's.
        jobs: Number of parallel compilers; None: one per core.
        progress: Called with the progress.

    Raises:
        InputError: A requirement is missing, or the archive is not a kernel that fits this recipe.
        RunError: The build failed; the message names its log.
    """
    if lines := missing(source):
        raise InputError("; ".join(lines))
    archive = source or debian_source()
    assert archive is not None
    if not archive.is_file():
        raise InputError(f"`source`: there is no file {archive}")
    kernels().mkdir(parents=True, exist_ok=True)
    with (kernels() / "build.lock").open("w") as lock:
        progress("waiting for another build", 0, 1)
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = Path(tempfile.mkdtemp(prefix="testbed-kernel-"))
        with leftovers.noted(folder):
            try:
                return _build(archive, folder, jobs or len(os.sched_getaffinity(0)), progress)
            finally:
                shutil.rmtree(folder, ignore_errors=True)


def _build(archive: Path, folder: Path, jobs: int, progress: Progress) -> Kernel:
    log = kernels() / "build.log"
    with log.open("wb") as words:

        def run(what: str, *command: str, **environment: str) -> Iterator[str]:
            yield from _lines(what, command, folder, words, environment)

        progress("unpacking the source", 0, 1)
        excluded = [f"--exclude=*/{pattern}" for pattern in UNUSED]
        unpack = ("tar", "-xf", str(archive.absolute()), "--strip-components=1", *excluded)
        for _ in run("the source cannot be unpacked", *unpack):
            pass
        if not (folder / "arch/um/Kconfig").is_file():
            raise InputError(f"source: {archive} is not an archive of Linux")
        for path in patches():
            change = ("patch", "-p1", "--forward", "-i", str(path))
            for _ in run(f"{path.name} does not fit this source", *change):
                pass
        make = ("make", "ARCH=um")
        given = {"KCONFIG_ALLCONFIG": str(CONFIG)}
        for _ in run("the configuration failed", *make, "allnoconfig", **given):
            pass
        config = folder / ".config"
        got = wanted(config.read_text(encoding="utf-8"))
        for name, value in wanted(CONFIG.read_text(encoding="utf-8")).items():
            if got.get(name) != value:
                raise RunError(f"this source has no {name}={value}; see {log}")
        compiled = 0
        for line in run("the kernel cannot be compiled", *make, f"-j{jobs}", "linux"):
            compiled += line.startswith("  CC ")
            progress("compiling", compiled, max(COMPILED, compiled))
        version = "".join(run("no version", *make, "-s", "kernelversion")).strip()
        for _ in run("strip failed", "strip", "linux"):
            pass
    program = folder / "linux"
    kernel = Kernel(
        version=version,
        source_sha256=_sha256(archive),
        recipe_sha256=recipe_sha256(),
        config_sha256=_sha256(config),
        patches_sha256={path.name: _sha256(path) for path in patches()},
        program_sha256=_sha256(program),
        compiler=_first_line("gcc", "--version"),
        built=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    _keep(kernel, program, config, log)
    return kernel


def _keep(kernel: Kernel, program: Path, config: Path, log: Path) -> None:
    """Move a kernel into the cache; guests may still run an earlier one of the same name."""
    fresh = Path(tempfile.mkdtemp(dir=kernels(), prefix="fresh-"))
    old = fresh.with_name(f"{fresh.name}-old")
    with leftovers.noted(fresh), leftovers.noted(old):
        try:
            fresh.chmod(0o755)
            shutil.copy(program, fresh / "linux")
            shutil.copy(config, fresh / "config")
            shutil.copy(log, fresh / "build.log")
            write_json(fresh / "kernel.json", kernel.to_json())
            if kernel.folder.exists():
                kernel.folder.rename(old)
            fresh.rename(kernel.folder)
        finally:
            for folder in (fresh, old):
                shutil.rmtree(folder, ignore_errors=True)


def _lines(
    what: str, command: Sequence[str], folder: Path, log: Any, environment: dict[str, str]
) -> Iterator[str]:
    """Run a program that ends with this process; yields its output lines and writes them to the
    log.

    Raises:
        RunError: The program failed; the message has `what`, the first error line and the log's
            path.
    """
    words = {"PATH": os.environ.get("PATH", os.defpath), **_ENVIRONMENT, **environment}
    words[leftovers.VARIABLE] = leftovers.mark()
    printed = []
    process = subprocess.Popen(
        linux.ending_together(command),
        cwd=folder,
        env=words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=lambda: linux.signal_at_parents_death(signal.SIGTERM),
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            log.write(line.encode())
            printed.append(line)
            yield line
        if process.wait():
            log.flush()
            failed = [line for line in printed if re.search("error|fail|no space", line, re.I)]
            reason = (failed or printed[-1:] or ["no message"])[0].strip()
            raise RunError(f"{what}: {reason}; see {log.name}")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _first_line(*command: str) -> str:
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return (found.stdout.splitlines() or [""])[0]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
