# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The first process of a guest: mounts file systems, runs one command, reports its exit status.

    python -I -S init.py LINE JOB

It uses only the standard library. LINE is the serial line to the host; JOB is a JSON file with the
command, which is read before anything is mounted over it. Frames on the line, in both directions,
consist of one letter, a length of four bytes, and the data. `o` and `e` contain the output of the
command, `p` its progress, `x` its exit status; `s`, from the host, is a signal for the command. At
the end the guest is switched off.
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
SYS_ARCH_PRCTL, ARCH_HURRY = 158, 0x75530002
"""System call and request of this kernel: programs of sessions give way every 10 ms of CPU time."""
MOUNTS = (
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("devpts", "/dev/pts"),
    ("tmpfs", "/dev/shm"),
    ("tmpfs", "/dev/tmp"),
)
"""File systems of the guest itself; all others are the host's. Temporary files of the guest are in
/dev/tmp, so that no path of the host is hidden that a user may need."""
PINNED = {
    "/proc/sys/net/ipv4/tcp_mem": "196608 262144 393216",
    "/proc/sys/net/ipv4/udp_mem": "393216 524288 786432",
    "/proc/sys/net/core/rmem_max": "4194304",
    "/proc/sys/net/core/wmem_max": "4194304",
}
"""Fixed values of settings. The kernel would derive those of `tcp_mem` and `udp_mem`, the memory
pages for all sockets, from its memory, and therefore from the host's: these are of a guest of 16
GiB. `rmem_max` and `wmem_max` limit the buffers that programs ask for: these are the defaults of
Linux from 6.18 on, so that programs find the same values with every kernel of the guest. Socket
tables are set on the kernel's command line."""

_libc = ctypes.CDLL(None, use_errno=True)


def main(line: str, job_file: str) -> None:
    """Run the job and switch the guest off."""
    job = json.loads(Path(job_file).read_text(encoding="utf-8"))
    for kind, place in MOUNTS:
        Path(place).mkdir(parents=True, exist_ok=True)
        _mount(kind, place)
    for place in ("/dev/shm", "/dev/tmp"):
        Path(place).chmod(0o1777)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        Path("/dev", name).symlink_to(f"/proc/self/fd{target}")
    # Higher priority than the command, whose output would otherwise wait until it sleeps.
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))
    socket.sethostname("testbed")
    for setting, value in PINNED.items():
        Path(setting).write_text(value, encoding="ascii")
    _loopback_up()
    settings = Path(job["settings_file"])
    settings.write_text(json.dumps(job["settings"]), encoding="utf-8")
    os.chown(settings, job["uid"], job["gid"])  # A copy of this guest writes its own.
    time.sleep(job["uptime_s"] - time.monotonic())  # The clock jumps there.
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
    """Run the command and forward its output, until it and its remaining processes have ended."""
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
    # Wait until the line has sent all bytes before the guest is switched off.
    termios.tcdrain(link)
    time.sleep(0.1)


def _obey(orders: bytes, command: int) -> bytes:
    """Handle complete frames of the host; returns the rest."""
    while len(orders) >= FRAME.size:
        kind, length = FRAME.unpack_from(orders)
        if len(orders) < FRAME.size + length:
            break
        body, orders = orders[FRAME.size : FRAME.size + length], orders[FRAME.size + length :]
        if kind == b"s" and command:
            # Programs that compute without end must let the command run.
            _libc.syscall(SYS_ARCH_PRCTL, ARCH_HURRY, 0)
            os.kill(command, body[0])
    return orders


def _end_all() -> None:
    """Kill and reap all remaining processes of the command."""
    try:
        os.kill(-1, signal.SIGKILL)
        while True:
            os.waitpid(-1, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def _become(job: dict[str, Any], pipes: list[int]) -> NoReturn:
    """Execute the command with the caller's user and group, the job's environment and folder."""
    try:
        # Computing takes no virtual time, so a process runs until it sleeps. The ordinary policy
        # preempts it by woken processes whenever it reads the clock or a call fails, because these
        # advance time, and orders processes by the number of such calls, which differs between
        # machines. Round-robin processes are also not woken late in groups.
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
    main(*sys.argv[1:3])  # The kernel appends further arguments.
