# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A campaign compares and draws numbers that a package makes of timelines."""

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from packages import importable, write_package
from small_campaign import campaign_tree, write_campaign

from orchestrator.analysis import metrics
from orchestrator.campaigning.cluster import run_campaign
from orchestrator.campaigning.folder import CampaignFolder
from orchestrator.campaigning.report import write_campaign_report
from orchestrator.campaigning.results import write_results
from orchestrator.campaigning.spec import cells, load_campaign
from testbed.core.errors import InputError, RunError
from testbed.core.timeline import Timeline
from testbed.host.dask_cluster import Cluster

MODULE = """
def waiting(timeline):
    first = timeline.rounds[0]
    return {"rounds": len(timeline.rounds), "last_s": timeline.rounds[-1].end_s}


def doubled(timeline):
    return 2 * timeline.rounds[0].latency_s


def words(timeline):
    return "many"
"""
ENTRIES = """
[testbed.metrics]
waiting = measurer:waiting
doubled = measurer:doubled
words = measurer:words
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    write_package(tmp_path / "site", "measurer", MODULE, ENTRIES)
    with importable(tmp_path / "site", "measurer", monkeypatch):
        yield


def test_a_campaign_compares_and_draws_them(tmp_path: Path) -> None:
    study = campaign_tree(tmp_path)["studies"]["split"]
    study["compare"]["of"] = ["latency_s", "doubled", "waiting.last_s"]
    study["plot"] = [{"x": "u", "lines": "paradigm", "y": "doubled"}]
    campaign = load_campaign(write_campaign(tmp_path, studies={"split": study}))
    folder = CampaignFolder(tmp_path / "out")
    done = run_campaign(campaign, folder, cluster=Cluster(workers=0))
    assert not done.failed
    results = write_results(folder, campaign)
    points = pd.read_parquet(results / "points.parquet")
    rounds = pd.read_parquet(results / "rounds.parquet").set_index(["point", "round"])
    for row in points.to_dict("records"):
        assert row["doubled"] == 2 * rounds.loc[(row["point"], 0), "latency_s"]
        last = rounds.loc[(row["point"], 2)]
        assert row["waiting.last_s"] == pytest.approx(last["start_s"] + last["latency_s"])
    assert "waiting.rounds" not in points
    page = write_campaign_report(folder, campaign).read_text()
    assert "waiting.last_s" in page
    assert list((folder.path / "figures").glob("*doubled*.png"))


def test_points_without_a_metric_stay_the_points_that_they_were(tmp_path: Path) -> None:
    plain = load_campaign(write_campaign(tmp_path))
    assert all(cell.point.options.metrics == [] for cell in cells(plain))
    study = campaign_tree(tmp_path)["studies"]["split"]
    study["compare"]["of"] = ["latency_s", "objective"]
    same = load_campaign(write_campaign(tmp_path, studies={"split": study}))
    assert [c.point.id for c in cells(same)] == [c.point.id for c in cells(plain)]
    study["compare"]["of"] = ["doubled"]
    other = load_campaign(write_campaign(tmp_path, studies={"split": study}))
    assert {c.point.id for c in cells(other)}.isdisjoint(c.point.id for c in cells(plain))


def test_a_metric_that_is_none_is_refused(tmp_path: Path) -> None:
    study = campaign_tree(tmp_path)["studies"]["split"]
    study["compare"]["of"] = ["dubbled"]
    says = "studies.split.compare.of.0: 'dubbled' is not one of latency_s, max_energy_j"
    with pytest.raises(InputError, match=re.escape(says)):
        load_campaign(write_campaign(tmp_path, studies={"split": study}))


def test_what_is_no_number_is_said() -> None:
    with pytest.raises(RunError, match="metric 'words': must return numbers, not 'many'"):
        metrics.values_of("words", metrics.metric("words"), Timeline([]))
