# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""One page of performance: the same work beside other programs, and how cost grows.

    python benchmarks/performance.py [--out FILE.md] [--json FILE]

The first table has the cost of rounds that follow each other on a given trace: the compiled core
alone, `tb.predict`, two SimPy programs (of `benchmarks/engine.py`), and a program of NumPy's
cumulative sums and a heap, as a careful user writes it. All give the same latencies to 1e-9 s.

The second table has growth curves: predictions by number of UAVs and of rounds, and predicted
points of a campaign, each with a channel of its own. The exponent is that of a power law, fitted to
the logarithms of all points of a curve.

Times are CPU seconds of this process and its children, the least of three. Start-up is not counted.
"""

import argparse
import heapq
import json
import platform
import resource
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from engine import Round, grown, setting

import orchestrator as tb
from ns3_scenarios.trace import ChannelTrace
from orchestrator.campaigning.cluster import plain_point
from orchestrator.campaigning.spec import point_of
from orchestrator.campaigning.worker import play, release
from orchestrator.engine.fdma import ShannonFdma
from orchestrator.engine.plan import Array, RoundPlan, fixed_allocation, plan_round
from orchestrator.records.manifest import source_sha256
from orchestrator.rounds.simulation import simulate_batch, split_costs
from orchestrator.scenario.channel import ns3_source
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario

ROUNDS = 200
CLIENTS = (10, 30, 100, 300)
MANY_ROUNDS = (100, 400, 1600)
POINTS = (5, 10, 20)
REPEATS = 3


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


# --- the same rounds in other programs -----------------------------------------------------------


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


def peers() -> list[dict[str, Any]]:
    """The cost of a round in each program, after a check that all give the same latencies."""
    scenario = tb.load("paper")
    with ns3_source(scenario) as source:
        trace = source.trace(round(20 * ROUNDS / scenario.slot_s))
    plan, gain = plan_round(scenario, profile_of(scenario), fixed_allocation(scenario)), trace.gain
    ways: dict[str, tuple[Callable[[int], Any], int]] = {
        "compiled core": (lambda rounds: with_core(scenario, gain, rounds), ROUNDS),
        "`tb.predict`": (
            lambda rounds: [one.latency_s for one in tb.predict(scenario, trace, rounds=rounds)],
            ROUNDS,
        ),
        "NumPy and a heap": (lambda rounds: with_numpy(plan, scenario, gain, rounds), ROUNDS),
        f"SimPy {version('simpy')}, transfers in one go": (
            lambda rounds: with_simpy(plan, scenario, gain, rounds, tuned=True),
            ROUNDS // 5,
        ),
        f"SimPy {version('simpy')}, slot by slot": (
            lambda rounds: with_simpy(plan, scenario, gain, rounds, tuned=False),
            ROUNDS // 5,
        ),
    }
    rows: list[dict[str, Any]] = []
    right = np.asarray(ways["`tb.predict`"][0](ROUNDS))
    for name, (work, rounds) in ways.items():
        np.testing.assert_allclose(work(rounds), right[:rounds], rtol=0, atol=1e-9)
        took_s = least_s(partial(work, rounds))
        rows.append({"way": name, "ms_per_round": 1e3 * took_s / rounds})
    for row in rows:
        row["of_core"] = row["ms_per_round"] / rows[0]["ms_per_round"]
    return rows


# --- growth --------------------------------------------------------------------------------------


def growth() -> list[dict[str, Any]]:
    """Curves: what grows, the cost at each size in s, and the fitted exponent."""
    curves = []

    def curve(what: str, sizes: tuple[int, ...], work: Callable[[int], Callable[[], Any]]) -> None:
        took = [least_s(work(size)) for size in sizes]
        exponent = float(np.polyfit(np.log(sizes), np.log(took), 1)[0])
        cost = dict(zip(map(str, sizes), took, strict=True))
        curves.append({"what": what, "cpu_s": cost, "exponent": exponent})

    paper = tb.load("paper")

    def of_clients(clients: int) -> Callable[[], Any]:
        scenario = grown(paper, clients)
        case = setting(scenario, 1, 6000)
        return lambda: tb.predict(scenario, ChannelTrace(case.gain, 0.1), rounds=20)

    def of_rounds(rounds: int) -> Callable[[], Any]:
        case = setting(paper, 1, 200 * rounds)
        return lambda: tb.predict(paper, ChannelTrace(case.gain, 0.1), rounds=rounds)

    def of_points(count: int) -> Callable[[], Any]:
        task = {"source_sha256": source_sha256(), "argv": [], "command": ""}
        made = [tb.load("quickstart", {"rounds": 20, "seed": n + 1}) for n in range(count)]
        points = [plain_point(point_of("predict", one, None, 0)) for one in made]

        def played() -> None:
            for point in points:
                (answer,) = play(task, [point])
                assert "files" in answer, answer
            release()

        return played

    curve("UAVs, 20 rounds", CLIENTS, of_clients)
    curve("rounds, 10 UAVs", MANY_ROUNDS, of_rounds)
    curve("points of a campaign", POINTS, of_points)
    return curves


def page(result: dict[str, Any]) -> str:
    """The page in Markdown."""
    lines = ["# Performance", "", f"Versions: {result['versions']}.", ""]
    lines += [
        f"CPU time of a round of the paper's scenario ({ROUNDS} rounds on a given trace):",
        "",
    ]
    lines += ["| program | ms per round | times the core |", "|---|---|---|"]
    lines += [
        f"| {row['way']} | {row['ms_per_round']:.4f} | {row['of_core']:.1f} |"
        for row in result["peers"]
    ]
    lines += ["", "CPU seconds by size, and the exponent of a fitted power law:", ""]
    lines += ["| what grows | CPU s | exponent |", "|---|---|---|"]
    for row in result["growth"]:
        cost = ", ".join(f"{size}: {took:.4f}" for size, took in row["cpu_s"].items())
        lines.append(f"| {row['what']} | {cost} | {row['exponent']:.2f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    names = ("uav-sfl-testbed", "numpy", "simpy", "ns3")
    versions = ", ".join(
        [f"Python {platform.python_version()}", *(f"{n} {version(n)}" for n in names)]
    )
    result = {"versions": versions, "peers": peers(), "growth": growth()}
    text = page(result)
    print(text, end="")
    if asked.out is not None:
        asked.out.write_text(text, encoding="utf-8")
    if asked.json is not None:
        asked.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
