# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A GPU beside the CPU: the same numbers, steps, and the server's pass for many clients.

    python benchmarks/gpu.py [--model NAME …] [--split U] [--json FILE] [--publish]

For each model, one round of two clients and two iterations is trained on both, and the largest
difference of a trained tensor, relative to its norm, must lie below 1e-3. Steps are timed by the
device's own clock, the fastest of some. `--publish` writes what it measured into
docs/measured-learning.md. Without a CUDA device it ends with one line and status 2.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import torch
from common import ROOT, replace_between, revision
from rich.console import Console
from rich.table import Table

from testbed.core.errors import InputError
from testbed.system.files import write_json
from testbed.system.folders import cache_folder
from workloads.learning.backbone import load_model, torch_device
from workloads.learning.cached import backbone_file
from workloads.learning.learner import ClientLearner, ServerLearner
from workloads.learning.model import SplitModel
from workloads.learning.settings import ModelConfig, TrainingConfig
from workloads.learning.stopwatch import Stopwatch
from workloads.models.chain import Images

MODELS = ["swin_large_patch4_window7_224", "vit_base_patch16_224"]
PAGE = ROOT / "docs/measured-learning.md"
MARKS = "<!-- gpu: written by benchmarks/gpu.py -->", "<!-- end of gpu -->"
TRAINING = TrainingConfig(learning_rate=0.01, optimiser="sgd")
CLOSE = 1e-3
REPEATS = 5


def batch(model: SplitModel, size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Samples and labels by seed, on the CPU."""
    random = torch.Generator().manual_seed(seed)
    assert isinstance(model.input, Images)
    samples = torch.randn(size, 3, model.input.size, model.input.size, generator=random)
    return samples, torch.randint(model.config.classes, (size,), generator=random)


def trained(model: SplitModel, split: int, size: int) -> dict[str, torch.Tensor]:
    """The global state after a round of two clients and two iterations."""
    server = ServerLearner(model, [1, 2], TRAINING)
    broadcast, adapters = server.begin_round(split), {}
    for client in (1, 2):
        learner = ClientLearner(model, TRAINING)
        learner.begin_round(split, broadcast)
        for iteration in (1, 2):
            samples, labels = batch(model, size, 10 * client + iteration)
            smashed = learner.forward(samples)
            learner.backward(server.forward_backward(client, smashed, labels).gradient)
        adapters[client] = learner.adapters()
    server.aggregate(adapters, {1: 1, 2: 1})
    return server.state()


def step_ms(model: SplitModel, split: int, size: int) -> dict[str, float]:
    """A client's passes and the server's, the fastest of some."""
    server, learner = ServerLearner(model, [1], TRAINING), ClientLearner(model, TRAINING)
    learner.begin_round(split, server.begin_round(split))
    samples, labels = batch(model, size, 1)
    best = {"client forward": float("inf"), "server": float("inf"), "client backward": float("inf")}
    for _ in range(REPEATS):
        watch = Stopwatch(model.device)
        with watch:
            smashed = learner.forward(samples)
        best["client forward"] = min(best["client forward"], 1e3 * watch.seconds)
        with watch:
            step = server.forward_backward(1, smashed, labels)
        best["server"] = min(best["server"], 1e3 * watch.seconds)
        with watch:
            learner.backward(step.gradient)
        best["client backward"] = min(best["client backward"], 1e3 * watch.seconds)
    return best


def measured(name: str, split: int | None, size: int, clients: int, device: str) -> dict[str, Any]:
    """A model on the CPU and on the device: how far apart, and what steps and passes take."""
    config = ModelConfig(name, 100)
    file = backbone_file(config, cache_folder())
    models = {where: load_model(config, file, where) for where in dict.fromkeys(["cpu", device])}
    split = split or models["cpu"].splits // 2
    states = [trained(model, split, size) for model in models.values()]
    apart = max(
        float((states[-1][tensor].cpu() - values).norm() / values.norm().clamp_min(1e-12))
        for tensor, values in states[0].items()
    )
    times = {where: step_ms(model, split, size) for where, model in models.items()}
    for where, model in models.items():
        server = ServerLearner(model, range(1, clients + 1), TRAINING)
        server.begin_round(split)
        passes = server.pass_times(clients, size, model.feature_shapes[split - 1])
        times[where] |= {
            f"server, {clients} clients one by one": 1e3 * passes.one_by_one_s,
            f"server, {clients} clients in one pass": 1e3 * passes.together_s,
        }
    return {"model": name, "split": split, "batch": size, "apart": apart, "times_ms": times}


def shown(result: dict[str, Any]) -> Table:
    """What the console shows of a model."""
    times = result["times_ms"]
    found = f"trained tensors differ by at most {result['apart']:.1e} of their norm"
    table = Table(f"{result['model']}, u = {result['split']}", *times, box=None, caption=found)
    for step in times["cpu"]:
        table.add_row(step, *(f"{each[step]:.2f} ms" for each in times.values()))
    return table


def publish(record: dict[str, Any]) -> None:
    """Put tables of all models between the page's marks."""
    lines = []
    for result in record["models"]:
        cpu, gpu = result["times_ms"].values()
        lines += [
            f"`{result['model']}`, u = {result['split']}, batches of {result['batch']}; trained "
            f"tensors differ by at most {result['apart']:.1e} of their norm:",
            "",
            "| | CPU, ms | GPU, ms |",
            "|---|---|---|",
            *(f"| {step} | {cpu[step]:.1f} | {gpu[step]:.1f} |" for step in cpu),
            "",
        ]
    lines.append(
        f"{record['gpu']}, {record['cores']} cores; torch {record['torch']}; revision {revision()}."
    )
    replace_between(PAGE, MARKS, "\n".join(lines))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--model", nargs="+", default=MODELS)
    parser.add_argument("--split", type=int, help="half of a model's splits, if not given")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--publish", action="store_true", help="into docs/measured-learning.md")
    asked = parser.parse_args()
    try:
        device = torch_device(asked.device)
    except InputError as error:
        print(f"gpu.py: {error}", file=sys.stderr)
        return 2
    results = []
    for name in asked.model:
        results.append(measured(name, asked.split, asked.batch, asked.clients, asked.device))
        Console().print(shown(results[-1]))
    record = {
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else asked.device,
        "cores": len(os.sched_getaffinity(0)),
        "torch": torch.__version__,
        "models": results,
    }
    if asked.json is not None:
        write_json(asked.json, record)
    if asked.publish and device.type == "cuda":
        publish(record)
    return 0 if max(result["apart"] for result in results) < CLOSE else 1


if __name__ == "__main__":
    sys.exit(main())
