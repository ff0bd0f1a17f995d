# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Split federated learning without a network: the computing of UAV and BS.

A `ClientLearner` and a `ServerLearner` exchange plain tensors; by default (one server-side set per
client) the result does not depend on how and when these are transferred.
"""

import inspect
import math
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from testbed.core.errors import InputError
from testbed.core.registry import failures
from workloads.aggregation.local import LocalStep, Part, kept
from workloads.aggregation.rules import Link, Sender, Update, applied, rule_of
from workloads.aggregation.staleness import weight
from workloads.learning.model import (
    BS_STATE,
    MEMORY,
    OWN,
    RULE_STATE,
    UAV_STATE,
    Layout,
    LoraConv,
    SplitModel,
    initial_trainables,
)
from workloads.learning.ranks import ranked
from workloads.learning.settings import TrainingConfig
from workloads.learning.stopwatch import Stopwatch
from workloads.models.uncompiled import without_compiler


@dataclass(frozen=True)
class Local:
    """The local steps of one side of a client's model in a round, and what they are given."""

    client: int
    at_uav: bool
    steps: Sequence[tuple[str, LocalStep]]
    received: Mapping[str, Tensor] = field(default_factory=dict)
    """Elements of the vectors that came with the global model, like those of the model; zeros where
    there are none."""
    state: Mapping[str, Tensor] = field(default_factory=dict)
    """State from the client's earlier rounds."""


def _optimiser(
    trained: list[Tensor], training: TrainingConfig, rate: float
) -> torch.optim.Optimizer:
    decay = training.weight_decay
    if training.optimiser == "adamw":
        return torch.optim.AdamW(trained, rate, weight_decay=decay)
    return torch.optim.SGD(trained, rate, momentum=training.momentum, weight_decay=decay)


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
        local: Local | None = None,
    ) -> None:
        """Take over vectors, which are trained in place.

        Args:
            layout: Layout of the global model.
            start: Position of `values` in the vector.
            values: Elements of the vector, shape [n].
            training: Configuration.
            own: Layout, position and elements of the tensors that stay with the client.
            round_: The round, which the learning rate may depend on.
            local: Local steps, if there are any.
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
        # Tensors that stay with a client have no global counterpart.
        self._global = self._trained[:global_runs]
        self._clip_norm = training.clip_norm
        self._accumulate = training.accumulate
        self._waiting = 0
        """Batches whose gradients wait for a step."""
        rate = training.learning_rate * training.factor(round_)
        self.part: Part | None = None
        """What local steps see; None: there are none, or the round is over."""
        self.sent: Mapping[str, Tensor] = {}
        """After the round: vectors [n] that local steps send, by name."""
        self.state: Mapping[str, Tensor] = {}
        """After the round: state of the local steps."""
        if local is not None and not self._global:
            names = [name for _, step in local.steps for name in step.sends]
            self.sent = {name: torch.zeros_like(values) for name in names}
        self._local, self._spans = (
            local,
            [
                slice(span.start - start, span.stop - start)
                for span in layout.spans(start, start + values.numel())
            ],
        )
        if local is not None and local.steps and self._global:
            self._begin(local, layout, start, training.seed, rate, round_)
        self._optimiser: torch.optim.Optimizer | None = None
        if self._trained:
            with without_compiler():
                self._optimiser = _optimiser(self._trained, training, rate)
            # Without the hooks of torch's profiler and compiler: they cost as much as a small step.
            self._step = partial(inspect.unwrap(type(self._optimiser).step), self._optimiser)

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

    def _begin(
        self, local: Local, layout: Layout, start: int, seed: int, rate: float, round_: int
    ) -> None:
        """Begin the local steps."""
        names = [
            (entry.name, entry.shape, entry.stop - entry.start)
            for entry in layout.entries
            if start <= entry.start < start + self.values.numel() and not entry.is_statistic
        ]

        def views(vector: Tensor) -> dict[str, Tensor]:
            parts = torch.split(vector, [size for *_, size in names])
            return {n: part.view(shape) for (n, shape, _), part in zip(names, parts, strict=True)}

        self.part = Part(
            *(local.client, round_, local.at_uav, seed, rate),
            start=self._gathered(self._global).clone(),
            values=self._gathered(self._global),
            gradient=self._gathered([run.grad for run in self._global if run.grad is not None]),
            received={
                name: self._gathered([whole.to(self.values)[span] for span in self._spans])
                for _, step in local.steps
                for name in step.receives
                for whole in (local.received.get(name, torch.zeros_like(self.values)),)
            },
            state={name: tensor.to(self.values.device) for name, tensor in local.state.items()},
            views=views,
        )
        self._tell("begin", self.part)

    @torch.no_grad()
    def _tell(self, what: str, part: Part) -> None:
        """Call a method of each local step, with the present values, which it may change."""
        assert self._local is not None
        gradients = [run.grad for run in self._global if run.grad is not None]
        several = len(self._global) > 1
        if several:
            part.values, part.gradient = self._gathered(self._global), self._gathered(gradients)
        for where, step in self._local.steps:
            with failures(f"round {part.round}: {where}"):
                getattr(step, what)(part)
        if several:
            sizes = [run.numel() for run in self._global]
            for into, vector in ((self._global, part.values), (gradients, part.gradient)):
                for run, own in zip(into, torch.split(vector, sizes), strict=True):
                    run.copy_(own)

    @staticmethod
    def _gathered(runs: Sequence[Tensor]) -> Tensor:
        """The elements of runs as one vector: a view if there is one run."""
        return runs[0].detach() if len(runs) == 1 else torch.cat([run.detach() for run in runs])

    def end(self) -> None:
        """Do the last steps of the round, and those of the local steps; only the first call counts
        in a round.

        Raises:
            RunError: A local step fails, or leaves something that cannot be saved or sent.
        """
        self.finish()
        part, self.part = self.part, None
        if part is None:
            return
        assert self._local is not None
        self._tell("finish", part)
        where, sends = self._local.steps[-1][0], {}
        with failures(f"round {part.round}: {where}"):
            for name in dict.fromkeys(n for _, step in self._local.steps for n in step.sends):
                if (sent := part.sent.get(name)) is None or sent.shape != part.values.shape:
                    shape = "nothing" if sent is None else list(sent.shape)
                    size = part.values.numel()
                    raise ValueError(f"sent[{name!r}]: must be a vector of {size}, not {shape}")
                sends[name] = whole = torch.zeros_like(self.values)
                for span, own in zip(
                    self._spans,
                    torch.split(sent.to(whole), [s.stop - s.start for s in self._spans]),
                    strict=True,
                ):
                    whole[span] = own
            self.state = kept(part.state, "state")
        self.sent = sends

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
            if self.part is not None:
                self._tell("gradient", self.part)
                self.part.steps += 1
            if self._clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(self._trained, self._clip_norm)
            with without_compiler(), torch.no_grad():
                self._step()
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
        self._client = client
        self._local_steps = training.local_steps
        self._state: Mapping[str, Tensor] = {}
        """State of the local steps on this side, from earlier rounds."""

    def begin_round(
        self,
        split: int,
        adapters: Tensor,
        round_: int = 0,
        received: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Start a round from the broadcast adapters, with a new optimiser.

        Args:
            split: Split point u, the number of parts on this side.
            adapters: Float32, shape [layout.cuts[split]]; copied, so a receive buffer may be
                passed.
            round_: The round, which the learning rate may depend on.
            received: The vectors that came with the adapters, by name, each with their shape.
        """
        self._split = split
        self._trainees = Trainees(
            self.layout,
            0,
            adapters.detach().to(self._model.device, torch.float32, copy=True),
            self._training,
            own=(self._model.own, 0, self._own[: self._model.own.cuts[split]]),
            round_=round_,
            local=Local(
                *(self._client, True, self._local_steps), received or {}, dict(self._state)
            ),
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
        if self._training.recompute:
            # It reads the adapters again, and another learner may have used the model since; it
            # would update statistics a second time.
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

    def end_round(self) -> dict[str, Tensor]:
        """Do the last steps of the round; returns the vectors to send with the adapters, by name,
        each with their shape."""
        assert self._trainees is not None, "call begin_round first"
        self._trainees.end()
        self._state = self._trainees.state or self._state
        return {name: vector.cpu() for name, vector in self._trainees.sent.items()}

    def own(self) -> dict[str, Tensor]:
        """Tensors that stay with this client on its side, by name: see `SplitModel.own`, and the
        state of the local steps."""
        own = self._model.own.views(self._own[: self._model.own.cuts[self._split]].cpu())
        return own | {f"{UAV_STATE}{name}": tensor for name, tensor in self._state.items()}

    def load_own(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from a result of `own`; others of these tensors are unchanged."""
        self._state = under(UAV_STATE, tensors)
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
        if name.startswith((UAV_STATE, BS_STATE)):
            continue
        if name not in into or into[name].shape != tensor.shape:
            raise InputError(f"adapters: {name[:80]} of a client does not fit the model")
        into[name].copy_(tensor)


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names have a prefix, by the rest of their names."""
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


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


@dataclass(frozen=True)
class Seen:
    """Observations of the base station of a client in a round; see `Sender`."""

    duration_s: float = math.nan
    link: Link | None = None


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
        self._memory: dict[str, Any] = {}
        self._local_steps = training.local_steps
        self._travelling = training.travelling
        if self._travelling.hides and any(entry.is_statistic for entry in model.layout.entries):
            raise InputError(
                f"workload.batch_norm: must not be 'averaged' with local_step "
                f"{training.local_step!r}, because {model.config.model} would send statistics that "
                "it does not hide"
            )
        names = [entry.name for entry in model.layout.entries if not entry.is_statistic]
        for where, step in self._local_steps:
            try:
                step.check(names)
            except ValueError as error:
                raise InputError(f"{where}: {error}") from None
        self._states: dict[str, dict[int, dict[str, Any]]] = {
            kind: {client: {} for client in clients} for kind in (RULE_STATE, BS_STATE, UAV_STATE)
        }
        """By kind and client: states of the rule, and of the local steps on both sides."""
        self._losses: dict[int, list[float]] = {client: [] for client in clients}
        """Losses of each client's batches in this round."""
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

    def begin_round(
        self,
        split: int | Mapping[int, int],
        round_: int = 0,
        clients: Collection[int] | None = None,
    ) -> Tensor:
        """Split the global state after `split` parts, and reset the optimisers.

        Args:
            split: Split point u of all clients, or u_k by client.
            round_: The round, which the learning rate may depend on.
            clients: Clients that take part; None: all may.

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
            here = self._clients if clients is None else clients
            self._trainees = {client: copy(client, points[client]) for client in here}
        self._splits = points
        self._buffer.clear()
        self.diverged = []
        self._losses = {client: [] for client in self._clients}
        return self._vector[: layout.cuts[max(points.values())]]

    def layout_of(self, client: int) -> Layout:
        """Layout of a client's adapters, of its rank."""
        return self._layouts[client].layout

    def part(self, client: int) -> Tensor:
        """A client's part of the global state, float32, contiguous, on the CPU; shape [cuts[u_k]],
        of the layout of its rank. Call it after `begin_round`."""
        own = self._layouts[client]
        return own.part(self._vector, 0, own.layout.cuts[self._splits[client]])

    def accompanying(self, client: int) -> list[Tensor]:
        """The vectors that are broadcast with a client's part, in order, each with its shape."""
        own = self._layouts[client]
        cut = own.layout.cuts[self._splits[client]]
        return [own.part(self._in_memory(name), 0, cut) for name in self._travelling.down]

    def _in_memory(self, name: str) -> Tensor:
        """A vector of the rule's memory with zeros in place of statistics; float32, shape
        [layout.size]."""
        layout = self._model.layout
        whole = torch.zeros(layout.size)
        if name in self._memory:
            spans = layout.spans(0, layout.size)
            parts = torch.split(self._memory[name], [span.stop - span.start for span in spans])
            for span, part in zip(spans, parts, strict=True):
                whole[span] = part.float()
        return whole

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
        received = {n: ranked_.part(self._in_memory(n), cut) for n in self._travelling.down}
        local = Local(client, False, self._local_steps, received, self._states[BS_STATE][client])
        return Trainees(
            ranked_.layout, cut, part, training, own=own, round_=self._round, local=local
        )

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
            self._losses[client] = []
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
            self._trainees[client].end()
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
            self._losses[client].append(float(loss.detach()))
            return ServerStep(leaf.grad.contiguous(), self._losses[client][-1], float(accuracy))

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
            for client, loss in zip(batches, losses.detach().tolist(), strict=True):
                self._losses[client].append(loss)
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

    def aggregate(
        self,
        adapters: Mapping[int, Tensor],
        samples: Mapping[int, int],
        sent: Mapping[int, Mapping[str, Tensor]] | None = None,
        seen: Mapping[int, Seen] | None = None,
    ) -> None:
        """Aggregate the clients' parts and their server-side sets into the new global state.

        Sums are computed in float64 in the order of the clients at construction, so the order of
        `adapters` does not matter.

        Args:
            adapters: Results of `ClientLearner.adapters` by client; missing clients do not count.
            samples: |D_k| by client.
            sent: Results of `ClientLearner.end_round` by client.
            seen: Observations of the base station by client.

        Raises:
            ValueError: The rule has made or stored something that cannot be used.
        """
        if self._computed:
            self._average()
        taking_part = [client for client in self._clients if client in adapters]
        layout = self._model.layout
        absent = torch.zeros(layout.size, dtype=torch.float64)
        for client in taking_part:
            self._trainees[client].end()
        total = sum(samples[client] for client in taking_part)

        def whole(client: int, part: Tensor, server_side: Tensor) -> Tensor:
            parts = [part.detach().cpu(), server_side.detach().cpu()]
            # Rows and columns that a client of smaller rank does not have count as 0.
            return self._layouts[client].within(torch.cat(parts).double(), absent)

        def whole_models() -> Iterator[tuple[float, Tensor]]:
            for client in taking_part:
                model = whole(client, adapters[client], self._trainees[client].values)
                yield samples[client] / total, model

        self.diverged = [
            client
            for client in taking_part
            if not torch.isfinite(adapters[client]).all()
            or not torch.isfinite(self._trainees[client].values).all()
        ]
        before = self._vector.double()
        parameters = layout.spans(0, layout.size)
        are_all = sum(span.stop - span.start for span in parameters) == layout.size

        def without_statistics(vector: Tensor) -> Tensor:
            """Rules are for parameters: a momentum of variances could make them negative."""
            return vector if are_all else torch.cat([vector[span] for span in parameters])

        def models() -> Iterator[tuple[float, Tensor]]:
            for share, vector in whole_models():
                yield share, without_statistics(vector)

        def vectors() -> Iterator[dict[str, Tensor]]:
            for client in taking_part:
                there, here = (sent or {}).get(client, {}), self._trainees[client].sent
                yield {
                    name: without_statistics(whole(client, there[name], here[name]))
                    for name in self._travelling.up
                }

        update = Update(
            without_statistics(before),
            models,
            (layout if are_all else layout.parameters()).views,
            self._memory,
            round=self._round,
            senders=[
                self._sender(client, samples[client], total, (seen or {}).get(client))
                for client in taking_part
            ],
            states=self._states[RULE_STATE],
            sent=vectors,
            all_samples=sum(samples[client] for client in self._clients),
        )
        # Rules may fail on values that are not finite; the mean then has them as well.
        if self.diverged or not are_all:
            after = Update(before, whole_models, layout.views, {}).mean()
        if not self.diverged:
            new = applied(self._rule, update)
            self._check_memory(len(update.before))
            if are_all:
                after = new
            else:
                for span, own in zip(
                    parameters,
                    torch.split(new, [s.stop - s.start for s in parameters]),
                    strict=True,
                ):
                    after[span] = own
        self._vector = after.float()
        if self._local_steps:
            for client in taking_part:
                self._states[BS_STATE][client] = dict(self._trainees[client].state)

    def _sender(self, client: int, samples: int, total: int, seen: Seen | None) -> Sender:
        """What is known about a client of this round."""
        training, losses = self._training.of(client), self._losses[client]
        return Sender(
            client,
            samples,
            samples / total,
            losses=tuple(losses),
            steps=-(-len(losses) // training.accumulate),
            learning_rate=training.learning_rate * training.factor(self._round),
            momentum=training.momentum if training.optimiser == "sgd" else 0.0,
            duration_s=math.nan if seen is None else seen.duration_s,
            link=None if seen is None else seen.link,
        )

    def _check_memory(self, size: int) -> None:
        """Refuse vectors to broadcast that do not have the size of the model.

        Raises:
            ValueError: The message names the vector.
        """
        for name in self._travelling.down:
            shape = list(getattr(self._memory.get(name), "shape", [size]))
            if shape != [size]:
                raise ValueError(
                    f"memory[{name!r}]: must be a vector of {size}, which clients receive, not of "
                    f"shape {shape}"
                )

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
        states = {
            f"{place}{name}": tensor
            for kind, of_kind in self._states.items()
            for client, state in of_kind.items()
            for name, tensor in state.items()
            for place in (
                f"{RULE_STATE}{client}." if kind == RULE_STATE else f"{OWN}{client}.{kind}",
            )
        }
        return self._model.layout.views(self._vector) | memory | own | states

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a global state.

        Raises:
            InputError: The state belongs to another model.
        """
        self._vector = self._model.layout.vector(state)
        self._memory = {
            name: tensor.double()
            for name, tensor in under(MEMORY, state).items()
            if not f"{MEMORY}{name}".startswith(RULE_STATE)
        }
        for client in self._clients:
            own = own_tensors(state, client)
            of_rule = under(f"{RULE_STATE}{client}.", state)
            self._states[RULE_STATE][client] = {n: t.double() for n, t in of_rule.items()}
            self._states[BS_STATE][client] = dict(under(BS_STATE, own))
            self.load_own(client, own)

    def load_own(self, client: int, tensors: Mapping[str, Tensor]) -> None:
        """Load the tensors that stay with a client, by name: a result of `ClientLearner.own`, or
        more."""
        self._states[UAV_STATE][client] = dict(under(UAV_STATE, tensors))
        if client in self._own:
            _load(self._model.own.views(self._own[client]), tensors)

    @torch.no_grad()
    def evaluate(self, samples: Tensor, labels: Tensor) -> tuple[float, float]:
        """Mean loss and accuracy of the global state on a batch of held-out samples.

        If a part of the model stays with each client, the means over the models of all clients.
        """
        model, found = self._model, []
        differ = bool(self._own) or has_own(self._local_steps)
        with self._lock:
            views = model.layout.views(self._vector.to(model.device))
            labels = labels.to(model.device).flatten()
            for client in self._clients if differ else self._clients[:1]:
                states = [self._states[kind][client] for kind in (UAV_STATE, BS_STATE)]
                model.attach(with_own(views, self._local_steps, states))
                if client in self._own:
                    model.attach(model.own.views(self._own[client]))
                smashed = model.client(samples.to(model.device), 1)
                logits = model.server(smashed, 1).flatten(0, -2)
                loss = functional.cross_entropy(logits, labels)
                hits = (logits.argmax(1) == labels).float().mean()
                found.append((float(loss), float(hits)))
        losses, accuracies = zip(*found, strict=True)
        return sum(losses) / len(found), sum(accuracies) / len(found)


def with_own(
    views: Mapping[str, Tensor],
    steps: Sequence[tuple[str, LocalStep]],
    states: Sequence[Mapping[str, Tensor]],
) -> dict[str, Tensor]:
    """The tensors of the global model with those that local steps replace for a client.

    Args:
        views: Tensors of the global model by name.
        steps: The local steps.
        states: The client's state on each side.
    """
    found = dict(views)
    for name, tensor in (
        item for _, step in steps for state in states for item in step.own(state).items()
    ):
        if name in found:
            # A client of smaller rank does not have the other rows and columns.
            found[name] = torch.zeros_like(found[name])
            found[name][tuple(map(slice, tensor.shape))] = tensor.to(found[name])
    return found


def has_own(steps: Sequence[tuple[str, LocalStep]]) -> bool:
    """Whether local steps replace tensors of the global model when clients are evaluated."""
    return any(type(step).own is not LocalStep.own for _, step in steps)


def own_tensors(state: Mapping[str, Tensor], client: int) -> dict[str, Tensor]:
    """Tensors that stay with a client, by name, in a result of `ServerLearner.state`."""
    return under(f"{OWN}{client}.", state)
