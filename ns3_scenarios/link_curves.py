# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The link curves of ns-3's LTE, from which its UAVs report the quality of their downlink.

    python -m ns3_scenarios.link_curves orchestrator/engine/link_curves.json

The rate model reads the file, which is part of the repository, so that it needs no ns-3.
"""

import json
import sys
from pathlib import Path
from typing import Any

from ns3_scenarios.child import LAUNCH, Launch
from ns3_scenarios.radio import start
from testbed.system.files import write_whole

_TABLES = "least_db", "errors", "grants"


def link_curves(launch: Launch = LAUNCH) -> dict[str, Any]:
    """Tables of ns-3's `LteAmc` and `LteMiErrorModel` for a downlink with one SNR in all blocks.

    Returns:
        `least_db` [4, 15]: for groups of 1 to 4 resource blocks, the least SNR of each channel
        quality indicator (CQI) from 1, in dB. `errors`: rows of CQI, number of resource blocks, and
        the part of the transport blocks that is lost at that SNR and in steps of `step_db` above
        it; all other parts are at most `least_error`. `grants` [1, n]: the part of the grants that
        is lost at the SNR `grants_db[0]` and in steps of `grants_db[1]` above it.

    Raises:
        ChannelError: ns-3 ended or cannot be built.
    """
    child = start({"mode": "curves"}, launch)
    try:
        found: dict[str, Any] = json.loads(child.receive_line())
    finally:
        child.close()
    found["least_db"] = [[round(each, 5) for each in row] for row in found["least_db"]]
    found["errors"] = [
        [cqi, blocks, *(float(f"{each:.4g}") for each in lost)]
        for cqi, blocks, *lost in found["errors"]
    ]
    found["grants"] = [[float(f"{each:.4g}") for each in row] for row in found["grants"]]
    return found


def main() -> None:
    """Write the curves to the file that is named, a line for each row."""
    found = link_curves()
    lines = ",\n".join(
        f' "{name}": ' + ("[\n" + _rows(each) + "\n ]" if name in _TABLES else json.dumps(each))
        for name, each in found.items()
    )
    write_whole(Path(sys.argv[1]), lambda part: part.write_text(f"{{\n{lines}\n}}\n"))


def _rows(rows: list[list[float]]) -> str:
    return ",\n".join(f"  {json.dumps(row)}" for row in rows)


if __name__ == "__main__":
    main()
