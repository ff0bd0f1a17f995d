# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a round or a whole timeline comes to in numbers, by name.

A metric is a function of a `Timeline` that answers with a number, or with several by name; what
packages register as `testbed.metrics` stands beside what is built in.
"""

from collections.abc import Callable, Mapping
from numbers import Real

import numpy as np

from testbed.core.errors import InputError, RunError
from testbed.core.registry import METRICS, reason
from testbed.core.timeline import Round, S, Timeline
from testbed.core.words import not_one_of

Metric = Callable[[Timeline], float | Mapping[str, float]]


def _mean(of: Callable[[Round], float]) -> Metric:
    return lambda timeline: float(np.mean([of(round_) for round_ in timeline.rounds]))


def iteration_s(round_: Round) -> float:
    """From all server passes of iteration 1 done to all of iteration 2, T_iter of the paper.

    Not a number where there is one iteration, or a client was lost.
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
}
"""Means over the rounds."""
METRICS.add(BUILT_IN)


def base_of(name: str) -> str:
    """The metric that a number is of: `NAME` of `NAME` and of `NAME.PART`.

    Raises:
        InputError: There is none.
    """
    known = METRICS.names()
    for base in (name, name.partition(".")[0]):
        if base in known:
            return base
    raise InputError(not_one_of(name, known))


def metric(name: str, field: str = "metric") -> Metric:
    """The metric of that name.

    Raises:
        InputError: No metric has that name, or it cannot be loaded; the line begins with `field`.
    """
    return METRICS.function(name, field)


def value_of(name: str, function: Metric, timeline: Timeline) -> float:
    """The one number that a metric makes of a timeline.

    Raises:
        RunError: It failed, or answered with something else.
    """
    values = values_of(name, function, timeline)
    if list(values) != [name]:
        raise RunError(f"metric {name!r}: must answer with one number here, not {len(values)}")
    return values[name]


def values_of(name: str, function: Metric, timeline: Timeline) -> dict[str, float]:
    """What a metric makes of a timeline, by name: its own, or `NAME.PART` where it has several.

    Raises:
        RunError: It failed, or answered with no numbers.
    """
    try:
        answer = function(timeline)
    except Exception as error:
        raise RunError(f"metric {name!r}: {reason(error)}") from error
    parts = answer if isinstance(answer, Mapping) else {"": answer}
    if not all(isinstance(value, Real) for value in parts.values()):
        raise RunError(f"metric {name!r}: must answer with numbers, not {answer!r}")
    return {f"{name}.{part}" if part else name: float(value) for part, value in parts.items()}
