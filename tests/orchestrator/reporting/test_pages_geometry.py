# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Pages on phones, laptops, walls and paper: labels stand apart, and nothing leaves its box."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from chromium import PROGRAM, Page, chromium
from finished_campaign import finished_campaign
from PIL import Image
from synthetic_run import make_run, make_session

from orchestrator.reporting.comparison import write_comparison
from orchestrator.reporting.live import serve
from orchestrator.reporting.report import write_report
from orchestrator.scenario.loading import load
from orchestrator.studies.reproduction import Finding, Reproduction, Section
from testbed.core.clock import EmulatedClock
from testbed.core.timeline import SPAN, Round

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed")

KINDS = ["report", "compare", "campaign", "reproduction"]
WIDTHS = [400, 768, 1280, 1920]
PAPER_PX = 703
"""A4 less its margins, at 96 dots an inch."""
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
    const boxes = [...svg.querySelectorAll("text")].filter((t) => t.textContent).map((t) => {
      const { left, right, top, bottom } = t.getBoundingClientRect();
      return { text: t.textContent, left: left - own.left, right: right - own.left, top, bottom };
    });
    if (own.width) together(svg.getAttribute("aria-label"), boxes, own.width);
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


def several(base: Path) -> list[Path]:
    """A run of other UAVs that measured nothing, under a long name, and a session."""
    long = make_run(base / "a-run-whose-folder-has-quite-a-long-name", uavs=3, rounds=1)
    (long / "measured.parquet").unlink()
    return [long, make_session(base / "session")]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("chromium")) as page:
        page.call("Page.addScriptToEvaluateOnNewDocument", source=NOTE_TEXTS)
        yield page


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One of each kind that is a file."""
    base = tmp_path_factory.mktemp("pages")
    runs = [make_run(base / "a", uavs=10), make_run(base / "b", uavs=10, seed=2)]
    write_comparison([*runs, *several(base)], base / "compare.html")
    made = base / "reproduction"
    made.mkdir()
    Image.new("RGB", (1050, 700), "white").save(made / "fig4.png")
    finding = Finding(
        "fig4", "a claim " * 9, "paper's " * 5, "30.1 % " * 4, "it is " * 9, False, 0.1
    )
    wide = pd.DataFrame({f"column_of_name_{k}": [1.23456789] * 3 for k in range(9)})
    section = Section(
        "fig4", "Latency over u", [finding], wide, ["fig4"], "What one must know. " * 4
    )
    Reproduction([section], "5 rounds, 2 seeds").write(made)
    return {
        "report": write_report(runs[0]),
        "reproduction": made / "report.html",
        "compare": base / "compare.html",
        "campaign": finished_campaign(base).path / "report.html",
    }


def assert_tidy(page: Page, *, scrolls: bool = True) -> None:
    assert page.js(LABELS) == []
    assert page.js(AXES) == []
    assert page.js(OUTSIDE.replace("SCROLLS", str(scrolls).lower())) == []
    assert page.js(TORN) == []


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


def test_the_live_view_too(page: Page, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    scenario = load(Path(__file__).parents[3] / "scenarios" / "quickstart.yaml", ["rounds=1"])
    with serve(scenario) as live:
        steps = [(k, 1, 0, 0.0, 0.1 * k, 9) for k in (1, 2, 3)]
        steps += [(k, 1, 6, 5.0, 5.5, 9) for k in (1, 2, 3)]
        round_ = Round(0, "cpsfl", 2, 0.0, 5.5, np.ones(3), 9.5, np.array(steps, dtype=SPAN))
        rates = np.array([[1e6, 2e6], [3e6, 4e6], [5e6, 0.0]])
        position = np.arange(18.0).reshape(3, 2, 3) * 40
        clock = EmulatedClock(time.monotonic_ns(), 0.0, 1.0)
        live.begin(round_, clock, 0, rates, rates, position)
        found = re.search(r"http://\S+", caplog.text)
        assert found
        for width in WIDTHS:
            page.size(width, dark=width == 768)
            page.show(found[0])
            page.wait(lambda: page.js("state.phase === 'running'"), 30)
            page.settle()
            assert_tidy(page)
            assert page.js("document.documentElement.scrollWidth") <= width
        page.show("about:blank")
