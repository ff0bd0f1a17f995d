# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Fits and forecasts of measured flights over LTE, and the paper's round on the fitted link.

    python benchmarks/flights.py FOLDER --base-station LAT,LON,HEIGHT [--offered-bps BPS]
        [--rounds N] [--docs PAGE]

FOLDER contains one folder per flight with the files `ue_radio_log.txt`, `enb_radio_log.txt` and
`vehicleOut.txt`, like the AERPAW flights in examples/flights/README.md.
"""

import argparse
import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import TESTBED, write_between

PARADIGMS = {"cpsfl": "CPSFL", "pipesfl": "PipeSFL", "sfl-pp": "SFL-PP"}
NEAR = "uavs.rings_m=[[30, 300], [30, 300], [30, 300]]"


def ran(*words: object) -> None:
    """Run a testbed command; show its progress and errors."""
    subprocess.run([TESTBED, *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def table(header: list[str], rows: list[list[str]]) -> Iterator[str]:
    """Lines of a table in Markdown."""
    yield f"| {' | '.join(header)} |"
    yield "|" + " --- |" * len(header)
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""


def imported(folder: Path, station: str, work: Path) -> list[str]:
    """Import all flights of a folder and return their names."""
    names = sorted(path.name for path in folder.iterdir() if (path / "vehicleOut.txt").is_file())
    for name in names:
        logs = [folder / name / f"{stem}_radio_log.txt" for stem in ("ue", "enb")]
        vehicle = folder / name / "vehicleOut.txt"
        ran(
            *("import", "srsran", "--ue", logs[0], "--enb", logs[1], "--vehicle", vehicle),
            *("--base-station", station, "--out", work / f"{name}.npz"),
        )
    return names


def fits(names: list[str], work: Path) -> Iterator[str]:
    """Fit each flight alone and all flights together; return tables of the parameters."""
    rows, links, stages = [], [], {}
    for label, files in {**{name: [name] for name in names}, "all": names}.items():
        path = work / f"fit-{label}.json"
        ran("fit", *(work / f"{file}.npz" for file in files), "--json", path)
        found = json.loads(path.read_text())
        for title, model in (("RSRP", found["chosen"]), ("uplink SNR", found["uplink"])):
            rows.append(
                [
                    label,
                    title,
                    model["name"],
                    ", ".join(f"{one:.2f}" for one in model["offsets_db"]),
                    f"{model['sigma_db']:.2f}",
                    f"{model['decorrelation_m']:.1f}",
                    f"{model['scatter_db']:.2f}",
                    f"{model['heading_db_per_m_s']:.2f}",
                ]
            )
        link = found["link"]
        links.append(
            [
                label,
                f"{link['implementation_margin_db']:.1f}",
                f"{link['highest_snr_db']:.1f}",
                f"{link['error_db']:.2f}",
            ]
        )
        stages[label] = link["stages"]
    yield from table(
        [
            *("fitted flights", "level", "model", "offsets of the flights, dB", "shadowing, dB"),
            *("decorrelation distance, m", "scatter, dB", "heading, dB per m/s"),
        ],
        rows,
    )
    yield from table(
        [
            *("fitted flights", "`implementation_margin_db`", "`highest_snr_db`"),
            "mean absolute error of the LTE model's rate, dB",
        ],
        links,
    )
    yield from table(
        ["median uplink rate over all seconds, Mb/s", *stages],
        [
            [
                stage["name"],
                *(f"{found[number]['median_bps'] / 1e6:.1f}" for found in stages.values()),
            ]
            for number, stage in enumerate(stages["all"])
        ],
    )


def forecasts(names: list[str], work: Path, offered_bps: float) -> Iterator[str]:
    """Forecast each flight from each other one, and from all with `--like`; return the scores."""
    rows = []
    cases = [(one, other, ["--offered-bps", offered_bps]) for other in names for one in names]
    for fit, flight, words in [case for case in cases if case[0] != case[1]] + [
        ("all", name, ["--offered-bps", offered_bps, "--like", name]) for name in names
    ]:
        path = work / "forecast.json"
        ran(
            *("forecast", "paper", "--fit", work / f"fit-{fit}.json"),
            *("--flight", work / f"{flight}.npz", "--reveal", "--json", path, *words),
        )
        found: dict[str, Any] = json.loads(path.read_text())["reveal"]
        rows.append(
            [
                fit + (f", radio of {flight}" if "--like" in words else ""),
                flight,
                f"{found['rsrp_coverage_90']:.1%}",
                f"{found['crps_db']:.2f}",
                f"{found['snr_up_coverage_90']:.1%}",
                f"{found['uplink_median_forecast_bps'] / 1e6:.1f}",
                f"{found['uplink_median_bps'] / 1e6:.1f}",
                f"{found['uplink_ks']:.2f}",
                f"{found['uplink_minutes_coverage_90']:.0%}",
                f"{found['uplink_bytes_error']:+.1%}",
            ]
        )
    yield from table(
        [
            *("fitted flights", "forecast flight", "RSRP in the 90 % band", "CRPS of RSRP, dB"),
            *("uplink SNR in the band", "median goodput, forecast, Mb/s"),
            *("median goodput, measured, Mb/s", "KS distance of the goodput"),
            *("minutes with goodput in the band", "error in the total volume of data"),
        ],
        rows,
    )


def rounds(work: Path, count: int) -> Iterator[str]:
    """Predict the paper's round with Shannon's rates, LTE and the fitted link; return latencies."""
    path = work / "fit-all.json"
    link = json.loads(path.read_text())["link"]
    fitted = ["radio.access=lte", "radio.channel=fitted", f"radio.fitted={path}"] + [
        f"radio.lte.{key}={link[key]}" for key in ("implementation_margin_db", "highest_snr_db")
    ]
    rows = []
    for label, keys in {
        "Shannon's rates, RMa-AV (the paper)": [],
        "LTE, RMa-AV": ["radio.access=lte"],
        "LTE with the fitted link": fitted,
        "Shannon's rates, RMa-AV, UAVs at 30 to 300 m": [NEAR],
        "LTE, RMa-AV, UAVs at 30 to 300 m": [NEAR, "radio.access=lte"],
        "LTE with the fitted link, UAVs at 30 to 300 m": [NEAR, *fitted],
    }.items():
        latencies = []
        for paradigm in PARADIGMS:
            sets = [word for key in (f"paradigm={paradigm}", *keys) for word in ("--set", key)]
            ran("predict", "paper", *sets, "--rounds", count, "--json", work / "round.json")
            made = json.loads((work / "round.json").read_text())["rounds"]
            latencies.append(sum(one["latency_s"] for one in made) / len(made))
        first, *others = latencies
        rows.append(
            [
                label,
                *(f"{latency:.1f}" for latency in latencies),
                f"{1 - first / min(others):+.1%}",
            ]
        )
    yield from table(
        ["mean round, s", *PARADIGMS.values(), "time saved by CPSFL against the next best"], rows
    )


def main() -> None:
    """Print the tables; with --docs, also write them into the documentation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--base-station", required=True)
    parser.add_argument("--offered-bps", type=float, default=19e6)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--docs", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        names = imported(asked.folder, asked.base_station, work)
        lines = [
            *fits(names, work),
            *forecasts(names, work, asked.offered_bps),
            *rounds(work, asked.rounds),
        ]
    text = "\n".join(lines)
    print(text)
    if asked.docs is not None:
        write_between(asked.docs, "flights", text.strip())


if __name__ == "__main__":
    main()
