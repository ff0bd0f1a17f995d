# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The rates of a scenario's links under a radio access that ns-3 simulates."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from ns3_scenarios.radio import (
    WIFI_WIDTHS_MHZ,
    Air,
    CellSettings,
    Delivery,
    LteSettings,
    NrSettings,
    Progress,
    WifiSettings,
    simulate_lte,
    simulate_nr,
    simulate_wifi,
)
from ns3_scenarios.trace import Array, ChannelTrace, RateTrace, SlotTrace
from orchestrator.engine.lte import assigned
from orchestrator.engine.nr_tables import LENA_LEAST_DB
from orchestrator.engine.plan import fixed_allocation
from orchestrator.scenario.cells import left_blocks
from orchestrator.scenario.channel import ns3_launch
from orchestrator.scenario.combinations import check
from orchestrator.scenario.schema import LTE_BLOCKS, NR_BLOCKS, Scenario
from orchestrator.scenario.unused import say_access_point_power
from testbed.core.errors import InputError

log = logging.getLogger(__name__)

RADIOS: Mapping[str, type[CellSettings]] = {
    "ns3-lte": LteSettings,
    "ns3-nr": NrSettings,
    "ns3-wifi": WifiSettings,
}
"""Radio accesses that ns-3 simulates."""
MOST_W = 100.0
"""Largest power of an access point that may be asked for."""
_HERTZ_PER_MHZ_DB = 60.0


def settings_of(
    scenario: Scenario,
    radio: str | None,
    wifi_standard: str | None = None,
    wifi_width_mhz: int | None = None,
    *,
    rts: bool = False,
    access_point_w: float | None = None,
) -> CellSettings | None:
    """The radio access of these options, otherwise of the scenario's keys; None: neither sets one.

    Raises:
        InputError: There is no such radio access, an option does not belong to it, or ns-3 lacks a
            feature of the scenario's cell.
    """
    if radio is not None and radio not in RADIOS:
        raise InputError(f"`radio`: must be one of {', '.join(RADIOS)}, not {radio[:40]!r}")
    for option, given in (
        ("wifi_standard", wifi_standard is not None),
        ("wifi_width_mhz", wifi_width_mhz is not None),
        ("rts", rts),
        ("wifi_ap_w", access_point_w is not None),
    ):
        if given and radio != "ns3-wifi":
            raise InputError(f"`{option}`: needs `radio` ns3-wifi")
    if radio != "ns3-wifi":
        cell = nr_cell_of if radio == "ns3-nr" else cell_of
        return None if radio is None else cell(scenario)
    if access_point_w is not None and not 0 < access_point_w <= MOST_W:
        raise InputError(
            f"`wifi_ap_w`: must be above 0 and at most {MOST_W:g}, not {access_point_w}"
        )
    wifi = scenario.radio.wifi
    standard = wifi.standard if wifi_standard is None else wifi_standard
    if standard not in WIFI_WIDTHS_MHZ:
        raise InputError(
            f"`wifi_standard`: must be one of {', '.join(WIFI_WIDTHS_MHZ)}, not {standard[:40]!r}"
        )
    width_mhz = wifi.width_mhz if wifi_width_mhz is None else wifi_width_mhz
    if width_mhz not in WIFI_WIDTHS_MHZ[standard]:
        widths = ", ".join(map(str, WIFI_WIDTHS_MHZ[standard]))
        raise InputError(
            f"`wifi_width_mhz`: must be one of {widths} for 802.11{standard}, not {width_mhz}"
        )
    return WifiSettings(
        standard,
        width_mhz,
        rts=rts or wifi.rts,
        noise_figure_db=wifi.noise_figure_db,
        antenna_gain_db=wifi.antenna_gain_db,
    )


def rate_trace(
    scenario: Scenario,
    channel: SlotTrace,
    radio: CellSettings,
    access_point_w: float | None = None,
    progress: Progress | None = None,
) -> tuple[RateTrace, Delivery]:
    """The rates that the scenario's links deliver per slot while all have a backlog in both
    directions.

    Args:
        scenario: The scenario: its powers, noise and seed.
        channel: Gains, and for Wi-Fi positions, of all slots.
        radio: The radio access.
        access_point_w: Power of a Wi-Fi access point; None: the power of the scenario.
        progress: Called after each slot.

    Returns:
        The rates, and all that ns-3 counted. A UAV of which nothing arrived is logged, with the
        cause.

    Raises:
        InputError: The channel has no gains, or no positions for Wi-Fi; a setting is impossible.
        ChannelError: ns-3 ended, or a UAV did not attach.
    """
    air = air_of(scenario, channel, radio, access_point_w)
    try:
        made = simulated(air, radio, progress=progress)
    except ValueError as error:
        raise InputError(str(error)) from None
    for line in made.silent():
        log.warning(line)
    if scenario.radio.cells:
        log.info(_handovers_of(made))
    up, down = made.bps
    rates = RateTrace(
        uplink_bps=up,
        downlink_bps=down,
        slot_s=channel.slot_s,
        position_m=channel.position_m,
        seed=scenario.seed,
        scenario=scenario.model_dump_json(),
        downlink_is="link",
    )
    return rates, made


def simulated(air: Air, radio: CellSettings, **options: Any) -> Delivery:
    """What ns-3's radio access delivers; see `simulate_lte` for options and errors."""
    match radio:
        case LteSettings():
            return simulate_lte(air, radio, launch=ns3_launch(), **options)
        case NrSettings():
            return simulate_nr(air, radio, launch=ns3_launch(), **options)
        case WifiSettings():
            return simulate_wifi(air, radio, launch=ns3_launch(), **options)


def air_of(
    scenario: Scenario,
    channel: SlotTrace,
    radio: CellSettings,
    access_point_w: float | None = None,
) -> Air:
    """The channel and the traffic over it, for ns-3; see `rate_trace`.

    Raises:
        InputError: The channel has no gains, or no positions for Wi-Fi.
    """
    if not isinstance(channel, ChannelTrace):
        raise InputError("`trace`: has rates; a radio of ns-3 needs gains")
    uplink_gain, downlink_gain = _faded(channel)
    air = Air(
        uplink_gain=uplink_gain,
        downlink_gain=downlink_gain,
        slots=channel.slots,
        slot_s=channel.slot_s,
        uplink_power_w=scenario.fleet.tx_power_w,
        downlink_power_w=scenario.base_station.tx_power_w,
        noise_dbm_per_hz=scenario.radio.noise_dbm_per_mhz - _HERTZ_PER_MHZ_DB,
        seed=scenario.seed,
    )
    if cells := scenario.radio.cells:
        if isinstance(radio, WifiSettings):
            raise InputError("radio.cells: ns3-wifi has one access point")
        powers_w = np.array([cell.tx_power_w for cell in cells])
        air = replace(
            air,
            gain_cells=channel.gain_cells,
            gain_cells_down=channel.gain_cells_down,
            power_cells_w=powers_w,
        )
    if isinstance(radio, WifiSettings):
        return _placed(scenario, channel, air, access_point_w)
    return air


def slot_of(scenario: Scenario, channel: SlotTrace, slot: int) -> tuple[Array, Array, Array | None]:
    """The channel of a slot: gains of uplink and downlink, [1 + C, K, B], with C further base
    stations and B blocks of fading; and positions relative to the base station, [K, 3], if they are
    known."""
    assert isinstance(channel, ChannelTrace)
    here = channel.at(np.array([slot]))
    if channel.gain_cells is None:
        up, down = (gain[None] for gain in _faded(here))
    else:
        up, down = here.of_all_cells
    if channel.position_m is None:
        return up, down, None
    return up, down, channel.position_m[:, slot] - scenario.base_station.position_m


def cells_tables(made: Delivery) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The tables `cells` and `handovers` of `orchestrator.reporting.cells`.

    Args:
        made: Delivery of LTE. The interruption of a handover is the longer one of both directions.
    """
    assert made.serving_cell is not None
    assert made.sinr_db is not None
    uavs, slots = made.serving_cell.shape
    slot = np.tile(np.arange(slots), uavs)
    cells = pd.DataFrame(
        {
            "slot": slot,
            "time_s": slot * made.slot_s,
            "client": np.repeat(np.arange(1, uavs + 1), slots),
            "cell": made.serving_cell.ravel(),
            "sinr_db": made.sinr_db.ravel(),
        }
    )
    rows = [
        {
            "client": each.uav + 1,
            "start_s": each.start_s,
            "end_s": each.end_s,
            "from_cell": each.from_cell,
            "to_cell": each.to_cell,
            "interruption_ms": max(
                (1e3 * s for s in (each.interruption_up_s, each.interruption_down_s) if s),
                default=None,
            ),
        }
        for each in made.handovers
    ]
    columns = ["client", "start_s", "end_s", "from_cell", "to_cell", "interruption_ms"]
    handovers = pd.DataFrame(rows, columns=columns)
    return cells, handovers.astype({"end_s": float, "interruption_ms": float})


def cell_of(scenario: Scenario) -> LteSettings:
    """The scenario's LTE cell.

    Raises:
        InputError: ns-3 lacks a feature of the cell.
    """
    radio, lte = scenario.radio, scenario.radio.lte
    check(scenario, "ns3-lte")
    band = LTE_BLOCKS.get(radio.uplink_bandwidth_hz)
    if band is None:
        band = max(LTE_BLOCKS.values())
        log.warning(
            f"the cell has {band} resource blocks (20 MHz): radio.uplink_bandwidth_hz, "
            f"{radio.uplink_bandwidth_hz:g} Hz, is no bandwidth of LTE"
        )
    blocks = lte.resource_blocks or band
    own, own_down = None, None
    if lte.scheduler == "shares":
        own_down = _own_blocks(scenario, blocks)
        own = _own_blocks(scenario, left_blocks(blocks, lte.background.load))
    in_turns = scenario.scheme.gradient_transmission == "sequential"
    return LteSettings(
        resource_blocks=blocks,
        noise_figure_db=lte.noise_figure_db,
        interference_margin_db=lte.interference_margin_db,
        antenna_gain_db=lte.antenna_gain_db,
        uplink_blocks=own,
        downlink_blocks=None if in_turns else own_down,
        priority_by_dscp=lte.downlink_order == "mac",
        handover=radio.handover if radio.cells else "none",
        a3_hysteresis_db=radio.a3_hysteresis_db,
        a3_time_to_trigger_s=radio.a3_time_to_trigger_s,
        background_load=lte.background.load,
        background_users=lte.background.users,
        scheduling_request_s=lte.scheduling_request_s or 0.0,
        grants_per_tti=lte.grants_per_tti or 0,
        cell_loads=(0.0, *(cell.load for cell in radio.cells)) if radio.cells else (),
    )


def nr_cell_of(scenario: Scenario) -> NrSettings:
    """The scenario's NR cell.

    Raises:
        InputError: 5G-LENA lacks a feature of the cell.
    """
    radio, nr = scenario.radio, scenario.radio.nr
    check(scenario, "ns3-nr")
    known = NR_BLOCKS[nr.subcarrier_spacing_khz]
    bandwidth_hz = radio.uplink_bandwidth_hz, radio.downlink_bandwidth_hz
    for name, hz in zip(("uplink", "downlink"), bandwidth_hz, strict=True):
        if hz not in known:
            raise InputError(f"radio.{name}_bandwidth_hz: {hz:g} Hz is no bandwidth of NR")
    band = known[bandwidth_hz[0]], known[bandwidth_hz[1]]
    own, own_down = None, None
    if nr.scheduler == "shares":
        own, own_down = (_own_blocks(scenario, nr.resource_blocks or each) for each in band)
    in_turns = scenario.scheme.gradient_transmission == "sequential"
    return NrSettings(
        bandwidth_hz=bandwidth_hz,
        band_blocks=band,
        resource_blocks=nr.resource_blocks,
        subcarrier_spacing_khz=nr.subcarrier_spacing_khz,
        tdd_pattern=nr.tdd_pattern if nr.duplex == "tdd" else "",
        highest_modulation=nr.highest_modulation,
        least_snr_db=LENA_LEAST_DB,
        noise_figure_db=nr.noise_figure_db,
        interference_margin_db=nr.interference_margin_db,
        antenna_gain_db=nr.antenna_gain_db,
        uplink_blocks=own,
        downlink_blocks=None if in_turns else own_down,
    )


def _own_blocks(scenario: Scenario, blocks: int) -> tuple[int, ...]:
    """The resource blocks that each UAV has for itself, of those of the cell, shape [K].

    Raises:
        InputError: A UAV has none.
    """
    beta = fixed_allocation(scenario).beta
    own = tuple(assigned(beta, blocks).tolist())
    if 0 in own:
        k = own.index(0)
        raise InputError(
            f"allocation.beta: must be at least {1 / blocks:g}, one resource block; "
            f"UAV {k + 1} has {beta[k]:g}"
        )
    return own


def _faded(channel: ChannelTrace) -> tuple[Array, Array]:
    """Gains of uplink and downlink with small-scale fading: [K, S], or [K, S B] with B blocks."""
    up, down = channel.gain, channel.gain if channel.gain_down is None else channel.gain_down
    if channel.fading is None:
        return up, down
    faded = zip((up, down), channel.fading, strict=True)
    up, down = ((gain[..., None] * power).reshape(len(gain), -1) for gain, power in faded)
    return up, down


def _placed(scenario: Scenario, channel: SlotTrace, air: Air, access_point_w: float | None) -> Air:
    """The radio model of a Wi-Fi cell: with positions, and the power of an access point."""
    if channel.position_m is None:
        raise InputError("`trace`: has no positions; UAVs with Wi-Fi hear each other")
    if access_point_w is None:
        say_access_point_power(scenario)
    return replace(
        air,
        downlink_power_w=access_point_w or scenario.access_point_power_w,
        position_m=channel.position_m - scenario.base_station.position_m,
        carrier_hz=scenario.radio.carrier_hz,
    )


def _handovers_of(made: Delivery) -> str:
    """The handovers in one line."""
    count = len(made.handovers)
    if not count:
        return "no handovers"
    words = []
    for way in ("up", "down"):
        known = [getattr(each, f"interruption_{way}_s") for each in made.handovers]
        if known_ms := [1e3 * each for each in known if each is not None]:
            words.append(f"{np.median(known_ms):.3g} ms in the {way}link")
    line = f"{count} handover{'s' * (count > 1)}"
    return f"{line}; packets were interrupted for {' and '.join(words)} (median)" if words else line


def described(rates: RateTrace) -> str:
    """Rates in one line: the sum and the range of each direction, and when they hold."""
    words = []
    for name, values in (("uplink", rates.uplink_bps), ("downlink", rates.downlink_bps)):
        mean = values.mean(axis=1) / 1e6
        words.append(
            f"{name} {mean.sum():.4g} Mbit/s in total, {mean.min():.3g} to {mean.max():.3g} per UAV"
        )
    return "; ".join([*words, "valid only while all UAVs have a backlog in both directions"])
