# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Campaign files: one base scenario, axes that vary it, and the points that come of it.

A campaign is a set of *studies*. A study spans its *axes*, a grid of named values, with every seed
of its repeats; each combination is a *cell*, and what has to be computed for a cell is a *point*.
Cells that resolve to the same scenario share one point. A point's identity is a digest of all that
decides its outcome, so that it can be found again wherever and whenever it was made.
"""

import hashlib
import itertools
import json
import logging
import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from orchestrator.analysis import metrics
from orchestrator.analysis.axes import Axis, Count, Label, Name
from orchestrator.emulated.session_request import FIGURES, Asked, Read, check, named_programs
from orchestrator.scenario.loading import explain, own_or, put, read_tree, validate
from orchestrator.scenario.schema import Scenario, Section
from testbed.core.errors import InputError
from testbed.core.words import not_one_of

log = logging.getLogger(__name__)

Mode = Literal["predict", "run", "up"]
"""`predict`: the engine; `run`: the emulated network, held against the engine; `up`: a session, in
which nodes run the scenario's own commands."""
Modes = Literal["predict", "run", "both", "up"]
COLUMNS = ("latency_s", "max_energy_j", "objective")
"""What every point has: means over its rounds."""


Seed = Annotated[int, Field(ge=0, lt=2**31)]
MOST_CELLS = 200_000
"""Of a campaign: each has a scenario that is checked and kept, in a quarter of a millisecond."""
MANY_CELLS = 5_000
"""So many are told of before they are checked."""

RESERVED = {
    *("train", "bound_rounds", "energy_j"),
    *("study", "point", "mode", "seed", "status", "valid", "rounds", "kind", "round", "split"),
    *("start_s", "end_s", "latency_s", "predicted_latency_s", "predicted_wire_latency_s"),
    *("max_energy_j", "objective", "client", "iteration", "step", "bytes", "part", "seconds"),
    *("check", "limit", "value", "ok", "detail", "time_s", "loss", "accuracy", "wall_s"),
    *("started", "host", "revision", "dirty"),
}
"""Columns of the results that an axis would hide."""


class Beside(Asked):
    """Keys that may stand beside the scenario's in `set` and in axes: what else a point is.

    Those of `Asked` are a session's.
    """

    train: Literal["drl", "drl-", "fixed-ra", "fixed-u"] | None = None
    """The agent that decides, and learns while it does; left out: the scenario's policy."""
    bound_rounds: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Of so many rounds at the end, a bound that no allocation beats is kept."""
    metrics: list[str] = Field(default=[])
    """Metrics that are computed besides what every point has."""


class Emulate(Section):
    """Which cells of a study are emulated, and how they differ from the predicted ones."""

    where: dict[str, list[Label]] = Field(default={})
    """By axis: only these of its values."""
    repeats: list[Seed] | Count | None = None
    """In place of the study's."""
    set: dict[str, Any] = Field(default={})
    """Keys of the scenario, on top of the study's."""


class Compare(Section):
    """What is held against what."""

    over: str
    """The axis whose values are compared."""
    baseline: Label
    """The value that the others are held against."""
    of: list[str] = Field(default=["latency_s"], min_length=1)
    """Columns of the results: `COLUMNS` or other metrics; of sessions, `FIGURES` and reads."""


class Plot(Section):
    """A figure: means over the seeds with their 95 % intervals."""

    x: str
    """The axis that runs along the figure."""
    lines: str | None = None
    """The axis that makes a line of each of its values."""
    y: str = "latency_s"
    """The column that is drawn."""


class Study(Section):
    """Axes over the base scenario."""

    title: str = ""
    """What reports call it; left out: its name."""
    axes: dict[Name, Axis]
    """By name, which is their column in the results; all combinations are made."""
    set: dict[str, Any] = Field(default={})
    """Keys of the scenario, on top of the campaign's."""
    mode: Modes | None = None
    """In place of the campaign's."""
    repeats: list[Seed] | Count | None = None
    """In place of the campaign's."""
    emulate: Emulate = Emulate()
    """Narrows and changes what is emulated."""
    trace: str | None = None
    """A channel trace to replay; left out: ns-3 makes it."""
    compare: Compare | None = None
    plot: list[Plot] = Field(default=[])
    reads: dict[Name, Read] = Field(default={})
    """By name: numbers that are read from what a session's programs write."""

    @property
    def asked_metrics(self) -> list[str]:
        """Numbers that are read, compared or drawn and not among `COLUMNS`, sorted."""
        return sorted({*self.reads, *self.shown.values()} - set(COLUMNS))

    @property
    def shown(self) -> dict[str, str]:
        """Numbers that are compared or drawn, by the place where they stand."""
        compared = [] if self.compare is None else self.compare.of
        places = {f"compare.of.{index}": name for index, name in enumerate(compared)}
        return places | {f"plot.{index}.y": plot.y for index, plot in enumerate(self.plot)}

    def check_numbers(self, mode: Modes) -> None:
        """Refuse numbers that points of that mode have not.

        Raises:
            ValueError: Names the place.
        """
        if self.reads and mode != "up":
            raise ValueError(f"reads: are of sessions, mode 'up'; the mode is {mode!r}")
        for name in self.reads:
            if name in RESERVED or name in FIGURES or name in self.axes:
                raise ValueError(f"reads: {name!r} is a column of the results; name it otherwise")
        known = [*self.reads, *FIGURES]
        for place, name in self.shown.items():
            try:
                if mode != "up":
                    metrics.base_of(name)
                elif name not in known:
                    raise InputError(not_one_of(name, known))
            except InputError as error:
                raise ValueError(f"{place}: {error}") from None

    @model_validator(mode="after")
    def _axes_are_known(self) -> "Study":
        drawn = {column for axis in self.axes.values() for column in axis.of or {}}
        for name in [*self.axes, *drawn]:
            if name in RESERVED:
                raise ValueError(f"axes: {name!r} is a column of the results; name it otherwise")
        if "paradigm" in drawn or (
            (own := self.axes.get("paradigm")) and (own.values is None or own.key is not None)
        ):
            raise ValueError("axes: 'paradigm' must be a list of paradigms, and nothing else")
        if double := drawn & self.axes.keys():
            raise ValueError(f"axes: {min(double)!r} stands twice")
        known = {*self.axes, *drawn}
        named = {f"emulate.where.{name}": name for name in self.emulate.where}
        for index, plot in enumerate(self.plot):
            named |= {f"plot.{index}.x": plot.x, f"plot.{index}.lines": plot.lines or plot.x}
        if self.compare is not None:
            named["compare.over"] = self.compare.over
        for place, name in named.items():
            if name not in known:
                raise ValueError(f"{place}: {name!r} is no axis: {', '.join(sorted(known))}")
        for name, wanted in self.emulate.where.items():
            self._has(f"emulate.where.{name}", name, wanted)
        if self.compare is not None:
            self._has("compare.baseline", self.compare.over, [self.compare.baseline])
        return self

    def _has(self, place: str, name: str, wanted: list[Label]) -> None:
        axis = self.axes.get(name)
        if axis is None:
            return  # a drawn column has any value
        labels = [columns[name] for columns, _ in axis.steps(name, 0)]
        for label in wanted:
            if label not in labels:
                raise ValueError(f"{place}: {label!r} is not one of {labels}")


class Campaign(Section):
    """A campaign file."""

    name: str = Field(pattern=r"^\w[\w.-]*$", max_length=80)
    """Names the folder that it fills, under runs/; begins with a letter, digit or underscore."""
    title: str = ""
    """What the report calls it; left out: its name."""
    scenario: str | dict[str, Any]
    """The base scenario: a file, from the campaign file's folder; or its keys themselves."""
    set: dict[str, Any] = Field(default={})
    """Dotted keys of the scenario that all studies set."""
    seed: Seed = 1
    """Of the order of execution and of random axes."""
    repeats: list[Seed] | Count = 1
    """Seeds of the scenario; a number n is short for 1 to n."""
    mode: Modes = "predict"
    """Whether points are predicted, emulated, or both; or sessions of the nodes' own commands."""
    steps_rounds: Annotated[int, Field(ge=0, le=1_000_000)] = 1
    """Of a predicted point, the steps of so many rounds are kept; of an emulated one, all."""
    studies: dict[Name, Study] = Field(min_length=1)

    @model_validator(mode="after")
    def _numbers_are_known(self) -> "Campaign":
        for name, study in self.studies.items():
            try:
                study.check_numbers(study.mode or self.mode)
            except ValueError as error:
                raise ValueError(f"studies.{name}.{error}") from None
        return self

    @field_validator("repeats")
    @classmethod
    def _seeds_differ(cls, repeats: list[int] | int) -> list[int] | int:
        if isinstance(repeats, list) and (not repeats or len(set(repeats)) < len(repeats)):
            raise ValueError("must be different seeds, one at least")
        return repeats


@dataclass(frozen=True)
class Point:
    """One thing to compute: a scenario to predict or to emulate."""

    mode: Mode
    scenario: Scenario
    trace: str | None
    """Path of the trace that is replayed."""
    steps_rounds: int
    beside: Beside
    id: str
    """Digest of all that decides the outcome; see `identity`."""
    files: dict[str, str] = field(compare=False)
    """Files that the scenario names, and the digests of what is in them."""


@dataclass(frozen=True)
class Cell:
    """A place in a study, and the point that fills it."""

    study: str
    axes: dict[str, Label]
    """The value of each axis, by column."""
    seed: int
    point: Point


def load_campaign(path: Path) -> Campaign:
    """Read a campaign file, or the one that a campaign's directory holds, with its base scenario.

    Raises:
        InputError: One line that names the file or the field, and what it may be.
    """
    file = path / "campaign.yaml" if path.is_dir() else own_or(path, "campaign")
    tree = read_tree(file, "campaign")
    try:
        campaign = Campaign.model_validate(tree)
    except ValidationError as error:
        raise InputError(f"{file}: {explain(error.errors(include_url=False), Campaign)}") from None
    base = campaign.scenario
    if isinstance(base, str):
        base = read_tree(file.parent / base, "scenario")
    # Traces are found from the campaign file's folder, whatever the process's own is.
    studies = {
        name: study
        if study.trace is None
        else study.model_copy(update={"trace": str((file.parent / study.trace).resolve())})
        for name, study in campaign.studies.items()
    }
    return campaign.model_copy(update={"scenario": base, "studies": studies})


def narrowed(
    campaign: Campaign,
    *,
    studies: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    rounds: int | None = None,
) -> Campaign:
    """The predicted part of a campaign: some of its studies, with other seeds and rounds.

    Args:
        campaign: What to narrow.
        studies: Names; None: all.
        seeds: In place of the campaign's; studies that name their own keep the first of these.
        rounds: In place of the campaign's; studies that set their own keep them.
    """
    kept = {
        name: study.model_copy(
            update={
                "mode": "predict",
                "repeats": study.repeats and (list(seeds[:1]) if seeds else study.repeats),
            }
        )
        for name, study in campaign.studies.items()
        if studies is None or name in studies
    }
    return campaign.model_copy(
        update={
            "studies": kept,
            "repeats": list(seeds) if seeds else campaign.repeats,
            "set": campaign.set | ({} if rounds is None else {"rounds": rounds}),
        }
    )


def to_yaml(campaign: Campaign) -> str:
    """A campaign file that needs no other; `load_campaign` reads the same campaign from it."""
    tree = campaign.model_dump(exclude_defaults=True, mode="python")
    return yaml.safe_dump(_plain(tree), sort_keys=False, allow_unicode=True, width=100)


def _plain(value: Any) -> Any:
    """Tuples as lists, which YAML has."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def cells(campaign: Campaign) -> list[Cell]:
    """All cells of all studies, in the order of the file.

    Raises:
        InputError: A scenario is not valid; the line names study and axes. Or there are more than
            `MOST_CELLS`, which is told before any is made.
    """
    total = 0
    for name, study in campaign.studies.items():
        count = _count(campaign, study)
        total += count
        if total > MOST_CELLS:
            raise InputError(
                f"{campaign.name}: studies.{name}: {count:,} cells make {total:,} of the campaign, "
                f"which may have {MOST_CELLS:,}"
            )
    if total > MANY_CELLS:
        log.info("%s: checks the scenarios of %s cells", campaign.name, f"{total:,}")
    return [cell for name in campaign.studies for cell in _cells(campaign, name)]


def _count(campaign: Campaign, study: Study) -> int:
    """How many cells a study makes; where a drawn value decides what is emulated, at most."""
    seeds = study.repeats or campaign.repeats
    mode = study.mode or campaign.mode
    sizes = {name: axis.size for name, axis in study.axes.items()}
    chosen = sizes | {n: len(labels) for n, labels in study.emulate.where.items() if n in sizes}
    predicted = math.prod(sizes.values()) * len(_seeds(seeds))
    emulated = math.prod(chosen.values()) * len(_seeds(study.emulate.repeats or seeds))
    return predicted * (mode in {"predict", "both"}) + emulated * (mode != "predict")


def _cells(campaign: Campaign, name: str) -> Iterator[Cell]:
    study = campaign.studies[name]
    mode = study.mode or campaign.mode
    seeds = study.repeats or campaign.repeats
    steps = [axis.steps(column, campaign.seed) for column, axis in study.axes.items()]
    for combination in itertools.product(*map(list, steps)):
        columns = {c: label for labels, _ in combination for c, label in labels.items()}
        keys = campaign.set | study.set
        for _, more in combination:
            keys = keys | more
        if mode in {"predict", "both"}:
            for seed in _seeds(seeds):
                yield Cell(
                    name, columns, seed, _point(campaign, name, columns, keys, seed, "predict")
                )
        if mode != "predict" and all(
            columns[column] in wanted for column, wanted in study.emulate.where.items()
        ):
            emulated = keys | study.emulate.set
            kind: Mode = "up" if mode == "up" else "run"
            for seed in _seeds(study.emulate.repeats or seeds):
                yield Cell(
                    name, columns, seed, _point(campaign, name, columns, emulated, seed, kind)
                )


def _seeds(repeats: list[int] | int) -> list[int]:
    return list(range(1, repeats + 1)) if isinstance(repeats, int) else repeats


def _point(
    campaign: Campaign,
    study: str,
    columns: dict[str, Label],
    keys: dict[str, Any],
    seed: int,
    mode: Mode,
) -> Point:
    place = ", ".join([f"{name} = {label}" for name, label in columns.items()])
    source = f"{campaign.name}: studies.{study}" + (f" ({place})" if place else "")
    assert isinstance(campaign.scenario, dict)
    tree = deepcopy(campaign.scenario)
    extra = {key: keys[key] for key in Beside.model_fields if key in keys}
    if mode == "up":
        extra["reads"] = campaign.studies[study].reads
    elif asked := campaign.studies[study].asked_metrics:
        extra["metrics"] = sorted({metrics.base_of(name) for name in asked})
    for key, value in keys.items():
        if key not in extra:
            put(tree, key, value, f"{source}: {key}")
    put(tree, "seed", seed, source)
    scenario = validate(tree, source)
    try:
        beside = Beside.model_validate(extra)
        return point_of(
            mode, scenario, campaign.studies[study].trace, campaign.steps_rounds, beside
        )
    except ValidationError as error:
        said = explain(error.errors(include_url=False), Beside)
        raise InputError(f"{source}: {said}") from None
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


NOTHING = Beside()


def point_of(
    mode: Mode, scenario: Scenario, trace: str | None, steps_rounds: int, beside: Beside = NOTHING
) -> Point:
    """The point with its identity.

    Raises:
        InputError: A file that the scenario names is not there, or what is asked does not fit.
    """
    for key in beside.model_dump(exclude_defaults=True):
        if (key in Asked.model_fields) != (mode == "up"):
            which = "of sessions alone, mode 'up'" if mode != "up" else "not of sessions"
            if mode == "up" or key in Asked.model_fields:
                raise InputError(f"{key}: is {which}")
        elif mode == "run" and key != "metrics":
            raise InputError(f"{key}: is of predicted points alone")
    if mode == "up":
        check(scenario, beside)
    if beside.train is not None and trace is not None:
        raise InputError("train: an agent learns on ns-3's channel, not on a trace")
    if beside.train is not None and beside.bound_rounds:
        raise InputError("bound_rounds: is of rounds that nobody learns in")
    if beside.train is not None and beside.metrics:
        raise InputError(f"metrics: {beside.metrics[0]} is of rounds that nobody learns in")
    named = named_files(scenario, trace) + (named_programs(scenario) if mode == "up" else [])
    files = {path: digest_of(Path(path)) for path in named}
    digest = identity(mode, scenario, trace, steps_rounds, beside, files)
    return Point(mode, scenario, trace, steps_rounds, beside, digest, files)


def named_files(scenario: Scenario, trace: str | None) -> list[str]:
    """Paths of all that a point reads besides its scenario."""
    data, weights = scenario.workload.data.source, scenario.workload.weights
    return [
        path
        for path, is_path in (
            (trace, trace is not None),
            (scenario.allocation.agent, scenario.allocation.policy == "agent"),
            (weights, weights is not None and weights != "pretrained"),
            (data, data != "synthetic"),
        )
        if is_path and path is not None
    ]


def identity(
    mode: Mode,
    scenario: Scenario,
    trace: str | None,
    steps_rounds: int,
    beside: Beside,
    files: dict[str, str],
) -> str:
    """Sixteen hex digits of the SHA-256 of all that decides a point's outcome.

    That is the mode, every key of the resolved scenario but its name, the content of the files it
    names (wherever they lie), how many rounds' steps are kept, and what stands beside the scenario.
    The program's revision is not part of it: the point's manifest has that.
    """
    tree = scenario.model_dump(mode="json", exclude={"name"})
    content = {
        "mode": mode,
        "scenario": _by_content(tree, files),
        "trace": None if trace is None else files[trace],
        "steps_rounds": steps_rounds if mode == "predict" else None,
        **beside.model_dump(exclude_defaults=True),
        **(
            {"programs": {word: files[word] for word in named_programs(scenario)}}
            if mode == "up"
            else {}
        ),
    }
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _by_content(tree: Any, files: dict[str, str]) -> Any:
    if isinstance(tree, dict):
        return {key: _by_content(value, files) for key, value in tree.items()}
    return files.get(tree, tree) if isinstance(tree, str) else tree


@cache
def digest_of(path: Path) -> str:
    """SHA-256 of a file, or of a folder's files with their names.

    Raises:
        InputError: Nothing is there, or it cannot be read.
    """
    digest = hashlib.sha256()
    try:
        inside = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        for file in inside:
            digest.update(f"{file.relative_to(path)}\0".encode())
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    return digest.hexdigest()
