# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The model of 5G NR against stored rates of 5G-LENA, as its benchmark compares them."""

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "measured-radio.md"


@pytest.fixture(scope="module")
def benchmark(load: Callable[[str], ModuleType]) -> ModuleType:
    """The benchmark of the model, which reads the stored rates of 5G-LENA."""
    return load("nr_radio")


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


def test_rates_of_many_cells_are_those_of_5g_lena(benchmark: ModuleType) -> None:
    """229 cells of all spacings, patterns, bandwidths and tables."""
    found = benchmark.summary(benchmark.LENA_CELLS, benchmark.duplex_of)["all"]
    assert (found["rates"], found["sums"]) == (2022, 456)
    assert found["median"] < 1e-4
    assert found["within_2_percent"] >= 1981
    assert found["sums_within_1_percent"] >= 440


def test_the_list_covers_what_a_cell_may_be(benchmark: ModuleType) -> None:
    cells = benchmark.listed_cells()
    assert len(cells) == 300
    assert {len(cell["snr_db"]) for cell in cells} == set(benchmark.UAVS)
    for spacing_khz, blocks in benchmark.NR_BLOCKS.items():
        own = [cell for cell in cells if cell["spacing_khz"] == spacing_khz]
        assert {1e6 * float(cell["bandwidth_mhz"]) for cell in own} == set(blocks)
        assert len({cell["slots"] for cell in own}) == 5
    ratios = np.concatenate([cell["snr_db"] for cell in cells])
    assert (ratios.min(), ratios.max()) == pytest.approx((-4, 35), abs=0.1)
    key = ("spacing_khz", "bandwidth_mhz", "resource_blocks", "slots", "modulation")
    listed = {tuple(str(cell[name]) for name in key) for cell in cells}
    for cell in benchmark.lena(benchmark.LENA_CELLS):
        is_cut = (cell["bandwidth_mhz"], cell["slots"]) == ("100", "FDD")
        known = cell | {"resource_blocks": "273"} if is_cut else cell
        assert tuple(known[name] for name in key) in listed or is_cut


def test_a_cell_is_measured_by_its_transport_blocks(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = {"spacing_khz": 60, "bandwidth_mhz": "20", "resource_blocks": 24, "slots": "DDDU"}
    cell |= {"modulation": "64QAM", "snr_db": np.array([34.0, 34.0])}
    given = []

    def simulate(air: Any, radio: Any, datagram_bytes: int) -> Any:
        given.append((air, radio, datagram_bytes))
        sent = np.full((2, 2, air.slots), 100.0)
        bits = sent * 8 * np.array([110.0, 105.0])[:, None, None]
        return SimpleNamespace(blocks=sent, block_bits=bits, lost_blocks=0.25 * sent)

    monkeypatch.setattr(benchmark, "simulate_nr", simulate)
    found = benchmark.measured(cell)
    # 75 blocks of 100 B every 0.1 s
    assert found == pytest.approx(np.full((2, 2), 75 * 800 / 0.1 / 1e6 * 1400 / 1403.5))
    ((air, radio, datagram_bytes),) = given
    assert (radio.band_blocks, radio.tdd_pattern, datagram_bytes) == ((24, 24), "DDDU", 1400)
    noise_w = 10**-20.4 * 24 * 720e3
    assert 10 * np.log10(air.uplink_gain / noise_w) == pytest.approx(np.full((2, 12), 34.0))


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


def test_the_page_has_the_tables_that_are_printed(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    published = PAGE.read_text(encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text(published, encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["nr_radio.py", "--docs", str(page)])
    benchmark.main()
    one, other = (
        re.sub(r"Revision: `\w+\+?`", "Revision", text)
        for text in (published, page.read_text(encoding="utf-8"))
    )
    assert one == other
