# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A trace of rates, and a service order that asks for them, packet by packet."""

import pytest
from small_scenario import TREE, trace_of_rates

from ns3_scenarios.trace import Replay, trace_of
from orchestrator.engine.plan import link_bytes
from orchestrator.rounds.loop import predict
from orchestrator.rounds.packet_rounds import play
from orchestrator.rounds.simulation import service_order_of
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import profile_of

ORDER = "shortest-job-first"
RHO = [0.5, 0.3, 0.2]


@pytest.mark.parametrize("downlink_is", ["link", "cell"])
@pytest.mark.parametrize("paradigm", ["cpsfl", "sfl-sp"])
def test_packets_carry_what_a_trace_of_rates_says(paradigm: str, downlink_is: str) -> None:
    """The kernel carries it so, too: see `test_exact.py`."""
    tree = {**TREE, "rounds": 2, "order": ORDER, "paradigm": paradigm}
    rho = RHO if (paradigm, downlink_is) == ("sfl-sp", "cell") else "equal"
    scenario = validate(tree | {"allocation": {"rho": rho}}, "test")
    given = trace_of_rates() | {"downlink_is": downlink_is}
    source, profile = Replay(trace_of(given, "trace")), profile_of(scenario)
    wire = predict(scenario, source, profile, sizing=link_bytes)
    played = play(scenario, source, profile).timeline
    for got, due in zip(played, wire, strict=True):
        assert got.latency_s == pytest.approx(due.latency_s, rel=2e-3)
        turns = [service_order_of(each.spans, 3, 2)[1] for each in (got, due)]
        assert (turns[0] == turns[1]).all()
