# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The region where a model holds: rules that say what they mean, and what they are checked on."""

import numpy as np

from orchestrator.studies.validation.region import region

NAMES = ["a", "b", "kind = x"]


def drawn(seed: int, count: int = 2000) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.random((count, 2)), rng.integers(0, 2, count)])


def test_a_box_is_found_and_holds_on_fresh_points() -> None:
    def holds(values: np.ndarray) -> np.ndarray:
        return (values[:, 0] <= 0.5) & (values[:, 2] == 1)

    found = region(NAMES, drawn(1), holds(drawn(1)), 0.05, np.random.default_rng(1))
    (rule,) = found.texts()
    assert sorted(rule.split(" and "))[1] == "kind = x"
    assert sorted(rule.split(" and "))[0].startswith("a <= 0.")
    assert abs(found.share - 0.25) < 0.03
    assert found.held_out_share is not None
    assert found.held_out_share > 0.98
    fresh = drawn(2)
    assert holds(fresh)[found.has(fresh)].mean() > 0.99
    assert (found.has(fresh) & holds(fresh)).sum() > 0.98 * holds(fresh).sum()


def test_everywhere_and_nowhere() -> None:
    values, all_ = drawn(1), np.ones(2000, bool)
    everywhere = region(NAMES, values, all_, 0.0, np.random.default_rng(1))
    assert everywhere.texts() == ["everywhere"]
    assert (everywhere.share, everywhere.held_out_share, everywhere.held_out) == (1, 1, 600)
    nowhere = region(NAMES, values, ~all_, 0.0, np.random.default_rng(1))
    assert (nowhere.texts(), nowhere.share, nowhere.held_out_share) == ([], 0, None)


def test_what_has_no_region_gets_none() -> None:
    holds = np.random.default_rng(5).random(2000) < 0.5
    assert region(NAMES, drawn(1), holds, 0.0, np.random.default_rng(1)).share < 0.1
