# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Advice for runs that are not valid, by failed check."""

IDLE = "wait until the machine is idle"
SLOWER = "raise emulation.dilation"
REMEDIES = {
    "calibration_error": f"links had wrong rates before the first round: {IDLE}; if it is idle, "
    f"{SLOWER}: the rates exceed this machine's capacity",
    "injector_lateness_s": f"rates changed late: {IDLE}, or {SLOWER}",
    "exhausted_slots": f"rates were sent to the injector too late: {IDLE}, or {SLOWER}",
    "dropped_frames": "a queue was full: raise emulation.dilation, or lower the delay or the rates",
    "backlog_bytes": "a round ended with frames in a queue: look at the link in the report",
    "compute_share": f"computing took longer than its model: {SLOWER}",
    "injection_share": f"late rate changes cost time: {IDLE}, or {SLOWER}",
    "rest_share": f"time was lost for unknown reasons: {IDLE}; see the worst round in the report",
    "transfer_error": f"transfers deviated from their links' rates: {IDLE}, or {SLOWER}",
    "broadcast_error": f"the broadcast deviated from its links' rates: {IDLE}, or {SLOWER}",
    "loss_deviation": "the frame loss deviates from the configured one: please report it",
    "late_frames": f"delayed frames came late: {IDLE}, or {SLOWER}, or use emulation.clock virtual",
    "cpu_steal": "the host's other guests used the CPU: run at another time, or on another host",
    "cpu_others": f"other programs used the CPU: {IDLE}, or end them",
    "clock_drift_ppm": "the clock was being adjusted: wait until its daemon has settled",
    "clock_error_s": "the hosts' clocks could not be compared: check that their network is not "
    "congested, and that no clock is being set",
}
"""By name of a check: advice."""
VIRTUAL_TIME = (
    "no other program runs in virtual time, so the network is the cause; see the worst round in "
    "the report"
)
"""Advice for all checks in virtual time."""
GROWS = {"compute_share"}
"""Checks whose value is about inversely proportional to the dilation."""


def remedies(checks: object, dilation: object, clock: object) -> dict[str, str]:
    """Advice for each failed check in a manifest, by the check's name."""
    return {
        check["check"]: remedy(check["check"], check["value"], check["limit"], dilation, clock)
        for check in (checks if isinstance(checks, list) else [])
        if check.get("ok") is False
    }


def remedy(
    check: str, value: object, limit: object, dilation: object, clock: object = "real"
) -> str:
    """Advice for a failed check; empty for an unknown one.

    Args:
        check: Name of the check.
        value: Observed value.
        limit: Largest allowed value.
        dilation: Dilation of the run.
        clock: Clock of the run.
    """
    if clock == "virtual" and check in REMEDIES:
        return VIRTUAL_TIME
    text = REMEDIES.get(check, "")
    numbers = [n for n in (value, limit, dilation) if isinstance(n, (int, float)) and n > 0]
    if check in GROWS and len(numbers) == 3:
        text += f" to {numbers[2] * numbers[0] / numbers[1]:.2g} or more"
    return text
