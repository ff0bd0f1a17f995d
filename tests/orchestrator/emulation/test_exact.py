# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rounds on real links, held against their prediction step by step, in virtual time.

There nobody wakes up late: what is asked for here would be luck by the real clock.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from exact import RESUMED_S, SMALL, Played, assert_exact, played, result, spans

from testbed.core.paradigm import BUILT_IN

pytestmark = [pytest.mark.guest, pytest.mark.timeout(1200)]

FLEET: dict[str, Any] = SMALL | {
    "paradigm": "pipesfl",
    "uavs": SMALL["uavs"] | {"compute_flops": [2e12, 1e12, 4e12], "compute_power_w": [10, 20, 40]},
    "base_station": {"compute_flops": 2e13},
}
"""UAVs that differ, and a server that they wait for; benchmarks/orders.py plays every order."""
SERVED = [(1, 1), (3, 1), (2, 1), (1, 2), (3, 2), (2, 2)]
"""Client and iteration, the shortest job first; by larger lag it would be another order."""
PARADIGMS = [paradigm.name for paradigm in BUILT_IN]
OTHERS: dict[str, dict[str, Any]] = {
    "tls": {"transport": "tls"},
    "grpc": {"transport": "grpc"},
    "payload": {"rate_counts": "payload", "mtu": 1000},
}
"""Ways to carry a round."""


def runs() -> Iterator[tuple[str, dict[str, Any], list[str]]]:
    for name in PARADIGMS:
        yield name, SMALL | {"paradigm": name}, []
    yield "shortest", FLEET | {"order": "shortest-job-first"}, []
    for name, keys in OTHERS.items():
        yield name, SMALL | {"emulation": SMALL["emulation"] | keys}, []
    yield "outage", SMALL, ["--trace", "outage.npz", "--out", "outage"]


@pytest.fixture(scope="module")
def all_played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("exact")
    gain = np.full((3, 800), 1e-9)
    gain[1, 8:48] = 0  # UAV 2 is away from 0.4 s to 2.4 s, which meets an upload.
    np.savez(folder / "outage.npz", gain=gain, slot_s=0.05)
    return played(folder, runs())


@pytest.mark.parametrize("name", PARADIGMS)
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


@pytest.mark.parametrize("name", OTHERS)
def test_so_do_those_that_are_carried_otherwise(all_played: Played, name: str) -> None:
    run = result(all_played, name)
    assert run["valid"]
    assert_exact(run)


def test_a_transfer_waits_for_the_end_of_an_outage(all_played: Played) -> None:
    assert_exact(result(all_played, "outage"), RESUMED_S)
    transfers = pd.read_parquet(all_played[0] / "outage" / "transfers.parquet")
    (waited,) = transfers[transfers["due_s"] > 1].to_dict("records")
    assert (waited["client"], waited["step"]) == (2, "CA")
    assert waited["duration_s"] == pytest.approx(waited["due_s"], abs=RESUMED_S)
