# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Hostile input: frames, scenarios, traces, campaigns, run directories; what becomes of them.

    python tests/trials/fuzz.py [--frames N] [--files N] [--campaigns N] [--folders N] [--seed S]
                              [--json FILE]

Each input is a valid one, mutated by seed: bits flipped, bytes replaced, cut, repeated or put in.
A frame comes either as bare bytes to the header's parser, or (one in `STREAMED`) through a socket
to a receiver that expects a certain frame. Of a run directory one file is mutated, or one value in
it; what can be read makes a report, a trace for Perfetto, a comparison with the run as it was, and
(one in `DRAWN`) figures; of a session, its report and a comparison. Whatever raises anything
but the error that names what is wrong (`WireError`, `ConnectionLost`; `InputError`; `TraceError`)
counts as a crash, and is printed.
"""

import argparse
import io
import json
import math
import random
import socket
import struct
import sys
import tempfile
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from ns3_scenarios.trace import TraceError, load_trace
from orchestrator.campaigning.spec import cells, load_campaign
from orchestrator.scenario.loading import load
from testbed.core.errors import InputError
from testbed.transport import wire
from testbed.transport.accounts import Counts
from testbed.transport.streams import KeptLink
from testbed.transport.tcp import TcpStream
from testbed.transport.wire import ConnectionLost, Header, Kind, WireError

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
STREAMED = 100
DRAWN = 200
REFUSALS = (WireError, ConnectionLost, InputError, TraceError)
SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
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
    inputs: int, make: Callable[[random.Random], Any], subject: Callable[[Any], object], seed: int
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
            crashes.append(f"input {number}: {str(data)[:300]}\n{traceback.format_exc()}")
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
    return texts(inputs, valid, load, seed)


def campaigns(inputs: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Campaign files, up to the list of their points; their scenario is found where it was."""
    valid = [
        path.read_bytes().replace(b"../scenarios", bytes(SCENARIOS))
        for path in sorted((SCENARIOS.parent / "campaigns").glob("*.yaml"))
    ]
    return texts(inputs, valid, lambda path: cells(load_campaign(path)), seed)


def texts(
    inputs: int, valid: list[bytes], read: Callable[[Path], object], seed: int
) -> tuple[Counter[str], list[str]]:
    """Mutated YAML files, given to what reads them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fuzzed.yaml"

        def subject(data: bytes) -> None:
            path.write_bytes(data)
            read(path)

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
            load_trace(path)

        return fuzz(inputs, lambda rng: mutated(rng.choice(valid), rng), subject, seed)


NUMBERS = (math.nan, math.inf, -math.inf, -1, 0, 0.5, 5e-324, 1e18, -1e308, 1e308, 2**31, -(2**63))
TEXTS = ("", "ZZ", "S", "predicted", "<script>", "a\0b", "\u202e", "9" * 30, "w" * 5000)
COLUMNS: tuple[Callable[[int], Any], ...] = (
    lambda rows: [None] * rows,
    lambda rows: [True] * rows,
    lambda rows: [b"\xff"] * rows,
    lambda rows: [[1.0]] * rows,
    lambda rows: [{"a": 1}] * rows,
    lambda rows: np.arange(rows).astype("datetime64[s]"),
    lambda rows: np.full(rows, 2**63, np.uint64),
    lambda rows: np.zeros(rows, np.float32),
)


def hostile_table(data: bytes, rng: random.Random) -> bytes:
    """A Parquet file whose values, types, columns or rows are not what they should be."""
    table = pd.read_parquet(io.BytesIO(data)).reset_index(drop=True)
    name, row = rng.choice(list(table)), rng.randrange(len(table))
    match rng.randrange(8):
        case 0 | 1 if table[name].dtype.kind in "if":
            table[name] = table[name].astype(float)
            table.loc[row, name] = rng.choice(NUMBERS)
        case 2 if table[name].dtype.kind == "i":
            table[name] = table[name].astype(np.int64)
            table.loc[row, name] = rng.choice((-(2**63), -1, 0, 10**6, 2**31, 2**53, 2**63 - 1))
        case 3:
            table[name] = table[name].astype(str)
            table.loc[row, name] = rng.choice(TEXTS)
        case 4:
            table[name] = rng.choice(COLUMNS)(len(table))
        case 5:
            table = table.drop(columns=name)
        case 6:
            table = pd.concat([table] * rng.choice((0, 2, 3)) or [table.head(0)])
        case _:
            table[name] = rng.sample(table[name].tolist(), len(table))
    out = io.BytesIO()
    table.to_parquet(out, compression=rng.choice(("snappy", "snappy", "none", "zstd", "gzip")))
    return out.getvalue()


def hostile_json(data: bytes, rng: random.Random) -> bytes:
    """A JSON object one of whose values is something else, or gone."""
    tree = node = json.loads(data)
    key = rng.choice(list(node))
    while isinstance(node[key], (dict, list)) and node[key] and rng.random() < 0.8:
        node = node[key]
        key = rng.choice(list(node) if isinstance(node, dict) else range(len(node)))
    deep: Any = rng.choice(TEXTS)
    for _ in range(rng.choice((0, 0, 1, 50, 900))):
        deep = [deep] if rng.random() < 0.5 else {"deep": deep}
    match rng.randrange(4):
        case 0:
            node[key] = rng.choice((*NUMBERS, 10**400, None, True, "\ud800"))
        case 1:
            node[key] = deep
        case 2:
            node[key] = rng.choice(([], {}, [None], {"": None}, [[]], [{}]))
        case _:
            del node[key]
    return json.dumps(tree).encode()


def folders(inputs: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Run directories: one file of each is mutated, and the pages of what can be read are made."""
    from synthetic_run import make_run

    from orchestrator.records.comparison import compare
    from orchestrator.records.reader import read_run
    from orchestrator.records.results import result_of
    from orchestrator.reporting import comparison
    from orchestrator.reporting.perfetto import of_run
    from orchestrator.reporting.report import render
    from orchestrator.reporting.run_plots import draw_run

    with tempfile.TemporaryDirectory() as folder:
        run_dir = make_run(Path(folder) / "run", uavs=2, rounds=2)
        whole = result_of(read_run(run_dir))

        def show(drawn: bool) -> None:
            run = read_run(run_dir)
            json.dumps(of_run(run.tables), allow_nan=False)
            render(run).encode()
            both = compare([result_of(run), whole])
            comparison.render(both, Path()).encode()
            json.dumps(both.to_json(), allow_nan=False)
            if drawn:
                draw_run(run_dir, run_dir.parent / "figures")

        return _in_folder(run_dir, inputs, seed, show)


def sessions(inputs: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Folders of sessions: the same."""
    from synthetic_run import make_session

    from orchestrator.records.comparison import Comparison
    from orchestrator.records.session_reader import read_session
    from orchestrator.reporting import comparison
    from orchestrator.reporting.session_report import write_session_report

    with tempfile.TemporaryDirectory() as folder:
        path = make_session(Path(folder) / "session")

        def show(_: bool) -> None:
            write_session_report(path).unlink()
            both = Comparison([], [read_session(path)] * 2)
            comparison.render(both, Path()).encode()
            json.dumps(both.to_json(), allow_nan=False)

        return _in_folder(path, inputs, seed, show)


def _in_folder(
    folder: Path, inputs: int, seed: int, show: Callable[[bool], object]
) -> tuple[Counter[str], list[str]]:
    """Mutate one file, or one value of it, at a time; `show` is told whether to draw figures."""
    valid = {path: path.read_bytes() for path in sorted(folder.iterdir())}
    hostile = {".parquet": hostile_table, ".json": hostile_json}

    def make(rng: random.Random) -> tuple[Path, bytes | None, bool]:
        path, drawn = rng.choice(list(valid)), rng.randrange(DRAWN) == 0
        if rng.random() < 0.03:
            return path, None, drawn
        values = rng.random() < 0.75 and path.suffix in hostile
        change = hostile[path.suffix] if values else mutated
        return path, change(valid[path], rng), drawn

    def subject(given: tuple[Path, bytes | None, bool]) -> None:
        path, data, drawn = given
        path.unlink()
        if data is not None:
            path.write_bytes(data)
        try:
            show(drawn)
        finally:
            path.write_bytes(valid[path])

    return fuzz(inputs, make, subject, seed)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=10_000, help="scenarios, and traces")
    parser.add_argument("--campaigns", type=int, default=2000, help="campaign files")
    parser.add_argument("--folders", type=int, default=5000, help="run directories, and sessions")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    console = Console()
    table = Table("what", "inputs", "taken", "refused by name", "crashes", "s")
    result = {}
    for what, run, inputs in (
        ("frames", frames, options.frames),
        ("scenarios", scenarios, options.files),
        ("traces", traces, options.files),
        ("campaigns", campaigns, options.campaigns),
        ("run directories", folders, options.folders),
        ("sessions", sessions, options.folders),
    ):
        began = time.perf_counter()
        outcomes, crashes = run(inputs, options.seed)
        took_s = time.perf_counter() - began
        refused = inputs - outcomes["taken"] - outcomes["crash"]
        result[what] = {"inputs": inputs, "outcomes": outcomes, "crashes": crashes, "s": took_s}
        counts = (inputs, outcomes["taken"], refused, len(crashes))
        table.add_row(what, *(f"{count:,}" for count in counts), f"{took_s:.0f}")
        for crash in crashes[:10]:
            console.print(crash, highlight=False, markup=False)
        if options.json:  # so far: the next kind may take an hour
            options.json.write_text(json.dumps({"seed": options.seed, **result}, indent=2) + "\n")
    console.print(table)


if __name__ == "__main__":
    main()
