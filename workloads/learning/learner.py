# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Split federated learning without a network: the computing of UAV and BS.

A `ClientLearner` and a `ServerLearner` exchange plain tensors; by default (one server-side set per
client) the result does not depend on how and when these are transferred.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from testbed.core.errors import InputError
from workloads.aggregation.rules import Update, applied, rule_of
from workloads.aggregation.staleness import weight
from workloads.learning.model import (
    MEMORY,
    OWN,
    Layout,
    LoraConv,
    SplitModel,
    initial_trainables,
)
from workloads.learning.ranks import ranked
from workloads.learning.settings import TrainingConfig
from workloads.learning.stopwatch import Stopwatch


class Trainees:
    """A part of the trained values: vectors with their gradients and optimiser."""

    def __init__(
        self,
        layout: Layout,
        start: int,
        values: Tensor,
        training: TrainingConfig,
        *,
        own: tuple[Layout, int, Tensor] | None = None,
        round_: int = 0,
    ) -> None:
        """Take over vectors, which are trained in place.

        Args:
            layout: Layout of the global model.
            start: Position of `values` in the vector.
            values: Elements of the vector, shape [n].
            training: Configuration.
            own: Layout, position and elements of the tensors that stay with the client.
            round_: The round, which the learning rate may depend on.
        """
        self.values = values
        """Elements of the layout's vector from `start` on, shape [n]."""
        self.tensors: dict[str, Tensor] = {}
        """Views of all values by name; their gradients are views of the vectors' gradients."""
        self.statistics: set[str] = set()
        """Names of the tensors that layers change themselves."""
        self._trained: list[Tensor] = []
        """Runs of parameters in the vectors, with their gradients."""
        self._add(layout, start, values)
        global_runs = len(self._trained)
        if own is not None:
            self._add(*own)
        self._proximal = training.proximal
        # Tensors that stay with a client have no global counterpart.
        self._start = [run.clone() for run in self._trained[:global_runs]] if self._proximal else []
        self._clip_norm = training.clip_norm
        self._accumulate = training.accumulate
        self._waiting = 0
        """Batches whose gradients wait for a step."""
        rate = training.learning_rate * training.factor(round_)
        self._optimiser: torch.optim.Optimizer | None = None
        if not self._trained:
            pass
        elif training.optimiser == "adamw":
            self._optimiser = torch.optim.AdamW(
                self._trained, rate, weight_decay=training.weight_decay
            )
        else:
            self._optimiser = torch.optim.SGD(
                self._trained,
                rate,
                momentum=training.momentum,
                weight_decay=training.weight_decay,
            )

    def _add(self, layout: Layout, start: int, values: Tensor) -> None:
        gradient = torch.zeros_like(values)
        values.grad = gradient
        tensors = layout.views(values, start)
        gradients = layout.views(gradient, start)
        statistics = {entry.name for entry in layout.entries if entry.is_statistic}
        for name, tensor in tensors.items():
            if name not in statistics:
                tensor.requires_grad_()
                tensor.grad = gradients[name]
        for span in layout.spans(start, start + values.numel()):
            place = slice(span.start - start, span.stop - start)
            whole = span.stop - span.start == values.numel()
            run = values if whole else values[place]
            run.grad = gradient[place]
            self._trained.append(run)
        self.tensors |= tensors
        self.statistics |= statistics & tensors.keys()

    def step(self) -> None:
        """Do an optimiser step with the accumulated gradient, if enough batches have been seen."""
        self._waiting += 1
        if self._waiting == self._accumulate:
            self.finish()

    def finish(self) -> None:
        """Do the optimiser step for which batches wait, if any, and clear the gradient."""
        if self._waiting and self._optimiser is not None:
            gradients = [run.grad for run in self._trained if run.grad is not None]
            if self._waiting > 1:
                for gradient in gradients:
                    gradient.div_(self._waiting)
            for run, gradient, start in zip(self._trained, gradients, self._start, strict=False):
                gradient.add_(run.detach() - start, alpha=self._proximal)
            if self._clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(self._trained, self._clip_norm)
            self._optimiser.step()
            for gradient in gradients:
                gradient.zero_()
        self._waiting = 0

    def without_statistics(self) -> dict[str, Tensor]:
        """The tensors, with copies of those that layers change themselves."""
        return {n: t.clone() if n in self.statistics else t for n, t in self.tensors.items()}


class ClientLearner:
    """The side of a UAV: forward pass, backward pass, adapters."""

    def __init__(self, model: SplitModel, training: TrainingConfig, client: int = 1) -> None:
        self._model = model
        self._training = training.of(client)
        self.layout = ranked(model.layout, training.rank_of(client)).layout
        """Layout of this client's adapters."""
        self._trainees: Trainees | None = None
        self._split = 0
        self._smashed: Tensor | None = None
        self._batch = ""
        self._own = initial_own(model)

    def begin_round(self, split: int, adapters: Tensor, round_: int = 0) -> None:
        """Start a round from the broadcast adapters, with a new optimiser.

        Args:
            split: Split point u, the number of parts on this side.
            adapters: Float32, shape [layout.cuts[split]]; copied, so a receive buffer may be
                passed.
            round_: The round, which the learning rate may depend on.
        """
        self._split = split
        self._trainees = Trainees(
            self.layout,
            0,
            adapters.detach().to(self._model.device, torch.float32, copy=True),
            self._training,
            own=(self._model.own, 0, self._own[: self._model.own.cuts[split]]),
            round_=round_,
        )

    def forward(self, samples: Tensor, batch: str = "") -> Tensor:
        """CF: compute the smashed data [B, ...] of a batch, float32 and contiguous.

        Args:
            samples: Inputs of the batch.
            batch: Name of the batch, which seeds dropout on both sides.
        """
        assert self._trainees is not None, "call begin_round first"
        self._model.recompute = self._training.recompute
        self._batch = batch
        self._model.attach(self._trainees.tensors, [batch])
        self._smashed = self._model.client(samples.to(self._model.device), self._split)
        return self._smashed.detach().contiguous()

    def backward(self, gradient: Tensor) -> None:
        """CB: propagate the gradient of the smashed data and update the adapters by one step."""
        assert self._trainees is not None, "call begin_round first"
        assert self._smashed is not None, "call forward first"
        # Recomputation reads the adapters again, and another learner may have used the model since.
        # It would update statistics a second time.
        self._model.attach(self._trainees.without_statistics(), [self._batch])
        if self._smashed.requires_grad:
            torch.autograd.backward(self._smashed, gradient.to(self._model.device, torch.float32))
        self._smashed = None
        self._trainees.step()

    def adapters(self) -> Tensor:
        """The current adapters, shape [layout.cuts[split]], float32, contiguous, on the CPU."""
        assert self._trainees is not None, "call begin_round first"
        self._trainees.finish()
        return self._trainees.values.detach().cpu()

    def own(self) -> dict[str, Tensor]:
        """Tensors that stay with this client on its side, by name; see `SplitModel.own`."""
        return self._model.own.views(self._own[: self._model.own.cuts[self._split]].cpu())

    def load_own(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from a result of `own`; others of these tensors are unchanged."""
        _load(self._model.own.views(self._own), tensors)


def initial_own(model: SplitModel) -> Tensor:
    """Initial values of the tensors that stay with a client; shape [model.own.size], on the model's
    device."""
    own = initial_trainables(model.own, model.config.seed, given=model.given)
    return own.to(model.device)


def _load(into: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Copy tensors into tensors of the same names.

    Raises:
        InputError: A tensor is unknown or has another shape.
    """
    for name, tensor in tensors.items():
        if name not in into or into[name].shape != tensor.shape:
            raise InputError(f"adapters: {name[:80]} of a client does not fit the model")
        into[name].copy_(tensor)


@dataclass(frozen=True)
class ServerStep:
    """Result of one pass of the server over one client's batch."""

    gradient: Tensor
    """Gradient of the loss with respect to the smashed data, with their shape; float32,
    contiguous."""
    loss: float
    """Mean cross entropy of the batch before the step."""
    accuracy: float


@dataclass(frozen=True)
class PassTimes:
    """Computing times of the server for the batches of several clients, in real seconds."""

    clients: int
    one_by_one_s: float
    together_s: float

    @property
    def pays(self) -> bool:
        """Whether one common pass is faster than separate passes."""
        return self.together_s < self.one_by_one_s

    def seconds(self, clients: int) -> float:
        """Time of one pass for `clients` clients, by linear interpolation."""
        one_s = self.one_by_one_s / self.clients
        each_s = (self.together_s - one_s) / max(1, self.clients - 1)
        return one_s + each_s * (clients - 1)


class ServerLearner:
    """The side of the BS: one backbone, K sets of adapters and heads, and the global state.

    Activations exist only during a pass, and passes run one at a time, so that memory is needed for
    one batch only, even if the paradigm models parallel computing.
    """

    def __init__(
        self,
        model: SplitModel,
        clients: Sequence[int],
        training: TrainingConfig,
        samples: Mapping[int, int] | None = None,
    ) -> None:
        """Start from the initial global state.

        Args:
            model: The model, on the server's device.
            clients: The clients' numbers.
            training: Configuration of training.
            samples: |D_k| by client, the weights of an average after each iteration; default: 1.
        """
        self._model = model
        self._samples = samples or dict.fromkeys(clients, 1)
        grouped = [n for n, c in model.loras.items() if isinstance(c, LoraConv) and c.groups > 1]
        if grouped and len(set(training.ranks)) > 1:
            raise InputError(
                f"workload.lora_rank: must be one number, because {grouped[0]} of "
                f"{model.config.model} is a convolution with groups"
            )
        self._layouts = {k: ranked(model.layout, training.rank_of(k)) for k in clients}
        self._computed: list[int] = []
        """If sets are averaged after each iteration: clients that have computed the current one."""
        self._training = training
        self._clients = tuple(clients)
        self._vector = initial_trainables(model.layout, model.config.seed, model.loras, model.given)
        self._own = {client: initial_own(model) for client in clients if model.own.size}
        """Tensors that stay with each client; those of the client's side are not up to date: see
        `load_own`."""
        self._rule = rule_of(training.aggregation, training.aggregation_parameters)
        self._memory: dict[str, Tensor] = {}
        self._splits: dict[int, int] = {}
        self._trainees: dict[int, Trainees] = {}
        self._sent: dict[int, Tensor] = {}
        """By client: the global state with which it began its update."""
        self._buffer: list[Tensor] = []
        """Differences that wait to be applied, float64."""
        self._round = 0
        self._lock = threading.Lock()
        self.diverged: list[int] = []
        """Clients of the last round whose model had values that are not finite."""

    def begin_round(self, split: int | Mapping[int, int], round_: int = 0) -> Tensor:
        """Split the global state after `split` parts, and reset the optimisers.

        Args:
            split: Split point u of all clients, or u_k by client.
            round_: The round, which the learning rate may depend on.

        Returns:
            The vector to broadcast, float32, contiguous, on the CPU: the longest of the clients'
            parts, shape [layout.cuts[max(u_k)]]; each client's part is a prefix of it.

        Raises:
            ValueError: Split points differ although the clients share one server-side set.
        """
        layout, copy = self._model.layout, self._copy
        self._computed = []
        self._round = round_
        points = dict.fromkeys(self._clients, split) if isinstance(split, int) else dict(split)
        if self._training.server_adapters == "shared":
            if len(set(points.values())) > 1:
                raise ValueError("a shared set requires one split point for all clients")
            first = self._clients[0]
            self._trainees = dict.fromkeys(self._clients, copy(first, points[first]))
        else:
            self._trainees = {client: copy(client, points[client]) for client in self._clients}
        self._splits = points
        self._buffer.clear()
        self.diverged = []
        return self._vector[: layout.cuts[max(points.values())]]

    def layout_of(self, client: int) -> Layout:
        """Layout of a client's adapters, of its rank."""
        return self._layouts[client].layout

    def part(self, client: int) -> Tensor:
        """A client's part of the global state, float32, contiguous, on the CPU; shape [cuts[u_k]],
        of the layout of its rank. Call it after `begin_round`."""
        own = self._layouts[client]
        return own.part(self._vector, 0, own.layout.cuts[self._splits[client]])

    def _copy(self, client: int, split: int) -> Trainees:
        """A trainable copy of a client's global state behind a split point, and the client's own
        part."""
        ranked_, own = self._layouts[client], None
        cut = ranked_.layout.cuts[split]
        part = ranked_.part(self._vector, cut).to(self._model.device, copy=True)
        if client in self._own:
            beginning = self._model.own.cuts[split]
            own = self._model.own, beginning, self._own[client][beginning:]
        training = self._training.of(client)
        return Trainees(ranked_.layout, cut, part, training, own=own, round_=self._round)

    def _begin_batch(self, client: int) -> None:
        """If sets are averaged after each iteration: do so before the first batch of the next."""
        if self._training.server_adapters != "averaged":
            return
        if client in self._computed:
            self._average()
        self._computed.append(client)

    @torch.no_grad()
    def _average(self) -> None:
        """Average the server-side sets of the clients that have computed the current iteration,
        weighted by samples; all clients continue from the average, each with its own optimiser."""
        sets, here = self._trainees, sorted(self._computed, key=self._clients.index)
        self._computed = []
        total = sum(self._samples[client] for client in here)
        if not here:
            return
        mean = torch.zeros_like(sets[here[0]].values, dtype=torch.float64)
        for client in here:
            mean += self._samples[client] / total * sets[client].values.double()
        for trainees in sets.values():
            trainees.values.copy_(mean)

    def begin_update(self, client: int) -> Tensor:
        """Restart one client from the current global state; returns the client's part, shape
        [layout.cuts[u_k]], float32, on the CPU."""
        with self._lock:
            self._trainees[client] = self._copy(client, self._splits[client])
            self._sent[client] = self._vector
            return self.part(client).clone()

    def mix(self, client: int, adapters: Tensor, staleness: int) -> None:
        """Mix a client's adapters and its server-side set into the global state, or, with a buffer,
        add the difference from the state that the client was sent to the buffer.

        Args:
            client: The client.
            adapters: Result of `ClientLearner.adapters`.
            staleness: Number of changes of the global state since the client began.
        """
        with self._lock:
            self._trainees[client].finish()
            server_side = self._trainees[client].values.detach().cpu()
            own = torch.cat([adapters.detach().cpu(), server_side]).double()
            if client not in self.diverged and not torch.isfinite(own).all():
                self.diverged.append(client)
            # Values that a client of smaller rank does not have do not change.
            layout = self._layouts[client]
            if self._training.buffer > 1:
                share = weight(staleness, **dict(self._training.asynchronous, mixing=1.0))
                sent = self._sent[client].double()
                self._buffer.append(share * (layout.within(own, sent) - sent))
                return
            before = self._vector.double()
            whole = layout.within(own, before)
            share = weight(staleness, **self._training.asynchronous)
            self._vector = (before + share * (whole - before)).float()

    def apply_buffer(self) -> None:
        """Change the global state by the mean of the buffered differences, times the server's
        learning rate (FedBuff, Nguyen et al. 2022), and empty the buffer."""
        with self._lock:
            mean = torch.stack(self._buffer).mean(0)
            self._vector = (self._vector + self._training.server_learning_rate * mean).float()
            self._buffer.clear()

    def forward_backward(
        self, client: int, smashed: Tensor, labels: Tensor, batch: str = ""
    ) -> ServerStep:
        """S: forward pass, loss, backward pass and one step of a client's server-side set.

        Args:
            client: The client of the batch.
            smashed: Smashed data [B, ...]; may be a view of a receive buffer, which is neither
                copied (float32 on the CPU) nor modified.
            labels: Classes, shape [B]; for tokens [B, length] or flattened.
            batch: Name of the batch, as in `ClientLearner.forward`.
        """
        with self._lock:
            trainees = self._trainees[client]
            self._begin_batch(client)
            self._model.recompute = False
            self._model.attach(trainees.tensors, [batch])
            leaf = smashed.detach().to(self._model.device, torch.float32).requires_grad_()
            labels = labels.to(self._model.device).flatten()
            logits = self._model.server(leaf, self._splits[client]).flatten(0, -2)
            loss = functional.cross_entropy(logits, labels)
            torch.autograd.backward(loss)
            trainees.step()
            assert leaf.grad is not None
            accuracy = (logits.detach().argmax(1) == labels).float().mean()
            return ServerStep(leaf.grad.contiguous(), float(loss.detach()), float(accuracy))

    def forward_backward_together(
        self, batches: Mapping[int, tuple[Tensor, Tensor]], names: Mapping[int, str] | None = None
    ) -> dict[int, ServerStep]:
        """S for several waiting clients in one pass; each row uses its client's adapters.

        The result equals that of separate calls of `forward_backward` except for rounding of
        float32 sums (block sizes of the products differ). Activations of all batches are in memory
        at once.

        Args:
            batches: Smashed data and labels by client, as for `forward_backward`, with equal
                shapes.
            names: Names of the batches, by client.

        Raises:
            ValueError: The clients share one set, which batches must train one after the other, or
                their split points differ.
            InputError: See `check_together`.
        """
        if self._training.server_adapters == "shared":
            raise ValueError("shared adapters must be trained by one batch after the other")
        self.check_together()
        splits = {self._splits[client] for client in batches}
        if len(splits) > 1:
            raise ValueError(f"one pass has one split point, not {sorted(splits)}")
        with self._lock:
            device, count = self._model.device, len(batches)
            for client in batches:
                self._begin_batch(client)
            sets = [self._trainees[client] for client in batches]
            self._model.recompute = False
            self._model.attach(
                {name: torch.stack([s.tensors[name] for s in sets]) for name in sets[0].tensors},
                [(names or {}).get(client, "") for client in batches],
            )
            smashed = torch.cat([s.detach().to(device, torch.float32) for s, _ in batches.values()])
            labels = torch.cat([labels.to(device).flatten() for _, labels in batches.values()])
            leaf = smashed.requires_grad_()
            logits = self._model.server(leaf, splits.pop()).flatten(0, -2)
            # The mean over each client's batch: the loss of a client does not depend on others.
            each = functional.cross_entropy(logits, labels, reduction="none")
            losses = each.view(count, -1).mean(1)
            torch.autograd.backward(losses.sum())
            for trainees in sets:
                trainees.step()
            assert leaf.grad is not None
            hits = (logits.detach().argmax(1) == labels).float().view(count, -1).mean(1)
            return {
                client: ServerStep(gradient, loss, accuracy)
                for client, gradient, loss, accuracy in zip(
                    batches,
                    leaf.grad.contiguous().chunk(count),
                    losses.detach().tolist(),
                    hits.tolist(),
                    strict=True,
                )
            }

    def check_together(self) -> None:
        """Check that one pass can serve several clients.

        Raises:
            InputError: Adapters of convolutions cannot differ between rows, or batch normalisation
                would normalise batches together, or all parameters are trained.
        """
        model = self._model
        if model.config.adapters == "full":
            what = "all parameters are trained"
        elif model.norms:
            what = f"{model.config.model} has batch normalisation"
        elif any(isinstance(lora, LoraConv) for lora in model.loras.values()):
            what = f"convolutions of {model.config.model} have adapters"
        else:
            return
        raise InputError(f"workload.clients_per_pass: must be 1, because {what}")

    def pass_times(self, clients: int, batch_size: int, shape: Sequence[int]) -> PassTimes:
        """Measure the time for several clients in one pass and in separate passes.

        Each variant runs twice on zeros, and the faster time counts. Call it after `begin_round`,
        and begin the round again afterwards, because the sets have changed.

        Args:
            clients: Number of clients, at most K.
            batch_size: Batch size B.
            shape: Shape of one sample's smashed data.
        """
        smashed = torch.zeros(batch_size, *shape)
        labels = torch.zeros(batch_size * self._model.input.labels, dtype=torch.int64)
        waiting = dict.fromkeys(self._clients[:clients], (smashed, labels))

        def one_by_one() -> None:
            for client in waiting:
                self.forward_backward(client, smashed, labels)

        watch = Stopwatch(self._model.device)
        best = []
        for way in (one_by_one, lambda: self.forward_backward_together(waiting)):
            times = []
            for _ in range(2):
                with watch:
                    way()
                times.append(watch.seconds)
            best.append(min(times))
        return PassTimes(len(waiting), *best)

    def aggregate(self, adapters: Mapping[int, Tensor], samples: Mapping[int, int]) -> None:
        """Aggregate the clients' parts and their server-side sets into the new global state.

        Sums are computed in float64 in the order of the clients at construction, so the order of
        `adapters` does not matter.

        Args:
            adapters: Results of `ClientLearner.adapters` by client; missing clients do not count.
            samples: |D_k| by client.
        """
        if self._computed:
            self._average()
        taking_part = [client for client in self._clients if client in adapters]
        absent = torch.zeros(self._model.layout.size, dtype=torch.float64)
        for client in taking_part:
            self._trainees[client].finish()
        total = sum(samples[client] for client in taking_part)

        def whole_models() -> Iterator[tuple[float, Tensor]]:
            for client in taking_part:
                server_side = self._trainees[client].values.detach()
                parts = [adapters[client].detach().cpu(), server_side.cpu()]
                # Rows and columns that a client of smaller rank does not have count as 0.
                whole = self._layouts[client].within(torch.cat(parts).double(), absent)
                yield samples[client] / total, whole

        self.diverged = [
            client
            for client, (_, model) in zip(taking_part, whole_models(), strict=True)
            if not torch.isfinite(model).all()
        ]
        layout = self._model.layout
        before = self._vector.double()
        update = Update(before, whole_models, layout.views, self._memory)
        parameters = layout.spans(0, layout.size)
        # Rules may fail on values that are not finite; the mean then has them as well.
        if self.diverged:
            after = update.mean()
        elif sum(span.stop - span.start for span in parameters) == layout.size:
            after = applied(self._rule, update)
        else:  # Rules are for parameters: a momentum of variances could make them negative.

            def without_statistics(vector: Tensor) -> Tensor:
                return torch.cat([vector[span] for span in parameters])

            def models() -> Iterator[tuple[float, Tensor]]:
                for share, vector in whole_models():
                    yield share, without_statistics(vector)

            after, views = update.mean(), layout.parameters().views
            new = applied(
                self._rule, Update(without_statistics(before), models, views, self._memory)
            )
            start = 0
            for span in parameters:
                after[span] = new[start : (start := start + span.stop - span.start)]
        self._vector = after.float()

    def state(self) -> dict[str, Tensor]:
        """The global state by the names of the unsplit model: trained tensors of both sides, and
        the head; the state of the aggregation rule; and under `clients.K.NAME` the tensors that
        stay with client K.

        A run can continue from it after any round: optimisers are reset in each round, and batches
        depend only on seed, client, round and iteration.
        """
        memory = {f"{MEMORY}{name}": tensor for name, tensor in self._memory.items()}
        own = {
            f"{OWN}{client}.{name}": tensor
            for client, vector in self._own.items()
            for name, tensor in self._model.own.views(vector.cpu().clone()).items()
        }
        return self._model.layout.views(self._vector) | memory | own

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a global state.

        Raises:
            InputError: The state belongs to another model.
        """
        self._vector = self._model.layout.vector(state)
        self._memory = {
            name.removeprefix(MEMORY): tensor.double()
            for name, tensor in state.items()
            if name.startswith(MEMORY)
        }
        for client in self._own:
            self.load_own(client, own_tensors(state, client))

    def load_own(self, client: int, tensors: Mapping[str, Tensor]) -> None:
        """Load the tensors that stay with a client, by name: a result of `ClientLearner.own`, or
        more."""
        if client in self._own:
            _load(self._model.own.views(self._own[client]), tensors)

    @torch.no_grad()
    def evaluate(self, samples: Tensor, labels: Tensor) -> tuple[float, float]:
        """Mean loss and accuracy of the global state on a batch of held-out samples.

        If a part of the model stays with each client, the means over the models of all clients.
        """
        model, found = self._model, []
        with self._lock:
            model.attach(model.layout.views(self._vector.to(model.device)))
            labels = labels.to(model.device).flatten()
            for own in self._own.values() or [torch.zeros(0)]:
                model.attach(model.own.views(own))
                smashed = model.client(samples.to(model.device), 1)
                logits = model.server(smashed, 1).flatten(0, -2)
                loss = functional.cross_entropy(logits, labels)
                hits = (logits.argmax(1) == labels).float().mean()
                found.append((float(loss), float(hits)))
        losses, accuracies = zip(*found, strict=True)
        return sum(losses) / len(found), sum(accuracies) / len(found)


def own_tensors(state: Mapping[str, Tensor], client: int) -> dict[str, Tensor]:
    """Tensors that stay with a client, by name, in a result of `ServerLearner.state`."""
    prefix = f"{OWN}{client}."
    return {n.removeprefix(prefix): t for n, t in state.items() if n.startswith(prefix)}
