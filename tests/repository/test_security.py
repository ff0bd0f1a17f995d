# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""SECURITY.md: each promise has a test, and what others publish is named by its digest."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = re.findall(
    r"^\| ([^|*][^|]*) \| `([^`]+)` \|$", (ROOT / "SECURITY.md").read_text(), re.MULTILINE
)
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_there_are_promises() -> None:
    lines = (ROOT / "SECURITY.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| **")]
    assert len(ROWS) == len(rows) - 1 > 20  # without the heading


@pytest.mark.parametrize(("promise", "test"), ROWS, ids=lambda value: value[-60:])
def test_a_promise_has_its_test(promise: str, test: str) -> None:
    file, _, name = test.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert name in names or (not name and any(each.startswith("test_") for each in names)), promise


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_named_by_digest(workflow: Path) -> None:
    used = re.findall(r"uses: (\S+)(.*)", workflow.read_text(encoding="utf-8"))
    assert used
    for action, comment in used:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r"  # v\d[\d.]*", comment), f"{action}: which version is this?"
