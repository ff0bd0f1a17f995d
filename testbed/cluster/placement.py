# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Placement of nodes on hosts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.core.errors import InputError
from testbed.core.node import BS, NodeId

Placement = str | Mapping[str, Sequence[str]]
"""`spread`, `pack`, or the nodes of each host, by host name."""


@dataclass(frozen=True)
class Resources:
    """Resources of a host."""

    cores: int
    gpus: int = 0


def place(
    asked: Placement,
    nodes: Sequence[NodeId],
    hosts: Mapping[str, Resources],
    *,
    on_gpu: bool = False,
) -> dict[NodeId, str]:
    """Assign a host to every node.

    `spread` assigns each node to the host with the fewest nodes per core so far; `pack` fills one
    host after the other, those with most cores first, with one node per core; if all are full, the
    remaining nodes are spread. The base station is placed first, and on a host with a GPU if it
    computes on one.

    Args:
        asked: The scenario's `emulation.placement`.
        nodes: All nodes; the first is the base station.
        hosts: Resources of each host, by name.
        on_gpu: Whether the base station computes on a GPU.

    Raises:
        InputError: A host is unknown, a node has none or two hosts, or no host has a GPU.
    """
    if not isinstance(asked, str):
        return _named(asked, nodes, hosts)
    load = dict.fromkeys(hosts, 0)
    order = sorted(hosts, key=lambda name: (-hosts[name].cores, name))
    found: dict[NodeId, str] = {}
    for node in nodes:
        fit = [h for h in order if hosts[h].gpus or node != BS or not on_gpu]
        if not fit:
            raise InputError("base_station.device: no host has a GPU")
        free = [h for h in fit if load[h] < hosts[h].cores]
        if asked == "pack" and free:
            host = free[0]
        else:
            host = min(fit, key=lambda h: (load[h] + 1) / hosts[h].cores)
        found[node] = host
        load[host] += 1
    return found


def _named(
    asked: Mapping[str, Sequence[str]], nodes: Sequence[NodeId], hosts: Mapping[str, Resources]
) -> dict[NodeId, str]:
    found: dict[NodeId, str] = {}
    for host, names in asked.items():
        if host not in hosts:
            there = ", ".join(sorted(hosts))
            raise InputError(f"emulation.placement: there is no host {host!r}; there are {there}")
        for name in names:
            node = NodeId.parse(name)
            if node not in nodes:
                raise InputError(f"emulation.placement: the scenario has no {node}")
            if node in found:
                raise InputError(f"emulation.placement: {node} is on {found[node]} and on {host}")
            found[node] = host
    if missing := [node for node in nodes if node not in found]:
        raise InputError(f"emulation.placement: {missing[0]} has no host")
    return {node: found[node] for node in nodes}
