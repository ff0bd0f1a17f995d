# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Gates before adapters, sequential uploads, aggregated gradients, and orders and upload turns of
asynchronous rounds, in virtual time."""

from collections.abc import Iterator
from typing import Any

import pytest
from exact import (
    RESUMED_S,
    SMALL,
    WITHIN_S,
    Played,
    Run,
    assert_exact,
    each,
    played,
    result,
    spans,
    wanted,
)

pytestmark = [pytest.mark.guest, pytest.mark.timeout(1200)]

GATED: dict[str, Any] = SMALL | {"paradigm": "sfl-sp", "rounds": 2}
WITHOUT_SPLIT: dict[str, Any] = GATED | {
    "uavs": SMALL["uavs"] | {"compute_flops": [2.4e12, 2.5e12, 2.3e12]},
    "workload": SMALL["workload"]
    | {
        "split": 1,
        "profile": {
            "client_forward_flops": [5e11],
            "server_forward_flops": [0],
            "adapter_bytes": [200_000],
            "smashed_bytes": [0],
        },
    },
    "uploads": {"sharing": "sequential", "order": "scheduled"},
    "participation": {"rule": "fedcs", "parameters": {"round_s": 2.6}},
}
LOSS = {"on_loss": "drop", "loss_timeout_s": 0.3}


def aggregating(share: float) -> dict[str, Any]:
    return GATED | {
        "workload": SMALL["workload"] | {"batch_size": 4, "gradient_aggregation": share}
    }


def losing(client: str, at_s: float) -> dict[str, Any]:
    return {"faults": LOSS | {"events": [{"kind": "uav-crash", "nodes": [client], "at_s": at_s}]}}


def asynchronous(paradigm: str, **keys: Any) -> dict[str, Any]:
    """A run of UAVs that differ so much that no two ask for anything at the same time."""
    uavs = {"tx_power_w": [1.0, 0.4, 0.1], "compute_flops": [2.5e12, 0.3e12, 0.1e12]}
    workload = SMALL["workload"] | {"asynchronous": {"updates": 8}}
    return SMALL | {"paradigm": paradigm, "uavs": uavs, "workload": workload, "rounds": 2} | keys


GATE = {"uploads": {"adapters_wait_for_all": True}}
IN_TURN = {"uploads": {"sharing": "sequential"}}
SCENARIOS: dict[str, dict[str, Any]] = {
    "gate": SMALL | {"paradigm": "cpsfl"} | GATE,
    "in-turn": SMALL | {"paradigm": "sfl-pp"} | IN_TURN,
    "gate-in-turn": SMALL
    | {
        "paradigm": "sfl-pp",
        "workload": SMALL["workload"] | {"local_iterations": [1, 3, 2]},
        "uploads": {"adapters_wait_for_all": True, "sharing": "sequential"},
    },
    "control-variates": SMALL
    | {
        "paradigm": "cpsfl",
        "workload": SMALL["workload"]
        | {"aggregation": "scaffold", "optimiser": "sgd", "momentum": 0.0},
    },
    "fedcs": WITHOUT_SPLIT,
    "some": aggregating(0.5),
    "all": aggregating(1.0),
    "some-in-turn": aggregating(0.5) | {"paradigm": "sfl-ps"},
    "asynchronous-in-turn": asynchronous("asfl-ps", **IN_TURN, order="larger-lag"),
    "asynchronous-by-order": asynchronous(
        "asfl-sp",
        order="longest-remaining-work-first",
        uploads={"sharing": "sequential", "order": "scheduled"},
    ),
    "lost": aggregating(0.5) | {"rounds": 1} | losing("uav3", 0.6) | GATE,
}


def runs() -> Iterator[Run]:
    for name, tree in SCENARIOS.items():
        yield name, tree, []


LONG = {"control-variates", "in-turn", "all", "some-in-turn", "asynchronous-by-order", "lost"}
"""What `make test` leaves to `full`."""


@pytest.fixture(scope="module")
def all_played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    return played(tmp_path_factory.mktemp("exact"), wanted(request, runs(), LONG))


@pytest.mark.parametrize("name", each(SCENARIOS, LONG))
def test_every_step_begins_and_ends_as_predicted(all_played: Played, name: str) -> None:
    run = result(all_played, name)
    assert_exact(run, RESUMED_S if name == "lost" else WITHIN_S)
    for predicted, measured in zip(run["predicted_wire"], run["measured"], strict=True):
        assert measured["latency_s"] == pytest.approx(predicted["latency_s"], abs=2e-3)
        assert {step for _, _, step in spans(measured)} >= {"SM", "CF", "CA", "S", "SG", "CB"}
    if name != "lost":
        assert run["valid"]
    if name == "fedcs":
        for round_ in run["measured"]:
            assert round_["clients"] == [1, 2]
            uploads = {
                k: start_s for (k, _, step), (start_s, _) in spans(round_).items() if step == "CM"
            }
            assert uploads[2] < uploads[1]
