# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Nodes as Docker containers without a network of their own; needs root and a Docker daemon.

A container has no capabilities, a read-only root, and limits. The fabric process, which runs
outside of containers as root, attaches the links through `/proc/PID/ns/net`. A third process, the
*reaper*, removes the run's containers, identified by their label, when a pipe from the orchestrator
closes, which happens both at the regular end of a run and when the orchestrator dies.

The image `host` is empty: this machine's own system and Python environment are mounted into it,
read-only, so that nothing has to be built. Any other image must hold the same programs (see the
Dockerfile).

A node may also be a *sandbox* (`docker_sandboxes`): its container then only holds the network, and
each program is a separate container that joins this network.
"""

import io
import json
import os
import secrets
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import docker
import psutil
import requests

from testbed.control.codec import encode
from testbed.control.stream import ControlSocket
from testbed.core.errors import InputError, RunError
from testbed.core.node import NodeId
from testbed.core.signals import exit_status
from testbed.network.fabric import sockets_in, unshape
from testbed.network.injector import Injector
from testbed.network.shaping import Shape
from testbed.runtimes import (
    PROCESSES,
    Ended,
    Exit,
    Module,
    NodeSpec,
    Sandbox,
    World,
    WorldLost,
    before_it_connected,
    listen_control,
)
from testbed.runtimes.docker_sandboxes import (
    MARK_LABEL,
    PROGRAM_LABEL,
    DockerSandboxes,
    Gate,
    check_program,
    remove_container,
    user_of,
)
from testbed.system import leftovers, linux
from testbed.system.leftovers import Leftover, running

LABEL = "uav-sfl-testbed.run"
HOST_IMAGE = "uav-sfl-testbed-host"
"""Tag of the empty image, which is created once and kept."""
NODE_LABEL = "uav-sfl-testbed.node"
SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"),
    *("/etc/alternatives", "/etc/ld.so.cache", "/etc/passwd", "/etc/group", "/etc/localtime"),
)
LOG = "/node.log"
NOBODY = 65_534
ALL_GPUS = docker.types.DeviceRequest(count=-1, capabilities=[["gpu"]])
MEMORY_SHARE = 0.75
"""Default memory limit of a node as a share of the machine's, so that an excess ends the node
only."""
REMOVAL_TIMEOUT_S = 60
END_TIMEOUT_S = 10


def start(
    nodes: Sequence[NodeSpec],
    shape: Shape,
    *,
    image: str = "host",
    readable: Sequence[Path] = (),
    writable: Sequence[Path] = (),
    cpus: float | None = None,
    memory_bytes: int | None = None,
) -> World:
    """Start a world of containers; see `testbed.runtimes.start`.

    Args:
        nodes: All nodes; the first is the base station.
        shape: Shape of the links.
        image: `host`, or the name of an image whose ``python3`` runs modules.
        readable: Files and folders that nodes may read, at the same paths.
        writable: Files and folders that nodes may write, at the same paths.
        cpus: Number of CPU cores that a node may use; None: the same as for this process.
        memory_bytes: Memory that a node may use; None: three quarters of the machine's.

    Raises:
        RunError: The process is not root, there is no daemon or no such image, or a step failed.
    """
    if os.geteuid() != 0:
        raise RunError(
            "docker runtime: attaching links to containers requires root; "
            "the namespace runtime does not"
        )
    linux.raise_open_files()
    run = secrets.token_hex(8)
    with ExitStack() as cleanup, _one_line():
        client = _connect(60, len(nodes) + 10)
        cleanup.callback(client.close)
        # A run does not fail by what another one has left.
        leftovers.remove(list(_dead_containers(client)))
        tag = image_of(client, image)
        cleanup.enter_context(_reaper(run))
        made = _Containers(run, image, tag, readable, writable, _limits(cpus, memory_bytes))
        sandboxes = {spec.node: spec.program for spec in nodes if isinstance(spec.program, Sandbox)}
        images = {sandbox.image for sandbox in sandboxes.values() if sandbox.image is not None}
        users = {image: user_of(client, image_of(client, image)) for image in images}
        for sandbox in sandboxes.values():
            if sandbox.image is not None:
                os.chown(sandbox.writable[0], users[sandbox.image], -1)
        gate = cleanup.enter_context(_gate(nodes[0].log.parent, images=bool(images)))
        # Created before `_news`, which reports the ends of programs.
        programs = DockerSandboxes(client, sandboxes, made.program, gate)
        news = _news(client, run, programs, cleanup)
        with ThreadPoolExecutor(8) as pool:
            containers = list(pool.map(partial(made.create, client), nodes))
            list(pool.map(lambda container: container.start(), containers))
        hint = "" if image == "host" else f"the image {image!r} must contain the testbed"
        logs = [spec.log for spec in nodes]
        sockets, injector = _wired(containers, logs, hint, shape, cleanup)
        names = [spec.node for spec in nodes]
        listeners = dict(zip(names, sockets, strict=True))
        by_node = dict(zip(names, containers, strict=True))
        programs.holders.update({node: by_node[node].id for node in sandboxes})

        def kill(node: NodeId) -> None:
            with _one_line():
                by_node[node].kill()

        world = World(injector, listeners, news, kill, cleanup.pop_all(), programs)
        world.hint = hint
        return world


@contextmanager
def _gate(folder: Path, *, images: bool) -> Iterator[Gate]:
    with (
        leftovers.temporary_folder("gate", within=str(folder)) as within,
        closing(Gate(within, images=images)) as gate,
    ):
        yield gate


def _limits(
    cpus: float | None, memory_bytes: int | None, processes: int = PROCESSES
) -> dict[str, Any]:
    """Resource limits of a container."""
    memory_bytes = memory_bytes or int(MEMORY_SHARE * psutil.virtual_memory().total)
    return {
        "network_mode": "none",
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "read_only": True,
        "tmpfs": {"/tmp": ""},
        "pids_limit": processes,
        "nano_cpus": round((cpus or len(os.sched_getaffinity(0))) * 1e9),
        "mem_limit": memory_bytes,
        "memswap_limit": memory_bytes,
        "log_config": {"Type": "none"},
    }


class _Containers:
    """Creates the containers of a run's nodes."""

    def __init__(
        self,
        run: str,
        image: str,
        tag: str,
        readable: Sequence[Path],
        writable: Sequence[Path],
        limits: dict[str, Any],
    ) -> None:
        if image == "host":
            readable = [*host_paths(), *readable]
        self._run = run
        self._python = sys.executable if image == "host" else "python3"
        self._tag = tag
        self._environment = _environment(image)
        self._user = NOBODY if all(map(_open_to_all, readable)) and not writable else 0
        self._mounts = {str(path): {"bind": str(path), "mode": "ro"} for path in readable}
        self._mounts |= {str(path): {"bind": str(path), "mode": "rw"} for path in writable}
        self._limits = limits

    def program(self, node: NodeId, sandbox: Sandbox, system: bool) -> dict[str, Any]:
        """Container options of a program in a sandbox, without network and command.

        Args:
            node: The node.
            sandbox: The sandbox of the node.
            system: Whether the program uses this machine's system, without limits.
        """
        own = sandbox.image is not None and not system
        asked = () if system else (sandbox.cpus, sandbox.memory_bytes, sandbox.processes)
        limits = _limits(*(asked or (None, None)))
        del limits["network_mode"]
        mounts, tag = self._mounts, self._tag
        if system:
            mounts = {str(path): {"bind": str(path), "mode": "ro"} for path in host_paths()}
            tag = HOST_IMAGE
        writable = {str(path): {"bind": str(path), "mode": "rw"} for path in sandbox.writable}
        # The writable folders belong to the user of this process.
        user = {} if own else {"user": "0:0"}
        return (
            limits
            | user
            | {
                "image": sandbox.image if own else tag,
                "labels": self._labels(node),
                "volumes": ({} if own else mounts) | writable,
            }
        )

    def _labels(self, node: NodeId) -> dict[str, str]:
        return {LABEL: self._run, NODE_LABEL: str(node), MARK_LABEL: leftovers.mark()}

    def create(self, client: docker.DockerClient, spec: NodeSpec) -> Any:
        """Create the container of a node without starting it."""
        if isinstance(spec.program, Sandbox):
            return self._hold(client, spec.node, spec.program)
        spec.log.touch()
        if self._user:
            os.chown(spec.log, self._user, self._user)
        argv = spec.program
        if isinstance(argv, Module):
            argv = argv.argv(self._python)
        # A mounted log file is kept in all cases when the container ends.
        log = {str(spec.log.resolve()): {"bind": LOG, "mode": "rw"}}
        return client.containers.create(
            self._tag,
            ["/bin/sh", "-c", f'exec "$@" >>{LOG} 2>&1', "sh", *argv],
            name=f"uav-sfl-{self._run}-{spec.node}",
            hostname=str(spec.node),
            labels=self._labels(spec.node),
            user=f"{self._user}:{self._user}",
            environment=self._environment | dict(spec.env),
            volumes=self._mounts | log,
            device_requests=[ALL_GPUS] if spec.gpu else None,
            **self._limits,
        )

    def _hold(self, client: docker.DockerClient, node: NodeId, sandbox: Sandbox) -> Any:
        """An idle container of this machine's system that holds the node's network."""
        names = (line.split() for line in sandbox.hosts.splitlines())
        return client.containers.create(
            image_of(client, "host"),
            ["/bin/sh", "-c", "exec sleep infinity"],
            name=f"uav-sfl-{self._run}-{node}",
            hostname=str(node),
            # Joining containers see the same host names.
            extra_hosts={name: address for address, name, *_ in names if name != "localhost"},
            dns=["127.0.0.1"],
            # The daemon disables IPv6 if it creates no network, but the fabric creates one.
            sysctls={f"net.ipv6.conf.{which}.disable_ipv6": "0" for which in ("all", "default")},
            labels=self._labels(node),
            user=f"{NOBODY}:{NOBODY}",
            environment=_environment("host"),
            volumes={str(path): {"bind": str(path), "mode": "ro"} for path in host_paths()},
            **self._limits,
        )


def _wired(
    containers: Sequence[Any], logs: Sequence[Path], hint: str, shape: Shape, cleanup: ExitStack
) -> tuple[list[socket.socket], Injector]:
    """Link running containers; returns a listening socket in each one, and the injector."""
    namespaces = []
    for container, log in zip(containers, logs, strict=True):
        namespaces.append(_namespace(container, log, hint))
        cleanup.callback(os.close, namespaces[-1])
    with ThreadPoolExecutor(1) as pool:
        # Entering a namespace affects only the calling thread, which then ends.
        sockets = pool.submit(_listen_in, namespaces).result()
    return sockets, _fabric(namespaces, shape, cleanup)


@contextmanager
def _one_line() -> Iterator[None]:
    try:
        yield
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        text = getattr(error, "explanation", None) or " ".join(str(error).split())
        if "could not select device driver" in text:
            text += "; a node on a GPU needs NVIDIA's container toolkit on this machine"
        raise RunError(f"docker runtime: {text}") from error


def why_unreachable(error: BaseException) -> str:
    """Why no daemon answers, in a few words: the error of the system if there is one."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return " ".join(str(error).split())


def image_of(client: docker.DockerClient, image: str) -> str:
    """The tag of an image by its name in a scenario; creates the empty image if it is missing.

    Raises:
        RunError: The image does not exist.
    """
    try:
        client.images.get(HOST_IMAGE if image == "host" else image)
    except docker.errors.ImageNotFound:
        if image != "host":
            raise RunError(
                f"docker runtime: there is no image {image!r}; build it: docker build -t {image} ."
            ) from None
        archive = io.BytesIO()
        tarfile.open(fileobj=archive, mode="w").close()
        client.api.import_image_from_data(archive.getvalue(), repository=HOST_IMAGE, tag="latest")
    return HOST_IMAGE if image == "host" else image


def check_image(image: str, program: str | None) -> None:
    """Check before the start that an image exists and has a program.

    Raises:
        InputError: The image or the program is missing.
        RunError: There is no answer from a Docker daemon.
    """
    with _one_line(), closing(_connect(REMOVAL_TIMEOUT_S)) as client:
        try:
            client.images.get(image)
        except docker.errors.ImageNotFound:
            raise InputError(f"there is no image {image!r} here") from None
        if program is not None:
            check_program(client, image, program)


def cores() -> int:
    """The number of CPUs of the daemon's machine, which no container may exceed.

    Raises:
        RunError: There is no answer from a Docker daemon.
    """
    with _one_line(), closing(_connect(REMOVAL_TIMEOUT_S)) as client:
        return int(client.info()["NCPU"])


def identities(images: Collection[str]) -> dict[str, Any]:
    """What identifies the daemon and these images: version, and digests by the names of the images.

    Raises:
        RunError: There is no answer from a Docker daemon.
    """
    with _one_line(), closing(_connect(REMOVAL_TIMEOUT_S)) as client:
        found = {}
        for name in sorted(images):
            with suppress(docker.errors.ImageNotFound):
                image = client.images.get(name)
                found[name] = {"id": image.id, "digests": image.attrs.get("RepoDigests") or []}
        return {"daemon": client.version()["Version"], "images": found}


def host_paths() -> list[Path]:
    """Paths of this machine that a node needs: system, interpreter, packages, and this project."""
    sources = Path(__file__).parents[2]
    wanted = [*map(Path, SYSTEM), Path(sys.base_prefix), Path(sys.prefix), sources]
    wanted += [Path(entry) for entry in sys.path if entry]
    kept: list[Path] = []
    for path in wanted:
        if path.exists() and not any(path.is_relative_to(other) for other in kept):
            kept.append(path)
    return kept


def _open_to_all(path: Path) -> bool:
    """Whether every user may read a path that is mounted into a container."""
    wanted = 0o005 if path.is_dir() else 0o004
    return path.stat().st_mode & wanted == wanted


def _environment(image: str) -> dict[str, str]:
    if image != "host":
        return {"HOME": "/tmp"}
    sources = str(Path(__file__).parents[2])
    return {"HOME": "/tmp", "PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": sources}


def _namespace(container: Any, log: Path, hint: str) -> int:
    container.reload()
    state = container.attrs["State"]
    with suppress(FileNotFoundError):
        if state["Running"]:
            return linux.open_network_namespace(state["Pid"])
    # The daemon may not know the exit status yet.
    status = container.wait(timeout=END_TIMEOUT_S)["StatusCode"]
    ended = _exit(container.labels[NODE_LABEL], status)
    raise RunError(f"docker runtime: {before_it_connected(ended, log, hint)}")


def _exit(name: str, code: int) -> Exit:
    """Convert Docker's exit code, which is 128 plus the number of a signal."""
    return Exit(NodeId.parse(name), exit_status(code))


def _listen_in(namespaces: Sequence[int]) -> list[socket.socket]:
    listeners = []
    for namespace in namespaces:
        linux.enter(namespace)
        listeners.append(listen_control())
    return listeners


def _fabric(namespaces: Sequence[int], shape: Shape, cleanup: ExitStack) -> Injector:
    """Start the fabric process; it ends when its control socket closes."""
    ours, theirs = socket.socketpair()
    with theirs:
        passed = [theirs.fileno(), *namespaces]
        process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "testbed.network.injector"),
                *(json.dumps(vars(shape)), *map(str, passed)),
            ],
            pass_fds=passed,
            stdin=subprocess.DEVNULL,
            stdout=2,
            start_new_session=True,
            env=leftovers.marked(),
        )
    cleanup.callback(_end, process, namespaces)
    cleanup.callback(ours.close)
    injector = Injector(ours)
    injector.await_wired()
    return injector


def _end(process: "subprocess.Popen[bytes]", namespaces: Sequence[int]) -> None:
    """Wait for the fabric process, which drops queued frames; drop them here if it was killed."""
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:  # The process may have been stopped by a signal.
        process.kill()
        process.wait()
    if process.returncode:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: unshape(sockets_in(namespaces))).result()


def _news(
    client: docker.DockerClient, run: str, programs: DockerSandboxes, cleanup: ExitStack
) -> ControlSocket:
    """Start to report containers that end."""
    ours, theirs = socket.socketpair()
    filters = {"label": f"{LABEL}={run}", "event": "die"}
    events = client.events(filters=filters, decode=True)

    def follow() -> None:
        with theirs, suppress(RunError):
            news = ControlSocket(theirs)
            # Any end of the event stream means that the daemon or this process is ending.
            with suppress(Exception):
                for event in events:
                    facts = event["Actor"]["Attributes"]
                    ended = _exit(facts[NODE_LABEL], int(facts["exitCode"]))
                    if ended.status:
                        ended = replace(ended, out_of_memory=_ran_out(client, event["id"]))
                    if PROGRAM_LABEL not in facts:
                        news.send(*encode(ended))
                        continue
                    number = int(facts[PROGRAM_LABEL])
                    programs.finish(number)
                    news.send(*encode(Ended(number, ended.status, ended.out_of_memory)))
            news.send(*encode(WorldLost("docker runtime: the daemon has ended")))

    threading.Thread(target=follow, daemon=True).start()
    cleanup.callback(ours.close)
    cleanup.callback(events.close)
    return ControlSocket(ours)


def _ran_out(client: docker.DockerClient, container: str) -> bool:
    """Whether the kernel ended a process of a container because of the container's limit."""
    # It may have been removed.
    with suppress(docker.errors.DockerException, requests.RequestException):
        return bool(client.api.inspect_container(container)["State"]["OOMKilled"])
    return False


@contextmanager
def _reaper(run: str) -> Iterator[None]:
    """A process that removes the run's containers when the context or this process ends."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__, run],
        stdin=subprocess.PIPE,
        stdout=2,
        start_new_session=True,
        env=leftovers.marked(),
    )
    try:
        yield
    finally:
        try:
            process.communicate(b"in order", REMOVAL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.returncode:
            _remove_in_its_place(run)


def _remove_in_its_place(run: str) -> None:
    """Remove the containers instead of the reaper, which failed because it or the daemon ended."""
    try:
        with _one_line(), closing(_connect(REMOVAL_TIMEOUT_S)) as client:
            _remove_all(client, run)
    except RunError as error:
        raise RunError(
            f"{error}; its containers could not be removed: run `testbed clean` when it is back"
        ) from None


def _reap(run: str) -> None:
    linux.keep_capabilities()
    in_order = sys.stdin.buffer.read()
    with _one_line(), closing(_connect(REMOVAL_TIMEOUT_S)) as client:
        _remove_all(client, run)
        if not in_order:
            # The daemon may have been creating another container.
            time.sleep(2)
            _remove_all(client, run)


def _connect(timeout_s: int, connections: int = 10) -> docker.DockerClient:
    try:
        return docker.from_env(timeout=timeout_s, max_pool_size=connections)
    except docker.errors.DockerException as error:
        address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
        raise docker.errors.DockerException(
            f"no daemon answers at {address} ({why_unreachable(error)}); start Docker, or use "
            "emulation.runtime=namespace"
        ) from error


def _remove_all(client: docker.DockerClient, run: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(remove_container, _containers(client, label=f"{LABEL}={run}")))


def _containers(client: docker.DockerClient, **filters: Any) -> list[Any]:
    # `ignore_removed`: a container may be removed between listing and inspection.
    return list(client.containers.list(all=True, filters=filters, ignore_removed=True))


# Leftovers of dead runs.


def find_leftovers() -> list[Leftover]:
    """Containers of dead runs.

    Raises:
        RunError: There is no answer from a Docker daemon, or access is denied.
    """
    with _one_line(), closing(_connect(5)) as client:
        return list(_dead_containers(client))


def find_image() -> list[Leftover]:
    """The image `host`, if it exists and no emulation is running that may need it.

    Containers of a run in another network namespace, which cannot be seen, may still use it.

    Raises:
        RunError: See `find_leftovers`.
    """
    with _one_line(), closing(_connect(5)) as client:
        if running() or not client.images.list(HOST_IMAGE):
            return []
        used = any(map(_lives, _containers(client, ancestor=HOST_IMAGE)))
    return [] if used else [Leftover(f"image {HOST_IMAGE}", _remove_image)]


def _lives(container: Any) -> bool:
    """Whether the container does not belong to a dead run."""
    return leftovers.alive(container.labels.get(MARK_LABEL, ""))


def _dead_containers(client: docker.DockerClient) -> Iterator[Leftover]:
    for container in _containers(client, label=MARK_LABEL):
        if not _lives(container):
            yield Leftover(f"container {container.name}", partial(_remove_by_id, container.id))


def _remove_by_id(identity: str) -> None:
    with _connected() as client, suppress(docker.errors.NotFound):
        remove_container(client.containers.get(identity))


def _remove_image() -> None:
    with _connected() as client, suppress(docker.errors.ImageNotFound):
        client.images.remove(HOST_IMAGE)


@contextmanager
def _connected() -> Iterator[docker.DockerClient]:
    """A client for one operation; its errors become `OSError`."""
    try:
        with closing(_connect(REMOVAL_TIMEOUT_S)) as client:
            yield client
    except docker.errors.DockerException as error:
        raise OSError(getattr(error, "explanation", None) or str(error)) from None


if __name__ == "__main__":
    try:
        _reap(sys.argv[1])
    except RunError:
        sys.exit(1)  # The orchestrator then tries itself, and reports the error.
