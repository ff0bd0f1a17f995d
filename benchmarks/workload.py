# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What the learning costs: steps, codec, loopback, memory, and many clients in one pass.

    python benchmarks/workload.py [PART]... [--model NAME] [--split U] [--repeats N] [--json FILE]

Parts are steps, codec, loopback, memory and together; all by default. Each figure has its baseline
in the same run, and ways that are compared take turns: a ratio is the median of the ratios of turns
that followed each other. Computing is charged in CPU seconds, which a neighbour on the machine
stretches far less than seconds of the clock; on one thread, by default, the two are the same on a
quiet machine.
"""

import argparse
import ctypes
import math
import multiprocessing
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import safetensors.torch
import timm
import torch
from rich.console import Console
from rich.table import Table
from timm.models.swin_transformer import SwinTransformer
from torch import Tensor, nn
from torch.nn import functional

from testbed.system.files import write_json
from testbed.system.folders import cache_folder
from testbed.transport import wire
from testbed.transport.accounts import Counts
from testbed.transport.streams import KeptLink
from testbed.transport.tcp import TcpStream
from workloads.codecs import registry
from workloads.costs.lookup import profile_for
from workloads.learning.backbone import load_model
from workloads.learning.cached import backbone_file
from workloads.learning.learner import ClientLearner, ServerLearner, Trainees
from workloads.learning.model import SplitModel, initial_trainables
from workloads.learning.settings import ModelConfig, TrainingConfig
from workloads.learning.streams import Receiver, Sender
from workloads.models.families import OWN_MODELS

MIB = 2**20
PARTS = ("steps", "codec", "loopback", "memory", "together")
TRAINING = TrainingConfig()
Result = dict[str, Any]

log = Console(stderr=True)


Clock = Callable[[], float]


def timed(work: Callable[[], object], clock: Clock = time.process_time) -> float:
    began = clock()
    work()
    return clock() - began


def in_turns(
    ways: dict[str, Callable[[], object]], repeats: int, clock: Clock = time.process_time
) -> dict[str, list[float]]:
    """Seconds of each way, by turn; the first turn warms up and does not count."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(repeats + 1):
        for name, work in ways.items():
            seconds = timed(work, clock)
            if turn:
                times[name].append(seconds)
            log.print(f"{'turn ' + str(turn) if turn else 'warm-up'}: {name} {seconds:.4g} s")
    return times


def ratio(times: dict[str, list[float]], over: str, under: str) -> float:
    return statistics.median(a / b for a, b in zip(times[over], times[under], strict=True))


def a_batch(model: SplitModel, batch: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    shape = model.input.empty(batch, "meta").shape
    return torch.randn(shape, generator=random), torch.arange(batch) % 100


def split_step(model: SplitModel, split: int, batch: int) -> dict[str, Callable[[], object]]:
    """A whole split step, and its three computing steps apart."""
    images, labels = a_batch(model, batch)
    client, server = ClientLearner(model, TRAINING), ServerLearner(model, [1], TRAINING)
    client.begin_round(split, server.begin_round(split))
    held: dict[str, Tensor] = {}

    def forward() -> None:
        held["smashed"] = client.forward(images)

    def serve() -> None:
        held["gradient"] = server.forward_backward(1, held["smashed"], labels).gradient

    def backward() -> None:
        client.backward(held["gradient"])

    return {"CF": forward, "S": serve, "CB": backward}


def monolithic_step(model: SplitModel, batch: int) -> Callable[[], None]:
    images, labels = a_batch(model, batch)
    whole = Trainees(model.layout, 0, initial_trainables(model.layout, 1), TRAINING)

    def step() -> None:
        model.attach(whole.tensors)
        loss = functional.cross_entropy(model.server(model.client(images, 1), 1), labels)
        torch.autograd.backward(loss)
        whole.step()

    return step


def peft_step(config: ModelConfig, file: Path, batch: int) -> Callable[[], None]:
    import peft

    images, labels = a_batch(SplitModel(config), batch)
    options: dict[str, Any] = {"num_classes": config.classes, "drop_path_rate": 0.0}
    if config.model in OWN_MODELS:
        net: nn.Module = SwinTransformer(**OWN_MODELS[config.model] | options)
    else:
        net = timm.create_model(config.model, **options)
    net.load_state_dict(safetensors.torch.load_file(file), strict=False)
    layers = [
        name
        for name, module in net.named_modules()
        if isinstance(module, nn.Linear) and name != "head.fc"
    ]
    adapted = peft.get_peft_model(
        net,
        peft.LoraConfig(
            r=config.rank,
            lora_alpha=int(config.alpha),
            target_modules=layers,
            modules_to_save=["head.fc"],
        ),
    ).eval()
    parameters = [p for p in adapted.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(parameters, lr=TRAINING.learning_rate, weight_decay=0)

    def step() -> None:
        optimiser.zero_grad()
        functional.cross_entropy(adapted(images), labels).backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return step


def steps(config: ModelConfig, split: int, batch: int, repeats: int) -> Result:
    """Split step over our monolithic step and over peft's; the parts of the split step."""
    file = backbone_file(config, cache_folder())
    model = load_model(config, file)
    parts = split_step(model, split, batch)
    seconds: dict[str, list[float]] = {name: [] for name in parts}

    def split_() -> None:
        for name, work in parts.items():
            seconds[name].append(timed(work))

    ways: dict[str, Callable[[], object]] = {
        "peft monolithic": peft_step(config, file, batch),
        "monolithic": monolithic_step(model, batch),
        "split": split_,
    }
    low = replace(config, dtype="bfloat16")
    if has_bfloat16():
        low_parts = split_step(load_model(low, backbone_file(low, cache_folder())), split, batch)
        ways["split bfloat16"] = lambda: [work() for work in low_parts.values()]
    times = in_turns(ways, repeats)
    profile = profile_for(config)
    cf, s, cb = (min(seconds[name][1:]) for name in ("CF", "S", "CB"))
    result: Result = {
        "cpu_s": times,
        "CF_s": cf,
        "S_s": s,
        "CB_s": cb,
        "CF_gflops_per_cpu_s": batch * profile.client_forward_flops[split - 1] / cf / 1e9,
        "split over monolithic": ratio(times, "split", "monolithic"),
        "split over peft monolithic": ratio(times, "split", "peft monolithic"),
        "client backward over forward (paper: 2)": statistics.median(
            b / f for b, f in zip(seconds["CB"][1:], seconds["CF"][1:], strict=True)
        ),
    }
    if has_bfloat16():
        result["bfloat16 over float32"] = ratio(times, "split bfloat16", "split")
    else:
        result["bfloat16 over float32"] = "this CPU multiplies no bfloat16"
    return result


def has_bfloat16() -> bool:
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    return "avx512_bf16" in flags or "amx_bf16" in flags


def codec(config: ModelConfig, split: int, batch: int, repeats: int) -> Result:
    """Encoding and decoding one batch of smashed data; milliseconds."""
    shape = (batch, *SplitModel(config).feature_shapes[split - 1])
    tensor = torch.randn(shape)
    size = tensor.numel() * 4
    result: Result = {
        "tensor_mib": size / MIB,
        "framing over payload": wire.HEADER_BYTES / size,
    }
    for name in registry.BUILT_IN:
        of_name = registry.codec_of(name, {})
        sender, receiver = Sender(of_name, "gradient"), Receiver(of_name, "gradient")
        buffer = memoryview(bytearray(sender.encode(tensor)))
        ways: dict[str, Callable[[], object]] = {
            "encode": partial(sender.encode, tensor),
            "decode": partial(receiver.decode, buffer, shape),
        }
        for way, work in ways.items():
            work()
            result[f"{name} {way}_ms"] = 1e3 * min(timed(work) for _ in range(10 * repeats))
        result[f"{name} bytes"] = len(buffer)
    return result


def loopback(config: ModelConfig, split: int, batch: int, repeats: int) -> Result:
    """Throughput of one connection with frames of one batch's smashed data: MiB/s."""
    shape = (batch, *SplitModel(config).feature_shapes[split - 1])
    payload = memoryview(bytearray(4 * math.prod(shape)))
    place = memoryview(bytearray(len(payload)))
    header = wire.Header(wire.Kind.SMASHED, 1, 1, 0, 0, len(payload), 0.0, 0.0)

    def plain_receive(sock: socket.socket) -> None:
        left = place
        while len(left):
            left = left[sock.recv_into(left) :]

    def link(sock: socket.socket) -> KeptLink:
        return KeptLink(TcpStream(sock), Counts.of(header))

    def wire_receive(sock: socket.socket) -> None:
        ours = link(sock)
        ours.receive_header(wire.Kind.SMASHED)
        ours.receive_into(place)

    with (
        exchange(lambda sock: sock.sendall(payload), plain_receive) as plain,
        exchange(lambda sock: link(sock).send(header, payload=payload), wire_receive) as ours,
        grpc_exchange(bytes(payload)) as theirs,
    ):
        times = in_turns(
            {"gRPC": theirs, "plain sendall": plain, "wire": ours}, 5 * repeats, time.perf_counter
        )
    return {
        f"{name}_mib_per_s": len(payload) / MIB / statistics.median(seconds)
        for name, seconds in times.items()
    }


@contextmanager
def exchange(
    send: Callable[[socket.socket], object], receive: Callable[[socket.socket], None]
) -> Iterator[Callable[[], None]]:
    """One message over a TCP connection of the loopback interface, received whole."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()
    wire.configure(sender, 60)
    wire.configure(receiver, 60)
    with sender, receiver, ThreadPoolExecutor(1) as pool:

        def once() -> None:
            arrived = pool.submit(receive, receiver)
            send(sender)
            arrived.result()

        yield once


@contextmanager
def grpc_exchange(payload: bytes) -> Iterator[Callable[[], None]]:
    """One unary gRPC call that carries the message, with no serialisation of its own."""
    import grpc

    arrived = threading.Event()

    def take(_: bytes, __: object) -> bytes:
        arrived.set()
        return b""

    handler = grpc.method_handlers_generic_handler(
        "Bench", {"Send": grpc.unary_unary_rpc_method_handler(take)}
    )
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    server = grpc.server(ThreadPoolExecutor(1), handlers=(handler,), options=options)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        call = channel.unary_unary("/Bench/Send")
        yield lambda: call(payload)
    server.stop(None)


def memory(config: ModelConfig, split: int, clients: int) -> Result:
    """Proportional set size of a BS that serves K clients: ours, and beside it K models.

    Between passes: what is held, not the activations of a pass.
    """
    file = backbone_file(config, cache_folder())
    spawn = multiprocessing.get_context("spawn")
    result: Result = {"backbone_mib": file.stat().st_size / MIB}
    for name, way in (("one backbone", server_memory), ("K copies", copies_memory)):
        with ProcessPoolExecutor(1, spawn) as fresh:
            result[name] = fresh.submit(way, config, file, split, clients).result()
            log.print(f"{name}: {result[name]}")
    return result


def server_memory(config: ModelConfig, file: Path, split: int, clients: int) -> Result:
    torch.set_num_threads(1)
    bare = pss_mib()
    model = load_model(config, file)
    server = ServerLearner(model, range(1, clients + 1), TRAINING)
    server.begin_round(split)
    smashed = torch.zeros(1, *model.feature_shapes[split - 1])
    for client in range(1, clients + 1):
        # One sample touches all weights and makes all optimiser states.
        server.forward_backward(client, smashed, torch.zeros(1, dtype=torch.int64))
    return held(bare)


def copies_memory(config: ModelConfig, file: Path, split: int, clients: int) -> Result:
    torch.set_num_threads(1)
    bare = pss_mib()
    learners = []
    for _ in range(clients):
        model = load_model(config, file)
        for module in model.net.modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                setattr(module, name, nn.Parameter(parameter.clone(), requires_grad=False))
        server = ServerLearner(model, [1], TRAINING)
        server.begin_round(split)
        smashed = torch.zeros(1, *model.feature_shapes[split - 1])
        server.forward_backward(1, smashed, torch.zeros(1, dtype=torch.int64))
        learners.append(server)
    return held(bare)


def held(bare_mib: float) -> Result:
    # What the C library keeps of freed activations is not held by anyone.
    ctypes.CDLL(None).malloc_trim(0)
    total = pss_mib()
    return {"total_mib": total, "beyond_python_and_torch_mib": total - bare_mib}


def pss_mib() -> float:
    rollup = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8")
    [line] = [line for line in rollup.splitlines() if line.startswith("Pss:")]
    return int(line.split()[1]) / 1024


def together(config: ModelConfig, split: int, batch: int, repeats: int, waiting: int) -> Result:
    """The server's pass for clients that wait: all in one, over one after the other."""
    model = load_model(config, backbone_file(config, cache_folder()))
    clients = range(1, waiting + 1)
    server = ServerLearner(model, clients, TRAINING)
    server.begin_round(split)
    smashed = torch.randn(batch, *model.feature_shapes[split - 1])
    labels = torch.zeros(batch, dtype=torch.int64)
    batches = dict.fromkeys(clients, (smashed, labels))
    times = in_turns(
        {
            "one by one": lambda: [server.forward_backward(k, smashed, labels) for k in clients],
            "together": lambda: server.forward_backward_together(batches),
        },
        repeats,
    )
    return {
        "split": split,
        "waiting": waiting,
        "cpu_s": times,
        "together over one by one": ratio(times, "together", "one by one"),
    }


def show(part: str, result: Result) -> None:
    table = Table("figure", "value", title=part, title_justify="left")

    def rows(values: Result, before: str = "") -> None:
        for name, value in values.items():
            if isinstance(value, dict):
                rows(value, f"{before}{name}, ")
            elif isinstance(value, list):
                spread = f"{min(value):.4g}–{max(value):.4g}"
                table.add_row(f"{before}{name}", f"{statistics.median(value):.4g} ({spread})")
            else:
                shown = f"{value:.4g}" if isinstance(value, float) else str(value)
                table.add_row(f"{before}{name}", shown)

    rows(result)
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description="Costs of the learning, with their baselines.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--model", default="swin_large_patch4_window7_224")
    parser.add_argument("--split", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--clients", type=int, default=10, help="K of the memory part")
    parser.add_argument("--waiting", type=int, default=10, help="clients of the together part")
    parser.add_argument("--together-split", type=int, help="split of the together part")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")

    torch.set_num_threads(options.threads)
    config = ModelConfig(options.model, classes=100)
    split, batch, repeats = options.split, options.batch, options.repeats
    measures: dict[str, Callable[[], Result]] = {
        "steps": lambda: steps(config, split, batch, repeats),
        "codec": lambda: codec(config, split, batch, repeats),
        "loopback": lambda: loopback(config, split, batch, repeats),
        "memory": lambda: memory(config, split, options.clients),
        "together": lambda: together(
            config, options.together_split or split, batch, repeats, options.waiting
        ),
    }
    results: dict[str, Any] = {
        "model": options.model,
        "split": split,
        "batch": batch,
        "threads": options.threads,
        "torch": torch.__version__,
    }
    for part in options.parts or PARTS:
        results[part] = measures[part]()
        show(part, results[part])
    if {"steps", "codec"} <= results.keys():
        once_ms = results["codec"]["float32 encode_ms"] + results["codec"]["float32 decode_ms"]
        share = 2e-3 * once_ms / min(results["steps"]["cpu_s"]["split"])
        results["codec over step"] = share
        print(f"encoding and decoding, up and down, over the split step: {share:.2e}")
    if options.json:
        write_json(options.json, results)


if __name__ == "__main__":
    main()
