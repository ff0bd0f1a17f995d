# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""All messages between orchestrator, nodes and injector: one frozen dataclass per type.

A run, seen from a node::

    SetUp… ▶ (BS) Accept ▶ ◀ Listening  (UAV) Connect ▶  ◀ Connected
             ProbeLinks ▶ ◀ Probed     CountFrames ▶ ◀ FramesSent
    per round: ServeRound or JoinRound ▶ ◀ Ready  Begin ▶  (BS) ◀ Started, SwitchDownlinks
               LoseClients ▶  ◀ StepsSoFar, Progress, Abandoned  ◀ RoundReport
    Save ▶ ◀ Saved  Restore ▶ ◀ Restored  Evaluate ▶ ◀ Evaluated  Stop ▶

`testbed.control.codec` encodes and checks them. Times are emulated seconds unless stated otherwise;
clients and iterations count from 1, rounds from 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from testbed.control.codec import Json, Kinds
from testbed.core.clock import EmulatedClock
from testbed.core.faults import BsFaults, UavFaults
from testbed.core.impairment import Impairment
from testbed.core.orders import Ahead, Prospects
from testbed.core.paradigm import Asks, Paradigm
from testbed.system.machine import Machine
from testbed.transport.accounts import Counts
from testbed.transport.interface import TransportSettings
from testbed.transport.wire import RoundSizes

Span = tuple[int, int, str, float, float, int]
"""Client, iteration, step, start_s, end_s, bytes: one row of a timeline."""
Received = tuple[int, int, float, float]
"""Client, index among its link's probes, start and end of the probe."""

# Parts of messages.


@dataclass(frozen=True)
class Probe:
    """One transfer of a calibration."""

    client: int
    """UAV of the link."""
    upward: bool
    start_s: float
    """Time at which the probe is due."""
    payload_bytes: int


@dataclass(frozen=True)
class RoundTerms:
    """Parameters of a round for one UAV."""

    round: int
    split: int
    """Split point u_k."""
    iterations: int
    """Iterations I_k."""
    sizes: RoundSizes
    modelled: bool
    """Whether computing takes the time of the device profile instead of the measured time."""
    updates: int = 0
    """Number of updates of all UAVs together in all rounds of an asynchronous run, which are played
    as one, where `iterations` are those of one update; 0 in a synchronous round."""
    asks: Asks = ""
    """Uploads for which the UAV requests permission; of smashed data, only those that have a
    payload."""
    buffer: int = 1
    """Number of updates after which the base station changes the global model of an asynchronous
    run."""
    after_aggregation: bool = False
    """Whether a UAV whose update is in the buffer waits until it is applied."""

    @property
    def asks_for_smashed(self) -> bool:
        """Whether the UAV asks before it uploads smashed data."""
        return self.asks == "all" and self.sizes.smashed > 0


@dataclass(frozen=True)
class Credits:
    """Real seconds by which messages of a link begin after their due time, by kind: see
    `EmulatedClock.depart`."""

    broadcast: float
    smashed: float
    gradient: float
    shared: float
    adapters: float

    @classmethod
    def of_all(cls, credit_s: float) -> "Credits":
        """The same for all kinds."""
        return cls(credit_s, credit_s, credit_s, credit_s, credit_s)


@dataclass(frozen=True)
class FirstGradients:
    """τ'_SG(0) of the first lag: duration of a gradient transfer at the rate of a slot."""

    first_slot: int
    slot_s: float
    seconds: tuple[tuple[float, ...], ...]
    """One row per client with one entry per slot, from the first slot on."""

    def at(self, client: int, time_s: float) -> float:
        """The duration for a client whose smashed data arrive at `time_s`."""
        row = self.seconds[client - 1]
        slot = int(time_s / self.slot_s) - self.first_slot
        return row[min(max(slot, 0), len(row) - 1)]


@dataclass(frozen=True)
class RoundAhead:
    """Inputs of a service order that is not one of the paper's."""

    prospects: Prospects
    first_slot: int
    slot_s: float
    uplink_bps: tuple[tuple[float, ...], ...]
    """One row per client with one entry per slot, from the first slot on."""
    downlink_bps: tuple[tuple[float, ...], ...]
    """Rates of gradients: one row per client, one entry per slot from `first_slot` on."""

    def at(self, client: int, iteration: int, time_s: float) -> Ahead:
        """The inputs for a client that is enqueued at `time_s`."""
        up, down = self.uplink_bps[client - 1], self.downlink_bps[client - 1]
        slot = min(max(int(time_s / self.slot_s) - self.first_slot, 0), len(up) - 1)
        return self.prospects.ahead(client, iteration, up[slot], down[slot])


@dataclass(frozen=True)
class LostClient:
    """A client for which the base station no longer waits."""

    client: int
    lost_s: float
    refused: str
    """Error in the frame that the client sent; empty if it sent nothing in time."""


@dataclass(frozen=True)
class Keeping:
    """When the base station keeps the global state of an asynchronous run for an evaluation."""

    every_updates: tuple[int, ...] = ()
    """The state is kept after each multiple of each of these numbers of updates."""
    every_s: float = 0.0
    """Emulated seconds after whose multiples it does; 0: never."""


@dataclass(frozen=True)
class LearnedBatch:
    """Loss and accuracy of one batch at the server."""

    client: int
    iteration: int
    loss: float
    accuracy: float


@dataclass(frozen=True)
class Direction:
    """Counters of one direction of a link since the world was created."""

    sent_bytes: int
    """Bytes as the shaper charged them per frame: with headers, or only the payload."""
    sent_frames: int
    """Frames; a packet of several frames counts as all of them."""
    dropped_frames: int
    backlog_bytes: int
    device_sent_bytes: int
    """Bytes as the device counts them per packet, with the headers of the first frame only."""
    device_sent_frames: int
    """Packets as the device counts them, of one or more frames each."""
    lost_frames: int = 0
    """Frames lost on the radio channel since impairments are in force."""
    arrived_frames: int = 0
    """Frames that arrived since impairments are in force, of those that are handled separately."""
    late_frames: int = 0
    """Arrived frames that were more than a millisecond late; always 0 with netem."""
    inside_frames: int = 0
    """Packets within ns-3's radio, neither arrived nor lost yet."""
    unaccounted_frames: int = 0
    """Packets by which the counts of ns-3's radio and of the devices at both ends disagree."""


# Messages to nodes.


@dataclass(frozen=True)
class SetUpBaseStation:
    """Makes the node the base station."""

    settings: TransportSettings
    credit_s: float
    """Burst credit in real seconds, see `EmulatedClock.depart`."""
    learning: Json | None
    """`workloads.learning.real.Settings` as JSON; None: nothing is learned."""
    paradigm: Paradigm
    mac_orders: bool = False
    """Whether the radio's scheduler orders sequential gradients, by the DSCP of their packets."""


@dataclass(frozen=True)
class SetUpUav:
    """Makes the node the UAV `client`."""

    client: int
    settings: TransportSettings
    credit_s: float
    """Burst credit in real seconds, see `EmulatedClock.depart`."""
    learning: Json | None
    """`workloads.learning.real.Settings` as JSON; None: nothing is learned."""


@dataclass(frozen=True)
class Accept:
    """Orders the base station to accept connections of these clients; replaces existing ones."""

    clients: tuple[int, ...]
    address: tuple[str, int]


@dataclass(frozen=True)
class Connect:
    """Orders a UAV to connect to the base station; replaces an existing connection."""

    server: tuple[str, int]


@dataclass(frozen=True)
class CountFrames:
    """Asks for the frames sent since the last request; answered by `FramesSent`."""


@dataclass(frozen=True)
class ProbeLinks:
    """Orders to send and receive these probes before the rounds; answered by `Probed`."""

    probes: tuple[Probe, ...]
    clock: EmulatedClock


@dataclass(frozen=True)
class ServeRound:
    """Orders to prepare a round as the base station."""

    terms: RoundTerms
    clients: tuple[int, ...]
    """Clients that take part."""
    s_s: tuple[float, ...]
    """Duration of server computing for a batch of each client of the run."""
    first_gradients: FirstGradients | None
    """First gradients for service orders; None: no service order uses them."""
    live: bool
    """Whether to send `Progress`."""
    faults: BsFaults | None
    each: tuple[RoundTerms, ...] = ()
    """The terms of every client of the run if they differ; otherwise empty."""
    held: bool = False
    """Whether the links hold the broadcast back until it is due."""
    ahead: RoundAhead | None = None
    """Data for the service order of a plug-in; None: the order is one of the paper's."""
    may_lose: bool = False
    """Whether clients are on other machines: `LoseClients` may arrive until the round is over."""
    keeping: Keeping = Keeping()
    credits: tuple[Credits, ...] = ()
    """Credits of the downlink of every client of the run; empty: those of the set-up."""
    links: tuple[tuple[float, ...], ...] = ()
    """The channel of every client of the run at the start of the round, for the aggregation rule:
    see `workloads.aggregation.rules.Link`; empty: the rule does not use it."""

    def of(self, client: int) -> RoundTerms:
        """The terms of one client."""
        return self.each[client - 1] if self.each else self.terms


@dataclass(frozen=True)
class JoinRound:
    """Orders to prepare a round as a client."""

    terms: RoundTerms
    cf_s: float
    cb_s: float
    backward_ratio: float
    """ς: τ_CB(0) = ς τ_CF(1)."""
    faults: UavFaults | None
    reports_steps: bool = False
    """Whether to report steps when they begin and end, because the machine may be lost."""
    credits: Credits | None = None
    """Credits of the UAV's uplink; None: the credits of the set-up."""


@dataclass(frozen=True)
class Begin:
    """Starts the round at time `clock.start_s` of this clock."""

    clock: EmulatedClock


@dataclass(frozen=True)
class LoseClients:
    """Informs the base station during a round that machines of clients are lost."""

    clients: tuple[int, ...]
    lost_s: float
    """Time at which unfinished clients count as lost."""
    drops: bool
    """See `testbed.core.faults.BsFaults`."""


@dataclass(frozen=True)
class Save:
    """Asks for the global state, or a UAV for its own tensors; answered by `Saved`."""


@dataclass(frozen=True)
class Restore:
    """Orders the base station or a UAV to continue from this global state; answered by
    `Restored`."""

    state: bytes


@dataclass(frozen=True)
class TakeOwn:
    """Gives the base station the tensors that stay with a UAV, for `Save` and `Evaluate`; answered
    by `Restored`."""

    client: int
    state: bytes
    """The UAV's answer to `Save`."""


@dataclass(frozen=True)
class Evaluate:
    """Asks to evaluate the global state on held-out data; answered by `Evaluated`."""

    kept: int = -1
    """Index of a state that was kept during the last round; -1: the current one."""


@dataclass(frozen=True)
class AskTraces:
    """Asks for the logs of QUIC connections, which end there; answered by `Traces`."""


@dataclass(frozen=True)
class Stop:
    """Orders a node or the injector to end."""


# Messages from nodes.


@dataclass(frozen=True)
class Listening:
    """The base station accepts connections."""


@dataclass(frozen=True)
class Connected:
    """The node is connected."""


@dataclass(frozen=True)
class FramesSent:
    """Counters of sent frames, by client."""

    frames: tuple[tuple[int, Counts], ...]


@dataclass(frozen=True)
class Probed:
    """Received probes."""

    received: tuple[Received, ...]


@dataclass(frozen=True)
class Ready:
    """The node is ready to begin the round."""


@dataclass(frozen=True)
class Started:
    """All clients have the broadcast; the downlinks may switch to the rates of gradients."""


@dataclass(frozen=True)
class SwitchDownlinks:
    """The base station begins to send with another variant of the downlinks' rates: 0 for
    broadcasts, 1 for gradients."""

    index: int


@dataclass(frozen=True)
class Progress:
    """Progress of the base station's round, for the live view."""

    steps: tuple[Span, ...]
    """Steps that ended since the last message."""
    waiting: Mapping[str, tuple[int, ...]]
    """Clients that wait for each of the server's resources, in service order."""


@dataclass(frozen=True)
class StepsSoFar:
    """Steps that a UAV has done so far, if it will crash or may be lost."""

    spans: tuple[Span, ...]
    going: tuple[Span, ...]
    """Steps in progress; their end is infinity."""


@dataclass(frozen=True)
class Abandoned:
    """The round ends because a client was lost and must not be dropped."""

    loss: LostClient


@dataclass(frozen=True)
class RoundReport:
    """Record of a finished round from one node."""

    spans: tuple[Span, ...]
    going: tuple[Span, ...]
    """Steps in progress when the round ended or the client was lost; their end is infinity."""
    overruns_s: tuple[float, ...]
    """Delay of each computing step beyond its modelled end."""
    notes: Json
    """Observations of the learning work."""
    cpu_s: float
    """CPU time of the node in real seconds."""


@dataclass(frozen=True)
class BaseStationReport(RoundReport):
    """Round report of the base station."""

    lost: tuple[LostClient, ...]
    batches: tuple[LearnedBatch, ...]
    kept: tuple[tuple[int, float, int], ...] = ()
    """For each evaluation of an asynchronous run: number of updates, time, and index of the state
    that was kept."""


@dataclass(frozen=True)
class Saved:
    """The global state, or the tensors that stay with a UAV, as a safetensors file; empty if
    nothing is learned."""

    state: bytes


@dataclass(frozen=True)
class Restored:
    """Acknowledges `Restore` or `TakeOwn`."""


@dataclass(frozen=True)
class Evaluated:
    """The global state on held-out data."""

    loss: float
    accuracy: float
    samples: int


@dataclass(frozen=True)
class Traces:
    """Logs of the node's QUIC connections: see `testbed.transport.qlog`."""

    connections: tuple[tuple[str, int], ...]
    """Connection ID of each connection, and its number of bytes in `compressed`."""
    compressed: bytes


@dataclass(frozen=True)
class Failed:
    """A node or the injector has failed; its last message."""

    reason: str
    wrong_input: bool = False
    """Whether the cause is wrong user input; the reason then names the field."""


# Messages to the injector.


@dataclass(frozen=True)
class SetRates:
    """Sets the links' rates from slot `first` on."""

    first: int
    variants: int
    """Number of rows for the downlinks."""
    warn_slots: int
    """Number of remaining slots at which `Low` is sent."""
    table: bytes
    """Rates in bit/s, float64 [slots, rows, K]: uplinks, then each variant of the downlinks; one
    row for each unless `divided` sets more."""
    divided: tuple[tuple[tuple[int, float], ...], ...] = ()
    """Division of each direction among active links: uplinks, then each variant of the downlinks.
    For each number of active links from 1 on: the row of the table, and the fraction of it that a
    link has. One entry: links do not affect each other. Empty: this is the case for all directions.
    """


@dataclass(frozen=True)
class SetChannel:
    """Sets the channel of ns-3's radio from slot `first` on, in place of `SetRates`."""

    first: int
    count: int
    """Number of slots."""
    warn_slots: int
    """Number of remaining slots at which `Low` is sent; 0: it is not sent."""
    table: bytes
    """Input of the radio process per slot, float64 [count, values]."""


@dataclass(frozen=True)
class Epoch:
    """Starts setting rates by this clock; answered by `EpochBegun`."""

    clock: EmulatedClock
    slot_s: float
    held: tuple[int, ...] = ()
    """Size in bytes of the last frame of the transfer that starts on each downlink with the clock;
    their frames are held until then. Empty: there is no such transfer."""
    held_bytes: tuple[int, ...] = ()
    """Size in bytes of each of these transfers; empty: unknown."""


@dataclass(frozen=True)
class Phase:
    """Switches the downlinks to a variant of their rates; answered by `PhaseSet`."""

    index: int


@dataclass(frozen=True)
class Pause:
    """Stops setting rates; the last rates remain in force."""


@dataclass(frozen=True)
class Impair:
    """Starts delay and loss of frames; answered by `Impaired`."""

    uplinks: tuple[Impairment, ...]
    downlinks: tuple[Impairment, ...]


@dataclass(frozen=True)
class SetImpairments:
    """Sets impairments per slot from slot `first` on; has no effect before `Impair`."""

    first: int
    variants: int
    """Number of rows for the downlinks, as in `SetRates`."""
    table: bytes
    """Float64 [slots, 1 + variants, K, 3], uplinks, then each variant of the downlinks: delay and
    jitter in real seconds, loss probability of a frame."""


@dataclass(frozen=True)
class StartCapture:
    """Starts to capture each link in a file; answered by `Capturing`."""

    files: tuple[str, ...]
    headers_only: bool


@dataclass(frozen=True)
class EndCapture:
    """Ends the capture; answered by `Captured`."""

    until_ns: int
    """Unix time in ns after which frames are not recorded."""


@dataclass(frozen=True)
class AskCounters:
    """Asks for the slots that were set and the links' counters; answered by `Counters`."""


@dataclass(frozen=True)
class AskMachine:
    """Asks for the accounts of the injector's machine; answered by `MachineNow`."""


@dataclass(frozen=True)
class MachineNow:
    """Clocks and CPU accounts of the injector and its machine."""

    machine: Machine
    boot: str
    """See `testbed.system.machine.boot_id`."""


@dataclass(frozen=True)
class Watch:
    """Starts to record counters at every slot boundary, for `AskSamples`."""


@dataclass(frozen=True)
class AskSamples:
    """Asks for the samples since the last request; answered by `Samples`."""


# Messages from the injector.


@dataclass(frozen=True)
class Wired:
    """All links are ready."""


@dataclass(frozen=True)
class EpochBegun:
    """Acknowledges `Epoch`: the rates of the first slot are set."""

    done_ns: int
    """Monotonic time in ns at which the kernel had set the rates."""
    missing: bool
    """Whether the first slot had no rates."""


@dataclass(frozen=True)
class PhaseSet:
    """Acknowledges `Phase`: the downlinks have been switched."""

    done_ns: int
    """Monotonic time in ns at which the kernel had switched them."""


@dataclass(frozen=True)
class Impaired:
    """Acknowledges `Impair`."""


@dataclass(frozen=True)
class Low:
    """Reports that the table has rates for few more slots only."""

    end: int
    """The first slot without rates."""


@dataclass(frozen=True)
class Exhausted:
    """Reports that the table has no more rates; the last rates remain in force."""

    slot: int


@dataclass(frozen=True)
class Capturing:
    """Acknowledges `StartCapture`."""


@dataclass(frozen=True)
class Captured:
    """Result of a capture."""

    frames: int
    missed_packets: int
    """Packets that were lost because the ring buffer was full."""

    def __str__(self) -> str:
        missed = f", {self.missed_packets} packets missed" if self.missed_packets else ""
        return f"{self.frames} frames{missed}"


@dataclass(frozen=True)
class Counters:
    """Slots that were set and counters of the links, see `testbed.network.injector.Report`."""

    asked_ns: int
    links: tuple[tuple[Direction, Direction], ...]
    """Uplink and downlink of each link."""
    scheduling: str
    below_floor: int
    exhausted: int
    slots: bytes
    """Int64 [n, 4]: slot, due time, time at which it was set (monotonic ns), number of changes. If
    frames are lost at random, [`impaired_slots`, 1 + 6K] follows: slot, and at its beginning for
    each link and direction: frames lost so far, frames arrived so far, and loss probability in
    units of 2⁻³²."""
    impaired_slots: int = 0
    """Number of rows of the second table in `slots`."""


@dataclass(frozen=True)
class Samples:
    """Counters at slot boundaries, see `testbed.network.injector.Samples`."""

    exhausted: int
    table: bytes
    """Int64 [n, 4 + 10K]: one row per slot boundary."""


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
    | TakeOwn
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
    | SwitchDownlinks
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
    | SetChannel
    | Epoch
    | Phase
    | Pause
    | Impair
    | SetImpairments
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
