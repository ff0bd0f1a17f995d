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

// The search looks for words that begin with the words of a query: "a" would find "archive". Words
// that occur in any question are left out, except if there are no others.
const NOT_SEARCHED = new Set(
  ("a an and are be by can do does for from get has have how i if in is it its mean means my not of " +
    "on or our should that the their there this to use was what when where which who why will with " +
    "you your").split(" "),
);
const post = Worker.prototype.postMessage;
Worker.prototype.postMessage = function (message, ...rest) {
  if (message?.type === 2) {  // a query
    const words = message.data.replace(/[?!]/g, "").split(/\s+/);
    const kept = words.filter((word) => !NOT_SEARCHED.has(word.toLowerCase()));
    message = { ...message, data: (kept.length ? kept : words).join(" ") };
  }
  return post.call(this, message, ...rest);
};
