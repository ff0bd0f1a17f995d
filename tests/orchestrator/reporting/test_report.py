# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The report of a run: its numbers, what it does without some files, and that nothing leaks out."""

import base64
import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from page_parts import Page, embedded
from synthetic_run import make_run, manifest

from ns3_scenarios.trace import ChannelTrace, load_trace
from orchestrator.analysis.error_budget import KEYS
from orchestrator.records.reader import read_run
from orchestrator.records.summary import budget_by_step, headline, step_comparison
from orchestrator.reporting import charts, formatting, report
from orchestrator.reporting.legend import IMPAIRMENT_PARTS, ramp
from orchestrator.reporting.pages import breakable
from orchestrator.reporting.report import holdings, reading, render, write_report
from orchestrator.reporting.run_plots import PLOTS, draw_run
from testbed.core.errors import InputError
from testbed.core.timeline import STEPS

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&amp;'\"<!--"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("made") / "run")


@pytest.fixture
def run_dir(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


# --- the file ------------------------------------------------------------------------------------


def test_report_is_one_file_that_asks_for_nothing(run_dir: Path) -> None:
    before = {path.name for path in run_dir.iterdir()}
    path = write_report(run_dir)
    assert path == run_dir / "report.html"
    assert {path.name for path in run_dir.iterdir()} == before | {"report.html"}
    html = path.read_text(encoding="utf-8")
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", html)
    assert "@import" not in html
    assert "url(" not in html
    for tag, attributes in Page(html).elements:
        assert tag not in {"img", "iframe", "object", "embed", "base", "form"}
        assert "src" not in attributes
        if tag == "link":
            assert attributes["href"] == "data:,"


def test_policy_allows_the_script_of_the_report_and_no_other(made: Path) -> None:
    html = render(read_run(made))
    script = re.findall(r"<script>(.*?)</script>", html, re.S)
    assert len(script) == 1
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    (policy,) = (
        attributes["content"]
        for tag, attributes in Page(html).elements
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert f"script-src 'sha256-{digest}';" in str(policy)
    assert "default-src 'none'" in str(policy)


def test_what_users_name_is_text_and_nothing_else(run_dir: Path) -> None:
    plain = Page(render(read_run(run_dir))).elements
    change(run_dir / "scenario.json", name=HOSTILE)
    change(
        run_dir / "manifest.json",
        command=HOSTILE,
        revision=HOSTILE,
        dirty=True,
        packages={"numpy": HOSTILE, "torch": "2", "ns3": "3"},
        data=f"synthetic {HOSTILE}",
        cpu=HOSTILE,
        valid=False,
        validity=[{"check": HOSTILE, "limit": HOSTILE, "value": HOSTILE, "ok": False}],
    )
    spans = pd.read_parquet(run_dir / "measured.parquet")
    spans.assign(paradigm=HOSTILE).to_parquet(run_dir / "measured.parquet")
    learning = pd.read_parquet(run_dir / "learning.parquet")
    learning.assign(paradigm=HOSTILE).to_parquet(run_dir / "learning.parquet")
    html = render(read_run(run_dir))
    page = Page(html)
    assert page.title == f"{HOSTILE} · run report"
    assert embedded(html)["over_time"]["learning"]["curves"][0]["label"] == "training"
    count = {tag: sum(t == tag for t, _ in page.elements) for tag in ("script", "img")}
    assert count == {"script": 2, "img": 0}
    handlers = [name for _, attributes in page.elements for name in attributes if name[:2] == "on"]
    assert not handlers
    assert {tag for tag, _ in page.elements} <= {tag for tag, _ in plain} | {"ul", "li"}


def test_no_directory_of_a_run(tmp_path: Path, run_dir: Path) -> None:
    with pytest.raises(InputError, match=r"manifest\.json is missing"):
        write_report(tmp_path)
    with pytest.raises(InputError, match=r"manifest\.json is missing"):
        write_report(tmp_path / "none")
    (run_dir / "scenario.json").unlink()
    with pytest.raises(InputError, match=r"scenario\.json is missing"):
        write_report(run_dir)
    (run_dir / "manifest.json").write_text("[1]")
    with pytest.raises(InputError, match=r"manifest\.json: must be a JSON object"):
        write_report(run_dir)
    (run_dir / "manifest.json").write_text("{")
    with pytest.raises(InputError, match=r"manifest\.json: is not JSON"):
        write_report(run_dir)
    assert not (run_dir / "report.html").exists()


# --- numbers -------------------------------------------------------------------------------------


def test_headline_is_the_mean_over_rounds(made: Path) -> None:
    rounds = pd.read_parquet(made / "rounds.parquet").set_index(["kind", "round"])["latency_s"]
    run = read_run(made)
    short = headline(run)
    assert short.measured_s == pytest.approx(rounds["measured"].mean(), rel=1e-12)
    assert short.wire_s == pytest.approx(rounds["predicted_wire"].mean(), rel=1e-12)
    assert short.predicted_s == pytest.approx(rounds["predicted"].mean(), rel=1e-12)
    total = rounds["measured"].sum() / rounds["predicted_wire"].sum() - 1
    assert short.wire_error == pytest.approx(total, rel=1e-9)
    errors = (rounds["measured"] / rounds["predicted_wire"] - 1).to_numpy()
    assert short.worst_error == pytest.approx(errors[np.abs(errors).argmax()], rel=1e-9)
    framing = pd.read_parquet(made / "budget.parquet").query("part == 'framing'")["seconds"].mean()
    assert f"protocol bytes ({formatting.milliseconds(framing)})" in reading(run, short)
    error = formatting.percent(abs(total), sign=False)
    assert f"{error} {'more' if total > 0 else 'less'} than" in reading(run, short)


def test_headline_compares_only_rounds_that_were_measured(run_dir: Path) -> None:
    rounds = pd.read_parquet(run_dir / "rounds.parquet")
    rounds = rounds[(rounds["kind"] != "measured") | (rounds["round"] == 0)]
    rounds.to_parquet(run_dir / "rounds.parquet")
    latency = rounds.set_index(["kind", "round"])["latency_s"]
    short = headline(read_run(run_dir))
    assert short.wire_s == latency["predicted_wire", 0]
    assert short.wire_error == pytest.approx(
        latency["measured", 0] / latency["predicted_wire", 0] - 1, rel=1e-9
    )


def test_steps_are_compared_one_by_one(made: Path) -> None:
    table = step_comparison(read_run(made)).set_index("step")
    assert list(table.index) == list(STEPS)
    spans = {
        kind: {
            (row.round, row.client, row.iteration): row.end_s - row.start_s
            for row in pd.read_parquet(made / f"{kind}.parquet").itertuples()
            if row.step == "SG"
        }
        for kind in ("predicted_wire", "measured")
    }
    apart = [spans["measured"][key] - spans["predicted_wire"][key] for key in spans["measured"]]
    assert table.loc["SG", "count"] == len(apart) == 2 * 3 * 3
    assert table.loc["SG", "difference_s"] == pytest.approx(np.mean(apart), rel=1e-9)
    assert table.loc["SG", "p95_s"] == pytest.approx(np.percentile(np.abs(apart), 95), rel=1e-9)


def test_tables_print_every_round(made: Path) -> None:
    page = Page(render(read_run(made)))
    for row in pd.read_parquet(made / "rounds.parquet").itertuples():
        assert f"{row.latency_s:.4f}" in page.words("rounds")
    for row in pd.read_parquet(made / "budget.parquet").itertuples():
        shown = row.part not in IMPAIRMENT_PARTS or row.seconds
        assert (formatting.in_ms(row.seconds) in page.words("budget")) or not shown
    assert "do not add up" not in page.words("budget")


def test_budget_that_does_not_add_up_is_called_out(run_dir: Path) -> None:
    budget = pd.read_parquet(run_dir / "budget.parquet")
    budget.loc[(budget["round"] == 1) & (budget["part"] == "rest"), "seconds"] += 0.0125
    budget.to_parquet(run_dir / "budget.parquet")
    words = Page(render(read_run(run_dir))).words("budget")
    assert "parts of round 1 do not add up to its difference: −12.5 ms are missing" in words
    assert "parts of round 0" not in words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (formatting.seconds(1234.5678), "1,234.568 s"),
        (formatting.seconds(None), "–"),
        (formatting.seconds(float("nan")), "–"),
        (formatting.milliseconds(0.0123456), "+12.3 ms"),
        (formatting.milliseconds(-0.0012345), "−1.23 ms"),
        (formatting.milliseconds(0.00012345), "+0.123 ms"),
        (formatting.milliseconds(-1e-9), "0.000 ms"),
        (formatting.in_ms(-0.0012345), "−1.23"),
        (formatting.in_ms(None), "–"),
        (formatting.seconds(-0.1), "−0.100 s"),
        (formatting.sentence("why: so"), "Why: so."),
        (breakable("a_<b"), "a_<wbr>&lt;b"),
        (formatting.sentence("a.b_c is 3"), "a.b_c is 3."),
        (formatting.percent(0.0012345), "+0.12 %"),
        (formatting.percent(-0.12345), "−12 %"),
        (formatting.percent(0.04, sign=False), "4.0 %"),
        (formatting.percent(0.000999), "+0.10 %"),
        (formatting.percent(12.345), "+1,234 %"),
        (formatting.percent(1e-6), "+0.00010 %"),
        (formatting.percent(-1.75e-16), "< 0.0001 %"),
        (formatting.percent(0.0), "0 %"),
        (formatting.number(12345.678, 1), "12,345.7"),
        (formatting.plain(True), "yes"),
        (formatting.plain(None), "–"),
        (formatting.plain(2.5), "2.5"),
    ],
)
def test_numbers_as_printed(text: str, expected: str) -> None:
    assert text == expected


# --- validity, failure, data ---------------------------------------------------------------------


def test_run_that_is_not_valid_says_why(run_dir: Path) -> None:
    checks = [
        {"check": "injector lateness p99", "limit": "0.5 ms", "value": "3.1 ms", "ok": False},
        {"check": "packets dropped", "limit": 0, "value": 0, "ok": True},
    ]
    change(run_dir / "manifest.json", valid=False, validity=checks)
    words = Page(render(read_run(run_dir))).words("overview")
    assert "✕ not valid" in words
    assert "injector lateness p99: 3.1 ms, at most 0.5 ms is allowed" in words
    assert "packets dropped" not in words


def test_checks_are_in_words_and_units(run_dir: Path) -> None:
    checks = [
        {"check": "injector_lateness_s", "limit": 0.005, "value": 9.1e-3, "ok": False},
        {
            "check": "transfer_error",
            "limit": 0.03,
            "value": 0.081,
            "ok": False,
            "detail": "CA of 1",
        },
        {"check": "backlog_bytes", "limit": 10_000, "value": 12_345, "ok": False},
        {"check": "cpu_of_tomorrow", "limit": 0.5, "value": 0.25, "ok": True},
    ]
    change(run_dir / "manifest.json", valid=False, validity=checks)
    page = Page(render(read_run(run_dir)))
    words = page.words("overview")
    assert "Lateness of rate changes, 99th percentile: 9.1 ms, at most 5 ms is allowed" in words
    assert "Error of transfers, 95th percentile: 8.1 %, at most 3.0 % is allowed (CA of 1)" in words
    assert "12,345 B, at most 10,000 B" in words
    cells = page.cells("validity")
    assert "✓passedcpu_of_tomorrow25%50%" in cells
    assert cells.index("✕failed") < cells.index("✓passed")


@pytest.mark.parametrize(("valid", "badge"), [(True, "✓ valid"), (None, "? validity not judged")])
def test_badge(run_dir: Path, valid: bool | None, badge: str) -> None:
    change(run_dir / "manifest.json", valid=valid)
    words = Page(render(read_run(run_dir))).words("overview")
    assert badge in words
    assert "Do not draw conclusions" not in words


def test_failed_run_says_how_far_it_came(run_dir: Path) -> None:
    change(run_dir / "manifest.json", status="failed", failure="UAV 2 died", valid=None)
    rounds = pd.read_parquet(run_dir / "rounds.parquet")
    rounds[(rounds["kind"] != "measured") | (rounds["round"] == 0)].to_parquet(
        run_dir / "rounds.parquet"
    )
    words = Page(render(read_run(run_dir))).words("overview")
    assert "✕ failed" in words
    assert "The run failed after 1 of 2 rounds: UAV 2 died." in words


def test_divergence_and_remarks_are_shown(run_dir: Path) -> None:
    assert "diverged" not in Page(render(read_run(run_dir))).words("overview")
    line = "losses stopped being finite in round 1 (uav2, iteration 3): the training has diverged"
    remark = "workload.data.source: 3 classes"
    change(run_dir / "manifest.json", diverged=line, remarks=[remark])
    words = Page(render(read_run(run_dir))).words("overview")
    assert line[1:] in words
    assert remark[1:] in words


def test_synthetic_data_are_called_so(run_dir: Path) -> None:
    assert "The data are synthetic" in Page(render(read_run(run_dir))).words("overview")
    change(run_dir / "manifest.json", data="CIFAR-100, 500 images")
    words = Page(render(read_run(run_dir))).words("overview")
    assert "synthetic (" not in words
    assert "Data: CIFAR-100, 500 images." in words


# --- calibration, overheads, parts ---------------------------------------------------------------


def test_calibration_gives_the_links_errors(run_dir: Path) -> None:
    table = pd.read_parquet(run_dir / "calibration.parquet")
    error = table.query("direction == 'uplink' and level == 'lowest'")["error"].abs()
    errors = "".join(formatting.percent(each, sign=False) for each in (error.median(), error.max()))
    assert f"uplinklowest1.00{errors.replace(' ', '')}" in Page(render(read_run(run_dir))).cells(
        "validity"
    )


def lose_frames(run_dir: Path, slots: int = 4) -> pd.DataFrame:
    """Give a run frames that its links lost: two rounds share slot 2."""
    rows = [
        (round_, slot, client, direction, slot * client * (direction == "up"), 100, asked)
        for round_, own in enumerate([range(3), range(2, slots)])
        for slot in own
        for client in (1, 2, 3)
        for direction, asked in (("up", 0.01 * client), ("down", 0.0))
    ]
    names = ["round", "slot", "client", "direction", "lost_frames", "arrived_frames", "asked_loss"]
    table = pd.DataFrame(rows, columns=names)
    table.to_parquet(run_dir / "air_slots.parquet")
    return table


def test_lost_frames_are_shown_by_slot_with_what_was_asked(run_dir: Path) -> None:
    table = lose_frames(run_dir)
    html = render(read_run(run_dir))
    page, data = Page(html), embedded(html)["lost_frames"]
    assert data["slots_a_bar"] == 1
    bars = zip(*(data[name] for name in ("client", "direction", "time_s", "frames")), strict=True)
    # Slot 2 is of both rounds, slot 0 lost nothing.
    due = {(k, "up", 0.1): k for k in (1, 2, 3)} | {(k, "up", 0.2): 4 * k for k in (1, 2, 3)}
    due |= {(k, "up", 0.3): 3 * k for k in (1, 2, 3)}
    assert {tuple(bar[:3]): bar[3] for bar in bars} == due
    up = table[table["direction"] == "up"]
    lost, frames = up["lost_frames"].sum(), (up["lost_frames"] + up["arrived_frames"]).sum()
    asked = ((up["lost_frames"] + up["arrived_frames"]) * up["asked_loss"]).sum() / frames
    words = page.words("timeline")
    share, due_share = (formatting.percent(value, sign=False) for value in (lost / frames, asked))
    assert (
        f"Uplinks lost {lost} of {frames:,} frames, {share}; {due_share} was configured." in words
    )
    assert "Downlinks lost 0 of 1,500 frames, 0 %; 0 % was configured." in words
    assert "3245244.6%3.0%05000%0%" in page.cells("timeline")


def test_many_slots_are_merged_to_the_sum_of_their_losses(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lose_frames(run_dir, slots=31)
    monkeypatch.setattr(charts, "MAX_RATE_POINTS", 2 * 3 * 4)
    data = embedded(render(read_run(run_dir)))["lost_frames"]
    assert data["slots_a_bar"] == 8
    assert sorted(set(data["time_s"])) == pytest.approx([0, 0.8, 1.6, 2.4])
    assert sum(data["frames"]) == table["lost_frames"].sum()


def test_nothing_is_said_of_losses_where_none_were_asked_for(made: Path) -> None:
    html = render(read_run(made))
    assert embedded(html)["lost_frames"] is None
    assert "lost-frames" not in [attributes.get("id") for _, attributes in Page(html).elements]
    assert "air_slots" not in html


def test_overheads_are_the_bytes_of_the_rounds(run_dir: Path) -> None:
    table = pd.read_parquet(run_dir / "accounts.parquet").query("round >= 0")
    sums = table.groupby("direction")[["payload_bytes", "header_bytes"]].sum()
    cells = Page(render(read_run(run_dir))).cells("overheads")
    share = sums["header_bytes"].sum() / sums.to_numpy().sum()
    up, down = (sums.at[way, "header_bytes"] for way in ("up", "down"))
    share = formatting.percent(share, sign=False).replace(" ", "")
    headers = "Ethernet,IP,TCPandUDPheadersofframeswithdata"
    assert f"packetheaders{up:,}{down:,}{share}{headers}" in cells
    assert "TLS" not in cells  # there was none


def test_what_a_latency_is_made_of_adds_up(run_dir: Path) -> None:
    table = pd.read_parquet(run_dir / "waterfall.parquet")
    mean_s = table.query("part == 'framing'")["seconds"].mean()
    cells = Page(render(read_run(run_dir))).cells("overheads")
    assert f"messageframing+{1e3 * mean_s:,.1f}" in cells
    assert "startoftheround" in cells


def test_without_overheads_there_is_no_section_of_them(run_dir: Path) -> None:
    for name in ("accounts", "waterfall"):
        (run_dir / f"{name}.parquet").unlink()
    page = Page(render(read_run(run_dir)))
    assert "overheads" not in page.text
    assert ("a", {"href": "#overheads"}) not in page.elements


def test_a_part_that_the_report_does_not_know_is_shown_all_the_same(run_dir: Path) -> None:
    table = pd.read_parquet(run_dir / "budget.parquet")
    table["part"] = table["part"].replace("rest", "weather")
    table.to_parquet(run_dir / "budget.parquet")
    page = render(read_run(run_dir))
    cells = Page(page).cells("budget")
    # Delay and loss, which only the air adds, are left out where it adds nothing.
    assert "ProtocolbytesinmsComputinginmsRateinjectioninmsOrderofserviceinmsWeatherinms" in cells
    assert [part["key"] for part in embedded(page)["budget"][0]["parts"]][-1] == "weather"
    assert "Thepartsofround" not in cells  # they add up


# --- missing files -------------------------------------------------------------------------------

SECTIONS = {
    "rounds.parquet": "rounds",
    "measured.parquet": "timeline",
    "predicted_wire.parquet": "timeline",
    "rates.parquet": "timeline",
    "trace.npz": "map",
    "budget.parquet": "budget",
    "budget_steps.parquet": "budget",
    "injector.parquet": "validity",
    "learning.parquet": "learning",
    "calibration.parquet": "validity",
}


@pytest.mark.parametrize(("name", "section"), SECTIONS.items())
def test_section_says_which_file_it_lacks(run_dir: Path, name: str, section: str) -> None:
    (run_dir / name).unlink()
    page = Page(render(read_run(run_dir)))
    assert f"Not shown: {name} is not in the run directory." in page.words(section)
    others = "".join(text for other, text in page.text.items() if other != section)
    assert f"{name} is not" not in others


@pytest.mark.parametrize("name", SECTIONS)
def test_broken_file_is_refused_and_nothing_written(run_dir: Path, name: str) -> None:
    (run_dir / name).write_bytes(b"PAR1 nothing of the kind")
    with pytest.raises(InputError, match=name):
        write_report(run_dir)
    assert not (run_dir / "report.html").exists()


def test_losses_are_shown_without_a_prediction(run_dir: Path) -> None:
    for name in ("predicted.parquet", "predicted_wire.parquet"):
        (run_dir / name).unlink()
    lost = {"kind": "measured", "round": 0, "client": 1, "lost_s": 2.5, "stopped_s": 2.0}
    pd.DataFrame([lost | {"cause": "uav-crash"}]).to_parquet(run_dir / "lost.parquet")
    fault = {"kind": "uav-crash", "nodes": ["uav1"], "round": 0, "start_s": 2.0, "end_s": None}
    change(run_dir / "manifest.json", faults=[fault | {"origin": "planned"}])
    assert "01uav-crash2.500–" in Page(render(read_run(run_dir))).cells("faults")


def test_empty_file_and_lacking_column_are_told_apart(run_dir: Path) -> None:
    pd.read_parquet(run_dir / "learning.parquet").head(0).to_parquet(run_dir / "learning.parquet")
    rates = pd.read_parquet(run_dir / "rates.parquet").drop(columns="uplink_bps")
    rates.to_parquet(run_dir / "rates.parquet")
    page = Page(render(read_run(run_dir)))
    assert "learning.parquet is empty" in page.words("learning")
    assert "rates.parquet lacks the column uplink_bps" in page.words("timeline")


def test_bytes_only_run_explains_why_nothing_was_learnt(run_dir: Path) -> None:
    (run_dir / "learning.parquet").unlink()
    tree = json.loads((run_dir / "scenario.json").read_text())
    tree["workload"]["compute"] = "none"
    (run_dir / "scenario.json").write_text(json.dumps(tree))
    words = Page(render(read_run(run_dir))).words("learning")
    assert "workload.compute is none" in words


def test_trace_without_positions(run_dir: Path) -> None:
    trace = load_trace(run_dir / "trace.npz")
    ChannelTrace(gain=trace.gain, slot_s=trace.slot_s).save(run_dir / "trace.npz")
    assert "without positions" in Page(render(read_run(run_dir))).words("map")


def test_nothing_but_manifest_and_scenario(run_dir: Path) -> None:
    for name in (*SECTIONS, "predicted.parquet"):
        (run_dir / name).unlink()
    (run_dir / "manifest.json").write_text(json.dumps({"status": "failed"}))
    page = Page(write_report(run_dir).read_text())
    assert "The run failed after 0 of 2 rounds" in page.words("overview")
    assert "Nothing was measured." in page.words("overview")


# --- what is drawn -------------------------------------------------------------------------------


def test_spans_are_those_of_the_file(made: Path) -> None:
    columns = embedded(render(read_run(made)))["spans"]["measured"]
    table = pd.read_parquet(made / "measured.parquet")
    assert columns["total"] == len(table) == len(columns["round"])
    drawn = pd.DataFrame({name: columns[name] for name in columns if name != "total"})
    drawn["step"] = np.array(STEPS)[drawn["step"]]
    both = drawn.merge(table.astype({"step": str}), on=KEYS)
    assert len(both) == len(table)
    assert (both["end_s_x"] - both["end_s_y"]).abs().max() <= 5.1e-9
    assert (both["bytes_x"] == both["bytes_y"]).all()


def test_many_spans_are_cut_after_a_whole_client(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = 5 * 3 + 2
    monkeypatch.setattr(charts, "MAX_SPANS", 2 * each + 3)
    columns = embedded(render(read_run(made)))["spans"]["measured"]
    assert len(columns["client"]) == 2 * each
    assert set(columns["client"]) == {1, 2}
    assert columns["total"] == 2 * 3 * each


def test_rates_are_exact_until_they_are_too_many(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pd.read_parquet(made / "rates.parquet").query("client == 2").sort_values("slot")
    kbps = table["uplink_bps"].to_numpy() / 1e3
    rates = embedded(render(read_run(made)))["rates"]
    assert rates["slots_a_point"] == 1
    np.testing.assert_allclose(rates["uplink_kbps"][1], kbps, atol=0.5)
    np.testing.assert_allclose(rates["time_s"], table["time_s"], atol=1e-6)

    monkeypatch.setattr(charts, "MAX_RATE_POINTS", 2 * 3 * 10)
    rates = embedded(render(read_run(made)))["rates"]
    merged = rates["slots_a_point"]
    assert merged == -(-len(kbps) // 10)
    means = [kbps[i : i + merged].mean() for i in range(0, len(kbps), merged)]
    np.testing.assert_allclose(rates["uplink_kbps"][1], means, atol=0.5)
    assert rates["end_s"] == pytest.approx(table["time_s"].iloc[-1] + 0.1)


def test_rounds_that_share_a_slot_do_not_count_it_twice(run_dir: Path, tmp_path: Path) -> None:
    rates = pd.read_parquet(run_dir / "rates.parquet")
    again = rates[rates["slot"] == 55].assign(uplink_bps=5e6)
    before, after = rates[rates["slot"] <= 55], rates[rates["slot"] > 55]
    pd.concat([before, again, after]).to_parquet(run_dir / "rates.parquet")
    drawn = embedded(render(read_run(run_dir)))["rates"]
    assert len(drawn["time_s"]) == rates["slot"].nunique()
    assert [row[55] for row in drawn["uplink_kbps"]] == [5000] * 3
    assert draw_run(run_dir, tmp_path)


def test_budget_of_a_step_is_the_mean_over_its_occurrences(made: Path) -> None:
    table = pd.read_parquet(made / "budget_steps.parquet")
    own = table[(table["step"] == "CA") & (table["part"] == "framing")]["seconds"]
    assert len(own) == 2 * 3 * 3
    by_step = budget_by_step(read_run(made))
    assert by_step is not None
    assert by_step.loc["CA", "framing"] == pytest.approx(own.mean(), rel=1e-12)
    assert own.mean() > 0.01


def test_paths_follow_the_trace_to_the_end_of_the_run(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charts, "MAX_PATH_POINTS_EACH", 20)
    paths = embedded(render(read_run(made)))["paths"]
    trace = load_trace(made / "trace.npz")
    assert trace.position_m is not None
    slots = np.rint(np.array(paths["time_s"]) / trace.slot_s).astype(int)
    assert len(slots) == 20
    np.testing.assert_allclose(paths["x_m"], trace.position_m[:, slots, 0], atol=0.051)
    np.testing.assert_allclose(paths["y_m"], trace.position_m[:, slots, 1], atol=0.051)
    end_s = pd.read_parquet(made / "measured.parquet")["end_s"].max()
    assert paths["time_s"][-1] == pytest.approx(end_s, abs=2 * trace.slot_s)
    assert paths["time_s"][-1] < trace.slots * trace.slot_s / 2


def test_lateness_histogram_counts_every_slot(made: Path) -> None:
    late = pd.read_parquet(made / "injector.parquet")["lateness_s"]
    drawn = embedded(render(read_run(made)))["injector"]
    assert sum(drawn["counts"]) == len(late)
    assert drawn["marks"]["p99"] == pytest.approx(np.percentile(late, 99))
    assert drawn["marks"]["max"] == late.max()
    edges = np.array(drawn["edges_s"])
    assert drawn["counts"][0] == ((late >= edges[0]) & (late < edges[1])).sum()


def test_learning_has_one_curve_a_schedule(run_dir: Path) -> None:
    table = pd.read_parquet(run_dir / "learning.parquet").reset_index(drop=True)
    table.loc[0, "accuracy"] = np.nan
    both = pd.concat([table.assign(paradigm="cpsfl"), table.assign(paradigm="sfl-pp")])
    both.to_parquet(run_dir / "learning.parquet")
    curves = embedded(render(read_run(run_dir)))["over_time"]["learning"]["curves"]
    assert [curve["label"] for curve in curves] == ["training, CPSFL", "training, SFL-PP"]
    first = table[(table["round"] == 0) & (table["iteration"] == 1)]
    assert curves[0]["loss"][0] == pytest.approx(first["loss"].mean(), abs=1e-6)
    assert curves[0]["accuracy"][0] == pytest.approx(first["accuracy"].mean(), abs=1e-6)
    assert curves[0]["clients"][0]["accuracy"][0] is None


def test_manifest_helper_is_a_whole_manifest() -> None:
    assert manifest(valid=None)["valid"] is None


# --- figures -------------------------------------------------------------------------------------


def test_figures_are_a_column_wide_with_embedded_fonts(made: Path, tmp_path: Path) -> None:
    from PIL import Image

    paths = draw_run(made, tmp_path / "new" / "folder")
    assert [path.name for path in paths] == [
        f"{name}.{kind}"
        for name in PLOTS
        for kind in ("png", "pdf")
        if name != "learning"  # Nothing was evaluated.
    ]
    for path in paths:
        if path.suffix == ".png":
            assert Image.open(path).width == round(3.5 * 300)
            continue
        pdf = path.read_bytes()
        assert re.search(rb"/MediaBox \[ ?0 0 252 ", pdf)
        assert b"/FontFile2" in pdf
        assert b"/Type3" not in pdf
    assert not list((tmp_path / "new" / "folder").glob(".*"))


def test_figures_repeat_to_the_byte(made: Path, tmp_path: Path) -> None:
    first, second = (draw_run(made, tmp_path / name, 1) for name in "ab")
    assert [a.read_bytes() for a in first] == [b.read_bytes() for b in second]


def test_figures_of_what_there_is(run_dir: Path, tmp_path: Path) -> None:
    (run_dir / "budget.parquet").unlink()
    (run_dir / "measured.parquet").unlink()
    assert {path.stem for path in draw_run(run_dir, tmp_path)} == {"gantt", "rates"}
    with pytest.raises(InputError, match="no round 7"):
        draw_run(run_dir, tmp_path, 7)


def test_the_class_distribution_is_drawn_if_the_run_has_one(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    assert 'id="holdings"' not in write_report(run).read_text()
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["partition"] = [[[0, 30], [2, 10]], [[1, 20]], []]
    (run / "manifest.json").write_text(json.dumps(manifest))
    text = write_report(run).read_text()
    assert "Class distribution per UAV" in text
    assert 'title="UAV 1, class 0: 30" style="width:75.00%' in text, "30 of the largest, 40"
    assert 'title="UAV 1, class 2: 10" style="width:25.00%' in text
    assert 'title="UAV 2, class 1: 20" style="width:50.00%' in text
    bars = holdings(manifest["partition"])
    assert [bar["samples"] for bar in bars] == [40, 20, 0]
    for wrong in (None, 3, [[["a", 1]]], [[1, 2]], {"x": 1}):
        assert holdings(wrong) == []


# --- what was learned ----------------------------------------------------------------------------


def evaluate(run_dir: Path, *found: tuple[int, float, float]) -> str:
    """The report after evaluations: rounds before each, loss, accuracy."""
    path = run_dir / "learning.parquet"
    change(run_dir / "scenario.json", rounds=9)
    rows = pd.read_parquet(path).assign(data="train")
    held_out = [
        {"round": rounds - 1, "data": "held-out", "client": 0, "iteration": 0}
        | {"time_s": 5.0 * rounds, "loss": loss, "accuracy": accuracy}
        for rounds, loss, accuracy in found
    ]
    pd.concat([rows, pd.DataFrame(held_out)], ignore_index=True).to_parquet(path)
    return render(read_run(run_dir))


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (
            [(0, 2.4, 0.118), (1, 2.3, 0.148), (2, 2.2, 0.228), (3, 2.1, 0.328)],
            "32.8 % after 3 rounds (best 32.8 % after 3 rounds; 11.8 % before the first round)",
        ),
        (
            [(0, 2.4, 0.1), (1, 2.0, 0.5), (2, 2.2, 0.4)],
            "40.0 % after 2 rounds (best 50.0 % after 1 round; 10.0 % before the first round)",
        ),
        (
            [(0, 2.4, 0.3), (1, 2.0, 0.2)],
            "20.0 % after 1 round (best 30.0 % before the first round)",
        ),
        ([(2, 2.4, 0.3), (4, 2.0, 0.3)], "30.0 % after 4 rounds (best 30.0 % after 2 rounds)"),
        ([(0, 2.4, 0.1), (1, np.nan, np.nan)], "not finite after 1 round (best 10.0 % before"),
        ([(3, 2.4, 1.0)], "100.0 % after 3 rounds."),
    ],
)
def test_what_the_model_reached_is_said_first_and_in_a_table(
    run_dir: Path, found: list[tuple[int, float, float]], text: str
) -> None:
    page = Page(evaluate(run_dir, *found))
    assert f"The held-out accuracy is {text}" in page.words("overview")
    assert f"The held-out accuracy is {text}" in page.words("learning")
    assert "Training by UAV" in page.words("learning")
    outcome = report._outcome(read_run(run_dir))
    assert outcome is not None
    assert outcome.line().startswith(f"held-out {outcome.last.when}: loss")
    for evaluation in (outcome.evaluations[0], outcome.best, outcome.last):
        assert evaluation.shown("accuracy") in page.words("learning")


def test_curves_are_called_training_and_held_out(run_dir: Path) -> None:
    curves = embedded(evaluate(run_dir, (0, 2.4, 0.1)))["over_time"]["learning"]["curves"]
    assert [curve["label"] for curve in curves] == ["training", "held-out"]


def test_the_last_batches_of_each_uav_are_in_a_table(run_dir: Path) -> None:
    change(run_dir / "manifest.json", partition=[[[0, 3], [2, 4]], [[1, 5]], [[0, 1]]])
    run = read_run(run_dir)
    rows = report.trained(run)
    table = run.tables["learning"]
    last = table[table["round"] == table["round"].max()].groupby("client")["loss"].mean()
    assert [row["samples"] for row in rows] == [7, 5, 1]
    assert [row["loss"] for row in rows] == pytest.approx(last.tolist())
    change(run_dir / "manifest.json", partition="nonsense")
    assert {row["samples"] for row in report.trained(read_run(run_dir))} == {None}


def test_a_training_without_evaluation_says_so(run_dir: Path) -> None:
    page = Page(render(read_run(run_dir)))
    assert "Nothing was evaluated on held-out data" in page.words("learning")
    assert "held-out" not in page.words("overview")


def test_classes_can_be_ordered_by_their_lightness() -> None:
    for count in (1, 2, 10, 100):
        lightness = []
        for place in range(count):
            red, green, blue = bytes.fromhex(ramp(place, count)[1:])
            lightness.append(0.2126 * red + 0.7152 * green + 0.0722 * blue)
        assert lightness == sorted(lightness)
