# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Differential privacy of what clients send: clipped and noised models, and the accounted ε."""

import math
from importlib.util import find_spec

from testbed.core.parameters import number
from workloads.aggregation.local import LocalStep, Part


class Private(LocalStep):
    """The Gaussian mechanism on the change of a client's model in a round (McMahan et al. 2018, at
    the client): the change is scaled down to the 2-norm `clip`, and each value gets normal noise
    with the standard deviation `noise` times `clip`.

    Each side of the model is clipped to clip / √2, so that the whole change has at most the norm
    `clip`. Neighbouring data sets are those with and without the change of one client in a round.
    """

    hides = True

    def __init__(self, clip: float, noise: float, delta: float = 1e-5) -> None:
        """Check the parameters.

        Raises:
            ValueError: The message names the parameter.
        """
        number("clip", clip, 1e-12, math.inf)
        number("noise", noise, 1e-6, 1e6)
        number("delta", delta, 1e-300, 1)
        self._bound = clip / math.sqrt(2)
        self._deviation = noise * clip
        self.noise, self.delta = noise, delta

    def finish(self, part: Part) -> None:
        """Clip the change, and add the noise."""
        import torch

        from workloads.models.seeds import generator

        change = part.values - part.start
        norm = float(torch.linalg.vector_norm(change.double()))
        if norm > self._bound:
            change *= self._bound / norm
        side = "uav" if part.at_uav else "bs"
        random = generator(part.seed, f"privacy {part.client}/{part.round}/{side}")
        noise = torch.empty(len(change)).normal_(0, self._deviation, generator=random)
        part.values.copy_(part.start + change + noise.to(change))


def epsilon(noise: float, rounds: int, delta: float) -> float | None:
    """ε of a client after a number of rounds at δ, by the Rényi accountant of Opacus without
    subsampling; None: Opacus is not installed."""
    if find_spec("opacus") is None:
        return None
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = [(noise, 1.0, rounds)]
    return float(accountant.get_epsilon(delta))


def spent(step: Private, rounds: int) -> str:
    """ε and δ after this number of rounds, in one line."""
    found = epsilon(step.noise, rounds, step.delta)
    if found is None:
        return (
            "workload.local_step: the ε of 'private' is not accounted, because opacus is not "
            "installed (pip install uav-sfl-testbed[privacy])"
        )
    return (
        f"privacy: ε = {found:.4g} at δ = {step.delta:g} for the models that a UAV has sent in "
        f"{rounds} rounds"
    )
