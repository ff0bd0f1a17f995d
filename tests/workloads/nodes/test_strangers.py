# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Strangers at the base station: whatever they do, those who are due come in."""

import itertools
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import grpc
import pytest

from testbed import transport
from testbed.core.node import BS
from testbed.transport import callers, rpc, streams
from testbed.transport.certificates import identities
from testbed.transport.interface import Link, TransportSettings
from testbed.transport.tls import TlsStream, context
from testbed.transport.wire import ConnectionLost, Header, Kind, WireError

PLAIN = TransportSettings("5a" * 16, 20.0, meeting_s=20.0)
WAYS = [
    ("tcp", "kept"),
    ("tcp", "per-transfer"),
    ("tls", "kept"),
    ("tls", "per-transfer"),
    ("grpc", "kept"),
]
CLIENTS = 2
ACCEPT = Kind.PROBE, 0, 0, 3


def settings_of(way: tuple[str, str]) -> list[TransportSettings]:
    """The base station's, then each UAV's."""
    known = identities(CLIENTS) if way[0] == "tls" else [None] * (CLIENTS + 1)
    plain = replace(PLAIN, transport=way[0], connection=way[1])
    return [replace(plain, identity=identity) for identity in known]


class Station:
    """A base station that waits for its UAVs."""

    def __init__(self, settings: TransportSettings, clients: int = CLIENTS) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = probe.getsockname()
        self.links: dict[int, Link] = {}
        self.failure: Exception | None = None
        listening = threading.Event()
        self.thread = threading.Thread(
            target=self._accept, args=(settings, clients, listening.set), daemon=True
        )
        self.thread.start()
        assert listening.wait(20)

    def _accept(
        self, settings: TransportSettings, clients: int, listening: Callable[[], None]
    ) -> None:
        try:
            self.links = transport.accept(settings, self.address, range(1, clients + 1), listening)
        except Exception as error:
            self.failure = error

    def met(self) -> dict[int, Link]:
        self.thread.join(20)
        assert self.links, self.failure
        return self.links

    def call(self, says: bytes = b"") -> socket.socket:
        """Someone who says that and stays."""
        caller = socket.create_connection(self.address, 20)
        caller.sendall(says)
        return caller


def passes(sender: Link, receiver: Link, client: int) -> None:
    """A frame goes over a link."""
    sender.send(Header(Kind.PROBE, client, 0, 0, 0, 3, 0.0, 0.0), b"", b"abc")
    place = bytearray(3)
    receiver.receive_header(Kind.PROBE).expect(*ACCEPT)
    receiver.receive_into(memoryview(place))
    assert place == b"abc"


def hello(client: int, token: bytes) -> bytes:
    return Header(Kind.HELLO, client, 0, 0, 2, len(token), 0.0, 0.0).pack() + bytes(2) + token


def strangers(station: Station, settings: TransportSettings) -> Iterator[socket.socket]:
    """Everyone who calls before those who are due."""
    yield station.call()
    yield station.call(hello(1, bytes(16))[:20])
    yield station.call(b"\xff" * 4096)
    yield station.call(hello(1, bytes(16)))
    yield station.call(hello(99, bytes.fromhex(settings.token)))
    yield station.call(b"GET / HTTP/1.1\r\n\r\n")
    yield station.call(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")  # A TLS hello begins so.
    station.call().close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline


def has_ended(caller: socket.socket) -> bool:
    """Whether the other side hangs up, which says what it has to say before."""
    try:
        while caller.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_those_who_are_due_come_in_after_strangers(way) -> None:
    of_station, *of_uavs = settings_of(way)
    station = Station(of_station)
    present = list(strangers(station, of_station))
    uavs = [transport.connect(m, k, station.address) for k, m in enumerate(of_uavs, 1)]
    links = station.met()
    assert links.keys() == {1, 2}
    for client, uav in enumerate(uavs, 1):
        passes(uav, links[client], client)
        passes(links[client], uav, client)
    if way[1] == "kept" and way[0] != "grpc":
        assert all(map(has_ended, present))
        with pytest.raises(ConnectionRefusedError):
            station.call()
    else:  # The door stays open; more strangers come in the middle of the run.
        present += strangers(station, of_station)
        for client, uav in enumerate(uavs, 1):
            passes(uav, links[client], client)
            passes(links[client], uav, client)
    for caller in present:
        caller.close()


def test_a_uav_that_is_called_turns_strangers_away_too(monkeypatch) -> None:
    of_station, of_uav, _ = settings_of(("tcp", "per-transfer"))
    opened = []
    listen = streams._listen
    monkeypatch.setattr(streams, "_listen", lambda at: opened.append(listen(at)) or opened[-1])
    station = Station(of_station, clients=1)
    uav = transport.connect(of_uav, 1, station.address)
    port = opened[-1].getsockname()[1]
    with socket.create_connection(("127.0.0.1", port), 20) as stranger:
        stranger.sendall(hello(1, bytes.fromhex(of_uav.token)))  # No base station.
        assert has_ended(stranger)
    passes(station.met()[1], uav, 1)


def test_another_run_s_certificate_opens_nothing() -> None:
    of_station, *of_uavs = settings_of(("tls", "kept"))
    station = Station(of_station)
    stranger = station.call()
    theirs = context(identities(1)[1], server_side=False)
    with pytest.raises((WireError, ConnectionLost)):
        TlsStream(stranger, theirs, server_name=BS.host_name)
    impostor = TlsStream(
        station.call(), context(of_uavs[1].identity, server_side=False), server_name=BS.host_name
    )
    impostor.send(hello(1, bytes.fromhex(PLAIN.token)))
    assert has_ended(impostor.sock)
    for client, settings in enumerate(of_uavs, 1):
        transport.connect(settings, client, station.address)
    assert station.met().keys() == {1, 2}


def test_strangers_who_speak_grpc() -> None:
    settings = settings_of(("grpc", "kept"))[0]
    station = Station(settings)
    held = threading.Event()

    def stays(*says: bytes) -> Iterator[bytes]:
        yield from says
        held.wait(20)

    with grpc.insecure_channel(f"ipv4:127.0.0.1:{station.address[1]}") as channel:
        calls = [
            channel.stream_stream(rpc.METHOD)(stays(*says))
            for says in ((), (b"\xff" * 99,), (hello(1, bytes(16)),), (b"",))
        ]
        other = channel.stream_stream("/testbed.Wire/Other")(stays())
        uavs = [transport.connect(settings, k, station.address) for k in (1, 2)]
        links = station.met()
        late = channel.stream_stream(rpc.METHOD)(stays())
        for call in (*calls, other, late):
            with pytest.raises(grpc.RpcError):
                next(call)
        for client, uav in enumerate(uavs, 1):
            passes(uav, links[client], client)
            passes(links[client], uav, client)
        held.set()


@pytest.mark.parametrize("way", WAYS[:4], ids="-".join)
def test_so_many_may_hold_the_door_and_no_more(way, monkeypatch) -> None:
    monkeypatch.setattr(callers, "SPARE", 4)
    of_station, *of_uavs = settings_of(way)
    station = Station(of_station)
    holders = [station.call() for _ in range(4 + CLIENTS + 9)]
    until(lambda: len(select.select(holders, [], [], 1)[0]) == 9)
    for client, settings in enumerate(of_uavs, 1):
        transport.connect(settings, client, station.address)
    assert station.met().keys() == {1, 2}
    for holder in holders:
        holder.close()


def test_no_more_than_some_refusals_are_told(capfd) -> None:
    of_station, *of_uavs = settings_of(WAYS[0])
    station = Station(of_station)
    for _ in range(callers.MOST_TOLD + 5):
        with station.call(hello(1, bytes(16))) as stranger:
            assert has_ended(stranger)
    for client, settings in enumerate(of_uavs, 1):
        transport.connect(settings, client, station.address)
    station.met()
    told = [line for line in capfd.readouterr().err.splitlines() if "token: a peer" in line]
    assert len(told) == callers.MOST_TOLD


# Peers that are due, and silent.


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_who_does_not_come_is_named(way) -> None:
    of_station, of_uav, _ = settings_of(way)
    station = Station(replace(of_station, meeting_s=0.5))
    transport.connect(of_uav, 1, station.address)
    station.thread.join(20)
    assert str(station.failure) == "waited 0.5 s for uav2 to connect"


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_who_says_nothing_is_named_with_what_was_due(way) -> None:
    of_station, of_uav, _ = (replace(settings, timeout_s=0.3) for settings in settings_of(way))
    station = Station(of_station, clients=1)
    uav = transport.connect(of_uav, 1, station.address)
    link = station.met()[1]
    with pytest.raises(ConnectionLost, match=r"^SMASHED and uav1: nothing arrived for 0\.3 s$"):
        link.receive_header(Kind.SMASHED)
    with pytest.raises(ConnectionLost, match=r"^GRADIENT and the base station: nothing arrived"):
        uav.receive_header(Kind.GRADIENT)


@pytest.mark.parametrize("way", WAYS[:4], ids="-".join)
def test_who_takes_nothing_is_named_with_what_was_sent(way) -> None:
    of_station, of_uav, _ = (replace(settings, timeout_s=0.3) for settings in settings_of(way))
    station = Station(of_station, clients=1)
    uav = transport.connect(of_uav, 1, station.address)
    size = 1 << 25
    header = Header(Kind.GRADIENT, 1, 1, 0, 0, size, 0.0, 0.0)
    with pytest.raises(ConnectionLost, match=r"^GRADIENT and uav1: .*timed out$"):
        station.met()[1].send(header, b"", bytes(size))
    uav.close()


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_a_base_station_that_is_not_there_is_named(way) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # And does not listen.
        settings = replace(settings_of(way)[1], meeting_s=0.3)
        with pytest.raises(ConnectionLost, match=r"^HELLO and the base station: "):
            transport.connect(settings, 1, taken.getsockname())


def test_a_meeting_has_each_of_those_who_are_due_once() -> None:
    meeting: callers.Meeting[str] = callers.Meeting([2, 5])
    for client, arrival in ((5, "a"), (2, "b")):
        meeting.claim(client)
        meeting.come(client, arrival)
    for client in (5, 7):
        with pytest.raises(WireError, match=f"client: {client} is not expected"):
            meeting.claim(client)
    assert list(meeting.all(0)) == [(5, "a"), (2, "b")]
    assert list(itertools.islice(callers.Meeting[str]([]).all(0), 1)) == []


def test_the_door_is_shut_behind_those_who_are_in() -> None:
    """Whoever waits for the last of them may be faster than the thread that lets it in."""
    door, turned_away = callers.Callers(1), []

    def enter(client: int) -> int:
        door.shut()
        return client

    assert door.let_in("uav1", lambda: turned_away.append(1), lambda: 1, enter) == 1
    assert not turned_away
    assert door.let_in("late", lambda: turned_away.append(2), lambda: 2, enter) is None
    assert 2 in turned_away
