# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What the daemon is asked for: containers as they are made, without a daemon."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.core.node import BS, uav
from testbed.runtimes import Module, NodeSpec, docker


class Daemon:
    """Keeps what it is asked to make."""

    def __init__(self) -> None:
        self.containers = SimpleNamespace(create=self._create)

    def _create(self, image: str, argv: list[str], **options: Any) -> None:
        self.image, self.argv, self.options = image, argv, options


@pytest.fixture
def chowned(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, int]]:
    given: list[tuple[Path, int]] = []
    monkeypatch.setattr(os, "chown", lambda path, user, group: given.append((path, user)))
    return given


def test_a_container_is_named_after_its_node_and_may_do_nothing(tmp_path, chowned) -> None:
    daemon, log = Daemon(), tmp_path / "uav3.log"
    limits = docker._limits(0.5, 1 << 20)
    made = docker._Containers("ab12", "lab:1", "lab:1", [], [], limits)
    made.create(daemon, NodeSpec(uav(3), Module("some.program"), log, {"A": "B"}))
    asked = daemon.options
    assert (daemon.image, asked["name"], asked["hostname"]) == (
        "lab:1",
        "uav-sfl-ab12-uav3",
        "uav3",
    )
    assert (asked["labels"][docker.LABEL], asked["labels"][docker.NODE_LABEL]) == ("ab12", "uav3")
    assert daemon.argv[-4:] == ["python3", "-P", "-m", "some.program"]
    assert asked["environment"] == {"HOME": "/tmp", "A": "B"}
    assert asked["volumes"] == {str(log): {"bind": docker.LOG, "mode": "rw"}}
    assert asked["user"] == f"{docker.NOBODY}:{docker.NOBODY}"
    assert chowned == [(log, docker.NOBODY)]
    assert (asked["network_mode"], asked["cap_drop"], asked["read_only"]) == ("none", ["ALL"], True)
    assert (asked["nano_cpus"], asked["mem_limit"]) == (500_000_000, 1 << 20)
    assert asked["memswap_limit"] == asked["mem_limit"]


@pytest.mark.parametrize("gpu", [False, True])
def test_a_container_sees_gpus_where_its_node_computes_on_one(gpu, tmp_path, chowned) -> None:
    daemon = Daemon()
    made = docker._Containers("ab12", "lab:1", "lab:1", [], [], {})
    made.create(daemon, NodeSpec(BS, Module("some.program"), tmp_path / "bs.log", gpu=gpu))
    asked = daemon.options["device_requests"]
    assert asked == ([{**asked[0], "Count": -1, "Capabilities": [["gpu"]]}] if gpu else None)


def test_who_may_write_or_reads_what_is_not_for_all_stays_root(tmp_path, chowned) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.write_text("")
    ours.chmod(0o600)
    theirs.mkdir()
    for readable, writable in (([ours], []), ([], [theirs])):
        daemon = Daemon()
        made = docker._Containers("r", "i", "i", readable, writable, docker._limits(None, None))
        made.create(daemon, NodeSpec(BS, ["sh"], tmp_path / "bs.log"))
        assert daemon.options["user"] == "0:0"
        (given, _) = daemon.options["volumes"].items()
        path, mode = (ours, "ro") if readable else (theirs, "rw")
        assert given == (str(path), {"bind": str(path), "mode": mode})
    assert not chowned
