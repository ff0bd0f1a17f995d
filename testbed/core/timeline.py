# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Timelines: the steps of rounds with their times in emulated seconds.

The engine and the emulated network both produce a `Timeline`; a comparison is a join of two
timelines, and every report is computed from timelines.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from testbed.core.errors import RunEnds

if TYPE_CHECKING:
    import pandas as pd  # importing it takes longer than predicting a round

STEPS = ("SM", "CF", "CA", "S", "SG", "CB", "CM")
"""The steps of a round in order, with the paper's names.

SM broadcast of the client's adapters, CF client forward, CA smashed data up, S server forward and
backward, SG gradient down, CB client backward, CM client's adapters up. SM belongs to the first
local iteration, CM to the last one.
"""
SM, CF, CA, S, SG, CB, CM = range(len(STEPS))

SPAN = np.dtype(
    [
        ("client", np.int32),
        ("iteration", np.int32),
        ("step", np.int8),
        ("start_s", np.float64),
        ("end_s", np.float64),
        ("bytes", np.int64),
    ]
)
"""One step of one client. Clients and iterations count from 1; `step` indexes `STEPS`; computing
steps carry 0 bytes."""


@dataclass(frozen=True)
class Loss:
    """A client that was lost and dropped from a round."""

    client: int
    """Index of the client, starting from 1."""
    lost_s: float
    """Time at which it was dropped; if this was before the round, it has no steps in the round."""
    stopped_s: float
    """End of its last activity; earlier than `lost_s` if its process ended."""
    cause: str
    """Type of fault, or the field of the frame that was refused."""


@dataclass(frozen=True)
class BackhaulTransfer:
    """A model on its way between an edge server and the cloud."""

    edge: int
    """Number of the edge server, from 1."""
    direction: str
    """`up`: to the cloud; `down`: to the edge server."""
    start_s: float
    end_s: float
    bytes: int


DIFFERING = 0
"""Value in tables for the split point of a round whose clients have different ones."""


@dataclass(frozen=True)
class Round:
    """One round of one paradigm, predicted or measured."""

    index: int
    """Index of the round, starting from 0."""
    paradigm: str
    split: int | tuple[int, ...]
    """Split point u, or one u_k per client if they differ."""
    start_s: float
    latency_s: float
    """Time from the start of the broadcast to the end of the last adapter upload. In an
    asynchronous run, the latency is measured from the end of the previous round."""
    energy_j: npt.NDArray[np.float64]
    """Total energy consumption of each client in the round, shape [K]."""
    objective: float
    """Latency + energy weight · largest energy consumption of a client."""
    spans: npt.NDArray[np.void]
    """Structured array of dtype `SPAN`, sorted by client and then by start time."""
    lost: Sequence[Loss] = ()
    """Clients dropped from the round. The last step of such a client may be incomplete."""
    backhaul: Sequence[BackhaulTransfer] = ()
    """Transfers between the edge servers and the cloud at the end of the round, sorted by direction
    and then by edge server. Without `topology`, there are none."""
    flight_energy_j: npt.NDArray[np.float64] | None = None
    """Energy of the flight of each UAV in the round, shape [K]; None: not modelled."""

    @property
    def common_split(self) -> int:
        """The split point u as shown in tables, or `DIFFERING` if the clients have different split
        points."""
        return DIFFERING if isinstance(self.split, tuple) else int(self.split)

    @property
    def clients(self) -> list[int]:
        """Indices, starting from 1, of the clients that have steps in the round or were lost in
        it."""
        lost = {loss.client for loss in self.lost}
        return sorted(lost | set(self.spans["client"].tolist()))

    @property
    def cut(self) -> npt.NDArray[np.bool_]:
        """Mask of the steps that ended early, at their `end_s`, because of a loss or the end of an
        asynchronous run. Its shape is [len(spans)]."""
        cut = np.zeros(len(self.spans), bool)
        if not len(self.spans):
            return cut
        clients, ends_s = self.spans["client"], self.spans["end_s"]
        # All that is finished ends with CM.
        is_last = np.append(clients[1:] != clients[:-1], True)
        cut |= is_last & (self.spans["step"] != CM) & (ends_s == ends_s.max())
        for loss in self.lost:
            # A client may have steps in later edge rounds of the same cloud round.
            is_before = self.spans["start_s"] <= loss.lost_s
            own = np.flatnonzero((self.spans["client"] == loss.client) & is_before)
            if len(own) and self.spans["end_s"][own[-1]] in (loss.lost_s, loss.stopped_s):
                cut[own[-1]] = True
        return cut

    @property
    def end_s(self) -> float:
        """The end of the last adapter upload."""
        return self.start_s + self.latency_s

    def to_json(self, *, steps: bool = True) -> dict[str, Any]:
        """The round as a JSON object in the documented format, with or without its steps."""
        whole: dict[str, Any] = {
            "round": self.index,
            "paradigm": self.paradigm,
            "split": list(self.split) if isinstance(self.split, tuple) else self.split,
            "start_s": self.start_s,
            "latency_s": self.latency_s,
            "energy_j": self.energy_j.tolist(),
            "objective": self.objective,
            **(
                {}
                if self.flight_energy_j is None
                else {"flight_energy_j": self.flight_energy_j.tolist()}
            ),
            **({"clients": here} if len(here := self.clients) < len(self.energy_j) else {}),
            **({"lost": [asdict(loss) for loss in self.lost]} if self.lost else {}),
            **({"backhaul": [asdict(each) for each in self.backhaul]} if self.backhaul else {}),
        }
        if steps:
            columns = [self.spans[name].tolist() for name in SPAN.names or ()]
            whole["steps"] = [
                {
                    "client": client,
                    "iteration": iteration,
                    "step": STEPS[step],
                    "start_s": start_s,
                    "end_s": end_s,
                    "bytes": size,
                    **({"cut": True} if was_cut else {}),
                }
                for (client, iteration, step, start_s, end_s, size), was_cut in zip(
                    zip(*columns, strict=True), self.cut.tolist(), strict=True
                )
            ]
        return whole


@dataclass(frozen=True)
class Timeline:
    """Consecutive rounds, predicted or measured."""

    rounds: Sequence[Round]
    ended: RunEnds | None = None
    """If there are fewer rounds than requested, the reason."""
    downlink_is_open: bool = False
    """True if the trace of the rounds does not state whether its downlink rates apply to each link
    or to the whole cell."""
    trace_has_rates: bool = False
    """Whether the rounds use a trace of rates."""

    @property
    def end_s(self) -> float:
        """End of the last round. If the run ended during the next round: the time at which it
        ended."""
        if self.ended is not None:
            return self.ended.at_s
        return self.rounds[-1].end_s

    @property
    def longest_s(self) -> float:
        """Longest time between the ends of two consecutive rounds; without rounds, the duration of
        the whole run."""
        ends_s = [0.0, *(round_.end_s for round_ in self.rounds), self.end_s]
        return max(after - before for before, after in pairwise(ends_s))

    def __iter__(self) -> Iterator[Round]:
        return iter(self.rounds)

    def __len__(self) -> int:
        return len(self.rounds)

    def __getitem__(self, index: int) -> Round:
        return self.rounds[index]

    def __repr__(self) -> str:
        paradigms = ", ".join(dict.fromkeys(round_.paradigm for round_ in self.rounds))
        ended = "" if self.ended is None else f", ended early: {self.ended}"
        if not self.rounds:
            return f"<Timeline of no round{ended}>"
        rounds = f"{len(self.rounds)} round{'s' * (len(self.rounds) > 1)}"
        return f"<Timeline of {rounds} of {paradigms}, {self.end_s:.3f} s{ended}>"

    def _repr_html_(self) -> str:
        """The summary, for a notebook."""
        html: str = self.summary().to_html(index=False, max_rows=20)
        return html

    def to_json(self) -> list[dict[str, Any]]:
        """The rounds as a list of JSON objects in the documented format."""
        return [round_.to_json() for round_ in self.rounds]

    def frame(self) -> "pd.DataFrame":
        """A table of all spans, with the columns round and paradigm, followed by those of `SPAN`.
        The steps are given by name."""
        import pandas as pd

        spans = np.concatenate([np.empty(0, SPAN), *(np.asarray(r.spans) for r in self.rounds)])
        lengths = [len(r.spans) for r in self.rounds]
        table = pd.DataFrame({name: spans[name] for name in SPAN.names or ()})
        table["step"] = pd.Categorical.from_codes(spans["step"], pd.Index(STEPS))
        table.insert(0, "round", np.repeat([r.index for r in self.rounds], lengths))
        table.insert(1, "paradigm", np.repeat([r.paradigm for r in self.rounds], lengths))
        return table

    def summary(self) -> "pd.DataFrame":
        """One row per round, with the columns round, paradigm, split, start_s, latency_s,
        max_energy_j and objective; and max_flight_energy_j if the energy of flight is modelled.

        `split` is one number, or a tuple with one number per client if they differ.
        """
        import pandas as pd

        table = pd.DataFrame(
            {
                "round": [r.index for r in self.rounds],
                "paradigm": [r.paradigm for r in self.rounds],
                "split": [r.split for r in self.rounds],
                "start_s": [r.start_s for r in self.rounds],
                "latency_s": [r.latency_s for r in self.rounds],
                "max_energy_j": [float(r.energy_j.max()) for r in self.rounds],
                "objective": [r.objective for r in self.rounds],
            }
        )
        flown = [r.flight_energy_j for r in self.rounds if r.flight_energy_j is not None]
        if not flown:
            return table
        return table.assign(max_flight_energy_j=[float(each.max()) for each in flown])
