# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""State that the base station's program shares with each of its rounds."""

from dataclasses import dataclass, field

from testbed.control.messages import NodeOrder, SetUpBaseStation
from testbed.control.node import NodeControl
from testbed.transport.interface import MarkedLink
from workloads.learning.work import ServerWork


@dataclass
class Station:
    """The base station for the length of a run."""

    control: NodeControl[NodeOrder]
    setup: SetUpBaseStation
    work: ServerWork
    links: dict[int, MarkedLink] = field(default_factory=dict)
    """The open connection to each client."""
