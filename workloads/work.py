"""What a node program asks of whoever computes: real learning, or the same bytes without it.

`workloads.real` learns with torch; `ZeroClient` and `ZeroServer` here carry the sizes alone and
import no torch, for pure network studies.
"""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class RoundSizes:
    """Payload bytes of a round's frames."""

    adapters: int
    adapters_header: int
    """Bytes of the safetensors header that goes before the adapters."""
    smashed: int
    labels: int
    """Number of labels beside each smashed batch."""


@dataclass(frozen=True)
class BatchResult:
    """What the server learned from one batch."""

    loss: float
    accuracy: float


class ClientWork(Protocol):
    """Client side of the split model. Buffers are plain bytes, valid until the next call."""

    def begin_round(self, round_: int, split: int, sizes: RoundSizes) -> None:
        """Get ready for a round, outside emulated time."""

    def adapters_buffer(self) -> memoryview:
        """Where the broadcast is received."""

    def adapters_header(self) -> bytes:
        """The safetensors header of the adapters; both sides must agree on it."""

    def load_adapters(self) -> None:
        """Take over what the buffer holds."""

    def forward(self, iteration: int) -> tuple[memoryview, memoryview]:
        """Smashed data and labels of the iteration's batch."""

    def gradient_buffer(self) -> memoryview:
        """Where the gradient is received."""

    def backward(self) -> None:
        """Backward pass and optimiser step with what the buffer holds."""

    def adapters(self) -> memoryview:
        """The trained adapters."""


class ServerWork(Protocol):
    """Server side of the split model for all clients (counted from 1)."""

    def begin_round(self, round_: int, split: int, sizes: RoundSizes) -> None:
        """Get ready for a round, outside emulated time."""

    def adapters_header(self) -> bytes:
        """The safetensors header of the adapters; both sides must agree on it."""

    def broadcast(self) -> memoryview:
        """The global client adapters."""

    def smashed_buffer(self, client: int) -> memoryview:
        """Where that client's smashed data are received."""

    def labels_buffer(self, client: int) -> memoryview:
        """Where that client's labels are received."""

    def forward_backward(self, client: int) -> tuple[memoryview, BatchResult | None]:
        """Gradient of the client's smashed data, and what was learned."""

    def adapters_buffer(self, client: int) -> memoryview:
        """Where that client's trained adapters are received."""

    def aggregate(self) -> None:
        """Average what the clients and their server sides have become, outside emulated time."""

    def state(self) -> bytes:
        """The global state as a safetensors file, under the unsplit model's names."""


class _Zeros:
    """One buffer that is large enough for any frame of the round."""

    def begin_round(self, round_: int, split: int, sizes: RoundSizes) -> None:
        """Take the buffer."""
        self.sizes = sizes
        # Written once, so that the pages are there when frames come in.
        self._bytes = memoryview(bytearray(b"\0") * max(sizes.adapters, sizes.smashed))
        self._labels = memoryview(bytearray(4 * sizes.labels))

    def adapters_header(self) -> bytes:
        """As many bytes as the header takes."""
        return bytes(self.sizes.adapters_header)

    def _adapters(self) -> memoryview:
        return self._bytes[: self.sizes.adapters]

    def _smashed(self) -> memoryview:
        return self._bytes[: self.sizes.smashed]


class ZeroClient(_Zeros):
    """Sizes without learning: every payload is zeros."""

    def adapters_buffer(self) -> memoryview:
        """Where the broadcast is received."""
        return self._adapters()

    def load_adapters(self) -> None:
        """Nothing to load."""

    def forward(self, iteration: int) -> tuple[memoryview, memoryview]:
        """As many bytes as the smashed data and labels take."""
        return self._smashed(), self._labels

    def gradient_buffer(self) -> memoryview:
        """Where the gradient is received."""
        return self._smashed()

    def backward(self) -> None:
        """Nothing to learn."""

    def adapters(self) -> memoryview:
        """As many bytes as the adapters take."""
        return self._adapters()


class ZeroServer(_Zeros):
    """The server's side of `ZeroClient`; all clients share one buffer, whose content is nothing."""

    def broadcast(self) -> memoryview:
        """As many bytes as the adapters take."""
        return self._adapters()

    def smashed_buffer(self, client: int) -> memoryview:
        """Where smashed data are received."""
        return self._smashed()

    def labels_buffer(self, client: int) -> memoryview:
        """Where labels are received."""
        return self._labels

    def forward_backward(self, client: int) -> tuple[memoryview, BatchResult | None]:
        """As many bytes as the gradient takes."""
        return self._smashed(), None

    def adapters_buffer(self, client: int) -> memoryview:
        """Where adapters are received."""
        return self._adapters()

    def aggregate(self) -> None:
        """Nothing to average."""

    def state(self) -> bytes:
        """No state at all."""
        return b""
