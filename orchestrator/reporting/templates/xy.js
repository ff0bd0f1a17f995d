/* SPDX-FileCopyrightText: UAV-SFL testbed authors
   SPDX-License-Identifier: MIT */

/* Charts of points, lines, bands and bars; orchestrator/reporting/xy.py makes their data. */

const SERIES = {
  points: (s, place) =>
    s.x.map((x, i) => `M${place(x, s.y[i])}h0`).join(""),
  line: (s, place) => runs(s.y).map((run) => `M${run.map((i) => place(s.x[i], s.y[i])).join("L")}`).join(""),
  band: (s, place) =>
    runs(s.low)
      .map((run) => {
        const above = run.map((i) => place(s.x[i], s.high[i]));
        const below = run.toReversed().map((i) => place(s.x[i], s.low[i]));
        return `M${[...above, ...below].join("L")}Z`;
      })
      .join(""),
  bars: (s, place) =>
    s.x.map((x, i) => `M${place(x, 0)}L${place(x, s.y[i])}L${place(s.to[i], s.y[i])}L${place(s.to[i], 0)}Z`).join(""),
};

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
  const ink = `var(--${series.colour})`;
  if (series.kind === "band") return { style: `fill:${ink}`, "fill-opacity": 0.16 };
  if (series.kind === "bars") return { style: `fill:${ink}`, "fill-opacity": 0.5 };
  if (series.kind === "points") {
    const few = series.x.length < 100;
    const opacity = few ? 0.9 : 0.45;
    return { style: `stroke:${ink}`, "stroke-width": few ? 6 : 3, "stroke-linecap": "round", "stroke-opacity": opacity };
  }
  return { style: `stroke:${ink}`, fill: "none", "stroke-width": series.width, "stroke-dasharray": series.dash };
}

function xyLegend(chart) {
  const list = element("ul", { class: "legend" });
  for (const series of chart.series) {
    const svg = document.createElementNS(SVG, "svg");
    for (const [name, value] of Object.entries({ class: "swatch", width: 24, height: 10, "aria-hidden": true }))
      svg.setAttribute(name, value);
    svg.style.width = "24px";
    const d = { points: "M6 5h0M12 5h0M18 5h0", line: "M0 5H24" }[series.kind] ?? "M0 0H24V10H0Z";
    shape(svg, "path", { d, ...look(series) });
    list.append(element("li", {}, svg, series.label));
  }
  return list;
}

function xyChart(holder, chart) {
  const onX = chart.x.log ? Math.log10 : (value) => value;
  const range = (values, [from, to], margin) => {
    const low = values.reduce((a, b) => Math.min(a, b), Infinity);
    const high = values.reduce((a, b) => Math.max(a, b), -Infinity);
    const more = margin * (high - low || 1);
    return [from ?? low - more, to ?? high + more];
  };
  const xs = chart.series.flatMap((s) => [...s.x, ...(s.to ?? [])]).map(onX);
  const ys = chart.series.flatMap((s) => [...(s.y ?? []), ...(s.low ?? []), ...(s.high ?? [])]);
  const x = range(xs, [], 0);
  const y = range(ys.filter((value) => value !== null), chart.y.range, 0.05);
  holder.before(xyLegend(chart));
  return figure(holder, () => chart.label, 300, (svg, width, height) => {
    const box = [60, 28, width - 22, height - 40];
    const [xLabel, yLabel] = [chart.x.label, chart.y.label];
    const [across, up] = axes(svg, { x, y, box, xLabel, yLabel, xLog: chart.x.log });
    const place = (at, value) => `${across(onX(at)).toFixed(1)} ${up(value).toFixed(1)}`;
    for (const series of chart.series)
      shape(svg, "path", { d: SERIES[series.kind](series, place), ...look(series) });
    const cover = shape(svg, "rect", {
      x: box[0],
      y: box[1],
      width: box[2] - box[0],
      height: box[3] - box[1],
      "fill-opacity": 0,
    });
    cover.addEventListener("pointermove", (event) => tellXy(event, chart, (at) => across(onX(at)), up));
    cover.addEventListener("pointerleave", () => tip.hide());
  });
}

/* What each series has nearest to the pointer: the nearest point of all, and values at its place. */
function tellXy(event, chart, across, up) {
  let nearest = { far: Infinity };
  const rows = [];
  for (const series of chart.series) {
    let found = { far: 16 };
    series.x.forEach((x, i) => {
      if ((series.y ?? series.low)[i] === null) return;
      const away = series.kind === "points" ? up(series.y[i]) - event.offsetY : 0;
      const aside = series.to
        ? Math.max(across(x) - event.offsetX, event.offsetX - across(series.to[i]), 0)
        : across(x) - event.offsetX;
      const far = Math.hypot(aside, away);
      if (far < found.far) found = { far, i, x };
    });
    if (found.i === undefined) continue;
    if (found.far < nearest.far) nearest = found;
    const text = (value) => fixed(value, chart.y.digits);
    const value = series.y?.[found.i];
    const band = () => `${text(series.low[found.i])} to ${text(series.high[found.i])}`;
    rows.push([series.label, value === undefined ? band() : text(value)]);
  }
  if (!rows.length) return tip.hide();
  const at = fixed(nearest.x, chart.x.digits);
  return tip.show(event, `${chart.x.label}: ${at}`, [[chart.y.label, ""], ...rows]);
}

for (const [name, chart] of Object.entries(JSON.parse(byId("data").textContent).charts))
  redraws.push(xyChart(byId(`chart-${name}`), chart));
