/* SPDX-FileCopyrightText: UAV-SFL testbed authors
   SPDX-License-Identifier: MIT */

/* An LTE cell over time: scheme and resource blocks of each UAV's uplink and downlink. */

const HIGHEST_MCS = 28;
const TITLES = {
  cell: "Scheme and resource blocks of each UAV over time",
  grants: "Granted scheme and resource blocks of each UAV over time",
};
const SCHEMES = ["#c2213a", "#f07b3f", "#f2c14e", "#5fb0d8", "#3a63c8"]; // low to high, also for the colour-blind

function schemeColour(mcs) {
  if (mcs < 0) return colour("muted");
  const at = Math.min(0.999, mcs / HIGHEST_MCS) * (SCHEMES.length - 1);
  const [low, high] = [SCHEMES[Math.floor(at)], SCHEMES[Math.floor(at) + 1]];
  const mix = (from) =>
    Math.round(
      parseInt(low.slice(from, from + 2), 16) * (1 - (at % 1)) +
        parseInt(high.slice(from, from + 2), 16) * (at % 1),
    );
  return `rgb(${mix(1)}, ${mix(3)}, ${mix(5)})`;
}

function schemeName(mcs) {
  return mcs < 0 ? "out of range" : `MCS ${mcs}`;
}

/* {client: {up: [bar], down: [bar]}}, by start. */
function readCell(columns) {
  const { client, direction, time_s: times, slots, blocks, active, mcs, layers, lost } = columns;
  const table = {};
  times.forEach((time, i) => {
    const ways = (table[client[i]] ??= { up: [], down: [] });
    const end = time + slots[i] * data.slot_s;
    const bar = { time, end, slots: slots[i], blocks: blocks[i], active: active[i] };
    ways[direction[i]].push({ ...bar, mcs: mcs[i], layers: layers[i], lost: lost?.[i] });
  });
  return table;
}

/* A row per UAV, in the timeline's order: bars upwards for its uplink, downwards for its downlink.
   The name is that of the data, "cell" (the model) or "grants" (ns-3), and of the elements. */
function cellChart(name) {
  const bars = readCell(data[name]);
  const { most_blocks: most, slots_a_bar: merged, schemes } = data[name];
  const each = 54;
  const lane = each / 2 - 3;
  const schemeOf = (mcs) => (mcs < 0 && name === "grants" ? "no new block" : schemeName(mcs));
  const tall = (blocks) => lane * Math.sqrt(blocks / most);
  const marks = [10, 50, 100].filter((blocks) => blocks <= most);
  if (merged > 1) byId(`${name}-note`).textContent = `A bar is the mean of ${merged} slots or more.`;
  byId(`${name}-legend`).replaceChildren(
    ...[...schemes].reverse().map((mcs) => {
      const chip = element("span", { class: "chip" });
      chip.style.background = schemeColour(mcs);
      return element("li", {}, chip, element("b", {}, schemeOf(mcs)));
    }),
  );
  const paint = (context, place, height, width) => {
    context.clearRect(0, 0, width, height);
    paintTimes(context, place, HEAD, height, width, true);
    const right = width - GUTTER.right;
    chosen.rows.forEach((client, index) => {
      const middle = Math.round(HEAD + (index + 0.5) * each) + 0.5;
      context.fillStyle = ringColour(client);
      context.fillRect(0, middle - each * 0.28, 3, each * 0.56);
      context.fillStyle = colour("ink");
      context.textAlign = "left";
      context.fillText(`UAV ${client}`, 10, middle);
      context.textAlign = "right";
      for (const sign of [-1, 1]) {
        for (const blocks of marks) {
          const y = Math.round(middle + sign * tall(blocks)) + 0.5;
          context.strokeStyle = colour("faint");
          context.beginPath();
          context.moveTo(GUTTER.left, y);
          context.lineTo(right, y);
          context.stroke();
        }
      }
      context.globalAlpha = chosen.uav === client || chosen.uav === null ? 1 : 0.25;
      for (const [way, sign] of [
        ["up", -1],
        ["down", 1],
      ]) {
        for (const bar of bars[client]?.[way] ?? []) {
          if (bar.end < axis.from || bar.time > axis.to) continue;
          const left = Math.round(Math.max(GUTTER.left, place(bar.time)));
          const wide = Math.max(1, Math.round(Math.min(right, place(bar.end))) - left);
          const high = Math.max(3, tall(bar.blocks));
          context.fillStyle = schemeColour(bar.mcs);
          context.fillRect(left, sign < 0 ? middle - high : middle, wide, high);
          if (!bar.lost) continue;
          context.fillStyle = colour("ink");
          context.fillRect(left, sign < 0 ? middle - high : middle + high - 2, wide, 2);
        }
      }
      context.globalAlpha = 1;
      context.strokeStyle = colour("surface");
      context.lineWidth = 2;
      context.beginPath();
      context.moveTo(GUTTER.left, middle);
      context.lineTo(right, middle);
      context.stroke();
      context.lineWidth = 1;
    });
    context.fillStyle = colour("muted");
    context.textAlign = "left";
    context.fillText(`lines at ${marks.join(", ")} resource blocks`, 0, height - 9);
  };
  const clientAt = (y) => (y < HEAD ? undefined : chosen.rows[Math.floor((y - HEAD) / each)]);
  return new TimeChart(byId(name), axis, TITLES[name], {
    height: () => HEAD + chosen.rows.length * each + 20,
    paint,
    hover: (event, time, y) => {
      const client = clientAt(y);
      const way = (y - HEAD) % each < each / 2 ? "up" : "down";
      const bar = bars[client]?.[way].find((one) => one.time <= time && time < one.end);
      if (!bar) return tip.hide();
      const layers = bar.layers > 1 ? `, ${bar.layers} layers` : "";
      return tip.show(event, `UAV ${client}, ${way === "up" ? "uplink" : "downlink"}`, [
        ["scheme", `${schemeOf(bar.mcs)}${layers}`],
        ["resource blocks, mean", fixed(bar.blocks, bar.blocks < 10 ? 2 : 1)],
        name === "cell"
          ? ["active", `${fixed(100 * bar.active, 0)} % of the time`]
          : ["transport blocks lost", `${fixed(100 * bar.lost, 1)} %`],
        [
          bar.slots > 1 ? `${bar.slots} slots from` : "slot from",
          `${fixed(bar.time, 2)} s`,
        ],
      ]);
    },
    pick: (time, y) => {
      if (clientAt(y)) pickUav(clientAt(y));
    },
  });
}
