# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed fit`, `forecast`: channels fitted to measured flights, and forecasts of new ones."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli.console import out, shown
from orchestrator.cli.options import JSON_FILES, JsonFile, Overrides, Overwrite, ScenarioFile
from testbed.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

FLIGHTS = completion.files(".npz")
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
    from orchestrator.interface import flights
    from testbed.system.files import check_writable

    check_writable("json", json_file)
    _check_apart(json_file, output, flights.FIT_FILES, files)
    with shown("models") as show:
        done = flights.fit(files, models or (), out=output, overwrite=overwrite, progress=show)
    document = done.found.document()
    for table in fit_tables(document):
        out.print(table)
    out.print(document.sentence, markup=False, highlight=False)
    if json_file is not None:
        document.write(json_file)
    if output is not None:
        out.print(f"{output / 'fit.html'}", markup=False, highlight=False)


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
    from orchestrator.cli.printed_tables import scores_table
    from orchestrator.flights.words import scores_of
    from orchestrator.interface import flights
    from orchestrator.scenario.loading import load
    from testbed.system.files import check_writable

    check_writable("json", json_file)
    _check_apart(json_file, output, flights.FORECAST_FILES, (fit_file, flight_file))
    if like is not None and len(like) > 1:
        raise InputError("`like`: is given twice; a flight has one radio")
    done = flights.forecast(
        load(scenario, overrides or []),
        fit_file,
        flight_file,
        reveal=reveal,
        sealed=sealed,
        offered_bps=offered_bps,
        like=like[0] if like else None,
        out=output,
        overwrite=overwrite,
    )
    made = done.found
    for text in done.sentences:
        out.print(text, markup=False, highlight=False)
    if made.reveal is not None:
        out.print(scores_table(scores_of(made, made.reveal)))
    out.print(f"digest {made.digest}", markup=False, highlight=False)
    if json_file is not None:
        made.write(json_file)
    if output is not None:
        out.print(f"{output / 'forecast.html'}", markup=False, highlight=False)
