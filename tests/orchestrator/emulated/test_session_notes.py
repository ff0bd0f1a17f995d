# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Notes of a session about messages that may arrive early, and frames that were late."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from orchestrator.emulated.session_notes import early_notes, late_notes
from orchestrator.engine.access import LinkRates
from testbed.network.shaping import WITHOUT_CREDIT_S, Shape


def expected(*rates_bps: float) -> LinkRates:
    rows = np.array(rates_bps)[:, None]
    return LinkRates(np.hstack([rows, 2 * rows]), 0 * rows, rows)


def test_links_that_are_not_paced_are_named_with_the_time_of_their_slowest_packet() -> None:
    shape = Shape(burst_s=WITHOUT_CREDIT_S, paced=(2,))
    (line,) = early_notes(shape, expected(60.56e6, 1e6, 121.12e6), 2.0)
    # A frame of 12,112 bits at half of 60.56 Mb/s takes 0.4 ms; 0.2 ms are the credit.
    assert "of uav1, uav3 may arrive up to 0.6 ms early" in line
    assert early_notes(Shape(paced=(1, 2)), expected(1e6, 1e6), 1.0) == []
    assert early_notes(Shape(), expected(0.0, 0.0), 1.0) == []
    (line,) = early_notes(shape, expected(*[60e6] * 9), 1.0)
    assert "uav1, uav3, uav4, uav5, uav6, uav7 and 2 more" in line


def test_links_with_many_late_frames_are_named() -> None:
    def count(late: int) -> Any:
        return SimpleNamespace(late_frames=late, sent_frames=1000)

    report: Any = SimpleNamespace(
        uplink=[count(10), count(11)], downlink=[SimpleNamespace(late_frames=0, sent_frames=0)] * 2
    )
    (line,) = late_notes(report)
    assert line.startswith(
        "1.1% of the frames over the uplink of uav2 were sent more than 1 ms late"
    )
    report.downlink = [count(500)] * 9
    assert len(late_notes(report)) == 6
