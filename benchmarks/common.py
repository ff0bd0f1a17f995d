# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What benchmarks have in common: places, CPU seconds, tables, and pages that name a revision."""

import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
PAPER = ROOT / "scenarios" / "paper.yaml"
TESTBED = Path(sys.executable).with_name("testbed")


def cpu_s(*who: int) -> float:
    """User and system seconds; by default of this process and of its children that have ended.

    Args:
        who: `resource.RUSAGE_SELF`, `resource.RUSAGE_CHILDREN`.
    """
    used = map(resource.getrusage, who or (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def numbers(text: str) -> list[float]:
    """Numbers with commas between them, for `argparse`."""
    return [float(part) for part in text.split(",")]


def show(head: Sequence[str], rows: Sequence[Sequence[str]], width: int = 160) -> None:
    """Print a table."""
    table = Table(*head)
    for row in rows:
        table.add_row(*row)
    Console(width=width).print(table)


def write_table(page: Path, name: str, lines: Sequence[Sequence[str]]) -> None:
    """Write a table, whose first line is its head, between two marks of a page."""
    lines = [lines[0], ["---"] * len(lines[0]), *lines[1:]]
    write_between(page, name, "\n".join("| " + " | ".join(line) + " |" for line in lines))


def write_between(page: Path, name: str, body: str) -> None:
    """Write a text, and the revision that was measured, between two marks of a page."""
    marks = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
    replace_between(page, marks, f"\n{body}\n\nRevision: `{revision()}`\n")


def replace_between(page: Path, marks: tuple[str, str], text: str) -> None:
    """Replace what is between two lines of a page."""
    before, rest = page.read_text(encoding="utf-8").split(marks[0])
    after = rest.split(marks[1])[1]
    page.write_text(f"{before}{marks[0]}\n{text}\n{marks[1]}{after}", encoding="utf-8")


def revision(digits: int = 8) -> str:
    """The commit of the working tree, with a plus sign if it has uncommitted changes of code."""
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run(
        [*git, "rev-parse", f"--short={digits}", "HEAD"], capture_output=True, check=True, text=True
    )
    changed = subprocess.run(
        [*git, "status", "--porcelain", "-uno", "--", ":!docs"], capture_output=True, check=True
    )
    return head.stdout.strip() + "+" * bool(changed.stdout)
