# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""HierFAVG's timing and energy: the testbed, the analytical model, and the paper's formula."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import orchestrator as tb
from orchestrator.engine.plan import fixed_allocation, plan_round
from orchestrator.engine.radio import ShannonFdma
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario

PAPERS = Path(__file__).resolve().parents[2] / "examples" / "papers"
M, B, P, SIGMA, F, C, D = 21_840 * 32, 1e6, 0.5, 1e-10, 1e9, 20, 1.2e6
"""Model in bits, band in Hz, power in W, noise power in W, cycles/s, cycles/bit, data in bits."""
ALPHA = 2e-28
"""Effective capacitance coefficient of a client's processor."""
EQUAL = np.full(50, 1e-8)
DIFFERING = 1e-8 * 10 ** np.linspace(-1.5, 0.5, 50)


def scenario(kappa1: int, kappa2: int, delay_s: float = 0.0) -> Scenario:
    return tb.load(
        PAPERS / "hierfavg.yaml",
        {
            "workload.local_iterations": kappa1,
            "topology.edge_rounds": kappa2,
            "topology.backhaul.one_way_delay_s": delay_s,
        },
    )


def predicted(of: Scenario, gain: npt.NDArray[np.float64], **options: Any) -> tb.Timeline:
    return tb.predict(of, {"gain": np.repeat(gain[:, None], 3000, 1), "slot_s": 0.1}, **options)


@pytest.mark.parametrize(("kappa1", "kappa2"), [(60, 1), (15, 4), (6, 10)])
@pytest.mark.parametrize("gain", [EQUAL, DIFFERING], ids=["equal", "differing"])
@pytest.mark.parametrize("delay_s", [0.0, 0.05])
def test_two_hops_take_what_the_paper_says(
    kappa1: int, kappa2: int, gain: npt.NDArray[np.float64], delay_s: float
) -> None:
    of = scenario(kappa1, kappa2, delay_s)
    rounds = predicted(of, gain, rounds=2)
    # The formula, from the paper's numbers alone, and the downlinks that it neglects.
    upload_s = M / (B * np.log2(1 + gain * P / SIGMA))
    broadcast_s = M / (10 * B * np.log2(1 + gain * 40 / (10 * SIGMA)))
    comp_s = C * D / F
    of_edges = [slice(10 * e, 10 * e + 10) for e in range(5)]
    edges_s = [
        kappa2 * (broadcast_s[e].max() + kappa1 * comp_s + upload_s[e].max()) for e in of_edges
    ]
    latency_s = max(edges_s) + M / 5.672425e5 + M / 1e9 + 2 * delay_s
    for round_ in rounds:
        assert round_.latency_s == pytest.approx(latency_s, rel=1e-9)
    compute_j = kappa2 * kappa1 * ALPHA / 2 * C * D * F**2
    np.testing.assert_allclose(rounds[0].energy_j, compute_j + kappa2 * P * upload_s, rtol=1e-9)
    assert rounds.end_s == pytest.approx(2 * latency_s, rel=1e-9)

    model = runpy.run_path(str(PAPERS / "hierfavg.py"))["latency_s"]
    plan = plan_round(of, profile_of(of), fixed_allocation(of))
    assert of.topology is not None
    backhaul = of.topology.backhaul
    said_s = model(
        plan,
        ShannonFdma.of(of),
        gain[:, None],
        0.1,
        edges=of.members,
        edge_rounds=kappa2,
        model_bytes=profile_of(of).trainable_bytes,
        uplink_bps=backhaul.uplink_bps,
        downlink_bps=backhaul.downlink_bps,
        one_way_delay_s=backhaul.one_way_delay_s,
    )
    assert said_s == pytest.approx(latency_s, rel=1e-9)
    assert model(plan, ShannonFdma.of(of), gain[:, None], 0.1) is None


def test_the_numbers_are_those_that_the_paper_prints() -> None:
    (round_,) = predicted(scenario(15, 4), EQUAL)
    own = round_.spans[round_.spans["client"] == 1]
    took_s = dict(zip(own["step"].tolist(), (own["end_s"] - own["start_s"]).tolist(), strict=True))
    assert took_s[1] + took_s[5] == pytest.approx(0.024)  # computing of a local update, 0.024 s
    assert took_s[6] == pytest.approx(0.1233, rel=2e-3)  # upload of the model, 0.1233 s
    assert 0.5 * took_s[6] == pytest.approx(0.0616, rel=2e-3)  # its energy, 0.0616 J
    up = round_.backhaul[0]
    assert up.end_s - up.start_s == pytest.approx(10 * took_s[6], rel=1e-4)  # ten times as slow
