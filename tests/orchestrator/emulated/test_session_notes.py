# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Notes of a session about messages, frames and commands that were early or late."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from orchestrator.emulated.programs import Program
from orchestrator.emulated.session_notes import early_notes, late_notes, too_early_notes
from orchestrator.engine.access import LinkRates
from testbed.core.node import BS, uav, uavs
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


def test_commands_that_ended_before_slot_0_are_named() -> None:
    assert too_early_notes([]) == []
    end = "ended before slot 0: until then the links carry nothing"
    assert too_early_notes([uav(2)]) == [f"the command of uav2 {end}"]
    assert too_early_notes([BS, uav(1)]) == [f"the commands of bs, uav1 {end}"]
    (line,) = too_early_notes([*uavs(9)])
    assert line == f"the commands of uav1, uav2, uav3, uav4, uav5, uav6 and 3 more {end}"


def test_a_command_is_early_if_it_ended_by_itself() -> None:
    program = Program(uav(1), ["true"], given=True)
    assert not program.ended_before(10**30), "it runs"
    program.over(0)
    assert program.ended_before(10**30)
    assert not program.ended_before(program.started_ns)
    program.stopped = True
    assert not program.ended_before(10**30), "the session ended it"
