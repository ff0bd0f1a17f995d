# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Traces that are written piece by piece, and large ones that are mapped: the same, in less memory.

Limits of sizes are made small, so that small traces are large.
"""

import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ns3_scenarios import npz
from ns3_scenarios.channel import Ns3Channel
from ns3_scenarios.trace import (
    ChannelTrace,
    RateTrace,
    SlotTrace,
    TraceError,
    describe,
    load_trace,
    save_pieces,
)
from orchestrator.rounds.loop import predict
from orchestrator.scenario.channel import _Given, _on_flight, ns3_source, pieces, replay
from orchestrator.scenario.loading import load, varied
from testbed.system.files import json_digest
from workloads.costs.profile import PAPER as PROFILE

PAPER = load(Path("scenarios/paper.yaml"), ["uavs.tx_power_w=[0.1,0.1,0.1]"])
SLOTS = 45
DIRECTION = {"offset_db": -3.0, "shadowing_db": 4.0, "decorrelation_m": 20.0, "scatter_db": 1.0}
DIRECTION |= {"heading_db_per_m_s": 0.5, "elevation_db_per_deg": 0.1}
FIT = {"model": "uma-av", "carrier_hz": 2e9, "correlation": 0.5, "parameters": {}}
FIT |= {"up": DIRECTION, "down": DIRECTION}
FITTED = FIT | {"digest": json_digest(FIT)}
CELL = {"position_m": [900.0, 0.0, 30.0]}
BACKHAUL = {"uplink_bps": 1e9, "downlink_bps": 1e9}
EDGES = {"edges": [{"uavs": [1, 3]}, {"uavs": [2], **CELL}], "backhaul": BACKHAUL}
SHADOWED = {"radio.shadow_fading": True, "radio.line_of_sight": "probability"}
CHANNELS: dict[str, dict[str, Any]] = {
    "ns3": SHADOWED,
    "modelled": {"radio.channel": "uma-av", **SHADOWED},
    "fitted": {"radio.channel": "fitted", "radio.fitted": FITTED},
    "fading": {"radio.fading": "rayleigh"},
    "cells": {"radio.access": "lte", "radio.cells": [CELL]},
    "edges": {"topology": EDGES},
}


@pytest.fixture
def no_array_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ns3_scenarios.npz.EASY_BYTES", 1000)
    monkeypatch.setattr("ns3_scenarios.npz.BLOCK_BYTES", 4096)


def trace_of(uavs: int, slots: int, seed: int = 1) -> ChannelTrace:
    rng = np.random.default_rng(seed)
    position_m = np.cumsum(rng.normal(0, 0.1, (uavs, slots, 3)), axis=1) + 100
    return ChannelTrace(10 ** rng.uniform(-11, -8, (uavs, slots)), 0.1, position_m, seed, "text")


@pytest.mark.parametrize("name", CHANNELS)
@pytest.mark.parametrize("at_once", [1, 7, SLOTS])
def test_a_file_of_pieces_equals_that_of_the_whole_trace(
    name: str, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = varied(PAPER, CHANNELS[name])
    with ns3_source(scenario) as source:
        whole = source.trace(SLOTS).first(SLOTS)
    whole.replaced(seed=scenario.seed, scenario=scenario.model_dump_json()).save(tmp_path / "w")
    monkeypatch.setattr("orchestrator.scenario.channel.PIECE_BYTES", 32 * 3 * at_once)
    counted: list[int] = []
    with ns3_source(scenario) as source:
        save_pieces(tmp_path / "p", pieces(scenario, source, SLOTS, counted.append), SLOTS)
    assert (tmp_path / "p").read_bytes() == (tmp_path / "w").read_bytes()
    assert counted[-1] == SLOTS
    assert len(counted) >= SLOTS // (at_once + 1)


def test_pieces_of_a_given_flight_follow_each_other() -> None:
    whole = trace_of(3, SLOTS)
    assert whole.position_m is not None
    settings, flight = _on_flight(PAPER, 3, 0.1), _Given(whole.position_m)
    with Ns3Channel(settings, flight) as source:
        made = [source.following(slots) for slots in (10, 1, SLOTS - 11)]
    with Ns3Channel(settings, flight) as source:
        assert np.array_equal(np.hstack([each.gain for each in made]), source.trace(SLOTS).gain)


@pytest.mark.parametrize(
    "whole",
    [
        ChannelTrace(np.full((2, 9), 1e-9), 0.1, gain_down=np.full((2, 9), 1e-8)),
        RateTrace(
            np.arange(18.0).reshape(2, 9) * 1e6,
            np.full((2, 9), 1e6),
            0.1,
            loss=np.full((2, 2, 9), 0.1),
            delay_s=np.arange(36.0).reshape(2, 2, 9) / 100,
            jitter_s=np.full((2, 2, 9), 0.01),
            downlink_is="cell",
        ),
        ChannelTrace(
            np.full((2, 9), 1e-9),
            0.1,
            gain_cells=np.arange(1, 55).reshape(3, 2, 9) / 1e9,
            gain_cells_down=np.arange(1, 55).reshape(3, 2, 9) / 1e8,
        ),
    ],
    ids=["two-way", "rates", "cells"],
)
def test_every_field_is_written_in_pieces_and_read_by_numpy(
    whole: SlotTrace, tmp_path: Path
) -> None:
    parts = (whole.at(slice(first, first + 4)) for first in range(0, 9, 4))
    save_pieces(tmp_path / "p.npz", parts, 9)
    with np.load(tmp_path / "p.npz", allow_pickle=False) as found:
        assert found.files == list(whole.arrays())
        for name, values in whole.arrays().items():
            assert np.array_equal(found[name], values)


def test_writing_needs_the_memory_of_a_piece(tmp_path: Path) -> None:
    def written(count: int) -> int:
        made = (trace_of(50, 40, seed) for seed in range(count))
        tracemalloc.start()
        try:
            save_pieces(tmp_path / "t.npz", made, 40 * count)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = written(10), written(160)
    assert many < few + npz.BLOCK_BYTES  # a block of the file is larger than a few pieces
    assert (tmp_path / "t.npz").stat().st_size > 4 * many


@pytest.mark.usefixtures("no_array_is_small")
def test_a_large_trace_is_mapped_and_equals_one_that_is_read(tmp_path: Path) -> None:
    whole = trace_of(5, 300)
    whole.save(tmp_path / "t.npz")
    tracemalloc.start()
    found = load_trace(tmp_path / "t.npz")
    words = describe(found)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert words == describe(whole)
    assert isinstance(found, ChannelTrace)
    assert found.position_m is not None
    for mapped, values in ((found.gain, whole.gain), (found.position_m, whole.position_m)):
        assert isinstance(mapped.base, np.memmap)
        assert mapped.flags.aligned
        assert not mapped.flags.writeable
        assert np.array_equal(mapped, values)
    assert peak < 200_000  # of zipfile and of blocks, whatever the size is
    (tmp_path / "t.npz").unlink()
    assert np.array_equal(found.gain, whole.gain)


@pytest.mark.usefixtures("no_array_is_small")
def test_a_prediction_on_ten_times_the_slots_needs_the_same_memory(tmp_path: Path) -> None:
    def peak_of(slots: int) -> int:
        trace_of(3, slots).save(tmp_path / "t.npz")
        tracemalloc.start()
        try:
            found = load_trace(tmp_path / "t.npz")
            assert f"{slots} slots" in describe(found)
            assert len(predict(PAPER, replay(PAPER, found), PROFILE, rounds=2)) == 2
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak_of(1000)  # imports
    few, many = peak_of(1000), peak_of(10_000)
    assert many < few + 50_000, (few, many)  # positions of one UAV have 240 kB


def test_blocks_are_all_values_in_order_and_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ns3_scenarios.npz.BLOCK_BYTES", 40)
    for shape in ((7,), (3, 2), (3, 11), (2, 3, 11), (2, 11, 3), (2, 0)):
        values = np.arange(float(np.prod(shape))).reshape(shape)
        parts = [values[index].ravel() for index in npz.blocks(values)]
        assert np.array_equal(np.concatenate([np.empty(0), *parts]), values.ravel())
        assert all(0 < part.nbytes <= 40 for part in parts)


def unaligned(path: Path, arrays: dict[str, Any]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, values)


@pytest.mark.usefixtures("no_array_is_small")
@pytest.mark.parametrize(
    "write",
    [
        lambda path, arrays: np.savez(path.open("wb"), **arrays),
        lambda path, arrays: np.savez_compressed(path.open("wb"), **arrays),
        unaligned,
        lambda path, arrays: npz.write(path, {k: np.asfortranarray(v) for k, v in arrays.items()}),
    ],
)
def test_large_files_of_others_are_read(
    write: Callable[[Path, dict[str, Any]], None], tmp_path: Path
) -> None:
    whole = trace_of(5, 300)
    arrays = {
        "gain": whole.gain.astype(np.float32),
        "position": np.asfortranarray(whole.position_m),
    }
    write(tmp_path / "t.npz", {**arrays, "slot_s": np.array(0.1)})
    found = load_trace(tmp_path / "t.npz")
    assert np.array_equal(found.values, whole.gain.astype(np.float32).astype(float))
    assert np.array_equal(found.position_m, whole.position_m)


def changed(position: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


@pytest.mark.usefixtures("no_array_is_small")
@pytest.mark.parametrize("change", [changed(5000), lambda data: data[:-200], lambda data: b""])
def test_a_large_file_that_was_damaged_is_refused(
    change: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    trace_of(5, 300).save(tmp_path / "t.npz")
    (tmp_path / "t.npz").write_bytes(change((tmp_path / "t.npz").read_bytes()))
    with pytest.raises(TraceError, match="not an NPZ trace"):
        load_trace(tmp_path / "t.npz")


@pytest.mark.usefixtures("no_array_is_small")
@pytest.mark.parametrize(
    ("name", "where", "value", "says"),
    [
        ("gain", (4, 299), 2.0, r"gain\[4, 299\] is 2: .* \(UAV 5, slot 299\)"),
        ("gain", (2, 7), 1e-50, r"gain\[2, 7\] is 1e-50: must be 0"),
        ("position", (3, 100, 2), 1e5, r"position\[3, 100\] is .* the height is at most"),
        ("position", (4, 299, 0), 900.0, r"position\[4, 299\] would need .* \(UAV 5, slot 299\)"),
    ],
)
def test_what_is_wrong_in_a_large_trace_is_refused(
    name: str, where: tuple[int, ...], value: float, says: str, tmp_path: Path
) -> None:
    arrays = trace_of(5, 300).arrays()
    arrays[name][where] = value
    npz.write(tmp_path / "t.npz", arrays)
    with pytest.raises(TraceError, match=says):
        load_trace(tmp_path / "t.npz")


def test_nothing_is_left_of_a_trace_that_fails(tmp_path: Path) -> None:
    def failing() -> Iterator[ChannelTrace]:
        yield trace_of(2, 3)
        raise TraceError("no more")

    with pytest.raises(TraceError, match="no more"):
        save_pieces(tmp_path / "t.npz", failing(), 6)
    assert not list(tmp_path.iterdir())
