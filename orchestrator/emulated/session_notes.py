# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Remarks on a session that are no errors: the effect of dilation, links that are not paced, frames
that were late, links that were out, limits, and programs that ended too early or never."""

from collections.abc import Sequence

import numpy as np

from orchestrator.emulated.rate_feed import SessionRates
from orchestrator.emulated.session_table import DIRECTIONS, Totals
from orchestrator.engine.access import LinkRates
from orchestrator.scenario.schema import ResolvedScenario
from testbed.core.node import NodeId, uav
from testbed.network.injector import Report
from testbed.network.pacing import MOST_PACED_BPS
from testbed.network.shaping import Shape
from testbed.system import inside, linux

MOST_LATE = 0.01
"""Share of late frames from which on a link has a line."""
MOST_LINES = 6
"""Largest number of links that are reported in separate lines."""
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


def limit_notes(scenario: ResolvedScenario) -> list[str]:
    """One line for each limit of a node that has another meaning without containers, or none."""
    if scenario.emulation.runtime == "docker":
        return []
    lines = []
    for name, programs in scenario.nodes.items():
        if programs.memory_bytes is not None:
            lines.append(
                f"nodes.{name}.memory_bytes: without containers, each process may allocate "
                f"{programs.memory_bytes} bytes, without regard to the node's other processes"
            )
        if "processes" in programs.model_fields_set and not linux.can_limit_processes():
            lines.append(
                f"nodes.{name}.processes has no effect: it needs containers, or Linux 6.14 or later"
            )
    return lines


def too_early_notes(nodes: Sequence[NodeId]) -> list[str]:
    """One line for the nodes whose commands ended before slot 0."""
    if not nodes:
        return []
    named = ", ".join(map(str, nodes[:MOST_LINES]))
    more = f" and {len(nodes) - MOST_LINES} more" if len(nodes) > MOST_LINES else ""
    ended = "the commands of {} ended" if len(nodes) > 1 else "the command of {} ended"
    return [f"{ended.format(named + more)} before slot 0: until then the links carry nothing"]


def early_notes(shape: Shape, expected: LinkRates, dilation: float) -> list[str]:
    """One line for links over which messages may arrive before their last bit has been sent.

    Args:
        shape: Shape of the links.
        expected: Rates that the links will have, in emulated bit/s.
        dilation: Real seconds per emulated second.
    """
    both = np.hstack([expected.uplink, expected.gradient]) / dilation
    early_s = {
        link: shape.early_at(float(bps[bps > 0].min()), shape.packet_frames(float(bps.max())))
        for link, bps in enumerate(both, 1)
        if link not in shape.paced and (bps > 0).any()
    }
    if not early_s:
        return []
    names = [str(uav(link)) for link in early_s]
    more = len(names) - MOST_LINES
    named = ", ".join(names[:MOST_LINES]) + (f" and {more} more" if more > 0 else "")
    return [
        f"messages over the links of {named} may arrive up to {1e3 * max(early_s.values()):.2g} ms "
        "early: on these links, a packet arrives when its transmission begins. Their rates are "
        f"above {MOST_PACED_BPS / 1e6:g} Mb/s, or one process cannot delay all their frames"
    ]


def late_notes(report: Report) -> list[str]:
    """One line for each direction of a paced link with many late frames."""
    lines = []
    for way, counts in (("uplink", report.uplink), ("downlink", report.downlink)):
        for client, count in enumerate(counts, 1):
            share = count.late_frames / max(1, count.sent_frames)
            if share > MOST_LATE:
                lines.append(
                    f"{share:.1%} of the frames over the {way} of {uav(client)} were sent more "
                    "than 1 ms late: other programs kept this machine busy"
                )
    return lines[:MOST_LINES]


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
