# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Programs in nodes: their environment, and a handle of a running program."""

import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from orchestrator.emulated.session_request import nodes_named
from orchestrator.scenario.schema import ALL_UAVS, Scenario
from testbed.core.errors import InputError, RunError
from testbed.core.node import BS, NodeId, uavs
from testbed.core.signals import signal_name
from testbed.network.fabric import (
    BS_ADDRESS,
    BS_ADDRESS_V6,
    link_address_v6,
    link_addresses,
)
from testbed.runtimes import EPOCH, OWN_FOLDERS, Command, World, passed_on
from testbed.system.files import mode_of

SOURCES = Path(__file__).resolve().parents[2]
"""Folder from which this process imports the testbed's own modules."""
OWN = frozenset(map(Path, OWN_FOLDERS))
SHELL_SIGNS = set("|&;<>()$`\\\"'*?[]#~=%{}!\n")


def check_nodes(scenario: Scenario) -> None:
    """Check that this runtime supports the section `nodes` of a scenario.

    Raises:
        InputError: A key is not supported; the message names it.
    """
    contained = scenario.emulation.runtime == "docker"
    for name, programs in scenario.nodes.items():
        for key in ("image", "cpus"):
            if getattr(programs, key) is not None and not contained:
                raise InputError(f"nodes.{name}.{key}: not supported by the namespace runtime")
        if programs.image is not None:
            _check_image(programs.image, None, f"nodes.{name}.image")
        if programs.cpus is not None:
            _check_cpus(programs.cpus, f"nodes.{name}.cpus")
        writable_of(programs.writable, f"nodes.{name}.writable")
    if contained and scenario.emulation.docker_image != "host":
        _check_image(scenario.emulation.docker_image, None, "emulation.docker_image")


def containers_of(scenario: Scenario) -> dict[str, Any] | None:
    """What identifies the Docker daemon and the images of a scenario; None without containers.

    Raises:
        RunError: There is no answer from a Docker daemon.
    """
    if scenario.emulation.runtime != "docker":
        return None
    from testbed.runtimes.docker import identities

    named = {programs.image or "host" for programs in scenario.nodes.values()}
    return identities((named | {scenario.emulation.docker_image}) - {"host"})


def exceeded_memory(scenario: Scenario, node: NodeId) -> str:
    """The memory limit that a program of a node has exceeded, in words."""
    limit_bytes = scenario.programs_of(node).memory_bytes
    key = f"nodes.{node}.memory_bytes"
    if limit_bytes is None:
        return f"it exceeded three quarters of this machine's memory; {key} sets another limit"
    own = getattr(scenario.nodes.get(str(node)), "memory_bytes", None)
    key = key if own is not None else f"nodes.{ALL_UAVS}.memory_bytes"
    return f"it exceeded its limit of {limit_bytes} bytes of memory ({key})"


def image_of(scenario: Scenario, node: NodeId) -> str | None:
    """The image in which a node's programs run; None: the file system of this machine."""
    emulation = scenario.emulation
    usual = emulation.docker_image if emulation.runtime == "docker" else "host"
    image: str = scenario.programs_of(node).image or usual
    return None if image == "host" else image


def _check_cpus(cpus: float, source: str) -> None:
    from testbed.runtimes.docker import cores

    if cpus > (most := cores()):
        raise InputError(
            f"{source}: must be at most {most}, the CPUs of this machine, not {cpus:g}"
        )


def _check_image(image: str, program: str | None, source: str) -> None:
    # Docker's package takes a while to import.
    from testbed.runtimes.docker import check_image

    try:
        check_image(image, program)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def writable_of(paths: Sequence[str], source: str) -> list[Path]:
    """The paths that a node may write in addition to its home, as absolute paths.

    Raises:
        InputError: A path does not exist, or is outside of the working directory.
    """
    found = []
    for given in paths:
        path = Path(given).resolve()
        if not path.is_relative_to(Path.cwd()):
            raise InputError(f"{source}: {given} is outside of the working directory {Path.cwd()}")
        if not path.exists():
            raise InputError(f"{source}: {given} does not exist")
        found.append(path)
    return found


def commands_of(
    scenario: Scenario, given: Mapping[str, str | Sequence[str]]
) -> dict[NodeId, list[str]]:
    """Programs and their arguments, by node.

    Args:
        scenario: Scenario with commands in `nodes`.
        given: Commands that replace them, by name; a UAV's own overrides that of `uav*`.

    Raises:
        InputError: There is no such node, or no such program.
    """
    found = {}
    for node in (BS, *uavs(scenario.uavs.count)):
        if (command := scenario.programs_of(node).command) is not None:
            found[node] = argv_of(command, f"nodes.{node}.command", image_of(scenario, node))
    for name in sorted(given, key=lambda name: name != ALL_UAVS):
        for node in nodes_named(name, scenario, "`node`"):
            found[node] = argv_of(given[name], f"`node` {name}", image_of(scenario, node))
    return dict(sorted(found.items()))


def argv_of(command: str | Sequence[str], source: str, image: str | None = None) -> list[str]:
    """A program and its arguments; a text is run by a shell.

    Args:
        command: Command to run.
        source: Origin of the command, for messages.
        image: Image with the programs. Default: this machine.

    Raises:
        InputError: There is no such program, or the command is empty.
    """
    words = [command] if isinstance(command, str) else list(command)
    if not words or not words[0].strip():
        raise InputError(f"{source}: is empty; it must be a program")
    if image is not None:
        _check_image(image, "sh" if isinstance(command, str) else words[0], source)
        return ["sh", "-c", command] if isinstance(command, str) else words
    if not isinstance(command, str):
        _check_program(words[0], source)
        return words
    # The first word of a shell command, where it can only be a program.
    first = command.split()[0]
    if not set(first) & SHELL_SIGNS:
        _check_program(first, source, shell=True)
    return ["sh", "-c", command]


def _check_program(name: str, source: str, shell: bool = False) -> None:
    if shutil.which(name) is None:
        if shell:
            known = subprocess.run(["sh", "-c", 'command -v "$1"', "sh", name], capture_output=True)
            if known.returncode == 0:
                return
        raise InputError(f"{source}: there is no program {name!r} here")


def hosts_of(scenario: Scenario) -> str:
    """The text of /etc/hosts in every node. IPv6 addresses have their own names: `ip6-bs`,
    `ip6-uav1`, …"""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost", f"{BS_ADDRESS} {BS}"]
    v6 = [f"{BS_ADDRESS_V6} ip6-{BS}"]
    for node in uavs(scenario.uavs.count):
        lines.append(f"{link_addresses(node.client)[1]} {node}")
        v6.append(f"{link_address_v6(node.client)} ip6-{node}")
    return "\n".join([*lines, *v6, ""])


def environment_of(
    node: NodeId, home: Path, epoch_ns: int | None, *, image: str | None = None, far: bool = False
) -> dict[str, str]:
    """Environment variables of a node's programs: this user's, except those that refer to this
    machine.

    In an image, the image's variables are used; on another host, that host adds its own. Without
    `epoch_ns`, which is not known yet, the runtime adds this variable.
    """
    own = passed_on() if image is None and not far else {}
    return own | {
        "HOME": str(home),
        "TMPDIR": "/tmp",
        "TESTBED_NODE": str(node),
        "TESTBED_BS": BS_ADDRESS,
        **({} if epoch_ns is None else {EPOCH: str(epoch_ns)}),
    }


def shown_to(argv: Sequence[str], env: Mapping[str, str], folder: Path) -> list[Path]:
    """The files that a program needs, and those in nodes' folders that its arguments name."""
    found = [folder, Path(sys.prefix), Path(sys.base_prefix), SOURCES]
    found += [Path(place) for place in env.get("PATH", "").split(os.pathsep)]
    words = (word for text in argv for word in _words(text) if word.startswith("/"))
    for path in (Path(os.path.normpath(word)) for word in words):
        if not OWN.isdisjoint(path.parents):
            # Files next to a program are likely to belong to it.
            alone = path.parent in OWN or stat.S_ISDIR(mode_of(path))
            found.append(path if alone else path.parent)
    return [path for path in dict.fromkeys(found) if path.is_absolute() and path not in OWN]


def _words(text: str) -> list[str]:
    try:
        return [part for word in shlex.split(text) for part in word.split("=")]
    except ValueError:
        return text.split()


class Program:
    """A program in a node, with the interface of `subprocess.Popen`."""

    def __init__(self, node: NodeId, argv: Sequence[str], given: bool):
        self.node = node
        self.args = list(argv)
        self.given = given
        """Whether its exit status decides on the success of the session."""
        self.number = 0
        self.returncode: int | None = None
        """Its exit status; the negative signal number where a signal ended it."""
        self.started_ns = time.monotonic_ns()
        self.ended_ns: int | None = None
        self.stdin: IO[Any] | None = None
        self.stdout: IO[Any] | None = None
        self.stderr: IO[Any] | None = None
        self.stopped = False
        """Whether it was ended by the end of the session."""
        self.exceeded = ""
        """The limit that it exceeded, for which it was ended."""
        self._done = threading.Event()
        self._world: World | None = None

    def start(self, world: World, command: Command, files: tuple[int, int, int]) -> None:
        """Start the program; see `World.spawn`."""
        self._world = world
        self.number = world.spawn(command, files)

    def over(self, status: int | None) -> None:
        """Record that the program has ended; None: with the world, and its status is unknown."""
        self.returncode = status
        self.ended_ns = time.monotonic_ns()
        self._done.set()

    def ended_before(self, moment_ns: int) -> bool:
        """Whether it ended by itself before this time of the monotonic clock."""
        return self.ended_ns is not None and self.ended_ns < moment_ns and not self.stopped

    def poll(self) -> int | None:
        """The exit status, or None while the program runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the program has ended.

        Returns:
            The exit status.

        Raises:
            subprocess.TimeoutExpired: The program still runs after `timeout` real seconds.
            RunError: The session failed meanwhile.
        """
        if not self._done.wait(timeout):
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        if self.returncode is None:
            raise RunError(f"the session failed while {self.node} ran {self.args[0]}")
        return self.returncode

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        """Send `input`, and read from pipes until the program has ended; as `Popen.communicate`."""
        found: dict[str, Any] = {}

        def read(name: str, stream: IO[Any]) -> None:
            with stream:
                found[name] = stream.read()

        streams = {"out": self.stdout, "err": self.stderr}
        readers = [
            threading.Thread(target=read, args=(name, stream), daemon=True)
            for name, stream in streams.items()
            if stream is not None
        ]
        for reader in readers:
            reader.start()
        if self.stdin is not None:
            # As with `Popen`, a program may end without reading its input.
            with suppress(BrokenPipeError), self.stdin:
                if input:
                    self.stdin.write(input)
        self.wait(timeout)
        for reader in readers:
            reader.join(timeout)
        return found.get("out"), found.get("err")

    def send_signal(self, number: int) -> None:
        """Send a signal to the program and its children; does nothing once it has ended."""
        if self.returncode is None and self._world is not None:
            self._world.signal(self.number, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def __str__(self) -> str:
        if self.ended_ns is None or self.returncode is None:
            return f"{self.node}: running"
        lasted = f"after {(self.ended_ns - self.started_ns) / 1e9:.1f} s"
        lasted += f": {self.exceeded}" if self.exceeded else ""
        if self.stopped:
            return f"{self.node}: still running {lasted}, stopped"
        if self.returncode < 0:
            return f"{self.node}: ended by {signal_name(-self.returncode)} {lasted}"
        return f"{self.node}: ended with status {self.returncode} {lasted}"
