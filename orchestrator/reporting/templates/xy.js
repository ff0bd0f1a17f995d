/* SPDX-FileCopyrightText: UAV-SFL testbed authors
   SPDX-License-Identifier: MIT */

/* Charts of points, lines, bands and bars; orchestrator/reporting/xy.py makes their data. The reader
   may hide series, zoom, choose the horizontal quantity, and take what is shown as CSV. */

const MOST_MARKERS = 60;

const SERIES = {
  points: (s, x, place) => x.map((at, i) => `M${place(at, s.y[i])}h0`).join(""),
  line: (s, x, place) =>
    runs(s.y).map((run) => `M${edge(s, run.map((i) => place(x[i], s.y[i]))).join("L")}`).join(""),
  band: (s, x, place) =>
    runs(s.low)
      .map((run) => {
        const above = edge(s, run.map((i) => place(x[i], s.high[i])));
        const below = edge(s, run.map((i) => place(x[i], s.low[i]))).reverse();
        return `M${[...above, ...below].join("L")}Z`;
      })
      .join(""),
  bars: (s, x, place) =>
    x
      .map((at, i) => {
        const low = s.base?.[i] ?? 0;
        const high = low + s.y[i];
        return `M${place(at, low)}L${place(at, high)}L${place(s.to[i], high)}L${place(s.to[i], low)}Z`;
      })
      .join(""),
};

/* The ends of the intervals of a line's values. */
function whiskers(s, x, place) {
  const bar = (i) => {
    const [at, low] = place(x[i], s.low[i]);
    const [, high] = place(x[i], s.high[i]);
    return `M${at} ${low}V${high}M${at - 3} ${low}h6M${at - 3} ${high}h6`;
  };
  return x.map((_, i) => (s.low[i] === null ? "" : bar(i))).join("");
}

/* Points of a line, with steps where a value holds until the next one. */
function edge(series, places) {
  return (series.holds ? stepped(places) : places).map((pair) => pair.join(" "));
}

/* The indices of values that follow each other without a gap. */
function runs(values) {
  const found = [];
  values.forEach((value, i) => {
    if (value === null) return;
    if (i && values[i - 1] !== null) found.at(-1).push(i);
    else found.push([i]);
  });
  return found;
}

function look(series) {
  const ink = tint(series);
  if (series.kind === "band") return { style: `fill:${ink}`, "fill-opacity": 0.16 };
  if (series.kind === "bars") return { style: `fill:${ink};stroke:var(--edge)`, "fill-opacity": series.base ? 0.9 : 0.6 };
  if (series.kind === "points") {
    const few = series.y.length < 100;
    const opacity = few ? 0.9 : 0.45;
    return { style: `stroke:${ink}`, fill: "none", "stroke-width": few ? 6 : 3, "stroke-linecap": "round", "stroke-opacity": opacity };
  }
  const opacity = series.faint ? 0.4 : 1;
  const dash = { "stroke-dasharray": series.dash, "stroke-opacity": opacity };
  return { style: `stroke:${ink}`, fill: "none", "stroke-width": series.width, ...dash };
}

/* One entry a label: a button that hides the series of that label. */
function xyLegend(chart, hidden, changed) {
  const list = element("ul", { class: "legend" });
  const named = new Map();
  for (const series of chart.series) {
    const known = named.get(series.label);
    if (!known || known.kind === "band" || known.faint) named.set(series.label, series);
  }
  for (const [label, series] of named) {
    const svg = document.createElementNS(SVG, "svg");
    for (const [name, value] of Object.entries({ class: "swatch", width: 24, height: 10, "aria-hidden": true }))
      svg.setAttribute(name, value);
    svg.style.width = "24px";
    const d = { points: "M6 5h0M12 5h0M18 5h0", line: "M0 5H24" }[series.kind] ?? "M0 0H24V10H0Z";
    shape(svg, "path", { d, ...look(series) });
    if (series.marker) marker(svg, 12, 5, series, 3);
    const key = element("button", { type: "button", "aria-pressed": "true" }, svg, label);
    key.addEventListener("click", () => {
      if (!hidden.delete(label)) hidden.add(label);
      key.setAttribute("aria-pressed", String(!hidden.has(label)));
      changed();
    });
    list.append(element("li", {}, key));
  }
  return list;
}

/* Which horizontal quantity the charts of a page show; they change together. */
const over = { name: null, changed: [] };

function overChooser(chart) {
  over.name ??= Object.keys(chart.over)[0];
  const list = element("select");
  for (const [value, name] of Object.entries(chart.over)) list.append(element("option", { value }, name));
  list.value = over.name;
  over.changed.push(() => (list.value = over.name));
  list.addEventListener("change", () => {
    over.name = list.value;
    for (const change of over.changed) change();
  });
  return element("label", {}, "Horizontal axis ", list);
}

function xyChart(holder, chart) {
  const onX = chart.x.log ? Math.log10 : (value) => value;
  const hidden = new Set();
  let zoom = null;
  const shownSeries = () => chart.series.filter((s) => !hidden.has(s.label));
  const xOf = (s) => (chart.over ? s.x[over.name] ?? [] : s.x);
  const xLabel = () => (chart.over ? chart.over[over.name] : chart.x.label);
  const range = (values, [from, to], margin) => {
    const low = values.reduce((a, b) => Math.min(a, b), Infinity);
    const high = values.reduce((a, b) => Math.max(a, b), -Infinity);
    const more = margin * (high - low || 1);
    return [from ?? low - more, to ?? high + more];
  };
  const bounds = () => {
    const [low, high] = range(chart.series.flatMap((s) => [...xOf(s), ...(s.to ?? [])]).map(onX), [], 0);
    return chart.x.whole ? [low - 0.5, high + 0.5] : [low, high];
  };
  const inside = (at) => !zoom || (onX(at) >= zoom[0] && onX(at) <= zoom[1]);
  const ranges = () => {
    const of = (s) => {
      const kept = (values) => (values ?? []).filter((value, i) => value !== null && inside(xOf(s)[i]));
      const tops = s.base && s.y.map((value, i) => value + s.base[i]);
      return [...kept(tops ?? s.y), ...kept(s.low), ...kept(s.high)];
    };
    const all = shownSeries().flatMap(of);
    return [zoom ?? bounds(), range(all.length ? all : [0, 1], chart.y.range, 0.05)];
  };
  const note = element("p", { class: "muted", hidden: "" });
  const controls = element("div", { class: "controls" });
  const clip = `clip-${holder.id}`;
  let plotted = null;
  const draw = (svg, width, height) => {
    const box = [60, 28, width - 22, height - 40];
    const [x, y] = ranges();
    const [across, up] = axes(svg, { x, y, box, xLabel: xLabel(), yLabel: chart.y.label, xLog: chart.x.log, xWhole: chart.x.whole, xNames: chart.x.names });
    plotted = { across, box };
    const mask = shape(shape(svg, "defs"), "clipPath", { id: clip });
    const size = { x: box[0], y: box[1], width: box[2] - box[0], height: box[3] - box[1] };
    shape(mask, "rect", { ...size, x: box[0] - 5, y: box[1] - 5, width: size.width + 10, height: size.height + 10 });
    const drawn = shape(svg, "g", { "clip-path": `url(#${clip})` });
    const place = (at, value) => [across(onX(at)).toFixed(1), up(value).toFixed(1)];
    for (const series of shownSeries()) {
      const places = xOf(series);
      if (!places.length) continue;
      const joined = ["line", "band"].includes(series.kind) ? place : (...given) => place(...given).join(" ");
      shape(drawn, "path", { d: SERIES[series.kind](series, places, joined), ...look(series) });
      if (series.kind === "line" && series.low)
        shape(drawn, "path", { d: whiskers(series, places, place), ...look({ ...series, dash: "", width: 1.4 }) });
      if (!series.marker) continue;
      const seen = places.flatMap((at, i) => (series.y[i] !== null && inside(at) ? [i] : []));
      const every = Math.ceil(seen.length / MOST_MARKERS);
      for (const i of seen.filter((_, k) => k % every === 0))
        marker(drawn, ...place(places[i], series.y[i]).map(Number), series, 3).setAttribute("class", "evaluation");
    }
    const cover = shape(svg, "rect", { ...size, "fill-opacity": 0, class: "cover" });
    const tell = (event) => tellXy(event, { ...chart, series: shownSeries() }, xOf, xLabel(), (at) => across(onX(at)), up);
    let from = null;
    cover.addEventListener("pointerdown", (event) => {
      from = event.offsetX;
      cover.setPointerCapture(event.pointerId);
    });
    cover.addEventListener("pointermove", (event) => {
      if (from === null) return tell(event);
      const ends = [from, event.offsetX].sort((a, b) => a - b);
      selection.setAttribute("x", Math.max(box[0], ends[0]));
      selection.setAttribute("width", Math.max(0, Math.min(box[2], ends[1]) - Math.max(box[0], ends[0])));
    });
    cover.addEventListener("pointerup", (event) => {
      const ends = [from, event.offsetX].map((at) => Math.min(box[2], Math.max(box[0], at))).sort((a, b) => a - b);
      from = null;
      if (ends[1] - ends[0] < 6) return selection.setAttribute("width", 0);
      show(ends.map(across.invert));
    });
    cover.addEventListener("pointerleave", () => tip.hide());
    cover.addEventListener("dblclick", () => show(null));
    const { width: _, ...still } = size;
    const selection = shape(svg, "rect", { ...still, width: 0, class: "selection" });
    note.textContent = chart.notes?.[over.name] ?? "";
    note.hidden = !note.textContent;
  };
  const show = (next) => {
    zoom = next;
    reset.disabled = !zoom;
    redraw();
  };
  const reset = element("button", { type: "button", disabled: "" }, "Whole range");
  reset.addEventListener("click", () => show(null));
  const save = element("button", { type: "button", title: "The visible series and range as a file" }, "CSV");
  save.addEventListener("click", () => download(`${holder.id}.csv`, csvOf(chart, shownSeries(), xOf, xLabel(), inside)));
  if (chart.over && !over.changed.length) controls.append(overChooser(chart));
  controls.append(reset, save);
  holder.before(controls, xyLegend(chart, hidden, () => redraw()));
  holder.after(note);
  const told = () => chart.label + (chart.over ? `, against ${xLabel()}` : "");
  const redraw = figure(holder, told, 300, draw);
  if (chart.over) over.changed.push(() => show(null));
  return redraw;
}

/* A line for each visible value: series, place, and the value or the ends of its band. */
function csvOf(chart, visible, xOf, xLabel, inside) {
  const rows = [["series", xLabel, chart.y.label, "low", "high"]];
  for (const series of visible)
    xOf(series).forEach((at, i) => {
      const place = chart.x.names?.[Math.round((at + (series.to?.[i] ?? at)) / 2)] ?? at;
      if (inside(at)) rows.push([series.name ?? series.label, place, series.y?.[i], series.low?.[i], series.high?.[i]]);
    });
  return csvText(rows);
}

/* What each series has nearest to the pointer: the nearest point of all, and values at its place. */
function tellXy(event, chart, xOf, xLabel, across, up) {
  let nearest = { far: Infinity };
  const rows = [];
  for (const series of chart.series) {
    if (series.faint) continue;
    let found = { far: 16 };
    xOf(series).forEach((x, i) => {
      if ((series.y ?? series.low)[i] === null) return;
      const away = series.kind === "points" ? up(series.y[i]) - event.offsetY : 0;
      const aside = series.to
        ? Math.max(across(x) - event.offsetX, event.offsetX - across(series.to[i]), 0)
        : across(x) - event.offsetX;
      const far = Math.hypot(aside, away);
      if (far < found.far) found = { far, i, x };
    });
    if (found.i === undefined) continue;
    if (found.far < nearest.far) nearest = { ...found, to: series.to?.[found.i] ?? found.x };
    const text = (value) => fixed(value, chart.y.digits);
    const value = series.y?.[found.i];
    const band = () => `${text(series.low[found.i])} to ${text(series.high[found.i])}`;
    const half = (series.high?.[found.i] ?? 0) - (value ?? 0);
    const interval = series.kind === "line" && half > 0 ? ` ± ${text(half)}` : "";
    rows.push([series.label, value === undefined ? band() : text(value) + interval]);
  }
  if (!rows.length) return tip.hide();
  const middle = Math.round((nearest.x + nearest.to) / 2);
  const at = chart.x.names?.[middle] ?? fixed(nearest.x, chart.x.digits);
  return tip.show(event, `${xLabel}: ${at}`, [[chart.y.label, ""], ...rows]);
}

for (const [name, chart] of Object.entries(JSON.parse(byId("data").textContent).charts))
  redraws.push(xyChart(byId(`chart-${name}`), chart));
