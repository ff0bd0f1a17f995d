# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How close one network over three hosts is to the channel's rates, beside the same on one.

    python tests/trials/several_hosts.py [PART...] [--dilation D] [--json FILE]

Hosts are namespaces of this machine on a bridge, with clocks of their own
(`tests/support/three_hosts.py`); that takes root. Parts: `one` is the paper's round without
learning on one host; `1500` and `9000` are the same on three, with that MTU between them;
`ordinary` is `1500` with hosts of an ordinary user, whose links are relayed, at the dilation that
this takes here; `hundred` is Swin-L's round for so many UAVs, `narrow-hundred` and `three-hundred`
have a narrow downlink and a smaller model, so that two cores carry the broadcast. These three are
left out unless they are named. The machine must be idle; the table says what others took. Targets
stand beside the figures, none is asserted.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
THREE_HOSTS = ROOT / "tests" / "support" / "three_hosts.py"
NAMESPACES = ("--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc")
POWERS_W = [1, 0.4, 0.1, 1, 0.4, 0.1, 1, 0.4, 0.2, 0.1]
LIMIT_S = 1800
DILATION = re.compile(r"emulation\.dilation: must be at least ([\d.]+)")

err = Console(stderr=True)


@dataclass(frozen=True)
class Part:
    """One scenario, and where it is played."""

    scenario: str
    overrides: tuple[str, ...]
    between: int | None = None
    """MTU between hosts; None: there is one host."""
    ordinary: bool = False
    transfers_target: float = 0.3
    latency_target: float | None = 0.3


PAPER = ("workload.compute=none",)
NARROW = (
    *("radio.downlink_bandwidth_hz=2e6", "workload.model=swin_tiny_patch4_window7_224"),
    *("workload.split=4", "workload.batch_size=1", "emulation.mtu=1450"),
)
"""A broadcast of so many that two cores carry it, frame by frame."""
PARTS = {
    "one": Part("paper", (*PAPER, "emulation.mtu=1450")),
    "1500": Part("paper", (*PAPER, "emulation.mtu=1450"), 1500),
    "9000": Part("paper", PAPER, 9000),
    "ordinary": Part("paper", (*PAPER, "emulation.mtu=1448"), 1500, ordinary=True),
    "hundred": Part(
        "hundred", ("emulation.dilation=64", "emulation.mtu=1450"), 1500, False, 1.0, None
    ),
    "narrow-hundred": Part("hundred", (*NARROW, "emulation.dilation=24"), 1500, False, 1.0, None),
    "three-hundred": Part(
        "hundred",
        (*NARROW, f"uavs.tx_power_w={POWERS_W * 30}", "emulation.dilation=20"),
        1500,
        False,
        1.0,
        None,
    ),
}
UNLESS_NAMED = ("one", "1500", "9000", "ordinary")


@dataclass(frozen=True)
class Figures:
    """What a part's rounds came to; percent, of transfers but broadcasts, unless said otherwise."""

    part: str
    uavs: int
    dilation: float
    p50: float
    p95: float
    most: float
    broadcasts_p95: float
    latency: float
    """Measured less `predicted_wire`, of it."""
    unexplained: float
    """Measured less predicted latency less the budget's parts, of the latency."""
    order: float
    """The budget's part for gradients that were sent in another order, of the latency."""
    rest: float
    """The budget's part that no cause explains, of the latency."""
    clock_error_us: float | None
    """At most, between two hosts."""
    others: float
    """Of the CPU time."""
    failed: str
    """Checks of validity that failed."""


def play(name: str, part: Part) -> Figures | None:
    """Run a part, at the dilation that hosts ask for where they ask for one."""
    with tempfile.TemporaryDirectory(prefix="several-hosts-") as made:
        folder = Path(made)
        words = [str(ROOT / "scenarios" / f"{part.scenario}.yaml")]
        words += [word for each in part.overrides for word in ("--set", each)]
        words += ["--out", str(folder / "run"), "--json", str(folder / "run.json")]
        told = _played(part, folder, words)
        if told["status"] == 2 and (asked := DILATION.search(told["stderr"])):
            dilation = 1.1 * float(asked[1])
            err.print(f"{name}: at dilation {dilation:.3g}")
            overrides = (*part.overrides, f"emulation.dilation={dilation:.3g}")
            return play(name, replace(part, overrides=overrides))
        if told["status"]:
            err.print(f"{name}: failed\n{told['stderr']}")
            return None
        return _figures(name, folder)


def _played(part: Part, folder: Path, words: Sequence[str]) -> dict[str, Any]:
    if part.between is None:
        command = [sys.executable, "-m", "orchestrator", "run", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
        return {"status": done.returncode, "stderr": done.stderr}
    environment = os.environ | {"MTU": str(part.between)}
    if part.ordinary:
        environment["ORDINARY"] = "1"
    job = json.dumps([{"run": list(words), "limit_s": LIMIT_S}])
    command = ["unshare", *NAMESPACES, sys.executable, str(THREE_HOSTS), str(folder), job]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        return {"status": done.returncode, "stderr": done.stderr}
    return dict(json.loads(done.stdout.splitlines()[0]))


def _figures(name: str, folder: Path) -> Figures:
    told = json.loads((folder / "run.json").read_text())
    manifest = json.loads((folder / "run" / "manifest.json").read_text())
    scenario = json.loads((folder / "run" / "scenario.json").read_text())
    errors = pd.read_parquet(folder / "run" / "transfers.parquet").set_index("step")["error"]
    size = 100 * errors.abs()
    (measured,), (predicted,), (wire,) = (
        [round_["latency_s"] for round_ in told[kind]]
        for kind in ("measured", "predicted", "predicted_wire")
    )
    parts = told["error_budget"][0]["parts"]
    checks = {check["check"]: check["value"] for check in manifest["validity"]}
    others = size[size.index != "SM"]
    return Figures(
        part=name,
        uavs=len(told["measured"][0]["energy_j"]),
        dilation=scenario["emulation"]["dilation"],
        p50=float(others.median()),
        p95=float(others.quantile(0.95)),
        most=float(others.max()),
        broadcasts_p95=float(size[size.index == "SM"].quantile(0.95)),
        latency=100 * (measured / wire - 1),
        unexplained=100 * abs(measured - predicted - sum(parts.values())) / measured,
        order=100 * parts["order"] / measured,
        rest=100 * parts["rest"] / measured,
        clock_error_us=1e6 * checks["clock_error_s"] if "clock_error_s" in checks else None,
        others=100 * (checks["cpu_others"] or 0.0),
        failed=", ".join(
            f"{check['check']} {check['value']:.2g} (limit {check['limit']:g})"
            for check in manifest["validity"]
            if not check["ok"]
        ),
    )


def table(all_: Sequence[Figures]) -> Table:
    """Figures beside their targets."""
    shown = Table(box=None, pad_edge=False)
    columns = ("part", "K", "dilation", "p50 %", "p95 %", "max %", "SM p95 %", "latency %")
    budget = ("unexplained %", "order %", "rest %")
    for column in (*columns, *budget, "clocks µs", "others %", "valid"):
        shown.add_column(column, justify="left" if column == "part" else "right")
    for each in all_:
        part = PARTS[each.part]
        missed = each.p95 > part.transfers_target
        p95 = f"{each.p95:.3f}" + (f" (over {part.transfers_target:g})" if missed else "")
        far = part.latency_target is not None and abs(each.latency) > part.latency_target
        latency = f"{each.latency:+.3f}" + (f" (over {part.latency_target:g})" if far else "")
        values = (each.p50, each.most, each.broadcasts_p95)
        p50, most, broadcasts = (f"{value:.3f}" for value in values)
        clocks = "" if each.clock_error_us is None else f"{each.clock_error_us:.0f}"
        rests = f"{each.unexplained:.1e}", f"{each.order:+.3f}", f"{each.rest:+.3f}", clocks
        shown.add_row(
            each.part,
            str(each.uavs),
            f"{each.dilation:g}",
            p50,
            p95,
            most,
            broadcasts,
            latency,
            *rests,
            f"{each.others:.1f}",
            "yes" if each.failed == "" else f"no: {each.failed}",
        )
    return shown


def main() -> None:
    """Play the parts, and print what they came to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("part", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--dilation", type=float, metavar="D", help="of all parts; else their own")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    given = parser.parse_args()
    if unknown := [part for part in given.part if part not in PARTS]:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    if os.geteuid() != 0:
        parser.error("hosts as namespaces need root")
    found = []
    for name in given.part or UNLESS_NAMED:
        err.print(f"{name} …")
        part = PARTS[name]
        if given.dilation is not None:
            slower = f"emulation.dilation={given.dilation:g}"
            part = replace(part, overrides=(*part.overrides, slower))
        if (figures := play(name, part)) is not None:
            found.append(figures)
    Console(width=200).print(table(found))
    if given.json is not None:
        about = {"machine": platform.processor() or platform.machine(), "cores": os.cpu_count()}
        about |= {"kernel": platform.release(), "parts": [asdict(each) for each in found]}
        given.json.write_text(json.dumps(about, indent=2) + "\n")


if __name__ == "__main__":
    main()
