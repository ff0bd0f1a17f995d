/* SPDX-FileCopyrightText: UAV-SFL testbed authors
   SPDX-License-Identifier: MIT */

/* The live view: requests changes several times per second, and draws them. */

const data = JSON.parse(byId("data").textContent);
const STEPS = data.steps;
const RAMP = ["#d55e00", "#e69f00", "#56b4e9", "#0072b2"]; // slow to fast; told apart by the colour-blind
const HEAD = 26;
const HERE = location.pathname.replace(/\/$/, "");
const clients = Array.from({ length: data.uavs }, (_, index) => index + 1);
const by = (name) => STEPS.findIndex((step) => step.name === name);
const [SM, CF, CA, S, SG, CB, CM] = ["SM", "CF", "CA", "S", "SG", "CB", "CM"].map(by);

/* The last answer, with all steps of its round; asked at `at` on this page's own clock. */
let state = { phase: "connecting", round: -1, steps: [], predicted: [], waiting: {} };
let slowest = Infinity;
let fastest = 0;

function chipOf(step) {
  const chip = element("span", { class: "chip" });
  chip.style.background = step.colour;
  return chip;
}

/* --- what a UAV is doing ---------------------------------------------------------------------- */

/* How long the engine predicts a step of a client to take, or null where there is no such step. */
function modelled(client, iteration, kind) {
  const found = state.predicted.find(
    (row) => row[0] === client && row[1] === iteration && row[2] === kind,
  );
  return found ? found[4] - found[3] : null;
}

/* What a UAV computes on board after it has received: as long as modelled, up to a moment. */
function onBoardAfter([client, iteration, step, , end], until) {
  const plan = step === SM ? [[1, CF]] : [[iteration, CB], [iteration + 1, CF]];
  const rows = [];
  let at = end;
  for (const [i, kind] of plan) {
    const long = modelled(client, i, kind);
    if (long === null || at >= until) break;
    rows.push([client, i, kind, at, Math.min(at + long, until)]);
    at += long;
  }
  return rows;
}

/* The steps of a client so far, with those on board; and the one it is in, and since when. */
function progress(client) {
  const known = state.steps.filter((row) => row[0] === client).sort((a, b) => a[4] - b[4]);
  if (state.phase !== "running") return { rows: known, now: null };
  const rows = [...known];
  known.forEach((row, index) => {
    if (row[2] === SM || row[2] === SG)
      rows.push(...onBoardAfter(row, known[index + 1]?.[3] ?? state.now_s));
  });
  const last = known.at(-1);
  if (!last) return { rows, now: SM, since: state.start_s };
  const [, iteration, step, , since] = last;
  const waits = (queue) => state.waiting[queue]?.includes(client);
  if (step === CM) return { rows, now: null };
  if (step === CA) return { rows, now: waits("compute") ? null : S, since };
  if (step === S) return { rows, now: waits("transmit") ? null : SG, since };
  const latest = rows.at(-1);
  if (latest[4] >= state.now_s) return { rows, now: latest[2], since: latest[3] };
  const more = step === SM || modelled(client, iteration + 1, CF) !== null;
  return { rows, now: more ? CA : CM, since: latest[4] };
}
let doing = [];

/* --- map -------------------------------------------------------------------------------------- */

function rampColour(kbps) {
  const share =
    fastest > slowest
      ? (Math.log(Math.max(kbps, slowest)) - Math.log(slowest)) / (Math.log(fastest) - Math.log(slowest))
      : 0.5;
  const at = Math.min(0.999, Math.max(0, share)) * (RAMP.length - 1);
  const [low, high] = [RAMP[Math.floor(at)], RAMP[Math.floor(at) + 1]];
  const mix = (from) =>
    Math.round(
      parseInt(low.slice(from, from + 2), 16) * (1 - (at % 1)) +
        parseInt(high.slice(from, from + 2), 16) * (at % 1),
    );
  return `rgb(${mix(1)}, ${mix(3)}, ${mix(5)})`;
}

const HEIGHT = 330;
const svg = shape(byId("plan"), "svg", { role: "img", "aria-label": "Map of the UAVs", height: HEIGHT });
const ground = shape(svg, "g");
const flight = shape(svg, "g");

function drawMap() {
  const base = data.base_station_m;
  const outer = Math.max(...data.rings_m.map((ring) => ring[1]));
  const far = (state.position_m ?? []).map(([x, y]) => Math.hypot(x - base[0], y - base[1]));
  const reach = 1.08 * Math.max(outer, ...far);
  const pixel = (2 * reach) / HEIGHT;
  const wide = (byId("plan").clientWidth || 500) * pixel;
  svg.setAttribute("viewBox", `${base[0] - wide / 2} ${-base[1] - reach} ${wide} ${2 * reach}`);
  ground.replaceChildren();
  for (const r of new Set(data.rings_m.flat())) {
    const line = { fill: "none", stroke: colour("line"), "stroke-width": pixel };
    shape(ground, "circle", { cx: base[0], cy: -base[1], r, ...line });
  }
  const taken = [[base[0] - 9 * pixel, base[0] + 9 * pixel, -base[1] - 9 * pixel, -base[1] + 9 * pixel]];
  for (const [x, y] of state.position_m ?? [])
    taken.push([x - 9 * pixel, x + 9 * pixel, -y - 9 * pixel, -y + 9 * pixel]);
  flight.replaceChildren();
  (state.position_m ?? []).forEach(([x, y], k) => {
    const { now } = doing[k];
    const busy = [SM, CA, SG, CM].includes(now);
    shape(flight, "line", {
      class: "link",
      x1: base[0],
      y1: -base[1],
      x2: x,
      y2: -y,
      stroke: rampColour(state.up_kbps[k]),
      "stroke-width": (busy ? 5 : 1.6) * pixel,
      "stroke-linecap": "round",
    });
  });
  (state.position_m ?? []).forEach(([x, y], k) => {
    const { now } = doing[k];
    const group = shape(flight, "g", { class: "uav", "aria-label": `UAV ${k + 1}` });
    shape(group, "circle", {
      cx: x,
      cy: -y,
      r: (data.uavs > 30 ? 5 : 8) * pixel,
      fill: now === null ? colour("surface") : STEPS[now].colour,
      stroke: colour("ink"),
      "stroke-width": 1.4 * pixel,
    });
    if (data.uavs > 30) return;
    const text = shape(group, "text", {}, `${k + 1}`);
    placeBeside(text, x, -y, text.textContent.length, pixel, taken);
    text.style.fontSize = `${12 * pixel}px`;
  });
  for (const r of new Set(data.rings_m.flat())) {
    if (!(r > 0)) continue;
    const text = shape(flight, "text", { "text-anchor": "middle" }, `${r} m`);
    text.style.fontSize = `${11 * pixel}px`;
    placeOnRing(text, base[0], -base[1], r, text.textContent.length, pixel, taken);
  }
  const s = 8 * pixel;
  const [bx, by] = [base[0], -base[1]];
  shape(flight, "path", { d: `M${bx} ${by - s}L${bx + s} ${by + s}H${bx - s}Z`, fill: colour("ink") });
}

/* --- timeline --------------------------------------------------------------------------------- */

const rowHeight = () => (data.uavs <= 6 ? 44 : data.uavs <= 12 ? 32 : data.uavs <= 30 ? 20 : 10);
const axis = new TimeAxis(0, 1);

function paintGantt(context, place, height, width) {
  const each = rowHeight();
  context.clearRect(0, 0, width, height);
  paintTimes(context, place, HEAD, height, width, true);
  clients.forEach((client, index) => {
    const top = HEAD + index * each;
    context.strokeStyle = colour("faint");
    context.beginPath();
    context.moveTo(0, top + each - 0.5);
    context.lineTo(width, top + each - 0.5);
    context.stroke();
    if (each < 20 && client % 5 !== 1) return;
    context.fillStyle = colour("ink");
    context.textAlign = "left";
    context.fillText(`UAV ${client}`, 4, top + each / 2);
  });
  context.save();
  context.beginPath();
  context.rect(GUTTER.left, HEAD, width - GUTTER.left - GUTTER.right, height - HEAD);
  context.clip();
  const bar = ([client, , step, start, end], [offset, thick], alpha) => {
    const x = place(start);
    context.globalAlpha = alpha;
    context.fillStyle = STEPS[step].colour;
    context.fillRect(x, HEAD + (client - 1 + offset) * each, Math.max(0.6, place(end) - x), thick * each);
    context.globalAlpha = 1;
  };
  const [upper, lower] = [[0.1, 0.26], [0.42, 0.46]];
  for (const row of state.predicted) bar(row, upper, 0.55);
  doing.forEach(({ rows, now, since }, k) => {
    for (const row of rows) bar(row, lower, 1);
    if (now !== null && ![CF, CB].includes(now)) hatch(context, place, k + 1, now, since, lower);
  });
  if (state.phase === "running") {
    context.fillStyle = colour("ink");
    context.fillRect(place(state.now_s) - 0.75, HEAD, 1.5, height - HEAD);
  }
  context.restore();
}

/* A step that is still in progress. */
function hatch(context, place, client, step, since, [offset, thick]) {
  const [x, y] = [place(since), HEAD + (client - 1 + offset) * rowHeight()];
  const [wide, high] = [place(state.now_s) - x, thick * rowHeight()];
  if (wide < 1) return;
  context.save();
  context.beginPath();
  context.rect(x, y, wide, high);
  context.clip();
  context.strokeStyle = STEPS[step].colour;
  context.lineWidth = 3;
  for (let at = x - high; at < x + wide; at += 6) {
    context.beginPath();
    context.moveTo(at, y + high);
    context.lineTo(at + high, y);
    context.stroke();
  }
  context.restore();
}

new TimeChart(byId("gantt"), axis, "Steps of each UAV in this round, predicted above measured", {
  height: () => HEAD + data.uavs * rowHeight() + 2,
  paint: paintGantt,
  hover: () => {},
});

/* --- words ------------------------------------------------------------------------------------ */

const rows = clients.map((client) => {
  const cells = ["num", "num", ""].map((name) => element("td", name ? { class: name } : {}));
  const row = element("tr", {}, element("th", { scope: "row" }, `${client}`), ...cells);
  byId("now").tBodies[0].append(row);
  return cells;
});
byId("legend").replaceChildren(
  ...STEPS.map((step) => element("li", {}, chipOf(step), element("b", {}, step.name), ` ${step.title}`)),
);

function names(id, list) {
  byId(id).replaceChildren(...(list?.length ? list.map((client) => element("b", {}, `${client}`)) : ["–"]));
}

function roundName() {
  if (state.round < 0) return "–";
  return state.rounds > 1 ? `${state.round} (rounds 0 to ${state.rounds - 1})` : `${state.round}`;
}

function inProgress() {
  const passed = Math.max(0, state.now_s - state.start_s);
  return `Round ${roundName()} is in progress: ${fixed(passed, 1)} s of the predicted latency of ${fixed(state.expected_s, 1)} s have passed.`;
}

function drawWords() {
  const now = doing.map((each) => each.now);
  names("computing", clients.filter((client) => now[client - 1] === S));
  names("sending", clients.filter((client) => now[client - 1] === SG));
  names("waits-compute", state.waiting.compute);
  names("waits-transmit", state.waiting.transmit);
  rows.forEach(([up, down, what], k) => {
    up.textContent = state.up_kbps ? fixed(state.up_kbps[k] / 1e3, 2) : "–";
    down.textContent = state.down_kbps ? fixed(state.down_kbps[k] / 1e3, 2) : "–";
    const waits = ["compute", "transmit"].some((name) => state.waiting[name]?.includes(k + 1));
    const step = now[k] === null ? null : STEPS[now[k]];
    what.replaceChildren(...(step ? [chipOf(step), step.name] : [waits ? "waiting" : "–"]));
  });
  byId("phase").textContent = state.phase;
  byId("round").textContent = roundName();
  if (state.phase === "ended") conclude(state);
  else byId("verdict").textContent = state.now_s === undefined ? "The run starts." : inProgress();
  byId("clock").textContent = state.now_s === undefined ? "–" : `${fixed(state.now_s, 1)} s`;
  const done = (state.latencies_s ?? []).map((latency) => `${fixed(latency, 3)} s`);
  byId("done").textContent = done.length ? `Latencies of the ${done.length > 12 ? "last 12" : "finished"} rounds: ${done.slice(-12).join(", ")}.` : "";
  if (fastest > 0) {
    const ramp = element("i", { class: "ramp" });
    ramp.style.background = `linear-gradient(to right, ${RAMP.join(", ")})`;
    byId("scale").replaceChildren(
      fixed(slowest / 1e3, 2),
      ramp,
      `${fixed(fastest / 1e3, 2)} Mb/s`,
    );
  }
}

/* --- asking ----------------------------------------------------------------------------------- */

function take(answer) {
  const before = state;
  const steps = answer.steps ?? [];
  state = answer;
  state.steps = answer.from ? before.steps.slice(0, answer.from).concat(steps) : steps;
  state.predicted = answer.predicted ?? before.predicted;
  for (const rate of state.up_kbps ?? []) {
    if (rate > 0) slowest = Math.min(slowest, rate);
    fastest = Math.max(fastest, rate);
  }
  if (answer.predicted && state.start_s !== undefined) {
    const ends = state.steps.map((row) => row[4]);
    axis.limit(state.start_s, Math.max(state.start_s + 1.04 * state.expected_s, ...ends));
  }
  if (state.now_s > axis.bounds[1]) axis.limit(axis.bounds[0], state.now_s * 1.1 - axis.bounds[0] * 0.1);
}

function draw() {
  doing = clients.map(progress);
  forgetColours();
  drawWords();
  drawMap();
  axis.redraw();
}

async function ask() {
  try {
    const answer = await fetch(`${HERE}/state?round=${state.round}&steps=${state.steps.length}`);
    if (!answer.ok) throw new Error(answer.statusText);
    take(await answer.json());
  } catch {
    state.phase = "ended";
  }
  draw();
  if (state.phase !== "ended") setTimeout(ask, 1000 * data.ask_s);
}
redraws.push(draw);
themes();
ask();
