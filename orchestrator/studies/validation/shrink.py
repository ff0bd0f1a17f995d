# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Searches for the worst case from the worst points of a design, and simplifies it.

A counterexample should explain the error: UAVs are stationary if possible, and it has the fewest
UAVs, iterations and keys without default values that still show the error, with round numbers.
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
"""Number of a design's worst points from which the search starts."""
NEAR = 0.15
"""Standard deviation of the first steps, in the unit cube; later steps are smaller."""
STILL_TRIED = 60
"""Number of a design's worst points that are tried with stationary UAVs."""
KEPT_ERROR = 0.5
"""Share of the error that a simplified scenario must still show, for models that give a value."""
LEAST_VIOLATION = 1e-3
"""Relative violation of a bound that a simplified scenario must still show."""
LEAST_ERROR = 1e-4
"""Least relative error of a counterexample."""
SEARCHED = 64
"""Points, and as many steps, that are searched per number of UAVs and placement."""
PLACED = 3
"""Placements that are tried per number of UAVs."""
STATIONARY = {
    "mobility.speed_m_s": [0.0, 0.0],
    "mobility.mean_speed_m_s": 0.0,
    "mobility.speed_deviation_m_s": 0.0,
}
TRIALS = 2000
"""Most simplifications that are tried."""

Margin = Callable[[Scenario], float]


def margin_of(player: Player) -> Margin:
    """A function for the model's margin (`worker.margin`); infinite if it cannot be computed."""

    def margin(scenario: Scenario) -> float:
        try:
            found = player.play(scenario).margin
        except (InputError, RunError):
            return np.inf
        return found if np.isfinite(found) else np.inf

    return margin


def limit_of(lowest: float, is_interval: bool) -> float:
    """The margin that a simplified scenario must not exceed, for a worst case with `lowest`."""
    return max(KEPT_ERROR * lowest, -LEAST_VIOLATION) if is_interval else KEPT_ERROR * lowest


def worst_point(
    space: Space,
    tree: dict[str, Any],
    design: Array,
    margins: Array,
    margin: Margin,
    trials: int,
    rng: np.random.Generator,
) -> tuple[Array, float]:
    """Random walks from a design's worst points; returns the worst point found and its margin.

    Args:
        space: The space.
        tree: The base scenario as JSON values.
        design: Points in the unit cube, shape [N, keys].
        margins: Margins of the design's points, shape [N]; NaN if the model gives no result.
        margin: Computes the margin of a scenario.
        trials: Number of points to try.
        rng: Generator of the steps.
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
    """A scenario to simplify, with a margin of at most the limit.

    If a short search finds one, it has stationary and few UAVs; otherwise it is the worst point.
    Many forms assume a constant channel; a counterexample with a constant channel explains more.
    """
    scenario = tree_at(tree, space.keys_at(worst), "space")
    if scenario.mobility.model != GAUSS_MARKOV:
        return scenario
    still = _deep(tree)
    for key, value in STATIONARY.items():
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
    """A part of a scenario's UAVs, evenly chosen."""
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
    """Simplify a scenario greedily while its margin is at most the limit."""
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
    """The values of a scenario that differ from the defaults, as in its file."""
    return scenario.model_dump(mode="json", exclude_defaults=True)


def _simpler(scenario: Scenario) -> Iterator[Scenario]:
    """Scenarios that are simpler in one respect, the most important respects first."""
    tree = plain(scenario)
    # Removed values may be restored from other keys by validation.
    return (tried for tried in _reduced(scenario, tree) if plain(tried) != tree)


def _reduced(scenario: Scenario, tree: dict[str, Any]) -> Iterator[Scenario]:
    if scenario.name != "counterexample":
        yield from _valid(tree, {"name": "counterexample"})
    for one in range(scenario.uavs.count - 1, -1, -1):
        yield from _without(tree, one, scenario.uavs.count)
    for fewer in range(1, scenario.workload.largest("local_iterations")):
        yield from _valid(tree, {"workload.local_iterations": fewer})
    for key, value in _leaves(tree):
        # Other values of these would change the model or its claim.
        if key.startswith(("analytical_models", "paradigm")):
            continue
        if key in {"name", "uavs.tx_power_w", "workload.local_iterations", *STATIONARY}:
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
