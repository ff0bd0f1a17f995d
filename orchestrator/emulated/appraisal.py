# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Learns seeds, appraises what was learned, and gives evaluations the costs of predicted rounds."""

import logging
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from orchestrator.analysis.learned import curve_of
from orchestrator.emulated.learning import evaluates, learning_settings, place
from orchestrator.emulated.trajectory import learn_into
from orchestrator.records.appraised import Appraised, Client
from orchestrator.records.directory import part_of
from orchestrator.records.learned import (
    CURVES,
    OF_SEED,
    STATE,
    Trajectory,
    is_trajectory,
    read_trajectory,
)
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.progress import Progress, silent

log = logging.getLogger(__name__)


def learn_seeds(
    out: Path,
    scenarios: Sequence[Scenario],
    *,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress = silent,
) -> list[Path]:
    """Learn scenarios that differ in their seeds, appraise each, and give it times.

    A single scenario is learned into `out`, and several into folders in it.

    Args:
        out: Output folder.
        scenarios: The scenarios.
        overwrite: Whether earlier trajectories are replaced.
        resume: Whether to continue what was interrupted; seeds that are complete are kept.
        progress: Called after each round.

    Returns:
        The folder of each scenario.

    Raises:
        InputError: See `learn_into`; or a seed that is complete has another scenario.
    """
    if resume and overwrite:
        raise InputError("`resume`: does not go together with `overwrite`")
    several = len(scenarios) > 1
    folders = [out / f"{OF_SEED}{one.seed}" if several else out for one in scenarios]
    begun = any(is_trajectory(folder) or part_of(folder).exists() for folder in folders)
    for folder, scenario in zip(folders, scenarios, strict=True):
        if several and resume and is_trajectory(folder):
            made = read_trajectory(folder)
            if made.scenario != scenario:
                raise InputError(f"`resume`: {folder} has learned another scenario")
        else:
            made = learn_into(
                folder,
                scenario,
                overwrite=overwrite and is_trajectory(folder),
                resume=resume and (not several or not begun or part_of(folder).exists()),
                progress=progress,
            )
        if not (folder / CURVES).exists():
            appraise(made)
            time_by_prediction(made)
    return folders


def appraise(trajectory: Trajectory) -> Appraised | None:
    """Appraise the last state of a trajectory and write `appraised.json` into its folder; None if
    the scenario evaluates nothing."""
    scenario, folder = trajectory.scenario, Path(trajectory.folder)
    settings = learning_settings(scenario)
    if settings is None or not evaluates(scenario):
        return None
    from workloads.learning import appraisal
    from workloads.learning.real import Settings

    own = Settings.from_json(settings | place(scenario.base_station))
    found = appraisal.appraise(own, (folder / STATE).read_bytes())
    made = Appraised(
        trained=found.trained,
        names=found.names,
        confusion=[
            (int(label), int(predicted), int(found.confusion[label, predicted]))
            for label, predicted in zip(*np.nonzero(found.confusion), strict=True)
        ],
        clients=[
            Client(
                client=each.client,
                samples=each.samples,
                appraised=each.appraised,
                loss=each.loss if math.isfinite(each.loss) else None,
                accuracy=each.accuracy if math.isfinite(each.accuracy) else None,
            )
            for each in found.clients
        ],
    )
    made.write(folder)
    return made


def time_by_prediction(trajectory: Trajectory, progress: Progress = silent) -> pd.DataFrame:
    """The held-out curve of a trajectory with the costs of the rounds that its own scenario
    predicts; it is written to `curves.parquet` in its folder.

    Args:
        trajectory: The trajectory.
        progress: Called after each round.

    Returns:
        A result of `curve_of`. If the rounds cannot be predicted, times, energies and bytes are
        NaN, and a warning gives the reason.
    """
    from orchestrator.api import predict

    scenario = trajectory.scenario
    try:
        timeline = predict(scenario, progress=progress)
        curve = curve_of(trajectory.timed(scenario, timeline), timeline)
    except InputError as error:
        log.warning("the rounds are not predicted, so there are no times: %s", error)
        curve = trajectory.curve
    curve.to_parquet(Path(trajectory.folder) / CURVES, index=False)
    return curve
