# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A whole round with real computing: its wall time beside its steps alone, and its memory.

    python benchmarks/whole_round.py [SCENARIO] [--set KEY=VALUE]... [--clock CLOCK]...
        [--repeats N] [--json FILE]

Without a scenario it is the paper's: ten UAVs that train Swin-L, u = 2, three iterations. First
each computing step is timed alone, in a process of its own and with as many threads as its node
has; then `testbed run` plays the round, and the proportional set sizes of all its processes are
summed up every few seconds. By the real clock, computing takes what it takes here
(`workload.compute_time: measured`), so that nothing waits for modelled time; in virtual time it
takes what the device profiles say, and the whole command is held against the steps, its start
included. With both clocks, the losses of all batches are compared, too. UAVs recompute activations;
`--set` changes any of it, in all parts alike. With a split point for each client, the steps of each
are timed.
"""

import argparse
import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
from common import PAPER
from rich.console import Console
from workload import MIB, show

from orchestrator.emulated.learning import learning_settings, place
from orchestrator.scenario.loading import load
from orchestrator.scenario.schema import Scenario
from testbed.system.files import write_json

DEFAULTS = ["rounds=1", "workload.recompute=true"]
CLOCKS = {
    "real": ["workload.compute_time=measured"],
    "virtual": ["emulation.clock=virtual"],
}
SAMPLE_S = 3.0

log = Console(stderr=True)


def steps_alone(scenario: Scenario, repeats: int) -> dict[int, dict[str, list[float]]]:
    """By split point, seconds of CF, S and CB of one batch with nothing else on the machine; run it
    afresh."""
    import torch

    from workloads.learning.learner import ClientLearner, ServerLearner
    from workloads.learning.real import Settings

    told = learning_settings(scenario)
    assert told is not None, "workload.compute must be real"
    uav, bs = (
        Settings.from_json(told | place(node)) for node in (scenario.uavs, scenario.base_station)
    )
    model, batch = bs.open_model(), uav.batch_size
    images = torch.randn(model.input.empty(batch, "meta").shape)
    labels = torch.arange(batch) % uav.model.classes
    client, server = ClientLearner(model, uav.training), ServerLearner(model, [1], bs.training)
    found: dict[int, dict[str, list[float]]] = {}
    for split in sorted(set(splits_of(scenario))):
        client.begin_round(split, server.begin_round(split))
        seconds: dict[str, list[float]] = {"CF": [], "S": [], "CB": []}
        found[split] = seconds
        for turn in range(repeats + 1):
            times = [time.perf_counter()]
            torch.set_num_threads(uav.threads)
            smashed = client.forward(images)
            times.append(time.perf_counter())
            torch.set_num_threads(bs.threads)
            gradient = server.forward_backward(1, smashed, labels).gradient
            times.append(time.perf_counter())
            torch.set_num_threads(uav.threads)
            client.backward(gradient)
            times.append(time.perf_counter())
            if turn:  # the first one warms up
                for name, began, ended in zip(seconds, times, times[1:], strict=False):
                    seconds[name].append(ended - began)
    return found


def splits_of(scenario: Scenario) -> list[int]:
    """u_k of each client."""
    split = scenario.workload.split
    return [split] * scenario.uavs.count if isinstance(split, int) else split


def pss_bytes(process: psutil.Process) -> int:
    try:
        rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="utf-8")
    except OSError:
        return 0  # it has ended
    return sum(1024 * int(x.split()[1]) for x in rollup.splitlines() if x.startswith("Pss:"))


def play(scenario_file: Path, overrides: list[str], clock: str) -> dict[str, Any]:
    """Let `testbed run` play the round; what it said, and the memory of all its processes."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "orchestrator", "run", str(scenario_file)]
        for override in [*CLOCKS[clock], *overrides]:
            words += ["--set", override]
        words += ["--out", f"{folder}/run", "--json", f"{folder}/run.json"]
        began = time.perf_counter()
        run = subprocess.Popen(words, stdout=sys.stderr)
        peak: dict[str, float] = {"total": 0.0}
        ended = threading.Event()

        def sample() -> None:
            while not ended.wait(SAMPLE_S):
                try:
                    family = [top, *top.children(recursive=True)]
                except psutil.NoSuchProcess:
                    return
                sizes = sorted((pss_bytes(process) / MIB for process in family), reverse=True)
                if sum(sizes) > peak["total"]:
                    peak.update(total=sum(sizes), largest=sizes[0], processes=len(sizes))

        top = psutil.Process(run.pid)
        sampler = threading.Thread(target=sample)
        sampler.start()
        status = run.wait()
        ended.set()
        sampler.join()
        if status:
            sys.exit(f"testbed run ended with status {status}")
        command_s = time.perf_counter() - began
        result = json.loads(Path(folder, "run.json").read_text(encoding="utf-8"))
        [round_] = result["measured"]
        batches = pd.read_parquet(f"{folder}/run/learning.parquet").query("data == 'train'")
        budget = pd.read_parquet(f"{folder}/run/budget.parquet")
        if clock == "virtual":
            wall = {"round_s": round_["latency_s"]}
        else:
            dilation = result["scenario"]["emulation"]["dilation"]
            wall = {"round_wall_s": round_["latency_s"] * dilation}
        return wall | {
            "command_wall_s": command_s,
            "peak_pss_mib": peak,
            "valid": result["valid"],
            "overruns_s": float(budget.query("part == 'overruns'")["seconds"].sum()),
            "losses": batches.sort_values(["client", "iteration"])["loss"].tolist(),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("scenario", nargs="?", type=Path, default=PAPER)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--clock", action="append", choices=CLOCKS, help="real if left out")
    parser.add_argument("--repeats", type=int, default=3, help="of each step alone")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()

    overrides = [*DEFAULTS, *options.set]
    scenario = load(options.scenario, overrides)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn) as fresh:
        alone = fresh.submit(steps_alone, scenario, options.repeats).result()
    iterations = scenario.workload.local_iterations
    assert isinstance(iterations, int)
    sum_s = iterations * sum(
        statistics.median(times) for split in splits_of(scenario) for times in alone[split].values()
    )
    log.print(f"steps alone: {sum_s:.1f} s in all")
    result: dict[str, Any] = {
        "model": scenario.workload.model,
        "clients": scenario.uavs.count,
        "iterations": scenario.workload.local_iterations,
        "split": str(scenario.workload.split),
        "threads of base station and UAVs": f"{scenario.base_station.threads}, "
        f"{scenario.uavs.threads}",
        "alone_s": {f"u = {split}": times for split, times in alone.items()},
        "steps alone, sum_s": sum_s,
    }
    ratio = "wall over steps alone (at most 1.3)"
    for clock in options.clock or ["real"]:
        played = result[clock] = play(options.scenario, overrides, clock)
        played[ratio] = played.get("round_wall_s", played["command_wall_s"]) / sum_s
    if len(options.clock or []) == len(CLOCKS):
        result["losses are equal"] = result["real"]["losses"] == result["virtual"]["losses"]
    show("whole round", result)
    if options.json:
        write_json(options.json, result)


if __name__ == "__main__":
    main()
