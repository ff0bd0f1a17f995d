# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Runs a command inside a kernel in virtual time, as if it ran on the host.

Theory of operation. The kernel is an ordinary program of the caller. Its root file system is the
host's, so paths are the same inside; /proc, /sys and /dev are the guest's own, and it has no
network except the ones that it creates. `init` is its first process: it runs the command with the
caller's user and group and copies bytes between it and the host over a serial line. The host's ends
of the line are two sockets, one per direction, because the kernel blocks until its output has been
read, but must not block for input. The guest's clock does not advance while any process computes,
and jumps to the next timer when all sleep.

A guest does not depend on its user, on the load of the host, or on random numbers: its environment
is fixed, and addresses and random numbers are repeatable.

A `Template` is a guest whose program has stopped at a certain point; its copies continue from
there. A copy is a process of the host like any guest, with its own memory, line and log, and a
child of this process: the kernel clones itself as a sibling.

No files remain on the host. The kernel and its helpers end with this process; its memory is an
unnamed file; the files from which it is started are removed as soon as it runs.
"""

import contextlib
import errno
import itertools
import json
import mmap
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
from typing import IO, Any, Protocol

import psutil

from testbed.core.errors import InputError, RunError
from testbed.core.progress import Progress, silent
from testbed.core.signals import ENDING, ending_signals, signal_name
from testbed.system import inside, leftovers, linux
from testbed.system.child import Child
from testbed.virtual import init
from testbed.virtual.kernel import Kernel, kernels

PASSED_ON = ("HOME", "PYTHONPATH", "XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME")
"""Environment variables that the command inherits from its caller: only locations of files."""
FIXED = {
    "LANG": "C.UTF-8",
    # Users without an entry in the host's user database need a name, too.
    "USER": "testbed",
    "LOGNAME": "testbed",
    "TMPDIR": "/dev/tmp",
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",
    "PYTHONFAULTHANDLER": "1",
    # Disables the processor's time-stamp counter and random numbers in OpenSSL.
    "OPENSSL_ia32cap": "~0x4000000000000010:~0x40000",
}
"""Environment variables with fixed values."""
MEMORY_BYTES = 1 << 32
"""Default size of a guest's memory. Programs see it, so it does not depend on the host."""
STARTED_NS = 1_767_225_600 * 10**9
"""Default Unix time of a guest's clock at the start of its command, in ns. It is constant, because
captures and random numbers depend on it."""
HANG_S = 120.0
"""Real seconds without CPU usage after which a guest counts as hung. A sleeping guest uses the CPU,
because its clock jumps from timer to timer."""
WATCH_S = 2.0
LEAST_FILES = 1024
"""A guest's open files are also open files of its kernel."""
END_S = 30.0
"""Real seconds that a guest may take to end after its command."""
STOP_S = 60.0
"""Real seconds that a command may take to end after a signal."""
SOCKET_TABLES = ("thash_entries=131072", "uhash_entries=8192")
"""Sizes of the kernel's socket tables, which affect random ports and backlogs; by default they
depend on the memory size."""
CLAIM = "\0uav-sfl-guest"
"""Prefix of abstract unix addresses that mark the processors used by guests."""
MOST_LOGS = 10
"""Logs of guests that are kept, each of a failed one."""
FOLDERS = "/tmp"
"""Where the files for a guest's start are. $TMPDIR may have spaces, which would split the kernel's
command line."""
MAPS = Path("/proc/sys/vm/max_map_count")
MAPS_WANTED = 1_048_576
MORE_MAPPINGS = f"sysctl -w vm.max_map_count={MAPS_WANTED}"
"""Command that allows as many."""
_HOST_MEMORY = "UML ran out of memory on the host side"
_GUEST_MEMORY = "Out of memory: Killed process"


@dataclass(frozen=True)
class Outcome:
    """The result of a command in a guest."""

    status: int
    """Exit status as in shells: 128 plus the signal number if a signal ended the command."""


@dataclass(frozen=True)
class _Callbacks:
    """Callbacks for the progress of the command, and the streams of its output."""

    progress: Progress
    show: Callable[[dict[str, Any]], object] | None
    waits: Callable[[], bool]
    out: IO[bytes] | None
    err: IO[bytes] | None


_QUIET = _Callbacks(silent, None, lambda: False, None, None)


class Running(Protocol):
    """A guest's process: a `subprocess.Popen`, or what behaves like one."""

    pid: int

    def poll(self) -> int | None:
        """The exit status, negative for a signal's number; None: it has not ended."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended, or raise `subprocess.TimeoutExpired` after `timeout` s."""


@dataclass
class _Conversation:
    """State of the communication with the guest."""

    ready: bool = False
    status: int | None = None
    pending: bytearray = field(default_factory=bytearray)
    progress: bytearray = field(default_factory=bytearray)


def memory_folder(memory: int = MEMORY_BYTES) -> str:
    """The folder of the unnamed file with a guest's memory, which only takes what the guest uses.

    Args:
        memory: Size of the memory in bytes.

    Raises:
        InputError: The memory does not fit into this machine's.
        RunError: No folder can have such a file.
    """
    free = _rooms()
    usable = {folder: room for folder, room in free.items() if isinstance(room, int)}
    if not usable:
        reasons = "; ".join(f"{folder}: {reason}" for folder, reason in free.items())
        raise RunError(f"virtual time: no folder can hold a guest's memory: {reasons}")
    for folder, room in usable.items():
        if room >= memory:
            return folder
    folder = max(usable, key=lambda folder: usable[folder])
    raise InputError(
        f"emulation.memory_bytes: must be at most {usable[folder]}, not {memory}: this is what is "
        f"free in memory and in {folder}"
    )


def free_bytes() -> int:
    """The bytes that the memories of all further guests may take; 0: no folder can hold one."""
    return max((room for room in _rooms().values() if isinstance(room, int)), default=0)


def _rooms() -> dict[str, int | str]:
    """The folders in which a guest's memory may be, the preferred one first; see `_room`."""
    return {folder: _room(folder) for folder in dict.fromkeys(("/dev/shm", tempfile.gettempdir()))}


def _room(folder: str) -> int | str:
    """Bytes that a guest's memory may take in a folder, or why it cannot be there."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.truncate(mmap.PAGESIZE)
            mmap.mmap(file.fileno(), mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_EXEC).close()
        return min(psutil.virtual_memory().available, shutil.disk_usage(folder).free)
    except OSError as error:
        if error.errno == errno.EPERM:
            return f"it is mounted with noexec: mount -o remount,exec {folder}"
        return os.strerror(error.errno or 0)


def hidden(words: Sequence[str], cwd: Path) -> str | None:
    """The first argument that names a file under /dev, which a guest does not see."""
    for word in (str(cwd), *words):
        path = (cwd / word.rpartition("=")[2]).resolve()
        if path.is_relative_to("/dev") and path != Path(os.devnull) and path.parent.is_dir():
            return word
    return None


def check_visible(words: Sequence[str], cwd: Path) -> None:
    """Refuse arguments that name files which a guest does not see.

    Raises:
        InputError: See `hidden`.
    """
    if word := hidden(words, cwd):
        raise InputError(f"{word}: is not visible in virtual time, which has its own /dev")


def run(
    kernel: Kernel,
    argv: Sequence[str],
    *,
    settings: Mapping[str, Any] | None = None,
    memory: int = MEMORY_BYTES,
    starts_ns: int = STARTED_NS,
    started: Callable[[int], object] = lambda pid: None,
    waits: Callable[[], bool] = lambda: False,
    progress: Progress = silent,
    show: Callable[[dict[str, Any]], object] | None = None,
    out: IO[bytes] | None = None,
    err: IO[bytes] | None = None,
) -> Outcome:
    """Run a command in a guest, in the current folder and as the current user, until it ends.

    In the main thread, `ending_signals` are forwarded to the command, which should end itself. A
    second one ends the guest, and this process as if it had no guest.

    Args:
        kernel: The kernel.
        argv: The command and its arguments; the first word is a path.
        settings: Settings for the command, see `testbed.system.inside.guest_settings`.
        memory: Size of the guest's memory in bytes, in whole MiB.
        starts_ns: Unix time of the guest's clock at the start of the command, in ns.
        started: Called with the PID of the guest.
        waits: Whether the guest is waiting for the host, which is monitored elsewhere.
        progress: Called for each call of `testbed.system.inside.report_progress` in the guest.
        show: Called for each call of `testbed.system.inside.report_state` in the guest.
        out: Standard output of the command; None: that of this process.
        err: Standard error of the command; None: that of this process.

    Raises:
        InputError: An argument names a file that the guest does not see, or the memory does not
            fit into this machine's.
        RunError: The guest cannot be started, has hung, or ended before its command; or the command
            was ended by a signal other than `ENDING`, or failed because memory or the host's
            mappings were too few. The message names the guest's log.
        OSError: Its output cannot be written.
    """
    cwd = Path.cwd()
    check_visible(argv[1:], cwd)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(leftovers.temporary_folder("guest", FOLDERS))
        line = stack.enter_context(_Line.open())
        job = job_of(argv, cwd) | {"settings": _settings(settings)}
        processor = stack.enter_context(_processor())
        guest = _start(kernel, folder, line, job, memory, processor, starts_ns)
        stack.callback(_end, guest)
        started(guest.pid)
        status = _attend(guest, line, folder, _Callbacks(progress, show, waits, out, err))
    return Outcome(128 - status if status < 0 else status)


class ProgramEndedError(RunError):
    """The program of a template has ended before the template could be copied."""

    def __init__(self, status: int) -> None:
        super().__init__(f"virtual time: the program ended with status {status}")


class _EndedError(RunError):
    """A signal ends the guest without waiting for its command."""

    def __init__(self, number: int) -> None:
        super().__init__(f"virtual time: ended by {signal_name(number)}")
        self.number = number


class Copies:
    """Makes guests that are copies of a template, of this process or of another one."""

    def run(
        self,
        *,
        settings: Mapping[str, Any] | None = None,
        started: Callable[[int], object] = lambda pid: None,
        waits: Callable[[], bool] = lambda: False,
        progress: Progress = silent,
        show: Callable[[dict[str, Any]], object] | None = None,
        out: IO[bytes] | None = None,
        err: IO[bytes] | None = None,
    ) -> Outcome:
        """Copy the guest, and let the copy continue until its program ends; see `guest.run`."""
        callbacks = _Callbacks(progress, show, waits, out, err)
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(leftovers.temporary_folder("guest", FOLDERS))
            file = folder / "settings.json"
            file.write_text(json.dumps(_settings(settings)), encoding="utf-8")
            line = stack.enter_context(_Line.open())
            processor = stack.enter_context(_processor())
            with tempfile.TemporaryFile(dir=self._memory_folder()) as memory:
                ends = (line.its_orders.fileno(), line.its_words.fileno(), line.log.fileno())
                guest = self._copy(file, (memory.fileno(), *ends), processor, callbacks)
            line.close_its_ends()
            stack.callback(_end, guest)
            started(guest.pid)
            status = _attend(guest, line, None, callbacks)
        return Outcome(128 - status if status < 0 else status)

    def _memory_folder(self) -> str:
        raise NotImplementedError

    def _copy(
        self, file: Path, files: Sequence[int], processor: int, callbacks: _Callbacks
    ) -> Running:
        """Start a copy with this file of settings, on this processor.

        `files` are the copy's memory, both ends of its line, and its log.
        """
        raise NotImplementedError


class Template(Copies):
    """A guest that has started its program, and copies of which continue the program.

    The program reads `testbed.system.inside.TEMPLATE`, which returns once per copy. The template
    itself does not continue, and never ends by itself; a copy that fails does not affect it.
    """

    def __init__(
        self,
        kernel: Kernel,
        argv: Sequence[str],
        *,
        memory: int = MEMORY_BYTES,
        starts_ns: int = STARTED_NS,
        job: Mapping[str, Any] | None = None,
    ) -> None:
        """Start a guest; see `run` for the arguments and errors. `close` ends it.

        `job` is `job_of` another process, in place of that of this process.
        """
        self._memory = memory
        self._made_of = kernel, memory, starts_ns, job or job_of(argv, Path.cwd())
        with contextlib.ExitStack() as stack:
            self._folder = stack.enter_context(leftovers.temporary_folder("guest", FOLDERS))
            self._line = stack.enter_context(_Line.open())
            control, its_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._control = stack.enter_context(control)
            with its_control, _processor() as processor:
                self._guest = _start(
                    *(kernel, self._folder, self._line),
                    {**self._made_of[-1], "settings": _settings({})},
                    *(memory, processor, starts_ns),
                    control=its_control,
                )
            stack.callback(_end, self._guest)
            self._stack = stack.pop_all()

    def close(self) -> None:
        """End the template; its copies continue."""
        self._stack.close()

    def fits(
        self,
        kernel: Kernel,
        argv: Sequence[str],
        *,
        memory: int,
        starts_ns: int,
        job: Mapping[str, Any] | None = None,
    ) -> bool:
        """Whether a copy would be as a guest that is started now with these arguments."""
        wanted = kernel, memory, starts_ns, job or job_of(argv, Path.cwd())
        return self._guest.poll() is None and self._made_of == wanted

    def copy(
        self, file: str, files: Sequence[int], processor: int, callbacks: _Callbacks = _QUIET
    ) -> Child:
        """Start a copy; see `Copies`.

        Raises:
            ProgramEndedError: The program ended before it could be copied.
            RunError: The guest could not be copied.
        """
        with contextlib.suppress(OSError):  # This only affects the speed. Copies inherit it.
            os.sched_setaffinity(self._guest.pid, {processor})
        socket.send_fds(self._control, [file.encode()], files)
        status = _attend(self._guest, self._line, self._folder, callbacks, answer=self._control)
        if status:
            raise ProgramEndedError(status)
        answer = b""
        with contextlib.suppress(OSError):
            answer = self._control.recv(4, socket.MSG_DONTWAIT)
        pid = int.from_bytes(answer, sys.byteorder, signed=True)
        if pid <= 0:
            why = _why(self._line.log, self._guest.pid)
            raise RunError(f"virtual time: the guest could not be copied: {why}")
        return Child(pid)

    def _memory_folder(self) -> str:
        return memory_folder(self._memory)

    def _copy(
        self, file: Path, files: Sequence[int], processor: int, callbacks: _Callbacks
    ) -> Child:
        return self.copy(str(file), files, processor, callbacks)


@dataclass
class _Line:
    """The serial line of a guest, as two pairs of sockets, and the guest's log."""

    orders: socket.socket
    words: socket.socket
    its_orders: socket.socket
    its_words: socket.socket
    log: IO[bytes]

    @classmethod
    @contextlib.contextmanager
    def open(cls) -> Iterator["_Line"]:
        (orders, its_orders), (words, its_words) = socket.socketpair(), socket.socketpair()
        with orders, words, its_orders, its_words, tempfile.TemporaryFile() as log:
            yield cls(orders, words, its_orders, its_words, log)

    def close_its_ends(self) -> None:
        """Once the guest has them, so that its end is seen."""
        self.its_orders.close()
        self.its_words.close()


def _attend(
    guest: Running,
    line: _Line,
    folder: Path | None,
    callbacks: "_Callbacks",
    answer: socket.socket | None = None,
) -> int:
    """Serve a guest until its command ends; returns its status, negative for a signal's number.

    Args:
        guest: The guest.
        line: The line between the guest and the host.
        folder: Files for its start, removed as soon as it is ready; None: it is ready.
        callbacks: Functions to which it reports.
        answer: Return 0 as soon as this can be read.
    """
    unwritten: list[BaseException] = []
    with contextlib.ExitStack() as stack:
        stops = stack.enter_context(_signals())
        out, err = callbacks.out or sys.stdout.buffer, callbacks.err or sys.stderr.buffer
        writers = {
            kind: stack.enter_context(_writer(stream, unwritten))
            for kind, stream in ((b"o", out), (b"e", err))
        }
        try:
            status = _converse(guest, line, stops, writers, folder, callbacks, answer)
        except _EndedError as ended:
            os.killpg(guest.pid, signal.SIGKILL)
            stack.close()  # The handlers are our caller's again.
            signal.raise_signal(ended.number)
            raise
        if status is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                guest.wait(END_S)
            code = guest.poll() or 0
            how = f"was ended by {signal_name(-code)}" if code < 0 else "ended"
            raise RunError(f"virtual time: the guest {how}: {_why(line.log, guest.pid)}")
        if answer is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                guest.wait(END_S)  # The log is complete then.
    if status < 0 and -status not in ENDING:
        name = signal_name(-status)
        why = _why(line.log, guest.pid)
        raise RunError(f"virtual time: the command was ended by {name}: {why}")
    if status > 0 and _shortage(_said(line.log)):
        # One of its processes died of it; the command's own message lacks the cause.
        raise RunError(f"virtual time: {_why(line.log, guest.pid)}")
    if status == 0 and unwritten:
        raise unwritten[0]
    return status


def environment() -> dict[str, str]:
    """The environment of every command; only locations of files depend on the user."""
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    programs = [str(Path(sys.executable).parent), "/usr/local/sbin", "/usr/local/bin"]
    path = ":".join([*programs, "/usr/sbin", "/usr/bin", "/sbin", "/bin"])
    return {"HOME": str(Path.home()), **passed, **FIXED, "PATH": path}


def job_of(argv: Sequence[str], cwd: Path) -> dict[str, Any]:
    """The data that init needs to start a command."""
    umask = os.umask(0)
    os.umask(umask)
    return {
        "argv": list(argv),
        "env": environment(),
        "cwd": str(cwd),
        "uid": os.getuid(),
        "gid": os.getgid(),
        "groups": sorted(os.getgroups()),
        "umask": umask,
        "settings_file": str(inside.SETTINGS_FILE),
        "progress_fd": inside.PROGRESS_FD,
        "uptime_s": inside.UPTIME_S,
    }


def _settings(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    return {**(settings or {}), "mark": leftovers.mark(), "started_s": int(time.time())}


def _start(
    kernel: Kernel,
    folder: Path,
    line: _Line,
    job: Mapping[str, Any],
    memory: int,
    processor: int,
    starts_ns: int,
    control: socket.socket | None = None,
) -> "subprocess.Popen[bytes]":
    """Start a kernel, and its init with the files that it needs: the interpreter and the job.

    `control` is a template's socket for requests: each is the path of a file with the settings of
    a copy, sent with the copy's memory, both ends of its line, and its log.
    """
    linux.raise_open_files()
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files < LEAST_FILES:
        raise RunError(
            f"virtual time: a guest needs {LEAST_FILES} open files, and this machine allows this "
            f"user {files}: raise the limit that `ulimit -n -H` shows"
        )
    (folder / "python").symlink_to(Path(sys.executable).resolve())
    shutil.copy(init.__file__, folder / "init.py")
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
    orders, words = line.its_orders.fileno(), line.its_words.fileno()
    ends = [orders, words] if control is None else [control.fileno(), orders, words]
    booted_ns = starts_ns - inside.UPTIME_S * 10**9
    copied = [] if control is None else [f"template={','.join(map(str, ends))}"]
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
        *copied,
        *("norandmaps", "time-travel=inf-cpu", f"time-travel-start={booted_ns}"),
        *(f"uml_dir={folder}/", "umid=guest"),
        *("--", "-I", "-S", f"{folder}/init.py", "/dev/ttyS0", f"{folder}/job.json"),
    ]
    try:
        guest = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=line.log,
            stderr=line.log,
            pass_fds=ends,
            env={
                "PATH": os.defpath,
                "TMPDIR": memory_folder(memory),
                leftovers.VARIABLE: leftovers.mark(),
            },
            cwd="/",
            # Ctrl-C in a terminal must only reach this process, which forwards it.
            start_new_session=True,
            preexec_fn=lambda: _with_us(processor),
        )
    except OSError as error:
        raise RunError(f"virtual time: {kernel.program} cannot be started: {error}") from None
    line.close_its_ends()
    return guest


@contextlib.contextmanager
def _processor() -> Iterator[int]:
    """The permitted processor with the fewest guests.

    A guest's kernel and its processes alternate many thousand times per second. On one processor
    this is a context switch; on two, one of them sleeps and is woken, which takes longer. A
    processor is marked as used by a socket's name, which disappears with its process.
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
    linux.fixed_addresses()
    with contextlib.suppress(OSError):  # This only affects the speed.
        os.sched_setaffinity(0, {processor})
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)


def _end(guest: Running) -> None:
    if guest.poll() is None:
        os.killpg(guest.pid, signal.SIGKILL)
        guest.wait()


@contextlib.contextmanager
def _signals() -> Iterator[socket.socket]:
    """A socket that receives the numbers of `ending_signals`."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with ours, theirs:
        if threading.current_thread() is not threading.main_thread():
            yield ours
            return
        fd = signal.set_wakeup_fd(theirs.fileno())
        before = {number: signal.signal(number, lambda *_: None) for number in ending_signals()}
        try:
            yield ours
        finally:
            signal.set_wakeup_fd(fd)
            for number, handler in before.items():
                signal.signal(number, handler)


@contextlib.contextmanager
def _writer(stream: IO[bytes], failed: list[BaseException]) -> Iterator[Callable[[bytes], None]]:
    """Write to a stream in a thread, so that a slow reader does not block the guest; a first
    failure, such as a closed pipe, goes into the list."""
    waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def write() -> None:
        while (data := waiting.get()) is not None:
            try:
                if not failed:
                    stream.write(data)
                    stream.flush()
            except BaseException as error:  # The command goes on.
                failed.append(error)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield waiting.put
    finally:
        waiting.put(None)
        thread.join()


def _converse(
    guest: Running,
    line: _Line,
    stops: socket.socket,
    writers: Mapping[bytes, Callable[[bytes], None]],
    folder: Path | None,
    callbacks: "_Callbacks",
    answer: socket.socket | None,
) -> int | None:
    """Copy bytes until the command ends; returns its status, or None if the guest ended before.
    If `answer` is given, it returns 0 as soon as this can be read.

    Raises:
        RunError: The guest has hung, or the command does not end after a signal.
    """
    state = _Conversation(ready=folder is None)
    orders, words = line.orders, line.words
    asked_s: float | None = None
    busy_s, cpu_s = time.monotonic(), -1.0
    with selectors.DefaultSelector() as selector:
        selector.register(words, selectors.EVENT_READ)
        selector.register(stops, selectors.EVENT_READ)
        if answer is not None:
            selector.register(answer, selectors.EVENT_READ)
        while state.status is None:
            ready = {key.fileobj for key, _ in selector.select(WATCH_S)}
            if words in ready:
                try:
                    data = words.recv(1 << 16)
                except ConnectionResetError:
                    data = b""
                if not data:
                    break
                _receive(state, data, writers, callbacks)
                if state.ready and folder is not None and folder.exists():
                    shutil.rmtree(folder, ignore_errors=True)
            if stops in ready:
                for number in stops.recv(64):
                    if asked_s is not None or not state.ready or answer is not None:
                        raise _EndedError(number)
                    asked_s = time.monotonic()
                    orders.sendall(init.FRAME.pack(b"s", 1) + bytes([number]))
            # A guest that ends says its status, and then closes the other end of `answer`.
            if answer in ready and words not in ready:
                return 0
            now_s = time.monotonic()
            if guest.poll() is not None and words not in ready:
                break
            if asked_s is not None and now_s - asked_s > STOP_S:
                raise RunError(
                    f"virtual time: waited {STOP_S:g} s for the command to end after a signal"
                )
            if now_s - busy_s > WATCH_S and (
                (spent_s := _cpu_s(guest.pid)) != cpu_s or callbacks.waits()
            ):
                busy_s, cpu_s = now_s, spent_s
            if now_s - busy_s > HANG_S:
                raise RunError(f"virtual time: the guest has not used the CPU for {HANG_S:g} s")
    return state.status


def _receive(
    state: _Conversation,
    data: bytes,
    writers: Mapping[bytes, Callable[[bytes], None]],
    callbacks: "_Callbacks",
) -> None:
    """Process complete frames from the line; keep the rest."""
    state.pending += data
    while len(state.pending) >= init.FRAME.size:
        kind, length = init.FRAME.unpack_from(state.pending)
        end = init.FRAME.size + length
        if len(state.pending) < end:
            return
        body = bytes(state.pending[init.FRAME.size : end])
        del state.pending[:end]
        if kind == b"r":
            state.ready = True
        elif kind == b"x":
            state.status = int.from_bytes(body, sys.byteorder, signed=True)
        elif kind == b"p":
            state.progress += body
            *lines, rest = state.progress.split(b"\n")
            state.progress = bytearray(rest)
            for line in lines:
                what = json.loads(line)
                if not isinstance(what, dict):
                    callbacks.progress(*what)
                elif callbacks.show is not None:
                    callbacks.show(what)
        else:
            writers[kind](body)


def _cpu_s(session: int) -> float:
    """CPU seconds of all living processes of a session."""
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


def allows_few_mappings() -> bool:
    """Whether this machine allows a process fewer mappings than the largest guests need."""
    return int(MAPS.read_text()) < MAPS_WANTED


def _shortage(lines: Sequence[str]) -> str:
    """The limit that the guest has reached, and how to raise it; empty: it has reached none."""
    if any(_HOST_MEMORY in line for line in lines) and allows_few_mappings():
        return f"it needs more memory mappings than this machine allows: {MORE_MAPPINGS}"
    if any(_GUEST_MEMORY in line for line in lines):
        return "its memory was full: raise emulation.memory_bytes"
    return ""


def _why(log: IO[bytes], pid: int) -> str:
    """The cause of a guest's or its command's end according to the guest's log, which is kept."""
    lines, kept = _said(log), kernels() / f"guest-{pid}.log"
    kept.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    logs = sorted(kernels().glob("guest-*.log"), key=lambda path: path.stat().st_mtime)
    for earlier in logs[:-MOST_LOGS]:
        earlier.unlink(missing_ok=True)
    if shortage := _shortage(lines):
        return f"{shortage}; its log: {kept}"
    telling = "its log is empty"
    for before, line in zip(["", *lines], lines, strict=False):
        if "Kernel panic" in line or "BUG: " in line or _HOST_MEMORY in line:
            # If init fails, it prints the cause before the kernel reports its end.
            telling = before if "kill init" in line and before else line
            break
    return f"{telling}; its log: {kept}"
