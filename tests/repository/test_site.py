# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The documentation site: whole, offline, and without a link that leads nowhere."""

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from urllib.parse import unquote

import pytest
from chromium import PROGRAM, chromium
from mkdocs.exceptions import Abort

from orchestrator.scenario.reference import reference

ROOT = Path(__file__).resolve().parents[2]
ASKED = {
    "GPU": "How do I use a GPU?",
    "Flower": "How do I run Flower or my own programs on the emulated network?",
    "packet loss": "How do I model packet loss and delay?",
    "root": "Do I need root?",
    "dilation": "What is the dilation, and how do I choose it?",
    "cite": "How do I cite the testbed?",
    "checkpoint": "Where are the checkpoints, and how do I export them?",
    "5G": "How do I use 5G NR?",
    "time to accuracy": "How long does it take to reach an accuracy?",
    "differential privacy": "Is differential privacy supported?",
    "energy of flying": "What does the energy of flying cost?",
    "learning rate": "How do I set the learning rate and the optimiser?",
    "random seed": "How do I set the random seed?",
    "resume": "How do I resume a run that was interrupted?",
    "number of UAVs": "How do I set the number of UAVs?",
    "use my own dataset MNIST": "How do I use my own dataset, model or trace?",
    "non-IID data": "How do I use non-IID data?",
    "what is a round": "What is a round?",
    "why is my run not valid": "Why is my run not valid?",
    "load adapter in peft": "How do I load an adapter in peft?",
    "confidence interval seeds": "How do I repeat points and compute confidence intervals?",
    "plot accuracy over time": "How do I plot accuracy over time?",
    "aggregation round number": "After which round does aggregation take place?",
    "client sampling": "How do I select only some clients in each round?",
    "CIFAR-10": "How do I use CIFAR-10, MNIST or other images?",
    "Windows macOS": "Does the testbed run on Windows or macOS?",
    "weights and biases wandb": "How do I use Weights and Biases, TensorBoard or MLflow?",
    "SCAFFOLD": ("Which rules of aggregation are there, such as SCAFFOLD, FedProx and FedAdam?"),
    "what does CA mean": "What is a round?",
    "what is a paradigm": "What is a paradigm, and which are there?",
    "predicted_wire": ("What is the difference between predicted, predicted_wire and measured?"),
    "compress gradients": "How do I compress smashed data and gradients?",
    "LLM fine-tuning": "How do I fine-tune a language model?",
    "drone crashes": "What happens if a UAV fails?",
    "can I run this on my Mac?": "Does the testbed run on Windows or macOS?",
    "wireshark pcap": "How do I record packets for Wireshark?",
    "read results in pandas": "How do I read results in Python?",
    "sweep a parameter": "How do I vary a parameter?",
    "watch a run live dashboard": "How do I watch a run?",
    "transmit power dBm": "What is the unit of the transmit power?",
    "wifi": "How do I send packets through ns-3's LTE or Wi-Fi?",
}
"""What newcomers asked in a review (the first 28) and others, and the question it stands for."""


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


def test_the_index_of_questions_is_what_the_file_has(make: ModuleType) -> None:
    written = (ROOT / "docs" / "questions.md").read_text(encoding="utf-8")
    assert written == make.questions.page()


@pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed")
def test_questions_of_newcomers_find_their_answer_first(
    make: ModuleType, site: Path, tmp_path: Path
) -> None:
    answers = {
        question["ask"]: make.questions.location(question["answer"])
        for section in make.questions.load().values()
        for question in section
    }
    queries = ASKED | {ask: ask for ask in answers}
    wrong = []
    with chromium(tmp_path) as page:
        page.show((site / "index.html").as_uri() + "?q=testbed")
        links = "[...document.querySelectorAll('.md-search-result__item:first-child a')]"
        page.wait(lambda: page.js(f"{links}.length"))
        for query, ask in queries.items():
            page.js(f"""{{
                document.querySelector('.md-search-result__list').replaceChildren();
                const field = document.querySelector('.md-search__input');
                field.value = {json.dumps(query)};
                field.dispatchEvent(new Event('keyup'));
            }}""")
            page.wait(lambda: page.js(f"{links}.length"))
            # The one that Enter opens.
            first = page.js(f"""{links}.map(link => [
                +link.firstElementChild.dataset.mdScore, link.getAttribute('href')
            ]).reduce((best, other) => other[0] > best[0] ? other : best)[1]""")
            found = re.sub(r"\?h=[^#]*", "", first).removeprefix(f"{site.as_uri()}/")
            if found != answers[ask]:
                wrong.append(f"{query}: {found} instead of {answers[ask]}")
    assert not wrong


def test_a_question_without_an_answer_is_named(
    make: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = SimpleNamespace(entries=[{"location": "docs/round.html#one-round"}])
    config = SimpleNamespace(plugins={"material/search": SimpleNamespace(search_index=index)})
    asked = {"ask": "What is it?", "words": "it", "answer": "docs/round.md#one-round"}
    gone = asked | {"answer": "docs/round.md#gone"}
    monkeypatch.setattr(make.questions, "load", lambda: {"Start": [asked, gone]})
    with pytest.raises(Abort, match=r"no section docs/round.md#gone, which answers 'What is it\?'"):
        make.questions.Questions().on_post_build(config=config)
    assert index.entries[0]["questions"] == "What is it? it"


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
    monkeypatch.setattr(make.questions, "load", dict)
    assert make.main(tmp_path / "site") == 1
