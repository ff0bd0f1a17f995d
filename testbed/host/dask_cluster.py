# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A client of a Dask scheduler: of a given one, or of a temporary one on this machine.

`testbed.host.dask_nodes` has the testbed's schedulers and workers and imports Dask at once; this
module imports it when it is needed.
"""

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from testbed.core.errors import InputError
from testbed.system.leftovers import temporary_folder

CONNECT_S = 15
"""Seconds that a scheduler may take to answer, and its first worker to register."""

_main: list[ModuleType] = []
"""The program's main module, once for each `without_main` that is entered."""
_lock = threading.Lock()

CONFIG = {
    # No dashboard and no other web pages.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.nanny.http.routes": [],
    # A sampling profiler in every worker would take CPU time from emulated points.
    "distributed.worker.profile.enabled": False,
}


@dataclass(frozen=True)
class Cluster:
    """The workers that compute points."""

    scheduler: str | None = None
    """Address of a Dask scheduler; None starts workers on this machine, for this run."""
    workers: int | None = None
    """Worker processes on this machine; None: one per core; 0: compute in this process."""
    pool: bool = False
    """Whether to use a process pool, which starts faster than Dask but fails if a process is
    killed."""
    key: Path | None = None
    """Key file of the scheduler, see `dask_nodes.make_key`; None: it needs no key."""

    def __post_init__(self) -> None:
        if self.scheduler is not None and self.workers is not None:
            raise InputError("`workers`: are processes of this machine; `scheduler` has its own")
        if self.scheduler is None and self.key is not None:
            raise InputError("`key`: needs `scheduler`, which the key belongs to")
        if self.key is not None and not self.key.is_file():
            raise InputError(f"`key`: there is no file {self.key}")


@contextlib.contextmanager
def without_main() -> Iterator[None]:
    """Processes that are spawned in this context do not execute the user's script again.

    Python does so for functions that the script defines; workers need none. Otherwise, each script
    would have to protect its calls by `if __name__ == "__main__"`.
    """
    with _lock:
        _main.append(_main[0] if _main else sys.modules["__main__"])
        sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        with _lock:
            main = _main.pop()
            if not _main:
                sys.modules["__main__"] = main


@contextlib.contextmanager
def client_of(jobs: int, cluster: Cluster) -> Iterator[Any]:
    """A client of the given scheduler, or of a temporary one that ends with the context."""
    import distributed  # noqa: F401  its default settings must be loaded before ours
    from dask import config

    with config.set(CONFIG), without_main(), _connected(jobs, cluster) as client:
        yield client


@contextlib.contextmanager
def _connected(jobs: int, cluster: Cluster) -> Iterator[Any]:
    from dask import config
    from distributed import Client

    if cluster.scheduler is not None:
        secured = _secured(cluster.scheduler, cluster.key)
        try:
            client = Client(
                cluster.scheduler, timeout=CONNECT_S, set_as_default=False, security=secured
            )
        except (OSError, ValueError) as error:
            raise InputError(
                f"`scheduler`: {cluster.scheduler} does not answer ({error})"
            ) from None
        with client:
            try:
                client.wait_for_workers(1, timeout=CONNECT_S)
            except TimeoutError:
                raise InputError(f"`scheduler`: {cluster.scheduler} has no workers") from None
            yield client
        return
    workers = min(processes(cluster), jobs)
    with (
        temporary_folder("dask") as scratch,
        config.set({"temporary-directory": str(scratch)}),
        _local_cluster(workers) as local,
        Client(local, set_as_default=False) as client,
    ):
        yield client


def _secured(scheduler: str, key: Path | None) -> Any:
    """Security settings of a client of the scheduler: from the key file, or from Dask's
    configuration.

    Raises:
        InputError: The scheduler uses TLS, and there is neither a key file nor such a
            configuration.
    """
    from distributed import Security

    from testbed.host.dask_nodes import security

    secured = Security() if key is None else security(key)
    has_key = secured.get_connection_args("client")["ssl_context"] is not None
    if scheduler.startswith("tls:") and not has_key:
        raise InputError(f"`key`: is missing; {scheduler} requires it")
    return secured


def _local_cluster(workers: int) -> Any:
    """Worker processes on this machine that other users cannot use or observe.

    They listen on the loopback interface and require a certificate that was made for this run.
    """
    from distributed import Nanny, Security, SpecCluster

    from testbed.host.dask_nodes import QuietScheduler, SilentWorker

    common = {
        "host": "127.0.0.1",
        "protocol": "tls",
        "security": Security.temporary(),
        "dashboard": False,
    }
    options = common | {
        "worker_class": SilentWorker,
        "nthreads": 1,
        "memory_limit": 0,
        "silence_logs": logging.ERROR,
    }
    machine = {"resources": {"machine": 1}}
    specs = {
        index: {"cls": Nanny, "options": options | (machine if index == 0 else {})}
        for index in range(workers)
    }
    return SpecCluster(
        workers=specs,
        scheduler={
            "cls": QuietScheduler,
            "options": common | {"port": 0},
        },
        security=common["security"],
        silence_logs=logging.ERROR,
    )


def processes(cluster: Cluster) -> int:
    """Number of worker processes of a cluster on this machine."""
    return len(os.sched_getaffinity(0)) if cluster.workers is None else cluster.workers


def has_worker(client: Any, resources: dict[str, int] | None) -> bool:
    """Whether a worker offers these resources."""
    return any(
        worker["resources"].keys() >= (resources or {}).keys() for worker in workers_of(client)
    )


def workers_of(client: Any) -> list[dict[str, Any]]:
    """Information about each worker; empty if the scheduler has just ended."""
    return list(client.scheduler_info(n_workers=-1).get("workers", {}).values())
