# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What people number is ordered by number."""

import random

import pytest

from testbed.core.words import by_number


@pytest.mark.parametrize(
    "ordered",
    [
        [str(n) for n in range(12)],
        ["-10", "-2", "0", "1", "10"],
        ["0.5", "1.25", "1.5", "10.25"],
        ["1", "2", "2a", "10a", "a"],
        ["01", "1", "2", "010"],
        ["class1", "class2", "class10"],
        ["uav1", "uav2", "uav10", "uav10b"],
        ["part-2-of-10", "part-10-of-10"],
        ["Z", "a", "b"],
        ["n01440764", "n02102040", "n03888257"],
        ["0 cats", "3 dogs", "20 birds", "birds"],
        ["9" * 200, "1" + "0" * 200],
    ],
)
def test_names_are_sorted_by_the_numbers_in_them(ordered: list[str]) -> None:
    shuffled = random.Random(1).sample(ordered, len(ordered))
    assert sorted(shuffled, key=by_number) == ordered
