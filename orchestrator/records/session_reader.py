# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A session's folder read: its manifest, scenario, and what its links carried slot by slot."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from orchestrator.records.directory import MANIFEST, SCENARIO
from orchestrator.records.reader import Manifest, Strict, Whole, read_manifest, read_object
from orchestrator.records.tables import AMOUNT, CLIENT, SLOT, WAY, Absent, Column, read_table
from orchestrator.scenario.loading import validate
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError

SESSION = "session.parquet"
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
    """What of a session's manifest is read, all of it optional; it may hold more."""

    kind: Literal["session"] | None = None
    downlink: Literal["dedicated", "shared"] | None = None
    programs: list[_Program] | None = None
    calibration: list[_Level] | None = None


@dataclass(frozen=True)
class PlayedSession:
    """What a session's folder holds."""

    name: str
    """Its folder's."""
    manifest: dict[str, Any]
    scenario: Scenario
    table: pd.DataFrame
    """One row a slot, client and direction: `COLUMNS`."""

    @property
    def valid(self) -> bool | None:
        """Whether every check is within its limit; None where it was not checked."""
        verdict = self.manifest.get("valid")
        return verdict if isinstance(verdict, bool) else None

    @property
    def seconds(self) -> float:
        """Emulated seconds of whole slots."""
        return float(self.table["slot"].nunique() * self.scenario.slot_s)


def read_session(folder: Path) -> PlayedSession:
    """Read the folder of a session that is over.

    Raises:
        InputError: It is none, or a file in it is broken: one line names it.
    """
    for name in (MANIFEST, SCENARIO, SESSION):
        if not (folder / name).is_file():
            raise InputError(f"{folder}: is no session that is over: {name} is missing")
    try:
        manifest = read_manifest(folder / MANIFEST, SessionManifest)
        scenario = validate(read_object(folder / SCENARIO), str(folder / SCENARIO))
        # A session may be over before its first slot is.
        table = read_table(folder / SESSION, scenario, COLUMNS, may_be_empty=True)
    except Absent as why:
        raise InputError(f"{folder}: is no session that is over: {SESSION} {why}") from None
    return PlayedSession(folder.name, manifest, scenario, table)
