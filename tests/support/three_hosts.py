# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Three hosts on this machine: namespaces on a bridge, each with a clock of its own.

    unshare --net --pid --mount --fork --kill-child --mount-proc python three_hosts.py FOLDER JSON

Runs inside namespaces that its caller made, as root: here are the bridge, the scheduler and the
orchestrator. JSON is a list of what to do, where `Job` says what there is to be said: a command of
the testbed is run, while something happens to a host. Prints a JSON line for each: `status`,
`stdout`, `stderr`, `seconds`, when it was struck (`struck_s`), and what there is of agents and
worlds a moment later: their processes (`left`), and, after `testbed clean`, their files (`files`)
and what it could not do (`unclean`).
The MTU between hosts is that of the variable MTU; where the variable ORDINARY is set, hosts are an
ordinary user's.
"""

import contextlib
import json
import mmap
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil

MTU = os.environ.get("MTU", "1600")
NOBODY = "65534"
OURS_ALONE = "/mnt"
"""Hidden behind memory that ends with this mount namespace, where there are ordinary users."""
AS_NOBODY = f"--reuid {NOBODY} --regid {NOBODY} --clear-groups"
HOSTS = {"alpha": 0, "beta": 1000, "gamma": 2_000_000}
"""By how many seconds their clocks are ahead of ours."""
TESTBED = [sys.executable, "-m", "orchestrator"]
WAIT_S = 300
GONE_S = 30.0
"""After a command has ended, all that it has made on any host is gone: a host that hears nothing
more ends its part after half of that."""
SOCKET = "session.sock"
SAID = "hello\n"
"""What visitors' programs may read."""
NODE = "workloads.nodes.program"
AGENT = "testbed.cluster.agent"
OURS = (AGENT, "testbed.runtimes.namespace", "testbed.network.injector", NODE)
JUMPY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
/* The monotonic clock, ahead by as many nanoseconds as the file of the variable JUMP says. */
int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*kernels)(clockid_t, struct timespec *);
    static const volatile int64_t *ahead;
    if (!kernels) {
        int file = open(getenv("JUMP"), O_RDONLY | O_CLOEXEC);
        ahead = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
        close(file);
        kernels = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    }
    int status = kernels(id, now);
    if (!status && id == CLOCK_MONOTONIC) {
        int64_t ns = now->tv_nsec + *ahead;
        now->tv_sec += ns / 1000000000;
        now->tv_nsec = ns % 1000000000;
    }
    return status;
}
"""
"""A library for the programs of a host: the kernel lets nobody set a monotonic clock."""


@dataclass(frozen=True)
class Job:
    """A command, and what happens meanwhile."""

    run: list[str]
    """Its arguments; scheduler and key are added."""
    command: str = "run"
    strike: Literal["", "worker", "agent", "cut", "jump"] = ""
    """Kill the host's worker or agent, take its network away, set its clock forward."""
    host: str = ""
    after_s: float = 0.0
    """Since all nodes run."""
    nodes: int = 0
    """So many are all."""
    lasts_s: float | None = None
    """Seconds without the network; None: for ever."""
    jump_s: float = 0.0
    narrow: str = ""
    """What goes to beta has that rate meanwhile."""
    visits: list[list[str]] = field(default_factory=list)
    """What `testbed exec` is given, one after the other, once the session is up: `visits` of what
    came of the job has `status`, `stdout` and `stderr` of each."""
    limit_s: float = 2.0 * WAIT_S


def ip(*words: str) -> None:
    """One command of iproute2."""
    subprocess.run(["ip", *words], check=True)


def traffic(what: str, *words: str) -> None:
    """Change how fast beta's end of the bridge sends."""
    subprocess.run(["tc", "qdisc", what, "dev", "beta", "root", *words], check=True)


def until(condition: Callable[[], Any]) -> Any:
    """Wait until it is true."""
    deadline = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def ours(words: Sequence[str] = OURS) -> list[psutil.Process]:
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


class Host:
    """A host in namespaces of its own, 10.99.0.index, with a worker in it."""

    def __init__(self, index: int, name: str, scheduler: str, key: Path, folder: Path) -> None:
        self.index, self.name = index, name
        self._scheduler, self._key = scheduler, key
        self._log = (folder / f"{name}.log").open("ab")
        self._jump = folder / f"{name}.jump"
        self._jump.write_bytes(bytes(8))
        library = folder / "jumpy.so"
        self._env = dict(os.environ)
        if library.exists():
            self._env |= {"LD_PRELOAD": str(library), "JUMP": str(self._jump)}
        self.start()

    def start(self) -> None:
        """Begin, or begin anew."""
        self.set_ahead(0.0)
        script = 'read -r _; ip link set lo up; exec "$@"'
        env = self._env
        if "ORDINARY" in os.environ:
            env, self._key = dict(os.environ), as_nobody(self._key)
            del env["TMPDIR"]
            script = script.replace("exec", "exec env -C / HOME=$HOME setpriv " + AS_NOBODY)
            script = f"export HOME={self._key.parent}; {script}"
        testbed = [*TESTBED, "host", self._scheduler, "--key", str(self._key), "--name", self.name]
        self.process = subprocess.Popen(
            ["unshare", "--net", "--mount", "--time", "--fork", "--kill-child",
             "--monotonic", str(HOSTS[self.name]), "bash", "-c", script, "bash", *testbed],
            stdin=subprocess.PIPE, stdout=self._log, stderr=self._log, env=env,
        )  # fmt: skip
        own = Path("/proc/self/ns/net").readlink()
        (self.worker,) = until(lambda: psutil.Process(self.process.pid).children())
        until(lambda: self.net != own)
        ip("link", "add", self.name, "mtu", MTU, "type", "veth", "peer", "name", "eth0",
           "mtu", MTU, "netns", str(self.worker.pid))  # fmt: skip
        ip("link", "set", self.name, "master", "bridge", "up")
        enter = ["nsenter", "--net", "-t", str(self.worker.pid), "ip"]
        address = f"10.99.0.{self.index}/24"
        subprocess.run([*enter, "address", "add", address, "dev", "eth0"], check=True)
        subprocess.run([*enter, "link", "set", "eth0", "up"], check=True)
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    @property
    def net(self) -> Path:
        """Its network namespace."""
        return Path(f"/proc/{self.worker.pid}/ns/net").readlink()

    @property
    def agent(self) -> psutil.Process:
        """Its agent, while there is a run."""
        return next(
            p for p in ours([AGENT]) if Path(f"/proc/{p.pid}/ns/net").readlink() == self.net
        )

    def set_ahead(self, seconds: float) -> None:
        """Let its clock jump, as its programs read it."""
        with self._jump.open("r+b") as file, mmap.mmap(file.fileno(), 8) as shared:
            shared[:] = struct.pack("=q", round(seconds * 1e9))

    def end(self) -> None:
        """Let its worker die, and its network with it."""
        self.process.kill()
        self.process.wait()
        # The namespace goes with its last process, and the pair with it: it may have gone already.
        subprocess.run(["ip", "link", "del", self.name], capture_output=True)


def strike(job: Job, host: Host) -> None:
    """Let it happen."""
    match job.strike:
        case "worker":
            host.process.kill()
        case "agent":
            # Where the run is just ending, there is none any more.
            with contextlib.suppress(StopIteration, psutil.NoSuchProcess):
                host.agent.kill()
        case "jump":
            host.set_ahead(job.jump_s)
        case "cut":
            ip("link", "set", host.name, "down")
            if job.lasts_s is not None:
                time.sleep(job.lasts_s)
                ip("link", "set", host.name, "up")


def made(visits: Sequence[list[str]], going: Callable[[], bool]) -> list[dict[str, Any]]:
    """Visit a session, once it is up; what came of each, as long as it goes on."""
    done: list[dict[str, Any]] = []
    for folder, *words in visits:
        until(lambda at=folder: (Path(at) / SOCKET).exists() or not going())
        visit = [*TESTBED, "exec", folder, *words]
        told = subprocess.run(visit, input=SAID, capture_output=True, text=True, timeout=WAIT_S)
        about = {"status": told.returncode, "stdout": told.stdout, "stderr": told.stderr}
        done.append(about)
    return done


@contextlib.contextmanager
def narrowed(rate: str) -> Iterator[None]:
    """With what goes to beta at that rate, where one is given."""
    if rate:
        traffic("add", "tbf", "rate", rate, "burst", "64k", "latency", "20ms")
    yield
    if rate:
        traffic("del")


class Place:
    """The bridge, the scheduler, and its hosts."""

    def __init__(self, folder: Path, *, jumps: bool) -> None:
        """Begin; clocks may be set if `jumps`."""
        self.folder = folder
        # Files of agents that are killed stay; nobody else's are to be among them.
        self.tmp = Path(tempfile.mkdtemp(dir=folder))
        os.environ["TMPDIR"] = str(self.tmp)
        if jumps:
            source, library = folder / "jumpy.c", folder / "jumpy.so"
            source.write_text(JUMPY)
            words = ["cc", "-shared", "-fPIC", "-O1", source, "-o", library, "-ldl"]
            subprocess.run(words, check=True)
        ip("link", "set", "lo", "up")
        ip("link", "add", "bridge", "mtu", MTU, "type", "bridge")
        ip("address", "add", "10.99.0.1/24", "dev", "bridge")
        ip("link", "set", "bridge", "up")
        self.key = folder / "key"
        with (folder / "scheduler.log").open("wb") as log:
            words = ["campaign", "scheduler", "--host", "10.99.0.1", "--key", str(self.key)]
            subprocess.Popen([*TESTBED, *words], stderr=log)
        self.scheduler = "tls://10.99.0.1:8786"
        told = f"testbed: {self.scheduler}"
        until(lambda: told in (folder / "scheduler.log").read_text())
        self.hosts = {
            name: Host(index, name, self.scheduler, self.key, folder)
            for index, name in enumerate(HOSTS, 2)
        }
        self.await_hosts()

    def await_hosts(self, but: str = "") -> None:
        """Wait until the scheduler has them all, but one that is gone.

        It may have gone without a word, and its name is taken until the scheduler forgets it.
        """
        from distributed import Client

        from testbed.host.dask_nodes import security

        with Client(self.scheduler, security=security(self.key), set_as_default=False) as client:

            def are_there() -> bool:
                workers = client.scheduler_info(n_workers=-1)["workers"].values()
                return {worker["name"] for worker in workers} == HOSTS.keys() - {but}

            until(are_there)

    def do(self, job: Job) -> dict[str, Any]:
        """Do a job; what came of it."""
        words = [
            *TESTBED,
            job.command,
            *job.run,
            "--scheduler",
            self.scheduler,
            "--key",
            str(self.key),
        ]
        began, struck_s = time.monotonic(), None
        with narrowed(job.narrow), tempfile.TemporaryFile("w+") as said:
            run = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=said, text=True)
            visits = made(job.visits, lambda: run.poll() is None)
            if job.strike:
                until(lambda: len(ours([NODE])) >= job.nodes or run.poll() is not None)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    run.wait(job.after_s)
                if run.poll() is None:
                    struck_s = time.monotonic() - began
                    strike(job, self.hosts[job.host])
            try:
                stdout, _ = run.communicate(timeout=job.limit_s)
            except subprocess.TimeoutExpired:
                run.kill()
                stdout, _ = run.communicate()
            said.seek(0)
            told = {
                "status": run.returncode,
                "stdout": stdout,
                "stderr": said.read(),
                "seconds": time.monotonic() - began,
                "struck_s": struck_s,
                "visits": visits,
            }
        deadline = time.monotonic() + GONE_S
        while (left := ours()) and time.monotonic() < deadline:
            time.sleep(0.05)
        told["left"] = [f"{each.pid} {' '.join(each.cmdline())}" for each in left]
        cleaned = subprocess.run([*TESTBED, "clean"], capture_output=True, text=True)
        told["unclean"] = cleaned.stderr if cleaned.returncode else ""
        told["files"] = [path.name for path in self.tmp.iterdir() if "testbed-" in path.name]
        self._mend(job)
        return told

    def _mend(self, job: Job) -> None:
        if job.strike == "jump":
            self.hosts[job.host].set_ahead(0.0)
        if job.strike == "worker" or (job.strike == "cut" and job.lasts_s is None):
            self.hosts[job.host].end()
            self.await_hosts(but=job.host)
            self.hosts[job.host].start()
        if job.strike:
            self.await_hosts()


def main(folder: Path, jobs: Sequence[dict[str, Any]]) -> None:
    """Make hosts, and do the jobs."""
    if "ORDINARY" in os.environ:
        memory = ["mount", "-t", "tmpfs", "-o", "mode=755", "none", OURS_ALONE]
        subprocess.run(memory, check=True)
        for needed in (sys.base_prefix, sys.prefix, str(Path(__file__).parents[2])):
            open_up(Path(needed))
    place = Place(folder, jumps=any(job.get("strike") == "jump" for job in jobs))
    for job in jobs:
        print(json.dumps(place.do(Job(**job))), flush=True)
    shutil.rmtree(place.tmp, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
    os._exit(0)  # What was started ends with the PID namespace.
