# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Statistics of comparisons: confidence intervals of means, and which differences count."""

import numpy as np
from scipy import stats

from orchestrator.engine.plan import Array

NEGLIGIBLE = 1e-4
"""Relative difference below which two means are regarded as equal."""


def half_width(values: Array) -> float:
    """Half width of the mean's 95 % confidence interval (Student's t); NaN for a single value."""
    if len(values) < 2:
        return float("nan")
    spread = values.std(ddof=1) / np.sqrt(len(values))
    return float(stats.t.ppf(0.975, len(values) - 1) * spread)
