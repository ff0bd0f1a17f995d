# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Tap devices as ends of links: what nodes send is read from one file, and written to another."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import RunError
from testbed.network import taps
from testbed.network.shaping import Shape
from testbed.network.taps import TapEnd, open_tap

IN_NAMESPACES = """
import json, os, select, socket, struct, sys, threading
from testbed.network.fabric import device_counts, link_address_v6, link_addresses, wire
from testbed.network.shaping import Shape
from testbed.system import linux, netlink

user, group = os.getuid(), os.getgid()
linux.unshare(linux.CLONE_NEWUSER)
linux.map_own_ids(user, group)
station, *uavs = [linux.new_network_namespace() for _ in range(3)]
fabric = wire(station, uavs, Shape(mtu=1400, queue_frames=20, network=True), taps=True)

def devices(site):
    for body in site.netlink.dump(netlink.GETLINK, netlink.IFINFO.pack(0, 0, 0, 0, 0)):
        _, _, index, flags, _ = netlink.IFINFO.unpack_from(body)
        about = netlink.attributes(body[netlink.IFINFO.size :])
        mtu, queue = (struct.unpack("=I", about[kind])[0] for kind in (4, 13))
        name, discipline = (about[kind].rstrip(b"\\0").decode() for kind in (3, 6))
        yield name, index, flags & 1, mtu, about[1].hex(), queue, discipline

sites = (fabric.base_station, *fabric.uavs)
found = {"devices": [list(devices(site)) for site in sites]}

def bound(namespace, family, kind=socket.SOCK_DGRAM):
    linux.enter(namespace)
    made = socket.socket(family, kind)
    made.settimeout(10)
    made.bind(("", 9))
    return made

def carry(source, sink):
    frame = os.read(source, 65536)
    os.write(sink, frame)
    return len(frame)

# --- a datagram up, and the answer down, over the second link
said = found["datagrams"] = []
for family, to in ((socket.AF_INET, "10.255.0.1"), (socket.AF_INET6, "fd55::ffff:1")):
    with bound(station, family) as there, bound(uavs[1], family) as here:
        here.sendto(b"up", (to, 9))
        size = carry(fabric.uav_taps[1], fabric.station_taps[1])
        data, address = there.recvfrom(99)
        there.sendto(b"down", address)
        carry(fabric.station_taps[1], fabric.uav_taps[1])
        said.append([size, data.decode(), address[0], here.recv(99).decode()])
nothing = [*fabric.uav_taps, *fabric.station_taps]
found["others"] = len(select.select(nothing, [], [], 0.2)[0])

# --- a queue that is not read
before = device_counts(fabric.uavs[0].netlink)
with bound(uavs[0], socket.AF_INET) as here:
    here.setblocking(False)
    for number in range(50):
        here.sendto(b"%d" % number, ("10.255.0.1", 9))
    here.setsockopt(socket.IPPROTO_IP, 11, 1)  # IP_RECVERR
    try:
        here.sendto(b"one more", ("10.255.0.1", 9))
        found["refused"] = None
    except OSError as error:
        found["refused"] = error.errno
(count,) = (count for index, count in device_counts(fabric.uavs[0].netlink).items() if index > 1)
found["full"] = [count.dropped_frames, count.sent_frames]
os.set_blocking(fabric.uav_taps[0], False)
queued = []
while select.select([fabric.uav_taps[0]], [], [], 0)[0]:
    queued.append(os.read(fabric.uav_taps[0], 65536)[42:].decode())
found["queued"] = queued
(count,) = (count for index, count in device_counts(fabric.uavs[0].netlink).items() if index > 1)
found["read"] = [count.dropped_frames, count.sent_frames]

# --- TCP, whose frames are carried as they come
ways = dict(zip(fabric.uav_taps, fabric.station_taps))
ways |= {sink: source for source, sink in ways.items()}
ends, sizes = threading.Event(), []
def carry_all():
    while not ends.is_set():
        for source in select.select(list(ways), [], [], 0.05)[0]:
            sizes.append(carry(source, ways[source]))
carrier = threading.Thread(target=carry_all)
carrier.start()
size = 500_000
with bound(station, socket.AF_INET, socket.SOCK_STREAM) as listening:
    listening.listen()
    linux.enter(uavs[0])
    with socket.create_connection(("10.255.0.1", 9), 10) as here, listening.accept()[0] as there:
        sender = threading.Thread(target=here.sendall, args=[bytes(size)])
        sender.start()
        while size:
            size -= len(there.recv(65536))
        sender.join()
ends.set()
carrier.join()
found["largest"] = max(sizes)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found() -> Any:
    done = subprocess.run(
        [sys.executable, "-c", IN_NAMESPACES], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_devices_are_named_and_addressed_as_those_of_links(found: Any) -> None:
    loopback = ["lo", 1, 1, 65536, "000000000000", 1000, "noqueue"]
    own = [1, 1400], [20, "noqueue"]

    def device(name: str, index: int, address: str) -> list[Any]:
        return [name, index, *own[0], address, *own[1]]

    assert found["devices"] == [
        [
            loopback,
            device("uav1", 10_001, "020000000001"),
            device("uav2", 10_002, "020000000002"),
        ],
        [loopback, device("bs", 10_000, "020000010001")],
        [loopback, device("bs", 10_000, "020000010002")],
    ]


def test_a_frame_of_one_end_is_a_packet_at_the_other(found: Any) -> None:
    headers = 14 + 8 + len("up")
    assert found["datagrams"] == [
        [headers + 20, "up", "10.0.2.2", "down"],
        [headers + 40, "up", "fd55::2", "down"],
    ]
    assert found["others"] == 0, "no other frames, as of neighbour discovery"


def test_a_full_queue_drops_and_the_sender_can_know(found: Any) -> None:
    assert found["full"] == [31, 0]
    assert found["queued"] == [str(number) for number in range(20)]
    assert found["read"] == [31, 20], "frames count as sent once they are read"
    assert found["refused"] == 105  # ENOBUFS


def test_tcp_sends_one_segment_per_frame(found: Any) -> None:
    assert found["largest"] == 14 + 1400


def test_a_tap_device_has_no_rate_to_set() -> None:
    assert TapEnd(3, Shape()).change(1e6) == []


def test_a_machine_without_tap_devices_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real_open = os.open

    def opened(path: str, flags: int) -> int:
        assert path == "/dev/net/tun"
        return real_open(tmp_path / "none", flags)

    monkeypatch.setattr(taps, "os", type("os", (), {"open": opened, "O_RDWR": 0, "O_CLOEXEC": 0}))
    message = r"^emulation\.air: 'ns3' needs /dev/net/tun \(No such file or directory\)$"
    with pytest.raises(RunError, match=message):
        open_tap(3, "uav1")
