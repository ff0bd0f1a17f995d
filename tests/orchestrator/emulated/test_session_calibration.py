# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The calibration of sessions: what their programs say, and how it ends where one fails."""

import itertools
import json
import socket
import subprocess
import sys
from dataclasses import asdict

import numpy as np
import pytest
from small_scenario import TREE

from orchestrator import api
from orchestrator.emulated import session_calibration as calibration
from orchestrator.emulated.calibration import trial_of
from orchestrator.emulated.options import SessionOptions
from orchestrator.scenario.loading import validate
from testbed.control.messages import Probe
from testbed.core.clock import next_tick
from testbed.core.errors import RunError
from testbed.network.shaping import Shape
from testbed.runtimes import Module
from workloads.nodes.probing import Task


def test_in_a_cell_that_is_shared_each_downlink_finds_it_free() -> None:
    rates = np.full((3, 10), 2e7)
    trial = trial_of(rates, rates, 0.1, Shape(), 1.0, in_turns=True, gap_s=0.02)
    sizes = {probe: 8 * probe.payload_bytes / 2e7 for _, probe in trial.transfers}
    downlinks = sorted((p for p in sizes if not p.upward), key=lambda probe: probe.start_s)
    assert [probe.client for probe in downlinks] == [1, 2, 3] * 3
    for before, after in itertools.pairwise(downlinks):
        assert after.start_s - before.start_s - sizes[before] > 0.019


def test_both_ends_meet_over_a_link_and_say_what_came() -> None:
    """Over loopback, with the base station's end as the program that it is."""
    probes = (Probe(1, True, 0.0, 50_000), Probe(1, False, 0.1, 30_000))
    alone = "import sys; from workloads.nodes import probing; "
    alone += "probing.link_addresses = lambda k: ('127.0.0.1', '127.0.0.1'); "
    alone += f"probing.PORT = {free_port()}; sys.exit(probing.main())"
    ends = [
        subprocess.Popen(
            [sys.executable, "-c", alone], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for client, end in enumerate(ends):
        task = Task(client, 1, "127.0.0.1", 30.0, 0.0, probes)
        say(end, asdict(task))
        assert hear(end) == ("listening" if client == 0 else "connected")
    assert hear(ends[0]) == "connected"
    start_ns = next_tick() + 100_000_000
    for end in ends:
        say(end, (start_ns, 0.0, 1.0))
    upward, downward = hear(ends[0]), hear(ends[1])
    assert [row[:2] for row in upward + downward] == [[1, 0], [1, 1]]
    for (_, _, start_s, end_s), probe in zip(upward + downward, probes, strict=True):
        assert probe.start_s <= start_s < end_s
    for end in ends:
        with end:
            end.communicate(timeout=30)
        assert end.returncode == 0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def say(end: "subprocess.Popen[str]", what: object) -> None:
    assert end.stdin is not None
    end.stdin.write(json.dumps(what) + "\n")
    end.stdin.flush()


def hear(end: "subprocess.Popen[str]") -> list[list[float]]:
    assert end.stdout is not None
    return json.loads(end.stdout.readline())


def test_an_end_that_fails_is_named_with_its_last_words_and_nothing_is_left(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(calibration, "PROGRAM", Module("nonesuch"))
    with pytest.raises(RunError, match=r"^calibration: bs: .*No module named nonesuch$"):
        api.play_session(
            validate(TREE, "small"),
            {"gain": np.full((3, 400), 1e-10), "slot_s": 0.1},
            tmp_path / "out",
            {"uav1": "true"},
            SessionOptions(),
        )
    assert not (tmp_path / "out").exists()
