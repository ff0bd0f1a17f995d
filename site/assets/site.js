// SPDX-FileCopyrightText: UAV-SFL testbed authors
// SPDX-License-Identifier: MIT

// Wide code and tables can be scrolled with the keyboard.
for (const box of document.querySelectorAll("pre > code, .md-typeset__scrollwrap")) box.tabIndex = 0;
