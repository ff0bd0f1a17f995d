# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Checks a bundle: repeats its predictions, and emulates a sample again.

Predictions must be equal bit for bit. The latency of a measured round must agree within a
tolerance, and the difference is explained exactly: if two rounds have the same prediction, their
latencies differ by the sum of the differences of their error budgets' parts.
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from ns3_scenarios.errors import ChannelError
from ns3_scenarios.trace import Replay, TraceExhausted
from orchestrator.archive.claims import Extent, examine, examine_bundle, examine_point
from orchestrator.archive.placed import missing, placed
from orchestrator.archive.unpack import Unpacked, object_in, unpack
from orchestrator.campaigning.cluster import HERE
from orchestrator.campaigning.spec import Cell, Point, PointOptions, named_files, point_of
from orchestrator.campaigning.verify import (
    EXACT,
    PREDICTED,
    TOLERANCE,
    Verification,
    budget_differences,
    distances,
    environment_differences,
    environment_json,
    environment_lines,
    explanation,
    replay,
)
from orchestrator.engine.faults import FaultSchedule
from orchestrator.engine.plan import Sizing, link_bytes, payload_bytes
from orchestrator.records.directory import MANIFEST
from orchestrator.records.manifest import environment
from orchestrator.records.reader import Run, read_run
from orchestrator.records.tables import Absent, check_bounds, read_table
from orchestrator.records.timelines import allocation_of
from orchestrator.rounds.hierarchy import PredictedBackhaul, cloud_round
from orchestrator.rounds.loop import (
    Decision,
    EngineBackend,
    ShadowPrediction,
    edge_rounds_of,
    predict,
)
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.loading import validate, varied
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError, RunError
from testbed.core.progress import Progress, silent
from testbed.core.timeline import Round, Timeline
from testbed.host.dask_cluster import Cluster
from testbed.system.leftovers import temporary_folder

Emulate = Callable[[Scenario, Path, Path], None]
"""Emulates a scenario on a trace into a run directory; raises `InputError` or `RunError`."""


@dataclass(frozen=True)
class RepeatedRound:
    """A round that was emulated again; `there_s` is its original latency, `here_s` the new one."""

    round: int
    there_s: float
    here_s: float
    parts_s: dict[str, float]
    """By part of the error budget: its contribution to the difference, s."""

    @property
    def deviation(self) -> float:
        """Relative difference of the latencies."""
        return self.here_s / self.there_s - 1


@dataclass
class RunVerification:
    """Result of verifying a run's bundle."""

    tolerance: float
    predicted: dict[str, str] = field(default_factory=dict)
    """By kind of prediction: the difference; empty if equal bit for bit."""
    rounds: int = 0
    measured: list[RepeatedRound] = field(default_factory=list)
    clock: str = ""
    """Clock of the sample's emulation."""
    not_valid: list[str] = field(default_factory=list)
    """Validity checks that the sample has failed."""
    not_predicted: str = ""
    """Reason for which nothing was predicted again."""
    not_emulated: str = ""
    """Reason for which no sample was emulated."""
    environment: dict[str, tuple[str, str]] = field(default_factory=dict)
    extent: Extent = field(default_factory=Extent)
    """Further results that were compared, and those that were only copied."""

    @property
    def ok(self) -> bool:
        """Whether all recomputed results agree."""
        within = all(abs(m.deviation) <= self.tolerance for m in self.measured)
        return within and not any(self.predicted.values()) and not self.extent.differences

    def lines(self) -> Iterator[str]:
        """The result in words."""
        for kind, difference in self.predicted.items():
            yield f"{kind}: {difference or f'{self.rounds} rounds equal bit for bit'}"
        for m in self.measured:
            far = "" if abs(m.deviation) <= self.tolerance else " DIFFERS"
            yield (
                f"measured, round {m.round}: {m.there_s:.4f} s there, {m.here_s:.4f} s here in "
                f"{self.clock} time ({m.deviation:+.4%}){far}{explanation(m.parts_s)}"
            )
        if self.not_valid:
            yield f"the sample is not valid here: {'; '.join(self.not_valid)}"
        if self.not_predicted:
            yield f"not predicted again: {self.not_predicted}"
        if self.not_emulated:
            yield f"not emulated again: {self.not_emulated}"
        yield from self.extent.lines()
        yield from environment_lines(self.environment)

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {
            "ok": self.ok,
            "kind": "run",
            "predicted": {k: why or "equal bit for bit" for k, why in self.predicted.items()},
            "measured": [
                {
                    "round": m.round,
                    "there_s": m.there_s,
                    "here_s": m.here_s,
                    "deviation": m.deviation,
                    "parts_s": m.parts_s,
                }
                for m in self.measured
            ],
            "clock": self.clock or None,
            "not_valid": self.not_valid,
            "not_predicted": self.not_predicted or None,
            "not_emulated": self.not_emulated or None,
            **self.extent.to_json(),
            "environment": environment_json(self.environment),
        }


@dataclass(frozen=True)
class CampaignVerification:
    """Result of verifying a campaign's bundle."""

    points: Verification
    skipped: dict[str, str]
    """By point ID: why it was not computed again."""
    extent: Extent
    """Further results that were compared, and those that were only copied."""

    @property
    def ok(self) -> bool:
        """Whether all recomputed results agree."""
        return self.points.ok and not self.extent.differences

    def lines(self) -> Iterator[str]:
        """The result in words."""
        yield from self.points.lines()
        for id_, why in self.skipped.items():
            yield f"{id_} was not computed again: {why}"
        yield from self.extent.lines()

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values."""
        return (
            self.points.to_json()
            | {"ok": self.ok, "kind": "campaign", "skipped": self.skipped}
            | self.extent.to_json()
        )


def verify(
    bundle: Path,
    emulate: Emulate,
    *,
    clock: str | None = None,
    usual_clock: str | None = None,
    sample: int = 1,
    tolerance: float = TOLERANCE,
    cluster: Cluster = HERE,
    progress: Progress = silent,
) -> RunVerification | CampaignVerification:
    """Check a bundle, which need not come from a trusted source.

    Args:
        bundle: A file written by `orchestrator.archive.bundle`.
        emulate: Emulates the sample of a run.
        clock: Clock of a run's sample (default: `usual_clock`).
        usual_clock: Clock that is used if `clock` is None (default: the run's own).
        sample: Number of rounds of a run, or points of a campaign, to emulate again.
        tolerance: Relative tolerance of each measured round's latency.
        cluster: Workers that compute a campaign's points.
        progress: Called with the number of rounds or points.

    Returns:
        The result, with `ok`, `lines()` and `to_json()`.

    Raises:
        InputError: The bundle is broken, was changed, or is unsafe; or an argument has no effect
            for its kind.
        RunError: All workers were lost.
    """
    with contextlib.ExitStack() as stack:
        temporary = stack.enter_context(temporary_folder("verify"))
        (folder := temporary / "bundle").mkdir()
        unpacked = unpack(bundle, folder)
        try:
            if unpacked.kind == "run":
                if cluster.workers is not None:
                    raise InputError(f"`workers`: only for a campaign; {bundle} holds a run")
                again, clock = temporary / "again", clock or usual_clock
                return _run(unpacked, emulate, again, clock, sample, tolerance, progress)
            if clock is not None:
                raise InputError(f"`clock`: only for a run; {bundle} holds a campaign")
            return _campaign(unpacked, sample, tolerance, cluster, progress)
        except InputError as error:
            raise InputError(str(error).replace(f"{folder}/", f"{bundle}: ")) from None


def _run(
    unpacked: Unpacked,
    emulate: Emulate,
    again: Path,
    clock: str | None,
    sample: int,
    tolerance: float,
    progress: Progress,
) -> RunVerification:
    run = read_run(unpacked.content, partial(placed, inputs=unpacked.inputs))
    if run.trace is None or "decisions" not in run.tables:
        raise InputError(f"{unpacked.content}: has no trace or no decisions to predict from")
    done = RunVerification(tolerance, rounds=len(run.measured.rounds))
    scenario, named = run.scenario, run.scenario_tree
    done.not_predicted = missing(named, unpacked.inputs)
    if not done.not_predicted:
        try:
            for kind, timeline in predicted_again(run, progress).items():
                done.predicted[kind] = difference(_of(run, kind), timeline)
        except (TraceExhausted, ChannelError, RunError) as error:
            done.predicted["predicted"] = f"DIFFERS: cannot be predicted again ({error})"
    done.clock = clock or scenario.emulation.clock
    done.not_emulated = (
        "no sample was requested" * (sample == 0)
        or missing(named, unpacked.inputs, wholly=scenario.workload.compute != "none")
        or _refusal(scenario, None, unpacked.folder)
        or _sample(run, scenario, done, emulate, again, sample)
    )
    repeated = {again.round for again in done.measured}
    left = [round_.index for round_ in run.measured if round_.index not in repeated]
    if left:
        done.extent.not_checked.append(f"measured.parquet: {_rounds(left)} (not emulated again)")
    not_here = done.not_predicted or _refusal(scenario, None, unpacked.folder, runs=False)
    done.extent.add(examine(run, unpacked.content, not_here=not_here))
    done.extent.add(examine_bundle(unpacked, not_here))
    # The sample may have run on another machine: in virtual time on a guest.
    here = read_run(again).manifest if done.measured else environment()
    done.environment = environment_differences(run.manifest, here)
    return done


def _rounds(indices: Sequence[int]) -> str:
    """Rounds in words; they need not follow one another."""
    if len(indices) == 1:
        return f"round {indices[0]}"
    if list(indices) == list(range(indices[0], indices[-1] + 1)):
        return f"rounds {indices[0]} to {indices[-1]}"
    return f"{len(indices)} rounds"


def predicted_again(run: Run, progress: Progress = silent) -> dict[str, Timeline]:
    """The timelines `predicted` and `predicted_wire` of a run, from its trace and decisions."""
    assert run.trace is not None
    scenario, channel = run.scenario, Channel.of(Replay(run.trace))
    profile, faults = profile_of(scenario), FaultSchedule(scenario)
    kinds = {"predicted": payload_bytes, "predicted_wire": link_bytes}
    if scenario.topology is not None:
        return {kind: _cloud_rounds_again(run, channel, sizing) for kind, sizing in kinds.items()}
    engines = {
        kind: ShadowPrediction(EngineBackend(scenario, channel, profile, sizing))
        for kind, sizing in kinds.items()
    }
    rounds: dict[str, list[Round]] = {kind: [] for kind in kinds}
    decided = dict(iter(run.tables["decisions"].groupby("round")))
    for measured in run.measured:
        progress("predicted", measured.index, scenario.rounds)
        if measured.index not in decided:
            raise InputError(f"{run.folder}: decisions.parquet: round {measured.index} is missing")
        allocation = allocation_of(decided[measured.index], scenario.uavs.count)
        decision = Decision(measured.index, measured.start_s, allocation)
        if scenario.updates:
            for kind, engine in engines.items():
                rounds[kind].append(engine.engine.play(decision))
            continue
        wrong = faults.round(measured.index, measured.start_s, allocation.clients)
        for kind, engine in engines.items():
            rounds[kind].append(
                engine.flown_round(decision, wrong, measured.end_s)
                if run.is_guided
                else engine.next_round(decision, wrong)
            )
        faults.played(measured)
    return {kind: Timeline(list_) for kind, list_ in rounds.items()}


def _cloud_rounds_again(run: Run, channel: Channel, sizing: Sizing) -> Timeline:
    """A prediction of a run with edge servers, from the decisions on their rounds."""
    scenario, profile = run.scenario, profile_of(run.scenario)
    if "edge_rounds" not in run.tables:  # An earlier version had no decisions of edge servers.
        return predict(scenario, channel, profile, sizing=sizing, rounds=len(run.measured))
    begun = run.tables["edge_rounds"].query("kind == 'measured'")
    start_s = begun.set_index(["round", "edge", "edge_round"])["start_s"].to_dict()
    decided = dict(iter(run.tables["decisions"].groupby(["round", "edge", "edge_round"])))
    engines = [
        ShadowPrediction(EngineBackend(there, channel, profile, sizing))
        for there in scenario.at_edges
    ]
    faults = [FaultSchedule(there) for there in scenario.at_edges]
    backhaul = PredictedBackhaul(scenario, profile, framed=sizing is link_bytes)
    rounds: list[Round] = []
    for index in range(len(run.measured)):
        begin_s = rounds[-1].end_s if rounds else 0.0
        edges: list[list[Round]] = []
        for edge, (engine, planned) in enumerate(zip(engines, faults, strict=True), 1):
            engine.begin(begin_s)
            edges.append([])
            for place, number in enumerate(edge_rounds_of(scenario, index), 1):
                key = index, edge, place
                if key not in decided or key not in start_s:
                    where = f"edge round {place} of edge server {edge} in round {index}"
                    raise InputError(f"{run.folder}: decisions.parquet: {where} is missing")
                allocation = allocation_of(decided[key], scenario.uavs.count)
                decision = Decision(number, start_s[key], allocation)
                wrong = planned.round(number, start_s[key], allocation.clients)
                edges[-1].append(engine.next_round(decision, wrong))
        for planned in faults:
            planned.played(run.measured[index])
        rounds.append(cloud_round(scenario, index, begin_s, edges, backhaul))
    return Timeline(rounds)


def _of(run: Run, kind: str) -> Timeline:
    timeline: Timeline = getattr(run, kind)
    return timeline


def difference(then: Timeline, now: Timeline) -> str:
    """The first or largest difference of two predictions, in words; empty if equal bit for bit."""
    worst = 0.0
    for before, after in ((then.summary(), now.summary()), (then.frame(), now.frame())):
        if before.shape != after.shape:
            return f"DIFFERS: {before.shape} there, {after.shape} here (rows, columns)"
        for column, distance in distances(before, after):
            if (far := float(distance.max(initial=0.0))) > EXACT:
                row = int(distance.argmax())
                at, here = before[column].iloc[row], after[column].iloc[row]
                where = f"round {before['round'].iloc[row]}: {column}"
                return f"DIFFERS, {where} {at} there, {here} here"
            worst = max(worst, far)
    return f"equal to {worst:.1e}, the rounding error of another processor" if worst else ""


def _refusal(scenario: Scenario, trace: str | None, folder: Path, *, runs: bool = True) -> str:
    """Reason for which something from a bundle is not computed here; empty if it may be."""
    for path in named_files(scenario, trace):
        if not Path(path).resolve().is_relative_to(folder.resolve()):
            return f"it needs {path}, which is not in the bundle"
    if not runs:
        return ""
    nodes = scenario.model_dump(mode="json").get("nodes") or {}
    for name, node in nodes.items():
        if isinstance(node, dict) and (node.get("command") or node.get("image")):
            return f"nodes.{name}: has a custom program, which is not executed from a bundle"
    if scenario.emulation.runtime == "docker" and scenario.emulation.docker_image != "host":
        return f"it needs the image {scenario.emulation.docker_image}, which is not trusted"
    return ""


def _sample(
    run: Run, scenario: Scenario, done: RunVerification, emulate: Emulate, again: Path, sample: int
) -> str:
    """Emulate the first rounds again and add them to `done`; returns the reason of a failure."""
    rounds = min(sample, len(run.measured.rounds))
    shorter = varied(scenario, {"rounds": rounds, "emulation.clock": done.clock})
    assert run.trace is not None
    trace = again.with_name("trace.npz")
    run.trace.save(trace)
    try:
        emulate(shorter, trace, again)
    except (InputError, RunError) as error:
        return str(error)
    here = read_run(again)
    checks = here.manifest.get("validity") or []
    done.not_valid += [str(check["check"]) for check in checks if check.get("ok") is False]
    for then, now in zip(run.measured, here.measured, strict=False):
        parts_s = {}
        if "budget" in run.tables and "budget" in here.tables:
            budgets = run.tables["budget"], here.tables["budget"]
            parts_s = budget_differences(*budgets, then.index)
        done.measured.append(RepeatedRound(then.index, then.latency_s, now.latency_s, parts_s))
    return ""


def _campaign(
    unpacked: Unpacked,
    sample: int,
    tolerance: float,
    cluster: Cluster,
    progress: Progress,
) -> CampaignVerification:
    chosen: dict[str, list[tuple[Cell, Path]]] = {"predict": [], "run": []}
    skipped: dict[str, str] = {}
    extent = Extent()
    for path in sorted((unpacked.content / "points").glob("[!.]*")):
        try:
            point, why, examined = _point(path, unpacked)
            extent.add(examined, f"{path.name}/", "points/*/")
            if point is not None:
                chosen[point.mode].append((Cell("", {}, point.scenario.seed, point), path))
            else:
                skipped[path.name] = why
        except (KeyError, TypeError, ValueError, ValidationError, RecursionError) as error:
            raise InputError(f"{path}: contains no point ({str(error)[:200]})") from None
    emulated = chosen["run"]
    if sample < len(emulated):
        picked = sorted(np.random.default_rng(sample).choice(len(emulated), sample, replace=False))
        chosen["run"] = [emulated[at] for at in picked]
    if left := len(emulated) - len(chosen["run"]):
        extent.not_checked.insert(
            0, f"{left} of {len(emulated)} emulated points (not emulated again)"
        )
    extent.add(examine_bundle(unpacked, "; ".join(skipped.values())))
    stored = [*chosen["predict"], *chosen["run"]]
    if not stored:
        raise InputError(f"{unpacked.content}: has no point that can be computed here")
    points = [cell.point for cell, _ in stored]

    def report(done: int, total: int) -> None:
        progress("verified", done, total)

    verified = replay(stored, points, 1, tolerance, cluster, report)
    return CampaignVerification(verified, skipped, extent)


def _point(path: Path, unpacked: Unpacked) -> tuple[Point | None, str, Extent]:
    """A stored point, or None and why it is not computed here; and what was compared of it."""
    about = object_in(path / "point.json", str(path / "point.json"))
    object_in(path / MANIFEST, str(path / MANIFEST))
    mode, named = about["mode"], dict(json.loads(about["scenario"]))
    place = partial(placed, inputs=unpacked.inputs)
    scenario = validate(place(named), str(path / "point.json"))
    if mode == "up":
        why = "it is a session with custom programs, which are not executed from a bundle"
        return None, why, examine_point(path, "up", scenario)
    for stem in ("rounds", "predicted", "predicted_wire", "budget"):
        file = path / f"{stem}.parquet"
        if file.exists() or stem == "rounds":
            try:
                read_table(file, scenario)
            except Absent as why:
                raise InputError(f"{file}: {why}") from None
    for name in PREDICTED:
        if (path / name).exists():
            check_bounds(path / name)
    options, runs = PointOptions.model_validate(about.get("beside", {})), mode == "run"
    learns = (runs and scenario.workload.compute != "none") or bool(options.learn or options.train)
    trace = about["trace"] and unpacked.inputs.get(about["trace"], about["trace"])

    def not_here(*, wholly: bool, runs: bool) -> str:
        absent = missing(named, unpacked.inputs, wholly=wholly)
        return absent or _refusal(scenario, trace, unpacked.folder, runs=runs)

    examined = examine_point(path, mode, scenario, not_here(wholly=False, runs=False), place)
    if reason := not_here(wholly=learns, runs=runs):
        return None, reason, examined
    if about["mode"] not in ("predict", "run") or not isinstance(about["steps_rounds"], int):
        raise ValueError("mode or steps_rounds")
    made = point_of(about["mode"], scenario, trace, about["steps_rounds"], options)
    return made, "", examined
