/* SPDX-FileCopyrightText: UAV-SFL testbed authors
   SPDX-License-Identifier: MIT */

"use strict";
/* Drawing without a library: elements, scales, ticks, a tooltip, and canvases that share one time
   axis. Nothing in this file knows what a round or a UAV is. */

const SVG = "http://www.w3.org/2000/svg";

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function shape(parent, tag, attributes = {}, text = null) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== null) node.textContent = text;
  parent.append(node);
  return node;
}

function byId(id) {
  return document.getElementById(id);
}

/* The value of a style variable as a canvas takes it, in the theme of the moment. */
const probe = document.body.appendChild(element("i", { hidden: "" }));
let themed = new Map();
function colour(name) {
  if (!themed.has(name)) {
    probe.style.color = `var(--${name})`;
    themed.set(name, getComputedStyle(probe).color);
  }
  return themed.get(name);
}
function forgetColours() {
  themed = new Map();
}

/* On paper, charts are drawn anew, before the browser lays the page out: for A4 less its margins, 186
   mm at 96 dots an inch, and denser than a screen. What is beside another chart has half of it. */
const PAPER = { on: false, width: 703, gap: 22, dense: 3 };
function widthOf(holder) {
  if (!PAPER.on) return holder.clientWidth;
  return holder.closest(".split.even") ? (PAPER.width - PAPER.gap) / 2 : PAPER.width;
}

function scale([low, high], [first, last]) {
  const per = (last - first) / (high - low || 1);
  const at = (value) => first + (value - low) * per;
  at.invert = (place) => low + (place - first) / per;
  return at;
}

/* Round numbers between low and high, about as many as asked for. */
function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  if (!(rough > 0) || !Number.isFinite(rough)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999) * power;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++)
    found.push(i * step + 0);
  return found;
}

/* The largest of 1, 2, 5, 10, ... that is not above a length. */
function roundBelow(length) {
  const power = 10 ** Math.floor(Math.log10(length));
  return [5, 2, 1].find((factor) => factor * power <= length) * power;
}

/* As many decimals as neighbouring ticks need to differ. */
function tickText(values) {
  const step = values.length > 1 ? Math.abs(values[1] - values[0]) : Math.abs(values[0]) || 1;
  const digits = Math.min(9, Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
  return (value) => fixed(value, digits);
}

/* Points of a line whose values hold until the next one. */
function stepped(points) {
  return points.flatMap((point, i) => (i ? [[point[0], points[i - 1][1]], point] : [point]));
}

/* Digits as the page prints them: a true minus, and none before what rounds to zero. */
function fixed(value, digits) {
  const form = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  const text = Math.abs(value).toLocaleString("en", form);
  return value < 0 && /[1-9]/.test(text) ? `−${text}` : text;
}
function signed(value, digits) {
  const text = fixed(value, digits);
  return value > 0 && /[1-9]/.test(text) ? `+${text}` : text;
}
function milliseconds(seconds) {
  const ms = seconds * 1e3;
  return `${signed(ms, Math.abs(ms) < 1 ? 3 : Math.abs(ms) < 10 ? 2 : 1)} ms`;
}

/* A colour of a style: a variable of the style sheet, or one that dark pages take lighter, as light
   as marks on them must be. */
function tint({ colour: name }) {
  const lighter = `oklch(from color-mix(in oklab, ${name} 68%, white) max(l, 0.6) c h)`;
  return name.startsWith("#") ? `light-dark(${name}, ${lighter})` : `var(--${name})`;
}

/* Lines are told apart by colour, dashes and marker. */
function stroke(svg, tag, attributes, style) {
  return shape(svg, tag, {
    ...attributes,
    fill: "none",
    "stroke-width": 1.8,
    "stroke-dasharray": style.dash,
    style: `stroke:${tint(style)}`,
  });
}
function marker(svg, x, y, style, r = 4) {
  const points = {
    s: [[-r, -r], [r, -r], [r, r], [-r, r]],
    D: [[0, -r - 1], [r + 1, 0], [0, r + 1], [-r - 1, 0]],
    "^": [[0, -r - 1], [r + 1, r], [-r - 1, r]],
    v: [[0, r + 1], [r + 1, -r], [-r - 1, -r]],
    "<": [[-r - 1, 0], [r, -r - 1], [r, r + 1]],
    ">": [[r + 1, 0], [-r, -r - 1], [-r, r + 1]],
  }[style.marker];
  const look = { style: `stroke:${tint(style)};fill:var(--surface)`, "stroke-width": 1.6 };
  if (!points) return shape(svg, "circle", { cx: x, cy: y, r, ...look });
  const path = points.map(([dx, dy]) => `${x + dx},${y + dy}`).join(" ");
  return shape(svg, "polygon", { points: path, ...look });
}

/* --- tooltip ---------------------------------------------------------------------------------- */

const tip = {
  node: byId("tip"),
  show(event, title, rows) {
    const list = element("dl");
    for (const [name, value] of rows) {
      list.append(element("dt", {}, name), element("dd", {}, value));
    }
    this.node.replaceChildren(element("b", {}, title), list);
    this.node.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.node;
    const right = event.clientX + 18 + width > innerWidth;
    const below = event.clientY + 18 + height > innerHeight;
    this.node.style.left = `${Math.max(4, right ? event.clientX - 14 - width : event.clientX + 16)}px`;
    this.node.style.top = `${Math.max(4, below ? event.clientY - 12 - height : event.clientY + 16)}px`;
  },
  hide() {
    this.node.hidden = true;
  },
};

/* --- charts over time ------------------------------------------------------------------------- */

/* One stretch of time that several canvases show together: moving or zooming one moves all. */
class TimeAxis {
  constructor(from, to) {
    this.charts = [];
    this.cursorMoved = () => {};
    this.limit(from, to);
  }

  /* Show from..to, and never more than that. */
  limit(from, to) {
    this.bounds = [from, Math.max(to, from + 1e-6)];
    this.reset();
  }

  reset() {
    [this.from, this.to] = this.bounds;
    this.redraw();
  }

  show(from, to) {
    const [first, last] = this.bounds;
    const span = Math.min(last - first, Math.max(to - from, 1e-4));
    this.from = Math.min(Math.max(from, first), last - span);
    this.to = this.from + span;
    this.redraw();
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    this.show(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }

  move(share) {
    const by = (this.to - this.from) * share;
    this.show(this.from + by, this.to + by);
  }

  redraw() {
    if (PAPER.on) return this.draw(); // no frame comes before the page is printed
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.draw();
    });
  }

  draw() {
    for (const chart of this.charts) chart.draw();
  }

  setCursor(time, quiet = false) {
    this.cursor = time;
    for (const chart of this.charts) chart.placeCursor();
    if (!quiet) this.cursorMoved(time);
  }
}

const GUTTER = { left: 74, right: 18 };

/* A canvas on a TimeAxis. `height()` answers its height, `paint(context, place, height)` fills it,
   `hover(event, time, y)` and `pick(time, y)` answer the mouse. */
class TimeChart {
  constructor(holder, axis, label, { height, paint, hover, pick = () => {} }) {
    Object.assign(this, { holder, axis, height, paint, hover, pick });
    this.canvas = element("canvas", { role: "img", "aria-label": label, tabindex: "0" });
    this.line = element("div", { class: "cursor", hidden: "" });
    holder.append(this.canvas, this.line);
    axis.charts.push(this);
    new ResizeObserver(() => this.draw()).observe(holder);
    this.listen();
    this.draw();
  }

  get place() {
    return scale([this.axis.from, this.axis.to], [GUTTER.left, this.width - GUTTER.right]);
  }

  draw() {
    this.width = widthOf(this.holder);
    if (!this.width) return;
    const height = this.height();
    const dense = PAPER.on ? PAPER.dense : devicePixelRatio || 1;
    this.canvas.width = Math.round(this.width * dense);
    this.canvas.height = Math.round(height * dense);
    this.canvas.style.height = `${height}px`;
    const context = this.canvas.getContext("2d");
    context.scale(dense, dense);
    context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    context.textBaseline = "middle";
    this.paint(context, this.place, height, this.width);
    this.placeCursor();
  }

  placeCursor() {
    const { cursor, from, to } = this.axis;
    const hidden = cursor === undefined || cursor < from || cursor > to || !this.width;
    this.line.hidden = hidden;
    if (!hidden) this.line.style.transform = `translateX(${this.place(cursor)}px)`;
  }

  listen() {
    const canvas = this.canvas;
    let dragged = null;
    canvas.addEventListener("pointerdown", (event) => {
      dragged = { x: event.clientX, from: this.axis.from, to: this.axis.to, far: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointerup", (event) => {
      if (dragged && !dragged.far) this.pick(this.place.invert(event.offsetX), event.offsetY);
      dragged = null;
    });
    canvas.addEventListener("pointermove", (event) => {
      if (dragged && Math.abs(event.clientX - dragged.x) > 3) dragged.far = true;
      if (dragged?.far) {
        const each = (dragged.to - dragged.from) / (this.width - GUTTER.left - GUTTER.right);
        const by = (dragged.x - event.clientX) * each;
        this.axis.show(dragged.from + by, dragged.to + by);
        tip.hide();
        return;
      }
      const time = this.place.invert(event.offsetX);
      if (time >= this.axis.from && time <= this.axis.to) this.axis.setCursor(time);
      this.hover(event, time, event.offsetY);
    });
    canvas.addEventListener("pointerleave", () => tip.hide());
    canvas.addEventListener("dblclick", (event) =>
      this.axis.zoom(0.4, this.place.invert(event.offsetX)),
    );
    canvas.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        this.axis.zoom(1.0015 ** event.deltaY, this.place.invert(event.offsetX));
      },
      { passive: false },
    );
    canvas.addEventListener("keydown", (event) => {
      const action = {
        ArrowLeft: () => this.axis.move(-0.15),
        ArrowRight: () => this.axis.move(0.15),
        "+": () => this.axis.zoom(0.6),
        "=": () => this.axis.zoom(0.6),
        "-": () => this.axis.zoom(1 / 0.6),
        0: () => this.axis.reset(),
      }[event.key];
      if (!action || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      action();
    });
  }
}

/* Vertical lines and labels of the time axis; answers the labels' baseline. */
function paintTimes(context, place, top, bottom, width, labelled) {
  const span = [place.invert(GUTTER.left), place.invert(width - GUTTER.right)];
  const values = ticks(...span, Math.max(3, width / 110));
  const text = tickText(values);
  context.textAlign = "center";
  for (const value of values) {
    const x = Math.round(place(value)) + 0.5;
    context.strokeStyle = colour("faint");
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x, bottom);
    context.stroke();
    if (!labelled) continue;
    context.fillStyle = colour("muted");
    context.fillText(`${text(value)} s`, x, top - 10);
  }
}

/* --- charts that are drawn once --------------------------------------------------------------- */

/* An SVG that is drawn anew when its holder's width changes. Answers a function that redraws. */
function figure(holder, label, height, paint) {
  let drawn = 0;
  const redraw = () => {
    drawn = widthOf(holder);
    if (!drawn) return;
    const svg = document.createElementNS(SVG, "svg");
    for (const [name, value] of Object.entries({
      viewBox: `0 0 ${drawn} ${height}`,
      height,
      role: "img",
      "aria-label": label(),
    }))
      svg.setAttribute(name, value);
    holder.replaceChildren(svg);
    paint(svg, drawn, height);
  };
  new ResizeObserver(() => widthOf(holder) !== drawn && redraw()).observe(holder);
  redraw();
  return redraw;
}

/* The first of some boxes [left, right, top, bottom] that meets none of those taken, and is taken
   then; -1: there is none. */
function freeOf(boxes, taken) {
  const meets = ([a, b, c, d]) => taken.some(([e, f, g, h]) => a < f && e < b && c < h && g < d);
  const found = boxes.findIndex((box) => !meets(box));
  if (found >= 0) taken.push(boxes[found]);
  return found;
}

/* A label's places beside a dot in pixels, and its box there: right, left, above, below. */
const BESIDE = [
  [12, 4, "start"],
  [-12, 4, "end"],
  [0, -13, "middle"],
  [0, 22, "middle"],
];
function boxBeside(x, y, [dx, dy, anchor], letters, pixel) {
  const wide = 8 * letters * pixel;
  const left = x + dx * pixel - { start: 0, end: wide, middle: wide / 2 }[anchor];
  const bottom = y + (dy + 3) * pixel;
  return [left, left + wide, bottom - 14 * pixel, bottom];
}
function placeBeside(node, x, y, letters, pixel, taken) {
  const boxes = BESIDE.map((each) => boxBeside(x, y, each, letters, pixel));
  const side = BESIDE[Math.max(0, freeOf(boxes, taken))];
  node.setAttribute("x", x + side[0] * pixel);
  node.setAttribute("y", y + side[1] * pixel);
  node.setAttribute("text-anchor", side[2]);
}

/* A ring's name on it: above, below, on the right or on the left, where nothing else is; or none. */
function placeOnRing(node, x, y, r, letters, pixel, taken) {
  const half = 3.6 * letters * pixel;
  const spots = [
    [x, y - r - 4 * pixel],
    [x, y + r + 13 * pixel],
    [x + r, y - 4 * pixel],
    [x - r, y - 4 * pixel],
  ];
  const boxes = spots.map(([cx, cy]) => [cx - half, cx + half, cy - 11 * pixel, cy + 3 * pixel]);
  const free = freeOf(boxes, taken);
  const [cx, cy] = spots[Math.max(0, free)];
  node.setAttribute("x", cx);
  node.setAttribute("y", cy);
  node.style.display = free < 0 ? "none" : "";
}

/* Cut a text of an SVG to a width, with an ellipsis; its title then has all of it. */
function fitText(node, width) {
  const whole = node.textContent;
  let kept = whole.length;
  while (kept > 1 && node.getComputedTextLength() > width)
    node.textContent = `${whole.slice(0, (kept -= 1)).trimEnd()}…`;
  if (kept < whole.length) shape(node, "title", {}, whole);
}

/* Round numbers between two logarithms, more of each decade if there is room for more labels. */
function decades(low, high, count) {
  const each = count / (high - low || 1);
  const factors = each > 9 ? [1, 1.5, 2, 3, 5, 7] : each > 4 ? [1, 2, 5] : [1];
  const found = [];
  for (let power = Math.floor(low); power <= high; power++)
    for (const factor of factors) found.push(factor * 10 ** power);
  return found.filter((value) => Math.log10(value) >= low - 1e-9 && Math.log10(value) <= high + 1e-9);
}

/* Frame, grid and labels of a plot in an SVG; answers its two scales. An axis with `xLog` is of
   logarithms, and one with `xWhole` of whole numbers, or of their `xNames`. */
function axes(svg, { x, y, box, xText, yText, xLabel, yLabel, xLog, xWhole, xNames }) {
  const [left, top, right, bottom] = box;
  const across = scale(x, [left, right]);
  const up = scale(y, [bottom, top]);
  const sparse = xNames
    ? [...xNames.keys()].filter((value) => x[0] <= value && value <= x[1])
    : ticks(...x, (right - left) / (xWhole ? 60 : 90)).filter((value) => !xWhole || Number.isInteger(value));
  const xs = xLog
    ? decades(...x, (right - left) / 45).map(Math.log10)
    : xWhole || sparse.length > 2 ? sparse : ticks(...x, (right - left) / 50);
  const ys = ticks(...y, (bottom - top) / 38);
  const xName = xText ?? (xLog ? (value) => String(+(10 ** value).toPrecision(6)) : tickText(xs));
  const yName = yText ?? tickText(ys);
  for (const value of ys) {
    shape(svg, "line", { class: "grid", x1: left, x2: right, y1: up(value), y2: up(value) });
    shape(svg, "text", { x: left - 8, y: up(value) + 4, "text-anchor": "end" }, yName(value));
  }
  for (const value of xs) {
    const text = xNames ? xNames[value] : xName(value);
    const name = shape(svg, "text", { x: across(value), y: bottom + 17, "text-anchor": "middle" }, text);
    if (xNames) fitText(name, across(1) - across(0) - 8);
  }
  shape(svg, "line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom });
  shape(svg, "text", { x: right, y: bottom + 33, "text-anchor": "end" }, xLabel);
  shape(svg, "text", { x: 0, y: top - 10 }, yLabel);
  return [across, up];
}
