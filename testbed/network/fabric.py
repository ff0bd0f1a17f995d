# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The emulated network: one veth pair per UAV, between the base station's namespace and its own.

If the two are on different machines, a VXLAN device at either end replaces the pair, or, for
ordinary users, a pair at either end that leads to a process: see `testbed.network.relay`.

No device appears on the host, and links carry only the nodes' own traffic: neighbour entries are
static, so there is no ARP, and the devices have no automatic IPv6 addresses. If nodes see one
network, their addresses are on the loopback device.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from testbed.core.errors import RunError
from testbed.core.impairment import Impairment
from testbed.core.node import BS, NodeId
from testbed.network.impairments import has_netem, install
from testbed.network.line import Line, Tap, drop_arrivals, tap
from testbed.network.pacing import Course, PacedEnd, Pacer
from testbed.network.relay import Inner, Relay, frames
from testbed.network.serial_line import SerialEnd
from testbed.network.shaping import End, Shape, removal
from testbed.network.taps import TapEnd, open_tap, set_up
from testbed.system import linux, netlink
from testbed.system.netlink import Netlink, NetlinkError, attribute, message, nested, text, u32

MOST_LINKS = 10_000
BS_DEVICE_BASE = 10_000
"""Base of device indices in the base station's namespace: link k has this index plus k."""
UAV_DEVICE = 10_000
"""The index of the device in a UAV's namespace."""
BS_ADDRESS, BS_ADDRESS_V6 = "10.255.0.1", "fd55::ffff:1"
"""Address of the base station for all UAVs if nodes see one network."""
_ALL_AT_ONCE, _ALL_AT_ONCE_V6 = (("255.255.255.255", 32), ("224.0.0.0", 4)), ("ff00::", 8)
"""The limited broadcast address, and multicast groups."""
_ALL_LINKS, _ALL_LINKS_V6 = ("10.0.0.0", 10), ("fd55::", 64)

_SIOCETHTOOL, _ETHTOOL_STSO, _ETHTOOL_SGRO = 0x8946, 0x1F, 0x2C
_LO = 1
_IFADDR = struct.Struct("=BBBBI")
_NEIGHBOUR = struct.Struct("=BxxxiHBB")
_PERMANENT = 0x80
_ROUTE = struct.Struct("=BBBBBBBBI")
_MAIN, _STATIC, _UNIVERSE, _ON_LINK, _UNICAST, _BLACKHOLE = 254, 4, 0, 253, 1, 6
_LOCAL, _MULTICAST = 255, 5
_NOWHERE = "192.0.2.1"
"""An unused address (RFC 5737)."""
_WHOLE_PACKETS_LOG = "20"
"""Value of `tcp_tso_rtt_log` with which TCP builds whole packets at round trips below 2^20 us (see
the kernel's `Documentation/networking/ip-sysctl.rst`)."""
_NO_DUPLICATE_DETECTION = 0x02
TUNNEL_PORT = 48_790
"""UDP port of tunnels between machines."""
TUNNEL_BYTES = 50
"""Bytes that a tunnel adds to an inner IP packet: outer IPv4, UDP, VXLAN, and inner Ethernet."""
MOST_TUNNELS = 1 << 24
"""Number of VXLAN network identifiers."""
_VXLAN_ID, _VXLAN_REMOTE, _VXLAN_LOCAL, _VXLAN_LEARNING = 1, 2, 4, 7
_VXLAN_PORT, _VXLAN_CHECKSUM = 15, 18
_DESTINATION, _DEVICE, _GATEWAY, _PRIORITY, _METRICS, _SOURCE = 1, 4, 5, 6, 8, 7
"""Attributes of a route."""
_INITIAL_WINDOW, _OFFERED_WINDOW, _CONGESTION_CONTROL = 11, 14, 16
"""Metrics of a route."""
_ADDRESS, _IFNAME, _MTU, _STATE, _LINKINFO, _STATS64, _CARRIER = 1, 3, 4, 16, 18, 23, 33
_RUNNING = (b"\0", b"\6")
"""States of a device that sends: the kernel does not watch it, or has seen that it is connected."""
_NET_NS_FD, _TX_QUEUES, _RX_QUEUES, _GSO_MAX_SEGS = 28, 31, 32, 40


def link_addresses(link: int) -> tuple[str, str]:
    """IPv4 addresses of the base station and the UAV on link `link`, which counts from 1."""
    if not 1 <= link <= MOST_LINKS:
        raise ValueError(f"link {link}: must be 1 to {MOST_LINKS}")
    network = f"10.{link >> 8}.{link & 255}"
    return f"{network}.1", f"{network}.2"


def link_address_v6(link: int) -> str:
    """IPv6 address of the UAV on a link if nodes see one network."""
    return f"fd55::{link:x}"


@dataclass(frozen=True)
class Site:
    """A network namespace of the fabric: its netlink socket and its ends of links."""

    netlink: Netlink
    ends: Sequence[End]


@dataclass(frozen=True)
class Tunnel:
    """The tunnel of a link whose other end is on another machine."""

    number: int
    """VXLAN network identifier: equal at both ends, and unique on both machines."""
    local: str
    """IPv4 address of this machine."""
    remote: str
    """IPv4 address of the other machine."""
    port: int = 0
    """UDP port of the relay on the other machine; 0: it is a VXLAN tunnel."""


@dataclass(frozen=True)
class Part:
    """One machine's part of a fabric on several machines."""

    links: int
    """Number of links of the whole fabric, K."""
    has_base_station: bool
    clients: tuple[int, ...]
    """UAVs on this machine, from 1."""
    tunnels: Mapping[int, Tunnel]
    """Tunnels of the links that have one end on this machine, by link."""


@dataclass(frozen=True)
class Arrival:
    """The device where frames of one direction of a link arrive on this machine."""

    link: int
    down: bool
    netlink: Netlink
    device: int
    tap: Tap | None = None


@dataclass(frozen=True)
class Fabric:
    """All links, or those ends of them that are on this machine."""

    base_station: Site
    """End k-1 is the downlink of UAV k; there are no ends if it is on another machine."""
    clients: Sequence[int]
    """UAVs on this machine, from 1."""
    uavs: Sequence[Site]
    """Namespaces of these UAVs; the only end of each is its uplink."""
    links: int
    """Number of links on all machines, K."""
    up_taps: Sequence[Tap] = ()
    """Taps of arriving uplink frames, one per link, if a `Line` will delay and lose them."""
    down_taps: Sequence[Tap] = ()
    relay: Relay | None = None
    """The process that carries links to other machines if there are no tunnels."""
    uav_taps: Sequence[int] = ()
    """Open files of the UAVs' devices if a radio process carries the frames, one per link."""
    station_taps: Sequence[int] = ()
    """Open files of the base station's devices if a radio process carries the frames."""
    pacer: Pacer | None = None
    """The process that carries the frames of paced links, if there are any."""

    def unshape(self) -> None:
        """Remove all qdiscs and queued frames, which the owner must do at the end; see
        `unshape`."""
        unshape(site.netlink for site in (self.base_station, *self.uavs))

    @property
    def arrivals(self) -> list[Arrival]:
        """All arrivals on this machine: uplinks at the base station, downlinks at UAVs."""
        bs = self.base_station
        found = [Arrival(link, False, bs.netlink, end.index) for link, end in enumerate(bs.ends, 1)]
        for client, site in zip(self.clients, self.uavs, strict=True):
            found.append(Arrival(client, True, site.netlink, site.ends[0].index))
        taps = (*self.up_taps, *self.down_taps)
        if not taps:
            return found
        return [replace(each, tap=tap) for each, tap in zip(found, taps, strict=True)]


@dataclass(frozen=True)
class DeviceCount:
    """Counters of a device for packets of one or more frames; see `Shape.packet_frames`."""

    sent_bytes: int
    """Bytes including the headers of each packet's first frame only."""
    sent_frames: int
    """Packets that the device has sent, of one or more frames each."""
    received_frames: int
    dropped_frames: int
    """Packets that the device could not send."""


def wire(
    base_station: int | None,
    uavs: Sequence[int],
    shape: Shape,
    part: Part | None = None,
    underlay: int | None = None,
    relays: Sequence[socket.socket] = (),
    *,
    taps: bool = False,
) -> Fabric:
    """Create all links; each one is closed (an outage) until a rate is set.

    The caller needs CAP_NET_ADMIN in the namespaces. It is in the base station's namespace
    afterwards.

    Args:
        base_station: Open file of the base station's network namespace; None: on another machine.
        uavs: Open file of the namespace of each UAV on this machine.
        shape: Shape of the links.
        part: Part of the fabric on this machine; None: all of it.
        underlay: Open file of the network namespace that tunnels use to reach other machines.
        relays: Alternatively, a socket for the datagrams of each tunnel, see `relay.datagrams`.
        taps: Whether a radio process will carry the frames: links then have tap devices as ends,
            which are not joined.

    Raises:
        OSError: The kernel refused an operation.
        RunError: The congestion control or the tap device is not available.
    """
    if part is None:
        part = Part(len(uavs), True, tuple(range(1, len(uavs) + 1)), {})
    relay, station_taps, uav_taps = None, list[int](), list[int]()
    if part.tunnels:
        ends = _far_ends(base_station, dict(zip(part.clients, uavs, strict=True)), part)
        if relays:
            relay = _relay(ends, relays, shape)
        else:
            assert underlay is not None
            _make_tunnels(ends, part, shape, underlay)
    paced = _paced(base_station, dict(zip(part.clients, uavs, strict=True)), shape)
    if base_station is None:
        linux.enter(uavs[0])
        bs = Site(Netlink(), [])
    else:
        bs, station_taps = _wire_base_station(base_station, uavs, shape, part, taps=taps)
    lined = shape.impaired and not has_netem(bs.netlink)
    up_taps, down_taps, sites = [], [], []
    courses = list[Course]()
    for link, uav in zip(part.clients, uavs, strict=True):
        linux.enter(uav)
        _configure_tcp(shape)
        _open_ports_and_ping(shape)
        site = Site(Netlink(), [_end(UAV_DEVICE, link, shape, taps=taps)])
        if isinstance(site.ends[0], PacedEnd):
            courses.append(Course(site.ends[0], Netlink(), *reversed(paced[link])))
        there, here = link_addresses(link)
        setup = []
        if taps:
            uav_taps.append(open_tap(UAV_DEVICE, str(BS)))
            setup.append(set_up(UAV_DEVICE, _mac(link, at_uav=True), shape.mtu))
        setup += _configure(site.ends[0], here, there, _mac(link, at_uav=False), shape)
        if shape.network:
            setup += _join(site.ends[0], link, shape)
        _transact(site.netlink, [netlink.up(_LO), *setup], shape)
        if shape.single_frames:
            _cut_packets(str(BS))
        if lined:
            own = _mac(link, at_uav=True)
            down_taps.append(tap(site.netlink, UAV_DEVICE, str(BS), own, shape.mtu))
        sites.append(site)
    if base_station is not None:
        linux.enter(base_station)
    for link, end in enumerate(bs.ends, 1):
        name = str(NodeId(link))
        if shape.single_frames:
            _cut_packets(name)
        if lined:
            own = _mac(link, at_uav=False)
            up_taps.append(tap(bs.netlink, end.index, name, own, shape.mtu))
        if isinstance(end, PacedEnd):
            courses.append(Course(end, Netlink(), *paced[link]))
    pacer = Pacer(courses, shape) if courses else None
    for site in (bs, *sites):
        _wait_until_running(site)
    return Fabric(
        *(bs, part.clients, sites, part.links, up_taps, down_taps, relay, uav_taps, station_taps),
        pacer,
    )


def _wait_until_running(site: Site) -> None:
    """Wait until the kernel has noticed that the ends of a site are connected.

    Before, it drops what they send. It looks at 100 devices at once, which are 50 links, and at the
    others a second later; kernels from 6.8 on look at a device when they are asked for it.

    Raises:
        OSError: The kernel did not notice it in time.
    """
    deadline = time.monotonic() + netlink.ANSWER_S
    for end in site.ends:
        while True:
            body = site.netlink.get(netlink.GETLINK, netlink.IFINFO.pack(0, 0, end.index, 0, 0))
            found = netlink.attributes(body[netlink.IFINFO.size :])
            if found[_CARRIER] != b"\1" or found[_STATE] in _RUNNING:
                break
            if time.monotonic() > deadline:
                raise OSError(errno.ETIMEDOUT, f"link device {end.index} does not begin to run")
            time.sleep(0.01)


def _end(index: int, link: int, shape: Shape, *, taps: bool) -> End:
    if taps:
        return TapEnd(index, shape)
    if shape.serial:
        return SerialEnd(index, shape)
    return (PacedEnd if link in shape.paced else End)(index, shape.of(link))


def _paced(
    base_station: int | None, uavs: Mapping[int, int], shape: Shape
) -> dict[int, tuple[socket.socket, socket.socket]]:
    """Create the devices of paced links; the packet sockets behind that of the base station and
    that of the UAV, which are in a separate namespace."""
    if not shape.paced:
        return {}
    assert base_station is not None
    os.close(linux.new_network_namespace())
    with Netlink() as outside:
        made = {}
        for link in shape.paced:
            ends = (
                Inner(
                    BS_DEVICE_BASE + link, str(NodeId(link)), base_station, _mac(link, at_uav=False)
                ),
                Inner(UAV_DEVICE, str(BS), uavs[link], _mac(link, at_uav=True)),
            )
            at = BS_DEVICE_BASE + link, BS_DEVICE_BASE + MOST_LINKS + link
            of_bs, of_uav = (
                frames(outside, index, end, shape.mtu) for index, end in zip(at, ends, strict=True)
            )
            made[link] = of_bs, of_uav
        return made


def _wire_base_station(
    base_station: int, uavs: Sequence[int], shape: Shape, part: Part, *, taps: bool
) -> tuple[Site, list[int]]:
    """Create the links within this machine, and the base station's ends of all links; returns
    their open files if they are tap devices."""
    linux.enter(base_station)
    _configure_tcp(shape)
    _open_ports_and_ping(shape)
    links = range(1, part.links + 1)
    bs = Site(Netlink(), [_end(BS_DEVICE_BASE + k, k, shape, taps=taps) for k in links])
    opened = []
    if taps:
        opened = [open_tap(BS_DEVICE_BASE + k, str(NodeId(k))) for k in links]
        made = [set_up(BS_DEVICE_BASE + k, _mac(k, at_uav=False), shape.mtu) for k in links]
    else:
        of_links = zip(part.clients, uavs, strict=True)
        made = [_pair(link, uav, shape) for link, uav in of_links if link not in shape.paced]
    bs.netlink.transact([*made, netlink.up(_LO)])
    ours, source = [], None
    if shape.network:
        ours, source = _own_addresses(BS_ADDRESS, BS_ADDRESS_V6, shape), BS_ADDRESS
    for link, end in enumerate(bs.ends, 1):
        here, there = link_addresses(link)
        ours += _configure(end, here, there, _mac(link, at_uav=True), shape, source)
        if shape.network and netlink.has_ipv6(shape.mtu):
            ours += _route_v6(end, link_address_v6(link), _mac(link, at_uav=True), shape)
            ours.append(_multicast_v6(end))
    _transact(bs.netlink, ours, shape)
    if shape.relay:
        _forward(shape)
    return bs, opened


def _far_ends(base_station: int | None, uavs: Mapping[int, int], part: Part) -> list[Inner]:
    """This machine's ends of links to other machines, in the order of the part's tunnels."""
    if base_station is not None:
        return [
            Inner(BS_DEVICE_BASE + link, str(NodeId(link)), base_station, _mac(link, at_uav=False))
            for link in part.tunnels
        ]
    return [
        Inner(UAV_DEVICE, str(BS), uavs[link], _mac(link, at_uav=True)) for link in part.tunnels
    ]


def _make_tunnels(ends: Sequence[Inner], part: Part, shape: Shape, underlay: int) -> None:
    """Create the ends of tunnels."""
    linux.enter(underlay)
    with Netlink() as host:
        for end, tunnel in zip(ends, part.tunnels.values(), strict=True):
            try:
                host.transact([_tunnel(end, tunnel, shape)])
            except NetlinkError as error:
                raise RunError(
                    f"links: no tunnel from {tunnel.local} to {tunnel.remote} ({error})"
                ) from None


def _relay(ends: Sequence[Inner], relays: Sequence[socket.socket], shape: Shape) -> Relay:
    """Create relayed ends, and their relay process in a separate namespace."""
    os.close(linux.new_network_namespace())
    with Netlink() as outside:
        taken = [
            frames(outside, BS_DEVICE_BASE + place, end, shape.mtu)
            for place, end in enumerate(ends, 1)
        ]
        return Relay(list(zip(taken, relays, strict=True)))


def unshape(inside: Iterable[Netlink]) -> None:
    """Remove the qdiscs and the queued frames at all ends in the namespaces of these sockets.

    Without this call, both remain until the machine is switched off: a frame behind a closed valve
    keeps its sender's socket alive, the socket its namespace, and the namespace the valve, which
    tries again and again. Such a namespace can no longer be entered.
    """
    for each in inside:
        with contextlib.suppress(OSError):  # Some devices have only their default qdisc.
            ends = (index for index in device_counts(each) if index >= UAV_DEVICE)
            each.transact([removal(index) for index in ends])


def sockets_in(namespaces: Iterable[int]) -> Iterator[Netlink]:
    """Enter one namespace after another, for `unshape`; the caller remains in the last one."""
    for namespace in namespaces:
        linux.enter(namespace)
        with Netlink() as inside:
            yield inside


def device_counts(socket: Netlink) -> dict[int, DeviceCount]:
    """Counters of each device in a socket's namespace, by device index."""
    counts = {}
    for body in socket.dump(netlink.GETLINK, netlink.IFINFO.pack(0, 0, 0, 0, 0)):
        _, _, index, _, _ = netlink.IFINFO.unpack_from(body)
        stats = netlink.attributes(body[netlink.IFINFO.size :])[_STATS64]
        received, sent_frames, _, sent_bytes, _, _, _, dropped = struct.unpack_from("=8Q", stats)
        counts[index] = DeviceCount(sent_bytes, sent_frames, received, dropped)
    return counts


def limit_packets(site: Site, frames: Sequence[int]) -> None:
    """Set the largest number of frames per packet for each end of a site.

    A connection reads the limit when it looks up its route; adding and removing a route makes it
    look up the route again.
    """
    forget = _ROUTE.pack(socket.AF_INET, 32, 0, 0, _MAIN, _STATIC, _UNIVERSE, _BLACKHOLE, 0)
    forget += attribute(1, socket.inet_aton(_NOWHERE))
    site.netlink.transact(
        [
            *(_packet_frames(end.index, n) for end, n in zip(site.ends, frames, strict=True)),
            message(netlink.NEWROUTE, netlink.CREATE, forget),
            message(netlink.DELROUTE, 0, forget),
        ]
    )
    for end, limit in zip(site.ends, frames, strict=True):
        end.packet_frames = limit


def impair(
    fabric: Fabric, uplinks: Sequence[Impairment], downlinks: Sequence[Impairment]
) -> Line | None:
    """Start delay and loss of frames; returns the process that implements them if there is no
    netem.

    Raises:
        RunError: The kernel does not support delay and loss of frames.
    """
    lined = []
    try:
        for at in fabric.arrivals:
            impairment = (uplinks, downlinks)[at.down][at.link - 1]
            if not impairment.acts:
                continue
            if at.tap is None:
                at.netlink.transact(install(at.device, impairment))
            else:
                at.netlink.transact(drop_arrivals(at.device))
                lined.append((at.tap, impairment))
    except NetlinkError as error:
        raise RunError(f"links: this kernel cannot delay or lose frames ({error})") from None
    return Line(lined) if lined else None


def _configure_tcp(shape: Shape) -> None:
    """Enable ECN for TCP in this thread's namespace, and let receivers offer the initial window."""
    settings = Path("/proc/sys/net/ipv4")
    if shape.ecn:
        (settings / "tcp_ecn").write_text("1")
    if shape.serial and not shape.impaired and not shape.network:
        # Nodes' packets are as large as the line says, whatever rate TCP estimates.
        with contextlib.suppress(OSError):
            (settings / "tcp_tso_rtt_log").write_text(_WHOLE_PACKETS_LOG)
    if shape.initial_window is not None:
        least, default, most = map(int, (settings / "tcp_rmem").read_text().split())
        # A receiver offers half of its buffer.
        default = max(default, 4 * shape.initial_window * shape.mtu)
        # Where /proc/sys is read-only, it offers less.
        with contextlib.suppress(OSError):
            (settings / "tcp_rmem").write_text(f"{least} {default} {max(default, most)}")


def _open_ports_and_ping(shape: Shape) -> None:
    """Let programs in this thread's namespace use ports below 1024, and ICMP echo by datagram
    sockets, without capabilities."""
    if not shape.network:
        return
    # Where /proc/sys is read-only, programs go without. A range names mapped groups only.
    with contextlib.suppress(OSError):
        Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").write_text("0")
    for groups in (f"0 {(1 << 31) - 1}", "0 65535", f"{os.getegid()} {os.getegid()}"):
        with contextlib.suppress(OSError):
            Path("/proc/sys/net/ipv4/ping_group_range").write_text(groups)
            return


def _cut_packets(device: str) -> None:
    """Disable segmentation and receive offloads of a device in this namespace: packets of several
    frames are cut when they leave it, and arriving frames are not merged, as tunnels would."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for feature in (_ETHTOOL_STSO, _ETHTOOL_SGRO):
            value = ctypes.create_string_buffer(struct.pack("=II", feature, 0))
            request = struct.pack("16sP16x", device.encode(), ctypes.addressof(value))
            fcntl.ioctl(sock, _SIOCETHTOOL, request)


def _packet_frames(index: int, frames: int) -> bytes:
    about = netlink.IFINFO.pack(0, 0, index, 0, 0)
    return message(netlink.NEWLINK, 0, about + attribute(_GSO_MAX_SEGS, u32(frames)))


def _transact(socket: Netlink, messages: Sequence[bytes], shape: Shape) -> None:
    try:
        socket.transact(messages)
    except NetlinkError as error:
        if netlink.kind_of(messages[error.index]) == netlink.NEWROUTE:
            name = shape.congestion_control
            raise RunError(f"congestion control {name!r} is not available here") from None
        raise


def _mac(link: int, at_uav: bool) -> bytes:
    return struct.pack("!BBHH", 2, 0, at_uav, link)


def _pair(link: int, uav: int, shape: Shape) -> bytes:
    queues = attribute(_TX_QUEUES, u32(1)) + attribute(_RX_QUEUES, u32(1))
    mtu = attribute(_MTU, u32(shape.mtu))
    peer = (
        netlink.IFINFO.pack(0, 0, UAV_DEVICE, 0, 0)
        + attribute(_IFNAME, text(str(BS)))
        + attribute(_ADDRESS, _mac(link, at_uav=True))
        + attribute(_NET_NS_FD, u32(uav))
        + mtu
        + queues
    )
    info = nested(_LINKINFO, attribute(1, text("veth")), nested(2, attribute(1, peer)))
    body = (
        netlink.IFINFO.pack(0, 0, BS_DEVICE_BASE + link, 0, 0)
        + attribute(_IFNAME, text(str(NodeId(link))))
        + attribute(_ADDRESS, _mac(link, at_uav=False))
        + mtu
        + queues
        + info
    )
    return message(netlink.NEWLINK, netlink.CREATE | netlink.EXCLUSIVE, body)


def _tunnel(end: Inner, tunnel: Tunnel, shape: Shape) -> bytes:
    """The message for a VXLAN device in the end's namespace, with its UDP socket in the
    sender's."""
    data = [
        attribute(_VXLAN_ID, u32(tunnel.number)),
        attribute(_VXLAN_REMOTE, socket.inet_aton(tunnel.remote)),
        attribute(_VXLAN_LOCAL, socket.inet_aton(tunnel.local)),
        attribute(_VXLAN_LEARNING, b"\0"),
        attribute(_VXLAN_PORT, struct.pack("!H", TUNNEL_PORT)),
        attribute(_VXLAN_CHECKSUM, b"\0"),  # The inner packet has a checksum.
    ]
    body = (
        netlink.IFINFO.pack(0, 0, end.index, 0, 0)
        + attribute(_IFNAME, text(end.name))
        + attribute(_ADDRESS, end.address)
        + attribute(_MTU, u32(shape.mtu))
        + attribute(_NET_NS_FD, u32(end.namespace))
        + attribute(_TX_QUEUES, u32(1))
        + attribute(_RX_QUEUES, u32(1))
        + nested(_LINKINFO, attribute(1, text("vxlan")), nested(2, *data))
    )
    return message(netlink.NEWLINK, netlink.CREATE | netlink.EXCLUSIVE, body)


def _metrics(shape: Shape) -> bytes:
    """Metrics of a route. They include the congestion control: node programs have no capabilities,
    and may not choose a restricted one themselves."""
    metrics = [attribute(_CONGESTION_CONTROL, text(shape.congestion_control))]
    if shape.initial_window is not None:
        metrics.append(attribute(_INITIAL_WINDOW, u32(shape.initial_window)))
        metrics.append(attribute(_OFFERED_WINDOW, u32(shape.initial_window)))
    return nested(_METRICS, *metrics)


def _forward(shape: Shape) -> None:
    """Enable IP forwarding in the base station's namespace, which is this thread's."""
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    if netlink.has_ipv6(shape.mtu):
        Path("/proc/sys/net/ipv6/conf/all/forwarding").write_text("1")


def _own_addresses(v4: str | None, v6: str, shape: Shape) -> list[bytes]:
    """The messages that add addresses to a node's loopback, where no neighbour discovery is
    sent."""
    new = netlink.CREATE | netlink.EXCLUSIVE
    messages = []
    if v4 is not None:
        address = attribute(1, socket.inet_aton(v4)) + attribute(2, socket.inet_aton(v4))
        messages.append(
            message(netlink.NEWADDR, new, _IFADDR.pack(socket.AF_INET, 32, 0, 0, _LO) + address)
        )
    if netlink.has_ipv6(shape.mtu):
        address = attribute(1, socket.inet_pton(socket.AF_INET6, v6))
        about = _IFADDR.pack(socket.AF_INET6, 128, _NO_DUPLICATE_DETECTION, 0, _LO)
        messages.append(message(netlink.NEWADDR, new, about + address))
    return messages


def _join(end: End, link: int, shape: Shape) -> list[bytes]:
    """The messages that let a UAV see one network: routes to the base station and the other
    UAVs."""
    new = netlink.CREATE | netlink.EXCLUSIVE
    over = attribute(_DEVICE, u32(end.index))
    gateway = attribute(_GATEWAY, socket.inet_aton(link_addresses(link)[0]))
    messages = _own_addresses(None, link_address_v6(link), shape)
    for group, bits in _ALL_AT_ONCE:
        about = _ROUTE.pack(socket.AF_INET, bits, 0, 0, _MAIN, _STATIC, _ON_LINK, _UNICAST, 0)
        to = attribute(_DESTINATION, socket.inet_aton(group))
        messages.append(message(netlink.NEWROUTE, new, about + to + over))
    for network, bits in [(BS_ADDRESS, 32), *([_ALL_LINKS] if shape.relay else [])]:
        about = _ROUTE.pack(socket.AF_INET, bits, 0, 0, _MAIN, _STATIC, _UNIVERSE, _UNICAST, 0)
        to = attribute(_DESTINATION, socket.inet_aton(network))
        messages.append(
            message(netlink.NEWROUTE, new, about + to + over + gateway + _metrics(shape))
        )
    if netlink.has_ipv6(shape.mtu):
        bs, own = (
            socket.inet_pton(socket.AF_INET6, address)
            for address in (BS_ADDRESS_V6, link_address_v6(link))
        )
        messages += _route_v6(end, BS_ADDRESS_V6, _mac(link, at_uav=False), shape, own)
        messages.append(_multicast_v6(end, own))
        if shape.relay:
            network, bits = _ALL_LINKS_V6
            to = attribute(_DESTINATION, socket.inet_pton(socket.AF_INET6, network))
            about = _ROUTE.pack(socket.AF_INET6, bits, 0, 0, _MAIN, _STATIC, _UNIVERSE, 1, 0)
            via = attribute(_GATEWAY, bs) + attribute(_SOURCE, own) + over
            messages.append(message(netlink.NEWROUTE, new, about + to + via + _metrics(shape)))
    return messages


def _multicast_v6(end: End, source: bytes | None = None) -> bytes:
    """The message for an end's route of IPv6 multicast, without which none is sent or received.

    The kernel adds its own route up to a second later, with a larger metric and no source address.
    """
    group, bits = _ALL_AT_ONCE_V6
    about = _ROUTE.pack(socket.AF_INET6, bits, 0, 0, _LOCAL, _STATIC, _UNIVERSE, _MULTICAST, 0)
    about += attribute(_DESTINATION, socket.inet_pton(socket.AF_INET6, group))
    about += attribute(_PRIORITY, u32(1)) + attribute(_DEVICE, u32(end.index))
    if source is not None:
        about += attribute(_SOURCE, source)
    return message(netlink.NEWROUTE, netlink.CREATE, about)


def _route_v6(
    end: End, there: str, neighbour: bytes, shape: Shape, source: bytes | None = None
) -> list[bytes]:
    """The messages for an IPv6 route to the other end of a link and its neighbour entry."""
    address = socket.inet_pton(socket.AF_INET6, there)
    about = _ROUTE.pack(socket.AF_INET6, 128, 0, 0, _MAIN, _STATIC, _UNIVERSE, _UNICAST, 0)
    return [
        message(
            netlink.NEWNEIGH,
            netlink.CREATE | netlink.REPLACE,
            _NEIGHBOUR.pack(socket.AF_INET6, end.index, _PERMANENT, 0, 0)
            + attribute(1, address)
            + attribute(2, neighbour),
        ),
        message(
            netlink.NEWROUTE,
            netlink.CREATE | netlink.EXCLUSIVE,
            about
            + attribute(_DESTINATION, address)
            + attribute(_DEVICE, u32(end.index))
            + (b"" if source is None else attribute(_SOURCE, source))
            + _metrics(shape),
        ),
    ]


def _configure(
    end: End, here: str, there: str, neighbour: bytes, shape: Shape, source: str | None = None
) -> list[bytes]:
    """The messages that configure an end with address `here` for a peer with address `there`.

    `source`, if given, is the default source address: UDP servers that listen on all addresses
    answer from it.
    """
    index = end.index
    preferred = b"" if source is None else attribute(_SOURCE, socket.inet_aton(source))
    # One frame per packet: otherwise TCP would send 64 KiB at a time, which the shaper delays.
    messages = [_packet_frames(index, 1), *netlink.without_ipv6_addresses(index, shape.mtu)]
    address = socket.inet_aton(here)
    messages += [
        *end.install(),
        netlink.up(index),
        message(
            netlink.NEWADDR,
            netlink.CREATE | netlink.EXCLUSIVE,
            _IFADDR.pack(socket.AF_INET, 32, 0, 0, index)
            + attribute(1, address)
            + attribute(2, address),
        ),
        message(
            netlink.NEWNEIGH,
            netlink.CREATE | netlink.REPLACE,
            _NEIGHBOUR.pack(socket.AF_INET, index, _PERMANENT, 0, 0)
            + attribute(1, socket.inet_aton(there))
            + attribute(2, neighbour),
        ),
        message(
            netlink.NEWROUTE,
            netlink.CREATE | netlink.EXCLUSIVE,
            _ROUTE.pack(socket.AF_INET, 32, 0, 0, _MAIN, _STATIC, _ON_LINK, _UNICAST, 0)
            + attribute(_DESTINATION, socket.inet_aton(there))
            + attribute(_DEVICE, u32(index))
            + preferred
            + _metrics(shape),
        ),
    ]
    return messages
