# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rounds with gates before adapters, sequential uploads and aggregated gradients."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from small_scenario import TREE

import orchestrator as tb
from ns3_scenarios.trace import ChannelTrace, Replay
from orchestrator.engine.plan import (
    Sizing,
    fixed_allocation,
    link_bytes,
    payload_bytes,
    plan_round,
    round_sizes,
)
from orchestrator.engine.radio import radio_access
from orchestrator.engine.rates import link_rates
from orchestrator.rounds.fedcs import greedy
from orchestrator.rounds.loop import predict
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import profile_of
from testbed.core.errors import InputError
from testbed.core.timeline import CA, CB, CF, CM, SG, SM, Round, S

GAIN = np.array([3e-10, 2e-10, 1e-10])
GATE = {"uploads": {"adapters_wait_for_all": True}}
IN_TURN = {"uploads": {"sharing": "sequential"}}
SPANS = ("start_s", "end_s")


def small(**keys: Any) -> tb.Scenario:
    workload = TREE["workload"] | keys.pop("workload", {})
    return validate(TREE | {"workload": workload} | keys, "test")


def played(scenario: tb.Scenario, rounds: int = 1, sizing: Sizing = payload_bytes) -> list[Round]:
    source = Replay(ChannelTrace(np.repeat(GAIN[:, None], 3000, 1), 0.1))
    return list(predict(scenario, source, profile_of(scenario), rounds=rounds, sizing=sizing))


def steps(round_: Round, step: int, edge: str) -> npt.NDArray[np.float64]:
    """Starts or ends of a step by client and iteration."""
    of_step = np.sort(round_.spans[round_.spans["step"] == step], order=["client", "iteration"])
    return np.asarray(of_step[edge]).reshape(len(GAIN), -1)


def durations(round_: Round, step: int) -> npt.NDArray[np.float64]:
    return steps(round_, step, "end_s") - steps(round_, step, "start_s")


# --- a gate before the upload of adapters ---------------------------------------------------------


def test_adapters_wait_until_all_have_finished_their_last_backward_pass() -> None:
    (free,), (gated,) = (played(small(paradigm="sfl-pp", **keys)) for keys in ({}, GATE))
    for step in (SM, CF, CA, S, SG, CB):
        for edge in SPANS:
            assert (steps(gated, step, edge) == steps(free, step, edge)).all()
    at_s = steps(gated, CB, "end_s").max()
    assert (steps(gated, CM, "start_s") == at_s).all()
    assert durations(gated, CM) == pytest.approx(durations(free, CM))
    assert gated.latency_s == pytest.approx(at_s + durations(free, CM).max())
    assert gated.energy_j == pytest.approx(free.energy_j)


def test_a_gate_opens_when_a_lost_client_no_longer_counts() -> None:
    crash = {"kind": "uav-crash", "nodes": ["uav2"], "at_s": 0.5}
    faults = {"on_loss": "drop", "loss_timeout_s": 0.9, "events": [crash]}
    (round_,) = played(small(paradigm="sfl-pp", faults=faults, **GATE))
    assert [loss.client for loss in round_.lost] == [2]
    uploads = round_.spans[round_.spans["step"] == CM]
    assert uploads["client"].tolist() == [1, 3]
    assert uploads["start_s"] == pytest.approx(np.full(2, 1.4))


def test_with_delay_a_gate_opens_once_the_base_station_has_heard_of_all() -> None:
    links = {"links": {"one_way_delay_s": 0.02}}
    scenario = small(paradigm="sfl-pp", **GATE, **links)
    (round_,) = played(scenario, sizing=link_bytes)
    last_s = steps(round_, CB, "end_s").max()
    # The credit of the links makes up for 3.85 ms of the report and the permission.
    assert steps(round_, CM, "start_s") == pytest.approx(np.full((3, 1), last_s + 0.04 - 0.00385))
    scenario = small(paradigm="sfl-pp", **GATE, links={"one_way_delay_s": 0.001})
    (round_,) = played(scenario, sizing=link_bytes)
    last_s = steps(round_, CB, "end_s").max()
    assert (steps(round_, CM, "start_s") == last_s).all(), "never earlier than permitted"


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_with_delay_a_step_does_not_end_before_its_client_is_told_to_begin(share: float) -> None:
    """All have begun at the same time, and those that compute faster wait for the message."""
    profile = TREE["workload"]["profile"] | {"client_forward_flops": [1.0] * 4}
    workload = {"profile": profile, "gradient_aggregation": share}
    links = {"one_way_delay_s": {"up": 0.03, "down": 0.02}}
    scenario = small(paradigm="sfl-sp", workload=workload, links=links)
    (round_,) = played(scenario, sizing=link_bytes)
    assert durations(round_, CF)[:, 0] == pytest.approx(np.full(3, 0.05))
    assert durations(round_, CF)[:, 1] == pytest.approx(np.zeros(3), abs=1e-9)
    due_s = 0.05 if share else 0.0
    assert durations(round_, CB) == pytest.approx(np.full((3, 2), due_s), abs=1e-9)


# --- sequential uploads ---------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["first-come", "scheduled"])
def test_sequential_uploads_have_the_whole_band_one_after_the_other(order: str) -> None:
    scenario = small(paradigm="sfl-pp", uploads={"sharing": "sequential", "order": order})
    (round_,) = played(scenario)
    uploads = np.sort(
        round_.spans[np.isin(round_.spans["step"], (CA, CM))], order=["start_s", "end_s"]
    )
    assert (uploads["start_s"][1:] >= uploads["end_s"][:-1]).all()
    hz, noise_w = 4e6, 1e-3 * 10 ** (scenario.radio.noise_dbm_per_mhz / 10) * 4
    bps = hz * np.log2(1 + scenario.fleet.tx_power_w * GAIN / noise_w)
    took_s = 8 * uploads["bytes"] / bps[uploads["client"] - 1]
    assert uploads["end_s"] - uploads["start_s"] == pytest.approx(took_s)
    seen = uploads["client"].tolist()
    ready_s = {
        (client, step): steps(round_, before, "end_s")[client - 1]
        for client in (1, 2, 3)
        for step, before in ((CA, CF), (CM, CB))
    }
    asked_s = [ready_s[row["client"], row["step"]][row["iteration"] - 1] for row in uploads]
    free_s = np.concatenate([[0.0], uploads["end_s"][:-1]])
    assert uploads["start_s"] == pytest.approx(np.maximum(asked_s, free_s))
    if order == "scheduled":
        assert seen == [1, 2, 3] * 3
    else:
        # The client that asked first is served first.
        for place, at_s in enumerate(uploads["start_s"]):
            waiting = [ask for ask in asked_s[place:] if ask <= at_s]
            assert asked_s[place] == min(waiting)
    assert round_.energy_j == pytest.approx(
        scenario.fleet.compute_power_w * (durations(round_, CF) + durations(round_, CB)).sum(1)
        + scenario.fleet.tx_power_w * (durations(round_, CA).sum(1) + durations(round_, CM).sum(1))
    )


def test_scheduled_uploads_skip_lost_clients() -> None:
    crash = {"kind": "uav-crash", "nodes": ["uav1"], "at_s": 0.3}
    faults = {"on_loss": "drop", "loss_timeout_s": 0.5, "events": [crash]}
    uploads = {"sharing": "sequential", "order": "scheduled"}
    (round_,) = played(small(paradigm="sfl-pp", uploads=uploads, faults=faults))
    uploads = np.sort(round_.spans[np.isin(round_.spans["step"], (CA, CM))], order="start_s")
    assert uploads["client"][uploads["step"] == CM].tolist() == [2, 3]
    others = uploads[uploads["client"] != 1]
    assert (others["start_s"][1:] >= others["end_s"][:-1]).all()
    (loss,) = round_.lost
    (waited,) = (row for row in others if row["client"] == 2 and row["start_s"] == loss.lost_s)
    assert waited["step"] == CA


@pytest.mark.parametrize(
    ("gate", "order"),
    [
        (False, [1, 2, 3, 1, 2, 3, 2, 2]),  # UAVs 1 and 3 have had their last turn after six.
        (True, [1, 2, 3, 2, 2, 1, 2, 3]),  # Their adapters wait at the gate, not their turns.
    ],
)
def test_scheduled_uploads_skip_clients_with_fewer_iterations(gate: bool, order: list[int]) -> None:
    uploads = {"sharing": "sequential", "order": "scheduled", "adapters_wait_for_all": gate}
    iterations = {"local_iterations": [1, 3, 1]}
    (round_,) = played(small(paradigm="sfl-ps", uploads=uploads, workload=iterations))
    made = np.sort(round_.spans[np.isin(round_.spans["step"], (CA, CM))], order="start_s")
    assert made["client"].tolist() == order
    assert (made["start_s"][1:] >= made["end_s"][:-1]).all()


def test_smashed_data_without_payload_do_not_wait_for_their_turn() -> None:
    profile = TREE["workload"]["profile"] | {"smashed_bytes": [400000, 200000, 0, 50000]}
    scenario = small(paradigm="sfl-pp", workload={"profile": profile}, **IN_TURN)
    for sizing in (payload_bytes, link_bytes):
        (round_,) = played(scenario, sizing=sizing)
        assert (steps(round_, CA, "start_s") == steps(round_, CF, "end_s")).all()
    assert payload_bytes(scenario, profile_of(scenario), 3).smashed == 0


# --- aggregated gradients -------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "shared"), [(0.25, 1), (0.3, 2), (0.5, 2), (1.0, 4)])
@pytest.mark.parametrize("name", ["sfl-sp", "sfl-ps"])
def test_aggregated_gradients_are_broadcast_before_the_others(
    share: float, shared: int, name: str
) -> None:
    workload = {"batch_size": 4, "gradient_aggregation": share}
    scenario = small(paradigm=name, workload=workload)
    assert scenario.workload.aggregated_samples == shared
    (round_,) = played(scenario)
    plan = plan_round(scenario, profile_of(scenario), fixed_allocation(scenario))
    rates = link_rates(
        plan, radio_access(scenario, ChannelTrace(GAIN[:, None], 0.1)), GAIN[:, None]
    )
    broadcast_s = 8 * 100_000 * shared / rates.broadcast[:, 0]
    own_s = 8 * 100_000 * (4 - shared) / rates.gradient[:, 0]
    for i in range(2):
        began_s = steps(round_, S, "end_s")[:, i].max()
        assert steps(round_, SG, "start_s")[:, i] == pytest.approx(np.full(3, began_s))
        together_s = began_s + broadcast_s.max()
        due_s = together_s + own_s
        if shared == 4:
            due_s = began_s + broadcast_s
        elif name == "sfl-ps":
            due_s = together_s + own_s.cumsum()
            order = np.argsort(steps(round_, SG, "end_s")[:, i])
            due_s[order] = together_s + own_s[order].cumsum()
        assert steps(round_, SG, "end_s")[:, i] == pytest.approx(due_s)
        starts_s = np.full(3, together_s) if shared == 4 else due_s
        assert steps(round_, CB, "start_s")[:, i] == pytest.approx(starts_s)
    backward = 2.0 * (4 - shared + shared / 3)
    per_client = 1 if name == "sfl-sp" else 3
    work_s = per_client * (4 + backward) * 2e12 / scenario.base_station.compute_flops
    assert durations(round_, S) == pytest.approx(np.full((3, 2), work_s))
    assert set(round_.spans["bytes"][round_.spans["step"] == SG]) == {400_000}


def test_sizes_of_aggregated_gradients_are_those_of_the_codec() -> None:
    codec = {"wire_dtype": "int8", "wire_parameters": {"block": 1000}}
    workload = {"batch_size": 4, "gradient_aggregation": 0.75} | codec
    scenario = small(paradigm="sfl-sp", workload=workload)
    sizes = round_sizes(scenario, profile_of(scenario), 3)
    assert (sizes.shared_gradient, sizes.gradient) == (75_000 + 4 * 75, 25_000 + 4 * 25)
    assert sizes.smashed == 100_000 + 4 * 100
    plain = round_sizes(small(paradigm="sfl-sp"), profile_of(scenario), 3)
    assert (plain.shared_gradient, plain.gradient) == (0, plain.smashed)


def test_the_backward_pass_of_aggregated_samples_is_shared_by_those_that_take_part() -> None:
    workload = {"batch_size": 4, "gradient_aggregation": 1.0}
    scenario = small(paradigm="sfl-sp", workload=workload, participation={"clients": 2})
    (round_,) = played(scenario)
    took_s = round_.spans[round_.spans["step"] == S]
    work_s = (4 + 2.0 * 4 / 2) * 2e12 / scenario.base_station.compute_flops
    assert took_s["end_s"] - took_s["start_s"] == pytest.approx(np.full(4, work_s))


@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize("at_s", [0.05, 0.3, 0.6, 0.9, 1.2, 1.5])
def test_aggregation_goes_on_without_lost_clients(share: float, at_s: float) -> None:
    crash = {"kind": "uav-crash", "nodes": ["uav2"], "at_s": at_s}
    faults = {"on_loss": "drop", "loss_timeout_s": 0.4, "events": [crash]}
    workload = {"batch_size": 4, "gradient_aggregation": share}
    (round_,) = played(small(paradigm="sfl-sp", workload=workload, faults=faults))
    finished = round_.spans[round_.spans["step"] == CM]["client"].tolist()
    lost = [loss.client for loss in round_.lost]
    assert sorted([*finished, *lost]) == [1, 2, 3]
    assert np.isfinite(round_.spans["end_s"]).all()


# --- FedCS ----------------------------------------------------------------------------------------


def test_greedy_choice_by_hand() -> None:
    broadcast_s, update_s, upload_s = [0.1, 0.1, 2.0], [1.0, 3.0, 1.5], [1.0, 0.1, 1.15]
    everyone = [1, 2, 3]
    # 1 ends at 2, then 2 (waits until 3) at 3.1; 3 would end at 4.25, after a broadcast of 2 s.
    assert greedy(everyone, broadcast_s, update_s, upload_s, 9.0) == [1, 2, 3]
    assert greedy(everyone, broadcast_s, update_s, upload_s, 6.3) == [1, 2, 3]
    assert greedy(everyone, broadcast_s, update_s, upload_s, 6.2) == [1, 2]
    assert greedy(everyone, broadcast_s, update_s, upload_s, 3.0) == [1]
    assert greedy(everyone, broadcast_s, update_s, upload_s, 0.5) == [1]
    assert greedy([2, 3], broadcast_s, update_s, upload_s, 9.0) == [2, 3]


def test_fedcs_ends_rounds_in_time_with_candidates_by_seed() -> None:
    profile = {
        "client_forward_flops": [5e11],
        "server_forward_flops": [0],
        "adapter_bytes": [200_000],
        "smashed_bytes": [0],
    }
    uploads = {"sharing": "sequential", "order": "scheduled"}

    def chosen(round_s: float, clients: int | None = None) -> list[set[int]]:
        participation = {"rule": "fedcs", "parameters": {"round_s": round_s}, "clients": clients}
        rounds = played(
            small(
                workload={"split": 1, "profile": profile},
                uploads=uploads,
                participation=participation,
            ),
            rounds=8,
        )
        if round_s > 2:
            assert all(round_.latency_s < round_s for round_ in rounds)
        return [set(round_.spans["client"].tolist()) for round_ in rounds]

    assert chosen(60.0) == [{1, 2, 3}] * 8
    few = chosen(2.49)
    assert few == [few[0]] * 8
    assert 0 < len(few[0]) < 3
    drawn = chosen(60.0, 2)
    assert {len(clients) for clients in drawn} == {2}
    assert len({tuple(sorted(clients)) for clients in drawn}) > 1
    assert {len(clients) for clients in chosen(0.001)} == {1}


# --- what is refused ------------------------------------------------------------------------------

AGGREGATES = {"gradient_aggregation": 0.5}
EMPTY = TREE["workload"]["profile"] | {"smashed_bytes": [0, 0, 0, 0]}


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"paradigm": "cpsfl", "workload": AGGREGATES}, "workload.gradient_aggregation: must be"),
        ({"paradigm": "asfl-ps", "workload": AGGREGATES}, "workload.gradient_aggregation: must be"),
        ({"paradigm": "asfl-ps", **GATE}, "uploads.adapters_wait_for_all: must be fa"),
        ({"uploads": {"order": "scheduled"}}, "uploads.order: must not be 'scheduled' where"),
        ({"uploads": {"sharing": "both"}}, "uploads.sharing: "),
        ({"uploads": {"turns": 3}}, "uploads.turns: "),
        ({"workload": {"gradient_aggregation": 1.1}}, "workload.gradient_aggregation: "),
        ({"workload": {"gradient_aggregation": -0.1}}, "workload.gradient_aggregation: "),
        (
            {"paradigm": "sfl-sp", "workload": AGGREGATES | {"split": [1, 2, 3]}},
            "workload.split: must be one number",
        ),
        (
            {"paradigm": "sfl-sp", "workload": AGGREGATES | {"compute_time": "measured"}},
            "workload.compute_time: must be 'modelled'",
        ),
        (
            {"paradigm": "sfl-sp", "workload": AGGREGATES | {"profile": EMPTY}},
            "workload.profile.smashed_bytes: must not be 0",
        ),
        ({"participation": {"rule": "fedcs"}, **IN_TURN}, "participation.parameters.round_s"),
        (
            {"participation": {"rule": "fedcs", "parameters": {"round_s": 1.0}}},
            "participation.rule: must not be 'fedcs' where uploads.sharing is not 'sequential'",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_by_its_key(keys: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError) as refused:
        small(**keys)
    assert str(refused.value).startswith(f"test: {named}"), refused.value
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("round_s", [0, -1.0, "soon", True, float("nan")])
def test_a_round_of_fedcs_lasts_a_positive_time(round_s: Any) -> None:
    section = {"rule": "fedcs", "parameters": {"round_s": round_s}}
    with pytest.raises(InputError, match=r"participation\.parameters\.round_s: "):
        small(participation=section, **IN_TURN)


def test_default_scenarios_say_nothing_of_protocols() -> None:
    tree = small().model_dump()
    assert "uploads" not in tree
    assert "gradient_aggregation" not in tree["workload"]
    assert small(uploads={}).scheme.is_plain
