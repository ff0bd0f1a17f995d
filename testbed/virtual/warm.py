# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""One warm guest for several commands: a process keeps a template, and others have it copied.

The keeper listens on a socket, whose path its commands find in `VARIABLE`. A request names what the
guest is made of and the file with the settings of its copy, and carries the copy's memory, line and
log as open files. The answer is the PID of the copy, which is a child of the keeper, and at its end
its exit status. A copy ends with the command that asked for it, and with the keeper.
"""

import contextlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.core.errors import InputError, RunError
from testbed.system import leftovers
from testbed.system.child import Child
from testbed.virtual import guest
from testbed.virtual.kernel import Kernel

VARIABLE = "UAV_SFL_TESTBED_WARM"
"""Environment variable with the path of a keeper's socket."""
_MOST_BYTES = 1 << 16
_FILES = 4
"""Open files of a request: memory, both ends of the line, log."""


# --- for commands --------------------------------------------------------------------------------


class Lent(guest.Copies):
    """The template of a keeper, for one copy."""

    def __init__(self, connection: socket.socket, made_of: Mapping[str, Any]) -> None:
        self._connection = connection
        self._made_of = made_of

    def _memory_folder(self) -> str:
        return guest.memory_folder(self._made_of["memory"])

    def _copy(
        self, file: Path, files: Sequence[int], processor: int, callbacks: object
    ) -> guest.Running:
        request = {**self._made_of, "file": str(file), "processor": processor}
        socket.send_fds(self._connection, [json.dumps(request).encode()], files)
        answer = json.loads(self._connection.recv(_MOST_BYTES) or b"{}")
        if "pid" not in answer:
            raise RunError(answer.get("error", "virtual time: the warm guest has ended"))
        return _LentChild(answer["pid"], self._connection)


class _LentChild:
    """A copy, which is a child of the keeper."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid = pid
        self._connection = connection
        self._status: int | None = None

    def poll(self) -> int | None:
        """See `guest.Running`."""
        if self._status is None and select.select([self._connection], [], [], 0)[0]:
            answer = self._connection.recv(_MOST_BYTES)
            # Copies end with their keeper.
            self._status = json.loads(answer)["status"] if answer else -signal.SIGKILL
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """See `guest.Running`."""
        if self._status is None:
            select.select([self._connection], [], [], timeout)
        if (status := self.poll()) is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return status


@contextlib.contextmanager
def lent(
    kernel: Kernel, argv: Sequence[str], *, memory: int, starts_ns: int
) -> Iterator[Lent | None]:
    """The template of the keeper that this process finds in its environment.

    Args:
        kernel: The kernel of the guest.
        argv: The template's program and its arguments; see `guest.Template`.
        memory: Size of its memory in bytes.
        starts_ns: Unix time at which its clock starts, in ns.

    Yields:
        The template; None without a keeper, or if it has ended.
    """
    with contextlib.ExitStack() as stack:
        connection = None
        place = Path(os.environ.get(VARIABLE, ""))
        # Another user, such as root by sudo, has guests of its own.
        if place.is_socket() and place.stat().st_uid == os.getuid():
            connection = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            try:
                connection.connect(str(place))
            except OSError:
                connection = None
        if connection is None:
            yield None
        else:
            job = guest.job_of(argv, Path.cwd())
            about = {"kernel": kernel.to_json(), "memory": memory, "starts_ns": starts_ns}
            yield Lent(connection, {**about, "job": job})


# --- the keeper ----------------------------------------------------------------------------------


@contextlib.contextmanager
def keeper(kernel: Kernel) -> Iterator[dict[str, str]]:
    """Keep a template for other commands of this user within this context.

    The template is started by the first request, and again if a later request needs another one.

    Yields:
        The environment in which commands find it.
    """
    with (
        leftovers.temporary_folder("warm", guest.FOLDERS) as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener,
    ):
        place = str(folder / "socket")
        listener.bind(place)
        listener.listen()
        stop, stopped = socket.socketpair()
        with stop, stopped:
            # A guest ends with the thread that has started it.
            thread = threading.Thread(target=_Keeper(kernel, listener, stopped).serve, daemon=True)
            thread.start()
            try:
                yield {**os.environ, VARIABLE: place}
            finally:
                stop.close()
                thread.join()


class _Keeper:
    def __init__(self, kernel: Kernel, listener: socket.socket, stopped: socket.socket) -> None:
        self._kernel = kernel
        self._listener = listener
        self._stopped = stopped
        self._template: guest.Template | None = None
        self._selector = selectors.DefaultSelector()
        self._ends: dict[int, Callable[[], None]] = {}
        """Functions that end a copy and report its status, by its descriptor."""

    def serve(self) -> None:
        """Answer requests until the other end of `stopped` is closed."""
        going_on = [True]
        with self._selector:
            self._on(self._listener, self._accept)
            self._on(self._stopped, going_on.clear)
            while going_on:
                for key, _ in self._selector.select():
                    # The event before may have ended what this one is about.
                    if key.fileobj in self._selector.get_map():
                        key.data()
            for end in list(self._ends.values()):
                end()
        self._forget()

    def _on(self, what: socket.socket | int, call: Callable[[], object]) -> None:
        self._selector.register(what, selectors.EVENT_READ, call)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        self._on(connection, lambda: self._request(connection))

    def _request(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        data, files, *_ = socket.recv_fds(connection, _MOST_BYTES, _FILES)
        try:
            if not data:
                raise RunError("virtual time: the command has ended")
            child = self._copy(json.loads(data), files)
        except (InputError, RunError, OSError) as error:
            self._answer(connection, {"error": str(error)})
            connection.close()
            return
        finally:
            for file in files:
                os.close(file)
        descriptor = os.pidfd_open(child.pid)

        def end() -> None:
            """As the copy has ended, or its command has gone."""
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            self._answer(connection, {"status": child.wait()})
            for what in (connection, descriptor):
                self._selector.unregister(what)
            connection.close()
            os.close(descriptor)
            del self._ends[descriptor]

        self._ends[descriptor] = end
        self._on(connection, end)
        self._on(descriptor, end)
        self._answer(connection, {"pid": child.pid})

    def _copy(self, wanted: Mapping[str, Any], files: Sequence[int]) -> Child:
        """A copy of the template, which is started if there is none that fits."""
        if wanted["kernel"] != self._kernel.to_json():
            raise RunError(
                "virtual time: the kernel has changed: start `testbed kernel warm` again"
            )
        made_of = {name: wanted[name] for name in ("memory", "starts_ns", "job")}
        if self._template is not None and not self._template.fits(self._kernel, (), **made_of):
            self._forget()
        try:
            if self._template is None:
                self._template = guest.Template(self._kernel, (), **made_of)
            return self._template.copy(wanted["file"], files, wanted["processor"])
        except BaseException:
            self._forget()
            raise

    def _forget(self) -> None:
        if self._template is not None:
            self._template.close()
            self._template = None

    @staticmethod
    def _answer(connection: socket.socket, answer: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):  # Its command has gone.
            connection.send(json.dumps(answer).encode())
