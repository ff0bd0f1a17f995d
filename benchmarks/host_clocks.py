# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How well one host knows another's clock, where by how much that is ahead is known exactly.

    python benchmarks/host_clocks.py idle|loaded [--minutes 10] [--json FILE]

As root. The other host is a network and a time namespace of this machine, a veth pair away, whose
monotonic clock is 1,000 s ahead. Once a second, what `testbed.cluster.clock` takes it for, as a
round would, is held against that; `loaded`: while a process a core spins, and TCP sends as much as
it can over the same link, both ways. Error and bound do not need an idle machine to be true, but
are smaller there.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from testbed.cluster.capacity import Peer, Source, _connected, _pump
from testbed.cluster.clock import Clocks, Echo
from testbed.system.files import write_json

AHEAD_S = 1000
HERE, THERE = "10.98.0.1", "10.98.0.2"
TOKEN, PASSWORD = "benchmark", "00"
INSIDE = "HOST_CLOCKS_INSIDE"


def be_there() -> None:
    """The other host's program: echoes, and takes in what load there is."""
    sys.stdin.readline()  # Its address is there.
    ports = {"clock": Echo(THERE, TOKEN).port, "flow": Source(THERE, PASSWORD).port}
    print(json.dumps(ports), flush=True)
    sys.stdin.read()


@contextmanager
def there() -> Iterator[dict[str, int]]:
    """The other host, and the ports that it listens on."""
    words = ["--net", "--time", "--monotonic", str(AHEAD_S), "--fork", "--kill-child"]
    process = subprocess.Popen(
        ["unshare", *words, sys.executable, __file__, "there"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        own = Path("/proc/self/ns/net").readlink()
        while True:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            if children and Path(f"/proc/{children[0]}/ns/net").readlink() != own:
                break
            time.sleep(0.02)
        pair = ["here", "type", "veth", "peer", "name", "there", "netns", children[0]]
        enter = ["nsenter", "--net", "-t", children[0]]
        for command in (
            ["ip", "link", "set", "lo", "up"],
            ["ip", "link", "add", *pair],
            ["ip", "address", "add", f"{HERE}/24", "dev", "here"],
            ["ip", "link", "set", "here", "up"],
            [*enter, "ip", "address", "add", f"{THERE}/24", "dev", "there"],
            [*enter, "ip", "link", "set", "there", "up"],
        ):
            subprocess.run(command, check=True)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        yield json.loads(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


@contextmanager
def load(port: int) -> Iterator[None]:
    """As much of it as there can be, for as long as the context lasts."""
    spin = [sys.executable, "-c", "while True: pass"]
    hogs = [subprocess.Popen(spin) for _ in os.sched_getaffinity(0)]
    over = threading.Event()
    stream = _connected("there", Peer(THERE, port, PASSWORD))
    pump = threading.Thread(target=_pump, args=(stream, over))
    pump.start()
    try:
        yield
    finally:
        over.set()
        pump.join()
        stream.close()
        for hog in hogs:
            hog.kill()
            hog.wait()


def sampled(ports: dict[str, int], seconds: float) -> list[tuple[float, int, int]]:
    """Once a second: when, by how many ns the offset was wrong, and what bounds that."""
    clocks = Clocks({"there": ((THERE, ports["clock"]), TOKEN)}, lambda _: None)
    try:
        assert clocks.await_first(30) is None
        began, found = time.monotonic(), []
        while (passed_s := time.monotonic() - began) < seconds:
            reading = clocks.of["there"].now()
            error_ns = reading.offset_ns - AHEAD_S * 10**9
            found.append((passed_s, error_ns, reading.bound_at(time.monotonic_ns())))
            time.sleep(1)
        return found
    finally:
        clocks.close()


def summary(rows: Sequence[tuple[float, int, int]]) -> dict[str, float]:
    """In microseconds."""
    _, error, bound = np.array(rows).T / 1e3
    return {
        "seconds": len(rows),
        "mean_us": float(error.mean()),
        "deviation_us": float(error.std()),
        "p99_us": float(np.quantile(abs(error), 0.99)),
        "largest_us": float(abs(error).max()),
        "bound_p50_us": float(np.median(bound)),
        "largest_bound_us": float(bound.max()),
        "within_bound": float((abs(error) <= bound).mean()),
    }


def table_of(how: str, found: dict[str, float]) -> Table:
    """One row."""
    table = Table("", *(name.replace("_", " ") for name in found), box=None)
    table.add_row(how, *(f"{value:.4g}" for value in found.values()))
    return table


def main() -> int:
    """Command line; 1 if an error was beyond its bound."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("how", choices=["idle", "loaded", "there"])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.how == "there":
        be_there()
        return 0
    if not os.environ.get(INSIDE):
        words = ["unshare", "--net", sys.executable, *sys.argv]
        os.execvpe("unshare", words, os.environ | {INSIDE: "yes"})
    with ExitStack() as stack:
        ports = stack.enter_context(there())
        if options.how == "loaded":
            stack.enter_context(load(ports["flow"]))
        rows = sampled(ports, 60 * options.minutes)
    found = summary(rows)
    told: dict[str, Any] = {"how": options.how, "ahead_s": AHEAD_S, "summary": found}
    if options.json:
        samples = [{"at_s": at, "error_ns": int(e), "bound_ns": int(b)} for at, e, b in rows]
        write_json(options.json, told | {"samples": samples})
    Console(width=160).print(table_of(options.how, found))
    return int(found["within_bound"] < 1)


if __name__ == "__main__":
    sys.exit(main())
