# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How close the emulated network is to the channel's rates: transfers, rounds, rate changes.

    python benchmarks/fidelity.py [PART...] [--json FILE] [--picture FILE]
    python benchmarks/fidelity.py --publish [PART...]
    python benchmarks/fidelity.py --redraw

Parts: paper, schedules, fading, virtual, baselines, hundred, quickstart, dilation, docker. Left out
are the last two unless they are named: one takes long, the other needs a Docker daemon; `virtual`
needs a kernel (`testbed kernel build`), the baselines root. For all but `virtual` the machine must
be idle: whoever else computes shows in the figures, and the table says how much that was.

`--publish` measures the table of docs/measured.md and writes it there, with docs/fidelity.json and
docs/fidelity.svg. With PART, the published values of the other parts are kept. `--redraw` draws the
picture from docs/fidelity.json and measures nothing.

The error of a transfer is its duration against the integral of the slots' rates from its start
on, for the bytes that its Ethernet frames take. Baselines carry the uploads of `fading`, and the
same at constant rates, over links set with the `tc` program (TBF, HTB; the kernel's own offloads),
and over Mininet's TCLink. Targets stand beside the figures, none is asserted.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from common import ROOT, replace_between, revision
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

import orchestrator as tb
from ns3_scenarios.trace import ChannelTrace
from orchestrator.engine.fdma import ShannonFdma
from orchestrator.engine.plan import Array, fixed_allocation, link_bytes, payload_bytes
from orchestrator.scenario.channel import open_source
from orchestrator.scenario.loading import load
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from testbed.core.paradigm import BUILT_IN
from testbed.network.fabric import limit_packets, link_addresses, wire
from testbed.network.shaping import Shape
from testbed.system import linux
from testbed.virtual import kernel

SCENARIOS = ROOT / "scenarios"
PAGE, RECORD, PICTURE = (
    ROOT / name for name in ("docs/measured.md", "docs/fidelity.json", "docs/fidelity.svg")
)
MARKS = "<!-- fidelity: written by benchmarks/fidelity.py -->", "<!-- end of fidelity -->"
"""The table of the page is between these lines."""
PUBLISHED = ("paper", "fading", "virtual", "baselines")
QUIET = 0.05
"""Of the CPU time: where others take more, the machine was loaded."""
TRANSFER = Path(__file__).with_name("one_transfer.py")
MININET = Path(__file__).with_name("mininet_links.py")
SYSTEM_PYTHON = "/usr/bin/python3"
SIGMA = 0.5
"""Of the logarithm of the gain's factor, drawn anew for each slot and UAV."""
MANY_SEGMENTS = 65_535
"""The kernel's own limit of a device that nobody has limited."""

err = Console(stderr=True)


@dataclass
class Figures:
    """What was measured: one row a figure, and the errors behind them."""

    rows: list[tuple[str, str, float, float | None, str]] = field(default_factory=list)
    """Part, what, value, target or None, unit."""
    errors: dict[str, Array] = field(default_factory=dict)
    """Relative errors of transfers, by name of the series."""
    others: float = 0.0
    """The largest share of CPU time that other programs took in a round."""

    def add(self, part: str, what: str, value: float, target: float | None, unit: str) -> None:
        """One figure."""
        self.rows.append((part, what, float(value), target, unit))

    def spread(self, part: str, what: str, errors: Array, targets: Sequence[float | None]) -> None:
        """p50, p95 and maximum of relative errors, in percent."""
        self.errors[f"{part}: {what}"] = errors
        size = 100 * np.abs(errors)
        values = (np.median(size), np.quantile(size, 0.95), size.max())
        for name, value, target in zip(("p50", "p95", "max"), values, targets, strict=True):
            self.add(part, f"{what}, error {name}", value, target, "%")


# --- our own runs --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Played:
    """A run, and every transfer of it."""

    run: tb.Run
    transfers: pd.DataFrame

    def errors(self, *steps: str) -> Array:
        """Relative errors of the transfers of some steps."""
        rows = self.transfers["step"].isin(steps)
        return self.transfers.loc[rows, "error"].to_numpy(float)

    @property
    def others(self) -> float:
        """The largest share of CPU time that other programs took; none in virtual time."""
        checks = self.run.checks
        return float(checks.loc[checks["check"] == "cpu_others", "value"].max(skipna=True) or 0)

    @property
    def lateness_ms(self) -> float:
        """All rate changes of a slot acknowledged after its boundary, p99, in ms."""
        return float(1e3 * self.run.tables["injector"]["lateness_s"].quantile(0.99))


def emulated(figures: Figures, scenario: Scenario, trace: ChannelTrace | None = None) -> Played:
    """Run all rounds of a scenario."""
    with tempfile.TemporaryDirectory(prefix="fidelity-") as folder:
        run = tb.run(scenario, trace, out=Path(folder) / "run")
        played = Played(run, pd.read_parquet(Path(folder) / "run" / "transfers.parquet"))
    if scenario.emulation.clock == "real":
        figures.others = max(figures.others, played.others)
    return played


def latency(
    figures: Figures, part: str, done: Played, target: float | None, name: str = "round"
) -> None:
    """Largest difference of a round's latency from `predicted_wire`: as it is, and without what
    clients that were ready within a moment of each other and swapped places make of it.
    """
    order_s = done.run.budget["order"].to_dict()
    for what, left_out in (("", False), (", without order", True)):
        error = max(
            abs(measured.latency_s - left_out * order_s[measured.index] - predicted.latency_s)
            / predicted.latency_s
            for measured, predicted in zip(done.run.measured, done.run.predicted_wire, strict=True)
        )
        figures.add(part, f"{name} latency{what}, error", 100 * error, target, "%")
    if done.run.scenario.emulation.clock == "real":
        figures.add(part, f"{name}: CPU taken by others", 100 * done.others, None, "%")


def paper_scenario(*overrides: str) -> Scenario:
    return load(SCENARIOS / "paper.yaml", ["workload.compute=none", *overrides])


def paper(figures: Figures) -> None:
    """The paper's round as it stands, without learning."""
    _paper(figures, "paper")


def _paper(figures: Figures, part: str, *overrides: str) -> None:
    done = emulated(figures, paper_scenario(*overrides))
    figures.spread(part, "broadcasts", done.errors("SM"), (None, None, None))
    figures.spread(part, "uploads", done.errors("CA", "CM"), (0.03, 0.1, 0.3))
    figures.spread(part, "gradients", done.errors("SG"), (0.1, 0.4, 1.0))
    latency(figures, part, done, 0.3)
    figures.add(part, "rate changes done, p99", done.lateness_ms, 0.5, "ms")


def schedules(figures: Figures) -> None:
    """Round latency of each of the nine schedules, with one iteration."""
    for paradigm in BUILT_IN:
        words = (f"paradigm={paradigm.name}", "workload.local_iterations=1")
        done = emulated(figures, paper_scenario(*words))
        latency(figures, "schedules", done, 0.3, paradigm.name)


def faded(scenario: Scenario, slots: int = 1000) -> ChannelTrace:
    """The scenario's trace with a lognormal factor of mean 1 for each slot and UAV."""
    with open_source(scenario, None) as source:
        trace = source.trace(slots)
    assert isinstance(trace, ChannelTrace)
    noise = np.random.default_rng(7).normal(-(SIGMA**2) / 2, SIGMA, trace.gain.shape)
    return replace(trace, gain=trace.gain * np.exp(noise))


def fading(figures: Figures) -> None:
    """Every link's rate jumps at every slot."""
    _fading(figures, "fading")


def _fading(figures: Figures, part: str, *overrides: str) -> None:
    scenario = paper_scenario("workload.local_iterations=1", *overrides)
    done = emulated(figures, scenario, faded(scenario))
    figures.spread(part, "broadcasts", done.errors("SM"), (None, None, None))
    figures.spread(part, "uploads", done.errors("CA"), (None, 0.3, None))
    figures.spread(part, "gradients", done.errors("SG"), (None, None, None))
    latency(figures, part, done, None)


def virtual(figures: Figures) -> None:
    """`paper` and `fading` in virtual time, which no load reaches."""
    if kernel.find() is None:
        err.print("virtual: left out, no kernel is built: `testbed kernel build`")
        return
    _paper(figures, "virtual paper", "emulation.clock=virtual")
    _fading(figures, "virtual fading", "emulation.clock=virtual")


def hundred(figures: Figures) -> None:
    """K = 100."""
    done = emulated(figures, load(SCENARIOS / "hundred.yaml"))
    figures.spread("hundred", "transfers", done.errors("CA", "SG", "CM"), (None, 1.0, None))
    latency(figures, "hundred", done, None)
    figures.add("hundred", "rate changes done, p99", done.lateness_ms, 2.0, "ms")


def dilation(figures: Figures) -> None:
    """The same round at four dilations: the spread of its latencies, as they are and without what
    the order of service made of each."""
    latencies, in_order = [], []
    for factor in (1, 2, 5, 20):
        scenario = paper_scenario(
            "workload.local_iterations=1", "workload.split=3", f"emulation.dilation={factor}"
        )
        run = emulated(figures, scenario).run
        latencies.append(run.measured[0].latency_s)
        in_order.append(latencies[-1] - run.budget["order"].iloc[0])
        figures.add("dilation", f"latency at {factor}", latencies[-1], None, "s")
        figures.add("dilation", f"latency at {factor} without order", in_order[-1], None, "s")
    for what, values in (("", latencies), (" without order", in_order)):
        spread = 100 * (max(values) / min(values) - 1)
        figures.add("dilation", f"spread of latencies{what}", spread, 0.5, "%")


def docker(figures: Figures) -> None:
    """The part `paper`, every node a container."""
    _paper(figures, "docker", "emulation.runtime=docker")


def quickstart(figures: Figures) -> None:
    """Real computing: what the error budget cannot explain."""
    run = emulated(figures, load(SCENARIOS / "quickstart.yaml")).run
    measured_s = run.rounds.set_index("round")["measured_latency_s"]
    for part, name, target in (
        ("rest", "residual of the budget", 0.5),
        ("compute", "overruns' share of the round", None),
    ):
        share = (run.budget[part].abs() / measured_s).max()
        figures.add("quickstart", name, 100 * share, target, "%")


# --- baselines -----------------------------------------------------------------------------------


def baselines(figures: Figures) -> None:
    """The uploads of `fading` over links that are changed as it is usually done."""
    if os.geteuid() != 0:
        err.print("baselines: left out, they need root")
        return
    scenario = paper_scenario("workload.local_iterations=1")
    trace = faded(scenario)
    radio, shares = ShannonFdma.of(scenario), fixed_allocation(scenario)
    rates = radio.link_rates(shares, trace.gain, in_turns=False).uplink
    profile, split = profile_of(scenario), scenario.workload.split
    assert isinstance(split, int)
    size = payload_bytes(scenario, profile, split).smashed
    on_link = link_bytes(scenario, profile, split).smashed
    constant = np.repeat(rates[:, :1], rates.shape[1], axis=1)
    for name, way in BASELINES.items():
        for how, wanted in (("constant", constant), ("fading", rates)):
            try:
                spans = way(wanted, trace.slot_s, size)
            except (OSError, subprocess.SubprocessError) as error:
                err.print(f"baselines: {name}, {how}, left out: {error}")
                continue
            errors = [
                _integral_error(row, trace.slot_s, 8 * on_link, span)
                for row, span in zip(wanted, spans, strict=True)
            ]
            what = f"{name}, {how} uploads"
            figures.spread("baselines", what, np.array(errors), (None, None, None))


def _integral_error(rate_bps: Array, slot_s: float, bits: float, span: Sequence[float]) -> float:
    """Relative error of a transfer that starts and ends at these seconds from slot 0."""
    edges_s = np.arange(len(rate_bps) + 1) * slot_s
    carried = np.concatenate([[0.0], np.cumsum(rate_bps * slot_s)])
    begun = np.interp(span[0], edges_s, carried)
    due_s = np.interp(begun + bits, carried, edges_s) - span[0]
    return float((span[1] - span[0]) / due_s - 1)


def _by_tc(kind: str, rates: Array, slot_s: float, size: int) -> list[tuple[float, float]]:
    """Spans of uploads over veth pairs whose shapers the tc program changes."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, json.dumps(_tc_world(rates, slot_s, size, kind)).encode())
            os._exit(0)
        except BaseException:
            err.print_exception()
            os._exit(1)
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    os.waitpid(pid, 0)
    if not text:
        raise OSError("its process failed")
    return [tuple(span) for span in json.loads(text)]


def _tc_world(rates: Array, slot_s: float, size: int, kind: str) -> list[tuple[float, float]]:
    base = linux.new_network_namespace()
    uavs = [linux.new_network_namespace() for _ in rates]
    shape = Shape()
    fabric = wire(base, uavs, shape)
    limit_packets(fabric.base_station, [MANY_SEGMENTS] * len(uavs))

    def tc(uav: int, words: str) -> None:
        def enter() -> None:
            linux.enter(uav)

        subprocess.run(
            ["tc", *words.split()], check=True, preexec_fn=enter, stderr=subprocess.DEVNULL
        )

    def change(verb: str, k: int, slot: int) -> None:
        if verb == "change" and rates[k, slot] == rates[k, slot - 1]:
            return
        rate = f"rate {rates[k, slot]:.0f}bit"
        if kind == "tbf":
            burst = f"burst {max(1600, rates[k, slot] * 4e-3 / 8):.0f} limit 150000"
            tc(uavs[k], f"qdisc {verb} dev bs root handle 9: tbf {rate} {burst}")
        else:
            tc(uavs[k], f"class {verb} dev bs parent 9: classid 9:1 htb {rate}")

    for k, (site, uav) in enumerate(zip(fabric.uavs, uavs, strict=True)):
        limit_packets(site, [MANY_SEGMENTS])
        tc(uav, "qdisc del dev bs root")
        if kind == "htb":
            tc(uav, "qdisc add dev bs root handle 9: htb default 1")
        change("add", k, 0)
    for end in fabric.base_station.ends:
        fabric.base_station.netlink.transact(end.change(1e9))

    def start(namespace: int, *words: object) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, str(TRANSFER), *map(str, words)],
            preexec_fn=lambda: linux.enter(namespace),
            stdout=subprocess.PIPE,
            text=True,
        )

    receivers = [start(base, "receive", 6000 + k, size) for k in range(len(uavs))]
    time.sleep(1.5)
    start_ns = time.monotonic_ns() + 1_500_000_000
    senders = [
        start(uav, "send", link_addresses(k + 1)[0], 6000 + k, size, start_ns)
        for k, uav in enumerate(uavs)
    ]

    def change_all(slot: int) -> None:
        for k in range(len(uavs)):
            change("change", k, slot)

    _change_by_slot(
        start_ns,
        slot_s,
        rates.shape[1],
        change_all,
        lambda: any(receiver.poll() is None for receiver in receivers),
    )
    for sender in senders:
        sender.wait()
    ends_ns = [int(receiver.communicate()[0]) for receiver in receivers]
    return [(0.0, (end_ns - start_ns) / 1e9) for end_ns in ends_ns]


def _change_by_slot(
    start_ns: int,
    slot_s: float,
    slots: int,
    change: Callable[[int], None],
    going_on: Callable[[], bool],
) -> None:
    """Change all rates at each boundary, or as soon after as the changes before are done."""
    slot = 0
    while going_on() and slot < slots - 1:
        slot = max(slot + 1, int((time.monotonic_ns() - start_ns) / 1e9 / slot_s))
        rest_s = (start_ns + slot * slot_s * 1e9 - time.monotonic_ns()) / 1e9
        if rest_s > 0:
            time.sleep(rest_s)
        change(slot)


def _by_mininet(rates: Array, slot_s: float, size: int) -> list[tuple[float, float]]:
    order = {"rates": rates[:, :300].tolist(), "slot_s": slot_s, "bytes": size}
    # In namespaces of its own, with which all that it has made goes.
    apart = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    done = subprocess.run(
        [*apart, SYSTEM_PYTHON, str(MININET), str(TRANSFER)],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        timeout=180,
    )
    if done.returncode:
        raise OSError((done.stderr.strip().splitlines() or ["it failed"])[-1])
    return [tuple(span) for span in json.loads(done.stdout.splitlines()[-1])]


BASELINES: dict[str, Callable[[Array, float, int], list[tuple[float, float]]]] = {
    "tc TBF": partial(_by_tc, "tbf"),
    "tc HTB": partial(_by_tc, "htb"),
    "Mininet TCLink": _by_mininet,
}


# --- the command ---------------------------------------------------------------------------------

PARTS: dict[str, Callable[[Figures], None]] = {
    "paper": paper,
    "schedules": schedules,
    "fading": fading,
    "virtual": virtual,
    "baselines": baselines,
    "hundred": hundred,
    "quickstart": quickstart,
    "dilation": dilation,
    "docker": docker,
}


def table(figures: Figures) -> Table:
    """The figures beside their targets."""
    shown = Table(box=None, pad_edge=False)
    for column in ("part", "figure", "value", "at most", ""):
        shown.add_column(column, justify="right" if column in ("value", "at most") else "left")
    for part, what, value, target, unit in figures.rows:
        met = "" if target is None else "met" if value <= target else "[bold]missed[/bold]"
        limit = "" if target is None else f"{target:g}"
        shown.add_row(part, what, f"{value:.3f} {unit}", limit, met)
    return shown


SERIES = {
    "virtual fading: uploads": ("this testbed, virtual time", "#009e73", "-"),
    "fading: uploads": ("this testbed, real clock", "#0072b2", "-"),
    "baselines: tc HTB, fading uploads": ("tc HTB", "#d55e00", "--"),
    "baselines: tc TBF, fading uploads": ("tc TBF", "#cc79a7", "-."),
    "baselines: Mininet TCLink, fading uploads": ("Mininet TCLink", "#000000", ":"),
}
"""The drawn series: label, colour, line style. All carry the same uploads at the same rates."""


def draw(series: Mapping[str, Sequence[float] | Array], path: Path) -> None:
    """Draw the share of uploads whose error is below a value, one curve per series of `SERIES`.

    Args:
        series: Relative errors by name of the series, as in the record.
        path: The picture's file.
    """
    drawing = Figure(figsize=(5, 3.6), layout="constrained")
    axes = drawing.add_subplot()
    for name, (label, colour, line) in SERIES.items():
        if name in series:
            size = np.sort(100 * np.abs(series[name])).clip(min=1e-4)
            share = 100 * np.arange(1, len(size) + 1) / len(size)
            axes.step(size, share, line, where="post", label=label, color=colour, linewidth=1.8)
    axes.set(
        xscale="log",
        xlabel="Error of the duration of an upload (%)",
        ylabel="Uploads with a smaller error (%)",
        ylim=(0, 101),
    )
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.grid(alpha=0.3)
    drawing.legend(fontsize=9, loc="outside upper center", ncols=2, frameon=False)
    # Equal figures are equal files.
    with mpl.rc_context({"svg.hashsalt": "fidelity"}):
        drawing.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    if path.suffix == ".svg":  # remove spaces at the ends of lines
        path.write_text(re.sub(r"[ \t]+$", "", path.read_text(), flags=re.M))


def record(figures: Figures) -> dict[str, Any]:
    """What was measured, where, when and of which revision."""
    cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    measurement = {
        "parts": list(dict.fromkeys(row[0] for row in figures.rows)),
        "date": datetime.now(UTC).date().isoformat(),
        "revision": revision(12),
        "machine": f"{os.cpu_count()} cores, {cpu[1] if cpu else platform.machine()}, "
        f"Linux {platform.release()}",
        "cpu_taken_by_others": figures.others,
        "loaded": figures.others > QUIET,
    }
    return {
        "measurements": [measurement],
        "figures": [
            dict(zip(("part", "figure", "value", "target", "unit"), row, strict=True))
            for row in figures.rows
        ],
        "errors": {name: np.round(errors, 9).tolist() for name, errors in figures.errors.items()},
    }


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """A new record, with the old values of the parts that were not measured anew."""
    again = set(new["measurements"][0]["parts"])
    kept = [
        {**each, "parts": parts}
        for each in old["measurements"]
        if (parts := [part for part in each["parts"] if part not in again])
    ]
    errors = {n: e for n, e in old["errors"].items() if n.partition(":")[0] not in again}
    return {
        "measurements": [*kept, *new["measurements"]],
        "figures": [row for row in old["figures"] if row["part"] not in again] + new["figures"],
        "errors": errors | new["errors"],
    }


def _short(value: float) -> str:
    """Two digits, or all of a large number."""
    if 0 < value < 5e-5:
        return "< 0.0001"
    return f"{value:.2g}" if value < 99.5 else f"{value:,.0f}"


def published(measured: dict[str, Any]) -> str:
    """The table of docs/measured.md, from a record."""
    errors = {name: 100 * np.abs(values) for name, values in measured["errors"].items()}

    def cell(series: str) -> str:
        if (size := errors.get(series)) is None:
            return "–"
        return f"{_short(np.median(size))} / {_short(np.quantile(size, 0.95))}"

    latencies = {
        row["part"]: _short(row["value"])
        for row in measured["figures"]
        if row["figure"] == "round latency, error"
    }
    lines = [
        "| rates | links | broadcasts | uploads | gradients | latency of a round |",
        "|---|---|---|---|---|---|",
    ]
    ours = (
        ("the paper's", "this testbed", "paper"),
        ("the paper's", "this testbed, virtual time", "virtual paper"),
        ("jump in each slot", "this testbed", "fading"),
        ("jump in each slot", "this testbed, virtual time", "virtual fading"),
    )
    for rates, links, part in ours:
        cells = [cell(f"{part}: {what}") for what in ("broadcasts", "uploads", "gradients")]
        lines.append(f"| {rates} | {links} | {' | '.join(cells)} | {latencies.get(part, '–')} |")
    for rates, how in (("jump in each slot", "fading"), ("constant", "constant")):
        for links in BASELINES:
            found = cell(f"baselines: {links}, {how} uploads")
            lines.append(f"| {rates} | {links} | | {found} | | |")
    lines.append(
        "\nAll values are in %. For transfers, the table gives the median and the 95th percentile "
        "of the error relative to the duration that follows from the integral of the rates. The "
        "last column is the largest error of a round's latency relative to `predicted_wire`."
    )
    for each in measured["measurements"]:
        load = (
            f"Other programs used up to {100 * each['cpu_taken_by_others']:.0f} % of the CPU time"
        )
        lines.append(
            f"\nMeasured {each['date']} ({', '.join(each['parts'])}): {each['machine']}; revision "
            f"{each['revision']}. {load}{': the machine was not idle' if each['loaded'] else ''}."
        )
    return "\n".join(lines)


def publish(measured: dict[str, Any]) -> None:
    """Put the table between the marks of the page."""
    replace_between(PAGE, MARKS, published(measured))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    usual = [name for name in PARTS if name not in ("dilation", "docker")]
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path)
    parser.add_argument(
        "--publish", action="store_true", help="measure the table of docs/measured.md, and write it"
    )
    parser.add_argument(
        "--redraw", action="store_true", help="only draw docs/fidelity.svg from docs/fidelity.json"
    )
    wanted = parser.parse_args()
    if wanted.redraw:
        draw(json.loads(RECORD.read_text(encoding="utf-8"))["errors"], PICTURE)
        return
    if unknown := set(wanted.parts) - set(PARTS):
        parser.error(f"PART: no such part: {', '.join(unknown)}")
    figures = Figures()
    for name in wanted.parts or (PUBLISHED if wanted.publish else usual):
        err.print(f"{name} …")
        PARTS[name](figures)
    Console().print(table(figures))
    if wanted.picture:
        draw(figures.errors, wanted.picture)
    measured = record(figures)
    if wanted.json:
        wanted.json.write_text(json.dumps(measured) + "\n")
    if wanted.publish:
        measured = merged(json.loads(RECORD.read_text(encoding="utf-8")), measured)
        RECORD.write_text(json.dumps(measured) + "\n")
        draw(measured["errors"], PICTURE)
        publish(measured)


if __name__ == "__main__":
    main()
