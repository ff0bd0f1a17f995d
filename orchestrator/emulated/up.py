# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A session from its folder's beginning to its manifest: what `testbed up` does."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ns3_scenarios.trace import ChannelSource
from orchestrator.analysis.error_budget import calibration_summary
from orchestrator.emulated.network import Hosts, check_machine
from orchestrator.emulated.programs import Program, check_nodes
from orchestrator.emulated.session import End, Session, Settings, opened
from orchestrator.emulated.session_request import check_scenario
from orchestrator.emulated.validity import session_validity, to_json
from orchestrator.emulated.visits import SOCKET, runs_in
from orchestrator.records.directory import MANIFEST, SCENARIO, object_in
from orchestrator.records.emulation import Check
from orchestrator.records.manifest import manifest, now
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.node import NodeId
from testbed.core.progress import Progress, silent
from testbed.system import inside
from testbed.system.files import check_no_link, write_json


@dataclass
class Outcome:
    """What came of a session."""

    ended: End
    programs: list[Program]
    """Those that were given, in the order of their nodes."""
    counting: list[Program]
    """Those of them that its success depends on."""
    checks: list[Check] = field(default_factory=list)

    @property
    def succeeded(self) -> bool:
        """Whether all that count ended with status 0 by themselves."""
        return all(p.returncode == 0 and not p.stopped for p in self.counting)


def check_playable(scenario: Scenario, hosts: Hosts | None = None) -> None:
    """Refuse what a session cannot do, here or on several machines.

    Raises:
        InputError: Names the field.
    """
    check_machine(scenario, hosts)
    if scenario.emulation.clock == "virtual" and inside.guest_settings() is None:
        raise InputError("emulation.clock: 'virtual' is for `testbed up`; here it must be 'real'")
    check_scenario(scenario)
    check_nodes(scenario)
    if hosts is None:
        return
    for name, programs in scenario.nodes.items():
        if programs.writable:
            raise InputError(
                f"nodes.{name}.writable: must be empty where nodes are on several machines: what "
                "programs leave in their home is brought here"
            )


@contextmanager
def held(
    scenario: Scenario,
    source: ChannelSource,
    out: Path,
    settings: Settings,
    *,
    overwrite: bool = False,
    hosts: Hosts | None = None,
) -> Iterator[tuple[Session, dict[str, Any]]]:
    """A session in a folder of its own, and its manifest, written when the context ends.

    Raises:
        InputError: The scenario cannot be played, or the folder is taken.
        RunError: The session failed; what it left is in the folder.
    """
    check_playable(scenario, hosts)
    if hosts is not None and settings.capture:
        raise InputError("`capture`: links between machines are not captured")
    dilation = scenario.emulation.dilation
    channel = Channel.of(source)
    resolved = scenario.resolved(1.0 if dilation == "auto" else dilation)
    # What is replayed has its own: whoever reads the session counts in these.
    resolved = resolved.model_copy(update={"slot_s": channel.slot_s})
    about = manifest(resolved, "whatever the nodes' programs bring")
    about |= {"kind": "session", "downlink": settings.downlink}
    earlier = _claim(out, overwrite)
    session = None
    try:
        with opened(resolved, channel, out, settings, hosts) as session:
            write_json(out / SCENARIO, resolved.model_dump(mode="json"))
            if session.calibration is not None:
                session.calibration.to_parquet(out / "calibration.parquet", index=False)
                short = calibration_summary(session.calibration)
                about["calibration"] = short.to_dict("records")
            write_json(out / MANIFEST, about | {"status": "running"})
            if earlier is not None:
                shutil.rmtree(earlier, ignore_errors=True)
            yield session, about
        about["status"] = "complete"
        checks = session_validity(session)
        about["valid"] = all(check.ok for check in checks)
        about["validity"] = to_json(checks)
    except BaseException as error:
        about["failure"] = str(error) or type(error).__name__
        raise
    finally:
        if session is None:
            _clear(out)
            if earlier is not None:
                _move(earlier, out)
                earlier.rmdir()
            with suppress(OSError):  # It holds that, or a host's socket.
                out.rmdir()
        else:
            if hosts is not None:
                about["hosts"] = hosts.to_json(session.calibration)
            _finish(out, session, channel, about)


def play(
    scenario: Scenario,
    source: ChannelSource,
    out: Path,
    commands: Mapping[NodeId, Sequence[str]],
    settings: Settings,
    *,
    seconds: float | None = None,
    until: Sequence[NodeId] = (),
    overwrite: bool = False,
    progress: Progress = silent,
    began: Callable[[Session], Any] = nullcontext,
    hosts: Hosts | None = None,
) -> Outcome:
    """Play a session with these commands in its nodes.

    Args:
        scenario: What the network is like.
        source: Its channel.
        out: The folder to make.
        commands: Programs and their arguments, by node.
        settings: How it is played.
        seconds: Emulated seconds that it lasts at most.
        until: Nodes whose commands end it, and decide on its success; none: all that have one.
        overwrite: Whether `out` may hold an earlier session.
        progress: Told how far it is.
        began: Given the session once commands run; what it answers is a context for as long as the
            session plays.
        hosts: Where nodes live; left out: here.

    Raises:
        InputError: Something does not fit; names it.
        RunError: The session failed.
    """
    place = held(scenario, source, out, settings, overwrite=overwrite, hosts=hosts)
    with place as (session, about):
        programs = [session.start(node, argv, given=True) for node, argv in commands.items()]
        counting = [p for p in programs if not until or p.node in until]
        with began(session):
            ended = session.play(seconds, counting, progress)
        about["ended"] = ended
        session.close(seconds if ended == "time" else None)
    checks = [Check(**check) for check in about["validity"]]
    return Outcome(ended, programs, counting, checks)


def _claim(out: Path, overwrite: bool) -> Path | None:
    """Make the folder, in place of an earlier session's where that may go.

    Returns:
        Where what was there is until the new session has begun; None if nothing was.

    Raises:
        InputError: It is taken, or cannot be made.
    """
    if runs_in(out):
        raise InputError(f"`out`: a session is running in {out}")
    check_no_link(out)
    # In virtual time, its host has put a socket there.
    if out.exists() and not (out.is_dir() and {p.name for p in out.iterdir()} <= {SOCKET}):
        is_session = object_in(out / MANIFEST).get("kind") == "session"
        if not (is_session and overwrite):
            remedy = "or pass `overwrite`" if is_session else "it holds no session"
            raise InputError(f"`out`: {out} exists already; choose another name, {remedy}")
        return _put_aside(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"`out`: {out} cannot be made ({error.strerror})") from None
    return None


def _put_aside(out: Path) -> Path:
    aside = out.with_name(f".{out.name}.earlier")
    try:
        aside.mkdir()
    except FileExistsError:
        raise InputError(
            f"`out`: {aside} is in the way, of an earlier session whose replacement was killed; "
            "move or remove it"
        ) from None
    except OSError as error:
        raise InputError(f"`out`: {aside} cannot be made ({error.strerror})") from None
    _move(out, aside)
    return aside


def _move(source: Path, target: Path) -> None:
    """Move what is in a folder, but for its host's socket."""
    for path in [path for path in source.iterdir() if path.name != SOCKET]:
        path.rename(target / path.name)


def _clear(out: Path) -> None:
    """Remove what is in the folder, but for its host's socket."""
    for path in out.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != SOCKET:
            path.unlink()


def _finish(out: Path, session: Session, channel: Channel, about: dict[str, Any]) -> None:
    """Write what a session leaves beside its tables."""
    totals = session.recorder.totals
    about["finished"] = now()
    about["slots"] = totals.slots
    about["links"] = [
        {
            "client": client + 1,
            "direction": direction,
            "offered_bytes": float(totals.offered_bytes[client, way]),
            "carried_bytes": int(totals.carried_bytes[client, way]),
            "dropped_frames": int(totals.dropped_frames[client, way]),
        }
        for client in range(session.scenario.uavs.count)
        for way, direction in enumerate(("up", "down"))
    ]
    epoch_ns = session.epoch_ns
    about["programs"] = [
        {
            "node": str(program.node),
            "argv": program.args,
            "given": program.given,
            "start_s": (program.started_ns - epoch_ns) / 1e9 / session.scenario.dilation,
            "end_s": ((program.ended_ns or epoch_ns) - epoch_ns) / 1e9 / session.scenario.dilation,
            "status": program.returncode,
            "stopped": program.stopped,
        }
        for program in session.programs
    ]
    about["slot_0_unix_ns"] = epoch_ns + time.time_ns() - time.monotonic_ns()
    about["captured"] = None if session.network.captured is None else vars(session.network.captured)
    channel.now.save(out / "trace.npz")
    for home in (out / "nodes").iterdir():
        with suppress(OSError):  # It holds something.
            home.rmdir()
    write_json(out / MANIFEST, about)
