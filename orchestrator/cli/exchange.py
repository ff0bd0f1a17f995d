# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed import`, `export-trace`: exchange channel traces and flights with other tools."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.console import out
from orchestrator.cli.options import Overrides

Scenario = Annotated[
    Path | None,
    typer.Option("--scenario", metavar="SCENARIO", help="Take base station and radio from this."),
]


def import_(
    kind: Annotated[str, typer.Argument(metavar="FORMAT", help="mahimahi, ns2, csv, kml or qgc.")],
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Files to import.")],
    output: Annotated[Path, typer.Option("--out", metavar="T.npz", help="The trace to write.")],
    down: Annotated[
        list[Path] | None, typer.Option("--down", help="mahimahi: downlinks, one file per UAV.")
    ] = None,
    slot_s: Annotated[float, typer.Option(help="Length of a slot in seconds.")] = 0.1,
    scenario: Scenario = None,
    overrides: Overrides = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="OURS=THEIRS", help="csv: name of a column in the file."),
    ] = None,
    tx_dbm: Annotated[
        float | None, typer.Option(help="csv: transmit power for rsrp_dbm, dBm.")
    ] = None,
    height_m: Annotated[float | None, typer.Option(help="Height of all waypoints, m.")] = None,
    speed_m_s: Annotated[
        float | None, typer.Option("--speed", help="Speed along paths, m/s.")
    ] = None,
    origin: Annotated[
        str | None, typer.Option(metavar="LAT,LON", help="Origin (x = y = 0) in degrees.")
    ] = None,
) -> None:
    """Make a channel trace from other tools' files: rates, measurements, movements, flights."""
    from orchestrator.exchange.importing import Options, imported
    from orchestrator.scenario.loading import load
    from testbed.core.errors import InputError
    from testbed.system.files import check_writable

    check_writable("out", output)
    pairs = dict(pair.partition("=")[::2] for pair in columns or [])
    options = Options(
        slot_s=slot_s,
        scenario=None if scenario is None else load(scenario, overrides or []),
        height_m=height_m,
        speed_m_s=speed_m_s,
        origin=None if origin is None else _origin(origin),
        tx_dbm=tx_dbm,
        columns=pairs,
        down=down or (),
    )
    if overrides and scenario is None:
        raise InputError("`overrides`: apply to a scenario; give `scenario`, too")
    trace = imported(kind, files, options)
    trace.save(output)
    out.print(
        f"{output}: {trace.uavs} UAVs, {trace.slots} slots of {trace.slot_s:g} s",
        highlight=False,
    )


def _origin(text: str) -> tuple[float, float]:
    from testbed.core.errors import InputError

    try:
        latitude, longitude = map(float, text.split(","))
    except ValueError:
        latitude, longitude = 999.0, 999.0
    if not (abs(latitude) < 90 and abs(longitude) <= 180):
        raise InputError(f"`origin`: must be LAT,LON in degrees, not {text[:40]!r}")
    return latitude, longitude


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
