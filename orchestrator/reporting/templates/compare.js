/* SPDX-FileCopyrightText: UAV-SFL testbed authors
   SPDX-License-Identifier: MIT */

/* A comparison of results: latencies, Gantt charts on one time axis, error budgets, sessions;
   one colour per result. */

const data = JSON.parse(byId("data").textContent);
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
        style: `fill:${tint(entry)};fill-opacity:0.55`,
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

/* --- Gantt charts on one time axis ------------------------------------------------------------ */

const HEAD = 26;
const DARK_INK = "#15181b";
const shown = { round: null, amount: 10 };
const axis = new TimeAxis(0, 1);

/* {round: {client: [span]}}, by start, of one result. */
function readSpans({ round, client, iteration, step, start_s, end_s, bytes }) {
  const rounds = {};
  round.forEach((number, i) => {
    ((rounds[number] ??= {})[client[i]] ??= []).push({
      iteration: iteration[i],
      step: step[i],
      start: start_s[i],
      end: end_s[i],
      bytes: bytes[i],
    });
  });
  return rounds;
}
for (const entry of data.timelines) entry.table = readSpans(entry.spans);

function clientsOf(entry) {
  const table = entry.table[shown.round] ?? {};
  return Object.keys(table)
    .map(Number)
    .sort((a, b) => a - b)
    .slice(0, shown.amount);
}

function rowHeight(entry) {
  const rows = clientsOf(entry).length;
  return rows <= 4 ? 26 : rows <= 12 ? 20 : rows <= 50 ? 14 : 8;
}

function paintGantt(entry, context, place, height, width) {
  const each = rowHeight(entry);
  const clients = clientsOf(entry);
  context.clearRect(0, 0, width, height);
  paintTimes(context, place, HEAD, height, width, true);
  context.textAlign = "left";
  context.fillStyle = colour("ink");
  const every = Math.ceil(13 / each);
  clients.forEach((client, index) => {
    if (index % every === 0) context.fillText(`UAV ${client}`, 10, HEAD + (index + 0.5) * each);
  });
  context.save();
  context.beginPath();
  context.rect(GUTTER.left, HEAD, width - GUTTER.left - GUTTER.right, height - HEAD);
  context.clip();
  clients.forEach((client, index) => {
    const top = HEAD + index * each + each * 0.12;
    paintSteps(context, place, entry.table[shown.round][client], top, each * 0.76);
  });
  const at = entry.rounds.indexOf(shown.round);
  paintEnd(context, place(entry.latency_s[at]), height, []);
  if (entry.predicted_s[at] !== null)
    paintEnd(context, place(entry.predicted_s[at]), height, [4, 3]);
  context.restore();
}

function paintEnd(context, x, height, dashes) {
  context.strokeStyle = colour("ink");
  context.lineWidth = 1.2;
  context.setLineDash(dashes);
  context.beginPath();
  context.moveTo(x, HEAD);
  context.lineTo(x, height);
  context.stroke();
  context.setLineDash([]);
}

function paintSteps(context, place, spans, top, thick) {
  const middle = Math.round(top + thick / 2) + 0.5;
  context.strokeStyle = colour("muted");
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(place(spans[0].start), middle);
  context.lineTo(place(spans.at(-1).end), middle);
  context.stroke();
  for (const span of spans) {
    const x = place(span.start);
    const wide = Math.max(0.6, place(span.end) - x);
    const step = data.steps[span.step];
    context.fillStyle = step.colour;
    context.fillRect(x, top, wide, thick);
    if (thick >= 12 && wide > 24) {
      context.fillStyle = step.name === "CB" ? "#ffffff" : DARK_INK;
      context.textAlign = "center";
      context.fillText(step.name, x + wide / 2, top + thick / 2 + 0.5);
    }
  }
}

function hoverGantt(entry, event, time, y) {
  const client = clientsOf(entry)[Math.floor((y - HEAD) / rowHeight(entry))];
  const spans = entry.table[shown.round]?.[client] ?? [];
  const span = spans.find(({ start, end }) => start <= time && time < end);
  if (y < HEAD || !span) return tip.hide();
  const step = data.steps[span.step];
  const rows = [["from the start", `${fixed(span.start, 3)} – ${fixed(span.end, 3)} s`]];
  for (const other of data.timelines) {
    const same = (other.table[shown.round]?.[client] ?? []).find(
      ({ step, iteration }) => step === span.step && iteration === span.iteration,
    );
    if (same) rows.push([other.label, `${fixed(same.end - same.start, 4)} s`]);
  }
  rows.push(["iteration", `${span.iteration}`]);
  return tip.show(event, `UAV ${client} · ${step.name} ${step.title}`, rows);
}

function ganttCharts() {
  const heads = data.timelines.map((entry) => {
    const told = element("span", { class: "muted" });
    const bar = element("span", { class: "chip" });
    bar.style.background = tint(entry);
    const holder = element("div", { class: "chart" });
    const head = element("h3", {}, bar, entry.label, " ", told);
    byId("gantts").append(element("div", { class: "panel" }, head, holder));
    new TimeChart(holder, axis, `Steps of each UAV in ${entry.label}`, {
      height: () => HEAD + clientsOf(entry).length * rowHeight(entry) + 2,
      paint: (...given) => paintGantt(entry, ...given),
      hover: (...given) => hoverGantt(entry, ...given),
    });
    return told;
  });
  redraws.push(() => axis.redraw());
  byId("legend").replaceChildren(
    ...data.steps.map((step) => {
      const chip = element("span", { class: "chip" });
      chip.style.background = step.colour;
      return element("li", {}, chip, element("b", {}, step.name), ` ${step.title}`);
    }),
  );

  const rounds = [...new Set(data.timelines.flatMap((entry) => entry.rounds))];
  rounds.sort((a, b) => a - b);
  const uavs = Math.max(...data.timelines.flatMap((entry) => entry.spans.client), 1);
  const setRound = (number) => {
    shown.round = number;
    byId("round").value = `${number}`;
    byId("round-before").disabled = number === rounds[0];
    byId("round-after").disabled = number === rounds.at(-1);
    byId("round-printed").textContent = `Round ${number}.`;
    const ends = [1e-3];
    data.timelines.forEach((entry, k) => {
      const at = entry.rounds.indexOf(number);
      const latency = entry.latency_s[at];
      const predicted = entry.predicted_s[at] ?? null;
      const drawn = clientsOf(entry).length;
      heads[k].textContent =
        at < 0
          ? `has no round ${number}`
          : `${fixed(latency, 3)} s` +
            (predicted === null ? "" : `, predicted ${fixed(predicted, 3)} s`) +
            (drawn ? "" : "; its steps are not on this page");
      ends.push(...[latency, predicted].filter((end) => end != null));
    });
    axis.limit(0, Math.max(...ends));
  };
  options(byId("round"), rounds.map((number) => [number, `${number}`]));
  byId("round").addEventListener("change", (event) => setRound(Number(event.target.value)));
  const moveBy = (by) => () => setRound(rounds[rounds.indexOf(shown.round) + by]);
  byId("round-before").addEventListener("click", moveBy(-1));
  byId("round-after").addEventListener("click", moveBy(1));
  const amounts = [10, 25, 50].filter((amount) => amount < uavs);
  options(byId("amount"), [
    ...amounts.map((amount) => [amount, `${amount} UAVs`]),
    [uavs, uavs === 1 ? "the UAV" : `all ${uavs} UAVs`],
  ]);
  byId("amount").addEventListener("change", (event) => {
    shown.amount = Number(event.target.value);
    axis.redraw();
  });
  byId("zoom-in").addEventListener("click", () => axis.zoom(0.6));
  byId("zoom-out").addEventListener("click", () => axis.zoom(1 / 0.6));
  byId("zoom-reset").addEventListener("click", () => axis.reset());
  setRound(rounds[0]);
}

function options(select, pairs) {
  select.replaceChildren(...pairs.map(([key, text]) => element("option", { value: key }, text)));
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

if (data.timelines.length) {
  latencyChart();
  ganttCharts();
}
if (data.budgets.length) budgetChart();
if (data.sessions.length) {
  sessionChart("up", "Uplinks, Mb/s");
  sessionChart("down", "Downlinks, Mb/s");
}
themes();
markSection();
