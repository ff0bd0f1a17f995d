# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Trees of keys and plain values, such as scenarios and manifests."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def flat(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a tree by dotted keys; empty sections are omitted."""
    return dict(_leaves(tree, ""))


def _leaves(tree: Mapping[str, Any], above: str) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def differing(trees: Sequence[Mapping[str, Any]], absent: Any = None) -> dict[str, list[Any]]:
    """The dotted keys in which trees differ, in order, with each tree's value.

    The value of a missing key is `absent`.
    """
    values = [flat(tree) for tree in trees]
    keys = dict.fromkeys(key for each in values for key in each)
    found = {key: [each.get(key, absent) for each in values] for key in keys}
    return {key: each for key, each in found.items() if any(v != each[0] for v in each)}
