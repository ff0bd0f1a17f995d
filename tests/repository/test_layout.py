# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Imports go down the layers and never in a circle, and every package says what it is for."""

import ast
from pathlib import Path

import pytest
from layers import MAY_IMPORT, PACKAGES, ROOT, cycles, imports, page, upward


def tops(path: Path) -> set[str]:
    """Top-level names of all modules that a file imports."""
    return {name.partition(".")[0] for name in imports(path)}


@pytest.mark.parametrize("top", MAY_IMPORT)
def test_no_import_goes_upward(top: str) -> None:
    files = list((ROOT / top).rglob("*.py"))
    assert files
    for path in files:
        ours = tops(path) & MAY_IMPORT.keys() - {top}
        assert ours <= MAY_IMPORT[top], f"{path.relative_to(ROOT)} imports {ours}"


def test_no_import_goes_upward_between_packages() -> None:
    assert upward() == []


def test_no_modules_import_each_other() -> None:
    assert cycles() == []


@pytest.mark.parametrize("top", PACKAGES)
def test_every_package_has_its_layer_and_says_what_it_is_for(top: str) -> None:
    found = {path.parent.name for path in (ROOT / top).glob("*/__init__.py")}
    assert found == set(PACKAGES[top])
    for package in PACKAGES[top]:
        text = (ROOT / top / package / "__init__.py").read_text(encoding="utf-8")
        docstring = ast.get_docstring(ast.parse(text)) or ""
        assert len(docstring.splitlines()) >= 3, f"{top}/{package}"


def test_tests_and_benchmarks_do_not_use_each_other() -> None:
    """Only the tests of benchmarks may load one."""
    benchmarks = set((ROOT / "benchmarks").rglob("*.py"))
    of_benchmarks = set((ROOT / "tests" / "benchmarks").rglob("*.py"))
    tests = set((ROOT / "tests").rglob("*.py")) - of_benchmarks - {Path(__file__)}
    own = {f"test_{path.stem}" for path in benchmarks} | {"conftest", "test_smallest"}
    assert {path.stem for path in of_benchmarks} <= own
    for users, used, folder in ((benchmarks, tests, "tests"), (tests, benchmarks, "benchmarks")):
        for path in users:
            nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
            assert folder not in texts, f"{path} leads to {folder}/"
            found = tops(path) & {other.stem for other in used}
            assert not found, f"{path} imports {found}"


def test_nothing_is_ever_unpickled() -> None:
    for top in MAY_IMPORT:
        for path in (ROOT / top).rglob("*.py"):
            assert not tops(path) & {"pickle", "marshal", "shelve", "dill", "cloudpickle"}, path


def test_the_picture_of_the_packages_is_true() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert page() in text, "python tests/support/layers.py prints what docs/architecture.md needs"
