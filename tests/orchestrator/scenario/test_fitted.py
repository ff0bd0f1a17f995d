# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`radio.channel: fitted` and `log-distance`: how fits are read, what is refused, what is made."""

import json
import logging
from copy import deepcopy
from pathlib import Path
from typing import Any

import fits
import numpy as np
import pytest
import yaml
from small_campaign import write_campaign

import orchestrator as tb
from ns3_scenarios.aerial import free_space_db
from ns3_scenarios.trace import ChannelTrace, load_trace
from orchestrator.campaigning.spec import cells, load_campaign, to_yaml
from orchestrator.records.manifest import plugins_of
from orchestrator.rounds.ns3_radio import air_of, settings_of, slot_of
from orchestrator.scenario.channel import (
    _known,
    _log_once,
    channel_key,
    flown,
    mean_loss,
    ns3_source,
    replay,
)
from orchestrator.scenario.loading import load, validate
from orchestrator.scenario.unused import replaced_by
from orchestrator.studies.validation.space import at, load_space
from testbed.core.errors import InputError

UAVS = {"count": 3, "height_m": 40, "tx_power_w": 0.5}
BS_M = np.array([0.0, 0.0, 30.0])


def tree_with(fit: dict[str, Any] | None = None, **radio: Any) -> dict[str, Any]:
    given = {"channel": "fitted", "fitted": fits.channel() if fit is None else fit}
    return {"uavs": dict(UAVS), "radio": {**given, **radio}}


def made(scenario: Any, slots: int = 30) -> ChannelTrace:
    with ns3_source(scenario) as source:
        trace = source.trace(slots)
    assert isinstance(trace, ChannelTrace)
    return trace


def offsets_only(**keys: Any) -> dict[str, Any]:
    """A fit in which nothing is random."""
    way = {"shadowing_db": 0.0, "decorrelation_m": 30.0}
    ways = {"up": way | {"offset_db": -12.0}, "down": way | {"offset_db": -9.0}}
    return fits.channel(**(ways | keys))


def scenario_file(folder: Path, fitted: str = "FIT.json") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "scenario.yaml"
    tree = {"uavs": UAVS, "radio": {"channel": "fitted", "fitted": fitted}}
    path.write_text(yaml.safe_dump(tree))
    return path


# --- reading -------------------------------------------------------------------------------------


def test_a_path_is_relative_to_the_scenario_and_its_fit_becomes_part_of_it(
    tmp_path: Path, monkeypatch: Any
) -> None:
    path = scenario_file(tmp_path / "here")
    fit = fits.write_fit(tmp_path / "here" / "FIT.json")
    monkeypatch.chdir(tmp_path)
    scenario = load(path)
    fit.unlink()
    assert scenario.radio.fitted is not None
    assert scenario.radio.fitted.up.offset_db == -12
    assert scenario.radio.fitted.down.scatter_db == 0
    again = validate(json.loads(scenario.model_dump_json()), "test")
    assert again == scenario
    assert "fitted" not in validate({"uavs": UAVS}, "test").model_dump()["radio"]


def test_an_override_is_relative_to_the_working_directory(tmp_path: Path, monkeypatch: Any) -> None:
    fits.write_fit(tmp_path / "other.json", correlation=0.25)
    fits.write_fit(tmp_path / "FIT.json")
    monkeypatch.chdir(tmp_path)
    path = scenario_file(tmp_path / "there", "../FIT.json")
    assert load(path).radio.fitted.correlation == 0.6
    found = [
        load(path, ["radio.fitted=other.json"]),
        load(path, ["radio={channel: fitted, fitted: other.json}"]),
        tb.load(path, ["radio.fitted=other.json"]),
        tb.load(path, {"radio.fitted": "other.json"}),
        tb.load(path, {"radio.fitted": tmp_path / "other.json"}),
        tb.load("quickstart", {"radio": {"channel": "fitted", "fitted": "other.json"}}),
    ]
    for scenario in found:
        assert scenario.radio.fitted is not None
        assert scenario.radio.fitted.correlation == 0.25


def test_a_campaign_and_a_space_name_fits_relative_to_their_own_folder(
    tmp_path: Path, monkeypatch: Any
) -> None:
    folder = tmp_path / "campaign"
    folder.mkdir()
    for part in (1, 2, 3):
        fits.write_fit(folder / f"fit{part}.json", correlation=part / 10)
    base = {"uavs": UAVS, "radio": {"channel": "fitted", "fitted": "fit1.json"}}
    path = {"radio.fitted": "fit2.json"}
    studies = {
        "base": {"axes": {}},
        "set": {"axes": {}, "set": path},
        "values": {"axes": {"fit": {"key": "radio.fitted", "values": ["fit2.json", "fit3.json"]}}},
        "named": {"axes": {"radio.fitted": ["fit3.json"]}},
        "points": {"axes": {"fit": {"points": {"b": path}}}},
    }
    file = write_campaign(folder, scenario=base, studies=studies, repeats=[1])
    monkeypatch.chdir(tmp_path)
    campaign = load_campaign(file)
    found = {
        (cell.study, *cell.axes.values()): cell.point.scenario.radio.fitted.correlation
        for cell in cells(campaign)
        if cell.point.scenario.radio.fitted is not None
    }
    assert found == {
        ("base",): 0.1,
        ("set",): 0.2,
        ("values", "fit2.json"): 0.2,
        ("values", "fit3.json"): 0.3,
        ("named", "fit3.json"): 0.3,
        ("points", "b"): 0.2,
    }
    written = tmp_path / "written.yaml"  # as a campaign's directory has it, without the fits
    written.write_text(to_yaml(campaign))
    assert cells(load_campaign(written)) == cells(campaign)

    space_file = folder / "space.yaml"
    space_file.write_text(yaml.safe_dump({"keys": {"radio.fitted": ["fit1.json", "fit3.json"]}}))
    scenario = cells(campaign)[0].point.scenario
    keys = load_space(space_file, scenario).keys_at(np.array([0.9]))
    assert at(scenario, keys, "test").radio.fitted.correlation == 0.3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "radio.fitted: {fit}: no such file"),
        ("{", "radio.fitted: {fit}: is not JSON (line 1, column 2)"),
        ("[]", "radio.fitted: {fit}: has no object 'channel'"),
        ('{"channel": null}', "radio.fitted: {fit}: has no channel: the flights give no gain"),
        ('{"link": {}}', "radio.fitted: {fit}: has no object 'channel'"),
        (
            {"up": fits.UP | {"offset_db": 201}},
            "radio.fitted: {fit}: channel.up.offset_db: must be",
        ),
        (
            {"up": fits.UP | {"offset_db": float("nan")}, "digest": 64 * "a"},
            "channel.up.offset_db: must be",
        ),
        ({"up": fits.UP | {"shadowing_db": -1}}, "channel.up.shadowing_db: must be"),
        ({"down": fits.DOWN | {"decorrelation_m": 0}}, "channel.down.decorrelation_m: must be"),
        ({"down": fits.DOWN | {"scatter_db": -1}}, "channel.down.scatter_db: must be"),
        ({"down": fits.DOWN | {"tilt": 1}}, "channel.down.tilt: no such key"),
        ({"down": {"offset_db": 1}}, "channel.down.shadowing_db: is missing"),
        ({"correlation": 1.1}, "channel.correlation: must be "),
        ({"carrier_hz": 0}, "channel.carrier_hz: must be"),
        ({"digest": "abc"}, "channel.digest: must consist of 64 hexa"),
        ({"digest": 64 * "a"}, "channel.digest: the channel was changed after the fit"),
        ({"models": []}, "channel.models: no such key; did you mean 'model'?"),
        ({"model": "fitted"}, "channel.model: 'fitted' is not one of rma-av"),
        ({"model": "rma"}, "channel.model: 'rma' is not one of rma-av"),
        ({"parameters": {"exponent": 9}}, "channel.parameters.exponent: must be a number from 0.5"),
        ({"model": "umi-av"}, "channel.parameters: 'umi-av' has no parameters"),
        ({"parameters": {"n": 2}}, "channel.parameters.n: 'log-distance' has no such parameter"),
    ],
)
def test_a_file_that_is_no_fit_is_refused_in_one_line(tmp_path: Path, text: Any, says: str) -> None:
    fit = tmp_path / "FIT.json"
    if isinstance(text, dict):
        fits.write_fit(fit, **text)
    elif text is not None:
        fit.write_text(text)
    with pytest.raises(InputError) as refused:
        load(scenario_file(tmp_path))
    assert says.format(fit=fit) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("radio", "says"),
    [
        ({"channel": "fitted"}, "radio.fitted: is missing; radio.channel 'fitted' needs a fit"),
        ({"fitted": fits.channel()}, "radio.fitted: needs radio.channel 'fitted', not 'rma-av'"),
        (tree_with(shadow_fading=True)["radio"], "radio.shadow_fading: 'fitted' has the line of"),
        (tree_with(line_of_sight="never")["radio"], "radio.line_of_sight: 'fitted' has the line"),
        (tree_with(parameters={"a": 1})["radio"], "radio.parameters: 'fitted' has no parameters"),
        (tree_with(fits.channel(correlation=-2))["radio"], "radio.fitted.correlation: must be"),
        (tree_with(fits.channel(model="x"))["radio"], "radio.fitted.model: 'x' is not one of"),
        ({"channel": "log-distance", "shadow_fading": True}, "'log-distance' models neither"),
        (
            {"channel": "log-distance", "parameters": {"exponent": "2"}},
            "radio.parameters.exponent: must be a number from 0.5 to 8, not '2'",
        ),
        ({"channel": "log-distance", "parameters": {"exponent": True}}, "must be a number"),
        ({"channel": "log-distance", "parameters": {"exponent": 0.4}}, "must be a number"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line(radio: Any, says: str) -> None:
    with pytest.raises(InputError) as refused:
        validate({"uavs": UAVS, "radio": radio}, "test")
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_flight_must_be_within_what_the_fitted_model_holds_for() -> None:
    fit = fits.channel(model="umi-av", parameters={})
    tree = tree_with(fit)
    tree["uavs"] |= {"rings_m": [[10, 5000]]}
    with pytest.raises(InputError, match=r"rings_m: must lie within 4000 m .* 'umi-av'"):
        validate(tree, "test")
    assert _known(validate(tree_with(fit), "test")).farthest_m == 4000


# --- the channel ---------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [None, 2.7])
def test_log_distance_is_free_space_at_1_m_and_its_exponent_beyond(exponent: float | None) -> None:
    parameters = {} if exponent is None else {"exponent": exponent}
    radio = {"channel": "log-distance", "parameters": parameters, "carrier_hz": 3.3e9}
    scenario = validate({"uavs": UAVS, "radio": radio}, "test")
    trace = made(scenario)
    assert trace.position_m is not None
    far_m = np.linalg.norm(trace.position_m - BS_M, axis=2)
    loss_db = 20 * np.log10(4 * np.pi * 3.3e9 / 299_792_458) + 10 * (exponent or 2) * np.log10(
        far_m
    )
    assert -10 * np.log10(trace.gain) == pytest.approx(loss_db)
    assert trace.gain_down is None
    known = mean_loss(scenario)
    assert known is not None
    assert known(trace.position_m[..., 2], far_m) == pytest.approx(loss_db)
    if exponent is None:
        assert loss_db == pytest.approx(free_space_db(far_m, 3.3e9))


@pytest.mark.parametrize("model", ["rma-av", "free-space", "two-ray", "uma-av", "log-distance"])
def test_offsets_are_added_to_the_gain_of_the_model(model: str) -> None:
    fit = offsets_only(model=model, parameters={})
    scenario = validate(tree_with(fit), "test")
    trace, alone = (
        made(each)
        for each in (scenario, validate({"uavs": UAVS, "radio": {"channel": model}}, "test"))
    )
    assert np.array_equal(trace.position_m, alone.position_m)
    assert 10 * np.log10(trace.gain / alone.gain) == pytest.approx(np.full(alone.gain.shape, -12.0))
    assert trace.gain_down is not None
    assert 10 * np.log10(trace.gain_down / alone.gain) == pytest.approx(
        np.full(alone.gain.shape, -9.0)
    )
    known, of_model = (
        mean_loss(scenario),
        mean_loss(validate({"uavs": UAVS, "radio": {"channel": model}}, "test")),
    )
    assert known is not None
    assert of_model is not None
    at = np.array([40.0]), np.array([500.0])
    assert known(*at) - of_model(*at) == pytest.approx([10.5])


def test_another_carrier_moves_the_gain_by_that_of_the_model_and_is_said(caplog: Any) -> None:
    _log_once.cache_clear()
    near, far = (
        validate(tree_with(offsets_only(), carrier_hz=hertz), "test") for hertz in (2.08e9, 3.5e9)
    )
    with caplog.at_level(logging.INFO):
        as_measured = made(near)
    assert caplog.messages == []
    with caplog.at_level(logging.INFO):
        moved = made(far)
    (line,) = caplog.messages
    assert line == (
        "radio.carrier_hz: is 3500 MHz, but radio.fitted is from 2000 MHz; the difference in loss "
        "is that of 'log-distance'"
    )
    shift_db = 10 * np.log10(as_measured.gain / moved.gain)
    assert shift_db == pytest.approx(np.full(shift_db.shape, 20 * np.log10(3.5 / 2.08)))


def test_the_seed_and_the_fit_determine_the_channel() -> None:
    scenario = validate(tree_with(), "test")
    assert np.array_equal(made(scenario).gain, made(scenario).gain)
    other = made(scenario.reseeded(2))
    assert (made(scenario).gain != other.gain).all()
    trees = [tree_with(), tree_with(fits.channel(correlation=0.5)), tree_with(offsets_only())]
    keys = {channel_key(validate(tree, "test")) for tree in [*trees, deepcopy(trees[0])]}
    assert len(keys) == len(trees)


def test_given_flights_have_the_same_channel() -> None:
    scenario = validate(tree_with(), "test")
    trace = made(scenario)
    assert trace.position_m is not None
    again = flown(scenario, trace.position_m, trace.slot_s)
    assert isinstance(again, ChannelTrace)
    assert np.array_equal(again.gain, trace.gain[:, :30])
    assert again.gain_down is not None
    assert trace.gain_down is not None
    assert np.array_equal(again.gain_down, trace.gain_down[:, :30])
    heading = fits.UP | {"heading_db_per_m_s": 50.0, "shadowing_db": 0.0, "scatter_db": 0.0}
    still = validate(tree_with(fits.channel(up=heading)), "test")
    one = flown(still, trace.position_m[:, :1], trace.slot_s)
    assert isinstance(one, ChannelTrace)
    assert one.slots == 1
    far_m = np.linalg.norm(trace.position_m[:, 0] - BS_M, axis=1)
    level_db = np.degrees(np.arcsin(10 / far_m)) * 0.25 - 12 - free_space_db(1.0, 2e9)
    assert 10 * np.log10(one.gain[:, 0]) == pytest.approx(level_db - 22 * np.log10(far_m))


def test_each_base_station_has_both_directions_and_shadowing_of_its_own() -> None:
    there = [{"position_m": [600, 0, 30]}, {"position_m": [600, 0.001, 30]}]
    scenario = validate(tree_with(access="lte", cells=there), "test")
    trace = made(scenario)
    assert trace.gain_cells is not None
    assert trace.gain_cells_down is not None
    assert np.abs(10 * np.log10(trace.gain_cells[0] / trace.gain_cells[1])).max() > 0.1
    plain = made(validate(tree_with(offsets_only(), access="lte", cells=there), "test"))
    assert plain.gain_cells is not None
    assert plain.gain_cells_down is not None
    assert plain.position_m is not None
    far_m = np.linalg.norm(plain.position_m - np.array([600, 0, 30]), axis=2)
    model_db = -free_space_db(1.0, 2e9) - 22 * np.log10(far_m)
    assert 10 * np.log10(plain.gain_cells[0]) == pytest.approx(model_db - 12)
    assert 10 * np.log10(plain.gain_cells_down[0]) == pytest.approx(model_db - 9)
    # What a UAV receives decides on its cell, and what base stations receive on interference.
    up, down = plain.of_all_cells
    assert plain.served is not None
    assert np.array_equal(plain.served.cells[:, 0], down[:, :, 0].argmax(axis=0))
    settings = settings_of(scenario, "ns3-lte")
    air = air_of(scenario, plain, settings)
    for given, expected in zip(air.of_all_cells, (up, down), strict=True):
        assert np.array_equal(given, expected)
    for given, expected in zip(slot_of(scenario, plain, 3)[:2], (up, down), strict=True):
        assert np.array_equal(given, expected[:, :, 3:4])


def test_traces_without_gains_to_cells_get_those_of_the_fit(tmp_path: Path) -> None:
    there = [{"position_m": [600, 0, 30]}]
    scenario = validate(tree_with(access="lte", cells=there), "test")
    trace = made(scenario)
    own = ChannelTrace(trace.gain, trace.slot_s, trace.position_m, gain_down=trace.gain_down)
    replayed = replay(scenario, own).trace(30)
    assert isinstance(replayed, ChannelTrace)
    for name in ("gain_cells", "gain_cells_down"):
        assert np.array_equal(getattr(replayed, name), getattr(trace, name))
    trace.save(tmp_path / "trace.npz")
    read = load_trace(tmp_path / "trace.npz")
    assert isinstance(read, ChannelTrace)
    assert np.array_equal(read.gain_cells_down, trace.gain_cells_down)


def test_small_scale_fading_comes_on_top() -> None:
    scenario = validate(tree_with(fading="rayleigh"), "test")
    faded, plain = made(scenario), made(validate(tree_with(), "test"))
    assert faded.fading is not None
    assert np.array_equal(faded.gain, plain.gain)
    assert np.array_equal(faded.gain_down, plain.gain_down)


def test_a_trace_replaces_the_fit() -> None:
    scenario = validate(tree_with(), "test")
    given = ChannelTrace(np.full((3, 4), 1e-9), 0.1)
    assert {"radio.channel", "radio.fitted"} <= set(replaced_by(scenario, given))


def test_a_fitted_channel_names_no_plugin() -> None:
    assert plugins_of(validate(tree_with(), "test")) == {}


def test_rounds_are_predicted_on_it() -> None:
    scenario = validate(tree_with() | {"workload": {"compute": "none"}}, "test")
    assert tb.predict(scenario).rounds[0].latency_s > 0
