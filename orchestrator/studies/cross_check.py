# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A cross-check: the same rounds by every method that predicts or measures their latency.

The methods are closed forms, the slot-level engine (payload only, and with frames), ns-3's packets
and the kernel's links. The engine has slots and queues but no packets; ns-3 adds TCP,
acknowledgements, receipts and delay, and with LTE that UAVs share, the radio stack; the kernel adds
real TCP, timers and process scheduling.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ns3_scenarios.trace import ChannelSource
from orchestrator.analysis.error_budget import KEYS, join
from orchestrator.analytical import closed_forms as theory
from orchestrator.analytical import models
from orchestrator.engine.links import impairments_of
from orchestrator.engine.plan import fixed_allocation, link_bytes, payload_bytes, plan_round
from orchestrator.engine.radio import describe_radio, radio_access
from orchestrator.policies.registry import decider
from orchestrator.records.reader import Run
from orchestrator.rounds.loop import predict
from orchestrator.rounds.packet_rounds import check_packets, play, simulated_radio
from orchestrator.rounds.selection import selection
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from orchestrator.studies.failed_checks import failed_checks
from testbed.core.errors import InputError, RunError
from testbed.core.progress import Progress, silent
from testbed.core.registry import ANALYTICAL_MODELS
from testbed.core.timeline import Timeline

log = logging.getLogger(__name__)

PAYLOAD, WIRE, PACKETS, KERNEL = "engine, payload", "engine, frames", "ns-3 packets", "kernel"
TITLES = {
    PAYLOAD: "the engine, payload only",
    WIRE: "the engine with frames",
    PACKETS: "ns-3's packets",
    KERNEL: "the kernel's links",
}
"""By name of a timeline: its title in a sentence."""
TRANSFERS = ("SM", "CA", "SG", "CM")


@dataclass(frozen=True)
class ClosedForm:
    """The first round's latency according to an analytical model."""

    what: str
    seconds: float
    """According to the paper: constant channel of the first slot, payload only, s."""
    with_adapters_s: float
    """Including the longest SM and the longest CM if the model ignores them, s."""


@dataclass(frozen=True)
class CrossCheck:
    """The rounds of a scenario according to every method."""

    closed_forms: Sequence[ClosedForm]
    timelines: dict[str, Timeline]
    """Timelines by name: `PAYLOAD`, `WIRE`, `PACKETS` and, if emulated, `KERNEL`."""
    delay_s: float
    """One-way delay of ns-3's links, s."""
    complaints: Sequence[str]
    """Failed validity checks of the emulation; empty if it is valid."""
    by_delay: Sequence[tuple[float, Timeline]]
    """Timelines of ns-3's packets by delay in s."""
    radio: str = ""
    """The radio in a few words, see `orchestrator.engine.radio.describe_radio`."""
    packets_over: str = ""
    """The radio access of ns-3 that its packets pass, e.g. "ns-3's LTE"; empty: they are sent over
    links at the rates of the radio model."""

    @property
    def reference(self) -> str:
        """Name of the timeline that the others are compared with."""
        return KERNEL if KERNEL in self.timelines else WIRE

    def to_json(self, scenario: Scenario) -> dict[str, Any]:
        """The results as a JSON object; its keys are kept for other programs that read it."""
        return {
            "scenario": scenario.model_dump(mode="json"),
            "closed_forms": [vars(form) for form in self.closed_forms],
            "delay_s": self.delay_s,
            "executions": {name: line.to_json() for name, line in self.timelines.items()},
            "kernel_complaints": list(self.complaints),
            "transfers": _records(transfers(self)),
            "delay_sweep": _records(over_delay(self)),
            **({"downlink_is_open": True} if self.timelines[PAYLOAD].downlink_is_open else {}),
            **({"trace_has_rates": True} if self.timelines[PAYLOAD].trace_has_rates else {}),
            **({"packets_over": self.packets_over} if self.packets_over else {}),
        }


def cross_check(
    scenario: Scenario,
    source: ChannelSource,
    emulated: Run | None = None,
    *,
    delays_s: Sequence[float] = (),
    progress: Progress = silent,
) -> CrossCheck:
    """Predict and simulate the scenario's rounds, and compare them with an emulated run of it.

    Args:
        scenario: The scenario.
        source: The channel.
        emulated: A run of the scenario on this channel; None: no emulation.
        delays_s: One-way delays of ns-3's links, s (default: the scenario's delays). The first one
            is used in the comparison; if there are several, ns-3 simulates the rounds with each.
        progress: Called with the current activity.

    Raises:
        InputError: The trace is too short, or ns-3 does not support the scenario.
        ChannelError: ns-3 ended, or its models cannot be built.
    """
    check_packets(scenario, delays=bool(delays_s))
    profile = profile_of(scenario)
    own_s = max(way.delay_s for ways in impairments_of(scenario) for way in ways)
    timelines = {
        name: predict(scenario, source, profile, sizing=sizing, decide=decider(scenario, source))
        for name, sizing in ((PAYLOAD, payload_bytes), (WIRE, link_bytes))
    }
    played = [
        (
            delay_s,
            play(
                scenario,
                source,
                profile,
                delay_s=delay_s if delays_s else None,
                decide=decider(scenario, source),
                progress=progress,
            ).timeline,
        )
        for delay_s in delays_s or [own_s]
    ]
    timelines[PACKETS] = played[0][1]
    if emulated is not None:
        timelines[KERNEL] = emulated.measured
    return CrossCheck(
        closed_forms=closed_forms(scenario, source),
        timelines=timelines,
        delay_s=played[0][0],
        complaints=[] if emulated is None else failed_checks(emulated),
        by_delay=played,
        radio=describe_radio(scenario, Channel.of(source).now),
        packets_over=simulated_radio(scenario),
    )


def closed_forms(scenario: Scenario, source: ChannelSource) -> list[ClosedForm]:
    """The first round's latency according to analytical models, with the scenario's shares.

    These are the paper's equations for the scenario's paradigm, the queue if there are no gates,
    and all plug-in models, with two entries for an interval. The list is empty if a policy decides
    the shares, if not all UAVs participate or do equal numbers of iterations, or if UAVs share the
    band.

    Raises:
        InputError: A model in the scenario cannot be loaded, or lacks a parameter.
        RunError: A built-in model, or one in the scenario, failed.
    """
    decided = scenario.allocation.kind.decides or selection(scenario)
    if decided or scenario.scheme.asynchronous:
        return []
    channel = Channel.of(source).now
    plan = plan_round(scenario, profile_of(scenario), fixed_allocation(scenario))
    radio = radio_access(scenario, channel)
    if radio.is_shared or plan.own_iterations is not None:  # rates or iterations differ
        return []
    forms = []
    for name in ANALYTICAL_MODELS.names():
        model = _model(name, scenario)
        if model is None or model.metric != "latency_s" or name == models.CPSFL_BOUNDS:
            continue
        equation = models.EQUATIONS.get(name)
        without = name == models.QUEUE or (equation is not None and not equation.has_adapters)
        bare = theory.without_adapters(plan) if without else plan
        try:
            result = model(plan, radio, channel.values, channel.slot_s)
            alone = model(bare, radio, channel.values, channel.slot_s) if without else result
        except RunError as error:
            if name in {*models.EQUATIONS, *models.COMPOSED, *scenario.analytical_models}:
                raise
            log.warning("%s; the model is omitted", error)
            continue
        if result is None or alone is None:
            continue
        for end, relation in (("low_s", "at least "), ("high_s", "at most ")):
            with_adapters_s, seconds = getattr(result, end), getattr(alone, end)
            if not 0 < with_adapters_s < math.inf:
                continue
            named = "" if equation or not result.is_interval else relation
            forms.append(ClosedForm(named + model.title, seconds, with_adapters_s))
            if not result.is_interval:
                break
    return forms


def _model(name: str, scenario: Scenario) -> models.AnalyticalModel | None:
    """The model; None if it cannot be loaded and is not in the scenario."""
    try:
        return models.model(name, scenario)
    except InputError:
        if name in scenario.analytical_models:
            raise
        return None


# --- tables --------------------------------------------------------------------------------------


def latencies(check: CrossCheck) -> pd.DataFrame:
    """One row per method: latency of the first round, mean latency, and differences.

    Columns: execution, first_s, mean_s, difference_ms and difference_percent (of the means; for
    closed forms of the first round).
    """
    reference = check.timelines[check.reference].summary()["latency_s"]
    rows: list[tuple[str, float, float, float, float]] = []
    for form in check.closed_forms:
        first_s = form.with_adapters_s
        difference_s = first_s - reference[0]
        percent = 100 * difference_s / reference[0]
        rows.append((form.what, first_s, np.nan, 1e3 * difference_s, percent))
    for name, timeline in check.timelines.items():
        latency = timeline.summary()["latency_s"]
        difference_s = latency.mean() - reference.mean()
        percent = 100 * difference_s / reference.mean()
        rows.append((name, latency[0], latency.mean(), 1e3 * difference_s, percent))
    columns = ["execution", "first_s", "mean_s", "difference_ms", "difference_percent"]
    return pd.DataFrame(rows, columns=columns)


def steps(check: CrossCheck) -> pd.DataFrame:
    """Mean durations in s: one row per kind of step, one column per method."""
    means = {
        name: timeline.frame()
        .assign(duration_s=lambda t: t["end_s"] - t["start_s"])
        .groupby("step", observed=True)["duration_s"]
        .mean()
        for name, timeline in check.timelines.items()
    }
    return pd.DataFrame(means).rename_axis("step").reset_index()


def transfers(check: CrossCheck) -> pd.DataFrame:
    """Differences of transfer durations from the reference, by method and kind of transfer.

    Columns: execution, step, transfers, then in per cent: mean_percent (signed), median_percent,
    p95_percent, max_percent (of absolute values); and worst, the transfer with the largest
    difference, as round/client/iteration.
    """
    rows = []
    for name in (WIRE, PACKETS, KERNEL):
        if name == check.reference or name not in check.timelines:
            continue
        both = join(check.timelines[check.reference], check.timelines[name])
        both["error"] = both["duration_s_measured"] / both["duration_s_predicted"] - 1
        for step in TRANSFERS:
            own = both[both["step"] == step]
            size = own["error"].abs()
            at = own[KEYS].iloc[int(size.to_numpy().argmax())]
            rows.append(
                (
                    name,
                    step,
                    len(own),
                    100 * own["error"].mean(),
                    *(100 * size.quantile([0.5, 0.95, 1.0])),
                    f"{at['round']}/{at['client']}/{at['iteration']}",
                )
            )
    columns = ["execution", "step", "transfers"]
    columns += [f"{what}_percent" for what in ("mean", "median", "p95", "max")]
    return pd.DataFrame(rows, columns=[*columns, "worst"])


def over_delay(check: CrossCheck) -> pd.DataFrame:
    """One row per delay: delay_ms, mean_s (latency), added_ms, and mean durations of transfers."""
    rows = []
    for delay_s, timeline in check.by_delay:
        table = timeline.frame()
        means = (table["end_s"] - table["start_s"]).groupby(table["step"], observed=True).mean()
        latency_s = float(timeline.summary()["latency_s"].mean())
        rows.append((1e3 * delay_s, latency_s, *(float(means[step]) for step in TRANSFERS)))
    columns = ["delay_ms", "mean_s", *(f"{step}_s" for step in TRANSFERS)]
    frame = pd.DataFrame(rows, columns=columns)
    frame.insert(2, "added_ms", 1e3 * (frame["mean_s"] - frame["mean_s"].iloc[0]))
    return frame


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]
