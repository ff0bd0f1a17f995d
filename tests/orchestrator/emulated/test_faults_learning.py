# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Emulated runs learn what one process does, to the last bit, however long they take."""

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest
import yaml
from console import run_testbed

import orchestrator as tb
from orchestrator.emulated.learning import learning_settings, place
from orchestrator.engine.plan import fixed_allocation, round_sizes
from orchestrator.scenario.loading import load
from orchestrator.scenario.profiles import profile_of
from workloads.learning.real import RealClient, RealServer, Settings

CLOCKS = pytest.mark.parametrize(
    "clock", ["real", pytest.param("virtual", marks=pytest.mark.guest)]
)


@CLOCKS
def test_the_average_is_that_of_those_who_finished(tmp_path: Path, clock: str) -> None:
    path = tmp_path / "learns.yaml"
    crash = {"kind": "uav-crash", "nodes": ["uav1"], "round": 1, "at_s": 0.2}
    path.write_text(
        yaml.safe_dump(
            learning(2, rounds=2)
            | {
                # So long that nobody else is lost on a busy machine.
                "faults": {"on_loss": "drop", "loss_timeout_s": 3, "events": [crash]},
            }
        )
    )
    run_testbed("run", path, "--out", tmp_path / "run", "--set", f"emulation.clock={clock}")
    lost = pd.read_parquet(tmp_path / "run" / "lost.parquet").query("kind == 'measured'")
    assert lost[["round", "client"]].to_numpy().tolist() == [[1, 1]]
    batches = pd.read_parquet(tmp_path / "run" / "learning.parquet")
    assert len(batches.query("round == 1 and client != 1")) == 4

    assert (tmp_path / "run" / "adapters.safetensors").read_bytes() == in_one_process(
        path, ([1, 2, 3], [2, 3])
    )


@pytest.mark.parametrize(
    "clock", ["real", pytest.param("virtual", marks=[pytest.mark.guest, pytest.mark.full])]
)
def test_clients_cut_at_different_points_learn_what_one_process_does(
    tmp_path: Path, clock: str
) -> None:
    path, out, result = tmp_path / "mixed.yaml", tmp_path / "run", tmp_path / "run.json"
    path.write_text(yaml.safe_dump(learning([3, 1, 2], rounds=2)))
    words = ["--out", out, "--json", result, "--set", f"emulation.clock={clock}"]
    run_testbed("run", path, *words)
    run = json.loads(result.read_text())
    for kind in ("predicted", "predicted_wire", "measured"):
        assert [round_["split"] for round_ in run[kind]] == [[3, 1, 2]] * 2
    sizes = {s["client"]: s["bytes"] for s in run["measured"][0]["steps"] if s["step"] == "CA"}
    assert sizes == {1: 4 * 2 * 4 * 4 * 128, 2: 4 * 2 * 16 * 16 * 32, 3: 4 * 2 * 8 * 8 * 64}
    read = tb.read_run(out)
    assert [round_.split for round_ in read.measured] == [(3, 1, 2)] * 2
    assert "1–3, by client" in (out / "report.html").read_text()
    assert (out / "adapters.safetensors").read_bytes() == in_one_process(path, [[1, 2, 3]] * 2)


def learning(split: object, rounds: int) -> dict[str, object]:
    """A scenario of three UAVs that really learn."""
    return {
        "rounds": rounds,
        "uavs": {"tx_power_w": [1, 0.4, 0.1], "compute_flops": 1e9},
        "base_station": {"compute_flops": 1e10},
        "workload": {
            "model": "swin_nano_patch4_window4_64",
            "classes": 5,
            "split": split,
            "batch_size": 2,
            "local_iterations": 2,
            "data": {"samples": 60},
        },
    }


def in_one_process(path: Path, who: Sequence[Sequence[int]]) -> bytes:
    """The global state after rounds of these clients, whose bytes no link carried."""
    parsed = load(path)
    settings = Settings.from_json(learning_settings(parsed) | place(parsed.base_station))
    server = RealServer(settings)
    clients = {k: RealClient(settings, k) for k in (1, 2, 3)}
    profile, splits = profile_of(parsed), fixed_allocation(parsed).splits.tolist()
    sizes = [round_sizes(parsed, profile, u) for u in splits]
    for round_, here in enumerate(who):
        server.begin_round(round_, splits, sizes)
        for k in here:
            clients[k].begin_round(round_, splits[k - 1], sizes[k - 1])
            clients[k].adapters_buffer()[:] = server.broadcast(k)
            clients[k].load_adapters()
        for iteration in (1, 2):
            for k in here:
                clients[k].forward(iteration)
                smashed, labels = clients[k].smashed()
                server.smashed_buffer(k)[:], server.labels_buffer(k)[:] = smashed, labels
                server.forward_backward([k])
                gradient, _ = server.served(k)
                clients[k].gradient_buffer()[:] = gradient
                clients[k].backward()
        for k in here:
            server.adapters_buffer(k)[:] = clients[k].adapters()
        server.aggregate(here)
    return server.state()
