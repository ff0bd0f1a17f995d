"""What a run leaves after each round, so that one that was killed can go on.

The folder of a run that is not complete holds `checkpoint/`: a `round-N.npz` for each whole round,
with all that the round added to the run's record, and the global state after the last of them. A
round's file is renamed into place after its state, so what is there is whole and belongs together.
Optimisers and data need no more: they begin anew with each round, by seed, client and iteration.
"""

import hashlib
import importlib
import json
import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ns3_scenarios.trace import ChannelSource, ChannelTrace
from orchestrator.emulation.record import Emulation
from orchestrator.prediction.rounds import longer
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.timeline import Round
from testbed.system.files import write_json, write_whole

FOLDER = "checkpoint"
OURS = ("orchestrator", "testbed", "workloads", "ns3_scenarios")
_APART = {"scenario", "channel", "state"}
"""Not in a round's file: the run is told the first two again, and only the last state is of use."""


class Checkpoint:
    """The checkpoint in a run's folder; its rounds count from 0."""

    def __init__(self, run_folder: Path):
        self._folder = run_folder / FOLDER
        self._kept: dict[str, int] = {}

    @property
    def rounds(self) -> int:
        """How many whole rounds it holds."""
        count = 0
        while self._round(count).is_file():
            count += 1
        return count

    def sessions(self, about: dict[str, Any]) -> list[dict[str, Any]]:
        """When, with what code and after how many rounds the run was begun and resumed.

        Args:
            about: The manifest of the session that begins; it is remembered from now on.
        """
        path = self._folder / "sessions.json"
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        session = {key: about[key] for key in ("started", "revision", "dirty")}
        known.append(session | {"after_rounds": self.rounds})
        self._folder.mkdir(exist_ok=True)
        write_json(path, known)
        return list(known)

    def save(self, done: Emulation) -> None:
        """Keep what the last measured round added, if it is not kept already."""
        index = len(done.measured) - 1
        if self._kept.get("measured", 0) > index:
            return
        record: dict[str, Any] = {"channel_sha256": _digest(done.channel, done.measured[index])}
        for field in fields(done):
            value = getattr(done, field.name)
            if field.name in _APART:
                continue
            if isinstance(value, list):
                start = self._kept.get(field.name, 0)
                self._kept[field.name] = len(value)
                value = value[start:]
            record[field.name] = value
        write_whole(self._state(index), lambda part: part.write_bytes(done.state))
        write_whole(self._round(index), partial(_write, record))
        if index:
            self._state(index - 1).unlink(missing_ok=True)

    def restore(self, done: Emulation, source: ChannelSource) -> None:
        """Make a run that has just begun what it was after the last whole round.

        Raises:
            InputError: The source's channel is not the one of these rounds, or a file is broken.
        """
        rounds = self.rounds
        for index in range(rounds):
            try:
                record = _read(self._round(index))
            except Exception as error:  # whatever numpy, zipfile and a changed class come up with
                path = self._round(index)
                raise InputError(f"--resume: {path}: cannot be read ({error})") from None
            sha256 = record.pop("channel_sha256")
            for name, value in record.items():
                if isinstance(value, list):
                    getattr(done, name).extend(value)
                    self._kept[name] = len(getattr(done, name))
                else:
                    setattr(done, name, value)
            played = done.measured[-1]
            slots = _slots(played, done.channel.slot_s).stop
            if done.channel.slots < slots:
                done.channel = longer(source, 2 * slots)
            if _digest(done.channel, played) != sha256:
                raise InputError("--trace: not the channel with which the run began")
        if rounds:
            done.state = _state(self._state(rounds - 1), done.scenario)

    def _round(self, index: int) -> Path:
        return self._folder / f"round-{index:06d}.npz"

    def _state(self, index: int) -> Path:
        return self._folder / f"state-{index:06d}.safetensors"


def _state(path: Path, scenario: Scenario) -> bytes:
    """The global state in a file, if the scenario learns: a safetensors file."""
    if scenario.workload.compute == "none":
        return b""
    import safetensors

    try:
        # Holds the header against the file's length; nothing else is read.
        with safetensors.safe_open(path, "np"):
            return path.read_bytes()
    except (OSError, safetensors.SafetensorError) as error:
        raise InputError(f"--resume: {path}: cannot be read ({str(error)[:200]})") from None


def _slots(played: Round, slot_s: float) -> slice:
    end_s = played.start_s + played.latency_s
    return slice(int(played.start_s / slot_s), math.ceil(end_s / slot_s))


def _digest(channel: ChannelTrace, played: Round) -> str:
    gain = channel.gain[:, _slots(played, channel.slot_s)]
    return hashlib.sha256(np.ascontiguousarray(gain).tobytes()).hexdigest()


# --- records as files: arrays in NumPy's format, all else as JSON, nothing that runs --------------


def _write(record: Any, path: Path) -> None:
    arrays: list[np.ndarray[Any, Any]] = []
    tree = json.dumps(_packed(record, arrays)).encode()
    with path.open("wb") as file:
        np.savez(file, np.frombuffer(tree, np.uint8), *arrays, allow_pickle=False)


def _read(path: Path) -> Any:
    with np.load(path, allow_pickle=False) as file:
        tree, *arrays = (file[f"arr_{index}"] for index in range(len(file.files)))
    return _unpacked(json.loads(tree.tobytes()), arrays)


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
    if is_dataclass(value) and not isinstance(value, type):
        packed = {f.name: _packed(getattr(value, f.name), arrays) for f in fields(value)}
        return {"class": f"{type(value).__module__}:{type(value).__qualname__}", "of": packed}
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
    return _dataclass(content)(**values)


def _dataclass(name: str) -> Callable[..., Any]:
    module, _, name_within = name.partition(":")
    if module.partition(".")[0] in OURS:
        found = getattr(importlib.import_module(module), name_within)
        if isinstance(found, type) and is_dataclass(found):
            return found
    raise TypeError(f"{name} is no record of ours")
