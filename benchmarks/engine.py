# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How fast the engine predicts rounds, against a SimPy program of the same model.

    python benchmarks/engine.py [--rounds N] [--repeats N] [--json FILE]

The setting is the paper's: K = 10, I = 5, u = 2, CPSFL; each round has its own random allocation,
and the Shannon rates are computed inside, slot by slot. Everything runs on one core and is timed in
CPU seconds, best of the repeats, so that a busy machine disturbs little; start-up is timed by
the clock.

The SimPy program comes twice: as one writes it, a transfer waiting out slot after slot; and tuned,
a transfer reckoned in one go and waited for once. Both must give the engine's latencies and
energies, for all nine paradigms.

An LTE cell, whose active UAVs share the band, is timed on the same channel beside Shannon's rates.

For the curve over K, bandwidths, the base station's power and its computing grow with K, so that a
round passes through the same slots and only the number of clients grows.

The CPU time of `testbed predict` for 100 rounds of the paper's scenario includes its start.
"""

import argparse
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import simpy
from common import PAPER as SCENARIO
from common import cpu_s, show
from rich.console import Console

from ns3_scenarios.rma_av import los_path_loss_db
from orchestrator.engine.access import RadioAccess
from orchestrator.engine.fdma import Fdma
from orchestrator.engine.plan import Allocation, Array, RoundPlan, plan_round
from orchestrator.engine.radio import ACCESS
from orchestrator.rounds.simulation import (
    BatchTimes,
    simulate,
    simulate_batch,
    split_costs,
)
from orchestrator.scenario.loading import load, varied
from orchestrator.scenario.schema import Scenario
from testbed.core import orders
from testbed.core.paradigm import BUILT_IN
from testbed.core.registry import installed
from testbed.system.files import write_json
from workloads.costs.profile import PAPER

CURVE = (10, 30, 100, 300, 1000)
SLOTS = 2000
WANTED_ROUNDS_PER_S = 20_000
WANTED_SPEEDUP = 50
WANTED_START_S = 2.0
WANTED_COMMAND_S = 3.0
MOST_LTE_TIMES = 2.0
"""Times what a round takes with Shannon's rates."""
WANTED_SHARE = 0.5
"""Of the speed that the paper's orders have, under one that is compiled from a function."""


# --- the same model in SimPy ---------------------------------------------------------------------


@dataclass
class Gate:
    """Lets clients pass at once, or when all of them are there, the most urgent first."""

    env: simpy.Environment
    clients: int
    closed: bool
    waiting: list[tuple[float, int, simpy.Event]] = field(default_factory=list)

    def pass_through(self, priority: float = 0.0) -> simpy.Event:
        """Happens when the gate lets the client pass."""
        event = self.env.event()
        self.waiting.append((priority, len(self.waiting), event))
        if not self.closed or len(self.waiting) == self.clients:
            for *_, waiting in sorted(self.waiting):
                waiting.succeed()
            self.waiting.clear()
        return event


class Round:
    """One round as SimPy processes: a process a client, a resource for each station."""

    def __init__(
        self,
        plan: RoundPlan,
        radio: RadioAccess,
        gain: Array | list[list[float]],
        slot_s: float,
        tuned: bool,
        start_s: float = 0.0,
    ):
        assert isinstance(radio, Fdma)
        self.plan, self.radio, self.slot_s, self.tuned = plan, radio, slot_s, tuned
        self.gain = gain if isinstance(gain, list) else gain.tolist()
        self.env, self.start_s = simpy.Environment(start_s), start_s
        paradigm, clients = plan.paradigm, plan.clients
        self.parallel_computing = paradigm.server_compute == "parallel"
        self.parallel_downlink = paradigm.gradient_transmission == "parallel"
        self.computing = simpy.PriorityResource(self.env, clients if self.parallel_computing else 1)
        self.downlink = simpy.PriorityResource(self.env, clients if self.parallel_downlink else 1)
        self.all_in = Gate(self.env, clients, paradigm.compute_waits_for_all)
        self.all_computed = Gate(self.env, clients, paradigm.transmission_waits_for_all)
        self.all_have_adapters = Gate(self.env, clients, closed=True)
        self.energy_j = [0.0] * clients

    def run(self) -> tuple[float, list[float]]:
        """Latency and energies."""
        for k in range(self.plan.clients):
            self.env.process(self.client(k))
        self.env.run()
        return self.env.now - self.start_s, self.energy_j

    def transfer(
        self, k: int, size: int, bandwidth_hz: float, power_w: float
    ) -> Generator[simpy.Event, Any, float]:
        """Send so many bytes; the time it took."""
        began = now = self.env.now
        bits, gain, slot_s = 8.0 * size, self.gain[k], self.slot_s
        snr_at_1 = power_w / (bandwidth_hz * self.radio.noise_w_per_hz)
        slot = int(now / slot_s + 1e-9)
        while True:
            rate = bandwidth_hz * math.log2(1 + snr_at_1 * gain[slot])
            left_s = (slot + 1) * slot_s - now
            if bits <= rate * left_s:
                break
            bits -= rate * left_s
            slot += 1
            now = slot * slot_s
            if not self.tuned:
                yield self.env.timeout(now - self.env.now)
        yield self.env.timeout(now + bits / rate - self.env.now)
        return self.env.now - began

    def client(self, k: int) -> Generator[simpy.Event, Any, None]:
        """A client's round."""
        env, plan, radio = self.env, self.plan, self.radio
        share, compute_w = plan.allocation, np.broadcast_to(plan.compute_power_w, plan.clients)[k]
        uplink = (float(share.beta[k] * radio.uplink_hz), float(radio.uplink_power_w[k]))
        broadcast = down = (radio.downlink_hz, radio.downlink_power_w)
        if self.parallel_downlink:
            down = (
                float(share.beta[k] * radio.downlink_hz),
                float(share.rho[k] * radio.downlink_power_w),
            )
        yield from self.transfer(k, int(plan.sm_bytes[k]), *broadcast)
        yield self.all_have_adapters.pass_through()
        backward_s = plan.backward_ratio * float(plan.cf_s[k, 0])
        gradient_s = None
        for i in range(plan.iterations):
            forward_s = float(plan.cf_s[k, i])
            yield env.timeout(forward_s)
            upload_s = yield from self.transfer(k, int(plan.ca_bytes[k, i]), *uplink)
            self.energy_j[k] += compute_w * forward_s + uplink[1] * upload_s

            if gradient_s is None:  # as if it were sent now
                snr = down[1] * self.gain[k][int(env.now / self.slot_s + 1e-9)]
                rate = down[0] * math.log2(1 + snr / (down[0] * radio.noise_w_per_hz))
                gradient_s = 8 * int(plan.sg_bytes[k, 0]) / rate
            lag_s = backward_s + forward_s + upload_s
            urgent = self.priority(lag_s + gradient_s)
            yield self.all_in.pass_through(urgent)
            with self.computing.request(urgent) as turn:  # type: ignore[arg-type]  # or a float
                yield turn
                yield env.timeout(float(plan.s_s[k, i]))

            urgent = self.priority(lag_s + float(plan.s_s[k, i]))
            yield self.all_computed.pass_through(urgent)
            with self.downlink.request(urgent) as turn:  # type: ignore[arg-type]
                yield turn
                gradient_s = yield from self.transfer(k, int(plan.sg_bytes[k, i]), *down)
            backward_s = float(plan.cb_s[k, i])
            yield env.timeout(backward_s)
            self.energy_j[k] += compute_w * backward_s
        upload_s = yield from self.transfer(k, int(plan.cm_bytes[k]), *uplink)
        self.energy_j[k] += uplink[1] * upload_s

    def priority(self, lag_s: float) -> float:
        """SimPy serves the smallest first, and equal ones as they came."""
        return -lag_s if self.plan.paradigm.order == "larger-lag" else 0.0


# --- what is measured ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """N random allocations for a scenario, and a channel long enough for any of them."""

    scenario: Scenario
    gain: Array
    split: Any
    alpha: Array
    beta: Array
    rho: Array

    @property
    def radio(self) -> RadioAccess:
        """The scenario's."""
        return ACCESS[self.scenario.radio.access].of(self.scenario)

    def plan(self, n: int) -> RoundPlan:
        """The plan of allocation n."""
        allocation = Allocation(int(self.split[n]), self.alpha[n], self.beta[n], self.rho[n])
        return plan_round(self.scenario, PAPER, allocation)

    def batch(self) -> BatchTimes:
        """All allocations on the same round, in one call."""
        return simulate_batch(
            split_costs(self.scenario, PAPER),
            self.radio,
            self.gain,
            self.scenario.slot_s,
            0.0,
            self.split,
            self.alpha,
            self.beta,
            self.rho,
        )


def setting(scenario: Scenario, rounds: int, slots: int = SLOTS) -> Setting:
    """Allocations around equal shares; UAVs thrown into their rings, drifting a little."""
    rng = np.random.default_rng(1)
    rings_m, clients = np.array(scenario.uavs.ring_m), scenario.uavs.count
    across_m = np.sqrt(rng.uniform(rings_m[:, 0] ** 2, rings_m[:, 1] ** 2))
    drift_m = np.cumsum(rng.normal(0, 0.2, (clients, slots)), axis=1)
    distance_m = np.hypot(np.maximum(across_m[:, None] + drift_m, 10), 10)
    height_m, carrier_hz = scenario.fleet.height_m[:, None], scenario.radio.carrier_hz
    gain = 10 ** (-los_path_loss_db(height_m, distance_m, carrier_hz) / 10)
    shares = (rng.dirichlet(np.full(clients, 20.0), rounds) for _ in range(3))
    return Setting(scenario, gain, np.full(rounds, scenario.workload.split), *shares)


def timed(
    function: Callable[[], Any], repeats: int, clock: Callable[[], float] = time.process_time
) -> tuple[float, Any]:
    """Seconds of a call at its best, and what it answered; one call beforehand warms it up."""
    function()
    took = []
    for _ in range(repeats):
        began = clock()
        answer = function()
        took.append(clock() - began)
    return min(took), answer


def chained(case: Setting, rounds: int) -> BatchTimes:
    """Rounds that follow each other, on a trace as long as they need."""
    long = np.tile(case.gain, (1, 1 + rounds * 60 // case.gain.shape[1] * 10))
    return simulate_batch(
        split_costs(case.scenario, PAPER),
        case.radio,
        long,
        case.scenario.slot_s,
        0.0,
        case.split[:rounds],
        case.alpha[:rounds],
        case.beta[:rounds],
        case.rho[:rounds],
        follow=True,
    )


def one_by_one(case: Setting, plans: Sequence[RoundPlan], *, tuned: bool) -> list[float]:
    """Latency of each round, by SimPy."""
    slot_s = case.scenario.slot_s
    return [Round(plan, case.radio, case.gain, slot_s, tuned).run()[0] for plan in plans]


def check_equal(scenario: Scenario, rounds: int) -> int:
    """Both SimPy programs against the engine, for all nine paradigms; the rounds compared."""
    compared = 0
    for paradigm in BUILT_IN:
        case = setting(varied(scenario, {"paradigm": paradigm.name}), rounds)
        for n in range(rounds):
            plan = case.plan(n)
            times = simulate(plan, case.radio, case.gain, scenario.slot_s)
            for tuned in (False, True):
                latency_s, energy_j = Round(
                    plan, case.radio, case.gain, scenario.slot_s, tuned
                ).run()
                np.testing.assert_allclose(latency_s, times.latency_s, rtol=0, atol=1e-9)
                np.testing.assert_allclose(energy_j, times.energy_j, rtol=1e-9)
                compared += 1
    return compared


def grown(scenario: Scenario, clients: int) -> Scenario:
    """The scenario with more clients and as much more of all that they share."""
    times = clients / scenario.uavs.count
    powers_w = np.resize(scenario.fleet.tx_power_w, clients).tolist()
    return varied(
        scenario,
        {
            "uavs.tx_power_w": powers_w,
            "radio.uplink_bandwidth_hz": scenario.radio.uplink_bandwidth_hz * times,
            "radio.downlink_bandwidth_hz": scenario.radio.downlink_bandwidth_hz * times,
            "base_station.tx_power_w": scenario.base_station.tx_power_w * times,
            "base_station.compute_flops": scenario.base_station.compute_flops * times,
        },
    )


PACKAGE = {
    "nearly.py": "def nearly_done(asked, patience_s=5.0):\n"
    "    return asked.remaining_s + asked.enqueued_s / patience_s\n",
    "nearly-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: nearly\nVersion: 1.0\n",
    "nearly-1.0.dist-info/entry_points.txt": "[testbed.orders]\nnearly-done = nearly:nearly_done\n",
}
"""The service order of examples/skyward, as an installer leaves it."""


@contextmanager
def packaged_order() -> Iterator[str]:
    """The name of a package's service order, installed for as long as the context lasts."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in PACKAGE.items():
            path = Path(folder) / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        sys.path.insert(0, folder)
        installed.cache_clear()
        try:
            yield "nearly-done"
        finally:
            sys.path.remove(folder)
            installed.cache_clear()


def radios(scenario: Scenario, rounds: int, repeats: int) -> list[dict[str, Any]]:
    """The time of a round over each radio, by paradigm."""
    found = []
    for paradigm in ("cpsfl", "pipesfl"):
        for access in ACCESS:
            case = setting(varied(scenario, {"paradigm": paradigm, "radio.access": access}), rounds)
            took_s, batch = timed(case.batch, repeats)
            found.append(
                {
                    "paradigm": paradigm,
                    "radio": access,
                    "us_per_round": 1e6 * took_s / rounds,
                    "rounds_per_s": rounds / took_s,
                    "latency_s": float(batch.latency_s.mean()),
                }
            )
    return found


def start_up(repeats: int) -> float:
    """Seconds of a fresh process that imports the engine and predicts a first round."""
    program = (
        "from pathlib import Path\n"
        "import numpy as np\n"
        "from orchestrator.rounds.simulation import simulate\n"
        "from orchestrator.engine.plan import fixed_allocation, plan_round\n"
        "from orchestrator.engine.fdma import ShannonFdma\n"
        "from orchestrator.scenario.loading import load\n"
        "from workloads.costs.profile import PAPER\n"
        f"scenario = load(Path({str(SCENARIO)!r}))\n"
        "plan = plan_round(scenario, PAPER, fixed_allocation(scenario))\n"
        "simulate(plan, ShannonFdma.of(scenario), np.full((10, 1000), 1e-10), 0.1)\n"
    )
    run = partial(subprocess.run, [sys.executable, "-c", program], check=True)
    return timed(run, repeats, time.perf_counter)[0]


def command_s(repeats: int) -> float:
    """CPU seconds of `testbed predict` for 100 rounds, at its best, with filled caches."""
    program = "from orchestrator.cli.main import main; main()"
    words = [sys.executable, "-c", program, "predict", str(SCENARIO), "--rounds", "100"]
    took = []
    for _ in range(repeats + 1):
        began_s = cpu_s(resource.RUSAGE_CHILDREN)
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        took.append(cpu_s(resource.RUSAGE_CHILDREN) - began_s)
    return min(took[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description="Rounds per second of the engine, one core.")
    parser.add_argument("--rounds", type=int, default=5000, help="rounds a repeat")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    start_s, predict_s = start_up(3), command_s(3)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    scenario = load(SCENARIO, ["workload.local_iterations=5"])
    compared = check_equal(scenario, 5)

    case = setting(scenario, options.rounds)
    took_s, batch = timed(case.batch, options.repeats)
    engine = options.rounds / took_s
    rows: list[dict[str, Any]] = [{"way": "engine, a batch", "rounds_per_s": engine}]
    few = min(500, options.rounds)
    took_s, _ = timed(lambda: chained(case, few), options.repeats)
    rows.append({"way": "engine, a chain of rounds", "rounds_per_s": few / took_s})
    plan = case.plan(0)
    took_s, _ = timed(
        lambda: [simulate(plan, case.radio, case.gain, 0.1) for _ in range(100)], options.repeats
    )
    rows.append({"way": "engine, one call a round, all steps", "rounds_per_s": 100 / took_s})
    for way, tuned in (("SimPy", False), ("SimPy, transfers in one go", True)):
        count = min(20, options.rounds)
        plans = [case.plan(n) for n in range(count)]
        took_s, latencies = timed(
            partial(one_by_one, case, plans, tuned=tuned),
            options.repeats,
        )
        np.testing.assert_allclose(latencies, batch.latency_s[:count], rtol=0, atol=1e-9)
        rows.append({"way": way, "rounds_per_s": count / took_s})
    with packaged_order() as packaged:
        for order in (*orders.BUILT_IN, packaged):
            ordered = setting(varied(scenario, {"order": order}), options.rounds)
            took_s, _ = timed(ordered.batch, options.repeats)
            way = f"engine, a batch, {order}"
            rows.append({"way": way, "rounds_per_s": options.rounds / took_s})
    for row in rows:
        row["engine_times"] = engine / row["rounds_per_s"]

    curve = []
    for clients in CURVE:
        rounds = max(5, 20_000 // clients)
        case = setting(grown(scenario, clients), rounds)
        took_s, batch = timed(case.batch, options.repeats)
        curve.append(
            {
                "clients": clients,
                "us_per_round": 1e6 * took_s / rounds,
                "ns_per_client_log2": 1e9 * took_s / rounds / (clients * math.log2(clients)),
                "latency_s": float(batch.latency_s.mean()),
            }
        )
    result = {
        "start_s": start_s,
        "predict_100_rounds_s": predict_s,
        "rounds_compared_with_simpy": compared,
        "ways": rows,
        "radios": radios(scenario, options.rounds, options.repeats),
        "curve": curve,
    }
    tell(result)
    if options.json:
        write_json(options.json, result)


def tell(result: dict[str, Any]) -> None:
    """Print tables, and whether each target is met."""
    console = Console()
    tables: list[tuple[str, str, dict[str, str]]] = [
        ("ways", "way", {"rounds_per_s": ",.0f", "engine_times": ".1f"}),
        (
            "radios",
            "paradigm",
            {"radio": "", "us_per_round": ".1f", "rounds_per_s": ",.0f", "latency_s": ".1f"},
        ),
        (
            "curve",
            "clients",
            {"us_per_round": ".1f", "ns_per_client_log2": ".0f", "latency_s": ".1f"},
        ),
    ]
    for name, first, columns in tables:
        cells = [
            [str(row[first]), *(f"{row[key]:{how}}" for key, how in columns.items())]
            for row in result[name]
        ]
        show([first, *columns], cells)
    growth = result["curve"][-1]["ns_per_client_log2"] / result["curve"][0]["ns_per_client_log2"]
    simpy_times = result["ways"][3]["engine_times"]
    ordered = 1 / max(row["engine_times"] for row in result["ways"][5:])
    us = {(row["paradigm"], row["radio"]): row["us_per_round"] for row in result["radios"]}
    lte_times = us["cpsfl", "lte"] / us["cpsfl", "shannon"]
    checks = [
        ("rounds/s", result["ways"][0]["rounds_per_s"], WANTED_ROUNDS_PER_S, True),
        ("times SimPy", simpy_times, WANTED_SPEEDUP, True),
        (f"growth over K log K, K = {CURVE[0]} to {CURVE[-1]}", growth, 1.0, False),
        ("share of the speed under another order", ordered, WANTED_SHARE, True),
        ("LTE's time over Shannon's, CPSFL", lte_times, MOST_LTE_TIMES, False),
        ("start-up s", result["start_s"], WANTED_START_S, False),
        (
            "CPU s of `testbed predict` for 100 rounds",
            result["predict_100_rounds_s"],
            WANTED_COMMAND_S,
            False,
        ),
    ]
    for what, value, wanted, at_least in checks:
        met = value >= wanted if at_least else value <= wanted
        bound = "at least" if at_least else "at most"
        verdict = "met" if met else "MISSED"
        console.print(f"{what}: {value:,.2f} ({bound} {wanted:,g}: {verdict})", highlight=False)
    console.print(f"{result['rounds_compared_with_simpy']} rounds equal to SimPy's to 1e-9")


if __name__ == "__main__":
    main()
