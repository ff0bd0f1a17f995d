# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""ns-3's TCP over a radio access that ns-3 simulates, packet by packet: LTE, NR or
Wi-Fi.

Each link has two hosts with an internet stack of ns-3, one for the UAV and one for the base
station. Their IP packets pass the program of ``cpp/radio``, as those of real programs do.
"""

import json
from typing import Any

from ns3_scenarios.child import LAUNCH, Launch
from ns3_scenarios.errors import ChannelError
from ns3_scenarios.packets import Network, PacketSettings, plain_settings
from ns3_scenarios.radio import (
    MOST_WIFI_MTU,
    Air,
    CellSettings,
    WifiSettings,
    cell_settings,
    check_attached,
    slot_bytes,
    start,
)
from ns3_scenarios.trace import Array


class RadioPacketNetwork(Network):
    """K links over a radio access, with a TCP connection each.

    UAVs attach and connect before time 0, on the channel of slot 0. The radio access holds at most
    100 kB (Wi-Fi: 200 kB, NR: 400 kB) per direction of a link; further packets wait in a queue of
    the sending host, which drops packets when it is full.

    Args:
        air: The channel, of which the first gains hold until `gains` is called.
        cell: The radio access.
        settings: Settings of the links, one per UAV; `frame_header_bytes` and `packet_s` have no
            effect, since packets have no Ethernet header and are acknowledged in pairs.
        launch: Launch options of ns-3's process.

    Raises:
        ChannelError: The ns-3 models cannot be built, or a UAV did not attach or connect.
        ValueError: LTE, Wi-Fi or ns-3 does not have such a cell or such packets.
    """

    def __init__(
        self,
        air: Air,
        cell: CellSettings,
        settings: PacketSettings,
        launch: Launch = LAUNCH,
    ):
        if settings.links != air.uavs:
            raise ValueError(f"links must be {air.uavs}, one per UAV, not {settings.links}")
        if isinstance(cell, WifiSettings) and settings.mtu > MOST_WIFI_MTU:
            raise ValueError(f"mtu must be at most {MOST_WIFI_MTU} with Wi-Fi, not {settings.mtu}")
        plain = plain_settings(settings) | cell_settings(air, cell) | {"mode": "tcp"}
        plain["impairments"] = [[*map(float, way.values())] for way in plain["impairments"]]
        super().__init__(start(plain, launch))
        self._slot: tuple[int, bytes] | None = None
        steps = plain["steps"]
        up, down = (gain[..., :steps] for gain in air.of_all_cells)
        self._shape = up.shape
        self._is_placed = air.position_m is not None
        position_m = None if air.position_m is None else air.position_m[:, 0]
        try:
            self._child.send_bytes(slot_bytes(up, down, position_m))
            check_attached(self._child, plain)
            self._child.send("connect")
            if missing := json.loads(self._child.receive_line())["missing"]:
                names = ", ".join(f"UAV {k + 1}" for k in missing)
                raise ChannelError(
                    f"ns-3's TCP: no connection to the base station within {plain['attach_s']:g} s "
                    f"of simulated time: {names}"
                )
        except BaseException:
            self.close()
            raise

    def gains(
        self, slot: int, uplink_gain: Array, downlink_gain: Array, position_m: Array | None = None
    ) -> None:
        """Set the channel of the slot in which the next step begins.

        Args:
            slot: Number of the slot; slot 0 starts at time 0.
            uplink_gain: Gains, shape [1 + C, K, m], with C further base stations and m values per
                slot as in slot 0.
            downlink_gain: The same for the downlink.
            position_m: Positions relative to the base station, shape [K, 3]; needed if the radio
                model has positions, and otherwise ignored.

        Raises:
            ValueError: An array has another shape.
        """
        _, uavs, _ = self._shape
        if uplink_gain.shape != self._shape or downlink_gain.shape != self._shape:
            raise ValueError(f"uplink_gain and downlink_gain must have shape {list(self._shape)}")
        place = position_m if self._is_placed else None
        if self._is_placed and (place is None or place.shape != (uavs, 3)):
            raise ValueError(f"position_m must have shape [{uavs}, 3]: the places of the UAVs")
        self._slot = slot, slot_bytes(uplink_gain, downlink_gain, place)

    def _changes(self) -> tuple[dict[str, Any], bytes]:
        if self._slot is None:
            return {"slot": None}, b""
        (slot, data), self._slot = self._slot, None
        return {"slot": slot}, data
