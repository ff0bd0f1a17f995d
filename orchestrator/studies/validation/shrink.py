# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The worst case, looked for from the worst points of a design, and made simple.

A counterexample is worth what it explains: UAVs stand still if they can, there are as few of them,
as few iterations and as few keys off their defaults as still show the error, in round numbers.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from orchestrator.engine.plan import Array
from orchestrator.scenario.fleet import Spread
from orchestrator.scenario.loading import put, validate
from orchestrator.scenario.schema import GAUSS_MARKOV, Scenario
from orchestrator.studies.validation.space import Space, tree_at
from orchestrator.studies.validation.worker import Player
from testbed.core.errors import InputError, RunError

STARTS = 4
"""Of a design's worst points, so many are followed."""
NEAR = 0.15
"""Standard deviation of the first steps, in the unit cube; they become smaller."""
STILL_TRIED = 60
"""Of a design's worst points, so many are tried with UAVs that stand still."""
KEPT = 0.5
"""Of its error, a simplified scenario must still show so much where the model states a value."""
BROKEN = 1e-3
"""And where it bounds: a bound that is broken by so much, relative, is broken."""
WRONG = 1e-4
"""Relative: by what a model must be wrong at all."""
SEARCHED = 64
"""Points, and again so many steps, for each number of UAVs and each placement of them."""
PLACED = 3
"""Placements of each number of UAVs."""
STANDING = {
    "mobility.speed_m_s": [0.0, 0.0],
    "mobility.mean_speed_m_s": 0.0,
    "mobility.speed_deviation_m_s": 0.0,
}
TRIALS = 2000
"""Of simplifications, at most."""

Margin = Callable[[Scenario], float]


def margin_of(player: Player) -> Margin:
    """How far the model is from being wrong; infinite where nothing can be said."""

    def margin(scenario: Scenario) -> float:
        try:
            found = player.play(scenario).margin
        except (InputError, RunError):
            return np.inf
        return found if np.isfinite(found) else np.inf

    return margin


def limit_of(lowest: float, is_interval: bool) -> float:
    """The margin that a simplified scenario must keep to show what the worst one shows."""
    return max(KEPT * lowest, -BROKEN) if is_interval else KEPT * lowest


def worst_point(
    space: Space,
    tree: dict[str, Any],
    design: Array,
    margins: Array,
    margin: Margin,
    trials: int,
    rng: np.random.Generator,
) -> tuple[Array, float]:
    """The worst point that a random walk from the worst points of a design finds, and its margin.

    Args:
        space: Where to look.
        tree: The base scenario's plain values.
        design: Points of the unit cube, shape [N, keys].
        margins: At those, shape [N]; not a number where the model says nothing.
        margin: Of a scenario.
        trials: How many points to try.
        rng: Of the steps.
    """
    order = np.argsort(np.where(np.isfinite(margins), margins, np.inf), kind="stable")
    best, found = design[order[0]], float(margins[order[0]])
    for start in order[:STARTS]:
        here, lowest = design[start], float(margins[start])
        for trial in range(trials // STARTS):
            width = NEAR * 0.5 ** (6 * trial * STARTS / trials)
            moved = rng.random(len(here)) < max(0.3, 1 / len(here))
            step = np.where(moved, rng.normal(0, width, len(here)), 0.0)
            tried = np.clip(here + step, 0, 1 - 1e-12)
            value = margin(tree_at(tree, space.keys_at(tried), "space"))
            if value < lowest:
                here, lowest = tried, value
        if lowest < found:
            best, found = here, lowest
    return best, found


def simplest_start(
    space: Space,
    tree: dict[str, Any],
    worst: Array,
    design: Array,
    margins: Array,
    margin: Margin,
    limit: float,
    rng: np.random.Generator,
) -> Scenario:
    """What to simplify: a scenario at least as wrong as the limit, with UAVs that stand still if
    there is one, and as few of them as a short search finds; else the worst point.

    A channel that changes makes many a form wrong that assumes it does not; a counterexample
    without that says more.
    """
    scenario = tree_at(tree, space.keys_at(worst), "space")
    if scenario.mobility.model != GAUSS_MARKOV:
        return scenario
    still = _deep(tree)
    for key, value in STANDING.items():
        put(still, key, value, key)
    fixed = [
        key for key in space.keys if key == "seed" or key.startswith(("uavs.tx", "uavs.count"))
    ]
    keys = {key: range_ for key, range_ in space.keys.items() if key not in fixed}
    if keys:
        numbers = Space(keys=keys)
        start = np.random.default_rng(rng).random((SEARCHED, len(keys)))
        for count in range(2, scenario.uavs.count + 1):
            for seed in range(1, PLACED + 1):
                few = _of_count(still, count, scenario.uavs.count) | {"seed": seed}
                found = np.array([margin(tree_at(few, numbers.keys_at(p), "space")) for p in start])
                point, lowest = worst_point(numbers, few, start, found, margin, SEARCHED, rng)
                if lowest <= limit:
                    return tree_at(few, numbers.keys_at(point), "space")
    order = np.argsort(np.where(np.isfinite(margins), margins, np.inf), kind="stable")
    for point in (worst, *design[order[:STILL_TRIED]]):
        standing = tree_at(still, space.keys_at(point), "space")
        if margin(standing) <= limit:
            return standing
    return scenario


def _of_count(tree: dict[str, Any], count: int, of: int) -> dict[str, Any]:
    """So many of a scenario's UAVs, spread evenly over them."""
    chosen = np.linspace(0, of - 1, count).round().astype(int)
    changed = _deep(tree)
    for name, value in changed["uavs"].items():
        if isinstance(value, list) and len(value) == of and name != "rings_m":
            changed["uavs"][name] = [value[k] for k in chosen]
    if "count" in changed["uavs"]:
        changed["uavs"]["count"] = count
    for share in ("alpha", "beta", "rho"):
        changed["allocation"][share] = "equal"
    return changed


def shrunk(scenario: Scenario, margin: Margin, limit: float) -> Scenario:
    """The simplest scenario that is still as wrong as the limit, by greedy simplification."""
    trials = 0
    simpler = True
    while simpler and trials < TRIALS:
        simpler = False
        for tried in _simpler(scenario):
            trials += 1
            if margin(tried) <= limit:
                scenario, simpler = tried, True
                break
    return scenario


def plain(scenario: Scenario) -> dict[str, Any]:
    """What stands in a file of the scenario: what is not at its default."""
    return scenario.model_dump(mode="json", exclude_defaults=True)


def _simpler(scenario: Scenario) -> Iterator[Scenario]:
    """Scenarios that are simpler in one respect, what matters most first."""
    tree = plain(scenario)
    # What was taken away may come back by itself, filled in from other keys.
    return (tried for tried in _reduced(scenario, tree) if plain(tried) != tree)


def _reduced(scenario: Scenario, tree: dict[str, Any]) -> Iterator[Scenario]:
    if scenario.name != "counterexample":
        yield from _valid(tree, {"name": "counterexample"})
    for one in range(scenario.uavs.count - 1, -1, -1):
        yield from _without(tree, one, scenario.uavs.count)
    for fewer in range(1, scenario.workload.local_iterations):
        yield from _valid(tree, {"workload.local_iterations": fewer})
    for key, value in _leaves(tree):
        # Without these it would be another model, or another claim of it.
        if key.startswith(("analytical_models", "paradigm")):
            continue
        if key in {"name", "uavs.tx_power_w", "workload.local_iterations", *STANDING}:
            continue
        yield from _valid(tree, {}, without=key)
        for digits in (1, 2):
            if isinstance(value, float) and (near := float(f"{value:.{digits}g}")) != value:
                yield from _valid(tree, {key: near})
    speeds = scenario.uavs.compute_flops
    if isinstance(speeds, Spread):
        for digits in (1, 2, 3):
            drawn = [float(f"{speed:.{digits}g}") for speed in scenario.fleet.compute_flops]
            yield from _valid(tree, {"uavs.compute_flops": drawn})
    powers = tree["uavs"]["tx_power_w"]
    if isinstance(powers, list) and len(set(powers)) > 1:
        yield from _valid(tree, {"uavs.tx_power_w": [powers[0]] * len(powers)})
    for seed in range(1, min(scenario.seed, 4)):
        yield from _valid(tree, {"seed": seed})


def _valid(tree: dict[str, Any], keys: dict[str, Any], without: str = "") -> Iterator[Scenario]:
    try:
        changed = _without_key(tree, without.split(".")) if without else _deep(tree)
        for key, value in keys.items():
            put(changed, key, value, key)
        yield validate(changed, "simpler")
    except InputError:
        return


def _without(tree: dict[str, Any], one: int, count: int) -> Iterator[Scenario]:
    """The scenario without one of its UAVs."""
    if count == 1:
        return
    changed = _deep(tree)
    for name, value in changed["uavs"].items():
        if isinstance(value, list) and len(value) == count and name != "rings_m":
            changed["uavs"][name] = [each for k, each in enumerate(value) if k != one]
    if "count" in changed["uavs"]:
        changed["uavs"]["count"] = count - 1
    for share in ("alpha", "beta", "rho"):
        changed.get("allocation", {}).pop(share, None)
    yield from _valid(changed, {})


def _leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _without_key(tree: dict[str, Any], path: list[str]) -> dict[str, Any]:
    changed = dict(tree)
    if len(path) == 1:
        del changed[path[0]]
    else:
        inner = _without_key(changed[path[0]], path[1:])
        changed[path[0]] = inner
        if not inner:
            del changed[path[0]]
    return changed


def _deep(tree: dict[str, Any]) -> dict[str, Any]:
    return {k: _deep(v) if isinstance(v, dict) else v for k, v in tree.items()}
