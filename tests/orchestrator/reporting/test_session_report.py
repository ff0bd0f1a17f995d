# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The page of a session: bands and lines are what the table says."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from small_scenario import TREE

from orchestrator.cli.emulate import report
from orchestrator.reporting.session_report import HEIGHT, WIDTH, render, write_session_report
from orchestrator.scenario.loading import validate
from testbed.core.errors import InputError

PROGRAM = {"node": "uav1", "argv": ["a", "<b>"], "start_s": 0.0, "end_s": 2.0, "status": 3}

LEVEL = {
    "direction": "uplink",
    "level": "middle",
    "rate_bps": 12.34e6,
    "error_p50": 1e-3,
    "error_max": 0.0234,
}


def table(slots: int) -> pd.DataFrame:
    rows = [
        (slot, client, direction, 8e6 * client, 1e5 * client, 50_000 * (slot % 2), slot)
        for slot in range(slots)
        for client in (1, 2, 3)
        for direction in ("up", "down")
    ]
    names = ["slot", "client", "direction", "rate_bps", "offered_bytes", "carried_bytes"]
    return pd.DataFrame(rows, columns=[*names, "queued_bytes"])


def page(slots: int) -> str:
    about = {"valid": True, "downlink": "shared", "programs": [PROGRAM | {"stopped": False}]}
    about["calibration"] = [LEVEL]
    return render(about, validate(TREE, "small"), table(slots))


def test_each_link_has_its_band_and_its_line() -> None:
    text = page(4)
    for name in (f"{way} of UAV {k}" for way in ("Uplink", "Downlink") for k in (1, 2, 3)):
        assert text.count(f"<figcaption>{name} ") == 1
    assert "100,000 of 800,000 B carried; queue up to 3 B" in text
    line = np.array(
        re.findall(r"[\d.]+,[\d.]+", re.findall(r'<polyline points="([^"]*)"', text)[1])
    )
    x, y = np.array([point.split(",") for point in line], float).T
    # The second uplink: rate 16 Mb/s, carried 0 and 4 in turn.
    assert x.tolist() == pytest.approx(np.linspace(0, WIDTH, 4), abs=0.05)
    assert y.tolist() == pytest.approx([HEIGHT, 0.75 * HEIGHT] * 2, abs=0.05)
    assert "status 3" in text
    assert "<b>" not in text.replace("&lt;b&gt;", "")
    assert "would have alone" in text
    (row,) = re.findall(r'<th scope="row">uplink</th>.*?</tr>', text)
    assert re.findall(r'"num">([^<]*)<', row) == ["12.34", "0.10 %", "2.3 %"]


def test_times_of_a_dilated_session_are_explained() -> None:
    text = page(4)
    assert "It lasted 0.4 s of emulated time. Commands: 1 ended with status 3 (uav1)." in text
    assert "emulated time is real time" in text
    assert "Duration,<br>real time" not in text
    program = PROGRAM | {"stopped": False}
    about = {"valid": True, "programs": [program], "dilation": 3.0}
    text = render(about, validate(TREE | {"emulation": {"dilation": 3}}, "small"), table(4))
    assert "It lasted 0.4 s of emulated time (1.2 s of real time)." in text
    assert "real, dilation 3: 1 s of emulated time takes 3 s of real time" in text
    (row,) = re.findall(r'<th scope="row">uav1</th>.*?</tr>', text)
    assert re.findall(r'"num">([^<]*)<', row) == ["0.000 s", "2.000 s", "6.000 s"]
    assert "a rate that it prints is the rate on this page divided by 3" in text


def test_failed_checks_of_a_session_come_first_with_their_advice() -> None:
    passed = {"check": "cpu_steal", "limit": 0.05, "value": 0.01, "ok": True, "detail": ""}
    failed = {"check": "transfer_error", "limit": 0.03, "value": 0.2, "ok": False, "detail": ""}
    about = {"valid": False, "validity": [passed, failed], "dilation": 1.0}
    text = render(about, validate(TREE, "small"), table(4))
    title = "Error of transfers, 95th percentile"
    assert f"The session is not valid: 1 of 2 checks failed ({title})." in text
    assert f"<li>{title}: 20 %, at most 3.0 % is allowed<em>Links did not carry" in text
    checks = text[text.index('<section id="validity">') :]
    assert checks.index(title) < checks.index("CPU time taken by other guests")


def test_long_sessions_are_merged_to_means() -> None:
    line = re.findall(r'<polyline points="([^"]*)"', page(1001))[0].split()
    assert len(line) == 334
    assert float(line[0].split(",")[1]) == pytest.approx(HEIGHT * (1 - 1 / 6), abs=0.06)


def test_a_session_that_was_over_before_its_first_slot_has_a_page(tmp_path) -> None:
    about = {"valid": True, "downlink": "shared", "programs": [PROGRAM | {"stopped": False}]}
    (tmp_path / "manifest.json").write_text(json.dumps(about))
    (tmp_path / "scenario.json").write_text(json.dumps(TREE))
    table(0).to_parquet(tmp_path / "session.parquet")
    text = write_session_report(tmp_path).read_text(encoding="utf-8")
    assert "status 3" in text
    assert "<figcaption>" not in text


def test_what_is_no_session_is_named(tmp_path) -> None:
    with pytest.raises(InputError, match="is not a session that has ended"):
        write_session_report(tmp_path)


def test_figures_are_of_runs_alone(tmp_path) -> None:
    table(4).to_parquet(tmp_path / "session.parquet")
    with pytest.raises(InputError, match=r"^`figures`: only for runs; .* holds a session$"):
        report(tmp_path, figures=True)
