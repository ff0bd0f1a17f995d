# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`plot`: figures of predictions and runs."""

from typing import TYPE_CHECKING

from orchestrator.interface.given import shortened
from orchestrator.interface.results import StudyResult, chosen, shown
from orchestrator.records.reader import Run
from testbed.core.errors import InputError
from testbed.core.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot(
    result: "Timeline | Run | StudyResult", name: str | None = None, round: int | None = None
) -> "Figure | None":
    """Draw a figure for a publication, with matplotlib.

    Args:
        result: A prediction, a run, or the result of a study.
        name: Which figure. A prediction has `gantt`; a run has `gantt`, `rates`, `budget` and
            `learning`; a study has the names in its `figures`. Default: the first.
        round: The round to draw, of a prediction or a run. Default: the first.

    Returns:
        The figure; None if its data are empty.

    Raises:
        InputError: There is no such figure or round.
    """
    if isinstance(result, StudyResult):
        if round is not None:
            raise InputError("`round`: must be absent for the result of a study")
        return result.plot(name)
    if not isinstance(result, Timeline | Run):
        raise InputError(
            "`result`: must be a prediction, a run or the result of a study, "
            f"not {shortened(result)}"
        )
    from orchestrator.reporting import plots
    from orchestrator.reporting.run_plots import PLOTS

    timeline = result if isinstance(result, Timeline) else result.measured
    rounds = {one.index: one for one in timeline}
    if not rounds:
        raise InputError("`result`: has no round")
    place = next(iter(rounds)) if round is None else round
    if place not in rounds:
        known = " to ".join(map(str, sorted({min(rounds), max(rounds)})))
        raise InputError(f"`round`: must be {known}, not {shortened(place)}")
    if isinstance(result, Timeline):
        chosen(name, {"gantt": None}, "figure")
        one = rounds[place]
        title = f"round {place}: {one.latency_s:.3f} s"
        return shown(plots.gantts([(title, one)], plots.WIDE_IN))
    return shown(PLOTS[chosen(name, PLOTS, "figure")](result, place))
