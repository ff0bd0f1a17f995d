/* SPDX-FileCopyrightText: UAV-SFL testbed authors
   SPDX-License-Identifier: MIT */

/* The timeline: predicted above measured steps of each UAV, and rates on the same time axis. */

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
      paintBand(
        context,
        place,
        spans[kind][client] ?? [],
        kind,
        HEAD + index * each + offset,
        thick,
      );
    });
  }
  paintEnds(context, place, height);
  paintLosses(context, place, each);
  context.restore();
}

/* A cross where a UAV was given up. */
function paintLosses(context, place, each) {
  for (const loss of data.lost) {
    const index = chosen.rows.indexOf(loss.client);
    if (index < 0 || !spans[loss.kind]) continue;
    if (loss.kind !== "measured" && loss.kind !== chosen.prediction) continue;
    const time = loss.lost_s + (shifts[loss.kind][loss.round] ?? 0);
    if (time < axis.from || time > axis.to) continue;
    const [offset, thick] = band(loss.kind, each);
    const [x, y] = [place(time), HEAD + index * each + offset + thick / 2];
    const arm = Math.min(6, thick / 2);
    context.strokeStyle = colour("ink");
    context.lineWidth = 2.2;
    context.beginPath();
    context.moveTo(x - arm, y - arm);
    context.lineTo(x + arm, y + arm);
    context.moveTo(x - arm, y + arm);
    context.lineTo(x + arm, y - arm);
    context.stroke();
  }
}

function paintBand(context, place, list, kind, top, thick) {
  const measured = kind === "measured";
  const middle = Math.round(top + thick / 2) + 0.5;
  let previous = null;
  for (const span of list) {
    if (
      previous &&
      previous.round === span.round &&
      span.start > previous.end &&
      span.start > axis.from &&
      previous.end < axis.to
    ) {
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
    const predicted = found[chosen.prediction].end - found[chosen.prediction].start;
    const gap = found.measured.end - found.measured.start - predicted;
    rows.push([
      "difference",
      `${milliseconds(gap)}${predicted > 0 ? ` (${percent(gap / predicted)})` : ""}`,
    ]);
  }
  if (span.bytes) rows.push(...carried(client, span));
  rows.push(["round, iteration", `${span.round}, ${span.iteration}`]);
  return tip.show(event, `UAV ${client} · ${step.name} ${step.title}`, rows);
}

/* What a transfer carried: payload, with the frames around it, and at which mean rate. */
function carried(client, span) {
  const payload = sameSpan("measured", client, span) ?? sameSpan("predicted", client, span);
  const framed = sameSpan("predicted_wire", client, span);
  const rate = (8e-6 * (framed ?? payload).bytes) / (span.end - span.start);
  const rows = [["mean rate", `${fixed(rate, 2)} Mb/s`]];
  if (framed) rows.unshift(["on the link", `${fixed(framed.bytes, 0)} B`]);
  if (payload) rows.unshift(["payload", `${fixed(payload.bytes, 0)} B`]);
  return rows;
}

function waitAt(kind, client, time) {
  const list = spans[kind][client] ?? [];
  const next = list.findIndex((span) => span.start > time);
  const before = list[next - 1];
  return next > 0 && before.round === list[next].round ? [before, list[next]] : null;
}

/* A fraction as per cent with two significant digits, as in the tables. */
function percent(value) {
  const digits = Math.max(0, 1 - Math.floor(Math.log10(Math.abs(100 * value) || 1)));
  if (Math.abs(value) < 1e-6) return value ? "< 0.0001 %" : "0 %";
  return `${signed(100 * value, digits)} %`;
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
  options(
    byId("prediction"),
    kinds.map((kind) => [kind, KIND_NAMES[kind]]),
    chosen.prediction,
  );
  byId("prediction").disabled = kinds.length < 2;
  const amounts = [10, 25, 50].filter((amount) => amount < data.uavs);
  options(
    byId("amount"),
    [...amounts.map((n) => [n, `${n} UAVs`]), [data.uavs, `all ${data.uavs} UAVs`]],
    Math.min(10, data.uavs),
  );
  chosen.amount = Math.min(10, data.uavs);
  chosen.order = chosen.amount < data.uavs ? "last" : "number"; // the slowest UAV ends the round
  byId("order").value = chosen.order;
  byId("legend").replaceChildren(
    ...STEPS.map((step) =>
      element("li", {}, chipOf(step), element("b", {}, step.name), ` ${step.title}`),
    ),
  );
  const total = Math.max(...Object.values(data.spans).map((columns) => columns.total));
  const kept = Math.min(...Object.values(data.spans).map((columns) => columns.round.length));
  if (kept < total) {
    byId("gantt-note").textContent =
      `The chart holds the first ${fixed(kept, 0)} of ${fixed(total, 0)} steps; the Parquet files contain all steps.`;
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
  const moveBy = (by) => () =>
    setRound(byId("round").options[byId("round").selectedIndex + by].value);
  byId("round").addEventListener("change", (event) => setRound(event.target.value));
  byId("round-before").addEventListener("click", moveBy(-1));
  byId("round-after").addEventListener("click", moveBy(1));
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
  const [least, most] = rates[direction]
    .flat()
    .reduce(
      ([low, high], rate) =>
        rate === null ? [low, high] : [Math.min(low, rate / 1e3), Math.max(high, rate / 1e3)],
      [Infinity, 1e-3],
    );
  const floor = least < most && least > 0.4 * most ? least - 0.15 * (most - least) : 0; // lines need no zero, outages do
  const box = [28, 168];
  const up = scale([floor, most + 0.06 * (most - floor)], [box[1], box[0]]);
  const values = ticks(floor, most, 4);
  const text = tickText(values);
  const head = floor ? `${title}; the axis does not start at zero` : title;
  const paint = (context, place, height, width) => {
    context.clearRect(0, 0, width, height);
    paintTimes(context, place, box[0], box[1], width, false);
    context.fillStyle = colour("ink");
    context.textAlign = "left";
    context.fillText(head, 0, 12);
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
        [
          direction === "uplink_kbps" ? "uplink" : "downlink",
          found.rate ? `${fixed(found.rate / 1e3, 3)} Mb/s` : "outage",
        ],
        [
          rates.slots_a_point > 1 ? `mean of ${rates.slots_a_point} slots from` : "slot from",
          `${fixed(at, 2)} s`,
        ],
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

/* --- lost frames ------------------------------------------------------------------------------ */

/* {client: [bar]}, and the most frames of a bar. */
function readLosses() {
  const { client, direction, time_s: times, frames } = data.lost_frames;
  const table = {};
  let most = 1;
  frames.forEach((count, i) => {
    (table[client[i]] ??= []).push({ direction: direction[i], time: times[i], count });
    most = Math.max(most, count);
  });
  return [table, most];
}

/* A row a UAV, in the timeline's order: bars upwards for its uplink, downwards for its downlink. */
function lossChart(holder) {
  const [bars, most] = readLosses();
  const slots = data.lost_frames.slots_a_bar;
  const long = slots * data.slot_s;
  const each = 34;
  const head = slots > 1 ? `frames lost in ${slots} slots` : "frames lost in a slot";
  if (slots > 1) byId("lost-frames-note").textContent = `A bar is the sum of ${slots} slots.`;
  const paint = (context, place, height, width) => {
    context.clearRect(0, 0, width, height);
    paintTimes(context, place, HEAD, height, width, true);
    context.fillStyle = colour("ink");
    context.textAlign = "left";
    context.fillText(`${head}; the longest bar: ${fixed(most, 0)}`, 0, height - 9);
    chosen.rows.forEach((client, index) => {
      const middle = HEAD + (index + 0.5) * each;
      context.fillStyle = colour("ink");
      context.textAlign = "left";
      context.fillText(`UAV ${client}`, 10, middle);
      context.strokeStyle = colour("faint");
      context.beginPath();
      context.moveTo(GUTTER.left, Math.round(middle) + 0.5);
      context.lineTo(width - GUTTER.right, Math.round(middle) + 0.5);
      context.stroke();
      context.globalAlpha = chosen.uav === client || chosen.uav === null ? 1 : 0.25;
      for (const bar of bars[client] ?? []) {
        if (bar.time + long < axis.from || bar.time > axis.to) continue;
        const left = Math.max(GUTTER.left, place(bar.time));
        const right = Math.min(width - GUTTER.right, place(bar.time + long));
        const tall = (bar.count / most) * (each / 2 - 2);
        const up = bar.direction === "up";
        context.fillStyle = colour(up ? "more" : "less");
        context.fillRect(left, up ? middle - tall : middle, Math.max(1, right - left - 0.5), tall);
      }
      context.globalAlpha = 1;
    });
  };
  const clientAt = (y) => (y < HEAD ? undefined : chosen.rows[Math.floor((y - HEAD) / each)]);
  return new TimeChart(holder, axis, "Frames that each UAV's links lost, over time", {
    height: () => HEAD + chosen.rows.length * each + 20,
    paint,
    hover: (event, time, y) => {
      const found = (bars[clientAt(y)] ?? []).filter(
        (bar) => bar.time <= time && time < bar.time + long,
      );
      if (!found.length) return tip.hide();
      return tip.show(event, `UAV ${clientAt(y)}`, [
        ...found.map((bar) => [`frames lost ${bar.direction}`, fixed(bar.count, 0)]),
        [slots > 1 ? `${slots} slots from` : "slot from", `${fixed(found[0].time, 2)} s`],
      ]);
    },
    pick: (time, y) => {
      if (clientAt(y)) pickUav(clientAt(y));
    },
  });
}
