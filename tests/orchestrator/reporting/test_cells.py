# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a report says and draws of several cells."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from chromium import PROGRAM, chromium
from page_parts import Page, embedded
from synthetic_run import make_run

from ns3_scenarios.radio import Delivery, Handover
from orchestrator.records.reader import read_run
from orchestrator.reporting import cells as module
from orchestrator.reporting.cells import cells_chart, cells_sentence
from orchestrator.reporting.report import render, write_report
from orchestrator.rounds.ns3_radio import cells_tables
from testbed.core.errors import InputError


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("made") / "run", lte={})


@pytest.fixture
def run_dir(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def delivery(**fields: Any) -> Delivery:
    """Two UAVs in four slots; the second one changes to cell 1 in slot 2, and back in the last."""
    nothing = np.zeros((2, 2, 4))
    given = {
        "serving_cell": np.array([[0, 0, 0, 0], [0, 0, 1, 0]]),
        "sinr_db": np.array([[20.0, 21, 22, 23], [5, 4, 6, np.nan]]),
        "handovers": [
            Handover(1, 0, 1, 0.21, 0.22, 0.02, 0.036, 1, 1),
            Handover(1, 1, 0, 0.39, None, None, None, 0, 0),
        ],
    }
    return Delivery(0.1, *[nothing] * 6, why=[("", "")] * 2, **(given | fields))


def test_tables_have_a_row_per_slot_and_uav_and_per_handover() -> None:
    cells, handovers = cells_tables(delivery())
    assert cells[cells["client"] == 2].to_dict("list") == {
        "slot": [0, 1, 2, 3],
        "time_s": pytest.approx([0, 0.1, 0.2, 0.3]),
        "client": [2] * 4,
        "cell": [0, 0, 1, 0],
        "sinr_db": pytest.approx([5, 4, 6, np.nan], nan_ok=True),
    }
    first, second = handovers.to_dict("records")
    assert first == {
        "client": 2,
        "start_s": 0.21,
        "end_s": 0.22,
        "from_cell": 0,
        "to_cell": 1,
        "interruption_ms": pytest.approx(36),
    }
    assert np.isnan(second["end_s"])
    assert np.isnan(second["interruption_ms"])
    _, none = cells_tables(delivery(handovers=[]))
    assert len(none) == 0


def test_a_chart_has_points_by_uav_and_marks_of_handovers() -> None:
    chart = cells_chart(*cells_tables(delivery()), 0.1)
    assert chart is not None
    assert chart["cells"] == [0, 1]
    assert (chart["low_db"], chart["high_db"]) == (4, 23)
    assert chart["clients"][2] == {
        "time_s": [0, 0.1, 0.2, 0.3],
        "cell": [0, 0, 1, 0],
        "sinr_db": [5, 4, 6, None],
    }
    assert [each["interruption_ms"] for each in chart["handovers"]] == [36, None]
    assert cells_chart(None, None, 0.1) is None


def test_too_many_points_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 4)
    chart = cells_chart(cells_tables(delivery())[0], None, 0.1)
    assert chart is not None
    assert chart["slots_a_point"] == 2
    assert chart["clients"][2] == {"time_s": [0, 0.2], "cell": [0, 1], "sinr_db": [4.5, 6]}
    assert chart["handovers"] == []


def test_a_sentence_says_how_often_uavs_change_and_what_it_costs() -> None:
    cells, handovers = cells_tables(delivery())
    assert cells_sentence(cells, handovers) == (
        "2 cells serve the UAVs. There are 2 handovers; packets are then interrupted for 36 ms "
        "(median), at most 36 ms. The mean SINR of the downlink is 5.0 dB (UAV 2) to 21.5 dB "
        "(UAV 1)."
    )
    assert "There is 1 handover; packets" in cells_sentence(cells, handovers[:1])
    assert "There is 1 handover. " in cells_sentence(cells, handovers[1:])
    stays = cells[cells["client"] == 1]
    assert cells_sentence(stays, None).startswith(
        "1 cell serves the UAVs. No UAV changes its cell."
    )


def with_cells(run_dir: Path) -> Path:
    cells, handovers = cells_tables(delivery())
    cells.to_parquet(run_dir / "cells.parquet")
    handovers.to_parquet(run_dir / "handovers.parquet")
    return run_dir


def test_the_page_shows_cells_where_the_run_has_them(made: Path, run_dir: Path) -> None:
    assert "handovers" not in Page(render(read_run(made))).words("timeline")
    html = render(read_run(with_cells(run_dir)))
    page = Page(html)
    assert "2 cells serve the UAVs." in page.words("timeline")
    assert len(embedded(html)["cells"]["handovers"]) == 2
    assert {"cells", "cells-legend"} <= {attributes.get("id") for _, attributes in page.elements}


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [("cells", "cell", 16), ("cells", "client", 9), ("handovers", "to_cell", -1)],
)
def test_values_that_no_run_has_are_refused(
    run_dir: Path, table: str, column: str, value: int
) -> None:
    path = with_cells(run_dir) / f"{table}.parquet"
    rows = pd.read_parquet(path)
    rows.loc[0, column] = value
    rows.to_parquet(path)
    with pytest.raises(InputError, match=f"{table}.parquet: {column}: must be"):
        read_run(run_dir)


@pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed")
def test_the_chart_is_drawn_and_explains_itself(run_dir: Path, tmp_path: Path) -> None:
    path = write_report(with_cells(run_dir))
    with chromium(tmp_path) as page:
        page.open(path)
        assert page.errors == []
        assert page.js("document.querySelectorAll('#cells-legend li').length") == 2
        assert page.js("document.querySelector('#cells canvas').width") > 100
