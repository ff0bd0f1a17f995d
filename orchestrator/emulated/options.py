# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Options of runs and sessions, which are not part of the scenario, passed on as one object."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.rounds.loop import Decide
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.node import NodeId
from testbed.core.progress import Progress, silent

if TYPE_CHECKING:
    from orchestrator.emulated.network import Hosts
    from orchestrator.emulated.observer import Observer

Capture = Literal["frames", "headers"]
Downlink = Literal["dedicated", "shared"]


@dataclass(frozen=True)
class Placing:
    """Options that runs and sessions have in common: where results are kept and nodes live."""

    overwrite: bool = False
    """Whether an earlier run or session in the output folder is replaced."""
    scheduler: str | None = None
    """Address of a Dask scheduler on whose hosts nodes live; None: this machine."""
    key: Path | None = None
    """Key file of the scheduler."""
    progress: Progress = silent
    """Called with a description of the current step, its progress, and its total."""
    hosts: "Hosts | None" = None
    """Hosts of the scheduler, once they have been found."""


@dataclass(frozen=True)
class RunOptions(Placing):
    """Options of a run."""

    resume: bool = False
    """Whether to resume a run that was killed or failed."""
    capture: Capture | None = None
    """Whether to capture whole frames, or only their headers."""
    keep: bool = False
    """Whether the run directory is kept, with a checkpoint after each round and a report."""
    view: "Callable[[Scenario], AbstractContextManager[Observer]] | None" = None
    """Displays the run while the context that this returns is open."""
    decide: Decide | None = None
    """Function that decides allocations; None: the scenario's own split and shares."""
    observer: "Observer | None" = None
    """Observer of events within rounds, which `view` has created."""


def check_options(options: Placing, out: Path | None) -> None:
    """Refuse options that would have no effect.

    Args:
        options: Options of a run or session.
        out: Output folder; None: a temporary one.

    Raises:
        InputError: An option lacks another one; the message names both.
    """
    if options.key is not None and options.scheduler is None:
        raise InputError("`key`: needs `scheduler`, which the key belongs to")
    if out is not None:
        return
    if options.overwrite:
        raise InputError("`overwrite`: needs `out`, the folder that is replaced")
    if isinstance(options, RunOptions) and options.resume:
        raise InputError("`resume`: needs `out`, the folder of the run that is resumed")
    if isinstance(options, RunOptions) and options.capture is not None:
        raise InputError("`capture`: needs a run directory, where captures are kept")


DEFAULTS = RunOptions()
"""A run on this machine whose run directory is not kept."""


@dataclass(frozen=True)
class SessionOptions(Placing):
    """Options of a session."""

    downlink: Downlink | None = None
    """Whether each downlink has its share of W_D and P_S, or all share the airtime of the cell.
    Default: they share it where the scheduler of the cell is `equal`."""
    seconds: float | None = None
    """Largest duration of the session in emulated seconds."""
    until: Sequence[NodeId] = ()
    """Nodes whose commands end the session and must succeed; none: all nodes with a command."""
    capture: bool = False
    """Whether to capture every link."""
    keep_rows: bool = False
    """Whether the rows of `session.parquet` are also kept in memory."""
    began: Callable[[Any], AbstractContextManager[Any]] = nullcontext
    """Called with the session once commands run; its context is left when the session ends."""
