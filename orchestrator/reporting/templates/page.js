/* SPDX-FileCopyrightText: UAV-SFL testbed authors
   SPDX-License-Identifier: MIT */

/* The page of a run as a whole: puts every part in its place. */

let map = null;

redraws.push(() => axis.redraw());
if (byId("gantt")) {
  new TimeChart(byId("gantt"), axis, "Steps of each UAV over time, predicted above measured", {
    height: () => HEAD + chosen.rows.length * rowHeight() + 2,
    paint: paintGantt,
    hover: hoverGantt,
    pick: pickRow,
  });
}
if (rates) {
  if (rates.slots_a_point > 1)
    byId("rates-note").textContent = `Each point is the mean of ${rates.slots_a_point} slots.`;
  rateChart(byId("uplink"), "uplink_kbps", "Uplink, Mb/s");
  rateChart(byId("downlink"), "downlink_kbps", "Downlink, Mb/s");
}
if (data.cell) cellChart("cell");
if (data.grants) cellChart("grants");
if (data.cells) cellsChart(byId("cells"));
if (data.lost_frames) lossChart(byId("lost-frames"));
if (data.paths) {
  map = planOfUavs();
  axis.cursorMoved = (time) => map.show(time);
  redraws.push(map.refit);
}
if (byId("gantt")) ganttControls();
if (data.budget) redraws.push(waterfall());
if (data.injector) redraws.push(latenessChart());
for (const [section, { columns, curves }] of Object.entries(data.over_time))
  for (const [column, title] of Object.entries(columns))
    redraws.push(timeChart(byId(`${section}-${column}`), curves, column, title));
themes();
copyButtons();
markSection();
