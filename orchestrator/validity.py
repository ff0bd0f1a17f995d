"""Whether a run may be believed: what was observed while it ran, held against limits.

A run that is not valid keeps everything it measured; manifest, console and report say why it is
not. Limits are `emulation.limits` of the scenario.
"""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

if TYPE_CHECKING:
    from orchestrator.emulate import Emulation

_PROGRAMS = 3
"""Columns of /proc/stat before this one: time in programs and in the kernel for them."""
_STEAL = 7
"""Column of /proc/stat: time for which another guest of the same host had this machine's CPU."""
_GUESTS = 8
"""Columns from here on count again what stands in earlier ones."""


@dataclass(frozen=True)
class Check:
    """One thing that was observed, and the most it may be."""

    check: str
    limit: float
    value: float
    ok: bool
    detail: str = ""
    """Where it was worst, if that says more."""

    def __str__(self) -> str:
        where = f" ({self.detail})" if self.detail else ""
        return f"{self.check}: {self.value:.3g}, at most {self.limit:.3g}{where}"


@dataclass(frozen=True)
class Machine:
    """The machine's clocks and CPU accounts at a moment, or how far they went between two."""

    monotonic_ns: int
    raw_ns: int
    cpu_ticks: int
    """Of all CPUs, idle ones too."""
    stolen_ticks: int
    program_ticks: int
    """In all programs, and in the kernel for them."""
    own_s: float
    """CPU seconds of this process; over a round, of its nodes, too."""

    @classmethod
    def now(cls) -> "Machine":
        """As it is."""
        line = Path("/proc/stat").read_text().partition("\n")[0]
        ticks = [int(field) for field in line.split()[1:]]
        return cls(
            time.monotonic_ns(),
            time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW),
            sum(ticks[:_GUESTS]),
            ticks[_STEAL] if len(ticks) > _STEAL else 0,
            sum(ticks[:_PROGRAMS]),
            time.process_time(),
        )

    def since(self, before: "Machine", nodes_s: float) -> "Machine":
        """What has passed since then, while the nodes took those CPU seconds."""
        passed = {name: now - vars(before)[name] for name, now in vars(self).items()}
        return Machine(**passed | {"own_s": passed["own_s"] + nodes_s})

    @property
    def others(self) -> float:
        """Share of all CPU time that programs outside of the run took, of what has passed."""
        own_ticks = self.own_s * os.sysconf("SC_CLK_TCK")
        return max(0.0, self.program_ticks - own_ticks) / max(1, self.cpu_ticks)


def validity(done: "Emulation") -> list[Check]:
    """All checks of a run with at least one measured round."""
    limits = done.scenario.emulation.limits.model_dump()
    return [
        Check(name, limits[name], float(value), bool(value <= limits[name]), detail)
        for name, value, detail in _observed(done)
    ]


def to_json(checks: Sequence[Check]) -> list[dict[str, Any]]:
    """The checks as they stand in the manifest."""
    return [asdict(check) for check in checks]


def _observed(done: "Emulation") -> Iterator[tuple[str, float, str]]:
    """Name of the check (as in the scenario), worst value, where."""
    if done.calibration is not None and len(done.calibration):
        sizes = done.calibration.assign(error=done.calibration["error"].abs())
        links = sizes.groupby(["direction", "client"], as_index=False)["error"].median()
        worst_link = links.iloc[int(links["error"].argmax())]
        probe = sizes.iloc[int(sizes["error"].argmax())]
        where = f"{worst_link['direction']} {worst_link['client']}; worst {probe['error']:.2g}: "
        where += f"{probe['direction']} {probe['client']} at its {probe['level']} rate"
        yield "calibration_error", float(worst_link["error"]), where

    injector = pd.concat(done.injector)
    yield "injector_lateness_s", float(injector["lateness_s"].quantile(0.99)), ""
    yield "exhausted_slots", sum(report.exhausted for report in done.links), ""

    ways = [(*report.uplink, *report.downlink) for report in done.links]
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

    budgets = list(zip(done.budgets, done.measured, strict=True))
    parts = ["injection", "rest"]
    if done.scenario.workload.compute_time == "modelled":
        parts.insert(0, "compute")
    for part in parts:
        shares = [abs(budget.seconds[part]) / round_.latency_s for budget, round_ in budgets]
        worst = int(np.argmax(shares))
        where = f"round {budgets[worst][0].round}"
        if part == "compute" and (late_s := [s for s in done.overruns_s if s > 0]):
            where += f"; {len(late_s)} of {len(done.overruns_s)} steps overran"
            where += f", by {max(late_s):.2g} s at most"
        yield f"{part}_share", shares[worst], where
    transfers = pd.concat(done.transfers)
    large = transfers[transfers["step"] != "SM"]
    errors = large["error"].abs()
    row = large.iloc[int(errors.argmax())]
    where = f"worst {errors.max():.2g}: {row.step} of client {row.client}, round {row['round']}"
    yield "transfer_error", float(errors.quantile(0.95)), where

    stolen = [passed.stolen_ticks / max(1, passed.cpu_ticks) for passed in done.machine]
    yield "cpu_steal", max(stolen), f"round {int(np.argmax(stolen))}"
    others = [passed.others for passed in done.machine]
    yield "cpu_others", max(others), f"round {int(np.argmax(others))}"
    drift = [abs(passed.monotonic_ns / passed.raw_ns - 1) * 1e6 for passed in done.machine]
    yield "clock_drift_ppm", max(drift), f"round {int(np.argmax(drift))}"


def _in_all(counts: Sequence[Sequence[int]]) -> npt.NDArray[np.int64]:
    """Totals of links' counters [rounds, ways], which begin anew where a run was gone on with."""
    table = np.array(counts)
    begun_anew = (np.diff(table, axis=0) < 0).any(axis=1)
    total: npt.NDArray[np.int64] = table[-1] + table[:-1][begun_anew].sum(axis=0)
    return total
