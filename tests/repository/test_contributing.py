# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The table of CONTRIBUTING.md is true: it names exactly the files that an addition takes.

A copy of the repository gets an example of every row (`additions.py`). There each example works,
and the tests that ask for documentation and registration are content.
"""

import filecmp
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from additions import ADDITIONS, CHECKS, ROOT, add, output
from synthetic_run import make_run

COPIED = ("testbed", "ns3_scenarios", "workloads", "orchestrator", "tests", "docs", "README.md")
LEFT_OUT = (".git", ".venv", "build")
DEMANDING = (
    "repository/test_docs.py",
    "repository/test_layout.py",
    "orchestrator/reporting/test_glossary.py",
    "orchestrator/emulated/test_remedies.py::test_every_check_has_a_remedy",
    "testbed/core/test_plugins.py::test_every_group_is_on_the_page_and_finds_what_is_built_in",
)
"""Tests that fail where something was added to code alone."""


def rows() -> dict[str, set[str]]:
    """The files that the table names, by what there is to add."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = re.search(r"^\| to add \| files \|.*?\n((?:\|.*\n)+)", text, re.M)
    assert table is not None
    cells = [line.split(" | ") for line in table[1].splitlines()[1:]]
    return {
        what.removeprefix("| "): set(re.findall(r"`(.+?)`", files)) for what, files, *_ in cells
    }


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with all examples."""
    folder = tmp_path_factory.mktemp("copy")
    for path in ROOT.iterdir():
        if path.name not in COPIED + LEFT_OUT:
            (folder / path.name).symlink_to(path)
        elif path.is_file() and path.name in COPIED:
            shutil.copy(path, folder)
        elif path.name in COPIED:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(path, folder / path.name, symlinks=True, ignore=ignored)
    add(folder)
    return folder


@pytest.fixture(scope="module")
def wrong(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What went wrong in each example's check."""
    run = make_run(tmp_path_factory.mktemp("run"))
    program = [sys.executable, str(copy / "tests" / "support" / "additions.py"), str(run)]
    return dict(json.loads(output([*program, *CHECKS], copy)))


def test_every_row_has_an_example() -> None:
    assert list(rows()) == list(ADDITIONS)


@pytest.mark.parametrize("what", ADDITIONS)
def test_a_row_names_the_files_that_its_example_touches(what: str) -> None:
    files = ((ROOT / name, name) for name in ADDITIONS[what].files)
    named = {name if file.exists() else f"{Path(name).parent}/NEW.py" for file, name in files}
    assert rows().get(what) == named


def test_examples_touch_no_other_file(copy: Path) -> None:
    touched = set()
    for file in copy.rglob("*"):
        name = file.relative_to(copy)
        if file.is_file() and name.parts[0] in COPIED and "__pycache__" not in name.parts:
            ours = ROOT / name
            if not ours.exists() or not filecmp.cmp(file, ours, shallow=False):
                touched.add(str(name))
    assert touched == set().union(*(each.files for each in ADDITIONS.values()))


@pytest.mark.parametrize("name", CHECKS)
def test_an_example_works(name: str, wrong: dict[str, str]) -> None:
    assert wrong.get(name, "") == ""


def test_documentation_is_complete(copy: Path) -> None:
    tests = [f"tests/{name}" for name in DEMANDING]
    output(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        copy,
    )
