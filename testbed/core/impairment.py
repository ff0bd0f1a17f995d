# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What the air does to frames beside its rate, as everybody is told of it."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Losses:
    """A Gilbert–Elliott process, one step a frame; independent losses are one that stays good."""

    good_to_bad: float
    """p."""
    bad_to_good: float
    """r."""
    loss_good: float
    """1 - k."""
    loss_bad: float
    """1 - h."""

    @property
    def mean(self) -> float:
        """Probability of a frame to be lost, in the long run."""
        bad = self.good_to_bad / (self.good_to_bad + self.bad_to_good)
        return (1 - bad) * self.loss_good + bad * self.loss_bad

    def deviation(self, frames: int) -> float:
        """Standard deviation of how many of so many frames are lost, which bursts enlarge."""
        bad = self.good_to_bad / (self.good_to_bad + self.bad_to_good)
        stays = 1 - self.good_to_bad - self.bad_to_good
        together = bad * (1 - bad) * (self.loss_bad - self.loss_good) ** 2
        variance = self.mean * (1 - self.mean)
        if stays < 1:
            variance += 2 * together * stays / (1 - stays)
        return math.sqrt(frames * max(variance, 1e-12))


@dataclass(frozen=True)
class Impairment:
    """What happens to frames of one direction of a link."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    """Standard deviation of the delay, which is normal and cut at 0."""
    losses: Losses | None = None
    seed: int = 0
    by_slot: bool = False
    """Whether each slot has a delay, a jitter or a probability to lose frames of its own."""
    reorders: bool = False
    """Whether a frame with a shorter delay overtakes those before it; else it waits for them."""

    @property
    def acts(self) -> bool:
        """Whether frames are delayed or lost at all."""
        return bool(self.delay_s or self.losses or self.by_slot)
