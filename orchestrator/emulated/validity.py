# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Whether a run may be believed: what was observed while it ran, held against limits.

A run that is not valid keeps everything it measured; manifest, console and report say why it is
not. Limits are `emulation.limits` of the scenario, and tighter in virtual time.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from orchestrator.engine.links import are_impaired, impairments_of, shape_of, vary_by_slot
from orchestrator.records.emulation import Check, Emulation
from testbed.network.shaping import Shape
from testbed.system.machine import Machine

PAUSE_S = 0.002
"""In real seconds: for how long a busy machine may keep a program from a transfer's end."""
_JITTERS = 5
"""So many standard deviations may a frame be earlier than its delay."""


_OF_MACHINES: dict[str, Callable[[Machine], float]] = {
    "cpu_steal": lambda passed: passed.stolen_ticks / max(1, passed.cpu_ticks),
    "cpu_others": lambda passed: passed.others,
    "clock_drift_ppm": lambda passed: abs(passed.monotonic_ns / passed.raw_ns - 1) * 1e6,
}
"""Checks of every machine that carries nodes."""


def validity(done: Emulation) -> list[Check]:
    """All checks of a run with at least one measured round."""
    limits = done.scenario.emulation.limits_in_force
    return [
        Check(name, limits[name], float(value), bool(value <= limits[name]), detail)
        for name, value, detail in _observed(done)
    ]


def to_json(checks: Sequence[Check]) -> list[dict[str, Any]]:
    """The checks as they stand in the manifest."""
    return [asdict(check) for check in checks]


def _observed(done: Emulation) -> Iterator[tuple[str, float, str]]:
    """Name of the check (as in the scenario), worst value, where."""
    if done.calibration is not None and len(done.calibration):
        dilation = done.scenario.dilation
        shape = shape_of(done.scenario, dilation)
        yield "calibration_error", *calibration_error(done.calibration, shape, dilation)

    injector = pd.concat([record.injector for record in done.rounds])
    yield "injector_lateness_s", float(injector["lateness_s"].quantile(0.99)), ""
    yield "exhausted_slots", sum(record.links.exhausted for record in done.rounds), ""

    ways = [(*record.links.uplink, *record.links.downlink) for record in done.rounds]
    clients = range(1, done.scenario.uavs.count + 1)
    names = [f"{way} {k}" for way in ("uplink", "downlink") for k in clients]
    dropped = _in_all([[way.dropped_frames for way in report] for report in ways])
    sent = _in_all([[way.sent_frames for way in report] for report in ways])
    share = dropped / np.maximum(sent + dropped, 1)
    yield "dropped_frames", share.max(), names[int(share.argmax())]
    backlog = np.array([[way.backlog_bytes for way in report] for report in ways])
    for of_round, round_ in zip(backlog.reshape(-1, 2, len(clients)), done.measured, strict=True):
        for loss in round_.lost:  # What its links held when it was given up stays there.
            of_round[:, loss.client - 1] = 0
    backlog = backlog.max(axis=0)
    yield "backlog_bytes", backlog.max(), names[int(backlog.argmax())]

    impaired = are_impaired(done.scenario)
    if impaired:
        yield "loss_deviation", *_loss_deviation(done)
        arrived = _in_all([[way.arrived_frames for way in report] for report in ways])
        late = _in_all([[way.late_frames for way in report] for report in ways])
        share = late / np.maximum(arrived, 1)
        yield "late_frames", share.max(), names[int(share.argmax())]
    # What the engine says of windows and losses is a model, and none of the emulation's errors.
    parts = ["injection"] if impaired else ["injection", "rest"]
    if done.scenario.workload.compute_time == "modelled":
        parts.insert(0, "compute")
    for part in parts:
        shares = [abs(r.budget.seconds[part]) / r.measured.latency_s for r in done.rounds]
        worst = int(np.argmax(shares))
        where = f"round {worst}"
        if part == "compute" and (late_s := [s for s in done.overruns_s if s > 0]):
            where += f"; {len(late_s)} of {len(done.overruns_s)} steps overran"
            where += f", by {max(late_s):.2g} s at most"
        yield f"{part}_share", shares[worst], where
    yield from _transfer_errors(done)

    if done.scenario.emulation.clock == "virtual":
        return  # Nobody else is there, and there is one clock.
    errors_s = [record.links.clock_error_s for record in done.rounds]
    if any(errors_s):
        yield "clock_error_s", max(errors_s), f"round {int(np.argmax(errors_s))}"
    machines = [
        (passed, f"host {host}, round {index}" if host else f"round {index}")
        for index, record in enumerate(done.rounds)
        for host, passed in {"": record.machine, **record.elsewhere}.items()
    ]
    for name, value_of in _OF_MACHINES.items():
        passed, where = max(machines, key=lambda each: value_of(each[0]))
        if name == "cpu_others" and done.others and not where.startswith("host"):
            where += f"; cores by program: {', '.join(done.others)}"
        yield name, value_of(passed), where


def _transfer_errors(done: Emulation) -> Iterator[tuple[str, float, str]]:
    """How far transfers were from their links' rates, the broadcast by itself.

    That one ends a packet early is no rate's error, however short it is. Where the air delays or
    loses frames, windows and retransmissions make transfers late: then only those count that ended
    before rates and delay allow.
    """
    scenario = done.scenario
    if vary_by_slot(scenario):
        return
    dilation, shape = scenario.dilation, shape_of(scenario, scenario.dilation)
    transfers = pd.concat([record.transfers for record in done.rounds], ignore_index=True)
    early_s = _early_s(transfers["rate_bps"], shape, dilation)
    if impaired := are_impaired(scenario):
        jitters = [each.jitter_s for way in impairments_of(scenario) for each in way]
        early_s += _JITTERS * max(jitters)
    early = (-transfers["error"] - early_s / transfers["due_s"]).clip(lower=0)
    late = transfers["error"].clip(lower=0)
    broadcast = transfers["step"] == "SM"
    if scenario.emulation.clock == "real":
        pause_s = PAUSE_S / dilation / transfers["due_s"]
        late -= (broadcast * pause_s).clip(upper=late)
    transfers["error"] = early if impaired else early + late
    for name, rows in (
        ("transfer_error", transfers[~broadcast]),
        ("broadcast_error", transfers[broadcast]),
    ):
        if not len(rows) or (name == "broadcast_error" and scenario.updates):
            continue
        row = rows.iloc[int(rows["error"].argmax())]
        where = f"worst {row.error:.2g}: {row.step} of client {row.client}, round {row['round']}"
        yield name, float(rows["error"].quantile(0.95)), where


def _early_s(rate_bps: "pd.Series[float]", shape: Shape, dilation: float) -> "pd.Series[float]":
    """By how much a transfer may end early, in emulated seconds, at a rate in emulated bit/s."""
    return rate_bps.map(
        lambda rate: shape.early_at(rate / dilation, shape.packet_frames(rate)) / dilation,
        na_action="ignore",  # of transfers of nothing
    )


def _loss_deviation(done: Emulation) -> tuple[float, str]:
    """How far the frames lost on the worst link are from what was asked, in standard deviations."""
    worst, where = 0.0, ""
    for name, ways in zip(("uplink", "downlink"), impairments_of(done.scenario), strict=True):
        ends = [getattr(record.links, name) for record in done.rounds]
        lost = _in_all([[end.lost_frames for end in report] for report in ends])
        arrived = _in_all([[end.arrived_frames for end in report] for report in ends])
        for client, way in enumerate(ways, 1):
            frames = int(lost[client - 1] + arrived[client - 1])
            if way.losses is None or way.by_slot or not frames:
                continue
            difference = abs(lost[client - 1] - frames * way.losses.mean)
            if (off := float(difference / way.losses.deviation(frames))) > worst:
                worst = off
                where = f"{name} {client}: lost {lost[client - 1]} of {frames} frames"
    return worst, where


def calibration_error(table: pd.DataFrame, shape: Shape, dilation: float) -> tuple[float, str]:
    """How wrong the worst link was before the run, and where; `table` as `calibrate` makes it.

    That a transfer ends a packet early is no rate's error, however short the transfer.
    A link's median over its rates forgives one disturbed transfer. It must not forgive a rate at
    which the link is always wrong, so each counts by what a pause of `PAUSE_S` does not explain.
    """
    early_s = _early_s(table["rate_bps"], shape, dilation)
    sizes = table.assign(error=(table["error"].abs() - early_s / table["due_s"]).clip(lower=0))
    links = sizes.groupby(["direction", "client"], as_index=False)["error"].median()
    link = links.iloc[int(links["error"].argmax())]
    rate = sizes.iloc[int(sizes["error"].argmax())]
    beyond = sizes["error"] - PAUSE_S / dilation / sizes["due_s"]
    worst = sizes.iloc[int(beyond.argmax())]
    where = f"{link['direction']} {link['client']}"
    if beyond.max() > link["error"]:
        where = f"{worst['direction']} {worst['client']} at its {worst['level']} rate"
    where += f"; worst {rate['error']:.2g}: "
    where += f"{rate['direction']} {rate['client']} at its {rate['level']} rate"
    return float(max(link["error"], beyond.max())), where


def _in_all(counts: Sequence[Sequence[int]]) -> npt.NDArray[np.int64]:
    """Totals of links' counters [rounds, ways], which begin anew where a run was resumed."""
    table = np.array(counts)
    begun_anew = (np.diff(table, axis=0) < 0).any(axis=1)
    total: npt.NDArray[np.int64] = table[-1] + table[:-1][begun_anew].sum(axis=0)
    return total
