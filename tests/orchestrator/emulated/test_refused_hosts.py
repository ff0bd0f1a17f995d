# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What is refused before any host is asked for anything, or because a host differs."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import yaml
from console import run_testbed
from small_scenario import TREE

import orchestrator as tb
from orchestrator.emulated import hosts
from orchestrator.emulated.host_worker import examine
from orchestrator.emulated.hosts import hosts_of
from orchestrator.records.manifest import environment
from orchestrator.scenario.combinations import check
from orchestrator.scenario.loading import validate
from testbed.core.errors import InputError, RunError
from testbed.host.doctor import Finding


def scenario(**emulation: Any):
    """The small one, emulated so."""
    return validate({**deepcopy(TREE), "emulation": emulation}, "test")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The small one, with places."""
    tree = {**deepcopy(TREE), "emulation": {"placement": "spread"}}
    (tmp_path / "placed.yaml").write_text(yaml.safe_dump(tree))
    return tmp_path / "placed.yaml"


@pytest.mark.parametrize("command", ["run", "up"])
def test_places_need_hosts(file: Path, tmp_path: Path, command: str) -> None:
    done = run_testbed(command, file, "--out", tmp_path / "out", check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "testbed: emulation.placement: needs --scheduler, whose hosts nodes are placed on\n"
    )
    assert not (tmp_path / "out").exists()


def test_a_prediction_does_not_ask_where_nodes_live(file: Path) -> None:
    assert len(tb.predict(file)) == 1


@pytest.mark.parametrize(
    ("emulation", "says"),
    [
        ({"runtime": "docker"}, "emulation.runtime: must be 'namespace'"),
        ({"clock": "virtual"}, "emulation.clock: must be 'real'"),
        ({"dilation": "auto"}, "emulation.dilation: must be a number"),
    ],
)
def test_what_several_machines_cannot_do_is_refused(emulation: Any, says: str) -> None:
    with pytest.raises(InputError, match=f"^{says}"):
        check(scenario(**emulation), "--scheduler")


def test_several_machines_cannot_share_an_lte_cell() -> None:
    """No injector sees the queues of all uplinks."""
    radio = {"access": "lte", "uplink_bandwidth_hz": 5e6, "downlink_bandwidth_hz": 5e6}
    tree = {**deepcopy(TREE), "radio": radio}
    with pytest.raises(
        InputError, match=r"^radio.lte.scheduler: must be 'shares' on several machines"
    ):
        check(validate(tree, "test"), "--scheduler")
    tree["radio"]["lte"] = {"scheduler": "shares"}
    check(validate(tree, "test"), "--scheduler")
    tree["emulation"] = {"air": "ns3"}
    with pytest.raises(InputError, match=r"^emulation.air: must be 'links' on several"):
        check(validate(tree, "test"), "--scheduler")


def test_several_machines_cannot_share_a_channel_of_wifi() -> None:
    tree = {**deepcopy(TREE), "radio": {"access": "wifi"}}
    with pytest.raises(InputError, match=r"^radio.access: must not be 'wifi' on several"):
        check(validate(tree, "test"), "--scheduler")


def test_secrets_go_to_schedulers_that_speak_tls_alone() -> None:
    with (
        pytest.raises(InputError, match=r"^`scheduler`: must be tls://…, not tcp://127.0.0.1:1"),
        hosts_of(scenario(), "tcp://127.0.0.1:1", None),
    ):
        pass


def fact(**changes: Any) -> dict[str, Any]:
    """What a host says that is as this machine."""
    return {
        **environment(),
        "address": "10.0.0.1",
        "files": {},
        "mtu": 1550,
        "tunnels": True,
        "lacks": None,
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"source_sha256": "0"}, "host b differs in its sources"),
        ({"python": "2.7"}, "host b differs in python: 2.7 there, "),
        ({"packages": environment()["packages"] | {"numpy": "0"}}, "differs in numpy: 0 there, "),
        ({"address": "fd00::1"}, "host b has no IPv4 address there, but 'fd00::1'"),
    ],
)
def test_a_host_that_differs_is_refused_by_name(changes: dict[str, Any], says: str) -> None:
    hosts._compare({"a": fact()}, [])
    with pytest.raises(InputError, match=f"^`scheduler`: .*{says}"):
        hosts._compare({"a": fact(), "b": fact(**changes)}, [])


def test_a_host_without_the_backbone_is_refused_by_name(tmp_path: Path) -> None:
    backbone = tmp_path / "backbone"
    backbone.write_text("weights")
    has = fact(files={str(backbone): hosts.sha256_of(backbone)})
    lacks = fact(files={str(backbone): None})
    hosts._compare({"a": has}, [str(backbone)])
    with pytest.raises(InputError, match=f"host b lacks {backbone}, or has a different one"):
        hosts._compare({"a": has, "b": lacks}, [str(backbone)])


def test_frames_must_fit_through_tunnels() -> None:
    nodes = {name: {"mtu": mtu, "tunnels": True} for name, mtu in (("a", 1550), ("b", 1549))}

    def placed(*names: str) -> hosts.Hosts:
        return hosts.Hosts(None, {}, nodes, dict(enumerate(names)))

    hosts._check_tunnels(scenario(), placed("b", "b"))
    hosts._check_tunnels(scenario(mtu=1499), placed("a", "b"))
    with pytest.raises(InputError, match=r"^emulation.mtu: 1500 .* host b, .* 1549; at most 1499"):
        hosts._check_tunnels(scenario(), placed("a", "b"))
    # An ordinary user's host has all links relayed.
    nodes["a"]["tunnels"] = False
    with pytest.raises(InputError, match=r"^emulation.mtu: 1498 .* a relay of host b, .* 1497"):
        hosts._check_tunnels(scenario(mtu=1498), placed("a", "b"))
    hosts._check_tunnels(scenario(mtu=1497), placed("a", "b"))


def test_a_kernel_that_lacks_what_links_are_to_have_is_refused_by_its_hosts_name() -> None:
    lacks = "links.queue", "has no pie (the module sch_pie)"
    facts = {"a": fact(), "b": fact(lacks=lacks)}
    hosts._check_kernels(hosts.Hosts(None, {}, facts, {hosts.BS: "a"}))
    there = hosts.Hosts(None, {}, facts, {hosts.BS: "a", hosts.NodeId(1): "b"})
    with pytest.raises(InputError, match=r"^links.queue: the kernel of host b has no pie"):
        hosts._check_kernels(there)


def test_a_host_says_what_its_kernel_lacks() -> None:
    worker = SimpleNamespace(address="tls://127.0.0.1:1")
    said = examine([], "fifo", "cubic", dask_worker=worker)
    assert (said["lacks"], said["mtu"]) == (None, 65536)
    field, there = examine([], "fifo", "vegas9", dask_worker=worker)["lacks"]
    assert field == "emulation.congestion_control"
    assert re.match(r"has .*cubic.*, not 'vegas9'; ", there)


def test_each_host_answers_for_the_transfers_whose_rates_it_set() -> None:
    there = hosts.Hosts(None, {}, {}, {hosts.BS: "a", hosts.NodeId(1): "a", hosts.NodeId(2): "b"})
    table = pd.DataFrame(
        [(1, "uplink", -0.1), (2, "uplink", 0.2), (2, "uplink", -0.4), (2, "downlink", 0.3)],
        columns=["client", "direction", "error"],
    )
    assert there._calibrated("b", table) == pytest.approx({"error_p50": 0.3, "error_max": 0.4})
    assert there._calibrated("a", table) == pytest.approx({"error_p50": 0.2, "error_max": 0.3})
    assert there._calibrated("c", table) is None
    assert there._calibrated("a", None) is None


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What two hosts answer, by their addresses."""
    answers: dict[str, Any] = {}
    client = SimpleNamespace(run=lambda *_, workers, on_error: {at: answers[at] for at in workers})

    @contextmanager
    def connected(*_: object) -> Iterator[Any]:
        yield client, {"beta": "there", "alpha": "here"}

    monkeypatch.setattr(hosts, "_found", connected)
    return answers


def test_each_host_has_a_doctor(found: dict[str, Any]) -> None:
    told = {name: Finding(name, True, "fine", "all", "") for name in ("links", "tunnels")}
    found |= {"here": [told["links"].to_json()], "there": [told["tunnels"].to_json()]}
    answers = hosts.findings_of("tls://scheduler:1", None)
    assert list(answers.items()) == [("alpha", [told["links"]]), ("beta", [told["tunnels"]])]
    found["there"] = RunError("no")
    with pytest.raises(RunError, match=r"^host beta: its doctor failed \(no\)"):
        hosts.findings_of("tls://scheduler:1", None)
