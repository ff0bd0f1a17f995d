# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The slot-level engine: when every step of a round starts and ends.

A client's round is a loop past two *stations* of the server, computing and downlink:

    SM | CF CA [computing] [downlink] CB | CF CA [computing] [downlink] CB | ... | CM

Between stations a client is on its own: its next arrival follows from durations and from the slot
integral of its uplink rate. A station is parallel (serves at once, with a share) or sequential
(serves one at a time with all it has, non-preemptively, from a priority queue), and a gate may hold
arrivals back until all K clients are there. The paradigm's fields choose; nothing else differs.

Ties. Events that are simultaneous in theory must not be separated by the last bit of a float.
Therefore moments and lags are compared in whole nanoseconds, while start and end times stay exact.
All events of one moment happen before a sequential station picks its next client. Larger lag is
served first, or the lowest rank if the paradigm has another order, then earlier arrival at the
station, then the lower client number.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ns3_scenarios.trace import SlotValues, TraceExhausted, TwoWay
from orchestrator.engine.access import RadioAccess
from orchestrator.engine.asynchronous import play_asynchronously
from orchestrator.engine.compiling import Ints, compiled, read_only
from orchestrator.engine.faults import RoundFaults
from orchestrator.engine.kernel import (
    BY_RULES,
    EVEN,
    Faults,
    Menu,
    Rules,
    Work,
    fill_energy,
    play_round,
    play_rounds,
)
from orchestrator.engine.medium import medium_of
from orchestrator.engine.orders import machine_code, refused
from orchestrator.engine.plan import Allocation, Array, RoundPlan, Sizing, payload_bytes, plan_round
from orchestrator.engine.protocol_round import play_protocol
from orchestrator.engine.radio_kernel import links_of
from orchestrator.engine.slots import EXHAUSTED, Slots
from orchestrator.engine.tcp_model import TcpModel
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.orders import LARGER_LAG
from testbed.core.paradigm import Paradigm
from testbed.core.timeline import CA, CB, CF, CM, SG, SM, SPAN, Loss, Round, S
from workloads.costs.profile import SplitProfile

# --- results -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RoundTimes:
    """When every step of one round started and ended."""

    spans: npt.NDArray[np.void]
    """Dtype `SPAN`, in absolute emulated times, by client, then start: all 5 I_k + 2 steps of each
    client, except the steps that a lost client never began."""
    end_s: float
    """End of the last adapter upload; of an asynchronous run, of the last one that counts, after
    which there may be further steps."""
    latency_s: float
    energy_j: Array
    """Shape [K], eq. (11)."""
    objective: float
    lost: Sequence[Loss] = ()
    """Clients that were lost, or absent from the start."""
    windows: Array | None = None
    """With a radio that grants resources: time for which the first windows of each transfer waited
    for acknowledgements, and the number of these windows, shape [2, 2, K, I + 1], by direction,
    client, and order: CA and then CM; SM and then SG."""


@dataclass(frozen=True)
class BatchTimes:
    """Outcomes of N rounds."""

    start_s: Array
    """Shape [N]."""
    latency_s: Array
    """Shape [N]."""
    energy_j: Array
    """Shape [N, K]."""
    objective: Array
    """Shape [N]."""
    finish_s: Array
    """Shape [N, K], from the start of the round to the end of each client's last upload."""


@dataclass(frozen=True)
class SplitCosts:
    """Costs of the rounds of one scenario before any decision; arrays have shape [u], and those of
    the clients' computing [u, K]."""

    paradigm: Paradigm
    iterations: int
    cf_s: Array
    cb_s: Array
    server_s: Array
    """Server forward and backward of one batch with the whole server."""
    smashed_bytes: npt.NDArray[np.int64]
    gradient_bytes: npt.NDArray[np.int64]
    adapter_bytes: npt.NDArray[np.int64]
    """Bytes of the adapters that a client sends."""
    broadcast_bytes: npt.NDArray[np.int64]
    """Bytes of the global adapters that a client receives."""
    backward_ratio: float
    compute_power_w: Array
    """Shape [K]."""
    energy_weight: float

    @property
    def splits(self) -> int:
        """Number of split points."""
        return len(self.cf_s)


def split_costs(
    scenario: Scenario, profile: SplitProfile, sizing: Sizing = payload_bytes
) -> SplitCosts:
    """The costs of u = 1, 2, … as `plan_round` counts them.

    Raises:
        InputError: The protocol of the rounds is not the paper's, or clients differ in batch size,
            local iterations or rank.
    """
    if not scenario.scheme.is_plain:
        raise InputError(
            f"{scenario.protocol_key}: decisions are computed for the paper's protocol"
        )
    for key in scenario.workload.differing_loads:
        raise InputError(f"workload.{key}: must be one number where split points are compared")
    whole = np.ones(scenario.uavs.count)
    plans = [
        plan_round(scenario, profile, Allocation(u, whole, whole, whole), sizing)
        for u in range(1, profile.splits + 1)
    ]
    return SplitCosts(
        paradigm=scenario.scheme,
        iterations=scenario.workload.largest("local_iterations"),
        cf_s=np.array([plan.cf_s[:, 0] for plan in plans]),
        cb_s=np.array([plan.cb_s[:, 0] for plan in plans]),
        server_s=np.array([plan.s_s[0, 0] for plan in plans]),
        smashed_bytes=np.array([plan.ca_bytes[0, 0] for plan in plans]),
        gradient_bytes=np.array([plan.sg_bytes[0, 0] for plan in plans]),
        adapter_bytes=np.array([plan.cm_bytes[0] for plan in plans]),
        broadcast_bytes=np.array([plan.sm_bytes[0] for plan in plans]),
        backward_ratio=scenario.workload.backward_ratio,
        compute_power_w=scenario.fleet.compute_power_w,
        energy_weight=scenario.objective.energy_weight,
    )


# --- one round -----------------------------------------------------------------------------------


def simulate(
    plan: RoundPlan,
    radio: RadioAccess,
    gain: SlotValues,
    slot_s: float,
    start_s: float = 0.0,
    *,
    slot_edges_s: Array | None = None,
    service_order: npt.NDArray[np.int64] = BY_RULES,
    faults: RoundFaults | None = None,
    tcp: TcpModel | None = None,
) -> RoundTimes:
    """Predict one round.

    Args:
        plan: The round's durations and bytes.
        radio: Radio that converts gains to rates.
        gain: Input of the radio for each slot, shape [K, S] or for each direction: linear gains, or
            rates; 0 is an outage. Slot s lasts from s slot_s to (s + 1) slot_s.
        slot_s: Length of a slot.
        start_s: Start of the round in s.
        slot_edges_s: Shape [S + 1], increasing: the moments at which the rates really changed, in
            place of the multiples of `slot_s`.
        service_order: Shape [2, K, I], see `service_order_of`: in which order sequential stations
            serve, in place of the paradigm's rules.
        faults: Faults of the round; lost clients are dropped, regardless of the scenario's
            `on_loss`.
        tcp: Model of links with delay and loss; None: links without either.

    Raises:
        TraceExhausted: The round lasts longer than the trace.
        InputError: The paradigm's order, from a package, cannot be compiled or gives no number.
    """
    refused_if_shared = plan.updates or not plan.paradigm.is_plain or (tcp and not tcp.grants)
    assert not radio.is_shared or not refused_if_shared
    slots = _slots(gain if faults is None else faults.silenced(gain), slot_s, slot_edges_s)
    if plan.updates:
        return _simulate_asynchronously(plan, radio, gain, slots, start_s, tcp, faults)
    if faults is not None and faults.absent.all():
        return _without_clients(plan, start_s, faults)
    if not plan.paradigm.is_plain:
        return _simulate_protocol(plan, radio, slots, start_s, tcp, faults)
    work = Work(
        plan.cf_s,
        plan.cb_s,
        plan.s_s,
        plan.sm_bytes,
        plan.ca_bytes,
        plan.sg_bytes,
        plan.cm_bytes,
        float(plan.backward_ratio),
        EVEN if plan.own_iterations is None else read_only(plan.own_iterations, np.int64),
    )
    rules, links = _rules(plan.paradigm, plan.unicast), _links(plan, radio)
    shape = (plan.clients, 5 * plan.iterations + 2)
    begin, end, energy = np.full(shape, np.nan), np.full(shape, np.nan), np.empty(plan.clients)
    medium = medium_of(plan.clients) if radio.is_shared else None
    wrong = None if faults is None else _for_kernel(faults)
    paths = None if tcp is None else tcp.fresh(plan.iterations + 1)
    order = machine_code(plan.paradigm)
    latency = play_round(
        rules,
        work,
        links,
        slots,
        wrong,
        paths,
        medium,
        float(start_s),
        order,
        service_order,
        begin,
        end,
    )
    if latency == EXHAUSTED:
        raise TraceExhausted(slots.values.shape[2])
    if math.isnan(latency):
        raise refused(plan.paradigm)
    spans, lost = _spans(plan, begin, end), []
    if faults is None or wrong is None:
        compute_w = np.full(plan.clients, plan.compute_power_w, float)
        fill_energy(work, read_only(compute_w), read_only(radio.uplink_power_w), begin, end, energy)
    else:
        lost = _losses(faults, wrong.lost_s)
        spans = cut(spans, lost, start_s)
        if faults.is_empty(lost):
            latency = faults.deadline_s - start_s
        energy = energy_of(spans, plan, radio)
    return RoundTimes(
        spans=spans,
        end_s=start_s + latency,
        latency_s=latency,
        energy_j=energy,
        objective=latency + plan.energy_weight * float(energy.max()),
        lost=lost,
        windows=None if paths is None else paths.windows,
    )


def _without_clients(plan: RoundPlan, start_s: float, faults: RoundFaults) -> RoundTimes:
    """A round whose clients were all lost before, which lasts until its deadline."""
    latency_s = faults.deadline_s - start_s
    return RoundTimes(
        spans=np.empty(0, SPAN),
        end_s=start_s + latency_s,
        latency_s=latency_s,
        energy_j=np.zeros(plan.clients),
        objective=latency_s,
        lost=_losses(faults, faults.lost_s),
    )


def _simulate_asynchronously(
    plan: RoundPlan,
    radio: RadioAccess,
    gain: SlotValues,
    slots: Slots,
    start_s: float,
    tcp: TcpModel | None,
    faults: RoundFaults | None,
) -> RoundTimes:
    links = _links(plan, radio)
    paths = None if tcp is None else tcp.fresh()
    spans, end_s, lost_s = play_asynchronously(plan, links, slots, paths, float(start_s), faults)
    lost = [] if faults is None else _losses(faults, lost_s)
    if faults is not None:
        spans = cut(spans, lost, start_s)
    counted = spans[spans["start_s"] < end_s]
    counted["end_s"] = np.minimum(counted["end_s"], end_s)
    energy_j = energy_of(counted, plan, radio)
    return _times(plan, spans, energy_j, start_s, end_s - start_s, lost)


def _simulate_protocol(
    plan: RoundPlan,
    radio: RadioAccess,
    slots: Slots,
    start_s: float,
    tcp: TcpModel | None,
    faults: RoundFaults | None,
) -> RoundTimes:
    links = _links(plan, radio)
    uplinks = links
    if plan.uplink_shares is not plan.allocation:
        uplinks = _links(replace(plan, allocation=plan.uplink_shares), radio)
    paths = None if tcp is None else tcp.fresh()
    spans, end_s, lost_s = play_protocol(plan, links, uplinks, slots, paths, start_s, faults)
    lost = [] if faults is None else _losses(faults, lost_s)
    if faults is not None:
        spans = cut(spans, lost, start_s)
    energy_j = energy_of(spans, plan, radio)
    return _times(plan, spans, energy_j, start_s, end_s - start_s, lost)


def _times(
    plan: RoundPlan,
    spans: npt.NDArray[np.void],
    energy_j: Array,
    start_s: float,
    latency_s: float,
    lost: Sequence[Loss],
) -> RoundTimes:
    return RoundTimes(
        spans=spans,
        end_s=start_s + latency_s,
        latency_s=latency_s,
        energy_j=energy_j,
        objective=latency_s + plan.energy_weight * float(energy_j.max()),
        lost=lost,
    )


def _losses(faults: RoundFaults, lost_s: Array) -> list[Loss]:
    """The losses of those clients [K] that were lost, at the given times."""
    return [
        faults.loss(client, float(at_s))
        for client, at_s in enumerate(lost_s, 1)
        if math.isfinite(at_s)
    ]


def service_order_of(
    spans: npt.NDArray[np.void], clients: int, iterations: int
) -> npt.NDArray[np.int64]:
    """Places in the order in which computing and downlink served, shape [2, K, I], from 0.

    Args:
        spans: A round's steps, dtype `SPAN`.
        clients: K.
        iterations: I.
    """
    service_order = np.zeros((2, clients, iterations), np.int64)
    for station, step in enumerate((S, SG)):
        served = np.sort(spans[spans["step"] == step], order=["start_s", "end_s", "client"])
        service_order[station, served["client"] - 1, served["iteration"] - 1] = np.arange(
            len(served)
        )
    service_order.flags.writeable = False  # as `_read_only`
    return service_order


def energy_of(spans: npt.NDArray[np.void], plan: RoundPlan, radio: RadioAccess) -> Array:
    """Energy of each client [K] for the steps that it did: eq. (11)."""
    duration = spans["end_s"] - spans["start_s"]

    def total(*steps: int) -> Array:
        chosen = np.isin(spans["step"], steps)
        return np.bincount(
            spans["client"][chosen] - 1, duration[chosen], minlength=plan.clients
        ).astype(float)

    return plan.compute_power_w * total(CF, CB) + radio.uplink_power_w * total(CA, CM)


def _for_kernel(faults: RoundFaults) -> Faults:
    """Arrays that compiled code reads and writes."""
    return Faults(
        faults.absent,
        faults.stop_s,
        faults.lost_s.copy(),
        faults.wrong_s,
        np.array([wrong == "duplicate-frame" for wrong in faults.wrong]),
        faults.slow[np.argsort(faults.slow[:, 0], kind="stable")],
    )


def cut(spans: npt.NDArray[np.void], lost: Sequence[Loss], start_s: float) -> npt.NDArray[np.void]:
    """The spans of a round without steps that lost clients did not begin or finish."""
    kept = np.isfinite(spans["start_s"])
    for loss in lost:
        own = spans["client"] == loss.client
        at_server = np.isin(spans["step"], (SM, S, SG))
        until_s = np.where(at_server, loss.lost_s, loss.stopped_s)
        kept &= ~own | ((spans["start_s"] <= until_s) & (loss.lost_s > start_s))
        spans["end_s"][own] = np.minimum(spans["end_s"], until_s)[own]
    left: npt.NDArray[np.void] = spans[kept]
    return left


def round_of(index: int, plan: RoundPlan, times: RoundTimes) -> Round:
    """The round as an entry of a timeline; rounds count from 0."""
    latency_s = times.latency_s
    return Round(
        index=index,
        paradigm=plan.paradigm.name,
        split=plan.allocation.split,
        start_s=float(times.spans["start_s"][0] if len(times.spans) else times.end_s - latency_s),
        latency_s=latency_s,
        energy_j=times.energy_j,
        objective=times.objective,
        spans=times.spans,
        lost=times.lost,
    )


def round_of_spans(
    index: int,
    plan: RoundPlan,
    radio: RadioAccess,
    start_s: float,
    spans: npt.NDArray[np.void],
    lost: Sequence[Loss] = (),
    faults: RoundFaults | None = None,
) -> Round:
    """A round made from given spans (dtype `SPAN`, in any order), not from a simulation."""
    spans = np.sort(spans, order=["client", "start_s", "end_s"])
    energy_j = energy_of(spans, plan, radio)
    end_s = max([*spans["end_s"].tolist(), *(loss.lost_s for loss in lost)])
    if faults is not None and faults.is_empty(lost):
        end_s = faults.deadline_s
    uploads = np.sort(spans["end_s"][spans["step"] == CM])
    if plan.updates and len(uploads) >= plan.updates:
        end_s = float(uploads[plan.updates - 1])
    latency_s = end_s - start_s
    return Round(
        index=index,
        paradigm=plan.paradigm.name,
        split=plan.allocation.split,
        start_s=start_s,
        latency_s=latency_s,
        energy_j=energy_j,
        objective=latency_s + plan.energy_weight * float(energy_j.max()),
        spans=spans,
        lost=lost,
    )


def _spans(plan: RoundPlan, begin: Array, end: Array) -> npt.NDArray[np.void]:
    iterations = plan.iterations
    spans = np.zeros(begin.shape, dtype=SPAN)
    spans["client"] = np.arange(1, plan.clients + 1)[:, None]
    spans["iteration"] = np.concatenate(
        ([1], np.repeat(np.arange(1, iterations + 1), 5), [iterations])
    )
    spans["step"] = np.concatenate(([SM], np.tile([CF, CA, S, SG, CB], iterations), [CM]))
    spans["start_s"], spans["end_s"] = begin, end
    spans["bytes"][:, 0], spans["bytes"][:, -1] = plan.sm_bytes, plan.cm_bytes
    spans["bytes"][:, CA:-1:5] = plan.ca_bytes
    spans["bytes"][:, SG:-1:5] = plan.sg_bytes
    if plan.own_iterations is None:
        return spans.ravel()
    # CM follows the last iteration of each client, and there is nothing after it.
    last: Ints = 5 * plan.own_iterations + 1
    everyone = np.arange(plan.clients)
    spans["step"][everyone, last] = CM
    spans["iteration"][everyone, last] = plan.own_iterations
    spans["bytes"][everyone, last] = plan.cm_bytes
    there = np.arange(begin.shape[1])[None] <= last[:, None]
    return spans.ravel()[there.ravel()]


# --- many rounds ---------------------------------------------------------------------------------


def simulate_batch(
    costs: SplitCosts,
    radio: RadioAccess,
    gain: SlotValues,
    slot_s: float,
    start_s: float,
    split: npt.NDArray[np.int64],
    alpha: Array,
    beta: Array,
    rho: Array,
) -> BatchTimes:
    """N allocations tried on one and the same round.

    Args:
        costs: See `split_costs`.
        radio: Radio that converts gains to rates.
        gain: Shape [K, S]; slot 0 starts at t = 0.
        slot_s: Length of a slot.
        start_s: Common start of all N rounds in s.
        split: Shape [N], u; or [N, K], u_k.
        alpha: Shares of the server, shape [N, K], like `beta` and `rho`.
        beta: Shares of the bandwidth.
        rho: Shares of the base station's power.

    Raises:
        TraceExhausted: A round lasts longer than the trace.
    """
    return _many(costs, radio, gain, slot_s, start_s, split, alpha, beta, rho, follow=False)


def simulate_chain(
    costs: SplitCosts,
    radio: RadioAccess,
    gain: SlotValues,
    slot_s: float,
    start_s: float,
    split: npt.NDArray[np.int64],
    alpha: Array,
    beta: Array,
    rho: Array,
) -> BatchTimes:
    """N rounds that follow each other without a gap, each with its own allocation.

    Arguments and errors as `simulate_batch`; `start_s` is when the first round starts.
    """
    return _many(costs, radio, gain, slot_s, start_s, split, alpha, beta, rho, follow=True)


def _many(
    costs: SplitCosts,
    radio: RadioAccess,
    gain: SlotValues,
    slot_s: float,
    start_s: float,
    split: npt.NDArray[np.int64],
    alpha: Array,
    beta: Array,
    rho: Array,
    *,
    follow: bool,
) -> BatchTimes:
    rounds, clients = len(split), gain.shape[0]
    splits = np.broadcast_to(split if split.ndim == 2 else split[:, None], (rounds, clients))
    starts, latency = np.empty(rounds), np.zeros(rounds)
    energy, finish = np.empty((rounds, clients)), np.empty((rounds, clients))
    complete = play_rounds(
        _rules(costs.paradigm),
        Menu(
            costs.cf_s,
            costs.cb_s,
            costs.server_s,
            costs.smashed_bytes,
            costs.gradient_bytes,
            costs.adapter_bytes,
            costs.broadcast_bytes,
            float(costs.backward_ratio),
        ),
        costs.iterations,
        read_only(costs.compute_power_w),
        radio.bands(),
        read_only(radio.uplink_power_w),
        _slots(gain, slot_s, None),
        float(start_s),
        follow,
        machine_code(costs.paradigm),
        read_only(splits, np.int64),
        read_only(alpha),
        read_only(beta),
        read_only(rho),
        medium_of(clients) if radio.is_shared else None,
        starts,
        latency,
        energy,
        finish,
    )
    if not complete:
        if np.isnan(latency).any():
            raise refused(costs.paradigm)
        raise TraceExhausted(gain.shape[1])
    objective = latency + costs.energy_weight * energy.max(axis=1)
    return BatchTimes(starts, latency, energy, objective, finish)


def _rules(paradigm: Paradigm, unicast: bool = False) -> Rules:
    return Rules(
        parallel=(
            paradigm.server_compute == "parallel",
            paradigm.gradient_transmission == "parallel",
        ),
        gated=(paradigm.compute_waits_for_all, paradigm.transmission_waits_for_all),
        by_lag=paradigm.order == LARGER_LAG,
        unicast=unicast,
    )


@compiled
def _links_of(bands: Any, in_turns: bool, beta: Array, rho: Array) -> Any:
    return links_of(bands, in_turns, beta, rho)


def _links(plan: RoundPlan, radio: RadioAccess) -> Any:
    """The links of a round, for compiled code."""
    beta, rho = read_only(plan.allocation.beta), read_only(plan.allocation.rho)
    return _links_of(radio.bands(), plan.in_turns, beta, rho)


def _slots(gain: SlotValues, slot_s: float, edges_s: Array | None) -> Slots:
    edges = np.empty(0) if edges_s is None else edges_s
    if not isinstance(gain, TwoWay):
        return Slots(read_only(gain[None]), float(slot_s), read_only(edges))
    fading = None if gain.fading is None else read_only(gain.fading, np.float32)
    cells = None if gain.cells is None else read_only(gain.cells, np.int64)
    return Slots(read_only(gain.values), float(slot_s), read_only(edges), fading, cells)
