"""What a run was made with, so that it can be repeated or told apart."""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from orchestrator.scenario import Scenario

PACKAGES = ("ns3", "torch", "torchvision", "timm", "numpy", "numba", "pandas", "docker")


def revision() -> tuple[str | None, bool | None]:
    """Revision of the source tree and whether it has uncommitted changes; None outside of one."""
    root = Path(__file__).resolve().parents[1]

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return None, None


def manifest(scenario: Scenario, data: str) -> dict[str, Any]:
    """The manifest of a run that starts now."""
    commit, dirty = revision()
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "testbed_version": version("uav-sfl-testbed"),
        "revision": commit,
        "dirty": dirty,
        "command": " ".join(["testbed", *sys.argv[1:]]),
        "started": now(),
        "finished": None,
        "seed": scenario.seed,
        "python": platform.python_version(),
        "packages": versions,
        "kernel": platform.release(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "runtime": scenario.emulation.runtime,
        "congestion_control": scenario.emulation.congestion_control,
        "mtu": scenario.emulation.mtu,
        "dilation": scenario.emulation.dilation,
        "valid": None,
        "validity": [],
        "status": "failed",
        "failure": None,
        "data": data,
    }


def now() -> str:
    """The time of day in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
