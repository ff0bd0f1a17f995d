# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What another machine's clock says: two-way time transfer, all the time.

A datagram goes to the host and comes back with the moments at which it arrived and left there. Half
of what the way took beyond that bounds the error of the offset, however unlike the two ways are.
Kernels note arrivals, so that a program that wakes up late does not count. Of all exchanges, the
one with the least bound counts, and its bound grows with its age: oscillators differ. An exchange
that contradicts it shows that a clock has jumped.

Datagrams are authenticated with the host's token. The host takes silence for the orchestrator's
death, and the orchestrator for the host's.
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
"""By how much two clocks may differ in speed; quartz differs by some 20 ppm."""
EVERY_S = 0.05
"""Between two exchanges with a host."""
ANSWER_S = 0.5
"""Later answers are of no use."""
FIRST = 20
"""Exchanges before a clock is trusted."""
SILENCE_S = 15.0
"""After so long without a word, the other side is given up."""
_ASK, _ANSWER = struct.Struct("!Q"), struct.Struct("!Qqq")
_MAC_BYTES = 16


@dataclass(frozen=True)
class Reading:
    """How far another clock was ahead, as one exchange told."""

    offset_ns: int
    """Theirs less ours."""
    bound_ns: int
    """Of its error, at that moment."""
    at_ns: int
    """That moment, by our clock."""

    def bound_at(self, monotonic_ns: int) -> int:
        """Bound of its error at another moment of our clock."""
        return self.bound_ns + round(DRIFT * abs(monotonic_ns - self.at_ns))


def reading(asked_ns: int, arrived_ns: int, left_ns: int, answered_ns: int) -> Reading:
    """What an exchange tells: two moments of our clock around two of theirs.

    A bound that is not positive shows that one of them is wrong.
    """
    way_ns = (answered_ns - asked_ns) - (left_ns - arrived_ns)
    offset_ns = ((arrived_ns - asked_ns) + (left_ns - answered_ns)) // 2
    return Reading(offset_ns, way_ns // 2 + 1, answered_ns)


class RemoteClock:
    """Another machine's clock, as exchanges have shown it so far."""

    def __init__(self) -> None:
        self._best: Reading | None = None
        self.exchanges = 0
        """So many have come back."""
        self.heard_ns = time.monotonic_ns()
        """When the last one did."""
        self.jumped_s = 0.0
        """By how much the clock has jumped, at most; what its speed may explain is left out."""

    def learn(self, new: Reading) -> None:
        """Take an exchange into account."""
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
        """The best that is known."""
        assert self._best is not None, "no exchange has come back yet"
        return self._best


class Clocks:
    """Exchanges with hosts, in a thread, for as long as this is open."""

    def __init__(
        self,
        hosts: Mapping[str, tuple[tuple[str, int], str]],
        on_silence: Callable[[str], object],
    ) -> None:
        """Begin.

        Args:
            hosts: Where each host echoes, and its token, by name.
            on_silence: Told, once, of a host that has said nothing for too long, by our thread.
        """
        self.of = {name: RemoteClock() for name in hosts}
        """By host."""
        self._links = {name: _Link(at, token) for name, (at, token) in hosts.items()}
        self._on_silence = on_silence
        self._lost: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._exchange, daemon=True)
        self._thread.start()

    def await_first(self, timeout_s: float) -> str | None:
        """Wait until all clocks are known; the name of a host whose is not by then."""
        deadline = time.monotonic() + timeout_s
        while unknown := [name for name, clock in self.of.items() if clock.exchanges < FIRST]:
            if time.monotonic() > deadline:
                return unknown[0]
            time.sleep(0.01)
        return None

    def lose(self, host: str) -> None:
        """Ask a host no more; may be called twice."""
        self._lost.add(host)

    def is_silent(self, host: str) -> bool:
        """Whether a host has said nothing for too long."""
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
    """Our end of the exchanges with one host."""

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
        with contextlib.suppress(OSError):  # Nobody there shows by silence.
            self._asked[number] = time.monotonic_ns()
            self.sock.send(data)

    def answer(self) -> Reading | None:
        """What came, if it is an answer."""
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
        # A wall clock that is set between an arrival and its reading falsifies the arrival.
        return told if told.bound_ns > 0 else None


class Echo:
    """A host's end: tells who has the token what its clock says."""

    def __init__(self, address: str, token: str) -> None:
        self._sock = _datagram_socket()
        self._sock.bind((address, 0))
        self._key = token.encode()
        self.port: int = self._sock.getsockname()[1]
        """Where it listens."""
        self.heard_ns = time.monotonic_ns()
        """When the orchestrator asked last."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def silent(self) -> bool:
        """Whether nobody has asked for too long."""
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
        # What comes between the second moment and sending counts as way.
        body = _ANSWER.pack(number, arrived_ns, time.monotonic_ns())
        self._sock.sendto(_sealed(self._key, body), to)

    def close(self) -> None:
        """End."""
        self._over.set()
        self._thread.join()
        self._sock.close()


def _datagram_socket() -> socket.socket:
    """A socket whose arrivals the kernel notes."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    note_arrivals(sock)
    return sock


def _received(sock: socket.socket) -> tuple[bytes, int, tuple[str, int]]:
    """A datagram that is there, when it arrived by the monotonic clock, and who sent it.

    Whoever is interrupted between the two clocks takes the arrival for later than it was, and so
    the bound for wider than it is; the other way round, it would be no bound.
    """
    data, notes, _, sender = sock.recvmsg(64, NOTE_BYTES, socket.MSG_DONTWAIT)
    unix_ns, now_ns = time.time_ns(), time.monotonic_ns()
    then_ns = noted_ns(notes)
    return data, now_ns if then_ns is None else now_ns - max(0, unix_ns - then_ns), sender


def _sealed(key: bytes, body: bytes) -> bytes:
    return hmac.digest(key, body, "sha256")[:_MAC_BYTES] + body


def _opened(key: bytes, data: bytes, body_bytes: int) -> bytes | None:
    """What a datagram says; None where it is none of ours."""
    seal, body = data[:_MAC_BYTES], data[_MAC_BYTES:]
    due = hmac.digest(key, body, "sha256")[:_MAC_BYTES]
    return body if len(body) == body_bytes and hmac.compare_digest(seal, due) else None
