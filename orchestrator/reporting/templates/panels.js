/* SPDX-FileCopyrightText: UAV-SFL testbed authors
   SPDX-License-Identifier: MIT */

/* Figures that stand by themselves: error budget, injector's lateness, curves over time. */

/* --- error budget ----------------------------------------------------------------------------- */

function waterfall() {
  const holder = byId("waterfall");
  options(
    byId("budget-round"),
    data.budget.map((entry) => [entry.round, `${entry.round}`]),
    data.budget[0].round,
  );
  const redraw = figure(
    holder,
    () => `Error budget of round ${byId("budget-round").value} as a waterfall`,
    290,
    (svg, width, height) => {
      const entry = data.budget.find((each) => String(each.round) === byId("budget-round").value);
      if (entry.predicted_s === null) return;
      const bars = levels(entry, byId("budget-axis").value);
      const heights = bars.flatMap((bar) => (bar.total ? [bar.to] : [bar.from, bar.to]));
      const spread = Math.max(...heights) - Math.min(...heights) || 1e-3;
      const y = [Math.min(...heights) - spread * 0.25, Math.max(...heights) + spread * 0.2];
      shape(svg, "text", { x: 0, y: 12 }, "totals in s, parts in ms; the axis, in s, does not start at zero");
      if (width < 94 + 112 * bars.length) return lyingBars(svg, bars, y, width, height);
      const box = [84, 26, width - 10, height - 36];
      const up = scale(y, [box[3], box[1]]);
      const values = ticks(...y, 5);
      const name = tickText(values);
      for (const value of values) {
        shape(svg, "line", { class: "grid", x1: box[0], x2: box[2], y1: up(value), y2: up(value) });
        shape(svg, "text", { x: box[0] - 8, y: up(value) + 4, "text-anchor": "end" }, name(value));
      }
      const each = (box[2] - box[0]) / bars.length;
      const wide = Math.min(90, each * 0.6);
      bars.forEach((bar, index) => {
        const x = box[0] + each * (index + 0.5) - wide / 2;
        const [top, bottom] = bar.total
          ? [up(bar.to), box[3]]
          : [up(Math.max(bar.from, bar.to)), up(Math.min(bar.from, bar.to))];
        const fill = bar.total ? colour("muted") : colour(bar.to >= bar.from ? "more" : "less");
        const body = shape(svg, "rect", {
          x,
          y: top,
          width: wide,
          height: Math.max(1.5, bottom - top),
          rx: 2,
          fill,
        });
        shape(body, "title", {}, `${bar.name}: ${bar.text}`);
        shape(
          svg,
          "text",
          { class: "value", x: x + wide / 2, y: top - 7, "text-anchor": "middle" },
          bar.text,
        );
        shape(svg, "text", { x: x + wide / 2, y: box[3] + 18, "text-anchor": "middle" }, bar.name);
        if (index < bars.length - 1) {
          shape(svg, "line", {
            x1: x + wide,
            x2: x + each,
            y1: up(bar.to),
            y2: up(bar.to),
            stroke: colour("muted"),
            "stroke-dasharray": "2 3",
          });
        }
      });
      shape(svg, "line", { class: "axis", x1: box[0], x2: box[2], y1: box[3], y2: box[3] });
    },
  );
  byId("budget-round").addEventListener("change", redraw);
  byId("budget-axis").addEventListener("change", redraw);
  return redraw;
}

/* The same where there is no room for names beside each other: a bar a line. */
function lyingBars(svg, bars, span, width, height) {
  const across = scale(span, [126, width - 78]);
  const each = (height - 26) / bars.length;
  bars.forEach((bar, index) => {
    const y = 24 + each * (index + 0.5);
    const start = bar.total ? span[0] : Math.min(bar.from, bar.to);
    const x = across(start);
    const body = shape(svg, "rect", {
      x,
      y: y - 7,
      width: Math.max(1.5, across(bar.total ? bar.to : Math.max(bar.from, bar.to)) - x),
      height: 14,
      rx: 2,
      fill: bar.total ? colour("muted") : colour(bar.to >= bar.from ? "more" : "less"),
    });
    shape(body, "title", {}, `${bar.name}: ${bar.text}`);
    shape(svg, "text", { x: 0, y: y + 4 }, bar.name);
    shape(svg, "text", { class: "value", x: width, y: y + 4, "text-anchor": "end" }, bar.text);
  });
}

/* The bars of a waterfall: a total, one bar a part, a total. */
function levels(entry, from) {
  let level = entry.predicted_s;
  const bars = [];
  const parts = entry.parts.map((part) => {
    const bar = {
      name: part.name,
      from: level,
      to: level + part.seconds,
      text: milliseconds(part.seconds),
    };
    level = bar.to;
    return bar;
  });
  const framing = entry.parts.findIndex((part) => part.key === "framing");
  if (from === "rest" && framing >= 0) {
    bars.push(
      {
        name: "with protocol bytes",
        to: parts[framing].to,
        total: true,
        text: `${fixed(parts[framing].to, 4)} s`,
      },
      ...parts.slice(framing + 1),
    );
  } else {
    bars.push(
      {
        name: "predicted (payload)",
        to: entry.predicted_s,
        total: true,
        text: `${fixed(entry.predicted_s, 4)} s`,
      },
      ...parts,
    );
  }
  bars.push({
    name: "measured",
    to: entry.measured_s,
    total: true,
    text: `${fixed(entry.measured_s, 4)} s`,
  });
  return bars;
}

/* --- injector --------------------------------------------------------------------------------- */

/* In ms, whatever the size, so that an axis has one unit. */
function inMs(seconds) {
  return (seconds * 1e3).toLocaleString("en", { maximumSignificantDigits: 3 });
}

function latenessChart() {
  const { edges_s: edges, counts, marks } = data.injector;
  return figure(
    byId("lateness"),
    () => "Histogram of the injector's lateness",
    210,
    (svg, width, height) => {
      const box = [56, 34, width - 12, height - 42];
      const most = Math.max(...counts);
      const across = scale([Math.log10(edges[0]), Math.log10(edges.at(-1))], [box[0], box[2]]);
      const up = scale([0, most], [box[3], box[1]]);
      for (const value of ticks(0, most, 4).filter(Number.isInteger)) {
        shape(svg, "line", { class: "grid", x1: box[0], x2: box[2], y1: up(value), y2: up(value) });
        shape(
          svg,
          "text",
          { x: box[0] - 8, y: up(value) + 4, "text-anchor": "end" },
          fixed(value, 0),
        );
      }
      counts.forEach((count, index) => {
        const [left, right] = [
          across(Math.log10(edges[index])),
          across(Math.log10(edges[index + 1])),
        ];
        const bar = shape(svg, "rect", {
          x: left + 0.5,
          y: up(count),
          width: Math.max(1, right - left - 1),
          height: box[3] - up(count),
          fill: colour("accent"),
          "fill-opacity": 0.75,
        });
        shape(
          bar,
          "title",
          {},
          `${inMs(edges[index])} to ${inMs(edges[index + 1])} ms: ${count} slots`,
        );
      });
      const decade = across(1) - across(0);
      const factors = decade > 150 ? [1, 2, 5] : [1];
      for (let power = -9; power <= 2; power++) {
        if (decade < 45 && power % 3) continue;
        for (const factor of factors) {
          const value = factor * 10 ** power;
          if (value < edges[0] * 0.999 || value > edges.at(-1) * 1.001) continue;
          shape(
            svg,
            "text",
            { x: across(Math.log10(value)), y: box[3] + 17, "text-anchor": "middle" },
            inMs(value),
          );
        }
      }
      const labels = []; // marks that are too close for two labels share one
      const half = (names) => 3.7 * names.join(", ").length + 2;
      const place = ({ x, names }) => Math.min(x, width - 2 - half(names));
      for (const [name, value] of Object.entries(marks)) {
        const x = across(Math.log10(Math.max(value, edges[0])));
        shape(svg, "line", {
          x1: x,
          x2: x,
          y1: box[1] - 6,
          y2: box[3],
          stroke: colour("ink"),
          "stroke-dasharray": "3 3",
        });
        let label = { x, names: [name] };
        let last;
        while (
          (last = labels.at(-1)) &&
          place(last) + half(last.names) > place(label) - half(label.names)
        )
          label = { x: (last.x + label.x) / 2, names: [...labels.pop().names, ...label.names] };
        labels.push(label);
      }
      for (const label of labels) {
        const at = { class: "value", x: place(label), y: box[1] - 11, "text-anchor": "middle" };
        shape(svg, "text", at, label.names.join(", "));
      }
      shape(svg, "line", { class: "axis", x1: box[0], x2: box[2], y1: box[3], y2: box[3] });
      shape(svg, "text", { x: 0, y: 11 }, "slots");
      shape(
        svg,
        "text",
        { x: box[2], y: height - 4, "text-anchor": "end" },
        "lateness in ms, logarithmic",
      );
    },
  );
}

/* --- curves over emulated time ---------------------------------------------------------------- */

function timeChart(holder, curves, column, title) {
  const points = (curve) =>
    curve.time_s.map((time, i) => [time, curve[column][i]]).filter(([, value]) => value !== null);
  const all = curves.flatMap((curve) => [curve, ...curve.clients]).flatMap(points);
  if (!all.length) {
    holder.append(element("p", { class: "absent" }, `${title} was not recorded.`));
    return () => {};
  }
  return figure(
    holder,
    () => `${title} against emulated time`,
    280,
    (svg, width, height) => {
      const [times, values] = [all.map((point) => point[0]), all.map((point) => point[1])];
      const range = (list) =>
        list.reduce(
          ([low, high], v) => [Math.min(low, v), Math.max(high, v)],
          [Infinity, -Infinity],
        );
      const [, last] = range(times);
      const [low, high] = range(values);
      const y = [Math.min(0, low), high > 0 ? high * 1.05 : 1];
      const [across, up] = axes(svg, {
        x: [0, last],
        y,
        box: [46, 28, width - 12, height - 40],
        xLabel: "emulated time in s",
        yLabel: title,
      });
      const line = (curve, attributes) =>
        shape(svg, "polyline", {
          points: (curve.holds ? stepped(points(curve)) : points(curve))
            .map(([time, value]) => `${across(time)},${up(value)}`)
            .join(" "),
          fill: "none",
          "stroke-linejoin": "round",
          ...attributes,
        });
      curves.forEach((curve, index) => {
        const stroke = colour(`ring-${(index % 4) + 1}`);
        for (const client of curve.clients)
          shape(
            line(client, {
              stroke,
              "stroke-width": 1,
              "stroke-opacity": curve.clients.length > 12 ? 0.15 : 0.3,
            }),
            "title",
            {},
            `UAV ${client.client}`,
          );
        const bold = line(curve, { stroke, "stroke-width": 2.6 });
        shape(bold, "title", {}, curve.label);
        for (const [time, value] of points(curve)) {
          const dot = shape(svg, "circle", { cx: across(time), cy: up(value), r: 4, fill: stroke });
          shape(dot, "title", {}, `${curve.label}: ${fixed(value, 4)} at ${fixed(time, 2)} s`);
        }
        shape(
          svg,
          "text",
          {
            class: "value",
            x: width - 12 - 110 * (curves.length - 1 - index),
            y: 14,
            "text-anchor": "end",
            style: `fill:${stroke}`,
          },
          curve.label,
        );
      });
    },
  );
}
