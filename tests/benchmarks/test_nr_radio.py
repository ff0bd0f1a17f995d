# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The model of 5G NR against stored rates of 5G-LENA, as its benchmark compares them."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    """The benchmark of the model, which reads the stored rates of 5G-LENA."""
    spec = importlib.util.spec_from_file_location("nr_radio", BENCHMARKS / "nr_radio.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)  # for what it has of lte_radio.py
        spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("mhz", "keys", "up", "down"),
    [
        (20, {"subcarrier_spacing_khz": 15}, 84.0, 84.1),
        (20, {}, 80.8, 80.9),
        (20, {"subcarrier_spacing_khz": 60}, 75.9, 76.0),
        (20, {"highest_modulation": "256QAM"}, 107.8, 107.9),
        (20, {"duplex": "tdd", "tdd_pattern": "DDDU"}, 20.2, 60.7),
        (100, {"resource_blocks": 270}, 428.4, 428.5),
    ],
)
def test_peak_rates_are_those_of_5g_lena(
    benchmark: ModuleType, mhz: float, keys: dict[str, Any], up: float, down: float
) -> None:
    """One UAV with 34 dB; packets of 1400 B."""
    found = benchmark.rates_mbps(benchmark.cell_of(mhz, keys), np.array([34.0]))
    assert found[:, 0] == pytest.approx([up, down], abs=0.05)


def test_rates_are_those_of_5g_lena(benchmark: ModuleType) -> None:
    """Of 443 UAVs, those that are more than 2 % off lost blocks, or have rates below 0.4 Mb/s."""
    found = benchmark.summary()["all"]
    assert found["rates"] == 443
    assert found["within_1_percent"] >= 424
    assert found["median"] < 7e-4
    assert found["largest"] < 0.03
    assert found["largest_of_sums"] < 0.01


def test_the_cell_is_divided_as_in_5g_lena(benchmark: ModuleType) -> None:
    """Each UAV has a rate between those of the two numbers of blocks that 5G-LENA gives it."""
    for cell in benchmark.lena():
        blocks, uavs = int(cell["resource_blocks"]), len(cell["snr_db"])
        if blocks // uavs < 4:
            continue
        keys = {
            "subcarrier_spacing_khz": int(cell["spacing_khz"]),
            "highest_modulation": cell["modulation"],
            "resource_blocks": blocks,
        }
        radio = benchmark.cell_of(float(cell["bandwidth_mhz"]), keys, uavs)
        grants = radio.divided(0, uavs)
        assert sum(part for _, part in grants) == pytest.approx(1)
        assert sum(n * part for n, part in grants) == pytest.approx(blocks / uavs)
        assert {n for n, _ in grants} == {blocks // uavs, -(-blocks // uavs)}
