# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Plays a scenario's rounds on started nodes: sends orders, sets rates, collects reports."""

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from orchestrator.analysis import frame_loss
from orchestrator.analysis.byte_accounts import SET_UP, account, completed
from orchestrator.analysis.error_budget import Budget, error_budget, transfer_errors
from orchestrator.analysis.radio_log import (
    RadioLog,
    cells,
    grants,
    handovers,
    outages,
    read_log,
    slots_in,
)
from orchestrator.analysis.resource_blocks import resource_blocks
from orchestrator.analysis.waterfall import waterfalls
from orchestrator.emulated.calibration import TIMEOUT_S
from orchestrator.emulated.departures import credits_of
from orchestrator.emulated.learning import (
    computing_limit_s,
    evaluation_table,
    keeping,
    learning_table,
    links_at,
    place,
    startup_limit_s,
    takes_gpu,
    whole_table,
)
from orchestrator.emulated.network import EmulatedNetwork, Hosts, Probes, Transfer
from orchestrator.emulated.node_faults import NodeFaults
from orchestrator.emulated.nodes import Nodes
from orchestrator.emulated.observer import Observer
from orchestrator.emulated.radio_air import LOG
from orchestrator.emulated.rate_feed import RoundRates
from orchestrator.engine.access import LinkRates, RadioAccess
from orchestrator.engine.faults import Fault, RoundFaults
from orchestrator.engine.flight import with_flight
from orchestrator.engine.links import shape_of, transport_settings_of
from orchestrator.engine.lte import Cellular
from orchestrator.engine.nr import grant_times
from orchestrator.engine.plan import (
    RoundPlan,
    decided,
    fixed_allocation,
    with_measured_bytes,
)
from orchestrator.engine.radio import of_gains, power_share
from orchestrator.engine.rates import ahead_of, first_gradient_s
from orchestrator.engine.tcp_model import TcpModel
from orchestrator.records.asynchronous import in_rounds
from orchestrator.records.emulation import PlayedRound, RoundRecord
from orchestrator.rounds.loop import Decision, simulate_on
from orchestrator.rounds.simulation import cut, round_of, round_of_spans
from orchestrator.rounds.windows import rounds_of
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.schema import Emulation, ResolvedScenario, Scenario
from testbed.cluster.machines import Machines
from testbed.control.messages import (
    Accept,
    AskTraces,
    BaseStationReport,
    Begin,
    Connect,
    Connected,
    CountFrames,
    Evaluate,
    Evaluated,
    FirstGradients,
    FramesSent,
    JoinRound,
    Listening,
    Low,
    Probed,
    ProbeLinks,
    Ready,
    Received,
    Restore,
    Restored,
    RoundReport,
    RoundTerms,
    Save,
    Saved,
    ServeRound,
    SetUpBaseStation,
    SetUpUav,
    Started,
    Stop,
    SwitchDownlinks,
    TakeOwn,
    Traces,
)
from testbed.control.messages import (
    Progress as StepsProgress,
)
from testbed.core.clock import EmulatedClock, next_tick
from testbed.core.node import BS, NodeId, uav, uavs
from testbed.core.progress import Progress, which_round
from testbed.core.timeline import SPAN, STEPS, Loss, Round, Timeline
from testbed.network import qlog
from testbed.network.fabric import link_addresses
from testbed.network.holding import last_frames
from testbed.network.injector import Report
from testbed.runtimes import HostLost, Module, NodeSpec
from testbed.system import inside
from testbed.transport.accounts import Counts
from testbed.transport.wire import RoundSizes
from workloads.learning.settings import ONE_THREAD

PORT = 5201
"""First port at which UAVs connect to the base station; each reconnection uses the next one."""
NODE_IMPORTS = ("workloads.nodes.base_station", "workloads.nodes.uav")
LEARNING_IMPORTS = (*NODE_IMPORTS, "workloads.learning.real")
"""Imports with torch and timm; sharing them saves seconds and half a gigabyte per node."""
LEAD_S = 0.1
"""Real seconds between the order to begin a round and its beginning."""
ANSWER_TIMEOUT_S = 60.0
"""Real seconds in which nodes must answer, generous for many nodes on few cores."""
REST_S = 0.25
"""Real seconds after a round until the last acknowledgement has been sent and counted."""
REST_TRIES = 10
"""Number of attempts to read accounts and counters without a frame being sent in between."""
SPARE_SLOTS = 100
"""Slots that the injector is given in addition to the predicted duration of a round."""


@dataclass(frozen=True)
class StagedRound:
    """The data of a round before it is played."""

    decision: Decision
    predicted: Round
    """Prediction with payload only, on the timeline of such rounds."""
    predicted_wire: Round
    """Prediction with the bytes of frames, on the timeline of such rounds."""
    payload_plan: RoundPlan
    link_plan: RoundPlan
    tcp: TcpModel | None
    """Model of the effects of delay and loss on transfers; None: there are neither."""
    sizes: Sequence[RoundSizes]
    """Sizes of the messages of each client."""
    radio: RadioAccess
    faults: RoundFaults | None
    with_fault: Callable[["StagedRound", Fault], "StagedRound"]
    """Returns the round with an additional, unplanned fault."""
    flown: Callable[["StagedRound", float], "StagedRound"] | None
    """Returns the round with its predictions on the flight until its measured end; None: the flight
    does not depend on decisions."""
    is_last: bool
    """Whether no further round is played on these nodes."""

    @property
    def index(self) -> int:
        """Index of the round, starting from 0."""
        return self.decision.index

    def real(
        self, plan: RoundPlan, measured: Round, emulation: Emulation | None = None
    ) -> RoundPlan:
        """See `with_measured_bytes`."""
        if not any(sizes.varying for sizes in self.sizes):
            return plan
        return with_measured_bytes(plan, measured.spans[~measured.cut], self.sizes, emulation)

    @property
    def start_s(self) -> float:
        """Start on the timeline of measured rounds."""
        return self.decision.start_s

    @property
    def clients(self) -> list[int]:
        """The clients that take part, from 1, in the order of scheduled uploads."""
        chosen = self.decision.allocation.clients or range(1, self.link_plan.clients + 1)
        return [k for k in chosen if self.faults is None or not self.faults.absent[k - 1]]


def start_network(
    scenario: ResolvedScenario,
    folder: Path,
    learning: dict[str, Any] | None,
    hosts: Hosts | None,
    expected: LinkRates,
    channel: Channel,
) -> EmulatedNetwork:
    """Start the node programs and links; the nodes are not set up yet.

    Args:
        scenario: Scenario of the network.
        folder: Folder of the run, for the logs of the nodes.
        learning: Settings of the learning, see `learning_settings`; None: none.
        hosts: Hosts of the nodes; None: this machine.
        expected: Rates that links are expected to have.
        channel: Channel of the scenario.
    """
    logs = folder / "logs"
    logs.mkdir(exist_ok=True)
    computing = inside.computing()
    nodes = [
        NodeSpec(
            node,
            Module(
                "workloads.nodes.program",
                LEARNING_IMPORTS if learning is not None and computing is None else NODE_IMPORTS,
            ),
            logs / f"{node}.log",
            ONE_THREAD,
            gpu=takes_gpu(scenario.base_station if node == BS else scenario.uavs),
            together=node != BS and share_process(scenario),
        )
        for node in (BS, *uavs(scenario.uavs.count))
    ]
    options: dict[str, Any] = {}
    if computing is not None:
        options["writable"] = [computing]
    if scenario.emulation.runtime == "docker":
        options["image"] = scenario.emulation.docker_image
        if learning is not None:
            options["readable"] = [Path(learning["backbone"])]
            if scenario.workload.data.source != "synthetic":
                options["readable"].append(Path(scenario.workload.data.source).resolve())
    return EmulatedNetwork.start(
        scenario,
        nodes,
        shape_of(scenario, scenario.dilation),
        folder,
        expected,
        channel,
        in_turns=in_turns(scenario),
        hosts=hosts,
        **options,
    )


def share_process(scenario: Scenario) -> bool:
    """Whether all UAVs are threads of one process, which takes far less time and memory to start.

    In virtual time, threads do not wait for each other's computations. A UAV that has faults or
    trains, and one with a library below its transport, needs a process of its own.
    """
    emulation = scenario.emulation
    return (
        emulation.clock == "virtual"
        and emulation.transport == "tcp"
        and scenario.workload.compute == "none"
        and not scenario.faults.kinds
    )


def in_turns(scenario: Scenario) -> bool:
    """Whether gradients have the whole downlink one after the other."""
    return scenario.scheme.gradient_transmission == "sequential"


class Stage:
    """Plays the rounds of a scenario on started nodes."""

    def __init__(
        self,
        network: EmulatedNetwork,
        nodes: Nodes,
        predicted: Timeline,
        observer: Observer | None,
    ):
        self.network = network
        self.nodes = nodes
        scenario = network.scenario
        self.observer = observer
        if observer is not None:
            nodes.hears[StepsProgress] = lambda _, message: observer.heard(message)
        nodes.hears[SwitchDownlinks] = lambda _, message: self.injector.phase(message.index)
        self.ports = itertools.count(PORT)
        self.linked: set[int] = set()
        """Clients that are connected to the base station."""
        self.injector = network.injector
        self.scenario = scenario
        longest_s = predicted.end_s if scenario.updates else predicted.longest_s
        self.limit_s = _limit_s(scenario, longest_s, scenario.dilation)
        """Timeout of a round, in real seconds."""
        self.startup_s = startup_limit_s(scenario)
        # The server may measure its passes first.
        self.ready_s = self.startup_s + computing_limit_s(scenario)
        self.traces: Path | None = None
        """Folder for the events of QUIC connections."""
        self._counters: Report | None = None
        self._logged = 0
        """Records of the radio's log that belong to earlier rounds."""
        self.lost_hosts: list[HostLost] = []
        """Hosts that were lost between rounds, since the last one."""
        self.shape = network.shape
        is_kept = scenario.emulation.connection == "kept" and network.radio is None
        # The adapters of an asynchronous round are sent one after the other.
        self.holds = is_kept and not scenario.updates
        """Whether links delay the broadcast until it is due; not if it opens connections, and not
        in ns-3's radio."""

    @property
    def counters(self) -> Report:
        """The injector's report at the last `account`, with the counters of the links."""
        assert self._counters is not None
        return self._counters

    def capture(self, *, headers_only: bool) -> None:
        """Capture every link from now on, and record the events of QUIC connections."""
        self.network.capture(headers_only=headers_only)
        if self.scenario.emulation.transport_kind.writes_qlog:
            self.traces = self.network.folder / "qlog"

    @contextlib.contextmanager
    def ends(self, trial: Probes) -> Iterator[Transfer]:
        """The programs of the run as the ends of a calibration's transfers."""

        def transfer(clock: EmulatedClock) -> list[Received]:
            self.nodes.send(BS, ProbeLinks(trial.probes, clock))
            for node in uavs(self.scenario.uavs.count):
                own = tuple(probe for probe in trial.probes if probe.client == node.client)
                self.nodes.send(node, ProbeLinks(own, clock))
            reports = self.nodes.collect(Probed, self.nodes.alive, TIMEOUT_S + trial.lasts_s)
            return [row for report in reports.values() for row in report.received]

        yield transfer

    def impair(self) -> pd.DataFrame | None:
        """Apply delay and loss from now on; returns the accounts of the reconnection, if any.

        Connections that were calibrated have measured links without delay, so they are opened
        again.
        """
        if not self.network.impair():
            return None
        self._connect(range(1, self.scenario.uavs.count + 1))
        return self.account(SET_UP)

    def account(self, round_: int) -> pd.DataFrame:
        """The accounts since the last call, taken while the links are idle.

        Programs may send frames on their own at any time, as gRPC does to measure the link:
        accounts and counters fit together only if no frame was sent while the accounts were
        collected.

        Args:
            round_: Round of the accounts.
        """
        time.sleep(REST_S)
        report = self.injector.report()
        sent: list[tuple[str, int, Counts]] = []
        for _ in range(REST_TRIES):
            self.nodes.send_all(CountFrames())
            frames_sent = self.nodes.collect(FramesSent, self.nodes.alive, ANSWER_TIMEOUT_S)
            sent += [
                ("down" if node.is_bs else "up", client, counts)
                for node, message in frames_sent.items()
                for client, counts in message.frames
            ]
            now = self.injector.report()
            rested = (now.uplink, now.downlink) == (report.uplink, report.downlink)
            # The first report contains the slots that were set.
            report = replace(
                report, uplink=now.uplink, downlink=now.downlink, asked_ns=now.asked_ns
            )
            if rested:
                break
        before, self._counters = self._counters, report
        table = account(round_, sent, self.scenario.emulation.transport)
        return completed(table, round_, before, report, self.shape)

    def set_up(self, learning: dict[str, Any] | None) -> None:
        """Send every node its settings, and wait until all are connected over the links."""
        clients = self.scenario.uavs.count
        settings = transport_settings_of(
            self.scenario,
            max(self.limit_s, self.ready_s),
            self.startup_s,
            qlog=self.traces is not None,
        )
        credit_s = self.shape.credit_s
        of_bs = learning and learning | place(self.scenario.base_station)
        mac_orders = self.scenario.radio.lte.downlink_order == "mac"
        self.nodes.send(
            BS, SetUpBaseStation(settings[0], credit_s, of_bs, self.scenario.scheme, mac_orders)
        )
        of_uav = learning and learning | place(self.scenario.uavs)
        for node in uavs(clients):
            order = SetUpUav(node.client, settings[node.client], credit_s, of_uav)
            self.nodes.send(node, order)
        self._connect(range(1, clients + 1))

    def _connect(self, clients: Sequence[int]) -> None:
        """Connect UAVs to the base station, over links that are all good for the moment."""
        count = self.scenario.uavs.count
        clear_channel, equal = np.full((count, 1), 1e-9), np.full(count, 1 / count)
        shares = replace(fixed_allocation(self.scenario), beta=equal, rho=equal)
        radio = of_gains(self.scenario)
        rates = radio.link_rates(shares, clear_channel, in_turns=False)
        self.network.open_links(rates.uplink)
        port = next(self.ports)
        self.nodes.send(BS, Accept(tuple(clients), ("0.0.0.0", port)))
        self.nodes.collect(Listening, [BS], self.startup_s)
        for client in clients:
            self.nodes.send(uav(client), Connect((link_addresses(client)[0], port)))
        self.nodes.collect(Connected, [BS, *map(uav, clients)], self.startup_s)
        self.injector.pause()
        self.linked |= set(clients)

    def play(self, round_: StagedRound, channel: Channel, progress: Progress) -> RoundRecord:
        """Play one round: send orders, set rates, collect reports.

        Raises:
            RunEnds: A planned fault ends the run before the round is over.
            RunError: A node or link failed, or a timeout expired.
        """
        scenario, plan, injector = self.scenario, round_.link_plan, self.injector
        slot_s, dilation = channel.slot_s, scenario.dilation
        faults = round_.faults
        node_faults = NodeFaults(self.nodes, round_.index, round_.start_s, faults)
        times = simulate_on(
            scenario, plan, round_.radio, channel, round_.start_s, faults, tcp=round_.tcp
        )
        expected = round_of(round_.index, plan, times)
        of_round = decided(scenario, plan.allocation)
        limit_s = max(self.limit_s, _limit_s(of_round, expected.latency_s, dilation))
        first = math.floor(round_.start_s / slot_s + 1e-9)
        table = RoundRates(
            *(plan, round_.radio, channel, first, faults, round_.tcp, dilation, self.network.radio),
            power_share(scenario, plan.allocation),
        )
        table.grow(math.ceil(times.end_s / slot_s) + SPARE_SLOTS)

        def add_fault(fault: Fault) -> RoundFaults:
            nonlocal round_
            round_ = round_.with_fault(round_, fault)
            assert round_.faults is not None
            table.add_fault(round_.faults)
            table.give(injector)
            return round_.faults

        node_faults.handle_host_losses(add_fault, scenario.faults.loss_timeout_s)
        rejoined = self._rejoin(round_.clients)
        nodes = self._alive([BS, *map(uav, round_.clients)])
        self._order(round_, table, node_faults)
        table.give(injector)
        # Nothing is broadcast in an asynchronous round.
        injector.phase(1 if plan.updates else 0)
        # Earlier work of the injector, e.g. to connect nodes, does not belong to the round.
        links_before = injector.report()
        before = Machines.now(self.nodes.world)
        clock = EmulatedClock(next_tick() + round(LEAD_S * 1e9), round_.start_s, dilation)
        sizes = plan.sm_bytes.tolist() if self.holds else []
        injector.epoch(clock, slot_s, last_frames(sizes, self.shape), sizes)
        for node in nodes:
            self.nodes.send(node, Begin(clock))
        # After the end of an asynchronous run, updates that are in progress are finished.
        node_faults.follow(clock, expected.end_s if plan.updates else math.inf)
        if self.observer is not None:
            rates, position_m = table.rates, channel.now.position_m
            self.observer.begin(expected, clock, first, rates.uplink, rates.gradient, position_m)

        text = which_round(round_.index, scenario.rounds)
        if plan.updates and scenario.rounds > 1:
            text = f"rounds 0–{scenario.rounds - 1}"

        def watch() -> None:
            progress(text, clock.now() - round_.start_s, expected.latency_s)
            for event in injector.events():
                if isinstance(event, Low):
                    table.grow(table.end + SPARE_SLOTS)
                    table.give(injector)

        self.nodes.collect(Started, [BS], limit_s, watch)
        injector.phase(1)
        reports = self.nodes.collect(RoundReport, self._alive(nodes), limit_s, watch)
        self.nodes.on_lost = self.lost_hosts.append
        bs = reports[BS]
        assert isinstance(bs, BaseStationReport)
        reports = node_faults.reports(reports)
        injector.pause()
        cpu_s = {node: report.cpu_s for node, report in reports.items()}
        machine, elsewhere = before.passed(self.nodes.world, cpu_s)
        accounts = self.account(round_.index)
        if self.network.capturing and round_.is_last:
            self.network.end_capture(self.counters.asked_ns)
            if self.traces is not None:
                self.nodes.send_all(AskTraces())
                traces = self.nodes.collect(Traces, self.nodes.alive, ANSWER_TIMEOUT_S)
                qlog.write(self.traces, traces)
        lost = node_faults.lost(bs.lost)
        measured = with_flight(scenario, _measured(round_, reports, lost), channel.now)
        if round_.flown is not None:
            round_ = round_.flown(round_, measured.end_s)
        if round_.faults is not None:
            counted = [loss for loss in lost if loss.lost_s <= measured.end_s]
            round_.faults.check(round_.index, measured.end_s, counted)
        self.linked -= {loss.client for loss in lost}
        if self.observer is not None:
            self.observer.finished(measured)
        learns = scenario.workload.compute == "real"
        radio_log = self._radio_log(clock, table)
        budget, made_of = table.retry_until_channel_suffices(
            lambda: self._explained(round_, measured, accounts, table, clock, radio_log)
        )
        record = RoundRecord(
            decision=round_.decision,
            predicted=round_.predicted,
            predicted_wire=round_.predicted_wire,
            measured=measured,
            transfers=transfer_errors(
                measured,
                round_.real(plan, measured, scenario.emulation),
                round_.radio,
                table.gain,
                slot_s,
                table.tcp,
                radio_log,
                accounts,
            ),
            grants=None
            if radio_log is None
            else grants(measured, radio_log, slot_s, scenario.uavs.count),
            cells=None
            if radio_log is None
            else cells(radio_log, slot_s, slots_in(measured, slot_s)),
            handovers=None if radio_log is None else handovers(radio_log),
            rates=table.frame(measured),
            injector=self._changes(table),
            links=self.counters,
            air=frame_loss.by_slot(round_.index, first, slot_s, links_before, self.counters)
            if self.shape.impaired
            else None,
            resource_blocks=resource_blocks(
                measured,
                round_.radio,
                table.gain,
                slot_s,
                plan.allocation,
                in_turns=plan.in_turns,
            )
            if isinstance(round_.radio, Cellular)
            else None,
            machine=machine,
            elsewhere=elsewhere,
            accounts=accounts,
            rejoined=rejoined,
            overruns_s=[late_s for report in reports.values() for late_s in report.overruns_s],
            learning=learning_table(round_.index, bs, reports) if learns else None,
            passes={"split": measured.common_split, **bs.notes} if learns else None,
            budget=budget,
            waterfall={part: sum(each[part] for each in made_of) for part in made_of[0]},
        )
        if not plan.updates:
            return record
        sessions = (
            (record.predicted, round_.payload_plan),
            (record.predicted_wire, plan),
            (record.measured, plan),
        )
        predicted, wire, found = (rounds_of(each, of, round_.radio) for each, of in sessions)
        parts = predicted, wire, found, budget.of_rounds, made_of
        played = [PlayedRound(*of_round) for of_round in zip(*parts, strict=True)]
        return in_rounds(record, played, self._evaluations(bs.kept, plan.updates_per_round))

    def _evaluations(
        self, kept: Sequence[tuple[int, float, int]], updates_per_round: int
    ) -> pd.DataFrame | None:
        """Evaluate the states that were kept in an asynchronous run; None: there are none."""
        states: dict[int, Evaluated] = {}
        tables = []
        for updates, time_s, state in kept:
            if state not in states:
                states[state] = self.evaluate(state)
            index = (updates - 1) // updates_per_round
            tables.append(evaluation_table(index, time_s, states[state]))
        return whole_table(tables) if tables else None

    def _alive(self, nodes: Sequence[NodeId]) -> list[NodeId]:
        return [node for node in nodes if node not in self.nodes.killed]

    def _rejoin(self, clients: Sequence[int]) -> pd.DataFrame | None:
        """Reconnect clients that were lost and take part again; returns the accounts."""
        back = [k for k in clients if k not in self.linked and uav(k) not in self.nodes.killed]
        if not back:
            return None
        self._connect(back)
        return self.account(SET_UP)

    def _order(self, round_: StagedRound, table: RoundRates, node_faults: NodeFaults) -> None:
        plan = round_.link_plan
        modelled = self.scenario.workload.compute_time == "modelled"
        terms = [
            RoundTerms(
                round_.index,
                split,
                iterations,
                sizes,
                modelled,
                plan.updates,
                plan.paradigm.asks,
                self.scenario.workload.asynchronous.buffer,
                plan.starts_after > 1,
            )
            for split, iterations, sizes in zip(
                plan.allocation.splits.tolist(),
                plan.iterations_of.tolist(),
                round_.sizes,
                strict=True,
            )
        ]
        differ = len(set(terms)) > 1
        credits_ = credits_of(plan, table.rates, self.shape, self.scenario.dilation)
        self.nodes.send(
            BS,
            ServeRound(
                terms[0],
                tuple(round_.clients),
                tuple(plan.s_s[:, 0].tolist()),
                _first_gradients(plan, table),
                live=self.observer is not None,
                faults=node_faults.of_bs(),
                each=tuple(terms) if differ else (),
                held=self.holds,
                ahead=ahead_of(plan, table.rates, table.first, table.slot_s),
                may_lose=self.nodes.may_lose_hosts,
                keeping=keeping(self.scenario),
                credits=tuple(credits_),
                links=links_at(self.scenario, plan, round_.radio, table),
            ),
        )
        alive = self._alive([uav(client) for client in round_.clients])
        for node in alive:
            cf_s, cb_s = (float(steps_s[node.index, 0]) for steps_s in (plan.cf_s, plan.cb_s))
            faults = node_faults.of_uav(node.client)
            reports_steps = self.nodes.may_lose_hosts
            order = JoinRound(
                *(terms[node.index], cf_s, cb_s, plan.backward_ratio, faults, reports_steps),
                credits_[node.index],
            )
            self.nodes.send(node, order)
        self.nodes.collect(Ready, [BS, *alive], self.ready_s)

    def _changes(self, table: RoundRates) -> pd.DataFrame:
        """When the injector changed the rates of each slot: slot, boundary_s, lateness_s."""
        return pd.DataFrame(
            {
                "slot": self.counters.slot,
                "boundary_s": self.counters.slot * table.slot_s,
                "lateness_s": self.counters.lateness_s,
            }
        )

    def _explained(
        self,
        round_: StagedRound,
        measured: Round,
        accounts: pd.DataFrame,
        table: RoundRates,
        clock: EmulatedClock,
        radio_log: RadioLog | None,
    ) -> tuple[Budget, list[dict[str, float]]]:
        """The error budget and waterfalls, with the rates as they actually changed."""
        slots = self.counters
        boundaries_s = np.array([clock.at(int(ns)) for ns in slots.done_ns], dtype=np.float64)
        later = slots.slot > table.first
        edges_s = np.arange(table.gain.shape[1] + 1, dtype=np.float64) * table.slot_s
        edges_s[slots.slot[later]] = boundaries_s[later]
        budget = error_budget(
            round_.predicted,
            measured,
            round_.payload_plan,
            round_.link_plan,
            round_.radio,
            table.gain,
            table.slot_s,
            # ns-3 changes the channel at the boundaries of its own clock.
            edges_s if self.network.radio is None else None,
            round_.faults,
            table.tcp,
            self._clocks_ahead_s(),
            radio_log,
            accounts,
            round_.real(round_.link_plan, measured, self.scenario.emulation)
            if any(sizes.varying for sizes in round_.sizes)
            else None,
        )
        made_of = waterfalls(
            measured,
            round_.real(round_.payload_plan, measured),
            accounts,
            round_.radio,
            table.gain,
            table.slot_s,
            edges_s,
            charges_headers=self.scenario.emulation.rate_counts == "frame",
            faults=round_.faults,
            tcp=table.tcp,
            radio_log=radio_log,
        )
        return budget, made_of

    def _radio_log(self, clock: EmulatedClock, table: RoundRates) -> RadioLog | None:
        """Records of the radio's log since the last call; None if no scheduler of ns-3 grants
        blocks."""
        if self.network.radio is None or self.scenario.radio.kind.cell is None:
            return None
        records = read_log(self.network.folder / LOG, self.scenario.uavs.count, self._logged)
        self._logged += len(records)
        out_s = outages(table.rates, table.first, table.slot_s)
        times = grant_times(self.scenario)
        return RadioLog(records, clock.at, self.scenario.emulation.mtu, out_s, times)

    def _clocks_ahead_s(self) -> npt.NDArray[np.float64] | None:
        """Error of the nodes' clocks relative to the assumed ones, positive if ahead, shape [1 +
        K]."""
        ahead_s = self.nodes.world.clocks_ahead_s()
        if not ahead_s:
            return None
        nodes = [BS, *uavs(self.scenario.uavs.count)]
        return np.array([ahead_s[node] for node in nodes]) / self.scenario.dilation

    def state(self) -> bytes:
        """The global state, from the base station, as a safetensors file, with the tensors that
        stay with UAVs."""
        self._gather()
        self.nodes.send(BS, Save())
        return self.nodes.collect(Saved, [BS], ANSWER_TIMEOUT_S)[BS].state

    def evaluate(self, kept: int = -1) -> Evaluated:
        """Loss, accuracy and samples of the global state, or of one that was kept, on held-out
        data."""
        self._gather()
        self.nodes.send(BS, Evaluate(kept))
        return self.nodes.collect(Evaluated, [BS], self.limit_s)[BS]

    def restore(self, state: bytes) -> None:
        """Restore a global state at the base station, and the tensors that stay with UAVs there."""
        keeping = self._keeping()
        for node in (BS, *keeping):
            self.nodes.send(node, Restore(state))
        self.nodes.collect(Restored, [BS, *keeping], ANSWER_TIMEOUT_S)

    def _keeping(self) -> list[NodeId]:
        """The UAVs that keep a part of the model and are alive."""
        workload = self.scenario.workload
        stays = workload.compute == "real" and workload.stays_at_clients
        all_ = uavs(self.scenario.uavs.count) if stays else []
        return [node for node in all_ if node in self.nodes.alive]

    def _gather(self) -> None:
        """Send the tensors of UAVs to the base station, which evaluates and saves them."""
        keeping = self._keeping()
        if not keeping:
            return
        for node in keeping:
            self.nodes.send(node, Save())
        saved = self.nodes.collect(Saved, keeping, ANSWER_TIMEOUT_S)
        for node in keeping:
            self.nodes.send(BS, TakeOwn(node.client, saved[node].state))
            self.nodes.collect(Restored, [BS], ANSWER_TIMEOUT_S)

    def stop(self) -> None:
        """Ask every node to end."""
        self.nodes.send_all(Stop())


def _limit_s(scenario: Scenario, predicted_s: float, dilation: float) -> float:
    """Timeout of a round that is predicted to last this long, in real seconds."""
    return 60 + 3 * predicted_s * dilation + computing_limit_s(scenario)


def _first_gradients(plan: RoundPlan, table: RoundRates) -> FirstGradients | None:
    """τ'_SG(0) of every slot that has rates; None where no order needs it."""
    if not plan.paradigm.asks_for_first_gradient:
        return None
    seconds = first_gradient_s(plan, table.rates.gradient)
    return FirstGradients(table.first, table.slot_s, tuple(map(tuple, seconds.tolist())))


def _measured(
    round_: StagedRound, reports: Mapping[NodeId, RoundReport], lost: Sequence[Loss]
) -> Round:
    """The measured round, from the reports of its nodes."""
    steps = {
        (client, iteration, STEPS.index(step)): rest
        # A step that one node reports as unfinished may have ended for the other.
        for noted in (
            *(report.going for report in reports.values()),
            *(report.spans for report in reports.values()),
        )
        for client, iteration, step, *rest in noted
    }
    spans = np.array([(*step, *rest) for step, rest in steps.items()], dtype=SPAN)
    return round_of_spans(
        round_.index,
        round_.link_plan,
        round_.radio,
        round_.start_s,
        cut(spans, lost, round_.start_s),
        lost,
        round_.faults,
    )
