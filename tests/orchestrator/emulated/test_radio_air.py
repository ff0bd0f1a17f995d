# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""ns-3's radio as what carries frames: its settings, its channel, its calibration, refusals."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from packet_cases import small

from ns3_scenarios.trace import ChannelTrace, RateTrace, Replay, TwoWay, both_ways
from orchestrator.emulated import radio_calibration
from orchestrator.emulated.radio_air import CLEAR_GAIN, RadioAir, channel_of
from orchestrator.emulated.radio_calibration import RadioTrial
from orchestrator.emulated.rate_feed import RoundRates, SessionRates
from orchestrator.engine.plan import fixed_allocation, link_bytes, plan_round
from orchestrator.engine.radio import radio_access
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.combinations import check
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import ResolvedScenario
from testbed.control.messages import Probe
from testbed.core.errors import InputError
from testbed.network.injector import Samples
from testbed.network.shaping import Shape
from testbed.transport import wire
from testbed.transport.framing import Framing

RNG = np.random.default_rng(5)
UP, DOWN = 10 ** RNG.uniform(-11, -9, (2, 3, 8))
POSITION_M = RNG.uniform(100, 900, (3, 8, 3))
CELLS = 10 ** RNG.uniform(-12, -10, (2, 3, 8))
FADING = RNG.exponential(1, (2, 3, 8, 4)).astype(np.float32)


def scenario(
    access: str = "lte", emulation: dict[str, Any] | None = None, **top: Any
) -> ResolvedScenario:
    radio = {"access": access, **top.pop("radio", {})}
    if access == "lte":
        radio = {"uplink_bandwidth_hz": 5e6, "downlink_bandwidth_hz": 5e6} | radio
    made = small({"air": "ns3"} | (emulation or {}), radio=radio, **top)
    return made.resolved(made.emulation.dilation)


def trace(**fields: Any) -> ChannelTrace:
    return ChannelTrace(**({"gain": UP, "slot_s": 0.1, "gain_down": DOWN} | fields))


# --- the channel of slots ------------------------------------------------------------------------


def test_the_channel_is_by_slot_cell_uav_and_step() -> None:
    whole = trace(gain_cells=CELLS, fading=FADING, position_m=POSITION_M)
    up, down, position_m = channel_of(whole, whole.values, [(1.0, 2.0, 3.0)] * whole.uavs)
    assert up.shape == down.shape == (8, 3, 3, 4)
    slot, uav, step = 5, 2, 3
    for way, (found, gain) in enumerate(((up, UP), (down, DOWN))):
        faded = FADING[way, uav, slot, step]
        assert found[slot, 0, uav, step] == pytest.approx(gain[uav, slot] * faded)
        for cell in (0, 1):
            due = CELLS[cell, uav, slot] * faded
            assert found[slot, 1 + cell, uav, step] == pytest.approx(due)
    assert position_m.shape == (8, 3, 3)
    assert position_m[slot, uav].tolist() == (POSITION_M[uav, slot] - [1, 2, 3]).tolist()


def test_each_direction_has_its_own_gain_to_further_cells() -> None:
    whole = trace(gain_cells=CELLS, gain_cells_down=CELLS / 2)
    up, down = channel_of(whole, whole.values, None)
    assert down[:, 1:] == pytest.approx(up[:, 1:] / 2)
    assert up[5, 1, 2, 0] == CELLS[0, 2, 5]


def test_directions_have_the_same_gain_where_the_trace_says_nothing_else() -> None:
    same = ChannelTrace(UP, 0.1)
    up, down = channel_of(same, same.values, None)
    assert up.shape == (8, 1, 3, 1)
    assert up[:, 0, :, 0].tolist() == down[:, 0, :, 0].tolist() == UP.T.tolist()


def test_a_silenced_link_has_no_gain_to_any_cell() -> None:
    whole = trace(gain_cells=CELLS)
    values = np.stack([UP, DOWN])
    values[0, 1, 3] = 0.0
    values[1, 2, 4:6] = 0.0
    up, down = channel_of(whole, TwoWay(values), None)
    assert np.argwhere((up == 0).all(axis=(1, 3))).tolist() == [[3, 1]]
    assert np.argwhere((down == 0).all(axis=(1, 3))).tolist() == [[4, 2], [5, 2]]
    assert (up == 0).sum() == 3
    assert (down == 0).sum() == 6


# --- the radio of a scenario ---------------------------------------------------------------------


def of(made: ResolvedScenario, channel: Any, folder: Path) -> tuple[RadioAir, dict[str, Any]]:
    air = RadioAir.of(made, channel, folder)
    return air, json.loads(air.program.settings)


def test_the_program_gets_the_cell_the_log_and_the_clock(tmp_path: Path) -> None:
    made = scenario(emulation={"dilation": 4})
    air, settings = of(made, trace(), tmp_path)
    assert (settings["mode"], settings["radio"], settings["uavs"]) == ("live", "lte", 3)
    assert (settings["step_s"], settings["dilation"]) == (1e-3, 4)
    assert settings["log"] == str(tmp_path / "radio.bin")
    assert settings["slot_s"] == 0.1
    assert Path(air.program.argv[0]).name.startswith("ns3-radio")
    assert air.origin_m is None, "LTE's UAVs do not hear each other"
    assert air.program.first == tuple(np.concatenate([way.ravel() for way in air.clear]))
    assert air.typical.gain.tolist() == UP[:, 4:5].tolist()
    assert not air.missing


def test_wifi_has_positions_and_shorter_steps(tmp_path: Path) -> None:
    made = scenario("wifi")
    air, settings = of(made, trace(position_m=POSITION_M), tmp_path)
    assert (settings["step_s"], settings["radio"]) == (1e-4, "wifi")
    assert air.origin_m == [made.base_station.position_m] * made.uavs.count
    up, _, position_m = air.clear
    assert up.shape == (1, 1, 3, 1)
    assert position_m.shape == (1, 3, 3)
    assert len(air.program.first) == 3 + 3 + 9
    values = trace(position_m=POSITION_M)
    slots = air.channel(values, values.values, 2, 5)
    assert slots[0][:, 0, :, 0].tolist() == UP[:, 2:5].T.tolist()
    moved = POSITION_M[:, 2:5] - np.array(made.base_station.position_m)
    assert slots[2].tolist() == moved.transpose(1, 0, 2).tolist()


def test_slots_have_the_faults_of_their_values(tmp_path: Path) -> None:
    air, _ = of(scenario(), trace(), tmp_path)
    silent = np.stack([UP, DOWN])
    silent[:, 1, 6] = 0.0
    up, down = air.channel(trace(), TwoWay(silent), 5, 8)
    due_up, due_down = UP[:, 5:8].T.copy(), DOWN[:, 5:8].T.copy()
    due_up[1, 1] = due_down[1, 1] = 0
    assert up[:, 0, :, 0].tolist() == due_up.tolist()
    assert down[:, 0, :, 0].tolist() == due_down.tolist()


@pytest.mark.parametrize("access", ["lte", "wifi"])
@pytest.mark.parametrize("fading", [None, np.full((2, 3, 8, 2), [0.5, 1.5])])
def test_uavs_connect_on_a_channel_that_is_good_for_all(
    access: str, fading: Any, tmp_path: Path
) -> None:
    """Whatever the others have: strong ones keep their gain, and an outage becomes a gain."""
    gain, down = UP.copy(), DOWN.copy()
    gain[:, 0] = [1e-5, 1e-13, 0.0]
    down[:, 0] = [1e-14, 0.5, 1e-9]
    made = trace(gain=gain, gain_down=down, position_m=POSITION_M, fading=fading)
    air, _ = of(scenario(access), made, tmp_path)
    up, to_uavs = (way[0, 0].mean(axis=1) for way in air.clear[:2])
    np.testing.assert_allclose(up, [1e-5, CLEAR_GAIN, CLEAR_GAIN], rtol=1e-12)
    np.testing.assert_allclose(to_uavs, [CLEAR_GAIN, 0.5, 1e-9], rtol=1e-12)


def test_the_strongest_cell_stays_the_strongest(tmp_path: Path) -> None:
    cells = CELLS.copy()
    cells[:, :, 0] = [[1e-13, 1e-16, 0.0], [1e-14, 1e-17, 1e-12]]
    gain = UP.copy()
    gain[:, 0] = [1e-12, 1e-18, 1e-8]
    made = trace(gain=gain, gain_down=None, gain_cells=cells)
    more = [{"position_m": [500 * n, 0, 30]} for n in (1, 2)]
    air, settings = of(scenario(radio={"cells": more}), made, tmp_path)
    assert settings["cells"] == 3
    up, down = air.clear
    assert up.shape == (1, 3, 3, 1)
    for way in (up, down):
        strength = way[0, ..., 0]
        assert strength.argmax(axis=0).tolist() == [0, 1, 0]
        np.testing.assert_allclose(strength.max(axis=0)[:2], CLEAR_GAIN)
        assert strength.max(axis=0)[2] > CLEAR_GAIN
        np.testing.assert_allclose(strength[:, 0] / strength[0, 0], [1, 0.1, 0.01])


@pytest.mark.parametrize(
    ("made", "channel", "says"),
    [
        (scenario(), RateTrace(UP, DOWN, 0.1), "`trace`: has rates; a radio of ns-3 needs gains"),
        (scenario("wifi"), trace(), "position"),
        (scenario(uavs={"tx_power_w": [1.0] * 400}), ChannelTrace(np.full((400, 9), 1e-9), 0.1),
         r"^ns-3's LTE has at most \d+ UAVs per base station$"),
    ],
    ids=["rates", "no positions", "too many"],
)  # fmt: skip
def test_what_ns3_cannot_have_is_refused(
    made: ResolvedScenario, channel: Any, says: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=says) as refused:
        RadioAir.of(made, channel, tmp_path)
    assert "\n" not in str(refused.value)


# --- who gives the channel -----------------------------------------------------------------------


class Injector:
    """What an injector is given."""

    def __init__(self) -> None:
        self.given: list[tuple[int, Any, int]] = []

    def channel(self, first: int, *values: Any, warn_slots: int) -> None:
        self.given.append((first, values, warn_slots))


LONG = 10 ** np.random.default_rng(7).uniform(-10, -9, (3, 2000))


def long_channel(slots: int = 2000) -> Channel:
    return Channel.of(Replay(ChannelTrace(LONG[:, :slots], 0.1)))


def test_a_round_gives_the_channel_and_that_of_faults(tmp_path: Path) -> None:
    made, channel = scenario(), long_channel()
    air = RadioAir.of(made, channel.now, tmp_path)
    plan = plan_round(made, profile_of(made), fixed_allocation(made), link_bytes)
    rates = RoundRates(plan, radio_access(made, channel.trace(1)), channel, 7, None, air=air)
    rates.grow(40)
    injector: Any = Injector()
    rates.give(injector)

    def silenced(values: Any) -> Any:
        values = values.copy()
        values[1, 10:] = 0
        return values

    faults: Any = SimpleNamespace(silenced=silenced)
    rates.add_fault(faults)
    rates.give(injector)
    due = LONG[:, 7:40].T.copy()
    for (first, (up, down), warn_slots), silent_from in zip(injector.given, (33, 3), strict=True):
        due[silent_from:, 1] = 0
        assert (first, warn_slots) == (7, 20)
        assert up.shape == down.shape == (33, 1, 3, 1)
        assert up[:, 0, :, 0].tolist() == down[:, 0, :, 0].tolist() == due.tolist()


def session(air: RadioAir, slots: int = 2000, **links: Any) -> SessionRates:
    rates = SessionRates(scenario(links=links), long_channel(slots), Shape())
    rates.air = air
    return rates


def test_a_session_opens_with_the_clear_channel_and_is_given_the_rest(tmp_path: Path) -> None:
    air = RadioAir.of(scenario(), long_channel().now, tmp_path)
    rates = session(air)
    injector: Any = Injector()
    rates.open_up(injector)
    rates.lead_in(injector, 5)
    rates.follow(injector, 0.0)
    rates.follow(injector, 29.9)
    rates.follow(injector, 30.1)
    (opened, (up, _), _), (before, (lead, _), _), (then, (more, _), _) = injector.given
    assert [warn_slots for _, _, warn_slots in injector.given] == [0, 0, 0]
    assert (opened, before) == (0, -5)
    assert up.tolist() == air.clear[0].tolist()
    assert lead[:5, 0, :, 0].tolist() == [LONG[:, 0].tolist()] * 5, "as in the first slot"
    end = len(lead) - 5
    assert lead[5:, 0, :, 0].tolist() == LONG[:, :end].T.tolist()
    assert then == end
    assert more[:, 0, :, 0].tolist() == LONG[:, end : end + len(more)].T.tolist()
    assert rates.slots is None


def test_a_session_ends_with_its_trace_or_repeats_it(tmp_path: Path) -> None:
    air = RadioAir.of(scenario(), long_channel().now, tmp_path)
    injector: Any = Injector()
    ends = session(air, 30)
    ends.lead_in(injector, 2)
    assert ends.slots == 30
    ends.follow(injector, 2.9)
    ((first, (up, _), _),) = injector.given
    assert (first, len(up)) == (-2, 32)
    repeats = session(air, 30, at_trace_end="repeat")
    repeats.lead_in(injector, 0)
    first, (up, _), _ = injector.given[-1]
    assert (first, repeats.slots) == (0, None)
    slots = np.arange(len(up)) % 30
    assert up[:, 0, :, 0].tolist() == LONG[:, slots].T.tolist()


# --- the calibration -----------------------------------------------------------------------------

ALONE_BPS = np.array([[4e6, 1e6, 0.0], [20e6, 1000.0, 8e6]])


def trial(
    monkeypatch: pytest.MonkeyPatch, folder: Path, **emulation: Any
) -> tuple[RadioTrial, list[Any]]:
    """The trial of a radio that carries these rates alone; and how ns-3 was asked."""
    asked: list[Any] = []

    def simulate(air: Any, settings: Any, **options: Any) -> Any:
        asked.append((air, settings, options))
        swing = np.array([0.5, 1.0, 1.5] + [1.0] * 7)
        return SimpleNamespace(bps=ALONE_BPS[:, :, None] * swing)

    monkeypatch.setattr(radio_calibration, "simulated", simulate)
    made = scenario(emulation=emulation)
    radio = RadioAir.of(made, trace(fading=FADING), folder)
    found = RadioTrial.of(made, radio)
    assert found is not None
    return found, asked


def test_the_transfers_of_a_direction_are_simultaneous(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found, ((air, _, options),) = trial(monkeypatch, tmp_path, mtu=1400, dilation=2)
    assert options["datagram_bytes"] == 1400
    assert (air.slots, air.slot_s, air.steps) == (10, 0.1, 1), "a second, without fading"
    assert air.uplink_gain.tolist() == np.repeat(UP[:, 4:5], 10, axis=1).tolist()
    np.testing.assert_allclose(found.alone_bps, ALONE_BPS)
    segment_bytes = Framing(1400).segment_bytes

    def probe(client: int, upward: bool, start_s: float, segments: int) -> Probe:
        return Probe(client, upward, start_s, segments * segment_bytes - wire.HEADER_BYTES)

    assert found.probes == (  # For 1.6 s, in packets of 1400 B; a link without rate has none.
        probe(1, True, 0.0, 571),
        probe(2, True, 0.0, 143),
        probe(1, False, 2.0, 2857),
        probe(2, False, 2.0, 1),
        probe(3, False, 2.0, 1143),
    )
    assert found.lasts_s == 4.0 * 2
    for gain, due in zip(found.channel, (UP, DOWN), strict=True):
        assert gain.shape == (1, 1, 3, 4)
        assert (gain[0, 0] == due[:, 4:5]).all()


def test_a_uav_is_calibrated_in_a_slot_in_which_both_of_its_links_exist(tmp_path: Path) -> None:
    """Nearest to the middle, slot 4 of 8; UAV 2 has no uplink at all, UAV 3 never both at once."""
    up, down = UP.copy(), DOWN.copy()
    up[0, 3:6] = 0.0
    down[0, 2] = 0.0
    up[1] = 1e-18
    up[2, ::2] = 0.0
    down[2, 1::2] = 0.0
    air = RadioAir.of(scenario(), trace(gain=up, gain_down=down), tmp_path)
    assert [way[0, 0] for way in both_ways(air.typical.values)] == [UP[0, 6], DOWN[0, 6]]
    assert [way[1:].tolist() for way in both_ways(air.typical.values)] == [[[0.0], [0.0]]] * 2
    assert air.missing == [
        "UAV 2 has no uplink: it is not calibrated",
        "UAV 3 has no slot with an uplink and a downlink: it is not calibrated",
    ]


def test_wifi_has_no_calibration(tmp_path: Path) -> None:
    made = scenario("wifi")
    radio = RadioAir.of(made, trace(position_m=POSITION_M), tmp_path)
    assert RadioTrial.of(made, radio) is None


class Measuring(Injector):
    """An injector that is watched during a trial."""

    def __init__(self, samples: Any) -> None:
        super().__init__()
        self.taken, self.did = samples, list[Any]()

    def epoch(self, clock: Any, slot_s: float) -> None:
        self.did.append(("epoch", clock, slot_s))

    def samples(self) -> Any:
        self.did.append("samples")
        return self.taken

    def __getattr__(self, name: str) -> Callable[[], None]:
        return lambda: self.did.append(name)


def test_a_trial_sets_its_channel_for_as_long_as_it_lasts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found, _ = trial(monkeypatch, tmp_path, dilation=2)
    injector: Any = Measuring("samples")
    clock = found.begin(injector)
    ((first, (up, down), warn_slots),) = injector.given
    assert (first, warn_slots) == (0, 0)
    assert (len(up), len(down)) == (41, 41)
    assert (up == found.channel[0]).all()
    assert (clock.start_s, clock.dilation) == (0.0, 2)
    found.end(injector)
    assert injector.did == ["watch", ("epoch", clock, 0.1), "pause", "samples", "report"]
    assert found.samples == "samples"


def test_goodput_is_compared_with_ns3_alone_between_slow_start_and_the_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found, _ = trial(monkeypatch, tmp_path)
    slots = np.arange(41)
    sent = np.zeros((41, 3, 2), np.int64)
    # Uplinks as alone, after 0.5 s; the second is a tenth too slow.
    sent[:, 0, 0] = (slots - 3).clip(0) * 50_000
    sent[:, 1, 0] = (slots - 3).clip(0) * 11_250
    # Downlinks: from slot 20 on; what came before slot 25 or after slot 33 does not count.
    sent[:, 0, 1] = (slots - 24).clip(0, 10) * 200_000 + 77
    sent[:, 2, 1] = (slots - 20).clip(0) * 100_000
    fields: dict[str, Any] = dict.fromkeys(Samples.__dataclass_fields__, slots)
    found.samples = Samples(**fields | {"sent_bytes": sent})
    table = found.table([], scenario().emulation)
    assert table.columns.tolist() == [
        "client", "direction", "level", "rate_bps", "bytes", "start_s", "duration_s", "due_s",
        "error",
    ]  # fmt: skip
    assert table["direction"].tolist() == ["uplink"] * 2 + ["downlink"] * 3
    assert table["client"].tolist() == [1, 2, 1, 2, 3]
    assert table["start_s"].tolist() == pytest.approx([0.5, 0.5, 2.5, 2.5, 2.5])
    assert table["duration_s"].tolist() == pytest.approx([0.8] * 5)
    assert table["bytes"].tolist() == [400_000, 90_000, 1_600_000, 0, 800_000]
    assert table["rate_bps"].tolist() == pytest.approx([4e6, 1e6, 20e6, 1000.0, 8e6])
    # The cell carries 28,001 bits per TTI in the downlink, which is more than UAV 2 needs.
    due_s = [0.8, 0.72 + 1e-3, 0.64 + 28_001 / 20e6, 0.8, 0.8]
    assert table["due_s"].tolist() == pytest.approx(due_s)
    assert table["error"].tolist() == pytest.approx([0.8 / due - 1 for due in due_s])


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"radio": {"access": "shannon"}}, r"radio\.access: must be 'lte', 'nr' or 'wifi'"),
        ({"emulation": {"runtime": "docker"}}, r"emulation\.runtime: must be 'namespace'"),
        ({"emulation": {"placement": "spread"}}, r"emulation\.placement: must be absent"),
        ({"emulation": {"rate_counts": "payload"}}, r"emulation\.rate_counts: must be 'frame'"),
        ({"links": {"one_way_delay_s": 0.01}}, r"links\.one_way_delay_s: must be 0 "),
        ({"links": {"one_way_delay_s": {"up": 0.01, "down": 0}}}, r"links\.one_way_delay_s: "),
        ({"links": {"one_way_delay_s": 0.01, "jitter_s": 0.001}}, r"links\.\w+: must be 0 "),
        ({"links": {"loss": 0.01}}, r"links\.loss: must be 0 "),
        ({"links": {"loss": {"model": "trace"}}}, r"links\.loss: must be 0 "),
        ({"links": {"queue": "fq_codel"}}, r"links\.queue: must be 'fifo'"),
        ({"links": {"queue": "red", "ecn": True}}, r"links\.(queue|ecn): must be"),
        ({"links": {"ecn": True}}, r"links\.ecn: must be false"),
    ],
)
def test_what_ns3s_radio_does_not_have_is_refused(keys: dict[str, Any], says: str) -> None:
    keys = {"radio": {"access": "lte"}} | keys
    emulation = keys.pop("emulation", {})
    with pytest.raises(InputError) as refused:
        small({"air": "ns3"} | emulation, **keys)
    (line,) = str(refused.value).splitlines()
    assert re.search(says, line), line
    assert "where emulation.air is 'ns3'" in line


def test_links_play_one_cell_and_no_contention() -> None:
    cells = {"access": "lte", "cells": [{"position_m": [500, 0, 30]}]}
    for radio in ({"access": "wifi"}, cells):
        with pytest.raises(InputError, match=r"^emulation\.air: must be 'ns3' where radio"):
            check(small(radio=radio), "run")
        check(small({"air": "ns3"}, radio=radio), "run")
    check(small(radio={"access": "lte"}), "run")
