# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Appraises what was learned, and gives evaluations the costs of predicted rounds."""

import logging
import math
from pathlib import Path

import numpy as np
import pandas as pd

from orchestrator.analysis.learned import curve_of
from orchestrator.emulated.learning import evaluates, learning_settings, place
from orchestrator.records.appraised import Appraised, Client
from orchestrator.records.learned import CURVES, STATE, Trajectory
from testbed.core.errors import InputError
from testbed.core.progress import Progress, silent

log = logging.getLogger(__name__)


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
