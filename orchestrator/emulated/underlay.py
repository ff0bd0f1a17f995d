# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Checks whether the network between hosts carries the demand of a scenario's links."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from orchestrator.engine.access import LinkRates
from testbed.cluster.capacity import Flow
from testbed.cluster.messages import FlowsMeasured
from testbed.core.errors import InputError
from testbed.core.node import BS, NodeId
from testbed.network.fabric import TUNNEL_BYTES
from testbed.network.shaping import Shape

USABLE = 0.95
"""Usable share of the network's capacity; above it, tunnels delay each other, and rates are not
kept."""
RELAY_USABLE = 0.5
"""Usable share of the packet rate that a relay reached while its machine was almost idle."""
WAYS = 2
"""Packets per data packet: each has at most one acknowledgement."""


@dataclass(frozen=True)
class Demand:
    """Largest demand of the links on the network between hosts, with tunnel headers.

    All rates are in real bit/s.
    """

    centre: str
    """Host of the base station, where all links end."""
    by_host: Mapping[str, Flow]
    """Demand of each other host that has UAVs."""
    together: Flow
    """Demand of all hosts at the same time."""
    packets_s: Mapping[str, float]
    """Packets per second of each host that has an end of such a link: in both directions, with
    acknowledgements."""


def demand_of(
    rates: LinkRates,
    places: Mapping[NodeId, str],
    shape: Shape,
    dilation: float,
    *,
    in_turns: bool,
    broadcasts: bool,
    around_bytes: int = TUNNEL_BYTES,
) -> Demand:
    """The largest demand of a run's links over all slots.

    Args:
        rates: Rates of the slots that the run is expected to last, in emulated bit/s.
        places: The host of each node.
        shape: Shape of the links.
        dilation: Real seconds per emulated second.
        in_turns: Whether gradients are sent one after the other.
        broadcasts: Whether a round begins with all downlinks at the same time.
        around_bytes: Bytes of headers that are added to each IP packet.
    """
    outer = (shape.mtu + around_bytes) / shape.frame_bytes / dilation
    frames = np.vectorize(shape.packet_frames, otypes=[float])
    packets = LinkRates(*(way / (8 * shape.frame_bytes * frames(way)) / dilation for way in rates))

    def most(rates: LinkRates, clients: Collection[int]) -> tuple[float, float]:
        rows = [client - 1 for client in clients]
        up, broadcast, gradient = (way[rows] for way in rates)
        down = gradient.max(axis=0) if in_turns else gradient.sum(axis=0)
        most_down = float(down.max())
        if broadcasts:
            most_down = max(most_down, float(broadcast.sum(axis=0).max()))
        return most_down, float(up.sum(axis=0).max())

    def flow(clients: Collection[int]) -> Flow:
        return Flow(*(outer * bps for bps in most(rates, clients)))

    centre = places[BS]
    far: dict[str, list[int]] = {}
    for node, host in places.items():
        if host != centre:
            far.setdefault(host, []).append(node.client)
    by_host = {host: flow(clients) for host, clients in far.items()}
    all_ = [k for clients in far.values() for k in clients]
    packets_s = {
        host: WAYS * sum(most(packets, clients)) for host, clients in ({centre: all_} | far).items()
    }
    return Demand(centre, by_host, flow(all_), packets_s)


def check_relays(demand: Demand, packets_s: Mapping[str, float], dilation: float) -> None:
    """Refuse a scenario whose links need more than the relays of hosts can process.

    Args:
        demand: Demand of the links.
        packets_s: Capacity of each relay; empty where there are none.
        dilation: Real seconds per emulated second.

    Raises:
        InputError: The capacity is too small; the message names the key and the bottleneck.
    """
    for host, carried in sorted(
        packets_s.items(), key=lambda entry: entry[1] / demand.packets_s[entry[0]]
    ):
        needed = demand.packets_s[host]
        share = needed / max(RELAY_USABLE * carried, 1.0)
        if share > 1:
            raise InputError(
                f"emulation.dilation: must be at least {dilation * share * 1.005:.3g} on these "
                f"hosts: links need {needed:.0f} packets per second through the relay of host "
                f"{host}, with acknowledgements, and it processes {carried:.0f}, of which "
                f"{RELAY_USABLE:.0%} can be used; hosts with root use tunnels instead"
            )


def check_demand(demand: Demand, found: FlowsMeasured, dilation: float) -> None:
    """Refuse a scenario whose links need more than the network carries.

    Raises:
        InputError: The capacity is too small; the message names the key and the bottleneck.
    """
    flows = [(host, needed, found.alone[host]) for host, needed in demand.by_host.items()]
    if len(flows) > 1:
        flows.append((", ".join(demand.by_host), demand.together, found.together))
    ways = [
        way
        for far, needed, carried in flows
        for way in (
            (f"from {demand.centre} to {far}", needed.down_bps, carried.down_bps),
            (f"from {far} to {demand.centre}", needed.up_bps, carried.up_bps),
        )
    ]
    where, needed_bps, carried_bps = max(ways, key=lambda way: way[1] / max(way[2], 1.0))
    share = needed_bps / max(USABLE * carried_bps, 1.0)
    if share > 1:
        raise InputError(
            f"emulation.dilation: must be at least {dilation * share * 1.005:.3g} on these hosts: "
            f"links {where} need {needed_bps / 1e6:.4g} Mb/s with their headers, and the network "
            f"carries {carried_bps / 1e6:.4g} Mb/s, of which {USABLE:.0%} can be used"
        )
