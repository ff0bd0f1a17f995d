# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed import`, `export-trace`: exchange channel traces and flights with other tools."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli.console import out
from orchestrator.cli.options import FILES, Overrides, Overwrite
from orchestrator.exchange.formats import FORMATS
from orchestrator.interface.folders import check_new
from testbed.core.words import not_one_of

_RATES, _TABLES = "Options for mahimahi", "Options for csv"
_PLACES, _BOUNDS = "Options for positions and gains", "Options for checks of the input"
_LOGS = "Options for srsran"

HIGHEST_STATION_M = 1000.0
"""Largest height of a base station's antenna above the ground."""

Scenario = Annotated[
    Path | None,
    typer.Option(
        "--scenario",
        metavar="SCENARIO",
        help="Scenario whose base station and radio are used to compute gains and rates.",
        autocompletion=completion.scenarios,
    ),
]


def import_(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT",
            help=f"Format of the files: {', '.join(FORMATS)}.",
            autocompletion=completion.words(*FORMATS),
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="T.npz",
            help="Trace file to write; with srsran, flight file to write.",
            autocompletion=completion.files(".npz"),
        ),
    ],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE",
            help="File to import, usually one per UAV. srsran needs --ue, --enb and --vehicle "
            "instead.",
            autocompletion=FILES,
        ),
    ] = None,
    slot_s: Annotated[
        float, typer.Option(metavar="S", help="Length of a slot of the trace, in seconds.")
    ] = 0.1,
    first: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Start of the part that is imported: seconds from the beginning, or a date or "
            "time of day as in the file.",
            show_default="the first row",
        ),
    ] = None,
    last: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="TIME",
            help="End of the part that is imported: seconds from the beginning, or a date or "
            "time of day as in the file.",
            show_default="the last row",
        ),
    ] = None,
    repeat: Annotated[
        str | None,
        typer.Option(
            metavar="N|TIME",
            help="Repeat the trace: a number of times, or up to a length such as 60s.",
        ),
    ] = None,
    down: Annotated[
        list[Path] | None,
        typer.Option(
            "--down",
            metavar="FILE",
            help="File that describes the downlink of a UAV. Give one file per UAV.",
            autocompletion=FILES,
            rich_help_panel=_RATES,
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="NAME=COLUMN[:UNIT]",
            help="Column of the file that contains a quantity, and the unit of its values. "
            "Examples: time=t:ms, or rate_bps=link*:Mbit/s for one column per UAV.",
            rich_help_panel=_TABLES,
        ),
    ] = None,
    no_header: Annotated[
        bool,
        typer.Option(
            "--no-header",
            help="The file has no header. Its columns are called 1, 2 and so on.",
            rich_help_panel=_TABLES,
        ),
    ] = False,
    time_format: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="Format of the times, for example %d.%m.%Y %H:%M:%S.",
            show_default="ISO 8601",
            rich_help_panel=_TABLES,
        ),
    ] = None,
    same_time: Annotated[
        str | None,
        typer.Option(
            metavar="first|last|mean",
            help="Row that is used if several rows have the same time.",
            autocompletion=completion.words("first", "last", "mean"),
            rich_help_panel=_TABLES,
        ),
    ] = None,
    no_signal: Annotated[
        list[str] | None,
        typer.Option(
            metavar="VALUE|empty",
            help="Value that marks an outage, for example 0, nan or -. empty: an empty cell marks "
            "an outage. Separate several values by commas.",
            rich_help_panel=_TABLES,
        ),
    ] = None,
    tx_dbm: Annotated[
        float | None,
        typer.Option(
            metavar="DBM",
            help="Transmit power in dBm, which is used to compute gains from a column rsrp_dbm.",
            rich_help_panel=_TABLES,
        ),
    ] = None,
    scenario: Scenario = None,
    overrides: Overrides = None,
    height_m: Annotated[
        float | None,
        typer.Option(metavar="M", help="Height of all positions, in m.", rich_help_panel=_PLACES),
    ] = None,
    ground_m: Annotated[
        str | None,
        typer.Option(
            metavar="M|lowest",
            help="Height of the ground above sea level, in m, which is subtracted from all "
            "heights. lowest: the lowest height in the file.",
            rich_help_panel=_PLACES,
        ),
    ] = None,
    speed_m_s: Annotated[
        float | None,
        typer.Option(
            "--speed",
            metavar="M/S",
            help="Speed along paths that contain no times, in m/s.",
            rich_help_panel=_PLACES,
        ),
    ] = None,
    origin: Annotated[
        str | None,
        typer.Option(
            metavar="LAT,LON",
            help="Latitude and longitude of x = y = 0, in degrees.",
            rich_help_panel=_PLACES,
        ),
    ] = None,
    within_km: Annotated[
        float | None,
        typer.Option(
            metavar="KM",
            help="Largest allowed distance from the origin, in km.",
            show_default="30",
            rich_help_panel=_BOUNDS,
        ),
    ] = None,
    fastest_m_s: Annotated[
        float | None,
        typer.Option(
            metavar="M/S",
            help="Highest allowed speed of a UAV, in m/s.",
            show_default="100",
            rich_help_panel=_BOUNDS,
        ),
    ] = None,
    longest_gap_s: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="Longest allowed time between two rows, in seconds.",
            show_default="60",
            rich_help_panel=_BOUNDS,
        ),
    ] = None,
    clock: Annotated[
        str | None,
        typer.Option(
            metavar="common|each",
            help="Instant that becomes time 0. common: the same instant for all UAVs. each: the "
            "first row of each UAV.",
            autocompletion=completion.words("common", "each"),
            rich_help_panel=_BOUNDS,
        ),
    ] = None,
    hold: Annotated[
        bool,
        typer.Option(
            "--hold",
            help="The first value of a UAV also holds before its time, and the last one after its "
            "time. Without this option, the UAV has an outage there, and positions are rejected.",
            rich_help_panel=_BOUNDS,
        ),
    ] = False,
    ue: Annotated[
        Path | None,
        typer.Option(
            metavar="LOG", help="Log file of srsUE.", autocompletion=FILES, rich_help_panel=_LOGS
        ),
    ] = None,
    enb: Annotated[
        Path | None,
        typer.Option(
            metavar="LOG", help="Log file of srsENB.", autocompletion=FILES, rich_help_panel=_LOGS
        ),
    ] = None,
    vehicle: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV",
            help="Positions of the UAV: a CSV file without a header, or a GPX file.",
            autocompletion=FILES,
            rich_help_panel=_LOGS,
        ),
    ] = None,
    base_station: Annotated[
        str | None,
        typer.Option(
            metavar="LAT,LON,HEIGHT",
            help="Position of the antenna of the base station: latitude and longitude in degrees, "
            "and height above the ground in m.",
            rich_help_panel=_LOGS,
        ),
    ] = None,
) -> None:
    """Import a channel trace or a measured flight from files of other tools.

    Examples:
        testbed import mahimahi uav1.up uav2.up --out links.npz
        testbed import csv link.csv --column time=t:s --column rate_bps=rate:Mbit/s --out link.npz
        testbed import gpx flight.gpx --scenario paper --out flight.npz
    """
    from orchestrator.exchange.importing import Options, imported, measured
    from orchestrator.scenario.loading import load
    from testbed.core.errors import InputError
    from testbed.system.files import check_writable

    if kind not in FORMATS:
        raise InputError(f"FORMAT: {not_one_of(kind, FORMATS)}")
    given = [*(files or ()), *(down or ()), *filter(None, (ue, enb, vehicle, scenario))]
    if output.resolve() in [path.resolve() for path in given]:
        raise InputError(f"`out`: {output} is an input, which would be replaced")
    check_writable("out", output, ".npz")
    if overrides and scenario is None:
        raise InputError("`overrides`: apply to a scenario; give `scenario`, too")
    options = Options(
        slot_s=slot_s,
        scenario=None if scenario is None else load(scenario, overrides or []),
        height_m=height_m,
        ground_m=ground_m,
        speed_m_s=speed_m_s,
        origin=None if origin is None else _origin(origin),
        within_km=within_km,
        fastest_m_s=fastest_m_s,
        longest_gap_s=longest_gap_s,
        clock=clock,
        hold=hold,
        first=first,
        last=last,
        repeat=repeat,
        down=down or (),
        columns=_pairs(columns or []),
        tx_dbm=tx_dbm,
        time_format=time_format,
        same_time=same_time,
        no_signal=",".join(no_signal) if no_signal else None,
        header=not no_header,
        ue=ue,
        enb=enb,
        vehicle=vehicle,
        base_station=None if base_station is None else _base_station(base_station),
    )
    if kind == "srsran":
        flown = measured(files or [], options)
        flown.flight.save(output)
        lines = flown.lines()
    else:
        found = imported(kind, files or [], options)
        found.trace.save(output)
        lines = [found.line()]
    for line in lines:
        out.print(f"{output}: {line}", highlight=False, markup=False)


def _pairs(given: list[str]) -> dict[str, str]:
    from testbed.core.errors import InputError

    pairs: dict[str, str] = {}
    for pair in given:
        name, equals, column = pair.partition("=")
        if not equals:
            raise InputError(f"`columns`: must be NAME=COLUMN[:UNIT], not {pair[:60]!r}")
        if name in pairs:
            raise InputError(f"`columns` {name}: is given twice")
        pairs[name] = column
    return pairs


def _origin(text: str) -> tuple[float, float]:
    from testbed.core.errors import InputError

    try:
        latitude, longitude = map(float, text.split(","))
    except ValueError:
        latitude, longitude = 999.0, 999.0
    if not (abs(latitude) < 90 and abs(longitude) <= 180):
        raise InputError(f"`origin`: must be LAT,LON in degrees, not {text[:40]!r}")
    return latitude, longitude


def _base_station(text: str) -> tuple[float, float, float]:
    from testbed.core.errors import InputError

    try:
        latitude, longitude, height = map(float, text.split(","))
    except ValueError:
        latitude, longitude, height = 999.0, 999.0, 0.0
    if not (abs(latitude) < 90 and abs(longitude) <= 180 and 0 <= height <= HIGHEST_STATION_M):
        raise InputError(
            f"`base_station`: must be LAT,LON,HEIGHT in degrees and 0 to {HIGHEST_STATION_M:g} m, "
            f"not {text[:40]!r}"
        )
    return latitude, longitude, height


def export_trace(
    trace_file: Annotated[
        Path,
        typer.Argument(
            metavar="T.npz", help="Trace to export.", autocompletion=completion.files(".npz")
        ),
    ],
    folder: Annotated[
        Path,
        typer.Option(
            "--out", metavar="DIR", help="Output folder.", autocompletion=completion.folders
        ),
    ],
    kind: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Format of the files. The only format is mahimahi.",
            autocompletion=completion.words("mahimahi"),
        ),
    ] = "mahimahi",
    scenario: Scenario = None,
    overrides: Overrides = None,
    overwrite: Overwrite = False,
) -> None:
    """Export the rates of a trace for other tools.

    A trace of gains needs `--scenario`. Its gains are converted to rates with the radio and the
    shares of this scenario.

    Examples:
        testbed export-trace links.npz --out links
        testbed export-trace paper.npz --scenario paper --out links
    """
    from orchestrator.exchange import exporting
    from orchestrator.scenario.loading import load
    from testbed.core.errors import InputError

    if overrides and scenario is None:
        raise InputError("`overrides`: apply to a scenario; give `scenario`, too")
    parsed = None if scenario is None else load(scenario, overrides or [])
    check_new(folder, ("uav*.up", "uav*.down"), overwrite=overwrite)
    for path in exporting.exported(kind, trace_file, parsed, folder):
        out.print(str(path), markup=False, highlight=False)
