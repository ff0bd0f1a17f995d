# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The same command run again in virtual time, as `emulation.clock: virtual` asks for."""

import shutil
import sys
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path

import typer

from orchestrator.cli.console import shown
from orchestrator.scenario.schema import Scenario
from testbed.system import inside


def enter(
    scenario: Scenario,
    unit: str,
    *,
    trace: Path | None = None,
    plays_rounds: bool = True,
    live: bool = False,
    holding: AbstractContextManager[object] | None = None,
) -> None:
    """Where the scenario asks for virtual time, run this command in it and exit as it does.

    Returns where it does not, or where this is virtual time already.

    Args:
        scenario: As the command has read it.
        unit: Of the command's progress.
        trace: What it replays.
        plays_rounds: Whether it does.
        live: Whether to serve a page that shows how the run stands.
        holding: Entered here for as long as the guest lasts: its own locks hold inside alone.

    Raises:
        InputError: There is no kernel.
        RunError: The guest failed.
        typer.Exit: With the status of the command inside.
    """
    if scenario.emulation.clock == "real" or inside.guest_settings() is not None:
        return
    from orchestrator.emulated.guests import kernel, play
    from orchestrator.emulated.virtual import prepare

    found = kernel()
    if plays_rounds:
        prepare(scenario, trace)
    told = {
        "columns": shutil.get_terminal_size().columns,
        "colour": sys.stdout.isatty(),
    }
    argv = [sys.executable, "-P", "-m", "orchestrator.cli.inside", *sys.argv[1:]]
    with ExitStack() as held:
        held.enter_context(holding or nullcontext())
        show = None
        if live:
            from orchestrator.reporting.live import mirror

            show = held.enter_context(mirror(scenario)).show
        progress = held.enter_context(shown(unit))
        learns = plays_rounds and scenario.workload.compute == "real"
        done = play(found, argv, told=told, learns=learns, progress=progress, show=show)
    raise typer.Exit(done.status)
