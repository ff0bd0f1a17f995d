# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Links that ns-3 plays packet by packet: TCP over point-to-point links of changing rate.

Nothing here decides anything. Messages are handed in when they are to be sent, and time goes on
until one has arrived, so that whoever holds the schedule steps it by what the packets did.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from ns3_scenarios import build
from ns3_scenarios.child import LAUNCH, Child, Launch
from ns3_scenarios.trace import Array
from testbed.core.impairment import Impairment, Losses

CONGESTION_CONTROLS = ("cubic", "reno", "bbr")
"""By Linux's names: ns-3's TcpCubic and TcpLinuxReno, both starting slowly again after a pause as
Linux's do, and TcpBbr."""


@dataclass(frozen=True)
class PacketSettings:
    """What the links are like; all are alike but for their rates."""

    links: int
    """K, one a UAV."""
    mtu: int = 1500
    """Largest IP packet, in bytes."""
    frame_header_bytes: int = 14
    """What the rate counts before each IP packet; Ethernet's 14 by default, at least PPP's 2.

    ns-3's point-to-point frames have a PPP header. The bytes that it lacks are spent as a gap
    between frames, so that a frame takes as long as if it had them.
    """
    delay_s: float = 0.0
    """One way, after a frame has been sent; where `air` says nothing else."""
    air: Sequence[tuple[Impairment, Impairment]] = ()
    """What happens to frames of each link's uplink, and of its downlink; none: `delay_s` alone."""
    congestion_control: str = "cubic"
    """One of `CONGESTION_CONTROLS`."""
    queue_frames: int = 100
    """Full frames that an end's queue holds; more are dropped."""
    initial_window: int = 10
    """Segments that a connection may send at first."""
    packet_s: float = 0.0
    """Sending at a link's rate that one acknowledgement is for, but at least two frames; what is
    left at the end waits 40 ms for its own. A kernel that handles some frames as one packet
    acknowledges packets."""
    nagle: bool = False


@dataclass(frozen=True)
class Arrival:
    """A message is at the other end, whole."""

    link: int
    """From 1."""
    down: bool
    """From the base station to the UAV."""


@dataclass(frozen=True)
class EndCount:
    """What has left one end of a link since the links were made."""

    sent_bytes: int
    """With the frame header of the settings."""
    sent_frames: int
    dropped_frames: int
    lost_frames: int
    """By the air."""


@dataclass(frozen=True)
class Counts:
    """Accounts of all links."""

    events: int
    """That ns-3 has executed."""
    uplink: Sequence[EndCount]
    downlink: Sequence[EndCount]


class PacketNetwork:
    """K links with a TCP connection each, in an ns-3 process; connected when time is 0.

    The two ends of a link have rates of their own. A frame that is being sent when a rate changes
    is finished at the old one. Messages of one direction of a link arrive in the order in which
    they were sent. Use as a context manager, or `close` it.

    Args:
        settings: What the links are like.
        launch: How ns-3's process is started.

    Raises:
        ChannelError: The ns-3 models cannot be built.
    """

    def __init__(self, settings: PacketSettings, launch: Launch = LAUNCH):
        plain = asdict(settings)
        uniform = Impairment(plain.pop("delay_s"))
        air = settings.air or [(uniform, uniform)] * settings.links
        plain["air"] = [_plain(way) for link in air for way in link]
        plain["congestion_control"] = CONGESTION_CONTROLS.index(settings.congestion_control)
        library = build.library("packets")
        self._child = Child("ns3_scenarios.packets_process", library, plain, launch)
        self._rates: tuple[list[float], list[float]] | None = None
        self._air: list[float] | None = None
        self._send: list[tuple[int, bool, int]] = []

    def rates(self, uplink_bps: Sequence[float], downlink_bps: Sequence[float]) -> None:
        """From now on, the links have these rates: K each; 0 is an outage."""
        self._rates = list(uplink_bps), list(downlink_bps)

    def air(self, uplinks: Array, downlinks: Array) -> None:
        """From now on, frames have these delays and jitters in s, and probabilities to be lost.

        Args:
            uplinks: Shape [K, 3].
            downlinks: Shape [K, 3].
        """
        self._air = np.stack([uplinks, downlinks], axis=1).ravel().tolist()

    def send(self, link: int, down: bool, message_bytes: int) -> None:
        """Hand a message to TCP now. Links count from 1."""
        self._send.append((link - 1, down, message_bytes))

    def advance(self, until_ns: int) -> tuple[int, list[Arrival]]:
        """Go on until that time, or until messages arrive.

        Returns:
            The time in ns, and all that arrived in that moment.

        Raises:
            ChannelError: ns-3 ended; the message says how and what it said.
        """
        order = {"rates": self._rates, "air": self._air, "send": self._send, "until": until_ns}
        answer = self._ask(order)
        self._rates, self._air, self._send = None, None, []
        return answer["now"], [Arrival(link + 1, bool(down)) for link, down in answer["delivered"]]

    def counts(self) -> Counts:
        """What has left the links' ends so far.

        Raises:
            ChannelError: ns-3 ended; the message says how and what it said.
        """
        answer = self._ask({"counts": True})
        uplink, downlink = zip(*answer["ends"], strict=True)
        return Counts(
            answer["events"],
            [EndCount(*end) for end in uplink],
            [EndCount(*end) for end in downlink],
        )

    def close(self) -> None:
        """End ns-3's process."""
        self._child.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, order: dict[str, Any]) -> Any:
        self._child.send(json.dumps(order))
        return json.loads(self._child.receive_line())


def _plain(way: Impairment) -> dict[str, float]:
    losses = way.losses or Losses(0.0, 1.0, 0.0, 0.0)
    return {
        "delay_s": way.delay_s,
        "jitter_s": way.jitter_s,
        **asdict(losses),
        "seed": way.seed,
        "reorders": way.reorders,
    }
