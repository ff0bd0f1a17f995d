# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The duration of TCP transfers over links with delay and loss, simulated window by window.

Without loss and delay, the duration of a transfer follows from the integral of its link's rate, and
this model is not used. Otherwise a transfer is a sequence of *flights*, a window of frames each:

- A flight leaves at the link's rate, once the previous one has left and the acknowledgement of its
  first frame has arrived. Therefore windows that fill the pipe cause no delay, and small ones do.
- In slow start a window grows by each acknowledged frame, up to twice the pipe. HyStart ends it (Ha
  and Rhee 2011): after acknowledgements at most 2 ms apart that last a round trip and 1 ms, as in
  Linux with paced senders.
- Then `cubic` grows by RFC 9438 (C = 0.4, β = 0.7, as Reno where that is faster), with Linux's
  bound of 5 % per round trip before the first loss; `reno` by one frame per round trip (RFC 5681).
  `bbr` fills the pipe (Cardwell et al. 2016): its window doubles each round trip, except for the
  one in which it begins to recover from a loss, where it sends as much as is acknowledged. Ten
  seconds after the shortest round trip that it has measured, which is that of the connection's own
  frames and later that of receipts, it sends four frames per round trip for 200 ms, unless it was
  idle then. The model omits its probing for bandwidth.
- Each frame is lost by the link's own process. A loss shrinks the window, to whole frames as Linux
  counts them, once three frames have arrived after it. The next flight is larger by the frames that
  had left until then, and by those sent for each further acknowledgement (RFC 6937). Losses among
  frames that had left do not shrink the window again (RFC 6675: the recovery point); it grows by
  the frames acknowledged before the loss and after that point. Retransmissions are sent first; the
  loss of one is detected if three frames of the same flight arrive after it. Otherwise it waits for
  a timeout of 200 ms and a round trip, twice that the next time, and the window restarts from one
  frame (RFC 5681, RFC 6298); not with `bbr`, which has enough frames in flight to detect it. The
  loss of the last frames of a transfer is detected by a probe after two round trips, or after 200
  ms and one round trip for a single frame (RFC 8985).
- Where slots differ in delay, jitter or loss (`slots`), a flight has those of the slot in which it
  begins. Retransmissions of the radio occupy the link longer.
- An idle sender halves its window per retransmission timeout (RFC 2861). A receiver's buffer begins
  at 64 KiB and grows with the received bytes; it grows with each packet, and where packets are
  single frames, as on links with loss, it does not limit the sender.

Over a radio that grants resources (`grants`), a transfer is not divided into flights but begins to
be served after a delay: the delay of the first grant, and the time for which its first windows wait
for acknowledgements. The wait of each window is the round-trip time less the window's duration at
the link's present rate, and the next window is twice as large (Cardwell, Savage and Anderson,
"Modeling TCP latency", IEEE INFOCOM 2000). So transfers can divide a band, whose rates depend on
each other.

Links of virtual time are serial lines, on which each frame takes its own time. Acknowledgements and
receipts take time on the other direction there, too. Where that may limit a transfer, because the
other direction is out or much slower, a transfer without delay and loss is simulated packet by
packet (`_clocked`): a packet leaves when the window, the sender's own queue and the link permit it,
and the receiver acknowledges each packet of two or more frames, or each second frame. Otherwise its
duration follows from the integral of the rate. In both cases, a receipt waits for the
acknowledgements of the last two packets, since the last one may be short.

Acknowledgements are not lost, and elsewhere not late; a round begins with new windows. A message is
complete when the last of its frames has arrived, in any order: the model does not take overtaken
frames for lost, as TCP may (RFC 8985 waits for them, once it has detected some). Losses are drawn
by the scenario's seed, for each round and direction of a link: their mean number is that of the
kernel and of ns-3, but not the individual losses.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ns3_scenarios.trace import TwoWay
from orchestrator.engine.access import LinkRates
from orchestrator.engine.arrays import Array
from orchestrator.engine.core_library import (
    GIVEN,
    Bands,
    Links,
    LinkState,
    Paths,
    Slots,
    library,
)
from orchestrator.engine.links import impairments_of, shape_of
from orchestrator.engine.lte import request_s as scheduling_s
from orchestrator.engine.nr import grant_times
from orchestrator.engine.plan import transfer_bytes
from orchestrator.engine.slot_impairments import BROADCAST, DOWN, UP, SlotImpairments, lossless
from orchestrator.scenario.schema import Scenario
from testbed.core.clock import FILL_S
from testbed.network.shaping import ACKNOWLEDGEMENT_BYTES, INITIAL_FRAMES, Shape
from testbed.transport.framing import ETHERNET_BYTES

CUBIC, RENO, BBR = 0, 1, 2
CONTROLS = {"cubic": CUBIC, "reno": RENO, "bbr": BBR}
"""Congestion controls of the model; others are treated as cubic."""
RECEIVER_FRAMES = 45.0
"""Initial window that a receiver offers: 64 KiB."""
_ONE_FRAME_BITS = 1e18
"""Size in bits of a frame that is larger than any transfer."""
ACKNOWLEDGEMENT_BITS = 8.0 * ACKNOWLEDGEMENT_BYTES
UNACKNOWLEDGED = 4096
"""Largest number of acknowledgements of a transfer that are on their way."""

_WINDOW, _THRESHOLD, _IDLE_FROM_S, _OFFERED, _LOOKED_S, _NUMBERS = 0, 1, 7, 8, 10, 15
"""Places of the numbers in a `Sender` of ``core/tcp.h`` that are not 0 at first; all numbers."""


@dataclass(frozen=True)
class Grants:
    """Delays of transfers that share a band, in s."""

    grant_s: tuple[float, float]
    """From a transfer's start until the first grant with which it is served at its link's rate, for
    uplink and downlink."""
    delivery_s: Array
    """From the end of its last grant until its last packet has arrived, shape [2, K]."""
    request_s: tuple[float, float] = (0.0, 0.0)
    """Part of `grant_s` that scheduling requests take in the mean."""


@dataclass(frozen=True)
class TcpModel:
    """TCP over the links of a scenario; arrays as in `Paths`."""

    delay_s: Array
    jitter_s: Array
    losses: Array
    control: int
    frame_bits: float
    initial: float
    offered: float
    credit_s: float
    round_trips: int
    seeds: npt.NDArray[np.uint64]
    round: int = 0
    scenario: Scenario | None = None
    """The scenario, if its slots differ; otherwise None."""
    slots: SlotImpairments | None = None
    """Slot impairments, once a channel and the round's shares are known."""
    slot_s: float = 1.0
    grants: Grants | None = None
    """Delays of transfers that share a band; None: each link has a rate of its own."""
    impaired: bool = True
    """Whether any link delays or loses frames."""
    receipt_bits: float = 0.0
    """Bits of a receipt where links are serial lines; 0: they are not."""
    opening_bits: float = 0.0
    """Further bits of a message without content that opens a connection."""
    packet_s: float = 0.0
    """Longest packet, in s at the link's rate."""
    queue_frames: int = Shape.queue_frames
    """Frames in the queue of a link."""
    held_s: float = 0.0
    """Time before the broadcast's start at which its first window is handed over to serial lines.
    """

    def of_round(self, index: int) -> "TcpModel":
        """The model for one round, with random draws of this round."""
        return replace(self, round=index)

    def without_loss(self) -> "TcpModel":
        """The same model without frame loss."""
        slots = self.slots and lossless(self.slots)
        return replace(self, losses=np.zeros_like(self.losses), slots=slots)

    def delay_at(self, way: int, client: int, time_s: float) -> float:
        """One-way delay of a frame that a client's link carries at this time."""
        if self.slots is None:
            return float(self.delay_s[min(way, DOWN), client - 1])
        of_link = self.slots.delay_s[way, client - 1]
        return float(of_link[min(int(time_s / self.slot_s + 1e-9), len(of_link) - 1)])

    def with_given_durations(self) -> "TcpModel":
        """The same delays of single frames; transfers take the time that their links need."""
        none = Grants((0.0, 0.0), np.zeros_like(self.delay_s))
        return replace(self, frame_bits=_ONE_FRAME_BITS, grants=self.grants and none)

    def fresh(self, transfers: int = 0) -> Paths:
        """The state of all links at the beginning of a round.

        Args:
            transfers: Largest number of transfers of a client in one direction.
        """
        senders = np.zeros((*self.delay_s.shape, _NUMBERS))
        senders[..., _WINDOW] = self.initial
        senders[..., _THRESHOLD] = math.inf
        senders[..., _OFFERED] = self.offered
        senders[..., _IDLE_FROM_S] = math.inf
        senders[..., _LOOKED_S] = 1e-9 if self.round else 0.0
        draws = self.seeds ^ np.uint64((self.round + 1) * 0x9E3779B97F4A7C15 & (1 << 64) - 1)
        slots = self.slots
        grants = self.grants or Grants((0.0, 0.0), np.zeros_like(self.delay_s))
        if slots is None:
            delay_s, jitter_s, loss = (
                each[[UP, DOWN, DOWN]][..., None]
                for each in (self.delay_s, self.jitter_s, self.losses[..., 2])
            )
            slots = SlotImpairments(delay_s, jitter_s, loss, np.ones_like(loss))
        acknowledgements = UNACKNOWLEDGED if self.receipt_bits else 1
        tables = {
            "delay_s": slots.delay_s,
            "jitter_s": slots.jitter_s,
            "loss": slots.loss,
            "airtime": slots.airtime,
            "losses": self.losses,
            "delivery_s": grants.delivery_s,
            "senders": senders,
            "free_s": np.zeros(self.delay_s.shape),
            "packets": np.zeros((3, self.delay_s.shape[1])),
            "unacknowledged": np.zeros((3, acknowledgements)),
            "windows": np.zeros((2, *self.delay_s.shape, transfers)),
        }
        return Paths(
            {name: np.ascontiguousarray(table, float) for name, table in tables.items()}
            | {"draws": draws},
            slots=slots.loss.shape[2],
            slot_s=self.slot_s,
            clients=self.delay_s.shape[1],
            control=self.control,
            by_grant=self.grants is not None,
            impaired=self.impaired,
            round_trips=self.round_trips,
            frame_bits=self.frame_bits,
            initial=self.initial,
            offered=self.offered,
            credit_s=self.credit_s,
            receipt_bits=self.receipt_bits,
            opening_bits=self.opening_bits,
            packet_s=self.packet_s,
            held_s=self.held_s,
            limited_from=-1,
            acknowledgement_bits=ACKNOWLEDGEMENT_BITS,
            queued_frames=self.queue_frames,
            grant_s=tuple(grants.grant_s),
            acknowledgements=acknowledgements,
            transfers=transfers,
        )


def tcp_model_of(scenario: Scenario) -> TcpModel | None:
    """The TCP model of a scenario; None if its links have neither delay nor loss, and frames and
    acknowledgements take no extra time."""
    if scenario.emulation.air == "ns3":
        return _over_cell(scenario) if scenario.radio.kind.cell is not None else None
    choices, shape = scenario.emulation, shape_of(scenario)
    # The links of a shared band divide it among those that have something to send.
    is_shared = scenario.radio.dividing_key is not None
    serial = shape.serial and not is_shared
    if not scenario.is_impaired and not serial:
        return None
    ways = impairments_of(scenario)
    dilation = choices.dilation if isinstance(choices.dilation, float) else 1.0
    kept = choices.connection == "kept"
    initial = float(choices.initial_window or INITIAL_FRAMES)
    receipt_bytes = transfer_bytes(choices, 0, 0, answers=True)

    def each(value: str) -> Array:
        return np.array([[getattr(link, value) for link in way] for way in ways], dtype=float)

    processes = [
        [
            (0.0, 1.0, 0.0, 0.0) if link.losses is None else tuple(vars(link.losses).values())
            for link in way
        ]
        for way in ways
    ]
    return TcpModel(
        delay_s=each("delay_s"),
        jitter_s=each("jitter_s"),
        losses=np.array(processes),
        control=CONTROLS.get(choices.congestion_control, CUBIC),
        frame_bits=8.0 * (shape.mtu + ETHERNET_BYTES if shape.charges_headers else shape.mtu - 52),
        initial=initial,
        offered=math.inf if shape.single_frames else max(RECEIVER_FRAMES, initial),
        credit_s=shape.credit_s / dilation,
        round_trips=0 if kept else choices.transport_kind.round_trips,
        seeds=np.array([[link.seed for link in way] for way in ways], dtype=np.uint64),
        scenario=scenario if scenario.links.vary_by_slot else None,
        impaired=scenario.is_impaired,
        receipt_bits=8.0 * receipt_bytes if serial else 0.0,
        opening_bits=8.0 * (transfer_bytes(choices, 0, 0) - receipt_bytes),
        packet_s=0.0 if shape.single_frames else shape.packet_s / dilation,
        queue_frames=shape.queue_frames,
        held_s=FILL_S / dilation if kept else 0.0,
        # On a shared band, a transfer waits for its first windows, then has its part of the band.
        grants=Grants((0.0, 0.0), each("delay_s")) if is_shared else None,
    )


def _over_cell(scenario: Scenario) -> TcpModel:
    """The model of TCP over a cell of ns-3, LTE or NR."""
    choices, shape, count = scenario.emulation, shape_of(scenario), scenario.uavs.count
    kept = choices.connection == "kept"
    times, asks_s = grant_times(scenario), 0.0
    request_s, learning_s, delivery_s = (
        np.array(ttis) * times.tti_s for ttis in (times.request, times.learning, times.delivery)
    )
    if scenario.radio.kind.cell == "lte":
        asks_s = scheduling_s(scenario.radio.lte.scheduling_request_s)
        request_s[UP] += asks_s
    return TcpModel(
        delay_s=np.repeat((request_s + times.tti_s + delivery_s)[:, None], count, axis=1),
        jitter_s=np.zeros((2, count)),
        losses=np.zeros((2, count, 4)),
        control=CONTROLS.get(choices.congestion_control, CUBIC),
        frame_bits=8.0 * choices.mtu,
        initial=float(choices.initial_window or INITIAL_FRAMES),
        offered=math.inf,
        credit_s=shape.credit_s / (choices.dilation if isinstance(choices.dilation, float) else 1),
        round_trips=0 if kept else choices.transport_kind.round_trips,
        seeds=np.zeros((2, count), np.uint64),
        grants=Grants(
            tuple((request_s + learning_s).tolist()),
            np.repeat(delivery_s[:, None], count, axis=1),
            (asks_s, 0.0),
        ),
    )


class SerialLines:
    """The times of transfers over serial lines, each client's in the order of time.

    Args:
        tcp: Model of the scenario, whose delays and losses are not used.
        rates: Rates of the links in bit/s.
        slot_s: Length of a slot in s.
    """

    def __init__(self, tcp: TcpModel, rates: LinkRates, slot_s: float):
        self._paths = replace(tcp, impaired=False).fresh()
        turns = self._air(rates.uplink, rates.gradient, slot_s)
        self._air_of = {
            UP: turns,
            DOWN: turns,
            BROADCAST: self._air(rates.uplink, rates.broadcast, slot_s),
        }

    def _air(self, up_bps: Array, down_bps: Array, slot_s: float) -> LinkState:
        slots = Slots(TwoWay(np.stack([up_bps, down_bps])), slot_s)
        return LinkState(slots, given_links(slots.clients), self._paths, None, 0.0)

    def end_s(self, way: int, client: int, size: int, start_s: float) -> float:
        """When a transfer of `size` bytes ends that starts at a time; infinity: never."""
        air = self._air_of[way]
        library().engine_clear(air.address, 0.0)
        return float(library().engine_transfer(air.address, way, client - 1, size, start_s))


def given_links(clients: int) -> Links:
    """Links whose rates are the slots' values."""
    ones = np.ones(clients)
    return Links(Bands(GIVEN, ones), True, ones, ones)
