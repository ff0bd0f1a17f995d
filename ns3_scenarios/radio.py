# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Deliveries of a radio access of ns-3 on a given channel while every link has a backlog.

The radio accesses are LTE, Wi-Fi and, with the module 5G-LENA (`ns3_scenarios.nr_module`), 5G NR.

ns-3 simulates each frame of the radio access in a separate process, the program of `cpp/radio`: its
input is the gain of every link over time, and it computes no path loss between a UAV and the base
station.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ns3_scenarios import build, nr_module
from ns3_scenarios.child import LAUNCH, Child, Launch
from ns3_scenarios.errors import ChannelError
from ns3_scenarios.trace import Array

RESOURCE_BLOCKS = (6, 15, 25, 50, 75, 100)
"""Numbers of resource blocks of a carrier that LTE has: 1.4 to 20 MHz."""
MOST_CELLS = 16
"""Largest number of cells."""
MOST_UAVS = 320
"""ns-3's base station reserves one subframe for the sounding of each UAV, every 320 ms."""
THERMAL_DBM_PER_HZ = -174.0
"""Noise density that ns-3 assumes without a noise figure."""
HIGHEST_DSCP = 63
"""Largest differentiated services codepoint of a packet (RFC 2474)."""
LTE_WINDOW_BYTES = 100_000
"""Bytes that wait at each sending end of an LTE cell that has a backlog."""
NR_WINDOW_BYTES = 400_000
"""The same for an NR cell."""
WIFI_WINDOW_BYTES = 200_000
"""The same for Wi-Fi."""
WIFI_WIDTHS_MHZ: Mapping[str, Sequence[int]] = {
    "n": (20, 40),
    "ac": (20, 40, 80, 160),
    "ax": (20, 40, 80, 160),
}
"""By standard of 802.11: widths of its channels."""
MOST_WIFI_MTU = 2296
"""Largest IP packet in a frame of Wi-Fi in ns-3, in bytes."""
ATTACH_S, ASSOCIATE_S = 10.0, 3.0
"""Simulated seconds before slot 0 in which all UAVs must attach (LTE), or may associate (Wi-Fi)."""
ANSWER_S = 600.0
"""Seconds that ns-3 may take for a slot; it usually needs some times its length."""
SHORTEST_STEP_S = 1e-6
"""Shortest time for which a gain is constant."""
_FIELDS = ("bytes", "blocks", "block_bits", "resource_blocks", "lost_blocks", "mcs")
_TTI_S = 1e-3

Progress = Callable[[int], None]
"""Called with the number of slots that are done."""


@dataclass(frozen=True)
class LteSettings:
    """Settings of an LTE cell: one carrier per direction (FDD), one antenna."""

    resource_blocks: int = 100
    """Resource blocks of each direction, one of `RESOURCE_BLOCKS`."""
    noise_figure_db: float = 0.0
    """Noise figure of the base station and of the UAVs."""
    interference_margin_db: float = 0.0
    """Rise of the noise by other cells, of both directions."""
    antenna_gain_db: float = 0.0
    """Gain of the antennas of both ends together, which the channel's gain lacks."""
    uplink_blocks: Sequence[int] | None = None
    """Number of resource blocks that each UAV has in the uplink, shape [K], whether or not the
    others send; None: all UAVs that have something to send divide them equally."""
    downlink_blocks: Sequence[int] | None = None
    """Number of resource blocks that each UAV has in the downlink, shape [K]; None: proportional
    fair among UAVs of the same priority."""
    priority_by_dscp: bool = False
    """Whether the DSCP of the last packet to a UAV is the priority of its downlink: the UAV with
    the highest priority has all resource blocks that it can fill, then the next."""
    handover: Literal["a3", "none"] = "none"
    """Whether UAVs change to a cell that is received with more power (event A3 of TS 36.331)."""
    a3_hysteresis_db: float = 3.0
    """Excess power of the other cell in dB, a multiple of 0.5 from 0 to 15."""
    a3_time_to_trigger_s: float = 0.256
    """Duration of that excess, a whole number of milliseconds."""
    background_load: float = 0.0
    """Share of the resource blocks of each direction that users have who are not simulated."""
    background_users: int = 0
    """Number of these users, who have their share on average, in Poisson bursts; 0: always."""
    scheduling_request_s: float = 0.0
    """Period of scheduling requests, a whole number of milliseconds; 0: UAVs need none."""
    grants_per_tti: int = 0
    """Largest number of UAVs with new grants in a TTI, in each direction; 0: any number."""
    cell_loads: Sequence[float] = ()
    """Share of its downlink in which each cell sends to users who are not simulated; the first cell
    is the base station. Empty: 0."""


@dataclass(frozen=True)
class NrSettings:
    """Settings of an NR cell: one carrier per direction (FDD) or for both (TDD), one antenna."""

    bandwidth_hz: tuple[float, float] = (20e6, 20e6)
    """Bandwidth of the carriers of uplink and downlink."""
    band_blocks: tuple[int, int] = (51, 51)
    """Numbers of resource blocks of these carriers."""
    resource_blocks: int | None = None
    """Resource blocks that are assigned in each direction; None: all."""
    subcarrier_spacing_khz: int = 30
    """Subcarrier spacing: 15, 30 or 60."""
    tdd_pattern: str = ""
    """Directions of the NR slots of a TDD carrier, such as DDDU; empty: FDD."""
    highest_modulation: Literal["64QAM", "256QAM"] = "64QAM"
    """Highest modulation, of both directions."""
    least_snr_db: float = -0.36
    """Signal-to-noise ratio below which the scheduler serves no UAV, because 5G-LENA would lose its
    blocks; in the uplink, a UAV has so few resource blocks that it reaches this ratio."""
    noise_figure_db: float = 0.0
    """Noise figure of the base station and of the UAVs."""
    interference_margin_db: float = 0.0
    """Rise of the noise by other cells, of both directions."""
    antenna_gain_db: float = 0.0
    """Gain of the antennas of both ends together, which the channel's gain lacks."""
    uplink_blocks: Sequence[int] | None = None
    """Number of resource blocks that each UAV has in the uplink, shape [K], whether or not the
    others send; None: all UAVs that have something to send divide them equally."""
    downlink_blocks: Sequence[int] | None = None
    """The same for the downlink, shape [K]."""


@dataclass(frozen=True)
class WifiSettings:
    """Settings of a Wi-Fi cell: one channel on which the access point and all UAVs contend."""

    standard: str = "n"
    """Standard of 802.11, one of `WIFI_WIDTHS_MHZ`."""
    width_mhz: int = 20
    """Width of the channel, one that the standard has."""
    rts: bool = False
    """Whether RTS and CTS are exchanged before every frame."""
    noise_figure_db: float = 0.0
    """Noise figure of the access point and of the UAVs."""
    antenna_gain_db: float = 0.0
    """Gain of the antennas of both ends together, which the channel's gain lacks."""


CellSettings = LteSettings | NrSettings | WifiSettings


@dataclass(frozen=True)
class Air:
    """A channel and the traffic over it: K UAVs, S slots."""

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
    position_m: Array | None = None
    """Positions of the UAVs relative to the base station, shape [K, S, 3]. Wi-Fi needs them,
    because its UAVs receive each other's signals, through free space."""
    carrier_hz: float = 2e9
    """Carrier frequency of that free space."""
    way: Literal["both", "up", "down"] = "both"
    """The directions in which there is a backlog."""
    gain_cells: Array | None = None
    """Gains to C further base stations of LTE, shape [C, K, S * m], the uplink's where the
    directions differ; None: there are none."""
    gain_cells_down: Array | None = None
    """Gains of the downlink in all cells, if they differ."""
    power_cells_w: Array | None = None
    """Transmit powers of the further base stations, shape [C]."""

    def __post_init__(self) -> None:
        """Check shapes and ranges.

        Raises:
            ValueError: A field cannot be right; the message names it.
        """
        for name in ("uplink_gain", "downlink_gain"):
            gain = getattr(self, name)
            if gain.shape != self.uplink_gain.shape or gain.ndim != 2:
                raise ValueError(f"{name} must have shape [K, S * m] in both directions")
            if not ((gain >= 0) & (gain <= 1)).all():
                raise ValueError(f"{name} must be linear, from 0 to 1")
        uavs, values = self.uplink_gain.shape
        if uavs < 1 or self.slots < 1 or values < 1 or values % self.slots:
            raise ValueError(f"uplink_gain has {values} values for {self.slots} slots")
        if not self.slot_s / (values // self.slots) >= SHORTEST_STEP_S:
            raise ValueError(f"slot_s must give each gain at least {SHORTEST_STEP_S:g} s")
        if self.uplink_power_w.shape != (uavs,):
            raise ValueError(f"uplink_power_w must have shape [{uavs}], one power per UAV")
        powers_w = np.append(self.uplink_power_w, self.downlink_power_w)
        if not ((powers_w > 0) & np.isfinite(powers_w)).all():
            raise ValueError("uplink_power_w and downlink_power_w must be positive")
        if (self.gain_cells is None) != (self.power_cells_w is None):
            raise ValueError("gain_cells and power_cells_w go together")
        if self.gain_cells is None and self.gain_cells_down is not None:
            raise ValueError("gain_cells_down needs gain_cells")
        if self.gain_cells is not None and self.power_cells_w is not None:
            cells = len(self.power_cells_w)
            if not 1 <= cells < MOST_CELLS:
                raise ValueError(f"power_cells_w must have 1 to {MOST_CELLS - 1} further cells")
            for name in ("gain_cells", "gain_cells_down"):
                gains = getattr(self, name)
                if gains is None:
                    continue
                if gains.shape != (cells, uavs, values):
                    raise ValueError(f"{name} must have shape [{cells}, {uavs}, {values}]")
                if not ((gains >= 0) & (gains <= 1)).all():
                    raise ValueError(f"{name} must be linear, from 0 to 1")
            if not ((self.power_cells_w > 0) & np.isfinite(self.power_cells_w)).all():
                raise ValueError("power_cells_w must be positive")
        if self.position_m is not None and (
            self.position_m.shape != (uavs, self.slots, 3) or not np.isfinite(self.position_m).all()
        ):
            raise ValueError(f"position_m must be finite, of shape [{uavs}, {self.slots}, 3]")

    @property
    def uavs(self) -> int:
        """K."""
        return int(self.uplink_gain.shape[0])

    @property
    def of_all_cells(self) -> tuple[Array, Array]:
        """Gains of uplink and downlink to the base station and then to the C further ones, shape
        [1 + C, K, S * m] each."""
        none = np.empty((0, *self.uplink_gain.shape))
        up = none if self.gain_cells is None else self.gain_cells
        down = up if self.gain_cells_down is None else self.gain_cells_down
        return (
            np.concatenate([self.uplink_gain[None], up]),
            np.concatenate([self.downlink_gain[None], down]),
        )

    @property
    def steps(self) -> int:
        """Number of gains per slot, m."""
        return int(self.uplink_gain.shape[1]) // self.slots


@dataclass(frozen=True)
class Handover:
    """A UAV's change of its cell; times in seconds since the start of slot 0."""

    uav: int
    """Number of the UAV, from 0."""
    from_cell: int
    """Number of the cell that it leaves; 0 is the base station, further cells follow."""
    to_cell: int
    """Number of the cell that it changes to."""
    start_s: float
    """Time at which the UAV has received the command."""
    end_s: float | None
    """When the new cell has received the UAV's confirmation; None: not before the last slot ended.
    """
    interruption_up_s: float | None
    """Time between the last packet of the uplink that arrived before the end and the first one
    after it; None: there is no such packet."""
    interruption_down_s: float | None
    """The same time for the downlink."""
    waiting_up_bytes: int
    """Bytes that waited at the end to be sent in the uplink of the new cell, with headers; most of
    them had waited in the other cell."""
    waiting_down_bytes: int
    """The same number for the downlink."""


@dataclass(frozen=True)
class Delivery:
    """Deliveries of the links, by direction (0: uplink, 1: downlink), UAV and slot: [2, K, S]."""

    slot_s: float
    """Length of a slot, in seconds."""
    bytes: Array
    """Bytes of IP packets that arrived."""
    blocks: Array
    """LTE, NR: transport blocks that were sent, with retransmissions."""
    block_bits: Array
    """LTE, NR: sum of the sizes of these transport blocks, in bits."""
    resource_blocks: Array
    """LTE, NR: resource blocks that the UAV had on average, over all TTIs (NR slots) of a slot."""
    lost_blocks: Array
    """LTE, NR: transport blocks that did not arrive, by the HARQ feedback of this slot."""
    mcs: Array
    """LTE, NR: modulation and coding scheme (0 to 28) of most blocks; -1: there was none."""
    why: Sequence[tuple[str, str]]
    """Known causes for which packets of the uplink and of the downlink did not arrive, per UAV;
    empty where none were sent."""
    serving_cell: Array | None = None
    """LTE: number of the cell that serves each UAV at the end of the slot, or that it is changing
    to, shape [K, S]; 0 is the base station. NR: 0. None with Wi-Fi."""
    sinr_db: Array | None = None
    """LTE, NR: signal-to-interference-plus-noise ratio of the downlink's data in dB, shape [K, S],
    the mean of its values in dB over the TTIs of the slot. Where no other cell sends data in a TTI,
    it is the signal-to-noise ratio. None with Wi-Fi."""
    handovers: Sequence[Handover] = ()
    """LTE: all handovers, by their start."""

    @property
    def bps(self) -> Array:
        """Goodput of IP packets in bit/s, shape [2, K, S]."""
        return 8 * self.bytes / self.slot_s

    def silent(self) -> Iterator[str]:
        """One line for each UAV of which nothing arrived in a direction, with the cause if known.

        UAVs count from 1.
        """
        for k, delivered in enumerate(self.bytes.sum(axis=2).T):
            causes: dict[str, list[str]] = {}
            for way, each, cause in zip(
                ("uplink", "downlink"), delivered, self.why[k], strict=True
            ):
                if not each and cause:
                    causes.setdefault(cause, []).append(way)
            for cause, ways in causes.items():
                yield f"UAV {k + 1}: nothing arrived in the {' and the '.join(ways)}: {cause}"


def simulate_lte(
    air: Air,
    lte: LteSettings = LteSettings(),
    *,
    datagram_bytes: int = 1400,
    dscp: Sequence[int] | None = None,
    launch: Launch = LAUNCH,
    progress: Progress | None = None,
) -> Delivery:
    """Simulate an LTE cell whose links all have a backlog in both directions.

    UAVs attach before slot 0, on the channel of slot 0, to the cell that they receive with most
    power. All cells use the same carriers and interfere with each other. Links have default bearers
    without retransmissions by RLC (unacknowledged mode), HARQ, adaptive modulation, and no power
    control.

    Args:
        air: The channel.
        lte: The cell.
        datagram_bytes: Size of the IP packets that are sent.
        dscp: Differentiated services codepoint of the packets to each UAV, shape [K], 0 to
            `HIGHEST_DSCP`; None: 0 for all. See `LteSettings.priority_by_dscp`.
        launch: Launch options of ns-3's process.
        progress: Called after each slot.

    Raises:
        ChannelError: A UAV did not attach, ns-3 ended or cannot be built; the message gives the
            reason.
        ValueError: A number of resource blocks or UAVs, or a DSCP, is one that LTE or ns-3 does not
            have.
    """
    if dscp is not None and (
        len(dscp) != air.uavs or not all(0 <= each <= HIGHEST_DSCP for each in dscp)
    ):
        raise ValueError(f"dscp must have shape [{air.uavs}], from 0 to {HIGHEST_DSCP}")
    settings = cell_settings(air, lte) | {"dscp": dscp or (0,) * air.uavs}
    return _simulated(air, settings, datagram_bytes, launch, progress)


def _lte_settings(air: Air, lte: LteSettings) -> dict[str, Any]:
    if lte.resource_blocks not in RESOURCE_BLOCKS:
        raise ValueError(
            f"resource_blocks must be one of {', '.join(map(str, RESOURCE_BLOCKS))}, "
            f"not {lte.resource_blocks}"
        )
    _check_own(air, lte.uplink_blocks, lte.resource_blocks, "uplink")
    _check_own(air, lte.downlink_blocks, lte.resource_blocks, "downlink")
    if air.uavs > MOST_UAVS:
        raise ValueError(f"ns-3's LTE has at most {MOST_UAVS} UAVs per base station")
    noise_figure_db = _noise_figure_db(air, lte)
    return {
        "radio": "lte",
        "resource_blocks": lte.resource_blocks,
        "uplink_noise_figure_db": noise_figure_db,
        "downlink_noise_figure_db": noise_figure_db,
        "antenna_gain_db": lte.antenna_gain_db,
        "uplink_blocks": lte.uplink_blocks or (),
        "downlink_blocks": lte.downlink_blocks or (),
        "priority_by_dscp": lte.priority_by_dscp,
        "handover": lte.handover,
        "a3_hysteresis_db": lte.a3_hysteresis_db,
        "a3_time_to_trigger_s": lte.a3_time_to_trigger_s,
        "background_load": lte.background_load,
        "background_users": lte.background_users,
        "scheduling_request_s": lte.scheduling_request_s,
        "grants_per_tti": lte.grants_per_tti,
        "cell_loads": lte.cell_loads,
        "window_bytes": LTE_WINDOW_BYTES,
        "attach_s": ATTACH_S,
        "settle_s": 0.2,
    }


def _check_own(air: Air, blocks: Sequence[int] | None, most: int, way: str) -> None:
    """Check the resource blocks of the UAVs' own in a direction.

    Raises:
        ValueError: They cannot be right.
    """
    if blocks is not None and (len(blocks) != air.uavs or min(blocks) < 1 or sum(blocks) > most):
        raise ValueError(
            f"{way}_blocks must have shape [{air.uavs}], at least 1 each and at most {most} "
            "together"
        )


def _noise_figure_db(air: Air, cell: LteSettings | NrSettings) -> float:
    """Noise at the receivers of a cell relative to thermal noise."""
    thermal_db = air.noise_dbm_per_hz - THERMAL_DBM_PER_HZ
    return thermal_db + cell.noise_figure_db + cell.interference_margin_db


def simulate_nr(
    air: Air,
    nr: NrSettings = NrSettings(),
    *,
    datagram_bytes: int = 1400,
    launch: Launch = LAUNCH,
    progress: Progress | None = None,
) -> Delivery:
    """Simulate an NR cell of 5G-LENA whose links all have a backlog in both directions.

    UAVs attach before slot 0, on the channel of slot 0. Links have default bearers without
    retransmissions by RLC (unacknowledged mode), HARQ, adaptive modulation, and no power control.

    Args:
        air: The channel, of one cell.
        nr: The cell.
        datagram_bytes: Size of the IP packets that are sent.
        launch: Launch options of ns-3's process.
        progress: Called after each slot.

    Raises:
        ChannelError: A UAV did not attach, ns-3 ended, or 5G-LENA is not built.
        ValueError: 5G-LENA does not have such a cell.
    """
    settings = cell_settings(air, nr) | {"dscp": (0,) * air.uavs}
    return _simulated(air, settings, datagram_bytes, launch, progress)


def _nr_settings(air: Air, nr: NrSettings) -> dict[str, Any]:
    blocks = [nr.resource_blocks or each for each in nr.band_blocks]
    _check_own(air, nr.uplink_blocks, blocks[0], "uplink")
    _check_own(air, nr.downlink_blocks, blocks[1], "downlink")
    if air.gain_cells is not None:
        raise ValueError("5G-LENA has one cell here: its handovers end the uplink")
    return {
        "radio": "nr",
        "bandwidth_hz": nr.bandwidth_hz,
        "band_blocks": nr.band_blocks,
        "resource_blocks": nr.resource_blocks or 0,
        "numerology": (nr.subcarrier_spacing_khz // 15).bit_length() - 1,
        "tdd_pattern": nr.tdd_pattern,
        "is_256qam": nr.highest_modulation == "256QAM",
        "least_snr_db": nr.least_snr_db,
        "noise_figure_db": _noise_figure_db(air, nr),
        "antenna_gain_db": nr.antenna_gain_db,
        "uplink_blocks": nr.uplink_blocks or (),
        "downlink_blocks": nr.downlink_blocks or (),
        "window_bytes": NR_WINDOW_BYTES,
        "attach_s": ATTACH_S,
        "settle_s": 0.2,
    }


def simulate_wifi(
    air: Air,
    wifi: WifiSettings = WifiSettings(),
    *,
    datagram_bytes: int = 1400,
    launch: Launch = LAUNCH,
    progress: Progress | None = None,
) -> Delivery:
    """Simulate a Wi-Fi cell whose links all have a backlog in both directions.

    The base station is the access point. UAVs associate before slot 0, on the channel of slot 0;
    packets of a UAV that does not are not sent until it does. Frames are aggregated (A-MPDU), and
    the rate follows the signal-to-noise ratio of the last answer (ns-3's `IdealWifiManager`).

    Args:
        air: The channel, with positions.
        wifi: The cell.
        datagram_bytes: Size of the IP packets that are sent.
        launch: Launch options of ns-3's process.
        progress: Called after each slot.

    Raises:
        ChannelError: ns-3 ended or cannot be built; the message gives the reason.
        ValueError: There is no such standard or width, or the channel has no positions.
    """
    settings = cell_settings(air, wifi) | {"dscp": (0,) * air.uavs}
    return _simulated(air, settings, datagram_bytes, launch, progress)


def _wifi_settings(air: Air, wifi: WifiSettings) -> dict[str, Any]:
    widths = WIFI_WIDTHS_MHZ.get(wifi.standard)
    if widths is None:
        raise ValueError(
            f"standard must be one of {', '.join(WIFI_WIDTHS_MHZ)}, not {wifi.standard}"
        )
    if wifi.width_mhz not in widths:
        raise ValueError(
            f"width_mhz must be one of {', '.join(map(str, widths))} for 802.11{wifi.standard}, "
            f"not {wifi.width_mhz}"
        )
    if air.position_m is None:
        raise ValueError("Wi-Fi needs the positions of the UAVs, which hear each other")
    return {
        "radio": "wifi",
        "standard": wifi.standard,
        "width_mhz": wifi.width_mhz,
        "rts": wifi.rts,
        "noise_figure_db": air.noise_dbm_per_hz - THERMAL_DBM_PER_HZ + wifi.noise_figure_db,
        "antenna_gain_db": wifi.antenna_gain_db,
        "carrier_hz": air.carrier_hz,
        "farthest_m": float(np.linalg.norm(air.position_m, axis=2).max()),
        "window_bytes": WIFI_WINDOW_BYTES,
        "attach_s": ASSOCIATE_S,
        "settle_s": 0.5,
    }


def cell_settings(air: Air, cell: CellSettings) -> dict[str, Any]:
    """The settings of a cell and its air as plain values for ns-3's process.

    Raises:
        ValueError: The radio access or ns-3 does not have such a cell.
    """
    match cell:
        case LteSettings():
            own = _lte_settings(air, cell)
        case NrSettings():
            own = _nr_settings(air, cell)
        case WifiSettings():
            own = _wifi_settings(air, cell)
    more_w: Any = [] if air.power_cells_w is None else air.power_cells_w
    powers_w = np.append(air.downlink_power_w, more_w)
    return own | {
        "cells": len(powers_w),
        "cell_power_dbm": _dbm(powers_w).tolist(),
        "uavs": air.uavs,
        "steps": air.steps,
        "slot_s": air.slot_s,
        "placed": air.position_m is not None,
        "seed": air.seed,
        "uplink_power_dbm": _dbm(air.uplink_power_w).tolist(),
        "downlink_power_dbm": float(_dbm(air.downlink_power_w)),
    }


def start(settings: dict[str, Any], launch: Launch) -> Child:
    """Start ns-3's process, the program of ``cpp/radio``.

    Raises:
        ChannelError: The program of ns-3 cannot be built.
    """
    program = program_of(settings)
    return Child(
        "ns3_scenarios.radio_process",
        program,
        settings,
        launch,
        arguments=[str(program)],
        answer_s=ANSWER_S,
    )


def program_of(settings: Mapping[str, Any]) -> Path:
    """The program of ``cpp/radio`` for a cell; NR needs 5G-LENA.

    Raises:
        ChannelError: The program cannot be built.
        InputError: 5G-LENA is not built.
    """
    if settings.get("radio") != "nr":
        return build.library("radio")
    return build.library("radio-nr", nr_module.required().folder)


def slot_bytes(uplink_gain: Array, downlink_gain: Array, position_m: Array | None) -> bytes:
    """The channel of a slot for ns-3's process.

    Args:
        uplink_gain: Gains of the slot, shape [1 + C, K, m] with C further base stations.
        downlink_gain: The same for the downlink.
        position_m: Positions relative to the base station, shape [K, 3], if the radio model has
            any.
    """
    values = [uplink_gain, downlink_gain, *([] if position_m is None else [position_m])]
    return b"".join(np.ascontiguousarray(each, dtype=np.float64).tobytes() for each in values)


def check_attached(child: Child, settings: dict[str, Any]) -> None:
    """Wait until the UAVs are attached.

    Raises:
        ChannelError: A UAV did not attach to an LTE or NR cell, or ns-3 ended.
    """
    missing = json.loads(child.receive_line())["missing"]
    if missing and settings["radio"] != "wifi":
        names = ", ".join(f"UAV {k + 1}" for k in missing)
        raise ChannelError(
            f"ns-3's {settings['radio'].upper()}: did not attach to the base station within "
            f"{settings['attach_s']:g} s of simulated time: {names}"
        )


def _simulated(
    air: Air,
    settings: dict[str, Any],
    datagram_bytes: int,
    launch: Launch,
    progress: Progress | None,
) -> Delivery:
    steps = settings["steps"]
    settings |= {"mode": "backlog", "datagram_bytes": datagram_bytes, "way": air.way}
    child = start(settings, launch)
    has_cells = settings["radio"] != "wifi"
    counted = len(_FIELDS) * 2 * air.uavs
    made = np.empty((air.slots, counted + 2 * air.uavs * has_cells))
    gains = air.of_all_cells

    def slot(s: int) -> bytes:
        here = slice(s * steps, (s + 1) * steps)
        position_m = None if air.position_m is None else air.position_m[:, s]
        up, down = (gain[..., here] for gain in gains)
        return slot_bytes(up, down, position_m)

    try:
        child.send_bytes(slot(0))
        check_attached(child, settings)
        for s in range(air.slots):
            child.send("slot", slot(s))
            child.receive_into(made[s].data.cast("B"))
            if progress is not None:
                progress(s + 1)
        child.send("why")
        said = json.loads(child.receive_line())
    finally:
        child.close()
    counts = made[:, :counted].reshape(air.slots, len(_FIELDS), 2, air.uavs)
    fields: dict[str, Any] = dict(zip(_FIELDS, counts.transpose(1, 2, 3, 0), strict=True))
    interval_s = _TTI_S / 2 ** settings.get("numerology", 0)
    fields["resource_blocks"] = fields["resource_blocks"] * (interval_s / air.slot_s)
    if has_cells:
        serving, sinr_db = made[:, counted:].reshape(air.slots, 2, air.uavs).transpose(1, 2, 0)
        fields |= {"serving_cell": serving.astype(np.int64), "sinr_db": sinr_db}
    handovers = [Handover(*each) for each in said["handovers"]]
    return Delivery(slot_s=air.slot_s, why=said["why"], handovers=handovers, **fields)


def _dbm(power_w: Any) -> Array:
    return np.asarray(10 * np.log10(power_w) + 30)
