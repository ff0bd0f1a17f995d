/* SPDX-FileCopyrightText: UAV-SFL testbed authors
   SPDX-License-Identifier: MIT */

/* Gantt charts of rounds, one per result, on one time axis; orchestrator/reporting/charts.py makes
   their data. */

const HEAD = 26;
const DARK_INK = "#15181b";
const data = JSON.parse(byId("data").textContent);
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
  byId("round").closest(".joined").hidden = rounds.length < 2;
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

if (data.timelines.length) ganttCharts();
