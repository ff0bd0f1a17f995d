# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The first process of a guest: makes its surroundings, runs one command, tells how it ended.

    python -I -S init.py LINE JOB

It runs alone in the guest, with the standard library and nothing else. LINE is the serial line to
the host; JOB, a JSON file, says what to run and is read before anything is mounted over it. Frames
go over the line in both directions: one letter, a length of four bytes, and so many bytes. `o` and
`e` carry what the command prints, `p` what it tells of its progress, `x` its exit status; from the
host comes `s`, a signal for it. Ends by switching the machine off.
"""

import ctypes
import fcntl
import json
import os
import resource
import selectors
import signal
import socket
import struct
import sys
import termios
import time
import tty
from pathlib import Path
from typing import Any, NoReturn

FRAME = struct.Struct("=cI")
CHUNK = 1 << 15
OPEN_FILES = 65_536
POWER_OFF = 0x4321FEDC
MOUNTS = (
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("devpts", "/dev/pts"),
    ("tmpfs", "/dev/shm"),
    ("tmpfs", "/dev/tmp"),
)
"""The guest's own; everything else is the host's. Temporary files of the guest are in /dev/tmp: it
hides nothing of the host that a user may mean."""
PINNED = {
    "/proc/sys/net/ipv4/tcp_mem": "196608 262144 393216",
    "/proc/sys/net/ipv4/udp_mem": "393216 524288 786432",
}
"""What the kernel would size by its memory, which follows the host's: pages that all sockets may
hold, as in a guest of 16 GiB. Its tables of sockets are pinned where it is started."""

_libc = ctypes.CDLL(None, use_errno=True)


def main(line: str, job_file: str) -> None:
    """Run the job and switch off."""
    job = json.loads(Path(job_file).read_text(encoding="utf-8"))
    for kind, place in MOUNTS:
        Path(place).mkdir(parents=True, exist_ok=True)
        _mount(kind, place)
    for place in ("/dev/shm", "/dev/tmp"):
        Path(place).chmod(0o1777)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        Path("/dev", name).symlink_to(f"/proc/self/fd{target}")
    # Before the command and all that it starts: what it prints would wait until they sleep.
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))
    socket.sethostname("testbed")
    for setting, value in PINNED.items():
        Path(setting).write_text(value, encoding="ascii")
    _loopback_up()
    Path(job["told_at"]).write_text(json.dumps(job["told"]), encoding="utf-8")
    link = os.open(line, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(link, termios.TCSANOW)
    _send(link, b"r", b"")
    _serve(link, job)
    os.sync()
    _libc.reboot(POWER_OFF)


def _mount(kind: str, place: str) -> None:
    if _libc.mount(kind.encode(), place.encode(), kind.encode(), 0, None):
        number = ctypes.get_errno()
        if not (kind == "devtmpfs" and Path("/dev/null").exists()):
            raise OSError(number, f"mount {place}: {os.strerror(number)}")


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        flags_up = struct.pack("16sH14x", b"lo", 0x1 | 0x40)
        fcntl.ioctl(sock, 0x8914, flags_up)  # SIOCSIFFLAGS


def _send(link: int, kind: bytes, data: bytes) -> None:
    frame = FRAME.pack(kind, len(data)) + data
    while frame:
        frame = frame[os.write(link, frame) :]


def _serve(link: int, job: dict[str, Any]) -> None:
    """Run the command and carry what it prints, until it and all that it left has ended."""
    pipes = [os.pipe() for _ in range(3)]
    command = os.fork()
    if command == 0:
        _become(job, [writing for _, writing in pipes])
    selector = selectors.DefaultSelector()
    for (reading, writing), kind in zip(pipes, (b"o", b"e", b"p"), strict=True):
        os.close(writing)
        selector.register(reading, selectors.EVENT_READ, kind)
    selector.register(link, selectors.EVENT_READ)
    ended = os.pidfd_open(command)
    selector.register(ended, selectors.EVENT_READ)
    orders, status, open_pipes = b"", None, len(pipes)
    while status is None or open_pipes:
        for key, _ in selector.select():
            if key.fd == ended:
                selector.unregister(ended)
                status = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
                _end_all()
            elif key.fd == link:
                orders = _obey(orders + os.read(link, CHUNK), command if status is None else 0)
            elif data := os.read(key.fd, CHUNK):
                _send(link, key.data, data)
            else:
                selector.unregister(key.fd)
                open_pipes -= 1
    _send(link, b"x", struct.pack("=i", status))
    # The line hands its bytes on by itself; only then may the machine be switched off.
    termios.tcdrain(link)
    time.sleep(0.1)


def _obey(orders: bytes, command: int) -> bytes:
    """Do what the host's whole frames say; returns what is left of a frame."""
    while len(orders) >= FRAME.size:
        kind, length = FRAME.unpack_from(orders)
        if len(orders) < FRAME.size + length:
            break
        body, orders = orders[FRAME.size : FRAME.size + length], orders[FRAME.size + length :]
        if kind == b"s" and command:
            os.kill(command, body[0])
    return orders


def _end_all() -> None:
    """End what the command has left running, as the end of its machine would, and reap it."""
    try:
        os.kill(-1, signal.SIGKILL)
        while True:
            os.waitpid(-1, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def _become(job: dict[str, Any], pipes: list[int]) -> NoReturn:
    """The command: under the caller's own numbers, with its environment, in its folder."""
    try:
        # Nothing takes time, so who computes goes on until they sleep. By the ordinary policy, who
        # is woken comes between where the clock is read or a call fails, since these let time pass,
        # and how many of them each has made decides on who goes first: that differs by place. Nor
        # are sleepers who take turns kept waiting for others, to be woken with them.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDONLY)
        kept = [fcntl.fcntl(fd, fcntl.F_DUPFD, 64) for fd in (nothing, *pipes)]
        for place, fd in zip((0, 1, 2, job["progress_fd"]), kept, strict=True):
            os.dup2(fd, place)
        os.closerange(job["progress_fd"] + 1, 4096)
        resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
        resource.setrlimit(resource.RLIMIT_RTPRIO, (99, 99))
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.umask(job["umask"])
        os.setgroups(job["groups"])
        os.setresgid(job["gid"], job["gid"], job["gid"])
        os.setresuid(job["uid"], job["uid"], job["uid"])
        os.chdir(job["cwd"])
        os.execve(job["argv"][0], job["argv"], job["env"])
    except BaseException as error:
        os.write(2, f"{job['argv'][0]}: cannot be started: {error}\n".encode())
    os._exit(127)


if __name__ == "__main__":
    main(*sys.argv[1:3])  # The kernel adds words of its own.
