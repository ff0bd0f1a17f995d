# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The ns-3 models: path loss, LOS state, shadow fading, motion in the ring."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from ns3_scenarios import build, native, rma_av
from ns3_scenarios.channel import ChannelSettings, Ns3Channel
from ns3_scenarios.trace import ChannelTrace

BS_M = (0.0, 0.0, 30.0)
PAPER_RINGS_M = [(100.0, 550.0)] * 3 + [(550.0, 820.0)] * 3 + [(820.0, 1000.0)] * 4


def channel(slots: int, **settings: object) -> ChannelTrace:
    """A trace from ns-3; seed 1 and the paper's ten UAVs unless told otherwise."""
    with Ns3Channel(ChannelSettings(**{"ring_m": PAPER_RINGS_M, "seed": 1} | settings)) as source:
        return source.trace(slots)


def positions(trace: ChannelTrace) -> np.ndarray:
    assert trace.position_m is not None
    return trace.position_m


def radius_m(trace: ChannelTrace) -> np.ndarray:
    return np.hypot(positions(trace)[..., 0], positions(trace)[..., 1])


def path_loss_db(trace: ChannelTrace, line_of_sight: bool) -> np.ndarray:
    """Path loss by the numpy formulas at the trace's positions, f = 2 GHz, BS at `BS_M`."""
    position = positions(trace)
    distance = np.linalg.norm(position - np.array(BS_M), axis=-1)
    formula = rma_av.los_path_loss_db if line_of_sight else rma_av.nlos_path_loss_db
    return formula(position[..., 2], distance, 2e9)


def loss_db(trace: ChannelTrace) -> np.ndarray:
    return -10 * np.log10(trace.gain)


# Path loss


def model_loss_db(positions_m: list, line_of_sight: str = "always", **kw: object) -> np.ndarray:
    library = native.load(build.library())
    carrier, bs = kw.get("carrier_hz", 2e9), kw.get("bs_position_m", BS_M)
    return np.array(native.path_loss_db(library, carrier, line_of_sight, bs, positions_m))


def test_reference_path_loss() -> None:
    uavs = [(d, 0.0, 20.0) for d in (100.0, 550.0, 820.0, 1000.0)]
    np.testing.assert_allclose(
        model_loss_db(uavs), [81.625, 97.541, 101.280, 103.137], rtol=0, atol=1e-3
    )


@pytest.mark.parametrize("line_of_sight", ["always", "never"])
def test_model_agrees_with_the_formulas(line_of_sight: str) -> None:
    rng = np.random.default_rng(0)
    highest = 300 if line_of_sight == "always" else 40
    uavs = np.column_stack([rng.uniform(-5e3, 5e3, (500, 2)), rng.uniform(10.001, highest, 500)])
    bs, carrier = (120.0, -40.0, 25.0), 3.5e9
    formula = rma_av.los_path_loss_db if line_of_sight == "always" else rma_av.nlos_path_loss_db
    expected = formula(uavs[:, 2], np.linalg.norm(uavs - bs, axis=1), carrier)
    found = model_loss_db(uavs.tolist(), line_of_sight, bs_position_m=bs, carrier_hz=carrier)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


def rural(
    h_ut: float, d_2d: float, h_bs: float, f_ghz: float
) -> tuple[float, float, float, float, float]:
    """RMa of TR 38.901, tables 7.4.1-1 and 7.4.2-1: path loss in LOS and in NLOS, LOS probability,
    and the standard deviation of shadow fading in LOS and in NLOS; h = 5 m, W = 20 m."""
    h, w, log = 5.0, 20.0, math.log10
    d_3d = math.hypot(d_2d, h_bs - h_ut)
    d_bp = 2 * math.pi * h_bs * h_ut * f_ghz * 1e9 / 3e8

    def pl1(d: float) -> float:
        return (
            20 * log(40 * math.pi * d * f_ghz / 3)
            + min(0.03 * h**1.72, 10) * log(d)
            - min(0.044 * h**1.72, 14.77)
            + 0.002 * log(h) * d
        )

    los = pl1(d_3d) if d_2d <= d_bp else pl1(d_bp) + 40 * log(d_3d / d_bp)
    nlos = (
        161.04
        - 7.1 * log(w)
        + 7.5 * log(h)
        - (24.37 - 3.7 * (h / h_bs) ** 2) * log(h_bs)
        + (43.42 - 3.1 * log(h_bs)) * (log(d_3d) - 3)
        + 20 * log(f_ghz)
        - (3.2 * log(11.75 * h_ut) ** 2 - 4.97)
    )
    chance = 1.0 if d_2d <= 10 else math.exp(-(d_2d - 10) / 1000)
    return los, max(los, nlos), chance, 4.0 if d_2d <= d_bp else 6.0, 8.0


def test_up_to_10_m_the_path_loss_is_that_of_rma_on_the_ground() -> None:
    # By hand: 78.937 + 0.967 - 0.701 + 0.148 dB before the break point (1466 m), and beyond that
    # of 1.5 m (2199 m) 105.307 + 1.597 - 0.701 + 3.074 + 10.393 dB.
    near, far = (100.0, 0.0, 1.0), (4000.0, 0.0, 1.5)
    by_hand = [79.351, 119.670]
    bs = (0.0, 0.0, 35.0)
    np.testing.assert_allclose(model_loss_db([near, far], bs_position_m=bs), by_hand, atol=2e-3)
    rng = np.random.default_rng(38901)
    height, across = rng.uniform(1, 10, 400), rng.uniform(10, 5000, 400)
    height[0], carrier_hz = 10.0, 0.7e9
    uavs = [(d, 0.0, h) for d, h in zip(across, height, strict=True)]
    stated = np.array([rural(h, d, 35.0, 0.7) for d, _, h in uavs])
    for line_of_sight, column in (("always", 0), ("never", 1)):
        found = model_loss_db(uavs, line_of_sight, bs_position_m=bs, carrier_hz=carrier_hz)
        np.testing.assert_allclose(found, stated[:, column], atol=1e-9)
    beyond = stated[:, 3] == 6
    assert 50 < beyond.sum() < 350
    far_m = np.hypot(across, height - 35.0)
    np.testing.assert_allclose(
        rma_av.ground_los_path_loss_db(height, 35.0, far_m, carrier_hz), stated[:, 0], atol=1e-9
    )
    aloft = model_loss_db([(1000.0, 0.0, 10.001)], bs_position_m=bs)
    assert abs(aloft - rma_av.los_path_loss_db(10.001, math.hypot(1000, 24.999), 2e9)) < 1e-9


@pytest.mark.parametrize("height_m", [1.0, 10.0])
def test_up_to_10_m_line_of_sight_and_shadowing_are_those_of_rma(height_m: float) -> None:
    for ring in ((5.0, 12.0), (200.0, 400.0), (3000.0, 4000.0)):
        settings: dict[str, Any] = {"ring_m": [ring] * 2000, "height_m": height_m}
        trace = channel(1, line_of_sight="probability", **settings)
        stated = np.array([rural(height_m, d, BS_M[2], 2.0) for d in radius_m(trace)[:, 0]])
        in_sight = np.isclose(loss_db(trace)[:, 0], stated[:, 0], rtol=0, atol=1e-9)
        np.testing.assert_allclose(loss_db(trace)[~in_sight, 0], stated[~in_sight, 1], atol=1e-9)
        chance = stated[:, 2]
        assert abs(in_sight.sum() - chance.sum()) <= 4 * np.sqrt((chance * (1 - chance)).sum())
        for column, line_of_sight in enumerate(("always", "never")):
            faded = channel(1, line_of_sight=line_of_sight, shadow_fading=True, **settings)
            drawn = (loss_db(faded)[:, 0] - stated[:, column]) / stated[:, 3 + column]
            assert abs(drawn.std() - 1) < 4 / np.sqrt(2 * len(drawn))
            assert abs(drawn.mean()) < 4 / np.sqrt(len(drawn))


def test_nlos_loses_more_and_never_less() -> None:
    uavs = [(float(d), 0.0, 20.0) for d in range(1, 2000, 7)]
    excess = model_loss_db(uavs, "never") - model_loss_db(uavs)
    assert (excess >= 0).all()
    # (35 - 5.3 lg 20 - 23.9 + 1.8 lg 20) lg d - 12 at d2D = 995 m.
    assert excess[142] == pytest.approx(
        (11.1 - 3.5 * np.log10(20)) * np.log10(995.05) - 12, abs=1e-3
    )


def test_gain_is_the_loss_at_the_position() -> None:
    trace = channel(500)
    np.testing.assert_allclose(loss_db(trace), path_loss_db(trace, True), rtol=0, atol=1e-9)


# LOS state


def test_los_probability_by_hand() -> None:
    assert rma_av.los_probability(20, 155) == 1
    assert rma_av.los_probability(20, 1000) == pytest.approx(0.789574, abs=1e-6)
    assert rma_av.los_probability(40.1, 9000) == 1
    assert rma_av.los_probability(11, 17.9) == 1
    assert rma_av.los_probability(11, 1000) == pytest.approx(
        0.018 + np.exp(-1) * (1 - 0.018), abs=1e-12
    )


def los_state(trace: ChannelTrace) -> np.ndarray:
    """Whether each UAV is in line of sight; every loss must be one of the two path losses."""
    los, nlos = path_loss_db(trace, True), path_loss_db(trace, False)
    state = np.isclose(loss_db(trace), los, rtol=0, atol=1e-9)
    np.testing.assert_allclose(loss_db(trace)[~state], nlos[~state], rtol=0, atol=1e-9)
    return state


def test_los_state_has_the_probability_of_the_table() -> None:
    for ring in ((200.0, 400.0), (900.0, 1000.0), (3000.0, 4000.0)):
        trace = channel(1, ring_m=[ring] * 2000, line_of_sight="probability")
        probability = rma_av.los_probability(20, radius_m(trace))
        surplus = los_state(trace).sum() - probability.sum()
        assert abs(surplus) < 4 * np.sqrt((probability * (1 - probability)).sum())


def both_below(a: np.ndarray, b: np.ndarray, correlation: np.ndarray) -> np.ndarray:
    """Probability that two correlated standard normals lie below a and b (Drezner's integral)."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    half = np.arcsin(correlation)[:, None] / 2
    t = half * (nodes + 1)
    a, b = a[:, None], b[:, None]
    density = np.exp(-(a**2 + b**2 - 2 * a * b * np.sin(t)) / (2 * np.cos(t) ** 2)) / (2 * np.pi)
    return (stats.norm.cdf(a) * stats.norm.cdf(b))[:, 0] + (half * density) @ weights


def test_los_state_persists_over_its_correlation_distance() -> None:
    # The states of two places d apart: two standard normals, correlated exp(-d / 60 m), each in
    # LOS below its own threshold.
    trace = channel(
        21, ring_m=[(3000.0, 4000.0)] * 6000, line_of_sight="probability", slot_s=1.0, seed=3
    )
    los = los_state(trace)
    probability = rma_av.los_probability(20, radius_m(trace))
    threshold = stats.norm.ppf(probability)
    for last in (2, 5, 20):
        moved = np.linalg.norm(positions(trace)[:, last] - positions(trace)[:, 0], axis=1)
        both = both_below(threshold[:, 0], threshold[:, last], np.exp(-moved / 60))
        changed = probability[:, 0] + probability[:, last] - 2 * both
        surplus = (los[:, 0] ^ los[:, last]).sum() - changed.sum()
        assert abs(surplus) < 4 * np.sqrt((changed * (1 - changed)).sum())


def test_high_uavs_are_always_in_sight() -> None:
    trace = channel(5, ring_m=[(5000.0, 9000.0)] * 50, line_of_sight="probability", height_m=41.0)
    assert los_state(trace).all()


# Shadow fading


@pytest.mark.parametrize(("line_of_sight", "deviation"), [("always", 3.8308), ("never", 6.0)])
def test_shadow_fading_has_the_deviation_of_the_table(line_of_sight: str, deviation: float) -> None:
    uavs = 3000
    trace = channel(
        1, ring_m=[(100.0, 1000.0)] * uavs, line_of_sight=line_of_sight, shadow_fading=True
    )
    los = line_of_sight == "always"
    shadow = (loss_db(trace) - path_loss_db(trace, los))[:, 0]
    assert abs(shadow.mean()) < 4 * deviation / np.sqrt(uavs)
    assert abs(shadow.std() - deviation) < 4 * deviation / np.sqrt(2 * uavs)
    assert stats.kstest(shadow / deviation, "norm").pvalue > 1e-3
    assert rma_av.shadow_deviation_db(20, los) == pytest.approx(deviation, abs=1e-4)


@pytest.mark.parametrize(("line_of_sight", "decorrelation_m"), [("always", 37), ("never", 120)])
def test_shadow_fading_decorrelates_along_the_path(
    line_of_sight: str, decorrelation_m: float
) -> None:
    # Straight flight at 2 m/s: after n slots of 0.5 s, n metres.
    uavs = 2000
    trace = channel(
        121,
        ring_m=[(5000.0, 9000.0)] * uavs,
        line_of_sight=line_of_sight,
        shadow_fading=True,
        slot_s=0.5,
        speed_deviation_m_s=0.0,
        heading_deviation_rad=0.0,
    )
    los = line_of_sight == "always"
    shadow = loss_db(trace) - path_loss_db(trace, los)
    shadow /= rma_av.shadow_deviation_db(20, los)
    for metres in (1, 10, 40, 120):
        expected = np.exp(-metres / decorrelation_m)
        found = (shadow[:, 0] * shadow[:, metres]).mean()
        assert abs(found - expected) < 4 * np.sqrt((1 + expected**2) / uavs)
        # The difference of near values tells short distances better than their product.
        step = (shadow[:, metres] - shadow[:, 0]).var()
        assert step == pytest.approx(2 * (1 - expected), rel=4 * np.sqrt(2 / uavs))


def test_shadow_fading_does_not_follow_the_los_state() -> None:
    trace = channel(
        1, ring_m=[(3000.0, 4000.0)] * 2000, line_of_sight="probability", shadow_fading=True
    )
    plain = channel(1, ring_m=[(3000.0, 4000.0)] * 2000, line_of_sight="probability")
    los = los_state(plain)[:, 0]
    shadow = (loss_db(trace) - loss_db(plain))[:, 0] / rma_av.shadow_deviation_db(20, los)
    for group in (shadow[los], shadow[~los]):
        assert group.size > 500
        assert stats.kstest(group, "norm").pvalue > 1e-3


def test_options_leave_the_motion_and_the_rest_of_the_channel_alone() -> None:
    rings = [(820.0, 1000.0)] * 40
    plain = channel(300, ring_m=rings)
    state = channel(300, ring_m=rings, line_of_sight="probability")
    shadow = channel(300, ring_m=rings, shadow_fading=True)
    both = channel(300, ring_m=rings, line_of_sight="probability", shadow_fading=True)
    for trace in (state, shadow, both):
        np.testing.assert_array_equal(positions(trace), positions(plain))
    los = los_state(state)
    assert 0.5 < los.mean() < 1
    np.testing.assert_array_equal(state.gain[los], plain.gain[los])
    # The same LOS state with and without shadowing, and the same LOS shadowing in every mode;
    # where the state has changed, the path between was not sampled.
    stayed = los.all(axis=1)
    np.testing.assert_array_equal(both.gain[stayed], shadow.gain[stayed])
    gone = ~los.any(axis=1)
    excess = loss_db(both)[gone] - path_loss_db(both, False)[gone]
    assert 3 < excess.std() < 9


# Motion


def test_start_is_uniform_over_the_rings_area_and_stays_so() -> None:
    inner, outer, bs = 20.0, 60.0, (500.0, -300.0, 30.0)
    trace = channel(200, ring_m=[(inner, outer)] * 1500, slot_s=5.0, bs_position_m=bs)
    # 1000 s at 2 m/s in a ring 40 m wide: each UAV has met the edges dozens of times.
    for slot in (0, 199):
        at = positions(trace)[:, slot, :2] - bs[:2]
        area = (np.square(at).sum(axis=1) - inner**2) / (outer**2 - inner**2)
        angle = np.arctan2(at[:, 1], at[:, 0]) / (2 * np.pi) + 0.5
        assert stats.kstest(area, "uniform").pvalue > 1e-3
        assert stats.kstest(angle, "uniform").pvalue > 1e-3
    area = (np.square(positions(trace)[..., :2] - bs[:2]).sum(-1) - inner**2) / 3200
    assert np.corrcoef(area[:, 0], area[:, 199])[0, 1] < 0.1  # They did move.


def assert_in_ring(trace: ChannelTrace, rings: list[tuple[float, float]]) -> None:
    radius = radius_m(trace)
    inner, outer = np.array(rings).T[:, :, None]
    assert (radius >= inner - 1e-9).all()
    assert (radius <= outer + 1e-9).all()


def test_positions_stay_in_the_ring_and_speeds_in_their_bounds() -> None:
    trace = channel(100_000)  # 10 UAVs for almost three hours
    assert_in_ring(trace, PAPER_RINGS_M)
    assert (positions(trace)[..., 2] == 20).all()
    speed = np.linalg.norm(np.diff(positions(trace), axis=1), axis=2) / 0.1
    assert speed.max() <= 4 + 1e-9
    # A slot holds straight flight, unless a mirror bends it within 0.4 m of an edge.
    edges = np.array(PAPER_RINGS_M)[:, :, None]
    clear = np.abs(radius_m(trace)[:, None] - edges).min(axis=1) > 0.4
    straight = speed[clear[:, 1:] & clear[:, :-1]]
    assert straight.min() >= 0.1 - 1e-9
    assert straight.mean() == pytest.approx(2, abs=0.1)
    assert straight.max() > 3.99  # The bounds were met.
    assert straight.min() < 0.11
    assert (~clear).sum() > 100


@pytest.mark.parametrize("ring", [(100.0, 100.5), (0.0, 3.0), (1.0, 30.0)])
def test_fast_uavs_stay_in_narrow_rings(ring: tuple[float, float]) -> None:
    rings = [ring] * 20
    trace = channel(
        5_000, ring_m=rings, speed_m_s=(5.0, 40.0), mean_speed_m_s=30.0, speed_deviation_m_s=10.0
    )
    assert_in_ring(trace, rings)
    assert radius_m(trace).std() > 0.1 * (ring[1] - ring[0])


def test_uavs_may_stand_still() -> None:
    trace = channel(50, speed_m_s=(0.0, 0.0), mean_speed_m_s=0.0, shadow_fading=True)
    assert (positions(trace) == positions(trace)[:, :1]).all()
    assert (trace.gain == trace.gain[:, :1]).all()


def test_mirror_is_exact() -> None:
    # Straight flight in a disc of radius R: every chord is 2 R sin g long and turns by 2 g.
    outer, speed, tested = 50.0, 3.0, 0
    trace = channel(
        6_001,
        ring_m=[(0.0, outer)] * 5,
        speed_deviation_m_s=0.0,
        mean_speed_m_s=speed,
        heading_deviation_rad=0.0,
        memory=1.0,
    )
    for track in positions(trace)[..., :2]:
        start, velocity = track[0], (track[1] - track[0]) / 0.1
        if not np.isclose(np.linalg.norm(velocity), speed):  # Mirrored within the first slot.
            continue
        tested += 1
        along = start @ velocity / speed
        to_edge = -along + np.sqrt(along**2 + outer**2 - start @ start)
        first = start + velocity / speed * to_edge
        impact = (start[0] * velocity[1] - start[1] * velocity[0]) / speed
        grazing = np.copysign(np.arccos(abs(impact) / outer), impact)  # g, signed by the turn
        flown = speed * 0.1 * np.arange(6_001)
        chord = 2 * outer * np.sin(abs(grazing))
        bounces = np.floor_divide(flown - to_edge, chord)
        rest = flown - to_edge - bounces * chord
        corner = np.arctan2(first[1], first[0]) + 2 * grazing * bounces
        after = corner + 2 * grazing
        ends = outer * np.array([[np.cos(corner), np.sin(corner)], [np.cos(after), np.sin(after)]])
        expected = (ends[0] + (ends[1] - ends[0]) * rest / chord).T
        assert bounces.max() > 15
        np.testing.assert_allclose(track, expected, rtol=0, atol=1e-5)
    assert tested >= 3


def test_gauss_markov_steps() -> None:
    # Far from the edges: speed and heading deviation are AR(1) with the given memory.
    trace = channel(
        401,
        ring_m=[(1000.0, 9000.0)] * 200,
        slot_s=1.0,
        speed_m_s=(0.0, 100.0),
        mean_speed_m_s=10.0,
        seed=5,
    )
    leg = np.diff(positions(trace)[..., :2], axis=1)
    speed = np.linalg.norm(leg, axis=2)
    heading = np.unwrap(np.arctan2(leg[..., 1], leg[..., 0]), axis=1)
    inside = (np.abs(radius_m(trace) - 5000) < 3900).all(axis=1)
    assert inside.sum() > 50
    for value, mean, deviation in ((speed, 10.0, 1.0), (heading, None, 0.5)):
        kept = value[inside]
        centred = kept - (kept.mean(axis=1, keepdims=True) if mean is None else mean)
        memory = (centred[:, 1:] * centred[:, :-1]).mean() / np.square(centred).mean()
        assert memory == pytest.approx(0.85, abs=0.02)
        assert centred.std() == pytest.approx(deviation, rel=0.05)
