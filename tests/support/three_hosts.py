# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Three hosts on this machine: namespaces on a bridge, each with a clock of its own.

    unshare --net --pid --mount --fork --kill-child --mount-proc python three_hosts.py FOLDER JSON

Runs inside namespaces that its caller made, as root: here are the bridge, the scheduler and the
orchestrator. JSON is a list of what to do: `{"run": [arguments of the command line]}`, with
`"kill": NAME` to end that host once its nodes run, or `"narrow": RATE` to give what goes to beta
that rate meanwhile. Prints a JSON line for each: `status`, `stderr`, and `left`, the processes of
agents and worlds that are there a moment later. The MTU between hosts is that of the variable MTU;
where the variable ORDINARY is set, hosts are an ordinary user's.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

MTU = os.environ.get("MTU", "1600")
NOBODY = "65534"
OURS_ALONE = "/mnt"
"""Hidden behind memory that ends with this mount namespace, where there are ordinary users."""
HOSTS = {"alpha": 0, "beta": 1000, "gamma": 2_000_000}
"""By how many seconds their clocks are ahead of ours."""
TESTBED = [sys.executable, "-m", "orchestrator"]
WAIT_S = 120


def ip(*words: str) -> None:
    """One command of iproute2."""
    subprocess.run(["ip", *words], check=True)


def traffic(what: str, *words: str) -> None:
    """Change how fast beta's end of the bridge sends."""
    subprocess.run(["tc", "qdisc", what, "dev", "beta", "root", *words], check=True)


def until(condition: Any) -> Any:
    """Wait until it is true."""
    deadline = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


AS_NOBODY = f"--reuid {NOBODY} --regid {NOBODY} --clear-groups"


def open_up(path: Path) -> None:
    """Let others come as far as a folder, in this mount namespace alone."""
    for folder in (*reversed(path.parents), path):
        if folder.stat().st_mode & 0o5 == 0o5:
            continue
        behind = Path(tempfile.mkdtemp(dir=OURS_ALONE))
        subprocess.run(["mount", "--rbind", folder, behind], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "none", folder], check=True)
        for below in (each for each in behind.iterdir() if each.is_dir()):
            (folder / below.name).mkdir()
            subprocess.run(["mount", "--rbind", below, folder / below.name], check=True)


def as_nobody(key: Path) -> Path:
    """A copy of the key for the ordinary user, in a folder that is that user's."""
    folder = Path(tempfile.mkdtemp(dir=OURS_ALONE))
    mine = folder / "key"
    shutil.copyfile(key, mine)
    mine.chmod(0o600)
    for path in (folder, mine):
        os.chown(path, int(NOBODY), int(NOBODY))
    return mine


def host(index: int, name: str, key: Path, log: Path) -> subprocess.Popen[bytes]:
    """A host in namespaces of its own, 10.99.0.index."""
    script = 'read -r _; ip link set lo up; exec "$@"'
    if "ORDINARY" in os.environ:
        key = as_nobody(key)
        script = script.replace("exec", "exec env -C / HOME=$HOME setpriv " + AS_NOBODY)
        script = f"export HOME={key.parent}; {script}"
    testbed = [*TESTBED, "host", "tls://10.99.0.1:8786", "--key", str(key), "--name", name]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            ["unshare", "--net", "--mount", "--time", "--fork", "--kill-child",
             "--monotonic", str(HOSTS[name]), "bash", "-c", script, "bash", *testbed],
            stdin=subprocess.PIPE, stdout=stream, stderr=stream,
        )  # fmt: skip
    own = Path("/proc/self/ns/net").readlink()
    (inside,) = until(lambda: psutil.Process(process.pid).children())
    until(lambda: Path(f"/proc/{inside.pid}/ns/net").readlink() != own)
    ip("link", "add", name, "mtu", MTU, "type", "veth", "peer", "name", "eth0", "mtu", MTU,
       "netns", str(inside.pid))  # fmt: skip
    ip("link", "set", name, "master", "bridge", "up")
    enter = ["nsenter", "--net", "-t", str(inside.pid), "ip"]
    subprocess.run([*enter, "address", "add", f"10.99.0.{index}/24", "dev", "eth0"], check=True)
    subprocess.run([*enter, "link", "set", "eth0", "up"], check=True)
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    return process


NODE = "workloads.nodes.program"
OURS = ("testbed.cluster.agent", "testbed.runtimes.namespace", NODE)


def workers(words: Sequence[str] = OURS) -> list[psutil.Process]:
    """Processes of agents, worlds and nodes."""
    found = []
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if any(word in line for word in words) and process.status() != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def nodes() -> list[psutil.Process]:
    """Those that are nodes by now."""
    return workers([NODE])


def main(folder: Path, jobs: list[dict[str, Any]]) -> None:
    """Make hosts, and do the jobs."""
    if "ORDINARY" in os.environ:
        memory = ["mount", "-t", "tmpfs", "-o", "mode=755", "none", OURS_ALONE]
        subprocess.run(memory, check=True)
        for needed in (sys.base_prefix, sys.prefix, str(Path(__file__).parents[2])):
            open_up(Path(needed))
    ip("link", "set", "lo", "up")
    ip("link", "add", "bridge", "mtu", MTU, "type", "bridge")
    ip("address", "add", "10.99.0.1/24", "dev", "bridge")
    ip("link", "set", "bridge", "up")
    key = folder / "key"
    with (folder / "scheduler.log").open("wb") as log:
        subprocess.Popen(
            [*TESTBED, "campaign", "scheduler", "--host", "10.99.0.1", "--key", key], stderr=log
        )
    address = "tls://10.99.0.1:8786"
    until(lambda: f"testbed: {address}" in (folder / "scheduler.log").read_text())
    there = {
        name: host(index, name, key, folder / f"{name}.log") for index, name in enumerate(HOSTS, 2)
    }
    from distributed import Client

    from testbed.host.dask_nodes import security

    with Client(address, security=security(key), set_as_default=False) as client:
        client.wait_for_workers(len(HOSTS), timeout=WAIT_S)
    for job in jobs:
        if "narrow" in job:
            traffic("add", "tbf", "rate", job["narrow"], "burst", "64k", "latency", "20ms")
        words = [*TESTBED, "run", *job["run"], "--scheduler", address, "--key", str(key)]
        run = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if "kill" in job:
            until(lambda j=job, r=run: len(nodes()) >= j["nodes"] or r.poll() is not None)
            there[job["kill"]].send_signal(signal.SIGKILL)
        _, stderr = run.communicate(timeout=job.get("limit_s", 2 * WAIT_S))
        if "narrow" in job:
            traffic("del")
        deadline = time.monotonic() + 15
        while (left := workers()) and time.monotonic() < deadline:
            time.sleep(0.05)
        told = {"status": run.returncode, "stderr": stderr, "left": [str(p) for p in left]}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    signal.alarm(600)
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
    os._exit(0)  # What was started ends with the PID namespace.
