# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`make test` runs every test once, and its last line and status tell of both parts."""

import importlib.util
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import durations
import pytest

SUITE = Path(__file__).resolve().parents[1] / "suite.py"
TESTS = SUITE.parent
# Neither a worker's process nor other plug-ins: those take longer to start than the tests.
PLAIN = {
    "TEST_WORKERS": "0",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_PLUGINS": "xdist.plugin",
}
CONFIG = "[pytest]\nmarkers =\n    alone\n    full\n"


def run(folder: Path, beside: str, alone: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text(CONFIG)
    (folder / "test_it.py").write_text(
        f"import pytest\ndef test_beside(): {beside}\n"
        f"@pytest.mark.alone\ndef test_alone(): {alone}\n"
        "@pytest.mark.full\ndef test_long(): assert False\n"
        "@pytest.mark.skip\ndef test_left_out(): pass\n"
    )
    return subprocess.run(
        [sys.executable, str(SUITE), "-m", "not full"],
        cwd=folder,
        env=os.environ | PLAIN,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("beside", "alone", "says"),
    [
        ("pass", "pass", "2 passed, 1 skipped in"),
        ("assert False", "pass", "1 failed, 1 passed, 1 skipped in"),
        ("pass", "assert False", "1 failed, 1 passed, 1 skipped in"),
    ],
)
def test_a_failure_in_either_part_is_one_of_all(
    beside: str, alone: str, says: str, tmp_path: Path
) -> None:
    done = run(tmp_path, beside, alone)
    *_, dearest, _, counts = done.stdout.splitlines()
    assert says in counts
    assert dearest.endswith(" s  test_it")
    assert done.returncode == (1 if "failed" in says else 0)


def test_a_file_that_cannot_be_read_is_no_success(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import nothing_of_that_name\n")
    done = run(tmp_path, "pass", "pass")
    assert done.returncode == 1
    assert "errors" in done.stdout.splitlines()[-1]


def test_places_of_tests_that_run_alone_are_there() -> None:
    spec = importlib.util.spec_from_file_location("marks", TESTS / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert [name for name in module.ALONE if not (TESTS / name).exists()] == []


def test_ci_runs_the_quick_tests_and_then_the_others() -> None:
    words = ["make", "-n", "--no-print-directory", "test", "test-slow"]
    asked = subprocess.run(words, cwd=SUITE.parents[1], capture_output=True, text=True)
    marks = [line.partition("suite.py ")[2] for line in asked.stdout.splitlines()]
    assert [mark for mark in marks if mark] == [
        "-m 'not slow and not full'",
        "-m 'slow and not full'",
    ]
    assert "make -k test test-slow" in (SUITE.parents[1] / ".ci" / "run").read_text()


def test_what_a_fixture_costs_belongs_to_each_test_that_uses_it(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import time\nimport pytest\n"
        "@pytest.fixture(scope='module')\ndef world(): time.sleep(0.3)\n"
        "@pytest.fixture(scope='module')\ndef land(world): pass\n"
        "def test_first(land): pass\n"
        "@pytest.mark.parametrize('n', [1, 2])\ndef test_second(n): time.sleep(0.2 * n)\n"
    )
    words = ["-p", "durations", "--junitxml=record.xml", "-o", f"pythonpath={TESTS / 'support'}"]
    subprocess.run(
        [sys.executable, "-m", "pytest", *words, "."],
        cwd=tmp_path,
        env=os.environ | PLAIN,
        check=True,
        capture_output=True,
    )
    seconds = durations.measured(ET.parse(tmp_path / "record.xml").getroot())
    assert seconds["test_it.py::test_first"] < 0.1
    assert seconds["test_it.py::test_second[2]"] >= 0.4
    assert seconds["fixture test_it.py::world"] >= 0.3
    table = durations.Table({"fixture test_it.py::world": 2.0}, {"test_it.py::test_kind"})
    uses = ["fixture test_it.py::land", "fixture test_it.py::world"]
    assert table.slow("test_it.py::test_first", uses)
    assert not table.slow("test_it.py::test_kind", uses)
    assert not table.slow("test_it.py::test_second[2]", [])


def test_ci_leaves_out_what_takes_too_long_itself() -> None:
    seconds = {"a": durations.FULL_S, "b": durations.FULL_S - 0.1, "kind": 60.0}
    table = durations.Table(seconds, {"kind"})
    assert [name for name in ("a", "b", "kind", "other") if table.full(name)] == ["a"]


def test_the_record_is_added_to_and_becomes_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record, table = tmp_path / "record.json", tmp_path / "table.json"
    table.write_text('{"b": 7.0, "other": 9.0}')
    durations.add({"a": 2.0, "b": 0.5}, record)
    durations.add({"a": 3.04, "c": 0.25}, record)
    monkeypatch.setattr(durations, "TABLE", table)
    monkeypatch.setattr(sys, "argv", ["durations.py", str(record)])
    durations.main()
    assert table.read_text() == '{\n"a": 3.0,\n"other": 9.0\n}\n'
    assert capsys.readouterr().out == "1 of 3 are slow; the others take 1 s of all workers\n"


@pytest.mark.parametrize("name", durations.essential())
def test_essential_tests_exist_and_would_be_slow(name: str) -> None:
    file, _, test = name.partition("::")
    assert f"def {test.partition('[')[0]}(" in (TESTS / file).read_text()


def test_durations_are_those_of_tests_that_exist() -> None:
    seconds = durations.Table.read().seconds
    places = {name.removeprefix("fixture ").partition("[")[0] for name in seconds}
    assert [place for place in sorted(places) if not _is_there(*place.split("::")[:2])] == []


def _is_there(file: str, test: str = "") -> bool:
    text = (TESTS / file).read_text("utf-8") if (TESTS / file).is_file() else ""
    return f"def {test}(" in text
