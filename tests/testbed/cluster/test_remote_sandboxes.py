# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Programs in sandboxes on another host: their files, their environment, what they leave."""

import os
import socket
import tarfile
import threading
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.cluster import sandboxes
from testbed.cluster.messages import (
    PartEnded,
    ReleasePrograms,
    SignalProgram,
    StartProgram,
    stream_of,
)
from testbed.cluster.sandboxes import HostSandboxes, RemoteSandboxes, packed, unpack, with_home
from testbed.cluster.standard_files import Carried
from testbed.control.codec import Kinds
from testbed.control.stream import ControlSocket
from testbed.core.errors import InputError
from testbed.core.node import uav
from testbed.runtimes import Command, NodeSpec, Sandbox
from testbed.system import leftovers

ORDERS: Kinds[StartProgram | SignalProgram | ReleasePrograms] = Kinds(
    StartProgram | SignalProgram | ReleasePrograms
)


def command(folder: Path = Path("/"), **about: Any) -> Command:
    env = {"TESTBED_NODE": "uav1"}
    return Command(uav(1), ("true",), env, folder, (Path("/nowhere"), Path("/usr")), **about)


def test_a_file_arrives_whole_and_ends_where_its_other_end_does() -> None:
    here, there = socket.socketpair()
    (read, from_here), (arrived, sink) = os.pipe(), os.pipe()
    sent, received = Carried(here, read, outward=True), Carried(there, sink, outward=False)
    data = os.urandom(1 << 20)

    def give() -> None:
        with os.fdopen(from_here, "wb") as file:
            file.write(data)

    threading.Thread(target=give, daemon=True).start()
    with os.fdopen(arrived, "rb") as file:
        assert file.read() == data
    for each in (sent, received):
        each.await_end(10)
        assert not each._thread.is_alive()


def test_who_no_longer_reads_ends_the_reading_of_a_file_that_never_ends() -> None:
    here, there = socket.socketpair()
    read, write = os.pipe()
    carried = Carried(here, read, outward=True)
    there.close()
    carried.await_end(10)
    assert not carried._thread.is_alive()
    with pytest.raises(BrokenPipeError):
        os.write(write, b"!")
    os.close(write)


@pytest.fixture
def far() -> Any:
    """Sandboxes of a host, the agent's end of its orders, and what streams it was asked for."""
    ours, theirs = socket.socketpair()
    asked: dict[str, socket.socket] = {}

    def opened(host: str, name: str) -> socket.socket:
        near, asked[f"{host}:{name}"] = socket.socketpair()
        return near

    places = {uav(1): "beta", uav(2): "beta", uav(3): "lost"}
    made = RemoteSandboxes({"beta": ControlSocket(ours)}, places, opened, lambda _, ns: ns + 7)
    return SimpleNamespace(sandboxes=made, agent=ControlSocket(theirs), asked=asked)


def test_output_is_here_before_its_programs_end_is_told(far: Any) -> None:
    read, write = os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    number = far.sandboxes.spawn(command(), (nothing, write, write))
    order = ORDERS.decode(*far.agent.receive(10))
    assert order == StartProgram(number, command(), True)
    assert far.asked.keys() == {f"beta:{stream_of(number, file)}" for file in (0, 1)}
    stream = far.asked[f"beta:{stream_of(number, 1)}"]
    threading.Timer(0.2, lambda: (stream.sendall(b"last words"), stream.close())).start()
    far.sandboxes.ended(number)
    os.set_blocking(read, False)
    assert os.read(read, 100) == b"last words"
    far.sandboxes.signal(number, 15)  # The program has ended: the signal is ignored.
    assert far.agent.receive(0) is None


def test_errors_that_go_elsewhere_have_a_stream_of_their_own_and_signals_arrive(far: Any) -> None:
    files = tuple(os.open(os.devnull, os.O_RDWR) for _ in range(3))
    number = far.sandboxes.spawn(command(), (files[0], files[1], files[2]))
    assert not ORDERS.decode(*far.agent.receive(10)).merged
    assert len(far.asked) == 3
    far.sandboxes.signal(number, 15)
    assert ORDERS.decode(*far.agent.receive(10)) == SignalProgram(number, 15)


def test_held_programs_are_released_once_a_host_by_the_hosts_clock(far: Any) -> None:
    far.sandboxes.release(1000)
    assert ORDERS.decode(*far.agent.receive(10)) == ReleasePrograms(1007)
    assert far.agent.receive(0) is None


def test_what_cannot_be_is_refused(far: Any) -> None:
    with pytest.raises(InputError, match=r"uav1 is on host beta, which cannot use"):
        far.sandboxes.spawn(command(terminal=True), (0, 1, 2))
    long = Command(uav(1), ["x" * sandboxes.MOST_START_BYTES], {}, Path("/"))
    with pytest.raises(InputError, match="too long"):
        far.sandboxes.spawn(long, (0, 1, 2))
    assert far.agent.receive(0) is None


def test_a_program_finds_its_hosts_environment_and_a_home_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_HOST", "yes")
    monkeypatch.setenv("http_proxy", "no")
    monkeypatch.setenv(leftovers.VARIABLE, "no")
    theirs = Path("/elsewhere/out/nodes/uav1")
    spec = NodeSpec(uav(1), Sandbox("", (theirs,)), tmp_path / "log")
    home = tmp_path / "uav1"
    assert with_home(spec, home).program == Sandbox("", (home,))
    started: list[Command] = []
    offered: dict[str, socket.socket] = {}
    words: list[str] = []

    def spawn(command: Command, files: tuple[int, int, int]) -> int:
        started.append(command)
        os.write(files[1], b"out")
        os.write(files[2], b"err")
        return 7

    world: Any = SimpleNamespace(spawn=spawn, signal=lambda *told: words.append(str(told)))
    host = HostSandboxes([spec], world, offered.__setitem__)
    host.start(StartProgram(3, command(theirs), False), home)
    (given,) = started
    assert given.folder == home
    assert given.shown == (Path("/usr"),)
    env = dict(given.env)
    assert (env["HOME"], env["TESTBED_NODE"], env["OF_THE_HOST"]) == (str(home), "uav1", "yes")
    assert not env.keys() & {"http_proxy", leftovers.VARIABLE}
    assert [offered[stream_of(3, file)].recv(10) for file in (1, 2)] == [b"out", b"err"]
    host.signal(SignalProgram(3, 15))
    host.signal(SignalProgram(4, 15))
    assert words == ["(7, 15)"]
    assert host.ended(7) == 3


def test_homes_come_back_but_for_what_is_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    homes = {name: tmp_path / "there" / name for name in ("uav1", "uav2")}
    for home in homes.values():
        (home / "deep").mkdir(parents=True)
    (homes["uav1"] / "deep" / "file").write_text("kept")
    os.mkfifo(homes["uav1"] / "fifo")
    (homes["uav2"] / "file").write_bytes(bytes(1000))
    monkeypatch.setattr(sandboxes, "MOST_HOME_BYTES", 999)
    data, left_out = packed(homes)
    assert left_out == ("uav2",)
    here = tmp_path / "uav1"
    here.mkdir()
    unpack(PartEnded({}, data), {"uav1": here})
    assert (here / "deep" / "file").read_text() == "kept"
    assert not (here / "fifo").exists()
    leads_out = BytesIO()
    with tarfile.open(fileobj=leads_out, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("uav1/../../out"))
    with pytest.raises(tarfile.TarError):
        unpack(PartEnded({}, leads_out.getvalue()), {"uav1": here})
