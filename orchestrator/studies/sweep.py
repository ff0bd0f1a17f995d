"""Many scenarios predicted side by side: on all cores, with one channel for all that share it."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from copy import deepcopy
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
import pandas as pd

from ns3_scenarios.channel import ChannelSettings
from ns3_scenarios.trace import ChannelSource, TraceExhausted
from orchestrator.prediction.engine import BatchTimes, simulate_chain, split_costs
from orchestrator.prediction.plan import fixed_allocation, plan_round, radio_of
from orchestrator.scenario.channel import Channel, channel_settings, ns3_source
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario


@dataclass(frozen=True)
class Cell:
    """One scenario of a sweep, and how to find its outcome again."""

    study: str
    x: float
    scenario: Scenario


def varied(scenario: Scenario, **values: Any) -> Scenario:
    """The scenario with other values; ``workload__split=3`` sets ``workload.split``.

    Raises:
        InputError: A value is not one that the field may have.
    """
    tree = deepcopy(scenario.model_dump())
    for path, value in values.items():
        *sections, key = path.split("__")
        node = tree
        for section in sections:
            node = node[section]
        node[key] = value
    return validate(tree, scenario.name)


def run_cells(
    cells: Sequence[Cell],
    *,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> pd.DataFrame:
    """Predict every cell's rounds with the shares and the split that its scenario states.

    Args:
        cells: What to predict; cells with equal rings, channel and seed share one run of ns-3.
        workers: Processes; left out: one a core.
        progress: Called with the number of cells that were done since the last call.

    Returns:
        One row a cell, in the order given: study, x, paradigm, seed, rounds, and means over the
        rounds: latency_s, max_energy_j, objective, sending_j (what uploads took of each
        client's energy, an array of shape [K]).
    """
    groups: dict[ChannelSettings, list[tuple[int, Cell]]] = {}
    for at, cell in enumerate(cells):
        groups.setdefault(channel_settings(cell.scenario), []).append((at, cell))
    # The longest first, so that no core is left with a long one at the end.
    jobs = sorted(groups.values(), key=lambda job: -len(job) * job[0][1].scenario.uavs.count)
    rows: list[dict[str, Any]] = [{} for _ in cells]
    count = min(workers or len(os.sched_getaffinity(0)), len(jobs))
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(_outcomes, [cell for _, cell in job]) for job in jobs]
        places = dict(zip(futures, jobs, strict=True))
        for future in as_completed(futures):
            job = places[future]
            for (at, _), row in zip(job, future.result(), strict=True):
                rows[at] = row
            if progress is not None:
                progress(len(job))
    return pd.DataFrame(rows)


def _outcomes(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    with ns3_source(cells[0].scenario) as source:
        return [_outcome(cell, source) for cell in cells]


def _outcome(cell: Cell, source: ChannelSource) -> dict[str, Any]:
    times = chain(cell.scenario, source)
    plan = plan_round(cell.scenario, profile_of(cell.scenario), fixed_allocation(cell.scenario))
    computing_j = plan.compute_power_w * (plan.cf_s + plan.cb_s).sum(axis=1)
    return {
        "study": cell.study,
        "x": cell.x,
        "paradigm": cell.scenario.paradigm,
        "seed": cell.scenario.seed,
        "rounds": cell.scenario.rounds,
        "latency_s": times.latency_s.mean(),
        "max_energy_j": times.energy_j.max(axis=1).mean(),
        "objective": times.objective.mean(),
        "sending_j": times.energy_j.mean(axis=0) - computing_j,
    }


def chain(scenario: Scenario, source: ChannelSource) -> BatchTimes:
    """All rounds of a scenario with its own shares, from t = 0; the outcomes without the steps.

    Raises:
        TraceExhausted: The source has too few slots.
    """
    allocation = fixed_allocation(scenario)
    costs = split_costs(scenario, profile_of(scenario))

    every_round = (scenario.rounds, scenario.uavs.count)
    alpha, beta, rho = (
        np.broadcast_to(share, every_round)
        for share in (allocation.alpha, allocation.beta, allocation.rho)
    )
    split = np.full(scenario.rounds, allocation.split)
    radio, channel = radio_of(scenario), Channel.of(source)
    while True:
        trace = channel.now
        try:
            return simulate_chain(
                costs, radio, trace.gain, trace.slot_s, 0.0, split, alpha, beta, rho
            )
        except TraceExhausted:
            channel.grow()
