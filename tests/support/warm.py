# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The console script as processes that need not import first: each is forked from one that has.

`start` is `subprocess.Popen` of `python -m orchestrator`: a process of its own with the caller's
words, folder, environment and standard files, which gets signals and ends as any other. `program`
writes a console script that does the same for a shell, `python` an interpreter that has imported.
As a program, this file is the server that imports and forks. What is about starting up (what is
imported when, what is said where a package is missing) needs a process that really starts.
"""

import atexit
import contextlib
import gc
import json
import multiprocessing
import os
import select
import signal
import site
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import IO, Any, NoReturn

PRELOAD = (
    "dask",
    "distributed",
    "orchestrator.api",
    "orchestrator.campaigning.cluster",
    "orchestrator.campaigning.report",
    "orchestrator.campaigning.verify",
    "orchestrator.cli.main",
    "orchestrator.cli.printed_tables",
    "orchestrator.emulated.rounds",
    "orchestrator.rounds.packet_rounds",
    "orchestrator.reporting.report",
    "orchestrator.records.directory",
    "orchestrator.studies.cross_check",
    "orchestrator.analytical.claims",
    "rich.progress",
    "rich.table",
    "testbed.host.doctor",
)
LEARNING = ("torch", "timm", "workloads.learning.real", "workloads.costs.counting")
TESTS = ("docker", "orchestrator.reporting.plots")
"""What tests import, too."""
SHARED = "TESTBED_WARM"
"""In the environment: the addresses of servers that are shared, with torch the second."""
SCRIPT = Path(__file__).resolve().parents[2] / "orchestrator" / "__main__.py"


class Process:
    """A command's process, used as a `subprocess.Popen`."""

    def __init__(self, words: list[str], told: socket.socket) -> None:
        self.args = words
        self.pid = int(told.recv(16))
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
            self.returncode = int(self._told.recv(16))
            self._told.close()
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
    told = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    told.connect(_address(learns))
    with Path(os.devnull).open("w") as dropped:
        files = [file.fileno() for file in (stdout or dropped, stderr or dropped)]
        socket.send_fds(told, [json.dumps(order).encode()], files)
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


class Server:
    """Imports, then forks a process for each that connects, until it is told to end."""

    def __init__(self, *more: str) -> None:
        """`more`: modules that it imports, too."""
        self._ours, theirs = socket.socketpair()
        with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind("")  # a name that the kernel chooses, in no folder
            listener.listen(64)
            self.address: bytes = listener.getsockname()
            numbers = [listener.fileno(), theirs.fileno()]
            self._process = subprocess.Popen(
                [sys.executable, __file__, *map(str, numbers), *more],
                pass_fds=numbers,
                stdin=subprocess.DEVNULL,
                stdout=2,
            )

    def end(self) -> None:
        """Returns when it has ended: coverage writes what it and its commands executed."""
        self._ours.close()
        self._process.wait(60)


_own: dict[tuple[int, bool], Server] = {}
"""By the process whose servers they are, and whether they have imported torch."""


def _address(learns: bool) -> bytes:
    if shared := os.environ.get(SHARED):
        return b"\0" + shared.split()[learns].encode()
    key = os.getpid(), learns
    if key not in _own:
        _own[key] = Server(*LEARNING) if learns else Server()
    return _own[key].address


def end() -> None:
    """End this process's servers."""
    for key in [key for key in _own if key[0] == os.getpid()]:
        _own.pop(key).end()


@contextlib.contextmanager
def shared() -> Iterator[None]:
    """Servers for this process and all that it starts, which find them by their environment."""
    if SHARED in os.environ:
        yield
        return
    with contextlib.ExitStack() as stack:
        servers = [Server(), Server(*LEARNING, *TESTS)]
        for server in servers:
            stack.callback(server.end)
        os.environ[SHARED] = " ".join(each.address[1:].decode() for each in servers)
        stack.callback(os.environ.pop, SHARED)
        yield


PROGRAM = """#!{python} -IS
import json, os, signal, socket, sys

signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of this file
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect({address!r})
order = {{"words": sys.argv[1:], "cwd": os.getcwd(), "env": dict(os.environ), **{more!r}}}
socket.send_fds(server, [json.dumps(order).encode()], [1, 2, 0])
pid = int(server.recv(64))
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: os.kill(pid, number))
status = int(server.recv(64) or 1)
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


def program(path: Path) -> None:
    """Write the `testbed` of an environment, for shells; it works while this process lives.

    It finds what is installed there later, too.
    """
    _write(path, _address(False), prefix=str(path.parents[1]))


def python(path: Path) -> None:
    """Write a Python that has imported what tests import; it takes `-c PROGRAM` alone."""
    _write(path, _address(True), python=True)


def _write(path: Path, address: bytes, **more: object) -> None:
    path.write_text(PROGRAM.format(python=sys.executable, address=address, more=more))
    path.chmod(0o755)


# What follows runs in the server.


def main(listening: int, owned: int, *more: str) -> None:
    """Import, then fork a process for each command, until the owner closes its socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the owner, and so the server
    for module in (*PRELOAD, *more):
        import_module(module)
    load()
    gc.collect()
    gc.freeze()
    listener, owner = (socket.socket(fileno=number) for number in (listening, owned))
    while owner not in select.select([listener, owner], [], [])[0]:
        caller, _ = listener.accept()
        text, files, _, _ = socket.recv_fds(caller, 1 << 20, 3)
        if text and os.fork() == 0:
            listener.close()
            owner.close()
            return _command([*files, caller.detach()], **json.loads(text))
        caller.close()
        for file in files:
            os.close(file)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


class _Hiding:
    """Finds no module of some packages, before others find it."""

    def __init__(self, packages: Collection[str]) -> None:
        self._packages = packages

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in self._packages:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def load() -> None:
    """Have the engine's machine code, and what is known of the installation, which processes that
    are forked then need not read."""
    import numpy as np
    from small_scenario import TREE

    import orchestrator
    from orchestrator.records.manifest import source_sha256

    source_sha256()
    flat = {"gain": np.full((3, 200), 1e-9), "slot_s": 0.1}
    orchestrator.predict(orchestrator.Scenario.model_validate(TREE), flat)


def _command(
    files: list[int],
    words: list[str],
    cwd: str,
    env: dict[str, str],
    hidden: Collection[str] = (),
    prefix: str = "",
    python: bool = False,
) -> None:
    """Be the command, and the process that tells how it ended, or ends it if nobody listens."""
    out, err, *standard_input, told = files
    if pid := os.fork():
        os.write(told, f"{pid}\n".encode())
        watch = select.poll()
        ended = os.pidfd_open(pid)
        watch.register(ended, select.POLLIN)
        watch.register(told, 0)
        if ended not in dict(watch.poll()):
            os.kill(pid, signal.SIGTERM)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with contextlib.suppress(OSError):
            os.write(told, str(status).encode())
        os._exit(0)
    # After Ctrl-C, pytest ends its workers: a test that it interrupts has not failed.
    ignored = python and (lambda *_: None)  # not SIG_IGN, which programs that it starts inherit
    signal.signal(signal.SIGINT, ignored or signal.default_int_handler)
    os.dup2(out, 1)
    os.dup2(err, 2)
    for file in standard_input:
        os.dup2(file, 0)
    for file in files:
        os.close(file)
    # What stands there was made for other files: of another kind, where a pipe follows a file.
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False, buffering=1, errors="backslashreplace")
    sys.stdin = os.fdopen(0, closefd=False)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path[0] = cwd
    if prefix:
        _belong_to(Path(prefix))
    if hidden:
        assert not {name.partition(".")[0] for name in sys.modules} & set(hidden)
        sys.meta_path.insert(0, _Hiding(hidden))
    try:
        if python:
            _run(words[-1])
        else:
            sys.argv = [str(SCRIPT), *words]
            sys.modules["orchestrator.cli.main"].main()
    except SystemExit as stop:
        if isinstance(stop.code, str):
            raise
        end_at_once(stop.code or 0)
    end_at_once(0)


def _run(program: str) -> None:
    """As `python -c` does."""
    sys.argv = ["-c"]
    sys.modules["__main__"] = ModuleType("__main__")
    exec(program, vars(sys.modules["__main__"]))


def end_at_once(status: int) -> NoReturn:
    """As an interpreter ends, but collect nothing: that would copy all memory of the server."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _belong_to(prefix: Path) -> None:
    """Be a console script of the environment in that folder."""
    sys.prefix = sys.exec_prefix = str(prefix)
    # Workers get this path, and need not have been told where the first process found its packages.
    sys.path[:1] = [str(prefix / "bin"), *filter(None, os.environ.get("PYTHONPATH", "").split(":"))]
    sys.executable = str(prefix / "bin" / "python")
    multiprocessing.set_executable(sys.executable)
    site.addsitedir(sysconfig.get_path("purelib", vars={"base": str(prefix)}))
    sys.modules["testbed.core.registry"].installed.cache_clear()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
