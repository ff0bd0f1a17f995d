# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Whoever has a run that is not valid is told what to do."""

import json
import re
from pathlib import Path

import pytest
from finished_campaign import finished_campaign
from synthetic_run import make_run, make_session, manifest
from typer.main import get_command

from orchestrator.cli.main import app
from orchestrator.cli.options import seconds_of
from orchestrator.cli.printed_tables import validity_lines
from orchestrator.emulated.validity import CHECKS, EARLY, WAIT_QUIET, Tenant, ValidityCheck, remedy
from orchestrator.records.emulation import Check
from orchestrator.reporting.report import write_report
from orchestrator.reporting.session_report import write_session_report
from orchestrator.scenario.schema import Emulation, Limits
from testbed.core.errors import InputError
from testbed.system.files import write_json


def test_every_check_has_a_remedy() -> None:
    assert CHECKS.keys() == Limits.model_fields.keys()
    assert all(check.title and check.remedy for check in CHECKS.values())


@pytest.mark.parametrize("clock", ["real", "virtual"])
@pytest.mark.parametrize(("tenant", "command"), [("run", "run"), ("session", "up")])
def test_advice_names_only_what_its_command_has(tenant: Tenant, command: str, clock: str) -> None:
    known = get_command(app).commands[command]
    options = {option for parameter in known.params for option in parameter.opts}
    keys = {f"emulation.{name}" for name in Emulation.model_fields}
    for name, check in CHECKS.items():
        if (check.of_run if tenant == "run" else check.of_session) is None:
            continue
        text = f"{remedy(name, 2.0, 1.0, 1.0, clock, tenant)}; {WAIT_QUIET}"
        assert set(re.findall(r"--[a-z-]+", text)) <= options, text
        assert set(re.findall(r"emulation\.[a-z_]+", text)) <= keys, text
        if tenant == "session":
            assert "round" not in text
            assert "dilation" not in text, "programs of sessions are not dilated"
        if clock == "virtual":
            assert "wait until the machine is idle" not in text


def test_the_dilation_that_would_do_is_named() -> None:
    assert remedy("compute_share", 0.06, 0.02, 2.0).endswith(
        "raise emulation.dilation to 6 or more"
    )
    assert remedy("compute_share", "much", None, 2.0).endswith("raise emulation.dilation")
    assert remedy("of another version", 1, 0, 1.0) == ""


def test_in_virtual_time_no_other_program_is_to_blame() -> None:
    assert remedy("rest_share", 0.1, 0.01, 1.0, "virtual").startswith("no other program runs")
    assert remedy("compute_share", 0.1, 0.01, 1.0, "virtual").startswith("no other program runs")
    assert remedy("of another version", 1, 0, 1.0, "virtual") == ""


@pytest.mark.parametrize(
    ("check", "says"),
    [
        ("loss_deviation", "the frame loss deviates from the configured one: please report it"),
        ("dropped_frames", "a queue was full: lower the delay or the rates"),
        ("unaccounted_packets", "packets vanished between the devices and ns-3: please report it"),
    ],
)
def test_a_cause_in_the_scenario_or_the_testbed_has_its_own_remedy_in_virtual_time(
    check: str, says: str
) -> None:
    assert remedy(check, 9, 1, 1.0, "virtual") == says


def test_a_check_of_a_contributor_has_its_own_remedy_in_virtual_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = "a round took too long: give more bandwidth or a smaller batch"
    monkeypatch.setitem(CHECKS, "longest_round_s", ValidityCheck("Longest round", own))
    assert remedy("longest_round_s", 9, 1, 1.0, "virtual") == own


def test_the_console_says_it_below_each_broken_check() -> None:
    checks = [
        Check("cpu_others", 0.5, 0.9, False, "round 0"),
        Check("cpu_steal", 0.05, 0.0, True),
        Check("dropped_frames", 0.01, 0.2, False),
    ]
    lines = validity_lines(checks, 1.0)
    assert lines[0] == "[bold]not valid[/bold]"
    assert lines[1].startswith("  cpu_others: 0.9, at most 0.5")
    assert "wait until the machine is idle" in lines[2]
    assert lines[3].startswith("  dropped_frames")
    assert "a queue was full" in lines[4]
    assert lines[5:] == ["  --wait-quiet 10m waits for other processes to become idle"]
    assert validity_lines(checks[1:2], 1.0) == ["valid: every check is within its limit"]
    assert len(validity_lines(checks[2:], 1.0)) == 3
    late = [Check("injector_lateness_s", 0.01, 0.5, False)]
    assert "raise emulation.dilation" in validity_lines(late, 1.0)[2]
    assert "use emulation.clock virtual" in validity_lines(late, 1.0, "session")[2]


def test_the_report_says_it_too(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path / "run")
    broken = {"check": "cpu_others", "limit": 0.5, "value": 0.9, "ok": False, "detail": ""}
    kept = {"check": "cpu_steal", "limit": 0.5, "value": 0.1, "ok": True, "detail": ""}
    write_json(run_dir / "manifest.json", manifest(valid=False, validity=[broken, kept]))
    text = write_report(run_dir).read_text()
    # Where the page begins, and beside the check.
    assert text.count("Other programs used the CPU: wait until the machine is idle") == 2
    assert "other guests used the CPU: run" not in text


def test_pages_of_sessions_and_campaigns_say_it_too(tmp_path: Path) -> None:
    broken = {"check": "cpu_others", "limit": 0.5, "value": 0.9, "ok": False, "detail": ""}
    session = make_session(tmp_path / "session")
    about = json.loads((session / "manifest.json").read_text())
    about["programs"][0]["status"] = -35
    write_json(session / "manifest.json", about | {"valid": False, "validity": [broken]})
    text = write_session_report(session).read_text()
    assert "Other programs used the CPU: wait until the machine is idle" in text
    assert "by signal 35 (SIGRTMIN+1)</td>" in text
    page = (finished_campaign(tmp_path).path / "report.html").read_text()
    assert "The host&#39;s other guests used the CPU: run at another time" in page
    assert "CPU time taken by other guests" in page


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("1.5h", 5400), ("30", 30)]
)
def test_a_duration_is_typed_with_its_unit(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "-3", "10 m", "1d", "inf", "nan", "9" * 99])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--wait-quiet: must be like 90s, 10m or 1h, not"):
        seconds_of(text)


@pytest.mark.parametrize("check", ["transfer_error", "broadcast_error", "calibration_error"])
@pytest.mark.parametrize("clock", ["real", "virtual"])
def test_transfers_that_end_too_early_are_no_fault_of_the_network(check: str, clock: str) -> None:
    detail = "largest error 41 %: CA of client 1, round 0"
    late, early = (
        remedy(check, 0.3, 0.03, 1.0, clock, detail=text) for text in (detail, f"{detail}, {EARLY}")
    )
    assert late != early
    assert "please report it" in early
    assert "network" not in early
