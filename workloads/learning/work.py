# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a node program asks of whoever computes: real learning, or the same bytes without it.

`workloads.learning.real` learns with torch, `workloads.offload` has the host of virtual time
do so; `ZeroClient` and `ZeroServer` here carry the sizes alone and import no torch, for pure
network studies. A pass is begun by one call and taken by another, which may have to wait for it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from testbed.transport.wire import RoundSizes

Notes = dict[str, Any]
"""What the work observed in a round, as JSON has it; goes to the orchestrator with the report."""


@dataclass(frozen=True)
class BatchResult:
    """What the server learned from one batch."""

    loss: float
    accuracy: float


Served = tuple[memoryview, BatchResult | None]
"""Gradient of a client's smashed data, and what was learned."""


@dataclass(frozen=True)
class Evaluation:
    """The global state on held-out data."""

    loss: float
    accuracy: float
    samples: int


class ClientWork(Protocol):
    """Client side of the split model. Buffers are plain bytes, valid until the next call."""

    @property
    def seconds(self) -> float:
        """Real seconds that the last forward or backward pass took, by its device's own clock; 0
        where it may go on after the call."""

    def begin_round(self, round_: int, split: int, sizes: RoundSizes) -> None:
        """Get ready for a round, outside emulated time."""

    def adapters_buffer(self) -> memoryview:
        """Where the broadcast is received."""

    def adapters_header(self) -> bytes:
        """The safetensors header of the adapters; both sides must agree on it."""

    def load_adapters(self) -> None:
        """Take over what the buffer holds."""

    def forward(self, iteration: int) -> None:
        """Begin the forward pass of the iteration's batch."""

    def smashed(self) -> tuple[memoryview, memoryview]:
        """What it gives: smashed data and labels."""

    def gradient_buffer(self) -> memoryview:
        """Where the gradient is received."""

    def backward(self) -> None:
        """Begin the backward pass and optimiser step with what the buffer holds."""

    def adapters(self) -> memoryview:
        """The trained adapters."""

    def notes(self) -> Notes:
        """What was observed in the round."""

    def close(self) -> None:
        """Let go of whatever computes; nothing is asked after it."""


class ServerWork(Protocol):
    """Server side of the split model for all clients (counted from 1)."""

    in_turn: bool
    """Whether results depend on the order in which clients are served."""

    def begin_round(self, round_: int, splits: Sequence[int], sizes: Sequence[RoundSizes]) -> None:
        """Get ready for a round, outside emulated time; split and sizes of each client."""

    def adapters_header(self, client: int) -> bytes:
        """The safetensors header of that client's adapters; both sides must agree on it."""

    def broadcast(self, client: int) -> memoryview:
        """The global adapters of that client's part."""

    def smashed_buffer(self, client: int) -> memoryview:
        """Where that client's smashed data are received."""

    def labels_buffer(self, client: int) -> memoryview:
        """Where that client's labels are received."""

    def pass_size(self, waiting: int, rest_s: float) -> int:
        """How many of the clients that wait are best served in one pass.

        Args:
            waiting: One or more.
            rest_s: Real seconds until the first of them is due.
        """

    def forward_backward(self, clients: Sequence[int]) -> None:
        """Begin one pass for these clients' batches."""

    def served(self, client: int) -> Served:
        """What the last pass for a client gives."""

    def adapters_buffer(self, client: int) -> memoryview:
        """Where that client's trained adapters are received."""

    def aggregate(self, clients: Collection[int]) -> None:
        """Average what these clients, all that have finished the round, and their server sides have
        become, outside emulated time."""

    def begin_update(self, client: int) -> None:
        """In an asynchronous round: the client begins with the global model as it is now."""

    def mix(self, client: int, staleness: int) -> None:
        """In an asynchronous round: what the client and its server side have become goes into the
        global model, into which so many others went since it began."""

    def notes(self) -> Notes:
        """What was observed in the round."""

    def evaluate(self) -> Evaluation:
        """Hold the global state against held-out data, outside emulated time."""

    def state(self) -> bytes:
        """The global state as a safetensors file, under the unsplit model's names."""

    def restore(self, state: bytes) -> None:
        """Go on from a global state, as `state` gave it."""

    def close(self) -> None:
        """Let go of whatever computes; nothing is asked after it."""


def _zeros(size: int) -> memoryview:
    """Written once, so that the pages are there when frames come in."""
    return memoryview(bytearray(b"\0") * size)


class ZeroClient:
    """Sizes without learning: every payload is zeros, out of one buffer."""

    seconds = 0.0

    def begin_round(self, round_: int, split: int, sizes: RoundSizes) -> None:
        """Take the buffer."""
        self.sizes = sizes
        self._bytes = _zeros(max(sizes.adapters, sizes.smashed))
        self._labels = _zeros(4 * sizes.labels)

    def adapters_header(self) -> bytes:
        """As many bytes as the header takes."""
        return bytes(self.sizes.adapters_header)

    def notes(self) -> Notes:
        """Nothing is observed."""
        return {}

    def adapters_buffer(self) -> memoryview:
        """Where the broadcast is received."""
        return self.adapters()

    def load_adapters(self) -> None:
        """Nothing to load."""

    def forward(self, iteration: int) -> None:
        """Nothing to compute."""

    def smashed(self) -> tuple[memoryview, memoryview]:
        """As many bytes as the smashed data and labels take."""
        return self.gradient_buffer(), self._labels

    def gradient_buffer(self) -> memoryview:
        """Where the gradient is received."""
        return self._bytes[: self.sizes.smashed]

    def backward(self) -> None:
        """Nothing to learn."""

    def adapters(self) -> memoryview:
        """As many bytes as the adapters take."""
        return self._bytes[: self.sizes.adapters]

    def close(self) -> None:
        """Nothing to let go of."""


class ZeroServer:
    """The server's side of `ZeroClient`; all clients share one buffer, whose content is nothing."""

    in_turn = False

    def begin_round(self, round_: int, splits: Sequence[int], sizes: Sequence[RoundSizes]) -> None:
        """Take the buffer."""
        self.sizes = sizes
        self._bytes = _zeros(max(max(each.adapters, each.smashed) for each in sizes))
        self._labels = _zeros(4 * max(each.labels for each in sizes))

    def adapters_header(self, client: int) -> bytes:
        """As many bytes as the header takes."""
        return bytes(self.sizes[client - 1].adapters_header)

    def broadcast(self, client: int) -> memoryview:
        """As many bytes as the adapters take."""
        return self.adapters_buffer(client)

    def smashed_buffer(self, client: int) -> memoryview:
        """Where smashed data are received."""
        return self._bytes[: self.sizes[client - 1].smashed]

    def labels_buffer(self, client: int) -> memoryview:
        """Where labels are received."""
        return self._labels

    def pass_size(self, waiting: int, rest_s: float) -> int:
        """There is nothing to gain."""
        return 1

    def forward_backward(self, clients: Sequence[int]) -> None:
        """Nothing to compute."""

    def served(self, client: int) -> Served:
        """As many bytes as the gradient takes."""
        return self.smashed_buffer(client), None

    def adapters_buffer(self, client: int) -> memoryview:
        """Where adapters are received."""
        return self._bytes[: self.sizes[client - 1].adapters]

    def notes(self) -> Notes:
        """Nothing is observed."""
        return {}

    def aggregate(self, clients: Collection[int]) -> None:
        """Nothing to average."""

    def begin_update(self, client: int) -> None:
        """Nothing to begin with."""

    def mix(self, client: int, staleness: int) -> None:
        """Nothing to mix."""

    def evaluate(self) -> Evaluation:
        """Nothing is learned: not to be asked for.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("nothing is learned")

    def state(self) -> bytes:
        """No state at all."""
        return b""

    def restore(self, state: bytes) -> None:
        """Nothing to go on from."""

    def close(self) -> None:
        """Nothing to let go of."""
