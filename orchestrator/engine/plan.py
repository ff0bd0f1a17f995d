# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Round plan: computing times and transfer sizes, before rates are known."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.scenario.schema import Emulation, Scenario
from testbed.core.orders import Prospects
from testbed.core.paradigm import Paradigm
from testbed.core.registry import failures
from testbed.transport import wire
from testbed.transport.framing import ETHERNET_BYTES, Framing
from testbed.transport.wire import GREETING_BYTES, RoundSizes
from workloads.costs.profile import SplitProfile

Array = npt.NDArray[np.float64]
FLOAT32_BYTES = 4

Split = int | tuple[int, ...]
"""One split point for all clients, or one for each client."""


@dataclass(frozen=True)
class Allocation:
    """The decision of a round: the split points, and the shares of resources."""

    split: Split
    """Number of parts of the model on the client, u; or one u_k per client if they differ."""
    alpha: Array
    """Shares of the server's computing speed, shape [K]."""
    beta: Array
    """Shares of the uplink bandwidth, and with parallel transmission of the downlink bandwidth,
    [K]."""
    rho: Array
    """Shares of the base station's transmit power with parallel transmission, [K]."""
    clients: tuple[int, ...] | None = None
    """Participating clients, from 1, among which the shares are divided; None: all. Policies do not
    set it."""

    def __post_init__(self) -> None:
        """Replace equal split points by one number."""
        if isinstance(self.split, list | tuple | np.ndarray):
            points = tuple(np.ravel(self.split).tolist())
            same = len(set(points)) == 1 and len(points) == len(np.ravel(self.alpha))
            object.__setattr__(self, "split", points[0] if same else points)

    def among(self, clients: Collection[int] | None) -> "Allocation":
        """The allocation for some of the clients, which divide the shares of the others among
        themselves."""
        if clients is None or len(clients) == len(self.beta):
            return self
        here = np.array(sorted(clients)) - 1

        def scaled(shares: Array) -> Array:
            return np.asarray(shares / shares[here].sum())

        shares = scaled(self.alpha), scaled(self.beta), scaled(self.rho)
        return Allocation(self.split, *shares, tuple(sorted(clients)))

    @property
    def splits(self) -> npt.NDArray[np.int64]:
        """Split points u_k, shape [K]."""
        return np.broadcast_to(np.array(self.split, np.int64), np.shape(self.beta))


@dataclass(frozen=True)
class RoundPlan:
    """One round for K clients and I local iterations.

    Durations are in emulated seconds, shape [K, I]. Transfers are in bytes: the payload as in the
    paper, or the frames of the link, depending on `sizing` of `plan_round`.
    """

    paradigm: Paradigm
    allocation: Allocation
    cf_s: Array
    """Client's forward pass of one batch."""
    cb_s: Array
    """Client's backward pass of one batch."""
    s_s: Array
    """Server's forward and backward pass of one batch: with the client's share, or with the whole
    server under sequential computing."""
    sm_bytes: npt.NDArray[np.int64]
    """Adapters that the base station broadcasts, shape [K]."""
    ca_bytes: npt.NDArray[np.int64]
    """Smashed data, shape [K, I]."""
    sg_bytes: npt.NDArray[np.int64]
    """Gradients, shape [K, I]."""
    cm_bytes: npt.NDArray[np.int64]
    """Adapters that each client sends back, shape [K]."""
    backward_ratio: float
    """Ratio ς; replaces the client's backward pass before the first iteration: τ_CB(0) = ς τ_CF(1).
    """
    compute_power_w: Array | float
    """Computing power ω f³ of each UAV, shape [K], or of all."""
    energy_weight: float
    """Weight λ of the objective."""
    unicast: bool = False
    """Whether each UAV is sent a copy of the broadcast of its own, as by TCP over a radio; the
    copies divide the downlink."""
    updates: int = 0
    """Number of updates of all rounds of an asynchronous run; 0 for other rounds.

    In an asynchronous run, every array but powers has shape [K, updates · I], with adapters where
    an update begins or ends; no client reaches all entries.
    """
    updates_per_round: int = 0
    """Number of updates of each round of an asynchronous run."""
    starts_after: int = 1
    """Number of updates after which a client of an asynchronous run that waits for them is sent the
    next model; 1: at once."""

    @property
    def iterations_of_update(self) -> int:
        """Iterations I of an update of an asynchronous run."""
        return self.iterations // self.updates

    @property
    def in_turns(self) -> bool:
        """Whether gradients use the whole downlink one after the other, instead of shares."""
        return self.paradigm.gradient_transmission == "sequential"

    @property
    def clients(self) -> int:
        """Number of clients, K."""
        return int(self.cf_s.shape[0])

    @property
    def iterations(self) -> int:
        """Number of iterations, I."""
        return int(self.cf_s.shape[1])


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
    """Bytes of one client's transfers: its adapters, and the smashed data of one batch."""

    adapters: int
    smashed: int
    gradient: int


Sizing = Callable[[Scenario, SplitProfile, int], Transfers]
"""Computes the bytes of a round's transfers at a split point."""


def payload_bytes(scenario: Scenario, profile: SplitProfile, split: int) -> Transfers:
    """Size of the tensors only, as in the paper."""
    values = scenario.workload.batch_size * profile.smashed_bytes[split - 1] // FLOAT32_BYTES
    with failures(f"workload.wire_dtype {scenario.workload.wire_dtype!r}"):
        smashed = scenario.workload.codec.size(values)
    return Transfers(profile.adapter_bytes[split - 1], smashed, smashed)


def link_bytes(scenario: Scenario, profile: SplitProfile, split: int) -> Transfers:
    """Bytes that the links carry: payload, headers, labels, transport protocol, and Ethernet
    frames.

    Where `emulation.rate_counts` is `payload`, frames have no overhead and only the stream counts.
    Where `emulation.air` is `ns3`, a frame is an IP packet.
    With a connection per transfer, the bytes that its sender needs to open it count, too.
    """
    payload = payload_bytes(scenario, profile, split)
    names = profile.adapter_header_bytes[split - 1]
    labels = scenario.workload.batch_size * profile.labels * wire.LABEL_BYTES
    return Transfers(
        adapters=transfer_bytes(scenario.emulation, names, payload.adapters),
        smashed=transfer_bytes(scenario.emulation, labels, payload.smashed),
        gradient=transfer_bytes(scenario.emulation, 0, payload.gradient),
    )


def round_sizes(scenario: Scenario, profile: SplitProfile, split: int) -> RoundSizes:
    """Sizes of a round's messages at a split point, for the nodes."""
    payload = payload_bytes(scenario, profile, split)
    return RoundSizes(
        adapters=payload.adapters,
        adapters_header=profile.adapter_header_bytes[split - 1],
        smashed=payload.smashed,
        labels=scenario.workload.batch_size * profile.labels,
        batches=scenario.iterations,
    )


def transfer_bytes(choices: Emulation, extra_bytes: int, payload_bytes: int) -> int:
    """Bytes on the link for a message with this many bytes in addition to its header."""
    kind = choices.transport_kind
    framing = Framing(
        choices.mtu,
        charges_headers=choices.rate_counts == "frame",
        ethernet_bytes=0 if choices.air == "ns3" else ETHERNET_BYTES,
    )
    head_bytes = wire.HEADER_BYTES + extra_bytes
    if choices.connection == "kept":
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
        scenario: Scenario with speeds, batch size and iterations.
        profile: Costs of each split.
        allocation: The round's decision.
        sizing: Function that computes bytes.
    """
    clients, iterations = scenario.uavs.count, scenario.iterations
    batch, ratio = scenario.workload.batch_size, scenario.workload.backward_ratio
    at = allocation.splits - 1
    forward_flops, server_flops = (
        np.array(flops, float)[at]
        for flops in (profile.client_forward_flops, profile.server_forward_flops)
    )
    forward_s = batch * forward_flops / scenario.fleet.compute_flops
    server_s = batch * (1 + ratio) * server_flops / scenario.base_station.compute_flops
    share = allocation.alpha if scenario.scheme.server_compute == "parallel" else np.ones(clients)
    of_split = {u: sizing(scenario, profile, u) for u in set(allocation.splits.tolist())}
    transfers = [of_split[u] for u in allocation.splits.tolist()]
    adapters, smashed, gradient = (
        np.array([getattr(each, name) for each in transfers], dtype=np.int64)
        for name in ("adapters", "smashed", "gradient")
    )

    def each(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The values of each client for all iterations, which would be many in an asynchronous run
        if they were copied."""
        if scenario.updates:
            return np.broadcast_to(values[:, None], (clients, iterations))
        return np.repeat(values[:, None], iterations, axis=1)

    if scenario.updates:
        adapters = each(adapters)
    section = scenario.workload.asynchronous
    waits = scenario.updates and section.start == "after-aggregation"
    cf_s = each(forward_s)
    return RoundPlan(
        paradigm=scenario.scheme,
        allocation=allocation,
        cf_s=cf_s,
        cb_s=each(ratio * forward_s),
        s_s=each(server_s / share),
        sm_bytes=adapters,
        ca_bytes=each(smashed),
        sg_bytes=each(gradient),
        cm_bytes=adapters,
        backward_ratio=ratio,
        compute_power_w=scenario.fleet.compute_power_w,
        energy_weight=scenario.objective.energy_weight,
        unicast=sizing is link_bytes and scenario.emulation.air == "ns3",
        updates=scenario.updates,
        updates_per_round=scenario.updates_per_round,
        starts_after=section.buffer if waits else 1,
    )


def prospects_of(plan: RoundPlan) -> Prospects:
    """The information for service orders about a round whose iterations are all equal."""

    def first(values: npt.NDArray[np.generic]) -> tuple[Any, ...]:
        return tuple((values if values.ndim == 1 else values[:, 0]).tolist())

    return Prospects(
        iterations=plan.iterations,
        forward_s=first(plan.cf_s),
        backward_s=first(plan.cb_s),
        server_s=first(plan.s_s),
        smashed_bytes=first(plan.ca_bytes),
        gradient_bytes=first(plan.sg_bytes),
        adapter_bytes=first(plan.cm_bytes),
    )
