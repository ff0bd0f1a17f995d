# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""CPU time that other programs took on the machines of a run's nodes."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from testbed.control.messages import MachineNow
from testbed.core.node import NodeId
from testbed.runtimes import World
from testbed.system.machine import Machine, boot_id


@dataclass(frozen=True)
class Machines:
    """Clocks and CPU accounts of this machine and of the hosts of a world, at one time."""

    here: Machine
    hosts: Mapping[str, MachineNow]
    """Accounts of each host, by name; hosts may share a machine with each other or with this
    process."""

    @classmethod
    def now(cls, world: World) -> "Machines":
        """The current clocks and accounts."""
        return cls(Machine.now(), world.machines())

    def passed(
        self, world: World, nodes_s: Mapping[NodeId, float]
    ) -> tuple[Machine, dict[str, Machine]]:
        """Differences since then on this machine, and on each other machine by its first living
        host.

        Args:
            world: The world of these accounts.
            nodes_s: CPU seconds that each node has used since then.
        """
        now, boot = Machines.now(world), boot_id()
        own_s: dict[str, float] = defaultdict(float)
        there = {host: then for host, then in self.hosts.items() if host in now.hosts}
        for host, then in there.items():
            own_s[then.boot] += now.hosts[host].machine.own_s - then.machine.own_s
        for node, seconds in nodes_s.items():
            place = world.places.get(node)
            if place is None or place in there:
                own_s[boot if place is None else there[place].boot] += seconds
        here = now.here.since(self.here, own_s.pop(boot, 0.0))
        elsewhere = {}
        for host, then in there.items():
            if then.boot in own_s:
                passed = now.hosts[host].machine.since(then.machine, 0.0)
                elsewhere[host] = replace(passed, own_s=own_s.pop(then.boot))
        return here, elsewhere
