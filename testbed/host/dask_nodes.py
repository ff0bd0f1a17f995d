# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A Dask scheduler and workers that require a key and serve no web pages.

A scheduler runs any submitted code on every worker, and Dask starts an HTTP server even without a
dashboard. These schedulers and workers use only TLS, accept only peers with the same key file, and
open no other ports.
"""

import asyncio
import contextlib
import errno
import logging
import os
import platform
import re
import socket
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from distributed import Nanny, Scheduler, Security, Worker
from distributed.comm import parse_address
from distributed.comm.addressing import parse_host_port
from tornado.netutil import bind_sockets

from testbed.core.errors import InputError, RunError
from testbed.core.words import why
from testbed.system.files import read_regular

log = logging.getLogger(__name__)

MOST_KEY_BYTES = 1 << 16
HOST = "host"
"""Dask resource that a host of distributed runs offers."""
SILENT_S = 60
"""Seconds without heartbeats after which the scheduler removes a worker; its name is then free
again."""
REFUSALS = 3
"""Refused handshakes after which a worker ends: another key does not become right by waiting."""
PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
"""Pause between attempts to reach a scheduler, which doubles each time, and its limit."""
GREETING_S = 10.0
"""Seconds that a scheduler may take for a handshake."""
_PEM = re.compile(r"-----BEGIN ([A-Z ]+)-----.+?-----END \1-----\n?", re.DOTALL)


class QuietScheduler(Scheduler):  # type: ignore[misc]
    """A scheduler without an HTTP server."""

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Do nothing: the web pages are not served."""


class QuietWorker(Worker):  # type: ignore[misc]
    """A worker without an HTTP server."""

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Do nothing: the web pages are not served."""


class SilentWorker(QuietWorker):
    """A worker without log output: the process that created it reports its state.

    Otherwise a heartbeat during the end of its cluster would be logged with a traceback.
    """

    def __init__(self, *words: Any, **options: Any) -> None:
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        super().__init__(*words, **options)


class _Seldom(logging.Filter):
    """Passes the first, second, fourth, eighth … message: strangers can cause any number."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the message is logged."""
        self._count += 1
        if record.levelno >= logging.ERROR or self._count & (self._count - 1):
            return record.levelno >= logging.ERROR
        record.msg, record.args = f"{record.getMessage()} ({self._count} such messages)", ()
        return True


def make_key(path: Path) -> None:
    """Write a new key file that only its owner can read; an existing file is left unchanged.

    Raises:
        InputError: The file cannot be written.
    """
    made = Security.temporary()
    text = f"{made.tls_scheduler_key}{made.tls_scheduler_cert}"
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    except OSError as error:
        raise InputError(f"`key`: {path} cannot be written ({error.strerror})") from None
    with os.fdopen(file, "w") as stream:
        stream.write(text)


def security(path: Path) -> Security:
    """Security settings of connections, from a key file.

    Raises:
        InputError: The file is not a key file, is not valid today, or other users may read it.
    """
    try:
        text = read_regular(path, MOST_KEY_BYTES).decode("ascii")
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise InputError(f"`key`: {path} cannot be read ({why(error)})") from None
    if mode & 0o077:
        raise InputError(f"`key`: other users may read {path}; `chmod 600` it, or make a new one")
    found = {match[1]: match[0] for match in _PEM.finditer(text)}
    key = next((pem for kind, pem in found.items() if kind.endswith("PRIVATE KEY")), None)
    certificate = found.get("CERTIFICATE")
    if key is None or certificate is None:
        raise InputError(f"`key`: {path} holds no key with its certificate")
    try:
        about = x509.load_pem_x509_certificate(certificate.encode())
    except ValueError:
        raise InputError(f"`key`: {path} holds no key with its certificate") from None
    if not about.not_valid_before_utc <= datetime.now(UTC) <= about.not_valid_after_utc:
        raise InputError(
            f"`key`: {path} is valid from {about.not_valid_before_utc:%Y-%m-%d} to "
            f"{about.not_valid_after_utc:%Y-%m-%d}; remove it, and `testbed campaign scheduler` "
            "makes a new one"
        )
    ends = {f"tls_{who}_key": key for who in ("client", "scheduler", "worker")}
    ends |= {f"tls_{who}_cert": certificate for who in ("client", "scheduler", "worker")}
    return Security(require_encryption=True, tls_ca_file=certificate, **ends)


def serve_scheduler(host: str, port: int, key: Path, ready: Any = None) -> None:
    """Run a scheduler until it is stopped.

    Args:
        host: The address to listen on.
        port: The port to listen on; 0: any free port.
        key: See `make_key`; it is made if there is none.
        ready: Called with the scheduler's address when it is listening.

    Raises:
        InputError: The scheduler cannot listen on this address, or cannot use this key.
    """
    _check_free(host, port)
    make_key(key)
    secured = security(key)
    logging.getLogger("distributed.comm.tcp").addFilter(_Seldom())

    async def serve() -> None:
        node = QuietScheduler(
            host=host,
            port=port,
            protocol="tls",
            security=secured,
            dashboard=False,
            worker_ttl=SILENT_S,
        )
        async with node:
            if ready is not None:
                ready(node.address)
            await node.finished()

    asyncio.run(serve())


def _check_free(host: str, port: int) -> None:
    """Check that this machine can listen on an address: Dask fails with a traceback.

    Raises:
        InputError: It cannot; the message names the host or the port.
    """
    try:
        for sock in bind_sockets(port, host):
            sock.close()
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        match getattr(error, "errno", None):
            case errno.EADDRNOTAVAIL | socket.EAI_NONAME:
                raise InputError(f"`host`: this machine does not have the address {host}") from None
            case errno.EADDRINUSE:
                raise InputError(f"`port`: {port} of {host} is in use") from None
            case errno.EACCES:
                raise InputError(f"`port`: {port}: this user may not listen on it") from None
        raise InputError(f"`host`: cannot listen on {host} ({why})") from None


def _greet(scheduler: str, key: Path) -> Security:
    """Wait until a scheduler answers; returns the security settings of workers.

    Raises:
        InputError: The address or the key file is invalid, or the scheduler has another key.
    """
    secured = security(key)
    host, port = _place(scheduler)
    context = secured.get_connection_args("worker")["ssl_context"]

    async def greet() -> None:
        refused, pause_s = 0, PAUSE_S
        while True:
            try:
                connecting = asyncio.open_connection(host, port, ssl=context, server_hostname=host)
                _, writer = await asyncio.wait_for(connecting, GREETING_S)
            except ssl.SSLError as error:
                if (refused := refused + 1) == REFUSALS:
                    raise InputError(_refusal(scheduler, key, error)) from None
            except (OSError, TimeoutError) as error:
                if pause_s == PAUSE_S:
                    log.info("waiting for %s (%s)", scheduler, getattr(error, "strerror", error))
            else:
                writer.close()
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    asyncio.run(greet())
    return secured


def _refusal(scheduler: str, key: Path, error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"`key`: {scheduler} uses another key than {key} ({error.verify_message})"
    return f"{scheduler}: is no scheduler with TLS ({getattr(error, 'reason', None) or error})"


def _place(scheduler: str) -> tuple[str, int]:
    """Host and port of a scheduler.

    Raises:
        InputError: The scheduler's address is invalid.
    """
    try:
        host, port = parse_host_port(parse_address(scheduler)[1])
    except ValueError:
        raise InputError(f"{scheduler}: must be tls://HOST:PORT") from None
    return host, port


def _own_address(scheduler: str) -> str | None:
    """The address to listen on: the one from which this machine reaches the scheduler.

    None, which means all addresses, if the scheduler's name cannot be resolved yet.

    Raises:
        InputError: The scheduler's address is invalid.
    """
    host, port = _place(scheduler)
    try:
        ((family, _, _, _, at), *_) = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect(at)  # sends no packet
            return str(sock.getsockname()[0])
    except OSError:
        return None


def serve_host(scheduler: str, key: Path, name: str | None) -> None:
    """Run a host of distributed runs until it is stopped.

    Args:
        scheduler: Address of the scheduler, `tls://…`.
        key: Key file of the scheduler.
        name: Name of the host in scenarios; None: the machine's host name.

    Raises:
        InputError: The scheduler has another key.
        RunError: The scheduler refuses the host.
    """
    secured = _greet(scheduler, key)

    async def serve() -> None:
        node = QuietWorker(
            scheduler,
            host=_own_address(scheduler),
            name=name or platform.node(),
            nthreads=1,
            memory_limit=0,
            security=secured,
            dashboard=False,
            resources={HOST: 1},
        )
        async with node:
            await node.finished()

    try:
        asyncio.run(serve())
    except (OSError, ValueError) as error:  # ValueError: the name is already used.
        raise RunError(f"{scheduler}: {error}") from None


def serve_workers(scheduler: str, key: Path, workers: int, *, machine: bool) -> None:
    """Run workers of a scheduler until they are stopped or the scheduler ends.

    Args:
        scheduler: Address of the scheduler, `tls://…`.
        key: Key file of the scheduler.
        workers: Number of processes.
        machine: Whether they also run emulated points; only one worker per machine should.

    Raises:
        InputError: The scheduler has another key.
    """
    secured = _greet(scheduler, key)
    options = {
        "host": _own_address(scheduler),
        "nthreads": 1,
        "memory_limit": 0,
        "security": secured,
        "dashboard": False,
        "worker_class": QuietWorker,
        "resources": {"machine": 1} if machine else None,
    }

    async def serve() -> None:
        async with contextlib.AsyncExitStack() as stack:
            nodes = [
                await stack.enter_async_context(Nanny(scheduler, **options)) for _ in range(workers)
            ]
            await asyncio.gather(*(node.finished() for node in nodes))

    asyncio.run(serve())
