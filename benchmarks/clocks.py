# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A campaign's emulated points by the real clock and in virtual time, and what sets them apart.

    python benchmarks/clocks.py [CAMPAIGN] [--json FILE]

Left out, the campaign is the paper's. Only what it emulates is played, once by each clock: the
real one a point at a time, alone on the machine; virtual time as many points beside each other as
there are cores. Of each point: measured latency by both clocks, validity, each part of both error
budgets, and the part in which the two differ most. The parts' differences add up to the latency's.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from common import ROOT
from rich.console import Console
from rich.table import Table

from orchestrator.campaigning.report import short
from orchestrator.campaigning.spec import load_campaign, to_yaml
from testbed.system.files import write_json

FILE = ROOT / "campaigns" / "paper.yaml"
CLOCKS = ("real", "virtual")


def emulated_only(file: Path, clock: str, folder: Path) -> Path:
    """The campaign as a file, without what is only predicted, by this clock."""
    tree = yaml.safe_load(to_yaml(load_campaign(file)))
    tree["mode"] = "run"
    tree["set"] = tree.get("set", {}) | {"emulation.clock": clock}
    tree["studies"] = {
        name: study for name, study in tree["studies"].items() if study.get("mode") != "predict"
    }
    path = folder / f"{clock}.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    return path


def play(file: Path, out: Path) -> tuple[float, list[dict[str, Any]]]:
    """Seconds from start to report, and each point's place, latency, validity and budget."""
    words = [sys.executable, "-m", "orchestrator", "campaign", "run", str(file), "--out", str(out)]
    began = time.monotonic()
    if status := subprocess.run(words, stdout=sys.stderr).returncode:
        sys.exit(f"{file.name}: the campaign ended with status {status}")
    wall_s = time.monotonic() - began
    points = pd.read_parquet(out / "results" / "points.parquet")
    budget = pd.read_parquet(out / "results" / "budget.parquet")
    own = ["study", "point", "mode", "seed", "paradigm"]
    axes = points.columns[len(own) : points.columns.get_loc("status")]
    # A point that fills cells of several studies stands in each.
    parts = budget.groupby(["study", "point", "part"])["seconds"].mean()
    found = []
    for row in points.to_dict("records"):
        place = {name: row[name] for name in axes if row[name] == row[name] and row[name]}
        found.append(
            {
                "study": row["study"],
                "place": {"paradigm": row["paradigm"], **place},
                "latency_s": row["latency_s"],
                "error": row["latency_s"] / row["predicted_wire_latency_s"] - 1,
                "valid": bool(row["valid"]),
                "budget_s": parts.loc[row["study"], row["point"]].to_dict(),
            }
        )
    return wall_s, found


def together(real: dict[str, Any], virtual: dict[str, Any]) -> dict[str, Any]:
    """One point by both clocks."""
    apart = {
        part: real["budget_s"].get(part, 0.0) - virtual["budget_s"].get(part, 0.0)
        for part in {**virtual["budget_s"], **real["budget_s"]}
    }
    return {
        "study": real["study"],
        "place": real["place"],
        **dict(zip(CLOCKS, (real, virtual), strict=True)),
        "difference_s": real["latency_s"] - virtual["latency_s"],
        "difference": real["latency_s"] / virtual["latency_s"] - 1,
        "parts_apart_s": apart,
    }


def main() -> None:
    """Play both, print the points side by side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("campaign", nargs="?", type=Path, default=FILE)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        played = {
            clock: play(emulated_only(asked.campaign, clock, folder), folder / clock)
            for clock in CLOCKS
        }
    walls = {clock: wall_s for clock, (wall_s, _) in played.items()}
    pairs = zip(*(points for _, points in played.values()), strict=True)
    points = [together(*pair) for pair in pairs]
    if asked.json is not None:
        found = {"wall_s": walls, "points": points}
        write_json(asked.json, found)
    table = Table("study", "point", *CLOCKS, "apart", "most of it", "valid")
    for point in points:
        apart = point["parts_apart_s"]
        most = max(apart, key=lambda part: abs(apart[part]))
        table.add_row(
            point["study"],
            ", ".join(f"{name} {short(value)}" for name, value in point["place"].items()),
            *(f"{point[clock]['latency_s']:.4f} s" for clock in CLOCKS),
            f"{100 * point['difference']:+.3f} %",
            f"{most} {1e3 * apart[most]:+.2f} ms of {1e3 * point['difference_s']:+.2f}",
            "yes" if all(point[clock]["valid"] for clock in CLOCKS) else "no",
        )
    table.caption = ", ".join(f"{clock}: {wall_s:.0f} s" for clock, wall_s in walls.items())
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
