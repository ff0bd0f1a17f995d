/* SPDX-FileCopyrightText: UAV-SFL testbed authors
   SPDX-License-Identifier: MIT */

/* The page of `testbed learn`: its tables, of which that of the seeds has the times to an accuracy. */

for (const table of document.querySelectorAll("table.sorted")) {
  const sift = tabulate(table);
  if (table.querySelector("[data-reached]"))
    timesTo(table, JSON.parse(byId("data").textContent).reached, sift);
}
themes();
copyButtons();
markSection();
