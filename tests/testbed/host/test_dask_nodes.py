# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Schedulers and workers that only those with the key can use, and that serve no pages."""

import contextlib
import json
import logging
import queue
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import warm
from console import TESTBED
from processes import until
from small_campaign import write_campaign
from small_scenario import TEXT

from orchestrator.campaign.cluster import run_campaign
from orchestrator.campaign.folder import CampaignFolder
from orchestrator.campaign.spec import load_campaign
from testbed.core.errors import InputError
from testbed.host import dask_cluster, dask_nodes
from testbed.host.dask_cluster import Cluster
from testbed.host.dask_nodes import make_key, security


def listening(process: psutil.Process) -> list[str]:
    """Addresses on which a process listens."""
    return [ip for ip, _ in listeners(process)]


def listeners(process: psutil.Process) -> list[tuple[str, int]]:
    found = process.net_connections("tcp")
    return [each.laddr for each in found if each.status == psutil.CONN_LISTEN]


def plain_answer(at: tuple[str, int], route: str) -> bytes:
    """What a caller without a certificate is answered, who asks for a page."""
    with socket.create_connection(at, timeout=20) as caller, contextlib.suppress(ConnectionError):
        caller.sendall(f"GET {route} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
        return caller.recv(1000)
    return b""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    words = ["campaign", "scheduler", "--host", "127.0.0.1", "--port", "0"]
    scheduler = subprocess.Popen(
        [*TESTBED, *words, "--key", str(tmp_path / "key")], stderr=subprocess.PIPE, text=True
    )
    workers: list[subprocess.Popen[str]] = []
    try:
        assert scheduler.stderr is not None
        line = next(line for line in scheduler.stderr if line.startswith("testbed: tls://"))
        found = line.split()[1]
        words = ["campaign", "worker", found, "--key", str(tmp_path / "key"), "--workers", "1"]
        workers.append(subprocess.Popen([*TESTBED, *words], stderr=subprocess.DEVNULL, text=True))
        assert any("Register worker" in line for line in scheduler.stderr)
        nanny = psutil.Process(workers[0].pid)
        everyone = [psutil.Process(scheduler.pid), nanny, *nanny.children(recursive=True)]
        at = [listeners(process) for process in everyone if listeners(process)]
        # Scheduler, nanny and worker, at one port each, which speaks TLS alone.
        assert [[ip for ip, _ in each] for each in at] == [["127.0.0.1"]] * 3
        for (place,) in at:
            for route in ("/", "/status", "/health", "/metrics", "/json/identity.json"):
                assert not plain_answer(place, route).startswith(b"HTTP"), (place, route)
        yield found
    finally:
        for process in (*workers, scheduler):
            process.terminate()
        for process in (*workers, scheduler):
            process.wait(30)


def test_who_has_the_key_computes_and_nobody_else(tmp_path: Path, address: str) -> None:
    campaign = load_campaign(write_campaign(tmp_path))
    folder = CampaignFolder(tmp_path / "out")
    done = run_campaign(campaign, folder, cluster=Cluster(address, key=tmp_path / "key"))
    assert (done.points, done.made, done.failed) == (8, 8, {})
    other = tmp_path / "other"
    make_key(other)
    for key, says in ((None, "`key`: is missing"), (other, "`scheduler`: .* does not answer")):
        with pytest.raises(InputError, match=says):
            run_campaign(
                campaign, CampaignFolder(tmp_path / "no"), cluster=Cluster(address, key=key)
            )


def test_validate_computes_on_a_scheduler_that_needs_a_key(tmp_path: Path, address: str) -> None:
    (tmp_path / "s.yaml").write_text(TEXT)
    words = ["validate", tmp_path / "s.yaml", "--model", "tau2-hat", "--samples", 16]
    words += ["--packets", 0, "--scheduler", address]
    done = warm.run(*words, "--key", tmp_path / "key", "--json", tmp_path / "v.json")
    assert done.returncode == 0, done.stderr
    here = warm.run(*words[:-2], "--workers", 1, "--json", tmp_path / "here.json")
    assert here.returncode == 0, here.stderr
    there, own = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("v", "here"))
    assert there["errors"] == own["errors"]
    keyless = warm.run(*words)
    assert (keyless.returncode, keyless.stdout) == (2, "")
    assert keyless.stderr == f"testbed: --key: is missing; {address} requires it\n"


@pytest.mark.parametrize("words", [["campaign", "worker"], ["host"]])
def test_an_address_without_a_port_is_refused_in_a_line(tmp_path: Path, words: list[str]) -> None:
    make_key(tmp_path / "key")
    done = warm.run(*words, "tls://10.255.0.9", "--key", tmp_path / "key")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "testbed: tls://10.255.0.9: must be tls://HOST:PORT\n"


def test_a_local_campaigns_processes_serve_no_pages() -> None:
    before = len(listening(psutil.Process()))
    with dask_cluster._local_cluster(1):
        own = listening(psutil.Process())
        (worker,) = [
            listening(child)
            for child in psutil.Process().children(recursive=True)
            if listening(child)
        ]
    assert len(own) - before == 2, "the scheduler, and the worker's nanny"
    assert set(own[before:]) == {"127.0.0.1"}
    assert worker == ["127.0.0.1"]


def test_a_local_campaigns_processes_log_no_tracebacks() -> None:
    from distributed import Client

    def logs_errors() -> bool:
        return logging.getLogger("distributed.worker").isEnabledFor(logging.ERROR)

    with dask_cluster._local_cluster(1) as cluster, Client(cluster, set_as_default=False) as client:
        assert client.submit(logs_errors, pure=False).result(30) is False


def test_a_host_that_vanished_without_a_word_is_soon_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask would take its name for taken for five minutes."""
    from distributed import Client

    assert dask_nodes.SILENT_S <= 60
    monkeypatch.setattr(dask_nodes, "SILENT_S", 3)
    key, told = tmp_path / "key", queue.Queue[str]()
    make_key(key)
    words = ("127.0.0.1", 0, key, told.put)
    thread = threading.Thread(target=dask_nodes.serve_scheduler, args=words, daemon=True)
    thread.start()
    address = told.get(timeout=30)
    host = subprocess.Popen(
        [*TESTBED, "host", address, "--key", str(key), "--name", "alpha"], stderr=subprocess.DEVNULL
    )
    try:
        with Client(address, security=security(key), set_as_default=False) as client:

            def there() -> list[str]:
                known = client.scheduler_info(n_workers=-1)["workers"].values()
                return [worker["name"] for worker in known]

            until(lambda: there() == ["alpha"], 60)
            host.send_signal(signal.SIGSTOP)
            until(lambda: there() == [], 30)
            client.shutdown()
    finally:
        host.kill()
        host.wait()
    thread.join(30)
    assert not thread.is_alive()


def test_a_key_is_for_its_owner_alone_and_made_once(tmp_path: Path) -> None:
    key = tmp_path / "key"
    make_key(key)
    text = key.read_bytes()
    assert key.stat().st_mode & 0o777 == 0o600
    make_key(key)
    assert key.read_bytes() == text
    assert security(key).require_encryption
    key.chmod(0o640)
    with pytest.raises(InputError, match="other users may read"):
        security(key)


@pytest.mark.parametrize("content", [b"", b"\xff", b"-----BEGIN CERTIFICATE-----\nx\n"])
def test_what_is_no_key(tmp_path: Path, content: bytes) -> None:
    key = tmp_path / "key"
    key.write_bytes(content)
    key.chmod(0o600)
    with pytest.raises(InputError, match=r"^`key`: "):
        security(key)
    with pytest.raises(InputError, match="cannot be read"):
        security(tmp_path / "none")
    with pytest.raises(InputError, match="cannot be written"):
        make_key(tmp_path / "no" / "key")
