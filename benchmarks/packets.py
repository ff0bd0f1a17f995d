# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""ns-3's packets: how fast rounds are played, beside ns-3's own bulk transfer and the real time.

python benchmarks/packets.py [PARADIGM...] [--set KEY=VALUE]... [--json FILE]
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from common import PAPER, show

from ns3_scenarios import build
from ns3_scenarios.packets import PacketNetwork, PacketSettings
from orchestrator.rounds.packet_rounds import play
from orchestrator.scenario.channel import ns3_source
from orchestrator.scenario.loading import load
from orchestrator.scenario.profiles import profile_of
from testbed.system.files import write_json

BULK_BYTES = 30_000_000
BULK_BPS = 100e6
SEGMENT_BYTES = 1448


def bulk() -> dict[str, float]:
    """The baseline: one transfer, handed to the process at once, and nothing else."""
    with PacketNetwork(PacketSettings(links=1)) as network:
        network.rates([BULK_BPS], [BULK_BPS])
        network.advance(0)
        network.send(1, False, BULK_BYTES)
        began = time.perf_counter()
        now_ns, _ = network.advance(10**12)
        wall_s = time.perf_counter() - began
        counts = network.counts()
    return figures(wall_s, now_ns / 1e9, counts.events, BULK_BYTES / SEGMENT_BYTES)


def round_of(paradigm: str, keys: Sequence[str]) -> dict[str, float]:
    """One round of the paper scenario, with all that starts and ends the process."""
    overrides = [f"paradigm={paradigm}", "workload.compute=none", "rounds=1", *keys]
    scenario = load(PAPER, overrides)
    profile = profile_of(scenario)
    with ns3_source(scenario) as source:
        source.trace(2048)
        began = time.perf_counter()
        played = play(scenario, source, profile)
        wall_s = time.perf_counter() - began
    ends = [*played.counts.uplink, *played.counts.downlink]
    frames = float(np.sum([end.sent_frames for end in ends]))
    return figures(wall_s, played.timeline.rounds[0].latency_s, played.counts.events, frames)


def figures(wall_s: float, emulated_s: float, events: float, frames: float) -> dict[str, float]:
    return {
        "emulated_s": emulated_s,
        "wall_s": wall_s,
        "wall_per_emulated_s": wall_s / emulated_s,
        "events": events,
        "events_per_s": events / wall_s,
        "frames_per_s": frames / wall_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paradigms", nargs="*", default=["cpsfl", "pipesfl", "sfl-pp"])
    parser.add_argument("--set", action="append", default=[], dest="keys", metavar="KEY=VALUE")
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    build.library("packets")
    rows = {"bulk transfer": bulk()}
    rows |= {f"paper, {paradigm}": round_of(paradigm, wanted.keys) for paradigm in wanted.paradigms}
    show(
        ["what", *rows["bulk transfer"]],
        [[what, *(f"{value:,.2f}" for value in row.values())] for what, row in rows.items()],
    )
    if wanted.json:
        write_json(wanted.json, rows)


if __name__ == "__main__":
    main()
