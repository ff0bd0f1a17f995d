# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Messages on the control plane: what is sent comes back as it was, or is refused in one line."""

import dataclasses
import math
import socket
import struct
import typing
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.control import messages, stream
from testbed.control.codec import Kinds, MessageError, encode
from testbed.control.messages import (
    FROM_INJECTOR,
    FROM_NODE,
    TO_INJECTOR,
    TO_NODE,
    Abandoned,
    Accept,
    BaseStationReport,
    Begin,
    Captured,
    Counters,
    Direction,
    Failed,
    FirstGradients,
    FramesSent,
    InjectorOrder,
    InjectorReport,
    JoinRound,
    LearnedBatch,
    LostClient,
    NodeOrder,
    NodeReport,
    Phase,
    Probe,
    ProbeLinks,
    Progress,
    Ready,
    Restore,
    RoundAhead,
    RoundTerms,
    Saved,
    ServeRound,
    SetRates,
    SetUpBaseStation,
    SetUpUav,
)
from testbed.control.node import ControlLost, NodeFailed, at_node, at_orchestrator
from testbed.control.stream import ControlSocket
from testbed.core.clock import EmulatedClock
from testbed.core.errors import RunError
from testbed.core.faults import BsFaults, UavFaults
from testbed.core.node import BS, NodeId, uav
from testbed.core.orders import Prospects
from testbed.core.paradigm import paradigm
from testbed.network.shaping import Shape
from testbed.network.taps import RadioProgram
from testbed.runtimes import WORLD_NEWS, Exit, Module, NodeSpec, WorldLost, namespace
from testbed.transport.accounts import Counts, TcpCount
from testbed.transport.interface import Identity, TransportSettings
from testbed.transport.wire import RoundSizes

SETTINGS = TransportSettings("00" * 16, 1.0, identity=Identity("a", "c", "k"))
TERMS = RoundTerms(3, 2, 5, RoundSizes(10, 2, 20, 8, 5), modelled=False)
SPAN = (1, 2, "SG", 0.5, math.inf, 9)
SLOW = ((0.0, 1.0, 2.0), (3.0, math.inf, 1.5))
FULL = [
    (TO_NODE, SetUpBaseStation(SETTINGS, 1e-3, None, paradigm("pipesfl-no-at"), mac_orders=True)),
    (TO_NODE, SetUpUav(7, replace(SETTINGS, identity=None), 1e-3, {"model": {"rank": [8]}})),
    (TO_NODE, Accept((1, 3), ("0.0.0.0", 5201))),
    (TO_NODE, ProbeLinks((Probe(1, True, 0.5, 9),), EmulatedClock(1, 0.0, 2.0))),
    (
        TO_NODE,
        ServeRound(
            TERMS,
            (1, 2),
            (0.1, 0.2),
            FirstGradients(4, 0.1, ((0.1, 0.2), (1e9, 0.3))),
            live=True,
            faults=BsFaults((None, 3.5), True, SLOW),
            ahead=RoundAhead(
                Prospects(5, (0.1, 0.2), (0.2, 0.4), (0.1, 0.1), (9, 9), (8, 8), (7, 7)),
                4,
                0.1,
                ((1e6, 0.0), (2e6, 3e6)),
                ((3e6, 0.0), (4e6, 5e6)),
            ),
            credits=(messages.Credits.of_all(1e-3), messages.Credits(0.1, 0.2, 0.3, 0.4, 0.5)),
        ),
    ),
    (TO_NODE, JoinRound(TERMS, 0.1, 0.2, 2.0, UavFaults(None, 7.0, "corrupt-frame", 0.1, SLOW))),
    (TO_NODE, JoinRound(TERMS, 0.1, 0.2, 2.0, None)),
    (TO_NODE, JoinRound(TERMS, 0.1, 0.2, 2.0, None, credits=messages.Credits(1, 2, 3, 4, 5.5))),
    (TO_NODE, Begin(EmulatedClock(2**62, 1e6, 1.0))),
    (TO_NODE, Restore(b"\0\1" * 1000)),
    (FROM_NODE, FramesSent(((1, Counts("HELLO", 0, 1, 2, 3, 4, 5, 6, TcpCount(1, 2))),))),
    (FROM_NODE, Progress((SPAN,), {"compute": (), "transmit": (3, 1)})),
    (FROM_NODE, Abandoned(LostClient(2, 0.5, "kind: HELLO where SMASHED is due"))),
    (
        FROM_NODE,
        BaseStationReport(
            (SPAN, SPAN),
            (),
            (0.0, 1e-3),
            {"passes": [1, 2]},
            0.5,
            (LostClient(1, 0.5, ""),),
            (LearnedBatch(1, 1, 0.7, 0.25),),
        ),
    ),
    (FROM_NODE, Saved(b"")),
    (TO_INJECTOR, SetRates(0, 2, 20, struct.pack("=4d", 1, 2, 3, 4))),
    (FROM_INJECTOR, Captured(10, 0)),
    (
        FROM_INJECTOR,
        Counters(7, ((Direction(*range(6)), Direction(*range(6))),), "fifo", 0, 1, b"x"),
    ),
    (WORLD_NEWS, Exit(uav(12), -9)),
    (WORLD_NEWS, Exit(None, 1)),
    (WORLD_NEWS, WorldLost("gone")),
    (
        namespace._ORDERS,
        namespace._MakeWorld(
            (
                NodeSpec(BS, Module("a.b", ("c",)), Path("/x/bs.log"), {"A": "B"}),
                NodeSpec(uav(1), ("sleep", "1"), Path("uav1.log")),
            ),
            Shape(initial_window=10),
            (Path("/w"),),
            None,
            RadioProgram(("/r",), "{}", (1e-9, 0.0)),
        ),
    ),
    (namespace._ORDERS, namespace._Kill(uav(3))),
]


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize(("kinds", "message"), FULL, ids=lambda m: type(m).__name__)
def test_what_is_sent_comes_back_as_it_was(kinds: Kinds, message: object, pair) -> None:
    ControlSocket(pair[0]).send(*encode(message))
    received = ControlSocket(pair[1]).receive(1)
    assert received is not None
    assert kinds.decode(*received) == message


def test_every_message_is_a_frozen_dataclass_whose_fields_can_be_carried() -> None:
    everything = {
        kind
        for union in (NodeOrder, NodeReport, InjectorOrder, InjectorReport)
        for kind in typing.get_args(union)
    }
    for kind in everything:
        assert kind.__module__ == messages.__name__
        assert kind.__dataclass_params__.frozen
        with pytest.raises(MessageError):  # Its fields are known, and this one is none of them.
            Kinds(kind | Failed).decode({"kind": kind.__name__, "?": 0}, b"")
    parts = {Probe, RoundTerms, RoundAhead, FirstGradients, LostClient, LearnedBatch, Direction}
    parts |= {messages.Keeping, messages.Credits}
    defined = {
        kind
        for kind in vars(messages).values()
        if dataclasses.is_dataclass(kind) and kind.__module__ == messages.__name__
    }
    assert defined == everything | parts


ACCEPT = encode(Accept((1,), ("::", 5)))[0]
JOIN = encode(FULL[5][1])[0]


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({}, r"the kind None is unknown here"),
        ({"kind": ["Ready"]}, r"the kind \['Ready'\] is unknown here"),
        ({"kind": "Ready"}, r"the kind 'Ready' is unknown here"),
        ({"kind": "__class__"}, r"the kind '__class__' is unknown here"),
        ({"kind": "Accept", "clients": [1]}, r"Accept\.address is missing"),
        (ACCEPT | {"more": 1}, r"Accept\.more is unknown"),
        (ACCEPT | {"clients": 1}, r"Accept\.clients must be a list, not 1"),
        (ACCEPT | {"clients": [1, "2"]}, r"Accept\.clients\.1 must be of type int, not '2'"),
        (ACCEPT | {"clients": [True]}, r"Accept\.clients\.0 must be of type int, not True"),
        (ACCEPT | {"clients": [1.0]}, r"Accept\.clients\.0 must be of type int, not 1\.0"),
        (ACCEPT | {"address": ["::"]}, r"Accept\.address must be a list of 2"),
        (JOIN | {"terms": None}, r"JoinRound\.terms must be an object"),
        (JOIN | {"cf_s": "1"}, r"JoinRound\.cf_s must be a number"),
        (JOIN | {"cf_s": 10**400}, r"JoinRound\.cf_s must be a number of 64 bits"),
        (
            JOIN | {"faults": JOIN["faults"] | {"wrong": "late"}},
            r"JoinRound\.faults\.wrong must be one of 'corrupt-frame', 'duplicate-frame'",
        ),
        (
            JOIN | {"terms": JOIN["terms"] | {"sizes": {"adapters": 1}}},
            r"JoinRound\.terms\.sizes\.adapters_header is missing",
        ),
        ({"kind": "Restore", "state": "x"}, r"Restore\.state is unknown"),
    ],
)
def test_what_is_no_message_is_refused_in_a_line(header, words: str) -> None:
    with pytest.raises(MessageError, match=rf"^message: {words}") as refused:
        TO_NODE.decode(header, b"")
    assert "\n" not in str(refused.value)


def test_nodes_are_spelt_in_messages() -> None:
    assert encode(Exit(uav(3), 0))[0]["node"] == "uav3"
    with pytest.raises(MessageError, match=r"^message: Exit\.node must be a node: 'uav0' is no"):
        WORLD_NEWS.decode(encode(Exit(uav(3), 0))[0] | {"node": "uav0"}, b"")
    header = encode(Exit(uav(3), 0))[0] | {"node": "bs"}
    assert WORLD_NEWS.decode(header, b"") == Exit(NodeId(0), 0)


def test_bytes_come_where_they_are_due_alone() -> None:
    with pytest.raises(MessageError, match=r"^message: Phase has 1 bytes where none are due"):
        TO_INJECTOR.decode(encode(Phase(1))[0], b"x")


def test_who_hears_nonsense_says_so(pair) -> None:
    ControlSocket(pair[0]).send({"kind": "Ready", "and": "so on"})
    with pytest.raises(ControlLost, match=r"^message: Ready\.and is unknown$"):
        at_orchestrator(pair[1]).take(1)
    ControlSocket(pair[0]).send(*encode(Ready()))
    with pytest.raises(ControlLost, match=r"^received Ready instead of Saved$"):
        at_orchestrator(pair[1]).expect(Saved, 1)
    ControlSocket(pair[0]).send(*encode(Ready()))
    with pytest.raises(ControlLost, match=r"^message: the kind 'Ready' is unknown here$"):
        at_node(pair[1]).receive(1)


def test_a_failure_is_raised_where_it_is_heard(pair) -> None:
    for wrong_input in (False, True):
        at_node(pair[0]).send(Failed("no memory", wrong_input))
        with pytest.raises(NodeFailed, match=r"^no memory$") as failed:
            at_orchestrator(pair[1]).take(1)
        assert failed.value.wrong_input == wrong_input


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (struct.pack("!II", (1 << 28) + 1, 0), "is too large"),
        (struct.pack("!II", 0, (1 << 30) + 1), "is too large"),
        (struct.pack("!II", 2, 0) + b"[]", "received bytes are not a JSON object"),
        (struct.pack("!II", 3, 0) + b'{"a', "received bytes are not a JSON object"),
        (struct.pack("!II", 2, 0) + b"\xff\xff", "received bytes are not a JSON object"),
        (struct.pack("!II", 200_000, 0) + b"[" * 200_000, "received bytes are not a JSON object"),
    ],
)
def test_bytes_that_are_no_message_are_refused(pair, data: bytes, words: str) -> None:
    receiver = ControlSocket(pair[1])
    pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    pair[0].sendall(data)
    with pytest.raises(RunError, match=rf"^control socket: .*{words}"):
        receiver.receive(1)


def test_a_message_that_is_too_large_is_not_sent(pair, monkeypatch) -> None:
    monkeypatch.setattr(stream, "MOST_BLOB_BYTES", 10)
    with pytest.raises(RunError, match=r"^control socket: a message of 2 and 11 bytes is too"):
        ControlSocket(pair[0]).send({}, bytes(11))
