# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The work of a node in virtual time, whose learning is computed by the host, on all of its cores.

`OutsideClient` and `OutsideServer` put what they are asked into files, one after the other, and
`workloads.offload.worker` answers them there. A pass is asked for when its step begins and
waited for when the step is over: passes of nodes that compute at the same moment run beside each
other. Who waits looks at a folder, by a call that never fails, so that the clock stands still; the
host stops the guest meanwhile. Nothing here depends on how long that takes, nor on who is answered
first.
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
    Served,
    ZeroClient,
    ZeroServer,
)
from workloads.offload.messages import ENDED, PRINTED, Message, answer, asked, put, take, waits

Data = bytes | memoryview


class Answer:
    """What will be said to a question; call it to wait."""

    def __init__(self, caller: "Caller"):
        self._caller = caller
        self.message = Message()
        self.over = False
        """Whether it has been said; or nothing will be, and why is `error`."""
        self.error: Exception | None = None

    def __call__(self) -> Message:
        """What is said, once it is.

        Raises:
            RunError: Nobody computes any more.
            Exception: Under its name, what was raised where this, or what was asked before and
                not waited for, is computed.
        """
        self._caller.wait_for(self)
        if self.error is not None:
            raise self.error
        return self.message


class Caller:
    """Asks what computes for a node."""

    def __init__(self, place: Path, node: str, learning: Json, client: int | None):
        self._folder = Path(tempfile.mkdtemp(prefix=f"{node}-", dir=place))
        self._lock = threading.RLock()
        self._asked = self._answered = 0
        self._open: deque[Answer] = deque()
        self("set_up", [learning, client])

    def __call__(self, what: str, plain: Sequence[Any] = (), data: Sequence[Data] = ()) -> Answer:
        """Ask, after all that was asked before; goes on at once.

        Args:
            what: See `workloads.offload.worker`.
            plain: With it, as JSON has it.
            data: And the bytes.
        """
        with self._lock:
            put(self._folder / asked(self._asked), Message([what, *plain], data))
            self._asked += 1
            said = Answer(self)
            self._open.append(said)
        return said

    def wait_for(self, wanted: Answer) -> None:
        """Take the answers to open questions, in their order, up to this one.

        Raises:
            Exception: See `Answer`; what was asked before raised it.
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
        # Removed from in here alone: the guest may hold in its memory what a file of that number
        # had, and the host gives a number again. The answer goes last: without it, somebody waits.
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
        """End who computes, and print what they have printed: into the node's log."""
        with contextlib.suppress(Exception):  # It has been said by whoever waited for it.
            self("end")()
        with contextlib.suppress(FileNotFoundError):  # Nobody has begun to answer.
            printed = (self._folder / PRINTED).read_text(encoding="utf-8", errors="replace")
            sys.stderr.write(printed)


class OutsideClient(ZeroClient):
    """A UAV that learns by way of the host."""

    def __init__(self, place: Path, learning: Json, client: int):
        self._ask = Caller(place, f"uav{client}", learning, client)

    def begin_round(self, round_: int, split: int, sizes: RoundSizes) -> None:
        """Get ready, and make room for what the round brings."""
        self.sizes = sizes
        self._begun = self._ask("begin_round", [round_, split, vars(sizes)])
        self._adapters = memoryview(bytearray(sizes.adapters))
        self._gradient = memoryview(bytearray(sizes.smashed))

    def adapters_header(self) -> bytes:
        """The safetensors header of the adapters."""
        return bytes(self._begun().data[0])

    def adapters_buffer(self) -> memoryview:
        """Where the broadcast is received."""
        return self._adapters

    def load_adapters(self) -> None:
        """Start the round from what was broadcast."""
        self._ask("load_adapters", data=[self._adapters])

    def forward(self, iteration: int) -> None:
        """Have the iteration's batch computed."""
        self._forward = self._ask("forward", [iteration])

    def smashed(self) -> tuple[memoryview, memoryview]:
        """Smashed data and labels of the batch."""
        smashed, labels = self._forward().data
        return memoryview(smashed), memoryview(labels)

    def gradient_buffer(self) -> memoryview:
        """Where the gradient is received."""
        return self._gradient

    def backward(self) -> None:
        """Have the backward pass and the optimiser's step computed."""
        self._ask("backward", data=[self._gradient])

    def adapters(self) -> memoryview:
        """The trained adapters."""
        return memoryview(self._ask("adapters")().data[0])

    def notes(self) -> Notes:
        """What was observed where it was computed."""
        notes: Notes = self._ask("notes")().plain
        return notes

    def close(self) -> None:
        """End who computes for it."""
        self._ask.close()


class OutsideServer(ZeroServer):
    """The base station that learns by way of the host."""

    def __init__(self, place: Path, learning: Json):
        self._ask = Caller(place, "bs", learning, None)
        self.in_turn = learning["training"]["server_adapters"] == "shared"

    def begin_round(self, round_: int, splits: Sequence[int], sizes: Sequence[RoundSizes]) -> None:
        """Get ready, and make room for every client's frames."""
        self.sizes = sizes
        self._begun = self._ask("begin_round", [round_, splits, [vars(each) for each in sizes]])
        of_client = dict(enumerate(sizes, start=1))
        self._updates: dict[int, Answer] = {}
        self._passes: dict[int, tuple[Answer, int]] = {}
        """By client, its last pass and its place there."""
        self._smashed = {k: memoryview(bytearray(s.smashed)) for k, s in of_client.items()}
        self._label = {k: memoryview(bytearray(4 * s.labels)) for k, s in of_client.items()}
        self._adapters = {k: memoryview(bytearray(s.adapters)) for k, s in of_client.items()}

    def adapters_header(self, client: int) -> bytes:
        """The safetensors header of that client's adapters."""
        _, *headers = self._begun().data
        return bytes(headers[client - 1])

    def broadcast(self, client: int) -> memoryview:
        """The global adapters of that client's part."""
        whole, *_ = self._updates.get(client, self._begun)().data
        return memoryview(whole)[: self.sizes[client - 1].adapters]

    def smashed_buffer(self, client: int) -> memoryview:
        """Where that client's smashed data are received."""
        return self._smashed[client]

    def labels_buffer(self, client: int) -> memoryview:
        """Where that client's labels are received."""
        return self._label[client]

    def forward_backward(self, clients: Sequence[int]) -> None:
        """Have the batches of these clients computed."""
        data = [part for k in clients for part in (self._smashed[k], self._label[k])]
        pass_ = self._ask("forward_backward", clients, data)
        self._passes |= {k: (pass_, place) for place, k in enumerate(clients)}

    def served(self, client: int) -> Served:
        """What came of a client's batch."""
        pass_, place = self._passes[client]
        said = pass_()
        return memoryview(said.data[place]), BatchResult(*said.plain[place])

    def adapters_buffer(self, client: int) -> memoryview:
        """Where that client's trained adapters are received."""
        return self._adapters[client]

    def aggregate(self, clients: Collection[int]) -> None:
        """Average over these clients."""
        order = list(clients)
        self._ask("aggregate", order, [self._adapters[k] for k in order])()

    def begin_update(self, client: int) -> None:
        """Hold what the client is sent."""
        self._updates[client] = self._ask("begin_update", [client])

    def mix(self, client: int, staleness: int) -> None:
        """Mix in what was received of the client."""
        self._ask("mix", [client, staleness], [self._adapters[client]])

    def notes(self) -> Notes:
        """What was observed where it was computed."""
        notes: Notes = self._ask("notes")().plain
        return notes

    def evaluate(self) -> Evaluation:
        """Hold the global state against held-out data."""
        return Evaluation(*self._ask("evaluate")().plain)

    def state(self) -> bytes:
        """The global state as a safetensors file."""
        return bytes(self._ask("state")().data[0])

    def restore(self, state: bytes) -> None:
        """Go on from a global state."""
        self._ask("restore", data=[state])()

    def close(self) -> None:
        """End who computes for it."""
        self._ask.close()
