/* SPDX-FileCopyrightText: UAV-SFL testbed authors
   SPDX-License-Identifier: MIT */

/* The live view of a session: requests changes, and draws one row per link. */

const data = JSON.parse(byId("data").textContent);
const HERE = location.pathname.replace(/\/$/, "");
const [WIDE, HIGH] = [320, 30];

/* All looks that the page shows, and how many it has had. */
let looks = [];
let had = 0;
let phase = "connecting";
let end = {};

const rows = [];
for (const way of [0, 1]) {
  for (let client = 1; client <= data.uavs; client += 1) {
    const cells = ["num", "num", "num"].map((name) => element("td", { class: name }, "–"));
    const place = element("td", { class: "look" });
    const title = `${way ? "Downlink" : "Uplink"} of UAV ${client}`;
    const svg = shape(place, "svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img", "aria-label": title });
    const band = shape(svg, "polygon", { style: "fill:var(--accent);opacity:0.18" });
    const line = shape(svg, "polyline", { "vector-effect": "non-scaling-stroke", style: "fill:none;stroke:var(--accent);stroke-width:1.5" });
    byId("now").tBodies[0].append(element("tr", {}, element("th", { scope: "row" }, title), place, ...cells));
    rows.push({ way, index: client - 1, cells, band, line });
  }
}
if (data.shared) byId("shared").textContent = "Because the links share the cell, each band shows the capacity that the link would have alone.";

function draw() {
  byId("phase").textContent = phase;
  if (phase === "ended") conclude(end);
  else byId("verdict").textContent = `The session is ${phase === "running" ? "running" : "starting"}.`;
  const last = looks.at(-1);
  if (!last) return;
  byId("clock").textContent = `${fixed(last.end_s, 1)} s`;
  for (const { way, index, cells, band, line } of rows) {
    const of = (name, look) => look[name][index][way];
    const top = Math.max(1e-9, ...looks.flatMap((look) => [of("offered_kbps", look), of("carried_kbps", look)]));
    const at = (name) =>
      looks.map((look, k) => {
        const x = WIDE - ((looks.length - 1 - k) * WIDE) / (data.looks - 1);
        return `${x.toFixed(1)},${(HIGH * (1 - of(name, look) / top)).toFixed(1)}`;
      });
    const left = at("offered_kbps")[0].split(",")[0];
    band.setAttribute("points", `${left},${HIGH} ${at("offered_kbps").join(" ")} ${WIDE},${HIGH}`);
    line.setAttribute("points", at("carried_kbps").join(" "));
    cells[0].textContent = fixed(of("offered_kbps", last) / 1e3, 2);
    cells[1].textContent = fixed(of("carried_kbps", last) / 1e3, 2);
    cells[2].textContent = fixed(of("queued_bytes", last), 0);
  }
}

async function ask() {
  try {
    const answer = await fetch(`${HERE}/state?steps=${had}`);
    if (!answer.ok) throw new Error(answer.statusText);
    const state = await answer.json();
    phase = state.phase;
    end = state;
    looks = looks.concat(state.looks).slice(-data.looks);
    had = state.from + state.looks.length;
  } catch {
    phase = "ended";
  }
  draw();
  if (phase !== "ended") setTimeout(ask, 1000 * data.ask_s);
}
themes();
ask();
