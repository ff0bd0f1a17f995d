# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Metrics of timelines by name.

A metric is a function of a `Timeline` that returns a number, or several numbers by name. Plug-ins
register more metrics as `testbed.metrics`.
"""

from collections.abc import Callable, Mapping
from numbers import Real

import numpy as np

from testbed.core.errors import InputError, RunError
from testbed.core.registry import METRICS, failures
from testbed.core.timeline import Round, S, Timeline
from testbed.core.words import not_one_of

Metric = Callable[[Timeline], float | Mapping[str, float]]


def _mean(of: Callable[[Round], float]) -> Metric:
    return lambda timeline: float(np.mean([of(round_) for round_ in timeline.rounds]))


def iteration_s(round_: Round) -> float:
    """T_iter of the paper: time between the last server passes of iterations 1 and 2, s.

    NaN if there is one iteration, or a client was lost.
    """
    computed = round_.spans[round_.spans["step"] == S]
    first, second = (computed["end_s"][computed["iteration"] == i] for i in (1, 2))
    if not first.size or not second.size:
        return np.nan
    return float(second.max() - first.max())


BUILT_IN: dict[str, Metric] = {
    "latency_s": _mean(lambda round_: round_.latency_s),
    "max_energy_j": _mean(lambda round_: float(round_.energy_j.max())),
    "objective": _mean(lambda round_: round_.objective),
    "iteration_s": _mean(iteration_s),
    "bytes": _mean(lambda round_: float(round_.spans["bytes"].sum())),
}
"""Means over the rounds; bytes are the payload of all transfers."""
METRICS.add(BUILT_IN)


def base_of(name: str) -> str:
    """The metric of a number's name: `NAME` for both `NAME` and `NAME.PART`.

    Raises:
        InputError: There is no such metric.
    """
    known = METRICS.names()
    for base in (name, name.partition(".")[0]):
        if base in known:
            return base
    raise InputError(not_one_of(name, known))


def metric(name: str, field: str = "metric") -> Metric:
    """The metric with a name.

    Raises:
        InputError: The metric is unknown or cannot be loaded; the message begins with `field`.
    """
    return METRICS.function(name, field)


def value_of(name: str, function: Metric, timeline: Timeline) -> float:
    """The value of a metric that returns one number.

    Raises:
        RunError: The metric failed, or did not return one number.
    """
    values = values_of(name, function, timeline)
    if list(values) != [name]:
        raise RunError(f"metric {name!r}: must return one number here, not {len(values)}")
    return values[name]


def values_of(name: str, function: Metric, timeline: Timeline) -> dict[str, float]:
    """The values of a metric by name: its own, or `NAME.PART` if it returns several numbers.

    Raises:
        RunError: The metric failed, or did not return numbers.
    """
    with failures(f"metric {name!r}"):
        answer = function(timeline)
    parts = answer if isinstance(answer, Mapping) else {"": answer}
    if not all(isinstance(value, Real) for value in parts.values()):
        raise RunError(f"metric {name!r}: must return numbers, not {answer!r}")
    return {f"{name}.{part}" if part else name: float(value) for part, value in parts.items()}
