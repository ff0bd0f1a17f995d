# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A GPU beside the CPU: the same numbers, steps, and the server's pass for many clients.

    python benchmarks/gpu.py [--device cuda:0] [--model NAME] [--split U] [--json FILE]

One round of two clients and two iterations is trained on both, and the largest difference of a
trained tensor, relative to its norm, must lie below 1e-3. Steps are timed by the device's own
clock, the fastest of some. Without a CUDA device it ends with one line and status 2.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from testbed.core.errors import InputError
from testbed.system.folders import cache_folder
from workloads.learning.backbone import backbone_file, load_model, torch_device
from workloads.learning.learner import ClientLearner, ServerLearner
from workloads.learning.model import SplitModel
from workloads.learning.settings import ModelConfig, TrainingConfig
from workloads.learning.stopwatch import Stopwatch

TRAINING = TrainingConfig(learning_rate=0.01, optimiser="sgd")
CLOSE = 1e-3
REPEATS = 5


def batch(model: SplitModel, size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Samples and labels by seed, on the CPU."""
    random = torch.Generator().manual_seed(seed)
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--model", default="swin_large_patch4_window7_224")
    parser.add_argument("--split", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    try:
        torch_device(asked.device)
    except InputError as error:
        print(f"gpu.py: {error}", file=sys.stderr)
        return 2
    config = ModelConfig(asked.model, 100)
    file = backbone_file(config, cache_folder())
    models = {name: load_model(config, file, name) for name in dict.fromkeys(["cpu", asked.device])}
    states = [trained(model, asked.split, asked.batch) for model in models.values()]
    apart = max(
        float((states[-1][name].cpu() - tensor).norm() / tensor.norm().clamp_min(1e-12))
        for name, tensor in states[0].items()
    )
    result: dict[str, object] = {"model": asked.model, "split": asked.split, "apart": apart}
    table = Table("", *models, box=None)
    steps = {name: step_ms(model, asked.split, asked.batch) for name, model in models.items()}
    for step in next(iter(steps.values())):
        table.add_row(step, *(f"{each[step]:.2f} ms" for each in steps.values()))
    passes = {}
    for name, model in models.items():
        server = ServerLearner(model, range(1, asked.clients + 1), TRAINING)
        server.begin_round(asked.split)
        shape = model.feature_shapes[asked.split - 1]
        passes[name] = vars(server.pass_times(asked.clients, asked.batch, shape))
    for way, title in (("one_by_one_s", "one by one"), ("together_s", "in one pass")):
        row = f"server, {asked.clients} clients {title}"
        table.add_row(row, *(f"{1e3 * each[way]:.2f} ms" for each in passes.values()))
    console = Console()
    console.print(table)
    console.print(f"largest relative difference of a trained tensor: {apart:.2e}")
    if asked.json is not None:
        asked.json.write_text(json.dumps(result | {"steps_ms": steps, "passes": passes}) + "\n")
    return 0 if apart < CLOSE else 1


if __name__ == "__main__":
    sys.exit(main())
