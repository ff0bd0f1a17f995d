# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What links ask of the network between hosts, and who is refused."""

import re

import numpy as np
import pytest

from orchestrator.emulated.underlay import (
    RELAY_USABLE,
    USABLE,
    Demand,
    check_demand,
    check_relays,
    demand_of,
)
from orchestrator.engine.access import LinkRates
from testbed.cluster.capacity import Flow
from testbed.cluster.messages import FlowsMeasured
from testbed.core.errors import InputError
from testbed.core.node import BS, uav
from testbed.network.shaping import Shape

PLACES = {BS: "a", uav(1): "a", uav(2): "b", uav(3): "c"}
RATES = LinkRates(
    uplink=np.array([[1e9, 1e9], [1e6, 3e6], [5e6, 2e6]]),
    broadcast=np.array([[1e9, 1e9], [20e6, 40e6], [30e6, 1e6]]),
    gradient=np.array([[1e9, 1e9], [70e6, 4e6], [5e6, 80e6]]),
)
OUTER = 1550 / 1514
"""Of a full frame of 1500 bytes, in a tunnel."""


def demand(**changes: object) -> Demand:
    """Of the rates above."""
    given = {"in_turns": False, "broadcasts": True, "dilation": 1.0, "shape": Shape()} | changes
    return demand_of(RATES, PLACES, **given)


def test_links_of_one_host_ask_the_network_for_nothing() -> None:
    assert list(demand().by_host) == ["b", "c"]
    assert demand().centre == "a"


def test_the_busiest_slot_counts_with_the_tunnels_headers() -> None:
    found = demand()
    assert found.by_host["b"] == Flow(pytest.approx(OUTER * 70e6), pytest.approx(OUTER * 3e6))
    assert found.by_host["c"] == Flow(pytest.approx(OUTER * 80e6), pytest.approx(OUTER * 5e6))
    # Not the sum of busiest slots: 6 Mb/s up in the first, 84 down in the second.
    assert found.together == Flow(pytest.approx(OUTER * 84e6), pytest.approx(OUTER * 6e6))


def test_gradients_in_turns_never_meet_but_broadcasts_do() -> None:
    assert demand(in_turns=True).together.down_bps == pytest.approx(OUTER * 80e6)
    slow = RATES._replace(gradient=RATES.gradient / 10)
    found = demand_of(slow, PLACES, Shape(), 1.0, in_turns=True, broadcasts=True)
    assert found.together.down_bps == pytest.approx(OUTER * 50e6)
    found = demand_of(slow, PLACES, Shape(), 1.0, in_turns=True, broadcasts=False)
    assert found.together.down_bps == pytest.approx(OUTER * 8e6)


def test_dilation_asks_for_less_and_headers_that_are_not_charged_for_more() -> None:
    assert demand(dilation=4.0).together.up_bps == pytest.approx(OUTER * 6e6 / 4)
    found = demand(shape=Shape(charges_headers=False))
    assert found.together.up_bps == pytest.approx(1550 / 1448 * 6e6)


def carried(b: float, c: float, together: float) -> FlowsMeasured:
    """The same both ways, in Mb/s."""
    flows = [Flow(1e6 * each, 1e6 * each) for each in (b, c, together)]
    return FlowsMeasured({"b": flows[0], "c": flows[1]}, flows[2])


@pytest.mark.parametrize(
    ("network", "says"),
    [
        (carried(20, 1000, 1000), "links from a to b need 71.66 Mb/s .* carries 20 Mb/s"),
        (carried(1000, 40, 1000), "links from a to c need 81.9 Mb/s .* carries 40 Mb/s"),
        (carried(1000, 1000, 80), "links from a to b, c need 86 Mb/s .* carries 80 Mb/s"),
        (
            FlowsMeasured({"b": Flow(1e9, 1e9), "c": Flow(1e9, 1e6)}, Flow(1e9, 1e9)),
            "links from c to a need 5.119 Mb/s .* carries 1 Mb/s",
        ),
    ],
)
def test_the_narrowest_place_is_refused_with_its_figures(network: FlowsMeasured, says: str) -> None:
    with pytest.raises(InputError, match=f"^emulation.dilation: must be at least .*{says}"):
        check_demand(demand(), network, 1.0)


def test_the_dilation_that_is_named_is_accepted() -> None:
    network = carried(1000, 1000, 30)
    with pytest.raises(InputError) as refused:
        check_demand(demand(dilation=2.0), network, 2.0)
    found = re.search(r"at least ([\d.]+) on", str(refused.value))
    assert found is not None
    named = float(found[1])
    assert named == pytest.approx(OUTER * 84 / 30 / USABLE, rel=0.02)
    check_demand(demand(dilation=named), network, named)


def test_a_network_that_is_just_wide_enough_is_not_refused() -> None:
    check_demand(demand(), carried(1000, 1000, OUTER * 84 / USABLE * 1.001), 1.0)
    with pytest.raises(InputError):
        check_demand(demand(), carried(1000, 1000, OUTER * 84 / USABLE * 0.999), 1.0)


def test_relays_are_asked_for_packets_of_the_rates_size_and_their_acknowledgements() -> None:
    frame_bits = 8 * 1514
    # 80 Mb/s of one frame a packet; 4 and 70 would be in other slots.
    one = Shape(packet_s=0.0)
    assert demand(shape=one).packets_s["c"] == pytest.approx(2 * (80e6 + 5e6) / frame_bits)
    assert demand(shape=one).packets_s["a"] == pytest.approx(2 * (84e6 + 6e6) / frame_bits)
    # 80 Mb/s in packets of three frames, so that 30 Mb/s of single ones are more.
    several = demand(shape=Shape(packet_s=0.46e-3)).packets_s["c"]
    assert several == pytest.approx(2 * (30e6 + 5e6) / frame_bits)
    assert demand(shape=one, dilation=4.0).packets_s["c"] == pytest.approx(
        demand(shape=one).packets_s["c"] / 4
    )


def test_the_narrowest_relay_is_refused_with_its_figures_and_a_dilation_that_does() -> None:
    asked = demand().packets_s
    relays = {"a": asked["a"] / RELAY_USABLE * 1.01, "c": asked["c"]}
    with pytest.raises(
        InputError, match=r"packets per second through the relay of host c"
    ) as refused:
        check_relays(demand(), relays, 1.0)
    named = float(re.search(r"at least ([\d.]+) on", str(refused.value))[1])
    assert named == pytest.approx(1 / RELAY_USABLE, rel=0.02)
    check_relays(demand(dilation=named), relays, named)
    check_relays(demand(), {}, 1.0)
