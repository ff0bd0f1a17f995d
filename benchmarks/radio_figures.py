# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The paper's figures 4 to 7 by the model of LTE, and by ns-3's TCP over ns-3's LTE.

    python benchmarks/radio_figures.py [--figures fig4 ...] [--jobs N] [--json FILE] [--docs PAGE]

Each figure has three points and three paradigms, with one round each, equal shares and the seed of
the scenario. A round is predicted twice, with the payload only and with frames, grants and TCP's
first windows, and then simulated packet by packet. `--json` also has the mean duration of each kind
of step; the file is written after each point, and points that it already has are not simulated
again.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
from common import PAPER, ROOT, show, write_table
from rich.console import Console
from rich.progress import track

from orchestrator.api import load
from orchestrator.campaigning.spec import Campaign, Point, load_campaign, point_of
from orchestrator.engine.plan import link_bytes, payload_bytes
from orchestrator.rounds.loop import predict
from orchestrator.rounds.packet_rounds import play
from orchestrator.scenario.channel import ns3_source
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from testbed.system.files import write_json

CAMPAIGN = ROOT / "campaigns" / "paper.yaml"
PARADIGMS = ("cpsfl", "pipesfl", "sfl-pp")
MODEL, FRAMES, PACKETS = METHODS = ("model", "frames", "packets")
RADIO: dict[str, Any] = {
    "radio.access": "lte",
    "emulation.air": "ns3",
    "workload.compute": "none",
    "rounds": 1,
}
Place = tuple[str, str]
"""A figure and one of its points."""
Result = dict[str, Any]
"""By method: latency in s, and the mean duration of each kind of step in s."""


def places(campaign: Campaign) -> dict[Place, dict[str, Any]]:
    """The keys of the scenario at each point of each figure."""
    clusters = campaign.studies["fig5"].axes["cluster"].points
    assert clusters is not None
    return {
        **{("fig4", f"u = {u}"): {"workload.split": u} for u in (1, 2, 4)},
        **{("fig5", f"cluster {n}"): clusters[n] for n in (1, 3, 5)},
        **{("fig6", f"I = {i}"): {"workload.local_iterations": i} for i in (1, 3, 5)},
        **{
            ("fig7", f"K = {k}"): {"uavs.tx_power_w": np.repeat([0.9, 0.3, 0.1], k // 3).tolist()}
            for k in (3, 6, 12)
        },
    }


def points(
    figures: Sequence[str], base: Path, uavs: int | None
) -> Iterator[tuple[Place, str, Point]]:
    """The points of some figures, with the paradigm.

    Args:
        figures: Names of figures.
        base: Scenario whose other keys the points have.
        uavs: The largest number of UAVs of a point, which keeps evenly spaced ones of its UAVs;
            None: all.
    """
    for place, given in places(load_campaign(CAMPAIGN)).items():
        for paradigm in PARADIGMS if place[0] in figures else ():
            keys = {**RADIO, "paradigm": paradigm, **given}
            scenario = load(base, keys)
            count = scenario.uavs.count
            if uavs is not None and uavs < count:
                kept = np.linspace(0, count - 1, uavs).round().astype(int)
                power_w = scenario.fleet.tx_power_w[kept].tolist()
                scenario = load(base, keys | {"uavs.tx_power_w": power_w})
            yield place, paradigm, point_of("predict", scenario, None, 0)


def rounds_of(scenario: Scenario) -> Result:
    """The round of a point by each method."""
    with ns3_source(scenario) as source:
        profile = profile_of(scenario)
        timelines = {
            MODEL: predict(scenario, source, profile, sizing=payload_bytes),
            FRAMES: predict(scenario, source, profile, sizing=link_bytes),
            PACKETS: play(scenario, source, profile).timeline,
        }
    found: Result = {}
    for name, timeline in timelines.items():
        steps = timeline.frame()
        means = (steps["end_s"] - steps["start_s"]).groupby(steps["step"], observed=True).mean()
        found[name] = {"latency_s": timeline.rounds[0].latency_s, "steps_s": means.to_dict()}
    return found


def played(
    due: Mapping[str, Scenario],
    jobs: int,
    file: Path | None,
    one: Callable[[Scenario], Result] = rounds_of,
) -> dict[str, Result]:
    """The results of points by ID; those in the file are not computed again."""
    known: dict[str, Result] = json.loads(file.read_text()) if file and file.exists() else {}
    with ThreadPoolExecutor(jobs) as pool:
        computed = {pool.submit(one, due[name]): name for name in due if name not in known}
        try:
            done = as_completed(computed)
            for each in track(done, "points", len(computed), console=Console(stderr=True)):
                known[computed[each]] = each.result()
                if file:
                    write_json(file, known)
        finally:
            pool.shutdown(cancel_futures=True)
    return known


def order(found: Mapping[str, Result], method: str) -> list[str]:
    """The paradigms of a point by latency, the shortest first."""
    return sorted(found, key=lambda paradigm: found[paradigm][method]["latency_s"])


def off(result: Result, method: str) -> float:
    """The relative difference of the packets' latency from that of a prediction."""
    return float(result[PACKETS]["latency_s"] / result[method]["latency_s"] - 1)


def rows(found: Mapping[Place, Mapping[str, Result]]) -> list[list[str]]:
    """The cells of the table, with its head."""
    made = [["figure", "point", *PARADIGMS, "order of the paradigms"]]
    for (figure, point), results in found.items():
        cells = []
        for result in results.values():
            latencies = " / ".join(f"{result[name]['latency_s']:.2f}" for name in METHODS)
            cells.append(f"{latencies} ({off(result, MODEL):+.1%}, {off(result, FRAMES):+.1%})")
        model, packets = (order(results, method) for method in (MODEL, PACKETS))
        same = (
            "the same" if model == packets else f"{' < '.join(packets)}; model: {' < '.join(model)}"
        )
        made.append([figure, point, *cells, same])
    return made


def summary(found: Mapping[Place, Mapping[str, Result]]) -> list[str]:
    """The largest differences, and at how many points the order is the same."""
    every = [
        (f"{figure}, {point}, {paradigm}", result)
        for (figure, point), results in found.items()
        for paradigm, result in results.items()
    ]
    lines = []
    for method in (MODEL, FRAMES):
        name, result = max(every, key=lambda each: abs(off(each[1], method)))
        lines.append(f"largest difference from {method}: {off(result, method):+.1%} ({name})")
    same = sum(order(each, MODEL) == order(each, PACKETS) for each in found.values())
    return [*lines, f"the order of the paradigms is the same at {same} of {len(found)} points"]


def main() -> None:
    """Predict and simulate all points."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    figures = ("fig4", "fig5", "fig6", "fig7")
    parser.add_argument("--figures", nargs="+", choices=figures, default=figures)
    parser.add_argument("--scenario", type=Path, default=PAPER)
    parser.add_argument("--uavs", type=int, help="largest number of UAVs of a point")
    parser.add_argument("--jobs", type=int, default=1, help="number of points at once")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--docs", type=Path)
    options = parser.parse_args()
    asked = list(points(options.figures, options.scenario, options.uavs))
    results = played({point.id: point.scenario for *_, point in asked}, options.jobs, options.json)
    found: dict[Place, dict[str, Result]] = {place: {} for place, *_ in asked}
    for place, paradigm, point in asked:
        found[place][paradigm] = results[point.id]
    head, *cells = rows(found)
    show(head, cells, width=200)
    print("\n".join(summary(found)))
    if options.docs:
        write_table(options.docs, "radio_figures", [head, *cells])


if __name__ == "__main__":
    main()
