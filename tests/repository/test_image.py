# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The Dockerfile builds an image, and the commands of docs/docker.md work in it.

The base image is made from the packages of this machine, which takes some seconds and needs no
registry; debootstrap would take a minute. The light set is installed.
"""

import json
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from required import lacks

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[2]
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
BESIDES_PACKAGES = ["bin", "lib", "lib64", "sbin", "etc/group", "etc/passwd", CERTIFICATES[1:]]
"""What no package lists, but every Debian has."""
UNUSED = ("/usr/share/doc/", "/usr/share/locale/", "/usr/share/man/")

Run = Callable[..., subprocess.CompletedProcess[str]]


def packages() -> list[str]:
    """Debian's essential packages, those that docs/docker.md names, and what they depend on."""
    listed = subprocess.run(
        [
            "dpkg-query",
            "-W",
            "-f",
            "${Package}\t${Essential}\t${Provides}\t${Pre-Depends},${Depends}\n",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    needs, providers = {}, {}
    todo = ["ca-certificates", "g++", "passwd", "python3-venv"]
    for line in listed.splitlines():
        name, essential, provides, depends = line.split("\t")
        needs[name] = [part for part in depends.split(",") if part]
        providers |= {part.split()[0]: name for part in provides.split(",") if part.strip()}
        todo += [name] if essential == "yes" else []
    found: set[str] = set()
    while todo:
        name = todo.pop()
        if name in found or name not in needs:
            continue
        found.add(name)
        for alternatives in needs[name]:
            names = [one.split()[0].partition(":")[0] for one in alternatives.split("|")]
            todo += [one if one in needs else providers.get(one, "") for one in names]
    return sorted(found)


def files() -> list[str]:
    """Paths of all files of these packages, without links in their folders, from `/` on."""
    listed = subprocess.run(
        ["dpkg-query", "-L", *packages()], capture_output=True, text=True, check=True
    ).stdout
    paths = {*BESIDES_PACKAGES, *(str(path)[1:] for path in Path("/etc/alternatives").iterdir())}
    for line in listed.splitlines():
        if line.startswith("/") and line != "/." and not line.startswith(UNUSED):
            path = Path(line)
            paths.add(str(path.parent.resolve() / path.name)[1:])
    return sorted(path for path in paths if os.path.lexists(f"/{path}"))


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of an image that was built as docs/docker.md says."""
    try:
        listed = "\0".join(files())
    except (OSError, subprocess.CalledProcessError):
        lacks("this is no Debian with python3-venv and g++")
    name = f"testbed-{uuid.uuid4().hex[:8]}"
    tar = tmp_path_factory.mktemp("base") / "base.tar"
    subprocess.run(
        ["tar", "-C", "/", "--null", "--no-recursion", "-T", "-", "-c", "-f", tar],
        input=listed.encode(),
        check=True,
    )
    # pip has certificates of its own, which need not be those of this machine's package index.
    change = ["--change", f"ENV PIP_CERT={CERTIFICATES}"]
    subprocess.run(["docker", "import", *change, tar, f"{name}-base"], check=True)
    arguments = {"BASE": f"{name}-base", "SET": "light", "VERSION": "9.8.7"}
    words = [word for item in arguments.items() for word in ("--build-arg", "{}={}".format(*item))]
    try:
        done = subprocess.run(
            ["docker", "build", "--network", "host", *words, "-t", name, ROOT],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        yield name
    finally:
        subprocess.run(["docker", "rmi", "--force", name, f"{name}-base"], check=False)


@pytest.fixture
def run(image: str, tmp_path: Path) -> Run:
    """Run `testbed` in a container; the folder `runs` is that of the test."""
    tmp_path.chmod(0o777)

    def call(options: list[str], *words: str) -> subprocess.CompletedProcess[str]:
        volume = f"{tmp_path}:/work/runs"
        command = ["docker", "run", "--rm", "--network", "none", "-v", volume, *options, image]
        done = subprocess.run([*command, "testbed", *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    return call


@pytest.mark.timeout(1200)
def test_it_describes_itself_and_is_not_root(image: str, run: Run) -> None:
    about = json.loads(subprocess.check_output(["docker", "inspect", image]))[0]["Config"]
    assert about["User"] == "testbed"
    assert about["Labels"]["org.opencontainers.image.version"] == "9.8.7"
    assert about["Labels"]["org.opencontainers.image.licenses"] == "MIT AND GPL-2.0-only"
    assert run([], "--version").stdout == "testbed 9.8.7\n"


@pytest.mark.parametrize(
    "options",
    [[], ["--read-only"], ["--user", "4321:4321"]],
    ids=["user", "read-only", "other-user"],
)
def test_it_predicts_and_compiles_nothing(run: Run, tmp_path: Path, options: list[str]) -> None:
    # Neither the engine nor a model could be compiled without the assembler.
    hidden = ["-v", "/dev/null:/usr/bin/as:ro"]
    words = ["predict", "quickstart", "--rounds", "1", "--json", "runs/a.json"]
    run([*options, *hidden], *words)
    assert json.loads((tmp_path / "a.json").read_text())["rounds"][0]["paradigm"] == "cpsfl"


def test_it_examines_the_machine(run: Run) -> None:
    assert "g++" in run([], "doctor").stdout


def test_it_emulates_without_root(run: Run, tmp_path: Path) -> None:
    rights = ["--cap-drop", "ALL", "--security-opt", f"seccomp={ROOT / 'compose-seccomp.json'}"]
    rights += ["--security-opt", "apparmor=unconfined", "--user", "4321:4321"]
    words = ["run", "quickstart", "--rounds", "1", "--set", "workload.compute=none"]
    run(rights, *words, "--out", "runs/a")
    assert json.loads((tmp_path / "a" / "manifest.json").read_text())["status"] == "complete"
