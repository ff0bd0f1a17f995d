# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The region where a model holds: rules that say what they mean, and what they are checked on."""

import numpy as np
import pytest

from orchestrator.studies.validation.region import Region, region
from orchestrator.studies.validation.space import Space, features
from orchestrator.studies.validation.verdict import checked

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


@pytest.mark.parametrize("key", ["seed", "uavs.seed", "faults.seed"])
def test_a_seed_is_no_quantity_of_a_region(key: str) -> None:
    keys = {key: {"integers": [1, 16]}, "workload.split": [1, 2], "radio.kind": ["x", "y"]}
    space = Space.model_validate({"keys": keys})
    points = [space.keys_at(point) for point in np.random.default_rng(1).random((50, 3))]
    names, columns = features(space, points)
    assert names == ["workload.split", "radio.kind = x", "radio.kind = y"]
    assert columns.shape == (50, 3)
    alone = Space.model_validate({"keys": {key: {"integers": [1, 16]}}})
    names, columns = features(alone, [{key: n} for n in range(50)])
    assert (names, columns.shape) == ([], (50, 0))
    half = np.arange(50) < 25
    assert region(names, columns, half, 0.0, np.random.default_rng(1)).texts() == []


@pytest.mark.parametrize(
    ("right", "count", "is_confirmed"),
    [(5, 7, False), (7, 7, True), (0, 0, False), (1, 1, False), (2, 2, True), (218, 218, True),
     (787, 790, True), (90, 100, False), (0, 5, False), (99, 100, True)],
)  # fmt: skip
def test_a_region_is_confirmed_by_points_that_did_not_make_it(
    right: int, count: int, is_confirmed: bool
) -> None:
    share = right / count if count else None
    found = Region(0.05, ["a"], [()], 0.4, share, count)
    assert found.is_confirmed == is_confirmed
    assert found.checked.exists == (count > 1)
    words = checked(found)
    assert (f"in {right} of {count} scenario" in words) == bool(count)
    assert ("95 % interval" in words) == (count > 1)
