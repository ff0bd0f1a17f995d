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
duration follows from the integral of the rate.

Acknowledgements are not lost, and elsewhere not late; a round begins with new windows. A message is
complete when the last of its frames has arrived, in any order: the model does not take overtaken
frames for lost, as TCP may (RFC 8985 waits for them, once it has detected some). Losses are drawn
by the scenario's seed, for each round and direction of a link: their mean number is that of the
kernel and of ns-3, but not the individual losses.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.engine.access import LinkRates
from orchestrator.engine.compiling import Array, compiled, inlined, read_only
from orchestrator.engine.links import are_impaired, impairments_of, shape_of, vary_by_slot
from orchestrator.engine.lte import DELIVERY_TTIS, LEARNING_TTIS, REQUEST_TTIS, TTI_S
from orchestrator.engine.plan import transfer_bytes
from orchestrator.engine.radio import ACCESS
from orchestrator.engine.radio_kernel import GivenBands, link_of, links_of
from orchestrator.engine.slot_impairments import (
    BROADCAST,
    DOWN,
    UP,
    SlotImpairments,
    lossless,
    opposite,
)
from orchestrator.engine.slots import EXHAUSTED, Slots, carried, slot_at, slot_bps
from orchestrator.scenario.schema import Scenario
from testbed.core.clock import FILL_S
from testbed.network.shaping import ACKNOWLEDGEMENT_BYTES, INITIAL_FRAMES, Shape
from testbed.transport.framing import ETHERNET_BYTES

CUBIC, RENO, BBR = 0, 1, 2
CONTROLS = {"cubic": CUBIC, "reno": RENO, "bbr": BBR}
"""Congestion controls of the model; others are treated as cubic."""
LEAST_TIMEOUT_S = 0.2
"""Linux's smallest retransmission timeout in addition to the round trip."""
PROBE_S = 0.02
"""Additional delay of a probe: two ticks of a kernel's timers."""
HYSTART_FRAMES, HYSTART_SPACING_S, HYSTART_BEYOND_S = 16, 2e-3, 1e-3
BETA, SCALE = 717 / 1024, 0.4
"""Parameters of cubic, with the values of Linux."""
FIRST_GROWTH = 20.0
"""Largest number of acknowledged frames per frame of window growth, before cubic has had a loss."""
QUEUED_FRAMES = Shape.queue_frames
QUEUE_FRAMES, QUEUE_S = 3.0, 1.2e-3
"""Limit of a sender's own queue in Linux (TCP small queues): the larger of frames and time."""
RECEIVER_FRAMES = 45.0
"""Initial window that a receiver offers: 64 KiB."""
RECEIVER_GROWTH = 3.0
PROBE_RTT_EVERY_S, PROBE_RTT_S, PROBE_RTT_FRAMES = 10.0, 0.2, 4.0
"""Interval, duration and window of bbr's search for the shortest round trip."""
CONNECTED_S = 1.9
"""Time between the opening of a connection and a UAV's first upload, as measured; emulated seconds.
"""
_ONE_FRAME_BITS = 1e18
"""Size in bits of a frame that is larger than any transfer."""
ACKNOWLEDGEMENT_BITS = 8.0 * ACKNOWLEDGEMENT_BYTES
MOST_PACKET_BITS = 8.0 * 64_000
UNACKNOWLEDGED = 4096
"""Largest number of acknowledgements of a transfer that are on their way."""
DEFER_S = 1e-3
"""Time after a packet for which Linux waits for acknowledgements that permit larger packets, in s.
"""
DELAYED_S = 0.04
"""Linux's delay of the acknowledgement of a single frame."""
LATER_FRAMES = 3
"""Number of later frames whose acknowledgements show that a frame was lost (RFC 5681)."""

# The state of a sender.
WINDOW, THRESHOLD, CEILING, ORIGIN, TURN_S, SINCE_S, FRIENDLY, IDLE_FROM_S, OFFERED = range(9)
LOOK_S, LOOKED_S, BAD = range(9, 12)
"""Start of bbr's next search for the shortest round trip, and end of its last one."""
BEGUN = 12
"""Number of transfers that have begun, with a radio that grants resources."""
SHORTEST_S, SMOOTHED_S = 13, 14
"""Shortest and smoothed round trip on a serial line until now; 0: none was measured."""


class Paths(NamedTuple):
    """Links with delay and loss, for compiled code; arrays of [2, K] are for up, then down.

    Arrays of [3, K, S] are by direction and slot; S is 1 where slots do not differ.
    """

    delay_s: Array
    """One-way delay, shape [3, K, S]."""
    jitter_s: Array
    """Standard deviation of the delay, shape [3, K, S]."""
    loss: Array
    """Probability of frame loss in the good state, shape [3, K, S]."""
    airtime: Array
    """Mean number of transmissions of a frame, shape [3, K, S]."""
    slot_s: float
    losses: Array
    """A `Losses` for each link, shape [2, K, 4]."""
    control: int
    frame_bits: float
    initial: float
    offered: float
    """Initial window that a receiver offers, in frames."""
    credit_s: float
    """Burst credit of the sender of a gradient, in emulated seconds."""
    round_trips: int
    """Round trips to open a connection for each transfer."""
    sender: Array
    """State of each sender, shape [2, K, 15]; written to."""
    draws: npt.NDArray[np.uint64]
    """States of the random generators, shape [2, K]; written to."""
    by_grant: bool
    """Whether a radio grants resources; then there is neither jitter nor loss."""
    grant_s: Array
    """Time until a transfer's first grant in each direction, shape [2]."""
    delivery_s: Array
    """Time from the end of its last grant until it has arrived, shape [2]."""
    impaired: bool
    """Whether any link delays or loses frames."""
    receipt_bits: float
    """Bits of a message without content, on serial lines; 0: there are none."""
    packet_s: float
    """Longest packet, in s at the link's rate, on serial lines."""
    held_s: float
    """Time before the broadcast's start at which its first window is handed over to serial lines.
    """
    free_s: Array
    """When each serial line has sent its acknowledgements, shape [2, K]; written to."""
    unacknowledged: Array
    """Arrival times of acknowledgements, the frames that they acknowledge, and when the last of
    these was handed over, shape [3, n]; written to."""
    windows: Array
    """Time for which the first windows of each transfer wait, and their number, shape
    [2, 2, K, n]; written to."""


class Grants(NamedTuple):
    """Delays of a radio that grants resources, in s, for uplink and downlink."""

    grant_s: tuple[float, float]
    """From a transfer's start until the first grant with which it is served at its link's rate."""
    delivery_s: tuple[float, float]
    """From the end of its last grant until its last packet has arrived."""


NO_GRANTS = Grants((0.0, 0.0), (0.0, 0.0))


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
    """Delays of the grants, with a radio that grants resources."""
    impaired: bool = True
    """Whether any link delays or loses frames."""
    receipt_bits: float = 0.0
    """Bits of a message without content where links are serial lines; 0: they are not."""
    packet_s: float = 0.0
    """Longest packet, in s at the link's rate."""
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
        return replace(self, frame_bits=_ONE_FRAME_BITS, grants=self.grants and NO_GRANTS)

    def fresh(self, transfers: int = 0) -> Paths:
        """The state of all links at the beginning of a round.

        Args:
            transfers: Largest number of transfers of a client in one direction.
        """
        sender = np.zeros((*self.delay_s.shape, SMOOTHED_S + 1))
        sender[..., WINDOW] = self.initial
        sender[..., THRESHOLD] = math.inf
        sender[..., OFFERED] = self.offered
        sender[..., IDLE_FROM_S] = math.inf
        sender[..., LOOKED_S] = 1e-9 if self.round else 0.0
        draws = self.seeds ^ np.uint64((self.round + 1) * 0x9E3779B97F4A7C15 & (1 << 64) - 1)
        slots = self.slots
        if slots is None:
            delay_s, jitter_s, loss = (
                np.ascontiguousarray(each[[UP, DOWN, DOWN]][..., None])
                for each in (self.delay_s, self.jitter_s, self.losses[..., 2])
            )
            slots = SlotImpairments(delay_s, jitter_s, loss, np.ones_like(loss))
        return Paths(
            slots.delay_s,
            slots.jitter_s,
            slots.loss,
            slots.airtime,
            self.slot_s,
            self.losses,
            self.control,
            self.frame_bits,
            self.initial,
            self.offered,
            self.credit_s,
            self.round_trips,
            sender,
            draws,
            self.grants is not None,
            np.array((self.grants or NO_GRANTS).grant_s),
            np.array((self.grants or NO_GRANTS).delivery_s),
            self.impaired,
            self.receipt_bits,
            self.packet_s,
            self.held_s,
            np.zeros(self.delay_s.shape),
            np.zeros((3, UNACKNOWLEDGED if self.receipt_bits else 1)),
            np.zeros((2, *self.delay_s.shape, transfers)),
        )


def tcp_model_of(scenario: Scenario) -> TcpModel | None:
    """The TCP model of a scenario; None if its links have neither delay nor loss, and frames and
    acknowledgements take no extra time."""
    if scenario.emulation.air == "ns3":
        return _over_lte(scenario) if scenario.radio.access == "lte" else None
    choices, shape = scenario.emulation, shape_of(scenario)
    # The links of a shared band divide it among those that have something to send.
    serial = shape.serial and not ACCESS[scenario.radio.access].of(scenario).is_shared
    if not are_impaired(scenario) and not serial:
        return None
    ways = impairments_of(scenario)
    dilation = choices.dilation if isinstance(choices.dilation, float) else 1.0
    kept = choices.connection == "kept"
    initial = float(choices.initial_window or INITIAL_FRAMES)

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
        scenario=scenario if vary_by_slot(scenario) else None,
        impaired=are_impaired(scenario),
        receipt_bits=8.0 * transfer_bytes(choices, 0, 0) if serial else 0.0,
        packet_s=0.0 if shape.single_frames else shape.packet_s / dilation,
        held_s=FILL_S / dilation if kept else 0.0,
    )


def _over_lte(scenario: Scenario) -> TcpModel:
    """The model of TCP over ns-3's LTE."""
    choices, shape, count = scenario.emulation, shape_of(scenario), scenario.uavs.count
    request, learning, delivery = (
        np.array(t) for t in (REQUEST_TTIS, LEARNING_TTIS, DELIVERY_TTIS)
    )
    kept = choices.connection == "kept"
    return TcpModel(
        delay_s=np.repeat((request + 1 + delivery)[:, None] * TTI_S, count, axis=1),
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
            tuple(((request + learning) * TTI_S).tolist()), tuple((delivery * TTI_S).tolist())
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
        self._links = links_of(
            GivenBands(False), True, *[read_only(np.ones(len(rates.uplink)))] * 2
        )
        turns = self._slots(rates.uplink, rates.gradient, slot_s)
        self._slots_of = {
            UP: turns,
            DOWN: turns,
            BROADCAST: self._slots(rates.uplink, rates.broadcast, slot_s),
        }

    @staticmethod
    def _slots(up_bps: Array, down_bps: Array, slot_s: float) -> Slots:
        values = read_only(np.stack([up_bps, down_bps]).astype(float))
        return Slots(values, slot_s, read_only(np.empty(0)))

    def end_s(self, way: int, client: int, size: int, start_s: float) -> float:
        """When a transfer of `size` bytes ends that starts at a time; infinity: never."""
        k, slots = client - 1, self._slots_of[way]
        link, back = (link_of(self._links, each, k) for each in (way, opposite(way)))
        return float(delivered(self._paths, slots, way, k, size, start_s, 0, link, back)[0])


def compile_serial_lines(scenario: Scenario) -> None:
    """Compile the functions that `SerialLines` needs, if the scenario's links are serial lines."""
    tcp = tcp_model_of(scenario)
    if tcp is not None and tcp.receipt_bits:
        rates = LinkRates(*[np.full((scenario.uavs.count, 1), 1e6)] * 3)
        SerialLines(tcp, rates, 1.0).end_s(UP, 1, 1000, 0.0)


_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFT_1, _SHIFT_2, _SHIFT_3, _SHIFT_4 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


@inlined
def _slot_of(paths: Paths, time_s: float) -> int:
    """The slot of a moment; 0 where slots do not differ."""
    slots: int = paths.loss.shape[2]
    if slots == 1 or time_s >= slots * paths.slot_s:
        return slots - 1
    return int(time_s / paths.slot_s + 1e-9)


@inlined
def _uniform(paths: Paths, way: int, k: int) -> float:
    """The next random number from 0 to below 1, by splitmix64 (Steele, Lea and Flood 2014)."""
    state = paths.draws[way, k] + _STEP
    paths.draws[way, k] = state
    state = (state ^ (state >> _SHIFT_1)) * _MIX_1
    state = (state ^ (state >> _SHIFT_2)) * _MIX_2
    state = state ^ (state >> _SHIFT_3)
    return float(state >> _SHIFT_4) * 2.0**-53


@inlined
def _is_lost(paths: Paths, way: int, k: int, now: int) -> bool:
    """Whether the next frame of a slot is lost; one step of the link's Gilbert–Elliott process."""
    side = min(way, DOWN)
    to_bad, to_good, _, loss_bad = paths.losses[side, k]
    bad = paths.sender[side, k, BAD] > 0.0
    if to_bad > 0.0 and _uniform(paths, side, k) < (to_good if bad else to_bad):
        paths.sender[side, k, BAD] = 0.0 if bad else 1.0
    chance = loss_bad if bad else paths.loss[way, k, now]
    return bool(chance > 0.0 and _uniform(paths, side, k) < chance)


@inlined
def _normal(paths: Paths, way: int, k: int) -> float:
    """A random number of the normal distribution (Box and Muller 1958)."""
    radius = math.sqrt(-2.0 * math.log(1.0 - _uniform(paths, way, k)))
    return radius * math.cos(2.0 * math.pi * _uniform(paths, way, k))


@inlined
def _arrival(paths: Paths, way: int, k: int, sent_s: float, spacing_s: float) -> float:
    """Arrival time of a frame; it does not overtake those that were sent shortly before."""
    now, side = _slot_of(paths, sent_s), min(way, DOWN)
    jitter_s, delay_s = paths.jitter_s[way, k, now], paths.delay_s[way, k, now]
    if jitter_s == 0.0:
        return float(sent_s + delay_s)
    last_s = sent_s
    for before in range(min(1000, 1 + int(4.0 * jitter_s / max(spacing_s, 1e-6)))):
        late_s = max(0.0, delay_s + jitter_s * _normal(paths, side, k))
        last_s = max(last_s, sent_s - before * spacing_s + late_s)
    return last_s


@compiled
def note(
    paths: Paths, slots: Slots, links: Any, way: int, k: int, time_s: float, slot: int
) -> float:
    """Arrival time of a message of a single frame that is sent in a slot or later."""
    if paths.receipt_bits > 0.0:
        begin_s = max(time_s, paths.free_s[way, k])
        time_s, _ = carried(
            slots, None, way, k, paths.receipt_bits, begin_s, slot, link_of(links, way, k)
        )
        if time_s == EXHAUSTED:
            return EXHAUSTED
    now, end_s = _slot_of(paths, time_s), paths.loss.shape[2] * paths.slot_s
    timeout_s = LEAST_TIMEOUT_S + paths.delay_s[UP, k, now] + paths.delay_s[DOWN, k, now]
    while _is_lost(paths, way, k, now):
        time_s += timeout_s
        timeout_s *= 2.0
        now = _slot_of(paths, time_s)
        if time_s >= end_s and paths.loss.shape[2] > 1:
            return EXHAUSTED
    return _arrival(paths, way, k, time_s, 1.0)


@inlined
def _after_idle(paths: Paths, way: int, k: int, time_s: float, timeout_s: float) -> None:
    sender = paths.sender[way, k]
    idle_s = time_s - sender[IDLE_FROM_S]
    if paths.control == BBR or idle_s <= timeout_s:
        return
    sender[THRESHOLD] = max(sender[THRESHOLD], 0.75 * sender[WINDOW])
    while idle_s > timeout_s and sender[WINDOW] > paths.initial:
        sender[WINDOW] = max(paths.initial, sender[WINDOW] / 2)
        idle_s -= timeout_s


@inlined
def _postpone_probe(paths: Paths, way: int, k: int, time_s: float) -> None:
    """Postpone bbr's search for the shortest round trip when a transfer begins."""
    sender = paths.sender[way, k]
    if paths.round_trips > 0:
        sender[LOOK_S] = time_s + PROBE_RTT_EVERY_S
    elif sender[LOOK_S] == 0.0 and sender[LOOKED_S] == 0.0:
        sender[LOOK_S] = time_s + PROBE_RTT_EVERY_S - CONNECTED_S
    elif sender[LOOKED_S] > 0.0 or time_s >= sender[LOOK_S]:
        sender[LOOK_S], sender[LOOKED_S] = time_s + PROBE_RTT_EVERY_S, time_s


@inlined
def _probes_round_trip(paths: Paths, way: int, k: int, start_s: float, trip_s: float) -> bool:
    """Whether bbr keeps its window small in a flight, to measure the shortest round trip."""
    sender = paths.sender[way, k]
    if start_s >= sender[LOOK_S]:
        sender[LOOKED_S] = start_s + trip_s + PROBE_RTT_S
        sender[LOOK_S] = sender[LOOKED_S] + PROBE_RTT_EVERY_S
    return bool(start_s < sender[LOOKED_S])


@inlined
def _shrink(paths: Paths, way: int, k: int) -> None:
    """Reduce the window after a loss, in whole frames."""
    sender = paths.sender[way, k]
    window = math.floor(sender[WINDOW])
    if paths.control == BBR:
        return
    if paths.control == RENO:
        sender[WINDOW] = max(2, window // 2)
    else:
        ceiling = window
        if window < sender[CEILING]:
            ceiling = math.floor(window * (1 + BETA) / 2)
        sender[CEILING] = ceiling
        sender[WINDOW] = max(2, math.floor(window * BETA))
    sender[THRESHOLD] = sender[WINDOW]
    sender[SINCE_S] = 0.0


@inlined
def _recovery(
    paths: Paths, way: int, k: int, frames: int, first: int, grown: float
) -> tuple[int, float]:
    """Shrink the window for a flight of `frames` frames, whose frame `first` is the first loss to
    shrink it.

    Args:
        paths: Links of the round.
        way: Direction of the link.
        k: Client, from 0.
        frames: Number of frames of the flight.
        first: Position of the lost frame.
        grown: Frames by which the window has grown since the flight left.

    Returns:
        Frames of the next flight that leave before the loss is detected, and by how many that
        flight is larger than the window.
    """
    sender = paths.sender[way, k]
    before = sender[WINDOW]
    _shrink(paths, way, k)
    if paths.control == BBR:
        return 0, 0.0
    shows = min(frames, first + 1 + LATER_FRAMES)
    # The last acknowledgement that shows the loss releases the retransmission.
    left = max(first, shows - 2) + grown
    flight = left + 1 + sender[WINDOW] / before * (frames - shows)
    return int(left), max(0.0, flight - sender[WINDOW])


@inlined
def _grow(
    paths: Paths, way: int, k: int, frames: int, pipe: float, trip_s: float, frame_s: float
) -> None:
    """Grow the window after the acknowledgement of a flight of this many frames."""
    sender = paths.sender[way, k]
    window = sender[WINDOW]
    if paths.control == BBR:
        sender[WINDOW] = min(window + frames, 2 * pipe)
        return
    if window < sender[THRESHOLD]:
        grown = min(window + frames, max(window, 2 * pipe))
        train = (trip_s + HYSTART_BEYOND_S) / frame_s
        if (
            paths.control == CUBIC
            and window >= HYSTART_FRAMES
            and frame_s <= HYSTART_SPACING_S
            and frames > train
        ):
            grown = min(grown, window + train)
            sender[THRESHOLD] = grown
        sender[WINDOW] = min(grown, max(window, sender[THRESHOLD]))
        return
    if window > pipe:
        return  # The window does not limit the sender.
    if paths.control == RENO:
        sender[WINDOW] = window + frames / window
        return
    if sender[SINCE_S] == 0.0:
        sender[ORIGIN] = max(window, sender[CEILING])
        sender[TURN_S] = ((sender[ORIGIN] - window) / SCALE) ** (1 / 3)
        sender[FRIENDLY] = window
    sender[SINCE_S] += trip_s * min(1.0, frames / window)
    ahead_s = sender[SINCE_S] + trip_s - sender[TURN_S]
    target = sender[ORIGIN] + int(SCALE * ahead_s**3)
    each = window / (target - window) if target > window else 100 * window
    if sender[CEILING] == 0.0:
        each = min(each, FIRST_GROWTH)
    friendly_each = sender[FRIENDLY] * (1 + BETA) / (3 * (1 - BETA))
    sender[FRIENDLY] += frames / friendly_each
    if sender[FRIENDLY] > window:
        each = min(each, window / (sender[FRIENDLY] - window))
    sender[WINDOW] = window + frames / max(2.0, each)


@inlined
def served_from(paths: Paths, way: int, k: int, size: int, time_s: float, bps: float) -> float:
    """When a transfer of `size` bytes that begins at a time is served, where a radio grants it.

    From then on, its link's rate limits it, which is `bps` at first.
    """
    side = min(way, DOWN)
    sender = paths.sender[side, k]
    back_s = paths.delay_s[UP, k, 0] + paths.delay_s[DOWN, k, 0]
    _after_idle(paths, side, k, time_s, back_s + LEAST_TIMEOUT_S)
    windows_s, number = 0.0, 0
    if paths.round_trips > 0:
        sender[WINDOW] = paths.initial
        windows_s = paths.round_trips * back_s
    if bps > 0.0:
        frame_s = paths.frame_bits / bps
        trip_s = back_s + frame_s
        left, window = 8.0 * size / paths.frame_bits, sender[WINDOW]
        while window < left and window * frame_s < trip_s:
            windows_s += trip_s - window * frame_s
            number += 1
            left -= window
            window *= 2.0
        sender[WINDOW] = max(sender[WINDOW], min(window + left, 2.0 * trip_s / frame_s))
    place = int(sender[BEGUN])
    if place < paths.windows.shape[3]:
        paths.windows[0, side, k, place] = windows_s
        paths.windows[1, side, k, place] = number
    sender[BEGUN] += 1.0
    return float(time_s + paths.grant_s[side] + windows_s)


@inlined
def arrival_of(paths: Paths, way: int, k: int, served_s: float) -> float:
    """When a transfer has arrived that was served until a time, where a radio grants it."""
    side = min(way, DOWN)
    paths.sender[side, k, IDLE_FROM_S] = served_s
    return float(served_s + paths.delivery_s[side])


@inlined
def _packet_frames(paths: Paths, bps: float, back_bps: float) -> int:
    """See `testbed.network.shaping.Shape.packet_frames`."""
    frames = math.floor(paths.packet_s * bps / paths.frame_bits)
    if paths.packet_s > 0.0 and back_bps > 0.0:
        needed = 2.0 * ACKNOWLEDGEMENT_BITS * bps / back_bps / paths.frame_bits
        frames = max(frames, min(math.ceil(needed), QUEUED_FRAMES // 4))
    return int(max(1, min(frames, MOST_PACKET_BITS // paths.frame_bits)))


@inlined
def _acknowledged_in_time(
    paths: Paths, slots: Slots, way: int, k: int, first: int, last: int, link: Any, back: Any
) -> bool:
    """Whether acknowledgements in these slots surely arrive before a sender needs them."""
    for slot in range(first, min(last + 1, slots.values.shape[2])):
        bps = slot_bps(slots, link, way, k, slot)
        back_bps = slot_bps(slots, back, opposite(way), k, slot)
        # The first packets are halves of the initial window at most.
        frames = min(_packet_frames(paths, bps, back_bps), max(1.0, paths.initial // 2))
        packet_bits = paths.frame_bits * frames
        if 2.0 * ACKNOWLEDGEMENT_BITS * bps > packet_bits * back_bps:
            return False
    return True


@inlined
def _clocked(
    paths: Paths,
    slots: Slots,
    way: int,
    k: int,
    size: int,
    time_s: float,
    slot: int,
    link: Any,
    back: Any,
) -> tuple[float, int]:
    """As `delivered`, for a serial line whose acknowledgements may be late."""
    side, other = min(way, DOWN), opposite(way)
    sender, waiting = paths.sender[side, k], paths.unacknowledged
    _after_idle(paths, side, k, time_s, LEAST_TIMEOUT_S)
    left = max(1, math.ceil(8.0 * size / paths.frame_bits - 1e-9))
    each = 8.0 * size / left
    flying, since, most = 0, 0, 0  # frames in flight, not acknowledged yet, and most in flight
    first, last = 0, 0  # acknowledgements on their way: those from first to before last
    now_s, left_s, back_slot = time_s, max(time_s, paths.free_s[side, k]), slot
    wrote_s = -math.inf  # when the last packet was handed over
    # A round trip of HyStart ends with the acknowledgement of what had been sent when it began.
    turn_s, train_s, turn_end, turn_frames = -1.0, -1.0, 0, 0
    while left > 0:
        here = min(slot_at(slots, left_s, slot), slots.values.shape[2] - 1)
        bps, back_bps = slot_bps(slots, link, way, k, here), slot_bps(slots, back, other, k, here)
        queue_s = QUEUE_S
        if bps > 0.0:
            queue_s = max(QUEUE_S, QUEUE_FRAMES * paths.frame_bits / bps)
            if back_bps > 0.0:  # Receipts have measured it, at the latest.
                trip_s = paths.frame_bits / bps + ACKNOWLEDGEMENT_BITS / back_bps
                if sender[SHORTEST_S] == 0.0 or trip_s < sender[SHORTEST_S]:
                    sender[SHORTEST_S] = trip_s
        now_s = max(now_s, left_s - queue_s)
        while first < last and waiting[0, first % UNACKNOWLEDGED] <= now_s:
            at_s, frames = waiting[0, first % UNACKNOWLEDGED], waiting[1, first % UNACKNOWLEDGED]
            trip_s = at_s - waiting[2, first % UNACKNOWLEDGED]
            if first >= turn_end:  # a new round trip
                sender[OFFERED] = max(sender[OFFERED], RECEIVER_GROWTH * turn_frames)
                turn_s, train_s, turn_end, turn_frames = at_s, at_s, last, 0
            part = 8.0 if sender[SMOOTHED_S] > 0.0 else 1.0  # RFC 6298
            sender[SMOOTHED_S] += (trip_s - sender[SMOOTHED_S]) / part
            turn_frames += int(frames)
            most = max(most, flying)
            flying -= int(frames)
            in_slow_start = sender[WINDOW] < sender[THRESHOLD]
            looks = paths.control == CUBIC and sender[THRESHOLD] == math.inf
            if looks and sender[WINDOW] >= HYSTART_FRAMES and at_s - train_s <= HYSTART_SPACING_S:
                train_s = at_s
                # Without pacing, half a round trip is enough.
                if at_s - turn_s > 0.5 * (sender[SHORTEST_S] + HYSTART_BEYOND_S):
                    sender[THRESHOLD] = sender[WINDOW]
            if in_slow_start and sender[THRESHOLD] > sender[WINDOW]:
                if sender[WINDOW] < 2.0 * most:
                    sender[WINDOW] = min(sender[WINDOW] + frames, sender[THRESHOLD])
            elif flying + frames + 1 >= int(sender[WINDOW]):
                sender[WINDOW] += frames / FIRST_GROWTH
            first += 1
        window = int(min(sender[WINDOW], sender[OFFERED]))
        wanted = min(_packet_frames(paths, bps, back_bps), left)
        frames_now = min(wanted, window - flying, max(1, window // 2))
        defers = frames_now < wanted and 3 * frames_now < window and first < last
        if defers:  # An acknowledgement is expected soon, and the last packet left recently.
            age_s = now_s - waiting[2, first % UNACKNOWLEDGED]
            defers = now_s - wrote_s <= DEFER_S and age_s >= 0.5 * sender[SMOOTHED_S]
        if frames_now <= 0 or defers or last - first == UNACKNOWLEDGED:
            if first == last:  # The last frame is not acknowledged by itself.
                now_s, flying, since = left_s + DELAYED_S, 0, 0
            else:
                now_s = max(now_s, waiting[0, first % UNACKNOWLEDGED])
                if now_s == EXHAUSTED:
                    return EXHAUSTED, slot
            continue
        begin_s = max(now_s, left_s)
        left_s, slot = carried(slots, None, way, k, frames_now * each, begin_s, slot, link)
        if left_s == EXHAUSTED:
            return EXHAUSTED, slot
        wrote_s = now_s
        flying += frames_now
        left -= frames_now
        since += frames_now
        if since >= 2 or left == 0:
            begin_s = max(left_s, paths.free_s[other, k])
            back_s, back_slot = carried(
                slots, None, other, k, ACKNOWLEDGEMENT_BITS, begin_s, back_slot, back
            )
            paths.free_s[other, k] = back_s
            place = last % UNACKNOWLEDGED
            waiting[0, place], waiting[1, place] = back_s, since
            # A frame that a line has held back until now has waited in its queue.
            waiting[2, place] = now_s - (paths.held_s if way == BROADCAST and first == 0 else 0.0)
            last += 1
            since = 0
    sender[IDLE_FROM_S] = left_s
    return left_s, slot


@compiled
def delivered(
    paths: Paths,
    slots: Slots,
    way: int,
    k: int,
    size: int,
    time_s: float,
    slot: int,
    link: Any,
    back: Any,
) -> tuple[float, int]:
    """Arrival time of the last byte of a transfer, and the slot in which it was sent.

    `back` is the link of the other direction, which carries the acknowledgements.
    """
    if paths.receipt_bits > 0.0 and not paths.impaired:
        for _ in range(paths.round_trips):
            time_s, _ = carried(
                slots, None, opposite(way), k, ACKNOWLEDGEMENT_BITS, time_s, slot, back
            )
        if paths.round_trips > 0:
            paths.sender[min(way, DOWN), k, WINDOW] = paths.initial
        begin_s = max(time_s, paths.free_s[min(way, DOWN), k])
        begin_slot = slot_at(slots, begin_s, slot)
        end_s, end_slot = carried(slots, None, way, k, 8.0 * size, begin_s, slot, link)
        if end_s == EXHAUSTED:
            return end_s, end_slot
        if _acknowledged_in_time(paths, slots, way, k, begin_slot, end_slot, link, back):
            other = opposite(way)
            paths.free_s[other, k], _ = carried(
                slots, None, other, k, ACKNOWLEDGEMENT_BITS, end_s, end_slot, back
            )
            return end_s, end_slot
        return _clocked(paths, slots, way, k, size, time_s, slot, link, back)
    if paths.by_grant:
        slot, bps = slot_at(slots, time_s, slot), 0.0
        if slot < slots.values.shape[2]:
            bps = slot_bps(slots, link, way, k, slot)
        served_s = served_from(paths, way, k, size, time_s, bps)
        end_s, slot = carried(slots, None, way, k, 8.0 * size, served_s, slot, link)
        return arrival_of(paths, way, k, end_s), slot
    side, now, other = min(way, DOWN), _slot_of(paths, time_s), opposite(way)
    sender = paths.sender[side, k]
    back_s = paths.delay_s[UP, k, now] + paths.delay_s[DOWN, k, now]
    _after_idle(paths, side, k, time_s, back_s + LEAST_TIMEOUT_S)
    if paths.round_trips > 0:
        sender[WINDOW], sender[THRESHOLD], sender[OFFERED] = (
            paths.initial,
            math.inf,
            paths.offered,
        )
        sender[CEILING], sender[SINCE_S] = 0.0, 0.0
        time_s += paths.round_trips * back_s
    if paths.control == BBR:
        _postpone_probe(paths, side, k, time_s)
    bits = 8.0 * size
    left = max(1, math.ceil(bits / paths.frame_bits - 1e-9))
    each = bits / left
    left_s, ready_s, before, frame_s = time_s, time_s, 0, 0.0
    recovers, timeout_s, again, point, early = False, LEAST_TIMEOUT_S, 0, 0, 0.0
    conserves = False
    while left > 0:
        start_s = max(left_s, ready_s)
        now = _slot_of(paths, start_s)
        back_s = paths.delay_s[UP, k, now] + paths.delay_s[DOWN, k, now]
        first_s, _ = carried(slots, paths.airtime, way, k, each, start_s, slot, link)
        if first_s == EXHAUSTED:
            return EXHAUSTED, slot
        frame_s = max(first_s - start_s, 1e-9)
        trip_s = back_s + frame_s
        pipe = trip_s / frame_s + max(QUEUE_FRAMES, QUEUE_S / frame_s)
        allowed = min(min(sender[WINDOW] + early, sender[OFFERED]), pipe)
        if paths.control == BBR and _probes_round_trip(paths, side, k, start_s, trip_s):
            allowed = min(allowed, PROBE_RTT_FRAMES)
        frames = min(left, max(1, int(allowed)))
        left_s, slot = carried(slots, paths.airtime, way, k, frames * each, start_s, slot, link)
        if left_s == EXHAUSTED:
            return EXHAUSTED, slot
        lost, tail, first, last_lost, lost_twice, shown = 0, 0, frames, 0, 0, 0
        for place in range(frames):
            if _is_lost(paths, way, k, now):
                lost, tail, last_lost = lost + 1, tail + 1, place
                if first == frames and place >= point:
                    first = place
                lost_twice += place < again
            else:
                tail = 0
                shown += lost_twice > 0
        all_sent = frames == left
        left -= frames - lost
        sender[OFFERED] = max(sender[OFFERED], RECEIVER_GROWTH * before)
        before = frames
        ready_s = first_s + back_s
        if paths.receipt_bits > 0.0:
            acknowledged_s, _ = carried(
                slots, None, other, k, ACKNOWLEDGEMENT_BITS, first_s, slot, back
            )
            ready_s = acknowledged_s + back_s
        held = sender[WINDOW]
        if paths.control == BBR:
            conserves = lost > 0 and not conserves
            if not conserves:
                _grow(paths, side, k, frames, pipe, trip_s, frame_s)
        elif first > point and (lost == 0 or first < frames):
            _grow(paths, side, k, first - point, pipe, trip_s, frame_s)
        grown = sender[WINDOW] - held
        again, point, early = lost, 0, 0.0
        if lost == 0:
            recovers, timeout_s = False, LEAST_TIMEOUT_S
            continue
        if lost_twice > 0 and shown < LATER_FRAMES and paths.control != BBR:
            ready_s = first_s + back_s + timeout_s
            sender[WINDOW], timeout_s, recovers = 1.0, 2.0 * timeout_s, True
            continue
        if first < frames:
            point, early = _recovery(paths, side, k, frames, first, grown)
            point = max(point, again)
        if lost == frames or (all_sent and tail > 0):  # No later frame shows the loss.
            if recovers or tail == 1:
                ready_s = left_s + back_s + trip_s + timeout_s
                timeout_s *= 2.0
                if recovers and paths.control != BBR:
                    sender[WINDOW], early = 1.0, 0.0
            else:
                ready_s = left_s + back_s + 3 * trip_s + PROBE_S
        elif all_sent:
            ready_s = start_s + (last_lost + 1) * (left_s - start_s) / frames
            ready_s += back_s + min(3, frames - 1 - last_lost) * frame_s
        recovers = True
    sender[IDLE_FROM_S] = left_s
    return _arrival(paths, way, k, left_s, frame_s), slot
