# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Predicted against measured: the join of two timelines, and what each cause contributes."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ns3_scenarios.trace import SlotValues
from orchestrator.engine.engine import RoundTimes, service_order_of, simulate
from orchestrator.engine.faults import RoundFaults
from orchestrator.engine.kernel import BY_RULES
from orchestrator.engine.plan import Array, RoundPlan
from orchestrator.engine.radio import RadioAccess
from orchestrator.engine.rates import link_rates
from orchestrator.engine.slot_impairments import BROADCAST, DOWN, UP
from orchestrator.engine.tcp_model import Transport
from testbed.core.timeline import CA, CB, CF, CM, SG, SM, STEPS, Round, S, Timeline

PARTS = ("start", "framing", "delay", "loss", "compute", "injection", "order", "clock", "rest")
"""What separates a measured round from the predicted one, in the order in which it is put in.

start: the round began at another moment, so in other slots. framing: headers, labels and frames
around the payload. delay: of the air, with the windows that wait for it. loss: of frames, as the
engine has drawn them. compute: computing steps took other than modelled. injection: rates changed
late. order: sequential resources served clients in another order, because they were ready within
the errors of each other; in a round that lost a client it is part of the rest. clock: hosts' clocks
have turned out to be apart, so that transfers seem longer one way and shorter the other; a round
begins and ends by the base station's clock alone, so its latency has no such part. rest: what
nothing above explains.
"""
PARTS_OF_LATENCY = tuple(part for part in PARTS if part != "clock")

_STARTS_AT_UAV, _ENDS_AT_UAV = (CF, CA, CB, CM), (SM, CF, SG, CB)
"""Steps whose start, or whose end, is a moment of the UAV's clock, and none of the base station's.
"""

KEYS = ["round", "client", "iteration", "step"]


def join(predicted: Timeline, measured: Timeline) -> pd.DataFrame:
    """Both timelines side by side: `KEYS`, then start_s, end_s, duration_s of each kind."""
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
    """What each cause adds to a round's latency; the parts add up to the difference exactly."""

    round: int
    predicted_s: float
    measured_s: float
    seconds: dict[str, float]
    """By part, see `PARTS_OF_LATENCY`."""
    steps: pd.DataFrame
    """The same for the duration of every step: `KEYS`, then one column a part of `PARTS`, in
    seconds."""


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
    transport: Transport | None = None,
    ahead_s: Array | None = None,
) -> Budget:
    """Split a round's difference by running the engine again with one measured thing after another.

    Args:
        predicted: The round as predicted from payload alone.
        measured: The round as it went.
        payload_plan: Plan with payload bytes.
        link_plan: Plan with the bytes of the frames on the link.
        radio: What turns a gain into a rate.
        gain: Shape [K, S] or for each direction, the whole trace.
        slot_s: Length of a slot.
        slot_edges_s: Shape [S + 1], when the rates really changed; None if that is not known.
        faults: What went wrong in it. Steps that not all have then have no parts.
        transport: What delays and losses mean for its transfers; None: there are neither.
        ahead_s: Shape [1 + K], by how much clocks of the base station and the UAVs were ahead of
            what they were taken for, in emulated seconds; None: there is one clock.
    """
    computed = measured_plan(measured, link_plan)
    service_order = measured_service_order(measured, link_plan)
    start_s = measured.start_s
    # What nodes took was measured with their slowness.
    rest = faults and faults.at_full_speed()
    edges: dict[str, Any] = {"slot_edges_s": slot_edges_s, "faults": rest}
    on_air: dict[str, Any] = {"transport": transport}

    def played(plan: RoundPlan, **given: Any) -> RoundTimes:
        return simulate(plan, radio, gain, slot_s, start_s, **given)

    stages: list[RoundTimes] = [
        played(payload_plan, faults=faults),
        played(link_plan, faults=faults),
        played(link_plan, faults=faults, transport=transport and transport.without_loss()),
        played(link_plan, faults=faults, **on_air),
        played(computed, faults=rest, **on_air),
        played(computed, **edges, **on_air),
        played(computed, **edges, **on_air, service_order=service_order),
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
    """The plan with computing steps as long as they really took, where they came to an end."""
    return replace(
        plan,
        cf_s=_durations(measured, CF, plan.cf_s),
        s_s=_durations(measured, S, plan.s_s),
        cb_s=_durations(measured, CB, plan.cb_s),
    )


def measured_service_order(measured: Round, plan: RoundPlan) -> npt.NDArray[np.int64]:
    """The order in which the server served; left to the rules in a round that lost a client, for
    the others' places depend on how far it came, and in an asynchronous one, where they depend on
    who came how often."""
    if measured.lost or plan.updates:
        return BY_RULES
    return service_order_of(measured.spans, plan.clients, plan.iterations)


def integral_end_s(rate_bps: Array, slot_s: float, start_s: float, bits: float) -> float:
    """When the integral of a link's rates has come to a transfer's bits; inf where it never does.

    Args:
        rate_bps: Shape [S], of each slot from time 0.
        slot_s: Length of a slot.
        start_s: When the transfer starts.
        bits: What it carries.
    """
    edges_s = np.arange(len(rate_bps) + 1) * slot_s
    carried = np.concatenate([[0.0], np.cumsum(rate_bps * slot_s)])
    end = np.interp(start_s, edges_s, carried) + bits
    # The first moment with that much: during an outage the integral stands still.
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
    transport: Transport | None = None,
) -> pd.DataFrame:
    """Every transfer of a round against the integral of its link's rates from its own start on.

    Args:
        measured: The round as it went.
        link_plan: Plan with the bytes of the frames on the link.
        radio: What turns a gain into a rate.
        gain: Shape [K, S] or for each direction, the whole trace; it must reach as far as the
            transfers.
        slot_s: Length of a slot.
        transport: Whose delay the last frame takes on top; windows and losses are part of the
            error.

    Returns:
        One row a transfer, but of those that were cut off, and of those that rates never carry: a
        host that was lost may have sent some after the moment from which its links count as silent.
        Columns: `KEYS`, start_s, duration_s, due_s (the integral's), rate_bps (its mean
        meanwhile), and error, the relative one.
    """
    rates = link_rates(link_plan, radio, gain)
    if transport is not None and transport.slots is not None:
        rates = rates.slowed(transport.slots)
    links = {
        SM: (
            rates.gradient if link_plan.updates else rates.broadcast,
            link_plan.sm_bytes.reshape(link_plan.clients, -1),
        ),
        CA: (rates.uplink, link_plan.ca_bytes),
        SG: (rates.gradient, link_plan.sg_bytes),
        CM: (rates.uplink, link_plan.cm_bytes.reshape(link_plan.clients, -1)),
    }
    rows = []
    for client, iteration, step, start_s, end_s, _ in measured.spans[~measured.cut].tolist():
        if step not in links:
            continue
        rate_bps, size = links[step]
        bits = 8 * size[client - 1, min(iteration, size.shape[1]) - 1]
        due_s = integral_end_s(rate_bps[client - 1], slot_s, start_s, bits)
        if math.isinf(due_s):
            continue
        mean_bps = bits / (due_s - start_s) if bits else np.nan
        if transport is not None:
            way = {SM: DOWN if link_plan.updates else BROADCAST, SG: DOWN}.get(step, UP)
            due_s += transport.delay_at(way, client, start_s)
        times_s = start_s, end_s - start_s, due_s - start_s
        rows.append((client, iteration, step, *times_s, mean_bps))
    columns = [*KEYS[1:], "start_s", "duration_s", "due_s", "rate_bps"]
    table = pd.DataFrame(rows, columns=columns)
    table["step"] = pd.Categorical.from_codes(table["step"], pd.Index(STEPS))
    table.insert(0, "round", measured.index)
    table["error"] = table["duration_s"] / table["due_s"] - 1
    return table


def calibration_in_short(table: pd.DataFrame) -> pd.DataFrame:
    """A calibration (see `orchestrator.emulated.calibration`), one row a direction and level of
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
    """The spans as they would have been noted by clocks that do not differ."""
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
    """Durations of a computing step, shape [K, I]: measured, or at least so long if it was cut."""
    durations = planned_s.copy()
    for was_cut in (True, False):
        spans = round_.spans[(round_.spans["step"] == step) & (round_.cut == was_cut)]
        at = spans["client"] - 1, spans["iteration"] - 1
        took_s = spans["end_s"] - spans["start_s"]
        durations[at] = np.maximum(durations[at], took_s) if was_cut else took_s
    return durations
