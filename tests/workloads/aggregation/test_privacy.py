# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The change of a model is clipped and noised, and ε is that of the accountant."""

import math
from typing import Any

import pytest
import torch

from testbed.core.errors import InputError
from testbed.core.registry import LOCAL_STEPS
from workloads.aggregation import privacy
from workloads.aggregation.local import Part
from workloads.aggregation.privacy import Private, epsilon, spent


def part(change: torch.Tensor, client: int = 1, round_: int = 0, at_uav: bool = True) -> Part:
    """A side of a client at the end of a round with this change."""
    start = torch.linspace(-1, 1, len(change))
    return Part(
        *(client, round_, at_uav, 7, 0.1),
        start=start,
        values=start + change,
        gradient=torch.zeros_like(start),
        received={},
        state={},
        views=lambda vector: {"all": vector},
    )


@pytest.mark.parametrize(("norm", "kept"), [(0.5, 0.5), (1.0, 1.0), (50.0, math.sqrt(2))])
def test_both_sides_together_have_the_norm_of_clip(norm: float, kept: float) -> None:
    random = torch.Generator().manual_seed(1)
    change = torch.randn(1000, generator=random)
    change *= norm / change.norm()
    side = part(change)
    Private(clip=2.0, noise=1e-6).finish(side)
    found = side.values - side.start
    assert float(found.norm()) == pytest.approx(min(norm, kept), rel=1e-3)
    assert float(found @ change) > 0.999 * float(found.norm() * change.norm())


def test_noise_has_its_deviation_and_is_drawn_anew() -> None:
    found = {}
    for place in [(1, 0, True), (2, 0, True), (1, 1, True), (1, 0, False)]:
        side = part(torch.zeros(20_000), *place)
        Private(clip=0.5, noise=3.0).finish(side)
        found[place] = side.values - side.start
        assert float(found[place].std()) == pytest.approx(1.5, rel=0.02)
        assert abs(float(found[place].mean())) < 0.05
    vectors = torch.stack(list(found.values()))
    assert (torch.corrcoef(vectors) - torch.eye(4)).abs().max() < 0.05
    again = part(torch.zeros(20_000))
    Private(clip=0.5, noise=3.0).finish(again)
    assert torch.equal(again.values - again.start, found[1, 0, True])


@pytest.mark.parametrize(("noise", "rounds", "delta"), [(1.1, 10, 1e-5), (4.0, 500, 1e-6)])
def test_epsilon_is_that_of_the_library(noise: float, rounds: int, delta: float) -> None:
    accountants = pytest.importorskip("opacus.accountants")
    theirs = accountants.RDPAccountant()
    for _ in range(rounds):
        theirs.step(noise_multiplier=noise, sample_rate=1.0)
    found = epsilon(noise, rounds, delta)
    assert found == pytest.approx(theirs.get_epsilon(delta), rel=1e-12)
    assert f"ε = {found:.4g} at δ = {delta:g}" in spent(Private(1.0, noise, delta), rounds)


def test_without_the_library_the_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privacy, "find_spec", lambda name: None)
    assert "is not accounted, because opacus is not installed" in spent(Private(1.0, 1.0), 3)


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"clip": 0, "noise": 1}, "clip: must be a number from 1e-12, not 0"),
        ({"clip": -1, "noise": 1}, "clip: must be a number from 1e-12, not -1"),
        ({"clip": math.inf, "noise": 1}, "clip: must be a number from 1e-12, not inf"),
        ({}, "workload.local_step_parameters.clip: is missing; 'private' needs it"),
        ({"noise": 1}, "workload.local_step_parameters.clip: is missing; 'private' needs it"),
        ({"clip": 1}, "workload.local_step_parameters.noise: is missing; 'private' needs it"),
        ({"clip": 1, "noise": 0}, "noise: must be a number from 1e-06 and below 1e+06, not 0"),
        ({"clip": 1, "noise": -1}, "noise: must be a number from 1e-06"),
        ({"clip": 1, "noise": 1, "delta": 0}, "delta: must be a number from 1e-300 and below 1"),
        ({"clip": 1, "noise": 1, "delta": 1}, "delta: must be a number from 1e-300 and below 1"),
        ({"clip": "1", "noise": 1}, "clip: must be a number"),
        ({"clip": 1, "noise": 1, "sigma": 1}, "'private' has no such parameter"),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as refusal:
        LOCAL_STEPS.make("private", parameters)
    assert says in str(refusal.value)
