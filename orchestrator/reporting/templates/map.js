/* SPDX-FileCopyrightText: UAV-SFL testbed authors
   SPDX-License-Identifier: MIT */

/* The map: rings, base station, and the UAVs at a moment that a slider chooses. */

/* The UAVs at a moment, on their rings; answers how to move it and how to refresh it. */
function planOfUavs() {
  const { time_s: times, x_m, y_m } = data.paths;
  const base = data.base_station_m;
  const holder = byId("plan");
  const svg = shape(holder, "svg", {
    role: "group",
    "aria-label": "Map of the rings, the base station and the UAVs",
  });
  const outer = Math.max(...data.rings_m.map((ring) => ring[1]));
  const farthest = Math.max(
    ...x_m.map((row, k) =>
      row.reduce((most, x, i) => Math.max(most, Math.hypot(x - base[0], y_m[k][i] - base[1])), 0),
    ),
  );
  const reach = 1.06 * Math.max(farthest, outer);
  const slider = byId("time");
  const layer = {};
  for (const name of ["rings", "paths", "beams", "scale", "uavs"]) layer[name] = shape(svg, "g");
  let time = axis.from;
  let bounds = axis.bounds;

  function positionAt(k, at) {
    let low = 0;
    let high = times.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (times[middle] <= at) low = middle;
      else high = middle - 1;
    }
    const next = Math.min(low + 1, times.length - 1);
    const share =
      next > low ? Math.min(1, Math.max(0, (at - times[low]) / (times[next] - times[low]))) : 0;
    return [
      x_m[k][low] + share * (x_m[k][next] - x_m[k][low]),
      y_m[k][low] + share * (y_m[k][next] - y_m[k][low]),
    ];
  }

  /* The window in metres that so many pixels show: all rings with their names, or one UAV's path. */
  function windowOf(view, across) {
    if (view === "rings") {
      const half = Math.max(reach, outer / (1 - 32 / across));
      return [base[0] - half, -base[1] - half, 2 * half];
    }
    const k = Number(view) - 1;
    const [left, right, low, high] = [
      Math.min(...x_m[k]),
      Math.max(...x_m[k]),
      Math.min(...y_m[k]),
      Math.max(...y_m[k]),
    ];
    const size = Math.max(10, 1.5 * Math.max(right - left, high - low));
    return [(left + right - size) / 2, -(low + high + size) / 2, size];
  }

  let pixel = 1; // metres that one pixel covers
  let ringNames = [];
  let baseName;
  function refit() {
    const width = widthOf(holder) || 500;
    const across = Math.min(width, 520);
    const [left, top, size] = windowOf(byId("view").value, across);
    pixel = size / across;
    svg.setAttribute("height", across);
    const spare = (width * pixel - size) / 2;
    svg.setAttribute(
      "viewBox",
      `${left - Math.max(0, spare)} ${top} ${size + 2 * Math.max(0, spare)} ${size}`,
    );
    drawGround(left, top, size);
    refresh();
  }

  function drawGround(left, top, size) {
    for (const group of ["rings", "paths", "scale"]) layer[group].replaceChildren();
    const text = { "font-size": 12 * pixel, "text-anchor": "middle" };
    const named = new Set([0]); // neighbours share an edge
    ringNames = [];
    data.rings_m.forEach(([inner, outer], index) => {
      const name = `ring-${(index % 4) + 1}`;
      const middle = (inner + outer) / 2;
      shape(layer.rings, "circle", {
        cx: base[0],
        cy: -base[1],
        r: middle,
        fill: "none",
        stroke: colour(name),
        "stroke-opacity": 0.07,
        "stroke-width": outer - inner,
      });
      for (const r of [inner, outer]) {
        shape(layer.rings, "circle", {
          cx: base[0],
          cy: -base[1],
          r,
          class: "guide",
          fill: "none",
          stroke: colour("line"),
          "stroke-width": pixel,
          "stroke-dasharray": `${4 * pixel} ${3 * pixel}`,
        });
        if (!named.has(r)) {
          const name = shape(layer.scale, "text", text, `${r} m`);
          setText(name, 11);
          ringNames.push({ r, name });
        }
        named.add(r);
      }
    });
    x_m.forEach((row, k) => {
      const inside = row.map((x, i) =>
        times[i] >= bounds[0] && times[i] <= bounds[1] ? `${x},${-y_m[k][i]}` : null,
      );
      const ends = bounds.map((at) => positionAt(k, at)).map(([x, y]) => `${x},${-y}`);
      const points = [ends[0], ...inside.filter((point) => point), ends[1]].join(" ");
      shape(layer.paths, "polyline", {
        points,
        fill: "none",
        stroke: ringColour(k + 1),
        "stroke-opacity": data.uavs > 30 ? 0.25 : 0.75,
        "stroke-width": 2 * pixel,
        "stroke-linecap": "round",
      });
    });
    const s = 8 * pixel;
    const [bx, by] = [base[0], -base[1]];
    shape(layer.scale, "path", {
      d: `M${bx} ${by - s}L${bx + s} ${by + s}H${bx - s}Z`,
      fill: colour("ink"),
    });
    baseName = shape(layer.scale, "text", { "text-anchor": "middle" }, "base station");
    setText(baseName, 12);
    const bar = roundBelow(size / 4);
    const [x, y] = [left + 10 * pixel, top + size - 12 * pixel];
    shape(layer.scale, "path", {
      d: `M${x} ${y - 5 * pixel}V${y}H${x + bar}V${y - 5 * pixel}`,
      fill: "none",
      stroke: colour("muted"),
      "stroke-width": 1.2 * pixel,
    });
    setText(
      shape(
        layer.scale,
        "text",
        { x: x + bar / 2, y: y - 8 * pixel, "text-anchor": "middle" },
        `${fixed(bar, 0)} m`,
      ),
      11,
    );
  }

  function setText(node, size) {
    node.style.fontSize = `${size * pixel}px`;
    node.style.strokeWidth = `${3 * pixel}px`; // a halo, so that lines do not cross it out
  }

  /* What shows one UAV, made once: beam, dot and name on the map, and its row in the table. */
  const marks = x_m.map((_, k) => {
    const client = k + 1;
    const group = shape(layer.uavs, "g", {
      class: "uav",
      tabindex: "0",
      role: "button",
      "aria-label": `UAV ${client}`,
    });
    const mark = {
      beam: shape(layer.beams, "line", { x1: base[0], y1: -base[1] }),
      group,
      dot: shape(group, "circle"),
      name: shape(group, "text", {}, `${client}`),
      cells: Array.from({ length: 4 }, (_, i) => element("td", i < 3 ? { class: "num" } : {})),
    };
    mark.row = element("tr", {}, element("th", { scope: "row" }, `${client}`), ...mark.cells);
    for (const node of [group, mark.row]) node.addEventListener("click", () => pickUav(client));
    group.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      pickUav(client);
    });
    return mark;
  });
  byId("now").tBodies[0].replaceChildren(...marks.map((mark) => mark.row));

  function set(node, attributes) {
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  }

  function refresh() {
    const [bx, by] = [base[0], -base[1]];
    const taken = [[bx - 9 * pixel, bx + 9 * pixel, by - 9 * pixel, by + 9 * pixel]];
    const spots = marks.map((_, k) => positionAt(k, time));
    const half = (data.uavs > 30 ? 6 : 9) * pixel;
    for (const [x, y] of spots) taken.push([x - half, x + half, -y - half, -y + half]);
    placeOnRing(baseName, bx, by, 11 * pixel, 11, pixel, taken);
    marks.forEach((mark, k) => {
      const client = k + 1;
      const [x, y] = spots[k];
      const span = spanAt(spans.measured ? "measured" : chosen.prediction, client, time);
      const step = span && STEPS[span.step];
      const picked = client === chosen.uav;
      const radius = (data.uavs > 30 ? 5 : 8) * pixel * (picked ? 1.35 : 1);
      mark.beam.style.display = span?.bytes > 0 ? "" : "none";
      set(mark.beam, {
        x2: x,
        y2: -y,
        stroke: step?.colour ?? "none",
        "stroke-width": 2.5 * pixel,
        "stroke-opacity": 0.85,
      });
      set(mark.group, { "aria-pressed": picked });
      set(mark.dot, {
        cx: x,
        cy: -y,
        r: radius,
        fill: step?.colour ?? colour("surface"),
        stroke: ringColour(client),
        "stroke-width": 2 * pixel,
      });
      const named = data.uavs <= 30 || picked;
      if (named) placeBeside(mark.name, x, -y, `${client}`.length, pixel, taken);
      setText(mark.name, named ? 12 : 0);
      mark.row.className = picked ? "chosen" : "";
      const [far, up, down, doing] = mark.cells;
      far.textContent = fixed(Math.hypot(x - base[0], y - base[1]), 0);
      up.textContent = megabits(rateAt("uplink_kbps", client, time));
      down.textContent = megabits(rateAt("downlink_kbps", client, time));
      doing.replaceChildren(...(step ? [chipOf(step), step.name] : ["–"]));
    });
    for (const { r, name } of ringNames)
      placeOnRing(name, bx, by, r, name.textContent.length, pixel, taken);
    byId("clock").textContent = `${fixed(time, 2)} s`;
  }

  function megabits(kbps) {
    return kbps === null ? "–" : fixed(kbps / 1e3, 1);
  }

  function show(at, fromSlider = false) {
    time = Math.min(bounds[1], Math.max(bounds[0], at));
    if (!fromSlider)
      slider.value = String(Math.round((1000 * (time - bounds[0])) / (bounds[1] - bounds[0])));
    slider.setAttribute("aria-valuetext", `${fixed(time, 2)} seconds`);
    refresh();
  }

  let playing = null;
  function play(on) {
    if (playing) cancelAnimationFrame(playing);
    playing = null;
    byId("play").textContent = on ? "❚❚ Pause" : "▶ Play";
    byId("play").setAttribute("aria-pressed", String(on));
    if (!on) return;
    if (time >= bounds[1]) show(bounds[0]);
    let before = performance.now();
    const frame = (now) => {
      show(time + ((now - before) / 20_000) * (bounds[1] - bounds[0]));
      axis.setCursor(time, true);
      before = now;
      if (time < bounds[1]) playing = requestAnimationFrame(frame);
      else play(false);
    };
    playing = requestAnimationFrame(frame);
  }

  options(
    byId("view"),
    [["rings", "all rings"], ...x_m.map((_, k) => [k + 1, `path of UAV ${k + 1}`])],
    "rings",
  );
  byId("view").addEventListener("change", refit);
  byId("play").addEventListener("click", () => play(!playing));
  slider.addEventListener("input", () => {
    play(false);
    show(bounds[0] + (Number(slider.value) / 1000) * (bounds[1] - bounds[0]), true);
    axis.setCursor(time, true);
  });
  let width = 0;
  new ResizeObserver(() => {
    if (holder.clientWidth !== width) refit();
    width = holder.clientWidth;
  }).observe(holder);
  refit();
  return {
    show,
    refresh,
    refit,
    limit(from, to) {
      play(false);
      bounds = [from, to];
      refit();
      show(from);
    },
  };
}
