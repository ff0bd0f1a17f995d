# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How nodes are called."""

import pytest

from testbed.core.node import BS, NodeId, uav, uavs


def test_every_spelling_comes_from_the_number() -> None:
    assert [str(node) for node in (BS, uav(1), uav(12))] == ["bs", "uav1", "uav12"]
    assert [node.title for node in (BS, uav(3))] == ["the base station", "uav3"]
    assert [node.host_name for node in (BS, uav(3))] == ["node00000", "node00003"]
    assert [node.is_bs for node in (BS, uav(1))] == [True, False]
    assert uav(3).index == 2
    assert list(uavs(3)) == [uav(1), uav(2), uav(3)]


def test_what_is_spelt_is_read_again_and_sorts_by_number() -> None:
    nodes = [uav(10), BS, uav(99_999), uav(2)]
    assert [NodeId.parse(str(node)) for node in nodes] == nodes
    assert sorted(nodes) == [BS, uav(2), uav(10), uav(99_999)]


@pytest.mark.parametrize("text", ["", "BS", "bs1", "uav", "uav0", "uav01", "uav123456", "uav1\n"])
def test_nothing_else_is_a_node(text: str) -> None:
    with pytest.raises(ValueError, match="is not a node; nodes are bs, uav1, uav2"):
        NodeId.parse(text)
