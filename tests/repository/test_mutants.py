# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`make mutants`: what it changes, what it runs, and that its lists are of the code as it is."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DRIVER = ROOT / "tests" / "mutants" / "mutants.py"


@pytest.fixture(scope="module")
def driver() -> Any:
    spec = importlib.util.spec_from_file_location("mutants", DRIVER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants"] = module
    spec.loader.exec_module(module)
    return module


MODULE = '''"""Words are no result: 1 + 1."""

from typing import Any

Numbers = Any | None


def f(a: int, b: int = 2) -> int:
    """1 + 1."""
    print(a)
    if a < b:
        raise ValueError(f"{a + 1}", a - 1)
    return a * b
'''


def test_every_operator_and_number_is_changed_and_no_word_or_type(
    driver: Any, tmp_path: Path
) -> None:
    (tmp_path / "m.py").write_text(MODULE)
    subject = driver.Subject("m", "m.py", [])
    count, found = driver.mutants_of(subject, root=tmp_path)
    assert count >= len(found)
    changes = {(mutant.line, mutant.was, mutant.now) for mutant in found}
    assert changes == {
        (8, "def f(a: int, b: int = 2) -> int:", "def f(a: int, b: int = 3) -> int:"),
        (10, "print(a)", "print(None)"),
        (10, "print(a)", "..."),
        (11, "if a < b:", "if a <= b:"),
        (13, "return a * b", "return a / b"),
    }
    assert {mutant.within for mutant in found} == {"f"}

    def drawn(number: int, seed: int) -> list[Any]:
        mutants: list[Any] = driver.mutants_of(subject, number, seed, tmp_path)[1]
        return mutants

    assert drawn(2, 1) == drawn(3, 1)[:2]
    assert len({tuple(mutant.now for mutant in drawn(5, seed)) for seed in range(9)}) > 1
    assert {mutant.now for mutant in drawn(99, 1)} == {mutant.now for mutant in found}


def test_the_lists_are_of_the_code_as_it_is(driver: Any) -> None:
    subjects = {subject.name: subject for subject in driver.subjects_of([])}
    for subject in subjects.values():
        for test in subject.tests:
            assert (ROOT / test.partition("::")[0]).is_file(), test
    assert list(driver.named(list(subjects.values()))), "each stands once in its module"
    for (module, _, was, _), why in driver.reasons().items():
        text = " ".join((ROOT / subjects[module].file).read_text().split())
        assert " ".join(was.split()) in text, was
        assert len(why) > 10


@pytest.mark.full
def test_mutants_found_by_hand_are_killed(tmp_path: Path) -> None:
    words = [sys.executable, DRIVER, "--module", "wire", "--named", "--json", tmp_path / "found"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=280, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found").read_text())["mutants"]
    assert [mutant["outcome"] for mutant in found] == ["killed"] * 3
    assert all(mutant["by"].startswith("FAILED") for mutant in found)
