# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The package works where there is no checkout: built, installed elsewhere, run from nowhere."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from orchestrator.records.manifest import source_sha256

ROOT = Path(__file__).resolve().parents[2]
FAST = ("--set", "workload.compute=none", "--set", "emulation.dilation=1", "--rounds", "1")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of sdist and wheel, built from a copy of this tree that has a tag."""
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    tar = ["tar", "-C", ROOT, "--null", "-T", "-", "-c", "-f", made / "tree.tar"]
    subprocess.run(tar, input=tracked(), check=True)
    subprocess.run(["tar", "-C", source, "-x", "-f", made / "tree.tar"], check=True)
    (made / "tree.tar").unlink()
    git = ["git", "-C", source, "-c", "user.name=a", "-c", "user.email=a@localhost"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"], ["tag", "v9.8.7"]):
        subprocess.run([*git, *words], check=True)
    command = [Path(sys.executable).with_name("uv"), "build", "--quiet", "--offline"]
    command += ["--no-build-isolation", "--python", sys.executable, "--out-dir", made, source]
    subprocess.run(command, check=True, timeout=250)
    return made


def tracked() -> bytes:
    """The files of the project, each followed by a zero byte."""
    command = ["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "-z"]
    return subprocess.run(command, capture_output=True, check=True).stdout


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    """The wheel, which was built from the sdist."""
    (built,) = dist.glob("*.whl")
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
    engine = ROOT / "orchestrator/engine"
    for pattern in ("*.csv", "core/*.cc", "core/*.h"):
        read = {str(path.relative_to(ROOT)) for path in engine.glob(pattern)}
        assert read
        assert read <= names
    assert not any(name.startswith(("tests/", "scenarios/", "campaigns/")) for name in names)
    packages = ("testbed", "ns3_scenarios", "workloads", "orchestrator")
    assert {name.partition("/")[0] for name in names if "dist-info" not in name} == set(packages)
    assert {f"{package}/py.typed" for package in packages} <= names


def test_the_sdist_has_every_file_of_the_project(dist: Path) -> None:
    with tarfile.open(dist / "uav_sfl_testbed-9.8.7.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    files = {name for name in tracked().decode().split("\0") if (ROOT / name).is_file()}
    assert {"CHANGELOG.md", "docs/docker.md", "examples/README.md"} <= files <= names


def test_an_index_takes_it_and_its_description_has_absolute_links(dist: Path, wheel: Path) -> None:
    twine = [sys.executable, "-m", "twine", "--no-color", "check", "--strict"]
    subprocess.run([*twine, *dist.glob("uav*")], check=True, stdout=subprocess.DEVNULL)
    text = zipfile.ZipFile(wheel).read("uav_sfl_testbed-9.8.7.dist-info/METADATA").decode()
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)\s]+)", text)
    ours = re.compile(r"https://(raw\.githubusercontent|github)\.com/uav-sfl/testbed/(\S+)")
    paths = [(picture, found) for picture, link in links if (found := ours.fullmatch(link))]
    assert len(paths) > 20
    for picture, found in paths:
        kind = "HEAD/" if picture else "blob/HEAD/"
        assert found[1] == ("raw.githubusercontent" if picture else "github")
        assert found[2].startswith(kind)
        assert (ROOT / found[2].removeprefix(kind).partition("#")[0]).exists(), found[2]
    assert all(link.startswith(("https://", "#")) for _, link in links)


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
    assert told["testbed_version"] == "9.8.7"
    assert call(python, "-m", "orchestrator", "--version", cwd=tmp_path) == "testbed 9.8.7\n"
    assert told["source_sha256"] == source_sha256()


def test_it_runs(python: Path, tmp_path: Path) -> None:
    call(python, "-m", "orchestrator", "run", "quickstart", *FAST, "--out", "r", cwd=tmp_path)
    assert json.loads((tmp_path / "r" / "manifest.json").read_text())["status"] == "complete"
    assert (tmp_path / "r" / "report.html").is_file()
