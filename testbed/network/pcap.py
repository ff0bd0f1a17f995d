# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Captures of the frames on links as pcap files, for tshark and similar programs.

A packet socket at the base station's ends sees both directions of every link: frames leave the base
station's shaper, or arrive after they have left a UAV's shaper. The kernel writes packets into a
ring buffer, and a process of ordinary priority reads them in blocks; the measured processes are not
involved. In virtual time, whose kernel does not support such a ring, the process receives packets
one by one, which costs no virtual time.

A packet of several frames, as the kernel handles it, is written as separate frames with their own
lengths and sequence numbers. Their checksums are those of the packet, which virtual devices do not
fill in. Packets of other protocols than TCP over IPv4 are not split; the payload can be omitted for
TCP and UDP.
"""

import contextlib
import ctypes
import json
import mmap
import os
import select
import signal
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from testbed.control.messages import Captured
from testbed.control.stream import readable
from testbed.system import inside, linux
from testbed.system.arrivals import note_arrivals, noted_ns

BLOCK_BYTES = 1 << 20
BLOCKS = 64
"""Blocks of the ring, 64 MiB in total: a fifth of a second of ten links at 300 Mb/s each, or
several seconds of headers."""
BLOCK_MS = 200
"""Milliseconds after which the kernel hands over a block that is not full."""
HEADERS_BYTES = 14 + 60 + 60
"""Longest headers of a frame in bytes."""
MOST_BYTES = 1 << 18
BUFFER_BYTES = 1 << 20
MARK_NS, MARKS = 100_000_000, 600
"""Nanoseconds between two recorded file positions of a writer, and the number of positions kept:
about a minute."""
END_S = 60.0
"""Seconds that writing the content of the ring may take."""

_SOL_PACKET = 263
_RX_RING, _STATISTICS, _VERSION, _VNET_HDR = 5, 6, 10, 15
_TPACKET_V3 = 2
_ETH_P_ALL = 3
_AUXDATA = 8
_SO_ATTACH_FILTER, _SO_RCVBUFFORCE = 26, 33
ANCILLARY_BYTES = 256
_BPF_RETURN = 6
_FILTER = struct.Struct("HBBI")
_BLOCK = struct.Struct("=8xIII")
_BLOCK_STATUS = 8
_OURS = 1
_PACKET = struct.Struct("=IIIII4xH")
"""Fields of struct tpacket3_hdr: next_offset, sec, nsec, snaplen, len, mac."""
_LINK_AT = 48
_LINK = struct.Struct("=4xi")
_VNET = struct.Struct("=BBHH4x")

_FILE = struct.Struct("<IHHiIII")
_NANOSECONDS = 0xA1B23C4D
_ETHERNET = 1
RECORD = struct.Struct("<IIII")
_IPV4 = 0x0800
_TCP, _UDP = 6, 17
_FIN_PSH, _CWR = 0x09, 0x80


class Capture:
    """A process that writes one file per device until it is ended."""

    def __init__(self, files: Mapping[int, str], headers_only: bool) -> None:
        """Start to capture in this thread's network namespace.

        Args:
            files: Path of each file, by device index.
            headers_only: Omit the payload.

        Raises:
            OSError: This process may not capture here, or may not write a file.
        """
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
        if inside.guest_settings() is None:
            sock.setsockopt(_SOL_PACKET, _VERSION, _TPACKET_V3)
        sock.setsockopt(_SOL_PACKET, _VNET_HDR, 1)
        if headers_only:
            _cut(sock, HEADERS_BYTES)
        take = _received if inside.guest_settings() is not None else _of_ring(sock)
        writers = {device: _Writer(Path(path), headers_only) for device, path in files.items()}
        until, self._open = os.pipe2(os.O_CLOEXEC)
        self._result, result = os.pipe2(os.O_CLOEXEC)
        self._process = os.fork()
        if self._process == 0:
            os.close(self._open)
            _run_and_exit(sock, take, writers, until, result)
        os.close(until)
        os.close(result)
        sock.close()
        for writer in writers.values():
            writer.file.close()

    def end(self, until_ns: int) -> Captured:
        """Write the packets that arrived until `until_ns`, and end.

        Args:
            until_ns: Unix time, not later than now.

        Raises:
            OSError: The process failed or takes too long.
        """
        with contextlib.suppress(BrokenPipeError):
            os.write(self._open, until_ns.to_bytes(8, sys.byteorder))
        os.close(self._open)
        in_time = readable(self._result, END_S)
        if not in_time:
            os.kill(self._process, signal.SIGKILL)
        with open(self._result, "rb") as result:  # noqa: PTH123
            text = result.read()
        os.waitpid(self._process, 0)
        if not in_time:
            raise OSError(f"waited {END_S:g} s for the capture's process to write its files")
        if not text:
            raise OSError("the capture has failed")
        return Captured(**json.loads(text))


def _cut(sock: socket.socket, size: int) -> None:
    """Let the kernel truncate each packet to `size` bytes."""
    program = ctypes.create_string_buffer(_FILTER.pack(_BPF_RETURN, 0, 0, size))
    about = struct.pack("HP", 1, ctypes.addressof(program))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, about)


def _run_and_exit(
    sock: socket.socket, take: "_Take", writers: "dict[int, _Writer]", until: int, result: int
) -> None:
    """Run the forked process until its end."""
    status = 1
    with contextlib.suppress(BaseException):
        linux.signal_at_parents_death(signal.SIGKILL)
        linux.ordinary_scheduling()
        done = _record(sock, take(sock, until), until, writers)
        os.write(result, json.dumps(vars(done)).encode())
        status = 0
    os._exit(status)


def _record(
    sock: socket.socket, packets: "Iterator[_Packet]", until: int, writers: "dict[int, _Writer]"
) -> Captured:
    for device, sec, nsec, size, gso, data in packets:
        if writer := writers.get(device):
            writer.write(sec, nsec, size, gso, data)
    end_ns = int.from_bytes(os.read(until, 8), sys.byteorder)
    for writer in writers.values():
        writer.end(end_ns)
    missed = struct.unpack_from("=II", sock.getsockopt(_SOL_PACKET, _STATISTICS, 12))[1]
    return Captured(sum(writer.frames for writer in writers.values()), missed)


_Packet = tuple[int, int, int, int, tuple[int, int], memoryview]
"""Device, seconds, nanoseconds, length, (kind of segmentation, segment size), bytes."""
_Take = Callable[[socket.socket, int], Iterator[_Packet]]
"""Yields packets of a socket until a descriptor is readable and all received packets are taken."""


def _received(sock: socket.socket, until: int) -> Iterator[_Packet]:
    """Packets received one by one. No system call may fail, because a failing call takes virtual
    time."""
    note_arrivals(sock)
    sock.setsockopt(_SOL_PACKET, _AUXDATA, 1)
    with contextlib.suppress(PermissionError):
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, BLOCK_BYTES * BLOCKS)
    buffer = bytearray(_VNET.size + MOST_BYTES)
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    poll.register(until, select.POLLIN)
    while sock.fileno() in dict(poll.poll()):
        count, said, _, sender = sock.recvmsg_into([buffer], ANCILLARY_BYTES)
        told = {(level, kind): data for level, kind, data in said}
        came_ns = noted_ns(said)
        assert came_ns is not None
        sec, nsec = divmod(came_ns, 1_000_000_000)
        (size,) = struct.unpack_from("=4xI", told[_SOL_PACKET, _AUXDATA])
        _, kind, _, segment = _VNET.unpack_from(buffer)
        data = memoryview(buffer)[_VNET.size : count]
        yield socket.if_nametoindex(sender[0]), sec, nsec, size, (kind, segment), data


def _of_ring(sock: socket.socket) -> _Take:
    """Create a ring buffer, and return a function that reads packets from it."""
    request = (BLOCK_BYTES, BLOCKS, BLOCK_BYTES, BLOCKS, BLOCK_MS, 0, 0)
    sock.setsockopt(_SOL_PACKET, _RX_RING, struct.pack("=7I", *request))
    view = memoryview(mmap.mmap(sock.fileno(), BLOCK_BYTES * BLOCKS))
    return partial(_out_of, view)


def _out_of(view: memoryview, sock: socket.socket, until: int) -> Iterator[_Packet]:
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    poll.register(until, select.POLLIN)
    block = 0
    ends = False
    while True:
        start = block * BLOCK_BYTES
        status, packets, first = _BLOCK.unpack_from(view, start)
        if status & _OURS:
            yield from _packets(view, start + first, packets)
            struct.pack_into("=I", view, start + _BLOCK_STATUS, 0)
            block = (block + 1) % BLOCKS
        elif ends:
            return
        elif until in dict(poll.poll()):
            ends = True
            # The block in progress is handed over when its time limit is over.
            time.sleep(2 * BLOCK_MS * 1e-3)


def _packets(view: memoryview, at: int, count: int) -> Iterator[_Packet]:
    for _ in range(count):
        following, sec, nsec, captured, size, mac = _PACKET.unpack_from(view, at)
        (device,) = _LINK.unpack_from(view, at + _LINK_AT)
        _, kind, _, segment = _VNET.unpack_from(view, at + mac - _VNET.size)
        yield device, sec, nsec, size, (kind, segment), view[at + mac : at + mac + captured]
        at += following


class _Writer:
    """One pcap file."""

    def __init__(self, path: Path, headers_only: bool) -> None:
        self.file = path.open("w+b", BUFFER_BYTES)
        self.frames = 0
        self._marks: deque[tuple[int, int, int]] = deque(maxlen=MARKS)
        """For some frames: arrival time, file position, and number of preceding frames."""
        self._headers_only = headers_only
        snap_bytes = HEADERS_BYTES if headers_only else MOST_BYTES
        self.file.write(_FILE.pack(_NANOSECONDS, 2, 4, 0, 0, snap_bytes, _ETHERNET))
        self.file.flush()

    def write(self, sec: int, nsec: int, size: int, gso: tuple[int, int], data: memoryview) -> None:
        """Write one packet as separate frames."""
        kind, segment = gso
        now_ns = _ns(sec, nsec)
        if not self._marks or now_ns >= self._marks[-1][0] + MARK_NS:
            self._marks.append((now_ns, self.file.tell(), self.frames))
        headers = header_bytes(data)
        if not kind or not headers or data[23] != _TCP or size - headers <= segment:
            kept = data[:headers] if self._headers_only and headers else data
            self.file.write(RECORD.pack(sec, nsec, len(kept), size))
            self.file.write(kept)
            self.frames += 1
            return
        head, rest = bytearray(data[:headers]), data[headers:]
        (identity,) = struct.unpack_from("!H", head, 18)
        tcp = 14 + 4 * (head[14] & 15)
        (sequence,) = struct.unpack_from("!I", head, tcp + 4)
        flags = head[tcp + 13]
        carried = size - headers
        for number, start in enumerate(range(0, carried, segment)):
            length = min(segment, carried - start)
            struct.pack_into("!HH", head, 16, headers - 14 + length, (identity + number) & 0xFFFF)
            struct.pack_into("!I", head, tcp + 4, (sequence + start) & 0xFFFF_FFFF)
            last = start + length == carried
            head[tcp + 13] = flags & ~(_CWR if number else 0) & ~(0 if last else _FIN_PSH)
            kept = rest[:0] if self._headers_only else rest[start : start + length]
            self.file.write(RECORD.pack(sec, nsec, headers + len(kept), headers + length))
            self.file.write(head)
            self.file.write(kept)
            self.frames += 1

    def end(self, end_ns: int) -> None:
        """Close the file, and truncate it to the frames until `end_ns`.

        Later frames may have been written before the end was known.
        """
        earlier = [mark for mark in self._marks if mark[0] <= end_ns]
        if kept := earlier[-1] if earlier else next(iter(self._marks), None):
            _, at, self.frames = kept
            self.file.seek(at)
            last = self.file.read()
            self.file.seek(at)
            self.file.truncate()
            for record in _records(last):
                if _ns(*RECORD.unpack_from(record)[:2]) <= end_ns:
                    self.file.write(record)
                    self.frames += 1
        self.file.close()


def _ns(sec: int, nsec: int) -> int:
    return sec * 1_000_000_000 + nsec


def _records(data: bytes, at: int = 0) -> Iterator[memoryview]:
    """Each packet record in a file's bytes, from offset `at` on."""
    view = memoryview(data)
    while at < len(view):
        kept = RECORD.unpack_from(view, at)[2]
        end = at + RECORD.size + kept
        yield view[at:end]
        at = end


def header_bytes(frame: "bytes | memoryview") -> int:
    """Length of the Ethernet, IPv4 and TCP or UDP headers of a frame; 0 for other protocols."""
    if len(frame) < 42 or frame[12] << 8 | frame[13] != _IPV4:
        return 0
    inner = 14 + 4 * (frame[14] & 15)
    if frame[23] == _UDP:
        return inner + 8
    return inner + 4 * (frame[inner + 12] >> 4) if frame[23] == _TCP else 0


@dataclass(frozen=True)
class Frame:
    """A TCP or UDP frame of a capture."""

    time_ns: int
    """Unix time in ns."""
    source: str
    ports: tuple[int, int]
    flags: int
    """TCP flags: FIN 1, SYN 2, RST 4, PSH 8, ACK 16; 0 for UDP."""
    sequence: int
    """TCP sequence number; 0 for UDP."""
    acknowledged: int
    """TCP acknowledgement number; 0 for UDP."""
    header_bytes: int
    data_bytes: int


def frames(path: Path) -> Iterator[Frame]:
    """The TCP and UDP frames of a file written by `Capture`, in order."""
    for record in _records(path.read_bytes(), _FILE.size):
        sec, nsec, _, size = RECORD.unpack_from(record)
        frame = record[RECORD.size :]
        headers = header_bytes(frame)
        if not headers:
            continue
        inner = 14 + 4 * (frame[14] & 15)
        source, target = struct.unpack_from("!HH", frame, inner)
        is_tcp = frame[23] == _TCP
        sequence, acknowledged = struct.unpack_from("!II", frame, inner + 4) if is_tcp else (0, 0)
        yield Frame(
            time_ns=_ns(sec, nsec),
            source=socket.inet_ntoa(frame[26:30]),
            ports=(source, target),
            flags=frame[inner + 13] if is_tcp else 0,
            sequence=sequence,
            acknowledged=acknowledged,
            header_bytes=headers,
            data_bytes=size - headers,
        )
