# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Route netlink: messages as bytes, and a socket that carries batches of them.

Each network namespace has one socket, which was opened inside it: a socket stays in the namespace
where it was created. Messages are prepared in advance, so that setting a rate takes one `sendmsg`.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from testbed.system import linux

NEWLINK, DELLINK, GETLINK = 16, 17, 18
NEWADDR = 20
NEWROUTE, DELROUTE = 24, 25
NEWNEIGH = 28
NEWQDISC, DELQDISC, GETQDISC = 36, 37, 38
NEWTCLASS = 40

REQUEST, ACK = 0x1, 0x4
DUMP = 0x300
REPLACE, EXCLUSIVE, CREATE = 0x100, 0x200, 0x400
_ERROR, _DONE = 2, 3
_NESTED = 0x8000

_AF_SPEC, _ADDRESS_MODE, _UP = 26, 8, 1

_HEADER = struct.Struct("=IHHII")
IFINFO = struct.Struct("=BxHiII")
"""Header of a message about a device (ifinfomsg): family, type, index, flags, mask of flags."""
_NUMBER = struct.Struct("=I")
_BATCH_BYTES = 64 * 1024
"""Largest batch in bytes, well below the default socket buffer."""
LEAST_IPV6_MTU = 1280
"""Smallest MTU of a device with IPv6."""
ANSWER_S = 10.0
"""Seconds that the kernel may take to answer; normally it has answered when sending returns."""


class NetlinkError(OSError):
    """The kernel refused a message; `index` is its position in the batch."""

    def __init__(self, number: int, index: int) -> None:
        self.number = number
        super().__init__(number, f"message {index}: {os.strerror(number)}")
        self.index = index


def message(kind: int, flags: int, body: bytes) -> bytes:
    """A request of type `kind`; `body` contains the fixed part and the attributes."""
    return _HEADER.pack(_HEADER.size + len(body), kind, REQUEST | flags, 0, 0) + body


def kind_of(message: bytes) -> int:
    """The type of a message."""
    return int(_HEADER.unpack_from(message)[1])


def attribute(kind: int, value: bytes) -> bytes:
    """One attribute, padded to four bytes."""
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def nested(kind: int, *attributes: bytes) -> bytes:
    """An attribute that holds attributes."""
    return attribute(kind | _NESTED, b"".join(attributes))


def text(value: str) -> bytes:
    """A string attribute's value (null-terminated)."""
    return value.encode() + b"\0"


def u32(value: int) -> bytes:
    """A 32-bit number in native byte order."""
    return struct.pack("=I", value)


def has_ipv6(mtu: int = LEAST_IPV6_MTU) -> bool:
    """Whether the kernel has IPv6 for devices with this MTU."""
    return mtu >= LEAST_IPV6_MTU and Path("/proc/sys/net/ipv6").exists()


def without_ipv6_addresses(device: int, mtu: int = LEAST_IPV6_MTU) -> list[bytes]:
    """The messages that disable automatic IPv6 addresses of a device, so that IPv6 sends nothing on
    its own; empty without IPv6."""
    if not has_ipv6(mtu):
        return []
    no_address = nested(_AF_SPEC, nested(socket.AF_INET6, attribute(_ADDRESS_MODE, b"\1")))
    return [message(NEWLINK, 0, IFINFO.pack(0, 0, device, 0, 0) + no_address)]


def up(device: int) -> bytes:
    """The message that sets a device up."""
    return message(NEWLINK, 0, IFINFO.pack(0, 0, device, _UP, _UP))


def attributes(data: bytes) -> dict[int, bytes]:
    """The attributes in received bytes, by type."""
    found = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        found[kind & 0x3FFF] = data[4:length]
        data = data[(length + 3) & ~3 :]
    return found


class Batch:
    """Messages prepared for sending, in one call unless there are very many.

    The sequence number of each is its position. Only the last one of a call requests an
    acknowledgement; refused messages are answered in any case, so reading until the last answer
    finds all errors.
    """

    def __init__(self, messages: Sequence[bytes]) -> None:
        self.count = len(messages)
        self.parts: list[bytearray] = []
        part, last = bytearray(), 0
        for index, message in enumerate(messages):
            if part and len(part) + len(message) > _BATCH_BYTES:
                part[last + 6] |= ACK
                self.parts.append(part)
                part = bytearray()
            last = len(part)
            part += message
            _NUMBER.pack_into(part, last + 8, index)
        if part:
            part[last + 6] |= ACK
            self.parts.append(part)


class Netlink:
    """A netlink socket in the network namespace in which it is created."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.bind((0, 0))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, linux.timeval(ANSWER_S))
        self._sent = 0
        # Allocated once: each allocation of this size is a mapping of its own.
        self._answer = memoryview(bytearray(1 << 18))

    def __enter__(self) -> "Netlink":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, batch: Batch) -> None:
        """Send messages. The kernel has processed them when this returns."""
        self._sent = batch.count
        for part in batch.parts:
            self._socket.send(part)

    def check(self) -> None:
        """Read the answers to the messages sent.

        Raises:
            NetlinkError: The kernel refused one of the messages; the others have been executed.
        """
        refused: NetlinkError | None = None
        index = -1
        while index < self._sent - 1:
            for kind, index, body in self._receive():
                if kind == _ERROR and (number := -struct.unpack_from("=i", body)[0]):
                    refused = refused or NetlinkError(number, index)
        if refused:
            raise refused

    def transact(self, messages: Sequence[bytes]) -> None:
        """Send messages and read the answers.

        Raises:
            NetlinkError: The kernel refused one message; the others have been executed.
        """
        self.send(Batch(messages))
        self.check()

    def dump(self, kind: int, body: bytes) -> Iterator[bytes]:
        """The kernel's objects of one type: the fixed part and attributes of each."""
        self._socket.send(message(kind, DUMP, body))
        while True:
            for answer, _, found in self._receive():
                if answer == _DONE:
                    return
                if answer == _ERROR:
                    raise NetlinkError(-struct.unpack_from("=i", found)[0], 0)
                yield found

    def get(self, kind: int, body: bytes) -> bytes:
        """The fixed part and attributes of one of the kernel's objects.

        Raises:
            NetlinkError: The kernel refused.
        """
        self._socket.send(message(kind, 0, body))
        for answer, _, found in self._receive():
            if answer == _ERROR:
                raise NetlinkError(-struct.unpack_from("=i", found)[0], 0)
            return found
        raise OSError(errno.EPROTO, "the kernel sent an empty answer over netlink")

    def _receive(self) -> Iterable[tuple[int, int, bytes]]:
        try:
            size = self._socket.recv_into(self._answer)
        except BlockingIOError:
            raise OSError(
                errno.ETIMEDOUT, f"waited {ANSWER_S:g} s for the kernel to answer over netlink"
            ) from None
        data, at = bytes(self._answer[:size]), 0
        found = []
        while at < size:
            length, kind, _, index, _ = _HEADER.unpack_from(data, at)
            found.append((kind, index, data[at + _HEADER.size : at + length]))
            at += (length + 3) & ~3
        return found
