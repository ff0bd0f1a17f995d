# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Interface between node programs and learning: real learning, or equal traffic without it.

`workloads.learning.real` learns with torch; `workloads.offload` lets the host do so in virtual
time; `ZeroClient` and `ZeroServer` only have the right sizes and import no torch, for pure network
studies. A pass is started by one call, and its result is returned by another, which may have to
wait for it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from testbed.transport.wire import RoundSizes

Notes = dict[str, Any]
"""Observations of a round as JSON, which are sent to the orchestrator with the report."""


@dataclass(frozen=True)
class BatchResult:
    """Loss and accuracy of one batch at the server."""

    loss: float
    accuracy: float


Served = tuple[memoryview, BatchResult | None]
"""Gradient of a client's smashed data, with the result of the batch."""


@dataclass(frozen=True)
class Evaluation:
    """Evaluation of the global state on held-out data."""

    loss: float
    accuracy: float
    samples: int


class ClientWork(Protocol):
    """Client side of the split model. Buffers are plain bytes and valid until the next call."""

    @property
    def seconds(self) -> float:
        """Real seconds of the last forward or backward pass by its device's clock; 0 if the pass
        may continue after the call."""

    def begin_round(self, round_: int, split: int, sizes: RoundSizes) -> None:
        """Prepare a round, outside of emulated time."""

    def adapters_buffer(self) -> memoryview:
        """Buffer for the received broadcast."""

    def adapters_header(self) -> bytes:
        """The safetensors header of the adapters; both sides must agree on it."""

    def load_adapters(self) -> None:
        """Load the adapters from the buffer."""

    def forward(self, iteration: int) -> None:
        """Start the forward pass of the iteration's batch."""

    def smashed(self) -> tuple[memoryview, memoryview]:
        """Smashed data and labels of the last forward pass."""

    def gradient_buffer(self) -> memoryview:
        """Buffer for the received gradient."""

    def backward(self) -> None:
        """Start the backward pass and the optimiser step with the gradient in the buffer."""

    def adapters(self) -> memoryview:
        """The trained adapters."""

    def notes(self) -> Notes:
        """Observations of the round."""

    def state(self) -> bytes:
        """What stays with this client on its side, as a safetensors file, outside of emulated
        time."""

    def restore(self, state: bytes) -> None:
        """Continue from what stays with this client in a result of `ServerWork.state`."""

    def close(self) -> None:
        """Release all resources; this is the last call."""


class ServerWork(Protocol):
    """Server side of the split model for all clients (counted from 1)."""

    in_turn: bool
    """Whether results depend on the order in which clients are served."""

    def begin_round(self, round_: int, splits: Sequence[int], sizes: Sequence[RoundSizes]) -> None:
        """Prepare a round with the split and sizes of each client, outside of emulated time."""

    def adapters_header(self, client: int) -> bytes:
        """The safetensors header of that client's adapters; both sides must agree on it."""

    def broadcast(self, client: int) -> memoryview:
        """The global adapters of that client's part."""

    def smashed_buffer(self, client: int) -> memoryview:
        """Buffer for that client's received smashed data."""

    def labels_buffer(self, client: int) -> memoryview:
        """Buffer for that client's received labels."""

    def pass_size(self, waiting: int, rest_s: float) -> int:
        """The best number of waiting clients to serve in one pass.

        Args:
            waiting: Number of waiting clients, at least 1.
            rest_s: Real seconds until the first of them is due.
        """

    def forward_backward(self, clients: Sequence[int]) -> None:
        """Start one pass for these clients' batches."""

    def served(self, client: int) -> Served:
        """Result of the last pass for a client."""

    def adapters_buffer(self, client: int) -> memoryview:
        """Buffer for that client's received adapters."""

    def aggregate(self, clients: Collection[int]) -> None:
        """Aggregate the models of these clients, which have finished the round, and their
        server-side sets, outside of emulated time."""

    def begin_update(self, client: int) -> None:
        """In an asynchronous round, restart the client from the current global model."""

    def mix(self, client: int, staleness: int) -> None:
        """In an asynchronous round, mix the client's adapters and server-side set into the global
        model; `staleness` is the number of other updates since the client began."""

    def notes(self) -> Notes:
        """Observations of the round."""

    def evaluate(self) -> Evaluation:
        """Evaluate the global state on held-out data, outside of emulated time."""

    def state(self) -> bytes:
        """The global state as a safetensors file, under the unsplit model's names."""

    def restore(self, state: bytes) -> None:
        """Continue from a global state returned by `state`."""

    def take_own(self, client: int, state: bytes) -> None:
        """Take what stays with a client on its side, a result of `ClientWork.state`, before an
        evaluation or `state`."""

    def close(self) -> None:
        """Release all resources; this is the last call."""


def _zeros(size: int) -> memoryview:
    """A zeroed buffer; writing it allocates its memory pages before frames arrive."""
    return memoryview(bytearray(b"\0") * size)


class ZeroClient:
    """Client work without learning: every payload consists of zeros from one buffer."""

    seconds = 0.0

    def begin_round(self, round_: int, split: int, sizes: RoundSizes) -> None:
        """Allocate the buffer."""
        self.sizes = sizes
        self._bytes = _zeros(max(sizes.adapters, sizes.smashed))
        self._labels = _zeros(4 * sizes.labels)

    def adapters_header(self) -> bytes:
        """Zeros with the size of the header."""
        return bytes(self.sizes.adapters_header)

    def notes(self) -> Notes:
        """Return no observations."""
        return {}

    def adapters_buffer(self) -> memoryview:
        """Buffer for the received broadcast."""
        return self.adapters()

    def load_adapters(self) -> None:
        """Do nothing."""

    def forward(self, iteration: int) -> None:
        """Do nothing."""

    def smashed(self) -> tuple[memoryview, memoryview]:
        """Zeros with the sizes of smashed data and labels."""
        return self.gradient_buffer(), self._labels

    def gradient_buffer(self) -> memoryview:
        """Buffer for the received gradient."""
        return self._bytes[: self.sizes.smashed]

    def backward(self) -> None:
        """Do nothing."""

    def adapters(self) -> memoryview:
        """Zeros with the size of the adapters."""
        return self._bytes[: self.sizes.adapters]

    def state(self) -> bytes:
        """The empty state."""
        return b""

    def restore(self, state: bytes) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class ZeroServer:
    """The server side of `ZeroClient`; all clients share one buffer."""

    in_turn = False

    def begin_round(self, round_: int, splits: Sequence[int], sizes: Sequence[RoundSizes]) -> None:
        """Allocate the buffer."""
        self.sizes = sizes
        self._bytes = _zeros(max(max(each.adapters, each.smashed) for each in sizes))
        self._labels = _zeros(4 * max(each.labels for each in sizes))

    def adapters_header(self, client: int) -> bytes:
        """Zeros with the size of the header."""
        return bytes(self.sizes[client - 1].adapters_header)

    def broadcast(self, client: int) -> memoryview:
        """Zeros with the size of the adapters."""
        return self.adapters_buffer(client)

    def smashed_buffer(self, client: int) -> memoryview:
        """Buffer for received smashed data."""
        return self._bytes[: self.sizes[client - 1].smashed]

    def labels_buffer(self, client: int) -> memoryview:
        """Buffer for received labels."""
        return self._labels

    def pass_size(self, waiting: int, rest_s: float) -> int:
        """Serve one client at a time."""
        return 1

    def forward_backward(self, clients: Sequence[int]) -> None:
        """Do nothing."""

    def served(self, client: int) -> Served:
        """Zeros with the size of the gradient."""
        return self.smashed_buffer(client), None

    def adapters_buffer(self, client: int) -> memoryview:
        """Buffer for received adapters."""
        return self._bytes[: self.sizes[client - 1].adapters]

    def notes(self) -> Notes:
        """Return no observations."""
        return {}

    def aggregate(self, clients: Collection[int]) -> None:
        """Do nothing."""

    def begin_update(self, client: int) -> None:
        """Do nothing."""

    def mix(self, client: int, staleness: int) -> None:
        """Do nothing."""

    def evaluate(self) -> Evaluation:
        """Must not be called, because nothing is learned.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("nothing is learned")

    def take_own(self, client: int, state: bytes) -> None:
        """Do nothing."""

    def state(self) -> bytes:
        """The empty state."""
        return b""

    def restore(self, state: bytes) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
