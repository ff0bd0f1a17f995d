/* SPDX-FileCopyrightText: UAV-SFL testbed authors
   SPDX-License-Identifier: MIT */

/* The index of a folder. */

const pages = byId("pages");
if (pages) {
  const kind = byId("kind");
  const wanted = (row) => !kind.value || row.dataset.kind === kind.value;
  const apply = filterable(pages, byId("filter"), wanted);
  const tell = () => {
    const left = apply();
    const all = pages.tBodies[0].rows.length;
    byId("shown").textContent = left < all ? `${left} of ${all} results are shown.` : "";
  };
  kind.addEventListener("change", tell);
  byId("filter").addEventListener("input", tell);
  sortable(pages);
}
themes();
