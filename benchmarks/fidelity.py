# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How close the emulated network is to the channel's rates: transfers, rounds, rate changes.

    python benchmarks/fidelity.py [PART...] [--json FILE] [--picture FILE.png]

Parts: paper, schedules, fading, baselines, hundred, quickstart, dilation, docker. Left out are the
last two unless they are named: one takes long, the other needs a Docker daemon. The machine must be
idle: whoever else computes shows in the figures, and the table says how much that was.

The error of a transfer is its duration against the integral of the slots' rates from its start
on, for the bytes that its Ethernet frames take. Baselines carry the uploads of `fading`, and the
same at constant rates, over links set with the `tc` program (TBF, HTB; the kernel's own offloads),
and over Mininet's TCLink; they need root. Targets stand beside the figures, none is asserted.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from ns3_scenarios.trace import ChannelTrace, Replay
from orchestrator.emulation.record import Emulation
from orchestrator.emulation.session import emulate
from orchestrator.prediction.plan import (
    Array,
    fixed_allocation,
    link_bytes,
    payload_bytes,
    radio_of,
)
from orchestrator.prediction.rates import uplink_bps
from orchestrator.scenario.channel import open_source
from orchestrator.scenario.loading import load
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from testbed.core.paradigm import BUILT_IN
from testbed.network.fabric import limit_packets, link_addresses, wire
from testbed.network.shaping import Shape
from testbed.system import linux

SCENARIOS = Path(__file__).resolve().parents[1] / "scenarios"
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


def emulated(scenario: Scenario, trace: ChannelTrace | None = None) -> Emulation:
    """Run all rounds of a scenario."""
    with contextlib.ExitStack() as stack:
        source = Replay(trace) if trace else stack.enter_context(open_source(scenario, None))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fidelity-")))
        rounds = emulate(scenario, source, profile_of(scenario), folder)
        with contextlib.closing(rounds):
            *_, done = rounds
    return done


def transfers(done: Emulation, *steps: str) -> Array:
    """Relative errors of the transfers of some steps."""
    table = pd.concat(done.transfers)
    return table.loc[table["step"].isin(steps), "error"].to_numpy()


def latency(
    figures: Figures, part: str, done: Emulation, target: float | None, name: str = "round"
) -> None:
    """Largest difference of a round's latency from `predicted_wire`: as it is, and without what
    clients that were ready within a moment of each other and swapped places make of it.
    """
    rounds = list(zip(done.measured, done.predicted_wire, done.budgets, strict=True))
    for what, left_out in (("", False), (", without order", True)):
        error = max(
            abs(measured.latency_s - left_out * budget.seconds["order"] - predicted.latency_s)
            / predicted.latency_s
            for measured, predicted, budget in rounds
        )
        figures.add(part, f"{name} latency{what}, error", 100 * error, target, "%")
    others = max(passed.others for passed in done.machine)
    figures.add(part, f"{name}: CPU taken by others", 100 * others, None, "%")


def lateness_ms(done: Emulation) -> float:
    """All rate changes of a slot acknowledged after its boundary, p99, in ms."""
    return float(1e3 * pd.concat(done.injector)["lateness_s"].quantile(0.99))


def paper_scenario(*overrides: str) -> Scenario:
    return load(SCENARIOS / "paper.yaml", ["workload.compute=none", *overrides])


def paper(figures: Figures) -> None:
    """The paper's round as it stands, without learning."""
    done = emulated(paper_scenario())
    figures.spread("paper", "uploads", transfers(done, "CA", "CM"), (0.03, 0.1, 0.3))
    figures.spread("paper", "gradients", transfers(done, "SG"), (0.1, 0.4, 1.0))
    latency(figures, "paper", done, 0.3)
    figures.add("paper", "rate changes done, p99", lateness_ms(done), 0.5, "ms")


def schedules(figures: Figures) -> None:
    """Round latency of each of the nine schedules, with one iteration."""
    for paradigm in BUILT_IN:
        done = emulated(paper_scenario(f"paradigm={paradigm.name}", "workload.local_iterations=1"))
        latency(figures, "schedules", done, 0.3, paradigm.name)


def faded(scenario: Scenario, slots: int = 1000) -> ChannelTrace:
    """The scenario's trace with a lognormal factor of mean 1 for each slot and UAV."""
    with open_source(scenario, None) as source:
        trace = source.trace(slots)
    noise = np.random.default_rng(7).normal(-(SIGMA**2) / 2, SIGMA, trace.gain.shape)
    return replace(trace, gain=trace.gain * np.exp(noise))


def fading(figures: Figures) -> None:
    """Every link's rate jumps at every slot."""
    scenario = paper_scenario("workload.local_iterations=1")
    done = emulated(scenario, faded(scenario))
    figures.spread("fading", "uploads", transfers(done, "CA"), (None, 0.3, None))
    figures.spread("fading", "gradients", transfers(done, "SG"), (None, None, None))
    latency(figures, "fading", done, None)


def hundred(figures: Figures) -> None:
    """K = 100."""
    done = emulated(load(SCENARIOS / "hundred.yaml"))
    figures.spread("hundred", "transfers", transfers(done, "CA", "SG", "CM"), (None, 1.0, None))
    latency(figures, "hundred", done, None)
    figures.add("hundred", "rate changes done, p99", lateness_ms(done), 2.0, "ms")


def dilation(figures: Figures) -> None:
    """The same round at four dilations: the spread of its latencies, as they are and without what
    the order of service made of each."""
    latencies, in_order = [], []
    for factor in (1, 2, 5, 20):
        scenario = paper_scenario(
            "workload.local_iterations=1", "workload.split=3", f"emulation.dilation={factor}"
        )
        done = emulated(scenario)
        latencies.append(done.measured[0].latency_s)
        in_order.append(latencies[-1] - done.budgets[0].seconds["order"])
        figures.add("dilation", f"latency at {factor}", latencies[-1], None, "s")
        figures.add("dilation", f"latency at {factor} without order", in_order[-1], None, "s")
    for what, values in (("", latencies), (" without order", in_order)):
        spread = 100 * (max(values) / min(values) - 1)
        figures.add("dilation", f"spread of latencies{what}", spread, 0.5, "%")


def docker(figures: Figures) -> None:
    """The part `paper`, every node a container."""
    done = emulated(paper_scenario("emulation.runtime=docker"))
    figures.spread("docker", "uploads", transfers(done, "CA", "CM"), (0.03, 0.1, 0.3))
    figures.spread("docker", "gradients", transfers(done, "SG"), (0.1, 0.4, 1.0))
    latency(figures, "docker", done, 0.3)
    figures.add("docker", "rate changes done, p99", lateness_ms(done), 0.5, "ms")


def quickstart(figures: Figures) -> None:
    """Real computing: what the error budget cannot explain."""
    done = emulated(load(SCENARIOS / "quickstart.yaml"))
    rest = max(100 * abs(b.seconds["rest"]) / b.measured_s for b in done.budgets)
    compute = max(100 * abs(b.seconds["compute"]) / b.measured_s for b in done.budgets)
    figures.add("quickstart", "residual of the budget", rest, 0.5, "%")
    figures.add("quickstart", "overruns' share of the round", compute, None, "%")


# --- baselines -----------------------------------------------------------------------------------


def baselines(figures: Figures) -> None:
    """The uploads of `fading` over links that are changed as it is usually done."""
    if os.geteuid() != 0:
        err.print("baselines: left out, they need root")
        return
    scenario = paper_scenario("workload.local_iterations=1")
    trace = faded(scenario)
    rates = uplink_bps(radio_of(scenario), fixed_allocation(scenario).beta, trace.gain)
    profile, split = profile_of(scenario), scenario.workload.split
    size = payload_bytes(scenario, profile, split).smashed
    on_link = link_bytes(scenario, profile, split).smashed
    constant = np.repeat(rates[:, :1], rates.shape[1], axis=1)
    ways: dict[str, Callable[[Array], list[tuple[float, float]]]] = {
        "tc TBF": lambda r: _by_tc(r, trace.slot_s, size, "tbf"),
        "tc HTB": lambda r: _by_tc(r, trace.slot_s, size, "htb"),
        "Mininet TCLink": lambda r: _by_mininet(r, trace.slot_s, size),
    }
    for name, way in ways.items():
        for how, wanted in (("constant", constant), ("fading", rates)):
            try:
                spans = way(wanted)
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


def _by_tc(rates: Array, slot_s: float, size: int, kind: str) -> list[tuple[float, float]]:
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
    try:
        done = subprocess.run(
            [SYSTEM_PYTHON, str(MININET), str(TRANSFER)],
            input=json.dumps(order),
            capture_output=True,
            text=True,
            timeout=180,
        )
    finally:
        subprocess.run(["mn", "-c"], capture_output=True, timeout=60)
    if done.returncode:
        raise OSError((done.stderr.strip().splitlines() or ["it failed"])[-1])
    return [tuple(span) for span in json.loads(done.stdout.splitlines()[-1])]


# --- the command ---------------------------------------------------------------------------------

PARTS: dict[str, Callable[[Figures], None]] = {
    "paper": paper,
    "schedules": schedules,
    "fading": fading,
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


def draw(figures: Figures, path: Path) -> None:
    """The share of transfers whose error is below a value, one curve a series."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawing, axes = plt.subplots(figsize=(9, 4), layout="constrained")
    drawn = {True: 0, False: 0}
    for name, errors in figures.errors.items():
        size = np.sort(100 * np.abs(errors)).clip(min=1e-4)
        share = np.arange(1, len(size) + 1) / len(size)
        others = name.startswith("baselines")
        style = {"color": f"C{drawn[others]}", "linestyle": "--" if others else "-"}
        drawn[others] += 1
        axes.step(size, share, where="post", label=name.removeprefix("baselines: "), **style)
    axes.set(
        xscale="log",
        xlabel="error of a transfer against the integral of the rates, %",
        ylabel="share of transfers",
        ylim=(0, 1),
    )
    axes.grid(alpha=0.3)
    drawing.legend(fontsize="small", loc="outside right upper", frameon=False)
    drawing.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    usual = [name for name in PARTS if name not in ("dilation", "docker")]
    parser.add_argument("parts", nargs="*", default=usual, choices=PARTS, metavar="PART")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path)
    wanted = parser.parse_args()
    figures = Figures()
    for name in wanted.parts:
        err.print(f"{name} …")
        PARTS[name](figures)
    Console().print(table(figures))
    if wanted.picture:
        draw(figures, wanted.picture)
    if wanted.json:
        columns = ("part", "figure", "value", "target", "unit")
        result = {
            "figures": [dict(zip(columns, row, strict=True)) for row in figures.rows],
            "errors": {name: errors.tolist() for name, errors in figures.errors.items()},
        }
        wanted.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
