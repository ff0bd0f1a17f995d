# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The sentences with which pages begin."""

from typing import Any

import pytest

from orchestrator.reporting.outcome import (
    clock_sentence,
    ends_sentence,
    failed_first,
    latency_sentence,
    validity_sentence,
)

PASSED = {"check": "cpu_steal", "ok": True}
FAILED = {"check": "cpu_others", "ok": False}
UNKNOWN = {"check": "of_tomorrow", "ok": None}


@pytest.mark.parametrize(
    ("valid", "checks", "sentence"),
    [
        (True, [PASSED, PASSED], "The run is valid: all 2 checks passed."),
        (True, [PASSED], "The run is valid."),
        (True, None, "The run is valid."),
        (None, None, "The run was not checked, so it is not known whether it is valid."),
        (False, None, "The run is not valid; no reason was recorded."),
        (
            False,
            [FAILED, FAILED, FAILED],
            "The run is not valid: 3 of 3 checks failed (CPU time taken by other programs; "
            "CPU time taken by other programs; …).",
        ),
        (
            False,
            [PASSED, FAILED, {"check": "x_y", "ok": False}],
            "The run is not valid: 2 of 3 checks failed (CPU time taken by other programs; x_y).",
        ),
    ],
)
def test_the_verdict_names_the_failed_checks(
    valid: bool | None, checks: list[dict[str, Any]] | None, sentence: str
) -> None:
    assert validity_sentence("run", valid, checks) == sentence


def test_failed_checks_are_listed_first() -> None:
    assert failed_first([PASSED, UNKNOWN, FAILED]) == [FAILED, UNKNOWN, PASSED]
    assert failed_first(None) == []


def test_a_latency_is_compared_with_its_prediction() -> None:
    one = latency_sentence("CPSFL", 5.0, 1, None, None)
    assert one == "With CPSFL, a round took 5.000 s."
    more = "With CPSFL, a round took 5.000 s (mean of 2 rounds), 1.2 % more than the engine "
    assert (
        latency_sentence("CPSFL", 5.0, 2, 0.0123, 4.9) == f"{more}predicts with frames (4.900 s)."
    )
    assert "1.2 % less than the engine" in latency_sentence("CPSFL", 5.0, 2, -0.0123, 4.9)
    assert ", exactly what the engine predicts" in latency_sentence("CPSFL", 5.0, 2, 1e-9, 5.0)
    # Virtual time is accurate to millionths, which are differences nevertheless.
    assert ", 0.00040 % more than the engine" in latency_sentence("CPSFL", 5.0, 2, 4e-6, 5.0)
    assert ", < 0.0001 % less than the engine" in latency_sentence("CPSFL", 5.0, 2, -5e-7, 5.0)


def test_the_clock_and_the_dilation_are_named() -> None:
    assert clock_sentence("real", 1.0) == "real, dilation 1: emulated time is real time"
    assert "1 s of emulated time takes 2.5 s of real time" in clock_sentence("real", 2.5)
    assert clock_sentence("virtual", 1.0).startswith("virtual")
    assert clock_sentence("real", "auto") == clock_sentence("real", None)


def test_commands_are_counted_by_their_end_with_failures_first() -> None:
    def program(node: str, status: int | None, stopped: bool = False) -> dict[str, Any]:
        return {"node": node, "status": status, "stopped": stopped}

    programs = [program(f"uav{k}", 0) for k in range(1, 7)]
    programs += [program("bs", -15, True), program("uav7", 2), program("uav8", -9)]
    assert ends_sentence([*programs, program("uav9", None)]) == (
        "Commands: 1 ended with status 2 (uav7); 1 ended by SIGKILL (uav8); 1 ended with an "
        "unknown status (uav9); 6 ended with status 0 (uav1, uav2, uav3, uav4, …); 1 stopped at "
        "the end of the session (bs)."
    )
    assert ends_sentence([]) == ""
