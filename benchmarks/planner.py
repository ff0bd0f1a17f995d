# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How long the planner takes to decide a round of the paper's ten UAVs, and how good it is.

    python benchmarks/planner.py [--rounds N] [--json FILE]

Each round is decided afresh, without the warm start that it has in a run. The baseline is what a
general optimizer makes of as many tries of the same engine: scipy's differential evolution over
the logarithms of the shares, with the split point given to it. Both see the same forecasts; what
they decide is judged on the true channel. One core.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from common import PAPER, show
from rich.console import Console
from rich.progress import track
from scipy.optimize import differential_evolution

from ns3_scenarios.trace import ChannelTrace
from orchestrator.engine.fdma import ShannonFdma
from orchestrator.engine.plan import Allocation
from orchestrator.policies import planner
from orchestrator.policies.planner import Candidates, Outlook, candidates, forecast, search
from orchestrator.policies.shares import lifted
from orchestrator.rounds.simulation import simulate_batch, split_costs
from orchestrator.scenario.channel import Channel, ns3_source
from orchestrator.scenario.loading import load
from orchestrator.scenario.profiles import profile_of
from testbed.system.files import write_json

APART_S = 1000.0
"""Time between the rounds that are decided."""


def planned(ahead: Outlook, seed: int) -> Allocation:
    return search(ahead, [], np.random.default_rng(seed))[0]


def evolved(ahead: Outlook, seed: int) -> Allocation:
    clients = ahead.gain.shape[0]
    tries = (
        4
        + 3 * 4 * planner.COMPILED.balancing_steps
        + planner.GENERATIONS * planner.COMPILED.children
    )
    population = 2 * clients

    def made(x: np.ndarray) -> Candidates:
        """Columns of x are tried; half the rows are alpha's, half beta's logarithms."""
        alpha, beta = (lifted(np.exp(part.T) / np.exp(part.T).sum(1)[:, None]) for part in
                       (x[:clients], x[clients:]))  # fmt: skip
        return Candidates(np.full_like(beta, 2, int), alpha, beta, np.full_like(beta, 1 / clients))

    found = differential_evolution(
        lambda x: ahead.play(made(x)).objective,
        [(-1.0, 1.0)] * (2 * clients),
        init="sobol",
        popsize=1,
        maxiter=max(1, tries // population - 1),
        x0=np.zeros(2 * clients),
        polish=False,
        vectorized=True,
        updating="deferred",
        rng=seed,
    )
    return made(found.x[:, None]).allocation(0, ahead.shares)


def equal(ahead: Outlook, seed: int) -> Allocation:
    clients = ahead.gain.shape[0]
    shares = np.full(clients, 1 / clients)
    return Allocation(2, shares, shares, shares)


WAYS: dict[str, Callable[[Outlook, int], Allocation]] = {
    "planner": planned,
    "differential evolution, as many tries": evolved,
    "equal shares": equal,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    scenario = load(PAPER, ["workload.local_iterations=5"])
    costs, radio = split_costs(scenario, profile_of(scenario)), ShannonFdma.of(scenario)
    starts_s = APART_S * np.arange(1, arguments.rounds + 1)
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    objectives: dict[str, list[float]] = {name: [] for name in WAYS}
    with ns3_source(scenario) as source:
        channel = Channel(source)
        trace = channel.trace(round((starts_s[-1] + 300) / scenario.slot_s))
        assert isinstance(trace, ChannelTrace)
        console = Console(stderr=True)
        for n, start_s in enumerate(track(starts_s, "rounds", console=console, transient=True)):
            known = channel.until(start_s)
            first = known.slots - 1
            gain = trace.gain[:, first : first + 3000]
            for name, way in WAYS.items():
                began = time.perf_counter()
                ahead = Outlook(
                    costs,
                    radio,
                    forecast(scenario, known, start_s, planner.FORECAST_SLOTS),
                    planner.FORECAST_SLOT_S,
                )
                made = candidates([way(ahead, n)])
                seconds[name].append(time.perf_counter() - began)
                happened = simulate_batch(
                    costs, radio, gain, scenario.slot_s, start_s - first * scenario.slot_s,
                    made.split, made.alpha, made.beta, made.rho,
                )  # fmt: skip
                objectives[name].append(float(happened.objective[0]))
    # The first decision compiles or loads the engine: it is not the planner's.
    results = {
        name: {
            "median_s": statistics.median(seconds[name][1:]),
            "worst_s": max(seconds[name][1:]),
            "objective": statistics.fmean(objectives[name]),
        }
        for name in WAYS
    }
    cells = []
    for name, row in results.items():
        times = (f"{1e3 * row[key]:.1f} ms" for key in ("median_s", "worst_s"))
        cells.append([name, *times, f"{row['objective']:.2f} s"])
    show(["", "median decision", "slowest", "mean objective"], cells)
    if arguments.json is not None:
        write_json(arguments.json, {"rounds": arguments.rounds} | results)


if __name__ == "__main__":
    main()
