# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The work of a node in virtual time whose learning is computed by the host, on all of its cores.

`OffloadClient` and `OffloadServer` write their requests to files, and `workloads.offload.worker`
answers them in the same folder. A pass is requested when its step begins and waited for when the
step ends, so that concurrent passes of several nodes run in parallel. Waiting polls a folder with a
call that never fails, so that the virtual clock does not advance; the host stops the guest
meanwhile. The results depend neither on the duration nor on the order of the answers.
"""

import contextlib
import os
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from testbed.control.codec import Json
from testbed.core.errors import RunError
from testbed.transport.wire import RoundSizes
from workloads.learning.work import (
    BatchResult,
    Evaluation,
    Notes,
    Observations,
    Served,
    ZeroClient,
    ZeroServer,
)
from workloads.offload.messages import ENDED, PRINTED, Message, answer, asked, put, take, waits

Data = bytes | memoryview


class Answer:
    """The future answer to a request; call it to wait."""

    def __init__(self, caller: "Caller"):
        self._caller = caller
        self.message = Message()
        self.over = False
        """Whether the answer has arrived, or failed with `error`."""
        self.error: Exception | None = None

    def __call__(self) -> Message:
        """Wait for the answer and return it.

        Raises:
            RunError: The worker has ended.
            Exception: The worker raised an exception (of the same name) for this request, or for an
                earlier one that was not waited for.
        """
        self._caller.wait_for(self)
        if self.error is not None:
            raise self.error
        return self.message


class Caller:
    """Sends the requests of a node to its worker."""

    def __init__(self, place: Path, node: str, learning: Json, client: int | None):
        self._folder = Path(tempfile.mkdtemp(prefix=f"{node}-", dir=place))
        self._lock = threading.RLock()
        self._asked = self._answered = 0
        self._open: deque[Answer] = deque()
        self("set_up", [learning, client])

    def __call__(self, what: str, plain: Sequence[Any] = (), data: Sequence[Data] = ()) -> Answer:
        """Send a request, which is processed after all earlier ones; does not wait.

        Args:
            what: Name of the method, see `workloads.offload.worker`.
            plain: Arguments as JSON values.
            data: Binary data.
        """
        with self._lock:
            put(self._folder / asked(self._asked), Message([what, *plain], data))
            self._asked += 1
            said = Answer(self)
            self._open.append(said)
        return said

    def wait_for(self, wanted: Answer) -> None:
        """Receive the answers to open requests in order, up to this one.

        Raises:
            Exception: See `Answer`; an earlier request raised it.
        """
        with self._lock:
            while not wanted.over:
                number, oldest = self._answered, self._open.popleft()
                self._answered += 1
                try:
                    oldest.message = self._take(number)
                except Exception as error:
                    oldest.error = error
                    if oldest is not wanted:
                        raise
                finally:
                    oldest.over = True

    def _take(self, number: int) -> Message:
        name, waiting = answer(number), self._folder / waits(number)
        waiting.write_bytes(b"")
        while name not in (found := os.listdir(self._folder)):  # noqa: PTH208
            if ENDED in found:
                raise RunError((self._folder / ENDED).read_text(encoding="utf-8"))
        said = take(self._folder / name)
        # Files are removed only by the guest: it may cache the content of a file by its inode
        # number, which the host may reuse. The answer is removed last, because a missing answer
        # means that the node waits.
        for done in (waits(number), asked(number), name):
            (self._folder / done).unlink()
        failed, plain = said.plain
        if not failed:
            return Message(plain, said.data)
        kind, text, trace = plain
        error: Exception = type(kind, (RuntimeError,), {})(text)
        error.add_note(trace)
        raise error

    def close(self) -> None:
        """End the worker, and print its output to the node's log."""
        with contextlib.suppress(Exception):  # Errors were raised when their answers were awaited.
            self("end")()
        with contextlib.suppress(FileNotFoundError):  # The worker was never started.
            printed = (self._folder / PRINTED).read_text(encoding="utf-8", errors="replace")
            sys.stderr.write(printed)


class OffloadClient(ZeroClient):
    """A UAV whose learning is computed by the host."""

    def __init__(self, place: Path, learning: Json, client: int):
        self._ask = Caller(place, f"uav{client}", learning, client)

    def begin_round(self, round_: int, split: int, sizes: RoundSizes) -> None:
        """Prepare the round, and allocate its buffers."""
        self.sizes = sizes
        self._begun = self._ask("begin_round", [round_, split, vars(sizes)])
        self._adapters = self._adapters_place = memoryview(bytearray(sizes.adapters))
        self._gradient = self._gradient_place = memoryview(bytearray(sizes.gradient))
        self._shared = self._shared_place = memoryview(bytearray(sizes.shared_gradient))

    def adapters_header(self) -> bytes:
        """The safetensors header of the adapters."""
        return bytes(self._begun().data[0])

    def adapters_buffer(self, size: int | None = None) -> memoryview:
        """Buffer for the received broadcast."""
        self._adapters_place = self._adapters[:size]
        return self._adapters_place

    def load_adapters(self) -> None:
        """Start the round from the received broadcast."""
        self._ask("load_adapters", data=[self._adapters_place])

    def forward(self, iteration: int) -> None:
        """Request the forward pass of the iteration's batch."""
        self._forward = self._ask("forward", [iteration])

    def smashed(self) -> tuple[memoryview, memoryview]:
        """Smashed data and labels of the batch."""
        smashed, labels = self._forward().data
        return memoryview(smashed), memoryview(labels)

    def gradient_buffer(self, size: int | None = None) -> memoryview:
        """Buffer for the received gradient."""
        self._gradient_place = self._gradient[:size]
        return self._gradient_place

    def shared_gradient_buffer(self, size: int | None = None) -> memoryview:
        """Buffer for the received aggregated gradients."""
        self._shared_place = self._shared[:size]
        return self._shared_place

    def backward(self) -> None:
        """Request the backward pass and the optimiser step."""
        self._ask("backward", data=[self._gradient_place, self._shared_place])

    def adapters(self) -> memoryview:
        """The trained adapters."""
        return memoryview(self._ask("adapters")().data[0])

    def notes(self) -> Notes:
        """Observations of the worker."""
        notes: Notes = self._ask("notes")().plain
        return notes

    def state(self) -> bytes:
        """Tensors that stay with this client on its side."""
        return bytes(self._ask("state")().data[0])

    def restore(self, state: bytes) -> None:
        """Continue from the tensors that stay with this client in a global state."""
        self._ask("restore", data=[state])()

    def close(self) -> None:
        """End the worker."""
        self._ask.close()


class OffloadServer(ZeroServer):
    """A base station whose learning is computed by the host."""

    def __init__(self, place: Path, learning: Json):
        self._ask = Caller(place, "bs", learning, None)
        self.in_turn = learning["training"]["server_adapters"] != "per-client"

    def begin_round(self, round_: int, splits: Sequence[int], sizes: Sequence[RoundSizes]) -> None:
        """Prepare the round, and allocate buffers for every client's frames."""
        self.sizes = sizes
        self._begun = self._ask("begin_round", [round_, splits, [vars(each) for each in sizes]])
        of_client = dict(enumerate(sizes, start=1))
        self._updates: dict[int, Answer] = {}
        self._passes: dict[int, tuple[Answer, int]] = {}
        """The last pass of each client, and the client's index in it."""
        self._smashed = {k: memoryview(bytearray(s.smashed)) for k, s in of_client.items()}
        self._label = {k: memoryview(bytearray(4 * s.labels)) for k, s in of_client.items()}
        self._adapters = {k: memoryview(bytearray(s.adapters_up)) for k, s in of_client.items()}
        self._smashed_place, self._adapters_place = dict(self._smashed), dict(self._adapters)

    def adapters_header(self, client: int) -> bytes:
        """The safetensors header of that client's adapters."""
        begun = self._begun()
        return bytes(begun.data[len(begun.data) - len(self.sizes) + client - 1])

    def broadcast(self, client: int) -> memoryview:
        """The global adapters of that client's part."""
        if client in self._updates:
            return memoryview(self._updates[client]().data[0])
        begun = self._begun()
        place, size = begun.plain[client - 1]
        return memoryview(begun.data[place])[:size]

    def smashed_buffer(self, client: int, size: int | None = None) -> memoryview:
        """Buffer for that client's received smashed data."""
        self._smashed_place[client] = self._smashed[client][:size]
        return self._smashed_place[client]

    def labels_buffer(self, client: int) -> memoryview:
        """Buffer for that client's received labels."""
        return self._label[client]

    def forward_backward(self, clients: Sequence[int]) -> None:
        """Request one pass for these clients' batches."""
        data = [part for k in clients for part in (self._smashed_place[k], self._label[k])]
        pass_ = self._ask("forward_backward", clients, data)
        self._passes |= {k: (pass_, place) for place, k in enumerate(clients)}

    def served(self, client: int) -> Served:
        """Result of the last pass for a client."""
        pass_, place = self._passes[client]
        said = pass_()
        return memoryview(said.data[place]), BatchResult(*said.plain[place])

    def shared_gradient(self, clients: Sequence[int]) -> memoryview:
        """The aggregated gradients of these clients' last batches."""
        return memoryview(self._ask("shared_gradient", list(clients))().data[0])

    def adapters_buffer(self, client: int, size: int | None = None) -> memoryview:
        """Buffer for that client's received adapters."""
        self._adapters_place[client] = self._adapters[client][:size]
        return self._adapters_place[client]

    def aggregate(self, clients: Collection[int], seen: Observations | None = None) -> None:
        """Aggregate these clients' models."""
        order = list(clients)
        plain = [order, [[client, *found] for client, found in (seen or {}).items()]]
        self._ask("aggregate", plain, [self._adapters_place[k] for k in order])()

    def begin_update(self, client: int) -> None:
        """Request the client's part of the current global model."""
        self._updates[client] = self._ask("begin_update", [client])

    def mix(self, client: int, staleness: int) -> None:
        """Mix the client's received adapters into the global model."""
        self._ask("mix", [client, staleness], [self._adapters_place[client]])

    def apply_buffer(self) -> None:
        """Apply the buffered updates to the global model."""
        self._ask("apply_buffer")

    def keep(self) -> None:
        """Keep the current global state."""
        self._ask("keep")

    def notes(self) -> Notes:
        """Observations of the worker."""
        notes: Notes = self._ask("notes")().plain
        return notes

    def take_own(self, client: int, state: bytes) -> None:
        """Load the tensors that stay with a client on its side."""
        self._ask("take_own", [client], [state])()

    def evaluate(self, kept: int = -1) -> Evaluation:
        """Evaluate the current or a kept global state on held-out data."""
        return Evaluation(*self._ask("evaluate", [kept])().plain)

    def state(self) -> bytes:
        """The global state as a safetensors file."""
        return bytes(self._ask("state")().data[0])

    def restore(self, state: bytes) -> None:
        """Continue from a global state."""
        self._ask("restore", data=[state])()

    def close(self) -> None:
        """End the worker."""
        self._ask.close()
