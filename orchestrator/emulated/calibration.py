# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A short calibration of every link before a run, which checks that links have the rates that were
set.

Each link carries one transfer per direction at the lowest, middle and highest rate that the
predicted rounds will set, sent by the programs and connections of the run. Uplinks, and downlinks
that are shared, are measured in parallel; downlinks that are used one after the other in a round
are measured one after the other. This takes about two seconds of real time, with any dilation.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from orchestrator.analysis.error_budget import integral_end_s
from orchestrator.engine.access import LinkRates
from orchestrator.engine.plan import Array, transfer_bytes
from orchestrator.engine.slot_impairments import DOWN, UP
from orchestrator.engine.tcp_model import SerialLines, TcpModel
from orchestrator.scenario.schema import Emulation
from testbed.control.messages import Probe, Received
from testbed.core.clock import EmulatedClock, next_tick
from testbed.network.injector import Injector
from testbed.network.shaping import Shape
from testbed.transport import wire
from testbed.transport.framing import Framing

LEVELS = ("lowest", "middle", "highest")
"""Levels of a link's rates over the predicted rounds."""

# In real seconds:
LEAD_S = 0.1
"""Time between the order and the first level, in which nodes get ready."""
GAP_S = 0.01
"""Pause before each transfer, in which an idle link accumulates burst credit."""
UPLINK_S, DOWNLINKS_S = 0.2, 0.25
"""Duration of all transfers of one direction, in parallel or one after the other."""
LEAST_S, LEAST_FRAMES = 0.01, 16
"""Smallest duration and size of a transfer."""
MOST_S = 2.0
"""Largest duration of a transfer, which limits `LEAST_FRAMES` on slow links."""
SPARE = ((0, 0), (0, 100))
"""The rates of the last level are kept for this number of levels."""
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Trial:
    """The transfers that calibrate the links, and the rates of the links meanwhile.

    Rates are in emulated bit/s, shape [K, levels].
    """

    up_bps: Array
    down_bps: Array
    level_s: float
    """Duration of each level in emulated seconds."""
    transfers: Sequence[tuple[int, Probe]]
    """Level and transfer of each link, in order."""
    dilation: float
    tcp: TcpModel | None = None
    """Model of transfers over serial lines."""

    @property
    def probes(self) -> tuple[Probe, ...]:
        """All transfers."""
        return tuple(probe for _, probe in self.transfers)

    @property
    def left_out(self) -> Sequence[str]:
        """A message for each link without transfers."""
        return [
            f"the {way}link of UAV {client + 1} has no rate in any slot: it is not calibrated"
            for way, bps in (("up", self.up_bps), ("down", self.down_bps))
            for client in np.flatnonzero(~bps.any(axis=1))
        ]

    @property
    def lasts_s(self) -> float:
        """Duration in real seconds."""
        return len(LEVELS) * self.level_s * self.dilation

    def begin(self, injector: Injector) -> EmulatedClock:
        """Set the rates of the trial from a moment on, which is emulated time 0 of the returned
        clock."""
        padded = (
            np.pad(bps / self.dilation, SPARE, "edge") for bps in (self.up_bps, self.down_bps)
        )
        injector.rates(0, *padded, warn_slots=0)
        clock = EmulatedClock(next_tick() + round(LEAD_S * 1e9), 0.0, self.dilation)
        injector.epoch(clock, self.level_s)
        return clock

    def end(self, injector: Injector) -> None:
        """Leave the links as they are; the injector's next report begins here."""
        injector.pause()
        injector.report()

    def table(self, received: Iterable[Received], emulation: Emulation) -> pd.DataFrame:
        """A comparison of the received transfers with the rates.

        Returns:
            One row per transfer: client, direction, level, rate_bps, bytes (on the link), start_s,
            duration_s, due_s, error (relative); emulated bit/s and seconds.
        """
        times = {(client, place): (start_s, end_s) for client, place, start_s, end_s in received}
        places: Counter[int] = Counter()
        rows, lines = [], None
        if self.tcp is not None:
            up, down = (np.pad(bps, SPARE, "edge") for bps in (self.up_bps, self.down_bps))
            lines = SerialLines(self.tcp, LinkRates(up, down, down), self.level_s)
        for level, probe in self.transfers:
            client, upward = probe.client, probe.upward
            start_s, end_s = times[client, places[client]]
            places[client] += 1
            own = (self.up_bps if upward else self.down_bps)[client - 1]
            rates = np.pad(own, SPARE[1], "edge")
            size = transfer_bytes(emulation, 0, probe.payload_bytes)
            if lines is not None:
                due_s = lines.end_s(UP if upward else DOWN, client, size, start_s) - start_s
            else:
                due_s = integral_end_s(rates, self.level_s, start_s, 8 * size) - start_s
            rows.append(
                (
                    client,
                    "uplink" if upward else "downlink",
                    LEVELS[level],
                    rates[level],
                    size,
                    start_s,
                    end_s - start_s,
                    due_s,
                    (end_s - start_s) / due_s - 1,
                )
            )
        return pd.DataFrame(
            rows,
            columns=[
                *("client", "direction", "level", "rate_bps", "bytes"),
                *("start_s", "duration_s", "due_s", "error"),
            ],
        )


def trial_of(
    up_bps: Array,
    down_bps: Array,
    slot_s: float,
    shape: Shape,
    dilation: float,
    *,
    in_turns: bool,
    uplinks_in_turns: bool = False,
    gap_s: float = GAP_S,
    tcp: TcpModel | None = None,
) -> Trial:
    """Transfers at the lowest, middle and highest rates that links will have.

    Args:
        up_bps: Rates of the uplinks in emulated bit/s, shape [K, S]; outages are ignored.
        down_bps: Rates of the downlinks, of the same shape.
        slot_s: Length of a slot in seconds.
        shape: Shape of the links.
        dilation: Real seconds per emulated second.
        in_turns: Whether downlinks are used one after the other.
        uplinks_in_turns: Whether uplinks are.
        gap_s: Real seconds of silence before each transfer.
        tcp: Model of transfers over serial lines; None: the links are no serial lines.
    """
    floor_bps = shape.lowest_rate(slot_s * dilation) * dilation
    up, down = (_levels(rates, floor_bps) for rates in (up_bps, down_bps))
    level_s, transfers = _schedule(
        up, down, in_turns, shape, dilation, gap_s, uplinks_in_turns=uplinks_in_turns
    )
    return Trial(up, down, level_s, transfers, dilation, tcp)


def _levels(rate_bps: Array, floor_bps: float) -> Array:
    """Lowest, median and highest rate of each link, [K, 3]; 0 for links that are always out."""
    levels = np.zeros((len(rate_bps), len(LEVELS)))
    for level, row in zip(levels, rate_bps, strict=True):
        if (up := row[(row >= floor_bps) & (row > 0)]).size:
            level[:] = np.quantile(up, (0, 0.5, 1), method="nearest")
    return levels


def _schedule(
    up_bps: Array,
    down_bps: Array,
    in_turns: bool,
    shape: Shape,
    dilation: float,
    least_gap_s: float = GAP_S,
    *,
    uplinks_in_turns: bool = False,
) -> tuple[float, list[tuple[int, Probe]]]:
    """Emulated seconds of a level, and the level and transfer of each link, in order.

    Args:
        up_bps: Rates of the uplinks in emulated bit/s, shape [K, 3].
        down_bps: Rates of the downlinks, of the same shape.
        in_turns: Whether downlinks are used one after the other.
        shape: Shape of the links.
        dilation: Real seconds per emulated second.
        least_gap_s: Real seconds before each transfer.
        uplinks_in_turns: Whether uplinks are used one after the other.
    """
    clients = len(up_bps)
    gap_s, most_s = least_gap_s / dilation, MOST_S / dilation
    ways = [
        (upward, rates, (max(LEAST_S, all_s / clients) if alone else all_s) / dilation, alone)
        for upward, rates, all_s, alone in (
            (True, up_bps, UPLINK_S, uplinks_in_turns),
            (False, down_bps, DOWNLINKS_S, in_turns),
        )
    ]
    planned, level_s = [], 0.0
    for level in range(len(LEVELS)):
        free_s = 0.0
        for upward, rates, wanted_s, alone in ways:
            at_s = free_s + gap_s
            for client in np.flatnonzero(rates[:, level]).tolist():
                rate = rates[client, level]
                least_s = min(LEAST_FRAMES * 8 * shape.frame_bytes / rate, most_s)
                lasts_s = max(wanted_s, least_s)
                planned.append((level, client, upward, at_s, lasts_s * rate / 8))
                free_s = max(free_s, at_s + lasts_s)
                if alone:
                    at_s = free_s + gap_s
        level_s = max(level_s, free_s + gap_s)
    transfers = []
    for level, client, upward, at_s, charged_bytes in planned:
        segments = max(1, round(charged_bytes / shape.frame_bytes))
        payload_bytes = segments * Framing(shape.mtu).segment_bytes - wire.HEADER_BYTES
        probe = Probe(client + 1, upward, level * level_s + at_s, payload_bytes)
        transfers.append((level, probe))
    return level_s, transfers
