# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Files that come back from a host."""

import socket
import threading

import pytest

from testbed.cluster import agent, world
from testbed.cluster.messages import TO_AGENT, GiveFile
from testbed.control.codec import encode
from testbed.control.stream import ControlSocket
from testbed.core.errors import RunError
from testbed.core.node import uav
from testbed.runtimes import Exit


@pytest.fixture
def fetch(monkeypatch, tmp_path):
    """Bring a host's file of these bytes; the world that did."""
    monkeypatch.setattr(agent, "FILE_PART_BYTES", 1000)
    here, there = (ControlSocket(end) for end in socket.socketpair())
    host, found = agent.Agent.__new__(agent.Agent), world.HostsWorld.__new__(world.HostsWorld)
    host._control, found._controls, found._early = there, {"a": here}, []

    def bring(data: bytes) -> world.HostsWorld:
        (tmp_path / "theirs").write_bytes(data)

        def give() -> None:
            message = there.receive(10)
            assert message is not None
            assert TO_AGENT.decode(*message) == GiveFile("capture")
            there.send(*encode(Exit(uav(1), 3)))  # Whatever happens meanwhile is told, too.
            host._give(tmp_path / "theirs")

        thread = threading.Thread(target=give)
        thread.start()
        try:
            found.fetch("a", "capture", tmp_path / "ours")
        finally:
            thread.join()
        return found

    yield bring
    here.close()
    there.close()


@pytest.mark.parametrize("size", [0, 1, 1000, 4321])
def test_a_file_comes_back_whole_and_is_gone_there(fetch, tmp_path, size) -> None:
    data = bytes(place % 251 for place in range(size))
    found = fetch(data)
    assert (tmp_path / "ours").read_bytes() == data
    assert not (tmp_path / "theirs").exists()
    assert found._receive() == Exit(uav(1), 3)


def test_a_file_that_is_too_long_ends_the_run(fetch, monkeypatch) -> None:
    monkeypatch.setattr(world, "MOST_FILE_BYTES", 4000)
    with pytest.raises(RunError, match=r"^host a: capture has more than 0 GiB$"):
        fetch(bytes(4001))
