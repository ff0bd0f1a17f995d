# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed validate` at its full size: claims of the paper, a queue, and whether regions hold.

python benchmarks/validate.py OUT [--scenario FILE] [--samples N] [--packets N] [--kernel N]

Holds T_iter as a bound of SFL-PS's iterations, τ2 as the latency of CPSFL w/o AT, CPSFL's bounds,
and an M/G/1 queue for CPSFL against engine, ns-3's packets and the kernel over the default space of
the scenario (nine keys), as `testbed validate` does, into OUT/MODEL; says how long each took, by
the clock and of CPU; then plays 1,000 points that no design had, and says in how many of those that
lie in the stated region the model is right. OUT/figures.json has it all.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import ROOT, cpu_s
from rich.console import Console

from orchestrator.scenario.loading import load
from orchestrator.studies.validation import study
from orchestrator.studies.validation.outcome import Request, Validation
from orchestrator.studies.validation.page import write
from orchestrator.studies.validation.region import PURE
from orchestrator.studies.validation.space import default_space, features, tree_at
from orchestrator.studies.validation.worker import ROUNDING, Player, channels
from testbed.system.files import write_json

MODELS = {"t-iter": "sfl-ps", "tau2": "cpsfl-no-at", "cpsfl-bounds": "cpsfl", "mg1": "cpsfl"}
"""What is validated, of which paradigm."""
console = Console(stderr=True)


def fresh(found: Validation, count: int, seed: int) -> dict[str, Any]:
    """Points of another seed, and how many of those in the region the model is right at."""
    asked = found.request
    rng = np.random.default_rng([seed, 99])
    points = rng.random((count, len(asked.space.keys)))
    keys = sorted((asked.space.keys_at(p) for p in points), key=lambda at: str(at.get("seed")))
    tree = asked.scenario.model_dump(mode="json")
    errors = np.full(count, np.nan)
    with channels() as kept:
        player = Player(asked.model, asked.metric, kept)
        for at, key in enumerate(keys):
            errors[at] = player.play(tree_at(tree, key, "space")).error
    _, columns = features(asked.space, keys)
    inside = found.region.has(columns) & np.isfinite(errors)
    right = np.abs(errors) <= max(found.region.tolerance, ROUNDING)
    return {
        "points": count,
        "in_region": int(inside.sum()),
        "right_in_region": int((inside & right).sum()),
        "right_of_all": int(right.sum()),
        "share": float(right[inside].mean()) if inside.any() else None,
    }


def validated(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """What came of a model, how long it took, and how it fares at fresh points."""
    scenario = load(given.scenario, [f"paradigm={MODELS[name]}"])
    asked = Request(
        scenario,
        name,
        default_space(scenario),
        given.samples,
        given.packets,
        given.kernel,
        seed=given.seed,
    )
    began, computed = time.perf_counter(), cpu_s()
    seconds: dict[str, float] = {}

    def progress(what: str, done: float, of: float) -> None:
        seconds[what] = time.perf_counter() - began

    found = study.validate(asked, given.out / name, progress=progress)
    write(found, given.out / name)
    said = found.to_json()
    return {
        "wall_s": time.perf_counter() - began,
        "cpu_s": cpu_s() - computed,
        "done_after_s": seconds,
        "keys": len(asked.space.keys),
        "distribution": said["distribution"],
        "region": said["region"],
        "sensitivity": said["sensitivity"],
        "counterexample": said["counterexample"],
        "fresh": fresh(found, given.fresh, given.seed),
    }


def main() -> int:
    """Validate, check, write; 1 where a region does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--scenario", type=Path, default=ROOT / "scenarios" / "quickstart.yaml")
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("--packets", type=int, default=40)
    parser.add_argument("--kernel", type=int, default=10)
    parser.add_argument("--fresh", type=int, default=1000, help="points that no design had")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {"cores": len(os.sched_getaffinity(0)), "models": {}}
    holds = True
    for name in given.models:
        figures["models"][name] = about = validated(name, given)
        checked = about["fresh"]
        if checked["share"] is not None:
            holds &= checked["share"] >= PURE - 0.01
        console.print(
            f"{name}: {about['wall_s']:.0f} s, {about['cpu_s']:.0f} s of CPU, "
            f"region {about['region']['share']:.1%} of the space, "
            f"right at {checked['right_in_region']} of {checked['in_region']} fresh points in it"
        )
        write_json(given.out / "figures.json", figures)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
