# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Real learning for node programs: computes with torch and exchanges plain bytes."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import safetensors.torch
import torch
from torch import Tensor

from testbed.transport.wire import RoundSizes
from workloads.aggregation.rules import Link
from workloads.codecs.codec import Codec, Direction
from workloads.codecs.registry import codec_of
from workloads.data.samples import (
    ClientData,
    Dataset,
    Passes,
    client_data,
    holdings,
    open_data,
)
from workloads.learning.backbone import load_model
from workloads.learning.learner import ClientLearner, PassTimes, Seen, ServerLearner, own_tensors
from workloads.learning.model import SplitModel
from workloads.learning.settings import DataConfig, ModelConfig, TrainingConfig
from workloads.learning.stopwatch import Stopwatch
from workloads.learning.streams import AdapterUploads, Receiver, Sender
from workloads.learning.work import BatchResult, Evaluation, Notes, Observations, Served


@dataclass(frozen=True)
class Settings:
    """Learning settings of a node; sent as JSON."""

    model: ModelConfig
    training: TrainingConfig
    data: DataConfig
    batch_size: int
    clients: int
    backbone: str
    """File of the frozen weights."""
    wire_dtype: str
    """Name of the codec."""
    wire_parameters: Mapping[str, Any]
    """Parameters of the codec."""
    wire_error: bool
    """Whether to record the codec's error."""
    clients_per_pass: int
    """Largest number of clients per pass of the server."""
    evaluate_samples: int
    """Largest number of samples of an evaluation."""
    device: str
    threads: int
    shared_samples: int = 0
    """Number of samples per batch whose gradients are averaged over the clients."""
    batch_sizes: Sequence[int] = ()
    """Batch size of each client; empty: `batch_size`, which is the largest, for all."""
    codecs: Mapping[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    """Names and parameters of the codecs of directions that do not have the one above."""
    error_feedback: bool = True
    """Whether clients add the values that the encoding of adapters omitted to later adapters."""
    epoch_iterations: Sequence[int] = ()
    """If batches pass over the data: number of iterations of each client per round; empty: batches
    are fresh draws."""
    keeps_last_batch: bool = False
    """Whether passes end with a batch of the remaining samples."""

    @classmethod
    def from_json(cls, tree: Mapping[str, object]) -> "Settings":
        """Settings from the result of `dataclasses.asdict`."""
        fields = dict(tree)
        for name, kind in (
            ("model", ModelConfig),
            ("training", TrainingConfig),
            ("data", DataConfig),
        ):
            fields[name] = kind(**fields[name])  # type: ignore[arg-type]
        return cls(**fields)  # type: ignore[arg-type]

    @property
    def codec(self) -> Codec:
        """The codec of smashed data and gradients that have no other one."""
        return codec_of(self.wire_dtype, self.wire_parameters)

    def codec_for(self, direction: Direction) -> Codec | None:
        """The codec of a direction; None: adapters are sent as float32, without a codec."""
        if direction in self.codecs:
            return codec_of(*self.codecs[direction])
        return None if direction in ("adapters_up", "adapters_down") else self.codec

    def sender(self, kind: Literal["smashed", "gradient"]) -> Sender:
        """A new sender of smashed data or gradients for a round."""
        key = f"workload.codecs.{kind}" if kind in self.codecs else "workload.wire_dtype"
        codec = self.codec_for(kind)
        assert codec is not None
        return Sender(codec, kind, notes_errors=self.wire_error, key=key)

    def receiver(self, kind: Literal["smashed", "gradient"]) -> Receiver:
        """A new receiver of smashed data or gradients for a round."""
        codec = self.codec_for(kind)
        assert codec is not None
        return Receiver(codec, kind)

    def batch_of(self, client: int) -> int:
        """Batch size of a client, from 1."""
        return self.batch_sizes[client - 1] if self.batch_sizes else self.batch_size

    def open_model(self) -> SplitModel:
        """The model on its device, over the shared backbone."""
        torch.set_num_threads(self.threads)
        model = load_model(self.model, Path(self.backbone), self.device)
        model.check_batch_size(self.batch_size)
        return model


NOTHING = memoryview(b"")


def batch_name(client: int, round_: int, iteration: int) -> str:
    """Name of a batch, equal on both sides; see `learner.ClientLearner.forward`."""
    return f"{client}/{round_}/{iteration}"


def evaluated_samples(count: int, settings: Settings) -> npt.NDArray[np.int64]:
    """Indices of the held-out samples of an evaluation, out of `count`: always the same ones, drawn
    by the seed, because image folders are sorted by class."""
    order = np.random.default_rng(settings.data.seed).permutation(count)
    return order[: settings.evaluate_samples]


def as_bytes(tensor: Tensor) -> memoryview:
    """The memory of a contiguous CPU tensor, without a copy."""
    return _view(tensor.numpy()) if tensor.numel() else memoryview(bytearray())


def _view(array: npt.NDArray[Any]) -> memoryview:
    return array.data.cast("B")


def _apart(vector: Tensor, count: int) -> Tensor:
    """A vector that consists of several of equal length, shape [count, n]."""
    return vector.reshape(count, vector.numel() // count)


def _few(model: SplitModel) -> int:
    """Samples of a first pass: batch normalisation needs two."""
    return 2 if model.norms else 1


@dataclass(frozen=True)
class Opened:
    """The model and the data of the settings, which all clients of a process can share: each one
    attaches its own tensors to the model before it computes."""

    model: SplitModel
    shares: Sequence[ClientData]
    """The data of each client, in order."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Open the model and the training data, and divide the data among the clients."""
        model = settings.open_model()
        dataset = open_data(settings.data, settings.model.classes, model.input)
        batches = settings.batch_sizes or settings.batch_size
        shares = client_data(dataset, settings.data, settings.clients, batches)
        if settings.epoch_iterations:
            keeps = settings.keeps_last_batch
            shares = [
                share.passing(Passes(iterations, keeps))
                for share, iterations in zip(shares, settings.epoch_iterations, strict=True)
            ]
            if keeps:
                model.check_batch_size(
                    min(len(share.indices) % share.batch_size or 2 for share in shares)
                )
        return cls(model, shares)


class RealClient:
    """The client side of learning at a UAV.

    Args:
        settings: Settings of learning.
        client: Number of the client, starting from 1.
        opened: Model and data of these settings, if other clients of this process, which do not
            compute at the same time, use them too. None: they are opened, and a first pass over few
            samples is done, so that torch's initialisation is not part of a step.
    """

    def __init__(self, settings: Settings, client: int, opened: Opened | None = None):
        reads_ahead = opened is None
        if opened is None:
            opened = Opened.of(settings)
            self._warm_up(opened.model, settings.training, client)
        model = opened.model
        self._client = client
        self._learner = ClientLearner(model, settings.training, client)
        self._layout = self._learner.layout
        self._names = settings.training.travelling.down
        self._data = opened.shares[client - 1]
        self._labels_of_sample = model.input.labels
        self._settings = settings
        self._down_codec = settings.codec_for("adapters_down")
        up_codec = settings.codec_for("adapters_up")
        self._uploads = (
            None if up_codec is None else AdapterUploads(up_codec, settings.error_feedback)
        )
        # Other clients would read the same data at the same time.
        self._reader = ThreadPoolExecutor(1) if reads_ahead else None
        self._watch = Stopwatch(model.device)

    @staticmethod
    def _warm_up(model: SplitModel, training: TrainingConfig, client: int) -> None:
        """Do one pass over few samples."""
        learner = ClientLearner(model, training, client)
        learner.begin_round(1, torch.zeros(learner.layout.cuts[1]))
        smashed = learner.forward(model.input.empty(_few(model), "cpu"))
        learner.backward(torch.zeros_like(smashed))

    def begin_round(self, round_: int, split: int, sizes: RoundSizes) -> None:
        """Allocate the buffers of the round, and load its first batch."""
        self._round, self._split, self._batches = round_, split, sizes.batches
        self._received = torch.empty((1 + len(self._names)) * self._layout.cuts[split])
        self._encoded = memoryview(bytearray(0 if self._down_codec is None else sizes.adapters))
        self._encoded_place = self._encoded
        self._gradient = self._gradient_place = memoryview(bytearray(sizes.gradient))
        self._shared = self._shared_place = memoryview(bytearray(sizes.shared_gradient))
        self._up = self._settings.sender("smashed")
        self._down = self._settings.receiver("gradient")
        self._down_shared = self._settings.receiver("gradient")
        self._samples = sizes.labels // self._labels_of_sample
        self._fetch(1)
        self._batch()

    def _name(self, iteration: int) -> str:
        return batch_name(self._data.client, self._round, iteration)

    def _fetch(self, iteration: int) -> None:
        """Load a batch, in the background if a step is timed, because reading data is not part of
        it."""
        read = partial(self._data.batch, self._round, iteration, self._samples)
        self._batch: Callable[[], tuple[Tensor, Tensor]]
        if self._reader is not None:
            self._batch = self._reader.submit(read).result
            return
        batch = read()
        self._batch = lambda: batch

    def adapters_header(self) -> bytes:
        """The safetensors header of the adapters."""
        return self._layout.header(self._split)

    def adapters_buffer(self, size: int | None = None) -> memoryview:
        """Buffer for the received broadcast."""
        self._encoded_place = self._encoded[:size]
        return as_bytes(self._received) if self._down_codec is None else self._encoded_place

    def load_adapters(self) -> None:
        """Start the round from the received broadcast."""
        if self._down_codec is not None:
            down = Receiver(self._down_codec, "adapters")
            received = down.decode(self._encoded_place, self._received.shape)
            self._received = self._layout.decoded(received)
        adapters, *vectors = _apart(self._received, 1 + len(self._names))
        came = dict(zip(self._names, vectors, strict=True))
        self._learner.begin_round(self._split, adapters, self._round, came)

    def forward(self, iteration: int) -> None:
        """Do the forward pass of the iteration's batch."""
        images, labels = self._batch()
        with self._watch:
            smashed = self._learner.forward(images, self._name(iteration)).cpu()
            self._shape = smashed.shape
            sent = self._up.encode(smashed)
        self._up.note_error(smashed, sent)
        if iteration < self._batches:
            self._fetch(iteration + 1)
        self._sent = sent, _view(labels.numpy().astype("<u4"))

    def smashed(self) -> tuple[memoryview, memoryview]:
        """Smashed data and labels of the batch."""
        return self._sent

    @property
    def seconds(self) -> float:
        """Real seconds of the last pass; on a GPU, measured by its events."""
        return self._watch.seconds

    def gradient_buffer(self, size: int | None = None) -> memoryview:
        """Buffer for the received gradient."""
        self._gradient_place = self._gradient[:size]
        return self._gradient_place

    def shared_gradient_buffer(self, size: int | None = None) -> memoryview:
        """Buffer for the received aggregated gradients."""
        self._shared_place = self._shared[:size]
        return self._shared_place

    def backward(self) -> None:
        """Do the backward pass and the optimiser step."""
        with self._watch:
            self._learner.backward(self._received_gradient())

    def _received_gradient(self) -> Tensor:
        """The gradient of the whole batch, whose first samples may have aggregated ones."""
        count, (batch, *of_sample) = self._settings.shared_samples, self._shape
        if not count:
            return self._down.decode(self._gradient_place, self._shape)
        parts = [self._down_shared.decode(self._shared_place, (count, *of_sample))]
        if count < batch:
            parts.append(self._down.decode(self._gradient_place, (batch - count, *of_sample)))
        return torch.cat(parts)

    def adapters(self) -> memoryview:
        """The trained adapters and the vectors that accompany them, or the encoded difference of
        the adapters to the received ones."""
        sent = self._learner.end_round()
        trained = self._learner.adapters()
        if self._uploads is None:
            return as_bytes(torch.cat([trained, *sent.values()]) if sent else trained)
        return self._uploads.encode(trained, self._received)

    def notes(self) -> Notes:
        """The codec's error in the smashed data, by iteration."""
        return {"wire_errors": self._up.errors}

    def state(self) -> bytes:
        """Tensors that stay with this client on its side, as a safetensors file."""
        return bytes(safetensors.torch.save(self._learner.own()))

    def restore(self, state: bytes) -> None:
        """Continue from the tensors that stay with this client in a state of the server.

        Raises:
            InputError: The state belongs to another model.
        """
        self._learner.load_own(own_tensors(safetensors.torch.load(state), self._client))

    def kept(self) -> dict[str, Tensor]:
        """What this client keeps from round to round in addition to `state`, by name."""
        left_out = None if self._uploads is None else self._uploads.left_out
        return {} if left_out is None else {"left_out": left_out}

    def load_kept(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from a result of `kept`."""
        if self._uploads is not None:
            self._uploads.left_out = tensors.get("left_out")

    def close(self) -> None:
        """Stop loading batches."""
        if self._reader is not None:
            self._reader.shutdown(cancel_futures=True)


class RealServer:
    """The server side of learning at the base station.

    Args:
        settings: Settings of learning.
        opened: Model and data of these settings, if clients of this process, which do not compute
            at the same time, use them too. None: they are opened.
    """

    def __init__(self, settings: Settings, opened: Opened | None = None):
        if opened is None:
            opened = Opened.of(settings)
        model, shares = opened.model, opened.shares
        self._layout = model.layout
        self._settings = settings
        clients = range(1, settings.clients + 1)
        self._shares = {share.client: share for share in shares}
        self._samples = {share.client: len(share.indices) for share in shares}
        self._learner = ServerLearner(model, clients, settings.training, self._samples)
        self._down_codec = settings.codec_for("adapters_down")
        self._up_codec = settings.codec_for("adapters_up")
        self._holdings = [holdings(share) for share in shares]
        """Class distribution of the clients, until it has been reported."""
        self._feature_shapes = model.feature_shapes
        self._held_out: Dataset | None = None
        self._input = model.input
        self._pass_times: dict[int, PassTimes] = {}
        self._times: PassTimes | None = None
        self._results: dict[int, Served] = {}
        self.in_turn = settings.training.server_adapters != "per-client"
        if settings.clients_per_pass > 1:
            self._learner.check_together()
        self._warm_up(_few(model))

    def _warm_up(self, samples: int) -> None:
        """Do one pass over few samples through the last parts, on a copy: see `RealClient`."""
        state = self._learner.state()
        split = max(1, len(self._feature_shapes) - 1)
        self._learner.begin_round(split)
        smashed = torch.zeros(samples, *self._feature_shapes[split - 1])
        labels = torch.zeros(samples * self._input.labels, dtype=torch.int64)
        self._learner.forward_backward(1, smashed, labels)
        self._learner.load_state(state)

    def begin_round(
        self,
        round_: int,
        splits: Sequence[int],
        sizes: Sequence[RoundSizes],
        clients: Collection[int] | None = None,
    ) -> None:
        """Split the global state and allocate buffers for every client's frames.

        Args:
            round_: Index of the round.
            splits: Split point of each client.
            sizes: Sizes of each client's frames.
            clients: Clients that take part; None: all may.
        """
        self._round, self._served = round_, Counter[int]()
        self._splits = dict(enumerate(splits, start=1))
        here = self._samples.keys() if clients is None else clients
        same = splits[0] if len(set(splits)) == 1 else None
        together = min(self._settings.clients_per_pass, len(self._samples))
        if together > 1 and same is not None and same not in self._pass_times:
            self._learner.begin_round(self._splits, round_)
            self._pass_times[same] = self._learner.pass_times(
                together, self._settings.batch_size, self._feature_shapes[same - 1]
            )
        # If split points differ, clients are served separately.
        self._times = None if same is None else self._pass_times.get(same)
        self._learner.begin_round(self._splits, round_, here)
        self._sent: dict[int, memoryview] = {}
        self._starts: dict[int, Tensor] = {}
        for client in here:
            self._prepare_broadcast(client, self._learner.part(client))
        self._passes: list[int] = []
        self._kept: list[dict[str, Tensor]] = []
        settings = self._settings
        self._up = {k: settings.receiver("smashed") for k in here}
        self._down = {k: settings.sender("gradient") for k in here}
        self._down_shared = settings.sender("gradient")
        self._first_gradients: dict[int, Tensor] = {}
        """Gradients of the first samples of each client's last batch, which are aggregated."""
        of_client = dict(enumerate(sizes, start=1))
        self._smashed = {k: memoryview(bytearray(of_client[k].smashed)) for k in here}
        self._labels = {k: np.zeros(of_client[k].labels, dtype="<u4") for k in here}
        self._adapters = {k: memoryview(bytearray(of_client[k].adapters_up)) for k in here}
        self._smashed_place, self._adapters_place = dict(self._smashed), dict(self._adapters)

    def _prepare_broadcast(self, client: int, part: Tensor) -> None:
        """Encode a client's part of the global adapters, and keep the values that the client
        receives."""
        if self._down_codec is None:
            vectors = self._learner.accompanying(client)
            self._sent[client] = as_bytes(torch.cat([part, *vectors]) if vectors else part)
            self._starts[client] = part
            return
        down = Sender(self._down_codec, "adapters", key="workload.codecs.adapters_down")
        sent = down.encode(part)
        self._sent[client] = sent
        received = memoryview(bytearray(sent))
        decoded = Receiver(self._down_codec, "adapters").decode(received, part.shape)
        self._starts[client] = self._learner.layout_of(client).decoded(decoded)

    def _trained(self, client: int) -> Tensor:
        """The adapters that a client has sent, and the vectors that accompany them."""
        start, data = self._starts[client], self._adapters_place[client]
        if self._up_codec is None:
            if not len(data):  # With `adapters: none`, which `frombuffer` refuses.
                return torch.empty(0)
            return torch.frombuffer(data, dtype=torch.float32)
        trained = start + Receiver(self._up_codec, "adapters").decode(data, start.shape)
        return self._learner.layout_of(client).decoded(trained)

    def adapters_header(self, client: int) -> bytes:
        """The safetensors header of that client's adapters."""
        return self._learner.layout_of(client).header(self._splits[client])

    def broadcast(self, client: int) -> memoryview:
        """The global adapters of that client's part."""
        return self._sent[client]

    def smashed_buffer(self, client: int, size: int | None = None) -> memoryview:
        """Buffer for that client's received smashed data."""
        self._smashed_place[client] = self._smashed[client][:size]
        return self._smashed_place[client]

    def labels_buffer(self, client: int) -> memoryview:
        """Buffer for that client's received labels."""
        return _view(self._labels[client])

    def pass_size(self, waiting: int, rest_s: float) -> int:
        """The number of clients that one pass can serve in time if this is faster, otherwise 1.

        If the first client is late in any case, the largest possible number is served together.
        """
        times = self._times
        if times is None or not times.pays:
            return 1
        most = min(waiting, times.clients)
        in_time = (size for size in range(most, 0, -1) if times.seconds(size) <= rest_s)
        return next(in_time, most)

    def forward_backward(self, clients: Sequence[int]) -> None:
        """Do one pass for these clients' batches."""
        self._passes.append(len(clients))
        self._served.update(clients)
        waiting = {client: self._arrived(client) for client in clients}
        names = {k: batch_name(k, self._round, self._served[k]) for k in clients}
        if len(waiting) == 1:
            [(client, batch)] = waiting.items()
            steps = {client: self._learner.forward_backward(client, *batch, names[client])}
        else:
            steps = self._learner.forward_backward_together(waiting, names)
        for client, step in steps.items():
            gradient, down = step.gradient.cpu(), self._down[client]
            shared = self._settings.shared_samples
            self._first_gradients[client], gradient = gradient[:shared], gradient[shared:]
            sent = NOTHING
            if len(gradient):
                sent = down.encode(gradient)
                down.note_error(gradient, sent)
            self._results[client] = sent, BatchResult(step.loss, step.accuracy)

    def _arrived(self, client: int) -> tuple[Tensor, Tensor]:
        """The smashed data and labels of a client's batch."""
        shape = self._shape(client)
        smashed = self._up[client].decode(self._smashed_place[client], shape)
        labels = self._labels[client][: shape[0] * self._input.labels]
        return smashed, torch.from_numpy(labels.astype(np.int64))

    def served(self, client: int) -> Served:
        """The gradient of a client's smashed data, with loss and accuracy of its batch."""
        return self._results[client]

    def shared_gradient(self, clients: Sequence[int]) -> memoryview:
        """The gradients of the first samples of the last batches, averaged over these clients in
        float64, in the order of their numbers, and weighted by their samples."""
        total = sum(self._samples[client] for client in clients)
        mean = sum(
            self._samples[client] / total * self._first_gradients[client].double()
            for client in sorted(clients)
        )
        assert isinstance(mean, Tensor)
        return self._down_shared.encode(mean.float())

    def _shape(self, client: int) -> tuple[int, ...]:
        """Shape of the smashed data of that client's last batch."""
        share, batch = self._shares[client], len(self._labels[client]) // self._input.labels
        if share.passes is not None:  # The last batch of a pass may be smaller.
            batch = share.size(self._round, self._served[client])
        return (batch, *self._feature_shapes[self._splits[client] - 1])

    def adapters_buffer(self, client: int, size: int | None = None) -> memoryview:
        """Buffer for that client's received adapters."""
        self._adapters_place[client] = self._adapters[client][:size]
        return self._adapters_place[client]

    def aggregate(self, clients: Collection[int], seen: Observations | None = None) -> None:
        """Aggregate these clients' models, weighted by their samples."""
        names = self._settings.training.travelling.up
        adapters, sent = {}, {}
        for client in clients:
            adapters[client], *vectors = _apart(self._trained(client), 1 + len(names))
            sent[client] = dict(zip(names, vectors, strict=True))
        found = {
            client: Seen(duration_s, Link(*link) if link else None)
            for client, (duration_s, link) in (seen or {}).items()
        }
        self._learner.aggregate(adapters, self._samples, sent, found)

    def begin_update(self, client: int) -> None:
        """Copy the client's part of the global model, which may change during its transfer."""
        self._prepare_broadcast(client, self._learner.begin_update(client))

    def mix(self, client: int, staleness: int) -> None:
        """Mix the client's received adapters and its server-side set into the global model."""
        self._learner.mix(client, self._trained(client), staleness)

    def apply_buffer(self) -> None:
        """Change the global model by the updates in the buffer."""
        self._learner.apply_buffer()

    def keep(self) -> None:
        """Keep the current global state."""
        self._kept.append(self._learner.state())

    def notes(self) -> Notes:
        """Clients whose model is not finite, number of batches and duration of passes, the codec's
        error in gradients by client, and the first time the clients' class distribution, see
        `holdings`."""
        told, self._holdings = self._holdings, []
        return {
            "partition": told,
            "diverged": self._learner.diverged,
            "passes": self._passes,
            "pass_times": None if self._times is None else asdict(self._times),
            "wire_errors": {client: down.errors for client, down in self._down.items()},
        }

    def evaluate(self, kept: int = -1) -> Evaluation:
        """Loss and accuracy of a global state on the first held-out samples, batch by batch."""
        if kept < 0:
            return self._evaluate()
        current = self._learner.state()
        self._learner.load_state(self._kept[kept])
        try:
            return self._evaluate()
        finally:
            self._learner.load_state(current)

    def _evaluate(self) -> Evaluation:
        settings = self._settings
        if self._held_out is None:
            self._held_out = open_data(
                settings.data, settings.model.classes, self._input, train=False
            )
        chosen = evaluated_samples(len(self._held_out.labels), settings)
        loss = accuracy = 0.0
        for start in range(0, len(chosen), settings.batch_size):
            part = chosen[start : start + settings.batch_size]
            of_part = self._learner.evaluate(*self._held_out.batch(part))
            loss += of_part[0] * len(part)
            accuracy += of_part[1] * len(part)
        return Evaluation(loss / len(chosen), accuracy / len(chosen), len(chosen))

    def state(self) -> bytes:
        """Adapters of both sides and the head as a safetensors file with the unsplit model's
        names."""
        return bytes(safetensors.torch.save(self._learner.state()))

    def restore(self, state: bytes) -> None:
        """Continue from a global state.

        Raises:
            InputError: The state belongs to another model.
        """
        self._learner.load_state(safetensors.torch.load(state))

    def take_own(self, client: int, state: bytes) -> None:
        """Load the tensors that stay with a client on its side: a result of `RealClient.state`."""
        self._learner.load_own(client, safetensors.torch.load(state))

    def close(self) -> None:
        """Do nothing: there are no resources to release."""
