# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Commands and modules in virtual time, and the process that computes for their nodes."""

import io
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from orchestrator.records.manifest import cpu, invocation, program
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError, RunError
from testbed.core.progress import Progress, silent
from testbed.core.signals import exit_status, signal_name
from testbed.system import inside
from testbed.virtual import guest
from testbed.virtual.kernel import Kernel, find
from workloads.offload.host import answered, is_waited_for, rests_while_waiting

JOBS = "orchestrator.emulated.guest_jobs"
"""The program that does a job in a guest."""


def kernel() -> Kernel:
    """The kernel that virtual time needs.

    Raises:
        InputError: The kernel has not been built.
    """
    found = find()
    if found is None:
        raise InputError(
            "emulation.clock: 'virtual' needs a kernel, which is built once: `testbed kernel build`"
        )
    return found


def from_outside(scenario: Scenario) -> bool:
    """Whether the scenario needs virtual time, and this process is not in it."""
    return scenario.emulation.clock == "virtual" and inside.guest_settings() is None


def play(
    found: Kernel,
    run: Callable[..., guest.Outcome],
    *,
    settings: dict[str, Any],
    learns: bool,
    **options: Any,
) -> guest.Outcome:
    """Run a guest, next to a process outside that computes for its nodes.

    Args:
        found: See `kernel`.
        run: Runs a guest: `guest.run` with its command, or `guest.Template.run`.
        settings: Settings for `run`, in addition to the kernel.
        learns: Whether its nodes train a model.
        options: Further options of `run`.

    Raises:
        RunError: The guest failed.
    """
    settings = {
        **settings,
        "kernel": found.to_json(),
        "argv": invocation()["argv"],
        "host_cpu": cpu(),
        "program": program(),
    }
    with ExitStack() as beside:
        if learns:
            place = beside.enter_context(answered(guest.environment()))
            settings["computing"] = str(place)
            options["started"] = partial(rests_while_waiting, place)
            options["waits"] = partial(is_waited_for, place)
        return run(settings=settings, **options)


class _Kept(threading.local):
    """A template that outlives its runs. It ends with the thread that has started it."""

    wanted = False
    template: guest.Template | None = None


_kept = _Kept()


@contextmanager
def warm() -> Iterator[None]:
    """Within this context, jobs of this thread start as copies of one guest, where it fits them."""
    if _kept.wanted:
        yield
        return
    keep_warm()
    try:
        yield
    finally:
        end_warm()


def keep_warm() -> None:
    """As `warm`, until `end_warm` or the end of this thread."""
    _kept.wanted = True


def end_warm() -> None:
    """End the effect of `keep_warm` in this thread, and the guest that is kept."""
    _kept.wanted = False
    _forget()


def _forget() -> None:
    if _kept.template is not None:
        _kept.template.close()
        _kept.template = None


@contextmanager
def _template(found: Kernel, memory: int, starts_ns: int) -> Iterator[guest.Template]:
    """A guest that has imported the modules that jobs need. If its copy fails, it is not used
    again."""
    argv = [sys.executable, "-P", "-m", JOBS]
    kept = _kept.template
    if kept is not None and not kept.fits(found, argv, memory=memory, starts_ns=starts_ns):
        _forget()
    if _kept.template is None:
        _kept.template = guest.Template(found, argv, memory=memory, starts_ns=starts_ns)
    try:
        yield _kept.template
    except BaseException:
        _forget()
        raise
    if not _kept.wanted:
        _forget()


def in_guest(
    name: str,
    job: dict[str, Any],
    *,
    learns: bool = False,
    memory: int = guest.MEMORY_BYTES,
    starts_ns: int = guest.STARTED_NS,
    progress: Progress = silent,
) -> None:
    """Run a job in a guest, which finds it by name in its settings.

    Raises:
        InputError: There is no kernel, or the module ended with status 2.
        RunError: The module ended with another status than 0 or 2, or the guest failed.
    """
    said, printed = io.BytesIO(), io.BytesIO()
    found = kernel()
    try:
        with _template(found, memory, starts_ns) as template:
            done = play(
                found,
                template.run,
                settings={name: job},
                learns=learns,
                progress=progress,
                out=printed,
                err=said,
            )
    except guest.ProgramEndedError:
        raise RunError(_last_line(said)) from None
    if done.status == 128 + signal.SIGINT:
        raise KeyboardInterrupt
    if (status := exit_status(done.status)) < 0:
        raise RunError(f"ended by {signal_name(-status)}")
    if done.status:
        raise (InputError if done.status == 2 else RunError)(_last_line(said))


def _last_line(said: io.BytesIO) -> str:
    *_, line = ["it says nothing", *said.getvalue().decode(errors="replace").splitlines()]
    return line
