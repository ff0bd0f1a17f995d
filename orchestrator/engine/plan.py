# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Round plan: computing times and transfer sizes, before rates are known."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.scenario.combinations import check
from orchestrator.scenario.facts import KEEPS_LAST
from orchestrator.scenario.schema import LOADS, Emulation, Scenario, Workload
from testbed.core.orders import Ahead, Prospects
from testbed.core.paradigm import Paradigm
from testbed.core.registry import failures
from testbed.core.timeline import CA, CM, SG, SM
from testbed.transport import wire
from testbed.transport.framing import ETHERNET_BYTES, Framing
from testbed.transport.wire import GREETING_BYTES, RoundSizes
from workloads.codecs.codec import Direction
from workloads.costs.profile import SplitProfile

Array = npt.NDArray[np.float64]
FLOAT32_BYTES = 4

Split = int | tuple[int, ...]
"""One split point for all clients, or one for each client."""


@dataclass(frozen=True)
class Allocation:
    """The decision for a round: split points, shares of resources, and further values of UAVs,
    which are those of the scenario if they are None."""

    split: Split
    """Number of parts of the model on the client, u; or one u_k per client if they differ."""
    alpha: Array
    """Shares of the server's computing speed, shape [K]."""
    beta: Array
    """Shares of the uplink bandwidth, and, with parallel transmission, also of the downlink
    bandwidth, shape [K]."""
    rho: Array
    """Shares of the base station's transmit power, for parallel transmission, shape [K]."""
    clients: tuple[int, ...] | None = None
    """Indices of the participating clients, starting from 1, in the order of their scheduled
    uploads. The shares are divided among them. None: all clients, or those that `participation`
    chooses."""
    tx_power_w: Array | None = None
    """Transmit power of each UAV in W, shape [K], at most `uavs.tx_power_w`."""
    compute_flops: Array | None = None
    """Computing speed of each UAV in FLOP/s, shape [K], at most `uavs.compute_flops`. The computing
    power follows its third power, as ω f³ does."""
    batch_size: npt.NDArray[np.int64] | None = None
    """Samples per batch of each UAV, shape [K]."""
    local_iterations: npt.NDArray[np.int64] | None = None
    """Number of local iterations of each UAV, shape [K]."""
    position_m: Array | None = None
    """Way points to which UAVs fly from the start of the round on, shape [K, 3] or [K, n, 3], with
    `mobility.model: guided`. None: they go on to those of earlier rounds, and then hover."""

    def __post_init__(self) -> None:
        """Replace equal split points by one number."""
        if isinstance(self.split, list | tuple | np.ndarray):
            points = tuple(np.ravel(self.split).tolist())
            same = len(set(points)) == 1 and len(points) == len(np.ravel(self.alpha))
            object.__setattr__(self, "split", points[0] if same else points)

    def among(self, clients: Collection[int] | None) -> "Allocation":
        """The allocation for only some of the clients. The shares of the other clients are divided
        among them."""
        if clients is None:
            return self
        order = tuple(clients) if isinstance(clients, Sequence) else tuple(sorted(clients))
        if order == tuple(range(1, len(self.beta) + 1)):
            return self
        here = np.array(sorted(order)) - 1

        def scaled(shares: Array) -> Array:
            return np.asarray(shares / shares[here].sum())

        alpha, beta, rho = scaled(self.alpha), scaled(self.beta), scaled(self.rho)
        return replace(self, alpha=alpha, beta=beta, rho=rho, clients=order)

    @property
    def splits(self) -> npt.NDArray[np.int64]:
        """Split points u_k, shape [K]."""
        return np.broadcast_to(np.array(self.split, np.int64), np.shape(self.beta))


@dataclass(frozen=True)
class RoundPlan:
    """One round for K clients and I local iterations.

    Durations are in emulated seconds, shape [K, I]. Sizes of transfers are in bytes. Depending on
    the argument `sizing` of `plan_round`, they count only the payload, as in the paper, or the
    whole frames on the link.
    """

    paradigm: Paradigm
    allocation: Allocation
    cf_s: Array
    """Duration of the client's forward pass for one batch."""
    cb_s: Array
    """Duration of the client's backward pass for one batch."""
    s_s: Array
    """Duration of the server's forward and backward pass for one batch, with the client's share of
    the server, or with the whole server if computing is sequential."""
    sm_bytes: npt.NDArray[np.int64]
    """Bytes of the adapters that the base station broadcasts, shape [K]."""
    ca_bytes: npt.NDArray[np.int64]
    """Smashed data, shape [K, I]."""
    sg_bytes: npt.NDArray[np.int64]
    """Gradients, shape [K, I]."""
    cm_bytes: npt.NDArray[np.int64]
    """Bytes of the adapters that each client sends back, shape [K]."""
    backward_ratio: float
    """Ratio ς. The duration τ_CB(0) = ς τ_CF(1) is assumed for the client's backward pass before
    the first iteration.
    """
    compute_power_w: Array | float
    """Computing power ω f³ of each UAV, shape [K], or one value for all UAVs."""
    energy_weight: float
    """Weight λ of the objective."""
    shared_bytes: npt.NDArray[np.int64] | None = None
    """Bytes of the aggregated gradients, shape [K]. They are broadcast and are included in
    `sg_bytes`. None: no gradients are aggregated."""
    own_gradients: bool = True
    """Whether each client is also sent gradients of its own if some gradients are aggregated."""
    asks_ca: npt.NDArray[np.bool_] | None = None
    """Whether each client requests permission before it uploads smashed data, shape [K]; None: no
    client does."""
    unicast: bool = False
    """Whether each UAV is sent a separate copy of the broadcast, as with TCP over a radio. The
    copies share the downlink."""
    updates: int = 0
    """Total number of updates in all rounds of an asynchronous run; 0 for other runs.

    In an asynchronous run, every array but powers has shape [K, updates · I], with adapters where
    an update begins or ends; no client reaches all entries.
    """
    own_iterations: npt.NDArray[np.int64] | None = None
    """Number of iterations I_k of each client (in an asynchronous run, of each of its updates),
    shape [K]. I is the largest of these numbers; entries beyond a client's I_k are not used. None:
    I iterations for all clients."""
    updates_per_round: int = 0
    """Number of updates in each round of an asynchronous run."""
    starts_after: int = 1
    """In an asynchronous run: number of updates after which a waiting client is sent the next
    model; 1: at once."""

    @property
    def iterations_of_update(self) -> int:
        """Number of iterations I per update in an asynchronous run. If it differs between clients,
        this is the largest number."""
        return self.iterations // self.updates

    @property
    def iterations_of(self) -> npt.NDArray[np.int64]:
        """Number of iterations I_k of each client (in an asynchronous run, of each of its updates),
        shape [K]."""
        if self.own_iterations is not None:
            return self.own_iterations
        return np.full(self.clients, self.iterations // max(1, self.updates))

    @property
    def in_turns(self) -> bool:
        """Whether gradients use the whole downlink one after the other, instead of sharing it."""
        return self.paradigm.gradient_transmission == "sequential"

    @property
    def alone_on_downlink(self) -> frozenset[int]:
        """Steps whose transfers use the whole downlink one after the other: gradients in turns, and
        then also the adapters of an asynchronous run."""
        if not self.in_turns:
            return frozenset()
        return frozenset((SM, SG) if self.updates else (SG,))

    @property
    def transfers(self) -> int:
        """Largest number of transfers of a client in one direction."""
        shared = 0 if self.shared_bytes is None else self.iterations
        return self.iterations + max(1, self.updates) + shared

    @property
    def uplink_shares(self) -> Allocation:
        """The allocation for the uplinks. With sequential uploads, each client has the full
        bandwidth."""
        if self.paradigm.uplink == "parallel":
            return self.allocation
        return replace(self.allocation, beta=np.ones(self.clients))

    @property
    def clients(self) -> int:
        """Number of clients, K."""
        return int(self.cf_s.shape[0])

    @property
    def iterations(self) -> int:
        """Number of iterations, I."""
        return int(self.cf_s.shape[1])


OF_FLEET, OF_WORKLOAD = ("tx_power_w", "compute_flops"), ("batch_size", "local_iterations")
"""Decisions that replace keys of these names in the sections `uavs` and `workload`."""
LOADED = (*OF_FLEET, *OF_WORKLOAD)
"""All decisions with a number per UAV in addition to shares."""


def decided(scenario: Scenario, allocation: Allocation) -> Scenario:
    """The scenario of a round: what the allocation decides has replaced the keys of `uavs` and
    `workload`."""

    def given(names: Sequence[str]) -> dict[str, list[Any]]:
        found = {name: getattr(allocation, name) for name in names}
        return {name: np.asarray(v).tolist() for name, v in found.items() if v is not None}

    uavs, workload = given(OF_FLEET), given(OF_WORKLOAD)
    if not uavs and not workload:
        return scenario
    if "compute_flops" in uavs:
        fleet = scenario.fleet
        share = np.asarray(allocation.compute_flops) / fleet.compute_flops
        uavs["compute_power_w"] = (fleet.compute_power_w * share**3).tolist()
    sections = dict(scenario) | {
        "uavs": scenario.uavs.model_copy(update=uavs),
        "workload": scenario.workload.model_copy(update=workload),
    }
    # Not a copy, which would keep the fleet that the scenario has derived.
    return type(scenario).model_construct(**sections)


def split_of(scenario: Scenario) -> Split:
    """The split point of the scenario, or one for each client."""
    split = scenario.workload.split
    return split if isinstance(split, int) else tuple(split)


def fixed_allocation(scenario: Scenario) -> Allocation:
    """The split and shares of the scenario itself."""
    equal = np.full(scenario.uavs.count, 1 / scenario.uavs.count)

    def shares(value: list[float] | str) -> Array:
        return equal if isinstance(value, str) else np.array(value, dtype=float)

    return Allocation(
        split=split_of(scenario),
        alpha=shares(scenario.allocation.alpha),
        beta=shares(scenario.allocation.beta),
        rho=shares(scenario.allocation.rho),
    )


@dataclass(frozen=True)
class Transfers:
    """Bytes of one client's transfers: its adapters, and the data of one batch."""

    adapters: int
    """Bytes of the global adapters that the client receives."""
    smashed: int
    gradient: int
    """Bytes of all gradients of the batch, including aggregated ones."""
    shared: int = 0
    """Aggregated gradients, which are broadcast to all clients."""
    adapters_up: int = -1
    """Bytes of the adapters that the client sends. Default: the same number as it receives."""

    def __post_init__(self) -> None:
        """Set the default."""
        if self.adapters_up < 0:
            object.__setattr__(self, "adapters_up", self.adapters)


Sizing = Callable[[Scenario, SplitProfile, int, int], Transfers]
"""Computes the bytes of a round's transfers at a split point for a client, from 1."""


def payload_bytes(
    scenario: Scenario, profile: SplitProfile, split: int, client: int = 1
) -> Transfers:
    """Size of the tensors only, as in the paper; vectors that accompany adapters count, too."""
    workload, travelling = scenario.workload, scenario.workload.travelling
    adapters = profile.of_rank(workload.of_client("lora_rank", client)).adapter_bytes[split - 1]
    batch, sample = workload.of_client("batch_size", client), profile.smashed_bytes[split - 1]
    aggregated = workload.aggregated_samples
    shared, own = (
        _encoded(workload, "gradient", samples * sample // FLOAT32_BYTES) if samples else 0
        for samples in (aggregated, batch - aggregated)
    )
    return Transfers(
        adapters=_encoded(workload, "adapters_down", adapters // FLOAT32_BYTES, adapters)
        * (1 + len(travelling.down)),
        smashed=_encoded(workload, "smashed", batch * sample // FLOAT32_BYTES),
        gradient=shared + own,
        shared=shared,
        adapters_up=_encoded(workload, "adapters_up", adapters // FLOAT32_BYTES, adapters)
        * (1 + len(travelling.up)),
    )


def _encoded(workload: Workload, direction: Direction, values: int, plain: int = 0) -> int:
    """Bytes of a direction's values; `plain` if it has no codec."""
    if (codec := workload.codec_for(direction)) is None:
        return plain
    named = workload.codecs.named(direction)
    key = "wire_dtype" if named is None else f"codecs.{direction}"
    with failures(f"workload.{key} {workload.wire_dtype if named is None else named[0]!r}"):
        return codec.size(values)


def link_bytes(scenario: Scenario, profile: SplitProfile, split: int, client: int = 1) -> Transfers:
    """Bytes that the links carry: payload, headers, labels, transport protocol, and Ethernet
    frames.

    If `emulation.rate_counts` is `payload`, frames have no overhead and only the stream counts. If
    `emulation.air` is `ns3`, a frame is an IP packet. With a connection per transfer, the bytes
    that its sender needs to open it count, too.
    """
    sizes = round_sizes(scenario, profile, split, client)
    names, labels = sizes.adapters_header, sizes.labels * wire.LABEL_BYTES
    shared, own = sizes.shared_gradient, sizes.gradient
    shared = transfer_bytes(scenario.emulation, 0, shared) if shared else 0
    own = transfer_bytes(scenario.emulation, 0, own) if own or not shared else 0
    return Transfers(
        adapters=transfer_bytes(scenario.emulation, names, sizes.adapters),
        smashed=transfer_bytes(scenario.emulation, labels, sizes.smashed),
        gradient=shared + own,
        shared=shared,
        adapters_up=transfer_bytes(scenario.emulation, names, sizes.adapters_up),
    )


def round_sizes(
    scenario: Scenario, profile: SplitProfile, split: int, client: int = 1
) -> RoundSizes:
    """Sizes of a client's messages in a round at a split point, for the nodes."""
    payload, workload = payload_bytes(scenario, profile, split, client), scenario.workload
    own = profile.of_rank(workload.of_client("lora_rank", client))
    return RoundSizes(
        adapters=payload.adapters,
        adapters_header=own.adapter_header_bytes[split - 1],
        smashed=payload.smashed,
        labels=workload.of_client("batch_size", client) * profile.labels,
        batches=workload.of_client("local_iterations", client) * max(1, scenario.updates),
        encoded_up=payload.adapters_up,
        encoded_gradient=payload.gradient - payload.shared,
        shared_gradient=payload.shared,
        varying=() if workload.compute == "none" else workload.varying_sizes,
    )


def with_measured_bytes(
    plan: RoundPlan,
    spans: npt.NDArray[np.void],
    sizes: Sequence[RoundSizes],
    emulation: Emulation | None = None,
) -> RoundPlan:
    """The plan of a round with the real sizes of the transfers that have ended, where codecs make
    sizes that depend on the data.

    Args:
        plan: The plan, with bounds of these sizes.
        spans: The measured steps that were finished, with payload bytes.
        sizes: Sizes of each client's messages.
        emulation: Choices on which the bytes on the link depend; None: only the payload counts.
    """
    names = {SM: "sm_bytes", CA: "ca_bytes", SG: "sg_bytes", CM: "cm_bytes"}
    real = {name: getattr(plan, name).copy() for name in names.values()}
    for client, iteration, step, _, _, size in spans.tolist():
        own = sizes[client - 1]
        if step not in names or DIRECTION_OF[step] not in own.varying:
            continue
        extra = {CA: own.labels * wire.LABEL_BYTES, SG: 0}.get(step, own.adapters_header)
        array = real[names[step]]
        place = client - 1 if array.ndim == 1 else (client - 1, iteration - 1)
        array[place] = size if emulation is None else transfer_bytes(emulation, extra, size)
    return replace(plan, **real)


DIRECTION_OF: dict[int, Direction] = {
    SM: "adapters_down",
    CA: "smashed",
    SG: "gradient",
    CM: "adapters_up",
}
"""By transfer: the direction of its codec."""


def transfer_bytes(
    choices: Emulation, extra_bytes: int, payload_bytes: int, *, answers: bool = False
) -> int:
    """Bytes on the link for a message with this many bytes in addition to its header.

    `answers`: it returns on the connection of another message, so that it opens none.
    """
    kind = choices.transport_kind
    framing = Framing(
        choices.mtu,
        charges_headers=choices.rate_counts == "frame",
        ethernet_bytes=0 if choices.air == "ns3" else ETHERNET_BYTES,
    )
    head_bytes = wire.HEADER_BYTES + extra_bytes
    if choices.connection == "kept" or answers:
        return kind.link_bytes(framing, head_bytes, payload_bytes)
    head_bytes += GREETING_BYTES
    return kind.opening_bytes(framing) + kind.link_bytes(framing, head_bytes, payload_bytes)


def plan_round(
    scenario: Scenario,
    profile: SplitProfile,
    allocation: Allocation,
    sizing: Sizing = payload_bytes,
) -> RoundPlan:
    """The plan of one round, with the durations of the paper's equations for steps 2, 4, 5 and 7.

    Args:
        scenario: Scenario with speeds, batch size and iterations, unless the allocation has them.
        profile: Costs of each split.
        allocation: The round's decision.
        sizing: Function that computes bytes.

    Raises:
        InputError: The batches of a client differ in size.
    """
    scenario = decided(scenario, allocation)
    if KEEPS_LAST(scenario):
        check(scenario, "times")
    clients, iterations = scenario.uavs.count, scenario.iterations
    workload, ratio = scenario.workload, scenario.workload.backward_ratio
    points = allocation.splits.tolist()
    loads: list[list[Any]] = [
        given if isinstance(given := getattr(workload, key), list) else [given] * clients
        for key in LOADS
    ]
    batch, own_iterations = (np.array(values) for values in loads[:2])
    # Equal clients have equal costs, which are computed once.
    kinds = list(zip(points, *loads, strict=True))
    first_of: dict[tuple[Any, ...], int] = {}
    for client, kind in enumerate(kinds, start=1):
        first_of.setdefault(kind, client)
    numbers = {kind: number for number, kind in enumerate(first_of)}
    of_client = np.array([numbers[kind] for kind in kinds])
    own = [(profile.of_rank(rank), u) for u, _, _, rank in first_of]
    forward_flops, server_flops = (
        np.array([getattr(each, name)[u - 1] for each, u in own], float)[of_client]
        for name in ("client_forward_flops", "server_forward_flops")
    )
    forward_s = batch * forward_flops / scenario.fleet.compute_flops
    server_s = batch * (1 + ratio) * server_flops / scenario.base_station.compute_flops
    aggregated = scenario.workload.aggregated_samples
    if aggregated:
        # The server propagates one gradient for all clients for each aggregated sample.
        clients_here = clients if allocation.clients is None else len(allocation.clients)
        backward = batch - aggregated + aggregated / clients_here
        work = (batch + ratio * backward) * server_flops
        server_s = work / scenario.base_station.compute_flops
    share = allocation.alpha if scenario.scheme.server_compute == "parallel" else np.ones(clients)
    transfers = [sizing(scenario, profile, kind[0], k) for kind, k in first_of.items()]
    broadcast, smashed, gradient, shared, adapters = (
        np.array([getattr(sizes, name) for sizes in transfers], dtype=np.int64)[of_client]
        for name in ("adapters", "smashed", "gradient", "shared", "adapters_up")
    )
    asks_ca = None
    if scenario.scheme.asks == "all":
        payload = [payload_bytes(scenario, profile, kind[0], k) for kind, k in first_of.items()]
        asks_ca = np.array([sizes.smashed > 0 for sizes in payload])[of_client]

    def each(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The values of each client for all iterations, without copies: an asynchronous run has
        many iterations."""
        if scenario.updates:
            return np.broadcast_to(values[:, None], (clients, iterations))
        return np.repeat(values[:, None], iterations, axis=1)

    if scenario.updates:
        broadcast, adapters = each(broadcast), each(adapters)
    section = scenario.workload.asynchronous
    waits = scenario.updates and section.start == "after-aggregation"
    cf_s = each(forward_s)
    return RoundPlan(
        paradigm=scenario.scheme,
        allocation=allocation,
        cf_s=cf_s,
        cb_s=each(ratio * forward_s),
        s_s=each(server_s / share),
        sm_bytes=broadcast,
        ca_bytes=each(smashed),
        sg_bytes=each(gradient),
        cm_bytes=adapters,
        backward_ratio=ratio,
        compute_power_w=scenario.fleet.compute_power_w,
        energy_weight=scenario.objective.energy_weight,
        shared_bytes=shared if aggregated else None,
        own_gradients=bool((aggregated < batch).all()),
        asks_ca=asks_ca,
        unicast=sizing is link_bytes and scenario.emulation.air == "ns3",
        updates=scenario.updates,
        own_iterations=own_iterations if workload.differs("local_iterations") else None,
        updates_per_round=scenario.updates_per_round,
        starts_after=section.buffer if waits else 1,
    )


def remaining_work(
    plan: RoundPlan, client: int, iteration: int, uplink_bps: float, downlink_bps: float
) -> Ahead:
    """Remaining work of a client in an iteration, both from 1, at these rates."""
    k, i, last = client - 1, iteration - 1, int(plan.iterations_of[client - 1])
    later = slice(iteration, last)
    turns_s = plan.cf_s[k, later] + plan.s_s[k, later] + plan.cb_s[k, later]
    return Ahead(
        plan.clients,
        last,
        float(plan.s_s[k, i]),
        float(plan.cb_s[k, i] + turns_s.sum()),
        float(plan.sg_bytes[k, i]),
        float(plan.cm_bytes[k] + plan.ca_bytes[k, later].sum()),
        float(plan.sg_bytes[k, i:last].sum()),
        uplink_bps,
        downlink_bps,
    )


def prospects_of(plan: RoundPlan) -> Prospects:
    """The information for service orders about a round, or an update of an asynchronous run, in
    which a client's iterations are equal."""

    def first(values: npt.NDArray[np.generic]) -> tuple[Any, ...]:
        return tuple((values if values.ndim == 1 else values[:, 0]).tolist())

    return Prospects(
        iterations=int(plan.iterations_of.max()),
        forward_s=first(plan.cf_s),
        backward_s=first(plan.cb_s),
        server_s=first(plan.s_s),
        smashed_bytes=first(plan.ca_bytes),
        gradient_bytes=first(plan.sg_bytes),
        adapter_bytes=first(plan.cm_bytes),
        own_iterations=() if plan.own_iterations is None else tuple(plan.own_iterations.tolist()),
        model_bytes=first(plan.sm_bytes) if plan.updates else (),
    )
