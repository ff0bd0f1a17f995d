# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The result of a comparison in a few sentences: the fastest result, by how much, and why.

The time of a round is attributed to the steps of the client that finishes last, since this client
determines the latency. Time in which it has no step is waiting time.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from orchestrator.analysis.statistics import NEGLIGIBLE
from orchestrator.records.comparison import Comparison
from orchestrator.reporting.formatting import listed, percent
from orchestrator.reporting.legend import STEP_TITLES
from testbed.core.timeline import STEPS, Round

WAITING = "waiting"
"""Column of the time in which the last client has no step."""
MOST_KEYS = 3
"""Most keys that are named; if more keys differ, their number is given."""
MAIN_SHARE = 0.1
"""Share of the largest contribution below which a step is not mentioned."""


def verdict(comparison: Comparison) -> list[str]:
    """Sentences about the latency, its causes, the throughput of sessions, inputs and validity."""
    found = []
    if comparison.results:
        found += _latency(comparison)
    if comparison.played:
        found += _sessions(comparison)
    count = len(comparison.results) + len(comparison.played)
    if count > 1:
        found.append(_inputs(comparison))
    return found


def invalid(comparison: Comparison) -> list[str]:
    """Names of the results and sessions that are not valid."""
    names = [
        name
        for name, result in zip(comparison.labels, comparison.results, strict=True)
        if result.valid is False
    ]
    return names + [session.name for session in comparison.played if not session.valid]


def last_client(comparison: Comparison) -> pd.DataFrame:
    """Time of the client that finishes last, by step, mean over the common rounds, s.

    Returns:
        Index run; columns: steps that any result has, and `WAITING`. Rows add up to the latencies.
    """
    common = comparison.common_rounds
    rows = []
    for result in comparison.results:
        rounds = [r for r in result.timeline if r.index in common] or list(result.timeline)
        parts = [_parts(each) for each in rounds] or [[0.0] * (len(STEPS) + 1)]
        rows.append(np.mean(parts, axis=0))
    index = pd.Index(comparison.labels, name="run")
    table = pd.DataFrame(rows, index=index, columns=[*STEPS, WAITING])
    return table.loc[:, (table != 0).any(axis=0)]


def _parts(round_: Round) -> list[float]:
    """Seconds of a round by step of its last client, and waiting; overlapping steps count once."""
    seconds = dict.fromkeys(range(len(STEPS)), 0.0)
    spans = round_.spans
    if len(spans):
        last = spans["client"][spans["end_s"].argmax()]
        reached = round_.start_s
        for span in spans[spans["client"] == last]:
            until = min(float(span["end_s"]), round_.start_s + round_.latency_s)
            begin = max(float(span["start_s"]), reached)
            seconds[int(span["step"])] += max(0.0, until - begin)
            reached = max(reached, until)
    waiting = round_.latency_s - sum(seconds.values())
    return [*seconds.values(), waiting if abs(waiting) > 1e-9 else 0.0]


def _latency(comparison: Comparison) -> list[str]:
    if comparison.has_repeats:
        return _over_seeds(comparison)
    results = comparison.results
    common = comparison.common_rounds
    means = [
        pd.Series(
            [r.latency_s for r in result.timeline if not common or r.index in common], dtype=float
        ).mean()
        for result in results
    ]
    order = sorted((k for k in range(len(results)) if means[k] == means[k]), key=means.__getitem__)
    if not order:
        return ["No result has a finished round."]
    best, worst = order[0], order[-1]
    labels = comparison.labels
    if len(order) == 1:
        error = comparison.table["error"].iloc[best]
        against = f", {percent(error)} from the prediction" if np.isfinite(error) else ""
        return [f"A round of {labels[best]} takes {means[best]:.3f} s on average{against}."]
    over = _rounds(comparison)
    if means[worst] - means[best] <= NEGLIGIBLE * means[worst]:
        return [f"All results have the same latency per round: {means[best]:.3f} s.", *over]
    second = order[1]
    other = second
    if means[second] - means[best] <= NEGLIGIBLE * means[second]:
        other = worst
        equal = [labels[k] for k in order if means[k] - means[best] <= NEGLIGIBLE * means[k]]
        sentence = f"{listed(equal)} are equally fast: {means[best]:.3f} s per round."
    else:
        rank = "the fastest" if len(order) > 2 else "faster"
        sentence = (
            f"{labels[best]} is {rank}: a round takes {means[best]:.3f} s on average, "
            f"{percent(1 - means[best] / means[second], sign=False)} less than with "
            f"{labels[second]} ({means[second]:.3f} s)."
        )
    if len(order) > 2:
        sentence += f" {labels[worst]} is the slowest ({means[worst]:.3f} s)."
    return [sentence, *_causes(comparison, {labels[best]: [best]}, {labels[other]: [other]}), *over]


def _rounds(comparison: Comparison) -> list[str]:
    """A sentence about the rounds of the means, if they are not all rounds of all results."""
    common = comparison.common_rounds
    if not common:
        return ["The results have no round in common. Each mean is over the result's own rounds."]
    if any(len(result.timeline.rounds) > len(common) for result in comparison.results):
        what = "one round" if len(common) == 1 else f"{len(common)} rounds"
        return [f"Means are over the {what} that all results have."]
    return []


def _over_seeds(comparison: Comparison) -> list[str]:
    """Sentences about schemes of which some have several seeds, from `Comparison.by_scheme`."""
    table = comparison.by_scheme
    if table.empty:
        return ["No result has a finished round."]
    best, worst = table.iloc[0], table.iloc[-1]
    seeds, count = best["seeds"], len(best["seeds"])
    is_paired = len(table) > 1 and all(own == seeds for own in table["seeds"])
    over = "in the one seed that all have" if count == 1 else f"means over {count} seeds"
    if len(table) == 1:
        half = best["ci95_s"]
        interval = f" ± {half:.3f} s" if np.isfinite(half) else " s"
        where = f"(mean over {count} seeds)" if count > 1 else ""
        return [f"A round of {best['name']} takes {best['latency_s']:.3f}{interval} {where}."]
    second = table.iloc[1]
    notes = [
        f"seed {listed(map(str, row['left_out']))} of {row['name']}"
        for row in table.to_dict("records")
        if row["left_out"]
    ]
    rest = [f"Not compared, because the others lack it: {listed(notes)}."] if notes else []
    if not is_paired:
        rest = ["The results have no seed in common, so that the means are of different draws."]
        over = "means over each one's own seeds"
    saved, half = second["saved"], second["saved_ci95"]
    interval = f" ± {percent(half, sign=False)}" if np.isfinite(half) else ""
    values = f"{best['latency_s']:.3f} s and {second['latency_s']:.3f} s"
    causes: list[str] = []
    if table["saved"].max() <= NEGLIGIBLE:
        sentence = f"All have the same latency per round: {best['latency_s']:.3f} s ({over})."
    elif saved <= NEGLIGIBLE or saved <= half:
        how = "are equally fast" if saved <= NEGLIGIBLE else "do not differ clearly"
        by = "" if saved <= NEGLIGIBLE else f"; difference {percent(saved, sign=False)}{interval}"
        sentence = f"{best['name']} and {second['name']} {how}: {values} per round ({over}{by})."
    else:
        rank = "the fastest" if len(table) > 2 else "faster"
        sentence = (
            f"{best['name']} is {rank}: a round takes {best['latency_s']:.3f} s on average, "
            f"{percent(saved, sign=False)}{interval} less than with {second['name']} "
            f"({second['latency_s']:.3f} s), {over}."
        )
        members = {scheme.name: scheme.members for scheme in comparison.schemes}
        chosen = [
            {row["name"]: [members[row["name"]][seed] for seed in row["seeds"]]}
            for row in (best, second)
        ]
        causes = _causes(comparison, *chosen)
    if len(table) > 2 and table["saved"].max() > NEGLIGIBLE:
        sentence += f" {worst['name']} is the slowest ({worst['latency_s']:.3f} s)."
    return [sentence, *causes, *rest, *_rounds(comparison)]


def _causes(
    comparison: Comparison, best: Mapping[str, list[int]], other: Mapping[str, list[int]]
) -> list[str]:
    """A sentence about the steps that make the difference between two schemes.

    Args:
        comparison: The comparison.
        best: The name of a scheme, with the numbers of its results, over which the mean is.
        other: The scheme that it is compared with.
    """
    table = last_client(comparison)
    ((mine, of_best),), ((its, of_other),) = best.items(), other.items()
    saved = table.iloc[of_other].mean() - table.iloc[of_best].mean()
    main = saved[saved.abs() >= MAIN_SHARE * saved.abs().max()]
    main = main.reindex(main.abs().sort_values(ascending=False).index)[:3]
    if not main.abs().max() > 0:
        return []
    parts = [
        f"{abs(value):.3f} s {'less' if value > 0 else 'more'} on "
        + (WAITING if step == WAITING else f"{step} ({STEP_TITLES[str(step)]})")
        for step, value in main.items()
    ]
    return [
        f"Compared with {its}, the UAV that finishes last in a round of {mine} spends "
        f"{listed(parts)}."
    ]


def _sessions(comparison: Comparison) -> list[str]:
    table = comparison.sessions
    found = []
    for direction, own in table.groupby("direction", sort=False):
        links = {"up": "uplinks", "down": "downlinks"}.get(str(direction), str(direction))
        ordered = own.sort_values("carried_mbps", ascending=False, kind="stable")
        first = ordered.iloc[0]
        if len(ordered) == 1:
            share = first["share"]
            of = f", {percent(share, sign=False)} of the capacity" if np.isfinite(share) else ""
            found.append(
                f"The {links} of {first['run']} carry {first['carried_mbps']:.3f} Mb/s{of}."
            )
            continue
        second = ordered.iloc[1]
        if first["carried_mbps"] - second["carried_mbps"] <= NEGLIGIBLE * first["carried_mbps"]:
            found.append(f"The {links} carry the same: {first['carried_mbps']:.3f} Mb/s.")
            continue
        found.append(
            f"{first['run']} has the highest throughput on the {links}: "
            f"{first['carried_mbps']:.3f} Mb/s, compared with {second['carried_mbps']:.3f} Mb/s of "
            f"{second['run']}."
        )
    return found


def _inputs(comparison: Comparison) -> str:
    keys = [key for key in comparison.differing if key != "name"]
    if any(result.scenario is None for result in comparison.results):
        return "At least one result has no scenario, so that the inputs cannot be compared."
    if not keys:
        return "The scenarios are equal."
    if len(keys) <= MOST_KEYS:
        return f"The scenarios differ in {listed(keys)}."
    return f"The scenarios differ in {len(keys)} keys, see the section Differences."
