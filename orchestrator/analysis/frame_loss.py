# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Frames that the channel lost and delivered, per slot and per round."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from testbed.network.injector import Report

_KEYS = ["round", "client", "direction"]
_COUNTS = ["lost_frames", "arrived_frames"]


def by_slot(round_: int, first: int, slot_s: float, before: Report, after: Report) -> pd.DataFrame:
    """Frame counts of a round, one row per slot, client and direction.

    Frames after the round, such as its last acknowledgements, count for the last slot. If the
    injector had no time to read counters, losses of a slot count for the slot before.

    Args:
        round_: Index of the round.
        first: First slot of the round.
        slot_s: Length of a slot in emulated seconds.
        before: The links' counters at the round's start.
        after: The counters at the round's end, with the counts during the round.

    Returns:
        Columns round, slot, time_s, client, direction, lost_frames, arrived_frames, asked_loss (the
        configured probability of loss at the slot's start).
    """
    edges, clients = [_frames(before)], len(after.uplink)
    slots, asked = np.array([first]), np.zeros((1, clients, 2))
    if (counted := after.air) is not None:
        slots, asked = counted.slot, counted.asked_loss
        edges.extend(np.stack([counted.lost_frames, counted.arrived_frames], axis=-1)[1:])
    frames = np.diff([*edges, _frames(after)], axis=0).reshape(-1, 2)
    return pd.DataFrame(
        {
            "round": round_,
            "slot": np.repeat(slots, 2 * clients),
            "time_s": np.repeat(slots * slot_s, 2 * clients),
            "client": np.tile(np.repeat(np.arange(1, clients + 1), 2), len(slots)),
            "direction": np.tile(["up", "down"], clients * len(slots)),
            "lost_frames": frames[:, 0],
            "arrived_frames": frames[:, 1],
            "asked_loss": asked.ravel(),
        }
    )


def by_round(table: pd.DataFrame) -> pd.DataFrame:
    """The sums by round, client and direction: lost_frames and arrived_frames."""
    return table.groupby(_KEYS, sort=False)[_COUNTS].sum().reset_index()


def _frames(report: Report) -> npt.NDArray[np.int64]:
    """Lost and delivered frames so far, shape [K, 2, 2]."""
    links = zip(report.uplink, report.downlink, strict=True)
    return np.array([[(way.lost_frames, way.arrived_frames) for way in link] for link in links])
