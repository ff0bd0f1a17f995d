# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A run in virtual time for the Python API and for a campaign's worker; commands `enter` it whole.

    python -m orchestrator.runs.virtual

is the program inside; what it is to run stands in what the host has told its guest.
"""

import io
import signal
import sys
from pathlib import Path
from typing import Any, Literal

from orchestrator.policies.registry import decider
from orchestrator.prediction.plan import link_bytes
from orchestrator.prediction.rounds import predict
from orchestrator.runs.run import run
from orchestrator.scenario.channel import open_source
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError, RunError
from testbed.core.progress import Progress, silent
from testbed.system import inside
from testbed.virtual import guest
from testbed.virtual.kernel import Kernel, find


def kernel() -> Kernel:
    """The kernel that virtual time needs.

    Raises:
        InputError: It has not been built.
    """
    found = find()
    if found is None:
        raise InputError(
            "emulation.clock: 'virtual' needs a kernel that is built once: `testbed kernel build`"
        )
    return found


def from_outside(scenario: Scenario) -> bool:
    """Whether the scenario asks for virtual time, and this process is not in it."""
    return scenario.emulation.clock == "virtual" and inside.told() is None


def prepare(scenario: Scenario, trace: Path | None) -> None:
    """Compile and count here, and leave in the caches, what a guest would have to.

    There it takes several times as long, and the more memory.

    Raises:
        InputError: The trace is too short, or does not fit.
    """
    with open_source(scenario, trace) as source:
        predict(scenario, source, profile_of(scenario), sizing=link_bytes, rounds=1)


def run_in_guest(
    scenario: Scenario,
    trace: Path | None,
    folder: Path,
    *,
    capture: Literal["frames", "headers"] | None = None,
    keep: bool = False,
    share: float = 1.0,
    progress: Progress = silent,
) -> None:
    """Emulate the scenario in a guest, which writes its run directory into `folder`.

    Args:
        scenario: What to emulate, by virtual time; its own policy allocates.
        trace: The channel to replay; None: ns-3 makes the scenario's own.
        folder: See `orchestrator.runs.directory`.
        capture: As `run` has it.
        keep: As `run` has it.
        share: Of this machine's memory, where several guests run beside each other.
        progress: Told how far the run is.

    Raises:
        InputError: There is no kernel, or the scenario cannot run there.
        RunError: The run or the guest failed.
    """
    job: dict[str, Any] = {
        "scenario": scenario.model_dump(mode="json"),
        "trace": None if trace is None else str(trace.absolute()),
        "folder": str(folder.absolute()),
        "capture": capture,
        "keep": keep,
    }
    if guest.hidden([job["folder"], job["trace"] or ""], Path("/")):
        raise InputError("`out`: cannot lie in /dev, of which virtual time has its own")
    kernel()
    prepare(scenario, trace)
    in_guest(__name__, "run", job, share=share, progress=progress)


def in_guest(
    module: str,
    name: str,
    job: dict[str, Any],
    *,
    share: float = 1.0,
    progress: Progress = silent,
) -> None:
    """Run a module in a guest, which finds the job by its name in what it is told.

    Raises:
        InputError: There is no kernel, or the module ended with status 2.
        RunError: It ended with another one but 0, or the guest failed.
    """
    found = kernel()
    said, printed = io.BytesIO(), io.BytesIO()
    done = guest.run(
        found,
        [sys.executable, "-P", "-m", module],
        told={"kernel": found.to_json(), name: job},
        share=share,
        progress=progress,
        out=printed,
        err=said,
    )
    if done.status == 128 + signal.SIGINT:
        raise KeyboardInterrupt
    if done.status > 128:
        raise RunError(f"ended by {signal.Signals(done.status - 128).name}")
    if done.status:
        *_, line = ["it says nothing", *said.getvalue().decode(errors="replace").splitlines()]
        raise (InputError if done.status == 2 else RunError)(line)


def _main() -> int:
    told = inside.told()
    if told is None:
        sys.exit("testbed: this is not virtual time")
    job = told["run"]
    scenario = validate(job["scenario"], "run")
    trace = None if job["trace"] is None else Path(job["trace"])
    try:
        with open_source(scenario, trace) as source:
            run(
                scenario,
                source,
                Path(job["folder"]),
                decide=decider(scenario),
                capture=job["capture"],
                keep=job["keep"],
                progress=inside.tell,
            )
    except (InputError, RunError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


if __name__ == "__main__":
    sys.exit(_main())
