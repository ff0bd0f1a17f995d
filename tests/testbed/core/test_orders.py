# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Service orders: what is known of a request, how it ranks, and that all who serve agree."""

import heapq
import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from engine_cases import EVERY_ORDER, random_case
from packages import importable, write_package
from small_scenario import TREE

import orchestrator as tb
from ns3_scenarios.trace import ChannelTrace, Replay
from orchestrator.engine.fdma import ShannonFdma
from orchestrator.engine.plan import RoundPlan, link_bytes, prospects_of
from orchestrator.engine.rates import link_rates
from orchestrator.rounds.loop import predict
from orchestrator.rounds.packet_rounds import play as play_packets
from orchestrator.rounds.simulation import service_order_of, simulate, simulate_batch, split_costs
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from testbed.core import orders
from testbed.core.asynchronous_round import AsynchronousRound, Mix, SendAdapters, UpdateArrived
from testbed.core.errors import InputError, RunError
from testbed.core.orders import NO_RANK, Ahead, ServiceRequest, place
from testbed.core.paradigm import Paradigm, paradigm, title_of
from testbed.core.ranks import Outlook, Ranks, Standing
from testbed.core.registry import ORDERS
from testbed.core.server_round import (
    AdaptersArrived,
    BroadcastReceived,
    Compute,
    Computed,
    GradientDelivered,
    SendGradient,
    ServerRound,
    SmashedArrived,
    StartClients,
)
from testbed.core.timeline import SG, S

MODULE = '''
import json

from orchestrator import ServiceRequest


def mixed(asked: ServiceRequest, weight: float = 1.0) -> float:
    """Every number of a request counts, and no client or iteration is number 0."""
    return weight * (
        asked.service_s
        - asked.lag_s
        - 0.3 * asked.iterations / asked.iteration
        - 0.1 * asked.clients / asked.client
        + asked.enqueued_s
        - asked.client_s
        - 0.7 * asked.upload_s
        + asked.server_s
        - asked.gradient_s
        + 0.2 * asked.remaining_s
        + 1e-6 * (asked.gradient_bytes - asked.uplink_bytes + asked.downlink_bytes)
        + 1e-7 * (asked.uplink_bps - asked.downlink_bps)
        + (0.5 if asked.at_downlink else 0.0)
    )


def nothing(asked):
    return float("nan")


def divides(asked):
    return 1 / (asked.client - 3)


def spells(asked):
    return len(json.dumps(asked.client)) + asked.lag_s


def speaks(asked):
    return "first"


def needy(asked, weight):
    return weight * asked.lag_s


gone = 7
'''
ENTRIES = """
[testbed.orders]
mixed = queues:mixed
nothing = queues:nothing
divides = queues:divides
spells = queues:spells
speaks = queues:speaks
needy = queues:needy
gone = queues:gone
larger-lag = queues:mixed
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("packages")
    write_package(place, "queues", MODULE, ENTRIES)
    return place


@pytest.fixture
def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with importable(folder, "queues", monkeypatch):
        yield


# --- what is known -------------------------------------------------------------------------------

AHEAD = Ahead(4, 3, 0.5, 2.0, 1000.0, 5000.0, 3000.0, 8000.0, 4000.0)


def test_a_request_says_lag_service_and_what_remains() -> None:
    at_computing = orders.request(False, 2, 2, 7.0, 0.3, 0.4, 0.5, 0.25, AHEAD)
    assert at_computing.lag_s == pytest.approx(0.3 + 0.4 + 0.25)  # eq. (22)
    assert at_computing.service_s == 0.5
    assert at_computing.remaining_s == pytest.approx(0.5 + 2.0 + 5.0 + 6.0)
    at_downlink = orders.request(True, 2, 2, 7.0, 0.3, 0.4, 0.6, 0.25, AHEAD)
    assert at_downlink.lag_s == pytest.approx(0.3 + 0.4 + 0.6)  # eq. (12)
    assert at_downlink.service_s == 2.0  # 1000 bytes at 4 kbit/s
    assert at_downlink.remaining_s == pytest.approx(2.0 + 5.0 + 6.0)
    assert at_downlink[1:6] == (2, 4, 2, 3, 7.0)


def test_before_the_first_gradient_the_rate_of_the_moment_stands_in() -> None:
    asked = orders.request(False, 1, 1, 0.0, 0.3, 0.4, 0.5, -1.0, AHEAD)
    assert asked.gradient_s == 2.0
    assert asked.lag_s == pytest.approx(0.3 + 0.4 + 2.0)


def test_a_transfer_in_an_outage_takes_longer_than_any_but_is_a_number() -> None:
    asked = orders.request(
        True, 1, 1, 0.0, 0.3, 0.4, 0.5, -1.0, AHEAD._replace(uplink_bps=0.0, downlink_bps=0.0)
    )
    assert asked.service_s == 1e9
    assert math.isfinite(asked.remaining_s)
    assert orders.transfer_s(0.0, 0.0) == 0.0


def test_prospects_count_what_is_left_from_an_iteration_on() -> None:
    has = orders.Prospects(3, (0.1, 1.0), (0.2, 2.0), (0.4, 4.0), (10, 100), (20, 200), (5, 50))
    assert has.ahead(2, 1, 1e6, 2e6) == (2, 3, 4.0, 16.0, 200.0, 250.0, 600.0, 1e6, 2e6)
    assert has.ahead(1, 3, 1e6, 2e6) == (2, 3, 0.4, 0.2, 20.0, 5.0, 20.0, 1e6, 2e6)


def test_before_its_update_a_client_waits_for_its_adapters() -> None:
    has = orders.Prospects(
        2, (0.1, 1.0), (0.2, 2.0), (0.4, 4.0), (10, 100), (20, 200), (5, 50), (2, 3), (7, 70)
    )
    assert has.ahead(2, 0, 1e6, 2e6) == (2, 3, 0.0, 21.0, 70.0, 350.0, 670.0, 1e6, 2e6)
    assert has.ahead(1, 0, 1e6, 2e6)[1:3] == (2, 0.0)


@pytest.mark.parametrize(
    ("order", "served"),
    [
        ("first-come", [1, 2, 3]),
        ("larger-lag", [1, 2, 3]),
        ("shortest-job-first", [3, 2, 1]),
        ("longest-remaining-work-first", [2, 1, 3]),
        ("round-robin", [1, 2, 3]),
    ],
)
def test_adapters_of_an_asynchronous_run_are_sent_in_the_service_order(
    order: str, served: list[int]
) -> None:
    """At the start, the lags of all are 0."""
    has = orders.Prospects(
        *(2, (0.1, 9.0, 0.1), (0.2, 9.0, 0.2), (0.1,) * 3, (10,) * 3, (20,) * 3, (5,) * 3),
        model_bytes=(300, 200, 100),
    )
    scheme = replace(paradigm("asfl-ps"), order=order)
    ahead = Outlook(lambda k, i, at: has.ahead(k, i, 1e6, 1e6), 0.0)
    round_ = AsynchronousRound(scheme, [1, 2, 3], 6, 0.0, outlook=ahead)
    sent = []
    while told := [each for each in round_.instructions() if isinstance(each, SendAdapters)]:
        sent += [each.client for each in told]
        round_.tell(BroadcastReceived(told[0].client, 1.0))
    assert sent == served


def test_lags_of_asynchronous_clients_count_from_their_last_transfer_down() -> None:
    """The adapters of an update have the lag of the last backward pass and the upload."""
    scheme = replace(paradigm("asfl-ps"), order="larger-lag")
    round_ = AsynchronousRound(scheme, [1, 2, 3], 9, 0.0)
    now = 0.0
    for _ in range(3):
        (told,) = round_.instructions()
        now += 1
        round_.tell(BroadcastReceived(told.client, now))
    for client in (1, 2, 3):
        round_.tell(SmashedArrived(client, 1, now, now, 0.0))
    assert {type(told) for told in round_.instructions()} == {Compute}
    round_.tell(Computed(1, 4.0))
    assert round_.instructions() == [SendGradient(1, 1, 4.0)]
    round_.tell(Computed(2, 5.0))  # a lag of 2
    round_.tell(Computed(3, 5.5))  # a lag of 2.5
    round_.tell(GradientDelivered(1, 4.0, 6.0, 6.0))
    round_.tell(UpdateArrived(1, 6.0, 1.5, 0.8))  # a lag of 2.3
    served = []
    while told := [each for each in round_.instructions() if not isinstance(each, Mix)]:
        (one,) = told
        served.append((type(one), one.client))
        round_.tell(
            BroadcastReceived(one.client, 7.0)
            if isinstance(one, SendAdapters)
            else GradientDelivered(one.client, 6.0, 7.0, 7.0)
        )
    assert served == [(SendGradient, 3), (SendAdapters, 1), (SendGradient, 2)]


def test_the_lag_at_computing_has_the_last_gradient_of_the_client() -> None:
    """Before there is one, that of its first estimate; it is kept from update to update."""
    scheme = replace(paradigm("asfl-sp"), order="larger-lag")
    estimates = {1: 3.0, 2: 1.0, 3: 2.0}
    round_ = AsynchronousRound(scheme, [1, 2, 3], 9, 0.0, first_gradient=lambda k, _: estimates[k])
    round_.instructions()

    def served(first: int, now: float, gradients: dict[int, float]) -> list[int]:
        order = []
        for k in (1, 2, 3):
            round_.tell(SmashedArrived(k, first, now, now, 0.5))
        while told := [each for each in round_.instructions() if isinstance(each, Compute)]:
            (one,) = told
            order.append(one.client)
            now += 1
            round_.tell(Computed(one.client, now))
        round_.instructions()
        for k, took in gradients.items():
            round_.tell(GradientDelivered(k, now, now + took, now + took))
        return order

    for k in (1, 2, 3):
        round_.tell(BroadcastReceived(k, 0.5))
    assert served(1, 1.0, {1: 0.1, 2: 0.3, 3: 0.2}) == [1, 3, 2]
    assert served(2, 9.0, {1: 0.1, 2: 0.1, 3: 0.4}) == [2, 3, 1]
    for k in (1, 2, 3):
        round_.tell(UpdateArrived(k, 20.0))
    round_.instructions()
    for k in (1, 2, 3):
        round_.tell(BroadcastReceived(k, 21.0))
    assert served(3, 22.0, {}) == [3, 1, 2]


def test_iterations_count_on_from_update_to_update_but_the_work_left_is_that_of_one() -> None:
    asked: list[tuple[int, int]] = []
    has = orders.Prospects(2, (0.1,), (0.2,), (0.4,), (10,), (20,), (5,), model_bytes=(7,))
    scheme = replace(paradigm("asfl-ps"), order="round-robin")

    def ahead(client: int, iteration: int, _: float) -> Ahead:
        asked.append((client, iteration))
        return has.ahead(client, iteration, 1e6, 1e6)

    round_ = AsynchronousRound(scheme, [1], 2, 0.0, outlook=Outlook(ahead, 0.0))
    for first in (1, 3):
        assert round_.instructions()[-1] == SendAdapters(1, first, 0.0 if first == 1 else 9.0)
        round_.tell(BroadcastReceived(1, 1.0))
        for i in (first, first + 1):
            round_.tell(SmashedArrived(1, i, 1.0, 2.0, 0.5))
            assert round_.instructions() == [Compute(1, i, 2.0)]
            round_.tell(Computed(1, 3.0))
            (told,) = round_.instructions()
            assert isinstance(told, SendGradient)
            round_.tell(GradientDelivered(1, 3.0, 4.0, 4.0))
        round_.tell(UpdateArrived(1, 9.0))
    assert asked == [(1, 0), (1, 1), (1, 2)] * 2


def test_the_rank_of_adapters_is_that_of_the_first_iteration_of_their_update() -> None:
    seen: list[ServiceRequest] = []
    has = orders.Prospects(2, (0.1,), (0.2,), (0.4,), (10,), (20,), (5,), model_bytes=(500,))
    outlook = Outlook(lambda k, i, at: has.ahead(k, i, 1e3, 1e3), 1.0)
    ranks = Ranks(replace(paradigm("asfl-ps"), order="round-robin"), lambda k, at: 0.0, outlook)
    ranks._rank_of = lambda request: float(seen.append(request) or 0)
    ranks.rank("transmit", 1, Standing(2, 3, 0.2, 0.6, 0.1, compute_start=5.0), 5.0)
    (request,) = seen
    assert (request.iteration, request.iterations, request.enqueued_s) == (3, 2, 4.0)
    assert (request.server_s, request.lag_s) == (0.0, pytest.approx(0.8))
    assert (request.service_s, request.gradient_bytes) == (4.0, 500)
    work_s, up_s, down_s = 2 * (0.1 + 0.2 + 0.4), 8 * (5 + 2 * 10) / 1e3, 8 * (500 + 2 * 20) / 1e3
    assert request.remaining_s == pytest.approx(work_s + up_s + down_s)


def test_ranks_are_compared_in_steps_of_a_billionth() -> None:
    assert place(0.1 + 0.2) == place(0.3) == 300_000_000
    assert place(0.3) < place(0.3 + 2e-9)
    assert place(math.inf) == place(1e300) == 9 * 10**18
    assert place(-math.inf) == -9 * 10**18 > NO_RANK
    assert place(math.nan) == NO_RANK


def test_round_robin_gives_everybody_a_turn_before_anybody_a_second() -> None:
    def turn(client: int, iteration: int) -> float:
        ahead = AHEAD._replace(clients=3)
        return orders.round_robin(orders.request(True, client, iteration, 0, 0, 0, 0, 0, ahead))

    turns = [(k, i) for k in (3, 2, 1) for i in (1, 2, 3)]
    in_turn = [(k, i) for i in (1, 2, 3) for k in (1, 2, 3)]
    assert sorted(turns, key=lambda of: turn(*of)) == in_turn


# --- all who serve agree -------------------------------------------------------------------------


def play(plan: RoundPlan, radio, gain, slot_s: float) -> dict[tuple[int, int, str], float]:
    """A round as a base station without network plays it: when S and SG start."""
    edges_s = np.arange(gain.shape[1] + 1) * slot_s
    rates = link_rates(plan, radio, gain)

    def sent(row: np.ndarray, start_s: float, size: float) -> float:
        bits = np.concatenate(([0.0], np.cumsum(row * slot_s)))
        due = np.interp(start_s, edges_s, bits) + 8 * size
        return start_s if size == 0 else float(np.interp(due, bits, edges_s))

    prospects = prospects_of(plan)

    def ahead(k: int, i: int, at: float) -> Ahead:
        slot = int(at / slot_s)
        return prospects.ahead(k, i, rates.uplink[k - 1, slot], rates.gradient[k - 1, slot])

    def first(k: int, at: float) -> float:
        return 8 * plan.sg_bytes[k - 1, 0] / rates.gradient[k - 1, int(at / slot_s)]

    clients = range(1, plan.clients + 1)
    round_ = ServerRound(plan.paradigm, clients, first, outlook=Outlook(ahead, 0.0))
    due: list[tuple[float, int, object]] = []
    started: dict[tuple[int, int, str], float] = {}
    serial = itertools.count()

    def at(time_s: float, event: object) -> None:
        heapq.heappush(due, (time_s, next(serial), event))

    def forward(k: int, i: int, now: float) -> None:
        cf, cb = plan.cf_s[k - 1, 0], plan.cb_s[k - 1, 0]
        busy = cf + (cb if i > 1 else plan.backward_ratio * cf)
        end = sent(rates.uplink[k - 1], now + cf, plan.ca_bytes[k - 1, 0])
        at(end, SmashedArrived(k, i, now + cf, end, busy))

    for k in clients:
        end = sent(rates.broadcast[k - 1], 0.0, plan.sm_bytes[k - 1])
        at(end, BroadcastReceived(k, end))
    iteration = dict.fromkeys(clients, 1)
    while not round_.is_over:
        _, _, event = heapq.heappop(due)
        round_.tell(event)
        if isinstance(event, GradientDelivered):
            k, then = event.client, event.arrived + plan.cb_s[event.client - 1, 0]
            iteration[k] += 1
            if iteration[k] <= plan.iterations:
                forward(k, iteration[k], then)
            else:
                at(then, AdaptersArrived(k))
        for begins in round_.instructions():
            match begins:
                case StartClients(who, start_s):
                    for k in who:
                        forward(k, 1, start_s)
                case Compute(k, i, start_s):
                    started[k, i, "S"] = start_s
                    end = start_s + plan.s_s[k - 1, 0]
                    at(end, Computed(k, end))
                case SendGradient(k, i, start_s):
                    started[k, i, "SG"] = start_s
                    end = sent(rates.gradient[k - 1], start_s, plan.sg_bytes[k - 1, 0])
                    at(end, GradientDelivered(k, start_s, end, end))
    return started


def steady(plan: RoundPlan) -> RoundPlan:
    """The plan with every iteration as the first."""
    names = ("cf_s", "cb_s", "s_s", "ca_bytes", "sg_bytes")
    same = {n: np.repeat(getattr(plan, n)[:, :1], plan.iterations, axis=1) for n in names}
    return replace(plan, **same)


def assert_alike(scheme: Paradigm, seed: int, cases: int = 12) -> None:
    """Engine and protocol serve random rounds in the same order, at the same times."""
    rng, played = np.random.default_rng(seed), 0
    while played < cases:
        plan, radio, gain, slot_s, _ = random_case(rng, scheme)
        if plan.clients < 2 or len(np.unique(plan.cf_s)) == 1:
            continue  # where all are equal, floats break ties that nanoseconds keep
        plan, gain = steady(plan), np.where(gain == 0, 1e-12, gain)
        gain = np.concatenate([gain] * 4, axis=1)
        times = simulate(plan, radio, gain, slot_s)
        mine = {
            (int(span["client"]), int(span["iteration"]), "S" if span["step"] == S else "SG"): span
            for span in times.spans
            if span["step"] in (S, SG)
        }
        started = play(plan, radio, gain, slot_s)
        assert started.keys() == mine.keys()
        for step, start_s in started.items():
            assert start_s == pytest.approx(mine[step]["start_s"], abs=1e-6)
        played += 1


@pytest.mark.parametrize("scheme", EVERY_ORDER, ids=lambda scheme: scheme.name)
def test_base_station_and_engine_serve_alike(scheme: Paradigm) -> None:
    assert_alike(scheme, 4000 + EVERY_ORDER.index(scheme))


@pytest.mark.usefixtures("installed")
def test_a_packages_order_serves_alike_whatever_it_asks() -> None:
    for n, sharing in enumerate((("parallel", "sequential"), ("sequential", "sequential"))):
        own = Paradigm("own", "OWN", *sharing, "mixed", order_parameters=(("weight", -2.0),))
        assert_alike(own, 5000 + n)


def scenario_of(**keys: object) -> Scenario:
    return validate({**TREE, **keys}, "test")


def channel() -> Replay:
    rng = np.random.default_rng(3)
    mean = 10 ** -np.linspace(9.0, 10.3, 3)[:, None]
    return Replay(ChannelTrace(mean * rng.lognormal(0, 0.8, (3, 4000)), 0.1))


@pytest.mark.parametrize("order", orders.BUILT_IN)
@pytest.mark.parametrize("name", ["cpsfl", "pipesfl"])
def test_packets_are_served_as_the_engine_says(name: str, order: str) -> None:
    scenario = scenario_of(paradigm=name, order=order, rounds=2)
    profile = profile_of(scenario)
    wire = predict(scenario, channel(), profile, sizing=link_bytes)
    played = play_packets(scenario, channel(), profile).timeline
    for got, due in zip(played, wire, strict=True):
        assert got.latency_s == pytest.approx(due.latency_s, rel=2e-3)
        got_turns, due_turns = (service_order_of(r.spans, 3, 2) for r in (got, due))
        station = 1 if name == "cpsfl" else 0
        assert (got_turns[station] == due_turns[station]).all()


@pytest.mark.parametrize("order", [*orders.BUILT_IN, "first-come"])
def test_a_batch_and_one_round_have_the_same_order(order: str) -> None:
    scenario = scenario_of(order=order)
    costs, equal = split_costs(scenario, profile_of(scenario)), np.full((1, 3), 1 / 3)
    gain = channel().trace(400).gain
    batch = simulate_batch(
        costs, ShannonFdma.of(scenario), gain, 0.1, 0.0, np.array([3]), equal, equal, equal
    )
    alone = predict(scenario, channel(), profile_of(scenario)).rounds[0]
    assert batch.latency_s[0] == alone.latency_s


def test_the_scenarios_order_goes_before_the_paradigms() -> None:
    assert scenario_of().scheme == paradigm("cpsfl")
    plain, fcfs = scenario_of(paradigm="cpsfl-no-ps"), scenario_of(order="first-come")
    assert fcfs.scheme.title == title_of("cpsfl", "first-come") == "CPSFL, first-come"
    assert title_of("of-a-package", "first-come") == "of-a-package, first-come"
    found = [predict(s, channel(), profile_of(s)).rounds[0].latency_s for s in (plain, fcfs)]
    assert found[0] == found[1]
    assert "order" not in scenario_of().model_dump()
    assert scenario_of(order="round-robin").model_dump()["order"] == "round-robin"


# --- what does not fit ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"order": "lifo"}, "order: 'lifo' is not one of"),
        ({"order": "round-robin", "order_parameters": {"a": 1}}, "'round-robin' has no parameters"),
        ({"order_parameters": {"a": 1}}, "order_parameters: belong to an order"),
        ({"order": "mixed", "order_parameters": {"hue": 1}}, "order_parameters.hue: 'mixed' has"),
        ({"order": "mixed", "order_parameters": {"weight": "a"}}, "order_parameters.weight: "),
        ({"order": "needy"}, "order_parameters.weight: is missing; 'needy' needs it"),
        ({"order": "speaks"}, "order: plugin 'speaks' (queues:speaks) must return a number"),
        ({"order": "gone"}, "order: plugin 'gone' (queues:gone) is no function: 7"),
    ],
)
@pytest.mark.usefixtures("installed")
def test_what_is_no_order_is_refused_in_one_line(keys: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)) as refused:
        scenario_of(**keys)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("order", "says"),
    [
        ("spells", "order: plugin 'spells' (queues:spells) cannot be compiled by numba: "),
        ("nothing", "order: plugin 'nothing' (queues:nothing) fails, or does not return a number"),
        ("divides", "order: plugin 'divides' (queues:divides) fails, or does not return a number"),
    ],
)
@pytest.mark.usefixtures("installed")
def test_what_the_engine_cannot_ask_is_refused_in_one_line(order: str, says: str) -> None:
    scenario = scenario_of(order=order)
    with pytest.raises(InputError, match=re.escape(says)) as refused:
        predict(scenario, channel(), profile_of(scenario))
    assert "\n" not in str(refused.value)


@pytest.mark.usefixtures("installed")
def test_the_base_station_serves_nobody_by_no_number() -> None:
    scheme = replace(paradigm("cpsfl"), order="nothing")
    round_ = ServerRound(
        scheme, (1,), lambda k, at: 0.0, outlook=Outlook(lambda k, i, at: AHEAD, 0.0)
    )
    round_.tell(BroadcastReceived(1, 1.0))
    round_.instructions()
    round_.tell(SmashedArrived(1, 1, 1.5, 2.0, 0.3))
    with pytest.raises(RunError, match="order: 'nothing' returned nan"):
        round_.tell(Computed(1, 3.0))


@pytest.mark.usefixtures("installed")
def test_names_of_the_papers_orders_cannot_be_taken() -> None:
    assert orders.rank_of("larger-lag", {}) is None
    assert ORDERS.names().count("larger-lag") == 1


def test_the_request_is_in_the_public_api() -> None:
    assert tb.ServiceRequest is ServiceRequest
