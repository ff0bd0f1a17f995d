/* SPDX-FileCopyrightText: UAV-SFL testbed authors
   SPDX-License-Identifier: MIT */

/* A page whose pictures are drawn where it is written. Its tables can be sorted and saved. */

for (const table of document.querySelectorAll("main table")) tabulatePlain(table);
themes();
copyButtons();
markSection();
