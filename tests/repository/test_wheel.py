# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The package works where there is no checkout: built, installed elsewhere, run from nowhere."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from orchestrator.records.manifest import source_sha256

pytestmark = pytest.mark.ci
ROOT = Path(__file__).resolve().parents[2]
FAST = ("--set", "workload.compute=none", "--set", "emulation.dilation=1", "--rounds", "1")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: setuptools leaves a folder beside what it builds."""
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    tracked = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "-z"],
        capture_output=True,
        check=True,
    ).stdout
    subprocess.run(
        ["tar", "-C", ROOT, "--null", "-T", "-", "-c", "-f", source / "tree.tar"],
        input=tracked,
        check=True,
    )
    subprocess.run(["tar", "-C", source, "-x", "-f", source / "tree.tar"], check=True)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index"]
    subprocess.run([*command, "--no-build-isolation", "-w", made, source], check=True, timeout=250)
    (built,) = made.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has the wheel, and all else from this one's packages.

    It lies in the working tree of some other project, as virtual environments do.
    """
    project = tmp_path_factory.mktemp("project")
    git = ["git", "-C", project, "-c", "user.name=a", "-c", "user.email=a@localhost"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    home = project / "venv"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    command = [sys.executable, "-m", "pip", "-q", "--python", python, "install"]
    subprocess.run([*command, "--no-deps", "--no-index", wheel], check=True, timeout=250)
    (packages,) = home.glob("lib/*/site-packages")
    # Paths only: the .pth files in there, such as the checkout's own, are not read again.
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def call(python: Path, *words: object, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [python, *map(str, words)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_carries_what_commands_need(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("scenarios", "campaigns"):
        files = {path.name for path in (ROOT / folder).glob("*.yaml")}
        assert files
        assert {f"orchestrator/{folder}/{name}" for name in files} <= names
    tables = {str(path.relative_to(ROOT)) for path in (ROOT / "orchestrator/engine").glob("*.csv")}
    assert tables
    assert tables <= names
    assert not any(name.startswith(("tests/", "scenarios/", "campaigns/")) for name in names)


def test_it_predicts_as_the_checkout_does(python: Path, tmp_path: Path) -> None:
    where = call(python, "-c", "import orchestrator; print(orchestrator.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(python.parents[1])
    for interpreter, file in ((python, "there.json"), (Path(sys.executable), "here.json")):
        words = ("-m", "orchestrator", "predict", "quickstart", "--rounds", 1, "--json", file)
        call(interpreter, *words, cwd=tmp_path)
    assert (tmp_path / "there.json").read_bytes() == (tmp_path / "here.json").read_bytes()


def test_it_reproduces_the_paper_and_trains(python: Path, tmp_path: Path) -> None:
    call(python, "-m", "orchestrator", "reproduce", "table2", "--out", "paper", cwd=tmp_path)
    assert list((tmp_path / "paper").iterdir())
    program = "import orchestrator as tb; print(tb.UavSflEnv().scenario.uavs.count)"
    assert call(python, "-c", program, cwd=tmp_path) == "10\n"


def test_it_says_what_it_is(python: Path, tmp_path: Path) -> None:
    program = (
        "import json; from orchestrator.records.manifest import environment\n"
        "print(json.dumps(environment()))"
    )
    told = json.loads(call(python, "-c", program, cwd=tmp_path))
    assert (told["revision"], told["dirty"]) == (None, None)
    assert told["source_sha256"] == source_sha256()


def test_it_runs(python: Path, tmp_path: Path) -> None:
    call(python, "-m", "orchestrator", "run", "quickstart", *FAST, "--out", "r", cwd=tmp_path)
    assert json.loads((tmp_path / "r" / "manifest.json").read_text())["status"] == "complete"
    assert (tmp_path / "r" / "report.html").is_file()
