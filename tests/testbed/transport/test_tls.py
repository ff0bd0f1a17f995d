# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How frames are written to a connection within TLS."""

import itertools
import os
import socket
import threading
from datetime import datetime
from types import SimpleNamespace

import pytest

from testbed.core.node import BS, uav
from testbed.transport import certificates
from testbed.transport.certificates import identities
from testbed.transport.interface import Identity
from testbed.transport.tls import RECORD_OVERHEAD_BYTES, TlsStream, context, record_overhead_bytes


@pytest.mark.parametrize("size", [0, 1, 100_000, 1_000_000])
def test_a_header_is_written_with_what_follows(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    server, client = identities(1)
    payload, got, written = bytes(size), bytearray(44 + size), []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()

    def receive() -> None:
        stream = TlsStream(far, context(client, server_side=False), server_name=BS.host_name)
        stream.receive_into(memoryview(got))

    thread = threading.Thread(target=receive, daemon=True)
    thread.start()
    with near, far:
        stream = TlsStream(near, context(server, server_side=True))
        assert stream.peer_name == uav(1).host_name
        send = stream._send
        monkeypatch.setattr(stream, "_send", lambda data: (written.append(len(data)), send(data)))
        stream.send(b"h" * 44, payload)
        thread.join(30)
    assert got == b"h" * 44 + payload
    assert sum(written) == len(got) + record_overhead_bytes(44, size)
    assert stream.record_bytes == sum(written) - len(got)
    assert written[0] > 44 + RECORD_OVERHEAD_BYTES or not size


def test_whoever_draws_the_same_on_a_day_certifies_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in virtual time; OpenSSL would mix the moment in."""
    another = identities(1)

    def at(hour: int) -> list[Identity]:
        now = SimpleNamespace(now=lambda zone: datetime(2026, 1, 1, hour, 7, 9, 11, zone))
        numbers = itertools.count()
        monkeypatch.setattr(certificates, "datetime", now)
        monkeypatch.setattr(os, "urandom", lambda size: next(numbers).to_bytes(size, "big"))
        return identities(1)

    one, two = at(3), at(22)
    assert one == two
    assert len({identity.key for identity in (*one, *another)}) == 4
