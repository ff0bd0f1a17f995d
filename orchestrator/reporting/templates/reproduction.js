/* SPDX-FileCopyrightText: UAV-SFL testbed authors
   SPDX-License-Identifier: MIT */

/* The page of a reproduction: nothing but its frame; figures are pictures. */

themes();
copyButtons();
markSection();
