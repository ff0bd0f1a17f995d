# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Analytical models by name: the paper's equations, and those of plug-ins.

A model is a function of a round's plan, the radio, the gains [K, S] from the round's start on, the
length of a slot, and its own keyword parameters. It returns the round's latency in s, an interval
that contains it, seconds by step whose sum it is, or None if it does not apply to such a round.

The meaning of an equation depends on the paradigm: τ2 is the latency of CPSFL w/o AT and, according
to the paper, an upper bound of CPSFL. `EQUATIONS` lists these claims.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, NamedTuple

from ns3_scenarios.trace import SlotValues, both_ways
from orchestrator.analytical import closed_forms as theory
from orchestrator.analytical.closed_forms import Durations
from orchestrator.analytical.queueing import queueing_s
from orchestrator.engine.access import RadioAccess
from orchestrator.engine.plan import RoundPlan
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError, RunError
from testbed.core.paradigm import BUILT_IN, Paradigm
from testbed.core.registry import ANALYTICAL_MODELS, failures
from testbed.core.timeline import STEPS
from testbed.core.words import not_one_of

FIELD = "analytical_models"


class Interval(NamedTuple):
    """Closed interval of latencies in s. A missing lower bound is 0, and a missing upper bound is
    infinity."""

    low_s: float
    high_s: float


class ModelResult(NamedTuple):
    """Latency of a round according to a model, s; `low_s` and `high_s` differ for bounds."""

    low_s: float
    high_s: float
    """Equal to `low_s` unless the model gives bounds."""
    by_step_s: dict[str, float]
    """Seconds by step; empty if the model does not give them."""

    @property
    def is_interval(self) -> bool:
        """Whether the result is an interval, not a single value."""
        return self.low_s != self.high_s

    def error(self, value_s: float) -> float:
        """(model - value) / value; for bounds 0 inside, otherwise for the nearer bound."""
        if self.low_s <= value_s <= self.high_s:
            return 0.0
        return (self.low_s if value_s < self.low_s else self.high_s) / value_s - 1


Answer = float | Interval | tuple[float, float] | Mapping[str, float] | None
Function = Callable[..., Answer]
Relation = Literal["=", "<=", ">="]


@dataclass(frozen=True)
class Equation:
    """One of the paper's closed forms, and the relation that the paper claims for each paradigm."""

    name: str
    title: str
    form: Callable[[Durations], float]
    relation: Callable[[Paradigm], Relation | None]
    """Relation of a round to the form: equal (`=`), at most (`<=`) or at least (`>=`); None if the
    form does not apply to the paradigm."""
    has_adapters: bool = False
    """Whether the form includes SM and CM; otherwise they are added."""
    metric: str = "latency_s"
    """Metric of the round that the form computes."""

    def __call__(
        self, plan: RoundPlan, radio: RadioAccess, gain: SlotValues, slot_s: float
    ) -> Answer:
        """Prediction for a round whose channel is constant, as in slot 0 (assumption 1)."""
        relation = self.relation(plan.paradigm)
        if relation is None or not all(way.all() for way in both_ways(gain[:, 0])):
            return None
        d = theory.constant_durations(plan, radio, gain[:, 0])
        if self.metric == "iteration_s" and d.iterations == 1:
            return None
        seconds = self.form(d)
        if self.has_adapters:
            return _claimed(relation, seconds, 0.0, 0.0)
        broadcast_s = float(d.sm_s.max())
        return _claimed(
            relation, seconds, broadcast_s + float(d.cm_s.min()), broadcast_s + float(d.cm_s.max())
        )


def _claimed(relation: Relation, seconds: float, least_s: float, most_s: float) -> Answer:
    if relation == "=":
        return seconds + most_s
    if relation == "<=":
        return Interval(0.0, seconds + most_s)
    return Interval(seconds + least_s, math.inf)


def _of(**relations: Relation) -> Callable[[Paradigm], Relation | None]:
    """Relations by the paradigm's name, with `_` for `-`; None for other service orders."""
    return lambda paradigm: (
        relations.get(paradigm.name.replace("-", "_")) if paradigm in BUILT_IN else None
    )


def _of_vanilla(paradigm: Paradigm) -> Relation | None:
    sharing = (paradigm.server_compute, paradigm.gradient_transmission)
    return "<=" if sharing == ("parallel", "sequential") and paradigm.is_plain else None


EQUATIONS = {
    equation.name: equation
    for equation in (
        Equation(
            "cpsfl-lower", "lower bound, eq. (18)", theory.cpsfl_lower_bound_s, _of(cpsfl=">=")
        ),
        Equation(
            "tau2",
            "τ2, eq. (16)",
            theory.without_at_s,
            _of(cpsfl_no_at="=", cpsfl="<=", sfl_ps=">="),
        ),
        Equation(
            "tau2-hat",
            "hatted τ2, a lower bound of τ2",
            theory.without_at_hat_s,
            _of(cpsfl_no_at=">=", cpsfl="<="),
        ),
        Equation("upper-bound", "upper bound, eq. (13)", theory.upper_bound_s, _of_vanilla, True),
        Equation(
            "t-iter",
            "T_iter, eq. (15)",
            theory.iteration_of,
            _of(cpsfl_no_at="=", cpsfl="<=", sfl_ps=">="),
            True,
            "iteration_s",
        ),
        Equation("tau-pp", "τ_PP, eq. (21)", theory.sfl_pp_s, _of(sfl_pp="=")),
        Equation(
            "tau3",
            "τ3, eq. (23)",
            theory.pipesfl_without_at_s,
            _of(pipesfl_no_at="=", pipesfl="<="),
        ),
        Equation(
            "tau3-hat",
            "hatted τ3, a lower bound of τ3",
            theory.pipesfl_without_at_hat_s,
            _of(pipesfl_no_at=">="),
        ),
    )
}
"""The paper's equations by name, numbered as in its source."""


def cpsfl_bounds(plan: RoundPlan, radio: RadioAccess, gain: SlotValues, slot_s: float) -> Answer:
    """CPSFL between eq. (18) and, by (17), τ2."""
    low = EQUATIONS["cpsfl-lower"](plan, radio, gain, slot_s)
    high = EQUATIONS["tau2"](plan, radio, gain, slot_s)
    if not isinstance(low, Interval) or not isinstance(high, Interval):
        return None
    return Interval(low.low_s, max(low.low_s, high.high_s))


def queue(plan: RoundPlan, radio: RadioAccess, gain: SlotValues, slot_s: float) -> Answer:
    """The server as an M/G/1 queue, of any paradigm without gates; no equation of the paper's."""
    scheme = plan.paradigm
    gated = scheme.compute_waits_for_all or scheme.transmission_waits_for_all
    if gated or not scheme.is_plain or not all(way.all() for way in both_ways(gain[:, 0])):
        return None
    return queueing_s(
        theory.constant_durations(plan, radio, gain[:, 0]),
        sequential_server=scheme.server_compute == "sequential",
        sequential_downlink=scheme.gradient_transmission == "sequential",
    )


CPSFL_BOUNDS, QUEUE = "cpsfl-bounds", "mg1"
COMPOSED: dict[str, tuple[str, Function]] = {
    CPSFL_BOUNDS: ("CPSFL's bounds, (17), (18)", cpsfl_bounds),
    QUEUE: ("M/G/1 queue", queue),
}
"""Models that are not single equations of the paper: title and function by name."""
ANALYTICAL_MODELS.add(EQUATIONS | {name: function for name, (_, function) in COMPOSED.items()})


@dataclass(frozen=True)
class AnalyticalModel:
    """A model with its parameters."""

    name: str
    title: str
    metric: str
    """Metric of the round that the model computes."""
    function: Function
    parameters: Mapping[str, Any]

    def __call__(
        self, plan: RoundPlan, radio: RadioAccess, gain: SlotValues, slot_s: float
    ) -> ModelResult | None:
        """Prediction for the first round of a scenario.

        Args:
            plan: Durations and bytes of the round.
            radio: Parameters that convert gains to rates.
            gain: Gains, shape [K, S] or for each direction, from the round's start on.
            slot_s: Length of a slot, s.

        Raises:
            RunError: The model failed, or its result is not valid.
        """
        with failures(f"round 0: {FIELD} {self.name!r}"):
            answer = self.function(plan, radio, gain, slot_s, **self.parameters)
        return _result(self.name, answer)


_own: dict[str, Function] = {}
"""Functions of `named`, by name."""


@contextmanager
def named(function: Function) -> Iterator[str]:
    """Make a function a model of this process, by its own name, within the context.

    Raises:
        InputError: It has no name, or that of another model.
    """
    name = getattr(function, "__name__", "")
    if not name.isidentifier():
        raise InputError(f"`model`: a function must have a name, not {name or function!r}")
    if name in ANALYTICAL_MODELS.names():
        raise InputError(f"`model`: {name!r} is the name of another model; rename the function")
    _own[name] = function
    try:
        yield name
    finally:
        del _own[name]


def model(name: str, scenario: Scenario) -> AnalyticalModel:
    """The model with a name, with its parameters in the scenario.

    Raises:
        InputError: No model has that name, it cannot be loaded, or its parameters do not fit.
    """
    if name in _own:
        return AnalyticalModel(name, name, "latency_s", _own[name], {})
    function = ANALYTICAL_MODELS.function(name, "`model`")
    parameters = scenario.analytical_models.get(name, {})
    ANALYTICAL_MODELS.check(name, parameters)
    title, metric = COMPOSED[name][0] if name in COMPOSED else name, "latency_s"
    if isinstance(function, Equation):
        title, metric = function.title, function.metric
    return AnalyticalModel(name, title, metric, function, parameters)


def _result(name: str, answer: object) -> ModelResult | None:
    match answer:
        case None:
            return None
        case Real():
            result = ModelResult(float(answer), float(answer), {})
        case tuple() if len(answer) == 2 and all(isinstance(end, Real) for end in answer):
            result = ModelResult(float(answer[0]), float(answer[1]), {})
        case Mapping() if answer and all(isinstance(v, Real) for v in answer.values()):
            if unknown := [step for step in answer if step not in STEPS]:
                raise RunError(f"{FIELD} {name!r}: {not_one_of(str(unknown[0]), list(STEPS))}")
            by_step = {step: float(seconds) for step, seconds in answer.items()}
            result = ModelResult(sum(by_step.values()), sum(by_step.values()), by_step)
        case _:
            raise RunError(
                f"{FIELD} {name!r}: must return seconds, an interval of two, seconds by step "
                f"or None, not {answer!r}"
            )
    if not 0 <= result.low_s <= result.high_s or math.isinf(result.low_s):
        raise RunError(f"{FIELD} {name!r}: {answer!r} is not a time or an interval of times")
    return result
