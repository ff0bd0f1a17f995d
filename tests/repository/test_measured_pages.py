# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Published tables name the revision that was measured, and it is one of this history."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").glob("measured*.md")), ROOT / "docs" / "performance.md"]
REVISION = re.compile(r"[Rr]evision:?\s+`?([0-9a-f]{7,40})(\+?)")
CHANGED = {"06b714507b37"}
"""Measured with uncommitted changes: these rows need an hour on an idle machine."""


def git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables_come_from_committed_revisions(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = REVISION.findall(" ".join(text.split()))
    assert found
    assert {revision for revision, plus in found if plus} <= CHANGED
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("this checkout has no history")
    for revision in {revision for revision, _ in found}:
        assert git("merge-base", "--is-ancestor", revision, "HEAD").returncode == 0, revision


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_table_has_a_command_and_a_revision(page: Path) -> None:
    """Those of a section: the nearest heading of level two."""
    sections = page.read_text(encoding="utf-8").split("\n## ")[1:]
    for section in sections:
        title, _, text = section.partition("\n")
        if re.search(r"^\|---", text, re.M):
            assert REVISION.search(" ".join(text.split())), title
            assert re.search(r"benchmarks/\w+\.py|testbed \w|make \w", text), title
