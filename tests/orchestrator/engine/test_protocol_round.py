# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rounds with gates before adapters, sequential uploads and aggregated gradients."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from engine_cases import EVERY_COMBINATION, EVERY_ORDER, random_case, random_faults

from ns3_scenarios.trace import TraceExhausted
from orchestrator.engine import engine
from orchestrator.engine.engine import simulate
from orchestrator.engine.plan import RoundPlan


def by_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the events of the protocol decide, whatever the paradigm."""
    monkeypatch.setattr(engine.Paradigm, "is_plain", False)


def outcome(case: tuple[Any, ...], **given: Any) -> Any:
    try:
        return simulate(*case, **given)
    except TraceExhausted as error:
        return error


def with_equal_iterations(plan: RoundPlan) -> RoundPlan:
    """The plan with the first iteration's durations and sizes in all, as a scenario has them.

    Computing of no duration, after which only the compiled engine waits for others, takes 10 ms.
    """
    fields = ("cf_s", "cb_s", "s_s", "ca_bytes", "sg_bytes")
    first = {name: np.repeat(getattr(plan, name)[:, :1], plan.iterations, 1) for name in fields}
    return replace(plan, **first | {"s_s": first["s_s"] + 0.01})


@pytest.mark.parametrize("faulty", [False, True])
def test_plain_rounds_are_those_of_the_compiled_engine(
    monkeypatch: pytest.MonkeyPatch, faulty: bool
) -> None:
    rng = np.random.default_rng(39 + faulty)
    for scheme in [*EVERY_COMBINATION, *EVERY_ORDER]:
        for _ in range(4):
            case = random_case(rng, scheme)
            plan, *rest = case
            slot_s, start_s = rest[-2:]
            case = with_equal_iterations(plan), *rest
            given = {}
            if faulty:
                given["faults"] = random_faults(rng, plan.clients, slot_s, start_s)
            compiled = outcome(case, **given)
            with monkeypatch.context() as patched:
                by_events(patched)
                events = outcome(case, **given)
            assert type(events) is type(compiled)
            if isinstance(compiled, TraceExhausted):
                continue
            assert events.latency_s == pytest.approx(compiled.latency_s, abs=2e-9)
            assert events.energy_j == pytest.approx(compiled.energy_j, rel=1e-8, abs=1e-8)
            assert [loss.client for loss in events.lost] == [x.client for x in compiled.lost]
            columns = ["client", "iteration", "step", "bytes"]
            ordered = [np.sort(each.spans, order=columns) for each in (events, compiled)]
            assert (ordered[0][columns] == ordered[1][columns]).all()
            for edge in ("start_s", "end_s"):
                np.testing.assert_allclose(ordered[0][edge], ordered[1][edge], atol=2e-9)
