# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a worker does for a validation: play points, and ask the model about them.

Tasks, jobs and answers are plain values, as a campaign's are.
"""

import math
import platform
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ns3_scenarios.trace import Gains, Replay, TraceExhausted, each_way
from orchestrator.analysis import metrics
from orchestrator.engine.plan import (
    Array,
    Radio,
    RoundPlan,
    Sizing,
    fixed_allocation,
    link_bytes,
    payload_bytes,
    radio_of,
)
from orchestrator.engine.rounds import Decision, EngineBackend, Situation
from orchestrator.packet_simulation.rounds import play as play_packets
from orchestrator.policies.registry import decider
from orchestrator.records.manifest import source_sha256
from orchestrator.scenario.channel import Channel, channel_settings, open_source
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import EVERYBODY, Scenario
from orchestrator.studies.validation.space import tree_at
from orchestrator.theory.models import AnalyticalModel, Said, model
from testbed.core.errors import InputError, RunError
from testbed.core.timeline import Round, Timeline
from workloads.costs.profile import SplitProfile

OPEN = 4
"""Channels that can grow, at most: each has ns-3 in a process of its own."""
KEPT = 256
"""Channels of which what was made is kept, at most."""


class Channels:
    """The channels of scenarios. What was made of one stays when its ns-3 is let go of."""

    def __init__(self) -> None:
        self._open: dict[Any, tuple[ExitStack, Channel]] = {}
        self._made: dict[Any, Channel] = {}

    def of(self, scenario: Scenario) -> Channel:
        """The scenario's channel; it may end, see `forget`."""
        settings = channel_settings(scenario)
        if settings in self._made:
            return self._made[settings]
        if settings not in self._open:
            if len(self._open) >= OPEN:
                self._retire(next(iter(self._open)))
            stack = ExitStack()
            source = stack.enter_context(open_source(scenario, None))
            self._open[settings] = stack, Channel.of(source)
        return self._open[settings][1]

    def forget(self, scenario: Scenario) -> bool:
        """Let a channel that has ended be made anew, longer; whether it can be."""
        return self._made.pop(channel_settings(scenario), None) is not None

    def _retire(self, settings: Any) -> None:
        stack, channel = self._open.pop(settings)
        if len(self._made) >= KEPT:
            del self._made[next(iter(self._made))]
        self._made[settings] = Channel.of(Replay(channel.now))
        stack.close()

    def close(self) -> None:
        """Let go of all."""
        while self._open:
            self._open.popitem()[1][0].close()


@contextmanager
def channels() -> Iterator[Channels]:
    """Channels that are let go of in the end."""
    kept = Channels()
    try:
        yield kept
    finally:
        kept.close()


@dataclass(frozen=True)
class Case:
    """A round as the model is asked about it."""

    plan: RoundPlan
    radio: Radio
    gain: Gains
    """Shape [K, S], or that of each direction, twice as long as the round."""
    slot_s: float


@dataclass(frozen=True)
class Played:
    """A point, played by the engine, and what the model says of it."""

    engine: float
    """The metric of the first round, payload alone; likewise with frames."""
    frames: float
    said: Said | None
    case: Case

    @property
    def error(self) -> float:
        """Model over engine, less 1; not a number where the model says nothing."""
        return _error(self.said, self.engine)

    @property
    def margin(self) -> float:
        """How far the model is from being wrong, relative: at most 0 unless it is an interval."""
        return margin(self.said, self.engine)


def _error(said: Said | None, value: float) -> float:
    error = math.nan if said is None else said.error(value)
    return 0.0 if abs(error) < ROUNDING else error


ROUNDING = 1e-9
"""Relative errors below are the arithmetic's."""


def margin(said: Said | None, value: float) -> float:
    """For an interval how far inside the value is, relative; else less what the error is."""
    if said is None:
        return math.nan
    if not said.is_interval:
        return -abs(said.error(value))
    inside = min(said.high_s / value - 1, 1 - said.low_s / value)
    return 0.0 if abs(inside) < ROUNDING else inside


class Player:
    """Plays points of one model."""

    def __init__(self, name: str, metric: str | None, kept: Channels):
        self._name = name
        self._metric = metric
        self._channels = kept
        self._profiles: dict[str, SplitProfile] = {}

    def model(self, scenario: Scenario) -> AnalyticalModel:
        """The model, with the scenario's parameters."""
        return model(self._name, scenario)

    def metric(self, scenario: Scenario) -> str:
        """What is held against the model."""
        return self._metric or self.model(scenario).metric

    def play(self, scenario: Scenario) -> Played:
        """The scenario's first round by the engine, and what the model says of it.

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

    def _play(self, scenario: Scenario) -> Played:
        asked = self.model(scenario)
        metric = self.metric(scenario)
        value = partial(metrics.value_of, metric, metrics.metric(metric))
        rounds, case = self._rounds(scenario)
        engine, frames = (value(Timeline([round_])) for round_ in rounds)
        said = asked(case.plan, case.radio, case.gain, case.slot_s)
        return Played(engine, frames, said if math.isfinite(engine) else None, case)

    def packets(self, scenario: Scenario) -> float:
        """The metric of the scenario's first round on ns-3's packets."""
        metric = self.metric(scenario)
        channel, profile = self._channels.of(scenario), self._profile(scenario)
        played = play_packets(scenario, channel, profile, decide=decider(scenario))
        return metrics.value_of(metric, metrics.metric(metric), played.timeline)

    def _rounds(self, scenario: Scenario) -> tuple[tuple[Round, Round], Case]:
        channel, profile = self._channels.of(scenario), self._profile(scenario)
        decide = decider(scenario)
        allocation = fixed_allocation(scenario)
        if decide is not None:
            allocation = decide(Situation(0, 0.0, [], [], channel.until(0.0)))
        decision = Decision(0, 0.0, allocation)

        def played(sizing: Sizing) -> tuple[Round, RoundPlan]:
            engine = EngineBackend(scenario, channel, profile, sizing)
            return engine.play(decision), engine.plan(allocation)

        if scenario.scheme.asynchronous:
            raise InputError("paradigm: models are validated for synchronous rounds")
        if scenario.participation != EVERYBODY:
            raise InputError("participation: models are validated for rounds of all UAVs")
        payload, plan = played(payload_bytes)
        frames, _ = played(link_bytes)
        # As many slots whoever has asked before, and enough for a model that is too slow.
        slots = 2 * math.ceil(payload.end_s / channel.slot_s) + 10
        trace = channel.trace(slots)
        if trace.slots < slots:
            raise TraceExhausted(trace.slots)
        gain = trace.gains[:, :slots]
        return (payload, frames), Case(plan, radio_of(scenario), gain, channel.slot_s)

    def _profile(self, scenario: Scenario) -> SplitProfile:
        adapters = {"lora_rank", "lora_targets", "adapters"}
        names = {"profile", "model", "parameters", "classes", "image_size", *adapters}
        key = scenario.workload.model_dump_json(include=names)
        if key not in self._profiles:
            self._profiles[key] = profile_of(scenario)
        return self._profiles[key]


def play(task: dict[str, Any], job: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Play points, by the engine or by ns-3's packets.

    Args:
        task: `source_sha256` of the program that asks, the base `scenario` as plain values,
            `model`, `metric` (or None), and `by`: `engine` or `packets`.
        job: Points, each with `id` and `keys`.

    Returns:
        For each its `id`, and `engine`, `frames`, `low` and `high`, which are None where the model
        says nothing; or `packets`; or `failure`, a line.
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
    said = played.said
    return {
        "id": point["id"],
        "engine": played.engine,
        "frames": played.frames,
        "low": None if said is None else said.low_s,
        "high": None if said is None else said.high_s,
    }


def light(scenario: Scenario) -> Scenario:
    """The scenario without learning: the same bytes, and computing takes its modelled time."""
    workload = scenario.workload.model_copy(update={"compute": "none", "compute_time": "modelled"})
    return scenario.model_copy(update={"workload": workload})


PARTS = ("channel", "adapters", "differences", "form")
"""Where an error comes from, in the order in which causes are taken away. channel: it changes
during the round. adapters: SM and CM. differences: the UAVs' channels and shares differ. form: what
is left when none of it is there."""


def parts(asked: AnalyticalModel, case: Case) -> dict[str, float]:
    """What each cause adds to how far the model is from the engine; they add up to all of it.

    Of latencies alone; the sum is `Played.error`, of an interval its `margin`.
    """
    from orchestrator.engine.engine import simulate
    from orchestrator.theory.closed_forms import without_adapters

    def apart(plan: RoundPlan, gain: Gains, slot_s: float) -> float:
        said = asked(plan, case.radio, gain, slot_s)
        latency_s = simulate(plan, case.radio, gain, slot_s).latency_s
        if said is not None and said.is_interval:
            return margin(said, latency_s)
        return _error(said, latency_s)

    still = each_way(lambda way: np.repeat(way[:, :1], 2, axis=1), case.gain)
    bare = without_adapters(case.plan)
    same = each_way(_alike, still)
    equal = np.full(bare.clients, 1 / bare.clients)
    shares = replace(bare.allocation, alpha=equal, beta=equal, rho=equal)
    for_ever = 1e9
    steps = [
        apart(case.plan, case.gain, case.slot_s),
        apart(case.plan, still, for_ever),
        apart(bare, still, for_ever),
        apart(replace(bare, allocation=shares), same, for_ever),
        0.0,
    ]
    return {part: steps[n] - steps[n + 1] for n, part in enumerate(PARTS)}


def _alike(gain: Array) -> Array:
    """The geometric mean of all UAVs' gains in place of each."""
    return np.full_like(gain, np.exp(np.log(np.maximum(gain[:, 0], 1e-300)).mean()))
