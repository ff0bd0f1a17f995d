# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed import`, `export-trace`: exchange channel traces and flights with other tools."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.console import out
from orchestrator.cli.options import Overrides
from orchestrator.exchange.formats import FORMATS

_RATES, _TABLES, _PLACES, _BOUNDS = "mahimahi", "csv", "Places and channel", "Bounds and clock"
_LOGS = "srsran"

HIGHEST_STATION_M = 1000.0
"""Largest height of a base station's antenna above the ground."""

Scenario = Annotated[
    Path | None,
    typer.Option(
        "--scenario", metavar="SCENARIO", help="Scenario that sets base station and radio."
    ),
]


def import_(
    kind: Annotated[str, typer.Argument(metavar="FORMAT", help=", ".join(FORMATS) + ".")],
    output: Annotated[
        Path, typer.Option("--out", metavar="T.npz", help="The trace or flight to write.")
    ],
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE…", help="Files to import (not for srsran)."),
    ] = None,
    slot_s: Annotated[float, typer.Option(help="Length of a slot in seconds.")] = 0.1,
    first: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Start of the window: seconds, or a date."),
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="End of the window.")
    ] = None,
    repeat: Annotated[
        str | None,
        typer.Option(
            metavar="N|SECONDSs", help="Repeat the trace N times, or up to a length such as 60s."
        ),
    ] = None,
    down: Annotated[
        list[Path] | None,
        typer.Option("--down", help="Files of the downlink, one per UAV.", rich_help_panel=_RATES),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="NAME=COLUMN[:UNIT]",
            help="Column of the file, such as time=t:ms, or rate_bps=link*:Mbit/s with a column "
            "per UAV.",
            rich_help_panel=_TABLES,
        ),
    ] = None,
    no_header: Annotated[
        bool,
        typer.Option(
            "--no-header", help="No header: columns are named 1, 2, …", rich_help_panel=_TABLES
        ),
    ] = False,
    time_format: Annotated[
        str | None,
        typer.Option(help="Format of times, such as %d.%m.%Y %H:%M:%S.", rich_help_panel=_TABLES),
    ] = None,
    same_time: Annotated[
        str | None,
        typer.Option(
            metavar="first|last|mean",
            help="Row that is used if several rows have the same time.",
            rich_help_panel=_TABLES,
        ),
    ] = None,
    no_signal: Annotated[
        str | None,
        typer.Option(
            metavar="VALUE|empty", help="Value that means an outage.", rich_help_panel=_TABLES
        ),
    ] = None,
    tx_dbm: Annotated[
        float | None,
        typer.Option(help="Transmit power for rsrp_dbm, dBm.", rich_help_panel=_TABLES),
    ] = None,
    scenario: Scenario = None,
    overrides: Overrides = None,
    height_m: Annotated[
        float | None, typer.Option(help="Height of all positions, m.", rich_help_panel=_PLACES)
    ] = None,
    ground_m: Annotated[
        str | None,
        typer.Option(
            metavar="M|lowest",
            help="Height of the ground above sea level, m, for heights above sea level.",
            rich_help_panel=_PLACES,
        ),
    ] = None,
    speed_m_s: Annotated[
        float | None,
        typer.Option("--speed", help="Speed on paths without times, m/s.", rich_help_panel=_PLACES),
    ] = None,
    origin: Annotated[
        str | None,
        typer.Option(
            metavar="LAT,LON", help="Position of x = y = 0, degrees.", rich_help_panel=_PLACES
        ),
    ] = None,
    within_km: Annotated[
        float | None,
        typer.Option(help="Largest distance from the origin, km (30).", rich_help_panel=_BOUNDS),
    ] = None,
    fastest_m_s: Annotated[
        float | None,
        typer.Option(help="Highest speed of a UAV, m/s (100).", rich_help_panel=_BOUNDS),
    ] = None,
    longest_gap_s: Annotated[
        float | None,
        typer.Option(help="Longest time between two rows, s (60).", rich_help_panel=_BOUNDS),
    ] = None,
    clock: Annotated[
        str | None,
        typer.Option(
            metavar="common|each",
            help="Time 0: the same for all UAVs (common), or the first row of each UAV (each).",
            rich_help_panel=_BOUNDS,
        ),
    ] = None,
    ue: Annotated[
        Path | None, typer.Option(metavar="LOG", help="Log of srsUE.", rich_help_panel=_LOGS)
    ] = None,
    enb: Annotated[
        Path | None, typer.Option(metavar="LOG", help="Log of srsENB.", rich_help_panel=_LOGS)
    ] = None,
    vehicle: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV",
            help="Positions of the UAV: a table without a header, or a GPX file.",
            rich_help_panel=_LOGS,
        ),
    ] = None,
    base_station: Annotated[
        str | None,
        typer.Option(
            metavar="LAT,LON,HEIGHT",
            help="Position of the base station's antenna: degrees, and m above the ground.",
            rich_help_panel=_LOGS,
        ),
    ] = None,
) -> None:
    """Make a channel trace, or a measured flight, from other tools' files."""
    from orchestrator.exchange.importing import Options, imported, measured
    from orchestrator.scenario.loading import load
    from testbed.core.errors import InputError
    from testbed.system.files import check_writable

    check_writable("out", output)
    given = [*(files or ()), *(down or ()), *filter(None, (ue, enb, vehicle, scenario))]
    if output.resolve() in [path.resolve() for path in given]:
        raise InputError(f"`out`: {output} is an input, which would be replaced")
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
        first=first,
        last=last,
        repeat=repeat,
        down=down or (),
        columns=_pairs(columns or []),
        tx_dbm=tx_dbm,
        time_format=time_format,
        same_time=same_time,
        no_signal=no_signal,
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
    trace_file: Annotated[Path, typer.Argument(metavar="T.npz", help="The trace.")],
    folder: Annotated[Path, typer.Option("--out", metavar="DIR", help="Output directory.")],
    kind: Annotated[str, typer.Option("--format", help="Only mahimahi.")] = "mahimahi",
    scenario: Scenario = None,
    overrides: Overrides = None,
) -> None:
    """Export a trace's rates for other tools; gains become rates under a scenario's shares."""
    from orchestrator.exchange import exporting
    from orchestrator.scenario.loading import load
    from testbed.core.errors import InputError

    if overrides and scenario is None:
        raise InputError("`overrides`: apply to a scenario; give `scenario`, too")
    parsed = None if scenario is None else load(scenario, overrides or [])
    for path in exporting.exported(kind, trace_file, parsed, folder):
        out.print(str(path), markup=False, highlight=False)
