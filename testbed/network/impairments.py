# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Delay and loss of frames after they have left a link's shaper, by netem.

Both are applied where frames arrive: frames are redirected to a separate device (ifb), whose queue
is netem, and return from there. netem must not be in front of the sender's shaper: it orphans
packets, so that TCP no longer limits its own queue and overflows it. Set-up and calibration of the
links take place before, with the shapers only.

No other traffic may pass this device, such as IPv6 router solicitations: each frame draws a random
number, so the losses of later frames would no longer follow from the seed.
"""

import contextlib
import functools
import struct
from statistics import NormalDist

from testbed.core.impairment import Impairment
from testbed.system import netlink
from testbed.system.netlink import attribute, message, nested, text

DEVICE_OFFSET = 20_000
"""Difference between the index of an impairing device and that of the device it belongs to."""
HANDLE = 0x5_0000
HELD_FRAMES = 1_000_000
"""Largest number of packets in flight on a link: more than TCP ever has."""

_TCMSG = struct.Struct("=BxxxiIII")
_NEWTFILTER = 44
_IFNAME, _LINKINFO = 3, 18
_KIND, _OPTIONS = 1, 2
_ROOT, _INGRESS, _INGRESS_HANDLE = 0xFFFF_FFFF, 0xFFFF_FFF1, 0xFFFF_0000
_ALL_PROTOCOLS = 0x0300  # ETH_P_ALL in network order
_MATCHALL_ACTIONS = 2
_MIRRED_PARAMETERS, _EGRESS_REDIRECT, _STOLEN = 2, 1, 4
_DELAYS, _LOSS, _RATE, _LATENCY, _JITTER, _SEED = 2, 5, 6, 10, 11, 14
_GILBERT_ELLIOTT = 2
_IN_ORDER_BYTES_S = 4_000_000_000
"""A netem rate keeps frames in order; this one exceeds the rate of any link."""
_QUANTILES = 4096
_SIGMA = 8192
"""Value of one standard deviation in netem's distribution tables."""


def has_netem(socket: netlink.Netlink) -> bool:
    """Whether the kernel supports `install`, as tried on a device in a socket's namespace."""
    probe = DEVICE_OFFSET - 1
    create = message(
        netlink.NEWLINK,
        netlink.CREATE | netlink.EXCLUSIVE,
        netlink.IFINFO.pack(0, 0, probe, 0, 0)
        + attribute(_IFNAME, text("probe"))
        + nested(_LINKINFO, attribute(1, text("ifb"))),
    )
    remove = message(netlink.DELLINK, 0, netlink.IFINFO.pack(0, 0, probe, 0, 0))
    try:
        socket.transact([create, _netem(probe, Impairment())])
    except netlink.NetlinkError:
        return False
    finally:
        with contextlib.suppress(netlink.NetlinkError):
            socket.transact([remove])
    return True


def install(device: int, impairment: Impairment) -> list[bytes]:
    """The messages that start impairing frames that arrive at a device."""
    ours = device + DEVICE_OFFSET
    return [
        message(
            netlink.NEWLINK,
            netlink.CREATE | netlink.EXCLUSIVE,
            netlink.IFINFO.pack(0, 0, ours, 0, 0)
            + attribute(_IFNAME, text(f"air{device}"))
            + nested(_LINKINFO, attribute(1, text("ifb"))),
        ),
        *netlink.without_ipv6_addresses(ours),
        netlink.up(ours),
        _netem(ours, impairment),
        message(
            netlink.NEWQDISC,
            netlink.CREATE | netlink.EXCLUSIVE,
            _TCMSG.pack(0, device, _INGRESS_HANDLE, _INGRESS, 0)
            + attribute(_KIND, text("ingress")),
        ),
        _redirect(device, ours),
    ]


def change(device: int, impairment: Impairment) -> bytes:
    """The message that changes the impairment of a device after `install`."""
    return _netem(device + DEVICE_OFFSET, impairment)


def _redirect(device: int, to: int) -> bytes:
    parameters = struct.pack("=IIiiiiI", 0, 0, _STOLEN, 0, 0, _EGRESS_REDIRECT, to)
    options = nested(2, attribute(_MIRRED_PARAMETERS, parameters))
    action = nested(1, attribute(1, text("mirred")), options)
    return message(
        _NEWTFILTER,
        netlink.CREATE | netlink.EXCLUSIVE,
        _TCMSG.pack(0, device, 0, _INGRESS_HANDLE, 1 << 16 | _ALL_PROTOCOLS)
        + attribute(_KIND, text("matchall"))
        + nested(_OPTIONS, nested(_MATCHALL_ACTIONS, action)),
    )


def _netem(index: int, impairment: Impairment) -> bytes:
    losses = impairment.losses
    options = struct.pack("=IIIIII", 0, HELD_FRAMES, 0, 0, 0, 0)
    options += attribute(_LATENCY, struct.pack("=q", round(impairment.delay_s * 1e9)))
    options += attribute(_SEED, struct.pack("=Q", impairment.seed))
    if losses is not None:
        parameters = (losses.good_to_bad, losses.bad_to_good, 1 - losses.loss_bad, losses.loss_good)
        chain = struct.pack("=IIII", *map(_probability, parameters))
        options += nested(_LOSS, attribute(_GILBERT_ELLIOTT, chain))
    if impairment.jitter_s:
        options += attribute(_JITTER, struct.pack("=q", round(impairment.jitter_s * 1e9)))
        options += attribute(_DELAYS, _normal_table())
    if (impairment.jitter_s or impairment.by_slot) and not impairment.reorders:
        options += attribute(_RATE, struct.pack("=IiIi", _IN_ORDER_BYTES_S, 0, 0, 0))
    return message(
        netlink.NEWQDISC,
        netlink.CREATE | netlink.REPLACE,
        _TCMSG.pack(0, index, HANDLE, _ROOT, 0)
        + attribute(_KIND, text("netem"))
        + attribute(_OPTIONS, options),
    )


def _probability(value: float) -> int:
    return min(round(value * 2**32), 2**32 - 1)


@functools.cache
def _normal_table() -> bytes:
    normal = NormalDist()
    quantiles = ((place + 0.5) / _QUANTILES for place in range(_QUANTILES))
    return struct.pack(
        f"={_QUANTILES}h", *(round(_SIGMA * normal.inv_cdf(share)) for share in quantiles)
    )
