# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a campaign costs, and that killing it at any moment changes nothing of what it finds.

    python benchmarks/campaign.py [--file FILE] [--rounds N] [--kills N] [--seed N] [--json FILE]

Some of the campaign's predicted points are made by this process alone, one after the other, with a
channel each (the baseline); all of them by `testbed campaign run`, undisturbed; and all of them by
one that is killed with SIGKILL at moments drawn by the seed, and started again each time. Both
campaigns' points must be equal, byte by byte of every table.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from orchestrator.campaigning.cluster import plain_point
from orchestrator.campaigning.folder import CampaignFolder, distinct
from orchestrator.campaigning.results import write_results
from orchestrator.campaigning.spec import Campaign, cells, load_campaign, to_yaml
from orchestrator.campaigning.worker import play
from orchestrator.records.manifest import source_sha256

FILE = Path(__file__).parents[1] / "campaigns" / "paper.yaml"
BASELINE_POINTS = 8


def predicted_only(campaign: Campaign, rounds: int, folder: Path) -> Path:
    """The campaign as a file, without what is emulated, and with so many rounds."""
    tree = yaml.safe_load(to_yaml(campaign))
    tree["mode"] = "predict"
    tree["set"] = tree.get("set", {}) | {"rounds": rounds}
    for study in tree["studies"].values():
        study.pop("mode", None)
    path = folder / "campaign.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    return path


def start(file: Path, out: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "orchestrator", "campaign", "run", str(file), "--out", str(out)]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def whole(file: Path, out: Path) -> float:
    """Seconds of the campaign from start to report."""
    began = time.monotonic()
    if start(file, out).wait() != 0:
        raise SystemExit("the campaign failed")
    return time.monotonic() - began


def killed(file: Path, out: Path, kills: int, longest_s: float, seed: int) -> list[dict[str, Any]]:
    """Kill the campaign at random moments of its way; the last one goes on to the end."""
    rng = random.Random(seed)
    notes: list[dict[str, Any]] = []
    while len(notes) < kills:
        process = start(file, out)
        moment_s = rng.uniform(0, longest_s)
        try:
            process.wait(moment_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.wait()
        finished = len(list((out / "points").glob("[!.]*"))) if out.exists() else 0
        notes.append({"after_s": round(moment_s, 2), "finished": finished})
    whole(file, out)
    return notes


def tables(out: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in sorted((out / "points").rglob("*"))
        if path.suffix == ".parquet" or path.name == "point.json"
    }


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--file", type=Path, default=FILE)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="testbed-benchmark-") as temporary:
        base = Path(temporary)
        file = predicted_only(load_campaign(asked.file), asked.rounds, base)
        campaign = load_campaign(file)
        points = list(distinct(cells(campaign)).values())

        task = {"source_sha256": source_sha256(), "command": "benchmark"}
        chosen = points[:: max(1, len(points) // BASELINE_POINTS)]
        play(task, [plain_point(chosen[0])])  # compiles what is compiled on first use
        began = time.monotonic()
        for point in chosen:
            play(task, [plain_point(point)])
        alone_s = (time.monotonic() - began) / len(chosen)

        whole_s = whole(file, base / "whole")
        again_s = whole(file, base / "whole")
        began = time.monotonic()
        write_results(CampaignFolder(base / "whole"), campaign)
        results_s = time.monotonic() - began
        kills = killed(file, base / "killed", asked.kills, whole_s / 3, asked.seed)
        result = {
            "points": len(points),
            "rounds_a_point": asked.rounds,
            "baseline_s_a_point": alone_s,
            "campaign_s": whole_s,
            "campaign_s_a_point": whole_s / len(points),
            "speedup": alone_s * len(points) / whole_s,
            "nothing_to_do_s": again_s,
            "results_s": results_s,
            "points_bytes": size(base / "whole" / "points"),
            "results_bytes": size(base / "whole" / "results"),
            "kills": kills,
            "equal_after_kills": tables(base / "whole") == tables(base / "killed"),
            "left_half_written": len(list((base / "killed" / "points").glob(".*"))),
        }
    if asked.json is not None:
        asked.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    table = Table("", "", box=None, show_header=False)
    for name, value in result.items():
        if name != "kills":
            table.add_row(name, f"{value:.3f}" if isinstance(value, float) else str(value))
    table.add_row("killed after (finished)", ", ".join(
        f"{k['after_s']:.1f} s ({k['finished']})" for k in kills))  # fmt: skip
    Console().print(table)
    if not result["equal_after_kills"]:
        raise SystemExit("the killed campaign differs from the whole one")


if __name__ == "__main__":
    main()
