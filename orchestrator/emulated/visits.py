# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Programs started in a running session from another shell, over a Unix socket in its folder.

A visitor sends one datagram with a request and the standard files of the program. The answer is
whether the program was started, and then its exit status. If a visitor disconnects, its program is
ended. Only the owner can use the socket. A session in virtual time accepts no visitors: its host
has the socket, and refuses them.
"""

import errno
import fcntl
import json
import os
import socket
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from orchestrator.emulated.programs import Program, image_of
from orchestrator.emulated.session_request import nodes_named
from orchestrator.scenario.schema import ResolvedScenario
from testbed.core.errors import InputError, RunError
from testbed.core.node import NodeId
from testbed.system import inside

SOCKET = "session.sock"
MOST_BYTES = 1 << 20
WISH_S = 5.0
"""Timeout of an unauthorised exec request."""
_CREDENTIALS = struct.Struct("3i")


@contextmanager
def _address(folder: Path) -> Iterator[str]:
    """Address of the socket, of at most 107 bytes, however long the name of the folder is."""
    place = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{place}/{SOCKET}"
    finally:
        os.close(place)


def _listener(folder: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with _address(folder) as address:
        listener.bind(address)
    (folder / SOCKET).chmod(0o600)
    listener.listen()
    return listener


class Visits:
    """The session's end of the socket, served by one thread."""

    def __init__(
        self,
        folder: Path,
        scenario: ResolvedScenario,
        home: Callable[[NodeId], Path],
        start: Callable[..., Program],
    ):
        """Open the socket.

        Args:
            folder: Folder of the session.
            scenario: Scenario with the nodes that a visitor may name.
            home: Returns the folder in which a node's shell starts.
            start: Starts a program in a node: `orchestrator.emulated.session.Session.start`.
        """
        self._scenario, self._home, self._start_program = scenario, home, start
        # In virtual time, the socket in the folder is the host's, and this one has no visitors.
        self._place = folder if inside.guest_settings() is None else Path(tempfile.mkdtemp())
        (self._place / SOCKET).unlink(missing_ok=True)  # It may remain from a killed session.
        self._listener = _listener(self._place)
        self._visitors: dict[socket.socket, Program | None] = {}
        self._close = threading.Event()

    @property
    def closed(self) -> bool:
        """Whether visitors are no longer accepted."""
        return self._close.is_set()

    def close(self) -> None:
        """Accept no more visitors; their programs are ended by the session."""
        self._close.set()
        (self._place / SOCKET).unlink(missing_ok=True)

    def dismiss(self) -> None:
        """Close all sockets, from the thread that has served them."""
        for opened in self.files:
            opened.close()

    @property
    def files(self) -> list[socket.socket]:
        """The sockets to poll."""
        return [self._listener, *self._visitors]

    def serve(self, ready: Sequence[Any]) -> None:
        """Accept visitors, and handle their requests."""
        if self._listener in ready:
            visitor, _ = self._listener.accept()
            self._visitors[visitor] = None
        for visitor in [v for v in self._visitors if v in ready]:
            self._handle_request(visitor)

    def _handle_request(self, visitor: socket.socket) -> None:
        program, files = self._visitors[visitor], list[int]()
        try:
            data, files, _, _ = socket.recv_fds(visitor, MOST_BYTES, 3)
            if data and program is None and len(files) == 3:
                self._visitors[visitor] = self._start(visitor, json.loads(data), files)
                return
        # No request of a visitor may end the session.
        except (InputError, RunError, OSError) as error:
            _answer(visitor, {"error": str(error)})
        except (ValueError, LookupError, TypeError):
            _answer(visitor, {"error": "the session uses another release of the testbed"})
        finally:
            for descriptor in files:
                os.close(descriptor)
        if program is not None:
            program.kill()
        del self._visitors[visitor]
        visitor.close()

    def _start(
        self, visitor: socket.socket, wish: Mapping[str, Any], files: Sequence[int]
    ) -> Program:
        raw = visitor.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(raw)[1] != os.geteuid():
            raise InputError("the session belongs to another user")
        (node, *others) = nodes_named(wish["node"], self._scenario, "NODE")
        if others:
            raise InputError("NODE: must be one node")
        # The image may lack this user's shell.
        shell = wish["shell"] if image_of(self._scenario, node) is None else "sh"
        return self._start_program(
            node,
            wish["argv"] or [shell],
            (files[0], files[1], files[2]),
            env=wish["env"],
            folder=Path(wish["folder"]) if wish["argv"] else self._home(node),
            terminal=wish["terminal"],
        )

    def ended(self, program: Program) -> None:
        """Report the end of a program to the visitor who has started it."""
        for visitor, started in list(self._visitors.items()):
            if started is program:
                _answer(visitor, {"status": program.returncode})
                del self._visitors[visitor]
                visitor.close()


def _answer(visitor: socket.socket, what: Mapping[str, Any]) -> None:
    with suppress(OSError):
        visitor.send(json.dumps(what).encode())


# The following functions run outside of a session in virtual time.


@contextmanager
def closed_to_visitors(folder: Path, why: str) -> Iterator[None]:
    """Reserve a session's folder while the context lasts, and refuse visitors with a reason.

    The folder is created if it does not exist, and removed if it stays empty.

    Raises:
        InputError: A session runs there, or the folder cannot be created.
    """
    if runs_in(folder):
        raise InputError(f"`out`: a session is running in {folder}")
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"`out`: {folder} cannot be created ({error.strerror})") from None
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (folder / SOCKET).unlink(missing_ok=True)  # it may remain from a killed session
        listener = _listener(folder)
    except BlockingIOError:
        os.close(place)
        raise InputError(f"`out`: a session is running in {folder}") from None
    thread = threading.Thread(target=_refuse_visitors, args=(listener, why), daemon=True)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()
        (folder / SOCKET).unlink(missing_ok=True)
        os.close(place)
        with suppress(OSError):  # It is not empty.
            for path in made:
                path.rmdir()


def _refuse_visitors(listener: socket.socket, why: str) -> None:
    with suppress(OSError):  # It has been shut down.
        while True:
            visitor, _ = listener.accept()
            with visitor, suppress(OSError):
                visitor.settimeout(WISH_S)
                if visitor.recv(MOST_BYTES):
                    _answer(visitor, {"error": why})


# The following functions run in the other shell.


def visit(
    folder: Path,
    node: str,
    argv: Sequence[str],
    files: tuple[int, int, int],
    *,
    env: Mapping[str, str],
    terminal: bool,
) -> int:
    """Run a program in a node of a running session.

    Args:
        folder: Folder of the session.
        node: Node of the program.
        argv: The program and its arguments, started in this process's working directory; none: a
            shell in the node's home.
        files: Standard files of the program.
        env: Variables in addition to those of the node.
        terminal: Whether its standard input is a terminal that becomes its controlling terminal.

    Returns:
        The exit status of the program.

    Raises:
        InputError: No session runs there, or it has no such node.
        RunError: The session ended before the program did.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as session:
        try:
            with _address(folder) as address:
                session.connect(address)
        except OSError:
            raise InputError(f"{folder}: no session runs there") from None
        wish = {
            "node": node,
            "argv": list(argv),
            "env": dict(env),
            "shell": os.environ.get("SHELL") or "/bin/sh",
            "folder": str(Path.cwd()),
            "terminal": terminal,
        }
        try:
            socket.send_fds(session, [json.dumps(wish).encode()], list(files))
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                raise InputError("`command`: is too long") from None
            raise RunError("the session ended") from None
        answer = session.recv(MOST_BYTES)
    if not answer:
        raise RunError("the session ended")
    result = json.loads(answer)
    if "error" in result:
        raise InputError(result["error"])
    if result["status"] is None:
        raise RunError("the session failed")
    return int(result["status"])


def runs_in(folder: Path) -> bool:
    """Whether a session runs in a folder."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe, _address(folder) as at:
            probe.connect(at)
    except OSError:
        return False
    return True
