# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A session: links that follow the channel, and programs that users start in its nodes.

Nodes are sandboxes (`testbed.runtimes.Sandbox`) with a network and folders, but without programs.
Links are closed until emulated time 0. The commands of a session are held until all of them are
ready, and then start together shortly before that time; from then on the injector plays a table of
rates, and counts the bytes of each slot. One thread provides rates, reads
the counters, handles the exit of programs, and serves visitors from other shells (`visits.py`). All
other threads start programs and wait.
"""

import logging
import math
import os
import select
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import pandas as pd

from ns3_scenarios.errors import ChannelError
from orchestrator.emulated.network import EmulatedNetwork
from orchestrator.emulated.options import SessionOptions
from orchestrator.emulated.programs import (
    Program,
    environment_of,
    exceeded_memory,
    hosts_of,
    image_of,
    shown_to,
    writable_of,
)
from orchestrator.emulated.rate_feed import SessionRates
from orchestrator.emulated.session_calibration import choices, ends, gap_s
from orchestrator.emulated.session_notes import (
    dilation_notes,
    early_notes,
    endless_notes,
    late_notes,
    limit_notes,
    outage_notes,
    too_early_notes,
)
from orchestrator.emulated.session_request import downlink_of
from orchestrator.emulated.session_table import Recorder
from orchestrator.emulated.steering import Steering
from orchestrator.emulated.visits import Visits
from orchestrator.engine.access import LinkRates
from orchestrator.engine.links import shape_of
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.schema import ResolvedScenario
from testbed.control.stream import HasFileno
from testbed.core.clock import EmulatedClock, next_tick
from testbed.core.errors import RunError
from testbed.core.node import BS, NodeId, uavs
from testbed.core.progress import Progress, silent
from testbed.network.injector import Report
from testbed.network.pacing import paced_links
from testbed.network.shaping import WITHOUT_CREDIT_S
from testbed.runtimes import Command, Ended, NodeSpec, Sandbox
from testbed.system.machine import Machine

log = logging.getLogger(__name__)

# In real seconds:
LEAD_S = 0.8
"""Time from the start of the commands to emulated time 0, so that servers listen by then. TCP would
repeat the request for a connection after 1 s, and then begin with a window of one packet."""
VIRTUAL_LEAD_S, A_UAV_S = 0.2, 0.02
"""The same in virtual time, where starting takes no time, and its increase per UAV."""
ROUND_S = 0.1
"""Polling interval of the session's thread."""
COUNT_EVERY_S = 1.0
"""Interval between readings of the injector's counters."""
COUNTED_S = 0.05
"""Time after a slot boundary until its counters are available."""
LOG_BYTES = 100 << 20
"""Size of a node's log; what its programs print after that is dropped once a second."""
GRACE_S = 2.0
"""Time between SIGTERM and SIGKILL."""

End = Literal["commands", "time", "trace", "interrupted"]
"""Why a session ended: its commands ended, its time was over, the trace ended, or it was
interrupted."""


class Session:
    """A running session, made by `opened`."""

    def __init__(
        self,
        network: EmulatedNetwork,
        options: SessionOptions,
        feed: SessionRates,
        recorder: Recorder,
        commands: Mapping[NodeId, Sequence[str]],
    ):
        self.network = network
        self.scenario = network.scenario
        self.folder = network.folder
        self.options = options
        self.recorder = recorder
        self.programs: list[Program] = []
        """All programs, in the order in which they were started."""
        self.report: Report
        """Report of the injector, once the session is over."""
        self.machine: Machine
        """Load of this machine during the session."""
        self._world = network.world
        self._feed = feed
        self._early: list[str] = []
        if can_pace(self.scenario, options):
            self._early = early_notes(network.shape, feed.ahead(), self.scenario.dilation)
        self._late: list[str] = []
        self._full: set[NodeId] = set()
        """Nodes whose logs have reached `LOG_BYTES`."""
        homes = [self.home(node) for node in uavs(self.scenario.uavs.count)]
        self.steering = Steering.of(self.scenario, feed, homes)
        """The UAVs that programs fly; None: there are none."""
        self._running: dict[int, Program] = {}
        self._news = threading.Condition()
        self._counting = threading.Lock()
        self._failure: RunError | None = None
        self._interrupted = False
        self._closing = False
        self._end_slot: int | None = None
        """Number of the slot after the last one that counts."""
        for node, argv in commands.items():
            self.start(node, argv, given=True, held=True)
        self.clock = self._begin()
        self._world.release(self.epoch_ns)
        for program in self.programs:
            program.started_ns = time.monotonic_ns()
        self._before = Machine.now()
        self._visits = Visits(self.folder, self.scenario, self.home, self.start)
        self._thread = threading.Thread(target=self._serve, name="session", daemon=True)
        self._thread.start()

    def _begin(self) -> EmulatedClock:
        injector, dilation, slot_s = self._world.injector, self.scenario.dilation, self._feed.slot_s
        lead_s = LEAD_S
        if self.scenario.emulation.clock == "virtual":
            lead_s = min(LEAD_S, VIRTUAL_LEAD_S + A_UAV_S * self.scenario.uavs.count)
        lead_s /= dilation
        self._feed.open_up(injector)
        injector.epoch(EmulatedClock(time.monotonic_ns(), 0.0, dilation), slot_s)
        self._feed.lead_in(injector, math.ceil(lead_s / slot_s))
        injector.pause()  # Slots of the calibration must not be counted.
        injector.watch()
        clock = EmulatedClock(next_tick(), -lead_s, dilation)
        injector.epoch(clock, slot_s)
        return clock

    @property
    def epoch_ns(self) -> int:
        """Monotonic time of emulated time 0 in ns."""
        return self.clock.monotonic_ns(0.0)

    @property
    def calibration(self) -> pd.DataFrame | None:
        """See `EmulatedNetwork.calibration`."""
        return self.network.calibration

    @property
    def reacts(self) -> bool:
        """Whether the flight depends on the session."""
        return self._feed.channel.horizon is not None

    @property
    def notes(self) -> list[str]:
        """Remarks on facts that the results do not show, one line each; complete after the end."""
        late = []
        if self._closing:
            early = [p.node for p in self.programs if p.given and p.ended_before(self.epoch_ns)]
            late = [
                *outage_notes(self._feed, self.recorder.totals),
                *([] if self.steering is None else self.steering.notes),
                *too_early_notes(early),
                *(str(program) for program in self.programs if program.exceeded),
                *endless_notes(),
            ]
        full = [
            f"{node}: its programs printed more than {LOG_BYTES >> 20} MiB; the rest is not in "
            f"logs/{node}.log"
            for node in sorted(self._full)
        ]
        before = [*dilation_notes(self.scenario), *limit_notes(self.scenario), *self._early]
        return [*before, *self._late, *late, *full]

    @property
    def over(self) -> bool:
        """Whether the session is being closed, or has been."""
        return self._closing

    def home(self, node: NodeId) -> Path:
        """The home folder of a node."""
        return self.folder / "nodes" / str(node)

    def start(
        self,
        node: NodeId,
        argv: Sequence[str],
        files: tuple[int, int, int] | None = None,
        *,
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
        terminal: bool = False,
        given: bool = False,
        held: bool = False,
    ) -> Program:
        """Start a program in a node.

        Args:
            node: Node of the program.
            argv: The program and its arguments.
            files: Its standard files, which remain open here. Default: no input, and the node's
                log.
            env: Variables in addition to those of the node.
            folder: Working directory of the program. Default: that of this process.
            terminal: Whether its standard input is a terminal that becomes its controlling
                terminal.
            given: Whether its exit status decides on the success of the session.
            held: Whether it starts only once the session begins.

        Raises:
            InputError: The command is too long.
            RunError: The session has failed, or is over.
        """
        image = image_of(self.scenario, node)
        epoch_ns = None if held else self._world.moment_at(node, self.epoch_ns)
        far = bool(self._world.places)
        own = environment_of(node, self.home(node), epoch_ns, image=image, far=far)
        if self.steering is not None:
            own |= self.steering.environment(node)
        own |= dict(self.scenario.programs_of(node).env) | dict(env or {})
        where = folder or Path.cwd()
        shown = tuple(shown_to(argv, own, where))
        command = Command(node, tuple(argv), own, where, shown, terminal, held=held)
        program = Program(node, argv, given)
        with ExitStack() as opened:
            if files is None:
                log_file = opened.enter_context((self.folder / "logs" / f"{node}.log").open("ab"))
                nothing = opened.enter_context(Path(os.devnull).open("rb"))
                files = nothing.fileno(), log_file.fileno(), log_file.fileno()
            with self._news:
                self.check()
                if self._closing:
                    raise RunError("the session is over")
                program.start(self._world, command, files)
                self._running[program.number] = program
                self.programs.append(program)
        return program

    def check(self) -> None:
        """Check that the session has not failed.

        Raises:
            RunError: The session has failed; the message gives the reason.
        """
        if self._failure is not None:
            raise self._failure

    def interrupt(self) -> None:
        """Make `play` return; for signal handlers."""
        self._interrupted = True

    def play(
        self,
        until_s: float | None = None,
        awaited: Sequence[Program] = (),
        progress: Progress = silent,
    ) -> End:
        """Wait while the session runs.

        Args:
            until_s: Emulated time at which to return.
            awaited: Programs; the method returns once all have ended.
            progress: Called with the progress.

        Returns:
            The reason of the return.

        Raises:
            RunError: The session failed.
        """
        while True:
            now_s = self.clock.now()
            ends_s = math.inf if self._feed.slots is None else self._feed.slots * self._feed.slot_s
            with self._news:
                self.check()
                if self._interrupted:
                    return "interrupted"
                if awaited and all(program.returncode is not None for program in awaited):
                    return "commands"
                if until_s is not None and now_s >= until_s:
                    return "time"
                if now_s >= ends_s:
                    return "trace"
                left_s = min(until_s or math.inf, ends_s) - now_s
                self._news.wait(min(ROUND_S, left_s * self.scenario.dilation))
            progress("session", now_s, max(0.0, now_s) if until_s is None else until_s)

    def close(self, end_s: float | None = None) -> None:
        """End the session: finish the current slot, end all programs, remove the network.

        Args:
            end_s: Emulated time up to which slots count. Default: the end of the current slot.
        """
        if self._closing:
            return
        slot_s = self._feed.slot_s
        end = math.ceil((self.clock.now() if end_s is None else end_s) / slot_s - 1e-9)
        if self._feed.slots is not None:
            end = min(end, self._feed.slots)
        try:
            with self._news:
                self._end_slot = max(0, end)
                self._closing = True
                self.check()
            due_ns = self.clock.monotonic_ns(self._end_slot * slot_s) + round(COUNTED_S * 1e9)
            time.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
            self._stop_programs()
            self.network.end_capture(time.time_ns())
            self._finish_thread()
            self.check()
            self.count()
            self._limit_logs()
            self.report = self.network.injector.report()
            if self.network.shape.paced:
                self._late = late_notes(self.report)
            self.machine = Machine.now().since(self._before, 0.0)
        finally:
            self._finish_thread()
            self.network.close()
            self.recorder.close()
            if self.steering is not None:
                self.steering.close()
            self._give_up_programs()

    def count(self) -> None:
        """Add the counted slots to the table; there are none after the end of a trace."""
        end = self._feed.slots if self._end_slot is None else self._end_slot
        with self._counting:
            self.recorder.take(self._world.injector.samples(), end)

    def _stop_programs(self) -> None:
        """Send SIGTERM to all programs, and SIGKILL after the grace period."""
        for how in ("terminate", "kill"):
            with self._news:
                for program in self._running.values():
                    program.stopped = True
                    getattr(program, how)()
                self._news.wait_for(lambda: not self._running or self._failure, GRACE_S)

    def _give_up_programs(self) -> None:
        """Mark running programs as ended; their exit status is unknown."""
        for program in self._running.values():
            program.over(None)
        self._running.clear()

    def _finish_thread(self) -> None:
        self._visits.close()
        self._thread.join()

    # The following methods run in the session's thread.

    def _serve(self) -> None:
        try:
            counted_s = time.monotonic()
            while not self._visits.closed:
                heard: list[HasFileno] = [self._world, *self._visits.files]
                ready = _readable(heard, min(ROUND_S, max(self._next_slot_s(), 0.0)))
                if self._world in ready:
                    self._handle_events()
                self._visits.serve(ready)
                self._follow()
                if time.monotonic() - counted_s >= COUNT_EVERY_S:
                    counted_s = time.monotonic()
                    self.count()
                    self._limit_logs()
        except Exception as error:  # The thread has no caller.
            known = isinstance(error, (RunError, ChannelError, OSError))
            with self._news:
                self._failure = RunError(
                    str(error) if known else f"{type(error).__name__}: {error}"
                )
                self._give_up_programs()
                self._news.notify_all()
            self._visits.close()
        finally:
            self._visits.dismiss()

    def _next_slot_s(self) -> float:
        """Real seconds until `_follow` has something to do."""
        due_s = self._feed.due_s
        if self.steering is not None:
            due_s = min(due_s, self.steering.due_s)
        return (due_s - self.clock.now()) * self.scenario.dilation

    def _follow(self) -> None:
        """Make the slots that are due."""
        now_s = self.clock.now()
        self._feed.follow(self._world.injector, now_s)
        if self.steering is not None:
            self.steering.follow(now_s)

    def _limit_logs(self) -> None:
        """Cut logs that are too long; programs append to their ends."""
        for node in {program.node for program in self.programs}:
            path = self.folder / "logs" / f"{node}.log"
            with suppress(FileNotFoundError):  # Its programs have other files.
                if path.stat().st_size > LOG_BYTES:
                    os.truncate(path, LOG_BYTES)
                    self._full.add(node)

    def _handle_events(self) -> None:
        for news in self._world.news():
            if not isinstance(news, Ended):
                raise RunError(str(news))
            with self._news:
                program = self._running.pop(news.number)
                if news.out_of_memory:
                    program.exceeded = exceeded_memory(self.scenario, program.node)
                program.over(news.status)
                self._news.notify_all()
            self._visits.ended(program)


def _readable(files: Sequence[HasFileno], timeout_s: float) -> list[HasFileno]:
    """The files that can be read within a timeout; file descriptors may have any number."""
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    ready = {number for number, _ in poll.poll(1e3 * timeout_s)}
    return [file for file in files if file.fileno() in ready]


@contextmanager
def opened(
    scenario: ResolvedScenario,
    channel: Channel,
    folder: Path,
    options: SessionOptions,
    commands: Mapping[NodeId, Sequence[str]],
) -> Iterator[Session]:
    """A session that runs until the context ends.

    Args:
        scenario: Scenario of the network.
        channel: Channel of the scenario.
        folder: Existing output folder, which has no `nodes` yet.
        options: Options of the session.
        commands: Programs and their arguments, by node, all of which start shortly before slot 0.

    Raises:
        InputError: The network between hosts does not carry the demand of the links.
        RunError: This machine does not allow it, or the session failed.
    """
    folder = folder.resolve()
    shape = replace(
        shape_of(scenario, scenario.dilation, network=True),
        shared_downlink=downlink_of(scenario, options.downlink) == "shared",
    )
    feed = SessionRates(scenario, channel, shape)
    expected, shared = feed.ahead(), shape.shared_downlink
    if can_pace(scenario, options):
        # Programs of others do not make up for a credit of idle links.
        paced = paced_links(_highest(expected, scenario.dilation), shape)
        shape = replace(shape, burst_s=WITHOUT_CREDIT_S, paced=paced)
    with ExitStack() as cleanup:
        network = cleanup.enter_context(
            EmulatedNetwork.start(
                scenario,
                _specs(scenario, folder),
                shape,
                folder,
                expected,
                channel,
                in_turns=shared,
                hosts=options.hosts,
            )
        )
        feed.air = network.radio
        if scenario.emulation.calibrates:
            network.calibrate(
                expected,
                feed.slot_s,
                partial(ends, network),
                in_turns=shared,
                uplinks_in_turns=feed.radio.is_shared,
                gap_s=gap_s(shape),
                choices=choices(scenario),
            )
        network.impair()
        if options.capture:
            network.capture(headers_only=False)
        recorder = Recorder(
            feed,
            scenario.uavs.count,
            shape,
            folder / "session.parquet",
            keep=options.keep_rows,
        )
        cleanup.callback(recorder.close)
        session = Session(network, options, feed, recorder, commands)
        cleanup.pop_all()
    try:
        yield session
    finally:
        session.close()


def can_pace(scenario: ResolvedScenario, options: SessionOptions) -> bool:
    """Whether a process on this machine may carry the frames of links: in virtual time the kernel
    does this work, and ns-3 carries the frames itself."""
    emulation = scenario.emulation
    return options.hosts is None and emulation.clock == "real" and emulation.air != "ns3"


def _highest(expected: LinkRates, dilation: float) -> list[tuple[float, float]]:
    """The highest rates of each link's uplink and downlink, in real bit/s."""
    ways = expected.uplink, expected.gradient
    up, down = (way.max(axis=1) / dilation for way in ways)
    return list(zip(up.tolist(), down.tolist(), strict=True))


def _specs(scenario: ResolvedScenario, folder: Path) -> list[NodeSpec]:
    """The session's nodes without programs, each with a home folder and a log."""
    (folder / "logs").mkdir()
    names, specs = hosts_of(scenario), []
    for node in (BS, *uavs(scenario.uavs.count)):
        home = folder / "nodes" / str(node)
        home.mkdir(parents=True)
        programs = scenario.programs_of(node)
        writable = writable_of(programs.writable, f"nodes.{node}.writable")
        image = image_of(scenario, node)
        limits = (programs.cpus, programs.memory_bytes, programs.processes)
        sandbox = Sandbox(names, (home, *writable), image, *limits)
        specs.append(NodeSpec(node, sandbox, folder / "logs" / f"{node}.log"))
    return specs
