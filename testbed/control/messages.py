# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""All that orchestrator, nodes and injector say to each other: a frozen dataclass each.

A run, seen from a node::

    SetUp… ▶ (BS) Accept ▶ ◀ Listening  (UAV) Connect ▶  ◀ Connected
             ProbeLinks ▶ ◀ Probed     CountFrames ▶ ◀ FramesSent
    per round: ServeRound or JoinRound ▶ ◀ Ready  Begin ▶  (BS) ◀ Started
               LoseClients ▶  ◀ StepsSoFar, Progress, Abandoned  ◀ RoundReport
    Save ▶ ◀ Saved  Restore ▶ ◀ Restored  Evaluate ▶ ◀ Evaluated  Stop ▶

`testbed.control.codec` writes and checks them. Times are emulated seconds where nothing else is
said; clients and iterations count from 1, rounds from 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from testbed.control.codec import Json, Kinds
from testbed.core.clock import EmulatedClock
from testbed.core.faults import BsFaults, UavFaults
from testbed.core.impairment import Impairment
from testbed.core.orders import Ahead, Prospects
from testbed.core.paradigm import Paradigm
from testbed.system.machine import Machine
from testbed.transport.accounts import Counts
from testbed.transport.interface import TransportSettings
from testbed.transport.wire import RoundSizes

Span = tuple[int, int, str, float, float, int]
"""Client, iteration, step, start_s, end_s, bytes: one row of a timeline."""
Received = tuple[int, int, float, float]
"""Client, place among its link's probes, when it started and ended."""

# What messages are made of.


@dataclass(frozen=True)
class Probe:
    """One transfer of a calibration."""

    client: int
    """Whose link."""
    upward: bool
    start_s: float
    """When it is due."""
    payload_bytes: int


@dataclass(frozen=True)
class RoundTerms:
    """What a UAV is told of a round."""

    round: int
    split: int
    """u_k."""
    iterations: int
    sizes: RoundSizes
    modelled: bool
    """Whether computing takes what the profile says, rather than what it takes."""
    updates: int = 0
    """Of an asynchronous round, by all UAVs together; `iterations` are those of one. 0: it is a
    synchronous one."""


@dataclass(frozen=True)
class FirstGradients:
    """τ'_SG(0) of the first lag: what a gradient takes at the rate of a slot."""

    first_slot: int
    slot_s: float
    seconds: tuple[tuple[float, ...], ...]
    """A row a client, an entry a slot from the first on."""

    def at(self, client: int, time_s: float) -> float:
        """Of a client whose smashed data arrive then."""
        row = self.seconds[client - 1]
        slot = int(time_s / self.slot_s) - self.first_slot
        return row[min(max(slot, 0), len(row) - 1)]


@dataclass(frozen=True)
class RoundAhead:
    """What a service order may know that is none of the paper's."""

    prospects: Prospects
    first_slot: int
    slot_s: float
    uplink_bps: tuple[tuple[float, ...], ...]
    """A row a client, an entry a slot from the first on."""
    downlink_bps: tuple[tuple[float, ...], ...]
    """Of gradients, likewise."""

    def at(self, client: int, iteration: int, time_s: float) -> Ahead:
        """Of a client that is enqueued then."""
        up, down = self.uplink_bps[client - 1], self.downlink_bps[client - 1]
        slot = min(max(int(time_s / self.slot_s) - self.first_slot, 0), len(up) - 1)
        return self.prospects.ahead(client, iteration, up[slot], down[slot])


@dataclass(frozen=True)
class LostClient:
    """A client that the base station has given up."""

    client: int
    lost_s: float
    refused: str
    """What was wrong with what it sent; nothing, where it was silence."""


@dataclass(frozen=True)
class LearnedBatch:
    """What the server learned from one batch."""

    client: int
    iteration: int
    loss: float
    accuracy: float


@dataclass(frozen=True)
class Direction:
    """What one direction of a link has carried since the world began."""

    sent_bytes: int
    """As the shaper charged them, frame by frame: with headers, or payload alone."""
    sent_frames: int
    """Each frame of a packet of several counts."""
    dropped_frames: int
    backlog_bytes: int
    device_sent_bytes: int
    """As the device counts, which does so by packet: headers of its first frame alone."""
    device_sent_frames: int
    """Packets, of one or more frames."""
    lost_frames: int = 0
    """By the air, where it delays or loses frames, since it does."""
    arrived_frames: int = 0
    """The others, as many as were handled one by one."""
    late_frames: int = 0
    """Of these, more than a millisecond later than they were due; where no netem delays them."""


# To nodes.


@dataclass(frozen=True)
class SetUpBaseStation:
    """You are the base station."""

    settings: TransportSettings
    credit_s: float
    """See `EmulatedClock.depart`; real seconds."""
    learning: Json | None
    """`workloads.learning.real.Settings`; None: nothing is learned."""
    paradigm: Paradigm


@dataclass(frozen=True)
class SetUpUav:
    """You are the UAV of that number."""

    client: int
    settings: TransportSettings
    credit_s: float
    """See `EmulatedClock.depart`; real seconds."""
    learning: Json | None
    """`workloads.learning.real.Settings`; None: nothing is learned."""


@dataclass(frozen=True)
class Accept:
    """Listen there, until these have come; those of them who are connected are so no longer."""

    clients: tuple[int, ...]
    address: tuple[str, int]


@dataclass(frozen=True)
class Connect:
    """Connect to the base station there, and no longer where you were."""

    server: tuple[str, int]


@dataclass(frozen=True)
class CountFrames:
    """Say what you have sent since you were asked last; answered by `FramesSent`."""


@dataclass(frozen=True)
class ProbeLinks:
    """Send and receive these before the rounds; answered by `Probed`."""

    probes: tuple[Probe, ...]
    clock: EmulatedClock


@dataclass(frozen=True)
class ServeRound:
    """Get ready to be the base station of a round."""

    terms: RoundTerms
    clients: tuple[int, ...]
    """Who takes part."""
    s_s: tuple[float, ...]
    """What the server's computing takes for a batch of each client of the run."""
    first_gradients: FirstGradients | None
    """None: no order asks for them."""
    live: bool
    """Whether to send `Progress`."""
    faults: BsFaults | None
    each: tuple[RoundTerms, ...] = ()
    """The terms of every client of the run, where their split points differ; else empty."""
    held: bool = False
    """Whether the broadcast is held back by the links until it is due."""
    ahead: RoundAhead | None = None
    """None: the order is one of the paper's."""
    may_lose: bool = False
    """Whether clients live on other machines: `LoseClients` may come until the round is over."""

    def of(self, client: int) -> RoundTerms:
        """What that client is told."""
        return self.each[client - 1] if self.each else self.terms


@dataclass(frozen=True)
class JoinRound:
    """Get ready to be a client of a round."""

    terms: RoundTerms
    cf_s: float
    cb_s: float
    backward_ratio: float
    """ς: τ_CB(0) = ς τ_CF(1)."""
    faults: UavFaults | None
    tells: bool = False
    """Whether to tell its steps as they begin and end: its machine may be lost."""


@dataclass(frozen=True)
class Begin:
    """The round begins when this clock says so."""

    clock: EmulatedClock


@dataclass(frozen=True)
class LoseClients:
    """To the base station, in mid-round: machines of clients are gone."""

    clients: tuple[int, ...]
    lost_s: float
    """When they count as lost, if they have not finished."""
    drops: bool
    """See `testbed.core.faults.BsFaults`."""


@dataclass(frozen=True)
class Save:
    """Give the global state; answered by `Saved`."""


@dataclass(frozen=True)
class Restore:
    """Go on from this global state."""

    state: bytes


@dataclass(frozen=True)
class Evaluate:
    """Hold the global state against held-out data; answered by `Evaluated`."""


@dataclass(frozen=True)
class AskTraces:
    """Say what QUIC connections have done; answered by `Traces`. Nothing is logged afterwards."""


@dataclass(frozen=True)
class Stop:
    """End; to the injector, too."""


# From nodes.


@dataclass(frozen=True)
class Listening:
    """UAVs may connect."""


@dataclass(frozen=True)
class Connected:
    """The links are there."""


@dataclass(frozen=True)
class FramesSent:
    """The books of frames that were sent, by client."""

    frames: tuple[tuple[int, Counts], ...]


@dataclass(frozen=True)
class Probed:
    """What was received of the probes."""

    received: tuple[Received, ...]


@dataclass(frozen=True)
class Ready:
    """The round may begin."""


@dataclass(frozen=True)
class Started:
    """All clients have the broadcast; the links may go over to gradients."""


@dataclass(frozen=True)
class Progress:
    """How far the base station's round is, for who watches it live."""

    steps: tuple[Span, ...]
    """Those that ended since the last time."""
    waiting: Mapping[str, tuple[int, ...]]
    """Clients that wait for each of the server's resources, by their turn."""


@dataclass(frozen=True)
class StepsSoFar:
    """What a UAV that will crash, or may be lost, has done so far."""

    spans: tuple[Span, ...]
    going: tuple[Span, ...]
    """What goes on; it ends at infinity."""


@dataclass(frozen=True)
class Abandoned:
    """The round may not go on without a client that was lost."""

    loss: LostClient


@dataclass(frozen=True)
class RoundReport:
    """The round is over: what a node noted of it."""

    spans: tuple[Span, ...]
    going: tuple[Span, ...]
    """What went on when it was over, or its client lost; it ends at infinity."""
    overruns_s: tuple[float, ...]
    """How much later than modelled each computing step ended."""
    notes: Json
    """What the work observed."""
    cpu_s: float
    """Real seconds of the processor."""


@dataclass(frozen=True)
class BaseStationReport(RoundReport):
    """The base station's."""

    lost: tuple[LostClient, ...]
    batches: tuple[LearnedBatch, ...]


@dataclass(frozen=True)
class Saved:
    """The global state as a safetensors file; nothing where nothing is learned."""

    state: bytes


@dataclass(frozen=True)
class Restored:
    """The next round goes on from that state."""


@dataclass(frozen=True)
class Evaluated:
    """The global state on held-out data."""

    loss: float
    accuracy: float
    samples: int


@dataclass(frozen=True)
class Traces:
    """What QUIC connections of the node did: see `testbed.transport.qlog`."""

    connections: tuple[tuple[str, int], ...]
    """What both sides call each, and its bytes of `compressed`."""
    compressed: bytes


@dataclass(frozen=True)
class Failed:
    """A node's, or the injector's, last words."""

    reason: str
    wrong_input: bool = False
    """Whether it is the user's input that is wrong; the reason names the field."""


# To the injector.


@dataclass(frozen=True)
class SetRates:
    """The links' rates from a slot on."""

    first: int
    variants: int
    """How many rows for the downlinks there are."""
    warn_slots: int
    """Say `Low` when no more slots than that are left."""
    table: bytes
    """Float64 [slots, 1 + variants, K], bit/s: uplinks, then each variant of the downlinks."""


@dataclass(frozen=True)
class Epoch:
    """Set rates by this clock, from now on; answered by `EpochBegun`."""

    clock: EmulatedClock
    slot_s: float
    held: tuple[int, ...] = ()
    """Size in bytes of the last frame of the transfer that starts on each downlink with the clock;
    their frames are held until then. Empty: no transfer is known to start then."""


@dataclass(frozen=True)
class Phase:
    """Switch the downlinks to that variant; answered by `PhaseSet`."""

    index: int


@dataclass(frozen=True)
class Pause:
    """Leave the rates as they are."""


@dataclass(frozen=True)
class Impair:
    """Let the air delay and lose frames from now on; answered by `Impaired`."""

    uplinks: tuple[Impairment, ...]
    downlinks: tuple[Impairment, ...]


@dataclass(frozen=True)
class SetAir:
    """What the air does to frames from a slot on, where slots differ; nothing before `Impair`."""

    first: int
    variants: int
    """How many rows for the downlinks there are, as in `SetRates`."""
    table: bytes
    """Float64 [slots, 1 + variants, K, 3], uplinks, then each variant of the downlinks: delay and
    jitter in real seconds, probability of a frame to be lost."""


@dataclass(frozen=True)
class StartCapture:
    """Write what goes over each link to a file; answered by `Capturing`."""

    files: tuple[str, ...]
    headers_only: bool


@dataclass(frozen=True)
class EndCapture:
    """End that; answered by `Captured`."""

    until_ns: int
    """Unix time of the last frame that counts."""


@dataclass(frozen=True)
class AskCounters:
    """Say what you did, and what the links carried; answered by `Counters`."""


@dataclass(frozen=True)
class AskMachine:
    """Say what your machine has done until now; answered by `MachineNow`."""


@dataclass(frozen=True)
class MachineNow:
    """What the injector's machine, and the injector itself, have done until now."""

    machine: Machine
    boot: str
    """See `testbed.system.machine.boot_id`."""


@dataclass(frozen=True)
class Watch:
    """Count at every slot boundary from now on, for `AskSamples`."""


@dataclass(frozen=True)
class AskSamples:
    """Say what was counted since this was asked last; answered by `Samples`."""


# From the injector.


@dataclass(frozen=True)
class Wired:
    """All links are made."""


@dataclass(frozen=True)
class EpochBegun:
    """The rates of the first slot are set."""

    done_ns: int
    """Monotonic time at which the kernel had done so."""
    missing: bool
    """Whether there were none."""


@dataclass(frozen=True)
class PhaseSet:
    """The downlinks have been switched."""

    done_ns: int
    """Monotonic time at which the kernel had done so."""


@dataclass(frozen=True)
class Impaired:
    """From now on."""


@dataclass(frozen=True)
class Low:
    """Few rates are left."""

    end: int
    """The first slot without."""


@dataclass(frozen=True)
class Exhausted:
    """None are left: the last ones stay."""

    slot: int


@dataclass(frozen=True)
class Capturing:
    """From now on."""


@dataclass(frozen=True)
class Captured:
    """What a capture held."""

    frames: int
    missed_packets: int
    """Packets for which the ring had no room."""

    def __str__(self) -> str:
        missed = f", {self.missed_packets} packets missed" if self.missed_packets else ""
        return f"{self.frames} frames{missed}"


@dataclass(frozen=True)
class Counters:
    """See `testbed.network.injector.Report`."""

    asked_ns: int
    links: tuple[tuple[Direction, Direction], ...]
    """Up and down of each link."""
    scheduling: str
    below_floor: int
    exhausted: int
    slots: bytes
    """Int64 [n, 4]: slot, when it was due, when it was set (monotonic ns), changes. Behind them,
    where frames are to be lost, [`of_air`, 1 + 6K]: slot, and as it began, of each link and way:
    frames that the air had lost, those that had arrived, and the share to be lost from then on, of
    2³²."""
    of_air: int = 0


@dataclass(frozen=True)
class Samples:
    """See `testbed.network.injector.Samples`."""

    exhausted: int
    table: bytes
    """Int64 [n, 4 + 8K]."""


NodeOrder = (
    SetUpBaseStation
    | SetUpUav
    | Accept
    | Connect
    | CountFrames
    | ProbeLinks
    | ServeRound
    | JoinRound
    | Begin
    | LoseClients
    | Save
    | Restore
    | Evaluate
    | AskTraces
    | Stop
)
NodeReport = (
    Listening
    | Connected
    | FramesSent
    | Probed
    | Ready
    | Started
    | Progress
    | StepsSoFar
    | Abandoned
    | RoundReport
    | BaseStationReport
    | Saved
    | Restored
    | Evaluated
    | Traces
    | Failed
)
InjectorOrder = (
    SetRates
    | Epoch
    | Phase
    | Pause
    | Impair
    | SetAir
    | StartCapture
    | EndCapture
    | AskCounters
    | AskMachine
    | Watch
    | AskSamples
    | Stop
)
InjectorReport = (
    Wired
    | EpochBegun
    | PhaseSet
    | Impaired
    | Low
    | Exhausted
    | Capturing
    | Captured
    | Counters
    | MachineNow
    | Samples
    | Failed
)
TO_NODE: Kinds[NodeOrder] = Kinds(NodeOrder)
FROM_NODE: Kinds[NodeReport] = Kinds(NodeReport)
TO_INJECTOR: Kinds[InjectorOrder] = Kinds(InjectorOrder)
FROM_INJECTOR: Kinds[InjectorReport] = Kinds(InjectorReport)
