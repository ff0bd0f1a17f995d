# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Transfers over links that delay and lose: Linux's TCP beside the engine's model of it.

python benchmarks/air_transfers.py [--control cubic|bbr|reno]... [--rate-mbps R,...]
    [--delay-ms D,...] [--loss P,...] [--size BYTES] [--transfers N] [--at-once N] [--json FILE]

In virtual time. Ten UAVs send N transfers each (default 5), one after the other with a pause; the
model plays ten times as many.
"""

import argparse
import json
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from air_frames import session
from common import numbers, show
from rich.console import Console
from rich.progress import track
from transfers_in_turn import PAUSE_S

from orchestrator.engine.core_library import LinkState, Slots, library
from orchestrator.engine.links import shape_of
from orchestrator.engine.slot_impairments import UP
from orchestrator.engine.tcp_model import given_links, tcp_model_of
from orchestrator.scenario.loading import validate
from testbed.system.files import write_json

CLIENTS = 10
NODE = Path(__file__).with_name("transfers_in_turn.py")


def kernel(tree: dict[str, Any], rate_bps: float, size: int, count: int) -> list[list[float]]:
    """Seconds of each UAV's transfers."""
    me, uavs = f"{sys.executable} {NODE}", range(1, CLIENTS + 1)
    nodes = {"bs": " & ".join(f"{me} receive {k} {size} {count}" for k in uavs) + " & wait"}
    nodes |= {f"uav{k}": f"exec {me} send {k} {size} {count}" for k in uavs}
    with session(tree, rate_bps, nodes) as folder:
        return [json.loads((folder / "bs" / f"uav{k}.json").read_text()) for k in uavs]


def model(tree: dict[str, Any], rate_bps: float, size: int, count: int) -> list[list[float]]:
    """The same by the engine, of ten times as many UAVs."""
    found = []
    for seed in range(1, 11):
        scenario = validate(
            {**tree, "seed": seed, "uavs": {"tx_power_w": [1.0] * CLIENTS}}, "a benchmark"
        )
        transport, shape = tcp_model_of(scenario), shape_of(scenario)
        # Where links neither delay nor lose, it is the integral of the rate, eq. (3).
        on_link = size + math.ceil(size / (shape.mtu - 52)) * (66 if shape.charges_headers else 0)
        if transport is None:
            return [[8 * on_link / rate_bps] * count]
        slots = Slots(np.full((CLIENTS, 100_000), rate_bps), 1.0)
        air = LinkState(slots, given_links(CLIENTS), transport.fresh(), None, 0.0)
        for k in range(CLIENTS):
            at_s, took_s = 0.0, []
            for _ in range(count):
                start_s = at_s + PAUSE_S
                at_s = library().engine_transfer(air.address, UP, k, on_link, start_s)
                took_s.append(at_s - start_s)
            found.append(took_s)
    return found


def compared(
    control: str, rate_mbps: float, delay_ms: float, loss: float, size: int, count: int
) -> dict[str, float | str]:
    """One row of the table: means and their standard errors, in seconds."""
    tree = {
        "links": {"loss": loss, "one_way_delay_s": delay_ms / 1e3},
        "emulation": {"clock": "virtual", "dilation": 1.0, "congestion_control": control},
    }
    row: dict[str, float | str] = {"control": control, "rate_mbps": rate_mbps}
    row |= {"delay_ms": delay_ms, "loss": loss}
    for name, play in (("kernel", kernel), ("model", model)):
        took_s: npt.NDArray[np.float64] = np.array(play(tree, rate_mbps * 1e6, size, count))
        # A UAV's transfers share a window: only its mean is independent of the others'.
        of_uav = took_s.mean(axis=1)
        row[f"{name}_s"] = float(of_uav.mean())
        error_s = of_uav.std(ddof=1) / math.sqrt(len(of_uav)) if len(of_uav) > 1 else 0.0
        row[f"{name}_error_s"] = float(error_s)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--control", action="append", choices=("cubic", "bbr", "reno"))
    parser.add_argument("--rate-mbps", type=numbers, default=[25.0])
    parser.add_argument("--delay-ms", type=numbers, default=[0.0, 5.0, 20.0])
    parser.add_argument("--loss", type=numbers, default=[0.0, 0.001, 0.01, 0.05])
    parser.add_argument("--size", type=int, default=2_400_000)
    parser.add_argument("--transfers", type=int, default=5)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    controls = wanted.control or ["cubic", "bbr"]
    cells = list(product(controls, wanted.rate_mbps, wanted.delay_ms, wanted.loss))

    def row_of(cell: tuple[str, float, float, float]) -> dict[str, float | str]:
        return compared(*cell, size=wanted.size, count=wanted.transfers)

    with ThreadPoolExecutor(wanted.at_once) as pool:
        played = pool.map(row_of, cells)
        rows = list(track(played, "cells", len(cells), console=Console(stderr=True)))
    show(
        ["control", "Mb/s", "delay ms", "loss", "kernel s", "model s", "off"],
        [
            [
                str(row["control"]),
                *(f"{row[key]:g}" for key in ("rate_mbps", "delay_ms", "loss")),
                *(f"{row[f'{n}_s']:.3f} ± {row[f'{n}_error_s']:.3f}" for n in ("kernel", "model")),
                f"{100 * (float(row['model_s']) / float(row['kernel_s']) - 1):+.1f} %",
            ]
            for row in rows
        ],
    )
    if wanted.json:
        write_json(wanted.json, rows)


if __name__ == "__main__":
    main()
