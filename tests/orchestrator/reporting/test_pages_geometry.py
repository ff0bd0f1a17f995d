# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Pages on phones, laptops, walls and paper: labels stand apart, and nothing leaves its box."""

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


FAINT = r"""
(() => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const read = (ink) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = ink;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const over = (ink, opacity, back) => {
    const alpha = (ink[3] / 255) * opacity;
    return back.map((value, i) => alpha * ink[i] + (1 - alpha) * value);
  };
  const backOf = (node) => {
    const inks = [];
    for (let at = node; at; at = at.parentElement)
      inks.unshift(read(getComputedStyle(at).backgroundColor));
    return inks.reduce((back, ink) => over(ink, 1, back), [255, 255, 255]);
  };
  const light = (rgb) => {
    const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = rgb.map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [low, high] = [light(a), light(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const found = new Set();
  const check = (what, ink, opacity, back, least) => {
    const is = contrast(over(read(ink), opacity, back), back);
    if (is < least) found.add(`${what}: ${is.toFixed(2)}, at least ${least}`);
  };
  const seen = (node) =>
    node.checkVisibility() && !node.closest(".skip, :disabled, [aria-pressed=false]");
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !seen(node)) continue;
    if (node.closest("script, title, noscript")) continue;
    const style = getComputedStyle(node);
    const svg = node.closest("svg");
    const text = `'${node.textContent.trim().slice(0, 30)}'`;
    check(text, svg ? style.fill : style.color, 1, backOf(svg ?? node), 4.5);
  }
  const marks = ":is(path, line, polyline, circle, rect, polygon)";
  const aside = ".grid, .axis, .cover, .selection, .guide, defs *";
  for (const node of document.querySelectorAll(`.chart svg ${marks}, .legend svg *`)) {
    if (!seen(node) || node.matches(aside)) continue;
    const style = getComputedStyle(node);
    const inks = [[style.fill, +style.fillOpacity], [style.stroke, +style.strokeOpacity]].filter(
      ([ink, opacity]) => ink !== "none" && opacity > 0.45);
    const back = backOf(node.closest("svg"));
    const stands = ([ink, opacity]) => contrast(over(read(ink), opacity, back), back) >= 3;
    const of = node.closest("svg").ariaLabel ?? node.closest("li, button").textContent;
    if (inks.length && !inks.some(stands)) found.add(`${node.tagName} of ${of}: ${inks}`);
  }
  for (const node of document.querySelectorAll(".chip")) {
    if (!seen(node)) continue;
    const style = getComputedStyle(node);
    const back = backOf(node.parentElement);
    const own = over(read(style.backgroundColor), 1, back);
    const edge = over(read(style.boxShadow.match(/^[a-z]+\([^)]*\)/)[0]), 1, own);
    if (Math.max(contrast(own, back), contrast(edge, back)) < 3)
      found.add(`chip of ${node.parentElement.textContent.trim()}: ${own}`);
  }
  return [...found];
})()
"""
"""Texts, marks and chips with less contrast than WCAG 2.2 asks for."""


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


@pytest.mark.parametrize("dark", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_texts_and_marks_stand_out(
    page: Page, pages: dict[str, Path], kind: str, dark: bool
) -> None:
    page.open(pages[kind], width=420, dark=dark)
    assert page.js(FAINT) == []
    assert page.js("document.documentElement.scrollWidth") <= 420


def test_faint_texts_marks_and_chips_are_found(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages["compare"], width=420, dark=True)
    page.js("""document.querySelector("h1").style.color = "#333";
      for (const bar of document.querySelectorAll("#latency rect")) bar.style.fill = "#222";
      document.querySelector("#legend .chip").style =
        "background:#222;box-shadow:inset 0 0 1px rgb(30,30,30)";""")
    title = page.js("document.querySelector('h1').textContent")
    found = "\n".join(page.js(FAINT))
    for part in (f"'{title}", "rect of Latency", "chip of SM"):
        assert part in found


# --- charts of studies ---------------------------------------------------------------------------

XY_CHARTS = [
    ("cross-check", "delay"),
    ("overhead", "sweep-bytes"),
    ("overhead", "sweep-latency"),
    ("reproduction", "fig4-latency"),
    ("radio", "fig4-shannon-relative"),
    ("validation", "errors"),
    ("fit", "distance"),
]
TIP = """byId("tip").hidden ? null : [byId("tip").querySelector("b").textContent,
  [...byId("tip").querySelectorAll("dt")].map((e) => [e.textContent, e.nextSibling.textContent])]"""
TELLING = """(cover) => {
  const { left, top, width, height } = cover.getBoundingClientRect();
  for (let x = left + width / 2, k = 1; k < 2 * width; x += (k % 2 ? -k : k), k += 5)
    for (let y = top + 2; y < top + height; y += 5) {
      cover.dispatchEvent(new PointerEvent("pointermove", { clientX: x, clientY: y }));
      if (!byId("tip").hidden) return [x, y];
    }
}"""
"""A place of a plot that has a tooltip, from the middle outwards."""
SAVES = "globalThis.saved = []; globalThis.download = (name, text) => saved.push(text);"


def cover_of(page: Page, chart: str) -> list[float]:
    """Left, top, width and height of a chart's plot in the window, scrolled into view."""
    page.js(f"byId('chart-{chart}').scrollIntoView({{block: 'center'}})")
    page.settle()
    box: list[float] = page.js(
        f"(b => [b.x, b.y, b.width, b.height])"
        f"(byId('chart-{chart}').querySelector('.cover').getBoundingClientRect())"
    )
    return box


def labels_of(page: Page, chart: str) -> list[str]:
    """The numbers and names along the horizontal axis."""
    found: list[str] = page.js(
        f"[...byId('chart-{chart}').querySelectorAll('text[text-anchor=middle]')]"
        ".map(t => t.textContent)"
    )
    return found


def csv_of(page: Page, chart: str) -> list[list[str]]:
    """The rows that the chart's button saves, without their head."""
    page.js(
        f"{SAVES} byId('chart-{chart}').previousElementSibling.previousElementSibling"
        ".querySelector('[title$=file]').click()"
    )
    (text,) = page.js("saved")
    return list(csv.reader(io.StringIO(text)))[1:]


def points_of(data: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Label, place and value of all points of a chart, without bands."""
    return [
        (series.get("name", series["label"]), x, y)
        for series in data["series"]
        if "y" in series
        for x, y in zip(series["x"], series["y"], strict=True)
    ]


@pytest.mark.parametrize(("kind", "chart"), XY_CHARTS)
def test_charts_of_studies_tell_zoom_and_save(
    page: Page, pages: dict[str, Path], kind: str, chart: str
) -> None:
    page.errors.clear()
    page.open(pages[kind])
    data = page.js(f"JSON.parse(byId('data').textContent).charts[{chart!r}]")
    names, points = data["x"].get("names"), points_of(data)
    left, top, width, height = cover_of(page, chart)
    x, y = page.js(f"({TELLING})(byId('chart-{chart}').querySelector('.cover'))")
    page.mouse("mouseMoved", x, y)
    title, rows = page.js(TIP)
    at = title.removeprefix(data["x"]["label"] + ": ")
    digits = data["y"]["digits"]
    known = {
        (label, f"{value:,.{digits}f}".replace("-", "−"))
        for label, place, value in points
        if value is not None
        and at in (names or [f"{place:,.{data['x']['digits']}f}".replace("-", "−")])
    }
    assert known & {(label, value.partition(" ±")[0]) for label, value in rows[1:]}

    before, whole = labels_of(page, chart), csv_of(page, chart)
    assert len([row for row in whole if row[2]]) == len([p for p in points if p[2] is not None])
    place = left + 0.45 * width, left - 5  # beyond the end: the first point is on it
    for kind_, x in (("mousePressed", place[0]), ("mouseMoved", sum(place) / 2)):
        page.mouse(kind_, x, top + height / 2, button="left", buttons=1, clickCount=1)
    page.mouse("mouseMoved", place[1], top + height / 2, button="left", buttons=1)
    page.mouse("mouseReleased", place[1], top + height / 2, button="left", clickCount=1)
    assert labels_of(page, chart) != before
    part = csv_of(page, chart)
    assert 0 < len(part) < len(whole)
    assert [row for row in whole if row in part] == part
    page.js(
        f"byId('chart-{chart}').previousElementSibling.previousElementSibling"
        ".querySelector('button').click()"
    )
    page.settle()
    assert labels_of(page, chart) == before
    assert csv_of(page, chart) == whole
    assert page.errors == []


def test_the_csv_of_a_chart_has_the_values_of_the_table(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages["cross-check"])
    rows = csv_of(page, "delay")
    table = page.js(
        "[...document.querySelectorAll('#delay tbody tr')]"
        ".map(r => [r.cells[0], r.cells[1]].map(c => +c.textContent))"
    )
    assert [[float(row[1]), float(row[2])] for row in rows] == [
        pytest.approx(row, abs=1e-3) for row in table
    ]


@pytest.mark.parametrize("kind", ["cross-check", "reproduction"])
def test_gantt_charts_of_studies_tell_and_zoom(
    page: Page, pages: dict[str, Path], kind: str
) -> None:
    page.errors.clear()
    page.open(pages[kind])
    page.js("byId('gantts').scrollIntoView()")
    page.settle()
    x, y = page.js(
        "(() => { const b = document.querySelector('#gantts canvas').getBoundingClientRect();"
        "const first = data.timelines[0].table[shown.round][1][1];"
        "const at = scale([axis.from, axis.to], [b.left + GUTTER.left, b.right - GUTTER.right]);"
        "return [at((first.start + first.end) / 2), b.top + HEAD + 8]; })()"
    )
    page.mouse("mouseMoved", x, y)
    title, rows = page.js(TIP)
    assert title.startswith("UAV 1 · ")
    first = page.js("data.timelines[0]")
    span = first["table"]["0"]["1"][1]
    assert dict(rows)[first["label"]] == f"{span['end'] - span['start']:.4f} s"
    whole = page.js("[axis.from, axis.to]")
    assert whole == [0, max(page.js("data.timelines.map(t => t.latency_s[0])"))]
    page.js("byId('zoom-in').click()")
    low, high = page.js("[axis.from, axis.to]")
    assert high - low == pytest.approx(0.6 * (whole[1] - whole[0]))
    page.js("byId('zoom-reset').click()")
    assert page.js("[axis.from, axis.to]") == whole
    assert page.errors == []


def test_waterfalls_tell_and_zoom(page: Page, pages: dict[str, Path]) -> None:
    page.errors.clear()
    page.open(pages["overhead"])
    fall = page.js("JSON.parse(byId('data').textContent).waterfalls[0]")
    canvas = "document.querySelectorAll('#waterfall-0 canvas')[1]"
    page.js(f"{canvas}.scrollIntoView()")
    page.settle()
    left, top = page.js(f"(b => [b.left, b.top])({canvas}.getBoundingClientRect())")
    page.mouse("mouseMoved", left + 200, top + 30 + 38 + 20)
    title, rows = page.js(TIP)
    part = fall["parts"][3]
    assert title == part["name"]
    assert rows[0] == ["adds", f"{1e3 * part['seconds']:.1f} ms"]
    texts = f"{canvas}.texts.map(t => t.text).filter(t => / s$/.test(t))"
    before = page.js(texts)
    page.js(f"{canvas}.dispatchEvent(new KeyboardEvent('keydown', {{key: '+'}}))")
    page.settle()
    assert page.js(texts) != before
    page.js("document.querySelector('#waterfall-0 button').click()")
    page.settle()
    assert page.js(texts) == before
    assert page.errors == []
