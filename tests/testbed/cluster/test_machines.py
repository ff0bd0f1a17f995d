# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Whose CPU time is whose, where hosts are machines of their own or share one."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.cluster import machines
from testbed.cluster.machines import Machines
from testbed.control.messages import MachineNow
from testbed.core.node import BS, uav
from testbed.system.machine import Machine

THEN = Machine(1000, 1000, 400, 0, 100, 5.0)
NODES_S = {BS: 0.25, uav(1): 0.5, uav(2): 1.0, uav(3): 2.0}
PLACES = {BS: "a", uav(1): "a", uav(2): "b", uav(3): "c"}


def world(boots: dict[str, str], later: bool = False, **places: Any) -> Any:
    """Hosts by the machines that they are on; later, an injector each has taken 0.125 s."""
    passed = {"monotonic_ns": 3000, "cpu_ticks": 700, "program_ticks": 300, "own_s": 5.125}
    machine = replace(THEN, **passed) if later else THEN
    hosts = {host: MachineNow(machine, boot) for host, boot in boots.items()}
    return SimpleNamespace(machines=lambda: hosts, places=PLACES if boots else {})


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's kernel is x, and this process takes 0.0625 s meanwhile."""
    monkeypatch.setattr(machines, "boot_id", lambda: "x")
    taken_s = iter([5.0, 5.0625])
    monkeypatch.setattr(Machine, "now", lambda: replace(THEN, own_s=next(taken_s)))


@pytest.mark.parametrize(
    ("boots", "own_s"),
    [
        ({}, {"": 3.8125}),
        ({"a": "x", "b": "y", "c": "z"}, {"": 0.9375, "b": 1.125, "c": 2.125}),
        ({"a": "y", "b": "y", "c": "z"}, {"": 0.0625, "a": 2.0, "c": 2.125}),
        ({"a": "x", "b": "x", "c": "x"}, {"": 4.1875}),
    ],
)
def test_each_machine_is_charged_what_the_run_took_of_it(
    boots: dict[str, str], own_s: dict[str, float]
) -> None:
    before = Machines.now(world(boots))
    passed, elsewhere = before.passed(world(boots, later=True), NODES_S)
    assert {"": passed.own_s} | {host: each.own_s for host, each in elsewhere.items()} == own_s
    for each in elsewhere.values():
        assert (each.monotonic_ns, each.cpu_ticks, each.program_ticks) == (2000, 300, 200)
