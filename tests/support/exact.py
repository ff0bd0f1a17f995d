# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Runs in virtual time, held against their prediction step by step; see `in_guest`."""

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
import yaml
from in_guest import play
from small_scenario import TREE

SMALL: dict[str, Any] = TREE | {"emulation": {"clock": "virtual", "calibrate": False}}
WITHIN_S = 1e-3
"""A frame takes about as long on these links."""
RESUMED_S = 6e-3
"""Some frames more or less: of a link that comes back, or of a header that is refused."""
Run = tuple[str, dict[str, Any], list[str]]
"""A name, a scenario and further words."""
Played = tuple[Path, dict[str, "CompletedProcess[str]"]]
"""The folder in which runs were played, and how each command ended."""


def played(folder: Path, runs: Iterable[Run]) -> Played:
    """Play runs on a channel of their own."""
    slots = np.arange(400)
    gain = np.array([3e-10, 2e-10, 1e-10])[:, None] * np.exp(0.3 * np.sin(slots))
    np.savez(folder / "trace.npz", gain=gain, slot_s=0.1)
    commands = {}
    for name, tree, words in runs:
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(tree))
        trace = [] if "--trace" in words else ["--trace", "trace.npz"]
        commands[name] = ["run", f"{name}.yaml", "--json", f"{name}.json", *trace, *words]
    return folder, play(folder, commands)


def wanted(request: pytest.FixtureRequest, all_: Iterable[Run], long: Collection[str]) -> list[Run]:
    """The runs that tests of the file that asks need: the long ones only where `full` tests run."""
    chosen = (item for item in request.session.items if item.path == request.path)
    every = any(item.get_closest_marker("full") for item in chosen)
    return [run for run in all_ if every or run[0] not in long]


def each(names: Iterable[str], long: Collection[str]) -> list[Any]:
    """Parameters of a test, of which some are for `full`."""
    return [pytest.param(name, marks=pytest.mark.full if name in long else ()) for name in names]


def result(played: Played, name: str) -> dict[str, Any]:
    """What a run that went well has written."""
    folder, done = played
    assert done[name].returncode == 0, done[name].stderr
    return dict(json.loads((folder / f"{name}.json").read_text()))


def spans(round_: dict[str, Any]) -> dict[tuple[int, int, str], tuple[float, float]]:
    """Start and end of each step, from the round's start."""
    return {
        (step["client"], step["iteration"], step["step"]): (
            step["start_s"] - round_["start_s"],
            step["end_s"] - round_["start_s"],
        )
        for step in round_["steps"]
    }


def assert_exact(run: dict[str, Any], within_s: float = WITHIN_S) -> None:
    """The same steps at the same moments, in every round."""
    for predicted, measured in zip(run["predicted_wire"], run["measured"], strict=True):
        due, seen = spans(predicted), spans(measured)
        assert seen.keys() == due.keys()
        for step, moments in due.items():
            assert seen[step] == pytest.approx(moments, abs=within_s), step
