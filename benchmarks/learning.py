# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What `testbed learn` costs for many clients with a small network, beside a plain PyTorch loop.

    python benchmarks/learning.py [WAY]... [--clients K] [--per-round C] [--rounds N] [--json FILE]

Ways are testbed, plain and flower; by default testbed and plain. They train the same convolutional
network with 38,570 parameters on the same digits of scikit-learn (1,617 training samples), with
batches of 16, 5 local iterations and SGD. Each way runs in a process of its own; seconds are CPU
seconds of that process and its children, start included. The plain loop draws its batches from
tensors in memory, and averages the models of a round. Memory is the largest resident set; for
flower, whose simulation has several processes, it is the sum of their proportional shares (PSS)
after the last round.

The package scikit-learn brings the digits. Flower's simulation needs an environment of its own:

    python -m venv build/flower
    build/flower/bin/pip install 'flwr[simulation]' torch

--flower names the interpreter of another one.
"""

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

BATCH, ITERATIONS, RATE, SIZE = 16, 5, 0.05, 16
NET = """
from functools import cache
from pathlib import Path
import numpy as np
import torch
from torch import nn
from torch.nn import functional

class Digits(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        self.hidden, self.head = nn.Linear(512, 64), nn.Linear(64, classes)
    def part1(self, x):
        return functional.max_pool2d(functional.relu(self.first(x)), 2)
    def part2(self, x):
        return functional.max_pool2d(functional.relu(self.second(x)), 2)
    def part3(self, x):
        return functional.relu(self.hidden(x.flatten(1)))
    def forward(self, x):
        return self.head(self.part3(self.part2(self.part1(x))))

@cache
def stored():
    found = np.load(Path(__file__).with_name("samples.npz"))
    samples, labels = torch.from_numpy(found["samples"]), torch.from_numpy(found["labels"])
    return samples, labels, found["trains"]
"""
CHAIN = """
from digits_net import Digits
from orchestrator import Chain, Images

def digits_cnn(classes):
    net = Digits(classes)
    parts = [net.part1, net.part2, net.part3]
    return Chain(net, Images(16), lambda x: x, parts, lambda x: x, "head")
"""
Counts = dict[str, Any]


def digits() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Images [1797, 8, 8] as bytes, labels, and which samples are for training."""
    from sklearn.datasets import load_digits  # type: ignore[import-not-found]

    found = load_digits()
    images = (found.images * 15.9375).round().astype(np.uint8)
    return images, found.target, np.arange(len(images)) % 10 != 0


def write_pictures(folder: Path) -> None:
    """The digits as folders of PNG files."""
    from PIL import Image

    images, labels, trains = digits()
    for index, (image, label, train) in enumerate(zip(images, labels, trains, strict=True)):
        place = folder / ("train" if train else "test") / str(label)
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{index}.png")


def write_package(folder: Path) -> None:
    """The network as an installed package."""
    about = folder / "digits_cnn-1.0.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (folder / "digits_net.py").write_text(NET)
    (folder / "digits_cnn.py").write_text(CHAIN)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: digits_cnn\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[testbed.models]\ndigits_cnn = digits_cnn:digits_cnn\n"
    )


def write_samples(folder: Path) -> None:
    """The digits as the network takes them, for loops that do not read pictures."""
    import torch

    from workloads.data.pictures import normalised
    from workloads.models.chain import Images

    images, labels, trains = digits()
    pixels = torch.from_numpy(images).float().div(255)[:, None].expand(-1, 3, -1, -1)
    samples = normalised(pixels, Images(SIZE)).numpy()
    np.savez(folder / "samples.npz", samples=samples, labels=labels, trains=trains)


def testbed(folder: Path, counts: Counts) -> dict[str, Any]:
    """Train with `testbed learn`."""
    import orchestrator as tb
    from orchestrator.emulated.trajectory import learn_into

    write_pictures(folder / "digits")
    clients = counts["clients"]
    keys = {
        "rounds": counts["rounds"],
        "uavs.tx_power_w": [1.0] * clients,
        "participation.clients": counts["per_round"],
        "workload.model": "digits_cnn",
        "workload.adapters": "full",
        "workload.split": 1,
        "workload.classes": 10,
        "workload.batch_size": BATCH,
        "workload.local_iterations": ITERATIONS,
        "workload.optimiser": "sgd",
        "workload.momentum": 0.0,
        "workload.learning_rate": RATE,
        "workload.evaluate_every": counts["rounds"],
        "workload.data.source": str(folder / "digits"),
    }
    if counts["per_round"] == clients:
        del keys["participation.clients"]
    ends_s: list[float] = []

    def times(what: str, done: float, of: float) -> None:
        ends_s.append(time.process_time())

    made = learn_into(folder / "out", tb.load("quickstart", keys), progress=times)
    return {"accuracy": float(made.table["accuracy"].iloc[-1]), "ends_s": ends_s}


def plain(folder: Path, counts: Counts) -> dict[str, Any]:
    """Train with a loop of PyTorch: one network, into which each client's start is loaded."""
    import torch
    from digits_net import Digits, stored  # type: ignore[import-not-found]
    from torch.nn import functional

    torch.set_num_threads(1)
    samples, targets, trains = stored()
    random = np.random.default_rng(1)
    train = random.permutation(np.flatnonzero(trains))
    shares = np.array_split(train, counts["clients"])
    torch.manual_seed(1)
    net = Digits(10)
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    ends_s = []
    for _ in range(counts["rounds"]):
        chosen: Any = random.choice(counts["clients"], counts["per_round"], replace=False)
        mean = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
        total = sum(len(shares[client]) for client in chosen)
        for client in chosen:
            net.load_state_dict(state)
            optimiser = torch.optim.SGD(net.parameters(), RATE)
            for _ in range(ITERATIONS):
                own: Any = shares[client]
                batch = random.choice(own, BATCH, replace=len(own) < BATCH)
                optimiser.zero_grad()
                functional.cross_entropy(net(samples[batch]), targets[batch]).backward()  # type: ignore[no-untyped-call]
                optimiser.step()
            for name, tensor in net.state_dict().items():
                mean[name] += len(shares[client]) / total * tensor
        state = mean
        ends_s.append(time.process_time())
    net.load_state_dict(state)
    with torch.no_grad():
        hits = net(samples[~trains]).argmax(1) == targets[~trains]
    return {"accuracy": float(hits.float().mean()), "ends_s": ends_s}


def flower(folder: Path, counts: Counts) -> dict[str, Any]:
    """Train with Flower's simulation: FedAvg over Ray, one actor per core."""
    import torch
    from digits_net import Digits, stored
    from flwr.app import (  # type: ignore[import-not-found]
        ArrayRecord,
        Message,
        MetricRecord,
        RecordDict,
    )
    from flwr.clientapp import ClientApp  # type: ignore[import-not-found]
    from flwr.serverapp import ServerApp  # type: ignore[import-not-found]
    from flwr.serverapp.strategy import FedAvg  # type: ignore[import-not-found]
    from flwr.simulation import run_simulation  # type: ignore[import-not-found]
    from torch.nn import functional

    clients, per_round = counts["clients"], counts["per_round"]
    app, server = ClientApp(), ServerApp()

    @app.train()  # type: ignore[untyped-decorator]
    def train(message: Any, context: Any) -> Any:
        torch.set_num_threads(1)
        client, (samples, targets, trains) = context.node_config["partition-id"], stored()
        everything = np.random.default_rng(1).permutation(np.flatnonzero(trains))
        own: Any = np.array_split(everything, clients)[client]
        net = Digits(10)
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimiser = torch.optim.SGD(net.parameters(), RATE)
        random = np.random.default_rng([message.content["config"]["server-round"], client])
        for _ in range(ITERATIONS):
            batch = random.choice(own, BATCH, replace=len(own) < BATCH)
            optimiser.zero_grad()
            functional.cross_entropy(net(samples[batch]), targets[batch]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        found = {
            "arrays": ArrayRecord(net.state_dict()),
            "metrics": MetricRecord({"num-examples": len(own)}),
        }
        return Message(content=RecordDict(found), reply_to=message)

    ends_s: list[float] = []
    found: dict[str, Any] = {"ends_s": ends_s}

    def measured(round_: int, arrays: Any) -> None:
        cpu_s, found["memory_bytes"] = family()
        ends_s.append(cpu_s)

    @server.main()  # type: ignore[untyped-decorator]
    def main(grid: Any, context: Any) -> None:
        torch.manual_seed(1)
        strategy = FedAvg(
            fraction_train=per_round / clients,
            fraction_evaluate=0,
            min_train_nodes=per_round,
            min_available_nodes=clients,
        )
        net = Digits(10)
        done = strategy.start(
            grid, ArrayRecord(net.state_dict()), counts["rounds"], evaluate_fn=measured
        )
        net.load_state_dict(done.arrays.to_torch_state_dict())
        samples, targets, trains = stored()
        with torch.no_grad():
            hits = net(samples[~trains]).argmax(1) == targets[~trains]
        found["accuracy"] = float(hits.float().mean())

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, app, clients, backend_config=resources)
    if "accuracy" not in found:
        raise SystemExit("flower: its simulation has failed; see its messages above")
    ends_s.pop(0)  # Before the first round.
    return found | {"cpu_s": ends_s[-1]}


def family() -> tuple[float, int]:
    """CPU seconds of this process and all that descend from it, and their memory (PSS)."""
    parents, used_s, memory = {}, {}, {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "stat").read_text().rpartition(")")[2].split()
            rollup = (place / "smaps_rollup").read_text().split()
        except OSError:  # It has ended, or belongs to someone else.
            continue
        pid = int(place.name)
        parents[pid] = int(words[1])
        used_s[pid] = sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")
        memory[pid] = int(rollup[rollup.index("Pss:") + 1]) << 10 if "Pss:" in rollup else 0
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(used_s.get(pid, 0) for pid in ours), sum(memory.get(pid, 0) for pid in ours)


WAYS: dict[str, Callable[[Path, Counts], dict[str, Any]]] = {
    "testbed": testbed,
    "plain": plain,
    "flower": flower,
}


def version_of_flower(python: Path) -> str:
    """The version of Flower in an environment.

    Raises:
        SystemExit: It is not there; the message is one line.
    """
    asked = "import flwr.simulation, ray, torch; print(flwr.__version__)"
    with contextlib.suppress(OSError):
        done = subprocess.run([python, "-c", asked], capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.split()[-1]
        why = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise SystemExit(f"--flower: {python} has no flwr[simulation] and torch: {why}")
    raise SystemExit(
        f"--flower: {python} does not exist; the way flower needs an environment with "
        "flwr[simulation] and torch (see --help)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ways", nargs="*", default=["testbed", "plain"], metavar="WAY")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--per-round", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--flower", type=Path, default=Path("build/flower/bin/python"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    counts = {key: getattr(given, key) for key in ("clients", "per_round", "rounds")}
    if given.inside:
        found = WAYS[given.ways[0]](given.inside, counts)
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        cpu_s = sum(each.ru_utime + each.ru_stime for each in used)
        peak = max(each.ru_maxrss for each in used) << 10
        (given.inside / "found.json").write_text(
            json.dumps({"cpu_s": cpu_s, "memory_bytes": peak} | found)
        )
        return
    if unknown := [way for way in given.ways if way not in WAYS]:
        raise SystemExit(f"WAY: must be one of {', '.join(WAYS)}, not {unknown[0]!r}")
    names = {way: way for way in given.ways}
    if "flower" in given.ways:
        names["flower"] = f"flower {version_of_flower(given.flower)}"
    results = {}
    for way in given.ways:
        with tempfile.TemporaryDirectory() as folder:
            write_package(Path(folder))
            if way != "testbed":
                write_samples(Path(folder))
            words = [f"--{key.replace('_', '-')}={value}" for key, value in counts.items()]
            path = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
            python = given.flower if way == "flower" else sys.executable
            silent = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
            subprocess.run(
                [python, __file__, way, *words, "--inside", folder],
                env=os.environ | silent | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
                check=True,
            )
            results[way] = json.loads((Path(folder) / "found.json").read_text())
        one = results[way]
        # Without the start, the first round and the last evaluation.
        ends_s = one.pop("ends_s")
        batches = (len(ends_s) - 1) * counts["per_round"] * ITERATIONS
        one["batch_ms"] = 1000 * (ends_s[-1] - ends_s[0]) / batches
        print(
            f"{names[way]}: {one['cpu_s']:.1f} CPU s, {one['batch_ms']:.2f} ms per batch, "
            f"{one['memory_bytes'] / 2**20:.0f} MiB, accuracy {one['accuracy']:.1%}",
            flush=True,
        )
    if given.json:
        given.json.write_text(json.dumps(counts | {"ways": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
