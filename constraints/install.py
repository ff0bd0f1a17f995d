# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Install a locked set of packages, and the testbed itself, into a virtual environment.

    python3 constraints/install.py {light,full,dev} [--into .venv] [--packages-only]
    python3 constraints/install.py uv [--into .venv] -- ARGUMENTS…

pip installs one package, uv; uv installs the others. All packages, build requirements included, are
in the lock files of this folder with their hashes. The second form runs uv with this machine's pip
settings. This program only needs Python's standard library.
"""

import argparse
import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SETS = ("light", "full", "dev")
OLDEST, TOO_NEW = (3, 11), (3, 14)
"""Versions of Python: the oldest one, and the first one that is not supported."""
EXACT = ["--require-hashes", "--no-deps"]
SECTIONS = ("global", "install", ":env:")
"""Sections of pip's settings; a later section overrides an earlier one."""
SAME_MEANING = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "no-index": "UV_NO_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "keyring-provider": "UV_KEYRING_PROVIDER",
}
"""pip's settings, and the environment variables of uv with the same meaning."""


def pip_settings(listed: str) -> dict[str, str]:
    """Settings by name, from the output of `pip config list`."""
    found: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for line in listed.splitlines():
        if match := re.fullmatch(r"(global|install|:env:)\.([\w-]+)=(.*)", line):
            section, name, value = match.groups()
            found[section][name] = str(ast.literal_eval(value))
    return {name: value for section in SECTIONS for name, value in found[section].items()}


def uv_variables(settings: Mapping[str, str], already: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that give uv the settings of pip, except those that are already set."""
    told = {
        # As in pip: the system's certificates, and the best version of all indexes.
        "UV_SYSTEM_CERTS": "1",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    for bundle in ("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        if bundle in already:
            told["SSL_CERT_FILE"] = already[bundle]
    for name, variable in SAME_MEANING.items():
        if name in settings:
            separator = "," if variable == "UV_FIND_LINKS" else " "
            told[variable] = separator.join(settings[name].split())
    return {name: value for name, value in told.items() if name not in already}


def check() -> None:
    """End the program with one line if this machine lacks something."""
    found = sys.version_info[:2]
    if not OLDEST <= found < TOO_NEW:
        why = " (the package ns3 has no build for it)" if found >= TOO_NEW else ""
        sys.exit(
            f"Python 3.11, 3.12 or 3.13 is needed, not {found[0]}.{found[1]}{why}; try: make "
            "PYTHON=python3.13"
        )
    if importlib.util.find_spec("ensurepip") is None:
        sys.exit("Python's venv is missing; on Debian: apt-get install python3-venv")
    if shutil.which("g++") is None:
        sys.exit("g++ is missing (it builds the ns-3 models); on Debian: apt-get install g++")


def environment(folder: Path) -> tuple[str, dict[str, str]]:
    """Make a virtual environment with uv; the path of its Python, and the variables for its uv."""
    python = str(folder / "bin" / "python")
    uv = folder / "bin" / "uv"
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    if not Path(python).exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pinned = re.search(r"^uv==(\S+)", (HERE / "uv.txt").read_text(), re.M)
    assert pinned
    there = uv.exists() and subprocess.run([str(uv), "--version"], capture_output=True, text=True)
    if not there or pinned[1] not in there.stdout.split():
        lock = str(HERE / "uv.txt")
        subprocess.run([*pip, "install", "-qq", "--require-hashes", "-r", lock], check=True)
    listed = subprocess.run([*pip, "config", "list"], capture_output=True, text=True, check=True)
    told = uv_variables(pip_settings(listed.stdout), os.environ)
    cache = subprocess.run([str(uv), "cache", "dir"], capture_output=True, text=True, check=True)
    kept = Path(cache.stdout.strip())
    kept.mkdir(parents=True, exist_ok=True)
    if kept.stat().st_dev != folder.stat().st_dev:
        told |= {"UV_LINK_MODE": "copy"}  # hard links do not work between disks
    return python, told


def size_mb(folder: Path) -> float:
    """Size of all files in a folder and its subfolders, in MB; hard links count once."""
    stats = [path.lstat() for path in folder.rglob("*")]
    files = {(stat.st_dev, stat.st_ino): stat.st_size for stat in stats}
    return sum(files.values()) / 1e6


def install(which: str, folder: Path, packages_only: bool) -> None:
    """Install everything, and print the time and the size."""
    began = time.monotonic()
    print(f"Setting up {folder} ({which}).", file=sys.stderr, flush=True)
    check()
    python, told = environment(folder)
    uv = [str(folder / "bin" / "uv"), "pip", "install", "--python", python]

    def run(*arguments: str) -> None:
        subprocess.run([*uv, *arguments], env=os.environ | told, cwd=ROOT, check=True)

    run(*EXACT, "--quiet", "-r", str(HERE / "build.txt"))
    run(*EXACT, "--no-build-isolation", "-r", str(HERE / f"{which}.txt"))
    if not packages_only:
        run("--quiet", "--no-deps", "--no-build-isolation", "-e", str(ROOT))
    print(
        f"Set up {folder} ({which}) in {time.monotonic() - began:.0f} s; "
        f"it takes {size_mb(folder):.0f} MB.",
        file=sys.stderr,
    )


def main() -> None:
    """Read the arguments, and install or run uv."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("which", choices=[*SETS, "uv"])
    parser.add_argument("--into", type=Path, default=ROOT / ".venv", metavar="FOLDER")
    parser.add_argument("--packages-only", action="store_true", help="without the testbed itself")
    parser.add_argument("arguments", nargs="*", help="of uv")
    given = parser.parse_args()
    try:
        if given.which == "uv":
            _, told = environment(given.into)
            program = str(given.into / "bin" / "uv")
            os.execve(program, [program, *given.arguments], os.environ | told)
        install(given.which, given.into, given.packages_only)
    except subprocess.CalledProcessError as error:
        sys.exit(f"set-up ended: {' '.join(map(str, error.cmd[:4]))} … gave {error.returncode}")


if __name__ == "__main__":
    main()
