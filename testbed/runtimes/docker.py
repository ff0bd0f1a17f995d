"""Nodes as Docker containers without a network of their own; needs root and a Docker daemon.

A container has no capabilities, a read-only root, and limits. Its links are plugged in from
outside, through `/proc/PID/ns/net`, by the fabric process, which is no container but root's own.
A third process, the *reaper*, removes the run's containers, known by their label, as soon as a
pipe from the orchestrator closes: that is how a run is ended in order, and what happens when the
orchestrator dies by whatever cause.

The image `host` is empty: this machine's own system and Python environment are mounted into it,
read-only, so that nothing has to be built. Any other image must hold the same programs (see the
Dockerfile).
"""

import io
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import docker
import requests

from testbed import linux
from testbed.control import ControlSocket
from testbed.errors import RunError
from testbed.injector import Injector
from testbed.runtimes import Exit, Module, NodeSpec, World, listen_control
from testbed.shaping import Shape

LABEL = "uav-sfl-testbed.run"
HOST_IMAGE = "uav-sfl-testbed-host"
"""Made once and kept: it is empty."""
NODE_LABEL = "uav-sfl-testbed.node"
SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"),
    *("/etc/alternatives", "/etc/ld.so.cache", "/etc/passwd", "/etc/group", "/etc/localtime"),
)
LOG = "/node.log"
REMOVAL_TIMEOUT_S = 120


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
        nodes: The first is the base station.
        shape: How links treat frames.
        image: `host`, or the name of an image, whose own ``python3`` runs modules.
        readable: Files and folders that nodes may read, at the same place as here.
        writable: The same for writing.
        cpus: CPU cores that a node may use.
        memory_bytes: Memory that a node may use.

    Raises:
        RunError: Not root, no daemon, no such image, or a step failed.
    """
    if os.geteuid() != 0:
        raise RunError(
            "docker runtime: needs root, to plug links into containers; "
            "the namespace runtime does not"
        )
    linux.raise_open_files()
    run = secrets.token_hex(8)
    with ExitStack() as cleanup, _one_line():
        client = docker.from_env(timeout=60, max_pool_size=len(nodes) + 10)
        cleanup.callback(client.close)
        tag = _image(client, image)
        cleanup.enter_context(_reaper(run))
        if image == "host":
            readable = [*_host_paths(), *readable]
        mounts = {str(path): {"bind": str(path), "mode": "ro"} for path in readable}
        mounts |= {str(path): {"bind": str(path), "mode": "rw"} for path in writable}
        options: dict[str, Any] = {
            "network_mode": "none",
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
            "read_only": True,
            "tmpfs": {"/tmp": ""},
            "pids_limit": 1024,
            "nano_cpus": None if cpus is None else round(cpus * 1e9),
            "mem_limit": memory_bytes,
            "log_config": {"Type": "none"},
        }

        def create(node: NodeSpec) -> Any:
            node.log.touch()
            argv = node.program
            if isinstance(argv, Module):
                argv = argv.argv(sys.executable if image == "host" else "python3")
            # A log file that is mounted outlives the container, whatever ends it.
            log = {str(node.log.resolve()): {"bind": LOG, "mode": "rw"}}
            return client.containers.create(
                tag,
                ["/bin/sh", "-c", f'exec "$@" >>{LOG} 2>&1', "sh", *argv],
                name=f"uav-sfl-{run}-{node.name}",
                hostname=node.name,
                labels={LABEL: run, NODE_LABEL: node.name},
                environment=_environment(image) | dict(node.env),
                volumes=mounts | log,
                **options,
            )

        news = _news(client, run, cleanup)
        with ThreadPoolExecutor(8) as pool:
            containers = list(pool.map(create, nodes))
            list(pool.map(lambda container: container.start(), containers))
        with ExitStack() as opened, ThreadPoolExecutor(1) as pool:
            namespaces = []
            for container in containers:
                namespaces.append(_namespace(container))
                opened.callback(os.close, namespaces[-1])
            # Entering a namespace moves one thread only, which then ends.
            sockets = pool.submit(_listen_in, namespaces).result()
            injector = _fabric(namespaces, shape, cleanup)
        names = [node.name for node in nodes]
        listeners = dict(zip(names, sockets, strict=True))
        return World(injector, listeners, news, cleanup.pop_all())


@contextmanager
def _one_line() -> Iterator[None]:
    try:
        yield
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        text = getattr(error, "explanation", None) or " ".join(str(error).split())
        raise RunError(f"docker runtime: {text}") from error


def _image(client: docker.DockerClient, image: str) -> str:
    try:
        client.images.get(HOST_IMAGE if image == "host" else image)
    except docker.errors.ImageNotFound:
        if image != "host":
            raise RunError(
                f"docker runtime: there is no image {image!r}; make it: docker build -t {image} ."
            ) from None
        archive = io.BytesIO()
        tarfile.open(fileobj=archive, mode="w").close()
        client.api.import_image_from_data(archive.getvalue(), repository=HOST_IMAGE, tag="latest")
    return HOST_IMAGE if image == "host" else image


def _host_paths() -> list[Path]:
    """What a node needs of this machine: system, interpreter, packages, and these sources."""
    sources = Path(__file__).parents[2]
    wanted = [*map(Path, SYSTEM), Path(sys.base_prefix), Path(sys.prefix), sources]
    wanted += [Path(entry) for entry in sys.path if entry]
    kept: list[Path] = []
    for path in wanted:
        if path.exists() and not any(path.is_relative_to(other) for other in kept):
            kept.append(path)
    return kept


def _environment(image: str) -> dict[str, str]:
    if image != "host":
        return {"HOME": "/tmp"}
    sources = str(Path(__file__).parents[2])
    return {"HOME": "/tmp", "PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": sources}


def _namespace(container: Any) -> int:
    container.reload()
    state = container.attrs["State"]
    with suppress(FileNotFoundError):
        if state["Running"]:
            return linux.open_network_namespace(state["Pid"])
    container.reload()
    ended = _exit(container.labels[NODE_LABEL], container.attrs["State"]["ExitCode"])
    raise RunError(f"docker runtime: {ended} before it connected")


def _exit(name: str, code: int) -> Exit:
    """Docker adds 128 to the number of a signal."""
    return Exit(name, 128 - code if code - 128 in set(signal.Signals) else code)


def _listen_in(namespaces: Sequence[int]) -> list[socket.socket]:
    listeners = []
    for namespace in namespaces:
        linux.enter(namespace)
        listeners.append(listen_control())
    return listeners


def _fabric(namespaces: Sequence[int], shape: Shape, cleanup: ExitStack) -> Injector:
    """Start the fabric process, which ends when its control socket closes."""
    ours, theirs = socket.socketpair()
    with theirs:
        passed = [theirs.fileno(), *namespaces]
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "testbed.injector"),
                *(json.dumps(vars(shape)), *map(str, passed)),
            ],
            pass_fds=passed,
            stdin=subprocess.DEVNULL,
            stdout=2,
            start_new_session=True,
        )
    cleanup.callback(process.wait)
    cleanup.callback(ours.close)
    injector = Injector(ours)
    injector.await_wired()
    return injector


def _news(client: docker.DockerClient, run: str, cleanup: ExitStack) -> ControlSocket:
    """Tell of containers that end, from now on."""
    ours, theirs = socket.socketpair()
    filters = {"label": f"{LABEL}={run}", "event": "die"}
    events = client.events(filters=filters, decode=True)

    def follow() -> None:
        with theirs, suppress(RunError, OSError, requests.RequestException):
            news = ControlSocket(theirs)
            for event in events:
                facts = event["Actor"]["Attributes"]
                news.send({"exit": vars(_exit(facts[NODE_LABEL], int(facts["exitCode"])))})

    threading.Thread(target=follow, daemon=True).start()
    cleanup.callback(ours.close)
    cleanup.callback(events.close)
    return ControlSocket(ours)


@contextmanager
def _reaper(run: str) -> Iterator[None]:
    """A process that removes the run's containers when this context ends, or this process does."""
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, run],
        stdin=subprocess.PIPE,
        stdout=2,
        start_new_session=True,
    )
    try:
        yield
    finally:
        process.communicate(b"in order", REMOVAL_TIMEOUT_S)
        if process.returncode:
            raise RunError(
                f"docker runtime: containers with label {LABEL}={run} could not be removed"
            )


def _reap(run: str) -> None:
    in_order = sys.stdin.buffer.read()
    client = docker.from_env(timeout=REMOVAL_TIMEOUT_S)
    _remove_all(client, run)
    if not in_order:
        # The daemon may have been about to make one more.
        time.sleep(2)
        _remove_all(client, run)


def _remove_all(client: docker.DockerClient, run: str) -> None:
    def remove(container: Any) -> None:
        with suppress(docker.errors.NotFound):
            container.remove(force=True, v=True)

    # `ignore_removed`: between listing and looking, one may have gone.
    found = client.containers.list(
        all=True, filters={"label": f"{LABEL}={run}"}, ignore_removed=True
    )
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(remove, found))


if __name__ == "__main__":
    _reap(sys.argv[1])
