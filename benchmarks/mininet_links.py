# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Uploads over Mininet's TCLink, its bandwidth changed slot by slot; for Mininet's own Python.

With a file, which is `one_transfer.py`, it reads {"rates": K lists of bit/s, "slot_s", "bytes"} as
JSON, and prints [start_s, end_s] of each. With a number, it sets this number of links up, and
removes them.
"""

import json
import sys
import time
from typing import Any

from mininet.link import TCLink
from mininet.log import setLogLevel
from mininet.net import Mininet


def linked(rates_bps: "list[float]") -> Any:
    """The network, the base station, the hosts, and their ends of links with these rates."""
    setLogLevel("critical")
    net = Mininet(controller=None)
    bs = net.addHost("bs")
    uavs, ends = [], []
    for k, rate_bps in enumerate(rates_bps):
        uav = net.addHost(f"u{k}")
        link = net.addLink(uav, bs, cls=TCLink, bw=rate_bps / 1e6)
        link.intf1.setIP(f"10.9.{k}.2/30")
        link.intf2.setIP(f"10.9.{k}.1/30")
        link.intf2.config(bw=1000)
        uavs.append(uav)
        ends.append(link.intf1)
    return net, bs, uavs, ends


def main(transfer: str) -> None:
    if transfer.isdigit():
        linked([10e6] * int(transfer))[0].stop()
        return
    order = json.load(sys.stdin)
    rates, slot_s, size = order["rates"], order["slot_s"], order["bytes"]
    net, bs, uavs, ends = linked([row[0] for row in rates])
    try:
        receivers = [
            bs.popen([sys.executable, transfer, "receive", str(6000 + k), str(size)])
            for k in range(len(uavs))
        ]
        time.sleep(1.5)
        start_ns = time.monotonic_ns() + 1_500_000_000
        for k, uav in enumerate(uavs):
            words = ["send", f"10.9.{k}.1", str(6000 + k), str(size), str(start_ns)]
            uav.popen([sys.executable, transfer, *words])
        slot = 0
        while any(r.poll() is None for r in receivers) and slot < len(rates[0]) - 1:
            slot = max(slot + 1, int((time.monotonic_ns() - start_ns) / 1e9 / slot_s))
            time.sleep(max(0.0, (start_ns + slot * slot_s * 1e9 - time.monotonic_ns()) / 1e9))
            for k, end in enumerate(ends):
                if rates[k][slot] != rates[k][slot - 1]:
                    end.config(bw=rates[k][slot] / 1e6)
        ends_ns = [int(r.communicate(timeout=60)[0]) for r in receivers]
    finally:
        net.stop()
    print(json.dumps([[0.0, (end_ns - start_ns) / 1e9] for end_ns in ends_ns]))


if __name__ == "__main__":
    main(sys.argv[1])
