# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Sentences that pages of runs and sessions begin with: validity, clock, ends of programs."""

from collections.abc import Iterable, Sequence
from typing import Any

from orchestrator.emulated.validity import CHECKS, Tenant
from orchestrator.reporting.formatting import percent, seconds
from testbed.core.signals import signal_name

MOST_NAMED = 4
"""Most nodes that a sentence names."""
MOST_CHECKS = 2
"""Most failed checks that a sentence names."""

ROUNDING = 1e-8
"""Relative errors below this are due to rounding; pages call such latencies equal."""

Checks = Sequence[dict[str, Any]]
"""Entries `validity` of a manifest."""


def check_title(name: str) -> str:
    """Title of a check; its name if the check is unknown."""
    return CHECKS[name].title if name in CHECKS else name


def failed_first(checks: Checks | None) -> list[dict[str, Any]]:
    """The checks in the order in which pages list them: failed, not judged, passed."""
    return sorted(
        checks or [], key=lambda check: (check.get("ok") is not False, check.get("ok") is True)
    )


def validity_sentence(tenant: Tenant, valid: bool | None, checks: Checks | None) -> str:
    """A sentence that says whether a run or session is valid, and names the failed checks."""
    checks = checks or []
    if valid is None:
        return f"The {tenant} was not checked, so it is not known whether it is valid."
    if valid:
        passed = f": all {len(checks)} checks passed" if len(checks) > 1 else ""
        return f"The {tenant} is valid{passed}."
    failed = [check_title(str(check["check"])) for check in checks if check.get("ok") is False]
    if not failed:
        return f"The {tenant} is not valid; no reason was recorded."
    noun = "check" if len(checks) == 1 else "checks"
    named = "; ".join(failed[:MOST_CHECKS]) + "; …" * (len(failed) > MOST_CHECKS)
    return f"The {tenant} is not valid: {len(failed)} of {len(checks)} {noun} failed ({named})."


def latency_sentence(
    paradigm: str, measured_s: float, rounds: int, error: float | None, predicted_s: float | None
) -> str:
    """A sentence on the measured latency of rounds and its prediction with frames.

    Args:
        paradigm: Title of the paradigm.
        measured_s: Mean measured latency of a round, s.
        rounds: Number of measured rounds.
        error: (measured - predicted) / predicted; None: nothing was predicted.
        predicted_s: Mean predicted latency of a round, s.
    """
    sentence = f"With {paradigm}, a round took {seconds(measured_s)}"
    if rounds > 1:
        sentence += f" (mean of {rounds} rounds)"
    if error is not None:
        sentence += f", {compared(error)} the engine predicts with frames ({seconds(predicted_s)})"
    return f"{sentence}."


def compared(error: float) -> str:
    """A relative error as the beginning of a comparison: `1.2 % more than`."""
    if abs(error) < ROUNDING:
        return "exactly what"
    return f"{percent(abs(error), sign=False)} {'more' if error > 0 else 'less'} than"


def clock_sentence(clock: object, dilation: object) -> str:
    """The clock of a run or session, and how long a second of emulated time takes."""
    if clock == "virtual":
        return "virtual: the load of the machine does not affect times"
    factor = dilation if isinstance(dilation, int | float) else 1
    if factor == 1:
        return "real, dilation 1: emulated time is real time"
    return f"real, dilation {factor:g}: 1 s of emulated time takes {factor:g} s of real time"


def ends_sentence(programs: Iterable[dict[str, Any]]) -> str:
    """How many commands of a session ended in which way, failures first; empty without any."""
    ended: dict[str, list[str]] = {}
    for program in programs:
        ended.setdefault(end_of(program), []).append(str(program["node"]))
    said = []
    for end, nodes in sorted(ended.items(), key=lambda item: item[0] in (SUCCESS, STOPPED)):
        named = ", ".join(nodes[:MOST_NAMED]) + ", …" * (len(nodes) > MOST_NAMED)
        said.append(f"{len(nodes)} {end} ({named})")
    return f"Commands: {'; '.join(said)}." if said else ""


SUCCESS = "ended with status 0"
STOPPED = "stopped at the end of the session"


def end_of(program: dict[str, Any]) -> str:
    """How a program of a session ended, as a part of a sentence."""
    status = program["status"]
    if program["stopped"]:
        return STOPPED
    if status is None:
        return "ended with an unknown status"
    return f"ended by {signal_name(-status)}" if status < 0 else f"ended with status {status}"
