# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Whether a run or a session may be believed: what was observed, compared with limits.

Results that are not valid keep everything that was measured; manifest, console and report say why
they are not. `CHECKS` has everything about each check but its limit by the real clock, which is a
key of `emulation.limits` in the scenario, under the same name.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from orchestrator.emulated.session import Session
from orchestrator.engine.links import are_impaired, impairments_of, shape_of, vary_by_slot
from orchestrator.records.emulation import Check, Emulation
from orchestrator.scenario.schema import Emulation as EmulationSection
from orchestrator.scenario.schema import Limits
from testbed.network.shaping import Shape
from testbed.system.machine import Machine

PAUSE_S = 0.002
"""Real seconds for which a busy machine may keep a program from a transfer's end."""
_JITTERS = 5
"""A frame may be earlier than its delay by this many standard deviations."""
IDLE = "wait until the machine is idle"
SLOWER = "raise emulation.dilation"
IN_VIRTUAL_TIME = (
    "no other program runs in virtual time, so the network is the cause; see the worst round in "
    "the report"
)
"""The remedy for any check that fails in virtual time."""

Observed = Iterator[tuple[float, str]]
"""The worst value of a check and where it was seen; nothing where the check does not apply."""


@dataclass(frozen=True)
class ValidityCheck:
    """One condition for believing a result: a value that was observed is at most a limit."""

    title: str
    remedy: str
    """What the user can do about it by the real clock."""
    of_run: Callable[[Emulation], Observed] | None = None
    """How a run's value is observed; None: the check is not one of runs."""
    of_session: Callable[[Session], Observed] | None = None
    """How a session's value is observed."""
    virtual_limit: float | None = None
    """The limit in virtual time, unless the scenario has one of its own; None: as by real time."""
    real_clock_alone: bool = False
    """Whether the check is not made in virtual time, where no other program runs."""
    falls_with_dilation: bool = False
    """Whether the value falls about in proportion as dilation grows."""

    def limit(self, name: str, emulation: EmulationSection) -> float:
        """The most that may be observed by the scenario's clock."""
        limit: float = getattr(emulation.limits, name)
        is_default = limit == Limits.model_fields[name].default
        if emulation.clock == "virtual" and is_default and self.virtual_limit is not None:
            return self.virtual_limit
        return limit


def validity(done: Emulation) -> list[Check]:
    """All checks of a run with at least one measured round."""
    return list(_judged(done.scenario.emulation, lambda check: check.of_run, done))


def session_validity(session: Session) -> list[Check]:
    """All checks of a session that is over.

    What programs do is their own business: whether links carried what they should have is judged by
    the slots in which they had something waiting all the time.
    """
    emulation = session.scenario.emulation
    return list(_judged(emulation, lambda check: check.of_session, session))


def _judged(
    emulation: EmulationSection, how: Callable[[ValidityCheck], Any], observed: Any
) -> Iterator[Check]:
    for name, check in CHECKS.items():
        observe = how(check)
        if observe is None or (check.real_clock_alone and emulation.clock == "virtual"):
            continue
        limit = check.limit(name, emulation)
        if isinstance(observed, Session) and name == "transfer_error":
            # A frame more or less is 2 % of the slots that count, whatever the clock.
            limit = emulation.limits.transfer_error
        for value, where in observe(observed):
            yield Check(name, limit, float(value), bool(value <= limit), where)


def to_json(checks: Sequence[Check]) -> list[dict[str, Any]]:
    """The checks as the manifest has them."""
    return [asdict(check) for check in checks]


def remedies(checks: object, dilation: object, clock: object) -> dict[str, str]:
    """What to do about each failed one of a manifest's checks, by name."""
    return {
        check["check"]: remedy(check["check"], check["value"], check["limit"], dilation, clock)
        for check in (checks if isinstance(checks, list) else [])
        if check.get("ok") is False
    }


def remedy(
    name: str, value: object, limit: object, dilation: object, clock: object = "real"
) -> str:
    """What to do about a failed check; empty for one that is not known.

    Args:
        name: The check's name.
        value: What was observed.
        limit: The most it may be.
        dilation: The run's dilation.
        clock: The run's clock.
    """
    check = CHECKS.get(name)
    if check is None:
        return ""
    if clock == "virtual":
        return IN_VIRTUAL_TIME
    numbers = [n for n in (value, limit, dilation) if isinstance(n, (int, float)) and n > 0]
    if check.falls_with_dilation and len(numbers) == 3:
        return f"{check.remedy} to {numbers[2] * numbers[0] / numbers[1]:.2g} or more"
    return check.remedy


# --- how values are observed in runs -------------------------------------------------------------


def _calibration(done: Emulation | Session) -> Observed:
    if done.calibration is not None and len(done.calibration):
        dilation = done.scenario.dilation
        yield calibration_error(done.calibration, shape_of(done.scenario, dilation), dilation)


def _lateness(done: Emulation) -> Observed:
    injector = pd.concat([record.injector for record in done.rounds])
    yield float(injector["lateness_s"].quantile(0.99)), ""


def _exhausted(done: Emulation) -> Observed:
    yield sum(record.links.exhausted for record in done.rounds), ""


def _counts(done: Emulation, counter: str) -> list[list[int]]:
    """A counter of every link's end, by round: uplinks, then downlinks."""
    return [
        [getattr(end, counter) for end in (*record.links.uplink, *record.links.downlink)]
        for record in done.rounds
    ]


def _worst_link(done: Emulation, values: npt.NDArray[Any]) -> tuple[float, str]:
    clients = range(1, done.scenario.uavs.count + 1)
    names = [f"{way} {k}" for way in ("uplink", "downlink") for k in clients]
    return values.max(), names[int(values.argmax())]


def _dropped(done: Emulation) -> Observed:
    dropped, sent = (_in_all(_counts(done, name)) for name in ("dropped_frames", "sent_frames"))
    yield _worst_link(done, dropped / np.maximum(sent + dropped, 1))


def _backlog(done: Emulation) -> Observed:
    backlog = np.array(_counts(done, "backlog_bytes"))
    by_link = backlog.reshape(len(backlog), 2, -1)
    for of_round, round_ in zip(by_link, done.measured, strict=True):
        for loss in round_.lost:  # what its links held when it was given up stays there
            of_round[:, loss.client - 1] = 0
    yield _worst_link(done, backlog.max(axis=0))


def _late_frames(done: Emulation) -> Observed:
    if are_impaired(done.scenario):
        arrived, late = (_in_all(_counts(done, name)) for name in ("arrived_frames", "late_frames"))
        yield _worst_link(done, late / np.maximum(arrived, 1))


def _share(part: str) -> Callable[[Emulation], Observed]:
    """The share of a part of the error budget in a round's latency."""

    def observe(done: Emulation) -> Observed:
        shares = [abs(r.budget.seconds[part]) / r.measured.latency_s for r in done.rounds]
        worst = int(np.argmax(shares))
        where = f"round {worst}"
        if part == "compute" and (late_s := [s for s in done.overruns_s if s > 0]):
            where += f"; {len(late_s)} of {len(done.overruns_s)} steps overran"
            where += f", by {max(late_s):.2g} s at most"
        yield shares[worst], where

    return observe


def _compute_share(done: Emulation) -> Observed:
    if done.scenario.workload.compute_time == "modelled":
        yield from _share("compute")(done)


def _rest_share(done: Emulation) -> Observed:
    # What the engine says of windows and losses is a model, and none of the emulation's errors.
    if not are_impaired(done.scenario):
        yield from _share("rest")(done)


def _clock_error(done: Emulation) -> Observed:
    errors_s = [record.links.clock_error_s for record in done.rounds]
    if any(errors_s):
        yield max(errors_s), f"round {int(np.argmax(errors_s))}"


def _steal(passed: Machine) -> float:
    return passed.stolen_ticks / max(1, passed.cpu_ticks)


def _drift_ppm(passed: Machine) -> float:
    return abs(passed.monotonic_ns / max(1, passed.raw_ns) - 1) * 1e6


def _of_machines(value_of: Callable[[Machine], float]) -> Callable[[Emulation], Observed]:
    """The worst value of all machines that carry nodes."""

    def observe(done: Emulation) -> Observed:
        machines = [
            (passed, f"host {host}, round {index}" if host else f"round {index}")
            for index, record in enumerate(done.rounds)
            for host, passed in {"": record.machine, **record.elsewhere}.items()
        ]
        passed, where = max(machines, key=lambda each: value_of(each[0]))
        yield value_of(passed), where

    return observe


def _others(done: Emulation) -> Observed:
    for share, where in _of_machines(lambda passed: passed.others)(done):
        if done.others and not where.startswith("host"):
            where += f"; cores by program: {', '.join(done.others)}"
        yield share, where


def _transfer_error(done: Emulation) -> Observed:
    yield from _off_rates(done, of_broadcast=False)


def _broadcast_error(done: Emulation) -> Observed:
    if not done.scenario.updates:
        yield from _off_rates(done, of_broadcast=True)


def _off_rates(done: Emulation, *, of_broadcast: bool) -> Observed:
    """How far transfers were from their links' rates: of the broadcast, or of all others.

    That one ends a packet early is no rate's error, however short it is. Where links delay or
    lose frames, windows and retransmissions make transfers late: then only those count that ended
    before rates and delay allow.
    """
    scenario = done.scenario
    if vary_by_slot(scenario):
        return
    dilation, shape = scenario.dilation, shape_of(scenario, scenario.dilation)
    transfers = pd.concat([record.transfers for record in done.rounds], ignore_index=True)
    rows = transfers[(transfers["step"] == "SM") == of_broadcast]
    if not len(rows):
        return
    early_s = _early_s(rows["rate_bps"], shape, dilation)
    if impaired := are_impaired(scenario):
        jitters = [each.jitter_s for way in impairments_of(scenario) for each in way]
        early_s += _JITTERS * max(jitters)
    early = (-rows["error"] - early_s / rows["due_s"]).clip(lower=0)
    late = rows["error"].clip(lower=0)
    if of_broadcast and scenario.emulation.clock == "real":
        pause_s = PAUSE_S / dilation / rows["due_s"]
        late -= pause_s.clip(upper=late)
    error = early if impaired else early + late
    row = rows.iloc[int(error.argmax())]
    where = f"worst {error.max():.2g}: {row.step} of client {row.client}, round {row['round']}"
    yield float(error.quantile(0.95)), where


def _early_s(rate_bps: "pd.Series[float]", shape: Shape, dilation: float) -> "pd.Series[float]":
    """By how much a transfer may end early, in emulated seconds, at a rate in emulated bit/s."""
    return rate_bps.map(
        lambda rate: shape.early_at(rate / dilation, shape.packet_frames(rate)) / dilation,
        na_action="ignore",  # of transfers of nothing
    )


def _loss_deviation(done: Emulation) -> Observed:
    """How far the frames lost on the worst link are from what was asked, in standard deviations."""
    if not are_impaired(done.scenario):
        return
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
    yield worst, where


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


# --- how values are observed in sessions ---------------------------------------------------------


def _session_exhausted(session: Session) -> Observed:
    yield session.recorder.exhausted, ""


def _session_lateness(session: Session) -> Observed:
    if len(session.recorder.lateness_s):
        yield float(np.quantile(session.recorder.lateness_s, 0.99)), ""


def _session_transfer_error(session: Session) -> Observed:
    errors = session.recorder.busy_errors
    if len(errors):
        busy = f"{len(errors)} slots with bytes waiting throughout"
        yield float(np.quantile(np.abs(errors), 0.95)), busy


def _session_clock_error(session: Session) -> Observed:
    if session.report.clock_error_s:
        yield session.report.clock_error_s, ""


def _session_steal(session: Session) -> Observed:
    yield _steal(session.machine), ""


def _session_drift(session: Session) -> Observed:
    yield _drift_ppm(session.machine), ""


CHECKS = {
    "calibration_error": ValidityCheck(
        "Error of the worst link before the run",
        f"links had wrong rates before the first round: {IDLE}; if it is idle, {SLOWER}: the "
        "rates exceed this machine's capacity",
        of_run=_calibration,
        of_session=_calibration,
        virtual_limit=0.01,
    ),
    "injector_lateness_s": ValidityCheck(
        "Lateness of rate changes, 99th percentile",
        f"rates changed late: {IDLE}, or {SLOWER}",
        of_run=_lateness,
        of_session=_session_lateness,
        virtual_limit=1e-5,
    ),
    "exhausted_slots": ValidityCheck(
        "Slots without rates",
        f"rates were sent to the injector too late: {IDLE}, or {SLOWER}",
        of_run=_exhausted,
        of_session=_session_exhausted,
    ),
    "dropped_frames": ValidityCheck(
        "Frames that a link's queue dropped",
        "a queue was full: raise emulation.dilation, or lower the delay or the rates",
        of_run=_dropped,
    ),
    "backlog_bytes": ValidityCheck(
        "Backlog of a link's queue after a round",
        "a round ended with frames in a queue: look at the link in the report",
        of_run=_backlog,
    ),
    "loss_deviation": ValidityCheck(
        "Deviation of frame loss from the channel's (standard deviations)",
        "the frame loss deviates from the configured one: please report it",
        of_run=_loss_deviation,
    ),
    "late_frames": ValidityCheck(
        "Frames that exceed their delay by a millisecond",
        f"delayed frames came late: {IDLE}, or {SLOWER}, or use emulation.clock virtual",
        of_run=_late_frames,
    ),
    "compute_share": ValidityCheck(
        "Overruns of computing, relative to a round",
        f"computing took longer than its model: {SLOWER}",
        of_run=_compute_share,
        virtual_limit=1e-4,
        falls_with_dilation=True,
    ),
    "injection_share": ValidityCheck(
        "Late rate changes, relative to a round",
        f"late rate changes cost time: {IDLE}, or {SLOWER}",
        of_run=_share("injection"),
        virtual_limit=1e-5,
    ),
    "rest_share": ValidityCheck(
        "Unexplained time, relative to a round",
        f"time was lost for unknown reasons: {IDLE}; see the worst round in the report",
        of_run=_rest_share,
        virtual_limit=0.01,
    ),
    "transfer_error": ValidityCheck(
        "Error of transfers, 95th percentile",
        f"transfers deviated from their links' rates: {IDLE}, or {SLOWER}",
        of_run=_transfer_error,
        of_session=_session_transfer_error,
        virtual_limit=0.02,
    ),
    "broadcast_error": ValidityCheck(
        "Error of the broadcast, 95th percentile",
        f"the broadcast deviated from its links' rates: {IDLE}, or {SLOWER}",
        of_run=_broadcast_error,
        virtual_limit=0.05,
    ),
    "clock_error_s": ValidityCheck(
        "Error of the clock offset between hosts",
        "the hosts' clocks could not be compared: check that their network is not congested, and "
        "that no clock is being set",
        of_run=_clock_error,
        of_session=_session_clock_error,
        real_clock_alone=True,
    ),
    "cpu_steal": ValidityCheck(
        "CPU time taken by other guests",
        "the host's other guests used the CPU: run at another time, or on another host",
        of_run=_of_machines(_steal),
        of_session=_session_steal,
        real_clock_alone=True,
    ),
    "cpu_others": ValidityCheck(
        "CPU time taken by other programs",
        f"other programs used the CPU: {IDLE}, or end them",
        of_run=_others,
        real_clock_alone=True,
    ),
    "clock_drift_ppm": ValidityCheck(
        "Drift of the clock",
        "the clock was being adjusted: wait until its daemon has settled",
        of_run=_of_machines(_drift_ppm),
        of_session=_session_drift,
        real_clock_alone=True,
    ),
}
"""Every check by its name in `emulation.limits`, in the order in which results list them.

Of virtual limits, each is above what docs/virtual-time.md has measured.
"""
