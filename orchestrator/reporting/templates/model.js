/* SPDX-FileCopyrightText: UAV-SFL testbed authors
   SPDX-License-Identifier: MIT */

/* What a run report shows: the embedded data, what the controls have chosen, steps by client. */

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
    if ((round === null || span.round === round) && (last === null || span.end > last))
      last = span.end;
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
    last: (client) =>
      -(
        finish("measured", client, chosen.round) ??
        finish(chosen.prediction, client, chosen.round) ??
        0
      ),
    late: (client) => {
      const [measured, predicted] = ["measured", chosen.prediction].map((kind) =>
        finish(kind, client, chosen.round),
      );
      return measured === null || predicted === null ? 0 : -Math.abs(measured - predicted);
    },
  }[chosen.order];
  const keys = new Map(clients.map((client) => [client, by(client)]));
  clients.sort((a, b) => keys.get(a) - keys.get(b) || a - b);
  chosen.rows = clients.slice(0, chosen.amount);
}

const axis = new TimeAxis(...extent(chosen.round));
arrange();
