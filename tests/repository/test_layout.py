# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""No import runs upward: the rooms of the house and who may enter which."""

import ast
from pathlib import Path

import pytest
from rooms import MAY_IMPORT, PACKAGES, ROOT, imports, page

MOST_LINES = 2500
"""Of a package: beyond, it answers more than one question."""


def tops(path: Path) -> set[str]:
    """Top-level names of all modules that a file imports."""
    return {name.partition(".")[0] for name in imports(path)}


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_no_import_runs_upward(room: str) -> None:
    files = list((ROOT / room).rglob("*.py"))
    assert files
    for path in files:
        ours = tops(path) & MAY_IMPORT.keys() - {room}
        assert ours <= MAY_IMPORT[room], f"{path.relative_to(ROOT)} imports {ours}"


@pytest.mark.parametrize("room", PACKAGES)
def test_no_import_runs_upward_between_packages(room: str) -> None:
    floors = PACKAGES[room]
    for above, package in enumerate(floors):
        for path in (ROOT / room / package).rglob("*.py"):
            for name in imports(path):
                top, _, rest = name.partition(".")
                if top == room and (entered := rest.partition(".")[0]) in floors:
                    where = f"{path.relative_to(ROOT)} imports {name}"
                    assert floors.index(entered) >= above, where


@pytest.mark.parametrize("room", PACKAGES)
def test_every_package_has_its_floor_and_says_what_it_is_for(room: str) -> None:
    found = {path.parent.name for path in (ROOT / room).glob("*/__init__.py")}
    assert found == set(PACKAGES[room])
    for package in PACKAGES[room]:
        text = (ROOT / room / package / "__init__.py").read_text(encoding="utf-8")
        docstring = ast.get_docstring(ast.parse(text)) or ""
        assert len(docstring.splitlines()) >= 3, f"{room}/{package}"


@pytest.mark.parametrize("room", PACKAGES)
def test_no_package_is_too_large(room: str) -> None:
    for package in PACKAGES[room]:
        texts = [path.read_text() for path in (ROOT / room / package).rglob("*.py")]
        assert sum(len(text.splitlines()) for text in texts) <= MOST_LINES, f"{room}/{package}"


def test_nothing_is_ever_unpickled() -> None:
    for room in MAY_IMPORT:
        for path in (ROOT / room).rglob("*.py"):
            assert not tops(path) & {"pickle", "marshal", "shelve", "dill", "cloudpickle"}, path


def test_the_picture_of_the_rooms_is_true() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert page() in text, "python tests/support/rooms.py prints what has to stand there"
