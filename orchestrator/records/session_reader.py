# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Reads session folders: manifest, scenario, and the bytes on the links in each slot."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from orchestrator.records.directory import MANIFEST, SCENARIO
from orchestrator.records.reader import Manifest, Strict, Whole, read_manifest, read_object
from orchestrator.records.tables import (
    AMOUNT,
    CLIENT,
    SLOT,
    TABLES,
    WAY,
    Absent,
    Column,
    read_table,
)
from orchestrator.scenario.loading import validate
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError

SESSION = "session.parquet"
CELLS, HANDOVERS = "cells", "handovers"
"""Tables of a session in which several cells of ns-3's LTE carry the packets."""
COLUMNS = {
    "slot": SLOT,
    "client": CLIENT,
    "direction": WAY,
    "rate_bps": AMOUNT,
    "offered_bytes": AMOUNT,
    "carried_bytes": Column("integer", 0, 2**53),
    "queued_bytes": Column("integer", 0, 2**53),
}


class _Program(Strict):
    node: str
    argv: list[str]
    given: bool = False
    start_s: float
    end_s: float
    status: Whole | None
    stopped: bool


class _Level(Strict):
    direction: str
    level: str
    rate_bps: float
    error_p50: float
    error_max: float


class SessionManifest(Manifest):
    """The entries of a session's manifest that are read; all are optional, others are ignored."""

    kind: Literal["session"] | None = None
    downlink: Literal["dedicated", "shared"] | None = None
    programs: list[_Program] | None = None
    calibration: list[_Level] | None = None


@dataclass(frozen=True)
class PlayedSession:
    """The contents of a session's folder."""

    name: str
    """Name of the folder."""
    manifest: dict[str, Any]
    scenario: Scenario
    table: pd.DataFrame
    """One row per slot, client and direction: `COLUMNS`."""
    cells: pd.DataFrame | None = None
    """See `orchestrator.analysis.radio_log.cells`; None: there is one cell."""
    handovers: pd.DataFrame | None = None
    """See `orchestrator.analysis.radio_log.handovers`; None in the same cases."""
    page: Path | None = None
    """The page of the session; None if there is none."""

    @property
    def valid(self) -> bool | None:
        """Whether every check is within its limit; None if the session was not checked."""
        verdict = self.manifest.get("valid")
        return verdict if isinstance(verdict, bool) else None

    @property
    def seconds(self) -> float:
        """Duration in emulated seconds, in whole slots."""
        return float(self.table["slot"].nunique() * self.scenario.slot_s)


def read_session(folder: Path) -> PlayedSession:
    """Read the folder of a session that has ended.

    Raises:
        InputError: The folder is not that of a session, or a file is broken; one line names the
            file.
    """
    for name in (MANIFEST, SCENARIO, SESSION):
        if not (folder / name).is_file():
            raise InputError(f"{folder}: is not a session that has ended: {name} is missing")
    try:
        manifest = read_manifest(folder / MANIFEST, SessionManifest)
        scenario = validate(read_object(folder / SCENARIO), str(folder / SCENARIO))
        # A session may end before its first slot does.
        table = read_table(folder / SESSION, scenario, COLUMNS, may_be_empty=True)
        cells, handovers = (
            read_table(path, scenario, TABLES[name], may_be_empty=True) if path.exists() else None
            for name in (CELLS, HANDOVERS)
            for path in (folder / f"{name}.parquet",)
        )
    except Absent as why:
        raise InputError(f"{folder}: is not a session that has ended: {SESSION} {why}") from None
    page = path if (path := folder / "report.html").is_file() else None
    return PlayedSession(folder.name, manifest, scenario, table, cells, handovers, page)
