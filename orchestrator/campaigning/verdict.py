# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The result of a campaign in a few sentences: the best series, where it is best, and by how much.

A series is a value of the compared axis, e.g. a paradigm. A place is a combination of values of all
other axes. Series are compared at each place, seed by seed. If the 95 % confidence interval of the
difference between the best two contains 0, neither is the best.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from orchestrator.analysis import learned
from orchestrator.analysis.statistics import NEGLIGIBLE, half_width
from orchestrator.campaigning.claims import judge
from orchestrator.campaigning.spec import COLUMNS, Campaign, Study
from orchestrator.campaigning.summary import answers, axis_columns, of_study, samples, titles
from orchestrator.emulated.validity import CHECKS
from orchestrator.reporting.formatting import listed, observed, rounded
from testbed.core.paradigm import title_of

IS_BEST = {
    "latency_s": "is fastest",
    "max_energy_j": "needs the least energy per UAV",
    "objective": "has the lowest objective",
}
"""Verb phrases for the best series, by metric."""
MOST_ITEMS = 4
"""Most values of an axis in a sentence; of more values, their number is given."""


@dataclass(frozen=True)
class Winner:
    """The best series of a metric at one place."""

    place: tuple[Any, ...]
    """Values of the axes except for the compared one."""
    series: str | None
    """Title of the best series; None if the best two do not differ clearly."""
    second: str
    margin: float
    """Relative difference between the best two; for an accuracy the difference itself."""
    is_partial: bool = False
    """Whether some seeds are not compared, because not all series have them."""


def conclusions(campaign: Campaign, points: pd.DataFrame, curves: pd.DataFrame) -> list[str]:
    """Sentences about the results: targets that are reached, then the first of each study, then the
    verdicts on claims.

    Args:
        campaign: The campaign.
        points: Rows of `points.parquet`.
        curves: Rows of `curves.parquet`.
    """
    several = len(campaign.studies) > 1
    found = answers(campaign, curves)
    for name, study in campaign.studies.items():
        for sentence in study_conclusions(study, of_study(name, points))[:1]:
            found.append((f"{study.title or name}: " if several else "") + sentence)
    return found + [judged.sentence for judged in judge(campaign, points)]


def study_conclusions(study: Study, points: pd.DataFrame) -> list[str]:
    """One sentence per metric of a study; none if no point is finished.

    Args:
        study: The study.
        points: Its finished points; measured points that are not valid are not used.
    """
    usable = points[(points["mode"] == "predict") | points["valid"].eq(True)]
    modes = [mode for mode in ("predict", "run", "up") if (usable["mode"] == mode).any()]
    if not modes:
        return []
    axis = series_axis(study, usable)
    found = []
    for metric in _metrics(study, usable):
        by_mode = {mode: usable[usable["mode"] == mode].dropna(subset=[metric]) for mode in modes}
        shown = {mode: part for mode, part in by_mode.items() if len(part)}
        if not shown:
            continue
        mode, part = next(iter(shown.items()))
        if axis is None or part[axis].nunique() < 2:
            found.append(_extremes(study, part, metric))
            continue
        won = list(_winners(study, part, axis, metric))
        if not won:
            continue
        sentence = _who_wins(study, part, axis, metric, won)
        if any(w.is_partial for w in won):
            sentence += " Only seeds that all series have are compared."
        if mode == "predict" and "run" in shown:
            sentence += _confirmed(won, list(_winners(study, shown["run"], axis, metric)))
        found.append(sentence)
    return found


def problems(points: pd.DataFrame, validity: pd.DataFrame) -> list[str]:
    """Sentences about points that are missing, failed or not valid; none if there are none.

    Args:
        points: Rows of `points.parquet`.
        validity: Rows of `validity.parquet`.
    """
    own = points.drop_duplicates("point")
    done = own[own["status"] == "finished"]
    found = []
    invalid = done[~done["valid"].eq(True)]
    if len(invalid):
        failed = validity[validity["point"].isin(invalid["point"]) & ~validity["ok"].eq(True)]
        checks = [
            _failed_check(str(name), part)
            for name, part in failed.drop_duplicates(["point", "check"]).groupby(
                "check", sort=False
            )
        ]
        why = f": {'; '.join(checks)}" if checks else ""
        found.append(f"{_counted(len(invalid), len(own))} not valid{why}.")
    counts = own["status"].value_counts()
    if failed_points := int(counts.get("failed", 0)):
        found.append(f"{failed_points} of {len(own)} points failed.")
    if missing := int(counts.get("missing", 0)):
        found.append(f"{_counted(missing, len(own))} missing.")
    return found


def _failed_check(name: str, part: pd.DataFrame) -> str:
    worst = part.sort_values("value").iloc[-1]
    title = CHECKS[name].title if name in CHECKS else name
    values = f"{observed(worst['value'], name)}, limit {observed(worst['limit'], name)}"
    return f"{title} (worst {values}) in {len(part)} point{'s' * (len(part) > 1)}"


def _counted(count: int, total: int) -> str:
    return f"{count} of {total} points {'is' if count == 1 else 'are'}"


def series_axis(study: Study, points: pd.DataFrame) -> str | None:
    """The axis whose values are compared: that of `compare`, of a plot's lines, or the paradigm."""
    lines = [plot.lines for plot in study.plot if plot.lines is not None]
    wanted = [] if study.compare is None else [study.compare.over]
    wanted += [*lines, "paradigm"]
    columns = axis_columns(study)
    return next((c for c in wanted if c in columns and points[c].nunique() > 1), None)


def _metrics(study: Study, points: pd.DataFrame) -> list[str]:
    """The metrics of sentences: those that are compared or drawn, else the latency.

    The cost of a target is described by the race to the target.
    """
    asked = list(dict.fromkeys(study.shown.values())) or [COLUMNS[0]]
    if study.target is not None:
        asked = [name for name in asked if "_to_" not in name or name not in learned.NAMES]
    return [name for name in asked if name in points and points[name].notna().any()]


def _is_lower_better(metric: str) -> bool:
    return metric in (*COLUMNS, "bytes", *learned.NAMES) and metric not in learned.ACCURACIES


def _winners(study: Study, points: pd.DataFrame, axis: str, metric: str) -> Iterator[Winner]:
    """The best series at each place at which at least two series have values."""
    others = [column for column in axis_columns(study) if column != axis]
    parts = points.groupby(others, sort=False, dropna=False) if others else [((), points)]
    for place, part in parts:
        table = part.pivot_table(index="seed", columns=axis, values=metric, sort=False).dropna(
            axis=1, how="all"
        )
        if table.shape[1] < 2:
            continue
        common = table.dropna()
        is_partial = 0 < len(common) < len(table)
        table = common if len(common) else table
        means = table.mean().sort_values(ascending=_is_lower_better(metric), kind="stable")
        best, second = means.index[:2]
        both = table[[best, second]].dropna()
        gained = (both[best] - both[second]) * (-1 if _is_lower_better(metric) else 1)
        if metric not in learned.ACCURACIES:
            gained = (gained / both[second].abs().replace(0, np.nan)).where(gained != 0, 0.0)
        gained = gained.dropna()
        margin = float(gained.mean()) if len(gained) else float("nan")
        if len(gained):
            clear = margin > NEGLIGIBLE and not margin <= half_width(gained.to_numpy(float))
        else:
            clear = bool(means.iloc[0] != means.iloc[1])
        series = _title(axis, best) if clear else None
        yield Winner(place, series, _title(axis, second), abs(margin), is_partial)


def _title(axis: str, value: Any) -> str:
    return title_of(str(value)) if axis == "paradigm" else f"{axis} = {_plain(value)}"


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, (float, np.floating)) else str(value)


def _who_wins(
    study: Study, points: pd.DataFrame, axis: str, metric: str, won: Sequence[Winner]
) -> str:
    others = [column for column in axis_columns(study) if column != axis]
    count = points[axis].nunique()
    names = list(dict.fromkeys(w.series for w in won if w.series is not None))
    names.sort(key=lambda name: -sum(w.series == name for w in won))
    is_best = IS_BEST.get(metric) or _has(study, metric)
    places = [w.place for w in won]
    clauses: list[str] = []
    for name in names:
        own = [w for w in won if w.series == name]
        than = f" compared with {own[0].second}" if count == 2 else ""
        if not clauses and count > 2:
            than = " compared with the second best"
        by = _span([w.margin for w in own], metric in learned.ACCURACIES)
        where = _where(others, places, [w.place for w in own])
        clauses.append(f"{name} {is_best}{where}" + (f", by {by}{than}" if by else ""))
    ties = [w for w in won if w.series is None]
    if not ties:
        return "; ".join(clauses) + "."
    where = _where(others, places, [w.place for w in ties])
    no_one = f"the best two do not differ clearly{where}"
    if all(w.margin == 0 for w in ties):
        no_one = f"the best two are equal{where}"
    elif by := _span([max(w.margin for w in ties)], metric in learned.ACCURACIES):
        no_one += f" (by at most {by})"
    if clauses:
        return "; ".join([*clauses, no_one]) + "."
    return f"{_subject(study, metric)}: {no_one}."


def _has(study: Study, metric: str) -> str:
    extreme = "lowest" if _is_lower_better(metric) else "highest"
    return f"has the {extreme} {_subject(study, metric, inside=True)}"


def _subject(study: Study, metric: str, *, inside: bool = False) -> str:
    """The title of a metric without its unit."""
    title = titles(study)[metric]
    title = title.rpartition(" (")[0] if title.endswith(")") else title
    return title[:1].lower() + title[1:] if inside else title


def _unit(study: Study, metric: str) -> str:
    title = titles(study)[metric]
    return f" {title.rpartition(' (')[2][:-1]}" if title.endswith(")") else ""


def _span(margins: Sequence[float], is_accuracy: bool) -> str:
    """The range of relative differences in words; empty if none is known."""
    known = [100 * margin for margin in margins if np.isfinite(margin)]
    if not known:
        return ""
    unit = "percentage points" if is_accuracy else "%"
    low, high = map(rounded, (min(known), max(known)))
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"


def _where(axes: Sequence[str], places: Sequence[tuple[Any, ...]], own: Sequence[Any]) -> str:
    """The places of a series in words, with a space before; empty if there is only one place."""
    table = pd.DataFrame(list(places), columns=list(axes))
    varying = [name for name in axes if table[name].nunique() > 1]
    if not varying:
        return ""
    mine = set(own)
    inside = np.array([place in mine for place in places])
    if len(varying) == 1:
        values = list(dict.fromkeys(table[varying[0]]))
        if inside.all():
            return f" at every value of {varying[0]}"
        return f" at {_values(varying[0], values, set(table[varying[0]][inside]))}"
    among = "combinations of " + (
        listed(varying) if len(varying) <= MOST_ITEMS else f"{len(varying)} keys"
    )
    if inside.all():
        return f" at every one of {len(places)} {among}"
    for name in varying:
        chosen = set(table[name][inside])
        if len(chosen) <= MOST_ITEMS and (table[name].isin(chosen).to_numpy() == inside).all():
            rest = listed([other for other in varying if other != name])
            every = list(dict.fromkeys(table[name]))
            return f" at {_values(name, every, chosen)} with every {rest}"
    return f" at {inside.sum()} of {len(places)} {among}"


def _values(axis: str, every: Sequence[Any], chosen: set[Any]) -> str:
    """Values of an axis; three or more that follow each other become a range."""
    if all(isinstance(value, (int, float, np.number)) for value in every):
        every = sorted(every)
    runs: list[list[Any]] = []
    previous = False
    for value in every:
        if value in chosen:
            runs[-1].append(value) if previous else runs.append([value])
        previous = value in chosen
    items = [
        item
        for run in runs
        for item in (
            [f"{_plain(run[0])} to {_plain(run[-1])}"] if len(run) > 2 else map(_plain, run)
        )
    ]
    if len(items) > MOST_ITEMS:
        return f"{len(chosen)} of {len(every)} values of {axis}"
    return f"{axis} = {listed(items)}"


def _extremes(study: Study, points: pd.DataFrame, metric: str) -> str:
    """The lowest and the highest mean of a study with one series."""
    columns = [name for name in axis_columns(study) if points[name].nunique() > 1]
    subject, unit = _subject(study, metric), _unit(study, metric)
    if not columns:
        seeds = points["seed"].nunique()
        of = "equal in all" if samples(points[[metric]]) == 1 else "mean over"
        of = f" ({of} {seeds} seeds)" if seeds > 1 else ""
        return f"{subject}: {points[metric].mean():.4g}{unit}{of}."
    means = points.groupby(columns, sort=False, as_index=False)[metric].mean()
    low, high = (means.iloc[at] for at in (means[metric].argmin(), means[metric].argmax()))
    least, most = (f"{row[metric]:.4g}{unit}" for row in (low, high))
    if high[metric] - low[metric] <= NEGLIGIBLE * abs(high[metric]):
        return f"{subject} is {least} everywhere: the axes have no influence."
    where = (", ".join(_title(name, row[name]) for name in columns) for row in (low, high))
    return f"{subject} is lowest at {next(where)} ({least}) and highest at {next(where)} ({most})."


def _confirmed(predicted: Sequence[Winner], measured: Sequence[Winner]) -> str:
    """A sentence about measured places that have the same best series as the prediction."""
    expected = {w.place: w.series for w in predicted}
    both = [w for w in measured if expected.get(w.place) is not None]
    if not both:
        return ""
    same = sum(w.series == expected[w.place] for w in both)
    return f" The emulation confirms the best series in {same} of {len(both)} comparisons."
