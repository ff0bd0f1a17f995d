# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Logs of a node's QUIC connections for the orchestrator."""

from testbed.control.messages import Traces


def traces() -> Traces:
    """The logs of all connections of this process."""
    from testbed.transport.qlog import LOGGER

    found = [(trace.connection, trace.compressed()) for trace in LOGGER.traces]
    sizes = tuple((connection, len(data)) for connection, data in found)
    return Traces(sizes, b"".join(data for _, data in found))
