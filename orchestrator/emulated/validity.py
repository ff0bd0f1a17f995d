# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Checks whether a run or a session is valid: observed values are compared with limits.

Results that are not valid keep all measurements; manifest, console and report give the reasons.
`CHECKS` has everything about each check except for its limit with the real clock, which is a key of
`emulation.limits` in the scenario, under the same name.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from orchestrator.emulated.session import Session
from orchestrator.engine.links import impairments_of, shape_of
from orchestrator.records.emulation import Check, CloudRecord, Emulation
from orchestrator.scenario.schema import LIMITS_OF_REAL_CLOCK, Limits
from orchestrator.scenario.schema import Emulation as EmulationSection
from testbed.network.shaping import Shape
from testbed.system.machine import Machine

PAUSE_S = 0.002
"""Real seconds by which a busy machine may delay the end of a transfer."""
_JITTERS = 5
"""Standard deviations of the delay by which a frame may arrive early."""
IDLE = "wait until the machine is idle"
SLOWER = "raise emulation.dilation"
EXACT = "use emulation.clock virtual"
WAIT_QUIET = "--wait-quiet 10m waits for other processes to become idle"
"""An option of `testbed run` and `testbed up`."""
REPORT = "see the worst round in report.html, which is kept with --out"
_NETWORK = "no other program runs in virtual time, so the network is the cause"
IN_VIRTUAL_TIME = {
    "run": f"{_NETWORK}; {REPORT}",
    "session": f"{_NETWORK}; see the links in report.html",
}
"""The remedy in virtual time for checks whose own one is to wait for an idle machine, or a larger
dilation."""

EARLY = "too early"
"""In the detail of a check: transfers were too fast, of which no slow network or machine is the
cause."""
_WRONG_SIZES = (
    "transfers ended before the bytes that are counted for them can have been carried: please "
    "report it, with emulation.transport"
)

Tenant = Literal["run", "session"]
"""Kind of use of the network that is judged."""

Observed = Iterator[tuple[float, str]]
"""The worst value of a check and where it was observed; empty where the check does not apply."""


@dataclass(frozen=True)
class ValidityCheck:
    """One condition of validity: an observed value must not exceed a limit."""

    title: str
    remedy: str
    """Advice to the user. In virtual time, whose dilation is 1 and where no other program runs,
    `IN_VIRTUAL_TIME` replaces advice about the machine."""
    of_run: Callable[[Emulation], Observed] | None = None
    """Observes the value of a run; None: the check does not apply to runs."""
    of_session: Callable[[Session], Observed] | None = None
    """Observes the value of a session; None: the check does not apply to sessions."""
    session_remedy: str | None = None
    """Advice for sessions with the real clock; None: that for runs. Dilation is not among it:
    programs of sessions are not dilated."""
    cause: Callable[[Emulation], str] | None = None
    """Function that names the cause of a value above its limit, if the cause is known."""
    virtual_limit: float | None = None
    """Default limit in virtual time; None: that of the real clock."""
    falls_with_dilation: bool = False
    """Whether the value is about inversely proportional to dilation."""

    def limit(self, name: str, emulation: EmulationSection) -> float:
        """The limit for the scenario's clock."""
        limit: float = getattr(emulation.limits, name)
        is_default = limit == Limits.model_fields[name].default
        if emulation.clock == "virtual" and is_default and self.virtual_limit is not None:
            return self.virtual_limit
        return limit


def validity(done: Emulation, names: Collection[str] | None = None) -> list[Check]:
    """The checks of a run with at least one measured round: all, or those with these names."""
    return list(_judged(done.scenario.emulation, lambda check: check.of_run, done, names))


def session_validity(session: Session) -> list[Check]:
    """All checks of a session that has ended.

    The programs of a session are arbitrary, so links are judged only by the slots in which bytes
    were waiting all the time.
    """
    emulation = session.scenario.emulation
    return list(_judged(emulation, lambda check: check.of_session, session))


def _judged(
    emulation: EmulationSection,
    how: Callable[[ValidityCheck], Any],
    observed: Any,
    names: Collection[str] | None = None,
) -> Iterator[Check]:
    for name, check in CHECKS.items():
        observe = how(check) if names is None or name in names else None
        if observe is None or (name in LIMITS_OF_REAL_CLOCK and emulation.clock == "virtual"):
            continue
        limit = check.limit(name, emulation)
        if name == "transfer_error" and (isinstance(observed, Session) or _is_ns3(observed)):
            # One frame is up to 2 % of a slot, and a TTI of a transfer of 50 ms, with either clock.
            limit = emulation.limits.transfer_error
        if name == "rest_share" and _is_ns3(observed):
            limit = emulation.limits.rest_share  # It has what the model of windows lacks.
        for value, where in observe(observed):
            ok = bool(value <= limit)
            if not ok and check.cause is not None and isinstance(observed, Emulation):
                where = "; ".join(filter(None, (where, check.cause(observed))))
            yield Check(name, limit, float(value), ok, where)


def to_json(checks: Sequence[Check]) -> list[dict[str, Any]]:
    """The checks as entries of the manifest."""
    return [asdict(check) for check in checks]


def remedies(
    checks: object, dilation: object, clock: object, tenant: Tenant = "run"
) -> dict[str, str]:
    """Advice for each failed check of a manifest, by name."""
    return {
        check["check"]: remedy(
            *(check["check"], check["value"], check["limit"], dilation, clock, tenant),
            detail=check.get("detail", ""),
        )
        for check in (checks if isinstance(checks, list) else [])
        if check.get("ok") is False
    }


def remedy(
    name: str,
    value: object,
    limit: object,
    dilation: object,
    clock: object = "real",
    tenant: Tenant = "run",
    detail: object = "",
) -> str:
    """Advice for a failed check; empty if the check is unknown.

    Args:
        name: Name of the check.
        value: Observed value.
        limit: Limit of the value.
        dilation: Dilation of the run or session.
        clock: Clock of the run or session.
        tenant: Whether it is a run or a session.
        detail: The check's detail.
    """
    check = CHECKS.get(name)
    if check is None:
        return ""
    if EARLY in str(detail):
        return _WRONG_SIZES
    if clock == "virtual":
        if IDLE in check.remedy or check.remedy.endswith(SLOWER):
            return IN_VIRTUAL_TIME[tenant]
        return check.remedy.replace(f"{SLOWER}, or ", "")
    if tenant == "session" and check.session_remedy is not None:
        return check.session_remedy
    numbers = [n for n in (value, limit, dilation) if isinstance(n, (int, float)) and n > 0]
    if check.falls_with_dilation and len(numbers) == 3:
        return f"{check.remedy} to {numbers[2] * numbers[0] / numbers[1]:.2g} or more"
    return check.remedy


# --- how values are observed in runs -------------------------------------------------------------


def _calibration(done: Emulation | Session) -> Observed:
    if done.calibration is not None and len(done.calibration):
        dilation = done.scenario.dilation
        yield calibration_error(done.calibration, shape_of(done.scenario, dilation), dilation)


def _is_ns3(observed: Emulation | Session) -> bool:
    """Whether ns-3's radio carries the frames."""
    return observed.scenario.emulation.air == "ns3"


def _lateness(done: Emulation, *, of_ns3: bool = False) -> Observed:
    if _is_ns3(done) == of_ns3:
        injector = pd.concat([record.injector for record in done.records])
        yield float(injector["lateness_s"].quantile(0.99)), ""


def _unaccounted(done: Emulation) -> Observed:
    if _is_ns3(done):
        yield _worst_link(done, np.array(_counts(done, "unaccounted_frames")).max(axis=0))


def _exhausted(done: Emulation) -> Observed:
    yield sum(record.links.exhausted for record in done.records), ""


def _counts(done: Emulation, counter: str) -> list[list[int]]:
    """A counter of every link's end, by round: uplinks, then downlinks."""
    return [
        [getattr(end, counter) for end in (*record.links.uplink, *record.links.downlink)]
        for record in done.records
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
    members = done.scenario.members
    for of_round, record in zip(by_link, done.records, strict=True):
        if record.edge:  # Lost clients of other edge servers have a backlog as well.
            others = np.isin(np.arange(1, of_round.shape[1] + 1), members[record.edge - 1])
            of_round[:, ~others] = 0
        for loss in record.measured.lost:  # the backlog of lost clients remains
            of_round[:, loss.client - 1] = 0
    yield _worst_link(done, backlog.max(axis=0))


def _late_frames(done: Emulation) -> Observed:
    if done.scenario.is_impaired:
        arrived, late = (_in_all(_counts(done, name)) for name in ("arrived_frames", "late_frames"))
        yield _worst_link(done, late / np.maximum(arrived, 1))


def _share(part: str) -> Callable[[Emulation], Observed]:
    """The observation of a part of the error budget as a share of a round's latency."""

    def observe(done: Emulation) -> Observed:
        shares = [
            abs((r.played.budget if isinstance(r, CloudRecord) else r.budget.seconds)[part])
            / r.measured.latency_s
            for r in done.rounds
        ]
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
    # Effects of windows and losses come from a model, and are not errors of the emulation; with
    # Wi-Fi, which has no grants, the two cannot be separated.
    radio = done.scenario.radio
    without_grants = _is_ns3(done) and radio.kind.cell is None
    # Gradients that the scheduler orders overlap, which the prediction does not have.
    by_mac = _is_ns3(done) and radio.lte.downlink_order == "mac"
    if not (done.scenario.is_impaired or without_grants or by_mac):
        yield from _share("rest")(done)


def _clock_error(done: Emulation) -> Observed:
    errors_s = [record.links.clock_error_s for record in done.records]
    if any(errors_s):
        yield max(errors_s), done.place(int(np.argmax(errors_s)))


def _steal(passed: Machine) -> float:
    return passed.stolen_ticks / max(1, passed.cpu_ticks)


def _drift_ppm(passed: Machine) -> float:
    return abs(passed.monotonic_ns / max(1, passed.raw_ns) - 1) * 1e6


def _of_machines(value_of: Callable[[Machine], float]) -> Callable[[Emulation], Observed]:
    """The worst value of all machines that have nodes."""

    def observe(done: Emulation) -> Observed:
        machines = [
            (passed, f"host {host}, {done.place(index)}" if host else done.place(index))
            for index, record in enumerate(done.records)
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


READS_S = 10e-6
"""Real seconds that programs in virtual time take to begin and end a transfer: reads of the clock
and failing calls are all that takes time there."""


def _transfer_error(done: Emulation) -> Observed:
    yield from _off_rates(done, of_broadcast=False)


def _broadcast_error(done: Emulation) -> Observed:
    if not done.scenario.updates:
        yield from _off_rates(done, of_broadcast=True)


def _off_rates(done: Emulation, *, of_broadcast: bool) -> Observed:
    """Errors of transfers relative to their links' rates, for the broadcast or for all others.

    A transfer may end a packet early, however short it is. Where links delay or lose frames,
    windows and retransmissions delay transfers; then only transfers count that ended earlier than
    rates and delay allow.
    """
    scenario = done.scenario
    if scenario.links.vary_by_slot or (_is_ns3(done) and scenario.radio.kind.cell is None):
        return
    dilation, shape = scenario.dilation, shape_of(scenario, scenario.dilation)
    transfers = pd.concat(done.tables("transfers"), ignore_index=True)
    rows = transfers[(transfers["step"] == "SM") == of_broadcast]
    if not len(rows):
        return
    early_s = _early_s(rows["rate_bps"], shape, dilation)
    if impaired := scenario.is_impaired:
        jitters = [each.jitter_s for way in impairments_of(scenario) for each in way]
        early_s += _JITTERS * max(jitters)
    early = (-rows["error"] - early_s / rows["due_s"]).clip(lower=0)
    late = rows["error"].clip(lower=0)
    if shape.serial:
        late = (late - READS_S / dilation / rows["due_s"]).clip(lower=0)
    if of_broadcast and scenario.emulation.clock == "real":
        pause_s = PAUSE_S / dilation / rows["due_s"]
        late -= pause_s.clip(upper=late)
    error = early if impaired else early + late
    row = rows.iloc[int(error.argmax())]
    where = f"largest error {_percent(error.max())}: {row.step} of client {row.client}, "
    where += f"round {row['round']}"
    if error.max() and row["error"] < 0:
        where += f", {EARLY}"
    yield float(error.quantile(0.95)), where


def _acknowledgements(done: Emulation) -> str:
    """Delay of late transfers by the other direction, which carries their acknowledgements: the
    number of their slots in which it was out, or too slow; empty if it was neither."""
    slot_s, emulation = done.scenario.slot_s, done.scenario.emulation
    limit = CHECKS["transfer_error"].limit("transfer_error", emulation)
    most = shape_of(done.scenario, done.scenario.dilation).most_asymmetry
    found = []
    for name, of, steps in (
        ("uplink", "downlink", ("SM", "SG")),
        ("downlink", "uplink", ("CA", "CM")),
    ):
        slots: set[tuple[int, int, int]] = set()
        out: set[tuple[int, int, int]] = set()
        slow: dict[tuple[int, int, int], float] = {}
        for index, record in enumerate(done.records):
            transfers = record.transfers
            late = transfers[transfers["step"].isin(steps) & (transfers["error"] > limit)]
            rates, back = record.rates[f"{of}_bps"], record.rates[f"{name}_bps"]
            keys = [
                (index, *key) for key in zip(record.rates.client, record.rates.slot, strict=True)
            ]
            ratios = dict(zip(keys, (rates / back.replace(0.0, np.nan)).tolist(), strict=True))
            closed = {key for key, bps in zip(keys, back, strict=True) if bps == 0}
            spans = late[["client", "start_s", "duration_s"]].itertuples(index=False, name=None)
            for client, start_s, took_s in spans:
                end = math.ceil((start_s + took_s) / slot_s)
                played = {(index, client, slot) for slot in range(int(start_s / slot_s), end)}
                slots |= played
                out |= played & closed
                slow |= {key: ratios[key] for key in played if ratios.get(key, 0.0) > most}
        if out:
            found.append(
                f"the {name}, which carries the acknowledgements, was out in {len(out)} of "
                f"{len(slots)} slots of late transfers"
            )
        elif slow:
            found.append(
                f"the {of} was up to {max(slow.values()):.0f} times as fast as the {name}, which "
                f"carries the acknowledgements: TCP fills it up to {most:.0f} times"
            )
    return "; ".join(found)


def _early_s(rate_bps: "pd.Series[float]", shape: Shape, dilation: float) -> "pd.Series[float]":
    """The tolerance for early ends in emulated seconds, at a rate in emulated bit/s."""
    return rate_bps.map(
        lambda rate: shape.early_at(rate / dilation, shape.packet_frames(rate)) / dilation,
        na_action="ignore",  # empty transfers
    )


def _loss_deviation(done: Emulation) -> Observed:
    """Deviation of the lost frames of the worst link from the expected number, in standard
    deviations."""
    if not done.scenario.is_impaired:
        return
    worst, where = 0.0, ""
    for name, ways in zip(("uplink", "downlink"), impairments_of(done.scenario), strict=True):
        ends = [getattr(record.links, name) for record in done.records]
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
    """The rate error of the worst link before the run, and where it was observed.

    `table` is the result of `calibrate`. A transfer, even a very short one, may end one packet
    early. The median over a link's rates tolerates one disturbed transfer. It must not hide a rate
    that is always wrong, so each rate also counts with the error that a pause of `PAUSE_S` cannot
    explain. Serial lines whose acknowledgements may be late are not judged: the beginning of a
    transfer over them depends on TCP.
    """
    table = _acknowledged_in_time(table, shape)
    early_s = _early_s(table["rate_bps"], shape, dilation)
    sizes = table.assign(error=(table["error"].abs() - early_s / table["due_s"]).clip(lower=0))
    links = sizes.groupby(["direction", "client"], as_index=False)["error"].median()
    link = links.iloc[int(links["error"].argmax())]
    sizes["whole"] = table["error"].abs()
    largest = int(sizes["whole"].argmax())
    rate = sizes.iloc[largest]
    beyond = sizes["error"] - PAUSE_S / dilation / sizes["due_s"]
    worst = sizes.iloc[int(beyond.argmax())]
    where = f"{link['direction']} {link['client']}"
    if beyond.max() > link["error"]:
        where = f"{worst['direction']} {worst['client']} at its {worst['level']} rate"
    where += f"; largest error, tolerance included, {_percent(rate['whole'])}: "
    where += f"{rate['direction']} {rate['client']} at its {rate['level']} rate"
    if table["error"].iloc[largest] < 0:
        where += f", {EARLY}"
    return float(max(link["error"], beyond.max())), where


def _percent(share: float) -> str:
    """A share as text; less than 0.0001 % counts as nothing."""
    return f"{100 * share:.2g} %" if share >= 1e-6 else "0 %"


def _acknowledged_in_time(table: pd.DataFrame, shape: Shape) -> pd.DataFrame:
    """The rows of links that are not too fast for acknowledgements by their other direction."""
    keys = ["client", "level", "direction"]
    other = table["direction"].map({"uplink": "downlink", "downlink": "uplink"})
    rates = table.set_index(keys)["rate_bps"]
    back = rates.reindex(pd.MultiIndex.from_frame(table.assign(direction=other)[keys]))
    too_fast = table["rate_bps"].to_numpy() > shape.prompt_asymmetry * back.to_numpy()
    return table[~too_fast]


def _in_all(counts: Sequence[Sequence[int]]) -> npt.NDArray[np.int64]:
    """Totals of the links' counters [rounds, ways], which restart at 0 where a run was resumed."""
    table = np.array(counts)
    begun_anew = (np.diff(table, axis=0) < 0).any(axis=1)
    total: npt.NDArray[np.int64] = table[-1] + table[:-1][begun_anew].sum(axis=0)
    return total


# --- how values are observed in sessions ---------------------------------------------------------


def _session_exhausted(session: Session) -> Observed:
    missed, where = session.recorder.exhausted, ""
    if session.reacts and missed:
        share = missed / max(1, session.recorder.totals.slots)
        where = f"{share:.2%} of the slots: UAVs react, so rates are computed just before each slot"
    yield missed, where


def _session_unaccounted(session: Session) -> Observed:
    if _is_ns3(session):
        ends = (*session.report.uplink, *session.report.downlink)
        yield max(end.unaccounted_frames for end in ends), ""


def _session_lateness(session: Session, *, of_ns3: bool = False) -> Observed:
    if len(session.recorder.lateness_s) and _is_ns3(session) == of_ns3:
        yield float(np.quantile(session.recorder.lateness_s, 0.99)), ""


def _session_transfer_error(session: Session) -> Observed:
    errors = session.recorder.busy_errors
    if len(errors):
        busy = f"{len(errors)} slots with a backlog all the time"
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
        "Calibration error of the worst link, beyond the tolerance",
        f"links had wrong rates before the first round: {IDLE}; if it is idle, {SLOWER}: the "
        "rates exceed this machine's capacity",
        session_remedy=f"links had wrong rates before slot 0: {IDLE}; if it is idle, {EXACT}: the "
        "rates exceed this machine's capacity",
        of_run=_calibration,
        of_session=_calibration,
        virtual_limit=0.01,
    ),
    "injector_lateness_s": ValidityCheck(
        "Lateness of rate changes, 99th percentile",
        f"rates changed late: {IDLE}, or {SLOWER}",
        session_remedy=f"rates changed late: {IDLE}, or {EXACT}",
        of_run=_lateness,
        of_session=_session_lateness,
        virtual_limit=1e-5,
    ),
    "radio_lateness_s": ValidityCheck(
        "Lateness of ns-3's radio, 99th percentile of slots",
        f"ns-3 did not keep up with the clock: {IDLE}, or {EXACT}, or {SLOWER}",
        session_remedy=f"ns-3 did not keep up with the clock: {IDLE}, or {EXACT}",
        of_run=partial(_lateness, of_ns3=True),
        of_session=partial(_session_lateness, of_ns3=True),
        virtual_limit=1e-4,
        falls_with_dilation=True,
    ),
    "unaccounted_packets": ValidityCheck(
        "Packets that ns-3's radio does not account for",
        "packets vanished between the devices and ns-3: please report it",
        of_run=_unaccounted,
        of_session=_session_unaccounted,
    ),
    "exhausted_slots": ValidityCheck(
        "Slots without rates",
        f"rates were sent to the injector too late: {IDLE}, or {SLOWER}",
        session_remedy=f"rates were sent to the injector too late: {IDLE}, or {EXACT}",
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
        f"a round ended with frames in a queue: {REPORT}",
        of_run=_backlog,
    ),
    "loss_deviation": ValidityCheck(
        "Deviation of frame loss from the channel's (standard deviations)",
        "the frame loss deviates from the configured one: please report it",
        of_run=_loss_deviation,
    ),
    "late_frames": ValidityCheck(
        "Frames that exceed their delay by a millisecond",
        f"delayed frames came late: {IDLE}, or {SLOWER}, or {EXACT}",
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
        f"time was lost for unknown reasons: {IDLE}; {REPORT}",
        of_run=_rest_share,
        cause=_acknowledgements,
        virtual_limit=0.01,
    ),
    "transfer_error": ValidityCheck(
        "Error of transfers, 95th percentile",
        f"transfers deviated from their links' rates: {IDLE}, or {SLOWER}",
        session_remedy=f"links did not carry what their rates allow: {IDLE}, or {EXACT}",
        of_run=_transfer_error,
        cause=_acknowledgements,
        of_session=_session_transfer_error,
        virtual_limit=0.02,
    ),
    "broadcast_error": ValidityCheck(
        "Error of the broadcast, 95th percentile",
        f"the broadcast deviated from its links' rates: {IDLE}, or {SLOWER}",
        of_run=_broadcast_error,
        cause=_acknowledgements,
        virtual_limit=0.05,
    ),
    "clock_error_s": ValidityCheck(
        "Error of the clock offset between hosts",
        "the hosts' clocks could not be compared: check that their network is not congested, and "
        "that no clock is being set",
        of_run=_clock_error,
        of_session=_session_clock_error,
    ),
    "cpu_steal": ValidityCheck(
        "CPU time taken by other guests",
        "the host's other guests used the CPU: run at another time, or on another host",
        of_run=_of_machines(_steal),
        of_session=_session_steal,
    ),
    "cpu_others": ValidityCheck(
        "CPU time taken by other programs",
        f"other programs used the CPU: {IDLE}, or end them",
        of_run=_others,
    ),
    "clock_drift_ppm": ValidityCheck(
        "Drift of the clock",
        "the clock was being adjusted: wait until its daemon has settled",
        of_run=_of_machines(_drift_ppm),
        of_session=_session_drift,
    ),
}
"""Every check by its name in `emulation.limits`, in the order in which results list them.

The limits in virtual time are above the values that docs/measured.md lists.
"""
