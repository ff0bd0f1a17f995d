# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed up`, `exec`: run any program on the emulated network."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli import completion
from orchestrator.cli.console import out, say, shown
from orchestrator.cli.options import (
    CommandWords,
    HostScheduler,
    Overrides,
    Overwrite,
    ScenarioFile,
    SchedulerKey,
    TraceFile,
    WaitQuiet,
    seconds_of,
)
from testbed.core.errors import InputError
from testbed.core.signals import ending_signals

if TYPE_CHECKING:
    from orchestrator.emulated.session import Session


class Downlink(StrEnum):
    """How downlinks share the cell."""

    dedicated = "dedicated"
    shared = "shared"


def up(
    scenario: ScenarioFile,
    output: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Session directory to create.",
            autocompletion=completion.folders,
        ),
    ],
    trace_file: TraceFile = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            min=0.001,
            metavar="S",
            help="Duration of the session, in seconds of emulated time.",
            show_default="until all commands have ended, or until Ctrl-C is pressed",
        ),
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option(
            "--node",
            metavar="NAME='COMMAND'",
            help="Run a command in a node: bs, uav1, uav2 and so on, or uav* for every UAV.",
        ),
    ] = None,
    until: Annotated[
        list[str] | None,
        typer.Option(
            "--until",
            metavar="NAME",
            help="End the session when the command of this node has ended.",
            show_default="when all commands have ended",
        ),
    ] = None,
    downlink: Annotated[
        Downlink | None,
        typer.Option(
            "--downlink",
            metavar="|".join(Downlink),
            help="Division of the downlink. dedicated: each UAV has its own shares of bandwidth "
            "and power. shared: a UAV that is receiving uses the full bandwidth and power.",
            show_default="shared if the scheduler of the cell is equal, otherwise dedicated",
        ),
    ] = None,
    capture: Annotated[
        bool,
        typer.Option(
            "--capture", help="Capture the frames of every link to pcap files in DIR/pcap."
        ),
    ] = False,
    live: Annotated[
        bool,
        typer.Option(
            "--live", help="Serve a web page that shows the links. Only this machine can access it."
        ),
    ] = False,
    scheduler: HostScheduler = None,
    key: SchedulerKey = None,
    wait_quiet: WaitQuiet = None,
    overrides: Overrides = None,
    overwrite: Overwrite = False,
) -> None:
    """Emulate the network and run your own commands in its nodes.

    Without `--node` and `--seconds`, the session runs until you press Ctrl-C.

    Examples:
        testbed up quickstart --seconds 10 --out runs/session
        testbed up quickstart --node bs='iperf3 -s -1' --node uav1='iperf3 -c bs' --out runs/iperf
    """
    from orchestrator import api
    from orchestrator.cli.printed_tables import validity_lines
    from orchestrator.cli.virtual import check_waits, enter
    from orchestrator.emulated.options import SessionOptions
    from orchestrator.emulated.visits import closed_to_visitors
    from orchestrator.scenario.combinations import check
    from testbed.host.quiet import wait_until_quiet

    wait_s = seconds_of(wait_quiet)
    parsed = api.load(scenario, overrides or [])
    named = node or any(programs.command for programs in parsed.nodes.values())
    if parsed.emulation.clock == "virtual" and seconds is None and not named:
        raise InputError(
            "--seconds: must be given where emulation.clock is 'virtual' and no node has a "
            "command: virtual time advances as fast as it can be computed"
        )
    if parsed.emulation.clock == "virtual" and live:
        raise InputError("--live: shows sessions in real time; emulation.clock is 'virtual'")
    if key is not None and scheduler is None:
        raise InputError("--key: needs --scheduler, which the key belongs to")
    check_waits(parsed, wait_s)
    of_hosts = () if scheduler is None else ("--scheduler", "up --scheduler")
    check(parsed, "run", "up", *of_hosts)
    if scheduler is not None and capture:
        raise InputError("--capture: links between machines are not captured")
    from orchestrator.emulated.session_request import downlink_of

    divided = downlink_of(parsed, None if downlink is None else downlink.value)
    alone = f"{output}: runs in virtual time (emulation.clock), without interactive access"
    holding = closed_to_visitors(output, alone)
    enter(parsed, "s", trace=trace_file, plays_rounds=False, holding=holding)
    if wait_s is not None:
        with shown("s") as show:
            wait_until_quiet(wait_s, show)
    stop = _Stop()
    with shown("s") as show:
        done = api.play_session(
            parsed,
            trace_file,
            output,
            _commands(node or []),
            SessionOptions(
                downlink=divided,
                seconds=seconds,
                capture=capture,
                overwrite=overwrite,
                scheduler=scheduler,
                key=key,
                progress=show,
                began=stop.watched if live else stop.stops,
            ),
            until or [],
        )
    for program in done.programs:
        log = output / "logs" / f"{program.node}.log"
        where = f" ({log})" if program.returncode and log.stat().st_size else ""
        out.print(f"{program}{where}", markup=False, highlight=False, soft_wrap=True)
    for line in done.notes:
        out.print(f"note: {line}", markup=False, highlight=False, soft_wrap=True)
    for line in validity_lines(done.checks, 1.0, "session"):
        out.print(line)
    out.print(f"session: {output}", markup=False, soft_wrap=True)
    if not done.as_asked:
        raise typer.Exit(128 + stop.signal if done.ended == "interrupted" else 1)


def _commands(given: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, equals, command = text.partition("=")
        if not equals:
            raise InputError(f"--node {text}: must be NAME='COMMAND'")
        if name in found:
            raise InputError(f"--node {name}: is given twice; a shell may run both: 'A & B; wait'")
        found[name] = command
    return found


class _Stop:
    """Ends a session in an orderly way on a first signal; a second one ends this process."""

    signal = 0

    @contextmanager
    def watched(self, session: "Session") -> Iterator[None]:
        """Stop the session on signals, and serve its live view, while the context lasts."""
        from orchestrator.reporting.live_session import watched

        with watched(session), self.stops(session):
            yield

    @contextmanager
    def stops(self, session: "Session") -> Iterator[None]:
        """Stop the session on signals while the context lasts."""

        def stop(number: int, _: Any) -> None:
            self.signal = number
            for known, handler in before.items():
                signal.signal(known, handler)
            session.interrupt()

        before = {number: signal.signal(number, stop) for number in ending_signals()}
        say("the network is up; Ctrl-C ends the session")
        for line in session.notes:
            say(f"note: {line}")
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def exec_(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Directory of a running session.",
            autocompletion=completion.folders,
        ),
    ],
    node: Annotated[
        str,
        typer.Argument(
            metavar="NODE",
            help="Name of the node: bs, uav1, uav2 and so on.",
            autocompletion=completion.words("bs", "uav1"),
        ),
    ],
    command: CommandWords = None,
) -> None:
    """Run a command in a node of a running session.

    Examples:
        testbed exec runs/session uav1
        testbed exec runs/session uav1 -- ping -c 3 bs
    """
    from orchestrator.emulated.terminal import lent
    from orchestrator.emulated.visits import visit

    argv = command or []
    if argv[:1] == ["--"]:
        argv = argv[1:]
    env = {name: os.environ[name] for name in ("TERM", "LANG") if name in os.environ}
    in_background = sys.stdin.isatty() and os.tcgetpgrp(0) != os.getpgrp()
    has_terminal = sys.stdin.isatty() and sys.stdout.isatty() and not in_background
    files = 0, 1, 2
    with ExitStack() as opened:
        if in_background:  # Reading from the terminal would suspend this process.
            files = opened.enter_context(Path(os.devnull).open()).fileno(), 1, 2
        elif has_terminal:
            terminal = opened.enter_context(lent())
            files = terminal, terminal, terminal if sys.stderr.isatty() else 2
        status = visit(folder, node, argv, files, env=env, terminal=has_terminal)
    raise typer.Exit(status if status >= 0 else 128 - status)
