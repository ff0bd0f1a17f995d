# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Trees of keys and plain values."""

from testbed.core.trees import differing, flat


def test_keys_are_dotted_and_lists_are_values() -> None:
    assert flat({"a": {"b": 1, "c": {"d": [1, {"e": 2}]}}, "f": None, "g": {}}) == {
        "a.b": 1,
        "a.c.d": [1, {"e": 2}],
        "f": None,
    }


def test_differences_stand_in_the_trees_order_with_every_trees_value() -> None:
    first = {"b": {"x": 1, "y": 2}, "a": 0, "only": 5}
    second = {"b": {"x": 1, "y": 3}, "a": 1}
    assert differing([first, second]) == {"b.y": [2, 3], "a": [0, 1], "only": [5, None]}
    assert differing([first, second], "absent")["only"] == [5, "absent"]
    assert differing([first, first]) == {}


def test_a_section_against_none_is_a_difference() -> None:
    assert differing([{"a": None}, {"a": {"b": 1}}]) == {"a.b": [None, 1]}
