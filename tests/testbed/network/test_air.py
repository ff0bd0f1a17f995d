# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Links that delay and lose frames on this machine's kernel, with netem or without."""

import time

import numpy as np
import pytest
from small_world import SmallWorld

from orchestrator.analysis.frame_loss import by_slot
from testbed.core.impairment import Impairment, Losses
from testbed.network.shaping import Shape

RATE = np.full((1, 1000), 20e6)
SIZE = 500_000
SHAPE = Shape(impaired=True, single_frames=True)


@pytest.fixture
def small(tmp_path):
    with SmallWorld(tmp_path, shape=SHAPE) as small:
        small.connect()
        yield small


def test_frames_are_delayed_and_lost_from_when_it_is_said(small):
    small.run(RATE, RATE, slot_s=0.1)
    (plain,) = small.transfer([1], SIZE, 0.05, down=False)
    before = small.injector.report()
    assert before.uplink[0].lost_frames == before.uplink[0].arrived_frames == 0
    losses = Losses(0.0, 1.0, 0.03, 0.0)
    ways = [Impairment(0.03, 0.0, losses, 5, by_slot=True)], [Impairment(0.01, by_slot=True)]
    small.injector.impair(*ways)
    (late,) = small.transfer([1], SIZE, 1.0, down=False)
    assert late.end_s - late.start_s > plain.end_s - plain.start_s + 0.03
    (back,) = small.transfer([1], 1000, 4.0, down=True)
    assert 0.01 < back.end_s - back.start_s < 0.03
    time.sleep(0.1)  # The last acknowledgement is under way, too.
    report = small.injector.report()
    (up,), (down,) = report.uplink, report.downlink
    frames = up.lost_frames + up.arrived_frames
    # Frames, not packets of several: as many as left the sender.
    assert frames == up.sent_frames - before.uplink[0].sent_frames
    assert up.lost_frames > 0
    assert abs(up.lost_frames - 0.03 * frames) < 5 * losses.deviation(frames)
    assert down.lost_frames == 0 < down.arrived_frames
    # Slots that say otherwise: nothing is lost any more, and frames of the uplink are later.
    of_slots = (np.tile([delay_s, 0.0, 0.0], (1, 1000, 1)) for delay_s in (0.06, 0.0))
    small.injector.impair_slots(0, *of_slots)
    small.injector.report()
    while not len(small.injector.report().slot):
        time.sleep(0.02)
    (later,) = small.transfer([1], 100_000, 4.6, down=False)
    assert later.end_s - later.start_s > 8 * 100_000 / 20e6 + 0.06
    assert small.injector.report().uplink[0].lost_frames == up.lost_frames


def test_each_lost_frame_is_counted_in_its_slot(small):
    """Frames are lost in two slots alone, and what was lost stands there.

    Counters are read just after frames begin to be lost, so that the first may count before."""
    losses = Losses(0.0, 1.0, 0.2, 0.0)
    ways = [Impairment(losses=losses, seed=5, by_slot=True)], [Impairment(by_slot=True)]
    small.injector.impair(*ways)
    of_slots = np.zeros((1, 1000, 3))
    of_slots[:, 20:22, 2] = 0.2
    small.injector.impair_slots(0, of_slots, np.zeros((1, 1000, 3)))
    small.run(RATE, RATE, slot_s=0.1)
    before = small.injector.report()
    small.transfer([1], 4 * SIZE, 1.5, down=False)  # 0.8 s and more
    after = small.injector.report()
    table = by_slot(0, 0, 0.1, before, after)
    assert table["slot"].max() >= 23
    counted = table[table["direction"] == "up"].set_index("slot")["lost_frames"]
    lost = after.uplink[0].lost_frames - before.uplink[0].lost_frames
    early = counted[19]
    assert early <= 2
    assert counted[[20, 21]].sum() + early == lost > 10
    assert counted.drop([19, 20, 21]).eq(0).all()
    assert not table["lost_frames"][table["direction"] == "down"].any()
    asked = after.air.asked_loss[:, 0, 0]
    assert asked == pytest.approx(0.2 * np.isin(after.air.slot, [20, 21]))


def test_bursts_deviate_more_than_single_losses():
    single, bursts = Losses(0.0, 1.0, 0.02, 0.0), Losses(0.002, 0.098, 0.0, 1.0)
    assert bursts.mean == pytest.approx(single.mean)
    rng = np.random.default_rng(1)
    lost = []
    for _ in range(300):
        bad, count = False, 0
        for draw in rng.random(2000):
            count += bad
            bad = draw > bursts.bad_to_good if bad else draw < bursts.good_to_bad
        lost.append(count)
    assert np.std(lost) == pytest.approx(bursts.deviation(2000), rel=0.15)
    assert bursts.deviation(2000) > 3 * single.deviation(2000)
