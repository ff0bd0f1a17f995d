"""compose.yaml: valid for Compose where it is installed; in any case what the docs say of it."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from orchestrator.cli import app

ROOT = Path(__file__).resolve().parents[1]
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


def test_compose_takes_the_file() -> None:
    words = compose()
    if words is None:
        pytest.skip("Compose is not installed")
    done = subprocess.run(
        [*words, "-f", str(FILE), "--profile", "campaign", "config"],
        capture_output=True,
        text=True,
        env={**os.environ, "PWD": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    resolved = yaml.safe_load(done.stdout)
    assert set(resolved["services"]) == set(services())


def test_a_plain_up_starts_the_quickstart_alone() -> None:
    assert [name for name, s in services().items() if "profiles" not in s] == ["orchestrator"]
    assert all(s.get("image") == "uav-sfl-testbed" for s in services().values())


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
        assert "tcp://scheduler:8786 --no-dashboard" in known[name]["command"]
        assert known[name]["networks"] == known["scheduler"]["networks"] == ["campaign"]
    assert "--resources machine=1" in known["worker"]["command"]
    assert "--resources" not in known["predictor"]["command"]
    assert {"SYS_ADMIN", "NET_ADMIN"} <= set(known["worker"]["cap_add"])


@pytest.mark.parametrize("name", ["orchestrator", "campaign"])
def test_commands_are_ones_that_the_testbed_has(name: str) -> None:
    program, *words = shlex.split(services()[name]["command"])
    assert program == "testbed"
    command = get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]  # type: ignore[attr-defined]
    assert not hasattr(command, "commands")
    context = command.make_context(name, words)
    files = [v for k, v in context.params.items() if k in {"scenario", "given"}]
    assert files
    assert all((ROOT / file).is_file() for file in files)
