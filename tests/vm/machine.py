# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A virtual machine with a stock kernel whose root is this machine's, read-only, under memory.

Nothing of it is installed, and nothing outlives it but its folder of results.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from stock import ROOT, StockKernel

MADE = "/tmp/made"
"""Where steps write in the machine; what is there is among the results in the end."""
KVM = Path("/dev/kvm")
KVM_S = 20.0
"""How long a kernel may take for its first word under KVM."""
GENERIC = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
"""Machine code for any processor: compiled here beforehand, since the virtual one takes minutes."""
_CONSOLE = "console=ttyS0 panic=-1 edd=off mitigations=off"


@dataclass(frozen=True)
class Step:
    """What is run in the machine."""

    name: str
    words: list[str]
    """`testbed`, `pytest` or a program, and its arguments."""
    user: bool = False
    """Whether as an ordinary user."""
    docker: bool = False
    """Whether it takes a Docker daemon."""
    learning: bool = False
    """Whether nodes compute: with PyTorch, which takes minutes to import there."""
    limit_s: float = 3600.0
    environment: Mapping[str, str] = field(default_factory=dict)
    sysctl: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """How a step ended."""

    status: int | None
    """124: at its limit; None: it never ended, or never began."""
    seconds: float
    out: str
    err: str


def accelerator(kernel: StockKernel) -> tuple[str, str]:
    """`kvm` where a stock kernel really starts under it, else `tcg` and why.

    A /dev/kvm that can be opened is not enough: some hypervisors interpret what they are given.
    """
    if not os.access(KVM, os.R_OK | os.W_OK):
        return "tcg", f"{KVM} cannot be opened"
    command = [*_qemu("kvm", "512M"), "-serial", "stdio", "-kernel", str(kernel.image)]
    command += ["-append", f"{_CONSOLE} earlyprintk=ttyS0"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as machine:
        assert machine.stdout is not None
        os.set_blocking(machine.stdout.fileno(), False)
        said, deadline = b"", time.monotonic() + KVM_S
        while time.monotonic() < deadline and machine.poll() is None:
            said += machine.stdout.read() or b""
            if b"Linux version" in said:
                machine.kill()
                return "kvm", ""
            time.sleep(0.1)
        machine.kill()
    return "tcg", f"no stock kernel starts under {KVM} within {KVM_S:g} s"


def run(
    kernel: StockKernel,
    steps: Iterable[Step],
    results: Path,
    *,
    accelerated: str,
    limit_s: float,
    memory: str = "6G",
    tell: Callable[[str], object] = print,
) -> dict[str, Outcome]:
    """Boot, run the steps one after another, power off.

    Args:
        results: An empty folder, which the machine writes at the same path.
        accelerated: `kvm` or `tcg`.
        limit_s: Of all.
        tell: Told the lines by which the machine says how far it is.
    """
    wanted = list(steps)
    (results / "steps.json").write_text(json.dumps([asdict(step) for step in wanted]))
    console = results / "console.log"
    console.touch()
    variables = {
        "RESULTS": str(results),
        "HERE": str(ROOT),
        "PYTHON": sys.executable,
        "HOME": str(Path.home()),
        **GENERIC,
    }
    command = [
        *_qemu(accelerated, memory),
        *_shared("host", Path("/"), "on"),
        *_shared("over", kernel.root, "on"),
        *_shared("results", results, "off"),
        "-serial",
        f"file:{console}",
        "-kernel",
        str(kernel.image),
        "-initrd",
        str(kernel.initramfs),
        "-append",
        " ".join([_CONSOLE, *(f"{key}={value}" for key, value in variables.items())]),
    ]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as machine, console.open() as said:
        try:
            deadline = time.monotonic() + limit_s
            while machine.poll() is None and time.monotonic() < deadline:
                for line in said:
                    if line.startswith("testbed: "):
                        tell(line.removeprefix("testbed: ").rstrip())
                time.sleep(0.5)
        finally:
            machine.kill()
    return {step.name: outcome(results, step.name) for step in wanted}


def outcome(results: Path, name: str) -> Outcome:
    """What a step has left."""
    texts = {
        kind: (results / f"{name}.{kind}").read_text(errors="replace")
        if (results / f"{name}.{kind}").exists()
        else ""
        for kind in ("out", "err")
    }
    ended = results / f"{name}.json"
    told: dict[str, Any] = json.loads(ended.read_text()) if ended.exists() else {}
    return Outcome(told.get("status"), told.get("seconds", 0.0), **texts)


def _qemu(accelerated: str, memory: str) -> list[str]:
    """The machine without a root: two processors that differ from this one's."""
    kvm = accelerated == "kvm"
    return [
        # Dies with its parent.
        *("setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", "-machine", "q35"),
        *("-accel", "kvm" if kvm else "tcg,thread=multi,tb-size=1024"),
        *("-cpu", "host,-arch-capabilities" if kvm else "max"),
        *("-smp", "2", "-m", memory, "-nodefaults", "-display", "none", "-no-reboot"),
    ]


def _shared(tag: str, folder: Path, readonly: str) -> list[str]:
    options = f"local,id={tag},path={folder},security_model=none,multidevs=remap"
    return [
        *("-fsdev", f"{options},readonly={readonly}"),
        *("-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"),
    ]
