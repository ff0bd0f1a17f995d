"""A process that ns-3 lives in, seen from its parent: lines go in, bytes come out.

ns-3 ends the process that it lives in where something is wrong, and a process has one simulator.
"""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path
from typing import IO, Any

from ns3_scenarios.trace import ChannelError


class Child:
    """The process of one module; it ends when it is closed, and with this process.

    Args:
        module: Run as a program; the first line on its stdin is JSON: ``{"library", "parent",
            "settings"}``.
        library: The built models.
        settings: Plain values.
    """

    def __init__(self, module: str, library: Path, settings: dict[str, Any]):
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            process_group=0,  # Ctrl-C is the parent's to handle.
        )
        self._finalizer = weakref.finalize(self, _end, self.process, self._stderr, os.getpid())
        start = {"library": str(library), "parent": os.getpid(), "settings": settings}
        self.send(json.dumps(start))

    def send(self, line: str, data: bytes = b"") -> None:
        """Write a line, and the bytes that belong to it, to its stdin.

        Raises:
            ChannelError: It ended; the message says how and what it said.
        """
        stdin = self.process.stdin
        assert stdin is not None
        if stdin.closed:
            raise ChannelError("ns-3's process was closed; it answers no more")
        try:
            stdin.write(line.encode() + b"\n" + data)
            stdin.flush()
        except BrokenPipeError:
            raise self._died() from None

    def receive_into(self, place: memoryview) -> None:
        """Fill `place` from its stdout.

        Raises:
            ChannelError: It ended; the message says how and what it said.
        """
        stdout = self.process.stdout
        assert isinstance(stdout, io.BufferedReader)
        if stdout.readinto(place) != len(place):
            raise self._died()

    def receive_line(self) -> bytes:
        """The next line of its stdout.

        Raises:
            ChannelError: It ended; the message says how and what it said.
        """
        assert self.process.stdout is not None
        line: bytes = self.process.stdout.readline()
        if not line.endswith(b"\n"):
            raise self._died()
        return line

    def close(self) -> None:
        """End the process."""
        self._finalizer()

    def _died(self) -> ChannelError:
        status = self.process.wait()
        self._stderr.seek(0)
        said = " ".join(self._stderr.read().decode(errors="replace").split())[-1000:]
        how = f"status {status}" if status >= 0 else f"signal {signal.Signals(-status).name}"
        return ChannelError(f"ns-3's process died ({how}): {said or 'it left no message'}")


def _end(process: "subprocess.Popen[bytes]", stderr: IO[bytes], owner: int) -> None:
    if os.getpid() != owner:  # A fork of the owner's process has a copy of this finalizer.
        return
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, stderr):
        # stdin may hold a request that the process did not live to read.
        with contextlib.suppress(BrokenPipeError):
            stream.close()  # type: ignore[union-attr]
