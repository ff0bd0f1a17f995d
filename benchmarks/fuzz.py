"""Hostile input: mutated frames, scenarios and traces, and what becomes of them.

    python benchmarks/fuzz.py [--frames N] [--files N] [--seed S] [--json FILE]

Each input is a valid one, mutated by seed: bits flipped, bytes replaced, cut, repeated or put in.
A frame comes either as bare bytes to the header's parser, or (one in `STREAMED`) through a socket
to a receiver that expects a certain frame. Whatever raises anything but the error that names what
is wrong (`WireError`, `ConnectionLost`; `InputError`; `TraceError`) counts as a crash, and is
printed.
"""

import argparse
import io
import json
import random
import socket
import struct
import tempfile
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from ns3_scenarios.trace import ChannelTrace, TraceError
from orchestrator.scenario.loading import load
from testbed.core.errors import InputError
from testbed.transport import wire
from testbed.transport.accounts import Counts
from testbed.transport.streams import KeptLink, TcpStream
from testbed.transport.wire import ConnectionLost, Header, Kind, WireError

STREAMED = 100
REFUSALS = (WireError, ConnectionLost, InputError, TraceError)
SCENARIOS = Path(__file__).parents[1] / "scenarios"
Subject = Callable[[bytes], object]


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The bytes with one to four things wrong."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out)) if out else 0
        size = rng.choice((1, 1, 2, 4, 8, 32))
        match rng.randrange(6):
            case 0 if out:
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                out[at : at + size] = rng.randbytes(size)
            case 2:
                del out[at : at + size]
            case 3:
                out[at:at] = out[at : at + size] * rng.randint(1, 8)
            case 4:
                out[at:at] = rng.choice((b"\0", b"\xff", b"9" * 30, b"nan", b"[", b"*a", b"&a "))
            case 5:
                del out[at:]
    return bytes(out)


def valid_frame(rng: random.Random) -> bytes:
    """A header as peers send it, with any values; half of them keep a right checksum."""
    header = Header(
        rng.choice(list(Kind)),
        rng.randrange(1 << 16),
        rng.randrange(1 << 16),
        rng.randrange(1 << 32),
        rng.randrange(1 << 32),
        rng.randrange(1 << 64),
        rng.uniform(-1e9, 1e9),
        rng.uniform(-1e9, 1e9),
    )
    return header.pack()


def hostile_frame(rng: random.Random) -> bytes:
    """A mutated header; every other one with a checksum that fits, to come further."""
    data = mutated(valid_frame(rng), rng)
    if rng.random() < 0.5 and len(data) >= wire.HEADER_BYTES:
        body = data[: wire.HEADER_BYTES - 4]
        data = body + struct.pack("<I", zlib.crc32(body)) + data[wire.HEADER_BYTES :]
    return data


def receive(data: bytes) -> None:
    """What a node does with a frame that comes over a socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        ours.settimeout(1)
        link = KeptLink(TcpStream(ours), Counts.of(Header(Kind.HELLO, 1, 0, 0, 0, 0, 0.0, 0.0)))
        link.receive_header(Kind.SMASHED).expect(Kind.SMASHED, 3, 8, 64)
        link.receive_into(memoryview(bytearray(72)))


def fuzz(
    inputs: int, make: Callable[[random.Random], bytes], subject: Subject, seed: int
) -> tuple[Counter[str], list[str]]:
    """How many inputs were taken, and refused by which error; and the crashes."""
    rng, outcomes, crashes = random.Random(seed), Counter[str](), []
    for number in range(inputs):
        data = make(rng)
        try:
            subject(data)
        except REFUSALS as refusal:
            outcomes[type(refusal).__name__] += 1
            if "\n" in str(refusal):
                crashes.append(f"input {number}: {refusal!r} has more than one line")
        except Exception:
            outcomes["crash"] += 1
            crashes.append(f"input {number}: {data[:200]!r}\n{traceback.format_exc()}")
        else:
            outcomes["taken"] += 1
    return outcomes, crashes


def frames(inputs: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Frames to the parser, and one in `STREAMED` through a socket."""
    parsed = fuzz(inputs - inputs // STREAMED, hostile_frame, Header.unpack, seed)
    streamed = fuzz(inputs // STREAMED, hostile_frame, receive, seed + 1)
    return parsed[0] + streamed[0], parsed[1] + streamed[1]


def scenarios(inputs: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Scenario files."""
    valid = [path.read_bytes() for path in sorted(SCENARIOS.glob("*.yaml"))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fuzzed.yaml"

        def subject(data: bytes) -> None:
            path.write_bytes(data)
            load(path)

        return fuzz(inputs, lambda rng: mutated(rng.choice(valid), rng), subject, seed)


def traces(inputs: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Trace files, compressed ones among them."""
    fields: dict[str, Any] = {
        "gain": np.full((2, 5), 1e-9),
        "slot_s": 0.1,
        "position": np.zeros((2, 5, 3)),
    }
    valid = []
    for save in (np.savez, np.savez_compressed):
        file = io.BytesIO()
        save(file, **fields)
        valid.append(file.getvalue())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fuzzed.npz"

        def subject(data: bytes) -> None:
            path.write_bytes(data)
            ChannelTrace.load(path)

        return fuzz(inputs, lambda rng: mutated(rng.choice(valid), rng), subject, seed)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=10_000, help="scenarios, and traces")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    table = Table("what", "inputs", "taken", "refused by name", "crashes", "s")
    result = {}
    for what, run, inputs in (
        ("frames", frames, options.frames),
        ("scenarios", scenarios, options.files),
        ("traces", traces, options.files),
    ):
        began = time.perf_counter()
        outcomes, crashes = run(inputs, options.seed)
        took_s = time.perf_counter() - began
        refused = inputs - outcomes["taken"] - outcomes["crash"]
        result[what] = {"inputs": inputs, "outcomes": outcomes, "crashes": crashes, "s": took_s}
        counts = (inputs, outcomes["taken"], refused, len(crashes))
        table.add_row(what, *(f"{count:,}" for count in counts), f"{took_s:.0f}")
    console = Console()
    console.print(table)
    for found in result.values():
        for crash in found["crashes"][:10]:
            console.print(crash, highlight=False, markup=False)
    if options.json:
        options.json.write_text(json.dumps({"seed": options.seed, **result}, indent=2) + "\n")


if __name__ == "__main__":
    main()
