/* SPDX-FileCopyrightText: UAV-SFL testbed authors
   SPDX-License-Identifier: MIT */

/* Tables that the reader sorts by a click on a heading, filters, and takes as CSV. */

/* What a cell is sorted, filtered and saved by: the number that it shows a rounded form of, the
   number that it shows, or its text. */
function valueOf(cell) {
  const given = cell.dataset.value;
  if (given !== undefined) return given === "" ? null : Number(given);
  const text = cell.textContent.trim();
  const [, sign, digits] = /^([+−-]?)(\d[\d,]*\.?\d*(?:e[+-]?\d+)?)(?:\s?(?:%|ms|s))?$/.exec(text) ?? [];
  if (digits === undefined) return text === "–" ? null : text;
  return (/[−-]/.test(sign) ? -1 : 1) * Number(digits.replaceAll(",", ""));
}

const COMPARED = {
  "<=": (a, b) => a <= b,
  ">=": (a, b) => a >= b,
  "<": (a, b) => a < b,
  ">": (a, b) => a > b,
  "=": (a, b) => a === b,
};

/* A filter such as `cpsfl accuracy>=80% time<12`: words of a row, and limits of its columns. */
function filterOf(text, keys) {
  return text.toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
    const [, key, sign, number, percent] = /^([a-z]+)(<=|>=|<|>|=)([\d.]+)(%?)$/.exec(word) ?? [];
    const column = keys.indexOf(key);
    if (column < 0) return (row) => row.textContent.toLowerCase().includes(word);
    const limit = Number(number) / (percent ? 100 : 1);
    return (row) => {
      const value = valueOf(row.cells[column]);
      return typeof value === "number" && COMPARED[sign](value, limit);
    };
  });
}

/* A click on the head of a column sorts by it, a second click in the opposite order. What is missing
   is last. */
function sortable(table) {
  const heads = [...[...table.tHead.rows].at(-1).cells];
  heads.forEach((head, column) => {
    const button = element("button", { type: "button", class: "sort" });
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const order = (a, b) => {
        const [x, y] = [a, b].map((row) => valueOf(row.cells[column]));
        if (x === null || y === null) return (x === null) - (y === null);
        const numbers = typeof x === "number" && typeof y === "number";
        const by = numbers ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
        return descending ? -by : by;
      };
      const body = table.tBodies[0];
      body.append(...[...body.rows].sort(order));
    });
  });
}

/* Hides the rows that `keep` refuses, or that the input does not ask for; answers a function that does
   so and answers the number of rows that are left. */
function filterable(table, input, keep = () => true) {
  const rows = [...table.tBodies[0].rows];
  const keys = [...[...table.tHead.rows].at(-1).cells].map((head) => head.dataset.key ?? "");
  const apply = () => {
    const asked = filterOf(input.value, keys);
    for (const row of rows) row.hidden = !keep(row) || !asked.every((fits) => fits(row));
    return rows.filter((row) => !row.hidden).length;
  };
  input.addEventListener("input", apply);
  return apply;
}

/* All of this for a table with controls of its own, which also get a button for CSV; answers a
   function that filters again. */
function tabulate(table) {
  const controls = document.querySelector(`[data-of="${table.id}"]`);
  const input = controls.querySelector("input[type=search]");
  const apply = filterable(table, input);
  const all = table.tBodies[0].rows.length;
  const sift = () => (controls.querySelector("output").textContent = `${apply()} of ${all} rows`);
  input.addEventListener("input", sift);
  controls.append(saving(table, table.id));
  sortable(table);
  sift();
  return sift;
}

/* A button that saves the visible rows of a table. */
function saving(table, name) {
  const save = element("button", { type: "button", title: "The visible rows as a file" }, "CSV");
  save.addEventListener("click", () => {
    const titles = [...[...table.tHead.rows].at(-1).cells].map((head) => head.textContent.trim());
    const rows = [...table.tBodies[0].rows].filter((row) => !row.hidden);
    download(`${name}.csv`, csvText([titles, ...rows.map((row) => [...row.cells].map(valueOf))]));
  });
  return save;
}

/* Sorting and CSV for a table without controls of its own, in a region that scrolls. */
function tabulatePlain(table) {
  const region = table.closest("[role=region]");
  if (!region || !table.tHead || table.tBodies[0].rows.length < 2) return;
  if (table.querySelector("[rowspan], [colspan]")) return;
  sortable(table);
  const name = region.ariaLabel.trim().toLowerCase().replace(/[^\w]+/g, "-");
  const line = element("p", { class: "saving" });
  line.append(saving(table, name));
  region.after(line);
}

/* The time at which each row first reaches an accuracy: `reached` has, by row, the times and values
   of its evaluations that were better than all before. */
function timesTo(table, reached, sift) {
  const field = document.querySelector(`[data-of="${table.id}"] input[type=number]`);
  const rows = [...table.tBodies[0].rows];
  const column = rows[0].querySelector("[data-reached]").cellIndex;
  const fill = () => {
    const target = field.valueAsNumber / 100;
    rows.forEach((row, i) => {
      const there = reached[i].find(([, accuracy]) => accuracy >= target);
      row.cells[column].dataset.value = there ? there[0] : "";
      row.cells[column].textContent = there ? fixed(there[0], 3) : "–";
    });
    sift();
  };
  field.addEventListener("input", fill);
  fill();
}
