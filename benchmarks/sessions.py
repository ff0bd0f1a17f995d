# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Sessions under iperf3: what links carry, against what the channel's rates allow.

    python benchmarks/sessions.py [CASE...] [--seconds 60] [--clock virtual] [--json FILE]

In real time the machine must be alone. `soak` lasts as long as it is told: --seconds 1800.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import psutil
import yaml
from common import ROOT

HERE = Path(__file__).parent
THREE: dict[str, Any] = {"name": "three", "uavs": {"tx_power_w": [1, 0.4, 0.1]}}
SYSTEM_PYTHON = "/usr/bin/python3"
FRAME, PAYLOAD = 1514, 1448
"""Bytes of a full Ethernet frame, and what TCP over IPv4 brings of it to its program."""
DATAGRAM, HEADERS = 1400, 42
"""Bytes of a datagram of UDP, and of Ethernet, IPv4 and UDP around it."""
SETTLE_S = 2.0
"""After slot 0, in which connections are made and windows grow."""
PORT = "$((5200 + ${TESTBED_NODE#uav}))"
SLOT_S = 0.1
SAMPLE_S, LEAST_SOAK_S = 10.0, 60.0

Figures = dict[str, float]


@dataclass(frozen=True)
class Played:
    """What is known of a session."""

    table: pd.DataFrame
    about: dict[str, Any]
    """Its manifest."""
    samples: list[tuple[float, int, int]]
    """Now and then: seconds since its start, bytes of memory and open files of all its processes,
    in virtual time of its kernel too."""
    said: list[str]
    """What each UAV's client wrote."""


def session(
    scenario: dict[str, Any],
    flags: str,
    args: argparse.Namespace,
    *more: str,
    client_s: float | None = None,
) -> Played:
    """Play a session in which every UAV has an iperf3 client with these flags.

    Clients go on for so long; left out: until the session's end.
    """
    count = len(scenario["uavs"]["tx_power_w"])
    client_s = args.seconds + 5 if client_s is None else client_s
    servers = "; ".join(f"iperf3 -s -1 -p {5201 + k} >/dev/null &" for k in range(count))
    client = f"sleep 0.2; exec iperf3 -c bs -p {PORT} -t {client_s:g} {flags} >~/said"
    # In virtual time the machine has nothing but the session.
    watch = f"while cat /proc/sys/fs/file-nr /proc/meminfo; do sleep {SAMPLE_S}; done >~/held &"
    base = f"{watch if args.clock == 'virtual' else ''} {servers.replace('&;', '&')} wait"
    nodes = {"bs": {"command": base}, "uav*": {"command": client}}
    emulation = scenario.get("emulation", {}) | {"clock": args.clock}
    tree = scenario | {"nodes": nodes, "emulation": emulation}
    with tempfile.TemporaryDirectory(prefix="testbed-sessions-") as temporary:
        folder = Path(temporary)
        (folder / "s.yaml").write_text(yaml.safe_dump(tree))
        words = ["up", folder / "s.yaml", "--seconds", args.seconds, "--out", folder / "out", *more]
        command = [sys.executable, "-m", "orchestrator", *map(str, words)]
        with (folder / "said").open("w+") as said:
            started = time.monotonic()
            process = psutil.Popen(command, stdout=said, stderr=said, cwd=ROOT)
            samples = []
            try:
                while process.poll() is None:
                    time.sleep(min(SAMPLE_S, args.seconds / 5))
                    samples.append((time.monotonic() - started, *_held(process)))
            finally:
                if process.poll() is None:
                    process.terminate()
            said.seek(0)
            manifest = folder / "out/manifest.json"
            about = json.loads(manifest.read_text()) if manifest.is_file() else {}
            if "valid" not in about:
                sys.exit(f"sessions.py: {said.read()}")
        if args.clock == "virtual":
            samples = _held_by_guest((folder / "out/nodes/bs/held").read_text())
        said_by = [folder / f"out/nodes/uav{k}/said" for k in range(1, count + 1)]
        return Played(
            pd.read_parquet(folder / "out/session.parquet"),
            about,
            samples,
            [path.read_text() for path in said_by],
        )


def _held_by_guest(said: str) -> list[tuple[float, int, int]]:
    """Samples of what a guest's processes and kernel hold: memory that is no file's, open files."""
    files = re.findall(r"^(\d+)\t\d+\t\d+$", said, re.M)
    kinds = [
        re.findall(rf"^{kind}: +(\d+) kB$", said, re.M) for kind in ("AnonPages", "SUnreclaim")
    ]
    each = zip(files, *kinds, strict=False)
    return [
        (SAMPLE_S * at, 1024 * (int(anonymous) + int(kernel)), int(open_))
        for at, (open_, anonymous, kernel) in enumerate(each)
    ]


def _held(process: psutil.Process) -> tuple[int, int]:
    memory, files = 0, 0
    try:
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        return 0, 0
    for each in family:
        try:
            memory += each.memory_info().rss
            files += each.num_fds()
        except psutil.Error:
            continue
    return memory, files


def errors(table: pd.DataFrame, direction: str) -> Figures:
    """Errors of links that had something waiting, against the integral of their rates, relative.

    The worst link's over all such slots; then the 95th percentile of all links' by second, and by
    slot.
    """
    overall, seconds, slots = [], [], []
    whole = round(1 / SLOT_S)
    for _, link in table[table.direction == direction].groupby("client"):
        link = link.sort_values("slot")
        busy = (link.queued_bytes > 0) & (link.queued_bytes.shift(1) > 0)
        busy &= link.slot >= SETTLE_S / SLOT_S
        own = link[busy]
        if own.empty:
            sys.exit(f"sessions.py: a {direction}link had nothing waiting in any slot")
        overall.append(own.carried_bytes.sum() / own.offered_bytes.sum() - 1)
        slots.append(own.carried_bytes / own.offered_bytes - 1)
        of_second = own.groupby(own.slot // whole).agg(
            n=("slot", "size"), carried=("carried_bytes", "sum"), offered=("offered_bytes", "sum")
        )
        full = of_second[of_second.n == whole]
        seconds.append(full.carried / full.offered - 1)
    return {
        "overall, worst link": float(np.max(np.abs(overall))),
        "1 s, p95": float(pd.concat(seconds).abs().quantile(0.95)),
        "0.1 s, p95": float(pd.concat(slots).abs().quantile(0.95)),
    }


def _loaded(name: str, scenario: dict[str, Any], flags: str, way: str) -> Callable[..., Figures]:
    def case(args: argparse.Namespace) -> Figures:
        played = session(scenario, flags, args)
        return errors(played.table, way) | {"valid": float(played.about["valid"])}

    case.__doc__ = name
    return case


def udp(args: argparse.Namespace) -> Figures:
    """UDP at 200 Mb/s an uplink, which is more than any carries: the queue drops the rest.

    A socket's buffer is smaller than the queue, and would hold its program back: four of them fill
    it. `unaccounted`: what was sent, less what was dropped and what was carried.
    """
    flags = f"--json -u -b 50M -P 4 -l {DATAGRAM}"
    played = session(THREE, flags, args, client_s=args.seconds - 2 * SETTLE_S)
    up = [link for link in played.about["links"] if link["direction"] == "up"]
    carried = played.table[played.table.direction == "up"].groupby("client").carried_bytes.sum()
    lost, unaccounted = [], []
    for link, said in zip(up, played.said, strict=True):
        streams = json.loads(said)["end"]["streams"]
        sent = sum(stream["udp"]["packets"] for stream in streams)
        lost.append(link["dropped_frames"] / sent)
        rest = sent - link["dropped_frames"] - carried[link["client"]] / (DATAGRAM + HEADERS)
        unaccounted.append(rest / sent)
    return errors(played.table, "up") | {
        "least share dropped of a link": min(lost),
        "most share dropped of a link": max(lost),
        "unaccounted, worst link": max(unaccounted, key=abs),
        "valid": float(played.about["valid"]),
    }


def airtime(args: argparse.Namespace) -> Figures:
    """Two busy downlinks that share the cell, at rates of 1:4: shares of airtime, and of bytes."""
    radio = {"uplink_bandwidth_hz": 4e6, "downlink_bandwidth_hz": 4e6}
    noise_w = 4 * 1e-3 * 10 ** (-114 / 10)
    gains = [(2**efficiency - 1) * noise_w / 40 for efficiency in (3, 12)]
    slots = round(args.seconds / SLOT_S) + 100
    with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        np.savez(file.name, gain=np.repeat(np.array(gains)[:, None], slots, axis=1), slot_s=SLOT_S)
        scenario = {"name": "two", "uavs": {"tx_power_w": [1, 1]}, "radio": radio}
        more = ("--downlink", "shared", "--trace", file.name)
        played = session(scenario, "-R", args, *more)
    table = played.table
    down = table[(table.direction == "down") & (table.slot >= SETTLE_S / SLOT_S)]
    sums = down.groupby("client")[["carried_bytes", "offered_bytes"]].sum()
    share = sums.carried_bytes / sums.offered_bytes
    return {
        "airtime of the slower": float(share[1]),
        "airtime of the faster": float(share[2]),
        "apart": float(abs(share[1] / share[2] - 1)),
        "bytes, faster over slower": float(sums.carried_bytes[2] / sums.carried_bytes[1]),
        "valid": float(played.about["valid"]),
    }


def mininet(args: argparse.Namespace) -> Figures:
    """The rates of `up3`, over Mininet's TCLink: transfers that should take all of the time.

    By its `config` in each slot, which removes the interface's queueing discipline and makes it
    anew: what waits there is lost, and until the last of five commands the link has no rate at all.
    Then at each link's mean rate, set once. At most 30 s; Mininet itself is in real time, whatever
    `--clock` says.
    """
    seconds = min(args.seconds, 30.0)
    short = argparse.Namespace(
        seconds=seconds, clock="virtual" if args.clock == "virtual" else "real"
    )
    table = session(THREE, "", short).table
    up = table[table.direction == "up"].sort_values("slot")
    rates = np.array([link.rate_bps.to_numpy() for _, link in up.groupby("client")])
    constant = np.repeat(rates.mean(axis=1, keepdims=True), rates.shape[1], axis=1)
    return {
        "set each slot, worst link": _over_mininet(rates),
        "set once, worst link": _over_mininet(constant),
    }


def _over_mininet(rates: npt.NDArray[np.float64]) -> float:
    """By how much more the worst link carried than it should have, relative.

    Args:
        rates: Of the links in bit/s, shape [K, slots].
    """
    # As large as the slowest link carries: by then the others have ended.
    size = int((rates.sum(axis=1) * SLOT_S / 8).min() * 0.9 * PAYLOAD / FRAME)
    order = {"rates": rates.tolist(), "slot_s": SLOT_S, "bytes": size}
    apart = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    done = subprocess.run(
        [*apart, SYSTEM_PYTHON, HERE / "mininet_links.py", HERE / "one_transfer.py"],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        timeout=180,
    )
    if done.returncode:
        sys.exit(f"sessions.py: Mininet: {done.stderr.strip()[-300:]}")
    off = []
    for row, (_, end_s) in zip(rates, json.loads(done.stdout.splitlines()[-1]), strict=True):
        could = np.interp(
            end_s, SLOT_S * np.arange(len(row) + 1), [0, *np.cumsum(row) * SLOT_S / 8]
        )
        off.append(size * FRAME / PAYLOAD / could - 1)
    return float(max(off, key=abs))


def soak(args: argparse.Namespace) -> Figures:
    """Ten busy uplinks for as long as asked: the last minute against the first.

    In virtual time their band is a tenth as wide, since half an hour takes hours to compute else.
    """
    if args.seconds < LEAST_SOAK_S:
        sys.exit(f"sessions.py: soak: --seconds: must be {LEAST_SOAK_S:g} or more")
    scenario = _paper()
    if args.clock == "virtual":
        scenario["radio"]["uplink_bandwidth_hz"] /= 10
    played = session(scenario, "", args)
    table, about = played.table, played.about
    minute = min(60.0, args.seconds / 3) / SLOT_S
    last = table.slot.max()
    early = errors(table[table.slot < SETTLE_S / SLOT_S + minute], "up")
    late = errors(table[table.slot > last - minute], "up")
    lateness = {check["check"]: check["value"] for check in about["validity"]}
    found = {f"first: {name}": value for name, value in early.items()}
    found |= {f"last: {name}": value for name, value in late.items()}
    found |= {"injector lateness, p99, s": lateness["injector_lateness_s"]}
    # Before, it comes up; later, it ends.
    steady = [s for s in played.samples if 15 < s[0] < args.seconds and s[1]]
    (_, memory, files), (_, memory_then, files_then) = steady[0], steady[-1]
    found |= {"memory, MB, first": memory / 1e6, "memory, MB, last": memory_then / 1e6}
    found |= {"open files, first": float(files), "open files, last": float(files_then)}
    return found | {"valid": float(about["valid"])}


def _paper() -> dict[str, Any]:
    tree: dict[str, Any] = yaml.safe_load((ROOT / "scenarios/paper.yaml").read_text())
    return tree


DOCKER = THREE | {"emulation": {"runtime": "docker"}}
CASES: dict[str, Callable[[argparse.Namespace], Figures]] = {
    "up3": _loaded("TCP over all uplinks at once, K = 3", THREE, "", "up"),
    "down3": _loaded("TCP over all downlinks at once, K = 3", THREE, "-R", "down"),
    "udp3": udp,
    "up10": _loaded("TCP over all uplinks at once, paper.yaml", _paper(), "", "up"),
    "down10": _loaded("TCP over all downlinks at once, paper.yaml", _paper(), "-R", "down"),
    "docker3": _loaded("TCP over all uplinks at once, containers", DOCKER, "", "up"),
    "airtime": airtime,
    "mininet": mininet,
    "soak": soak,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clock", choices=["real", "virtual"], default="real")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.seconds <= 2 * SETTLE_S:
        parser.error(f"--seconds: must be above {2 * SETTLE_S:g}")
    if unknown := [name for name in args.cases if name not in CASES]:
        parser.error(f"{unknown[0]!r} is not one of {', '.join(CASES)}")
    found = {}
    for name in args.cases or [name for name in CASES if name != "soak"]:
        found[name] = CASES[name](args)
        words = (f"{what} {value:.4g}" for what, value in found[name].items())
        print(f"{name}: {'; '.join(words)}", flush=True)
    if args.json is not None:
        args.json.write_text(json.dumps(vars(args) | {"json": str(args.json), "found": found}))


if __name__ == "__main__":
    main()
