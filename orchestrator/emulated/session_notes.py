# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a session has to say that is no error: the effect of dilation, links that were out, and
programs that computed without end."""

from orchestrator.emulated.rate_feed import SessionRates
from orchestrator.emulated.session_table import DIRECTIONS, Totals
from orchestrator.scenario.schema import ResolvedScenario
from testbed.core.node import uav
from testbed.system import inside

MOST_LINES = 6
"""Largest number of links that have a line of their own."""
LINKS = dict(zip(DIRECTIONS, ("uplink", "downlink"), strict=True))


def dilation_notes(scenario: ResolvedScenario) -> list[str]:
    """One line for a session whose links are slower than its channel."""
    dilation = scenario.dilation
    if dilation == 1:
        return []
    return [
        f"emulation.dilation is {dilation:g}: rates are divided by {dilation:g}, slots and delays "
        f"last {dilation:g} times as long, but programs live in real time and their clocks are not "
        "dilated"
    ]


def endless_notes() -> list[str]:
    """One line for each program in virtual time that computed on where the clock stands still."""
    return [
        f"{node}: {program} computed on without a system call, or without sleeping: from then on "
        "virtual time passes for it by this machine's CPU time, which may differ between runs"
        for node, _, program in (found.partition(" ") for found in inside.endless())
    ]


def outage_notes(feed: SessionRates, totals: Totals) -> list[str]:
    """One line for each link that was out in all slots of a session, with the reason."""
    silent = (totals.open_slots == 0) & (totals.slots > 0)
    if not silent.any():
        return []
    highest = feed.highest_bps(totals.slots)
    lines = []
    for client, way in zip(*silent.nonzero(), strict=True):
        reason = "its channel has no rate"
        if (rate_bps := highest[client, way]) > 0:
            reason = (
                f"its rate is at most {rate_bps / 1e3:.4g} kb/s, below one frame per slot of "
                f"{feed.slot_s:g} s ({feed.floor_bps / 1e3:.4g} kb/s)"
            )
        link = LINKS[DIRECTIONS[way]]
        lines.append(f"the {link} of {uav(int(client) + 1)} was out in all slots: {reason}")
    more = len(lines) - MOST_LINES
    return [
        *lines[:MOST_LINES],
        *([f"{more} more links were out in all slots"] if more > 0 else []),
    ]
