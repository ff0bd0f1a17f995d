# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The slot-level engine: when every step of a round starts and ends.

`simulate` predicts any round. The paper's protocol without faults and without a model of TCP is
played by the compiled fast path (``core/round.h``), everything else by the conductor
(`orchestrator.rounds.conductor`). `simulate_batch` plays many rounds, each with its own
allocation, on the fast path.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from ns3_scenarios.trace import SlotValues, TraceExhausted
from orchestrator.engine.access import RadioAccess
from orchestrator.engine.arrays import Ints
from orchestrator.engine.core_library import (
    Links,
    Medium,
    Menu,
    Rules,
    Slots,
    Work,
    library,
    pointer,
)
from orchestrator.engine.faults import RoundFaults
from orchestrator.engine.orders import machine_code, refused
from orchestrator.engine.plan import Allocation, Array, RoundPlan, Sizing, payload_bytes, plan_round
from orchestrator.engine.tcp_model import TcpModel
from orchestrator.rounds.computed import OwnRates, SharedBand
from orchestrator.rounds.conductor import Conductor, MakeCarrier
from orchestrator.scenario.schema import Scenario
from testbed.core.orders import LARGER_LAG
from testbed.core.paradigm import Paradigm
from testbed.core.timeline import CA, CB, CF, CM, SG, SM, SPAN, Loss, Round, S
from workloads.costs.profile import SplitProfile

BY_RULES: Ints = np.empty((0, 0, 0), np.int64)
"""No service order given: the paradigm's rules decide who is served next."""

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
    """Costs of the rounds of one scenario before any decision; arrays have shape [u, K]."""

    common: RoundPlan
    """A round with the first split point and the whole server; its fields without a split point are
    those of all rounds."""
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
    shared_bytes: npt.NDArray[np.int64] | None
    """Bytes of the aggregated gradients; None: no gradients are aggregated."""
    asks_ca: npt.NDArray[np.bool_] | None
    """See `RoundPlan.asks_ca`."""

    @property
    def splits(self) -> int:
        """Number of split points."""
        return len(self.cf_s)

    @property
    def paradigm(self) -> Paradigm:
        """Paradigm of the rounds."""
        return self.common.paradigm

    @property
    def iterations_of(self) -> npt.NDArray[np.int64]:
        """Number of iterations I_k of each client, shape [K]."""
        return self.common.iterations_of

    @property
    def compute_power_w(self) -> Array:
        """Computing power of each client, shape [K]."""
        return np.broadcast_to(self.common.compute_power_w, self.common.clients)

    @property
    def energy_weight(self) -> float:
        """Weight λ of the objective."""
        return self.common.energy_weight

    def plan(self, allocation: Allocation) -> RoundPlan:
        """The plan of a round with this allocation, as `plan_round` makes it."""
        u, k = allocation.splits - 1, np.arange(self.common.clients)
        parallel = self.paradigm.server_compute == "parallel"
        share = allocation.alpha if parallel else np.ones(self.common.clients)

        def each(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return np.repeat(values[:, None], self.common.iterations, axis=1)

        clients = self.common.allocation.clients
        if allocation.clients != clients:
            allocation = replace(allocation, clients=clients)
        return replace(
            self.common,
            allocation=allocation,
            cf_s=each(self.cf_s[u, k]),
            cb_s=each(self.cb_s[u, k]),
            s_s=each(self.server_s[u, k] / share),
            sm_bytes=self.broadcast_bytes[u, k],
            ca_bytes=each(self.smashed_bytes[u, k]),
            sg_bytes=each(self.gradient_bytes[u, k]),
            cm_bytes=self.adapter_bytes[u, k],
            shared_bytes=None if self.shared_bytes is None else self.shared_bytes[u, k],
            asks_ca=None if self.asks_ca is None else self.asks_ca[u, k],
        )


def split_costs(
    scenario: Scenario,
    profile: SplitProfile,
    sizing: Sizing = payload_bytes,
    clients: Collection[int] | None = None,
) -> SplitCosts:
    """The costs of u = 1, 2, … as `plan_round` counts them.

    Args:
        scenario: Scenario of the rounds, which are synchronous.
        profile: Costs of each split.
        sizing: Function that computes bytes.
        clients: Indices of the participating clients, from 1, as in `Allocation.among`; the costs
            are those of these clients alone. None: all clients.
    """
    whole = np.ones(scenario.uavs.count)
    order = Allocation(1, whole, whole, whole).among(clients).clients
    at = np.arange(len(whole)) if order is None else np.array(sorted(order)) - 1
    plans = [
        plan_round(scenario, profile, Allocation(u, whole, whole, whole, order), sizing)
        for u in range(1, profile.splits + 1)
    ]

    def costs(values: Callable[[RoundPlan], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        return np.array([values(plan)[at] for plan in plans])

    first = plans[0]
    return SplitCosts(
        common=_of_clients(first, at),
        cf_s=costs(lambda plan: plan.cf_s[:, 0]),
        cb_s=costs(lambda plan: plan.cb_s[:, 0]),
        server_s=costs(lambda plan: plan.s_s[:, 0]),
        smashed_bytes=costs(lambda plan: plan.ca_bytes[:, 0]),
        gradient_bytes=costs(lambda plan: plan.sg_bytes[:, 0]),
        adapter_bytes=costs(lambda plan: plan.cm_bytes),
        broadcast_bytes=costs(lambda plan: plan.sm_bytes),
        shared_bytes=None if first.shared_bytes is None else costs(attrgetter("shared_bytes")),
        asks_ca=None if first.asks_ca is None else costs(attrgetter("asks_ca")),
    )


def _of_clients(plan: RoundPlan, at: npt.NDArray[np.int64]) -> RoundPlan:
    """A plan for only some of the clients, as a round of these alone; `at` counts from 0."""
    if len(at) == plan.clients:
        return plan
    own, order = plan.iterations_of[at], plan.allocation.clients
    shares = np.ones(len(at))
    clients = (
        None if order is None else tuple((np.searchsorted(at, np.array(order) - 1) + 1).tolist())
    )
    return replace(
        plan,
        allocation=Allocation(1, shares, shares, shares, clients),
        cf_s=plan.cf_s[at, : own.max()],
        compute_power_w=np.broadcast_to(plan.compute_power_w, plan.clients)[at],
        own_iterations=None if np.ptp(own) == 0 else own,
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
    begin: int = 0,
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
        begin: Number of the first slot of `gain`; see `SlotTrace.begin`.
        service_order: Shape [2, K, I], see `service_order_of`: in which order sequential stations
            serve, in place of the paradigm's rules.
        faults: Faults of the round; lost clients are dropped, regardless of the scenario's
            `on_loss`.
        tcp: Model of links with delay and loss; None: links without either.

    Raises:
        TraceExhausted: The round lasts longer than the trace.
        InputError: The paradigm's order, from a package, cannot be compiled or gives no number.
    """
    heard = gain if faults is None else faults.silenced(gain, begin)
    slots = Slots(heard, slot_s, slot_edges_s, begin)
    if plan.paradigm.is_plain and not plan.updates and faults is None and tcp is None:
        (times,) = repeated(plan, radio, slots, float(start_s), 1, service_order)
        return times
    if faults is not None and faults.absent.all() and not plan.updates:
        return _without_clients(plan, start_s, faults)
    return _conducted(plan, radio, slots, float(start_s), service_order, faults, tcp)


def repeated(
    plan: RoundPlan,
    radio: RadioAccess,
    slots: Slots,
    start_s: float,
    rounds: int,
    service_order: Ints = BY_RULES,
) -> list[RoundTimes]:
    """Rounds with the same plan on the fast path, each of which starts when the previous one ends.

    Args:
        plan: Plan of a synchronous round of the paper's protocol.
        radio: Radio that converts gains to rates.
        slots: The channel; slot 0 starts at t = 0.
        start_s: Start of the first round in s.
        rounds: Number of rounds. There are fewer if the slots are too few for all of them.
        service_order: See `simulate`.

    Raises:
        TraceExhausted: The slots are too few for the first round.
        InputError: The paradigm's order, from a package, gives no number in the first round.
    """
    sizes = plan.sm_bytes, plan.ca_bytes, plan.sg_bytes, plan.cm_bytes
    durations = plan.cf_s, plan.cb_s, plan.s_s
    work = Work(durations, sizes, plan.iterations_of, float(plan.backward_ratio))
    begin, end = np.full((2, rounds, plan.clients, 5 * plan.iterations + 2), np.nan)
    (starts_s, latency_s), energy_j = np.empty((2, rounds)), np.empty((rounds, plan.clients))
    turns = np.ascontiguousarray(service_order) if service_order.size else None
    medium = Medium(plan.clients) if radio.is_shared else None
    rules, links = _rules(plan.paradigm, plan.unicast), _links(plan, radio)
    played = library().engine_repeated(
        rules.address,
        work.address,
        slots.address,
        links.address,
        None if medium is None else medium.address,
        start_s,
        rounds,
        pointer(turns),
        *map(pointer, _powers(plan.compute_power_w, radio)),
        *map(pointer, (begin, end, starts_s, latency_s, energy_j)),
    )
    if not played:
        raise refused(plan.paradigm) if math.isnan(latency_s[0]) else TraceExhausted(slots.slots)
    latency_s, energy_j = latency_s[:played], energy_j[:played]
    end_s = starts_s[:played] + latency_s
    objective = latency_s + plan.energy_weight * energy_j.max(axis=1)
    spans = _spans(plan, begin[:played], end[:played])
    of_rounds = (each.tolist() for each in (end_s, latency_s, objective))
    return [
        RoundTimes(spans=spans[n], end_s=end, latency_s=took, energy_j=energy_j[n], objective=cost)
        for n, (end, took, cost) in enumerate(zip(*of_rounds, strict=True))
    ]


def _powers(compute_w: Array | float, radio: RadioAccess) -> tuple[Array, Array]:
    """Powers of computing and of uploads in W, [K] each."""
    uplink_w = np.ascontiguousarray(radio.uplink_power_w, float)
    return np.full(uplink_w.shape, compute_w, float), uplink_w


def _conducted(
    plan: RoundPlan,
    radio: RadioAccess,
    slots: Slots,
    start_s: float,
    service_order: Ints,
    faults: RoundFaults | None,
    tcp: TcpModel | None,
) -> RoundTimes:
    """A round, or all rounds of an asynchronous run, that the conductor plays."""
    paths = None if tcp is None else tcp.fresh(plan.transfers)
    links = _links(plan, radio)
    carrier: MakeCarrier = partial(OwnRates, slots=slots, links=links, paths=paths)
    if radio.is_shared:
        alone = plan.alone_on_downlink
        carrier = partial(SharedBand, slots=slots, links=links, paths=paths, alone=alone)
    given = service_order if service_order.size and plan.paradigm.is_plain else None
    times = conducted(Conductor(plan, start_s, carrier, faults, given), radio)
    return replace(times, windows=None if paths is None else paths.arrays["windows"])


def conducted(conductor: Conductor, radio: RadioAccess) -> RoundTimes:
    """Let a conductor play its round.

    Raises:
        TraceExhausted: The round lasts longer than the channel.
    """
    plan, faults, start_s = conductor.plan, conductor.faults, conductor.start_s
    spans, lost = conductor.play(), []
    end_s = conductor.end_s
    if faults is not None:
        lost = _losses(faults, conductor.lost_s)
        spans = cut(spans, lost, start_s)
        if not plan.updates and faults.is_empty(lost):
            end_s = faults.deadline_s
    counted = spans
    if plan.updates:
        counted = spans[spans["start_s"] < end_s]
        counted["end_s"] = np.minimum(counted["end_s"], end_s)
    energy_j, latency_s = energy_of(counted, plan, radio), end_s - start_s
    return RoundTimes(
        spans=spans,
        end_s=end_s,
        latency_s=latency_s,
        energy_j=energy_j,
        objective=latency_s + plan.energy_weight * float(energy_j.max()),
        lost=lost,
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
    return service_order


def energy_of(spans: npt.NDArray[np.void], plan: RoundPlan, radio: RadioAccess) -> Array:
    """Energy of each client [K] for the steps that it did: eq. (11)."""
    duration = spans["end_s"] - spans["start_s"]

    def total(chosen: npt.NDArray[np.bool_]) -> Array:
        found = np.bincount(spans["client"] - 1, duration * chosen, minlength=plan.clients)
        return found.astype(float)

    step = spans["step"]
    computing, sending = total((step == CF) | (step == CB)), total((step == CA) | (step == CM))
    return plan.compute_power_w * computing + radio.uplink_power_w * sending


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
    latency_s, starts_s = times.latency_s, times.spans["start_s"]
    return Round(
        index=index,
        paradigm=plan.paradigm.name,
        split=plan.allocation.split,
        start_s=float(starts_s.min() if len(starts_s) else times.end_s - latency_s),
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


@lru_cache(maxsize=16)
def _unplayed(clients: int, iterations: int) -> npt.NDArray[np.void]:
    """The steps of a round without their times and bytes, shape [1, K, 5 I + 2]."""
    spans = np.zeros((1, clients, 5 * iterations + 2), dtype=SPAN)
    spans["client"] = np.arange(1, clients + 1)[:, None]
    spans["iteration"] = np.concatenate(
        ([1], np.repeat(np.arange(1, iterations + 1), 5), [iterations])
    )
    spans["step"] = np.concatenate(([SM], np.tile([CF, CA, S, SG, CB], iterations), [CM]))
    return spans


def _spans(plan: RoundPlan, begin: Array, end: Array) -> npt.NDArray[np.void]:
    """The steps of N rounds, shape [N, steps], from their begins and ends [N, K, 5 I + 2]."""
    spans = np.repeat(_unplayed(plan.clients, plan.iterations), len(begin), axis=0)
    spans["start_s"], spans["end_s"] = begin, end
    sizes = spans["bytes"]
    sizes[..., 0], sizes[..., -1] = plan.sm_bytes, plan.cm_bytes
    sizes[..., CA:-1:5], sizes[..., SG:-1:5] = plan.ca_bytes, plan.sg_bytes
    if plan.own_iterations is None:
        return spans.reshape(len(spans), -1)
    # CM follows the last iteration of each client, and there is nothing after it.
    last: Ints = 5 * plan.own_iterations + 1
    everyone = np.arange(plan.clients)
    spans["step"][:, everyone, last] = CM
    spans["iteration"][:, everyone, last] = plan.own_iterations
    sizes[:, everyone, last] = plan.cm_bytes
    there = np.arange(begin.shape[2]) <= last[:, None]
    return np.ascontiguousarray(spans[:, there])


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
    *,
    follow: bool = False,
) -> BatchTimes:
    """N rounds, each with its own allocation.

    Args:
        costs: See `split_costs`.
        radio: Radio that converts gains to rates.
        gain: Shape [K, S]; slot 0 starts at t = 0.
        slot_s: Length of a slot.
        start_s: Start of the first round in s.
        split: Shape [N], u; or [N, K], u_k.
        alpha: Shares of the server, shape [N, K], like `beta` and `rho`.
        beta: Shares of the bandwidth.
        rho: Shares of the base station's power.
        follow: Whether rounds follow each other without a gap; if not, all of them start at
            `start_s`, to try N allocations on one round.

    Raises:
        TraceExhausted: A round lasts longer than the trace.
        InputError: The paradigm's order, from a package, cannot be compiled or gives no number.
    """
    rounds, clients = len(split), gain.shape[0]
    splits = np.broadcast_to(split if split.ndim == 2 else split[:, None], (rounds, clients))
    starts, latency = np.empty(rounds), np.zeros(rounds)
    energy, finish = np.empty((rounds, clients)), np.empty((rounds, clients))
    names = ["cf_s", "cb_s", "server_s", "smashed_bytes", "gradient_bytes"]
    names += ["adapter_bytes", "broadcast_bytes"]
    menu = Menu(**{name: getattr(costs, name) for name in names})
    common = costs.common
    shape, whole = (clients, common.iterations), np.empty(clients, np.int64)
    work = Work(
        [np.empty(shape) for _ in range(3)],
        [whole, np.empty(shape, np.int64), np.empty(shape, np.int64), whole.copy()],
        costs.iterations_of,
        float(common.backward_ratio),
    )
    rules, bands, slots = _rules(costs.paradigm), radio.bands(), Slots(gain, slot_s)
    equal = np.ones(clients)
    room = Links(bands, False, equal, equal)
    medium = Medium(clients) if radio.is_shared else None
    shares = [np.ascontiguousarray(each, float) for each in (alpha, beta, rho)]
    powers = _powers(costs.compute_power_w, radio)
    times = np.empty((2, clients, 5 * common.iterations + 2))
    splits = np.ascontiguousarray(splits, np.int64)
    played = library().engine_rounds(
        *(each.address for each in (rules, menu, work, bands, slots, room)),
        None if medium is None else medium.address,
        float(start_s),
        follow,
        rounds,
        *map(pointer, (splits, *shares, *powers, times[0], times[1])),
        *map(pointer, (starts, latency, energy, finish)),
    )
    if played < rounds:
        if math.isnan(latency[played]):
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
        order=machine_code(paradigm),
    )


def _links(plan: RoundPlan, radio: RadioAccess) -> Links:
    """The links of a round."""
    own = plan.uplink_shares
    uplink = None if own is plan.allocation else own.beta
    shares = plan.allocation
    return Links(radio.bands(), plan.in_turns, shares.beta, shares.rho, uplink)
