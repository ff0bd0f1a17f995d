# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Links that ns-3 simulates packet by packet: TCP over point-to-point links of changing rate.

This module makes no scheduling decisions. The caller passes each message at its time of sending and
lets time advance until one arrives. The simulated arrivals therefore drive the caller's schedule.
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
"""Congestion controls by their Linux names: ns-3's TcpCubic and TcpLinuxReno, both with slow start
after idle as in Linux, and TcpBbr."""


@dataclass(frozen=True)
class PacketSettings:
    """Settings of the links, which differ only in their rates and impairments."""

    links: int
    """Number of links, K: one per UAV."""
    mtu: int = 1500
    """Largest IP packet, in bytes."""
    frame_header_bytes: int = 14
    """Header bytes that the rate counts per IP packet; 14 for Ethernet, at least 2 for PPP.

    ns-3's point-to-point frames have a PPP header. An inter-frame gap replaces the missing bytes,
    so that a frame takes as long as with the full header.
    """
    delay_s: float = 0.0
    """One-way delay after a frame has been sent, if `impairments` is empty."""
    impairments: Sequence[tuple[Impairment, Impairment]] = ()
    """Impairments of each link's uplink and downlink; empty: only `delay_s`."""
    congestion_control: str = "cubic"
    """One of `CONGESTION_CONTROLS`."""
    queue_frames: int = 100
    """Capacity of each queue in full frames; further frames are dropped."""
    initial_window: int = 10
    """Initial congestion window in segments."""
    packet_s: float = 0.0
    """Seconds of transmission at a link's rate per acknowledgement, but at least two frames; the
    rest at the end is acknowledged after 40 ms. This models a kernel that handles several frames as
    one packet and acknowledges packets."""
    nagle: bool = False


@dataclass(frozen=True)
class Arrival:
    """A message has arrived completely."""

    link: int
    """Number of the link, from 1."""
    down: bool
    """Whether its direction was from the base station to the UAV."""


@dataclass(frozen=True)
class EndCount:
    """Counters of one end of a link since the links were created."""

    sent_bytes: int
    """Bytes including the frame header of the settings."""
    sent_frames: int
    dropped_frames: int
    lost_frames: int
    """Frames lost on the radio channel."""


@dataclass(frozen=True)
class Counts:
    """Counters of all links."""

    events: int
    """Events that ns-3 has executed."""
    uplink: Sequence[EndCount]
    downlink: Sequence[EndCount]


class Network:
    """K links with a TCP connection each, in an ns-3 process; they are connected at time 0.

    Messages of one direction of a link arrive in the order of sending. Use as a context manager, or
    `close` it.

    Args:
        child: ns-3's process.
    """

    def __init__(self, child: Child):
        self._child = child
        self._impairments: list[float] | None = None
        self._send: list[tuple[int, bool, int]] = []

    def impair(self, uplinks: Array, downlinks: Array) -> None:
        """Set delay in s, jitter in s and loss probability of each link.

        Args:
            uplinks: Values of the uplinks, shape [K, 3].
            downlinks: Values of the downlinks, shape [K, 3].
        """
        self._impairments = np.stack([uplinks, downlinks], axis=1).ravel().tolist()

    def send(self, link: int, down: bool, message_bytes: int) -> None:
        """Pass a message to TCP at the current time. Links count from 1."""
        self._send.append((link - 1, down, message_bytes))

    def advance(self, until_ns: int) -> tuple[int, list[Arrival]]:
        """Simulate until `until_ns`, or until messages arrive.

        Returns:
            The time in ns, and all messages that arrived at this time.

        Raises:
            ChannelError: ns-3 ended; the message contains its exit status and its error message.
        """
        changes, data = self._changes()
        order = {"impairments": self._impairments, "send": self._send, "until": until_ns}
        answer = self._ask(changes | order, data)
        self._impairments, self._send = None, []
        return answer["now"], [Arrival(link + 1, bool(down)) for link, down in answer["delivered"]]

    def counts(self) -> Counts:
        """Counters of the links' ends so far.

        Raises:
            ChannelError: ns-3 ended; the message contains its exit status and its error message.
        """
        answer = self._ask({"counts": True, "until": None})
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

    def _changes(self) -> tuple[dict[str, Any], bytes]:
        """The changes of the links since the last step: a part of the order, and bytes after it."""
        raise NotImplementedError

    def _ask(self, order: dict[str, Any], data: bytes = b"") -> Any:
        self._child.send(json.dumps(order), data)
        return json.loads(self._child.receive_line())


class PacketNetwork(Network):
    """Point-to-point links with a separate rate for each direction.

    A frame that is being sent when a rate changes is finished at the old rate.

    Args:
        settings: Settings of the links.
        launch: Launch options of ns-3's process.

    Raises:
        ChannelError: The ns-3 models cannot be built.
    """

    def __init__(self, settings: PacketSettings, launch: Launch = LAUNCH):
        library, plain = build.library("packets"), plain_settings(settings)
        super().__init__(Child("ns3_scenarios.packets_process", library, plain, launch))
        self._rates: tuple[list[float], list[float]] | None = None

    def rates(self, uplink_bps: Sequence[float], downlink_bps: Sequence[float]) -> None:
        """Set the rates of the links, K per direction; 0 is an outage."""
        self._rates = list(uplink_bps), list(downlink_bps)

    def _changes(self) -> tuple[dict[str, Any], bytes]:
        rates, self._rates = self._rates, None
        return {"rates": rates}, b""


def plain_settings(settings: PacketSettings) -> dict[str, Any]:
    """The settings as plain values for ns-3's process, with the impairments of each link's uplink
    and downlink in one list."""
    plain = asdict(settings)
    uniform = Impairment(plain.pop("delay_s"))
    impairments = settings.impairments or [(uniform, uniform)] * settings.links
    plain["impairments"] = [_plain(way) for link in impairments for way in link]
    plain["congestion_control"] = CONGESTION_CONTROLS.index(settings.congestion_control)
    return plain


def _plain(way: Impairment) -> dict[str, float]:
    losses = way.losses or Losses(0.0, 1.0, 0.0, 0.0)
    return {
        "delay_s": way.delay_s,
        "jitter_s": way.jitter_s,
        **asdict(losses),
        "seed": way.seed,
        "reorders": way.reorders,
    }
