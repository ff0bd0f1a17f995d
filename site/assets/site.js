// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: MIT

// What the theme leaves out: wide code and tables can be scrolled with the keyboard, and parts of
// the page that have the same role have different names. The theme adds and changes these later.
function label() {
  for (const box of document.querySelectorAll("pre > code, .md-typeset__scrollwrap"))
    if (!box.hasAttribute("tabindex")) box.tabIndex = 0;
  for (const [i, nav] of document.querySelectorAll(".md-code__nav").entries())
    if (!nav.hasAttribute("aria-label")) nav.setAttribute("aria-label", `Code ${i + 1}`);
}
document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
new MutationObserver(label).observe(document.body, {
  attributeFilter: ["tabindex"], childList: true, subtree: true,
});
label();
