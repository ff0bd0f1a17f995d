# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The Docker runtime: the same worlds in containers, and that none is left."""

import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import docker
import psutil
import pytest
from processes import arguments, check_result, family, gone, spawn, until
from small_world import SmallWorld
from tripwire import Tripwires

from testbed import runtimes
from testbed.core.errors import RunError
from testbed.core.node import BS, uav
from testbed.network.shaping import Shape
from testbed.runtimes import Exit, NodeSpec
from testbed.runtimes import docker as runtime
from testbed.system import leftovers

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def client():
    client = docker.from_env()
    yield client
    client.close()


def containers(client, pid=None):
    """Those of this process's runs, or another's: this machine may have more."""
    found = client.containers.list(
        all=True, filters={"label": runtime.MARK_LABEL}, ignore_removed=True
    )
    pid = str(pid or os.getpid())
    return [c for c in found if c.labels[runtime.MARK_LABEL].split("-")[2] == pid]


def test_a_world_of_containers(client, tmp_path):
    limits = {"cpus": 0.5, "memory_bytes": 256 << 20}
    shown, given = tmp_path / "shown", tmp_path / "given"
    shown.mkdir()
    given.mkdir()
    options = {"readable": [shown], "writable": [given], **limits}
    with SmallWorld(tmp_path, uavs=2, runtime="docker", **options) as small:
        small.connect()
        facts = small.ask("uav2", "facts")
        assert facts["capabilities"] == 0
        assert facts["no_new_privileges"] == "1"
        assert facts["interfaces"] == ["bs", "lo"]
        assert not facts["root_is_writable"]
        assert small.ask("uav1", "may_write", folders=[str(shown), str(given), "/tmp"]) == [
            False,
            True,
            True,
        ]
        found = {c.labels[runtime.NODE_LABEL]: c.attrs["HostConfig"] for c in containers(client)}
        assert set(found) == {"bs", "uav1", "uav2"}
        for config in found.values():
            assert config["NetworkMode"] == "none"
            assert config["ReadonlyRootfs"]
            assert config["CapDrop"] == ["ALL"]
            assert config["Memory"] == limits["memory_bytes"]
            assert config["NanoCpus"] == 500_000_000
    assert containers(client) == []


def test_containers_have_limits_and_no_way_out(client, tmp_path):
    with SmallWorld(tmp_path, runtime="docker") as small:
        facts = small.ask("uav1", "facts")
        assert facts["uid"] == runtime.NOBODY
        assert facts["seccomp"] == "2", "a seccomp filter"
        assert facts["no_new_privileges"] == "1"
        for container in containers(client):
            config = container.attrs["HostConfig"]
            assert config["NanoCpus"] == len(os.sched_getaffinity(0)) * 1e9
            assert 0 < config["Memory"] < psutil.virtual_memory().total
            assert config["MemorySwap"] == config["Memory"]
            assert config["PidsLimit"] == runtime.PROCESSES
            assert not config["Privileged"]
            assert not config["CapAdd"]
            assert not config["Devices"]
            assert not any("unconfined" in option for option in config["SecurityOpt"])
            sources = [mount["Source"] for mount in container.attrs["Mounts"]]
            assert not any("docker.sock" in source or source in ("/", "/run") for source in sources)


def test_nodes_read_what_only_root_may_where_they_must(client, tmp_path):
    secret = tmp_path / "data"
    secret.write_text("x")
    secret.chmod(0o600)
    with SmallWorld(tmp_path, runtime="docker", readable=[secret]) as small:
        facts = small.ask("uav1", "facts")
        assert facts["uid"] == 0
        assert facts["capabilities"] == 0


def helpers(word):
    found = []
    for process in psutil.Process().children(recursive=True):
        if word in arguments(process):
            found.append(process)
    return found


@pytest.mark.alone  # By short limits.
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("victim", ["testbed.runtimes.docker", "testbed.network.injector"])
def test_nothing_is_left_when_a_helping_process_is_gone_or_stands_still(
    client, tmp_path, monkeypatch, victim, end
):
    monkeypatch.setattr(runtime, "REMOVAL_TIMEOUT_S", 3)
    monkeypatch.setattr(runtime, "END_TIMEOUT_S", 3)
    with SmallWorld(tmp_path, runtime="docker") as small:
        processes = helpers("testbed.runtimes.docker") + helpers("testbed.network.injector")
        assert len(processes) == 2
        (process,) = helpers(victim)
        process.send_signal(end)
        if victim == "testbed.network.injector" and end == signal.SIGKILL:
            with pytest.raises(RunError, match="injector: its process is gone"):
                small.injector.report()
    assert containers(client) == []
    until(lambda: gone(processes))


# Docker mounts each container's namespace, and a world that begins meanwhile has its mounts, too.
@pytest.mark.alone
@pytest.mark.parametrize("victim", [None, "testbed.network.injector"])
def test_no_namespace_is_left_in_which_frames_wait_for_ever(client, tmp_path, victim):
    with SmallWorld(tmp_path, runtime="docker") as small:
        wires = Tripwires(each.attrs["State"]["Pid"] for each in containers(client))
        assert wires.left() == 2
        small.let_frames_wait()
        for process in helpers(victim) if victim else ():
            process.kill()
    until(lambda: wires.left() == 0)


def test_what_a_killed_orchestrator_and_its_killed_reaper_leave_is_found(client, tmp_path):
    process = spawn("docker", tmp_path)
    check_result(process)
    processes = family(process)
    (reaper,) = [p for p in processes if "testbed.runtimes.docker" in arguments(p)]
    with SmallWorld(tmp_path, runtime="docker"):
        live = {container.name for container in containers(client)}
        for victim in (reaper, process):
            victim.send_signal(signal.SIGKILL)
        process.wait(10)
        time.sleep(1)
        left = {container.name for container in containers(client, process.pid)}
        assert len(left) == 2
        found = {leftover.what.removeprefix("container ") for leftover in runtime.find_leftovers()}
        assert left <= found
        assert not found & live
        assert runtime.find_image() == [], "an emulation runs that may want it"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runtime, "running", list)  # as from another network namespace
            assert runtime.find_image() == [], "a live container uses it"
        # The next run begins by removing them.
        with SmallWorld(tmp_path, runtime="docker"):
            assert containers(client, process.pid) == []
        assert {container.name for container in containers(client)} == live
    assert containers(client) == []
    until(lambda: gone(processes))


def test_transfers_are_those_of_the_other_runtime(client, tmp_path):
    process = spawn("docker", tmp_path)
    check_result(process)
    process.communicate("")
    assert process.returncode == 0
    assert containers(client, process.pid) == []


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_when_the_orchestrator_is_killed(client, tmp_path, end):
    process = spawn("docker", tmp_path)
    check_result(process)
    processes = family(process)
    assert len(containers(client, process.pid)) == 2
    process.send_signal(end)
    process.wait(30)
    until(lambda: containers(client, process.pid) == [], 30)
    until(lambda: gone(processes), 30)


def test_exits_are_told_and_logs_are_kept(client, tmp_path):
    with SmallWorld(tmp_path, runtime="docker") as small:
        small.order("uav1", "exit", status=3)
        found = []
        until(lambda: found.extend(small.world.exits()) or found, 30)
        assert found == [Exit(uav(1), 3)]
        (bs,) = [c for c in containers(client) if c.labels[runtime.NODE_LABEL] == "bs"]
        bs.kill()
        until(lambda: found.extend(small.world.exits()) or len(found) > 1, 30)
        assert found[1] == Exit(BS, -signal.SIGKILL)


def test_a_node_that_ends_at_once_is_named(client, tmp_path):
    nodes = [NodeSpec(BS, ["sh", "-c", "echo $WHY; exit 7"], tmp_path / "log", {"WHY": "so"})]
    with (
        pytest.raises(RunError, match="bs exited with status 7"),
        runtimes.start("docker", nodes, Shape()) as world,
    ):
        world.connect(30)
    assert (tmp_path / "log").read_text() == "so\n"
    assert containers(client) == []


def test_an_unknown_image_is_named(client, tmp_path):
    nodes = [NodeSpec(BS, ["true"], tmp_path / "log")]
    with pytest.raises(RunError, match="no image 'nonesuch'; build it: docker build"):
        runtimes.start("docker", nodes, Shape(), image="nonesuch")


def test_an_ordinary_user_is_told_to_use_the_other_runtime(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(RunError, match="requires root"):
        runtimes.start("docker", [], Shape())


def test_no_daemon_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    nodes = [NodeSpec(BS, [sys.executable], tmp_path / "log")]
    with pytest.raises(RunError) as refused:
        runtimes.start("docker", nodes, Shape())
    assert str(refused.value) == (
        f"docker runtime: no daemon answers at unix://{tmp_path}/nothing.sock (No such file or "
        "directory); start Docker, or use emulation.runtime=namespace"
    )


@pytest.fixture
def daemon(tmp_path, monkeypatch):
    """A Docker daemon of the test's own: what starts it, and what kills it and all that is its."""
    if shutil.which("dockerd") is None:
        pytest.skip("there is no dockerd")
    folder = Path(tempfile.mkdtemp(prefix="dockerd-"))  # short: sockets have short names
    socket = f"unix://{folder}/socket"
    monkeypatch.setenv("DOCKER_HOST", socket)
    command = [
        *("dockerd", "--host", socket, "--bridge=none", "--iptables=false"),
        *(
            "--data-root",
            folder / "data",
            "--exec-root",
            folder / "exec",
            "--pidfile",
            folder / "pid",
        ),
    ]
    started = []

    def start():
        with (folder / "log").open("a") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        started.append(process)
        docker = pytest.importorskip("docker")

        def answers():
            assert process.poll() is None, (folder / "log").read_text()[-2000:]
            try:
                return docker.from_env(timeout=5).ping()
            except docker.errors.DockerException:
                return False

        until(answers, 60)

    def kill():
        processes = family(started[-1])
        for victim in (started[-1], *processes):
            if victim.pid == started[-1].pid or "containerd" in victim.name():
                victim.kill()
        started[-1].wait()
        for file in ("pid", "exec/containerd/containerd.pid"):
            (folder / file).unlink(missing_ok=True)

    yield start, kill
    if started[-1].poll() is None:
        started[-1].terminate()
        started[-1].wait(30)
    for process in psutil.process_iter():
        if any(str(folder) in argument for argument in arguments(process)):
            process.kill()  # a container's supervisor outlives the daemon
    for mount in reversed(psutil.disk_partitions(all=True)):
        if mount.mountpoint.startswith(str(folder)):
            subprocess.run(["umount", "-l", mount.mountpoint], check=False)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.full
def test_a_daemon_that_dies_in_mid_run_is_named_and_its_containers_are_found_later(
    daemon, tmp_path
):
    start, kill = daemon
    start()
    small = SmallWorld(tmp_path, runtime="docker")
    nodes = [c.attrs["State"]["Pid"] for c in runtime.docker.from_env().containers.list()]
    assert len(nodes) == 2
    kill()
    lost = []

    def told():
        try:
            small.world.exits()
        except RunError as error:
            lost.append(str(error))
        return lost

    until(told, 20)
    assert lost == ["docker runtime: the daemon has ended"]
    with pytest.raises(RunError, match="could not be removed: run `testbed clean`"):
        small.world.close()
    # Nodes end with the orchestrator's sockets, daemon or none.
    small.nodes.clear()
    gc.collect()
    until(lambda: not any(map(psutil.pid_exists, nodes)), 20)
    start()
    assert runtime.find_leftovers() == [], "of a process that lives: ours"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leftovers, "alive", lambda mark: False)
        found = runtime.find_leftovers()
        assert len(found) == 2
        patch.setattr(runtime, "running", list)  # whatever else runs uses another daemon
        assert len(runtime.find_image()) == 1, "those which use it are dead"
        assert not any(leftovers.remove(found).values())
        assert runtime.find_leftovers() == []
        (image,) = runtime.find_image()
        image.remove()
        assert runtime.find_image() == []
