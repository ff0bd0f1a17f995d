# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The model of Wi-Fi against ns-3's Wi-Fi: goodput with a backlog in one direction or in both.

    python benchmarks/wifi_radio.py [--seconds S] [--json FILE] [--docs PAGE]

The UAVs are those of `lte_radio.py`, which do not move. Each case is a number of seconds of such a
channel, with one seed. Cells have the sums of all UAVs in ns-3 and in the model in Mb/s, and the
range of the UAVs in ns-3.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import lte_radio
import numpy as np
from common import show, write_table
from rich.console import Console
from rich.progress import track

from ns3_scenarios.radio import Air, WifiSettings, simulate_wifi
from orchestrator.engine.slot_impairments import DOWN, UP
from orchestrator.engine.wifi import Wifi
from orchestrator.rounds.ns3_radio import settings_of
from testbed.system.files import write_json

MIXED: dict[str, Any] = {"radio.wifi.noise_figure_db": 7.0, "radio.wifi.antenna_gain_db": 6.0}
"""With the powers of `lte_radio.py`, UAVs of different schemes, all in range."""
HIDDEN_HZ = 30e9
"""A carrier at which UAVs do not hear each other; their gains to the access point are the same."""


Way = Literal["up", "down", "both"]
WAYS: tuple[Way, ...] = ("up", "down", "both")


class Case(NamedTuple):
    """A number of UAVs, what differs from 802.11n with 1 W each, and the directions to try."""

    uavs: int
    keys: Mapping[str, Any] = MappingProxyType({})
    ways: tuple[Way, ...] = WAYS
    hidden: bool = False


RTS = {"radio.wifi.rts": True}
CASES = {
    **{f"K = {k}": Case(k) for k in (3, 10)},
    **{f"K = {k}, RTS/CTS": Case(k, RTS) for k in (3, 10)},
    "K = 10, mixed": Case(10, MIXED),
    **{
        f"K = 10, mixed, 802.11{standard}, 80 MHz": Case(
            10, MIXED | {"radio.wifi.standard": standard, "radio.wifi.width_mhz": 80}
        )
        for standard in ("ac", "ax")
    },
    **{f"K = {k}, hidden": Case(k, ways=("up",), hidden=True) for k in (3, 10)},
    **{f"K = {k}, hidden, RTS/CTS": Case(k, RTS, ("up",), hidden=True) for k in (3, 10)},
}
PLACES: dict[str, tuple[Way, int]] = {
    "uplinks alone": ("up", UP),
    "downlinks alone": ("down", DOWN),
    "uplinks of both": ("both", UP),
    "downlinks of both": ("both", DOWN),
}
"""By the head of a column: the directions that send, and the one that is shown."""


def compared(case: Case, way: Way, seconds: float) -> dict[str, Any]:
    """Goodput in bit/s of each UAV, by direction, in the model and in ns-3."""
    keys = {"radio.access": "wifi", **case.keys}
    if case.keys.get("radio.wifi.noise_figure_db") is None:
        keys["uavs.tx_power_w"] = [1.0] * case.uavs
    slots = round(seconds / 0.1)
    scenario, channel = lte_radio.case(case.uavs, keys, slots)
    settings, gain = settings_of(scenario, "ns3-wifi"), np.asarray(channel.values)
    assert isinstance(settings, WifiSettings)
    assert channel.position_m is not None
    air = Air(
        uplink_gain=gain,
        downlink_gain=gain,
        slots=slots,
        slot_s=channel.slot_s,
        uplink_power_w=scenario.fleet.tx_power_w,
        downlink_power_w=scenario.access_point_power_w,
        seed=scenario.seed,
        position_m=channel.position_m - scenario.base_station.position_m,
        carrier_hz=HIDDEN_HZ if case.hidden else scenario.radio.carrier_hz,
        way=way,
    )
    made = simulate_wifi(air, settings).bps.mean(axis=2)
    radio, model = Wifi.of(scenario), np.zeros((2, case.uavs))
    # The access point is one sender for all downlinks.
    senders = case.uavs * (way != "down") + (way != "up")
    schemes = (gain[:, :1] >= radio.least_gain).sum(axis=2)
    if way != "down":
        model[UP] = radio.bps[senders][schemes[UP]]
    if way != "up":
        model[DOWN] = radio.bps[senders][schemes[DOWN]] / case.uavs
    return {"model_bps": model.tolist(), "ns3_bps": made.tolist()}


def rows(found: dict[str, dict[Way, dict[str, Any]]]) -> list[list[str]]:
    """The cells of the table."""
    made = []
    for name, by_way in found.items():
        cells = [name]
        for way, place in PLACES.values():
            if way not in by_way:
                cells.append("")
                continue
            whose = (by_way[way][key][place] for key in ("ns3_bps", "model_bps"))
            theirs, ours = (np.array(each) / 1e6 for each in whose)
            off = theirs.sum() / ours.sum() - 1
            cells.append(
                f"{theirs.sum():.1f} / {ours.sum():.1f} ({off:+.0%}); "
                f"{theirs.min():.1f} to {theirs.max():.1f}"
            )
        made.append(cells)
    return made


def main() -> None:
    """Compare all cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--docs", type=Path)
    options = parser.parse_args()
    tried = [(name, way) for name, case in CASES.items() for way in case.ways]
    found: dict[str, dict[Way, dict[str, Any]]] = {name: {} for name in CASES}
    for name, way in track(tried, console=Console(stderr=True)):
        found[name][way] = compared(CASES[name], way, options.seconds)
    head = ["case", *PLACES]
    show(head, rows(found))
    if options.json:
        write_json(options.json, found)
    if options.docs:
        write_table(options.docs, "wifi_radio", [head, *rows(found)])


if __name__ == "__main__":
    main()
