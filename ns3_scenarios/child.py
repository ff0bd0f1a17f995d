# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The process that runs ns-3, as seen by its parent: it reads lines and writes bytes.

ns-3 aborts its process on errors, and a process can have only one simulator.
"""

import json
import os
import select
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ns3_scenarios.errors import ChannelError
from testbed.core.signals import signal_name

ANSWER_S = 60.0
"""Seconds that ns-3 may take to answer or to read a request: it needs milliseconds, or seconds if a
slot has very many packets."""
ENDING_S = 10.0
"""Seconds that the process may take to end after it has closed its output."""


@dataclass(frozen=True)
class Launch:
    """Launch options of the process."""

    within: Sequence[str] = ()
    """Modules that are run before the process, each of which runs the next one."""
    env: Mapping[str, str] | None = None
    """Environment of the process; None: that of this process."""


LAUNCH = Launch()
"""Starts the process without wrappers."""


class Child:
    """A process that runs one module; it ends when it is closed or when this process ends.

    Args:
        module: The module to run; the first line on its stdin is JSON: ``{"library", "parent",
            "settings"}``.
        library: The built models.
        settings: Plain values for the module.
        launch: Launch options of the process.
        arguments: Arguments of the module.
        answer_s: Seconds that the process may take to answer or to read a request; None:
            `ANSWER_S`.
    """

    def __init__(
        self,
        module: str,
        library: Path,
        settings: dict[str, Any],
        launch: Launch,
        arguments: Sequence[str] = (),
        answer_s: float | None = None,
    ) -> None:
        self._answer_s = answer_s
        self._kind = (module, launch, tuple(arguments))
        self.process, self._stderr = _taken(self._kind) or _started(*self._kind)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin, self._stdout = self.process.stdin, self.process.stdout
        os.set_blocking(self._stdin.fileno(), False)
        self._finalizer = weakref.finalize(self, _end, self.process, self._stderr, os.getpid())
        start = {"library": str(library), "parent": os.getpid(), "settings": settings}
        self.send(json.dumps(start))

    def send(self, line: str, data: bytes = b"") -> None:
        """Write a line and the bytes that follow it to the stdin of the process.

        Raises:
            ChannelError: The process ended or did not respond in time; the message gives the
                reason.
        """
        self.send_bytes(line.encode() + b"\n" + data)

    def send_bytes(self, data: bytes) -> None:
        """Write bytes to the stdin of the process, as `send` does."""
        if not self._finalizer.alive:
            raise ChannelError("ns-3's process was closed and no longer answers")
        left = memoryview(data)
        try:
            while left:
                self._await(self._stdin, select.POLLOUT, "read a request")
                left = left[os.write(self._stdin.fileno(), left) :]
        except BrokenPipeError:
            raise self._died() from None

    def receive_into(self, place: memoryview) -> None:
        """Fill `place` from the stdout of the process.

        Raises:
            ChannelError: The process ended or did not respond in time; the message gives the
                reason.
        """
        while place:
            self._await(self._stdout, select.POLLIN, "answer")
            count = os.readv(self._stdout.fileno(), [place])
            if not count:
                raise self._died()
            place = place[count:]

    def receive_line(self) -> bytes:
        """The next line of the stdout of the process, which answers the last request.

        Raises:
            ChannelError: The process ended or did not respond in time; the message gives the
                reason.
        """
        line = bytearray()
        while not line.endswith(b"\n"):
            self._await(self._stdout, select.POLLIN, "answer")
            part = os.read(self._stdout.fileno(), 1 << 16)
            if not part:
                raise self._died()
            line += part
        return bytes(line)

    def close(self) -> None:
        """End the process."""
        self._finalizer()

    def release(self) -> None:
        """End the process, or keep it for the next `Child` of the same kind; see `keep`.

        The process has answered all requests, and takes the first line of the next one.
        """
        if _keeps and not _ahead and self._finalizer.alive and self.process.poll() is None:
            self._finalizer.detach()
            _ahead.append((self._kind, os.getpid(), (self.process, self._stderr)))
        self.close()

    def _await(self, stream: IO[bytes], event: int, what: str) -> None:
        poll = select.poll()
        poll.register(stream, event)
        answer_s = self._answer_s or ANSWER_S
        if not poll.poll(1000 * answer_s):
            self.close()  # A later answer would be taken for that to another request.
            raise ChannelError(f"waited {answer_s:g} s for ns-3's process to {what}")

    def _died(self) -> ChannelError:
        try:
            status = self.process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self._stderr.seek(0)
        said = " ".join(self._stderr.read().decode(errors="replace").split())[-1000:]
        how = f"status {status}" if status >= 0 else signal_name(-status)
        return ChannelError(f"ns-3's process died ({how}): {said or 'it left no message'}")


_Kind = tuple[str, Launch, tuple[str, ...]]
_Process = tuple["subprocess.Popen[bytes]", IO[bytes]]
_ahead: list[tuple[_Kind, int, _Process]] = []
"""Processes for the next `Child` that runs the same, with their program and owner; at most one."""
_keeps = False
"""Whether a process that is released is kept."""


def start_ahead(module: str, launch: Launch) -> None:
    """Start a process beforehand, which the next `Child` uses if it runs the same."""
    kind: _Kind = (module, launch, ())
    _ahead.append((kind, os.getpid(), _started(*kind)))


def keep() -> None:
    """From now on, keep a process that is released, for the next channel; see `end_kept`.

    To start ns-3 takes more time than to compute the channel of some rounds.
    """
    global _keeps
    _keeps = True


def end_kept() -> None:
    """End the process that is kept, and keep none from now on."""
    global _keeps
    _keeps = False
    while _ahead:
        _, owner, process = _ahead.pop()
        _end(*process, owner)


def _taken(kind: _Kind) -> _Process | None:
    """The process that is there beforehand, if it runs this."""
    if not _ahead or _ahead[0][:2] != (kind, os.getpid()):
        return None
    _, _, process = _ahead.pop()
    if process[0].poll() is None:
        return process
    _end(*process, os.getpid())
    return None


def _started(
    module: str, launch: Launch, arguments: Sequence[str]
) -> tuple["subprocess.Popen[bytes]", IO[bytes]]:
    """The process, and the file of its standard error."""
    stderr = tempfile.TemporaryFile()  # noqa: SIM115
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", *launch.within, module, *arguments],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        process_group=0,  # Ctrl-C is the parent's to handle.
        env=launch.env,
    )
    return process, stderr


def _end(process: "subprocess.Popen[bytes]", stderr: IO[bytes], owner: int) -> None:
    if os.getpid() != owner:  # A fork of the owner's process has a copy of this finalizer.
        return
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, stderr):
        stream.close()  # type: ignore[union-attr]
