# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a scenario says of delay, jitter and loss, and what becomes of it."""

from typing import Any

import pytest

from orchestrator.engine import links as module
from orchestrator.engine.links import impairments_of, shape_of, transport_settings_of
from orchestrator.scenario.loading import validate
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.impairment import Losses

UAVS = {"tx_power_w": [1.0, 0.4]}


def scenario(links: dict[str, Any], **sections: Any) -> Scenario:
    return validate({"uavs": UAVS, "links": links, **sections}, "test")


def test_a_number_holds_for_all_links_and_both_directions() -> None:
    up, down = impairments_of(scenario({"one_way_delay_s": 0.01, "loss": 0.02}), dilation=3.0)
    assert [way.delay_s for way in (*up, *down)] == [0.03] * 4
    assert {way.losses for way in (*up, *down)} == {Losses(0.0, 1.0, 0.02, 0.0)}
    assert len({way.seed for way in (*up, *down)}) == 4


def test_lists_and_directions_part_links() -> None:
    burst = {"model": "gilbert-elliott", "good_to_bad": 0.1, "bad_to_good": 0.4}
    up, down = impairments_of(
        scenario(
            {
                "one_way_delay_s": {"up": [0.01, 0.02], "down": 0.005},
                "jitter_s": [0.001, 0.0],
                "loss": {"up": burst, "down": {"model": "independent", "probability": [0.0, 0.3]}},
            }
        )
    )
    assert [(way.delay_s, way.jitter_s) for way in up] == [(0.01, 0.001), (0.02, 0.0)]
    assert [way.delay_s for way in down] == [0.005, 0.005]
    assert [way.losses for way in up] == [Losses(0.1, 0.4, 0.0, 1.0)] * 2
    assert [way.losses for way in down] == [None, Losses(0.0, 1.0, 0.3, 0.0)]
    assert up[0].losses is not None
    assert up[0].losses.mean == pytest.approx(0.2)


def test_seeds_follow_the_scenario() -> None:
    one, other = (impairments_of(scenario({"loss": 0.1}, seed=seed)) for seed in (1, 2))
    seeds = {way.seed for ways in (*one, *other) for way in ways}
    assert len(seeds) == 8


def test_packets_are_cut_only_where_frames_are_treated_one_by_one() -> None:
    assert shape_of(scenario({"loss": 0.1})).single_frames
    overtaking = {"one_way_delay_s": 0.1, "jitter_s": 0.01, "reordering": True}
    assert shape_of(scenario(overtaking)).single_frames
    assert not shape_of(scenario(overtaking | {"reordering": False})).single_frames
    assert not shape_of(scenario({"one_way_delay_s": 0.1})).single_frames


def test_frames_overtake_only_where_it_is_asked_for() -> None:
    jitter = {"one_way_delay_s": 0.1, "jitter_s": {"up": 0.01}}
    for asked in (False, True):
        ways = impairments_of(scenario(jitter | {"reordering": asked}))
        assert {each.reorders for way in ways for each in way} == {asked}
    assert "reordering" not in scenario(jitter).model_dump()["links"]


def test_a_scenario_without_air_is_written_as_before() -> None:
    plain = scenario({})
    assert "links" not in plain.model_dump()
    assert not {"loss_deviation", "late_frames"} & plain.model_dump()["emulation"]["limits"].keys()
    lossy = scenario({"loss": {"up": 0.1}})
    assert Scenario.model_validate(lossy.model_dump()).model_dump() == lossy.model_dump()


def test_queue_and_marks_reach_the_links() -> None:
    shape = shape_of(scenario({"queue": "pie", "ecn": True}))
    assert (shape.queue, shape.ecn, shape.impaired) == ("pie", True, False)
    assert shape_of(scenario({})).queue == "fifo"


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ({"loss": 1.0}, "links.loss: must be below 1"),
        ({"loss": [0.1, -1]}, "links.loss.1: must be at least 0"),
        ({"loss": [0.1]}, "links.loss: must have one value per UAV: 2, not 1"),
        ({"loss": {"up": [0.1] * 3}}, "links.loss.up: must have one value per UAV: 2, not 3"),
        ({"loss": {"upp": 0.1}}, "links.loss.upp: no such key; did you mean 'up'?"),
        (
            {"loss": {"model": "markov"}},
            "links.loss.model: must be one of 'independent', 'gilbert-elliott', 'snr', 'trace', "
            "not 'markov'",
        ),
        (
            {"loss": {"model": "gilbert-elliott", "good_to_bad": 0.1}},
            "links.loss.bad_to_good: is missing",
        ),
        ({"one_way_delay_s": "far"}, "links.one_way_delay_s: must be a number"),
        ({"one_way_delay_s": 11}, "links.one_way_delay_s: must be at most"),
        ({"queue": "codel"}, "links.queue: must be 'fifo', 'fq_codel', 'pie' or 'red'"),
        ({"loss": {"model": "snr"}}, "links.loss.threshold_db: give either this or table"),
        (
            {"loss": {"up": {"model": "snr", "table": [[3, 0.1], [1, 0.2]]}}},
            "links.loss.up.table: its ratios must increase",
        ),
        (
            {"loss": {"model": "snr", "threshold_db": 3, "width_db": 0}},
            "links.loss.width_db: must be above 0",
        ),
        (
            {"one_way_delay_s": {"model": "distance", "base_s": -1}},
            "links.one_way_delay_s.base_s: must be at least 0",
        ),
        (
            {"one_way_delay_s": {"model": "snr"}},
            "links.one_way_delay_s.model: must be one of 'distance', 'trace', not 'snr'",
        ),
        ({"jitter_s": {"model": "distance"}}, "links.jitter_s.model: must be 'trace'"),
        ({"jitter_s": 0.1}, "links.jitter_s: must be 0 where links.one_way_delay_s is 0"),
        (
            {"one_way_delay_s": 0.1, "reordering": True},
            "links.reordering: must be false where links.",
        ),
    ],
)
def test_what_is_wrong_is_named(links: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        scenario(links)
    assert str(refused.value).startswith(f"test: {message}")


@pytest.mark.parametrize(
    ("emulation", "message"),
    [
        ({"connection": "per-transfer"}, "emulation.connection: must be 'kept' where emulation.tr"),
        ({"nagle": True}, "emulation.nagle: must be false where emulation.transport is 'quic'"),
        ({"initial_window": 4}, "emulation.initial_window: must be absent where emulation"),
        ({"rate_counts": "payload"}, "emulation.rate_counts: must be 'frame' where emulation"),
        ({"congestion_control": "bbr"}, "emulation.congestion_control: must be 'cubic' or 'reno'"),
        ({"mtu": 1227}, "emulation.mtu: must be at least 1228 where emulation.tran"),
    ],
)
def test_what_quic_cannot_do_is_named(emulation: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        scenario({}, emulation={"transport": "quic", **emulation})
    assert str(refused.value).startswith(f"test: {message}")


def test_quic_knows_no_marks() -> None:
    with pytest.raises(InputError, match=r"links\.ecn: must be false where emulation\.transport"):
        scenario({"ecn": True, "queue": "red"}, emulation={"transport": "quic"})


def test_secrets_are_drawn_as_such_before_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """In virtual time, what was drawn before shows in none of them."""
    state: list[str] = []
    monkeypatch.setattr(module.inside, "draw_as", state.append)
    monkeypatch.setattr(module.secrets, "token_hex", lambda size: "".join(state) * size)
    settings = transport_settings_of(scenario({}), 1.0, 1.0)
    assert {each.token for each in settings} == {"secrets" * module.TOKEN_BYTES}
