# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""An uplink that active UAVs share: compiled code against processor sharing by hand."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from engine_cases import by_hand, random_case
from numba.core.caching import NullCache

from ns3_scenarios.trace import TraceExhausted
from orchestrator.engine import engine, radio_kernel
from orchestrator.engine.engine import simulate, simulate_batch, split_costs
from orchestrator.engine.kernel import play_round, play_rounds
from orchestrator.engine.radio import Rates
from orchestrator.engine.slot_impairments import UP
from orchestrator.scenario.loading import validate
from testbed.core.paradigm import paradigm
from testbed.core.timeline import CA, CM
from workloads.costs.profile import PAPER


class Cell(NamedTuple):
    """A cell, its links, and each of them: slot values are rates of a UAV that sends alone."""

    clients: int


class Overhead(NamedTuple):
    """The same where each further UAV costs a tenth of the cell."""

    clients: int


SHARES = {
    Cell: lambda link, value, active: value / active,
    Overhead: lambda link, value, active: value * (1.1 - 0.1 * active) / active,
}


def known_for_this_value(share):
    """The share as compiled code takes it: the rate changes with each value."""
    share = numba.njit(share)
    return lambda link, value, active, others: (share(link, value, active), np.inf, -np.inf)


def _is_compiled(function):
    return hasattr(function, "_cache")  # not where mutants are interpreted


@pytest.fixture(autouse=True, scope="module")
def cells():
    """The two cells, for this process alone: machine code on disk must not name their classes."""
    compiled = [each for each in (engine._links_of, play_round, play_rounds) if _is_compiled(each)]
    keeping = [(each, each._cache) for each in compiled]
    for function, _ in keeping:
        function._cache = NullCache()
    tables = (radio_kernel.LINKS_OF, radio_kernel.LINK_OF, radio_kernel.LINK_BPS)
    for kind, share in SHARES.items():
        for table, choice in zip(
            tables,
            (
                lambda bands, in_turns, beta, rho: bands,
                lambda links, way, k: links,
                lambda link, value: value,
            ),
            strict=True,
        ):
            table[kind] = choice
        radio_kernel.SHARED_BPS[kind] = known_for_this_value(share)
    yield
    for function, cache in keeping:
        function._cache = cache
    for table in (*tables, radio_kernel.SHARED_BPS):
        for kind in SHARES:
            del table[kind]


@dataclass(frozen=True)
class SharedCell(Rates):
    """A radio whose UAVs share the uplink by one of `SHARES`."""

    kind: Any = Cell
    is_shared = True

    def bands(self) -> Any:
        return self.kind(len(self.uplink_power_w))


def ends_by_hand(uploads, values, slot_s, kind):
    """When uploads (client, start, bits) that share the cell end, from event to event."""
    waiting, under_way, ends, now = sorted(uploads, key=lambda u: u[1]), {}, {}, 0.0
    while waiting or under_way:
        slot = int(now / slot_s + 1e-9)
        if slot >= values.shape[1]:
            break
        until = (slot + 1) * slot_s
        if waiting:
            until = min(until, waiting[0][1])
        count = max(1, sum(values[k, slot] > 0 for k, _ in under_way))
        rates = {key: SHARES[kind](None, values[key[0], slot], count) for key in under_way}
        due = {k: now + left / rates[k] for k, left in under_way.items() if rates[k] > 0}
        first = min(due, key=due.get, default=None)
        if first is not None and due[first] <= until:
            until = due[first]
        for key in under_way:
            under_way[key] -= rates[key] * (until - now)
        now = until
        if first is not None and due[first] <= now:
            ends[first] = now
            del under_way[first]
        while waiting and waiting[0][1] <= now:
            k, start, bits = waiting.pop(0)
            under_way[k, start] = bits
    return ends


@pytest.mark.parametrize("kind", SHARES)
@pytest.mark.parametrize("name", ["cpsfl", "pipesfl", "sfl-pp", "sfl-ps"])
def test_uploads_end_as_processor_sharing_has_it(name, kind) -> None:
    rng = np.random.default_rng(len(name))
    for _ in range(5):
        plan, _, _, slot_s, start_s = random_case(rng, paradigm(name))
        radio = SharedCell(np.ones(plan.clients), kind)
        values = rng.uniform(1e6, 2e7, (plan.clients, 4000))
        values[rng.random(values.shape) < 0.05] = 0.0
        times = simulate(plan, radio, values, slot_s, start_s)
        up = times.spans[np.isin(times.spans["step"], (CA, CM))]
        uploads = [(s["client"] - 1, s["start_s"], 8.0 * s["bytes"]) for s in up if s["bytes"]]
        due = ends_by_hand(uploads, values, slot_s, kind)
        for span in up:
            end_s = span["start_s"]
            if span["bytes"]:
                end_s = due[span["client"] - 1, span["start_s"]]
            assert span["end_s"] == pytest.approx(end_s, abs=2e-8)


def test_one_that_sends_alone_has_the_cell_for_itself() -> None:
    plan, *_ = random_case(np.random.default_rng(4), paradigm("cpsfl"))
    alone = radio_kernel.link_of(Cell(plan.clients), UP, 0)
    assert radio_kernel.shared_bps(alone, 8e6, 1, 0)[0] == 8e6
    assert radio_kernel.shared_bps(alone, 8e6, 4, 0)[0] == 2e6


def test_a_cell_that_carries_nothing_outlasts_its_trace() -> None:
    plan, *_ = random_case(np.random.default_rng(4), paradigm("cpsfl"))
    radio = SharedCell(np.ones(plan.clients))
    values = np.full((plan.clients, 50), 1e7)
    values[:, 1:] = 0.0
    with pytest.raises(TraceExhausted):
        simulate(plan, radio, values, 0.1)


def test_uploads_that_end_together_do_not_wait_out_the_outage_after_them() -> None:
    """Two of 50 kB at 4 Mb/s each, which fill the slot of 0.1 s before an outage."""
    plan, _ = by_hand("sfl-pp", [0, 0], [0.4, 0.4], [0, 0], [0, 0])
    values = np.full((2, 50), 8e6)
    values[:, 1:9] = 0.0
    times = simulate(plan, SharedCell(np.ones(2)), values, 0.1)
    ends = times.spans[times.spans["step"] == CA]["end_s"]
    assert ends.tolist() == pytest.approx([0.1, 0.1], abs=1e-9)


def test_rounds_tried_at_once_share_as_each_by_itself() -> None:
    scenario = validate({"uavs": {"tx_power_w": [1, 1, 1]}}, "three")
    costs, radio = split_costs(scenario, PAPER), SharedCell(np.ones(3))
    values = np.random.default_rng(1).uniform(1e7, 9e7, (3, 5000))
    split, equal = np.array([1, 2, 3, 2]), np.full((4, 3), 1 / 3)
    both = simulate_batch(costs, radio, values, 0.1, 2.0, split, equal, equal, equal)
    assert both.latency_s[1] == both.latency_s[3]
    for n in range(3):
        one = (split[n : n + 1], *[equal[:1]] * 3)
        assert simulate_batch(costs, radio, values, 0.1, 2.0, *one).latency_s == both.latency_s[n]
