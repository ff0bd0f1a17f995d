# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The state of a run after each round, from which a killed run is resumed.

The folder of an incomplete run has a folder `checkpoint/` with a `round-N.npz` for each complete
round, which contains its record and the set-ups before it, and the global state after the last
round. The file of a round is renamed into place after its state, so all files there are complete
and consistent. Records name their types by the tags of `TYPES`, which do not change when modules
move. Optimisers and data need no state: they restart with each round, by seed, client and
iteration.

`testbed learn` keeps its tables in the same way (`LearnedRound`).
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ns3_scenarios.trace import SlotTrace, TwoWay
from orchestrator.analysis.error_budget import Budget
from orchestrator.engine.plan import Allocation
from orchestrator.records.emulation import CloudRecord, Emulation, PlayedRound, RoundRecord, SetUp
from orchestrator.rounds.loop import Decision
from orchestrator.scenario.schema import Scenario
from testbed.control.messages import Captured, Direction
from testbed.core.errors import InputError
from testbed.core.timeline import BackhaulTransfer, Loss, Round
from testbed.core.words import why
from testbed.network.injector import ImpairmentCounts, Report
from testbed.system.files import read_json, write_json, write_whole
from testbed.system.machine import Machine

FOLDER = "checkpoint"
FORMAT = 2
"""Version of the file format; version 1 named types by their modules."""
TYPES: dict[str, type] = {
    "air-counts": ImpairmentCounts,
    "allocation": Allocation,
    "backhaul-transfer": BackhaulTransfer,
    "budget": Budget,
    "captured": Captured,
    "cloud-record": CloudRecord,
    "decision": Decision,
    "direction": Direction,
    "loss": Loss,
    "played-round": PlayedRound,
    "machine": Machine,
    "report": Report,
    "round": Round,
    "round-record": RoundRecord,
    "set-up": SetUp,
}
"""The types of a record, by the tags under which they are stored."""
KINDS = {"round": "run", "learned": "learn"}
"""Command that continues from a checkpoint, by the entry that each of its rounds has."""
_NEWS = {True: "has changed", False: "is new"}


@dataclass(frozen=True)
class LearnedRound:
    """What `testbed learn` keeps of a round."""

    tables: list[pd.DataFrame]
    """Its batches and evaluations, in order."""
    diverged: list[int]
    """Clients whose model had values that are not finite."""
    random: np.ndarray[Any, Any]
    """State of torch's random generator, which models and rules of packages may use."""
    best_sha256: str | None
    """Digest of the file of the best state; None: nothing was evaluated."""


TYPES["learned-round"] = LearnedRound
_TAGS = {type_: tag for tag, type_ in TYPES.items()}


class Checkpoint:
    """The checkpoint in a run's folder; rounds are numbered from 0."""

    def __init__(self, run_folder: Path):
        self._folder = run_folder / FOLDER
        self._rounds_kept = self._set_ups_kept = 0

    @property
    def rounds(self) -> int:
        """Number of complete rounds."""
        count = 0
        while self._round(count).is_file():
            count += 1
        return count

    def sessions(self, about: dict[str, Any]) -> list[dict[str, Any]]:
        """Start time, code version and completed rounds of each start and resumption of the run.

        Args:
            about: Manifest of the current session, which is added to the stored ones.
        """
        path = self._folder / "sessions.json"
        known = _read_json(path, "the times of earlier starts") if path.exists() else []
        session = {key: about[key] for key in ("started", "revision", "dirty")}
        known.append(session | {"after_rounds": self.rounds})
        self._folder.mkdir(exist_ok=True)
        write_json(path, known)
        return list(known)

    def check_inputs(self, digests: Mapping[str, Mapping[str, str]]) -> None:
        """Check that a resumed run has the data, weights and plug-ins with which it began.

        Args:
            digests: By the scenario's key: digests of files, folders or packages, by their names.

        Raises:
            InputError: The inputs differ; the message names the key and the change.
        """
        path = self._folder / "inputs.json"
        # A run without rounds starts again.
        if self.rounds and path.exists():
            began = _read_json(path, "the comparison with the inputs of the run's beginning")
            for key in sorted(began.keys() | digests.keys()):
                before, after = began.get(key, {}), digests.get(key, {})
                if changes := [
                    f"{name} {'is gone' if name not in after else _NEWS[name in before]}"
                    for name in sorted(before.keys() | after.keys())
                    if before.get(name) != after.get(name)
                ]:
                    more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
                    raise InputError(
                        f"`resume`: {key}: since the run began, {', '.join(changes[:3])}{more}"
                    )
        self._folder.mkdir(exist_ok=True)
        write_json(path, digests)

    def save(self, done: Emulation) -> None:
        """Store the last round and the set-ups before it, unless they are already stored."""
        index = len(done.rounds) - 1
        if index < self._rounds_kept:
            return
        kept = {
            "channel_sha256": _digest(done.channel.now, done.rounds[index].measured),
            "set_ups": done.set_ups[self._set_ups_kept :],
            "round": done.rounds[index],
        }
        self._store(index, kept, done.state)
        self._rounds_kept, self._set_ups_kept = index + 1, len(done.set_ups)

    def save_learned(self, index: int, done: LearnedRound, state: bytes) -> None:
        """Store a round of `testbed learn`, and the state after it as a safetensors file."""
        self._store(index, {"learned": done}, state)

    def _store(self, index: int, kept: dict[str, Any], state: bytes) -> None:
        kept |= {"format": FORMAT, "state_sha256": hashlib.sha256(state).hexdigest()}
        write_whole(self._state(index), lambda part: part.write_bytes(state))
        write_whole(self._round(index), partial(_write, kept))
        if index:
            self._state(index - 1).unlink(missing_ok=True)

    def learned(self, scenario: Scenario) -> tuple[list[LearnedRound], bytes]:
        """The complete rounds of `testbed learn`, and the state after them.

        Raises:
            InputError: A file is broken or of another format; the message names it.
        """
        kept = [self._kept(index, "learned") for index in range(self.rounds)]
        if not kept:
            return [], b""
        state = self._state(len(kept) - 1)
        data = _state(state, scenario)
        if hashlib.sha256(data).hexdigest() != kept[-1]["state_sha256"]:
            raise InputError(
                f"`resume`: {state}: is not the state that was written after its round"
            )
        return [each["learned"] for each in kept], data

    def restore(self, done: Emulation) -> None:
        """Restore a run to its state after the last complete round.

        Raises:
            InputError: The run has another channel than these rounds, or a file is broken or of
                another format.
        """
        rounds = self.rounds
        for index in range(rounds):
            kept = self._kept(index, "round")
            played: RoundRecord | CloudRecord = kept["round"]
            if isinstance(played, CloudRecord) == (done.scenario.topology is None):
                raise InputError(
                    f"`resume`: {self._round(index)}: an earlier version merged edge rounds; "
                    "resume it with the version that started it, or start again with `overwrite`"
                )
            done.set_ups += kept["set_ups"]
            done.rounds.append(played)
            decision = played.decision
            done.channel.fly(decision.start_s, decision.allocation.position_m)
            slots = _slots(played.measured, done.channel.slot_s).stop
            if _digest(done.channel.trace(slots), played.measured) != kept["channel_sha256"]:
                raise InputError("`trace`: not the channel with which the run began")
        self._rounds_kept, self._set_ups_kept = rounds, len(done.set_ups)
        if rounds:
            done.state = _state(self._state(rounds - 1), done.scenario)

    def _kept(self, index: int, entry: str) -> dict[str, Any]:
        path = self._round(index)
        try:
            tree, arrays = _read(path)
            # Files of format 1 have no number.
            if (found := dict(tree.get("dict", [])).get("format", 1)) == FORMAT:
                kept: dict[str, Any] = _unpacked(tree, arrays)
                found = next((kind for kind in KINDS if kind in kept), "")
                if found == entry:
                    return kept
        except Exception as error:  # numpy, zipfile and changed classes raise many types
            raise InputError(f"`resume`: {path}: cannot be read ({why(error)})") from None
        if found in KINDS:
            raise InputError(
                f"`resume`: {path}: is of `testbed {KINDS[found]}`, not of this command"
            )
        raise InputError(
            f"`resume`: {path}: a checkpoint of format {found}, and this version reads {FORMAT}; "
            "resume it with the version that started it, or start again with `overwrite`"
        )

    def _round(self, index: int) -> Path:
        return self._folder / f"round-{index:06d}.npz"

    def _state(self, index: int) -> Path:
        return self._folder / f"state-{index:06d}.safetensors"


def _read_json(path: Path, what: str) -> Any:
    """A JSON value, without which a run can be resumed; `what` is then missing.

    Raises:
        InputError: The file is broken.
    """
    try:
        return read_json(path)
    except InputError as error:
        raise InputError(f"`resume`: {error}; without this file, only {what} is missing") from None


def _state(path: Path, scenario: Scenario) -> bytes:
    """The global state in a safetensors file, if the scenario trains a model; otherwise empty."""
    if scenario.workload.compute == "none":
        return b""
    import safetensors

    try:
        # Compares the header with the length of the file; nothing else is read.
        with safetensors.safe_open(path, "np"):
            return path.read_bytes()
    except (OSError, safetensors.SafetensorError) as error:
        raise InputError(f"`resume`: {path}: cannot be read ({str(error)[:200]})") from None


def _slots(played: Round, slot_s: float) -> slice:
    end_s = played.start_s + played.latency_s
    return slice(int(played.start_s / slot_s), math.ceil(end_s / slot_s))


def _digest(channel: SlotTrace, played: Round) -> str:
    part = channel.values[:, _slots(played, channel.slot_s)]
    gain = part.values if isinstance(part, TwoWay) else part
    return hashlib.sha256(np.ascontiguousarray(gain).tobytes()).hexdigest()


# --- records as files: arrays in NumPy's format, all else as JSON, no code --------------


def _write(record: Any, path: Path) -> None:
    arrays: list[np.ndarray[Any, Any]] = []
    tree = json.dumps(_packed(record, arrays)).encode()
    with path.open("wb") as file:
        np.savez(file, np.frombuffer(tree, np.uint8), *arrays)


def _read(path: Path) -> tuple[Any, list[np.ndarray[Any, Any]]]:
    with np.load(path, allow_pickle=False) as file:
        tree, *arrays = (file[f"arr_{index}"] for index in range(len(file.files)))
    return json.loads(tree.tobytes()), arrays


def _packed(value: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    """A JSON value; arrays are put into the list, and dataclasses go by their names."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return {"strings": value.tolist()}
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [_packed(item, arrays) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[key, _packed(item, arrays)] for key, item in value.items()]}
    if isinstance(value, pd.DataFrame):
        columns = [[name, _packed_column(value[name], arrays)] for name in value.columns]
        return {"frame": columns}
    if (tag := _TAGS.get(type(value))) is not None:
        packed = {f.name: _packed(getattr(value, f.name), arrays) for f in fields(value)}
        return {"type": tag, "of": packed}
    raise TypeError(f"a run's record cannot hold a {type(value).__name__}")


def _packed_column(column: "pd.Series[Any]", arrays: list[np.ndarray[Any, Any]]) -> Any:
    if isinstance(column.dtype, pd.CategoricalDtype):
        arrays.append(column.cat.codes.to_numpy())
        categories = column.cat.categories.tolist()
        return {"codes": len(arrays) - 1, "categories": categories, "ordered": column.cat.ordered}
    return _packed(column.to_numpy(), arrays)


def _unpacked(tree: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    if not isinstance(tree, dict):
        return tree
    kind = next(iter(tree))
    content = tree[kind]
    if kind == "array":
        return arrays[content]
    if kind == "strings":
        return np.array(content, dtype=object)
    if kind == "codes":
        codes, categories = arrays[content], tree["categories"]
        return pd.Categorical.from_codes(codes, categories=categories, ordered=tree["ordered"])
    if kind in ("dict", "frame"):
        items = {key: _unpacked(item, arrays) for key, item in content}
        return items if kind == "dict" else pd.DataFrame(items)
    if kind in ("list", "tuple"):
        sequence = [_unpacked(item, arrays) for item in content]
        return sequence if kind == "list" else tuple(sequence)
    values = {key: _unpacked(item, arrays) for key, item in tree["of"].items()}
    return TYPES[content](**values)
