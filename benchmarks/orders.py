# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Whether engine, ns-3's packets and the kernel serve alike, order by order.

python benchmarks/orders.py OUT [--paradigms NAME...] [--orders NAME...] [--set KEY=VALUE]...
    [--no-emulated]

Plays the first round of the paper's scenario under these service orders, by default all: by the
engine with frames, on ns-3's packets, and on the kernel, in virtual time where `testbed kernel
build` has been done. Says how long the round took, by how much the other two differ from the
engine, and how many turns were another's. OUT/orders.json has the figures; kernel points that OUT
holds already are not played again. Ends with 1 where packets are 0.01 % off, the kernel 0.02 %, or
anybody was served out of turn.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import PAPER, show

from orchestrator.cli.console import shown
from orchestrator.engine.plan import link_bytes
from orchestrator.policies.registry import decider
from orchestrator.records.reader import read_run
from orchestrator.rounds.loop import predict
from orchestrator.rounds.packet_rounds import play
from orchestrator.rounds.simulation import service_order_of
from orchestrator.scenario.loading import load
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from orchestrator.studies.validation import emulated_points
from orchestrator.studies.validation.space import at
from orchestrator.studies.validation.worker import channels, light
from testbed.core import orders
from testbed.core.timeline import Round
from testbed.system.files import write_json

PACKETS_WITHIN = 1e-4
KERNEL_WITHIN = 2e-4
"""Relative; some more than the paper's two orders show."""


def turns(round_: Round, scenario: Scenario) -> np.ndarray:
    """Places in the order of service where the paradigm has one, shape [stations, K, I]."""
    iterations = int(round_.spans["iteration"].max())
    places = service_order_of(round_.spans, scenario.uavs.count, iterations)
    scheme = scenario.scheme
    sharing = (scheme.server_compute, scheme.gradient_transmission)
    return places[[share == "sequential" for share in sharing]]


def on_packets(scenario: Scenario) -> tuple[Round, Round, float]:
    """The first round by the engine with frames and on packets, and the time that took them."""
    profile = profile_of(scenario)
    with channels() as kept:
        channel = kept.of(scenario)
        decide = decider(scenario, channel)
        wire = predict(scenario, channel, profile, sizing=link_bytes, decide=decide)
        began = time.perf_counter()
        packets = play(scenario, channel, profile, decide=decide)
        return wire.rounds[0], packets.timeline.rounds[0], time.perf_counter() - began


def row(scenario: Scenario, run: dict[str, Any] | None, place: Path) -> dict[str, Any]:
    """What came of one order; relative differences are from the engine with frames."""
    wire, packets, wall_s = on_packets(light(scenario))
    mine = turns(wire, scenario)
    found: dict[str, Any] = {
        "paradigm": scenario.paradigm,
        "order": scenario.scheme.order,
        "latency_s": wire.latency_s,
        "packets": packets.latency_s / wire.latency_s - 1,
        "packets_out_of_turn": int((turns(packets, scenario) != mine).sum()),
        "packets_wall_s": wall_s,
    }
    if run is None:
        return found
    if run["value"] is None:
        return found | {"kernel": None, "failure": run["failure"]}
    measured = read_run(place).measured.rounds[0]
    return found | {
        "kernel": run["value"] / wire.latency_s - 1,
        "kernel_out_of_turn": int((turns(measured, scenario) != mine).sum()),
        "clock": run["clock"],
        "valid": run["valid"],
    }


def is_alike(row: dict[str, Any]) -> bool:
    """Whether all who were asked serve alike."""
    alike = abs(row["packets"]) <= PACKETS_WITHIN and not row["packets_out_of_turn"]
    if "kernel" in row:
        alike &= row["kernel"] is not None and row["valid"]
        alike = alike and abs(row["kernel"]) <= KERNEL_WITHIN and not row["kernel_out_of_turn"]
    return bool(alike)


def main() -> int:
    """Play, show, write; 1 where somebody serves otherwise."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--scenario", type=Path, default=PAPER)
    parser.add_argument("--paradigms", nargs="+", default=["cpsfl", "pipesfl"])
    known = (*orders.PAPERS, *orders.BUILT_IN)
    parser.add_argument("--orders", nargs="+", choices=known, default=known)
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    parser.add_argument("--no-emulated", action="store_true")
    given = parser.parse_args()
    scenario = load(given.scenario, given.overrides)
    points = [
        {"paradigm": paradigm, "order": order}
        for paradigm in given.paradigms
        for order in given.orders
    ]
    runs: list[Any] = [None] * len(points)
    if not given.no_emulated:
        with shown("points") as progress:
            runs = emulated_points.play(scenario, points, "latency_s", given.out, progress)
    rows = []
    for number, (point, run) in enumerate(zip(points, runs, strict=True)):
        place = given.out / "kernel" / str(number)
        rows.append(row(at(scenario, point, "point"), run, place))
        given.out.mkdir(parents=True, exist_ok=True)
        write_json(given.out / "orders.json", rows)
    cells = []
    for found in rows:
        shares = [found["packets"], found.get("kernel")]
        percent = ["" if share is None else f"{100 * share:+.4f} %" for share in shares]
        latency = f"{found['latency_s']:.3f}"
        alike = "yes" if is_alike(found) else "NO"
        cells.append([found["paradigm"], found["order"], latency, *percent, alike])
    show(["paradigm", "order", "engine, s", "packets", "kernel", "alike"], cells)
    return 0 if all(map(is_alike, rows)) else 1


if __name__ == "__main__":
    sys.exit(main())
