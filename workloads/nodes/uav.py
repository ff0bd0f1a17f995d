# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The UAV's program: client forward, smashed data up, gradient down, client backward."""

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from testbed import transport
from testbed.control.messages import (
    AskTraces,
    Begin,
    Connect,
    Connected,
    CountFrames,
    Credits,
    FramesSent,
    JoinRound,
    NodeOrder,
    Probed,
    ProbeLinks,
    Ready,
    Restore,
    Restored,
    RoundReport,
    Save,
    Saved,
    SetUpUav,
    Span,
    StepsSoFar,
    Stop,
)
from testbed.control.node import ControlLost, NodeControl
from testbed.core.clock import EmulatedClock
from testbed.core.faults import slowed_end
from testbed.system.waiting import wait_until
from testbed.transport import wire
from testbed.transport.interface import Link
from testbed.transport.wire import Header, Kind
from workloads.codecs.codec import Direction
from workloads.learning.work import Buffer, ClientWork, place_for
from workloads.nodes.faults import RoundFaults
from workloads.nodes.probe import exchange
from workloads.nodes.traces import traces


def settle() -> None:
    """Collect garbage now and disable it until the next call, because a collection stops all
    threads."""
    gc.collect()
    gc.freeze()
    gc.disable()


@dataclass
class Stopwatch:
    """Runs computing steps in emulated time.

    A modelled step ends at its modelled end, or when the real work is done if that is later; this
    overrun is recorded. A measured step takes as long as the work on its device.
    """

    clock: EmulatedClock
    modelled: bool
    slow: Sequence[Sequence[float]] = ()
    """Slow periods, see `testbed.core.faults.slowed_end`."""
    until_s: float = math.inf
    """Time at which the round ends, even if it is incomplete."""
    overruns: list[float] = field(default_factory=list)

    def end(self, start_s: float, duration_s: float, work_s: float) -> float:
        """Wait for the modelled end of a step whose work is done; returns its end.

        Args:
            start_s: Start of the step.
            duration_s: Modelled duration.
            work_s: Duration of the work, in real seconds.

        Raises:
            ConnectionLost: `until_s` is earlier.
        """
        if not self.modelled:
            return start_s + work_s / self.clock.dilation
        done_s = self.clock.now()
        due_s = slowed_end(start_s, duration_s, self.slow)
        wait_until(self.clock.monotonic_ns(min(due_s, self.until_s)))
        if due_s > self.until_s:
            raise wire.ConnectionLost("the round is over")
        self.overruns.append(max(0.0, done_s - due_s))
        return max(done_s, due_s)


@dataclass
class Steps:
    """The steps of a client during a round."""

    client: int
    tell: Callable[["Steps"], object] = lambda steps: None
    """Called when a step begins or ends."""
    done: list[Span] = field(default_factory=list)
    going: list[Span] = field(default_factory=list)
    """The step in progress, if any; its end is infinity."""

    def begin(self, iteration: int, step: str, start_s: float, size: int = 0) -> None:
        """Begin a step; the previous one is dropped."""
        self.going = [(self.client, iteration, step, start_s, math.inf, size)]
        self.tell(self)

    def end(self, end_s: float) -> None:
        """End the step in progress."""
        ((client, iteration, step, start_s, _, size),) = self.going
        self.done.append((client, iteration, step, start_s, end_s, size))
        self.going = []
        self.tell(self)


@dataclass(frozen=True)
class _Going:
    """The state of a round in progress."""

    order: JoinRound
    watch: Stopwatch
    steps: Steps
    faults: RoundFaults


class Uav:
    """A UAV during a run."""

    link: Link

    def __init__(self, control: NodeControl[NodeOrder], setup: SetUpUav, work: ClientWork):
        self.control = control
        self.client = setup.client
        self.settings = setup.settings
        self.credit_s = setup.credit_s
        self.work = work
        self._connect(control.expect(Connect))

    def _connect(self, order: Connect) -> None:
        self.link = transport.connect(self.settings, self.client, order.server)
        self.control.send(Connected())

    def serve(self) -> None:
        """Take part in rounds until the orchestrator sends `Stop`."""
        while not isinstance(order := self.control.receive(), Stop):
            match order:
                case Connect():
                    self.link.hang_up()
                    self.link.close()
                    self._connect(order)
                case CountFrames():
                    frames = tuple((self.client, counts) for counts in self.link.count())
                    self.control.send(FramesSent(frames))
                case ProbeLinks():
                    received = exchange(
                        self.link, order.probes, order.clock, self.credit_s, at_uav=True
                    )
                    self.control.send(Probed(tuple(received)))
                case JoinRound():
                    self.control.send(self._join(order))
                case Save():
                    self.control.send(Saved(self.work.state()))
                case Restore():
                    self.work.restore(order.state)
                    self.control.send(Restored())
                case AskTraces():
                    self.control.send(traces())
                case _:
                    raise ControlLost(f"{type(order).__name__} is not an order for a UAV")

    def _join(self, order: JoinRound) -> RoundReport:
        terms = order.terms
        self.work.begin_round(terms.round, terms.split, terms.sizes)
        settle()
        self.control.send(Ready())
        clock = self.control.expect(Begin, self.settings.timeout_s).clock
        cpu_s = time.process_time()
        steps, overruns = self.round(order, clock)
        return RoundReport(
            spans=tuple(steps.done),
            going=tuple(steps.going),
            overruns_s=tuple(overruns),
            notes=self.work.notes(),
            cpu_s=time.process_time() - cpu_s,
        )

    def round(self, order: JoinRound, clock: EmulatedClock) -> tuple[Steps, list[float]]:
        """Do one round; returns this node's steps and the overrun of each computing step."""
        faults = RoundFaults(order.faults, clock)
        watch = Stopwatch(clock, order.terms.modelled, faults.slow, faults.leaves_s)
        reports = faults.crashes or order.reports_steps
        steps = Steps(self.client, self._tell) if reports else Steps(self.client)
        with faults.leaving(self.link.hang_up):
            self._play(_Going(order, watch, steps, faults))
        return steps, watch.overruns

    def _tell(self, steps: Steps) -> None:
        """Report the steps to the orchestrator, if it is still connected."""
        self.control.send(StepsSoFar(tuple(steps.done), tuple(steps.going)))

    def _play(self, going: _Going) -> None:
        terms = going.order.terms
        if not terms.updates:
            self._adapters(going, self.link.receive_header(Kind.BROADCAST), 1)
            start = self.link.receive_header(Kind.START)
            start.expect(Kind.START, terms.round, 0, 0)
            self._train(going, 1, start.time_s)
            return
        first = 1
        while (header := self.link.receive_header(Kind.BROADCAST)).kind is not Kind.END:
            self._train(going, first, self._adapters(going, header, first))
            first += terms.iterations
        header.expect(Kind.END, terms.round, 0, 0)

    def _adapters(self, going: _Going, header: Header, iteration: int) -> float:
        """SM: receive the global adapters; returns their arrival time."""
        names = self.work.adapters_header()
        place = self._place(going, header, "adapters_down", self.work.adapters_buffer)
        end_s = self._take(going, header, Kind.BROADCAST, iteration, place, names)
        self.work.load_adapters()
        return end_s

    def _take(
        self,
        going: _Going,
        header: Header,
        kind: Kind,
        iteration: int,
        place: memoryview,
        extra: bytes = b"",
    ) -> float:
        """Receive the rest of a frame whose header has arrived; returns its arrival time."""
        round_, steps = going.order.terms.round, going.steps
        header.expect(kind, round_, len(extra), len(place))
        if kind is Kind.BROADCAST:
            steps.begin(iteration, "SM", header.time_s, len(place))
        given = bytearray(len(extra))
        arrived_ns = self.link.receive_into(memoryview(given))
        if given != extra:
            raise wire.WireError("adapters: the base station sent unexpected tensors")
        if place:  # Adapters of no bytes have only names.
            arrived_ns = self.link.receive_into(place)
        end_s = going.watch.clock.at(arrived_ns)
        self._send(Kind.RECEIPT, round_, iteration, time_s=end_s)
        if kind is Kind.BROADCAST:
            steps.end(end_s)
        return end_s

    def _place(
        self, going: _Going, header: Header, direction: Direction, buffer: Buffer
    ) -> memoryview:
        """The buffer for the payload of a frame."""
        varies = direction in going.order.terms.sizes.varying
        return place_for(buffer, header.payload_bytes, varies)

    def _gradient(self, going: _Going, iteration: int) -> float:
        """SG: receive the gradient of a batch; returns the start of the backward pass."""
        terms, steps = going.order.terms, going.steps
        if not terms.sizes.shared_gradient:
            header = self.link.receive_header(Kind.GRADIENT)
            place = self._place(going, header, "gradient", self.work.gradient_buffer)
            steps.begin(iteration, "SG", header.time_s, len(place))
            end_s = self._take(going, header, Kind.GRADIENT, iteration, place)
            steps.end(end_s)
            return end_s
        header = self.link.receive_header(Kind.SHARED)
        shared = self.work.shared_gradient_buffer()
        own_bytes = terms.sizes.gradient
        steps.begin(iteration, "SG", header.time_s, len(shared) + own_bytes)
        end_s = self._take(going, header, Kind.SHARED, iteration, shared)
        if own_bytes:
            header, place = self.link.receive_header(Kind.GRADIENT), self.work.gradient_buffer()
            end_s = self._take(going, header, Kind.GRADIENT, iteration, place)
        steps.end(end_s)
        if own_bytes:
            return end_s
        start = self.link.receive_header(Kind.START)
        start.expect(Kind.START, terms.round, 0, 0)
        return start.time_s

    def _allowed(self, going: _Going, iteration: int, ready_s: float) -> float:
        """Ask for an upload that is ready; returns the time from which it is allowed."""
        round_ = going.order.terms.round
        self._send(Kind.REQUEST, round_, iteration, time_s=ready_s)
        grant = self.link.receive_header(Kind.GRANT)
        grant.expect(Kind.GRANT, round_, 0, 0)
        return grant.time_s

    def _train(self, going: _Going, first: int, now_s: float) -> None:
        """Do I iterations from iteration `first` on, then CM."""
        order, watch, steps = going.order, going.watch, going.steps
        round_, clock, backward_s = order.terms.round, watch.clock, 0.0
        last = first + order.terms.iterations - 1
        credits_ = order.credits or Credits.of_all(self.credit_s)
        for iteration in range(first, last + 1):
            steps.begin(iteration, "CF", now_s)
            self.work.forward(iteration)
            forward_end_s = watch.end(now_s, order.cf_s, self.work.seconds)
            smashed, labels = self.work.smashed()
            steps.end(forward_end_s)
            if iteration == first:
                # First iteration: the paper uses ς τ_CF(1) as τ_CB(0) in the lag.
                backward_s = order.backward_ratio * (forward_end_s - now_s)
            due_s = forward_end_s
            if order.terms.asks_for_smashed:
                due_s = self._allowed(going, iteration, forward_end_s)
            # A frame without payload is as short as a receipt, and does not wait for credit.
            credit_s = credits_.smashed if smashed else 0.0
            header = Header(
                Kind.SMASHED,
                self.client,
                iteration,
                round_,
                len(labels),
                len(smashed),
                time_s=clock.depart(due_s, credit_s),
                compute_s=forward_end_s - now_s + backward_s,
            )
            steps.begin(iteration, "CA", header.time_s, len(smashed))
            for sent in going.faults.frames(header):
                self.link.send(sent, labels, smashed)
            now_s = self._gradient(going, iteration)
            steps.begin(iteration, "CB", now_s)
            self.work.backward()
            end_s = watch.end(now_s, order.cb_s, self.work.seconds)
            steps.end(end_s)
            backward_s, now_s = end_s - now_s, end_s
        adapters, names = self.work.adapters(), self.work.adapters_header()
        if order.terms.asks:
            now_s = self._allowed(going, last + 1, now_s)
        departs_s = clock.depart(now_s, credits_.adapters if adapters else 0.0)
        steps.begin(last, "CM", departs_s, len(adapters))
        self._send(
            Kind.ADAPTERS, round_, last, names, adapters, time_s=departs_s, compute_s=backward_s
        )

    def _send(
        self,
        kind: Kind,
        round_: int,
        iteration: int,
        extra: wire.Buffer = b"",
        payload: wire.Buffer = b"",
        *,
        time_s: float,
        compute_s: float = 0.0,
    ) -> None:
        header = Header(
            *(kind, self.client, iteration, round_, len(extra), len(payload), time_s, compute_s)
        )
        self.link.send(header, extra, payload)
