# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What iperf3 measured, and what the links carried, against the channel's rates.

python examples/iperf3/compare.py DIR     after `testbed up examples/iperf3/scenario.yaml --out DIR`
"""

import json
import sys
from pathlib import Path

import pandas as pd

FRAME, PAYLOAD = 1514, 1448
"""Bytes of a full Ethernet frame, and what TCP over IPv4 brings of it to its program."""


def compare(folder: Path) -> pd.DataFrame:
    """One row a UAV; errors in per cent of the integral of the rates.

    Of the slots in which the link had something waiting from start to end: their number, the error
    over all of them, and the 95th percentile of each one's. Then the bytes that iperf3 received,
    and what that is of what the link carried, headers taken off.
    """
    table = pd.read_parquet(folder / "session.parquet")
    rows = []
    for client, link in table[table.direction == "up"].groupby("client"):
        link = link.sort_values("slot")
        busy = link[(link.queued_bytes > 0) & (link.queued_bytes.shift(1) > 0)]
        each = busy.carried_bytes / busy.offered_bytes - 1
        told = json.loads((folder / f"nodes/bs/uav{client}.json").read_text())
        received = sum(interval["sum"]["bytes"] for interval in told["intervals"])
        rows.append(
            {
                "client": client,
                "slots": len(busy),
                "overall_percent": 100 * (busy.carried_bytes.sum() / busy.offered_bytes.sum() - 1),
                "slot_p95_percent": 100 * each.abs().quantile(0.95),
                "received_bytes": received,
                "of_carried_percent": 100 * received / (link.carried_bytes.sum() * PAYLOAD / FRAME),
            }
        )
    return pd.DataFrame(rows).set_index("client")


if __name__ == "__main__":
    print(compare(Path(sys.argv[1])).round(3).to_string())
