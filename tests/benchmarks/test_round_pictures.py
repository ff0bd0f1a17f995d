# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The pictures of docs/round.md show what the command that draws them predicts and measures."""

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


PREDICTED = sorted({path.stem for path in DOCS.glob("round-*.svg")} - {"round-compared"})


@pytest.fixture(scope="module")
def pictures(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("round_pictures")


def content(svg: Path) -> tuple[Counter[str], list[tuple[str, float]]]:
    """All texts, and colour and width of each filled area, relative to the widest one.

    These do not depend on matplotlib's version, in contrast to the bytes of the file.
    """
    text = svg.read_text(encoding="utf-8")
    areas = [
        (colour, max(xs) - min(xs))
        for path, colour in re.findall(r'<path d="([^"]+)"[^>]*style="fill: (#\w+)', text)
        if len(xs := [float(x) for x in re.findall(r"[ML] (\S+) ", path)]) >= 4
    ]
    widest = max(width for _, width in areas)
    return Counter(re.findall(r"<text[^>]*>([^<]*)</text>", text)), [
        (colour, width / widest) for colour, width in areas
    ]


def assert_up_to_date(name: str, drawn: Path) -> None:
    texts, areas = content(drawn)
    committed_texts, committed_areas = content(DOCS / f"{name}.svg")
    assert len(areas) > 2
    assert texts == committed_texts, "python benchmarks/round_pictures.py draws it anew"
    assert [colour for colour, _ in areas] == [colour for colour, _ in committed_areas]
    widths = [width for _, width in committed_areas]
    assert [width for _, width in areas] == pytest.approx(widths, abs=2e-3)


@pytest.mark.parametrize("name", PREDICTED)
def test_pictures_show_the_predicted_round(name: str, pictures: ModuleType, tmp_path: Path) -> None:
    pictures.write(drawn := tmp_path / "drawn.svg", pictures.PREDICTED[name])
    assert_up_to_date(name, drawn)


@pytest.mark.guest
def test_the_picture_shows_the_measured_round(pictures: ModuleType, tmp_path: Path) -> None:
    run = pictures.measured(tmp_path / "run")
    pictures.write(drawn := tmp_path / "drawn.svg", partial(pictures.compared, run))
    assert_up_to_date("round-compared", drawn)


def test_the_page_shows_all_pictures_and_they_are_small(pictures: ModuleType) -> None:
    shown = re.findall(r"\]\((round-\S+\.svg)\)", (DOCS / "round.md").read_text(encoding="utf-8"))
    assert set(shown) == {f"{name}.svg" for name in [*pictures.PREDICTED, "round-compared"]}
    assert {path.name for path in DOCS.glob("round-*.svg")} == set(shown)
    for name in shown:
        assert (DOCS / name).stat().st_size < 60_000
        assert "prefers-color-scheme:dark" in (DOCS / name).read_text(encoding="utf-8")
