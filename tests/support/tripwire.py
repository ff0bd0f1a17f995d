# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Whether network namespaces are still there, whoever holds them: the kernel alone may."""

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from testbed.system import linux, netlink
from testbed.system.netlink import Netlink, attribute, message, nested, text, u32

_LINKINFO, _NET_NS_FD = 18, 28
_FIRST = 100


class Tripwires:
    """A pair of devices for each namespace: one end in it, the other here, which goes with it.

    Takes root.
    """

    def __init__(self, pids: Iterable[int]) -> None:
        """Args: processes, whose namespaces are meant."""
        # A thread of its own enters a namespace of its own; the socket stays there.
        with ThreadPoolExecutor(1) as pool:
            self._here = pool.submit(self._lay, list(pids)).result()

    def _lay(self, pids: list[int]) -> Netlink:
        os.close(linux.new_network_namespace())
        here = Netlink()
        for index, pid in enumerate(pids, _FIRST):
            namespace = linux.open_network_namespace(pid)
            peer = netlink.IFINFO.pack(0, 0, 0, 0, 0) + attribute(_NET_NS_FD, u32(namespace))
            info = attribute(1, text("veth")), nested(2, attribute(1, peer))
            body = netlink.IFINFO.pack(0, 0, index, 0, 0) + nested(_LINKINFO, *info)
            here.transact([message(netlink.NEWLINK, netlink.CREATE | netlink.EXCLUSIVE, body)])
            os.close(namespace)
        return here

    def left(self) -> int:
        """How many of the namespaces there still are."""
        devices = self._here.dump(netlink.GETLINK, netlink.IFINFO.pack(0, 0, 0, 0, 0))
        return sum(netlink.IFINFO.unpack_from(body)[2] >= _FIRST for body in devices)
