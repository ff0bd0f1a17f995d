# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Interface between node programs and learning: real learning, or equal traffic without it.

`workloads.learning.real` learns with torch; `workloads.offload` lets the host do so in virtual
time; `ZeroClient` and `ZeroServer` only have the right sizes and import no torch, for pure network
studies. A pass is started by one call, and its result is returned by another, which may have to
wait for it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
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


Observations = Mapping[int, tuple[float, Sequence[float]]]
"""By client: emulated seconds from the round's start until its adapters arrived, and the values of
`workloads.aggregation.rules.Link`, or none of them."""
Buffer = Callable[[int | None], memoryview]
"""A buffer of a given size, for a payload that may be smaller than the largest one; None: of the
largest size."""


def place_for(buffer: Buffer, size: int, varies: bool) -> memoryview:
    """The buffer for a payload of this size, which a header states. If it cannot have this size, a
    buffer of another size, so that the frame is refused."""
    whole = buffer(None)
    return buffer(size) if varies and 0 < size < len(whole) else whole


class ClientWork(Protocol):
    """Client side of the split model. Buffers are plain bytes and valid until the next call; those
    for received data have a given size if it depends on the data."""

    @property
    def seconds(self) -> float:
        """Real seconds of the last forward or backward pass by its device's clock; 0 if the pass
        may continue after the call."""

    def begin_round(self, round_: int, split: int, sizes: RoundSizes) -> None:
        """Prepare a round, outside of emulated time."""

    def adapters_buffer(self, size: int | None = None) -> memoryview:
        """Buffer for the received broadcast."""

    def adapters_header(self) -> bytes:
        """The safetensors header of the adapters; both sides must agree on it."""

    def load_adapters(self) -> None:
        """Load the adapters from the buffer."""

    def forward(self, iteration: int) -> None:
        """Start the forward pass of the iteration's batch."""

    def smashed(self) -> tuple[memoryview, memoryview]:
        """Smashed data and labels of the last forward pass."""

    def gradient_buffer(self, size: int | None = None) -> memoryview:
        """Buffer for the received gradient, without aggregated gradients."""

    def shared_gradient_buffer(self, size: int | None = None) -> memoryview:
        """Buffer for the received gradients that are aggregated over the clients; they belong to
        the first samples of the batch."""

    def backward(self) -> None:
        """Start the backward pass and the optimiser step with the gradients in the buffers."""

    def adapters(self) -> memoryview:
        """The trained adapters."""

    def notes(self) -> Notes:
        """Observations of the round."""

    def state(self) -> bytes:
        """Tensors that stay with this client on its side, as a safetensors file, outside of
        emulated time."""

    def restore(self, state: bytes) -> None:
        """Continue from this client's own tensors in a result of `ServerWork.state`."""

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

    def smashed_buffer(self, client: int, size: int | None = None) -> memoryview:
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
        """Result of the last pass for a client; aggregated gradients are not part of it."""

    def shared_gradient(self, clients: Sequence[int]) -> memoryview:
        """The gradients of the first samples of the last batches, averaged over these clients and
        weighted by their samples."""

    def adapters_buffer(self, client: int, size: int | None = None) -> memoryview:
        """Buffer for that client's received adapters."""

    def aggregate(self, clients: Collection[int], seen: Observations | None = None) -> None:
        """Aggregate the models of these clients, which have finished the round, and their
        server-side sets, outside of emulated time; `seen` is what rules may use of it."""

    def begin_update(self, client: int) -> None:
        """In an asynchronous run, restart the client from the current global model."""

    def mix(self, client: int, staleness: int) -> None:
        """In an asynchronous run, mix the client's adapters and server-side set into the global
        model, or into the buffer; `staleness` is the number of changes of the global model since
        the client began."""

    def apply_buffer(self) -> None:
        """In an asynchronous run with a buffer, apply the buffered updates to the global model."""

    def keep(self) -> None:
        """In an asynchronous run, keep the current global state for an evaluation."""

    def notes(self) -> Notes:
        """Observations of the round."""

    def evaluate(self, kept: int = -1) -> Evaluation:
        """Evaluate a global state on held-out data, outside of emulated time.

        Args:
            kept: Index of a state that was kept since the last `begin_round`; -1: the current one.
        """

    def state(self) -> bytes:
        """The global state as a safetensors file, under the unsplit model's names."""

    def restore(self, state: bytes) -> None:
        """Continue from a global state returned by `state`."""

    def take_own(self, client: int, state: bytes) -> None:
        """Load the tensors that stay with a client on its side, a result of `ClientWork.state`,
        before an evaluation or `state`."""

    def close(self) -> None:
        """Release all resources; this is the last call."""


@lru_cache(maxsize=4)
def _zeros(size: int) -> memoryview:
    """A zeroed buffer; writing it allocates its memory pages before frames arrive. Clients of one
    process share it, because it only ever receives zeros."""
    return memoryview(bytearray(b"\0") * size)


def largest(sizes: RoundSizes) -> int:
    """Bytes of the largest payload of a round."""
    gradient = max(sizes.gradient, sizes.shared_gradient)
    return max(sizes.adapters, sizes.adapters_up, sizes.smashed, gradient)


class ZeroClient:
    """Client work without learning: every payload consists of zeros from one buffer."""

    seconds = 0.0

    def begin_round(self, round_: int, split: int, sizes: RoundSizes) -> None:
        """Allocate the buffer."""
        self.sizes = sizes
        self._bytes = _zeros(largest(sizes))
        self._labels = _zeros(4 * sizes.labels)

    def adapters_header(self) -> bytes:
        """Zeros with the size of the header."""
        return bytes(self.sizes.adapters_header)

    def notes(self) -> Notes:
        """Return no observations."""
        return {}

    def adapters_buffer(self, size: int | None = None) -> memoryview:
        """Buffer for the received broadcast."""
        return self._bytes[: self.sizes.adapters]

    def load_adapters(self) -> None:
        """Do nothing."""

    def forward(self, iteration: int) -> None:
        """Do nothing."""

    def smashed(self) -> tuple[memoryview, memoryview]:
        """Zeros with the sizes of smashed data and labels."""
        return self._bytes[: self.sizes.smashed], self._labels

    def gradient_buffer(self, size: int | None = None) -> memoryview:
        """Buffer for the received gradient."""
        return self._bytes[: self.sizes.gradient]

    def shared_gradient_buffer(self, size: int | None = None) -> memoryview:
        """Buffer for the received aggregated gradients."""
        return self._bytes[: self.sizes.shared_gradient]

    def backward(self) -> None:
        """Do nothing."""

    def adapters(self) -> memoryview:
        """Zeros with the size of the adapters."""
        return self._bytes[: self.sizes.adapters_up]

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
        self._bytes = _zeros(max(map(largest, sizes)))
        self._labels = _zeros(4 * max(each.labels for each in sizes))

    def adapters_header(self, client: int) -> bytes:
        """Zeros with the size of the header."""
        return bytes(self.sizes[client - 1].adapters_header)

    def broadcast(self, client: int) -> memoryview:
        """Zeros with the size of the global adapters."""
        return self._bytes[: self.sizes[client - 1].adapters]

    def smashed_buffer(self, client: int, size: int | None = None) -> memoryview:
        """Buffer for received smashed data."""
        return self._bytes[: self.sizes[client - 1].smashed]

    def labels_buffer(self, client: int) -> memoryview:
        """Buffer for received labels."""
        return self._labels[: 4 * self.sizes[client - 1].labels]

    def pass_size(self, waiting: int, rest_s: float) -> int:
        """Serve one client at a time."""
        return 1

    def forward_backward(self, clients: Sequence[int]) -> None:
        """Do nothing."""

    def served(self, client: int) -> Served:
        """Zeros with the size of the gradient."""
        return self._bytes[: self.sizes[client - 1].gradient], None

    def shared_gradient(self, clients: Sequence[int]) -> memoryview:
        """Zeros with the size of the aggregated gradients."""
        return self._bytes[: self.sizes[0].shared_gradient]

    def adapters_buffer(self, client: int, size: int | None = None) -> memoryview:
        """Buffer for received adapters."""
        return self._bytes[: self.sizes[client - 1].adapters_up]

    def notes(self) -> Notes:
        """Return no observations."""
        return {}

    def aggregate(self, clients: Collection[int], seen: Observations | None = None) -> None:
        """Do nothing."""

    def begin_update(self, client: int) -> None:
        """Do nothing."""

    def mix(self, client: int, staleness: int) -> None:
        """Do nothing."""

    def apply_buffer(self) -> None:
        """Do nothing."""

    def keep(self) -> None:
        """Do nothing."""

    def evaluate(self, kept: int = -1) -> Evaluation:
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
