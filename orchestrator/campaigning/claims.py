# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Verdicts on the claims of a campaign, from the points of its seeds.

The two cells of a claim are compared seed by seed: by their relative difference, or for accuracies
by the difference itself. A claim holds if the 95 % confidence interval of the mean difference
(Student's t) has the claimed direction, and the mean has the claimed size; or for cells that are
claimed to be equal, if the whole interval is within the claimed size. It is weaker if only the mean
has the claimed direction, or is within the size; or if some seeds have no difference, because a
target was not reached. Otherwise, it does not hold.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from orchestrator.analysis import learned
from orchestrator.analysis.axes import Label
from orchestrator.analysis.statistics import NEGLIGIBLE, Interval, mean_of
from orchestrator.campaigning.spec import Campaign, Claim, Study
from orchestrator.campaigning.summary import of_study, titles
from orchestrator.reporting.formatting import percent

Verdict = Literal["holds", "weaker", "does not hold", "not judged"]


@dataclass(frozen=True)
class Judged:
    """A claim and its verdict."""

    study: str
    claim: Claim
    title: str
    """Title of its column, without the unit."""
    difference: Interval
    """Mean difference of `cell` from `than`; a fraction."""
    seeds: int
    """Number of seeds with a difference."""
    of: int
    """Number of seeds."""

    @property
    def verdict(self) -> Verdict:
        """The verdict, see the module."""
        if not self.seeds:
            return "not judged"
        mean, low, high = self.difference.value, self.difference.low, self.difference.high
        if self.seeds > 1 and not self.difference.exists:  # It is the same in all seeds.
            low = high = mean
        by = self.claim.by
        if self.claim.expect == "equal":
            right, clear = abs(mean) <= by, -by <= low and high <= by
        else:
            mean, low = (mean, low) if self.claim.expect == "higher" else (-mean, -high)
            right, clear = mean > NEGLIGIBLE, low > 0 and mean >= by
        if right and clear and self.seeds == self.of:
            return "holds"
        return "weaker" if right else "does not hold"

    @property
    def shown(self) -> str:
        """The difference with its interval and the number of seeds, in words."""
        if not self.seeds:
            return f"no seed of {self.of} has both values"

        def size(value: float) -> str:
            if self._of_accuracy:
                return f"{100 * value:+.1f}".replace("-", "−")
            return percent(value)

        ends = (size(end).removesuffix(" %") for end in (self.difference.low, self.difference.high))
        unit = " percentage points" if self._of_accuracy else ""
        mean = size(self.difference.value) + unit
        seeds = f"{self.seeds} {'' if self.seeds == self.of else f'of {self.of} '}seeds"
        if self.difference.exists:
            return f"{mean} ({' to '.join(ends)}), {seeds}"
        return f"{mean} in each of {seeds}" if self.seeds > 1 else f"{mean} in {seeds}"

    @property
    def wanted(self) -> str:
        """What is claimed, in words."""
        by = self.claim.by
        size = f"{100 * by:g} {'percentage points' if self._of_accuracy else '%'}"
        if self.claim.expect == "equal":
            return f"equal within {size}"
        return self.claim.expect + (f" by {size}" if by else "")

    @property
    def _of_accuracy(self) -> bool:
        return self.claim.of in learned.ACCURACIES

    @property
    def sentence(self) -> str:
        """The claim, its verdict and the difference."""
        source = f" ({self.claim.source})" if self.claim.source else ""
        return f"{self.claim.says}{source}: {self.verdict}. {self.title}: {self.shown}."

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {
            "study": self.study,
            **self.claim.model_dump(mode="json"),
            "verdict": self.verdict,
            "difference": self.difference.to_json(),
            "seeds": self.seeds,
            "of_seeds": self.of,
        }


def judge(campaign: Campaign, points: pd.DataFrame) -> list[Judged]:
    """The verdicts on all claims, in the order of the file.

    Args:
        campaign: The campaign.
        points: Rows of `points.parquet`; measured points that are not valid are not used.
    """
    usable = points[(points["mode"] == "predict") | points["valid"].eq(True)]
    return [
        _judged(name, study, claim, of_study(name, usable))
        for name, study in campaign.studies.items()
        for claim in study.claims
    ]


def _judged(name: str, study: Study, claim: Claim, points: pd.DataFrame) -> Judged:
    # Emulated cells are fewer and have fewer rounds: they count only without predictions.
    mode = next((m for m in ("predict", "run", "up") if (points["mode"] == m).any()), "predict")
    own = points[points["mode"] == mode]
    value, other = (_values(own, cell, claim.of) for cell in (claim.cell, claim.than))
    difference = value - other
    if claim.of not in learned.ACCURACIES:
        difference /= other
    known = difference[np.isfinite(difference)]
    title = titles(study)[claim.of]
    return Judged(
        name,
        claim,
        title.rpartition(" (")[0] if title.endswith(")") else title,
        mean_of(np.array(known, float)),
        len(known),
        len(difference),
    )


def _values(points: pd.DataFrame, cell: dict[str, Label], column: str) -> "pd.Series[float]":
    """By seed: the column of a cell."""
    for name, label in cell.items():
        same = str(label) if pd.api.types.is_string_dtype(points[name]) else label
        points = points[points[name] == same]
    return points.set_index("seed")[column].astype(float)
