# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Impairments of the radio channel: delay, jitter and loss of frames."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Losses:
    """A Gilbert–Elliott process with one step per frame; for independent losses it never leaves the
    good state."""

    good_to_bad: float
    """Transition probability p."""
    bad_to_good: float
    """Transition probability r."""
    loss_good: float
    """Loss probability 1 - k in the good state."""
    loss_bad: float
    """Loss probability 1 - h in the bad state."""

    @property
    def mean(self) -> float:
        """Stationary loss probability of a frame."""
        bad = self.good_to_bad / (self.good_to_bad + self.bad_to_good)
        return (1 - bad) * self.loss_good + bad * self.loss_bad

    def deviation(self, frames: int) -> float:
        """Standard deviation of the number of lost frames among `frames`, which bursts increase."""
        bad = self.good_to_bad / (self.good_to_bad + self.bad_to_good)
        stays = 1 - self.good_to_bad - self.bad_to_good
        together = bad * (1 - bad) * (self.loss_bad - self.loss_good) ** 2
        variance = self.mean * (1 - self.mean)
        if stays < 1:
            variance += 2 * together * stays / (1 - stays)
        return math.sqrt(frames * max(variance, 1e-12))


@dataclass(frozen=True)
class Impairment:
    """Impairments of one direction of a link."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    """Standard deviation of the delay, which is normally distributed and clipped at 0."""
    losses: Losses | None = None
    seed: int = 0
    by_slot: bool = False
    """Whether delay, jitter or loss probability changes from slot to slot."""
    reorders: bool = False
    """Whether frames with a shorter delay overtake earlier ones; otherwise they stay in order."""

    @property
    def acts(self) -> bool:
        """Whether frames are delayed or lost at all."""
        return bool(self.delay_s or self.losses or self.by_slot)
