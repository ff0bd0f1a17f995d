# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The paper's statements on figures 3 to 7, each with a measurement and thresholds for a verdict.

A statement `holds`, is `weaker` (the direction is right, the size is not), or `fails`. Where the
paper gives no number, the size is judged by what Shannon's rates, the paper's radio, give here.
It is `not judged` where there is no value, because rounds do not end.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from scipy import stats

from orchestrator.studies.paper_figures import Outcomes, upload_times
from testbed.core.timeline import CB, CF, SG, Round, S

Verdict = Literal["holds", "weaker", "fails", "not judged"]

SAME = 0.5
"""Differences below this count as none, in per cent or percentage points."""
EQUAL = 0.05
"""By how many per cent CPSFL must be below every other paradigm to have the lowest latency."""
PAPER_OBJECTIVE = 122.3
"""The paper's objective with fixed shares and I = 5."""
PART = 0.5
"""The part of Shannon's value from which a statement without a number holds."""


@dataclass(frozen=True)
class Statement:
    """A statement of the paper on a figure."""

    figure: str
    text: str
    paper: str
    """The size according to the paper."""
    quantity: str
    """The measured quantity, with its unit."""
    measure: Callable[[Any], float]
    """The value, from the outcomes of a figure's study, or from the rounds of figure 3."""
    holds: float | None
    """Value from which the statement holds; None: `PART` of Shannon's value."""
    weaker: float
    """Value from which it is weaker. If it is above `holds`, then small values are the good ones.
    """
    digits: int = 1

    def threshold(self, shannon: float) -> float:
        """The value from which the statement holds.

        Args:
            shannon: The value with Shannon's rates.
        """
        return max(PART * shannon, self.weaker) if self.holds is None else self.holds

    def judge(self, value: float, shannon: float) -> Verdict:
        """The verdict for a value.

        Args:
            value: The measured value; NaN: there is none.
            shannon: The value with Shannon's rates.
        """
        if math.isnan(value):
            return "not judged"
        holds = self.threshold(shannon)
        sign = -1 if holds < self.weaker else 1
        if sign * value >= sign * holds:
            return "holds"
        return "weaker" if sign * value >= sign * self.weaker else "fails"

    def rule(self, shannon: float) -> str:
        """The thresholds in words; see `judge`."""
        holds = self.threshold(shannon)
        word = "up to" if holds < self.weaker else "from"
        half = " (half of Shannon's)" if self.holds is None and holds > self.weaker else ""
        weaker = f"; weaker {word} {self.shown(self.weaker)}" if holds != self.weaker else ""
        return f"holds {word} {self.shown(holds)}{half}{weaker}"

    def shown(self, value: float) -> str:
        """The value, rounded; a small one has two digits, and NaN is empty."""
        if math.isnan(value):
            return ""
        digits = self.digits
        if 0 < abs(value) < 10**-digits:
            digits = 2
        text = f"{value:.{digits}f}".replace("-", "−")
        if float(text.replace("−", "-")) == 0:
            text = text.lstrip("−")
        return text


# --- measurements --------------------------------------------------------------------------------


def _saving(than: str, x: float) -> Callable[[Outcomes], float]:
    """By how many per cent CPSFL's latency is below another paradigm's at a tick."""
    return lambda o: 100 * float(o.saving(than, x).mean())


def _least_saving(o: Outcomes) -> float:
    """By how many per cent CPSFL's latency is below the best other one, at its worst tick."""
    others = [name for name in o.paradigms if name != "cpsfl"]
    return 100 * min(1 - o.mean("cpsfl", x) / o.mean(name, x) for name in others for x in o.ticks)


def _least_change(sign: int) -> Callable[[Outcomes], float]:
    """The least relative rise (1) or fall (-1) from tick to tick of any paradigm, in per cent."""
    return lambda o: (
        100
        * min(
            sign * (after / before - 1)
            for name in o.paradigms
            for before, after in pairwise(o.over_ticks(name))
        )
    )


def _growth(than: str, sign: int = 1) -> Callable[[Outcomes], float]:
    """The rise (1) or fall (-1) of CPSFL's saving over all ticks, in percentage points.

    It is that of a straight line fitted to the savings at all ticks, at equal distances.
    """

    def measure(o: Outcomes) -> float:
        savings = o.savings(than).mean(axis=1)
        slope = stats.linregress(range(len(savings)), savings).slope
        return 100 * sign * float(slope) * (len(savings) - 1)

    return measure


def _best_split(o: Outcomes) -> float:
    """By how many per cent CPSFL's objective at u = 2 is below that of the best other split."""
    objectives = dict(zip(o.ticks, o.over_ticks("cpsfl", "objective"), strict=True))
    return 100 * float(1 - objectives.pop(2) / min(objectives.values()))


# Upload times are those of SFL-PP, whose UAVs send at the same time: in the other paradigms, an
# upload over a shared band takes less time while fewer UAVs send.


def _unevenness(o: Outcomes) -> float:
    """The longest upload time of a UAV of cluster 1 over the shortest."""
    times_s = upload_times(o, 1, "sfl-pp")
    return float(times_s.max() / times_s.min())


def _last_two(o: Outcomes) -> float:
    """The upload time of the last two UAVs of cluster 5 over that of the others."""
    times_s = upload_times(o, 5, "sfl-pp")
    return float(times_s[-2:].mean() / times_s[:-2].mean())


def _linearity(o: Outcomes) -> float:
    """The least coefficient of determination of a paradigm's latencies over I."""
    return min(float(stats.linregress(o.ticks, o.over_ticks(p)).rvalue) ** 2 for p in o.paradigms)


def _by_paradigm(rounds: Sequence[Round]) -> dict[str, Round]:
    return {round_.paradigm: round_ for round_ in rounds}


def _round_saving(name: str, than: Sequence[str]) -> Callable[[Sequence[Round]], float]:
    """By how many per cent a paradigm's round is shorter than the shortest of others."""

    def measure(rounds: Sequence[Round]) -> float:
        latency_s = {p: round_.latency_s for p, round_ in _by_paradigm(rounds).items()}
        return 100 * (1 - latency_s[name] / min(latency_s[other] for other in than))

    return measure


def _computing(rounds: Sequence[Round]) -> float:
    """The largest part of a round that a UAV and the server compute for it, mean over UAVs."""
    parts = []
    for round_ in rounds:
        spans = round_.spans[np.isin(round_.spans["step"], (CF, S, CB))]
        computing_s = (spans["end_s"] - spans["start_s"]).sum() / len(round_.clients)
        parts.append(computing_s / round_.latency_s)
    return 100 * float(max(parts))


def _gradient_time(rounds: Sequence[Round]) -> float:
    """The mean time of a gradient's transmission in CPSFL, relative to PipeSFL's."""
    means = {}
    for name, round_ in _by_paradigm(rounds).items():
        spans = round_.spans[round_.spans["step"] == SG]
        means[name] = (spans["end_s"] - spans["start_s"]).mean()
    return float(means["cpsfl"] / means["pipesfl"])


def _lowest(figure: str) -> Statement:
    return Statement(
        figure,
        "CPSFL has the lowest latency of all paradigms",
        "everywhere",
        "least latency below the best other, %",
        _least_saving,
        EQUAL,
        -SAME,
    )


STATEMENTS: tuple[Statement, ...] = (
    Statement(
        "fig3",
        "PipeSFL improves little on SFL-PP",
        "limited",
        "latency below SFL-PP's, %",
        _round_saving("pipesfl", ["sfl-pp"]),
        5,
        10,
    ),
    Statement(
        "fig3",
        "CPSFL is faster than SFL-PP and PipeSFL",
        "further lower",
        "latency below the better of them, %",
        _round_saving("cpsfl", ["sfl-pp", "pipesfl"]),
        None,
        SAME,
    ),
    Statement(
        "fig3",
        "Communication dominates the round, and computing is short",
        "relatively small",
        "computing of a UAV and of the server for it, % of the round",
        _computing,
        10,
        50,
    ),
    Statement(
        "fig3",
        "With the whole downlink for one gradient, its transmission is much shorter",
        "significantly",
        "time relative to PipeSFL's",
        _gradient_time,
        0.5,
        0.95,
        2,
    ),
    Statement(
        "fig4",
        "CPSFL's latency is more than 30 % below PipeSFL's at u = 2",
        "over 30 %",
        "latency below PipeSFL's, %",
        _saving("pipesfl", 2),
        30,
        SAME,
    ),
    Statement(
        "fig4",
        "Latency falls as u grows, for every paradigm",
        "all schemes",
        "least fall from u to u + 1, %",
        _least_change(-1),
        SAME,
        -SAME,
    ),
    _lowest("fig4"),
    Statement(
        "fig4",
        "The gain over PipeSFL is larger for smaller u",
        "more pronounced",
        "growth from u = 4 to 1, percentage points",
        _growth("pipesfl", -1),
        None,
        SAME,
    ),
    Statement(
        "fig4",
        "Asynchronous training lowers CPSFL's latency",
        "lower",
        "latency below CPSFL w/o AT at u = 2, %",
        _saving("cpsfl-no-at", 2),
        None,
        SAME,
    ),
    Statement(
        "fig4",
        "Priority scheduling lowers CPSFL's latency",
        "lower",
        "latency below CPSFL w/o PS at u = 2, %",
        _saving("cpsfl-no-ps", 2),
        None,
        SAME,
    ),
    Statement(
        "fig4",
        "u = 2 is the best fixed split point by the objective",
        "best, figure 8",
        "objective below the next best, equal shares, %",
        _best_split,
        0,
        -5,
    ),
    Statement(
        "fig5",
        "The uploads of all UAVs of cluster 1 take equal times",
        "nearly identical",
        "longest over shortest",
        _unevenness,
        1.15,
        1.3,
        2,
    ),
    Statement(
        "fig5",
        "The uploads of the last two UAVs of cluster 5 take longer",
        "nearly 1.5 times",
        "their time over that of the others",
        _last_two,
        1.35,
        1.05,
        2,
    ),
    _lowest("fig5"),
    Statement(
        "fig5",
        "The gain from priority scheduling grows with heterogeneity",
        "basically grows",
        "growth from cluster 1 to 5, percentage points",
        _growth("cpsfl-no-ps"),
        None,
        SAME,
    ),
    Statement(
        "fig5",
        "The gain over PipeSFL grows with heterogeneity",
        "basically grows",
        "growth from cluster 1 to 5, percentage points",
        _growth("pipesfl"),
        None,
        SAME,
    ),
    Statement(
        "fig6",
        "Latency grows linearly with I",
        "approximately",
        "least R² of a straight line",
        _linearity,
        0.99,
        0.95,
        3,
    ),
    _lowest("fig6"),
    Statement(
        "fig6",
        "The gain over PipeSFL grows with I",
        "slightly",
        "growth from I = 1 to 6, percentage points",
        _growth("pipesfl"),
        None,
        SAME,
    ),
    Statement(
        "fig6",
        "The objective of CPSFL with fixed shares is 122.3",
        "122.3, figure 8",
        "objective at I = 5, u = 2",
        lambda o: o.mean("cpsfl", 5, "objective"),
        PAPER_OBJECTIVE * 1.02,
        PAPER_OBJECTIVE * 1.5,
    ),
    Statement(
        "fig7",
        "Latency rises with K, for every paradigm",
        "increases",
        "least rise from one K to the next, %",
        _least_change(1),
        SAME,
        -SAME,
    ),
    _lowest("fig7"),
    Statement(
        "fig7",
        "The gain over PipeSFL grows with K",
        "slightly",
        "growth from K = 6 to 18, percentage points",
        _growth("pipesfl"),
        None,
        SAME,
    ),
)
"""In the paper's order."""

FIGURES = tuple(dict.fromkeys(statement.figure for statement in STATEMENTS))
