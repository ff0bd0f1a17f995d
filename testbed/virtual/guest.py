# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A command run inside a kernel in virtual time, as if it ran here.

Theory of operation. The kernel is an ordinary program of the caller. Its root file system is the
host's, so paths mean the same inside; /proc, /sys and /dev are the guest's own, and it has no
network but what it makes itself. `init` is its first process: it runs the command under the
caller's user and group and carries bytes between it and us over a serial line, whose other ends
are sockets here: one for each direction, since the kernel stands still until we have taken what it
says, but must not wait for what we say. The clock stands still while anything computes, and jumps
to the next timer when all sleep.

What a guest sees does not depend on who starts it, how busy the host is, or what was drawn at
random: the environment is a fixed list, addresses and random numbers repeat.

Nothing is left on the host. The kernel dies with this process, and its helpers with it; its memory
is a file without a name; the files that it starts from are removed as soon as it runs.
"""

import contextlib
import errno
import itertools
import json
import os
import queue
import resource
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psutil

from testbed.core.errors import InputError, RunError
from testbed.core.progress import Progress, silent
from testbed.system import inside, leftovers, linux
from testbed.virtual import init
from testbed.virtual.kernel import Kernel, kernels

PASSED_ON = ("HOME", "PYTHONPATH", "XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME")
"""Variables that the command has from its caller: where files are, and nothing else."""
FIXED = {
    "LANG": "C.UTF-8",
    # A user without an entry in the host's list has a name, too.
    "USER": "testbed",
    "LOGNAME": "testbed",
    "TMPDIR": "/dev/tmp",
    "PYTHONHASHSEED": "0",
    "PYTHONFAULTHANDLER": "1",
    # OpenSSL mixes the processor's counter and its random numbers into what it draws.
    "OPENSSL_ia32cap": "~0x4000000000000010:~0x40000",
}
"""Variables that are the same for every command."""
MEMORY_SHARE = 0.8
"""Of what is free: the most that a guest takes."""
LEAST_MEMORY = 1 << 30
STARTED_NS = 1_767_225_600 * 10**9
"""What the guest's clock says when its kernel starts, the same each time: captures and random
numbers depend on it. Unix time, in ns."""
HANG_S = 120.0
"""Real seconds without any computing after which a guest is given up. A guest that sleeps computes:
its clock jumps from timer to timer."""
WATCH_S = 2.0
END_S = 30.0
"""Real seconds that a guest may take for its end after the command has ended."""
STOP_S = 60.0
"""Real seconds that a command may take for its end after it was told to."""
SOCKET_TABLES = ("thash_entries=131072", "uhash_entries=8192")
"""Ports that are drawn and backlogs go by them; the kernel would size them by its memory."""
CLAIM = "\0uav-sfl-guest"
"""How names of sockets begin that say on which processors guests are; they lie in no folder."""
MAPS = Path("/proc/sys/vm/max_map_count")
MAPS_WANTED = 1_048_576
_HOST_MEMORY = "UML ran out of memory on the host side"


@dataclass(frozen=True)
class Outcome:
    """How a command ended inside."""

    status: int
    """As a shell has it: 128 and the number of the signal that ended it, else its own."""
    wall_s: float
    """Real seconds, with the guest's start and end."""
    cpu_s: float
    """Of the guest and all in it."""


@dataclass(frozen=True)
class _Told:
    """Who takes what the command tells; and who knows whether it waits."""

    progress: Progress
    show: Callable[[dict[str, Any]], object] | None
    waits: Callable[[], bool]


@dataclass
class _Conversation:
    """What the guest has told so far."""

    ready: bool = False
    status: int | None = None
    pending: bytearray = field(default_factory=bytearray)
    progress: bytearray = field(default_factory=bytearray)


def memory_bytes(share: float = 1.0) -> int:
    """How much memory a guest is given: a limit, of which it takes what it needs.

    Args:
        share: Of what a guest alone would be given; others may run beside it.

    Raises:
        RunError: There is too little.
    """
    free = psutil.virtual_memory().available
    folder = memory_folder()
    most = int(MEMORY_SHARE * min(free, shutil.disk_usage(folder).free))
    if most < LEAST_MEMORY:
        raise RunError(
            f"virtual time: a guest needs {LEAST_MEMORY >> 20} MiB of memory and in {folder}; "
            f"{most >> 20} MiB may be taken"
        )
    # A power of two, so that what the kernel sizes by its memory seldom differs.
    return 1 << max(LEAST_MEMORY, int(share * most)).bit_length() - 1


def memory_folder() -> str:
    """Where the guest's memory is: a file without a name."""
    shared = "/dev/shm"
    with contextlib.suppress(OSError):
        if os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > 2 * LEAST_MEMORY:
            return shared
    return tempfile.gettempdir()


def hidden(words: Sequence[str], cwd: Path) -> str | None:
    """The first word that names a file which a guest does not see: it has a /dev of its own."""
    for word in (str(cwd), *words):
        path = (cwd / word.rpartition("=")[2]).resolve()
        if path.is_relative_to("/dev") and path != Path(os.devnull) and path.parent.is_dir():
            return word
    return None


def run(
    kernel: Kernel,
    argv: Sequence[str],
    *,
    told: Mapping[str, Any] | None = None,
    share: float = 1.0,
    started: Callable[[int], object] = lambda pid: None,
    waits: Callable[[], bool] = lambda: False,
    progress: Progress = silent,
    show: Callable[[dict[str, Any]], object] | None = None,
    out: IO[bytes] | None = None,
    err: IO[bytes] | None = None,
) -> Outcome:
    """Run a command inside, in this folder and as this user, and wait for its end.

    In the main thread, SIGINT and SIGTERM go to the command, which ends by itself; a second one
    ends the guest.

    Args:
        kernel: The kernel.
        argv: The command and its arguments; its first word is a path.
        told: What the command finds in `testbed.system.inside.told`.
        share: Of the memory that a guest alone would be given.
        started: Told the guest's process.
        waits: Whether the guest waits for somebody outside, who is watched by others.
        progress: Told what the command tells by `testbed.system.inside.tell`.
        show: The same by `show`.
        out: Takes its standard output; left out: ours.
        err: The same for its standard error.

    Raises:
        InputError: A word names a file that the guest does not see.
        RunError: The guest cannot be started, has hung, or ended before its command; or that was
            ended by a signal other than SIGINT and SIGTERM, or failed where the host allows too
            few mappings. The message names the guest's log.
    """
    cwd = Path.cwd()
    if word := hidden(argv[1:], cwd):
        raise InputError(f"{word}: cannot be seen in virtual time, which has a /dev of its own")
    began = time.monotonic()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with contextlib.ExitStack() as stack:
        # The kernel cuts its command line at spaces, so not in $TMPDIR.
        folder = stack.enter_context(leftovers.temporary_folder("guest", "/tmp"))
        log = stack.enter_context(tempfile.TemporaryFile())
        (orders, its_orders), (words, its_words) = socket.socketpair(), socket.socketpair()
        stack.enter_context(orders)
        stack.enter_context(words)
        with its_orders, its_words:
            _lay_out(folder, argv, cwd, told or {})
            line = (its_orders, its_words)
            processor = stack.enter_context(_processor())
            guest = _start(kernel, folder, line, log, memory_bytes(share), processor)
        stack.callback(_end, guest)
        started(guest.pid)
        stops = stack.enter_context(_signals())
        writers = {
            kind: stack.enter_context(_writer(stream))
            for kind, stream in ((b"o", out or sys.stdout.buffer), (b"e", err or sys.stderr.buffer))
        }
        status = _converse(
            guest, (orders, words), stops, writers, folder, _Told(progress, show, waits)
        )
        if status is None:
            raise RunError(f"virtual time: the guest ended: {_why(log)}")
        with contextlib.suppress(subprocess.TimeoutExpired):
            guest.wait(END_S)  # By then its log is whole.
        if status < 0 and -status not in (signal.SIGINT, signal.SIGTERM):
            name = signal.Signals(-status).name
            raise RunError(f"virtual time: the command was ended by {name}: {_why(log)}")
        if status > 0 and _lacks_mappings(_said(log)):
            # One of its processes died of it; what the command says of that names no cause.
            raise RunError(f"virtual time: {_why(log)}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Outcome(128 - status if status < 0 else status, time.monotonic() - began, cpu_s)


def environment() -> dict[str, str]:
    """The environment of every command: does not depend on the user's, but for where files are."""
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    programs = [str(Path(sys.executable).parent), "/usr/local/sbin", "/usr/local/bin"]
    path = ":".join([*programs, "/usr/sbin", "/usr/bin", "/sbin", "/bin"])
    return {"HOME": str(Path.home()), **passed, **FIXED, "PATH": path}


def _lay_out(folder: Path, argv: Sequence[str], cwd: Path, told: Mapping[str, Any]) -> None:
    """What init needs: an interpreter and its program under short names, and the job."""
    (folder / "python").symlink_to(Path(sys.executable).resolve())
    shutil.copy(init.__file__, folder / "init.py")
    umask = os.umask(0)
    os.umask(umask)
    job = {
        "argv": list(argv),
        "env": environment(),
        "cwd": str(cwd),
        "uid": os.getuid(),
        "gid": os.getgid(),
        "groups": sorted(os.getgroups()),
        "umask": umask,
        "told": {**told, "mark": leftovers.mark(), "started_s": int(time.time())},
        "told_at": str(inside.TOLD),
        "progress_fd": inside.PROGRESS_FD,
    }
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")


def _start(
    kernel: Kernel,
    folder: Path,
    line: tuple[socket.socket, socket.socket],
    log: IO[bytes],
    memory: int,
    processor: int,
) -> "subprocess.Popen[bytes]":
    orders, words = (end.fileno() for end in line)
    command = [
        *(str(kernel.program), f"mem={memory >> 20}M"),
        *("root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw", f"init={folder}/python"),
        *(
            "con=null",
            "con0=null,fd:1",
            "ssl=null",
            f"ssl0=fd:{orders},fd:{words}",
            "stderr=1",
            "quiet",
        ),
        *SOCKET_TABLES,
        *("norandmaps", "time-travel=inf-cpu", f"time-travel-start={STARTED_NS}"),
        *(f"uml_dir={folder}/", "umid=guest"),
        *("--", "-I", "-S", f"{folder}/init.py", "/dev/ttyS0", f"{folder}/job.json"),
    ]
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[orders, words],
            env={
                "PATH": os.defpath,
                "TMPDIR": memory_folder(),
                leftovers.VARIABLE: leftovers.mark(),
            },
            cwd="/",
            # Ctrl-C in a terminal comes to us alone; who gets it inside is ours to say.
            start_new_session=True,
            preexec_fn=lambda: _with_us(processor),
        )
    except OSError as error:
        raise RunError(f"virtual time: {kernel.program} cannot be started: {error}") from None


@contextlib.contextmanager
def _processor() -> Iterator[int]:
    """One of our processors, with the fewest guests on it.

    A guest and its processes compute by turns, many thousand a second. On one processor a turn is a
    switch; on two, one of them falls asleep and is woken, and that takes longer than the turn.
    What says that a processor is taken is a socket's name, which goes with its process.
    """
    allowed = sorted(os.sched_getaffinity(0))
    for place in itertools.count():
        guests, at = divmod(place, len(allowed))
        with socket.socket(socket.AF_UNIX) as claim:
            try:
                claim.bind(f"{CLAIM}-{allowed[at]}-{guests}")
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                raise
            yield allowed[at]
            return


def _with_us(processor: int) -> None:
    linux.signal_at_parents_death(signal.SIGKILL)
    with contextlib.suppress(OSError):  # It is faster there, and right anywhere.
        os.sched_setaffinity(0, {processor})
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def _end(guest: "subprocess.Popen[bytes]") -> None:
    if guest.poll() is None:
        os.killpg(guest.pid, signal.SIGKILL)
        guest.wait()


@contextlib.contextmanager
def _signals() -> Iterator[socket.socket]:
    """A socket from which the numbers of signals that ask us to end are read."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with ours, theirs:
        if threading.current_thread() is not threading.main_thread():
            yield ours
            return
        fd = signal.set_wakeup_fd(theirs.fileno())
        asked = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, lambda *_: None) for number in asked}
        try:
            yield ours
        finally:
            signal.set_wakeup_fd(fd)
            for number, handler in before.items():
                signal.signal(number, handler)


@contextlib.contextmanager
def _writer(stream: IO[bytes]) -> Iterator[Callable[[bytes], None]]:
    """Write to a stream in a thread: who reads it slowly must not hold the guest up."""
    waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def write() -> None:
        while (data := waiting.get()) is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.write(data)
                stream.flush()

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield waiting.put
    finally:
        waiting.put(None)
        thread.join()


def _converse(
    guest: "subprocess.Popen[bytes]",
    line: tuple[socket.socket, socket.socket],
    stops: socket.socket,
    writers: Mapping[bytes, Callable[[bytes], None]],
    folder: Path,
    hear: "_Told",
) -> int | None:
    """Carry bytes until the command has ended; its status, None if the guest ended before.

    Raises:
        RunError: The guest hangs, or does not end when it is told to.
    """
    told = _Conversation()
    orders, words = line
    asked_s: float | None = None
    busy_s, cpu_s = time.monotonic(), -1.0
    with selectors.DefaultSelector() as selector:
        selector.register(words, selectors.EVENT_READ)
        selector.register(stops, selectors.EVENT_READ)
        while told.status is None:
            ready = {key.fileobj for key, _ in selector.select(WATCH_S)}
            if words in ready:
                try:
                    data = words.recv(1 << 16)
                except ConnectionResetError:
                    data = b""
                if not data:
                    break
                _hear(told, data, writers, hear)
                if told.ready and folder.exists():
                    shutil.rmtree(folder, ignore_errors=True)
            if stops in ready:
                for number in stops.recv(64):
                    if asked_s is not None or not told.ready:
                        raise RunError(f"virtual time: ended by {signal.Signals(number).name}")
                    asked_s = time.monotonic()
                    orders.sendall(init.FRAME.pack(b"s", 1) + bytes([number]))
            now_s = time.monotonic()
            if guest.poll() is not None and words not in ready:
                break
            if asked_s is not None and now_s - asked_s > STOP_S:
                raise RunError(
                    f"virtual time: waited {STOP_S:g} s for the command to end when it was told to"
                )
            if now_s - busy_s > WATCH_S and (
                (spent_s := _cpu_s(guest.pid)) != cpu_s or hear.waits()
            ):
                busy_s, cpu_s = now_s, spent_s
            if now_s - busy_s > HANG_S:
                raise RunError(f"virtual time: the guest has not computed for {HANG_S:g} s")
    return told.status


def _hear(
    told: _Conversation,
    data: bytes,
    writers: Mapping[bytes, Callable[[bytes], None]],
    hear: "_Told",
) -> None:
    """Take frames from the line; what is not whole yet waits."""
    told.pending += data
    while len(told.pending) >= init.FRAME.size:
        kind, length = init.FRAME.unpack_from(told.pending)
        end = init.FRAME.size + length
        if len(told.pending) < end:
            return
        body = bytes(told.pending[init.FRAME.size : end])
        del told.pending[:end]
        if kind == b"r":
            told.ready = True
        elif kind == b"x":
            told.status = int.from_bytes(body, sys.byteorder, signed=True)
        elif kind == b"p":
            told.progress += body
            *lines, rest = told.progress.split(b"\n")
            told.progress = bytearray(rest)
            for line in lines:
                what = json.loads(line)
                if not isinstance(what, dict):
                    hear.progress(*what)
                elif hear.show is not None:
                    hear.show(what)
        else:
            writers[kind](body)


def _cpu_s(session: int) -> float:
    """CPU seconds of all processes of a session that live."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _said(log: IO[bytes]) -> list[str]:
    """The lines of a guest's log."""
    log.seek(0)
    lines = log.read().decode(errors="replace").splitlines()
    return [line.strip() for line in lines if line.strip()]


def _lacks_mappings(lines: Sequence[str]) -> bool:
    """Whether the guest asked for more than this machine allows, which ends who needs them."""
    return any(_HOST_MEMORY in line for line in lines) and int(MAPS.read_text()) < MAPS_WANTED


def _why(log: IO[bytes]) -> str:
    """What a guest's log says of its end, or of its command's; the log is kept."""
    lines, kept = _said(log), kernels() / "guest.log"
    kept.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    if _lacks_mappings(lines):
        return (
            "it needs more memory mappings than this machine allows: "
            f"sysctl -w vm.max_map_count={MAPS_WANTED}; its log: {kept}"
        )
    telling = "it says nothing"
    for before, line in zip(["", *lines], lines, strict=False):
        if "Kernel panic" in line or "BUG: " in line or _HOST_MEMORY in line:
            # A first process that fails says why, and then the kernel complains of its end.
            telling = before if "kill init" in line and before else line
            break
    return f"{telling}; its log: {kept}"
