# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Budgets of work that users repeat: how much of what can be counted exactly each may take.

    python benchmarks/budgets.py [NAME]...

Counted are calls of functions in Python and C, memory that Python and NumPy allocate at the peak,
and processes that are started. These counts do not depend on the load of the machine, so a test
(`tests/benchmarks/test_budgets.py`) compares them with the budgets; `benchmarks/performance.py`
prints both beside CPU seconds. Each count is that of one unit: the difference between two numbers
of units, divided, after a call that fills all caches.
"""

import argparse
import functools
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from engine import grown
from rich.console import Console
from rich.table import Table

import orchestrator as tb
from ns3_scenarios.trace import ChannelTrace, Replay
from orchestrator.policies.environment import UavSflEnv
from orchestrator.rounds.loop import predict
from workloads.costs.profile import PAPER

SLOTS = 40_000
STARTS = {"fork", "fork_exec", "forkpty", "posix_spawn", "posix_spawnp"}
"""Functions that start a process."""

Work = Callable[[int], object]
"""Does this number of units."""


@dataclass(frozen=True)
class Counts:
    """What a unit of work takes."""

    calls: float
    """Calls of functions in Python and C."""
    kb: float
    """Memory that is allocated at the peak, in kB."""
    processes: float = 0
    """Processes that are started."""


@dataclass(frozen=True)
class Budget:
    """The most that a unit of some work may take."""

    what: str
    """The unit, for the table."""
    prepare: Callable[[], Work]
    """Prepares the work, which is not counted."""
    most: Counts
    few: int = 0
    many: int = 1
    """Numbers of units that are compared."""


def counted(work: Work, units: int) -> Counts:
    """What these units take together."""
    if not units:
        return Counts(0, 0)
    calls = started = 0

    def called(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls, started
        calls += event in ("call", "c_call")
        started += event == "c_call" and argument.__name__ in STARTS

    sys.setprofile(called)
    try:
        work(units)
    finally:
        sys.setprofile(None)
    tracemalloc.start()
    try:
        work(units)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return Counts(calls, peak / 1e3, started)


def used(budget: Budget) -> Counts:
    """What a unit of this work takes today."""
    work = budget.prepare()
    work(budget.many)
    few, many = (counted(work, units) for units in (budget.few, budget.many))
    units = budget.many - budget.few
    return Counts(
        (many.calls - few.calls) / units,
        (many.kb - few.kb) / units,
        (many.processes - few.processes) / units,
    )


# --- the work ------------------------------------------------------------------------------------


def steady(clients: int, *, positions: bool = False) -> ChannelTrace:
    """A channel that stands still."""
    at_m = np.tile([300.0, 0.0, 20.0], (clients, SLOTS, 1)) if positions else None
    return ChannelTrace(np.full((clients, SLOTS), 1e-10), 0.1, at_m)


def rounds(clients: int) -> Work:
    """Rounds that are predicted together."""
    scenario, source = grown(tb.load("paper"), clients), Replay(steady(clients))
    return lambda count: predict(scenario, source, PAPER, rounds=count)


def on_trace() -> Work:
    """Calls of `tb.predict` with 20 rounds on a trace."""
    scenario, trace = tb.load("paper"), steady(10)
    return lambda count: [tb.predict(scenario, trace, rounds=20) for _ in range(count)]


def steps() -> Work:
    """Steps of the environment."""
    source = Replay(steady(10, positions=True))
    environment = UavSflEnv(tb.load("paper"), source=lambda _: source)
    environment.reset()
    action = {"split": 2, **{name: np.ones(10) for name in environment.shares}}
    return lambda count: [environment.step(action) for _ in range(count)]


def points() -> Work:
    """Predicted points of a campaign, each with a channel of its own."""
    from orchestrator.campaigning.cluster import plain_point
    from orchestrator.campaigning.spec import point_of
    from orchestrator.campaigning.worker import play
    from orchestrator.records.manifest import source_sha256

    task = {"source_sha256": source_sha256(), "argv": [], "command": ""}
    scenario = tb.load("quickstart", {"rounds": 20})
    point = plain_point(point_of("predict", scenario, None, 0))

    def played(count: int) -> None:
        for _ in range(count):
            (answer,) = play(task, [point])
            assert "files" in answer, answer

    return played


def models() -> Work:
    """Clients of `testbed learn`, which share a model."""
    from orchestrator.emulated.learning import learning_settings, place
    from workloads.learning.real import Opened, RealClient, Settings

    most = 13
    scenario = tb.load("quickstart", {"uavs.tx_power_w": [1.0] * most})
    found = learning_settings(scenario)
    assert found is not None
    settings = Settings.from_json(found | place(scenario.uavs))
    opened = Opened.of(settings)

    def made(count: int) -> None:
        clients = [RealClient(settings, client, opened) for client in range(1, count + 1)]
        for client in clients:
            client.close()

    return made


BUDGETS: dict[str, Budget] = {
    "round": Budget(
        "round of 10 UAVs, predicted with others",
        functools.partial(rounds, 10),
        Counts(calls=20, kb=11),
        few=20,
        many=120,
    ),
    "round-100": Budget(
        "round of 100 UAVs, predicted with others",
        functools.partial(rounds, 100),
        Counts(calls=20, kb=105),
        few=20,
        many=60,
    ),
    "trace": Budget("`tb.predict`, 20 rounds on a trace", on_trace, Counts(calls=6500, kb=260)),
    "environment": Budget("step of the environment", steps, Counts(calls=500, kb=145)),
    "point": Budget(
        "predicted point of a campaign, 20 rounds", points, Counts(calls=22_500, kb=330)
    ),
    "model": Budget(
        "UAV that `testbed learn` opens", models, Counts(calls=900, kb=0.8), few=3, many=13
    ),
}
"""By name."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", choices=[[], *BUDGETS], metavar="NAME")
    shown = Table("unit", "calls", "at most", "kB", "at most", "processes", "at most", box=None)
    for name in parser.parse_args().names or BUDGETS:
        budget = BUDGETS[name]
        now, most = used(budget), budget.most
        pairs = ((now.calls, most.calls), (now.kb, most.kb), (now.processes, most.processes))
        shown.add_row(budget.what, *(f"{value:,.4g}" for pair in pairs for value in pair))
    Console().print(shown)


if __name__ == "__main__":
    main()
