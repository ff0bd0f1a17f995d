# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Two-way time transfer: errors stay within their bounds, jumps and silence show."""

import random
import select
import socket
import time

import pytest

from testbed.cluster import clock
from testbed.cluster.clock import FIRST, Clocks, Echo, Reading, RemoteClock, reading

AHEAD_NS = 1000 * 10**9


def test_the_bound_holds_however_unlike_the_two_ways_are() -> None:
    draw = random.Random(1)
    for _ in range(1000):
        there_ns, served_ns, back_ns = (draw.randrange(10**6) for _ in range(3))
        arrived_ns = there_ns + AHEAD_NS
        left_ns = arrived_ns + served_ns
        answered_ns = there_ns + served_ns + back_ns
        found = reading(0, arrived_ns, left_ns, answered_ns)
        assert abs(found.offset_ns - AHEAD_NS) <= found.bound_ns
        assert found.bound_ns <= (there_ns + back_ns) // 2 + 1


def test_the_exchange_with_the_least_bound_counts_until_it_is_too_old() -> None:
    remote = RemoteClock()
    remote.learn(Reading(500, 100_000, 0))
    remote.learn(Reading(700, 1_000, 10))
    remote.learn(Reading(900, 50_000, 20))
    assert remote.now().offset_ns == 700
    # 100 ppm of a second are 100 µs.
    remote.learn(Reading(900, 50_000, 10**9))
    assert remote.now().offset_ns == 900
    assert remote.exchanges == 4
    assert remote.jumped_s == 0


def test_a_clock_that_jumps_shows() -> None:
    remote = RemoteClock()
    remote.learn(Reading(0, 1_000, 0))
    remote.learn(Reading(40_000, 1_000, 10**9))  # its speed may explain that
    assert remote.jumped_s == 0
    remote.learn(Reading(5_000_000, 1_000, 2 * 10**9))
    assert remote.jumped_s == pytest.approx(5e-3, rel=0.05)
    assert remote.now().offset_ns == 5_000_000


@pytest.fixture
def echo():
    made = Echo("127.0.0.1", "token")
    yield made
    made.close()


def test_this_machine_has_one_clock(echo: Echo) -> None:
    clocks = Clocks({"here": (("127.0.0.1", echo.port), "token")}, pytest.fail)
    try:
        assert clocks.await_first(30) is None
        found = clocks.of["here"].now()
        assert abs(found.offset_ns) <= found.bound_at(time.monotonic_ns())
        assert clocks.of["here"].exchanges >= FIRST
        assert not clocks.is_silent("here")
    finally:
        clocks.close()


def test_who_is_interrupted_takes_arrivals_for_late_and_never_for_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with clock._datagram_socket() as ours, clock._datagram_socket() as theirs:
        ours.bind(("127.0.0.1", 0))
        before_ns = time.monotonic_ns()
        theirs.sendto(b"word", ours.getsockname())
        assert select.select([ours], [], [], 10)[0]

        def interrupted(read):
            def slow() -> int:
                found = read()
                time.sleep(0.01)
                return found

            return slow

        for name in ("monotonic_ns", "time_ns"):
            monkeypatch.setattr(time, name, interrupted(getattr(time, name)))
        _, arrived_ns, _ = clock._received(ours)
    assert arrived_ns >= before_ns


def test_what_cannot_be_is_not_believed(echo: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reading(0, AHEAD_NS, AHEAD_NS + 100, 98).bound_ns <= 0
    answer = echo._answer
    # As if the wall clock there had been set between an arrival and its reading.
    monkeypatch.setattr(
        echo, "_answer", lambda n, arrived_ns, to: answer(n, arrived_ns - 10**9, to)
    )
    clocks = Clocks({"here": (("127.0.0.1", echo.port), "token")}, pytest.fail)
    try:
        assert clocks.await_first(0.3) == "here"
        assert clocks.of["here"].exchanges == 0
    finally:
        clocks.close()


def test_only_who_has_the_token_is_answered(echo: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    before_ns = echo.heard_ns
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(b"\0" * 24, ("127.0.0.1", echo.port))
    monkeypatch.setattr(clock, "SILENCE_S", 0.2)
    silent: list[str] = []
    clocks = Clocks({"here": (("127.0.0.1", echo.port), "another")}, silent.append)
    try:
        assert clocks.await_first(0.5) == "here"
        assert silent == ["here"]  # and told once
        assert clocks.is_silent("here")
        assert echo.heard_ns == before_ns
        assert echo.silent()
    finally:
        clocks.close()
