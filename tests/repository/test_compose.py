# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""compose.yaml: what the docs say of it, and that it comes up where Compose and a daemon are.

No registry need answer for that: the services' image is then the docker runtime's empty one, with
this machine's system and environment mounted into it.
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
import yaml
from required import lacks
from typer.main import get_command

from orchestrator.cli.main import app
from testbed.runtimes.docker import host_paths, image_of

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "compose.yaml"


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"]
    return found


def compose() -> list[str] | None:
    """Compose as a plugin or as a program of its own."""
    plugin = shutil.which("docker") and subprocess.run(
        ["docker", "compose", "version"], capture_output=True
    )
    if plugin and plugin.returncode == 0:
        return ["docker", "compose"]
    return ["docker-compose"] if shutil.which("docker-compose") else None


@pytest.fixture(scope="module")
def words() -> list[str]:
    """The words of Compose's program."""
    found = compose()
    if found is None:
        lacks("Compose is not installed")
    return found


Up = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def project(words: list[str], tmp_path: Path) -> Iterator[tuple[Path, Up]]:
    """A folder beside whose `compose.yaml` the services' image is named, and what starts them."""
    with contextlib.closing(docker.from_env()) as client:
        image = image_of(client, "host")
    for name in ("scenarios", "campaigns"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "compose-seccomp.json", tmp_path)
    (tmp_path / "runs").mkdir()
    own = {
        "image": image,
        "volumes": [f"{path}:{path}:ro" for path in host_paths()],
        "tmpfs": ["/tmp:exec"],
        "environment": {
            "PATH": f"{sys.prefix}/bin:/usr/bin:/bin:/usr/sbin",
            "PYTHONPATH": str(ROOT),
            "HOME": "/tmp",
        },
    }
    here = tmp_path / "here.yaml"
    here.write_text(yaml.safe_dump({"services": {name: dict(own) for name in services()}}))
    name = f"testbed-{uuid.uuid4().hex[:8]}"
    all_words = [*words, "-p", name, "--project-directory", str(tmp_path)]
    all_words += ["-f", str(FILE), "-f", str(here), "--profile", "campaign"]

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*all_words, *more],
            cwd=tmp_path,
            env={**os.environ, "PWD": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=800,
        )

    yield tmp_path, run
    run("down", "--volumes", "--timeout", "1")


@pytest.mark.docker
def test_the_orchestrator_starts_its_nodes_as_containers(project: tuple[Path, Up]) -> None:
    folder, run = project
    command = shlex.split(services()["orchestrator"]["command"])
    command = [w for w in command if not w.startswith("emulation.docker_image")][:-1]
    command += ["--set", "rounds=1", "--set", "workload.compute=none"]
    done = run("run", "--rm", "--no-deps", "-T", "orchestrator", *command)
    assert done.returncode == 0, done.stdout + done.stderr
    out = folder / "runs" / "compose"
    assert json.loads((out / "scenario.json").read_text())["emulation"]["runtime"] == "docker"
    assert (out / "measured.parquet").is_file()


@pytest.mark.docker
def test_with_a_campaign_no_second_emulation_starts(project: tuple[Path, Up]) -> None:
    _, run = project
    done = run("up", "--no-build", "--no-start")
    assert done.returncode == 0, done.stdout + done.stderr
    created = run("ps", "-q").stdout.split()
    with contextlib.closing(docker.from_env()) as client:
        labels = [client.containers.get(container).labels for container in created]
    names = {label["com.docker.compose.service"] for label in labels}
    assert names == {"campaign", "scheduler", "predictor", "worker"}


@pytest.mark.docker
@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_campaign_comes_up_with_scheduler_and_workers(project: tuple[Path, Up]) -> None:
    folder, run = project
    # As docs/docker.md says; it returns because all services end with the campaign.
    done = run("up", "--no-build", "--abort-on-container-exit", "--exit-code-from", "campaign")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "38 points, 38 of them computed now, 0 failed" in done.stdout
    assert (folder / "runs" / "campaign" / "report.html").is_file()


def test_compose_takes_the_file(words: list[str]) -> None:
    done = subprocess.run(
        [*words, "-f", str(FILE), "--profile", "campaign", "--profile", "orchestrator", "config"],
        capture_output=True,
        text=True,
        env={**os.environ, "PWD": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    resolved = yaml.safe_load(done.stdout)
    assert set(resolved["services"]) == set(services())


def test_the_orchestrator_and_a_campaign_never_start_together() -> None:
    profiles = {name: s["profiles"] for name, s in services().items()}
    assert profiles.pop("orchestrator") == ["orchestrator"]
    assert all(own == ["campaign"] for own in profiles.values())
    assert all(s["image"] == "uav-sfl-testbed" for s in services().values())
    # In each profile, one service builds the image.
    assert [name for name, s in services().items() if "build" in s] == ["orchestrator", "scheduler"]


def test_nothing_is_published_and_the_campaigns_network_leads_nowhere() -> None:
    tree = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    assert tree["networks"]["campaign"]["internal"] is True
    for name, service in tree["services"].items():
        assert "ports" not in service
        assert not service.get("privileged")
        socket = any("docker.sock" in volume for volume in service.get("volumes", []))
        assert socket == (name == "orchestrator")


def test_workers_are_what_campaigns_ask_for() -> None:
    known = services()
    for name in ("predictor", "worker"):
        assert "tls://scheduler:8786" in known[name]["command"]
        assert known[name]["networks"] == known["scheduler"]["networks"] == ["campaign"]
    assert "--machine" in known["worker"]["command"]
    assert "--machine" not in known["predictor"]["command"]


def test_what_runs_points_has_no_rights_over_the_machine() -> None:
    for name, service in services().items():
        if name == "orchestrator":  # which plugs links into containers
            continue
        assert service["cap_drop"] == ["ALL"]
        added = ["SETFCAP", "SYS_NICE"] if name == "worker" else []
        assert service.get("cap_add", []) == added
        assert service["read_only"] is True
        options = service["security_opt"]
        assert "no-new-privileges:true" in options
        assert "seccomp:unconfined" not in options
        assert ("seccomp:compose-seccomp.json" in options) == (name == "worker")
    profile = json.loads((ROOT / "compose-seccomp.json").read_text(encoding="utf-8"))
    (denied,) = profile["syscalls"]
    assert denied["action"] == "SCMP_ACT_ERRNO"
    assert {"bpf", "init_module", "kexec_load", "keyctl", "ptrace"} <= set(denied["names"])
    assert not {"unshare", "setns", "mount", "clone", "clone3"} & set(denied["names"])


def test_the_page_writes_to_other_folders_than_the_services() -> None:
    """A reader may follow the page from top to bottom."""
    page = (ROOT / "docs" / "docker.md").read_text(encoding="utf-8")
    texts = [page, *(str(service.get("command", "")) for service in services().values())]
    outs = [place for text in texts for place in re.findall(r"--(?:out|json) (\S+)", text)]
    assert len(outs) > 3
    assert len(set(outs)) == len(outs)


SERVED = ["orchestrator", "campaign", "scheduler", "predictor", "worker"]


@pytest.mark.parametrize("name", SERVED)
def test_commands_are_ones_that_the_testbed_has(name: str) -> None:
    program, *words = shlex.split(services()[name]["command"])
    assert program == "testbed"
    command = get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]  # type: ignore[attr-defined]
    assert not hasattr(command, "commands")
    context = command.make_context(name, words)
    files = [v for k, v in context.params.items() if k in {"scenario", "given"}]
    assert bool(files) == (name in ("orchestrator", "campaign"))
    assert all((ROOT / file).is_file() for file in files)
