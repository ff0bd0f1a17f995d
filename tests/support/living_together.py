# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A node that may be a thread: it says where it is, and ends with the status that it is told."""

import json
import sys
from pathlib import Path

from testbed.runtimes import connect_control


def live() -> int:
    """See the module."""
    with connect_control() as control:
        here = Path("/proc/thread-self")
        places = {kind: str((here / "ns" / kind).readlink()) for kind in ("net", "pid")}
        status = (here / "status").read_text().splitlines()
        (rights,) = (line.split()[1] for line in status if line.startswith("CapEff"))
        control.sendall(json.dumps(places | {"rights": int(rights, 16)}).encode())
        return int(control.recv(9))


if __name__ == "__main__":
    sys.exit(live())
