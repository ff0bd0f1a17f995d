# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Schedulers and workers that only those with the key can use, and that serve no pages."""

import contextlib
import json
import logging
import multiprocessing.spawn
import queue
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import ModuleType

import psutil
import pytest
import warm
from console import TESTBED
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from processes import until
from small_campaign import write_campaign
from small_scenario import TEXT

from orchestrator.campaigning.cluster import run_campaign
from orchestrator.campaigning.folder import CampaignFolder
from orchestrator.campaigning.spec import load_campaign
from testbed.core.errors import InputError
from testbed.host import dask_cluster, dask_nodes
from testbed.host.dask_cluster import Cluster, without_main
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


def certificate(path: Path, begins: str, ends: str) -> Path:
    """A key file that is valid in these years."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dask-internal")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime.fromisoformat(begins))
        .not_valid_after(datetime.fromisoformat(ends))
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    text = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain) + made.public_bytes(pem)
    path.write_bytes(text)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("years", [("2001-01-01", "2002-01-01"), ("2901-01-01", "2902-01-01")])
@pytest.mark.parametrize(
    "words",
    [
        ("campaign", "scheduler", "--host", "127.0.0.1", "--port", "0"),
        ("campaign", "worker", "tls://127.0.0.1:9"),
        ("host", "tls://127.0.0.1:9"),
        ("predict", "paper", "--scheduler", "tls://127.0.0.1:9"),
    ],
)
def test_a_key_that_is_not_valid_today_is_refused_by_all(
    tmp_path: Path, words: tuple[str, ...], years: tuple[str, str]
) -> None:
    if words[0] == "predict":
        (tmp_path / "s.yaml").write_text(TEXT)
        words = ("run", str(tmp_path / "s.yaml"), *words[2:], "--out", str(tmp_path / "no"))
    key = certificate(tmp_path / "key", *years)
    done = warm.run(*words, "--key", key)
    assert (done.returncode, done.stdout) == (2, "")
    says = f"testbed: --key: {key} is valid from {years[0]} to {years[1]}; remove it, and"
    assert done.stderr.startswith(says)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [("host",), ("campaign", "worker")])
def test_a_wrong_key_ends_after_a_few_tries(
    tmp_path: Path, words: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    from distributed import Client

    right, wrong, told = tmp_path / "right", tmp_path / "wrong", queue.Queue[str]()
    make_key(wrong)
    arguments = ("127.0.0.1", 0, right, told.put)
    thread = threading.Thread(target=dask_nodes.serve_scheduler, args=arguments, daemon=True)
    thread.start()
    address = told.get(timeout=30)
    done = warm.run(*words, address, "--key", wrong)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"testbed: --key: {address} uses another key than {wrong} (")
    assert done.stderr.count("\n") == 1
    with Client(address, security=security(right), set_as_default=False) as client:
        client.shutdown()
    thread.join(30)
    assert not thread.is_alive()


def test_what_speaks_no_tls_is_no_scheduler(tmp_path: Path) -> None:
    key = tmp_path / "key"
    make_key(key)

    def answer(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                other, _ = server.accept()
                with other:
                    other.recv(1000)
                    other.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, args=(server,), daemon=True).start()
        address = f"tls://127.0.0.1:{server.getsockname()[1]}"
        done = warm.run("host", address, "--key", key)
    assert done.returncode == 2
    assert done.stderr.startswith(f"testbed: {address}: is no scheduler with TLS (")
    assert done.stderr.count("\n") == 1


def test_a_host_waits_for_a_scheduler_with_growing_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_key(tmp_path / "key")
    slept: list[float] = []
    answers: list[Exception] = [*[ConnectionRefusedError(111, "refused")] * 8, ssl.SSLError(1, "x")]

    async def refused(*_: object, **__: object) -> None:
        raise answers[min(len(slept), len(answers) - 1)]

    async def passed(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("asyncio.open_connection", refused)
    monkeypatch.setattr("asyncio.sleep", passed)
    with pytest.raises(InputError, match="is no scheduler with TLS"):
        dask_nodes._greet("tls://127.0.0.1:9", tmp_path / "key")
    assert slept == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0, 5.0]


@pytest.mark.parametrize(
    ("host", "says"),
    [
        ("192.0.2.1", "--host: this machine does not have the address 192.0.2.1"),
        ("2001:db8::1", "--host: "),
        ("no.such.host.invalid", "--host: "),
        ("x" * 300, "--host: "),
        ("..", "--host: "),
        ("10.0.0.1:80", "--host: "),
        ("127.0.0.1", "--port: PORT of 127.0.0.1 is in use"),
    ],
)
def test_an_address_that_is_not_there_is_refused_in_a_line(
    tmp_path: Path, host: str, says: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ["campaign", "scheduler", "--host", host, "--port", port]
        done = warm.run(*words, "--key", tmp_path / "key")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"testbed: {says.replace('PORT', str(port))}")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "key").exists()


def test_messages_that_strangers_cause_become_rare(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("test.strangers")
    logger.addFilter(dask_nodes._Seldom())
    for _ in range(1000):
        logger.warning("handshake failed with %s", "somebody")
    logger.error("defect")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 11
    assert lines[-2] == "handshake failed with somebody (512 such messages)"


def test_workers_do_not_run_the_script_again(monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType("__main__")
    main.__file__ = "script.py"
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert "init_main" in str(multiprocessing.spawn.get_preparation_data("worker"))
    first, second = without_main(), without_main()
    first.__enter__()
    second.__enter__()  # another thread's, which ends later
    first.__exit__(None, None, None)
    assert "init_main" not in str(multiprocessing.spawn.get_preparation_data("worker"))
    second.__exit__(None, None, None)
    assert sys.modules["__main__"] is main
