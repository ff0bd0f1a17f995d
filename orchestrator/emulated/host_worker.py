# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Functions that run on a host through Dask: describe the host, and start its agent."""

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from orchestrator.records.manifest import environment
from testbed.cluster import agent
from testbed.cluster.messages import STARTING, BeHost
from testbed.control.codec import encode
from testbed.core.errors import RunError
from testbed.host import doctor
from testbed.system.files import sha256_of
from testbed.system.machine import gpus


def examine(
    files: Sequence[str], queue: str, congestion_control: str, *, dask_worker: Any
) -> dict[str, Any]:
    """The properties of this host as plain values.

    Args:
        files: Paths whose digests are returned; None for a missing file.
        queue: Queueing discipline of the links, which the kernel may lack.
        congestion_control: Congestion control of the links' ends, which the kernel may lack.
    """
    address = urlsplit(dask_worker.address).hostname or ""
    return {
        **environment(),
        "host": platform.node(),
        "address": address,
        "mtu": _mtu(address),
        "gpus": gpus(),
        "tunnels": os.geteuid() == 0,
        "lacks": doctor.lacking(queue, congestion_control),
        "files": {path: sha256_of(Path(path)) if Path(path).is_file() else None for path in files},
    }


def findings() -> list[dict[str, Any]]:
    """The findings of this host's doctor."""
    return [finding.to_json() for finding in doctor.examine()]


def _mtu(address: str) -> int:
    """MTU of the device with this address; 0 if there is none."""
    stats = psutil.net_if_stats()
    for device, addresses in psutil.net_if_addrs().items():
        if device in stats and any(each.address == address for each in addresses):
            return stats[device].mtu
    return 0


def start_agent(order: Mapping[str, Any]) -> dict[str, Any]:
    """Start this host's agent; returns its address and keys as the agent reports them."""
    be_host = STARTING.decode(order, b"")
    assert isinstance(be_host, BeHost)
    try:
        return dict(encode(agent.start(be_host))[0])
    except (OSError, RunError) as error:
        return {"failure": str(error)}
