/* SPDX-FileCopyrightText: UAV-SFL testbed authors
   SPDX-License-Identifier: MIT */

/* The page of runs beside each other: loss and accuracy over emulated time, a line a run. */

const curves = JSON.parse(byId("data").textContent).curves;
const ROOM = 1.05;

function tint(curve) {
  return `light-dark(${curve.colour}, color-mix(in oklab, ${curve.colour} 68%, white))`;
}

function points(part, column) {
  return part.time_s
    .map((time, i) => [time, part[column][i]])
    .filter(([, value]) => value !== null);
}

function tell(event, curve, what, [time, value]) {
  tip.show(event, curve.label, [
    ["Emulated time", `${fixed(time, 2)} s`],
    [what, fixed(value, 4)],
  ]);
}

function curvesChart(id, column, title) {
  const parts = curves.flatMap(({ train, held_out }) => [train, held_out]);
  const all = parts.flatMap((part) => points(part, column));
  const draw = (svg, width, height) => {
    const high = Math.max(0, ...all.map(([, value]) => value)) * ROOM || 1;
    const last = Math.max(0, ...all.map(([time]) => time)) || 1;
    const box = [50, 30, width - 14, height - 42];
    const [across, up] = axes(svg, {
      x: [0, last],
      y: [0, high],
      box,
      xLabel: "emulated time in s",
      yLabel: title,
    });
    for (const curve of curves) {
      const look = { fill: "none", style: `stroke:${tint(curve)}`, "stroke-dasharray": curve.dash };
      const place = ([time, value]) => `${across(time)},${up(value)}`;
      const train = points(curve.train, column);
      const line = train.map(place).join(" ");
      shape(svg, "polyline", { points: line, "stroke-width": 1.4, "stroke-opacity": 0.55, ...look });
      const held = points(curve.held_out, column);
      const path = held.map(place).join(" ");
      shape(svg, "polyline", { points: path, "stroke-width": 2.4, ...look });
      for (const [part, what, r] of [
        [train, `Training ${column}`, 2],
        [held, `Held-out ${column}`, 4],
      ])
        for (const point of part) {
          const dot = shape(svg, "circle", {
            class: what.startsWith("Held") ? "held-out" : "train",
            cx: across(point[0]),
            cy: up(point[1]),
            r,
            "stroke-width": 1.6,
            style: `stroke:${tint(curve)};fill:var(--surface)`,
          });
          dot.addEventListener("pointermove", (event) => tell(event, curve, what, point));
          dot.addEventListener("pointerleave", () => tip.hide());
        }
    }
  };
  redraws.push(figure(byId(id), () => `${title} against emulated time, a line a run`, 340, draw));
}

curvesChart("loss", "loss", "Loss");
curvesChart("accuracy", "accuracy", "Accuracy");
themes();
markSection();
