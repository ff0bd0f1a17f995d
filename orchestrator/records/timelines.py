# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Converts timelines and decisions to tables of a run directory, and back without loss."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from orchestrator.engine.plan import LOADED, OF_FLEET, Allocation
from orchestrator.rounds.hierarchy import iterations_before
from orchestrator.rounds.loop import Decision
from orchestrator.scenario.schema import Scenario
from testbed.core.timeline import (
    DIFFERING,
    SPAN,
    STEPS,
    BackhaulTransfer,
    Loss,
    Round,
    Timeline,
)
from testbed.system.files import write_whole

ROUNDS_AT_ONCE = 1000
"""Number of rounds whose steps are written together."""


def energy_table(timelines: Mapping[str, Timeline]) -> pd.DataFrame:
    """One row per kind of timeline, round and client: kind, round, client, energy_j, split; and
    flight_energy_j if it is modelled."""
    table = pd.DataFrame(
        [
            (kind, round_.index, client, float(energy_j), split)
            for kind, timeline in timelines.items()
            for round_ in timeline
            for client, (energy_j, split) in enumerate(
                zip(
                    round_.energy_j,
                    np.broadcast_to(round_.split, len(round_.energy_j)).tolist(),
                    strict=True,
                ),
                1,
            )
        ],
        columns=["kind", "round", "client", "energy_j", "split"],
    )
    flown = [
        round_.flight_energy_j
        for timeline in timelines.values()
        for round_ in timeline
        if round_.flight_energy_j is not None
    ]
    return table.assign(flight_energy_j=np.concatenate(flown)) if flown else table


def write_steps(path: Path, timeline: Timeline) -> None:
    """Write the steps of a timeline as Parquet, atomically: a row per step, with the columns of
    `Timeline.frame` and `cut`, whether the step ended early. Few rounds are in memory at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def table(rounds: Sequence[Round]) -> pa.Table:
        frame = Timeline(rounds).frame().astype({"step": str})
        cut = [round_.cut for round_ in rounds]
        return pa.Table.from_pandas(frame.assign(cut=np.concatenate([np.empty(0, bool), *cut])))

    def write(part: Path) -> None:
        rounds = timeline.rounds
        first = table(rounds[:ROUNDS_AT_ONCE])
        with pq.ParquetWriter(part, first.schema) as file:
            file.write_table(first)
            for at in range(ROUNDS_AT_ONCE, len(rounds), ROUNDS_AT_ONCE):
                file.write_table(table(rounds[at : at + ROUNDS_AT_ONCE]))

    write_whole(path, write)


def backhaul_table(timelines: Mapping[str, Timeline]) -> pd.DataFrame:
    """One row per transfer between an edge server and the cloud: kind, round, then the fields of
    `BackhaulTransfer`."""
    rows = [
        {"kind": kind, "round": round_.index, **asdict(each)}
        for kind, timeline in timelines.items()
        for round_ in timeline
        for each in round_.backhaul
    ]
    names = [field.name for field in fields(BackhaulTransfer)]
    return pd.DataFrame(rows, columns=["kind", "round", *names])


def at_edges(scenario: Scenario, table: pd.DataFrame) -> pd.DataFrame:
    """A table of steps with the columns edge and edge_round, both from 1; unchanged without
    `topology`."""
    if scenario.topology is None:
        return table
    edges = {k: edge for edge, members in enumerate(scenario.members, 1) for k in members}
    iterations = iterations_before(scenario, 1) or int(table["iteration"].max())
    return table.assign(
        edge=table["client"].map(edges).astype(int),
        edge_round=1 + (table["iteration"] - 1) // iterations,
    )


def decision_table(decision: Decision) -> pd.DataFrame:
    """The decision for each client in a round: round, client, split, alpha, beta, rho, and what
    else the policy decided (`LOADED`).

    Shares are 0 for clients that do not participate.
    """
    shares = decision.allocation
    clients = np.arange(1, len(shares.alpha) + 1)
    here = np.isin(clients, clients if shares.clients is None else shares.clients)
    return pd.DataFrame(
        {
            "round": decision.index,
            "client": clients,
            "split": shares.splits,
            "alpha": shares.alpha * here,
            "beta": shares.beta * here,
            "rho": shares.rho * here,
            **{name: v for name in LOADED if (v := getattr(shares, name)) is not None},
            **_target(shares),
        }
    )


TARGET = ("to_x_m", "to_y_m", "to_z_m")
"""Columns of the last way point of a guided UAV."""


def _target(allocation: Allocation) -> dict[str, Any]:
    """The last way points of a round, if it has some."""
    if allocation.position_m is None:
        return {}
    return dict(zip(TARGET, allocation.position_m[:, -1].T, strict=True))


def with_own_values(scenario: Scenario, table: pd.DataFrame) -> pd.DataFrame:
    """A table of decisions in which the scenario's own values are where a round has none, and way
    points are those of the last round that has some."""
    for name in table.columns.intersection([*TARGET]):
        table = table.assign(**{name: table.groupby("client")[name].ffill()})
    for name in table.columns.intersection([*LOADED]):
        own = (
            getattr(scenario.fleet, name)
            if name in OF_FLEET
            else [scenario.workload.of_client(name, k + 1) for k in range(scenario.uavs.count)]
        )
        whole = table[name].fillna(table["client"].map(dict(enumerate(own, 1))))
        table = table.assign(**{name: whole.astype(float if name in OF_FLEET else int)})
    return table


def allocation_of(table: pd.DataFrame, clients: int) -> Allocation:
    """The allocation of a round of K clients, from its rows of `decision_table`; those of other
    edge servers have none."""
    rows = table.set_index("client").reindex(range(1, clients + 1))
    rows["split"] = rows["split"].fillna(rows["split"].max()).astype(int)
    rows = rows.fillna({"alpha": 0.0, "beta": 0.0, "rho": 0.0})
    alpha, beta, rho = (rows[name].to_numpy(float) for name in ("alpha", "beta", "rho"))
    here = beta > 0
    chosen = None if here.all() else tuple((1 + np.flatnonzero(here)).tolist())
    alpha, beta, rho = (np.where(here, share, 1.0) for share in (alpha, beta, rho))
    further = {
        name: rows[name].fillna(rows[name].max()).to_numpy(float if name in OF_FLEET else int)
        for name in rows.columns.intersection([*LOADED])
    }
    return Allocation(tuple(rows["split"].tolist()), alpha, beta, rho, chosen, **further)


def timeline_of(tables: Mapping[str, pd.DataFrame], kind: str, clients: int) -> Timeline:
    """The timeline of a kind; it has no rounds if the kind's tables are missing.

    Args:
        tables: The tables of a run directory, by file stem: the kind's own, `rounds`, `energy`,
            `lost`. If `energy` is missing, as in old directories, energies are NaN.
        kind: `predicted`, `predicted_wire` or `measured`.
        clients: Number of UAVs, K.
    """
    if kind not in tables or "rounds" not in tables:
        return Timeline([])
    spans = _spans(tables[kind])
    rounds = tables["rounds"]
    energy, lost, backhaul = (
        _by_round(tables.get(name), kind) for name in ("energy", "lost", "backhaul")
    )
    nothing = np.full(clients, np.nan)
    return Timeline(
        [
            Round(
                index=row["round"],
                paradigm=row["paradigm"],
                split=row["split"]
                if row["split"] != DIFFERING
                else tuple(energy[row["round"]]["split"].tolist()),
                start_s=row["start_s"],
                latency_s=row["latency_s"],
                energy_j=energy[row["round"]]["energy_j"].to_numpy(float)
                if row["round"] in energy
                else nothing,
                objective=row["objective"],
                spans=spans.get(row["round"], np.empty(0, SPAN)),
                lost=_losses(lost.get(row["round"])),
                backhaul=_backhaul(backhaul.get(row["round"])),
                flight_energy_j=energy[row["round"]]["flight_energy_j"].to_numpy(float)
                if row["round"] in energy and "flight_energy_j" in energy[row["round"]]
                else None,
            )
            for row in rounds[rounds["kind"] == kind].sort_values("round").to_dict("records")
        ]
    )


def _spans(table: pd.DataFrame) -> dict[int, np.ndarray]:
    """Steps by round, each array of dtype `SPAN`."""
    spans = np.empty(len(table), SPAN)
    for name in SPAN.names or ():
        values = table[name]
        spans[name] = values.map(STEPS.index) if name == "step" else values
    index = table["round"].to_numpy()
    edges = np.flatnonzero(np.diff(index)) + 1
    return {
        int(rounds[0]): part
        for rounds, part in zip(np.split(index, edges), np.split(spans, edges), strict=True)
    }


def _by_round(table: pd.DataFrame | None, kind: str) -> dict[int, pd.DataFrame]:
    if table is None:
        return {}
    own = table[table["kind"] == kind]
    return {int(index): own[own["round"] == index] for index in own["round"].unique()}


def _losses(table: pd.DataFrame | None) -> list[Loss]:
    if table is None:
        return []
    columns = [table[name].tolist() for name in ("client", "lost_s", "stopped_s", "cause")]
    return [Loss(*row) for row in zip(*columns, strict=True)]


def _backhaul(table: pd.DataFrame | None) -> list[BackhaulTransfer]:
    if table is None:
        return []
    columns = [table[field.name].tolist() for field in fields(BackhaulTransfer)]
    return [BackhaulTransfer(*row) for row in zip(*columns, strict=True)]
