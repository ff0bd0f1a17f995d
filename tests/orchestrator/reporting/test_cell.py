# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a report says and draws of an LTE cell, and of rates in a shared band."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from page_parts import Page, embedded
from synthetic_run import make_run

from orchestrator.records.reader import read_run
from orchestrator.records.summary import link_rates
from orchestrator.reporting import cell as module
from orchestrator.reporting.cell import cell_chart, cell_sentences, grants_chart
from orchestrator.reporting.report import render
from orchestrator.reporting.run_plots import draw_run
from testbed.core.errors import InputError

RADIO = "LTE, 100 resource blocks, shared equally, 64QAM, 1 layer"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "run"
    return make_run(folder, lte={"interference_margin_db": 20})


@pytest.fixture
def run_dir(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def rows(*given: tuple[int, str, int, float, float, int]) -> pd.DataFrame:
    """Rows of the table: client, direction, slot, active_s, resource_blocks, mcs."""
    names = ["client", "direction", "slot", "active_s", "resource_blocks", "mcs"]
    table = pd.DataFrame(given, columns=names)
    return table.assign(round=0, time_s=0.1 * table["slot"], layers=1)


def test_a_sentence_says_which_scheme_all_uavs_have() -> None:
    table = rows(*((k, "up", slot, 0.1, 50.0, 28) for k in (1, 2) for slot in range(4)))
    assert cell_sentences(table, 0.1) == (
        "In the uplink, all UAVs have MCS 28 in all slots in which they send. "
        "While they send, they have 50 resource blocks."
    )
    table.loc[0, "mcs"], table.loc[1, "mcs"], table.loc[7, ["active_s"]] = 20, 22, 0.05
    assert cell_sentences(table, 0.1) == (
        "In the uplink, all UAVs mostly have MCS 28 (in 75 % of the slots in which they send), "
        "otherwise MCS 20 to 22. While they send, they have 50 to 100 resource blocks, 53.3 on "
        "average."
    )


def test_a_sentence_says_how_uavs_differ_and_that_they_are_out_of_range() -> None:
    table = rows(
        *((1, "down", slot, 0.1, 100.0, 28) for slot in range(3)),
        *((2, "down", slot, 0.1, 100.0, 8) for slot in range(3)),
        (2, "down", 3, 0.1, 100.0, 6),
        (2, "down", 4, 0.1, 0.0, -1),
        (3, "up", 0, 0.1, 0.0, -1),
    )
    assert cell_sentences(table, 0.1) == (
        "In the uplink, all UAVs are out of range. "
        "In the downlink, UAVs differ: the most frequent scheme is MCS 8 (UAV 2) to MCS 28 "
        "(UAV 1), and MCS 6 to 28 occur; in 12.5 % of the slots they are out of range. "
        "While they receive, they have 100 resource blocks."
    )


def test_a_share_is_not_rounded_to_all_and_many_uavs_are_counted() -> None:
    table = rows(
        *((1, "up", slot, 0.1, 100.0, 28 - 2 * (slot == 0)) for slot in range(9999)),
        *((k, "up", 0, 0.1, 10.0, 28) for k in range(2, 8)),
    )
    assert "(in 99.9 % of the slots in which they send), otherwise MCS 26." in cell_sentences(
        table, 0.1
    )
    table.loc[table["client"] == 1, "mcs"] = 4
    assert "MCS 4 (UAV 1) to MCS 28 (6 UAVs)" in cell_sentences(table, 0.1)


def test_bars_join_equal_slots_and_the_slot_that_two_rounds_share(made: Path) -> None:
    table = rows(
        *((1, "up", slot, 0.1, 50.0, 28) for slot in (0, 1, 2, 4)),
        (1, "up", 5, 0.02, 20.0, 10),
        (1, "down", 2, 0.1, 100.0, 28),
    )
    again = rows((1, "up", 5, 0.05, 50.0, 28)).assign(round=1)
    run = read_run(made)
    run.tables["resource_blocks"] = pd.concat([table, again])
    drawn = cell_chart(run)
    assert drawn is not None
    names = ("direction", "time_s", "slots", "blocks", "active", "mcs")
    assert list(zip(*(drawn[name] for name in names), strict=True)) == [
        ("down", 0.2, 1, 100, 1, 28),
        ("up", 0.0, 3, 50, 1, 28),
        ("up", 0.4, 1, 50, 1, 28),
        ("up", 0.5, 1, 70, 0.7, 28),
    ]
    assert drawn["schemes"] == [28]
    assert drawn["most_blocks"] == 100


def test_too_many_slots_are_merged(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = read_run(made)
    run.tables["resource_blocks"] = rows(
        *((1, "up", slot, 0.1, 40.0 + slot % 2, 28) for slot in range(8))
    )
    monkeypatch.setattr(module, "MOST_ROWS", 4)
    drawn = cell_chart(run)
    assert drawn is not None
    assert (drawn["slots_a_bar"], drawn["slots"], drawn["blocks"]) == (2, [8], [40.5])


def granted() -> pd.DataFrame:
    """A table of grants: UAV 1 sends, loses every tenth block of slot 2, and waits in slot 3."""
    names = ["client", "direction", "slot", "blocks", "resource_blocks", "lost_blocks", "mcs"]
    given = [
        *((1, "up", slot, 100, 50.0, 0, 28) for slot in (0, 1)),
        (1, "up", 2, 100, 50.0, 10, 28),
        (1, "up", 3, 0, 0.0, 0, -1),
        (2, "down", 0, 20, 12.5, 0, 9),
    ]
    table = pd.DataFrame(given, columns=names)
    waiting_s = np.where(table["slot"] == 3, 0.06, 0.0)
    return table.assign(
        round=0, time_s=0.1 * table["slot"], waiting_s=waiting_s, granted_bytes=1000
    )


def test_bars_of_grants_say_what_was_lost(made: Path) -> None:
    run = read_run(made)
    assert grants_chart(run) is None
    run.tables["grants"] = granted()
    drawn = grants_chart(run)
    assert drawn is not None
    names = ("client", "direction", "time_s", "slots", "blocks", "active", "mcs", "lost")
    assert list(zip(*(drawn[name] for name in names), strict=True)) == [
        (1, "up", 0.0, 2, 50, 1, 28, 0),
        (1, "up", 0.2, 1, 50, 1, 28, 0.1),
        (1, "up", 0.3, 1, 0, 0.4, -1, 0),
        (2, "down", 0.0, 1, 12.5, 1, 9, 0),
    ]
    assert drawn["schemes"] == [-1, 9, 28]


def test_the_page_shows_what_was_granted_if_it_is_known(run_dir: Path) -> None:
    page = Page(render(read_run(run_dir)))
    assert "scheduler granted" not in page.words("timeline")
    granted().to_parquet(run_dir / "grants.parquet")
    html = render(read_run(run_dir))
    page = Page(html)
    assert (
        "In the uplink, ns-3 granted 300 transport blocks, of which 10 were lost, and data waited "
        "0.06 s for a first grant. In the downlink, ns-3 granted 20 transport blocks, of which 0 "
        "were lost, and data waited 0.00 s for a first grant."
    ) in page.words("timeline")
    assert sum(embedded(html)["grants"]["slots"]) == 5
    ids = {attributes.get("id") for _, attributes in page.elements}
    assert {"grants", "grants-legend", "grants-note"} <= ids
    granted().assign(mcs=32).to_parquet(run_dir / "grants.parquet")
    with pytest.raises(InputError, match=r"grants.parquet: mcs: must be"):
        read_run(run_dir)


def test_the_page_shows_the_radio_its_schemes_and_its_resource_blocks(made: Path) -> None:
    html = render(read_run(made))
    page = Page(html)
    table = pd.read_parquet(made / "resource_blocks.parquet")
    assert cell_sentences(table, 0.1) in page.words("timeline")
    assert f"Radio{RADIO}".replace(" ", "") in page.cells("overview")
    assert "Shannon" not in html
    drawn = embedded(html)["cell"]
    slots = sum(drawn["slots"])
    assert slots == len(table.drop_duplicates(["client", "direction", "slot"]))
    assert {"cell", "cell-legend"} <= {attributes.get("id") for _, attributes in page.elements}


def test_a_run_without_the_table_says_so(run_dir: Path) -> None:
    (run_dir / "resource_blocks.parquet").unlink()
    html = render(read_run(run_dir))
    assert "Not shown: resource_blocks.parquet is not in" in Page(html).words("timeline")
    assert embedded(html)["cell"] is None
    rates = embedded(html)["rates"]
    assert all(None not in row for row in rates["uplink_kbps"])


def test_a_table_with_impossible_values_is_refused(run_dir: Path) -> None:
    path = run_dir / "resource_blocks.parquet"
    table = pd.read_parquet(path).reset_index(drop=True)
    for column, value in (("mcs", 29), ("mcs", -2), ("resource_blocks", 275.5), ("layers", 3)):
        wrong = table.copy()
        wrong.loc[1, column] = value
        wrong.to_parquet(path)
        with pytest.raises(InputError, match=f"resource_blocks.parquet: {column}: must be"):
            read_run(run_dir)
    table.loc[1] = table.loc[0]
    table.to_parquet(path)
    with pytest.raises(InputError, match="has two rows with round 0"):
        read_run(run_dir)


def test_rates_of_a_shared_band_are_drawn_while_links_are_active(
    run_dir: Path, tmp_path: Path
) -> None:
    table = pd.read_parquet(run_dir / "resource_blocks.parquet")
    recorded = pd.read_parquet(run_dir / "rates.parquet")
    run = read_run(run_dir)
    rates = link_rates(run)
    active = {
        way: set(own[["slot", "client"]].itertuples(index=False, name=None))
        for way, own in table.groupby("direction")
    }
    assert rates["uplink_bps"].isna().any()
    for way, column in (("up", "uplink_bps"), ("down", "downlink_bps")):
        here = [each in active[way] for each in zip(rates["slot"], rates["client"], strict=True)]
        assert rates[column].notna().tolist() == here
        assert (rates[column][here] == recorded[column][here]).all()
    drawn = embedded(render(run))["rates"]
    missing = [rate is None for row in drawn["uplink_kbps"] for rate in row]
    idle = rates.sort_values(["client", "slot"])["uplink_bps"].isna()
    assert missing == idle.tolist()
    assert len(draw_run(run_dir, tmp_path / "figures")) == 6
    # Fixed shares have a rate whether or not they are used.
    tree: dict[str, Any] = json.loads((run_dir / "scenario.json").read_text())
    tree["radio"]["lte"]["scheduler"] = "shares"
    (run_dir / "scenario.json").write_text(json.dumps(tree))
    assert link_rates(read_run(run_dir))["uplink_bps"].notna().all()
    # A direction without transfers is idle all the time.
    tree["radio"]["lte"]["scheduler"] = "equal"
    (run_dir / "scenario.json").write_text(json.dumps(tree))
    table[table["direction"] == "up"].to_parquet(run_dir / "resource_blocks.parquet")
    assert np.isnan(link_rates(read_run(run_dir))["downlink_bps"]).all()


def test_merged_rates_are_means_over_the_slots_in_which_links_are_active(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = read_run(made)
    rates = link_rates(run).query("client == 1").sort_values("slot")["uplink_bps"]
    monkeypatch.setattr("orchestrator.reporting.charts.MAX_RATE_POINTS", 6 * len(rates) // 2)
    drawn = embedded(render(run))["rates"]
    each = drawn["slots_a_point"]
    assert each > 1
    for at, kbps in enumerate(drawn["uplink_kbps"][0]):
        mean = rates.iloc[at * each : (at + 1) * each].mean() / 1e3
        assert (kbps is None) == np.isnan(mean)
        assert kbps is None or kbps == pytest.approx(mean, abs=0.5)
