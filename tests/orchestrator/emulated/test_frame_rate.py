# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Frames that a process has to delay or lose: how many, and what follows where it is too slow."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ns3_scenarios.trace import ChannelTrace, Replay
from orchestrator.emulated import frame_rate as frames
from orchestrator.emulated.dilation import settle
from orchestrator.emulated.frame_rate import Frames, frames_s, of_rounds
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.timeline import CA, CF, SG, SPAN, Round
from testbed.host import line_speed
from testbed.network.shaping import Shape

SINGLE = Shape(single_frames=True)
FRAME = SINGLE.frame_bytes
BOTH = (True, True), (True, True)
NONE = (False, False)
SCENARIO: dict[str, Any] = {
    "name": "held",
    "uavs": {"tx_power_w": [1, 0.4]},
    "workload": {"compute": "none", "local_iterations": 1},
    "links": {"one_way_delay_s": 0.01},
}
SOURCE = Replay(ChannelTrace(gain=np.full((2, 20_000), 1e-10), slot_s=0.1))


def round_of(*spans: tuple[int, int, int, float, float, int]) -> Round:
    return Round(0, "cpsfl", 1, 0.0, 4.0, np.zeros(2), 0.0, np.array(list(spans), SPAN))


def test_transfers_at_the_same_time_add_up() -> None:
    one = round_of(
        (1, 1, CF, 0.0, 4.0, 0),
        (1, 1, CA, 0.0, 2.0, 200 * FRAME),
        (2, 1, CA, 1.0, 2.0, 300 * FRAME),
        # Begins when the others are over.
        (1, 1, SG, 2.0, 3.0, 350 * FRAME),
    )
    # Each frame counts, and an acknowledgement for two of them.
    assert frames_s(one, SINGLE, *BOTH) == pytest.approx(1.5 * 400)
    # Only uplinks delay: data up, acknowledgements of what came down.
    assert frames_s(one, SINGLE, (True, True), NONE) == pytest.approx(400)
    assert frames_s(one, SINGLE, NONE, (True, True)) == pytest.approx(350)
    assert frames_s(one, SINGLE, (False, True), NONE) == pytest.approx(300)
    assert frames_s(one, SINGLE, NONE, NONE) == 0


def test_packets_of_several_frames_count_once() -> None:
    shape = replace(SINGLE, single_frames=False)
    size = 8000 * FRAME
    packets = shape.packet_frames(8 * size)
    assert packets > 1
    one = round_of((1, 1, CA, 0.0, 1.0, size))
    assert frames_s(one, shape, *BOTH) == pytest.approx(2 * 8000 / packets)


def of(capacity_s: float | None, monkeypatch: pytest.MonkeyPatch, **keys: Any) -> Scenario:
    monkeypatch.setattr(line_speed, "measure", lambda: capacity_s)
    return validate(SCENARIO | keys, "test")


def test_a_machine_that_cannot_keep_up_is_told_what_dilation_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named = of(1e9, monkeypatch, emulation={"dilation": 2.0})
    found = of_rounds(named, SOURCE, profile_of(named))
    assert found is not None
    assert found.needed_s > 1000
    # So fast that it would be busy all of its time at a dilation of 4.
    slow_s = found.needed_s / 4
    named = of(slow_s, monkeypatch, emulation={"dilation": 2.0})
    line = (
        rf"emulation.dilation: must be at least 5, not 2: without netem, a process delays and "
        rf"loses frames, at most {slow_s:,.0f} per second, and rounds have up to "
        rf"{found.needed_s:,.0f}; emulation.clock 'virtual' needs none"
    )
    with pytest.raises(InputError) as refused:
        settle(named, SOURCE, profile_of(named))
    assert str(refused.value) == line
    enough = of(slow_s, monkeypatch, emulation={"dilation": 5.1})
    assert settle(enough, SOURCE, profile_of(enough))[0].dilation == 5.1
    chosen, _, tried = settle(
        of(slow_s, monkeypatch, emulation={"dilation": "auto"}), SOURCE, profile_of(named)
    )
    assert (chosen.dilation, len(tried)) == (5.0, 1)
    assert tried[0].run_s > 5


def test_nothing_is_tried_where_no_process_holds_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = validate(SCENARIO | {"links": {}}, "test")
    monkeypatch.setattr(line_speed, "measure", lambda: pytest.fail("needless"))
    assert of_rounds(plain, SOURCE, profile_of(plain)) is None
    netem = of(None, monkeypatch)
    assert of_rounds(netem, SOURCE, profile_of(netem)) is None


def test_a_process_may_not_be_busy_all_the_time() -> None:
    assert Frames(20_000, 10_000).least_dilation == pytest.approx(2 / frames.BUSY)


def test_this_machine_carries_some() -> None:
    capacity_s = line_speed.measure()
    assert capacity_s is None or 500 < capacity_s < 1e6
