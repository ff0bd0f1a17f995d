# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Traces whose directions differ, and traces of rates: read, predicted, planned, refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warm
import yaml

import orchestrator as tb
from ns3_scenarios.trace import (
    ChannelTrace,
    RateTrace,
    Replay,
    TraceError,
    TwoWay,
    load_trace,
    trace_of,
)
from orchestrator.analytical import claims
from orchestrator.analytical.lower_bound import lower_bound
from orchestrator.campaigning.cluster import run_campaign
from orchestrator.campaigning.folder import CampaignFolder
from orchestrator.campaigning.spec import load_campaign
from orchestrator.engine.faults import RoundFaults
from orchestrator.engine.fdma import ShannonFdma
from orchestrator.engine.plan import fixed_allocation, plan_round
from orchestrator.engine.rates import link_rates
from orchestrator.policies.planner import forecast
from orchestrator.rounds.loop import predict
from orchestrator.rounds.simulation import split_costs
from orchestrator.scenario.channel import _log_once
from orchestrator.scenario.loading import validate, varied
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.timeline import CA, CM, SG, SM
from testbed.host.dask_cluster import Cluster
from workloads.costs.profile import PAPER

SLOTS = 4000
UP_BPS, DOWN_BPS = np.array([8e6, 4e6]), np.array([40e6, 10e6])


def scenario(**keys: Any) -> Scenario:
    tree = {"uavs": {"tx_power_w": [1, 0.4]}, "workload": {"compute": "none", "split": 2}}
    return varied(validate(tree, "test"), keys)


def constant(**fields: Any) -> ChannelTrace | RateTrace:
    given = {name: np.repeat(np.array(v)[:, None], SLOTS, axis=1) for name, v in fields.items()}
    return trace_of(given | {"slot_s": 0.1}, "trace")


def rates() -> RateTrace:
    made = constant(uplink_bps=UP_BPS, downlink_bps=DOWN_BPS)
    assert isinstance(made, RateTrace)
    return made


def spans_of(round_: Any, step: int, client: int) -> Any:
    spans = round_.spans
    return spans[(spans["step"] == step) & (spans["client"] == client)]


def took(round_: Any, step: int, client: int) -> Any:
    spans = spans_of(round_, step, client)
    return spans["end_s"] - spans["start_s"]


GAIN = np.full((2, 3), 1e-9)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"gain_up": GAIN}, "gain_down is missing"),
        ({"downlink_bps": GAIN + 1e6}, "uplink_bps is missing"),
        ({"gain": GAIN, "gain_up": GAIN, "gain_down": GAIN}, "has gain and gain_up; a trace is"),
        ({"gain_up": GAIN, "uplink_bps": GAIN + 1e6}, "has gain_up and uplink_bps"),
        ({"gain_up": GAIN, "gain_down": GAIN[:, :2]}, "gain_down must have the shape of gain_up"),
        ({"gain_up": GAIN, "gain_down": -GAIN}, "gain_down[0, 0] is -1e-09: a linear power"),
        ({"uplink_bps": GAIN, "downlink_bps": GAIN + 1}, "uplink_bps[0, 0] is 1e-09: must be 0"),
        (
            {"uplink_bps": GAIN + 1, "downlink_bps": GAIN * np.nan},
            "downlink_bps[0, 0] is NaN: a rate",
        ),
        ({}, "gain is missing"),
    ],
)
def test_a_wrong_trace_is_one_line_that_names_the_field(fields: Any, says: str) -> None:
    with pytest.raises(TraceError) as raised:
        trace_of(fields | {"slot_s": 0.1}, "trace")
    assert says in str(raised.value)


@pytest.mark.parametrize("kind", [("gain_up", "gain_down"), ("uplink_bps", "downlink_bps")])
def test_both_directions_are_kept_in_files(kind: tuple[str, str], tmp_path: Path) -> None:
    made = constant(**dict(zip(kind, ([1.0, 0.5], [0.25, 0.125]), strict=True)))
    made.save(tmp_path / "trace.npz")
    with np.load(tmp_path / "trace.npz") as file:
        assert set(file.files) == {*kind, "slot_s"}
    back = load_trace(tmp_path / "trace.npz").first(7)
    assert isinstance(back.values, TwoWay)
    assert back.values.shape == (2, 7)
    assert isinstance(back, RateTrace) == (kind[0] == "uplink_bps")
    assert back.values[:, 0].values.tolist() == [[1, 0.5], [0.25, 0.125]]


def test_rates_are_what_the_links_carry() -> None:
    """By hand: bits over the rate of the link, and no share of anything in it."""
    (round_,) = predict(scenario(), Replay(rates()), PAPER)
    smashed_bits = 8 * 8 * PAPER.smashed_bytes[1]
    adapter_bits = 8 * PAPER.adapter_bytes[1]
    for client, up_bps, down_bps in zip((1, 2), UP_BPS, DOWN_BPS, strict=True):
        assert took(round_, SM, client) == pytest.approx([adapter_bits / down_bps])
        assert took(round_, CA, client) == pytest.approx([smashed_bits / up_bps] * 3)
        assert took(round_, SG, client) == pytest.approx([smashed_bits / down_bps] * 3)
        assert took(round_, CM, client) == pytest.approx([adapter_bits / up_bps])
    gradients = np.sort(round_.spans[round_.spans["step"] == SG], order="start_s")
    assert (gradients["start_s"][1:] >= gradients["end_s"][:-1] - 1e-9).all()  # one at a time


def of_cell() -> RateTrace:
    return rates().replaced(downlink_is="cell")


@pytest.mark.parametrize("rho", [[0.5, 0.5], [0.3, 0.7]])
def test_parallel_gradients_share_the_rate_of_a_cell(rho: list[float]) -> None:
    """By hand: parallel gradients have shares, the broadcast and gradients in turn the whole."""
    bits = 8 * 8 * PAPER.smashed_bytes[1]
    keys = {"paradigm": "pipesfl", "allocation.rho": rho}
    (parallel,) = predict(scenario(**keys), Replay(of_cell()), PAPER)
    (in_turns,) = predict(scenario(), Replay(of_cell()), PAPER)
    for client, share, down_bps in zip((1, 2), rho, DOWN_BPS, strict=True):
        assert took(parallel, SG, client) == pytest.approx([bits / (share * down_bps)] * 3)
        assert took(in_turns, SG, client) == pytest.approx([bits / down_bps] * 3)
        for round_ in (parallel, in_turns):
            sent = [8 * PAPER.adapter_bytes[1] / down_bps]
            assert took(round_, SM, client) == pytest.approx(sent)


def test_a_paradigm_gains_nothing_by_counting_a_cells_rate_twice() -> None:
    def latency_s(paradigm: str, trace: RateTrace, **keys: Any) -> float:
        chosen = scenario(**{"paradigm": paradigm, **keys})
        (round_,) = predict(chosen, Replay(trace), PAPER)
        return float(round_.latency_s)

    slow = constant(uplink_bps=[1e8, 1e8], downlink_bps=[4e6, 4e6])
    assert isinstance(slow, RateTrace)
    cell, link = slow.replaced(downlink_is="cell"), slow.replaced(downlink_is="link")
    assert latency_s("pipesfl", link) == latency_s("pipesfl", slow)
    assert latency_s("pipesfl", link) < 0.7 * latency_s("cpsfl", link)
    assert latency_s("pipesfl", cell) > 0.95 * latency_s("cpsfl", cell)
    assert latency_s("cpsfl", cell) == latency_s("cpsfl", link)
    for told in ("link", "cell"):
        keys = {"radio.downlink_is": told}
        assert latency_s("pipesfl", slow, **keys) == latency_s(
            "pipesfl", slow.replaced(downlink_is=told)
        )


def test_the_meaning_of_rates_comes_back_from_a_file(tmp_path: Path) -> None:
    of_cell().save(tmp_path / "t.npz")
    back = load_trace(tmp_path / "t.npz")
    assert isinstance(back, RateTrace)
    assert back.downlink_is == "cell"
    assert back.first(7).downlink_is == "cell"
    assert rates().downlink_is is None
    fields = {**rates().named(), "slot_s": 0.1}
    with pytest.raises(TraceError, match="downlink_is must be 'link' or 'cell', not 'cells'"):
        trace_of(fields | {"downlink_is": "cells"}, "t")
    with pytest.raises(TraceError, match="downlink_is belongs to rates"):
        trace_of({"gain": GAIN, "slot_s": 0.1, "downlink_is": "cell"}, "t")


def test_contradictions_about_the_downlink_are_refused() -> None:
    asked = scenario(**{"radio.downlink_is": "link"})
    with pytest.raises(InputError, match=r"^radio\.downlink_is: is 'link', but the trace says"):
        tb.predict(asked, of_cell())
    with pytest.raises(
        InputError, match=r"^radio\.downlink_is: must be absent where the trace has gains"
    ):
        tb.predict(asked, constant(gain=[1e-9, 1e-9]))
    with pytest.raises(InputError, match=r"^allocation\.beta: must be 'equal'"):
        tb.predict(scenario(**{"allocation.beta": [0.3, 0.7]}), of_cell())


def test_an_open_meaning_is_said_where_it_matters(caplog: pytest.LogCaptureFixture) -> None:
    _log_once.cache_clear()
    tb.predict(scenario(), rates())
    tb.predict(scenario(paradigm="pipesfl"), of_cell())
    assert not caplog.messages
    tb.predict(scenario(paradigm="pipesfl"), rates())
    (line,) = caplog.messages
    assert line.startswith("radio.downlink_is: trace does not say whether downlink_bps is the rate")


@pytest.mark.parametrize("told", [None, "link"])
def test_sequential_and_parallel_downlinks_are_not_compared_on_an_open_trace(
    tmp_path: Path, told: Any
) -> None:
    rates().replaced(downlink_is=told).save(tmp_path / "t.npz")
    timelines = {}
    for name in ("cpsfl", "cpsfl-no-at", "pipesfl"):
        chosen = scenario(paradigm=name)
        timelines[name] = tb.predict(chosen, tmp_path / "t.npz")
        tree = {"scenario": chosen.model_dump(mode="json"), "rounds": timelines[name].to_json()}
        open_ = {"downlink_is_open": True} if told is None else {}
        (tmp_path / f"{name}.json").write_text(json.dumps(tree | open_))
    study = {
        "trace": "t.npz",
        "axes": {"paradigm": ["cpsfl", "pipesfl"]},
        "compare": {"over": "paradigm", "baseline": "cpsfl"},
    }
    text = scenario().model_dump(mode="json")
    campaign = {"name": "c", "scenario": text, "studies": {"s": study}}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(campaign))
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(text))
    folder = CampaignFolder(tmp_path / "c")
    attempts: list[Callable[[], object]] = [
        lambda: tb.comparison(timelines),
        lambda: tb.compare(timelines["cpsfl"], timelines["pipesfl"]),
        lambda: tb.comparison([tmp_path / "cpsfl.json", tmp_path / "pipesfl.json"]),
        lambda: run_campaign(
            load_campaign(tmp_path / "c.yaml"), folder, cluster=Cluster(workers=0)
        ),
    ]
    alike = {name: timelines[name] for name in ("cpsfl", "cpsfl-no-at")}
    assert len(tb.comparison(alike).table) == 2
    for attempt in attempts:
        if told is not None:
            attempt()
            continue
        with pytest.raises(InputError, match=r"^radio\.downlink_is: must be 'link' or 'cell' to"):
            attempt()
    if told is None:
        assert not folder.path.exists()
        words = "overhead s.yaml --trace t.npz --sweep paradigm=cpsfl,pipesfl"
        done = warm.run(*words.split(), cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith("testbed: radio.downlink_is: must be 'link' or 'cell' to")
        words = "predict s.yaml --trace t.npz --json p.json"
        assert warm.run(*words.split(), cwd=tmp_path).returncode == 0
        assert json.loads((tmp_path / "p.json").read_text())["downlink_is_open"] is True


def test_a_transfer_waits_where_its_rate_is_0() -> None:
    trace = rates()
    trace.downlink_bps[1, 2:52] = 0.0
    bits = 8 * PAPER.adapter_bytes[1]
    (round_,) = predict(scenario(), Replay(trace), PAPER)
    assert took(round_, SM, 2) == pytest.approx([bits / 10e6 + 5.0])
    assert took(round_, SM, 1) == pytest.approx([bits / 40e6])


def test_each_direction_has_its_own_gain() -> None:
    trace = constant(gain_up=[1e-9, 2e-9], gain_down=[5e-11, 7e-11])
    chosen = scenario(paradigm="sfl-pp")
    (round_,) = predict(chosen, Replay(trace), PAPER)
    noise = ShannonFdma.of(chosen).noise_w_per_hz
    smashed_bits, adapter_bits = 8 * 8 * PAPER.smashed_bytes[1], 8 * PAPER.adapter_bytes[1]
    for client, power, up, down in ((1, 1.0, 1e-9, 5e-11), (2, 0.4, 2e-9, 7e-11)):
        up_bps = 10e6 * np.log2(1 + power * up / (10e6 * noise))
        whole_bps = 20e6 * np.log2(1 + 40 * down / (20e6 * noise))
        shared_bps = 10e6 * np.log2(1 + 20 * down / (10e6 * noise))
        assert took(round_, CA, client) == pytest.approx([smashed_bits / up_bps] * 3)
        assert took(round_, SM, client) == pytest.approx([adapter_bits / whole_bps])
        assert took(round_, SG, client) == pytest.approx([smashed_bits / shared_bps] * 3)


@pytest.mark.parametrize("paradigm", ["cpsfl", "pipesfl", "sfl-pp"])
def test_equal_directions_give_what_one_gain_gives(paradigm: str) -> None:
    rng = np.random.default_rng(1)
    gain = 10 ** rng.uniform(-10, -9, (2, SLOTS))
    chosen = scenario(paradigm=paradigm)
    one = predict(chosen, Replay(ChannelTrace(gain, 0.1)), PAPER)[0]
    two = predict(chosen, Replay(ChannelTrace(gain, 0.1, gain_down=gain.copy())), PAPER)[0]
    assert one.spans.tobytes() == two.spans.tobytes()


@pytest.mark.parametrize("paradigm", ["pipesfl", "cpsfl"])
def test_lags_come_from_the_downlink(paradigm: str) -> None:
    """`pipesfl` orders computing by what a gradient would take: the weaker downlink goes first."""
    trace = constant(gain_up=[1e-9, 2.5e-9], gain_down=[1e-9, 1e-12])
    chosen = scenario(paradigm=paradigm, **{"base_station.compute_flops": 1e11})
    (round_,) = predict(chosen, Replay(trace), PAPER)
    rate = link_rates(
        plan_round(chosen, PAPER, fixed_allocation(chosen)),
        ShannonFdma.of(chosen),
        trace.values[:, :1],
    )
    bits = 8 * 8 * PAPER.smashed_bytes[1]
    assert took(round_, SG, 2) == pytest.approx([bits / rate.gradient[1, 0]] * 3)


def test_silent_links_are_silent_both_ways() -> None:
    faults = object.__new__(RoundFaults)
    object.__setattr__(faults, "silent", [(2, 1, 3)])
    gain = faults.silenced(rates().values[:, :4])
    assert isinstance(gain, TwoWay)
    assert gain.values[:, 1].tolist() == [[4e6, 0, 0, 4e6], [10e6, 0, 0, 10e6]]
    assert (gain.values[:, 0] > 0).all()


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"allocation.beta": [0.3, 0.7]}, "allocation.beta: must be 'equal' where the trace has"),
        ({"allocation.rho": [0.3, 0.7]}, "allocation.rho: must be 'equal' where the trace has"),
    ],
)
def test_what_rates_do_not_say_is_refused(keys: Any, says: str) -> None:
    given = rates().named() | {"slot_s": 0.1}
    with pytest.raises(InputError) as raised:
        tb.predict(scenario(**keys), given)
    assert says in str(raised.value)


def test_the_servers_share_may_still_be_chosen() -> None:
    given = rates().named() | {"slot_s": 0.1}
    assert len(tb.predict(scenario(**{"allocation.alpha": [0.3, 0.7]}), given)) == 1


def test_the_forecast_keeps_directions_apart() -> None:
    trace = constant(gain_up=[1e-9, 2e-9], gain_down=[3e-9, 4e-9])
    made = forecast(scenario(), trace.first(5), 0.4, 6)
    assert isinstance(made, TwoWay)
    assert made[:, -1].values.tolist() == [[1e-9, 2e-9], [3e-9, 4e-9]]


def test_the_planner_plans_for_both_directions() -> None:
    """A downlink that is far weaker moves the best split to where gradients are smallest."""
    keys = {"allocation.policy": "planner", "paradigm": "sfl-pp"}
    balanced = {"gain_up": GAIN[:, :1] * np.ones((2, SLOTS)), "slot_s": 0.1}
    strong = tb.predict(scenario(**keys), balanced | {"gain_down": balanced["gain_up"]})
    weak = tb.predict(scenario(**keys), balanced | {"gain_down": 1e-5 * balanced["gain_up"]})
    assert weak[0].split > strong[0].split


def test_the_bound_knows_both_directions() -> None:
    chosen = scenario()
    costs, radio = split_costs(chosen, PAPER), ShannonFdma.of(chosen)
    at, reached = np.zeros(1), np.full(1, 300.0)
    one = constant(gain=[1e-10, 2e-10]).values
    two = constant(gain_up=[1e-10, 2e-10], gain_down=[1e-10, 2e-10]).values
    weak = constant(gain_up=[1e-10, 2e-10], gain_down=[1e-14, 2e-10]).values
    bounds = [lower_bound(costs, radio, gain, 0.1, at, reached)[0] for gain in (one, two, weak)]
    assert bounds[0] == bounds[1] < bounds[2]


@pytest.mark.parametrize("kind", ["rates", "gains"])
def test_the_theory_takes_both_directions(kind: str) -> None:
    trace = rates() if kind == "rates" else constant(gain_up=[1e-9, 2e-9], gain_down=[3e-9, 4e-9])
    table = claims.run(scenario(), Replay(trace), PAPER)
    equal = [r for r in table.rows if r.claim in ("CPSFL w/o AT = tau_2", "SFL-PP = tau_PP")]
    assert len(equal) == 2
    assert all(abs(row.difference) < 1e-9 for row in equal)
