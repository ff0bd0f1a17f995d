# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The benchmark of GPUs where there is none: one line, and status 2."""

from collections.abc import Callable
from types import ModuleType

import pytest
import torch


@pytest.fixture(scope="module")
def gpu(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("gpu")


def test_without_a_gpu_it_says_so_in_one_line(
    gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr("sys.argv", ["gpu.py"])
    assert gpu.main() == 2
    said = capfd.readouterr()
    (line,) = said.err.splitlines()
    assert "cuda:0 does not exist" in line
    assert not said.out


def test_both_devices_compute_the_same_round(
    gpu: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the CPU as the second device, and a small model."""
    monkeypatch.setattr(gpu, "REPEATS", 1)
    load_model, opened = gpu.load_model, []

    def opening(*words: object) -> object:
        opened.append(words[2])
        return load_model(*words[:2], "cpu")

    monkeypatch.setattr(gpu, "load_model", opening)
    found = gpu.measured("swin_nano_patch4_window4_64", None, 1, 2, "cuda:0")
    assert opened == ["cpu", "cuda:0"]
    assert (found["apart"], found["split"]) == (0, 2)
    assert set(found["times_ms"]) == {"cpu", "cuda:0"}
    for times in found["times_ms"].values():
        assert len(times) == 5
        assert all(ms > 0 for ms in times.values())
