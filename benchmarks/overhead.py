# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Protocol overheads: accounts against captures, gRPC against our framing, the cost of a capture.

    python benchmarks/overhead.py [PART...] [--json FILE]

Parts: bytes (K = 3, each transport: accounts less capture, which should be 0), transports (the
paper's round over each transport), capture (the paper's round with and without one). The machine
must be idle for latencies; bytes do not mind. `testbed overhead` has the tables and pictures.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from common import ROOT
from rich.console import Console

from orchestrator import api as tb
from orchestrator.analysis.byte_accounts import BYTES
from orchestrator.cli.printed_tables import plain_table
from orchestrator.records.reader import Run
from orchestrator.scenario.loading import load
from testbed.network.fabric import link_addresses
from testbed.network.pcap import frames
from testbed.system.files import write_json

TRANSPORTS: dict[str, list[str]] = {
    "tcp": [],
    "tls": ["emulation.transport=tls"],
    "grpc": ["emulation.transport=grpc"],
    "quic": ["emulation.transport=quic"],
    "tcp per transfer": ["emulation.connection=per-transfer"],
    "tls per transfer": ["emulation.transport=tls", "emulation.connection=per-transfer"],
}
Capture = Literal["frames", "headers"] | None


def emulated(name: str, words: list[str], folder: Path, capture: Capture = None) -> Run:
    scenario = load(ROOT / "scenarios" / f"{name}.yaml", ["workload.compute=none", *words])
    return tb.run(scenario, out=folder / "run", capture=capture)


def of_bytes() -> list[dict[str, Any]]:
    """Bytes by the accounts, and what they differ by from a capture of the same links."""
    rows = []
    for name, words in TRANSPORTS.items():
        with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
            done = emulated("quickstart", ["rounds=1", *words], Path(folder), "headers")
            accounts = done.tables["accounts"]
            booked = accounts.groupby(["client", "direction"])[list(BYTES)].sum().sum(axis=1)
            for client in range(1, done.scenario.uavs.count + 1):
                seen = list(frames(Path(folder) / "run" / "pcap" / f"uav{client}.pcap"))
                for direction, address in zip(("down", "up"), link_addresses(client), strict=True):
                    captured = sum(
                        f.header_bytes + f.data_bytes for f in seen if f.source == address
                    )
                    total = int(booked[client, direction])
                    rows.append(
                        {
                            "transport": name,
                            "client": client,
                            "direction": direction,
                            "accounts": total,
                            "less capture": total - captured,
                        }
                    )
    return rows


def of_transports() -> list[dict[str, Any]]:
    """The paper's round: bytes on all links, and latency."""
    rows = []
    for name, words in TRANSPORTS.items():
        with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
            done = emulated("paper", words, Path(folder))
        accounts = done.tables["accounts"]
        sums = accounts.loc[accounts["round"] == accounts["round"].max(), list(BYTES)].sum()
        rows.append(
            {
                "transport": name,
                "link bytes": int(sums.sum()),
                **{kind.removesuffix("_bytes"): int(sums[kind]) for kind in BYTES},
                "predicted wire s": done.predicted_wire.rounds[0].latency_s,
                "measured s": done.measured.rounds[0].latency_s,
            }
        )
    return rows


def of_capture() -> list[dict[str, Any]]:
    """What a capture does to the paper's round."""
    rows = []
    captures: tuple[Capture, ...] = (None, "headers", "frames")
    for capture in captures:
        with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
            done = emulated("paper", [], Path(folder), capture)
        rows.append(
            {
                "capture": capture or "none",
                "missed packets": (done.manifest.get("captured") or {}).get("missed_packets", 0),
                "measured s": done.measured.rounds[0].latency_s,
                "transfer error p95 %": 100
                * float(done.tables["transfers"]["error"].abs().quantile(0.95)),
            }
        )
    return rows


PARTS = {"bytes": of_bytes, "transports": of_transports, "capture": of_capture}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = {}
    for part in arguments.parts or PARTS:
        found[part] = PARTS[part]()
        table = pd.DataFrame(found[part])
        if part == "transports":  # A column each, which fits any screen.
            table = table.astype(object).set_index("transport").T
            table = table[(table != 0).any(axis=1)].rename_axis("quantity").reset_index()
        Console().print(plain_table(table))
    if arguments.json:
        write_json(arguments.json, found)


if __name__ == "__main__":
    main()
