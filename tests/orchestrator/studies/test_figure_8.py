# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Figure 8's campaign on a few rounds."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from orchestrator.campaigning.folder import CampaignFolder
from orchestrator.campaigning.spec import cells, load_campaign
from orchestrator.policies.agent import Settings
from orchestrator.studies import figure_8 as fig8
from testbed.core.errors import InputError
from testbed.host.dask_cluster import Cluster

CAMPAIGN = load_campaign(Path(__file__).parents[3] / "campaigns" / "figure8.yaml")
ALONE = Cluster(workers=0)


def test_figure_8_is_made_and_resumes_where_it_stood(tmp_path, monkeypatch):
    monkeypatch.setattr(fig8, "LAST", 12)
    options = {"entries": ("equal", "drl", "planner"), "seeds": (1, 2), "rounds": 24}
    made = fig8.run(tmp_path, CAMPAIGN, **options, weights=(4.0,), cluster=ALONE)
    assert made["policy"].tolist() == [
        "Equal shares, u = 2",
        "DRL",
        "DRL, deterministic",
        "Planner",
        "Lower bound of the planner's rounds",
    ]
    by_name = made.set_index("policy")["objective"]
    assert by_name["Lower bound of the planner's rounds"] < by_name["Planner"]
    assert by_name["Planner"] < by_name["Equal shares, u = 2"]
    folder = CampaignFolder(tmp_path)
    placed = {
        (c.axes["policy"], c.seed): c.point.id
        for c in cells(folder.campaign())
        if c.study == "fig8"
    }
    for title, entry, table in (
        ("Equal shares, u = 2", "equal", "rounds"),
        ("DRL", "drl", "rounds"),
        ("DRL, deterministic", "drl", "deterministic"),
    ):
        rows = [
            pd.read_parquet(tmp_path / "points" / placed[entry, seed] / f"{table}.parquet")
            for seed in (1, 2)
        ]
        assert [len(each) for each in rows] == [24, 24]
        means = [each["objective"][12:].mean() for each in rows]
        assert by_name[title] == pytest.approx(np.mean(means))
    # What is drawn and what is done without drawing are not the same rounds.
    assert by_name["DRL"] != by_name["DRL, deterministic"]
    # λ = 4 with the first seed stands in both studies, and was computed once.
    assert len(list((tmp_path / "points").iterdir())) == 6
    pairs = pd.read_csv(tmp_path / "fig8_paired.csv")
    assert (pairs["seeds"] == 2).all()
    for name in ("fig8.png", "fig8.pdf", "fig8_front.png", "fig8_front.pdf", "fig8_front.csv"):
        assert (tmp_path / name).stat().st_size > 0
    (finding,) = json.loads((tmp_path / "summary.json").read_text())
    assert finding["paper"] == "105.8"
    assert finding["deviation"] == pytest.approx(by_name["DRL"] / 105.8 - 1)
    assert finding["agrees"] is (abs(finding["deviation"]) <= 0.02)
    again = []
    second = fig8.run(
        tmp_path,
        CAMPAIGN,
        **options,
        weights=(4.0,),
        cluster=ALONE,
        progress=lambda *done: again.append(done),
    )
    pd.testing.assert_frame_equal(made, second)
    assert again == [(6, 6)]  # nothing was left to do


def test_every_entry_says_what_its_number_is():
    """122.3 is of the scheme whose agent chooses u; what we chose stands beside the agents'."""
    assert set(CAMPAIGN.studies["fig8"].axes["policy"].points) == set(fig8.ENTRIES)
    assert [name for name, entry in fig8.ENTRIES.items() if entry.paper == 122.3] == ["fixed-ra"]
    assert "122.3 is for fixed RA" in fig8.ENTRIES["equal"].note
    settings = Settings()
    for name in ("drl", "drl-", "fixed-u", "pipesfl"):
        note = fig8._with_settings(fig8.ENTRIES[name].note)
        assert f"concentration {settings.concentration:g}" in note
        assert f"logit_scale {settings.logit_scale:g}" in note


def test_a_folder_of_an_earlier_figure_8_is_refused_in_one_line(tmp_path):
    (tmp_path / "campaign.json").write_text("{}")
    with pytest.raises(InputError, match="exists already and contains no campaign"):
        fig8.run(tmp_path, CAMPAIGN, entries=("equal",), seeds=(1,), rounds=1, cluster=ALONE)


def test_unknown_entries_are_refused(tmp_path):
    with pytest.raises(InputError, match="reproduce: 'sarsa' is not one of equal"):
        fig8.run(tmp_path, CAMPAIGN, entries=("sarsa",))
