# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed trace --radio`: a scenario's rates under ns-3's LTE and Wi-Fi."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warm
from small_scenario import TEXT, TREE

from ns3_scenarios.radio import Air, LteSettings, WifiSettings, simulate_lte, simulate_wifi
from ns3_scenarios.trace import ChannelTrace, RateTrace, load_trace
from orchestrator.engine.plan import Allocation
from orchestrator.engine.wifi import SCHEMES, Wifi
from orchestrator.rounds.ns3_radio import cell_of, described, rate_trace, settings_of
from orchestrator.scenario.loading import validate
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.unused import _log_once
from testbed.core.errors import InputError

GAIN = np.repeat([[1e-11], [1e-12], [1e-13]], 4, axis=1)
POSITION_M = np.repeat(np.array([[[150.0, 0, 30]], [[0, 200, 30]], [[250, 0, 30]]]), 4, axis=1)


def scenario(**keys: Any) -> Scenario:
    return validate(TREE | {"seed": 5} | keys, "test")


def test_the_rates_are_those_of_the_scenarios_powers_noise_and_gains() -> None:
    given = scenario(radio={"noise_dbm_per_mhz": -104}, base_station={"tx_power_w": 2})
    channel = ChannelTrace(GAIN, 0.1, gain_down=GAIN / 2)
    rates, made = rate_trace(given, channel, LteSettings(resource_blocks=25))
    air = Air(GAIN, GAIN / 2, 4, 0.1, np.array([1, 0.4, 0.1]), 2.0, -164.0, 5)
    expected = simulate_lte(air, LteSettings(resource_blocks=25))
    assert rates.uplink_bps.tobytes() == expected.bps[0].tobytes()
    assert rates.downlink_bps.tobytes() == expected.bps[1].tobytes()
    assert made.mcs.tobytes() == expected.mcs.tobytes()
    assert len(set(made.mcs[0, :, 0])) > 1
    assert (rates.slot_s, rates.seed, rates.downlink_is) == (0.1, 5, "link")
    assert json.loads(rates.scenario or "")["name"] == "small"


def test_positions_are_seen_from_the_access_point_whose_power_is_wifis(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _log_once.cache_clear()
    given = scenario(base_station={"position_m": [100, 0, 30]})
    channel = ChannelTrace(GAIN * 1e3, 0.1, position_m=POSITION_M)
    place = POSITION_M - np.array([100.0, 0, 30])

    def expected(power_w: float) -> bytes:
        powers = np.array([1, 0.4, 0.1])
        air = Air(GAIN * 1e3, GAIN * 1e3, 4, 0.1, powers, power_w, -174.0, 5, place, 2e9)
        return simulate_wifi(air, WifiSettings("ac", 40)).bps.tobytes()

    said = []
    for power_w, asked in ((1.0, None), (40.0, 40.0)):
        caplog.clear()
        rates, made = rate_trace(given, channel, WifiSettings("ac", 40), asked)
        assert made.bps.tobytes() == expected(power_w)
        assert rates.position_m is not None
        assert rates.position_m.tobytes() == POSITION_M.tobytes()
        said.append([line for line in caplog.messages if "access point sends" in line])
    assert said[0] == [
        "the access point sends with 1 W; base_station.tx_power_w, 40 W, is more than Wi-Fi may "
        "send with"
    ]
    assert said[1] == []


def test_a_weak_access_point_keeps_its_power() -> None:
    given = scenario(base_station={"tx_power_w": 0.1})
    channel = ChannelTrace(GAIN * 1e3, 0.1, position_m=POSITION_M)
    first, _ = rate_trace(given, channel, WifiSettings())
    second, _ = rate_trace(given, channel, WifiSettings(), 0.1)
    assert first.downlink_bps.tobytes() == second.downlink_bps.tobytes()


def test_uavs_without_packets_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    gain = GAIN.copy()
    gain[2] = 0
    rates, _ = rate_trace(scenario(), ChannelTrace(gain, 0.1), LteSettings())
    assert (rates.uplink_bps[2] == 0).all()
    (line,) = caplog.messages
    assert line.startswith("UAV 3: nothing arrived in the uplink and the downlink: its channel")


@pytest.mark.parametrize(
    ("channel", "radio", "says"),
    [
        (RateTrace(GAIN, GAIN, 0.1), LteSettings(), "`trace`: has rates; a radio of ns-3 needs"),
        (ChannelTrace(GAIN, 0.1), WifiSettings(), "`trace`: has no positions"),
        (ChannelTrace(GAIN, 0.1), LteSettings(7), "resource_blocks must be one of 6, 15"),
    ],
)
def test_channels_and_settings_that_do_not_do_are_refused(
    channel: Any, radio: Any, says: str
) -> None:
    with pytest.raises(InputError, match=f"^{says}"):
        rate_trace(scenario(), channel, radio)


def test_the_cell_is_that_of_the_scenario(caplog: pytest.LogCaptureFixture) -> None:
    def cell(**radio: object) -> LteSettings:
        tree = {"uavs": {"tx_power_w": [1.0]}, "radio": radio}
        return cell_of(validate(tree, "test"))

    lte = {"noise_figure_db": 5, "interference_margin_db": 6, "antenna_gain_db": 7}
    ten = {"uplink_bandwidth_hz": 10e6, "downlink_bandwidth_hz": 10e6}
    assert cell(lte=lte, **ten) == LteSettings(50, 5, 6, 7)
    assert not caplog.records
    assert cell(uplink_bandwidth_hz=2e6, downlink_bandwidth_hz=2e6) == LteSettings(100)
    assert "2e+06 Hz, is no bandwidth of LTE" in caplog.text
    with pytest.raises(InputError, match="downlink_bandwidth_hz: must be that of the uplink"):
        cell(uplink_bandwidth_hz=10e6)
    for name, value in (("layers", 2), ("highest_modulation", "256QAM"), ("highest_snr_db", 30)):
        with pytest.raises(InputError, match=rf"radio\.lte\.{name}: must be .* for ns-3's LTE"):
            cell(lte={name: value})


def test_shares_are_numbers_of_resource_blocks_as_in_the_model() -> None:
    def cell(beta: object, **keys: object) -> LteSettings:
        radio = {"lte": {"scheduler": "shares"}}
        tree = {"uavs": {"tx_power_w": [1.0] * 3}, "radio": radio, "allocation": {"beta": beta}}
        return cell_of(validate(tree | keys, "test"))

    # 0.29 is a little less in binary.
    both = cell([0.29, 0.37, 0.34], paradigm="sfl-pp")
    assert (both.uplink_blocks, both.downlink_blocks) == ((29, 37, 34), (29, 37, 34))
    in_turns = cell("equal", paradigm="cpsfl")
    assert (in_turns.uplink_blocks, in_turns.downlink_blocks) == ((33, 33, 33), None)
    with pytest.raises(
        InputError, match=r"^allocation\.beta: must be at least 0\.01, one .* UAV 2"
    ):
        cell([0.595, 0.005, 0.4])


def test_a_cell_whose_scheduler_orders_reads_priorities() -> None:
    tree = {
        "uavs": {"tx_power_w": [1.0]},
        "radio": {"access": "lte", "lte": {"downlink_order": "mac"}},
        "emulation": {"air": "ns3"},
    }
    assert cell_of(validate(tree, "test")).priority_by_dscp
    assert not cell_of(validate({"uavs": {"tx_power_w": [1.0]}}, "test")).priority_by_dscp


def test_the_access_point_is_that_of_the_scenario_unless_an_option_differs() -> None:
    wifi = {"standard": "ac", "width_mhz": 80, "rts": True}
    losses = {"noise_figure_db": 5, "antenna_gain_db": 7}
    tree = {"uavs": {"tx_power_w": [1.0]}, "radio": {"wifi": wifi | losses}}
    given = validate(tree, "test")
    assert settings_of(given, "ns3-wifi") == WifiSettings("ac", 80, True, 5, 7)
    assert settings_of(given, "ns3-wifi", "ax", 20) == WifiSettings("ax", 20, True, 5, 7)
    plain = validate({"uavs": {"tx_power_w": [1.0]}}, "test")
    assert settings_of(plain, "ns3-wifi") == WifiSettings()
    assert settings_of(plain, "ns3-wifi", rts=True) == WifiSettings(rts=True)


def test_the_model_of_wifi_changes_its_schemes_where_ns3_does() -> None:
    """0.4 dB above and below the least signal-to-noise ratio of each scheme, one downlink."""
    wifi = {"standard": "ax", "noise_figure_db": 20}
    given = validate(
        {
            "uavs": {"tx_power_w": [1.0]},
            "radio": {"access": "wifi", "wifi": wifi},
            "emulation": {"mtu": 1400},
        },
        "test",
    )
    least_db = np.array([least for *_, least in SCHEMES if least > 4.5])
    snr_db = np.sort(np.concatenate([least_db - 0.4, least_db + 0.4]))
    gain = 10 ** ((snr_db - 101 + 20 - 30) / 10)[None]
    slots = len(snr_db)
    place = np.tile([50.0, 0.0, 0.0], (1, slots, 1))
    air = Air(gain, gain, slots, 0.5, np.ones(1), 1.0, position_m=place, way="down")
    settings = settings_of(given, "ns3-wifi")
    assert isinstance(settings, WifiSettings)
    theirs = simulate_wifi(air, settings).bps[1]
    one = Allocation(1, np.ones(1), np.ones(1), np.ones(1))
    ours = Wifi.of(given).link_rates(one, gain, in_turns=False).gradient
    assert len(np.unique(ours)) == 11
    assert theirs == pytest.approx(ours, rel=0.04)


def test_the_power_of_the_access_point_may_be_a_key() -> None:
    given = scenario(radio={"wifi": {"access_point_power_w": 0.1}})
    channel = ChannelTrace(GAIN * 1e3, 0.1, position_m=POSITION_M)
    first, _ = rate_trace(given, channel, WifiSettings())
    second, _ = rate_trace(scenario(), channel, WifiSettings(), 0.1)
    assert first.downlink_bps.tobytes() == second.downlink_bps.tobytes()


def test_fading_is_part_of_the_gains() -> None:
    """Faded to nothing in half of each slot, a link carries about half."""
    gain = np.full((3, 4), 1e-9)
    fading = np.ones((2, 3, 4, 100), np.float32)
    fading[0, ..., 50:] = 1e-9
    channel = ChannelTrace(gain, 0.1, fading=fading)
    rates, _ = rate_trace(scenario(), channel, LteSettings())
    full, _ = rate_trace(scenario(), ChannelTrace(gain, 0.1), LteSettings())
    assert rates.uplink_bps.mean() == pytest.approx(0.5 * full.uplink_bps.mean(), rel=0.3)
    assert rates.downlink_bps.mean() == pytest.approx(full.downlink_bps.mean(), rel=0.05)


def test_rates_in_one_line() -> None:
    up = np.array([[1e6, 3e6], [4e6, 4e6], [0.5e6, 0.5e6]])
    assert described(RateTrace(up, 2 * up, 0.1)) == (
        "uplink 6.5 Mbit/s in total, 0.5 to 4 per UAV; downlink 13 Mbit/s in total, 1 to 8 per "
        "UAV; valid only while all UAVs have a backlog in both directions"
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "s.yaml").write_text(TEXT)
    np.savez(tmp_path / "g.npz", gain=GAIN, slot_s=0.1)
    np.savez(tmp_path / "p.npz", gain=GAIN * 1e3, position=POSITION_M, slot_s=0.1)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "total_mbps"),
    [
        ("--radio ns3-lte", 60),
        ("--radio ns3-lte --trace g.npz", 40),
        ("--radio ns3-wifi --trace p.npz --wifi-standard ax --wifi-width-mhz 80 --rts", 100),
    ],
)
def test_the_command_writes_a_trace_of_rates(folder: Path, words: str, total_mbps: float) -> None:
    done = warm.run(*f"trace s.yaml --slots 3 --out t.npz {words}".split(), cwd=folder)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith("t.npz: uplink ")
    assert line.endswith("valid only while all UAVs have a backlog in both directions")
    made = load_trace(folder / "t.npz")
    assert isinstance(made, RateTrace)
    assert (made.uavs, made.slots, made.downlink_is) == (3, 3, "link")
    assert (made.position_m is None) == ("g.npz" in words)
    total = (made.uplink_bps + made.downlink_bps).mean(axis=1).sum() / 1e6
    assert total_mbps < total < 600
    if "wifi" in words:
        assert "the access point sends with 1 W" in done.stderr
    predicted = warm.run(*["predict", "s.yaml", "--trace", "t.npz", "--rounds", "1"], cwd=folder)
    assert "backlog" not in predicted.stderr
    assert "uplink" in predicted.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--radio lte", "--radio: must be one of ns3-lte, ns3-nr, ns3-wifi, not 'lte'"),
        ("--radio ns3-lte --trace g.npz --slots 5", "--slots: g.npz has 4 slots"),
        ("--radio ns3-wifi --trace g.npz", "--trace: has no positions; UAVs with Wi-Fi hear"),
        ("--radio ns3-wifi --wifi-standard be", "--wifi-standard: must be one of n, ac, ax, not"),
        ("--radio ns3-wifi --wifi-width-mhz 80", "--wifi-width-mhz: must be one of 20, 40 for"),
        ("--radio ns3-wifi --wifi-ap-w 0", "--wifi-ap-w: must be above 0 and at most 100"),
        ("--radio ns3-wifi --wifi-ap-w nan", "--wifi-ap-w: must be above 0 and at most 100"),
        ("--radio ns3-wifi --wifi-ap-w 101", "--wifi-ap-w: must be above 0 and at most 100"),
        ("--radio ns3-lte --rts", "--rts: needs --radio ns3-wifi"),
    ],
)
def test_the_command_refuses_what_cannot_be(folder: Path, words: str, says: str) -> None:
    done = warm.run(*f"trace s.yaml --slots 2 --out t.npz {words}".split(), cwd=folder)
    assert done.returncode == 2
    line = done.stderr.splitlines()[-1]
    assert line.startswith(f"testbed: {says}")
    assert not (folder / "t.npz").exists()
