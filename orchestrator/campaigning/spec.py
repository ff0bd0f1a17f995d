# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Campaign files: a base scenario, axes that vary it, and the resulting points.

A campaign is a set of *studies*. A study spans its *axes*, a grid of named values, with every seed
of its repeats; each combination is a *cell*, and the computation for a cell is a *point*. Cells
with the same resolved scenario share one point. A point's ID is a digest of everything that affects
its result, so that the point is found again on any machine at any time.
"""

import hashlib
import itertools
import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from ns3_scenarios.trace import SlotTrace
from orchestrator.analysis import learned, metrics
from orchestrator.analysis.axes import Axis, Count, Label, Name
from orchestrator.emulated.session_request import (
    SESSION_METRICS,
    Read,
    SessionRequest,
    check,
    named_programs,
)
from orchestrator.records.learned import why_inexact
from orchestrator.scenario.channel import check_channel, read_trace
from orchestrator.scenario.combinations import check as check_combinations
from orchestrator.scenario.loading import explain, own_or, put, read_tree, with_epochs
from orchestrator.scenario.schema import Scenario, Section
from orchestrator.scenario.yaml_text import dump
from testbed.core.errors import InputError
from testbed.core.words import not_one_of
from testbed.system.files import sha256_of
from workloads.models.language import model_folder

log = logging.getLogger(__name__)

Mode = Literal["predict", "run", "up"]
"""`predict`: the engine; `run`: the emulated network, compared with the engine; `up`: a session,
in which nodes run the scenario's own commands."""
Modes = Literal["predict", "run", "both", "up"]
COLUMNS = ("latency_s", "max_energy_j", "objective")
"""Means over its rounds that every point has."""


Seed = Annotated[int, Field(ge=0, lt=2**31)]


def _seeds_differ(repeats: list[int] | int) -> list[int] | int:
    if isinstance(repeats, list) and (not repeats or len(set(repeats)) < len(repeats)):
        raise ValueError("must be one or more different seeds")
    return repeats


Repeats = Annotated[list[Seed] | Count, AfterValidator(_seeds_differ)]
"""Seeds; a number n is short for 1 to n."""
MOST_CELLS = 200_000
"""Limit for a campaign: the scenario of each cell is checked and kept in memory."""
MANY_CELLS = 5_000
"""If a campaign has more cells, a message announces their check."""

RESERVED = {
    *("train", "bound_rounds", "learn", "energy_j"),
    *("study", "point", "mode", "seed", "status", "valid", "rounds", "kind", "round", "split"),
    *("start_s", "end_s", "latency_s", "predicted_latency_s", "predicted_wire_latency_s"),
    *("max_energy_j", "objective", "client", "iteration", "step", "bytes", "part", "seconds"),
    *("check", "limit", "value", "ok", "detail", "wall_s"),
    *("data", "time_s", *learned.NAMES, "smashed_error", "gradient_error"),
    *("started", "host", "revision", "dirty"),
}
"""Column names of the results, which axes must not use."""


class PointOptions(SessionRequest):
    """Keys in `set` and in axes that are not keys of the scenario: options of a point.

    The inherited ones are for sessions only.
    """

    train: Literal["drl", "drl-", "fixed-ra", "fixed-u"] | None = None
    """Agent that is trained during the rounds and decides (default: the scenario's policy)."""
    bound_rounds: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Number of rounds at the end for which a lower bound over all allocations is stored."""
    learn: bool = False
    """Whether what the scenario learns is learned once without a network, and timed by the rounds
    of the point; for points that do not learn themselves."""
    metrics: list[str] = Field(default=[])
    """Metrics to compute in addition to `COLUMNS`."""


class Emulate(Section):
    """The points of a study that are emulated, and their differences from the predicted points."""

    where: dict[str, list[Label]] = Field(default={})
    """By axis: the values to emulate (default: all)."""
    repeats: Repeats | None = None
    """Seeds for emulation (default: the study's)."""
    set: dict[str, Any] = Field(default={})
    """Scenario keys that are set in addition to the study's."""


class Compare(Section):
    """A comparison of results with a baseline."""

    over: str
    """The axis whose values are compared."""
    baseline: Label
    """The value that the others are compared with."""
    of: Annotated[list[str], BeforeValidator(lambda of: [of] if isinstance(of, str) else of)] = (
        Field(default=["latency_s"], min_length=1)
    )
    """Columns of the results: `COLUMNS`, metrics of what was learned (`learned.NAMES`) or others,
    or for sessions `SESSION_METRICS` and the names of `reads`."""
    target: dict[str, float] = Field(default={}, max_length=1)
    """The value that accuracy, loss or perplexity on held-out data is to reach, for metrics such as
    `time_to_accuracy`; the report begins with the result that reaches it first."""

    @field_validator("target")
    @classmethod
    def _can_be_reached(cls, target: dict[str, float]) -> dict[str, float]:
        for measure, value in target.items():
            try:
                learned.Target.of(measure, value, "")
            except InputError as error:
                raise ValueError(str(error).removeprefix(": ")) from None
        return target


class Claim(Section):
    """A statement about two cells, for example a published one, which the results are to show."""

    says: str = Field(min_length=1)
    """The statement."""
    source: str = ""
    """Where it was published."""
    of: str
    """The column that it is about, as in `compare.of`."""
    cell: dict[str, Label]
    """By axis: the values of one cell. Every axis has a value."""
    than: dict[str, Label]
    """By axis: the values of the cell that it is compared with."""
    expect: Literal["lower", "higher", "equal"]
    """Whether the column of `cell` is lower or higher than that of `than`, or about equal."""
    by: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """Smallest difference of `lower` and `higher`, or largest one of `equal`, as a fraction of the
    column of `than`; for accuracies, the difference itself (0.01: one percentage point)."""

    @model_validator(mode="after")
    def _equal_within(self) -> "Claim":
        if self.expect == "equal" and not self.by:
            raise ValueError("by: 'equal' needs the largest difference")
        return self


class Plot(Section):
    """A chart: means over the seeds with their 95 % intervals."""

    x: str
    """The axis on the horizontal direction; or for curves of what was learned `time_s`, `round`,
    `energy_j` or `bytes`."""
    lines: str | None = None
    """The axis with one line per value."""
    y: str = "latency_s"
    """The column on the vertical direction."""

    @property
    def is_curve(self) -> bool:
        """Whether it shows held-out curves, with a band from the least to the largest seed."""
        return self.x in learned.X_TITLES


class Study(Section):
    """Axes over the base scenario."""

    title: str = ""
    """Title in reports (default: the study's name)."""
    axes: dict[Name, Axis]
    """Axes by name, which is their column in the results; all combinations are cells."""
    set: dict[str, Any] = Field(default={})
    """Scenario keys that are set in addition to the campaign's."""
    mode: Modes | None = None
    """Mode (default: the campaign's)."""
    repeats: Repeats | None = None
    """Seeds (default: the campaign's)."""
    emulate: Emulate = Emulate()
    """Cells to emulate, and how their scenarios differ."""
    trace: str | None = None
    """A channel trace to replay (default: ns-3 generates the channel)."""
    compare: Compare | None = None
    plot: list[Plot] = Field(default=[])
    claims: list[Claim] = Field(default=[])
    """Statements on which the report gives a verdict each."""
    reads: dict[Name, Read] = Field(default={})
    """By name: numbers to read from the output of a session's programs."""

    @property
    def requested_metrics(self) -> list[str]:
        """Numbers that are read, compared, drawn or claimed and are not in `COLUMNS`, sorted."""
        return sorted({*self.reads, *self.shown.values()} - set(COLUMNS))

    @property
    def target(self) -> learned.Target | None:
        """The value to be reached; None if there is none."""
        given = {} if self.compare is None else self.compare.target
        return next((learned.Target(*item) for item in given.items()), None)

    @property
    def of_learning(self) -> list[str]:
        """The keys of the study that need what was learned."""
        places = [place for place, name in self.shown.items() if name in learned.NAMES]
        return places + ["compare.target"] * (self.target is not None)

    @property
    def shown(self) -> dict[str, str]:
        """Numbers that are compared, drawn or claimed, by their key in the file."""
        compared = [] if self.compare is None else self.compare.of
        places = {f"compare.of.{index}": name for index, name in enumerate(compared)}
        places |= {f"plot.{index}.y": plot.y for index, plot in enumerate(self.plot)}
        return places | {f"claims.{index}.of": claim.of for index, claim in enumerate(self.claims)}

    def check_numbers(self, mode: Modes) -> None:
        """Check that points of a mode have the requested numbers.

        Raises:
            ValueError: They do not; the message names the key.
        """
        if self.reads and mode != "up":
            raise ValueError(f"reads: only for sessions (mode 'up'); the mode is {mode!r}")
        for name in self.reads:
            if name in RESERVED or name in SESSION_METRICS or name in self.axes:
                raise ValueError(f"reads: {name!r} is a column of the results; use another name")
        known = [*self.reads, *SESSION_METRICS]
        for place, name in self.shown.items():
            try:
                if mode != "up" and name in learned.NAMES:
                    self._check_target(name)
                elif mode != "up":
                    metrics.base_of(name)
                elif name not in known:
                    raise InputError(not_one_of(name, known))
            except InputError as error:
                raise ValueError(f"{place}: {error}") from None

    def _check_target(self, name: str) -> None:
        """Refuse a metric like `time_to_accuracy` without a target for its measure."""
        measure = name.partition("_to_")[2]
        if measure and (self.target is None or self.target.measure != measure):
            raise InputError(f"{name!r} needs compare.target with {measure}, like {{{measure}: …}}")

    @model_validator(mode="after")
    def _axes_are_known(self) -> "Study":
        drawn = {column for axis in self.axes.values() for column in axis.of or {}}
        for name in [*self.axes, *drawn]:
            if name in RESERVED:
                raise ValueError(f"axes: {name!r} is a column of the results; use another name")
        if "paradigm" in drawn or (
            (own := self.axes.get("paradigm")) and (own.values is None or own.key is not None)
        ):
            raise ValueError("axes: 'paradigm' must be a list of paradigms")
        if double := drawn & self.axes.keys():
            raise ValueError(f"axes: {min(double)!r} is given twice")
        known = {*self.axes, *drawn}
        named = {f"emulate.where.{name}": name for name in self.emulate.where}
        for index, plot in enumerate(self.plot):
            if plot.is_curve and plot.y not in learned.MEASURES:
                raise ValueError(
                    f"plot.{index}.y: over {plot.x!r} must be one of {', '.join(learned.MEASURES)}"
                )
            shown = {f"plot.{index}.x": plot.x, f"plot.{index}.lines": plot.lines}
            named |= {
                place: name
                for place, name in shown.items()
                if name is not None and not (plot.is_curve and name == plot.x)
            }
        if self.compare is not None:
            named["compare.over"] = self.compare.over
        for place, name in named.items():
            if name not in known:
                raise ValueError(f"{place}: {name!r} is not an axis: {', '.join(sorted(known))}")
        for name, wanted in self.emulate.where.items():
            self._has(f"emulate.where.{name}", name, wanted)
        if self.compare is not None:
            self._has("compare.baseline", self.compare.over, [self.compare.baseline])
        for index, claim in enumerate(self.claims):
            for side, values in (("cell", claim.cell), ("than", claim.than)):
                place = f"claims.{index}.{side}"
                if set(values) != set(self.axes):
                    raise ValueError(f"{place}: must have a value of {', '.join(self.axes)}")
                for name, label in values.items():
                    self._has(f"{place}.{name}", name, [label])
        return self

    def _has(self, place: str, name: str, wanted: list[Label]) -> None:
        axis = self.axes.get(name)
        if axis is None:
            return  # a random column may have any value
        labels = [columns[name] for columns, _ in axis.steps(name, 0)]
        for label in wanted:
            if label not in labels:
                raise ValueError(f"{place}: {label!r} is not one of {', '.join(map(str, labels))}")


class Campaign(Section):
    """The contents of a campaign file."""

    name: str = Field(pattern=r"^\w[\w.-]*$", max_length=80)
    """Name of its folder under runs/; begins with a letter, digit or underscore."""
    title: str = ""
    """Title in the report (default: the campaign's name)."""
    scenario: str | dict[str, Any]
    """The base scenario: a file, relative to the campaign file's folder; or the keys themselves."""
    set: dict[str, Any] = Field(default={})
    """Dotted scenario keys that are set in all studies."""
    seed: Seed = 1
    """Seed of the order of execution and of random axes."""
    repeats: Repeats = 1
    """Seeds of the scenario; a number n is short for 1 to n."""
    mode: Modes = "predict"
    """Whether points are predicted, emulated or both, or are sessions of the nodes' commands."""
    steps_rounds: Annotated[int, Field(ge=0, le=1_000_000)] = 1
    """Number of rounds whose steps are stored for a predicted point; emulated points store all."""
    studies: dict[Name, Study] = Field(min_length=1)

    @model_validator(mode="after")
    def _numbers_are_known(self) -> "Campaign":
        for name, study in self.studies.items():
            try:
                study.check_numbers(study.mode or self.mode)
            except ValueError as error:
                raise ValueError(f"studies.{name}.{error}") from None
        return self


@dataclass(frozen=True)
class Point:
    """A scenario to predict or to emulate, with options."""

    mode: Mode
    scenario: Scenario
    trace: str | None
    """Path of the trace to replay."""
    steps_rounds: int
    options: PointOptions
    id: str
    """Digest of everything that affects the result; see `identity`."""
    files: dict[str, str] = field(compare=False)
    """By path of a file that the scenario names: digest of its contents."""


@dataclass(frozen=True)
class Cell:
    """An element of a study, and its point."""

    study: str
    axes: dict[str, Label]
    """By axis column: the value."""
    seed: int
    point: Point


def load_campaign(path: Path) -> Campaign:
    """Read a campaign file, or that of a campaign's directory, with its base scenario.

    Raises:
        InputError: The file is not valid; the message names the file or field and allowed values.
    """
    file = path / "campaign.yaml" if path.is_dir() else own_or(path, "campaign")
    return campaign_of(read_tree(file, "campaign"), str(file), file.parent)


def campaign_of(tree: Mapping[str, Any], where: str, folder: Path) -> Campaign:
    """The campaign with these keys, with its base scenario.

    Args:
        tree: Content of a campaign file.
        where: Begins the message about a wrong value.
        folder: Folder to which paths in the file are relative.

    Raises:
        InputError: The content is not valid; the message names the field and allowed values.
    """
    try:
        campaign = Campaign.model_validate(tree)
    except ValidationError as error:
        raise InputError(f"{where}: {explain(error.errors(include_url=False), Campaign)}") from None
    base = campaign.scenario
    if isinstance(base, str):
        base = read_tree(folder / base, "scenario")
    studies = {
        name: study
        if study.trace is None
        else study.model_copy(update={"trace": str((folder / study.trace).resolve())})
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
        campaign: The campaign.
        studies: Names of the studies to keep; None: all.
        seeds: Seeds (default: the campaign's); studies with their own seeds use the first of these.
        rounds: Number of rounds (default: the campaign's), except for studies that set their own.
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
    """A self-contained campaign file; `load_campaign` reads an equal campaign from it."""
    tree = campaign.model_dump(exclude_defaults=True, mode="python")
    return dump(_plain(tree))


def _plain(value: Any) -> Any:
    """Replace tuples by lists, for YAML."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


_last: list[tuple[Campaign, list[Cell]]] = []
"""The cells that `cells` returned last, which a report needs three times."""


def cells(campaign: Campaign) -> list[Cell]:
    """All cells of all studies, in the order of the file.

    Raises:
        InputError: A scenario is not valid; the message names study and axes. Or there are more
            cells than `MOST_CELLS`.
    """
    if _last and _last[0][0] is campaign:
        return list(_last[0][1])
    total = 0
    for name, study in campaign.studies.items():
        count = _count(campaign, study)
        total += count
        if total > MOST_CELLS:
            raise InputError(
                f"{campaign.name}: studies.{name}: {count:,} cells make {total:,} in the campaign, "
                f"which may have {MOST_CELLS:,}"
            )
    if total > MANY_CELLS:
        log.info("%s: checking the scenarios of %s cells", campaign.name, f"{total:,}")
    found = [cell for name in campaign.studies for cell in _cells(campaign, name)]
    _last[:] = [(campaign, found)]
    return list(found)


def _count(campaign: Campaign, study: Study) -> int:
    """Number of cells of a study; an upper limit if random values decide what is emulated."""
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
    extra = {key: keys[key] for key in PointOptions.model_fields if key in keys}
    if mode == "up":
        extra["reads"] = campaign.studies[study].reads
    elif requested := set(campaign.studies[study].requested_metrics) - set(learned.NAMES):
        extra["metrics"] = sorted({metrics.base_of(name) for name in requested})
    for key, value in keys.items():
        if key not in extra:
            put(tree, key, value, f"{source}: {key}")
    put(tree, "seed", seed, source)
    scenario = with_epochs(tree, source)
    try:
        options = PointOptions.model_validate(extra)
        _check_learning(mode, scenario, options, campaign.studies[study].of_learning)
        return point_of(
            mode, scenario, campaign.studies[study].trace, campaign.steps_rounds, options
        )
    except ValidationError as error:
        problem = explain(error.errors(include_url=False), PointOptions)
        raise InputError(f"{source}: {problem}") from None
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def _check_learning(
    mode: Mode, scenario: Scenario, options: PointOptions, needing: Sequence[str]
) -> None:
    """Refuse a point that does not learn and must, or learns twice.

    Args:
        mode: Mode of the point.
        scenario: Its scenario.
        options: Its options.
        needing: Keys of the study that need what was learned.

    Raises:
        InputError: One line that names the key.
    """
    itself = mode == "run" and scenario.workload.compute != "none"
    if options.learn:
        if itself:
            raise InputError("learn: the run learns itself, unless workload.compute is 'none'")
        if why := why_inexact(scenario):
            raise InputError(f"learn: {why}")
    if needing and not (itself or options.learn):
        raise InputError(f"{needing[0]}: needs `set: {{learn: true}}`, or runs that learn")
    if needing and not scenario.workload.evaluate_every:
        raise InputError(f"{needing[0]}: needs workload.evaluate_every, which is 0")


DEFAULT_OPTIONS = PointOptions()


def point_of(
    mode: Mode,
    scenario: Scenario,
    trace: str | None,
    steps_rounds: int,
    options: PointOptions = DEFAULT_OPTIONS,
) -> Point:
    """Make a point and its ID.

    Raises:
        InputError: A file that the scenario names is missing, or the options do not fit the mode.
    """
    for key in options.model_dump(exclude_defaults=True):
        if (key in SessionRequest.model_fields) != (mode == "up"):
            which = "only for sessions (mode 'up')" if mode != "up" else "not for sessions"
            if mode == "up" or key in SessionRequest.model_fields:
                raise InputError(f"{key}: is {which}")
        elif mode == "run" and key not in ("metrics", "learn"):
            raise InputError(f"{key}: is only for predicted points")
    if mode == "up":
        check(scenario, options)
    asked = {
        "run": mode == "run",
        "bound_rounds": options.bound_rounds,
        "train": options.train is not None,
    }
    commands = [command for command, given in asked.items() if given]
    check_combinations(scenario, "", *commands)
    if options.train is not None and trace is not None:
        raise InputError("train: an agent learns on ns-3's channel, not on a trace")
    if options.train is not None and options.bound_rounds:
        raise InputError("bound_rounds: not supported together with `train`")
    if options.train is not None and options.learn:
        raise InputError("learn: not supported together with `train`")
    if options.train is not None and options.metrics:
        raise InputError(f"metrics: {options.metrics[0]} is not supported together with `train`")
    named = named_files(scenario, trace) + (named_programs(scenario) if mode == "up" else [])
    files = {path: digest_of(Path(path)) for path in named}
    if trace is not None:
        check_channel(scenario, _trace_of(trace, files[trace]), *commands)
    digest = identity(mode, scenario, trace, steps_rounds, options, files)
    return Point(mode, scenario, trace, steps_rounds, options, digest, files)


def named_files(scenario: Scenario, trace: str | None) -> list[str]:
    """Paths of the files that a point reads."""
    data, weights = scenario.workload.data.source, scenario.workload.weights
    folder, tokenizer = model_folder(scenario.workload.model), scenario.workload.data.tokenizer
    return [
        path
        for path, is_path in (
            (trace, trace is not None),
            (scenario.allocation.agent, scenario.allocation.kind.is_trained),
            (weights, weights is not None and weights != "pretrained"),
            (data, data != "synthetic"),
            (folder, True),
            (tokenizer, tokenizer != "bytes"),
        )
        if is_path and path is not None
    ]


def identity(
    mode: Mode,
    scenario: Scenario,
    trace: str | None,
    steps_rounds: int,
    options: PointOptions,
    files: dict[str, str],
) -> str:
    """The ID of a point: 16 hexadecimal digits of a SHA-256 of everything that affects its result.

    That is the mode, every key of the resolved scenario except its name, the contents of the files
    that it names (not their paths), the number of rounds whose steps are stored, and the options.
    The program's revision is not included; the point's manifest has it.
    """
    tree = scenario.model_dump(mode="json", exclude={"name"})
    content = {
        "mode": mode,
        "scenario": _by_content(tree, files),
        "trace": None if trace is None else files[trace],
        "steps_rounds": steps_rounds if mode == "predict" else None,
        **options.model_dump(exclude_defaults=True),
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


@lru_cache(maxsize=2)
def _trace_of(path: str, digest: str) -> SlotTrace:
    """The trace of a study, which is read once for its points."""
    return read_trace(Path(path))


@cache
def digest_of(path: Path) -> str:
    """SHA-256 of a file, or of all files in a folder with their names.

    Raises:
        InputError: The path does not exist or cannot be read.
    """
    digest = hashlib.sha256()
    try:
        inside = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        for file in inside:
            digest.update(f"{file.relative_to(path)}\0".encode() + bytes.fromhex(sha256_of(file)))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    return digest.hexdigest()
