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

from testbed.cluster import relaying
from testbed.core.errors import RunError


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


def test_what_a_relay_handles_is_measured() -> None:
    assert 2_000 < relaying.packets_s(HOME, 1448) < 2_000_000
    with pytest.raises(RunError, match=r"^links: no relay \(.*address"):
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
