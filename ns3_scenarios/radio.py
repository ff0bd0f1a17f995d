# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a radio access of ns-3 delivers on a given channel while every link has a backlog.

ns-3 simulates each frame of the radio access in a process of its own, the program of
``cpp/radio``: it is given the gain of every link over time and computes no path loss between a UAV
and the base station.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ns3_scenarios import build
from ns3_scenarios.child import LAUNCH, Child, Launch
from ns3_scenarios.errors import ChannelError
from ns3_scenarios.trace import Array

RESOURCE_BLOCKS = (6, 15, 25, 50, 75, 100)
"""Numbers of resource blocks of a carrier that LTE has: 1.4 to 20 MHz."""
MOST_UAVS = 320
"""ns-3's base station gives each UAV a subframe of its own for sounding, every 320 ms."""
THERMAL_DBM_PER_HZ = -174.0
"""Noise density that ns-3 assumes without a noise figure."""
ANSWER_S = 600.0
"""Seconds that ns-3 may take for a slot; it usually needs some times its length."""
_FIELDS = ("bytes", "blocks", "block_bits", "resource_blocks", "lost_blocks", "mcs")
_TTI_S = 1e-3

Progress = Callable[[int], None]
"""Called with the number of slots that are done."""


@dataclass(frozen=True)
class LteSettings:
    """Settings of an LTE cell: one carrier per direction (FDD), one antenna, proportional fair."""

    resource_blocks: int = 100
    """Resource blocks of each direction, one of `RESOURCE_BLOCKS`."""
    noise_figure_db: float = 0.0
    """Noise figure of the base station and of the UAVs."""
    interference_margin_db: float = 0.0
    """Rise of the noise by other cells, of both directions."""
    antenna_gain_db: float = 0.0
    """Gain of the antennas of both ends together, which the channel's gain lacks."""


@dataclass(frozen=True)
class Air:
    """A channel and what is sent over it: K UAVs, S slots."""

    uplink_gain: Array
    """Linear power gain, shape [K, S * m]: m values per slot, at equal distances, such as 100 of a
    slot of 0.1 s where there is small-scale fading. It includes everything; 0 is an outage."""
    downlink_gain: Array
    """The same for the downlink, shape [K, S * m]."""
    slots: int
    """Number of slots, S."""
    slot_s: float
    """Length of a slot, in seconds."""
    uplink_power_w: Array
    """Transmit power of each UAV, shape [K], over all resource blocks that it is granted."""
    downlink_power_w: float
    """Transmit power of the base station, over the whole band."""
    noise_dbm_per_hz: float = THERMAL_DBM_PER_HZ
    """Noise density."""
    seed: int = 0
    """Run number of ns-3: the same seed gives the same bytes."""

    @property
    def uavs(self) -> int:
        """K."""
        return int(self.uplink_gain.shape[0])


@dataclass(frozen=True)
class Delivery:
    """What the links delivered, by direction (0: uplink, 1: downlink), UAV and slot: [2, K, S]."""

    slot_s: float
    """Length of a slot, in seconds."""
    bytes: Array
    """Bytes of IP packets that arrived."""
    blocks: Array
    """LTE: transport blocks that were sent, with retransmissions."""
    block_bits: Array
    """LTE: sum of their sizes, in bits."""
    resource_blocks: Array
    """LTE: resource blocks that the UAV had on average, over all TTIs of the slot."""
    lost_blocks: Array
    """LTE: transport blocks that did not arrive, by the HARQ feedback of this slot."""
    mcs: Array
    """LTE: modulation and coding scheme (0 to 28) of most blocks; -1: there was none."""

    @property
    def bps(self) -> Array:
        """Goodput of IP packets in bit/s, shape [2, K, S]."""
        return 8 * self.bytes / self.slot_s


def simulate_lte(
    air: Air,
    lte: LteSettings = LteSettings(),  # noqa: B008
    *,
    datagram_bytes: int = 1400,
    launch: Launch = LAUNCH,
    progress: Progress | None = None,
) -> Delivery:
    """Simulate an LTE cell whose links all have a backlog in both directions.

    UAVs attach before slot 0, on the channel of slot 0. Links have default bearers without
    retransmissions by RLC (unacknowledged mode), HARQ, adaptive modulation, and no power control.

    Args:
        air: The channel.
        lte: The cell.
        datagram_bytes: Size of the IP packets that are sent.
        launch: How ns-3's process is started.
        progress: Called after each slot.

    Raises:
        ChannelError: A UAV did not attach, ns-3 ended or cannot be built; the message says why.
        ValueError: The number of resource blocks or UAVs is one that LTE or ns-3 does not have.
    """
    if lte.resource_blocks not in RESOURCE_BLOCKS:
        raise ValueError(
            f"resource_blocks must be one of {', '.join(map(str, RESOURCE_BLOCKS))}, "
            f"not {lte.resource_blocks}"
        )
    if air.uavs > MOST_UAVS:
        raise ValueError(f"ns-3's LTE has at most {MOST_UAVS} UAVs per base station")
    noise_figure_db = (
        air.noise_dbm_per_hz - THERMAL_DBM_PER_HZ + lte.noise_figure_db + lte.interference_margin_db
    )
    settings = {
        "radio": "lte",
        "resource_blocks": lte.resource_blocks,
        "uplink_noise_figure_db": noise_figure_db,
        "downlink_noise_figure_db": noise_figure_db,
        "antenna_gain_db": lte.antenna_gain_db,
        "window_bytes": 100_000,
        "settle_s": 0.2,
        "placed": False,
    }
    return _simulated(air, settings, datagram_bytes, launch, progress)


def _simulated(
    air: Air,
    settings: dict[str, Any],
    datagram_bytes: int,
    launch: Launch,
    progress: Progress | None,
) -> Delivery:
    uavs, steps = air.uavs, air.uplink_gain.shape[1] // air.slots
    settings |= {
        "uavs": uavs,
        "steps": steps,
        "slot_s": air.slot_s,
        "seed": air.seed,
        "uplink_power_dbm": _dbm(air.uplink_power_w).tolist(),
        "downlink_power_dbm": float(_dbm(air.downlink_power_w)),
        "datagram_bytes": datagram_bytes,
    }
    program = build.library("radio")
    child = Child(
        "ns3_scenarios.radio_process",
        program,
        settings,
        launch,
        arguments=[str(program)],
        answer_s=ANSWER_S,
    )
    made = np.empty((air.slots, len(_FIELDS), 2, uavs))

    def slot(s: int) -> bytes:
        here = slice(s * steps, (s + 1) * steps)
        gains = (air.uplink_gain[:, here], air.downlink_gain[:, here])
        return b"".join(np.ascontiguousarray(way, dtype=np.float64).tobytes() for way in gains)

    try:
        child.send_bytes(slot(0))
        _check_attached(json.loads(child.receive_line()))
        for s in range(air.slots):
            child.send("slot", slot(s))
            child.receive_into(made[s].data.cast("B"))
            if progress is not None:
                progress(s + 1)
    finally:
        child.close()
    fields = dict(zip(_FIELDS, made.transpose(1, 2, 3, 0), strict=True))
    fields["resource_blocks"] = fields["resource_blocks"] * (_TTI_S / air.slot_s)
    return Delivery(slot_s=air.slot_s, **fields)


def _check_attached(answer: dict[str, Any]) -> None:
    missing = [str(k + 1) for k in answer["missing"]]
    if missing:
        raise ChannelError(f"UAVs that did not attach to the base station: {', '.join(missing)}")


def _dbm(power_w: Any) -> Array:
    return np.asarray(10 * np.log10(power_w) + 30)
