# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Claims of campaigns: verdicts, tables, and claims that are refused."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_campaign import campaign_tree, write_campaign
from typer.testing import CliRunner

from orchestrator.campaigning.claims import Judged, judge
from orchestrator.campaigning.cluster import run_campaign
from orchestrator.campaigning.folder import CampaignFolder
from orchestrator.campaigning.spec import load_campaign
from orchestrator.cli.main import app
from testbed.core.errors import InputError
from testbed.host.dask_cluster import Cluster

FASTER = {
    "says": "CPSFL is faster than SFL-PP",
    "source": "somewhere",
    "of": "latency_s",
    "cell": {"u": 2, "paradigm": "cpsfl"},
    "than": {"u": 2, "paradigm": "sfl-pp"},
    "expect": "lower",
}


def tree_with(folder: Path, **claim: Any) -> dict[str, Any]:
    study = campaign_tree(folder)["studies"]["split"] | {"claims": [FASTER | claim]}
    return {"studies": {"split": study}}


def judged(folder: Path, ours: list[float], theirs: list[float], **claim: Any) -> Judged:
    """The verdict on values of two cells, seed by seed."""
    campaign = load_campaign(write_campaign(folder, **tree_with(folder, **claim)))
    whole = {"study": "split", "mode": "predict", "status": "finished", "valid": True, "u": 2}
    rows = [
        whole | {"paradigm": paradigm, "seed": seed, "latency_s": latency_s}
        for paradigm, values in (("cpsfl", ours), ("sfl-pp", theirs))
        for seed, latency_s in enumerate(values)
    ]
    (found,) = judge(campaign, pd.DataFrame(rows))
    return found


@pytest.mark.parametrize(
    ("ours", "theirs", "claim", "verdict"),
    [
        ([0.7, 0.8, 0.75], [1.0, 1.0, 1.0], {}, "holds"),
        ([0.7, 0.8, 0.75], [1.0, 1.0, 1.0], {"by": 0.3}, "weaker"),
        ([0.7, 1.2, 0.75], [1.0, 1.0, 1.0], {}, "weaker"),
        ([1.2, 1.1, 1.3], [1.0, 1.0, 1.0], {}, "does not hold"),
        ([1.2, 1.15, 1.25], [1.0, 1.0, 1.0], {"expect": "higher"}, "holds"),
        ([1.0, 1.0, 1.0], [1.0, 1.0, 1.0], {"expect": "higher"}, "does not hold"),
        ([0.7, 0.7, 0.7], [1.0, 1.0, 1.0], {}, "holds"),
        ([0.7], [1.0], {}, "weaker"),
        ([0.7, math.nan, 0.75], [1.0, 1.0, 1.0], {}, "weaker"),
        ([math.nan, math.nan], [1.0, 1.0], {}, "not judged"),
        ([1.01, 0.99, 1.0], [1.0, 1.0, 1.0], {"expect": "equal", "by": 0.05}, "holds"),
        ([1.08, 0.94, 1.0], [1.0, 1.0, 1.0], {"expect": "equal", "by": 0.05}, "weaker"),
        ([1.2, 1.1, 1.3], [1.0, 1.0, 1.0], {"expect": "equal", "by": 0.05}, "does not hold"),
    ],
)
def test_verdicts(
    tmp_path: Path, ours: list[float], theirs: list[float], claim: dict[str, Any], verdict: str
) -> None:
    assert judged(tmp_path, ours, theirs, **claim).verdict == verdict


def test_the_interval_is_student_s_of_the_differences_by_seed(tmp_path: Path) -> None:
    one = judged(tmp_path, [0.7, 1.6, 2.25], [1.0, 2.0, 3.0])
    assert one.difference.value == pytest.approx(-0.25)
    half = 4.302653 * np.std([0.3, 0.2, 0.25], ddof=1) / math.sqrt(3)
    assert one.difference.high - one.difference.value == pytest.approx(half, rel=1e-6)
    assert one.sentence == (
        "CPSFL is faster than SFL-PP (somewhere): holds. "
        "Average per-round latency: −25 % (−37 to −13), 3 seeds."
    )


@pytest.mark.parametrize(
    ("claim", "place"),
    [
        ({"cell": {"u": 2}}, "claims.0.cell: must have a value of u, paradigm"),
        ({"than": {"u": 7, "paradigm": "cpsfl"}}, r"claims.0.than.u: 7 is not one of 2, 3"),
        ({"expect": "equal"}, "by: 'equal' needs the largest difference"),
        ({"of": "speed"}, "claims.0.of: .*'speed'"),
    ],
)
def test_wrong_claims_are_refused(tmp_path: Path, claim: dict[str, Any], place: str) -> None:
    with pytest.raises(InputError, match=place):
        load_campaign(write_campaign(tmp_path, **tree_with(tmp_path, **claim)))


def test_tables_and_report_give_means_and_verdicts(tmp_path: Path) -> None:
    tree = tree_with(tmp_path, of="bytes", expect="equal", by=0.01)
    campaign = load_campaign(write_campaign(tmp_path, **tree))
    folder = CampaignFolder(tmp_path / "out")
    run_campaign(campaign, folder, cluster=Cluster(workers=0))
    written = tmp_path / "tables.json"
    done = CliRunner().invoke(app, ["campaign", "table", str(folder.path), "--json", str(written)])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert (
        lines[0]
        == "| u | Paradigm | Average per-round latency (s) | Payload of a round (B) | seeds |"
    )
    assert "| **holds** | 0 % in each of 2 seeds |" in lines[-1]
    found = json.loads(written.read_text())
    points = pd.read_parquet(folder.path / "results" / "points.parquet")
    first = points[(points["u"] == 2) & (points["paradigm"] == "cpsfl")]
    (row,) = [r for r in found["means"]["split"] if (r["u"], r["paradigm"]) == (2, "cpsfl")]
    assert row["bytes"] == first["bytes"].mean() > 0
    assert found["claims"][0]["verdict"] == "holds"
    assert CliRunner().invoke(app, ["campaign", "report", str(folder.path)]).exit_code == 0
    assert "holds</span>" in (folder.path / "report.html").read_text()
    assert list((folder.path / "figures").glob("*.svg"))
