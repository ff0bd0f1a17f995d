# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A Dask scheduler and two workers, each in a network namespace of its own; one worker is lost.

    unshare --user --map-root-user --net --pid --mount-proc --fork --kill-child \\
        python dask_over_namespaces.py FILE DIR

Runs inside a namespace that its caller made: here are the scheduler and the campaign. Each worker's
namespace is joined to it by a veth pair. When the first points are stored, the worker that holds
most of the others is killed. Prints one JSON object.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from orchestrator.campaigning.cluster import run_campaign
from orchestrator.campaigning.folder import CampaignFolder
from orchestrator.campaigning.spec import load_campaign
from testbed.host.dask_cluster import Cluster


def ip(*words: str) -> None:
    """One command of iproute2."""
    subprocess.run(["ip", *words], check=True)


def in_namespace(index: int, words: list[str]) -> subprocess.Popen[bytes]:
    """A program in a new network namespace, 10.99.index.2, joined to this one, 10.99.index.1."""
    script = 'read -r _; ip link set lo up; exec "$@"'
    process = subprocess.Popen(
        ["unshare", "--net", "bash", "-c", script, "bash", *words], stdin=subprocess.PIPE
    )
    own = Path("/proc/self/ns/net").readlink()
    while Path(f"/proc/{process.pid}/ns/net").readlink() == own:
        time.sleep(0.01)
    here, there = f"here{index}", f"there{index}"
    ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", str(process.pid))
    ip("address", "add", f"10.99.{index}.1/24", "dev", here)
    ip("link", "set", here, "up")
    enter = ["nsenter", "--net", "-t", str(process.pid), "ip"]
    address = f"10.99.{index}.2/24"
    subprocess.run([*enter, "address", "add", address, "dev", there], check=True)
    subprocess.run([*enter, "link", "set", there, "up"], check=True)
    subprocess.run([*enter, "route", "add", "default", "via", f"10.99.{index}.1"], check=True)
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    return process


def main(file: Path, out: Path) -> dict[str, Any]:
    """Run the campaign and lose a worker midway."""
    ip("link", "set", "lo", "up")
    dask = [sys.executable, "-m", "dask", "scheduler", "--host", "0.0.0.0"]
    subprocess.Popen([*dask, "--port", "8786", "--no-dashboard"])
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")  # workers may ask each other
    workers = [
        in_namespace(
            index,
            [sys.executable, "-m", "dask", "worker", f"tcp://10.99.{index}.1:8786",
             "--no-nanny", "--no-dashboard", "--nthreads", "1", "--name", f"w{index}",
             "--host", f"10.99.{index}.2"],
        )
        for index in (1, 2)
    ]  # fmt: skip
    seen: dict[str, int] = {}
    stores: list[str] = []

    class Counting(CampaignFolder):
        def store(self, id_: str, files: Any, instead: Path | None = None) -> None:
            stores.append(id_)
            process = json.loads(files["manifest.json"])["process"]
            seen[str(process)] = seen.get(str(process), 0) + 1
            super().store(id_, files, instead)
            # Both have delivered, much is left: the first worker is lost in the middle of its work.
            if len(seen) == 2 and workers[0].poll() is None:
                workers[0].send_signal(signal.SIGKILL)
                workers[0].wait()

    cluster = Cluster(scheduler="tcp://127.0.0.1:8786")
    deadline = time.monotonic() + 60
    while True:
        try:
            outcome = run_campaign(load_campaign(file), Counting(out), cluster=cluster)
            break
        except Exception:
            if time.monotonic() > deadline or stores:
                raise
            time.sleep(0.5)
    links = subprocess.run(["ip", "-json", "link"], capture_output=True, check=True)
    return {
        "points": outcome.points,
        "made": outcome.made,
        "failed": outcome.failed,
        "stored_twice": len(stores) - len(set(stores)),
        "by_process": seen,
        "lost_worker_status": workers[0].poll(),
        "links": sorted(link["ifname"] for link in json.loads(links.stdout)),
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), Path(sys.argv[2]))))
    sys.stdout.flush()
    os._exit(0)  # what was started ends with the PID namespace
