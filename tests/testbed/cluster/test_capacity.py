# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a network carries is found from one side, for who shows the password alone."""

import socket
from collections.abc import Iterator

import pytest

from testbed.cluster import capacity
from testbed.cluster.capacity import Peer, Source, measure, password_of
from testbed.core.errors import RunError

PASSWORD = password_of("t" * 64)
PACED_BYTES_S = 4_000_000
_SO_MAX_PACING_RATE = 47


@pytest.fixture
def sources() -> Iterator[list[Source]]:
    made = [Source("127.0.0.1", PASSWORD) for _ in range(2)]
    yield made
    for source in made:
        source.close()


def peer(source: Source, password: str = PASSWORD) -> Peer:
    """As others are told of it."""
    return Peer("127.0.0.1", source.port, password)


def test_each_way_is_counted_alone_and_together(
    sources: list[Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    pump = capacity._pump

    def paced(stream: socket.socket, over) -> None:
        # Data go the more slowly away from the base station.
        at_source = stream.getsockname()[1] in [source.port for source in sources]
        rate = PACED_BYTES_S if at_source else PACED_BYTES_S // 4
        stream.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, rate)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        pump(stream, over)

    monkeypatch.setattr(capacity, "_pump", paced)
    alone, together = measure({name: peer(s) for name, s in zip("ab", sources, strict=True)})
    assert list(alone) == ["a", "b"]
    # A loaded machine may keep them from it, but nothing lets them exceed it.
    for flow, links in ((alone["a"], 1), (alone["b"], 1), (together, 2)):
        assert 0.1 < flow.up_bps / (8 * PACED_BYTES_S * links) < 1.3
        assert 0.1 < 4 * flow.down_bps / (8 * PACED_BYTES_S * links) < 1.3
    assert together.up_bps > 2 * together.down_bps


def test_a_stranger_gets_nothing(sources: list[Source]) -> None:
    with socket.create_connection(("127.0.0.1", sources[0].port), 5) as stream:
        stream.sendall(b"x" * len(PASSWORD))
        assert stream.recv(1) == b""
    # And keeps nobody from being served.
    flow = capacity._flow({"a": peer(sources[0])})
    assert min(flow.up_bps, flow.down_bps) > 0


def test_a_host_that_cannot_be_reached_is_named(sources: list[Source]) -> None:
    sources[1].close()
    with pytest.raises(RunError, match=r"^host b: the base station's host cannot reach it at 127"):
        capacity._flow({"b": peer(sources[1])})


def test_the_token_itself_is_not_shown() -> None:
    assert "t" * 8 not in PASSWORD
    assert password_of("u" * 64) != PASSWORD
