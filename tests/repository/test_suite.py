# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`make test` runs every test once, and its last line and status tell of both parts."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

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


@pytest.mark.parametrize(("ci", "marks"), [("true", "not full"), ("", "not full and not ci")])
def test_ci_leaves_out_no_more_than_what_is_heavy(ci: str, marks: str) -> None:
    words = ["make", "-n", "--no-print-directory", "test"]
    asked = subprocess.run(
        words, cwd=SUITE.parents[1], env=os.environ | {"CI": ci}, capture_output=True, text=True
    )
    assert asked.stdout.splitlines()[-1].endswith(f"tests/suite.py -m '{marks}'")
