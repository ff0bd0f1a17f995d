"""Split federated learning without the network: what the UAV and the BS compute.

A `ClientLearner` and a `ServerLearner` exchange plain tensors; who carries them, and when, is not
their business, and by default (one server-side set a client) cannot change the result.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from workloads.model import Layout, SplitSwin, initial_trainables
from workloads.settings import TrainingConfig


class Trainees:
    """A part of the trainable parameters: one vector, its gradient, its optimiser."""

    def __init__(
        self, layout: Layout, start: int, values: Tensor, training: TrainingConfig
    ) -> None:
        self.values = values
        """Shape [n]: the elements of the layout's vector from `start` on."""
        self.values.grad = torch.zeros_like(values)
        self.tensors = layout.views(values, start)
        """By name, over the memory of `values`; their gradients lie over that of its gradient."""
        gradients = layout.views(self.values.grad, start)
        for name, tensor in self.tensors.items():
            tensor.requires_grad_()
            tensor.grad = gradients[name]
        self._optimiser: torch.optim.Optimizer
        if training.optimiser == "adamw":
            self._optimiser = torch.optim.AdamW(
                [values], training.learning_rate, weight_decay=training.weight_decay
            )
        else:
            self._optimiser = torch.optim.SGD(
                [values],
                training.learning_rate,
                momentum=training.momentum,
                weight_decay=training.weight_decay,
            )

    def step(self) -> None:
        """Move by the gathered gradient and clear it."""
        self._optimiser.step()
        assert self.values.grad is not None
        self.values.grad.zero_()


class ClientLearner:
    """A UAV's side: forward, backward, adapters."""

    def __init__(self, model: SplitSwin, training: TrainingConfig) -> None:
        self._model = model
        self._training = training
        self._trainees: Trainees | None = None
        self._split = 0
        self._smashed: Tensor | None = None

    def begin_round(self, split: int, adapters: Tensor) -> None:
        """Start a round from the broadcast adapters, with a new optimiser.

        Args:
            split: u, stages on this side.
            adapters: Shape [layout.cuts[split]], float32; copied, so a receive buffer will do.
        """
        self._split = split
        self._trainees = Trainees(
            self._model.layout,
            0,
            adapters.detach().to(self._model.device, torch.float32, copy=True),
            self._training,
        )

    def forward(self, images: Tensor) -> Tensor:
        """CF: smashed data [B, h, w, C] of images [B, 3, H, W]; float32, contiguous."""
        assert self._trainees is not None, "begin_round first"
        self._model.recompute = self._training.recompute
        self._model.attach(self._trainees.tensors)
        self._smashed = self._model.client(images.to(self._model.device), self._split)
        return self._smashed.detach().contiguous()

    def backward(self, gradient: Tensor) -> None:
        """CB: take the gradient of the smashed data and move the adapters by one step."""
        assert self._trainees is not None, "begin_round first"
        assert self._smashed is not None, "forward first"
        # Recomputation reads the adapters again; another learner may have used the model since.
        self._model.attach(self._trainees.tensors)
        torch.autograd.backward(self._smashed, gradient.to(self._model.device, torch.float32))
        self._smashed = None
        self._trainees.step()

    def adapters(self) -> Tensor:
        """The adapters now, shape [layout.cuts[split]], float32, contiguous, on the CPU."""
        assert self._trainees is not None, "begin_round first"
        return self._trainees.values.cpu()


@dataclass(frozen=True)
class ServerStep:
    """What one pass of the server over one client's batch gives."""

    gradient: Tensor
    """Of the loss with respect to the smashed data, as they; float32, contiguous."""
    loss: float
    """Mean cross entropy of the batch, before the step."""
    accuracy: float


class ServerLearner:
    """The BS's side: one backbone, K sets of adapters and heads, and the global state.

    A pass holds its activations only while it runs, and passes run one at a time, so that what is
    in flight is one batch, whatever the paradigm pretends to run in parallel.
    """

    def __init__(self, model: SplitSwin, clients: Sequence[int], training: TrainingConfig) -> None:
        self._model = model
        self._training = training
        self._clients = tuple(clients)
        self._vector = initial_trainables(model.layout, model.config.seed)
        self._split = 0
        self._trainees: dict[int, Trainees] = {}
        self._lock = threading.Lock()

    def begin_round(self, split: int) -> Tensor:
        """Cut the global state after `split` stages; optimisers start anew.

        Returns:
            The client's part to broadcast: shape [layout.cuts[split]], float32, contiguous, CPU.
        """
        layout, self._split = self._model.layout, split
        cut = layout.cuts[split]

        def copy() -> Trainees:
            part = self._vector[cut:].to(self._model.device, copy=True)
            return Trainees(layout, cut, part, self._training)

        if self._training.server_adapters == "shared":
            self._trainees = dict.fromkeys(self._clients, copy())
        else:
            self._trainees = {client: copy() for client in self._clients}
        return self._vector[:cut]

    def forward_backward(self, client: int, smashed: Tensor, labels: Tensor) -> ServerStep:
        """S: forward, loss, backward and one step of that client's server-side set.

        Args:
            client: Whose batch it is.
            smashed: [B, h, w, C]; may lie over a receive buffer, which is neither copied (on the
                CPU, float32) nor written to.
            labels: Classes, shape [B].
        """
        with self._lock:
            trainees = self._trainees[client]
            self._model.recompute = False
            self._model.attach(trainees.tensors)
            leaf = smashed.detach().to(self._model.device, torch.float32).requires_grad_()
            labels = labels.to(self._model.device)
            logits = self._model.server(leaf, self._split)
            loss = functional.cross_entropy(logits, labels)
            torch.autograd.backward(loss)
            trainees.step()
            assert leaf.grad is not None
            accuracy = (logits.detach().argmax(1) == labels).float().mean()
            return ServerStep(leaf.grad.contiguous(), float(loss.detach()), float(accuracy))

    def aggregate(self, adapters: Mapping[int, Tensor], samples: Mapping[int, int]) -> None:
        """Average the clients' parts and their server-side sets into the new global state.

        A, B and head are averaged each for itself, weighted by samples. Sums run in float64 in the
        order in which the clients were named at the start, whatever order they came in.

        Args:
            adapters: By client, what `ClientLearner.adapters` gave; clients left out do not count.
            samples: By client, |D_k|.
        """
        taking_part = [client for client in self._clients if client in adapters]
        total = sum(samples[client] for client in taking_part)
        mean = torch.zeros(self._model.layout.size, dtype=torch.float64)
        cut = self._model.layout.cuts[self._split]
        for client in taking_part:
            weight = samples[client] / total
            server_side = self._trainees[client].values.detach()
            mean[:cut] += weight * adapters[client].detach().cpu().double()
            mean[cut:] += weight * server_side.cpu().double()
        self._vector = mean.float()

    def state(self) -> dict[str, Tensor]:
        """The global state by name, as in the unsplit model: adapters of both sides, and the head.

        With it a run can go on after any round: optimisers restart with each round, and batches
        are drawn by seed, client, round and iteration.
        """
        return self._model.layout.views(self._vector)

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a global state.

        Raises:
            InputError: It is another model's.
        """
        self._vector = self._model.layout.vector(state)

    @torch.no_grad()
    def evaluate(self, images: Tensor, labels: Tensor) -> tuple[float, float]:
        """Mean loss and accuracy of the global state on a batch of held-out images."""
        with self._lock:
            self._model.attach(self._model.layout.views(self._vector.to(self._model.device)))
            smashed = self._model.client(images.to(self._model.device), self._split)
            logits = self._model.server(smashed, self._split)
            labels = labels.to(self._model.device)
            loss = functional.cross_entropy(logits, labels)
            return float(loss), float((logits.argmax(1) == labels).float().mean())
