# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The page of performance: the same work beside other programs, and how cost grows.

    python benchmarks/performance.py [PART...] [--publish]

The parts are rounds, growth, nodes, rates, ppo, training, lte and budgets; by default all. A row at
a size is a process of its own, which prints CPU seconds (user and system) of itself and its
children, at its best; memory is that of the largest of these processes. `--publish` writes the page
docs/performance.md with its picture and its record docs/performance.json; values of parts that are
not measured are kept. Without it, the tables are printed.

What is compared with a package or program that is not installed is left out, and the page says how
to install it. The parts nodes and rates need root: all that they make is in network namespaces of
their own. The session of the part lte needs the kernel for virtual time.
"""

import argparse
import heapq
import importlib.util
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import commands
import learning
import matplotlib as mpl
import numpy as np
from budgets import BUDGETS, points, used
from engine import Round, grown, setting
from matplotlib.figure import Figure

import orchestrator as tb
from ns3_scenarios.trace import ChannelTrace
from orchestrator.engine.fdma import ShannonFdma
from orchestrator.engine.plan import Array, RoundPlan, fixed_allocation, plan_round
from orchestrator.rounds.simulation import simulate_batch, split_costs
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from testbed.system.files import write_json

ROOT = Path(__file__).resolve().parents[1]
PAGE, RECORD, PICTURE = (
    ROOT / "docs" / f"performance.{suffix}" for suffix in ("md", "json", "svg")
)
PRODUCT = ("ns3_scenarios", "orchestrator", "testbed", "workloads")
REPEATS = 3
ROUNDS = 100
"""Rounds of 10 UAVs that a fast program plays; more UAVs have fewer."""
SYSTEM_PYTHON = "/usr/bin/python3"
FLOWER = ROOT / "build" / "flower" / "bin" / "python"
FLOWER_HOW = "`python -m venv build/flower`, `build/flower/bin/pip install flwr[simulation] torch`"
KB_PER_MB = 1000

Cost = float | tuple[float, float]
"""CPU seconds of a unit of work, and MB if they are not those of the largest process."""


class Missing(Exception):
    """What a row needs is not there; the message says how to get it."""


@dataclass(frozen=True)
class Row:
    """A program that does the work."""

    work: Callable[[int], Cost]
    """The cost of a unit of work at a size."""
    sizes: Sequence[int]


@dataclass(frozen=True)
class Part:
    """A table of the page."""

    title: str
    about: str
    unit: str
    per_s: float
    """Units of the printed values per second."""
    of: str
    """What the sizes count."""
    rows: Mapping[str, Row]
    versions: Mapping[str, Callable[[], str]]
    """By name: a function that finds the version of what was compared."""
    own: str | None = None
    """The row of the testbed with which other programs are compared."""
    others: Sequence[str] = ()
    """The rows of other programs."""


def cpu_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in both)


def least_s(work: Callable[[], Any], repeats: int = REPEATS) -> float:
    """CPU seconds of some work at its best, after one call that warms it up."""
    work()
    took = []
    for _ in range(repeats):
        began = cpu_s()
        work()
        took.append(cpu_s() - began)
    return min(took)


def needs(found: object, how: str) -> None:
    """Refuse to measure without something.

    Raises:
        Missing: It is not there.
    """
    if not found:
        raise Missing(how)


def ran(words: Sequence[object], **options: Any) -> str:
    """The output of a program that must succeed."""
    done: subprocess.CompletedProcess[str] = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, check=False, **options
    )
    if done.returncode:
        raise RuntimeError(f"{words[0]}: {(done.stderr.strip() or done.stdout.strip())[-500:]}")
    return done.stdout or done.stderr


# --- rounds --------------------------------------------------------------------------------------


def with_core(scenario: Scenario, gain: Array, rounds: int) -> Array:
    """Latencies of rounds by one call of the compiled core."""
    shares = fixed_allocation(scenario)
    each = [np.tile(part, (rounds, 1)) for part in (shares.alpha, shares.beta, shares.rho)]
    costs, split = split_costs(scenario, profile_of(scenario)), np.full(rounds, shares.splits[0])
    radio, slot_s = ShannonFdma.of(scenario), scenario.slot_s
    return simulate_batch(costs, radio, gain, slot_s, 0.0, split, *each, follow=True).latency_s


def with_simpy(plan: RoundPlan, scenario: Scenario, gain: Array, rounds: int, tuned: bool) -> Array:
    """Latencies of rounds by SimPy."""
    radio, start_s, found, rows = ShannonFdma.of(scenario), 0.0, [], gain.tolist()
    for _ in range(rounds):
        found.append(Round(plan, radio, rows, scenario.slot_s, tuned, start_s).run()[0])
        start_s += found[-1]
    return np.array(found)


def with_numpy(plan: RoundPlan, scenario: Scenario, gain: Array, rounds: int) -> Array:
    """Latencies of CPSFL's rounds by cumulative sums of rates, a search in them, and a heap."""
    radio, slot_s, clients = ShannonFdma.of(scenario), scenario.slot_s, range(plan.clients)
    noise, down_hz = radio.noise_w_per_hz, radio.downlink_hz
    up_hz = (plan.allocation.beta * radio.uplink_hz)[:, None]
    up_bps = up_hz * np.log2(1 + radio.uplink_power_w[:, None] * gain / (up_hz * noise))
    down_bps = down_hz * np.log2(1 + radio.downlink_power_w * gain / (down_hz * noise))
    (up, up_bits), (down, down_bits) = (
        (bps.tolist(), np.hstack([np.zeros((len(bps), 1)), (bps * slot_s).cumsum(1)]).tolist())
        for bps in (up_bps, down_bps)
    )

    def end(rates: list[float], sums: list[float], at_s: float, size: float) -> float:
        slot = int(at_s / slot_s + 1e-9)
        bits = sums[slot] + rates[slot] * (at_s - slot * slot_s) + 8 * size
        last = bisect_right(sums, bits, slot) - 1
        return last * slot_s + (bits - sums[last]) / rates[last]

    def ns(time_s: float) -> int:
        return round(time_s * 1e9)

    cf, cb, server = plan.cf_s.tolist(), plan.cb_s.tolist(), plan.s_s.tolist()
    sm, cm = plan.sm_bytes.tolist(), plan.cm_bytes.tolist()
    ca, sg = plan.ca_bytes.tolist(), plan.sg_bytes.tolist()
    start_s, found = 0.0, []
    for _ in range(rounds):
        ready = max(end(down[k], down_bits[k], start_s, sm[k]) for k in clients)
        before = [plan.backward_ratio * cf[k][0] for k in clients]
        done, last, free = [0] * plan.clients, start_s, ready
        coming: list[tuple[float, int, float]] = []
        queue: list[tuple[int, int, int, float]] = []

        def upload(k: int, i: int, at_s: float, coming: Any = coming) -> None:
            begin = at_s + cf[k][i]
            sent = end(up[k], up_bits[k], begin, ca[k][i])
            heapq.heappush(coming, (sent + server[k][i], k, sent - begin))

        for k in clients:
            upload(k, 0, ready)
        while coming or queue:
            now = free if queue else max(free, coming[0][0])
            while coming and ns(coming[0][0]) <= ns(now):
                came, k, took = heapq.heappop(coming)
                lag = before[k] + cf[k][done[k]] + took + server[k][done[k]]
                heapq.heappush(queue, (-ns(lag), ns(came), k, came))
            _, _, k, came = heapq.heappop(queue)
            i = done[k]
            free = end(down[k], down_bits[k], max(now, came), sg[k][i])
            done[k], before[k] = i + 1, cb[k][i]
            if i + 1 < plan.iterations:
                upload(k, i + 1, free + cb[k][i])
            else:
                last = max(last, end(up[k], up_bits[k], free + cb[k][i], cm[k]))
        found.append(last - start_s)
        start_s = last
    return np.array(found)


def case_of(clients: int, rounds: int) -> tuple[Scenario, Array]:
    """The paper's scenario with this number of UAVs, and gains for as many rounds."""
    scenario = grown(tb.load("paper"), clients)
    return scenario, setting(scenario, 1, 200 * rounds).gain


Play = Callable[[Scenario, Array, int], Sequence[float] | Array]


def with_predict(scenario: Scenario, gain: Array, rounds: int) -> Sequence[float]:
    """Latencies of rounds by the API."""
    trace = ChannelTrace(gain, scenario.slot_s)
    return [one.latency_s for one in tb.predict(scenario, trace, rounds=rounds)]


def planned(play: Callable[[RoundPlan, Scenario, Array, int], Array]) -> Play:
    """A program that needs the plan of a round."""

    def played(scenario: Scenario, gain: Array, rounds: int) -> Array:
        plan = plan_round(scenario, profile_of(scenario), fixed_allocation(scenario))
        return play(plan, scenario, gain, rounds)

    return played


def round_s(play: Play, most: int, clients: int) -> float:
    """CPU seconds of a round, after a check that its latencies are those of `tb.predict`."""
    rounds = max(2, most * 10 // clients)
    scenario, gain = case_of(clients, rounds)
    right = with_predict(scenario, gain, rounds)
    np.testing.assert_allclose(play(scenario, gain, rounds), right, rtol=0, atol=1e-9)
    return least_s(lambda: play(scenario, gain, rounds)) / rounds


# --- growth --------------------------------------------------------------------------------------


def rounds_s(rounds: int) -> float:
    """CPU seconds of a prediction of 10 UAVs with this number of rounds."""
    scenario, gain = case_of(10, rounds)
    return least_s(lambda: with_predict(scenario, gain, rounds))


def points_s(count: int) -> float:
    """CPU seconds of predicted points of a campaign."""
    played = points()
    return least_s(lambda: played(count))


def trace_s(slots: int) -> tuple[float, float]:
    """The cost of `testbed trace` with this number of slots."""
    words = ["trace", "paper", "--slots", str(slots), "--out", "t.npz"]
    with tempfile.TemporaryDirectory() as folder:
        costs = [commands.cost(words, ROOT, Path(folder)) for _ in range(2)]
    return costs[-1]


# --- nodes and links -----------------------------------------------------------------------------


def up_s(clients: int) -> float:
    """CPU seconds of a session of half a second without programs."""
    needs(os.geteuid() == 0, "run the benchmark as root")
    scenario = grown(tb.load("paper"), clients)
    keys = {
        "emulation.calibrate": "false",
        "uavs.tx_power_w": scenario.fleet.tx_power_w.tolist(),
        "radio.uplink_bandwidth_hz": scenario.radio.uplink_bandwidth_hz,
        "radio.downlink_bandwidth_hz": scenario.radio.downlink_bandwidth_hz,
        "base_station.tx_power_w": scenario.base_station.tx_power_w,
    }
    words = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "orchestrator", "up", "paper", "--seconds", "0.5"]
        began = cpu_s()
        # Its status is 1 if the machine disturbed the links, which does not matter here.
        done = subprocess.run(
            [*command, *words, "--out", f"{folder}/out"], cwd=ROOT, capture_output=True, text=True
        )
        took_s = cpu_s() - began
    if "session: " not in done.stdout:
        raise RuntimeError(f"testbed up: {done.stdout}{done.stderr}")
    return took_s


def mininet_s(clients: int) -> float:
    """CPU seconds of Mininet's hosts with a `TCLink` each."""
    needs(os.geteuid() == 0, "run the benchmark as root")
    needs(shutil.which("mn"), "`apt-get install mininet`")
    apart = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    began = cpu_s()
    ran([*apart, SYSTEM_PYTHON, ROOT / "benchmarks" / "mininet_links.py", clients])
    return cpu_s() - began


SHAPED = "qdisc add dev {0} root handle 9: htb default 1\n"
SHAPED += "class add dev {0} parent 9: classid 9:1 htb rate 10mbit\n"


def ip_batch_s(clients: int) -> float:
    """CPU seconds of network namespaces with a link each, whose ends have addresses and shapers."""
    needs(os.geteuid() == 0, "run the benchmark as root")
    needs(shutil.which("tc"), "`apt-get install iproute2`")
    links = range(clients)
    with tempfile.TemporaryDirectory() as folder:

        def batch(name: str, *lines: str) -> None:
            Path(folder, name).write_text("\n".join(lines) + "\n", encoding="utf-8")

        made = "netns add n{0}\nlink add u{0} type veth peer name bs netns n{0}\n"
        made += "addr add 10.9.{0}.1/30 dev u{0}\nlink set u{0} up"
        batch("make", *(made.format(k) for k in links))
        batch("shape", *(SHAPED.format(f"u{k}") for k in links))
        batch("remove", *(f"netns del n{k}" for k in links))
        batch("inside", SHAPED.format("bs"))
        for k in links:
            batch(f"in{k}", f"addr add 10.9.{k}.2/30 dev bs", "link set bs up")
        inside = "ip -n n$k -batch in$k && tc -n n$k -batch inside || exit 1"
        script = "mount -t tmpfs none /run && ip -batch make && tc -batch shape && "
        script += f"for k in $(seq 0 {clients - 1}); do {inside}; done && ip -batch remove"
        began = cpu_s()
        ran(["unshare", "--net", "--mount", "sh", "-c", script], cwd=folder)
        return cpu_s() - began


# --- rates ---------------------------------------------------------------------------------------


def change_s(way: str, links: int, changes: int, together: int = 1) -> float:
    """CPU seconds of a change of the rate of one of several links, if so many change together."""
    needs(os.geteuid() == 0, "run the benchmark as root")
    from testbed.network.fabric import wire
    from testbed.network.shaping import Shape
    from testbed.system import linux

    linux.new_network_namespace()
    rates = [(n % links, 10_000_000 + 1000 * (n + 1)) for n in range(changes)]
    if way == "testbed":
        base = linux.new_network_namespace()
        fabric = wire(base, [linux.new_network_namespace() for _ in range(links)], Shape())
        site, began = fabric.base_station, cpu_s()
        for first in range(0, changes, together):
            some = rates[first : first + together]
            messages = [message for k, bps in some for message in site.ends[k].change(bps)]
            site.netlink.transact(messages)
            for k, bps in some:
                site.ends[k].changed(bps)
        return (cpu_s() - began) / changes
    needs(shutil.which("tc"), "`apt-get install iproute2`")
    made = "".join(f"link add v{k} type veth peer name p{k}\n" for k in range(links))
    ran(["ip", "-batch", "-"], input=made)
    ran(["tc", "-batch", "-"], input="".join(SHAPED.format(f"v{k}") for k in range(links)))
    words = [f"class change dev v{k} parent 9: classid 9:1 htb rate {bps}bit" for k, bps in rates]
    if way == "pyroute2":
        needs(importlib.util.find_spec("pyroute2"), "`pip install pyroute2`")
        from pyroute2 import IPRoute  # type: ignore[import-not-found]

        with IPRoute() as route:
            index = [route.link_lookup(ifname=f"v{k}")[0] for k in range(links)]
            began = cpu_s()
            for k, bps in rates:
                of = {"parent": 0x90000, "handle": 0x90001, "rate": f"{bps}bit"}
                route.tc("change-class", "htb", index[k], **of)
            return (cpu_s() - began) / changes
    began = cpu_s()
    if way == "tc -batch":
        ran(["tc", "-batch", "-"], input="\n".join(words) + "\n")
    else:
        for line in words:
            ran(["tc", *line.split()])
    return (cpu_s() - began) / changes


# --- learning ------------------------------------------------------------------------------------


def ppo_s(way: str, rounds: int) -> float:
    """CPU seconds of a round of a training with PPO."""
    import ppo

    if way not in ("drl", "drl-", "environment"):
        needs(importlib.util.find_spec(way.replace("-", "_")), f"`pip install {way}`")
    return ppo.round_s(way, rounds)


def batch_s(way: str, rounds: int, clients: int = 100) -> tuple[float, float]:
    """CPU seconds of a batch of a federated training, and MB of all processes."""
    needs(importlib.util.find_spec("sklearn"), "`pip install scikit-learn`")
    if way == "flower":
        needs(flower_version(), FLOWER_HOW)
    with tempfile.TemporaryDirectory() as folder:
        out, program = Path(folder, "found.json"), ROOT / "benchmarks" / "learning.py"
        counts = [f"--rounds={rounds}", f"--clients={clients}", f"--per-round={clients // 10}"]
        ran([sys.executable, program, way, *counts, f"--flower={FLOWER}", "--json", out])
        found = json.loads(out.read_text(encoding="utf-8"))["ways"][way]
    return found["batch_ms"] / 1e3, found["memory_bytes"] / 1e6


def flower_version() -> str | None:
    """The version of Flower in its environment; None: there is none."""
    try:
        return learning.version_of_flower(FLOWER)
    except SystemExit:
        return None


# --- LTE -----------------------------------------------------------------------------------------


def loop_s(way: str, clients: int, seconds: float = 2.0) -> float:
    """CPU seconds per emulated second of an LTE cell whose UAVs all send."""
    import radio_loop

    from testbed.virtual import kernel

    needs(way == "alone" or kernel.find(), "`testbed kernel build`")
    case = radio_loop.Case("lte", clients, sends=True)
    return radio_loop.cpu_s(getattr(radio_loop, way), case, seconds)


def plain_lte_s(clients: int, seconds: float = 4.0) -> float:
    """CPU seconds per simulated second of a plain ns-3 program."""
    from ns3_scenarios import build
    from testbed.system import building

    number, wheel = build.wheel()
    source = ROOT / "benchmarks" / "plain_lte.cc"
    options = build._options(number, wheel, build._PROGRAM, build._RADIO_MODULES)
    program = building.built("plain-lte", [source], [source], options, key=number, suffix="")
    took = []
    for each_s in (1.0, 1.0 + seconds):
        began = cpu_s()
        sent_bits = 8 * int(ran([program, clients, each_s]))
        took.append(cpu_s() - began)
        assert sent_bits > 40e6 * each_s, sent_bits
    return (took[1] - took[0]) / seconds


# --- what is measured ----------------------------------------------------------------------------


def iproute2() -> str:
    """The version of iproute2."""
    found = re.search(r"iproute2-([\w.]+)", ran(["tc", "-V"]))
    return found[1] if found else "?"


def installed(*names: str) -> Mapping[str, Callable[[], str]]:
    """Versions of Python packages."""
    return {name: partial(version, name) for name in names}


FAST = (10, 100, 1000, 10_000)
TESTBED = "this testbed"
PARTS: dict[str, Part] = {
    "rounds": Part(
        "Rounds",
        "Rounds of the paper's scenario on a given trace. Bandwidths, power and computing of the "
        "base station grow with the number K of UAVs. All programs give the same latencies to "
        "1e-9 s. The program with NumPy uses cumulative sums of rates and a heap. SimPy has a "
        "process per client; a transfer waits once, or in each slot.",
        "CPU ms per round",
        1e3,
        "K",
        {
            "compiled core": Row(partial(round_s, with_core, ROUNDS), FAST),
            "`tb.predict`": Row(partial(round_s, with_predict, ROUNDS), FAST),
            "NumPy": Row(partial(round_s, planned(with_numpy), ROUNDS), FAST[:3]),
            "SimPy, a wait per transfer": Row(
                partial(round_s, planned(partial(with_simpy, tuned=True)), ROUNDS // 5), FAST[:3]
            ),
            "SimPy, a wait per slot": Row(
                partial(round_s, planned(partial(with_simpy, tuned=False)), ROUNDS // 5), FAST[:3]
            ),
        },
        installed("simpy", "numpy"),
        "`tb.predict`",
        ("NumPy", "SimPy, a wait per transfer", "SimPy, a wait per slot"),
    ),
    "growth": Part(
        "Growth",
        "How the cost of a prediction with K = 10 grows with its rounds, that of a campaign with "
        "its points, each of which has a channel of its own, and that of a trace file with its "
        "slots.",
        "CPU s",
        1,
        "size",
        {
            "rounds of `tb.predict`": Row(rounds_s, (100, 400, 1600)),
            "predicted points of a campaign": Row(points_s, (5, 10, 20)),
            "slots of `testbed trace`": Row(trace_s, (10_000, 100_000, 1_000_000)),
        },
        installed("numpy", "ns3"),
    ),
    "nodes": Part(
        "Nodes with links",
        "K nodes in network namespaces are set up and removed. Each has a link to the base station "
        "with addresses and a shaper at both ends. Values are those of whole commands with their "
        "start: `testbed up` for 0.5 s, Mininet's hosts with `TCLink`, and `ip -batch` with "
        "`tc -batch`, which start no process in a node.",
        "CPU s",
        1,
        "K",
        {
            TESTBED: Row(up_s, (10, 50, 100)),
            "Mininet": Row(mininet_s, (10, 50, 100)),
            "`ip -batch`": Row(ip_batch_s, (10, 50, 100)),
        },
        {"Mininet": lambda: ran(["mn", "--version"]).strip(), "iproute2": iproute2},
        TESTBED,
        ("Mininet", "`ip -batch`"),
    ),
    "rates": Part(
        "Rate changes",
        "The rate of one of 100 links is changed. All shapers are HTB classes. A session changes "
        "all links at the boundary of a slot at once.",
        "CPU µs per change",
        1e6,
        "links",
        {
            TESTBED: Row(partial(change_s, "testbed", changes=5000), (100,)),
            f"{TESTBED}, all links at once": Row(
                partial(change_s, "testbed", changes=5000, together=100), (100,)
            ),
            "`tc -batch`": Row(partial(change_s, "tc -batch", changes=5000), (100,)),
            "pyroute2": Row(partial(change_s, "pyroute2", changes=500), (100,)),
            "`tc`": Row(partial(change_s, "tc", changes=200), (100,)),
        },
        {"iproute2": iproute2, **installed("pyroute2")},
        TESTBED,
        ("`tc -batch`", "pyroute2", "`tc`"),
    ),
    "ppo": Part(
        "PPO",
        "Training on the environment of the paper's scenario without start-up, with equal rewards, "
        "networks and batches. The agent `drl-` and stable-baselines3 see distances; `drl` sees "
        "all slots.",
        "CPU ms per round",
        1e3,
        "rounds",
        {
            "`drl-`": Row(partial(ppo_s, "drl-"), (288,)),
            "stable-baselines3": Row(partial(ppo_s, "stable-baselines3"), (288,)),
            "`drl`": Row(partial(ppo_s, "drl"), (288,)),
            "environment alone": Row(partial(ppo_s, "environment"), (288,)),
        },
        installed("stable-baselines3", "torch", "gymnasium"),
        "`drl-`",
        ("stable-baselines3",),
    ),
    "training": Part(
        "Federated training",
        "A small convolutional network learns digits without start-up: 100 clients, 10 per round "
        "with 5 batches of 16 samples each, so a round costs 50 times as much. Memory is that of "
        "all processes.",
        "CPU ms per batch",
        1e3,
        "rounds",
        {
            "`testbed learn`": Row(partial(batch_s, "testbed"), (100,)),
            "plain PyTorch": Row(partial(batch_s, "plain"), (100,)),
            "Flower's simulation": Row(partial(batch_s, "flower"), (30,)),
        },
        {**installed("torch"), "flwr": lambda: flower_version() or "?"},
        "`testbed learn`",
        ("plain PyTorch", "Flower's simulation"),
    ),
    "lte": Part(
        "LTE",
        "An LTE cell of 20 MHz whose K UAVs all send: TCP connections of iperf3 that pass ns-3 in "
        "virtual time, the testbed's ns-3 program without them, and a plain ns-3 program with "
        "60 Mbit/s of UDP.",
        "CPU s per simulated second",
        1,
        "K",
        {
            "session in virtual time": Row(partial(loop_s, "session"), (3,)),
            "the testbed's ns-3 program": Row(partial(loop_s, "alone"), (3, 10)),
            "plain ns-3": Row(plain_lte_s, (3, 10)),
        },
        installed("ns3"),
        "session in virtual time",
        ("plain ns-3",),
    ),
}


# --- measuring -----------------------------------------------------------------------------------


def measured(part: str, row: str, size: int) -> dict[str, Any]:
    """CPU seconds and MB of a row at a size, in a process of its own; or what is missing."""
    words = [sys.executable, __file__, "--inside", part, row, str(size)]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child.stdout as said:
        text = said.read()
    _, status, used_up = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"performance.py: {part}, {row}, {size}: failed")
    found: dict[str, Any] = json.loads(text.splitlines()[-1])
    return {"size": size, "mb": used_up.ru_maxrss / KB_PER_MB} | found


def inside(part: str, row: str, size: int) -> dict[str, Any]:
    """What the process of `measured` finds."""
    try:
        cost = PARTS[part].rows[row].work(size)
    except Missing as missing:
        return {"missing": str(missing)}
    if isinstance(cost, tuple):
        return {"cpu_s": cost[0], "mb": cost[1]}
    return {"cpu_s": cost}


def part_of(name: str) -> dict[str, Any]:
    """The record of a part."""
    part, rows, missing = PARTS[name], {}, {}
    for row, about in part.rows.items():
        cells = []
        for size in about.sizes:
            cell = measured(name, row, size)
            if "missing" in cell:
                missing[row] = cell["missing"]
                break
            print(f"{name}, {row}, {size}: {cell['cpu_s']:.4g} s", file=sys.stderr)
            cells.append(cell)
        if cells:
            rows[row] = cells
    return {"rows": rows, "missing": missing, "versions": versions(part, missing)} | here()


def versions(part: Part, missing: Mapping[str, str]) -> dict[str, str]:
    """The versions of what is compared and is there."""
    found = {}
    for name, of in part.versions.items():
        if name.lower() not in {row.strip("`").lower() for row in missing}:
            found[name] = of()
    return found


def here() -> dict[str, str]:
    """The revision of the testbed, the date, and the machine."""
    git = ["git", "-C", ROOT]
    revision = ran([*git, "log", "-1", "--format=%h", "--abbrev=12", "--", *PRODUCT]).strip()
    changed = ran([*git, "diff", "HEAD", "--name-only", "--", *PRODUCT]).strip()
    cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    return {
        "revision": revision + "+" * bool(changed),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {cpu[1] if cpu else platform.machine()}, Python "
        f"{platform.python_version()}",
    }


def budgets() -> dict[str, Any]:
    """The record of the budgets."""
    rows = {}
    for name, budget in BUDGETS.items():
        work = budget.prepare()
        took_s = least_s(partial(work, budget.many)) / budget.many
        rows[budget.what] = {
            "used": asdict(used(budget)),
            "most": asdict(budget.most),
            "cpu_s": took_s,
        }
        print(f"budgets, {name}", file=sys.stderr)
    return {"rows": rows} | here()


# --- the page ------------------------------------------------------------------------------------


def exponent(cells: Sequence[Mapping[str, float]]) -> float | None:
    """The exponent of a power law, fitted to the logarithms; None for less than three sizes."""
    if len(cells) < 3:
        return None
    sizes, took = (np.log([cell[key] for cell in cells]) for key in ("size", "cpu_s"))
    return float(np.polyfit(sizes, took, 1)[0])


def ratios(record: Mapping[str, Any]) -> dict[str, tuple[str, float]]:
    """By part: the other program that needs least, and its CPU time relative to the testbed's, at
    the largest size that both have."""
    found = {}
    for name, part in PARTS.items():
        rows = record.get(name, {}).get("rows", {})
        own = {cell["size"]: cell["cpu_s"] for cell in rows.get(part.own, ())}
        times = {}
        for row in (set(rows) & set(part.others)) if own else ():
            other = {cell["size"]: cell["cpu_s"] for cell in rows[row]}
            # Where a unit does not depend on the size, sizes may differ.
            shared = max(set(own) & set(other), default=None)
            mine, theirs = (max(cost) if shared is None else shared for cost in (own, other))
            times[row] = other[theirs] / own[mine]
        if times:
            found[name] = min(times.items(), key=lambda item: item[1])
    return found


def opening(record: Mapping[str, Any]) -> str:
    """What came out, in a sentence."""
    found = ratios(record)
    more = {name: (peer, ratio) for name, (peer, ratio) in found.items() if ratio < 1}
    less = {name: (peer, ratio) for name, (peer, ratio) in found.items() if ratio >= 1}

    def listed(which: Mapping[str, tuple[str, float]], turn: Callable[[float], float]) -> str:
        return ", ".join(
            f"{PARTS[name].title} ({number(turn(ratio))} times, {peer})"
            for name, (peer, ratio) in which.items()
        )

    text = f"In {len(less)} of {len(found)} comparisons, the best other program takes more CPU "
    text += f"time than the testbed: {listed(less, lambda ratio: ratio)}."
    if more:
        text += f" In the others, the testbed takes more: {listed(more, lambda r: 1 / r)}."
    return text


def number(value: float) -> str:
    """A value with three digits, or all of a large number."""
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"


def table(part: Part, rows: Mapping[str, Any]) -> list[str]:
    """The table of a part."""
    sizes = sorted({cell["size"] for cells in rows.values() for cell in cells})
    shared = part.own is not None and len(sizes) > 1
    fitted = any(len(cells) > 2 for cells in rows.values())
    values = [f"{part.unit}, {part.of} = {size:,}" for size in sizes] if shared else [part.unit]
    head = ["program" if part.own else "what", *values, *["exponent"] * fitted, "memory, MB"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row, cells in rows.items():
        at = {cell["size"]: number(part.per_s * cell["cpu_s"]) for cell in cells}
        if shared:
            shown = [at.get(size, "") for size in sizes]
        elif len(at) > 1:
            shown = ["; ".join(f"{size:,}: {value}" for size, value in at.items())]
        else:
            shown = list(at.values())
        law = exponent(cells)
        power = [("" if law is None else f"{law:.2f}")] * fitted
        memory = f"{max(cell['mb'] for cell in cells):,.0f}"
        lines.append(f"| {' | '.join([row, *shown, *power, memory])} |")
    return lines


def section(name: str, record: Mapping[str, Any]) -> list[str]:
    """A part of the page."""
    part = PARTS[name]
    lines = [f"## {part.title}", "", part.about, "", *table(part, record["rows"]), ""]
    for row, how in record["missing"].items():
        lines += [f"Not measured: {row}; {how}.", ""]
    return lines + source(name, record)


def source(name: str, record: Mapping[str, Any]) -> list[str]:
    """How a part was measured."""
    found = ", ".join(f"{name} {number}" for name, number in record.get("versions", {}).items())
    measured_by = f"`python benchmarks/performance.py {name} --publish` (revision "
    measured_by += f"{record['revision']}, {record['date']}; {record['machine']}"
    return [f"{measured_by}{'; ' + found if found else ''})", ""]


def budget_section(record: Mapping[str, Any]) -> list[str]:
    """The table of budgets."""
    lines = ["## Budgets", ""]
    lines += [
        "Counts do not depend on the load, so `tests/benchmarks/test_budgets.py` fails if one "
        "exceeds its budget: calls of functions, memory that is allocated at the peak, and started "
        "processes. CPU time is not compared.",
        "",
    ]
    lines += ["| unit | calls | memory, kB | processes | CPU ms |", "|---|---|---|---|---|"]
    for what, row in record["rows"].items():
        pairs = [
            f"{number(row['used'][key])} of {number(row['most'][key])}"
            for key in ("calls", "kb", "processes")
        ]
        lines.append(f"| {what} | {' | '.join(pairs)} | {number(1e3 * row['cpu_s'])} |")
    return [*lines, "", *source("budgets", record)]


def page(record: Mapping[str, Any]) -> str:
    """The page in Markdown."""
    licence = (ROOT / "docs" / "measured.md").read_text(encoding="utf-8").partition("-->")[0]
    lines = [f"{licence}-->", "", "# Performance", "", opening(record), ""]
    lines += [
        "CPU seconds are user and system time of all processes; on a machine that is shared, as "
        "here, they are up to 30 % too high. Memory is that of the largest process at the largest "
        "size. The exponent is that of a power law, fitted to all sizes.",
        "",
        f"![CPU time versus size, with fitted exponents]({PICTURE.name})",
        "",
    ]
    for name in PARTS:
        if name in record:
            lines += section(name, record[name])
    if "budgets" in record:
        lines += budget_section(record["budgets"])
    return "\n".join(lines).rstrip("\n") + "\n"


def draw(record: Mapping[str, Any], path: Path) -> None:
    """Draw all curves with at least three sizes, a panel for each part."""
    curves = {
        name: rows
        for name in PARTS
        if (
            rows := {
                row: cells
                for row, cells in record.get(name, {}).get("rows", {}).items()
                if len(cells) > 2
            }
        )
    }
    drawing = Figure(figsize=(3.4 * max(1, len(curves)), 4.6), layout="constrained")
    panels = drawing.subplots(1, max(1, len(curves)), squeeze=False)[0]
    for axes, (name, rows) in zip(panels, curves.items(), strict=False):
        part = PARTS[name]
        for (row, cells), mark in zip(rows.items(), "osv^D", strict=False):
            sizes = [cell["size"] for cell in cells]
            took = [part.per_s * cell["cpu_s"] for cell in cells]
            label = f"{row.replace('`', '')}: {exponent(cells):.2f}"
            axes.plot(sizes, took, f"{mark}-", label=label)
        axes.set(xscale="log", yscale="log", xlabel=part.of, ylabel=part.unit, title=part.title)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(0, -0.16))
    # Equal values are equal files.
    with mpl.rc_context({"svg.hashsalt": "performance"}):
        drawing.savefig(path, metadata={"Date": None})
    path.write_text(re.sub(r"[ \t]+$", "", path.read_text(), flags=re.M))


def write(record: Mapping[str, Any]) -> None:
    """Write the record, the page and its picture."""
    write_json(RECORD, record)
    PAGE.write_text(page(record), encoding="utf-8")
    draw(record, PICTURE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = [*PARTS, "budgets"]
    parser.add_argument("parts", nargs="*", choices=[[], *names], metavar="PART")
    parser.add_argument("--publish", action="store_true", help="write docs/performance.md")
    parser.add_argument("--inside", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside:
        part, row, size = asked.inside
        print(json.dumps(inside(part, row, int(size))))
        return
    record: dict[str, Any] = {}
    if asked.publish and RECORD.exists():
        record = json.loads(RECORD.read_text(encoding="utf-8"))
    for name in asked.parts or names:
        record[name] = budgets() if name == "budgets" else part_of(name)
        if asked.publish:
            write(record)
    if not asked.publish:
        print(page(record), end="")


if __name__ == "__main__":
    main()
