# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Checks of this machine's capabilities for the testbed, with remedies for missing ones."""

import json
import os
import platform
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.core.errors import InputError, RunError
from testbed.core.registry import GROUPS
from testbed.host.trial import output_of
from testbed.network.fabric import (
    DeviceCount,
    Fabric,
    Part,
    Tunnel,
    device_counts,
    link_addresses,
    wire,
)
from testbed.network.shaping import Shape
from testbed.system import leftovers, linux, netlink
from testbed.system.netlink import attribute, message, text
from testbed.virtual import guest
from testbed.virtual import kernel as guest_kernel

APPARMOR = Path("/sys/module/apparmor/parameters/enabled")
_SYSCTL = Path("/proc/sys")
_QDISCS = ("htb", "tbf", "bfifo", "netem", "fq", "fq_codel", "pie", "red")
TUN = "/dev/net/tun"
"""Device through which tap devices are made."""
_SLEEPS = 200
_LATE_S = 1e-3
_PROBE_TIMEOUT_S = 60
_TOOL_TIMEOUT_S = 20


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    ok: bool
    detail: str
    """Result in words."""
    needed_for: str
    """Function of the testbed that does not work, or works less well, if the check fails."""
    remedy: str = ""
    """Remedy for a failed check; empty if the check passed or there is no remedy."""

    def to_json(self) -> dict[str, Any]:
        """The finding as a JSON object."""
        return vars(self)


def examine() -> list[Finding]:
    """Run all checks; takes one or two seconds and changes nothing."""
    probe = _probe()
    return [
        _system(),
        _compiler(),
        _tap_devices(),
        _namespaces(probe),
        *_kernel(probe),
        _tunnels(probe),
        _congestion_controls(),
        _docker(),
        _leftovers(),
        _landlock(probe),
        _scheduling(probe),
        _timers(),
        _open_files(),
        _gpu(),
        *_virtual_time(),
        *_plugins(),
    ]


def has_netem() -> bool:
    """Whether the kernel has netem, which delays and loses frames."""
    return has_qdisc("netem")


def has_qdisc(kind: str) -> bool:
    """Whether the kernel has one of the qdiscs that this module checks."""
    return bool(_probe().get("qdiscs", {}).get(kind))


def lacking(queue: str, congestion_control: str) -> tuple[str, str] | None:
    """The first of a scenario's choices that this kernel does not support: field and
    explanation."""
    if queue != "fifo" and not has_qdisc(queue):
        there = f"has no {queue} (the module sch_{queue})"
        return "links.queue", f"{there}; on one machine, emulation.clock 'virtual' has"
    if congestion_control not in (available := _available()):
        there = (
            f"has {', '.join(available)}, not {congestion_control!r}; if it has the module, "
            f"`modprobe tcp_{congestion_control}` as root loads it"
        )
        return "emulation.congestion_control", there
    return None


def _system() -> Finding:
    cores = len(os.sched_getaffinity(0))
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return Finding(
        "machine",
        cores >= 2 and memory_gib >= 4,
        f"{cores} cores, {memory_gib:.1f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}",
        "undisturbed links: one core for the links, another for the nodes",
        "" if cores >= 2 and memory_gib >= 4 else "raise emulation.dilation on a small machine",
    )


def _compiler() -> Finding:
    path = shutil.which("g++")
    return Finding(
        "g++",
        path is not None,
        _first_line([path, "--version"]) if path else "not found",
        "channels: the ns-3 models are compiled on first use",
        "" if path else "on Debian: apt-get install g++",
    )


def _tap_devices() -> Finding:
    can_open = os.access(TUN, os.R_OK | os.W_OK)
    return Finding(
        "tap devices",
        can_open,
        f"{TUN} {'can' if can_open else 'cannot'} be opened",
        "emulation.air 'ns3' with the clock 'real'; the clock 'virtual' has its own",
        "" if can_open else f"`modprobe tun` and `chmod 666 {TUN}` as root",
    )


def _namespaces(probe: dict[str, Any]) -> Finding:
    who = "root" if os.geteuid() == 0 else "an ordinary user"
    how = {"user": f"user namespaces, as {who}", "root": "as root, without user namespaces"}
    if "namespaces" in probe:
        return Finding("namespaces", True, how[probe["namespaces"]], "the namespace runtime")
    remedy = "run as root"
    for name, forbids, allows in (
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
        ("kernel/unprivileged_userns_clone", "0", "1"),
        *((f"user/max_{name}_namespaces", "0", "15000") for name in linux.NAMESPACES),
    ):
        knob = _SYSCTL / name
        if knob.exists() and knob.read_text().strip() == forbids:
            or_root = ", or run as root" if os.geteuid() else ""
            remedy = f"sysctl -w {name.replace('/', '.')}={allows}{or_root}"
            break
    return Finding("namespaces", False, probe["error"], "the namespace runtime", remedy)


def _kernel(probe: dict[str, Any]) -> list[Finding]:
    if "links" not in probe:
        unknown = f"cannot be tried: {probe['error']}"
        return [Finding("links", False, unknown, "any emulation", "see namespaces")]
    found: dict[str, bool] = probe["qdiscs"]
    modules = "load the modules sch_htb, sch_tbf and veth, or use a distribution's own kernel"
    return [
        Finding(
            "links",
            probe["links"] == "",
            probe["links"] or "veth, HTB, TBF and bfifo carry, shape and hold frames",
            "any emulation",
            modules if probe["links"] else "",
        ),
        Finding(
            "other qdiscs",
            all(found.values()),
            ", ".join(f"{name} {'yes' if there else 'no'}" for name, there in found.items()),
            "delay and loss of many fast links, which a process implements without netem; "
            "fq_codel, pie and red for links.queue; fq would pace senders; the testbed's own links "
            "only need htb, tbf and bfifo",
            "" if all(found.values()) else "a kernel with the missing sch_* modules",
        ),
    ]


def _tunnels(probe: dict[str, Any]) -> Finding:
    needed_for = "nodes of one run on several machines"
    if "tunnel" not in probe:
        return Finding("tunnels", False, "cannot be tried: see namespaces", needed_for)
    if probe["tunnel"]:
        return Finding("tunnels", False, probe["tunnel"], needed_for, "load the module vxlan")
    if os.geteuid() != 0:
        detail = "a relay carries links to other machines; for root, VXLAN does"
        return Finding("tunnels", True, detail, needed_for)
    return Finding("tunnels", True, "VXLAN carries links to other machines", needed_for)


def _available() -> list[str]:
    return (_SYSCTL / "net/ipv4/tcp_available_congestion_control").read_text().split()


def _congestion_controls() -> Finding:
    available = _available()
    standard = (_SYSCTL / "net/ipv4/tcp_congestion_control").read_text().strip()
    return Finding(
        "congestion control",
        "cubic" in available,
        f"{', '.join(available)}; the kernel's default is {standard}"
        + ("" if "bbr" in available else "; for bbr, load its module: modprobe tcp_bbr"),
        "emulation.congestion_control: a scenario may choose among these",
        "" if "cubic" in available else "modprobe tcp_cubic, or choose another in the scenario",
    )


def _docker() -> Finding:
    needed_for = "the docker runtime"
    try:
        import docker

        client = docker.from_env(timeout=5)
        version = client.version()["Version"]
        client.close()
    except Exception as error:  # docker-py and requests have their own exceptions
        why = _why_unreachable(error)
        remedy = "on Debian: apt-get install docker.io; start dockerd; run as root"
        return Finding("docker", False, f"no daemon answers: {why}", needed_for, remedy)
    if _lacks_apparmor_parser():
        return Finding(
            "docker",
            False,
            f"daemon {version}, but the kernel has AppArmor and apparmor_parser is not found: "
            "no container starts",
            needed_for,
            "on Debian: apt-get install apparmor",
        )
    root = os.geteuid() == 0
    return Finding(
        "docker",
        root,
        f"daemon {version}" + ("" if root else ", but only root can attach links"),
        needed_for,
        "" if root else "run as root, or use the namespace runtime",
    )


def _why_unreachable(error: Exception) -> str:
    if isinstance(error, ImportError):
        return f"the Python package {error.name} is not installed"
    from testbed.runtimes.docker import why_unreachable

    return why_unreachable(error)


def _lacks_apparmor_parser() -> bool:
    """Whether Docker has to load an AppArmor profile and cannot."""
    # The daemon runs as root; an ordinary user's path may lack sbin.
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    enabled = APPARMOR.exists() and APPARMOR.read_text().strip() == "Y"
    return enabled and shutil.which("apparmor_parser", path=path) is None


def _leftovers() -> Finding:
    found = leftovers.find()
    try:
        from testbed.runtimes.docker import find_leftovers

        found += find_leftovers()
    except (ImportError, RunError):
        pass  # Reported by the check of docker.
    names = ", ".join(leftover.what for leftover in found[:5])
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return Finding(
        "leftovers",
        not found,
        names + more or "no leftovers of dead runs",
        "a clean machine: leftovers take memory and disk, and may still run",
        "testbed clean" if found else "",
    )


def _landlock(probe: dict[str, Any]) -> Finding:
    return Finding(
        "Landlock",
        probe["landlock"] == "",
        probe["landlock"] or "nodes of the namespace runtime open no file for writing",
        "nodes that cannot write their user's files, in the namespace runtime",
        "boot with landlock in the kernel's parameter lsm=" if probe["landlock"] else "",
    )


def _scheduling(probe: dict[str, Any]) -> Finding:
    how = probe["scheduling"]
    return Finding(
        "real-time scheduling",
        how == "fifo",
        f"the injector runs as {how!r}",
        "rate changes on time while all cores are busy",
        ""
        if how == "fifo"
        else "run as root, or give the user an rtprio limit of 20 or more "
        "(/etc/security/limits.conf)",
    )


def _timers() -> Finding:
    late_s = []
    for _ in range(_SLEEPS):
        due = time.monotonic() + 1e-3
        time.sleep(1e-3)
        late_s.append(time.monotonic() - due)
    late_s.sort()
    median, high = late_s[_SLEEPS // 2], late_s[int(_SLEEPS * 0.99)]
    resolution = time.clock_getres(time.CLOCK_MONOTONIC)
    return Finding(
        "timers",
        high < _LATE_S,
        f"a sleeper wakes {median * 1e6:.0f} µs late (median), {high * 1e6:.0f} µs (p99); "
        f"clock resolution {resolution * 1e9:.0f} ns",
        "steps that start on time",
        "" if high < _LATE_S else "stop other work on this machine, or raise emulation.dilation",
    )


def _open_files() -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    clients = (hard - 100) // 4
    return Finding(
        "open files",
        clients >= 100,
        f"hard limit {hard}: up to about {clients} UAVs",
        "many UAVs",
        "" if clients >= 100 else "ulimit -Hn 65536, as root",
    )


def _gpu() -> Finding:
    path = shutil.which("nvidia-smi")
    names = _first_line([path, "-L"]) if path else ""
    return Finding(
        "GPU",
        names.startswith("GPU"),
        names or "none found",
        "base_station.device and uavs.device: cuda; everything also runs on the CPU",
    )


def _virtual_time() -> list[Finding]:
    """Checks of the virtual-time kernel and its requirements."""
    needed_for = "emulation.clock: virtual"
    try:
        kernel = guest_kernel.find()
        lacking = "" if kernel else "not built"
    except RunError as error:
        kernel, lacking = None, str(error)
    build = "; ".join([*guest_kernel.missing(), "then testbed kernel build"])
    maps = int((_SYSCTL / "vm/max_map_count").read_text())
    needed, remedy = f"{guest.MEMORY_BYTES >> 30} GiB", ""
    try:
        found = f"{needed} are free in {guest.memory_folder()}"
    except InputError as error:
        found, remedy = str(error), "free memory, or mount -o remount,size=75% /dev/shm"
    except RunError as error:
        found, remedy = str(error), "mount -o remount,exec /dev/shm, or set TMPDIR"
    return [
        Finding(
            "virtual time",
            kernel is not None,
            f"Linux {kernel.version}, built {kernel.built}" if kernel else lacking,
            needed_for,
            "" if kernel else build.removeprefix("then "),
        ),
        Finding(
            "memory mappings",
            maps >= guest.MAPS_WANTED,
            f"vm.max_map_count is {maps}",
            f"real learning with {needed_for}: each non-contiguous page is a mapping of the host",
            "" if maps >= guest.MAPS_WANTED else f"sysctl -w vm.max_map_count={guest.MAPS_WANTED}",
        ),
        Finding(
            "guest memory",
            not remedy,
            found,
            f"{needed_for}: a guest's memory is an unnamed file there, mapped as executable",
            remedy,
        ),
    ]


def _plugins() -> list[Finding]:
    """One check per plugin: whether it can be loaded."""
    findings = []
    for group in GROUPS:
        for name in group.plugins:
            try:
                group.load(name)
                broken = ""
            except InputError as error:
                broken = str(error)
            findings.append(
                Finding(
                    f"plugin {name}",
                    not broken,
                    broken or str(group.origin(name)),
                    f"{group.key}: {name}",
                    broken and "mend or uninstall its package",
                )
            )
    return findings


def _first_line(command: list[str]) -> str:
    try:
        found = subprocess.run(
            command, capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"waited {_TOOL_TIMEOUT_S} s for {command[0]}"
    return (found.stdout.splitlines() or [""])[0]


def _probe() -> dict[str, Any]:
    """Results of a separate process that tries namespaces, links and tunnels."""
    found = output_of(__name__, _PROBE_TIMEOUT_S, "doctor", "what namespaces allow")
    result: dict[str, Any] = json.loads(found)
    return result


# The following functions run in the probing process.


def _main() -> None:
    result: dict[str, Any] = {}
    linux.prefer_scheduling()
    result["scheduling"] = linux.scheduling()
    linux.ordinary_scheduling()
    try:
        linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNET)
        result["namespaces"] = "user"
    except OSError as error:
        try:
            linux.unshare(linux.CLONE_NEWNET)
            result["namespaces"] = "root"
        except OSError:
            result["error"] = str(error)
    if "namespaces" in result:
        result["links"] = _try_links()
        result["tunnel"] = _try_tunnel()
        result["qdiscs"] = {name: _knows_qdisc(name) for name in _QDISCS}
    result["landlock"] = _try_landlock()
    json.dump(result, sys.stdout)


def _try_landlock() -> str:
    try:
        linux.drop_privileges()
        linux.forbid_writing()
    except OSError as error:
        return str(error)
    return ""


def _try_links() -> str:
    """The error of a link of the fabric; empty if it holds frames and releases them."""
    base_station, uav = linux.new_network_namespace(), linux.new_network_namespace()
    try:
        fabric = wire(base_station, [uav], Shape(congestion_control="reno"))
        there, _ = link_addresses(1)
        linux.enter(uav)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(3):
                sender.sendto(b"probe", (there, 9))
        time.sleep(0.05)
        if _sent(fabric) != 0:
            return "a closed link lets frames through (the kernel ignores a TBF's mpu)"
        (end,) = fabric.uavs[0].ends
        fabric.uavs[0].netlink.transact(end.change(1e9))
        if not _within(0.5, lambda: _sent(fabric) == 3):
            return "an opened link does not release the frames that it held"
    except OSError as error:
        return f"the kernel refused: {error}"
    return ""


def _try_tunnel() -> str:
    """The error of a tunnel to another machine; empty if it can be created."""
    underlay, base_station = linux.open_network_namespace(), linux.new_network_namespace()
    to_uav = Part(1, True, (), {1: Tunnel(1, "192.0.2.1", "192.0.2.2")})
    try:
        wire(base_station, [], Shape(mtu=1450, congestion_control="reno"), to_uav, underlay)
    except (OSError, RunError) as error:
        return f"the kernel refused: {error}"
    return ""


def _sent(fabric: Fabric) -> int:
    site = fabric.uavs[0]
    counts: dict[int, DeviceCount] = device_counts(site.netlink)
    return counts[site.ends[0].index].sent_frames


def _within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def _knows_qdisc(kind: str) -> bool:
    """Whether the kernel knows a qdisc: an unknown one is refused before its options are read."""
    linux.new_network_namespace()
    loopback = 1
    with netlink.Netlink() as probe:
        body = b"".join(
            [
                bytes(4),
                loopback.to_bytes(4, sys.byteorder),
                (0x10000).to_bytes(4, sys.byteorder),
                (0xFFFFFFFF).to_bytes(4, sys.byteorder),
                bytes(4),
                attribute(1, text(kind)),
            ]
        )
        try:
            probe.transact([message(netlink.NEWQDISC, netlink.CREATE, body)])
        except netlink.NetlinkError as error:
            # ENOENT: unknown qdisc. Other errors are about the missing options.
            return error.number != 2
    return True


if __name__ == "__main__":
    _main()
