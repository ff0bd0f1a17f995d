# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The manifest of a run: scenario, versions, machine and kernel, to repeat or compare runs."""

import hashlib
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter
from pathlib import Path
from typing import Any

import psutil

from ns3_scenarios import nr_module
from orchestrator.engine.faults import planned
from orchestrator.scenario.schema import Scenario
from testbed.core.registry import ANALYTICAL_MODELS, CHANNELS, GROUPS, METRICS, ORDERS, Registry
from testbed.host.doctor import has_netem
from testbed.system import inside

PACKAGES = ("ns3", "torch", "torchvision", "timm", "numpy", "numba", "pandas", "docker")
SOURCES = {".py", ".csv", ".cpp", ".cc", ".h", ".html", ".css", ".js"}
SYSCTLS = (
    "/proc/sys/net/ipv4/tcp_rmem",
    "/proc/sys/net/ipv4/tcp_wmem",
    "/proc/sys/net/core/rmem_max",
    "/proc/sys/net/core/wmem_max",
    "/proc/sys/net/ipv4/tcp_congestion_control",
    "/proc/sys/net/ipv4/tcp_slow_start_after_idle",
    "/proc/sys/net/ipv4/tcp_window_scaling",
    "/proc/sys/net/ipv4/tcp_sack",
    "/proc/sys/net/ipv4/tcp_autocorking",
    "/proc/sys/net/ipv4/tcp_no_metrics_save",
    "/proc/sys/net/ipv4/tcp_mtu_probing",
    "/proc/sys/kernel/sched_rt_runtime_us",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "/sys/kernel/mm/transparent_hugepage/enabled",
)
"""Kernel settings that may affect TCP, timers and computing."""


@cache
def revision() -> tuple[str | None, bool | None]:
    """Revision of the source tree and whether it has uncommitted changes; None outside of one."""
    root = Path(__file__).resolve().parents[2]

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", __file__)  # an environment may be in another tree
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return None, None


@cache
def source_sha256() -> str:
    """Digest of every source file of the installed packages, with their paths."""
    digest = hashlib.sha256()
    root = Path(__file__).resolve().parents[2]
    for package in ("testbed", "ns3_scenarios", "workloads", "orchestrator"):
        for path in sorted((root / package).rglob("*")):
            if path.is_file() and path.suffix in SOURCES:
                digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


@cache
def _versions() -> dict[str, str]:
    """Versions of the testbed and of those of `PACKAGES` that are installed."""
    versions = {}
    for package in ("uav-sfl-testbed", *PACKAGES):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def program() -> dict[str, Any]:
    """What is executed: versions, revision and sources of the testbed, and of packages. The host
    finds it out for its guests, where reading that many files takes long."""
    if (known := (inside.guest_settings() or {}).get("program")) is not None:
        return dict(known)
    commit, dirty = revision()
    return {
        "testbed_version": _versions()["uav-sfl-testbed"],
        "revision": commit,
        "dirty": dirty,
        "source_sha256": source_sha256(),
        "python": platform.python_version(),
        "packages": {name: text for name, text in _versions().items() if name in PACKAGES},
    }


def environment() -> dict[str, Any]:
    """Factors other than the scenario that may affect results: program, versions, machine and
    kernel.

    In virtual time, `kernel`, `cpu`, `cores` and `memory_bytes` are those of the virtual machine.
    `host_cpu` is the CPU that executes the instructions. There it affects no time, but it may
    affect the last bits of trained weights.
    """
    return {
        **program(),
        "kernel": platform.release(),
        "cpu": cpu(),
        "host_cpu": (inside.guest_settings() or {}).get("host_cpu") or cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "sysctls": {name: text for name in SYSCTLS if (text := _system(name)) is not None},
    }


def manifest(scenario: Scenario, data: str) -> dict[str, Any]:
    """The manifest of a run that starts now."""
    about = environment()
    if scenario.emulation.air == "ns3" and scenario.radio.kind.ns3 == "nr":
        module = nr_module.required()
        about["packages"]["5g-lena"] = f"{module.release}, sha256 {module.source_sha256}"
    return {
        **about,
        **invocation(),
        "started": now(),
        "finished": None,
        "seed": scenario.seed,
        "plugins": _plugins(scenario),
        "faults": [fault.to_json() for fault in planned(scenario)],
        "runtime": scenario.emulation.runtime,
        "congestion_control": scenario.emulation.congestion_control,
        "mtu": scenario.emulation.mtu,
        "air": _air() if scenario.is_impaired else None,
        "clock": scenario.emulation.clock,
        "virtual_kernel": (inside.guest_settings() or {}).get("kernel"),
        "dilation": scenario.emulation.dilation,
        "dilation_foreseen": None,
        "valid": None,
        "validity": [],
        "calibration": None,
        "status": "failed",
        "failure": None,
        "data": data,
    }


def invocation() -> dict[str, Any]:
    """The command that this process executes: its words, and the text that a shell splits into
    them.

    Its words are those after `python` if a Python program called the functions of the API. Bytes
    that are not UTF-8 are escaped.
    """
    settings = inside.guest_settings() or {}
    words = settings.get("argv") or [
        word.encode("utf-8", "backslashreplace").decode() for word in _words()
    ]
    return {"argv": words, "command": shlex.join(words)}


def _words() -> list[str]:
    program = Path(sys.argv[0])
    is_ours = program.name == "testbed" or program == Path(__file__).parents[1] / "__main__.py"
    return ["testbed", *sys.argv[1:]] if is_ours else ["python", *sys.orig_argv[1:]]


def command_of(manifest: Mapping[str, Any]) -> str:
    """The command of a manifest, to be copied into a shell; empty if there is none.

    Manifests of earlier versions have only a text, which may lack quotes, so that a shell splits it
    otherwise; it is returned as it is.
    """
    given = manifest.get("argv") or manifest.get("command") or ""
    return given if isinstance(given, str) else shlex.join(str(word) for word in given)


def provenance() -> dict[str, Any]:
    """What makes the results of this process: its environment, its command, and the time in UTC."""
    return {**environment(), **invocation(), "made": now()}


def _air() -> dict[str, Any]:
    """The programs that delay and lose frames, and whether this is repeatable (netem since Linux
    6.7)."""
    if not has_netem():
        return {"delayed_and_lost_by": "process", "repeatable": True}
    major, minor = (int(part) for part in platform.release().split(".")[:2])
    return {"delayed_and_lost_by": "netem", "repeatable": (major, minor) >= (6, 7)}


def plugins_of(scenario: Scenario) -> dict[Registry, str]:
    """The names of the plug-ins that a scenario names, by their group."""
    found = {}
    for group in GROUPS:
        # Scenarios do not have a single key for these.
        if group not in (METRICS, ANALYTICAL_MODELS):
            key = {ORDERS: "scheme.order", CHANNELS: "radio.model"}.get(group, group.key)
            name = attrgetter(key)(scenario)
            if group.origin(name) is not None:
                found[group] = name
    return found


def _plugins(scenario: Scenario) -> dict[str, str]:
    """The package of each plug-in, by the scenario's key that names it."""
    return {group.key: str(group.origin(name)) for group, name in plugins_of(scenario).items()}


def now() -> str:
    """Current time in UTC, ISO 8601; in virtual time, that of the guest."""
    settings = inside.guest_settings()
    seconds = (
        time.time()
        if settings is None
        else settings["started_s"] + time.monotonic() - inside.UPTIME_S
    )
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _system(path: str) -> str | None:
    try:
        return " ".join(Path(path).read_text().split())
    except OSError:
        return None


def cpu() -> str:
    """Model of the CPU that this process sees."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
