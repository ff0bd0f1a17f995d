# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Faults of a run: what a scenario plans, and what that means for each round.

The same `RoundFaults` go to the engine and, through `of_uav` and `of_bs`, to the emulated nodes, so
that both do the same. Faults begin and end at slot boundaries, as links do.

A client is *silent* while its link is out or its process has ended. It counts as *lost* when it has
been silent for the loss timeout, whoever waits for it or not, or at once when it sends what is
refused, or at the deadline of the round, if there is one. What a round does then is the scenario's
`faults.on_loss`.
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
"""No scenario plans it: the machine that a client lives on is gone."""
DEADLINE = "deadline"
"""Why a client is lost that has not finished by `participation.deadline_s`."""


@dataclass(frozen=True)
class Fault:
    """One fault, its moments resolved."""

    kind: str
    nodes: tuple[NodeId, ...]
    round: int | None
    """The round from whose start its moments count; None: from the start of the run."""
    start_s: float
    end_s: float
    """Infinity: never."""
    factor: float
    origin: str
    """Where the scenario says so; of a host that was lost, which."""
    lost_s: float = math.inf
    """When its nodes count as lost, where that is no matter of silence."""

    @classmethod
    def of_host(cls, host: str, nodes: Sequence[NodeId], start_s: float, lost_s: float) -> "Fault":
        """A host was lost with its nodes at a moment, of which they count as lost later."""
        origin = f"host {host}"
        return cls(HOST_LOSS, tuple(nodes), None, start_s, math.inf, 1.0, origin, lost_s)

    @property
    def cause(self) -> str:
        """What a client is said to be lost to."""
        return f"loss of {self.origin}" if self.kind == HOST_LOSS else self.kind

    def to_json(self) -> dict[str, Any]:
        """As it stands in the manifest."""
        names = list(map(str, self.nodes))
        end_s = self.end_s if math.isfinite(self.end_s) else None
        told = asdict(self) | {"nodes": names, "end_s": end_s}
        del told["lost_s"]
        return told

    def __str__(self) -> str:
        return f"{self.kind} at {self.start_s:g} s, {self.origin}"


@dataclass(frozen=True)
class RoundFaults:
    """What goes wrong in one round of K clients; times in absolute emulated seconds."""

    absent: npt.NDArray[np.bool_]
    """Shape [K]: who has no part in it: rests, or is lost when the round starts."""
    stop_s: Array
    """Shape [K]: when its process ends; infinity: not."""
    lost_s: Array
    """Shape [K]: when it counts as lost; infinity: never."""
    wrong_s: Array
    """Shape [K]: its first smashed data sent from then on are sent wrongly; infinity: never."""
    wrong: Sequence[Any]
    """Shape [K]: how, one of `testbed.core.faults.Wrong`, or None."""
    slow: Array
    """Shape [n, 4]: client (0: the base station), start, end, factor; see
    `testbed.core.faults.slowed_end`."""
    silent: Sequence[tuple[int, int, int | None]]
    """Client (from 1), first slot and end slot (None: to the end) without a link."""
    bs_crash_s: float
    drops: bool
    """Whether the round goes on without a lost client."""
    causes: dict[int, str]
    """By client, what it is lost to."""
    resting: npt.NDArray[np.bool_]
    """Shape [K]: who was not chosen for it."""

    def silenced(self, gain: SlotValues) -> SlotValues:
        """The gains [K, S] with every silent link at 0."""
        if not self.silent:
            return gain
        values = gain.values.copy() if isinstance(gain, TwoWay) else gain.copy()
        for client, first, end in self.silent:
            values[..., client - 1, first:end] = 0.0
        return replace(gain, values=values) if isinstance(gain, TwoWay) else values

    def of_uav(self, client: int) -> UavFaults:
        """What UAV `client` (from 1) is told."""
        k = client - 1
        return UavFaults(
            crash_s=_finite(self.stop_s[k]),
            lost_s=_finite(self.lost_s[k]),
            wrong=self.wrong[k],
            wrong_s=float(self.wrong_s[k]) if self.wrong[k] else 0.0,
            slow=self.slow_of(client),
        )

    def at_full_speed(self) -> "RoundFaults":
        """The same without slow nodes: for plans whose durations have it in them already."""
        return replace(self, slow=np.empty((0, 4)))

    @property
    def are_none(self) -> bool:
        """Whether clients rest, and nothing else is to be said."""
        ends_s = [*self.lost_s, *self.stop_s, *self.wrong_s, self.bs_crash_s]
        return not any(map(math.isfinite, ends_s)) and not len(self.slow) and not self.silent

    def of_bs(self) -> BsFaults:
        """What the base station is told."""
        lost_s = [_finite(at_s) for at_s in self.lost_s]
        return BsFaults(lost_s, self.drops, self.slow_of(BS.client))

    def slow_of(self, node: int) -> list[list[float]]:
        """When a node (0 the base station) is slow, see `slowed_end`."""
        rows: list[list[float]] = self.slow[self.slow[:, 0] == node][:, 1:].tolist()
        return rows

    def loss(self, client: int, lost_s: float, refused: str = "") -> Loss:
        """Client `client` (from 1) was lost at that time; what it sent was refused, or nothing."""
        stopped_s = min(lost_s, float(self.stop_s[client - 1]))
        is_early = lost_s < self.lost_s[client - 1]
        cause = self.wrong[client - 1] or refused if is_early else self.causes[client]
        return Loss(client, lost_s, stopped_s, cause)

    def check(self, index: int, end_s: float, lost: Sequence[Loss]) -> None:
        """Refuse to go on where the round could not.

        Args:
            index: The round's.
            end_s: When it ended or would have ended.
            lost: Who was lost in it, or before.

        Raises:
            RunEnds: It has no base station, a client that it may not go on without, or none left.
        """
        first = min((loss.lost_s for loss in lost), default=math.inf)
        if lost and not self.drops and first <= self.bs_crash_s:
            raise self.ends(index, min(lost, key=lambda loss: loss.lost_s))
        if self.bs_crash_s <= end_s:
            raise RunEnds(
                f"round {index}: the base station crashed at {self.bs_crash_s:g} s, as planned, "
                "and no round goes on without it",
                self.bs_crash_s,
            )
        if len(lost) == len(self.absent) - self.resting.sum():
            raise RunEnds(f"round {index}: no client is left at {end_s:g} s", end_s)

    def ends(self, index: int, loss: Loss) -> RunEnds:
        """Why the run ends with the loss of a client."""
        return RunEnds(
            f"round {index}: the base station waited for {uav(loss.client)}, which is lost since "
            f"{loss.lost_s:g} s ({loss.cause}), and faults.on_loss does not drop it",
            loss.lost_s,
        )


def planned(scenario: Scenario) -> list[Fault]:
    """All faults of a scenario: the given ones, then those drawn by seed."""
    return [*_given(scenario), *_drawn(scenario)]


def _given(scenario: Scenario) -> Iterator[Fault]:
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


def _drawn(scenario: Scenario) -> Iterator[Fault]:
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
    """How the faults of a scenario go in one timeline, round by round."""

    def __init__(self, scenario: Scenario):
        self._policy = scenario.faults.on_loss
        self._timeout_s = scenario.faults.loss_timeout_s
        self._deadline_s = scenario.participation.deadline_s
        self._clients = scenario.uavs.count
        self._slot_s = scenario.slot_s
        self._planned = planned(scenario)
        self._faults = [self._on_slots(f, 0.0) for f in self._planned if f.round is None]
        self._index = -1
        """Of the round that was begun last."""
        self._before = list(self._faults)
        """What there was when it was begun."""

    def round(
        self, index: int, start_s: float, clients: Collection[int] | None = None
    ) -> RoundFaults | None:
        """The faults of the round that starts now; None where there are none any more.

        The last round may be begun once more, when something has struck since.

        Args:
            index: The round's.
            start_s: When it starts.
            clients: Who takes part; left out: everybody. Nothing goes wrong with the others.

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
        """Something happens that no scenario has planned; its moment is that of the next slot."""
        start_s = math.ceil(fault.start_s / self._slot_s - 1e-9) * self._slot_s
        added = replace(fault, start_s=start_s)
        self._faults.append(added)
        self._before.append(added)

    def resume(self, rounds: Sequence[Round]) -> None:
        """Go on after rounds that have been played."""
        for round_ in rounds:
            with contextlib.suppress(RunEnds):  # It went further than was predicted.
                self.round(round_.index, round_.start_s, round_.clients)
            self.played(round_)

    def played(self, round_: Round) -> None:
        """A wrong frame is sent once: forget those that were."""
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
        """The fault in absolute time, from one slot boundary to another."""
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
        """It is lost at the deadline, if it is not before."""
        if self._deadline_s is not None and start_s + self._deadline_s < found.lost_s[client - 1]:
            found.lost_s[client - 1] = start_s + self._deadline_s
            found.causes[client] = DEADLINE

    @staticmethod
    def _slow(faults: Sequence[Fault]) -> Array:
        """Disjoint rows of slowness, a node's in order; overlapping factors multiply."""
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
    """Silences that meet, as one: start, end, and what began it."""
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
