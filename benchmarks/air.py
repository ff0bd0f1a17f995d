# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rounds over loss and delay: the engine's model, ns-3's packets and the kernel, side by side.

python benchmarks/air.py [--control cubic|bbr]... [--transport tcp|tls|grpc|quic]... [--loss P,...]
    [--delay-ms D,...] [--seeds N] [--set KEY=VALUE]... [--without engine|ns-3|kernel]...
    [--at-once N] [--json FILE] [--picture FILE]

The kernel plays in virtual time. One of its rounds of the paper at 1 % loss takes minutes. The JSON
has one entry a round and is written after each; rounds that it already has are not played again.
All cells have their first seed before any has its second, and N rounds are played at once, two if
left out: nothing here is timed on the real clock. ns-3 plays TCP alone, and QUIC knows no
BBR: such cells stay empty. The picture has a line a transport and congestion control, over loss,
and a panel a delay.
"""

import argparse
import json
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import matplotlib as mpl
from common import PAPER, TESTBED, numbers, show
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator
from rich.console import Console
from rich.progress import track

from orchestrator.engine.plan import link_bytes
from orchestrator.reporting.legend import COLOURS
from orchestrator.rounds.loop import predict
from orchestrator.rounds.packet_rounds import play
from orchestrator.scenario.channel import ns3_source
from orchestrator.scenario.loading import load
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import RunError
from testbed.system.files import write_json

EXECUTIONS = ("engine", "ns-3", "kernel")
CELL = ("transport", "control", "loss", "delay_s")
Cell = tuple[str, str, float, float]


RESULTS = ("latency_s", "valid")
Found = tuple[float, bool]
"""A round's latency in seconds, and whether its run was valid: a full queue that drops frames, say,
is a loss which nobody asked for."""


def engine(scenario: Scenario, _: Sequence[str]) -> Found:
    """A round with frames, windows and losses."""
    with ns3_source(scenario) as source:
        timeline = predict(scenario, source, profile_of(scenario), sizing=link_bytes)
    return timeline.rounds[0].latency_s, True


def packets(scenario: Scenario, _: Sequence[str]) -> Found:
    """The same, packet by packet."""
    with ns3_source(scenario) as source:
        return play(scenario, source, profile_of(scenario)).timeline.rounds[0].latency_s, True


def kernel(_: Scenario, overrides: Sequence[str]) -> Found:
    """The same, in Linux, in virtual time."""
    words = [word for each in (*overrides, "emulation.clock=virtual") for word in ("--set", each)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "result.json")
        done = subprocess.run(
            [TESTBED, "run", PAPER, *words, "--json", file], capture_output=True, text=True
        )
        if not file.exists():
            why = done.stderr.strip().rpartition("\n")[2]
            raise RunError(f"{' '.join(overrides)}: {why}")
        told = json.loads(file.read_text())
        return float(told["measured"][0]["latency_s"]), bool(told["valid"])


def played(
    cells: Sequence[Cell],
    seeds: int,
    executions: Sequence[str],
    keys: Sequence[str],
    at_once: int,
    file: Path | None,
) -> list[dict[str, Any]]:
    """One entry a round with these overrides: cell, execution, seed, and `RESULTS`.

    Args:
        cells: Transport, congestion control, loss, delay.
        seeds: How many, where frames are lost.
        executions: Of `EXECUTIONS`.
        keys: Overrides of the paper's scenario.
        at_once: So many rounds are played beside each other.
        file: Where entries are kept, and looked up.
    """
    run: dict[str, Callable[[Scenario, Sequence[str]], Found]] = {
        "engine": engine,
        "ns-3": packets,
        "kernel": kernel,
    }
    entries: list[dict[str, Any]] = json.loads(file.read_text()) if file and file.exists() else []
    due: list[dict[str, Any]] = [
        {**dict(zip(CELL, cell, strict=True)), "keys": [*keys], "execution": name, "seed": seed}
        for name in executions
        for seed in range(1, seeds + 1)
        for cell in cells
        if (seed == 1 or cell[2]) and (name != "ns-3" or cell[0] == "tcp")
    ]
    known = [{k: v for k, v in entry.items() if k not in RESULTS} for entry in entries]

    def found(one: dict[str, Any]) -> Found:
        overrides = [
            *("workload.compute=none", "rounds=1", f"seed={one['seed']}"),
            f"emulation.congestion_control={one['control']}",
            f"emulation.transport={one['transport']}",
            *(f"links.loss={one['loss']}", f"links.one_way_delay_s={one['delay_s']}"),
            *keys,
        ]
        return run[one["execution"]](load(PAPER, overrides), overrides)

    with ThreadPoolExecutor(at_once) as pool:
        rounds = {pool.submit(found, one): one for one in due if one not in known}
        try:
            done = as_completed(rounds)
            for round_ in track(done, "rounds", len(rounds), console=Console(stderr=True)):
                results = dict(zip(RESULTS, round_.result(), strict=True))
                entries.append({**rounds[round_], **results})
                if file:
                    write_json(file, entries)
        finally:
            pool.shutdown(cancel_futures=True)
    return [entry for entry in entries if entry["keys"] == [*keys]]


def by_cell(
    cells: Sequence[Cell], entries: Sequence[dict[str, Any]]
) -> list[dict[str, float | str]]:
    """One row a cell; of each execution the mean, its standard error, the number of rounds, and how
    many of them were not valid."""
    rows = []
    for cell in cells:
        row: dict[str, float | str] = dict(zip(CELL, cell, strict=True))
        for name in EXECUTIONS:
            own = [
                entry
                for entry in entries
                if entry["execution"] == name and tuple(entry[key] for key in CELL) == cell
            ]
            found = [entry["latency_s"] for entry in own]
            if found:
                row[f"{name}_s"] = mean(found)
                row[f"{name}_error_s"] = stdev(found) / len(found) ** 0.5 if found[1:] else 0.0
                row[f"{name}_rounds"] = len(found)
                row[f"{name}_not_valid"] = sum(not entry.get("valid", True) for entry in own)
        rows.append(row)
    return rows


MARKERS = "osD^"


def picture(rows: Sequence[dict[str, float | str]], file: Path) -> None:
    """Draw latency over loss: one panel per delay, one line per transport and congestion control.

    Labels omit the words that all lines share.
    """
    delays = sorted({float(row["delay_s"]) for row in rows})
    found = [
        (str(row["transport"]), str(row["control"]), name)
        for row in rows
        for name in EXECUTIONS
        if f"{name}_s" in row
    ]
    kinds = list(dict.fromkeys(found))
    varying = [place for place in range(3) if len({kind[place] for kind in kinds}) > 1] or [0]
    with mpl.rc_context({"svg.hashsalt": "air", "font.size": 9}):
        figure = Figure(figsize=(2.4 * len(delays), 3.2), layout="constrained")
        panels = figure.subplots(1, len(delays), sharey=True, squeeze=False)[0]
        for panel, delay_s in zip(panels, delays, strict=True):
            for number, kind in enumerate(kinds):
                transport, control, name = kind
                line = [
                    row
                    for row in rows
                    if (row["delay_s"], row["transport"], row["control"])
                    == (delay_s, transport, control)
                    and f"{name}_s" in row
                ]
                panel.errorbar(
                    [100 * float(row["loss"]) for row in line],
                    [float(row[f"{name}_s"]) for row in line],
                    [float(row[f"{name}_error_s"]) for row in line],
                    linestyle=dict(zip(EXECUTIONS, ("--", ":", "-"), strict=True))[name],
                    marker=MARKERS[number % len(MARKERS)],
                    markerfacecolor="white",
                    color=COLOURS[number % len(COLOURS)],
                    label=", ".join(kind[place] for place in varying),
                    capsize=2,
                )
            panel.set(xlabel="Packet loss (%)", title=f"Delay {1e3 * delay_s:g} ms", yscale="log")
            panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            panel.yaxis.set_minor_formatter("")
            panel.grid(alpha=0.3)
        panels[0].set_ylabel("Latency of a round (s)")
        handles = panels[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside upper center", ncols=4, frameon=False)
        figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
    if file.suffix == ".svg":  # remove spaces at the ends of lines
        drawn = (line.rstrip() for line in file.read_text().splitlines())
        file.write_text("\n".join(drawn) + "\n")


def _told(row: dict[str, float | str], name: str) -> str:
    if f"{name}_s" not in row:
        return "–"
    rounds = f"{row[f'{name}_rounds']}"
    if row[f"{name}_not_valid"]:
        rounds += f", {row[f'{name}_not_valid']} not valid"
    return f"{row[f'{name}_s']:.3f} ± {row[f'{name}_error_s']:.3f} ({rounds})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--control", action="append", choices=("cubic", "bbr", "reno"))
    transports = ("tcp", "tls", "grpc", "quic")
    parser.add_argument("--transport", action="append", choices=transports)
    parser.add_argument("--set", action="append", default=[], dest="keys", metavar="KEY=VALUE")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--loss", type=numbers, default=[0.0, 0.001, 0.01])
    parser.add_argument("--delay-ms", type=numbers, default=[0.0, 5.0, 20.0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--without", action="append", choices=EXECUTIONS, default=[])
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    delays_s = [delay_ms / 1e3 for delay_ms in wanted.delay_ms]
    kinds = product(wanted.transport or ["tcp"], wanted.control or ["cubic", "bbr"])
    known = [kind for kind in kinds if kind != ("quic", "bbr")]
    cells = [(*kind, *air) for kind in known for air in product(wanted.loss, delays_s)]
    executions = [name for name in EXECUTIONS if name not in wanted.without]
    entries = played(cells, wanted.seeds, executions, wanted.keys, wanted.at_once, wanted.json)
    rows = by_cell(cells, entries)
    show(
        ["transport", "control", "loss", "delay ms", *(f"{name} s" for name in executions)],
        [
            [
                *(str(row["transport"]), str(row["control"]), f"{row['loss']:g}"),
                f"{1e3 * float(row['delay_s']):g}",
                *(_told(row, name) for name in executions),
            ]
            for row in rows
        ],
    )
    if wanted.picture:
        picture(rows, wanted.picture)


if __name__ == "__main__":
    main()
