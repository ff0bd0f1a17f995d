# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Programs started in a running session from another shell, over a unix socket in its folder.

Who comes in sends one datagram, with the standard files of what is to be started, and is told
whether it was, and how it ended. Whoever leaves before ends what was started. The socket is its
owner's alone. A session in virtual time lets nobody in: its host has the socket, and says so.
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
"""Until a visitor who is not let in has said what he wants."""
_CREDENTIALS = struct.Struct("3i")


@contextmanager
def _address(folder: Path) -> Iterator[str]:
    """The socket's address, however long the folder's name is: a unix address has 107 bytes."""
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
    """The session's end; served by one thread."""

    def __init__(
        self,
        folder: Path,
        scenario: ResolvedScenario,
        home: Callable[[NodeId], Path],
        start: Callable[..., Program],
    ):
        """Open the socket.

        Args:
            folder: The session's.
            scenario: Whose nodes a visitor may name.
            home: The folder in which a node's shell starts.
            start: Starts a program in a node: `orchestrator.emulated.session.Session.start`.
        """
        self._scenario, self._home, self._start_program = scenario, home, start
        # In virtual time that of the folder is the host's, and nobody comes to this one.
        self._place = folder if inside.guest_settings() is None else Path(tempfile.mkdtemp())
        (self._place / SOCKET).unlink(missing_ok=True)  # Of one that was killed.
        self._listener = _listener(self._place)
        self._visitors: dict[socket.socket, Program | None] = {}
        self._close = threading.Event()

    @property
    def closed(self) -> bool:
        """Whether nobody is let in any more."""
        return self._close.is_set()

    def close(self) -> None:
        """Let nobody in any more; what visitors have started is the session's to end."""
        self._close.set()
        (self._place / SOCKET).unlink(missing_ok=True)

    def dismiss(self) -> None:
        """Close what is open, from the thread that has served it."""
        for opened in self.files:
            opened.close()

    @property
    def files(self) -> list[socket.socket]:
        """What to look at."""
        return [self._listener, *self._visitors]

    def serve(self, ready: Sequence[Any]) -> None:
        """Let visitors in, and hear those that are."""
        if self._listener in ready:
            visitor, _ = self._listener.accept()
            self._visitors[visitor] = None
        for visitor in [v for v in self._visitors if v in ready]:
            self._hear(visitor)

    def _hear(self, visitor: socket.socket) -> None:
        program, files = self._visitors[visitor], list[int]()
        try:
            data, files, _, _ = socket.recv_fds(visitor, MOST_BYTES, 3)
            if data and program is None and len(files) == 3:
                self._visitors[visitor] = self._start(visitor, json.loads(data), files)
                return
        # Whatever a visitor asks for, the session goes on.
        except (InputError, RunError, OSError) as error:
            _tell(visitor, {"error": str(error)})
        except (ValueError, LookupError, TypeError):
            _tell(visitor, {"error": "the session is of another release of the testbed"})
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
            raise InputError("the session is another user's")
        (node, *others) = nodes_named(wish["node"], self._scenario, "NODE")
        if others:
            raise InputError("NODE: must be one node")
        # An image need not have the shell that this user has.
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
        """Tell whoever has started it."""
        for visitor, started in list(self._visitors.items()):
            if started is program:
                _tell(visitor, {"status": program.returncode})
                del self._visitors[visitor]
                visitor.close()


def _tell(visitor: socket.socket, what: Mapping[str, Any]) -> None:
    with suppress(OSError):
        visitor.send(json.dumps(what).encode())


# What follows runs outside of a session in virtual time.


@contextmanager
def closed_to_visitors(folder: Path, why: str) -> Iterator[None]:
    """Hold a session's folder while the context lasts, and tell whoever wants to come in why not.

    The folder is made where it is missing, and removed again if nothing else came into it.

    Raises:
        InputError: A session runs there, or it cannot be made.
    """
    if runs_in(folder):
        raise InputError(f"`out`: a session is running in {folder}")
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"`out`: {folder} cannot be made ({error.strerror})") from None
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (folder / SOCKET).unlink(missing_ok=True)  # of one that was killed
        listener = _listener(folder)
    except BlockingIOError:
        os.close(place)
        raise InputError(f"`out`: a session is running in {folder}") from None
    thread = threading.Thread(target=_turn_away, args=(listener, why), daemon=True)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()
        (folder / SOCKET).unlink(missing_ok=True)
        os.close(place)
        with suppress(OSError):  # It holds a session.
            for path in made:
                path.rmdir()


def _turn_away(listener: socket.socket, why: str) -> None:
    with suppress(OSError):  # It has been shut down.
        while True:
            visitor, _ = listener.accept()
            with visitor, suppress(OSError):
                visitor.settimeout(WISH_S)
                if visitor.recv(MOST_BYTES):
                    _tell(visitor, {"error": why})


# What follows runs in the other shell.


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
        folder: The session's.
        node: Which.
        argv: The program and its arguments, started in this process's working directory; none: a
            shell in the node's home.
        files: Its standard files.
        env: On top of what the node's programs find in their environment.
        terminal: Whether the first of these is a terminal that is to be its own.

    Returns:
        Its exit status.

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
    told = json.loads(answer)
    if "error" in told:
        raise InputError(told["error"])
    if told["status"] is None:
        raise RunError("the session failed")
    return int(told["status"])


def runs_in(folder: Path) -> bool:
    """Whether a session lives in a folder."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe, _address(folder) as at:
            probe.connect(at)
    except OSError:
        return False
    return True
