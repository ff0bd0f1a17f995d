# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a policy decides besides split points and shares: power, speed, batches, iterations, who."""

import numpy as np
import pytest
from small_scenario import trace_of_rates

import orchestrator as tb
from ns3_scenarios.trace import ChannelTrace, Replay
from orchestrator.emulated.trajectory import learn
from orchestrator.engine.plan import Allocation, decided
from orchestrator.policies.decisions import samples_of
from orchestrator.policies.environment import UavSflEnv
from orchestrator.policies.registry import checked
from orchestrator.records.timelines import allocation_of, decision_table, with_own_values
from orchestrator.rounds.loop import Decision, Situation
from orchestrator.scenario.profiles import profile_of
from testbed.core.errors import InputError, RunError

K = 3
EQUAL = np.full(K, 1 / K)
GAIN = 1e-9 * (1 + 0.3 * np.sin(np.arange(4000) / 30 + np.arange(K)[:, None]))
TRACE = ChannelTrace(GAIN, 0.1, np.tile([100.0, 0.0, 20.0], (K, 4000, 1)))
POWER, SPEED = np.array([0.5, 0.2, 0.05]), np.array([1e12, 2e12, 5e11])
BATCH, TIMES = [3, 5, 2], [1, 3, 2]


KEYS = {
    "rounds": 2,
    "uavs.tx_power_w": [1.0, 0.4, 0.1],
    "uavs.compute_flops": 2.5e12,
    "workload.compute": "none",
}


def scenario(**more):
    return tb.load("quickstart", KEYS | {k.replace("__", "."): v for k, v in more.items()})


def answers(**further):
    return lambda now: Allocation(2, EQUAL, EQUAL, EQUAL, **further)


def same(made, wanted):
    assert made.frame().equals(wanted.frame())
    for mine, other in zip(made, wanted, strict=True):
        np.testing.assert_array_equal(mine.energy_j, other.energy_j)
        assert mine.objective == other.objective


@pytest.mark.parametrize("wire", [False, True])
@pytest.mark.parametrize(
    "keys",
    [
        {"radio__access": "shannon"},
        {"radio__access": "wifi", "radio__uplink_bandwidth_hz": 2e7, "base_station__tx_power_w": 1},
        {
            "radio__access": "lte",
            "radio__uplink_bandwidth_hz": 5e6,
            "radio__downlink_bandwidth_hz": 5e6,
        },
        {"paradigm": "pipesfl"},
        {"paradigm": "sfl-pp"},
    ],
)
def test_a_decided_round_is_that_of_a_scenario_with_these_keys(keys, wire):
    if keys.get("radio__access") == "wifi":
        keys = keys | {"radio__downlink_bandwidth_hz": 2e7}
    plain = scenario(**keys)
    wanted = scenario(
        **keys,
        uavs__tx_power_w=POWER.tolist(),
        uavs__compute_flops=SPEED.tolist(),
        uavs__compute_power_w=(plain.fleet.compute_power_w * (SPEED / 2.5e12) ** 3).tolist(),
        workload__batch_size=BATCH,
        workload__local_iterations=TIMES,
        workload__split=2,
    )
    policy = answers(
        tx_power_w=POWER, compute_flops=SPEED, batch_size=BATCH, local_iterations=TIMES
    )
    same(tb.predict(plain, TRACE, policy, wire=wire), tb.predict(wanted, TRACE, wire=wire))

    # Nothing that is decided leaves a trace in the next round, which has no decision.
    def once(now):
        return policy(now) if now.index == 0 else answers()(now)

    assert len(tb.predict(plain, TRACE, once, wire=wire)[1].spans) == len(
        tb.predict(plain, TRACE, answers(), wire=wire)[1].spans
    )


def test_the_latency_and_energy_of_a_decided_round_by_hand():
    """One UAV on a constant channel: all steps one after the other."""
    gain, flops, watts, batch, iterations = 2e-11, 8e11, 0.3, 7, 4
    one = tb.load("quickstart", KEYS | {"rounds": 1, "uavs.tx_power_w": [1.0]})
    whole = np.ones(1)

    def policy(now):
        return Allocation(2, whole, whole, whole, None, [watts], [flops], [batch], [iterations])

    (round_,) = tb.predict(one, ChannelTrace(np.full((1, 9000), gain), 0.1), policy)
    costs, radio, ratio = profile_of(one), one.radio, one.workload.backward_ratio
    noise_w = 1e-3 * 10 ** (radio.noise_dbm_per_mhz / 10) / 1e6

    def bps(hz, power_w):
        return hz * np.log2(1 + power_w * gain / (hz * noise_w))

    up = bps(radio.uplink_bandwidth_hz, watts)
    down = bps(radio.downlink_bandwidth_hz, one.base_station.tx_power_w)
    forward_s = batch * costs.client_forward_flops[1] / flops
    server_s = batch * (1 + ratio) * costs.server_forward_flops[1] / one.base_station.compute_flops
    adapters, smashed = costs.adapter_bytes[1], batch * costs.smashed_bytes[1]
    sent_s = 8 * (iterations * smashed + adapters) / up
    computed_s = iterations * (1 + ratio) * forward_s
    latency_s = computed_s + iterations * server_s + sent_s + 8 * (adapters + 4 * smashed) / down
    omega = one.fleet.compute_power_w[0] / one.fleet.compute_flops[0] ** 3
    assert round_.latency_s == pytest.approx(latency_s, rel=1e-9)
    assert round_.energy_j[0] == pytest.approx(
        omega * flops**3 * computed_s + watts * sent_s, rel=1e-9
    )


def test_a_policy_says_who_takes_part():
    chosen = {0: (3, 1), 1: np.array([2]), 2: None}
    seen = []

    def policy(now):
        seen.append([round_.clients for round_ in now.rounds])
        return answers(clients=chosen[now.index])(now)

    made = tb.predict(scenario(rounds=3), TRACE, policy)
    assert [round_.clients for round_ in made] == [[1, 3], [2], [1, 2, 3]]
    assert seen[2] == [[1, 3], [2]]
    rule = scenario(participation__clients=2, participation__rule="round-robin", rounds=1)
    same(tb.predict(rule, TRACE), tb.predict(scenario(rounds=1), TRACE, answers(clients={1, 2})))


HUGE = 10**400


@pytest.mark.parametrize(
    ("further", "says"),
    [
        ({"tx_power_w": [1.0, 0.5, 0.1]}, "tx_power_w of UAV 2 must be 1e-06 to 0.4 W (uavs"),
        ({"tx_power_w": [1.0, 0.4, np.nan]}, "tx_power_w of UAV 3 must be 1e-06 to 0.1 W (uavs"),
        ({"tx_power_w": [0.0, 0.4, 0.1]}, "tx_power_w of UAV 1 must be 1e-06 to 1 W"),
        ({"tx_power_w": [-1, 0.4, 0.1]}, "tx_power_w of UAV 1 must be 1e-06 to 1 W"),
        ({"tx_power_w": [np.inf, 0.4, 0.1]}, "tx_power_w of UAV 1 must be 1e-06 to 1 W"),
        ({"tx_power_w": 0.1}, "tx_power_w must be 3 numbers, one per UAV, not 0.1"),
        ({"tx_power_w": [0.1, 0.1]}, "tx_power_w must be 3 numbers, one per UAV, not [0.1, 0.1]"),
        ({"tx_power_w": np.ones((3, 1))}, "tx_power_w must be 3 numbers, one per UAV, not array"),
        ({"tx_power_w": "much"}, "tx_power_w must be 3 numbers, one per UAV, not 'much'"),
        ({"tx_power_w": [True] * 3}, "tx_power_w must be 3 numbers, one per UAV, not [True"),
        ({"tx_power_w": [0.1, None, 0.1]}, "tx_power_w of UAV 2 must be 1e-06 to 0.4 W"),
        ({"tx_power_w": {"uav1": 1}}, "tx_power_w must be 3 numbers, one per UAV, not {'uav1'"),
        ({"tx_power_w": [HUGE, 0.1, 0.1]}, "tx_power_w must be 3 numbers, one per UAV"),
        ({"tx_power_w": [1j, 0.1, 0.1]}, "tx_power_w must be 3 numbers, one per UAV"),
        (
            {"compute_flops": [1e12, 1e12, 2.6e12]},
            "compute_flops of UAV 3 must be 1000 to 2.5e+12 FLOP/s (uavs.compute_flops), "
            "not 2.6e+12",
        ),
        ({"compute_flops": [0, 1e12, 1e12]}, "compute_flops of UAV 1 must be 1000 to"),
        ({"batch_size": [1, 2, 0]}, "batch_size of UAV 3 must be a whole number from 1 to 4096"),
        ({"batch_size": [1, 2.5, 3]}, "batch_size of UAV 2 must be a whole number from 1 to 4096"),
        ({"batch_size": [1, 2, 5000]}, "batch_size of UAV 3 must be a whole number from 1 to 4096"),
        ({"batch_size": ["a", 2, 3]}, "batch_size must be 3 numbers, one per UAV"),
        (
            {"local_iterations": [1, 2, 1001]},
            "local_iterations of UAV 3 must be a whole number from 1 to 1000",
        ),
        ({"local_iterations": [np.nan, 2, 1]}, "local_iterations of UAV 1 must be a whole number"),
        ({"clients": []}, "clients must be one or more UAVs of 1 to 3, each once, not []"),
        ({"clients": [1, 1]}, "clients must be one or more UAVs of 1 to 3, each once, not [1, 1]"),
        ({"clients": [0, 1]}, "clients must be one or more UAVs of 1 to 3"),
        ({"clients": [1.5]}, "clients must be one or more UAVs of 1 to 3"),
        ({"clients": [np.nan]}, "clients must be one or more UAVs of 1 to 3"),
        ({"clients": 2}, "clients must be one or more UAVs of 1 to 3, each once, not 2"),
        ({"clients": [[1], [2]]}, "clients must be one or more UAVs of 1 to 3"),
    ],
)
def test_a_decision_that_is_not_possible_is_one_line(further, says):
    decide = checked(scenario(), "mine", answers(**further))
    with pytest.raises(RunError) as error:
        decide(Situation(3, 0.0, [], [], None))
    line = str(error.value)
    assert line.startswith(f"allocation.policy 'mine', round 3: {says}")
    assert "\n" not in line
    assert len(line) < 200


@pytest.mark.parametrize(
    ("keys", "further", "says"),
    [
        (
            {"workload__gradient_aggregation": 0.5, "paradigm": "sfl-sp"},
            {"batch_size": [8] * 3},
            "batch_size must be None where gradients are aggregated",
        ),
        (
            {"workload__sampling": "epochs", "workload__compute": "real"},
            {"local_iterations": [2] * 3},
            "local_iterations must be None with workload.sampling 'epochs'",
        ),
        (
            {"participation__clients": 2},
            {"clients": [1]},
            "clients must be None, because `participation` chooses them",
        ),
        (
            {"workload__clients_per_pass": 3, "workload__compute": "real"},
            {"batch_size": [8, 8, 7]},
            "workload.batch_size: must be one number",
        ),
        (
            {
                "radio__access": "wifi",
                "radio__uplink_bandwidth_hz": 2e7,
                "radio__downlink_bandwidth_hz": 2e7,
                "emulation__air": "ns3",
            },
            {"tx_power_w": POWER},
            "tx_power_w must be None where ns-3's Wi-Fi carries the frames",
        ),
    ],
)
def test_a_decision_that_the_scenario_does_not_allow_is_one_line(keys, further, says):
    decide = checked(scenario(**keys), "mine", answers(**further))
    with pytest.raises(RunError, match=r"^allocation\.policy 'mine', round 0: ") as error:
        decide(Situation(0, 0.0, [], [], None))
    assert says in str(error.value)


def test_no_power_changes_the_rates_of_a_trace():
    with pytest.raises(InputError, match=r"tx_power_w: must be None where the trace has rates"):
        tb.predict(scenario(), trace_of_rates(), answers(tx_power_w=POWER))


def test_a_batch_has_at_most_the_samples_of_its_uav():
    real = scenario(
        workload__compute="real", workload__data__samples=40, workload__data__partition="quantity"
    )
    samples = samples_of(real).astype(int)
    assert samples.sum() == 40
    start = Situation(0, 0.0, [], [], None)
    assert checked(real, "mine", answers(batch_size=samples))(start).batch_size.tolist() == [
        *samples
    ]
    says = rf"batch_size of UAV 1 must be a whole number from 1 to {samples[0]} \(the number of its"
    with pytest.raises(RunError, match=says):
        checked(real, "mine", answers(batch_size=samples + 1))(start)


def test_decisions_are_stored_and_read_again():
    given = Allocation(2, EQUAL, EQUAL, EQUAL, None, POWER, SPEED, np.array(BATCH), np.array(TIMES))
    table = decision_table(Decision(0, 0.0, given))
    read = allocation_of(table, K)
    for name in ("tx_power_w", "compute_flops", "batch_size", "local_iterations"):
        np.testing.assert_array_equal(getattr(read, name), getattr(given, name))
        assert getattr(read, name).dtype == getattr(given, name).dtype
    plain = decision_table(Decision(1, 0.0, answers()(None)))
    assert list(plain.columns) == ["round", "client", "split", "alpha", "beta", "rho"]
    import pandas as pd

    both = with_own_values(scenario(), pd.concat([table, plain]))
    assert both[both["round"] == 1]["tx_power_w"].tolist() == [1.0, 0.4, 0.1]
    again = allocation_of(both[both["round"] == 1], K)
    assert decided(scenario(), again).fleet.compute_power_w.tolist() == [16.0] * 3


def test_an_action_of_the_environment_decides_as_a_policy_does():
    names = ("tx_power_w", "compute_flops", "batch_size", "local_iterations")
    made = UavSflEnv(scenario(), decides=names, source=lambda _: Replay(TRACE))
    made.reset(seed=1)
    action = made.action_space.sample() | {
        "local_iterations": np.array(TIMES),
        "compute_flops": SPEED,
        "batch_size": np.array(BATCH),
        "tx_power_w": POWER,
    }
    _, _, _, _, info = made.step(action)
    assert made.allocation.local_iterations.tolist() == TIMES
    assert (made.allocation.tx_power_w <= [1.0, 0.4, 0.1]).all()
    assert len(made.round.spans) == sum(5 * n + 2 for n in TIMES)
    assert info["objective"] == made.round.objective
    with pytest.raises(RunError, match="action: batch_size of UAV 1 must be a whole number"):
        made.step(action | {"batch_size": np.array([0, 1, 1])})
    with pytest.raises(InputError, match="`decides`: 'speed' is not one of tx_power_w"):
        UavSflEnv(scenario(), decides=("speed",))
    made.close()


def test_learning_follows_what_a_policy_decides(tmp_path, monkeypatch):
    """Batches and iterations of each round are those of a scenario with these keys."""
    from orchestrator.emulated import trajectory

    keys = {
        "workload__data__samples": 60,
        "workload__classes": 5,
        "workload__evaluate_every": 0,
        "workload__compute": "real",
        "rounds": 1,
    }
    plain = scenario(**keys, workload__batch_size=4, workload__local_iterations=2)
    wanted = scenario(**keys, workload__batch_size=BATCH, workload__local_iterations=TIMES)
    given = answers(batch_size=np.array(BATCH), local_iterations=np.array(TIMES))(None)
    monkeypatch.setattr(trajectory, "decisions", lambda scenario: [given])
    (tmp_path / "a").mkdir()
    made = learn(plain, tmp_path / "a")
    monkeypatch.undo()
    (tmp_path / "b").mkdir()
    table = learn(wanted, tmp_path / "b").table
    assert made.table.equals(table)
    assert (tmp_path / "a/adapters.safetensors").read_bytes() == (
        tmp_path / "b/adapters.safetensors"
    ).read_bytes()
