# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A worker's part of a validation: evaluates points by simulation and with the model.

Tasks, jobs and results are JSON values, like a campaign's.
"""

import math
import platform
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ns3_scenarios.trace import Replay, SlotValues, TraceExhausted, each_way
from orchestrator.analysis import metrics
from orchestrator.analytical.models import AnalyticalModel, ModelResult, model
from orchestrator.engine.access import RadioAccess
from orchestrator.engine.plan import (
    Array,
    RoundPlan,
    Sizing,
    fixed_allocation,
    link_bytes,
    payload_bytes,
)
from orchestrator.engine.radio import radio_access
from orchestrator.policies.registry import decider
from orchestrator.records.manifest import source_sha256
from orchestrator.rounds.loop import Decision, EngineBackend, Situation
from orchestrator.scenario.channel import Channel, channel_key, open_source
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from orchestrator.studies.validation.space import tree_at
from testbed.core.errors import InputError, RunError
from testbed.core.timeline import Round, Timeline
from workloads.costs.profile import SplitProfile

MOST_OPEN = 4
"""Most channels that can be extended; each has an ns-3 process."""
MOST_CACHED = 256
"""Most channels whose generated part is kept."""


class Channels:
    """Cache of scenarios' channels. The generated part is kept after ns-3's process has ended."""

    def __init__(self) -> None:
        self._open: dict[Any, tuple[ExitStack, Channel]] = {}
        self._made: dict[Any, Channel] = {}

    def of(self, scenario: Scenario) -> Channel:
        """The scenario's channel; it may be too short, see `forget`."""
        settings = channel_key(scenario)
        if settings in self._made:
            return self._made[settings]
        if settings not in self._open:
            if len(self._open) >= MOST_OPEN:
                self._retire(next(iter(self._open)))
            stack = ExitStack()
            source = stack.enter_context(open_source(scenario, None))
            self._open[settings] = stack, Channel.of(source)
        return self._open[settings][1]

    def forget(self, scenario: Scenario) -> bool:
        """Remove a channel that was too short, to generate it again; returns whether it was one."""
        return self._made.pop(channel_key(scenario), None) is not None

    def _retire(self, settings: Any) -> None:
        stack, channel = self._open.pop(settings)
        if len(self._made) >= MOST_CACHED:
            del self._made[next(iter(self._made))]
        self._made[settings] = Channel.of(Replay(channel.now))
        stack.close()

    def close(self) -> None:
        """End all processes of ns-3."""
        while self._open:
            self._open.popitem()[1][0].close()


@contextmanager
def channels() -> Iterator[Channels]:
    """A cache of channels, closed at the context's end."""
    kept = Channels()
    try:
        yield kept
    finally:
        kept.close()


@dataclass(frozen=True)
class Case:
    """Arguments for the model of a round."""

    plan: RoundPlan
    radio: RadioAccess
    gain: SlotValues
    """Shape [K, S], or that of each direction, twice as long as the round."""
    slot_s: float


@dataclass(frozen=True)
class Evaluation:
    """A point, simulated by the engine, and the model's result."""

    engine: float
    """Metric of the first round with payload only; `frames` includes headers."""
    frames: float
    result: ModelResult | None
    case: Case

    @property
    def error(self) -> float:
        """Relative error of the model against the engine; NaN if the model does not apply."""
        return _error(self.result, self.engine)

    @property
    def margin(self) -> float:
        """Relative distance from a wrong result, see `margin`; positive only inside an interval."""
        return margin(self.result, self.engine)


def _error(result: ModelResult | None, value: float) -> float:
    error = math.nan if result is None else result.error(value)
    return 0.0 if abs(error) < ROUNDING else error


ROUNDING = 1e-9
"""Smaller relative errors are rounding errors."""


def margin(result: ModelResult | None, value: float) -> float:
    """Relative distance of the value from an interval's ends, negative outside; else -|error|."""
    if result is None:
        return math.nan
    if not result.is_interval:
        return -abs(result.error(value))
    inside = min(result.high_s / value - 1, 1 - result.low_s / value)
    return 0.0 if abs(inside) < ROUNDING else inside


class Player:
    """Evaluates points for one model."""

    def __init__(self, name: str, metric: str | None, kept: Channels):
        self._name = name
        self._metric = metric
        self._channels = kept
        self._profiles: dict[str, SplitProfile] = {}

    def model(self, scenario: Scenario) -> AnalyticalModel:
        """The model with the scenario's parameters."""
        return model(self._name, scenario)

    def metric(self, scenario: Scenario) -> str:
        """The metric that is compared with the model."""
        return self._metric or self.model(scenario).metric

    def play(self, scenario: Scenario) -> Evaluation:
        """Simulate the scenario's first round with the engine, and apply the model to it.

        Raises:
            RunError: The model failed.
            RunEnds: A fault of the scenario ends the round.
        """
        try:
            return self._play(scenario)
        except TraceExhausted:
            if not self._channels.forget(scenario):
                raise
            return self._play(scenario)

    def _play(self, scenario: Scenario) -> Evaluation:
        analytical = self.model(scenario)
        metric = self.metric(scenario)
        value = partial(metrics.value_of, metric, metrics.metric(metric))
        rounds, case = self._rounds(scenario)
        engine, frames = (value(Timeline([round_])) for round_ in rounds)
        result = analytical(case.plan, case.radio, case.gain, case.slot_s)
        return Evaluation(engine, frames, result if math.isfinite(engine) else None, case)

    def packets(self, scenario: Scenario) -> float:
        """The metric of the scenario's first round, simulated with ns-3's packets."""
        from orchestrator.rounds.packet_rounds import play as play_packets  # imports pandas

        metric = self.metric(scenario)
        channel, profile = self._channels.of(scenario), self._profile(scenario)
        played = play_packets(scenario, channel, profile, decide=decider(scenario, channel))
        return metrics.value_of(metric, metrics.metric(metric), played.timeline)

    def _rounds(self, scenario: Scenario) -> tuple[tuple[Round, Round], Case]:
        channel, profile = self._channels.of(scenario), self._profile(scenario)
        decide = decider(scenario, channel)
        allocation = fixed_allocation(scenario)
        if decide is not None:
            allocation = decide(Situation(0, 0.0, [], [], channel.until(0.0)))
        decision = Decision(0, 0.0, allocation)

        def played(sizing: Sizing) -> tuple[Round, RoundPlan]:
            engine = EngineBackend(scenario, channel, profile, sizing)
            return engine.play(decision), engine.plan(allocation)

        payload, plan = played(payload_bytes)
        frames, _ = played(link_bytes)
        # This number does not depend on the cache, and suffices for models that are too slow.
        slots = 2 * math.ceil(payload.end_s / channel.slot_s) + 10
        trace = channel.trace(slots)
        if trace.slots < slots:
            raise TraceExhausted(trace.slots)
        gain = trace.values[:, :slots]
        return (payload, frames), Case(plan, radio_access(scenario, trace), gain, channel.slot_s)

    def _profile(self, scenario: Scenario) -> SplitProfile:
        adapters = {"lora_rank", "lora_targets", "adapters"}
        names = {"profile", "model", "parameters", "classes", "image_size", *adapters}
        key = scenario.workload.model_dump_json(include=names)
        if key not in self._profiles:
            self._profiles[key] = profile_of(scenario)
        return self._profiles[key]


def play(task: dict[str, Any], job: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Evaluate points with the engine or with ns-3's packets.

    Args:
        task: `source_sha256` of the submitting program, the base `scenario` as JSON values,
            `model`, `metric` (or None), and `by`: `engine` or `packets`.
        job: Points, each with `id` and `keys`.

    Returns:
        For each point its `id`, and `engine`, `frames`, `low` and `high`, of which the last two are
        None if the model does not apply; or `packets`; or `failure`, one line.
    """
    if source_sha256() != task["source_sha256"]:
        raise RunError(f"worker on {platform.node()}: runs other sources than the orchestrator")
    with channels() as kept:
        player = Player(task["model"], task["metric"], kept)
        return [_answer(task, point, player) for point in job]


def _answer(task: dict[str, Any], point: dict[str, Any], player: Player) -> dict[str, Any]:
    try:
        scenario = tree_at(task["scenario"], point["keys"], "space")
        if task["by"] == "packets":
            return {"id": point["id"], "packets": player.packets(light(scenario))}
        played = player.play(scenario)
    except (InputError, RunError) as error:
        return {"id": point["id"], "failure": f"{error} (at {point['keys']})"}
    result = played.result
    return {
        "id": point["id"],
        "engine": played.engine,
        "frames": played.frames,
        "low": None if result is None else result.low_s,
        "high": None if result is None else result.high_s,
    }


def light(scenario: Scenario) -> Scenario:
    """The scenario without training: the same bytes, and modelled computing times."""
    workload = scenario.workload.model_copy(update={"compute": "none", "compute_time": "modelled"})
    return scenario.model_copy(update={"workload": workload})


PARTS = ("channel", "adapters", "differences", "form")
"""Causes of an error, in the order in which they are removed. channel: changes of the channel
during the round. adapters: SM and CM. differences: different channels and shares of UAVs. form: the
remaining error."""


def parts(analytical: AnalyticalModel, case: Case) -> dict[str, float]:
    """Contribution of each cause to the model's error; only for latencies.

    Their sum is `Evaluation.error`, or `Evaluation.margin` for an interval.
    """
    from orchestrator.analytical.closed_forms import without_adapters
    from orchestrator.rounds.simulation import simulate

    def error(plan: RoundPlan, gain: SlotValues, slot_s: float) -> float:
        result = analytical(plan, case.radio, gain, slot_s)
        latency_s = simulate(plan, case.radio, gain, slot_s).latency_s
        if result is not None and result.is_interval:
            return margin(result, latency_s)
        return _error(result, latency_s)

    still = each_way(lambda way: np.repeat(way[:, :1], 2, axis=1), case.gain)
    bare = without_adapters(case.plan)
    same = each_way(_equalised, still)
    equal = np.full(bare.clients, 1 / bare.clients)
    shares = replace(bare.allocation, alpha=equal, beta=equal, rho=equal)
    for_ever = 1e9
    steps = [
        error(case.plan, case.gain, case.slot_s),
        error(case.plan, still, for_ever),
        error(bare, still, for_ever),
        error(replace(bare, allocation=shares), same, for_ever),
        0.0,
    ]
    return {part: steps[n] - steps[n + 1] for n, part in enumerate(PARTS)}


def _equalised(gain: Array) -> Array:
    """Replace all gains by their geometric mean."""
    return np.full_like(gain, np.exp(np.log(np.maximum(gain[:, 0], 1e-300)).mean()))
