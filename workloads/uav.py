"""The UAV's program: client forward, smashed data up, gradient down, client backward."""

import gc
import time
from dataclasses import asdict, dataclass

from testbed import transport, wire
from testbed.clock import EmulatedClock
from testbed.node_control import Message, NodeControl
from testbed.transport import Manner
from testbed.wire import Header, Kind
from workloads.probe import Probe, Received, exchange
from workloads.work import ClientWork, RoundSizes

Span = tuple[int, int, str, float, float, int]
"""Client, iteration, step, start_s, end_s, bytes: one row of a timeline."""


def settle() -> None:
    """Collect garbage now, and none until the next time: a collection stops all threads."""
    gc.collect()
    gc.freeze()
    gc.disable()


@dataclass
class Stopwatch:
    """Runs computing steps in emulated time.

    A modelled step ends at its deadline, or when the real work is done if that is later: an
    overrun, which is kept. A measured step takes as long as the work took on its device.
    """

    clock: EmulatedClock
    modelled: bool
    overruns: list[float]

    def end(self, start_s: float, duration_s: float, work_s: float) -> float:
        """The step's end, once its work has been done; waits for the modelled one.

        Args:
            start_s: When it began.
            duration_s: What it is modelled to take.
            work_s: Real seconds that the work took.
        """
        if not self.modelled:
            return start_s + work_s / self.clock.dilation
        done_s = self.clock.now()
        due_s = start_s + duration_s
        self.clock.wait_until(due_s)
        self.overruns.append(max(0.0, done_s - due_s))
        return max(done_s, due_s)


class Uav:
    """One UAV for the length of a run."""

    def __init__(self, control: NodeControl, setup: Message, work: ClientWork):
        self.control = control
        self.client: int = setup["client"]
        manner = Manner.from_json(setup["manner"])
        self.timeout_s = manner.timeout_s
        self.credit_s: float = setup["credit_s"]
        self.work = work
        control.expect("connect")
        self.link = transport.connect(manner, self.client, tuple(setup["server"]))

    def serve(self) -> None:
        """Take part in rounds until the orchestrator says stop."""
        self.control.send("connected")
        while (order := self.control.receive())["kind"] != "stop":
            if order["kind"] == "count":
                sent = [[self.client, asdict(counts)] for counts in self.link.count()]
                self.control.send("counts", sent=sent)
                continue
            if order["kind"] == "probe":
                self.control.send("probed", received=self._probe(order))
                continue
            self.work.begin_round(order["round"], order["split"], RoundSizes(**order["sizes"]))
            settle()
            self.control.send("ready")
            begin = self.control.expect("begin", self.timeout_s)
            clock = EmulatedClock(begin["start_ns"], begin["start_s"], begin["dilation"])
            cpu_s = time.process_time()
            spans, overruns = self.round(order, clock)
            self.control.send(
                "report",
                spans=spans,
                overruns_s=overruns,
                notes=self.work.notes(),
                cpu_s=time.process_time() - cpu_s,
            )

    def _probe(self, order: Message) -> list[Received]:
        """This link's part of a calibration."""
        probes = [Probe(*fields) for fields in order["probes"]]
        clock = EmulatedClock(**order["clock"])
        return exchange(self.link, probes, clock, self.credit_s, at_uav=True)

    def round(self, order: Message, clock: EmulatedClock) -> tuple[list[Span], list[float]]:
        """One round; answers with this node's steps and how much each computing step overran."""
        round_ = order["round"]
        watch = Stopwatch(clock, order["compute_time"] == "modelled", [])
        spans: list[Span] = []

        def note(iteration: int, step: str, start_s: float, end_s: float, size: int = 0) -> None:
            spans.append((self.client, iteration, step, start_s, end_s, size))

        def receive(
            kind: Kind, iteration: int, step: str, place: memoryview, extra: bytes = b""
        ) -> float:
            header = self.link.receive_header(kind)
            header.expect(kind, round_, len(extra), len(place))
            given = bytearray(len(extra))
            self.link.receive_into(memoryview(given))
            if given != extra:
                raise wire.WireError("adapters: the base station sends other tensors than are due")
            arrived_ns = self.link.receive_into(place)
            end_s = clock.at(arrived_ns)
            self._send(Kind.RECEIPT, round_, iteration, time_s=end_s)
            note(iteration, step, header.time_s, end_s, len(place))
            return end_s

        names = self.work.adapters_header()
        receive(Kind.BROADCAST, 1, "SM", self.work.adapters_buffer(), names)
        self.work.load_adapters()
        start = self.link.receive_header(Kind.START)
        start.expect(Kind.START, round_, 0, 0)

        now_s, backward_s = start.time_s, 0.0
        for iteration in range(1, order["iterations"] + 1):
            smashed, labels = self.work.forward(iteration)
            forward_end_s = watch.end(now_s, order["cf_s"], self.work.seconds)
            note(iteration, "CF", now_s, forward_end_s)
            if iteration == 1:
                # Nothing went before: the paper lets ς τ_CF(1) stand for τ_CB(0) in the lag.
                backward_s = order["backward_ratio"] * (forward_end_s - now_s)
            self._send(
                Kind.SMASHED,
                round_,
                iteration,
                labels,
                smashed,
                time_s=clock.depart(forward_end_s, self.credit_s),
                compute_s=forward_end_s - now_s + backward_s,
            )
            now_s = receive(Kind.GRADIENT, iteration, "SG", self.work.gradient_buffer())
            self.work.backward()
            end_s = watch.end(now_s, order["cb_s"], self.work.seconds)
            note(iteration, "CB", now_s, end_s)
            backward_s, now_s = end_s - now_s, end_s
        self._send(
            Kind.ADAPTERS,
            round_,
            order["iterations"],
            names,
            self.work.adapters(),
            time_s=clock.depart(now_s, self.credit_s),
        )
        return spans, watch.overruns

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
            kind, self.client, iteration, round_, len(extra), len(payload), time_s, compute_s
        )
        self.link.send(header, extra, payload)
