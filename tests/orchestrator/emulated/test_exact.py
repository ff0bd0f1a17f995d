# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rounds on real links, held against their prediction step by step, in virtual time.

There nobody wakes up late: what is asked for here would be luck by the real clock.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from exact import RESUMED_S, SMALL, Played, Run, assert_exact, each, played, result, spans, wanted
from small_scenario import trace_of_rates

import orchestrator as tb
from orchestrator.analysis.byte_accounts import BYTES, RESENT
from testbed.core.paradigm import ASYNCHRONOUS, BUILT_IN
from testbed.core.timeline import STEPS
from testbed.network.pcap import frames

pytestmark = [pytest.mark.guest, pytest.mark.timeout(1200)]

FLEET: dict[str, Any] = SMALL | {
    "paradigm": "pipesfl",
    "uavs": SMALL["uavs"] | {"compute_flops": [2e12, 1e12, 4e12], "compute_power_w": [10, 20, 40]},
    "base_station": {"compute_flops": 2e13},
}
"""UAVs that differ, and a server that they wait for; benchmarks/orders.py plays every order."""
LTE: dict[str, Any] = FLEET | {
    "radio": {"access": "lte", "uplink_bandwidth_hz": 5e6, "downlink_bandwidth_hz": 5e6},
    "workload": SMALL["workload"] | {"batch_size": 20},
    "base_station": {"compute_flops": 2e15},
}
"""Links that divide both directions of an LTE cell."""
FAULTS: dict[str, Any] = {
    "on_loss": "drop",
    "events": [
        {"kind": "link-outage", "nodes": ["uav2"], "at_s": 1.2, "duration_s": 1.5},
        {"kind": "uav-crash", "nodes": ["uav3"], "at_s": 4.0},
    ],
}
SERVED = [(1, 1), (3, 1), (2, 1), (1, 2), (3, 2), (2, 2)]
"""Client and iteration, the shortest job first; by larger lag it would be another order."""
PARADIGMS = [paradigm.name for paradigm in BUILT_IN]
OTHERS: dict[str, dict[str, Any]] = {
    "tls": {"transport": "tls"},
    "grpc": {"transport": "grpc"},
    "payload": {"rate_counts": "payload", "mtu": 1000},
}
"""Ways to carry a round."""
WITHOUT_ROUNDS = [paradigm.name for paradigm in ASYNCHRONOUS]
LONG = {*PARADIGMS, *OTHERS, *WITHOUT_ROUNDS, "semi", "red", "lte-faults"} - {
    *("pipesfl", "asfl-ps", "grpc"),
}
"""What `make test` leaves to `full`: it differs from others by a gate, an order or a header."""
UPDATES = 8
ORDER = "shortest-job-first"
UNEQUAL = {"tx_power_w": [1.0, 0.4, 0.1], "compute_flops": [2.5e12, 0.3e12, 0.1e12]}
OWN: dict[str, Any] = {
    "local_iterations": [1, 3, 2],
    "batch_size": [2, 1, 3],
    "codecs": {
        "adapters_up": {"name": "top-k", "share": 0.5},
        "adapters_down": "float16",
        "gradient": "bfloat16",
    },
}
"""Clients that differ, and a codec for each direction."""
AIR = {
    "one_way_delay_s": {"up": 0.01, "down": 0.02},
    # Some 2 %, in each slot another probability.
    "loss": {"up": {"model": "snr", "table": [[-20, 0.05], [60, 0]]}},
}


def runs() -> Iterator[Run]:
    for name in PARADIGMS:
        yield name, SMALL | {"paradigm": name}, []
    yield "shortest", FLEET | {"order": "shortest-job-first"}, []
    yield "own", SMALL | {"paradigm": "sfl-ps", "workload": SMALL["workload"] | OWN}, []
    for name, keys in OTHERS.items():
        yield name, SMALL | {"emulation": SMALL["emulation"] | keys}, []
    yield "outage", SMALL, ["--trace", "outage.npz", "--out", "outage"]
    workload = SMALL["workload"] | {"asynchronous": {"updates": UPDATES}}
    semi = {"updates": UPDATES, "buffer": 2, "start": "after-aggregation"}
    keys = {"paradigm": "asfl-ps", "rounds": 2, "uavs": UNEQUAL}
    yield "semi", SMALL | keys | {"workload": SMALL["workload"] | {"asynchronous": semi}}, []
    for name in WITHOUT_ROUNDS:
        keys = {"paradigm": name, "rounds": 2, "uavs": UNEQUAL, "workload": workload}
        yield name, SMALL | keys, []
    yield "air", SMALL | {"links": AIR}, ["--out", "air"]
    quic = SMALL | {"emulation": SMALL["emulation"] | {"transport": "quic"}}
    yield "quic", quic, ["--capture", "--out", "quic"]
    keys = {"links": {"one_way_delay_s": 0.02}, "uploads": {"sharing": "sequential"}}
    opening = {"emulation": SMALL["emulation"] | {"connection": "per-transfer"}}
    yield "opening", SMALL | keys | opening, []
    yield "red", SMALL | {"links": {"queue": "red", "ecn": True}}, []
    yield "lte", LTE, ["--out", "lte"]
    yield "lte-faults", LTE | {"faults": FAULTS}, []
    yield "rates", SMALL | {"order": ORDER}, ["--trace", "rates.npz", "--out", "rates"]


@pytest.fixture(scope="module")
def all_played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("exact")
    gain = np.full((3, 800), 1e-9)
    gain[1, 8:48] = 0  # UAV 2 is away from 0.4 s to 2.4 s, which meets an upload.
    np.savez(folder / "outage.npz", gain=gain, slot_s=0.05)
    np.savez(folder / "rates.npz", **trace_of_rates())
    return played(folder, wanted(request, runs(), LONG))


@pytest.mark.parametrize("name", each(PARADIGMS, LONG))
def test_every_step_of_every_paradigm_begins_and_ends_as_predicted(
    all_played: Played, name: str
) -> None:
    run = result(all_played, name)
    assert run["valid"]
    assert_exact(run)
    (predicted,), (measured,) = run["predicted_wire"], run["measured"]
    assert measured["paradigm"] == name
    assert measured["latency_s"] == pytest.approx(predicted["latency_s"], rel=1e-3)
    assert measured["energy_j"] == pytest.approx(predicted["energy_j"], rel=1e-3)
    assert measured["latency_s"] > run["predicted"][0]["latency_s"]


def test_so_do_those_of_a_fleet_that_differs_in_another_order(all_played: Played) -> None:
    run = result(all_played, "shortest")
    assert run["valid"]
    assert_exact(run)
    (predicted,), (measured,) = run["predicted_wire"], run["measured"]
    assert measured["energy_j"] == pytest.approx(predicted["energy_j"], rel=1e-3)
    for moments in map(spans, (predicted, measured)):
        served = [key[:2] for key in sorted(moments, key=moments.__getitem__) if key[2] == "S"]
        assert served == SERVED


def test_so_do_those_of_clients_that_differ_in_load_and_of_codecs_by_direction(
    all_played: Played,
) -> None:
    run = result(all_played, "own")
    assert run["valid"]
    assert_exact(run)
    (predicted,), (measured,) = run["predicted"], run["measured"]
    sent = [
        {
            (step["client"], step["iteration"], step["step"]): step["bytes"]
            for step in round_["steps"]
        }
        for round_ in (predicted, measured)
    ]
    assert sent[0] == sent[1]
    assert [sent[0][k, 1, "SM"] for k in (1, 2, 3)] == [40_004] * 3
    assert [sent[0][k, i, "CM"] for k, i in ((1, 1), (2, 3), (3, 2))] == [42_500] * 3
    assert [sent[0][k, 1, "SG"] for k in (1, 2, 3)] == [100_000, 50_000, 150_000]


@pytest.mark.parametrize("name", each(OTHERS, LONG))
def test_so_do_those_that_are_carried_otherwise(all_played: Played, name: str) -> None:
    run = result(all_played, name)
    assert run["valid"]
    assert_exact(run)


def test_a_round_whose_every_message_opens_a_connection_lasts_as_predicted(
    all_played: Played,
) -> None:
    """Windows over links with delay are predicted to some tenths of a percent."""
    run = result(all_played, "opening")
    assert run["valid"]
    (predicted,), (measured,) = run["predicted_wire"], run["measured"]
    assert measured["latency_s"] == pytest.approx(predicted["latency_s"], rel=5e-3)
    assert measured["latency_s"] > 3 * run["predicted"][0]["latency_s"]


def test_a_transfer_waits_for_the_end_of_an_outage(all_played: Played) -> None:
    assert_exact(result(all_played, "outage"), RESUMED_S)
    transfers = pd.read_parquet(all_played[0] / "outage" / "transfers.parquet")
    (waited,) = transfers[transfers["due_s"] > 1].to_dict("records")
    assert (waited["client"], waited["step"]) == (2, "CA")
    assert waited["duration_s"] == pytest.approx(waited["due_s"], abs=RESUMED_S)


def test_active_links_divide_both_directions_of_an_lte_cell(all_played: Played) -> None:
    run = result(all_played, "lte")
    assert run["valid"]
    (predicted,), (measured,) = run["predicted_wire"], run["measured"]
    assert measured["latency_s"] == pytest.approx(predicted["latency_s"], rel=5e-4)
    out = all_played[0] / "lte"
    transfers = pd.read_parquet(out / "transfers.parquet")
    for step, within in (("CA", 2e-3), ("SG", 2e-3)):
        errors = transfers["error"][transfers["step"] == step].abs()
        assert len(errors) == 6
        assert errors.quantile(0.95) < within
    # Some upload alone, some together with others: as many blocks each as that leaves.
    rates = pd.read_parquet(out / "rates.parquet")
    for column in ("uplink_bps", "downlink_bps"):
        assert rates[column].max() > 1.9 * rates[column].min()


@pytest.mark.full
def test_links_in_an_outage_leave_the_lte_cell_to_the_others(all_played: Played) -> None:
    run = result(all_played, "lte-faults")
    assert run["valid"]
    (predicted,), (measured,) = run["predicted_wire"], run["measured"]
    assert [lost["client"] for lost in measured["lost"]] == [3]
    assert measured["latency_s"] == pytest.approx(predicted["latency_s"], rel=5e-4)


@pytest.mark.parametrize("name", each([*WITHOUT_ROUNDS, "semi"], LONG))
def test_who_waits_for_nobody_makes_the_predicted_updates(all_played: Played, name: str) -> None:
    run = result(all_played, name)
    for predicted, measured in zip(run["predicted_wire"], run["measured"], strict=True):
        assert measured["latency_s"] == pytest.approx(predicted["latency_s"], rel=2e-3)
        assert spans(measured).keys() == spans(predicted).keys()
        assert not any(math.isnan(end_s) for _, end_s in spans(measured).values())
        assert len([step for *_, step in spans(measured) if step == "CM"]) == UPDATES
    for budget in run["error_budget"]:
        total = budget["predicted_s"] + sum(budget["parts"].values())
        assert total == pytest.approx(budget["measured_s"], abs=1e-9)


def test_the_air_delays_and_loses_as_it_is_told(all_played: Played) -> None:
    found, out = result(all_played, "air"), all_played[0] / "air"
    assert found["valid"]
    (wire,), (measured,) = found["predicted_wire"], found["measured"]
    (predicted,) = found["predicted"]
    assert wire["latency_s"] > predicted["latency_s"] + 6 * 0.03
    # Each draws losses by itself; over 40 seeds, predictions deviate by 0.33 s from their mean.
    assert measured["latency_s"] == pytest.approx(wire["latency_s"], abs=1.4)
    (budget,) = found["error_budget"]
    assert budget["parts"]["delay"] > 6 * 0.03
    assert budget["parts"]["loss"] > 0
    air = pd.read_parquet(out / "air.parquet")
    slots = pd.read_parquet(out / "air_slots.parquet")
    keys = ["round", "client", "direction"]
    sums = slots.groupby(keys)[["lost_frames", "arrived_frames"]].sum()
    assert sums.equals(air.set_index(keys).sort_index())
    assert slots["slot"].nunique() >= measured["latency_s"] / 0.1 - 1
    chance = slots["asked_loss"]
    assert ((slots["direction"] == "up") == chance.between(1e-3, 0.05)).all()
    frames = slots["lost_frames"] + slots["arrived_frames"]
    due, spread = (frames * chance).sum(), (frames * chance * (1 - chance)).sum() ** 0.5
    assert slots["lost_frames"].sum() == pytest.approx(due, abs=4 * spread)
    page = (out / "report.html").read_text()
    assert 'id="lost-frames"' in page
    lost = air.groupby("direction")["lost_frames"].sum()
    assert lost["up"] > 0 == lost["down"]
    assert (air["arrived_frames"] > 100).all()
    (accounts,) = found["accounts"]
    assert accounts["up"]["resent_lost_bytes"] > 66 * lost["up"] / 2
    assert not any(accounts["down"][name] for name in RESENT[:2])
    books = pd.read_parquet(out / "accounts.parquet").query("round == 0 and direction == 'up'")
    assert accounts["up"] == books[list(BYTES)].sum().to_dict()
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["air"] == {"delayed_and_lost_by": "netem", "repeatable": True}
    for step in measured["steps"]:
        if step["step"] in ("SM", "SG"):
            assert step["end_s"] - step["start_s"] > 0.02


def test_quic_carries_a_round_as_predicted_and_books_every_byte(all_played: Played) -> None:
    found, out = result(all_played, "quic"), all_played[0] / "quic"
    assert found["valid"]
    (predicted,), (seen,) = found["predicted_wire"], found["measured"]
    assert seen["latency_s"] == pytest.approx(predicted["latency_s"], rel=3e-3)
    accounts = pd.read_parquet(out / "accounts.parquet")
    booked = accounts.groupby(["client", "direction"])[list(BYTES)].sum()
    for client in (1, 2, 3):
        captured = list(frames(out / "pcap" / f"uav{client}.pcap"))
        for direction, end in (("down", 1), ("up", 2)):
            sent = [f for f in captured if f.source == f"10.0.{client}.{end}"]
            books = booked.loc[client, direction]
            assert sum(f.header_bytes + f.data_bytes for f in sent) == books.sum()
            assert books["other_bytes"] == books[list(RESENT)].sum() == 0
            assert books["quic_bytes"] > 0.02 * books["payload_bytes"]
            log = out / "qlog" / (f"bs-uav{client}.sqlog" if end == 1 else f"uav{client}.sqlog")
            assert log.read_bytes().count(b"transport:datagrams_sent") == len(sent)


def test_what_loses_nothing_has_no_table_of_losses(all_played: Played) -> None:
    out = all_played[0] / "outage"
    assert not list(out.glob("air*"))
    assert 'id="lost-frames"' not in (out / "report.html").read_text()


@pytest.mark.full
def test_another_queue_carries_the_same(all_played: Played) -> None:
    run = result(all_played, "red")
    for predicted, seen in zip(run["predicted_wire"], run["measured"], strict=True):
        assert seen["latency_s"] == pytest.approx(predicted["latency_s"], rel=1e-2)


@pytest.mark.full
def test_so_do_others(tmp_path: Path) -> None:
    queues = ("fq_codel", "pie")
    scenarios = (SMALL | {"links": {"queue": queue, "ecn": True}} for queue in queues)
    all_played = played(tmp_path, zip(queues, scenarios, [[], []], strict=True))
    for queue in queues:
        run = result(all_played, queue)
        for predicted, seen in zip(run["predicted_wire"], run["measured"], strict=True):
            assert seen["latency_s"] == pytest.approx(predicted["latency_s"], rel=1e-2)


def test_links_carry_what_a_trace_of_rates_says_in_the_order_it_makes(all_played: Played) -> None:
    run = result(all_played, "rates")
    (wire,), (seen,) = run["predicted_wire"], run["measured"]
    assert seen["latency_s"] == pytest.approx(wire["latency_s"], rel=1e-3)
    turns = [
        [(step["client"], step["iteration"]) for step in steps if step["step"] == "SG"]
        for steps in (sorted(r["steps"], key=lambda s: s["start_s"]) for r in (seen, wire))
    ]
    assert turns[0] == turns[1]
    assert [client for client, _ in turns[1]] == [2, 3, 1, 3, 2, 1]
    assert {step["step"] for step in seen["steps"]} == set(STEPS)
    assert tb.read_run(all_played[0] / "rates").scenario.order == ORDER
