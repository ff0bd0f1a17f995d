# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The documentation site: whole, offline, and without a link that leads nowhere."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import pytest
from chromium import PROGRAM, chromium

from orchestrator.scenario.reference import reference

ROOT = Path(__file__).resolve().parents[2]


class Links(HTMLParser):
    """What a page offers to be linked to, and what it links to and loads."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.leads_to: set[str] = set()
        self.loads: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, given: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in given}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a":
            self.leads_to.add(values.get("href", ""))
        elif tag == "link" or "src" in values:
            self.loads.add(values.get("src", values.get("href", "")))


@pytest.fixture(scope="module")
def make() -> Iterator[ModuleType]:
    sys.path.append(str(ROOT / "site"))
    spec = importlib.util.spec_from_file_location("make_site", ROOT / "site" / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(ROOT / "site"))


@pytest.fixture(scope="module")
def site(make: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "site"
    assert make.main(folder) == 0
    return folder


def test_every_page_is_there_and_in_the_contents(make: ModuleType, site: Path) -> None:
    for page in (ROOT / "docs").glob("*.md"):
        name = "index.html" if page.stem == "README" else f"{page.stem}.html"
        assert (site / "docs" / name).is_file(), page
    listed = {
        path for section in make.navigation() for path in re.findall(r"docs/\S+?\.md", str(section))
    }
    assert listed == {f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")} - {"docs/README.md"}


def test_every_link_leads_somewhere_and_nothing_is_fetched(site: Path) -> None:
    pages = {page: Links(page) for page in site.rglob("*.html")}
    assert len(pages) > 25
    for page, links in pages.items():
        assert not [it for it in links.loads if re.match(r"(https?:)?//", it)], page
        for link in links.leads_to | links.loads:
            if not link or re.match(r"(\w+:|//)", link):
                continue
            name, _, anchor = unquote(link).partition("#")
            there = page if not name else (page.parent / name).resolve()
            if page.name == "404.html":
                there = site / name.lstrip("/")
            if there.is_dir():
                there /= "index.html"
            assert there.is_file(), f"{page.relative_to(site)}: {link}"
            if anchor and there in pages and not anchor.startswith("__"):
                assert anchor in pages[there].anchors, f"{page.relative_to(site)}: {link}"


def test_each_scenario_key_has_an_anchor(site: Path) -> None:
    keys = set(re.findall(r"^\| (?:<a [^>]*></a>)?`([\w.\[\]]+)` \|", reference(), re.M))
    assert len(keys) > 200
    anchors = Links(site / "docs" / "scenario.html").anchors
    assert {key.replace("[]", "") for key in keys} <= anchors


@pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed")
def test_the_last_part_of_a_key_is_found_without_a_server(site: Path, tmp_path: Path) -> None:
    with chromium(tmp_path) as page:
        page.show((site / "index.html").as_uri() + "?q=one_way_delay_s")
        first = "document.querySelector('.md-search-result__item a')?.getAttribute('href')"
        page.wait(lambda: page.js(first))
        assert "docs/scenario.html" in page.js(first)
        assert not [it for it in page.requests if not it.startswith(("file:", "data:", "blob:"))]
        assert not page.errors


def test_pages_show_the_version(site: Path) -> None:
    assert f"uav-sfl-testbed {version('uav-sfl-testbed')}" in (site / "index.html").read_text()


def test_charts_are_drawings(site: Path) -> None:
    page = (site / "docs" / "architecture.html").read_text(encoding="utf-8")
    source = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = re.findall(r"<svg role.*?</svg>", page, re.S)
    charts = re.findall(r"```mermaid\n(.*?)```", source, re.S)
    assert len(drawn) == len(charts) >= 3
    for drawing, chart in zip(drawn, charts, strict=True):
        names = set(re.findall(r"\w+", chart)) - {"flowchart", "TD"}
        assert set(re.findall(r"<text[^>]*>(\w+)</text>", drawing)) == names
        assert drawing.count('fill="none" stroke="currentColor" opacity') == chart.count("-->")
        assert chart.count("-->") <= drawing.count("C")
    assert "flowchart" not in page


def test_boxes_stand_below_what_points_to_them_and_apart(make: ModuleType) -> None:
    # Three ways of different lengths to one box, and one that passes a layer.
    ways = [("top", "a"), ("top", "far"), ("a", "b"), ("b", "far"), ("c", "far"), ("top", "c")]
    text = make.drawing("\n".join(["flowchart TD", *(f"  {a} --> {b}" for a, b in ways)]))
    boxes = [
        tuple(map(float, found))
        for found in re.findall(r'<rect x="(.+?)" y="(.+?)" width="(.+?)" height="(.+?)"', text)
    ]
    box = dict(zip(re.findall(r"<text[^>]*>(\w+)<", text), boxes, strict=True))
    assert set(box) == {"top", "a", "b", "c", "far"}
    for one, other in ways:
        assert box[one][1] + box[one][3] < box[other][1]
    (x, y, wide, _), (x_far, y_far, wide_far, _) = box["top"], box["far"]
    assert f'd="M{x + wide / 2:.0f} {y + 30:.0f}C' in text
    assert text.count(f"{x_far + wide_far / 2:.0f} {y_far:.0f}l-4 -8") == 3
    for at, (left, upper, width, _) in enumerate(boxes):
        assert left >= -1
        for left_2, upper_2, width_2, _ in boxes[at + 1 :]:
            assert upper != upper_2 or left + width < left_2 or left_2 + width_2 < left
    with pytest.raises(ValueError, match="only `flowchart TD`"):
        make.drawing("sequenceDiagram\n  a ->> b")


def test_what_pages_link_to_in_the_code_can_be_read(site: Path) -> None:
    text = (site / "testbed" / "core" / "paradigm.py.html").read_text(encoding="utf-8")
    assert "class" in text
    notebook = (site / "examples" / "run_read_plot.ipynb.html").read_text(encoding="utf-8")
    assert "data:image/png;base64," in notebook


@pytest.mark.parametrize("link", ["gone.md", "../README.md#gone"])
def test_a_link_that_leads_nowhere_is_an_error(
    make: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, link: str
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# Home\n")
    (tmp_path / "docs" / "README.md").write_text(f"# Index\n\n[there]({link})\n")
    monkeypatch.setattr(make, "ROOT", tmp_path)
    assert make.main(tmp_path / "site") == 1
