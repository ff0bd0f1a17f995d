# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Observations for rules of aggregation, and the accounted privacy of a run."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from combination_examples import PRIVATE

import orchestrator as tb
from ns3_scenarios.trace import ChannelTrace
from orchestrator.emulated.learning import links_at, privacy
from orchestrator.engine.access import LinkRates
from orchestrator.engine.plan import fixed_allocation, plan_round
from orchestrator.engine.radio import radio_access
from orchestrator.engine.rates import link_rates
from orchestrator.scenario.profiles import profile_of
from workloads.aggregation.rules import Link

GAIN = np.array([[1e-10, 4e-10], [2e-10, 5e-10], [3e-10, 6e-10]])


def links(values: np.ndarray, keys: dict[str, Any]) -> list[Link]:
    scenario = tb.load("quickstart", keys)
    radio = radio_access(scenario, ChannelTrace(values, 0.1))
    plan = plan_round(scenario, profile_of(scenario), fixed_allocation(scenario))
    rates: LinkRates = link_rates(plan, radio, values[:, 1:])
    table: Any = SimpleNamespace(gain=values, first=1, rates=rates)
    return [Link(*each) for each in links_at(scenario, plan, radio, table)]


def test_a_rule_sees_the_channel_of_the_slot_in_which_its_round_begins() -> None:
    found = links(GAIN, {"workload.aggregation": "by-channel"})
    noise_w = 1e-3 * 10 ** (-114 / 10) / 1e6 * 2e6
    for k, power_w in enumerate([1.0, 0.4, 0.1]):
        snr = power_w * GAIN[k, 1] / (noise_w / 3)
        assert found[k].gain_up == found[k].gain_down == GAIN[k, 1]
        assert found[k].snr_up_db == pytest.approx(10 * math.log10(snr))
        assert found[k].uplink_bps == pytest.approx(2e6 / 3 * math.log2(1 + snr))
        assert found[k].downlink_bps > found[k].uplink_bps
    assert links(GAIN, {}) == [], "only a rule that needs it gets it"


@pytest.mark.parametrize(("edges", "rounds"), [(1, 3), (2, 6)])
def test_privacy_counts_the_rounds_of_the_uav_that_took_part_most_often(
    edges: int, rounds: int
) -> None:
    pytest.importorskip("opacus")
    loaded = tb.load("quickstart", PRIVATE)
    of_run = {name: getattr(loaded, name) for name in ("workload", "topology", "seed", "rounds")}
    scenario: Any = SimpleNamespace(**of_run, uavs=loaded.uavs, edge_rounds=edges)
    rows = [(r, "train", k) for k, count in ((1, 1), (2, 3), (3, 2)) for r in range(count)] * 2
    table = pd.DataFrame([*rows, (2, "held-out", 0)], columns=["round", "data", "client"])
    line = privacy(scenario, table)
    assert line.startswith("privacy: ε = ")
    assert line.endswith(f"at δ = 1e-05 for the models that a UAV has sent in {rounds} rounds")
    assert privacy(tb.load("quickstart"), table) == ""
