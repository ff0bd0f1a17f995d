# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A round's durations and bytes, by numbers that were worked out by hand."""

from typing import Any

import numpy as np
import pytest
from small_scenario import TREE

from orchestrator.engine.fdma import ShannonFdma
from orchestrator.engine.plan import (
    Allocation,
    fixed_allocation,
    link_bytes,
    payload_bytes,
    plan_round,
    prospects_of,
    round_sizes,
    split_of,
    transfer_bytes,
)
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import profile_of
from testbed.transport.framing import Framing
from testbed.transport.quic import quic_on_link
from testbed.transport.rpc import grpc_bytes
from testbed.transport.tls import client_flights_bytes, record_overhead_bytes
from testbed.transport.wire import GREETING_BYTES, HEADER_BYTES

SPEEDS = {
    "uavs": {"tx_power_w": [1, 0.4, 0.1], "compute_flops": [1e11, 2e11, 4e11]},
    "base_station": {"compute_flops": 1e13, "tx_power_w": 30},
}


def scenario(**keys: Any) -> Any:
    return validate(TREE | SPEEDS | keys, "small")


def emulation(*, air: str = "links", **keys: Any) -> Any:
    """The section; `air` is not checked against a radio."""
    return scenario(emulation=keys).emulation.model_copy(update={"air": air})


def test_durations_are_work_over_speed() -> None:
    """Split 3, batches of 2: 4e10 flops on the client, 2e12 on the server, and backward twice."""
    given = scenario(paradigm="cpsfl")
    shares = Allocation(3, np.array([0.5, 0.3, 0.2]), *[np.full(3, 1 / 3)] * 2)
    plan = plan_round(given, profile_of(given), shares)
    assert given.workload.backward_ratio == 2
    assert (plan.clients, plan.iterations, plan.updates) == (3, 2, 0)
    for durations, due in (
        (plan.cf_s, [0.8, 0.4, 0.2]),
        (plan.cb_s, [1.6, 0.8, 0.4]),
        (plan.s_s, [1.2 / 0.5, 1.2 / 0.3, 1.2 / 0.2]),
    ):
        np.testing.assert_allclose(durations, np.repeat(np.array(due)[:, None], 2, axis=1))
    assert plan.sm_bytes.tolist() == plan.cm_bytes.tolist() == [80_000] * 3
    # A profile's smashed data are of one sample.
    assert plan.ca_bytes.tolist() == plan.sg_bytes.tolist() == [[200_000] * 2] * 3
    assert plan.backward_ratio == 2
    assert plan.energy_weight == given.objective.energy_weight
    np.testing.assert_array_equal(plan.compute_power_w, given.fleet.compute_power_w)


def test_a_server_that_computes_for_one_after_the_other_has_all_of_itself_for_each() -> None:
    given = scenario(paradigm="sfl-sp")
    shares = Allocation(3, np.array([0.5, 0.3, 0.2]), *[np.full(3, 1 / 3)] * 2)
    plan = plan_round(given, profile_of(given), shares)
    sequential = given.scheme.server_compute == "sequential"
    due = 1.2 if sequential else 1.2 / np.array([[0.5], [0.3], [0.2]])
    assert sequential or given.scheme.gradient_transmission == "sequential"
    np.testing.assert_allclose(plan.s_s, np.broadcast_to(due, (3, 2)))


def test_an_asynchronous_round_has_adapters_wherever_an_update_may_begin() -> None:
    workload = TREE["workload"] | {"asynchronous": {"updates": 5}, "split": [1, 2, 4]}
    given = scenario(paradigm="asfl-sp", workload=workload)
    plan = plan_round(given, profile_of(given), fixed_allocation(given))
    assert (plan.updates, plan.iterations, plan.iterations_of_update) == (5, 10, 2)
    assert type(plan.iterations_of_update) is int
    due = np.repeat([[20_000], [40_000], [160_000]], 10, axis=1)
    for adapters in (plan.sm_bytes, plan.cm_bytes):
        np.testing.assert_array_equal(adapters, due)
    assert plan.cf_s.shape == plan.s_s.shape == plan.ca_bytes.shape == (3, 10)
    assert prospects_of(plan).adapter_bytes == (20_000, 40_000, 160_000)


def test_each_client_is_cut_where_its_split_says() -> None:
    given = scenario(workload=TREE["workload"] | {"split": [1, 2, 4]})
    assert split_of(given) == (1, 2, 4)
    plan = plan_round(given, profile_of(given), fixed_allocation(given))
    assert plan.sm_bytes.tolist() == [20_000, 40_000, 160_000]
    assert plan.ca_bytes[:, 0].tolist() == [800_000, 400_000, 100_000]
    np.testing.assert_allclose(
        plan.cf_s[:, 1], 2 * np.array([1e10 / 1e11, 2e10 / 2e11, 8e10 / 4e11])
    )


def test_a_scenarios_shares_are_its_own_or_equal() -> None:
    given = scenario(allocation={"alpha": [0.2, 0.3, 0.5], "rho": [0.6, 0.3, 0.1]})
    shares = fixed_allocation(given)
    assert shares.split == 3
    assert shares.alpha.tolist() == [0.2, 0.3, 0.5]
    assert shares.beta.tolist() == [1 / 3] * 3
    assert shares.rho.tolist() == [0.6, 0.3, 0.1]


def test_a_radio_is_in_si_units() -> None:
    radio = ShannonFdma.of(scenario(radio=TREE["radio"] | {"noise_dbm_per_mhz": -114}))
    assert radio.noise_w_per_hz == pytest.approx(10**-11.4 * 1e-3 * 1e-6, rel=1e-12, abs=0)
    assert (radio.uplink_hz, radio.downlink_hz, radio.downlink_power_w) == (4e6, 4e6, 30)
    assert radio.uplink_power_w.tolist() == [1, 0.4, 0.1]


def test_equal_split_points_are_one_number_and_shares_go_to_who_takes_part() -> None:
    thirds = np.full(3, 1 / 3)
    listed: Any = [2, 2, 3]  # As a policy from elsewhere may answer.
    assert Allocation((2, 2, 2), thirds, thirds, thirds).split == 2
    assert Allocation(listed, thirds, thirds, thirds).split == (2, 2, 3)
    assert Allocation((2, 2), thirds, thirds, thirds).split == (2, 2)
    assert Allocation((2, 3, 4), thirds, thirds, thirds).splits.tolist() == [2, 3, 4]
    assert Allocation(2, thirds, thirds, thirds).splits.tolist() == [2, 2, 2]
    shares = Allocation(2, np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6]), thirds)
    assert shares.among(None) is shares
    assert shares.among([1, 2, 3]) is shares
    two = shares.among({3, 1})
    assert two.clients == (1, 3)
    np.testing.assert_allclose(two.alpha[[0, 2]], [5 / 7, 2 / 7])
    np.testing.assert_allclose(two.beta[[0, 2]], [0.25, 0.75])
    np.testing.assert_allclose(two.rho[[0, 2]], [0.5, 0.5])


FRAMING = Framing(1500)
MESSAGE = HEADER_BYTES + 16 + 50_000


@pytest.mark.parametrize(
    ("keys", "due"),
    [
        ({}, FRAMING.on_link(MESSAGE)),
        ({"mtu": 9000}, Framing(9000).on_link(MESSAGE)),
        ({"rate_counts": "payload"}, MESSAGE),
        # Frames are IP packets, of which this message takes 35.
        ({"air": "ns3"}, FRAMING.on_link(MESSAGE) - 35 * 14),
        ({"air": "ns3", "transport": "quic"}, quic_on_link(MESSAGE, 1500) - 35 * 14),
        (
            {"transport": "tls"},
            FRAMING.on_link(MESSAGE + record_overhead_bytes(MESSAGE - 50_000, 50_000)),
        ),
        ({"transport": "grpc"}, FRAMING.on_link(grpc_bytes(MESSAGE))),
        ({"transport": "quic"}, quic_on_link(MESSAGE, 1500)),
        (
            {"connection": "per-transfer"},
            FRAMING.opening() + FRAMING.on_link(MESSAGE + GREETING_BYTES),
        ),
        ({"connection": "per-transfer", "rate_counts": "payload"}, MESSAGE + GREETING_BYTES),
        (
            {"connection": "per-transfer", "transport": "tls"},
            FRAMING.opening()
            + sum(map(FRAMING.on_link, client_flights_bytes()))
            + FRAMING.on_link(
                MESSAGE
                + GREETING_BYTES
                + record_overhead_bytes(MESSAGE + GREETING_BYTES - 50_000, 50_000)
            ),
        ),
    ],
    ids=str,
)
def test_what_a_link_is_charged_for_a_frame(keys: dict[str, Any], due: int) -> None:
    assert transfer_bytes(emulation(**keys), 16, 50_000) == due


def test_labels_go_with_smashed_data_and_names_with_adapters() -> None:
    given = scenario()
    profile = profile_of(given)
    payload, link = (count(given, profile, 3) for count in (payload_bytes, link_bytes))
    assert (payload.adapters, payload.smashed, payload.gradient) == (80_000, 200_000, 200_000)
    labels, names = 2 * profile.labels * 4, profile.adapter_header_bytes[2]
    assert labels == 8
    assert link.adapters == FRAMING.on_link(HEADER_BYTES + names + 80_000)
    assert link.smashed == FRAMING.on_link(HEADER_BYTES + labels + 200_000)
    assert link.gradient == FRAMING.on_link(HEADER_BYTES + 200_000)
    sizes = round_sizes(given, profile, 3)
    told = (sizes.adapters, sizes.adapters_header, sizes.smashed, sizes.labels, sizes.batches)
    assert told == (80_000, names, 200_000, 2 * profile.labels, 2)


def test_an_order_knows_what_each_iteration_takes() -> None:
    given = scenario()
    plan = plan_round(given, profile_of(given), fixed_allocation(given))
    known = prospects_of(plan)
    assert known.iterations == 2
    assert known.forward_s == tuple(plan.cf_s[:, 0])
    assert known.backward_s == tuple(plan.cb_s[:, 0])
    assert known.server_s == tuple(plan.s_s[:, 0])
    assert known.smashed_bytes == known.gradient_bytes == (200_000,) * 3
    assert known.adapter_bytes == (80_000,) * 3
