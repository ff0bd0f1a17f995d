# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Joins predicted and measured timelines, and attributes their differences to causes."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ns3_scenarios.trace import SlotValues
from orchestrator.analysis.shared_air import due_ends_s
from orchestrator.engine.access import RadioAccess
from orchestrator.engine.engine import RoundTimes, service_order_of, simulate
from orchestrator.engine.faults import RoundFaults
from orchestrator.engine.kernel import BY_RULES
from orchestrator.engine.plan import Array, RoundPlan
from orchestrator.engine.rates import link_rates
from orchestrator.engine.slot_impairments import BROADCAST, DOWN, UP
from orchestrator.engine.tcp_model import TcpModel
from testbed.core.timeline import CA, CB, CF, CM, SG, SM, STEPS, Round, S, Timeline

PARTS = ("start", "framing", "delay", "loss", "compute", "injection", "order", "clock", "rest")
"""Causes of the difference between a measured and a predicted round, in order of evaluation.

start: the round began at another time, thus in other slots. framing: headers, labels and frames
around the payload. delay: the links' delay, including TCP windows that wait for it. loss: lost
frames, as drawn by the engine. compute: deviations of computing steps from their model. injection:
late rate changes. order: sequential resources served clients in another order, because they were
ready at almost the same time; in a round with a lost client this is part of the rest. clock: clock
offsets between hosts, which make transfers seem longer in one direction and shorter in the other;
a round's latency has no such part, because it is measured with the base station's clock. rest:
unexplained.
"""
PARTS_OF_LATENCY = tuple(part for part in PARTS if part != "clock")

_STARTS_AT_UAV, _ENDS_AT_UAV = (CF, CA, CB, CM), (SM, CF, SG, CB)
"""Steps whose start, or whose end, is measured with the UAV's clock, not the base station's."""

KEYS = ["round", "client", "iteration", "step"]


def join(predicted: Timeline, measured: Timeline) -> pd.DataFrame:
    """Join two timelines: `KEYS`, then start_s, end_s, duration_s, bytes of each."""
    tables = [
        timeline.frame().assign(duration_s=lambda t: t["end_s"] - t["start_s"]).set_index(KEYS)
        for timeline in (predicted, measured)
    ]
    columns = ["start_s", "end_s", "duration_s", "bytes"]
    both = tables[0][columns].merge(
        tables[1][columns],
        how="left",
        left_index=True,
        right_index=True,
        suffixes=("_predicted", "_measured"),
    )
    return both.reset_index()


def step_table(predicted: Timeline, measured: Timeline) -> pd.DataFrame:
    """Mean duration of each kind of step in each round: round, step, predicted_s, measured_s."""
    both = join(predicted, measured)
    means = both.groupby(["round", "step"], observed=True)[
        ["duration_s_predicted", "duration_s_measured"]
    ].mean()
    means.columns = pd.Index(["predicted_s", "measured_s"])
    return means.reset_index()


@dataclass(frozen=True)
class Budget:
    """Contribution of each cause to a round's latency; they add up to the difference exactly."""

    round: int
    predicted_s: float
    measured_s: float
    seconds: dict[str, float]
    """By part in `PARTS_OF_LATENCY`: its contribution, s."""
    steps: pd.DataFrame
    """Contributions to the duration of every step, s: `KEYS`, then one column per part in
    `PARTS`."""


def error_budget(
    predicted: Round,
    measured: Round,
    payload_plan: RoundPlan,
    link_plan: RoundPlan,
    radio: RadioAccess,
    gain: SlotValues,
    slot_s: float,
    slot_edges_s: Array | None,
    faults: RoundFaults | None = None,
    tcp: TcpModel | None = None,
    ahead_s: Array | None = None,
) -> Budget:
    """Split a round's difference by repeating the simulation with more and more measured data.

    Args:
        predicted: The round's prediction with payload only.
        measured: The measured round.
        payload_plan: Plan with payload bytes.
        link_plan: Plan with the bytes on the link.
        radio: Parameters that convert gains to rates.
        gain: Gains of the whole trace, shape [K, S] or for each direction.
        slot_s: Length of a slot, s.
        slot_edges_s: Actual times of rate changes, shape [S + 1], s; None if unknown.
        faults: Faults in the round. Steps that are missing in a stage then have no parts.
        tcp: Model of delay and loss; None: there are none.
        ahead_s: Offsets by which the clocks of the base station and the UAVs were ahead of what was
            assumed, shape [1 + K], emulated seconds; None: there is one clock.
    """
    computed = measured_plan(measured, link_plan)
    service_order = measured_service_order(measured, link_plan)
    start_s = measured.start_s
    # Measured durations already include slow nodes.
    rest = faults and faults.at_full_speed()
    edges: dict[str, Any] = {"slot_edges_s": slot_edges_s, "faults": rest}
    impairments: dict[str, Any] = {"tcp": tcp}

    def played(plan: RoundPlan, **given: Any) -> RoundTimes:
        return simulate(plan, radio, gain, slot_s, start_s, **given)

    stages: list[RoundTimes] = [
        played(payload_plan, faults=faults),
        played(link_plan, faults=faults),
        played(link_plan, faults=faults, tcp=tcp and tcp.without_loss()),
        played(link_plan, faults=faults, **impairments),
        played(computed, faults=rest, **impairments),
        played(computed, **edges, **impairments),
        played(computed, **edges, **impairments, service_order=service_order),
    ]
    latencies = [predicted.latency_s, *(s.latency_s for s in stages), measured.latency_s]
    durations = [_by_step(s) for s in (predicted.spans, *(s.spans for s in stages))]
    noted = _by_step(measured.spans)
    misread = noted - _by_step(_by_one_clock(measured.spans, ahead_s))
    ordered = durations[-1]
    durations += [ordered + misread.reindex(ordered.index, fill_value=0.0), noted]
    table = pd.DataFrame(
        {
            part: after - before
            for part, before, after in zip(PARTS, durations, durations[1:], strict=False)
        }
    )
    steps = table.reset_index()
    steps["step"] = pd.Categorical.from_codes(steps["step"], pd.Index(STEPS))
    steps.insert(0, "round", measured.index)
    return Budget(
        round=measured.index,
        predicted_s=predicted.latency_s,
        measured_s=measured.latency_s,
        seconds=dict(zip(PARTS_OF_LATENCY, np.diff(latencies).tolist(), strict=True)),
        steps=steps,
    )


def measured_plan(measured: Round, plan: RoundPlan) -> RoundPlan:
    """The plan with the measured durations of computing steps that were finished."""
    return replace(
        plan,
        cf_s=_durations(measured, CF, plan.cf_s),
        s_s=_durations(measured, S, plan.s_s),
        cb_s=_durations(measured, CB, plan.cb_s),
    )


def measured_service_order(measured: Round, plan: RoundPlan) -> npt.NDArray[np.int64]:
    """The measured order of service. If the round lost a client or is asynchronous, the rules
    decide instead: a client's place then depends on the progress of lost clients, or on how often
    each client was served."""
    if measured.lost or plan.updates:
        return BY_RULES
    return service_order_of(measured.spans, plan.clients, plan.iterations)


def integral_end_s(rate_bps: Array, slot_s: float, start_s: float, bits: float) -> float:
    """Time when the integral of a link's rates reaches a transfer's bits; inf if it never does.

    Args:
        rate_bps: Rate in each slot from time 0, shape [S].
        slot_s: Length of a slot, s.
        start_s: Start of the transfer, s.
        bits: Size of the transfer.
    """
    edges_s = np.arange(len(rate_bps) + 1) * slot_s
    carried = np.concatenate([[0.0], np.cumsum(rate_bps * slot_s)])
    end = np.interp(start_s, edges_s, carried) + bits
    # The first time with this value: during an outage the integral is constant.
    slot = max(0, int(np.searchsorted(carried, end)) - 1)
    if slot == len(rate_bps):
        return math.inf
    return float(edges_s[slot] + (end - carried[slot]) / rate_bps[slot])


def transfer_errors(
    measured: Round,
    link_plan: RoundPlan,
    radio: RadioAccess,
    gain: SlotValues,
    slot_s: float,
    tcp: TcpModel | None = None,
) -> pd.DataFrame:
    """Compare every transfer of a round with the integral of its link's rates from its start on.

    Where active links divide the band, the rates are those that follow from the measured starts of
    all transfers.

    Args:
        measured: The measured round.
        link_plan: Plan with the bytes on the link.
        radio: Parameters that convert gains to rates.
        gain: Gains of the whole trace, shape [K, S] or for each direction; it must contain the
            transfers.
        slot_s: Length of a slot, s.
        tcp: Model whose delay is added for the last frame; windows and losses are part of the
            error.

    Returns:
        One row per transfer, without those that were cut off and those that the rates never carry:
        a lost host may have sent some after the time from which its links count as silent.
        Columns: `KEYS`, start_s, duration_s, due_s (from the integral), rate_bps (its mean), and
        error, the relative error.
    """
    rates = link_rates(link_plan, radio, gain)
    if tcp is not None and tcp.slots is not None:
        rates = rates.slowed(tcp.slots)
    links = {
        SM: (
            rates.gradient if link_plan.updates else rates.broadcast,
            link_plan.sm_bytes.reshape(link_plan.clients, -1),
        ),
        CA: (rates.uplink, link_plan.ca_bytes),
        SG: (rates.gradient, link_plan.sg_bytes),
        CM: (rates.uplink, link_plan.cm_bytes.reshape(link_plan.clients, -1)),
    }
    shared_s = due_ends_s(measured, link_plan, radio, gain, slot_s)
    rows = []
    for client, iteration, step, start_s, end_s, _ in measured.spans[~measured.cut].tolist():
        if step not in links:
            continue
        rate_bps, size = links[step]
        bits = 8 * size[client - 1, min(iteration, size.shape[1]) - 1]
        due_s = shared_s.get((client, iteration, step), math.nan)
        if math.isnan(due_s):
            due_s = integral_end_s(rate_bps[client - 1], slot_s, start_s, bits)
        if math.isinf(due_s):
            continue
        mean_bps = bits / (due_s - start_s) if bits else np.nan
        if tcp is not None:
            way = {SM: DOWN if link_plan.updates else BROADCAST, SG: DOWN}.get(step, UP)
            due_s += tcp.delay_at(way, client, start_s)
        times_s = start_s, end_s - start_s, due_s - start_s
        rows.append((client, iteration, step, *times_s, mean_bps))
    columns = [*KEYS[1:], "start_s", "duration_s", "due_s", "rate_bps"]
    table = pd.DataFrame(rows, columns=columns)
    table["step"] = pd.Categorical.from_codes(table["step"], pd.Index(STEPS))
    table.insert(0, "round", measured.index)
    table["error"] = table["duration_s"] / table["due_s"] - 1
    return table


def calibration_summary(table: pd.DataFrame) -> pd.DataFrame:
    """Summarise a calibration (see `orchestrator.emulated.calibration`) by direction and level of
    rates.

    Columns: direction, level, rate_bps (median), error_p50 and error_max of absolute errors.
    """
    sizes = table.assign(error=table["error"].abs())
    return (
        sizes.groupby(["direction", "level"], sort=False)
        .agg(
            rate_bps=("rate_bps", "median"),
            error_p50=("error", "median"),
            error_max=("error", "max"),
        )
        .reset_index()
    )


def _by_one_clock(spans: npt.NDArray[np.void], ahead_s: Array | None) -> npt.NDArray[np.void]:
    """The spans, corrected for offsets between clocks."""
    spans = spans.copy()
    if ahead_s is not None:
        for moment, steps in (("start_s", _STARTS_AT_UAV), ("end_s", _ENDS_AT_UAV)):
            at_uav = np.isin(spans["step"], steps)
            spans[moment] -= ahead_s[np.where(at_uav, spans["client"], 0)]
    return spans


def _by_step(spans: npt.NDArray[np.void]) -> "pd.Series[float]":
    names = KEYS[1:]
    index = pd.MultiIndex.from_arrays([spans[name] for name in names], names=names)
    took_s = spans["end_s"] - spans["start_s"]
    return pd.Series(took_s, index).sort_index()


def _durations(round_: Round, step: int, planned_s: Array) -> Array:
    """Durations of a computing step, shape [K, I]; for cut steps at least the measured time."""
    durations = planned_s.copy()
    for was_cut in (True, False):
        spans = round_.spans[(round_.spans["step"] == step) & (round_.cut == was_cut)]
        at = spans["client"] - 1, spans["iteration"] - 1
        took_s = spans["end_s"] - spans["start_s"]
        durations[at] = np.maximum(durations[at], took_s) if was_cut else took_s
    return durations
