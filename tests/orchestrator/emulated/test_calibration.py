# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The calibration before a run: what is sent when, and what is made of it."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from orchestrator.analysis.error_budget import calibration_summary, integral_end_s
from orchestrator.emulated.calibration import (
    GAP_S,
    LEVELS,
    MOST_S,
    UPLINK_S,
    _levels,
    _schedule,
    trial_of,
)
from orchestrator.engine.tcp_model import tcp_model_of
from orchestrator.scenario.loading import validate
from testbed.network.shaping import Shape
from testbed.transport import wire
from testbed.transport.framing import Framing

UP = np.array([[20e6, 21e6, 22e6], [8e6, 9e6, 10e6]])
DOWN = np.array([[300e6, 310e6, 320e6], [290e6, 295e6, 300e6]])


def on_link(probe) -> int:
    return Framing(1500).on_link(wire.message_bytes(probe.payload_bytes))


def spans(transfers, rates):
    """Start and end of each transfer if its link carries what it should, by level."""
    by_level = {level: [] for level in range(len(LEVELS))}
    for level, probe in transfers:
        lasts_s = 8 * on_link(probe) / rates[probe.client - 1, level]
        by_level[level].append((probe.start_s, probe.start_s + lasts_s))
    return by_level


@pytest.mark.parametrize("dilation", [1.0, 5.0])
def test_every_link_carries_each_level_both_ways(dilation):
    level_s, transfers = _schedule(UP, DOWN, True, Shape(), dilation)
    seen = [(level, probe.client, probe.upward) for level, probe in transfers]
    assert sorted(seen) == sorted(itertools.product(range(3), (1, 2), (False, True)))
    assert 3 * level_s * dilation < 2  # real seconds
    ups = spans([(level, probe) for level, probe in transfers if probe.upward], UP)
    downs = spans([(level, probe) for level, probe in transfers if not probe.upward], DOWN)
    for level in range(3):
        at_s = level * level_s
        for start_s, end_s in ups[level]:
            assert start_s == pytest.approx(at_s + GAP_S / dilation)
            assert end_s - start_s == pytest.approx(UPLINK_S / dilation, rel=0.02)
        before_s = max(end for _, end in ups[level])
        for start_s, end_s in sorted(downs[level]):
            # In turns, each on an idle link, and within the level.
            assert start_s > before_s + 0.8 * GAP_S / dilation
            before_s = end_s
        assert before_s < at_s + level_s


def test_shared_downlinks_carry_theirs_at_once():
    _, transfers = _schedule(UP, DOWN / 2, False, Shape(), 1.0)
    first = {p.start_s for level, p in transfers if level == 0 and not p.upward}
    assert len(first) == 1


def test_a_slow_link_carries_some_frames_and_one_that_is_never_up_none():
    up = np.array([[2e5] * 3, [1e3] * 3, [0.0] * 3])
    _, transfers = _schedule(up, np.zeros((3, 3)), True, Shape(), 1.0)
    frames = {probe.client: round(on_link(probe) / 1514) for _, probe in transfers}
    assert frames == {1: 16, 2: 1}
    assert max(8 * on_link(p) / 2e5 for _, p in transfers if p.client == 1) < MOST_S


def test_links_that_are_never_up_are_named():
    up, down = np.full((2, 2, 5), 1e6)
    up[1] = 0
    shape = Shape(1500)
    trial = trial_of(up, down, 0.1, shape, 1.0, in_turns=True)
    assert trial.left_out == ["the uplink of UAV 2 has no rate in any slot: it is not calibrated"]
    assert {(each.client, each.upward) for each in trial.probes} == {
        *((1, True), (1, False), (2, False))
    }


def test_levels_leave_outages_out():
    rates = np.array([[0.0, 3e6, 1e6, 2e6, 50.0], [0.0] * 5])
    assert _levels(rates, 1e3).tolist() == [[1e6, 2e6, 3e6], [0.0] * 3]
    assert _levels(rates, 0.0).tolist() == [[50.0, 2e6, 3e6], [0.0] * 3], "serial lines"


def test_a_fast_downlink_is_due_when_its_acknowledgements_permit():
    """An uplink is due by the integral: its acknowledgements take the fast downlink."""
    tree = {"uavs": {"count": 1, "tx_power_w": 1.0}, "emulation": {"clock": "virtual"}}
    scenario = validate(tree | {"workload": {"compute": "none"}}, "one")
    made = tcp_model_of(scenario)
    assert made is not None
    up, down, shape = np.full((1, 9), 1.15e6), np.full((1, 9), 313e6), Shape(serial=True)
    due_s = {}
    for model in (None, made):
        trial = trial_of(up, down, 0.1, shape, 1.0, in_turns=True, tcp=model)
        received = [
            (1, place, probe.start_s, 1.0) for place, (_, probe) in enumerate(trial.transfers)
        ]
        table = trial.table(received, scenario.emulation)
        due_s[model is None] = table.groupby("direction")["due_s"].mean()
    integral, lines = due_s[True], due_s[False]
    assert lines["uplink"] == pytest.approx(integral["uplink"], rel=1e-12)
    assert 1.0005 < lines["downlink"] / integral["downlink"] < 1.01, "its first windows wait"


def test_the_integral_waits_out_an_outage():
    rates = np.array([10.0, 0.0, 0.0, 20.0])
    assert integral_end_s(rates, 1.0, 0.0, 0.0) == 0.0
    assert integral_end_s(rates, 1.0, 0.5, 5.0) == pytest.approx(1.0)
    assert integral_end_s(rates, 1.0, 0.5, 15.0) == pytest.approx(3.5)
    assert integral_end_s(rates, 1.0, 0.5, 25.0) == pytest.approx(4.0)
    assert integral_end_s(rates, 1.0, 0.5, 25.1) == math.inf


def test_in_short_errors_count_without_their_sign():
    table = pd.DataFrame(
        {
            "direction": "uplink",
            "level": ["lowest"] * 3,
            "rate_bps": [1.0, 2.0, 3.0],
            "error": [-0.4, 0.1, 0.2],
        }
    )
    (row,) = calibration_summary(table).to_dict("records")
    assert (row["rate_bps"], row["error_p50"], row["error_max"]) == (2.0, 0.2, 0.4)
