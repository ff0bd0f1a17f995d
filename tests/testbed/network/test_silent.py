# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Nothing but a link's own frames passes the air: whatever else did would draw losses, too."""

import json

import pytest
from in_guest import printed

PROGRAM = """
import json, time
from testbed.network import line
from testbed.network.impairments import install
from testbed.core.impairment import Impairment, Losses
from testbed.network.fabric import device_counts
from testbed.network.shaping import netem_counts
from testbed.system import linux
from testbed.system.netlink import Netlink, has_ipv6

linux.new_network_namespace()
assert has_ipv6()
with Netlink() as netlink:
    netlink.transact(install(1, Impairment(losses=Losses(0.0, 1.0, 0.5, 0.0), seed=1)))
    line.tap(netlink, 1, "lo", bytes([2, 0, 0, 0, 0, 1]), 1500)
    time.sleep(60)  # of virtual time
    air, devices = netem_counts(netlink)[1], device_counts(netlink)
pair = [devices[1 + offset].sent_frames for offset in (line.OUT_OFFSET, line.IN_OFFSET)]
print(json.dumps({"netem": [air.sent_frames, air.dropped_frames], "line": pair}))
"""


@pytest.mark.guest
def test_nothing_passes_netem_or_its_stand_in_on_its_own() -> None:
    assert json.loads(printed(PROGRAM)) == {"netem": [0, 0], "line": [0, 0]}
