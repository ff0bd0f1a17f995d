# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""User-Mode Linux: built once from the recipe in `recipe/`, kept in the user's cache.

A kernel's folder is named after its version and a digest of the recipe. It holds the program, its
whole configuration, the log of its build, and `kernel.json`, which names all of it by digest; that
file is written last, so a folder without it is no kernel.
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
"""What is set on top of `make allnoconfig`."""
DEBIAN_SOURCES = (Path("/usr/src/linux-source-6.12.tar.xz"),)
"""Where Debian's packages put the source, the preferred one first."""
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
"""What the build calls, and the Debian package that has it."""
SOURCE_PACKAGE = "linux-source-6.12"
COMPILED = 740
"""About how many files the build compiles: for its progress alone."""
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
"""Of the source, what no part of this kernel is made of: half of the writing is saved."""
_ENVIRONMENT = {
    "LC_ALL": "C",
    # The same source, recipe and compiler make the same bytes, and `uname -v` is no secret seed.
    "KBUILD_BUILD_TIMESTAMP": "2026-01-01",
    "KBUILD_BUILD_USER": "testbed",
    "KBUILD_BUILD_HOST": "testbed",
}


@dataclass(frozen=True)
class Kernel:
    """A kernel that was built."""

    version: str
    """As its source calls it, such as 6.12.57."""
    source_sha256: str
    """Of the archive that it was built from."""
    recipe_sha256: str
    """Of our configuration and patches."""
    config_sha256: str
    """Of the whole configuration that came of it."""
    patches_sha256: dict[str, str]
    """By the patch's name."""
    program_sha256: str
    compiler: str
    built: str
    """When, in UTC, ISO 8601."""

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return kernels() / f"{self.version}-{self.recipe_sha256[:16]}"

    @property
    def program(self) -> Path:
        """The kernel itself."""
        return self.folder / "linux"

    def to_json(self) -> dict[str, Any]:
        """All of it as a JSON object."""
        return asdict(self)


def kernels() -> Path:
    """The folder of all kernels."""
    return cache_folder() / "kernels"


def patches() -> list[Path]:
    """Our changes of the kernel, in the order in which they are applied."""
    return sorted(RECIPE.glob("*.patch"))


def recipe_sha256() -> str:
    """Digest of all that we bring to a build."""
    digest = hashlib.sha256()
    for path in (CONFIG, *patches()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update(repr(sorted(_ENVIRONMENT.items())).encode())
    return digest.hexdigest()


def wanted(text: str) -> dict[str, str]:
    """The settings of a configuration: by the option's name, its value as it is written."""
    settings = {}
    for line in text.splitlines():
        if line.startswith("CONFIG_"):
            name, _, value = line.partition("=")
            settings[name] = value
    return settings


def find() -> Kernel | None:
    """The kernel of today's recipe, the one built last where there are several; None: not built.

    Raises:
        RunError: Its program is not the one that was built.
    """
    recipe = recipe_sha256()
    found = [_read(path) for path in kernels().glob(f"*-{recipe[:16]}/kernel.json")]
    ours = [kernel for kernel in found if kernel is not None and kernel.recipe_sha256 == recipe]
    if not ours:
        return None
    kernel = max(ours, key=lambda kernel: kernel.built)
    if not kernel.program.is_file() or _sha256(kernel.program) != kernel.program_sha256:
        raise RunError(
            f"{kernel.program}: is not the kernel that was built; remove {kernel.folder} and "
            "build it again"
        )
    return kernel


def _read(path: Path) -> Kernel | None:
    try:
        return Kernel(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def missing(source: Path | None = None) -> list[str]:
    """What a build lacks, one line each, with what brings it."""
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
    """The archive that a Debian package has brought."""
    return next((path for path in DEBIAN_SOURCES if path.is_file()), None)


def build(
    source: Path | None = None, *, jobs: int | None = None, progress: Progress = silent
) -> Kernel:
    """Build the kernel, whether or not there is one; some minutes on two cores.

    One build at a time; another one waits, and then builds all the same.

    Args:
        source: A tar archive of Linux, with one folder at its top; left out: Debian's.
        jobs: How many compilers run at once; left out: one a core.
        progress: Told how far it is.

    Raises:
        InputError: Something is missing, or the archive is not one of a kernel that this recipe
            fits.
        RunError: The build failed; the message names its log.
    """
    if lines := missing(source):
        raise InputError("; ".join(lines))
    archive = source or debian_source()
    assert archive is not None
    if not archive.is_file():
        raise InputError(f"source: there is no file {archive}")
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
    """Put a kernel into the cache; a guest may run an earlier one of the same name meanwhile."""
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
    """Run a program in a group of its own, which ends with us; what it prints, and into the log.

    Raises:
        RunError: It failed: what, the first line with an error, and where the log is.
    """
    words = {"PATH": os.environ.get("PATH", os.defpath), **_ENVIRONMENT, **environment}
    words[leftovers.VARIABLE] = leftovers.mark()
    printed = []
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=_die_with_parent,
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


def _die_with_parent() -> None:
    linux.signal_at_parents_death(signal.SIGKILL)


def _first_line(*command: str) -> str:
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return (found.stdout.splitlines() or [""])[0]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
