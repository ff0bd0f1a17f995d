# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Analytical models by name: the paper's equations, a package's, and what is refused of either."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packages import importable, write_package
from packet_cases import small

from ns3_scenarios.trace import ChannelTrace, Replay
from orchestrator.analytical.models import EQUATIONS, Interval, ModelResult, model
from orchestrator.cli.main import app
from orchestrator.engine.fdma import ShannonFdma
from orchestrator.engine.plan import fixed_allocation, plan_round
from orchestrator.rounds.simulation import RoundTimes, simulate
from orchestrator.scenario.loading import varied
from orchestrator.scenario.profiles import profile_of
from orchestrator.studies.cross_check import closed_forms
from testbed.core.errors import InputError, RunError
from testbed.core.registry import ANALYTICAL_MODELS

MODULE = """
import numpy as np
from orchestrator import Interval
from orchestrator.rounds.simulation import simulate

answers = {}


def engine(plan, radio, gain, slot_s):
    return simulate(plan, radio, gain, slot_s).latency_s


def scaled(plan, radio, gain, slot_s, factor, shift_s=0.0):
    return engine(plan, radio, gain, slot_s) * factor + shift_s


def around(plan, radio, gain, slot_s, width_s=0.5):
    latency_s = engine(plan, radio, gain, slot_s)
    return Interval(latency_s - width_s, latency_s + width_s)


def by_step(plan, radio, gain, slot_s):
    return {"CF": np.float64(1.0), "CA": 2.0}


def given(plan, radio, gain, slot_s, answer=None):
    return answer


def strongest(plan, radio, gain, slot_s):
    return 1e9 * gain[:, 0].max()


number = 7
"""
ENTRIES = """
[testbed.analytical_models]
engine = theorist:engine
scaled = theorist:scaled
around = theorist:around
by-step = theorist:by_step
given = theorist:given
strongest = theorist:strongest
gone = theorist:gone
number = theorist:number
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    write_package(tmp_path / "site", "theorist", MODULE, ENTRIES)
    with importable(tmp_path / "site", "theorist", monkeypatch):
        yield


GAIN = np.outer([1e-9, 1e-10, 3e-11], np.ones(3000))


def said_and_played(name: str, **keys: Any) -> tuple[ModelResult | None, RoundTimes]:
    """What a model says of the small scenario's round on a still channel, and what the engine."""
    scenario = small(**keys)
    plan = plan_round(scenario, profile_of(scenario), fixed_allocation(scenario))
    radio = ShannonFdma.of(scenario)
    said = model(name, scenario)(plan, radio, GAIN, 0.1)
    return said, simulate(plan, radio, GAIN, 0.1)


@pytest.mark.parametrize(
    ("name", "paradigm"),
    [("tau2", "cpsfl-no-at"), ("tau-pp", "sfl-pp"), ("tau3", "pipesfl-no-at")],
)
def test_what_is_exact_is_so_but_for_the_adapters(name: str, paradigm: str) -> None:
    said, played = said_and_played(name, paradigm=paradigm)
    assert said is not None
    assert not said.is_interval
    # CM of whoever ends last is no longer than the longest, which the forms add.
    assert 0 <= said.error(played.latency_s) < 0.2
    assert said.low_s > played.latency_s * (1 - 1e-12)


def test_bounds_hold_on_the_side_that_they_are_of() -> None:
    for name, paradigm, side in (
        ("upper-bound", "cpsfl", "high_s"),
        ("tau2", "cpsfl", "high_s"),
        ("cpsfl-lower", "cpsfl", "low_s"),
        ("tau2-hat", "cpsfl-no-at", "low_s"),
        ("tau3-hat", "pipesfl-no-at", "low_s"),
        ("tau3", "pipesfl", "high_s"),
        ("tau2", "sfl-ps", "low_s"),
    ):
        said, played = said_and_played(name, paradigm=paradigm)
        assert said is not None, name
        assert said.is_interval, name
        assert said.error(played.latency_s) == 0, name
        other = said.low_s if side == "high_s" else said.high_s
        assert other == (0 if side == "high_s" else math.inf), name


def test_bounds_of_cpsfl_are_those_two() -> None:
    both, low, high = (
        said_and_played(name, paradigm="cpsfl")[0]
        for name in ("cpsfl-bounds", "cpsfl-lower", "tau2")
    )
    assert both is not None
    assert low is not None
    assert high is not None
    assert (both.low_s, both.high_s) == (low.low_s, high.high_s)


def test_an_equation_says_nothing_of_other_paradigms_and_of_outages() -> None:
    assert said_and_played("tau-pp", paradigm="cpsfl")[0] is None
    assert said_and_played("upper-bound", paradigm="pipesfl")[0] is None
    scenario = small()
    plan = plan_round(scenario, profile_of(scenario), fixed_allocation(scenario))
    gone = GAIN.copy()
    gone[1, 0] = 0
    assert model("tau2", scenario)(plan, ShannonFdma.of(scenario), gone, 0.1) is None


def test_t_iter_is_what_an_iteration_takes() -> None:
    said, played = said_and_played("t-iter", paradigm="cpsfl-no-at")
    computed = played.spans[played.spans["step"] == 3]["end_s"].reshape(3, -1).max(axis=0)
    assert said is not None
    assert said.low_s == pytest.approx(computed[1] - computed[0], rel=1e-9)
    assert EQUATIONS["t-iter"].metric == "iteration_s"
    alone = {"workload": {**small().workload.model_dump(), "local_iterations": 1}}
    assert said_and_played("t-iter", paradigm="cpsfl-no-at", **alone)[0] is None


def test_a_package_s_model_says_seconds_an_interval_or_seconds_by_step() -> None:
    said, played = said_and_played("engine")
    assert said == ModelResult(played.latency_s, played.latency_s, {})
    said, played = said_and_played("around")
    assert said == ModelResult(played.latency_s - 0.5, played.latency_s + 0.5, {})
    assert said.error(played.latency_s + 0.6) == pytest.approx(
        (played.latency_s + 0.5) / (played.latency_s + 0.6) - 1
    )
    assert said.error(played.latency_s - 0.6) > 0
    assert said_and_played("by-step")[0] == ModelResult(3.0, 3.0, {"CF": 1.0, "CA": 2.0})
    assert said_and_played("given")[0] is None


def test_parameters_come_from_the_scenario() -> None:
    keys = {"analytical_models": {"scaled": {"factor": 2.0}}}
    said, played = said_and_played("scaled", **keys)
    assert said is not None
    assert said.low_s == 2 * played.latency_s
    assert small().model_dump(mode="json").keys().isdisjoint({"analytical_models"})
    assert small(**keys).model_dump(mode="json")["analytical_models"] == keys["analytical_models"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"scaled": {}}, "analytical_models.scaled.factor: is missing; 'scaled' needs it"),
        ({"scaled": {"factor": 1, "f": 2}}, "analytical_models.scaled.f: 'scaled' has no such"),
        ({"gone": {}}, "analytical_models: plugin 'gone' (theorist:gone) cannot be loaded"),
        ({"number": {}}, "analytical_models: plugin 'number' (theorist:number) is no function: 7"),
        ({"scald": {}}, "analytical_models: 'scald' is not one of engine, scaled, "),
    ],
)
def test_parameters_that_do_not_fit_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)) as refused:
        varied(small(), {"analytical_models": changes})
    assert "\n" not in str(refused.value)


def test_unknown_models_are_refused() -> None:
    with pytest.raises(InputError, match=r"`model`: 'tau9' is not one of .*tau"):
        model("tau9", small())
    with pytest.raises(InputError, match=r"scaled\.factor: is missing"):
        model("scaled", small())
    assert {*EQUATIONS, "cpsfl-bounds", "engine"} <= set(ANALYTICAL_MODELS.names())


@pytest.mark.parametrize(
    "answer",
    ["soon", [1, 2, 3], {"XX": 1.0}, {}, math.nan, -1.0, (2.0, 1.0), math.inf, {"CF": "a"}],
)
def test_what_is_no_answer_is_refused(answer: object) -> None:
    scenario = small()
    plan = plan_round(scenario, profile_of(scenario), fixed_allocation(scenario))
    asked = replace(model("given", scenario), parameters={"answer": answer})
    with pytest.raises(RunError, match="analytical_models 'given'"):
        asked(plan, ShannonFdma.of(scenario), GAIN, 0.1)
    assert Interval(1.0, 2.0).high_s == 2.0


def test_a_model_that_fails_is_named() -> None:
    scenario = small()
    plan = plan_round(scenario, profile_of(scenario), fixed_allocation(scenario))
    with pytest.raises(RunError, match="analytical_models 'engine': TraceExhausted"):
        model("engine", scenario)(plan, ShannonFdma.of(scenario), GAIN[:, :2], 0.1)


def test_every_installed_model_stands_in_the_cross_check() -> None:
    source = Replay(ChannelTrace(GAIN, 0.1))
    forms = {form.what: form.with_adapters_s for form in closed_forms(small(), source)}
    latency_s = said_and_played("engine")[1].latency_s
    assert forms["engine"] == latency_s
    assert forms["at least around"] == latency_s - 0.5
    assert forms["at most around"] == latency_s + 0.5
    assert forms["by-step"] == 3.0
    # One that lacks a parameter, or is broken, has none; unless the scenario asks for it.
    assert not {"scaled", "gone", "number", "given"} & forms.keys()
    asked = small(analytical_models={"scaled": {"factor": 2}})
    assert {form.what for form in closed_forms(asked, source)} - forms.keys() == {"scaled"}


def test_one_that_fails_ends_nobodys_cross_check_but_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A model that takes the channel for one array, where directions differ."""
    alike = closed_forms(small(), Replay(ChannelTrace(GAIN, 0.1)))
    apart = Replay(ChannelTrace(GAIN, 0.1, gain_down=2 * GAIN))
    assert "strongest" in {form.what for form in alike}
    with caplog.at_level("WARNING"):
        left = closed_forms(small(), apart)
    assert {form.what for form in alike} - {form.what for form in left} == {"strongest"}
    assert "analytical_models 'strongest': AttributeError" in caplog.text
    with pytest.raises(RunError, match="analytical_models 'strongest': AttributeError"):
        closed_forms(small(analytical_models={"strongest": {}}), apart)


def test_the_command_shows_them(tmp_path: Path) -> None:
    scenario, trace = tmp_path / "s.yaml", tmp_path / "t.npz"
    scenario.write_text(small().model_dump_json())
    ChannelTrace(GAIN, 0.1).save(trace)
    words = ("--trace", trace, "--no-emulated", "--json", tmp_path / "said.json")
    app(["cross-check", str(scenario), *map(str, words)], standalone_mode=False)
    forms = json.loads((tmp_path / "said.json").read_text())["closed_forms"]
    assert "engine" in {form["what"] for form in forms}
