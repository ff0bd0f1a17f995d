# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What is predicted of a machine that is slower than the modelled devices."""

from dataclasses import replace

import numpy as np
import pytest
from engine_cases import by_hand

from ns3_scenarios.trace import ChannelTrace, Replay
from orchestrator.emulated.dilation import (
    Job,
    Speeds,
    choose,
    finish,
    measure,
    settle,
    with_overruns,
)
from orchestrator.engine.fdma import ShannonFdma
from orchestrator.engine.plan import fixed_allocation, link_bytes, plan_round
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import ResolvedScenario
from testbed.core.errors import RunError
from testbed.core.timeline import CF, S

ONE_CORE = Speeds(forward_s=1.0, server_s=1.0, backward_s=2.0, contention=1.0, cores=1)


def jobs(*starts_s, work_s=1.0, by_server=False):
    return [Job(s, s + 10 - n, work_s, by_server, (CF, n, 0)) for n, s in enumerate(starts_s)]


def test_steps_share_the_cores():
    # Alone for half a second, two for one second (half speed each), then the second alone.
    assert finish(jobs(0.0, 0.5), ONE_CORE, (1, 1)) == pytest.approx([1.5, 2.0])
    two = replace(ONE_CORE, cores=2)
    assert finish(jobs(0.0, 0.5), two, (1, 1)) == pytest.approx([1.0, 1.5])
    assert finish(jobs(0.0, 0.0, 0.0), two, (1, 1)) == pytest.approx([1.5] * 3)
    # Two threads each fill both cores.
    assert finish(jobs(0.0, 0.0), two, (2, 1)) == pytest.approx([2.0, 2.0])


def test_cores_that_compute_at_once_may_be_slower_each():
    two = replace(ONE_CORE, cores=2, contention=1.5)
    assert finish(jobs(0.0, 5.0), two, (1, 1)) == pytest.approx([1.0, 6.0])
    assert finish(jobs(0.0, 0.0), two, (1, 1)) == pytest.approx([1.5, 1.5])


def test_the_server_computes_one_step_at_a_time_the_one_due_first():
    many = replace(ONE_CORE, cores=8)
    # All are there while the first computes; the last one is due first.
    assert finish(jobs(0.0, 0.1, 0.2, by_server=True), many, (1, 1)) == pytest.approx([1, 3, 2])


def slow_case(clients=3, **speeds):
    """Modelled: forward 0.1 s, backward 0.2 s, server 0.1 s."""
    plan, radio = by_hand("sfl-pp", [0.1] * clients, [1] * clients, [0.1] * clients, [1] * clients)
    return (plan, radio, np.ones((clients, 1000)), 0.1, replace(ONE_CORE, **speeds), (1, 1))


def test_overruns_are_put_into_the_round():
    case = slow_case(forward_s=0.3, backward_s=0.0, server_s=0.0)
    times, overruns = with_overruns(*case, dilation=1.0)
    # Three forward passes at once on one core: 0.9 s instead of 0.1 s each.
    durations = times.spans[times.spans["step"] == CF]
    assert durations["end_s"] - durations["start_s"] == pytest.approx([0.9] * 3, abs=1e-6)
    assert overruns == 3
    times, overruns = with_overruns(*case, dilation=9.1)
    assert overruns == 0


def test_each_uav_of_a_fleet_overruns_by_its_own_model():
    """What takes 5/8 of the slowest model's time, 5/4 of the next one's, 5 times the fastest's."""
    uavs = {"tx_power_w": [1, 1, 1], "compute_flops": [8e9, 2e9, 1e9]}
    tree = {**SCENARIO, "uavs": uavs}
    scenario = validate(tree, "test")
    plan = plan_round(scenario, profile_of(scenario), fixed_allocation(scenario), link_bytes)
    slowest_s = float(plan.cf_s[2, 0])
    assert plan.cf_s[:, 0].tolist() == pytest.approx([slowest_s * f for f in (0.125, 0.5, 1)])
    work_s = 0.625 * slowest_s
    machine = replace(ONE_CORE, forward_s=work_s, server_s=0.0, backward_s=0.0, cores=8)
    gain = np.full((3, 100_000), 1e-9)
    for dilation, late in ((1.0, [True, True, False]), (1.25, [True, False, False])):
        times, overruns = with_overruns(
            plan, ShannonFdma.of(scenario), gain, 0.1, machine, (1, 1), dilation
        )
        durations = times.spans[times.spans["step"] == CF]
        took_s = (durations["end_s"] - durations["start_s"])[np.argsort(durations["client"])]
        model_s = plan.cf_s[:, 0]
        due_s = np.where(late, work_s / dilation, model_s)
        assert took_s == pytest.approx(due_s, rel=1e-6)
        assert overruns == sum(late)


def test_a_step_that_waits_for_the_server_overruns():
    case = slow_case(forward_s=0.0, backward_s=0.0, server_s=0.15, cores=4)
    times, overruns = with_overruns(*case, dilation=1.0)
    served = times.spans[times.spans["step"] == S]
    lasts_s = sorted(served["end_s"] - served["start_s"])
    assert lasts_s == pytest.approx([0.15, 0.30, 0.45], abs=1e-6)
    assert overruns == 3


SCENARIO = {
    "name": "slow",
    "uavs": {"tx_power_w": [1, 0.4, 0.1], "compute_flops": 1e9},
    "base_station": {"compute_flops": 1e10},
    "workload": {"model": "swin_nano_patch4_window4_64", "batch_size": 4, "local_iterations": 1},
    "emulation": {"dilation": "auto"},
}


def settled(**speeds):
    scenario = validate(SCENARIO, "test")
    profile = profile_of(scenario)
    plan = plan_round(scenario, profile, fixed_allocation(scenario), link_bytes)
    source = Replay(ChannelTrace(gain=np.full((3, 100_000), 1e-9), slot_s=0.1))
    machine = replace(ONE_CORE, cores=2, **speeds)
    return choose(scenario, plan, Channel(source), machine, rounds_s=10.0), float(plan.cf_s[0, 0])


def test_the_smallest_factor_within_the_bound_is_chosen():
    tried, _ = settled(forward_s=1e-6, backward_s=1e-6, server_s=1e-6)
    assert [predicted.dilation for predicted in tried] == [1.0]
    assert tried[0].run_s == pytest.approx(10.0)
    _, modelled_s = settled(forward_s=1e-6, backward_s=1e-6, server_s=1e-6)
    tried, _ = settled(forward_s=10 * modelled_s, backward_s=1e-6, server_s=1e-6)
    # Three at once on two cores: 15 times the modelled step, but for what the bound forgives.
    assert 10 <= tried[-1].dilation <= 15
    assert tried[-1].change < 0.01 <= tried[-2].change
    assert tried[-1].run_s == pytest.approx(10 * tried[-1].dilation, rel=0.02)


def test_no_factor_is_large_enough():
    with pytest.raises(RunError, match=r"emulation.dilation: even .* emulation.overrun_bound, 1 %"):
        settled(forward_s=1e9, backward_s=1.0, server_s=1.0)


def test_without_computing_time_runs_as_it_is():
    tree = SCENARIO | {"workload": SCENARIO["workload"] | {"compute": "none"}}
    scenario = validate(tree, "test")
    source = Replay(ChannelTrace(gain=np.full((3, 10_000), 1e-9), slot_s=0.1))
    chosen, speeds, tried = settle(scenario, source, profile_of(scenario))
    assert (chosen.dilation, speeds) == (1.0, None)
    assert tried[-1].overruns == 0
    named = chosen.resolved(3.0)
    assert settle(named, source, profile_of(scenario)) == (named, None, [])


def test_a_resolved_scenario_is_the_same_but_for_what_was_auto():
    scenario = validate(SCENARIO | {"emulation": {"dilation": "auto", "mtu": 1400}}, "test")
    resolved = scenario.resolved(2.5)
    assert isinstance(resolved, ResolvedScenario)
    assert resolved.dilation == 2.5
    tree = scenario.model_dump(mode="json")
    tree["emulation"]["dilation"] = 2.5
    assert resolved.model_dump(mode="json") == tree
    assert resolved == validate(tree, "test").resolved(2.5)
    assert scenario.emulation.dilation == "auto"


def test_the_real_work_is_measured():
    scenario = validate(SCENARIO, "test")
    speeds = measure(scenario, profile_of(scenario))
    for seconds in (speeds.forward_s, speeds.backward_s, speeds.server_s):
        assert 1e-4 < seconds < 10
    assert speeds.contention >= 1
    assert speeds.rate(1) == 1
    assert speeds.rate(10 * speeds.cores) == pytest.approx(0.1 / speeds.contention)
