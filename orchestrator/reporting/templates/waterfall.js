/* SPDX-FileCopyrightText: UAV-SFL testbed authors
   SPDX-License-Identifier: MIT */

/* The latency of a round by cause, each cause from where the one before ends;
   orchestrator/studies/overhead.py makes the data. */

const BAR_HEAD = 30;
const BAR_ROW = 38;

/* Bars of one chart, in rows: each has a name, its row, its ends in s, its kind and its seconds. */
function barChart(holder, axis, label, fall, bars, rows) {
  const tell = (bar) => [
    [bar.seconds < 0 ? "takes away" : "adds", milliseconds(Math.abs(bar.seconds)).replace("+", "")],
    ["of the round", `${fixed((100 * bar.seconds) / fall.measured_s, 3)} %`],
    ["from the start", `${fixed(bar.from, 4)} – ${fixed(bar.to, 4)} s`],
  ];
  const top = (bar) => BAR_HEAD + bar.row * BAR_ROW;
  const paint = (context, place, height, width) => {
    context.clearRect(0, 0, width, height);
    paintTimes(context, place, BAR_HEAD, height, width, true);
    for (const bar of bars) {
      const [left, right] = [place(bar.from), place(bar.to)].sort((a, b) => a - b);
      const [from, to] = [Math.max(GUTTER.left, left), Math.min(width - GUTTER.right, right)];
      context.fillStyle = colour(fall.kinds[bar.kind].colour);
      if (from <= to) context.fillRect(from, top(bar) + 18, Math.max(1.5, to - from), 15);
      if (rows === 1) continue;
      context.fillStyle = colour("ink");
      context.textAlign = "left";
      context.fillText(bar.name, GUTTER.left, top(bar) + 9);
      context.textAlign = "right";
      context.fillText(milliseconds(bar.seconds), width - GUTTER.right, top(bar) + 9);
    }
  };
  const under = (time, y) =>
    bars.find(
      (bar) =>
        bar.row === Math.floor((y - BAR_HEAD) / BAR_ROW) &&
        (rows > 1 || (bar.from <= time && time < bar.to)),
    );
  new TimeChart(holder, axis, label, {
    height: () => BAR_HEAD + rows * BAR_ROW,
    paint,
    hover: (event, time, y) => {
      const bar = under(time, y);
      return bar ? tip.show(event, bar.name, tell(bar)) : tip.hide();
    },
  });
}

function waterfallChart(place, fall) {
  let end = 0;
  const ends = fall.parts.map((part) => (end += part.seconds));
  const bars = fall.parts.map((part, i) => ({ ...part, from: ends[i] - part.seconds, to: ends[i] }));
  const added = bars.slice(2).map((bar, row) => ({ ...bar, row }));
  const edges = added.flatMap((bar) => [bar.from, bar.to]);
  const charts = [[new TimeAxis(0, Math.max(...ends)), "Latency of a round", bars.map((bar) => ({ ...bar, row: 0 })), 1]];
  if (added.length) {
    const axis = new TimeAxis(Math.min(...edges), Math.max(...edges));
    charts.push([axis, "Added latency by cause", added, added.length]);
  }
  const legend = element("ul", { class: "legend" });
  for (const { name, colour: ink, seconds } of fall.kinds) {
    const chip = element("span", { class: "chip" });
    chip.style.background = `var(--${ink})`;
    legend.append(element("li", {}, chip, `${name} ${fixed(seconds, 3)} s`));
  }
  const reset = element("button", { type: "button" }, "Whole range");
  reset.addEventListener("click", () => charts.forEach(([axis]) => axis.reset()));
  place.append(element("div", { class: "controls" }, reset), legend);
  for (const [axis, label, shown, rows] of charts) {
    const holder = element("div", { class: "chart" });
    place.append(holder);
    barChart(holder, axis, label, fall, shown, rows);
    redraws.push(() => axis.redraw());
  }
}

JSON.parse(byId("data").textContent).waterfalls.forEach((fall, index) =>
  waterfallChart(byId(`waterfall-${index}`), fall),
);
