# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a late update weighs, as Xie et al. write it."""

import pytest

from workloads.aggregation.staleness import weight


@pytest.mark.parametrize("stale", range(8))
def test_weights_are_the_papers(stale: int) -> None:
    assert weight(stale, mixing=0.9, staleness="constant") == 0.9
    polynomial = weight(stale, mixing=0.9, staleness="polynomial", exponent=0.5)
    assert polynomial == pytest.approx(0.9 / (stale + 1) ** 0.5)
    hinge = weight(stale, mixing=0.9, staleness="hinge", exponent=10, hinge=4)
    assert hinge == pytest.approx(0.9 if stale <= 4 else 0.9 / (10 * (stale - 4) + 1))
