# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Nothing but a link's own frames passes the air: whatever else did would draw losses, too."""

import io
import sys

import pytest
from in_guest import told

from testbed.virtual import guest, kernel

PROGRAM = """
import time
from testbed.air.impairments import install
from testbed.core.impairment import Impairment, Losses
from testbed.network.shaping import air_counts
from testbed.system import linux
from testbed.system.netlink import Netlink, has_ipv6

linux.new_network_namespace()
assert has_ipv6()
with Netlink() as netlink:
    netlink.transact(install(1, Impairment(losses=Losses(0.0, 1.0, 0.5, 0.0), seed=1)))
    time.sleep(60)  # of virtual time
    count = air_counts(netlink)[1]
print(count.sent_frames, count.dropped_frames)
"""


@pytest.mark.guest
def test_nothing_passes_the_air_on_its_own() -> None:
    found = kernel.find()
    assert found is not None
    out, err = io.BytesIO(), io.BytesIO()
    done = guest.run(found, [sys.executable, "-c", PROGRAM], told=told(found), out=out, err=err)
    assert done.status == 0, err.getvalue().decode()
    assert out.getvalue() == b"0 0\n"
