# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How a run or a session is played, beside its scenario: options that are passed on whole."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from orchestrator.emulated.network import Hosts
from orchestrator.emulated.observer import Observer
from orchestrator.engine.rounds import Decide
from orchestrator.scenario.schema import Scenario
from testbed.core.node import NodeId
from testbed.core.progress import Progress, silent

Capture = Literal["frames", "headers"]
Downlink = Literal["dedicated", "shared"]


@dataclass(frozen=True)
class Placing:
    """Where results are kept and nodes live; the options that runs and sessions have in common."""

    overwrite: bool = False
    """Whether the output folder may hold an earlier run or session, which is replaced."""
    scheduler: str | None = None
    """Address of a Dask scheduler on whose hosts nodes live; None: here."""
    key: Path | None = None
    """The scheduler's key file."""
    progress: Progress = silent
    """Called with what is being done, how much of it is done, and how much there is."""
    hosts: Hosts | None = None
    """The scheduler's hosts, once they have been found."""


@dataclass(frozen=True)
class RunOptions(Placing):
    """How a run is played."""

    resume: bool = False
    """Whether to resume what a killed or failed run has left."""
    capture: Capture | None = None
    """Whether to capture whole frames, or their headers."""
    keep: bool = False
    """Whether the run directory is to last: a checkpoint after each round, and a report."""
    view: Callable[[Scenario], AbstractContextManager[Observer]] | None = None
    """Shows the run as it goes, while the context lasts that this makes."""
    decide: Decide | None = None
    """Who allocates; None: the scenario's own split and shares."""
    observer: Observer | None = None
    """Told what happens within rounds; what `view` has made."""


DEFAULTS = RunOptions()
"""A run of which nothing is kept, on this machine."""


@dataclass(frozen=True)
class SessionOptions(Placing):
    """How a session is played."""

    downlink: Downlink = "dedicated"
    """Whether downlinks have shares of W_D and P_S of their own, or share the cell's airtime."""
    seconds: float | None = None
    """Emulated seconds that the session lasts at most."""
    until: Sequence[NodeId] = ()
    """Nodes whose commands end the session and decide on its success; none: all that have one."""
    capture: bool = False
    """Whether to capture every link."""
    keep_rows: bool = False
    """Whether to keep in memory what goes into `session.parquet`."""
    began: Callable[[Any], AbstractContextManager[Any]] = nullcontext
    """Given the session once commands run; its context is left when the session ends."""
