# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A package of one file adds a schedule, a policy and a mobility model; broken ones say why."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fits
import numpy as np
import pytest
from packages import importable, write_package

import orchestrator as tb
from ns3_scenarios.errors import ChannelError
from ns3_scenarios.mobility import Airspace, Known, Track
from orchestrator.policies.registry import decider
from orchestrator.records.manifest import plugins_of
from orchestrator.rounds.loop import predict
from orchestrator.scenario.channel import ns3_source, open_source
from orchestrator.scenario.loading import load
from orchestrator.scenario.profiles import profile_of
from testbed.core.errors import InputError, RunError
from testbed.core.registry import GROUPS, MOVED
from testbed.core.timeline import Timeline
from testbed.host import doctor

ROOT = Path(__file__).resolve().parents[3]
QUICK = ROOT / "scenarios" / "quickstart.yaml"

MODULE = '''
import numpy as np

from orchestrator import Allocation, Paradigm

lone = Paradigm("lone", "LONE", "sequential", "sequential", "larger-lag")
mislabelled = Paradigm("other", "OTHER", "parallel", "parallel")
misspelt = Paradigm("misspelt", "MISSPELT", "paralel", "parallel")
drifting = Paradigm(
    "drifting", "DRIFTING", "parallel", "sequential", "larger-lag", asynchronous=True,
    uplink="sequential", uplink_order="scheduled",
)
barred = Paradigm(
    "barred", "BARRED", "parallel", "parallel", asynchronous=True, adapters_wait_for_all=True
)


def far_first(scenario, split=1, power=1.0):
    """Band by distance: who is far gets more."""
    if not 1 <= split <= 4:
        raise ValueError(f"split must be 1 to 4, not {split}")

    def decide(now):
        share = now.channel.gain[:, -1] ** (-0.1 * power)
        equal = np.full(len(share), 1 / len(share))
        return Allocation(split, equal, share / share.sum(), equal)

    return decide


def greedy(scenario):
    return lambda now: Allocation(2, *[np.ones(scenario.uavs.count)] * 3)


def careless(scenario):
    return lambda now: 1 / 0


def circles(space, radius_m, speed_m_s=10.0):
    """Each UAV circles above a point in the middle of its ring."""
    if radius_m <= 0:
        raise ValueError("radius_m must be positive")
    middle = np.array([(inner + outer) / 2 for inner, outer in space.ring_m])
    bearing = np.random.default_rng(space.seed).uniform(0, 2 * np.pi, space.uavs)
    turn = 0.0
    while True:
        x = space.bs_position_m[0] + middle * np.cos(bearing) + radius_m * np.cos(turn + bearing)
        y = space.bs_position_m[1] + middle * np.sin(bearing) + radius_m * np.sin(turn + bearing)
        yield np.stack([x, y, np.full(space.uavs, space.height_m)], axis=1)
        turn += speed_m_s * space.update_s / radius_m


def rain(space, db_per_km):
    """Free space and rain; the downlink has twice the gain of the uplink."""
    def gains(position_m, time_s):
        distance_m = np.linalg.norm(position_m - np.array(space.bs_position_m), axis=2)
        up = 10 ** (-db_per_km * distance_m / 1e4) * 1e-4 / distance_m**2
        return up, 2 * up
    return gains


def diving(space):
    for height_m in (20, 15, 0.5):
        yield [(300, 0, height_m)] * space.uavs


def forgetful(space):
    yield [(300, 0, 20)] * space.uavs
    raise KeyError("where was I")
'''
ENTRIES = """
[testbed.paradigms]
lone = skyward:lone
mislabelled = skyward:mislabelled
misspelt = skyward:misspelt
drifting = skyward:drifting
barred = skyward:barred
gone = skyward:gone

[testbed.policies]
far-first = skyward:far_first
greedy = skyward:greedy
careless = skyward:careless

[testbed.mobility]
circles = skyward:circles
diving = skyward:diving
forgetful = skyward:forgetful
missing = nowhere_to_be_found:model
plan = old_plan:model
scenario = old_scenario:model
paradigm = old_paradigm:model
crew = old_crew:model

[testbed.channels]
rain = skyward:rain
"""
OLD = {
    "old_plan": "from orchestrator.plan import Allocation",
    "old_scenario": "from orchestrator.scenario import Scenario",
    "old_paradigm": "import testbed.paradigm",
    "old_crew": "from orchestrator.crew import Crew",
}
"""Plugins that import from where things were before."""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package, as an installer leaves it."""
    folder = tmp_path_factory.mktemp("packages")
    write_package(folder, "skyward", MODULE, ENTRIES)
    for name, text in OLD.items():
        (folder / f"{name}.py").write_text(text + "\n")
    return folder


def call(packages: Path, *words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`testbed` with the package installed."""
    path = os.pathsep.join([str(packages), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", *map(str, words)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=200,
    )


@pytest.fixture
def installed(packages: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package in this process."""
    with importable(packages, "skyward", monkeypatch):
        yield


def foresee(*overrides: str) -> Timeline:
    """One round of the quickstart, predicted."""
    scenario = load(QUICK, ["rounds=1", *overrides])
    with open_source(scenario, None) as source:
        return predict(scenario, source, profile_of(scenario), decide=decider(scenario, source))


def sets(*pairs: str) -> list[str]:
    return [word for pair in pairs for word in ("--set", pair)]


CIRCLES = ("mobility.model=circles", "mobility.parameters.radius_m=50")


def test_all_three_serve_a_prediction_and_a_run(packages: Path, tmp_path: Path) -> None:
    words = sets(
        *CIRCLES,
        "paradigm=lone",
        "allocation.policy=far-first",
        "allocation.parameters.split=3",
        "workload.compute=none",
        "emulation.dilation=1",
        "rounds=1",
    )
    predicted = call(packages, "predict", QUICK, *words, "--json", "p.json", cwd=tmp_path)
    assert predicted.returncode == 0, predicted.stderr
    (predicted,) = json.loads((tmp_path / "p.json").read_text())["rounds"]
    assert (predicted["paradigm"], predicted["split"]) == ("lone", 3)
    steps = [s for s in predicted["steps"] if s["step"] == "SG"]
    steps.sort(key=lambda s: s["start_s"])
    ends, starts = [s["end_s"] for s in steps], [s["start_s"] for s in steps]
    assert all(end <= start + 1e-9 for end, start in zip(ends, starts[1:], strict=False))

    words += ["--out", "runs/mine", "--json", "r.json"]
    done = call(packages, "run", QUICK, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (measured,) = json.loads((tmp_path / "r.json").read_text())["measured"]
    assert (measured["paradigm"], measured["split"]) == ("lone", 3)
    manifest = json.loads((tmp_path / "runs/mine/manifest.json").read_text())
    assert manifest["plugins"] == {
        "paradigm": "skyward 1.2 (skyward:lone)",
        "allocation.policy": "skyward 1.2 (skyward:far_first)",
        "mobility.model": "skyward 1.2 (skyward:circles)",
    }
    assert "skyward 1.2" in (tmp_path / "runs/mine/report.html").read_text()


@pytest.mark.usefixtures("installed")
def test_uavs_fly_where_the_model_says_and_ns3_says_what_the_air_gives() -> None:
    scenario = load(QUICK, [*CIRCLES, "mobility.update_s=0.5"])
    with ns3_source(scenario) as source:
        source.trace(10)
        trace = source.trace(60)
    position, gain = trace.position_m, trace.gain
    assert position is not None
    middle = np.array([325.0, 685.0, 910.0])
    bearing = np.random.default_rng(1).uniform(0, 2 * np.pi, 3)

    def place(update: int) -> np.ndarray:
        angle = update * 10 * 0.5 / 50 + bearing
        x = middle * np.cos(bearing) + 50 * np.cos(angle)
        y = middle * np.sin(bearing) + 50 * np.sin(angle)
        return np.stack([x, y, np.full(3, 20.0)], axis=1)

    for slot in (0, 3, 5, 57):
        update, share = divmod(slot * 0.1 / 0.5, 1)
        between = (1 - share) * place(int(update)) + share * place(int(update) + 1)
        np.testing.assert_allclose(position[:, slot], between, rtol=0, atol=1e-6)
    distance = np.linalg.norm(position - [0, 0, 30], axis=-1)
    # TR 36.777, RMa-AV in line of sight at 20 m and 2 GHz.
    loss = np.maximum(23.9 - 1.8 * np.log10(20), 20) * np.log10(distance) + 20 * np.log10(
        40 * np.pi * 2 / 3
    )
    np.testing.assert_allclose(-10 * np.log10(gain), loss, rtol=0, atol=1e-9)


@pytest.mark.usefixtures("installed")
def test_a_packages_asynchronous_paradigm_has_an_order_and_upload_turns() -> None:
    keys = ["order=larger-lag", "uploads.sharing=sequential", "uploads.order=scheduled"]
    (theirs,), (ours,) = (
        foresee(*given, "workload.asynchronous.updates=5").rounds
        for given in (["paradigm=drifting"], ["paradigm=asfl-ps", *keys])
    )
    assert theirs.latency_s == ours.latency_s


@pytest.mark.usefixtures("installed")
def test_a_packages_channel_says_what_the_air_gives_each_direction() -> None:
    given = ["radio.channel=rain", "radio.parameters.db_per_km=3", "paradigm=cpsfl"]
    with ns3_source(load(QUICK, given)) as source:
        trace = source.trace(40)
    assert trace.position_m is not None
    assert trace.gain_down is not None
    distance = np.linalg.norm(trace.position_m - [0, 0, 30], axis=-1)
    loss_db = 20 * np.log10(distance) + 40 + 3 * distance / 1000
    np.testing.assert_allclose(-10 * np.log10(trace.gain), loss_db, atol=1e-9)
    np.testing.assert_array_equal(trace.gain_down, 2 * trace.gain)
    assert foresee(*given).rounds[0].latency_s > 0


@pytest.mark.usefixtures("installed")
def test_a_channel_may_be_fitted_on_a_packages_model(tmp_path: Path) -> None:
    way = {"shadowing_db": 0.0, "decorrelation_m": 30.0}
    ways = {"up": way | {"offset_db": -2.0}, "down": way | {"offset_db": -9.0}}
    keys = {"model": "rain", "parameters": {"db_per_km": 3}, **ways}
    given = [
        "radio.channel=fitted",
        f"radio.fitted={fits.write_fit(tmp_path / 'FIT.json', **keys)}",
    ]
    scenario = load(QUICK, given)
    assert list(plugins_of(scenario).values()) == ["rain"]
    alone = load(QUICK, ["radio.channel=rain", "radio.parameters.db_per_km=3"])
    with ns3_source(scenario) as source, ns3_source(alone) as other:
        trace, modelled = source.trace(10), other.trace(10)
    assert trace.gain_down is not None
    assert modelled.gain_down is not None
    np.testing.assert_allclose(10 * np.log10(trace.gain / modelled.gain), -2, atol=1e-9)
    np.testing.assert_allclose(10 * np.log10(trace.gain_down / modelled.gain_down), -9, atol=1e-9)
    fits.write_fit(tmp_path / "FIT.json", **keys | {"parameters": {}})
    with pytest.raises(InputError, match=r"FIT.json: channel.parameters.db_per_km: is missing"):
        load(QUICK, given)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["radio.channel=fog"], "radio.channel: 'fog' is not one of rma-av, uma-av, umi-av, free"),
        (["radio.channel=rain"], "radio.parameters.db_per_km: is missing; 'rain' needs it"),
        (
            ["mobility.model=spirals"],
            "mobility.model: 'spirals' is not one of gauss-markov, steered, guided, circles, ",
        ),
        (["mobility.model=circles"], "mobility.parameters.radius_m: is missing; 'circles' needs"),
        ([*CIRCLES, "mobility.parameters.colour=1"], "mobility.parameters.colour: 'circles' has"),
        ([*CIRCLES, "mobility.parameters.radius_m=-1"], "mobility.parameters: radius_m must be"),
        ([*CIRCLES, "mobility.memory=0.5"], "mobility.memory: belongs to 'gauss-markov', not to"),
        (["mobility.parameters.a=1"], "mobility.parameters: 'gauss-markov' has no parameters"),
        (
            ["mobility.model=missing"],
            "mobility.model: plugin 'missing' (nowhere_to_be_found:model)",
        ),
        (
            ["mobility.model=plan"],
            "'plan' (old_plan:model) cannot be loaded: what it imports from orchestrator.plan has "
            "moved: from orchestrator import Allocation",
        ),
        (["mobility.model=scenario"], "has moved: from orchestrator import Scenario"),
        (["mobility.model=paradigm"], "has moved: from orchestrator import Paradigm"),
        (["mobility.model=crew"], "there is no orchestrator.crew; what plugins may need, orch"),
        (["paradigm=gone"], "paradigm: plugin 'gone' (skyward:gone) cannot be loaded: AttributeE"),
        (["paradigm=mislabelled"], "is not a Paradigm of that name"),
        (["paradigm=misspelt"], "has server_compute 'paralel', which is not one of parallel, sequ"),
        (["paradigm=barred"], "is asynchronous: it has no gates and no gradient aggregation"),
        (
            ["allocation.policy=best"],
            "allocation.policy: 'best' is not one of fixed, equal, static, pl",
        ),
        (
            ["allocation.policy=far-first", "allocation.parameters.split=9"],
            "allocation.parameters: split must be 1 to 4, not 9",
        ),
        (
            ["allocation.policy=far-first", "allocation.parameters.u=9"],
            "allocation.parameters.u: 'far-first' has no such parameter; it has split, power",
        ),
        (["allocation.parameters.u=9"], "allocation.parameters: 'fixed' has no parameters"),
    ],
    ids=lambda value: value[-1][-30:] if isinstance(value, list) else None,
)
@pytest.mark.usefixtures("installed")
def test_what_does_not_fit_is_refused_in_one_line(given: list[str], says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)) as refused:
        foresee(*given)
    assert "\n" not in str(refused.value)


def test_a_refusal_exits_2_and_writes_nothing(packages: Path, tmp_path: Path) -> None:
    words = [*sets(*CIRCLES, "mobility.parameters.radius_m=-1"), "--json", "p.json"]
    done = call(packages, "predict", QUICK, *words, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr == "testbed: mobility.parameters: radius_m must be positive\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("mobility.model=diving", "mobility.model 'diving' at 2 s: UAV 1 is 0.5 m high, 300 m fro"),
        ("mobility.model=forgetful", "mobility.model 'forgetful' at 1 s: KeyError: 'where was I'"),
        ("allocation.policy=greedy", "allocation.policy 'greedy', round 0: alpha must be 3 posit"),
        ("allocation.policy=careless", "allocation.policy 'careless', round 0: ZeroDivisionError"),
    ],
)
@pytest.mark.usefixtures("installed")
def test_what_fails_on_the_way_is_one_line_too(given: str, says: str) -> None:
    with pytest.raises((ChannelError, RunError), match=re.escape(says)) as failed:
        foresee(given)
    assert "\n" not in str(failed.value)


def test_what_is_said_to_be_offered_is_offered() -> None:
    for names in MOVED.values():
        assert set(names.split(", ")) <= set(tb.__all__)


def test_every_group_is_on_the_page_and_finds_what_is_built_in() -> None:
    page = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    for group in GROUPS:
        assert f"| `{group.group}` |" in page
        for name in group.built_in:
            assert not isinstance(group.find(name), str)


@pytest.mark.usefixtures("installed")
def test_a_broken_plugin_costs_nobody_else_anything() -> None:
    assert len(foresee("paradigm=sfl-pp")) == 1
    assert "skyward" not in sys.modules


@pytest.mark.usefixtures("installed")
def test_the_doctor_tries_every_plugin() -> None:
    found = {finding.name: finding for finding in doctor._plugins()}
    assert found["plugin circles"].ok
    assert found["plugin circles"].detail == "skyward 1.2 (skyward:circles)"
    assert not found["plugin missing"].ok
    assert "ModuleNotFoundError" in found["plugin missing"].detail


SPACE = Airspace([(100.0, 550.0)] * 2, (0.0, 0.0, 30.0), 20.0, 0.3, 1)


def test_sizes_of_calls_do_not_move_a_uav() -> None:
    def walk():
        rng = np.random.default_rng(3)
        place = np.full((2, 3), 100.0)
        while True:
            yield place
            place = place + rng.normal(0, 1, (2, 3))

    whole = Track("walk", walk(), SPACE, Known()).positions(0, 1000, 0.1)
    pieces, at = [], 0
    track = Track("walk", walk(), SPACE, Known())
    for slots in (1, 2, 297, 700):
        pieces.append(track.positions(at, slots, 0.1))
        at += slots
    assert np.concatenate(pieces, axis=1).tobytes() == whole.tobytes()


@pytest.mark.parametrize(
    ("yields", "says"),
    [
        ([], "it ended; it must never end"),
        ([[[0, 0, 20]]], r"of shape \(2, 3\), not \(1, 3\)"),
        ([[[np.nan, 0, 20]] * 2], "finite positions"),
        ([["a"]], "did not yield an array of numbers"),
        ([[[10_001, 0, 20]] * 2], "10001 m from the base station"),
    ],
)
def test_what_is_no_flight_is_refused(yields: list[object], says: str) -> None:
    with pytest.raises(ChannelError, match=f"mobility.model 'x' at 0 s: .*{says}"):
        Track("x", iter(yields), SPACE, Known())
