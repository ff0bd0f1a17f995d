# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed fit`, `forecast`: channels fitted to measured flights, and forecasts of new ones."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli.console import out, shown
from orchestrator.cli.folders import check_new, remove_results
from orchestrator.cli.options import JSON_FILES, JsonFile, Overrides, Overwrite, ScenarioFile
from testbed.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.flights.fitting import Flown
    from orchestrator.flights.forecast import Forecast

FLIGHTS = completion.files(".npz")
FIT_FILES = ("fit.json", "fit.html", "*-replay.npz")
FORECAST_FILES = ("forecast.json", "forecast.html")
Output = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Output folder for the web page and its data.",
        autocompletion=completion.folders,
    ),
]


def fit(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FLIGHT.npz",
            help="File of a measured flight, written by `testbed import`, or a trace with "
            "positions.",
            autocompletion=FLIGHTS,
        ),
    ],
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="Channel model to fit.",
            show_default="all models",
            autocompletion=completion.fitted_models,
        ),
    ] = None,
    json_file: JsonFile = None,
    output: Output = None,
    overwrite: Overwrite = False,
) -> None:
    """Fit channel models to measured flights.

    A fit estimates the path loss, the shadowing, the antenna pattern and the link curve.

    Examples:
        testbed fit flight.npz --json fit.json
        testbed fit a.npz b.npz --model rma-av --model log-distance --out fitted
    """
    from orchestrator.cli.printed_tables import fit_tables
    from orchestrator.exchange.files import names_of
    from orchestrator.flights.measured import load_flight
    from orchestrator.flights.result import fit_flights
    from orchestrator.reporting.index import save_page
    from testbed.system.files import check_writable

    check_writable("json", json_file)
    _check_apart(json_file, output, FIT_FILES, files)
    check_new(output, FIT_FILES, overwrite=overwrite)
    flights = {name: load_flight(path) for path, name in names_of(files).items()}
    with shown("models") as show:
        found = fit_flights(flights, models or (), show)
    document = found.document()
    for table in fit_tables(document):
        out.print(table)
    out.print(document.sentence, markup=False, highlight=False)
    if json_file is not None:
        document.write(json_file)
    if output is not None:
        from orchestrator.flights.page import fit_page

        output.mkdir(parents=True, exist_ok=True)
        remove_results(output, FIT_FILES)
        document.write(output / "fit.json")
        page = fit_page(found)
        save_page(output / "fit.html", page)
        for flight, name in zip(found.flights, _short_names(found.flights), strict=True):
            replayed = found.replay(flight)
            if replayed is not None:
                replayed.save(output / f"{name}-replay.npz")
        out.print(f"{output / 'fit.html'}", markup=False, highlight=False)


def _short_names(flights: "Sequence[Flown]") -> list[str]:
    """Names of flights without folders, numbered where flights of several folders have one name."""
    names = [Path(flight.name).name.replace(".npz", "") for flight in flights]
    return [
        name if names.count(name) == 1 else f"{name}-{names[: at + 1].count(name)}"
        for at, name in enumerate(names)
    ]


def _check_apart(
    json_file: Path | None, output: Path | None, names: "Sequence[str]", inputs: "Sequence[Path]"
) -> None:
    """Refuse a file of results that would replace an input, or that `--out` needs.

    Raises:
        InputError: The file is one of the inputs, the folder, or one of the files in the folder.
    """
    if json_file is None:
        return
    place = json_file.resolve()
    if place in [path.resolve() for path in inputs]:
        raise InputError(f"`json`: {json_file} is an input, which would be replaced")
    if output is not None and place in [output.resolve() / name for name in ("", *names)]:
        raise InputError(f"`json`: {json_file} is also written by --out")


def forecast(
    scenario: ScenarioFile,
    fit_file: Annotated[
        Path,
        typer.Option(
            "--fit",
            metavar="FIT.json",
            help="JSON file that `testbed fit` has written.",
            autocompletion=JSON_FILES,
        ),
    ],
    flight_file: Annotated[
        Path,
        typer.Option(
            "--flight",
            metavar="OTHER.npz",
            help="Flight whose received power and rate are forecast. The forecast uses only its "
            "positions.",
            autocompletion=FLIGHTS,
        ),
    ],
    reveal: Annotated[
        bool,
        typer.Option("--reveal", help="Compare the forecast with the measured values of OTHER."),
    ] = False,
    sealed: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --reveal: compare this earlier forecast (JSON) with the measured values, "
            "instead of making a new forecast.",
            autocompletion=JSON_FILES,
        ),
    ] = None,
    offered_bps: Annotated[
        float | None,
        typer.Option(
            metavar="BPS",
            help="Rate at which the application offers data, in bit/s.",
            show_default="no limit",
        ),
    ] = None,
    like: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Flight in the fit that has the same radio as OTHER. Give at most one.",
        ),
    ] = None,
    overrides: Overrides = None,
    json_file: JsonFile = None,
    output: Output = None,
    overwrite: Overwrite = False,
) -> None:
    """Forecast the received power and the rate of a flight, with 90 % bands.

    Examples:
        testbed forecast paper --fit fit.json --flight other.npz --json forecast.json
        testbed forecast paper --fit fit.json --flight other.npz --reveal --sealed forecast.json
    """
    import datetime
    from importlib.metadata import version

    from orchestrator.flights.document import Document
    from orchestrator.flights.forecast import Forecast, Request, revealed
    from orchestrator.flights.forecast import forecast as made_now
    from orchestrator.flights.measured import load_flight
    from orchestrator.flights.result import flown_in
    from orchestrator.reporting.index import save_page
    from orchestrator.scenario.loading import load
    from orchestrator.scenario.schema import LTE_BLOCKS
    from testbed.system.files import check_writable

    if sealed is not None:
        if not reveal:
            raise InputError("`sealed`: needs --reveal")
        for name, given in (("offered_bps", offered_bps), ("like", like)):
            if given:
                raise InputError(f"`{name}`: must be absent with --sealed")
    check_writable("json", json_file)
    _check_apart(json_file, output, FORECAST_FILES, (fit_file, flight_file))
    check_new(output, FORECAST_FILES, overwrite=overwrite)
    if like is not None and len(like) > 1:
        raise InputError("`like`: is given twice; a flight has one radio")
    parsed = load(scenario, overrides or [])
    document = Document.read(fit_file, "fit")
    measured = load_flight(flight_file)
    flown = flown_in({flight_file.stem: measured}, document.flights[0].base_station_m)
    if len(flown) > 1:
        raise InputError(f"`flight`: {flight_file} must have one UAV, not {len(flown)}")
    (flight,) = flown
    if offered_bps is not None and not 1 <= offered_bps <= 1e12:
        raise InputError(f"`offered_bps`: must be from 1 to 1e12, not {offered_bps:g}")
    radio = parsed.radio
    blocks = radio.lte.resource_blocks or LTE_BLOCKS.get(radio.uplink_bandwidth_hz)
    request = Request(
        name=flight.name,
        path=flight.path,
        resource_blocks=blocks,
        offered_bps=offered_bps,
        seed=parsed.seed,
        made=datetime.datetime.now(datetime.UTC),
        version=version("uav-sfl-testbed"),
        like=like[0] if like else None,
    )
    if sealed is None:
        made = made_now(document, request)
    else:
        made = Forecast.read(sealed, "sealed")
        if made.inputs.positions != request.positions:
            raise InputError(f"`sealed`: {sealed} is the forecast of a different flight")
        if made.inputs.fit != document.digest:
            raise InputError(
                f"`sealed`: {sealed} was made from a different fit, not from {fit_file}"
            )
    if reveal:
        made = made.model_copy(update={"reveal": revealed(made, flight)})
    _say(made, flight)
    if json_file is not None:
        made.write(json_file)
    if output is not None:
        from orchestrator.flights.page import forecast_page

        output.mkdir(parents=True, exist_ok=True)
        made.write(output / "forecast.json")
        page = forecast_page(made, flight)
        save_page(output / "forecast.html", page)
        out.print(f"{output / 'forecast.html'}", markup=False, highlight=False)


def _say(made: "Forecast", flight: "Flown") -> None:
    """Print a forecast, and its comparison with the measured values if it is revealed."""
    from orchestrator.cli.printed_tables import scores_table
    from orchestrator.flights.words import scores_of, sentences_of

    for text in sentences_of(made, flight):
        out.print(text, markup=False, highlight=False)
    if made.reveal is not None:
        out.print(scores_table(scores_of(made, made.reveal)))
    out.print(f"digest {made.digest}", markup=False, highlight=False)
