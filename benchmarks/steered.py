# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Sessions of UAVs that programs fly, against the same sessions with given flights.

``python benchmarks/steered.py [--seconds S] [--lte-seconds S]``: two UAVs over links, and ten over
ns-3's LTE, in virtual time. Each session is played twice, then replayed with its own trace, and
then played with this trace as a given flight, where nothing is read from the programs. It prints
whether the tables and logs are equal to the byte, and the CPU time of each session.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from common import ROOT

EXAMPLE = ROOT / "examples" / "steered"
HEIGHT_M, SPEED_M_S, GOAL_MBPS = 20.0, 50.0, 9.0


def scenario(uavs: int, **keys: Any) -> dict[str, Any]:
    """UAVs around the base station, each of which flies until its goodput suffices."""
    turns = [2 * math.pi * k / uavs for k in range(uavs)]
    start_m = [[2500 * math.cos(turn), 2500 * math.sin(turn), HEIGHT_M] for turn in turns]
    fly = [sys.executable, str(EXAMPLE / "until_fast.py"), str(GOAL_MBPS), str(SPEED_M_S)]
    nodes: dict[str, Any] = {"bs": {"command": [sys.executable, str(EXAMPLE / "sink.py")]}}
    for k, at in enumerate(start_m, 1):
        nodes[f"uav{k}"] = {"command": [*fly, *map(str, at)]}
    return {
        "name": "steered",
        "uavs": {"count": uavs, "tx_power_w": 0.1},
        "mobility": {"model": "steered", "start_m": start_m, "limits": {"speed_m_s": 60}},
        "radio": {"uplink_bandwidth_hz": 1e6 * uavs},
        "emulation": {"clock": "virtual"},
        "nodes": nodes,
    } | keys


def given(tree: dict[str, Any]) -> dict[str, Any]:
    """The scenario without steering: the files of the programs are their own."""
    own = {"TESTBED_STATE": "/tmp/state", "TESTBED_LINK": "/tmp/link"}
    nodes = {}
    for name, node in tree["nodes"].items():
        words = " ".join(node["command"])
        made = {"command": f"head -c 56 /dev/zero >/tmp/link; exec {words}", "env": own}
        nodes[name] = node if name == "bs" else made
    return {key: value for key, value in tree.items() if key != "mobility"} | {"nodes": nodes}


def play(tree: dict[str, Any], out: Path, seconds: float, *words: str) -> float:
    """Play a session; its CPU time in s."""
    file = out.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(tree))
    command = ["up", str(file), "--seconds", str(seconds), "--out", str(out), *words]
    child = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", *command], stdout=subprocess.DEVNULL, cwd=ROOT
    )
    _, _, used = os.wait4(child.pid, 0)
    manifest = json.loads((out / "manifest.json").read_text())
    if not manifest["valid"]:
        print(f"{out.name}: not valid: {manifest['validity']}")
    return used.ru_utime + used.ru_stime


def compared(title: str, tree: dict[str, Any], seconds: float, folder: Path) -> None:
    """Play the sessions of a scenario, and print how they compare."""
    folder.mkdir()
    first, again, replayed, plain = (folder / name for name in ("a", "b", "replayed", "given"))
    spent = [play(tree, first, seconds), play(tree, again, seconds)]
    replay = "--trace", str(first / "trace.npz")
    spent += [play(tree, replayed, seconds, *replay), play(given(tree), plain, seconds, *replay)]
    names = ["session.parquet", *(f"logs/{path.name}" for path in (first / "logs").iterdir())]
    twice = ["trace.npz", *names, *(["radio.bin"] if (first / "radio.bin").exists() else [])]

    def equal(other: Path, files: list[str]) -> str:
        same = sum((first / name).read_bytes() == (other / name).read_bytes() for name in files)
        return f"{same} of {len(files)} files equal"

    print(f"{title}, {seconds:g} s")
    print(f"  twice: {equal(again, twice)}")
    print(f"  replay: {equal(replayed, names)}")
    print(f"  given flight: {equal(plain, ['session.parquet'])}")
    steered = sum(spent[:2]) / 2
    words = "steered {:.1f} s and {:.1f} s, replay {:.1f} s, given {:.1f} s".format(*spent)
    print(f"  CPU: {words}: {100 * (steered / spent[3] - 1):+.1f} % for steering")


def main() -> None:
    """Compare both kinds of sessions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--lte-seconds", type=float, default=20.0)
    options = parser.parse_args()
    lte = {
        "radio": {"access": "lte", "uplink_bandwidth_hz": 1e7, "downlink_bandwidth_hz": 1e7},
        "emulation": {"clock": "virtual", "air": "ns3"},
    }
    with tempfile.TemporaryDirectory() as made:
        if options.seconds:
            compared("two UAVs over links", scenario(2), options.seconds, Path(made) / "links")
        if options.lte_seconds:
            seconds = options.lte_seconds
            compared("ten UAVs over ns-3's LTE", scenario(10, **lte), seconds, Path(made) / "lte")


if __name__ == "__main__":
    main()
