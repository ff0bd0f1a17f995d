# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What runs in the virtual machine: imports once, which takes minutes there, then forks each step.

Each step leaves `NAME.out`, `NAME.err` and, when it has ended, `NAME.json` in the results' folder.
"""

import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent / "support")]
USER = 1000
PRELOAD = (
    "orchestrator.archive.verify",
    "orchestrator.cli.main",
    "orchestrator.cli.printed_tables",
    "orchestrator.emulated.rounds",
    "orchestrator.reporting.report",
    "orchestrator.records.directory",
    "rich.progress",
    "rich.table",
    "testbed.host.doctor",
    "testbed.runtimes.namespace",
)
MADE = Path("/tmp/made")
KEPT = ("ns3-channel*", "backbone*", "profiles")
"""Of the host's cache: what takes long to make."""


def main(results: Path) -> None:
    """All steps of `steps.json`, one after another."""
    preload(PRELOAD)
    import_module("warm").load()
    give_user_a_home()
    MADE.mkdir()
    MADE.chmod(0o1777)
    steps = json.loads((results / "steps.json").read_text())
    with docker_daemon(any(step["docker"] for step in steps)):
        for step in steps:
            if step["learning"]:
                preload(import_module("warm").LEARNING)
            began = time.monotonic()
            status = run(step, results)
            # Copied, since sockets of runs are not for a file system of the host's.
            subprocess.run(["cp", "-r", "--update", f"{MADE}/.", str(results)], check=False)
            seconds = time.monotonic() - began
            (results / f"{step['name']}.json").write_text(
                json.dumps({"status": status, "seconds": round(seconds, 1)})
            )
            say(f"{step['name']}: status {status} after {seconds:.0f} s")


def preload(modules: Iterable[str]) -> None:
    """Import what steps need, before they are forked."""
    began = time.monotonic()
    for module in modules:
        import_module(module)
    gc.collect()
    gc.freeze()
    if (took_s := time.monotonic() - began) > 1:
        say(f"imported in {took_s:.0f} s")


def run(step: dict[str, Any], results: Path) -> int:
    """A step in a process of its own, up to its limit."""
    if (pid := os.fork()) == 0:
        try:
            os.setsid()
            for number, kind in ((1, "out"), (2, "err")):
                file = results / f"{step['name']}.{kind}"
                os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            os.environ.update(step["environment"])
            for key, value in step["sysctl"].items():
                Path("/proc/sys", key).write_text(value)
            if step["user"]:
                become_user()
            execute(step["words"])
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            status = 70
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    deadline = time.monotonic() + step["limit_s"]
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.2)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return 124


def execute(words: list[str]) -> None:
    """A command of the testbed, tests, or a program; ends by its status."""
    program, *rest = words
    os.environ["COLUMNS"] = "100"
    if program == "testbed":
        sys.argv = words
        import_module("orchestrator.cli.main").main()
    elif program == "pytest":
        raise SystemExit(int(import_module("pytest").main(rest)))
    else:
        raise SystemExit(subprocess.run(words, check=False).returncode)


def become_user() -> None:
    """An ordinary user, without a name."""
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    os.environ["HOME"] = "/home/user"


def give_user_a_home() -> None:
    """With what the host has made, so that nothing is compiled there."""
    from testbed.system.folders import cache_folder

    kept = [str(path) for pattern in KEPT for path in cache_folder().glob(pattern)]
    there = Path("/home/user/.cache") / cache_folder().name
    there.mkdir(parents=True)
    if kept:
        subprocess.run(["cp", "-r", *kept, str(there)], check=True)
    subprocess.run(["chown", "-R", f"{USER}:{USER}", "/home/user"], check=True)


@contextmanager
def docker_daemon(wanted: bool) -> Iterator[None]:
    """A daemon with nothing but what the testbed needs."""
    if not wanted:
        yield
        return
    words = ["dockerd", "--bridge=none", "--iptables=false", "--storage-driver=overlay2"]
    with (
        Path("/run/dockerd.log").open("w") as log,
        subprocess.Popen(words, stdout=log, stderr=log) as daemon,
    ):
        for _ in range(300):
            if Path("/run/docker.sock").exists() or daemon.poll() is not None:
                break
            time.sleep(1)
        yield
        daemon.terminate()


def say(what: str) -> None:
    """To the console, where the host reads it."""
    print(f"testbed: {what}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
