"""Real learning behind the node programs: torch on one side, plain bytes on the other."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.torch
import torch
from torch import Tensor

from workloads.backbone import load_model
from workloads.codec import decode, encode
from workloads.data import client_data, open_data
from workloads.learning import ClientLearner, ServerLearner
from workloads.model import SplitSwin
from workloads.profile import WireDtype
from workloads.settings import DataConfig, ModelConfig, TrainingConfig
from workloads.work import BatchResult, RoundSizes


@dataclass(frozen=True)
class Settings:
    """What a node is told about the learning; travels as JSON."""

    model: ModelConfig
    training: TrainingConfig
    data: DataConfig
    batch_size: int
    clients: int
    backbone: str
    """File of the frozen weights."""
    wire_dtype: WireDtype
    device: str
    threads: int

    @classmethod
    def from_json(cls, tree: Mapping[str, object]) -> "Settings":
        """Settings from what `dataclasses.asdict` made of them."""
        fields = dict(tree)
        for name, kind in (
            ("model", ModelConfig),
            ("training", TrainingConfig),
            ("data", DataConfig),
        ):
            fields[name] = kind(**fields[name])  # type: ignore[arg-type]
        return cls(**fields)  # type: ignore[arg-type]

    def open_model(self) -> SplitSwin:
        """The model on its device, over the shared backbone."""
        torch.set_num_threads(self.threads)
        return load_model(self.model, Path(self.backbone), self.device)


def as_bytes(tensor: Tensor) -> memoryview:
    """The memory of a contiguous CPU tensor, not copied."""
    return _view(tensor.numpy())


def _view(array: npt.NDArray[Any]) -> memoryview:
    return array.data.cast("B")


class RealClient:
    """A UAV that learns."""

    def __init__(self, settings: Settings, client: int):
        model = settings.open_model()
        self._layout = model.layout
        self._learner = ClientLearner(model, settings.training)
        dataset = open_data(settings.data, settings.model.classes, model.image_size)
        shares = client_data(dataset, settings.data, settings.clients, settings.batch_size)
        self._data = shares[client - 1]
        self._wire_dtype = settings.wire_dtype
        self._warm_up(model.image_size)

    def _warm_up(self, size: int) -> None:
        """One pass over one image: what torch sets up at first use is no part of a step."""
        self._learner.begin_round(1, torch.zeros(self._layout.cuts[1]))
        smashed = self._learner.forward(torch.zeros(1, 3, size, size))
        self._learner.backward(torch.zeros_like(smashed))

    def begin_round(self, round_: int, split: int, sizes: RoundSizes) -> None:
        """Make room for what the round brings."""
        self._round, self._split = round_, split
        self._received = torch.empty(self._layout.cuts[split])
        self._gradient = memoryview(bytearray(sizes.smashed))

    def adapters_header(self) -> bytes:
        """The safetensors header of the adapters."""
        return self._layout.header(self._split)

    def adapters_buffer(self) -> memoryview:
        """Where the broadcast is received."""
        return as_bytes(self._received)

    def load_adapters(self) -> None:
        """Start the round from what was broadcast."""
        self._learner.begin_round(self._split, self._received)

    def forward(self, iteration: int) -> tuple[memoryview, memoryview]:
        """Smashed data and labels of the iteration's batch."""
        images, labels = self._data.batch(self._round, iteration)
        smashed = self._learner.forward(images).cpu()
        self._shape = smashed.shape
        return encode(smashed, self._wire_dtype), _view(labels.numpy().astype("<u4"))

    def gradient_buffer(self) -> memoryview:
        """Where the gradient is received."""
        return self._gradient

    def backward(self) -> None:
        """Backward pass and optimiser step."""
        self._learner.backward(decode(self._gradient, self._shape, self._wire_dtype))

    def adapters(self) -> memoryview:
        """The trained adapters."""
        return as_bytes(self._learner.adapters())


class RealServer:
    """The base station that learns."""

    def __init__(self, settings: Settings):
        model = settings.open_model()
        self._layout = model.layout
        self._settings = settings
        clients = range(1, settings.clients + 1)
        self._learner = ServerLearner(model, clients, settings.training)
        dataset = open_data(settings.data, settings.model.classes, model.image_size)
        shares = client_data(dataset, settings.data, settings.clients, settings.batch_size)
        self._samples = {share.client: len(share.indices) for share in shares}
        self._feature_shapes = feature_shapes(model)
        self._warm_up()

    def _warm_up(self) -> None:
        """One pass over one sample of the last stages, on a copy: see `RealClient`."""
        state = self._learner.state()
        self._learner.begin_round(3)
        smashed = torch.zeros(1, *self._feature_shapes[2])
        self._learner.forward_backward(1, smashed, torch.zeros(1, dtype=torch.int64))
        self._learner.load_state(state)

    def begin_round(self, round_: int, split: int, sizes: RoundSizes) -> None:
        """Cut the global state and make room for every client's frames."""
        self._split = split
        self._broadcast = self._learner.begin_round(split).contiguous()
        batch = self._settings.batch_size
        self._smashed = {client: memoryview(bytearray(sizes.smashed)) for client in self._samples}
        self._labels = {client: np.zeros(batch, dtype="<u4") for client in self._samples}
        self._adapters = {client: torch.empty(self._layout.cuts[split]) for client in self._samples}

    def adapters_header(self) -> bytes:
        """The safetensors header of the adapters."""
        return self._layout.header(self._split)

    def broadcast(self) -> memoryview:
        """The global client adapters."""
        return as_bytes(self._broadcast)

    def smashed_buffer(self, client: int) -> memoryview:
        """Where that client's smashed data are received."""
        return self._smashed[client]

    def labels_buffer(self, client: int) -> memoryview:
        """Where that client's labels are received."""
        return _view(self._labels[client])

    def forward_backward(self, client: int) -> tuple[memoryview, BatchResult | None]:
        """Gradient of the client's smashed data, and what was learned."""
        labels = torch.from_numpy(self._labels[client].astype(np.int64))
        shape = (self._settings.batch_size, *self._feature_shapes[self._split - 1])
        smashed = decode(self._smashed[client], shape, self._settings.wire_dtype)
        step = self._learner.forward_backward(client, smashed, labels)
        gradient = encode(step.gradient.cpu(), self._settings.wire_dtype)
        return gradient, BatchResult(step.loss, step.accuracy)

    def adapters_buffer(self, client: int) -> memoryview:
        """Where that client's trained adapters are received."""
        return as_bytes(self._adapters[client])

    def aggregate(self) -> None:
        """Average over the clients, weighted by their samples."""
        self._learner.aggregate(self._adapters, self._samples)

    def state(self) -> bytes:
        """Adapters of both sides and the head as a safetensors file, by the unsplit names."""
        return bytes(safetensors.torch.save(self._learner.state()))


def feature_shapes(model: SplitSwin) -> list[tuple[int, int, int]]:
    """Height, width and channels of the smashed data of one sample, for u = 1..4."""
    shapes = []
    for info in model.net.feature_info:
        side = model.image_size // info["reduction"]
        shapes.append((side, side, info["num_chs"]))
    return shapes
