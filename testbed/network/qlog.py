# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Logs of QUIC connections as qlog files, two per link, for qvis and other readers."""

import zlib
from collections.abc import Mapping
from pathlib import Path

from testbed.control.messages import Traces
from testbed.core.node import NodeId


def write(folder: Path, told: Mapping[NodeId, Traces]) -> None:
    """Write `uavK.sqlog`, and `bs-uavK.sqlog` for the base station's side of the same connection.

    Further connections of the same UAV have numbers from 2. The connection of a lost UAV is named
    by its connection ID.
    """
    folder.mkdir()
    names: dict[str, str] = {}
    for node in sorted(told, reverse=True):  # The base station comes last.
        start = 0
        for place, (connection, size) in enumerate(told[node].connections, 1):
            if node.is_bs:
                name = f"{node}-{names.get(connection, connection)}"
            else:
                name = names[connection] = f"{node}-{place}" if place > 1 else str(node)
            data = told[node].compressed[start : start + size]
            start += size
            (folder / f"{name}.sqlog").write_bytes(zlib.decompress(data))
