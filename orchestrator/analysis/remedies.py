# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What to do about a run that is not valid, by the check that it broke."""

IDLE = "wait until the machine is idle"
SLOWER = "raise emulation.dilation"
REMEDIES = {
    "calibration_error": f"links were off before the first round: {IDLE}; where it is, {SLOWER}: "
    "the rates are more than this machine carries",
    "injector_lateness_s": f"rates changed late: {IDLE}, or {SLOWER}",
    "exhausted_slots": f"the injector got its rates too late: {IDLE}, or {SLOWER}",
    "dropped_frames": "a queue was full: raise emulation.dilation, or lower the delay or the rates",
    "backlog_bytes": "a round ended with frames under way: look at the link in the report",
    "compute_share": f"computing took longer than it is modelled to: {SLOWER}",
    "injection_share": f"late rate changes cost time: {IDLE}, or {SLOWER}",
    "rest_share": f"time is lost that nothing explains: {IDLE}; see the worst round in the report",
    "transfer_error": f"transfers were off their links' rates: {IDLE}, or {SLOWER}",
    "broadcast_error": f"the broadcast was off its links' rates: {IDLE}, or {SLOWER}",
    "loss_deviation": "links lost other shares of frames than asked for: please report it",
    "late_frames": f"delayed frames came late: {IDLE}, or {SLOWER}, or use emulation.clock virtual",
    "cpu_steal": "the host's other guests took the CPU: run at another time, or on another host",
    "cpu_others": f"other programs took the CPU: {IDLE}, or end them",
    "clock_drift_ppm": "the clock was being set: wait until its daemon has settled",
    "clock_error_s": "the hosts' clocks could not be compared: see that their network is not "
    "full, and that nobody sets a clock",
}
"""By name of the check."""
OF_THE_NETWORK = (
    "no other program is there: the network did this; see the worst round in the report"
)
"""In virtual time."""
GROWS = {"compute_share"}
"""Checks whose value falls as dilation grows, about in proportion."""


def remedies(checks: object, dilation: object, clock: object) -> dict[str, str]:
    """What to do about each broken one of a manifest's checks, by name."""
    return {
        check["check"]: remedy(check["check"], check["value"], check["limit"], dilation, clock)
        for check in (checks if isinstance(checks, list) else [])
        if check.get("ok") is False
    }


def remedy(
    check: str, value: object, limit: object, dilation: object, clock: object = "real"
) -> str:
    """What to do about a broken check; empty for one that is not known.

    Args:
        check: Its name.
        value: What was observed.
        limit: The most it may be.
        dilation: The run's.
        clock: The run's.
    """
    if clock == "virtual" and check in REMEDIES:
        return OF_THE_NETWORK
    text = REMEDIES.get(check, "")
    numbers = [n for n in (value, limit, dilation) if isinstance(n, (int, float)) and n > 0]
    if check in GROWS and len(numbers) == 3:
        text += f" to {numbers[2] * numbers[0] / numbers[1]:.2g} or more"
    return text
