# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Continuous measurement of another machine's clock by two-way time transfer.

A datagram goes to the host and returns with its times of arrival and departure there. Half of the
remaining round-trip time bounds the error of the offset, even if the two one-way delays differ.
Arrivals are kernel timestamps, so that late wake-ups of a program have no effect. The exchange with
the smallest bound is used; its bound grows with its age, because oscillators drift. An exchange
that contradicts it shows that a clock has jumped.

Datagrams are authenticated with the host's token. After a time without datagrams, each side
considers the other one dead.
"""

import contextlib
import hmac
import itertools
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from testbed.system.arrivals import NOTE_BYTES, note_arrivals, noted_ns

DRIFT = 100e-6
"""Largest relative frequency error between two clocks; quartz oscillators differ by some 20 ppm."""
EVERY_S = 0.05
"""Seconds between two exchanges with a host."""
ANSWER_S = 0.5
"""Seconds after which an answer is ignored."""
FIRST = 20
"""Number of exchanges before a clock is trusted."""
SILENCE_S = 15.0
"""Seconds without datagrams after which the other side is considered dead."""
_ASK, _ANSWER = struct.Struct("!Q"), struct.Struct("!Qqq")
_MAC_BYTES = 16


@dataclass(frozen=True)
class Reading:
    """The offset of another clock, as measured by one exchange."""

    offset_ns: int
    """Remote clock minus local clock."""
    bound_ns: int
    """Bound of the offset's error at `at_ns`."""
    at_ns: int
    """Time of the measurement by the local clock."""

    def bound_at(self, monotonic_ns: int) -> int:
        """Bound of the offset's error at another time of the local clock."""
        return self.bound_ns + round(DRIFT * abs(monotonic_ns - self.at_ns))


def reading(asked_ns: int, arrived_ns: int, left_ns: int, answered_ns: int) -> Reading:
    """The offset from an exchange: two times of the local clock around two of the remote clock.

    A bound that is not positive shows that one of the times is wrong.
    """
    way_ns = (answered_ns - asked_ns) - (left_ns - arrived_ns)
    offset_ns = ((arrived_ns - asked_ns) + (left_ns - answered_ns)) // 2
    return Reading(offset_ns, way_ns // 2 + 1, answered_ns)


class RemoteClock:
    """Another machine's clock, as measured by the exchanges so far."""

    def __init__(self) -> None:
        self._best: Reading | None = None
        self.exchanges = 0
        """Number of answered exchanges."""
        self.heard_ns = time.monotonic_ns()
        """Local monotonic time of the last answer."""
        self.jumped_s = 0.0
        """Largest jump of the clock in s, beyond what a frequency error can explain."""

    def learn(self, new: Reading) -> None:
        """Add the result of an exchange."""
        best = self._best
        if best is not None:
            off_ns = abs(new.offset_ns - best.offset_ns)
            off_ns -= new.bound_ns + best.bound_at(new.at_ns)
            if off_ns > 0:
                self.jumped_s = max(self.jumped_s, off_ns * 1e-9)
                best = None
        if best is None or new.bound_ns <= best.bound_at(new.at_ns):
            self._best = new
        self.exchanges += 1
        self.heard_ns = new.at_ns

    def now(self) -> Reading:
        """The best measurement so far."""
        assert self._best is not None, "no exchange has been answered yet"
        return self._best


class Clocks:
    """A thread that exchanges datagrams with hosts until it is closed."""

    def __init__(
        self,
        hosts: Mapping[str, tuple[tuple[str, int], str]],
        on_silence: Callable[[str], object],
    ) -> None:
        """Start the exchanges.

        Args:
            hosts: Address of each host's echo service and its token, by host name.
            on_silence: Called once, by the thread, with the name of a host that does not answer.
        """
        self.of = {name: RemoteClock() for name in hosts}
        """The clock of each host, by name."""
        self._links = {name: _Link(at, token) for name, (at, token) in hosts.items()}
        self._on_silence = on_silence
        self._lost: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._exchange, daemon=True)
        self._thread.start()

    def await_first(self, timeout_s: float) -> str | None:
        """Wait until all clocks have been measured; returns the name of a host whose clock has not,
        or None."""
        deadline = time.monotonic() + timeout_s
        while unknown := [name for name, clock in self.of.items() if clock.exchanges < FIRST]:
            if time.monotonic() > deadline:
                return unknown[0]
            time.sleep(0.01)
        return None

    def lose(self, host: str) -> None:
        """Stop exchanges with a host; may be called twice."""
        self._lost.add(host)

    def is_silent(self, host: str) -> bool:
        """Whether a host has not answered for `SILENCE_S`."""
        return time.monotonic_ns() - self.of[host].heard_ns > SILENCE_S * 1e9

    def _exchange(self) -> None:
        links = {link.sock.fileno(): (name, link) for name, link in self._links.items()}
        poll = select.poll()
        for descriptor in links:
            poll.register(descriptor, select.POLLIN)
        while not self._over.is_set():
            for name, link in self._links.items():
                if name in self._lost:
                    continue
                link.ask()
                if self.is_silent(name):
                    self.lose(name)
                    self._on_silence(name)
            first = any(
                clock.exchanges < FIRST for name, clock in self.of.items() if name not in self._lost
            )
            rest_s = EVERY_S / 10 if first else EVERY_S
            until = time.monotonic() + rest_s
            while (left_s := until - time.monotonic()) > 0:
                for descriptor, _ in poll.poll(1000 * left_s):
                    name, link = links[descriptor]
                    if (told := link.answer()) is not None:
                        self.of[name].learn(told)

    def close(self) -> None:
        """End."""
        self._over.set()
        self._thread.join()
        for link in self._links.values():
            link.sock.close()


class _Link:
    """The local end of the exchanges with one host."""

    def __init__(self, at: tuple[str, int], token: str) -> None:
        self.sock = _datagram_socket()
        self.sock.connect(at)
        self._key = token.encode()
        self._numbers = itertools.count(1)
        self._asked: dict[int, int] = {}

    def ask(self) -> None:
        number = next(self._numbers)
        data = _sealed(self._key, _ASK.pack(number))
        now_ns = time.monotonic_ns()
        late_ns = now_ns - round(ANSWER_S * 1e9)
        self._asked = {n: ns for n, ns in self._asked.items() if ns > late_ns}
        with contextlib.suppress(OSError):  # A dead host is detected by its silence.
            self._asked[number] = time.monotonic_ns()
            self.sock.send(data)

    def answer(self) -> Reading | None:
        """The measurement from a received datagram, if it is a valid answer."""
        try:
            data, arrived_ns, _ = _received(self.sock)
        except OSError:
            return None
        body = _opened(self._key, data, _ANSWER.size)
        if body is None:
            return None
        number, there_ns, left_ns = _ANSWER.unpack(body)
        asked_ns = self._asked.pop(number, None)
        if asked_ns is None:
            return None
        told = reading(asked_ns, there_ns, left_ns, arrived_ns)
        # Setting the wall clock between an arrival and its evaluation falsifies the arrival time.
        return told if told.bound_ns > 0 else None


class Echo:
    """A host's end: answers authenticated requests with times of its clock."""

    def __init__(self, address: str, token: str) -> None:
        self._sock = _datagram_socket()
        self._sock.bind((address, 0))
        self._key = token.encode()
        self.port: int = self._sock.getsockname()[1]
        """Port of the listening socket."""
        self.heard_ns = time.monotonic_ns()
        """Monotonic time of the orchestrator's last request."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def silent(self) -> bool:
        """Whether no request has arrived for `SILENCE_S`."""
        return time.monotonic_ns() - self.heard_ns > SILENCE_S * 1e9

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        while not self._over.is_set():
            if not poll.poll(1000 * EVERY_S):
                continue
            with contextlib.suppress(OSError):
                data, arrived_ns, sender = _received(self._sock)
                if (body := _opened(self._key, data, _ASK.size)) is not None:
                    self.heard_ns = arrived_ns
                    (number,) = _ASK.unpack(body)
                    self._answer(number, arrived_ns, sender)

    def _answer(self, number: int, arrived_ns: int, to: tuple[str, int]) -> None:
        # The time between reading the clock and sending counts as network delay.
        body = _ANSWER.pack(number, arrived_ns, time.monotonic_ns())
        self._sock.sendto(_sealed(self._key, body), to)

    def close(self) -> None:
        """End."""
        self._over.set()
        self._thread.join()
        self._sock.close()


def _datagram_socket() -> socket.socket:
    """A UDP socket with kernel arrival timestamps."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    note_arrivals(sock)
    return sock


def _received(sock: socket.socket) -> tuple[bytes, int, tuple[str, int]]:
    """A received datagram, its monotonic arrival time in ns, and its sender.

    An interruption between reading the two clocks makes the arrival time later and so the bound
    wider; in the opposite order the bound could become too small.
    """
    data, notes, _, sender = sock.recvmsg(64, NOTE_BYTES, socket.MSG_DONTWAIT)
    unix_ns, now_ns = time.time_ns(), time.monotonic_ns()
    then_ns = noted_ns(notes)
    return data, now_ns if then_ns is None else now_ns - max(0, unix_ns - then_ns), sender


def _sealed(key: bytes, body: bytes) -> bytes:
    return hmac.digest(key, body, "sha256")[:_MAC_BYTES] + body


def _opened(key: bytes, data: bytes, body_bytes: int) -> bytes | None:
    """The body of an authentic datagram; None otherwise."""
    seal, body = data[:_MAC_BYTES], data[_MAC_BYTES:]
    due = hmac.digest(key, body, "sha256")[:_MAC_BYTES]
    return body if len(body) == body_bytes and hmac.compare_digest(seal, due) else None
