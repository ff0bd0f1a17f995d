# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Linux system calls that Python 3.11 lacks: namespaces, capabilities, process attributes."""

import contextlib
import ctypes
import errno
import os
import re
import resource
import socket
import stat
import struct
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from testbed.system import inside

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
NAMESPACES = {
    "user": CLONE_NEWUSER,
    "pid": CLONE_NEWPID,
    "mnt": CLONE_NEWNS,
    "net": CLONE_NEWNET,
    "uts": CLONE_NEWUTS,
}
"""By name in `/proc/sys/user/max_NAME_namespaces`: the flag of `unshare`."""

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_BIND = 0x1000
_MS_REC = 0x4000
_MS_PRIVATE = 1 << 18
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_CAPBSET_READ = 23
_PR_CAPBSET_DROP = 24
_PR_SET_TIMERSLACK = 29
_ADDR_NO_RANDOMIZE = 0x0040000
_PR_SET_NO_NEW_PRIVS = 38
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91, "riscv64": 91}
_CAPABILITY_V3 = 0x20080522
CAP_KILL, CAP_SETGID, CAP_SETUID = 5, 6, 7
CAP_NET_ADMIN = 12
CAP_NET_RAW = 13
_SPARE_IDS, _LAST_ID = 2_000_000_000, 65_535
"""In a namespace of `unshare_with_spare_ids`, ID n from 1 to 65,535 is this number plus n outside:
IDs that no system gives to users or containers by convention."""
_PID_MAX_BY_NAMESPACE = 6, 14
"""First version of Linux in which each PID namespace has its own `pid_max`."""
_RESERVED_PIDS = 300
"""PIDs below this number are given only once in a PID namespace."""
_OOM_SCORE = "500"
"""Counts as half of the machine's memory when the kernel looks for the largest process."""
_SYS_LANDLOCK = 444
"""System call that creates a Landlock ruleset; the calls to add a rule and to enforce the ruleset
have the next numbers on all architectures."""
_SYS_MOUNT_SETATTR = 442
_SYS_ARCH_PRCTL = 158
_ARCH_WATCH_SPINNING = 0x75530001
"""Request of the kernel of virtual time, which only exists for x86-64; see its `yielding.patch`."""
_OWN_THREADS = "/proc/self/task"
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = -100, 0x8000, 1
_LANDLOCK_WRITE_FILE = 1 << 1
_LANDLOCK_WRITING = _LANDLOCK_WRITE_FILE | sum(1 << bit for bit in range(4, 13))
"""Access rights of Landlock's first version to write, remove and create files."""
_LANDLOCK_MOVE, _LANDLOCK_TRUNCATE = 1 << 13, 1 << 14
"""Access rights of the second version (otherwise always denied) and the third version (otherwise
always allowed)."""
_LANDLOCK_ASK_VERSION = 1

OPEN_FILES = 65_536

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(what: str, result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Leave the namespaces given by `CLONE_NEW*` flags; raises `OSError` if the kernel refuses."""
    try:
        _checked("unshare", _libc.unshare(flags))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        # This is not about a disk.
        files = {name: Path(f"/proc/sys/user/max_{name}_namespaces") for name in NAMESPACES}
        limits = [
            (int(file.read_text()), name)
            for name, file in files.items()
            if NAMESPACES[name] & flags and file.exists()
        ]
        least, name = min(limits)
        raise OSError(
            errno.ENOSPC,
            f"unshare: no further namespace may be made: raise the limit "
            f"user.max_{name}_namespaces, which is {least} (sysctl -w)",
        ) from None


def unshare_with_spare_ids(flags: int) -> None:
    """Leave these namespaces and the user namespace, as root, for one with spare user and group
    IDs: 0 is root, and all others belong to no user outside.

    If root may not map these IDs, no ID is mapped yet (`map_own_ids`).

    Raises:
        OSError: The kernel refuses the namespaces.
    """
    root = os.getpid()
    reading, writing = os.pipe()
    # IDs must be mapped from outside.
    if (outside := os.fork()) == 0:
        os.close(writing)
        try:
            if os.read(reading, 1):
                for kind in ("uid", "gid"):
                    ids = f"0 0 1\n1 {_SPARE_IDS + 1} {_LAST_ID}\n"
                    Path(f"/proc/{root}/{kind}_map").write_text(ids)
        finally:
            os._exit(0)
    os.close(reading)
    try:
        unshare(flags | CLONE_NEWUSER)
        os.write(writing, b"1")
    finally:
        os.close(writing)
        os.waitpid(outside, 0)


def map_own_ids(user: int, group: int) -> None:
    """Map these IDs, which this process had, to themselves in its new user namespace, unless IDs
    are mapped already."""
    for kind, own in (("uid", user), ("gid", group)):
        ids = Path(f"/proc/self/{kind}_map")
        if not ids.read_text().strip():
            if kind == "gid":
                Path("/proc/self/setgroups").write_text("deny")
            ids.write_text(f"{own} {own} 1")


def has_spare_ids() -> bool:
    """Whether this process is in a user namespace of `unshare_with_spare_ids`."""
    return f" {_SPARE_IDS + 1} " in Path("/proc/self/uid_map").read_text()


def enter(namespace: int) -> None:
    """Enter the namespace of an open file (`setns`)."""
    _checked("setns", _libc.setns(namespace, 0))


def open_network_namespace(pid: int | str = "self") -> int:
    """A file descriptor of a process's network namespace."""
    return os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def new_network_namespace() -> int:
    """Move this process into a new network namespace and return its file descriptor."""
    unshare(CLONE_NEWNET)
    return open_network_namespace()


def mount_own_proc() -> None:
    """Mount /proc for this PID namespace, in a private mount namespace."""
    _checked("mount /", _libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None))
    _checked("mount /proc", _libc.mount(b"proc", b"/proc", b"proc", 0, None))


def can_limit_processes() -> bool:
    """Whether the kernel can limit the processes of a PID namespace: in earlier versions, the
    setting is the whole machine's."""
    release = re.findall(r"\d+", os.uname().release)
    return tuple(map(int, release[:2])) >= _PID_MAX_BY_NAMESPACE


def limit_processes(most: int) -> None:
    """Limit the processes and threads of this PID namespace, whose /proc must be mounted, if the
    kernel can do it."""
    if can_limit_processes():
        Path("/proc/sys/kernel/pid_max").write_text(str(most + _RESERVED_PIDS))


def limit_memory(most_bytes: int) -> None:
    """Limit the memory that each process may allocate: this one, and those that it starts."""
    resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))


def end_first_without_memory() -> None:
    """Let the kernel end this process, and those that it starts, before others if the machine runs
    out of memory."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)


def signal_at_parents_death(signal: int) -> None:
    """Let the kernel send a signal to this process when its parent dies."""
    _checked("prctl", _libc.prctl(_PR_SET_PDEATHSIG, signal, 0, 0, 0))


def ending_together(command: Sequence[str]) -> list[str]:
    """The command line of a process that runs a command, and kills its process group at SIGTERM: a
    signal at the parent's death is sent to the child alone, and a compiler has children."""
    script = 'trap "kill -KILL 0" TERM; exec 3<&0; "$@" <&3 3<&- & exec 3<&-; wait $!'
    return ["/bin/sh", "-c", script, "sh", *command]


def fixed_addresses() -> None:
    """Disable the randomisation of addresses in programs that this process executes, if allowed."""
    _libc.personality(_ADDR_NO_RANDOMIZE)


def precise_timers() -> None:
    """Disable the default timer slack of 50 µs for this process."""
    _checked("prctl", _libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0))


def drop_privileges() -> None:
    """Drop all capabilities of this process and of programs that it executes."""
    keep_capabilities()


def name_process(*words: str) -> None:
    """Let `ps` and `top` show these words as this process's command line.

    The text is cut to the memory of the original command line.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = (int(fields[number - 3]) for number in (48, 49))  # arg_start, arg_end; proc(5)
    text = b"".join(word.encode() + b"\0" for word in words)[: end - start - 1]
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)
    _checked("prctl", _libc.prctl(_PR_SET_NAME, words[-1].encode(), 0, 0, 0))


def keep_capabilities(*kept: int, bounding: Collection[int] = ()) -> None:
    """Drop all capabilities except these (`CAP_*`) of this process and of programs that it
    executes.

    Args:
        kept: Capabilities to keep.
        bounding: Capabilities to keep in the bounding set only. This process cannot gain them, but
            it can execute files that ask for them, such as `ping`, which then run without them.
    """
    _checked("prctl", _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    capability = 0
    while _libc.prctl(_PR_CAPBSET_READ, capability, 0, 0, 0) >= 0:
        if capability not in (*kept, *bounding):
            # May fail without CAP_SETPCAP, but no_new_privs still prevents regaining them.
            _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
        capability += 1
    header = struct.pack("Ii", _CAPABILITY_V3, 0)
    mask = sum(1 << capability for capability in kept)
    words = [mask & 0xFFFFFFFF, mask & 0xFFFFFFFF, 0, mask >> 32, mask >> 32, 0]
    _checked(
        "capset", _libc.syscall(_SYS_CAPSET[os.uname().machine], header, struct.pack("6I", *words))
    )


def hide(folder: str) -> None:
    """Hide a folder behind an empty, read-only one, in a private mount namespace."""
    flags = _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    _checked(f"mount {folder}", _libc.mount(b"none", folder.encode(), b"tmpfs", flags, None))


def own_places(folders: Iterable[Path], files: dict[str, str]) -> None:
    """Hide folders behind empty ones in memory, and files behind texts, in a new mount namespace.

    Args:
        folders: Folders to hide; /tmp is one of them.
        files: Text for each file to hide; missing files are ignored.
    """
    _checked("mount /", _libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None))
    for folder in folders:
        _checked(
            f"mount {folder}",
            _libc.mount(b"none", bytes(folder), b"tmpfs", _MS_NOSUID | _MS_NODEV, b"mode=1777"),
        )
    for name, text in files.items():
        if Path(name).is_file():
            source = Path("/tmp/.text")  # The mount needs the file, not its name.
            source.write_text(text)
            _bind(str(source), name)
            source.unlink()


def reveal(path: Path, folder: Path, behind: int, *, writable: bool) -> None:
    """Make a file or folder visible again that is hidden behind an empty folder.

    A path that has been written since is not replaced.

    Args:
        path: The hidden path; ignored if it does not exist.
        folder: The empty folder that hides it.
        behind: The hidden folder, opened in this mount namespace before.
        writable: Whether the path is mounted writable.
    """
    try:
        place = os.open(path.relative_to(folder), os.O_PATH | os.O_CLOEXEC, dir_fd=behind)
    except OSError:  # A name that is too long cannot exist either.
        return
    try:
        there = path.exists() and os.path.samestat(path.stat(), os.fstat(place))
        if there and (os.access(path, os.W_OK) or not writable):
            return
        if _is_taken(path, folder):
            return
        source = f"/proc/self/fd/{place}"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir() if Path(source).is_dir() else path.touch()
        _bind(source, str(path))
        if not writable:
            _forbid_writing_below(path)
    finally:
        os.close(place)


def _is_taken(path: Path, folder: Path) -> bool:
    """Whether a file was written at the path or one of its parents; mounts do not count."""
    device = folder.stat().st_dev
    for place in (*reversed(path.parents), path):
        if folder not in place.parents:
            continue
        if not os.path.lexists(place) or place.lstat().st_dev != device:
            return False
        if not stat.S_ISDIR(place.lstat().st_mode):
            return True
    return not _only_leads_to_mounts(path, device)


def _only_leads_to_mounts(place: Path, device: int) -> bool:
    found = place.lstat()
    if found.st_dev != device or not stat.S_ISDIR(found.st_mode):
        return found.st_dev != device
    below = list(place.iterdir())
    return bool(below) and all(_only_leads_to_mounts(path, device) for path in below)


def _forbid_writing_below(path: Path) -> None:
    """Make a mount and all mounts below it read-only."""
    attributes = struct.pack("4Q", _MOUNT_ATTR_RDONLY, 0, 0, 0)
    result = _libc.syscall(
        _SYS_MOUNT_SETATTR, _AT_FDCWD, bytes(path), _AT_RECURSIVE, attributes, len(attributes)
    )
    _checked(f"mount {path}", result)


def _bind(source: str, target: str) -> None:
    flags = _MS_BIND | _MS_REC
    _checked(f"mount {target}", _libc.mount(source.encode(), target.encode(), None, flags, None))


def name_host(name: str) -> None:
    """Set the host name, in a private UTS namespace."""
    socket.sethostname(name)


def forbid_writing(*writable: str | Path) -> None:
    """Forbid this process, and programs that it executes, to open files for writing or to create
    them.

    Open files stay usable. Devices, the paths in `writable`, and the names of this process's
    threads may still be written: CUDA does not start otherwise (error 304).

    Raises:
        OSError: The kernel has no Landlock.
    """
    version = _landlock_version()
    if version < 0:
        _checked("landlock", -1)
    file_writing = _LANDLOCK_WRITE_FILE | _LANDLOCK_TRUNCATE * (version >= 3)
    writing = _LANDLOCK_WRITING | file_writing | _LANDLOCK_MOVE * (version >= 2)
    attributes = struct.pack("Q", writing)
    rules = _libc.syscall(_SYS_LANDLOCK, attributes, len(attributes), 0)
    if rules < 0:
        _checked("landlock", -1)
    try:
        for path in ("/dev", _OWN_THREADS, *writable):
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            allowed = writing if Path(path).is_dir() else file_writing
            rule = struct.pack("=Qi", allowed, place)
            _checked("landlock", _libc.syscall(_SYS_LANDLOCK + 1, rules, 1, rule, 0))
            os.close(place)
        _checked("landlock", _libc.syscall(_SYS_LANDLOCK + 2, rules, 0))
    finally:
        os.close(rules)


def confine(
    *writable: str | Path, kept: Collection[int] = (), bounding: Collection[int] = ()
) -> None:
    """Drop capabilities and, if the kernel has Landlock, the right to open files for writing.

    See `keep_capabilities` and `forbid_writing`.

    Raises:
        OSError: A path of `writable` does not exist.
    """
    keep_capabilities(*kept, bounding=bounding)
    if _landlock_version() > 0:
        forbid_writing(*writable)


def _landlock_version() -> int:
    """Landlock version of the kernel; -1 if it has none."""
    return int(_libc.syscall(_SYS_LANDLOCK, None, 0, _LANDLOCK_ASK_VERSION))


def timeval(duration_s: float) -> bytes:
    """A duration as `struct timeval` with 64-bit seconds, for socket options."""
    return struct.pack("=qq", *divmod(round(1e6 * duration_s), 1_000_000))


def raise_open_files() -> None:
    """Raise the limit of open files to `OPEN_FILES` if this user may, or to the hard limit: a world
    needs several files per node, a guest all of its own."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (max(hard, OPEN_FILES), hard):
        with contextlib.suppress(OSError, ValueError):  # Only root may raise the hard limit.
            return resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))


def refused_processes() -> int:
    """How often the control group of this process has refused a process or thread, because it had
    as many as it may have; 0 if that is not known."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds in ("", "pids"):
                file = Path("/sys/fs/cgroup", kinds, path.lstrip("/"), "pids.events")
                with contextlib.suppress(OSError):
                    return int(file.read_text().split()[1])
    return 0


def prefer_scheduling() -> None:
    """Raise the priority of this process: real-time if allowed, otherwise the best nice value.

    Children inherit it. It is kept in a user namespace, but cannot be requested there.
    """
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(20))
        return
    for nice in range(-20, 0):
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, nice)
            return


def ordinary_scheduling() -> None:
    """Undo `prefer_scheduling`; a positive nice value is kept."""
    if inside.guest_settings() is not None:
        inside.take_turns()
        return
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    if os.getpriority(os.PRIO_PROCESS, 0) < 0:
        os.setpriority(os.PRIO_PROCESS, 0, 0)


def charge_waiting() -> None:
    """In virtual time, let waiting without sleeping take time for this process and its children.

    Without it, calls that find nothing and loops without system calls let hardly any time pass.
    """
    if inside.guest_settings() is not None:
        _checked("arch_prctl", _libc.syscall(_SYS_ARCH_PRCTL, _ARCH_WATCH_SPINNING, 0))


def scheduling() -> str:
    """Scheduling of this process: `fifo` or `nice N`."""
    if os.sched_getscheduler(0) == os.SCHED_FIFO:
        return "fifo"
    return f"nice {os.getpriority(os.PRIO_PROCESS, 0)}"
