# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`make mutants`: what it changes, what it runs, and that its lists are of the code as it is."""

import hashlib
import importlib.util
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DRIVER = ROOT / "tests" / "mutants" / "mutants.py"


def imported(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def driver() -> Any:
    return imported(DRIVER)


@pytest.fixture(scope="module")
def nursery() -> Any:
    return imported(DRIVER.with_name("nursery.py"))


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
            if test.startswith("-k"):  # What it no longer leaves out fails unmutated.
                continue
            file, _, name = test.removeprefix("--deselect=").partition("::")
            assert (ROOT / file).is_file(), test
            assert f"def {name}" in (ROOT / file).read_text(), test
    assert list(driver.named(list(subjects.values()))), "each stands once in its module"
    for (module, _, was, _), why in driver.reasons().items():
        text = " ".join((ROOT / subjects[module].file).read_text().split())
        assert " ".join(was.split()) in text, was
        assert len(why) > 10


def test_what_imports_the_module_is_not_imported_before_it_is_mutated(
    nursery: Any, tmp_path: Path
) -> None:
    sources = {
        "testbed/__init__.py": "",
        "testbed/mutated.py": "",
        "testbed/at_once.py": "from testbed import mutated",
        "testbed/in_turn.py": "try:\n    pass\nexcept ImportError:\n    import testbed.at_once",
        "testbed/when_called.py": "def f():\n    import testbed.mutated",
        "testbed/for_types.py": "if TYPE_CHECKING:\n    from testbed.mutated import x",
        "workloads/__init__.py": "from testbed.mutated import x",
        "workloads/below.py": "",
        "workloads/beside.py": "import workloads.below",
        "orchestrator/over.py": "from workloads.below import y",
        "tests/support/helper.py": "class A:\n    from testbed.mutated import z",
        "tests/support/other.py": "import testbed",
    }
    for name, source in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    found = nursery.dependents(tmp_path, "testbed/mutated.py")
    assert found == {
        *("testbed.mutated", "testbed.at_once", "testbed.in_turn", "helper"),
        *("workloads", "workloads.below", "workloads.beside", "orchestrator.over"),
    }


def test_tests_of_the_line_come_first_and_of_these_what_kills_most_a_second(driver: Any) -> None:
    seconds = {"elsewhere": 0.0, "slow": 1.0, "fast": 0.1, "deadly": 1.0}
    lines = {"elsewhere": [3], "slow": [3, 9], "fast": [9], "deadly": [3, 9]}
    watched = driver.Watched("", 1.0, seconds, lines, [])
    kills = Counter({"deadly": 3})
    assert watched.order(9, kills) == ["deadly", "fast", "slow", "elsewhere"]
    assert watched.order(9, Counter()) == ["fast", "slow", "deadly", "elsewhere"]
    assert watched.order(8, kills) == ["elsewhere", "deadly", "slow", "fast"]
    assert watched.order(2, kills) == ["elsewhere", "deadly", "fast", "slow"]


def test_what_is_known_of_a_module_stays_while_its_source_does(driver: Any, tmp_path: Path) -> None:
    (wire,) = driver.subjects_of(["wire"])
    source = (ROOT / wire.file).read_text()
    made = driver.mutants_of(wire, 2)[1]
    results = driver.Results(tmp_path / "found.json", 1)
    for mutant, outcome in zip(made, ("killed", "survived"), strict=True):
        what = (mutant.within, mutant.line, mutant.was, mutant.now)
        results.add(wire, driver.Outcome("wire", *what, outcome, 0.5, "test_it"))
    again = driver.Results(tmp_path / "found.json", 1)
    assert [again.wanted(mutant) for mutant in made] == [False, True]
    assert again.kills("wire") == {"test_it": 1}
    tree = json.loads((tmp_path / "found.json").read_text())
    assert tree["sources"] == {"wire": hashlib.sha256(source.encode()).hexdigest()}
    tree["sources"]["wire"] = "of another"
    (tmp_path / "found.json").write_text(json.dumps(tree))
    assert all(driver.Results(tmp_path / "found.json", 1).wanted(mutant) for mutant in made)


@pytest.mark.full
def test_mutants_found_by_hand_are_killed(tmp_path: Path) -> None:
    words = [sys.executable, DRIVER, "--module", "wire", "--named", "--json", tmp_path / "found"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=280, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found").read_text())["mutants"]
    assert [mutant["outcome"] for mutant in found] == ["killed"] * 3
    assert all("test_wire.py::test_" in mutant["by"] for mutant in found)
