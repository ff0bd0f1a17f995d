/* SPDX-FileCopyrightText: UAV-SFL testbed authors
   SPDX-License-Identifier: MIT */

/* What frames every page: themes, copying, navigation. */

/* Called when colours have changed. */
const redraws = [];

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
  printing();
}

/* On paper everything is light and unfolded. */
function printing() {
  const root = document.documentElement;
  let folded = [];
  let usual = "";
  const draw = () => {
    forgetColours();
    for (const redraw of redraws) redraw();
  };
  addEventListener("beforeprint", () => {
    PAPER.on = true;
    usual = root.style.colorScheme;
    root.style.colorScheme = "light";
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const part of folded) part.open = true;
    draw();
  });
  addEventListener("afterprint", () => {
    PAPER.on = false;
    root.style.colorScheme = usual;
    for (const part of folded) part.open = false;
    draw();
  });
}

/* The end of a live view: its verdict, and the path of the report. */
function conclude({ outcome, report }) {
  byId("verdict").textContent = outcome || "It ended without a result; the terminal shows why.";
  byId("report").hidden = !report;
  byId("report").lastElementChild.textContent = report ?? "";
}

/* Rows as CSV: what is missing is empty, and texts with commas, quotes or line feeds are quoted. */
function csvText(rows) {
  const cell = (value) => {
    const text = String(value ?? "");
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => `${row.map(cell).join(",")}\n`).join("");
}
function download(name, text) {
  const link = element("a", { download: name, href: URL.createObjectURL(new Blob([text], { type: "text/csv" })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
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
  const links = new Map(
    [...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]),
  );
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
