# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Sockets that are forwarded to another machine over mutual TLS.

Programs on the control plane use unix sockets. Here, the two sides of such a socket are on
different
machines: each holds one end of a local pair, and the bytes in between go over TLS 1.3, one
    connection
per socket, with certificates of the run's own authority. A client first sends the name of the
socket and the host's token, and is disconnected otherwise. Emulated traffic never uses these
streams.
"""

import asyncio
import contextlib
import hmac
import socket
import ssl
import threading
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from testbed.core.errors import RunError
from testbed.transport.interface import Identity
from testbed.transport.tls import context

Result = TypeVar("Result")
CHUNK = 1 << 16
CONNECT_S = 15.0
"""Seconds that a host may take for connection set-up, TLS handshake and authentication."""
MOST_NAME_BYTES = 64
LOOK_S = 0.002
_ACCEPTED = b"+"


class _Loop:
    """An event loop in a separate thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine from another thread and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task; called within the loop."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def soon(self, action: Callable[[], object]) -> None:
        """Schedule a call within the loop; may be called by other threads."""
        self._loop.call_soon_threadsafe(action)

    def close(self) -> None:
        """Cancel all tasks and end the loop."""

        async def end() -> None:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        if self._thread.is_alive():
            self.call(end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


async def _carry(
    ours: socket.socket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Forward bytes in both directions until one side ends; then close both."""
    loop = asyncio.get_running_loop()

    async def outward() -> None:
        while data := await loop.sock_recv(ours, CHUNK):
            writer.write(data)
            await writer.drain()

    async def inward() -> None:
        while data := await reader.read(CHUNK):
            await loop.sock_sendall(ours, data)

    ways = [asyncio.ensure_future(way()) for way in (outward, inward)]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        ours.close()
        with contextlib.suppress(OSError):
            writer.close()  # Flushes the pending data.
            await writer.wait_closed()


class Caller:
    """The orchestrator's side: opens sockets whose other ends are on other machines."""

    def __init__(self, identity: Identity) -> None:
        self._context = context(identity, server_side=False)
        self._loop = _Loop()
        self._carrying: dict[tuple[str, int], list[asyncio.Task[None]]] = defaultdict(list)

    def open(self, at: tuple[str, int], server_name: str, token: str, name: str) -> socket.socket:
        """A socket whose other end is the one that the host offers under `name`.

        Raises:
            RunError: The host cannot be reached, fails authentication, or does not offer the
                socket.
        """
        theirs, ours = socket.socketpair()
        ours.setblocking(False)

        async def connect() -> None:
            reader, writer = await asyncio.open_connection(
                *at, ssl=self._context, server_hostname=server_name
            )
            writer.write(token.encode() + bytes([len(name)]) + name.encode())
            if await reader.read(1) != _ACCEPTED:
                writer.close()
                raise ConnectionError("it rejected the connection")
            self._carrying[at].append(self._loop.begin(_carry(ours, reader, writer)))

        try:
            self._loop.call(asyncio.wait_for(connect(), CONNECT_S))
        except (OSError, ssl.SSLError, TimeoutError) as error:
            theirs.close()
            ours.close()
            why = error.strerror or error if isinstance(error, OSError) else "no answer"
            raise RunError(f"no connection to {at[0]}:{at[1]} ({why})") from None
        return theirs

    def hang_up(self, at: tuple[str, int]) -> None:
        """Close all sockets to a host, whose readers see the end; may be called by any thread."""

        def end() -> None:
            for task in self._carrying.pop(at, []):
                task.cancel()

        self._loop.soon(end)

    def close(self) -> None:
        """Close all sockets."""
        self._loop.close()


class Listener:
    """A host's side: offers sockets by name, once each, to authenticated peers."""

    def __init__(self, identity: Identity, address: str, token: str, soon: str) -> None:
        """Listen.

        Args:
            identity: Certificates of this host.
            address: IP address on which to listen.
            token: Secret that every peer must present.
            soon: Prefix of the names of sockets that may be requested shortly before they are
                offered.
        """
        self._token = token.encode()
        self._soon = soon
        self._context = context(identity, server_side=True)
        self._offers: dict[str, socket.socket] = {}
        self._loop = _Loop()
        self._server = self._loop.call(
            asyncio.start_server(
                self._welcome, address, 0, ssl=self._context, ssl_handshake_timeout=CONNECT_S
            )
        )
        self.port: int = self._server.sockets[0].getsockname()[1]
        """Port of the listening socket."""

    def offer(self, name: str, sock: socket.socket) -> None:
        """Offer a socket under a name."""
        sock.setblocking(False)
        self._offers[name] = sock

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            sock = await asyncio.wait_for(self._asked_for(reader), CONNECT_S)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            sock = None
        if sock is None:
            writer.close()
            return
        writer.write(_ACCEPTED)
        self._loop.begin(_carry(sock, reader, writer))

    async def _asked_for(self, reader: asyncio.StreamReader) -> socket.socket | None:
        token = await reader.readexactly(len(self._token))
        length = (await reader.readexactly(1))[0]
        if not hmac.compare_digest(token, self._token) or length > MOST_NAME_BYTES:
            return None
        name = (await reader.readexactly(length)).decode("ascii", "replace")
        while name.startswith(self._soon) and name not in self._offers:
            await asyncio.sleep(LOOK_S)
        return self._offers.pop(name, None)

    def close(self) -> None:
        """Stop listening, and close all offered sockets."""
        self._loop.call(self._end())
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
