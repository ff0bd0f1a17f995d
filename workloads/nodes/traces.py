# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a node's QUIC connections did, as it is told the orchestrator."""

from testbed.control.messages import Traces


def traces() -> Traces:
    """All of this process."""
    from testbed.transport.qlog import LOGGER

    found = [(trace.connection, trace.compressed()) for trace in LOGGER.traces]
    sizes = tuple((connection, len(data)) for connection, data in found)
    return Traces(sizes, b"".join(data for _, data in found))
