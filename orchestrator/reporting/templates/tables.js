/* SPDX-FileCopyrightText: UAV-SFL testbed authors
   SPDX-License-Identifier: MIT */

/* Tables whose rows can be sorted by a column, and filtered. */

/* A click on the head of a column sorts by it, a second click in the opposite order. */
function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const body = table.tBodies[0];
      const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
      const order = (a, b) => key(a).localeCompare(key(b), "en", { numeric: true });
      body.append(...[...body.rows].sort((a, b) => (descending ? order(b, a) : order(a, b))));
    });
  });
}

/* Hides the rows that `keep` refuses, or in which a word of the input is missing. */
function filterable(table, input, keep = () => true) {
  const rows = [...table.tBodies[0].rows];
  const apply = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !keep(row) || !words.every((word) => text.includes(word));
    }
    return rows.filter((row) => !row.hidden).length;
  };
  input.addEventListener("input", apply);
  return apply;
}
