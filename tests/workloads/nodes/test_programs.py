# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The programs of base station and UAV, talking over loopback without any shaping."""

import itertools
import socket
import threading
from dataclasses import replace

import pytest
from play_programs import CLIENTS, CREDIT_S, ITERATIONS, PLAIN, SIZES, play

from testbed.control.messages import Keeping
from testbed.control.node import ControlLost
from testbed.core.paradigm import ASYNCHRONOUS, BUILT_IN, Paradigm, paradigm
from testbed.core.timeline import STEPS
from testbed.transport import streams
from testbed.transport.wire import Kind
from workloads.learning.work import ZeroServer
from workloads.nodes.server_round import KeptStates
from workloads.nodes.uav import Uav


@pytest.mark.parametrize("paradigm", BUILT_IN, ids=lambda p: p.name)
def test_every_step_happens_once_and_in_order(paradigm: Paradigm) -> None:
    (spans,) = play(paradigm)
    for client in range(1, CLIENTS + 1):
        own = sorted((s for s in spans if s[0] == client), key=lambda s: (s[3], s[4]))
        steps = [(s[2], s[1]) for s in own]
        iterations = [
            (step, i) for i in range(1, ITERATIONS + 1) for step in ("CF", "CA", "S", "SG", "CB")
        ]
        assert steps == [("SM", 1), *iterations, ("CM", ITERATIONS)]
        for before, after in itertools.pairwise(own):
            assert before[4] <= after[3] + 1e-9, (before, after)
    assert {s[2] for s in spans} == set(STEPS)


@pytest.mark.parametrize(
    ("transport", "connection"),
    [
        *(("tcp", "per-transfer"), ("tls", "kept"), ("tls", "per-transfer")),
        *(("grpc", "kept"), ("quic", "kept")),
    ],
)
def test_every_transport_carries_whole_rounds(transport, connection) -> None:
    settings = replace(PLAIN, transport=transport, connection=connection)
    for spans in play(paradigm("cpsfl"), rounds=2, settings=settings):
        assert len(spans) == CLIENTS * (2 + 5 * ITERATIONS)
        for span in spans:
            assert span[3] <= span[4]


@pytest.mark.parametrize("connection", ["kept", "per-transfer"])
def test_uploads_in_turns_are_carried_and_counted(connection) -> None:
    in_turns = replace(paradigm("cpsfl"), uplink="sequential")
    for spans in play(in_turns, rounds=2, settings=replace(PLAIN, connection=connection)):
        uploads = sorted((s[3], s[4]) for s in spans if s[2] in ("CA", "CM"))
        assert len(uploads) == CLIENTS * (ITERATIONS + 1)
        for (_, end), (start, _) in itertools.pairwise(uploads):
            assert end <= start + 1e-9


@pytest.mark.parametrize(
    ("transport", "connection"), [("tcp", "kept"), ("tls", "kept"), ("tcp", "per-transfer")]
)
def test_packets_of_gradients_are_marked_by_their_place(
    monkeypatch, transport: str, connection: str
) -> None:
    """Those to other clients come first; in the end, every connection has DSCP 0 again."""
    marks: dict[int, list[int]] = {}
    mark = streams._mark

    def marked(sock: socket.socket, dscp: int) -> None:
        mark(sock, dscp)
        if sock.fileno() >= 0:
            known = sock.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) >> 2
            marks.setdefault(sock.fileno(), []).append(known)

    monkeypatch.setattr(streams, "_mark", marked)
    settings = replace(PLAIN, transport=transport, connection=connection)
    play(paradigm("cpsfl"), settings=settings, mac_orders=True)
    places = [dscp for each in marks.values() for dscp in each if 0 < dscp < 63]
    assert len(places) >= CLIENTS * ITERATIONS
    assert {62} <= set(places) <= {62, 61, 60}
    assert 63 in (dscp for each in marks.values() for dscp in each)
    if connection == "kept":
        assert [each[-1] for each in marks.values()] == [0] * CLIENTS


def test_modelled_steps_take_what_the_profile_says() -> None:
    (spans,) = play(paradigm("cpsfl"), compute_s=0.03)
    for step, duration in (("CF", 0.03), ("S", 0.03), ("CB", 0.06)):
        for span in spans:
            if span[2] == step:
                assert span[4] - span[3] >= duration - 1e-9


def test_clients_start_together_when_the_slowest_has_the_broadcast() -> None:
    (spans,) = play(paradigm("cpsfl"))
    slowest = max(s[4] for s in spans if s[2] == "SM")
    assert {s[3] for s in spans if s[2] == "CF" and s[1] == 1} == {slowest}


def test_sequential_resources_serve_one_client_at_a_time() -> None:
    for name, step in (("cpsfl", "SG"), ("pipesfl", "S")):
        (spans,) = play(paradigm(name))
        turns = sorted((s[3], s[4]) for s in spans if s[2] == step)
        for (_, end), (start, _) in itertools.pairwise(turns):
            assert end <= start + 1e-9


def test_gates_hold_until_all_clients_have_come_that_far() -> None:
    (spans,) = play(paradigm("sfl-sp"))
    for iteration in range(1, ITERATIONS + 1):
        of = {
            step: [s for s in spans if s[1] == iteration and s[2] == step]
            for step in ("CA", "S", "SG")
        }
        assert min(s[3] for s in of["S"]) >= max(s[4] for s in of["CA"])
        assert min(s[3] for s in of["SG"]) >= max(s[4] for s in of["S"]) - 1e-9


def test_rounds_follow_in_emulated_time() -> None:
    first, second = play(paradigm("sfl-pp"), rounds=2)
    assert max(s[4] for s in first) < 10
    assert all(100 <= s[3] < 110 for s in second)


def test_each_client_has_frames_of_its_own_size() -> None:
    """As where they are cut at different points."""
    sizes = [
        replace(SIZES, adapters=1000 * k, adapters_header=8 * k, smashed=3000 * k)
        for k in range(1, CLIENTS + 1)
    ]
    for rounds in (spans for spans in play(paradigm("sfl-pp"), rounds=2, sizes=sizes)):
        found = {(client, step): size for client, _, step, _, _, size in rounds if size}
        for k in range(1, CLIENTS + 1):
            assert found[k, "SM"] == found[k, "CM"] == 1000 * k
            assert found[k, "CA"] == found[k, "SG"] == 3000 * k


class OtherServer(ZeroServer):
    """Its adapters are of other tensors."""

    def adapters_header(self, client: int) -> bytes:
        return b"\1" * self.sizes[client - 1].adapters_header


@pytest.mark.parametrize(
    ("who", "words"),
    [
        ("server", "adapters: the base station sent unexpected tensors"),
        ("client", "adapters: client 1 sent unexpected tensors"),
    ],
)
def test_adapters_of_other_tensors_are_refused_unread(monkeypatch, who: str, words: str) -> None:
    send, said = Uav._send, []

    def sends_others(self, kind, round_, iteration, extra=b"", payload=b"", **about):
        if kind is Kind.ADAPTERS and self.client == 1:
            extra = b"\1" * len(extra)
        send(self, kind, round_, iteration, extra, payload, **about)

    if who == "client":
        monkeypatch.setattr(Uav, "_send", sends_others)
    others = OtherServer() if who == "server" else None
    monkeypatch.setattr(threading, "excepthook", lambda about: said.append(str(about.exc_value)))
    with pytest.raises(ControlLost):
        play(paradigm("sfl-pp"), 0.02, 1, replace(PLAIN, timeout_s=1.0), others)
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(10)
    assert words in said


ASYNCHRONOUS_IN_TURN = [
    replace(paradigm("asfl-ps"), name=order, uplink="sequential", uplink_order=order)
    for order in ("first-come", "scheduled")
]


@pytest.mark.parametrize("paradigm", ASYNCHRONOUS_IN_TURN, ids=lambda p: p.name)
def test_asynchronous_clients_upload_one_after_the_other(paradigm: Paradigm) -> None:
    (spans,) = play(paradigm, updates=7)
    uploads = sorted((s[3], s[4]) for s in spans if s[2] in ("CA", "CM"))
    assert len(uploads) >= 7 * (ITERATIONS + 1)
    for (_, end), (start, _) in itertools.pairwise(uploads):
        assert end <= start + CREDIT_S


@pytest.mark.parametrize("paradigm", [*ASYNCHRONOUS, *ASYNCHRONOUS_IN_TURN], ids=lambda p: p.name)
def test_asynchronous_clients_go_on_by_themselves(paradigm: Paradigm) -> None:
    server = Mixing()
    for spans in play(paradigm, rounds=2, server=server, updates=7):
        updates = [s for s in spans if s[2] == "CM"]
        assert 7 <= len(updates) < 7 + CLIENTS, "those in progress at the end are finished"
        for client in range(1, CLIENTS + 1):
            own = sorted((s for s in spans if s[0] == client), key=lambda s: (s[3], s[4]))
            count = len([s for s in updates if s[0] == client])
            due = []
            for first in range(1, count * ITERATIONS + 1, ITERATIONS):
                due.append(("SM", first))
                for i in range(first, first + ITERATIONS):
                    due += [(step, i) for step in ("CF", "CA", "S", "SG", "CB")]
                due.append(("CM", first + ITERATIONS - 1))
            assert [(s[2], s[1]) for s in own] == due
            for before, after in itertools.pairwise(own):
                assert before[4] <= after[3] + 1e-9, (before, after)
    begun = [client for what, client, _ in server.told if what == "begins"]
    mixed = [client for what, client, _ in server.told if what == "mixes"]
    assert all(mixed.count(k) <= begun.count(k) <= mixed.count(k) + 2 for k in {*begun})
    assert len(mixed) == 14, "what arrives after the end is not mixed"
    assert server.averaged == 0, "nothing is averaged at the end"
    # How many others were mixed in since: counted here from what was told when.
    version, sent, stale = 0, {}, []
    for what, client, staleness in server.told:
        if what == "begins":
            sent[client] = version
        else:
            stale.append((staleness, version - sent[client]))
            version += 1
    assert all(said == counted for said, counted in stale)
    assert max(said for said, _ in stale) > 0


class Mixing(ZeroServer):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, int]] = []
        self.averaged = 0

    def begin_update(self, client: int) -> None:
        self.told.append(("begins", client, 0))

    def mix(self, client: int, staleness: int) -> None:
        self.told.append(("mixes", client, staleness))

    def aggregate(self, clients: object) -> None:
        self.averaged += 1


@pytest.mark.parametrize("paradigm", [*ASYNCHRONOUS, *ASYNCHRONOUS_IN_TURN], ids=lambda p: p.name)
def test_asynchronous_rounds_go_on_without_who_is_lost(paradigm: Paradigm) -> None:
    """The others make as many more updates; what it had finished stays mixed in."""
    server = Mixing()
    [spans] = play(paradigm, server=server, updates=9, lost_s={2: 0.25})
    updates = [span[0] for span in spans if span[2] == "CM"]
    mixed = [client for what, client, _ in server.told if what == "mixes"]
    assert all(mixed.count(k) <= updates.count(k) <= mixed.count(k) + 1 for k in {*updates})
    assert len(mixed) == 9
    assert {1, 3} <= set(mixed)
    begun = [client for what, client, _ in server.told if what == "begins"]
    assert begun.count(2) == mixed.count(2) + 1, "it was lost in an update"


def test_states_are_kept_before_they_change() -> None:
    """Every two updates and every 1.5 s: as the state was then, and never that of the end."""
    taken: list[int] = []
    kept = KeptStates(Keeping((2,), 1.5), 0.0, lambda: taken.append(kept._updates))
    for arrives_s in (1.0, 2.0, 3.0, 4.0, 9.0):
        kept.changes(arrives_s)
    assert kept.evaluations == [
        (1, 1.5, 0),
        (2, 2.0, 1),
        (3, 3.0, 2),
        (4, 4.0, 3),
        (4, 4.5, 3),
        (4, 6.0, 3),
        (4, 7.5, 3),
    ]
    assert taken == [1, 2, 3, 4]
    nothing = KeptStates(Keeping(), 0.0, lambda: taken.append(-1))
    nothing.changes(1.0)
    nothing.changes(2.0)
    assert (nothing.evaluations, taken[-1]) == ([], 4)
