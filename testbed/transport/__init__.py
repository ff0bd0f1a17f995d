# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Transport of frames between the base station and the UAVs.

The package is the interface between node programs and transports. It does not schedule anything.

A program has one `Link` per peer and sends whole frames of `testbed.transport.wire` over it; the
scenario selects the transport (`TransportKind`) that carries them, and the number of connections:

- `tcp`: frames on a TCP stream; `tls`: the same over TLS 1.3, with both sides authenticated by
  certificates of the run's own authority; `grpc`: each frame is one message of a bidirectional gRPC
  stream, as in most federated frameworks; `quic`: each frame is a stream of a QUIC connection, with
  the same certificates.
- `kept`: one connection per link for the whole run; `per-transfer`: the sender opens a connection
  for every transfer, which is closed after the receipt has been sent back on it.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import cast

from testbed.core.node import BS, uav
from testbed.core.registry import TRANSPORTS
from testbed.transport.interface import Link, MarkedLink, TransportKind, TransportSettings
from testbed.transport.quic import QUIC
from testbed.transport.rpc import GRPC
from testbed.transport.tcp import TCP
from testbed.transport.tls import TLS
from testbed.transport.wire import Buffer, ConnectionLost, Header, Kind

TRANSPORTS.add({kind.name: kind for kind in (TCP, TLS, GRPC, QUIC)})


def kind_of(name: str) -> TransportKind:
    """The transport of that name.

    Raises:
        InputError: No transport has that name, or a package's cannot be loaded.
    """
    return TRANSPORTS.instance(name, TransportKind)


def accept(
    settings: TransportSettings,
    address: tuple[str, int],
    clients: Collection[int],
    listening: Callable[[], object],
) -> dict[int, MarkedLink]:
    """Be the base station, by the transport that the settings name: see `TransportKind.accept`."""
    links = kind_of(settings.transport).accept(settings, address, clients, listening)
    return {client: _Named(link, uav(client).title) for client, link in links.items()}


def connect(settings: TransportSettings, client: int, server: tuple[str, int]) -> Link:
    """Be a UAV, by the transport that the settings name: see `TransportKind.connect`."""
    with _naming(BS.title, "HELLO"):
        link = kind_of(settings.transport).connect(settings, client, server)
        return _Named(link, BS.title)


class _Named:
    """A link that adds the peer's name to its errors."""

    def __init__(self, link: Link, peer: str):
        self._link = link
        self._peer = peer
        self._kind = ""
        self.count = link.count
        self.hang_up, self.close = link.hang_up, link.close

    def send(self, header: Header, extra: Buffer = b"", payload: Buffer = b"") -> None:
        """See `Link`."""
        with _naming(self._peer, header.kind.name):
            self._link.send(header, extra, payload)

    def set_dscp(self, dscp: int) -> None:
        """See `MarkedLink`; the link must be one."""
        cast(MarkedLink, self._link).set_dscp(dscp)

    def receive_header(self, due: Kind) -> Header:
        """See `Link`."""
        self._kind = due.name
        with _naming(self._peer, self._kind):
            return self._link.receive_header(due)

    def receive_into(self, place: memoryview) -> int:
        """See `Link`."""
        with _naming(self._peer, self._kind):
            return self._link.receive_into(place)


@contextmanager
def _naming(peer: str, kind: str) -> Iterator[None]:
    try:
        yield
    except ConnectionLost as lost:
        raise ConnectionLost(f"{kind} and {peer}: {lost}") from None
