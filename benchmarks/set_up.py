# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How long it takes from a fresh clone: to the first line of output, set up, and to a report.

    python benchmarks/set_up.py [light] [full] [--by uv,pip] [--folder DIR] [--json FILE]

For each set: `make setup-light` or `make setup` with empty caches, then the quickstart (of the
light set without computing) to its report; and again, in another clone, with the caches that the
first has filled. The same by pip with the same locks. All is put into a temporary folder in DIR
(12 GB for both sets) and removed. Needs the package index; the machine should be idle.
"""

import argparse
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from common import ROOT
from rich.console import Console
from rich.table import Table

from testbed.system.files import write_json

TARGETS = {"light": "setup-light", "full": "setup"}
REPORT = "runs/demo/report.html"
RUN = ["scenarios/quickstart.yaml", "--out", str(Path(REPORT).parent)]
RUNS = {"light": [*RUN, "--set", "workload.compute=none"], "full": RUN}
BY_PIP = """set -e
{python} -m venv .venv
.venv/bin/python -m pip install --disable-pip-version-check --require-hashes --no-deps \
    -r constraints/build.txt
.venv/bin/python -m pip install --disable-pip-version-check --require-hashes --no-deps \
    --no-build-isolation -r constraints/{which}.txt
exec .venv/bin/python -m pip install --disable-pip-version-check --no-deps \
    --no-build-isolation -e .
"""


def timed(words: Sequence[str], folder: Path, env: Mapping[str, str]) -> tuple[float, float]:
    """Run it; seconds to the end of its first line of output, and to its own end.

    Raises:
        SystemExit: It failed; what it said last is printed.
    """
    began = time.monotonic()
    first_s, said = 0.0, bytearray()
    with subprocess.Popen(
        words, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(process.stdout, selectors.EVENT_READ)
            while ready.select() and (part := os.read(process.stdout.fileno(), 1 << 16)):
                said += part
                if not first_s and b"\n" in said:
                    first_s = time.monotonic() - began
    if process.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{said[-2000:].decode(errors='replace')}")
    return first_s, time.monotonic() - began


def clone(into: Path) -> Path:
    """A clone as a user would have it."""
    subprocess.run(["git", "clone", "-q", "--depth", "1", ROOT.as_uri(), str(into)], check=True)
    return into


def measure(which: str, programs: Sequence[str], base: Path) -> list[dict[str, object]]:
    """One row a program and state of the caches; seconds from the start of the set-up.

    Raises:
        SystemExit: A set-up or a run failed, or left no report.
    """
    env = dict(os.environ) | {
        "UV_CACHE_DIR": str(base / "uv"),
        "PIP_CACHE_DIR": str(base / "pip"),
        "PYTHON": sys.executable,
    }
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    env.pop("VIRTUAL_ENV", None)
    words = {
        "uv": ["make", "-s", TARGETS[which], f"PYTHON={sys.executable}"],
        "pip": ["sh", "-c", BY_PIP.format(python=sys.executable, which=which)],
    }
    rows = []
    for by in programs:
        own = env | {"XDG_CACHE_HOME": str(base / f"cache-{by}")}
        for cache in ("empty", "filled"):
            folder = clone(base / "clone")
            first_s, set_up_s = timed(words[by], folder, own)
            _, run_s = timed([".venv/bin/testbed", "run", *RUNS[which]], folder, own)
            if not (folder / REPORT).exists():
                sys.exit(f"no {REPORT}")
            shutil.rmtree(folder)
            row: dict[str, object] = {"first_line_s": first_s, "set_up_s": set_up_s}
            row |= {"set": which, "by": by, "caches": cache, "report_s": set_up_s + run_s}
            rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sets", nargs="*", metavar="SET", help=" or ".join(TARGETS))
    parser.add_argument("--by", default="uv,pip", help="uv or pip alone; default: both")
    parser.add_argument("--folder", type=Path, help="where to put it all; default: /tmp")
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    if unknown := set(wanted.sets) - set(TARGETS):
        parser.error(f"SET: must be {' or '.join(TARGETS)}, not {', '.join(unknown)}")
    if unknown := set(programs := wanted.by.split(",")) - {"uv", "pip"}:
        parser.error(f"--by: must be uv or pip, not {', '.join(unknown)}")
    rows = []
    for which in wanted.sets or TARGETS:
        with tempfile.TemporaryDirectory(prefix="set-up-", dir=wanted.folder) as base:
            rows += measure(which, programs, Path(base))
    shown = Table(box=None, pad_edge=False)
    for column in ("set", "by", "caches", "first line s", "set up s", "report s"):
        shown.add_column(column, justify="right" if column.endswith(" s") else "left")
    for row in rows:
        texts = (
            f"{value:.1f}" if isinstance(value, float) else str(value) for value in row.values()
        )
        shown.add_row(*texts)
    Console().print(shown)
    if wanted.json:
        load = os.getloadavg()[0]
        write_json(wanted.json, {"load": load, "set_ups": rows})


if __name__ == "__main__":
    main()
