# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Identifiers of nodes: the base station, and UAVs that count from 1."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

PATTERN = r"^(bs|uav[1-9]\d{0,4})$"
"""Spelling of a node in scenarios, files, messages and on the command line."""


@dataclass(frozen=True, order=True)
class NodeId:
    """A node of the network; the base station sorts before all UAVs."""

    client: int
    """Number of a UAV as client, from 1; 0: the base station."""

    @classmethod
    def parse(cls, spelling: str) -> "NodeId":
        """The node with this spelling.

        Raises:
            ValueError: No node has this spelling.
        """
        if not re.fullmatch(PATTERN, spelling):
            raise ValueError(f"{spelling!r} is not a node; nodes are bs, uav1, uav2, …")
        return cls(int(spelling.removeprefix("uav"))) if spelling != "bs" else BS

    def __str__(self) -> str:
        return f"uav{self.client}" if self.client else "bs"

    @property
    def is_bs(self) -> bool:
        """Whether the node is the base station."""
        return self.client == 0

    @property
    def title(self) -> str:
        """The node's name within a sentence."""
        return str(self) if self.client else "the base station"

    @property
    def index(self) -> int:
        """Index of a UAV in arrays of shape [K]."""
        assert self.client, "the base station has no index among the clients"
        return self.client - 1

    @property
    def host_name(self) -> str:
        """Name in the node's certificate; all names, and so all handshakes, have the same
        length."""
        return f"node{self.client:05d}"


BS = NodeId(0)


def uav(client: int) -> NodeId:
    """The node of a client, which counts from 1."""
    return NodeId(client)


def uavs(count: int) -> Iterator[NodeId]:
    """All UAVs in ascending order."""
    return map(NodeId, range(1, count + 1))
