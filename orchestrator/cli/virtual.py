# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Runs the same command again in virtual time, for scenarios with `emulation.clock: virtual`."""

import shutil
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import typer

from orchestrator.cli.console import has_width, release_stdout, shown
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.unused import say_unused
from testbed.core.errors import InputError
from testbed.system import inside


def check_waits(scenario: Scenario, wait_s: float | None) -> None:
    """Refuse to wait for a quiet machine where its load has no effect.

    Raises:
        InputError: `--wait-quiet` is given in virtual time.
    """
    if scenario.emulation.clock == "virtual" and wait_s is not None:
        raise InputError(
            "--wait-quiet: must be absent where emulation.clock is 'virtual': other programs have "
            "no effect there"
        )


def enter(
    scenario: Scenario,
    unit: str,
    *,
    trace: Path | None = None,
    plays_rounds: bool = True,
    live: bool = False,
    holding: AbstractContextManager[object] | None = None,
) -> None:
    """Run this command in virtual time, and exit with its status, if the scenario needs that.

    Returns if the scenario uses the real clock, or if this process already is in virtual time.

    Args:
        scenario: The scenario that the command has read.
        unit: Unit of the command's progress.
        trace: Channel trace that the scenario replays; it is described on stderr.
        plays_rounds: Whether the command emulates rounds.
        live: Whether to serve a live page of the run.
        holding: Entered for as long as the guest runs: locks taken inside are not seen outside.

    Raises:
        InputError: There is no kernel, or emulated links cannot play the radio.
        RunError: The guest failed.
            InputError: The kernel of virtual time is not built.
    """
    say_unused(scenario, "a run" if plays_rounds else "a session")
    if scenario.emulation.clock == "real" or inside.guest_settings() is not None:
        return
    from orchestrator.emulated.guests import kernel, play
    from orchestrator.emulated.virtual import prepare
    from orchestrator.engine.core_library import library
    from orchestrator.scenario.channel import open_source, read_trace
    from orchestrator.scenario.combinations import check
    from testbed.virtual import guest, warm

    check(scenario, "run")
    found = kernel()
    if plays_rounds:
        prepare(scenario, trace)
    else:
        library()  # A guest would need minutes to build it.
        if trace is not None:
            with open_source(scenario, trace):  # describes the trace, or refuses it
                pass
    words = sys.argv[1:]
    settings = {
        "columns": shutil.get_terminal_size().columns if has_width() else None,
        "colour": sys.stdout.isatty(),
    }
    argv = [sys.executable, "-P", "-m", "orchestrator.cli.inside"]
    emulation = scenario.emulation
    made_of: dict[str, Any] = {"memory": emulation.memory_bytes, "starts_ns": emulation.starts_ns}
    release_stdout()
    with ExitStack() as contexts:
        contexts.enter_context(holding or nullcontext())
        show = None
        if live:
            from orchestrator.reporting.live import mirror

            known = None if trace is None else read_trace(trace)
            show = contexts.enter_context(mirror(scenario, known)).show
        progress = contexts.enter_context(shown(unit))
        template = contexts.enter_context(warm.lent(found, argv, **made_of))
        runs: Callable[..., guest.Outcome]
        if template is None:
            runs = partial(guest.run, found, [*argv, *words], **made_of)
        else:
            guest.check_visible(words, Path.cwd())
            runs = template.run
            settings["words"] = words
        done = play(
            found,
            runs,
            settings=settings,
            learns=plays_rounds and scenario.workload.compute == "real",
            progress=progress,
            show=show,
        )
    raise typer.Exit(done.status)
