# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A link between two parts of a network that relays carry, as an ordinary user may make it."""

import os
import signal
import time

import numpy as np
import psutil
import pytest
from split_world import HOME, SplitWorld

from orchestrator.analysis.frame_loss import by_slot
from testbed.cluster import relaying
from testbed.core.errors import RunError
from testbed.core.impairment import Impairment, Losses
from testbed.network.fabric import link_addresses
from testbed.network.pcap import frames
from testbed.network.shaping import Shape


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    with SplitWorld(tmp_path_factory.mktemp("split")) as split:
        split.connect()
        yield split


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("mbps", [8, 250], ids=["frames", "packets"])
def test_a_transfer_over_a_relay_is_shaped_at_its_inner_ends(split, down, mbps) -> None:
    split.injector.pause()
    before = split.injector.report()
    size, slot_s = 40_000 * mbps, 0.05
    rates = np.full((2, 100), 1e6 * mbps)
    rates[:, ::2] /= 2
    split.run(rates, rates, slot_s=slot_s, ahead_s=0.3)
    (transfer,) = split.transfer([2], size, 0.0, down)
    late_s = split.late_s(transfer, rates[1], slot_s, size)
    frame_s = 8 * 1514 / rates.min()
    # Others compute beside it: it may be late, but never early.
    assert -4 * frame_s < late_s < 1.0
    after = split.injector.report()
    (_, ours), (_, theirs) = (list(zip(r.uplink, r.downlink, strict=True)) for r in (before, after))
    way = int(down)
    sent = theirs[way].sent_bytes - ours[way].sent_bytes
    assert split.on_link_bytes(size) <= sent < 1.05 * split.on_link_bytes(size)
    packets = theirs[way].device_sent_frames - ours[way].device_sent_frames
    assert (packets < 0.5 * sent / 1514) == (mbps > 100), "it carries what the kernel handles"


def test_the_air_delays_and_loses_what_arrives_on_either_host(tmp_path) -> None:
    with SplitWorld(tmp_path, Shape(impaired=True, single_frames=True)) as split:
        split.connect()
        up, down = (Losses(0.0, 1.0, loss, 0.0) for loss in (0.03, 0.01))
        none = Impairment()
        split.injector.impair(
            [none, Impairment(0.03, 0.0, up, 5, by_slot=True)],
            [none, Impairment(0.0, 0.0, down, 7)],
        )
        # Slots say otherwise from the third second on.
        table = np.zeros((2, 1000, 3))
        table[1, :30] = 0.03, 0.0, 0.03
        rates, size = np.full((2, 1000), 20e6), 1_000_000
        split.injector.impair_slots(0, table, np.zeros((2, 1000, 3)))
        before = split.injector.report()
        split.run(rates, rates, slot_s=0.1, ahead_s=0.3)
        (late,) = split.transfer([2], size, 0.05, False)
        assert late.end_s - late.start_s > 8 * size / 20e6 + 0.03
        split.transfer([2], size, max(3.5, late.end_s), True)
        time.sleep(0.1)
        after = split.injector.report()
        for way, losses in ((after.uplink[1], up), (after.downlink[1], down)):
            frames = way.lost_frames + way.arrived_frames
            assert frames > size / 1448
            assert 0 < way.lost_frames < losses.mean * frames + 5 * losses.deviation(frames)
        assert after.uplink[0].lost_frames == after.downlink[0].lost_frames == 0
        by_way = by_slot(0, 0, 0.1, before, after).groupby(["client", "direction"])
        lost = by_way["lost_frames"].sum()
        assert lost[2, "up"] == after.uplink[1].lost_frames
        assert lost[2, "down"] == after.downlink[1].lost_frames
        asked = {way: part.set_index("slot")["asked_loss"] for way, part in by_way}
        assert asked[2, "up"][2] == pytest.approx(0.03)
        assert asked[2, "up"].iloc[-1] == 0
        assert asked[2, "down"].to_numpy() == pytest.approx(0.01)


def test_captures_hold_what_was_counted_of_links_to_either_host(split, tmp_path) -> None:
    split.injector.pause()
    before = split.injector.report()
    files = [tmp_path / f"uav{link}.pcap" for link in (1, 2)]
    split.injector.capture(files, headers_only=True)
    rates = np.full((2, 100), 20e6)
    split.run(rates, rates, slot_s=0.1, ahead_s=0.3)
    split.transfer([1, 2], 300_000, 0.0, False)
    split.transfer([2], 200_000, 2.0, True)
    time.sleep(0.3)
    after = split.injector.report()
    split.transfer([2], 50_000, 4.0, True)  # is none of the capture's
    told = split.injector.end_capture(after.asked_ns)
    captured = [list(frames(file)) for file in files]
    assert told.missed_packets == 0
    for link, found in enumerate(captured):
        for ways, source in ((lambda r: r.uplink, 1), (lambda r: r.downlink, 0)):
            sent = ways(after)[link].sent_bytes - ways(before)[link].sent_bytes
            own = [f for f in found if f.source == link_addresses(link + 1)[source]]
            assert sum(frame.header_bytes + frame.data_bytes for frame in own) == sent


def test_what_a_relay_handles_is_measured() -> None:
    assert 2_000 < relaying.packets_s(HOME, 1448) < 2_000_000
    with pytest.raises(RunError, match=r"^links: a relay cannot be started \(.*address"):
        relaying.packets_s("192.0.2.1", 1448)


def test_a_world_whose_relay_dies_says_so(tmp_path) -> None:
    others = psutil.Process().children(recursive=True)
    with SplitWorld(tmp_path) as split:
        ours = [p for p in psutil.Process().children(recursive=True) if p not in others]
        fabrics = [p for p in ours if "fabric" in " ".join(p.cmdline())]
        relays = [p for p in fabrics if p.parent() in fabrics]
        assert len(relays) == 2
        os.kill(relays[0].pid, signal.SIGKILL)
        time.sleep(0.2)
        with pytest.raises(RunError, match="the process that carries links to other machines is"):
            split.injector.report()
