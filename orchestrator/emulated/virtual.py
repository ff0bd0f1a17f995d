# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A run in virtual time for the Python API and for a campaign's worker; commands `enter` it whole.

    python -m orchestrator.emulated.virtual

is the program inside; what it is to run stands in what the host has told its guest.
"""

import signal
import sys
from pathlib import Path
from typing import Any, Literal

from orchestrator.emulated.guests import in_guest, kernel
from orchestrator.emulated.learning import learning_settings
from orchestrator.emulated.run import run
from orchestrator.engine.plan import link_bytes
from orchestrator.engine.rounds import predict
from orchestrator.policies.registry import decider
from orchestrator.scenario.channel import open_source
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError, RunError
from testbed.core.progress import Progress, silent
from testbed.system import inside
from testbed.virtual import guest


def prepare(scenario: Scenario, trace: Path | None) -> None:
    """Compile and count here, and leave in the caches, what a guest would have to.

    There it takes several times as long, and the more memory.

    Raises:
        InputError: The trace is too short, or does not fit; or a model's weights are unavailable.
    """
    learning_settings(scenario)
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
        folder: See `orchestrator.records.directory`.
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
    learns = scenario.workload.compute == "real"
    in_guest(__name__, "run", job, learns=learns, share=share, progress=progress)


def _main() -> int:
    told = inside.guest_settings()
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
                progress=inside.report_progress,
            )
    except (InputError, RunError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


if __name__ == "__main__":
    sys.exit(_main())
