# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The base station's program: executes the orchestrator's orders until it receives `Stop`."""

import time
from concurrent.futures import ThreadPoolExecutor

from testbed import transport
from testbed.control.messages import (
    Abandoned,
    Accept,
    AskTraces,
    BaseStationReport,
    Begin,
    Connected,
    CountFrames,
    Evaluate,
    Evaluated,
    FramesSent,
    Listening,
    LoseClients,
    Probed,
    ProbeLinks,
    Ready,
    Received,
    Restore,
    Restored,
    Save,
    Saved,
    ServeRound,
    Stop,
    TakeOwn,
)
from testbed.control.node import ControlLost
from testbed.transport.accounts import Counts
from workloads.nodes.faults import RoundAbandoned
from workloads.nodes.probe import exchange
from workloads.nodes.server_round import EmulatedServerRound
from workloads.nodes.station import Station
from workloads.nodes.traces import traces
from workloads.nodes.uav import settle


class BaseStation(Station):
    """Executes the orders of the orchestrator."""

    def serve(self) -> None:
        """Run rounds until the orchestrator sends `Stop`."""
        while not isinstance(order := self.control.receive(), Stop):
            match order:
                case Accept():
                    self._accept(order)
                case CountFrames():
                    self.control.send(FramesSent(self._count()))
                case ProbeLinks():
                    self.control.send(Probed(self._probe(order)))
                case ServeRound():
                    self.control.send(self._round(order))
                case Save():
                    self.control.send(Saved(self.work.state()))
                case Restore():
                    self.work.restore(order.state)
                    self.control.send(Restored())
                case TakeOwn():
                    self.work.take_own(order.client, order.state)
                    self.control.send(Restored())
                case Evaluate():
                    self.control.send(Evaluated(**vars(self.work.evaluate(order.kept))))
                case AskTraces():
                    self.control.send(traces())
                case LoseClients():
                    pass  # The round has already ended.
                case _:
                    raise ControlLost(
                        f"{type(order).__name__} is not an order for the base station"
                    )

    def _round(self, order: ServeRound) -> BaseStationReport | Abandoned:
        terms = [order.of(client) for client in range(1, len(order.s_s) + 1)]
        splits, sizes = [each.split for each in terms], [each.sizes for each in terms]
        self.work.begin_round(order.terms.round, splits, sizes)
        settle()
        self.control.send(Ready())
        clock = self.control.expect(Begin, self.setup.settings.timeout_s).clock
        cpu_s = time.process_time()
        round_ = EmulatedServerRound(self, order, clock)
        try:
            finished = round_.run()
        except RoundAbandoned as over:
            return Abandoned(over.loss)
        cpu_s = time.process_time() - cpu_s
        if finished and not order.terms.updates:
            seen = None
            if order.links:
                ended_s = {span[0]: span[4] for span in round_.spans if span[2] == "CM"}
                seen = {k: (ended_s[k] - clock.start_s, order.links[k - 1]) for k in finished}
            self.work.aggregate(finished, seen)
        return BaseStationReport(
            spans=tuple(round_.spans),
            going=tuple(round_.going),
            lost=tuple(round_.lost),
            overruns_s=tuple(round_.overruns),
            batches=tuple(round_.batches),
            notes=self.work.notes(),
            cpu_s=cpu_s,
            kept=tuple(round_.kept.evaluations),
        )

    def _accept(self, order: Accept) -> None:
        """Accept connections of UAVs, or again of lost ones."""
        for client in order.clients:
            if client in self.links:
                self.links[client].hang_up()
                self.links[client].close()
        settings = self.setup.settings
        self.links |= transport.accept(
            settings, order.address, order.clients, lambda: self.control.send(Listening())
        )
        self.control.send(Connected())

    def _count(self) -> tuple[tuple[int, Counts], ...]:
        """Counters of the frames sent to each client since the last call."""
        return tuple(
            (client, counts) for client, link in self.links.items() for counts in link.count()
        )

    def _probe(self, order: ProbeLinks) -> tuple[Received, ...]:
        """Do a calibration on all links, with one thread per link."""

        def of_link(client: int) -> list[Received]:
            own = [probe for probe in order.probes if probe.client == client]
            return exchange(self.links[client], own, order.clock, self.setup.credit_s, at_uav=False)

        with ThreadPoolExecutor(len(self.links)) as pool:
            return tuple(row for rows in pool.map(of_link, self.links) for row in rows)
