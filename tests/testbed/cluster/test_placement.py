# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Which node lives on which host."""

import pytest

from testbed.cluster.placement import Resources, place
from testbed.cluster.world import far_links, parts_of
from testbed.core.errors import InputError
from testbed.core.node import BS, uav, uavs

NODES = [BS, *uavs(6)]
HOSTS = {"a": Resources(2), "b": Resources(4), "c": Resources(2, gpus=1)}


def on(places, host: str) -> str:
    """The nodes of a host."""
    return " ".join(str(node) for node, at in places.items() if at == host)


def test_spread_shares_by_cores() -> None:
    places = place("spread", NODES, HOSTS)
    assert [len(on(places, host).split()) for host in HOSTS] == [2, 4, 1]
    assert places[BS] == "b"


def test_pack_takes_as_few_hosts_as_have_a_core_for_each_node() -> None:
    places = place("pack", NODES, HOSTS)
    assert on(places, "b") == "bs uav1 uav2 uav3"
    assert on(places, "a") == "uav4 uav5"
    assert on(places, "c") == "uav6"
    crowd = [BS, *uavs(15)]
    assert [len(on(place("pack", crowd, HOSTS), host).split()) for host in HOSTS] == [4, 8, 4]


def test_a_base_station_that_computes_on_a_gpu_gets_one() -> None:
    assert place("spread", NODES, HOSTS, on_gpu=True)[BS] == "c"
    with pytest.raises(InputError, match=r"base_station\.device: no host has a GPU"):
        place("spread", NODES, {"a": Resources(2)}, on_gpu=True)


def test_nodes_go_where_they_are_told() -> None:
    asked = {"c": ["bs"], "a": ["uav1", "uav2", "uav3"], "b": ["uav4", "uav5", "uav6"]}
    places = place(asked, NODES, HOSTS)
    assert list(places) == NODES
    assert on(places, "c") == "bs"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"d": ["bs"]}, "no host 'd'; there are a, b, c"),
        ({"a": ["uav7"]}, "the scenario has no uav7"),
        ({"a": ["bs"], "b": ["bs"]}, "bs is on a and on b"),
        ({"a": ["bs"], "b": ["uav1"]}, "uav2 has no host"),
    ],
)
def test_what_does_not_fit_is_refused(asked, says: str) -> None:
    with pytest.raises(InputError, match=f"^emulation.placement: .*{says}"):
        place(asked, NODES, HOSTS)


def test_every_link_between_hosts_has_a_tunnel_with_two_ends() -> None:
    addresses = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}
    places = {BS: "a", uav(1): "a", uav(2): "b", uav(3): "b", uav(4): "c"}
    parts = parts_of(addresses, places, dict.fromkeys(addresses, ()))
    assert [part.has_base_station for part in parts.values()] == [True, False, False]
    assert [part.clients for part in parts.values()] == [(1,), (2, 3), (4,)]
    assert [sorted(part.tunnels) for part in parts.values()] == [[2, 3, 4], [2, 3], [4]]
    for link, host in ((2, "b"), (3, "b"), (4, "c")):
        near, far = parts["a"].tunnels[link], parts[host].tunnels[link]
        assert near.number == far.number
        assert (
            (near.local, near.remote)
            == (far.remote, far.local)
            == (
                addresses["a"],
                addresses[host],
            )
        )
    assert len({tunnel.number for tunnel in parts["a"].tunnels.values()}) == 3
    assert {tunnel.port for part in parts.values() for tunnel in part.tunnels.values()} == {0}


def test_relays_know_each_others_ports() -> None:
    places = {BS: "a", uav(1): "b", uav(2): "a", uav(3): "c", uav(4): "b"}
    assert [far_links(places, host) for host in "abc"] == [[1, 3, 4], [1, 4], [3]]
    ports = {"a": (11, 13, 14), "b": (21, 24), "c": (33,)}
    parts = parts_of(dict.fromkeys("abc", "10.0.0.1"), places, ports)
    assert {link: each.port for link, each in parts["a"].tunnels.items()} == {1: 21, 3: 33, 4: 24}
    assert {link: each.port for link, each in parts["b"].tunnels.items()} == {1: 11, 4: 14}
    assert {link: each.port for link, each in parts["c"].tunnels.items()} == {3: 13}
