# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A channel grows and caches itself, and never more than its source has."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_scenario import TREE

import orchestrator
from ns3_scenarios.trace import ChannelTrace, Replay, TraceExhausted
from orchestrator.rounds.loop import EngineBackend, predict
from orchestrator.scenario.channel import FIRST_SLOTS, Channel, ns3_source
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import profile_of
from testbed.core.errors import InputError
from testbed.core.registry import MOBILITY

SLOT_S = 0.1


class Source:
    """Makes as many slots as it is asked for, and remembers that."""

    slot_s, uavs = SLOT_S, 2

    def __init__(self) -> None:
        self.asked: list[int] = []

    def trace(self, slots: int) -> ChannelTrace:
        self.asked.append(slots)
        gain = np.tile(np.arange(slots, dtype=float), (2, 1))
        return ChannelTrace(gain, SLOT_S, np.zeros((2, slots, 3)))


def test_what_is_there_is_not_asked_for_again() -> None:
    source = Source()
    channel = Channel(source)
    assert channel.now.slots == FIRST_SLOTS
    assert channel.trace(10) is channel.now
    assert channel.grow().slots == 2 * FIRST_SLOTS
    assert channel.trace(FIRST_SLOTS + 1) is channel.now
    assert source.asked == [FIRST_SLOTS, 2 * FIRST_SLOTS]


def test_what_is_known_ends_with_the_slot_of_the_moment() -> None:
    channel = Channel(Source())
    for time_s, slots in ((0.0, 1), (0.099, 1), (0.1, 2), (0.3, 4), (500.0, 5001)):
        known = channel.until(time_s)
        assert known.gain[0].tolist() == list(range(slots))
        assert known.position_m is not None
        assert known.position_m.shape == (2, slots, 3)


def test_a_trace_that_ends_is_given_whole_and_then_ends() -> None:
    whole = ChannelTrace(np.ones((1, 30)), SLOT_S)
    channel = Channel(Replay(whole))
    assert channel.now is channel.trace(1000) is whole
    with pytest.raises(TraceExhausted) as end:
        channel.grow()
    assert end.value.available == 30
    with pytest.raises(TraceExhausted):
        channel.until(3.05)
    assert channel.until(2.95).slots == 30


def test_a_channel_is_shared_not_wrapped() -> None:
    channel = Channel(Source())
    assert Channel.of(channel) is channel
    assert Channel.of(Source()) is not channel


def test_a_mobility_model_may_react_and_is_then_asked_as_late_as_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks at a file, which the session writes between the slots."""
    (tmp_path / "x.txt").write_text("500")

    def stick(space, file):
        while True:
            yield [[float(Path(file).read_text()), 0.0, 20.0]]

    monkeypatch.setitem(MOBILITY.built_in, "stick", stick)
    tree = {
        "name": "stick",
        "uavs": {"count": 1, "tx_power_w": 0.1},
        "mobility": {
            "model": "stick",
            "parameters": {"file": str(tmp_path / "x.txt")},
            "update_s": 0.1,
        },
    }
    scenario = validate(tree, "stick")
    with ns3_source(scenario) as source:
        assert Channel(source).horizon is None
        assert Channel(source).now.slots == FIRST_SLOTS
    stick.horizon = 1
    with pytest.raises(
        InputError, match=r"mobility.model: 'stick' reacts .* and there is none here"
    ):
        ns3_source(scenario)
    with ns3_source(scenario, by_slot=True) as source:
        channel = Channel(source)
        for slot in range(20):
            if slot == 10:
                (tmp_path / "x.txt").write_text("300")
            channel.trace(slot + 1)
        assert channel.now.position_m is not None
        x_m = channel.now.position_m[0, :, 0]
    # The update of 1.1 s is that for which it is asked at 1 s.
    assert x_m.tolist() == [500.0] * 11 + [300.0] * 9
    stick.horizon = 5
    with pytest.raises(InputError, match="has a `horizon` of 5; it must be 1 or None"):
        ns3_source(scenario, by_slot=True)


@pytest.mark.parametrize("more", [{}, {"fading": "rayleigh", "fading_block": "slot"}])
def test_forgotten_slots_change_no_prediction(
    more: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeline of a channel that forgets is that of one that is given whole."""
    monkeypatch.setattr(orchestrator.scenario.channel, "FIRST_SLOTS", 32)
    scenario = validate(TREE | {"rounds": 40, "radio": TREE.get("radio", {}) | more}, "test")
    made: list[Channel] = []
    init = Channel.__init__
    monkeypatch.setattr(
        Channel, "__init__", lambda self, source: (made.append(self), init(self, source))[1]
    )
    ahead: list[int] = []
    play_ahead = EngineBackend.play_ahead

    def watched(backend: EngineBackend, *given: Any) -> Any:
        found = play_ahead(backend, *given)
        ahead.append(len(found) if made[0].now.begin else 0)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(EngineBackend, "play_ahead", watched)
        forgotten = orchestrator.predict(scenario)
    with ns3_source(scenario) as source:
        whole = orchestrator.predict(scenario, source.trace(made[0].now.end))
    assert made[0].now.begin > 0
    assert sum(ahead) > 10  # also after slots were forgotten, rounds are predicted together
    assert forgotten.to_json() == whole.to_json()


def test_a_source_is_predicted_from_several_times_unless_it_may_forget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As campaigns, cross-checks and runs do, whose predictions share one source."""
    monkeypatch.setattr(orchestrator.scenario.channel, "FIRST_SLOTS", 32)
    scenario = validate(TREE | {"rounds": 40}, "test")
    with ns3_source(scenario) as source:
        first, again = (predict(scenario, source, profile_of(scenario)) for _ in range(2))
        assert first.to_json() == again.to_json()
    with ns3_source(scenario) as source:
        assert predict(scenario, source, profile_of(scenario), forget=True).to_json() == (
            first.to_json()
        )
        with pytest.raises(ValueError, match="the channel has forgotten its first slots"):
            predict(scenario, source, profile_of(scenario))
