# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How fast the channel of the paper's ten UAVs comes out of ns-3, in slots per second.

    python benchmarks/channel.py [--slots N] [--repeats N] [--json FILE]

The baseline is what the Python bindings invite one to write: a loop over slots and UAVs that asks
ns-3's objects. It runs here on the same C++ models, through cppyy, and must give the same gains to
the last bit. No set-up brings the bindings: `pip install cppyy==3.5.0` compiles them, with Python's
headers. Each figure comes from a fresh process and is the median of the repeats.
"""

import argparse
import ctypes
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from ns3_scenarios import build, native, process
from ns3_scenarios.channel import ChannelSettings, Ns3Channel

PAPER = ChannelSettings(
    ring_m=[(100.0, 550.0)] * 3 + [(550.0, 820.0)] * 3 + [(820.0, 1000.0)] * 4, seed=1
)
UAVS = len(PAPER.ring_m)
COMPARED = 500
"""Slots whose gains are compared between the ways."""


@dataclass(frozen=True)
class Measured:
    """One way, measured in one process."""

    slots_per_s: list[float]
    start_s: float
    """From nothing to slot 0 (the library built, Python and numpy loaded)."""
    gain: bytes
    """Of the first slots."""


def bindings(slots: int, repeats: int, settings: ChannelSettings) -> Measured:
    """A Python loop over ns-3's objects, through cppyy."""
    began = time.perf_counter()
    import cppyy
    import libcppyy

    _, wheel = build.wheel()
    # Libraries before headers: a tenth of the time that `from ns import ns` takes.
    for name in ("core", "network", "mobility", "propagation"):
        cppyy.load_library(str(next((wheel / "lib64").glob(f"libns3.*-{name}.so"))))
    libcppyy.AddSmartPtrType("Ptr")
    for folder in (wheel / "include", Path(build.__file__).parent / "cpp"):
        cppyy.add_include_path(str(folder))
    cppyy.load_library(str(build.library()))
    for header in (
        *("ring-gauss-markov-mobility-model.h", "rma-av-propagation-loss-model.h"),
        *("ns3/constant-position-mobility-model.h", "ns3/double.h", "ns3/pointer.h"),
        *("ns3/rng-seed-manager.h", "ns3/simulator.h"),
    ):
        cppyy.include(header)
    ns3 = cppyy.gbl.ns3

    ns3.RngSeedManager.SetRun(settings.seed)
    bs = ns3.CreateObject["ns3::ConstantPositionMobilityModel"]()
    bs.SetPosition(ns3.Vector(*settings.bs_position_m))
    loss = ns3.CreateObject["ns3::RmaAvPropagationLossModel"]()
    loss.SetAttribute("BaseStation", ns3.PointerValue(bs))
    uavs = []
    for k, (inner, outer) in enumerate(settings.ring_m):
        uav = ns3.CreateObject["ns3::RingGaussMarkovMobilityModel"]()
        uav.SetAttribute("InnerRadius", ns3.DoubleValue(inner))
        uav.SetAttribute("OuterRadius", ns3.DoubleValue(outer))
        uav.AssignStreams(8 * k)
        uav.Initialize()
        uavs.append(uav)
    slot = ns3.NanoSeconds(round(settings.slot_s * 1e9))

    def advance(count: int) -> np.ndarray:
        gain, position = np.empty((UAVS, count)), np.empty((UAVS, count, 3))
        for s in range(count):
            for k, uav in enumerate(uavs):
                at = uav.GetPosition()
                position[k, s] = at.x, at.y, at.z
                gain[k, s] = 10 ** (loss.CalcRxPower(0, uav, bs) / 10)
            ns3.Simulator.Stop(slot)
            ns3.Simulator.Run()
        return gain

    return measure(began, advance, slots, repeats)


def in_process(slots: int, repeats: int, settings: ChannelSettings) -> Measured:
    """The C interface, called in the process that ns-3 lives in: no pipe."""
    began = time.perf_counter()
    library = native.load(build.library())
    library.channel_open(process._settings(asdict(settings)))

    def advance(count: int) -> np.ndarray:
        gain, position = np.empty((UAVS, count)), np.empty((UAVS, count, 3))
        pointers = (a.ctypes.data_as(ctypes.POINTER(ctypes.c_double)) for a in (gain, position))
        library.channel_advance(count, *pointers)
        return gain

    return measure(began, advance, slots, repeats)


def streamed(slots: int, repeats: int, settings: ChannelSettings) -> Measured:
    """`Ns3Channel`: ns-3 in its own process, gains and positions into numpy arrays."""
    rates, starts = [], []
    for _ in range(repeats):
        began = time.perf_counter()
        with Ns3Channel(settings) as source:
            source.trace(1)
            at = time.perf_counter()
            starts.append(at - began)
            trace = source.trace(slots + 1)
            rates.append(slots / (time.perf_counter() - at))
    return Measured(rates, statistics.median(starts), trace.gain[:, :COMPARED].tobytes())


def measure(
    began: float, advance: Callable[[int], np.ndarray], slots: int, repeats: int
) -> Measured:
    first = advance(1)
    start_s = time.perf_counter() - began
    gain = np.hstack([first, advance(COMPARED - 1)])
    rates = []
    for _ in range(repeats):
        at = time.perf_counter()
        advance(slots)
        rates.append(slots / (time.perf_counter() - at))
    return Measured(rates, start_s, gain.tobytes())


def all_ways(slots: int, repeats: int) -> Iterator[tuple[str, Measured]]:
    random = replace(PAPER, line_of_sight="probability", shadow_fading=True)
    ways = [
        ("Python loop, ns-3 objects (cppyy)", bindings, max(slots // 50, 1), PAPER),
        ("C interface, no pipe", in_process, slots, PAPER),
        ("Ns3Channel (streamed)", streamed, slots, PAPER),
        ("Ns3Channel, random LOS, shadowing", streamed, slots, random),
    ]
    build.library()
    for name, way, count, settings in track(
        ways, "measuring", console=Console(stderr=True), transient=True
    ):
        # One simulator a process.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
            yield name, fresh.submit(way, count, repeats, settings).result()


def main() -> None:
    parser = argparse.ArgumentParser(description="Slots per second out of ns-3, ten UAVs.")
    parser.add_argument("--slots", type=int, default=200_000, help="slots a repeat")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()

    measured = dict(all_ways(options.slots, options.repeats))
    names = list(measured)
    baseline = statistics.median(measured[names[0]].slots_per_s)
    table = Table("way", "slots/s", "range (k)", "times", "start")
    rows = []
    for name, way in measured.items():
        median = statistics.median(way.slots_per_s)
        low, high = min(way.slots_per_s), max(way.slots_per_s)
        rows.append(
            {
                "way": name,
                "slots_per_s": median,
                "lowest": low,
                "highest": high,
                "times_baseline": median / baseline,
                "start_s": way.start_s,
            }
        )
        table.add_row(
            *(name, f"{median:,.0f}", f"{low / 1e3:.0f}–{high / 1e3:.0f}"),
            *(f"{median / baseline:.0f}", f"{way.start_s:.2f} s"),
        )
    Console().print(table)
    same = len({measured[name].gain for name in names[:3]}) == 1
    print(f"gains of the first {COMPARED} slots, first three ways: {'equal' if same else 'DIFFER'}")
    if options.json:
        result = {"uavs": UAVS, "slots": options.slots, "ways": rows, "gains_equal": same}
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    sys.exit(not same)


if __name__ == "__main__":
    main()
