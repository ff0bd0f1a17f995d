# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Campaign files: what they may say, what points come of them, and what a point's identity is."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from small_campaign import ROOT, campaign_tree, write_campaign

from orchestrator.analysis.axes import Axis
from orchestrator.campaigning import spec
from orchestrator.campaigning.spec import PointOptions, cells, load_campaign, narrowed, to_yaml
from orchestrator.reporting.legend import STYLES
from testbed.core.errors import InputError


def with_study(folder: Path, **changes: Any) -> Path:
    tree = campaign_tree(folder)
    tree["studies"]["split"] |= changes
    return write_campaign(folder, studies=tree["studies"])


def ids(path: Path) -> list[str]:
    return [cell.point.id for cell in cells(load_campaign(path))]


def test_all_combinations_of_axes_and_seeds_are_made(tmp_path: Path) -> None:
    made = cells(load_campaign(write_campaign(tmp_path)))
    assert [(c.axes["u"], c.axes["paradigm"], c.seed) for c in made] == [
        (u, paradigm, seed) for u in (2, 3) for paradigm in ("cpsfl", "sfl-pp") for seed in (1, 2)
    ]
    for cell in made:
        scenario = cell.point.scenario
        assert (scenario.workload.split, scenario.paradigm) == (
            cell.axes["u"],
            cell.axes["paradigm"],
        )
        assert (scenario.seed, scenario.rounds) == (cell.seed, 3)
    assert len({cell.point.id for cell in made}) == 8


def test_named_points_set_several_keys_together(tmp_path: Path) -> None:
    points = {"few": {"uavs.tx_power_w": [1]}, "many": {"uavs.tx_power_w": [1, 1], "rounds": 9}}
    path = with_study(tmp_path, axes={"K": {"points": points}}, compare=None, plot=[], trace=None)
    few, _, many, _ = cells(load_campaign(path))
    assert (few.axes, few.point.scenario.uavs.count, few.point.scenario.rounds) == (
        {"K": "few"},
        1,
        3,
    )
    assert (many.point.scenario.uavs.count, many.point.scenario.rounds) == (2, 9)


def test_random_axes_are_drawn_by_the_seed() -> None:
    tree = {
        "draws": 200,
        "of": {
            "band": {"key": "radio.uplink_bandwidth_hz", "log_uniform": [1e6, 1e8]},
            "u": {"key": "workload.split", "integers": [1, 4]},
            "power": {"key": "uavs.compute_power_w", "uniform": [5, 6]},
            "speed": {"key": "mobility.mean_speed_m_s", "normal": [2, 0.1]},
            "p": {"key": "paradigm", "choice": ["cpsfl", "sfl-pp"]},
        },
    }
    axis = Axis.model_validate(tree)
    drawn = [columns for columns, _ in axis.steps("design", 1)]
    assert drawn == [columns for columns, _ in axis.steps("design", 1)]
    assert drawn != [columns for columns, _ in axis.steps("design", 2)]
    assert [columns["design"] for columns in drawn] == list(range(200))
    columns, keys = next(axis.steps("design", 1))
    assert keys == {axis.of[name].key: columns[name] for name in axis.of or {}}
    band = np.log10([columns["band"] for columns in drawn])
    assert band.min() > 6
    assert band.max() < 8
    assert abs(np.median(band) - 7) < 0.3
    assert {columns["u"] for columns in drawn} == {1, 2, 3, 4}
    assert {columns["p"] for columns in drawn} == {"cpsfl", "sfl-pp"}
    assert all(5 <= columns["power"] <= 6 for columns in drawn)
    assert abs(np.mean([columns["speed"] for columns in drawn]) - 2) < 0.05


def test_emulated_cells_are_narrowed_and_changed(tmp_path: Path) -> None:
    emulate = {"where": {"u": [3]}, "repeats": [7], "set": {"rounds": 1}}
    made = cells(load_campaign(with_study(tmp_path, mode="both", emulate=emulate)))
    emulated = [cell for cell in made if cell.point.mode == "run"]
    assert len(made) - len(emulated) == 8
    assert [(c.axes["u"], c.seed, c.point.scenario.rounds) for c in emulated] == [(3, 7, 1)] * 2


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"studies": {}}, "studies"),
        ({"colour": "red"}, "colour: no such key"),
        ({"repeats": [1, 1]}, "repeats: must be one or more different seeds"),
        ({"repeats": 10**9}, r"repeats: [^.]"),
        ({"mode": "guess"}, "mode: "),
        ({"set": {"workload.local_iterations": 0}}, r"studies.split \(u = 2, paradigm = cpsfl\)"),
        ({"set": {"rounds": 1, "rounds.first": 1}}, "rounds is a value, not a section"),
        ({"scenario": "nowhere.yaml"}, "no such scenario file"),
        ({"scenario": {"uavs": {"tx_power_w": []}}}, r"uavs\.tx_power_w"),
    ],
)
def test_wrong_campaigns_are_refused_by_field(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    path = write_campaign(tmp_path, **changes)
    with pytest.raises(InputError, match=says) as error:
        cells(load_campaign(path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"axes": {"latency_s": [1]}}, "'latency_s' is a column of the results"),
        ({"axes": {"u": {"values": [1], "draws": 2}}}, "exactly one of values, points, draws"),
        ({"axes": {"u": {"draws": 2}}}, "draws and of must be given together"),
        ({"axes": {"a": {"draws": 2, "of": {"b": {"key": "k"}}}}}, "needs exactly one of uniform"),
        (
            {"axes": {"a": {"draws": 2, "of": {"b": {"key": "k", "uniform": [2, 1]}}}}},
            "not a valid range",
        ),
        ({"compare": {"over": "v", "baseline": 1}}, "compare.over: 'v' is not an axis"),
        ({"compare": {"over": "u", "baseline": 7}}, "compare.baseline: 7 is not one of"),
        ({"compare": {"over": "u", "baseline": 2, "of": ["joy"]}}, r"compare\.of"),
        ({"plot": [{"x": "u", "lines": "w"}]}, "plot.0.lines: 'w' is not an axis"),
        ({"emulate": {"where": {"u": [4]}}}, "emulate.where.u: 4 is not one of"),
        ({"trace": "gone.npz"}, "gone.npz"),
    ],
)
def test_wrong_studies_are_refused_by_field(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=says) as error:
        cells(load_campaign(with_study(tmp_path, **changes)))
    assert "\n" not in str(error.value)
    assert "split" in str(error.value)


def test_a_campaign_written_out_needs_no_other_file_and_is_the_same(tmp_path: Path) -> None:
    for path in [*sorted((ROOT / "campaigns").glob("*.yaml")), write_campaign(tmp_path)]:
        campaign = load_campaign(path)
        again = tmp_path / "elsewhere" / "campaign.yaml"
        again.parent.mkdir(exist_ok=True)
        again.write_text(to_yaml(campaign), encoding="utf-8")
        assert load_campaign(again) == campaign
        assert ids(again) == ids(path)


# --- identity ------------------------------------------------------------------------------------


def test_identity_is_of_content_not_of_names(tmp_path: Path) -> None:
    first = ids(write_campaign(tmp_path))
    assert first == ids(write_campaign(tmp_path, name="other", title="Other"))
    moved = tmp_path / "moved"
    moved.mkdir()
    assert first == ids(write_campaign(moved))  # the same trace, elsewhere
    tree = campaign_tree(tmp_path)
    tree["scenario"]["name"] = "renamed"
    tree["scenario"]["radio"] = {"carrier_hz": 2e9}  # what it is anyway
    assert first == ids(write_campaign(tmp_path, scenario=tree["scenario"]))


def test_identity_changes_with_everything_that_may_change_the_outcome(tmp_path: Path) -> None:
    first = set(ids(write_campaign(tmp_path)))
    tree = campaign_tree(tmp_path)
    for key, value in (("seed", [3, 4]), ("mode", "run"), ("steps_rounds", 2)):
        changes = {"repeats": value} if key == "seed" else {key: value}
        assert not first & set(ids(write_campaign(tmp_path, **changes))), key
    scenario = deepcopy(tree["scenario"]) | {"radio": {"carrier_hz": 2.1e9}}
    assert not first & set(ids(write_campaign(tmp_path, scenario=scenario)))
    other = tmp_path / "other"
    other.mkdir()
    path = write_campaign(other)
    data = dict(np.load(other / "trace.npz"))
    data["gain"][1, -1] *= 1 + 1e-15
    np.savez(other / "trace.npz", **data)
    assert not first & set(ids(path))


def test_cells_of_the_same_content_share_a_point() -> None:
    made = cells(load_campaign(ROOT / "campaigns" / "paper.yaml"))
    at = {(c.study, *c.axes.values(), c.seed, c.point.mode): c.point.id for c in made}
    assert at["fig4", 2, "cpsfl", 1, "predict"] == at["fig6", 3, "cpsfl", 1, "predict"]
    assert at["fig4", 2, "cpsfl", 1, "run"] != at["fig4", 2, "cpsfl", 1, "predict"]


# --- the campaigns that come with it -------------------------------------------------------------


def test_the_paper_campaign_has_the_paper_s_settings() -> None:
    """Table III, and figure 7's powers ring by ring, as the paper prints them."""
    placed = cells(load_campaign(ROOT / "campaigns" / "paper.yaml"))
    powers = {
        (cell.study, cell.axes[axis]): cell.point.scenario.uavs.tx_power_w
        for cell in placed
        for axis in ("cluster", "K")
        if axis in cell.axes
    }
    table_3 = [
        "0.2 0.2 0.2 0.2 0.4 0.4 0.4 0.4 0.8 0.8 0.8 0.8",
        "0.4 0.4 0.4 0.4 0.8 0.8 0.2 0.2 0.4 0.4 0.4 0.4",
        "0.4 0.4 0.4 0.4 0.8 0.8 0.8 0.8 1.6 0.2 0.2 0.2",
        "0.8 0.8 0.8 0.4 0.8 0.8 0.2 0.2 0.4 0.2 0.2 0.2",
        "0.8 0.8 0.8 0.4 0.8 0.8 0.4 0.4 0.8 0.1 0.1 0.1",
    ]
    for number, row in enumerate(table_3, 1):
        assert powers["fig5", number] == [float(word) for word in row.split()]
    for clients in (6, 9, 12, 15, 18):
        rings = np.repeat([0.9, 0.3, 0.1], clients // 3)
        assert powers["fig7", clients] == rings.tolist()
    predicted = [cell for cell in placed if cell.point.mode == "predict"]
    many = [cell for cell in predicted if cell.study != "fig3"]
    assert {cell.point.scenario.rounds for cell in many} == {500}
    assert {cell.seed for cell in many} == {1, 2, 3, 4, 5}
    assert {cell.axes["paradigm"] for cell in many} == set(STYLES)
    emulated = [cell.point.scenario for cell in placed if cell.point.mode == "run"]
    assert len(emulated) == 12
    assert {(s.rounds, s.workload.compute) for s in emulated} == {(1, "none")}


def test_keys_beside_the_scenario_say_what_a_point_is(tmp_path: Path) -> None:
    axes = {"who": {"points": {"drl": {"train": "drl"}, "equal": {"bound_rounds": 2}, "plain": {}}}}
    path = with_study(tmp_path, axes=axes, compare=None, plot=[], trace=None)
    drl, _, equal, _, plain, _ = cells(load_campaign(path))
    assert drl.point.options == PointOptions(train="drl")
    assert equal.point.options == PointOptions(bound_rounds=2)
    assert plain.point.options == PointOptions()
    assert len({drl.point.id, equal.point.id, plain.point.id}) == 3
    assert drl.point.scenario == plain.point.scenario


def test_agents_are_those_that_can_be_trained() -> None:
    from orchestrator.policies.agent import VARIANTS

    for name in VARIANTS:
        assert PointOptions.model_validate({"train": name}).train == name
    with pytest.raises(ValueError, match="train"):
        PointOptions.model_validate({"train": "sarsa"})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"set": {"train": "sarsa"}, "trace": None}, "train: "),
        ({"set": {"bound_rounds": -1}}, "bound_rounds: "),
        ({"set": {"train": "drl"}}, "train: an agent learns on ns-3's channel"),
        ({"set": {"bound_rounds": 1}, "mode": "run"}, "bound_rounds: is only for predicted points"),
        (
            {"set": {"train": "drl", "bound_rounds": 1}, "trace": None},
            "bound_rounds: not supported together with `train`",
        ),
    ],
)
def test_what_points_cannot_be_is_refused(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=rf"studies.split.*: {says}"):
        cells(load_campaign(with_study(tmp_path, **changes)))


def test_a_campaign_is_narrowed_to_some_studies_seeds_and_rounds() -> None:
    paper = load_campaign(ROOT / "campaigns" / "paper.yaml")
    placed = cells(narrowed(paper, studies=["fig3", "fig6"], seeds=[7, 8], rounds=9))
    assert {(c.study, c.seed, c.point.scenario.rounds, c.point.mode) for c in placed} == {
        ("fig3", 7, 1, "predict"),
        ("fig6", 7, 9, "predict"),
        ("fig6", 8, 9, "predict"),
    }


def test_every_campaign_file_is_readable_yaml_with_a_word_at_its_head() -> None:
    for path in (ROOT / "campaigns").glob("*.yaml"):
        assert path.read_text(encoding="utf-8").startswith("# ")
        assert yaml.safe_load(path.read_text(encoding="utf-8"))["name"] == path.stem


@pytest.mark.parametrize("name", ["..", ".", ".hidden", "-rf", "a/b"])
def test_a_campaign_is_not_called_as_another_folder_is(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="name: "):
        load_campaign(write_campaign(tmp_path, name=name))


def test_what_would_take_hours_to_list_is_refused_before_it_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a point was made")

    monkeypatch.setattr(spec, "_point", never)
    axes = {f"x{i}": {"key": "rounds", "values": list(range(1, 1001))} for i in range(3)}
    path = with_study(tmp_path, axes=axes, compare=None, plot=[], trace=None, repeats=1)
    line = r"studies\.split: 1,000,000,000 cells make 1,000,000,000 .* may have 200,000"
    with pytest.raises(InputError, match=line):
        cells(load_campaign(path))


@pytest.mark.parametrize("mode", ["predict", "run", "both"])
def test_cells_are_counted_as_they_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    emulate = {"where": {"u": [2]}, "repeats": [1, 5, 9]}
    path = with_study(tmp_path, mode=mode, emulate=emulate)
    made = len(cells(load_campaign(path)))
    monkeypatch.setattr(spec, "MOST_CELLS", made)
    assert len(cells(load_campaign(path))) == made
    monkeypatch.setattr(spec, "MOST_CELLS", made - 1)
    with pytest.raises(InputError, match=f"{made} cells"):
        cells(load_campaign(path))
