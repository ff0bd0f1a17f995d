# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The command `testbed up`: a session from the creation of its folder to its manifest."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ns3_scenarios.trace import ChannelSource
from orchestrator.analysis.error_budget import calibration_summary
from orchestrator.analysis.radio_log import RadioLog, cells, handovers, read_log
from orchestrator.emulated.network import Hosts, check_machine
from orchestrator.emulated.options import SessionOptions
from orchestrator.emulated.programs import Program, check_nodes, containers_of
from orchestrator.emulated.radio_air import LOG
from orchestrator.emulated.session import End, Session, opened
from orchestrator.emulated.session_request import check_scenario, downlink_of
from orchestrator.emulated.validity import session_validity, to_json
from orchestrator.emulated.visits import SOCKET, runs_in
from orchestrator.records.directory import MANIFEST, SCENARIO, session_folder
from orchestrator.records.emulation import Check
from orchestrator.records.manifest import manifest, now
from orchestrator.records.session_reader import CELLS, HANDOVERS
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.node import NodeId
from testbed.system import inside
from testbed.system.files import write_json


@dataclass
class Outcome:
    """The result of a session."""

    ended: End
    programs: list[Program]
    """Programs of the commands, in the order of their nodes."""
    counting: list[Program]
    """Programs that decide on the success of the session."""
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Lines about links that were out, and about dilation."""
    awaits_some: bool = False
    """Whether certain programs were to end, see `SessionOptions.until`."""

    @property
    def succeeded(self) -> bool:
        """Whether all these programs ended with status 0 by themselves."""
        return all(p.returncode == 0 and not p.stopped for p in self.counting)

    @property
    def as_asked(self) -> bool:
        """Whether it succeeded, where programs may also have run until its time was over, unless
        certain ones were to end."""
        lasted = self.ended == "time" and not self.awaits_some
        return all(lasted if p.stopped else p.returncode == 0 for p in self.counting)


def check_playable(scenario: Scenario, hosts: Hosts | None = None) -> None:
    """Refuse keys that sessions do not support, here or on several machines.

    Raises:
        InputError: A key does not fit; the message names it.
    """
    check_machine(scenario, hosts)
    if scenario.emulation.clock == "virtual" and inside.guest_settings() is None:
        raise InputError("emulation.clock: 'virtual' is for `testbed up`; here it must be 'real'")
    check_scenario(scenario)
    check_nodes(scenario)


@contextmanager
def held(
    scenario: Scenario,
    source: ChannelSource,
    out: Path,
    options: SessionOptions,
    commands: Mapping[NodeId, Sequence[str]],
) -> Iterator[tuple[Session, dict[str, Any]]]:
    """A session in a separate folder, with its manifest, which is written when the context ends.

    Its first programs are those of the commands, in their order.

    Raises:
        InputError: The scenario cannot be played, or the folder is not free.
        RunError: The session failed; its output is in the folder.
    """
    check_playable(scenario, options.hosts)
    if options.hosts is not None and options.capture:
        raise InputError("`capture`: is not supported for links between machines")
    options = replace(options, downlink=downlink_of(scenario, options.downlink))
    dilation = scenario.emulation.dilation
    channel = Channel.of(source)
    resolved = scenario.resolved(1.0 if dilation == "auto" else dilation)
    # A replayed trace has slots of its own length, in which a session is counted.
    resolved = resolved.model_copy(update={"slot_s": channel.slot_s})
    about = manifest(resolved, "the data of the nodes' programs")
    about |= {"kind": "session", "downlink": options.downlink}
    about["containers"] = containers_of(scenario)
    if runs_in(out):
        raise InputError(f"`out`: a session is running in {out}")
    session = None
    with session_folder(out, SOCKET, overwrite=options.overwrite) as begun:
        try:
            with opened(resolved, channel, out, options, commands) as session:
                write_json(out / SCENARIO, resolved.model_dump(mode="json"))
                if session.calibration is not None:
                    session.calibration.to_parquet(out / "calibration.parquet", index=False)
                    short = calibration_summary(session.calibration)
                    about["calibration"] = short.to_dict("records")
                write_json(out / MANIFEST, about | {"status": "running"})
                begun()
                yield session, about
            about["status"] = "complete"
            checks = session_validity(session)
            about["valid"] = all(check.ok for check in checks)
            about["validity"] = to_json(checks)
        except BaseException as error:
            about["failure"] = str(error) or type(error).__name__
            raise
        finally:
            if session is not None:
                if options.hosts is not None:
                    about["hosts"] = options.hosts.to_json(session.calibration)
                _finish(out, session, channel, about)


def play(
    scenario: Scenario,
    source: ChannelSource,
    out: Path,
    commands: Mapping[NodeId, Sequence[str]],
    options: SessionOptions,
) -> Outcome:
    """Play a session with these commands in its nodes.

    Args:
        scenario: Scenario of the network.
        source: Channel of the scenario.
        out: Folder to create.
        commands: Programs and their arguments, by node.
        options: Options of the session.

    Raises:
        InputError: Something does not fit; the message names it.
        RunError: The session failed.
    """
    with held(scenario, source, out, options, commands) as (session, about):
        programs = session.programs[: len(commands)]
        counting = [p for p in programs if not options.until or p.node in options.until]
        with options.began(session):
            ended = session.play(options.seconds, counting, options.progress)
        about["ended"] = ended
        session.close(options.seconds if ended == "time" else None)
    checks = [Check(**check) for check in about["validity"]]
    return Outcome(ended, programs, counting, checks, about["notes"], bool(options.until))


def _finish(out: Path, session: Session, channel: Channel, about: dict[str, Any]) -> None:
    """Write the remaining files of a session."""
    totals = session.recorder.totals
    about["finished"] = now()
    about["slots"] = totals.slots
    about["notes"] = session.notes
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
    if session.steering is not None:
        about["steered"] = session.steering.to_json()
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
            "exceeded": program.exceeded or None,
        }
        for program in session.programs
    ]
    about["slot_0_unix_ns"] = epoch_ns + time.time_ns() - time.monotonic_ns()
    about["captured"] = None if session.network.captured is None else vars(session.network.captured)
    channel.now.save(out / "trace.npz")
    if session.network.radio is not None and session.scenario.radio.cells:
        records = read_log(out / LOG, session.scenario.uavs.count)
        log = RadioLog(records, session.clock.at, session.scenario.emulation.mtu)
        slots = range(totals.slots)
        cells(log, channel.slot_s, slots).to_parquet(out / f"{CELLS}.parquet", index=False)
        handovers(log).to_parquet(out / f"{HANDOVERS}.parquet", index=False)
    for home in (out / "nodes").iterdir():
        with suppress(OSError):  # It is not empty.
            home.rmdir()
    write_json(out / MANIFEST, about)
