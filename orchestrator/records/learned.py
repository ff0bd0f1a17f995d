# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Trajectories that were learned once without a network, and the times that rounds give them.

If every client has its own server-side set and all clients of a round finish it, the result of
learning does not depend on when messages arrive. Such a trajectory can be timed by any rounds with
the same clients, predicted or emulated: each batch gets the time at which its server pass ends, and
each evaluation the time at which its round ends. `orchestrator.emulated.trajectory` computes it.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from orchestrator.analysis.learned import curve_of
from orchestrator.records.directory import MANIFEST, SCENARIO
from orchestrator.records.reader import read_object
from orchestrator.records.results import Result
from orchestrator.records.session_reader import PlayedSession
from orchestrator.records.tables import TABLES, TEXT, Absent, read_table
from orchestrator.scenario.combinations import refusals
from orchestrator.scenario.loading import validate
from orchestrator.scenario.schema import Participation, Scenario, Workload
from testbed.core import trees
from testbed.core.errors import InputError
from testbed.core.timeline import S, Timeline
from testbed.system.files import write_whole
from workloads.models.language import is_language

KIND = "learned"
"""`kind` in the manifest of a folder with a trajectory."""
STATE = "adapters.safetensors"
BEST = "best.safetensors"
"""The state of the best evaluation, as `STATE`; missing if nothing was evaluated."""
CURVES = "curves.parquet"
"""Evaluations with the costs of predicted rounds, a result of `curve_of`."""
OF_SEED = "seed-"
"""Beginning of the name of a folder for one of several seeds."""
WITHOUT_EFFECT = (
    *("compute", "compute_time", "profile", "backward_ratio"),
    *("recompute", "wire_error", "evaluate_every", "evaluate_samples", "asynchronous"),
)
"""Keys of the workload that have no effect on learning."""
KNOWN = (
    *WITHOUT_EFFECT,
    *("model", "parameters", "classes", "split", "local_iterations", "batch_size"),
    *("lora_rank", "lora_alpha", "lora_targets", "lora_dropout", "adapters"),
    *("learning_rate", "optimiser", "weight_decay", "dtype", "wire_dtype", "wire_parameters"),
    *("weights", "head", "image_size", "data", "aggregation", "aggregation_parameters"),
    *("local_step", "local_step_parameters"),
    *("server_adapters", "clients_per_pass", "codecs", "gradient_aggregation"),
    *("train_head", "sequence_length", "batch_norm", "momentum", "clip_norm", "accumulate"),
    *("learning_rate_schedule", "learning_rate_warmup", "learning_rate_step"),
    *("learning_rate_decay", "learning_rate_last"),
    *("sampling", "last_batch", "local_epochs"),
)
"""Keys of the workload whose effect on a trajectory is known."""
KNOWN_PARTICIPATION = ("clients", "rule", "parameters", "deadline_s")
OVER_ALL_ROUNDS = ("cosine", "linear")
"""Schedules of learning rates that end with the last round."""
OF_NODES = ("base_station.device", "base_station.threads", "uavs.device", "uavs.threads")
"""Keys of the nodes that decide the last bits of sums."""


def why_inexact(scenario: Scenario) -> str:
    """Reason for which the result of learning depends on times: one line that begins with a key;
    empty if it does not."""
    return next(_reasons(scenario), "")


def _reasons(scenario: Scenario) -> Iterator[str]:
    workload, part = scenario.workload, scenario.participation
    yield from refusals(scenario, "learn")
    for name, section, default, known in (
        ("workload", workload, Workload(), KNOWN),
        ("participation", part, Participation(), KNOWN_PARTICIPATION),
    ):
        for key in type(section).model_fields:
            if key not in known and getattr(section, key) != getattr(default, key):
                yield f"{name}.{key}: it is not known that what is learned does not depend on times"


def depends_on(scenario: Scenario) -> dict[str, Any]:
    """The scenario's values by dotted key that a trajectory depends on, except the rounds."""
    left_out = {*WITHOUT_EFFECT, *(() if scenario.workload.why_split_matters else ("split",))}
    tree = scenario.model_dump(mode="json")
    return {
        "seed": scenario.seed,
        "uavs.count": scenario.uavs.count,
        **{key: attrgetter(key)(scenario) for key in OF_NODES},
        **trees.flat(
            {
                "workload": {k: v for k, v in tree["workload"].items() if k not in left_out},
                "participation": tree.get("participation", {}),
            }
        ),
    }


@dataclass(frozen=True)
class Trajectory:
    """Losses, accuracies and models of a training, round by round."""

    folder: str
    scenario: Scenario
    table: pd.DataFrame
    """The columns of `learning.parquet` except `time_s`."""
    decided: bool = False
    """Whether a policy decided on something that learning depends on."""

    def check(self, scenario: Scenario) -> None:
        """Refuse a scenario whose learning has another result.

        Raises:
            InputError: The scenario does not fit; the message names the key in one line.
        """
        if why := why_inexact(scenario):
            raise InputError(f"{why}; {self.folder} cannot be timed by it")
        if scenario.rounds > self.scenario.rounds:
            raise InputError(
                f"rounds: {self.folder} has learned {self.scenario.rounds}, not {scenario.rounds}"
            )
        schedule = scenario.workload.learning_rate_schedule
        if schedule in OVER_ALL_ROUNDS and scenario.rounds != self.scenario.rounds:
            raise InputError(
                f"rounds: must be {self.scenario.rounds} as in {self.folder}, because "
                f"workload.learning_rate_schedule {schedule!r} depends on them; not "
                f"{scenario.rounds}"
            )
        both = [depends_on(each) for each in (self.scenario, scenario)]
        if self.decided:
            for tree, each in zip(both, (self.scenario, scenario), strict=True):
                tree |= trees.flat({"allocation": each.allocation.model_dump(mode="json")})
        differ = trees.differing(both)
        for key, (ours, theirs) in differ.items():
            raise InputError(
                f"{key}: {self.folder} was learned with {_shown(ours)}, not with {_shown(theirs)}"
            )

    @property
    def curve(self) -> pd.DataFrame:
        """The evaluations on held-out data as of `curve_of`, with costs that are NaN."""
        curve = curve_of(self.table.assign(time_s=self.table["round"]), Timeline([]))
        return curve.assign(time_s=np.nan, energy_j=np.nan, bytes=np.nan)

    def as_result(self, curve: pd.DataFrame) -> Result:
        """The training as a result without rounds, which ends with the last evaluation.

        Args:
            curve: A result of `curve_of` for this trajectory. Batches have the time of the end of
                their round, linearly interpolated where this round was not evaluated. Without
                times, a round counts as a second.
        """
        done = self.table["round"].to_numpy(float) + 1
        known = curve[np.isfinite(curve["time_s"].astype(float))].drop_duplicates("round")
        time_s = np.interp(done, known["round"], known["time_s"]) if len(known) else done
        return Result(
            name=self.folder,
            scenario=self.scenario,
            execution="learned",
            timeline=Timeline([]),
            prediction=Timeline([]),
            learning=self.table.assign(time_s=time_s),
        )

    def timed(self, scenario: Scenario, timeline: Timeline) -> pd.DataFrame:
        """The table `learning.parquet` of these rounds.

        Args:
            scenario: Scenario of the rounds.
            timeline: Rounds, predicted or measured, from the first on.

        Returns:
            The trajectory's rows of these rounds with `time_s`: the end of the batch's server
            pass, or the end of the round of an evaluation.

        Raises:
            InputError: The learning of the scenario has another result; or rounds lack steps that
                the trajectory has, or have more.
        """
        self.check(scenario)
        rounds = [round_.index for round_ in timeline]
        if rounds != list(range(len(rounds))):
            raise InputError(f"rounds: {self.folder} can be timed only from the first round on")
        table = self.table[self.table["round"] < len(rounds)]
        ends_s = {
            (round_.index, int(span["client"]), int(span["iteration"])): float(span["end_s"])
            for round_ in timeline
            for span in round_.spans[round_.spans["step"] == S]
        }
        train = table["data"] == "train"
        places = list(zip(table["round"], table["client"], table["iteration"], strict=True))
        batches = {place for place, is_batch in zip(places, train, strict=True) if is_batch}
        if batches != ends_s.keys():
            round_, client, iteration = min(batches ^ ends_s.keys())
            raise InputError(
                f"round {round_}: the rounds and {self.folder} differ in UAV {client}, iteration "
                f"{iteration}"
            )
        after_s = {-1: 0.0} | {round_.index: round_.end_s for round_ in timeline}
        times = [
            ends_s[place] if is_batch else after_s[place[0]]
            for place, is_batch in zip(places, train, strict=True)
        ]
        made = table.reset_index(drop=True)
        made.insert(list(made.columns).index("loss"), "time_s", np.array(times, float))
        return made


def _shown(value: Any) -> str:
    return "its default" if value is None else repr(value)


def measure_of(scenario: Scenario) -> str:
    """The measure by which a scenario's model is judged: accuracy, or perplexity of language."""
    return "perplexity" if is_language(scenario.workload.model) else "accuracy"


def is_trajectory(folder: Path) -> bool:
    """Whether a folder contains a trajectory."""
    return (folder / MANIFEST).is_file() and read_object(folder / MANIFEST).get("kind") == KIND


def read_trajectory(folder: Path) -> Trajectory:
    """Read a folder that `testbed learn` has written.

    Raises:
        InputError: The folder is not a trajectory, or is broken; the message names the file.
    """
    if not is_trajectory(folder):
        raise InputError(f"{folder}: is not a folder of `testbed learn`")
    tree = read_object(folder / SCENARIO)
    scenario = validate(tree, f"{folder / SCENARIO}")
    columns = {name: column for name, column in TABLES["learning"].items() if name != "time_s"}
    file = folder / f"{KIND}.parquet"
    try:
        table = read_table(file, scenario, columns | {"data": TEXT})
    except Absent as error:
        raise InputError(f"{file}: {error}") from None
    decided = read_object(folder / MANIFEST).get("decided") is True
    return Trajectory(str(folder), scenario, table, decided)


def has_trajectories(folder: Path) -> bool:
    """Whether a folder contains a trajectory, or those of several seeds."""
    return is_trajectory(folder) or bool(_of_seeds(folder))


def _of_seeds(folder: Path) -> list[Path]:
    """Folders of several seeds in a folder that is no trajectory itself."""
    if (folder / MANIFEST).exists():
        return []
    return [path for path in sorted(folder.glob(f"{OF_SEED}*")) if is_trajectory(path)]


def read_trajectories(folder: Path) -> list[Trajectory]:
    """Read a folder of `testbed learn`: its trajectory, or those of its seeds, by seed.

    Raises:
        InputError: See `read_trajectory`.
    """
    found = [read_trajectory(path) for path in _of_seeds(folder) or [folder]]
    return sorted(found, key=lambda each: each.scenario.seed)


def with_learning(
    results: Sequence[Result | PlayedSession], given: Sequence[Trajectory]
) -> list[Result | PlayedSession]:
    """The results, with the learning of the trajectory of their seed where they have none.

    Raises:
        InputError: A result has no scenario, or no trajectory fits it; the message names the key.
    """
    return [
        _joined(result, given)
        if given and isinstance(result, Result) and not len(result.learning)
        else result
        for result in results
    ]


def trajectory_for(scenario: Scenario, given: Sequence[Trajectory]) -> Trajectory | None:
    """The trajectory of the scenario's seed, which fits the scenario; None if none is given.

    Raises:
        InputError: See `Trajectory.check`.
    """
    same = [each for each in given if each.scenario.seed == scenario.seed]
    for chosen in [*same, *given][:1]:
        chosen.check(scenario)
        return chosen
    return None


def _joined(result: Result, given: Sequence[Trajectory]) -> Result:
    if result.scenario is None:
        raise InputError(f"{result.name}: has no scenario, so nothing learned can be timed by it")
    try:
        chosen = trajectory_for(result.scenario, given)
        assert chosen is not None
        learning = chosen.timed(result.scenario, result.timeline)
    except InputError as error:
        raise InputError(f"{result.name}: {error}") from None
    return replace(result, learning=learning)


def write_trajectory(
    folder: Path, scenario: Scenario, table: pd.DataFrame, about: dict[str, Any], state: bytes
) -> None:
    """Write the files of a trajectory into an existing folder, the manifest last."""
    table.to_parquet(folder / f"{KIND}.parquet", index=False)
    (folder / STATE).write_bytes(state)
    described = {SCENARIO: scenario.model_dump(mode="json"), MANIFEST: about | {"kind": KIND}}
    for name, tree in described.items():
        text = json.dumps(tree, indent=1) + "\n"
        write_whole(folder / name, partial(Path.write_text, data=text, encoding="utf-8"))
