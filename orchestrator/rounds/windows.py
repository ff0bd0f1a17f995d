# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rounds of an asynchronous run, cut from the session in which they are played without a barrier.

A round ends when its last update has arrived, and the next one begins then; the other clients
continue. The steps of an update belong to the round in which it arrives, so they may begin before
that round does. Steps of updates that never arrive belong to the round in which their client is
lost, or to the last one, at whose end they are cut.
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from orchestrator.engine.access import RadioAccess
from orchestrator.engine.plan import Array, RoundPlan
from orchestrator.rounds.simulation import energy_of
from testbed.core.timeline import CM, Round


def arrivals(session: Round, plan: RoundPlan) -> npt.NDArray[np.void]:
    """The uploads that complete the updates of the run, dtype `SPAN`, in the order of arrival."""
    spans = session.spans
    uploads = spans[(spans["step"] == CM) & ~session.cut]
    moments = np.rint(uploads["end_s"] * 1e9)
    ordered: npt.NDArray[np.void] = uploads[np.lexsort((uploads["client"], moments))]
    return ordered[: plan.updates]


def ends_s(session: Round, plan: RoundPlan) -> Array:
    """End of each complete round of an asynchronous run, shape [rounds]."""
    last = slice(plan.updates_per_round - 1, None, plan.updates_per_round)
    return np.asarray(arrivals(session, plan)["end_s"][last], float)


def latencies_s(session: Round, plan: RoundPlan) -> Array:
    """Latency of each complete round of an asynchronous run, shape [rounds]."""
    return np.diff(ends_s(session, plan), prepend=session.start_s)


def rounds_of(session: Round, plan: RoundPlan, radio: RadioAccess) -> list[Round]:
    """The complete rounds of an asynchronous run.

    Args:
        session: All rounds as one, with the steps of updates that arrive after its end.
        plan: Plan of the session.
        radio: Radio access, which has the power of uploads.
    """
    ends = ends_s(session, plan)
    spans = session.spans.copy()
    owner = _owners(session, plan, ends)
    unfinished = owner == len(ends)
    for loss in session.lost:
        own = unfinished & (spans["client"] == loss.client)
        owner[own] = np.searchsorted(ends, loss.lost_s)
    if len(ends) * plan.updates_per_round == plan.updates:
        in_progress = (owner == len(ends)) & (spans["start_s"] < ends[-1])
        owner[in_progress] = len(ends) - 1
        spans["end_s"][in_progress] = np.minimum(spans["end_s"][in_progress], ends[-1])
    edges = [session.start_s, *ends.tolist()]
    return [
        _round(session, index, start_s, end_s, spans[owner == index], plan, radio)
        for index, (start_s, end_s) in enumerate(pairwise(edges))
    ]


def _owners(session: Round, plan: RoundPlan, ends: Array) -> npt.NDArray[np.intp]:
    """Index of the round to which each step belongs; the number of rounds if there is none."""
    found = arrivals(session, plan)
    updates = {
        (client, iteration): min(place // plan.updates_per_round, len(ends))
        for place, (client, iteration) in enumerate(
            zip(found["client"].tolist(), found["iteration"].tolist(), strict=True)
        )
    }
    every = plan.iterations_of[session.spans["client"] - 1]
    last = -(-session.spans["iteration"] // every) * every
    keys = zip(session.spans["client"].tolist(), last.tolist(), strict=True)
    return np.array([updates.get(key, len(ends)) for key in keys], np.intp)


def _round(
    session: Round,
    index: int,
    start_s: float,
    end_s: float,
    spans: npt.NDArray[np.void],
    plan: RoundPlan,
    radio: RadioAccess,
) -> Round:
    energy_j, latency_s = energy_of(spans, plan, radio), end_s - start_s
    return replace(
        session,
        index=index,
        start_s=start_s,
        latency_s=latency_s,
        energy_j=energy_j,
        objective=latency_s + plan.energy_weight * float(energy_j.max()),
        spans=spans,
        lost=[loss for loss in session.lost if loss.lost_s <= end_s],
    )
