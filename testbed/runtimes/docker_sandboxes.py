# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Programs of sandboxes as separate Docker containers, which join a node's network.

A program's standard files belong to the orchestrator: two threads copy bytes between them and the
container, one per direction. The end of a container is reported after all its output has been
copied.
"""

import io
import os
import shutil
import struct
import subprocess
import tarfile
import threading
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import docker
import requests

from testbed.core.errors import InputError, RunError
from testbed.core.node import NodeId
from testbed.runtimes import EPOCH, Command, Sandbox
from testbed.system import leftovers
from testbed.system.files import mode_of

MARK_LABEL = "uav-sfl-testbed.mark"
"""Label of every container: see `testbed.system.leftovers`."""
PROGRAM_LABEL = "uav-sfl-testbed.program"
"""Label with the number of a program's container."""
OWN_SYSTEM = ("/proc", "/sys", "/dev")
"""Folders that each container has separately from the host."""
PROGRAMS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin")
"""Folders of this machine's programs."""
GATE = "/.testbed"
"""Folder of the gate in containers."""
WAIT = f': <{GATE}/gate; read -r {EPOCH} <{GATE}/epoch; export {EPOCH}; exec "$@"'
"""What the shell does before it becomes the program."""
CHUNK = 1 << 16
GONE_S = 30
"""Seconds in which a container must be gone that another process is removing."""
CONFLICT = 409
"""HTTP status of the daemon for a container that is already being removed."""
CARRIED_S = 10
"""Seconds that copying the rest of a program's output may take after its end."""
_HEADER = struct.Struct(">BxxxI")
"""Header of Docker's output stream: standard file and number of bytes."""
_Carrier = tuple[Any, threading.Thread]


class DockerSandboxes:
    """Starts programs in the nodes of a run of containers.

    Args:
        client: Client of the daemon.
        sandboxes: The sandbox of each node.
        options: Container options by node, sandbox, and whether to use this machine's system.
        gate: Where held programs wait.
    """

    def __init__(
        self,
        client: docker.DockerClient,
        sandboxes: Mapping[NodeId, Sandbox],
        options: Callable[[NodeId, Sandbox, bool], dict[str, Any]],
        gate: "Gate",
    ) -> None:
        self._client = client
        self._sandboxes = sandboxes
        self.holders: dict[NodeId, str] = {}
        """ID of the container that holds the network of each node."""
        self._options = options
        self._gate = gate
        self._lock = threading.Lock()
        self._last = 0
        self._programs: dict[int, Any] = {}
        self._carriers: dict[int, _Carrier] = {}

    def spawn(self, command: Command, files: tuple[int, int, int]) -> int:
        """See `World.spawn`."""
        with self._lock:
            self._last += 1
            number = self._last
        sandbox = self._sandboxes[command.node]
        options = self._options(command.node, sandbox, command.system)
        options["labels"] = options["labels"] | {PROGRAM_LABEL: str(number)}
        if command.system or sandbox.image is None:
            options["working_dir"] = str(command.folder)
            shown = [path for path in command.shown if mode_of(path) and not _is_own(path)]
            mounts = {str(path): {"bind": str(path), "mode": "ro"} for path in shown}
            options["volumes"] = mounts | options["volumes"] | self._gate.plain_programs
        argv = list(command.argv)
        if command.held:
            argv = [*self._gate.words(own_system=sandbox.image is not None), *argv]
            options["volumes"] = options["volumes"] | self._gate.mount
        try:
            container = self._client.containers.create(
                entrypoint=argv[:1],
                command=argv[1:],
                environment=dict(command.env),
                network_mode=f"container:{self.holders[command.node]}",
                stdin_open=True,
                tty=command.terminal,
                **options,
            )
            self._carry(number, container, files, command.terminal)
            self._programs[number] = container
            container.start()
        except (docker.errors.DockerException, requests.RequestException, OSError) as error:
            self._programs.pop(number, None)
            text = getattr(error, "explanation", None) or " ".join(str(error).split())
            if "executable file not found" in text or "no such file or directory" in text:
                raise InputError(
                    f"command: {command.node}'s image has no program {command.argv[0]!r}"
                ) from None
            raise RunError(f"docker runtime: {text}") from None
        return number

    def release(self, epoch_ns: int) -> None:
        """See `World.release`."""
        self._gate.open(epoch_ns)

    def signal(self, number: int, signal_: int) -> None:
        """See `World.signal`."""
        if (container := self._programs.get(number)) is not None:
            # The program may just have ended.
            with suppress(docker.errors.DockerException, requests.RequestException):
                container.kill(signal_)

    def finish(self, number: int) -> None:
        """Wait until all output of a program has been copied, and remove its container."""
        container = self._programs.pop(number, None)
        if (carrier := self._carriers.pop(number, None)) is not None:
            stream, thread = carrier
            thread.join(CARRIED_S)
            with suppress(OSError):
                stream.close()
        if container is not None:
            # The end of the session may remove it at the same time.
            with suppress(docker.errors.DockerException, requests.RequestException):
                container.remove(force=True, v=True)

    def _carry(
        self, number: int, container: Any, files: tuple[int, int, int], terminal: bool
    ) -> None:
        """Attach a container that has not started to a program's files."""
        attach = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        stream = container.attach_socket(params=attach)
        sock = getattr(stream, "_sock", stream)
        read_from, *write_to = (os.dup(descriptor) for descriptor in files)
        if terminal:
            tty.setraw(read_from)  # Line editing and echo are done by the container's terminal.
        threading.Thread(target=_feed, args=(sock, read_from), daemon=True).start()
        out = threading.Thread(
            target=_drain, args=(stream, (write_to[0], *write_to), terminal), daemon=True
        )
        out.start()
        self._carriers[number] = stream, out


class Gate:
    """Where programs wait in their containers until all of them are started at once.

    Docker starts one container after the other, each in a tenth of a second or more. A container
    therefore begins with a shell that opens a named pipe, which blocks until `open` opens its other
    end, and then executes the program. Images without a shell get a copy of this machine's.

    Args:
        folder: An empty folder for the pipe and for copies, which the daemon can mount.
        images: Whether programs run in images of others.
    """

    def __init__(self, folder: Path, *, images: bool) -> None:
        self.mount = {str(folder): {"bind": GATE, "mode": "ro"}}
        """Mount of the folder, as an option of containers."""
        self.plain_programs = _copied_programs(folder)
        """Mounts of copies of this machine's programs, as an option of containers."""
        self._folder = folder
        self._shell = _copied_shell(folder) if images else []
        os.mkfifo(folder / "gate")
        folder.chmod(0o755)
        self._opened: int | None = None

    def words(self, *, own_system: bool) -> list[str]:
        """The words before a program and its arguments that let it wait.

        Args:
            own_system: Whether the container has the system of an image instead of this machine's.
        """
        return [*(self._shell if own_system else ["/bin/sh"]), "-c", WAIT, "sh"]

    def open(self, epoch_ns: int) -> None:
        """Let the programs start, and all later ones; `epoch_ns` is the value of `EPOCH`."""
        fresh = self._folder / "fresh"
        fresh.write_text(f"{epoch_ns}\n")
        fresh.rename(self._folder / "epoch")
        # Stays open: a container may be about to open it.
        self._opened = os.open(self._folder / "gate", os.O_RDWR | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the pipe."""
        if self._opened is not None:
            os.close(self._opened)
            self._opened = None


def _copied_programs(folder: Path) -> dict[str, dict[str, str]]:
    """Copy programs of this machine that ask for capabilities, such as `ping`, and mount the copies
    in their place. The kernel refuses to execute a file that asks for what a container cannot have,
    even if the program works without it, as `ping` does."""
    mounts, copies = {}, folder / "programs"
    copies.mkdir()
    for place in PROGRAMS:
        for path in Path(place).iterdir() if Path(place).is_dir() else ():
            with suppress(OSError):
                os.getxattr(path, "security.capability")
                shutil.copyfile(path, copies / path.name)
                shutil.copymode(path, copies / path.name)
                mounts[str(copies / path.name)] = {"bind": str(path), "mode": "ro"}
    return mounts


def _copied_shell(folder: Path) -> list[str]:
    """Copy this machine's shell, with its libraries and their loader; returns the command that runs
    it in a container that has this folder at `GATE`."""
    shell = Path("/bin/sh").resolve()
    shutil.copy(shell, folder / "sh")
    listed = subprocess.run(["ldd", shell], capture_output=True, text=True).stdout
    loader = []
    for line in listed.splitlines():
        name, _, place = line.strip().partition(" => ")
        path = Path((place or name).rpartition(" (")[0])
        if path.is_absolute():
            shutil.copy(path, folder / path.name)
            if not place:
                loader = [f"{GATE}/{path.name}", "--library-path", GATE]
    return [*loader, f"{GATE}/sh"]


def _is_own(path: Path) -> bool:
    """Whether a path belongs to the container, even if this machine has the same path."""
    return path == Path("/") or any(map(path.is_relative_to, OWN_SYSTEM))


def _feed(sock: Any, read_from: int) -> None:
    with suppress(OSError):
        while data := os.read(read_from, CHUNK):
            sock.sendall(data)
    with suppress(OSError):
        sock.shutdown(1)
    os.close(read_from)


def _drain(stream: Any, write_to: Sequence[int], terminal: bool) -> None:
    """Copy output to the program's standard files: 1 or 2, where 0 means 1."""
    with suppress(OSError, ValueError):
        if terminal:
            while data := stream.read1(CHUNK) if hasattr(stream, "read1") else stream.read(CHUNK):
                _write(write_to[0], data)
        while not terminal and (head := _exactly(stream, _HEADER.size)):
            which, size = _HEADER.unpack(head)
            _write(write_to[which], _exactly(stream, size))
    for descriptor in set(write_to):
        os.close(descriptor)


def _exactly(stream: Any, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = stream.read(size - len(data))
        if not more:
            return b""
        data += more
    return data


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def check_program(client: docker.DockerClient, image: str, program: str) -> None:
    """Check that an image has a program.

    Raises:
        InputError: The program is missing.
    """
    with _of_image(client, image) as container:
        places = [program]
        if "/" not in program:
            env = dict(pair.partition("=")[::2] for pair in container.attrs["Config"]["Env"] or [])
            path = env.get("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            places = [f"{folder}/{program}" for folder in path.split(":")]
        if not any(_is_there(container, place) for place in places):
            raise InputError(f"image {image!r} has no program {program!r}")


def user_of(client: docker.DockerClient, image: str) -> int:
    """The numeric ID of the user who runs an image's programs.

    Raises:
        RunError: The image has no user of that name.
    """
    user = (client.images.get(image).attrs["Config"]["User"] or "0").partition(":")[0]
    if user.isdecimal():
        return int(user)
    with _of_image(client, image) as container, suppress(docker.errors.NotFound):
        data, _ = container.get_archive("/etc/passwd")
        with tarfile.open(fileobj=io.BytesIO(b"".join(data))) as tar:
            (passwd,) = (tar.extractfile(member) for member in tar)
            assert passwd is not None
            for line in passwd.read().decode().splitlines():
                if line.startswith(f"{user}:"):
                    return int(line.split(":")[2])
    raise RunError(f"docker runtime: image {image!r} has no user {user!r}")


@contextmanager
def _of_image(client: docker.DockerClient, image: str) -> Iterator[Any]:
    """A container of an image that is never started, to inspect its files."""
    mark = {MARK_LABEL: leftovers.mark()}
    container = client.containers.create(image, entrypoint=["true"], labels=mark)
    try:
        yield container
    finally:
        remove_container(container)


def remove_container(container: Any) -> None:
    """Remove a container, running or not; returns when it is gone, even if another process removes
    it.

    Two processes often remove one: the reaper of a killed run, and the runs that start meanwhile.

    Raises:
        docker.errors.APIError: It is still there after `GONE_S`, or the daemon refuses.
    """
    deadline = time.monotonic() + GONE_S
    while True:
        try:
            container.remove(force=True, v=True)
            return
        except docker.errors.NotFound:
            return
        except docker.errors.APIError as error:
            if error.status_code != CONFLICT or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _is_there(container: Any, path: str) -> bool:
    try:
        data, _ = container.get_archive(path)
    except docker.errors.NotFound:
        return False
    for _ in data:
        break
    return True
