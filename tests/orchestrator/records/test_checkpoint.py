# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a run leaves after each round: all of it comes back, and nothing else is taken for it."""

import json
import re
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy

from ns3_scenarios.trace import ChannelTrace, Replay
from orchestrator.analysis.error_budget import Budget
from orchestrator.engine.plan import Allocation
from orchestrator.records.checkpoint import FOLDER, TYPES, Checkpoint, _packed, _unpacked
from orchestrator.records.emulation import Emulation, RoundRecord, SetUp
from orchestrator.rounds.loop import Decision
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.loading import load
from testbed.control.messages import Direction
from testbed.core.errors import InputError
from testbed.core.timeline import SPAN, Loss, Round
from testbed.network.injector import ImpairmentCounts, Report
from testbed.system.machine import Machine

QUICKSTART = Path(__file__).resolve().parents[3] / "scenarios" / "quickstart.yaml"
SCENARIO = load(QUICKSTART).resolved(1.0)
STATE = safetensors.numpy.save({"a": np.arange(3.0)})


def begun(gain: Any = None) -> Emulation:
    """A run that has not played a round; on a channel of slots of 0.1 s."""
    gain = np.arange(1.0, 91).reshape(3, 30) if gain is None else gain
    return Emulation(SCENARIO, Channel(Replay(ChannelTrace(gain, 0.1))))


def record(index: int, start_s: float, latency_s: float) -> RoundRecord:
    """A round with something of everything in it."""
    spans = np.zeros(3, SPAN)
    spans["end_s"] = [start_s + 0.1, start_s + 1 / 3, 1e-17]
    loss = Loss(2, start_s + 0.2, start_s + 0.1, "uav-crash")
    energy = np.array([1.0, np.nan, 3.0])
    round_ = Round(index, "cpsfl", (1, 2, 2), start_s, latency_s, energy, 7.0, spans, (loss,))
    frame = pd.DataFrame({"step": pd.Categorical(["b", "a"], ["b", "a", "c"]), "n": [1, index]})
    ends = [Direction(*range(n, n + len(fields(Direction)))) for n in (1, 2, 3)]
    numbers = np.arange(4)
    air = ImpairmentCounts(numbers, *[numbers.reshape(4, 1, 1)] * 2, numbers.reshape(4, 1, 1) / 3)
    return RoundRecord(
        decision=Decision(index, start_s, Allocation(2, *[np.full(3, 1 / 3)] * 3, (1, 3)), 0.01),
        predicted=round_,
        predicted_wire=replace(round_, latency_s=latency_s + 0.1),
        measured=round_,
        budget=Budget(index, 1.0, 1.5, {"rest": 0.5}, frame),
        waterfall={"compute": 0.25},
        transfers=frame,
        rates=frame,
        injector=frame,
        links=Report(numbers, numbers, numbers, numbers, 5, ends, ends, "fifo", 2, 1, air),
        machine=Machine(1, 2, 3, 4, 5, 6.5),
        accounts=frame,
        rejoined=None,
        overruns_s=[0.1, -0.2],
        learning=None,
        air=frame,
        passes={"passes": [1, 2], "partition": [{0: 3}]},
    )


def set_up(n: int) -> SetUp:
    table = pd.DataFrame({"n": [n]})
    return SetUp(table, table if n % 2 else None, None)


def same(one: Any, other: Any) -> bool:
    """Whether two records hold the same, to the last bit and type."""
    arrays: tuple[list[Any], list[Any]] = ([], [])
    trees = [_packed(value, own) for value, own in zip((one, other), arrays, strict=True)]
    packed = [[(array.dtype.str, array.tobytes()) for array in own] for own in arrays]
    return trees[0] == trees[1] and packed[0] == packed[1]


def kept(folder: Path) -> Emulation:
    """A run of two rounds that kept a checkpoint after each: 0 to 1.05 s, and to 1.65 s."""
    done, checkpoint = begun(), Checkpoint(folder)
    (folder / FOLDER).mkdir()
    done.set_ups.append(set_up(1))
    for n, (start_s, latency_s) in enumerate([(0.0, 1.05), (1.05, 0.6)]):
        done.rounds.append(record(n, start_s, latency_s))
        done.set_ups.append(set_up(n + 2))
        done.state = STATE if n else b"of the first round"
        checkpoint.save(done)
    return done


def test_all_rounds_come_back_and_set_ups_once(tmp_path: Path) -> None:
    done = kept(tmp_path)
    assert sorted(path.name for path in (tmp_path / FOLDER).iterdir()) == [
        "round-000000.npz",
        "round-000001.npz",
        "state-000001.safetensors",
    ]
    back, checkpoint = begun(), Checkpoint(tmp_path)
    assert checkpoint.rounds == 2
    checkpoint.restore(back)
    assert same(back.rounds, done.rounds)
    assert same(back.set_ups, done.set_ups)
    assert back.state == STATE
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / FOLDER).iterdir()}
    checkpoint.save(back)
    assert files == {path: path.stat().st_mtime_ns for path in (tmp_path / FOLDER).iterdir()}
    back.set_ups.append(set_up(4))
    back.rounds.append(record(2, 1.65, 0.3))
    (tmp_path / FOLDER / "state-000001.safetensors").unlink()  # As a kill at the wrong time does.
    checkpoint.save(back)
    again = begun()
    Checkpoint(tmp_path).restore(again)
    assert same((again.rounds, again.set_ups), (back.rounds, back.set_ups))


@pytest.mark.parametrize(("slot", "counts"), [(0, True), (10, True), (16, True), (17, False)])
def test_a_run_goes_on_upon_the_very_channel_of_its_rounds(
    slot: int, counts: bool, tmp_path: Path
) -> None:
    """Slots up to the one in which the last round ended, at 1.65 s."""
    kept(tmp_path)
    gain = np.arange(1.0, 91).reshape(3, 30)
    gain[2, slot] *= 1 + 1e-12
    if counts:
        with pytest.raises(InputError, match="`trace`: not the channel with which the run began"):
            Checkpoint(tmp_path).restore(begun(gain))
    else:
        Checkpoint(tmp_path).restore(begun(gain))


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    kept(tmp_path)
    (tmp_path / FOLDER / "state-000001.safetensors").write_bytes(STATE[:-1])
    with pytest.raises(InputError, match=r"`resume`: .*state-000001\.safetensors: cannot be read"):
        Checkpoint(tmp_path).restore(begun())
    (tmp_path / FOLDER / "round-000000.npz").write_bytes(b"PK")
    with pytest.raises(InputError, match=r"`resume`: .*round-000000\.npz: cannot be read"):
        Checkpoint(tmp_path).restore(begun())


def test_rounds_after_a_gap_do_not_count(tmp_path: Path) -> None:
    kept(tmp_path)
    assert Checkpoint(tmp_path / "nowhere").rounds == 0
    (tmp_path / FOLDER / "round-000000.npz").rename(tmp_path / FOLDER / "round-000002.npz")
    assert Checkpoint(tmp_path).rounds == 0


def test_sessions_are_remembered_in_their_order(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    first = {"started": "1", "revision": "a", "dirty": False, "host": "not kept"}
    due = [{"started": "1", "revision": "a", "dirty": False, "after_rounds": 0}]
    assert checkpoint.sessions(first) == due
    for file in ("round-000000.npz", "round-000001.npz"):
        (tmp_path / FOLDER / file).touch()
    second = {"started": "2", "revision": "b", "dirty": True}
    due.append(second | {"after_rounds": 2})
    assert Checkpoint(tmp_path).sessions(second) == due


@dataclass(frozen=True)
class Foreign:
    value: int


def test_records_come_back_as_they_were_and_nothing_else_does() -> None:
    spans = np.zeros(3, SPAN)
    spans["end_s"] = [0.1, 1 / 3, 1e-17]
    round_ = Round(1, "cpsfl", 2, 0.1, 0.2, np.array([1.0, np.nan]), 7.0, spans)
    frame = pd.DataFrame({"step": pd.Categorical(["b", "a"], ["b", "a", "c"]), "n": [1, 2]})
    frame["word"] = ["x", "y"]
    record = {"rounds": [round_], "frame": frame, "numbers": (np.int64(3), 0.1, None), "t": {1: 2}}
    arrays: list[np.ndarray] = []
    tree = json.loads(json.dumps(_packed(record, arrays)))
    back = _unpacked(tree, arrays)
    assert back["numbers"] == (3, 0.1, None)
    assert back["t"] == {1: 2}
    pd.testing.assert_frame_equal(back["frame"], frame)
    (again,) = back["rounds"]
    assert (again.spans == spans).all()
    assert again.energy_j.tobytes() == round_.energy_j.tobytes()
    assert (again.index, again.start_s, again.objective) == (1, 0.1, 7.0)
    for name in ("subprocess:Popen", "Round", f"{__name__}:Foreign"):
        with pytest.raises(KeyError):
            _unpacked({"type": name, "of": {}}, [])
    with pytest.raises(TypeError, match="a run's record cannot hold a Foreign"):
        _packed(Foreign(3), [])


def test_every_record_of_a_round_has_a_tag() -> None:
    """Whatever `RoundRecord` and `SetUp` are made of can be kept."""
    known = {type_.__name__ for type_ in TYPES.values()}
    plain = {"DataFrame", "dict", "str", "float", "int", "list", "None", "Any", "Array", "NDArray"}
    for type_ in (RoundRecord, SetUp, *TYPES.values()):
        for field in fields(type_):
            words = set(re.findall(r"[A-Z]\w+", str(field.type)))
            assert words - plain <= known | {"Sequence", "Series"}, f"{type_.__name__}.{field.name}"


def test_a_checkpoint_of_an_earlier_format_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    tree = json.dumps({"dict": [["channel_sha256", "0"], ["measured", {"list": []}]]}).encode()
    with (folder / "round-000000.npz").open("wb") as file:
        np.savez(file, np.frombuffer(tree, np.uint8))
    scenario = load(QUICKSTART).resolved(1.0)
    done = Emulation(scenario, Channel(Replay(ChannelTrace(np.ones((3, 10)), 0.1))))
    with pytest.raises(InputError, match=r"000\.npz: a checkpoint of format 1, .* reads 2"):
        Checkpoint(tmp_path).restore(done)
