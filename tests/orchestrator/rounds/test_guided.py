# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""UAVs that a policy flies, compared with flights and latencies that numpy computes here."""

import numpy as np
import pytest

import orchestrator as tb
from ns3_scenarios.trace import Replay
from orchestrator.engine.plan import Allocation, payload_bytes
from orchestrator.policies.environment import UavSflEnv
from orchestrator.policies.registry import checked
from orchestrator.rounds.loop import (
    Decision,
    EngineBackend,
    ShadowPrediction,
    Situation,
    predict,
)
from orchestrator.scenario.channel import Channel, ns3_source
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Radio
from testbed.core.errors import InputError, RunError

START = np.array([[400.0, 0.0, 20.0], [0.0, 500.0, 30.0], [-300.0, -300.0, 25.0]])
SPEED, CLIMB = 15.0, 2.0


def scenario(uavs=3, **more):
    keys = {
        "rounds": 4,
        "workload.compute": "none",
        "uavs.tx_power_w": [1.0, 0.4, 0.1][:uavs],
        "mobility.model": "guided",
        "mobility.start_m": START[:uavs].tolist(),
        "mobility.limits.speed_m_s": SPEED,
        "mobility.limits.climb_m_s": CLIMB,
        "radio.channel": "free-space",
    }
    return tb.load("quickstart", keys | {k.replace("__", "."): v for k, v in more.items()})


def pilot(uavs=3, seen=None):
    """In round 1, two way points, in round 2 none."""
    share = np.full(uavs, 1 / uavs)
    targets = [
        START[:uavs] * [0.7, 0.9, 1.5],
        np.stack([START[:uavs] * [0.6, 0.8, 1.4], START[:uavs] * [1.2, 1.1, 3.0]], axis=1),
        None,
        START[:uavs] * [0.2, 0.2, 1.0],
    ]

    def decide(now):
        if seen is not None:
            seen.append((now.start_s, now.channel.position_m[:, -1]))
        return Allocation(2, share, share, share, position_m=targets[now.index % 4])

    return decide, targets


def flight(starts_s, targets, times_s):
    """Positions of UAV 1 at some times, flown leg by leg."""
    place, at_s = [], 0.0
    here, legs = START[0].copy(), []
    turns = [*starts_s, np.inf]
    for t in times_s:
        while at_s < t or turns[0] <= t:
            if turns[0] <= at_s + 1e-15:
                target = targets.pop(0)
                turns.pop(0)
                if target is not None:
                    legs = [np.array(each) for each in np.reshape(target[0], (-1, 3))]
                continue
            until_s = min(t, turns[0])
            if not legs:
                at_s = until_s
                continue
            way = legs[0] - here
            need_s = max(np.hypot(way[0], way[1]) / SPEED, abs(way[2]) / CLIMB)
            if need_s <= until_s - at_s:
                here, at_s = legs.pop(0), at_s + need_s
            else:
                here, at_s = here + way * (until_s - at_s) / need_s, until_s
        place.append(here.copy())
    return np.array(place)


def test_guided_rounds_are_those_of_an_independent_computation():
    """One UAV, so that all steps follow one after the other: rates of each slot, to 1e-9."""
    one = scenario(uavs=1)
    decide, targets = pilot(1)
    made = tb.predict(one, policy=decide)
    slots_s = np.arange(0, made.end_s + 10, one.slot_s)
    place = flight([each.start_s for each in made], list(targets), slots_s)
    distance = np.linalg.norm(place - one.base_station.position_m, axis=1)
    gain = (299_792_458.0 / one.radio.carrier_hz / (4 * np.pi * distance)) ** 2
    noise = 1e-3 * 10 ** (one.radio.noise_dbm_per_mhz / 10) / 1e6
    rates = [
        hz * np.log2(1 + power * gain / (hz * noise))
        for hz, power in (
            (one.radio.uplink_bandwidth_hz, 1.0),
            (one.radio.downlink_bandwidth_hz, one.base_station.tx_power_w),
        )
    ]
    costs, work = profile_of(one), one.workload
    batch, ratio = work.batch_size, work.backward_ratio
    forward = batch * costs.client_forward_flops[1] / one.fleet.compute_flops[0]
    server = batch * (1 + ratio) * costs.server_forward_flops[1] / one.base_station.compute_flops
    adapters, smashed = costs.adapter_bytes[1], batch * costs.smashed_bytes[1]

    def sent(at_s, size, bps):
        bits = 8.0 * size
        while True:
            slot = int(at_s / one.slot_s + 1e-9)
            end_s = (slot + 1) * one.slot_s
            if bits <= bps[slot] * (end_s - at_s):
                return at_s + bits / bps[slot]
            bits, at_s = bits - bps[slot] * (end_s - at_s), end_s

    at_s = 0.0
    for round_ in made:
        begin_s, at_s = at_s, sent(at_s, adapters, rates[1])
        for _ in range(work.local_iterations):
            at_s = sent(at_s + forward, smashed, rates[0])
            at_s = sent(at_s + server, smashed, rates[1]) + ratio * forward
        at_s = sent(at_s, adapters, rates[0])
        assert round_.latency_s == pytest.approx(at_s - begin_s, rel=1e-9)


@pytest.mark.parametrize("wire", [False, True])
def test_slots_that_are_made_one_by_one_are_the_same(wire, monkeypatch):
    seen, again = [], []
    made = tb.predict(scenario(), policy=pilot(seen=seen)[0], wire=wire)
    monkeypatch.setattr(Radio, "remembers", property(lambda self: True))
    stepped = tb.predict(scenario(), policy=pilot(seen=again)[0], wire=wire)
    assert made.frame().equals(stepped.frame())
    for (start_s, place), (other_s, other) in zip(seen, again, strict=True):
        assert start_s == other_s
        np.testing.assert_array_equal(place, other)


@pytest.mark.parametrize(
    "keys",
    [
        {"radio__channel": "rma-av"},
        {"radio__channel": "uma-av", "mobility__limits__height_m": [20, 60]},
        {"radio__channel": "rma-av", "radio__shadow_fading": True},
        {"radio__channel": "rma-av", "radio__line_of_sight": "probability"},
        {"radio__fading": "rayleigh", "radio__fading_block": "slot"},
        {
            "radio__access": "lte",
            "radio__uplink_bandwidth_hz": 5e6,
            "radio__downlink_bandwidth_hz": 5e6,
            "radio__cells": [{"position_m": [800, 0, 30], "tx_power_w": 40}],
        },
    ],
)
def test_a_flight_that_is_replayed_gives_the_same_rounds(keys):
    """With every channel, whether it remembers earlier positions or not."""
    guided = scenario(rounds=3, **keys)
    decide, _ = pilot()
    with ns3_source(guided) as source:
        channel = Channel.of(source)
        made = predict(guided, channel, profile_of(guided), decide=decide)
        flown = channel.until(made.end_s)
    again = predict(guided, Replay(flown), profile_of(guided), decide=decide)
    assert made.frame().equals(again.frame())
    slots = [int(each.start_s / guided.slot_s) for each in made]
    np.testing.assert_array_equal(flown.position_m[:, 0], START)
    step = np.diff(flown.position_m, axis=1) / guided.slot_s
    assert np.hypot(step[..., 0], step[..., 1]).max() <= SPEED * (1 + 1e-9)
    assert np.abs(step[..., 2]).max() <= CLIMB * (1 + 1e-9)
    assert np.abs(step[:, slots[1] + 1]).max() > 1


def test_a_measured_round_is_predicted_on_its_flight():
    """The prediction follows the flight until the measured end, and then the channel stays."""
    guided, (decide, _) = scenario(), pilot()
    first = decide(Situation(0, 0.0, [], [], None))
    with ns3_source(guided) as source:
        channel = Channel.of(source)
        channel.fly(0.0, np.reshape(first.position_m, (3, -1, 3)))
        engine = EngineBackend(guided, channel, profile_of(guided), payload_bytes)
        shadow = ShadowPrediction(engine)
        decision = Decision(0, 0.0, first)
        free = shadow.next_round(decision, None)
        long, short = (
            shadow.flown_round(decision, None, free.latency_s * share) for share in (1.5, 0.5)
        )
        assert long.latency_s == free.latency_s
        assert short.latency_s != free.latency_s
        held = channel.until(free.latency_s * 0.5)
    stays = np.minimum(np.arange(1000), held.slots - 1)
    alone = EngineBackend(guided, Replay(held.at(stays)), profile_of(guided), payload_bytes)
    assert alone.play(decision).latency_s == short.latency_s


@pytest.mark.parametrize(
    ("position", "says"),
    [
        (START[:2], "position_m must have shape [3, 3] or [3, n, 3]"),
        (START[:, :2], "position_m must have shape [3, 3] or [3, n, 3]"),
        (START[:, None, None], "position_m must have shape [3, 3] or [3, n, 3]"),
        (np.empty((3, 0, 3)), "position_m must have shape [3, 3] or [3, n, 3]"),
        (np.zeros((3, 1001, 3)), "position_m must have shape [3, 3] or [3, n, 3] with 1 to 1000"),
        ("home", "position_m must have shape [3, 3] or [3, n, 3] with 1 to 1000 way points, not"),
        ([[1, 2], [3], [4]], "position_m must have shape [3, 3]"),
        (START * np.nan, "position_m of UAV 1 must be 0 to 5000 m from the base station"),
        (START * [1, 1, np.inf], "position_m of UAV 1 must be 0 to 5000 m"),
        (START * [1, 100, 1], "position_m of UAV 2 must be 0 to 5000 m from the base station"),
        (START * [1, 1, 0.07], "position_m of UAV 1 must be 0 to 5000 m from the base station"),
        (START - [0, 0, 40], "1.5 to 300 m high, where the channel holds, not at [400.0, 0.0, -20"),
        (
            START + np.array([0, 0, 300]),
            "position_m of UAV 1 must be 0 to 5000 m from the base station",
        ),
        (
            np.stack([START, START + np.array([9000, 0, 0])], axis=1),
            "position_m of UAV 1 must be 0 to 5000 m",
        ),
    ],
)
def test_a_way_point_that_is_not_possible_is_one_line(position, says):
    share = np.full(3, 1 / 3)
    decide = checked(
        scenario(), "mine", lambda now: Allocation(2, share, share, share, position_m=position)
    )
    with pytest.raises(RunError, match=r"^allocation\.policy 'mine', round 5: ") as error:
        decide(Situation(5, 0.0, [], [], None))
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 260


def test_only_guided_uavs_have_way_points():
    share = np.full(3, 1 / 3)

    def policy(now):
        return Allocation(2, share, share, share, position_m=START)

    with pytest.raises(RunError, match=r"position_m must be None where mobility.model is 'gauss"):
        tb.predict("quickstart", policy=policy)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"mobility__start_m": [[0, 0, 20]]}, "start_m: must have one entry per UAV: 3"),
        ({"mobility__limits__height_m": [50, 20]}, "the first must be below the second"),
        ({"mobility__limits__speed_m_s": 0}, "mobility.limits.speed_m_s"),
        (
            {"mobility__model": "gauss-markov"},
            "start_m: belongs to 'steered' and 'guided', not to 'gauss-markov'",
        ),
        ({"mobility__mean_speed_m_s": 3}, "mean_speed_m_s: belongs to 'gauss-markov'"),
    ],
)
def test_limits_that_cannot_be_right_are_one_line(keys, says):
    with pytest.raises(InputError) as error:
        scenario(**keys)
    assert says in str(error.value)


def test_a_uav_starts_within_the_limits():
    outside = scenario(mobility__limits__distance_m=[0, 450])
    with pytest.raises(InputError, match=r"mobility\.start_m: UAV 2 would start at \[0"):
        tb.predict(outside)
    drawn = tb.load("quickstart", {"mobility.model": "guided", "workload.compute": "none"})
    inner, outer = np.array(drawn.uavs.ring_m).T
    with ns3_source(drawn) as source:
        place = source.trace(5).position_m
    far = np.hypot(place[:, 0, 0], place[:, 0, 1])
    assert ((far >= inner) & (far <= outer)).all()
    assert np.ptp(place, axis=1).max() == 0


def test_an_action_of_the_environment_flies():
    made = UavSflEnv(scenario(), decides=("position_m",))
    made.reset(seed=1)
    target = np.array([[9e3, 0, 50], [0, 450, 40], [-250, -250, 30]])
    made.step(made.action_space.sample() | {"position_m": target})
    assert np.hypot(*made.allocation.position_m[0, -1, :2]) == pytest.approx(5000)
    flown = made._channel.until(made.round.end_s).position_m
    step = flown[:, -1] - START
    assert (step * (target - START) >= 0).all()
    made.close()
    with pytest.raises(InputError, match=r"position_m needs mobility\.model 'guided'"):
        UavSflEnv(tb.load("quickstart"), decides=("position_m",))
