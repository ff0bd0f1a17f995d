# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Campaigns of sessions: nodes run commands of their own, and what they write is read."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from small_scenario import AT_ONCE

from ns3_scenarios.trace import ChannelTrace
from orchestrator.campaigning.cluster import run_campaign
from orchestrator.campaigning.folder import CampaignFolder
from orchestrator.campaigning.report import write_campaign_report
from orchestrator.campaigning.results import write_results
from orchestrator.campaigning.spec import cells, load_campaign
from orchestrator.campaigning.verify import compare
from orchestrator.emulated.session_request import SESSION_METRICS
from testbed.core.errors import InputError
from testbed.host.dask_cluster import Cluster

WRITES = """
import json, os, sys, time
number = int(os.environ["SIZE"]) * int(os.environ["TESTBED_NODE"][-1])
os.makedirs(folder := os.path.expanduser("~/out"))
with open(folder + "/r.json", "w") as file: json.dump({"runs": [{"b": number}]}, file)
print(f"rtt = {number} ms\\nrtt = {number + 1} ms")
time.sleep(1.2)  # into several slots
sys.exit(int(os.environ["SIZE"]) == 9)
"""
READS = {
    "b": {"file": "out/r.json", "key": "runs.0.b", "over": "sum"},
    "rtt_ms": {"node": "uav2", "pattern": "^rtt = ([0-9]+)"},
}


def campaign(folder: Path, scenario: Any = None, **study: Any) -> Path:
    ChannelTrace(np.full((2, 400), 1e-10), 0.1).save(folder / "trace.npz")
    (folder / "writes.py").write_text(WRITES)
    uavs = {"command": [sys.executable, str(folder / "writes.py")]}
    tree = {
        "name": "up",
        "scenario": scenario
        or {"uavs": {"tx_power_w": [1, 0.4]}, "nodes": {"uav*": uavs}, "emulation": AT_ONCE},
        "set": {"seconds": 20},
        "mode": "up",
        "studies": {
            "s": {
                "trace": "trace.npz",
                "axes": {
                    "size": {"points": {n: {"nodes.uav*.env": {"SIZE": n}} for n in (3, 5, 9)}}
                },
                "reads": READS,
                "plot": [{"x": "size", "y": "b"}],
                "compare": {"over": "size", "baseline": 3, "of": ["rtt_ms"]},
            }
            | study
        },
    }
    (folder / "up.yaml").write_text(yaml.safe_dump(tree))
    return folder / "up.yaml"


def test_what_programs_write_is_compared_and_drawn(tmp_path: Path) -> None:
    loaded = load_campaign(campaign(tmp_path))
    folder = CampaignFolder(tmp_path / "out")
    done = run_campaign(loaded, folder, cluster=Cluster(workers=0))
    ((failed, why),) = done.failed.items()
    assert "uav1: ended with status 1" in why
    assert "saying 'rtt = 10 ms'" in why
    points = pd.read_parquet(write_results(folder, loaded) / "points.parquet").set_index("size")
    assert points.b.dropna().to_dict() == {3: 9, 5: 15}
    assert points.rtt_ms.dropna().to_dict() == {3: 7, 5: 11}
    assert points.status.to_dict() == {3: "finished", 5: "finished", 9: "failed"}
    assert points.loc[9, "point"] == failed
    page = write_campaign_report(folder, loaded).read_text()
    assert "2 sessions" in page
    assert list((folder.path / "figures").glob("s-b*.png"))
    stored = folder.path / "points" / points.loc[3, "point"]
    assert (stored / "nodes/uav2/out/r.json").is_file()
    assert (stored / "report.html").is_file()
    other = folder.path / "points" / points.loc[5, "point"]
    files = {str(p.relative_to(other)): p.read_bytes() for p in other.rglob("*") if p.is_file()}
    assert compare(stored, files)[0] == "differs"
    figures = pd.read_parquet(other / "metrics.parquet").set_index("metric")["value"]
    assert set(figures.index) == {"b", "rtt_ms", *SESSION_METRICS}
    assert figures["session_s"] > 0
    same = {p.name: p.read_bytes() for p in stored.iterdir() if p.is_file()}
    assert compare(stored, same) == ("equal", "")


@pytest.mark.guest
def test_programs_run_in_virtual_time_too_and_what_they_say_comes_out(tmp_path: Path) -> None:
    uavs = {"command": [sys.executable, str(tmp_path / "writes.py")]}
    scenario = {
        "uavs": {"tx_power_w": [1, 0.4]},
        "nodes": {"uav*": uavs},
        "emulation": {"clock": "virtual"} | AT_ONCE,
    }
    fails = {"size": {"points": {9: {"nodes.uav*.env": {"SIZE": 9}}}}}
    loaded = load_campaign(campaign(tmp_path, scenario, axes=fails, plot=[], compare=None))
    done = run_campaign(loaded, CampaignFolder(tmp_path / "out"), cluster=Cluster(workers=0))
    (why,) = done.failed.values()
    assert why.startswith("uav1: ended with status 1 after 1.2 s, saying 'rtt = 10 ms'; uav2:")


def test_a_script_that_changed_makes_another_point(tmp_path: Path) -> None:
    from orchestrator.campaigning.spec import digest_of

    file = campaign(tmp_path)
    before = [cell.point.id for cell in cells(load_campaign(file))]
    (tmp_path / "writes.py").write_text("print(1)")
    digest_of.cache_clear()
    assert not set(before) & {cell.point.id for cell in cells(load_campaign(file))}


@pytest.mark.parametrize(
    ("read", "says"),
    [
        ({"pattern": "x"}, "studies.s.reads.n.pattern: must have one group, the number; has 0"),
        ({"pattern": "("}, "studies.s.reads.n.pattern: is not a regular expression"),
        ({"file": "../a", "key": "a"}, "studies.s.reads.n.file: must be a path within"),
        ({}, "studies.s.reads.n: needs exactly one of key, pattern"),
        ({"key": "a", "match": "sum"}, "studies.s.reads.n: match goes with pattern"),
        ({"node": "uav7", "key": "a"}, "reads.n.node: 'uav7' is not one of bs, uav1, uav2"),
    ],
)
def test_a_number_that_cannot_be_read_is_refused_by_name(
    tmp_path: Path, read: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError) as refused:
        cells(load_campaign(campaign(tmp_path, reads={"n": read}, plot=[], compare=None)))
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("study", "says"),
    [
        (
            {"mode": "predict"},
            "studies.s.reads: only for sessions (mode 'up'); the mode is 'predict'",
        ),
        ({"plot": [{"x": "size"}]}, "studies.s.plot.0.y: 'latency_s' is not one of b, rtt_ms"),
        ({"set": {"until": ["bs"]}}, "until: bs has no command that could end"),
        ({"set": {"downlink": "both"}}, "downlink: must be 'dedicated' or 'shared'"),
        ({"set": {"bound_rounds": 3}}, "bound_rounds: is not for sessions"),
        (
            {"set": {"allocation.policy": "planner"}},
            "allocation.policy: must be 'fixed' or 'equal' in a session",
        ),
        (
            {"mode": "predict", "reads": {}, "plot": [], "compare": None},
            "seconds: is only for sessions (mode 'up')",
        ),
        (
            {"axes": {"b": [1]}, "plot": [], "compare": None},
            "reads: 'b' is a column of the results",
        ),
    ],
)
def test_what_does_not_fit_a_session_is_refused_by_name(
    tmp_path: Path, study: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError) as refused:
        cells(load_campaign(campaign(tmp_path, **study)))
    assert says in str(refused.value)
