# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What QUIC connections did, as files for qvis and other readers of qlog, two a link."""

import zlib
from collections.abc import Mapping
from pathlib import Path

from testbed.control.messages import Traces
from testbed.core.node import NodeId


def write(folder: Path, told: Mapping[NodeId, Traces]) -> None:
    """Write `uavK.sqlog`, and `bs-uavK.sqlog` as the base station sees the same connection.

    A UAV that has connected again has more of both, with numbers from 2. A connection whose UAV is
    gone has its own name beside the base station's.
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
