# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Exports channel traces in formats of other tools."""

from pathlib import Path

from ns3_scenarios.trace import ChannelTrace, RateTrace, TraceError, load_trace
from orchestrator.engine.plan import fixed_allocation
from orchestrator.engine.radio import radio_access
from orchestrator.exchange import mahimahi
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.words import not_one_of

FORMATS = ("mahimahi",)


def exported(kind: str, file: Path, scenario: Scenario | None, folder: Path) -> list[Path]:
    """Write a trace in another format; returns the files' paths.

    Gains are converted to rates with the scenario's shares, for downlinks with those of parallel
    transmission: the rates of the links while all are busy.

    Raises:
        InputError: The trace is broken, does not fit the scenario, or needs one or none.
    """
    if kind not in FORMATS:
        raise InputError(f"`format`: {not_one_of(kind, FORMATS)}")
    try:
        trace = load_trace(file)
    except TraceError as error:
        raise InputError(str(error)) from None
    if isinstance(trace, RateTrace) and scenario is not None:
        raise InputError(f"`scenario`: must be absent, since {file} has rates")
    rates = trace if isinstance(trace, RateTrace) else _rates(trace, scenario, file)
    return mahimahi.write(rates, folder)


def _rates(trace: ChannelTrace, scenario: Scenario | None, file: Path) -> RateTrace:
    if scenario is None:
        raise InputError(f"`scenario`: is missing; {file} has gains, which need it to become rates")
    if trace.uavs != scenario.uavs.count:
        raise InputError(f"{file}: has {trace.uavs} UAVs; uavs.count is {scenario.uavs.count}")
    radio = radio_access(scenario, trace)
    rates = radio.link_rates(fixed_allocation(scenario), trace.values, in_turns=False)
    return RateTrace(rates.uplink, rates.gradient, trace.slot_s)
