# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a run is judged by, made of a few numbers."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_scenario import TREE

from orchestrator.emulation.validity import _in_all, _observed
from orchestrator.scenario.loading import validate
from orchestrator.scenario.schema import VIRTUAL_LIMITS, Limits


def test_transfers_are_judged_by_their_95th_percentile_and_lateness_by_its_99th() -> None:
    """Of a hundred transfers three are far off; of a hundred rate changes one."""
    errors = np.concatenate([np.full(97, -0.01), np.full(3, 0.5)])
    late_s = np.concatenate([np.full(98, 1e-4), [0.02, 0.02]])
    steps = {"step": "CA", "client": 1, "round": 0}
    links = SimpleNamespace(
        exhausted=0,
        uplink=[SimpleNamespace(dropped_frames=0, sent_frames=9, backlog_bytes=0)],
        downlink=[SimpleNamespace(dropped_frames=3, sent_frames=297, backlog_bytes=5)],
    )
    record = SimpleNamespace(
        injector=pd.DataFrame({"lateness_s": late_s}),
        links=links,
        measured=SimpleNamespace(latency_s=10.0),
        budget=SimpleNamespace(seconds={"injection": -0.01, "rest": 0.02, "compute": 0.0}),
        transfers=pd.DataFrame({"error": errors, **steps}),
    )
    tree = TREE | {"uavs": {"tx_power_w": [1]}, "emulation": {"clock": "virtual"}}
    scenario = validate(tree, "one")
    measured = [SimpleNamespace(lost=[])]
    done = SimpleNamespace(
        calibration=None, rounds=[record], scenario=scenario, measured=measured, overruns_s=[]
    )
    given: Any = done
    values = {name: value for name, value, _ in _observed(given)}
    assert values["transfer_error"] == pytest.approx(0.01)
    assert values["injector_lateness_s"] == pytest.approx(0.02)
    assert values["dropped_frames"] == pytest.approx(0.01)
    assert values["backlog_bytes"] == 5
    assert values["injection_share"] == pytest.approx(1e-3)
    assert values["rest_share"] == pytest.approx(2e-3)
    record.transfers.loc[:6, "error"] = 0.3
    assert {n: v for n, v, _ in _observed(given)}["transfer_error"] == pytest.approx(0.3)


def test_limits_are_tighter_in_virtual_time_where_none_were_given() -> None:
    def limits(**keys: Any) -> dict[str, float]:
        return validate(TREE | {"emulation": keys}, "one").emulation.limits_in_force

    real, virtual = limits(), limits(clock="virtual")
    assert real == dict(Limits())
    assert {name for name, limit in real.items() if virtual[name] < limit} == VIRTUAL_LIMITS.keys()
    assert all(virtual[name] <= limit for name, limit in real.items())
    given = limits(clock="virtual", limits={"rest_share": 0.3})
    assert given == virtual | {"rest_share": 0.3}


def test_links_counters_begin_anew_with_each_session() -> None:
    assert _in_all([[1, 2]]).tolist() == [1, 2]
    assert _in_all([[1, 2], [3, 4], [1, 4], [2, 5]]).tolist() == [5, 9]
