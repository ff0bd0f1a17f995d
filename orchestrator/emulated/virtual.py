# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Runs in virtual time, for the Python API and for a campaign's workers."""

import logging
from pathlib import Path
from typing import Any

from orchestrator.emulated.guests import in_guest, kernel
from orchestrator.emulated.options import DEFAULTS, RunOptions
from orchestrator.engine.plan import link_bytes, payload_bytes
from orchestrator.policies.registry import decider
from orchestrator.rounds.loop import predict
from orchestrator.scenario.channel import open_source
from orchestrator.scenario.combinations import check
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.system import inside
from testbed.virtual import guest

MANY_UAVS = 800
"""In a round of 1,000 UAVs, a process has 68,000 mappings; Linux allows 65,530 by default."""
log = logging.getLogger(__name__)


def prepare(scenario: Scenario, trace: Path | None) -> None:
    """Build and count in advance, so that a guest finds the results in the caches.

    In a guest, this takes several times as long, more memory, and some of the virtual time, so that
    the first run would differ from later ones.

    Raises:
        InputError: The trace is too short, or does not fit; a model's weights are unavailable; or
            emulated links cannot play the radio.
    """
    check(scenario, "run")
    if scenario.uavs.count >= MANY_UAVS and guest.allows_few_mappings():
        log.warning(
            "a round of %d UAVs may need more memory mappings than this machine allows: %s",
            scenario.uavs.count,
            guest.MORE_MAPPINGS,
        )
    if scenario.workload.compute == "real":
        # It imports pandas, which takes as long as everything else here.
        from orchestrator.emulated.inputs import inputs_of

        inputs_of(scenario)
    with open_source(scenario, trace) as source:
        for sizing in (payload_bytes, link_bytes):
            predict(scenario, source, profile_of(scenario), sizing=sizing, rounds=1)


def run_in_guest(
    scenario: Scenario,
    trace: Path | None,
    folder: Path,
    options: RunOptions = DEFAULTS,
) -> None:
    """Emulate the scenario in a guest, which writes the run directory into `folder`.

    Args:
        scenario: Scenario in virtual time; its policy decides on the allocations.
        trace: The channel to replay; None: ns-3 makes the scenario's own.
        folder: Run directory; see `orchestrator.records.directory`.
        options: Options of the run.

    Raises:
        InputError: There is no kernel, or the scenario cannot run there.
        RunError: The run or the guest failed.
    """
    job: dict[str, Any] = {
        "scenario": scenario.model_dump(mode="json"),
        "trace": None if trace is None else str(trace.absolute()),
        "folder": str(folder.absolute()),
        "capture": options.capture,
        "keep": options.keep,
    }
    if guest.hidden([job["folder"], job["trace"] or ""], Path("/")):
        raise InputError("`out`: must not be in /dev, which differs in virtual time")
    kernel()
    prepare(scenario, trace)
    learns = scenario.workload.compute == "real"
    in_guest(
        "run",
        job,
        learns=learns,
        memory=scenario.emulation.memory_bytes,
        starts_ns=scenario.emulation.starts_ns,
        progress=options.progress,
    )


def run_job(job: dict[str, Any]) -> None:
    """Emulate the scenario of a job of `run_in_guest`, inside the guest."""
    from orchestrator.emulated.run import run

    scenario = validate(job["scenario"], "run")
    trace = None if job["trace"] is None else Path(job["trace"])
    with open_source(scenario, trace) as source:
        options = RunOptions(
            decide=decider(scenario, source),
            capture=job["capture"],
            keep=job["keep"],
            progress=inside.report_progress,
        )
        run(scenario, source, Path(job["folder"]), options)
