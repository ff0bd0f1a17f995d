/* SPDX-FileCopyrightText: UAV-SFL testbed authors
   SPDX-License-Identifier: MIT */

/* The page of a campaign: one chart per study, with a choice of metric and axis values, and the table of its points. */

const campaign = JSON.parse(byId("data").textContent);
const MODES = { predict: "predicted", run: "measured" };

function chooser(text, options, chosen, changed) {
  const list = element("select");
  for (const [value, name] of options) list.append(element("option", { value }, name));
  list.value = chosen;
  list.addEventListener("change", () => changed(list.value));
  return element("label", {}, `${text} `, list);
}

/* A study's means over one axis, a line for each value of another. */
function studyChart(section, study) {
  const present = [...new Set(study.rows.map((row) => row.mode))];
  const shown = { x: study.x, y: study.y, mode: present[0], others: {} };
  const hidden = new Set();
  const others = study.axes.filter(({ name }) => name !== study.x && name !== study.lines);
  const controls = section.querySelector(".controls");
  const metrics = Object.entries(study.titles);
  let redraw = () => {};
  controls.append(chooser("Metric", metrics, shown.y, (value) => ((shown.y = value), redraw())));
  if (present.length > 1) {
    const modes = present.map((mode) => [mode, MODES[mode]]);
    controls.append(chooser("Points", modes, shown.mode, (v) => ((shown.mode = v), redraw())));
  }
  others.forEach(({ name, label, values }) => {
    shown.others[name] = String(values[0]);
    const options = values.map((value) => [value, value]);
    const changed = (value) => ((shown.others[name] = value), redraw());
    controls.append(chooser(label, options, values[0], changed));
  });

  const legend = section.querySelector(".legend");
  for (const [value, style] of Object.entries(study.styles)) {
    if (!study.lines) break;
    const key = element("button", { type: "button", "aria-pressed": "true" });
    key.append(swatch(style), style.title);
    key.addEventListener("click", () => {
      if (!hidden.delete(value)) hidden.add(value);
      key.setAttribute("aria-pressed", String(!hidden.has(value)));
      key.style.opacity = hidden.has(value) ? 0.45 : 1;
      redraw();
    });
    legend.append(element("li", {}, key));
  }

  const rows = () =>
    study.rows.filter(
      (row) =>
        row.mode === shown.mode &&
        row[shown.y] !== null &&
        others.every(({ name }) => String(row[name]) === shown.others[name]),
    );
  const xAxis = study.axes.find(({ name }) => name === shown.x) ?? { label: shown.x, values: [] };
  redraw = figure(
    section.querySelector(".chart"),
    () => `${study.titles[shown.y]} over ${xAxis.label}, ${rows().length} means`,
    340,
    (svg, width, height) => paintMeans(svg, width, height, study, shown, xAxis, rows(), hidden),
  );
  redraws.push(redraw);
}

/* A line of a legend. */
function swatch(style) {
  const svg = document.createElementNS(SVG, "svg");
  for (const [name, value] of [["width", 30], ["height", 12], ["viewBox", "0 0 30 12"]])
    svg.setAttribute(name, value);
  svg.setAttribute("style", "display:inline-block;width:30px;vertical-align:-1px;margin-right:6px");
  stroke(svg, "line", { x1: 0, x2: 30, y1: 6, y2: 6 }, style);
  marker(svg, 15, 6, style);
  return svg;
}

function paintMeans(svg, width, height, study, shown, xAxis, rows, hidden) {
  const box = [64, 30, width - 24, height - 46];
  const numeric = xAxis.values.every((value) => typeof value === "number");
  const at = (row) => (numeric ? row[shown.x] : xAxis.values.indexOf(row[shown.x]));
  const visible = rows.filter((row) => !hidden.has(String(row[study.lines])));
  if (!visible.length) {
    shape(svg, "text", { x: box[0], y: 60 }, "No values to show.");
    return;
  }
  const high = (row) => row[shown.y] + (row[`${shown.y}_ci95`] ?? 0);
  const low = (row) => row[shown.y] - (row[`${shown.y}_ci95`] ?? 0);
  const places = numeric ? xAxis.values : xAxis.values.map((_, index) => index);
  const left = Math.min(...places);
  const right = Math.max(...places);
  const margin = 0.04 * (right - left || 1);
  const top = Math.max(...visible.map(high)) * 1.06;
  const across = scale([left - margin, right + margin], [box[0], box[2]]);
  const up = scale([Math.min(0, ...visible.map(low)), top], [box[3], box[1]]);
  const ys = ticks(Math.min(0, ...visible.map(low)), top, (box[3] - box[1]) / 42);
  const text = tickText(ys);
  for (const value of ys) {
    shape(svg, "line", { class: "grid", x1: box[0], x2: box[2], y1: up(value), y2: up(value) });
    shape(svg, "text", { x: box[0] - 8, y: up(value) + 4, "text-anchor": "end" }, text(value));
  }
  const sparse = numeric && places.length > 12 ? ticks(left, right, width / 90) : places;
  for (const value of sparse) {
    const name = numeric ? String(+value.toPrecision(6)) : String(xAxis.values[value]);
    shape(svg, "text", { x: across(value), y: box[3] + 18, "text-anchor": "middle" }, name);
  }
  shape(svg, "line", { class: "axis", x1: box[0], x2: box[2], y1: box[3], y2: box[3] });
  shape(svg, "text", { x: box[2], y: box[3] + 38, "text-anchor": "end" }, xAxis.label);
  shape(svg, "text", { x: 0, y: box[1] - 14 }, study.titles[shown.y]);

  for (const [value, style] of Object.entries(study.styles)) {
    const own = visible.filter((row) => !study.lines || String(row[study.lines]) === value);
    own.sort((a, b) => at(a) - at(b));
    const path = own.map((row) => `${across(at(row))},${up(row[shown.y])}`).join(" ");
    if (own.length > 1) stroke(svg, "polyline", { points: path }, style);
    for (const row of own) {
      const x = across(at(row));
      if (row[`${shown.y}_ci95`] !== null) {
        const bar = { ...style, dash: "" };
        stroke(svg, "line", { x1: x, x2: x, y1: up(low(row)), y2: up(high(row)) }, bar);
        for (const end of [low(row), high(row)])
          stroke(svg, "line", { x1: x - 3, x2: x + 3, y1: up(end), y2: up(end) }, bar);
      }
      const dot = marker(svg, x, up(row[shown.y]), style);
      dot.setAttribute("class", "mean");
      dot.addEventListener("pointermove", (event) => tell(event, study, shown, xAxis, row, style));
      dot.addEventListener("pointerleave", () => tip.hide());
    }
  }
}

function tell(event, study, shown, xAxis, row, style) {
  const digits = 4;
  const half = row[`${shown.y}_ci95`];
  const title = study.lines ? style.title : study.name;
  tip.show(event, title, [
    [xAxis.label, String(row[shown.x])],
    [study.titles[shown.y], fixed(row[shown.y], digits)],
    ["95 % interval", half === null ? "none: nothing varied" : `± ${fixed(half, digits)}`],
    ["Samples (seeds)", String(row.n)],
  ]);
}

for (const study of campaign.studies) {
  const section = byId(`study-${study.name}`);
  if (study.rows.length) studyChart(section, study);
}
const pointTable = byId("point-table");
const sift = tabulate(pointTable);
if (pointTable.querySelector("[data-reached]")) timesTo(pointTable, campaign.reached, sift);
themes();
copyButtons();
markSection();
