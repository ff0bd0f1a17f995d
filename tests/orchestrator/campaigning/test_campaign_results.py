# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The data set of a campaign, its report in Chromium, and what verification finds."""

import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from chromium import PROGRAM, Page, chromium
from finished_campaign import finished_campaign
from page_parts import Page as PageParts
from small_campaign import ROOT
from synthetic_run import make_run
from typer.testing import CliRunner

from orchestrator.analysis.statistics import half_width
from orchestrator.campaigning.folder import CampaignFolder
from orchestrator.campaigning.report import write_campaign_report
from orchestrator.campaigning.results import PLACE, TABLES, write_results
from orchestrator.campaigning.spec import cells
from orchestrator.campaigning.summary import differences, means
from orchestrator.campaigning.verify import compare, environment_differences, verify
from orchestrator.cli.campaign import app
from orchestrator.emulated.learning import evaluation_table, whole_table
from orchestrator.records.reader import read_run
from testbed.control.messages import Evaluated
from testbed.host.dask_cluster import Cluster


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> CampaignFolder:
    """A campaign whose predicted points are computed, and whose emulated ones are made up."""
    return finished_campaign(tmp_path_factory.mktemp("campaign"))


# --- results -------------------------------------------------------------------------------------


def duckdb(query: str) -> pd.DataFrame:
    """What DuckDB answers; in a process of its own, since it complains when it is unloaded."""
    program = "import duckdb, sys; duckdb.sql(sys.argv[1]).df().to_parquet(sys.stdout.buffer)"
    words = [sys.executable, "-c", program, query]
    return pd.read_parquet(
        io.BytesIO(subprocess.run(words, capture_output=True, check=True).stdout)
    )


def test_tables_open_in_one_line_and_have_the_documented_columns(done: CampaignFolder) -> None:
    documented = (ROOT / "docs" / "campaigns.md").read_text(encoding="utf-8")
    for name, own in TABLES.items():
        path = done.path / "results" / f"{name}.parquet"
        columns = [*PLACE, "u", *own]
        assert list(pd.read_parquet(path)) == columns
        described = duckdb(f"describe select * from '{path}'")
        assert described["column_name"].tolist() == columns
        (line,) = re.findall(rf"^\| `{name}\.parquet` \|.*$", documented, re.MULTILINE)
        assert set(re.findall(r"`(\w+)`", line)) == set(own)
    (line,) = re.findall(r"^The first columns of every table are (.*?)\.", documented, re.MULTILINE)
    assert re.findall(r"`(\w+)`", line) == list(PLACE)


def test_duckdb_answers_what_the_points_say(done: CampaignFolder) -> None:
    rounds = done.path / "results" / "rounds.parquet"
    asked = duckdb(
        f"select u, paradigm, avg(latency_s) as latency_s, count(*) as n from '{rounds}' "
        "where mode = 'predict' group by all order by all"
    )
    assert asked["n"].tolist() == [6] * 4
    campaign = done.campaign()
    for row in asked.itertuples():
        stored = [
            pd.read_parquet(done.finished([c.point])[c.point.id] / "rounds.parquet")["latency_s"]
            for c in cells(campaign)
            if c.point.mode == "predict" and (c.axes["u"], c.axes["paradigm"]) == row[1:3]
        ]
        assert row.latency_s == pytest.approx(float(np.mean(stored)), rel=1e-14)


def test_points_have_means_and_what_made_them(done: CampaignFolder) -> None:
    points = pd.read_parquet(done.path / "results" / "points.parquet")
    assert points["mode"].value_counts().to_dict() == {"predict": 8, "run": 2}
    assert set(points["status"]) == {"finished"}
    emulated = points[points["mode"] == "run"]
    assert sorted(emulated["valid"]) == [False, True]
    assert (emulated["latency_s"] > emulated["predicted_latency_s"]).all()
    assert points["latency_s"].notna().all()
    budget = pd.read_parquet(done.path / "results" / "budget.parquet")
    for row in emulated.itertuples():
        parts = budget.loc[budget["point"] == row.point, "seconds"]
        assert row.predicted_latency_s + parts.sum() == pytest.approx(row.latency_s, abs=1e-9)


def test_missing_and_failed_points_stand_in_the_table(done: CampaignFolder, tmp_path: Path) -> None:
    shutil.copytree(done.path, tmp_path / "part")
    folder = CampaignFolder(tmp_path / "part")
    gone, failed = sorted((folder.path / "points").iterdir())[:2]
    shutil.rmtree(gone)
    shutil.rmtree(failed)
    folder.store_failure(failed.name, {"failure": "no", "host": "h", "traceback": "", "when": ""})
    write_results(folder, folder.campaign())
    points = pd.read_parquet(folder.path / "results" / "points.parquet").set_index("point")
    assert points.at[gone.name, "status"] == "missing"
    assert points.at[failed.name, "status"] == "failed"
    assert points["status"].value_counts()["finished"] == 8
    said = CliRunner().invoke(app, ["status", str(folder.path)])
    assert f"{failed.name} failed on h: no" in said.output


def test_evaluations_can_be_told_from_training_batches(
    done: CampaignFolder, tmp_path: Path
) -> None:
    shutil.copytree(done.path, tmp_path / "copy")
    folder = CampaignFolder(tmp_path / "copy")
    point, _ = sorted(
        path.parent.name for path in (folder.path / "points").glob("*/learning.parquet")
    )
    before = evaluation_table(-1, 0.0, Evaluated(4.6, 0.01, samples=100))
    batch = before.assign(round=0, data="train", client=2, iteration=1, smashed_error=0.25)
    batch["gradient_error"] = 0.5
    made = whole_table([before, batch])
    made.to_parquet(folder.path / "points" / point / "learning.parquet")
    write_results(folder, folder.campaign())
    table = pd.read_parquet(folder.path / "results" / "learning.parquet")
    own = table[table["point"] == point][list(TABLES["learning"])]
    pd.testing.assert_frame_equal(
        own.reset_index(drop=True), made[list(TABLES["learning"])], check_dtype=False
    )
    assert own["data"].tolist() == ["held-out", "train"]
    assert set(made) == set(TABLES["learning"])


def test_means_and_paired_differences(done: CampaignFolder) -> None:
    points = pd.DataFrame(
        [
            {"mode": "predict", "u": u, "paradigm": name, "seed": seed, "latency_s": latency_s,
             "max_energy_j": 1.0, "objective": 1.0}
            for u in (2, 3)
            for seed in (1, 2, 3)
            for name, latency_s in (("sfl-pp", 10.0 * seed), ("cpsfl", (10.0 - u) * seed))
        ]
    )  # fmt: skip
    study = done.campaign().studies["split"]
    (row, *_) = means(points, ["mode", "u", "paradigm"]).to_dict("records")
    assert (row["n"], row["latency_s"]) == (3, 20.0)
    assert row["latency_s_ci95"] == half_width(np.array([10.0, 20.0, 30.0]))
    # Seeds differ threefold, but each pair by the same share: there is no interval.
    apart = differences(points, study, ["u", "paradigm"])
    assert apart["paradigm"].tolist() == ["cpsfl", "cpsfl"]
    assert apart["latency_s"].tolist() == pytest.approx([-0.2, -0.3])
    assert apart["latency_s_ci95"].isna().all()
    assert apart["n"].tolist() == [3, 3]


# --- verification --------------------------------------------------------------------------------


def test_verification_finds_what_was_tampered_with(done: CampaignFolder, tmp_path: Path) -> None:
    shutil.copytree(done.path, tmp_path / "copy")
    folder = CampaignFolder(tmp_path / "copy")
    points = {c.point.id: c.point for c in cells(folder.campaign())}
    for id_ in [id_ for id_, point in points.items() if point.mode == "run"]:
        shutil.rmtree(folder.path / "points" / id_)
    tampered, rounded, moved = sorted((folder.path / "points").iterdir())[:3]
    for path, factor in ((tampered, 1 + 1e-9), (rounded, 1 + 2e-16)):
        rounds = pd.read_parquet(path / "rounds.parquet")
        rounds.loc[1, "latency_s"] *= factor
        rounds.to_parquet(path / "rounds.parquet", index=False)
    manifest = json.loads((moved / "manifest.json").read_text())
    manifest["kernel"], manifest["packages"]["numpy"] = "2.4.18", "0.9"
    (moved / "manifest.json").write_text(json.dumps(manifest))

    found = verify(folder, cluster=Cluster(workers=0))
    assert not found.ok
    verdicts = {replay.cell.point.id: replay for replay in found.replays}
    assert len(verdicts) == 8
    assert verdicts.pop(tampered.name).verdict == "differs"
    assert verdicts.pop(rounded.name).verdict == "rounding"
    assert {replay.verdict for replay in verdicts.values()} == {"equal"}
    assert found.environment["kernel"][0] == "2.4.18"
    assert found.environment["packages.numpy"][0] == "0.9"
    text = "\n".join(found.lines())
    assert "rounds, round 1: latency_s" in text
    assert "6 points equal bit for bit" in text
    assert "environment: kernel: 2.4.18 there" in text


def test_a_sample_is_drawn_and_the_same_environment_is_said(done: CampaignFolder) -> None:
    tried = verify(_predicted_only(done), sample=2, cluster=Cluster(workers=0))
    assert tried.ok
    assert len(tried.replays) == 2
    assert tried.environment == {}
    assert list(tried.lines()) == ["2 points equal bit for bit", "The environment is the same."]


def _predicted_only(done: CampaignFolder) -> CampaignFolder:
    copy = CampaignFolder(done.path.with_name("predicted"))
    shutil.copytree(done.path, copy.path)
    for cell in cells(copy.campaign()):
        if cell.point.mode == "run":
            shutil.rmtree(copy.path / "points" / cell.point.id, ignore_errors=True)
    return copy


def test_measured_latencies_are_held_to_the_tolerance(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", uavs=2, rounds=2)
    files = {path.name: path.read_bytes() for path in run.iterdir()}
    assert compare(run, files, tolerance=0)[0] == "within"
    rounds = pd.read_parquet(run / "rounds.parquet").reset_index(drop=True)
    at = rounds.index[rounds["kind"] == "measured"]
    latency_s = rounds["latency_s"].copy()
    for off, verdict in ((0.04, "within"), (0.06, "differs"), (-0.06, "differs")):
        rounds["latency_s"] = latency_s
        rounds.loc[at, "latency_s"] /= 1 + off
        rounds.to_parquet(run / "rounds.parquet", index=False)
        assert compare(run, files, 0.05)[0] == verdict
        assert f"{off:+.2%}" in compare(run, files, 0.05)[1]


def test_equal_environments_do_not_differ() -> None:
    manifest = {"kernel": "6", "packages": {"numpy": "2"}, "started": "then"}
    assert environment_differences(manifest, manifest | {"started": "now"}) == {}
    assert environment_differences(manifest, manifest | {"packages": {}}) == {
        "packages.numpy": ("2", "absent")
    }


# --- the report ----------------------------------------------------------------------------------


def test_figures_are_written_as_png_pdf_and_svg_of_a_papers_width(done: CampaignFolder) -> None:
    names = sorted(path.name for path in (done.path / "figures").iterdir())
    stems = ["measured.pdf", "measured.png", "split-latency.pdf", "split-latency.png"]
    assert names == [*stems, "split-latency.svg"]
    pdf = (done.path / "figures" / "split-latency.pdf").read_bytes()
    assert pdf.startswith(b"%PDF")
    assert re.search(rb"/MediaBox \[ 0 0 252 ", pdf)  # 3.5 inches
    assert b"STIXGeneral" in pdf


def test_links_lead_to_the_reports_of_emulated_points(done: CampaignFolder) -> None:
    page = (done.path / "report.html").read_text(encoding="utf-8")
    links = set(re.findall(r'href="(points/[^"]+)"', page))
    assert len(links) == 2
    for link in links:
        assert (done.path / link).is_file()
        assert read_run((done.path / link).parent).rounds["round"].tolist() == [0]
    for link in re.findall(r'href="(figures/[^"]+)"', page):
        assert (done.path / link).is_file()


def test_the_page_names_failed_checks_first(done: CampaignFolder, tmp_path: Path) -> None:
    """In the box at the top, and in the table, where passed checks come later."""
    own = CampaignFolder(shutil.copytree(done.path, tmp_path / "copy"))
    file = own.path / "results" / "validity.parquet"
    validity = pd.read_parquet(file)
    passed = validity.assign(check="injector_lateness_s", value=1e-5, ok=True)
    pd.concat([passed, validity]).to_parquet(file)
    text = write_campaign_report(own, own.campaign()).read_text(encoding="utf-8")
    words = PageParts(text)
    (problem,) = re.findall(r"<li><b>(.*?)</b></li>", text)
    assert problem == (
        "1 of 10 points is not valid: CPU time taken by other guests (worst 10 %, limit 5.0 %) in "
        "1 point."
    )
    table = words.words("validity")
    assert table.index("1 of 2") < table.index("2 of 2")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    if PROGRAM is None:
        pytest.skip("no Chromium is installed")
    with chromium(tmp_path_factory.mktemp("chromium")) as page:
        yield page


@pytest.mark.parametrize(("width", "dark"), [(1366, False), (1024, True), (1920, True)])
def test_the_page_fits_and_does_not_complain(
    page: Page, done: CampaignFolder, width: int, dark: bool
) -> None:
    page.errors.clear()
    page.requests.clear()
    page.open(done.path / "report.html", width=width, dark=dark)
    assert page.errors == []
    assert set(page.requests) == {(done.path / "report.html").as_uri()}
    assert page.js("document.documentElement.scrollWidth") <= width
    assert page.js("document.querySelectorAll('.study .mean').length") == 4


def test_the_pages_controls_do_what_they_say(page: Page, done: CampaignFolder) -> None:
    page.errors.clear()
    page.open(done.path / "report.html")
    # Hide a line, and show it again.
    key = "document.querySelector('.study .legend button')"
    page.js(f"{key}.click()")
    assert page.js("document.querySelectorAll('.study .mean').length") == 2
    page.js(f"{key}.click()")
    # Another quantity, another mode: of the measured, one place was emulated.
    change = "list.dispatchEvent(new Event('change'))"
    page.js(f"{{ const list = document.querySelectorAll('.study select')[0];"
            f"list.value = 'objective'; {change} }}")  # fmt: skip
    assert "Objective" in page.js("document.querySelector('.study svg text:last-of-type')"
                                  ".closest('svg').getAttribute('aria-label')")  # fmt: skip
    page.js(f"{{ const list = document.querySelectorAll('.study select')[1];"
            f"list.value = 'run'; {change} }}")  # fmt: skip
    assert page.js("document.querySelectorAll('.study .mean').length") == 2
    # A mean tells its numbers.
    page.js("document.querySelector('.study .mean').dispatchEvent("
            "new PointerEvent('pointermove', {clientX: 300, clientY: 300}))")  # fmt: skip
    assert "none: nothing varied" in page.js("document.getElementById('tip').textContent")
    # The filter leaves what contains all words.
    page.js("{ const f = document.querySelector('[data-of=point-table] input[type=search]');"
            "f.value = 'sfl-pp run'; f.dispatchEvent(new Event('input')) }")  # fmt: skip
    rows = "[...document.querySelectorAll('#point-table tbody tr')].filter(r => !r.hidden).length"
    assert page.js(rows) == 1
    page.js("document.getElementById('theme').click()")
    assert "light" in page.js("document.getElementById('theme').textContent")
    assert page.errors == []
