# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Commands in virtual time: as if they ran here, but for the clock."""

import contextlib
import errno
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from testbed.core.errors import InputError, RunError
from testbed.core.signals import ENDING
from testbed.system import leftovers
from testbed.virtual import guest, kernel

ROOT = Path(__file__).resolve().parents[3]
KERNEL = kernel.find()
pytestmark = [pytest.mark.guest, pytest.mark.timeout(1200)]
RUNNER = """
import os, sys
from testbed.virtual import guest, kernel
memory = int(os.environ.get("MEMORY", guest.MEMORY_BYTES))
sys.exit(guest.run(kernel.find(), sys.argv[1:], memory=memory).status)
"""


def inside(*argv: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    """A command run inside, from a process of its own."""
    words = [sys.executable, "-c", RUNNER, *argv]
    return subprocess.run(words, capture_output=True, text=True, timeout=1000, **options)


def python(program: str, *argv: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    return inside(sys.executable, "-c", program, *argv, **options)


NAME = f"testbed-{os.getpid()}"
TOGETHER = {
    "lines": "import sys; [sys.stdout.write(f'{i}\\n') for i in range(100_000)]",
    "clock": "import time, json; a = time.monotonic_ns(); sum(range(10**7));"
    "b = time.monotonic_ns(); time.sleep(5000); c = time.monotonic_ns();"
    "print(json.dumps([b - a, c - b]))",
    "cycles": """
import ctypes, json, mmap, time
# rdtsc or rdtscp; shl rdx, 32; or rax, rdx; ret
found = []
for code in "0f31", "0f01f9":
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(bytes.fromhex(code + "48c1e2204809d0c3"))
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    cycles = ctypes.CFUNCTYPE(ctypes.c_uint64)(address)
    before = cycles()
    time.sleep(5)
    found.append(cycles() - before)
print(json.dumps(found))
""",
    "files": "import tempfile; from multiprocessing import shared_memory as s;"
    f"print(tempfile.mkdtemp(), s.SharedMemory({NAME!r}, create=True, size=10).name)",
    "namespaces": "import os; from testbed.system import linux as l;"
    "os.getuid() or os.setuid(65534); l.unshare(l.CLONE_NEWUSER | l.CLONE_NEWNET);"
    "print(open('/proc/net/dev').read().count('lo:'))",
}
"""Programs that one guest runs after each other: to start one for each takes longer than they."""
IN_TURN = """
import json, subprocess, sys
for program in json.loads(sys.argv[1]):
    subprocess.run([sys.executable, "-c", program], check=True)
    print("end", flush=True)
"""


@pytest.fixture(scope="module")
def printed() -> dict[str, str]:
    """What each of them prints."""
    done = python(IN_TURN, json.dumps(list(TOGETHER.values())), cwd=ROOT)
    assert done.returncode == 0, done.stderr
    *each, rest = done.stdout.split("end\n")
    assert not rest
    return dict(zip(TOGETHER, each, strict=True))


def until(condition: Callable[[], object], timeout_s: float = 600) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_output_status_folder_and_owner_are_as_without_it(tmp_path: Path) -> None:
    program = (
        "import os, sys; print(os.getcwd(), os.getuid(), os.getgid(), sys.argv[1:]);"
        "print('other', file=sys.stderr); open('file', 'wb').write(bytes(range(256)) * 999);"
        "sys.exit(7)"
    )
    done = python(program, "a b", "ü", cwd=tmp_path)
    assert done.returncode == 7
    assert done.stdout == f"{tmp_path} {os.getuid()} {os.getgid()} ['a b', 'ü']\n"
    assert done.stderr == "other\n"
    file = tmp_path / "file"
    assert file.read_bytes() == bytes(range(256)) * 999
    assert (file.stat().st_uid, file.stat().st_gid) == (os.getuid(), os.getgid())


def test_much_output_comes_whole_and_in_order(printed: dict[str, str]) -> None:
    assert printed["lines"] == "".join(f"{i}\n" for i in range(100_000))


def test_a_guest_waits_for_who_takes_its_words_and_loses_none() -> None:
    program = (
        "import sys; print('begun', flush=True); sum(range(10**8));"
        "[sys.stdout.write(f'{i}\\n') for i in range(100_000)]"
    )
    words = [sys.executable, "-c", RUNNER, sys.executable, "-c", program]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None
        assert runner.stdout.readline() == "begun\n"
        guest = max(psutil.Process(runner.pid).children(), key=psutil.Process.create_time)
        runner.send_signal(signal.SIGSTOP)
        spent = [-1.0]

        def stands() -> bool:
            time.sleep(1)
            spent.append(sum(guest.cpu_times()[:2]))
            return spent[-1] == spent[-2]

        until(stands)
        runner.send_signal(signal.SIGCONT)
        assert runner.stdout.read() == "".join(f"{i}\n" for i in range(100_000))


def test_the_clock_stands_still_while_computing_and_jumps_while_sleeping(
    printed: dict[str, str],
) -> None:
    """It sleeps 5000 s, and `inside` waits for 1000."""
    computed_ns, slept_ns = json.loads(printed["clock"])
    assert computed_ns == 16  # what a read of the clock takes
    assert slept_ns == 5000 * 10**9 + 2 * 16 + 1  # two reads, and the timer


def test_the_processors_own_counter_counts_virtual_time(printed: dict[str, str]) -> None:
    """Nanoseconds: both ways of reading it, around a sleep."""
    for cycles in json.loads(printed["cycles"]):
        assert cycles == pytest.approx(5e9, abs=100_000)


def test_sleepers_wake_at_the_moment_whatever_came_before() -> None:
    program = """
import os, sys, time
from testbed.core.clock import next_tick

for _ in range(int(sys.argv[1])):  # each takes a microsecond, since it fails
    try:
        os.readlink("/")
    except OSError:
        pass
next_tick()
print(time.monotonic_ns())
"""
    one, other = (python(program, n, cwd=ROOT).stdout for n in ("0", "7"))
    assert int(one) % 10_000_000 < 2000
    assert one == other


def test_who_is_woken_does_not_come_between() -> None:
    program = """
import os, time
from testbed.core.clock import next_tick, sleep_ns
from testbed.system import linux

def order():
    written = os.memfd_create("order")
    tick = next_tick() + 10_000_000
    if (child := os.fork()) == 0:
        sleep_ns(tick + 50_000 - time.monotonic_ns())
        os.write(written, b"woken")
        os._exit(0)
    sleep_ns(tick - 50_000 - time.monotonic_ns())
    while time.monotonic_ns() < tick + 100_000:
        pass
    os.write(written, b"looking ")
    os.waitpid(child, 0)
    return os.pread(written, 100, 0).decode()

ours = os.sched_getscheduler(0)
print(order())
os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
print(order())
linux.prefer_scheduling()
linux.ordinary_scheduling()
print(order(), os.sched_getscheduler(0) == ours)
"""
    said = python(program, cwd=ROOT).stdout.splitlines()
    assert said == ["looking woken", "wokenlooking ", "looking woken True"]


def test_what_is_drawn_and_seen_does_not_depend_on_who_asks(tmp_path: Path) -> None:
    program = (
        "import os, time; print(os.urandom(8).hex(), hash('x'), id(object()), os.getpid(),"
        "time.monotonic_ns(), sorted(os.environ), os.uname())"
    )
    first = python(program)
    odd = {**os.environ, "NOISE": "x" * 5000, "TMPDIR": str(tmp_path), "PYTHONHASHSEED": "5"}
    assert first.stdout
    assert python(program, env=odd).stdout == first.stdout


def test_what_is_drawn_does_not_depend_on_what_others_draw() -> None:
    """Of a process, and of the kernel: others draw before, make files, and look for some."""
    program = """
import os, socket, subprocess, sys, tempfile, time
for _ in range(int(sys.argv[1])):
    with tempfile.TemporaryFile(), tempfile.TemporaryDirectory():
        os.path.exists("/nowhere"), open("/dev/urandom", "rb").read(7), os.urandom(100)
    time.sleep(0.1)
listening = socket.create_server(("127.0.0.1", 5000))
connected = socket.create_connection(("127.0.0.1", 5000))
print(connected.getsockname(), flush=True)
words = [sys.executable, "-c", "import os; print(os.urandom(20).hex(), hash('x'))"]
for _ in range(2):
    subprocess.run(words, check=True)
"""
    quiet, loud = (python(program, times) for times in ("0", "20"))
    assert quiet.returncode == 0, quiet.stderr
    assert loud.stdout == quiet.stdout
    _, *children = quiet.stdout.splitlines()
    assert len({*children}) == 2, "no two processes draw the same"


def test_who_asks_for_it_draws_whatever_was_drawn_and_started_before() -> None:
    program = """
import os, subprocess, sys
from testbed.system import inside
os.urandom(int(sys.argv[1]))
for _ in range(int(sys.argv[1])):
    subprocess.run(["/bin/true"], check=True)
inside.draw_as(sys.argv[2])
print(os.urandom(20).hex(), flush=True)
subprocess.run([sys.executable, "-c", "import os; print(os.urandom(20).hex())"], check=True)
"""
    seen = [
        python(program, times, name, cwd=ROOT).stdout.splitlines()
        for times, name in (("0", "first"), ("3", "first"), ("0", "second"))
    ]
    assert seen[0] == seen[1]
    assert len({*seen[0], *seen[2]}) == 4, "another name, and each process, draws something else"


def test_what_sockets_get_does_not_depend_on_how_much_memory_there_is() -> None:
    program = """
import socket
from pathlib import Path

ipv4 = Path("/proc/sys/net/ipv4")
for name in ("tcp_mem", "udp_mem", "tcp_rmem", "tcp_wmem", "tcp_max_syn_backlog"):
    print(name, (ipv4 / name).read_text().split())
for name in ("rmem_max", "wmem_max"):
    print(name, Path("/proc/sys/net/core", name).read_text().strip())
held = [socket.socket(type=socket.SOCK_DGRAM) for _ in range(20)]
for sock in held:
    sock.bind(("", 0))
print([sock.getsockname()[1] for sock in held])
print(Path("/proc/meminfo").read_text().splitlines()[0])
"""
    plenty, little = (
        python(program, env={**os.environ, "MEMORY": str(memory)}).stdout.splitlines()
        for memory in (1 << 32, 1 << 30)
    )
    *settings, memory = plenty
    assert little[-1] != memory
    assert little[:-1] == settings
    assert len(settings) == 8
    assert settings[5:7] == ["rmem_max 4194304", "wmem_max 4194304"]


SURROUNDINGS = """
import json, os, resource, socket, time
from pathlib import Path

print([time.time_ns(), time.monotonic_ns(), Path("/proc/uptime").read_text()])
limits = {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource)
          if name.startswith("RLIMIT_")}
memory = [line for line in Path("/proc/meminfo").read_text().splitlines() if "Total" in line]
print(json.dumps([dict(os.environ), limits, memory, os.nice(0), sorted(os.sched_getaffinity(0)),
    os.sched_getscheduler(0), socket.gethostname(), time.tzname, os.umask(0)], indent=1))
"""


def test_a_command_sees_the_same_surroundings_whoever_starts_it() -> None:
    """The environment, limits, priority, memory and clocks are the guest's own."""
    os.umask(umask := os.umask(0))
    usual = {name: os.environ[name] for name in guest.PASSED_ON if name in os.environ}
    other = {
        **usual,
        **{"COLUMNS": "77", "LINES": "10", "TERM": "xterm", "FORCE_COLOR": "1", "NO_COLOR": "1"},
        **{"LANG": "de_DE.UTF-8", "LC_ALL": "C", "LC_NUMERIC": "fr_FR", "TZ": "Asia/Tokyo"},
        **{
            "USER": "somebody",
            "LOGNAME": "somebody",
            "PWD": "/",
            "SHLVL": "7",
            "MALLOC_PERTURB_": "1",
        },
        **{"PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "3", "TMPDIR": "/var/tmp", "LD_BIND_NOW": "1"},
    }

    def confined() -> None:
        os.nice(5)
        os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
        resource.setrlimit(resource.RLIMIT_NOFILE, (500, guest.LEAST_FILES))
        resource.setrlimit(resource.RLIMIT_STACK, (1 << 22, 1 << 22))
        resource.setrlimit(resource.RLIMIT_CPU, (600, 600))

    path = os.environ["PATH"]
    seen = python(SURROUNDINGS, env={**usual, "PATH": path}).stdout
    assert python(SURROUNDINGS, env={**other, "PATH": path}, preexec_fn=confined).stdout == seen
    clocks, _, rest = seen.partition("\n")
    unix_ns, monotonic_ns, uptime = json.loads(clocks.replace("'", '"'))
    assert 0 <= unix_ns - guest.STARTED_NS < 1e9
    assert 0 <= monotonic_ns - 1000 * 10**9 < 1e9, "programs take the first second for no clock"
    assert uptime.startswith("1000.")
    assert json.loads(rest)[-1] == umask


@pytest.mark.parametrize("size", [10**18, 1 << 45])
def test_a_memory_that_does_not_fit_is_refused_in_one_line(size: int) -> None:
    assert KERNEL is not None
    line = rf"emulation.memory_bytes: must be at most \d+, not {size}: .* free in memory and in /"
    with pytest.raises(InputError, match=line):
        guest.run(KERNEL, ["/bin/true"], memory=size)


def test_a_process_that_needs_more_memory_than_the_guest_has_is_said() -> None:
    assert KERNEL is not None
    program = "import sys; sys.exit(1)"
    say = "open('/dev/kmsg', 'w').write('<3>Out of memory: Killed process 7 (python3)');"
    with pytest.raises(RunError, match=r"was full: raise emulation\.memory_bytes; its log: /"):
        guest.run(KERNEL, [sys.executable, "-c", say + program])


def test_a_folder_whose_files_cannot_be_executed_holds_no_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Forbidden:
        def mmap(self, *_: object, **__: object) -> None:
            raise PermissionError(errno.EPERM, "Operation not permitted")

        PAGESIZE = PROT_READ = PROT_EXEC = 1

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(guest, "mmap", Forbidden())
    for folder in ("/dev/shm", tmp_path):
        reason = f"{folder}: it is mounted with noexec: mount -o remount,exec {folder}"
        with pytest.raises(RunError, match=reason):
            guest.memory_folder()
    assert guest.free_bytes() == 0


WRITES = """
import ctypes, json, mmap, os, struct

PAGE, PAGES, PRESENT, OURS_ALONE = 4096, 256, 63, 56

def pages(memory, bit):
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    with open("/proc/self/pagemap", "rb", 0) as file:
        entries = os.pread(file.fileno(), 8 * PAGES, start // PAGE * 8)
    return sum(entry >> bit & 1 for entry in struct.unpack(f"{PAGES}Q", entries))

def mapped(kind, file=-1):
    return mmap.mmap(file, PAGES * PAGE, flags=kind | (mmap.MAP_ANONYMOUS if file < 0 else 0))

def written(memory, bit=PRESENT):
    memory[100 * PAGE] = 1
    return pages(memory, bit)

with open("file", "wb") as file:
    file.write(b"f" * PAGES * PAGE)
with open("file", "r+b") as file:
    ours = mapped(mmap.MAP_PRIVATE, file.fileno())
found = {
    "new": written(mapped(mmap.MAP_PRIVATE)),
    "file": written(ours, OURS_ALONE),
    "shared": written(mapped(mmap.MAP_SHARED)),
}
assert ours[:].count(b"f") == PAGES * PAGE - 1
assert open("file", "rb").read() == b"f" * PAGES * PAGE
memory = mapped(mmap.MAP_PRIVATE)
memory[:] = b"m" * PAGES * PAGE
reading, writing = os.pipe()
if os.fork() == 0:
    os.write(writing, bytes([written(memory, OURS_ALONE), memory[:].count(b"m") % 256]))
    os._exit(0)
os.close(writing)
os.wait()
found["copied"], others = os.read(reading, 2)
assert others == 255 and memory[:].count(b"m") == PAGES * PAGE
much = bytearray(b"x") * (400 << 20)
found["where memory is short"] = written(mapped(mmap.MAP_PRIVATE))
print(json.dumps(found))
"""


def test_who_writes_to_private_memory_gets_what_is_beside_it(tmp_path: Path) -> None:
    done = python(WRITES, cwd=tmp_path, env={**os.environ, "MEMORY": str(1 << 30)})
    assert done.returncode == 0, done.stderr
    beside = {"new": 16, "file": 16, "shared": 1, "copied": 4, "where memory is short": 1}
    assert json.loads(done.stdout) == beside


def test_temporary_files_and_shared_memory_are_the_guests_own(printed: dict[str, str]) -> None:
    folder, memory = printed["files"].split()
    assert memory == NAME
    assert folder.startswith("/dev/tmp/")
    assert not Path(folder).exists()
    assert not Path("/dev/shm", memory).exists()


def test_a_file_that_a_guest_does_not_see_is_refused() -> None:
    assert KERNEL is not None
    with pytest.raises(InputError, match="--out=/dev/shm/x: is not visible in virtual time"):
        guest.run(KERNEL, [sys.executable, "--out=/dev/shm/x"])


def test_guests_keep_to_one_processor_each_and_share_them_evenly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[set[int]] = []
    assert KERNEL is not None
    argv = [sys.executable, "-c", ""]
    done = guest.run(KERNEL, argv, started=lambda pid: seen.append(os.sched_getaffinity(pid)))
    assert done.status == 0
    ((_,),) = seen

    monkeypatch.setattr(guest, "CLAIM", f"\0{NAME}")
    allowed = sorted(os.sched_getaffinity(0))
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(guest._processor()) for _ in range(2 * len(allowed))]
        assert taken == allowed * 2
        with guest._processor() as one_more:
            assert one_more == allowed[0]
    with guest._processor() as after_all:
        assert after_all == allowed[0]


def test_namespaces_and_links_are_there_for_ordinary_users(printed: dict[str, str]) -> None:
    assert printed["namespaces"] == "1\n"


@contextlib.contextmanager
def begun(program: str, runner: str = RUNNER) -> "Iterator[subprocess.Popen[str]]":
    """The runner of a program that has printed `up` inside; the test ends it.

    All processes must then end by themselves. If the test fails, they are killed.
    """
    words = [sys.executable, "-c", runner, sys.executable, "-c", program]
    # These tests may run under `nohup`.
    own = partial(signal.signal, signal.SIGHUP, signal.SIG_DFL)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, preexec_fn=own) as process:
        family: list[psutil.Process] = []
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            family = psutil.Process(process.pid).children(recursive=True)
            assert family
            yield process
            until(lambda: not any(p.is_running() for p in family))
        finally:
            for each in (process, *family):
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_ends_the_command_in_order_and_nothing_is_left(number: signal.Signals) -> None:
    program = (
        f"import signal, sys, time; signal.signal({number.value}, lambda *_: sys.exit(7));"
        "import time; print('up', flush=True)\nwhile True: time.sleep(1)"
    )
    with begun(program) as process:
        process.send_signal(number)
        assert process.wait(600) == 7


def test_nothing_is_left_of_a_guest_whose_parent_is_killed() -> None:
    program = "import time; print('up', flush=True)\nwhile True: time.sleep(1)"
    # Guests of other tests use /tmp at the same time.
    with tempfile.TemporaryDirectory(prefix="testbed-test-") as folder:
        runner = RUNNER.replace("memory =", f"guest.FOLDERS = {folder!r}\nmemory =", 1)
        with begun(program, runner) as process:
            process.kill()
        assert not list(Path(folder).iterdir())


def test_a_guest_that_dies_is_one_line_and_its_log() -> None:
    assert KERNEL is not None
    program = "import time\nwhile True: time.sleep(1)"
    process = subprocess.Popen(
        [sys.executable, "-c", RUNNER, sys.executable, "-c", program],
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: psutil.Process(process.pid).children())
    time.sleep(2)
    for child in psutil.Process(process.pid).children():
        child.kill()
    _, said = process.communicate(timeout=600)
    line = said.splitlines()[-1]
    assert line.startswith(
        "testbed.core.errors.RunError: virtual time: the guest was ended by SIGKILL: "
    )
    assert Path(line.rpartition(" ")[2]).is_file()


def test_a_command_that_a_signal_ends_is_one_line_and_the_guests_log() -> None:
    done = python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    line = done.stderr.splitlines()[-1]
    assert "virtual time: the command was ended by SIGSEGV: " in line
    assert Path(line.rpartition(" ")[2]).is_file()


def test_too_few_mappings_are_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert KERNEL is not None
    (tmp_path / "maps").write_text("65530")
    monkeypatch.setattr(guest, "MAPS", tmp_path / "maps")
    said = "UML ran out of memory on the host side! This can happen due to a limit"
    # One of the command's processes has died of it, as the kernel says; the command says less.
    program = f"""
import pathlib, sys
pathlib.Path("/dev/kmsg").write_text("<3>{said}")
sys.exit("uav1 was ended by SIGSEGV")
"""
    with pytest.raises(RunError, match=r"sysctl -w vm\.max_map_count=1048576; its log: /"):
        guest.run(KERNEL, [sys.executable, "-c", program])
    with (tmp_path / "log").open("w+b") as log:
        log.write(said.encode())
        assert "sysctl -w vm.max_map_count=1048576" in guest._why(log, 1)
        (tmp_path / "maps").write_text("1048576")
        assert guest._why(log, 1).startswith("UML ran out of memory on the host side!")


def test_a_guest_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert KERNEL is not None
    monkeypatch.setattr(guest, "HANG_S", 6.0)
    monkeypatch.setattr(guest, "WATCH_S", 0.5)
    start = guest._start

    def stopped(*words: object) -> "subprocess.Popen[bytes]":
        process = start(*words)  # type: ignore[arg-type]
        time.sleep(1)
        process.send_signal(19)
        return process

    monkeypatch.setattr(guest, "_start", stopped)
    before = psutil.Process().children()
    with pytest.raises(RunError, match="has not used the CPU for 6 s"):
        guest.run(KERNEL, [sys.executable, "-c", "import time; time.sleep(1e9)"])
    assert set(psutil.Process().children()) <= set(before)


# A `testbed clean` beside, which the documents' commands hold, would remove it first.
@pytest.mark.alone
def test_what_a_guest_notes_is_not_taken_for_a_dead_runs(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from testbed.system import leftovers as l\n"
        "with l.noted(Path(sys.argv[1])) as p:\n"
        " p.touch(); print(l.mark(), flush=True)\n"
        " while p.exists(): time.sleep(1)"
    )
    file = tmp_path / "noted"
    words = [sys.executable, "-c", RUNNER, sys.executable, "-c", program, str(file)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    mark = process.stdout.readline().strip()
    try:
        assert leftovers.alive(mark)
        assert (leftovers.notes() / mark).is_file()
        assert str(file) not in [found.what for found in leftovers.find()]
    finally:
        process.kill()
        process.wait()
    assert not leftovers.alive(mark)
    assert str(file) in [found.what for found in leftovers.find()]
    leftovers.remove([found for found in leftovers.find() if str(file) in found.what])
    assert not file.exists()
