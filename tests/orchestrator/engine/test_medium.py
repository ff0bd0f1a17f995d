# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A band that active UAVs share: compiled code against processor sharing by hand."""

import numpy as np
import pytest
from engine_cases import by_hand, ends_of_sharing, random_case

from ns3_scenarios.trace import TraceExhausted
from orchestrator.engine.core_library import LTE, Bands, Steps
from orchestrator.engine.plan import Allocation
from orchestrator.engine.radio import Rates
from orchestrator.rounds.simulation import simulate, simulate_batch, split_costs
from orchestrator.scenario.loading import validate
from testbed.core.paradigm import paradigm
from testbed.core.timeline import CA, CM, SG
from workloads.costs.profile import PAPER

CLASSES_BPS = np.array([0.0, 1e6, 3e6, 8e6, 1e7, 2e7, 5e7])
"""What a UAV that sends alone carries with the slot values of each class, from an outage on."""
VALUES = np.array([0.0, *10.0 ** (4 * np.arange(1, len(CLASSES_BPS)))])
BLOCKS = 240
"""Its parts for one to six UAVs are different numbers, of at least four resource blocks each."""


def equal(active):
    """The part of a cell that each of those that are active has."""
    return 1 / active


def with_overhead(active):
    """The same where each further UAV costs a tenth of the cell."""
    return (1.1 - 0.1 * active) / active


class SharedCell(Rates):
    """A radio whose UAVs share the uplink by a function of their number, the downlink equally."""

    is_shared = True
    share = staticmethod(equal)

    def bands(self):
        """A cell of LTE whose rates are those of the classes, whatever the power.

        The values of a class are 1,000 times its least one, so that the number of resource blocks
        over which a UAV spreads its power changes no class.
        """
        parts = {BLOCKS // active: self.share(active) for active in range(6, 0, -1)}
        up_bps = np.stack([CLASSES_BPS * parts.get(n, np.nan) for n in range(BLOCKS + 1)])
        up_bps[0] = 0.0
        down_bps = np.tile(CLASSES_BPS, (BLOCKS + 1, 1))
        steps = tuple(Steps(VALUES[1:] / 1e3, bps, BLOCKS) for bps in (up_bps, down_bps))
        powers = np.ones(len(self.uplink_power_w))
        return Bands(LTE, powers, shared=True, steps=steps, downlink_snr=1.0)


class Overhead(SharedCell):
    share = staticmethod(with_overhead)


@pytest.mark.parametrize("cell", [SharedCell, Overhead])
@pytest.mark.parametrize("name", ["cpsfl", "pipesfl", "sfl-pp", "sfl-ps"])
def test_transfers_end_as_processor_sharing_has_it(name, cell) -> None:
    rng = np.random.default_rng(len(name))
    for _ in range(5):
        plan, _, _, slot_s, start_s = random_case(rng, paradigm(name))
        radio = cell(np.ones(plan.clients))
        classes = rng.integers(1, len(VALUES), (plan.clients, 4000))
        classes[rng.random(classes.shape) < 0.05] = 0
        times = simulate(plan, radio, VALUES[classes], slot_s, start_s)
        for steps, share in (((CA, CM), cell.share), ((SG,), equal)):
            if steps == (SG,) and plan.in_turns:
                continue
            sent = times.spans[np.isin(times.spans["step"], steps)]
            given = [(s["client"] - 1, s["start_s"], 8.0 * s["bytes"]) for s in sent if s["bytes"]]
            rates_bps = CLASSES_BPS[classes]

            def rate(k, slot, count, share=share, rates_bps=rates_bps):
                return rates_bps[k, slot] * share(count)

            due = ends_of_sharing(given, rate, 4000, slot_s)
            for span in sent:
                end_s = span["start_s"]
                if span["bytes"]:
                    end_s = due[span["client"] - 1, span["start_s"]]
                assert span["end_s"] == pytest.approx(end_s, abs=2e-8)


def test_one_that_sends_alone_has_the_cell_for_itself() -> None:
    shares = Allocation(1, *[np.full(4, 1 / 4)] * 3)
    values = np.full((4, 1), VALUES[3])
    for cell, parts in ((SharedCell, {1: 1.0, 4: 1 / 4}), (Overhead, {1: 1.0, 4: 0.7 / 4})):
        for active, part in parts.items():
            rates = cell(np.ones(4)).link_rates(shares, values, in_turns=False, active=active)
            assert rates.uplink[:, 0] == pytest.approx(np.full(4, 8e6 * part), rel=1e-12)
            assert rates.gradient[:, 0] == pytest.approx(np.full(4, 8e6 / active), rel=1e-12)
            assert rates.broadcast[:, 0] == pytest.approx(np.full(4, 8e6), rel=1e-12)


def test_a_cell_that_carries_nothing_outlasts_its_trace() -> None:
    plan, *_ = random_case(np.random.default_rng(4), paradigm("cpsfl"))
    radio = SharedCell(np.ones(plan.clients))
    values = np.full((plan.clients, 50), VALUES[4])
    values[:, 1:] = 0.0
    with pytest.raises(TraceExhausted):
        simulate(plan, radio, values, 0.1)


def test_uploads_that_end_together_do_not_wait_out_the_outage_after_them() -> None:
    """Two of 50 kB at 4 Mb/s each, which fill the slot of 0.1 s before an outage."""
    plan, _ = by_hand("sfl-pp", [0, 0], [0.4, 0.4], [0, 0], [0, 0])
    values = np.full((2, 50), VALUES[3])
    values[:, 1:9] = 0.0
    times = simulate(plan, SharedCell(np.ones(2)), values, 0.1)
    ends = times.spans[times.spans["step"] == CA]["end_s"]
    assert ends.tolist() == pytest.approx([0.1, 0.1], abs=1e-9)


def test_rounds_tried_at_once_share_as_each_by_itself() -> None:
    scenario = validate({"uavs": {"tx_power_w": [1, 1, 1]}}, "three")
    costs, radio = split_costs(scenario, PAPER), SharedCell(np.ones(3))
    values = VALUES[np.random.default_rng(1).integers(4, len(VALUES), (3, 5000))]
    split, equal = np.array([1, 2, 3, 2]), np.full((4, 3), 1 / 3)
    both = simulate_batch(costs, radio, values, 0.1, 2.0, split, equal, equal, equal)
    assert both.latency_s[1] == both.latency_s[3]
    for n in range(3):
        one = (split[n : n + 1], *[equal[:1]] * 3)
        assert simulate_batch(costs, radio, values, 0.1, 2.0, *one).latency_s == both.latency_s[n]
