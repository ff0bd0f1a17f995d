# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Pages on phones, laptops, walls and paper: labels stand apart, and nothing leaves its box."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from all_pages import KINDS, LIVE, PAPER_PX, WIDTHS, print_out, shown_live, written
from chromium import PROGRAM, Page, chromium

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed")

NOTE_TEXTS = """
const note = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  const wide = this.measureText(text).width;
  const left = x - (this.textAlign === "center" ? wide / 2 : this.textAlign === "right" ? wide : 0);
  (this.canvas.texts ??= []).push({ text, left, right: left + wide, top: y - 5, bottom: y + 5 });
  return note.apply(this, arguments);
};
const wide = Object.getOwnPropertyDescriptor(HTMLCanvasElement.prototype, "width");
Object.defineProperty(HTMLCanvasElement.prototype, "width", {
  get: wide.get,
  set(value) { this.texts = []; wide.set.call(this, value); },
});
"""
"""Canvases remember the labels of their last drawing: those of an SVG are in the page anyway."""
LABELS = """
(() => {
  const found = [];
  const together = (where, boxes, edge) => boxes.forEach((a, i) => {
    if (a.left < -1 || a.right > edge + 1) found.push(`${where}: '${a.text}' leaves it`);
    for (const b of boxes.slice(i + 1))
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
          Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3)
        found.push(`${where}: '${a.text}' on '${b.text}'`);
  });
  for (const svg of document.querySelectorAll(".chart svg")) {
    const own = svg.getBoundingClientRect();
    const boxes = [...svg.querySelectorAll("text")].filter(
      (t) => t.textContent && t.getClientRects().length).map((t) => {
      const { left, right, top, bottom } = t.getBoundingClientRect();
      return { text: t.textContent, left: left - own.left, right: right - own.left, top, bottom };
    });
    if (own.width) together(svg.getAttribute("aria-label"), boxes, own.width);
    for (const { text, top, bottom } of boxes)
      if (top < own.top - 2 || bottom > own.bottom + 2) found.push(`'${text}' above or below`);
    for (const dot of svg.querySelectorAll(".uav circle")) {
      const of = dot.getBoundingClientRect();
      for (const box of boxes)
        if (Math.min(box.right + own.left, of.right) - Math.max(box.left + own.left, of.left) > 2 &&
            Math.min(box.bottom, of.bottom) - Math.max(box.top, of.top) > 4)
          found.push(`'${box.text}' below a UAV`);
    }
  }
  for (const canvas of document.querySelectorAll(".chart canvas"))
    together(canvas.ariaLabel, canvas.texts ?? [], canvas.clientWidth);
  return found;
})()
"""
AXES = """
(() => {
  const found = [];
  const number = /^[−+]?[\\d.,]+ ?([a-zµ%]*)$/;
  const check = (where, labels) => {
    const read = labels.map((text) => number.exec(text)).filter(Boolean);
    if (new Set(labels).size < labels.length) found.push(`${where}: repeats ${labels}`);
    if (new Set(read.map(([, unit]) => unit)).size > 1) found.push(`${where}: mixes ${labels}`);
  };
  const grouped = (items, place, text) => {
    const groups = {};
    for (const item of items) (groups[place(item)] ??= []).push(text(item));
    return Object.entries(groups).filter(([, labels]) => labels.length > 1);
  };
  for (const svg of document.querySelectorAll(".chart svg")) {
    const ticks = [...svg.querySelectorAll("text:not(.value)")].filter(
      (t) => number.test(t.textContent) && t.getAttribute("text-anchor") !== "start" &&
        !t.closest(".uav"));
    const middle = ticks.filter((t) => t.getAttribute("text-anchor") === "middle");
    const side = svg.querySelector(".grid") ? ticks.filter(
      (t) => t.getAttribute("text-anchor") === "end" && t.getAttribute("x") < 80) : [];
    const name = svg.getAttribute("aria-label");
    const said = (t) => t.textContent;
    const groups = [...grouped(middle, (t) => t.getAttribute("y"), said),
                    ...grouped(side, (t) => t.getAttribute("x"), said)];
    for (const [at, labels] of groups)
      if (!name.startsWith("Map")) check(`${name} at ${at}`, labels);
  }
  for (const canvas of document.querySelectorAll(".chart canvas"))
    for (const [at, labels] of grouped(
      (canvas.texts ?? []).filter((t) => / s$/.test(t.text)), (t) => t.top, (t) => t.text))
      check(canvas.ariaLabel, labels);
  return found;
})()
"""
"""Labels of an axis that stand twice, or in two units."""
OUTSIDE = """
[...document.querySelectorAll("body *")].filter((e) => {
  const box = e.getBoundingClientRect();
  return box.width && box.height && (box.right > innerWidth + 1 || box.left < -1) &&
    !e.closest(".skip, nav, svg, #tip") && !(SCROLLS && e.closest(".scroll, pre"));
}).map((e) => `${e.tagName} ${e.className} ${e.textContent.slice(0, 30)}`)
"""
TORN = """
[...document.querySelectorAll("td, th, dt, dd, p, li, h1, h2, h3, summary, label")].filter((e) => {
  const range = document.createRange();
  range.selectNodeContents(e);
  const lines = new Set([...range.getClientRects()].map((r) => Math.round(r.top)));
  const longest = Math.max(0, ...e.textContent.split(/\\s+/).map((word) => word.length));
  return lines.size > 3 && e.textContent.length / lines.size < Math.min(4, longest);
}).map((e) => `${e.tagName} ${e.textContent.slice(0, 40)}`)
"""
"""Texts of which a line holds a letter or two."""
BROKEN = r"""
[...document.querySelectorAll("th, .num, h1, h2, h3, dt, summary, button, .badge")].filter(
  (e) => !e.closest("details:not([open]) > :not(summary)")).flatMap((e) => {
  const found = [];
  const walk = document.createTreeWalker(e, NodeFilter.SHOW_TEXT);
  const word = /[^\s\/_.,:=–-]{2,22}/g;
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    if (node.parentElement.closest("code")) continue;
    for (const { 0: text, index } of node.data.matchAll(word)) {
      const range = document.createRange();
      range.setStart(node, index);
      range.setEnd(node, index + text.length);
      const tops = [...range.getClientRects()].map((r) => r.top);
      if (Math.max(...tops) - Math.min(...tops) > 4) found.push(`${e.tagName} ${text}`);
    }
  }
  return found;
})
"""
"""Words, of heads and columns of numbers, that are broken."""
COVERED = """
(() => {
  const UNSEEN = "svg, script, style, option, details:not([open]) > :not(summary)";
  const texts = [];
  const walk = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    if (!node.data.trim() || node.parentElement.closest(UNSEEN)) continue;
    const clip = node.parentElement.closest(".scroll, pre")?.getBoundingClientRect();
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const r of range.getClientRects()) {
      const right = Math.min(r.right, clip?.right ?? Infinity);
      const bottom = Math.min(r.bottom, clip?.bottom ?? Infinity);
      if (right - r.left > 2 && bottom - r.top > 4)
        texts.push({ node, left: r.left, right, top: r.top, bottom });
    }
  }
  texts.sort((a, b) => a.top - b.top);
  const found = [];
  texts.forEach((a, i) => {
    for (let k = i + 1; k < texts.length && texts[k].top < a.bottom - 5; k += 1) {
      const b = texts[k];
      if (a.node !== b.node && Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2)
        found.push(`'${a.node.data.trim()}' and '${b.node.data.trim()}'`);
    }
  });
  return found;
})()
"""
"""Texts that lie on each other."""
STRETCHED = """
[...document.querySelectorAll(".chart canvas, .chart svg")].filter((e) => {
  const box = e.getBoundingClientRect();
  const { width, height } = e.viewBox?.baseVal ?? e;
  return box.width && Math.abs(box.width / box.height / (width / height) - 1) > 0.03;
}).map((e) => e.ariaLabel ?? e.getAttribute("aria-label"))
"""
"""Charts whose letters are not as wide as they should be, or that leave part of a box empty."""

DRAWN = """
[...document.querySelectorAll(".chart")].map((e) => {
  const drawn = e.querySelector("svg, canvas");
  const box = drawn.viewBox?.baseVal;
  const width = box ? (box.width / box.height) * drawn.getAttribute("height")
    : drawn.width / PAPER.dense;
  return { id: e.id, width, due: widthOf(e), ink: colour("ink") };
})
"""
"""How wide each chart is drawn, and should be."""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("chromium")) as page:
        page.call("Page.addScriptToEvaluateOnNewDocument", source=NOTE_TEXTS)
        yield page


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One of each kind that is a file."""
    return written(tmp_path_factory.mktemp("pages"))


def assert_tidy(page: Page, *, scrolls: bool = True) -> None:
    assert page.js(LABELS) == []
    assert page.js(AXES) == []
    assert page.js(OUTSIDE.replace("SCROLLS", str(scrolls).lower())) == []
    assert page.js(TORN) == []
    assert page.js(BROKEN) == []
    assert page.js(COVERED) == []
    assert page.js(STRETCHED) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", WIDTHS)
def test_labels_stand_apart_and_nothing_leaves_its_box(
    page: Page, pages: dict[str, Path], kind: str, width: int
) -> None:
    page.open(pages[kind], width=width, dark=width == 768)
    assert_tidy(page)
    assert page.js("document.documentElement.scrollWidth") <= width
    # What leads through the page is there, and can be pressed.
    for link in page.js("[...document.querySelectorAll('nav a')].map(a => a.hash)"):
        assert page.js(f"document.querySelector({link!r}) !== null")
    box = page.js("(b => [b.left, b.right, b.height])(byId('theme').getBoundingClientRect())")
    assert box[0] >= 0
    assert box[1] <= width
    assert page.js("document.querySelector('nav').clientWidth") > 200


RUN_PAGES = ("report", "broken", "session", "radio", "fit", "forecast")


def assert_accessible(page: Page) -> None:
    """Serious findings that axe-core has on such pages."""
    found = "[...document.querySelectorAll({!r})].filter(e => {}).map(e => e.outerHTML)"
    nested = "e.querySelector('[tabindex], a, button, input, select')"
    assert page.js(found.format("[role=img], button, a", nested)) == []
    assert page.js(found.format("th", "!e.textContent.trim()")) == []
    assert page.js("document.querySelectorAll('h1').length") == 1
    closed = "e.scrollHeight > e.clientHeight + 1 && e.tabIndex < 0"
    assert page.js(found.format(".scroll, pre.text", closed)) == []


@pytest.mark.parametrize("kind", RUN_PAGES)
def test_pages_of_runs_are_accessible_and_show_verdicts_on_a_phone(
    page: Page, pages: dict[str, Path], kind: str
) -> None:
    page.open(pages[kind], width=400)
    assert_accessible(page)
    if kind != "radio":  # Its table has a column per radio.
        ends = (
            "[...document.querySelectorAll('td .badge')].map(e => e.getBoundingClientRect().right)"
        )
        assert max(page.js(ends), default=0) <= 400
    # The verdict and the picture come before all tables.
    order = [
        page.js(f"document.querySelector({tag!r}).getBoundingClientRect().top")
        for tag in (".lead", ".chart, .strip, figure, table", "table")
    ]
    assert order == sorted(order)
    assert kind == "radio" or order[1] < order[2]


def test_tables_of_studies_are_sorted_by_their_numbers_and_saved(
    page: Page, pages: dict[str, Path]
) -> None:
    page.open(pages["cross-check"])
    page.js("""globalThis.saved = [];
      globalThis.download = (name, text) => saved.push([name, text]);
      const table = document.querySelector('#latency table');
      globalThis.column = () => [...table.tBodies[0].rows].map((row) => valueOf(row.cells[1]));
      [...table.tHead.rows[0].cells][1].querySelector('.sort').click();""")
    values = page.js("column()")
    assert len({value for value in values if value is not None}) > 1
    assert [v for v in values if v is not None] == sorted(v for v in values if v is not None)
    page.js("document.querySelector('#latency th:nth-child(2) .sort').click()")
    again = page.js("column()")
    assert [v for v in again if v is not None] == sorted(
        (v for v in again if v is not None), reverse=True
    )
    page.js("document.querySelector('#latency .saving button').click()")
    ((name, text),) = page.js("saved")
    assert name == "latency-of-a-round-by-method.csv"
    assert text.splitlines()[0].startswith("Method,Difference,Mean (s)")


@pytest.mark.parametrize("kind", KINDS)
def test_paper_loses_no_column_and_has_no_ground(
    page: Page, pages: dict[str, Path], kind: str
) -> None:
    page.open(pages[kind], dark=True)
    rows = "[...document.querySelectorAll('tr')].length"
    before = page.js(rows)
    page.js("dispatchEvent(new Event('beforeprint'))")
    page.size(PAPER_PX, dark=True, media="print")
    page.settle()
    page.settle()
    assert_tidy(page, scrolls=False)
    assert page.js(rows) == before
    hidden = "[...document.querySelectorAll('td, th')].filter(c => !c.getClientRects().length)"
    assert page.js(f"{hidden}.map(c => c.textContent)") == []
    unseen = "[...document.querySelectorAll('th .sort')].filter(b => !b.getClientRects().length)"
    assert page.js(f"{unseen}.map(b => b.textContent)") == []
    cut = "[...document.querySelectorAll('.scroll, pre')].filter(e => e.scrollWidth > e.clientWidth"
    assert page.js(f"{cut} + 1 || e.scrollHeight > e.clientHeight + 1).map(e => e.ariaLabel)") == []
    for where in ("body", "section", ".tile", "thead", "pre"):
        backs = page.js(
            f"[...document.querySelectorAll({where!r})].map(e =>"
            "getComputedStyle(e).backgroundColor)"
        )
        assert {tuple(re.findall(r"[\d.]+", back)) for back in backs} <= {
            ("255", "255", "255"),
            ("0", "0", "0", "0"),
        }, where
    # Charts are drawn anew in ink, not in what a dark screen shows.
    ink = page.js("getComputedStyle(document.body).color")
    assert max(map(int, re.findall(r"\d+", ink))) < 64
    page.js("dispatchEvent(new Event('afterprint'))")
    page.size(1280, dark=True)
    page.settle()
    assert page.js("document.querySelectorAll('details[open]').length") == 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_browser_prints_is_drawn_for_paper(
    page: Page, pages: dict[str, Path], kind: str, tmp_path: Path
) -> None:
    page.open(pages[kind], width=1920, dark=True)
    page.js(
        "addEventListener('beforeprint', () => { window.drawn = DRAWN })".replace("DRAWN", DRAWN)
    )
    print_out(page, tmp_path / "page.pdf")
    drawn = page.js("window.drawn")
    assert len(drawn) == page.js("document.querySelectorAll('.chart').length")
    for chart in drawn:
        assert chart["width"] == pytest.approx(chart["due"], abs=1), chart
        assert chart["due"] <= PAPER_PX, chart
        assert max(map(int, re.findall(r"\d+", chart["ink"])[:3])) < 64, chart
    page.settle()
    assert page.js("[...document.querySelectorAll('.chart')].every(e => widthOf(e) !== 703)")


@pytest.mark.parametrize("kind", LIVE)
@pytest.mark.parametrize("width", WIDTHS)
def test_live_views_too(page: Page, kind: str, width: int) -> None:
    with shown_live(kind, page, width, dark=width == 768):
        assert_tidy(page)
        assert_accessible(page)
        assert page.js("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("kind", ["compare", "campaign", "validation"])
def test_verdicts_are_seen_on_a_phone_and_tables_have_no_scroller_of_their_own(
    page: Page, pages: dict[str, Path], kind: str
) -> None:
    page.open(pages[kind], width=400)
    badges = page.js(
        "[...document.querySelectorAll('td .badge')].filter(b => b.getClientRects().length)"
        ".map(b => [b.textContent, b.getBoundingClientRect().right])"
    )
    assert bool(badges) == (kind != "validation")
    assert [text for text, right in badges if right > 400] == []
    lead = page.js("document.querySelector('[data-verdict]').getBoundingClientRect().bottom")
    assert lead < 800  # It is in the first screen.
    inner = "[...document.querySelectorAll('.scroll, pre')]"
    assert page.js(f"Math.max(...{inner}.map(e => e.scrollHeight - e.clientHeight))") <= 1
