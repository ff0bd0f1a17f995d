# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Learning that the host computes for nodes in virtual time; asked from here, without a guest."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import safetensors.torch
import torch
from processes import gone
from small_learning import ITERATIONS, sizes_of, small_settings

from orchestrator.emulated.learning import takes_gpu
from orchestrator.scenario.schema import Uavs
from testbed.control.messages import SetUpBaseStation, SetUpUav
from testbed.control.node import at_node, at_orchestrator
from testbed.core.errors import RunError
from testbed.core.paradigm import paradigm
from testbed.system import inside
from testbed.transport.interface import TransportSettings
from testbed.transport.wire import RoundSizes
from workloads.learning.backbone import torch_device
from workloads.learning.cached import backbone_file
from workloads.learning.real import RealClient, RealServer, Settings
from workloads.learning.settings import ModelConfig
from workloads.learning.work import ClientWork, ServerWork
from workloads.nodes import program
from workloads.offload.client import Caller, OffloadClient, OffloadServer
from workloads.offload.host import answered, rests_while_waiting
from workloads.offload.messages import PRINTED, answer, asked, nodes

pytestmark = pytest.mark.timeout(300)


def buffered(settings: Settings) -> Settings:
    """Settings with which the base station applies two updates at once."""
    return replace(settings, training=replace(settings.training, buffer=2))


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("backbone")
    given = small_settings(folder, clients=2, wire_dtype="int8", wire_error=True)
    return buffered(given)


@pytest.fixture(scope="module")
def computing() -> Iterator[tuple[Path, int]]:
    """The folder in which it is asked, and the process that answers."""
    with answered(os.environ) as place:
        yield place, process_of(place).pid


def process_of(place: Path) -> psutil.Process:
    """Who answers there."""
    (process,) = (p for p in psutil.Process().children() if str(place) in p.cmdline())
    return process


def play(
    server: ServerWork, clients: Mapping[int, ClientWork], sizes: list[RoundSizes], split: list[int]
) -> dict[str, Any]:
    """Two rounds; all that passes between the nodes, and what came of it."""
    seen: dict[str, Any] = {}
    for round_ in (0, 1):
        server.begin_round(round_, split, sizes)
        for k, client in clients.items():
            client.begin_round(round_, split[k - 1], sizes[k - 1])
            assert client.adapters_header() == server.adapters_header(k)
            client.adapters_buffer()[:] = seen["broadcast", round_, k] = server.broadcast(k)
            client.load_adapters()
        for iteration in range(1, ITERATIONS + 1):
            for client in clients.values():
                client.forward(iteration)
            for k, client in clients.items():
                smashed, labels = client.smashed()
                server.smashed_buffer(k)[:], server.labels_buffer(k)[:] = smashed, labels
                seen["smashed", round_, iteration, k] = bytes(smashed), bytes(labels)
                server.forward_backward([k])
            shared = server.shared_gradient(list(clients)) if sizes[0].shared_gradient else b""
            seen["shared gradient", round_, iteration] = bytes(shared)
            for k, client in clients.items():
                client.shared_gradient_buffer()[:] = shared
                gradient, result = server.served(k)
                client.gradient_buffer()[:] = gradient
                seen["gradient", round_, iteration, k] = bytes(gradient), result
                client.backward()
        for k, client in clients.items():
            server.adapters_buffer(k)[:] = client.adapters()
            seen["notes", round_, k] = client.notes()
        server.aggregate(list(clients))
        seen["server's notes", round_] = json.loads(json.dumps(server.notes()))
    for k, client in clients.items():
        seen["own", k] = client.state()
        server.take_own(k, seen["own", k])
    seen["evaluation"] = server.evaluate()
    seen["state"] = server.state()
    for client in clients.values():
        client.restore(seen["state"])
    # As an asynchronous round has it.
    server.begin_update(1)
    seen["update"] = bytes(server.broadcast(1))
    server.adapters_buffer(1)[:] = clients[1].adapters()
    server.mix(1, 1)
    server.mix(1, 0)
    server.apply_buffer()
    seen["mixed"] = server.state()
    server.keep()
    server.restore(seen["state"])
    seen["restored"] = server.state()
    seen["kept"] = server.evaluate(0)
    return {name: bytes(v) if isinstance(v, memoryview) else v for name, v in seen.items()}


@pytest.mark.parametrize("differ", [False, True])
def test_what_the_host_computes_is_what_a_node_would(
    settings: Settings, computing: tuple[Path, int], differ: bool
) -> None:
    if differ:
        training = replace(settings.training, ranks=(4, 2), learning_rates=(1e-3, 3e-3))
        codecs = {
            "adapters_down": ("int8", {}),
            "adapters_up": ("top-k", {}),
            "gradient": ("int4", {}),
        }
        settings = replace(settings, training=training, batch_sizes=(2, 4), codecs=codecs)
    place, _ = computing
    splits = [1, 3]
    server, learning = RealServer(settings), asdict(settings)
    sizes = [sizes_of(server, split, k) for k, split in enumerate(splits, 1)]
    here = play(server, {k: RealClient(settings, k) for k in (1, 2)}, sizes, splits)
    there = play(
        OffloadServer(place, learning),
        {k: OffloadClient(place, learning, k) for k in (1, 2)},
        sizes,
        splits,
    )
    assert [name for name in here if here[name] != there[name]] == []
    assert here["update"] != b""
    assert here["mixed"] != here["state"] == here["restored"]
    assert here["kept"] != here["evaluation"]
    left = [path for path in place.rglob("*.a*") if path.suffix in {".asked", ".answer"}]
    assert left == [], "what has been answered lies about"


def test_so_are_gradients_that_are_averaged_over_the_clients(
    settings: Settings, computing: tuple[Path, int]
) -> None:
    place, _ = computing
    settings = replace(settings, shared_samples=3)
    server, learning = RealServer(settings), asdict(settings)
    sizes = [sizes_of(server, 2)] * 2
    here = play(server, {k: RealClient(settings, k) for k in (1, 2)}, sizes, [2, 2])
    clients = {k: OffloadClient(place, learning, k) for k in (1, 2)}
    there = play(OffloadServer(place, learning), clients, sizes, [2, 2])
    assert here == there
    assert here["shared gradient", 0, 1]


def test_what_stays_with_uavs_is_the_same_there(
    computing: tuple[Path, int], tmp_path: Path
) -> None:
    model = ModelConfig("resnet_nano_32", 5, adapters="full", batch_norm="local")
    backbone = str(backbone_file(model, tmp_path))
    settings = buffered(small_settings(tmp_path, clients=2, model=model, backbone=backbone))
    learning, server = asdict(settings), RealServer(settings)
    sizes = [sizes_of(server, 2)] * 2
    here = play(server, {k: RealClient(settings, k) for k in (1, 2)}, sizes, [2, 2])
    remote = {k: OffloadClient(computing[0], learning, k) for k in (1, 2)}
    there = play(OffloadServer(computing[0], learning), remote, sizes, [2, 2])
    assert [name for name in here if here[name] != there[name]] == []
    assert here["own", 1] != here["own", 2]
    state = safetensors.torch.load(here["state"])
    for k in (1, 2):
        for name, tensor in safetensors.torch.load(here["own", k]).items():
            assert torch.equal(tensor, state[f"clients.{k}.{name}"])


def test_what_goes_wrong_there_is_said_by_whoever_waits_next(
    settings: Settings, computing: tuple[Path, int]
) -> None:
    place, _ = computing
    client = OffloadClient(place, asdict(replace(settings, backbone="/nowhere")), 1)
    client.begin_round(0, 1, sizes_of(RealServer(settings), 1))
    with pytest.raises(RuntimeError, match="nowhere") as raised:
        client.adapters_header()
    assert type(raised.value).__name__ == "FileNotFoundError"
    assert "load_model" in raised.value.__notes__[0]


def test_a_node_learns_that_nobody_computes_for_it_any_more(
    settings: Settings, computing: tuple[Path, int]
) -> None:
    place, pid = computing
    before = {child.pid for child in psutil.Process(pid).children()}
    client = OffloadClient(place, asdict(settings), 2)
    while not (own := {child.pid for child in psutil.Process(pid).children()} - before):
        time.sleep(0.01)
    os.kill(own.pop(), signal.SIGKILL)
    client.forward(1)
    with pytest.raises(RunError, match=r"the worker of uav2 ended with SIGKILL"):
        client.smashed()


def test_its_process_ends_with_the_node_and_all_with_who_asks_for_them(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    starter = (
        "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-m',"
        "'workloads.offload.worker', sys.argv[1]]); print(p.pid, flush=True); time.sleep(999)"
    )
    words = [sys.executable, "-c", starter, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        there = psutil.Process(int(process.stdout.readline()))
        ended, stays = (Caller(tmp_path, name, asdict(settings), 1) for name in ("a", "b"))
        stays("notes")
        while len(children := there.children()) < 2:
            time.sleep(0.01)
        while not (printed := [*tmp_path.glob(f"a-*/{PRINTED}")]):
            time.sleep(0.01)
        printed[0].write_text("a library warns\n")
        ended.close()
        assert capsys.readouterr().err == "a library warns\n"
        while len(there.children()) == 2:
            time.sleep(0.01)
        process.kill()
    psutil.wait_procs([there, *children], timeout=30)
    shutil.rmtree(tmp_path)  # So that nobody waits for an answer when this process ends.
    assert gone([there, *children])


def test_a_nodes_program_ends_who_computes_for_it(
    settings: Settings, computing: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, pid = computing
    before = {child.pid for child in psutil.Process(pid).children()}
    monkeypatch.setattr(inside, "computing", lambda: place)
    learning, folders = asdict(settings), {*nodes(place)}
    plain = TransportSettings("00" * 16, 60.0)
    for order in (
        SetUpBaseStation(plain, 0.0, learning, paradigm("sfl-pp")),
        SetUpUav(1, plain, 0.0, learning),
    ):
        ours, its = socket.socketpair()
        with its:
            with ours:
                at_orchestrator(ours).send(order)
            assert program.main(at_node(its)) == 1
    assert len({*nodes(place)} - folders) == 2, "nobody was asked"
    while {child.pid for child in psutil.Process(pid).children()} - before:
        time.sleep(0.01)


def test_a_guest_rests_while_it_can_only_wait_and_goes_on_with_the_answer(
    settings: Settings,
) -> None:
    """A process that computes stands in for the guest, and this one for a node in it."""
    with stand_in("while True: pass") as guest, answered(os.environ) as place:
        rests_while_waiting(place, guest.pid)
        rested = threading.Thread(target=until_status, args=(guest, "stopped"))
        rested.start()
        client = OffloadClient(place, asdict(settings), 1)
        client.begin_round(0, 1, sizes_of(RealServer(settings), 1))
        assert client.adapters_header()
        rested.join(60)
        assert not rested.is_alive(), "it was never stopped"
        until_status(guest, "running")


def test_a_guest_goes_on_where_nobody_answers_any_more(settings: Settings) -> None:
    with stand_in("import time; time.sleep(999)") as guest, answered(os.environ) as place:
        rests_while_waiting(place, guest.pid)
        answering = process_of(place)
        client = OffloadClient(place, asdict(settings), 1)
        answering.kill()
        guest.suspend()
        with pytest.raises(RunError, match=r"the host.s worker ended with status -9"):
            client.adapters()
        until_status(guest, "sleeping")


@contextmanager
def stand_in(program: str) -> Iterator[psutil.Process]:
    """A process for a guest's."""
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        try:
            yield psutil.Process(process.pid)
        finally:
            process.kill()


def until_status(process: psutil.Process, status: str) -> None:
    while process.status() != status:
        time.sleep(0.001)


def test_who_computes_nothing_for_long_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workloads.offload import worker as module

    (tmp_path / asked(0)).touch()
    child = module._Child(tmp_path, psutil.Process())
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(child.process, "cpu_times", lambda: (1.0, 1.0))
    assert not child.hangs()
    now[0] = module.HANG_S - 1
    assert not child.hangs()
    now[0] = module.HANG_S + 1
    assert child.hangs()
    (tmp_path / answer(0)).touch()
    assert not child.hangs()


@pytest.mark.skipif(torch.cuda.is_available(), reason="This machine has a GPU.")
def test_the_host_computes_on_the_device_of_the_scenario(
    settings: Settings, computing: tuple[Path, int]
) -> None:
    place, _ = computing
    client = OffloadClient(place, asdict(replace(settings, device="cuda")), 1)
    client.begin_round(0, 1, sizes_of(RealServer(settings), 1))
    with pytest.raises(RuntimeError, match="device: cuda does not exist"):
        client.adapters_header()
    client.close()
    assert takes_gpu(Uavs(tx_power_w=[1.0], device="cuda:1"))
    assert not takes_gpu(Uavs(tx_power_w=[1.0], device="auto"))
    assert torch_device("auto") == torch.device("cpu")
