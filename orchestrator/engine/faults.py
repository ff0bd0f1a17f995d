# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Faults of a run: those that a scenario plans, and their effects on each round.

The same `RoundFaults` go to the engine and, through `of_uav` and `of_bs`, to the emulated nodes, so
that both have the same faults. Faults begin and end at slot boundaries, as rates do.

A client is *silent* while its link is out or its process has ended. It is *lost* when it has been
silent for the loss timeout, whether a node waits for it or not; or at once when it sends a frame
that is refused; or at the deadline of the round, if there is one. The scenario's `faults.on_loss`
sets what a round does then.
"""

import contextlib
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ns3_scenarios.trace import SlotValues, TwoWay
from orchestrator.scenario.fleet import Array
from orchestrator.scenario.schema import LASTING, Scenario
from testbed.core.errors import RunEnds
from testbed.core.faults import BsFaults, UavFaults
from testbed.core.node import BS, NodeId, uav
from testbed.core.timeline import Loss, Round

SILENCING = ("uav-crash", "link-outage", "partition")
WRONG = ("corrupt-frame", "duplicate-frame")
HOST_LOSS = "host-loss"
"""The unplanned loss of the host of a client."""
DEADLINE = "deadline"
"""Cause of the loss of a client that has not finished by `participation.deadline_s`."""


@dataclass(frozen=True)
class Fault:
    """One fault with absolute times."""

    kind: str
    nodes: tuple[NodeId, ...]
    round: int | None
    """The round from whose start the times count; None: from the start of the run."""
    start_s: float
    end_s: float
    """End of the fault; infinity: never."""
    factor: float
    origin: str
    """Key of the scenario that plans the fault, or the host that was lost."""
    lost_s: float = math.inf
    """Time at which its nodes are lost, if it does not follow from silence."""

    @classmethod
    def of_host(cls, host: str, nodes: Sequence[NodeId], start_s: float, lost_s: float) -> "Fault":
        """The loss of a host with its nodes at `start_s`; the nodes are lost at `lost_s`."""
        origin = f"host {host}"
        return cls(HOST_LOSS, tuple(nodes), None, start_s, math.inf, 1.0, origin, lost_s)

    @property
    def cause(self) -> str:
        """The cause of a client's loss, as results show it."""
        return f"loss of {self.origin}" if self.kind == HOST_LOSS else self.kind

    def to_json(self) -> dict[str, Any]:
        """The fault as an entry of the manifest."""
        names = list(map(str, self.nodes))
        end_s = self.end_s if math.isfinite(self.end_s) else None
        tree = asdict(self) | {"nodes": names, "end_s": end_s}
        del tree["lost_s"]
        return tree

    def __str__(self) -> str:
        return f"{self.kind} at {self.start_s:g} s, {self.origin}"


@dataclass(frozen=True)
class RoundFaults:
    """Faults in one round of K clients; times in absolute emulated seconds."""

    absent: npt.NDArray[np.bool_]
    """Clients that do not take part, because they rest or are lost at the start; shape [K]."""
    stop_s: Array
    """End of each client's process, shape [K]; infinity: none."""
    lost_s: Array
    """Time at which each client is lost, shape [K]; infinity: never."""
    wrong_s: Array
    """Time from which the first smashed data of each client are sent wrongly, shape [K]; infinity:
    never."""
    wrong: Sequence[Any]
    """Kind of wrong frames: one of `testbed.core.faults.Wrong`, or None; shape [K]."""
    slow: Array
    """Intervals of slow computing, shape [n, 4]: client (0: the base station), start, end, factor;
    see `testbed.core.faults.slowed_end`."""
    silent: Sequence[tuple[int, int, int | None]]
    """Intervals without a link: client (from 1), first slot and end slot (None: no end)."""
    bs_crash_s: float
    drops: bool
    """Whether the round continues without a lost client."""
    causes: dict[int, str]
    """Cause of the loss of each client."""
    resting: npt.NDArray[np.bool_]
    """Clients that were not chosen for the round, shape [K]."""
    deadline_s: float = math.inf
    """Time until which the round lasts if no client finishes; infinity: the run ends then."""

    def silenced(self, gain: SlotValues, begin: int = 0) -> SlotValues:
        """The gains [K, S] of the slots from `begin` on, with every silent link at 0."""
        if not self.silent:
            return gain
        values = gain.values.copy() if isinstance(gain, TwoWay) else gain.copy()
        for client, first, end in self.silent:
            last = None if end is None else max(0, end - begin)
            values[..., client - 1, max(0, first - begin) : last] = 0.0
        return replace(gain, values=values) if isinstance(gain, TwoWay) else values

    def of_uav(self, client: int) -> UavFaults:
        """The faults that UAV `client` (from 1) must have in its order."""
        k = client - 1
        return UavFaults(
            crash_s=_finite(self.stop_s[k]),
            lost_s=_finite(self.lost_s[k]),
            wrong=self.wrong[k],
            wrong_s=float(self.wrong_s[k]) if self.wrong[k] else 0.0,
            slow=self.slow_of(client),
        )

    def at_full_speed(self) -> "RoundFaults":
        """The same faults without slow nodes, for plans whose durations already include them."""
        return replace(self, slow=np.empty((0, 4)))

    @property
    def are_none(self) -> bool:
        """Whether there are no faults; clients may rest."""
        ends_s = [*self.lost_s, *self.stop_s, *self.wrong_s, self.bs_crash_s]
        return not any(map(math.isfinite, ends_s)) and not len(self.slow) and not self.silent

    def of_bs(self) -> BsFaults:
        """The faults that the base station must have in its order."""
        lost_s = [_finite(at_s) for at_s in self.lost_s]
        return BsFaults(lost_s, self.drops, self.slow_of(BS.client))

    def slow_of(self, node: int) -> list[list[float]]:
        """Intervals in which a node (0 is the base station) is slow, see `slowed_end`."""
        rows: list[list[float]] = self.slow[self.slow[:, 0] == node][:, 1:].tolist()
        return rows

    def loss(self, client: int, lost_s: float, refused: str = "") -> Loss:
        """The loss of client `client` (from 1) at that time; `refused` is empty unless its frame
        was refused."""
        stopped_s = min(lost_s, float(self.stop_s[client - 1]))
        is_early = lost_s < self.lost_s[client - 1]
        cause = self.wrong[client - 1] or refused if is_early else self.causes[client]
        return Loss(client, lost_s, stopped_s, cause)

    def check(self, index: int, end_s: float, lost: Sequence[Loss]) -> None:
        """Check that the round can be completed.

        Args:
            index: Index of the round.
            end_s: Actual or possible end of the round.
            lost: Clients that were lost during the round, or before.

        Raises:
            RunEnds: The base station, a client that may not be dropped, or all clients are lost.
        """
        first = min((loss.lost_s for loss in lost), default=math.inf)
        if lost and not self.drops and first <= self.bs_crash_s:
            raise self.ends(index, min(lost, key=lambda loss: loss.lost_s))
        if self.bs_crash_s <= end_s:
            raise RunEnds(
                f"round {index}: the base station crashed at {self.bs_crash_s:g} s, as planned, "
                "and no round continues without it",
                self.bs_crash_s,
            )
        if self.all_lost(lost) and not self.is_empty(lost):
            raise RunEnds(f"round {index}: no client is left at {end_s:g} s", end_s)

    def all_lost(self, lost: Sequence[Loss]) -> bool:
        """Whether these are all clients of the round."""
        return len(lost) == len(self.absent) - int(self.resting.sum())

    def is_empty(self, lost: Sequence[Loss]) -> bool:
        """Whether no client finishes the round, but the run continues: it has a deadline, and at
        least one client's process has not ended.

        Args:
            lost: Clients that were lost during the round, or before.
        """
        left = math.isinf(float(self.stop_s[~self.resting].max()))
        return self.all_lost(lost) and math.isfinite(self.deadline_s) and left

    def ends(self, index: int, loss: Loss) -> RunEnds:
        """The exception for a run that ends with the loss of a client."""
        return RunEnds(
            f"round {index}: the base station waited for {uav(loss.client)}, lost at "
            f"{loss.lost_s:g} s ({loss.cause}), and faults.on_loss does not drop it",
            loss.lost_s,
        )


def planned(scenario: Scenario) -> list[Fault]:
    """All faults of a scenario: the given ones, then those that are drawn by seed."""
    return [*_given_faults(scenario), *_drawn_faults(scenario)]


def _given_faults(scenario: Scenario) -> Iterator[Fault]:
    for index, event in enumerate(scenario.faults.events):
        lasts_s = math.inf if event.duration_s is None else event.duration_s
        yield Fault(
            event.kind,
            tuple(map(NodeId.parse, event.nodes)) or (BS,),
            event.round,
            event.at_s,
            event.at_s + lasts_s if event.kind in LASTING else math.inf,
            event.factor,
            f"faults.events.{index}",
        )


def _drawn_faults(scenario: Scenario) -> Iterator[Fault]:
    settings = scenario.faults.random
    if settings is None:
        return
    rng = np.random.default_rng(scenario.seed if settings.seed is None else settings.seed)
    count = settings.count
    if count is None:
        count = int(rng.poisson(settings.rate_per_s * settings.within_s))
    for start_s in np.sort(rng.uniform(0, settings.within_s, count)).tolist():
        kind = settings.kinds[rng.integers(len(settings.kinds))]
        node = BS if kind == "bs-crash" else uav(1 + int(rng.integers(scenario.uavs.count)))
        lasts_s, factor = rng.uniform(*settings.duration_s), rng.uniform(*settings.factor)
        end_s = start_s + lasts_s if kind in LASTING else math.inf
        yield Fault(kind, (node,), None, start_s, end_s, factor, "faults.random")


class FaultSchedule:
    """The faults of a scenario on one timeline, round by round."""

    def __init__(self, scenario: Scenario):
        self._policy = scenario.faults.on_loss
        self._timeout_s = scenario.faults.loss_timeout_s
        self._deadline_s = scenario.participation.deadline_s
        self._clients = scenario.uavs.count
        self._slot_s = scenario.slot_s
        self._planned = planned(scenario)
        self._faults = [self._on_slots(f, 0.0) for f in self._planned if f.round is None]
        self._index = -1
        """Index of the last round that was started."""
        self._before = list(self._faults)
        """The faults when that round was started."""

    @property
    def is_empty(self) -> bool:
        """Whether no round can have faults, unless one is added."""
        return not self._planned and not self._before and self._deadline_s is None

    def round(
        self, index: int, start_s: float, clients: Collection[int] | None = None
    ) -> RoundFaults | None:
        """The faults of the round that starts now; None if there are none left.

        The last round may be started again after a fault has been added.

        Args:
            index: Index of the round.
            start_s: Start of the round.
            clients: Participating clients, which alone are subject to faults. Default: all.

        Raises:
            RunEnds: The round cannot begin: see `RoundFaults.check`.
        """
        if index != self._index:
            self._index, self._before = index, list(self._faults)
        of_round = [self._on_slots(f, start_s) for f in self._planned if f.round == index]
        self._faults = self._before + of_round
        faults = [fault for fault in self._faults if fault.end_s > start_s]
        everyone = range(1, self._clients + 1)
        resting = np.array([clients is not None and k not in clients for k in everyone])
        if not faults and not resting.any() and self._deadline_s is None:
            return None
        none = np.full(self._clients, math.inf)
        found = RoundFaults(
            absent=resting.copy(),
            stop_s=none.copy(),
            lost_s=none.copy(),
            wrong_s=none.copy(),
            wrong=[None] * self._clients,
            slow=self._slow(faults),
            silent=[],
            bs_crash_s=min((f.start_s for f in faults if f.kind == "bs-crash"), default=math.inf),
            drops=self._policy == "drop",
            causes={},
            resting=resting,
            deadline_s=math.inf if self._deadline_s is None else start_s + self._deadline_s,
        )
        for client in (1 + np.flatnonzero(~resting)).tolist():
            self._of_client(client, [f for f in faults if uav(client) in f.nodes], start_s, found)
            self._in_time(client, start_s, found)
        absent = [
            found.loss(client, float(found.lost_s[client - 1]))
            for client in (1 + np.flatnonzero(found.absent & ~resting)).tolist()
        ]
        found.check(index, start_s, absent)
        return found

    def add_fault(self, fault: Fault) -> None:
        """Add a fault that the scenario does not plan, starting at the next slot."""
        start_s = math.ceil(fault.start_s / self._slot_s - 1e-9) * self._slot_s
        added = replace(fault, start_s=start_s)
        self._faults.append(added)
        self._before.append(added)

    def resume(self, rounds: Sequence[Round]) -> None:
        """Continue after rounds that have been played."""
        for round_ in rounds:
            with contextlib.suppress(RunEnds):  # It lasted longer than predicted.
                self.round(round_.index, round_.start_s, round_.clients)
            self.played(round_)

    def played(self, round_: Round) -> None:
        """Remove wrong frames that have been sent, since each is sent once."""
        for loss in round_.lost:
            for fault in self._faults:
                if (
                    fault.kind == loss.cause
                    and fault.kind in WRONG
                    and uav(loss.client) in fault.nodes
                ):
                    self._faults.remove(fault)
                    break

    def _on_slots(self, fault: Fault, origin_s: float) -> Fault:
        """The fault in absolute time, with start and end at slot boundaries."""
        first = round((origin_s + fault.start_s) / self._slot_s)
        end_s = fault.end_s
        if math.isfinite(end_s):
            end_s = max(first + 1, round((origin_s + end_s) / self._slot_s)) * self._slot_s
        return Fault(
            fault.kind,
            fault.nodes,
            None,
            first * self._slot_s,
            end_s,
            fault.factor,
            fault.origin,
        )

    def _of_client(
        self, client: int, faults: Sequence[Fault], start_s: float, found: RoundFaults
    ) -> None:
        k = client - 1
        for fault in faults:
            if fault.kind in ("uav-crash", HOST_LOSS):
                found.stop_s[k] = min(found.stop_s[k], fault.start_s)
            elif fault.kind in WRONG and fault.start_s < found.wrong_s[k]:
                found.wrong_s[k], found.wrong[k] = fault.start_s, fault.kind  # type: ignore[index]
        silences = [f for f in faults if f.kind in SILENCING]
        for first_s, end_s, cause in _merged(silences):
            end = None if math.isinf(end_s) else round(end_s / self._slot_s)
            found.silent.append((client, round(first_s / self._slot_s), end))  # type: ignore[attr-defined]
            lost_s = first_s + self._timeout_s
            if lost_s >= end_s or (self._policy == "wait" and end is not None):
                continue
            self._is_lost(client, lost_s, cause, start_s, found)
        for fault in (f for f in faults if f.kind == HOST_LOSS):
            found.silent.append((client, round(fault.start_s / self._slot_s), None))  # type: ignore[attr-defined]
            self._is_lost(client, fault.lost_s, fault.cause, start_s, found)

    @staticmethod
    def _is_lost(
        client: int, lost_s: float, cause: str, start_s: float, found: RoundFaults
    ) -> None:
        if lost_s < found.lost_s[client - 1]:
            found.causes[client] = cause
            found.absent[client - 1] = lost_s <= start_s
            found.lost_s[client - 1] = lost_s

    def _in_time(self, client: int, start_s: float, found: RoundFaults) -> None:
        """Lose the client at the deadline, if it is not lost earlier."""
        if self._deadline_s is not None and start_s + self._deadline_s < found.lost_s[client - 1]:
            found.lost_s[client - 1] = start_s + self._deadline_s
            found.causes[client] = DEADLINE

    @staticmethod
    def _slow(faults: Sequence[Fault]) -> Array:
        """Disjoint intervals of slow computing, in order for each node; overlapping factors
        multiply."""
        rows = []
        slow = [f for f in faults if f.kind == "slow-node"]
        for node in sorted({node for fault in slow for node in fault.nodes}):
            own = [fault for fault in slow if node in fault.nodes]
            edges = sorted({at_s for fault in own for at_s in (fault.start_s, fault.end_s)})
            for begin_s, end_s in pairwise(edges):
                active = [f.factor for f in own if f.start_s <= begin_s and end_s <= f.end_s]
                if active:
                    rows.append((node.client, begin_s, end_s, math.prod(active)))
        return np.array(rows, float).reshape(-1, 4)


def _merged(silences: Sequence[Fault]) -> list[tuple[float, float, str]]:
    """Intervals of silence with adjacent ones merged: start, end, and the cause of the first."""
    merged: list[tuple[float, float, str]] = []
    for fault in sorted(silences, key=lambda fault: fault.start_s):
        if merged and fault.start_s <= merged[-1][1]:
            start_s, end_s, cause = merged[-1]
            merged[-1] = start_s, max(end_s, fault.end_s), cause
        else:
            merged.append((fault.start_s, fault.end_s, fault.kind))
    return merged


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
