# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A Dask scheduler and workers that require a key and serve no web pages.

A scheduler runs any submitted code on every worker, and Dask starts an HTTP server even without a
dashboard. These schedulers and workers use only TLS, accept only peers with the same key file, and
open no other ports.
"""

import asyncio
import contextlib
import logging
import os
import platform
import re
import socket
from pathlib import Path
from typing import Any

from distributed import Nanny, Scheduler, Security, Worker
from distributed.comm import parse_address
from distributed.comm.addressing import parse_host_port

from testbed.core.errors import InputError, RunError
from testbed.system.files import read_regular

MOST_KEY_BYTES = 1 << 16
HOST = "host"
"""Dask resource that a host of distributed runs offers."""
SILENT_S = 60
"""Seconds without heartbeats after which the scheduler removes a worker; its name is then free
again."""
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
        InputError: The file is not a key file, or other users may read it.
    """
    try:
        text = read_regular(path, MOST_KEY_BYTES).decode("ascii")
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise InputError(f"`key`: {path} cannot be read ({error})") from None
    if mode & 0o077:
        raise InputError(f"`key`: other users may read {path}; `chmod 600` it, or make a new one")
    found = {match[1]: match[0] for match in _PEM.finditer(text)}
    key = next((pem for kind, pem in found.items() if kind.endswith("PRIVATE KEY")), None)
    certificate = found.get("CERTIFICATE")
    if key is None or certificate is None:
        raise InputError(f"`key`: {path} holds no key with its certificate")
    ends = {f"tls_{who}_key": key for who in ("client", "scheduler", "worker")}
    ends |= {f"tls_{who}_cert": certificate for who in ("client", "scheduler", "worker")}
    return Security(require_encryption=True, tls_ca_file=certificate, **ends)


def serve_scheduler(host: str, port: int, key: Path, ready: Any = None) -> None:
    """Run a scheduler until it is stopped.

    Args:
        host: The address to listen on.
        port: The port to listen on; 0: any free port.
        key: See `make_key`.
        ready: Called with the scheduler's address when it is listening.

    Raises:
        RunError: The scheduler cannot listen on this address.
    """

    async def serve() -> None:
        node = QuietScheduler(
            host=host,
            port=port,
            protocol="tls",
            security=security(key),
            dashboard=False,
            worker_ttl=SILENT_S,
        )
        async with node:
            if ready is not None:
                ready(node.address)
            await node.finished()

    try:
        asyncio.run(serve())
    except OSError as error:
        raise RunError(f"cannot listen on {host}:{port} ({error.strerror or error})") from None


def _own_address(scheduler: str) -> str | None:
    """The address to listen on: the one from which this machine reaches the scheduler.

    None, which means all addresses, if the scheduler's name cannot be resolved yet.

    Raises:
        InputError: The scheduler's address is invalid.
    """
    try:
        host, port = parse_host_port(parse_address(scheduler)[1])
    except ValueError:
        raise InputError(f"{scheduler}: must be tls://HOST:PORT") from None
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
        RunError: The scheduler does not answer.
    """

    async def serve() -> None:
        node = QuietWorker(
            scheduler,
            host=_own_address(scheduler),
            name=name or platform.node(),
            nthreads=1,
            memory_limit=0,
            security=security(key),
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
    """
    options = {
        "host": _own_address(scheduler),
        "nthreads": 1,
        "memory_limit": 0,
        "security": security(key),
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
