# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The index of a folder shows what its pages say, and nothing of other files."""

import os
import re
from pathlib import Path

import pytest

from orchestrator.reporting import index
from orchestrator.reporting.formatting import without_links
from orchestrator.reporting.index import entries, is_index, save_page, write_index
from testbed.core.errors import InputError

PAGE = """<!doctype html><html><head>
<meta name="testbed-page" content="{kind}">
<meta name="date" content="2026-03-0{day}T10:20:30+00:00">
<style>h1 {{ color: red }}</style></head><body><header>Not this</header><main><section>
<p class="eyebrow">Run report</p><h1>Har&amp;bour &lt;b&gt;
<span class="badge good">✓ valid</span></h1>
<p class="lead">A round took
<code>5.1</code> s.</p><p class="lead">And more.</p>
<div class="tiles"><div class="tile"><h2>Measured</h2><p class="big">5.10<small> s</small></p>
<p class="muted">latency</p></div>
<div class="tile facts"><h2>Set-up</h2></div></div></section>
<section><h1>Later</h1></section></main></body></html>"""


def page(path: Path, kind: str = "report", day: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PAGE.format(kind=kind, day=day))
    return path


def test_an_entry_is_what_the_first_section_of_a_page_says(tmp_path: Path) -> None:
    page(tmp_path / "a b#" / "report.html")
    (entry,) = entries(tmp_path)
    assert entry == index.Entry(
        path="a b#/report.html",
        kind="run",
        title="Har&bour <b>",
        badges=[("✓ valid", "good")],
        lead="A round took 5.1 s.",
        figures=[("Measured", "5.10 s")],
        date="2026-03-01 10:20",
    )
    assert entry.href == "a%20b%23/report.html"


def test_pages_of_the_testbed_are_listed_and_nothing_else(tmp_path: Path) -> None:
    page(tmp_path / "old" / "report.html")
    page(tmp_path / "new" / "forecast.html", "forecast", day=2)
    page(tmp_path / "campaign" / "report.html", "campaign", day=3)
    (tmp_path / "campaign" / "campaign.yaml").touch()
    page(tmp_path / "campaign" / "points" / "one" / "report.html")
    page(tmp_path / ".hidden" / "report.html")
    page(tmp_path / "1" / "2" / "3" / "4" / "5" / "deep.html")
    page(tmp_path / "other.html", "unknown")
    (tmp_path / "foreign.html").write_text("<html><body><h1>Mine</h1></body></html>")
    (tmp_path / "binary.html").write_bytes(os.urandom(9000))
    (tmp_path / "huge.html").write_bytes(b" " * (3 * index.HEAD_BYTES))
    (tmp_path / "endless.html").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe.html")
    found = [entry.path for entry in entries(tmp_path)]
    assert found == ["campaign/report.html", "new/forecast.html", "old/report.html"]


def test_the_page_links_to_results_and_escapes_their_text(tmp_path: Path) -> None:
    page(tmp_path / "a b#" / "report.html")
    written, found = write_index(tmp_path)
    text = written.read_text()
    assert len(found) == 1
    assert '<a href="a%20b%23/report.html">Har&amp;bour &lt;b&gt;</a>' in text
    assert "This folder contains 1 run." in " ".join(text.split())
    assert "Measured: <b>5.10 s</b>" in text
    assert is_index(written)
    assert write_index(tmp_path)[1] == found, "an index does not list itself"


def test_a_page_updates_the_index_of_its_folder_and_of_the_one_above(tmp_path: Path) -> None:
    html = PAGE.format(kind="report", day=1)
    (tmp_path / "run").mkdir()
    save_page(tmp_path / "run" / "report.html", html)
    assert not (tmp_path / "index.html").exists(), "only `testbed index` makes the first one"
    write_index(tmp_path)
    save_page(tmp_path / "both.html", html)
    (tmp_path / "second").mkdir()
    save_page(tmp_path / "second" / "report.html", html)
    text = (tmp_path / "index.html").read_text()
    assert [name in text for name in ("run/report", "both", "second/report")] == [True] * 3


def test_a_file_of_somebody_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("mine")
    with pytest.raises(InputError, match="exists and is not an index of the testbed"):
        write_index(tmp_path)
    save_page(tmp_path / "report.html", PAGE.format(kind="report", day=1))
    assert (tmp_path / "index.html").read_text() == "mine"
    with pytest.raises(InputError, match="is not a folder"):
        write_index(tmp_path / "index.html")


def test_every_kind_of_page_is_known() -> None:
    templates = Path(index.__file__).parent / "templates"
    pages = {p.stem for p in templates.glob("*.html") if 'extends "page.html"' in p.read_text()}
    assert {name for name in pages if not name.startswith("live")} == {*index.KINDS, "index"}


def test_a_page_has_links_to_the_pages_above_it_that_are_there(tmp_path: Path) -> None:
    html = "<body></header><!-- pages above --><main></main></body>"
    item = '<meta name="testbed-page" content="compare">\n<link rel="item" href="{}">\n<style>'
    point = tmp_path / "runs" / "study" / "points" / "a1" / "report.html"
    run = tmp_path / "runs" / "a & b" / "report.html"
    for path in (point, run):
        path.parent.mkdir(parents=True)
        save_page(path, html)
        assert path.read_text() == html, "there is nothing above"
    page(tmp_path / "runs" / "study" / "report.html", "campaign")
    (tmp_path / "runs" / "both.html").write_text(item.format("a%20%26%20b/report.html"))
    (tmp_path / "runs" / "others.html").write_text(item.format("c/report.html"))
    os.mkfifo(tmp_path / "runs" / "pipe.html")
    write_index(tmp_path / "runs")
    for path, links in (
        (point, '<a href="../../report.html">‹ Campaign study</a>'),
        (
            run,
            '<a href="../index.html">‹ Index of runs</a>'
            '<a href="../both.html">‹ Comparison both</a>',
        ),
    ):
        save_page(path, html)
        text = path.read_text()
        assert text == html.replace("<!-- pages above -->", f'<p class="up">{links}</p>')
        assert without_links(text) == html
        assert all((path.parent / href).is_file() for href in re.findall('href="(.*?)"', links))
