# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Failures of plug-ins name the round, the file, and the line that failed."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from packages import importable, write_package
from small_scenario import TREE

import orchestrator as tb
from ns3_scenarios.errors import ChannelError
from orchestrator.analysis import metrics
from orchestrator.analytical.models import model
from orchestrator.rounds.packet_rounds import play
from orchestrator.scenario import profiles
from orchestrator.scenario.channel import open_source
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import profile_of
from testbed.control.messages import Failed
from testbed.core.errors import InputError, RunError
from testbed.core.registry import CODECS, MODELS, installed, reason
from testbed.core.timeline import Timeline
from workloads.aggregation.rules import rule_of
from workloads.nodes import program

MODULE = """
import json
import sys

import numpy as np

from orchestrator import Allocation


def policy(scenario):
    def decide(now):
        if now.index == 1:
            json.loads("no")  # FAILS policy
        return Allocation(2, *[np.full(3, 1 / 3)] * 3)
    return decide


def chooser(scenario):
    def choose(start):
        if start.index == 1:
            sys.exit(0)  # FAILS chooser
        return [1, 2, 3]
    return choose


def hops(space):
    for _ in range(200):
        yield [(300, 0, 20)] * space.uavs
    {}["hops"]  # FAILS hops


def never(space):
    {}["never"]  # FAILS never
    yield [(300, 0, 20)] * space.uavs


def air(space):
    def gains(position_m, times_s):
        if times_s[-1] > 150:
            raise OSError("no air")  # FAILS air
        return np.full(position_m.shape[:2], 1e-10)
    return gains


def order(asked):  # FAILS order
    if asked.iteration > 1 and asked.enqueued_s > 0:
        raise ValueError("no order")
    return asked.service_s


def ranked(asked):
    if asked.enqueued_s != 0.5:
        raise ValueError("no rank")  # FAILS ranked
    return 1.0


def rule():
    def aggregate(update):
        return update.gone  # FAILS rule
    return aggregate


class Codec:
    def size(self, values):
        return values // 0  # FAILS codec

    encode = decode = size


def number(timeline):
    return timeline.gone  # FAILS number


def formula(plan, radio, gain, slot_s):
    return gain[9]  # FAILS formula
"""
ENTRIES = """
[testbed.policies]
failing = brittle:policy

[testbed.participation]
failing = brittle:chooser

[testbed.mobility]
hops = brittle:hops
never = brittle:never

[testbed.channels]
failing = brittle:air

[testbed.orders]
failing = brittle:order
ranked = brittle:ranked

[testbed.aggregators]
failing = brittle:rule

[testbed.codecs]
failing = brittle:Codec

[testbed.metrics]
failing = brittle:number

[testbed.analytical_models]
failing = brittle:formula
"""


@pytest.fixture
def brittle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of the package, which is installed."""
    write_package(tmp_path, "brittle", MODULE, ENTRIES)
    with importable(tmp_path, "brittle", monkeypatch):
        yield tmp_path / "brittle.py"


def line_of(mark: str) -> int:
    lines = enumerate(MODULE.splitlines(), start=1)
    return next(number for number, text in lines if text.endswith(f"# FAILS {mark}"))


def scenario(**keys: object) -> tb.Scenario:
    return validate(TREE | {"rounds": 300} | keys, "test")


def predicted(**keys: object) -> Callable[[], object]:
    return lambda: tb.predict(scenario(**keys))


def in_packets() -> None:
    asked = scenario(rounds=1, paradigm="cpsfl", order="ranked")
    with open_source(asked, None) as source:
        play(asked, source, profile_of(asked))


def a_formula() -> None:
    model("failing", scenario())(None, None, [], 0.1)


def a_metric() -> None:
    metrics.value_of("failing", metrics.metric("failing"), Timeline([]))


@pytest.mark.parametrize(
    ("fails", "mark", "says"),
    [
        (
            predicted(allocation={"policy": "failing"}),
            "policy",
            r"allocation\.policy 'failing', round 1: JSONDecodeError: Expecting value",
        ),
        (
            predicted(participation={"rule": "failing"}),
            "chooser",
            r"participation\.rule 'failing', round 1: SystemExit: 0",
        ),
        (
            predicted(mobility={"model": "hops"}),
            "hops",
            r"round \d+: mobility\.model 'hops' at 200 s: KeyError: 'hops'",
        ),
        (
            predicted(mobility={"model": "never"}),
            "never",
            r"mobility\.model: plugin 'never' \(brittle:never\) fails: KeyError: 'never'",
        ),
        (
            predicted(radio=TREE["radio"] | {"channel": "failing"}),
            "air",
            r"round \d+: radio\.channel 'failing' at [\d.]+ s: OSError: no air",
        ),
        (
            predicted(paradigm="cpsfl", order="failing"),
            "order",
            r"round 0: order: plugin 'failing' \(brittle:order\) fails, .* \(function in",
        ),
        (in_packets, "ranked", r"round 0: order 'ranked': ValueError: no rank"),
        (
            predicted(workload=TREE["workload"] | {"wire_dtype": "failing"}),
            "codec",
            r"round 0: workload\.wire_dtype 'failing': ZeroDivisionError: ",
        ),
        (a_metric, "number", r"metric 'failing': AttributeError: "),
        (a_formula, "formula", r"round 0: analytical_models 'failing': IndexError: "),
    ],
)
def test_a_failure_names_round_file_and_line(
    brittle: Path, fails: Callable[[], object], mark: str, says: str
) -> None:
    with pytest.raises((ChannelError, InputError, RunError)) as caught:
        fails()
    (line,) = str(caught.value).splitlines()
    assert re.match(says, line), line
    assert line.endswith(f"{brittle}, line {line_of(mark)})"), line


def test_a_node_reports_where_a_plug_in_failed(
    brittle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Aggregators, codecs and models fail in the process of a node."""

    sent: list[object] = []

    class Control:
        def receive(self) -> None:
            rule_of("failing", {})(None)

        def send(self, message: object) -> None:
            sent.append(message)

    monkeypatch.setattr(program.linux, "precise_timers", lambda: None)
    with pytest.raises(AttributeError):
        program.main(Control())
    (failed,) = sent
    assert isinstance(failed, Failed)
    assert failed.reason.endswith(f"no attribute 'gone' ({brittle}, line {line_of('rule')})"), (
        failed
    )


def test_a_failure_of_the_testbed_itself_names_no_place(brittle: Path) -> None:
    with pytest.raises(InputError) as caught:
        metrics.metric("gone", "key")
    own = caught.value.with_traceback(caught.tb.tb_next)
    assert reason(own) == f"InputError: {own}"


def test_a_model_that_fails_while_its_costs_are_counted_names_the_line(
    brittle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count(config: object) -> None:
        rule_of("failing", {})(None)

    monkeypatch.setattr(profiles, "counted", count)
    monkeypatch.setattr(MODELS, "check", lambda name, parameters: None)
    monkeypatch.setitem(installed()["testbed.models"], "fails", next(iter(CODECS.plugins.values())))
    workload = {"model": "fails", "profile": "counted", "compute": "none"}
    with pytest.raises(RunError) as caught:
        profile_of(validate({"uavs": {"tx_power_w": [1]}, "workload": workload}, "test"))
    line = str(caught.value)
    assert line.startswith("workload.model 'fails': AttributeError: ")
    assert line.endswith(f"({brittle}, line {line_of('rule')})")
