# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The console script as processes that need not import first: each is forked from one that has.

`start` is `subprocess.Popen` of `python -m orchestrator`: a process of its own with the caller's
words, folder, environment and standard files, which gets signals and ends as any other. As a
program, this file is the server that imports and forks. What is about starting up (what is imported
when, what is said where a package is missing) needs a process that really starts.
"""

import contextlib
import functools
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping
from importlib import import_module
from pathlib import Path
from typing import IO, Any

PRELOAD = (
    "dask",
    "distributed",
    "orchestrator.api",
    "orchestrator.campaign.cluster",
    "orchestrator.campaign.report",
    "orchestrator.campaign.verify",
    "orchestrator.cli.main",
    "orchestrator.cli.tables",
    "orchestrator.emulation.session",
    "orchestrator.packet_simulation.rounds",
    "orchestrator.reporting.report",
    "orchestrator.runs.directory",
    "orchestrator.studies.cross_check",
    "orchestrator.theory.claims",
    "rich.progress",
    "rich.table",
    "testbed.host.doctor",
)
LEARNING = ("torch", "timm", "workloads.learning.real", "workloads.costs.counting")
SCRIPT = Path(__file__).resolve().parents[2] / "orchestrator" / "__main__.py"


class Process:
    """A command's process, used as a `subprocess.Popen`."""

    def __init__(self, words: list[str], told: int) -> None:
        self.args = words
        self.pid = int(os.read(told, 16))
        self.returncode: int | None = None
        self._told = told

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, negative for a signal's number.

        Raises:
            subprocess.TimeoutExpired: It has not ended in time.
        """
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(os.read(self._told, 16))
            os.close(self._told)
        return self.returncode

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    *words: object,
    stdout: IO[Any] | None = None,
    stderr: IO[Any] | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    hidden: Collection[str] = (),
    learns: bool = False,
) -> Process:
    """Start `testbed WORDS`; what it writes is dropped where no file is given.

    `hidden`: packages that are not installed, as the command sees it.
    `learns`: from a server that has imported torch, too.
    """
    said = [str(word) for word in words]
    order = {
        "words": said,
        "cwd": str(cwd or Path.cwd()),
        "env": dict(os.environ if env is None else env),
        "hidden": [*hidden],
    }
    told, told_end = os.pipe()
    with Path(os.devnull).open("w") as dropped:
        files = [file.fileno() for file in (stdout or dropped, stderr or dropped)]
        socket.send_fds(
            _server(learns, os.getpid()), [json.dumps(order).encode()], [*files, told_end]
        )
    os.close(told_end)
    return Process(said, told)


def run(*words: object, timeout: float = 240, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `testbed WORDS`, as `subprocess.run` does; the options are those of `start`."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = start(*words, stdout=out, stderr=err, **options)
        try:
            status = process.wait(timeout)
        except BaseException:
            process.kill()
            raise
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(process.args, status, out.read(), err.read())


@functools.cache
def _server(learns: bool, _: int) -> socket.socket:
    """The socket of a server of this process; it ends with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno()), *(LEARNING if learns else ())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=2,
        )
    return ours


# What follows runs in the server.


def main(descriptor: int, *more: str) -> None:
    """Import, then fork a process for each command, until the other side closes its socket."""
    for module in (*PRELOAD, *more):
        import_module(module)
    _load_kernel()
    gc.collect()
    gc.freeze()
    asked = socket.socket(fileno=descriptor)
    while True:
        text, files, _, _ = socket.recv_fds(asked, 1 << 20, 3)
        if not text:
            return
        if os.fork() == 0:
            asked.close()
            return _command(files, **json.loads(text))
        for file in files:
            os.close(file)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


class _Hiding:
    """Finds no module of some packages, before others find it."""

    def __init__(self, packages: list[str]) -> None:
        self._packages = packages

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in self._packages:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _load_kernel() -> None:
    import numpy as np
    from small_scenario import TREE

    import orchestrator

    flat = {"gain": np.full((3, 200), 1e-9), "slot_s": 0.1}
    orchestrator.predict(orchestrator.Scenario.model_validate(TREE), flat)


def _command(
    files: list[int], words: list[str], cwd: str, env: dict[str, str], hidden: list[str]
) -> None:
    """Be the command, and the process that tells how it ended."""
    out, err, told = files
    if pid := os.fork():
        os.write(told, f"{pid}\n".encode())
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(told, str(status).encode())
        os._exit(0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    for file in files:
        os.close(file)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path[0] = cwd
    if hidden:
        assert not {name.partition(".")[0] for name in sys.modules} & set(hidden)
        sys.meta_path.insert(0, _Hiding(hidden))
    sys.argv = [str(SCRIPT), *words]
    sys.modules["orchestrator.cli.main"].main()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
