# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`fit` and `forecast`: channels fitted to measured flights, and forecasts of new ones."""

import datetime
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.interface.folders import check_new, remove_results
from orchestrator.interface.given import ScenarioLike, path_of, resolved, shortened, typed
from orchestrator.interface.progress import followed
from orchestrator.interface.results import StudyResult, figures_of
from testbed.core.errors import InputError
from testbed.core.progress import Progress

if TYPE_CHECKING:
    from orchestrator.flights.document import Document
    from orchestrator.flights.fitting import Flown

FIT_FILES = ("fit.json", "fit.html", "*-replay.npz")
FORECAST_FILES = ("forecast.json", "forecast.html")


@typed
def fit(
    flights: "str | Path | Sequence[str | Path]",
    models: Sequence[str] = (),
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> StudyResult:
    """Fit channel models to measured flights: path loss, shadowing, antenna pattern, link curve.

    Args:
        flights: Files of measured flights, written by `testbed import`, or traces with positions.
        models: Names of the channel models to fit. Default: all.
        out: Output folder for the page `fit.html`, `fit.json` and the replayed channels.
        overwrite: Whether earlier results in `out` are replaced.
        progress: Called with a description of the current step, its progress, and its total.
            Default: a bar in a notebook.

    Returns:
        The table `models` (one row per model and term of the antenna, the best first), `flights`
        and `stages`; the figures of the page. `found` is the fit; its `document()` is the content
        of `fit.json`.

    Raises:
        InputError: The flights lack values, or no model is valid along them.
    """
    from orchestrator.exchange.files import names_of
    from orchestrator.flights.measured import load_flight
    from orchestrator.flights.page import fit_charts, fit_page
    from orchestrator.flights.result import fit_flights
    from orchestrator.reporting.index import save_page

    given = [flights] if isinstance(flights, str | Path) else flights
    files = [path_of(file, "`flights`: must be paths") for file in given]
    if not files:
        raise InputError("`flights`: is empty; give at least one file")
    folder = None if out is None else path_of(out, "`out`: must be a path")
    check_new(folder, FIT_FILES, overwrite=overwrite)
    read = {name: load_flight(path) for path, name in names_of(files).items()}
    with followed(progress) as show:
        found = fit_flights(read, models, show)
    document, charts = found.document(), fit_charts(found)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        remove_results(folder, FIT_FILES)
        document.write(folder / "fit.json")
        save_page(folder / "fit.html", fit_page(found, charts))
        for flight, name in zip(found.flights, _short_names(found.flights), strict=True):
            replayed = found.replay(flight)
            if replayed is not None:
                replayed.save(folder / f"{name}-replay.npz")
    title = f"fit of {len(found.flights)} flight{'s' * (len(found.flights) > 1)}"
    tables = _fit_tables(document)
    return StudyResult(title, [document.sentence], tables, figures_of(charts), found, folder)


def _fit_tables(document: "Document") -> dict[str, Any]:
    import pandas as pd

    rows = [
        *(("level", model) for model in document.models),
        *(("level with antenna", model) for model in document.antennas),
        *(("uplink", model) for model in [document.uplink] if model is not None),
    ]
    plain = {"offsets_db", "covariance"}
    models = pd.DataFrame(
        {"of": of, **model.model_dump(exclude=plain), "antenna": ", ".join(model.antenna)}
        for of, model in rows
    )
    tables = {
        "models": models,
        "flights": pd.DataFrame(flight.model_dump() for flight in document.flights),
        "stages": pd.DataFrame(stage.model_dump() for stage in document.link.stages),
    }
    return {name: table for name, table in tables.items() if len(table)}


def _short_names(flights: "Sequence[Flown]") -> list[str]:
    """Names of flights without folders, numbered where flights of several folders have one name."""
    names = [Path(flight.name).name.replace(".npz", "") for flight in flights]
    return [
        name if names.count(name) == 1 else f"{name}-{names[: at + 1].count(name)}"
        for at, name in enumerate(names)
    ]


@typed
def forecast(
    scenario: ScenarioLike,
    fit: str | Path,
    flight: str | Path,
    *,
    reveal: bool = False,
    sealed: str | Path | None = None,
    offered_bps: float | None = None,
    like: str | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
) -> StudyResult:
    """Forecast the received power and the rate of a flight, with 90 % bands.

    Args:
        scenario: A scenario, or the path or name of one, as for `load`.
        fit: JSON file that `fit` has written.
        flight: File of the flight. The forecast uses only its positions.
        reveal: Whether the forecast is compared with the measured values of the flight.
        sealed: With `reveal`: an earlier forecast (JSON) that is compared instead of a new one.
        offered_bps: Rate at which the application offers data, bit/s. Default: no limit.
        like: Name of a flight in the fit that has the same radio.
        out: Output folder for the page `forecast.html` and `forecast.json`.
        overwrite: Whether earlier results in `out` are replaced.

    Returns:
        The table `bands` (time_s, and the quantiles p5, p50 and p95 of each quantity by slot), and
        with `reveal` also `scores`; the figures of the page. `found` is the forecast.

    Raises:
        InputError: An argument is not valid, or the files do not fit each other.
    """
    import numpy as np
    import pandas as pd

    from orchestrator.flights.document import Document
    from orchestrator.flights.forecast import Band, Forecast, Request, revealed
    from orchestrator.flights.forecast import forecast as made_now
    from orchestrator.flights.measured import load_flight
    from orchestrator.flights.page import forecast_charts, forecast_page
    from orchestrator.flights.result import flown_in
    from orchestrator.flights.words import scores_of, sentences_of
    from orchestrator.reporting.index import save_page
    from orchestrator.scenario.schema import LTE_BLOCKS

    if sealed is not None:
        if not reveal:
            raise InputError("`sealed`: needs `reveal`")
        for name, given in (("offered_bps", offered_bps), ("like", like)):
            if given:
                raise InputError(f"`{name}`: must be absent with `sealed`")
    folder = None if out is None else path_of(out, "`out`: must be a path")
    check_new(folder, FORECAST_FILES, overwrite=overwrite)
    parsed = resolved(scenario, None, None)
    fit_file = path_of(fit, "`fit`: must be a path")
    flight_file = path_of(flight, "`flight`: must be a path")
    document = Document.read(fit_file, "fit")
    measured = load_flight(flight_file)
    flown = flown_in({flight_file.stem: measured}, document.flights[0].base_station_m)
    if len(flown) > 1:
        raise InputError(f"`flight`: {flight_file} must have one UAV, not {len(flown)}")
    (one,) = flown
    if offered_bps is not None and not 1 <= offered_bps <= 1e12:
        raise InputError(f"`offered_bps`: must be from 1 to 1e12, not {shortened(offered_bps)}")
    radio = parsed.radio
    request = Request(
        name=one.name,
        path=one.path,
        resource_blocks=radio.lte.resource_blocks or LTE_BLOCKS.get(radio.uplink_bandwidth_hz),
        offered_bps=offered_bps,
        seed=parsed.seed,
        made=datetime.datetime.now(datetime.UTC),
        version=version("uav-sfl-testbed"),
        like=like,
    )
    if sealed is None:
        made = made_now(document, request)
    else:
        made = Forecast.read(path_of(sealed, "`sealed`: must be a path"), "sealed")
        if made.inputs.positions != request.positions:
            raise InputError(f"`sealed`: {sealed} is the forecast of a different flight")
        if made.inputs.fit != document.digest:
            raise InputError(
                f"`sealed`: {sealed} was made from a different fit, not from {fit_file}"
            )
    if reveal:
        made = made.model_copy(update={"reveal": revealed(made, one)})
    charts = forecast_charts(made, one)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        made.write(folder / "forecast.json")
        save_page(folder / "forecast.html", forecast_page(made, one, charts))
    bands: dict[str, Any] = {"time_s": np.arange(len(made.rsrp_dbm.p50)) * made.slot_s}
    for name in ("rsrp_dbm", "snr_up_db", "mcs_up", "uplink_bps"):
        band: Band | None = getattr(made, name)
        if band is not None:
            bands |= {f"{name}_{edge}": getattr(band, edge) for edge in ("p5", "p50", "p95")}
    tables = {"bands": pd.DataFrame(bands)}
    if made.reveal is not None:
        tables["scores"] = pd.DataFrame(scores_of(made, made.reveal))
    title = f"forecast of {one.name}"
    sentences = sentences_of(made, one)
    return StudyResult(title, sentences, tables, figures_of(charts), made, folder)
