# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What the daemon is asked for: containers as they are made, without a daemon."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import APIError, NotFound
from requests import Response

from testbed.core.errors import RunError
from testbed.core.node import BS, uav
from testbed.network.shaping import Shape
from testbed.runtimes import Module, NodeSpec, docker, docker_sandboxes


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


class Container:
    """A container whose removal takes time. Until then, the daemon refuses further requests."""

    def __init__(self) -> None:
        self.gone, self._begun = False, False
        self._lock, self._refused = threading.Lock(), threading.Event()

    def remove(self, force: bool, v: bool) -> None:
        assert force
        assert v
        with self._lock:
            if self.gone:
                raise NotFound("no such container")
            first, self._begun = not self._begun, True
        if not first:
            self._refused.set()
            raise refusal(409, "removal of container e7f66 is already in progress")
        assert self._refused.wait(20), "there was no second request"
        self.gone = True


def refusal(status: int, why: str) -> APIError:
    response = Response()
    response.status_code = status
    return APIError("refused", response, why)


def test_two_who_remove_one_container_both_see_it_gone() -> None:
    container = Container()
    with ThreadPoolExecutor(2) as pool:
        for removal in [pool.submit(docker.remove_container, container) for _ in range(2)]:
            assert removal.result(20) is None
            assert container.gone


@pytest.mark.parametrize(("status", "tries"), [(409, 2), (500, 1), (403, 1)])
def test_a_container_that_stays_is_an_error_in_the_end(status, tries, monkeypatch) -> None:
    asked = []

    def remove(**_: bool) -> None:
        asked.append(status)
        raise refusal(status, "it stays")

    clock = SimpleNamespace(monotonic=lambda: 20.0 * len(asked), sleep=lambda _: None)
    monkeypatch.setattr(docker_sandboxes, "time", clock)
    with pytest.raises(APIError, match="it stays"):
        docker.remove_container(SimpleNamespace(remove=remove))
    assert len(asked) == tries


@pytest.mark.parametrize("status", [404, 409, 500])
def test_a_run_starts_whoever_else_removes_what_a_dead_one_left(
    status, tmp_path, monkeypatch
) -> None:
    """As when two runs start at once while the reaper of a killed third one is at work."""
    asked = []

    def remove(**_: bool) -> None:
        asked.append(status)
        raise NotFound("gone") if status == 404 else refusal(status, "it is being removed")

    left = SimpleNamespace(id="e7f66", name="left", labels={}, remove=remove)
    containers = SimpleNamespace(list=lambda **_: [left], get=lambda _: left)
    daemon = SimpleNamespace(containers=containers, close=lambda: None)

    def no_image(*_: object) -> str:
        raise RunError("it came as far as the image")

    monkeypatch.setattr(docker_sandboxes, "GONE_S", 0)
    monkeypatch.setattr(docker, "_connect", lambda *_: daemon)
    monkeypatch.setattr(docker, "image_of", no_image)
    monkeypatch.setattr(docker.leftovers, "alive", lambda _: False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(RunError, match="it came as far as the image"):
        docker.start([NodeSpec(BS, ["true"], tmp_path / "log")], Shape())
    assert asked
