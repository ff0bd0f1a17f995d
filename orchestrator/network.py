# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The class `tb.Network`: the emulated network for programs that are started from Python."""

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal

import pandas as pd

from orchestrator import api
from orchestrator.emulated.options import SessionOptions
from orchestrator.emulated.programs import Program, argv_of, commands_of, image_of
from orchestrator.emulated.session import Session
from orchestrator.emulated.session_request import nodes_named
from orchestrator.emulated.session_table import SCHEMA
from orchestrator.emulated.up import check_playable, held
from orchestrator.interface.given import Trace, channel_of, resolved
from orchestrator.records.emulation import Check
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError, RunError
from testbed.core.node import NodeId
from testbed.network.fabric import BS_ADDRESS, link_addresses
from testbed.system.leftovers import temporary_folder

KEYS = ["slot", "client", "direction"]
File = int | IO[Any] | None
"""A standard file as for `subprocess.Popen`: None, `PIPE`, `DEVNULL`, a file or its descriptor."""


class Network:
    """The emulated network of a scenario, as a context manager. The links follow the channel until
    the context is exited.

        with tb.Network("quickstart") as net:
            server = net["bs"].popen(["python3", "-m", "http.server", "8000"])
            net.run(10)
        print(net.valid, net.carried.groupby(["client", "direction"]).sum())

    When the context is entered, the commands in the scenario's section `nodes` are started; the
    attribute `programs` lists them. Programs that are still running when the context is exited are
    terminated.

    Args:
        scenario: A scenario, or the path or name of one, as for `load`.
        trace: Channel trace to replay. Default: ns-3 generates the channel of the scenario.
        out: Output folder, as with `testbed up`. Default: a temporary one.
        downlink: `dedicated`: each downlink has its share of W_D and P_S; `shared`: each transfer
            uses all of W_D and P_S, in the airtime that is not used by other transfers. Default:
            `shared` if the scheduler of the cell is `equal`, otherwise `dedicated`.
        capture: Whether to capture the packets on every link and write them to `out`.
        overwrite: Whether an earlier session in `out` is replaced.

    Raises:
        InputError: When the context is entered: an argument or a key is not valid. The message
            names it.
        RunError: When the context is entered: this machine cannot run the network.
    """

    def __init__(
        self,
        scenario: Scenario | str | Path,
        trace: Trace | None = None,
        *,
        out: str | Path | None = None,
        downlink: Literal["dedicated", "shared"] | None = None,
        capture: bool = False,
        overwrite: bool = False,
    ):
        self.scenario = resolved(scenario, None, None)
        self.programs: dict[str, Program] = {}
        """Programs of the scenario's commands, by node."""
        self._trace = trace
        self._out = None if out is None else Path(out)
        if capture and out is None:
            raise InputError("`capture`: needs `out`, where captures are kept")
        self._options = SessionOptions(
            downlink=downlink, capture=capture, keep_rows=True, overwrite=overwrite
        )
        self._session: Session | None = None
        self._about: dict[str, Any] = {}
        """The manifest, which is completed at the end."""
        self._cleanup = ExitStack()

    def __enter__(self) -> "Network":
        check_playable(self.scenario)
        commands = commands_of(self.scenario, {})
        with ExitStack() as cleanup:
            folder = self._out
            if folder is None:
                folder = cleanup.enter_context(temporary_folder("session")) / "out"
            source = cleanup.enter_context(channel_of(self.scenario, self._trace, by_slot=True))
            self._session, self._about = cleanup.enter_context(
                held(self.scenario, source, folder, self._options, commands)
            )
            self.programs = {str(p.node): p for p in self._session.programs if p.given}
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._about["ended"] = "context"
        self._cleanup.__exit__(kind, error, trace)
        if kind is None and self._out is not None:
            api.report_session(self._out)

    def __getitem__(self, name: str) -> "Node":
        """A node: `bs`, `uav1`, …

        Raises:
            InputError: There is no node of that name.
        """
        (node, *others) = nodes_named(name, self.scenario, "`node`")
        if others:
            raise InputError(f"`node`: {name} is more than one node")
        return Node(node, self._open())

    def run(self, seconds: float) -> Literal["time", "trace"]:
        """Wait for this number of emulated seconds; the first call starts slot 0.

        Returns:
            `time`; or `trace`, if the channel's trace ended before.

        Raises:
            RunError: The network failed, or has been closed.
        """
        session = self._open()
        ended = session.play(max(0.0, session.clock.now()) + seconds)
        assert ended in ("time", "trace")
        return "trace" if ended == "trace" else "time"

    @property
    def epoch_ns(self) -> int:
        """Start of slot 0, on `CLOCK_MONOTONIC`."""
        return self._begun().epoch_ns

    @property
    def rates(self) -> pd.DataFrame:
        """The rates of the links (`rate_bps`). One row per slot, client and direction (`up`,
        `down`).

        During the session it contains the complete slots so far; all slots after the context has
        ended.
        """
        return self._rows()[[*KEYS, "rate_bps"]]

    @property
    def carried(self) -> pd.DataFrame:
        """The bytes on the links (`offered_bytes`, `carried_bytes` and `queued_bytes`), with one
        row per slot, client and direction.

        Offered bytes are those that the slot's rate allows; queued bytes were waiting at the end of
        the slot.
        """
        return self._rows()[[*KEYS, "offered_bytes", "carried_bytes", "queued_bytes"]]

    @property
    def calibration(self) -> pd.DataFrame | None:
        """Calibration of the links before slot 0, one row per link and level; None if the scenario
        disables the calibration."""
        return self._begun().calibration

    @property
    def valid(self) -> bool | None:
        """Whether every check is within its limit; None until the context has been exited."""
        self._begun()
        return self._about.get("valid")

    @property
    def checks(self) -> pd.DataFrame:
        """Validity checks. One row per check, with the columns check, limit, value, ok and detail.

        It is empty until the context has been left.
        """
        self._begun()
        columns = [field.name for field in fields(Check)]
        return pd.DataFrame(self._about.get("validity", []), columns=columns)

    def _rows(self) -> pd.DataFrame:
        session = self._begun()
        if not session.over:
            session.count()
        rows = session.recorder.kept or [SCHEMA.empty_table().to_pandas()]
        return pd.concat(rows, ignore_index=True)

    def _begun(self) -> Session:
        if self._session is None:
            raise RunError(
                "the network is not up: use it as a context, `with tb.Network(…) as net`"
            )
        return self._session

    def _open(self) -> Session:
        if (session := self._begun()).over:
            raise RunError("the network has been closed: its context has been left")
        return session


@dataclass(frozen=True)
class Node:
    """A node of a `Network`."""

    id: NodeId
    _session: Session

    @property
    def home(self) -> Path:
        """The home folder of the node's programs."""
        return self._session.home(self.id)

    @property
    def address(self) -> str:
        """Its IPv4 address; the address of the base station is the same for all UAVs."""
        return BS_ADDRESS if self.id.is_bs else link_addresses(self.id.client)[1]

    def popen(
        self,
        args: str | Sequence[str],
        *,
        stdin: File = None,
        stdout: File = None,
        stderr: File = None,
        text: bool = False,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Program:
        """Start a program in the node, as `subprocess.Popen` starts one.

        Args:
            args: A program and its arguments, or a command line for a shell.
            stdin: Standard input. Default: empty.
            stdout: Standard output. Default: the node's log.
            stderr: Standard error. Default: the node's log; `STDOUT` is the same as `stdout`.
            text: Whether pipes carry text.
            cwd: Working directory. Default: that of this process.
            env: Variables in addition to those of the node.

        Raises:
            InputError: There is no such program.
            RunError: The network failed, or has been closed.
        """
        argv = argv_of(args, "`args`", image_of(self._session.scenario, self.id))
        pipes: dict[str, IO[Any]] = {}
        with ExitStack() as opened, self._log() as log:

            def child_end(name: str, given: File, other: Callable[[], int]) -> int:
                if given is None:
                    return other()
                if given == subprocess.PIPE:
                    read, write = os.pipe()
                    ours, end = (write, read) if name == "stdin" else (read, write)
                    mode = ("w" if name == "stdin" else "r") + "b" * (not text)
                    opened.callback(os.close, end)
                    pipes[name] = open(ours, mode)  # noqa: PTH123, SIM115
                    return end
                if given == subprocess.DEVNULL:
                    return opened.enter_context(Path(os.devnull).open("r+b")).fileno()
                return given if isinstance(given, int) else given.fileno()

            nothing = opened.enter_context(Path(os.devnull).open("rb"))
            read_from = child_end("stdin", stdin, nothing.fileno)
            out = child_end("stdout", stdout, log.fileno)
            same = stderr == subprocess.STDOUT
            errors = out if same else child_end("stderr", stderr, log.fileno)
            program = self._session.start(
                self.id,
                argv,
                (read_from, out, errors),
                env=env,
                folder=None if cwd is None else Path(cwd).resolve(),
            )
        for name, stream in pipes.items():
            setattr(program, name, stream)
        return program

    def run(
        self, args: str | Sequence[str], *, timeout: float | None = None, text: bool = True
    ) -> "subprocess.CompletedProcess[Any]":
        """Run a program to its end, as `subprocess.run` does, and return its output.

        Raises:
            subprocess.TimeoutExpired: The program has been killed after `timeout` real seconds.
        """
        kinds: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": text}
        program = self.popen(args, **kinds)
        try:
            out, errors = program.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            program.kill()
            raise
        return subprocess.CompletedProcess(program.args, program.returncode or 0, out, errors)

    def _log(self) -> IO[bytes]:
        return (self._session.folder / "logs" / f"{self.id}.log").open("ab")
