/* SPDX-FileCopyrightText: UAV-SFL testbed authors
   SPDX-License-Identifier: MIT */

/* Several cells over time: serving cell, SINR and handovers of each UAV. */

function cellColour(cell) {
  return data.cells.colours[cell % data.cells.colours.length];
}

function cellName(cell) {
  return cell === 0 ? "base station" : `cell ${cell}`;
}

/* A row per UAV, in the timeline's order: a band in the colour of the serving cell, and on it a line for the SINR;
   a mark at each handover. */
function cellsChart(holder) {
  const { clients, handovers, slots_a_point: merged, low_db: low, high_db: high } = data.cells;
  const long = merged * data.cells.slot_s;
  const each = 44;
  const range = Math.max(1, high - low);
  if (merged > 1) byId("cells-note").textContent = `A point is the mean of ${merged} slots.`;
  byId("cells-legend").replaceChildren(
    ...data.cells.cells.map((cell) => {
      const chip = element("span", { class: "chip" });
      chip.style.background = cellColour(cell);
      return element("li", {}, chip, element("b", {}, cellName(cell)));
    }),
  );
  const paintClient = (context, place, client, top, right) => {
    const { time_s: times, cell, sinr_db: sinr } = clients[client] ?? { time_s: [], cell: [], sinr_db: [] };
    const level = (db) => top + (each - 8) * (1 - (db - low) / range) + 4;
    context.globalAlpha = 0.45;
    for (let i = 0; i < times.length; ) {
      let end = i + 1;
      while (end < times.length && cell[end] === cell[i]) ++end;
      const from = Math.max(GUTTER.left, place(times[i]));
      const to = Math.min(right, place(times[end - 1] + long));
      context.fillStyle = cellColour(cell[i]);
      if (to > from) context.fillRect(from, top + 2, to - from, each - 4);
      i = end;
    }
    context.globalAlpha = 1;
    context.strokeStyle = colour("ink");
    context.beginPath();
    let drawing = false;
    times.forEach((time, i) => {
      const x = place(time + long / 2);
      if (sinr[i] === null || x < GUTTER.left || x > right) {
        drawing = false;
        return;
      }
      if (drawing) context.lineTo(x, level(sinr[i]));
      else context.moveTo(x, level(sinr[i]));
      drawing = true;
    });
    context.stroke();
    context.strokeStyle = colour("less");
    context.lineWidth = 2;
    for (const change of handovers) {
      const x = Math.round(place(change.start_s)) + 0.5;
      if (change.client !== client || x < GUTTER.left || x > right) continue;
      context.beginPath();
      context.moveTo(x, top + 1);
      context.lineTo(x, top + each - 1);
      context.stroke();
    }
    context.lineWidth = 1;
  };
  const paint = (context, place, height, width) => {
    context.clearRect(0, 0, width, height);
    paintTimes(context, place, HEAD, height, width, true);
    chosen.rows.forEach((client, index) => {
      const top = HEAD + index * each;
      context.fillStyle = ringColour(client);
      context.fillRect(0, top + each * 0.22, 3, each * 0.56);
      context.fillStyle = colour("ink");
      context.textAlign = "left";
      context.fillText(`UAV ${client}`, 10, top + each / 2);
      paintClient(context, place, client, top, width - GUTTER.right);
    });
    context.fillStyle = colour("muted");
    context.textAlign = "left";
    context.fillText(`each row: SINR from ${fixed(low, 1)} dB to ${fixed(high, 1)} dB`, 0, height - 9);
  };
  const clientAt = (y) => (y < HEAD ? undefined : chosen.rows[Math.floor((y - HEAD) / each)]);
  return new TimeChart(holder, axis, "Serving cell, SINR and handovers of each UAV over time", {
    height: () => HEAD + chosen.rows.length * each + 20,
    paint,
    hover: (event, time, y) => {
      const own = clients[clientAt(y)];
      const at = own ? own.time_s.findLastIndex((start) => start <= time) : -1;
      if (at < 0) return tip.hide();
      const near = handovers.find((one) => one.client === clientAt(y) && Math.abs(one.start_s - time) <= long);
      const db = own.sinr_db[at];
      return tip.show(event, `UAV ${clientAt(y)}, ${cellName(own.cell[at])}`, [
        ["SINR of the downlink", db === null ? "nothing received" : `${fixed(db, 1)} dB`],
        ...(near
          ? [
              ["handover", `${cellName(near.from_cell)} to ${cellName(near.to_cell)}`],
              ["interruption", near.interruption_ms === null ? "–" : `${fixed(near.interruption_ms, 0)} ms`],
            ]
          : []),
        ["time", `${fixed(own.time_s[at], 2)} s`],
      ]);
    },
    pick: (time, y) => {
      if (clientAt(y)) pickUav(clientAt(y));
    },
  });
}
