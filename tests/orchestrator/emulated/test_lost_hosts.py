# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Nodes that are lost with their hosts, as the orchestrator meets it in each of its places."""

import contextlib
import socket
import time
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.emulated.nodes import Nodes
from testbed.control.messages import CountFrames, FramesSent, StepsSoFar
from testbed.control.node import at_node
from testbed.core.errors import RunError
from testbed.core.node import BS, NodeId, uav
from testbed.runtimes import HostLost

LOST = HostLost("beta", (uav(1), uav(2)), 5, "it is gone")
PLACES = {BS: "alpha", uav(1): "beta", uav(2): "beta"}


class World(SimpleNamespace):
    """Three nodes on two hosts; news come when the test says so."""

    def __init__(self) -> None:
        pairs = {node: socket.socketpair() for node in PLACES}
        self.ends = {node: at_node(theirs) for node, (_, theirs) in pairs.items()}
        self.waker, self.woken = socket.socketpair()
        self.told: list[HostLost] = []
        super().__init__(
            places=PLACES,
            connect=lambda _: {node: ours for node, (ours, _) in pairs.items()},
            ordered=lambda _, order: order,
            fileno=self.woken.fileno,
            news=self._news,
        )

    def lose(self) -> None:
        """The host is gone, and the streams of its nodes with it."""
        self.told = [LOST]
        for node in LOST.nodes:
            self.ends[node].close()
        self.waker.send(b"!")

    def _news(self) -> list[HostLost]:
        told, self.told = self.told, []
        return told


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def nodes(world: World) -> Any:
    with contextlib.ExitStack() as stack:
        yield Nodes(world, stack, 1)  # type: ignore[arg-type]


def test_nobody_waits_for_them_and_what_they_told_is_heard(world: World, nodes: Nodes) -> None:
    heard: dict[NodeId, StepsSoFar] = {}
    lost: list[HostLost] = []
    nodes.hears[StepsSoFar], nodes.on_lost = heard.__setitem__, lost.append
    span = (2, 1, "CF", 0.5, 1.0, 0)
    world.ends[uav(2)].send(StepsSoFar((span,), ()))
    world.ends[BS].send(FramesSent(()))
    world.lose()
    assert nodes.collect(FramesSent, [BS, uav(1), uav(2)], 10).keys() == {BS}
    assert lost == [LOST]
    assert heard[uav(2)].spans == (span,)
    assert nodes.killed == set(LOST.nodes)
    assert nodes.alive == [BS]
    # From now on they are left out.
    nodes.send(uav(1), CountFrames())
    nodes.kill(uav(1))
    world.ends[BS].send(FramesSent(()))
    assert nodes.collect(FramesSent, [BS, uav(1)], 10).keys() == {BS}
    assert nodes.may_lose_hosts


def test_who_answers_while_a_loss_is_dealt_with_is_not_late(world: World, nodes: Nodes) -> None:
    """As where predictions are made once more, by code that has to be compiled first."""

    def deal_with(_: HostLost) -> None:
        time.sleep(0.2)
        world.ends[BS].send(FramesSent(()))

    nodes.on_lost = deal_with
    world.lose()
    assert nodes.collect(FramesSent, [BS, uav(1), uav(2)], 0.1).keys() == {BS}


def test_an_order_that_meets_a_closed_stream_waits_for_the_reason(
    world: World, nodes: Nodes
) -> None:
    lost: list[HostLost] = []
    nodes.on_lost = lost.append
    world.lose()
    nodes.send_all(CountFrames())
    assert lost == [LOST]
    assert isinstance(world.ends[BS].receive(1), CountFrames)


def test_before_rounds_nothing_goes_on_without_them(world: World, nodes: Nodes) -> None:
    world.lose()
    with pytest.raises(RunError, match=r"^host beta: it is gone$"):
        nodes.collect(FramesSent, [BS], 10)


def test_a_node_that_fails_alone_is_no_lost_host(world: World, nodes: Nodes) -> None:
    nodes.on_lost = pytest.fail
    world.ends[uav(1)].close()
    with pytest.raises(RunError, match=r"^uav1: .*disconnected"):
        nodes.collect(FramesSent, [uav(1)], 10)
