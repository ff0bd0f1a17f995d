# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The model of LTE against ns-3's LTE: goodput of every UAV, with a backlog in both directions.

    python benchmarks/lte_radio.py [--seconds S] [--json FILE] [--docs docs/lte.md]

The UAVs are those of the probe that the model began with: 250 m to 990 m away, with the paper's
powers. Each case is the first S seconds of a channel that stands still, but for small-scale fading.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from ns3_scenarios.trace import ChannelTrace
from orchestrator.engine.plan import fixed_allocation
from orchestrator.engine.radio import radio_access
from orchestrator.rounds.ns3_radio import cell_of, rate_trace
from orchestrator.scenario.channel import flown, replay
from orchestrator.scenario.loading import load, validate
from orchestrator.scenario.schema import Scenario
from testbed.system.files import write_json

PAPER = Path(__file__).resolve().parents[1] / "scenarios" / "paper.yaml"
MARKS = "<!-- begin: lte_radio -->", "<!-- end: lte_radio -->"
DISTANCE_M = {3: (250, 600, 900), 10: (250, 350, 450, 600, 700, 780, 850, 900, 950, 990)}
POWER_W = {3: (1, 0.4, 0.1), 10: (1, 0.4, 0.1, 1, 0.4, 0.1, 1, 0.4, 0.2, 0.1)}
DATAGRAM_BYTES = 1400
"""What ns-3 sends; `emulation.mtu` of the model."""
JAKES: dict[str, Any] = {"radio.fading": "rayleigh", "radio.doppler_hz": 27.0}
WEAK: dict[str, Any] = {"radio.lte.interference_margin_db": 20.0}
SHARES: dict[str, Any] = {"radio.lte.scheduler": "shares", "paradigm": "sfl-pp"}
BETA = {3: [0.5, 0.33, 0.17], 10: [0.19, 0.17, 0.15, 0.13, 0.11, 0.09, 0.07, 0.05, 0.03, 0.01]}
CASES: dict[str, tuple[int, dict[str, Any]]] = {
    **{f"K = {k}": (k, {}) for k in (3, 10, 20, 30, 50)},
    **{f"K = {k}, NLOS": (k, {"radio.line_of_sight": "never"}) for k in (3, 10, 20)},
    **{f"K = {k}, 20 dB less": (k, WEAK) for k in (3, 10, 20)},
    **{
        f"K = {k}, `shares` {BETA[k][0]} to {BETA[k][-1]}{words}": (
            k,
            {**SHARES, **keys, "allocation.beta": BETA[k]},
        )
        for words, keys in (("", {}), (", 20 dB less", WEAK))
        for k in (3, 10)
    },
    "K = 10, Rayleigh 27 Hz": (10, JAKES),
    "K = 10, 20 dB less, Rayleigh 27 Hz": (10, {**WEAK, **JAKES}),
    "K = 10, 20 dB less, Rayleigh 5 Hz": (10, {**WEAK, **JAKES, "radio.doppler_hz": 5.0}),
    "K = 10, 20 dB less, Rician 10 dB, 27 Hz": (10, {**WEAK, **JAKES, "radio.fading": "rician"}),
}
"""By name: the number of UAVs, and keys of the scenario."""


def of_uavs(values: Mapping[int, Sequence[float]], uavs: int) -> np.ndarray:
    """Values of that many UAVs; those of ten are repeated."""
    given = values[3 if uavs == 3 else 10]
    return np.resize(np.array(given, float), uavs)


def case(uavs: int, keys: dict[str, Any], slots: int) -> tuple[Scenario, ChannelTrace]:
    """The scenario and the channel of a case."""
    tree = load(PAPER).model_dump(mode="json")
    tree["uavs"] = {"tx_power_w": of_uavs(POWER_W, uavs).tolist(), "height_m": 20}
    tree["radio"] |= {"access": "lte"}
    tree["workload"]["compute"] = "none"
    tree["emulation"]["mtu"] = DATAGRAM_BYTES
    for key, value in keys.items():
        *parents, name = key.split(".")
        section = tree
        for parent in parents:
            section = section.setdefault(parent, {})
        section[name] = value
    scenario = validate(tree, "benchmark")
    angle = 2 * np.pi * np.arange(uavs) / uavs
    far_m = of_uavs(DISTANCE_M, uavs)
    place = np.stack([far_m * np.cos(angle), far_m * np.sin(angle), np.full(uavs, 20.0)], axis=1)
    still = flown(scenario, np.repeat(place[:, None], slots, axis=1), scenario.slot_s)
    given = replay(scenario, still).whole
    assert isinstance(given, ChannelTrace)
    return scenario, given


def compared(uavs: int, keys: dict[str, Any], slots: int) -> dict[str, Any]:
    """Sums of goodput in bit/s, and the largest difference for any UAV, by direction."""
    scenario, channel = case(uavs, keys, slots)
    radio = radio_access(scenario, channel)
    model = radio.link_rates(fixed_allocation(scenario), channel.values, in_turns=False)
    _, made = rate_trace(scenario, channel, cell_of(scenario))
    found: dict[str, Any] = {}
    for way, ours, theirs in zip(
        ("up", "down"), (model.uplink, model.gradient), made.bps, strict=True
    ):
        mean, theirs = ours.mean(axis=1), theirs.mean(axis=1)
        found[way] = {
            "model_bps": mean.tolist(),
            "ns3_bps": theirs.tolist(),
            "largest_difference": float(np.abs(theirs / mean - 1).max()),
        }
    lost = made.lost_blocks.sum(axis=(1, 2)) / made.blocks.sum(axis=(1, 2))
    return found | {"lost_blocks": lost.tolist()}


def rows(found: dict[str, dict[str, Any]]) -> list[list[str]]:
    """The cells of the table."""
    made = []
    for name, each in found.items():
        cells = [name]
        for way in ("up", "down"):
            sums = (sum(each[way][whose]) / 1e6 for whose in ("ns3_bps", "model_bps"))
            cells += [*(f"{bps:.2f}" for bps in sums), f"{each[way]['largest_difference']:.2%}"]
        made.append([*cells, f"{max(each['lost_blocks']):.1%}"])
    return made


def write_table(page: Path, marks: tuple[str, str], lines: list[list[str]]) -> None:
    """Write a table, whose first line is its head, between two marks of a page."""
    text, (begin, end) = page.read_text(), marks
    before, after = text[: text.index(begin) + len(begin)], text[text.index(end) :]
    lines = [lines[0], ["---"] * len(lines[0]), *lines[1:]]
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    page.write_text(f"{before}\n\n{body}\n\n{after}")


def main() -> None:
    """Compare all cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--docs", type=Path)
    options = parser.parse_args()
    slots = round(options.seconds / 0.1)
    found = {
        name: compared(uavs, keys, slots)
        for name, (uavs, keys) in track(CASES.items(), console=Console(stderr=True))
    }
    head = ["case"]
    for way in ("uplink", "downlink"):
        head += [f"{way}: ns-3, Mb/s", "model, Mb/s", "largest difference for any UAV"]
    head.append("blocks lost")
    table = Table(*head)
    for cells in rows(found):
        table.add_row(*cells)
    Console(width=160).print(table)
    if options.json:
        write_json(options.json, found)
    if options.docs:
        write_table(options.docs, MARKS, [head, *rows(found)])


if __name__ == "__main__":
    main()
