# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What the overhead study counts as a round's bytes."""

import pandas as pd

from orchestrator.analysis.byte_accounts import BYTES, SET_UP
from orchestrator.studies.overhead import bytes_of_a_round


def accounts(*rows: tuple[int, str, float]) -> pd.DataFrame:
    """A frame a row: round, direction, bytes of payload and as many of handshakes."""
    return pd.DataFrame(
        {
            "round": round_,
            "direction": direction,
            **dict.fromkeys(BYTES, 0.0),
            "payload_bytes": size,
            "handshake_bytes": size,
        }
        for round_, direction, size in rows
    )


def test_what_a_uav_sends_to_come_back_is_no_bytes_of_a_round() -> None:
    run = [
        accounts((SET_UP, "up", 1000.0), (SET_UP, "down", 1000.0)),
        accounts((0, "up", 10.0), (0, "up", 20.0), (0, "down", 5.0)),
        # A UAV that was lost comes back before round 1, and greets again.
        accounts((SET_UP, "up", 500.0), (1, "up", 40.0), (1, "down", 7.0)),
    ]
    up, down = bytes_of_a_round(run, "up"), bytes_of_a_round(run, "down")
    assert up == dict.fromkeys(BYTES, 0.0) | {"payload_bytes": 35.0, "handshake_bytes": 35.0}
    assert (down["payload_bytes"], down["handshake_bytes"]) == (6.0, 6.0)
