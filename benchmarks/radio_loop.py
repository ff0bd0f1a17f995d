# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What packets of real programs over ns-3's radio cost in virtual time, with ns-3 alone beside it.

    python benchmarks/radio_loop.py [CASE...] [--seconds S] [--json FILE] [--docs PAGE]

Each case is a cell with K UAVs, which do nothing, or which all send to the base station: by TCP
with iperf3 in a session, and by backlogged senders in ns-3 alone. Both are played twice, once S
emulated seconds longer. Cells have the difference: CPU seconds of all processes per emulated
second. Other programs on the machine make them larger, both alike.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import common
import lte_radio
from common import PAPER, ROOT
from rich.console import Console
from rich.progress import track

from ns3_scenarios import radio
from orchestrator.rounds.ns3_radio import air_of, settings_of, simulated
from orchestrator.scenario.channel import ns3_source
from orchestrator.scenario.loading import load
from testbed.system.files import write_json

SHORT_S = 1.5
"""Length of the shorter session, in which connections are made and windows grow."""
PORT = 5200


class Case(NamedTuple):
    """A radio access, a number of UAVs, and whether they send."""

    access: str
    uavs: int
    sends: bool


CASES = {
    f"{name}, K = {k}, {'all send' if sends else 'idle'}": Case(access, k, sends)
    for name, access, k in (
        *(("LTE", "lte", k) for k in (3, 10, 30)),
        ("Wi-Fi", "wifi", 5),
    )
    for sends in (False, True)
}


def cpu_s(play: Callable[[Case, float], None], case: Case, seconds: float) -> float:
    """CPU seconds of all processes per emulated second."""
    used = []
    for each_s in (SHORT_S, SHORT_S + seconds):
        before_s = common.cpu_s(resource.RUSAGE_CHILDREN)
        play(case, each_s)
        used.append(common.cpu_s(resource.RUSAGE_CHILDREN) - before_s)
    return (used[1] - used[0]) / seconds


def changes(case: Case) -> list[str]:
    """What differs from the paper's scenario."""
    power_w = lte_radio.of_uavs(lte_radio.POWER_W, case.uavs).tolist()
    return [
        f"radio.access={case.access}",
        f"uavs.count={case.uavs}",
        f"uavs.tx_power_w={power_w if case.access == 'lte' else 1}",
        *("uavs.rings_m=[[100,1000]]", f"uavs.ring={[1] * case.uavs}"),
        *("emulation.air=ns3", "emulation.clock=virtual", "emulation.calibrate=false"),
    ]


def session(case: Case, seconds: float) -> None:
    """Programs whose packets pass ns-3."""
    words = [word for each in changes(case) for word in ("--set", each)]
    if case.sends:
        servers = (f"iperf3 -s -1 -p {PORT + k} >/dev/null &" for k in range(1, case.uavs + 1))
        client = f"iperf3 -c bs -p $(({PORT} + ${{TESTBED_NODE#uav}})) -t {seconds + 5:g}"
        words += ["--node", f"bs={' '.join(servers)} wait"]
        words += ["--node", f"uav*=sleep 0.2; exec {client} >/dev/null"]
    with tempfile.TemporaryDirectory(dir="/tmp") as temporary:
        out = ["--seconds", f"{seconds:g}", "--out", f"{temporary}/out"]
        command = [sys.executable, "-m", "orchestrator", "up", str(PAPER), *words, *out]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if "valid: " not in done.stdout:  # Its status is 1, as the session ends the programs.
        sys.exit(f"radio_loop.py: {done.stdout}{done.stderr}")


def alone(case: Case, seconds: float) -> None:
    """ns-3's part of it, with senders of its own."""
    scenario = load(PAPER, changes(case))
    cell = settings_of(scenario, f"ns3-{case.access}")
    assert cell is not None
    with ns3_source(scenario) as source:
        channel = source.trace(round(seconds / scenario.slot_s))
    air = replace(air_of(scenario, channel, cell), way="up")
    # A sender without a window sends nothing.
    names = () if case.sends else ("LTE_WINDOW_BYTES", "WIFI_WINDOW_BYTES")
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(mock.patch.object(radio, name, 0))
        simulated(air, cell, datagram_bytes=scenario.emulation.mtu)


def rows(found: dict[str, dict[str, float]]) -> list[list[str]]:
    """The cells of the table."""
    return [
        [name, *(f"{each[key]:.2f}" for key in ("session", "alone"))]
        for name, each in found.items()
    ]


def main() -> None:
    """Play the cases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", choices=[[], *CASES], metavar="CASE")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--docs", type=Path)
    options = parser.parse_args()
    found = {
        name: {
            "session": cpu_s(session, CASES[name], options.seconds),
            "alone": cpu_s(alone, CASES[name], options.seconds),
        }
        for name in track(options.cases or list(CASES), console=Console(stderr=True))
    }
    head = ["case", "session, CPU s per emulated s", "ns-3 alone, CPU s per emulated s"]
    common.show(head, rows(found))
    if options.json:
        write_json(options.json, found)
    if options.docs:
        common.write_table(options.docs, "radio_loop", [head, *rows(found)])


if __name__ == "__main__":
    main()
