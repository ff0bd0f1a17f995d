# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""When messages arrive, against the integral of their link's rate.

    python benchmarks/messages.py [RATE...] [--clock virtual] [--down] [--json FILE]

A RATE in bit/s is that of all slots; `130e3/10e6` has a rate per slot in turns. A session per rate
sends messages of 1 B to 1 MB by UDP and TCP: each after silence, then several back to back. The
error of a message is its arrival less the time at which its last bit, headers included, has been
sent at the rates of the slots, in ms; negative means too early. In real time the machine must be
alone.
"""

import argparse
import itertools
import json
import math
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from common import ROOT
from message_ends import DATAGRAM_BYTES

ENDS = Path(__file__).parent / "message_ends.py"
RATES = ("130e3", "1e6", "10e6", "40e6", "100e6", "500e6", "130e3/10e6")
SIZES = (1, 100, 1448, 4344, 20_272, 99_912, 1_000_568)
"""Bytes of messages: from 1448 on whole segments of TCP, so that messages in a backlog do not share
a segment."""
UDP_HEADERS, TCP_HEADERS, SEGMENT_BYTES = 42, 66, 1448
"""Bytes of Ethernet, IPv4 and UDP or TCP with timestamps, and payload of a full segment."""
SLOT_S = 0.1
BEGIN_S = 2.0
"""When the first message is sent, in seconds after slot 0."""
LONGEST_S = 2.0
"""Messages that take longer than this are not sent."""
SILENCE_S = 0.08
"""Least silence before a message."""
KIND_S = 1.5
"""Duration of the messages of one size, transport and pace, about."""
MOST, LEAST = 20, 3
"""Number of these messages."""


@dataclass(frozen=True)
class Link:
    """A link whose slots have these rates in turns, in bit/s."""

    rates_bps: tuple[float, ...]

    def bits_by(self, at_s: float) -> float:
        """The bits that it can have carried since slot 0."""
        whole, part = divmod(at_s / SLOT_S, len(self.rates_bps))
        slots = [min(1.0, max(0.0, part - place)) for place in range(len(self.rates_bps))]
        of_period = float(np.dot(slots, self.rates_bps))
        return SLOT_S * (whole * sum(self.rates_bps) + of_period)

    def end_s(self, begin_s: float, bits: float) -> float:
        """When so many bits have been sent that begin then."""
        target = self.bits_by(begin_s) + bits
        slot = math.floor(begin_s / SLOT_S)
        while self.bits_by((slot + 1) * SLOT_S) < target:
            slot += 1
        at_s = max(begin_s, slot * SLOT_S)
        rate_bps = self.rates_bps[slot % len(self.rates_bps)]
        return at_s + (target - self.bits_by(at_s)) / rate_bps


def wire_bits(size: int, *, tcp: bool) -> float:
    """The bits of a message with all its headers."""
    headers, most = (TCP_HEADERS, SEGMENT_BYTES) if tcp else (UDP_HEADERS, DATAGRAM_BYTES)
    return 8.0 * (size + headers * math.ceil(size / most))


def planned(link: Link) -> list[dict[str, Any]]:
    """All messages: `at_s` after slot 0, `bytes`, `tcp`, `silence`."""
    plan: list[dict[str, Any]] = []
    at_s = BEGIN_S
    jitter = np.random.default_rng(1)
    for tcp, silence, size in itertools.product((False, True), (True, False), SIZES):
        bits = wire_bits(size, tcp=tcp)
        takes_s = link.end_s(at_s, bits) - at_s
        # In a backlog, messages below a segment share segments of TCP.
        if takes_s > LONGEST_S or (tcp and not silence and size < SEGMENT_BYTES):
            continue
        count = int(min(MOST, max(LEAST, KIND_S / (takes_s + SILENCE_S))))
        for _ in range(count):
            if silence:
                at_s += float(jitter.uniform(0, SLOT_S))
            plan.append({"at_s": at_s, "bytes": size, "tcp": tcp, "silence": silence})
            if silence:
                at_s = link.end_s(at_s, bits) + SILENCE_S
        at_s = (at_s if silence else link.end_s(at_s, bits * count)) + SILENCE_S
    return plan


def played(rate: str, args: argparse.Namespace) -> pd.DataFrame:
    """The messages of a session with this rate, with their errors."""
    link = Link(tuple(float(each) for each in rate.split("/")))
    plan = planned(link)
    seconds = plan[-1]["at_s"] + LONGEST_S + 3
    slots = -(-round(seconds / SLOT_S + 10) // len(link.rates_bps)) * len(link.rates_bps)
    bps = np.resize(link.rates_bps, (1, slots))
    scenario = {
        "name": "one",
        "uavs": {"count": 1, "tx_power_w": 1.0},
        "workload": {"compute": "none"},
        "emulation": {"clock": args.clock, "calibrate": False},
    }
    with tempfile.TemporaryDirectory(prefix="testbed-messages-") as temporary:
        folder = Path(temporary)
        np.savez(folder / "rates.npz", uplink_bps=bps, downlink_bps=bps, slot_s=SLOT_S)
        (folder / "plan.json").write_text(json.dumps(plan))
        (folder / "one.yaml").write_text(yaml.safe_dump(scenario))
        sender, receiver = ("bs", "uav1") if args.down else ("uav1", "bs")
        program = f"exec {shlex.quote(sys.executable)} {shlex.quote(str(ENDS))}"
        plan_file = shlex.quote(str(folder / "plan.json"))
        words = ["up", folder / "one.yaml", "--trace", folder / "rates.npz"]
        words += ["--out", folder / "out", "--seconds", seconds]
        words += ["--node", f"{receiver}={program} receive {plan_file}"]
        words += ["--node", f"{sender}={program} send {plan_file} {receiver}"]
        command = [sys.executable, "-m", "orchestrator", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        logs = {node: folder / "out/logs" / f"{node}.log" for node in (sender, receiver)}
        try:
            sent_ns, arrived_ns = (json.loads(logs[node].read_text()) for node in logs)
        except (OSError, ValueError):
            said = [log.read_text()[-2000:] for log in logs.values() if log.is_file()]
            sys.exit(f"messages.py: {done.stdout[-2000:]}{done.stderr[-2000:]}{said}")
    return with_errors(link, plan, sent_ns, arrived_ns).assign(rate=rate)


def with_errors(
    link: Link, plan: list[dict[str, Any]], sent_ns: list[int], arrived_ns: list[int | None]
) -> pd.DataFrame:
    """The messages with `error_ms`: how much later than their last bit they arrived; NaN if they
    did not."""
    free_s, errors_ms = 0.0, []
    for message, sent, arrived in zip(plan, sent_ns, arrived_ns, strict=True):
        # A message waits until all earlier ones have been sent.
        begin_s = max(free_s, sent * 1e-9)
        free_s = link.end_s(begin_s, wire_bits(message["bytes"], tcp=message["tcp"]))
        errors_ms.append(math.nan if arrived is None else 1e3 * (arrived * 1e-9 - free_s))
    return pd.DataFrame(plan).assign(error_ms=errors_ms)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rates", nargs="*", metavar="RATE", default=RATES)
    parser.add_argument("--clock", choices=["real", "virtual"], default="real")
    parser.add_argument("--down", action="store_true", help="send over the downlink")
    parser.add_argument("--json", type=Path, help="also write each message to this file")
    args = parser.parse_args()
    found = pd.concat([played(rate, args) for rate in args.rates], ignore_index=True)
    size = found.error_ms.abs()
    early, late = -min(0.0, found.error_ms.min()), max(0.0, found.error_ms.max())
    lost = int(size.isna().sum())
    print(
        f"{len(found)} messages in {args.clock} time: 95 % arrived within {size.quantile(0.95):.3f}"
        f" ms of theory; the most were {early:.3f} ms too early and {late:.3f} ms too late"
        f"{f', and {lost} were lost' if lost else ''}."
    )
    found["transport"] = np.where(found.tcp, "TCP", "UDP")
    found["pace"] = np.where(found.silence, "after silence", "back to back")
    keys = ["rate", "transport", "pace", "bytes"]
    of_kind = found.groupby(keys, sort=False)["error_ms"]
    off = found.assign(size=found["error_ms"].abs()).groupby(keys, sort=False)["size"]
    table = pd.DataFrame(
        {
            "n": of_kind.size(),
            "median, ms": of_kind.median(),
            "|error| p50": off.median(),
            "|error| p95": off.quantile(0.95),
            "|error| max": off.max(),
        }
    )
    print(table.round(3).reset_index().to_string(index=False))
    if args.json:
        args.json.write_text(found.to_json(orient="records"))


if __name__ == "__main__":
    main()
