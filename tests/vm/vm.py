# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The testbed on kernels that it was not developed on: Debian's, in a virtual machine.

    python tests/vm/vm.py [--kernel RELEASE]… [--only CHECK]… [--keep FOLDER]

Fetches each kernel by apt, boots it with this machine's files as its root, read-only, runs the
checks of `checks.py`, and says what came of them. The status is 1 if one failed, 2 if something is
missing here. Under KVM that takes minutes, on an emulated processor an hour a kernel and more.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from checks import BUNDLE, Check, checks  # noqa: E402
from machine import GENERIC, accelerator, run  # noqa: E402
from stock import RELEASES, ROOT, Unavailable, need, stock_kernel  # noqa: E402

LIMIT_S = {"kvm": 3600.0, "tcg": 6 * 3600.0}
TESTBED = [sys.executable, "-m", "orchestrator"]


def main() -> int:
    """All kernels, one after another."""
    asked = _asked()
    try:
        need()
        kernels = [stock_kernel(release, ROOT / "build/vm/kernels") for release in asked.kernel]
    except Unavailable as error:
        print(f"test-vm: {error}", file=sys.stderr)
        return 2
    fine = True
    for kernel in kernels:
        accelerated, why = accelerator(kernel)
        note = f" ({why}; an emulated processor)" if why else ""
        print(f"\nLinux {kernel.version}, {accelerated}{note}", flush=True)
        results = _fresh(asked.keep / kernel.version)
        chosen = [c for c in checks(results) if not asked.only or c.step.name in asked.only]
        _prepare(results, chosen)
        began = time.monotonic()
        done = run(
            kernel,
            [check.step for check in chosen],
            results,
            accelerated=accelerated,
            limit_s=LIMIT_S[accelerated],
            tell=lambda line: print(f"{time.monotonic() - began:6.0f} s  {line}", flush=True),  # noqa: B023
        )
        said = {}
        for check in chosen:
            outcome = done[check.step.name]
            faults = (
                ["was never ended: see console.log"]
                if outcome.status is None
                else list(check.judge(outcome, results))
            )
            fine &= not faults
            said[check.step.name] = {"seconds": outcome.seconds, "faults": faults}
            took = f"{outcome.seconds:.0f} s"
            print(f"{'FAILED' if faults else 'ok':7s}{check.step.name:20s}{took}")
            for fault in faults:
                print(f"       {fault}")
        (results / "summary.json").write_text(json.dumps(said, indent=1))
        print(f"what it left: {results}", flush=True)
    return 0 if fine else 1


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kernel", action="append", help=f"of {', '.join(RELEASES)}; both")
    names = [check.step.name for check in checks(Path())]
    parser.add_argument("--only", action="append", choices=names)
    parser.add_argument("--keep", type=Path, default=ROOT / "build/vm", help="folder of results")
    asked = parser.parse_args()
    asked.kernel = asked.kernel or list(RELEASES)
    asked.keep = asked.keep.resolve()
    return asked


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _prepare(results: Path, chosen: list[Check]) -> None:
    """A run here: for the bundle, and so that the machine finds everything compiled."""
    environment = os.environ | GENERIC
    words = checks(results)[2].step.words[1:-2]
    made = results / "here"
    # Emulated here at a speed of this machine's own.
    command = [*TESTBED, *words, "--set", "emulation.dilation=3", "--out", str(made)]
    quiet = {"cwd": ROOT, "check": True, "stdout": subprocess.DEVNULL, "env": environment}
    subprocess.run(command, stderr=subprocess.DEVNULL, **quiet)
    subprocess.run([*TESTBED, "bundle", str(made), "--out", str(results / BUNDLE)], **quiet)
    if any(check.step.name in ("delay", "loss") for check in chosen):
        # Its engine is compiled apart.
        impaired = ["--set", "links.one_way_delay_s=0.02", "--set", "links.loss=0.02"]
        subprocess.run([*TESTBED, "predict", words[1], "--wire", *impaired], **quiet)


if __name__ == "__main__":
    sys.exit(main())
