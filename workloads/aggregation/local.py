# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Local steps: actions of a client in a round in addition to the steps of its optimiser.

A client's model consists of its own part, which its UAV trains, and of its server-side set, which
the base station trains. A local step acts on each of both sides separately, with the state that it
keeps on that side. Importing this module does not import torch.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from testbed.core.parameters import number
from testbed.core.registry import LOCAL_STEPS

if TYPE_CHECKING:
    from torch import Tensor, dtype


@dataclass
class Part:
    """One side of a client's model in a round. Vectors have the shape [n] of this side's trained
    parameters; they are float32 on the device of this side."""

    client: int
    """Number of the client, from 1."""
    round: int
    """Index of the round, from 0."""
    at_uav: bool
    """Whether this is the client's own part; otherwise its server-side set."""
    seed: int
    """Seed of the run."""
    learning_rate: float
    """Learning rate of the round."""
    start: "Tensor"
    """The parameters at the beginning of the round, those of the global model."""
    values: "Tensor"
    """The parameters, which are trained in place."""
    gradient: "Tensor"
    """Gradient of the next step of the optimiser, before clipping by `workload.clip_norm`."""
    received: Mapping[str, "Tensor"]
    """Vectors that came with the global model, by name; see `LocalStep.receives`."""
    state: dict[str, Any]
    """State of this side from the client's earlier rounds; `finish` may change it. Values are
    numbers or tensors; in the next round, each is a tensor."""
    views: Callable[["Tensor"], Mapping[str, "Tensor"]]
    """Returns views of a vector's tensors by name."""
    steps: int = 0
    """Steps of the optimiser so far."""
    sent: dict[str, "Tensor"] = field(default_factory=dict)
    """Vectors to send with the model, by name; see `LocalStep.sends`."""


class LocalStep:
    """Actions of a client in a round in addition to the steps of its optimiser; by default nothing.

    One object serves all clients, so everything that belongs to a client is in its `Part`.
    """

    receives: tuple[str, ...] = ()
    """Names of vectors [P] in `Update.memory` that clients receive with the global model; zeros
    before the rule has stored them."""
    sends: tuple[str, ...] = ()
    """Names of vectors that clients send with their models."""
    remembers: bool = False
    """Whether it keeps state in `Part.state` from round to round."""
    hides = False
    """Whether it must see all that a client sends with its model, so that nothing else may be
    sent."""

    def check(self, names: Collection[str]) -> None:
        """Refuse a model whose trained tensors have these names.

        Raises:
            ValueError: The local step does not fit the model.
        """

    def begin(self, part: Part) -> None:
        """Called at the beginning of the round; may change `values`."""

    def gradient(self, part: Part) -> None:
        """Called before each step of the optimiser; may change `gradient` in place."""

    def finish(self, part: Part) -> None:
        """Called after the last step; may change `values` and `state`, and fills `sent`."""

    def own(self, state: Mapping[str, "Tensor"]) -> Mapping[str, "Tensor"]:
        """The tensors of a side's state that replace those of the global model, by name, when the
        client's model is evaluated; none by default."""
        return {}


class Proximal(LocalStep):
    """The additional loss mu/2 ||w - w_global||² (FedProx, Li et al. 2020, eq. 2)."""

    def __init__(self, mu: float = 0.01) -> None:
        """Check µ.

        Raises:
            ValueError: µ is negative or no number.
        """
        number("mu", mu, 0, math.inf)
        self._mu = mu

    def gradient(self, part: Part) -> None:
        """Add the gradient of the additional loss."""
        if self._mu:
            part.gradient.add_(part.values - part.start, alpha=self._mu)


class Personal(LocalStep):
    """Tensors that are not global: each client continues with its own (FedPer, Arivazhagan et al.
    2019). The global model has their mean, but a client's model is evaluated with its own."""

    remembers = True

    def __init__(self, tensors: str = "^(.*[.])?(head|fc|classifier)[.]") -> None:
        """Check the pattern.

        Args:
            tensors: Regular expression: a tensor is personal if its name contains a match.

        Raises:
            ValueError: It is not a regular expression.
        """
        try:
            self._pattern = re.compile(tensors)
        except (re.error, TypeError) as error:
            raise ValueError(f"tensors: is not a regular expression: {error}") from None

    def check(self, names: Collection[str]) -> None:
        """Refuse a model in which no tensor is personal."""
        if not any(map(self._pattern.search, names)):
            last = list(names)[-1:]
            raise ValueError(
                f"tensors: {self._pattern.pattern!r} matches none of the {len(names)} trained "
                f"tensors; the last one is {', '.join(last)}"
            )

    def begin(self, part: Part) -> None:
        """Put the client's own tensors in place of the global ones."""
        for name, tensor in part.views(part.values).items():
            if name in part.state:
                tensor.copy_(part.state[name])

    def finish(self, part: Part) -> None:
        """Keep them."""
        for name, tensor in part.views(part.values).items():
            if self._pattern.search(name):
                part.state[name] = tensor.clone()

    def own(self, state: Mapping[str, "Tensor"]) -> Mapping[str, "Tensor"]:
        """All of them."""
        return state


def kept(state: Mapping[str, Any], where: str, to: "dtype | None" = None) -> "dict[str, Tensor]":
    """Copies of the values of a state as tensors on the CPU that can be saved.

    Args:
        state: Numbers and tensors by name.
        where: Name of the state in messages.
        to: Type of the copies; None: tensors keep theirs, and numbers become float64.

    Raises:
        ValueError: A name is not a text, or a value is neither a number nor a tensor.
    """
    import torch

    found = {}
    for name, value in state.items():
        if not isinstance(name, str):
            raise ValueError(f"{where}[{name!r}]: must have a text as its name")
        own = None if isinstance(value, torch.Tensor) else torch.float64
        try:
            tensor = torch.as_tensor(value, dtype=to or own, device="cpu")
        except (TypeError, ValueError, RuntimeError):
            kind = type(value).__name__
            raise ValueError(
                f"{where}[{name!r}]: must be a number or a tensor, not {kind}"
            ) from None
        found[name] = tensor.detach().clone(memory_format=torch.contiguous_format)
    return found


LOCAL_STEPS.add(
    {
        "proximal": Proximal,
        "personal": Personal,
        "private": "workloads.aggregation.privacy:Private",
    }
)
