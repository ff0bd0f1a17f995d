/* What a run report shows and how its controls act; drawn with charts.js from the embedded data. */

const data = JSON.parse(byId("data").textContent);
const STEPS = data.steps;
const KIND_NAMES = { predicted: "payload only", predicted_wire: "with frames" };
const DARK_INK = "#15181b";

/* What the controls have chosen. */
const chosen = {
  round: data.rounds.length ? data.rounds[0].round : null, // null shows the whole run
  prediction: ["predicted_wire", "predicted"].find((kind) => data.spans[kind]),
  amount: 10,
  order: "number",
  uav: null,
  rows: [],
};

function ringColour(client) {
  return colour(`ring-${(data.ring[client - 1] % 4) + 1}`);
}

function options(select, pairs, value) {
  select.replaceChildren(...pairs.map(([key, text]) => element("option", { value: key }, text)));
  select.value = value;
}

function chipOf(step) {
  const chip = element("span", { class: "chip" });
  chip.style.background = step.colour;
  return chip;
}

/* --- steps by kind, round and client ---------------------------------------------------------- */

/* {kind: {client: [span]}}, by start. Predictions are moved to where the measured round began. */
function readSpans() {
  const table = {};
  const shifts = {};
  for (const [kind, columns] of Object.entries(data.spans)) {
    const shift = {};
    for (const entry of data.rounds) {
      const { measured, [kind]: own } = entry.start_s;
      shift[entry.round] = measured != null && own != null ? measured - own : 0;
    }
    shifts[kind] = shift;
    const clients = (table[kind] = {});
    for (let i = 0; i < columns.round.length; i++) {
      const round = columns.round[i];
      const by = shift[round] ?? 0;
      (clients[columns.client[i]] ??= []).push({
        round,
        iteration: columns.iteration[i],
        step: columns.step[i],
        start: columns.start_s[i] + by,
        end: columns.end_s[i] + by,
        bytes: columns.bytes[i],
      });
    }
  }
  return [table, shifts];
}
const [spans, shifts] = readSpans();

/* The span of a client that covers a moment, or none. */
function spanAt(kind, client, time) {
  const list = spans[kind]?.[client] ?? [];
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle].start <= time) low = middle + 1;
    else high = middle;
  }
  const found = list[low - 1];
  return found && time < found.end ? found : null;
}

function sameSpan(kind, client, span) {
  return (spans[kind]?.[client] ?? []).find(
    (other) =>
      other.round === span.round && other.iteration === span.iteration && other.step === span.step,
  );
}

/* When a client's last step of a round (or of the run) ended. */
function finish(kind, client, round) {
  let last = null;
  for (const span of spans[kind]?.[client] ?? []) {
    if ((round === null || span.round === round) && (last === null || span.end > last)) last = span.end;
  }
  return last;
}

function entryOf(round) {
  return data.rounds.find((entry) => entry.round === round);
}

/* Where a round, or the run, begins and ends: measured, or predicted where nothing was measured. */
function extent(round) {
  const entries = round === null ? data.rounds : [entryOf(round)];
  let [from, to] = [Infinity, -Infinity];
  for (const entry of entries) {
    for (const kind of ["measured", chosen.prediction]) {
      if (entry.start_s[kind] == null) continue;
      const start = entry.start_s[kind] + (shifts[kind]?.[entry.round] ?? 0);
      from = Math.min(from, start);
      to = Math.max(to, start + entry.latency_s[kind]);
    }
  }
  return from < to ? [from, to] : [0, data.rates?.end_s ?? lastEnd()];
}

/* When the last of all steps ended: for runs whose rounds were not recorded. */
function lastEnd() {
  let last = 0;
  for (const columns of Object.values(data.spans)) {
    for (const end of columns.end_s) last = Math.max(last, end);
  }
  return last || 1;
}

/* The clients that the timeline shows, by the controls' choice. */
function arrange() {
  const clients = Array.from({ length: data.uavs }, (_, index) => index + 1);
  const by = {
    number: (client) => client,
    last: (client) => -(finish("measured", client, chosen.round) ?? finish(chosen.prediction, client, chosen.round) ?? 0),
    late: (client) => {
      const [measured, foreseen] = ["measured", chosen.prediction].map((kind) => finish(kind, client, chosen.round));
      return measured === null || foreseen === null ? 0 : -Math.abs(measured - foreseen);
    },
  }[chosen.order];
  const keys = new Map(clients.map((client) => [client, by(client)]));
  clients.sort((a, b) => keys.get(a) - keys.get(b) || a - b);
  chosen.rows = clients.slice(0, chosen.amount);
}

const axis = new TimeAxis(...extent(chosen.round));
arrange();

/* --- Gantt chart ------------------------------------------------------------------------------ */

const HEAD = 26;

function rowHeight() {
  const rows = chosen.rows.length;
  return rows <= 4 ? 58 : rows <= 12 ? 40 : rows <= 30 ? 28 : 20;
}

/* Top and height of a kind's band within a row. */
function band(kind, height) {
  if (!spans.measured || !chosen.prediction) return [height * 0.2, height * 0.6];
  return kind === "measured" ? [height * 0.44, height * 0.42] : [height * 0.12, height * 0.27];
}

function paintGantt(context, place, height, width) {
  const each = rowHeight();
  context.clearRect(0, 0, width, height);
  paintTimes(context, place, HEAD, height, width, true);
  chosen.rows.forEach((client, index) => {
    const top = HEAD + index * each;
    if (client === chosen.uav) {
      context.fillStyle = colour("raised");
      context.fillRect(0, top, width, each);
    }
    context.strokeStyle = colour("faint");
    context.beginPath();
    context.moveTo(0, top + each - 0.5);
    context.lineTo(width, top + each - 0.5);
    context.stroke();
    context.fillStyle = ringColour(client);
    context.fillRect(0, top + each * 0.22, 3, each * 0.56);
    context.fillStyle = colour("ink");
    context.textAlign = "left";
    context.fillText(`UAV ${client}`, 10, top + each / 2);
  });
  context.save();
  context.beginPath();
  context.rect(GUTTER.left, HEAD, width - GUTTER.left - GUTTER.right, height - HEAD);
  context.clip();
  for (const kind of [chosen.prediction, "measured"]) {
    if (!spans[kind]) continue;
    chosen.rows.forEach((client, index) => {
      const [offset, thick] = band(kind, each);
      paintBand(context, place, spans[kind][client] ?? [], kind, HEAD + index * each + offset, thick);
    });
  }
  paintEnds(context, place, height);
  context.restore();
}

function paintBand(context, place, list, kind, top, thick) {
  const measured = kind === "measured";
  const middle = Math.round(top + thick / 2) + 0.5;
  let previous = null;
  for (const span of list) {
    if (previous && previous.round === span.round && span.start > previous.end && span.start > axis.from && previous.end < axis.to) {
      context.strokeStyle = colour("muted");
      context.globalAlpha = 0.7;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(place(previous.end), middle);
      context.lineTo(place(span.start), middle);
      context.stroke();
    }
    previous = span;
    if (span.end < axis.from || span.start > axis.to) continue;
    const x = place(span.start);
    const wide = Math.max(0.6, place(span.end) - x);
    const step = STEPS[span.step];
    context.globalAlpha = measured ? 1 : 0.62;
    context.fillStyle = step.colour;
    context.fillRect(x, top, wide, thick);
    context.globalAlpha = 1;
    if (wide > 3) {
      context.strokeStyle = colour("surface");
      context.lineWidth = 1;
      context.strokeRect(x + 0.25, top + 0.25, wide - 0.5, thick - 0.5);
    }
    if (measured && thick >= 12 && wide > 24) {
      context.fillStyle = step.name === "CB" ? "#ffffff" : DARK_INK;
      context.textAlign = "center";
      context.fillText(step.name, x + wide / 2, top + thick / 2 + 0.5);
    }
  }
  context.globalAlpha = 1;
}

/* Where rounds end: dashed as predicted, solid as measured. */
function paintEnds(context, place, height) {
  for (const entry of data.rounds) {
    for (const kind of [chosen.prediction, "measured"]) {
      if (!spans[kind] || entry.start_s[kind] == null) continue;
      const end = entry.start_s[kind] + (shifts[kind][entry.round] ?? 0) + entry.latency_s[kind];
      if (end < axis.from || end > axis.to) continue;
      context.strokeStyle = colour("ink");
      context.lineWidth = 1.2;
      context.setLineDash(kind === "measured" ? [] : [4, 3]);
      context.beginPath();
      context.moveTo(place(end), HEAD);
      context.lineTo(place(end), height);
      context.stroke();
    }
  }
  context.setLineDash([]);
}

function hoverGantt(event, time, y) {
  const each = rowHeight();
  const index = Math.floor((y - HEAD) / each);
  const client = chosen.rows[index];
  if (!client || y < HEAD) return tip.hide();
  const within = (y - HEAD) % each;
  const kinds = ["measured", chosen.prediction].filter((kind) => spans[kind]);
  const kind = kinds.find((kind) => {
    const [top, thick] = band(kind, each);
    return within >= top - 1 && within <= top + thick + 1;
  });
  const span = kind && spanAt(kind, client, time);
  if (!span) {
    const waits = kind && waitAt(kind, client, time);
    if (!waits) return tip.hide();
    const [before, after] = waits;
    return tip.show(event, `UAV ${client} waits`, [
      ["for", `${STEPS[after.step].name} ${STEPS[after.step].title}`],
      [kind === "measured" ? "measured" : "predicted", stretch(before.end, after.start)],
    ]);
  }
  const step = STEPS[span.step];
  const rows = [];
  const found = {};
  for (const each of kinds) {
    const own = (found[each] = each === kind ? span : sameSpan(each, client, span));
    if (!own) continue;
    rows.push([each === "measured" ? "measured" : "predicted", stretch(own.start, own.end)]);
  }
  if (found.measured && found[chosen.prediction]) {
    const foreseen = found[chosen.prediction].end - found[chosen.prediction].start;
    const gap = found.measured.end - found.measured.start - foreseen;
    rows.push(["difference", `${milliseconds(gap)}${foreseen > 0 ? ` (${signed((100 * gap) / foreseen, 2)} %)` : ""}`]);
  }
  if (span.bytes) {
    rows.push(["bytes", fixed(span.bytes, 0)]);
    rows.push(["mean rate", `${fixed((8e-6 * span.bytes) / (span.end - span.start), 2)} Mb/s`]);
  }
  rows.push(["round, iteration", `${span.round}, ${span.iteration}`]);
  return tip.show(event, `UAV ${client} · ${step.name} ${step.title}`, rows);
}

function waitAt(kind, client, time) {
  const list = spans[kind][client] ?? [];
  const next = list.findIndex((span) => span.start > time);
  const before = list[next - 1];
  return next > 0 && before.round === list[next].round ? [before, list[next]] : null;
}

function stretch(from, to) {
  return `${fixed(from, 3)} – ${fixed(to, 3)} s (${fixed(to - from, 4)} s)`;
}

function pickRow(time, y) {
  const client = chosen.rows[Math.floor((y - HEAD) / rowHeight())];
  if (client && y >= HEAD) pickUav(client);
}

function pickUav(client) {
  chosen.uav = chosen.uav === client ? null : client;
  axis.redraw();
  map?.refresh();
}

function ganttControls() {
  const rounds = data.rounds.map((entry) => [entry.round, `${entry.round}`]);
  options(byId("round"), [["all", "all"], ...rounds], chosen.round ?? "all");
  const kinds = ["predicted_wire", "predicted"].filter((kind) => spans[kind]);
  options(byId("prediction"), kinds.map((kind) => [kind, KIND_NAMES[kind]]), chosen.prediction);
  byId("prediction").disabled = kinds.length < 2;
  const amounts = [10, 25, 50].filter((amount) => amount < data.uavs);
  options(byId("amount"), [...amounts.map((n) => [n, `${n} UAVs`]), [data.uavs, `all ${data.uavs} UAVs`]], Math.min(10, data.uavs));
  chosen.amount = Math.min(10, data.uavs);
  byId("legend").replaceChildren(
    ...STEPS.map((step) => element("li", {}, chipOf(step), element("b", {}, step.name), ` ${step.title}`)),
  );
  const total = Math.max(...Object.values(data.spans).map((columns) => columns.total));
  const kept = Math.min(...Object.values(data.spans).map((columns) => columns.round.length));
  if (kept < total) {
    byId("gantt-note").textContent = `The chart holds the first ${fixed(kept, 0)} of ${fixed(total, 0)} steps; the Parquet files have all.`;
  }

  const setRound = (value) => {
    chosen.round = value === "all" ? null : Number(value);
    byId("round").value = value;
    byId("round-before").disabled = byId("round").selectedIndex === 0;
    byId("round-after").disabled = byId("round").selectedIndex === rounds.length;
    arrange();
    axis.limit(...extent(chosen.round));
    map?.limit(...axis.bounds);
  };
  const turn = (by) => () => setRound(byId("round").options[byId("round").selectedIndex + by].value);
  byId("round").addEventListener("change", (event) => setRound(event.target.value));
  byId("round-before").addEventListener("click", turn(-1));
  byId("round-after").addEventListener("click", turn(1));
  byId("prediction").addEventListener("change", (event) => {
    chosen.prediction = event.target.value;
    setRound(byId("round").value);
  });
  for (const name of ["amount", "order"]) {
    byId(name).addEventListener("change", (event) => {
      chosen[name] = name === "amount" ? Number(event.target.value) : event.target.value;
      arrange();
      axis.redraw();
    });
  }
  byId("zoom-in").addEventListener("click", () => axis.zoom(0.6));
  byId("zoom-out").addEventListener("click", () => axis.zoom(1 / 0.6));
  byId("zoom-reset").addEventListener("click", () => axis.reset());
  setRound(byId("round").value);
}

/* --- rates ------------------------------------------------------------------------------------ */

const rates = data.rates;

function rateIndex(time) {
  if (!rates || time < rates.time_s[0] || time >= rates.end_s) return -1;
  let low = 0;
  let high = rates.time_s.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rates.time_s[middle] <= time) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

function rateAt(direction, client, time) {
  const row = rates ? rates.clients.indexOf(client) : -1;
  const index = rateIndex(time);
  return row < 0 || index < 0 ? null : rates[direction][row][index];
}

function rateChart(holder, direction, title) {
  const [least, most] = rates[direction].flat().reduce(
    ([low, high], rate) => (rate === null ? [low, high] : [Math.min(low, rate / 1e3), Math.max(high, rate / 1e3)]),
    [Infinity, 1e-3],
  );
  const floor = least > 0.4 * most ? least - 0.15 * (most - least) : 0; // lines need no zero, outages do
  const box = [28, 168];
  const up = scale([floor, most + 0.06 * (most - floor)], [box[1], box[0]]);
  const values = ticks(floor, most, 4);
  const text = tickText(values);
  const paint = (context, place, height, width) => {
    context.clearRect(0, 0, width, height);
    paintTimes(context, place, box[0], box[1], width, false);
    context.fillStyle = colour("ink");
    context.textAlign = "left";
    context.fillText(title, 0, 12);
    for (const value of values) {
      context.strokeStyle = colour("faint");
      context.beginPath();
      context.moveTo(GUTTER.left, Math.round(up(value)) + 0.5);
      context.lineTo(width - GUTTER.right, Math.round(up(value)) + 0.5);
      context.stroke();
      context.fillStyle = colour("muted");
      context.textAlign = "right";
      context.fillText(text(value), GUTTER.left - 8, up(value));
    }
    context.save();
    context.beginPath();
    context.rect(GUTTER.left, 0, width - GUTTER.left - GUTTER.right, height);
    context.clip();
    const ordered = chosen.rows.filter((client) => client !== chosen.uav);
    if (chosen.rows.includes(chosen.uav)) ordered.push(chosen.uav);
    for (const client of ordered) paintRate(context, place, up, direction, client);
    context.restore();
    paintNames(context, place, up, direction, width);
  };
  const nearest = (time, y) => {
    let best = null;
    for (const client of chosen.rows) {
      const rate = rateAt(direction, client, time);
      if (rate === null) continue;
      const far = Math.abs(up(rate / 1e3) - y);
      if (!best || far < best.far) best = { client, rate, far };
    }
    return best && best.far < 24 ? best : null;
  };
  const chart = new TimeChart(holder, axis, `${title} of each UAV over time`, {
    height: () => box[1] + 8,
    paint,
    hover: (event, time, y) => {
      const found = nearest(time, y);
      if (!found) return tip.hide();
      const at = rates.time_s[rateIndex(time)];
      return tip.show(event, `UAV ${found.client}`, [
        [direction === "uplink_kbps" ? "uplink" : "downlink", found.rate ? `${fixed(found.rate / 1e3, 3)} Mb/s` : "outage"],
        [rates.slots_a_point > 1 ? `mean of ${rates.slots_a_point} slots from` : "slot from", `${fixed(at, 2)} s`],
      ]);
    },
    pick: (time, y) => {
      const found = nearest(time, y);
      if (found) pickUav(found.client);
    },
  });
  return chart;
}

function paintRate(context, place, up, direction, client) {
  const row = rates[direction][rates.clients.indexOf(client)];
  if (!row) return;
  const strong = chosen.uav === client;
  context.strokeStyle = ringColour(client);
  context.globalAlpha = strong || chosen.uav === null ? 1 : 0.25;
  context.lineWidth = strong ? 2.6 : 1.4;
  context.lineJoin = "round";
  context.beginPath();
  const first = Math.max(0, rateIndex(axis.from));
  let pen = false;
  for (let i = first; i < row.length && rates.time_s[i] <= axis.to; i++) {
    if (row[i] === null) {
      pen = false;
      continue;
    }
    const y = up(row[i] / 1e3);
    if (pen) context.lineTo(place(rates.time_s[i]), y);
    else context.moveTo(place(rates.time_s[i]), y);
    context.lineTo(place(rates.time_s[i + 1] ?? rates.end_s), y);
    pen = true;
  }
  context.stroke();
  context.globalAlpha = 1;
}

/* A number at the right end of each line, as far as they do not cover each other. */
function paintNames(context, place, up, direction, width) {
  const last = Math.min(axis.to, rates.end_s - 1e-9);
  const taken = [];
  const order = chosen.uav === null ? chosen.rows : [chosen.uav, ...chosen.rows];
  context.textAlign = "left";
  for (const client of order) {
    const rate = rateAt(direction, client, last);
    if (rate === null || !chosen.rows.includes(client)) continue;
    const y = up(rate / 1e3);
    if (taken.some((other) => Math.abs(other - y) < 11)) continue;
    taken.push(y);
    context.fillStyle = ringColour(client);
    context.fillText(`${client}`, width - GUTTER.right + 4, y);
  }
}

/* --- map -------------------------------------------------------------------------------------- */

/* The UAVs at a moment, on their rings; answers how to move it and how to refresh it. */
function planOfUavs() {
  const { time_s: times, x_m, y_m } = data.paths;
  const base = data.base_station_m;
  const holder = byId("plan");
  const svg = shape(holder, "svg", { role: "img", "aria-label": "Map of the rings, the base station and the UAVs", height: 520 });
  const outer = Math.max(...data.rings_m.map((ring) => ring[1]));
  const farthest = Math.max(...x_m.map((row, k) => row.reduce((most, x, i) => Math.max(most, Math.hypot(x - base[0], y_m[k][i] - base[1])), 0)));
  const reach = 1.06 * Math.max(farthest, outer);
  const slider = byId("time");
  const layer = {};
  for (const name of ["rings", "paths", "beams", "uavs", "scale"]) layer[name] = shape(svg, "g");
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
    const share = next > low ? Math.min(1, Math.max(0, (at - times[low]) / (times[next] - times[low]))) : 0;
    return [x_m[k][low] + share * (x_m[k][next] - x_m[k][low]), y_m[k][low] + share * (y_m[k][next] - y_m[k][low])];
  }

  /* The window in metres: all rings, or one UAV's path. */
  function windowOf(view) {
    if (view === "rings") return [base[0] - reach, -base[1] - reach, 2 * reach];
    const k = Number(view) - 1;
    const [left, right, low, high] = [Math.min(...x_m[k]), Math.max(...x_m[k]), Math.min(...y_m[k]), Math.max(...y_m[k])];
    const size = Math.max(10, 1.5 * Math.max(right - left, high - low));
    return [(left + right - size) / 2, -(low + high + size) / 2, size];
  }

  let pixel = 1; // metres that one pixel covers
  function refit() {
    const [left, top, size] = windowOf(byId("view").value);
    const width = holder.clientWidth || 500;
    pixel = size / Math.min(width, 520);
    const spare = (width * pixel - size) / 2;
    svg.setAttribute("viewBox", `${left - Math.max(0, spare)} ${top} ${size + 2 * Math.max(0, spare)} ${size}`);
    drawGround(left, top, size);
    refresh();
  }

  function drawGround(left, top, size) {
    for (const group of ["rings", "paths", "scale"]) layer[group].replaceChildren();
    const text = { "font-size": 12 * pixel, "text-anchor": "middle" };
    data.rings_m.forEach(([inner, outer], index) => {
      const name = `ring-${(index % 4) + 1}`;
      const middle = (inner + outer) / 2;
      shape(layer.rings, "circle", { cx: base[0], cy: -base[1], r: middle, fill: "none", stroke: colour(name), "stroke-opacity": 0.07, "stroke-width": outer - inner });
      for (const r of new Set([inner, outer])) {
        shape(layer.rings, "circle", { cx: base[0], cy: -base[1], r, fill: "none", stroke: colour("line"), "stroke-width": pixel, "stroke-dasharray": `${4 * pixel} ${3 * pixel}` });
        if (r > 0) setText(shape(layer.rings, "text", { x: base[0], y: -base[1] - r - 4 * pixel, ...text }, `${r} m`), 11);
      }
    });
    x_m.forEach((row, k) => {
      const inside = row.map((x, i) => (times[i] >= bounds[0] && times[i] <= bounds[1] ? `${x},${-y_m[k][i]}` : null));
      const ends = bounds.map((at) => positionAt(k, at)).map(([x, y]) => `${x},${-y}`);
      const points = [ends[0], ...inside.filter((point) => point), ends[1]].join(" ");
      shape(layer.paths, "polyline", { points, fill: "none", stroke: ringColour(k + 1), "stroke-opacity": data.uavs > 30 ? 0.25 : 0.5, "stroke-width": 2 * pixel, "stroke-linecap": "round" });
    });
    const s = 8 * pixel;
    const [bx, by] = [base[0], -base[1]];
    shape(layer.scale, "path", { d: `M${bx} ${by - s}L${bx + s} ${by + s}H${bx - s}Z`, fill: colour("ink") });
    setText(shape(layer.scale, "text", { x: bx, y: by + 24 * pixel, "text-anchor": "middle" }, "base station"), 12);
    const bar = roundBelow(size / 4);
    const [x, y] = [left + 10 * pixel, top + size - 12 * pixel];
    shape(layer.scale, "path", { d: `M${x} ${y - 5 * pixel}V${y}H${x + bar}V${y - 5 * pixel}`, fill: "none", stroke: colour("muted"), "stroke-width": 1.2 * pixel });
    setText(shape(layer.scale, "text", { x: x + bar / 2, y: y - 8 * pixel, "text-anchor": "middle" }, `${fixed(bar, 0)} m`), 11);
  }

  function setText(node, size) {
    node.style.fontSize = `${size * pixel}px`;
  }

  /* What shows one UAV, made once: beam, dot and name on the map, and its row in the table. */
  const marks = x_m.map((_, k) => {
    const client = k + 1;
    const group = shape(layer.uavs, "g", { class: "uav", tabindex: "0", role: "button", "aria-label": `UAV ${client}` });
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
    marks.forEach((mark, k) => {
      const client = k + 1;
      const [x, y] = positionAt(k, time);
      const span = spanAt(spans.measured ? "measured" : chosen.prediction, client, time);
      const step = span && STEPS[span.step];
      const picked = client === chosen.uav;
      const radius = (data.uavs > 30 ? 5 : 8) * pixel * (picked ? 1.35 : 1);
      mark.beam.style.display = span?.bytes > 0 ? "" : "none";
      set(mark.beam, { x2: x, y2: -y, stroke: step?.colour ?? "none", "stroke-width": 2.5 * pixel, "stroke-opacity": 0.85 });
      set(mark.group, { "aria-pressed": picked });
      set(mark.dot, { cx: x, cy: -y, r: radius, fill: step?.colour ?? colour("surface"), stroke: ringColour(client), "stroke-width": 2 * pixel });
      set(mark.name, { x: x + 12 * pixel, y: -y + 4 * pixel });
      setText(mark.name, data.uavs <= 30 || picked ? 12 : 0);
      mark.row.className = picked ? "chosen" : "";
      const [far, up, down, doing] = mark.cells;
      far.textContent = fixed(Math.hypot(x - base[0], y - base[1]), 0);
      up.textContent = megabits(rateAt("uplink_kbps", client, time));
      down.textContent = megabits(rateAt("downlink_kbps", client, time));
      doing.replaceChildren(...(step ? [chipOf(step), step.name] : ["–"]));
    });
    byId("clock").textContent = `${fixed(time, 2)} s`;
  }

  function megabits(kbps) {
    return kbps === null ? "–" : fixed(kbps / 1e3, 1);
  }

  function show(at, fromSlider = false) {
    time = Math.min(bounds[1], Math.max(bounds[0], at));
    if (!fromSlider) slider.value = String(Math.round((1000 * (time - bounds[0])) / (bounds[1] - bounds[0])));
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

  options(byId("view"), [["rings", "all rings"], ...x_m.map((_, k) => [k + 1, `path of UAV ${k + 1}`])], "rings");
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

/* --- error budget ----------------------------------------------------------------------------- */

function waterfall() {
  const holder = byId("waterfall");
  options(byId("budget-round"), data.budget.map((entry) => [entry.round, `${entry.round}`]), data.budget[0].round);
  const redraw = figure(holder, () => `Error budget of round ${byId("budget-round").value} as a waterfall`, 290, (svg, width, height) => {
    const entry = data.budget.find((each) => String(each.round) === byId("budget-round").value);
    if (entry.predicted_s === null) return;
    const bars = levels(entry, byId("budget-axis").value);
    const heights = bars.flatMap((bar) => (bar.total ? [bar.to] : [bar.from, bar.to]));
    const spread = Math.max(...heights) - Math.min(...heights) || 1e-3;
    const y = [Math.min(...heights) - spread * 0.25, Math.max(...heights) + spread * 0.2];
    const box = [84, 26, width - 10, height - 36];
    const up = scale(y, [box[3], box[1]]);
    const values = ticks(...y, 5);
    const name = tickText(values);
    for (const value of values) {
      shape(svg, "line", { class: "grid", x1: box[0], x2: box[2], y1: up(value), y2: up(value) });
      shape(svg, "text", { x: box[0] - 8, y: up(value) + 4, "text-anchor": "end" }, name(value));
    }
    shape(svg, "text", { x: 0, y: 12 }, "latency in s; the axis does not start at zero");
    const each = (box[2] - box[0]) / bars.length;
    const wide = Math.min(90, each * 0.6);
    bars.forEach((bar, index) => {
      const x = box[0] + each * (index + 0.5) - wide / 2;
      const [top, bottom] = bar.total ? [up(bar.to), box[3]] : [up(Math.max(bar.from, bar.to)), up(Math.min(bar.from, bar.to))];
      const fill = bar.total ? colour("muted") : colour(bar.to >= bar.from ? "more" : "less");
      const body = shape(svg, "rect", { x, y: top, width: wide, height: Math.max(1.5, bottom - top), rx: 2, fill });
      shape(body, "title", {}, `${bar.name}: ${bar.text}`);
      shape(svg, "text", { class: "value", x: x + wide / 2, y: top - 7, "text-anchor": "middle" }, bar.text);
      shape(svg, "text", { x: x + wide / 2, y: box[3] + 18, "text-anchor": "middle" }, bar.name);
      if (index < bars.length - 1) {
        shape(svg, "line", { x1: x + wide, x2: x + each, y1: up(bar.to), y2: up(bar.to), stroke: colour("muted"), "stroke-dasharray": "2 3" });
      }
    });
    shape(svg, "line", { class: "axis", x1: box[0], x2: box[2], y1: box[3], y2: box[3] });
  });
  byId("budget-round").addEventListener("change", redraw);
  byId("budget-axis").addEventListener("change", redraw);
  return redraw;
}

/* The bars of a waterfall: a total, one bar a part, a total. */
function levels(entry, from) {
  let level = entry.predicted_s;
  const bars = [];
  const parts = entry.parts.map((part) => {
    const bar = { name: part.name, from: level, to: level + part.seconds, text: milliseconds(part.seconds) };
    level = bar.to;
    return bar;
  });
  if (from === "rest") {
    const framing = entry.parts.findIndex((part) => part.key === "framing");
    bars.push({ name: "with framing", to: parts[framing].to, total: true, text: `${fixed(parts[framing].to, 4)} s` }, ...parts.slice(framing + 1));
  } else {
    bars.push({ name: "predicted (payload)", to: entry.predicted_s, total: true, text: `${fixed(entry.predicted_s, 4)} s` }, ...parts);
  }
  bars.push({ name: "measured", to: entry.measured_s, total: true, text: `${fixed(entry.measured_s, 4)} s` });
  return bars;
}

/* --- injector --------------------------------------------------------------------------------- */

function durationText(seconds) {
  return seconds < 1e-3 ? `${fixed(seconds * 1e6, 0)} µs` : seconds < 1 ? `${fixed(seconds * 1e3, 0)} ms` : `${fixed(seconds, 0)} s`;
}

function latenessChart() {
  const { edges_s: edges, counts, marks } = data.injector;
  return figure(byId("lateness"), () => "Histogram of the injector's lateness", 210, (svg, width, height) => {
    const box = [56, 34, width - 12, height - 42];
    const most = Math.max(...counts);
    const across = scale([Math.log10(edges[0]), Math.log10(edges.at(-1))], [box[0], box[2]]);
    const up = scale([0, most], [box[3], box[1]]);
    for (const value of ticks(0, most, 4).filter(Number.isInteger)) {
      shape(svg, "line", { class: "grid", x1: box[0], x2: box[2], y1: up(value), y2: up(value) });
      shape(svg, "text", { x: box[0] - 8, y: up(value) + 4, "text-anchor": "end" }, fixed(value, 0));
    }
    counts.forEach((count, index) => {
      const [left, right] = [across(Math.log10(edges[index])), across(Math.log10(edges[index + 1]))];
      const bar = shape(svg, "rect", { x: left + 0.5, y: up(count), width: Math.max(1, right - left - 1), height: box[3] - up(count), fill: colour("accent"), "fill-opacity": 0.75 });
      shape(bar, "title", {}, `${durationText(edges[index])} to ${durationText(edges[index + 1])}: ${count} slots`);
    });
    for (let power = -7; power <= 2; power++) {
      for (const factor of [1, 2, 5]) {
        const value = factor * 10 ** power;
        if (value < edges[0] * 0.999 || value > edges.at(-1) * 1.001) continue;
        shape(svg, "text", { x: across(Math.log10(value)), y: box[3] + 17, "text-anchor": "middle" }, durationText(value));
      }
    }
    let clear = -Infinity;
    for (const [name, value] of Object.entries(marks)) {
      const x = across(Math.log10(Math.max(value, edges[0])));
      shape(svg, "line", { x1: x, x2: x, y1: box[1] - 6, y2: box[3], stroke: colour("ink"), "stroke-dasharray": "3 3" });
      if (x - clear > 30) {
        shape(svg, "text", { class: "value", x: Math.min(x, width - 14), y: box[1] - 11, "text-anchor": "middle" }, name);
        clear = x;
      }
    }
    shape(svg, "line", { class: "axis", x1: box[0], x2: box[2], y1: box[3], y2: box[3] });
    shape(svg, "text", { x: 0, y: 11 }, "slots");
    shape(svg, "text", { x: box[2], y: height - 4, "text-anchor": "end" }, "lateness, logarithmic");
  });
}

/* --- learning --------------------------------------------------------------------------------- */

function learningChart(id, column, title) {
  const points = (curve) => curve.time_s.map((time, i) => [time, curve[column][i]]).filter(([, value]) => value !== null);
  const all = data.learning.flatMap((curve) => [curve, ...curve.clients]).flatMap(points);
  const holder = byId(id);
  if (!all.length) {
    holder.append(element("p", { class: "absent" }, `${title} was not recorded.`));
    return () => {};
  }
  return figure(holder, () => `${title} against emulated time`, 280, (svg, width, height) => {
    const [times, values] = [all.map((point) => point[0]), all.map((point) => point[1])];
    const range = (list) => list.reduce(([low, high], v) => [Math.min(low, v), Math.max(high, v)], [Infinity, -Infinity]);
    const [, last] = range(times);
    const [low, high] = range(values);
    const y = [Math.min(0, low), high > 0 ? high * 1.05 : 1];
    const [across, up] = axes(svg, { x: [0, last], y, box: [46, 28, width - 12, height - 40], xLabel: "emulated time in s", yLabel: title });
    const line = (curve, attributes) =>
      shape(svg, "polyline", { points: points(curve).map(([time, value]) => `${across(time)},${up(value)}`).join(" "), fill: "none", "stroke-linejoin": "round", ...attributes });
    data.learning.forEach((curve, index) => {
      const stroke = colour(`ring-${(index % 4) + 1}`);
      for (const client of curve.clients) shape(line(client, { stroke, "stroke-width": 1, "stroke-opacity": curve.clients.length > 12 ? 0.15 : 0.3 }), "title", {}, `UAV ${client.client}`);
      const bold = line(curve, { stroke, "stroke-width": 2.6 });
      shape(bold, "title", {}, curve.label);
      for (const [time, value] of points(curve)) {
        const dot = shape(svg, "circle", { cx: across(time), cy: up(value), r: 4, fill: stroke });
        shape(dot, "title", {}, `${curve.label}: ${fixed(value, 4)} at ${fixed(time, 2)} s`);
      }
      shape(svg, "text", { class: "value", x: width - 12 - 110 * (data.learning.length - 1 - index), y: 14, "text-anchor": "end", style: `fill:${stroke}` }, curve.label);
    });
  });
}

/* --- page ------------------------------------------------------------------------------------- */

const redraws = [];
let map = null;

function themes() {
  const names = { "light dark": "system", light: "light", dark: "dark" };
  const order = Object.keys(names);
  const root = document.documentElement;
  let now = order[0];
  try {
    now = order.find((key) => key === localStorage.getItem("theme")) ?? now;
  } catch {} // a page from a file may have no storage
  const apply = () => {
    root.style.colorScheme = now;
    byId("theme").textContent = `Theme: ${names[now]}`;
    forgetColours();
    axis.redraw();
    for (const redraw of redraws) redraw();
  };
  byId("theme").addEventListener("click", () => {
    now = order[(order.indexOf(now) + 1) % order.length];
    try {
      localStorage.setItem("theme", now);
    } catch {}
    apply();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
  apply();
}

function copyButtons() {
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      const source = byId(button.dataset.copy);
      try {
        await navigator.clipboard.writeText(source.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(source); // no clipboard: leave it selected
        button.textContent = "Selected";
      }
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
  }
}

function markSection() {
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        for (const link of links.values()) link.classList.remove("here");
        links.get(entry.target.id)?.classList.add("here");
      }
    },
    { rootMargin: "-30% 0px -65% 0px" },
  );
  for (const section of document.querySelectorAll("main section")) seen.observe(section);
}

if (byId("gantt")) {
  new TimeChart(byId("gantt"), axis, "Steps of each UAV over time, predicted above measured", {
    height: () => HEAD + chosen.rows.length * rowHeight() + 2,
    paint: paintGantt,
    hover: hoverGantt,
    pick: pickRow,
  });
}
if (rates) {
  if (rates.slots_a_point > 1) byId("rates-note").textContent = `Each point is the mean of ${rates.slots_a_point} slots.`;
  rateChart(byId("uplink"), "uplink_kbps", "Uplink, Mb/s");
  rateChart(byId("downlink"), "downlink_kbps", "Downlink, Mb/s");
}
if (data.paths) {
  map = planOfUavs();
  axis.cursorMoved = (time) => map.show(time);
  redraws.push(map.refit);
}
if (byId("gantt")) ganttControls();
if (data.budget) redraws.push(waterfall());
if (data.injector) redraws.push(latenessChart());
if (data.learning) redraws.push(learningChart("loss", "loss", "Loss"), learningChart("accuracy", "accuracy", "Accuracy"));
themes();
copyButtons();
markSection();
