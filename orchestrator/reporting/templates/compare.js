/* SPDX-FileCopyrightText: UAV-SFL testbed authors
   SPDX-License-Identifier: MIT */

/* A comparison of results: latencies, error budgets, sessions; one colour per result. */

const ROOM = 1.05;

/* --- latencies -------------------------------------------------------------------------------- */

/* Vertical lines with their values below; all there is of an axis for bars that lie. */
function lyingAxis(svg, [low, high], [left, right], bottom, name) {
  const across = scale([low, high], [left, right]);
  const values = ticks(low, high, (right - left) / 90);
  const text = tickText(values);
  for (const value of values) {
    const x = across(value);
    shape(svg, "line", { class: "grid", x1: x, x2: x, y1: 0, y2: bottom });
    shape(svg, "text", { x, y: bottom + 15, "text-anchor": "middle" }, text(value));
  }
  shape(svg, "text", { x: right, y: bottom + 32, "text-anchor": "end" }, name);
  return across;
}

function latencyChart() {
  const all = data.latencies.flatMap((entry) => [...entry.latency_s, ...entry.predicted_s]);
  const most = Math.max(...all.filter((value) => value !== null), 1e-3);
  const each = 44;
  const tall = each * data.latencies.length;
  const draw = (svg, width) => {
    const across = lyingAxis(svg, [0, most], [14, width - 24], tall, "latency of a round in s");
    data.latencies.forEach((entry, index) => {
      const top = each * index;
      const mean = meanOf(entry.latency_s);
      const value = `${fixed(mean, 3)} s`;
      const told = { class: "value", x: width, y: top + 14, "text-anchor": "end" };
      const number = shape(svg, "text", told, value);
      const name = shape(svg, "text", { x: 14, y: top + 14 }, entry.label);
      fitText(name, width - 30 - number.getComputedTextLength());
      shape(svg, "rect", {
        x: across(0),
        y: top + 22,
        width: Math.max(1, across(mean) - across(0)),
        height: 12,
        rx: 2,
        style: `fill:${tint(entry)};fill-opacity:0.7`,
      });
      entry.latency_s.slice(0, entry.dots).forEach((latency, i) => {
        const dot = shape(svg, "circle", {
          cx: across(latency),
          cy: top + 28,
          r: 3,
          "stroke-width": 1.2,
          style: `stroke:${tint(entry)};fill:var(--surface)`,
        });
        shape(dot, "title", {}, `${entry.names[i]}: ${fixed(latency, 4)} s`);
      });
      const predicted = meanOf(entry.predicted_s);
      if (predicted === null) return;
      const line = shape(svg, "line", {
        x1: across(predicted),
        x2: across(predicted),
        y1: top + 19,
        y2: top + 37,
        stroke: colour("ink"),
        "stroke-width": 1.4,
        "stroke-dasharray": "3 2",
      });
      shape(line, "title", {}, `predicted: ${fixed(predicted, 4)} s`);
    });
  };
  redraws.push(
    figure(byId("latency"), () => "Latency of a round of each result, in s", tall + 40, draw),
  );
}

function meanOf(values) {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

/* --- error budgets ---------------------------------------------------------------------------- */

/* A group of bars a cause, one bar a result, from a common zero. */
function budgetChart() {
  const all = data.budgets.flatMap(({ bars }) => bars.map((bar) => bar.seconds * 1e3));
  const range = [Math.min(0, ...all), Math.max(0, ...all, 1e-3)];
  const causes = data.budgets.filter(({ bars }) => bars.some((bar) => Math.abs(bar.seconds) > 5e-7));
  if (!causes.length) return;
  const tall = causes.reduce((sum, { bars }) => sum + 26 + 17 * bars.length, 0);
  const draw = (svg, width) => {
    const across = lyingAxis(svg, range, [20, width - 96], tall, "adds to the latency, in ms");
    const zero = across(0);
    shape(svg, "line", { class: "axis", x1: zero, x2: zero, y1: 0, y2: tall });
    let top = 0;
    for (const { name, bars } of causes) {
      shape(svg, "text", { class: "value", x: 0, y: top + 17 }, name);
      top += 24;
      for (const bar of bars) {
        const end = across(bar.seconds * 1e3);
        const body = shape(svg, "rect", {
          x: Math.min(zero, end),
          y: top,
          width: Math.max(1, Math.abs(end - zero)),
          height: 13,
          rx: 2,
          style: `fill:${tint(bar)}`,
        });
        shape(body, "title", {}, `${bar.label}: ${milliseconds(bar.seconds)}`);
        const text = milliseconds(bar.seconds);
        shape(svg, "text", { x: width, y: top + 11, "text-anchor": "end" }, text);
        top += 17;
      }
      top += 2;
    }
  };
  const told = () => "Error budgets: contribution of each cause, one bar per result";
  redraws.push(figure(byId("budgets"), told, tall + 40, draw));
}

/* --- curves over emulated time ---------------------------------------------------------------- */

function points(part, column) {
  return part.time_s.map((time, i) => [time, part[column][i]]).filter(([, value]) => value !== null);
}

/* Scales and axes from zero for curves, each a list of points. */
function curveAxes(svg, curves, width, height, yLabel) {
  const all = curves.flat();
  const high = Math.max(0, ...all.map(([, value]) => value)) * ROOM || 1;
  const last = Math.max(0, ...all.map(([time]) => time)) || 1;
  const box = [50, 30, width - 14, height - 42];
  return axes(svg, { x: [0, last], y: [0, high], box, xLabel: "emulated time in s", yLabel });
}

function sessionChart(direction, title) {
  const draw = (svg, width, height) => {
    const lines = data.sessions.map((session) => points(session[direction], "mbps"));
    const [across, up] = curveAxes(svg, lines, width, height, title);
    data.sessions.forEach((session, k) => {
      const path = lines[k].map(([time, value]) => `${across(time)},${up(value)}`).join(" ");
      const look = { fill: "none", "stroke-width": 1.6, "stroke-dasharray": session.dash };
      const line = shape(svg, "polyline", { points: path, style: `stroke:${tint(session)}`, ...look });
      shape(line, "title", {}, session.label);
    });
  };
  const told = () => `${title} against emulated time, one line per session`;
  redraws.push(figure(byId(`carried-${direction}`), told, 300, draw));
}

if (data.timelines.length) latencyChart();
if (data.budgets.length) budgetChart();
if (data.sessions.length) {
  sessionChart("up", "Uplinks, Mb/s");
  sessionChart("down", "Downlinks, Mb/s");
}
themes();
markSection();
