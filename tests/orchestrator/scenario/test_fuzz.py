# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A small part of `tests/trials/fuzz.py`, and what fuzzing by chance would hardly find."""

import io
import os
import zipfile
from pathlib import Path

import fuzz
import numpy as np
import pytest

from ns3_scenarios.trace import TraceError, load_trace
from orchestrator.scenario.loading import load
from testbed.core.errors import InputError


@pytest.mark.parametrize(
    ("run", "inputs"), [(fuzz.frames, 5000), (fuzz.scenarios, 60), (fuzz.traces, 300)]
)
def test_nothing_but_named_refusals(run, inputs: int) -> None:
    outcomes, crashes = run(inputs, seed=11)
    assert crashes == []
    assert sum(outcomes.values()) == inputs
    assert outcomes["taken"] < inputs


def test_a_crash_would_be_seen() -> None:
    def fails(data: bytes) -> None:
        raise KeyError(data)

    outcomes, crashes = fuzz.fuzz(3, lambda rng: b"x", fails, seed=1)
    assert outcomes["crash"] == len(crashes) == 3


@pytest.mark.parametrize(
    "text",
    [
        "a0: &a0 [1,1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1},*a{n - 1}]\n" for n in range(1, 60)),
        "a: &a [*a]",
        "a: " + "[" * 20_000,
        "rounds: " + "9" * 10_000,
        "rounds: 2001-99-99",
        "? [1, 2]\n: 3",
        "a: \0",
        "uavs: {tx_power_w: [.nan]}",
        "uavs: {tx_power_w: [1]}\nradio: {carrier_hz: .inf}",
        "#" * 5_000_000,
    ],
    ids=range(10),
)
def test_hostile_scenarios_are_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        load(path)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value).replace(str(path), "")) < 500


@pytest.mark.parametrize("what", ["pipe", "device"])
def test_a_scenario_or_trace_that_never_ends_is_not_waited_for(tmp_path: Path, what: str) -> None:
    path = Path("/dev/zero")
    if what == "pipe":
        os.mkfifo(path := tmp_path / "pipe")
    with pytest.raises(InputError, match="is not a regular file"):
        load(path)
    with pytest.raises(TraceError, match="is not a regular file"):
        load_trace(path)


def test_a_trace_takes_no_more_memory_than_it_has(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    header = io.BytesIO()
    says = {"descr": "<f8", "fortran_order": False, "shape": (1 << 20, 1 << 20)}
    np.lib.format.write_array_header_1_0(header, says)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("gain.npy", header.getvalue() + bytes(64))
    with pytest.raises(TraceError, match="gain claims to be larger than it is"):
        load_trace(path)


def test_a_pickled_trace_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, gain=np.array([{"a": 1}], dtype=object), slot_s=0.1)
    with pytest.raises(TraceError):
        load_trace(path)
