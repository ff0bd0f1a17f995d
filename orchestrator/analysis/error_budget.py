# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Joins predicted and measured timelines, and attributes their differences to causes."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ns3_scenarios.trace import SlotValues
from orchestrator.analysis.byte_accounts import (
    BYTES,
    HEADERS_BYTES,
    RESENT,
    STEP_OF,
    UDP_HEADERS_BYTES,
)
from orchestrator.analysis.radio_log import RadioLog
from orchestrator.analysis.shared_air import due_ends_s
from orchestrator.engine.access import RadioAccess
from orchestrator.engine.faults import RoundFaults
from orchestrator.engine.plan import Array, RoundPlan
from orchestrator.engine.radio import Rates
from orchestrator.engine.rates import link_rates
from orchestrator.engine.slot_impairments import BROADCAST, DOWN, UP
from orchestrator.engine.tcp_model import SerialLines, TcpModel
from orchestrator.rounds.simulation import (
    BY_RULES,
    RoundTimes,
    round_of,
    service_order_of,
    simulate,
)
from orchestrator.rounds.windows import latencies_s
from testbed.core.timeline import CA, CB, CF, CM, SG, SM, STEPS, Round, S, Timeline
from testbed.transport.framing import ETHERNET_BYTES

RADIO_PARTS = ("grant", "request", "harq", "recovery", "handover", "outage", "radio")
"""Parts that exist only where packets pass through ns3's radio, which has a log."""
CODEC = "codec"
"""Part that exists only with codecs whose sizes depend on the data."""
PARTS = (
    *("start", "framing", CODEC, "delay", "loss", "compute", "injection", "order"),
    *(*RADIO_PARTS, "clock", "rest"),
)
"""Causes of the difference between a measured and a predicted round, in order of evaluation.

start: the round began at another time, and therefore in other slots. framing: headers, labels and
frames around the payload; with `emulation.air: ns3` also that each UAV is sent a copy of the
broadcast of its own. codec: the real sizes of encoded tensors, which are below the predicted bounds
where a codec's sizes depend on the data. delay: the links' delay, including TCP windows that wait
for it; with `emulation.air: ns3` that of grants. loss: lost frames, as drawn by the engine.
compute: deviations of computing steps from their model. injection: late rate changes. order:
sequential resources served clients in another order, because they were ready at almost the same
time; in a round with a lost client this is part of the rest. clock: clock offsets between hosts,
which make transfers seem longer in one direction and shorter in the other; a round's latency has no
such part, because it is measured with the base station's clock. rest: unexplained.

With the log of a radio, there are `RADIO_PARTS`: the activity of the radio during each transfer,
in comparison with the prediction; see `orchestrator.analysis.radio_log.Activity` for the times on
which they are based. request: the time in which data waited for a scheduling request, less that of
the prediction. grant: the time in which data waited for the first transport block, less that
of the prediction, where data wait once at the beginning and once after each window that waits.
harq: the time of retransmissions of lost blocks, and of waiting for them with nothing else to send.
recovery: where TCP has sent lost data again, the time with an empty queue, less the prediction's.
handover: the time from the last packet before a change of the cell to the first one after it, less
that of the prediction. outage: the time from the beginning of an outage of either direction until
data are sent after it, less the outage itself where the prediction waits for it, too.
radio: the time in which the queue was served, less the time that the transfer takes at the rates of
the prediction: positive if the scheduler granted less than in the model, or if TCP sent some data
twice. The rest is then the time with an empty queue, less the prediction's delivery and windows:
TCP or the program offered no data, or packets came late after the last grant. For each transfer,
these parts and the rest add up to its measured duration less its duration in the last stage of the
simulation. For a round, the simulation is repeated with the transfers' durations of that stage and
one part more each time.
"""
PARTS_OF_LATENCY = tuple(part for part in PARTS if part not in ("clock", CODEC, *RADIO_PARTS))
"""Parts of a round's latency without the log of a radio, and with codecs of fixed sizes."""

_TRANSFERS = (SM, CA, SG, CM)
_GIVEN_BPS = 8e9
"""Rate in bit/s at which a byte takes one nanosecond."""
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
    """By part of the round's latency, in the order of `PARTS`: its contribution, s."""
    steps: pd.DataFrame
    """Contributions to the duration of every step, s: `KEYS`, then one column per part, in the
    order of `PARTS`."""
    of_rounds: Sequence[dict[str, float]] = ()
    """`seconds` of each round, if this is the budget of all rounds of an asynchronous run."""


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
    radio_log: RadioLog | None = None,
    accounts: pd.DataFrame | None = None,
    real_plan: RoundPlan | None = None,
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
        ahead_s: Emulated seconds by which the clocks of the base station and the UAVs were ahead of
            their assumed values, shape [1 + K]; None: there is one clock.
        radio_log: Log of the radio's grants; None: there are no `RADIO_PARTS`.
        accounts: The round's accounts; see `radio_stages`.
        real_plan: `link_plan` with the real sizes; None: they are those of the plan.
    """
    framed, link_plan = link_plan, real_plan or link_plan
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
        played(framed, faults=faults),
        *([] if real_plan is None else [played(real_plan, faults=faults)]),
        played(link_plan, faults=faults, tcp=tcp and tcp.without_loss()),
        played(link_plan, faults=faults, **impairments),
        played(computed, faults=rest, **impairments),
        played(computed, **edges, **impairments),
        played(computed, **edges, **impairments, service_order=service_order),
    ]
    absent: tuple[str, ...] = () if radio_log is not None else RADIO_PARTS
    absent += () if real_plan is not None else (CODEC,)
    parts = tuple(part for part in PARTS if part not in absent)
    durations = [_by_step(s) for s in (predicted.spans, *(s.spans for s in stages))]
    if radio_log is not None:
        assert tcp is not None
        for took_s, times in radio_stages(
            *(measured, computed, stages[-1], tcp, radio_log, service_order, slot_s, rest),
            accounts,
        ):
            durations.append(took_s)
            stages.append(times)
    latencies = latencies_of([predicted, *stages, measured], link_plan)
    noted = _by_step(measured.spans)
    misread = noted - _by_step(_by_one_clock(measured.spans, ahead_s))
    ordered = durations[-1]
    durations += [ordered + misread.reindex(ordered.index, fill_value=0.0), noted]
    table = pd.DataFrame(
        {
            part: after - before
            for part, (before, after) in zip(parts, pairwise(durations), strict=True)
        }
    )
    steps = table.reset_index()
    steps["step"] = pd.Categorical.from_codes(steps["step"], pd.Index(STEPS))
    steps.insert(0, "round", measured.index)
    named = [p for p in parts if p != "clock"]
    in_rounds = np.diff(latencies, axis=0)
    return Budget(
        round=measured.index,
        predicted_s=predicted.latency_s,
        measured_s=measured.latency_s,
        seconds=dict(zip(named, in_rounds.sum(axis=1).tolist(), strict=True)),
        steps=steps,
        of_rounds=[dict(zip(named, of_round, strict=True)) for of_round in in_rounds.T.tolist()]
        if link_plan.updates
        else (),
    )


def latencies_of(played: Sequence[Round | RoundTimes], plan: RoundPlan) -> Array:
    """Latency of each round of an asynchronous run, or of the only round, shape [played, rounds].

    Args:
        played: The same rounds, simulated or measured.
        plan: Plan of the rounds.
    """
    if not plan.updates:
        return np.array([[each.latency_s] for each in played])
    sessions = [each if isinstance(each, Round) else round_of(0, plan, each) for each in played]
    return np.stack([latencies_s(session, plan) for session in sessions])


def radio_stages(
    measured: Round,
    plan: RoundPlan,
    modelled: RoundTimes,
    tcp: TcpModel,
    log: RadioLog,
    service_order: npt.NDArray[np.int64],
    slot_s: float,
    faults: RoundFaults | None,
    accounts: pd.DataFrame | None = None,
) -> Iterator[tuple["pd.Series[float]", RoundTimes]]:
    """Repeat a round with one more of `RADIO_PARTS` added to its transfers' durations each time.

    Args:
        measured: The measured round.
        plan: Plan of the round, with the measured durations of computing.
        modelled: The round as simulated with all other measured values.
        tcp: The TCP model of the round.
        log: Log of the radio's grants.
        service_order: See `simulate`.
        slot_s: Length of a slot, s.
        faults: Faults in the round, without slow nodes.
        accounts: The round's accounts, from `orchestrator.analysis.byte_accounts`, which show where
            TCP has sent lost data again; None: nowhere.

    Yields:
        For each part, the duration of each step, by client, iteration and step, and the times of
        the round.
    """
    took_s = _by_step(modelled.spans)
    parts = _radio_parts(measured, modelled, log, tcp, accounts).reindex(took_s.index).fillna(0.0)
    ends_s = [modelled.end_s, measured.end_s]
    slots = math.ceil((max(ends_s) + float(parts.abs().to_numpy().sum())) / slot_s) + 1
    links, rates_bps = Rates(np.ones(plan.clients)), np.full((plan.clients, slots), _GIVEN_BPS)
    for part in RADIO_PARTS:
        took_s = took_s + parts[part]
        times = simulate(
            _with_durations(plan, took_s),
            links,
            rates_bps,
            slot_s,
            measured.start_s,
            faults=faults,
            tcp=tcp.with_given_durations(),
            service_order=service_order,
        )
        yield took_s, times


def _radio_parts(
    measured: Round,
    modelled: RoundTimes,
    log: RadioLog,
    tcp: TcpModel,
    accounts: pd.DataFrame | None,
) -> pd.DataFrame:
    """The `RADIO_PARTS` of each transfer that was measured, by client, iteration and step.

    Args:
        measured: The measured round.
        modelled: The round as simulated with all other measured values.
        log: Log of the radio's grants.
        tcp: The TCP model of the round.
        accounts: See `radio_stages`.
    """
    assert modelled.windows is not None
    assert tcp.grants is not None
    repairs = set[tuple[str, int]]()
    if accounts is not None:
        again = accounts[accounts["resent_lost_bytes"] > 0]
        repairs = set(zip(again["direction"], again["client"], strict=True))
    took_s = _by_step(modelled.spans).to_dict()
    modelled_s = {tuple(span)[:3]: tuple(span)[3:5] for span in modelled.spans.tolist()}
    rows = []
    for client, iteration, step, start_s, end_s, _ in measured.spans[~measured.cut].tolist():
        key = client, iteration, step
        if step not in _TRANSFERS or not math.isfinite(took_s.get(key, math.nan)):
            continue
        way = DOWN if step in (SM, SG) else UP
        request_s, delivery_s, taken_s = (
            log.times.tti_s * ttis[way]
            for ttis in (log.times.request, log.times.delivery, log.times.taken)
        )
        request_s += tcp.grants.request_s[way]
        place = {SM: 0, CA: iteration - 1, SG: iteration, CM: iteration}[step]
        windows_s, windows = modelled.windows[:, way, client - 1, place].tolist()
        did = log.link(way, client).activity(start_s, end_s)
        out_s = log.out_between_s(way, client, *modelled_s[key])
        served_s = took_s[key] - request_s - delivery_s - windows_s - out_s
        once_s = request_s + taken_s
        waits_s = once_s + min(windows * once_s, windows_s)
        asks_s = waits_s / once_s * tcp.grants.request_s[way]
        idles_s = took_s[key] - served_s - out_s - waits_s
        repaired_s = did.idle_s - idles_s if (("up", "down")[way], client) in repairs else 0.0
        rows.append(
            (
                *(*key, did.waiting_s - (waits_s - asks_s), did.request_s - asks_s, did.harq_s),
                *(repaired_s, did.handover_s, did.outage_s - out_s, did.served_s - served_s),
            )
        )
    return pd.DataFrame(rows, columns=[*KEYS[1:], *RADIO_PARTS]).set_index(KEYS[1:])


def _with_durations(plan: RoundPlan, took_s: "pd.Series[float]") -> RoundPlan:
    """The plan of a round whose transfers have given durations, at `_GIVEN_BPS` for each link.

    Args:
        plan: The plan, with the durations of computing.
        took_s: Duration of each step.
    """

    def sizes(step: int, planned: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        of_step = took_s[took_s.index.get_level_values("step") == step].clip(lower=0).dropna()
        given = np.zeros((plan.clients, plan.iterations))
        at = (of_step.index.get_level_values(name) - 1 for name in ("client", "iteration"))
        given[tuple(at)] = of_step
        if planned.ndim == 1:
            last = plan.iterations_of - 1
            given = given[np.arange(plan.clients), last if step == CM else 0]
        return np.rint(given * _GIVEN_BPS / 8).astype(np.int64)

    return replace(
        plan,
        sm_bytes=sizes(SM, plan.sm_bytes),
        ca_bytes=sizes(CA, plan.ca_bytes),
        sg_bytes=sizes(SG, plan.sg_bytes),
        cm_bytes=sizes(CM, plan.cm_bytes),
        unicast=False,
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
    """The measured order of service. If the round lost a client or is no plain one, the rules
    decide instead: a client's place then depends on the progress of lost clients, or on how often
    each client was served."""
    if measured.lost or plan.updates or not plan.paradigm.is_plain:
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
    radio_log: RadioLog | None = None,
    accounts: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Compare every transfer of a round with the integral of its link's rates from its start on.

    Where active links divide the band, the rates follow from the measured starts of all transfers.
    With the log of a radio, a transfer is compared with the grants instead of the rates.

    Args:
        measured: The measured round.
        link_plan: Plan with the bytes on the link.
        radio: Parameters that convert gains to rates.
        gain: Gains of the whole trace, shape [K, S] or for each direction; it must contain the
            transfers.
        slot_s: Length of a slot, s.
        tcp: Model whose delay is added for the last frame; windows and losses are part of the
            error. Over serial lines without delay and loss, transfers are due at the times of the
            model, including acknowledgements.
        radio_log: Log of the radio's grants. A transfer is then due when the new transport blocks
            since its start have carried its bytes (`LinkLog.due_s`).
        accounts: The round's accounts, from `orchestrator.analysis.byte_accounts`: a transport may
            send other bytes than the plan has. A transfer that ends between the times at which both
            sizes are due is due when it ends.

    Returns:
        One row per transfer of tensors, without those that were cut off and those that the rates
        never carry: a lost host may have sent some after the time from which its links count as
        silent.
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
    if link_plan.shared_bytes is not None:
        # With gradients of the client's own, SG has two transfers; otherwise it is a broadcast.
        gradients = links.pop(SG)
        if not link_plan.own_gradients:
            links[SG] = rates.broadcast, gradients[1]
    shared_s = {}
    if radio_log is None:
        shared_s = due_ends_s(measured, link_plan, radio, gain, slot_s)
    lines = None
    if tcp is not None and tcp.receipt_bits and not tcp.impaired:
        lines = SerialLines(tcp, rates, slot_s)
    sizes = _counted_bytes(link_plan, accounts, ETHERNET_BYTES if radio_log is None else 0)
    rows = []
    for client, iteration, step, start_s, end_s, payload in measured.spans[~measured.cut].tolist():
        if step not in links or not payload:  # Adapters of no bytes: only a header is sent.
            continue
        rate_bps, size = links[step]
        bits = 8 * size[client - 1, min(iteration, size.shape[1]) - 1]
        of_gradients = DOWN if link_plan.shared_bytes is None else BROADCAST
        way = {SM: DOWN if link_plan.updates else BROADCAST, SG: of_gradients}.get(step, UP)
        place = iteration if step in (CA, SG) else 0
        counted_bits = 8 * sizes.get((client, step, place), bits // 8)
        if radio_log is not None:
            link, both = radio_log.link(min(way, DOWN), client), (bits, counted_bits)
            due_s = min(link.due_s(start_s, max(both) / 8), end_s)
            # One that ends before its bytes were sent would be due with the next transfer's.
            if (sent := 8 * link.sent_bytes(start_s, end_s)) < min(both):
                due_s = start_s + (end_s - start_s) * min(both) / sent if sent else math.inf
            if math.isfinite(due_s):
                times_s = start_s, end_s - start_s, due_s - start_s
                mean_bps = bits / (due_s - start_s)
                rows.append((client, iteration, step, *times_s, mean_bps))
            continue
        due_s = shared_s.get((client, iteration, step), math.nan)
        if lines is not None:
            due_s = lines.end_s(way, client, bits // 8, start_s)
        elif math.isnan(due_s):
            due_s = integral_end_s(rate_bps[client - 1], slot_s, start_s, bits)
        if math.isinf(due_s):
            continue
        mean_bps = bits / (due_s - start_s) if bits else np.nan
        if tcp is not None:
            due_s += tcp.delay_at(way, client, start_s)
        other_s = (counted_bits - bits) / mean_bps if bits and step != SM else 0.0
        due_s = min(max(end_s, due_s + min(other_s, 0.0)), due_s + max(other_s, 0.0))
        times_s = start_s, end_s - start_s, due_s - start_s
        rows.append((client, iteration, step, *times_s, mean_bps))
    columns = [*KEYS[1:], "start_s", "duration_s", "due_s", "rate_bps"]
    table = pd.DataFrame(rows, columns=columns)
    table["step"] = pd.Categorical.from_codes(table["step"], pd.Index(STEPS))
    table.insert(0, "round", measured.index)
    table["error"] = table["duration_s"] / table["due_s"] - 1
    return table


def _counted_bytes(
    plan: RoundPlan, accounts: pd.DataFrame | None, ethernet_bytes: int
) -> dict[tuple[int, int, int], int]:
    """Bytes that a node counted on its link for each transfer, by client, step, and iteration of CA
    and SG.

    Frames without data are not among them, nor retransmissions of frames that were not lost on the
    channel. There is nothing where several messages are of one step.

    Args:
        plan: Plan of the round.
        accounts: See `transfer_errors`.
        ethernet_bytes: Bytes of a frame's Ethernet header that the link charges.
    """
    found: dict[tuple[int, int, int], int] = {}
    if accounts is None or plan.updates or plan.shared_bytes is not None:
        return found
    rows = accounts[accounts["kind"].isin(list(STEP_OF))]
    header_bytes = np.where(rows["quic_bytes"] > 0, UDP_HEADERS_BYTES, HEADERS_BYTES)
    without = {"ack_bytes", *RESENT} - {"resent_lost_bytes"}
    size = rows[[name for name in BYTES if name not in without]].sum(axis=1)
    size -= (ETHERNET_BYTES - ethernet_bytes) * (rows["header_bytes"] // header_bytes)
    for client, iteration, kind, each in zip(
        rows["client"], rows["iteration"], rows["kind"], size, strict=True
    ):
        step = STEPS.index(STEP_OF[kind])
        found[int(client), step, int(iteration) if step in (CA, SG) else 0] = int(each)
    return found


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
