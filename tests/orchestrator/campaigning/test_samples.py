# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Samples of a campaign: equal values and seeds without an effect do not count as further ones."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_campaign import campaign_tree, write_campaign

from orchestrator.analysis.axes import Axis
from orchestrator.analysis.statistics import half_width, independent, mean_of, resampled, share_of
from orchestrator.campaigning.cluster import run_campaign
from orchestrator.campaigning.folder import CampaignFolder
from orchestrator.campaigning.report import write_campaign_report
from orchestrator.campaigning.results import write_results
from orchestrator.campaigning.spec import cells, load_campaign
from orchestrator.campaigning.summary import differences, means, notes, of_study
from testbed.core.errors import InputError
from testbed.host.dask_cluster import Cluster

# --- intervals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [[], [3.0], [3.0, 3.0], [0.0] * 5, [0.1 + 0.2, 0.3], [-1e-9, -1e-9], [1e300] * 3, [np.nan]],
)
def test_there_is_no_interval_where_nothing_varied(values: list[float]) -> None:
    sample = np.array(values, float)
    assert math.isnan(half_width(sample))
    assert not mean_of(sample).exists
    if len(sample):
        found = resampled(sample, np.mean, 1)
        assert not found.exists
        assert found.to_json()["low"] is None


def test_intervals_of_means_are_students() -> None:
    values = np.array([5.095, 4.935, 4.961])
    assert half_width(values) == pytest.approx(4.303 * 0.0858 / math.sqrt(3), rel=1e-3)
    low, value, high = (getattr(mean_of(values), name) for name in ("low", "value", "high"))
    assert (low + high) / 2 == pytest.approx(value)


@pytest.mark.parametrize(
    ("count", "total", "low", "high"),
    [(5, 7, 0.359, 0.918), (7, 7, 0.646, 1.0), (0, 4, 0.0, 0.490), (1, 2, 0.095, 0.905)],
)
def test_intervals_of_shares_are_wilsons(count: int, total: int, low: float, high: float) -> None:
    found = share_of(count, total)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-3)


def test_one_case_has_no_interval_and_none_has_no_share() -> None:
    assert not share_of(1, 1).exists
    assert share_of(0, 0).to_json() == {"value": None, "low": None, "high": None}


def test_correlated_values_count_as_fewer() -> None:
    rng = np.random.default_rng(1)
    white = rng.standard_normal(2000)
    assert independent(white) > 1500
    kept = 0.9
    red = np.zeros(2000)
    for i in range(1, 2000):
        red[i] = kept * red[i - 1] + white[i]
    assert independent(red) == pytest.approx(2000 * (1 - kept) / (1 + kept), rel=0.4)
    assert independent(np.ones(4)) == 4
    assert independent(np.array([2.0])) == 1


# --- equal values --------------------------------------------------------------------------------

KEY = {"key": "workload.split"}
RANDOM = {"draws": 8, "of": {"u": {"key": "workload.split", "choice": [2]}}}


@pytest.mark.parametrize(
    ("axis", "count"),
    [
        ([0.1, 0.1], 1),
        ([1, 1.0], 1),
        ([1000000, 1.0e6, 2.0e6], 2),
        ([2, 1, 2, 1, 2], 2),
        ([[1, 2], [1.0, 2.0]], 1),
        ([[1, 2], [2, 1]], 2),
        ([True, True, False], 2),
        (["cpsfl", "cpsfl", "sfl-pp"], 2),
        ([-0.0, 0.0], 1),
        ([3, 3.0, 3.0000001], 2),
        ([0.1 + 0.2, 0.3], 2),  # different numbers, of which the user sees one
        ({"values": [5, 5.0], **KEY}, 1),
        ({"points": {"a": {"rounds": 2}, "b": {"rounds": 2}}}, 2),  # two names: told, not merged
        (RANDOM, 1),
    ],
)
def test_equal_values_of_an_axis_are_one(axis: Any, count: int) -> None:
    made = Axis.model_validate(axis)
    assert len(list(made.steps("x", 1))) == count
    if made.draws is None:
        assert made.size == count
        given = len(made.values or made.points or ())
        assert bool(made.equal("x", 1)) == (count < given)
    else:
        assert made.equal("x", 1) == "7 of 8 draws are equal to an earlier one and not counted"


def test_true_is_not_one() -> None:
    assert len(list(Axis.model_validate([1, True]).steps("x", 1))) == 2


@pytest.mark.parametrize("place", ["campaign", "study", "emulate"])
@pytest.mark.parametrize("repeats", [[1, 1], [], [3, 1, 3]])
def test_seeds_must_differ_everywhere(tmp_path: Path, place: str, repeats: list[int]) -> None:
    tree = campaign_tree(tmp_path)
    study = tree["studies"]["split"]
    if place == "campaign":
        path = write_campaign(tmp_path, repeats=repeats)
    else:
        own = {"repeats": repeats} if place == "study" else {"emulate": {"repeats": repeats}}
        path = write_campaign(tmp_path, studies={"split": study | own})
    with pytest.raises(InputError, match=r"repeats: must be one or more different seeds"):
        load_campaign(path)


# --- statistics ----------------------------------------------------------------------------------


def computed(folder: Path, **changes: Any) -> CampaignFolder:
    made = CampaignFolder(folder / "out")
    campaign = load_campaign(write_campaign(folder, **changes))
    run_campaign(campaign, made, cluster=Cluster(workers=0))
    return made


def study_of(tree: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"split": tree["studies"]["split"] | changes}


RANDOM_SPEEDS = {"uavs.compute_flops": {"uniform": [2e12, 8e12]}, "rounds": 1}


def test_equal_values_do_not_narrow_an_interval(tmp_path: Path) -> None:
    tables = []
    for values in ([2, 3], [2, 2.0, 3, 3]):
        folder = tmp_path / str(len(values))
        folder.mkdir()
        studies = study_of(
            campaign_tree(folder), axes={"u": {**KEY, "values": values}, "paradigm": ["cpsfl"]},
            compare=None, plot=[],
        )  # fmt: skip
        made = computed(folder, studies=studies, set=RANDOM_SPEEDS, repeats=3)
        write_results(made, made.campaign())
        points = pd.read_parquet(made.path / "results" / "points.parquet")
        tables.append(means(of_study("split", points), ["mode", "u"]))
        said = [line for line in notes(made.campaign(), points) if "count as one value" in line]
        assert len(said) == (len(values) > 2)
    once, twice = tables
    assert once["n"].tolist() == twice["n"].tolist() == [3, 3]
    assert once["latency_s_ci95"].tolist() == twice["latency_s_ci95"].tolist()
    assert (once["latency_s_ci95"] > 0).all()


def test_seeds_without_an_effect_are_one_sample(tmp_path: Path) -> None:
    made = computed(tmp_path, repeats=5, set={"rounds": 1})
    campaign = made.campaign()
    write_results(made, campaign)
    points = pd.read_parquet(made.path / "results" / "points.parquet")
    assert len(points) == 20
    first = points.groupby(["u", "paradigm"])["point"].transform("first")
    assert points["same_as"].dropna().eq(first[points["same_as"].notna()]).all()
    assert points["same_as"].isna().sum() == 4
    assert notes(campaign, points) == [
        "The seed has no effect: the trace replaces the channel; 5 repeats have equal results and "
        "are one sample, which has no confidence interval."
    ]
    table = means(of_study("split", points), ["mode", "u", "paradigm"])
    assert table["n"].tolist() == table["latency_s_n"].tolist() == [1] * 4
    assert table["latency_s_ci95"].isna().all()
    study = campaign.studies["split"]
    apart = differences(of_study("split", points), study, ["u", "paradigm"])
    assert apart["n"].tolist() == [1, 1]
    assert apart["latency_s_ci95"].isna().all()
    html = write_campaign_report(made, campaign).read_text("utf-8")
    assert "The seed has no effect" in html
    assert "±" not in html.split('id="study-split"')[1].split('id="measured"')[0]


def test_seeds_without_an_effect_in_some_cells_are_counted(tmp_path: Path) -> None:
    study = campaign_tree(tmp_path)["studies"]["split"]
    speeds = {"same": {}, "drawn": {"uavs.compute_flops": {"uniform": [2e12, 8e12]}}}
    axes = {"speeds": {"points": speeds}, "paradigm": ["cpsfl", "sfl-pp"]}
    compare = {"over": "speeds", "baseline": "same"}
    studies = {"split": study | {"axes": axes, "compare": compare, "plot": []}}
    made = computed(tmp_path, repeats=3, set={"rounds": 1}, studies=studies)
    write_results(made, made.campaign())
    points = pd.read_parquet(made.path / "results" / "points.parquet")
    (line,) = notes(made.campaign(), points)
    assert line.startswith("The seed has no effect in 2 of 4 cells: ")
    table = means(of_study("split", points), ["mode", "speeds", "paradigm"])
    assert table["n"].tolist() == [1, 1, 3, 3]
    assert table["latency_s_ci95"].isna().tolist() == [True, True, False, False]
    apart = differences(
        of_study("split", points), made.campaign().studies["split"], ["speeds", "paradigm"]
    )
    assert apart["n"].tolist() == [3, 3], "the differences vary"


@pytest.mark.parametrize(
    ("axes", "text"),
    [
        (
            {"p": {"points": {"a": {"workload.split": 2}, "b": {"workload.split": 2}}}},
            "p = a and p = b are the same scenario, which was computed once.",
        ),
        (
            {"s": {"key": "seed", "values": [1, 2]}},
            "s = 1 and s = 2 are the same scenario, which was computed once.",
        ),
        (
            {"one": {**KEY, "values": [2, 3]}, "two": {**KEY, "values": [2]}},
            "one = 2 and one = 3 are the same scenario, which was computed once.",
        ),
    ],
)
def test_cells_with_the_same_scenario_are_named(
    tmp_path: Path, axes: dict[str, Any], text: str
) -> None:
    studies = study_of(campaign_tree(tmp_path), axes=axes, compare=None, plot=[])
    path = write_campaign(tmp_path, studies=studies, repeats=1)
    campaign = load_campaign(path)
    made = cells(campaign)
    assert len({cell.point.id for cell in made}) == 1
    points = pd.DataFrame(
        [
            {"study": "split", "point": cell.point.id, "mode": "predict", "seed": 1}
            | {"status": "finished", "same_as": None, **cell.axes}
            for cell in made
        ]
    )
    assert notes(campaign, points) == [text]
