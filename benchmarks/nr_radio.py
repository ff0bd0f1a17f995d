# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The model of 5G NR: peak rates, delays, and rates against stored ones of 5G-LENA.

    python benchmarks/nr_radio.py [--json FILE] [--docs PAGE] [--verdicts results/nr]
    python benchmarks/nr_radio.py --measure FILE.csv    # with 5G-LENA: hours

``nr_lena.csv`` says how 5G-LENA was run. Its scheduler gives the resource blocks that remain always
to the same UAVs, which follow from a hash table; the model gives them to each UAV in turn. A UAV is
therefore compared with the model's rate in the nearer of both numbers of resource blocks.
``nr_lena_cells.csv`` has more cells, each for a shorter time. `--verdicts` is the folder of
`testbed reproduce all --radio nr`.
"""

import argparse
import csv
import itertools
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import show, write_table
from lte_radio import DATAGRAM_BYTES

from ns3_scenarios.radio import THERMAL_DBM_PER_HZ, Air, NrSettings, simulate_nr
from ns3_scenarios.trace import TwoWay
from orchestrator.engine.arrays import Array
from orchestrator.engine.lte import PACKET_BYTES
from orchestrator.engine.nr import HEADER_BYTES, Nr
from orchestrator.engine.plan import Allocation
from orchestrator.scenario.duplex import idle_delays_s
from orchestrator.scenario.loading import validate
from orchestrator.scenario.schema import NR_BLOCKS
from orchestrator.scenario.schema import Nr as Cell
from testbed.system.files import write_json

LENA, LENA_CELLS = (
    Path(__file__).with_name(f"{name}.csv") for name in ("nr_lena", "nr_lena_cells")
)
PATTERNS = ("DDDU", "DDDSU", "DDSUU", "DDDDDDDSUU")
UAVS = (1, 1, 2, 3, 4, 6, 8, 12, 20, 30)
SNR_DB = (-4.0, 35.0)
MEASURED_SLOTS, SKIPPED_SLOTS, SLOT_S = 10, 2, 0.1
PEAK_DB = 34.0
"""A signal-to-noise ratio at which a UAV has the highest scheme."""
TDD: dict[str, Any] = {"duplex": "tdd"}
PEAKS: dict[str, tuple[float, dict[str, Any]]] = {
    "20 MHz, FDD, 15 kHz": (20, {"subcarrier_spacing_khz": 15}),
    "20 MHz, FDD, 30 kHz": (20, {}),
    "20 MHz, FDD, 60 kHz": (20, {"subcarrier_spacing_khz": 60}),
    "20 MHz, FDD, 30 kHz, `256QAM`": (20, {"highest_modulation": "256QAM"}),
    "20 MHz, FDD, 30 kHz, `3gpp`": (20, {"block_size": "3gpp"}),
    "20 MHz, TDD `DDDU`, 30 kHz": (20, TDD),
    "20 MHz, TDD `DDDSU`, 30 kHz": (20, TDD | {"tdd_pattern": "DDDSU"}),
    "100 MHz, FDD, 30 kHz, 270 resource blocks": (100, {"resource_blocks": 270}),
    "100 MHz, FDD, 30 kHz": (100, {}),
    "100 MHz, TDD `DDDU`, 30 kHz": (100, TDD),
}
"""By name: the bandwidth in MHz, and keys of `radio.nr`."""
DELAYS: dict[str, tuple[dict[str, Any], str]] = {
    "FDD, 15 kHz": ({"subcarrier_spacing_khz": 15}, "not measured"),
    "FDD, 30 kHz": ({}, "9.0 ms"),
    "FDD, 60 kHz": ({"subcarrier_spacing_khz": 60}, "6.0 ms"),
    "TDD `DDDU`, 30 kHz": (TDD, "11.5 ms"),
    "TDD `DDDSU`, 30 kHz": (TDD | {"tdd_pattern": "DDDSU"}, "not measured"),
}
"""By name: keys of `radio.nr`, and the idle round trip over 5G-LENA (`ping` in virtual time)."""


def cell_of(mhz: float, keys: dict[str, Any], uavs: int = 1) -> Nr:
    """A cell whose base station and UAVs have 1 W."""
    tree = {
        "uavs": {"tx_power_w": [1.0] * uavs},
        "base_station": {"tx_power_w": 1.0},
        "emulation": {"mtu": DATAGRAM_BYTES},
        "radio": {
            "access": "nr",
            "nr": keys,
            "uplink_bandwidth_hz": 1e6 * mhz,
            "downlink_bandwidth_hz": 1e6 * mhz,
        },
    }
    return Nr.of(validate(tree, "benchmark"))


def gains_of(radio: Nr, snr_db: Array) -> Array:
    """Gains [2, K] that give these ratios in the blocks of the scheduler and of the bandwidth."""
    blocks = np.array([radio.blocks[0], radio.band_blocks])
    noise_w = blocks * radio.block_hz * radio.noise_w_per_hz
    return np.asarray(noise_w[:, None] * 10 ** (np.array(snr_db) / 10))


def rates_mbps(radio: Nr, snr_db: Array) -> Array:
    """Rates of uplink and downlink while all UAVs send, [2, K]."""
    equal = np.full(len(snr_db), 1 / len(snr_db))
    values = TwoWay(gains_of(radio, snr_db)[..., None])
    found = radio.link_rates(Allocation(1, equal, equal, equal), values, in_turns=False)
    return np.stack([found.uplink[:, 0], found.gradient[:, 0]]) / 1e6


def listed_cells() -> list[dict[str, Any]]:
    """300 cells: 1 to 30 UAVs, three spacings, FDD and four patterns, 5 to 100 MHz, two tables of
    schemes, and signal-to-noise ratios from -4 dB to 35 dB."""
    draw = np.random.default_rng(57)
    cells: list[dict[str, Any]] = []
    for place, uavs in enumerate(UAVS):
        for spacing_khz, slots, modulation in itertools.product(
            (15, 30, 60), ("FDD", *PATTERNS), ("64QAM", "256QAM")
        ):
            if (spacing_khz, slots) == (15, "DDDU"):
                slots = "DSUUU"  # 5G-LENA attaches no UAV with DDDU and 15 kHz
            widths = list(NR_BLOCKS[spacing_khz])
            hertz = widths[(len(cells) * 7 + place) % len(widths)]
            cells.append(
                {
                    "spacing_khz": spacing_khz,
                    "bandwidth_mhz": f"{hertz / 1e6:g}",
                    "resource_blocks": NR_BLOCKS[spacing_khz][hertz],
                    "slots": slots,
                    "modulation": modulation,
                    "snr_db": np.sort(draw.uniform(*SNR_DB, uavs))[::-1].round(2),
                }
            )
    return cells


def measured(cell: dict[str, Any]) -> Array:
    """Rates of UAVs over 5G-LENA in Mb/s, [2, K]: of the transport blocks that were not lost, less
    their headers."""
    hertz, blocks = 1e6 * float(cell["bandwidth_mhz"]), int(cell["resource_blocks"])
    radio = NrSettings(
        bandwidth_hz=(hertz, hertz),
        band_blocks=(blocks, blocks),
        subcarrier_spacing_khz=cell["spacing_khz"],
        tdd_pattern="" if cell["slots"] == "FDD" else cell["slots"],
        highest_modulation=cell["modulation"],
    )
    noise_w = 10 ** (THERMAL_DBM_PER_HZ / 10 - 3) * blocks * 12e3 * cell["spacing_khz"]
    slots = SKIPPED_SLOTS + MEASURED_SLOTS
    gain = np.repeat(noise_w * 10 ** (cell["snr_db"][:, None] / 10), slots, axis=1)
    air = Air(gain, gain, slots, SLOT_S, np.ones(len(gain)), 1.0)
    made = simulate_nr(air, radio, datagram_bytes=DATAGRAM_BYTES)
    kept = (each[..., SKIPPED_SLOTS:].sum(axis=2) for each in (made.blocks, made.lost_blocks))
    sent, lost = kept
    block_bytes = made.block_bits[..., SKIPPED_SLOTS:].sum(axis=2) / np.maximum(sent, 1) / 8
    useful = 8 * (block_bytes - np.array(HEADER_BYTES)[:, None]) * (sent - lost)
    packets = DATAGRAM_BYTES / (DATAGRAM_BYTES + PACKET_BYTES)
    return np.asarray(useful * packets / (MEASURED_SLOTS * SLOT_S) / 1e6)


def measure(file: Path) -> None:
    """Write the rates of all listed cells, in the form of ``nr_lena_cells.csv``."""
    names = ["spacing_khz", "bandwidth_mhz", "resource_blocks", "slots", "modulation", "snr_db"]
    with file.open("x", newline="") as out:
        rows = csv.writer(out)
        rows.writerow([*names, "up_mbps", "down_mbps"])
        for cell in listed_cells():
            lists = [*([f"{db:g}" for db in cell["snr_db"]],)]
            lists += [[f"{mbps:.5g}" for mbps in way] for way in measured(cell)]
            rows.writerow([*(cell[name] for name in names[:-1]), *map(" ".join, lists)])
            out.flush()


def lena(file: Path = LENA) -> list[dict[str, Any]]:
    """The stored cells of a file, with lists of numbers by UAV."""
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    cells: list[dict[str, Any]] = []
    for row in csv.DictReader(lines):
        lists = {n: np.array(row[n].split(), float) for n in ("snr_db", "up_mbps", "down_mbps")}
        cells.append(row | lists)
    return cells


def compared(cell: dict[str, Any]) -> tuple[Array, Array]:
    """Rates of a stored cell in Mb/s, [2, K]: 5G-LENA's, and those of the model in as many resource
    blocks."""
    keys = {
        "subcarrier_spacing_khz": int(cell["spacing_khz"]),
        "resource_blocks": int(cell["resource_blocks"]),
        "highest_modulation": cell["modulation"],
    }
    if cell["slots"] != "FDD":
        keys |= TDD | {"tdd_pattern": cell["slots"]}
    uavs = len(cell["snr_db"])
    radio = cell_of(float(cell["bandwidth_mhz"]), keys, uavs)
    theirs, each = np.stack([cell["up_mbps"], cell["down_mbps"]]), np.arange(uavs)
    ours = np.empty_like(theirs)
    for way, gain in enumerate(gains_of(radio, cell["snr_db"])):
        both = []
        for blocks in {radio.blocks[way] // uavs, -(-radio.blocks[way] // uavs)}:
            used, step = radio.use(way, each, np.full(uavs, blocks), gain[:, None])
            both.append(radio.steps[way].bps[used, step][:, 0] / 1e6)
        nearest = np.abs(np.array(both) - theirs[way]).argmin(axis=0)
        ours[way] = np.array(both)[nearest, each]
    return theirs, ours


def kind_of(cell: dict[str, Any]) -> str:
    """The kind of a cell of ``nr_lena.csv``."""
    return (
        f"{cell['bandwidth_mhz']} MHz, {cell['slots']}, {cell['spacing_khz']} kHz, "
        f"{cell['resource_blocks']} resource blocks, {cell['modulation']}"
    )


def duplex_of(cell: dict[str, Any]) -> str:
    """The kind of a cell of ``nr_lena_cells.csv``."""
    return f"{cell['spacing_khz']} kHz, {'FDD' if cell['slots'] == 'FDD' else 'TDD'}"


def summary(
    file: Path = LENA, kind_of: Callable[[dict[str, Any]], str] = kind_of
) -> dict[str, dict[str, float]]:
    """By kind of cell: numbers of cells and rates, and how far the model's rates are off. Only
    rates and sums above 0 are compared."""
    errors: dict[str, list[float]] = defaultdict(list)
    sums: dict[str, list[float]] = defaultdict(list)
    for cell in lena(file):
        theirs, ours = compared(cell)
        carries = theirs.sum(axis=1) > 0
        of_sums = ours.sum(axis=1)[carries] / theirs.sum(axis=1)[carries] - 1
        for kind in (kind_of(cell), "all"):
            sums[kind] += of_sums.tolist()
            errors[kind] += (ours[theirs > 0] / theirs[theirs > 0] - 1).tolist()
    return {
        kind: {
            "sums": len(sums[kind]),
            "rates": len(found),
            "median": float(np.median(np.abs(found))),
            "within_1_percent": float((np.abs(found) <= 0.01).sum()),
            "within_2_percent": float((np.abs(found) <= 0.02).sum()),
            "sums_within_1_percent": float((np.abs(sums[kind]) <= 0.01).sum()),
            "largest": float(np.abs(found).max()),
            "largest_of_sums": float(np.abs(sums[kind]).max()),
        }
        for kind, found in sorted(errors.items(), key=lambda each: each[0] == "all")
    }


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--docs", type=Path)
    parser.add_argument("--measure", type=Path)
    parser.add_argument("--verdicts", type=Path)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure)
        return
    peaks = {
        name: rates_mbps(cell_of(*given), np.array([PEAK_DB]))[:, 0].tolist()
        for name, given in PEAKS.items()
    }
    found, more = summary(), summary(LENA_CELLS, duplex_of)
    delays = {
        name: [1e3 * delay_s for delay_s in idle_delays_s(Cell.model_validate(keys))]
        for name, (keys, _) in DELAYS.items()
    }
    tables = {
        "nr_peak": [["cell", "uplink, Mb/s", "downlink, Mb/s"]]
        + [[name, *(f"{each:.1f}" for each in both)] for name, both in peaks.items()],
        "nr_delay": [["cell", "uplink", "downlink", "round trip", "round trip over 5G-LENA"]]
        + [
            [name, *(f"{ms:.2f} ms" for ms in (*both, sum(both))), DELAYS[name][1]]
            for name, both in delays.items()
        ],
        "nr_lena": [
            [
                *("cells", "rates of UAVs", "median difference", "within 1 %"),
                *("largest difference", "largest difference of a cell's sum"),
            ]
        ]
        + [
            [
                *(kind, f"{each['rates']:.0f}", f"{each['median']:.2%}"),
                *(f"{each['within_1_percent']:.0f}", f"{each['largest']:.1%}"),
                f"{each['largest_of_sums']:.2%}",
            ]
            for kind, each in found.items()
        ],
        "nr_cells": [
            [
                *("cells", "rates of UAVs", "within 1 %", "within 2 %"),
                *("sums of cells", "sums within 1 %", "median of all differences"),
            ]
        ]
        + [
            [
                *(kind, f"{each['rates']:.0f}", f"{each['within_1_percent']:.0f}"),
                *(f"{each['within_2_percent']:.0f}", f"{each['sums']:.0f}"),
                *(f"{each['sums_within_1_percent']:.0f}", f"{each['median']:.2%}"),
            ]
            for kind, each in more.items()
        ],
    }
    if options.verdicts:
        rows = list(csv.DictReader((options.verdicts / "verdicts.csv").open(encoding="utf-8")))
        shown = ["shannon", *(name for name in rows[0] if name.split(",")[0] == "nr")]
        lines = [["figure", "statement", *shown]]
        lines += [[row["figure"], row["statement"], *(row[n] for n in shown)] for row in rows]
        for mark, verdict in {"✓": "hold", "≈": "are weaker", "✕": "fail"}.items():
            counts = (sum(row[name].startswith(mark) for row in rows) for name in shown)
            lines.append(["", f"number that {verdict}", *map(str, counts)])
        tables["nr_statements"] = lines
    for name, lines in tables.items():
        show(lines[0], lines[1:])
        if options.docs:
            write_table(options.docs, name, lines)
    if options.json:
        write_json(
            options.json,
            {
                "peaks_mbps": peaks,
                "delays_ms": delays,
                "against_5g_lena": found,
                "against_5g_lena_cells": more,
            },
        )


if __name__ == "__main__":
    main()
