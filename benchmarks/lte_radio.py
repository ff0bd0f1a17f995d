# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The model of LTE against ns-3's LTE: goodput of every UAV, with a backlog in both directions.

    python benchmarks/lte_radio.py [--seconds S] [--json FILE] [--docs PAGE] [--only WORD]

Two tables. By scheme: one UAV, at the signal-to-noise ratio at which a modulation and coding
scheme begins and in the middle of its range, for each bandwidth. By case: several UAVs 250 m to
990 m away, with the paper's powers; the first S seconds of a channel that stands still, but for
fading.
"""

import argparse
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import PAPER, show, write_between, write_table
from rich.console import Console
from rich.progress import track

from ns3_scenarios.radio import Air, simulate_lte
from ns3_scenarios.trace import ChannelTrace
from orchestrator.engine.lte import Lte
from orchestrator.engine.plan import fixed_allocation
from orchestrator.engine.radio import radio_access
from orchestrator.rounds.ns3_radio import air_of, cell_of
from orchestrator.scenario.channel import flown, replay
from orchestrator.scenario.loading import load, validate
from orchestrator.scenario.schema import LTE_BLOCKS, Scenario
from testbed.system.files import write_json

DISTANCE_M = {1: (250,), 3: (250, 600, 900), 10: (250, 350, 450, 600, 700, 780, 850, 900, 950, 990)}
POWER_W = {1: (1,), 3: (1, 0.4, 0.1), 10: (1, 0.4, 0.1, 1, 0.4, 0.1, 1, 0.4, 0.2, 0.1)}
DATAGRAM_BYTES = 1400
"""What ns-3 sends, where nothing else is said; `emulation.mtu` of the model."""
JAKES: dict[str, Any] = {"radio.fading": "rayleigh", "radio.doppler_hz": 27.0}
WEAK: dict[str, Any] = {"radio.lte.interference_margin_db": 20.0}
SHARES: dict[str, Any] = {"radio.lte.scheduler": "shares", "paradigm": "sfl-pp"}
BETA = {3: [0.5, 0.33, 0.17], 10: [0.19, 0.17, 0.15, 0.13, 0.11, 0.09, 0.07, 0.05, 0.03, 0.01]}
SMALL_BYTES = 576
EDGE: dict[str, Any] = {"radio.lte.interference_margin_db": 30.0, "emulation.mtu": SMALL_BYTES}


def _band(blocks: int, **keys: Any) -> dict[str, Any]:
    """The keys of a cell with that many resource blocks; packets are small where rates are low."""
    if blocks < 25:
        keys = {"emulation.mtu": SMALL_BYTES} | keys
    hertz = next(hertz for hertz, known in LTE_BLOCKS.items() if known == blocks)
    return {f"radio.{way}link_bandwidth_hz": hertz for way in ("up", "down")} | keys


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
    **{f"K = 1, {blocks} blocks": (1, _band(blocks)) for blocks in (6, 15, 25)},
    **{f"K = 10, {blocks} blocks": (10, _band(blocks)) for blocks in (6, 15, 25, 50, 75)},
    **{f"K = {k}, 6 blocks, 20 dB less": (k, _band(6, **WEAK)) for k in (3, 30)},
    **{f"K = {k}, 25 blocks, 20 dB less": (k, _band(25, **WEAK)) for k in (3, 30)},
    **{f"K = {k}, 30 dB less": (k, EDGE) for k in (1, 3, 10)},
    "K = 3, 1 in an outage": (3, {"out": (0,)}),
    "K = 3, 2 in an outage": (3, {"out": (0, 1)}),
    "K = 10, 3 in an outage, 20 dB less": (10, {"out": (0, 4, 9), **WEAK}),
    "K = 10, 5 in an outage, 6 blocks": (10, _band(6, out=(0, 2, 4, 6, 8))),
    "K = 10, Rayleigh 27 Hz": (10, JAKES),
    "K = 10, 20 dB less, Rayleigh 27 Hz": (10, {**WEAK, **JAKES}),
    "K = 10, 20 dB less, Rayleigh 5 Hz": (10, {**WEAK, **JAKES, "radio.doppler_hz": 5.0}),
    "K = 10, 20 dB less, Rician 10 dB, 27 Hz": (10, {**WEAK, **JAKES, "radio.fading": "rician"}),
}
"""By name: the number of UAVs, and keys of the scenario; `out`: the UAVs that have no channel after
`ATTACHED_S`, in which case only what comes after twice that time counts."""
ATTACHED_S = 0.2
SETTLE_SLOTS = 2
"""Slots at the beginning of a level that do not count."""
LEVEL_SLOTS = {"begins": 12, "middle": 6}
LEAST_PACKETS = 250
"""A level lasts until so many packets have been sent."""
SLOT_S = 0.1


def of_uavs(values: Mapping[int, Sequence[float]], uavs: int) -> np.ndarray:
    """Values of that many UAVs; those of ten are repeated."""
    given = values[uavs if uavs in values else 10]
    return np.resize(np.array(given, float), uavs)


def case(uavs: int, keys: dict[str, Any], slots: int) -> tuple[Scenario, ChannelTrace]:
    """The scenario and the channel of a case."""
    tree = load(PAPER).model_dump(mode="json")
    tree["uavs"] = {"tx_power_w": of_uavs(POWER_W, uavs).tolist(), "height_m": 20}
    tree["radio"] |= {"access": "lte"}
    tree["workload"]["compute"] = "none"
    tree["emulation"]["mtu"] = DATAGRAM_BYTES
    for key, value in keys.items():
        if key == "out":
            continue
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
    first, out = 0, list(keys.get("out", ()))
    if out:
        gain = channel.gain.copy()
        gain[out, round(ATTACHED_S / SLOT_S) :] = 0
        channel = channel.replaced(gain=gain)
        first = round(2 * ATTACHED_S / SLOT_S)
    radio = radio_access(scenario, channel)
    model = radio.link_rates(fixed_allocation(scenario), channel.values, in_turns=False)
    cell = cell_of(scenario)
    made = simulate_lte(
        air_of(scenario, channel, cell), cell, datagram_bytes=scenario.emulation.mtu
    )
    found: dict[str, Any] = {}
    for way, ours, theirs in zip(
        ("up", "down"), (model.uplink, model.gradient), made.bps, strict=True
    ):
        mean, theirs = ours[:, first:].mean(axis=1), theirs[:, first:].mean(axis=1)
        found[way] = {
            "model_bps": mean.tolist(),
            "ns3_bps": theirs.tolist(),
            "largest_difference": float(differences(mean, theirs).max()),
        }
    lost = made.lost_blocks.sum(axis=(1, 2)) / made.blocks.sum(axis=(1, 2))
    return found | {"lost_blocks": lost.tolist()}


def differences(model_bps: np.ndarray, ns3_bps: np.ndarray) -> np.ndarray:
    """Relative differences; infinite where only ns-3 carries something."""
    same = np.zeros(model_bps.shape)
    same[(model_bps == 0) & (ns3_bps > 0)] = np.inf
    ratio = np.divide(ns3_bps, model_bps, out=1 + same, where=model_bps > 0)
    return np.asarray(np.abs(ratio - 1))


def by_scheme(blocks: int, side: int) -> list[dict[str, Any]]:
    """The goodput of one UAV at two signal-to-noise ratios of each scheme.

    Args:
        blocks: Number of resource blocks.
        side: 0 for the uplink, 1 for the downlink.

    Returns:
        A row for each level: MCS, blocks in which it is sent, SNR in dB, and both goodputs.
    """
    scenario, _ = case(1, _band(blocks), 1)
    mtu = scenario.emulation.mtu
    radio = radio_access(scenario, case(1, {}, 1)[1])
    assert isinstance(radio, Lte)
    steps = radio.steps[side]
    begins_db = [10 * np.log10(steps.least_snr[place - 1]) for place in np.unique(steps.scheme)[1:]]
    ends_db = [*begins_db[1:], begins_db[-1] + 4]
    levels = [
        (db + part * (end - db) + 0.02, name)
        for db, end in zip(begins_db, ends_db, strict=True)
        for part, name in ((0.0, "begins"), (0.5, "middle"))
    ]
    if side == 0:  # also with fewer blocks than there are, down to the fewest
        fewer = [4, 5, blocks // 2, 2 * blocks // 3] if blocks > 6 else [4, 5]
        for used in fewer:
            levels.insert(0, (begins_db[0] + 10 * np.log10((used + 0.5) / blocks), "middle"))
    snr = 10 ** (np.array([db for db, _ in levels]) / 10)[None]
    gain = snr / radio.unit_snr[side]
    model = radio.link_rates(fixed_allocation(scenario), gain, in_turns=True)
    bps = (model.uplink, model.gradient)[side][0]
    slots = [
        SETTLE_SLOTS + max(LEVEL_SLOTS[name], int(LEAST_PACKETS * 8 * mtu / rate / SLOT_S) + 1)
        for (_, name), rate in zip(levels, bps, strict=True)
    ]
    clear = np.full_like(gain, 1e-9)
    ways = (
        np.repeat(gain if side == 0 else clear, slots, 1),
        np.repeat(gain if side == 1 else clear, slots, 1),
    )
    # It attaches on a good channel.
    first = np.full((1, 5), 1e-9)
    ways = np.hstack([first, ways[0]]), np.hstack([first, ways[1]])
    air = Air(
        *ways,
        ways[0].shape[1],
        SLOT_S,
        scenario.fleet.tx_power_w,
        scenario.base_station.tx_power_w,
        noise_dbm_per_hz=scenario.radio.noise_dbm_per_mhz - 60,
        way=("up", "down")[side],
    )
    made = simulate_lte(air, cell_of(scenario), datagram_bytes=mtu)
    edges = 5 + np.concatenate([[0], np.cumsum(slots)])
    return [
        {
            "snr_db": float(10 * np.log10(snr[0, place])),
            "mcs": int(steps.mcs[max(1, np.searchsorted(steps.least_snr, snr[0, place], "right"))]),
            "model_bps": float(bps[place]),
            "ns3_bps": float(made.bps[side, 0, first + SETTLE_SLOTS : end].mean()),
        }
        for place, (first, end) in enumerate(itertools.pairwise(edges.tolist()))
    ]


def scheme_rows(found: dict[int, list[list[dict[str, Any]]]]) -> list[list[str]]:
    """The cells of the table by scheme: the largest difference of its levels, for each band."""
    made = []
    for side, way in enumerate(("uplink", "downlink")):
        for mcs in range(0, 29, 2):
            cells = []
            for ways in found.values():
                own = [each for each in ways[side] if each["mcs"] == mcs]
                ours, theirs = (
                    np.array([each[k] for each in own]) for k in ("model_bps", "ns3_bps")
                )
                cells.append(f"{differences(ours, theirs).max():.2%}")
            made.append([way, f"{mcs // 2 + 1}", f"{mcs}", *cells])
    return made


def worst(
    schemes: dict[int, list[list[dict[str, Any]]]], cases: dict[str, dict[str, Any]]
) -> list[str]:
    """A line for the largest differences of each table."""
    lines = []
    for side, way in enumerate(("uplink", "downlink")):
        levels = [(blocks, each) for blocks, ways in schemes.items() for each in ways[side]]
        if levels:
            values = [
                differences(np.array([each["model_bps"]]), np.array([each["ns3_bps"]]))[0]
                for _, each in levels
            ]
            blocks, level = levels[int(np.argmax(values))]
            lines.append(
                f"- One UAV, {way}: at most {max(values):.2%}, at {level['snr_db']:.1f} dB with "
                f"{blocks} resource blocks."
            )
        for words, fades in (("without", False), ("with", True)):
            of = {
                name: each[way.removesuffix("link")]["largest_difference"]
                for name, each in cases.items()
                if ("Ray" in name or "Ric" in name) == fades
            }
            if of:
                name = max(of, key=lambda each: of[each])
                lines.append(
                    f"- Several UAVs {words} fading, {way}: at most {of[name]:.2%} for any UAV "
                    f"({name})."
                )
    return lines


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


def main() -> None:
    """Compare all schemes and all cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--docs", type=Path)
    parser.add_argument("--only", default="", help="`schemes`, or a part of the cases' names")
    options = parser.parse_args()
    slots = round(options.seconds / SLOT_S)
    console = Console(stderr=True)
    bands = sorted(LTE_BLOCKS.values()) if options.only in ("", "schemes") else []
    schemes = {
        blocks: [by_scheme(blocks, side) for side in (0, 1)]
        for blocks in track(bands, "schemes", console=console)
    }
    found = {
        name: compared(uavs, keys, slots)
        for name, (uavs, keys) in track(CASES.items(), "cases", console=console)
        if options.only in name
    }
    head = ["case"]
    for way in ("uplink", "downlink"):
        head += [f"{way}: ns-3, Mb/s", "model, Mb/s", "largest difference for any UAV"]
    head.append("blocks lost")
    scheme_head = ["direction", "CQI", "MCS", *(f"{blocks} blocks" for blocks in schemes)]
    tables = [(head, rows(found))]
    if schemes:
        tables.insert(0, (scheme_head, scheme_rows(schemes)))
    for names, lines in tables:
        show(names, lines)
    said = worst(schemes, found)
    print("\n".join(said))
    if options.json:
        write_json(options.json, {"schemes": schemes, "cases": found})
    if options.docs:
        write_table(options.docs, "lte_radio", [head, *rows(found)])
        write_table(options.docs, "lte_schemes", [scheme_head, *scheme_rows(schemes)])
        write_between(options.docs, "lte_worst", "\n".join(said))


if __name__ == "__main__":
    main()
