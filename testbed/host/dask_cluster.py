# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A client of a Dask scheduler: one that is named, or one of this machine for as long as it takes.

Workers and schedulers of ours: `testbed.host.dask_nodes`, which imports Dask; this does when asked.
"""

import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.core.errors import InputError
from testbed.system.leftovers import temporary_folder

CONNECT_S = 15
"""How long a scheduler may take to answer, and its first worker to come."""

CONFIG = {
    # Nothing to look at, nothing to listen with: no dashboard, and no pages beside it.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.nanny.http.routes": [],
    # A sampling profiler in every worker would take CPU time from emulated points.
    "distributed.worker.profile.enabled": False,
}


@dataclass(frozen=True)
class Cluster:
    """Where points are computed."""

    scheduler: str | None = None
    """Address of a Dask scheduler; None starts workers on this machine, for this run."""
    workers: int | None = None
    """Processes on this machine; None: one a core; 0: none but this one."""
    pool: bool = False
    """Processes that start faster than Dask's; but if one is killed, all ends."""
    key: Path | None = None
    """The scheduler's key file, see `dask_nodes.make_key`; None: it asks for none."""


@contextlib.contextmanager
def client_of(jobs: int, cluster: Cluster) -> Iterator[Any]:
    """A client of the scheduler that is named, or of one that lives as long as the context."""
    import distributed  # noqa: F401  brings its defaults, which must be there before ours
    from dask import config

    with config.set(CONFIG), _connected(jobs, cluster) as client:
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
    """What a client of the scheduler needs to be let in: the key, or what Dask's settings name.

    Raises:
        InputError: It speaks TLS, and there is neither.
    """
    from distributed import Security

    from testbed.host.dask_nodes import security

    secured = Security() if key is None else security(key)
    has_key = secured.get_connection_args("client")["ssl_context"] is not None
    if scheduler.startswith("tls:") and not has_key:
        raise InputError(f"`key`: is missing; {scheduler} lets in who has it")
    return secured


def _local_cluster(workers: int) -> Any:
    """Worker processes on this machine; nobody else on it can give them work, or see it.

    They listen on the loopback interface, and ask for a certificate that was made for this run.
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
    """How many worker processes a cluster of this machine has."""
    return len(os.sched_getaffinity(0)) if cluster.workers is None else cluster.workers


def has_worker(client: Any, resources: dict[str, int] | None) -> bool:
    """Whether a worker is there who offers these resources."""
    return any(
        worker["resources"].keys() >= (resources or {}).keys() for worker in workers_of(client)
    )


def workers_of(client: Any) -> list[dict[str, Any]]:
    """What the scheduler says of each worker that is there; nothing where it has just gone."""
    return list(client.scheduler_info(n_workers=-1).get("workers", {}).values())
