# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How evenly a trained model serves clients and classes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Fairness:
    """Spread of an accuracy over clients."""

    mean: float
    deviation: float
    """Standard deviation over the clients."""
    worst: float
    worst_tenth: float
    """Mean of the tenth of the clients with the lowest accuracy, at least one client."""
    best: float
    jain: float
    """Jain's index, (Σ a)² / (K Σ a²): 1 if all clients have the same accuracy, 1 / K if only one
    client has any (Jain, Chiu and Hawe, 1984)."""

    @classmethod
    def of(cls, accuracies: Sequence[float] | Values) -> "Fairness | None":
        """The spread of the accuracies that are finite; None if there are none."""
        values = np.sort(np.asarray(accuracies, float))
        values = values[np.isfinite(values)]
        if not len(values):
            return None
        squares = float(len(values) * (values**2).sum())
        return cls(
            mean=float(values.mean()),
            deviation=float(values.std()),
            worst=float(values[0]),
            worst_tenth=float(values[: max(1, len(values) // 10)].mean()),
            best=float(values[-1]),
            jain=float(values.sum()) ** 2 / squares if squares else 1.0,
        )


def recalls(confusion: npt.NDArray[np.int64]) -> Values:
    """By class: the share of its samples that are recognised, shape [classes]; NaN without samples.

    Args:
        confusion: Samples by class and predicted class, shape [classes, classes].
    """
    totals = confusion.sum(axis=1)
    with np.errstate(invalid="ignore"):
        return np.diag(confusion) / np.where(totals, totals, np.nan)


def by_classes(recall: Values, held: Sequence[tuple[int, int]]) -> float:
    """Accuracy on held-out data whose classes are as frequent as those of a client's samples.

    Classes without held-out samples do not count; NaN if no others remain.

    Args:
        recall: A result of `recalls`.
        held: Pairs of a class and the client's number of samples of it.
    """
    known = [(recall[k], n) for k, n in held if 0 <= k < len(recall) and np.isfinite(recall[k])]
    total = sum(n for _, n in known)
    return float(sum(share * n for share, n in known) / total) if total else float("nan")
