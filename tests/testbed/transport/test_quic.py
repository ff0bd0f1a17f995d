# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""QUIC on loopback: whole frames in order, whoever is not of the run turned away, exact books."""

import json
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from processes import until

from testbed import transport
from testbed.control.messages import Traces
from testbed.core.node import BS
from testbed.core.node import uav as node_of
from testbed.network import qlog
from testbed.transport.accounts import Counts, QuicCount
from testbed.transport.certificates import identities
from testbed.transport.interface import Identity, Link, TransportSettings
from testbed.transport.qlog import LOGGER
from testbed.transport.quic import quic_on_link
from testbed.transport.wire import HEADER_BYTES, ConnectionLost, Header, Kind, WireError

UAV = node_of(1)
PLAIN = TransportSettings("5a" * 16, 20.0, meeting_s=20.0, transport="quic")
HEADERS = 42
"""Ethernet, IPv4 and UDP."""


@pytest.fixture(scope="module")
def known() -> list[Identity]:
    return identities(2)


class Station:
    """A base station that waits for UAV 1."""

    def __init__(self, identity: Identity, settings: TransportSettings = PLAIN) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = probe.getsockname()
        self.links: dict[int, Link] = {}
        self.failure: Exception | None = None
        self._settings = replace(settings, identity=identity)
        listening = threading.Event()
        self.thread = threading.Thread(target=self._accept, args=[listening.set], daemon=True)
        self.thread.start()
        assert listening.wait(20)

    def _accept(self, listening: Callable[[], None]) -> None:
        try:
            self.links = transport.accept(self._settings, self.address, [1], listening)
        except ConnectionLost as error:
            self.failure = error

    def link(self) -> Link:
        self.thread.join(20)
        assert self.links, self.failure
        return self.links[1]


def joined(known: list[Identity], settings: TransportSettings = PLAIN) -> tuple[Link, Link]:
    """Both ends of a link, the base station's first."""
    station = Station(known[0], settings)
    uav = transport.connect(replace(settings, identity=known[1]), 1, station.address)
    return station.link(), uav


def frame(size: int, iteration: int = 1) -> Header:
    return Header(Kind.PROBE, 1, iteration, 0, 0, size, 0.0, 0.0)


def carried(sender: Link, receiver: Link, payload: bytes, iteration: int = 1) -> None:
    sender.send(frame(len(payload), iteration), b"", payload)
    header = receiver.receive_header(Kind.PROBE)
    assert (header.iteration, header.payload_bytes) == (iteration, len(payload))
    place = bytearray(len(payload))
    receiver.receive_into(memoryview(place))
    assert place == payload


def test_frames_arrive_whole_and_in_order_both_ways(known: list[Identity]) -> None:
    bs, uav = joined(known)
    for iteration in range(1, 4):
        bs.send(frame(5, iteration), b"", b"12345")
    for iteration in range(1, 4):
        assert uav.receive_header(Kind.PROBE).iteration == iteration
        place = bytearray(5)
        assert uav.receive_into(memoryview(place)) > 0
        assert place == b"12345"
    carried(uav, bs, bytes(range(256)) * 2000)
    carried(bs, uav, b"")


def test_books_are_what_the_prediction_counts(known: list[Identity]) -> None:
    bs, uav = joined(known)
    for _ in range(20):  # From the seventeenth on, streams have numbers of two bytes.
        carried(bs, uav, b"x")
    bs.count()
    size = 1_000_000
    carried(bs, uav, bytes(size))
    carried(uav, bs, b"y")
    *_, books = bs.count()
    assert books.quic.stream_bytes == books.payload_bytes + books.framing_bytes
    assert books.payload_bytes == size
    # What QUIC sends again, where this machine keeps it waiting, is none of it.
    on_link = books.quic.data_bytes + HEADERS * books.quic.data_datagrams
    assert on_link == pytest.approx(quic_on_link(size + 44, 1500), rel=2e-3)


class LossyRelay:
    """Passes datagrams on between a UAV and a base station, but for every so many."""

    def __init__(self, station: tuple[str, int], every: int) -> None:
        self.near, self.far = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        self.near.bind(("127.0.0.1", 0))
        self.far.connect(station)
        self.address = self.near.getsockname()
        self.passed = {"up": 0, "down": 0}
        """Bytes, lost ones among them."""
        self._every = every
        for target in (self._up, self._down):
            threading.Thread(target=target, daemon=True).start()

    def _up(self) -> None:
        while True:
            datagram, self.uav = self.near.recvfrom(1 << 16)
            self.passed["up"] += len(datagram)
            self.far.send(datagram)

    def _down(self) -> None:
        count = 0
        while True:
            datagram = self.far.recv(1 << 16)
            self.passed["down"] += len(datagram)
            count += 1
            if count < 20 or count % self._every:
                self.near.sendto(datagram, self.uav)


@pytest.mark.parametrize("control", ["cubic", "reno"])
def test_lost_datagrams_come_again_and_are_booked_as_such(
    known: list[Identity], control: str
) -> None:
    settings = replace(PLAIN, congestion_control=control)
    station = Station(known[0], settings)
    relay = LossyRelay(station.address, every=50)
    uav = transport.connect(replace(settings, identity=known[1]), 1, relay.address)
    bs = station.link()
    carried(bs, uav, bytes(range(256)) * 2000)
    carried(uav, bs, b"done")
    books: list[Counts] = []
    quic = QuicCount()

    def everything_is_booked() -> bool:
        nonlocal quic
        books.extend(told := bs.count())
        quic = sum((each.quic for each in told), quic)
        sent = quic.data_bytes + quic.resent_bytes + quic.control_bytes + quic.handshake_bytes
        return sent == relay.passed["down"]

    until(everything_is_booked)  # Acknowledgements still go, and the relay reads after they went.
    assert quic.stream_bytes == sum(each.payload_bytes + each.framing_bytes for each in books)
    assert quic.resent_bytes > 5 * 1000


@pytest.mark.parametrize(
    ("whose", "token", "why"),
    [
        (2, "5a", "verification failed|doesn't match"),
        (1, "a5", "a peer does not know this run's token"),
    ],
)
def test_who_is_not_who_they_say_is_turned_away(
    known: list[Identity], capfd: pytest.CaptureFixture[str], whose: int, token: str, why: str
) -> None:
    station = Station(known[0])
    stranger = replace(PLAIN, identity=known[whose], token=token * 16)
    link = transport.connect(stranger, 1, station.address)
    with pytest.raises(ConnectionLost):
        link.receive_header(Kind.PROBE)
    uav = transport.connect(replace(PLAIN, identity=known[1]), 1, station.address)
    carried(uav, station.link(), b"abc")
    assert re.search(rf"refused 127.0.0.1:\d+: .*({why})", capfd.readouterr().err)


def test_another_runs_base_station_is_not_believed(known: list[Identity]) -> None:
    station = Station(identities(1)[0])
    with pytest.raises(ConnectionLost, match="certificate"):
        transport.connect(replace(PLAIN, identity=known[1]), 1, station.address)


def test_noise_takes_nobodys_place(known: list[Identity]) -> None:
    station = Station(known[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as noise:
        for datagram in (b"", b"\xff" * 1300, b"\xc0\0\0\0\1" + bytes(1300), bytes(30)):
            noise.sendto(datagram, station.address)
    uav = transport.connect(replace(PLAIN, identity=known[1]), 1, station.address)
    carried(uav, station.link(), b"abc")


def test_who_waits_for_a_peer_that_hangs_up_waits_no_longer(known: list[Identity]) -> None:
    bs, uav = joined(known)
    uav.hang_up()
    with pytest.raises(ConnectionLost, match=r"uav1"):
        bs.receive_header(Kind.PROBE)
    with pytest.raises(ConnectionLost):
        uav.receive_header(Kind.PROBE)
    with pytest.raises(ConnectionLost):
        uav.send(frame(0))


def test_qlog_tells_of_every_datagram_on_both_sides(known: list[Identity], tmp_path: Path) -> None:
    LOGGER.traces.clear()
    settings = replace(PLAIN, qlog=True)
    bs, uav = joined(known, settings)
    carried(bs, uav, bytes(100_000))
    carried(uav, bs, b"x")
    told = {}
    for trace in LOGGER.traces:
        data = trace.compressed()
        node = UAV if trace.to_dict()["vantage_point"]["type"] == "client" else BS
        told[node] = Traces(((trace.connection, len(data)),), data)
    assert told.keys() == {BS, UAV}
    qlog.write(tmp_path / "qlog", told)
    events = {}
    for name in ("uav1", "bs-uav1"):
        begun, *texts = (tmp_path / "qlog" / f"{name}.sqlog").read_bytes().split(b"\x1e")
        head, *events[name] = (json.loads(text) for text in texts)
        assert begun == b""
        assert head["qlog_format"] == "JSON-SEQ"
    streams = [
        frame["length"]
        for event in events["bs-uav1"]
        if event["name"] == "transport:packet_sent"
        for frame in event["data"]["frames"]
        if frame["frame_type"] == "stream"
    ]
    assert sum(streams) == 100_000 + HEADER_BYTES
    received = [e for e in events["uav1"] if e["name"] == "transport:datagrams_received"]
    assert len(received) >= len(streams)


def test_a_frame_that_is_shorter_than_it_says_is_refused(known: list[Identity]) -> None:
    bs, uav = joined(known)
    bs.send(frame(100), b"", b"short")
    uav.receive_header(Kind.PROBE)
    with pytest.raises(WireError, match="shorter"):
        uav.receive_into(memoryview(bytearray(100)))
