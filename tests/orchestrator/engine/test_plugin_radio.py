# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A package's rate model decides the rates of links, in Python and in compiled code."""

import math

import numpy as np
import pytest
from packages import importable, write_package

from ns3_scenarios.trace import ChannelTrace, Replay
from orchestrator.engine.curve import Curve
from orchestrator.engine.plan import fixed_allocation
from orchestrator.engine.radio import describe_radio, radio_access
from orchestrator.rounds.loop import predict
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import profile_of
from testbed.core.errors import InputError
from testbed.core.timeline import CA, SG, SM

MODULE = """
import math

def gap(snr, bandwidth_hz, gap_db=3.0, most=6.0):
    return bandwidth_hz * min(most, math.log2(1 + snr / 10 ** (gap_db / 10)))

def endless(snr, bandwidth_hz):
    return math.exp(snr)

def negative(snr, bandwidth_hz):
    return bandwidth_hz * (snr - 1)

def falling(snr, bandwidth_hz):
    return bandwidth_hz / (1 + snr)

def text(snr, bandwidth_hz):
    return open(str(snr))
"""
NAMES = ("gap", "endless", "negative", "falling", "text")
ENTRIES = "[testbed.radios]\n" + "".join(f"{name} = radios:{name}\n" for name in NAMES)


@pytest.fixture
def package(tmp_path, monkeypatch):
    write_package(tmp_path, "radios", MODULE, ENTRIES)
    with importable(tmp_path, "radios", monkeypatch):
        yield


def scenario_of(access, policy="fixed", **parameters):
    radio = {"access": access, "access_parameters": parameters}
    tree = {"uavs": {"tx_power_w": [1, 0.4, 2]}, "workload": {"compute": "none"}, "radio": radio}
    return validate(tree | {"paradigm": "sfl-pp", "allocation": {"policy": policy}}, "test")


GAIN = np.full((3, 2000), 1e-11) * [[1.0], [3.0], [0.2]]


def test_rates_are_those_of_the_function(package) -> None:
    scenario = scenario_of("gap", gap_db=6.0, most=4.0)
    radio = radio_access(scenario, ChannelTrace(GAIN, 0.1))
    assert isinstance(radio, Curve)
    allocation = fixed_allocation(scenario)
    rates = radio.link_rates(allocation, GAIN[:, :1], in_turns=False)
    noise_w_per_hz = 1e-3 * 10**-11.4 / 1e6
    for power_w, gain, bps in zip([1, 0.4, 2], GAIN[:, 0], rates.uplink[:, 0], strict=True):
        snr = power_w * gain / (20e6 / 3 * noise_w_per_hz)
        assert bps == pytest.approx(20e6 / 3 * min(4, math.log2(1 + snr / 10**0.6)), rel=1e-12)
    assert describe_radio(scenario) == "gap"


def test_the_engine_computes_with_the_function(package) -> None:
    scenario = scenario_of("gap")
    trace = ChannelTrace(GAIN, 0.1)
    (round_,) = predict(scenario, Replay(trace), profile_of(scenario))
    rates = radio_access(scenario, trace).link_rates(
        fixed_allocation(scenario), GAIN[:, :1], in_turns=False
    )
    for step, bps in ((CA, rates.uplink), (SM, rates.broadcast), (SG, rates.gradient)):
        own = round_.spans[round_.spans["step"] == step]
        assert len(own)
        for span in own:
            expected_s = 8 * span["bytes"] / bps[span["client"] - 1, 0]
            assert span["end_s"] - span["start_s"] == pytest.approx(expected_s, rel=1e-9)


@pytest.mark.parametrize(
    ("access", "line"),
    [
        ("endless", "does not return a number"),
        ("negative", "returns a rate below 0 at SNR 0"),
        ("falling", "returns less at more SNR"),
        ("text", "cannot be compiled by numba"),
    ],
)
def test_a_function_that_gives_no_rates_is_refused(package, access, line) -> None:
    with pytest.raises(InputError, match=f"^radio.access: plugin '{access}' .*{line}"):
        radio_access(scenario_of(access), ChannelTrace(GAIN, 0.1))


def test_unknown_names_and_parameters_are_refused(package) -> None:
    with pytest.raises(InputError, match=r"radio.access: .*'5g'"):
        scenario_of("5g")
    with pytest.raises(InputError, match=r"radio.access_parameters.gap: 'gap' has no such"):
        scenario_of("gap", gap=1)
    with pytest.raises(InputError, match=r"radio.access_parameters: 'lte' has no parameters"):
        scenario_of("lte", gap_db=1)
